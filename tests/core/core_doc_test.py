#!/usr/bin/env python3
"""core_doc_test.py DOCUMENT EXAMPLES PROGRAMS

Runs the examples and checks that the document tells the truth about them:

- each program of EXAMPLES (a folder of .cpp files) stands in the document, with
  its output after `$ <name>`, and succeeds
- that output is what it printed, if it ran on a CPU as in the document
- the lines of each cpp block stand in one of the sources, one after the other
"""
import pathlib
import re
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUN = re.compile(r"^\$ (\w+)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def stripped(text):
    return "\n".join(line.strip() for line in text.splitlines())


def run(program, folder):
    """Returns what it printed and what is wrong with that."""
    done = subprocess.run([program], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=100)
    wrong = f"ended with {done.returncode}: {done.stderr.decode()}" if done.returncode else None
    return done.stdout.decode(), wrong


def check(document, examples, programs):
    blocks = BLOCK.findall(document.read_text(encoding="utf-8"))
    shown = {name: output for language, text in blocks if not language
             for name, output in RUN.findall(text)}
    sources = {path.stem: stripped(path.read_text(encoding="utf-8"))
               for path in sorted(examples.glob("*.cpp"))}
    if not sources:
        yield f"no examples in {examples}"
    for language, text in blocks:
        if language == "cpp" and not any(stripped(text) in source for source in sources.values()):
            yield f"in no example:\n{text}"
    for name in shown.keys() - sources.keys():
        yield f"there is no example {name}"
    printed = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in sources:
            printed[name], wrong = run(programs / name, folder)
            if wrong:
                yield f"{name} {wrong}"
    is_cpu = printed.get("custom_kernel", "").startswith("cpu:")
    for name, output in printed.items():
        if name not in shown:
            yield f"{name} is not in the document, it prints\n{output}"
        elif is_cpu and stripped(shown[name]) != stripped(output):
            yield f"{name} prints\n{output}and not\n{shown[name]}"


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    wrong = list(check(*(pathlib.Path(name).resolve() for name in sys.argv[1:])))
    for text in wrong:
        print(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
