#!/usr/bin/env python3
"""`mlxx embed` and `mlxx rerank` on tiny encoders against float64 NumPy and the
tokenizers library, with the fast kernels and without.
"""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile

import numpy as np
from transformers import (BertConfig, Gemma3TextConfig, LlamaConfig, ModernBertConfig,
                          Qwen2Config, Qwen3Config, XLMRobertaConfig)

import encoder_reference as reference
import tiny_encoders as tiny
from decoder_reference import decoder

# Norm of the difference over the norm of the vector.
TOLERANCE = 2e-5


class Runner:
    def __init__(self, binary, kernel):
        self.binary = binary
        self.environment = dict(os.environ, MLXX_KERNEL=kernel)

    def run(self, *arguments, stdin=""):
        done = subprocess.run([self.binary, *map(str, arguments)], input=stdin, text=True,
                              capture_output=True, env=self.environment)
        assert done.returncode == 0, (arguments, done.stderr)
        return done

    def embed(self, folder, texts, *arguments):
        """Through JSON lines, since a text may have line ends in it."""
        lines = "".join(json.dumps({"text": t}) + "\n" for t in texts)
        with tempfile.TemporaryDirectory() as out:
            path = pathlib.Path(out, "vectors.npy")
            done = self.run("embed", "-m", folder, "--jsonl", "-f", "-", "-o", path, *arguments,
                            stdin=lines)
            return np.load(path), done.stderr

    def rerank(self, folder, query, documents, *arguments):
        lines = "".join(json.dumps(t) + "\n" for t in documents)
        done = self.run("rerank", "-m", folder, query, "--jsonl", "-f", "-", "--json", *arguments,
                        stdin=lines)
        results = json.loads(done.stdout)["results"]
        return sorted(results, key=lambda r: r["index"])


def check(name, got, wanted, tolerance=TOLERANCE):
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    assert got.shape == wanted.shape, (name, got.shape, wanted.shape)
    size = np.linalg.norm(wanted, axis=-1)
    # A score may be near zero by itself: beside the others then.
    size = np.maximum(size, np.sqrt((size ** 2).mean())) if wanted.shape[1] < 4 else size
    gap = np.linalg.norm(got - wanted, axis=-1) / size
    assert np.all(gap < tolerance), f"{name}: off by {gap.max():.2e}, row {gap.argmax()}"
    print(f"{name}: {len(got)} vectors, at most {gap.max():.1e} off", flush=True)


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def encode(tokenizer, texts, longest):
    tokenizer.enable_truncation(longest)
    encoded = [tokenizer.encode(*t) if isinstance(t, tuple) else tokenizer.encode(t)
               for t in texts]
    tokenizer.no_truncation()
    return [(np.array(e.ids), np.array(e.type_ids)) for e in encoded]


def bert_case(folder, runners):
    tokenizer = tiny.word_piece()
    config = BertConfig(vocab_size=tokenizer.get_vocab_size(), hidden_size=64,
                        intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                        max_position_embeddings=80).to_dict()
    tensors = tiny.bert_weights("bert", config)
    tiny.write(folder, config, tensors, tokenizer)
    tiny.write_modules(folder, {"word_embedding_dimension": 64, "pooling_mode_mean_tokens": True},
                       max_tokens=40, prompts={"query": "find: ", "document": ""})
    hidden = [reference.bert(config, tensors, ids, types)
              for ids, types in encode(tokenizer, tiny.TEXTS, 40)]
    mean = np.stack([h.mean(0) for h in hidden])
    prompted = ["find: " + t for t in tiny.TEXTS]
    found = np.stack([reference.bert(config, tensors, *e).mean(0)
                      for e in encode(tokenizer, prompted, 12)])
    for runner in runners:
        got, errors = runner.embed(folder, tiny.TEXTS)
        check("bert, mean", got, unit(mean))
        assert "1 of 8 texts were cut off at 40 tokens" in errors, errors
        check("bert, not normalized", runner.embed(folder, tiny.TEXTS, "--no-normalize")[0], mean)
        check("bert, 16 dimensions", runner.embed(folder, tiny.TEXTS, "--dimensions", 16)[0],
              unit(mean[:, :16]))
        for option in (("--prompt-name", "query"), ("--instruction", "find: ")):
            got = runner.embed(folder, tiny.TEXTS, *option, "--max-tokens", 12)[0]
            check("bert, with a prompt", got, unit(found))


def cls_case(folder, runners):
    """A prefix, the first token, Dense modules, another spelling of the config."""
    tokenizer = tiny.word_piece()
    config = BertConfig(vocab_size=tokenizer.get_vocab_size(), hidden_size=64,
                        intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
                        max_position_embeddings=512, architectures=["BertForMaskedLM"]).to_dict()
    tensors = tiny.bert_weights("cls", config, "bert.")
    tensors["cls.predictions.bias"] = np.zeros(config["vocab_size"], np.float32)
    tiny.write(folder, config, tensors, tokenizer, {"model_max_length": 30})
    random = np.random.default_rng(3)
    wide = random.standard_normal((128, 64)).astype(np.float32) / 8
    narrow = random.standard_normal((32, 128)).astype(np.float32) / 8
    bias = random.standard_normal(32).astype(np.float32)
    tiny.write_modules(folder, {"embedding_dimension": 64, "pooling_mode": "cls"},
                       [(wide, None, "torch.nn.modules.linear.Identity"),
                        (narrow, bias, "torch.nn.modules.activation.Tanh")], normalizes=False)
    first = np.stack([reference.bert(config, tensors, *e, prefix="bert.")[0]
                      for e in encode(tokenizer, tiny.TEXTS, 30)])
    wanted = np.tanh(first @ wide.T.astype(np.float64) @ narrow.T.astype(np.float64) + bias)
    for runner in runners:
        check("bert, cls and dense", runner.embed(folder, tiny.TEXTS)[0], wanted)
        check("bert, normalized", runner.embed(folder, tiny.TEXTS, "--normalize")[0], unit(wanted))


def roberta_case(folder, runners):
    tokenizer = tiny.byte_level("<s> $A </s>", "<s> $A </s> </s> $B:1 </s>", ["<s>", "</s>"])
    config = XLMRobertaConfig(vocab_size=tokenizer.get_vocab_size(), hidden_size=48,
                              intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                              max_position_embeddings=62, pad_token_id=1, type_vocab_size=1,
                              id2label={0: "score"}).to_dict()
    tensors = tiny.bert_weights("roberta", config, "roberta.", head=True)
    tiny.write(folder, config, tensors, tokenizer)
    hidden = [reference.bert(config, tensors, ids, 0 * types, "roberta.")
              for ids, types in encode(tokenizer, tiny.TEXTS, 60)]
    pairs = [("is it Paris?", t) for t in tiny.TEXTS]
    scores = [reference.bert_scores(config, tensors,
                                    reference.bert(config, tensors, ids, 0 * types, "roberta."))
              for ids, types in encode(tokenizer, pairs, 60)]
    for runner in runners:
        check("roberta", runner.embed(folder, tiny.TEXTS)[0],
              unit(np.stack([h.mean(0) for h in hidden])))
        results = runner.rerank(folder, "is it Paris?", tiny.TEXTS)
        check("roberta, scores", [[r["relevance_score"]] for r in results],
              1 / (1 + np.exp(-np.stack(scores))))


def reranker_case(folder, runners, labels, activation):
    tokenizer = tiny.word_piece()
    config = BertConfig(vocab_size=tokenizer.get_vocab_size(), hidden_size=64,
                        intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                        max_position_embeddings=64,
                        id2label={i: f"L{i}" for i in range(labels)}).to_dict()
    if activation:
        config["sentence_transformers"] = {"activation_fn": activation}
    tensors = tiny.bert_weights("reranker", config, "bert.", head=True)
    tiny.write(folder, config, tensors, tokenizer)
    query = "what is the capital of France, and what is mean pooling?"
    pairs = [(query, t) for t in tiny.TEXTS]
    logits = np.stack([
        reference.bert_scores(config, tensors, reference.bert(config, tensors, *e, prefix="bert."))
        for e in encode(tokenizer, pairs, 64)])
    is_sigmoid = activation.endswith("Sigmoid") if activation else labels == 1
    applied = 1 / (1 + np.exp(-logits)) if is_sigmoid else logits

    def numbers(results):
        if labels == 1:
            return [[r["relevance_score"]] for r in results]
        assert [s["label"] for s in results[0]["scores"]] == [f"L{i}" for i in range(labels)]
        return [[s["score"] for s in r["scores"]] for r in results]

    for runner in runners:
        check(f"reranker, {labels} labels", numbers(runner.rerank(folder, query, tiny.TEXTS)),
              applied)
        raw = numbers(runner.rerank(folder, query, tiny.TEXTS, "--raw-scores"))
        check("reranker, raw", raw, logits)


def modern_bert_case(folder, runners, pooling):
    tokenizer = tiny.byte_level("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", ["[CLS]", "[SEP]"])
    config = ModernBertConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=64, intermediate_size=96,
        num_hidden_layers=4, num_attention_heads=4, local_attention=16, pad_token_id=0,
        eos_token_id=1, bos_token_id=1, cls_token_id=1, sep_token_id=1, classifier_pooling=pooling,
        id2label={0: "score"}).to_dict()
    tensors = tiny.modern_bert_weights("modern", config, head=True)
    tiny.write(folder, config, tensors, tokenizer)
    hidden = [reference.modern_bert(config, tensors, ids)
              for ids, _ in encode(tokenizer, tiny.TEXTS, 8192)]
    scores = [reference.modern_bert_scores(config, tensors,
                                           reference.modern_bert(config, tensors, ids))
              for ids, _ in encode(tokenizer, [("Paris", t) for t in tiny.TEXTS], 8192)]
    for runner in runners:
        check("modernbert", runner.embed(folder, tiny.TEXTS)[0],
              unit(np.stack([h.mean(0) for h in hidden])))
        results = runner.rerank(folder, "Paris", tiny.TEXTS, "--raw-scores")
        check("modernbert, scores", [[r["relevance_score"]] for r in results], scores)


def last_token_case(folder, runners, config_class, prefix):
    """Qwen3-Embedding and what is made like it."""
    tokenizer = tiny.byte_level("$A <end>", "$A <end> $B <end>", ["<end>"])
    config = config_class(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=64, intermediate_size=96,
        num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=4096, **({"head_dim": 32} if prefix == "" else {})).to_dict()
    tensors = tiny.decoder_weights("last token", config, prefix)
    if prefix:
        tensors["lm_head.weight"] = tensors[prefix + "embed_tokens.weight"]
    tiny.write(folder, config, tensors, tokenizer)
    query = "Instruct: find it\nQuery:"
    tiny.write_modules(folder, {"word_embedding_dimension": 64, "pooling_mode_lasttoken": True},
                       max_tokens=300, prompts={"query": query})
    name = config["model_type"]

    def last(texts):
        return unit(np.stack([decoder(config, tensors, ids, prefix)[-1]
                              for ids, _ in encode(tokenizer, texts, 300)]))

    for runner in runners:
        check(name, runner.embed(folder, tiny.TEXTS)[0], last(tiny.TEXTS))
        check(name + ", with a prompt", runner.embed(folder, tiny.TEXTS, "--prompt-name", "query")[0],
              last([query + t for t in tiny.TEXTS]))


def gemma_case(folder, runners, both_sides):
    """EmbeddingGemma: windows on both sides, mean pooling, two projections."""
    tokenizer = tiny.byte_level("<bos> $A <eos>", "<bos> $A <eos> $B <eos>", ["<bos>", "<eos>"])
    config = Gemma3TextConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=64, intermediate_size=96,
        num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=1, head_dim=32,
        max_position_embeddings=2048, sliding_window=16, query_pre_attn_scalar=32,
        pad_token_id=0, eos_token_id=1, bos_token_id=2,
        use_bidirectional_attention=both_sides).to_dict()
    assert config["sliding_window"] == 16
    tensors = tiny.decoder_weights("gemma", config)
    tiny.write(folder, config, tensors, tokenizer)
    random = np.random.default_rng(9)
    wide = random.standard_normal((256, 64)).astype(np.float32) / 8
    narrow = random.standard_normal((64, 256)).astype(np.float32) / 16
    identity = "torch.nn.modules.linear.Identity"
    tiny.write_modules(
        folder, {"word_embedding_dimension": 64, "pooling_mode_mean_tokens": True},
        [(wide, None, identity), (narrow, None, identity)], max_tokens=2048,
        prompts={"query": "task: search result | query: ", "document": "title: none | text: "})

    def vectors(texts):
        mean = np.stack([decoder(config, tensors, ids).mean(0)
                         for ids, _ in encode(tokenizer, texts, 2048)])
        return unit(mean @ wide.T.astype(np.float64) @ narrow.T.astype(np.float64))

    prompted = ["task: search result | query: " + t for t in tiny.TEXTS]
    for runner in runners:
        check("gemma3", runner.embed(folder, tiny.TEXTS)[0], vectors(tiny.TEXTS))
        check("gemma3, with a prompt", runner.embed(folder, tiny.TEXTS, "--prompt-name", "query")[0],
              vectors(prompted))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    binary = parser.parse_args().binary
    runners = [Runner(binary, kernel) for kernel in ("auto", "fallback")]
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        bert_case(at / "bert", runners)
        cls_case(at / "cls", runners)
        roberta_case(at / "roberta", runners)
        reranker_case(at / "reranker", runners, 1, None)
        reranker_case(at / "identity", runners, 1, "torch.nn.modules.linear.Identity")
        reranker_case(at / "labels", runners, 3, None)
        modern_bert_case(at / "modern", runners, "mean")
        modern_bert_case(at / "modern_cls", runners, "cls")
        last_token_case(at / "qwen3", runners, Qwen3Config, "")
        last_token_case(at / "qwen2", runners, Qwen2Config, "model.")
        last_token_case(at / "llama", runners, LlamaConfig, "model.")
        gemma_case(at / "gemma", runners, True)
        gemma_case(at / "causal", runners, False)


if __name__ == "__main__":
    main()
