"""Compares mlxx's logits with mlx-lm's, bit for bit, where weights were packed
by another program, or in forms that config.json does not name.
"""

import argparse
import json
import struct
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import mlx.core as mx

from architecture_case import TINY, Case
from architecture_oracle import vocabulary, write_checkpoint
from logits_comparison import check_checkpoint
from moe_architectures import MIXTURES

LLAMA = Case(TINY, config_class="LlamaConfig", dtype="float16")
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def is_projection(name, value):
    return name.endswith("_proj.weight") and value.ndim == 2


def awq_words(numbers):
    """[rows, 8 n] of four bits -> int32 [rows, n]."""
    groups = numbers.reshape(numbers.shape[0], -1, 8)[..., mx.array(AWQ_ORDER)]
    shifts = mx.arange(8, dtype=mx.uint32) * 4
    return (groups << shifts).sum(axis=-1).astype(mx.uint32).view(mx.int32)


def as_awq(weights, config):
    """Random numbers, zero points and scales in AutoAWQ's packing."""
    group = 32
    result = {}
    for name, value in weights.items():
        if not is_projection(name, value):
            result[name] = value
            continue
        out, inputs = value.shape
        module = name.removesuffix(".weight")
        q = mx.random.randint(0, 16, (inputs, out)).astype(mx.uint32)
        zeros = mx.random.randint(4, 12, (inputs // group, out))
        scales = mx.random.uniform(0.005, 0.02, (inputs // group, out))
        result[module + ".qweight"] = awq_words(q)
        result[module + ".qzeros"] = awq_words(zeros.astype(mx.uint32))
        result[module + ".scales"] = scales.astype(mx.float16)
    config["quantization_config"] = {
        "quant_method": "awq",
        "bits": 4,
        "group_size": group,
        "version": "gemm",
        "zero_point": True,
    }
    return result


def in_several_forms(weights, config):
    """Every layer's projections in another form, config.json naming one."""
    forms = [(64, 8, "affine"), (32, 4, "affine"), (64, 2, "affine")]
    forms += [(16, 4, "nvfp4"), (32, 4, "mxfp4"), (32, 8, "mxfp8")]
    result = {}
    names = sorted(n for n in weights if is_projection(n, weights[n]))
    for name, value in weights.items():
        if name not in names:
            result[name] = value
            continue
        module = name.removesuffix(".weight")
        group, bits, mode = forms[names.index(name) % len(forms)]
        parts = mx.quantize(value, group, bits, mode=mode)
        for part, array in zip(("weight", "scales", "biases"), parts):
            result[f"{module}.{part}"] = array
    config["quantization"] = {"group_size": 64, "bits": 4}
    return result


def as_float8(weights, config):
    """Blocks of 128 x 128 with scales of their own."""
    result = {}
    for name, value in weights.items():
        # MLX multiplies routed experts on the CPU in float32 only.
        if not is_projection(name, value) or ".experts." in name:
            result[name] = value
            continue
        blocks = [-(-n // 128) for n in value.shape]
        result[name] = mx.to_fp8(value * 8)
        result[name + "_scale_inv"] = mx.random.uniform(0.1, 0.15, blocks)
    config["quantization_config"] = {
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
    }
    return result


def declare_float8(path):
    """mx.save_safetensors can only call eight-bit floats bytes."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    for name in header:
        if name + "_scale_inv" in header:
            header[name]["dtype"] = "F8_E4M3"
    text = json.dumps(header).encode()
    path.write_bytes(
        struct.pack("<Q", len(text)) + text + content[8 + length :]
    )


def published_form(case, pack):
    """`pack` after what the case itself does to MLX's names."""

    def raw(weights, config):
        if case.raw:
            weights = case.raw(weights, config)
        return pack(weights, config)

    return replace(case, raw=raw, dtype="float32", quantization=None)


def raw_case(architecture):
    return next(c for c in MIXTURES[architecture].values() if c.raw)


CASES = {
    "awq": ("llama", replace(LLAMA, raw=as_awq)),
    "forms": ("llama", replace(LLAMA, raw=in_several_forms)),
    "float8": (
        "deepseek_v3",
        published_form(raw_case("deepseek_v3"), as_float8),
    ),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--only", nargs="*", help="these cases")
    options = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.only or CASES:
            architecture, case = CASES[name]
            folder = Path(scratch) / name
            config = write_checkpoint(folder, case, architecture)
            if name == "float8":
                declare_float8(folder / "model.safetensors")
            try:
                problem = check_checkpoint(
                    options.binary, folder, vocabulary(config)
                )
            except RuntimeError as error:
                problem = str(error)
            print(f"{name}: {problem or 'same bits'}", flush=True)
            failures += problem is not None
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
