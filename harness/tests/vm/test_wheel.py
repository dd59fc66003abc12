"""The wheel, installed where there is neither the checkout nor Rust."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from harness.tests.needs import need_program

CHECKOUT = Path(__file__).resolve().parents[3]
PARTS = {"powercut-agent", "powercut-disk", "libpowercut_readtrace.so", "libpowercut_umlshim.so"}


def done(*line: str | Path, cwd: Path, path: str = os.environ.get("PATH", "")) -> str:
    """What a program printed. It must end with 0."""
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith("POWERCUT_") or k == "POWERCUT_CACHE"
    }
    ended = subprocess.run(
        line,
        cwd=cwd,
        env=environment | {"PATH": path},
        timeout=600,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make wheel` builds it."""
    folder = tmp_path_factory.mktemp("wheel")
    done(
        *(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"),
        *("--wheel-dir", folder, CHECKOUT),
        cwd=CHECKOUT,
    )
    (built,) = folder.glob("powercut-*.whl")
    return built


def test_it_carries_the_rust_parts_and_the_data_and_no_tests(wheel: Path) -> None:
    """It used to be for any platform, with the tests and without a program."""
    assert re.search(r"-py3-none-manylinux_2_\d\d_x86_64\.whl$", wheel.name), wheel.name
    with zipfile.ZipFile(wheel) as archive:
        held = archive.namelist()
    assert {Path(n).name for n in held if n.startswith("harness/_data/parts/")} == PARTS
    assert "harness/_data/workloads/quick.set" in held
    assert "harness/_data/workloads/applications.txt" in held, "what counts as the user's own"
    new = {path.name for path in (CHECKOUT / "workloads/new").iterdir()}
    assert new == {Path(n).name for n in held if n.startswith("harness/_data/workloads/new/")}
    assert "harness/_data/vms/filesystems/complaints.toml" in held
    assert not [n for n in held if n.startswith("harness/tests/")]


@pytest.mark.vm
def test_it_finds_its_verdict_without_the_checkout_and_without_rust(wheel: Path, tmp_path: Path) -> None:
    need_program("qemu-system-x86_64")
    venv = tmp_path / "venv"
    done(sys.executable, "-m", "venv", venv, cwd=tmp_path)
    done(venv / "bin" / "pip", "install", "-q", "--disable-pip-version-check", wheel, cwd=tmp_path)
    powercut, system = venv / "bin" / "powercut", "/usr/sbin:/usr/bin:/sbin:/bin"
    where = done(venv / "bin" / "python", "-c", "import harness; print(harness.__file__)", cwd=tmp_path)
    assert str(venv) in where
    said = done(powercut, "smoke", cwd=tmp_path, path=system)
    assert re.search(r"ext4: ext4/ordered kept every promise at every one of \d+ crash states", said), said
    assert (tmp_path / "reports" / "latest" / "report.html").is_file()
