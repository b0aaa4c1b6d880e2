"""MLX's names and forms of recurrent layers -> those of published
checkpoints."""

import mlx.core as mx

from published_experts import NUMBERED, one_by_one

NORMS = (
    ".input_layernorm.weight",
    ".post_attention_layernorm.weight",
    "model.norm.weight",
    ".q_norm.weight",
    ".k_norm.weight",
)


def turned(weights, config):
    """Convolutions with the channels' axis in the middle."""
    return {
        name: mx.contiguous(mx.swapaxes(value, 1, 2))
        if name.endswith(("conv1d.weight", "conv.weight"))
        else value
        for name, value in weights.items()
    }


def around_zero(weights):
    """Norms as differences from one."""
    return {
        name: value - 1 if name.endswith(NORMS) else value
        for name, value in weights.items()
    }


def lfm2_moe(weights, config):
    weights = one_by_one(NUMBERED)(turned(weights, config), config)
    out = {}
    for name, value in weights.items():
        if ".feed_forward." in name:
            for old, new in NUMBERED.items():
                name = name.replace(f"feed_forward.{old}.", f"feed_forward.{new}.")
        out[name] = value
    return out


def nemotron_h(weights, config):
    names = {"fc1": "up_proj", "fc2": "down_proj"}
    out = one_by_one(names)(turned(weights, config), config)
    out["mtp.layers.0.norm.weight"] = mx.zeros((4,))
    return out


def granite(weights, config):
    """Gate above up in one tensor; MLX has the shared network's so too."""
    out = {}
    for name, value in turned(weights, config).items():
        if ".switch_mlp.gate_proj." in name:
            up = weights[name.replace("gate_proj", "up_proj")]
            name = name.replace("switch_mlp.gate_proj", "input_linear")
            out[name] = mx.concatenate([value, up], axis=1)
        elif ".switch_mlp.down_proj." in name:
            out[name.replace("switch_mlp.down_proj", "output_linear")] = value
        elif ".switch_mlp.up_proj." not in name:
            out[name] = value
    return out


def qwen3_next(weights, config):
    weights = around_zero(turned(weights, config))
    out = one_by_one()(weights, config)
    out["mtp.norm.weight"] = mx.zeros((4,))
    return out


def qwen3_5(weights, config):
    """Under the names of a checkpoint with a vision tower."""
    out = {}
    for name, value in around_zero(turned(weights, config)).items():
        name = name.removeprefix("language_model.")
        if name.startswith("model."):
            name = name.replace("model.", "model.language_model.", 1)
        if ".switch_mlp.gate_proj." in name:
            other = name.replace("gate_proj", "up_proj")
            up = weights[
                other.replace("model.language_model", "language_model.model")
            ]
            value = mx.concatenate([value, up], axis=1)
            name = name.replace(
                "switch_mlp.gate_proj.weight", "experts.gate_up_proj"
            )
        elif ".switch_mlp.down_proj." in name:
            name = name.replace(
                "switch_mlp.down_proj.weight", "experts.down_proj"
            )
        elif ".switch_mlp.up_proj." in name:
            continue
        out[name] = value
    out["model.visual.patch_embed.proj.weight"] = mx.zeros((4, 3))
    out["mtp.norm.weight"] = mx.zeros((4,))
    return out
