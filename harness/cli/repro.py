"""`powercut repro` and `powercut shrink`: reproduce a crash state, minimise a finding."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from harness.cases.attempts import Unobserved
from harness.cli.console import console, errors
from harness.cli.guard import code_of, guarded, say_error
from harness.cli.options import (
    NewFile,
    accel_option,
    bounded,
    named_here,
    open_run,
    own_files_options,
    source_option,
    with_options,
)
from harness.errors import ExitCode, UsageError
from harness.filesystems.profile import Profile
from harness.findings.by_rules import export_files, judge_again, ruled_profile
from harness.findings.record_again import record_again
from harness.findings.repro import (
    ReproContext,
    Reproduction,
    export,
    find_point,
    kernel_words,
    rebuilt,
    recorder_files,
    repro_context,
    reproduce,
    shell,
    tools_for_shell,
)
from harness.findings.shrink import finding_to_shrink, shrink, workload_file
from harness.host.files import elsewhere, json_line, refuses, write_atomically
from harness.host.progress import at_work
from harness.host.text import named_few
from harness.measurements.samples import interval
from harness.model import CrashPoint, Judgement, Verdict, bounds
from harness.model.schedules import under_schedule, without_schedule
from harness.report import rewrite_reports, shown_path
from harness.report.lines import explain, run_again, source_of
from harness.report.words import device_of, known_lines, plural, state_words
from harness.store import RunStore
from harness.store.records import finding_id
from harness.trust import Named, plan_here
from harness.workloads.applications import need_name


@click.command("repro")
@click.argument("point", metavar="ID")
@source_option
@with_options(own_files_options)
@accel_option
@click.option(
    "--shell",
    "want_shell",
    is_flag=True,
    help="Open a console in the guest with the crashed disk and the recovered one attached, not mounted, and "
    "with e2fsprogs, xfsprogs, btrfs-progs and f2fs-tools as far as this host has them.",
)
@click.option(
    "--export",
    "export_file",
    type=NewFile(),
    metavar="FILE",
    help="Write the crashed disk as a raw image; of a mode that is only rules, a folder with the files that "
    "are left, with extended attributes of users (user.*), and what had been acknowledged.",
)
@click.option(
    "--repeat",
    type=bounded(bounds.Repeats),
    default=1,
    show_default=True,
    metavar="N",
    help="Recover it N times, each in a fresh guest, and say how often it is consistent: for what comes and "
    "goes.",
)
@click.option(
    "--record",
    is_flag=True,
    help="Record the case again, from the run's base image, and say whether the recording is the same, byte "
    "for byte. Of a run with --clock virtual.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--bisect", is_flag=True, hidden=True)  # git would read 2, "no such option", as "bad"
@guarded
def repro_command(
    point: str, source: Path, accel: str, as_json: bool, bisect: bool, **given: Any
) -> ExitCode:
    """Rebuild one crash state in a fresh guest and judge it again.

    \b
    powercut repro ext4-nobarrier/append-fsync@41
    powercut repro ext4-nobarrier/append-fsync@41 --shell
    powercut repro ext4-nobarrier/append-fsync@41 --repeat 20
    powercut repro ext4-nobarrier/append-fsync@41 --kernel arch/x86/boot/bzImage

    Exits 0 if the state is consistent, 1 if not, 3 if undecided; with --record 0 if the recordings are equal,
    1 if not. On a kernel other than the run's, this tests
    recovery only: the writes are those of the kernel that recorded them. To test or bisect what a kernel
    writes, make a new recording: powercut run --bisect.

    A kernel, a module or a workload that is a file on this host is used only if it is named here, since a run
    directory may come from somebody else.
    """
    if bisect:
        return _no_bisect()
    _need_one_answer(given, as_json=as_json)
    with open_run(source) as store:
        where = find_point(point, store)
        if (profile := ruled_profile(where)) is not None:
            return _by_rules(store, where, profile, accel, given, as_json=as_json)
        tools = _say_tools() if given["want_shell"] else []
        with contextlib.ExitStack() as stack:
            with at_work(f"{where}: unpacking the recording", errors):
                shown = stack.enter_context(repro_context(store, where, named_here(given), accel, tools))
            return _done(shown, store, where, given, as_json=as_json)


def _need_one_answer(given: Mapping[str, Any], *, as_json: bool) -> None:
    """Raises UsageError for options of which each asks for something else, and for JSON of an answer that has
    none.
    """
    answers = {
        "--shell": given["want_shell"],
        "--export": given["export_file"],
        "--record": given["record"],
        "--repeat": given["repeat"] > 1,
    }
    first, *others = [option for option, asked in answers.items() if asked] or [""]
    if others:
        raise UsageError(f"{first} and {others[0]} are two answers", "give one of them, then the other")
    if as_json and first not in ("", "--repeat"):
        raise UsageError(f"{first} prints no JSON", "leave out --json")


def _done(
    shown: ReproContext, store: RunStore, where: CrashPoint, given: Mapping[str, Any], *, as_json: bool
) -> ExitCode:
    """What the command line asks for at a crash point."""
    if file := given["export_file"]:
        export(shown, file)
        console.say(f"{where}: {file}")
        return ExitCode.CONSISTENT
    if given["want_shell"]:
        return ExitCode.CONSISTENT if shell(shown, console.say) == 0 else ExitCode.UNDECIDED
    if given["record"]:
        return _recorded_again(shown)
    if given["repeat"] > 1:
        return _repeated(where, lambda: reproduce(shown).judgement, given["repeat"], as_json=as_json)
    with at_work(f"{where}: a guest recovers it", errors):
        seen = reproduce(shown)
    if as_json:
        console.say(json_line(_as_json(seen)))
    else:
        _print(seen)
        _print_known(store, seen)
        _point_to_show(store, where, named_here(given))
    return code_of(seen.judgement.verdict)


def _recorded_again(shown: ReproContext) -> ExitCode:
    """Record the case once more, and print whether that gave the same."""
    case = shown.point.case
    with at_work(f"{case}: a guest records it again", errors):
        differs = record_again(shown)
    if not differs:
        console.say(f"{case}: recorded again, and the recordings are equal, byte for byte")
        return ExitCode.CONSISTENT
    console.say(f"{case}: recorded again, and not the same: {', '.join(differs)} differ")
    return ExitCode.INCONSISTENT


def _repeated(point: CrashPoint, judge: Callable[[], Judgement], times: int, *, as_json: bool) -> ExitCode:
    """Judge a crash state so many times, and print how often each verdict came of it."""
    verdicts: list[Verdict] = []
    for number in range(1, times + 1):
        with at_work(f"{number} of {times}: a guest recovers it", errors):
            verdict = judge().verdict
        verdicts.append(verdict)
        if not as_json:
            console.say(f"  {number} of {times}: {verdict.name}")
    kept, decided = verdicts.count(Verdict.PASS), times - verdicts.count(Verdict.UNKNOWN)
    low, high = interval(kept, decided)
    if as_json:
        line = {"crash_point": str(point), "repeats": times, "kept": kept, "decided": decided}
        console.say(json_line(line | {"interval": [round(low, 4), round(high, 4)]}))
    else:
        undecided = f", {times - decided} undecided" if decided < times else ""
        rate = f"{kept / decided:.0%} (95 % interval: {low:.0%} to {high:.0%})" if decided else "no rate"
        console.say(f"{point}: consistent {kept} of {decided} times{undecided}: {rate}")
    return code_of(*verdicts)


def _print_known(store: RunStore, seen: Reproduction) -> None:
    """Which known bug or known loss the run says that these violations are, and what to do."""
    case = seen.point.case
    shown = {finding_id(case, v.oracle, v.signature) for v in seen.judgement.violations}
    for f in store.findings() if shown else ():
        for line in known_lines(f) if f.id in shown else ():
            console.say(f"  finding {f.id}: {line}")


def _point_to_show(store: RunStore, point: CrashPoint, named: Named) -> None:
    """The command that says why, if the run has a finding there."""
    found = next((f for f in store.findings() if f.crash_point == point), None)
    if found is not None and (why := explain(found, source_of(plan_here(store, named), str(store.path)))):
        console.say(f"why: {why}")


def _say_tools() -> list[str]:
    """The programs that go along into the console; says which, and what this host lacks."""
    there, lacking = tools_for_shell()
    names = [wanted.partition(":")[0] for wanted in there]
    console.say(f"in the guest: {', '.join(names)}")
    if lacking:
        missing = ", ".join(wanted.partition(":")[0] for wanted in lacking)
        packages = " ".join(sorted({wanted.partition(":")[2] for wanted in lacking}))
        console.say(f"not on this host: {missing}; apt-get install {packages}")
    return there


def _no_bisect() -> ExitCode:
    say_error(
        UsageError(
            "repro judges an old recording again, so it cannot find the commit that began to write wrongly",
            "make a new recording at each commit: powercut run -c MODE -w WORKLOAD --kernel FILE --bisect",
        )
    )
    return ExitCode.BISECT_STOP


def _by_rules(
    store: RunStore,
    where: CrashPoint,
    profile: Profile,
    accel: str,
    given: Mapping[str, Any],
    *,
    as_json: bool,
) -> ExitCode:
    """What the command line asks for at a state of a mode that is only rules."""
    if given["want_shell"] or given["record"]:
        raise UsageError(
            f"{where} is of a mode that is only rules: there is no disk",
            "leave out --shell and --record; --export writes the files that are left",
        )
    if folder := given["export_file"]:
        left_out = export_files(store, where, profile, named_here(given), accel, folder)
        console.say(f"{where}: {folder}; the check in {folder / 'files'} gets {folder / 'acknowledged'}")
        if left_out:
            console.say(f"not written: {plural(len(left_out), 'extended attribute')}: {named_few(left_out)}")
        return ExitCode.CONSISTENT
    judge = functools.partial(judge_again, store, where, profile, named_here(given), accel)
    if given["repeat"] > 1:
        return _repeated(where, judge, given["repeat"], as_json=as_json)
    judgement = judge()
    _print_judgement(where, judgement, as_json=as_json)
    return code_of(judgement.verdict)


def _print_judgement(point: CrashPoint, judgement: Judgement, *, as_json: bool) -> None:
    """What is said of a state of a mode that is only rules."""
    if as_json:
        told = [{"oracle": v.oracle, "summary": v.summary, "found": v.found} for v in judgement.violations]
        line = {"crash_point": str(point), "verdict": judgement.verdict.value, "violations": told}
        console.say(json_line(line | {"undecided": list(judgement.unknown)}))
        return
    console.say(f"{point}: {judgement.verdict.name}")
    for v in judgement.violations:
        console.say(f"  {v.oracle}: {v.summary}")
    for reason in judgement.unknown:
        console.say(f"  undecided: {reason}")


def _as_json(seen: Reproduction) -> dict[str, object]:
    outcome = None if isinstance(seen.outcome, Unobserved) else seen.outcome
    return {
        "crash_point": str(seen.point),
        "kernel": seen.kernel.name,
        "recorded_on": seen.recorded_on,
        "rebuilt": seen.rebuilt,
        "verdict": seen.judgement.verdict.value,
        "violations": [
            {"oracle": v.oracle, "summary": v.summary, "expected": v.expected, "found": v.found}
            for v in seen.judgement.violations
        ],
        "undecided": list(seen.judgement.unknown),
        "kernel_log": list(outcome.kernel_log) if outcome else [],
    }


def _print(seen: Reproduction) -> None:
    verdict = seen.judgement.verdict
    console.say(f"{seen.point} on {kernel_words(seen.kernel)}: {verdict.name}")
    console.say(f"  {state_words(seen.point.state, device_of(seen.entries))}")
    if seen.recorded_on:
        console.say(f"  recorded on {seen.recorded_on}, recovered on {kernel_words(seen.kernel)}:")
        console.say(f"  this tests how the latter recovers, not what it writes; for that: {seen.record_anew}")
    if seen.rebuilt:
        console.say(f"  {seen.rebuilt} was rebuilt since the run; the build that recorded it:")
        console.say(f"  {seen.recorder_files}")
    for v in seen.judgement.violations:
        console.say(f"  {v.oracle}: {v.summary}")
        console.say(f"    expected: {v.expected}")
        console.say(f"    found:    {v.found}")
    if seen.record_again:
        console.say("  what the kernel said while the workload ran is in the recording; this runs it again:")
        console.say(f"  {seen.record_again}")
    for reason in seen.judgement.unknown:
        console.say(f"  undecided: {reason}")
    if not isinstance(seen.outcome, Unobserved):
        for line in seen.outcome.kernel_log:
            console.say(f"  kernel: {line}")
        for line in seen.outcome.after_fault.kernel_log if seen.outcome.after_fault else ():
            console.say(f"  kernel, at the next mount, without the fault: {line}")
        for line in seen.outcome.usable.kernel_log if seen.outcome.usable else ():
            console.say(f"  kernel, when it was written to: {line}")


@click.command("shrink")
@click.argument("case", metavar="CASE")
@source_option
@click.option(
    "--oracle", default="", help="Keep the finding of this oracle. Default: the oracle of the first finding."
)
@with_options(own_files_options)
@click.option(
    "--output",
    type=NewFile(),
    metavar="FILE.toml",
    help="Default: a file in shrunk/ in the run directory.",
)
@guarded
def shrink_command(case: str, source: Path, oracle: str, output: Path | None, **given: Any) -> ExitCode:
    """Reduce the workload of a finding to the operations it needs.

    \b
    powercut shrink ext4-nobarrier/random1-17-20

    Each candidate is recorded, and all its crash states are judged, on the kernel of the run. Exits 1 with a
    workload file if the finding remains, 0 if the case has none, 3 if a new recording of the whole workload
    does not show it, 130 if interrupted, with a file of the shortest workload so far, if any was shorter.
    """
    if output is not None:
        need_name(output.stem, str(output))
    with open_run(source) as store:
        if output is None and (why := refuses(store.path / "shrunk")):
            raise UsageError(why, f"name a file elsewhere: --output {elsewhere('short.toml')}")
        finding = finding_to_shrink(store, case, oracle)
        if finding is None:
            console.say(f"{case} has no finding: there is nothing to shrink")
            return ExitCode.CONSISTENT
        if changed := rebuilt(store, given["replaced"]):
            console.say(f"{changed} was rebuilt since the run, and records each workload anew; as it was:")
            console.say(f"  {recorder_files(store)}")
        with at_work(f"{finding.case}: candidates are recorded and judged", console):
            shrunk = shrink(store, finding, named_here(given), console.say)
        if shrunk is None:
            console.say(f"{case}: a new recording does not show {finding.oracle}: {finding.summary}")
            return ExitCode.UNDECIDED
        again = store.plan()
        file = output or store.layout.shrunk(finding.case.workload, shrunk.oracle, finding.id)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, workload_file(shrunk, finding.case, finding.id))
        rewrite_reports(store)
    for op in shrunk.workload.operations:
        console.say(f"  {op}")
    for line in shrunk.decisions:
        console.say(f"  which thread runs, at point {line}")
    console.say(f"{shrunk.tried} candidates recorded; {shown_path(file)}")
    word = under_schedule(shown_path(file), without_schedule(shrunk.workload.name)[1])
    console.say(f"run it: {run_again(again, finding.case.configuration, word)}")
    if shrunk.interrupted:
        console.say("interrupted: that is the shortest so far; fewer operations may do")
        return ExitCode.INTERRUPTED
    return ExitCode.INCONSISTENT
