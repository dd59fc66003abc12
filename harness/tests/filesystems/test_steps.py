"""Steps of stacks, run with programs that only say what the real ones would."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.filesystems import profiles
from harness.filesystems.profiles import FILE_NAME, select_profiles
from harness.host.resources import resource
from harness.oracles.endings import any_of, complaints

HEALED = """  pool: tank
 state: ONLINE
status: One or more devices has experienced an unrecoverable error.
config:

\tNAME        STATE     READ WRITE CKSUM
\t  member-0  ONLINE       0     0    11
"""


def say(directory: Path, program: str, lines: Sequence[str]) -> None:
    """A program of that name notes its arguments in `asked`, and then does these lines."""
    path = directory / program
    path.write_text("\n".join(["#!/bin/sh", f'echo "{program} $*" >>{directory}/asked', *lines, ""]))
    path.chmod(0o755)


def run(steps: str, directory: Path) -> int:
    """The steps, in a shell that has no program built in; /dev/kmsg is a file. Returns the exit code."""
    steps = steps.replace("/dev/kmsg", f"{directory}/kmsg")
    env = {"PATH": f"{directory}:{os.environ['PATH']}"}
    return subprocess.run(["sh", "-e", "-c", steps], env=env, check=False, timeout=60).returncode


def stack_of(mode: str) -> tuple[str, str]:
    """The steps `start` and `stop` of a mode's stack."""
    (profile,) = select_profiles([mode])
    assert profile.stacked is not None
    return profile.stacked.stack.start, profile.stacked.stack.stop


@pytest.mark.parametrize("mode", ["zfs/default", "zfs/nosync", "zfs/nocacheflush"])
@pytest.mark.parametrize(("status", "told"), [(HEALED, 1), ("pool 'tank' is healthy\n", 0)])
def test_what_import_and_walk_have_healed_is_told_before_the_export(
    mode: str, status: str, told: int, tmp_path: Path
) -> None:
    """The export took the count of errors along, and fsck found a healthy pool."""
    (profile,) = select_profiles([mode])
    (tmp_path / "status").write_text(status)
    (tmp_path / "kmsg").touch()
    say(tmp_path, "zpool", [f'if [ "$1" = status ]; then cat {tmp_path}/status; fi'])
    assert run(stack_of(mode)[1], tmp_path) == 0
    assert (tmp_path / "asked").read_text().splitlines() == ["zpool status -x tank", "zpool export tank"]
    log = (tmp_path / "kmsg").read_text().splitlines()
    assert len(log) == told, "one line: the log has escapes for the ends of others"
    assert all("unrecoverable error" in line and "member-0 ONLINE 0 0 11" in line for line in log)
    assert [bool(complaints(any_of(profile.console.errors), [line])) for line in log] == [True] * told


def test_the_steps_of_a_mode_come_ahead_of_those_of_its_file_systems_stack() -> None:
    """The file of zfs/nocacheflush had the whole stack again, for one line."""
    start, stop = stack_of("zfs/default")
    ahead = "echo 1 >/sys/module/zfs/parameters/zfs_nocacheflush"
    assert stack_of("zfs/nocacheflush") == (f"{ahead}\n{start}", stop)


def test_steps_ahead_of_a_stack_that_is_not_there_are_refused(tmp_path: Path) -> None:
    shared = profiles._decode(resource("vms", "filesystems", "ext4", FILE_NAME), profiles._FilesystemFile)
    (mode := tmp_path / "m.toml").write_text('summary = "s"\nstack_after = "true"\n[contract]\n')
    with pytest.raises(UsageError, match="stack_after is for the stack of"):
        profiles._profiles("ext4", mode, shared)


def test_a_pool_that_is_not_there_needs_no_export(tmp_path: Path) -> None:
    say(tmp_path, "zpool", ["exit 1"])
    assert run(stack_of("zfs/default")[1], tmp_path) == 0
    assert "export" not in (tmp_path / "asked").read_text()


@pytest.mark.parametrize(
    ("indexes", "code"),
    [(["closed", "opening", "online"], 0), (["opening", "error"], 1), (["online"], 0)],
)
@pytest.mark.parametrize("compression", ["online", "offline"])
def test_vdo_starts_once_the_index_is_online(
    indexes: list[str], code: int, compression: str, tmp_path: Path
) -> None:
    """The word for compression, which is `online` as well, was taken for that of the index."""
    say(tmp_path, "blockdev", ["echo 921600"])
    head = ['[ "$1" = status ] || exit 0', f"n=$(cat {tmp_path}/n 2>/dev/null || echo 0)"]
    cases = [
        *(f"{n}) index={index};;" for n, index in enumerate(["offline", "offline", *indexes])),
        f"*) index={indexes[-1]};;",
    ]
    tail = [
        f"echo $((n + 1)) >{tmp_path}/n",
        f'echo "0 131072 vdo /dev/dm-0 normal - $index {compression} 70000 130000"',
    ]
    say(tmp_path, "dmsetup", [*head, "case $n in", *cases, "esac", *tail])
    assert run(stack_of("ext4/ordered@vdo-dedup")[0], tmp_path) == code
    asked = (tmp_path / "asked").read_text().count("dmsetup status")
    assert asked == 2 + len(indexes), "two of recovery, and as many as the index takes"
