"""Compares what an adapter is at the start of training, and its logits and
gradients, with mlx-lm's on the same libmlx, bit for bit.

The start: names, shapes and numbers for every architecture that has a case in
../logits. Logits and gradients: LoRA and DoRA on tiny models, with other numbers
than the start's, in fallback mode; then mlx-lm with the folder that was saved.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.tuner.utils import linear_to_lora_layers, load_adapters
from mlx_lm.utils import load_model

sys.path.insert(0, str(Path(__file__).parent.parent / "logits"))
from architecture_oracle import ARCHITECTURES, write_checkpoint  # noqa: E402
from request_driver import call, same  # noqa: E402

TOKENS = [[5, 17, 3, 99, 42, 8, 120, 77], [9, 9, 54, 31, 2, 66, 140, 1]]
ATTENTION = ["self_attn.q_proj", "self_attn.v_proj"]


def reference(folder, request):
    model, _ = load_model(folder)
    mx.random.seed(request["seed"])
    model.freeze()
    linear_to_lora_layers(
        model,
        request["num_layers"],
        {
            "rank": request["rank"],
            "scale": request["scale"],
            "dropout": 0.0,
            **({"keys": request["keys"]} if request["keys"] else {}),
        },
        use_dora=request["dora"],
    )
    return model


def compare(kind, ours, theirs):
    if set(ours) != set(theirs):
        return f"{kind}: names {sorted(set(ours) ^ set(theirs))[:6]}"
    odd = [n for n in theirs if not same(ours[n], theirs[n])]
    if not odd:
        return None
    name = odd[0]
    if ours[name].shape != theirs[name].shape:
        return f"{kind}: {name} {ours[name].shape}, not {theirs[name].shape}"
    gap = (ours[name] - theirs[name]).astype(mx.float32)
    size = mx.linalg.norm(theirs[name].astype(mx.float32))
    error = (mx.linalg.norm(gap) / mx.maximum(size, 1e-30)).item()
    return f"{kind}: {len(odd)} of {len(theirs)} differ, {name} by {error:.1e}"


def parts(results, start):
    return {
        name.removeprefix(start): value
        for name, value in results.items()
        if name.startswith(start)
    }


def check_start(driver, folder, request, scratch):
    model = reference(folder, request)
    theirs = dict(tree_flatten(model.trainable_parameters()))
    ours = parts(call(driver, request, scratch), "initial/")
    return compare("start", ours, theirs)


def check_step(driver, folder, request, scratch):
    model = reference(folder, request)
    start = dict(tree_flatten(model.trainable_parameters()))
    values = {}
    for name, value in start.items():
        noise = 0.1 * mx.random.normal(value.shape)
        values[name] = value * (1 + noise) if name.endswith(".m") else noise
    file = scratch / "values.safetensors"
    mx.save_safetensors(str(file), values)
    request["values"] = str(file)
    model.update(tree_unflatten(list(values.items())))
    model.train()
    tokens = mx.array(request["tokens"])

    def loss(model):
        return mx.mean(mx.square(model(tokens).astype(mx.float32)))

    value, gradients = nn.value_and_grad(model, loss)(model)
    results = call(driver, request, scratch)
    saved = load_adapters(load_model(folder)[0], request["save"])
    saved.eval()
    ours = parts(results, "logits")
    gradients = dict(tree_flatten(gradients))
    return (
        compare("logits", ours, {"": model(tokens)})
        or compare("gradients", parts(results, "gradient/"), gradients)
        or compare("saved adapters", ours, {"": saved(tokens)})
    )


def request_of(folder, **changes):
    return {
        "model": str(folder),
        "dora": False,
        "rank": 4,
        "scale": 20.0,
        "keys": [],
        "num_layers": -1,
        "seed": 3,
        "tokens": TOKENS,
        "values": "",
        **changes,
    }


# architecture, case, changes of the request
STEPS = {
    "lora": ("llama", "fp32", {}),
    "lora-last-layer": ("llama", "fp32", {"num_layers": 1}),
    "lora-keys": ("llama", "fp32", {"keys": ATTENTION + ["lm_head"]}),
    "lora-bf16": ("llama", "bf16", {}),
    "lora-q4": ("llama", "q4-bf16", {}),
    "lora-embedding": (
        "qwen2",
        "fp32",
        {"keys": ATTENTION + ["model.embed_tokens"]},
    ),
    "lora-experts": ("mixtral", "fp32", {}),
    "lora-experts-q4": ("qwen3_moe", "q4-bf16", {}),
    "dora": ("llama", "fp32", {"dora": True}),
    "dora-q4": ("llama", "q4-bf16", {"dora": True}),
    "dora-biases": ("qwen2", "fp32", {"dora": True}),
    "dora-embedding": (
        "qwen2",
        "fp32",
        {"dora": True, "keys": ATTENTION + ["model.embed_tokens"]},
    ),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--only")
    options = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)

        def report(name, check, architecture, case, changes):
            nonlocal failures
            if options.only and options.only not in name:
                return
            folder = root / f"{architecture}-{case}"
            if not folder.exists():
                chosen = ARCHITECTURES[architecture][case]
                write_checkpoint(folder, chosen, architecture)
            scratch = root / name
            scratch.mkdir()
            request = request_of(
                folder, save=str(scratch / "saved"), **changes
            )
            try:
                problem = check(options.driver, folder, request, scratch)
            except RuntimeError as error:
                problem = str(error)
            print(f"{name}: {problem or 'equal'}", flush=True)
            failures += problem is not None

        for architecture, cases in ARCHITECTURES.items():
            case = next(iter(cases))
            report(
                f"start-{architecture}", check_start, architecture, case, {}
            )
        for name, (architecture, case, changes) in STEPS.items():
            report(f"step-{name}", check_step, architecture, case, changes)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
