"""SIGKILL, SIGSTOP and SIGTERM to every process of a run, then `--resume` until it is done."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.errors import PowercutError
from harness.tests.chaos.command import (
    Ended,
    Process,
    Running,
    end_processes,
    family,
    look_for_leftovers,
    resume_line,
    start,
)
from harness.tests.chaos.reference import EXHAUSTIVE, GREEN, MIXED, Reference, Specimen
from harness.tests.chaos.trial import Trial
from harness.tests.chaos.verdicts import (
    of_other_recordings,
    said,
    wrong,
    wrong_code,
    wrong_so_far,
    wrong_words,
)

_RESUMES = 12  # under attack; then as many undisturbed ones as it takes
_UNDISTURBED = 4
_SOON_S = 30.0
"""SIGTERM must end a run within seconds; this leaves room for a busy host."""

# process name (as truncated in /proc) to its role in a run
_ROLES = {
    "powercut-disk": "disk",
    "e2fsck": "fsck",
    "fsck": "fsck",
    "mkfs": "mkfs",
    "mke2fs": "mkfs",
    "qemu-system": "guest",
    "image": "guest",
    "linux": "guest",
    "python": "worker",
}


def role(process: Process) -> str:
    return next((what for name, what in _ROLES.items() if process.name.startswith(name)), "other")


def run_kills(trial: Trial, reference: Reference, plant: str = "") -> None:
    """Disturb one run about ten times and resume it until it is done: it must agree with the reference."""
    if trial.random.random() < 0.2:
        _kill(trial, reference, reference.green, GREEN, plant)
    else:
        _kill(trial, reference, reference.mixed, [*MIXED, "--expect", reference.expectations], plant)


def run_exhaustive_kills(trial: Trial, reference: Reference, plant: str = "") -> None:
    """The same of a run that looks at all legal states: its coverage must agree, too."""
    _kill(trial, reference, reference.exhaustive, EXHAUSTIVE, plant)


def _kill(trial: Trial, reference: Reference, specimen: Specimen, what: Sequence[object], plant: str) -> None:
    """`specimen`: the undisturbed run of `what`. Some runs make their own recordings (`anew`)."""
    chance = trial.random
    anew = chance.random() < 0.15
    line = ["run", *what, *reference.options, "--out", trial.directory]
    line += [] if anew else ["--recordings", specimen.path]
    # an emulated guest takes seconds to boot: with that many kills nothing would ever be judged
    wanted = chance.randint(2, 5) if "qemu" in reference.options else chance.randint(8, 20)
    attack = Disturbed(trial, plant, fresh=chance.random() < 0.15)
    try:
        directory = attack.disturb([*line, "-j", chance.choice([1, 2, 2])], wanted)
        if directory is not None:
            _check_so_far(trial, directory, specimen)
            attack.finish(directory, specimen, anew)
    finally:
        look_for_leftovers(trial)


class Disturbed:
    """A command under attack. `resume`: the command line that goes on with a directory."""

    def __init__(
        self,
        trial: Trial,
        plant: str,
        *,
        fresh: bool,
        resume: Callable[[Path], list[str]] = resume_line,
    ) -> None:
        self._resume = resume
        self._trial = trial
        self._plant = plant
        self._fresh = fresh
        self._running: Running | None = None

    def disturb(self, line: Sequence[object], wanted: int) -> Path | None:
        """Start the run and disturb it `wanted` times, resuming it when it ends; returns its directory, if
        any.
        """
        self._start(line)
        done = resumes = 0
        while done < wanted and resumes < _RESUMES:
            time.sleep(self._trial.random.uniform(0.02, 0.7))
            running = self._need_running()
            if (ended := running.poll()) is not None:
                self._check_words(ended)
                directory = self._directory()
                if ended.code in (0, 1) and directory:
                    return directory
                self._start(self._resume(directory) if directory else line)
                resumes += 1
            else:
                done += self._hit(running)
        self._end(self._need_running())
        return self._directory()

    def finish(self, directory: Path, specimen: Specimen, anew: bool) -> None:
        """Resume the run until it is decided, and compare it with the undisturbed run."""
        ended: Ended | None = None
        for _ in range(_UNDISTURBED):
            self._trial.figures["resumed"] += 1
            ended = self.resumed(directory)
            if ended is None:
                self._trial.tell("hang", f"--resume did not end: {_last_line(directory)}")
                end_processes(self._trial)
                return
            if ended.code in (0, 1):
                break
        assert ended is not None
        check_run(self._trial, directory, specimen, ended, anew=anew)

    def resumed(self, directory: Path) -> Ended | None:
        """Resume, undisturbed. How that ended; None if it did not."""
        self._start(self._resume(directory))
        ended = self._need_running().wait()
        if ended is not None:
            self._check_words(ended)
        return ended

    def _start(self, line: Sequence[object]) -> None:
        self._running = start(self._trial, line, fresh=self._fresh, plant=self._plant)

    def _need_running(self) -> Running:
        assert self._running is not None
        return self._running

    def _directory(self) -> Path | None:
        runs = self._trial.directory / "runs"
        made = [p for p in runs.iterdir() if (p / "plan.json").exists()] if runs.exists() else []
        return max(made, key=lambda p: p.name) if made else None

    def _check_words(self, ended: Ended) -> None:
        if (defect := wrong_words(ended.output)) is not None:
            self._trial.defects.append(defect)

    def _end(self, running: Running) -> None:
        """Send SIGTERM: the run must end within seconds, whatever it is doing."""
        if running.poll() is not None:
            return
        begun = time.monotonic()
        running.signal(signal.SIGTERM)
        self._trial.figures["SIGTERM"] += 1
        ended = running.wait(_SOON_S)
        if ended is None:
            self._trial.tell("slow end", f"still there {_SOON_S:.0f} s after SIGTERM: {names(running)}")
            running.signal(signal.SIGKILL)
            running.wait()
            return
        self._trial.took("end after SIGTERM", time.monotonic() - begun)
        self._check_words(ended)

    def _hit(self, running: Running) -> int:
        """Disturb one process; returns how many were disturbed."""
        chance = self._trial.random
        victim = self._victim(
            running, chance.choices(["guest", "disk", "fsck", "worker", "self"], [5, 4, 2, 2, 2])[0]
        )
        if victim is None:
            return 0
        pid, what = victim
        with contextlib.suppress(ProcessLookupError):
            if chance.random() < 0.72:
                os.kill(pid, signal.SIGKILL)
                self._trial.figures[f"SIGKILL {what}"] += 1
            else:
                self._stop(running, pid, what)
            return 1
        return 0

    def _stop(self, running: Running, pid: int, what: str) -> None:
        chance = self._trial.random
        os.kill(pid, signal.SIGSTOP)
        self._trial.figures[f"SIGSTOP {what}"] += 1
        time.sleep(chance.uniform(0.1, 1.5))
        match chance.choice(["continue", "continue", "kill", "end"]):
            case "kill":
                os.kill(pid, signal.SIGKILL)
                self._trial.figures[f"SIGKILL {what}"] += 1
            case "end" if pid != running.pid:
                self._end(running)
                os.kill(pid, signal.SIGCONT)
            case _:
                os.kill(pid, signal.SIGCONT)

    def _victim(self, running: Running, wanted: str) -> tuple[int, str] | None:
        """A process of that role, or any if there is none: an fsck lives for milliseconds."""
        if wanted == "self":
            return running.pid, "orchestrator"
        deadline = time.monotonic() + 0.5
        while True:
            there = family(running.pid)
            fitting = [p for p in there if role(p) == wanted]
            if fitting or wanted != "fsck" or time.monotonic() > deadline:
                break
        chosen = self._trial.random.choice(fitting or there) if there else None
        return (chosen.pid, role(chosen)) if chosen else None


def _check_so_far(trial: Trial, directory: Path, specimen: Specimen) -> None:
    """Check what a run decided before it was cut off. What cannot be read is told once it is resumed."""
    with contextlib.suppress(PowercutError):
        now = said(directory)
        trial.defects += wrong_so_far(specimen.truth, now)
        trial.figures["states compared when cut off"] += sum(map(len, now.states.values()))


def check_run(
    trial: Trial,
    directory: Path,
    specimen: Specimen,
    ended: Ended,
    *,
    anew: bool = False,
    may: Sequence[int] = (),
) -> None:
    """Check that a finished run agrees with the undisturbed one. `anew`: it made its own recordings, whose
    states differ. `may`: other exit codes that are right.
    """
    trial.figures["runs compared"] += 1
    if ended.code not in may and (defect := wrong_code(specimen.code, ended.code)):
        trial.defects.append(defect)
    elif ended.code not in (specimen.code, *may):
        trial.tell("undecided", f"exit code {ended.code} after undisturbed resumes: {ended.output[-400:]}")
    try:
        now = said(directory)
    except PowercutError as e:
        trial.tell("refused", f"the run cannot be read: {e}")
        return
    truth = specimen.truth
    trial.defects += wrong(of_other_recordings(truth) if anew else truth, now)
    trial.figures["states compared"] += 0 if anew else sum(map(len, now.states.values()))


def names(running: Running) -> str:
    """The names of what still runs, for a message."""
    return ", ".join(sorted({p.name for p in family(running.pid)})) or "nothing but itself"


def _last_line(directory: Path) -> str:
    outputs = sorted(directory.parent.parent.glob("output-*.txt"), key=lambda p: p.stat().st_mtime)
    lines = outputs[-1].read_text(errors="replace").strip().splitlines() if outputs else []
    return lines[-1] if lines else "it said nothing"
