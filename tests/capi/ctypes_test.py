"""Uses the C interface from Python's ctypes, as other languages do.

    ctypes_test.py LIBMLXX CAPI_LAYOUT

The model is MLXX_TEST_GGUF, or what `mlxx pull smollm2` put under MLXX_HOME.
Exit code 77 (skipped) if neither is set.
"""
import ctypes
import json
import os
import subprocess
import sys
import threading
import unittest
from ctypes import byref, c_char_p, c_float, c_int32, c_size_t, c_void_p

import libmlxx as c

QUESTION = "What is the capital of France?"
MODEL = os.environ.get("MLXX_TEST_GGUF") or "smollm2"


def array(kind, values):
    return (kind * len(values))(*values)


def chat(messages, **fields):
    return c.Chat(messages=json.dumps(messages).encode(), **fields)


def user(text):
    return [{"role": "user", "content": text}]


class CTypesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.mlxx = c.Library(LIBMLXX)
        cls.mlxx.init(None)
        cls.model = c_void_p()
        cls.mlxx.model_open(MODEL.encode(), None, byref(cls.model))

    @classmethod
    def tearDownClass(cls):
        cls.mlxx.model_close(cls.model)

    def fails(self, status, part, function, *arguments):
        with self.assertRaises(c.MlxxError) as caught:
            function(*arguments)
        self.assertEqual(caught.exception.status, status, caught.exception)
        self.assertRegex(str(caught.exception), rf"^\[[^\]]+\] .*{part}|^\[{part}")
        self.assertEqual(self.mlxx.last_error(), "")

    def generate(self, prompt, result=None, on_piece=None, **fields):
        fields = {"max_tokens": 20, **fields}
        pieces = []
        caller = threading.get_ident()

        def receive(text, count, _user):
            assert threading.get_ident() == caller
            assert len(text) == count
            pieces.append(text.decode())
            return int(bool(on_piece and on_piece(pieces)))

        options = c.GenerateOptions(**fields)
        self.mlxx.generate(
            self.model, None if prompt is None else prompt.encode(), byref(options),
            c.TextCallback(receive), None, byref(result) if result else None)
        return "".join(pieces)

    def tokens(self, text, flags=0):
        data = text.encode()
        count = c_size_t()
        self.mlxx.tokenize(self.model, data, len(data), flags, None, 0, byref(count))
        ids = (c_int32 * count.value)()
        self.mlxx.tokenize(self.model, data, len(data), flags, ids, len(ids), byref(count))
        return list(ids)

    def text(self, ids, skip_special=0):
        count = c_size_t()
        given = array(c_int32, ids)
        self.mlxx.detokenize(self.model, given, len(ids), skip_special, None, 0, byref(count))
        text = ctypes.create_string_buffer(b"\xff" * (count.value + 2))
        self.mlxx.detokenize(
            self.model, given, len(ids), skip_special, text, count.value + 1, byref(count))
        self.assertEqual(text.raw[count.value], 0)
        self.assertEqual(text.raw[count.value + 1], 0xff)
        return text.raw[:count.value].decode()

    def prompt(self, conversation):
        count = c_size_t()
        self.mlxx.apply_chat_template(self.model, byref(conversation), None, 0, byref(count))
        text = ctypes.create_string_buffer(count.value + 1)
        self.mlxx.apply_chat_template(
            self.model, byref(conversation), text, len(text), byref(count))
        return text.raw[:count.value].decode()

    def test_structs_are_laid_out_as_in_c(self):
        in_c = dict(line.split() for line in subprocess.run(
            [CAPI_LAYOUT], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines())
        here = {}
        for struct in c.STRUCTS:
            here[struct.c_name] = str(ctypes.sizeof(struct))
            end = 0
            for name, *_ in struct._fields_:
                field = getattr(struct, name)
                here[f"{struct.c_name}.{name}"] = str(field.offset)
                self.assertEqual(field.offset, end, "a gap, which sizes could cut")
                end += field.size
            self.assertEqual(ctypes.sizeof(struct), end)
        self.assertEqual(here, in_c)

    def test_info(self):
        info = c.ModelInfo()
        self.mlxx.model_get_info(self.model, byref(info))
        self.assertEqual(info.architecture, b"llama")
        self.assertEqual(info.format, b"gguf")
        self.assertEqual((info.layers, info.hidden_size), (30, 576))
        self.assertEqual(info.vocab_size, 49152)
        self.assertEqual(info.tokenizer_size, 49152)
        self.assertEqual(info.has_chat_template, 1)
        self.assertGreaterEqual(info.context_length, 2048)
        self.assertAlmostEqual(info.parameters / 135e6, 1, delta=0.2)
        memory = c.Memory()
        self.mlxx.memory_get(byref(memory))
        self.assertGreater(info.file_bytes, 50_000_000)
        self.assertGreaterEqual(memory.active, info.weight_bytes * 0.9)

    def test_tokens_there_and_back(self):
        for text in ("", "Hello, world!", "naïve — 漢字 🎉\n\ttabs", "a\0b"):
            self.assertEqual(self.text(self.tokens(text)), text)
        control = self.tokens("<|im_end|>")
        self.assertEqual(len(control), 1)
        plain = self.tokens("<|im_end|>", c.PLAIN_TEXT)
        self.assertGreater(len(plain), 1)
        self.assertEqual(self.text(plain), "<|im_end|>")
        self.assertEqual(self.text(control), "<|im_end|>")
        self.assertEqual(self.text(control, skip_special=1), "")
        # This model's prompts begin with no BOS of their own.
        self.assertEqual(self.tokens("Hi", c.ADD_SPECIAL), self.tokens("Hi"))
        self.assertEqual(
            self.tokens("<|im_end|>", c.ADD_SPECIAL | c.PLAIN_TEXT), plain)

    def test_tokens_refused(self):
        count = c_size_t(77)
        ids = (c_int32 * 1)(123456)
        tokenize, detokenize = self.mlxx.tokenize, self.mlxx.detokenize
        bad = c.INVALID_REQUEST
        self.fails(bad, "holds 1, needed are", tokenize, self.model, b"Hello, world!", 13, 0,
                   ids, 1, byref(count))
        self.assertGreater(count.value, 1)
        self.assertEqual(ids[0], 123456, "nothing is written")
        self.fails(bad, "flags in 4", tokenize, self.model, b"a", 1, 4, ids, 1, byref(count))
        self.fails(bad, "text is NULL", tokenize, self.model, None, 1, 0, ids, 1, byref(count))
        self.fails(bad, "count is NULL", tokenize, self.model, b"a", 1, 0, ids, 1, None)
        self.fails(bad, "buffer is NULL", tokenize, self.model, b"a", 1, 0, None, 1, byref(count))
        self.fails(bad, "UTF-8", tokenize, self.model, b"\xff\xfe", 2, 0, ids, 1, byref(count))
        text = ctypes.create_string_buffer(8)
        self.fails(bad, "token id 123456 is outside", detokenize, self.model, ids, 1, 0, text, 8,
                   byref(count))
        ids[0] = -1
        self.fails(bad, "token id -1 is outside", detokenize, self.model, ids, 1, 0, text, 8,
                   byref(count))
        ids[0] = 28
        self.fails(bad, "holds 0, needed are", detokenize, self.model, ids, 1, 0, text, 0,
                   byref(count))
        self.fails(bad, "must be 0 or 1", detokenize, self.model, ids, 1, 2, text, 8,
                   byref(count))
        self.fails(bad, "the most are", detokenize, self.model, ids, 2**63, 0, text, 8,
                   byref(count))

    def test_chat_template(self):
        text = self.prompt(chat(user("Hello")))
        self.assertIn("<|im_start|>user\nHello<|im_end|>\n", text)
        self.assertTrue(text.endswith("<|im_start|>assistant\n"), text)
        closed = self.prompt(chat(user("Hello"), no_generation_prompt=1))
        self.assertEqual(closed + "<|im_start|>assistant\n", text)
        begun = self.prompt(chat(
            user("Hello") + [{"role": "assistant", "content": "Well"}],
            continue_final_message=1))
        self.assertTrue(begun.endswith("assistant\nWell"), begun)
        own = c_void_p()
        template = (b"{% if tools %}{{ tools[0].function.name }}{% endif %}"
                    b"{{ style }}{% for m in messages %}[{{ m.content }}]{% endfor %}")
        self.mlxx.model_open(
            MODEL.encode(), byref(c.ModelOptions(chat_template=template, context_length=64)),
            byref(own))
        tools = json.dumps([{"type": "function", "function": {"name": "weather"}}]).encode()
        given = chat(user("a"), tools=tools, variables=b'{"style": "!"}')
        count = c_size_t()
        buffer = ctypes.create_string_buffer(100)
        self.mlxx.apply_chat_template(own, byref(given), buffer, 100, byref(count))
        self.assertEqual(buffer.value, b"weather![a]")
        info = c.ModelInfo()
        self.mlxx.model_get_info(own, byref(info))
        self.assertEqual(info.context_length, 64)
        self.fails(c.INVALID_REQUEST, "context_length_exceeded", self.mlxx.generate, own,
                   b"a " * 100, None, c.TextCallback(lambda *_: 0), None, None)
        self.mlxx.model_close(own)
        self.fails(c.INVALID_REQUEST, "no open handle", self.mlxx.model_close, own)

    def test_chats_refused(self):
        for part, conversation in {
            "messages.*is NULL": c.Chat(),
            "messages. not valid JSON": c.Chat(messages=b"[{"),
            "at least one message": c.Chat(messages=b"[]"),
            "list of at least one": c.Chat(messages=b'{"role": "user"}'),
            "tools. must be a list": chat(user("a"), tools=b"{}"),
            "variables. must be a JSON object": chat(user("a"), variables=b"[]"),
            "messages is": chat(user("a"), variables=b'{"messages": 1}'),
            "continue_final_message. the last": chat(user("a"), continue_final_message=1),
            "must be 0 or 1, got 7": chat(user("a"), no_generation_prompt=7),
            "UTF-8": c.Chat(messages=b'[{"role": "user", "content": "\xff"}]'),
            "size is 12": chat(user("a"), size=12),
        }.items():
            with self.subTest(part):
                if part == "messages is":
                    part = ".*messages"
                with self.assertRaises(c.MlxxError) as caught:
                    self.prompt(conversation)
                self.assertEqual(caught.exception.status, c.INVALID_REQUEST, caught.exception)
                if part != "UTF-8":
                    self.assertRegex(str(caught.exception), part)

    def test_forms_of_prompts(self):
        result = c.GenerateResult()
        first = self.generate(QUESTION, result)
        self.assertIn("Paris", first)
        self.assertEqual(self.generate(None, chat=ctypes.pointer(chat(user(QUESTION)))), first)
        ids = self.tokens(self.prompt(chat(user(QUESTION))))
        self.assertEqual(result.prompt_tokens, len(ids))
        given = array(c_int32, ids)
        self.assertEqual(self.generate(None, tokens=given, token_count=len(ids)), first)
        raw = self.generate("The capital of France is", raw=1, max_tokens=5)
        self.assertIn("Paris", raw)
        with_system = self.generate(QUESTION, result, system_prompt=b"Answer in German.")
        self.assertNotEqual(result.prompt_tokens, len(ids))
        self.assertEqual(self.generate(None, chat=ctypes.pointer(chat(
            [{"role": "system", "content": "Answer in German."}] + user(QUESTION)))), with_system)

    def test_another_thread_gets_the_same(self):
        others = []
        thread = threading.Thread(target=lambda: others.append(self.generate(QUESTION)))
        thread.start()
        thread.join()
        self.assertEqual(others, [self.generate(QUESTION)])

    def test_options_are_honoured(self):
        result = c.GenerateResult()
        self.assertEqual(self.generate(QUESTION, result, max_tokens=0), "")
        self.assertEqual(result.finish, c.FINISH_LENGTH)
        stop = array(c_char_p, [b" of", b" Paris"])
        text = self.generate(QUESTION, result, stop=stop, stop_count=2)
        self.assertEqual((text, result.finish, result.stop_index),
                         ("The capital", c.FINISH_STOP, 0))
        greedy = self.generate("Say a word.", max_tokens=30)
        for name, value in {"repetition_penalty": 1.8, "frequency_penalty": 2.0,
                            "presence_penalty": 2.0}.items():
            self.assertNotEqual(self.generate("Say a word.", max_tokens=30, **{name: value}),
                                greedy, name)
        hot = {"temperature": 2.0, "seed": 7}
        sampled = self.generate("Say a word.", result, **hot)
        self.assertEqual(result.seed, 7)
        self.assertEqual(self.generate("Say a word.", **hot), sampled)
        self.assertNotEqual(sampled, self.generate("Say a word.", temperature=2.0, seed=8))
        greedy = self.generate("Say a word.")
        for name, value in {"top_k": 1, "top_p": 1e-6, "min_p": 1.0}.items():
            self.assertNotEqual(sampled, greedy)
            self.assertEqual(self.generate("Say a word.", **hot, **{name: value}), greedy, name)
        self.assertNotEqual(
            self.generate("Say a word.", **hot, xtc_probability=1.0, xtc_threshold=0.0), sampled)
        bias = self.generate(
            QUESTION, max_tokens=3, logit_bias_tokens=array(c_int32, self.tokens("!")),
            logit_bias_values=array(c_float, [100.0]), logit_bias_count=1)
        self.assertEqual(bias, "!!!")
        self.generate(QUESTION, result, ignore_eos=1, max_tokens=40)
        self.assertEqual((result.generated_tokens, result.finish), (40, c.FINISH_LENGTH))
        for same in ({"prefill_step_size": 7}, {"compile_decode": 1}, {"compile_decode": 2}):
            self.assertEqual(self.generate(QUESTION, **same), self.generate(QUESTION), same)
        self.assertNotEqual(self.generate(QUESTION, max_kv_size=8), self.generate(QUESTION))

    def test_options_are_refused(self):
        one = array(c_int32, [5])
        for part, fields in {
            "temperature. must be": {"temperature": -1.0},
            "temperature. must be a": {"temperature": float("nan")},
            "top_p. must be": {"top_p": 1.5},
            "top_k. must be": {"top_k": -1},
            "min_p. must be": {"min_p": float("inf")},
            "min_tokens_to_keep. must be": {"min_tokens_to_keep": 0},
            "xtc_probability. must be": {"xtc_probability": 2.0},
            "xtc_threshold. must be": {"xtc_threshold": 0.7},
            "repetition_penalty. must be": {"repetition_penalty": -1.0},
            "repetition_context_size. must be": {"repetition_context_size": -1},
            "presence_penalty. must be": {"presence_penalty": 3.0},
            "frequency_penalty. must be": {"frequency_penalty": -3.0},
            "penalty_context_size. must be": {"penalty_context_size": -1},
            "max_tokens. must be": {"max_tokens": -1},
            "max_kv_size. must be": {"max_kv_size": -1},
            "prefill_step_size. must be": {"prefill_step_size": 0},
            "seed. must be": {"seed": -2},
            "raw. must be 0 or 1": {"raw": 2},
            "ignore_eos. must be 0 or 1": {"ignore_eos": -1},
            "compile_decode. must be 0, 1 or 2": {"compile_decode": 3},
            "stop. is NULL, its count 1": {"stop_count": 1},
            "stop. a text is NULL": {"stop": array(c_char_p, [None]), "stop_count": 1},
            "stop. a stop string may not": {"stop": array(c_char_p, [b""]), "stop_count": 1},
            "stop. .*UTF-8": {"stop": array(c_char_p, [b"\xff"]), "stop_count": 1},
            "stop. .*the most are": {"stop": array(c_char_p, [b"a"]), "stop_count": 2**62},
            "logit_bias_values. is NULL": {"logit_bias_tokens": one, "logit_bias_count": 1},
            "logit_bias. token id": {
                "logit_bias_tokens": array(c_int32, [49152]),
                "logit_bias_values": array(c_float, [1.0]), "logit_bias_count": 1},
            "is there twice": {
                "logit_bias_tokens": array(c_int32, [5, 5]),
                "logit_bias_values": array(c_float, [1.0, 2.0]), "logit_bias_count": 2},
            "give one of prompt, chat and tokens": {"tokens": one, "token_count": 1},
            "cancel is no open handle": {"cancel": 4},
            "system_prompt. there is no chat": {"raw": 1, "system_prompt": b"a"},
            "system_prompt. is not valid UTF-8": {"system_prompt": b"\xff"},
            "size is 4": {"size": 4},
            "size is 5000": {"size": 5000},
        }.items():
            with self.subTest(part):
                result = c.GenerateResult(finish=99)
                with self.assertRaises(c.MlxxError) as caught:
                    self.generate(QUESTION, result, **fields)
                self.assertEqual(caught.exception.status, c.INVALID_REQUEST, caught.exception)
                self.assertRegex(str(caught.exception), part)
                self.assertEqual(result.finish, c.FINISH_NONE)
        for part, fields in {
            "prompt is NULL": {},
            "tokens. is NULL": {"token_count": 1},
            "token id 49152 is outside": {"tokens": array(c_int32, [49152]), "token_count": 1},
            "system_prompt. goes with": {"tokens": one, "token_count": 1, "system_prompt": b"a"},
            "raw. goes with": {"tokens": one, "token_count": 1, "raw": 1},
        }.items():
            with self.subTest(part):
                with self.assertRaises(c.MlxxError) as caught:
                    self.generate(None, **fields)
                self.assertEqual(caught.exception.status, c.INVALID_REQUEST)
                self.assertRegex(str(caught.exception), part)

    def test_sizes_of_other_versions(self):
        first = self.generate(QUESTION)
        # An older caller without the fields from `seed` on, then a newer one.
        older = c.GenerateOptions.seed.offset
        self.assertEqual(
            self.generate(QUESTION, size=older, max_tokens=-5, temperature=-5.0)[:len(first)],
            first)

        class Newer(ctypes.Structure):
            _fields_ = [("known", c.GenerateOptions), ("later", ctypes.c_uint64)]

        newer = Newer(c.GenerateOptions(size=ctypes.sizeof(Newer), max_tokens=3))
        call = (self.mlxx.generate, self.model, b"a", ctypes.pointer(newer.known),
                c.TextCallback(lambda *_: 0), None, None)
        call[0](*call[1:])
        newer.later = 1
        self.fails(c.INVALID_REQUEST, "has something at byte", *call)
        older_result = c.GenerateResult(size=c.GenerateResult.finish.offset, finish=99)
        self.generate(QUESTION, older_result)
        self.assertEqual(older_result.finish, 99, "past the caller's size")
        self.assertEqual(older_result.generated_tokens > 0, True)

    def test_stop_and_cancel(self):
        first = self.generate(QUESTION)
        result = c.GenerateResult()
        got = []

        def second(pieces):
            got[:] = pieces
            return len(pieces) == 2

        with self.assertRaises(c.MlxxError) as caught:
            self.generate(QUESTION, result, on_piece=second)
        self.assertEqual(caught.exception.status, c.CANCELLED)
        self.assertEqual((len(got), result.finish), (2, c.FINISH_CANCELLED))
        self.assertTrue(first.startswith("".join(got)))

        cancel = c_void_p()
        self.mlxx.cancel_open(byref(cancel))
        begun = threading.Event()

        def canceller():
            begun.wait()
            self.mlxx.cancel_request(cancel)

        thread = threading.Thread(target=canceller)
        thread.start()
        with self.assertRaises(c.MlxxError) as caught:
            self.generate("Count from 1 to 100.", result, on_piece=lambda _: begun.set(),
                          cancel=cancel, max_tokens=4000, ignore_eos=1)
        thread.join()
        self.assertEqual(caught.exception.status, c.CANCELLED)
        self.assertLess(result.generated_tokens, 3900)
        self.mlxx.cancel_close(cancel)

    def test_a_forked_process_is_told(self):
        self.generate(QUESTION, max_tokens=1)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                self.generate(QUESTION)
            except c.MlxxError as error:
                status = 0 if error.status == c.UNSUPPORTED and "forked" in str(error) else 2
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_exceptions_of_python_do_not_hurt(self):
        # ctypes reports them itself; what the callback then returns is anyone's guess.
        def broken(*_):
            raise ValueError("of the callback")

        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            self.mlxx.generate(self.model, b"a", byref(c.GenerateOptions(max_tokens=2)),
                               c.TextCallback(broken), None, None)
        except c.MlxxError as error:
            self.assertEqual(error.status, c.CANCELLED)
        finally:
            sys.unraisablehook = hook

    def test_no_callback(self):
        self.fails(c.INVALID_REQUEST, "callback is NULL", self.mlxx.generate, self.model, b"a",
                   None, c.TextCallback(), None, None)
        self.fails(c.INVALID_REQUEST, "prompt. is not valid UTF-8", self.mlxx.generate,
                   self.model, b"\xff", None, c.TextCallback(lambda *_: 0), None, None)


if __name__ == "__main__":
    if not os.environ.get("MLXX_TEST_GGUF") and not os.environ.get("MLXX_HOME"):
        print("neither MLXX_TEST_GGUF nor MLXX_HOME is set")
        sys.exit(77)
    LIBMLXX, CAPI_LAYOUT = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
