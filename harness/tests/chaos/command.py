"""Runs `powercut` in a trial, and looks for what it leaves behind.

Most processes are forked from this one, which has already imported the harness: starting an interpreter takes
a second, and a trial starts several. `fresh` processes start as a user starts them.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.tests.chaos.trial import Trial

PATIENCE_S = 240.0
"""A run of a few seconds that takes longer than this hangs, however busy the host is."""
_GONE_S = 10.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended: its exit code, or less than 0 for a signal, and what it printed."""

    code: int
    output: str
    seconds: float


class Running:
    """A running `powercut`; `pid` leads its own process session."""

    def __init__(self, pid: int, output: Path) -> None:
        self.pid = pid
        self._output = output
        self._begun = time.monotonic()
        self._ended: Ended | None = None

    def poll(self) -> Ended | None:
        """How it ended, or None while it runs."""
        if self._ended is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                text = self._output.read_text(errors="replace")
                seconds = time.monotonic() - self._begun
                self._ended = Ended(os.waitstatus_to_exitcode(status), text, seconds)
        return self._ended

    def wait(self, timeout_s: float = PATIENCE_S) -> Ended | None:
        """How it ended; None if it still runs after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while (ended := self.poll()) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return ended

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._ended is None:
                os.kill(self.pid, number)


def start(trial: Trial, arguments: Sequence[object], *, fresh: bool = False, plant: str = "") -> Running:
    """Start `powercut ARGUMENTS`. `plant`: the defect of `plants.py` to plant."""
    number = sum(1 for _ in trial.directory.glob("output-*"))
    output = trial.directory / f"output-{number}.txt"
    output.touch()  # the process may be killed before it creates the file
    line = [str(a) for a in arguments]
    environment = {**os.environ, "TMPDIR": str(trial.temporary), "COLUMNS": "200"}
    if fresh and not plant:
        with output.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "harness", *line],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=environment,
                start_new_session=True,
            )
        process.returncode = 0  # `Running` waits for it
        return Running(process.pid, output)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if not pid:
        _become(line, output, environment, plant)
    return Running(pid, output)


def _become(line: list[str], output: Path, environment: dict[str, str], plant: str) -> None:
    """In the forked process: run `powercut`, then exit."""
    code = 70  # not an exit code of powercut
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        sink = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for ours, theirs in ((nothing, 0), (sink, 1), (sink, 2)):
            os.dup2(ours, theirs)
        sys.stdout, sys.stderr = (os.fdopen(fd, "w", errors="replace", closefd=False) for fd in (1, 2))
        os.environ.clear()
        os.environ.update(environment)
        tempfile.tempdir = None
        sys.argv = ["powercut", *line]
        if plant:
            getattr(importlib.import_module("harness.tests.chaos.plants"), plant)()
        from harness.__main__ import main  # noqa: PLC0415  # after the plant

        main()
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


# --- processes -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    parent: int
    name: str


def processes() -> list[Process]:
    """All visible processes of this host, without zombies."""
    found: list[Process] = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            name, _, rest = (folder / "stat").read_text(errors="replace").rpartition(")")
            fields = rest.split()
            if fields[0] != "Z":
                found.append(Process(int(folder.name), int(fields[1]), name.partition("(")[2]))
    return found


def family(pid: int) -> list[Process]:
    """The descendants of a process."""
    children: dict[int, list[Process]] = {}
    for process in processes():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    left = [pid]
    while left:
        offspring = children.get(left.pop(), [])
        found += offspring
        left += [p.pid for p in offspring]
    return found


def of_trial(trial: Trial) -> list[Process]:
    """Processes whose environment or arguments name the trial's directory, whatever their parent."""
    marks = [os.fsencode(f"{trial.directory}/"), os.fsencode(trial.temporary)]
    found: list[Process] = []
    for process in processes():
        if process.pid == os.getpid():
            continue
        with contextlib.suppress(OSError):
            folder = Path("/proc") / str(process.pid)
            told = (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
            if any(mark in told for mark in marks):
                found.append(process)
    return found


def look_for_leftovers(trial: Trial) -> None:
    """Report processes and temporary files left by a trial's runs; kill the processes."""
    deadline = time.monotonic() + _GONE_S
    while (left := of_trial(trial)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for name in sorted({p.name for p in left}):
        trial.tell("left behind", f"{sum(p.name == name for p in left)} processes {name}")
    end_processes(trial)
    files = sorted(p.name for p in trial.temporary.iterdir() if not (_of_tempfile(p) or _of_apt(p)))
    for kind in sorted({name.rpartition("-")[0] or name for name in files}):
        ours = [n for n in files if n.startswith(kind)]
        trial.tell("left behind", f"{len(ours)} of {kind}* in the temporary folder{_state(trial, ours[0])}")
    for scratch in trial.directory.glob("**/scratch"):
        trial.tell("left behind", f"{scratch.relative_to(trial.directory)}")
    clear(trial.temporary)


def _state(trial: Trial, name: str) -> str:
    """What tells why nobody removed a folder: see `harness.host.folders`."""
    folder = trial.temporary / name
    if not folder.is_dir():
        return ""
    maker = name.split("-")[-2]
    lives = "lives" if Path("/proc", maker).exists() else "has ended"
    inside = ", ".join(sorted(p.name for p in folder.iterdir())) or "nothing"
    return f", whose maker {lives}, with {inside} in it"


def _of_tempfile(path: Path) -> bool:
    """Whether it is the file by which Python's own `tempfile` tries a folder, once a process, and that a kill
    at that moment leaves (`_get_default_tempdir`).
    """
    return (
        bool(re.fullmatch("[a-z0-9_]{8}", path.name))
        and path.is_file()
        and path.stat().st_size <= len("blat")
    )


def _of_apt(path: Path) -> bool:
    """Whether apt checks a signature by it: a kill at that moment leaves it."""
    return bool(re.fullmatch(r"apt\.(conf|data|sig)\.[A-Za-z0-9]{6}", path.name))


def clear(folder: Path) -> None:
    """Remove everything in the directory."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def end_processes(trial: Trial) -> None:
    """Kill all processes of a trial."""
    for process in of_trial(trial):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def resume_line(directory: Path) -> list[str]:
    """`run --resume` of a run directory, with what a command line has to name: where recordings come from."""
    try:
        plan = json.loads((directory / "plan.json").read_bytes())
        source = plan.get("recordings")
    except (OSError, ValueError, AttributeError):  # damaged: the command says so
        source = None
    return ["run", "--resume", str(directory), *(["--recordings", str(source)] if source else [])]
