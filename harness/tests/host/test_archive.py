"""Other releases' packages: which archive and keyring, and how apt is kept from the system's own state."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path

import pytest

from harness.errors import EnvironmentLacks
from harness.host import archive
from harness.host.archive import Archive, Source, machine_sources, source_of
from harness.host.cache import cache_dir
from harness.tests.cli.runner import powercut

DEB822 = """\
# Debian
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
# a comment between fields
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://off.example
Suites: bookworm
Components: main
Enabled: no

Types: deb
URIs: http://inline.example
Suites: own
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQIN
 -----END PGP PUBLIC KEY BLOCK-----
"""
LINES = """\
# deb http://old.example/debian bookworm main
deb-src http://mirror.example/debian bookworm main
deb [arch=amd64 signed-by=/etc/apt/keyrings/vendor.gpg] https://vendor.example/apt bookworm main # theirs
"""


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Source]:
    monkeypatch.setattr(archive, "_codename", lambda: "bookworm")
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text(LINES)
    (tmp_path / "sources.list.d/debian.sources").write_text(DEB822)
    return list(machine_sources(tmp_path))


def test_sources_of_both_formats_are_read(known: list[Source]) -> None:
    assert [(s.uri, s.suite) for s in known] == [
        ("https://vendor.example/apt", "bookworm"),
        ("http://mirror.example/debian", "bookworm"),
        ("http://mirror.example/debian", "bookworm-updates"),
        ("http://mirror.example/debian-security", "bookworm-security"),
        ("http://inline.example", "own"),
    ]
    assert known[0].keyring == "/etc/apt/keyrings/vendor.gpg"
    assert known[1].components == ("main", "contrib")


def test_another_suite_comes_from_debians_archive_and_not_from_a_vendors(known: list[Source]) -> None:
    """A vendor's archive may call its suite `bookworm` and its component `main`, too."""
    found = source_of("trixie-backports", known)
    assert found.uri == "http://mirror.example/debian"
    assert found.stanza("trixie-backports") == (
        "Types: deb\nURIs: http://mirror.example/debian\nSuites: trixie-backports\nComponents: main\n"
        "Targets: Packages\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    )
    assert source_of("trixie-security", known).uri == "http://mirror.example/debian-security"


def test_a_source_that_names_the_suite_comes_first(known: list[Source]) -> None:
    assert source_of("own", known).uri == "http://inline.example"
    assert "Signed-By:\n -----BEGIN PGP" in source_of("own", known).stanza("own")


def test_a_machine_without_debians_archive_is_told_what_to_add(known: list[Source]) -> None:
    with pytest.raises(EnvironmentLacks, match="trixie-backports") as caught:
        source_of("trixie-backports", known[3:])
    assert "deb URI-OF-A-FULL-MIRROR trixie-backports main" in caught.value.next_step


# --- apt itself, with an archive of files ----------------------------------------------------


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Path:
    """An archive in a folder, that this machine's sources name, with a suite `next` of one package."""
    pool, tree = tmp_path / "mirror/pool", tmp_path / "tree"
    for folder in (pool, tree / "DEBIAN"):
        folder.mkdir(parents=True)
    fields = "Package: kernel\nVersion: 1.2-3\nArchitecture: amd64\nMaintainer: a <a@b>\nDescription: a\n"
    (tree / "DEBIAN/control").write_text(fields)
    subprocess.run(
        ["dpkg-deb", "--build", "-Znone", tree, pool / "kernel_1.2-3_amd64.deb"],
        check=True,
        capture_output=True,
    )
    lists = tmp_path / "mirror/dists/next/main/binary-amd64"
    lists.mkdir(parents=True)
    size, sha256 = _described(pool / "kernel_1.2-3_amd64.deb")
    place = f"Filename: pool/kernel_1.2-3_amd64.deb\nSize: {size}\nSHA256: {sha256}\n\n"
    (lists / "Packages").write_text(fields + place)
    size, sha256 = _described(lists / "Packages")
    listed = f" {sha256} {size} main/binary-amd64/Packages\n"
    (lists.parents[1] / "Release").write_text(
        "Suite: next\nCodename: next\nArchitectures: amd64\nComponents: main\n"
        f"Date: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n{listed}"
    )
    own = Source(f"file:{tmp_path}/mirror", "bookworm", ("main",))
    monkeypatch.setattr(archive, "machine_sources", lambda: [own])
    monkeypatch.setattr(archive, "_codename", lambda: "bookworm")
    monkeypatch.setattr(Source, "stanza", _trusted)
    return tmp_path / "mirror"


def _described(path: Path) -> tuple[int, str]:
    """Size and SHA-256 of a file."""
    return path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()


def _trusted(source: Source, suite: str) -> str:
    """A source that needs no signature, if the suite is there: the tests have no key to sign with."""
    trusted = "Trusted: yes\n" if suite == "next" else ""
    return (
        f"Types: deb\nURIs: {source.uri}\nSuites: {suite}\nComponents: main\nArchitectures: amd64\n{trusted}"
    )


def test_a_suite_may_name_a_component_other_than_main() -> None:
    """hfsprogs is in non-free."""
    source = Source("http://deb.example/debian", "bookworm", ("main",))
    assert "Suites: trixie\nComponents: main\n" in source.stanza("trixie")
    assert "Suites: trixie\nComponents: non-free\n" in source.stanza("trixie/non-free")


@pytest.mark.usefixtures("mirror")
def test_packages_of_another_suite_are_found_and_downloaded(tmp_path: Path) -> None:
    there = Archive("next")
    assert not there.listed
    assert there.offered("kernel") == {"kernel"}
    assert there.offered(r"kernel=1\..*") == {"kernel=1.2-3"}
    assert there.offered(r"kernel=2\..*") == set()
    assert there.listed
    assert there.download("kernel=1.2-3", tmp_path).exists()


@pytest.mark.usefixtures("mirror")
def test_a_suite_has_not_what_is_installed_here() -> None:
    """libblkid1 was said to be in a suite that lacks it, in the installed version, and was not to be had."""
    assert Archive("next").offered("dpkg") == set()


@pytest.mark.usefixtures("mirror")
def test_apt_writes_only_below_the_cache(tmp_path: Path) -> None:
    """The lists and hooks of the system are its own: no root is needed, and nothing there changes."""
    Archive("next").refresh()
    configured = subprocess.run(
        ["apt-config", "-c", tmp_path / "cache/archive/next/apt.conf", "dump"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    kept = {line for line in configured.splitlines() if line.startswith(("Dir::State::lists", "Dir::Cache "))}
    assert kept == {
        f'Dir::State::lists "{tmp_path}/cache/archive/next/lists";',
        f'Dir::Cache "{tmp_path}/cache/archive/next/cache";',
    }
    assert not re.findall(r'APT::Update::\S*Invoke\S* "[^"].*', configured)


def test_a_suite_that_the_mirror_lacks_is_named_with_what_to_add(mirror: Path) -> None:
    with pytest.raises(EnvironmentLacks, match="has no suite forky") as caught:
        Archive("forky").offered("linux-image-.*")
    assert "deb URI-OF-A-FULL-MIRROR forky main" in caught.value.next_step
    assert str(mirror) in caught.value.what


@pytest.mark.usefixtures("mirror")
def test_a_failed_download_says_what_apt_said(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentLacks, match="absent") as caught:
        Archive("next").download("absent", tmp_path)
    assert caught.value.next_step == "run: powercut kernel update"


@pytest.mark.usefixtures("mirror")
def test_all_lists_that_are_here_are_renewed_by_that_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """It renewed those of kernels alone: an mkfs from backports whose list was old was not to be had."""
    Archive("next").refresh()
    cache_dir("archive", "next/contrib", "lists")
    (cache_dir("archive", "next/contrib") / "lists/a_Packages").touch()
    Archive("absent").version_of("kernel")  # asked, and never downloaded
    renewed: list[str] = []
    monkeypatch.setattr(Archive, "refresh", lambda of: renewed.append(of.suite))
    assert powercut("kernel", "update").exit_code == 0
    assert {"forky", "next", "next/contrib"} <= set(renewed)
    assert "absent" not in renewed


@pytest.mark.usefixtures("mirror")
def test_the_version_that_would_be_downloaded_is_told_by_the_lists() -> None:
    suite = Archive("next")
    assert suite.version_of("kernel") == "", "it downloads none"
    suite.refresh()
    assert suite.version_of("kernel") == "1.2-3"
    assert suite.version_of("absent") == ""


def test_apt_that_does_not_end_is_no_defect_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """TimeoutExpired, of a source that took longer than half an hour."""

    def endless(words: list[str], *, timeout: float, **_: object) -> None:
        raise subprocess.TimeoutExpired(words, timeout)

    monkeypatch.setenv("POWERCUT_CACHE", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", endless)
    with pytest.raises(EnvironmentLacks, match=r"apt-get download -q kernel did not end within 21,600 s"):
        Archive().download("kernel", tmp_path)


def test_what_the_machine_itself_has_needs_no_lists(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POWERCUT_CACHE", str(tmp_path))
    assert Archive().listed
    Archive().refresh()
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - names are what is compared


@pytest.mark.parametrize(
    ("said", "offline"),
    [
        ("E: Failed to fetch http://m/p  Could not resolve 'm'", True),
        ("Err:1 http://m Temporary failure resolving 'm'", True),
        ("E: Failed to fetch http://m/p  404  Not Found", False),
    ],
)
def test_without_a_network_new_lists_are_not_the_next_step(said: str, offline: bool) -> None:
    """`apt-get update` was, which needs one as well."""
    done = subprocess.CompletedProcess(["apt-get"], 100, stdout="", stderr=said)
    assert archive._is_offline(done) is offline
