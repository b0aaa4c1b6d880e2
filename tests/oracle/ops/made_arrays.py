"""Arrays that the cases are made of: the same ones in every run."""

import zlib

import numpy as np

from op_case import Operand

# NaN, infinities, both zeros, the smallest and largest numbers, and values
# that ops such as round, erf and exp treat specially.
SPECIAL = np.array(
    [
        np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5,
        -2.5, 1e-45, -1e-38, 3e38, -3e38, 88.8, -103.9, 1e-8, 0.999, np.pi,
    ],
    np.float32,
)  # fmt: skip


def normal(shape, dtype="float32", seed="", scale=1.0, view=()):
    random = np.random.default_rng(zlib.crc32(f"{seed}{shape}".encode()))
    return Operand(random.standard_normal(shape) * scale, dtype, view)


def positive(shape, dtype="float32", seed="", view=()):
    random = np.random.default_rng(zlib.crc32(f"{seed}{shape}".encode()))
    return Operand(random.uniform(0.05, 4, shape), dtype, view)


def whole(shape, low, high, dtype="int32", seed="", view=()):
    """From `low` up to, but not with, `high`."""
    random = np.random.default_rng(zlib.crc32(f"{seed}{shape}".encode()))
    return Operand(random.integers(low, high, shape), dtype, view)


def truths(shape, seed="", view=()):
    random = np.random.default_rng(zlib.crc32(f"{seed}{shape}".encode()))
    return Operand(random.integers(0, 2, shape), "bool", view)


def special(dtype="float32"):
    return Operand(SPECIAL, dtype)


def layouts(make, dtype):
    """One array in the layouts that an op must take: large enough for vector
    code and its rest, transposed, strided, broadcast, without dimensions,
    without elements."""
    yield make((3, 37), dtype)
    yield make((5, 4, 3), dtype, view=(("transpose", (2, 0, 1)),))
    yield make((8, 9), dtype, view=(("slice", (1, 0), (8, 9), (2, 3)),))
    yield make((1, 7), dtype, view=(("broadcast", (4, 7)),))
    yield make((), dtype)
    yield make((0, 3), dtype)
