"""`powercut log`: a log is listed, or it is said what is wrong with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from harness.errors import ExitCode
from harness.host.packed import pack
from harness.model import EntryFlag
from harness.tests.cli.runner import powercut
from harness.writelog import Flush, MarkText, Write, write_log


def test_log_ls_lists_the_entries(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write_log(path, [MarkText("begin 0"), Write(8, bytes(4096), EntryFlag.FUA), MarkText("ack 0")])
    done = powercut("log", "ls", path)
    assert done.exit_code == 0
    assert done.output.splitlines()[0].split() == ["entry", "flags", "what"]
    assert [line.split()[1] for line in done.output.splitlines()[1:]] == ["MARK", "FUA", "MARK"]
    assert len(powercut("log", "ls", path, "--end-mark", "begin 0").output.splitlines()) == 2
    assert len(powercut("log", "ls", path, "--json").output.splitlines()) == 3
    refused = powercut("log", "ls", path, "--by-time")
    assert refused.exit_code == ExitCode.USAGE


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
        done = powercut("log", "ls", tmp_path / "log.zst", *option)
        assert done.exit_code == ExitCode.USAGE
        assert str(tmp_path / "log.zst") in done.stderr


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
