#!/usr/bin/env python3
"""Alternates mlxx with llama.cpp on a list of models and situations and writes
one Markdown table: both speeds, the ratio of the rounds as median, least and
most, and our share of the memory bandwidth.

    compare.py --peer-path LLAMA_BENCH --out FILE Q4_1=MODEL.gguf ...

Quiet machines only: what else runs shows in every figure. --quick leaves out
the situations that take long.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import date
from pathlib import Path

# Name, arguments of `mlxx bench`, environment; the first of each model's list
# is measured for every model, the others for the first model.
EVERYWHERE = [
    ("int16", ["-p", "512", "-n", "128"], {}),
    ("int8", ["-p", "512", "-n", "128", "--cpu-activations", "int8"], {}),
]
FIRST_ONLY = [
    ("fp32", ["-p", "512", "-n", "128", "--cpu-activations", "fp32"], {}),
    ("one thread", ["-p", "512", "-n", "64"], {"MLXX_THREADS": "1"}),
    ("after 4,096 tokens", ["-p", "256", "-n", "64", "-d", "4096"], {}),
    ("8 sequences", ["-p", "0", "-n", "64", "--parallel", "8"], {}),
    ("32 sequences", ["-p", "0", "-n", "64", "--parallel", "32"], {}),
]
BUSY = ("one core taken", ["-p", "512", "-n", "64"], {})


def processor():
    for line in open("/proc/cpuinfo", encoding="utf8"):
        if line.startswith("model name"):
            return f"{line.split(':', 1)[1].strip()}, {os.cpu_count()} threads"
    return platform.processor()


def measure(options, model, arguments, environment):
    command = [options.mlxx, "bench", "-m", str(model), "--json"]
    command += arguments + ["-r", str(options.rounds)]
    command += ["--peer", f"{options.peer}={options.peer_path}"]
    done = subprocess.run(
        command,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


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
            f"| {theirs['tok_s']:.0f} | {theirs['ratio']:.2f} "
            f"({theirs['ratio_min']:.2f} to {theirs['ratio_max']:.2f}) "
            f"| {bandwidth} |"
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mlxx", default="build/bin/mlxx")
    parser.add_argument("--peer", default="llama.cpp")
    parser.add_argument("--peer-path", required=True)
    parser.add_argument("--peer-version", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("models", nargs="+", metavar="NAME=FILE")
    options = parser.parse_args()
    version = subprocess.run(
        [options.mlxx, "--version"], capture_output=True, text=True
    ).stdout.strip()
    lines = [
        f"# mlxx and {options.peer}, in turns",
        "",
        f"{date.today()}, {processor()}. {version}. "
        f"{options.peer} {options.peer_version}".rstrip() + ".",
        f"{options.rounds} rounds each; tokens per second; the ratio is the "
        "median of the rounds, with the least and the most.",
        "",
        f"| model | situation | what | mlxx | {options.peer} | ratio | memory |",
        "|---|---|---|---|---|---|---|",
    ]
    for index, entry in enumerate(options.models):
        name, file = entry.split("=", 1)
        situations = list(EVERYWHERE)
        if index == 0 and not options.quick:
            situations += FIRST_ONLY
        for situation, arguments, environment in situations:
            report = measure(options, file, arguments, environment)
            lines += rows(name, situation, report)
            print("\n".join(lines[-2:]), flush=True)
        if index == 0 and not options.quick:
            busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            try:
                report = measure(options, file, *BUSY[1:])
            finally:
                busy.kill()
            lines += rows(name, BUSY[0], report)
            print("\n".join(lines[-2:]), flush=True)
    options.out.write_text("\n".join(lines) + "\n", encoding="utf8")


if __name__ == "__main__":
    main()
