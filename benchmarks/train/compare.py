#!/usr/bin/env python3
"""Trains adapters on one model with mlxx and with mlx-lm, PEFT or both in turns,
in the same run, and prints tokens per second of each.

    compare.py --model FOLDER --mlxx build/bin/mlxx
               [--python VENV/bin/python] [--peft VENV/bin/python]
               [--tokens 256] [--iters 4] [--rounds 2] [--limit 120]
               [--mlxx-options "--memory-budget 22GB"]

--python has mlx-lm, --peft has torch, transformers and peft (train_peft.py); who
is not given is left out. The samples are random words, all longer than --tokens;
batches of one sample, LoRA of rank 8 on all linear layers. Of each run the fastest iteration counts,
not the first: it has what is compiled and loaded once. A program that has not
come so far after --limit seconds is said to be below what that would be.
"""

import argparse
import json
import os
import random
import re
import subprocess
import shlex
import tempfile
from pathlib import Path


def write_samples(folder, tokens):
    words = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    for name in ("train", "valid"):
        with open(folder / f"{name}.jsonl", "w", encoding="utf8") as file:
            for _ in range(8):
                text = " ".join("".join(words.choices(letters, k=5)) for _ in range(tokens))
                file.write(json.dumps({"text": text}) + "\n")


def speed_of(command, pattern, limit):
    """The fastest iteration but the first, and whether there was one."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit,
                              env=os.environ | {"PYTHONUNBUFFERED": "1"})
        output = done.stdout + done.stderr
    except subprocess.TimeoutExpired as error:
        output = b"".join(filter(None, (error.stdout, error.stderr))).decode()
    output = re.sub(r"\x1b\[[0-9;]*m", "", output)
    speeds = [float(number.replace(",", "")) for number in re.findall(pattern, output)]
    return max(speeds[1:], default=None)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--mlxx", default="build/bin/mlxx")
    parser.add_argument("--python")
    parser.add_argument("--peft")
    parser.add_argument("--mlxx-options", default="")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--iters", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--limit", type=float, default=120)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_samples(folder, options.tokens)
        common = ["--data", folder, "--max-seq-length", options.tokens, "--batch-size", 1,
                  "--iters", options.iters, "--num-layers", -1, "--steps-per-report", 1,
                  "--adapter-path", folder / "adapters"]
        commands = {
            "mlxx": ([options.mlxx, "train", "-m", options.model, "--overwrite", *common,
                      *shlex.split(options.mlxx_options)], r"([\d.,]+) tok/s"),
        }
        if options.python:
            commands["mlx-lm"] = (
                [options.python, "-m", "mlx_lm", "lora", "--model", options.model, "--train",
                 "--val-batches", 1, *common],
                r"(?m)^\s+\d+\s+[\d.]+(?: [^\d\s])?\s+([\d.,]+)")
        if options.peft:
            script = Path(__file__).with_name("train_peft.py")
            commands["PEFT"] = (
                [options.peft, script, "--model", options.model, "--tokens", options.tokens,
                 "--iters", options.iters, "--rank", 8], r"([\d.,]+) tok/s")
        for round_ in range(options.rounds):
            for program, (command, pattern) in commands.items():
                speed = speed_of([str(part) for part in command], pattern, options.limit)
                below = 2 * options.tokens / options.limit
                said = f"{speed:.1f} tok/s" if speed else f"below {below:.1f} tok/s"
                print(f"round {round_ + 1}: {program} {said}", flush=True)


if __name__ == "__main__":
    main()
