#!/usr/bin/env python3
"""`mlxx embed` on all-MiniLM-L6-v2 against float64 NumPy and the tokenizers
library: every number within 1e-4, bit-equal vectors alone and in any batch.
"""
import argparse
import json
import pathlib

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

import encoder_reference as reference
from embed_oracle import Runner, encode, unit

TEXTS = [
    "The capital of France is Paris.",
    "Paris is the capital of France.",
    "My cat sleeps all day.",
    "",
    "日本語の文章と English, Ünïcödé and 🙂 emoji",
    "A number: 3.14159, a date: 2024-02-29, code: for (int i = 0; i < n; ++i) sum += a[i];",
    "It is a truth universally acknowledged that a single man in possession of a good fortune "
    "must be in want of a wife. " * 16,
    "word",
]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    config = json.loads((arguments.model / "config.json").read_text())
    tensors = load_file(arguments.model / "model.safetensors")
    tokenizer = Tokenizer.from_file(str(arguments.model / "tokenizer.json"))
    tokenizer.no_padding()
    inputs = encode(tokenizer, TEXTS, 256)
    wanted = unit(np.stack([reference.bert(config, tensors, *e).mean(0) for e in inputs]))
    for kernel in ("auto", "fallback"):
        runner = Runner(arguments.binary, kernel)
        got, errors = runner.embed(arguments.model, TEXTS)
        gap = np.abs(got - wanted).max()
        cosine = (got * wanted).sum(-1).min()
        print(f"{kernel}: at most {gap:.1e} off, cosine at least 1 - {1 - cosine:.1e}", flush=True)
        assert gap < 1e-4 and cosine > 1 - 1e-4
        assert "1 of 8 texts were cut off at 256 tokens" in errors, errors
        assert got[0] @ got[1] > 0.9 > 0.3 > got[0] @ got[2]
        alone = np.concatenate([runner.embed(arguments.model, [t])[0] for t in TEXTS[:2]])
        apart = np.abs(alone - got[:2]).max()
        print(f"{kernel}: at most {apart:.1e} apart alone and in a batch")
        assert apart == 0 if kernel == "auto" else apart < 1e-6


if __name__ == "__main__":
    main()
