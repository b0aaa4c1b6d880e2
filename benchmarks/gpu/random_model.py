#!/usr/bin/env python3
"""Writes a model in MLX's form with random 4- or 8-bit (or bfloat16) weights of
a published shape, and a tokenizer of its vocabulary: speed depends on shapes,
not on what the numbers are.

    random_model.py FOLDER [--shape 8b|1b|moe] [--bits 4|8|16] [--group 64]

Needs Python and NumPy only. 8b and 1b are those of Llama 3, moe that of Qwen3
30B-A3B with 8 of its 48 layers.
"""

import argparse
import itertools
import json
import struct
from pathlib import Path

import numpy as np

SHAPES = {
    "8b": dict(hidden=4096, layers=32, inner=14336, heads=32, kv=8, vocab=128256),
    "1b": dict(hidden=2048, layers=16, inner=8192, heads=32, kv=8, vocab=128256),
    "moe": dict(hidden=2048, layers=8, inner=768, heads=32, kv=4, vocab=151936,
                experts=128, top_k=8),
}
STRIP = 1 << 26  # bytes that are random; longer tensors repeat them


def config_of(shape, head, bits, group):
    config = {
        "model_type": "qwen3_moe" if "experts" in shape else "llama",
        "hidden_size": shape["hidden"],
        "num_hidden_layers": shape["layers"],
        "intermediate_size": shape["inner"],
        "num_attention_heads": shape["heads"],
        "num_key_value_heads": shape["kv"],
        "head_dim": head,
        "vocab_size": shape["vocab"],
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "max_position_embeddings": 65536,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    if "experts" in shape:
        config |= {
            "num_experts": shape["experts"],
            "num_experts_per_tok": shape["top_k"],
            "moe_intermediate_size": shape["inner"],
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
            "norm_topk_prob": True,
        }
    if bits < 16:
        config["quantization"] = {"group_size": group, "bits": bits}
    return config


def matrices_of(shape, head):
    """Name and shape of every matrix, and names and sizes of the norms."""
    hidden, inner = shape["hidden"], shape["inner"]
    queries, keys = shape["heads"] * head, shape["kv"] * head
    matrices = [
        ("model.embed_tokens", (shape["vocab"], hidden)),
        ("lm_head", (shape["vocab"], hidden)),
    ]
    norms = [("model.norm", hidden)]
    for layer in range(shape["layers"]):
        at = f"model.layers.{layer}."
        matrices += [
            (at + "self_attn.q_proj", (queries, hidden)),
            (at + "self_attn.k_proj", (keys, hidden)),
            (at + "self_attn.v_proj", (keys, hidden)),
            (at + "self_attn.o_proj", (hidden, queries)),
        ]
        norms += [
            (at + "input_layernorm", hidden),
            (at + "post_attention_layernorm", hidden),
        ]
        if "experts" in shape:
            many = shape["experts"]
            matrices += [
                (at + "mlp.gate", (many, hidden)),
                (at + "mlp.switch_mlp.gate_proj", (many, inner, hidden)),
                (at + "mlp.switch_mlp.up_proj", (many, inner, hidden)),
                (at + "mlp.switch_mlp.down_proj", (many, hidden, inner)),
            ]
            norms += [
                (at + "self_attn.q_norm", head),
                (at + "self_attn.k_norm", head),
            ]
        else:
            matrices += [
                (at + "mlp.gate_proj", (inner, hidden)),
                (at + "mlp.up_proj", (inner, hidden)),
                (at + "mlp.down_proj", (hidden, inner)),
            ]
    return matrices, norms


def bfloat16(value):
    return struct.pack("<f", value)[2:]


def tensors_of(shape, head, bits, group):
    """Name, dtype, shape, and what its bytes are: None is random."""
    matrices, norms = matrices_of(shape, head)
    for name, size in norms:
        yield name + ".weight", "BF16", (size,), bfloat16(1.0)
    for name, dims in matrices:
        if bits == 16:
            yield name + ".weight", "BF16", dims, None
            continue
        *rows, columns = dims
        # Uniform codes of variance 1 / columns, around 0.
        scale = np.sqrt(12.0 / columns) / (1 << bits)
        packed = (*rows, columns * bits // 32)
        parts = (*rows, columns // group)
        yield name + ".weight", "U32", packed, None
        yield name + ".scales", "BF16", parts, bfloat16(scale)
        yield name + ".biases", "BF16", parts, bfloat16(-scale * ((1 << bits) - 1) / 2)


def write_weights(path, tensors):
    header, at = {}, 0
    for name, dtype, dims, _ in tensors:
        size = int(np.prod(dims)) * (4 if dtype == "U32" else 2)
        header[name] = {"dtype": dtype, "shape": list(dims), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    rng = np.random.default_rng(0)
    codes = rng.bytes(STRIP)
    dense = (rng.standard_normal(STRIP // 2, np.float32) * 0.02).view(np.uint16)[1::2].tobytes()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, dtype, _, content in tensors:
            begin, end = header[name]["data_offsets"]
            size = end - begin
            if content is not None:
                file.write(content * (size // 2))
                continue
            source = codes if dtype == "U32" else dense
            for part in range(0, size, STRIP):
                file.write(source[: min(STRIP, size - part)])


def byte_letters():
    """GPT-2's letter for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, more = {}, 256
    for byte in range(256):
        if byte in plain:
            letters[byte] = chr(byte)
        else:
            letters[byte] = chr(more)
            more += 1
    return letters


def write_tokenizer(folder, vocabulary):
    special = ["<unk>", "<s>", "</s>"]
    letters = list(byte_letters().values())
    words, merges = special + letters, []
    # Pairs of letters, then pairs and a letter.
    for left in itertools.chain(letters, (a + b for a in letters for b in letters)):
        for right in letters:
            if len(words) < vocabulary:
                words.append(left + right)
                merges.append([left, right])
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": word, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False, "special": True}
            for i, word in enumerate(special)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False,
                          "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False,
                    "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>",
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {word: i for i, word in enumerate(words)}, "merges": merges},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
        "chat_template": "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n"
                         "{% endfor %}assistant: ",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf8")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="8b")
    parser.add_argument("--bits", type=int, choices=(4, 8, 16), default=4)
    parser.add_argument("--group", type=int, choices=(32, 64, 128), default=64)
    options = parser.parse_args()
    shape = SHAPES[options.shape]
    head = 64 if options.shape == "1b" else 128
    options.folder.mkdir(parents=True, exist_ok=True)
    config = config_of(shape, head, options.bits, options.group)
    (options.folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf8")
    tensors = list(tensors_of(shape, head, options.bits, options.group))
    write_weights(options.folder / "model.safetensors", tensors)
    write_tokenizer(options.folder, shape["vocab"])


if __name__ == "__main__":
    main()
