"""Small tokenizers of the common kinds, trained here on the awkward texts, so
that no file has to be fetched: name -> tokenizers.Tokenizer."""

import json

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA_BPE = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
TURN = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]


def _added(tokenizer):
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in TURN])
    tokenizer.add_tokens([
        AddedToken("<think>", normalized=False),
        AddedToken("</think>", normalized=False),
        AddedToken("<right>", rstrip=True, normalized=False),
        AddedToken("<left>", lstrip=True, normalized=False),
        AddedToken("wordy", single_word=True, normalized=False),
    ])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True)])
    return tokenizer


def _byte_level(pattern, texts, size, normalizer=None):
    tokenizer = Tokenizer(models.BPE(ignore_merges=pattern is LLAMA_BPE))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return _added(tokenizer)


def _with_bos(tokenizer, bos):
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos} $B",
        special_tokens=[(bos, tokenizer.token_to_id(bos))])
    return tokenizer


def _sentence_piece(texts, metaspace):
    """Byte fallback and either the old conversion (Prepend, Replace) or
    Metaspace."""
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    # Few letters, so that the others become bytes; the trainer's own limit on
    # letters does not choose the same ones each time.
    few = [text for text in texts if all(ord(c) < 0x590 for c in text)]
    trained.train_from_iterator(few, trainers.BpeTrainer(
        vocab_size=900, show_progress=False,
        special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]))
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(m) for m in model["merges"]]
    tokenizer = Tokenizer(models.BPE(
        model["vocab"], merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        tokenizer.decoder = decoders.Sequence([
            decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    else:
        tokenizer.normalizer = normalizers.Sequence([
            normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.decoder = decoders.Sequence([
            decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
            decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return _with_bos(_added(tokenizer), "<s>")


def made_tokenizers(texts):
    return {
        "qwen2": _byte_level(QWEN2, texts, 1200, normalizers.NFC()),
        "llama-bpe": _with_bos(_byte_level(LLAMA_BPE, texts, 1500), "<|im_start|>"),
        "sentencepiece": _sentence_piece(texts, metaspace=False),
        "metaspace": _sentence_piece(texts, metaspace=True),
    }
