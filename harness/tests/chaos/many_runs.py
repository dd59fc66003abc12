"""Kills what makes many runs, a campaign, a matrix or a history, and resumes it until it is done."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.campaigns.journal import Batch
from harness.errors import ExitCode, PowercutError
from harness.kernels.build import built_kernels
from harness.releases.results import SweepPlan
from harness.releases.sweep import SweepSeries, load_plan
from harness.store.layout import latest
from harness.summary import CaseVerdict
from harness.tests.campaigns.toys import read_ledger
from harness.tests.chaos.command import Ended, end_processes, look_for_leftovers, start
from harness.tests.chaos.kills import Disturbed
from harness.tests.chaos.reference import MODES, Reference, copy_run
from harness.tests.chaos.trial import Trial
from harness.tests.chaos.verdicts import Said, of_other_recordings, said, wrong

_RESUMES = 6
_A_WHILE_H = 0.01
"""Hours of work that each part of a campaign gets."""
PIN = "debian-6.12"
BROKEN = "ext4-nobarrier/append-fsync"


def why_no_history() -> str:
    """Why no history can be tried here; empty if it can."""
    return "" if _kernel() else "no UML kernel is built"


def _kernel() -> Path | None:
    """The newest UML kernel of the cache."""
    return next((path for path, built in reversed(built_kernels()) if built.machine == "uml"), None)


def run_history(trial: Trial, reference: Reference, plant: str = "") -> None:
    """A history over one kernel under two names, both of them files, which each resume has to name."""
    kernel = _kernel()
    assert kernel is not None  # see `why_no_history`
    other = trial.directory / "other"
    shutil.copy2(kernel, other)
    copy_run(reference.mixed.path, trial.directory / "of")
    line = ["history", BROKEN, "--from", trial.directory / "of"]
    _sweep(trial, reference, line, [str(kernel), str(other)], [BROKEN], plant)


def run_matrix(trial: Trial, reference: Reference, plant: str = "") -> None:
    """A matrix of one kernel that is emulated, so that a trial does not take many minutes."""
    options = [*reference.options, "--kernel", PIN]
    kernel = options[options.index("--kernel") + 1]
    line = ["matrix", "-c", MODES, "-w", "append-fsync"]
    _sweep(trial, reference, line, [kernel], ["ext4-ordered/append-fsync", BROKEN], plant)


def _sweep(
    trial: Trial, reference: Reference, begun: list[Any], kernels: list[str], cases: list[str], plant: str
) -> None:
    """Each kernel's verdicts must be right, and the answers must be those of its run."""
    named = ["--kernels", ",".join(kernels)]
    ended, directory = _disturb(
        trial,
        [*begun, *named, "--out", trial.directory],
        lambda path: [begun[0], "--resume", str(path), *named],
        plant,
        is_done=lambda ended, _: ended.code == ExitCode.CONSISTENT,
    )
    if directory is None or ended is None:
        return
    if ended.code != ExitCode.CONSISTENT:
        trial.tell("undecided", f"{begun[0]}: {ended.output[-400:]}")
        return
    whole = of_other_recordings(reference.mixed.truth)
    plan = load_plan(directory, str(begun[0]))
    _check_sweep(
        trial, directory, plan, replace(whole, verdicts={case: whole.verdicts[case] for case in cases})
    )


def _check_sweep(trial: Trial, directory: Path, plan: SweepPlan, truth: Said) -> None:
    sweep = SweepSeries(plan, directory).sweep
    for on_kernel in sweep.kernels:
        now = said(directory / on_kernel.run)
        trial.defects += wrong(truth, now)
        trial.figures["kernels compared"] += 1
        answered = {str(a.case): a.verdict for a in on_kernel.answers}
        if answered != now.verdicts:
            trial.tell("answers", f"{on_kernel.item}: {answered}, but its run says {now.verdicts}")
    if len({k.run for k in sweep.kernels}) != len(sweep.kernels):
        trial.tell("answers", f"{len(sweep.kernels)} kernels share a run")


def run_campaign(trial: Trial, reference: Reference, plant: str = "") -> None:
    """A campaign of random workloads. Its first batch must say what an undisturbed run of the same recordings
    says, and each case that fails there must be among its findings.
    """
    seed = trial.random.randint(1, 1000)
    what = ["-c", MODES, "-g", "random", "--seed", seed, "--length", 6, "--batch", 2, "--keep"]
    hours = ["--hours", _A_WHILE_H]
    ended, directory = _disturb(
        trial,
        ["campaign", *what, *hours, *reference.options, "--out", trial.directory],
        lambda path: ["campaign", "--resume", str(path), *map(str, hours)],
        plant,
        is_done=lambda _, path: (one := read_ledger(path).done.get("1")) is not None and not one.failed,
    )
    if directory is None:
        return
    done = read_ledger(directory).done.get("1")
    if done is None or ended is None:
        trial.tell(
            "undecided", f"no batch was finished: {ended.output[-400:] if ended else 'it did not end'}"
        )
    elif done.failed:
        trial.tell("undecided", f"the batch failed: {done.failed}")
    else:
        _check_batch(trial, reference, directory, done, ended)


def _check_batch(trial: Trial, reference: Reference, directory: Path, done: Batch, ended: Ended) -> None:
    run = directory / done.run
    now = said(run)
    (workload,) = {case.partition("/")[2] for case in now.verdicts}
    out = trial.directory / "undisturbed"
    line = ["run", "-c", MODES, "-w", workload, *reference.options, "--recordings", run, "--out", out]
    if (again := start(trial, line).wait()) is None or again.code not in (0, 1):
        raise PowercutError(f"the undisturbed run failed: {again.output[-400:] if again else 'a hang'}")
    truth = said(latest(out).resolve())
    trial.defects += wrong(truth, now)
    trial.figures["batches compared"] += 1
    found = {f"{f.configuration.replace('/', '-')}/{f.workload}" for f in done.found}
    failing = {case for case, verdict in now.verdicts.items() if verdict is CaseVerdict.FAIL}
    if found != failing:
        trial.tell("false green", f"the batch found {sorted(found)}, but {sorted(failing)} fail")
    if failing and ended.code != ExitCode.INCONSISTENT:
        trial.tell("false green", f"exit code {ended.code} of a campaign with findings")


def _disturb(
    trial: Trial,
    line: Sequence[object],
    resume: Callable[[Path], list[str]],
    plant: str,
    is_done: Callable[[Ended, Path], bool],
) -> tuple[Ended | None, Path | None]:
    """Kill and resume, then resume undisturbed until `is_done`. How the last part ended (None: it hung), and
    the directory; None: it was killed before there was one.
    """
    attack = Disturbed(trial, plant, fresh=False, resume=resume)
    ended: Ended | None = None
    try:
        directory = attack.disturb(line, trial.random.randint(3, 8))
        for _ in range(_RESUMES if directory else 0):
            assert directory is not None
            trial.figures["resumed"] += 1
            ended = attack.resumed(directory)
            if ended is None or is_done(ended, directory):
                break
        if directory is not None and ended is None:
            trial.tell("hang", f"{line[0]} --resume did not end")
        return ended, directory
    finally:
        end_processes(trial)
        look_for_leftovers(trial)
