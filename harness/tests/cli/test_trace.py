"""`powercut trace`; with a real guest in `harness.tests.vm.test_trace`."""

from __future__ import annotations

from pathlib import Path

from harness.tests.cli.runner import refused


def test_intervals_are_of_one_mode(tmp_path: Path) -> None:
    refused("trace", "--out", tmp_path, "-c", "ext4/journal,ext4/ordered", "1")
    assert not list(tmp_path.iterdir())


def test_what_trace_cannot_do_is_told_before_anything_boots(tmp_path: Path) -> None:
    for words, says in (
        (["--overhead", "1", "10"], "--overhead takes no INTERVAL"),
        (["--kernel", "uml-6.1"], "one that boots a PC"),
        (["-c", ""], "empty value"),
    ):
        assert says in refused("trace", "--out", tmp_path, *words)
    assert not list(tmp_path.iterdir())
