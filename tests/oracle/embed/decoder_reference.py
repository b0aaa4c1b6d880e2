"""Decoders that make vectors, in float64, one text at a time: Qwen3
(arXiv:2505.09388), Gemma 3 (arXiv:2503.19786) seeing both sides, Qwen2 and
Llama. Written from the papers; details as transformers 5.24 computes them.
"""
import numpy as np

from encoder_reference import Weights, attend, distances, gelu_tanh, rms_norm, rotate, silu


def rope_base(config, layer_type):
    parameters = config["rope_parameters"]
    return parameters.get(layer_type, parameters)["rope_theta"]


def seen_by(config, layer_type, length):
    far = distances(length)
    at = np.arange(length)
    both_sides = config.get("use_bidirectional_attention", False)
    seen = np.ones_like(far, bool) if both_sides else at[:, None] >= at[None, :]
    if layer_type == "sliding_attention":
        window = config["sliding_window"]
        seen &= far <= (window // 2 if both_sides else window - 1)
    return seen


def decoder(config, tensors, ids, prefix=""):
    """Hidden states after the last norm, [L, E]."""
    w = Weights(tensors, prefix)
    is_gemma = config["model_type"] == "gemma3_text"
    eps, size = config["rms_norm_eps"], config["hidden_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_size = config.get("head_dim") or size // heads
    scale = (config["query_pre_attn_scalar"] if is_gemma else head_size) ** -0.5
    act = gelu_tanh if is_gemma else silu
    types = config.get("layer_types") or ["full_attention"] * config["num_hidden_layers"]

    def norm(x, name):
        weight = w(name + ".weight")
        return rms_norm(x, 1 + weight if is_gemma else weight, eps)

    h = w("embed_tokens.weight")[ids] * (np.sqrt(size) if is_gemma else 1)
    for i in range(config["num_hidden_layers"]):
        layer = f"layers.{i}."
        x = norm(h, layer + "input_layernorm")
        q = w.heads(x, layer + "self_attn.q_proj", heads)
        k = w.heads(x, layer + "self_attn.k_proj", kv_heads)
        v = w.heads(x, layer + "self_attn.v_proj", kv_heads)
        if prefix + layer + "self_attn.q_norm.weight" in tensors:
            q, k = norm(q, layer + "self_attn.q_norm"), norm(k, layer + "self_attn.k_norm")
        base = rope_base(config, types[i])
        out = attend(rotate(q, base), rotate(k, base), v, scale,
                     seen_by(config, types[i], len(ids)))
        out = w.linear(out, layer + "self_attn.o_proj")
        h = h + (norm(out, layer + "post_attention_layernorm") if is_gemma else out)
        name = "pre_feedforward_layernorm" if is_gemma else "post_attention_layernorm"
        x = norm(h, layer + name)
        inner = act(w.linear(x, layer + "mlp.gate_proj")) * w.linear(x, layer + "mlp.up_proj")
        out = w.linear(inner, layer + "mlp.down_proj")
        h = h + (norm(out, layer + "post_feedforward_layernorm") if is_gemma else out)
    return norm(h, "norm")
