"""Token ids, decoding, streaming and tokenised chats: mlxx against Hugging
Face's `tokenizers` and transformers, for the default model's tokenizer (from
GGUF metadata on both sides, by different code) and for made ones.
"""

import argparse
import collections
import random
import sys
import tempfile
from pathlib import Path

from awkward_strings import LONG, SCRIPTS, awkward_strings
from contexts import contexts
from driver import Driver
from gguf_reading import find_gguf, metadata_of, tokenizer_of
from made_tokenizers import made_tokenizers
from transformers import PreTrainedTokenizerFast

FEWEST_STRINGS = 500
FEWEST_SCRIPTS = 20
FEWEST_CHATS = 15
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + (m.content or '') | trim"
    " + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"
)


class Comparison:
    def __init__(self, name):
        self.name = name
        self.counts = collections.Counter()
        self.wrong = 0

    def equal(self, kind, ours, theirs, about):
        self.counts[kind] += 1
        if ours != theirs:
            self.wrong += 1
            if self.wrong <= 10:
                print(f"WRONG {self.name} {kind} {str(about)[:120]!r}:",
                      f"\n  {str(ours)[:300]}\n  {str(theirs)[:300]}")


def begins_twice(ids, bare):
    """A text that spells the token which is added before it; mlxx adds none."""
    return len(ids) > len(bare) and ids[:1] == ids[1:2] == bare[:1]


def bad_bytes(text):
    return "\ufffd" in text


def compare_ids(out, driver, tokenizer, texts):
    for text in texts:
        bare = tokenizer.encode(text, add_special_tokens=False).ids
        for add in (False, True):
            theirs = tokenizer.encode(text, add_special_tokens=add).ids
            if add and begins_twice(theirs, bare):
                theirs = theirs[1:]
            ours = driver.ask("encode", text=text, add=add, parse=True)["ids"]
            out.equal("ids", ours, theirs, text)
        tokenizer.encode_special_tokens = True
        theirs = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = False
        ours = driver.ask("encode", text=text, add=False, parse=False)["ids"]
        out.equal("plain ids", ours, theirs, text)


def compare_decoding(out, driver, tokenizer, texts):
    choose = random.Random(5)
    size = tokenizer.get_vocab_size()
    sequences = [tokenizer.encode(t, add_special_tokens=False).ids for t in texts]
    sequences += [[choose.randrange(size) for _ in range(40)] for _ in range(100)]
    sequences += [s[: len(s) // 2] for s in sequences[:100]]  # cut characters
    for ids in sequences:
        for skip in (False, True):
            theirs = tokenizer.decode(ids, skip_special_tokens=skip)
            ours = driver.ask("decode", ids=ids, skip=skip)["text"]
            pieces = driver.ask("stream", ids=ids, skip=skip)["pieces"]
            out.equal("stream", "".join(pieces), ours, ids)
            # Where bytes are bad, the number of marks is a matter of taste.
            if out.name in ("sentencepiece", "metaspace") and bad_bytes(ours + theirs):
                out.counts["bad bytes"] += 1
            else:
                out.equal("decode", ours, theirs, ids)
            if pieces[-1] and not bad_bytes(pieces[-1]):
                out.equal("nothing whole is held back", pieces[-1], "", ids)


def compare_chats(out, driver, tokenizer, source):
    """Ids of whole chats. Content is a text, and holds no control tokens, so
    that transformers has nothing to confuse."""
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    fast.chat_template = source
    special = [t.content for t in tokenizer.get_added_tokens_decoder().values() if t.special]
    driver.ask("template", source=source, bos="<|im_start|>", eos="<|im_end|>")
    for name, context in contexts().items():
        messages = context["messages"]
        plain = messages and all(isinstance(m.get("content"), str) for m in messages)
        if not plain or context["tools"] or name == "reasoning":
            continue
        if any(token in m["content"] for token in special for m in messages):
            continue
        messages = [{"role": m["role"], "content": m["content"]} for m in messages]
        prompt = context["add_generation_prompt"]
        theirs = fast.apply_chat_template(
            messages, tokenize=True, add_generation_prompt=prompt, return_dict=False)
        ours = driver.ask("chat", messages=messages, tools=None, encode=True,
                          options={"add_generation_prompt": prompt})["ids"]
        out.equal("chat ids", ours, theirs, name)
        end = tokenizer.token_to_id("<|im_end|>")
        turns = ours.count(end)  # a template may add a system turn
        if messages[-1]["role"] == "assistant":
            theirs = fast.apply_chat_template(
                messages, tokenize=False, continue_final_message=True)
            ours = driver.ask("chat", messages=messages, tools=None, encode=False,
                              options={"continue_final_message": True})["text"]
            out.equal("continued chats", ours, theirs, name)
        # The same with control tokens in the text: those of the template only.
        inside = [dict(m, content=m["content"] + "<|im_end|>\n<|im_start|>x") for m in messages]
        ours = driver.ask("chat", messages=inside, tools=None, encode=True,
                          options={"add_generation_prompt": prompt})["ids"]
        out.equal("control tokens", ours.count(end), turns, name)
        text = driver.ask("chat", messages=inside, tools=None, encode=False,
                          options={"add_generation_prompt": prompt})["text"]
        if out.name not in ("sentencepiece", "metaspace", "qwen2"):
            decoded = driver.ask("decode", ids=ours, skip=False)["text"]
            out.equal("chat text", decoded, text, name)


def compare(driver, name, tokenizer, path, template):
    loaded = driver.ask("tokenizer", path=str(path))
    out = Comparison(name)
    special = [t.content for _, t in sorted(tokenizer.get_added_tokens_decoder().items())]
    texts = awkward_strings(special)
    out.equal("vocabulary", loaded["vocab_size"], max(tokenizer.get_vocab().values()) + 1, "size")
    compare_ids(out, driver, tokenizer, texts)
    compare_decoding(out, driver, tokenizer, [t for t in texts if len(t) < 2000])
    compare_chats(out, driver, tokenizer, template)
    print(f"{name}: {len(texts)} texts,", dict(out.counts), f"{out.wrong} wrong,",
          f"loaded in {loaded['seconds'] * 1000:.0f} ms")
    if len(texts) < FEWEST_STRINGS or out.counts["ids"] < FEWEST_STRINGS:
        sys.exit("too few strings were compared")
    if out.counts["chat ids"] < FEWEST_CHATS:
        sys.exit("too few chats were compared")
    return out.wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--driver", required=True)
    args = parser.parse_args()
    if len(SCRIPTS) < FEWEST_SCRIPTS:
        sys.exit("too few scripts")

    driver = Driver(args.driver)
    gguf = find_gguf()
    meta = metadata_of(gguf)
    wrong = compare(driver, "smollm2", tokenizer_of(meta), gguf, meta["tokenizer.chat_template"])
    texts = [*SCRIPTS.values(), *(t[:200] for t in LONG)] * 3
    texts += [str(c) for c in contexts().values()]
    with tempfile.TemporaryDirectory() as folder:
        for name, tokenizer in made_tokenizers(texts).items():
            path = Path(folder) / f"{name}.json"
            tokenizer.save(str(path))
            wrong += compare(driver, name, tokenizer, path, CHATML)
    speed = driver.ask("encode", text=" ".join(SCRIPTS.values()) * 300, add=False, parse=True)
    print(f"{len(speed['ids'])} tokens in {speed['seconds']:.3f} s")
    driver.close()
    if wrong:
        sys.exit(f"{wrong} differences")


if __name__ == "__main__":
    main()
