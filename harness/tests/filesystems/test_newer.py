"""Modes that take programs from another release than this host's, even where the host has them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness import doctor
from harness.cases.pins import host_pins
from harness.errors import EnvironmentLacks, UsageError
from harness.filesystems import profiles as module
from harness.filesystems import tools
from harness.filesystems.profiles import FILE_NAME, profiles, select_profiles
from harness.filesystems.tools import Tool
from harness.host.resources import resource

NEWER = {name: p for name, p in profiles().items() if any(t.always for t in p.tools)}
TOOL = Tool("sh", "dash", suites=["elsewhere"], always=True)


@pytest.fixture
def cached(monkeypatch: pytest.MonkeyPatch, cache: Path) -> dict[str, Path]:
    """What the cache has, by release."""
    there: dict[str, Path] = {}
    monkeypatch.setattr(tools, "cached_program", lambda _, __, release="": there.get(release))
    return there


def test_the_hosts_own_program_does_not_do(cached: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(EnvironmentLacks, match=r"sh \(elsewhere\) is not in the cache"):
        TOOL.path()
    cached["elsewhere"] = tmp_path / "sh"
    assert TOOL.path() == str(tmp_path / "sh")
    assert Tool("sh", "dash", suites=["elsewhere"]).path() != str(tmp_path / "sh")


def test_it_is_fetched_apart_from_the_same_package_of_other_suites(
    cached: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(tools, "fetch_program", lambda *words: asked.append(words))
    TOOL.fetch()
    assert asked == [("sh", "dash", ["elsewhere"], "elsewhere")]


@pytest.mark.parametrize("name", NEWER)
def test_a_mode_has_newer_programs_and_its_file_system_has_not(name: str) -> None:
    profile = NEWER[name]
    assert profile.on_request
    assert all(tool.always and tool.suites for tool in profile.tools)
    assert not any(tool.always for tool in profiles()[f"{profile.filesystem}/default"].tools)


def test_a_mode_that_lacks_them_says_so(cached: dict[str, Path]) -> None:
    assert NEWER["xfs/exchange"].lacks().startswith("mkfs.xfs (trixie) is not in the cache")


def test_a_stack_whose_guest_has_the_hosts_programs_is_refused() -> None:
    with pytest.raises(UsageError, match="takes programs of another release"):
        select_profiles(["xfs/exchange@raid1"])


def test_pins_tell_the_two_programs_of_one_name_apart(cached: dict[str, Path], tmp_path: Path) -> None:
    """Those of xfs/default were overwritten by those of xfs/exchange, or the other way round."""
    cached["trixie"] = tmp_path / "program"
    cached["trixie"].write_text("newer")
    pins = host_pins([], select_profiles(["xfs/default", "xfs/exchange"]))
    assert pins["xfs_repair of xfs"] != pins["xfs_repair (trixie) of xfs"]


def test_doctor_tells_of_them_apart(cached: dict[str, Path], tmp_path: Path) -> None:
    told = {c.what: c for c in doctor._of_file_systems()}
    assert told["xfs_repair (trixie)"].ok is None
    assert "fetched from trixie, on first use" in told["xfs_repair (trixie)"].detail
    cached["trixie"] = tmp_path / "program"
    told = {c.what: c for c in doctor._of_file_systems()}
    assert (told["xfs_repair (trixie)"].ok, told["xfs_repair (trixie)"].detail) == (
        True,
        str(tmp_path / "program"),
    )


IN_GUEST = "[first]\nprograms = ['xfs_repair:xfsprogs']\nsteps = 'xfs_repair {device}'"


@pytest.mark.parametrize("beside", [IN_GUEST, "[second]\nsize_mib = 8"])
def test_a_mode_with_programs_in_the_guest_cannot_have_them(beside: str, tmp_path: Path) -> None:
    """The guest's are the host's."""
    folder = resource("vms", "filesystems", "xfs")
    text = (folder / "exchange.toml").read_text()
    mode = tmp_path / "mode.toml"
    mode.write_text(text + "\n" + beside.replace("[second]", "[second]\nfsck_arguments = ['{second}']"))
    if "second" in beside:
        mode.write_text(
            mode.read_text().replace("mount_options = []", 'mount_options = ["logdev=/dev/second"]')
        )
    shared = msgspec.toml.decode((folder / FILE_NAME).read_bytes(), type=module._FilesystemFile)
    with pytest.raises(UsageError, match="newer is for mkfs and fsck alone"):
        module._profiles("xfs", mode, shared)


def test_steps_in_the_guest_that_need_no_program_of_the_package_may_stand_beside_them() -> None:
    [busy] = select_profiles(["xfs/exchange-busy"])
    assert busy.first is not None
    assert busy.mkfs.suites == ["trixie"]
