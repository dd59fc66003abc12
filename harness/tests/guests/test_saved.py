"""Saved states of guests: which guest may load which, and how many are kept. See `vm/test_saved.py`, too."""

from __future__ import annotations

import json
import os
import select
import socket
import threading
from pathlib import Path

import pytest
import zstandard

from harness.errors import PowercutError
from harness.guests import qemu, saved, wire
from harness.guests.machine import Boot
from harness.guests.saved import Monitor
from harness.host.cache import cache_dir


@pytest.fixture
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Boot:
    monkeypatch.setattr(qemu, "version", lambda: "7.2")
    for name in ("image", "initramfs"):
        (tmp_path / name).write_bytes(name.encode())
    return Boot(tmp_path / "image", tmp_path / "initramfs", tmp_path / "vhost", tmp_path / "log", tmp_path)


def _bare_guest() -> saved.BareGuest:
    """One that has greeted, without a machine."""
    guest = saved.BareGuest.__new__(saved.BareGuest)
    guest._bare = saved.Bare("key", lambda *_: [], lambda _: [], {})
    guest.hello = wire.Hello(wire.PROTOCOL_VERSION, "6.12", "", [], [])
    return guest


@pytest.mark.parametrize("changed", ["image", "initramfs"])
def test_a_guest_of_another_kernel_or_initramfs_loads_another_state(boot: Boot, changed: str) -> None:
    before = qemu.bare(boot, "tcg").key
    assert qemu.bare(boot, "tcg").key == before
    (boot.directory / changed).write_bytes(b"another")
    assert qemu.bare(boot, "tcg").key != before


def test_a_guest_of_another_size_or_qemu_loads_another_state(
    boot: Boot, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = qemu.bare(boot, "tcg").key
    larger = Boot(
        boot.kernel_image, boot.initramfs, boot.disk_socket, boot.log, boot.directory, memory_mib=9999
    )
    assert qemu.bare(larger, "tcg").key != before
    monkeypatch.setattr(qemu, "version", lambda: "8.0")
    assert qemu.bare(boot, "tcg").key != before


def test_states_that_were_not_loaded_for_the_longest_time_go_first(tmp_path: Path) -> None:
    for name, used in [("old", 1), ("older-and-used", 3), ("new", 2)]:
        (tmp_path / name).write_bytes(bytes(10))
        os.utime(tmp_path / name, (used, 1))
    (tmp_path / "larger than all").write_bytes(bytes(100))
    saved.trim(tmp_path, 25)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new", "older-and-used"]


def test_a_state_is_packed_and_qemu_reads_it_whole(tmp_path: Path) -> None:
    """Unpacked, each took 85 to 164 MB, and the states of one test run drove each other out."""
    guest = _bare_guest()
    written = os.urandom(1 << 20) + bytes(8 << 20)
    with saved._unnamed(tmp_path) as whole, saved._unnamed(tmp_path) as packed:
        whole.write(written)
        guest._keep(whole, packed, tmp_path)
    (state,) = tmp_path.iterdir()
    assert state.stat().st_size < len(written) // 2
    hello, file = saved._opened(state)
    assert hello == guest.hello
    with saved._unpacked(file) as channel, channel.makefile("rb") as read:
        assert read.read() == written


def test_a_state_of_other_bytes_ends_where_they_begin(tmp_path: Path) -> None:
    """QEMU reads once there is something to read. An empty pipe that ends is none, and QEMU turned round."""
    (tmp_path / "state").write_bytes(b"QEVM" * 1000)
    with saved._unpacked((tmp_path / "state").open("rb")) as read:
        looks = select.poll()
        looks.register(read, select.POLLIN)
        assert [events & select.POLLIN for _, events in looks.poll(60_000)] == [select.POLLIN]
        assert read.recv(1) == b""


def test_a_qemu_that_ends_early_ends_what_unpacks_for_it(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(zstandard.compress(bytes(64 << 20)))
    before = set(threading.enumerate())
    read = saved._unpacked((tmp_path / "state").open("rb"))
    (unpacks,) = set(threading.enumerate()) - before
    assert read.recv(4096)
    read.close()
    unpacks.join(60)
    assert not unpacks.is_alive()


@pytest.mark.parametrize("changed", [False, True])
def test_a_state_whose_bytes_have_changed_is_deleted(
    changed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POWERCUT_CACHE", str(tmp_path))
    guest = _bare_guest()
    folder = cache_dir("guests")
    with saved._unnamed(folder) as whole, saved._unnamed(folder) as packed:
        whole.write(b"the state of a guest")
        guest._keep(whole, packed, folder)
    (state,) = folder.iterdir()
    if changed:
        state.write_bytes(state.read_bytes()[:-1])
    assert saved._state_of("key") == (None if changed else state)
    assert list(folder.iterdir()) == ([] if changed else [state])


def test_a_state_that_is_deleted_before_it_is_opened_costs_a_boot_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker deletes states while another begins."""
    begun: list[Path | None] = []

    def begin(_: saved.BareGuest, state: Path | None) -> None:
        begun.append(state)
        if state:
            state.open("rb").close()

    monkeypatch.setattr(saved, "_state_of", lambda _: tmp_path / "gone")
    monkeypatch.setattr(saved.BareGuest, "_begin", begin)
    saved.BareGuest(saved.Bare("key", lambda *_: [], lambda _: [], {}), tmp_path)
    assert begun == [tmp_path / "gone", None]


def test_a_guest_that_does_not_wake_is_not_waited_for_as_long_as_one_that_boots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy host a boot may take 20 minutes. A loaded guest that hangs is replaced by one that boots."""
    guest, limits = _bare_guest(), list[float]()
    guest._bare = saved.Bare("key", lambda *_: [], lambda _: [], {"vda": {}})
    guest._monitor = _answering({"return": {}}, {"return": {}}, {"return": {}}, {"return": {}})
    monkeypatch.setattr(saved, "crowding", lambda: 5.0)
    monkeypatch.setattr(saved.BareGuest, "request", lambda _, wake, reply, limit: limits.append(limit))
    guest._attach(1200.0)
    guest._attach(1.0)
    assert limits == [5 * saved.WAKE_S, 1.0]


def _answering(*answers: object, ends: bool = False) -> Monitor:
    """A monitor whose QEMU greets, and then says this, a line each; and ends, or waits until it is closed."""
    ours, theirs = socket.socketpair()

    def speak() -> None:
        with theirs:
            lines = [{"QMP": {}}, {"return": {}}, *answers]
            theirs.sendall(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
            while not ends and theirs.recv(1000):
                pass

    threading.Thread(target=speak, daemon=True).start()
    return Monitor(ours)


def test_events_are_no_answers_and_a_refusal_says_why() -> None:
    monitor = _answering(
        {"event": "STOP"}, {"return": {"status": "paused"}}, {"error": {"desc": "no such bus"}}
    )
    assert monitor.ask("query-status") == {"status": "paused"}
    with pytest.raises(PowercutError, match="no such bus"):
        monitor.ask("device_add")


def test_a_qemu_that_ends_is_told() -> None:
    with pytest.raises(PowercutError, match=r"ended|not answer"):
        _answering(ends=True).ask("cont")


def test_a_qemu_that_stays_in_one_state_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(saved, "LOAD_S", 0.05)
    monitor = _answering(*[{"return": {"status": "inmigrate"}}] * 100)
    with pytest.raises(PowercutError, match="still at query-status: inmigrate"):
        monitor.wait("query-status", ["inmigrate"])
