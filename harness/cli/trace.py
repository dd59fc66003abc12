"""`powercut trace`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from harness.cli.console import console
from harness.cli.guard import guarded
from harness.cli.options import NewFile, accel_option, bounded, modes_option, out_option
from harness.cli.series import show_page
from harness.errors import ExitCode, UsageError
from harness.filesystems.profiles import select_profiles
from harness.host.files import write_atomically
from harness.host.folders import OwnedFolder
from harness.host.progress import Progress, progress_for
from harness.host.text import one_line
from harness.kernels.find import find_kernel, look_up_pc_kernel
from harness.measurements.directory import write_measurements
from harness.measurements.results import Histogram, Measurement, Spread, Table
from harness.model import bounds
from harness.report import shown_path
from harness.report.measurements import histogram_text, page_of, write_measurement_reports
from harness.store.directory import make_directory
from harness.tracing.rounds import (
    WORKLOAD,
    Overhead,
    TracePlan,
    Tracing,
    intervals,
    overhead,
    trace,
    tracing,
)

DEFAULT_MODES = ("ext4/journal", "ext4/writeback", "ext4/ordered")
TARGET_PERCENT = 2.0


@click.command("trace")
@modes_option(
    f"Modes; the others are compared with the first. Default: {','.join(DEFAULT_MODES)}.",
    name="configurations",
)
@click.option("-m", "--milliseconds", is_flag=True, help="Print histograms in milliseconds.")
@click.option(
    "-d", "--disk", default="vdb", show_default=True, help="The disk to trace, by its name in the guest."
)
@click.option(
    "--workload",
    default=WORKLOAD,
    show_default=True,
    metavar="CMD",
    help="Shell command, run in the file system.",
)
@click.option(
    "--rounds",
    type=bounded(bounds.Rounds),
    default=10,
    show_default=True,
    help="Rounds of the workload in each mode.",
)
@click.option(
    "--overhead",
    "want_overhead",
    is_flag=True,
    help="Measure the cost of the probes: rounds with and without them, alternating.",
)
@click.option(
    "--source",
    type=click.Choice(["auto", "bcc", "tracefs"], case_sensitive=False),
    default="auto",
    show_default=True,
)
@click.option(
    "--kernel", "kernel_name", default="debian-6.12", show_default=True, metavar="K", help="As for run."
)
@click.option("--modules", type=click.Path(path_type=Path), metavar="DIR", help="As for run.")
@accel_option
@click.option("--json", "json_file", type=NewFile(), metavar="FILE", help="Write the results as JSON.")
@out_option()
@click.argument("interval", type=bounded(bounds.Interval), required=False)
@click.argument("count", type=bounded(bounds.Rounds), required=False)
@guarded
def trace_command(
    configurations: Sequence[str],
    kernel_name: str,
    modules: Path | None,
    want_overhead: bool,
    json_file: Path | None,
    out: Path,
    interval: float | None,
    count: int | None,
    **given: object,
) -> ExitCode:
    """Measure commit latency and throughput per journaling mode, with probes in the running kernel.

    \b
    powercut trace -c ext4/journal,ext4/writeback,ext4/ordered
    powercut trace -m -d vdb 1 10            a histogram every second, ten times
    powercut trace -c ext4/ordered,xfs/default --workload 'fio --name=a --rw=write --size=1m --fsync=1'
    powercut trace --overhead                the cost of the probes

    With INTERVAL, repeat the workload in one mode and print a histogram every INTERVAL seconds, COUNT times.
    """
    profiles = select_profiles(configurations or (["ext4/ordered"] if interval else list(DEFAULT_MODES)))
    if interval and want_overhead:
        raise UsageError("--overhead takes no INTERVAL", "leave out one of the two")
    if interval and len(profiles) != 1:
        raise UsageError("INTERVAL needs one mode", "name it: -c ext4/journal")
    plan = msgspec.convert(
        {**given, "interval_s": interval or 0.0, "count": count or 0, "argv": sys.argv[1:]}, TracePlan
    )
    look_up_pc_kernel(kernel_name, modules)
    kernel = find_kernel(kernel_name, modules)
    with (
        OwnedFolder("powercut-trace-") as folder,
        progress_for(console) as progress,
        tracing(plan, kernel, profiles, folder.path, progress) as t,
    ):
        run = make_directory(out, "overhead" if want_overhead else "trace", datetime.now(UTC))
        m = _overhead(t, run, progress) if want_overhead else _traced(t, run, progress)
    write_measurement_reports(run)
    show_page(page_of([msgspec.structs.replace(m, histograms=[])]))
    for drawn in _main_histograms(m):
        console.block(f"\n{one_line(drawn.title)}\n{histogram_text(drawn)}")
    console.print(f"report: {shown_path(run / 'report.html')}", highlight=False)
    if json_file:
        write_atomically(json_file, msgspec.json.format(msgspec.json.encode([m]), indent=1))
    return ExitCode.UNDECIDED if m.missing else ExitCode.CONSISTENT


def _main_histograms(m: Measurement) -> list[Histogram]:
    """Histograms of the journal's events; if there are none, of fsync, which the report always shows."""
    return [h for h in m.histograms if not h.title.endswith(": fsync")] or list(m.histograms)


def _traced(t: Tracing, run: Path, progress: Progress) -> Measurement:
    if not t.plan.interval_s:
        return trace(t, run, progress)

    def show(drawn: Histogram) -> None:
        console.block(f"{one_line(drawn.title)}\n{histogram_text(drawn)}\n")

    return intervals(t, show, run)


def _overhead(t: Tracing, run: Path, progress: Progress) -> Measurement:
    m = t.measurement("overhead", "the same workload with and without probes, alternating", 0.0)
    found = overhead(t, progress)
    m = msgspec.structs.replace(m, seconds=0.0, tables=[overhead_table(found)])
    write_measurements(run, [m])
    return m


def overhead_table(found: Sequence[Overhead]) -> Table:
    """One row per mode."""
    return Table(
        "What the probes cost",
        ["mode", "without, CPU s", "with, CPU s", "of medians, %", "of each pair, %", "in the probes, %"],
        [
            [
                o.mode,
                Spread.of(o.without_s),
                Spread.of(o.with_s),
                round(o.percent, 2),
                Spread.of(o.pairs_percent),
                None if o.probes_percent is None else round(o.probes_percent, 3),
            ]
            for o in found
        ],
        f"The aim is at most {TARGET_PERCENT:g} %. CPU time that the guest takes on the host for one "
        "round. In the probes: the time that the kernel itself accounts to their programs "
        "(kernel.bpf_stats_enabled), without entry and exit.",
    )
