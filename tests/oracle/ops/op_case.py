"""One call of an op, made twice: in Python here, and by ops_driver in C++."""

import copy
from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np

FLOATS = ("float32", "bfloat16")


def dtype_named(name):
    return mx.bool_ if name == "bool" else getattr(mx, name)


@dataclass(eq=False)
class Operand:
    """An array and what makes it non-contiguous: steps ("transpose", axes),
    ("slice", start, stop, strides), ("broadcast", shape)."""

    values: object
    dtype: str = "float32"
    view: tuple = ()

    def __post_init__(self):
        values = np.asarray(self.values)
        if values.dtype == np.float64:
            values = values.astype(np.float32)
        self.base = mx.array(values).astype(dtype_named(self.dtype))

    def in_python(self):
        result = self.base
        for kind, *rest in self.view:
            if kind == "transpose":
                result = mx.transpose(result, rest[0])
            elif kind == "slice":
                result = result[tuple(slice(*r) for r in zip(*rest))]
            else:
                result = mx.broadcast_to(result, rest[0])
        return result

    def for_driver(self, names):
        """Fills `names` with the arrays that the driver loads."""
        view = [list(step) for step in self.view]
        if self.base.size == 0:
            shape = list(self.base.shape)
            return {"shape": shape, "dtype": self.dtype, "view": view}
        name = names.setdefault(id(self), (f"operand{len(names)}", self.base))
        return {"array": name[0], "view": view}


# Refusals: MLX's own message, word for word, or another one because Python's
# binding looks at the arguments before MLX does.
SAME_MESSAGE = "same message"
OWN_MESSAGE = "own message"


@dataclass(eq=False)
class Case:
    op: str  # MLX's name below mlx::core: "random::key"
    operands: list = field(default_factory=list)
    arguments: dict = field(default_factory=dict)
    refused: str | None = None

    def for_driver(self, name, names):
        def plain(value):
            if isinstance(value, Operand):
                return value.for_driver(names)
            return list(value) if isinstance(value, tuple) else value

        return {
            "name": name,
            "op": self.op,
            "operands": [plain(operand) for operand in self.operands],
            "arguments": {k: plain(v) for k, v in self.arguments.items()},
        }

    def in_python(self):
        """The outputs, evaluated; raises what MLX raises."""
        operands = [o and o.in_python() for o in self.operands]
        arguments = {k: argument(k, v) for k, v in self.arguments.items()}
        function = PYTHON.get(self.op) or by_name(self.op)
        outputs = function(*operands, **arguments)
        if not isinstance(outputs, (list, tuple)):
            outputs = [outputs]
        mx.eval(outputs)
        return outputs

    def __str__(self):
        operands = ", ".join(
            f"{o.dtype}{list(o.in_python().shape)}" if o else "none"
            for o in self.operands
        )
        arguments = {
            k: "array" if isinstance(v, Operand) else v
            for k, v in self.arguments.items()
        }
        return f"{self.op}({operands}) {arguments}"


def argument(key, value):
    if isinstance(value, Operand):
        return value.in_python()
    if key == "dtype":
        return dtype_named(value)
    if key == "stream":
        return getattr(mx, value)
    return value


def by_name(op):
    function = mx
    for part in op.split("::"):
        function = getattr(function, part)
    return function


def slice_fixed_or_dynamic(x, *start_array, **arguments):
    if start_array:
        return mx.slice(x, *start_array, **arguments)
    return x[ranges(**arguments)]


def slice_update_fixed_or_dynamic(x, update, *start_array, **arguments):
    if start_array:
        return mx.slice_update(x, update, *start_array, **arguments)
    result = mx.array(x)
    result[ranges(**arguments)] = update
    return result


def ranges(start, stop, strides=None):
    return tuple(
        slice(*r) for r in zip(start, stop, strides or [1] * len(start))
    )


def take(x, *indices, index=None, **arguments):
    return mx.take(x, index if not indices else indices[0], **arguments)


def pad(x, pad_width, **arguments):
    widths = list(zip(pad_width[::2], pad_width[1::2]))
    return mx.pad(x, widths, **arguments)


def drawing(function):
    """Seeds the default key first where the case says so."""

    def draw(*operands, seed=None, **arguments):
        if seed is not None:
            mx.random.seed(seed)
        return function(*operands, **arguments)

    return draw


def seed(seed):
    mx.random.seed(seed)
    return mx.random.uniform(shape=[8]), mx.random.uniform(
        shape=[8], dtype=mx.bfloat16
    )


def rope(x, offset_array=None, offset=None, base=None, **arguments):
    offset = offset if offset_array is None else offset_array
    arguments = {"traditional": False} | arguments
    return mx.fast.rope(x, offset=offset, base=base, **arguments)


def attention(q, k, v, mask_mode=None, mask=None, **arguments):
    mask = mask_mode if mask is None else mask
    return mx.fast.scaled_dot_product_attention(
        q, k, v, mask=mask, **arguments
    )


def copied(x, stream=None):
    if stream is None:
        return copy.copy(x)
    with mx.stream(stream):
        return copy.copy(x)


def full(values, shape, dtype=None, **arguments):
    """Python's full leaves the dtype of an array as it is."""
    values = values if dtype is None else values.astype(dtype)
    return mx.full(shape, values, **arguments)


def scatter_add_axis(x, indices, values, axis):
    """Python has no such name: the places written out, along every axis."""
    places = [
        mx.arange(size).reshape([-1 if i == j else 1 for j in range(x.ndim)])
        for i, size in enumerate(indices.shape)
    ]
    places[axis] = indices
    return x.at[tuple(places)].add(values)


# Where Python's signature is not the name, the operands and the arguments.
PYTHON = {
    "astype": lambda x, dtype, **a: x.astype(dtype, **a),
    "concatenate": lambda *x, **a: mx.concatenate(list(x), **a),
    "copy": copied,
    "full": full,
    "pad": pad,
    "scatter_add_axis": scatter_add_axis,
    "slice": slice_fixed_or_dynamic,
    "slice_update": slice_update_fixed_or_dynamic,
    "stack": lambda *x, **a: mx.stack(list(x), **a),
    "take": take,
    "fast::rope": rope,
    "fast::scaled_dot_product_attention": attention,
    "random::bernoulli": drawing(mx.random.bernoulli),
    "random::categorical": drawing(mx.random.categorical),
    "random::gumbel": drawing(mx.random.gumbel),
    "random::normal": drawing(mx.random.normal),
    "random::randint": drawing(mx.random.randint),
    "random::seed": seed,
    "random::uniform": drawing(mx.random.uniform),
}
