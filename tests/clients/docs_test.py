"""Runs the examples of docs/server.md that are marked with <!-- run -->, word
for word but for the server's address, against a live server."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

from live_server import LiveServer

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "server.md"
MARKED = re.compile(r"<!-- run(?:: ([^>]*?))? -->\n+```(\w+)\n(.*?)```", re.DOTALL)


def command_of(language, code, folder, clients):
    if language == "sh":
        # curl prints an HTTP error and ends with 0 unless told so.
        return ["bash", "-euo", "pipefail", "-c",
                'curl() { command curl --fail-with-body "$@"; }\n' + code]
    if language == "python":
        return [str(clients / "bin" / "python"), "-c", code]
    if language in ("js", "javascript"):
        # Packages are found from the folder of the file that imports them.
        path = clients / "js" / "example.mjs"
        path.write_text(code)
        return [os.environ["MLXX_BUN"], str(path)]
    raise ValueError(f"an example in '{language}' is marked, which nothing runs")


def main():
    clients = pathlib.Path(sys.argv[1])
    examples = MARKED.findall(PAGE.read_text())
    if len(examples) < 5:
        sys.exit(f"only {len(examples)} examples are marked in {PAGE.name}")
    failures = 0
    with LiveServer() as server, tempfile.TemporaryDirectory() as folder:
        for expected, language, code in examples:
            code = code.replace("http://localhost:8080", server.url)
            code = code.replace("http://127.0.0.1:8080", server.url)
            done = subprocess.run(
                command_of(language, code, folder, clients), cwd=folder,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
            )
            if done.returncode != 0 or (expected and expected not in done.stdout):
                failures += 1
                print(f"--- failed with {done.returncode}, '{expected}' was to be in the output:")
                print(code)
                print(done.stdout)
    print(f"{len(examples)} examples, {failures} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
