"""What `powercut list kernels` says of a pin: what can be had, what is cached, what judges it."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from harness.errors import EnvironmentLacks
from harness.guests.kernel_list import KernelRow, row_of
from harness.guests.machine import flavour_of
from harness.host.archive import Archive
from harness.kernels import build
from harness.kernels.build import Built
from harness.kernels.pins import pins

THERE = {
    "linux-image-7.2.12+deb13-amd64",
    "linux-image-7.2.12+deb13-amd64=7.2.12-1",
    "linux-binary-7.2.12+deb13-amd64",
    "linux-modules-7.2.12+deb13-amd64",
    "linux-base-7.2.12+deb13-amd64",
    "linux-image-6.17.13+deb13-amd64",
    "linux-image-6.17.13+deb13-amd64=6.17.13-1",
    "linux-image-7.0.1+deb13-amd64",
    "linux-source-7.2=7.2.12-1",
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def offered(archive: Archive, pattern: str) -> set[str]:
        return {p for p in THERE if archive.suite == "trixie-backports" and re.fullmatch(pattern, p)}

    monkeypatch.setenv("POWERCUT_CACHE", str(tmp_path))
    monkeypatch.setattr(Archive, "offered", offered)
    monkeypatch.setattr(Archive, "listed", True)
    return tmp_path


def row(pin: str) -> KernelRow:
    return row_of(pins()[pin])


def test_a_kernel_that_can_be_had_says_how_it_would_be_judged_natively() -> None:
    assert row("debian-7.2").words[1:4] == ("7.2.12", "-", "powercut kernel build linux-source-7.2")
    assert row("debian-6.17").words[1:4] == ("6.17.13", "-", "- (no package has its source)")


def test_a_kernel_without_modules_is_told_with_what_is_missing() -> None:
    assert row("debian-7.0").newest == "-"
    assert "linux-modules-7.0.1+deb13-amd64" in row("debian-7.0").why_not


def test_what_is_cached_is_told_with_the_uml_of_its_source(cache: Path) -> None:
    """Of another version's source, UML does not judge it."""
    flavour = flavour_of("uml")
    for version in ("7.2.9", "7.2.12"):
        folder = cache / f"kernels/linux-image-{version}+deb13-amd64"
        folder.mkdir(parents=True)
        (folder / "complete").write_text(f"{version}-1\n")
    for name, version in (("built-uml-old", "7.2.9-1"), ("built-uml-new", "7.2.12-1")):
        made = Built("uml", "linux-source-7.2", version, "7.2.12", "")
        made = msgspec.structs.replace(made, key=build.key_of(made, flavour))
        (cache / f"kernels/{name}").mkdir()
        (cache / f"kernels/{name}/built.json").write_bytes(msgspec.json.encode(made))
    assert row("debian-7.2").words[1:4] == ("7.2.12", "7.2.9, 7.2.12", "UML: built-uml-new")


def test_an_archive_that_cannot_be_asked_leaves_the_cache_to_be_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def offered(archive: Archive, pattern: str) -> set[str]:
        if archive.suite:
            raise EnvironmentLacks("the mirror has no such suite", "add one")
        return set()

    monkeypatch.setattr(Archive, "offered", offered)
    assert row("debian-7.2").words[1:4] == ("unknown", "-", "-")
    assert row("debian-7.2").why_not == "the mirror has no such suite; add one"
