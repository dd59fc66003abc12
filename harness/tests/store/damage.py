"""A run with a red case, one that failed as expected, one that is undecided and one that passed; and what is
read of it after it was damaged. Used by the ordinary suite with a few thousand changes, and for longer
elsewhere.
"""

from __future__ import annotations

import enum
import random
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from harness.errors import ExitCode, StoreError
from harness.expectations import Expectation
from harness.model import CaseId, CrashState, Judgement
from harness.plan import Plan
from harness.store import RunStore
from harness.store.records import (
    CaseInfo,
    CaseStatus,
    DrawnEntry,
    Evidence,
    How,
    JudgedState,
    Step,
)
from harness.summary import CaseVerdict, Summary, exit_code, summarise
from harness.tests.store.samples import INFO, broken

RED = CaseId("ext4", "ordered", "append-fsync")
KNOWN = CaseId("ext4", "nobarrier", "append-fsync")
OPEN = CaseId("xfs", "default", "append-fsync")
GREEN = CaseId("btrfs", "default", "append-fsync")
VERDICTS = {
    RED: CaseVerdict.FAIL,
    KNOWN: CaseVerdict.XFAIL,
    OPEN: CaseVerdict.UNKNOWN,
    GREEN: CaseVerdict.PASS,
}
STATES = 12


def small_run(root: Path) -> Path:
    """A finished run in a directory of its own below `root`."""
    with RunStore.create(root, "damage", INFO) as store:
        store.put_plan(Plan(configurations=["ext4"], workloads=["append-fsync"]))
        store.set_expectations([Expectation("ext4/nobarrier", "*", "durability", "no flush", "known:1")])
        for case in VERDICTS:
            _add(store, case)
        for finding in store.findings():
            store.put_evidence(finding, Evidence(finding.state, "EXT4-fs: recovery complete", "clean"))
        store.finish(datetime(2026, 1, 2, tzinfo=UTC))
        return store.path


def _add(store: RunStore, case: CaseId) -> None:
    timeline = tuple(DrawnEntry(i, "write", 8 * i, 8) for i in range(STATES))
    steps = (Step(0, "append f 4096", 0, 3),)
    info = CaseInfo(case, generated=STATES, distinct=STATES, log_hash="1", steps=steps, timeline=timeline)
    store.add_case(info)
    store.put_judgements(case, [_judged(case, i) for i in range(STATES)])
    store.set_case_status(case, CaseStatus.DONE)
    store.add_case_seconds(case, 1.5)


def _judged(case: CaseId, i: int) -> JudgedState:
    judgement = Judgement()
    if i % 3 == 0 and case in (RED, KNOWN):
        judgement = broken()
    if i % 3 == 0 and case == OPEN:
        judgement = Judgement(unknown=("guest lost",))
    return JudgedState(CrashState(i), f"{i:032x}", judgement, How.MEMO if i % 2 else How.JUDGED)


class Read(enum.Enum):
    """What came of reading a damaged run."""

    SAME = "the same verdicts"
    REFUSED = "refused in one line"


class Lied(AssertionError):
    """A damaged run read as something that it is not."""


def read(run: Path) -> Read:
    """Everything that reports, `compare` and `repro` read. Raises Lied for another verdict, or an error that
    is none in one line; any other exception is a traceback for the user, and comes through.
    """
    try:
        with RunStore.open(run) as store:
            store.plan()
            summary = summarise(store)
            for case in VERDICTS:
                list(store.iter_verdicts(case))
                store.violated(case)
                store.timeline(case)
            for finding in summary.findings:
                store.evidence(finding)
    except StoreError as e:
        if "\n" in e.what or not e.what or e.exit_code is not ExitCode.UNDECIDED:
            raise Lied(f"not one line: {e.what!r}") from e
        return Read.REFUSED
    _need_same(summary)
    return Read.SAME


def _need_same(summary: Summary) -> None:
    seen = {c.case: c.verdict for c in summary.cases}
    if seen != VERDICTS or exit_code(summary) is not ExitCode.INCONSISTENT:
        raise Lied(f"{exit_code(summary).name}: {seen}")
    counts = {c.case: (c.counts.checked, c.counts.failed, c.counts.unknown) for c in summary.cases}
    if counts != {RED: (12, 4, 0), KNOWN: (12, 4, 0), OPEN: (12, 0, 4), GREEN: (12, 0, 0)}:
        raise Lied(f"{counts}")


Change = Callable[[random.Random, bytearray], None]


def flip_bit(chance: random.Random, data: bytearray) -> None:
    """One bit."""
    at = chance.randrange(len(data))
    data[at] ^= 1 << chance.randrange(8)


def change_byte(chance: random.Random, data: bytearray) -> None:
    """One byte becomes another."""
    at = chance.randrange(len(data))
    data[at] = (data[at] + chance.randrange(1, 256)) % 256


def cut_off(chance: random.Random, data: bytearray) -> None:
    """The end is missing."""
    del data[chance.randrange(len(data)) :]


def zero_sector(chance: random.Random, data: bytearray) -> None:
    """512 bytes are zero."""
    at = chance.randrange(len(data)) // 512 * 512
    data[at : at + 512] = bytes(len(data[at : at + 512]))


def attack(
    run: Path, scratch: Path, name: str, seed: int, times: int, change: Change = change_byte
) -> Counter[Read]:
    """Damage the file `name` of `run` so many times, each time from the sound one, and read the run. Raises
    Lied, which names seed and number, where it reads as something else.
    """
    copy = scratch / "damaged"
    shutil.copytree(run, copy, dirs_exist_ok=True)
    sound = {p: p.read_bytes() for p in copy.iterdir() if p.is_file()}
    found: Counter[Read] = Counter()
    for number in range(times):
        chance = random.Random(f"{seed}/{name}/{number}")  # noqa: S311  # no secret
        for extra in {p for p in copy.iterdir() if p.is_file()} - sound.keys():
            extra.unlink()  # a journal, by SQLite
        for path, data in sound.items():
            if path.name in (name, "powercut.sqlite"):
                path.write_bytes(data)
        changed = bytearray(sound[copy / name])
        change(chance, changed)
        (copy / name).write_bytes(changed)
        try:
            found[read(copy)] += 1
        except Exception as e:
            raise Lied(f"seed {seed}, {name}, {change.__name__}, number {number}: {e!r}") from e
    return found
