"""Cases of matrix products, convolutions and the Hadamard transform."""

import numpy as np

from made_arrays import normal, whole
from op_case import FLOATS, SAME_MESSAGE, Case, Operand

SWAP = (("transpose", (1, 0)),)


def product_cases():
    for dtype in FLOATS:
        for x, y in (
            (normal((5, 7), dtype, "x"), normal((7, 3), dtype, "y")),
            (
                normal((7, 5), dtype, view=SWAP),
                normal((3, 7), dtype, view=SWAP),
            ),
            (normal((33, 65), dtype), normal((65, 40), dtype)),
            (normal((7,), dtype), normal((7, 3), dtype)),
            (normal((5, 7), dtype), normal((7,), dtype)),
            (normal((7,), dtype, "x"), normal((7,), dtype, "y")),
            (normal((2, 1, 5, 7), dtype), normal((3, 7, 4), dtype)),
            (normal((0, 7), dtype), normal((7, 3), dtype)),
            (normal((5, 0), dtype), normal((0, 3), dtype)),
            (Operand([[np.inf, 1.0]], dtype), Operand([[0.0], [2.0]], dtype)),
        ):
            yield Case("matmul", [x, y])
        x, y = normal((5, 7), dtype), normal((7, 3), dtype)
        for c in (
            normal((5, 3), dtype),
            normal((3,), dtype),
            normal((), dtype),
            normal((3, 5), dtype, view=SWAP),
        ):
            for scales in ({}, {"alpha": 0.5, "beta": -2.0}, {"beta": 0.0}):
                yield Case("addmm", [c, x, y], scales)
        batch = [normal((4,), dtype), normal((2, 5, 7), dtype)]
        yield Case("addmm", [*batch, normal((7, 4), dtype)])
    mixed = [normal((2, 3)), normal((3, 2), "bfloat16")]
    yield Case("matmul", mixed)
    wrong = [normal((2, 3)), normal((4, 2))]
    yield Case("matmul", wrong, {}, SAME_MESSAGE)
    yield Case("matmul", [normal(()), normal((3, 2))], {}, SAME_MESSAGE)
    integers = [whole((2, 3), 0, 9), whole((3, 2), 0, 9)]
    yield Case("addmm", [normal((2,)), *wrong], {}, SAME_MESSAGE)
    right = [normal((2, 3)), normal((3, 4))]
    yield Case("addmm", [normal((3,)), *right], {}, SAME_MESSAGE)
    yield Case("addmm", [whole((2,), 0, 9), *integers], {}, SAME_MESSAGE)


def gather_cases():
    op = "gather_mm"
    left, right = whole((8,), 0, 4, "uint32"), whole((8,), 0, 3, "uint32")
    for dtype in FLOATS:
        x, y = normal((4, 5, 7), dtype), normal((3, 7, 6), dtype)
        # The CPU backend has float32 only.
        refused = None if dtype == "float32" else SAME_MESSAGE
        yield Case(op, [x, y, left, right], {}, refused)
    x, y = normal((4, 5, 7)), normal((3, 7, 6))
    yield Case(op, [x, y, None, whole((4,), 0, 3, "uint32")])
    yield Case(op, [x, y, whole((3,), 0, 4, "uint32"), None])
    turned = normal((3, 6, 7), view=(("transpose", (0, 2, 1)),))
    yield Case(op, [x, turned, left, right])
    ordered = Operand(np.array([0, 0, 1, 1, 2, 2]), "uint32")
    rows = [normal((6, 1, 7)), y, None, ordered]
    yield Case(op, rows, {"sorted_indices": True})
    yield Case(op, [x, y, normal((4,)), None], {}, SAME_MESSAGE)
    yield Case(op, [x, normal((3, 6, 7))], {}, SAME_MESSAGE)


def convolution_cases():
    for dtype in FLOATS:
        x, w = normal((2, 11, 4), dtype), normal((6, 3, 4), dtype)
        for arguments in (
            {},
            {"stride": 2, "padding": 1},
            {"dilation": 2, "padding": 3},
        ):
            yield Case("conv1d", [x, w], arguments)
        # Depthwise and causal, as DeltaNet has it, and in two groups.
        yield Case("conv1d", [x, normal((4, 4, 1), dtype)], {"groups": 4})
        yield Case("conv1d", [x, normal((6, 3, 2), dtype)], {"groups": 2})
        turned = normal((2, 4, 11), dtype, view=(("transpose", (0, 2, 1)),))
        yield Case("conv1d", [turned, w])
        x, w = normal((2, 7, 9, 4), dtype), normal((5, 3, 2, 4), dtype)
        for arguments in (
            {},
            {"stride": [2, 1], "padding": [1, 0]},
            {"dilation": [1, 2], "padding": [2, 3]},
        ):
            yield Case("conv2d", [x, w], arguments)
        grouped = normal((4, 3, 3, 2), dtype)
        yield Case("conv2d", [x, grouped], {"groups": 2})
        x, w = normal((1, 4, 5, 6, 2), dtype), normal((3, 2, 3, 2, 2), dtype)
        for arguments in (
            {},
            {"stride": [1, 2, 1], "padding": [1, 1, 0]},
            {"dilation": [2, 1, 1]},
        ):
            yield Case("conv3d", [x, w], arguments)
    for op, x, w in (
        ("conv1d", (2, 11, 4), (6, 3, 5)),
        ("conv1d", (2, 11), (6, 3, 4)),
        ("conv2d", (2, 7, 9, 4), (5, 3, 2, 3)),
        ("conv2d", (7, 9, 4), (5, 3, 2, 4)),
        ("conv3d", (1, 4, 5, 6, 2), (3, 2, 3, 2, 3)),
        ("conv3d", (4, 5, 6, 2), (3, 2, 3, 2, 2)),
    ):
        yield Case(op, [normal(x), normal(w)], {}, SAME_MESSAGE)
    x, w = normal((2, 11, 4)), normal((6, 3, 4))
    for wrong in ({"groups": 3}, {"stride": 0}):
        yield Case("conv1d", [x, w], wrong, SAME_MESSAGE)
    integers = [whole((2, 11, 4), 0, 9), whole((6, 3, 4), 0, 9)]
    yield Case("conv1d", integers, {}, SAME_MESSAGE)


def hadamard_cases():
    for dtype in FLOATS:
        # Powers of two times 1, 12, 20 and 28.
        for size in (1, 2, 64, 256, 12, 24, 40, 56):
            yield Case("hadamard_transform", [normal((3, size), dtype)])
        x = normal((64, 3), dtype, view=SWAP)
        yield Case("hadamard_transform", [x], {"scale": 0.25})
        yield Case("hadamard_transform", [normal((2, 3, 32), dtype)])
        yield Case("hadamard_transform", [normal((), dtype)])
    # 12, 20 or 28 times an odd number, such as 100, is not among them: MLX
    # 0.32.4 does not refuse it on the CPU and writes past its memory.
    for size in (0, 6, 7, 44):
        wrong = [normal((3, size))]
        yield Case("hadamard_transform", wrong, {}, SAME_MESSAGE)


def cases():
    yield from product_cases()
    yield from gather_cases()
    yield from convolution_cases()
    yield from hadamard_cases()
