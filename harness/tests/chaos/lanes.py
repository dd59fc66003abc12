"""Divides the time: attacks that boot guests in one process, all others in another.

Each lane takes the attack that has had least of its share, until the time is over. A lane that dies, or
that a trial holds up for longer than any may take, is replaced; that is a defect by itself.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import re
import shutil
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from harness.tests.chaos.command import end_processes
from harness.tests.chaos.damage import run_damage, run_flips
from harness.tests.chaos.foreign import run_foreign
from harness.tests.chaos.frames import run_frames
from harness.tests.chaos.full_disk import run_full_disk, why_not
from harness.tests.chaos.kills import run_exhaustive_kills, run_kills
from harness.tests.chaos.many_runs import run_campaign, run_history, run_matrix, why_no_history
from harness.tests.chaos.reference import Reference, load_reference
from harness.tests.chaos.together import run_together
from harness.tests.chaos.trial import Defect, Trial

Attack = Callable[[Trial, Reference, str], None]

ATTACKS: dict[str, Attack] = {
    "kill": run_kills,
    "kill-exhaustive": run_exhaustive_kills,
    "kill-emulated": run_kills,
    "together": run_together,
    "full-disk": run_full_disk,
    "campaign": run_campaign,
    "history": run_history,
    "matrix": run_matrix,
    "damage": run_damage,
    "flip": run_flips,
    "foreign": run_foreign,
    "frames": run_frames,
}
LANES: tuple[dict[str, float], ...] = (
    {
        "kill": 0.36,
        "kill-exhaustive": 0.26,
        "kill-emulated": 0.06,
        "together": 0.08,
        "full-disk": 0.08,
        "campaign": 0.08,
        "history": 0.05,
        "matrix": 0.03,
    },
    {"damage": 0.45, "flip": 0.32, "foreign": 0.15, "frames": 0.08},
)
"""The share of each attack in its lane's time."""

EMULATED = ("kill-emulated", "matrix")
LONG_S = {"kill-emulated": 60.0, "campaign": 150.0, "history": 100.0, "matrix": 200.0}
"""Attacks that are not begun with less time than that left: a trial under way is not cut off."""
TRIAL_LIMIT_S = 900.0
KEPT = 40  # at most this many directories of trials with defects


@dataclass(slots=True)
class Result:
    """All trials together."""

    figures: Counter[str] = field(default_factory=Counter)
    slowest: dict[str, float] = field(default_factory=dict)
    defects: list[tuple[str, Defect, str]] = field(default_factory=list)
    """Defects, each with its trial's name and kept directory, or an empty string."""
    not_tried: dict[str, str] = field(default_factory=dict)
    told: set[tuple[str, str]] = field(default_factory=set)
    """Kinds and gists of the defects printed so far."""

    def add(self, trial: Trial, kept: str) -> None:
        self.figures.update(trial.figures)
        self.figures[f"trials {trial.attack}"] += 1
        for what, seconds in trial.slowest.items():
            self.slowest[what] = max(seconds, self.slowest.get(what, 0.0))
        self.defects += [(trial.name, defect, kept) for defect in trial.defects]


@dataclass(frozen=True, slots=True)
class Order:
    """The job of the lanes. `only`: these attacks; all if empty."""

    directory: Path
    reference: Path
    options: tuple[str, ...]
    emulated: tuple[str, ...]
    seed: int
    deadline: float
    """In `time.monotonic()`, which all processes of a host share."""
    only: tuple[str, ...] = ()
    plant: str = ""


def gist(what: str) -> str:
    """A defect without numbers, names and places, so that the same defect counts once."""
    shorter = r"(?<=Error: ).*|0x[0-9a-f]+|'[^']*'|\"[^\"]*\"|`[^`]*`|\[.*|\(.*|@\S+|\d+"
    said = re.sub(shorter, "#", what)
    return re.sub(r"ext4-\S+", "#", said)


def run_trial(order: Order, attack: str, number: int) -> Trial:
    """Run one trial in this process. An exception it does not handle is a defect too."""
    directory = order.directory / f"{attack}-{number}"
    shutil.rmtree(directory, ignore_errors=True)
    options = order.emulated if attack in EMULATED else order.options
    with Trial(attack, number, order.seed, directory) as trial:
        try:
            ATTACKS[attack](trial, load_reference(order.reference, options), order.plant)
        except Exception:
            trial.tell("trial", traceback.format_exc().strip()[-500:])
            end_processes(trial)
    return trial


def run_lanes(order: Order, say: Callable[[str], None]) -> Result:
    """Run the attacks until the deadline."""
    result = Result()
    if reason := why_not():
        result.not_tried["full-disk"] = reason
    if reason := why_no_history():
        result.not_tried["history"] = reason
    for name, least_s in LONG_S.items():
        if order.deadline - time.monotonic() < least_s:
            result.not_tried[name] = f"it takes more than the {least_s:.0f} s that are left"
    numbers: Counter[str] = Counter()
    lanes = [_Lane(order, _shares(shares, order, result), numbers) for shares in LANES]
    lanes = [lane for lane in lanes if lane.shares]
    try:
        for lane in lanes:
            lane.start()
        while any(lane.process for lane in lanes):
            for lane in lanes:
                lane.attend(result, say)
    finally:
        for lane in lanes:
            lane.kill()
    return result


def _shares(shares: dict[str, float], order: Order, result: Result) -> dict[str, float]:
    wanted = {name: share for name, share in shares.items() if name not in result.not_tried}
    if not order.emulated:
        wanted = {name: share for name, share in wanted.items() if name not in EMULATED}
    return {name: share for name, share in wanted.items() if not order.only or name in order.only}


class _Lane:
    """A process that runs trials, seen from the parent."""

    def __init__(self, order: Order, shares: dict[str, float], numbers: Counter[str]) -> None:
        self.order = order
        self.shares = shares
        self.process: multiprocessing.process.BaseProcess | None = None
        self._numbers = numbers
        self._spent: Counter[str] = Counter()
        self._doing = ""
        self._since = 0.0

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")  # this process may have threads
        self._channel, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, self.order), daemon=False)
        self.process.start()
        theirs.close()
        self._next()

    def _next(self) -> None:
        if time.monotonic() > self.order.deadline or (self.order.plant and sum(self._numbers.values()) > 3):
            self._channel.send(None)
            self._doing = ""
            return
        left = self.order.deadline - time.monotonic()
        ready = [name for name in self.shares if LONG_S.get(name, 0) < left] or list(self.shares)
        attack = min(ready, key=lambda name: self._spent[name] / self.shares[name])
        self._doing, self._since = f"{attack}/{self._numbers[attack]}", time.monotonic()
        self._channel.send((attack, self._numbers[attack]))
        self._numbers[attack] += 1

    def attend(self, result: Result, say: Callable[[str], None]) -> None:
        """Collect what the lane has done; replace its process if it died or hangs."""
        if self.process is None:
            return
        ready = multiprocessing.connection.wait([self._channel, self.process.sentinel], timeout=0.2)
        if self._channel in ready:
            with contextlib.suppress(EOFError, ConnectionError):
                trial: Trial = self._channel.recv()
                self._spent[trial.attack] += time.monotonic() - self._since  # type: ignore[assignment]  # seconds
                self._take(trial, result, say)
                self._next()
                return
        if self.process.is_alive():
            if self._doing and time.monotonic() - self._since > TRIAL_LIMIT_S:
                self._replace(result, say, f"{self._doing} did not end within {TRIAL_LIMIT_S:.0f} s")
        elif not self._doing:
            self.process = None
        else:
            self._replace(result, say, f"the process of {self._doing} ended with {self.process.exitcode}")

    def _take(self, trial: Trial, result: Result, say: Callable[[str], None]) -> None:
        kept = ""
        told = result.told
        if trial.defects and len({d for _, _, d in result.defects}) < KEPT:
            kept = str(trial.directory)
        else:
            shutil.rmtree(trial.directory, ignore_errors=True)
        result.add(trial, kept)
        for defect in trial.defects:
            if (defect.kind, gist(defect.what)) not in told:
                told.add((defect.kind, gist(defect.what)))
                say(f"DEFECT {trial.name}: {defect.kind}: {defect.what}")

    def _replace(self, result: Result, say: Callable[[str], None], why: str) -> None:
        self.kill()
        attack, _, number = self._doing.partition("/")
        directory = self.order.directory / f"{attack}-{number}"
        with Trial(attack, int(number), self.order.seed, directory) as trial:
            trial.tell("hang", why)
            end_processes(trial)
        self._take(trial, result, say)
        self.start()

    def kill(self) -> None:
        """Kill the process, whatever it is doing."""
        if self.process is not None and self.process.pid and self.process.is_alive():
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.join()
        self.process = None


def _work(channel: multiprocessing.connection.Connection, order: Order) -> None:
    """In a lane's process: run trials on request."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it
    with contextlib.suppress(EOFError, ConnectionError):
        while (asked := channel.recv()) is not None:
            channel.send(run_trial(order, *asked))
