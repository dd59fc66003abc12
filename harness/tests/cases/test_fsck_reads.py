"""How fsck is run, and that its reads are known only if the trace says that it is complete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from harness.cases.fsck_reads import FsckReads
from harness.filesystems.profile import Profile
from harness.filesystems.second import file_for
from harness.host.fork_server import ForkServers
from harness.model import FsckClass, FsckResult

CLEAN = FsckResult(FsckClass.CLEAN, 0, "")
KILLED = FsckResult(FsckClass.FAILED, -1, "killed by signal 9")
Check = Callable[..., FsckResult]


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.cases.fsck_reads.find_library", lambda: Path("/readtrace.so"))


def profile(check: Check, *, writes: bool = False, second: str = "", fsck: bool = True) -> Profile:
    tool = SimpleNamespace(writes=writes) if fsck else None
    made = SimpleNamespace(fsck=tool, second=second, second_offset=4096, check_filesystem=check)
    return cast(Profile, cast(Any, made))


@pytest.fixture
def image(tmp_path: Path) -> Path:
    made = tmp_path / "recovered.img"
    made.write_bytes(b"as it was")
    return made


@pytest.mark.parametrize(
    ("trace", "blocks"),
    [
        ("0 4096\n8192 1\ncomplete\n", (0, 2)),
        # sorted, a path of the memo tested blocks that its visit had not come to read
        ("8192 5000\n0 1\n8192 1\ncomplete\n", (2, 3, 0)),
        ("0 4096\n", None),
    ],
)
def test_the_trace_of_the_image_tells_what_was_read(
    image: Path, trace: str, blocks: tuple[int, ...] | None
) -> None:
    def check(checked: Path, environment: Mapping[str, str]) -> FsckResult:
        assert (checked, environment["POWERCUT_TRACE_FILE"]) == (image, str(image))
        assert environment["LD_PRELOAD"] == "/readtrace.so"
        assert "POWERCUT_TRACE_TAIL" not in environment
        Path(environment["POWERCUT_TRACE_OUT"]).write_text(trace)
        return CLEAN

    assert FsckReads.of(profile(check), image) == FsckReads(CLEAN, blocks)


def test_an_fsck_that_writes_is_given_a_copy_and_the_copy_is_traced(image: Path) -> None:
    def check(checked: Path, environment: Mapping[str, str]) -> FsckResult:
        assert checked.read_bytes() == b"as it was"
        assert environment["POWERCUT_TRACE_FILE"] == str(checked)
        checked.write_bytes(b"repaired")
        return CLEAN

    assert FsckReads.of(profile(check, writes=True), image) == FsckReads(CLEAN, None)
    assert image.read_bytes() == b"as it was"


def test_a_second_device_is_traced_behind_the_first(image: Path) -> None:
    def check(checked: Path, environment: Mapping[str, str]) -> FsckResult:
        assert environment["POWERCUT_TRACE_TAIL"] == f"4096:{file_for(image)}"
        return CLEAN

    FsckReads.of(profile(check, second="journal"), image)


def test_where_there_is_no_fsck_nothing_is_read(image: Path) -> None:
    assert FsckReads.of(profile(lambda checked: CLEAN, fsck=False), image) == FsckReads(CLEAN, ())


def test_an_fsck_that_is_killed_is_run_again_with_a_trace_of_its_own(image: Path) -> None:
    """What is left of the first may still write to its trace; both in one told of no block."""
    traces = []

    def check(checked: Path, environment: Mapping[str, str]) -> FsckResult:
        traces.append(environment["POWERCUT_TRACE_OUT"])
        assert not Path(traces[-1]).read_text()
        if len(traces) == 1:
            Path(traces[-1]).write_text("0 4096\n")
            return KILLED
        Path(traces[-1]).write_text("8192 1\ncomplete\n")
        return CLEAN

    assert FsckReads.of(profile(check), image) == FsckReads(CLEAN, (2,))
    assert len(traces) == 2


def test_an_fsck_that_is_killed_each_time_gives_no_answer(image: Path) -> None:
    check = Mock(return_value=KILLED)
    told = FsckReads.of(profile(check), image)
    assert (told, check.call_count) == (FsckReads(KILLED, None), 2)
    assert told.gave_none


def test_one_that_answers_but_cannot_be_traced_is_run_once(image: Path) -> None:
    check = Mock(return_value=CLEAN)
    told = FsckReads.of(profile(check), image)
    assert (told.blocks, told.gave_none, check.call_count) == (None, False, 1)


def test_a_program_that_dies_of_being_served_is_started_anew(image: Path) -> None:
    """Each of its states was UNKNOWN."""
    served = []

    def check(checked: Path, environment: Mapping[str, str], *start: object) -> FsckResult:
        served.append(bool(start))
        return KILLED if start else CLEAN

    servers = cast(ForkServers, SimpleNamespace(run=None))
    made = profile(check)
    made.fsck.forks = True  # type: ignore[union-attr, misc]  # a namespace, which stands for a tool
    assert FsckReads.of(made, image, servers).result == CLEAN
    assert served == [True, False]


def test_two_that_run_one_after_the_other_depend_on_what_both_read() -> None:
    below, other = FsckReads(CLEAN, (1, 2)), FsckReads(FsckResult(FsckClass.DIRTY, 4, "bad"), (2, 3))
    assert below.followed_by(other) == FsckReads(other.result, (1, 2, 2, 3))
    assert FsckReads(CLEAN, None).followed_by(other).blocks is None
    assert below.followed_by(FsckReads(CLEAN, None)).blocks is None
