"""Runs a checkpoint on mlx-lm here and with `mlxx logits` in a process of its
own (fallback kernels, MLX's own BLAS), and compares the bytes of the logits:
prefill of N - 1 tokens, then one, then decode steps.
"""

import json
import os
import subprocess

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import (
    ArraysCache,
    BatchKVCache,
    BatchRotatingKVCache,
    CacheList,
    KVCache,
    RotatingKVCache,
    make_prompt_cache,
)
from mlx_lm.tuner.utils import load_adapters
from mlx_lm.utils import load_model

PROMPT = 37
DECODE = 8


# How many tokens of padding the rows of a batch begin with.
PADDING = (0, 5)


def padded(cache, padding):
    """mlx-lm's cache of a batch whose rows begin with so much padding."""
    if isinstance(cache, CacheList):
        return CacheList(*(padded(c, padding) for c in cache.caches))
    if isinstance(cache, ArraysCache):
        return ArraysCache(len(cache.cache), left_padding=padding)
    if isinstance(cache, RotatingKVCache):
        return BatchRotatingKVCache(cache.max_size, padding)
    assert type(cache) is KVCache, type(cache)
    return BatchKVCache(padding)


def reference_logits(folder, rows, prompt, adapter=None):
    """[T, V] of one row of tokens, [B, T, V] of several."""
    model, _ = load_model(folder)
    if adapter:
        model = load_adapters(model, str(adapter))
        model.eval()
    longest = max(len(row) for row in rows)
    padding = [longest - len(row) for row in rows]
    if len(rows) == 1:
        cache = make_prompt_cache(model)
    else:
        cache = [padded(c, padding) for c in make_prompt_cache(model)]
    ids = mx.array([[0] * (longest - len(row)) + row for row in rows])
    pieces = [ids[:, : prompt - 1], ids[:, prompt - 1 : prompt]]
    pieces += [ids[:, i : i + 1] for i in range(prompt, longest)]
    logits = []
    for piece in pieces:
        logits.append(model(piece, cache=cache))
        mx.eval(logits[-1], [c.state for c in cache])
    logits = mx.concatenate(logits, axis=1)
    return logits[0] if len(rows) == 1 else logits


def mapped_libraries():
    """Base names of the libmlx and the BLAS that this process has mapped.
    NumPy's own BLAS has other symbol names, so MLX cannot call it."""
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "/" in line}
    names = {os.path.basename(p) for p in paths}
    blas = sorted(
        n
        for n in names
        if "blas" in n.lower() and ".so" in n and "scipy" not in n
    )
    return sorted(n for n in names if n.startswith("libmlx.")), blas


def run_mlxx(binary, arguments):
    environment = dict(os.environ, MLXX_KERNEL="fallback", MLXX_BLAS="mlx")
    environment.pop("MLXX_COMPILE", None)
    done = subprocess.run(
        [binary, "logits", *arguments],
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"mlxx logits failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


def as_bytes(array):
    if array.dtype == mx.bfloat16:
        array = mx.view(array, mx.uint16)
    return np.array(array)


def compare(ours, theirs, bound=None):
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{ours.shape} {ours.dtype} against {theirs.shape} {theirs.dtype}"
    a, b = as_bytes(ours), as_bytes(theirs)
    if a.tobytes() == b.tobytes():
        return None
    rows = np.nonzero((a != b).any(axis=-1))[0]
    theirs = theirs.astype(mx.float32)
    gap = mx.abs(ours.astype(mx.float32) - theirs).max()
    if bound is not None and (gap <= bound * mx.abs(theirs).max()).item():
        return None
    return f"rows {rows.tolist()} differ, largest difference {gap.item():.3g}"


def libraries_differ(report):
    libmlx, blas = mapped_libraries()
    if report["mlx_version"] != mx.__version__:
        return f"MLX {report['mlx_version']}, {mx.__version__} here"
    if report["blas"] != blas or report["libmlx"] != libmlx:
        return f"{report['libmlx']} {report['blas']}, here {libmlx} {blas}"
    return None


def check_rows(binary, folder, rows, prompt, bound, adapter=None):
    (folder / "tokens.json").write_text(json.dumps(rows))
    out = folder / "logits.safetensors"
    arguments = ["-m", str(folder), "--tokens", str(folder / "tokens.json")]
    arguments += ["--prompt", str(prompt), "-o", str(out)]
    if adapter:
        arguments += ["--adapter", str(adapter)]
    report = run_mlxx(binary, arguments)
    ours = mx.load(str(out))["logits"]
    theirs = reference_logits(folder, rows, prompt, adapter)
    if problem := libraries_differ(report):
        return problem
    if len(rows) == 1:
        ours, theirs = ours[None], theirs[None]
    for row, tokens in enumerate(rows):
        # What a row's padding gives means nothing.
        mine = ours[row, -len(tokens) :]
        expected = theirs[row, -len(tokens) :]
        if not np.isfinite(np.array(expected.astype(mx.float32))).all():
            return f"row {row}: the reference is not finite"
        if problem := compare(mine, expected, bound):
            return f"row {row}: {problem}"
    return None


def check_checkpoint(
    binary,
    folder,
    vocabulary,
    prompt=PROMPT,
    decode=DECODE,
    bound=None,
    batch=False,
    adapter=None,
):
    """None if both give the same bits (or stay within the bound), else what
    differs; of one row, or of a batch with padding."""
    generator = np.random.default_rng(3)
    length = prompt + decode
    padding = PADDING if batch else (0,)
    rows = [
        generator.integers(0, vocabulary, length - less).tolist()
        for less in padding
    ]
    return check_rows(binary, folder, rows, prompt, bound, adapter)
