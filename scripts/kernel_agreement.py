#!/usr/bin/env python3
"""How far mlxx's next-token distributions are from those of MLX's operations
alone (MLXX_KERNEL=fallback), on the same device.

    kernel_agreement.py [--mlxx PROGRAM] [--limit 2e-3] MODEL...

Each model reads a prompt and then single tokens; the mean over tokens of
KL(fallback || mlxx) must stay below the limit for either part; for mixtures of
experts the median below twice the limit, since a router sends a token with nearly
equal scores to another expert for a rounding, and other tokens then see that. MLX reads the
prompt too token by token: its products of many quantized rows on CUDA would
first be compiled, for minutes. Prints one line a model; exit code 1 if one is
above. Needs Python and NumPy.
"""

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

PROMPT, STEPS = 120, 40


def read_logits(path):
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    entry = json.loads(data[8:8 + size])["logits"]
    begin, end = (8 + size + at for at in entry["data_offsets"])
    if entry["dtype"] == "BF16":
        bits = np.frombuffer(data[begin:end], np.uint16).astype(np.uint32) << 16
        numbers = bits.view(np.float32)
    else:
        dtype = {"F16": np.float16, "F32": np.float32}[entry["dtype"]]
        numbers = np.frombuffer(data[begin:end], dtype)
    return numbers.reshape(-1, entry["shape"][-1]).astype(np.float64)


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def logits_of(mlxx, model, tokens, folder, prompt=PROMPT, **environment):
    output = folder / "logits.safetensors"
    command = [mlxx, "logits", "-m", model, "--tokens", str(tokens), "-o", str(output),
               "--prompt", str(prompt)]
    began = time.monotonic()
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return read_logits(output), time.monotonic() - began


def compare(mlxx, model, limit):
    config = json.loads((Path(model) / "config.json").read_text(encoding="utf8"))
    ids = np.random.default_rng(5).integers(3, config["vocab_size"], PROMPT + STEPS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokens = folder / "tokens.json"
        tokens.write_text(json.dumps(ids.tolist()), encoding="utf8")
        plain, plain_seconds = logits_of(
            mlxx, model, tokens, folder, prompt=1, MLXX_KERNEL="fallback")
        ours, seconds = logits_of(mlxx, model, tokens, folder)
    if ours.shape != plain.shape or not np.isfinite(ours).all():
        sys.exit(f"{model}: logits {ours.shape} instead of {plain.shape}, or not finite")
    p, q = log_softmax(plain), log_softmax(ours)
    divergence = (np.exp(p) * (p - q)).sum(-1)
    routes = any("experts" in key and (config[key] or 0) > 1 for key in config)
    average = np.median if routes else np.mean
    limit *= 2 if routes else 1
    # The last token of a prompt is a step.
    parts = average(divergence[:PROMPT - 1]), average(divergence[PROMPT - 1:])
    same = (p.argmax(-1) == q.argmax(-1)).mean()
    entropy = -(np.exp(p) * p).sum(-1).mean()
    good = all(0 <= part + 1e-9 < limit for part in parts)
    print(f"{Path(model).name:<16} {average.__name__} KL prompt {parts[0]:.1e}, "
          f"steps {parts[1]:.1e}, largest {divergence.max():.1e}; "
          f"same best token {same:.1%}; entropy {entropy:.2f}; "
          f"{seconds:.1f} s, fallback {plain_seconds:.1f} s{'' if good else '  TOO FAR'}",
          flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+")
    parser.add_argument("--mlxx", default="mlxx")
    parser.add_argument("--limit", type=float, default=2e-3)
    options = parser.parse_args()
    results = [compare(options.mlxx, model, options.limit) for model in options.models]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
