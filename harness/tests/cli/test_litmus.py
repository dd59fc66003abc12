"""`powercut litmus`, up to the first guest."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness.cli import series as cli_series
from harness.errors import ExitCode
from harness.litmus import programs as litmus_programs
from harness.litmus.results import CellAnswer, OnMode
from harness.litmus.work import LitmusSeries, load_plan
from harness.oracles import ORACLES
from harness.series.journal import End
from harness.tests.cli.runner import powercut, refused
from harness.workloads.load import load_workload

NAME = "append-fsync-file"


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch) -> list[LitmusSeries]:
    """The series that were carried out: ext4/nobarrier breaks its promise, all others keep theirs."""
    all_of_them: list[LitmusSeries] = []

    def carry_out(series: LitmusSeries, *_: object, **__: object) -> End:
        all_of_them.append(series)
        for mode, kernel in series.plan.columns:
            no = int(mode == "ext4/nobarrier")
            cell = CellAnswer(program=NAME, promised=True, recordings=2, states=9, no=no, point="c@1")
            name = series.plan.column(mode, kernel)
            (key,) = {item.key for item in series.items(None)}  # type: ignore[arg-type]  # see below
            series.known.add(OnMode(item=name, mode=mode, run="modes/m/runs/r", cells=(cell,), key=key))
        series.write()
        return End.COMPLETE

    monkeypatch.setattr(cli_series, "carry_out", carry_out)
    return all_of_them


def test_a_mode_that_is_only_rules_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    """It made 75 recordings, and told that none could be judged."""
    told = refused("litmus", "-c", "ext4/ordered,any/posix", NAME, "--out", tmp_path)
    assert "any/posix: rules judge programs by their own checks" in told
    assert not any(tmp_path.iterdir())


FILE = """
summary = "An append that is synced"
operations = ["create f", "sync", "append f 4096", "fsync f"]
[question]
group = "one append"
asks = "Is the append there?"
setup = 2
after = 4
holds = [{ f = { sizes = [4096] } }]
kept = KEPT
broken = BROKEN
"""
WHOLE, EMPTY = "{ f = { contents = [[4096, 2]] } }", "{ f = {} }"


@pytest.mark.parametrize(
    ("kept", "broken", "said"),
    [
        (
            [WHOLE, EMPTY],
            [EMPTY],
            "`kept` plants answers yes, but its tree 1 answers no: f has 0 bytes",
        ),
        ([WHOLE], [EMPTY, WHOLE], "`broken` plants answers no, but its tree 1 answers yes"),
        ([WHOLE], [], "`broken` is empty"),
        ([], [EMPTY], "`kept` is empty"),
    ],
)
def test_a_question_that_contradicts_its_planted_answers_is_refused(
    kept: list[str], broken: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only our own tests tried them: the table told what a mode promises by answers that are none."""
    file = tmp_path / "mine.toml"
    file.write_text(FILE.replace("KEPT", f"[{', '.join(kept)}]").replace("BROKEN", f"[{', '.join(broken)}]"))
    monkeypatch.setattr(litmus_programs, "workload_sets", lambda: {"litmus": ["mine"]})
    monkeypatch.setattr(litmus_programs, "load_workload", lambda _: load_workload(str(file)))
    told = refused("litmus", "-c", "ext4/ordered", "mine", "--machine", "uml", "--out", tmp_path / "out")
    assert f"litmus program mine: {said}" in told
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("mode", "code"), [("ext4/ordered", ExitCode.CONSISTENT), ("ext4/nobarrier", ExitCode.INCONSISTENT)]
)
def test_a_broken_promise_is_an_exit_code(
    mode: str, code: ExitCode, carried: list[LitmusSeries], tmp_path: Path
) -> None:
    done = powercut("litmus", "-c", mode, NAME, "--machine", "uml", "--out", tmp_path)
    assert done.exit_code == code, done.output
    (made,) = (tmp_path / "runs").iterdir()
    assert {"report.html", "litmus.json", "table.md", "summary.txt"} <= {p.name for p in made.iterdir()}
    assert load_plan(made).modes == [mode]


def test_each_program_is_recorded_under_several_schedules_and_its_question_is_put(
    carried: list[LitmusSeries], tmp_path: Path
) -> None:
    """A run leaves questions out unless it is asked for them."""
    powercut("litmus", "-c", "ext4/ordered", NAME, "--schedules", "2", "--machine", "uml", "--out", tmp_path)
    (series,) = carried
    (item,) = series.items(None)  # type: ignore[arg-type]  # it needs no work to know them
    assert not callable(item.plan)
    assert item.plan.workloads == [NAME, f"{NAME}.s1", f"{NAME}.s2"]
    assert item.plan.oracles == tuple(ORACLES)
    assert item.plan.fault_models == ("exhaustive",)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["append-fsink-file"], NAME),
        (["-c", "ext5"], "ext4"),
        (["-c", "ext5", "--list"], "ext4"),  # it was ignored
        (["-c", "ext4/ordered", "--compare"], "1 column cannot be compared"),
        (
            ["-c", "ext4/ordered", "--kernels", "debian-7.3,debian-7.3", "--compare"],
            "1 column cannot be compared",
        ),
        (["-c", "ext4/ordered", "--kernels", "debian-5.99"], "debian-5.99"),
    ],
)
def test_a_wrong_name_leaves_nothing_behind(
    arguments: list[str], says: str, carried: list[LitmusSeries], tmp_path: Path
) -> None:
    done = powercut("litmus", *arguments, "--machine", "uml", "--out", tmp_path)
    assert (done.exit_code, carried) == (ExitCode.USAGE, [])
    assert says in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_answers_to_another_question_are_not_shown(carried: list[LitmusSeries], tmp_path: Path) -> None:
    """After a program was changed, --resume showed the old answers under the new question until each mode had
    had its turn.
    """
    powercut("litmus", "-c", "ext4/ordered", NAME, "--machine", "uml", "--out", tmp_path)
    (series,) = carried
    (done,) = series.known.done.values()
    assert list(series.litmus.shown) == ["ext4/ordered"]
    series.known.add(msgspec.structs.replace(done, key="of the program as it was"))
    assert list(series.litmus.shown) == []


def test_answers_of_another_build_are_not_shown(carried: list[LitmusSeries], tmp_path: Path) -> None:
    image = tmp_path / "vmlinux"
    image.write_bytes(b"\x7fELF one")
    words = ("-c", "ext4/ordered", NAME, "--kernels", image, "--machine", "uml", "--out", tmp_path)
    assert powercut("litmus", *words).exit_code == ExitCode.CONSISTENT
    (series,) = carried
    (done,) = series.known.done.values()
    shown = []
    for text in (b"\x7fELF one", b"\x7fELF another", None):
        image.unlink(missing_ok=True)
        if text:
            image.write_bytes(text)
        again = LitmusSeries(series.plan, series.path)
        again.known.add(done)
        shown.append(list(again.litmus.shown))
    assert shown == [["ext4/ordered"], [], ["ext4/ordered"]], "those of a file that is gone stay"


def test_two_modes_are_compared(carried: list[LitmusSeries], tmp_path: Path) -> None:
    modes = "ext4/ordered,ext4/nobarrier"
    done = powercut("litmus", "-c", modes, NAME, "--compare", "--machine", "uml", "--out", tmp_path)
    assert "Differences" in done.output


def test_a_list_names_every_program_with_its_question(tmp_path: Path) -> None:
    done = powercut("litmus", "--list")
    assert done.exit_code == ExitCode.CONSISTENT
    assert f"{NAME}: A file grows and is synced. Is the append there once fsync has returned?" in done.output
