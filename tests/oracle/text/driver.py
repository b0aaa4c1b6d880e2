"""Talks to text_driver, one JSON request and answer a line."""

import json
import subprocess


class Refused(Exception):
    """mlxx answered with an error; its kind and its message."""

    def __init__(self, kind, message):
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


class Driver:
    def __init__(self, program):
        self.process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, op, **fields):
        line = json.dumps({"op": op, **fields}, ensure_ascii=False) + "\n"
        self.process.stdin.write(line.encode("utf-8"))
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"text_driver ended at {line[:300]}")
        answer = json.loads(answer)
        if "error" in answer:
            raise Refused(answer["kind"], answer["error"])
        return answer

    def close(self):
        self.process.stdin.close()
        if self.process.wait() != 0:
            raise SystemExit("text_driver failed")
