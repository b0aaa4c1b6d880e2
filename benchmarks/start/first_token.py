#!/usr/bin/env python3
"""Starts `mlxx generate` again and again and prints how long the first token
takes from the start of the process, as median, least and most, with the phases
that --json reports.

    first_token.py --mlxx build/bin/mlxx --runs 15 \
        --peer llama.cpp=LLAMA_BENCH MODEL [MODEL ...]

The first token is timed from outside: from before the process is started until
the first byte of the answer can be read. `whole` is until the process has
ended. The phases come from runs of their own with --json. The peer is
llama-bench, which has no first token to see: it is given a prompt of as many
tokens and no warm-up, and counts until it has ended, so compare it with
`whole`. All take turns. The files are read once before the first run, so that
all of them are in memory.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

# 20 tokens for SmolLM2's tokenizer, and a text that goes on.
PROMPT = (
    "The sky is blue at noon and red in the evening because the light of the sun "
    "has to pass"
)
PHASES = [
    "start", "tokenizer", "weights", "load", "prompt", "prefill", "first_token",
]


def read_through(path):
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    for file in files:
        if file.is_file():
            with open(file, "rb") as content:
                while content.read(1 << 20):
                    pass


def milliseconds_since(start):
    return 1000 * (time.perf_counter() - start)


def run_mlxx(options, model, environment):
    """Milliseconds to the first byte and to the end."""
    command = [
        options.mlxx, "generate", "-m", model, "--raw", "--quiet",
        "--max-tokens", "1", PROMPT,
    ]
    start = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        byte = os.read(process.stdout.fileno(), 1)
        first = milliseconds_since(start)
        process.stdout.read()
        message = process.stderr.read()
        process.wait()
        whole = milliseconds_since(start)
    if not byte or process.returncode != 0:
        sys.exit(f"{' '.join(command)}: {message.decode().strip()}")
    return first, whole


def run_json(options, model, environment):
    command = [
        options.mlxx, "generate", "-m", model, "--raw", "--json",
        "--max-tokens", "1", PROMPT,
    ]
    done = subprocess.run(
        command, capture_output=True, env=environment, check=True
    )
    return json.loads(done.stdout)


def run_peer(path, model, tokens):
    command = [
        path, "-m", model, "-p", str(tokens), "-n", "0", "-r", "1",
        "--no-warmup", "-t", str(len(os.sched_getaffinity(0))), "-o", "json",
    ]
    start = time.perf_counter()
    subprocess.run(command, capture_output=True, check=True)
    return milliseconds_since(start)


def show(values):
    return (
        f"{statistics.median(values):.0f} ({min(values):.0f} to "
        f"{max(values):.0f})"
    )


def measure(options, name, model, environment):
    first, whole, reports, peer = [], [], [], []
    tokens = run_json(options, model, environment)["prompt_tokens"]
    for _ in range(options.runs):
        a, b = run_mlxx(options, model, environment)
        first.append(a)
        whole.append(b)
        reports.append(run_json(options, model, environment)["seconds"])
        if options.peer and Path(model).is_file():
            peer.append(run_peer(options.peer, model, tokens))
    phases = ", ".join(
        f"{phase} {1000 * statistics.median(r[phase] for r in reports):.0f}"
        for phase in PHASES
    )
    return (
        f"| {name} | {tokens} | {show(first)} | {show(whole)} | "
        f"{show(peer) if peer else ''} | {phases} |"
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--mlxx", default="build/bin/mlxx")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--peer", metavar="llama.cpp=LLAMA_BENCH")
    options = parser.parse_args()
    if options.runs < 1:
        parser.error("--runs must be at least 1")
    if options.peer:
        peer, _, path = options.peer.partition("=")
        if peer != "llama.cpp" or not path:
            parser.error("--peer is llama.cpp=LLAMA_BENCH")
        options.peer = path

    print("| model | tokens | first token, ms | whole, ms | llama-bench, ms | "
          "phases, ms |")
    print("|---|---|---|---|---|---|")
    cached = {**os.environ, "MLXX_TOKENIZER_CACHE": "1"}
    uncached = {**os.environ, "MLXX_TOKENIZER_CACHE": "0"}
    for model in options.models:
        path = Path(model)
        if path.exists():
            read_through(path)
        name = path.name
        # The first run of measure() fills the cache and is not counted.
        print(measure(options, name, model, cached), flush=True)
        print(
            measure(options, f"{name}, no tokenizer cache", model, uncached),
            flush=True,
        )


if __name__ == "__main__":
    main()
