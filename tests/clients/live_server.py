"""A real `mlxx serve` for the tests of a client: the default model and a small
embedding model, on a free port of this machine."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

BINARY = os.environ["MLXX_BINARY"]
CHAT_MODEL = os.environ.get("MLXX_TEST_MODEL", "smollm2")
EMBEDDING_MODEL = os.environ["MLXX_TEST_EMBEDDING_MODEL"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class LiveServer:
    def __init__(self, *options, key=None):
        self.options = options
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}

    def __enter__(self):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [BINARY, "serve", "-m", CHAT_MODEL, "-m", EMBEDDING_MODEL, "--port",
             str(self.port), *self.options],
            stdout=self.log,
            stderr=self.log,
        )
        deadline = time.monotonic() + 60
        while not self.answers("/ready"):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                self.process.wait()
                raise RuntimeError("the server did not become ready:\n" + self.output())
            time.sleep(0.02)
        names = [entry["id"] for entry in self.get("/v1/models")["data"]]
        self.chat_model, self.embedding_model = names[:2]
        return self

    def __exit__(self, kind, *_):
        self.process.terminate()
        code = self.process.wait(timeout=60)
        log = self.output()
        self.log.close()
        if kind is not None or code != 0:
            print(log, file=sys.stderr)
        if kind is None and code != 0:
            raise RuntimeError(f"the server ended with {code}")

    def output(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def get(self, path):
        request = urllib.request.Request(self.url + path, headers=self.headers)
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)

    def answers(self, path):
        try:
            with urllib.request.urlopen(self.url + path, timeout=10):
                return True
        except OSError:
            return False

    def wait_until_idle(self):
        """Fails if requests still run long after their clients went away."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            metrics = urllib.request.urlopen(self.url + "/metrics", timeout=10).read().decode()
            running = [line for line in metrics.splitlines()
                       if line.startswith("vllm:num_requests_running")]
            if running and all(float(line.rsplit(" ", 1)[1]) == 0 for line in running):
                return
            time.sleep(0.05)
        raise AssertionError("requests of clients that went away still run")
