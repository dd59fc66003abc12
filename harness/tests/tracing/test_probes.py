"""Which way events are had, with a guest that only says what it is asked to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from harness.errors import GuestError
from harness.filesystems.profiles import profiles
from harness.tools_image.guest import Ran, ToolsGuest
from harness.tracing.probes import FSYNC, kinds, program, start_probes, wanted_families
from harness.tracing.records import Commit

SAMPLES = Path(__file__).parent / "samples"
TRACED = {p.filesystem: p.tracing for p in profiles().values() if p.tracing}


class Scripted:
    """A guest with tools that answers by what a script contains."""

    def __init__(self, answers: dict[str, str], headers: str = "") -> None:
        self.headers = headers
        self.answers = answers
        self.scripts: list[str] = []
        self.files: dict[str, bytes] = {}

    def put(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self.files[path] = data

    def run(self, argv: Sequence[str], timeout_s: float, *, check: bool = True) -> Ran:
        return self.shell(" ".join(argv), timeout_s, check=check)

    def shell(self, script: str, timeout_s: float, *, check: bool = True) -> Ran:
        self.scripts.append(script)
        for part, answer in self.answers.items():
            if part in script:
                if answer.startswith("fail: "):
                    raise GuestError(answer)
                return Ran(0, answer)
        return Ran(0, "")


def events(families: Sequence[Any]) -> str:
    return "\n".join(event for family in families for event in family.events)


ANSWERS = {
    "/sys/class/block/vdb/dev": "254:16\n",
    "auto.conf": "CONFIG_HZ_250=y\nCONFIG_HZ=250\n",
    "ls -d */*": events([TRACED["ext4"]]),
    "cat trace": (SAMPLES / "ext4.trace").read_text(),
}


def test_a_kernel_without_headers_is_traced_by_tracefs_and_says_why() -> None:
    tools = Scripted(ANSWERS, headers="no headers for that")
    probes = start_probes(cast(ToolsGuest, tools), [TRACED["ext4"]])
    assert (probes.source, probes.reason) == ("tracefs", "no headers for that")
    assert sum(isinstance(r, Commit) for r in probes.collect()) == 4


def test_a_program_that_does_not_compile_falls_back_to_tracefs() -> None:
    tools = Scripted({**ANSWERS, "python3 probes.py": "fail: out\nerror: no such field"})
    probes = start_probes(cast(ToolsGuest, tools), [TRACED["ext4"]])
    assert probes.source == "tracefs"
    assert "no such field" in probes.reason


def test_with_headers_it_is_bcc() -> None:
    tools = Scripted(ANSWERS)
    assert start_probes(cast(ToolsGuest, tools), [TRACED["ext4"]]).source == "bcc"
    assert tools.files["/run/trace/program.c"].startswith(b"#define DISK 266338320\n#define HERTZ 250\n")


def test_a_kernel_without_the_tracepoints_is_refused_with_their_names() -> None:
    tools = Scripted({**ANSWERS, "ls -d */*": "syscalls/sys_enter_fsync"}, headers="none")
    with pytest.raises(GuestError, match="jbd2/jbd2_start_commit"):
        start_probes(cast(ToolsGuest, tools), [TRACED["ext4"]])


@pytest.mark.parametrize("filesystem", [*TRACED, ""])
def test_a_program_has_a_probe_for_each_event_and_a_number_for_each_kind(filesystem: str) -> None:
    traced = TRACED.get(filesystem, FSYNC)
    text = "".join(Path(name).read_text() for name in traced.programs)
    for event in traced.events:
        assert f"TRACEPOINT_PROBE({event.replace('/', ', ')})" in text
    told = set(re.findall(r"(?:kind = |, )([A-Z0-9_]{5,})(?:;|\))", text))
    assert told <= {kind.replace("-", "_").upper() for kind in kinds([traced])}


def test_a_file_system_that_another_ones_driver_serves_has_its_tracepoints() -> None:
    assert TRACED["ext3"] == TRACED["ext4"]


def test_kinds_of_records_are_numbered_alike_on_both_sides_of_the_guest() -> None:
    """The numbers stood in C and the names in the guest's program, a line for each file system in both."""
    wanted = wanted_families([TRACED["xfs"], TRACED["btrfs"]])
    assert kinds(wanted) == ("commit", "checkpoint", "fsync", "log-write", "transaction")
    numbered = b"enum kind { NONE, COMMIT, CHECKPOINT, FSYNC, LOG_WRITE, TRANSACTION };"
    assert numbered in program(wanted, (254, 16), 250)


def test_a_program_holds_each_piece_once() -> None:
    wanted = wanted_families([TRACED["ext4"], TRACED["ext3"], TRACED["xfs"]])
    assert [f.name for f in wanted] == ["jbd2", "xfs", "fsync"]  # XFS does not tell the end of an fsync
    assert [f.name for f in wanted_families([TRACED["ext4"], TRACED["f2fs"]])] == ["jbd2", "f2fs"]
    assert [f.name for f in wanted_families([TRACED["ext4"], None])] == ["jbd2", "fsync"]
    assert program(wanted, (254, 16), 250).count(b"jbd2_start_commit") == 1
