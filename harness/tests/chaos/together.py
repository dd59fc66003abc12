"""Two processes in one run directory: one works, the other must be refused."""

from __future__ import annotations

import time
from pathlib import Path

from harness.errors import ExitCode
from harness.tests.chaos.command import Running, end_processes, look_for_leftovers, resume_line, start
from harness.tests.chaos.kills import check_run
from harness.tests.chaos.reference import MIXED, Reference
from harness.tests.chaos.trial import Trial
from harness.tests.chaos.verdicts import wrong_code, wrong_words


def run_together(trial: Trial, reference: Reference, plant: str = "") -> None:
    """Start a run, and `--resume` it once or twice while it works."""
    specimen = reference.mixed
    line = ["run", *MIXED, "--expect", reference.expectations, *reference.options, "--out", trial.directory]
    first = start(trial, [*line, "--recordings", specimen.path], plant=plant)
    try:
        directory = _directory_of(first, trial)
        if directory is None:
            trial.tell("hang", "no run directory after a minute")
            return
        time.sleep(trial.random.uniform(0, 1.2))
        others = [
            start(trial, resume_line(directory), plant=plant, fresh=trial.random.random() < 0.3)
            for _ in range(trial.random.choice([1, 1, 2]))
        ]
        trial.figures["second processes"] += len(others)
        ended = [running.wait() for running in [first, *others]]
        for one in ended:
            if one is None:
                trial.tell("hang", "one of two processes did not end")
                continue
            trial.defects += filter(None, [wrong_words(one.output), wrong_code(specimen.code, one.code)])
            trial.figures["second processes refused"] += one.code == ExitCode.UNDECIDED
        if ended[0] is not None:
            check_run(trial, directory, specimen, ended[0])
    finally:
        end_processes(trial)
        look_for_leftovers(trial)


def _directory_of(running: Running, trial: Trial) -> Path | None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and running.poll() is None:
        for path in trial.directory.glob("runs/*/plan.json"):
            return path.parent
        time.sleep(0.02)
    return None
