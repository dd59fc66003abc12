"""Completion of values in shells: modes, workloads, kernels, runs, crash points of a run.

A parameter completes by what it is called, the same in every command: so an option of a new command needs
nothing here, unless it takes a new kind of value. What cannot be listed (a damaged run, say) completes to
nothing: a shell that waits for TAB has no place for a message.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from harness.campaigns.generators import GENERATORS
from harness.cli.options import REPORTS, RunDirectory
from harness.errors import PowercutError
from harness.faults.catalogue import faults
from harness.filesystems.profiles import profiles, ruled_modes
from harness.findings.bug_report import bug_reports, findings_folder
from harness.kernels.pins import pins
from harness.measure.registry import COMPARISONS
from harness.model import DISK_FAULTS
from harness.oracles import ORACLES
from harness.plan import LEGAL
from harness.states import FAULT_MODELS
from harness.store import RunStore
from harness.store.layout import RUN, latest, runs
from harness.workloads.generate import SETS as GENERATED_SETS
from harness.workloads.load import applications, workload_sets

Values = Callable[[click.Context], Iterable[str]]


def _modes(_: click.Context) -> Iterable[str]:
    known = profiles() | ruled_modes()
    return ["all", *dict.fromkeys(p.filesystem for p in known.values()), *known]


def _workloads(_: click.Context) -> Iterable[str]:
    sets = workload_sets()
    return dict.fromkeys([*sets, *GENERATED_SETS, *(name for names in sets.values() for name in names)])


def _runs(ctx: click.Context) -> Iterable[str]:
    """`reports/latest`, and the runs, the newest first; of --out, if that is given before."""
    reports = ctx.params.get("out") or REPORTS
    newest = sorted((p.parent for p in runs(reports).glob(f"*/{RUN}")), reverse=True)
    return [*([str(latest(reports))] if latest(reports).exists() else []), *map(str, newest)]


def _points(ctx: click.Context) -> Iterable[str]:
    """The crash points of the findings of the run that --from names, and then its cases."""
    source = ctx.params.get("source") or ctx.params.get("run") or latest(REPORTS)
    with RunStore.open(Path(source)) as store:
        return [*(str(f.crash_point) for f in store.findings()), *(str(c.case) for c in store.cases())]


VALUES: Mapping[str, Values] = {
    "FS/MODE": _modes,
    "WORKLOAD": _workloads,
    "STATES": lambda _: [*LEGAL, *FAULT_MODELS],
    "DISK_FAULT": lambda _: DISK_FAULTS,
    "ORACLE": lambda _: ORACLES,
    "K": lambda _: pins(),
    "RUN": _runs,
    "ID": _points,
    "MEASUREMENT": lambda _: COMPARISONS,
    "FAULT": lambda _: faults(),
    "SLUG": lambda _: bug_reports(findings_folder()),
    "GENERATOR": lambda _: GENERATORS,
    "APPLICATION": lambda _: dict.fromkeys(p.name for p in applications().values()),
}
"""What there is of each kind of value."""

KINDS: Mapping[str, str] = {
    **dict.fromkeys(("configurations", "configuration", "modes", "mode"), "FS/MODE"),
    "workloads": "WORKLOAD",
    "fault_models": "STATES",
    "disk": "DISK_FAULT",
    **dict.fromkeys(("oracles", "oracle"), "ORACLE"),
    **dict.fromkeys(("kernel", "kernels", "kernel_name"), "K"),
    **dict.fromkeys(("point", "case"), "ID"),
    "generators": "GENERATOR",
    "measure name": "MEASUREMENT",
    "faults names": "FAULT",
    "findings names": "SLUG",
    "show findings": "ID",
    "try words": "APPLICATION",
}
"""The kind of a parameter's values, by its name, or by its command's and its own."""
_FILES_TOO = ("FS/MODE", "WORKLOAD", "K", "RUN", "APPLICATION")
"""Kinds of which a path may be typed as well."""


def kind_of(command: click.Command, parameter: click.Parameter) -> str:
    """The kind of values that a parameter takes; empty if it is none of KINDS."""
    if isinstance(parameter.type, RunDirectory):
        return "RUN"
    return KINDS.get(f"{command.name} {parameter.name}") or KINDS.get(parameter.name or "", "")


def attach(command: click.Command) -> None:
    """Have the parameters of a command, and of those below it, complete."""
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        attach(below)
    for parameter in command.params:
        if kind := kind_of(command, parameter):
            # click takes it by the constructor alone; given here, no command has to know of it
            parameter._custom_shell_complete = functools.partial(_complete, kind)


def _complete(
    kind: str, ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """What `incomplete` may become: of a list, `a,b`, its last part. Files, if nothing fits."""
    before, comma, last = (
        incomplete.rpartition(",") if "," in (parameter.metavar or "") else ("", "", incomplete)
    )
    try:
        known = [name for name in VALUES[kind](ctx) if name.startswith(last)]
    except (PowercutError, OSError):
        known = []
    if not known and kind in _FILES_TOO:
        return [CompletionItem(incomplete, type="dir" if kind == "RUN" else "file")]
    return [CompletionItem(f"{before}{comma}{name}") for name in known]
