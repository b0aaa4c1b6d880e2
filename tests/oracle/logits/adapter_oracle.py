"""Compares logits with LoRA and DoRA adapters with mlx-lm's, bit for bit, on
tiny random llamas, with adapter files that mlx-lm's own layers give.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.tuner.utils import linear_to_lora_layers
from mlx_lm.utils import load_model

from logits_comparison import check_checkpoint
from logits_oracle import write_case

ALL = [
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
]
BIASES = {"attention_bias": True, "mlp_bias": True}

# name -> (changes of the config, dtype, quantization, kind, rank, keys)
CASES = {
    "lora-fp32": ({}, "float32", None, "lora", 8, ALL),
    "lora-fp32-some": ({}, "float32", None, "lora", 5, ALL[:1] + ALL[-1:]),
    "lora-bf16": ({}, "bfloat16", None, "lora", 8, ALL),
    "lora-biases-fp32": (BIASES, "float32", None, "lora", 4, ALL),
    "lora-q4-fp32": ({}, "float32", (64, 4), "lora", 8, ALL),
    "lora-q4-bf16": ({}, "bfloat16", (64, 4), "lora", 16, ALL),
    "dora-fp32": ({}, "float32", None, "dora", 8, ALL),
    "dora-biases-fp32": (BIASES, "float32", None, "dora", 8, ALL),
    "dora-q4-fp32": ({}, "float32", (64, 4), "dora", 8, ALL),
}


def write_adapter(folder, model_folder, kind, rank, keys):
    config = {
        "fine_tune_type": kind,
        "num_layers": 1,
        "lora_parameters": {
            "rank": rank,
            "scale": 7.5,
            "dropout": 0.1,
            "keys": keys,
        },
    }
    model, _ = load_model(model_folder)
    model.freeze()
    linear_to_lora_layers(
        model,
        config["num_layers"],
        config["lora_parameters"],
        use_dora=kind == "dora",
    )
    weights = {}
    mx.random.seed(5)
    for name, value in tree_flatten(model.trainable_parameters()):
        leaf = name.rsplit(".", 1)[-1]
        if leaf in ("lora_a", "lora_b"):
            weights[name] = 0.1 * mx.random.normal(value.shape)
        elif leaf == "m":
            weights[name] = value * (1 + 0.2 * mx.random.normal(value.shape))
    assert weights
    folder.mkdir()
    mx.save_safetensors(str(folder / "adapters.safetensors"), weights)
    (folder / "adapter_config.json").write_text(json.dumps(config))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--only")
    options = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name, case in CASES.items():
            if options.only and options.only != name:
                continue
            changes, dtype, quantization, kind, rank, keys = case
            folder = Path(scratch) / name
            write_case(folder, changes, dtype, quantization)
            adapter = Path(scratch) / f"{name}-adapter"
            write_adapter(adapter, folder, kind, rank, keys)
            problem = check_checkpoint(
                options.binary, folder, 160, adapter=adapter
            )
            without = check_checkpoint(options.binary, folder, 160)
            print(f"{name}: {problem or without or 'equal'}", flush=True)
            failures += (problem or without) is not None
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
