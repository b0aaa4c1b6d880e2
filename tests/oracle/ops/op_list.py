"""tests/core/ops.txt, and whether the cases cover it."""

from dataclasses import dataclass

import mlx.core as mx
from op_case import FLOATS

TYPES = ("float", "float32", "integer")
REFUSALS = ("arguments", "device", "none")


@dataclass(frozen=True)
class Entry:
    op: str
    types: str
    refusal: str
    reason: str


def read_list(path):
    """op -> Entry. Raises ValueError for a line that says nothing clear."""
    entries = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        words = line.split(None, 3)
        entry = Entry(*words, *[""] * (4 - len(words)))
        place = f"{path.name}:{number}"
        if entry.types not in TYPES or entry.refusal not in REFUSALS:
            raise ValueError(f"{place}: '{line}' is not understood")
        if entry.refusal == "none" and not entry.reason:
            raise ValueError(f"{place}: no reason why nothing is refused")
        if entry.op in entries:
            raise ValueError(f"{place}: {entry.op} is listed twice")
        entries[entry.op] = entry
    if not entries:
        raise ValueError(f"{path.name} lists no op")
    return entries


def covered_dtypes(cases, answers):
    """Dtypes of the operands and results of the cases that are not refused."""
    dtypes = set()
    for name, case in cases.items():
        if not case.refused and not isinstance(answers[name], Exception):
            dtypes.update(o.dtype for o in case.operands if o)
            dtypes.update(dtype for dtype, _, _ in answers[name])
    return dtypes


def refused_in(cases, dtype):
    """Whether a case with both factors of the dtype is refused."""
    return any(
        case.refused
        and all(o is None or o.dtype == dtype for o in case.operands[:2])
        for case in cases.values()
    )


def refusals_missing(entry, cases):
    """What the refused cases of an op lack; None when they are as listed."""
    refused = [case for case in cases.values() if case.refused]
    on_device = [case for case in refused if "stream" in case.arguments]
    if entry.refusal == "none":
        return "has a refused case, but none is listed" if refused else None
    if entry.refusal == "device":
        if len(on_device) < len(refused):
            return "refuses arguments, not only a device"
        if on_device or mx.is_available(mx.gpu):
            return None
        return "has no refused case on a missing device"
    if len(refused) == len(on_device):
        return "has no case whose arguments are refused"
    return None


def gaps(entries, bound_ops, cases, answers):
    """A line for everything between the list, the bindings and the cases that
    does not fit together."""
    found = []
    tested = {case.op for case in cases.values()}
    for op in sorted(entries.keys() - bound_ops):
        found.append(f"{op} is listed, but ops_driver has no binding for it")
    for op in sorted(bound_ops - entries.keys()):
        found.append(f"{op} is bound in ops_driver, but not listed")
    for op in sorted(entries.keys() - tested):
        found.append(f"{op} is listed, but has no cases")
    for op in sorted(tested - entries.keys()):
        found.append(f"{op} has cases, but is not listed")
    for op in sorted(entries.keys() & tested):
        entry = entries[op]
        own = {name: case for name, case in cases.items() if case.op == op}
        dtypes = covered_dtypes(own, answers)
        if not dtypes:
            found.append(f"{op} has no case that is not refused")
        if entry.types == "float":
            lacking = [d for d in FLOATS if d not in dtypes]
            found += [f"{op} has no case in {dtype}" for dtype in lacking]
        elif entry.types == "float32" and not refused_in(own, "bfloat16"):
            found.append(f"{op} has no case in which bfloat16 is refused")
        elif entry.types == "integer" and dtypes & set(FLOATS):
            found.append(f"{op} has cases in floats, but is listed as integer")
        missing = refusals_missing(entry, own)
        if missing:
            found.append(f"{op} {missing}")
    return found
