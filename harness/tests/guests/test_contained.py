"""Namespaces of this host in which checks run: what a check sees there, and when there are none."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import EnvironmentLacks
from harness.guests import contained as module
from harness.guests import wire
from harness.guests.contained import allowed, contained
from harness.guests.guest import Guest
from harness.guests.initramfs import DIRECTORIES, Initramfs
from harness.guests.session import find_agent
from harness.model import ChangeKind
from harness.rules.calls import Notes
from harness.tests.needs import needed
from harness.tests.rules.programs import OWNER, Calls

NOTES = Calls().create("f").write("f", b"text").notes([])
ROOT = {name.split("/")[0] for name in DIRECTORIES}
Say = Callable[[str], str]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    root = Initramfs()
    with needed():
        root.add("init", find_agent().read_bytes(), 0o755)
        root.add_program("busybox")
    root.add("workload/told", b"by the workload", 0o644)
    path = tmp_path / "initramfs"
    path.write_bytes(root.pack())
    return path


@pytest.fixture
def made(archive: Path, tmp_path: Path) -> Iterator[Guest]:
    """It has to come up wherever util-linux can do the same: what came instead would be a tenth as fast."""
    with needed():
        if not allowed():
            raise EnvironmentLacks("this host allows no user namespaces", "see user_namespaces(7)")
    found = contained(archive, NOTES, tmp_path / "checks")
    assert found is not None
    try:
        yield found
    finally:
        found.kill()


@pytest.fixture
def say(made: Guest) -> Say:
    """What a script in the shell prints there, in a tree with `f`."""
    file = wire.TreeChange(path=b"f", kind=ChangeKind.FILE, mode=0o644, size=4, pieces=[(0, 0, 4)])

    def run(script: str) -> str:
        trees = [wire.TreeToTry([file], 0)]
        request = wire.TryTrees(trees, "/tmp/acknowledged", [], ["sh", "-c", script], 60)  # noqa: S108 - there
        (tried,) = made.request(request, wire.TreesTried, 60.0).tried
        return tried.output.decode().strip()

    return run


def test_a_check_sees_the_tree_and_what_the_guest_has_and_nothing_of_the_host(say: Say) -> None:
    """It is a process of the host's kernel, and had that let it, it would read the user's files."""
    assert say("cat f; ls; cat /workload/told") == "textf\nby the workload"
    assert set(say("ls /").split()) == {*ROOT, "init", "bin", "usr", "workload"}
    devices, streams = ["full", "null", "random", "urandom", "zero"], ["fd", "stderr", "stdin", "stdout"]
    assert sorted(say("ls /dev").split()) == sorted([*devices, *streams])
    assert say(f"cat {Path(__file__).absolute()} /proc/1/root{Path(__file__).absolute()} | wc -c").endswith(
        "0"
    )
    assert say("cut -d' ' -f5 /proc/self/mountinfo").split() == [
        "/",
        *(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom")),
        "/proc",
        "/mnt",
    ]


def test_a_check_has_no_network_no_other_processes_and_no_rights(say: Say) -> None:
    assert say("sed 1,2d /proc/net/dev | cut -d: -f1").split() == ["lo"]
    with socket.create_server(("127.0.0.1", 0)) as on_host:
        port = on_host.getsockname()[1]
        # Up, as in a guest: there is nothing at an address of its own.
        assert "Connection refused" in say(f"echo x | nc -w 1 127.0.0.1 {port} 2>&1")
    assert len(say("ls -d /proc/[0-9]*").split()) <= 4
    (inside, outside, count) = say("cat /proc/self/uid_map").split()
    assert (inside, count) == ("0", "1")
    assert int(outside) == (65_534 if os.geteuid() == 0 else os.geteuid())
    assert "can't create" in say("echo 1 2>&1 >/proc/sys/kernel/sysrq; true") or os.geteuid() != 0
    assert say("umask; ulimit -c; echo $PATH $HOME; cat /proc/1/oom_score_adj").split()[0] == "0022"


def test_what_a_check_leaves_running_is_gone_before_the_next(say: Say) -> None:
    assert say("sleep 1000 & echo begun") == "begun"
    assert "sleep" not in say("ps")


def test_it_ends_when_nobody_asks_any_more(made: Guest) -> None:
    """The first process of the namespaces is no child of ours: a killed run would have left it."""
    children = Path(f"/proc/{made.process.pid}/task/{made.process.pid}/children").read_text().split()
    (first,) = map(os.pidfd_open, map(int, children))
    try:
        made.process.kill()
        assert select.select([first], [], [], 60)[0]
    finally:
        os.close(first)


def test_where_it_does_not_come_up_the_guest_has_to_do(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_agent", lambda: Path("/bin/false"))
    assert contained(archive, NOTES, tmp_path / "checks") is None


def test_files_of_other_users_are_left_to_the_guest(archive: Path, tmp_path: Path) -> None:
    """Root is the only user there: to make them would fail."""
    first, *rest = NOTES.calls
    others = replace(NOTES, calls=(replace(first, owner=(OWNER[0], 1000, 0)), *rest))
    of_root: Notes = replace(NOTES, owner=(0o755, 0, 0))
    assert contained(archive, others, tmp_path / "checks") is None
    assert contained(archive, replace(of_root, owner=(0o755, 0, 33)), tmp_path / "checks") is None
