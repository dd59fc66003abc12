"""Does any real mode show what any/posix forbids? `make allowed`; a part is harness/tests/vm/test_allowed.py.

Each application of `workloads/` is recorded on each mode that a UML kernel has, while its calls are noted,
and every tree that a crash state comes back with is held against these calls. What is refused is a bug or a
known loss of the mode (`allowed.toml` names them), or rules that promise too much.

Rows are kept as they come, with all that was refused; a run goes on where it was ended. What is known is
looked up when the page is made.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from harness.errors import PowercutError
from harness.filesystems.profile import Profile
from harness.filesystems.profiles import profiles, select_profiles
from harness.guests.guest_specs import built_kernel, lacks_drivers, missing_for
from harness.guests.initramfs import need_brought
from harness.host.files import write_atomically
from harness.host.resources import resource
from harness.kernels.find import Kernel, find_kernel
from harness.model import Workload
from harness.ruled.judging import followed
from harness.rules.calls import Notes
from harness.rules.micro import Sync
from harness.tests.rules.allowed import Allowed
from harness.tests.vm.came_back import Back, Machine, NotMounted, Recorded, record
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
SMALL_BLOCKS = {"ext4/1k-blocks": 1024, "minix/default": 1024, "vfat": 512, "exfat": 512, "udf": 512}
"""Bytes that a file system writes as a whole, where that is less than the 4 KiB of the rules: a block of the
rules may be torn there.
"""
NOBODY = 65534
OR = "; or "
"""Between what is said of each file that a name may be of."""


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

    def names(self, row: Row, part: str) -> bool:
        """Whether it is about a part of why a tree of a row was refused."""
        patterns = (self.modes, row.mode), (self.programs, row.program), (self.why, part)
        return all(re.fullmatch(pattern, text) for pattern, text in patterns)


def known_losses() -> list[Known]:
    """All of `allowed.toml`."""
    return msgspec.toml.decode(KNOWN.read_bytes(), type=dict[str, list[Known]])["known"]


def reasons(row: Row, refused: Refused, known: Iterable[Known]) -> list[str]:
    """What explains a refusal. Where a name may be of several files, what is known of one is enough."""
    parts = refused.why.split(OR)
    return [k.reason for k in known if any(k.names(row, part) for part in parts)]


def unknown(row: Row, known: Iterable[Known]) -> list[Refused]:
    """What of a row nobody has explained."""
    return [refused for refused in row.refused if not reasons(row, refused, known)]


# --- one program in one mode ------------------------------------------------------------------


@functools.cache
def cluster() -> bytes:
    """A new cluster of PostgreSQL, which refuses to be run by root, as an archive."""
    alone = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    with tempfile.TemporaryDirectory(prefix="powercut-cluster-") as scratch:
        if os.geteuid() == 0:
            os.chown(scratch, NOBODY, NOBODY)
        argv = [*(alone if os.geteuid() == 0 else []), str(resource("workloads", "postgresql", "prepare"))]
        environment = {**os.environ, "TMPDIR": scratch}
        return subprocess.run(argv, env=environment, cwd=scratch, stdout=subprocess.PIPE, check=True).stdout


def with_cluster(workload: Workload) -> Workload:
    """The workload, that of PostgreSQL with a cluster beside `run`: a guest makes one in most of a cell's
    time. It is copied by the same calls. Raises EnvironmentLacks.
    """
    if not workload.name.startswith("postgresql"):
        return workload
    need_brought(workload)
    return replace(workload, files={**workload.files, "/workload/postgresql/cluster.tar.gz": cluster()})


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
        files = back.files
        why = files.why if isinstance(files, NotMounted) else allowed.refusal(files, between)
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
    """The refusals, of each kind the first: a name may be of several files, for the same reasons."""
    found: dict[str, Refused] = {}
    for back, why in refused:
        kind = OR.join(dict.fromkeys(without_numbers(why).split(OR)))
        trees = found[kind].trees + 1 if kind in found else 1
        example = f"{textwrap.shorten(why, 300)}, after {back.returned} calls"
        first = found.get(kind) or Refused(kind, example, str(back.state), 0)
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
        shutil.rmtree(self.scratch, ignore_errors=True)  # of one that was killed
        self.scratch.mkdir(parents=True)
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
        recorded = record(Machine(self.kernel, self.scratch), profile, with_cluster(workload))
        with recorded.session:
            return row_of(recorded, mode, program, self.contents)


def row_of(recorded: Recorded, mode: str, program: str, most: int) -> Row:
    """What comes of a recording. Raises NotJudged."""
    profile, notes = recorded.recording.profile, recorded.notes
    allowed = rules_of(notes, profile)
    backs: list[Back] = []
    why_not = ""
    try:
        backs.extend(recorded.come_back(most))
    except PowercutError as e:
        why_not = f"ended early: {e}"[:400]
    refused = told(refusals(allowed, backs))
    strict = sum(1 for _ in refusals(strictly(allowed), backs))
    seen = recorded.contents, recorded.every, len(backs)
    return Row(mode, program, len(notes.calls), *seen, refused, strict, why_not, 0)


# --- all of them ------------------------------------------------------------------------------


def programs() -> list[str]:
    """The applications, in all their variants."""
    return [workload.name for workload in select_workloads(APPLICATIONS)]


def modes(kernel: Kernel) -> tuple[list[str], list[str]]:
    """Those that this kernel has, and the others."""
    every = profiles()
    lacking = [n for n, p in every.items() if missing_for(p, kernel) or lacks_drivers("uml", kernel, p)]
    had = [name for name in every if name not in lacking]
    rest = sorted((n for n in had if n not in FIRST), key=lambda n: (every[n].on_request, n))
    return [*(n for n in FIRST if n in had), *rest], lacking


def chosen(names: Sequence[str], asked: str, what: str) -> list[str]:
    """Those that are asked for, with commas between; all if none is."""
    if missing := [name for name in filter(None, asked.split(",")) if name not in names]:
        sys.exit(f"{missing[0]!r} is no {what}; there are {', '.join(names)}")
    return [name for name in names if not asked or name in asked.split(",")]


def cells(chosen_modes: Sequence[str], programs: Sequence[str]) -> list[tuple[str, str]]:
    """Every mode with every program, so that a part of them is a fair part: in turn, first modes first."""
    late = [p for p in programs if p.startswith(LAST)]
    early = [p for p in programs if p not in late]
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


# --- the page ---------------------------------------------------------------------------------

_PAGE = """\
# What real modes show, held against `any/posix`

Each application of `workloads/` was recorded on real modes, in UML with Linux {release}, while its calls
were noted. Each tree that a crash state came back with was held against these calls: by `any/posix`, could it
be left when so many had returned and so many had begun?

{command}; {machine}.
Rows were kept as they came, and this page was made of them on {when}.

**{cells} of {wanted} cells: {kept} kept, {known} with known losses alone, {new} with something new,
{not_judged} not judged. {contents:,} contents of disks were recovered, {trees:,} trees held against the
calls, {refused:,} refused.**

- *contents*: disks that differ and were recovered, {most} of a cell at most, spread over its crash times;
  *all*: of all legal states.
- *trees*: what came back, told apart by the calls that had been made as well.
- *strictly*: of these, how many are refused if every call counts as durable at once. It is a control: where
  it is 0, the cell could have shown little.
- *refused*: by `any/posix`, with the numbers of the reasons below.

Reasons, of which `harness/tests/allowed.toml` says what they cover:

{reasons}

{table}

## What was not run, or not judged

{missing}
"""


def page_of(
    found: Sequence[Row], wanted: Sequence[tuple[str, str]], lacking: Iterable[str], **run: str
) -> str:
    """All cells in Markdown, with those that are missing. `run`: words about the run."""
    known, order = known_losses(), {cell: n for n, cell in enumerate(wanted)}
    found = sorted(found, key=lambda r: (r.mode, r.program))
    named = list(dict.fromkeys(k for row in found for one in row.refused for k in reasons(row, one, known)))
    judged = [row for row in found if row.trees]
    new = [row for row in judged if unknown(row, known)]
    words = {
        "cells": len(found),
        "wanted": len(order),
        "kept": sum(not row.refused for row in judged),
        "known": sum(bool(row.refused) for row in judged) - len(new),
        "new": len(new),
        "not_judged": len(found) - len(judged),
        "contents": sum(row.contents for row in found),
        "trees": sum(row.trees for row in found),
        "refused": sum(one.trees for row in found for one in row.refused),
        "reasons": "\n".join(_item(f"{n}.", reason) for n, reason in enumerate(named, 1)) or "None.",
        "table": "\n".join(_table(judged, named, known)),
        "missing": "\n".join(_missing(found, wanted, lacking)),
    }
    return _PAGE.format_map(
        {"release": "", "command": "", "when": "", "machine": "", "most": ""} | run | words
    )


def _item(mark: str, text: str) -> str:
    """An item of a list, in lines of 110 columns."""
    return textwrap.fill(
        text, 110, initial_indent=f"{mark} ", subsequent_indent=" " * (len(mark) + 1), break_on_hyphens=False
    )


def _table(found: Iterable[Row], named: Sequence[str], known: Sequence[Known]) -> Iterator[str]:
    yield "| mode | application | calls | contents | trees | strictly | refused |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | --- |"
    for row in found:
        contents = f"{row.contents}{', all' if row.every else ''}"
        parts = [row.mode, row.program, row.calls, contents, row.trees, row.strict, _cell(row, named, known)]
        yield f"| {' | '.join(map(str, parts))} |"


def _cell(row: Row, named: Sequence[str], known: Sequence[Known]) -> str:
    new = [f"**{one.trees} NEW** ({one.example}, {one.state})" for one in unknown(row, known)]
    explained = [one for one in row.refused if reasons(row, one, known)]
    numbers = sorted({named.index(k) + 1 for one in explained for k in reasons(row, one, known)})
    if explained:
        new.append(f"{sum(one.trees for one in explained)} known ({', '.join(map(str, numbers))})")
    said = " ".join("; ".join([*new, *filter(None, [row.why_not])]).split())  # fsck's output has lines
    return said.replace("|", "\\|")


def _not_judged(found: Iterable[Row]) -> Iterator[str]:
    """One item for all cells with one reason, but for numbers and the program's name."""
    known = known_losses()
    alike: dict[str, list[Row]] = {}
    for row in found:
        kind = row.why_not.partition("failed while")[2] or row.why_not  # the operation names the program
        alike.setdefault(without_numbers(" ".join(kind.split())), []).append(row)
    for rows in alike.values():
        first = rows[0]
        of: dict[tuple[str, ...], list[str]] = {}
        for mode in dict.fromkeys(row.mode for row in rows):
            of.setdefault(tuple(row.program for row in rows if row.mode == mode), []).append(f"`{mode}`")
        where = "; ".join(f"{', '.join(programs)} in {', '.join(of[programs])}" for programs in of)
        why = [first.why_not, *(one.reason for one in known if one.names(first, first.why_not))]
        yield _item("-", f"not judged: {where}: {'. '.join(why)}")


def _missing(
    found: Sequence[Row], wanted: Sequence[tuple[str, str]], lacking: Iterable[str]
) -> Iterator[str]:
    yield from _not_judged([row for row in found if not row.trees])
    done = {(row.mode, row.program) for row in found}
    missing = [cell for cell in wanted if cell not in done]
    modes_of: dict[tuple[str, ...], list[str]] = {}
    for mode in dict.fromkeys(mode for mode, _ in missing):
        left = tuple(sorted(program for other, program in missing if other == mode))
        modes_of.setdefault(left, []).append(f"`{mode}`")
    yield f"- not run: {len(missing)} cells"
    everything = tuple(sorted({program for _, program in wanted}))
    for left, of in modes_of.items():
        what = "no application was run" if left == everything else f"without {', '.join(left)}"
        yield _item("-", f"{', '.join(of)}: {what}")
    if lacking:
        yield _item("-", f"this kernel lacks {', '.join(f'`{mode}`' for mode in lacking)}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="allowed", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--out", default="reports/allowed", help="where rows are kept")
    parser.add_argument("--contents", type=int, default=150, help="recovered of each, at most (150)")
    parser.add_argument("--minutes", type=float, default=600.0, help="for all that is left (600)")
    parser.add_argument("--modes", default="", help="these alone, with commas between")
    parser.add_argument("--programs", default="", help="these alone, with commas between")
    parser.add_argument("--page", type=Path, help="write the page here, in Markdown")
    asked = parser.parse_args()
    out = Path(asked.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    built = built_kernel("uml", find_kernel("debian-6.12").package_version)
    if built is None:
        sys.exit("powercut kernel build makes the UML kernel that this needs")
    kernel = find_kernel(str(built.image))
    had, lacking = modes(kernel)
    wanted = cells(chosen(had, asked.modes, "mode"), chosen(programs(), asked.programs, "program"))
    trial, known = Trial(kernel, out / "scratch", asked.contents), known_losses()
    for row in rows(trial, wanted, out / "rows.jsonl", time.monotonic() + 60 * asked.minutes):
        print(line_of(row, known), flush=True)
    found = known_rows(out / "rows.jsonl")
    if asked.page:
        run = {
            "release": built.name.split("-")[2],
            "command": f"`python -m harness.tests.allowed --contents {asked.contents}`",
            "when": time.strftime("%d %B %Y, %H:%M UTC", time.gmtime()),
            "machine": f"{os.cpu_count()} cores",
            "most": str(asked.contents),
        }
        write_atomically(asked.page, page_of(found, wanted, lacking, **run))
    return 1 if any(unknown(row, known) for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
