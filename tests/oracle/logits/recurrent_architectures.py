"""Cases of recurrent and hybrid decoders: model_type -> name -> Case."""

from dataclasses import replace

import published_recurrent
from architecture_case import TINY, Case, usual

PLAIN = dict(rope_theta=10000.0, rope_scaling=None)
NO_LIMIT = [0.0, float("inf")]


def published(case, raw, **changes):
    return replace(case.variant(**changes), raw=raw)


def pieces(case):
    """A prompt past the 256 tokens that a scan takes at a time."""
    return replace(case, prompt=300)


def mixture(case):
    """As usual, but MLX has no products with dense experts in half precision
    on a CPU."""
    return {k: v for k, v in usual(case).items() if k != "bf16"}


LFM2 = Case(
    dict(
        vocab_size=160,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        norm_eps=1e-5,
        conv_L_cache=3,
        conv_bias=False,
        block_multiple_of=32,
        full_attn_idxs=[1, 3],
    ),
    dict(block_dim=128, block_ff_dim=256, rope_theta=10000.0),
    "Lfm2Config",
)
LFM2_MOE = Case(
    dict(
        vocab_size=160,
        hidden_size=128,
        intermediate_size=256,
        moe_intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        norm_eps=1e-5,
        conv_L_cache=3,
        conv_bias=False,
        num_dense_layers=1,
        num_experts=8,
        num_experts_per_tok=3,
        norm_topk_prob=True,
        use_expert_bias=True,
        layer_types=["conv", "full_attention", "conv", "full_attention"],
    ),
    dict(rope_theta=10000.0),
    "Lfm2MoeConfig",
)
MAMBA2 = Case(
    dict(
        vocab_size=160,
        hidden_size=128,
        num_hidden_layers=2,
        num_heads=8,
        head_dim=32,
        state_size=16,
        n_groups=2,
        conv_kernel=4,
        layer_norm_epsilon=1e-5,
        tie_word_embeddings=False,
    ),
    dict(intermediate_size=256, time_step_limit=NO_LIMIT),
    "Mamba2Config",
)
FALCON = Case(
    dict(
        TINY,
        mamba_n_heads=8,
        mamba_d_head=32,
        mamba_d_ssm=256,
        mamba_d_state=16,
        mamba_n_groups=2,
        mamba_rms_norm=True,
        mamba_norm_before_gate=False,
        embedding_multiplier=5.656854249492381,
        lm_head_multiplier=0.0390625,
        attention_out_multiplier=0.9375,
        key_multiplier=0.390625,
        mlp_multipliers=[0.8838834764831844, 0.5859375],
        ssm_multipliers=[0.35, 0.25, 0.35, 0.5, 0.3535533905932738],
        ssm_in_multiplier=1.25,
        ssm_out_multiplier=0.23570226039551587,
    ),
    dict(PLAIN, head_dim=32, time_step_limit=NO_LIMIT),
    "FalconH1Config",
)
NEMOTRON = Case(
    dict(
        vocab_size=160,
        hidden_size=128,
        intermediate_size=256,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=256,
        layer_norm_epsilon=1e-5,
        mamba_num_heads=8,
        mamba_head_dim=32,
        ssm_state_size=16,
        n_groups=2,
        moe_intermediate_size=64,
        moe_shared_expert_intermediate_size=96,
        n_routed_experts=8,
        num_experts_per_tok=3,
        n_group=4,
        topk_group=2,
        routed_scaling_factor=2.5,
        tie_word_embeddings=False,
    ),
    dict(
        layers_block_type=None,
        hybrid_override_pattern="M-E*M",
        num_hidden_layers=5,
        time_step_limit=NO_LIMIT,
    ),
    "NemotronHConfig",
)
GRANITE = Case(
    dict(
        TINY,
        tie_word_embeddings=True,
        intermediate_size=64,
        num_hidden_layers=3,
        num_local_experts=8,
        num_experts_per_tok=3,
        shared_intermediate_size=96,
        mamba_n_heads=8,
        mamba_d_head=32,
        mamba_d_state=16,
        mamba_n_groups=1,
        embedding_multiplier=12.0,
        logits_scaling=8.0,
        attention_multiplier=0.03125,
        residual_multiplier=0.22,
        position_embedding_type="nope",
    ),
    dict(
        PLAIN,
        layer_types=["mamba", "attention", "mamba"],
        time_step_limit=NO_LIMIT,
    ),
    "GraniteMoeHybridConfig",
)
LINEAR = dict(
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=32,
    linear_value_head_dim=32,
    linear_conv_kernel_dim=4,
)
EXPERTS = dict(
    num_experts=8,
    num_experts_per_tok=3,
    moe_intermediate_size=64,
    shared_expert_intermediate_size=96,
)
QWEN3_NEXT = Case(
    dict(
        TINY,
        **LINEAR,
        **EXPERTS,
        num_hidden_layers=4,
        head_dim=32,
        mlp_only_layers=[1],
        norm_topk_prob=True,
    ),
    dict(PLAIN, partial_rotary_factor=0.25),
    "Qwen3NextConfig",
)
TEXT = dict(TINY, **LINEAR, num_hidden_layers=4, head_dim=32)
QWEN3_5 = Case(TEXT, {}, "Qwen3_5TextConfig", model_type="qwen3_5")
WITH_IMAGES = Case(
    dict(text_config=dict(TEXT, tie_word_embeddings=True)),
    {},
    "Qwen3_5Config",
    model_type="qwen3_5",
)
WITH_EXPERTS = Case(
    dict(text_config=dict(TEXT, **EXPERTS)),
    {},
    "Qwen3_5MoeConfig",
    model_type="qwen3_5_moe",
)

RECURRENT = {
    "lfm2": usual(LFM2)
    | {
        "biases": LFM2.variant(conv_bias=True, conv_L_cache=4),
        "published": published(LFM2, published_recurrent.turned),
    },
    "lfm2_moe": mixture(LFM2_MOE)
    | {"published": published(LFM2_MOE, published_recurrent.lfm2_moe)},
    "mamba2": usual(MAMBA2)
    | {
        "pieces": pieces(MAMBA2),
        "biases": MAMBA2.variant(
            "bfloat16", use_bias=True, time_step_limit=[0.01, 0.1]
        ),
        "published": published(MAMBA2, published_recurrent.turned),
    },
    "falcon_h1": usual(FALCON)
    | {
        "without-norm": FALCON.variant("bfloat16", mamba_rms_norm=False),
        "norm-first": FALCON.variant(
            mamba_norm_before_gate=True, tie_word_embeddings=True
        ),
        "published": published(
            FALCON, published_recurrent.turned, dtype="bfloat16"
        ),
    },
    "nemotron_h": mixture(NEMOTRON)
    | {
        "bf16": NEMOTRON.variant("bfloat16", hybrid_override_pattern="M-*"),
        "pieces": pieces(NEMOTRON),
        "latent": NEMOTRON.variant("bfloat16", (32, 4), moe_latent_size=64),
        "published": published(NEMOTRON, published_recurrent.nemotron_h),
    },
    "granitemoehybrid": mixture(GRANITE)
    | {
        "dense": GRANITE.variant(
            "bfloat16", (32, 4), num_local_experts=0, intermediate_size=256
        ),
        "rotated": GRANITE.variant(position_embedding_type="rope"),
        "published": published(GRANITE, published_recurrent.granite),
    },
    "qwen3_next": mixture(QWEN3_NEXT)
    | {
        "published": published(QWEN3_NEXT, published_recurrent.qwen3_next)
    },
    "qwen3_5": usual(QWEN3_5)
    | {
        "images": WITH_IMAGES,
        "experts": WITH_EXPERTS,
        "experts-q4": replace(
            WITH_EXPERTS, dtype="bfloat16", quantization=(32, 4)
        ),
        "published": published(
            QWEN3_5, published_recurrent.qwen3_5, dtype="bfloat16"
        ),
        "published-experts": published(
            WITH_EXPERTS, published_recurrent.qwen3_5
        ),
    },
}
