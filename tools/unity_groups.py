#!/usr/bin/env python3
"""Which sources of a target may be compiled as one.

Reads lines `folder<TAB>target<TAB>source<TAB>source...` (absolute paths) and
prints CMake commands that give each source a UNITY_GROUP. Two sources share a
group only if no name that one keeps to itself (anonymous namespace, static,
macro) is used by the other, so that nobody has to choose names for the sake of
joint compilation. A source in several targets, or with a name that nothing
else may see, stays alone.
"""
import re
import sys
from pathlib import Path

LINES = 2400  # of a group: about half a gigabyte of compiler

# Declarations start in the first column, as clang-format leaves them.
MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.M)
TYPE = re.compile(r"^(?:template\b.*\n)?(?:class|struct|enum|enum class|union)\s+(\w+)", re.M)
ALIAS = re.compile(r"^(?:using|namespace)\s+(\w+)\s*=", re.M)
TEST = re.compile(r"^(?:TEST|TEST_F|TEST_P)\(\s*(\w+),\s*(\w+)", re.M)
# The name before the first (, =, {, [ or ; of a declaration of anything else.
OTHER = re.compile(r"^(?!#|//|namespace|using|class|struct|enum|union|TEST|\}|\)|template)"
                   r"[A-Za-z_][^(={;\[]*?\b(\w+)\s*[\[(={;]", re.M)
TEMPLATE = re.compile(r"^template\b.*(?:\n .*)*\n[^(={;\[]*?\b(\w+)\s*[\[(={;]", re.M)
COMMENT = re.compile(r"//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)
# Members are no use of a free name.
FREE = re.compile(r"(?:(?<!\.)(?<!->)(?<!::)|(?<=mlxx::))\b[A-Za-z_]\w*\b")


class Headers:
    """What the repository's headers mention, each without those it includes."""

    def __init__(self, root):
        self.root = root
        self.names = {}

    def used(self, text):
        return set().union(*map(self.of_header, INCLUDE.findall(text)))

    def of_header(self, name):
        if name not in self.names:
            path = self.root / name
            text = path.read_text() if path.exists() else ""
            self.names[name] = set(FREE.findall(COMMENT.sub('""', text)))
        return self.names[name]


class Source:
    def __init__(self, path, headers):
        text = Path(path).read_text()
        from_headers = headers.used(text)
        self.path = path
        self.lines = text.count("\n")
        text = COMMENT.sub('""', text)
        self.own = set(MACRO.findall(text))
        self.own |= {f"{suite}_{name}_Test" for suite, name in TEST.findall(text)}
        for kind in (TYPE, ALIAS, OTHER, TEMPLATE):
            self.own |= set(kind.findall(text))
        # `using namespace` and `#undef` reach into what follows.
        self.alone = re.search(r"^\s*using namespace|^#undef", text, re.M) is not None
        self.used = set(FREE.findall(text)) | self.own | from_headers

    def fits(self, other):
        return not (self.own & other.used or other.own & self.used)


def groups(sources):
    found = []
    for source in sources:
        if source.alone:
            continue
        for group in found:
            if sum(s.lines for s in group) + source.lines <= LINES and all(
                    s.fits(source) for s in group):
                group.append(source)
                break
        else:
            found.append([source])
    return [group for group in found if len(group) > 1]


def main():
    targets = [line.rstrip("\n").split("\t") for line in sys.stdin if line.strip()]
    headers = Headers(Path(__file__).resolve().parent.parent)
    seen = {}
    for _, _, *paths in targets:
        for path in paths:
            seen[path] = seen.get(path, 0) + 1
    for folder, target, *paths in targets:
        found = groups([Source(path, headers) for path in paths if seen[path] == 1])
        if not found:
            continue
        print(f"set_target_properties({target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)")
        for number, group in enumerate(found):
            names = " ".join(f'"{source.path}"' for source in group)
            print(f'set_source_files_properties({names} DIRECTORY "{folder}" '
                  f"PROPERTIES UNITY_GROUP {target}_{number})")


main()
