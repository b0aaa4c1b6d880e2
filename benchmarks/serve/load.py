"""Streams of chat or text completions against an OpenAI-style server, and when
each of their tokens came. Standard library only."""

import asyncio
import json
import random
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

WORDS = (
    "river stone window garden letter morning engine paper silver market "
    "forest captain island bridge winter signal copper harbor thunder meadow"
).split()


@dataclass
class Stream:
    started: float = 0.0
    arrivals: list = field(default_factory=list)  # of pieces with text
    tokens: int = 0  # as the server's usage says
    cached: int = 0
    text: str = ""  # of choice 0
    status: int = 0
    error: str = ""

    def first(self):
        return self.arrivals[0] - self.started if self.arrivals else float("nan")

    def gaps(self):
        return [b - a for a, b in zip(self.arrivals, self.arrivals[1:])]


def words(count, seed):
    """About `count` tokens that no other seed begins with."""
    chooser = random.Random(seed)
    return " ".join(chooser.choice(WORDS) for _ in range(count))


async def lines_of(reader):
    """The body's lines of a response, chunked or until the end."""
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    chunked = b"transfer-encoding: chunked" in head.lower()
    rest = b""
    while True:
        if chunked:
            size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
            data = await reader.readexactly(size + 2)
            data = data[:-2]
            if size == 0:
                break
        else:
            data = await reader.read(65536)
            if not data:
                break
        rest += data
        *whole, rest = rest.split(b"\n")
        for line in whole:
            yield status, line.rstrip(b"\r")
    if rest:
        yield status, rest


async def stream(url, body, leave_after=None):
    """One request from connection to end, or until so many pieces came."""
    parts = urlsplit(url)
    result = Stream()
    payload = json.dumps(body).encode()
    request = (
        f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n"
        "Connection: close\r\n\r\n"
    ).encode() + payload
    result.started = time.perf_counter()
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(request)
        await writer.drain()
        async for status, line in lines_of(reader):
            now = time.perf_counter()
            result.status = status
            if leave_after is not None and len(result.arrivals) >= leave_after:
                return result
            if status != 200:
                result.error += line.decode(errors="replace")
            elif line.startswith(b"data:") and line[5:].strip() != b"[DONE]":
                take(result, json.loads(line[5:]), now)
    finally:
        writer.close()
    if not result.error and not result.tokens:
        result.error = "the stream ended without usage"
    return result


def take(result, event, now):
    if "error" in event:
        result.error += json.dumps(event["error"])
    usage = event.get("usage")
    if usage:
        result.tokens = usage["completion_tokens"]
        details = usage.get("prompt_tokens_details") or {}
        result.cached = details.get("cached_tokens", 0) or 0
    for choice in event.get("choices", []):
        text = choice.get("text") or (choice.get("delta") or {}).get("content")
        if text:
            result.arrivals.append(now)
            if choice.get("index", 0) == 0:
                result.text += text


async def run_clients(url, clients, requests, make_body):
    """Each client sends its requests one after the other; all at once."""

    async def client(number):
        return [
            await stream(url, make_body(number * requests + turn))
            for turn in range(requests)
        ]

    started = time.perf_counter()
    done = await asyncio.gather(*(client(number) for number in range(clients)))
    return [s for each in done for s in each], time.perf_counter() - started
