#!/usr/bin/env python3
"""Checks that a server gives an unloaded model's memory back, and reports it.

    unloaded_memory.py [--mlxx PROGRAM] [--port 18431] MODEL

Serves the model with --idle-unload, has it answer, waits until it is unloaded,
and has it answer again. /stats must say so, and where there is an NVIDIA GPU
its driver must have got the weights' memory back. Needs Python only.
"""

import argparse
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

IDLE_SECONDS = 2
# What kernels' code, plans and small pools may keep.
SLACK_MIB = 128


def fetch(port, path, body=None):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        json.dumps(body).encode() if body is not None else None,
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def device_mib():
    """In use on the GPU, of everybody; None without one."""
    try:
        text = subprocess.run(
            ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return int(text.split()[0])


def wait_for(what, condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"{what} did not happen within {seconds} seconds")
        time.sleep(0.3)


def check(port, model):
    name = Path(model).name

    def answers():
        try:
            fetch(port, "/health")
            return True
        except (urllib.error.URLError, ConnectionError):
            return False

    def memory():
        return fetch(port, "/stats")["memory"] | {"device_mib": device_mib()}

    def ask():
        fetch(port, "/v1/completions", {"model": name, "prompt": "hello", "max_tokens": 4})
        return memory()

    wait_for("the server's start", answers, 60)
    loaded = [ask()]
    unloaded = []
    for count in (1, 2):
        wait_for("unloading", lambda: memory()["model_unloads"] == count, IDLE_SECONDS + 30)
        unloaded.append(memory())
        if count == 1:
            loaded.append(ask())
    weights_mib = loaded[0]["weights"] >> 20
    for when, now in (("loaded", loaded[0]), ("unloaded", unloaded[0]),
                      ("loaded again", loaded[1]), ("unloaded again", unloaded[1])):
        print(f"{when:<15} weights {now['weights'] >> 20} MiB, active {now['active'] >> 20} MiB, "
              f"kept for new arrays {now['pooled'] >> 20} MiB, device {now['device_mib']} MiB")
    problems = []
    if weights_mib < 2 * SLACK_MIB:
        problems.append(f"{weights_mib} MiB of weights are too few to tell")
    for now in unloaded:
        if now["weights"] or now["models_loaded"]:
            problems.append("weights of an unloaded model are reported")
        if now["active"] + now["pooled"] > SLACK_MIB << 20:
            problems.append(f"{now['active']} + {now['pooled']} bytes are still held")
        if now["device_mib"] is not None:
            back = loaded[0]["device_mib"] - now["device_mib"]
            if back < weights_mib - SLACK_MIB:
                problems.append(f"the driver got {back} MiB back of {weights_mib}")
    return problems


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--mlxx", default="mlxx")
    parser.add_argument("--port", type=int, default=18431)
    options = parser.parse_args()
    server = subprocess.Popen(
        [options.mlxx, "serve", "-m", options.model, "--port", str(options.port),
         "--idle-unload", str(IDLE_SECONDS / 60)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        problems = check(options.port, options.model)
    finally:
        server.terminate()
        server.wait()
    for problem in dict.fromkeys(problems):
        print("WRONG:", problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
