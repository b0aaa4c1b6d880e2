#!/usr/bin/env python3
"""Trains LoRA adapters on all linear layers of a model in Hugging Face layout
with transformers and PEFT, random tokens, batches of one, AdamW; prints tokens
per second and the peak of memory of every iteration.

    train_peft.py --model FOLDER [--tokens 4096] [--iters 4] [--rank 16]
                  [--no-checkpointing]

On a GPU if there is one. Needs torch, transformers and peft.
"""

import argparse
import time

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--iters", type=int, default=4)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--no-checkpointing", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    on_gpu = torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype="auto").to(device)
    model = get_peft_model(model, LoraConfig(r=options.rank, lora_alpha=2 * options.rank,
                                             target_modules="all-linear"))
    if not options.no_checkpointing:
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable()
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5)
    for iteration in range(1, options.iters + 1):
        ids = torch.randint(0, model.config.vocab_size, (1, options.tokens), device=device)
        start = time.perf_counter()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if on_gpu:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        peak = torch.cuda.max_memory_allocated() / 1e9 if on_gpu else 0
        print(f"iteration {iteration}: {options.tokens / seconds:.1f} tok/s, peak {peak:.1f} GB",
              flush=True)


if __name__ == "__main__":
    main()
