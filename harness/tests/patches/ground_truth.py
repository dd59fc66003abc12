"""Does `powercut patch` find bugs among harmless commits, and name the right one? `make patches TREE=DIR`.

Three kinds of patch, of which all are named before any is run:

- *planted*: a fault of `kernels/faults` as one commit of five, at a place that its name draws; the other four
  add a comment to a file beside it.
- *upstream*: a bug of `kernels/regressions` whose mend is in the tree, undone by one commit (`changes.toml`).
- *harmless*: a commit that breaks no promise (`changes.toml`), which `powercut patch` should pass.

A seed draws the order, in which each kind has its turn, so that a part of it is a fair part. `powercut patch`
is asked as anybody would ask.

TREE is a git tree of the kernel that the changes fit. It gets objects, and no branch or file changes.
"""

from __future__ import annotations

import argparse
import enum
import json
import os
import random
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from pathlib import Path

import msgspec

from harness.errors import ExitCode, UsageError
from harness.faults.catalogue import faults
from harness.host.files import write_atomically
from harness.kernels.edits import Edit, apply_edit
from harness.patches.questions import affected_by, stages
from harness.report.page import Cell, Line, Page, PageTable, Section
from harness.report.words import plural
from harness.workloads.load import select_workloads

COMMITS = 5
CHANGES = Path(__file__).with_name("changes.toml")
_WHO = {f"GIT_{who}_{what}": "powercut" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


class Kind(enum.StrEnum):
    """Why a patch is asked about."""

    UPSTREAM = "upstream"
    PLANTED = "planted"
    HARMLESS = "harmless"


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of `changes.toml`, or a planted fault. `name`: of an upstream bug, that of its file."""

    kind: Kind
    name: str
    edits: tuple[Edit, ...]


class Row(msgspec.Struct, frozen=True):
    """What came of one. `first_s`: seconds from the command to the first line that tells of a finding that is
    new, with the kernels that had to be built; None: there was none. `commit`: `right`, `wrong` (or not one
    alone), or empty. `by`: the case of the first finding. `code`: of the process.
    `left`: the stages that were not done.
    """

    kind: Kind
    name: str
    found: bool
    first_s: float | None
    seconds: float
    commit: str
    by: str
    headline: str
    code: int
    left: tuple[str, ...] = ()

    @property
    def as_it_should(self) -> bool:
        """A bug is found; a harmless change is passed, as far as the time allowed."""
        if self.kind is Kind.HARMLESS:
            return self.code in (ExitCode.CONSISTENT, ExitCode.TIME_UP)
        return self.found


class Repository:
    """A git tree in which commits are made without a work tree."""

    def __init__(self, path: Path, scratch: Path) -> None:
        self.path, self._index = path, scratch / "index"

    def git(self, *words: str, given: str | None = None) -> str:
        done = subprocess.run(
            ["git", "-C", str(self.path), *words],
            input=given,
            env=os.environ | {"GIT_INDEX_FILE": str(self._index)} | _WHO,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            check=True,
        )
        return done.stdout

    def text(self, commit: str, file: str) -> str:
        return self.git("show", f"{commit}:{file}")

    def commit(self, parent: str, texts: dict[str, str], subject: str) -> str:
        self.git("read-tree", parent)
        for file, text in texts.items():
            blob = self.git("hash-object", "-w", "--stdin", given=text).strip()
            self.git("update-index", "--cacheinfo", f"100644,{blob},{file}")
        return self.git("commit-tree", self.git("write-tree").strip(), "-p", parent, "-m", subject).strip()

    def beside(self, commit: str, file: str) -> list[str]:
        """The C files of the same folder, but for that one."""
        listed = self.git("ls-tree", "--name-only", commit, f"{Path(file).parent}/").split()
        return [name for name in listed if name.endswith(".c") and name != file]


def changes() -> list[Change]:
    """All of `changes.toml`."""
    listed = msgspec.toml.decode(CHANGES.read_bytes(), type=dict[str, list[Change]])
    return listed["change"]


def in_order(seed: int) -> list[Change]:
    """Every change once, in an order that the seed draws: a kind after another, as long as each has some."""
    every = [Change(Kind.PLANTED, fault.name, tuple(fault.edits)) for fault in faults().values()] + changes()
    draw = random.Random(seed)  # noqa: S311 - an order
    by_kind = []
    for kind in Kind:
        of_kind = sorted((c for c in every if c.kind is kind), key=lambda c: c.name)
        by_kind.append(draw.sample(of_kind, len(of_kind)))
    return [c for c in chain.from_iterable(zip_longest(*by_kind)) if c is not None]


def series(repository: Repository, base: str, change: Change) -> tuple[str, str]:
    """The last of the commits, and the one with the change. Raises UsageError if it does not fit the tree."""
    draw = random.Random(change.name)  # noqa: S311 - a place among commits
    count = COMMITS if change.kind is Kind.PLANTED else 1
    at, head, bad = draw.randrange(count), base, ""
    others = repository.beside(base, change.edits[0].file)
    for number in range(count):
        if number == at:
            texts: dict[str, str] = {}
            for edit in change.edits:
                before = texts.get(edit.file) or repository.text(head, edit.file)
                texts[edit.file] = apply_edit(before, edit)
            head = bad = repository.commit(head, texts, f"change {change.edits[0].function}")
        else:
            file = draw.choice(others)
            text = f"{repository.text(head, file)}\n/* Note {number}. */\n"
            head = repository.commit(head, {file: text}, f"{Path(file).name}: add a note")
    return head, bad


def asked(
    tree: Path, base: str, head: str, out: Path, minutes: float
) -> tuple[int, float | None, float, Path | None, str]:
    """The exit code, seconds to the first new finding and to the end, the directory, if it got so far, and
    the error that ended it.
    """
    limits = ["--minutes", str(minutes), "--first", "--no-lines", "--no-mistakes", "--out", str(out)]
    command = ["patch", str(tree), f"{base}..{head}", *limits]
    begun, first, said = time.monotonic(), None, "the kernel does not build"
    powercut = [sys.executable, "-m", "harness", *command]
    with subprocess.Popen(powercut, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if first is None and line.startswith("new: "):
                first = round(time.monotonic() - begun, 1)
            if line.startswith("powercut: "):
                said = line.strip()
    took = round(time.monotonic() - begun, 1)
    return process.returncode, first, took, max((out / "runs").glob("*-patch"), default=None), said


def tried(repository: Repository, base: str, change: Change, out: Path, minutes: float) -> Row:
    head, bad = series(repository, base, change)
    code, first, took, path, said = asked(repository.path, base, head, out / change.name, minutes)
    if path is None or not (path / "patch.json").exists():
        return Row(change.kind, change.name, False, first, took, "", "", said, code)
    page = json.loads((path / "patch.json").read_text())
    new = [r for r in page["regressions"] if r["standing"] == "new"]
    named = {r["commit"] for r in new}
    commit = "" if not new else "right" if named == {bad} else "wrong"
    by = new[0]["seen"][0]["case"] if new else ""
    left = tuple(page["stages_left"])
    return Row(change.kind, change.name, bool(new), first, took, commit, by, page["headline"], code, left)


class Kept(msgspec.Struct, frozen=True):
    """Of `patches.json`, what another run goes on from."""

    rows: list[Row]


def known_rows(kept: Path) -> list[Row]:
    lines = kept.read_bytes().splitlines() if kept.exists() else []
    return [msgspec.json.decode(line, type=Row) for line in lines]


def keep_rows(kept: Path, told: Path) -> None:
    """Take over from a `patches.json` the rows that are not kept yet."""
    here = {(row.kind, row.name) for row in known_rows(kept)}
    for row in msgspec.json.decode(told.read_bytes(), type=Kept).rows:
        if (row.kind, row.name) not in here:
            keep_row(kept, row)


def keep_row(kept: Path, row: Row) -> None:
    with kept.open("ab") as file:
        file.write(msgspec.json.encode(row) + b"\n")


def rows(asked_for: argparse.Namespace, chosen: Sequence[Change]) -> Iterator[Row]:
    """Those that are not known yet, `more` at most, each kept as it comes."""
    out = Path(asked_for.out).resolve()
    repository = Repository(Path(asked_for.tree).resolve(), out)
    base = repository.git("rev-parse", f"{asked_for.base}^{{commit}}").strip()
    kept = out / "rows.jsonl"
    done = {(row.kind, row.name) for row in known_rows(kept)}
    for change in [c for c in chosen if (c.kind, c.name) not in done][: asked_for.more]:
        try:
            row = tried(repository, base, change, out, asked_for.minutes)
        except UsageError as e:
            print(f"{change.name}: does not fit this tree: {e.what}", flush=True)
            continue
        keep_row(kept, row)
        yield row


# --- what it came to --------------------------------------------------------------------------


def why_missed(row: Row) -> str:
    """Why a bug was not found: whether a stage that asks what shows it had its turn. What shows a planted
    fault is in its file.
    """
    fault, shown_in = faults().get(row.name), []
    if row.code in (ExitCode.USAGE, ExitCode.NOTHING_RUN):
        return row.headline
    if fault and fault.workloads:
        shows = {w.name for w in select_workloads(fault.workloads)}
        for stage in stages(affected_by([edit.file for edit in fault.edits])):
            asks = {w.name for w in select_workloads(stage.workloads)}
            same = (stage.again, stage.disk) == (fault.again, tuple(fault.disk))
            if same and asks & shows and set(stage.modes) & set(fault.modes):
                shown_in.append(stage.name)
        if not shown_in:
            return f"no stage asks {fault.workloads[0]} in {fault.modes[0]}"
    if shown_in and shown_in[0] not in row.left:
        return f"stage {shown_in[0]} was done, and showed nothing"
    begun = f"the time was up in stage {row.left[0]}" if row.left else "every stage was done"
    return begun + (f"; it shows in {shown_in[0]}" if shown_in else "")


def headline(found: Sequence[Row]) -> str:
    parts = []
    for kind in Kind:
        of_kind = [r for r in found if r.kind is kind]
        right = sum(r.as_it_should for r in of_kind)
        what = "passed" if kind is Kind.HARMLESS else "found"
        parts.append(f"{right} of {len(of_kind)} {kind} {what}")
    return ", ".join(parts)


def figures(found: Sequence[Row], chosen: Sequence[Change]) -> list[str]:
    planted = [r for r in found if r.kind is Kind.PLANTED and r.found]
    right = sum(r.commit == "right" for r in planted)
    lines = [f"the right commit of five named for {right} of {plural(len(planted), 'planted fault')}"]
    times = [r.first_s for r in found if r.first_s is not None and r.as_it_should]
    if times:
        lines.append(f"first new finding after {statistics.median(times):.0f} s (median), builds included")
    counts = (f"{sum(c.kind is k for c in chosen)} {k}" for k in Kind)
    lines.append(f"{len(found)} of {len(chosen)} were run ({', '.join(counts)}), in an order drawn before")
    return lines


_ABOUT = (
    "Red: a fault that was missed. `by`: the case that showed it. `commit`: whether the right one of five "
    "was named. `first`: the time to the first new finding; `all`: to the end, builds included."
)


def page(found: Sequence[Row], chosen: Sequence[Change], command: str) -> Page:
    """The table, with what was not run."""
    done = {(r.kind, r.name) for r in found}
    left = {k: [c.name for c in chosen if c.kind is k and (c.kind, c.name) not in done] for k in Kind}
    cells = [
        (
            r.name,
            r.kind,
            Cell("found" if r.found else "nothing new", "pass" if r.as_it_should else "fail", r.headline),
            r.by,
            r.commit if r.kind is Kind.PLANTED else "",
            f"{r.first_s:.0f} s" if r.first_s is not None else "",
            f"{r.seconds:.0f} s",
        )
        for r in sorted(found, key=lambda r: (list(Kind).index(r.kind), not r.found, r.name))
    ]
    columns = ("patch", "kind", "answer", "by", "commit", "first", "all")
    return Page(
        what="patches of known effect",
        subject="powercut patch",
        headline=headline(found),
        kind="pass" if all(r.as_it_should for r in found) else "unknown",
        figures=tuple(figures(found, chosen)),
        sections=(
            Section("What was run", _ABOUT, (PageTable(columns, tuple(cells), figures=5),)),
            Section(
                "What was missed",
                lines=tuple(
                    Line(why_missed(r), r.name) for r in found if not r.found and r.kind is not Kind.HARMLESS
                ),
            ),
            Section("What was not run", lines=tuple(Line(", ".join(n), k) for k, n in left.items() if n)),
        ),
        command=command,
        data={"rows": msgspec.to_builtins(found), "left": left},
    )


def write(page: Page, out: Path) -> None:
    """`report.html`, `summary.txt` and `patches.json`."""
    write_atomically(out / "report.html", page.html())
    write_atomically(out / "summary.txt", page.text())
    write_atomically(out / "patches.json", page.json())


def main() -> int:
    parser = argparse.ArgumentParser(prog="ground_truth", description=__doc__.partition("\n\n")[0])
    parser.add_argument("tree", help="a git tree of Linux that the changes fit")
    parser.add_argument("--base", default="HEAD", help="the commit that the series begin at (HEAD)")
    parser.add_argument(
        "--more", type=int, default=None, help="run so many of those that are left; default: all"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the order (1)")
    parser.add_argument("--minutes", type=float, default=2.0, help="for each (2)")
    parser.add_argument("--known", type=Path, help="a patches.json with rows that need not be run again")
    parser.add_argument("--out", default="reports/patches", help="where the runs go, and what is known stays")
    asked_for = parser.parse_args()
    out = Path(asked_for.out)
    out.mkdir(parents=True, exist_ok=True)
    if asked_for.known:
        keep_rows(out / "rows.jsonl", asked_for.known)
    chosen = in_order(asked_for.seed)
    write_atomically(out / "order.txt", "".join(f"{c.kind} {c.name}\n" for c in chosen))
    for row in rows(asked_for, chosen):
        told = "found" if row.found else "nothing new"
        first = f"{row.first_s:.0f} s" if row.first_s is not None else "-"
        print(
            f"{row.kind:9} {row.name:40} {told:12} {row.commit:6} {first:>6} {row.seconds:5.0f} s", flush=True
        )
    module = ["python", "-m", "harness.tests.patches.ground_truth", "TREE"]
    words = [*module, "--seed", str(asked_for.seed), "--minutes", f"{asked_for.minutes:g}"]
    whole = page(known_rows(out / "rows.jsonl"), chosen, shlex.join(words))
    write(whole, out)
    print(whole.headline)
    return 0


if __name__ == "__main__":
    sys.exit(main())
