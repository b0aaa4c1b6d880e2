#!/usr/bin/env python3
"""Asks a server every prompt of a file such as test.jsonl and counts the answers
that are exactly its completions.

    ask_all.py home/test.jsonl [http://127.0.0.1:8080] [MODEL]
"""
import json
import sys
import urllib.request


def answer(server, model, prompt):
    body = {
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": 32,
    }
    if model:
        body["model"] = model
    request = urllib.request.Request(
        server + "/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]


def main(path, server="http://127.0.0.1:8080", model=None):
    right = 0
    samples = [json.loads(line) for line in open(path, encoding="utf-8")]
    for sample in samples:
        given = answer(server, model, sample["prompt"]).strip()
        right += given == sample["completion"]
        if given != sample["completion"]:
            print(f"{sample['prompt']}\n  wanted {sample['completion']}, got {given!r}")
    print(f"{right} of {len(samples)} right")


if __name__ == "__main__":
    main(*sys.argv[1:])
