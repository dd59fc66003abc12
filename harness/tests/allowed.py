"""Does any real mode show what any/posix forbids? `make allowed`; a part of it is `harness/tests/vm/test_allowed.py`.

Each application of `workloads/` is recorded on each mode that a UML kernel has, while its calls are noted, and
every tree that a crash state comes back with is held against these calls. What is refused is a bug or a known
loss of the mode (`allowed.toml` names them), or rules that promise too much.

Rows are kept as they come, with all that was refused; a run goes on where it was ended. What is known is
looked up when the page is made.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.errors import PowercutError
from harness.filesystems.profiles import Profile, profiles, select_profiles
from harness.guests.guest_specs import built_kernel, lacks_drivers, missing_for, missing_program
from harness.host.files import write_atomically
from harness.kernels.find import Kernel, find_kernel
from harness.rules.calls import Notes
from harness.rules.micro import Sync
from harness.ruled.judging import followed
from harness.tests.rules.allowed import Allowed
from harness.tests.vm.came_back import Back, Machine, Recorded, record
from harness.workloads.load import select_workloads

KNOWN = Path(__file__).with_name("allowed.toml")
APPLICATIONS = (
    *("sqlite", "git", "lmdb", "redis", "journal-magic", "unlinked-open"),
    *("parallel-fsync", "parallel-overwrite", "untorn", "postgresql"),
)
FIRST = (
    *("ext4/ordered", "xfs/default", "btrfs/default", "f2fs/posix", "nilfs2/default", "ext3/ordered"),
    *("jfs/default", "gfs2/default", "reiserfs/ordered", "ext2/default", "vfat/default", "exfat/default"),
    *("ext4/nobarrier", "minix/default", "ext4/fast_commit", "ext4/no-journal", "ext4/journal"),
)
"""The modes that come first: one of each file system, and some that lose what others keep."""
LAST = ("postgresql",)
"""Recording it takes as long as a dozen others."""
SMALL_BLOCKS = {"ext4/1k-blocks": 1024, "minix/default": 1024, "vfat": 512, "exfat": 512}
"""Bytes that a file system writes as a whole, where that is less than the 4 KiB of the rules: a block of these
may be torn there.
"""
NO_MOUNT = "it does not mount"


class Refused(msgspec.Struct, frozen=True):
    """Why trees are refused, without numbers; the first state that shows it, in full; and how many do."""

    why: str
    example: str
    state: str
    trees: int


class Row(msgspec.Struct, frozen=True):
    """What came of a program in a mode. `calls` were noted; so many `contents` of disks were recovered, which
    are of all legal states if `every`; `trees` of them differ, by what had been called as well. `strict`: how
    many of these are refused where every call is durable at once. `why_not`: nothing was judged, or not all.
    """

    mode: str
    program: str
    calls: int
    contents: int
    every: bool
    trees: int
    refused: tuple[Refused, ...]
    strict: int
    why_not: str
    seconds: float


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a mode is known to show: `modes`, `programs` and `why` are regular expressions of all of it."""

    modes: str
    why: str
    reason: str
    programs: str = ".*"

    def names(self, row: Row, refused: Refused) -> bool:
        return all(
            re.fullmatch(pattern, text)
            for pattern, text in ((self.modes, row.mode), (self.programs, row.program), (self.why, refused.why))
        )


def known_losses() -> list[Known]:
    """All of `allowed.toml`."""
    return msgspec.toml.decode(KNOWN.read_bytes(), type=dict[str, list[Known]])["known"]


def unknown(row: Row, known: Iterable[Known]) -> list[Refused]:
    """What of a row nobody has explained."""
    return [refused for refused in row.refused if not any(one.names(row, refused) for one in known)]


# --- one program in one mode ------------------------------------------------------------------


def rules_of(notes: Notes, profile: Profile) -> Allowed:
    """What any/posix allows, on blocks of this mode. Raises NotJudged."""
    (posix,) = (one.rules for one in select_profiles(["any/posix"]))
    assert posix is not None
    small = SMALL_BLOCKS.get(profile.name, SMALL_BLOCKS.get(profile.filesystem, posix.block_bytes))
    return Allowed(followed(notes, msgspec.structs.replace(posix, block_bytes=small)))


def refusals(allowed: Allowed, backs: Iterable[Back]) -> Iterator[tuple[Back, str]]:
    """The trees that are refused, and why."""
    for back in backs:
        between = allowed.between(back.returned, back.begun)
        why = NO_MOUNT if back.files is None else allowed.refusal(back.files, between)
        if why:
            yield back, why


def strictly(allowed: Allowed) -> Allowed:
    """The same where every call is durable at once: a control, since no real mode keeps that."""
    effect = allowed.effect
    effect.syncs[:] = [Sync(n, effect.issued(n)) for n in range(len(effect.notes.calls))]
    return allowed


def without_numbers(why: str) -> str:
    """What is the same for refusals that differ in names of objects and in numbers."""
    return re.sub(r"[0-9a-f]*[0-9][0-9a-f]*", "N", why)


def told(refused: Iterable[tuple[Back, str]]) -> tuple[Refused, ...]:
    """The refusals, of each kind the first."""
    found: dict[str, Refused] = {}
    for back, why in refused:
        kind = without_numbers(why)
        trees = found[kind].trees + 1 if kind in found else 1
        first = found.get(kind) or Refused(kind, f"{why}, after {back.returned} calls", str(back.state), 0)
        found[kind] = msgspec.structs.replace(first, trees=trees)
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class Trial:
    """Where programs are recorded, and how many contents of disks are recovered of each at most."""

    kernel: Kernel
    scratch: Path
    contents: int

    def row(self, mode: str, program: str) -> Row:
        """What comes of a program in a mode; why nothing does, if it does not."""
        begun = time.monotonic()
        self.scratch.mkdir(parents=True, exist_ok=True)
        try:
            made = self._row(mode, program)
        except (PowercutError, AssertionError) as e:
            last = traceback.extract_tb(e.__traceback__)[-1]
            why = str(e) if isinstance(e, PowercutError) else f"{last.name}, line {last.lineno}: {e}"
            made = Row(mode, program, 0, 0, False, 0, (), 0, why.strip()[:400] or type(e).__name__, 0)
        finally:
            shutil.rmtree(self.scratch, ignore_errors=True)
        return msgspec.structs.replace(made, seconds=round(time.monotonic() - begun, 1))

    def _row(self, mode: str, program: str) -> Row:
        (profile,), (workload,) = select_profiles([mode]), select_workloads([program])
        recorded = record(Machine(self.kernel, self.scratch), profile, workload)
        with recorded.session:
            return row_of(recorded, mode, program, self.contents)


def row_of(recorded: Recorded, mode: str, program: str, most: int) -> Row:
    """What comes of a recording. Raises NotJudged."""
    profile, notes = recorded.recording.profile, recorded.notes
    allowed = rules_of(notes, profile)
    backs, why_not = [], ""
    try:
        backs.extend(recorded.come_back(most))
    except PowercutError as e:
        why_not = f"ended early: {e}"[:400]
    refused = told(refusals(allowed, backs))
    strict = sum(1 for _ in refusals(strictly(allowed), backs))
    return Row(
        mode,
        program,
        len(notes.calls),
        recorded.contents,
        recorded.every,
        len(backs),
        refused,
        strict,
        why_not,
        0,
    )


# --- all of them ------------------------------------------------------------------------------


def programs() -> list[str]:
    """The applications, in all their variants."""
    return [workload.name for workload in select_workloads(APPLICATIONS)]


def modes(kernel: Kernel) -> tuple[list[str], dict[str, str]]:
    """Those that this kernel has, and why it has not the others."""
    every = profiles()
    lacking = {n: missing_for(p, kernel) or lacks_drivers("uml", kernel, p) for n, p in every.items()}
    had = [name for name, why in lacking.items() if not why]
    rest = sorted((n for n in had if n not in FIRST), key=lambda n: (every[n].on_request, n))
    return [*(n for n in FIRST if n in had), *rest], {n: why for n, why in lacking.items() if why}


def cells(chosen_modes: Sequence[str], chosen: Sequence[str]) -> list[tuple[str, str]]:
    """Every mode with every program, so that a part of them is a fair part: in turn, the first modes first."""
    late = [p for p in chosen if p.startswith(LAST)]
    early = [p for p in chosen if p not in late]
    some = len([m for m in chosen_modes if m in FIRST]) or len(chosen_modes)
    parts = itertools.product((early, late), (chosen_modes[:some], chosen_modes[some:]))
    return [
        (mode, of[(turn + number) % len(of)])
        for of, part in sorted(parts, key=lambda p: p[1] is not chosen_modes)
        for turn in range(len(of))
        for number, mode in enumerate(part)
    ]


def known_rows(kept: Path) -> list[Row]:
    lines = kept.read_bytes().splitlines() if kept.exists() else []
    return [msgspec.json.decode(line, type=Row) for line in lines]


def rows(trial: Trial, wanted: Sequence[tuple[str, str]], kept: Path, until: float) -> Iterator[Row]:
    """Those that are not known yet, each kept as it comes, until the time is up."""
    done = {(row.mode, row.program) for row in known_rows(kept)}
    for mode, program in wanted:
        if (mode, program) in done or time.monotonic() > until:
            continue
        row = trial.row(mode, program)
        with kept.open("ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")
        yield row


def line_of(row: Row, known: Iterable[Known]) -> str:
    """One line about a row."""
    new = unknown(row, known)
    what = row.why_not or ("kept" if not row.refused else "known" if not new else f"NEW: {new[0].why}")
    return (
        f"{row.mode:24} {row.program:24} {row.contents:5} contents {row.trees:5} trees "
        f"{row.strict:5} strictly {row.seconds:6.1f} s  {what}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="allowed", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--out", default="reports/allowed", help="where rows are kept")
    parser.add_argument("--contents", type=int, default=150, help="recovered of each, at most (150)")
    parser.add_argument("--minutes", type=float, default=600.0, help="for all that is left (600)")
    parser.add_argument("--modes", default="", help="these alone, with commas between")
    parser.add_argument("--programs", default="", help="these alone, with commas between")
    asked = parser.parse_args()
    out = Path(asked.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    built = built_kernel("uml", find_kernel("debian-6.12").package_version)
    if built is None:
        sys.exit("powercut kernel build makes the UML kernel that this needs")
    kernel = find_kernel(str(built.image))
    had, lacking = modes(kernel)
    wanted = cells(
        [m for m in had if not asked.modes or m in asked.modes.split(",")],
        [p for p in programs() if not asked.programs or p in asked.programs.split(",")],
    )
    trial, known = Trial(kernel, out / "scratch", asked.contents), known_losses()
    for row in rows(trial, wanted, out / "rows.jsonl", time.monotonic() + 60 * asked.minutes):
        print(line_of(row, known), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
