"""The command line: arguments become a frozen Plan, the Plan is run, the result becomes an exit code."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console

from harness import __version__, bench, doctor
from harness.cache import cache_dir
from harness.cli.measure import measure_command
from harness.cli.trace import trace_command
from harness.compare import compare
from harness.errors import ExitCode, PowercutError, UsageError
from harness.examine import SAMPLE_RATE, Unseen
from harness.expectations import read_expectations
from harness.files import write_atomically
from harness.filesystems import profiles, select_profiles
from harness.generate import SETS as GENERATED_SETS
from harness.generate.chance import name_of as random_name
from harness.guard import errors, guarded
from harness.kernel_build import FLAVOURS, build
from harness.kernels import find_kernel, pins
from harness.machines import qemu
from harness.machines.machine import Boot
from harness.model import Verdict
from harness.plan import Plan, load_plan
from harness.progress import progress_for
from harness.recording import unpack
from harness.report import print_summary, shown_path, write_reports
from harness.repro import Reproduction, export, find_point, reproduce, scene, shell
from harness.run import code_of, create_run, execute
from harness.shrink import finding_to_shrink, shrink, workload_file
from harness.states import FAULT_MODELS
from harness.store import RunStore
from harness.summary import summarise
from harness.workloads import select_workloads, workload_files
from harness.writelog import read_log, select

REPORTS = Path("reports")
RANDOM_LENGTH = 20  # operations of a workload by --random
SMOKE = (["ext4/ordered"], ["append-fsync"])

console = Console(soft_wrap=True)


def listed(_: click.Context, __: click.Parameter, values: Sequence[str]) -> list[str]:
    """`-c a,b -c c` as one list."""
    return [name for value in values for name in value.split(",") if name]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="powercut")
def main() -> None:
    """Does this kernel's file system keep its promises when the power fails at any moment?

    \b
    powercut doctor                              what this host lacks
    powercut smoke                               one mode, one workload, under a minute
    powercut run -c ext4/ordered -w all          every crash state of every workload
    powercut repro ext4-ordered/append-fsync@41  one crash state again
    powercut report reports/latest               the summary of a run again
    powercut measure double-write                what consistency costs

    Exit codes: 0 consistent, 1 inconsistent, 2 usage, 3 undecided or an error of the harness,
    4 nothing was run, 130 interrupted.
    """


kernel_options = [
    click.option(
        "--kernel",
        default="debian-6.12",
        show_default=True,
        metavar="K",
        help="A pin of kernels/ (debian-6.12, uml-6.1), an exact version (debian-6.12.117), or an image.",
    ),
    click.option(
        "--modules",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Modules of a kernel of your own: what make modules_install filled.",
    ),
    click.option(
        "--module",
        "replaced",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE.ko",
        help="Use this module in place of the kernel's own of that name; may be repeated.",
    ),
    click.option(
        "--machine",
        type=click.Choice(["auto", "qemu", "uml"]),
        default="auto",
        show_default=True,
        help="auto: QEMU records; UML judges, where a UML kernel of the same source has been built.",
    ),
    click.option(
        "--accel",
        type=click.Choice(["auto", "kvm", "tcg"]),
        default="auto",
        show_default=True,
        help="QEMU's accelerator. auto tries the real kernel under KVM, falls back to TCG, and remembers.",
    ),
]


def with_options(options: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """Several options as one decorator."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@main.command()
@click.option(
    "-c",
    "--config",
    "configurations",
    multiple=True,
    callback=listed,
    metavar="FS/MODE,...",
    help="File systems in modes: ext4/ordered, ext4 (all its modes), all. Default: ext4/ordered.",
)
@click.option(
    "-w",
    "--workload",
    "workloads",
    multiple=True,
    callback=listed,
    metavar="NAME,...",
    help="Workloads by name; your own by path; sets: all, applications, quick, ace1. Default: all.",
)
@click.option(
    "--random",
    "random_count",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help=f"N workloads of {RANDOM_LENGTH} operations by chance, from consecutive seeds.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="The first seed of --random."
)
@click.option(
    "--shard",
    default="",
    metavar="I/N",
    help="Only the I-th of N parts of the workloads (every N-th of them).",
)
@with_options(kernel_options)
@click.option(
    "--fault-model",
    "fault_models",
    multiple=True,
    callback=listed,
    metavar="NAME,...",
    help=f"Which crash states: {', '.join(FAULT_MODELS)}. Default: prefix, the log cut at every entry.",
)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 256),
    default=os.cpu_count() or 1,
    show_default=True,
    help="Guests at once.",
)
@click.option(
    "--recordings",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="RUN",
    help="Judge the recordings of RUN again, on this kernel and machine, instead of making new ones.",
)
@click.option(
    "--memo/--no-memo",
    default=True,
    show_default=True,
    help="Recall the outcome of states equal in all that recovery, walk and fsck read.",
)
@click.option(
    "--memo-sample",
    "sample_percent",
    type=click.FloatRange(1, 100),
    default=SAMPLE_RATE * 100,
    show_default=True,
    metavar="PERCENT",
    help="How many of the states that the memo answers are looked at all the same.",
)
@click.option(
    "--expect",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="Known failures, a line each, with the reason; they are shown and do not fail the run. Repeatable.",
)
@click.option(
    "--log-size",
    "log_mib",
    type=click.IntRange(1),
    default=1024,
    show_default=True,
    metavar="MIB",
    help="Size of the log device.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=REPORTS,
    show_default=True,
    help="Where runs are kept.",
)
@click.option("--name", default="run", show_default=True, help="Part of the run directory's name.")
@click.option(
    "--resume",
    type=click.Path(path_type=Path, exists=True),
    metavar="RUN",
    help="Go on with a run that was stopped.",
)
@click.option(
    "-n", "--no-action", is_flag=True, help="Print what would be run, and the QEMU line; run nothing."
)
@guarded
def run(**given: Any) -> ExitCode:
    """Record workloads, cut the power at every entry of the write log, recover, judge, report.

    \b
    powercut run -c ext4/ordered,ext4/journal -w append-fsync,replace-rename
    powercut run -c ext4 -w all --kernel arch/x86/boot/bzImage
    powercut run -c ext4/ordered --module fs/ext4/ext4.ko
    powercut run --resume reports/latest
    """
    if given["resume"]:
        with RunStore.open(given["resume"]) as store:
            return _execute(load_plan(store), store)
    plan = Plan(
        configurations=given["configurations"] or SMOKE[0],
        workloads=_wanted(given["workloads"], given["random_count"], given["seed"]),
        shard=given["shard"],
        kernel=_absolute(given["kernel"]),
        modules=str(given["modules"].resolve()) if given["modules"] else None,
        replaced=[str(p.resolve()) for p in given["replaced"]],
        machine=given["machine"],
        accel=given["accel"],
        memo=given["memo"],
        sample_rate=given["sample_percent"] / 100,
        recordings=str(given["recordings"].resolve()) if given["recordings"] else None,
        jobs=given["jobs"],
        fault_models=tuple(_known_models(given["fault_models"] or ["prefix"])),
        log_bytes=given["log_mib"] << 20,
        argv=sys.argv[1:],
    )
    if given["no_action"]:
        return _show(plan)
    expectations = [e for file in given["expect"] for e in read_expectations(file)]
    with create_run(plan, given["out"], given["name"]) as store:
        store.set_expectations(expectations)
        return _execute(plan, store)


def _execute(plan: Plan, store: RunStore) -> ExitCode:
    with progress_for(console) as progress:
        summary = execute(plan, store, progress)
    print_summary(summary, shown_path(store.path), console)
    if summary.info.interrupted:
        console.print(
            f"interrupted; go on with: powercut run --resume {shown_path(store.path)}", highlight=False
        )
    console.print(f"report: {shown_path(store.path / 'report.html')}", highlight=False)
    return code_of(summary)


def _show(plan: Plan) -> ExitCode:
    """--no-action."""
    kernel = find_kernel(
        plan.kernel, Path(plan.modules) if plan.modules else None, [*map(Path, plan.replaced)]
    )
    chosen, workloads = select_profiles(plan.configurations), select_workloads(plan.workloads, plan.shard)
    console.print(f"kernel: {kernel.name} ({kernel.image})", highlight=False)
    for profile in chosen:
        names = ", ".join(w.name for w in workloads)
        console.print(
            f"{profile.name} (mount -o {profile.mount_options or 'defaults'}): {names}", highlight=False
        )
    boot = Boot(kernel.image, Path(os.devnull), Path("DISK.sock"), Path("LOG"), Path())
    accel = "tcg" if plan.accel == "auto" else plan.accel
    console.print(qemu.shell_line(qemu.command(boot, accel, 3)), highlight=False, markup=False)
    return ExitCode.CONSISTENT


def _wanted(named: Sequence[str], random_count: int, seed: int) -> list[str]:
    by_chance = [random_name(seed + i, RANDOM_LENGTH) for i in range(random_count)]
    return [_absolute(w) for w in named or ([] if by_chance else ["all"])] + by_chance


def _known_models(names: list[str]) -> list[str]:
    for name in names:
        if name not in FAULT_MODELS:
            raise UsageError(f"no fault model {name!r}", f"one of: {', '.join(FAULT_MODELS)}")
    return names


def _absolute(name: str) -> str:
    """A workload of the user's by its full path, so that a run can be resumed from elsewhere."""
    path = Path(name)
    own = path.is_file() or ("/" in name and path.is_dir())
    return str(path.resolve()) if own and name not in workload_files() else name


@main.command()
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=REPORTS, show_default=True)
@with_options(kernel_options)
@guarded
def smoke(**given: Any) -> ExitCode:
    """One mode, one workload, every crash state: does everything work here? Under a minute."""
    plan = Plan(
        configurations=SMOKE[0],
        workloads=SMOKE[1],
        kernel=given["kernel"],
        accel=given["accel"],
        modules=str(given["modules"]) if given["modules"] else None,
        replaced=[*map(str, given["replaced"])],
        jobs=os.cpu_count() or 1,
        argv=sys.argv[1:],
    )
    with create_run(plan, given["out"], "smoke") as store:
        return _execute(plan, store)


@main.command("repro")
@click.argument("point", metavar="ID")
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    default=REPORTS / "latest",
    show_default=True,
    metavar="RUN",
)
@click.option("--kernel", default=None, metavar="K", help="Another kernel than the run's.")
@click.option("--module", "replaced", multiple=True, type=click.Path(path_type=Path), metavar="FILE.ko")
@click.option("--accel", type=click.Choice(["auto", "kvm", "tcg"]), default="auto", show_default=True)
@click.option(
    "--shell",
    "want_shell",
    is_flag=True,
    help="Open a console in the guest with the crashed disk attached, not mounted.",
)
@click.option(
    "--export",
    "export_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the crashed disk as a raw image.",
)
@click.option("--bisect", is_flag=True, help="Exit 125 where undecided, as git bisect run expects.")
@guarded
def repro_command(
    point: str,
    source: Path,
    kernel: str | None,
    replaced: Sequence[Path],
    accel: str,
    want_shell: bool,
    export_file: Path | None,
    bisect: bool,
) -> ExitCode:
    """Rebuild one crash state in a fresh guest and judge it again.

    \b
    powercut repro ext4-nobarrier/append-fsync@41
    powercut repro ext4-nobarrier/append-fsync@41 --shell
    git bisect run sh -c 'make -j8 bzImage && powercut repro ID --kernel arch/x86/boot/bzImage --bisect'

    Exits 0 where the state is consistent, 1 where not, 3 (with --bisect 125) where undecided.
    """
    try:
        with RunStore.open(source) as store:
            where = find_point(point, store)
            with scene(store, where, kernel, replaced, accel) as shown:
                if export_file:
                    export(shown, export_file)
                    console.print(f"{where}: {export_file}", highlight=False)
                    return ExitCode.CONSISTENT
                if want_shell:
                    return ExitCode.CONSISTENT if shell(shown) == 0 else ExitCode.UNDECIDED
                return _tell(reproduce(shown), bisect)
    except PowercutError as e:
        if bisect and e.exit_code is not ExitCode.USAGE:
            errors.print(f"powercut: {e}", markup=False, highlight=False)
            return ExitCode.BISECT_SKIP
        raise


@main.command("shrink")
@click.argument("case", metavar="CASE")
@click.option("--from", "source", type=click.Path(path_type=Path), default=REPORTS / "latest",
              show_default=True, metavar="RUN")  # fmt: skip
@click.option("--oracle", default="", help="Whose finding is to remain. Default: the first one's.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.toml",
              help="Default: shrunk/ in the run's directory.")  # fmt: skip
@guarded
def shrink_command(case: str, source: Path, oracle: str, output: Path | None) -> ExitCode:
    """Make the workload of a finding short: which of its operations are needed?

    \b
    powercut shrink ext4-nobarrier/random1-17-20

    Each candidate is recorded, and all its crash states are judged. Exits 1 with a workload file where the
    finding remains, 0 where the case has none, 3 where the whole workload does not show it again.
    """
    with RunStore.open(source) as store:
        finding = finding_to_shrink(store, case, oracle)
        if finding is None:
            console.print(f"{case} has no finding: there is nothing to shrink", highlight=False)
            return ExitCode.CONSISTENT
        shrunk = shrink(store, finding, lambda text: console.print(text, highlight=False, markup=False))
        if shrunk is None:
            console.print(f"{case}: recorded anew, it does not show {finding.oracle}", highlight=False)
            return ExitCode.UNDECIDED
        file = output or store.path / "shrunk" / f"{finding.case.workload}-{shrunk.oracle}.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, workload_file(shrunk, finding))
    for op in shrunk.workload.operations:
        console.print(f"  {op}", highlight=False, markup=False)
    console.print(f"{shrunk.tried} candidates recorded; {shown_path(file)}", highlight=False)
    command = f"powercut run -c {finding.case.configuration} -w {shown_path(file)}"
    console.print(f"run it: {command}", highlight=False, markup=False)
    return ExitCode.INCONSISTENT


def _tell(seen: Reproduction, bisect: bool) -> ExitCode:
    verdict = seen.judgement.verdict
    console.print(f"{seen.point} on {seen.kernel.name}: {verdict.name}", highlight=False, markup=False)
    for v in seen.judgement.violations:
        console.print(
            f"  {v.oracle}: {v.summary}\n    expected: {v.expected}\n    found:    {v.found}",
            highlight=False,
            markup=False,
        )
    for reason in seen.judgement.unknown:
        console.print(f"  undecided: {reason}", highlight=False, markup=False)
    if not isinstance(seen.outcome, Unseen):
        for line in seen.outcome.kernel_log:
            console.print(f"  kernel: {line}", highlight=False, markup=False)
    undecided = ExitCode.BISECT_SKIP if bisect else ExitCode.UNDECIDED
    codes = {
        Verdict.PASS: ExitCode.CONSISTENT,
        Verdict.FAIL: ExitCode.INCONSISTENT,
        Verdict.UNKNOWN: undecided,
    }
    return codes[verdict]


@main.command()
@click.argument("run", type=click.Path(path_type=Path), default=REPORTS / "latest")
@click.option(
    "--expect",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="Judge the findings by other expectations. Repeatable.",
)
@guarded
def report(run: Path, expect: tuple[Path, ...]) -> ExitCode:
    """Write the reports of RUN again (default: reports/latest) and print its summary."""
    with RunStore.open(run) as store:
        if expect:
            store.set_expectations([e for file in expect for e in read_expectations(file)])
        write_reports(store)
        summary = summarise(store)
        print_summary(summary, shown_path(store.path), console)
        console.print(f"report: {shown_path(store.path / 'report.html')}", highlight=False)
        return code_of(summary)


@main.command("compare")
@click.argument("first", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("second", type=click.Path(path_type=Path, exists=True, file_okay=False))
@guarded
def compare_command(first: Path, second: Path) -> ExitCode:
    """Hold the verdicts of two runs of the same recordings against each other, state by state.

    \b
    powercut run --recordings reports/latest --machine uml
    powercut compare FIRST SECOND

    Exits 0 where they agree on every state, 1 where not, 4 where there was nothing to compare.
    """
    with RunStore.open(first) as one, RunStore.open(second) as two:
        found = compare(one, two)
    for difference in found.differences:
        click.echo(difference)
    click.echo(f"{found.states} crash states compared, {len(found.differences)} differences")
    if not found.states:
        return ExitCode.NOTHING_RUN
    return ExitCode.INCONSISTENT if found.differences else ExitCode.CONSISTENT


@main.command("list")
@click.argument("what", type=click.Choice(["filesystems", "workloads", "kernels", "runs"]))
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=REPORTS, show_default=True)
@guarded
def list_command(what: str, out: Path) -> None:
    """What can be named: file systems and modes, workloads, kernels, and the runs that are kept."""
    rows = _rows(what, out)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    for row in rows:
        click.echo("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip())


def _rows(what: str, out: Path) -> list[tuple[str, ...]]:
    match what:
        case "filesystems":
            return [(p.name, p.mount_options, p.summary) for p in profiles().values()]
        case "workloads":
            written = [(w.name, w.summary) for w in select_workloads(["all", "applications"])]
            sets = [(name, f"set: {summary}") for name, (_, summary) in GENERATED_SETS.items()]
            return [*written, *sets, (random_name(17, 20), "one by chance: 20 operations from seed 17")]
        case "kernels":
            return [(pin.name, pin.summary) for pin in pins().values()]
        case _:
            return [_run_row(path) for path in sorted((out / "runs").glob("*/run.json"))]


def _run_row(path: Path) -> tuple[str, ...]:
    info = msgspec.json.decode(path.read_bytes())
    finished = "finished" if info.get("finished") else "not finished"
    return (str(path.parent), info["kernel"]["name"], finished, " ".join(info["argv"]))


@main.group()
def kernel() -> None:
    """Build kernels for judging."""


@kernel.command("build")
@click.option("--source", default="linux-source-6.12", show_default=True, metavar="SRC",
              help="A source package, or the top folder of a kernel tree of your own.")  # fmt: skip
@click.option("--machine", type=click.Choice(list(FLAVOURS)), default="uml", show_default=True)
@click.option("-j", "--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, show_default=True)
@guarded
def kernel_build(source: str, machine: str, jobs: int) -> None:
    """Build a small kernel with every file system built in, and keep it in the cache by its content.

    \b
    powercut kernel build                             User Mode Linux of Debian's 6.12: judges at native speed
    powercut kernel build --source ~/linux            of your own tree
    powercut run --machine uml --kernel IMAGE         judge your own tree alone
    """
    path = cache_dir() / f"build-{machine}.log"
    image, built = build(source, machine, jobs, path, lambda text: console.print(text, highlight=False))
    console.print(f"{built.machine} {built.release} {built.source_version}: {image}", highlight=False)


@main.group()
def log() -> None:
    """Look into write logs (the format of dm-log-writes)."""


@log.command("ls")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--limit", type=int, help="At most so many entries.")
@click.option("--start-entry", type=int, default=0, show_default=True)
@click.option("--start-mark", help="Begin at this mark.")
@click.option("--end-mark", help="End at this mark.")
@click.option("--next-flush", is_flag=True, help="Only up to the next flush.")
@click.option("--next-fua", is_flag=True, help="Only up to the next FUA write.")
@guarded
def log_ls(file: Path, **selection: Any) -> None:
    """List the entries of a write log: of a run (log.zst), or of any log device."""
    with _plain_log(file) as path:
        for entry in select(read_log(path), **selection):
            flags = "|".join(f.name or "" for f in entry.flags) or "-"
            what = entry.mark or f"sector {entry.sector} + {entry.sectors}"
            click.echo(f"{entry.index:8} {flags:12} {what}")


@contextlib.contextmanager
def _plain_log(file: Path) -> Iterator[Path]:
    """`file`, unpacked where it is one of a run's compressed logs."""
    if not file.is_file() and not file.is_block_device():
        raise UsageError(
            f"{file} is no file", "name a log.zst below cases/ of a run directory, or a log device"
        )
    if file.suffix != ".zst":
        yield file
        return
    with tempfile.TemporaryDirectory(prefix="powercut-log-") as folder:
        yield unpack(file, Path(folder) / "log")


main.add_command(trace_command)
main.add_command(measure_command)


@main.command("bench")
@click.option("--kernel", default="debian-6.12", show_default=True, metavar="K", help="As for run.")
@click.option("--machine", "machines", multiple=True, type=click.Choice(bench.MACHINES), help="Default: all.")
@click.option("--accel", type=click.Choice(["auto", "kvm", "tcg"]), default="auto", show_default=True)
@click.option("--uml-kernel", type=click.Path(path_type=Path, exists=True), metavar="FILE")
@click.option("--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="All figures.")
@click.option("--quick", is_flag=True, help="A few states: does it work? The figures mean little.")
@guarded
def bench_command(json_file: Path | None, quick: bool, machines: tuple[str, ...], **given: Any) -> None:
    """Measure what a crash state costs, beside what it could cost at best, and as logs grow."""
    effort = bench.QUICK if quick else bench.FULL
    measured = bench.run_bench(
        effort,
        machines=machines or bench.MACHINES,
        say=lambda text: errors.print(text, highlight=False),
        **given,
    )
    console.print(bench.table(measured))
    if json_file:
        write_atomically(json_file, bench.bench_json(measured))


@main.command("doctor")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=REPORTS, show_default=True)
@guarded
def doctor_command(out: Path) -> ExitCode:
    """Check everything that a run needs, and print the fix for each thing that is missing."""
    missing = 0
    for found in doctor.examine(out):
        sign = {True: "[green]ok     [/]", False: "[red]missing[/]", None: "[yellow]note   [/]"}[found.ok]
        console.print(f"{sign} {found.what}: {found.detail}", highlight=False)
        if found.ok is False:
            missing += 1
            console.print(f"          fix: {found.fix}", highlight=False, markup=False)
    return ExitCode.UNDECIDED if missing else ExitCode.CONSISTENT
