"""Adapters of a live server: by flag, mounted and unmounted over HTTP, and side
by side in one batch with the bare model."""

import concurrent.futures
import json
import pathlib
import random
import struct
import sys
import tempfile
import urllib.error
import urllib.request

from live_server import LiveServer

HIDDEN, RANK, LAYERS = 576, 4, 30  # the default model's
CONFIG = {"fine_tune_type": "lora", "num_layers": LAYERS,
          "lora_parameters": {"rank": RANK, "scale": 6.0, "dropout": 0.0}}


def write_adapter(folder, seed, module="q_proj"):
    """In mlx-lm's format, with random numbers."""
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(CONFIG))
    values = random.Random(seed)
    header, data = {}, b""
    for layer in range(LAYERS):
        for part, shape in (("lora_a", [HIDDEN, RANK]), ("lora_b", [RANK, HIDDEN])):
            numbers = [values.gauss(0, 0.08) for _ in range(HIDDEN * RANK)]
            tensor = struct.pack(f"<{len(numbers)}f", *numbers)
            header[f"model.layers.{layer}.self_attn.{module}.{part}"] = {
                "dtype": "F32", "shape": shape,
                "data_offsets": [len(data), len(data) + len(tensor)]}
            data += tensor
    text = json.dumps(header).encode()
    (folder / "adapters.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def ask(server, path, body=None, method=None):
    request = urllib.request.Request(
        server.url + path, None if body is None else json.dumps(body).encode(), method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def expect(condition, *found):
    if not condition:
        raise AssertionError(" ".join(map(str, found)))


def answer(server, **more):
    status, body = ask(server, "/v1/chat/completions", {
        "messages": [{"role": "user", "content": "Tell me about the sea."}],
        "max_tokens": 24, "temperature": 0, **more})
    expect(status == 200, status, body)
    return body["choices"][0]["message"]["content"]


def main():
    with tempfile.TemporaryDirectory() as root:
        root = pathlib.Path(root)
        folders = root / "adapters"
        folders.mkdir()
        write_adapter(folders / "one", 1)
        write_adapter(folders / "two", 2)
        write_adapter(folders / "misfit", 3, module="no_such_proj")
        write_adapter(root / "outside", 4)
        with LiveServer("--adapters-dir", str(folders)) as server:
            bare = answer(server)
            for name in ("one", "../outside", str(root / "outside")):
                status, body = ask(server, "/v1/chat/completions", {
                    "messages": [{"role": "user", "content": "x"}], "adapters": name})
                expect(status in (400, 404) and "error" in body, name, status, body)
            status, body = ask(server, "/v1/adapters", {"folder": "misfit"})
            expect(status == 400 and "no_such_proj" in body["error"]["message"], status, body)
            for name in ("../outside", str(root / "outside"), "none_there", 5, ""):
                status, body = ask(server, "/v1/adapters", {"folder": name})
                expect(status in (400, 404) and "error" in body, name, status, body)
            expect(ask(server, "/v1/adapters")[1]["data"] == [], "an adapter that was refused")
            for name in ("one", "two"):
                status, body = ask(server, "/v1/adapters", {"folder": name})
                expect(status == 200 and body["id"] == name and body["modules"] == LAYERS
                       and body["rank"] == RANK, status, body)
            alone = {name: answer(server, adapters=name) for name in ("one", "two", "one,two")}
            alone["none"] = bare
            expect(len(set(alone.values())) == 4, alone)
            with concurrent.futures.ThreadPoolExecutor(8) as clients:
                names = list(alone) * 2
                together = list(clients.map(lambda name: answer(server, adapters=name), names))
            for name, text in zip(names, together):
                expect(text == alone[name], name, text, alone[name])
            listed = ask(server, "/v1/adapters")[1]["data"]
            expect([entry["id"] for entry in listed] == ["one", "two"], listed)
            status, body = ask(server, "/v1/adapters/one", method="DELETE")
            expect(status == 200 and body["deleted"], status, body)
            expect(ask(server, "/v1/adapters/one", method="DELETE")[0] == 404, "deleted twice")
            # Another one under the old name: no states of the first are found.
            status, body = ask(server, "/v1/adapters", {"folder": "two", "name": "one"})
            expect(status == 200, status, body)
            expect(answer(server, adapters="one") == alone["two"], "not the new adapter")
            expect(answer(server) == bare, "the bare model has changed")
        with LiveServer("--adapter-path", f"style={folders / 'one'}") as server:
            expect(answer(server) == alone["one"], "requests that name none")
            expect(answer(server, adapters="style") == alone["one"], "by name")
            expect(answer(server, adapters="none") == bare, "the bare model")
    print("adapters: all as expected")


if __name__ == "__main__":
    sys.exit(main())
