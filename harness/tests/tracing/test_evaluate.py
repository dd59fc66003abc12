"""What rounds come to: planted figures, and figures that are missing."""

from __future__ import annotations

from collections.abc import Sequence

from harness.measurements.results import Spread
from harness.tracing.evaluate import Mode, Round, evaluate
from harness.tracing.records import Commit, Lost, Record, Span
from harness.tracing.rounds import Overhead, TracePlan, throughput_mib_s


def commit(us: int) -> Commit:
    return Commit(at_us=0, transaction=1, starting_us=0, locked_us=0, flushing_us=0, logging_us=us, logged=3)


def mode(name: str, us: Sequence[int], mib_s: float | None, more: Sequence[Record] = ()) -> Mode:
    rounds = [Round([commit(v), Span("fsync", 0, v + 10), *more], 1.0, 20.0, mib_s) for v in us]
    return Mode(name, "commit", rounds=rounds)


def same(us: Sequence[int]) -> list[int]:
    return list(us)


def test_the_first_mode_is_what_the_others_are_held_against() -> None:
    found = evaluate(
        [mode("ext4/journal", [400, 800], 10.0), mode("ext4/writeback", [4, 4], 36.0)], "usecs", same
    )
    ratios = {r.name: r.measured for r in found.ratios}
    assert ratios["throughput, ext4/writeback / ext4/journal"] == Spread(3.6, 3.6, 3.6, 2)
    assert ratios["commit latency, ext4/journal / ext4/writeback"] == Spread(150.0, 100.0, 200.0, 2)


def test_modes_that_time_different_things_have_no_ratio_of_them() -> None:
    xfs = Mode("xfs/default", "log-write", "what it is", [Round([Span("log-write", 0, 5)], 1.0, 10.0, 5.0)])
    found = evaluate([mode("ext4/ordered", [9], 10.0), xfs], "usecs", same)
    assert [r.name for r in found.ratios] == ["throughput, xfs/default / ext4/ordered"]
    assert [row[4] for row in found.tables[0].rows] == ["commit", "log-write"]
    assert "xfs/default: what it is" in found.notes


def test_what_is_not_there_is_none_and_not_zero() -> None:
    found = evaluate([Mode("ext2/default", "", rounds=[Round([], 1.0, 0.0, None)])], "usecs", same)
    row = found.tables[0].rows[0]
    columns = found.tables[0].columns
    assert row[columns.index("MiB/s")] is None
    assert row[columns.index("ms each")] is None
    assert row[columns.index("traced")] == "not traced"
    assert found.histograms == []
    assert any("no tracepoints" in note for note in found.notes)


def test_lost_events_and_missing_commits_are_told() -> None:
    lossy = mode("ext4/ordered", [5], 1.0, [Lost(17)])
    silent = Mode("ext4/no-journal", "commit", rounds=[Round([], 1.0, 1.0, 1.0)])
    notes = evaluate([lossy, silent], "usecs", same).notes
    assert any("17 events are missing" in note for note in notes)
    assert any("ext4/no-journal: jbd2 committed nothing" in note for note in notes)


def test_histograms_and_series_of_both_what_a_program_waits_for_and_the_journal() -> None:
    found = evaluate([mode("ext4/journal", [400, 800], 10.0)], "msecs", TracePlan(milliseconds=True).shown)
    assert [h.title for h in found.histograms] == ["ext4/journal: commit", "ext4/journal: fsync"]
    assert [(b.low, b.count) for b in found.histograms[0].buckets] == [(0, 2)]
    assert found.series[0].points == [(1.0, 0.4), (2.0, 0.8)]


def test_throughput_is_of_all_that_dd_says() -> None:
    said = (
        "10+0 records in\n10485760 bytes (10 MB, 10 MiB) copied, 0.5 s, 21 MB/s\n"
        "10485760 bytes (10 MB, 10 MiB) copied, 1.5 s, 7 MB/s\n"
    )
    assert throughput_mib_s(said) == 10.0
    assert throughput_mib_s("fio: done") is None


def test_overhead_is_of_medians_and_of_pairs() -> None:
    found = Overhead("ext4/ordered", [1.0, 2.0, 1.0], [1.1, 1.0, 1.02])
    assert round(found.percent, 6) == 2.0
    assert [round(p, 6) for p in found.pairs_percent] == [-50.0, 2.0, 10.0]
    assert found.probes_percent is None
    assert Overhead("ext4/ordered", [1.0], [9.0], 0.02, 4.0).probes_percent == 0.5
