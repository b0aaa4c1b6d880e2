"""Adapters with PEFT itself, in both directions: it loads what `mlxx train
--peft` wrote and computes the same logits, and what it saved the binary reads
with the same logits. PEFT and torch are installed in --venv the first time, a
few gigabytes, so this is no part of CI.
"""

import argparse
import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from tempfile import TemporaryDirectory

REQUIREMENTS = Path(__file__).parent / "peft_requirements.txt"
EXACT = ["--cpu-activations", "fp32"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
# Both sides add up float32 in orders of their own.
BOUND = 2e-5


def install(folder):
    """The environment's interpreter, made if it is not there or another one."""
    wanted = REQUIREMENTS.read_text()
    marker = folder / "requirements.txt"
    python = folder / "bin" / "python"
    if not marker.exists() or marker.read_text() != wanted:
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run(
            [python, "-m", "pip", "install", "-q", "-r", REQUIREMENTS],
            check=True,
        )
        marker.write_text(wanted)
    return python


def run(binary, *arguments):
    done = subprocess.run(
        [binary, *map(str, arguments)], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip())


def write_model(folder):
    """A tiny Llama, square in some projections, with words of one letter."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.2,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=False,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    words = {"<s>": 0, "</s>": 1} | {c: 2 + i for i, c in enumerate(LETTERS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"unk_token": "a", "bos_token": "<s>", "eos_token": "</s>"})
    )


def base(folder):
    from transformers import LlamaForCausalLM

    return LlamaForCausalLM.from_pretrained(folder).eval()


def peft_logits(model):
    import torch

    tokens = torch.tensor([[(i * 11 + 5) % 60 for i in range(24)]])
    with torch.no_grad():
        return model(tokens).logits[0].float().numpy()


def our_logits(binary, model, adapter, scratch):
    from safetensors.numpy import load_file

    tokens = scratch / "tokens.json"
    tokens.write_text(json.dumps([(i * 11 + 5) % 60 for i in range(24)]))
    out = scratch / "logits.safetensors"
    run(binary, "logits", "-m", model, "--tokens", tokens, "-o", out,
        "--adapter", adapter, *EXACT)
    logits = load_file(out)["logits"]
    return logits.reshape(logits.shape[-2:])


def compare(ours, theirs, plain):
    import numpy as np

    size = np.linalg.norm(theirs)
    if np.linalg.norm(theirs - plain) < 1e-2 * size:
        return "the adapter changes nothing"
    error = np.linalg.norm(ours - theirs) / size
    return f"logits differ by {error:.1e}" if error > BOUND else None


def from_us(binary, model, scratch, options):
    """Trained here, loaded by PEFT."""
    from peft import PeftModel

    lines = [{"text": " ".join(LETTERS[i:] + LETTERS[:i])} for i in range(12)]
    data = scratch / "train.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    adapters = scratch / "adapters"
    run(binary, "train", "-m", model, "--data", data, "--adapter-path",
        adapters, "--peft", "--iters", 8, "--learning-rate", 1e-2, *options)
    plain = peft_logits(base(model))
    theirs = peft_logits(PeftModel.from_pretrained(base(model), adapters / "peft"))
    for folder in (adapters, adapters / "peft"):
        problem = compare(
            our_logits(binary, model, folder, scratch), theirs, plain
        )
        if problem:
            return f"{folder.name}: {problem}"
    return None


def from_peft(binary, model, scratch, options):
    """Made and saved by PEFT, loaded here."""
    import torch
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(9)
    config = LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **options)
    changed = get_peft_model(base(model), config).eval()
    with torch.no_grad():
        for name, value in changed.named_parameters():
            if "lora_magnitude" in name:
                value.mul_(1 + 0.1 * torch.randn_like(value))
    changed.save_pretrained(scratch / "adapter")
    return compare(
        our_logits(binary, model, scratch / "adapter", scratch),
        peft_logits(changed),
        peft_logits(base(model)),
    )


ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
OURS = {
    "lora": ["--lora-scale", 2],
    "lora-rank-2-last-layer": ["--lora-rank", 2, "--num-layers", 1],
    "lora-alpha": ["--lora-alpha", 12],
    "rslora": ["--lora-alpha", 12, "--rslora"],
    "dora": ["--fine-tune-type", "dora", "--lora-scale", 2],
}
THEIRS = {
    "lora": {"r": 4, "lora_alpha": 12, "target_modules": ALL},
    "lora-square": {"r": 8, "target_modules": ["q_proj", "o_proj"]},
    "lora-all-linear": {"r": 2, "target_modules": "all-linear"},
    "rslora": {"r": 4, "use_rslora": True, "target_modules": ALL},
    "dora": {"r": 4, "use_dora": True, "target_modules": ALL},
    "patterns": {
        "r": 4,
        "target_modules": ALL,
        "rank_pattern": {"q_proj": 2},
        "alpha_pattern": {"down_proj": 24},
    },
    "layers": {
        "r": 4,
        "target_modules": ["q_proj", "down_proj"],
        "layers_to_transform": [1],
    },
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--venv", type=Path)
    options = parser.parse_args()
    if options.venv:
        return subprocess.run(
            [install(options.venv), __file__, "--binary", options.binary]
        ).returncode
    os.environ["TRANSFORMERS_OFFLINE"] = "1"
    failures = 0
    with TemporaryDirectory() as temporary:
        root = Path(temporary)
        model = root / "model"
        write_model(model)
        for kind, check, cases in (
            ("ours", from_us, OURS),
            ("theirs", from_peft, THEIRS),
        ):
            for name, case in cases.items():
                scratch = root / f"{kind}-{name}"
                scratch.mkdir()
                try:
                    problem = check(options.binary, model, scratch, case)
                except RuntimeError as error:
                    problem = str(error)
                print(f"{kind}-{name}: {problem or 'equal'}", flush=True)
                failures += problem is not None
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
