#!/usr/bin/env python3
"""Writes a model in MLX's form with random 4- or 8-bit (or bfloat16) weights of
a published shape, and a tokenizer of its vocabulary: speed depends on shapes,
not on what the numbers are.

    random_model.py FOLDER [--shape 8b|1b|moe|small|small_moe] [--bits 4|8|16]
        [--group 64] [--mode affine|mxfp4|nvfp4] [--sharpness 1]

Needs Python and NumPy only. 8b and 1b are those of Llama 3, moe that of Qwen3
30B-A3B with 8 of its 48 layers. Every group has a scale of its own, except in
mxfp4, whose scales are powers of two. Logits have a deviation of about
--sharpness: 1 is nearly a uniform distribution, trained models are at 3 or so.
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
    "small": dict(hidden=1024, layers=8, inner=3072, heads=16, kv=4, vocab=32000),
    "small_moe": dict(hidden=512, layers=4, inner=256, heads=8, kv=2, vocab=32000,
                      experts=16, top_k=4),
}
HEAD_SIZES = {"8b": 128, "1b": 64, "moe": 128, "small": 64, "small_moe": 64}
GROUPS = {"affine": 64, "mxfp4": 32, "nvfp4": 16}
# Root of the mean square of the values that uniform codes stand for.
CODE_DEVIATION = {"mxfp4": 2.926, "nvfp4": 2.926}
STRIP = 1 << 26  # bytes that are random; longer tensors repeat them


def config_of(shape, head, bits, group, mode):
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
        if mode != "affine":
            config["quantization"]["mode"] = mode
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


def bfloat16(values):
    """Bytes of the nearest ones below."""
    return np.asarray(values, np.float32).view(np.uint16)[..., 1::2].tobytes()


def float8_e4m3(values):
    """Bytes of positive numbers below 448, rounded down."""
    exponent = np.maximum(np.floor(np.log2(values)), -6)
    mantissa = np.floor(values / 2.0 ** (exponent - 3)).astype(np.int64)
    normal = mantissa >= 8
    return np.where(
        normal, (exponent.astype(np.int64) + 7) * 8 + mantissa - 8, mantissa
    ).astype(np.uint8).tobytes()


def scales_of(mode, bits, columns, sharpness):
    """One scale (and the biases that go with it) after another, to be repeated:
    a matrix times a vector of deviation 1 then gives about `sharpness`."""
    spread = np.random.default_rng(1).uniform(0.6, 1.3, 65521)
    if mode == "affine":
        scales = sharpness * np.sqrt(12.0 / columns) / (1 << bits) * spread
        return bfloat16(scales), bfloat16(-scales * ((1 << bits) - 1) / 2)
    scales = sharpness / np.sqrt(columns) / CODE_DEVIATION[mode] * spread
    if mode == "mxfp4":
        return (np.round(np.log2(scales)) + 127).astype(np.uint8).tobytes(), None
    return float8_e4m3(scales), None


def tensors_of(shape, head, bits, group, mode, sharpness):
    """Name, dtype, shape, and the bytes to repeat: None are random ones."""
    matrices, norms = matrices_of(shape, head)
    for name, size in norms:
        # The last one decides on the logits where the head has no scales.
        last = bits == 16 and name == "model.norm"
        value = sharpness * 50 / np.sqrt(size) if last else 1.0
        yield name + ".weight", "BF16", (size,), bfloat16([value])
    for name, dims in matrices:
        if bits == 16:
            yield name + ".weight", "BF16", dims, None
            continue
        *rows, columns = dims
        packed = (*rows, columns * bits // 32)
        parts = (*rows, columns // group)
        scales, biases = scales_of(mode, bits, columns, sharpness if name == "lm_head" else 1)
        yield name + ".weight", "U32", packed, None
        yield name + ".scales", "BF16" if biases else "U8", parts, scales
        if biases:
            yield name + ".biases", "BF16", parts, biases


def write_weights(path, tensors):
    header, at = {}, 0
    for name, dtype, dims, _ in tensors:
        size = int(np.prod(dims)) * {"U32": 4, "BF16": 2, "U8": 1}[dtype]
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
                whole, rest = divmod(size, len(content))
                file.write(content * whole + content[:rest])
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
    parser.add_argument("--group", type=int, choices=(16, 32, 64, 128))
    parser.add_argument("--mode", choices=GROUPS, default="affine")
    parser.add_argument("--sharpness", type=float, default=1.0)
    options = parser.parse_args()
    if options.mode != "affine" and options.bits != 4:
        parser.error(f"{options.mode} has 4 bits")
    shape, head = SHAPES[options.shape], HEAD_SIZES[options.shape]
    group = options.group or GROUPS[options.mode]
    options.folder.mkdir(parents=True, exist_ok=True)
    config = config_of(shape, head, options.bits, group, options.mode)
    (options.folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf8")
    tensors = list(
        tensors_of(shape, head, options.bits, group, options.mode, options.sharpness))
    write_weights(options.folder / "model.safetensors", tensors)
    write_tokenizer(options.folder, shape["vocab"])


if __name__ == "__main__":
    main()
