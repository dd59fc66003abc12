"""`powercut log`: a log is listed, or it is said what is wrong with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from harness.errors import ExitCode
from harness.host.packed import pack
from harness.model import (
    BEFORE_THE_LOG,
    BeforeCrash,
    CaseId,
    EntryFlag,
    History,
    HistoryStep,
    Operation,
    OperationKind,
)
from harness.oracles.pattern import fill
from harness.plan import Plan
from harness.store import RunStore
from harness.store.records import CaseInfo
from harness.tests.cli.runner import powercut, printed, refused
from harness.tests.report.demo import demo_run, run_info
from harness.writelog import Flush, MarkText, Step, Write, write_log


def test_log_ls_lists_the_entries(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write_log(path, [MarkText("begin 0"), Write(8, bytes(4096), EntryFlag.FUA), MarkText("ack 0")])
    done = powercut("log", "ls", path)
    assert done.exit_code == 0
    assert done.output.splitlines()[0].split() == ["entry", "flags", "what"]
    assert [line.split()[1] for line in done.output.splitlines()[1:]] == ["MARK", "FUA", "MARK"]
    assert len(powercut("log", "ls", path, "--end-mark", "begin 0").output.splitlines()) == 2
    assert len(powercut("log", "ls", path, "--json").output.splitlines()) == 3
    refused("log", "ls", path, "--by-time")


def test_log_ls_shows_when_entries_were_submitted_and_completed(tmp_path: Path) -> None:
    write_log(tmp_path / "log", [MarkText("begin 0"), Write(8, bytes(4096)), Flush()])
    pack(tmp_path / "log", tmp_path / "log.zst")
    lines = ["tracing_mark_write: powercut: begin 0"]
    for bio in ("W 8 + 8", "FW 0 + 0"):
        lines += [f"block_bio_queue: 254,0 {bio} [a]", f"block_bio_complete: 254,0 {bio} [0]"]
    (tmp_path / "events").write_text("".join(f"{line}\n" for line in lines))
    pack(tmp_path / "events", tmp_path / "events.zst")
    done = powercut("log", "ls", tmp_path / "log.zst")
    assert [line.split()[2:-1] for line in done.output.splitlines()] == [
        ["submitted", "completed"],
        ["0", "begin"],
        ["1", "2", "sector", "8", "+"],
        ["3", "4", "sector", "0", "+"],
    ]
    rows = powercut("log", "ls", tmp_path / "log.zst", "--json").output.splitlines()
    assert [json.loads(row)["times"] for row in rows] == ["0", "1..2", "3..4"]


def test_log_ls_says_of_which_device_an_entry_is(tmp_path: Path) -> None:
    """A flush of the journal's device looked like one of the data."""
    path = tmp_path / "log"
    write_log(path, [MarkText("devices 254,2+0 254,3+1024"), Write(8, bytes(512)), Flush(1024), Flush()])
    for options in ((), ("--no-names",)):
        lines = powercut("log", "ls", path, *options).output.splitlines()
        assert [line.split(maxsplit=2)[2] for line in lines[2:]] == [
            "first device, sector 8 + 1",
            "second device",
            "first device",
        ]
    rows = [json.loads(row) for row in powercut("log", "ls", path, "--json").output.splitlines()]
    assert [row.get("device") for row in rows] == [None, 0, 1, 0]


def test_a_write_that_preceded_an_acknowledgement_stands_before_it_by_time(tmp_path: Path) -> None:
    """dm-log-writes logs a write when a flush has made it durable: it stood behind the mark."""
    write_log(tmp_path / "log", [MarkText("ack 0"), Write(8, bytes(4096)), Flush()])
    pack(tmp_path / "log", tmp_path / "log.zst")
    lines = [
        "block_bio_queue: 254,0 W 8 + 8 [a]",
        "block_bio_complete: 254,0 W 8 + 8 [0]",
        "tracing_mark_write: powercut: ack 0",
        "block_bio_queue: 254,0 FW 0 + 0 [a]",
        "block_bio_complete: 254,0 FW 0 + 0 [0]",
    ]
    (tmp_path / "events").write_text("".join(f"{line}\n" for line in lines))
    pack(tmp_path / "events", tmp_path / "events.zst")

    def order(*options: str) -> list[str]:
        done = powercut("log", "ls", tmp_path / "log.zst", *options)
        return [line.split()[0] for line in done.output.splitlines()[1:]]

    assert order() == ["0", "1", "2"]
    assert order("--by-time") == ["1", "0", "2"]
    assert order("--by-time", "--limit", "1") == ["1"], "the first of the log was cut off before"


def test_a_truncated_log_says_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write_log(path, [MarkText("begin 0"), Write(0, bytes(4096), EntryFlag(0))])
    path.write_bytes(path.read_bytes()[:-512])
    done = powercut("log", "ls", path)
    assert done.exit_code == ExitCode.UNDECIDED
    assert str(path) in done.stderr


def test_a_foreign_log_says_so(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(1 << 16))
    done = powercut("log", "ls", path)
    assert done.exit_code == ExitCode.UNDECIDED
    assert "magic" in done.stderr


def test_a_log_of_a_run_is_called_what_the_user_called_it(tmp_path: Path) -> None:
    write_log(tmp_path / "log", [MarkText("begin 0")])
    pack(tmp_path / "log", tmp_path / "log.zst")
    for option in (["--start-mark", "end"], ["--start-entry", "7"]):
        assert str(tmp_path / "log.zst") in refused("log", "ls", tmp_path / "log.zst", *option)


def test_a_file_that_only_calls_itself_zst_says_so(tmp_path: Path) -> None:
    (tmp_path / "log.zst").write_text("no zstd, and longer than a header of one")
    done = powercut("log", "ls", tmp_path / "log.zst")
    assert done.exit_code == ExitCode.UNDECIDED
    assert "damaged" in done.stderr


def test_a_limit_below_one_is_refused(tmp_path: Path) -> None:
    write_log(tmp_path / "log", [MarkText("begin 0")])
    assert powercut("log", "ls", tmp_path / "log", "--limit", "-3").exit_code == ExitCode.USAGE


def test_a_mark_cannot_steer_the_terminal(tmp_path: Path) -> None:
    """Marks are written in the guest: an application may acknowledge anything."""
    write_log(tmp_path / "log", [MarkText("app \x1b]0;owned\x07\n       1 FUA")])
    done = powercut("log", "ls", tmp_path / "log")
    assert r"app \x1b]0;owned\x07\n       1 FUA" in done.output
    assert len(done.output.splitlines()) == 2


def test_a_listing_whose_reader_has_gone_ends_quietly(tmp_path: Path) -> None:
    """`powercut log ls LOG | head` showed a traceback of BrokenPipeError, and ended with 3."""
    write_log(tmp_path / "log", [MarkText(f"begin {i}") for i in range(3)])
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "harness", "log", "ls", str(tmp_path / "log")]
    with os.fdopen(writer, "w") as pipe:
        done = subprocess.run(
            command, stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert (done.stderr, done.returncode) == ("", ExitCode.OUTPUT_CLOSED)


def _run(tmp_path: Path) -> Path:
    """What a run directory keeps of one case, with a base image of no format; its log."""
    folder = tmp_path / "cases" / "ext4-ordered" / "mine"
    folder.mkdir(parents=True)
    steps: list[Step] = [
        MarkText("begin 0"),
        Write(8, fill(0, 4096, 4096)),
        Flush(),
        MarkText("ack 0"),
        Write(64, bytes(4096), EntryFlag.FLUSH | EntryFlag.FUA),
    ]
    write_log(tmp_path / "log", steps)
    pack(tmp_path / "log", folder / "log.zst")
    (tmp_path / "base").write_bytes(bytes(4096))
    pack(tmp_path / "base", folder.parent / "base.img.zst")
    operation = Operation(OperationKind.APPEND, "f", length=4096)
    history = History((HistoryStep(0, operation, 0, 3),))
    (folder / "history.json").write_bytes(msgspec.json.encode(history))
    lines = [
        "tracing_mark_write: powercut: begin 0",
        "block_bio_queue: 254,0 W 8 + 8 [a]",
        "block_bio_complete: 254,0 W 8 + 8 [0]",
        "block_bio_queue: 254,0 FW 0 + 0 [a]",
        "block_bio_complete: 254,0 FW 0 + 0 [0]",
        "tracing_mark_write: powercut: ack 0",
        "block_bio_queue: 254,0 FWF 64 + 8 [a]",
        "block_bio_complete: 254,0 FWF 64 + 8 [0]",
    ]
    (tmp_path / "events").write_text("".join(f"{line}\n" for line in lines))
    pack(tmp_path / "events", folder / "events.zst")
    return folder / "log.zst"


def test_log_ls_names_operations_and_what_they_wrote(tmp_path: Path) -> None:
    log = _run(tmp_path)
    lines = powercut("log", "ls", log).output.splitlines()
    assert lines[1].endswith("begin 0  append f 4096")
    assert lines[2].endswith("sector 8 + 8  data of f from 4096, written by operation 0")
    bare = powercut("log", "ls", log, "--no-names").output.splitlines()
    assert [bare[1].split()[-2:], bare[2].split()[-4:]] == [["begin", "0"], ["sector", "8", "+", "8"]]
    rows = [json.loads(row) for row in powercut("log", "ls", log, "--json").output.splitlines()]
    assert rows[0]["operation"] == "append f 4096"
    assert rows[1]["blocks"][0]["writer"] == 0
    assert rows[1]["blocks"][0]["offset"] == 4096


def test_log_ls_says_what_was_done_before_the_log_begins(tmp_path: Path) -> None:
    """Of a second life: its operations keep their numbers, and the base image is what the first life left."""
    log = _run(tmp_path)
    write_log(tmp_path / "log", [MarkText("begin 3"), MarkText("ack 3")])
    pack(tmp_path / "log", log)
    (log.parent / "events.zst").unlink()
    first = [Operation(OperationKind.CREATE, name) for name in ("f", "g")]
    crash = Operation(OperationKind.CRASH, argv=("1",))
    history = History(
        (
            *(HistoryStep(n, op, BEFORE_THE_LOG, BEFORE_THE_LOG) for n, op in enumerate([*first, crash])),
            HistoryStep(3, Operation(OperationKind.CREATE, "h"), 0, 1),
        ),
        earlier=BeforeCrash(3, 1, "@t7="),
    )
    (log.parent / "history.json").write_bytes(msgspec.json.encode(history))
    lines = powercut("log", "ls", log).output.splitlines()
    assert lines[0] == (
        "before this log: operations 0 to 1 before the crash, cut at @t7=; recovery came to the first 1"
    )
    assert [line.split()[-4:] for line in lines[2:]] == [
        [word, "3", "create", "h"] for word in ("begin", "ack")
    ]


def test_log_ls_has_the_form_of_blkparse(tmp_path: Path) -> None:
    log = _run(tmp_path)
    lines = powercut("log", "ls", log, "--blkparse").output.splitlines()
    assert [line.split()[5] for line in lines] == ["m", "Q", "C", "Q", "C", "m", "Q", "C"]
    assert lines[0].split()[5:] == ["m", "N", "begin", "0", "append", "f", "4096"]
    assert lines[1].split()[:5] == ["254,0", "0", "2", "0.000000001", "0"]
    assert lines[1].split()[6:10] == ["W", "8", "+", "8"]
    assert lines[3].split()[6] == "F"
    assert lines[6].split()[6:10] == ["FWF", "64", "+", "8"]
    (log.parent / "events.zst").unlink()
    assert powercut("log", "ls", log, "--blkparse").exit_code == ExitCode.USAGE


def test_log_ls_writes_a_trace_for_perfetto(tmp_path: Path) -> None:
    """Its own classes read it: what lies where, from which event to which."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (  # noqa: PLC0415  # an extra
        Trace,
        TrackEvent,
    )

    log = _run(tmp_path)
    printed("log", "ls", log, "--perfetto", tmp_path / "mine.pftrace")
    packets = Trace.FromString((tmp_path / "mine.pftrace").read_bytes()).packet
    tracks = {d.uuid: d.name for p in packets if (d := p.track_descriptor).uuid}
    shown, open_ones = [], {}
    for packet in packets:
        event = packet.track_event
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            open_ones[event.track_uuid] = (event.name, packet.timestamp)
        elif event.type == TrackEvent.TYPE_SLICE_END:
            name, begun = open_ones.pop(event.track_uuid)
            shown.append((tracks[event.track_uuid], name, begun, packet.timestamp))
    assert not open_ones
    assert shown == [
        ("operations", "append f 4096", 0, 5000),
        ("disk", "data of f from 4096, written by operation 0", 1000, 2000),
        ("disk", "flush", 3000, 4000),
        ("disk", "write", 6000, 7000),
    ]
    (log.parent / "events.zst").unlink()
    refused("log", "ls", log, "--perfetto", tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_writes_in_flight_together_lie_on_tracks_of_one_name(tmp_path: Path) -> None:
    """On one track the viewer would nest them: the second would seem to be a part of the first."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace  # noqa: PLC0415  # an extra

    write_log(tmp_path / "log", [MarkText("begin 0"), Write(8, bytes(4096)), Write(24, bytes(4096)), Flush()])
    pack(tmp_path / "log", tmp_path / "log.zst")
    lines = ["tracing_mark_write: powercut: begin 0"]
    lines += [f"block_bio_queue: 254,0 W {sector} + 8 [a]" for sector in (8, 24)]
    lines += [f"block_bio_complete: 254,0 W {sector} + 8 [0]" for sector in (8, 24)]
    lines += [f"block_bio_{what}: 254,0 FW 0 + 0 [{by}]" for what, by in (("queue", "a"), ("complete", "0"))]
    (tmp_path / "events").write_text("".join(f"{line}\n" for line in lines))
    pack(tmp_path / "events", tmp_path / "events.zst")
    printed("log", "ls", tmp_path / "log.zst", "--perfetto", tmp_path / "trace")
    packets = Trace.FromString((tmp_path / "trace").read_bytes()).packet
    tracks = {d.uuid: d.name for p in packets if (d := p.track_descriptor).uuid}
    assert sorted(tracks.values()) == ["disk", "disk", "operations"]
    where = [p.track_event.track_uuid for p in packets if p.track_event.name == "write"]
    assert len(set(where)) == 2
    unacknowledged = [p.track_event.name for p in packets if "not acknowledged" in p.track_event.name]
    assert unacknowledged == ["begin 0 (not acknowledged)"]


def test_the_calls_of_a_program_stand_between_the_entries(tmp_path: Path) -> None:
    """What the application itself had asked for, and when, was nowhere."""
    write_log(tmp_path / "log", [MarkText("begin 0"), Write(8, bytes(4096)), Flush(), MarkText("ack 0")])
    pack(tmp_path / "log", tmp_path / "log.zst")
    head = "tracing_mark_write: powercut"
    lines = [f"{head}: begin 0", f"{head}-call: 0 7 write(f, 9)", f"{head}-done: 0 9"]
    lines += [f"{head}-call: 1 7 fsync(f)"]
    for bio in ("W 8 + 8", "FW 0 + 0"):
        lines += [f"block_bio_queue: 254,0 {bio} [a]", f"block_bio_complete: 254,0 {bio} [0]"]
    lines += [f"{head}-done: 1 -5", f"{head}-more: 4", f"{head}: ack 0"]
    (tmp_path / "events").write_text("".join(f"{line}\n" for line in lines))
    pack(tmp_path / "events", tmp_path / "events.zst")

    def listed(*options: str) -> list[str]:
        return powercut("log", "ls", tmp_path / "log.zst", *options).output.splitlines()

    for options in ((), ("--by-time",)):
        kinds = [line.split()[0] if "call" in line else line.split()[1] for line in listed(*options)[1:-1]]
        assert kinds == ["MARK", "call", "call", "-", "FLUSH", "MARK"]
    told = [line.split() for line in listed() if " call " in line]
    assert told == [
        ["call", "1", "2", "write(f,", "9)", "=", "9"],
        ["call", "3", "8", "fsync(f)", "=", "EIO"],
    ]
    assert listed()[-1] == "4 more calls, the last, were not noted"
    assert not [line for line in listed("--no-calls") if "call" in line]
    rows = [json.loads(row) for row in listed("--json")]
    assert [row["call"] for row in rows if "call" in row] == ["write(f, 9)", "fsync(f)"]
    assert rows[2] == {"call": "fsync(f)", "thread": 7, "outcome": "= EIO", "times": "3..8"}
    assert [row["entry"] for row in rows if "entry" in row] == [0, 1, 2, 3]


def with_logs(root: Path, cases: int) -> RunStore:
    """The demo run with the log of its first cases."""
    store = demo_run(root)
    write_log(root / "log", [MarkText("begin 0"), Write(8, bytes(4096)), Flush(), MarkText("ack 0")])
    for record in store.cases()[:cases]:
        file = store.layout.case(record.case).log
        file.parent.mkdir(parents=True)
        pack(root / "log", file)
    return store


def test_a_log_is_named_by_its_case_a_crash_point_or_a_finding(tmp_path: Path) -> None:
    """Only the path of its file named one."""
    store = with_logs(tmp_path, 99)
    finding = store.findings()[0]
    case = finding.case
    by_path = powercut("log", "ls", store.layout.case(case).log).output
    assert "begin 0" in by_path
    named = (str(case), f"{case.configuration}/{case.workload}", f"{case}@3", finding.id, finding.id[:8])
    for text in named:
        assert powercut("log", "ls", text, "--from", store.path).output == by_path, text


def test_a_run_of_several_cases_says_which_logs_it_has(tmp_path: Path) -> None:
    store = with_logs(tmp_path, 1)
    first, second, *_ = (str(c.case) for c in store.cases())
    for arguments in (("--from", store.path), (store.path,)):
        done = powercut("log", "ls", *arguments)
        assert done.exit_code == 2
        assert first in done.output
        assert second in done.output
    wrong = powercut("log", "ls", "ext4-nope/append", "--from", store.path)
    assert (wrong.exit_code, "has no case ext4-nope/append" in wrong.output) == (2, True)
    none = powercut("log", "ls", second, "--from", store.path)
    assert (none.exit_code, f"no log of {second}" in " ".join(none.output.split())) == (2, True)
    gone = powercut("log", "ls", tmp_path / "nope")
    assert (gone.exit_code, "there is no" in gone.output) == (2, True)


def test_the_only_case_of_a_run_or_a_package_need_not_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package was refused: "powercut report A.tar.zst unpacks it"."""
    monkeypatch.chdir(tmp_path)
    with RunStore.create(tmp_path, "one", run_info()) as store:
        case = CaseId("ext4", "ordered", "append")
        store.put_plan(Plan(configurations=["ext4/ordered"], workloads=["append"]))
        store.add_case(CaseInfo(case))
        write_log(tmp_path / "log", [MarkText("begin 0"), Write(8, bytes(4096)), Flush()])
        file = store.layout.case(case).log
        file.parent.mkdir(parents=True)
        pack(tmp_path / "log", file)
        store.finish()
        path = store.path
    assert "begin 0" in powercut("log", "ls", "--from", path).output
    assert "begin 0" in powercut("log", "ls", path).output
    printed("pack", path, "--output", tmp_path / "a.tar.zst")
    assert "begin 0" in powercut("log", "ls", tmp_path / "a.tar.zst").output
    assert "begin 0" in powercut("log", "ls", "--from", tmp_path / "a.tar.zst").output
