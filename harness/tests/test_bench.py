"""The bench's pure parts: its workload, its padding, its figures and their table."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from harness.bench import BenchResult, bench_json, table
from harness.bench.figures import (
    Decided,
    Floor,
    Growth,
    GrowthPoint,
    HostFacts,
    Memory,
    NotMeasured,
    Quartiles,
    Raw,
    Scaling,
    Usual,
    Whole,
)
from harness.bench.host import beyond_image, describe_host, memory_of
from harness.bench.measure import replay_into
from harness.bench.table import rows
from harness.bench.work import make_workload, pad_log, spaced, unused_blocks, write_workload
from harness.model import BLOCK_BYTES, CrashState, Operation, OperationKind
from harness.oracles.pattern import poison
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
    assert Quartiles.of([5.0, 1.0, 2.0, 3.0, 4.0]) == Quartiles(3.0, 2.0, 4.0, 5)
    assert Quartiles.of([7.0]) == Quartiles(7.0, 7.0, 7.0, 1)


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
    host = describe_host(0.5)
    assert host.load[0] == 0.5
    assert host.cores >= 1
    assert host.memory_mib > 100
    assert host.cpu
    assert host.kernel


ONE = Quartiles(10.0, 9.0, 11.0, 3)
PARTS = {"mount": ONE, "fsck": ONE}
MEMORY = {
    "powercut": Memory(60, 40, 0, 10),
    "disk": Memory(400, 20, 50, 300),
    "guest": Memory(220, 30, 70, 5),
}


def bench(
    raw_rate: float = 100.0, slow: float = 10.0, decided: float = 1500.0, whole: float = 19.0
) -> BenchResult:
    """With these rates; the largest log takes `slow` ms a state, the smallest 10."""
    points = tuple(
        GrowthPoint(size, ONE, ONE, dataclasses.replace(ONE, median=ms), PARTS, 12.0, MEMORY, 225.0)
        for size, ms in ((1_000, 10.0), (100_000, slow))
    )
    return BenchResult(
        host=HostFacts("a CPU", 2, 8192, "6.12", "QEMU 7.2", (0.1, 1.0)),
        tested_kernel="debian-6.12.1",
        operations=1000,
        entries=5000,
        states=300,
        raw={m: Raw(m, ONE, PARTS, ONE, 11.0, 0.5, raw_rate + 1, raw_rate) for m in ("qemu", "uml")},
        floor=Floor(ONE, PARTS, 8.0, 110.0),
        usual=Usual(ONE, PARTS, 30.0),
        growth={"qemu": Growth("qemu", 240, points)},
        decided={
            m: Decided(m, 5000, 2000, {"judged": 1, "memo": 2}, 3.3, 9.9, 8.8, 1.5, decided)
            for m in ("qemu", "uml")
        },
        whole={
            "uml": (
                Whole("ace1", "prefix", ("ext4/ordered",), 2, 207, 11000, 3300, whole, 40.0, 0.9),
                Whole("quick", "exhaustive", ("xfs/default",), 3, 32, 9000, 900, whole, 40.0, 0.9),
            ),
        },
        scaling={"uml": Scaling("ace1", 3300, 25.0, {2: 80.0, 64: 800.0}, 1.1)},
    )


def targets(measured: BenchResult) -> dict[str, str]:
    return {what: target for what, _, target in rows(measured) if target}


def test_targets_stand_beside_the_figures_and_say_whether_they_are_met() -> None:
    met = {
        "raw, qemu: states/s per core": "25 under TCG: met",
        "raw, uml: states/s per core": "1.2 x floor = 132 by the clock: 1.37: met",
        "log size, qemu: 100,000 entries": "flat within 20 %: +0%: met",
        "  of one session beyond the images, MiB": "256: met",
        "decided, qemu: states/s": "150: met",
        "decided, uml: states/s": "1,000: met",
        "ace1, prefix, ext4/ordered: s": "20 on 2 cores: met",  # the other has three
        "workers that only wait, uml, 25 ms a visit: visits/s": "64 are 10.0 times as fast as 2",
    }
    shared = "  of the process that workers share: ms a visit"
    assert targets(bench(raw_rate=150.0)) == met | {shared: "1: MISSED"}  # that of the last
    assert targets(bench(raw_rate=24.9, slow=12.1, decided=149.0, whole=21.0)) == {
        "raw, qemu: states/s per core": "25 under TCG: MISSED",
        "raw, uml: states/s per core": "1.2 x floor = 132 by the clock: 0.24: MISSED",
        "log size, qemu: 100,000 entries": "flat within 20 %: +21%: MISSED",
        "  of one session beyond the images, MiB": "256: met",
        "decided, qemu: states/s": "150: MISSED",
        "decided, uml: states/s": "1,000: MISSED",
        "ace1, prefix, ext4/ordered: s": "20 on 2 cores: MISSED",
        "workers that only wait, uml, 25 ms a visit: visits/s": "64 are 10.0 times as fast as 2",
        shared: "1: MISSED",
    }


def missing() -> BenchResult:
    gone = NotMeasured("no such thing here")
    machines = {"qemu": gone, "uml": gone}
    return dataclasses.replace(
        bench(),
        raw=machines,
        floor=gone,
        usual=gone,
        growth=machines,
        decided=machines,
        whole=machines,
        scaling=machines,
    )


def test_what_was_not_measured_says_so_and_has_neither_figure_nor_target() -> None:
    for _, figure, target in rows(missing()):
        assert figure == "not measured: no such thing here"
        assert target == ""
    assert len(rows(missing())) == 12
    unfloored = dataclasses.replace(bench(), floor=NotMeasured("no root"))
    assert targets(unfloored)["raw, uml: states/s per core"] == "1.2 x floor: the floor was not measured"


def test_memory_that_the_kernel_does_not_tell_is_no_zero() -> None:
    growth = bench().growth["qemu"]
    assert isinstance(growth, Growth)
    untold = dataclasses.replace(
        growth.points[0], memory={"disk": Memory(None, None, None, None)}, beyond_image_mib=None
    )
    measured = dataclasses.replace(bench(), growth={"qemu": dataclasses.replace(growth, points=(untold,))})
    told = {what: figure for what, figure, _ in rows(measured)}
    assert told["  of one session beyond the images, MiB"].startswith("not measured: ")
    assert told["  memory at its peak, MiB"] == "disk ?"


@pytest.mark.parametrize("measured", [bench(), missing()])
def test_the_table_shows_every_row(measured: BenchResult) -> None:
    out = io.StringIO()
    Console(file=out, width=200).print(table(measured))
    for row in rows(measured):
        for cell in row:
            assert cell.strip() in out.getvalue()
    assert "a CPU, 2 cores, 8,192 MiB, Linux 6.12, QEMU 7.2, load 0.1 before and 1.0 after" in out.getvalue()


def test_the_json_holds_all_figures_and_the_machine() -> None:
    told = msgspec.json.decode(bench_json(bench()))
    assert told["host"]["cpu"] == "a CPU"
    assert told["raw"]["uml"]["per_core"] == 100.0
    assert told["raw"]["uml"]["split_ms"]["fsck"] == {"median": 10.0, "low": 9.0, "high": 11.0, "count": 3}
    assert told["growth"]["qemu"]["points"][1]["memory"]["disk"]["peak"] == 400
    assert told["decided"]["qemu"]["by_how"] == {"judged": 1, "memo": 2}
    assert msgspec.json.decode(bench_json(missing()))["floor"] == {"reason": "no such thing here"}
