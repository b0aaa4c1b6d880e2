"""Many clients at once, some of which go away: every answer is the one that the
same request got alone, no error comes but the promised ones, and memory ends
where it began.

    load_test.py [SECONDS [CLIENTS]]
"""

import asyncio
import pathlib
import random
import sys
import time

from live_server import LiveServer

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "serve"))
from load import stream, words  # noqa: E402

SPECS = 40
# What a full server may say; a client then waits and asks again.
PROMISED = (429, 503)
JSON_SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "pair",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"color": {"enum": ["red", "green"]}, "count": {"type": "integer"}},
            "required": ["color", "count"],
            "additionalProperties": False,
        },
    },
}


def make_spec(number, model):
    """A request of its own kind, the same in every run."""
    chooser = random.Random(number)
    # Half of the prompts begin alike, so that the prefix cache is in use.
    shared = words(100, "shared") if chooser.random() < 0.5 else ""
    body = {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": chooser.randint(1, 24),
        "temperature": chooser.choice([0, 0.7, 1.0, 1.5]),
        "seed": number,
    }
    prompt = f"{shared} {words(chooser.randint(1, 60), number)}"
    if chooser.random() < 0.5:
        return "/v1/completions", body | {"prompt": prompt, "top_p": 0.9}
    body["messages"] = [{"role": "user", "content": prompt}]
    kind = chooser.randrange(4)
    if kind == 0:
        body |= {"response_format": JSON_SCHEMA, "max_tokens": 48}
    elif kind == 1:
        body |= {"stop": ["the", "a"]}
    elif kind == 2:
        body |= {"presence_penalty": 1, "logit_bias": {"5": -50}, "top_k": 40}
    return "/v1/chat/completions", body


class Load:
    def __init__(self, server):
        self.server = server
        self.specs = [make_spec(number, server.chat_model) for number in range(SPECS)]
        self.expected = []
        self.wrong = []
        self.answers = self.left = self.refused = 0

    async def ask(self, number, leave_after=None):
        path, body = self.specs[number]
        return await stream(self.server.url + path, body, leave_after)

    async def find_expected(self):
        for number in range(SPECS):
            alone = await self.ask(number)
            if alone.error:
                raise RuntimeError(f"request {number} alone: {alone.error}")
            self.expected.append(alone.text)

    async def client(self, seed, until):
        chooser = random.Random(f"client {seed}")
        while time.monotonic() < until:
            number = chooser.randrange(SPECS)
            leaves = chooser.random() < 0.2
            got = await self.ask(number, chooser.randint(0, 3) if leaves else None)
            if got.status in PROMISED:
                self.refused += 1
                await asyncio.sleep(0.5)
            elif leaves:
                self.left += 1
            elif got.error or got.text != self.expected[number]:
                self.wrong.append((number, got.error or got.text))
                return
            else:
                self.answers += 1

    async def run(self, clients, seconds):
        until = time.monotonic() + seconds
        await asyncio.gather(*(self.client(seed, until) for seed in range(clients)))


def resident_bytes(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def settled_bytes(load, clients, seconds):
    """What the server holds once its pools and its prefix cache are full: how soon
    that is depends on how many answers the machine can give."""
    before = 0
    for _ in range(5):
        asyncio.run(load.run(clients, seconds))
        load.server.wait_until_idle()
        now = resident_bytes(load.server.process)
        if now <= 1.01 * before:
            return now
        before = now
    return before


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60
    clients = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    with LiveServer("--prompt-cache-bytes", "64MB", "--max-queue", "150") as server:
        load = Load(server)
        asyncio.run(load.find_expected())
        before = settled_bytes(load, clients, min(10, seconds / 6))
        asyncio.run(load.run(clients, seconds))
        server.wait_until_idle()
        after = resident_bytes(server.process)
    print(
        f"{load.answers} answers, {load.left} clients left, {load.refused} refused for now; "
        f"memory {before / 1e6:.0f} MB before, {after / 1e6:.0f} MB after"
    )
    for number, got in load.wrong[:5]:
        print(f"request {number}: {got!r}\n  instead of {load.expected[number]!r}")
    if load.wrong or load.answers < clients or load.left == 0:
        sys.exit(1)
    if after > 1.05 * before:
        sys.exit("memory grew")


if __name__ == "__main__":
    main()
