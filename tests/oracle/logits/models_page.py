"""docs/models.md from `mlxx architectures --json` and the cases that compare
them with mlx-lm. With --check: fails if the page is not what this writes.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from architecture_oracle import ARCHITECTURES

PAGE = Path(__file__).resolve().parents[3] / "docs" / "models.md"
HEAD = """# Models

<!-- Written by tests/oracle/logits/models_page.py; a test compares it. -->

The families that this build runs, as `mlxx architectures` lists them: a
checkpoint whose `config.json` has one of these `model_type`s loads, from
safetensors in Hugging Face's or MLX's layout; GGUF files of some families too
([formats](formats.md)).

"Compared" says in which forms tiny random checkpoints of the family, with
configs of the kind that publishers write, give the same logits as mlx-lm 0.32.2,
bit for bit, in fallback mode on the CPU: prefill, then token by token. Where a
bound stands instead, [the cases](../tests/oracle/logits) say why. The
checkpoints named are of shapes that the family's code covers; they are too
large to be run in the tests.
"""


def rows(architectures):
    for entry in architectures:
        name = entry["model_type"]
        yield f"\n## {name}\n\n{entry['notes']}.\n"
        if entry["aliases"]:
            aliases = ", ".join(f"`{alias}`" for alias in entry["aliases"])
            yield f"\n- also as {aliases}"
        if entry["features"]:
            yield f"\n- {entry['features']}"
        bounds = {
            case: c.bound for case, c in ARCHITECTURES.get(name, {}).items()
        }
        compared = ", ".join(
            case if bound is None else f"{case} (within {bound:g})"
            for case, bound in bounds.items()
        )
        yield f"\n- compared: {compared}"
        if entry["checkpoints"]:
            yield "\n- checkpoints: " + ", ".join(
                f"`{c}`" for c in entry["checkpoints"]
            )
        yield "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    printed = subprocess.run(
        [options.binary, "architectures", "--json"],
        check=True,
        capture_output=True,
        text=True,
    )
    page = HEAD + "".join(rows(json.loads(printed.stdout)))
    if not options.check:
        PAGE.write_text(page)
        return 0
    if PAGE.read_text() != page:
        print(f"{PAGE} is not what {Path(__file__).name} writes: run it")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
