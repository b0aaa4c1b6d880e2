#!/usr/bin/env python3
"""Alternates `mlxx serve` with other servers on one model and writes a Markdown
table: seconds until ready, first token, tokens per second of all clients
together, time between tokens.

    compare.py --out FILE --model MODEL.gguf \\
        --peer llama-server=LLAMA_SERVER [--peer mlx-lm=PYTHON --mlx-model DIR]

Every client streams completions of 64 tokens one after the other. mlx-lm, which
needs minutes for a round, is met with one client only. Quiet machines only.
--one-server meets mlxx without peers, and starts it once for all numbers of
clients: where loading a model takes longer than measuring it.
"""

import argparse
import asyncio
import os
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from datetime import date
from pathlib import Path

from load import run_clients, words

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from this_machine import gpu, processor  # noqa: E402

TOKENS = 64
PREFIX_TOKENS = 1000


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def command_of(name, program, options, clients, port):
    rows = str(max(clients, 1))
    if name == "mlxx":
        return [program, "serve", "-m", "default=" + options.model, "--port", str(port),
                "--decode-concurrency", rows, *options.mlxx_option]
    if name == "llama-server":
        return [program, "-m", options.model, "--port", str(port), "-t",
                str(options.threads), "-tb", str(options.threads), "-np", rows,
                "-c", str(2048 * max(clients, 1)), "--no-webui"]
    if name == "mlx-lm":
        return [program, "-m", "mlx_lm.server", "--model", options.mlx_model,
                "--port", str(port)]
    raise ValueError(f"no way to start '{name}'")


class Server:
    """A started server; `ready` is how long it took to answer."""

    def __init__(self, name, program, options, clients):
        self.port = free_port()
        self.model = options.mlx_model if name == "mlx-lm" else "default"
        environment = os.environ | {"MLXX_THREADS": str(options.threads)}
        started = time.perf_counter()
        self.process = subprocess.Popen(
            command_of(name, program, options, clients, self.port),
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        path = "/ready" if name == "mlxx" else "/health"
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5)
                break
            except OSError:
                if self.process.poll() is not None:
                    raise RuntimeError(f"{name} ended with {self.process.returncode}")
                time.sleep(0.005)
        self.ready = time.perf_counter() - started

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def run(self, clients, requests, prompt):
        def body(number):
            return {
                "model": self.model,
                "prompt": prompt(number),
                "max_tokens": TOKENS,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }

        url = f"http://127.0.0.1:{self.port}/v1/completions"
        done, seconds = asyncio.run(run_clients(url, clients, requests, body))
        failed = [one.error for one in done if one.error]
        if failed:
            raise RuntimeError(f"{len(failed)} streams failed, the first with {failed[0]}")
        return done, seconds


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def measure_clients(server, options, clients, seed):
    """What the table shows of that many clients at once."""
    requests = options.requests if clients > 1 else 2 * options.requests
    done, seconds = server.run(
        clients, requests, lambda number: words(32, f"{seed} {clients} {number}")
    )
    gaps = [gap for one in done for gap in one.gaps()]
    return {
        "ready": server.ready,
        "total": sum(one.tokens for one in done) / seconds,
        "first": statistics.median(one.first() for one in done),
        "gap": statistics.median(gaps),
        "gap99": percentile(gaps, 0.99),
    }


def measure(name, program, options, clients, seed):
    """One round of one server."""
    with Server(name, program, options, clients) as server:
        server.run(1, 1, lambda number: words(32, f"warm {seed}"))
        figures = measure_clients(server, options, clients, seed)
        if clients == 1:
            prefix = words(PREFIX_TOKENS, "prefix")
            done, _ = server.run(
                1, 4, lambda number: f"{prefix} {words(16, f'{seed} tail {number}')}"
            )
            figures["prefix"] = statistics.median(one.first() for one in done[1:])
        return figures


def text_of(figures):
    parts = [
        f"{figures['total']:.0f} tok/s",
        f"first {1000 * figures['first']:.0f} ms",
        f"between {1000 * figures['gap']:.1f} ms (p99 {1000 * figures['gap99']:.1f})",
        f"ready {figures['ready']:.2f} s",
    ]
    if "prefix" in figures:
        parts.append(f"after a shared prefix {1000 * figures['prefix']:.0f} ms")
    return "; ".join(parts)


def measure_one_server(options):
    """Rows of mlxx alone, every number of clients at the same server."""
    with Server("mlxx", options.mlxx, options, max(options.clients)) as server:
        for clients in options.clients:
            # As many at once as then, or the first rounds would make kernels.
            server.run(clients, 1, lambda number: words(32, f"warm {clients} {number}"))
            rounds = [
                measure_clients(server, options, clients, turn)
                for turn in range(options.rounds)
            ]
            yield f"| {clients} | {text_of(middle(rounds))} | | | | |"


def middle(rounds):
    return {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mlxx", default="build/bin/mlxx")
    parser.add_argument("--mlxx-option", action="append", default=[])
    parser.add_argument("--model", required=True)
    parser.add_argument("--mlx-model", default="", help="a folder for mlx-lm")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PROGRAM")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--requests", type=int, default=3, help="of each client")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--one-server", action="store_true", help="mlxx alone, started once, on a GPU"
    )
    parser.add_argument("--note", default="")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    version = subprocess.run(
        [options.mlxx, "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    lines = [
        "# mlxx serve and other servers, in turns",
        "",
        f"{date.today()}, {gpu() if options.one_server else processor()}. {version}. "
        f"{options.note}".rstrip(),
        f"{options.rounds} rounds, {TOKENS} tokens a request, prompts of 32 tokens; "
        "medians. The ratio is of the tokens per second of all clients.",
        "",
        "| clients | mlxx | peer | the peer | ratio | first token |",
        "|---|---|---|---|---|---|",
    ]
    complete = True
    if options.one_server:
        for row in measure_one_server(options):
            lines.append(row)
            print(row, flush=True)
            options.out.write_text("\n".join(lines) + "\n", encoding="utf8")
        return
    for clients in options.clients:
        for entry in options.peer or ["="]:
            peer, program = entry.split("=", 1)
            if peer == "mlx-lm" and clients > 1:
                continue
            ours, theirs = [], []
            try:
                for turn in range(1 if peer == "mlx-lm" else options.rounds):
                    ours.append(measure("mlxx", options.mlxx, options, clients, turn))
                    if peer:
                        theirs.append(measure(peer, program, options, clients, turn))
            except (RuntimeError, OSError) as error:
                print(error, file=sys.stderr)
                complete = False
                continue
            mine = middle(ours)
            row = f"| {clients} | {text_of(mine)} | {peer} | "
            if peer:
                other = middle(theirs)
                row += (
                    f"{text_of(other)} | {mine['total'] / other['total']:.2f} "
                    f"| {mine['first'] / other['first']:.2f} |"
                )
            else:
                row += "| | |"
            lines.append(row)
            print(row, flush=True)
            options.out.write_text("\n".join(lines) + "\n", encoding="utf8")
    sys.exit(0 if complete else 1)


if __name__ == "__main__":
    main()
