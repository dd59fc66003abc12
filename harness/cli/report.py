"""`powercut report`, `compare` and `list`: show what is stored."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from harness.cli.console import console, errors
from harness.cli.guard import guarded
from harness.cli.options import (
    REPORTS,
    NewFile,
    RunDirectory,
    accel_option,
    asked_expectations,
    asked_known,
    bounded,
    expect_option,
    is_typed,
    known_options,
    named_here,
    open_run,
    out_option,
    own_files_options,
    with_options,
)
from harness.cli.serve import Server, Site
from harness.cli.stored import stored_rows
from harness.errors import ExitCode, RunLocked, UsageError
from harness.filesystems.disks import disks
from harness.filesystems.layers import layers
from harness.filesystems.profiles import profiles, ruled_modes
from harness.filesystems.stacks import stacks
from harness.findings.compare import Comparison, compare, same_recordings
from harness.guests.kernel_list import HEAD, row_of
from harness.host.files import json_line, refuses, write_atomically
from harness.host.progress import telling
from harness.kernels.pins import pins
from harness.known.base import KnownBugs
from harness.model import bounds
from harness.report import annotation_lines, explained, print_summary, shown_path, source_words, write_reports
from harness.report.changes import (
    Changes,
    FindingChange,
    Side,
    changes,
    changes_html,
    changes_json,
    changes_text,
)
from harness.report.lines import resume_of
from harness.report.words import number, plural
from harness.store import RunStore
from harness.store.garbage import Kept, kept_runs
from harness.store.layout import runs
from harness.summary import shell_code
from harness.workloads.generate import SETS as GENERATED_SETS
from harness.workloads.generate.chance import name_of as random_name
from harness.workloads.load import folder_sets, select_workloads

FOLDER_ROWS = 60  # a folder of more workloads is one row of `powercut list workloads`


@click.command("report")
@click.argument("run", type=RunDirectory(), default=REPORTS / "latest")
@expect_option("Print the run as these expectations read it, instead of its own; nothing is rewritten.")
@with_options(known_options)
@with_options(own_files_options)
@accel_option
@click.option("--annotations", "annotate", is_flag=True,
              help="Print findings as annotations of a job on GitHub, and nothing else.")  # fmt: skip
@click.option("--serve", is_flag=True, help="Serve the report on loopback, and open any crash state live.")
@click.option("--port", type=bounded(bounds.Port), metavar="PORT",
              help="With --serve. Default: one that is free.")  # fmt: skip
@guarded
def report_command(
    run: Path,
    expect: tuple[Path, ...],
    accel: str,
    annotate: bool,
    serve: bool,
    port: int | None,
    **given: Any,
) -> ExitCode:
    """Rewrite the reports of RUN (default: reports/latest) and print its summary.

    With --serve, the report is served to browsers of this host, until Ctrl-C: there each finding and each
    state of a case has a link that recovers it in a guest, and shows what was on the disk, what recovery read
    and what it wrote. Nothing of the run is changed by that.

    Known bugs that are named are added to those of the run, and stay there; so does --new-only.

    \b
    powercut report reports/latest --expect vms/filesystems/natural-faults.expected

    Exit codes are those of powercut run.
    """
    if port is not None and not serve:
        raise UsageError("--port is for --serve", "add --serve, or leave out --port")
    if annotate and serve:
        raise UsageError(
            "--annotations prints lines for CI, and --serve a page for browsers", "use one of them"
        )
    with open_run(run) as store:
        known = _known_with(store.known(), asked_known(given))
        is_ours = _prepare(store, expect, known)
        summary = explained(store)
        if annotate:
            for line in annotation_lines(summary, source_words(store, shown_path(store.path))):
                console.say(line)
            return shell_code(summary)
        print_summary(summary, source_words(store, shown_path(store.path)), console)
        if is_ours and (again := resume_of(store, shown_path(store.path))):
            console.say(f"continue with: {again}")
        if not expect:
            console.print(f"report: {shown_path(store.path / 'report.html')}", highlight=False)
        if serve:
            with Site(store, named_here(given), accel) as site, Server(site, port or 0) as server:
                console.say(f"serving {server.url} until Ctrl-C")
                console.say("whoever has this address can start guests here: pass it on to nobody")
                with contextlib.suppress(KeyboardInterrupt):
                    server.work()
        return shell_code(summary)


def _known_with(known: KnownBugs, named: KnownBugs) -> KnownBugs:
    """The known bugs of a run and those that were named; one of the same name counts instead."""
    bugs = {bug.name: bug for bug in (*known.bug, *named.bug)}
    return KnownBugs(bug=tuple(bugs.values()), new_only=known.new_only or named.new_only)


def _prepare(store: RunStore, expect: Sequence[Path], known: KnownBugs) -> bool:
    """Write the reports, and tell whether that was done; where only a look is asked for, or possible, what is
    kept does not change.
    """
    if expect:
        store.view_with(asked_expectations(expect), known)
        return False
    if why := refuses(store.path) or refuses(store.layout.lock) or _rewritten(store, known):
        errors.say(f"{why}: its reports stay as they are")
        store.view_with(store.expectations(), known)
    return not why


def _rewritten(store: RunStore, known: KnownBugs) -> str:
    """Write the reports, unless another process works on the run: then why not."""
    try:
        with store.lock("powercut report"):
            if known != store.known():
                store.set_known(known)
            write_reports(store)
    except RunLocked as e:
        return e.what
    return ""


@click.command("compare")
@click.argument("first", type=RunDirectory())
@click.argument("second", type=RunDirectory())
@click.option(
    "--by",
    type=click.Choice(["states", "findings"], case_sensitive=False),
    help="Default: states, if both runs judged the same recordings; else, and with --html, findings.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--html", type=NewFile(), metavar="FILE", help="Write a page of the findings.")
@guarded
def compare_command(first: Path, second: Path, by: str | None, as_json: bool, html: Path | None) -> ExitCode:
    """Compare two runs: of the same recordings state by state, of others finding by finding.

    \b
    powercut run -c MODE,... -w WORKLOAD,... --recordings FIRST --machine uml    # those of FIRST
    powercut compare FIRST SECOND                        # do both judge every crash state alike?
    powercut compare BEFORE AFTER --html patch.html      # what did a patch fix, what did it break?

    By states, a case or state that only one run has counts as a difference. Exits 0 if the runs agree on
    everything, 1 if not, 2 if they share no case, 3 if both left the same undecided, 4 if no case that they
    share has a verdict. By findings, a finding is fixed if the second run covered all states that the first
    may have covered, and does not show it; it is new if the first covered all states like one that shows it.
    Exits 0 if the second run has no finding that the first lacks, 1 if it has a new one, 3 if it has one that
    the first may not have looked at, a case was not decided in both or the second did not cover as much, 4 if
    no case was decided.

    Budgets may end two runs at different states, so compare exits with 3 where nothing is new: each such case
    is named with what both covered, and the last line counts the others. For an answer, let the second run
    judge the recordings of the first with at least its --budget, or give both a larger one.
    """
    with open_run(first) as one, open_run(second) as two:
        # A page is made of findings, so who asks for one need not say so.
        same = not html and same_recordings(one, two)
        if (by or ("states" if same else "findings")) == "findings":
            one_side, other = (Side.of(store, shown_path(store.path)) for store in (one, two))
            return _compare_findings(changes(one_side, other), as_json, html)
        if html:
            raise UsageError("a page is made of findings only", "leave out --by states")
        found = compare(one, two)
    if as_json:
        console.say(json_line(_as_json("states", _comparison(found, first, second))))
    else:
        for line in (*found.cases, *found.differences, *found.undecided):
            console.say(str(line))
        console.say(_compared(found))
    if found.differences or found.cases:
        return ExitCode.INCONSISTENT
    if found.undecided:
        return ExitCode.UNDECIDED
    return ExitCode.CONSISTENT if found.states else ExitCode.NOTHING_RUN


def _compare_findings(found: Changes, as_json: bool, html: Path | None) -> ExitCode:
    if html:
        write_atomically(html, changes_html(found))
    if as_json:
        console.say(json_line(_as_json("findings", changes_json(found))))
    else:
        for line in changes_text(found):
            console.say(line)
    if found.of(FindingChange.NEW):
        return ExitCode.INCONSISTENT
    if found.of(FindingChange.FIRST):
        return ExitCode.UNDECIDED
    if not found.cases:
        return ExitCode.NOTHING_RUN
    return ExitCode.UNDECIDED if found.undecided else ExitCode.CONSISTENT


def _as_json(by: str, found: Mapping[str, object]) -> dict[str, object]:
    """One shape for both: what only the other has is empty."""
    return {"by": by, "states": 0, "differences": [], "findings": [], **found}


def _comparison(found: Comparison, first: Path, second: Path) -> dict[str, object]:
    of_cases = [{"crash_point": None, "text": str(c)} for c in found.cases]
    of_states = [{"crash_point": str(d.point), "text": str(d)} for d in found.differences]
    return {
        "first": shown_path(first),
        "second": shown_path(second),
        "headline": _compared(found),
        "cases": found.compared,
        "states": found.states,
        "differences": [*of_cases, *of_states],
        "undecided": list(found.undecided),
    }


def _compared(found: Comparison) -> str:
    text = f"{plural(found.states, 'crash state')} compared, {plural(len(found.differences), 'difference')}"
    if found.one_sided:
        text += f", {number(found.one_sided)} of them in states that only one run judged"
    text += f"; {plural(len(found.cases), 'case')} differ as a whole" if found.cases else ""
    return text + (f"; {number(len(found.undecided))} undecided in both" if found.undecided else "")


@click.command("list")
@click.argument(
    "what",
    type=click.Choice(
        ["modes", "filesystems", "stacks", "layers", "disks", "workloads", "kernels", "runs"],
        case_sensitive=False,
    ),
)
@out_option()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@guarded
def list_command(what: str, out: Path, as_json: bool) -> None:
    """List what can be named: modes of file systems, stacks, layers, kinds of disk, workloads, kernels, and
    what is stored: runs, campaigns and other series, measurements, each with its state. The words modes and
    filesystems list the same.

    Of kernels it says which version can be had (package lists of other suites are downloaded on first use),
    which are in the cache, and whether UML judges them.

    \b
    powercut list modes
    powercut list kernels
    powercut list runs --out /mnt/large/reports
    """
    if as_json:
        rows = [row_of(pin).words for pin in pins().values()] if what == "kernels" else _rows(what, out)
        named = [dict(zip(COLUMNS[what], row, strict=True)) for row in rows]
        console.say(json_line(named))
    elif what == "kernels":
        _list_kernels()
    else:
        rows = _rows(what, out)
        _say_table(rows)
        if what == "runs" and (piled := _piled_up(kept_runs(out))):
            console.say(piled)


MANY_RUNS = 30
MANY_BYTES = 1 << 30


def _piled_up(kept: Sequence[Kept]) -> str:
    """How many runs there are and what they take, if that is much."""
    size = sum(k.size_bytes for k in kept)
    if len(kept) <= MANY_RUNS and size < MANY_BYTES:
        return ""
    took = f"{plural(len(kept), 'run')}, {size >> 20:,} MiB"
    return f"{took}; powercut gc --runs 14d deletes those that nobody looked at for two weeks"


COLUMNS = {
    "modes": ("name", "mount_options", "summary"),
    "filesystems": ("name", "mount_options", "summary"),
    "stacks": ("name", "summary", "promises"),
    "layers": ("name", "summary", "promises"),
    "disks": ("name", "sectors", "summary"),
    "workloads": ("name", "summary"),
    "kernels": ("name", "newest", "cached", "judged_natively", "summary"),
    "runs": ("path", "kernel", "state", "command"),
}
"""What the columns of each list are called in JSON."""


def _list_kernels() -> None:
    with telling(lambda: "asking apt which kernels can be had", errors.say):
        rows = [row_of(pin) for pin in pins().values()]
    _say_table([row.words for row in (HEAD, *rows)])
    for row in rows:
        if row.why_not:
            console.say(f"{row.name}: {row.why_not}")


def _say_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    for row in rows:
        console.say("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip())


_OF_A_CONTRACT = "what the contract of FS/MODE promises, as rules, such as any/ext4-ordered"


def _rows(what: str, out: Path) -> list[tuple[str, ...]]:
    match what:
        case "modes" | "filesystems":
            asked = " (only if named in full)"
            known = (p for p in (profiles() | ruled_modes()).values() if not p.rules or p.is_of_any)
            return [
                *((p.name, p.mount_options, p.summary + (asked if p.on_request else "")) for p in known),
                ("any/FS-MODE", "", _OF_A_CONTRACT + asked),
            ]
        case "stacks":
            return [
                (" ".join([name, *(f"{name}-{n}" for n in s.may_miss)]), s.summary, s.promises)
                for name, s in stacks().items()
            ]
        case "layers":
            return [(name, layer.summary, layer.promises) for name, layer in layers().items()]
        case "disks":
            return [(name, f"{d.logical_bytes}/{d.physical_bytes}", d.summary) for name, d in disks().items()]
        case "workloads":
            folders = folder_sets()
            shown = [name for name, files in folders.items() if len(files) <= FOLDER_ROWS]
            written = [(w.name, w.summary) for w in select_workloads(["all", *shown, "applications"])]
            sets = [
                (name, f"set: {len(files)} workloads, the files of workloads/{name}")
                for name, files in folders.items()
                if name not in shown
            ]
            sets += [(name, f"set: {summary}") for name, (_, summary) in GENERATED_SETS.items()]
            return [*written, *sets, (random_name(17, 20), "random: 20 operations from seed 17")]
        case _:
            if is_typed("out") and not out.is_dir():
                raise UsageError(f"there is no {out}", "name what was given to powercut run: --out DIR")
            if not (found := list(stored_rows(out))):
                errors.say(f"no run in {runs(out)}")
            return found
