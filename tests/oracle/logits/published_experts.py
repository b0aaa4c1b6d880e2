"""MLX's names and forms of experts -> those of published checkpoints."""

import mlx.core as mx

# Mixtral's names of an expert's matrices.
NUMBERED = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}


def one_by_one(names=None):
    """Each expert in tensors of its own, which MLX's converter stacks."""

    def raw(weights, config):
        out = {}
        for name, value in weights.items():
            before, found, after = name.partition(".switch_mlp.")
            if not found:
                out[name] = value
                continue
            matrix, _, part = after.partition(".")
            matrix = (names or {}).get(matrix, matrix)
            for expert in range(value.shape[0]):
                key = f"{before}.experts.{expert}.{matrix}.{part}"
                out[key] = mx.contiguous(value[expert])
        return out

    return raw


def granite(weights, config):
    """Gate above up in one tensor for all experts."""
    out = {}
    for name, value in weights.items():
        if ".switch_mlp.gate_proj." in name:
            up = weights[name.replace("gate_proj", "up_proj")]
            name = name.replace("switch_mlp.gate_proj", "input_linear")
            out[name] = mx.concatenate([value, up], axis=1)
        elif ".switch_mlp.down_proj." in name:
            out[name.replace("switch_mlp.down_proj", "output_linear")] = value
        elif ".switch_mlp.up_proj." not in name:
            out[name] = value
    return out


def in_turns(gate, up, axis):
    stacked = mx.stack([gate, up], axis=axis + 1)
    return mx.flatten(stacked, axis, axis + 1)


def dense_again(weights, config, keep):
    """Without quantization but in the modules that `keep` names."""
    settings = config["quantization"]
    out = dict(weights)
    for name in weights:
        module = name.removesuffix(".scales")
        if module == name or keep(module):
            continue
        own = settings.get(module, settings)
        out[f"{module}.weight"] = mx.dequantize(
            weights[f"{module}.weight"],
            out.pop(name),
            out.pop(f"{module}.biases", None),
            group_size=own["group_size"],
            bits=own["bits"],
            mode=own.get("mode", "affine"),
        ).astype(mx.bfloat16)
    return out


def gpt_oss(weights, config):
    """Experts in blocks of mxfp4, gate and up in turns; all else dense."""
    weights = dense_again(weights, config, lambda module: ".experts." in module)
    del config["quantization"]
    config["quantization_config"] = {"quant_method": "mxfp4"}
    out = {}
    for name, value in weights.items():
        start, found, _ = name.partition(".experts.")
        start += found
        if not found:
            out[name] = value
        elif name.endswith("gate_proj.bias"):
            up = weights[start + "up_proj.bias"]
            out[start + "gate_up_proj_bias"] = in_turns(value, up, 1)
        elif name.endswith("down_proj.bias"):
            out[start + "down_proj_bias"] = value
        elif "up_proj" not in name:
            part = "_scales" if name.endswith("scales") else "_blocks"
            key = start + "down_proj" + part
            if "gate_proj" in name:
                up = weights[name.replace("gate_proj", "up_proj")]
                value = in_turns(value, up, 1)
                key = start + "gate_up_proj" + part
            if part == "_blocks":
                value = mx.unflatten(value.view(mx.uint8), -1, (-1, 16))
            out[key] = value
    return out


def latent(weights, config):
    """Keys and values of all heads from one matrix, quantized or not, beside
    experts one by one and a layer that predicts further tokens."""
    out = one_by_one()(weights, config)
    heads = config["num_attention_heads"]
    settings = config.get("quantization")
    for name in list(out):
        if not name.endswith("embed_q.weight"):
            continue
        module = name.removesuffix(".embed_q.weight")
        parts = []
        for matrix in ("embed_q", "unembed_out"):
            value = out.pop(f"{module}.{matrix}.weight")
            if settings:
                value = mx.dequantize(
                    value,
                    out.pop(f"{module}.{matrix}.scales"),
                    out.pop(f"{module}.{matrix}.biases"),
                    group_size=settings["group_size"],
                    bits=settings["bits"],
                )
            parts.append(value)
        parts[0] = parts[0].swapaxes(-1, -2)
        both = mx.flatten(mx.concatenate(parts, axis=1), 0, 1)
        assert both.shape[0] % heads == 0
        key = f"{module}.kv_b_proj"
        if settings:
            both, scales, biases = mx.quantize(
                both, settings["group_size"], settings["bits"]
            )
            out[f"{key}.scales"], out[f"{key}.biases"] = scales, biases
        out[f"{key}.weight"] = mx.contiguous(both)
    # The one that the full model has after its layers, and mlx-lm drops.
    out["model.layers.61.enorm.weight"] = mx.ones((8,))
    return out


def llama4(weights, config):
    """Experts turned, gate beside up, and a tensor of the vision tower."""
    out = {"vision_model.class_embedding": mx.ones((8,))}
    for name, value in weights.items():
        start, found, matrix = name.partition(".experts.")
        if not found:
            out[name] = value
        elif matrix == "gate_proj.weight":
            up = weights[f"{start}.experts.up_proj.weight"]
            both = mx.concatenate([value, up], axis=1)
            out[f"{start}.experts.gate_up_proj"] = mx.contiguous(
                both.swapaxes(1, 2)
            )
        elif matrix == "down_proj.weight":
            out[f"{start}.experts.down_proj"] = mx.contiguous(
                value.swapaxes(1, 2)
            )
    return out
