"""The disk, started for real, against the plain replay."""

from __future__ import annotations

import os
import signal
import time
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.errors import DiskError, EnvironmentLacks, VersionsDiffer
from harness.guests import disk as disk_module
from harness.guests import wire
from harness.guests.disk import Disk, within_a_request
from harness.model import BLOCK_BYTES, SECTOR_BYTES, CrashState
from harness.states import Choices, enumerate_prefixes
from harness.tests.guests.visits import block_of, recall, recovered, remember
from harness.tests.needs import needed
from harness.tests.states.logs import BASE, logs, new_log, states
from harness.tests.states.replay import replay
from harness.writelog import Discard, Step, Write, read_log

S = SECTOR_BYTES
# one process and one folder serve all examples; each opens its own log
real = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _require_binary() -> None:
    with needed():
        disk_module.find_binary()


@real
@given(data=st.data(), steps=logs)
def test_images_agree_with_the_replay(
    shared: Disk, tmp_path: Path, base: Path, data: st.DataObject, steps: list[Step]
) -> None:
    path = new_log(tmp_path, steps)
    opened = shared.open(base, path)
    assert (opened.size_bytes, opened.entries) == (len(BASE), len(steps))
    log = read_log(path)
    image = tmp_path / "image"
    for state in data.draw(st.lists(states(steps), min_size=1, max_size=6)):
        shared.switch(state)
        content_hash = shared.image(image)
        assert image.read_bytes() == replay(BASE, log, state), state
        assert [content_hash] == shared.hashes([state])


@real
@given(data=st.data(), steps=logs)
def test_hashes_are_equal_exactly_when_contents_are(
    shared: Disk, tmp_path: Path, base: Path, data: st.DataObject, steps: list[Step]
) -> None:
    path = new_log(tmp_path, steps)
    shared.open(base, path)
    log = read_log(path)
    chosen = [*enumerate_prefixes(log), *data.draw(st.lists(states(steps), max_size=8))]
    contents = [replay(BASE, log, state) for state in chosen]
    hashes = shared.hashes(chosen)
    for a, b in combinations(range(len(chosen)), 2):
        assert (hashes[a] == hashes[b]) == (contents[a] == contents[b]), (chosen[a], chosen[b])


def test_states_that_lost_much_are_told_in_several_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """States alone were counted: a few that lost many sectors were longer than a message may be."""
    monkeypatch.setattr(disk_module, "CHUNKS_PER_REQUEST", 5)
    asked = [CrashState(9, tuple(range(size))) for size in (2, 3, 1, 7, 0)]
    left, parts = asked, list[list[CrashState]]()
    while left:
        parts.append(list(within_a_request(left)))
        left = left[len(parts[-1]) :]
    assert [[len(s.dropped) for s in part] for part in parts] == [[2, 3], [1], [7], [0]]
    assert within_a_request([Choices(9, (1, 2), (3, 4)), Choices(9, (), (5, 6))]) == [
        Choices(9, (1, 2), (3, 4))
    ]


@real
@given(steps=logs)
def test_compare_finds_the_first_byte(shared: Disk, tmp_path: Path, base: Path, steps: list[Step]) -> None:
    path = new_log(tmp_path, steps)
    shared.open(base)
    whole = replay(BASE, read_log(path), CrashState(len(steps)))
    differing = [at for at in range(0, len(BASE), S) if BASE[at : at + S] != whole[at : at + S]]
    assert shared.compare(path) == (differing[0] if differing else None)
    shared.open(base, path)
    shared.switch(CrashState(len(steps)))
    assert shared.compare(path) is None


@real
@given(data=st.data(), steps=logs)
def test_block_hashes_are_equal_exactly_when_blocks_are(
    shared: Disk, tmp_path: Path, base: Path, data: st.DataObject, steps: list[Step]
) -> None:
    path = new_log(tmp_path, steps)
    shared.open(base, path)
    log = read_log(path)
    numbers = range(len(BASE) // BLOCK_BYTES)
    seen: dict[bytes, bytes] = {}
    for state in data.draw(st.lists(states(steps), min_size=1, max_size=4)):
        shared.switch(state)
        content = replay(BASE, log, state)
        for number, found in zip(numbers, shared.block_hashes(numbers), strict=True):
            assert seen.setdefault(found, block_of(content, number)) == block_of(content, number)
    assert len(seen) == len(set(seen.values()))


def test_a_block_behind_the_end_has_no_hash(shared: Disk, base: Path) -> None:
    shared.open(base)
    with pytest.raises(DiskError):
        shared.block_hashes([len(BASE) // BLOCK_BYTES])


@real
@given(data=st.data(), steps=logs)
def test_recall_gives_what_recovery_would(
    shared: Disk, tmp_path: Path, base: Path, data: st.DataObject, steps: list[Step]
) -> None:
    """Recalled exactly for the states on which recovery reads what it has read before."""
    path = new_log(tmp_path, steps)
    shared.open(base, path)
    log = read_log(path)
    chosen = data.draw(st.lists(states(steps), min_size=1, max_size=8))
    contents = [replay(BASE, log, state) for state in chosen]
    known: set[tuple[bytes, ...]] = set()
    for state, content in zip(chosen, contents, strict=True):
        traces = [tuple(block_of(c, b) for b in recovered(c)[0]) for c in contents]
        expected = [
            recovered(c)[1] if trace in known else None for c, trace in zip(contents, traces, strict=True)
        ]
        assert recall(shared, chosen) == expected
        shared.switch(state)
        blocks, outcome = recovered(content)
        for block in blocks:
            shared.also_read([block])
        assert remember(shared, state, outcome) in (None, outcome)
        known.add(tuple(block_of(content, b) for b in blocks))


@real
@given(data=st.data(), steps=logs)
def test_recall_is_sound_for_any_reads_in_any_order(
    shared: Disk, tmp_path: Path, base: Path, data: st.DataObject, steps: list[Step]
) -> None:
    """Whatever was read: an outcome is recalled only where its visit's blocks have the same contents."""
    path = new_log(tmp_path, steps)
    shared.open(base, path)
    log = read_log(path)
    visits: list[tuple[bytes, list[int]]] = []
    for state in data.draw(st.lists(states(steps), min_size=1, max_size=8)):
        read = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=5))
        shared.switch(state)
        for block in read:
            shared.also_read([block])
        content = replay(BASE, log, state)
        earlier = remember(shared, state, len(visits))
        visits.append((content, read))
        assert earlier is None or _agree(content, visits[earlier])
        assert recall(shared, [state]) == [len(visits) - 1 if earlier is None else earlier]
    asked = data.draw(st.lists(states(steps), min_size=1, max_size=8))
    for state, outcome in zip(asked, recall(shared, asked), strict=True):
        assert outcome is None or _agree(replay(BASE, log, state), visits[outcome]), state


def _agree(content: bytes, visit: tuple[bytes, list[int]]) -> bool:
    other, read = visit
    return all(block_of(content, block) == block_of(other, block) for block in read)


def test_an_image_costs_what_changed(shared: Disk, tmp_path: Path, base: Path) -> None:
    shared.open(base, new_log(tmp_path, [Write(0, b"x" * S), Write(8, b"y" * S)]))
    image = tmp_path / "image"
    shared.image(image)
    inode = image.stat().st_ino
    shared.switch(CrashState(1))
    shared.image(image)
    assert image.stat().st_ino == inode
    assert image.read_bytes()[:S] == b"x" * S


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (CrashState(3), "3 entries, the log has 2"),
        (CrashState(2, (), 2), "torn after 2 sectors, it has 1"),
        (CrashState(0, (), 0), "no last entry"),
    ],
)
def test_states_that_do_not_fit_are_refused(
    shared: Disk, tmp_path: Path, base: Path, state: CrashState, says: str
) -> None:
    shared.open(base, new_log(tmp_path, [Write(0, b"x" * S), Write(8, b"y" * S)]))
    with pytest.raises(DiskError, match=says):
        shared.switch(state)
    with pytest.raises(DiskError, match=says):
        shared.hashes([CrashState(0), state])
    shared.switch(CrashState(1))  # a refusal does no harm


def test_logs_that_do_not_fit_are_refused(shared: Disk, tmp_path: Path, base: Path) -> None:
    shared.open(base)
    with pytest.raises(DiskError, match="device ends at sector 28"):
        shared.open(base, new_log(tmp_path, [Discard(28, 1)]))
    path = new_log(tmp_path, [Write(0, b"x" * S)])
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DiskError, match="entry 0 of 1: truncated"):
        shared.open(base, path)
    with pytest.raises(DiskError, match="magic"):
        shared.open(base, base)
    with pytest.raises(DiskError, match="No such file"):
        shared.open(base, tmp_path / "none")
    odd = tmp_path / "odd"
    odd.write_bytes(b"x" * 700)
    with pytest.raises(DiskError, match="700 bytes"):
        shared.open(odd)


def test_reads_past_the_device_are_refused(shared: Disk, base: Path) -> None:
    shared.open(base)
    with pytest.raises(DiskError, match="block 4 lies behind the end: the device has 4 blocks"):
        shared.also_read([3, 4])


def test_nothing_can_be_asked_before_open() -> None:
    _require_binary()
    with Disk() as disk, pytest.raises(DiskError, match="send Open first"):
        disk.switch(CrashState(0))


def test_the_base_is_never_overwritten(shared: Disk, base: Path) -> None:
    shared.open(base)
    with pytest.raises(DiskError, match="itself"):
        shared.image(base)
    assert base.read_bytes() == BASE


def test_close_ends_the_process_and_leaves_nothing() -> None:
    _require_binary()
    disk = Disk()
    folder, pid = disk.socket.parent, disk.pid
    assert disk.socket.is_socket()
    disk.close()
    disk.close()
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_disk_that_died_says_so(base: Path) -> None:
    _require_binary()
    with Disk() as disk:
        os.kill(disk.pid, signal.SIGKILL)
        with pytest.raises(DiskError, match=f"process {disk.pid} ended with code -9"):
            disk.open(base)


def test_a_disk_that_hangs_is_given_up(base: Path) -> None:
    _require_binary()
    with Disk(timeout_s=0.2) as disk:
        os.kill(disk.pid, signal.SIGSTOP)
        before = time.monotonic()
        try:
            with pytest.raises(DiskError, match="before the deadline"):
                disk.open(base)
            assert time.monotonic() >= before + 0.2
        finally:
            os.kill(disk.pid, signal.SIGCONT)


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POWERCUT_DISK", str(tmp_path / "none"))
    with pytest.raises(EnvironmentLacks, match="none is not there"):
        Disk()


@pytest.mark.parametrize("said", ["ready", f"ready {wire.PROTOCOL_VERSION - 1} 9"])
def test_a_disk_of_another_protocol_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str
) -> None:
    """It failed at the first request with "missing field `bytes`", and every case was UNKNOWN for it."""
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\necho {said}\nsleep 60\n")
    script.chmod(0o755)
    monkeypatch.setenv("POWERCUT_DISK", str(script))
    with pytest.raises(
        VersionsDiffer, match=f"does not speak the harness's protocol, {wire.PROTOCOL_VERSION}"
    ):
        Disk()


def test_so_is_a_real_one(monkeypatch: pytest.MonkeyPatch) -> None:
    _require_binary()
    Disk().close()
    monkeypatch.setattr(wire, "PROTOCOL_VERSION", wire.PROTOCOL_VERSION + 1)
    for shared in (False, True):
        with pytest.raises(VersionsDiffer):
            Disk(shared=shared)


def test_a_program_that_is_no_disk_is_told_from_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\necho hello\necho broken pipe dream >&2\n")
    script.chmod(0o755)
    monkeypatch.setenv("POWERCUT_DISK", str(script))
    with pytest.raises(DiskError, match=r"(?s)hello.*broken pipe dream"):
        Disk()
