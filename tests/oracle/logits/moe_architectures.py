"""Cases of decoders with experts: model_type -> name -> Case.

A prompt of 36 tokens that each go to two experts or more is 72 routed rows,
which mlx-lm sorts; one token is not sorted.
"""

import json
from dataclasses import replace

import published_experts
import transformers
from architecture_case import TINY, Case, usual

PLAIN = dict(rope_theta=10000.0, rope_scaling=None)
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 16,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def mixture(case):
    """Without experts in half precision: MLX's CPU backend multiplies dense
    ones in float32 only."""
    return {
        "fp32": case,
        "q4-bf16": case.variant("bfloat16", (32, 4)),
        "q8-fp16": case.variant("float16", (64, 8)),
        "batch": replace(case, batch=True),
    }


def published(case, raw):
    return replace(case, raw=raw)


MIXTRAL = Case(
    dict(TINY, num_local_experts=4, num_experts_per_tok=2),
    PLAIN,
    "MixtralConfig",
)
QWEN2_MOE = Case(
    dict(
        TINY,
        num_experts=8,
        num_experts_per_tok=3,
        moe_intermediate_size=64,
        shared_expert_intermediate_size=128,
    ),
    PLAIN,
    "Qwen2MoeConfig",
)
QWEN3_MOE = Case(
    dict(
        TINY,
        num_hidden_layers=4,
        head_dim=32,
        num_experts=8,
        num_experts_per_tok=3,
        moe_intermediate_size=64,
        norm_topk_prob=True,
        decoder_sparse_step=1,
        mlp_only_layers=[2],
    ),
    dict(PLAIN, num_experts=8),
    "Qwen3MoeConfig",
)
OLMOE = Case(
    dict(
        TINY,
        intermediate_size=64,
        num_experts=8,
        num_experts_per_tok=3,
        norm_topk_prob=False,
    ),
    PLAIN,
    "OlmoeConfig",
)
GRANITEMOE = Case(
    dict(
        TINY,
        tie_word_embeddings=True,
        intermediate_size=64,
        num_local_experts=8,
        num_experts_per_tok=3,
        embedding_multiplier=12.0,
        logits_scaling=6.0,
        attention_multiplier=0.03125,
        residual_multiplier=0.22,
    ),
    PLAIN,
    "GraniteMoeConfig",
)
GPT_OSS = Case(
    dict(
        TINY,
        intermediate_size=128,
        head_dim=32,
        num_local_experts=8,
        num_experts_per_tok=3,
        sliding_window=16,
    ),
    dict(
        rope_theta=150000.0,
        rope_scaling=dict(
            YARN, factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False
        ),
    ),
    "GptOssConfig",
)
GLM4_MOE = Case(
    dict(
        TINY,
        num_hidden_layers=3,
        head_dim=32,
        attention_bias=True,
        use_qk_norm=True,
        moe_intermediate_size=64,
        n_routed_experts=8,
        n_shared_experts=1,
        num_experts_per_tok=3,
        n_group=4,
        topk_group=2,
        routed_scaling_factor=1.5,
        norm_topk_prob=True,
        first_k_dense_replace=1,
    ),
    dict(PLAIN, partial_rotary_factor=0.5),
    "Glm4MoeConfig",
)
DEEPSEEK = Case(
    dict(
        TINY,
        num_hidden_layers=3,
        num_key_value_heads=4,
        moe_intermediate_size=64,
        n_routed_experts=8,
        n_shared_experts=2,
        num_experts_per_tok=3,
        n_group=4,
        topk_group=2,
        routed_scaling_factor=2.5,
        first_k_dense_replace=1,
        q_lora_rank=64,
        kv_lora_rank=64,
        qk_nope_head_dim=32,
        qk_rope_head_dim=16,
        v_head_dim=64,
    ),
    dict(
        rope_theta=10000.0,
        rope_scaling=dict(
            type="yarn",
            factor=4.0,
            beta_fast=32,
            beta_slow=1,
            mscale=1.0,
            mscale_all_dim=1.0,
            original_max_position_embeddings=16,
        ),
        moe_layer_freq=1,
        topk_method="noaux_tc",
        scoring_func="sigmoid",
        num_nextn_predict_layers=1,
    ),
    "DeepseekV3Config",
)
LLAMA4_TEXT = Case(
    dict(
        TINY,
        num_hidden_layers=4,
        head_dim=32,
        intermediate_size_mlp=256,
        no_rope_layers=[1, 1, 1, 0],
        use_qk_norm=True,
    ),
    PLAIN,
    "Llama4TextConfig",
)


def llama4(**changes):
    """The text model's config lies within another."""
    fields = dict(
        TINY,
        num_hidden_layers=4,
        head_dim=32,
        intermediate_size=64,
        intermediate_size_mlp=256,
        num_local_experts=4,
        num_experts_per_tok=1,
        interleave_moe_layer_step=2,
        attention_chunk_size=16,
        floor_scale=8,
        attn_scale=0.1,
    )
    del fields["tie_word_embeddings"]
    kind = transformers.Llama4TextConfig(**fields)
    text = json.loads(kind.to_json_string(use_diff=False))
    text.update({"rope_theta": 500000.0, "rope_scaling": None, **changes})
    return Case(published={"text_config": text})


# No class writes the keys that mlx-lm reads (shared_intermediate_size...).
MINIMAX = Case(
    published=dict(
        TINY,
        **PLAIN,
        head_dim=32,
        rotary_dim=16,
        intermediate_size=64,
        shared_intermediate_size=0,
        num_local_experts=8,
        num_experts_per_tok=3,
        use_qk_norm=True,
        scoring_func="sigmoid",
    )
)

MIXTURES = {
    "mixtral": mixture(MIXTRAL)
    | {
        "published": published(
            MIXTRAL, published_experts.one_by_one(published_experts.NUMBERED)
        )
    },
    "qwen2_moe": mixture(QWEN2_MOE)
    | {"published": published(QWEN2_MOE, published_experts.one_by_one())},
    "qwen3_moe": mixture(QWEN3_MOE)
    | {
        "published": published(QWEN3_MOE, published_experts.one_by_one()),
        "every-other": QWEN3_MOE.variant(
            "bfloat16", (64, 8), decoder_sparse_step=2, norm_topk_prob=False
        ),
    },
    "olmoe": mixture(OLMOE)
    | {
        "published": published(OLMOE, published_experts.one_by_one()),
        "renormalised": OLMOE.variant("bfloat16", (32, 4), norm_topk_prob=True),
    },
    "granitemoe": mixture(GRANITEMOE)
    | {"published": published(GRANITEMOE, published_experts.granite)},
    "gpt_oss": mixture(GPT_OSS)
    | {
        "mxfp4": GPT_OSS.variant("bfloat16", (32, 4, "mxfp4")),
        "published": published(
            GPT_OSS.variant("bfloat16", (32, 4, "mxfp4")),
            published_experts.gpt_oss,
        ),
    },
    "glm4_moe": mixture(GLM4_MOE)
    | {
        "published": published(GLM4_MOE, published_experts.one_by_one()),
        "one-group": GLM4_MOE.variant(
            "bfloat16",
            (32, 4),
            n_group=1,
            topk_group=1,
            use_qk_norm=False,
            attention_bias=False,
        ),
    },
    "deepseek_v3": mixture(DEEPSEEK)
    | {
        "published": published(DEEPSEEK, published_experts.latent),
        "published-q4": published(
            DEEPSEEK.variant("bfloat16", (32, 4)), published_experts.latent
        ),
        "kimi": replace(
            DEEPSEEK.variant(n_group=1, topk_group=1), model_type="kimi_k2"
        ),
        "one-step-queries": DEEPSEEK.variant(q_lora_rank=None),
    },
    "minimax": mixture(MINIMAX)
    | {
        "published": published(
            MINIMAX, published_experts.one_by_one(published_experts.NUMBERED)
        ),
        "m2": replace(MINIMAX, model_type="minimax_m2"),
    },
    "llama4_text": usual(LLAMA4_TEXT)
    | {"tied": LLAMA4_TEXT.variant(tie_word_embeddings=True)},
    # mlx-lm has no batches of attention in chunks.
    "llama4": {
        "fp32": llama4(),
        "q4-bf16": replace(
            llama4(), dtype="bfloat16", quantization=(32, 4)
        ),
        "long": replace(
            llama4(
                interleave_moe_layer_step=1,
                attn_temperature_tuning=False,
                rope_scaling=LLAMA3,
            ),
            prompt=90,
        ),
        "published": published(llama4(), published_experts.llama4),
    },
}
