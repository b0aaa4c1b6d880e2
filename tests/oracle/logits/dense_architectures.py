"""Cases of dense decoders: model_type -> name -> Case."""

from dataclasses import replace

import mlx.core as mx

from architecture_case import TINY, Case, usual

PLAIN = dict(rope_theta=10000.0, rope_scaling=None)
TIED = dict(TINY, tie_word_embeddings=True)
LINEAR = {"type": "linear", "rope_type": "linear", "factor": 2.0}
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}


def without(fields, *names):
    return {k: v for k, v in fields.items() if k not in names}



def published_gpt2(weights, config):
    """Without the leading "model.", matrices as [in, out], with masks."""
    raw = {}
    for name, value in weights.items():
        name = name.removeprefix("model.")
        if ".attn.c_" in name or ".mlp.c_" in name:
            value = value.T if value.ndim == 2 else value
        raw[name] = mx.contiguous(value)
    for layer in range(config["n_layer"]):
        raw[f"h.{layer}.attn.bias"] = mx.ones((1, 1, 16, 16))
    return raw


LLAMA = Case(TINY, PLAIN, "LlamaConfig")
QWEN2 = Case(TIED, PLAIN, "Qwen2Config")
QWEN3 = Case(dict(TIED, head_dim=32), PLAIN, "Qwen3Config")
SEED_OSS = Case(dict(TINY, head_dim=32), PLAIN, "SeedOssConfig")
ERNIE4_5 = Case(dict(TIED, head_dim=64), PLAIN, "Ernie4_5Config")
INTERNLM3 = Case(published=dict(TINY, **PLAIN, qkv_bias=True, bias=True))
SMOLLM3 = Case(dict(TIED, num_hidden_layers=4), PLAIN, "SmolLM3Config")
GRANITE = Case(
    dict(
        TIED,
        embedding_multiplier=12.0,
        logits_scaling=8.0,
        attention_multiplier=0.03125,
        residual_multiplier=0.22,
    ),
    PLAIN,
    "GraniteConfig",
)
MINICPM = Case(
    published=dict(
        TINY, **PLAIN, scale_emb=12, scale_depth=1.4, dim_model_base=64
    )
)
OLMO2 = Case(TINY, PLAIN, "Olmo2Config")
OLMO3 = Case(
    dict(TINY, num_hidden_layers=4, sliding_window=16), PLAIN, "Olmo3Config"
)
EXAONE4 = Case(
    dict(TINY, num_hidden_layers=4, head_dim=32, sliding_window=16),
    dict(PLAIN, sliding_window_pattern="LLLG"),
    "Exaone4Config",
)
GEMMA = Case(dict(TIED, head_dim=32), PLAIN, "GemmaConfig")
GEMMA2 = Case(
    dict(TIED, head_dim=32, query_pre_attn_scalar=32),
    PLAIN,
    "Gemma2Config",
)
GEMMA3 = Case(
    dict(
        TIED,
        num_hidden_layers=4,
        head_dim=32,
        query_pre_attn_scalar=32,
        sliding_window=16,
    ),
    dict(
        sliding_window_pattern=2,
        rope_theta=1000000.0,
        rope_local_base_freq=10000.0,
        rope_scaling=None,
    ),
    "Gemma3TextConfig",
)
GLM4 = Case(
    dict(TINY, head_dim=32, attention_bias=True),
    dict(PLAIN, partial_rotary_factor=0.5),
    "Glm4Config",
)
PHI3 = Case(
    dict(TINY, pad_token_id=0),
    dict(PLAIN, partial_rotary_factor=1.0),
    "Phi3Config",
)
PHI3_LONG = dict(
    PHI3.published,
    partial_rotary_factor=0.75,
    max_position_embeddings=256,
    original_max_position_embeddings=64,
    rope_scaling={
        "type": "longrope",
        "short_factor": [1.0] * 12,
        "long_factor": [1.0 + i / 4 for i in range(12)],
    },
)
STARCODER2 = Case(
    dict(without(TIED, "rms_norm_eps"), norm_epsilon=1e-5),
    PLAIN,
    "Starcoder2Config",
)
NEMOTRON = Case(
    dict(without(TINY, "rms_norm_eps"), norm_eps=1e-5),
    dict(PLAIN, partial_rotary_factor=0.5),
    "NemotronConfig",
)
COHERE2 = Case(
    dict(
        without(TIED, "rms_norm_eps"),
        layer_norm_eps=1e-5,
        num_hidden_layers=4,
        sliding_window=16,
        logit_scale=0.0625,
    ),
    dict(PLAIN, sliding_window_pattern=4, head_dim=32),
    "Cohere2Config",
)
STABLELM = Case(
    dict(
        without(TINY, "rms_norm_eps"),
        layer_norm_eps=1e-5,
        use_qkv_bias=True,
        qk_layernorm=True,
    ),
    dict(PLAIN, partial_rotary_factor=0.25),
    "StableLmConfig",
)
GPT2 = Case(
    dict(
        vocab_size=160,
        n_embd=128,
        n_layer=2,
        n_head=4,
        n_positions=64,
        layer_norm_epsilon=1e-5,
    ),
    dict(n_ctx=64),
    "GPT2Config",
)
MINISTRAL3 = Case(
    dict(TINY, head_dim=32),
    dict(
        layer_types=["sliding_attention", "full_attention"],
        sliding_window=16,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 16,
            "llama_4_scaling_beta": 0.1,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    ),
    "Ministral3Config",
)

def packings(case):
    """Every form that mlx-lm's converter packs matrices in."""
    modes = {"mxfp4": (32, 4), "nvfp4": (16, 4), "mxfp8": (32, 8)}
    cases = {
        mode: case.variant("bfloat16", (*sizes, mode))
        for mode, sizes in modes.items()
    }
    for bits, group in ((2, 64), (3, 32), (5, 64), (6, 32), (8, 128)):
        cases[f"q{bits}-g{group}"] = case.variant("bfloat16", (group, bits))
    return cases


GEMMA4 = Case(
    dict(
        TIED,
        num_hidden_layers=6,
        head_dim=32,
        sliding_window=16,
        num_kv_shared_layers=2,
        hidden_size_per_layer_input=32,
        vocab_size_per_layer_input=160,
        layer_types=["sliding_attention", "full_attention"] * 3,
    ),
    dict(global_head_dim=64),
    "Gemma4TextConfig",
)

DENSE = {
    "llama": usual(LLAMA) | packings(LLAMA),
    "qwen2": usual(QWEN2) | {"yarn": QWEN2.variant(rope_scaling=YARN)},
    "qwen3": usual(QWEN3) | {"yarn": QWEN3.variant(rope_scaling=YARN)},
    "seed_oss": usual(SEED_OSS)
    | {"biases": SEED_OSS.variant(attention_bias=True, attention_out_bias=True)},
    "ernie4_5": usual(ERNIE4_5)
    | {
        "biases": ERNIE4_5.variant(use_bias=True),
        "untied": ERNIE4_5.variant("bfloat16", tie_word_embeddings=False),
        "no-head-dim": replace(
            ERNIE4_5, published=dict(ERNIE4_5.published, head_dim=None)
        ),
    },
    "internlm3": usual(INTERNLM3)
    | {
        "dynamic": INTERNLM3.variant(
            rope_scaling={"rope_type": "dynamic", "factor": 2.0},
            max_position_embeddings=16,
        )
    },
    "smollm3": usual(SMOLLM3),
    "granite": usual(GRANITE),
    "minicpm": usual(MINICPM),
    "olmo2": usual(OLMO2),
    "olmo3": usual(OLMO3) | {"yarn": OLMO3.variant(rope_scaling=YARN)},
    "exaone4": usual(EXAONE4)
    | {"global": EXAONE4.variant(sliding_window_pattern=None)},
    "gemma": usual(GEMMA),
    # Of a batch mlx-lm's mask is lined up with the key heads, not the rows.
    "gemma2": without(usual(GEMMA2), "batch"),
    "gemma3_text": usual(GEMMA3) | {"fp16": GEMMA3.variant("float16")},
    "gemma4_text": usual(GEMMA4)
    | {
        "values-are-keys": GEMMA4.variant(
            attention_k_eq_v=True,
            num_global_key_value_heads=1,
            hidden_size_per_layer_input=0,
            num_kv_shared_layers=0,
        ),
        "experts": GEMMA4.variant(
            "bfloat16",
            (64, 4),
            hidden_size_per_layer_input=0,
            num_kv_shared_layers=0,
            enable_moe_block=True,
            num_experts=8,
            top_k_experts=2,
            moe_intermediate_size=64,
        ),
    },
    "glm4": usual(GLM4),
    "phi3": usual(PHI3)
    | {
        "longrope": replace(PHI3, published=PHI3_LONG),
        "linear": PHI3.variant(rope_scaling=dict(LINEAR, long_factor=[])),
    },
    "starcoder2": usual(STARCODER2),
    "nemotron": usual(NEMOTRON)
    | {"linear": NEMOTRON.variant(rope_scaling=LINEAR)},
    "cohere2": usual(COHERE2) | {"fp16": COHERE2.variant("float16")},
    "stablelm": usual(STABLELM)
    | {
        "parallel": STABLELM.variant(
            "bfloat16", use_parallel_residual=True, qk_layernorm=False
        )
    },
    "gpt2": usual(GPT2)
    # There mlx-lm multiplies by turned views of the file's matrices, for which
    # BLAS adds up in another order.
    | {"published": replace(GPT2, raw=published_gpt2, bound=1e-5)},
    "ministral3": usual(MINISTRAL3),
}
