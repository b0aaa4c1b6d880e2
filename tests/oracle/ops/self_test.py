"""Shows that the comparison fails when it must: every spoiled answer, binding
and case is reported, and nothing else."""

import copy
import sys
from dataclasses import replace

import mlx.core as mx
from op_list import gaps


class SelfTest:
    def __init__(self, oracle, program, entries, cases, driver, answers):
        self.oracle = oracle
        self.program = program
        self.entries = entries
        self.cases = cases
        self.driver = driver
        self.answers = answers
        self.checks = 0
        self.failures = 0

    def expect(self, what, found, expected):
        self.checks += 1
        if found != expected:
            self.failures += 1
            print(f"{what}: {found}, expected {expected}", file=sys.stderr)

    def spoiled(self, name, spoil):
        """What is reported when `spoil` has changed the answer to a case."""
        driver = copy.copy(self.driver)
        driver.arrays = dict(driver.arrays)
        driver.cases = driver.cases | {name: copy.deepcopy(driver.cases[name])}
        spoil(driver)
        case = {name: self.cases[name]}
        return self.oracle.differences(case, driver, self.answers)

    def with_elements(self, op):
        """A case of the op with a first output that has elements."""
        for name, case in self.cases.items():
            if case.op == op and f"{name}.0" in self.driver.arrays:
                return name
        raise ValueError(f"{op} never has an output with elements")

    def flipped_bits(self):
        for op in self.entries:
            name = self.with_elements(op)

            def flip(driver, key=f"{name}.0"):
                array = driver.arrays[key]
                raw = self.oracle.as_bytes(array)
                raw.flat[raw.size - 1] ^= 1
                driver.arrays[key] = mx.view(mx.array(raw), array.dtype)

            found = self.spoiled(name, flip)
            says = found.get(name, "").startswith(
                "output 0: 1 elements differ"
            )
            self.expect(f"a flipped bit of {op}", says, True)

    def changed_descriptions(self):
        def change(key, value):
            def spoil(driver):
                driver.cases[name]["outputs"][0][key] = value

            return spoil

        name = self.with_elements("add")
        for key, value in (("dtype", "float16"), ("shape", [1, 2])):
            found = self.spoiled(name, change(key, value))
            self.expect(f"another {key}", list(found), [name])

        refused = next(n for n, c in self.cases.items() if c.refused)

        def reword(driver):
            driver.cases[refused]["error"] += "."

        def accept(driver):
            driver.cases[refused] = {"outputs": []}

        def refuse(driver):
            driver.cases[name] = {"error": "no"}

        for what, spoil, where in (
            ("another message", reword, refused),
            ("a call no longer refused", accept, refused),
            ("a call refused", refuse, name),
        ):
            self.expect(what, list(self.spoiled(where, spoil)), [where])

    def exchanged_bindings(self):
        pairs = [("add", "subtract"), ("max", "min"), ("tril", "triu")]
        for pair in pairs:
            cases = {n: c for n, c in self.cases.items() if c.op in pair}
            driver = self.oracle.Driver(self.program, cases, pair)
            wrong = self.oracle.differences(cases, driver, self.answers)
            ops = {cases[name].op for name in wrong}
            self.expect(f"{pair} exchanged", ops, set(pair))

    def gaps_found(self, entries=None, ops=None, cases=None):
        return gaps(
            self.entries if entries is None else entries,
            self.driver.ops if ops is None else ops,
            self.cases if cases is None else cases,
            self.answers,
        )

    def gaps_in_coverage(self):
        entries = self.entries
        shorter = {op: e for op, e in entries.items() if op != "add"}
        lines = [
            "add is bound in ops_driver, but not listed",
            "add has cases, but is not listed",
        ]
        self.expect("not listed", self.gaps_found(shorter), lines)

        longer = entries | {"nothing": replace(entries["add"], op="nothing")}
        lines = [
            "nothing is listed, but ops_driver has no binding for it",
            "nothing is listed, but has no cases",
        ]
        self.expect("an unknown op", self.gaps_found(longer), lines)

        def without(drop):
            return {n: c for n, c in self.cases.items() if not drop(c)}

        def is_add(case):
            return case.op == "add"

        for what, drop, lines in (
            ("no cases", is_add, ["add is listed, but has no cases"]),
            (
                "no refused case",
                lambda c: is_add(c) and c.refused,
                ["add has no case whose arguments are refused"],
            ),
            (
                "no bfloat16",
                lambda c: is_add(c)
                and any(o.dtype == "bfloat16" for o in c.operands),
                ["add has no case in bfloat16"],
            ),
        ):
            self.expect(what, self.gaps_found(cases=without(drop)), lines)

        for op, refusal, line in (
            ("add", "none", "add has a refused case, but none is listed"),
            ("add", "device", "add refuses arguments, not only a device"),
            (
                "exp",
                "arguments",
                "exp has no case whose arguments are refused",
            ),
        ):
            changed = entries | {op: replace(entries[op], refusal=refusal)}
            self.expect(f"{op} {refusal}", self.gaps_found(changed), [line])


def self_test(oracle, program, entries, cases, driver, answers):
    test = SelfTest(oracle, program, entries, cases, driver, answers)
    test.flipped_bits()
    test.changed_descriptions()
    test.exchanged_bindings()
    test.gaps_in_coverage()
    print(
        f"{test.checks - test.failures} of {test.checks} spoiled runs reported"
    )
    return 1 if test.failures else 0
