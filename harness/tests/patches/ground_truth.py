"""Does `powercut patch` find a bug among harmless commits, and name the right one? `make patches TREE=DIR`.

Each planted fault of `kernels/faults` becomes one commit of five, at a place that its name draws; the other
four add a comment to a file beside it. `powercut patch` is asked about the five as anybody would ask.

TREE is a git tree of the kernel that the faults fit. It gets objects, and no branch or file changes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from harness.errors import UsageError
from harness.faults.catalogue import Fault, faults
from harness.kernels.edits import apply_edit

COMMITS = 5
_WHO = {f"GIT_{who}_{what}": "powercut" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


class Row(msgspec.Struct, frozen=True):
    """What came of one. `first_s`: seconds from the command to the first line that tells of a finding that is
    new, with the kernels that had to be built; None: there was none. `commit`: `right`, `wrong` (or not one
    alone), or empty.
    """

    name: str
    found: bool
    first_s: float | None
    seconds: float
    commit: str
    headline: str
    code: int


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


def series(repository: Repository, base: str, fault: Fault) -> tuple[str, str]:
    """The last of the commits, and the one with the fault. Raises UsageError if the fault does not fit the
    tree.
    """
    draw = random.Random(fault.name)  # noqa: S311 - a place among commits
    at, head, bad = draw.randrange(COMMITS), base, ""
    others = repository.beside(base, fault.edits[0].file)
    for number in range(COMMITS):
        if number == at:
            texts: dict[str, str] = {}
            for edit in fault.edits:
                before = texts.get(edit.file) or repository.text(head, edit.file)
                texts[edit.file] = apply_edit(before, edit)
            head = bad = repository.commit(head, texts, f"change {fault.edits[0].function}")
        else:
            file = draw.choice(others)
            text = f"{repository.text(head, file)}\n/* Note {number}. */\n"
            head = repository.commit(head, {file: text}, f"{Path(file).name}: add a note")
    return head, bad


def asked(
    tree: Path, base: str, head: str, out: Path, minutes: float
) -> tuple[int, float | None, float, Path]:
    """The exit code, seconds to the first new finding and to the end, and the directory."""
    limits = ["--minutes", str(minutes), "--no-mistakes", "--out", str(out)]
    command = ["patch", str(tree), f"{base}..{head}", *limits]
    begun, first = time.monotonic(), None
    powercut = [sys.executable, "-m", "harness", *command]
    with subprocess.Popen(powercut, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if first is None and line.startswith("new: "):
                first = round(time.monotonic() - begun, 1)
    took = round(time.monotonic() - begun, 1)
    return process.returncode, first, took, max((out / "runs").glob("*-patch"))


def tried(repository: Repository, base: str, fault: Fault, out: Path, minutes: float) -> Row:
    head, bad = series(repository, base, fault)
    code, first, took, path = asked(repository.path, base, head, out / fault.name, minutes)
    page = json.loads((path / "patch.json").read_text())
    new = [r for r in page["regressions"] if r["standing"] == "new"]
    named = {r["commit"] for r in new}
    commit = "" if not new else "right" if named == {bad} else "wrong"
    return Row(fault.name, bool(new), first, took, commit, page["headline"], code)


def rows(asked_for: argparse.Namespace, chosen: Sequence[Fault]) -> Iterator[Row]:
    out = Path(asked_for.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    repository = Repository(Path(asked_for.tree).resolve(), out)
    base = repository.git("rev-parse", f"{asked_for.base}^{{commit}}").strip()
    kept = out / "rows.jsonl"
    lines = kept.read_bytes().splitlines() if kept.exists() else []
    known = [msgspec.json.decode(line, type=Row) for line in lines]
    done = {row.name for row in known}
    yield from known
    for fault in chosen:
        if fault.name in done:
            continue
        try:
            row = tried(repository, base, fault, out, asked_for.minutes)
        except UsageError as e:
            print(f"{fault.name}: does not fit this tree: {e.what}", flush=True)
            continue
        with kept.open("ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")
        yield row


def table(found: Sequence[Row]) -> str:
    lines = [f"{'fault':36} {'found':6} {'commit':7} {'first':>7} {'all':>7}"]
    for row in found:
        first = f"{row.first_s:.0f} s" if row.first_s is not None else ""
        found_it = "found" if row.found else "missed"
        lines.append(f"{row.name:36} {found_it:6} {row.commit:7} {first:>7} {row.seconds:>5.0f} s")
    times = [row.first_s for row in found if row.first_s is not None]
    right = sum(row.commit == "right" for row in found)
    lines.append(f"{sum(r.found for r in found)} of {len(found)} found, the right commit named for {right}")
    if times:
        lines.append(f"first finding after {statistics.median(times):.0f} s (median)")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="ground_truth", description=__doc__.partition("\n\n")[0])
    parser.add_argument("tree", help="a git tree of Linux that the faults fit")
    parser.add_argument("--base", default="HEAD", help="the commit that the series begin at (HEAD)")
    parser.add_argument("--sample", type=int, default=0, help="so many faults, drawn at random; 0: all")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (1)")
    parser.add_argument("--minutes", type=float, default=3.0, help="for each (3)")
    parser.add_argument("--out", default="reports/patches", help="where the runs go, and what is known stays")
    asked_for = parser.parse_args()
    catalogue = sorted(faults().values(), key=lambda fault: fault.name)
    if asked_for.sample:
        catalogue = random.Random(asked_for.seed).sample(catalogue, asked_for.sample)  # noqa: S311 - a sample
    print("chosen: " + " ".join(fault.name for fault in catalogue), flush=True)
    found = []
    for row in rows(asked_for, catalogue):
        found.append(row)
        print(table([row]).splitlines()[1], flush=True)
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
