"""Logs in another order, split into chunks, and the exploration of a crash time: the disk, started for real,
against a plain look at every state.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.errors import DiskError
from harness.guests.disk import BlockReads, Disk, Explored, Order
from harness.model import SECTOR_BYTES, CrashState
from harness.states import Choices
from harness.tests.guests.visits import block_of, recall, recovered, remember
from harness.tests.states.logs import BASE, logs, new_log, step_sectors
from harness.writelog import Discard, Step, Write, write_log

S = SECTOR_BYTES
VOLATILE_MAX = 6  # every subset of them is looked at
real = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def orders(draw: st.DrawFn, steps: list[Step]) -> Order:
    changing = [number for number, step in enumerate(steps) if step_sectors(step)]
    return Order(tuple(draw(st.permutations(changing))), draw(st.sampled_from([8, 8, 4, 2, 1])))


def _chunks(steps: list[Step], order: Order) -> list[tuple[int, bytes]]:
    """First sector and bytes of each chunk."""
    chunks: list[tuple[int, bytes]] = []
    for number in order.entries:
        step, count = steps[number], step_sectors(steps[number])
        assert isinstance(step, Write | Discard)
        data = step.data if isinstance(step, Write) else bytes(count * S)
        first = step.sector
        for sector in range(first, first + count):
            content = data[(sector - first) * S : (sector - first + 1) * S]
            if sector == first or sector % order.unit_sectors == 0:
                chunks.append((sector, content))
            else:
                chunks[-1] = (chunks[-1][0], chunks[-1][1] + content)
    return chunks


def _replayed(chunks: list[tuple[int, bytes]], state: CrashState) -> bytes:
    content = bytearray(BASE)
    for number, (sector, data) in enumerate(chunks[: state.prefix]):
        if number not in state.dropped:
            content[sector * S : sector * S + len(data)] = data
    return bytes(content)


@st.composite
def crash_times(draw: st.DrawFn, chunk_count: int) -> Choices:
    prefix = draw(st.integers(0, chunk_count))
    numbers = st.sets(st.integers(0, max(prefix - 1, 0)), max_size=VOLATILE_MAX)
    volatile = draw(numbers) if prefix else set()
    absent = draw(numbers) - volatile if prefix else set()
    return Choices(prefix, tuple(sorted(absent)), tuple(sorted(volatile)))


def _every_state(crash_time: Choices) -> list[CrashState]:
    volatile = crash_time.volatile
    sizes = range(len(volatile) + 1)
    return [crash_time.state(True, lost) for size in sizes for lost in combinations(volatile, size)]


@real
@given(data=st.data(), steps=logs)
def test_images_and_hashes_of_chunks_agree_with_a_replay_in_order(
    shared: Disk, tmp_path: Path, base: Path, data: st.DataObject, steps: list[Step]
) -> None:
    order = data.draw(orders(steps))
    chunks = _chunks(steps, order)
    assert shared.open(base, new_log(tmp_path, steps), order).entries == len(chunks)
    image = tmp_path / "image"
    states = _every_state(data.draw(crash_times(len(chunks))))
    contents = [_replayed(chunks, state) for state in states]
    hashes = shared.hashes(states)
    for (a, x), (b, y) in combinations(zip(hashes, contents, strict=True), 2):
        assert (a == b) == (x == y)
    shared.switch(states[-1])
    assert shared.image(image) == hashes[-1]
    assert image.read_bytes() == contents[-1]


def _trace(content: bytes) -> tuple[bytes, ...]:
    return tuple(block_of(content, block) for block in recovered(content)[0])


def _explore(shared: Disk, chunks: list[tuple[int, bytes]], crash_time: Choices, losses: int) -> Explored:
    """Visit until nothing is to be visited; outcomes are remembered by number, which is what recovery came
    to.
    """
    while (explored := shared.explore([crash_time], losses=losses, to_visit_max=3)[0]).to_visit:
        for state in explored.to_visit:
            shared.switch(state)
            blocks, outcome = recovered(_replayed(chunks, state))
            shared.also_read(blocks)
            assert remember(shared, state, outcome) is None, "two states to visit read the same"
    return explored


def _deviations(content: bytes, default: bytes) -> int:
    read = set(recovered(content)[0])
    return sum(block_of(content, block) != block_of(default, block) for block in read)


@real
@given(data=st.data(), steps=logs)
def test_leaves_are_the_outcomes_of_every_legal_state_within_the_losses(
    shared: Disk, tmp_path: Path, base: Path, data: st.DataObject, steps: list[Step]
) -> None:
    """Prefixes never lose two writes, nor one that others were written after: `drop` looked at one loss in
    each prefix, and any state of more losses was never seen.
    """
    order = data.draw(orders(steps))
    chunks = _chunks(steps, order)
    shared.open(base, new_log(tmp_path, steps), order)
    crash_time = data.draw(crash_times(len(chunks)))
    lost, kept = (_replayed(chunks, crash_time.state(kept)) for kept in (False, True))
    contents = [_replayed(chunks, state) for state in _every_state(crash_time)]
    traces = {_trace(c): min(_deviations(c, lost), _deviations(c, kept)) for c in contents}
    for losses in (0, 1, 4):
        explored = _explore(shared, chunks, crash_time, losses)
        found = [_replayed(chunks, known.state) for known in explored.known]
        within = {trace for trace, count in traces.items() if count <= losses}
        assert {_trace(content) for content in found} == within
        assert len(found) == len(within)
        assert (explored.unexplored == 0) == (within == set(traces))
        for known, content in zip(explored.known, found, strict=True):
            assert known.outcome == recovered(content)[1]
            assert known.losses == traces[_trace(content)]


@real
@given(data=st.data(), steps=logs)
def test_several_crash_times_at_once_have_the_outcomes_of_each_alone(
    shared: Disk, tmp_path: Path, base: Path, data: st.DataObject, steps: list[Step]
) -> None:
    """States to visit of several crash times are visited side by side, by disks that know nothing of each
    other. No two of them may tell the same, and none may be missed: a prefix among them is a crash time
    without choices.
    """
    order = data.draw(orders(steps))
    chunks = _chunks(steps, order)
    shared.open(base, new_log(tmp_path, steps), order)
    asked: list[Choices | CrashState] = [
        *data.draw(st.lists(crash_times(len(chunks)), min_size=1, max_size=4)),
        *map(CrashState, data.draw(st.lists(st.integers(0, len(chunks)), max_size=3))),
    ]
    for _ in range(1000):
        explored = shared.explore(asked, losses=9, to_visit_max=data.draw(st.sampled_from([1, 3, 50])))
        wanted = [state for one in explored for state in one.to_visit]
        if not wanted:
            break
        for state in wanted:
            blocks, outcome = recovered(_replayed(chunks, state))
            assert shared.learn(state, BlockReads(blocks), outcome) is None, (
                "two states to visit read the same"
            )
    else:
        pytest.fail("it never ends")
    assert not any(one.waits for one in explored)
    for crash_time, one in zip(asked, explored, strict=True):
        states = [crash_time] if isinstance(crash_time, CrashState) else _every_state(crash_time)
        expected = {_trace(_replayed(chunks, state)) for state in states}
        assert {_trace(_replayed(chunks, known.state)) for known in one.known} == expected


def test_what_one_disk_read_another_learns(shared: Disk, tmp_path: Path, base: Path) -> None:
    """The outcomes of a case are in one place, whichever guest was at the state."""
    path = new_log(tmp_path, [Write(0, b"x" * S), Write(8, b"y" * S)])
    with Disk() as other:
        for disk in (shared, other):
            disk.open(base, path)
        other.switch(CrashState(1))
        with pytest.raises(DiskError, match="nothing was read"):
            other.reads()
        other.also_read([0])
        shared.switch(CrashState(0))  # what it shows does not matter
        assert shared.learn(CrashState(1), other.reads(), 7) is None
    assert recall(shared, [CrashState(n) for n in range(3)]) == [None, 7, 7]
    assert shared.learn(CrashState(2), BlockReads((0, 1)), 8) == 7


def test_compare_follows_an_order(shared: Disk, tmp_path: Path, base: Path) -> None:
    """A FUA write is logged ahead of an older ordinary one: in the log's own order the older one wins."""
    shared.open(base)
    path = new_log(tmp_path, [Write(0, b"new" * 512), Write(0, b"old" * 512)])
    true = Order((1, 0))
    shared.open(base, path, true)
    shared.switch(CrashState(1))
    shared.image(image := tmp_path / "image")
    assert image.read_bytes()[:3] == b"old"
    shared.switch(CrashState(2))
    assert shared.compare(path) == 0
    assert shared.compare(path, true.entries) is None


@pytest.mark.parametrize(
    ("order", "says"),
    [
        (Order((0,)), "leaves out entry 1"),
        (Order((0, 1, 0)), "entry 0 twice"),
        (Order((0, 1, 7)), "entry 7, the log has 2"),
        (Order((0, 1), 3), "chunks of 3 sectors"),
    ],
)
def test_orders_that_do_not_fit_the_log_are_refused(
    shared: Disk, tmp_path: Path, base: Path, order: Order, says: str
) -> None:
    path = new_log(tmp_path, [Write(0, b"x" * S), Write(8, b"y" * S)])
    with pytest.raises(DiskError, match=says):
        shared.open(base, path, order)


def test_outcomes_outlive_an_open_that_keeps_them(shared: Disk, tmp_path: Path, base: Path) -> None:
    """Each case began with an empty memo, although cases of a mode share their base image."""
    first, second = tmp_path / "first", tmp_path / "second"
    write_log(first, [Write(0, b"x" * S)])
    write_log(second, [Write(0, b"x" * S), Write(8, b"y" * S)])
    shared.open(base, first)
    shared.switch(CrashState(1))
    shared.also_read([0])
    remember(shared, CrashState(1), 7)
    states = [CrashState(n) for n in range(3)]
    shared.open(base, second, keep_memo=True)
    assert recall(shared, states) == [None, 7, 7]
    shared.open(base, second, Order((1, 0)), keep_memo=True)
    assert recall(shared, states) == [None, None, 7]
    shared.open(base, second)
    assert recall(shared, states) == [None, None, None]


def test_a_crash_time_needs_an_order(shared: Disk, tmp_path: Path, base: Path) -> None:
    shared.open(base, new_log(tmp_path, [Write(0, b"x" * S)]))
    with pytest.raises(DiskError, match="without an order"):
        shared.explore([Choices(1, (), (0,))], losses=1)
