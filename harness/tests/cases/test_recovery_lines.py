"""Which lines of recovery ran, told from the bytes that guests set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from harness.cases.recovery_lines import RecoveryLines
from harness.errors import UsageError
from harness.filesystems.profile import Profile, RecoverySource
from harness.filesystems.profiles import profiles
from harness.kernels.build import Built
from harness.kernels.instrumented import Point, Points
from harness.model import CaseId
from harness.report.recovery_code import in_words, page_of
from harness.store.layout import RunLayout
from harness.store.recovery_code import CodeLine, RecoveryCode, merged, read_recovery_code

FIRST, SECOND = CaseId("ext4", "ordered", "one"), CaseId("ext4", "ordered", "two")
POINTS = (
    Point(10, "fs/recovery.c", "replay", 7),
    Point(11, "fs/recovery.c", "replay", 7),
    Point(20, "fs/recovery.c", "replay", 9),
    Point(30, "fs/recovery.c", "undo", 20),
    Point(40, "fs/log.c", "replay_one", 5),
    Point(50, "fs/log.c", "append_one", 6),
)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    folder = tmp_path / "kernel"
    folder.mkdir()
    built = Built("uml", "linux-source-6.12", "6.12.1", "6.12.1", "key")
    (folder / "built.json").write_bytes(msgspec.json.encode(built))
    (folder / "points.json").write_bytes(msgspec.json.encode(Points(64, POINTS)))
    return folder / "image"


@pytest.fixture
def layout(tmp_path: Path) -> RunLayout:
    (tmp_path / "run").mkdir()
    layout = RunLayout(tmp_path / "run")
    layout.hits.write_bytes(bytes(64))
    return layout


def mode() -> Profile:
    sources = ("fs/recovery.c", "fs/log.c:replay_\\w+")
    return replace(profiles()["ext4/ordered"], recovery=tuple(map(RecoverySource.parse, sources)))


def runs(layout: RunLayout, *bytes_set: int) -> None:
    """What a guest does, in the file as it is."""
    with layout.hits.open("r+b") as f:
        for at in bytes_set:
            f.seek(at)
            f.write(b"\1")


def noted(layout: RunLayout) -> RecoveryCode:
    code = read_recovery_code(layout)
    assert code is not None
    return code


def test_a_line_belongs_to_the_first_case_at_whose_end_it_has_run(image: Path, layout: RunLayout) -> None:
    lines = RecoveryLines(image, [mode()], layout)
    runs(layout, 11, 50)
    lines.look(FIRST)
    runs(layout, 40)
    lines.look(SECOND)
    lines.write()
    assert noted(layout).lines == (
        CodeLine("fs/log.c", "replay_one", 5, str(SECOND)),
        CodeLine("fs/recovery.c", "replay", 7, str(FIRST)),
        CodeLine("fs/recovery.c", "replay", 9),
        CodeLine("fs/recovery.c", "undo", 20),
    ), "append_one is no recovery"


def test_a_run_that_goes_on_keeps_what_it_had(image: Path, layout: RunLayout) -> None:
    """A new file of hits would have shown only what ran since."""
    before = RecoveryLines(image, [mode()], layout)
    runs(layout, 10)
    before.look(FIRST)
    before.write()
    runs(layout, 20)  # by a guest that was killed with the run
    after = RecoveryLines(image, [mode()], layout)
    after.look(SECOND)
    after.write()
    ran = {(line.line, line.first) for line in noted(layout).lines if line.first}
    assert ran == {(7, str(FIRST)), (9, str(SECOND))}


def test_the_page_names_the_functions_that_nothing_reached(image: Path, layout: RunLayout) -> None:
    lines = RecoveryLines(image, [mode()], layout)
    runs(layout, 10)
    lines.look(FIRST)
    lines.write()
    page = page_of(noted(layout), "RUN", "powercut coverage RUN")
    assert page.headline == "1 of 4 lines of recovery ran; 2 of 3 functions were not reached"
    text, html = page.text(), page.html()
    assert "fs/log.c: `replay_one`\nfs/recovery.c: `undo`\n" in text
    assert "replay, 7" in html
    assert "1 of 2" in html
    assert in_words(noted(layout)).endswith("not reached: replay_one, undo")


def test_runs_count_together_on_one_kernel_alone() -> None:
    first = RecoveryCode("a 1", (CodeLine("f", "g", 1, "one"), CodeLine("f", "g", 2)))
    second = RecoveryCode("a 1", (CodeLine("f", "g", 1), CodeLine("f", "g", 2, "two")))
    assert [line.first for line in merged([first, second]).lines] == ["one", "two"]
    with pytest.raises(UsageError, match="lines of different kernels are not the same lines: a 1, b 1"):
        merged([first, RecoveryCode("b 1", second.lines)])


def test_a_run_of_which_nobody_asked_it_says_nothing(layout: RunLayout) -> None:
    assert read_recovery_code(layout) is None
