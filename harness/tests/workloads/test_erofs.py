"""The check of the workload `erofs`, on images as power cuts leave them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from harness.filesystems.tools import Tool
from harness.host.resources import resource
from harness.tests.workloads.checks import said_by_check


def packed(folder: Path, version: int, data: bytes) -> Path:
    """An image as the workload makes it."""
    tree = folder / "tree"
    (tree / "etc").mkdir(parents=True)
    (tree / "etc" / "version").write_text(f"{version}\n")
    (tree / "data").write_bytes(data)
    mkfs = Tool("mkfs.erofs", "erofs-utils").path()
    subprocess.run([mkfs, "--quiet", str(folder / "image"), str(tree)], check=True)
    return folder / "image"


def check(folder: Path, told: str) -> str:
    """What it says; empty if it is content."""
    return said_by_check("erofs", folder, told)


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ("", ""),
        ("1\n", ""),
        ("1\n2\n", ""),
        ("1\n2\n3\n", "image 3 was acknowledged, and the one there is 2"),
    ],
)
def test_an_image_may_be_newer_than_what_was_acknowledged_and_not_older(
    told: str, says: str, tmp_path: Path
) -> None:
    packed(tmp_path, 2, b"2" * 40000)
    assert check(tmp_path, told).strip() == says


def test_an_image_is_missing_only_before_the_first_was_acknowledged(tmp_path: Path) -> None:
    assert check(tmp_path, "") == ""
    assert check(tmp_path, "1\n").strip() == "image 1 was acknowledged, and none is there"


@pytest.mark.parametrize("data", [b"1" * 40000, b"2" * 39999, b"2" * 39999 + b"\0", b"2" * 40001])
def test_other_data_in_an_image_is_told(data: bytes, tmp_path: Path) -> None:
    packed(tmp_path, 2, data)
    assert check(tmp_path, "2\n").strip() == "image 2 holds other data"


@pytest.mark.parametrize("kept_bytes", [0, 1500])
def test_an_image_that_was_not_written_is_told(kept_bytes: int, tmp_path: Path) -> None:
    image = packed(tmp_path, 2, b"2" * 40000)
    image.write_bytes(image.read_bytes()[:kept_bytes] + bytes(image.stat().st_size - kept_bytes))
    assert "the image cannot be unpacked" in check(tmp_path, "")


@pytest.mark.parametrize(
    ("losetup", "code", "says"),
    [(1, 2, "no loop device is free: it said so"), (0, 1, "the image cannot be mounted: it said so")],
)
def test_no_image_is_at_fault_where_no_loop_device_is_free(
    losetup: int, code: int, says: str, tmp_path: Path
) -> None:
    """In a guest where no mount succeeds."""
    for name, ends in {"grep": 0, "losetup": losetup, "mount": 1}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\necho it said so\nexit {ends}\n")
        (tmp_path / name).chmod(0o755)
    packed(tmp_path, 1, b"1" * 20000)
    (tmp_path / "told").write_text("1\n")
    program = resource("workloads") / "erofs/check"
    line = ["sh", str(program), str(tmp_path / "told"), "mounted"]
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (code, says)
