#!/usr/bin/env python3
"""Alternates mlxx with other programs on a list of models and situations and
writes one Markdown table: both speeds, the ratio of the rounds as median, least
and most, and our share of the memory bandwidth.

    compare.py --out FILE --peer llama.cpp=LLAMA_BENCH \
        --peer ik_llama.cpp=ITS_LLAMA_BENCH --peer mlx-lm=PYTHON \
        Q4_1=MODEL.gguf Q4_0=MODEL.gguf ...

Every peer is measured with prompts and decoding: on every model, mlx-lm, which
takes minutes for a round, on the first one only. On the first model llama.cpp
is also met with one thread, after a long context, with several sequences, and
with one core taken by another program; --quick leaves these out. --gpu meets
every peer that reads the model's format on every model: one sequence, a long
prompt, several sequences.

Quiet machines only: what else runs shows in every figure. The file is written
after every row; a peer that fails costs its row, and the exit code is 1.
"""

import argparse
import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from this_machine import gpu, processor  # noqa: E402

# Name, arguments of `mlxx bench`, environment.
EVERYWHERE = [
    ("int16", ["-p", "512", "-n", "128"], {}),
    ("int8", ["-p", "512", "-n", "128", "--cpu-activations", "int8"], {}),
]
FIRST_ONLY = [
    ("fp32", ["-p", "512", "-n", "128", "--cpu-activations", "fp32"], {}),
    ("one thread", ["-p", "512", "-n", "64"], {"MLXX_THREADS": "1"}),
    ("after 4,096 tokens", ["-p", "256", "-n", "64", "-d", "4096"], {}),
]
SEQUENCES = [
    (
        f"{count} sequences, {form}",
        ["-p", "0", "-n", "64", "--parallel", count, "--cpu-activations", form],
        {},
    )
    for count in ("8", "32")
    for form in ("int16", "int8")
]
# With --gpu, of every model and peer.
ON_A_GPU = [
    ("one sequence", ["-p", "512", "-n", "128"], {}),
    ("a long prompt", ["-p", "2048", "-n", "0"], {}),
    ("8 sequences", ["-p", "0", "-n", "64", "--parallel", "8"], {}),
    ("32 sequences", ["-p", "0", "-n", "64", "--parallel", "32"], {}),
]
BUSY = ("one core taken", ["-p", "512", "-n", "64"], {})


def run(command, environment=None):
    done = subprocess.run(
        command,
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def measure(options, peer, model, situation):
    _, arguments, environment = situation
    # One round of mlx-lm is a warm-up and a measurement of minutes.
    rounds = 1 if peer.startswith("mlx-lm=") else options.rounds
    command = [options.mlxx, "bench", "-m", model, "--json", "-r", str(rounds)]
    return run(command + arguments + ["--peer", peer], environment)


def rows(name, situation, report):
    peer = report["peer"]
    for what in ("prompt", "decode"):
        if what not in peer:
            continue
        theirs = peer[what]
        bandwidth = ""
        if what == "decode":
            bandwidth = (
                f"{report['gb_s']:.1f} GB/s, {report['percent_of_peak']:.0f} %"
                f" of {report['peak_gb_s']:.1f}"
            )
        yield (
            f"| {name} | {situation} | {what} | {report[what + '_tok_s']:.0f} "
            f"| {peer['name']} | {theirs['tok_s']:.0f} "
            f"| {theirs['ratio']:.2f} "
            f"({theirs['ratio_min']:.2f} to {theirs['ratio_max']:.2f}) "
            f"| {bandwidth} |"
        )


class Table:
    def __init__(self, path, lines):
        self.path = path
        self.lines = lines
        self.complete = True

    def add(self, make):
        """The rows that make() gives; where it fails, why."""
        try:
            rows = list(make())
        except (RuntimeError, ValueError, KeyError) as error:
            print(error, file=sys.stderr)
            rows = []
            self.complete = False
        self.lines += rows
        print("\n".join(rows), flush=True)
        self.path.write_text("\n".join(self.lines) + "\n", encoding="utf8")


def measure_models(options, table):
    for index, entry in enumerate(options.models):
        name, model = entry.split("=", 1)
        first = index == 0
        for peer in options.peer:
            is_gguf = model.endswith(".gguf")
            if options.gpu and is_gguf == peer.startswith("mlx-lm="):
                continue
            situations = list(ON_A_GPU if options.gpu else EVERYWHERE)
            if peer.startswith("mlx-lm=") and not first and not options.gpu:
                continue
            is_llama = peer.startswith("llama.cpp=")
            if is_llama and first and not options.quick and not options.gpu:
                situations += FIRST_ONLY + SEQUENCES
            for situation in situations:
                table.add(
                    lambda: rows(
                        name,
                        situation[0],
                        measure(options, peer, model, situation),
                    )
                )
            if is_llama and first and not options.quick and not options.gpu:
                busy = subprocess.Popen(
                    [sys.executable, "-c", "while True: pass"]
                )
                try:
                    table.add(
                        lambda: rows(
                            name, BUSY[0], measure(options, peer, model, BUSY)
                        )
                    )
                finally:
                    busy.kill()
                    busy.wait()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mlxx", default="build/bin/mlxx")
    parser.add_argument(
        "--peer", action="append", required=True, metavar="NAME=PROGRAM"
    )
    parser.add_argument("--note", default="", help="versions of the peers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("models", nargs="+", metavar="NAME=FILE")
    options = parser.parse_args()
    for entry in options.models + options.peer:
        if "=" not in entry:
            parser.error(f"'{entry}' is not NAME=FILE")
    version = subprocess.run(
        [options.mlxx, "--version"], capture_output=True, text=True
    ).stdout.strip()
    table = Table(
        options.out,
        [
            "# mlxx and other programs, in turns",
            "",
            f"{date.today()}, {gpu() if options.gpu else processor()}. {version}. "
            f"{options.note}".rstrip(),
            f"{options.rounds} rounds each (mlx-lm one); tokens per second; the "
            "ratio is the median of the rounds, with the least and the most.",
            "",
            "| model | situation | what | mlxx | peer | its speed | ratio "
            "| memory |",
            "|---|---|---|---|---|---|---|---|",
        ],
    )
    measure_models(options, table)
    sys.exit(0 if table.complete else 1)


if __name__ == "__main__":
    main()
