"""Single Jinja constructs (tests/data/text/constructs.txt) rendered by mlxx and
by transformers. Those marked as different must still be different.
"""

import argparse
import collections
import sys
from pathlib import Path

from driver import Driver, Refused
from template_oracle import NOW, FixedClock
from transformers.utils import chat_template_utils

FEWEST = 80
VARIABLES = {
    "d": {"a": 1, "b": "x", "c": [1, 2.5, None]},
    "msgs": [
        {"role": "user", "content": " one "},
        {"role": "assistant", "content": "two", "tool": "t"},
        {"role": "user", "content": "three"},
    ],
    "big": 1e16,
    "tiny": 1.5e-7,
}
ESCAPES = {"\\n": "\n", "\\r": "\r"}


def unescape(line):
    """Line ends outside strings; inside of them Jinja reads the escapes."""
    out, quote, i = [], None, 0
    depth = 0
    while i < len(line):
        two = line[i : i + 2]
        if two in ("{{", "{%"):
            depth += 1
        elif two in ("}}", "%}") and quote is None:
            depth -= 1
        if depth > 0 and line[i] in "'\"":
            quote = None if quote == line[i] else quote or line[i]
        if quote is None and two in ESCAPES:
            out.append(ESCAPES[two])
            i += 2
        elif quote is not None and line[i] == "\\":
            out.append(two)
            i += 2
        else:
            out.append(line[i])
            i += 1
    return "".join(out)


def theirs(source):
    try:
        template = chat_template_utils._compile_jinja_template(source)
        return template.render(**VARIABLES), False
    except Exception as error:
        return f"{type(error).__name__}: {error}", True


def ours(driver, source):
    try:
        driver.ask("template", source=source, bos="", eos="")
        return driver.ask("render", context=VARIABLES, now=NOW)["text"], False
    except Refused as refused:
        return str(refused), True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--driver", required=True)
    parser.add_argument("--constructs", required=True, type=Path)
    args = parser.parse_args()

    chat_template_utils.datetime = FixedClock
    driver = Driver(args.driver)
    counts = collections.Counter()
    wrong = 0
    for line in args.constructs.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("# "):
            continue
        known = line.startswith("! ")
        source, _, reason = line.removeprefix("! ").partition(" ## ")
        if known and not reason:
            sys.exit(f"no reason is given: {line}")
        source = unescape(source)
        expected, expected_fails = theirs(source)
        found, fails = ours(driver, source)
        same = fails == expected_fails and (fails or found == expected)
        counts["both fail" if same and fails else "equal" if same else "different"] += 1
        if same == known:
            wrong += 1
            print("NOW EQUAL" if same else "WRONG", line, "\n   ", found, "\n   ", expected)
    driver.close()
    print(f"{sum(counts.values())} constructs:", dict(counts))
    if counts["equal"] < FEWEST:
        sys.exit("too few constructs were compared")
    if wrong:
        sys.exit(f"{wrong} unexpected results")


if __name__ == "__main__":
    main()
