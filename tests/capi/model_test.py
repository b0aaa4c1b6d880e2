"""Answers through the C interface from Python's ctypes, as other languages do.

    model_test.py LIBMLXX

The model is MLXX_TEST_GGUF, or what `mlxx pull smollm2` put under MLXX_HOME.
Exit code 77 (skipped) if neither is set.
"""
import ctypes
import os
import sys
import threading


class GenerateOptions(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("system_prompt", ctypes.c_char_p),
        ("raw", ctypes.c_int),
        ("max_tokens", ctypes.c_int),
        ("temperature", ctypes.c_float),
        ("top_p", ctypes.c_float),
        ("top_k", ctypes.c_int),
        ("min_p", ctypes.c_float),
        ("seed", ctypes.c_int64),
    ]


TextCallback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p
)
OK, INVALID_REQUEST, CANCELLED = 0, 1, 6


def options(**changes):
    values = GenerateOptions(
        ctypes.sizeof(GenerateOptions), None, 0, 20, 0.0, 1.0, 0, 0.0, -1
    )
    for name, value in changes.items():
        setattr(values, name, value)
    return values


def main():
    model_name = os.environ.get("MLXX_TEST_GGUF")
    if not model_name:
        if not os.environ.get("MLXX_HOME"):
            print("neither MLXX_TEST_GGUF nor MLXX_HOME is set")
            return 77
        model_name = "smollm2"
    library = ctypes.CDLL(sys.argv[1])
    library.mlxx_last_error.restype = ctypes.c_char_p
    library.mlxx_generate.argtypes = [
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.POINTER(GenerateOptions),
        TextCallback,
        ctypes.c_void_p,
    ]
    library.mlxx_model_close.argtypes = [ctypes.c_void_p]

    def check(status, wanted=OK):
        assert status == wanted, (status, library.mlxx_last_error())

    check(library.mlxx_init(None))
    model = ctypes.c_void_p()
    check(library.mlxx_model_open(model_name.encode(), ctypes.byref(model)))

    def answer(prompt, wanted=OK, stop_after=None, **changes):
        pieces = []
        caller = threading.get_ident()

        def receive(text, count, _user):
            assert threading.get_ident() == caller
            assert len(text) == count
            pieces.append(text.decode())
            return int(stop_after is not None and len(pieces) >= stop_after)

        status = library.mlxx_generate(
            model, prompt.encode(), options(**changes), TextCallback(receive), None
        )
        check(status, wanted)
        return "".join(pieces)

    question = "What is the capital of France?"
    first = answer(question)
    assert "Paris" in first, first
    # The same from another thread: MLX's thread is mlxx's own.
    others = []
    thread = threading.Thread(target=lambda: others.append(answer(question)))
    thread.start()
    thread.join()
    assert others == [first], (others, first)

    raw = answer("The capital of France is", raw=1, max_tokens=5)
    assert "Paris" in raw, raw
    sampled = [answer("Say a word.", temperature=1.0, seed=7) for _ in range(2)]
    assert sampled[0] == sampled[1], sampled
    assert answer(question, max_tokens=0) == ""
    short = answer(question, wanted=CANCELLED, stop_after=2)
    assert first.startswith(short) and short != first, (short, first)

    answer(question, wanted=INVALID_REQUEST, temperature=-1.0)
    answer(question, wanted=INVALID_REQUEST, size=8)
    answer(question, wanted=INVALID_REQUEST, seed=-2)
    library.mlxx_model_close(model)
    print("the C interface answers:", first)
    return 0


if __name__ == "__main__":
    sys.exit(main())
