"""Cases of reductions, sorts and running sums."""

import numpy as np

from made_arrays import layouts, normal, special, truths, whole
from op_case import FLOATS, SAME_MESSAGE, Case, Operand

REDUCTIONS = "all any logsumexp max mean min prod sum var".split()
ARG_REDUCTIONS = ("argmax", "argmin")


def axes_of(operand, several):
    """Axis arguments that the operand has: none, from either end, several."""
    ndim = operand.in_python().ndim
    yield {}
    if ndim:
        yield {"axis": ndim - 1}
        yield {"axis": -ndim, "keepdims": True}
    if several and ndim > 1:
        yield {"axis": [0, -1]}
        yield {"axis": list(range(ndim)), "keepdims": True}


def with_nan(dtype):
    values = np.arange(-6, 6, dtype=np.float32).reshape(3, 4)
    values[1, 2] = np.nan
    values[2, 0] = np.inf
    return Operand(values, dtype)


def reduction_cases():
    for op in REDUCTIONS:
        for dtype in FLOATS:
            for operand in [*layouts(normal, dtype), with_nan(dtype)]:
                # MLX 0.32.4 on the CPU reads past the end of an array
                # without elements that it reduces: nothing to compare.
                if 0 in operand.in_python().shape:
                    continue
                for axes in axes_of(operand, several=op != "var"):
                    yield Case(op, [operand], axes)
            # Rows longer than one block of any reduction.
            yield Case(op, [normal((2, 3000), dtype)], {"axis": 1})
            yield Case(op, [normal((3000, 3), dtype)], {"axis": 0})
            yield Case(op, [normal((2, 3000), dtype)])
        if op != "logsumexp":
            yield Case(op, [whole((3, 50), -9, 9)], {"axis": 0})
            yield Case(op, [truths((3, 50))], {"axis": 1})
        wrong = {"axis": 2}
        yield Case(op, [normal((2, 3))], wrong, SAME_MESSAGE)
        yield Case(op, [normal((2, 3))], {"axis": -3}, SAME_MESSAGE)
    for op in ("max", "min", "logsumexp"):
        yield Case(op, [normal((0, 3))], {"axis": 0}, SAME_MESSAGE)
    for dtype in FLOATS:
        for ddof in (0, 1, 4):
            arguments = {"axis": 1, "ddof": ddof}
            yield Case("var", [normal((3, 5), dtype)], arguments)
    for op in ("sum", "prod"):
        for dtype in ("int8", "uint8", "int64"):
            yield Case(op, [whole((3, 50), 0, 9, dtype)], {"axis": 1})


def norm_cases():
    op = "linalg::norm"
    for dtype in FLOATS:
        x = normal((4, 37), dtype)
        turned = normal((37, 4), dtype, view=(("transpose", (1, 0)),))
        for operand in (x, turned):
            yield Case(op, [operand])
            yield Case(op, [operand], {"axis": -1, "keepdims": True})
            for order in (0, 1, 2, 3, -1):
                yield Case(op, [operand], {"ord": order, "axis": 0})
            yield Case(op, [operand], {"axis": [0, 1]})
            yield Case(op, [operand], {"ord": 1, "axis": [0, 1]})
        yield Case(op, [special(dtype)])
    yield Case(op, [normal((2, 3))], {"axis": 2}, SAME_MESSAGE)
    yield Case(op, [normal((2, 3, 4))], {"ord": 1}, SAME_MESSAGE)
    wrong = {"axis": [0, 1, 2]}
    yield Case(op, [normal((2, 3, 4))], wrong, SAME_MESSAGE)


def arg_cases():
    for op in ARG_REDUCTIONS:
        for dtype in FLOATS:
            for operand in [*layouts(normal, dtype), with_nan(dtype)]:
                if 0 in operand.in_python().shape:
                    continue
                for axes in axes_of(operand, several=False):
                    yield Case(op, [operand], axes)
            # Several largest: the first counts.
            ties = Operand(np.tile([1.0, 3.0, -2.0], (4, 30)), dtype)
            yield Case(op, [ties], {"axis": 1})
            yield Case(op, [normal((0, 3), dtype)], {"axis": 0}, SAME_MESSAGE)
        yield Case(op, [whole((7, 9), -50, 50)], {"axis": 0})
        yield Case(op, [normal((2, 3))], {"axis": 2}, SAME_MESSAGE)


def sort_cases():
    for op in ("sort", "argsort"):
        for dtype in FLOATS:
            for operand in [*layouts(normal, dtype), with_nan(dtype)]:
                ndim = operand.in_python().ndim
                yield Case(op, [operand], {"axis": None})
                for axis in range(-ndim, ndim):
                    yield Case(op, [operand], {"axis": axis})
            # Equal elements keep their order.
            ties = whole((2, 300), 0, 20, dtype)
            yield Case(op, [ties], {"axis": 1})
        yield Case(op, [whole((5, 40), -99, 99)], {"axis": 1})
        yield Case(op, [normal((2, 3))], {"axis": 2}, SAME_MESSAGE)
    for op, number in (
        ("partition", "kth"),
        ("argpartition", "kth"),
        ("topk", "k"),
    ):
        for dtype in FLOATS:
            x = normal((4, 200), dtype)
            for n in (1, 7, 199):
                yield Case(op, [x], {number: n, "axis": -1})
            yield Case(op, [x], {number: 3, "axis": 0})
            yield Case(op, [x], {number: 11, "axis": None})
            turned = normal((50, 4), dtype, view=(("transpose", (1, 0)),))
            yield Case(op, [turned], {number: 5, "axis": 1})
        yield Case(op, [whole((4, 60), 0, 9)], {number: 5, "axis": 1})
        for n in (-300, 300):
            wrong = {number: n, "axis": -1}
            yield Case(op, [normal((4, 200))], wrong, SAME_MESSAGE)
        wrong = {number: 1, "axis": 2}
        yield Case(op, [normal((4, 200))], wrong, SAME_MESSAGE)


def running_cases():
    for op in ("cumsum", "cumprod", "cummax"):
        for dtype in FLOATS:
            for operand in layouts(normal, dtype):
                ndim = operand.in_python().ndim
                for axis in [None, *range(-ndim, ndim)]:
                    for way in ({}, {"reverse": True}, {"inclusive": False}):
                        yield Case(op, [operand], {"axis": axis, **way})
            yield Case(op, [with_nan(dtype)], {"axis": 1})
        yield Case(op, [whole((3, 9), -5, 5)], {"axis": 1})
        yield Case(op, [normal((2, 3))], {"axis": 2}, SAME_MESSAGE)
    for op in ("cumsum", "cumprod"):
        for dtype in ("float32", "bfloat16", "int32"):
            x = whole((3, 40), 1, 3, "bfloat16")
            yield Case(op, [x], {"axis": 1, "dtype": dtype})
            yield Case(op, [truths((3, 40))], {"axis": 1, "dtype": dtype})


def softmax_cases():
    for dtype in FLOATS:
        for operand in [*layouts(normal, dtype), with_nan(dtype)]:
            for axes in axes_of(operand, several=True):
                axes.pop("keepdims", None)
                for precise in (False, True):
                    yield Case(
                        "softmax", [operand], {**axes, "precise": precise}
                    )
        yield Case("softmax", [special(dtype)], {"axis": 0})
        masked = Operand([[1.0, -np.inf, 2.0], [-np.inf] * 3], dtype)
        yield Case("softmax", [masked], {"axis": -1})
    yield Case("softmax", [whole((2, 9), -4, 4)], {"axis": -1})
    yield Case("softmax", [normal((2, 3))], {"axis": 2}, SAME_MESSAGE)


def cases():
    yield from reduction_cases()
    yield from norm_cases()
    yield from arg_cases()
    yield from sort_cases()
    yield from running_cases()
    yield from softmax_cases()
