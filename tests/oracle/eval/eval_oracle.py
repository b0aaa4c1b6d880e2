"""Perplexity and divergence of tiny models, and what training data becomes:
`mlxx eval` against mlx-lm's perplexity and data sets, and against float64.

Losses over JSON lines are those of mlx-lm's tokens from mlx-lm's offset on, so
equal losses over equally many tokens mean equal tokens and equal masks.
"""

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.models import llama
from mlx_lm.perplexity import eval_ppl
from mlx_lm.tuner.datasets import ChatDataset, CompletionsDataset, TextDataset
from mlx_lm.utils import load
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEXT = (
    "The quick brown fox jumps over the lazy dog. Water boils at 100 degrees; "
    "in winter the lake freezes.\n\nShe asked: \"Where were you?\" — “At home,” he said. "
) * 12
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONFIG = {
    "model_type": "llama", "vocab_size": 400, "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
}
LENGTH = 32


def make_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([TEXT], trainers.BpeTrainer(
        vocab_size=390, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|im_start|>", "<|im_end|>", "</s>"]))
    return tokenizer


def write_model(folder, seed):
    folder.mkdir()
    mx.random.seed(seed)
    model = llama.Model(llama.ModelArgs.from_dict(CONFIG))
    # Far enough from uniform for the numbers to say something.
    weights = [(name, 3 * value if "proj" in name else value)
               for name, value in tree_flatten(model.parameters())]
    mx.save_safetensors(str(folder / "model.safetensors"), dict(weights), {"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(CONFIG))
    make_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>",
        "chat_template": TEMPLATE}))
    return load(str(folder))


def evaluate(binary, verb, *arguments):
    environment = {**os.environ, "MLXX_KERNEL": "fallback"}
    done = subprocess.run([binary, "eval", verb, *map(str, arguments), "--json"],
                          env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"mlxx eval {verb}: {done.stderr}")
    return json.loads(done.stdout)


def check(what, ours, theirs, bound):
    if not abs(ours - theirs) <= bound * max(1.0, abs(theirs)):
        raise SystemExit(f"{what}: {ours}, expected {theirs}")
    print(f"{what}: {ours} (expected {theirs})")


def check_windows(binary, folder, model, tokenizer):
    text = TEXT
    while len(tokenizer.encode(text)) % LENGTH != 0:
        text = text[:-1]
    (folder / "a.txt").write_text(text, encoding="utf-8")
    data = mx.array(tokenizer.encode(text)).reshape(-1, LENGTH)
    theirs, _ = eval_ppl(model, data, batch_size=4)  # averages in float32
    for batch_size in (1, 4, 8):
        ours = evaluate(binary, "perplexity", folder / "a.txt", "-m", folder / "a",
                        "--length", LENGTH, "--batch-size", batch_size)
        check(f"perplexity, batches of {batch_size}", ours["perplexity"]["mean"], theirs, 1e-5)
        check("tokens", ours["tokens"], data.shape[0] * (LENGTH - 1), 0)


def losses(model, rows):
    total, count = 0.0, 0
    for tokens, offset in rows:
        ids = mx.array([tokens])
        loss = nn.losses.cross_entropy(model(ids[:, :-1]).astype(mx.float32), ids[:, 1:])
        part = np.array(loss[0], dtype=np.float64)[max(offset, 1) - 1:]
        total, count = total + part.sum(), count + part.size
    return total / count, count


CHATS = [
    {"messages": [{"role": "user", "content": "Where is the lake?"},
                  {"role": "assistant", "content": "At home, he said."}]},
    {"messages": [{"role": "system", "content": "Be quick."},
                  {"role": "user", "content": "dog"}, {"role": "assistant", "content": "fox"},
                  {"role": "user", "content": "“Wo?” — über\n\nzwei"},
                  {"role": "assistant", "content": "  in winter\n"}]},
    {"messages": [{"role": "user", "content": "a" * 300}, {"role": "assistant", "content": ""}]},
]
COMPLETIONS = [{"prompt": "The quick brown", "completion": "fox jumps"},
               {"prompt": "", "completion": "lazy dog."}, {"prompt": "Water ", "completion": ""}]
TEXTS = [{"text": "The quick brown fox"}, {"text": "ends itself</s>"}, {"text": "ä"}]


def check_data(binary, folder, model, tokenizer):
    def compare(name, lines, processed, *options):
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        expected, count = losses(model, processed)
        ours = evaluate(binary, "perplexity", path, "-m", folder / "a", "--length", 4096, *options)
        check(f"{name} {' '.join(options)}: tokens", ours["tokens"], count, 0)
        check(f"{name} {' '.join(options)}: loss", ours["loss"]["mean"], expected, 1e-6)

    for mask in (False, True):
        options = ["--mask-prompt"] * mask
        chats = ChatDataset(CHATS, tokenizer, mask_prompt=mask)
        # mlx-lm masks all turns but the last one.
        used = [chat for chat in CHATS if not mask or len(chat["messages"]) == 2]
        compare("chats", used, [chats.process(chat) for chat in used], *options)
        completions = CompletionsDataset(COMPLETIONS, tokenizer, "prompt", "completion", mask)
        compare("completions", COMPLETIONS, [completions.process(c) for c in COMPLETIONS],
                *options)
    texts = TextDataset(TEXTS, tokenizer)
    compare("texts", TEXTS, [texts.process(text) for text in TEXTS])


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def check_divergence(binary, folder, model, other, tokenizer):
    tokens = np.array(tokenizer.encode((folder / "a.txt").read_text(encoding="utf-8")))
    ids = mx.array(tokens.reshape(-1, LENGTH))[:, :-1]
    ours = evaluate(binary, "kl", folder / "a.txt", "-m", folder / "b", "--reference", folder / "a",
                    "--length", LENGTH)
    a, b = (log_softmax(np.array(m(ids), dtype=np.float64)) for m in (model, other))
    kl = (np.exp(a) * (a - b)).sum(-1).flatten()
    check("KL, mean", ours["kl"]["mean"], kl.mean(), 1e-5)
    check("KL, 99 %", ours["kl"]["p99"], np.quantile(kl, 0.99), 1e-4)
    check("same best token", ours["same_top"]["mean"], (a.argmax(-1) == b.argmax(-1)).mean(), 1e-9)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    binary = parser.parse_args().binary
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, tokenizer = write_model(folder / "a", 1)
        other, _ = write_model(folder / "b", 2)
        check_windows(binary, folder, model, tokenizer)
        check_data(binary, folder, model, tokenizer)
        check_divergence(binary, folder, model, other, tokenizer)


if __name__ == "__main__":
    main()
