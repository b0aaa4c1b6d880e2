"""Writes a llama GGUF of Q4_0/Q4_1/Q8_0 tensors as an MLX checkpoint, through
MLX's own GGUF reader: a second opinion on how mlxx reads the file. The numbers
stay as they are; half-precision scales become float32, as in mlxx on the CPU.
"""

import json

import mlx.core as mx
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

LAYER_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
OTHER_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
GROUP = 32


def halves_from_pairs(rows, heads):
    """GGUF stores the rows of q and k for rotating neighbours; undo it."""
    shape = rows.shape
    rows = rows.reshape(heads, shape[0] // heads // 2, 2, *shape[1:])
    return rows.swapaxes(1, 2).reshape(shape)


def write_mlx_checkpoint(gguf, folder):
    weights, meta = mx.load(str(gguf), return_metadata=True)
    assert meta["general.architecture"] == "llama"
    value = lambda key: meta[f"llama.{key}"].item()
    heads = value("attention.head_count")
    kv_heads = value("attention.head_count_kv")
    hidden = value("embedding_length")
    out = {}
    for key, array in weights.items():
        parts = key.split(".")
        if parts[0] == "blk":
            _, index, stem, kind = parts
            name = f"model.layers.{index}.{LAYER_NAMES[stem]}.{kind}"
            if stem in ("attn_q", "attn_k"):
                array = halves_from_pairs(
                    array, heads if stem == "attn_q" else kv_heads
                )
        else:
            name = f"{OTHER_NAMES[parts[0]]}.{parts[1]}"
        if array.dtype == mx.float16:
            array = array.astype(mx.float32)
        out[name] = mx.contiguous(array)
    inputs = {"down_proj": value("feed_forward_length")}
    quantization = {"group_size": GROUP, "bits": 4}
    for name, array in out.items():
        stem = name.removesuffix(".weight")
        if array.dtype == mx.uint32:
            width = inputs.get(stem.split(".")[-1], hidden)
            quantization[stem] = {
                "group_size": GROUP,
                "bits": array.shape[1] * 32 // width,
            }
    config = dict(
        model_type="llama",
        hidden_size=hidden,
        num_hidden_layers=value("block_count"),
        intermediate_size=value("feed_forward_length"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        rms_norm_eps=value("attention.layer_norm_rms_epsilon"),
        vocab_size=out["model.embed_tokens.weight"].shape[0],
        rope_theta=value("rope.freq_base"),
        max_position_embeddings=value("context_length"),
        tie_word_embeddings="lm_head.weight" not in out,
        quantization=quantization,
    )
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    mx.save_safetensors(
        str(folder / "model.safetensors"), out, {"format": "mlx"}
    )
    return meta


def tokenizer_of(meta):
    """Byte-level BPE from the metadata: near enough to write prompts with."""
    vocabulary = {t: i for i, t in enumerate(meta["tokenizer.ggml.tokens"])}
    merges = [tuple(m.split(" ")) for m in meta["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
