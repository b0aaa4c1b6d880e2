#!/usr/bin/env python3
"""Names the tests of some folders, from `ctest --show-only=json-v1` on stdin.

    tests_of_folders.py REPOSITORY FOLDERS_REGEX

A test's folder is where its CMakeLists.txt is: tests/FOLDER/... Only programs
that the build makes are named, not scripts.
"""
import json
import pathlib
import re
import sys


def main():
    tests = pathlib.Path(sys.argv[1]).resolve() / "tests"
    wanted = re.compile(sys.argv[2])
    info = json.load(sys.stdin)
    graph = info["backtraceGraph"]
    for test in info["tests"]:
        command = test.get("command")  # none while the program is not built
        if command and pathlib.Path(command[0]).name != test["name"]:
            continue
        node = test.get("backtrace")
        while node is not None:
            frame = graph["nodes"][node]
            path = pathlib.Path(graph["files"][frame["file"]])
            if path.is_relative_to(tests) and path.name == "CMakeLists.txt":
                parts = path.relative_to(tests).parts
                if len(parts) > 1 and wanted.fullmatch(parts[0]):
                    print(test["name"])
                break
            node = frame.get("parent")


if __name__ == "__main__":
    main()
