"""Vectors through the C interface from Python's ctypes.

    embed_test.py LIBMLXX MINILM

MINILM is the folder of all-MiniLM-L6-v2.
"""
import ctypes
import math
import sys
import threading
import unittest
from ctypes import byref, c_char_p, c_float, c_size_t, c_void_p

import libmlxx as c

TEXTS = ["The capital of France is Paris.", "Paris is the capital of France.",
         "My cat sleeps all day.", ""]


def texts_of(texts):
    return (c_char_p * len(texts))(*[t.encode() for t in texts])


class EmbedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.mlxx = c.Library(LIBMLXX)
        cls.mlxx.init(None)
        cls.embedder = c_void_p()
        cls.mlxx.embedder_open(MINILM.encode(), byref(cls.embedder))

    @classmethod
    def tearDownClass(cls):
        cls.mlxx.embedder_close(cls.embedder)

    def fails(self, status, part, function, *arguments):
        with self.assertRaises(c.MlxxError) as caught:
            function(*arguments)
        self.assertEqual(caught.exception.status, status, caught.exception)
        self.assertIn(part, str(caught.exception))

    def embed(self, texts, result=None, **fields):
        options = c.EmbedOptions(**fields)
        count = c_size_t()
        given = texts_of(texts)
        self.mlxx.embed(self.embedder, given, len(texts), byref(options), None, 0, byref(count),
                        None)
        vectors = (c_float * count.value)()
        self.mlxx.embed(self.embedder, given, len(texts), byref(options), vectors, len(vectors),
                        byref(count), byref(result) if result else None)
        width = count.value // max(len(texts), 1)
        return [list(vectors[i * width:(i + 1) * width]) for i in range(len(texts))]

    def test_info(self):
        info = c.EmbedderInfo()
        self.mlxx.embedder_get_info(self.embedder, byref(info))
        self.assertEqual(info.architecture, b"bert")
        self.assertEqual(info.pooling, b"mean")
        self.assertEqual((info.dimensions, info.max_tokens, info.layers), (384, 256, 6))
        self.assertEqual((info.hidden_size, info.normalizes), (384, 1))

    def test_vectors_mean_something(self):
        result = c.EmbedResult()
        vectors = self.embed(TEXTS, result)
        self.assertEqual([len(v) for v in vectors], [384] * 4)
        # [CLS] and [SEP] of four texts, and their words.
        self.assertEqual((result.tokens, result.dropped), (8 + 7 + 7 + 6, 0))

        def cosine(a, b):
            return sum(x * y for x, y in zip(a, b))

        for vector in vectors:
            self.assertAlmostEqual(cosine(vector, vector), 1, places=5)
        self.assertGreater(cosine(vectors[0], vectors[1]), 0.9)
        self.assertLess(cosine(vectors[0], vectors[2]), 0.3)
        self.assertEqual(self.embed(TEXTS[:1])[0], vectors[0])

    def test_options(self):
        raw = self.embed(TEXTS[:1], normalize=0)[0]
        length = math.sqrt(sum(x * x for x in raw))
        self.assertGreater(abs(length - 1), 0.1)
        short = self.embed(TEXTS[:1], normalize=0, dimensions=10)[0]
        self.assertEqual(short, raw[:10])
        prompted = self.embed(["of France"], prompt=b"The capital ")
        self.assertEqual(prompted, self.embed(["The capital of France"]))
        result = c.EmbedResult()
        self.embed(["word " * 300, "word"], result, max_tokens=12)
        self.assertEqual((result.tokens, result.dropped, result.texts_cut), (15, 290, 1))

    def test_no_texts(self):
        self.assertEqual(self.embed([]), [])

    def test_what_is_refused(self):
        count = c_size_t()
        one = texts_of(["a"])
        floats = (c_float * 384)()

        def call(texts=one, texts_count=1, options=None, capacity=384, handle=self.embedder):
            self.mlxx.embed(handle, texts, texts_count, options, floats, capacity, byref(count),
                            None)

        call()
        self.fails(c.INVALID_REQUEST, "the buffer holds 383, needed are 384", call, one, 1, None,
                   383)
        self.assertEqual(count.value, 384)
        self.fails(c.INVALID_REQUEST, "is NULL", call, None)
        self.fails(c.INVALID_REQUEST, "a text is NULL", call, (c_char_p * 1)(None))
        self.fails(c.INVALID_REQUEST, "texts, the most are", call, one, 1 << 40)
        self.fails(c.INVALID_REQUEST, "UTF-8", call, (c_char_p * 1)(b"\xff"))
        for part, fields in (("normalize must be", {"normalize": 2}), ("is 385", {"dimensions": 385}),
                             ("is -1", {"max_tokens": -1}), ("is 257", {"max_tokens": 257}),
                             ("no prompt 'q'", {"prompt_name": b"q"}),
                             ("reserved", {"reserved": 1})):
            part = part.replace("normalize must be", "[normalize] must be 0 or 1")
            self.fails(c.INVALID_REQUEST, part, call, one, 1, byref(c.EmbedOptions(**fields)))
        self.fails(c.INVALID_REQUEST, "no open handle", call, one, 1, None, 384, c_void_p(12345))
        handle = c_void_p()
        self.fails(c.NOT_FOUND, "/no/such", self.mlxx.embedder_open, b"/no/such", byref(handle))
        self.fails(c.BAD_FILE, "'classifier.weight'", self.mlxx.reranker_open, MINILM.encode(),
                   byref(handle))
        self.assertFalse(handle.value)

    def test_from_many_threads(self):
        wanted = [self.embed([t])[0] for t in TEXTS]
        got = {}

        def work(i):
            got[i] = self.embed([TEXTS[i]])[0]

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(TEXTS))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([got[i] for i in range(len(TEXTS))], wanted)

    def test_a_closed_handle_is_none(self):
        handle = c_void_p()
        self.mlxx.embedder_open(MINILM.encode(), byref(handle))
        self.mlxx.embedder_close(handle)
        info = c.EmbedderInfo()
        self.fails(c.INVALID_REQUEST, "embedder is no open handle",
                   self.mlxx.embedder_get_info, handle, byref(info))
        self.mlxx.embedder_close(None)


if __name__ == "__main__":
    LIBMLXX, MINILM = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
