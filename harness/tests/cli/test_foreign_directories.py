"""A directory from somebody else, given to every command that takes one: nothing that it names is run,
contacted or opened. The directories are those of `foreign.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import pytest

from harness.cli import main
from harness.cli.options import Folder, NewFile, RunDirectory
from harness.errors import ExitCode
from harness.tests.cli.foreign import (
    ATTACKS,
    CLUSTER,
    EVERY,
    EVIL,
    KERNEL,
    Attack,
    Hostile,
    Trap,
    a_run,
    given,
    lay_bait,
    watching,
)
from harness.tests.cli.runner import powercut


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trap]:
    """Sprung by what the test adds to `baits`."""
    monkeypatch.chdir(tmp_path)
    with watching(tmp_path / "cache") as made:
        yield made


def every_command(commands: Iterable[click.Command] = main.commands.values()) -> Iterator[click.Command]:
    for command in commands:
        yield from (
            every_command(command.commands.values()) if isinstance(command, click.Group) else (command,)
        )


def test_every_command_that_takes_a_run_directory_is_attacked() -> None:
    """A new command, or option, of that kind has to be added to ATTACKS; any other path, to OTHER_PATHS."""
    taking = {
        (command.name, p.name)
        for command in every_command()
        for p in command.params
        if isinstance(p.type, RunDirectory)
    }
    assert taking == set(ATTACKS)


OTHER_PATHS = {
    *("modules", "replaced", "file", "own_kernel", "folder", "expect", "known_files"),
    "image",
    *("tree", "mbox", "config", "log"),
}
"""Parameters that name a file, a disk, modules, a folder of bug reports, a kernel's source, or a log of
strace.
"""


def test_every_other_path_on_a_command_line_is_known_to_be_none() -> None:
    for command in every_command():
        for p in command.params:
            if isinstance(p.type, click.Path) and not isinstance(p.type, RunDirectory | NewFile | Folder):
                assert p.name in OTHER_PATHS, f"{command.name}: is {p.name} a run directory?"


@pytest.mark.parametrize("hostile", EVERY, ids=lambda h: h.name)
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=["-".join(key) for key in ATTACKS])
def test_nothing_that_a_directory_names_is_run_contacted_or_opened(
    attack: Attack, hostile: Hostile, tmp_path: Path, trap: Trap
) -> None:
    """`matrix --resume` started the program that DIR named as its kernel; `run --resume` unpickled what DIR's
    scheduler sent; `repro` read the workload that DIR named, and with it any file of the host.
    """
    bait = lay_bait(tmp_path / "host", hostile)
    directory = attack.make(tmp_path / "theirs", hostile, str(bait))
    trap.baits.append(str(bait))
    done = powercut(*given(attack, directory, hostile))
    assert trap.sprung == []
    if hostile in attack.refused:
        assert done.exit_code == ExitCode.USAGE, done.output
        option = attack.option if hostile is KERNEL and attack.option else hostile.option
        assert f", add: {option} " in done.stderr


@pytest.mark.parametrize("made", ["link", "folder", "latest", "pipe"])
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=["-".join(key) for key in ATTACKS])
def test_a_directory_with_symbolic_links_is_refused(
    attack: Attack, made: str, tmp_path: Path, trap: Trap
) -> None:
    """By a link a directory named any file of the host: to be read as a recording, or overwritten as a
    report.
    """
    bait = tmp_path / "host" / EVIL
    bait.mkdir(parents=True)
    directory = attack.make(tmp_path / "theirs", CLUSTER, "")
    if made == "pipe":
        os.mkfifo(directory / "console.txt")
    elif made == "latest":
        (directory / "latest").symlink_to("../../../host/evil")
    else:
        place = directory / "a" / "b"
        place.mkdir(parents=True)
        (place / "c").symlink_to(bait if made == "folder" else bait / "nothing")
    trap.baits.append(str(bait))
    done = powercut(*given(attack, directory, CLUSTER))
    assert trap.sprung == []
    assert done.exit_code == ExitCode.UNDECIDED, done.output
    assert ("neither a file nor a folder" if made == "pipe" else "is a symbolic link") in done.stderr
    assert [*bait.iterdir()] == []


@pytest.mark.parametrize(
    "key", [key for key, attack in ATTACKS.items() if attack.make is not a_run], ids="-".join
)
def test_a_plan_that_is_no_text_is_refused_in_one_line(
    key: tuple[str, str], tmp_path: Path, trap: Trap
) -> None:
    """One flipped bit in a name, and `campaign --resume` was a defect of powercut with a traceback."""
    directory = ATTACKS[key].make(tmp_path / "theirs", CLUSTER, "")
    plan = directory / "plan.json"
    plan.write_bytes(re.sub(rb'(": *")', lambda m: m[1] + b"\xef", plan.read_bytes()))
    done = powercut(*given(ATTACKS[key], directory, CLUSTER))
    assert done.exit_code in (ExitCode.USAGE, ExitCode.UNDECIDED)
    assert "Traceback" not in done.output


def test_a_run_directory_may_be_named_by_a_link(tmp_path: Path) -> None:
    """`reports/latest` is one. What lies in its scratch folder is deleted unread."""
    run = a_run(tmp_path, KERNEL, "debian-6.12")
    (run / "scratch").mkdir()
    (run / "scratch" / "of-a-run-at-work").symlink_to("somewhere")
    assert powercut("report", tmp_path / "latest").exit_code == ExitCode.INCONSISTENT
