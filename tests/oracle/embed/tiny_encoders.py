"""Tiny encoders with random weights, in the layout of sentence-transformers.
config.json comes from transformers' own config classes, weights are float32.
"""
import json
import zlib

import numpy as np
from safetensors.numpy import save_file
from tokenizers import (AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

TEXTS = [
    "The capital of France is Paris.",
    "a",
    "",
    "Wie spät ist es? 日本語も少し。",
    "Two\nlines\twith   spaces, CAPITALS and numbers 1234567890",
    "long " * 90,
    "An [UNK] and a [MASK] spelled out, and an emoji 🙂.",
    "mean pooling takes every token of a text, its end included",
]


def word_piece():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(TEXTS, trainers.WordPieceTrainer(
        vocab_size=200, show_progress=False, special_tokens=special))
    ends = [(t, tokenizer.token_to_id(t)) for t in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends)
    return tokenizer


def byte_level(single, pair, special):
    """A BPE of bytes with a template; without one, one that adds nothing."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(TEXTS, trainers.BpeTrainer(
        vocab_size=320, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in special])
    ends = [(t, tokenizer.token_to_id(t)) for t in special]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=ends)
    return tokenizer


class Weights:
    """Random tensors, the same on every machine."""

    def __init__(self, name):
        self.random = np.random.default_rng(zlib.crc32(name.encode()))
        self.tensors = {}

    def matrix(self, name, *shape, scale=1.0):
        values = self.random.standard_normal(shape) * scale / np.sqrt(shape[-1])
        self.tensors[name] = values.astype(np.float32)

    def table(self, name, *shape):
        self.tensors[name] = self.random.standard_normal(shape).astype(np.float32)

    def linear(self, name, out, inner, bias=True):
        self.matrix(name + ".weight", out, inner, scale=1.5)
        if bias:
            self.table(name + ".bias", out)

    def norm(self, name, size, bias=True, plus_one=False):
        near = self.random.standard_normal(size) * 0.2 + (0 if plus_one else 1)
        self.tensors[name + ".weight"] = near.astype(np.float32)
        if bias:
            self.table(name + ".bias", size)


def bert_weights(name, config, prefix="", head=False):
    w = Weights(name)
    size, inner = config["hidden_size"], config["intermediate_size"]
    w.table(prefix + "embeddings.word_embeddings.weight", config["vocab_size"], size)
    w.table(prefix + "embeddings.position_embeddings.weight",
            config["max_position_embeddings"], size)
    w.table(prefix + "embeddings.token_type_embeddings.weight", config["type_vocab_size"], size)
    w.norm(prefix + "embeddings.LayerNorm", size)
    for i in range(config["num_hidden_layers"]):
        layer = f"{prefix}encoder.layer.{i}."
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            w.linear(layer + "attention." + part, size, size)
        w.norm(layer + "attention.output.LayerNorm", size)
        w.linear(layer + "intermediate.dense", inner, size)
        w.linear(layer + "output.dense", size, inner)
        w.norm(layer + "output.LayerNorm", size)
    labels = config.get("num_labels") or len(config.get("id2label") or [0, 1])
    if head and config["model_type"] == "bert":
        w.linear(prefix + "pooler.dense", size, size)
        w.linear("classifier", labels, size)
    elif head:
        w.linear("classifier.dense", size, size)
        w.linear("classifier.out_proj", labels, size)
    elif config["model_type"] == "bert":
        # What every real file holds and no vector needs.
        w.linear(prefix + "pooler.dense", size, size)
        positions = np.arange(config["max_position_embeddings"], dtype=np.int64)
        w.tensors[prefix + "embeddings.position_ids"] = positions[None]
    return w.tensors


def modern_bert_weights(name, config, prefix="model.", head=False):
    w = Weights(name)
    size, inner = config["hidden_size"], config["intermediate_size"]
    w.table(prefix + "embeddings.tok_embeddings.weight", config["vocab_size"], size)
    w.norm(prefix + "embeddings.norm", size, bias=False)
    for i in range(config["num_hidden_layers"]):
        layer = f"{prefix}layers.{i}."
        if i > 0:
            w.norm(layer + "attn_norm", size, bias=False)
        w.linear(layer + "attn.Wqkv", 3 * size, size, bias=False)
        w.linear(layer + "attn.Wo", size, size, bias=False)
        w.norm(layer + "mlp_norm", size, bias=False)
        w.linear(layer + "mlp.Wi", 2 * inner, size, bias=False)
        w.linear(layer + "mlp.Wo", size, inner, bias=False)
    w.norm(prefix + "final_norm", size, bias=False)
    if head:
        w.linear("head.dense", size, size, bias=False)
        w.norm("head.norm", size, bias=False)
        w.linear("classifier", len(config["id2label"]), size)
    return w.tensors


def decoder_weights(name, config, prefix=""):
    w = Weights(name)
    kind = config["model_type"]
    size, inner = config["hidden_size"], config["intermediate_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_size = config.get("head_dim") or size // heads
    is_gemma, has_bias = kind == "gemma3_text", kind == "qwen2"

    def norm(name, size):
        w.norm(name, size, bias=False, plus_one=is_gemma)

    w.table(prefix + "embed_tokens.weight", config["vocab_size"], size)
    for i in range(config["num_hidden_layers"]):
        layer = f"{prefix}layers.{i}."
        w.linear(layer + "self_attn.q_proj", heads * head_size, size, has_bias)
        w.linear(layer + "self_attn.k_proj", kv_heads * head_size, size, has_bias)
        w.linear(layer + "self_attn.v_proj", kv_heads * head_size, size, has_bias)
        w.linear(layer + "self_attn.o_proj", size, heads * head_size, False)
        if kind in ("qwen3", "gemma3_text"):
            norm(layer + "self_attn.q_norm", head_size)
            norm(layer + "self_attn.k_norm", head_size)
        for part, out, into in (("gate", inner, size), ("up", inner, size), ("down", size, inner)):
            w.linear(f"{layer}mlp.{part}_proj", out, into, False)
        norm(layer + "input_layernorm", size)
        norm(layer + "post_attention_layernorm", size)
        if is_gemma:
            norm(layer + "pre_feedforward_layernorm", size)
            norm(layer + "post_feedforward_layernorm", size)
    norm(prefix + "norm", size)
    return w.tensors


def write(folder, config, tensors, tokenizer, tokenizer_config=None):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()},
              folder / "model.safetensors")
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config or {}))


def write_modules(folder, pooling, dense=(), normalizes=True, max_tokens=None, prompts=None):
    """`dense`: (weights [out, in], bias or None, activation class)."""
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    for weight, bias, activation in dense:
        name = f"{len(modules)}_Dense"
        modules.append((name, "Dense"))
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps({
            "in_features": weight.shape[1], "out_features": weight.shape[0],
            "bias": bias is not None, "activation_function": activation}))
        tensors = {"linear.weight": weight}
        if bias is not None:
            tensors["linear.bias"] = bias
        save_file(tensors, folder / name / "model.safetensors")
    if normalizes:
        modules.append((f"{len(modules)}_Normalize", "Normalize"))
    (folder / "modules.json").write_text(json.dumps([
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(modules)]))
    if max_tokens:
        (folder / "sentence_bert_config.json").write_text(json.dumps(
            {"max_seq_length": max_tokens, "do_lower_case": False}))
    if prompts:
        (folder / "config_sentence_transformers.json").write_text(json.dumps(
            {"prompts": prompts, "default_prompt_name": None}))
