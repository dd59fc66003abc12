"""`powercut triage`: the findings of runs, grouped by cause."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from harness.cli.console import console, errors
from harness.cli.guard import guarded
from harness.cli.options import (
    Folder,
    NewFile,
    RunDirectory,
    named_here,
    open_run,
    own_files_options,
    with_options,
)
from harness.errors import ExitCode, UsageError
from harness.findings.causes import Cause, CauseMember
from harness.findings.triage import Triage, plan_of, standing_of, triage, workload_of
from harness.host.files import elsewhere, refuses, write_atomically
from harness.host.progress import progress_for
from harness.host.text import one_line
from harness.report.explanation import read_explanation
from harness.report.lines import run_again, source_words
from harness.report.similar import SimilarFindings, similar
from harness.report.words import plural, shown_path
from harness.rules.words import in_brackets
from harness.store import RunStore
from harness.store.layout import PLAN, RUN

_STANDS_FOR_ANY = re.compile(r"\b(NAME|N)\b")
_SHOWN = 6
"""Of a cause: how many members are named, one of each symptom and rule; the others are counted."""


@click.command("triage")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=RunDirectory())
@click.option("--expected", is_flag=True, help="Known failures (--expect), too.")
@with_options(own_files_options)
@click.option(
    "--shrink/--no-shrink",
    "shrinks",
    default=True,
    show_default=True,
    help="--no-shrink: only group the findings by symptom or mechanism, which takes no guest.",
)
@click.option("--json", "json_file", type=NewFile(), metavar="FILE", help="Write the causes as JSON, too.")
@click.option(
    "--output",
    type=Folder(),
    metavar="DIR",
    help="Where the shrunk workloads are written. Default: triage/ in the first run's directory.",
)
@guarded
def triage_command(runs: tuple[Path, ...], **given: Any) -> ExitCode:
    """How many bugs are behind these findings? Group the findings of runs by cause.

    \b
    powercut triage reports/latest
    powercut triage reports/runs/*-nightly --json causes.json

    First come the findings that look alike: those of one symptom, or of one mechanism where powercut show has
    explained some. Then each finding is shrunk to the fewest operations that still show its symptom (the
    oracle, and what it says was lost), then to simpler ones. Two findings have one cause if they shrink to
    the same workload; with the same symptom, also if they shrink to the same workload in another mode or to
    the same operations with other numbers; or if one workload contains the other and shows all of its
    symptoms. The result says which rule joined them. The same symptom alone joins nothing.

    Shrinking takes a minute or so for each finding. Stop it whenever you like: the same command goes on where
    it was, and is quick once all is done, since what was recorded is kept in the cache.

    Exits 0 if the runs have no findings, 1 if they have, 3 if none of them shows again, 130 if interrupted.
    """
    if given["json_file"] and not given["shrinks"]:
        raise UsageError("--json writes causes, which shrinking tells apart", "leave out --no-shrink")
    with contextlib.ExitStack() as opened:
        stores = [opened.enter_context(open_run(path)) for path in _of_runs(runs)]
        groups = _alike(stores, expected=given["expected"])
        for line in _alike_lines(groups):
            console.say(line)
        if not given["shrinks"]:
            return ExitCode.INCONSISTENT if groups else ExitCode.CONSISTENT
        folder = given["output"] or stores[0].path / "triage"
        if groups and (why := refuses(folder)):
            raise UsageError(why, f"name a folder elsewhere: --output {elsewhere('triage')}")
        try:
            with progress_for(console) as progress:
                found = triage(stores, named_here(given), progress, expected=given["expected"])
        except KeyboardInterrupt:
            console.say("interrupted; what was recorded is kept: the same command goes on")
            return ExitCode.INTERRUPTED
        files = _write_workloads(found, folder)
        if given["json_file"]:
            encoded = msgspec.json.format(msgspec.json.encode(found), indent=1)
            write_atomically(given["json_file"], encoded + b"\n")
        for line in text_of(found, stores, files):
            console.say(line)
        if found.waiting:
            left = plural(found.waiting, "finding")
            console.say(
                f"interrupted, {left} not shrunk yet; what was recorded is kept: the same command goes on"
            )
            return ExitCode.INTERRUPTED
    if found.causes:
        return ExitCode.INCONSISTENT
    return ExitCode.UNDECIDED if found.not_again else ExitCode.CONSISTENT


def _of_runs(given: Sequence[Path]) -> list[Path]:
    """Each once; of several, without the series among them, as in `reports/runs/*`."""
    paths = list(dict.fromkeys(path.resolve() for path in given))
    series = [p for p in paths if len(paths) > 1 and (p / PLAN).is_file() and not (p / RUN).is_file()]
    for path in series:
        errors.say(f"{shown_path(path)}: a series, not a run: left out")
    if len(series) == len(paths):
        raise UsageError("there is no run among these", "name run directories, such as reports/latest")
    return [path for path in paths if path not in series]


def _alike(stores: Sequence[RunStore], *, expected: bool) -> list[SimilarFindings]:
    """The findings of these runs by symptom or mechanism. `expected`: known failures, too."""
    findings = [f for s in stores for f in s.findings() if expected or f.expectation is None]
    explained = {f.id: e for s in stores for f in s.findings() if (e := read_explanation(s.layout, f.id))}
    return similar(findings, explained)


def _alike_lines(groups: Sequence[SimilarFindings]) -> Iterator[str]:
    if not groups:
        yield "no findings, so there is nothing to group"
        return
    count = sum(len(g.findings) for g in groups)
    yield f"{plural(count, 'finding')} in {plural(len(groups), 'group')}, by symptom or mechanism:"
    for number, g in enumerate(groups, 1):
        cases, others = plural(g.cases, "case"), len({f.symptom for f in g.findings}) - 1
        more = f", and {plural(others, 'more symptom')}" if others else ""
        told = f"{g.example.symptom}{more}{in_brackets(standing_of(g.example))}"
        yield one_line(f"{number}. {plural(len(g.findings), 'finding')} in {cases}: {told}")
        yield one_line(f"   such as {g.example.id}, {g.point}: {g.why or g.example.summary}")
    if any(_STANDS_FOR_ANY.search(str(g.example.symptom)) for g in groups):
        yield "NAME and N stand for any name and any number."


def _write_workloads(found: Triage, folder: Path) -> dict[str, Path]:
    """The file of each cause's workload, by the cause's name."""
    files: dict[str, Path] = {}
    for cause in (g for g in found.causes if g.smallest.minimal):
        folder.mkdir(parents=True, exist_ok=True)
        files[cause.name] = folder / f"{cause.name}.toml"
        write_atomically(files[cause.name], workload_of(cause))
    return files


def text_of(found: Triage, stores: Sequence[RunStore], files: dict[str, Path]) -> list[str]:
    """The causes for people, a line each."""
    members = sum(len(g.members) for g in found.causes)
    lines = []
    if members or found.not_again:
        lines = [f"{plural(members, 'finding')}, {plural(len(found.causes), 'cause')}"]
    for number, cause in enumerate(found.causes, 1):
        lines += ["", *_cause_lines(number, cause, stores, files)]
    for member in found.not_again:
        what = f"{member.case} {member.symptom}{in_brackets(member.standing)}"
        lines += ["", f"not shown again: {what}: {member.reason}"]
    if found.left_out:
        lines += ["", f"{plural(found.left_out, 'known failure')} left out (--expected shrinks them, too)"]
    return lines


def _cause_lines(number: int, cause: Cause, stores: Sequence[RunStore], files: dict[str, Path]) -> list[str]:
    smallest = cause.smallest
    cases = plural(len({(m.run, m.case) for m in cause.members}), "case")
    lines = [f"{number}. {cause.name}: {plural(len(cause.members), 'finding')} in {cases}"]
    lines += [f"       {operation}" for operation in smallest.minimal]
    lines += [f"   shows {text}" for _, text in smallest.shows] or [f"   {smallest.summary}"]
    if smallest.schedule:
        lines.append(f"   under schedule {smallest.schedule.removeprefix('.s')}; not under the default one")
    if smallest.why_unconfirmed:
        lines.append(f"   {smallest.why_unconfirmed}")
    for name in cause.contains:
        lines.append(f"   contains the operations of {name}: perhaps a consequence of that")
    ruled = reversed([*zip(cause.members, cause.rules, strict=True)])
    examples = {(m.symptom, m.standing, rule): m for m, rule in ruled}
    for (symptom, standing, rule), member in list(reversed(examples.items()))[:_SHOWN]:
        lines.append(f"   {member.case} {symptom}{in_brackets(standing)}{in_brackets(rule)}")
    if more := len(cause.members) - min(len(examples), _SHOWN):
        lines.append(f"   ... and {plural(more, 'more finding')}")
    return lines + _commands(smallest, stores, files.get(cause.name))


def _commands(member: CauseMember, stores: Sequence[RunStore], file: Path | None) -> list[str]:
    store = next(s for s in stores if shown_path(s.path) == member.run)
    source = source_words(store, shown_path(store.path))
    lines = [f"reproduce: powercut repro {one_line(member.point)} --from {source}"]
    if file:
        again = run_again(
            plan_of(stores, member), member.configuration, f"{shown_path(file)}{member.schedule}"
        )
        lines.insert(0, f"run it: {again}")
    return lines
