"""Compares mlxx's logits with mlx-lm's, bit for bit, on tiny random llamas.

Writes one folder per case in Hugging Face layout; logits_comparison.py says what
is compared.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models import llama
from transformers import LlamaConfig, MistralConfig

from logits_comparison import check_checkpoint

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0] * 16,
    "long_factor": [1.0 + i / 4 for i in range(16)],
    "original_max_position_embeddings": 64,
}

# name -> (changes of the config, dtype, quantization)
CASES = {
    "plain-fp32": ({}, "float32", None),
    "gqa-bf16": ({"num_key_value_heads": 2}, "bfloat16", None),
    "gqa-fp16": ({"num_key_value_heads": 1}, "float16", None),
    "biases-fp32": (
        {"attention_bias": True, "mlp_bias": True},
        "float32",
        None,
    ),
    "biases-bf16": (
        {"attention_bias": True, "mlp_bias": True},
        "bfloat16",
        None,
    ),
    "tied-bf16": ({"tie_word_embeddings": True}, "bfloat16", None),
    "head-dim-fp32": ({"head_dim": 64, "rope_theta": 5e5}, "float32", None),
    "q4-fp32": ({}, "float32", (64, 4)),
    "q4-tied-gqa-bf16": (
        {"tie_word_embeddings": True, "num_key_value_heads": 2},
        "bfloat16",
        (64, 4),
    ),
    "q8-biases-fp16": (
        {"attention_bias": True, "mlp_bias": True},
        "float16",
        (32, 8),
    ),
    "q6-g128-bf16": ({}, "bfloat16", (128, 6)),
    "llama3-fp32": ({"rope_scaling": LLAMA3}, "float32", None),
    "llama3-bf16-q4": ({"rope_scaling": LLAMA3}, "bfloat16", (32, 4)),
    "linear-fp32": (
        {"rope_scaling": {"rope_type": "linear", "factor": 3.0}},
        "float32",
        None,
    ),
    "yarn-bf16": ({"rope_scaling": YARN}, "bfloat16", None),
    "longrope-fp16": ({"rope_scaling": LONGROPE}, "float16", None),
    "dynamic-fp32": (
        {
            "rope_scaling": {"rope_type": "dynamic", "factor": 2.0},
            "max_position_embeddings": 16,
        },
        "float32",
        None,
    ),
    "sliding-bf16": (
        {
            "sliding_window": 16,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        "bfloat16",
        None,
    ),
    "mistral-fp32": (
        {"model_type": "mistral", "num_key_value_heads": 2},
        "float32",
        None,
    ),
}


def make_config(changes, dtype):
    """All keys that transformers writes, plus the two it renamed in version 5
    and that published checkpoints and mlx-lm have: rope_theta, rope_scaling."""
    changes = dict(changes)
    is_mistral = changes.pop("model_type", "llama") == "mistral"
    extra = {k: changes.pop(k) for k in ("layer_types",) if k in changes}
    theta = changes.pop("rope_theta", 10000.0)
    scaling = changes.pop("rope_scaling", None)
    fields = dict(
        vocab_size=160,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=256,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        dtype=dtype,
    )
    fields.update(changes)
    kind = MistralConfig if is_mistral else LlamaConfig
    config = json.loads(kind(**fields).to_json_string(use_diff=False))
    config.update(extra)
    config["rope_theta"] = theta
    config["rope_scaling"] = scaling
    config["rope_parameters"] = {"rope_theta": theta, "rope_type": "default"}
    if scaling:
        config["rope_parameters"].update(scaling)
    return config


def write_case(folder, changes, dtype, quantization):
    config = make_config(changes, dtype)
    mx.random.seed(11)
    model = llama.Model(llama.ModelArgs.from_dict(config))
    target = getattr(mx, dtype)

    def randomise(value):
        # Norm weights near one, biases and matrices of everyday size.
        noise = mx.random.normal(value.shape)
        if value.ndim == 1:
            return (0.9 + 0.1 * noise).astype(target)
        return (noise / value.shape[-1] ** 0.5).astype(target)

    model.update(tree_map(randomise, model.parameters()))
    if quantization:
        group, bits = quantization
        nn.quantize(model, group_size=group, bits=bits)
        config["quantization"] = {"group_size": group, "bits": bits}
        config["quantization_config"] = config["quantization"]
    folder.mkdir()
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(
        str(folder / "model.safetensors"), weights, {"format": "mlx"}
    )
    (folder / "config.json").write_text(json.dumps(config, indent=2))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--only")
    options = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name, (changes, dtype, quantization) in CASES.items():
            if options.only and options.only != name:
                continue
            folder = Path(scratch) / name
            write_case(folder, changes, dtype, quantization)
            problem = check_checkpoint(options.binary, folder, 160)
            print(f"{name}: {problem or 'equal'}", flush=True)
            failures += problem is not None
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
