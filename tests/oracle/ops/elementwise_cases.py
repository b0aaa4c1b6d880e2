"""Cases of the ops that work element by element."""

import numpy as np

from made_arrays import layouts, normal, positive, special, truths, whole
from op_case import FLOATS, SAME_MESSAGE, Case, Operand

FLOAT_UNARY = (
    "abs ceil cos erf exp expm1 floor isfinite isnan log log1p logical_not "
    "negative reciprocal round rsqrt sigmoid sign sin sqrt square "
    "stop_gradient tanh"
).split()
# Also of integers, whose results are integers.
INTEGER_UNARY = (
    "abs bitwise_invert ceil floor negative round sign square stop_gradient"
).split()
ARITHMETIC = (
    "add subtract multiply divide floor_divide remainder power maximum "
    "minimum logaddexp"
).split()
COMPARISONS = (
    "equal not_equal greater greater_equal less less_equal logical_and "
    "logical_or"
).split()
INTEGER_BINARY = (
    "bitwise_and bitwise_or bitwise_xor left_shift right_shift"
).split()


def on_a_missing_device(op, operands, **arguments):
    """For ops that take any array: only a device that is not there is
    refused."""
    return Case(op, operands, {"stream": "gpu", **arguments}, SAME_MESSAGE)


def unary_cases():
    for op in FLOAT_UNARY:
        for dtype in FLOATS:
            for make in (normal, positive):
                for operand in layouts(make, dtype):
                    yield Case(op, [operand])
            yield Case(op, [special(dtype)])
        yield Case(op, [whole((3, 5), -7, 8)])
        yield Case(op, [normal((3, 5), "float16")])
        yield on_a_missing_device(op, [normal((2, 3))])
    for op in INTEGER_UNARY:
        for dtype in ("int8", "uint8", "int32", "uint32", "int64"):
            for operand in layouts(
                lambda s, d, view=(): whole(
                    s, 0 if d[0] == "u" else -100, 100, d, view=view
                ),
                dtype,
            ):
                yield Case(op, [operand])
    yield Case("bitwise_invert", [truths((3, 4))])
    yield Case("bitwise_invert", [normal((2, 3))], refused=SAME_MESSAGE)
    yield Case("negative", [truths((2, 3))], refused=SAME_MESSAGE)
    for decimals in (-1, 0, 2):
        for dtype in FLOATS:
            x = normal((4, 9), dtype, scale=30)
            yield Case("round", [x], {"decimals": decimals})
    for op in ("logical_not", "stop_gradient", "isnan", "sqrt"):
        yield Case(op, [truths((3, 4))])


def broadcasting_pairs(make, dtype):
    yield make((3, 37), dtype, seed="a"), make((3, 37), dtype, seed="b")
    yield make((4, 1, 5), dtype), make((3, 1), dtype)
    yield make((6, 4), dtype, view=(("transpose", (1, 0)),)), make(
        (4, 12), dtype, view=(("slice", (0, 1), (4, 12), (1, 2)),)
    )
    yield make((), dtype), make((7,), dtype)
    yield make((0, 4), dtype), make((1, 4), dtype)


def binary_cases():
    for op in ARITHMETIC + COMPARISONS:
        for dtype in FLOATS:
            for make in (normal, positive):
                for pair in broadcasting_pairs(make, dtype):
                    yield Case(op, list(pair))
            values = special(dtype)
            row = Operand(values.values[None], dtype)
            column = Operand(values.values[:, None], dtype)
            yield Case(op, [row, column])
        yield Case(op, [normal((3,)), normal((3,), "bfloat16")])
        yield Case(op, [normal((3,), "bfloat16"), whole((3,), 1, 9)])
        shapes = [normal((2, 3)), normal((2, 4))]
        yield Case(op, shapes, refused=SAME_MESSAGE)
    for op in INTEGER_BINARY + ARITHMETIC + COMPARISONS:
        if op == "logaddexp":
            continue
        for dtype in ("int8", "uint8", "int32", "uint32", "int64"):
            # No zeros, which integers cannot be divided by, and no shift by
            # more than the bits there are.
            low, high = (1, 7) if "shift" in op or op == "power" else (1, 99)
            for pair in broadcasting_pairs(
                lambda s, d, seed="", view=(): whole(
                    s, low, high, d, seed, view
                ),
                dtype,
            ):
                yield Case(op, list(pair))
        if "shift" not in op and op != "power":
            left = Operand(np.array([-7, -1, 0, 5, 7, -9]), "int32")
            right = Operand(np.array([2, -3, 4, -5, 7, -4]), "int32")
            yield Case(op, [left, right])
    for op in INTEGER_BINARY:
        shapes = [whole((2, 3), 0, 5), whole((2, 4), 0, 5)]
        yield Case(op, shapes, refused=SAME_MESSAGE)
        floats = [normal((2,)), normal((2,))]
        yield Case(op, floats, refused=SAME_MESSAGE)
    for op in ("bitwise_and", "bitwise_or", "bitwise_xor", "logical_and"):
        yield Case(op, [truths((3, 4), "a"), truths((4,), "b")])


def selection_cases():
    for dtype in FLOATS:
        x, y = normal((3, 5), dtype, "a"), normal((5,), dtype, "b")
        yield Case("where", [truths((3, 5)), x, y])
        yield Case(
            "where", [truths((3, 1)), special(dtype), normal((), dtype)]
        )
        yield Case("where", [normal((3, 5), dtype, "c"), x, y])
        low, high = normal((5,), dtype, "l"), normal((3, 1), dtype, "h")
        yield Case("clip", [x, low, high])
        yield Case("clip", [x, None, high])
        yield Case("clip", [x, low, None])
        limits = [Operand(-0.5, dtype), Operand(0.25, dtype)]
        yield Case("clip", [special(dtype), *limits])
        yield Case("array_equal", [x, x])
        yield Case("array_equal", [x, y])
        yield Case("array_equal", [special(dtype), special(dtype)])
        nan = {"equal_nan": True}
        yield Case("array_equal", [special(dtype), special(dtype)], nan)
        yield Case("array_equal", [normal((0,), dtype), normal((0,), dtype)])
    yield Case("where", [truths((3,)), whole((3,), 0, 9), normal((3,))])
    wrong = [truths((2, 3)), normal((2, 4)), normal((1,))]
    yield Case("where", wrong, refused=SAME_MESSAGE)
    yield Case(
        "clip", [whole((9,), -9, 9), Operand(np.int32(-2), "int32"), None]
    )
    yield Case("clip", [normal((3,)), None, None], refused=SAME_MESSAGE)
    wrong = [normal((2, 3)), normal((2, 4)), None]
    yield Case("clip", wrong, refused=SAME_MESSAGE)
    yield on_a_missing_device("array_equal", [normal((2,)), normal((2,))])


def cases():
    yield from unary_cases()
    yield from binary_cases()
    yield from selection_cases()
