"""Published chat templates rendered by mlxx and by transformers (jinja2), with
every context of contexts.py. What is not equal must be listed, with a reason,
in tests/data/text/template_exceptions.txt, and everything listed must occur.
"""

import argparse
import collections
import copy
import fnmatch
import sys
from datetime import datetime
from pathlib import Path

from contexts import contexts
from driver import Driver, Refused
from gguf_reading import find_gguf, metadata_of
from transformers.utils import chat_template_utils

FEWEST_TEMPLATES = 70
FEWEST_CONTEXTS = 25
NOW = 1_700_000_000


class FixedClock(datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.fromtimestamp(NOW, tz)


class Exceptions:
    """Lines of `template | context | kind | reason`, names with wildcards."""

    def __init__(self, path):
        self.rules = []
        for number, line in enumerate(path.read_text().splitlines(), 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            fields = [field.strip() for field in line.split("|")]
            if len(fields) != 4 or not all(fields):
                sys.exit(f"{path}:{number}: not 'template | context | kind | reason'")
            self.rules.append((number, *fields[:3]))
        self.used = set()

    def allow(self, template, context, kind):
        for number, template_glob, context_glob, rule_kind in self.rules:
            if (
                kind == rule_kind
                and fnmatch.fnmatchcase(template, template_glob)
                and fnmatch.fnmatchcase(context, context_glob)
            ):
                self.used.add(number)
                return True
        return False

    def unused(self):
        return [rule for rule in self.rules if rule[0] not in self.used]


def reference(template, context):
    """(text, None) or (None, exception)."""
    try:
        return template.render(**copy.deepcopy(context)), None
    except Exception as error:
        return None, error


def compare(driver, template, context):
    """(kind, detail); the kinds that are fine: equal, same_message, both_fail."""
    theirs, failure = reference(template, context)
    try:
        ours = driver.ask("render", context=context, now=NOW)["text"]
    except Refused as refused:
        if failure is None:
            return "mlxx_fails", refused.message
        if type(failure).__name__ == "TemplateError":  # raise_exception
            bare = refused.message.removeprefix("[chat template] ")
            if bare == str(failure).replace("\n", "\\n"):
                return "same_message", ""
            return "other_message", f"{refused.message!r} instead of {failure}"
        return "both_fail", ""
    if failure is not None:
        return "python_fails", f"{type(failure).__name__}: {failure}"
    if ours == theirs:
        return "equal", ""
    at = next(
        (i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b),
        min(len(ours), len(theirs)),
    )
    return "differs", f"at {at}: {ours[at - 30:at + 50]!r} instead of {theirs[at - 30:at + 50]!r}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--driver", required=True)
    parser.add_argument("--templates", required=True, type=Path)
    parser.add_argument("--exceptions", required=True, type=Path)
    parser.add_argument("--show", action="store_true", help="print every exception too")
    args = parser.parse_args()

    chat_template_utils.datetime = FixedClock
    sources = {p.stem: p.read_text(encoding="utf-8") for p in args.templates.glob("*.jinja")}
    sources["SmolLM2"] = metadata_of(find_gguf())["tokenizer.chat_template"]
    exceptions = Exceptions(args.exceptions)
    driver = Driver(args.driver)
    all_contexts = contexts()
    counts = collections.Counter()
    wrong = []
    for name in sorted(sources):
        template = chat_template_utils._compile_jinja_template(sources[name])
        try:
            driver.ask("template", source=sources[name], bos="<s>", eos="</s>")
        except Refused as refused:
            counts["refused"] += len(all_contexts)
            if not exceptions.allow(name, "*", "refused"):
                wrong.append(f"{name}: refused at load: {refused.message}")
            continue
        for context_name, context in all_contexts.items():
            kind, detail = compare(driver, template, context)
            counts[kind] += 1
            if kind in ("equal", "same_message", "both_fail"):
                continue
            allowed = exceptions.allow(name, context_name, kind)
            line = f"{name} | {context_name} | {kind} | {detail}"
            if not allowed:
                wrong.append(line)
            elif args.show:
                print("allowed:", line)
    driver.close()

    total = sum(counts.values())
    print(f"{len(sources)} templates x {len(all_contexts)} contexts = {total} renders:",
          ", ".join(f"{n} {kind}" for kind, n in counts.most_common()))
    for line in wrong:
        print("WRONG", line)
    for rule in exceptions.unused():
        wrong.append(rule)
        print("UNUSED exception in line", rule[0])
    if len(sources) < FEWEST_TEMPLATES or len(all_contexts) < FEWEST_CONTEXTS:
        sys.exit("too few templates or contexts were compared")
    if counts["equal"] < total * 2 // 3:
        sys.exit("too few renders were compared as text")
    if wrong:
        sys.exit(f"{len(wrong)} unexpected differences")


if __name__ == "__main__":
    main()
