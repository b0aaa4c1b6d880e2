"""Cases of checkpoints that also see: their language model alone is compared.
model_type of the text family -> name -> Case."""

import mlx.core as mx

from architecture_case import Case
from dense_architectures import GEMMA3, GEMMA4, LLAMA, MINISTRAL3, QWEN3


def with_vision(weights):
    weights["vision_tower.patch_embedding.weight"] = mx.ones((8, 4))
    weights["multi_modal_projector.linear.weight"] = mx.ones((4, 8))
    return weights


def beside_vision(weights, config):
    """MLX's names, with the other towers."""
    return with_vision(dict(weights))


def below_model(weights, config):
    """As transformers 5 writes them: model.language_model.layers..."""
    raw = {}
    for name, value in weights.items():
        name = name.removeprefix("language_model.")
        if name.startswith("model."):
            name = "model.language_model." + name.removeprefix("model.")
        raw[name] = value
    raw["model.visual.patch_embed.weight"] = mx.ones((8, 4))
    return raw


def seeing(text, model_type, text_type, raw, **more):
    """The text case as the text_config of a checkpoint that also sees."""
    fields = {**text.fields, **text.published, **more}
    fields["model_type"] = text_type
    return Case(
        published=dict(
            text_config=fields,
            vision_config={"hidden_size": 8, "num_hidden_layers": 1},
            vocab_size=fields["vocab_size"],
        ),
        model_type=model_type,
        raw=raw,
    )


VISION = {
    "gemma3_text": {
        "gemma3": seeing(GEMMA3, "gemma3", "gemma3_text", beside_vision)
    },
    "gemma4_text": {
        "gemma4": seeing(GEMMA4, "gemma4", "gemma4_text", beside_vision)
    },
    "llama": {"mistral3": seeing(LLAMA, "mistral3", "mistral", beside_vision)},
    "ministral3": {
        # Without windows, for which mlx-lm's wrapper keeps every token, in
        # another order.
        "mistral3": seeing(
            MINISTRAL3,
            "mistral3",
            "ministral3",
            beside_vision,
            layer_types=["full_attention"] * 2,
        )
    },
    "qwen3": {
        "qwen3_vl": seeing(QWEN3, "qwen3_vl", "qwen3_vl_text", below_model)
    },
}
