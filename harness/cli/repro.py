"""`powercut repro` and `powercut shrink`: a crash state again, a finding made short."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path

import click

from harness.cases.attempts import Unseen
from harness.cli.console import console
from harness.cli.guard import guarded, say_error
from harness.cli.options import accel_option, source_option
from harness.errors import EnvironmentLacks, ExitCode, PowercutError, StoreError, UsageError
from harness.host.files import write_atomically
from harness.model import Verdict
from harness.report import shown_path
from harness.revisit.repro import Reproduction, export, find_point, reproduce, scene, shell
from harness.revisit.shrink import finding_to_shrink, shrink, workload_file
from harness.store import RunStore


@click.command("repro")
@click.argument("point", metavar="ID")
@source_option
@click.option("--kernel", default=None, metavar="K", help="Another kernel than the run's.")
@click.option("--module", "replaced", multiple=True, type=click.Path(path_type=Path), metavar="FILE.ko")
@accel_option
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
@click.option("--bisect", is_flag=True, help="Exit codes as git bisect run expects them.")
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
    git bisect run sh -c 'make bzImage || exit 125; powercut repro ID --kernel arch/x86/boot/bzImage --bisect'

    Exits 0 where the state is consistent, 1 where not, 3 where undecided. With --bisect 125 where this kernel
    leaves it undecided, and 128, which stops the bisection, where no kernel could decide it.
    """
    try:
        with RunStore.open(source) as store:
            where = find_point(point, store)
            with scene(store, where, kernel, replaced, accel) as shown:
                if export_file:
                    export(shown, export_file)
                    console.say(f"{where}: {export_file}")
                    return ExitCode.CONSISTENT
                if want_shell:
                    return ExitCode.CONSISTENT if shell(shown) == 0 else ExitCode.UNDECIDED
                return _tell(reproduce(shown), bisect)
    except PowercutError as e:
        if not bisect:
            raise
        say_error(e)
        return _bisect_code(e)
    except Exception:
        if not bisect:
            raise
        traceback.print_exc()
        return ExitCode.BISECT_STOP


def _bisect_code(e: PowercutError) -> ExitCode:
    """A name, a run or a program that is not there is the same at the next commit: to skip them all would
    take hours and find nothing.
    """
    always = isinstance(e, (UsageError, StoreError, EnvironmentLacks))
    return ExitCode.BISECT_STOP if always else ExitCode.BISECT_SKIP


def _tell(seen: Reproduction, bisect: bool) -> ExitCode:
    verdict = seen.judgement.verdict
    console.say(f"{seen.point} on {seen.kernel.name}: {verdict.name}")
    for v in seen.judgement.violations:
        console.say(f"  {v.oracle}: {v.summary}")
        console.say(f"    expected: {v.expected}")
        console.say(f"    found:    {v.found}")
    for reason in seen.judgement.unknown:
        console.say(f"  undecided: {reason}")
    if not isinstance(seen.outcome, Unseen):
        for line in seen.outcome.kernel_log:
            console.say(f"  kernel: {line}")
    undecided = ExitCode.BISECT_SKIP if bisect else ExitCode.UNDECIDED
    codes = {
        Verdict.PASS: ExitCode.CONSISTENT,
        Verdict.FAIL: ExitCode.INCONSISTENT,
        Verdict.UNKNOWN: undecided,
    }
    return codes[verdict]


@click.command("shrink")
@click.argument("case", metavar="CASE")
@source_option
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
            console.say(f"{case} has no finding: there is nothing to shrink")
            return ExitCode.CONSISTENT
        shrunk = shrink(store, finding, console.say)
        if shrunk is None:
            console.say(f"{case}: recorded anew, it does not show {finding.oracle}")
            return ExitCode.UNDECIDED
        file = output or store.path / "shrunk" / f"{finding.case.workload}-{shrunk.oracle}.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, workload_file(shrunk, finding))
    for op in shrunk.workload.operations:
        console.say(f"  {op}")
    console.say(f"{shrunk.tried} candidates recorded; {shown_path(file)}")
    command = f"powercut run -c {finding.case.configuration} -w {shown_path(file)}"
    console.say(f"run it: {command}")
    return ExitCode.INCONSISTENT
