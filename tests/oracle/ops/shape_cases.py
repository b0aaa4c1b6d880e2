"""Cases of the ops that make, move and index arrays."""

from made_arrays import layouts, normal, special, truths, whole
from op_case import FLOATS, SAME_MESSAGE, Case, Operand

DTYPES = (
    "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 "
    "bfloat16"
).split()


def missing_device(op, operands, **arguments):
    return Case(op, operands, {"stream": "gpu", **arguments}, SAME_MESSAGE)


def making_cases():
    for dtype in (*FLOATS, "float16", "int32", "uint8"):
        for start, stop, step in (
            (0, 10, 1),
            (3, 20, 4),
            (9, -3, -2),
            (5, 5, 1),
            (5, 2, 1),
        ):
            if dtype == "uint8" and stop < 0:
                continue
            numbers = {"start": start, "stop": stop, "step": step}
            yield Case("arange", [], {**numbers, "dtype": dtype})
    for numbers in ((0, 7, 2), (0.5, 3.0, 0.25), (1.0, -1.0, -0.3)):
        yield Case("arange", [], dict(zip(("start", "stop", "step"), numbers)))
    too_many = {"start": 0.0, "stop": 1e18, "step": 1.0, "dtype": "float32"}
    yield Case("arange", [], too_many, SAME_MESSAGE)
    on_bools = {"start": 0.0, "stop": 2.0, "step": 1.0, "dtype": "bool"}
    yield Case("arange", [], on_bools, SAME_MESSAGE)
    for op in ("zeros", "ones"):
        for dtype in DTYPES:
            for shape in ([], [3], [2, 0, 3], [4, 5]):
                yield Case(op, [], {"shape": shape, "dtype": dtype})
        yield Case(op, [], {"shape": [2, -3]}, SAME_MESSAGE)
    for dtype in FLOATS:
        yield Case("full", [normal((), dtype)], {"shape": [2, 3]})
        yield Case("full", [normal((3,), dtype)], {"shape": [2, 3]})
        narrow = {"shape": [2, 3], "dtype": "int32"}
        yield Case("full", [Operand(2.7, dtype)], narrow)
    yield Case("full", [normal((4,))], {"shape": [2, 3]}, SAME_MESSAGE)
    yield Case("full", [normal(())], {"shape": [2, -3]}, SAME_MESSAGE)
    for op in ("tril", "triu"):
        for dtype in FLOATS:
            for k in (-2, 0, 1):
                yield Case(op, [normal((4, 5), dtype)], {"k": k})
            turned = normal((4, 3, 2), dtype, view=(("transpose", (1, 2, 0)),))
            yield Case(op, [turned])
        yield Case(op, [normal((4,))], {}, SAME_MESSAGE)


def copying_cases():
    for dtype in FLOATS:
        for operand in layouts(normal, dtype):
            for op in ("copy", "contiguous"):
                yield Case(op, [operand])
            yield Case("contiguous", [operand], {"allow_col_major": True})
        yield Case("copy", [special(dtype)])
    for op in ("copy", "contiguous"):
        yield missing_device(op, [normal((2, 3))])
    for source in DTYPES:
        for target in DTYPES:
            low = 0 if source[0] in "ub" else -100
            x = whole((3, 11), low, 2 if source == "bool" else 100, source)
            negative_to_unsigned = low < 0 and target[0] == "u"
            if negative_to_unsigned and "float" in source:
                continue  # C++ leaves the result open
            yield Case("astype", [x], {"dtype": target})
    for dtype in (*FLOATS, "float16"):
        for source in FLOATS:
            yield Case("astype", [special(source)], {"dtype": dtype})
            halves = normal((4, 9), source, view=(("transpose", (1, 0)),))
            yield Case("astype", [halves], {"dtype": dtype})
    yield missing_device("astype", [normal((2, 3))], dtype="int32")


def moving_cases():
    for dtype in FLOATS:
        x = normal((2, 3, 4), dtype)
        turned = normal((4, 2, 3), dtype, view=(("transpose", (1, 2, 0)),))
        empty = normal((2, 0, 4), dtype)
        for shape in ([24], [4, -1], [6, 1, 4], [-1, 2, 2]):
            yield Case("reshape", [x], {"shape": shape})
            yield Case("reshape", [turned], {"shape": shape})
        yield Case("reshape", [empty], {"shape": [0, 5]})
        yield Case("reshape", [normal((), dtype)], {"shape": [1, 1]})
        for operand in (x, turned, empty):
            yield Case("transpose", [operand])
            for axes in ([1, 2, 0], [-1, 0, 1]):
                yield Case("transpose", [operand], {"axes": axes})
            for axis in (0, 3, -1, -4, [0, 4], [-1, -2]):
                yield Case("expand_dims", [operand], {"axis": axis})
            for first, last in ((0, -1), (1, 2), (-3, -2)):
                ends = {"start_axis": first, "end_axis": last}
                yield Case("flatten", [operand], ends)
            yield Case("swapaxes", [operand], {"axis1": 0, "axis2": -1})
        ones = normal((1, 3, 1), dtype)
        for axes in ({}, {"axis": 0}, {"axis": -1}, {"axis": [0, 2]}):
            yield Case("squeeze", [ones], axes)
        for shape in ([5, 2, 3, 4], [2, 3, 4]):
            yield Case("broadcast_to", [x], {"shape": shape})
        yield Case("broadcast_to", [normal((), dtype)], {"shape": [2, 0]})
        yield Case("broadcast_to", [turned], {"shape": [2, 2, 3, 4]})
    x = normal((2, 3, 4))
    for op, wrong in (
        ("reshape", {"shape": [5, 5]}),
        ("reshape", {"shape": [-1, -1]}),
        ("transpose", {"axes": [0, 1]}),
        ("transpose", {"axes": [0, 0, 1]}),
        ("transpose", {"axes": [0, 1, 3]}),
        ("expand_dims", {"axis": 4}),
        ("expand_dims", {"axis": [0, 0]}),
        ("squeeze", {"axis": 1}),
        ("squeeze", {"axis": 3}),
        ("flatten", {"start_axis": 2, "end_axis": 0}),
        ("swapaxes", {"axis1": 0, "axis2": 3}),
        ("broadcast_to", {"shape": [2, 3, 5]}),
        ("broadcast_to", {"shape": [3, 4]}),
    ):
        yield Case(op, [x], wrong, SAME_MESSAGE)


def joining_cases():
    for dtype in FLOATS:
        x, y = normal((2, 3), dtype, "a"), normal((2, 3), dtype, "b")
        turned = normal((3, 2), dtype, view=(("transpose", (1, 0)),))
        for axis in (0, 1, -1):
            yield Case("concatenate", [x, turned, y], {"axis": axis})
            yield Case("stack", [x, turned, y], {"axis": axis})
        yield Case("concatenate", [x, normal((0, 3), dtype)], {"axis": 0})
        yield Case("concatenate", [x, whole((2, 3), 0, 9)], {"axis": 0})
        yield Case("concatenate", [x])
        x = normal((6, 5), dtype)
        for parts in (3, [1, 4], [2, 2]):
            arguments = {"indices_or_sections": parts, "axis": 0}
            yield Case("split", [x], arguments)
        arguments = {"indices_or_sections": [-2], "axis": -1}
        yield Case("split", [x], arguments)
        for axis in (None, 0, -1):
            yield Case("repeat", [turned], {"repeats": 3, "axis": axis})
        yield Case("repeat", [x], {"repeats": 0, "axis": 0})
        value = Operand(2.5, dtype)
        widths = [1, 0, 2, 3]
        yield Case("pad", [x], {"pad_width": widths})
        padding = {"pad_width": widths, "constant_values": value}
        yield Case("pad", [turned], padding)
        yield Case("pad", [turned], {"pad_width": widths, "mode": "edge"})
    wrong = [normal((2, 3)), normal((2, 4))]
    yield Case("concatenate", wrong, {"axis": 0}, SAME_MESSAGE)
    yield Case("concatenate", wrong, {"axis": 2}, SAME_MESSAGE)
    yield Case("concatenate", [], {"axis": 0}, SAME_MESSAGE)
    yield Case("stack", wrong, {"axis": 0}, SAME_MESSAGE)
    yield Case("stack", [], {"axis": 0}, SAME_MESSAGE)
    x = normal((6, 5))
    for op, arguments in (
        ("split", {"indices_or_sections": 4, "axis": 0}),
        ("split", {"indices_or_sections": 2, "axis": 2}),
        ("repeat", {"repeats": -1, "axis": 0}),
        ("repeat", {"repeats": 2, "axis": 2}),
        ("pad", {"pad_width": [-1, 0, 0, 0]}),
        ("pad", {"pad_width": [1, 0, 0, 0], "mode": "backwards"}),
        ("pad", {"pad_width": [1, 0, 0, 0, 1, 1]}),
    ):
        yield Case(op, [x], arguments, SAME_MESSAGE)


def cases():
    yield from making_cases()
    yield from copying_cases()
    yield from moving_cases()
    yield from joining_cases()
