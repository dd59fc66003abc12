"""The bench's pure parts: its workload, its padding, its figures and their table."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.bench import measure
from harness.bench.figures import Memory, part_rows, quartiles, shared_row, table
from harness.bench.host import beyond_image, cores, described, memory_of
from harness.bench.measure import flatness, raw_targets, replay_into, way_table
from harness.bench.work import make_workload, pad_log, spaced, unused_blocks, write_workload
from harness.cluster.shards import PER_SHARD
from harness.errors import PowercutError
from harness.measurements.results import Measurement, Spread
from harness.model import BLOCK_BYTES, CrashState, Operation, OperationKind
from harness.oracles.pattern import poison
from harness.plan import Plan
from harness.report.measurements import page_of
from harness.tests.cli.runner import powercut
from harness.tests.states.logs import logs
from harness.tests.states.replay import replay
from harness.workloads.load import load_workload
from harness.writelog import Discard, Flush, MarkText, Step, Write, read_log, write_log

K = OperationKind


# --- the workload ----------------------------------------------------------------------------


def test_the_workload_is_the_same_every_time() -> None:
    """Figures of two versions can be compared only as long as this digest is the same."""
    text = "\n".join(str(operation) for operation in make_workload(1000).operations)
    assert (
        hashlib.sha256(text.encode()).hexdigest()
        == "621d7f16d1adc4a0030d73e2418d04629e05bb5a09b5193f5fc9e53523199517"
    )
    assert make_workload(1000) == make_workload(1000)


def run_through(operations: tuple[Operation, ...]) -> dict[str, int]:
    """The sizes of the files that the operations leave, by path; asserts that each operation is possible."""
    sizes: dict[str, int] = {}
    for op in operations:
        if op.kind is K.CREATE:
            assert op.path not in sizes
            sizes[op.path] = 0
            continue
        assert op.path in sizes, op
        if op.kind is K.RENAME:
            assert op.target != op.path
            sizes[op.target] = sizes.pop(op.path)
        elif op.kind is K.UNLINK:
            del sizes[op.path]
        elif op.kind is K.APPEND:
            sizes[op.path] += op.length
        elif op.kind is K.WRITE:
            assert op.offset < sizes[op.path]  # no holes
            sizes[op.path] = max(sizes[op.path], op.offset + op.length)
        else:
            assert op.kind is K.FSYNC
    return sizes


def test_every_operation_can_be_done_and_every_kind_occurs() -> None:
    operations = make_workload(1000).operations
    assert len(operations) == 1000
    assert {op.kind for op in operations} == {K.CREATE, K.APPEND, K.WRITE, K.FSYNC, K.RENAME, K.UNLINK}
    for count in range(50, 1001, 50):  # the file system has room all the way
        sizes = run_through(operations[:count])
        assert len(sizes) > 2
        assert 0 < sum(sizes.values()) < 8 << 20


def test_the_workload_as_a_file_is_the_workload(tmp_path: Path) -> None:
    workload = make_workload(120)
    assert load_workload(str(write_workload(workload, tmp_path))) == workload


@given(last=st.integers(1, 5000), count=st.integers(1, 400))
def test_states_are_spread_over_the_whole_log(last: int, count: int) -> None:
    prefixes = [state.prefix for state in spaced(last, count)]
    assert len(prefixes) == len(set(prefixes)) == min(last, count)
    assert prefixes == sorted(prefixes)
    assert prefixes[-1] == last
    gaps = [b - a for a, b in zip([0, *prefixes], prefixes, strict=False)]
    assert max(gaps) - min(gaps) <= 1


# --- padding ---------------------------------------------------------------------------------

BLOCKS = 16


def made(folder: Path, log_steps: list[Step], unit_bytes: int = 512) -> tuple[Path, Path]:
    """A device of poison, on which mkfs wrote its first block, and a log."""
    base, log = folder / "base", folder / "log"
    base.write_bytes(b"M" * BLOCK_BYTES + b"".join(poison(BLOCKS * BLOCK_BYTES))[BLOCK_BYTES:])
    write_log(log, log_steps, unit_bytes)
    return base, log


LOG: list[Step] = [
    MarkText("begin 0"),
    Write(8, b"a" * 1024),
    Flush(),
    Write(31, b"b" * 1024),  # over the edge of two blocks
    Discard(48, 8),
    MarkText("ack 0"),
]


def test_blocks_that_mkfs_or_the_log_touched_are_not_padded_with(tmp_path: Path) -> None:
    base, log = made(tmp_path, LOG)
    assert unused_blocks(base, read_log(log)) == [2, 5, 7, *range(8, BLOCKS)]


def without(content: bytes, blocks: list[int]) -> bytes:
    left = bytearray(content)
    for block in blocks:
        left[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES] = bytes(BLOCK_BYTES)
    return bytes(left)


@settings(max_examples=40, deadline=None)
@given(log_steps=logs, more=st.integers(0, 40))
def test_padding_changes_nothing_but_the_pad_blocks(
    tmp_path_factory: pytest.TempPathFactory, log_steps: list[Step], more: int
) -> None:
    folder = tmp_path_factory.mktemp("pad")
    base, path = made(folder, log_steps)
    log = read_log(path)
    blocks = unused_blocks(base, log)
    where = pad_log(log, blocks, len(log_steps) + more, folder / "padded")
    padded = read_log(folder / "padded")
    assert padded.entry_count == len(log_steps) + more
    assert len(where) == log.entry_count + 1
    device = base.read_bytes()
    for prefix, placed in enumerate(where):
        plain = replay(device, log, CrashState(prefix))
        grown = replay(device, padded, CrashState(placed))
        assert without(grown, blocks) == without(plain, blocks)
    assert [e.mark for e in padded.marks] == [e.mark for e in log.marks]


def test_pads_are_spread_evenly_and_every_one_changes_its_block(tmp_path: Path) -> None:
    base, path = made(tmp_path, LOG)
    log = read_log(path)
    blocks = unused_blocks(base, log)
    where = pad_log(log, blocks, 66, tmp_path / "padded")
    assert where == [0, 11, 22, 33, 44, 55, 66]
    padded = read_log(tmp_path / "padded")
    contents = {replay(base.read_bytes(), padded, CrashState(p)) for p in range(11)}
    assert len(contents) == 11  # ten pads stand before the first mark


def test_padding_keeps_a_log_of_larger_units(tmp_path: Path) -> None:
    base, path = made(tmp_path, [Write(8, b"a" * 4096), MarkText("end")], unit_bytes=4096)
    where = pad_log(read_log(path), [9], 10, tmp_path / "padded")
    padded = read_log(tmp_path / "padded")
    assert padded.unit_bytes == 4096
    assert padded.marks[0].mark == "end"
    assert replay(base.read_bytes(), padded, CrashState(where[1]))[4096:8192] == b"a" * 4096


@pytest.mark.parametrize(("entries", "blocks"), [(5, [9]), (50, [])])
def test_a_log_cannot_be_padded_to_less_or_with_nothing(
    tmp_path: Path, entries: int, blocks: list[int]
) -> None:
    _, path = made(tmp_path, LOG)
    with pytest.raises(ValueError, match="cannot be padded"):
        pad_log(read_log(path), blocks, entries, tmp_path / "padded")


def test_the_plain_replay_into_a_file_is_the_replay(tmp_path: Path) -> None:
    base, path = made(tmp_path, LOG)
    device = base.read_bytes()
    for prefix in range(len(LOG) + 1):
        image = tmp_path / f"image-{prefix}"
        image.write_bytes(device)
        replay_into(image, read_log(path), CrashState(prefix))
        assert image.read_bytes() == replay(device, read_log(path), CrashState(prefix))


# --- figures ---------------------------------------------------------------------------------


def test_a_spread_is_median_and_quartiles() -> None:
    assert quartiles([5.0, 1.0, 2.0, 3.0, 4.0]) == Spread(3.0, 2.0, 4.0, 5)
    assert quartiles([7.0]) == Spread(7.0, 7.0, 7.0, 1)


def test_what_a_worker_needs_beyond_the_images_counts_all_but_what_the_disk_maps() -> None:
    memory = {
        "powercut": Memory(60, 40, 0, 10),
        "disk": Memory(400, 20, 50, 300),
        "guest": Memory(220, 30, 70, 5),
    }
    assert beyond_image(memory) == 175
    memory["guest"] = Memory(220, None, None, None)
    assert beyond_image(memory) is None


def test_memory_of_a_process_is_what_it_has_and_nothing_is_made_up() -> None:
    mine = memory_of(os.getpid())
    assert mine.peak is None or mine.peak > 10
    assert mine.own is None or mine.own > 1
    assert memory_of(2**22 + 1) == Memory(None, None, None, None)  # above the largest possible pid


def test_the_host_is_described() -> None:
    assert cores() >= 1
    assert re.fullmatch(
        r".+, \d+ cores, [\d,]{3,} MiB, Linux .+, .+, load 0.5 before and .+ after", described(0.5)
    )


@pytest.mark.parametrize(
    ("machine", "floor", "clock", "core", "targets"),
    [
        ("qemu", 110.0, 24.0, 25.0, ("", "25 under TCG: met")),
        ("qemu", None, 30.0, 24.9, ("", "25 under TCG: MISSED")),
        ("uml", 110.0, 151.0, 1.0, ("1.2 x floor = 132: 1.37: met", "")),
        ("uml", 110.0, 131.0, 500.0, ("1.2 x floor = 132: 1.19: MISSED", "")),
        ("uml", None, 500.0, 500.0, ("1.2 x floor: the floor was not measured", "")),
    ],
)
def test_targets_say_whether_they_are_met(
    machine: str, floor: float | None, clock: float, core: float, targets: tuple[str, str]
) -> None:
    assert raw_targets(machine, floor, clock, core) == targets


def test_a_longer_log_is_held_against_the_shortest() -> None:
    assert flatness(10.0, 10.0) == ""
    assert flatness(12.0, 10.0) == "flat within 20 %: +20%: met"
    assert flatness(7.9, 10.0) == "flat within 20 %: -21%: MISSED"
    assert shared_row(1.0)[-1] == "1: met"
    assert shared_row(1.1)[-1] == "1: MISSED"


TIMES = [{"mount": 4.0, "fsck": 6.0}, {"mount": 5.0, "fsck": 7.0}, {"mount": 3.0, "fsck": 5.0}]


def test_a_way_has_its_rate_its_parts_and_its_processor_time() -> None:
    found = {str(row[0]): row[1] for row in way_table("floor", TIMES, 8.0).rows}
    assert found == {
        "states/s": 100.0,
        "ms a state": Spread(10.0, 9.0, 11.0, 3),
        "processor time, ms": 8.0,
        "of it mount, ms": Spread(4.0, 3.5, 4.5, 3),
        "of it fsck, ms": Spread(6.0, 5.5, 6.5, 3),
    }


def test_a_figure_that_the_kernel_does_not_tell_is_no_zero() -> None:
    """The text shows every figure of a table, with its target."""
    rows = [*part_rows(TIMES), ("peak memory of disk, MiB", None, ""), shared_row(0.5)]
    m = Measurement(
        name="bench",
        summary="cost",
        command=[],
        kernel="debian-6.12.1",
        machine="a CPU, 2 cores",
        accel="",
        started=datetime(2026, 1, 1, tzinfo=UTC),
        tables=[table("log size, qemu", rows)],
        missing=["decided, uml: no such thing here"],
    )
    text = page_of([m]).text()
    assert "debian-6.12.1; a CPU, 2 cores" in text
    assert "decided, uml: no such thing here" in text
    for row in (("of it mount, ms", "4 (3.5–4.5)"), ("peak memory of disk, MiB", "not measured")):  # noqa: RUF001 - an en dash
        assert re.search(rf"^{re.escape(row[0])} +{re.escape(row[1])}$", text, re.MULTILINE)
    assert re.search(r"ms a visit +0.5 +1: met$", text, re.MULTILINE)


def test_the_command_of_a_bench_measures_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It was `powercut bench`, which measures all machines on another kernel, whatever had been asked for."""
    asked = ["bench", "--quick", "--kernel", "debian-7.3", "--json", str(tmp_path / "bench.json")]
    made = Measurement(
        name="bench", summary="s", command=["x"], kernel="", machine="", accel="", started=datetime.now(UTC)
    )
    monkeypatch.setattr("harness.bench.run_bench", lambda *_, **__: made)
    monkeypatch.setattr("sys.argv", ["powercut", *asked])
    assert powercut(*asked).exit_code == 0
    (kept,) = msgspec.json.decode((tmp_path / "bench.json").read_bytes(), type=list[Measurement])
    assert kept.command == ["powercut", *asked]


def test_visits_of_the_scaling_are_kept_in_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a host with many processors each shard kept its own, and the run with workers that wait had none."""
    asked = list[Plan]()

    def execute(plan: Plan, *_: object, **__: object) -> None:
        asked.append(plan)
        raise PowercutError("enough seen")

    monkeypatch.setattr(measure, "cores", lambda: 64)
    monkeypatch.setattr(measure, "_whole_plans", lambda *_: [Plan(configurations=[], workloads=[], jobs=64)])
    monkeypatch.setattr(measure, "create_run", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(measure, "execute", execute)
    with pytest.raises(PowercutError, match="enough seen"):
        measure.measure_scaling(cast(Any, SimpleNamespace(scratch=tmp_path)), "qemu")
    assert [plan.jobs for plan in asked] == [PER_SHARD]
