#!/usr/bin/env python3
"""Runs the commands of the tutorial in docs/training.md, as they stand there, and
checks what it promises: the loss falls, requests that were held out are
answered right, by the adapter, by the fused model and by the server.

    training_page_test.py MLXX PAGE

The default model is MLXX_TEST_GGUF, or what `mlxx pull smollm2` put under
MLXX_HOME; without either the test is skipped (77).
"""
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

SKIPPED = 77


def blocks_of(page):
    text = page.read_text(encoding="utf-8")
    tutorial = re.search(r"^## Tutorial\n(.*?)(?=^## )", text, re.M | re.S).group(1)
    return re.findall(r"^```sh\n(.*?)^```", tutorial, re.M | re.S)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Shell:
    def __init__(self, mlxx, folder, model):
        self.folder, self.model, self.port = folder, model, free_port()
        self.server = None
        self.environment = {**os.environ, "PATH": f"{mlxx.parent}:{os.environ['PATH']}"}

    def run(self, block):
        """What a block prints, standard error too."""
        block = re.sub(r"(?<=-m )smollm2\b", self.model, block).replace("8080", str(self.port))
        if block.startswith("mlxx serve"):
            return self.serve(block)
        started = time.monotonic()
        done = subprocess.run(["bash", "-e", "-c", block], cwd=self.folder, env=self.environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        print(f"$ {block}{done.stdout}({time.monotonic() - started:.1f} s)\n", flush=True)
        if done.returncode != 0:
            raise SystemExit(f"exit code {done.returncode}")
        return done.stdout

    def serve(self, block):
        print(f"$ {block}", flush=True)
        self.server = subprocess.Popen(["bash", "-c", "exec " + block], cwd=self.folder,
                                       env=self.environment)
        for _ in range(600):
            if self.server.poll() is not None:
                raise SystemExit("the server ended")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5)
                return ""
            except OSError:
                time.sleep(0.1)
        raise SystemExit("the server does not answer")

    def stop(self):
        if self.server:
            self.server.terminate()
            self.server.wait(60)


def check(holds, what):
    if not holds:
        raise SystemExit(f"not so: {what}")


def accuracy(output):
    return float(re.search(r"^acc +([\d.]+) %", output, re.M).group(1))


def check_loss(folder):
    lines = [json.loads(line) for line in (folder / "adapters/metrics.jsonl").open()]
    losses = [line["validation_loss"] for line in lines if "validation_loss" in line]
    check(len(losses) >= 2, "the loss on valid.jsonl was taken before and after")
    check(losses[-1] < losses[0] / 10, f"the loss fell: {losses}")
    check((folder / "adapters/loss.svg").read_text().startswith("<svg"), "the curves are drawn")


def check_answers(outputs):
    evaluated = [accuracy(text) for text in outputs if "acc_norm" in text]
    check(len(evaluated) == 2, "the model was judged before and after")
    check(evaluated[0] < 75, f"the model did not know the task: {evaluated[0]}")
    check(evaluated[1] >= 90, f"the model learned the task: {evaluated[1]}")
    answered = [text for text in outputs if "attic.heater=on" in text]
    check(len(answered) == 2, "the adapter and the fused model answer alike")
    right, count = map(int, re.search(r"(\d+) of (\d+) right", outputs[-1]).groups())
    check(right >= 0.9 * count, f"the server answers right: {right} of {count}")


def main(mlxx, page):
    model = os.environ.get("MLXX_TEST_GGUF") or "smollm2"
    if model == "smollm2" and not os.environ.get("MLXX_HOME"):
        print("neither MLXX_TEST_GGUF nor MLXX_HOME is set")
        return SKIPPED
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "examples").symlink_to(page.parent.parent / "examples")
        shell = Shell(mlxx, folder, model)
        try:
            outputs = [shell.run(block) for block in blocks_of(page)]
        finally:
            shell.stop()
        check_loss(folder)
        check_answers(outputs)
    return 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))
