"""Generated workloads: every short sequence of operations, and long random ones.

A name determines its workload completely, so the name is enough to run it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from harness.model import Workload
from harness.model.schedules import without_schedule
from harness.workloads.generate import chance, sequences

SETS: Mapping[str, tuple[int, str]] = {
    "ace1": (1, "every operation with every persistence point: 207 workloads"),
    "ace1more": (
        1,
        "the same for exchanges, clones, copies, ranges that are taken out or put in, owners, times, O_SYNC, "
        "O_DSYNC, and O_DIRECT at other alignments: 160 workloads",
    ),
    "ace2": (2, "every two of those, one after the other: 101,644 workloads, best in parts (--shard)"),
}
"""Sets of workloads: the number of steps in each sequence, and a description."""


def is_generated(name: str) -> bool:
    """Whether a workload of this name is generated."""
    name, _ = without_schedule(name)
    return chance.NAME.fullmatch(name) is not None or (name.startswith(sequences.PREFIX) and "+" in name)


def generate(name: str) -> Workload:
    """The workload of a generated name. Raises UsageError."""
    plain, _ = without_schedule(name)
    made = chance.workload(plain) if chance.NAME.fullmatch(plain) else sequences.workload(plain)
    return replace(made, name=name)


def names_of(set_name: str) -> Iterator[str]:
    """The names of a set of SETS, in order."""
    if set_name == "ace1more":
        return sequences.further_single()
    return sequences.sequences(SETS[set_name][0])
