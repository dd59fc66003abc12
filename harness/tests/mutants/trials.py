"""Runs tests on copies of a checkout, with one mutant in each."""

from __future__ import annotations

import concurrent.futures as cf
import enum
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.tests.mutants.catalogue import CannotPlant, Mutant, Tests, planted

TIMEOUT_S = 900.0
"""For the tests of one mutant. A mutant may make them endless: then it is noticed."""
PYTEST_FAILED = 1
CARGO_FAILED = 101


class Fate(enum.Enum):
    """What became of a mutant. Only the first is well."""

    KILLED = "killed"
    SURVIVED = "SURVIVED"
    STALE = "STALE"  # it could not be planted
    BROKEN = "BROKEN"  # the tests could not be run: it says nothing of them


@dataclass(frozen=True, slots=True)
class Result:
    """`by`: the first test that failed, or why there is none."""

    mutant: Mutant
    fate: Fate
    by: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How tests ended. `failed`: None if they could not be run."""

    failed: bool | None
    by: str


class Trees:
    """Copies of the checkout `root` below `folder`, one for each of `jobs` threads. Beside each is what cargo
    builds of it, which stays from run to run. It is not shared: cargo would take what another copy's build
    has left for its own.
    """

    def __init__(self, root: Path, folder: Path, jobs: int) -> None:
        self._root, self._folder, self._jobs = root, folder, jobs
        self._free: list[Path] = []
        self._lock = threading.Semaphore(jobs)

    def make(self) -> None:
        """Copy what git knows or would add, as it is now. A copy that is there is brought up to date, so that
        cargo builds anew only what has changed.
        """
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=self._root, check=True, capture_output=True).stdout.decode()
        files = [name for name in names.split("\0") if (self._root / name).is_file()]
        for number in range(self._jobs):
            tree = self._folder / f"tree-{number}"
            _copy(self._root, tree, files)
            link = tree / "target"  # the built parts
            if not link.is_symlink():
                link.symlink_to(self._root / "target")
            self._free.append(tree)

    @contextmanager
    def one(self) -> Iterator[Path]:
        """A tree that nobody else uses."""
        with self._lock:
            tree = self._free.pop()
            try:
                yield tree
            finally:
                self._free.append(tree)


def _copy(root: Path, tree: Path, files: Sequence[str]) -> None:
    """Make `tree` hold these files of `root` and no others; equal ones keep their times."""
    wanted = set(files)
    for path in [p for p in tree.rglob("*") if p.is_file() and not p.is_symlink()] if tree.exists() else []:
        if path.parent.name != "__pycache__" and str(path.relative_to(tree)) not in wanted:
            path.unlink()
    for name in files:
        source, copy = root / name, tree / name
        if not copy.exists() or copy.read_bytes() != source.read_bytes():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)
            shutil.copymode(source, copy)


def unmodified(trees: Trees, wanted: Sequence[Tests], jobs: int) -> list[str]:
    """Which of the tests do not pass without any mutant, and why. Each file is run once."""
    paths = dict.fromkeys(path for tests in wanted for path in tests.paths)
    crates = dict.fromkeys(crate for tests in wanted for crate in tests.crates)
    every = [*(Tests((path,)) for path in paths), *(Tests((), (crate,)) for crate in crates)]

    def run(tests: Tests) -> str:
        with trees.one() as tree:
            ended = run_tests(tree, tests)
        return "" if ended.failed is False else f"{tests}: {ended.by}"

    with cf.ThreadPoolExecutor(jobs) as threads:
        return [why for why in threads.map(run, every) if why]


def try_one(trees: Trees, mutant: Mutant) -> Result:
    """Plant a mutant in a tree, run its tests, and take it out again."""
    begun = time.monotonic()
    with trees.one() as tree:
        file = tree / mutant.file
        try:
            before = file.read_text()
            text = planted(before, mutant)
        except (OSError, CannotPlant) as e:
            return Result(mutant, Fate.STALE, str(e))
        times = file.stat()
        try:
            file.write_text(text)
            if file.suffix == ".py":
                # of no other version: Python knows what it has compiled by size and time, in whole seconds
                os.utime(file, (times.st_atime, random.randrange(1 << 30)))  # noqa: S311  # no secret
            ended = run_tests(tree, mutant.tests)
        finally:
            file.write_text(before)
            if file.suffix == ".py":  # cargo builds anew what is newer than what it built
                os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    fate = {True: Fate.KILLED, False: Fate.SURVIVED, None: Fate.BROKEN}[ended.failed]
    return Result(mutant, fate, ended.by, time.monotonic() - begun)


def try_all(
    trees: Trees, mutants: Sequence[Mutant], jobs: int, tell: Callable[[Result], None]
) -> list[Result]:
    """Try each; `tell` hears of each when it ends."""
    results = []
    with cf.ThreadPoolExecutor(jobs) as threads:
        for future in cf.as_completed([threads.submit(try_one, trees, m) for m in mutants]):
            results.append(future.result())
            tell(results[-1])
    return results


def run_tests(tree: Path, tests: Tests) -> Ended:
    """Run the tests in a tree until one fails."""
    if tests.paths:
        argv = [sys.executable, "-m", "pytest", "-q", "-x", "-rfE", "--no-header", "--tb=no"]
        argv += ["-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not vm", *tests.paths]
        ended = _pytest_said(*_run(argv, tree, {"PYTHONPATH": str(tree), "HYPOTHESIS_PROFILE": "mutants"}))
        if ended.failed is not False:
            return ended
    for crate in tests.crates:
        argv = ["cargo", "test", "-q", "--locked", "--no-fail-fast", "-p", crate]
        ended = _cargo_said(*_run(argv, tree, {"CARGO_TARGET_DIR": f"{tree}-rust"}))
        if ended.failed is not False:
            return ended
    return Ended(False, "no test failed")


def _run(argv: Sequence[str], tree: Path, environment: dict[str, str]) -> tuple[int | None, str]:
    """Exit code, None after the time limit, and output. All that it started ends with it."""
    process = subprocess.Popen(
        argv,
        cwd=tree,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return None, process.communicate()[0]
    return process.returncode, said


def _pytest_said(code: int | None, said: str) -> Ended:
    if code is None:
        return Ended(True, f"the time limit of {TIMEOUT_S:.0f} s")
    first = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
    if code == PYTEST_FAILED and first:
        return Ended(True, first[1].removeprefix("harness/tests/"))
    return Ended(None if code else False, f"pytest ended with {code}: {_last_line(said)}")


def _cargo_said(code: int | None, said: str) -> Ended:
    if code is None:
        return Ended(True, f"the time limit of {TIMEOUT_S:.0f} s")
    if "error: could not compile" in said:
        return Ended(None, "it does not compile")
    first = re.search(r"^(?:test (\S+) \.\.\. FAILED|    (\w+(?:::\w+)+)$)", said, re.MULTILINE)
    if code == CARGO_FAILED and first:
        return Ended(True, first[1] or first[2])
    return Ended(None if code else False, f"cargo ended with {code}: {_last_line(said)}")


def _last_line(said: str) -> str:
    return (said.strip().splitlines() or ["no output"])[-1][:200]
