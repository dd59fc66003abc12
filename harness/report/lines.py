"""Command lines that reports and commands print for people to paste. Each repeats what was done, with the
same kernel and modules.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from harness.errors import StoreError
from harness.model import CaseId, CrashState
from harness.plan import Budget, Completions, Plan
from harness.report.words import shown_path
from harness.store import RunStore


def reproduce(case: CaseId, state: CrashState, source: str) -> str:
    """The command that reproduces a crash point. `source`: see `source_words`."""
    return f"powercut repro {shlex.quote(f'{case}{state}')} --from {source}"


def source_words(store: RunStore, path: str) -> str:
    """The arguments after `--from`: the run's path as the user would write it, and the files of its kernel,
    which are used only if the command line names them.
    """
    return shlex.join([path, *files_of(store)])


def files_of(store: RunStore) -> list[str]:
    """Options that name the files of a run's kernel; none if its plan cannot be read."""
    try:
        return _files(store.plan())
    except StoreError:
        return []


def source_of(plan: Plan, path: str) -> str:
    """`source_words` of a run with this plan."""
    return shlex.join([path, *_files(plan)])


def resume(plan: Plan, path: str) -> str:
    """The command that continues a stopped run."""
    return f"powercut run --resume {shlex.join([path, *_files(plan)])}"


def resume_measurement(kernel: str, modules: str | None, path: str) -> str:
    """The command that continues a stopped measurement."""
    return f"powercut measure --resume {shlex.join([path, *_kernel_files(kernel, modules)])}"


def run_again(plan: Plan, configuration: str, workload: str) -> str:
    """The command that records and judges one workload with the settings of `plan`."""
    words = ["powercut", "run", "-c", configuration, "-w", workload, *_kernel(plan)]
    for option, value in (("--machine", plan.machine), ("--accel", plan.accel)):
        words += [option, value] if value != "auto" else []
    if plan.fault_models != ("prefix",):
        words += ["--states", ",".join(plan.fault_models)]
    if plan.budget != Budget():
        words += ["--budget", plan.budget.option]
    if plan.completions is not Completions.HOLD:
        words += ["--completions", plan.completions]
    return shlex.join(words)


def _kernel(plan: Plan) -> list[str]:
    named = _files(plan)
    default = Plan(configurations=[], workloads=[]).kernel
    return named if "--kernel" in named or plan.kernel == default else ["--kernel", plan.kernel, *named]


def _files(plan: Plan) -> list[str]:
    return _kernel_files(plan.kernel, plan.modules, plan.replaced)


def _kernel_files(kernel: str, modules: str | None, replaced: Sequence[str] = ()) -> list[str]:
    named = ["--kernel", kernel] if "/" in kernel else []
    of_its_own = ["--modules", modules] if modules else []
    return [*_shown(named), *_shown(of_its_own), *(w for p in replaced for w in _shown(["--module", p]))]


def _shown(option: Sequence[str]) -> list[str]:
    """The option with its path relative to the working directory if it lies below it."""
    return [*option[:1], *(shown_path(Path(path)) for path in option[1:])]
