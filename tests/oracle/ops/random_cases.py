"""Cases of mlx::core::random: with keys, and from a seed."""

import numpy as np

from made_arrays import normal, whole
from op_case import FLOATS, SAME_MESSAGE, Case, Operand

KEY = Operand(np.array([0, 7], np.uint32), "uint32")
# Where the numbers come from.
SOURCES = ({"key": KEY}, {"seed": 11})
SHAPES = ([], [7], [3, 5], [0, 2])
WRONG_KEYS = (
    normal((2,)),
    whole((3,), 0, 9, "uint32"),
    whole((2,), 0, 9, "int32"),
)


def key_cases():
    for seed in (0, 1, 12345, 2**33 + 5, 2**64 - 1):
        yield Case("random::key", [], {"seed": seed})
        yield Case("random::seed", [], {"seed": seed})
    yield Case("random::split", [KEY])
    for num in (1, 2, 5):
        yield Case("random::split", [KEY], {"num": num})
    for key in WRONG_KEYS:
        yield Case("random::split", [key], {"num": 3}, SAME_MESSAGE)


def uniform_cases():
    op = "random::uniform"
    for dtype in (*FLOATS, "float16"):
        zero, one = Operand(0.0, dtype), Operand(1.0, dtype)
        for source in SOURCES:
            for shape in SHAPES:
                arguments = {"shape": shape, "dtype": dtype, **source}
                yield Case(op, [zero, one], arguments)
            low, high = Operand([[-2.0], [3.0]], dtype), Operand(
                [1, 4, 9.0], dtype
            )
            arguments = {"shape": [2, 3], "dtype": dtype, **source}
            yield Case(op, [low, high], arguments)
    ends = [Operand(0.0), Operand(1.0)]
    for wrong in (
        {"shape": [3], "dtype": "int32", "key": KEY},
        {"shape": [-3], "key": KEY},
        *({"shape": [3], "key": key} for key in WRONG_KEYS),
    ):
        yield Case(op, ends, wrong, SAME_MESSAGE)
    wide = [normal((4,)), Operand(1.0)]
    yield Case(op, wide, {"shape": [3], "key": KEY}, SAME_MESSAGE)


def normal_cases():
    op = "random::normal"
    for dtype in (*FLOATS, "float16"):
        for source in SOURCES:
            for shape in SHAPES:
                arguments = {"shape": shape, "dtype": dtype, **source}
                yield Case(op, [], arguments)
            loc, scale = normal((3, 1), dtype), Operand([0.5, 2.0], dtype)
            arguments = {"shape": [3, 2], "dtype": dtype, **source}
            yield Case(op, [], {**arguments, "loc": loc})
            yield Case(op, [], {**arguments, "scale": scale})
            yield Case(op, [], {**arguments, "loc": loc, "scale": scale})
            shape = {"shape": [5], "dtype": dtype, **source}
            yield Case("random::gumbel", [], shape)
    for name in (op, "random::gumbel"):
        for wrong in (
            {"shape": [3], "dtype": "int32", "key": KEY},
            *({"shape": [3], "key": key} for key in WRONG_KEYS),
        ):
            yield Case(name, [], wrong, SAME_MESSAGE)


def integer_cases():
    op = "random::randint"
    for dtype in ("int32", "uint32", "int8", "int64"):
        low, high = Operand(np.array(2), dtype), Operand(np.array(90), dtype)
        for source in SOURCES:
            for shape in SHAPES:
                arguments = {"shape": shape, "dtype": dtype, **source}
                yield Case(op, [low, high], arguments)
            # As many results as upper ends.
            high_ends = Operand(np.array([5, 50]), dtype)
            arguments = {"shape": [3, 2], "dtype": dtype, **source}
            yield Case(op, [low, high_ends], arguments)
    ends = [Operand(np.array(0), "int32"), Operand(np.array(9), "int32")]
    for wrong in (
        {"shape": [3], "dtype": "float32", "key": KEY},
        *({"shape": [3], "key": key} for key in WRONG_KEYS),
    ):
        yield Case(op, ends, wrong, SAME_MESSAGE)
    op = "random::bernoulli"
    for dtype in FLOATS:
        p = Operand([[0.1, 0.5, 0.0], [1.0, 0.9, 0.3]], dtype)
        for source in SOURCES:
            yield Case(op, [p], source)
            yield Case(op, [Operand(0.3, dtype)], {"shape": [4, 9], **source})
    wrong = {"shape": [4], "key": KEY}
    yield Case(op, [Operand([0.1, 0.5])], wrong, SAME_MESSAGE)
    yield Case(op, [Operand([0.1])], {"key": WRONG_KEYS[0]}, SAME_MESSAGE)


def categorical_cases():
    op = "random::categorical"
    for dtype in FLOATS:
        logits = normal((4, 5, 30), dtype, scale=3)
        turned = normal((30, 4), dtype, view=(("transpose", (1, 0)),))
        masked = Operand([[0.0, -np.inf, 1.0], [-np.inf, -np.inf, 0.0]], dtype)
        for source in SOURCES:
            for axis in (-1, 1, 0):
                yield Case(op, [logits], {"axis": axis, **source})
            yield Case(op, [turned], source)
            yield Case(op, [masked], {"num_samples": 20, **source})
            yield Case(op, [logits], {"num_samples": 6, "axis": 1, **source})
            yield Case(op, [logits], {"shape": [3, 4, 5], **source})
    logits = normal((4, 30))
    for wrong in (
        {"axis": 2, "key": KEY},
        {"shape": [3], "key": KEY},
        *({"key": key} for key in WRONG_KEYS),
    ):
        yield Case(op, [logits], wrong, SAME_MESSAGE)


def cases():
    yield from key_cases()
    yield from uniform_cases()
    yield from normal_cases()
    yield from integer_cases()
    yield from categorical_cases()
