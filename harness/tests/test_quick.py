"""`make quick`: a change brings the tests that look at it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.tests.quick import ALWAYS, ROOT, Choice, changed_files, commands, main
from harness.tests.test_arrows import files


def test_every_module_of_the_product_is_reached_by_a_test() -> None:
    """A change that brings no test passes unseen."""
    unseen = [
        path
        for path in (str(p.relative_to(ROOT)) for p in files().values())
        if Choice([path]).files <= {*ALWAYS}
    ]
    assert not unseen


@pytest.mark.parametrize(
    ("path", "test"),
    [
        ("harness/report/page.py", "harness/tests/report/test_page.py"),
        ("harness/summary.py", "harness/tests/test_summary.py"),
        ("harness/oracles/names.py", "harness/tests/oracles/test_names.py"),
        ("harness/tests/budget.py", "harness/tests/guests/test_hostile_frames.py"),
        ("kernels/faults/commit-no-fua.toml", "harness/tests/faults/test_catalogue.py"),
        ("docs/howto/ci.md", "harness/tests/test_documents.py"),
        ("README.md", "harness/tests/test_documents.py"),
    ],
)
def test_a_change_brings_the_tests_that_look_at_it(path: str, test: str) -> None:
    assert (ROOT / path).exists()
    assert test in Choice([path]).files


def test_a_module_brings_tests_of_other_rooms_that_import_it() -> None:
    reached = Choice(["harness/errors.py"]).files
    assert any(t.startswith("harness/tests/cli/") for t in reached)
    assert any(t.startswith("harness/tests/guests/") for t in reached)


def test_no_test_with_a_guest_is_brought_but_a_guest_is_booted_where_states_are_judged() -> None:
    judged, shown = Choice(["harness/oracles/names.py"]), Choice(["harness/report/page.py"])
    assert judged.guest and not shown.guest
    assert not [t for t in judged.files | shown.files if t.startswith("harness/tests/vm/")]
    assert commands(judged, 2)[-1][-1] == "smoke"


def test_a_crate_is_tested_by_cargo_and_by_the_room_that_talks_to_it() -> None:
    choice = Choice(["vms/disk/src/main.rs"])
    assert choice.crates == {"powercut-disk"} and choice.guest
    assert "harness/tests/guests/test_disk.py" in choice.files


def test_changes_are_what_git_says_with_new_files(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c", *words],
            check=True,
            capture_output=True,
        )

    git("init", "-q")
    (tmp_path / "kept").write_text("a")
    (tmp_path / "edited").write_text("a")
    git("add", ".")
    git("commit", "-qm", "a")
    (tmp_path / "edited").write_text("b")
    (tmp_path / "new").write_text("b")
    assert changed_files("HEAD", tmp_path) == ["edited", "new"]


def test_list_runs_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.tests.quick.changed_files", lambda base: ["README.md"])
    assert main(["--list"]) == 0
    assert "test_documents.py" in capsys.readouterr().out
