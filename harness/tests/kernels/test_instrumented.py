"""Where the basic blocks of an instrumented kernel begin. The kernel here is a C program, built with the same
flags and the same arithmetic as vms/umlcoverage, that prints the bytes of the hits it would set.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.errors import KernelError
from harness.filesystems.profile import RecoverySource
from harness.filesystems.profiles import profiles, recovery_files
from harness.kernels.instrumented import FLAGS, Points, find_points

RECOVERY = """\
static int __attribute__((noinline)) replay(int n)
{
    if (n > 1)
        return n * 3;
    return n + 1;
}
static int skip(int n)
{
    return n ^ 5;
}
int recover(int n)
{
    return n > 100 ? skip(n) : replay(n);
}
"""
HITS = """\
#include <stdio.h>
extern char _stext[];
extern int recover(int);
void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void)
{
    printf("%lu\\n", ((unsigned long)__builtin_return_address(0) - (unsigned long)_stext) >> 2);
}
int main(int argc, char **argv)
{
    return recover(argc) > 1000;
}
"""


def built(folder: Path, *more: str) -> Path:
    (folder / "fs").mkdir()
    (folder / "fs" / "recovery.c").write_text(RECOVERY)
    (folder / "hits.c").write_text(HITS)
    fixed = ["gcc", "-O2", "-fno-pie", "-no-pie"]
    parts = [("fs/recovery", [*FLAGS.split(), *more]), ("hits", [])]
    for name, flags in parts:
        subprocess.run([*fixed, *flags, "-c", f"{folder}/{name}.c", "-o", f"{folder}/{name}.o"], check=True)
    image = folder / "linux"
    objects = [f"{folder}/{name}.o" for name, _ in parts]
    # as the kernel, one piece from the first instruction to the last
    layout = ["-Wl,-z,noseparate-code", "-Wl,--defsym=_stext=__executable_start", "-Wl,--defsym=_etext=etext"]
    subprocess.run([*fixed, *layout, "-o", image, *objects], check=True)
    return image


def ran(image: Path, points: Points, arguments: int) -> list[tuple[str, int]]:
    """Functions and lines of the blocks that a start with so many arguments runs."""
    said = subprocess.run([image, *["x"] * (arguments - 1)], capture_output=True, text=True, check=True)
    hits = set(map(int, said.stdout.split()))
    found = [(p.function, p.line) for p in points.points if p.at in hits]
    assert len(found) == len(hits), "every byte that is set is a point"
    assert max(hits) < points.hits_bytes
    return sorted(found)


def test_each_block_that_runs_is_a_point_of_its_function(tmp_path: Path) -> None:
    """UML's own code model calls by way of registers: no call in its text said where it went."""
    image = built(tmp_path)
    points = find_points(image, ["fs/recovery.c"])
    assert {p.file for p in points.points} == {"fs/recovery.c"}
    assert {p.function for p in points.points} == {"replay", "skip", "recover"}
    few, many = ran(image, points, 1), ran(image, points, 3)
    assert ("replay", 4) not in few
    assert ("replay", 4) in many
    assert "skip" not in {function for function, _ in [*few, *many]}


def test_a_kernel_without_points_is_an_error(tmp_path: Path) -> None:
    image = built(tmp_path, "-mcmodel=large")
    with pytest.raises(KernelError, match=r"has no point in fs/recovery\.c"):
        find_points(image, ["fs/recovery.c"])


def test_points_of_other_files_are_none(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="has no point"):
        find_points(built(tmp_path), ["xfs/recovery.c"])


def test_file_systems_say_where_their_recovery_is() -> None:
    assert "fs/jbd2/recovery.c" in recovery_files()
    for name in ("ext4/ordered", "xfs/default", "btrfs/default", "f2fs/posix"):
        assert profiles()[name].recovery, name


@pytest.mark.parametrize(
    ("text", "function", "holds"),
    [
        ("fs/a.c", "anything", True),
        ("fs/a.c:replay_\\w+", "replay_one", True),
        ("fs/a.c:replay_\\w+", "log_replay_one", False),
        ("fs/b.c", "anything", False),
    ],
)
def test_a_source_is_a_file_or_some_of_its_functions(text: str, function: str, holds: bool) -> None:
    assert RecoverySource.parse(text).holds("fs/a.c", function) is holds
