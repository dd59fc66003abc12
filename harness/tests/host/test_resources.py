"""Data files are found in a source checkout and in an installed wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import EnvironmentLacks
from harness.host import resources


def test_a_template_is_found_in_the_checkout() -> None:
    assert resources.resource("reports", "templates", "report.html").is_file()


def test_an_installed_package_uses_its_own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "harness"
    own = package / "_data" / "reports" / "templates"
    foreign = tmp_path / "site-packages" / "reports" / "templates"
    for folder in (own, foreign):
        folder.mkdir(parents=True)
    monkeypatch.setattr(resources, "_PACKAGE", package)
    assert resources.resource("reports", "templates") == own


def test_what_is_missing_is_named() -> None:
    with pytest.raises(EnvironmentLacks, match="reports/none is part of powercut") as caught:
        resources.resource("reports", "none")
    assert "install powercut again" in caught.value.next_step


def test_an_installed_package_uses_the_programs_that_it_brought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asked for `make setup`, which is not there."""
    package = tmp_path / "site-packages" / "harness"
    (package / "_data" / "parts").mkdir(parents=True)
    monkeypatch.setattr(resources, "_PACKAGE", package)
    monkeypatch.delenv("POWERCUT_AGENT", raising=False)
    with pytest.raises(EnvironmentLacks) as caught:
        resources.built_part("POWERCUT_AGENT", "gnu", "release", "powercut-agent")
    assert "install powercut again" in caught.value.next_step
    program = package / "_data" / "parts" / "powercut-agent"
    program.touch()
    assert resources.built_part("POWERCUT_AGENT", "gnu", "release", "powercut-agent") == program


def test_a_variable_names_another_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "mine"
    program.touch()
    monkeypatch.setenv("POWERCUT_AGENT", str(program))
    assert resources.built_part("POWERCUT_AGENT", "gnu", "release", "powercut-agent") == program


def test_the_documents_are_there_only_once_they_are_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages" / "harness"
    page = package / "_data" / "site" / "docs" / "index.html"
    monkeypatch.setattr(resources, "_PACKAGE", package)
    assert resources.site() is None
    page.parent.mkdir(parents=True)
    page.touch()
    assert resources.site() == page
