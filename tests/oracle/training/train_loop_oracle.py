"""Compares the parts of training with others on the same libmlx:

updates: every optimizer and schedule with mlx.optimizers, bit for bit;
losses: DPO and ORPO, and their gradients, with the papers' formulas in
float64;
runs: steps of LoRA, DoRA and all weights with mlx-lm's own trainer on the
same batches and initial values, in fallback mode: losses and what was trained
bit for bit. mlx-lm compiles its step, which fuses operations and so rounds
otherwise: with that there is a bound, without the same bits.
"""

import argparse
import contextlib
import io
import sys
import tempfile
from pathlib import Path

import mlx.core as mx
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.tuner.callbacks import TrainingCallback
from mlx_lm.tuner.trainer import TrainingArgs, default_loss, train
from mlx_lm.tuner.utils import build_schedule, linear_to_lora_layers
from mlx_lm.utils import load_model

for folder in ("logits", "adapters"):
    sys.path.insert(0, str(Path(__file__).parent.parent / folder))
from architecture_oracle import ARCHITECTURES, write_checkpoint  # noqa: E402
from request_driver import call, same  # noqa: E402

CLASSES = {
    "adam": optim.Adam,
    "adamw": optim.AdamW,
    "sgd": optim.SGD,
    "lion": optim.Lion,
    "adafactor": optim.Adafactor,
    "muon": optim.Muon,
}
COSINE = {"name": "cosine_decay", "arguments": [1e-2, 6, 1e-3]}
# name -> (optimizer, arguments, schedule or a rate, warm-up)
UPDATES = {
    "adam": ("adam", {}, 1e-2, 0),
    "adam-corrected": (
        "adam",
        {"bias_correction": True, "betas": [0.8, 0.9], "eps": 1e-6},
        3e-3,
        0,
    ),
    "adamw": ("adamw", {}, 1e-2, 0),
    "adamw-corrected": (
        "adamw",
        {"bias_correction": True, "weight_decay": 0.2},
        1e-2,
        0,
    ),
    "sgd": ("sgd", {}, 1e-1, 0),
    "sgd-decay": ("sgd", {"weight_decay": 0.1}, 1e-1, 0),
    "sgd-momentum": ("sgd", {"momentum": 0.9, "dampening": 0.3}, 1e-1, 0),
    "sgd-nesterov": ("sgd", {"momentum": 0.9, "nesterov": True}, 1e-1, 0),
    "lion": ("lion", {}, 1e-3, 0),
    "lion-decay": ("lion", {"weight_decay": 0.3, "betas": [0.8, 0.9]}, 1e-3, 0),
    "adafactor": ("adafactor", {}, 1e-2, 0),
    "adafactor-rate": (
        "adafactor",
        {"relative_step": False, "beta_1": 0.9, "weight_decay": 0.1},
        1e-2,
        0,
    ),
    "adafactor-warmup": (
        "adafactor",
        {"warmup_init": True, "scale_parameter": False, "eps": [1e-20, 1e-2]},
        1e-2,
        0,
    ),
    "muon": ("muon", {}, 1e-2, 0),
    "muon-plain": (
        "muon",
        {"nesterov": False, "weight_decay": 0.0, "ns_steps": 3},
        1e-2,
        0,
    ),
    "cosine": ("sgd", {}, COSINE, 0),
    "cosine-warmup": ("adamw", {}, COSINE, 3),
    "linear": (
        "sgd",
        {},
        {"name": "linear_schedule", "arguments": [1e-2, 1e-4, 5]},
        0,
    ),
    "exponential": (
        "sgd",
        {},
        {"name": "exponential_decay", "arguments": [1e-2, 0.9]},
        2,
    ),
    "step": (
        "sgd",
        {},
        {"name": "step_decay", "arguments": [1e-2, 0.5, 3]},
        0,
    ),
}
STEPS = 8
SHAPES = {"a": (7, 5), "b": (5, 9), "c": (6,), "d": (3, 4, 2)}


def check_updates(driver, case, scratch):
    name, arguments, rate, warmup = case
    mx.random.seed(1)
    arrays = {f"value/{k}": mx.random.normal(s) for k, s in SHAPES.items()}
    for step in range(STEPS):
        for key, shape in SHAPES.items():
            arrays[f"gradient/{step}/{key}"] = mx.random.normal(shape)
    file = scratch / "arrays.safetensors"
    mx.save_safetensors(str(file), arrays)
    schedule = (
        rate
        if isinstance(rate, dict)
        else {"name": "constant", "arguments": [rate]}
    )
    request = {
        "kind": "updates",
        "optimizer": name,
        "arguments": arguments,
        "schedule": schedule,
        "warmup": warmup,
        "steps": STEPS,
        "arrays": str(file),
    }
    ours = call(driver, request, scratch)
    if isinstance(rate, dict):
        learning_rate = build_schedule({**rate, "warmup": warmup})
    else:
        learning_rate = rate
    optimizer = CLASSES[name](learning_rate=learning_rate, **arguments)
    values = {key: arrays[f"value/{key}"] for key in SHAPES}
    for step in range(STEPS):
        gradients = {k: arrays[f"gradient/{step}/{k}"] for k in SHAPES}
        values = optimizer.apply_gradients(gradients, values)
        mx.eval(values)
        if not same(ours[f"rate/{step}"], optimizer.learning_rate):
            return (
                f"rate of step {step} is {ours[f'rate/{step}'].item()}, not "
                f"{optimizer.learning_rate.item()}"
            )
        for key in SHAPES:
            mine = ours[f"value/{step}/{key}"]
            if not same(mine, values[key]):
                gap = mx.max(mx.abs(mine - values[key])).item()
                return f"{key} of step {step} differs by {gap:.1e}"
    return None


def log_sigmoid(x):
    return -np.logaddexp(0, -x)


def dpo(scores, reference, pairs, beta, _):
    """arXiv 2305.18290, equation 7."""
    sums = scores.sum(axis=1)
    total = 0
    for i, (chosen, rejected) in enumerate(pairs):
        margin = (sums[chosen] - reference[i, 0]) - (
            sums[rejected] - reference[i, 1]
        )
        total -= log_sigmoid(beta * margin)
    return total / len(pairs)


def orpo(scores, targets, pairs, _, weight):
    """arXiv 2403.07691, equations 5 to 7."""
    means = scores.sum(axis=1) / targets.sum(axis=1)
    total = 0
    for chosen, rejected in pairs:
        odds = [p - np.log1p(-np.exp(p)) for p in (means[chosen], means[rejected])]
        total += -means[chosen] - weight * log_sigmoid(odds[0] - odds[1])
    return total / len(pairs)


def check_loss(driver, case, scratch):
    method, spread = case
    random = np.random.default_rng(4)
    rows, length = 6, 9
    targets = np.zeros((rows, length), np.uint8)
    for row in range(rows):
        targets[row, 3 : 5 + row % 4] = 1
    scores = -np.abs(random.normal(size=(rows, length)) * spread) * targets
    scores = scores.astype(np.float32)
    pairs = [[0, 1], [3, 2], [4, 5]]
    reference = -np.abs(random.normal(size=(3, 2)) * 4).astype(np.float32)
    file = scratch / "arrays.safetensors"
    mx.save_safetensors(
        str(file),
        {
            "scores": mx.array(scores),
            "targets": mx.array(targets),
            "reference": mx.array(reference),
        },
    )
    beta, weight = 0.3, 0.25
    ours = call(
        driver,
        {
            "kind": "loss",
            "method": method,
            "beta": beta,
            "lambda": weight,
            "pairs": pairs,
            "arrays": str(file),
        },
        scratch,
    )
    exact = scores.astype(np.float64)

    def value(at):
        if method == "dpo":
            return dpo(at, reference.astype(np.float64), pairs, beta, weight)
        return orpo(at, targets, pairs, beta, weight)

    expected = value(exact)
    if abs(ours["loss"].item() - expected) > 1e-6 * max(1, abs(expected)):
        return f"loss {ours['loss'].item()}, not {expected}"
    # Central differences in float64 are good to about 1e-9.
    slope = np.zeros_like(exact)
    for row, column in zip(*np.nonzero(targets)):
        step = np.zeros_like(exact)
        step[row, column] = 1e-6
        slope[row, column] = (value(exact + step) - value(exact - step)) / 2e-6
    mine = np.array(ours["gradient"]) * targets
    error = np.linalg.norm(mine - slope) / np.linalg.norm(slope)
    return f"gradient differs by {error:.1e}" if error > 2e-6 else None


def batches(vocabulary, steps, rows, length):
    random = np.random.default_rng(7)
    made = []
    for _ in range(steps):
        tokens = np.zeros((rows, length), np.int32)
        ends = random.integers(length // 2, length, rows)
        offsets = random.integers(0, 5, rows)
        for row, end in enumerate(ends):
            tokens[row, :end] = random.integers(1, vocabulary, end)
        made.append((tokens, np.stack([offsets, ends], axis=1)))
    return made


class Losses(TrainingCallback):
    def __init__(self):
        self.values = []

    def on_train_loss_report(self, info):
        self.values.append(info["train_loss"])


def float_loss(model, batch, lengths):
    """mlx-lm's loss, of logits in float32: on the CPU it adds up in theirs, and
    the sum of a vocabulary in bfloat16 has two digits."""
    return default_loss(
        lambda tokens: model(tokens).astype(mx.float32), batch, lengths
    )


def their_run(model, optimizer, given, args):
    """Losses of mlx-lm's own trainer on these batches."""
    losses = Losses()

    def in_order(**_):
        for tokens, lengths in given:
            yield mx.array(tokens), mx.array(lengths)

    with contextlib.redirect_stdout(io.StringIO()):
        train(
            model,
            optimizer,
            train_dataset=None,
            args=args,
            loss=float_loss,
            iterate_batches=in_order,
            training_callback=losses,
        )
    return np.array(losses.values, np.float32)


def check_run(driver, case, scratch, root):
    case = {**RUN, **case}
    architecture, name = case["model"]
    folder = root / f"{architecture}-{name}"
    if not folder.exists():
        made = ARCHITECTURES[architecture]["fp32"]
        if case["quantization"]:
            made = made.variant(quantization=case["quantization"])
        else:
            made = ARCHITECTURES[architecture][name]
        write_checkpoint(folder, made, architecture)
    model, config = load_model(folder)
    mx.random.seed(5)
    model.freeze()
    if case["kind"] == "full":
        for layer in model.layers:
            layer.unfreeze()
    else:
        linear_to_lora_layers(
            model,
            -1,
            {"rank": 8, "scale": 20.0, "dropout": 0.0},
            use_dora=case["kind"] == "dora",
        )
    initial = dict(tree_flatten(model.trainable_parameters()))
    for name in initial:
        if name.endswith("lora_b"):
            initial[name] = 0.02 * mx.random.normal(initial[name].shape)
    model.update(tree_unflatten(list(initial.items())))
    file = scratch / "initial.safetensors"
    mx.save_safetensors(str(file), initial)
    given = batches(config["vocab_size"], case["steps"], *case["shape"])
    asked = []
    for tokens, lengths in given:
        steps = np.arange(tokens.shape[1])
        mask = (steps >= lengths[:, :1]) & (steps <= lengths[:, 1:])
        mask[:, 0] = False
        asked.append(
            {"tokens": tokens.tolist(), "targets": mask.astype(int).tolist()}
        )
    ours = call(
        driver,
        {
            "kind": "run",
            "model": str(folder),
            "trained": case["kind"],
            "rank": 8,
            "scale": 20.0,
            "recompute": case["recompute"],
            "optimizer": case["optimizer"],
            "rate": case["rate"],
            "initial": str(file),
            "batches": asked,
        },
        scratch,
    )
    compiled = case["bound"] > 0
    (mx.enable_compile if compiled else mx.disable_compile)()
    losses = their_run(
        model,
        CLASSES[case["optimizer"]](learning_rate=case["rate"]),
        given,
        TrainingArgs(
            iters=case["steps"],
            steps_per_report=1,
            steps_per_save=1000,
            adapter_file=str(scratch / "adapters.safetensors"),
        ),
    )
    mx.enable_compile()
    theirs = dict(tree_flatten(model.trainable_parameters()))
    if losses[-1] == losses[0]:
        return "nothing was learned"
    if set(theirs) != {n[6:] for n in ours if n.startswith("value/")}:
        return "other names"
    mine = np.array(ours["losses"])
    if not compiled:
        if not np.array_equal(mine, losses):
            first = np.nonzero(mine != losses)[0][0]
            gap = np.abs(mine - losses).max()
            return f"losses differ from step {first} on, by up to {gap:.1e}"
        odd = [n for n in theirs if not same(ours[f"value/{n}"], theirs[n])]
        return f"{len(odd)} arrays differ, {odd[0]}" if odd else None
    error = np.abs(mine - losses).max() / np.abs(losses).max()
    for name, value in theirs.items():
        gap = mx.linalg.norm(ours[f"value/{name}"] - value)
        error = max(error, (gap / mx.linalg.norm(value)).item())
    if error > case["bound"]:
        return f"differs by {error:.1e}"
    return None


# What is not said of a run. "bound": the largest relative difference from
# mlx-lm with its step compiled; 0: the same bits as without.
RUN = {
    "model": ("llama", "fp32"),
    "kind": "lora",
    "quantization": None,
    "steps": 6,
    "shape": (3, 25),
    "recompute": "none",
    "optimizer": "adamw",
    "rate": 1e-4,
    "bound": 0,
}
RUNS = {
    "lora": {"steps": 20},
    "lora-compiled": {"steps": 20, "bound": 1e-5, "rate": 1e-5},
    "lora-sgd": {"optimizer": "sgd", "rate": 1e-3},
    "lora-long": {"shape": (5, 65)},
    "lora-checkpoint": {"recompute": "checkpoint"},
    "lora-segments": {"recompute": "segments"},
    "lora-tied-biases": {"model": ("qwen2", "fp32")},
    "lora-experts": {"model": ("mixtral", "fp32")},
    "lora-window": {"model": ("olmo3", "fp32"), "shape": (2, 40)},
    "lora-sinks": {"model": ("gpt_oss", "fp32"), "shape": (2, 40)},
    "lora-softcap": {"model": ("gemma2", "fp32"), "shape": (2, 40)},
    "lora-recurrent": {"model": ("lfm2", "fp32")},
    "lora-q4": {"model": ("llama", "q4"), "quantization": (64, 4)},
    "lora-q4-bf16": {"model": ("llama", "q4-bf16")},
    "dora": {"steps": 20, "kind": "dora"},
    "dora-compiled": {"steps": 20, "kind": "dora", "bound": 1e-5, "rate": 1e-5},
    "dora-q4-bf16": {"kind": "dora", "model": ("llama", "q4-bf16")},
    "dora-sgd": {"kind": "dora", "optimizer": "sgd", "rate": 1e-3},
    "full": {"steps": 20, "kind": "full"},
    "full-segments": {"kind": "full", "recompute": "segments"},
    "full-tied-biases": {"kind": "full", "model": ("qwen2", "fp32")},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--only")
    options = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)

        def report(name, check, case, *rest):
            nonlocal failures
            if options.only and options.only not in name:
                return
            scratch = root / name
            scratch.mkdir()
            try:
                problem = check(options.driver, case, scratch, *rest)
            except RuntimeError as error:
                problem = str(error)
            print(f"{name}: {problem or 'equal'}", flush=True)
            failures += problem is not None

        for name, case in UPDATES.items():
            report(f"update-{name}", check_updates, case)
        for method in ("dpo", "orpo"):
            for spread in (0.3, 3.0):
                report(f"loss-{method}-{spread}", check_loss, (method, spread))
        for name, case in RUNS.items():
            report(f"run-{name}", check_run, case, root)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
