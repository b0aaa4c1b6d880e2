"""Streams an answer, from Python's ctypes: no package is needed.

    python3 answer.py LIBMLXX MODEL "What is the capital of France?"

LIBMLXX is libmlxx.so, or libmlxx.dylib on macOS.
"""
import ctypes
import sys

CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p)


class Result(ctypes.Structure):  # mlxx_generate_result
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("seed", ctypes.c_int64),
        ("prefill_seconds", ctypes.c_double),
        ("decode_seconds", ctypes.c_double),
        ("peak_memory_bytes", ctypes.c_uint64),
        ("prompt_tokens", ctypes.c_int32),
        ("generated_tokens", ctypes.c_int32),
        ("finish", ctypes.c_int32),
        ("stop_index", ctypes.c_int32),
    ]


def load(path):
    library = ctypes.CDLL(path)
    library.mlxx_last_error.restype = ctypes.c_char_p
    library.mlxx_status_name.restype = ctypes.c_char_p
    library.mlxx_model_close.argtypes = [ctypes.c_void_p]
    library.mlxx_generate.argtypes = [
        ctypes.c_void_p,  # model
        ctypes.c_char_p,  # prompt
        ctypes.c_void_p,  # options: None for the defaults
        CALLBACK,
        ctypes.c_void_p,  # user
        ctypes.POINTER(Result),
    ]

    def check(status):
        if status != 0:
            name = library.mlxx_status_name(status).decode()
            sys.exit(f"{name}: {library.mlxx_last_error().decode()}")

    return library, check


def main():
    if len(sys.argv) != 4:
        sys.exit(f"use: {sys.argv[0]} LIBMLXX MODEL PROMPT")
    _, path, model_name, prompt = sys.argv
    library, check = load(path)
    check(library.mlxx_init(None))
    model = ctypes.c_void_p()
    check(library.mlxx_model_open(model_name.encode(), None, ctypes.byref(model)))

    @CALLBACK
    def print_text(text, _bytes, _user):
        print(text.decode(), end="", flush=True)
        return 0  # 1 stops

    result = Result(size=ctypes.sizeof(Result))
    check(library.mlxx_generate(
        model, prompt.encode(), None, print_text, None, ctypes.byref(result)))
    print()
    seconds = result.prefill_seconds + result.decode_seconds
    print(f"{result.generated_tokens} tokens in {seconds:.2f} s", file=sys.stderr)
    library.mlxx_model_close(model)


if __name__ == "__main__":
    main()
