"""`powercut run` and `powercut smoke`."""

from __future__ import annotations

import os
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, TextIO

import click
import msgspec

from harness.cases.faulty_disk import PER_CELL
from harness.cli.again import again, before, summary_of
from harness.cli.baseline import Baseline, asked_baseline, baseline_of, baseline_option
from harness.cli.bisect import (
    FLAG,
    BisectCommand,
    for_bisect,
    need_host,
    refuse_beside_bisect,
    verdict_code,
)
from harness.cli.console import console, errors
from harness.cli.estimate import estimate
from harness.cli.events import EventStream
from harness.cli.guard import guarded
from harness.cli.options import (
    ExistingFile,
    OpenFile,
    RunDirectory,
    asked_budget,
    asked_expectations,
    asked_kernel,
    asked_known,
    asked_oracles,
    asked_states,
    beside_resume,
    bounded,
    expect_option,
    is_typed,
    jobs_option,
    kernel_options,
    known_options,
    listed,
    modes_option,
    named_here,
    need_machine_of,
    need_run,
    neighbour_options,
    open_run,
    out_option,
    required,
    resume_option,
    schedules_option,
    selection_options,
    states_options,
    stopping_options,
    with_options,
    workloads_option,
)
from harness.cli.own_program import OwnProgramCommand, folder_of, words_behind
from harness.cli.presets import preset_options, with_preset
from harness.cli.sections import Sectioned
from harness.cli.why import explain_first
from harness.cluster.addresses import need_cluster, warning_of
from harness.errors import ClusterGone, ExitCode, RunChanged, UsageError
from harness.filesystems.disks import USUAL, disks, with_sectors
from harness.filesystems.existing import look_at, need_made
from harness.filesystems.layers import EXISTING
from harness.filesystems.profile import Profile
from harness.filesystems.profiles import ANY, select_profiles
from harness.grouping import by_key
from harness.guests.guest_specs import booted_kernel, need_clock, recording_machine
from harness.guests.machine import Boot, machine_of
from harness.host.console import OutputClosed
from harness.host.progress import progress_for, telling
from harness.host.text import named_few, one_line
from harness.kernels.build import title_of
from harness.model import DISK_FAULTS, CaseId, Workload, bounds
from harness.model.schedules import with_schedules
from harness.plan import SAMPLE_RATE, Clock, Completions, ExistingDisk, Plan
from harness.report import print_summary, shown_path, source_words, write_reports
from harness.report.lines import full, resume
from harness.report.recovery_code import in_words
from harness.report.words import headline, plural
from harness.ruled.judging import check_of
from harness.run import Planned, execute, look_up, new_run, note_next, recorded_by, select_cases, without_disk
from harness.store import RunStore
from harness.store.directory import need_run_name
from harness.store.recovery_code import read_recovery_code
from harness.summary import CaseVerdict, Summary, shell_code, summarise
from harness.trust import Named, need_same_modules, plan_here, resumable
from harness.workloads.applications import ENDINGS
from harness.workloads.generate.chance import name_of as random_name
from harness.workloads.load import absolute_word, is_own_application, with_neighbours

RANDOM_LENGTH = 20  # operations of a workload by --random
MANY_RANDOM = 1_000
"""Generating so many takes seconds, in which nothing else is said."""
DISK_WORDS = {
    "errors": "a read, write or flush fails with EIO, once or for good",
    "bit-rot": "a bit of what is read has changed",
    "loses-one": "a write is acknowledged and lost",
    "misdirects": "a write is acknowledged, and lands where another one of its length was going",
}
NAMED_CASES = 20  # of one mode; more are counted by -n, unless -v names them
SMOKE = (["ext4/ordered"], ["append-fsync"])


class RunCommand(Sectioned, OwnProgramCommand, BisectCommand):
    """`powercut run`: what one needs every day first."""

    headings: ClassVar[Mapping[str, Sequence[str]]] = {
        "Every day": (
            *("-c", "-w", "--kernel", "--module", "--quick", "--thorough", "--overnight"),
            *("-j", "--resume", "-n"),
        ),
        "What is tested": (
            *("--image", "--modules", "--machine", "--accel", "--sector-size", "--random", "--seed"),
            *("--schedules", "--neighbour", "--pressure", "--shard", "-k", "--failed-from", "--log-size"),
            *("--completions", "--clock"),
        ),
        "Which crash states": ("--states", "--budget", "--again", "--disk"),
        "What is judged, and what fails the run": (
            *("--oracle", "--expect", "--baseline", "--known", "--new-only", "--require-all"),
            *("--recordings", "--coverage", "--memo", "--memo-sample"),
        ),
        "When to stop, where to work, what to write": (
            *(
                "-x",
                "--minutes",
                "--cluster",
                "--all-logs",
                "--out",
                "--name",
                "--events",
                "--why",
                "-v",
                FLAG,
            ),
        ),
    }


@click.command("run", cls=RunCommand)
@modes_option(
    "Modes: ext4/ordered, ext4 (all its modes), all. An @ adds a stack of devices or another kind of disk: "
    "ext4/ordered@raid1, xfs/default@4k. Default: ext4/ordered.",
    name="configurations",
)
@click.option(
    "--sector-size",
    "sector_size",
    metavar="BYTES",
    help="All modes on a disk with sectors of 4096 bytes, or of 512 (logical) and 4096 (physical): "
    "512/4096. The same as FS/MODE@4k or @512e; no crash tears a physical sector. Default: 512.",
)
@click.option(
    "--image",
    type=ExistingFile("name a file or a block device with a file system of the modes"),
    metavar="FILE",
    help="Begin with this disk, a file or a block device with a file system of the modes, in place of mkfs. "
    "It is only read. Operations run in a new folder of it, powercut; names, sizes and contents outside that "
    "must stay as they are at every crash state. The same as FS/MODE@image, with your own disk.",
)
@workloads_option("Workloads by name; your own by path; sets: all, applications, quick, ace1. Default: all.")
@click.option(
    "--random",
    "random_count",
    type=bounded(bounds.Workloads),
    metavar="N",
    help=f"N random workloads of {RANDOM_LENGTH} operations, from consecutive seeds.",
)
@click.option(
    "--seed", type=bounded(bounds.Seed), default=1, show_default=True, help="The first seed of --random."
)
@click.option(
    "--shard",
    default="",
    metavar="I/N",
    help="Only the I-th of N parts of the workloads (every N-th of them).",
)
@with_options(preset_options)
@schedules_option
@with_options(neighbour_options)
@with_options(kernel_options)
@with_options(
    states_options(
        "prefix; where all workloads are programs of your own, exhaustive",
        "no limit; where all workloads are programs of your own, 400,2m",
    )
)
@click.option(
    "--completions",
    type=click.Choice([c.value for c in Completions], case_sensitive=False),
    default=Completions.HOLD.value,
    show_default=True,
    help="While recording, the disk reports writes as completed as late as the guest allows (hold), which "
    "catches a file system that does not wait, or at once (prompt).",
)
@click.option(
    "--clock",
    type=click.Choice([c.value for c in Clock], case_sensitive=False),
    default=Clock.AUTO.value,
    show_default=True,
    help="How time passes while recording. In virtual time sleeps and the kernel's timers take no time of "
    "this host, and each recording of a workload is the same, byte for byte: it needs --machine uml and a "
    "kernel that `powercut kernel build` has built. auto: virtual under a schedule, where that can be.",
)
@jobs_option
@click.option(
    "--cluster",
    metavar="ADDRESS",
    help="Record and judge on the workers of a Dask scheduler, tls://HOST:8786, or with local:4 on four "
    "worker processes of this host (local:4+dashboard: with Dask's dashboard, for all users of this host); a "
    "case each at a time, whatever -j says. Needs pip install 'powercut[cluster]', and the same Powercut, "
    "QEMU and fsck on every worker. For tls:// name your certificates in Dask's configuration: environment "
    "variables DASK_DISTRIBUTED__COMM__TLS__CA_FILE, ...__TLS__CLIENT__CERT, ...__TLS__CLIENT__KEY. tcp:// "
    "has neither encryption nor authentication. With --resume, '' goes on here.",
)
@click.option(
    "--all-logs",
    is_flag=True,
    help="With --cluster: bring back every recording, not only those of cases with findings or undecided.",
)
@click.option(
    "--recordings",
    type=RunDirectory(exists=True),
    metavar="RUN",
    help="Judge the recordings of RUN on this kernel and machine, instead of making new ones.",
)
@click.option(
    "--again",
    type=bounded(bounds.Depth),
    default=0,
    metavar="N",
    help="Cut the power during recovery as well (mount, walk, unmount, and the repair that modes such as "
    "ext4/fsck-first begin with), at most N times in a row, in all legal states. The next recovery must give "
    "what an undisturbed one gives. Default: 0.",
)
@click.option(
    "--disk",
    multiple=True,
    callback=listed,
    metavar="FAULT,...",
    help="Recover each visited state again on a faulty disk, with one fault at a time. "
    + "; ".join(f"{name}: {what}" for name, what in DISK_WORDS.items())
    + ". The kernel must report the fault, names and contents must stay right, and a mount without the fault "
    f"must bring back what was promised. {PER_CELL} faults of each kind for each kind of block; with "
    "--budget as many as it allows. With --again also in recoveries that were cut.",
)
@click.option(
    "--coverage",
    is_flag=True,
    help="Judge on a kernel that notes which lines of recovery the crash states run (powercut kernel build "
    "--coverage); powercut coverage shows them.",
)
@click.option(
    "--memo/--no-memo",
    default=True,
    show_default=True,
    help="Recover a state once for all states that agree on every block that its recovery, the reading of "
    "its files and fsck read: the verdict is the same.",
)
@click.option(
    "--memo-sample",
    "sample_percent",
    type=bounded(bounds.Percent),
    default=SAMPLE_RATE * 100,
    show_default=True,
    metavar="PERCENT",
    help="Share of the states answered by the memo that are recovered anyway, to check it.",
)
@with_options(selection_options)
@with_options(stopping_options)
@expect_option("Known failures, one per line, with the reason; reported, but they do not fail the run.")
@with_options(known_options)
@baseline_option
@click.option(
    "--require-all/--no-require-all",
    default=None,
    help="Exit with 4 if this host or kernel lacks something a case needs (a program, a module). "
    "Default: on if every mode is named in full (-c ext4/ordered,xfs/default), off for -c all or -c ext4.",
)
@click.option(
    "--log-size",
    "log_mib",
    type=bounded(bounds.LogMib),
    default=1024,
    show_default=True,
    metavar="MIB",
    help="Size of the log device.",
)
@click.option(
    "--events",
    type=OpenFile(),
    metavar="FILE",
    help="Write a line of JSON when the run begins, when a case is done, and at the end; -: standard output.",
)
@click.option(
    "--why/--no-why",
    default=True,
    show_default=True,
    help="At the end, say why the first finding of each symptom failed, as powercut show does; for all of "
    "them a minute, at most.",
)
@out_option()
@click.option("--name", default="run", show_default=True, help="Part of the run directory's name.")
@resume_option(
    "Continue a stopped run. With -j above 16, cases that kill -9 ended begin anew.",
    metavar="RUN",
)
@click.option(
    "-n",
    "--no-action",
    is_flag=True,
    help="Print what would be run, and about how long it takes; run nothing.",
)
@click.option(
    "-v", "--verbose", is_flag=True, help="With -n: name every case, and print a guest's command line."
)
@click.option(
    FLAG,
    "bisect",
    is_flag=True,
    help="Exit codes for git bisect run: 0 (good), 1 (bad), 125 (skip this commit), 128 (stop).",
)
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="[-- PROGRAM ARGUMENT...]")
@guarded
def run_command(**given: Any) -> ExitCode:
    """Record workloads, cut the power at every entry of the write log, recover, judge, report.

    \b
    powercut run -c ext4/ordered,ext4/journal -w append-fsync,replace-rename
    powercut run -c ext4 -w all --kernel arch/x86/boot/bzImage
    powercut run -c ext4/ordered --module fs/ext4/ext4.ko
    powercut run -c all -w quick --require-all          # CI: a missing mkfs is not a pass
    powercut run -c ext4/ordered -- ./my-test 5         # a program of your own
    powercut run --resume reports/latest
    git bisect run sh -c 'make -s bzImage || exit 125;
        powercut run -c ext4/ordered -w append-fsync --kernel arch/x86/boot/bzImage --bisect'

    PROGRAM does its work in the file system under test, and each line that it prints is acknowledged
    once it is flushed. After each power cut it is run again with the words check and FILE before its
    arguments, FILE being the acknowledged lines: it exits with 0 if what they promise is there, else with 1,
    and prints what is lost. powercut new makes a folder, for whoever needs more than that.

    Exit codes: 0 consistent, 1 inconsistent, 2 usage, 3 undecided or a harness error, 4 nothing was run or
    a required case was not, 5 the time (--minutes) was up, with something decided and nothing inconsistent,
    130 interrupted. A case is not required if the file system itself lacks an operation of the workload.
    """
    if given["bisect"]:
        return for_bisect(lambda: _bisect(_with_program(with_preset(given))))
    given = _with_program(with_preset(given))
    if given["resume"]:
        beside_resume("run", KEPT_BESIDE_RESUME)
        jobs = given["jobs"] if is_typed("jobs") else None
        with open_run(given["resume"]) as store:
            _asked_cluster(given)
            named = named_here(given)
            need_same_modules(store.info.kernel.replaced, named)
            plan = resumable(plan_here(store, named), named)
            changed = {"minutes": given["minutes"], "max_failures": given["max_failures"]}
            changed |= {"machine": given["machine"]} if is_typed("machine") else {}
            plan = _need_fitting(msgspec.structs.replace(plan, jobs=jobs or plan.jobs, **changed))
            baseline = baseline_of(given["baseline"], plan, store)
            return _resumed(plan, store, given["events"], _explaining(given), baseline)
    plan = _plan(given)
    if given["no_action"]:
        return _show(plan, given)
    return shell_code(_run(plan, given))


KEPT_BESIDE_RESUME = (
    *("resume", "jobs", "cluster", "events", "minutes", "max_failures", "machine", "why"),
    *("kernel", "modules", "replaced", "workloads", "recordings", "image", "baseline"),
)
"""Files only to say that they may be used: the run goes on with those that it was begun with. A machine,
since one that has a kernel by now, and had none then, would judge as well. A baseline for what is to be noted
at the end.
"""


def _with_program(given: Mapping[str, Any]) -> dict[str, Any]:
    """With a program of the command line as a workload, whose folder lies beside the runs. Raises UsageError
    for one that cannot be.
    """
    words_behind()
    if not given["program"] or given["resume"]:
        return dict(given)
    if given["failed_from"]:
        raise UsageError("--failed-from has its own workloads", "leave out the program, or --failed-from")
    program, *arguments = given["program"]
    params = click.get_current_context().command.params
    options = {name for p in params if isinstance(p, click.Option) for name in p.opts}
    if own := [word for word in arguments if word.partition("=")[0] in options]:
        errors.say(f"{one_line(' '.join(own))}: given to {program}; options of powercut stand before --")
    folder = folder_of(given["program"], given["out"] / "programs", "run")
    return {**given, "workloads": [*given["workloads"], str(folder)]}


def _resumed(
    plan: Plan, store: RunStore, events: TextIO | None, named: Named | None, baseline: Baseline | None
) -> ExitCode:
    """Go on with a run. If it cannot be, since something is not what it was, says how it can, or that nothing
    is left to do.
    """
    try:
        return shell_code(_execute(plan, store, events, named, baseline=baseline))
    except (KeyboardInterrupt, OutputClosed) as e:
        note_next(e, plan, store)
        raise
    except RunChanged as e:
        if store.info.finished and not store.info.interrupted:
            summary = summarise(store)
            if any(c.undecided for c in summary.cases):
                again = f"powercut run --failed-from {shlex.quote(full(store.path))}"
                raise RunChanged(
                    e.what, f"it is finished; what it left undecided is recorded anew by: {again}"
                ) from e
            print_summary(summary, source_words(store, str(store.path)), console)
            console.say(f"{shown_path(store.path)} is finished: nothing was left to do")
            return shell_code(summary)
        if e.machine:
            with_it = f"{resume(plan, str(store.path))} --machine {e.machine}"
            raise RunChanged(e.what, f"go on with the machine that it had: {with_it}") from e
        raise


def _asked_cluster(given: Mapping[str, Any]) -> str:
    """The address of --cluster; empty for none. Raises UsageError for another form, and where it cannot be
    used, before a run directory is made.
    """
    address = given["cluster"] or ""
    if not address and given["all_logs"]:
        raise UsageError(
            "--all-logs is for runs on a cluster", "a run on this host keeps every recording anyway"
        )
    if address:
        need_cluster(address)
        if warning := warning_of(address):
            errors.say(warning)
    return str(address)


def _bisect(given: Mapping[str, Any]) -> ExitCode:
    if given["no_action"]:
        raise UsageError(f"{FLAG} runs, and -n runs nothing", "leave out one of the two")
    refuse_beside_bisect([f"--{name}" for name in ("recordings", "resume") if given[name]])
    plan = _plan(given)
    need_host(plan)
    return verdict_code(_run(plan, given))


def _run(plan: Plan, given: Mapping[str, Any]) -> Summary:
    if given["recordings"]:
        need_run(given["recordings"])
    baseline = asked_baseline(given["baseline"], plan)
    expected = asked_expectations(given["expect"]) + (baseline.expected if baseline else ())
    with new_run(plan, given["out"], given["name"], expected, asked_known(given)) as store:
        named, brief = _explaining(given), given["bisect"]
        return _execute(plan, store, given["events"], named, brief=brief, baseline=baseline)


def _explaining(given: Mapping[str, Any]) -> Named | None:
    """What findings may be explained with, which are those of this command line; None if none should be."""
    return named_here(given) if given["why"] and not given["bisect"] and not given["cluster"] else None


def _need_meaning(given: Mapping[str, Any]) -> None:
    """Raises UsageError for options that mean nothing beside the others: taken, they would be looks that
    nobody had.
    """
    beside: list[tuple[object, Sequence[str], str]] = [
        (
            given["failed_from"],
            ("random_count", "seed", "schedules", "neighbour", "pressure"),
            "--failed-from runs cases again, with the workloads and schedules that they had",
        ),
        (not given["random_count"], ("seed",), "a seed is for --random"),
        (given["recordings"], ("completions", "clock"), "--recordings judges what was recorded before"),
        (not given["memo"], ("sample_percent",), "--no-memo leaves no answer of the memo to check"),
        (not given["no_action"], ("verbose",), "more is said with -n alone"),
    ]
    for holds, names, why in beside:
        params = [p for p in click.get_current_context().command.params if p.name in names]
        if ignored := [p.opts[-1] for p in params if holds and p.name and is_typed(p.name)]:
            raise UsageError(f"{', '.join(ignored)} means nothing here: {why}", "leave that out")


def _plan(given: Mapping[str, Any]) -> Plan:
    _need_meaning(given)
    asked = _asked(given)
    if not given["failed_from"]:
        return _need_fitting(asked)
    typed = {name for name in given if is_typed(name)}
    run = before(given["failed_from"], named_here(given))
    plan = again(asked, run, typed)
    for line in summary_of(plan, run, typed):
        errors.say(line)
    return _need_fitting(plan)


def _asked(given: Mapping[str, Any]) -> Plan:
    """The plan as this command line says it, with what is usual for the rest."""
    configurations = _with_image(given, _with_sectors(given))
    wanted = _wanted(given["workloads"], given["random_count"] or 0, given["seed"])
    asked_states(given["fault_models"])  # refused before anything is said of them
    of_rules = [bool(p.rules) for p in select_profiles(configurations)]
    if any(of_rules):
        _tell_of_rules(given, alone=all(of_rules))
    given = {**given, **_usual_of_applications(given, wanted, rules_alone=all(of_rules))}
    if (count := given["random_count"] or 0) >= MANY_RANDOM:
        errors.say(f"generating {plural(count, 'random workload')}: that takes a while")
    beside = with_neighbours(wanted, [ending for ending in ENDINGS if given[ending[1:]]])
    return Plan(
        configurations=configurations,
        workloads=with_schedules(beside, given["schedules"]),
        match=given["match"],
        oracles=tuple(asked_oracles(given["oracles"])),
        minutes=given["minutes"],
        max_failures=given["max_failures"],
        shard=given["shard"],
        **asked_kernel(given),
        memo=given["memo"],
        sample_rate=given["sample_percent"] / 100,
        recordings=str(given["recordings"].resolve()) if given["recordings"] else None,
        jobs=given["jobs"],
        require_all=required(given["require_all"], configurations),
        fault_models=asked_states(given["fault_models"]),
        again=given["again"],
        disk=_asked_disk(given["disk"]),
        budget=asked_budget(given["budget"]),
        image=_asked_image(given, configurations),
        log_bytes=given["log_mib"] << 20,
        completions=Completions(given["completions"]),
        clock=Clock(given["clock"]),
        coverage=given["coverage"],
        cluster=_asked_cluster(given),
        all_logs=given["all_logs"],
        argv=sys.argv[1:],
    )


def _tell_of_rules(given: Mapping[str, Any], *, alone: bool) -> None:
    """Say which options mean nothing to modes that are only rules. Raises UsageError where such an option
    asks for a look that no other mode of the run could have. `alone`: no mode of a kernel is named.
    """
    looks = {name: given[name.strip("-")] for name in ("--again", "--disk", "--coverage")}
    if alone and (asked := [option for option, value in looks.items() if value and is_typed(option[2:])]):
        raise UsageError(
            f"{', '.join(asked)}: a mode that is only rules has no kernel that recovers, and no disk",
            f"leave out {', '.join(asked)}, or name a mode of a kernel as well",
        )
    options = {
        "--states": given["fault_models"],
        **looks,
        "--cluster": given["cluster"],
        "--schedules": given["schedules"],
        "--neighbour": given["neighbour"],
        "--pressure": given["pressure"],
        "--completions": given["completions"] != Completions.HOLD,
        "--clock": given["clock"] != Clock.AUTO,
    }
    if unused := [option for option, value in options.items() if value]:
        are = "is" if len(unused) == 1 else "are"
        errors.say(
            f"any/*: {', '.join(unused)} {are} for the modes of kernels; of rules, all that they allow is "
            "visited"
        )


OF_APPLICATIONS = {"fault_models": ["exhaustive"], "budget": "400,2m"}
"""Who tests a program asks whether it survives, and not in which order the log has its writes."""


def _usual_of_applications(
    given: Mapping[str, Any], wanted: Sequence[str], *, rules_alone: bool
) -> dict[str, Any]:
    """What is usual where all workloads are applications of the user's own: all legal states, with a budget.
    Says so. Nothing where crash states are named, by an option or by the run that is run again.
    """
    if given["fault_models"] or given["failed_from"] or given["disk"] or not given["workloads"]:
        return {}
    if not _are_own(wanted):
        return {}
    usual = dict(OF_APPLICATIONS) | ({"budget": given["budget"]} if given["budget"] else {})
    of_a_disk = (
        f"--states exhaustive --budget {usual['budget']}, the states that a disk may be left in; "
        "--states prefix: whole writes alone, in the order of the log"
    )
    states = f"--budget {usual['budget']}, of the states that the rules allow" if rules_alone else of_a_disk
    errors.say(f"an application of your own: {states}")
    return usual


def _are_own(workloads: Sequence[str]) -> bool:
    """Whether all are applications of the user's own."""
    return all(map(is_own_application, workloads))


def _with_sectors(given: Mapping[str, Any]) -> list[str]:
    """The modes, each on a disk with the sectors that are asked for. Raises UsageError."""
    asked = given["configurations"] or SMOKE[0]
    disk = with_sectors(given["sector_size"]) if given["sector_size"] else USUAL
    if given["sector_size"] and given["failed_from"] and not given["configurations"]:
        raise UsageError(
            "the cases of a run are run again on the disks that they had",
            "name the modes as well, or leave out --sector-size",
        )
    named = {*disks()} if given["sector_size"] else set()
    if there := next((c for c in asked if named.intersection(c.split("@")[1:])), None):
        raise UsageError(f"{there} names a disk, and --sector-size another", "leave out one of them")
    if disk.is_usual:
        return list(asked)
    return [f"{c}@{disk.name}" for c in asked]


def _with_image(given: Mapping[str, Any], configurations: Sequence[str]) -> list[str]:
    """The modes, each on the disk that is named; one that a report calls so is on it already."""
    if not given["image"]:
        return list(configurations)
    words = (c.partition("@") for c in configurations)
    return [
        f"{name}{at}{on}" if EXISTING in on.split("@") else f"{name}@{EXISTING}{at}{on}"
        for name, at, on in words
    ]


def _asked_image(given: Mapping[str, Any], configurations: Sequence[str]) -> ExistingDisk | None:
    """The disk of --image. Raises UsageError for one that cannot be these modes'."""
    path = given["image"]
    if path is None or (given["failed_from"] and not given["configurations"]):
        if not given["recordings"]:
            need_made(select_profiles(configurations), "add --image FILE")
        return None
    if given["recordings"]:
        raise UsageError("--recordings has disks of its own", "leave out --image")
    profiles = select_profiles(configurations)
    with telling(lambda: f"reading {path}", errors.say):
        return look_at(path, profiles)


def _asked_disk(names: Sequence[str]) -> tuple[str, ...]:
    """The ways in which the disk is to be faulty. Raises UsageError for one that is none."""
    names = [name.lower() for name in names]
    for name in names:
        if name not in DISK_FAULTS:
            raise UsageError(
                f"no disk is faulty in the way {name!r}", f"name one of: {', '.join(DISK_FAULTS)}"
            )
    return tuple(dict.fromkeys(names))


def _need_fitting(plan: Plan) -> Plan:
    """The plan, of whose parts this command line may have named some, and the run that it goes on with, or
    runs again, the others. Raises UsageError for two that do not go together.
    """
    of_this_host = {"--again": plan.again, "--disk": plan.disk, "--coverage": plan.coverage}
    if plan.cluster and (alone := [option for option, asked in of_this_host.items() if asked]):
        raise UsageError(
            f"{', '.join(alone)}: works on this host alone, and not on the cluster {plan.cluster}",
            "leave out --cluster",
        )
    if plan.disk and plan.oracles and "honesty" not in plan.oracles:
        raise UsageError(
            f"--disk {','.join(plan.disk)}: what comes of a faulty disk is judged by the oracle honesty, and "
            f"--oracle names {', '.join(plan.oracles)}",
            "name honesty, too",
        )
    _need_single_disk(plan)
    need_machine_of(plan.accel, plan.machine)
    return plan


def _need_single_disk(plan: Plan) -> None:
    """Raises UsageError where this command line names --disk for stacks alone: no disk would be faulty."""
    if (
        not plan.disk
        or not is_typed("disk")
        or not any(p.stacked for p in select_profiles(plan.configurations))
    ):
        return
    profiles = {p.name: p for p, _ in select_cases(plan)}
    if all(p.stacked or p.rules for p in profiles.values()):
        stacks = named_few([name for name, p in profiles.items() if p.stacked])
        raise UsageError(
            f"--disk {','.join(plan.disk)} is for single disks, and here are stacks alone: {stacks}",
            "leave out --disk, or name a mode on a single disk as well",
        )


_NO_CHECK = "has no check of its own"
"""In the reason of a case (`harness.ruled.work`)."""


def _asks_rules(plan: Plan, summary: Summary) -> str:
    """Which command asks whether programs of the user's own rely on more than is promised, where no file
    system lost anything of them; empty if that was asked, or something was lost. Of rules alone that had
    nothing to judge, what they judge.
    """
    ruled = any(c.case.filesystem == ANY for c in summary.cases)
    if ruled and all(c.verdict is CaseVerdict.NOT_RUN and _NO_CHECK in c.reason for c in summary.cases):
        return "next: name a program that has a check: -w workloads/my-db, or -- ./my-test"
    kept = bool(summary.cases) and all(c.verdict is CaseVerdict.PASS for c in summary.cases)
    if ruled or not kept or not _are_own(plan.workloads):
        return ""
    if "--" in plan.argv:  # the program as it is by then, not the copy that was tested
        program = shlex.join(plan.argv[plan.argv.index("--") :])
        return f"next: does it rely on what no file system promises? powercut run -c any {program}"
    words = shlex.quote(",".join(map(_word_of, plan.workloads)))
    return f"next: do they rely on what no file system promises? powercut run -c any -w {words}"


def _word_of(workload: str) -> str:
    """A workload of a plan as a word of -w: tomb is a name, ./tomb a path."""
    shown = shown_path(Path(workload))
    return f"./{shown}" if Path(workload).is_absolute() and "/" not in shown else shown


def _execute(
    plan: Plan,
    store: RunStore,
    events: TextIO | None = None,
    named: Named | None = None,
    *,
    brief: bool = False,
    baseline: Baseline | None = None,
) -> Summary:
    """Carry out a run, and report it. `named`: what findings may be explained with; None: none is.
    `brief`: in a few lines, as at each commit of a bisection. `baseline`: the run is noted beside it.
    """
    stream = EventStream(store, events)
    stream.began(plan)
    try:
        with progress_for(errors if stream.is_output else console) as progress:
            summary = execute(plan, store, progress, stream.done)
        summary = _noted(store, baseline, summary, aside=stream.is_output or brief)
    except ClusterGone as e:
        then = f"then {resume(plan, shown_path(store.path))}"
        raise ClusterGone(e.what, f"{e.next_step}, {then}" if e.next_step else then) from e
    stream.ended(summary)
    if stream.is_output:  # for a program: no words between the lines
        return summary
    if brief:
        console.say(one_line(headline(summary)))
        console.say(f"report: {shown_path(store.path / 'report.html')}")
        return summary
    print_summary(summary, source_words(store, shown_path(store.path)), console)
    if summary.info.interrupted:
        how = "stopped" if summary.info.stopped else "interrupted"
        again = resume(plan, shown_path(store.path))
        again += f" --baseline {shlex.quote(full(baseline.path))}" if baseline else ""
        console.say(f"{how}; continue with: {again}")
    complete = not summary.info.interrupted or summary.info.stopped
    if named is not None and complete and explain_first(store, named, plan.accel):
        summary = summarise(store)  # a cause tells whether it is the known bug
    if code := read_recovery_code(store.layout):
        console.say(f"{in_words(code)}; every line: powercut coverage {shown_path(store.path)}")
    console.say(f"report: {shown_path(store.path / 'report.html')}")
    console.say(f"for the page of a CI job: {shown_path(store.path / 'summary.md')}")
    if asked := _asks_rules(plan, summary):
        console.say(asked)
    return summary


def _noted(store: RunStore, baseline: Baseline | None, summary: Summary, *, aside: bool) -> Summary:
    """The run, whose reports have what its baseline does not know of it. `aside`: which is said here, too."""
    if baseline and (notes := baseline.notes(store)) != summary.info.notes:
        with store.lock("powercut, writing reports"):
            store.put_notes(notes)
            write_reports(store)
        summary = replace(summary, info=store.info)
    for note in summary.info.notes if aside else ():
        errors.say(f"note: {note.text}")
    return summary


def _is_judged(profile: Profile, workload: Workload) -> bool:
    """Not where only a check of its own could judge a workload that has none."""
    return profile.rules is None or check_of(workload.checks) is not None


def _show(plan: Plan, given: Mapping[str, Any]) -> ExitCode:
    """Print what a run would do (--no-action); the files that it would read are read. With -v, the name of
    every case, and the command line of a guest.
    """
    asked_expectations(given["expect"])
    asked_baseline(given["baseline"], plan)
    asked_known(given)
    need_run_name(given["name"])
    verbose = given["verbose"]
    with telling(lambda: "finding the kernel and the cases", errors.say):
        asked = look_up(plan)  # what the run itself would refuse
    machine_name = recording_machine(plan.machine, asked.kernel)
    kernel = booted_kernel(machine_name, asked.kernel)
    machine = machine_of(machine_name, "" if plan.accel == "auto" else plan.accel)
    if any(p.rules is None for p, _ in asked.cases) and not plan.recordings:
        need_clock(plan.clock, machine, kernel.image)
    possible = [(p, w) for p, w in asked.cases if not {p.name, w.name} & asked.lacking.keys()]
    cases = _recorded(plan, [(p, w) for p, w in possible if _is_judged(p, w)])
    console.say(f"kernel: {title_of(kernel)} ({kernel.image})")
    for module in asked.kernel.replaced:
        console.say(f"module: {module}, in place of the kernel's own")
    by_mode = by_key((profile.name, workload.name) for profile, workload in cases)
    for profile in {p.name: p for p, _ in cases}.values():
        of = by_mode[profile.name]
        text = (
            ", ".join(of)
            if verbose or len(of) <= NAMED_CASES
            else f"{plural(len(of), 'workload')} (-v: names)"
        )
        console.say(f"{profile.name} (mount -o {profile.mount_options or 'defaults'}): {text}")
    for line in _left_out(plan, asked, possible, cases):
        console.say(line)
    if not cases:
        return ExitCode.NOTHING_RUN
    console.say(estimate(plan, cases, machine_name).text)
    if verbose:
        boot = Boot(kernel.image, Path(os.devnull), Path("DISK.sock"), Path("LOG"), Path())
        console.say(machine.preview(boot))
    return ExitCode.CONSISTENT


def _left_out(
    plan: Plan,
    asked: Planned,
    possible: Sequence[tuple[Profile, Workload]],
    cases: Sequence[tuple[Profile, Workload]],
) -> Iterator[str]:
    """What is not run, or not looked at, and why. `cases`: those of the possible ones that are run."""
    for name, why in asked.lacking.items():
        yield f"not run: {name}: {why}"
    there = {(p.name, w.name) for p, w in cases}
    left = [(p, w) for p, w in possible if (p.name, w.name) not in there]
    for mode, count in Counter(p.name for p, w in left if not _is_judged(p, w)).items():
        yield f"not run: {mode}: {plural(count, 'workload')} without a check, and it has no other judge"
    for mode, count in Counter(p.name for p, w in left if _is_judged(p, w)).items():
        yield f"UNKNOWN: {mode}: {plan.recordings} has no recording of {plural(count, 'workload')}"
    if said := without_disk(plan, asked):
        yield said


def _recorded(plan: Plan, cases: Sequence[tuple[Profile, Workload]]) -> list[tuple[Profile, Workload]]:
    """Those that can be judged: where another run's recordings are to be, it has them. Raises UsageError, and
    StoreError if it has none.
    """
    if not plan.recordings or not cases:
        return list(cases)
    source = Path(plan.recordings)
    need_run(source)
    kept = recorded_by(source, cases)
    return [(p, w) for p, w in cases if CaseId(p.filesystem, p.mode, w.name) in kept]


def _wanted(named: Sequence[str], random_count: int, seed: int) -> list[str]:
    by_chance = [random_name(seed + i, RANDOM_LENGTH) for i in range(random_count)]
    return [absolute_word(w) for w in named or ([] if by_chance else ["all"])] + by_chance


@click.command("smoke")
@jobs_option
@out_option()
@with_options(kernel_options)
@guarded
def smoke_command(**given: Any) -> ExitCode:
    """Check that everything works here: one mode, one workload, a power cut at each write; under a
    minute.

    \b
    powercut smoke
    powercut smoke --kernel arch/x86/boot/bzImage

    Exit codes: as for powercut run.
    """
    plan = Plan(
        configurations=SMOKE[0],
        workloads=SMOKE[1],
        **asked_kernel(given),
        jobs=given["jobs"],
        require_all=True,
        argv=sys.argv[1:],
    )
    with new_run(plan, given["out"], "smoke") as store:
        return shell_code(_execute(plan, store))
