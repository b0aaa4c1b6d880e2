"""Cases of taking, putting and slicing."""

import numpy as np

from made_arrays import normal, whole
from op_case import FLOATS, OWN_MESSAGE, SAME_MESSAGE, Case, Operand

# Slices of a (5, 6) array: start, stop, strides.
RANGES = (
    ([0, 0], [5, 6], [1, 1]),
    ([1, 2], [4, 6], [1, 1]),
    ([0, 1], [5, 6], [2, 3]),
    ([-3, -4], [-1, 6], [1, 2]),
    ([2, 3], [2, 5], [1, 1]),
    ([4, 5], [0, 0], [-1, -2]),
)


def layouts(dtype):
    yield normal((5, 6), dtype)
    yield normal((6, 5), dtype, view=(("transpose", (1, 0)),))
    yield normal((1, 6), dtype, view=(("broadcast", (5, 6)),))


def take_cases():
    for dtype in FLOATS:
        for x in layouts(dtype):
            for indices in (
                whole((7,), 0, 5),
                whole((2, 3), -5, 5),
                whole((4,), 0, 5, "uint32"),
                Operand(np.int32(3), "int32"),
                Operand(np.zeros((0,)), "int32"),
            ):
                yield Case("take", [x, indices], {"axis": 0})
                yield Case("take", [x, indices], {"axis": -1})
                yield Case("take", [x, indices])
            yield Case("take", [x], {"index": 2, "axis": 1})
            yield Case("take", [x], {"index": 4, "axis": -2})
            yield Case("take", [x], {"index": 17})
            rows, columns = whole((3, 6), 0, 5), whole((5, 4), -6, 6)
            yield Case("take_along_axis", [x, rows], {"axis": 0})
            yield Case("take_along_axis", [x, columns], {"axis": -1})
            yield Case(
                "take_along_axis", [x, whole((1, 4), 0, 6)], {"axis": 1}
            )
            places = Operand(np.array([[1, -1], [0, 2], [5, 3], [2, 4], [0, 1]]),
                             "int32")  # fmt: skip
            values = normal((5, 2), dtype)
            for new in (values, normal((1, 2), dtype), normal((), dtype)):
                yield Case("put_along_axis", [x, places, new], {"axis": 1})
            row = normal(
                (3, 6), dtype, view=(("slice", (0, 0), (1, 6), (1, 1)),)
            )
            one = whole(
                (3, 6), 0, 5, view=(("slice", (0, 0), (1, 6), (1, 1)),)
            )
            yield Case("put_along_axis", [x, one, row], {"axis": -2})
    x = normal((5, 6))
    indices = whole((5, 2), 0, 5)
    floats = normal((5, 2))
    yield Case("take", [x, floats], {"axis": 0}, SAME_MESSAGE)
    # Negative ones are for arrays of indices only.
    yield Case("take", [x], {"index": -1, "axis": 0}, SAME_MESSAGE)
    yield Case("take", [x, indices], {"axis": 2}, SAME_MESSAGE)
    yield Case("take", [normal((0, 3)), indices], {"axis": 0}, SAME_MESSAGE)
    yield Case("take_along_axis", [x, floats], {"axis": 1}, SAME_MESSAGE)
    yield Case("take_along_axis", [x, indices], {"axis": 2}, SAME_MESSAGE)
    wrong = [x, whole((5,), 0, 5)]
    yield Case("take_along_axis", wrong, {"axis": 1}, SAME_MESSAGE)
    wrong = [x, whole((4, 2), 0, 5)]
    yield Case("take_along_axis", wrong, {"axis": 1}, SAME_MESSAGE)
    for places, axis in ((floats, 1), (indices, 2), (whole((5,), 0, 5), 1)):
        wrong = [x, places, normal((5, 2))]
        yield Case("put_along_axis", wrong, {"axis": axis}, SAME_MESSAGE)
    wrong = [x, indices, normal((5, 3))]
    yield Case("put_along_axis", wrong, {"axis": 1}, SAME_MESSAGE)


def adding_cases():
    op = "scatter_add_axis"
    for dtype in FLOATS:
        for x in layouts(dtype):
            # The same place several times.
            columns = whole((5, 9), 0, 6)
            yield Case(op, [x, columns, normal((5, 9), dtype)], {"axis": 1})
            yield Case(op, [x, columns, normal((), dtype)], {"axis": -1})
            rows = whole((4, 6), -5, 5)
            yield Case(op, [x, rows, normal((4, 6), dtype)], {"axis": 0})
    x, values = normal((5, 6)), normal((5, 2))
    for places, axis in (
        (whole((5, 2), 0, 5), 2),
        (whole((5,), 0, 5), 1),
        (values, 1),
    ):
        wrong = [x, places, values]
        yield Case(op, wrong, {"axis": axis}, OWN_MESSAGE)


def slice_cases():
    for dtype in FLOATS:
        for x in layouts(dtype):
            for start, stop, strides in RANGES:
                bounds = {"start": start, "stop": stop, "strides": strides}
                yield Case("slice", [x], bounds)
                size = x.in_python()[
                    tuple(slice(*r) for r in zip(start, stop, strides))
                ].shape
                for shape in (size, (1, size[1]), ()):
                    update = normal(tuple(shape), dtype)
                    yield Case("slice_update", [x, update], bounds)
            bounds = {"start": [1, 2], "stop": [4, 6]}
            yield Case("slice", [x], bounds)
            yield Case("slice_update", [x, normal((3, 4), dtype)], bounds)
            # Another dtype becomes that of the array.
            yield Case("slice_update", [x, whole((3, 4), 0, 9)], bounds)
            for start, axes, size in (
                ([1, 2], [0, 1], [3, 4]),
                ([2], [1], [5, 3]),
                ([1], [-2], [2, 6]),
            ):
                where = Operand(np.array(start), "int32")
                dynamic = {"axes": axes, "slice_size": size}
                yield Case("slice", [x, where], dynamic)
                update = normal(tuple(size), dtype)
                arguments = {"axes": axes}
                yield Case("slice_update", [x, update, where], arguments)
            where = Operand(np.array(3), "uint32")
            yield Case(
                "slice", [x, where], {"axes": [0], "slice_size": [2, 6]}
            )
    x, two = normal((5, 6)), Operand(np.array([0, 1]), "int32")
    floats = normal((2,))
    for where, dynamic in (
        (two, {"axes": [0], "slice_size": [2, 2]}),
        (two, {"axes": [0, 0], "slice_size": [2, 2]}),
        (two, {"axes": [0, 2], "slice_size": [2, 2]}),
        (two, {"axes": [0, 1], "slice_size": [2]}),
        (two, {"axes": [0, 1], "slice_size": [6, 2]}),
        (floats, {"axes": [0, 1], "slice_size": [2, 2]}),
    ):
        yield Case("slice", [x, where], dynamic, SAME_MESSAGE)
    for where, axes in ((two, [0]), (two, [0, 2]), (floats, [0, 1])):
        wrong = [x, normal((2, 2)), where]
        yield Case("slice_update", wrong, {"axes": axes}, SAME_MESSAGE)
    # Python's indexing looks at the number of ranges itself.
    bounds = {"start": [0, 0, 0], "stop": [1, 1, 1]}
    yield Case("slice", [x], bounds, OWN_MESSAGE)
    yield Case("slice_update", [x, normal(())], bounds, OWN_MESSAGE)
    bounds = {"start": [0, 0], "stop": [2, 3]}
    yield Case("slice_update", [x, normal((4, 3))], bounds, OWN_MESSAGE)


def cases():
    yield from take_cases()
    yield from adding_cases()
    yield from slice_cases()
