"""`powercut known`: the base of known bugs, with which every run compares its findings."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from harness.cli.console import console
from harness.cli.guard import guarded
from harness.errors import ExitCode, UsageError
from harness.host.files import json_line
from harness.host.text import near_or
from harness.kernels.pins import asked_version, pins
from harness.known.base import KnownBug, Severity, Version, read_known, version_of, with_bugs
from harness.known.words import about, kernels
from harness.oracles import ORACLES


@click.command("known")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--kernel", default="", metavar="K",
              help="Only bugs it has or may have: 6.12.117, any release of 6.12, debian-6.12.")  # fmt: skip
@click.option("--known", "known_files", multiple=True, metavar="FILE",
              type=click.Path(path_type=Path, exists=True, dir_okay=False),
              help="Known bugs beside the installed ones. Repeatable.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@guarded
def known_command(
    names: tuple[str, ...], kernel: str, known_files: tuple[Path, ...], as_json: bool
) -> ExitCode:
    """List the known bugs with which every run compares its findings; with NAME, all that is known of one.

    \b
    powercut known                         all of them, the most severe first
    powercut known --kernel 7.3.4          those that Linux 7.3.4 has or may have
    powercut known xfs-sync-no-flush       one: mechanism, kernels, workaround, what it shows

    A finding is a known bug if its symptom, its mode, the kernel's version and, where the bug's record has
    them, the operations and the flushes agree. Otherwise the finding is new.
    """
    base = with_bugs(bug for file in known_files for bug in read_known(file, ORACLES))
    for name in names:
        if name not in base:
            raise UsageError(f"no known bug {name!r}", near_or(name, base, "powercut known lists them"))
    asked = [base[name] for name in names] or sorted(base.values(), key=_order)
    version = _version(kernel) if kernel else ()
    chosen = [bug for bug in asked if bug.record.affects_any(version)] if kernel else asked
    if as_json:
        console.say(json_line(msgspec.to_builtins(chosen)))
    elif names:
        for bug in chosen:
            console.say(f"{bug.name}{_unknown(bug, version)}")
            for what, text in about(bug):
                if text:
                    console.say(f"  {what:<11} {text}")
        for bug in (bug for bug in asked if bug not in chosen):
            console.say(f"{bug.name}: not in Linux {kernel}, so far as known: {kernels(bug.record)}")
    else:
        for bug in chosen:
            told = f"{bug.record.severity.words}; {kernels(bug.record)}"
            console.say(f"{bug.name}: {told}{_unknown(bug, version)}")
            console.say(f"  {bug.title}")
        these = f" that Linux {kernel} has or may have" * bool(kernel)
        console.say(f"{len(chosen)} known bugs{these}; powercut known NAME shows one")
    return ExitCode.CONSISTENT


def _order(bug: KnownBug) -> tuple[int, str]:
    return list(Severity).index(bug.record.severity), bug.name


def _unknown(bug: KnownBug, version: Version) -> str:
    """Behind a bug that a kernel of this version may have; empty for one that was seen in one as late."""
    return "" if bug.record.looked_for(version) else "; not looked for there"


def _version(text: str) -> Version:
    """That of a version's text, of a pin's name (`debian-6.12`) or of one of its versions."""
    pinned = any(asked_version(pin, text) is not None for pin in pins().values())
    if version := version_of(text.partition("-")[2] if pinned else text):
        return version
    raise UsageError(f"{text!r} is no version of a kernel", "such as 6.12.117 or debian-6.12")
