"""Runs one of examples/answer.* as its user would.

    example_test.py COMMAND...

MODEL and PROMPT follow. The model is MLXX_TEST_GGUF, or what `mlxx pull
smollm2` put under MLXX_HOME. Exit code 77 (skipped) if neither is set.
"""
import os
import re
import subprocess
import sys


def run(*arguments):
    return subprocess.run([*sys.argv[1:], *arguments], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def main():
    model = os.environ.get("MLXX_TEST_GGUF")
    if not model:
        if not os.environ.get("MLXX_HOME"):
            print("neither MLXX_TEST_GGUF nor MLXX_HOME is set")
            return 77
        model = "smollm2"
    done = run(model, "What is the capital of France?")
    assert done.returncode == 0, done
    assert done.stdout == "The capital of France is Paris.\n", done
    assert re.match(r"8 tokens in \d+\.\d\d s", done.stderr), done
    for place in ("/no/such/model", "/dev/null"):
        done = run(place, "Hello")
        assert done.returncode == 1 and done.stdout == "", done
        assert re.match(r"(not_found|bad_file): \[.*\] ", done.stderr), done
        assert place in done.stderr, done
    done = run(model)
    assert done.returncode in (1, 2) and done.stderr.startswith("use: "), done
    return 0


if __name__ == "__main__":
    sys.exit(main())
