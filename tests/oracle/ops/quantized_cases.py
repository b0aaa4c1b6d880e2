"""Cases of quantization and of products with quantized matrices."""

import mlx.core as mx
import numpy as np

from made_arrays import normal, whole
from op_case import FLOATS, SAME_MESSAGE, Case, Operand

AFFINE = [
    {"group_size": g, "bits": b}
    for g in (32, 64, 128)
    for b in (2, 3, 4, 5, 6, 8)
]
BLOCKED = [{"mode": mode} for mode in ("mxfp4", "mxfp8", "nvfp4")]


class Made(Operand):
    """An operand that MLX itself made: a part of a quantized matrix."""

    def __init__(self, base):
        self.base = base
        self.dtype = str(base.dtype).removeprefix("mlx.core.")
        self.view = ()


def quantized(shape, dtype, seed="w", **settings):
    """w, scales and biases (None where the mode has none)."""
    parts = mx.quantize(normal(shape, dtype, seed).base, **settings)
    parts = [Made(part) for part in parts]
    return [*parts, None][:3]


def quantize_cases():
    op = "quantize"
    for dtype in FLOATS:
        w = normal((4, 128), dtype)
        for settings in [{}, *AFFINE, *BLOCKED]:
            yield Case(op, [w], settings)
            packed = quantized((4, 128), dtype, **settings)
            yield Case("dequantize", packed, settings)
            for other in FLOATS:
                arguments = {**settings, "dtype": other}
                yield Case("dequantize", packed, arguments)
        scale = {"mode": "nvfp4", "global_scale": Operand(3.5)}
        yield Case(op, [w], scale)
        packed = quantized((4, 128), dtype, mode="nvfp4")
        yield Case("dequantize", packed, scale)
        turned = normal((64, 3), dtype, view=(("transpose", (1, 0)),))
        yield Case(op, [turned], {"group_size": 32, "bits": 4})
        yield Case(op, [normal((2, 3, 64), dtype)])
        zeros = Operand(np.zeros((2, 64)), dtype)
        for settings in [{}, *BLOCKED]:
            yield Case(op, [zeros], settings)
    w = normal((4, 128))
    for wrong in (
        {"bits": 7},
        {"group_size": 48},
        {"mode": "int4"},
        {"mode": "mxfp4", "group_size": 64},
        {"mode": "nvfp4", "bits": 8},
        {"global_scale": Operand(2.0)},
        {"mode": "nvfp4", "global_scale": Operand([2.0, 1.0])},
        {"mode": "mxfp4", "global_scale": Operand(2.0)},
    ):
        yield Case(op, [w], wrong, SAME_MESSAGE)
    for operand in (normal((64,)), normal((4, 100)), whole((4, 64), 0, 9)):
        yield Case(op, [operand], {}, SAME_MESSAGE)
    packed, scales, biases = quantized((4, 128), "float32")
    for operands, arguments in (
        ([packed, scales, None], {}),
        ([packed, scales, biases], {"bits": 3}),
        ([packed, scales, biases], {"mode": "int4"}),
        ([w, scales, biases], {}),
        ([packed, scales, biases], {"group_size": 32}),
    ):
        yield Case("dequantize", operands, arguments, SAME_MESSAGE)


def product_cases():
    op = "quantized_matmul"
    for dtype in FLOATS:
        for settings in [{}, *AFFINE, *BLOCKED]:
            w = quantized((32, 128), dtype, **settings)
            for rows in ((1, 128), (5, 128), (2, 3, 128)):
                x = normal(rows, dtype)
                yield Case(op, [x, *w], {**settings, "transpose": True})
            x = normal((5, 32), dtype)
            yield Case(op, [x, *w], {**settings, "transpose": False})
        x = normal((128, 5), dtype, view=(("transpose", (1, 0)),))
        yield Case(op, [x, *quantized((32, 128), dtype)])
    x, w = normal((5, 128)), quantized((32, 128), "float32")
    for operands, arguments in (
        ([normal((5, 64)), *w], {}),
        ([x, *w], {"transpose": False}),
        ([x, *w], {"bits": 8}),
        ([x, w[0], w[1], None], {}),
        ([x, *w], {"mode": "int4"}),
        ([x, normal((32, 16)), *w[1:]], {}),
    ):
        yield Case(op, operands, arguments, SAME_MESSAGE)


def gather_cases():
    op = "gather_qmm"
    right = whole((6,), 0, 4, "uint32", "right")
    ordered = Operand(np.array([0, 0, 1, 2, 3, 3]), "uint32")
    for dtype in FLOATS:
        for settings in [{}, {"group_size": 32, "bits": 8}, *BLOCKED]:
            w = quantized((4, 32, 64), dtype, **settings)
            x = normal((6, 1, 64), dtype)
            yield Case(op, [x, *w, None, right], settings)
            arguments = {**settings, "sorted_indices": True}
            yield Case(op, [x, *w, None, ordered], arguments)
            left = whole((4,), 0, 6, "uint32")
            yield Case(op, [x, *w, left, None], settings)
            both = [
                whole((2, 3), 0, 6, "uint32"),
                whole((2, 3), 0, 4, "uint32"),
            ]
            yield Case(op, [x, *w, *both], settings)
            x = normal((6, 2, 32), dtype)
            arguments = {**settings, "transpose": False}
            yield Case(op, [x, *w, None, right], arguments)
    x, w = normal((6, 1, 64)), quantized((4, 32, 64), "float32")
    for operands, arguments in (
        ([x, *w, None, normal((6,))], {}),
        ([normal((6, 1, 32)), *w, None, right], {}),
        ([x, w[0], w[1], None, None, right], {}),
        ([x, *w, None, right], {"mode": "int4"}),
        ([x, *w, None, right], {"bits": 8}),
        ([x, *w, whole((5,), 0, 6, "uint32"), right], {}),
    ):
        yield Case(op, operands, arguments, SAME_MESSAGE)


def cases():
    yield from quantize_cases()
    yield from product_cases()
    yield from gather_cases()
