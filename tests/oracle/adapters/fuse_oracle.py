"""Fuses adapters that mlx-lm's own layers give with `mlxx fuse`, loads what it
wrote in mlx-lm, and compares the logits there with the binary's for the same
folder, bit for bit, and with mlx-lm's for the base and the adapter.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import mlx.core as mx
from mlx_lm.tuner.utils import load_adapters
from mlx_lm.utils import load_model
from tokenizers import Tokenizer, models, pre_tokenizers

sys.path.insert(0, str(Path(__file__).parent.parent / "logits"))
from adapter_oracle import ALL, write_adapter  # noqa: E402
from logits_comparison import check_checkpoint  # noqa: E402
from logits_oracle import write_case  # noqa: E402

# name -> dtype, quantization, kind, options of fuse, the largest difference
# from the adapter on the fly, relative to all logits: half precision and a new
# quantization round weights once more.
CASES = {
    "lora-fp32": ("float32", None, "lora", [], 1e-5),
    "dora-fp32": ("float32", None, "dora", [], 1e-5),
    "lora-bf16": ("bfloat16", None, "lora", [], 3e-2),
    "lora-q4-dequantized": (
        "float32",
        (64, 4),
        "lora",
        ["--de-quantize"],
        1e-3,
    ),
    "dora-q4-dequantized": ("float32", (64, 4), "dora", ["--dequantize"], 1e-3),
    "lora-q4": ("float32", (64, 4), "lora", [], 0.5),
    "lora-q4-to-8": ("float32", (64, 4), "lora", ["--bits", "8"], 3e-2),
}


def write_tokenizer(folder):
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"unk_token": "a"}')
    (folder / "special_tokens_map.json").write_text('{"unk_token": "a"}')


def logits(folder, adapter=None):
    model, _ = load_model(folder)
    if adapter:
        model = load_adapters(model, str(adapter))
        model.eval()
    tokens = mx.array([[(i * 11 + 5) % 160 for i in range(24)]])
    return model(tokens).astype(mx.float32)


def difference(a, b):
    return (mx.linalg.norm(a - b) / mx.linalg.norm(b)).item()


def check(binary, root, case):
    dtype, quantization, kind, options, bound = case
    base = root / "base"
    write_case(base, {}, dtype, quantization)
    write_tokenizer(base)
    adapter = root / "adapter"
    write_adapter(adapter, base, kind, 8, ALL)
    fused = root / "fused"
    done = subprocess.run(
        [binary, "fuse", "--json", "--model", base, "--adapter-path", adapter]
        + ["--save-path", fused, *options],
        capture_output=True,
        text=True,
        env={**os.environ, "MLXX_KERNEL": "fallback"},
    )
    if done.returncode:
        return done.stderr.strip()
    report = json.loads(done.stdout)
    config = json.loads((fused / "config.json").read_text())
    dense = quantization is None or "quantize" in "".join(options)
    if ("quantization" in config) == dense:
        return "config.json does not say what was written"
    for name in ("tokenizer.json", "special_tokens_map.json"):
        if (fused / name).read_bytes() != (base / name).read_bytes():
            return f"{name} is another one"
    expected = logits(base, adapter)
    change = difference(logits(base), expected)
    lost = difference(logits(fused), expected)
    print(
        f"  {report['survives']:.3f} of the change survives, error"
        f" {report['error']:.3f}; logits differ by {lost:.1e}, without by"
        f" {change:.1e}"
    )
    if lost > bound or lost > 0.6 * change:
        return f"logits differ by {lost:.1e} from the adapter on the fly"
    return check_checkpoint(binary, fused, 160)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--only")
    options = parser.parse_args()
    failures = 0
    for name, case in CASES.items():
        if options.only and options.only != name:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            problem = check(options.binary, Path(scratch), case)
        print(f"{name}: {problem or 'equal'}", flush=True)
        failures += problem is not None
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
