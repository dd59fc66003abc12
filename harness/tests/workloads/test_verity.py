"""The check of the workload `verity`, on images as power cuts leave them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.filesystems.tools import Tool
from harness.tests.workloads.checks import said_by_check

BLOCK_BYTES = 4096


def hashed(folder: Path) -> str:
    """An image with its hash tree, as the workload makes them: what is acknowledged of it."""
    (folder / "image-1").write_bytes(b"1" * 10 * BLOCK_BYTES)
    program = Tool("veritysetup", "cryptsetup-bin").path()
    line = [program, "format", "--salt", "-", str(folder / "image-1"), str(folder / "tree-1")]
    said = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    (root,) = (line.split()[-1] for line in said.splitlines() if line.startswith("Root hash:"))
    return f"1 {root}\n"


def check(folder: Path, told: str) -> str:
    """What it says; empty if it is content."""
    return said_by_check("verity", folder, told)


def test_an_image_that_is_as_acknowledged_is_accepted(tmp_path: Path) -> None:
    told = hashed(tmp_path)
    assert check(tmp_path, told) == check(tmp_path, "") == ""


def test_an_image_that_was_not_acknowledged_may_be_missing(tmp_path: Path) -> None:
    assert check(tmp_path, "") == ""


@pytest.mark.parametrize("name", ["image-1", "tree-1"])
@pytest.mark.parametrize("block", [0, -1])
def test_a_block_of_the_image_or_of_its_tree_that_was_lost_is_told(
    name: str, block: int, tmp_path: Path
) -> None:
    told = hashed(tmp_path)
    data = (tmp_path / name).read_bytes()
    at = block % (len(data) // BLOCK_BYTES) * BLOCK_BYTES
    (tmp_path / name).write_bytes(data[:at] + bytes(BLOCK_BYTES) + data[at + BLOCK_BYTES :])
    assert "image 1 is not what was acknowledged" in check(tmp_path, told)
    assert check(tmp_path, "") == ""


def test_an_image_of_another_root_hash_is_told(tmp_path: Path) -> None:
    told = hashed(tmp_path)
    other = "0" if told[2] != "0" else "1"
    assert "image 1 is not what was acknowledged" in check(tmp_path, f"1 {other}{told[3:]}")
