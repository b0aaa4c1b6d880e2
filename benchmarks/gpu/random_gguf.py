#!/usr/bin/env python3
"""Writes a GGUF file with random Q4_0 weights of a published shape and a
tokenizer of its vocabulary, for llama.cpp beside the models of random_model.py.

    random_gguf.py FILE.gguf [--shape 8b|1b]

Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Needs NumPy.
"""

import argparse
import struct

import numpy as np

SHAPES = {
    "8b": {"layers": 32, "hidden": 4096, "inner": 14336, "heads": 32, "kv": 8,
           "head": 128, "vocab": 128256},
    "1b": {"layers": 16, "hidden": 2048, "inner": 8192, "heads": 32, "kv": 8,
           "head": 64, "vocab": 128256},
    "tiny": {"layers": 2, "hidden": 256, "inner": 512, "heads": 4, "kv": 2,
             "head": 64, "vocab": 512},
}
ALIGNMENT = 32
F32, Q4_0 = 0, 2  # of tensors
UINT32, INT32, FLOAT32, STRING, ARRAY = 4, 5, 6, 8, 9  # of values


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, one):
    if kind == STRING:
        return string(one)
    return struct.pack({UINT32: "<I", INT32: "<i", FLOAT32: "<f"}[kind], one)


def entry(key, kind, one):
    return string(key) + struct.pack("<I", kind) + value(kind, one)


def entries(key, kind, all_of_them):
    head = string(key) + struct.pack("<IIQ", ARRAY, kind, len(all_of_them))
    return head + b"".join(value(kind, one) for one in all_of_them)


def metadata(shape):
    count = shape["vocab"]
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    tokens += [f"w{i}" for i in range(count - len(tokens))]
    normal, unknown, control, byte = 1, 2, 3, 6
    kinds = [unknown, control, control] + [byte] * 256
    kinds += [normal] * (count - len(kinds))
    return [
        entry("general.architecture", STRING, "llama"),
        entry("general.alignment", UINT32, ALIGNMENT),
        entry("general.file_type", UINT32, 2),
        entry("llama.block_count", UINT32, shape["layers"]),
        entry("llama.context_length", UINT32, 8192),
        entry("llama.embedding_length", UINT32, shape["hidden"]),
        entry("llama.feed_forward_length", UINT32, shape["inner"]),
        entry("llama.attention.head_count", UINT32, shape["heads"]),
        entry("llama.attention.head_count_kv", UINT32, shape["kv"]),
        entry("llama.attention.layer_norm_rms_epsilon", FLOAT32, 1e-5),
        entry("llama.rope.dimension_count", UINT32, shape["head"]),
        entry("llama.rope.freq_base", FLOAT32, 500000.0),
        entry("llama.vocab_size", UINT32, count),
        entry("tokenizer.ggml.model", STRING, "llama"),
        entries("tokenizer.ggml.tokens", STRING, tokens),
        entries("tokenizer.ggml.scores", FLOAT32, [0.0] * count),
        entries("tokenizer.ggml.token_type", INT32, kinds),
        entry("tokenizer.ggml.unknown_token_id", UINT32, 0),
        entry("tokenizer.ggml.bos_token_id", UINT32, 1),
        entry("tokenizer.ggml.eos_token_id", UINT32, 2),
    ]


def tensors(shape):
    """Name, numbers of a row, rows (none: a vector)."""
    hidden, inner = shape["hidden"], shape["inner"]
    queries, keys = shape["heads"] * shape["head"], shape["kv"] * shape["head"]
    yield "token_embd.weight", hidden, shape["vocab"]
    yield "output.weight", hidden, shape["vocab"]
    yield "output_norm.weight", hidden, None
    for layer in range(shape["layers"]):
        for name, columns, rows in [
            ("attn_norm", hidden, None), ("ffn_norm", hidden, None),
            ("attn_q", hidden, queries), ("attn_k", hidden, keys),
            ("attn_v", hidden, keys), ("attn_output", queries, hidden),
            ("ffn_gate", hidden, inner), ("ffn_up", hidden, inner),
            ("ffn_down", inner, hidden),
        ]:
            yield f"blk.{layer}.{name}.weight", columns, rows


def numbers(random, columns, rows):
    if rows is None:
        return np.ones(columns, np.float32).tobytes()
    # Blocks of 32: a half-precision scale, then 16 bytes of codes.
    blocks = np.empty((rows * columns // 32, 18), np.uint8)
    blocks[:, 2:] = np.frombuffer(random.bytes(len(blocks) * 16), np.uint8).reshape(-1, 16)
    scale = np.float16(0.2 / np.sqrt(columns))
    blocks[:, :2] = np.frombuffer(scale.tobytes(), np.uint8)
    return blocks.tobytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--shape", choices=SHAPES, default="8b")
    options = parser.parse_args()
    shape = SHAPES[options.shape]
    random = np.random.default_rng(1)
    values, all_tensors = metadata(shape), list(tensors(shape))
    infos, offset = [], 0
    for name, columns, rows in all_tensors:
        sizes = [columns] if rows is None else [columns, rows]
        infos.append(
            string(name)
            + struct.pack("<I", len(sizes))
            + b"".join(struct.pack("<Q", size) for size in sizes)
            + struct.pack("<IQ", F32 if rows is None else Q4_0, offset)
        )
        size = columns * 4 if rows is None else rows * columns // 32 * 18
        offset += (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    head = b"GGUF" + struct.pack("<IQQ", 3, len(all_tensors), len(values))
    head += b"".join(values) + b"".join(infos)
    with open(options.file, "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT))
        for _, columns, rows in all_tensors:
            data = numbers(random, columns, rows)
            file.write(data + bytes(-len(data) % ALIGNMENT))


if __name__ == "__main__":
    main()
