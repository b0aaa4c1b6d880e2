"""What one comparison of an architecture is made of."""

from dataclasses import dataclass, field, replace
from typing import Callable, Optional


@dataclass
class Case:
    """A tiny random checkpoint of one architecture.

    config_class: transformers' class that writes config.json with all keys that
    published files have; None where it has no such family.
    fields: what it is told. `published`: keys of published files that
    transformers 5 no longer writes (rope_theta, rope_scaling...), or writes in
    another form; also the whole config where there is no class.
    """

    fields: dict = field(default_factory=dict)
    published: dict = field(default_factory=dict)
    config_class: Optional[str] = None
    model_type: Optional[str] = None
    dtype: str = "float32"
    # (group size, bits) or (group size, bits, mode)
    quantization: Optional[tuple] = None
    prompt: int = 37
    decode: int = 8
    # None: the same bits. Else the largest difference, relative to the largest
    # logit; the case says why.
    bound: Optional[float] = None
    # Two rows, one of them padded.
    batch: bool = False
    # (name, array in float32) -> array, or None for the usual random numbers.
    randomise: Optional[Callable] = None
    # MLX's names -> the names and forms of the published checkpoint.
    raw: Optional[Callable] = None

    def variant(self, dtype="float32", quantization=None, **fields):
        """The same with other numbers or a few other fields."""
        published = {
            k: v for k, v in fields.items() if k in self.published
        }
        rest = {k: v for k, v in fields.items() if k not in published}
        return replace(
            self,
            dtype=dtype,
            quantization=quantization,
            fields={**self.fields, **rest},
            published={**self.published, **published},
        )


def usual(case):
    """What every architecture is compared in."""
    return {
        "fp32": case.variant(),
        "bf16": case.variant("bfloat16"),
        "q4-bf16": case.variant("bfloat16", (32, 4)),
        "batch": replace(case, batch=True),
    }


# Sizes of a tiny decoder, under the names that most families use.
TINY = dict(
    vocab_size=160,
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    rms_norm_eps=1e-5,
    tie_word_embeddings=False,
)
