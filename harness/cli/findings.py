"""`powercut findings` and `powercut bugreport`: the folders of `reports/findings`, run and begun."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
import msgspec

from harness.cli.console import console
from harness.cli.guard import guarded
from harness.cli.options import Folder, listed, open_run, own_workloads_option, source_option
from harness.errors import ExitCode, UsageError
from harness.findings.bug_report import BugReport, StatedRun, findings_folder, load, select_bug_reports
from harness.findings.draft import draft, slug_of
from harness.findings.rerun import Rerun, rerun, write_evidence
from harness.findings.shrink import finding_to_shrink
from harness.host.progress import Progress, progress_for
from harness.host.text import one_line
from harness.kernels.find import look_up_pc_kernel
from harness.report.lines import full
from harness.report.words import known_lines, shown_path
from harness.trust import Named


@click.command("findings")
@click.argument("names", nargs=-1, metavar="[SLUG]...")
@click.option("--folder", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR",
              help="Where the findings are. Default: reports/findings.")  # fmt: skip
@click.option("--list", "want_list", is_flag=True, help="List the findings and what they state; run nothing.")
@click.option("--kernels", multiple=True, callback=listed, metavar="K,...",
              help="Ask these kernels instead, without a control; print what each one says.")  # fmt: skip
@click.option("--evidence", is_flag=True, help="Keep what each run printed in the finding's evidence folder.")
@guarded
def findings_command(
    names: tuple[str, ...], folder: Path | None, want_list: bool, kernels: list[str], evidence: bool
) -> ExitCode:
    """Reproduce the findings of reports/findings without Powercut's own machinery.

    \b
    powercut findings                                        all of them, on affected kernels and controls
    powercut findings xfs-sync-no-flush                      one
    powercut findings xfs-sync-no-flush --kernels debian-6.1 which other kernels have it?

    Each finding has a shell script, which is run in a guest with tools, on the kernels that its finding.toml
    names, and which says BROKEN or KEPT.

    Exit codes: 0 each script said what its folder states, 1 one said the opposite, 2 usage, 3 one could not
    be run or decided nothing, 130 interrupted.
    """
    chosen = select_bug_reports(names, folder or findings_folder())
    if not chosen:
        raise UsageError(f"no findings in {folder or findings_folder()}", "name another folder: --folder DIR")
    asked = list(_asked(chosen, kernels))
    if want_list:
        for bug_report in chosen:
            console.say(f"{bug_report.slug}: {bug_report.title}")
            for stated in (s for of, s in asked if of is bug_report):
                console.say(f"  {stated.name}: {stated.says}")
        return ExitCode.CONSISTENT
    _need_whole(chosen)
    for _, stated in asked:
        look_up_pc_kernel(stated.kernel)
    with progress_for(console) as progress:
        seen = [_run(bug_report, stated, progress, evidence) for bug_report, stated in asked]
    if not kernels:
        console.say(summary(seen))
    return exit_code(seen, compared=not kernels)


def _need_whole(chosen: Sequence[BugReport]) -> None:
    """Raises UsageError for a draft that decides nothing yet: a guest took minutes to say so."""
    for bug_report in chosen:
        if lacks := bug_report.lacks():
            what = "what `powercut bugreport` could not write: docs/howto/report-upstream.md says how"
            raise UsageError(f"{bug_report.path}: still to do: {'; '.join(lacks)}", what)


def _asked(chosen: Sequence[BugReport], kernels: Sequence[str]) -> Iterable[tuple[BugReport, StatedRun]]:
    """Every run of these bug reports; with `kernels`, what shows the bug on each of those, with the same
    module or patch: what is broken may not be the kernel's own.
    """
    for bug_report in chosen:
        if not kernels:
            yield from ((bug_report, stated) for stated in bug_report.run)
            continue
        shows = next(r for r in bug_report.run if r.says == "BROKEN")
        for kernel in kernels:
            yield bug_report, msgspec.structs.replace(shows, kernel=kernel, note="")


def _run(bug_report: BugReport, stated: StatedRun, progress: Progress, evidence: bool) -> Rerun:
    seen = rerun(bug_report, stated, progress)
    progress.say(line(seen))
    if evidence and seen.said:
        progress.say(f"  {write_evidence(seen, bug_report.path)}")
    return seen


def line(seen: Rerun) -> str:
    """One run in a line."""
    return f"{seen.bug_report.slug}: {seen.stated.name}: {seen.said or 'undecided'}: {seen.why}"


def summary(seen: Sequence[Rerun]) -> str:
    """How many said what their folders state, and which did not."""
    others = [f"{s.bug_report.slug}: {s.stated.name} (stated {s.stated.says})" for s in seen if not s.agrees]
    counted = f"{len(seen) - len(others)} of {len(seen)} runs said what their folders state"
    return "; not ".join([counted, ", ".join(others)]) if others else counted


def exit_code(seen: Sequence[Rerun], *, compared: bool) -> ExitCode:
    """`compared`: what was said counts, not only that something was."""
    if compared and any(s.said and not s.agrees for s in seen):
        return ExitCode.INCONSISTENT
    return ExitCode.CONSISTENT if all(s.said for s in seen) else ExitCode.UNDECIDED


@click.command("bugreport")
@click.argument("case", metavar="ID")
@source_option
@click.option("--oracle", default="", help="The finding of this oracle. Default: the first finding.")
@click.option("--module", "modules", multiple=True, type=click.Path(path_type=Path), metavar="FILE.ko",
              help="The module that RUN had in place of the kernel's own; goes along.")  # fmt: skip
@click.option("--output", type=Folder(), metavar="DIR", help="A new folder. Default: in reports/findings.")
@own_workloads_option
@guarded
def bugreport_command(
    case: str,
    source: Path,
    oracle: str,
    modules: tuple[Path, ...],
    output: Path | None,
    workloads: list[str],
) -> ExitCode:
    """Begin the bug report of a finding: a folder for its maintainers, as far as a program can write it.

    \b
    powercut shrink ext4-fast_commit/random1-7-20 --from RUN     first: fewer operations
    powercut history ext4-fast_commit/random1-7-20 --from RUN    and: which kernels have it
    powercut bugreport ext4-fast_commit/random1-7-20 --from RUN

    ID is a finding, a case or a crash point of the run. Writes README.md, finding.toml, a reproduce.sh that
    needs no Powercut, and the evidence; what is left to do says TO DO. Then: powercut findings SLUG.
    """
    with open_run(source) as store:
        finding = finding_to_shrink(store, case, oracle)
        if finding is None:
            cases = ", ".join(dict.fromkeys(str(f.case) for f in store.findings())) or "none"
            raise UsageError(f"{case} has no finding", f"cases that have one: {cases}")
        folder = output or Path("reports", "findings", slug_of(finding))
        named = Named(replaced=modules, workloads=tuple(workloads))
        for file in draft(store, finding, folder, named):
            console.say(shown_path(file))
        for line in known_lines(finding):
            console.say(f"before you send it: {one_line(line)}")
    for what in load(folder).lacks():
        console.say(f"TO DO: {what}")
    again = shlex.join(["powercut", "findings", folder.name, "--folder", full(folder.parent)])
    console.say(f"finish what says TO DO, then: {again}")
    return ExitCode.CONSISTENT
