"""`powercut show`: why a finding failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.cli.console import console, errors
from harness.cli.guard import guarded, say_error
from harness.cli.options import (
    NewFile,
    accel_option,
    named_here,
    open_run,
    own_files_options,
    source_option,
    with_options,
)
from harness.errors import ExitCode, PowercutError, UsageError
from harness.explain.explain import Explainer, explain
from harness.findings.repro import kernel_words, repro_context
from harness.host.files import json_bytes
from harness.report.explanation import Explanation, mail_text, read_explanation, write_explanation
from harness.report.ladder import ladder_svg, ladder_text
from harness.report.lines import source_of
from harness.store import RunStore
from harness.store.records import Finding
from harness.trust import Named, plan_here


@click.command("show")
@click.argument("findings", metavar="ID...", nargs=-1)
@source_option
@with_options(own_files_options)
@accel_option
@click.option("--all", "every", is_flag=True, help="One finding of each symptom and mode.")
@click.option("--again", is_flag=True, help="Visit the states again, although an explanation is kept.")
@click.option("--svg", "svg", type=NewFile(), metavar="FILE", help="Write the ladder as an SVG.")
@click.option("--ladder/--no-ladder", default=True, show_default=True, help="Show the events as a ladder.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@guarded
def show_command(
    findings: tuple[str, ...],
    source: Path,
    accel: str,
    every: bool,
    again: bool,
    svg: Path | None,
    ladder: bool,
    as_json: bool,
    **given: Any,
) -> ExitCode:
    """Say why a finding failed: what was promised, written and lost, and which flush would have saved it.

    \b
    powercut show 1f2e3d4c5b6a
    powercut show ext4-nobarrier/overwrite@t36=
    powercut show --all --no-ladder

    A finding is named by its 12 digits, or by the crash point at which it is shown. Its state is recovered
    again, with fewer writes lost, at earlier times, and with the lost writes present, until the least loss
    that still fails and the most similar state that does not are known. That takes seconds where a UML
    kernel judges. The explanation is kept in the run directory; powercut report shows it.
    """
    with open_run(source) as store:
        chosen = _every(store) if every else [f for text in findings for f in [_finding(store, text)]]
        if every and not chosen:
            console.say(f"the run {store.path.name} has no finding: there is nothing to explain")
            return ExitCode.CONSISTENT
        if not chosen:
            raise UsageError("no finding was named", "name one, or --all; the report has their ids")
        worst = ExitCode.CONSISTENT
        for finding in chosen:
            try:
                found = _explained(store, finding, named_here(given), accel, str(source), again)
            except PowercutError as e:
                if not every:
                    raise
                say_error(e)
                worst = ExitCode.UNDECIDED
                continue
            _say(found, ladder, as_json)
            if svg is not None:
                svg.write_text(str(ladder_svg(found)))
    return worst


def _say(found: Explanation, ladder: bool, as_json: bool) -> None:
    if as_json:
        console.say(json_bytes(found).decode())
        return
    for line in [*mail_text(found).splitlines(), "", *(ladder_text(found).splitlines() if ladder else ())]:
        console.say(line)


def _explained(
    store: RunStore, finding: Finding, named: Named, accel: str, source: str, again: bool
) -> Explanation:
    known = None if again else read_explanation(store.layout, finding.id)
    if known is not None:
        return known
    with (
        repro_context(store, finding.crash_point, named, accel) as shown,
        Explainer(shown, store.plan().unit_sectors) as explainer,
    ):
        found = explain(explainer, finding, source_of(plan_here(store, named), source))
        if shown.recorded_on:  # of another kernel: it would be taken for the run's
            errors.say(
                f"recorded on {shown.recorded_on}, explained on {kernel_words(shown.kernel)}: not kept"
            )
            return found
    write_explanation(store.layout, found)
    return found


def _finding(store: RunStore, text: str) -> Finding:
    """By id, or the first of a crash point."""
    known = store.findings()
    for finding in known:
        if text in (finding.id, str(finding.crash_point)):
            return finding
    ids = ", ".join(f.id for f in known[:6]) or "none"
    raise UsageError(f"the run {store.path.name} has no finding {text}", f"its findings: {ids}")


def _every(store: RunStore) -> list[Finding]:
    """The first finding of each symptom and mode."""
    found: dict[tuple[str, object], Finding] = {}
    for finding in store.findings():
        found.setdefault((finding.case.configuration, finding.symptom), finding)
    return [*found.values()]
