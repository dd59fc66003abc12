"""Every command of the how-tos and of README is carried out, for a minute at most. `make nightly` runs
these.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.errors import ExitCode
from harness.tests.markdown import ROOT, command_lines, documents

pytestmark = pytest.mark.nightly
WITHOUT = {
    "arch/x86/boot/bzImage": "a kernel that the reader built",
    "bzImage": "a kernel that the reader built",
    "fs/ext4/ext4.ko": "a module that the reader built",
    "linux-source-6.12/fs/ext4/ext4.ko": "a module that the reader built",
    "linux-source-6.12/": "a tree that the reader unpacked; my-patch.md has one",
    "linux-source-7.3": "a package that only another suite of the distribution has",
    "IMAGE": "a kernel that the reader built",
    "workloads/my-db": "the program that docs/tutorials/my-program.md makes, whose session runs it",
    "strace.log": "a log of the reader's own program; harness/tests/workloads/test_import.py makes one",
    "./my-db.toml": "what that log becomes",
    "~/linux": "the tree of docs/tutorials/my-patch.md, whose session asks the same",
    "BASE..HEAD": "commits in a tree of the reader's own, as above",
    "NAME": "a file that the reader has just written",
    "ext4/ordered@NAME": "a file that the reader has just written",
    "tls://HOST:8786": "a cluster; harness/tests/cluster has the same with processes of this host",
    "ext4-fast_commit/fio-randwrite": "a finding of the reader's own run; report-upstream.md asks it of one",
    "reports/runs/*-nightly": "runs of the reader's own",
    "--serve": "it serves until somebody ends it; harness/tests/cli asks it",
    "--shell": "it waits for a person; harness/tests/vm/test_repro.py types",
    "rootfs": "the image takes minutes; harness/tests/vm builds it where it is needed",
    "trace": "needs that image",
    "measure": "needs that image, and minutes for each measurement",
    "bench": "makes the machine busy for minutes: a figure of its own",
    "findings": "`make findings` reproduces them, which takes hours",
}
"""Words of lines that are not carried out here, each with its reason."""
BEGUN = {
    "campaign": ("campaign", "-c", "ext4/ordered", "--hours", "0.02"),
    "litmus": ("litmus", "-c", "ext4/ordered", "replace-no-fsync"),
}
"""What leaves the folder `reports/runs/DATE-NAME` that a line resumes."""
QUICKLY = ("run", "campaign")
"""Commands that `--minutes` or `--hours` ends in good order."""
FINE = (ExitCode.CONSISTENT, ExitCode.INCONSISTENT, ExitCode.TIME_UP)
LIMITED = ("--minutes", "--hours", "--budget")
CUT_SHORT = (ExitCode.UNDECIDED, ExitCode.NOTHING_RUN)
"""What one of these may end with on a busy host: its time was up before anything was decided."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a reader is: a folder with a run that found something, an earlier one, and a packed finding."""

    folder: Path
    words: dict[str, str]


def lines() -> Iterator[tuple[str, tuple[str, ...]]]:
    seen = set()
    for path in documents():
        name = str(path.relative_to(ROOT))
        if name == "README.md" or name.startswith("docs/howto/"):
            for words in map(tuple, command_lines(path.read_text())):
                if not set(words) & set(WITHOUT) and words not in seen:
                    seen.add(words)
                    yield path.name, words


def powercut(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "harness", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, uml_kernel: Path) -> Place:
    folder = tmp_path_factory.mktemp("reader")
    for name in ("vms", "workloads"):
        (folder / name).symlink_to(ROOT / name)
    for name in ("before", "after"):
        asked = ("-c", "ext4/ordered,ext4/nobarrier", "-w", "append-fsync")
        assert powercut(folder, "run", *asked, "--name", name).returncode == ExitCode.INCONSISTENT
    before, after = sorted((folder / "reports" / "runs").iterdir(), key=lambda p: p.name.endswith("after"))
    cases = json.loads((after / "results.json").read_text())["cases"]
    found = next(finding for case in cases for finding in case["findings"])
    assert powercut(folder, "pack", str(after), "--output", "finding.tar.zst").returncode == 0
    shutil.copytree(after, folder / "RUN", symlinks=True)
    runs = {"RUN": str(after), "BEFORE": str(before), "AFTER": str(after)}
    return Place(folder, {**runs, "ID": found["id"], "FS/MODE": "ext4/ordered"})


@pytest.mark.parametrize(
    ("document", "words"), list(lines()), ids=lambda v: v if isinstance(v, str) else " ".join(v[1:])
)
def test_a_command_of_a_how_to_does_what_it_says(document: str, words: tuple[str, ...], place: Place) -> None:
    """It was read by click and never carried out: a file that it names, or a case, need not exist."""
    asked = [_begun(word, place.folder) or _given(word, place.words) for word in words[1:]]
    if asked[0] in QUICKLY and "-n" not in asked:
        limit = ("--hours", "0.02") if asked[0] == "campaign" else ("--minutes", "1")
        asked = [*_without_limit(asked), *limit]
    done = powercut(place.folder, *asked)
    told = f"{document}: {' '.join(words)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    cut_short = CUT_SHORT if set(asked) & set(LIMITED) else ()
    assert done.returncode in (*FINE, *cut_short), told
    assert "Traceback" not in done.stderr, told


def test_each_word_that_is_left_out_is_still_in_a_document() -> None:
    said = {w for p in documents() for words in command_lines(p.read_text()) for w in words}
    assert set(WITHOUT) - said == set()


def _begun(word: str, folder: Path) -> str:
    """The newest series of the kind that `reports/runs/DATE-NAME` names, begun here if there is none; empty
    for any other word.
    """
    named = re.fullmatch(r"reports/runs/DATE-(\w+)", word)
    if not named:
        return ""
    pattern = f"reports/runs/*-{named[1]}"
    if not list(folder.glob(pattern)):
        assert powercut(folder, *BEGUN[named[1]]).returncode in FINE
    return str(max(folder.glob(pattern)))


def _given(word: str, words: dict[str, str]) -> str:
    """The reader's own, in place of a word in capitals, also as the first part of a path, and of the id and
    the run in an example.
    """
    if re.fullmatch(r"[0-9a-f]{12}", word):
        return words["ID"]
    if re.fullmatch(r"reports/runs/\d+-\d+-run", word):
        return words["RUN"]
    first, slash, rest = word.partition("/")
    return words.get(word) or (f"{words[first]}/{rest}" if slash and first in words else word)


def _without_limit(words: list[str]) -> list[str]:
    """The time that the document gives is longer."""
    for option in ("--minutes", "--hours"):
        if option in words:
            at = words.index(option)
            words = words[:at] + words[at + 2 :]
    return words
