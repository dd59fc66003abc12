"""`powercut docs`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli import docs, main


def test_the_path_of_the_documents_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs, "site", lambda: Path("/site/docs/index.html"))
    done = CliRunner().invoke(main, ["docs", "--path"])
    assert (done.exit_code, done.output.split()) == (0, ["/site/docs/index.html"])


def test_of_a_checkout_whose_site_is_not_built_the_documents_are_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ "The documents are not built", with exit code 3, where they are all there to read."""
    monkeypatch.setattr(docs, "site", lambda: None)
    done = CliRunner().invoke(main, ["docs", "--path"])
    assert done.exit_code == 0
    assert (Path(done.output.strip()) / "llms.txt").is_file()


def test_documents_that_are_not_built_say_how_to_build_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs, "site", lambda: None)
    done = CliRunner().invoke(main, ["docs"])
    assert done.exit_code != 0
    assert "make docs" in done.output
