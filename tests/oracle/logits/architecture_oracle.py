"""Compares the logits of every architecture with mlx-lm's, bit for bit.

The list of architectures is what `mlxx architectures --json` prints: one
without a case here fails. Each case is a tiny random checkpoint, written as
published ones are; logits_comparison.py says what is compared.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import transformers
from mlx.utils import tree_flatten, tree_map_with_path
from mlx_lm.utils import _get_classes

from dense_architectures import DENSE
from logits_comparison import check_checkpoint
from moe_architectures import MIXTURES
from recurrent_architectures import RECURRENT
from vision_architectures import VISION

ARCHITECTURES = {**DENSE, **MIXTURES, **RECURRENT}
for architecture, cases in VISION.items():
    ARCHITECTURES[architecture] = ARCHITECTURES[architecture] | cases


def make_config(case, architecture):
    config = {}
    if case.config_class:
        kind = getattr(transformers, case.config_class)
        fields = dict(case.fields, dtype=case.dtype)
        config = json.loads(kind(**fields).to_json_string(use_diff=False))
    else:
        config.update(case.fields)
    config.update(case.published)
    config["model_type"] = case.model_type or architecture
    return config


def random_weights(model, case):
    target = getattr(mx, case.dtype)
    mx.random.seed(11)

    def randomise(name, value):
        # Vectors near one, matrices of everyday size.
        noise = mx.random.normal(value.shape)
        chosen = case.randomise and case.randomise(name, noise)
        if chosen is not None:
            return chosen.astype(target)
        if value.ndim == 1:
            return (0.9 + 0.1 * noise).astype(target)
        return (noise / value.shape[-1] ** 0.5).astype(target)

    model.update(tree_map_with_path(randomise, model.parameters()))


def quantize(model, case, config):
    group, bits, *mode = case.quantization
    wanted = {"group_size": group, "bits": bits}
    if mode:
        wanted["mode"] = mode[0]
    config["quantization"] = dict(wanted)
    predicate = getattr(model, "quant_predicate", None)

    def chosen(path, module):
        if not hasattr(module, "to_quantized"):
            return False
        if module.weight.shape[-1] % group != 0:
            return False
        answer = predicate(path, module) if predicate else True
        if isinstance(answer, dict):
            config["quantization"][path] = answer
        return answer

    nn.quantize(model, class_predicate=chosen, **wanted)
    config["quantization_config"] = config["quantization"]


def write_checkpoint(folder, case, architecture):
    config = make_config(case, architecture)
    model_class, arguments_class = _get_classes(config)
    model = model_class(arguments_class.from_dict(config))
    random_weights(model, case)
    if case.quantization:
        quantize(model, case, config)
    weights = dict(tree_flatten(model.parameters()))
    metadata = {"format": "mlx"}
    if case.raw:
        weights = case.raw(weights, config)
        metadata = {"format": "pt"}
    folder.mkdir()
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    return config


def vocabulary(config):
    return config.get("vocab_size") or config["text_config"]["vocab_size"]


def check_case(binary, folder, case, architecture):
    config = write_checkpoint(folder, case, architecture)
    try:
        return check_checkpoint(
            binary,
            folder,
            vocabulary(config),
            case.prompt,
            case.decode,
            case.bound,
            case.batch,
        )
    except RuntimeError as error:
        return str(error)


def known_architectures(binary):
    printed = subprocess.run(
        [binary, "architectures", "--json"],
        check=True,
        capture_output=True,
        text=True,
    )
    return [entry["model_type"] for entry in json.loads(printed.stdout)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--only", nargs="*", help="these architectures")
    options = parser.parse_args()
    known = known_architectures(options.binary)
    chosen = options.only or known
    failures = 0
    with tempfile.TemporaryDirectory() as scratch:
        for architecture in chosen:
            cases = ARCHITECTURES.get(architecture)
            if not cases:
                print(f"{architecture}: no case to compare", flush=True)
                failures += 1
                continue
            for name, case in cases.items():
                folder = Path(scratch) / f"{architecture}-{name}"
                problem = check_case(
                    options.binary, folder, case, architecture
                )
                print(
                    f"{architecture} {name}: {problem or 'equal'}", flush=True
                )
                failures += problem is not None
    for architecture in sorted(set(ARCHITECTURES) - set(known)):
        print(f"{architecture}: a case, but not in this build", flush=True)
        failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
