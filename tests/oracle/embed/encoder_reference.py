"""Encoders in float64, one text at a time, written from their papers: BERT
(arXiv:1810.04805), RoBERTa (arXiv:1907.11692), ModernBERT (arXiv:2412.13663).
Weights are a dict of NumPy arrays under the names of the checkpoint.
"""
import math

import numpy as np


def erf(x):
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def gelu(x):
    return x / 2 * (1 + erf(x / math.sqrt(2)))


def gelu_tanh(x):
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def silu(x):
    return x / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x, weight, bias, eps):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    y = (x - mean) / np.sqrt(variance + eps) * weight
    return y if bias is None else y + bias


def rms_norm(x, weight, eps):
    return x / np.sqrt((x ** 2).mean(-1, keepdims=True) + eps) * weight


def rotate(x, base):
    """x [H, L, D], token l at position l, halves rotated against each other."""
    length, size = x.shape[1:]
    angles = np.arange(length)[:, None] * base ** (-np.arange(0, size, 2) / size)
    a, b = x[..., :size // 2], x[..., size // 2:]
    c, s = np.cos(angles), np.sin(angles)
    return np.concatenate([a * c - b * s, a * s + b * c], -1)


def attend(q, k, v, scale, seen):
    """[H, L, D] each, k and v with fewer heads; seen [L, L]."""
    group = q.shape[0] // k.shape[0]
    k, v = np.repeat(k, group, 0), np.repeat(v, group, 0)
    scores = np.where(seen, q @ k.transpose(0, 2, 1) * scale, -np.inf)
    out = softmax(scores) @ v
    return out.transpose(1, 0, 2).reshape(q.shape[1], -1)


def distances(length):
    at = np.arange(length)
    return np.abs(at[:, None] - at[None, :])


class Weights:
    def __init__(self, tensors, prefix=""):
        self.tensors, self.prefix = tensors, prefix

    def __call__(self, name):
        return self.tensors[self.prefix + name].astype(np.float64)

    def get(self, name):
        return self(name) if self.prefix + name in self.tensors else None

    def linear(self, x, name):
        y = x @ self(name + ".weight").T
        bias = self.get(name + ".bias")
        return y if bias is None else y + bias

    def norm(self, x, name, eps):
        return layer_norm(x, self(name + ".weight"), self.get(name + ".bias"), eps)

    def heads(self, x, name, count):
        y = self.linear(x, name)
        return y.reshape(len(x), count, -1).transpose(1, 0, 2)


def bert(config, tensors, ids, types, prefix=""):
    """Hidden states [L, E]."""
    w = Weights(tensors, prefix)
    eps, heads = config["layer_norm_eps"], config["num_attention_heads"]
    length = len(ids)
    first = 0 if config["model_type"] == "bert" else config["pad_token_id"] + 1
    h = (w("embeddings.word_embeddings.weight")[ids]
         + w("embeddings.position_embeddings.weight")[first:first + length]
         + w("embeddings.token_type_embeddings.weight")[types])
    h = w.norm(h, "embeddings.LayerNorm", eps)
    seen = np.ones((length, length), bool)
    for i in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{i}."
        q, k, v = (w.heads(h, f"{layer}attention.self.{name}", heads)
                   for name in ("query", "key", "value"))
        out = attend(q, k, v, q.shape[-1] ** -0.5, seen)
        h = w.norm(w.linear(out, layer + "attention.output.dense") + h,
                   layer + "attention.output.LayerNorm", eps)
        inner = gelu(w.linear(h, layer + "intermediate.dense"))
        h = w.norm(w.linear(inner, layer + "output.dense") + h,
                   layer + "output.LayerNorm", eps)
    return h


def bert_scores(config, tensors, hidden):
    if config["model_type"] == "bert":
        w = Weights(tensors)
        return w.linear(np.tanh(w.linear(hidden[0], "bert.pooler.dense")), "classifier")
    w = Weights(tensors)
    return w.linear(np.tanh(w.linear(hidden[0], "classifier.dense")), "classifier.out_proj")


def modern_bert(config, tensors, ids, prefix="model."):
    w = Weights(tensors, prefix)
    eps, heads = config["norm_eps"], config["num_attention_heads"]
    far = distances(len(ids))
    reach = config["local_attention"] // 2
    h = w.norm(w("embeddings.tok_embeddings.weight")[ids], "embeddings.norm", eps)
    for i in range(config["num_hidden_layers"]):
        layer = f"layers.{i}."
        is_global = config["layer_types"][i] == "full_attention"
        rope = config["rope_parameters"]["full_attention" if is_global else "sliding_attention"]
        x = h if i == 0 else w.norm(h, layer + "attn_norm", eps)
        qkv = w.linear(x, layer + "attn.Wqkv").reshape(len(ids), 3, heads, -1)
        q, k, v = qkv.transpose(1, 2, 0, 3)
        q, k = rotate(q, rope["rope_theta"]), rotate(k, rope["rope_theta"])
        seen = np.ones_like(far, bool) if is_global else far <= reach
        h = h + w.linear(attend(q, k, v, q.shape[-1] ** -0.5, seen), layer + "attn.Wo")
        both = w.linear(w.norm(h, layer + "mlp_norm", eps), layer + "mlp.Wi")
        inner, gate = np.split(both, 2, -1)
        h = h + w.linear(gelu(inner) * gate, layer + "mlp.Wo")
    return w.norm(h, "final_norm", eps)


def modern_bert_scores(config, tensors, hidden):
    w = Weights(tensors)
    pooled = hidden[0] if config["classifier_pooling"] == "cls" else hidden.mean(0)
    inner = w.norm(gelu(w.linear(pooled, "head.dense")), "head.norm", config["norm_eps"])
    return w.linear(inner, "classifier")
