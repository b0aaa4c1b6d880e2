"""Programs that answer a request in JSON with a file of arrays."""

import json
import os
import subprocess

import mlx.core as mx


def call(driver, request, scratch):
    """What `driver REQUEST OUT` computes in fallback mode; RuntimeError with its
    message if it fails."""
    asked = scratch / "request.json"
    asked.write_text(json.dumps(request))
    out = scratch / "out.safetensors"
    done = subprocess.run(
        [driver, asked, out],
        capture_output=True,
        text=True,
        env={**os.environ, "MLXX_KERNEL": "fallback"},
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return mx.load(str(out))


def same(a, b):
    """Whether shapes, dtypes and all bits are equal."""
    return a.shape == b.shape and a.dtype == b.dtype and mx.array_equal(
        mx.view(mx.reshape(a, (-1,)), mx.uint8),
        mx.view(mx.reshape(b, (-1,)), mx.uint8),
    ).item()
