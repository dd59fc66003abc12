"""powercut doctor: what every run needs, and what only some modes and workloads need."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness import doctor
from harness.cli import doctor as command
from harness.errors import EnvironmentLacks, ExitCode
from harness.guests import kvm
from harness.host.cache import cache_dir
from harness.model import Workload
from harness.tests.cli.runner import powercut


def found(tmp_path: Path) -> dict[str, doctor.HostCheck]:
    return {f.what: f for f in doctor.examine(tmp_path)}


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with none of the programs of file systems."""
    monkeypatch.setattr(shutil, "which", lambda name, **_: None)
    monkeypatch.setenv("PATH", os.defpath)


@pytest.mark.usefixtures("without")
def test_what_the_default_mode_needs_is_missing(tmp_path: Path) -> None:
    seen = found(tmp_path)
    for program in ("mkfs.ext4", "e2fsck"):
        assert seen[program].ok is False
        assert seen[program].fix == "apt-get install e2fsprogs"


@pytest.mark.usefixtures("without")
def test_what_some_modes_need_is_a_note_that_names_them(tmp_path: Path) -> None:
    """Not every release has every program: doctor could never be content there."""
    seen = found(tmp_path)
    for program, of in (("mkfs.jfs", "jfs/default"), ("git", "git-commit-all")):
        assert seen[program].ok is None
        assert of in seen[program].detail
        assert "apt-get install" in seen[program].detail


@pytest.mark.usefixtures("without")
def test_a_program_of_another_release_is_a_note_that_says_when_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """apt-get install bcachefs-tools, it said: no release of Debian has that package."""
    monkeypatch.setenv("POWERCUT_CACHE", str(tmp_path))
    seen = found(tmp_path)["bcachefs"]
    assert (seen.ok, seen.fix) == (None, "")
    assert seen.detail == (
        "not installed; for bcachefs/default fetched from trixie and experimental, on first use"
    )


@pytest.mark.parametrize("name", ["d" * 150, "a b", "a:b"])
def test_a_folder_of_temporary_files_that_no_guest_can_use_is_told(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every case of a run was UNKNOWN, and doctor was content."""
    assert found(tmp_path)["temporary folder"].ok
    monkeypatch.setattr(tempfile, "tempdir", f"/{name}")
    seen = found(tmp_path)["temporary folder"]
    assert (seen.ok, "TMPDIR" in seen.fix) == (False, True)


def test_files_that_applications_bring_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only programs were: without its library an application was not run, and doctor was content."""
    brings = Workload(
        "my-db", "mine", (), host_files=("/no/such/*.so:mine", "/no/such/table:mine", "/etc/passwd")
    )
    monkeypatch.setattr(doctor, "select_workloads", lambda names: [brings] if "applications" in names else [])
    seen = found(tmp_path)
    assert (seen["/no/such/*.so"].ok, seen["/no/such/*.so"].package) == (None, "mine")
    assert seen["/no/such/*.so"].detail == "not here; for my-db: apt-get install mine"
    assert "/no/such/table" not in seen  # the same package
    assert seen["/etc/passwd"].ok is True


def test_a_kernel_for_native_speed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without one passed as complete, though the first lesson asks for one."""
    monkeypatch.setattr(doctor, "built_kernels", list)
    assert found(tmp_path)["built kernels"].ok is None
    assert "powercut kernel build" in found(tmp_path)["built kernels"].detail
    uml = SimpleNamespace(machine="uml", release="6.12.117")
    monkeypatch.setattr(doctor, "built_kernels", lambda: [(tmp_path, uml), (tmp_path, uml)])
    assert found(tmp_path)["built kernels"].detail == "UML 6.12.117"


def test_no_program_is_told_twice(tmp_path: Path) -> None:
    names = [f.what for f in doctor.examine(tmp_path)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("variable", "what"),
    [
        ("POWERCUT_AGENT", "agent"),
        ("POWERCUT_DISK", "disk process"),
        ("POWERCUT_READTRACE", "fsck's reads"),
        ("POWERCUT_UMLSHIM", "UML's library"),
    ],
)
def test_every_built_part_that_a_run_needs_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, what: str
) -> None:
    """Without readtrace or umlshim doctor was content, and no state could be judged."""
    monkeypatch.setenv(variable, str(tmp_path / "gone"))
    finding = found(tmp_path)[what]
    assert finding.ok is False
    assert str(tmp_path / "gone") in finding.detail
    assert finding.fix


def test_an_accelerator_that_does_not_work_is_told_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kvm, "lacks", lambda: "/dev/kvm opens, but is no working KVM")
    finding = found(tmp_path)["KVM"]
    assert (finding.ok, finding.fix) == (None, "")
    assert "no working KVM: guests run under TCG" in finding.detail


@pytest.mark.parametrize(
    ("known", "says"),
    [
        (None, "whether a kernel comes up is tried on the first run"),
        ("", "opens and makes a virtual machine, and a kernel came up under it"),
        ("no answer", "a kernel does not come up under it (no answer): guests run under TCG"),
    ],
)
def test_what_came_of_kvm_before_is_told_in_words(
    known: str | None, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It showed the file in which that is kept, braces and all."""
    monkeypatch.setattr(kvm, "lacks", lambda: "")
    monkeypatch.setattr(doctor, "known_of", lambda _: known)
    assert says in found(tmp_path)["KVM"].detail


# --- --fix -----------------------------------------------------------------------------------

LACKS = (
    doctor.HostCheck("qemu", False, "not installed", "apt-get install qemu-system-x86", "qemu-system-x86"),
    doctor.HostCheck("mkfs.jfs", None, "for jfs/default", "apt-get install jfsutils", "jfsutils"),
    doctor.HostCheck("space", False, "1 MiB free", "free some space"),
    doctor.HostCheck("fsck", True, "/sbin/fsck", "", "e2fsprogs"),
)


def test_only_what_is_missing_is_installed() -> None:
    assert doctor.packages(LACKS, optional=False) == ["qemu-system-x86"]
    assert doctor.packages(LACKS, optional=True) == ["jfsutils", "qemu-system-x86"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('ID=debian\nVERSION_ID="12"\n', "debian"),
        ("ID=ubuntu\nID_LIKE=debian\n", "debian"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "fedora"),
        ("ID=manjaro\nID_LIKE=arch\n", "arch"),
        ("ID=alpine\n", ""),
        ("", ""),
    ],
)
def test_distributions_are_known_by_os_release(text: str, name: str) -> None:
    assert doctor.distribution(text) == name


def test_fix_asks_before_it_installs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    def start(line: list[str], check: bool) -> SimpleNamespace:
        started.append(line)
        return SimpleNamespace(returncode=0)

    release = tmp_path / "os-release"
    release.write_text("ID=debian\n")
    monkeypatch.setattr(command, "OS_RELEASE", release)
    monkeypatch.setattr(doctor, "examine", lambda _: iter(LACKS))
    monkeypatch.setattr(subprocess, "run", start)
    asked = powercut("doctor", "--fix", "--out", tmp_path)
    assert (asked.exit_code, started) == (2, [])
    assert "add --yes" in asked.stderr
    assert powercut("doctor", "--fix", "--yes", "--out", tmp_path).exit_code == 3  # the fake installs nothing
    assert started[0][-1] == "qemu-system-x86"
    release.write_text("ID=fedora\n")
    told = powercut("doctor", "--fix", "--yes", "--out", tmp_path)
    assert "dnf install qemu-system-x86-core" in told.stderr
    assert len(started) == 1


def test_without_a_place_for_the_cache_doctor_lives_and_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's user without a home directory: it died, and named itself as the next step."""
    for name in ("POWERCUT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    done = powercut("doctor", "--out", tmp_path)
    assert done.exit_code == ExitCode.UNDECIDED
    said = " ".join(done.stdout.split())
    assert "missing cache: no directory for the cache: Could not determine home directory." in said
    assert "export POWERCUT_CACHE=DIR" in said
    assert "e2fsck" in said
    assert f"space at {tmp_path}" in said


@pytest.mark.parametrize("name", ["building.lock", ""])
def test_a_cache_that_this_user_may_not_write_to_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """After one command of root's, runs said `building.lock: Permission denied`, and doctor was content."""
    monkeypatch.setenv("POWERCUT_CACHE", str(tmp_path / "cache"))
    of_root = cache_dir("kernels") / name
    assert "cache" not in found(tmp_path)
    of_root.mkdir(exist_ok=True)
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != of_root and access(path, mode))
    seen = found(tmp_path)["cache"]
    assert seen.ok is None
    assert seen.detail.startswith(f"{of_root} cannot be written to, so nothing can be downloaded or built: ")
    assert f"chown -R {getpass.getuser()} {tmp_path / 'cache'}" in seen.detail


def test_a_home_that_is_not_writable_is_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("POWERCUT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(EnvironmentLacks, match="no directory for the cache"):
        cache_dir()
