"""The command line: what is wrong is said with its value and the next step, and nothing is begun."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.cli import main
from harness.errors import ExitCode
from harness.model import CaseId, CrashState, EntryFlag, Judgement, Violation
from harness.store import RunStore
from harness.store.records import CaseInfo, How, JudgedState
from harness.tests.report.demo import run_info
from harness.writelog import MarkText, Write, write_log


def powercut(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "-c", "ext4/orderd"], "ext4/ordered"),
        (["run", "-c", "ext4/ordered", "-w", "append-fsnc"], "append-fsync"),
        (["run", "--fault-model", "prefx"], "prefix"),
        (["run", "-w", "append-fsync", "--kernel", "debian-6.1x"], "debian-6.12"),
    ],
)
def test_an_unknown_name_costs_nothing_and_names_the_nearest(
    arguments: list[str], says: str, tmp_path: Path
) -> None:
    done = powercut(*arguments, "--out", tmp_path)
    assert done.exit_code == ExitCode.USAGE
    assert says in done.stderr
    assert "next:" in done.stderr
    assert not list(tmp_path.iterdir()) or "--kernel" in arguments


def test_a_file_that_is_no_kernel_says_so(tmp_path: Path) -> None:
    path = tmp_path / "bzImage"
    path.write_bytes(bytes(1 << 16))
    done = powercut("run", "-w", "append-fsync", "--kernel", path, "--out", tmp_path)
    assert done.exit_code == ExitCode.UNDECIDED
    assert str(path) in done.stderr
    assert "no kernel" in done.stderr


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


def test_log_ls_lists_the_entries(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write_log(path, [MarkText("begin 0"), Write(8, bytes(4096), EntryFlag.FUA), MarkText("ack 0")])
    done = powercut("log", "ls", path)
    assert done.exit_code == 0
    assert [line.split()[1] for line in done.output.splitlines()] == ["MARK", "FUA", "MARK"]
    assert len(powercut("log", "ls", path, "--end-mark", "begin 0").output.splitlines()) == 1


def test_a_run_directory_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema": 999}')
    for arguments in (
        ["report", tmp_path],
        ["run", "--resume", tmp_path],
        ["repro", "x@1", "--from", tmp_path],
    ):
        done = powercut(*arguments)
        assert done.exit_code == ExitCode.UNDECIDED, done.output
        assert "999" in done.stderr


def test_no_run_there_says_where_it_looked(tmp_path: Path) -> None:
    done = powercut("repro", "ext4-ordered/append-fsync@1", "--from", tmp_path / "nothing")
    assert done.exit_code == ExitCode.UNDECIDED
    assert "nothing" in done.stderr


def test_an_expectation_without_a_reason_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "expected"
    path.write_text("ext4/nobarrier * *\n")
    done = powercut("run", "-c", "ext4/ordered", "--expect", path, "--out", tmp_path / "reports")
    assert done.exit_code == ExitCode.USAGE
    assert f"{path}:1" in done.stderr
    assert not (tmp_path / "reports").exists()


@pytest.mark.parametrize("what", ["filesystems", "workloads", "kernels"])
def test_list_names_what_there_is(what: str) -> None:
    done = powercut("list", what)
    assert done.exit_code == 0
    assert {"filesystems": "ext4/ordered", "workloads": "append-fsync", "kernels": "debian-6.12"}[
        what
    ] in done.output


def test_list_runs_of_an_empty_folder_is_empty(tmp_path: Path) -> None:
    done = powercut("list", "runs", "--out", tmp_path)
    assert (done.exit_code, done.output) == (0, "")


def test_every_command_has_help() -> None:
    for command in (
        ["run"],
        ["repro"],
        ["report"],
        ["list"],
        ["log", "ls"],
        ["doctor"],
        ["smoke"],
        ["kernel", "build"],
    ):
        done = powercut(*command, "--help")
        assert done.exit_code == 0
        assert len(done.output.splitlines()) > 5


def recorded(root: Path, *verdicts: Violation | None, log_hash: str = "log") -> Path:
    """A run of one case with a state for each of `verdicts`; None passes."""
    case = CaseId("ext4", "ordered", "append-fsync")
    with RunStore.create(root, "test", run_info()) as store:
        store.add_case(CaseInfo(case, generated=len(verdicts), distinct=len(verdicts), log_hash=log_hash))
        store.put_judgements(
            case,
            [
                JudgedState(CrashState(i), str(i), Judgement((v,) if v else ()), How.JUDGED)
                for i, v in enumerate(verdicts)
            ],
        )
        return store.path


LOST = Violation("durability", "f", "f is gone", "f", "nothing", "gone f")
STALE = Violation("stale", "f", "f holds poison", "data", "poison", "poison f")


def test_compare_finds_a_state_that_differs(tmp_path: Path) -> None:
    first = recorded(tmp_path / "a", None, LOST, None)
    for second, differences in (
        (recorded(tmp_path / "b", None, LOST, None), 0),
        (recorded(tmp_path / "c", None, STALE, None), 1),
        (recorded(tmp_path / "d", None, LOST, LOST), 1),
    ):
        done = powercut("compare", first, second)
        assert f"3 crash states compared, {differences} differences" in done.output
        assert done.exit_code == (ExitCode.INCONSISTENT if differences else 0)


def test_compare_refuses_recordings_that_differ(tmp_path: Path) -> None:
    done = powercut(
        "compare", recorded(tmp_path / "a", None), recorded(tmp_path / "b", None, log_hash="other")
    )
    assert done.exit_code == ExitCode.USAGE
    assert "--recordings" in done.stderr


def test_compare_of_nothing_is_no_agreement(tmp_path: Path) -> None:
    done = powercut("compare", recorded(tmp_path / "a"), recorded(tmp_path / "b"))
    assert done.exit_code == ExitCode.NOTHING_RUN
