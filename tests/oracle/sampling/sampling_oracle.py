"""Compares mlxx's sampling filters and logits processors with mlx-lm's.

The filters of both see the same random log-probabilities, over a grid of
options, and must leave the same tokens with the same values, bit for bit: the
order of filters counts too, since mlx-lm's own make_sampler builds the chain.
Processors see the same logits and token windows. mlxx runs twice, with its
kernels and with plain MLX operations.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm import sample_utils

VOCABULARY = 1000
ROWS = 16


def log_probabilities(random):
    """Rows from nearly flat to nearly certain, and some with ties."""
    spread = np.geomspace(0.1, 12, ROWS)[:, None]
    logits = random.standard_normal((ROWS, VOCABULARY)) * spread
    logits[::5] = np.round(logits[::5])
    logits = mx.array(logits.astype(np.float32))
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def filter_cases():
    grid = itertools.product(
        (0.0, 0.1, 0.5, 0.9, 0.999, 1.0),  # top_p
        ((0.0, 1), (0.05, 1), (0.5, 1), (0.5, 7), (1.0, 1), (1.0, 40)),
        ((0.0, 0.1), (1.0, 0.1), (1.0, 0.0), (1.0, 0.5), (1.0, 0.002)),
        (0, 1, 3, 50, VOCABULARY - 1),  # top_k
        ([], [0, 17, 999]),  # never removed by xtc
    )
    for top_p, (min_p, keep), (probability, threshold), top_k, special in grid:
        if special and probability == 0:
            continue
        yield {
            "top_p": top_p,
            "min_p": min_p,
            "min_tokens_to_keep": keep,
            "xtc_probability": probability,
            "xtc_threshold": threshold,
            "xtc_special_tokens": special,
            "top_k": top_k,
        }


def processor_cases():
    biases = (None, {"3": 2.5, "999": -100.0, "0": 0.125})
    grid = itertools.product(
        biases, (0.0, 1.3, 0.7), (0.0, 0.5, -2.0), (0.0, 0.25), (1, 20, 0)
    )
    for bias, repetition, presence, frequency, context in grid:
        options = {
            "repetition_penalty": repetition,
            "repetition_context_size": context,
            "presence_penalty": presence,
            "frequency_penalty": frequency,
            "penalty_context_size": context,
        }
        if bias:
            options["logit_bias"] = bias
        yield options


def filtered(options, logprobs):
    """What mlx-lm would draw from."""
    chain = sample_utils.make_sampler(temp=1.0, **options)
    return chain(logprobs)


def processed(options, logits, tokens):
    bias = options.get("logit_bias")
    chain = sample_utils.make_logits_processors(
        {int(k): v for k, v in bias.items()} if bias else None,
        options["repetition_penalty"],
        options["repetition_context_size"],
        options["presence_penalty"],
        options["penalty_context_size"],
        options["frequency_penalty"],
        options["penalty_context_size"],
    )
    result = mx.array(logits)
    for processor in chain:
        result = processor(tokens[0], result)
    return result


def differences(cases, answers, expected):
    wrong = 0
    for case in cases:
        ours = np.array(answers[case["name"]])
        theirs = np.array(expected[case["name"]])
        if not np.array_equal(ours, theirs):
            wrong += 1
            rows, ids = np.nonzero(ours != theirs)
            print(
                f"{case['name']} {case['options']}: {len(ids)} differ, "
                f"first in row {rows[0]} token {ids[0]}: mlxx "
                f"{ours[rows[0], ids[0]]!r}, "
                f"mlx-lm {theirs[rows[0], ids[0]]!r}",
                file=sys.stderr,
            )
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="filter_logits")
    program = parser.parse_args().program

    # Fusing would run a compiler, and may change the last bit of a threshold.
    mx.disable_compile()
    # The distribution instead of a draw from it.
    sample_utils.categorical_sampling = lambda logits, temp: logits

    random = np.random.default_rng(3)
    logprobs = log_probabilities(random)
    logits = mx.array(
        random.standard_normal((1, VOCABULARY)).astype(np.float32) * 4
    )
    # Few distinct ids, so that some occur often.
    window = random.integers(0, 40, (1, 60)).astype(np.int32) * 25
    tokens = mx.array(window)

    cases, expected = [], {}
    for options in filter_cases():
        name = f"filter{len(cases)}"
        cases.append({"name": name, "logits": "logprobs", "options": options})
        expected[name] = filtered(options, logprobs)
    for options in processor_cases():
        name = f"processor{len(cases)}"
        cases.append(
            {
                "name": name,
                "logits": "logits",
                "tokens": "tokens",
                "options": options,
            }
        )
        expected[name] = processed(options, logits, tokens)

    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "cases.json").write_text(json.dumps(cases))
        given = folder / "given.safetensors"
        answer = folder / "answer.safetensors"
        mx.save_safetensors(
            str(given),
            {"logprobs": logprobs, "logits": logits, "tokens": tokens},
        )
        wrong = 0
        for kernel in ("auto", "fallback"):
            subprocess.run(
                [program, folder / "cases.json", given, answer],
                check=True,
                env=os.environ | {"MLXX_KERNEL": kernel},
            )
            wrong += differences(cases, mx.load(str(answer)), expected)
    total = 2 * len(cases)
    print(f"{total - wrong} of {total} cases equal")
    return 1 if wrong or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
