"""Cases of mlx::core::fast."""

import numpy as np

from made_arrays import layouts, normal, truths, whole
from op_case import FLOATS, OWN_MESSAGE, SAME_MESSAGE, Case, Operand


def norm_cases():
    for dtype in FLOATS:
        for x in layouts(normal, dtype):
            size = (*x.in_python().shape, 0)[-2] if x.values.ndim else None
            if not size:
                continue
            weight = normal((size,), dtype, "weight")
            bias = normal((size,), dtype, "bias")
            for eps in (1e-5, 0.1):
                for given in ([None], [weight]):
                    case = [x, *given]
                    yield Case("fast::rms_norm", case, {"eps": eps})
                for given in (
                    [None, None],
                    [weight, None],
                    [None, bias],
                    [weight, bias],
                ):
                    case = [x, *given]
                    yield Case("fast::layer_norm", case, {"eps": eps})
        zeros = Operand(np.zeros((2, 8)), dtype)
        yield Case("fast::rms_norm", [zeros, None], {"eps": 0.0})
        yield Case("fast::layer_norm", [zeros, None, None], {"eps": 0.0})
        # Weights of another type than the activations.
        other = normal((37,), FLOATS[dtype == "float32"])
        x = normal((3, 37), dtype)
        yield Case("fast::rms_norm", [x, other], {"eps": 1e-5})
        yield Case("fast::layer_norm", [x, other, other], {"eps": 1e-5})
    x, eps = normal((3, 8)), {"eps": 1e-5}
    for op, operands in (
        ("fast::rms_norm", [x, normal((7,))]),
        ("fast::rms_norm", [x, normal((1, 8))]),
        ("fast::rms_norm", [normal(()), None]),
        ("fast::layer_norm", [x, normal((7,)), None]),
        ("fast::layer_norm", [x, None, normal((7,))]),
        ("fast::layer_norm", [normal(()), None, None]),
    ):
        yield Case(op, operands, eps, SAME_MESSAGE)


def rope_cases():
    plain = {"dims": 8, "base": 10000.0, "scale": 1.0, "offset": 0}
    for dtype in FLOATS:
        heads = (("transpose", (0, 2, 1, 3)),)
        for x in (
            normal((2, 3, 5, 8), dtype),
            normal((2, 5, 3, 8), dtype, view=heads),
            normal((3, 5, 12), dtype),
            normal((2, 1, 1, 8), dtype),
        ):
            for changes in (
                {},
                {"traditional": True},
                {"offset": 37},
                {"scale": 0.25, "offset": 4000},
                {"dims": 4},
                {"dims": 6, "traditional": True, "offset": 2},
            ):
                yield Case("fast::rope", [x], {**plain, **changes})
                dynamic = {**plain, **changes}
                where = np.array(dynamic.pop("offset"))
                dynamic["offset_array"] = Operand(where, "int32")
                yield Case("fast::rope", [x], dynamic)
            freqs = Operand(np.geomspace(1, 5000, 4), "float32")
            own = {**plain, "base": None, "freqs": freqs, "offset": 9}
            yield Case("fast::rope", [x], own)
        # One offset for each sequence of the batch.
        each = {**plain, "offset_array": Operand(np.array([3, 70]), "int32")}
        del each["offset"]
        yield Case("fast::rope", [normal((2, 3, 5, 8), dtype)], each)
    x = normal((2, 3, 5, 8))
    freqs = Operand(np.ones(4), "float32")
    wrong_freqs = Operand(np.ones(3), "float32")
    for changes in (
        {"dims": -2},
        {"base": None},
        {"freqs": freqs},
        {"base": None, "freqs": wrong_freqs},
        {"offset": None, "offset_array": normal((1,))},
        {"offset": None, "offset_array": whole((3,), 0, 9)},
        {"offset": None, "offset_array": whole((2, 1), 0, 9)},
    ):
        yield Case("fast::rope", [x], {**plain, **changes}, SAME_MESSAGE)
    yield Case("fast::rope", [normal((8,))], plain, SAME_MESSAGE)
    yield Case("fast::rope", [whole((2, 3, 8), 0, 9)], plain, SAME_MESSAGE)


def attention_inputs(dtype, queries=5, keys=9, heads=4, kv_heads=2, size=16):
    return [
        normal((2, heads, queries, size), dtype, "q"),
        normal((2, kv_heads, keys, size), dtype, "k"),
        normal((2, kv_heads, keys, size), dtype, "v"),
    ]


def masks(dtype):
    causal = np.tril(np.ones((5, 9), bool), 4)
    yield Operand(causal, "bool")
    yield Operand(np.where(causal, 0, -np.inf), dtype)
    yield normal((2, 4, 5, 9), dtype, "bias")
    yield truths((2, 1, 1, 9))
    yield whole((5, 9), 0, 2)


def attention_cases():
    op, scale = "fast::scaled_dot_product_attention", {"scale": 0.25}
    for dtype in FLOATS:
        inputs = attention_inputs(dtype)
        sinks = {"sinks": normal((4,), dtype, "sinks")}
        for sink in ({}, sinks):
            yield Case(op, inputs, {**scale, **sink})
            yield Case(op, inputs, {**scale, **sink, "mask_mode": "causal"})
            for mask in masks(dtype):
                for mode in ("", "array"):
                    arguments = {
                        **scale,
                        **sink,
                        "mask": mask,
                        "mask_mode": mode,
                    }
                    yield Case(op, inputs, arguments)
        for shape in (
            {"queries": 1},
            {"queries": 9, "kv_heads": 4},
            {"keys": 70, "queries": 33, "kv_heads": 1},
            {"size": 64, "queries": 1, "keys": 300},
        ):
            inputs = attention_inputs(dtype, **shape)
            yield Case(op, inputs, scale)
            yield Case(op, inputs, {**scale, "mask_mode": "causal"})
        heads = (("transpose", (0, 2, 1, 3)),)
        turned = [normal((2, 5, 4, 16), dtype, n, view=heads) for n in "qkv"]
        yield Case(op, turned, scale)
    q, k, v = attention_inputs("float32")
    for operands, changes in (
        ([q, k, v], {"force_fused": True}),
        ([q, k, v], {"mask": Operand(np.ones((5, 8)), "bool")}),
        ([q, k, v], {"mask": normal((1, 1, 1, 5, 9))}),
        ([q, k, v], {"sinks": normal((3,))}),
        ([normal((4, 5, 16)), k, v], {}),
        ([normal((2, 3, 5, 16)), k, v], {}),
        ([normal((2, 4, 5, 8)), k, v], {}),
        ([q, k, normal((2, 2, 8, 16))], {}),
        ([q, k, normal((2, 1, 9, 16))], {}),
        ([normal((1, 4, 5, 16)), k, v], {}),
        ([whole((2, 4, 5, 16), 0, 9)] * 3, {}),
    ):
        yield Case(op, operands, {**scale, **changes}, SAME_MESSAGE)
    # Python's binding looks at the mode itself.
    arguments = {**scale, "mask_mode": "diagonal"}
    yield Case(op, [q, k, v], arguments, OWN_MESSAGE)
    # A mask must not widen the result.
    arguments = {**scale, "mask": normal((5, 9))}
    yield Case(op, attention_inputs("bfloat16"), arguments, SAME_MESSAGE)


def cases():
    yield from norm_cases()
    yield from rope_cases()
    yield from attention_cases()
