"""The default model's GGUF: its metadata through MLX's own reader, and its
tokenizer as `tokenizers` would have it, made without mlxx."""

import os
import sys
from pathlib import Path

import mlx.core as mx
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
CONTROL, USER_DEFINED = 3, 4  # tokenizer.ggml.token_type


def find_gguf():
    named = os.environ.get("MLXX_TEST_GGUF")
    if named:
        return Path(named)
    home = os.environ.get("MLXX_HOME", Path.home() / ".cache" / "mlxx")
    found = sorted(Path(home).rglob(NAME))
    if not found:
        sys.exit(f"no {NAME} under {home}: run 'mlxx pull smollm2' first")
    return found[0]


def metadata_of(gguf):
    return mx.load(str(gguf), return_metadata=True)[1]


def tokenizer_of(meta):
    if meta["tokenizer.ggml.pre"] != "smollm":
        sys.exit(f"another pre-tokenizer: {meta['tokenizer.ggml.pre']}")
    tokens = meta["tokenizer.ggml.tokens"]
    merges = [tuple(m.split(" ")) for m in meta["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = meta["tokenizer.ggml.token_type"].tolist()
    for token, kind in zip(tokens, kinds):
        if kind == CONTROL:
            tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)])
        elif kind == USER_DEFINED:
            tokenizer.add_tokens([AddedToken(token, normalized=False)])
    return tokenizer
