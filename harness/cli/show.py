"""`powercut show`: why a finding failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

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
from harness.cli.why import find_out
from harness.errors import ExitCode, PowercutError, UsageError
from harness.explain.minimise import VISITS
from harness.findings.by_rules import ruled_profile
from harness.findings.named import finding_by_id
from harness.findings.repro import find_point
from harness.host.files import json_line, refuses
from harness.host.progress import PLAIN_INTERVAL_S
from harness.host.text import named_few
from harness.model import CrashPoint
from harness.report import rewrite_reports
from harness.report.explanation import Explanation, mail_text, read_explanation, write_explanation
from harness.report.ladder import ladder_lines, ladder_svg
from harness.report.lines import reproduce, source_of, source_words
from harness.report.words import known_lines, plural
from harness.store import RunStore
from harness.store.records import Finding
from harness.symptoms import Symptom
from harness.trust import Named, other_contents, plan_here


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

    ID is the id of a finding, or four or more of its first digits, or any crash point that shows the finding.
    Powercut recovers the state again with fewer writes lost, at earlier times and with the lost writes
    present, until the smallest loss that still fails and the most similar state that passes are known. That
    takes seconds where a UML kernel judges. The explanation is kept in the run directory, and the run's
    reports show it.
    """
    if every and findings:
        raise UsageError(
            f"--all chooses the findings itself, and {named_few(findings)} would not be among them",
            "leave out either",
        )
    with open_run(source) as store:
        chosen = _every(store) if every else [_named(store, text) for text in findings]
        if every and not chosen:
            console.say(f"the run {store.path.name} has no finding: there is nothing to explain")
            return ExitCode.CONSISTENT
        _need_fitting(chosen, svg)
        worst, before = ExitCode.CONSISTENT, _whys(store)
        told = _Told(every=every, ladder=ladder, as_json=as_json)
        for finding, asked in chosen:
            try:
                found = _explained(store, finding, named_here(given), accel, again)
            except PowercutError as e:
                if not every:
                    raise
                say_error(e)
                worst = ExitCode.UNDECIDED
                continue
            told.say(finding, found, asked)
            if svg is not None:
                svg.write_text(str(ladder_svg(found)), encoding="utf-8")
        told.say_meanings()
        if _whys(store) != before:
            rewrite_reports(store)
    return worst


def _need_fitting(chosen: Sequence[object], svg: Path | None) -> None:
    """Raises UsageError for no finding, and for several with one file: the last would take it."""
    if not chosen:
        raise UsageError("no finding was named", "name one, or --all; the report has their ids")
    if svg is not None and len(chosen) > 1:
        raise UsageError(
            f"an SVG has one ladder, and these are {len(chosen)} findings", "name one, or leave out --svg"
        )


def _whys(store: RunStore) -> list[Explanation | None]:
    """The explanations that are kept, of each finding."""
    return [read_explanation(store.layout, f.id) for f in store.findings()]


class _Told:
    """The output of one command about its findings. The meanings of words are said once, at the end. `every`:
    nobody named the findings, so that findings of one cause are told in full once.
    """

    def __init__(self, *, every: bool, ladder: bool, as_json: bool) -> None:
        self._every, self._ladder, self._as_json = every, ladder, as_json
        self._causes: dict[tuple[Symptom, str], Finding] = {}
        self._meanings: dict[str, None] = {}

    def say(self, finding: Finding, found: Explanation, asked: str) -> None:
        if self._as_json:
            console.say(json_line(found))
            return
        first = self._causes.setdefault((finding.symptom, found.mechanism), finding)
        if self._every and found.mechanism and first is not finding:
            console.say(f"{asked}: {found.headline}")
            console.say(
                f"the same symptom and mechanism as {first.id}, above; in full: powercut show {finding.id}"
            )
            console.say("")
            return
        rows, meanings = ladder_lines(found) if self._ladder else ([], [])
        text = mail_text(found, asked).splitlines()
        for line in [*known_lines(finding), *text, "", *rows, *([""] if rows else [])]:
            console.say(line)
        self._meanings |= dict.fromkeys(meanings)

    def say_meanings(self) -> None:
        for line in self._meanings:
            console.say(line)


def _explained(store: RunStore, finding: Finding, named: Named, accel: str, again: bool) -> Explanation:
    """What is kept, or is found out now, with the command as it can be typed here."""
    other = ""
    if again and ruled_profile(finding.crash_point) is not None:
        errors.say(f"{finding.id}: no state of its mode is visited: what was kept is shown")
        again = False
    found = None if again else _kept(store, finding)
    if found is None:
        found = _find_out(store, finding, named, accel)
    elif other := other_contents(store, named, finding.case.workload):
        errors.say(f"{other}; what follows was kept, and is of the one recorded")
    source = (
        source_words(store, str(store.path)) if other else source_of(plan_here(store, named), str(store.path))
    )
    line = reproduce(finding.case, CrashPoint.parse(found.point).state, source)
    return msgspec.structs.replace(found, lines=found.lines | {"reproduce": line})


def _kept(store: RunStore, finding: Finding) -> Explanation | None:
    """None too where it names no crash point: it may come from anybody."""
    known = read_explanation(store.layout, finding.id)
    try:
        return known if known is not None and CrashPoint.parse(known.point).case == finding.case else None
    except ValueError:
        return None


def _find_out(store: RunStore, finding: Finding, named: Named, accel: str) -> Explanation:
    if ruled_profile(finding.crash_point) is not None:
        raise UsageError(
            f"{finding.id}: its explanation is not kept in {store.path}, and no state of its mode is visited",
            "run the program again; --budget gives the search for causes more time",
        )
    found, recorded_on = find_out(store, finding, named, accel, _telling(finding))
    if recorded_on:  # of another kernel: it would be taken for the run's
        errors.say(recorded_on)
    elif why := refuses(store.path):
        errors.say(f"{why}: the explanation is not kept")
    else:
        write_explanation(store.layout, found)
    return found


def _telling(finding: Finding) -> Callable[[int], None]:
    """Tells how many states were visited, every few seconds: an emulated guest takes as long to boot."""
    begun = last = time.monotonic()
    errors.say(f"{finding.id}: booting a guest")

    def tell(visited: int) -> None:
        nonlocal last
        now = time.monotonic()
        if visited == 1 or now - last >= PLAIN_INTERVAL_S:
            last = now
            states = plural(visited, "state")
            errors.say(f"{finding.id}: {now - begun:.0f} s, {states} recovered (at most {VISITS})")

    return tell


def _named(store: RunStore, text: str) -> tuple[Finding, str]:
    """A finding by its id, or the first that a crash point shows; with the crash point to be explained."""
    if (by_id := finding_by_id(text, store)) is not None:
        return by_id, str(by_id.crash_point)
    point = find_point(text, store)
    seen = store.violated(point.case).get(str(point.state), frozenset())
    known = store.findings_of(point.case)
    there = [f for f in known if (f.oracle, f.signature) in seen or _is_explained_at(point, f, store)]
    if not there:
        ids = named_few([f.id for f in known])
        raise UsageError(
            f"no finding is shown at {point}",
            f"powercut repro {point} judges it again; the findings of {point.case}: {ids}",
        )
    if others := ", ".join(f.id for f in there[1:]):
        errors.say(f"{point} shows {len(there)} findings; this is {there[0].id}, beside {others}")
    return there[0], str(point)


def _is_explained_at(point: CrashPoint, finding: Finding, store: RunStore) -> bool:
    """Whether the explanation that is kept of a finding is of this crash point: the run may not have visited
    it.
    """
    kept = _kept(store, finding)
    return kept is not None and CrashPoint.parse(kept.point) == point


def _every(store: RunStore) -> list[tuple[Finding, str]]:
    """The first finding of each symptom and mode."""
    found: dict[tuple[str, object], Finding] = {}
    for finding in store.findings():
        found.setdefault((finding.case.configuration, finding.symptom), finding)
    return [(f, str(f.crash_point)) for f in found.values()]
