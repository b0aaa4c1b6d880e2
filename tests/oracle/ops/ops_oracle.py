"""Compares MLX's ops as C++ calls them with live Python MLX, bit for bit.

tests/core/ops.txt lists the ops. Each must have a binding in ops_driver, cases
in float32 and in bfloat16 (unless the list says which types it is for), and a
refused call (unless the list says why there is none); nothing may be tested
that is not listed. The driver and this process use the same libmlx.
"""

import argparse
import filecmp
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import elementwise_cases
import fast_cases
import index_cases
import matrix_cases
import mlx.core as mx
import numpy as np
import quantized_cases
import random_cases
import reduction_cases
import shape_cases
from op_case import SAME_MESSAGE
from op_list import gaps, read_list
from self_test import self_test

TABLES = (
    elementwise_cases,
    reduction_cases,
    shape_cases,
    index_cases,
    matrix_cases,
    quantized_cases,
    fast_cases,
    random_cases,
)


def all_cases():
    cases = [case for table in TABLES for case in table.cases()]
    if mx.is_available(mx.gpu):
        # Refused only where there is no GPU.
        cases = [case for case in cases if "stream" not in case.arguments]
    return {f"case{number}": case for number, case in enumerate(cases)}


def as_bytes(array):
    """The elements as unsigned numbers: NaNs and zeros compare by their bits."""
    unsigned = {1: mx.uint8, 2: mx.uint16, 4: mx.uint32, 8: mx.uint64}
    return np.array(mx.view(array, unsigned[array.dtype.size]))


class Driver:
    """The answers of one run of ops_driver."""

    def __init__(self, program, cases, exchanged=()):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            names = {}
            given = [c.for_driver(name, names) for name, c in cases.items()]
            (folder / "cases.json").write_text(json.dumps(given))
            arrays = dict(names.values())
            mx.save_safetensors(str(folder / "given.safetensors"), arrays)
            files = "cases.json given.safetensors out.safetensors out.json"
            command = [program, *(folder / f for f in files.split())]
            subprocess.run([*command, *exchanged], check=True)
            report = json.loads((folder / "out.json").read_text())
            self.arrays = mx.load(str(folder / "out.safetensors"))
            mx.eval(self.arrays)
        self.ops = set(report["ops"])
        self.cases = report["cases"]
        self.version = report["version"]
        self.libmlx = Path(report["libmlx"])

    def outputs(self, name):
        """Dtype, shape and bytes (none without elements) of each output."""
        for i, output in enumerate(self.cases[name]["outputs"]):
            array = self.arrays.get(f"{name}.{i}")
            content = None if array is None else as_bytes(array)
            yield output["dtype"], output["shape"], content


def same_libmlx(driver):
    """Only one build of MLX is bound to give equal bits."""
    here = Path(mx.__file__).parent / "lib" / driver.libmlx.name
    return here.exists() and filecmp.cmp(here, driver.libmlx, shallow=False)


def python_answers(cases):
    """Of every case its outputs, or the exception."""
    answers = {}
    for name, case in cases.items():
        try:
            outputs = case.in_python()
            answers[name] = [
                (
                    str(array.dtype).removeprefix("mlx.core."),
                    list(array.shape),
                    as_bytes(array) if array.size else None,
                )
                for array in outputs
            ]
        except (ValueError, RuntimeError, TypeError, IndexError) as error:
            answers[name] = error
    return answers


def difference(case, name, driver, answer):
    """What is wrong with one case, in a line; None when nothing is."""
    got = driver.cases[name]
    if "broken" in got:
        return f"cannot be run: {got['broken']}"
    if case.refused:
        if "error" not in got:
            return "C++ does not refuse it"
        if not isinstance(answer, Exception):
            return "Python does not refuse it"
        if case.refused == SAME_MESSAGE and got["error"] != str(answer):
            return f"C++ says '{got['error']}', Python '{answer}'"
        return None
    if isinstance(answer, Exception):
        return f"Python refuses it: {type(answer).__name__} {answer}"
    if "error" in got:
        return f"C++ refuses it: {got['error']}"
    outputs = list(driver.outputs(name))
    if len(outputs) != len(answer):
        return f"{len(outputs)} outputs, in Python {len(answer)}"
    for i, (ours, theirs) in enumerate(zip(outputs, answer)):
        if ours[:2] != theirs[:2]:
            return f"output {i} is {ours[:2]}, in Python {theirs[:2]}"
        if (ours[2] is None) != (theirs[2] is None):
            return f"output {i} has no elements on one side"
        if ours[2] is not None and not np.array_equal(ours[2], theirs[2]):
            where = np.argwhere(ours[2] != theirs[2])[0].tolist()
            wrong = int((ours[2] != theirs[2]).sum())
            return (
                f"output {i}: {wrong} elements differ, first at {where}: "
                f"bits {ours[2][tuple(where)]:#x}, "
                f"in Python {theirs[2][tuple(where)]:#x}"
            )
    return None


def differences(cases, driver, answers):
    """name of case -> what is wrong"""
    wrong = {}
    for name, case in cases.items():
        found = difference(case, name, driver, answers[name])
        if found:
            wrong[name] = found
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--driver", required=True, help="ops_driver")
    parser.add_argument("--list", required=True, type=Path, help="ops.txt")
    parser.add_argument(
        "--self-test",
        action="store_true",
        help="spoil answers and cases, and check that each is reported",
    )
    given = parser.parse_args()

    mx.set_default_device(mx.cpu)
    entries = read_list(given.list)
    cases = all_cases()
    answers = python_answers(cases)
    driver = Driver(given.driver, cases)
    if driver.version != mx.__version__:
        print(f"the driver has MLX {driver.version}, Python {mx.__version__}")
        return 1
    if not same_libmlx(driver):
        print(f"{driver.libmlx} is not Python's libmlx", file=sys.stderr)
        return 1
    wrong = differences(cases, driver, answers)
    missing = gaps(entries, driver.ops, cases, answers)
    for name, found in wrong.items():
        print(f"{cases[name]}: {found}", file=sys.stderr)
    for line in missing:
        print(line, file=sys.stderr)
    print(
        f"{len(cases) - len(wrong)} of {len(cases)} calls of "
        f"{len(entries)} ops equal"
    )
    if wrong or missing:
        return 1
    if given.self_test:
        return self_test(
            sys.modules[__name__],
            given.driver,
            entries,
            cases,
            driver,
            answers,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
