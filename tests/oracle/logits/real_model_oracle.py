"""Greedy answers of the default model: mlxx on the GGUF against mlx-lm on the
same weights. With the plain kernels all tokens and every bit of the logits are
equal; the fast kernels agree on the first tokens.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import mlx.core as mx
import numpy as np
from gguf_as_mlx import tokenizer_of, write_mlx_checkpoint
from logits_comparison import compare
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

GREEDY = 32
FAST_AGREES = 16
# How far the norm of the logits may be off, relative, by the form of
# activations.
BOUNDS = {"fp32": 1e-4, "int16": 2e-3}
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Once upon a time, in a village by the sea,",
    "Water boils at a temperature of",
    "Dear customer,\n\nThank you for your order of 12 ",
]


def find_gguf():
    named = os.environ.get("MLXX_TEST_GGUF")
    if named:
        return Path(named)
    home = os.environ.get("MLXX_HOME", Path.home() / ".cache" / "mlxx")
    found = sorted(Path(home).rglob(NAME))
    if not found:
        sys.exit(f"no {NAME} under {home}: run 'mlxx pull smollm2' first")
    return found[0]


def run_mlxx(binary, gguf, folder, ids, greedy, **settings):
    (folder / "ids.json").write_text(json.dumps(ids))
    # What the machine's owner set is not what is compared.
    environment = dict(os.environ)
    for name in ("MLXX_COMPILE", "MLXX_BLAS"):
        environment.pop(name, None)
    environment.update(settings)
    out = folder / "ours.safetensors"
    done = subprocess.run(
        [binary, "logits", "-m", gguf, "--tokens", folder / "ids.json"]
        + ["--greedy", str(greedy), "-o", out],
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        sys.exit(f"mlxx logits failed: {done.stderr.strip()}")
    arrays = mx.load(str(out))
    return arrays["logits"], arrays["tokens"].tolist()[len(ids) :]


def run_mlx_lm(model, ids, greedy):
    cache = make_prompt_cache(model)
    rows = []

    def step(tokens):
        rows.append(model(mx.array(tokens)[None], cache=cache)[0])
        mx.eval(rows[-1], [c.state for c in cache])
        return mx.argmax(rows[-1][-1]).item()

    if len(ids) > 1:
        step(ids[:-1])
    answer = [step(ids[-1:])]
    while len(answer) < greedy:
        answer.append(step(answer[-1:]))
    return mx.concatenate(rows, axis=0), answer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    options = parser.parse_args()
    gguf = find_gguf()
    failures = 0
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        meta = write_mlx_checkpoint(gguf, scratch / "mlx")
        tokenizer = tokenizer_of(meta)
        model, _ = load_model(scratch / "mlx")
        for prompt in PROMPTS:
            ids = tokenizer.encode(prompt).ids
            theirs, answer = run_mlx_lm(model, ids, GREEDY)
            ours, same = run_mlxx(
                options.binary,
                gguf,
                scratch,
                ids,
                GREEDY,
                MLXX_KERNEL="fallback",
                MLXX_BLAS="mlx",
            )
            problem = compare(ours, theirs)
            if same != answer:
                problem = f"tokens {same}, mlx-lm's are {answer}"
            errors = []
            for form, bound in BOUNDS.items():
                fast, first = run_mlxx(
                    options.binary,
                    gguf,
                    scratch,
                    ids,
                    FAST_AGREES,
                    MLXX_KERNEL="auto",
                    MLXX_BLAS="",
                    MLXX_CPU_ACTIVATIONS=form,
                )
                if first != answer[:FAST_AGREES]:
                    problem = f"{form} tokens {first}, mlx-lm's are {answer}"
                prompt_rows = slice(0, len(ids))
                gap = np.array(fast[prompt_rows]) - np.array(theirs[prompt_rows])
                error = np.linalg.norm(gap) / np.linalg.norm(
                    np.array(theirs[prompt_rows])
                )
                errors.append(f"{form} {error:.1g}")
                if not error < bound:
                    problem = f"{form} logits are off by {error:.2g}"
            text = tokenizer.decode(answer)
            print(f"{prompt!r}: {problem or 'equal'} {text!r} ({', '.join(errors)})")
            failures += problem is not None
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
