"""Command lines that reports and commands print for people to paste. Each repeats what was done, with the
same kernel and modules. Paths are absolute: a line is pasted in another folder, or tomorrow.
"""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from harness.errors import StoreError
from harness.model import CaseId, CrashPoint, CrashState
from harness.plan import LOG_BYTES, Budget, Clock, Completions, Plan
from harness.store import RunStore
from harness.store.bundle import packed_case
from harness.store.directory import read_info, read_plan
from harness.store.records import CaseInfo, Finding
from harness.trust import is_own, may_hold, with_kept_modules
from harness.workloads.load import is_installed

_FEW = 3
"""Operations that nobody would want to be fewer."""


def reproduce(case: CaseId, state: CrashState, source: str) -> str:
    """The command that reproduces a crash point. `source`: see `source_words`."""
    return f"powercut repro {shlex.quote(f'{case}{state}')} --from {_of_case(source, case)}"


def commands(finding: Finding, source: str, packed: CaseId | None = None) -> list[str]:
    """The commands that say why a finding failed, and reproduce it, each with what it is for. `packed`: the
    case whose recording alone is here.
    """
    if packed not in (None, finding.case):
        return [f"not here: the file was packed with {packed} alone; where the run is: powercut pack RUN"]
    why = explain(finding, source)
    return [*([f"why: {why}"] if why else []), f"reproduce: {reproduce(finding.case, finding.state, source)}"]


def explain(finding: Finding, source: str) -> str:
    """The command that says why a finding failed; empty where none can. `source`: see `source_words`."""
    # Of a recovery that was cut, writes are those of recovery; where the disk was faulty, none was lost.
    if finding.state.again or finding.state.fault:
        return ""
    return f"powercut show {finding.id} --from {_of_case(source, finding.case)}"


def shrink(point: CrashPoint, source: str) -> str:
    """The command that reduces a finding's workload. `source`: see `source_words`."""
    return f"powercut shrink {shlex.quote(str(point))} --from {_of_case(source, point.case)}"


def can_be_shrunk(info: CaseInfo) -> bool:
    """Whether a case's workload is a list of operations, of which some may not be needed."""
    return len(info.steps) > _FEW and not any(s.text.startswith("run ") for s in info.steps)


def source_words(store: RunStore, path: str) -> str:
    """The arguments after `--from`: the run's path, links in it not resolved, and the files of its kernel and
    its workloads, which are used only if the command line names them.
    """
    return shlex.join([full(path), *files_of(store)])


def files_of(store: RunStore) -> list[str]:
    """Options that name the files of a run's kernel and its workloads; none if its plan cannot be read."""
    try:
        return _own_files(with_kept_modules(store))
    except StoreError:
        return []


def source_of(plan: Plan, path: str) -> str:
    """`source_words` of a run with this plan."""
    return shlex.join([full(path), *_own_files(plan)])


def source_in(run: Path) -> str:
    """The arguments after `--from`, of a run directory: a kernel that is a file of this host has to be named.
    Of a run that is not there any more, only its path is known.
    """
    try:
        return source_of(read_plan(run, read_info(run).plan), full(run))
    except StoreError:
        return shlex.quote(full(run))


def full(path: str | Path) -> str:
    """The absolute path. Links such as `latest` are not resolved."""
    return os.path.abspath(path)  # noqa: PTH100  # Path.resolve would follow the link


def resume(plan: Plan, path: str) -> str:
    """The command that continues a stopped run."""
    words = [full(path), *_own_files(plan)]
    if not is_own(plan.cluster):
        words += ["--cluster", plan.cluster]
    if plan.recordings:
        words += _shown(["--recordings", plan.recordings])
    if plan.image:
        words += _shown(["--image", plan.image.path])
    return f"powercut run --resume {shlex.join(words)}"


def resume_of(store: RunStore, path: str) -> str:
    """`resume` of a run that ended before it was complete; empty of another one, and where not all that it
    needs is here: it was packed with the recording of one case, or its plan cannot be read.
    """
    info = store.info
    if not (info.interrupted or info.finished is None) or packed_case(store.layout):
        return ""
    try:
        plan = with_kept_modules(store)
    except StoreError:
        return ""
    return shlex.join([*shlex.split(resume(plan, path)), *_baseline(plan.argv)])


def _baseline(argv: Sequence[str]) -> list[str]:
    """The baseline that a run was begun with, as an option, if it is here."""
    own = [*itertools.takewhile(lambda word: word != "--", argv)]  # behind it is a program
    words = [w for word in own for w in (word.split("=", 1) if word.startswith("--baseline=") else [word])]
    named = [path for option, path in itertools.pairwise(words) if option == "--baseline"]
    return _shown(["--baseline", *named[-1:]]) if named and Path(named[-1]).exists() else []


def resume_measurement(kernel: str, modules: str | None, path: str, beside: Sequence[str] = ()) -> str:
    """The command that continues a stopped measurement."""
    words = [
        full(path),
        *_kernel_files(kernel, modules),
        *(w for p in beside for w in _shown(["--beside", p])),
    ]
    return f"powercut measure --resume {shlex.join(words)}"


def resume_faults(workloads: Sequence[str], path: str) -> str:
    """The command that continues a stopped campaign of faults."""
    return f"powercut faults --resume {shlex.join([full(path), *_workload_files(workloads)])}"


def resume_patch(tree: str, config: Sequence[str], workloads: Sequence[str], path: str) -> str:
    """The command that continues a stopped series of a patch. `config`: files of the user's own."""
    words = [full(tree), *(w for c in config for w in _shown(["--config", c])), *_workload_files(workloads)]
    return f"powercut patch {shlex.join([*words, '--resume', full(path)])}"


def resume_regressions(path: str) -> str:
    """The command that continues a stopped series of upstream bugs."""
    return f"powercut regressions --resume {shlex.join([full(path)])}"


def resume_sweep(
    command: str, kernels: Sequence[str], workloads: Sequence[str], of_run: str, path: str
) -> str:
    """The command (`history`, `matrix`) that continues a stopped sweep. `of_run`: its report shows it too."""
    words = [full(path), *(w for k in kernels if "/" in k for w in _shown(["--kernels", k]))]
    words += [*_workload_files(workloads), *(_shown(["--from", of_run]) if of_run else [])]
    return f"powercut {command} --resume {shlex.join(words)}"


def resume_litmus(kernels: Sequence[str], path: str) -> str:
    """The command that continues stopped litmus programs."""
    words = [full(path), *(w for k in kernels if "/" in k for w in _shown(["--kernels", k]))]
    return f"powercut litmus --resume {shlex.join(words)}"


def run_again(plan: Plan, configuration: str, workload: str) -> str:
    """The command that records and judges one workload with the settings of `plan`."""
    return run_of(msgspec.structs.replace(plan, configurations=[configuration], workloads=[workload]))


def run_of(plan: Plan) -> str:
    """The command that records and judges what `plan` names, with its settings."""
    modes = ",".join(plan.configurations)
    named = ",".join(full(word) if "/" in word else word for word in plan.workloads)
    words = ["powercut", "run", "-c", modes, "-w", named, *_kernel(plan)]
    for option, value in (("--machine", plan.machine), ("--accel", plan.accel)):
        words += [option, value] if value != "auto" else []
    if plan.fault_models != ("prefix",):
        words += ["--states", ",".join(plan.fault_models)]
    if plan.again:
        words += ["--again", str(plan.again)]
    if plan.disk:
        words += ["--disk", ",".join(plan.disk)]
    if plan.budget != Budget():
        words += ["--budget", plan.budget.option]
    if plan.completions is not Completions.HOLD:
        words += ["--completions", plan.completions]
    if plan.clock is not Clock.AUTO:
        words += ["--clock", plan.clock]
    if plan.log_bytes != LOG_BYTES:
        words += ["--log-size", str(plan.log_bytes >> 20)]
    if plan.image:
        words += _shown(["--image", plan.image.path])
    return shlex.join(words)


def _kernel(plan: Plan) -> list[str]:
    named = _files(plan)
    default = Plan(configurations=[], workloads=[]).kernel
    return named if "--kernel" in named or plan.kernel == default else ["--kernel", plan.kernel, *named]


def _own_files(plan: Plan) -> list[str]:
    return [*_files(plan), *_workload_files(plan.workloads)]


def _workload_files(workloads: Sequence[str]) -> list[str]:
    return [w for word in workloads if not is_installed(word) for w in ("-w", full(word))]


def _of_case(source: str, case: CaseId) -> str:
    """`source_words` without the files of other workloads; as it is if it was written in another way."""
    try:
        words = shlex.split(source)
    except ValueError:  # a quotation without an end
        return source
    if shlex.join(words) != source:
        return source
    options = [*itertools.pairwise(words)]
    left_out = {
        place
        for at, (option, path) in enumerate(options, 1)
        if option == "-w" and not may_hold(path, case.workload)
        for place in (at - 1, at)
    }
    return shlex.join([word for place, word in enumerate(words) if place not in left_out])


def _files(plan: Plan) -> list[str]:
    return _kernel_files(plan.kernel, plan.modules, plan.replaced)


def _kernel_files(kernel: str, modules: str | None, replaced: Sequence[str] = ()) -> list[str]:
    named = ["--kernel", kernel] if "/" in kernel else []
    of_its_own = ["--modules", modules] if modules else []
    return [*_shown(named), *_shown(of_its_own), *(w for p in replaced for w in _shown(["--module", p]))]


def _shown(option: Sequence[str]) -> list[str]:
    """The option with its path, absolute."""
    return [*option[:1], *map(full, option[1:])]
