"""The guest's own programs, run here: they need nothing but Python."""

from __future__ import annotations

import errno
import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.measure.guest import small_files
from harness.measure.rig import SCRIPTS


def run(name: str, **given: object) -> dict[str, object]:
    """What the program prints, in a process of its own, as in the guest."""
    line = [sys.executable, "-I", str(SCRIPTS / f"{name}.py"), json.dumps(given)]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


def test_small_files_goes_through_its_phases(tmp_path: Path) -> None:
    answer = run("small_files", root=str(tmp_path), median_bytes=1000, files=120, seed=3)
    phases = ("create", "copy", "symlink", "read", "stat", "rename", "delete")
    assert [k for k in answer if k.endswith("_s")] == [f"{p}_s" for p in phases]
    assert all(float(str(answer[f"{p}_s"])) > 0 for p in phases)
    assert not [p for p in tmp_path.rglob("*") if not p.is_dir()]  # everything was deleted


def test_many_entries_reads_the_clock_at_each_point(tmp_path: Path) -> None:
    answer = run("many_entries", root=str(tmp_path), points=[5, 10, 20, 40])
    for seconds in answer.values():
        assert isinstance(seconds, list)
        assert len(seconds) == 4
        assert seconds == sorted(seconds)
    assert len(list((tmp_path / "backup").iterdir())) == 40
    assert all(p.stat().st_nlink == 2 for p in (tmp_path / "files").iterdir())


def test_read_while_writing_ends_its_writer(tmp_path: Path) -> None:
    (tmp_path / "read").write_bytes(bytes(1 << 20))
    answer = run(
        "read_while_writing",
        writer=str(tmp_path / "written"),
        writer_bytes=1 << 20,
        readers={"same": str(tmp_path / "read")},
        settle_s=0.05,
        reads=2,
    )
    assert {"same_idle_s", "same_busy_s", "written_bytes_a_second"} == answer.keys()
    assert (tmp_path / "written").exists()
    (tmp_path / "written").unlink()
    assert not (tmp_path / "written").exists()  # nobody makes it again


@given(st.sampled_from([100, 1000, 10_000]), st.integers(0, 99))
def test_sizes_lie_about_their_median(median: int, seed: int) -> None:
    sizes = small_files.sizes(median, 600, seed)
    assert sizes == small_files.sizes(median, 600, seed)
    assert max(sizes) <= small_files.LARGEST * median
    below = sum(size < median for size in sizes)
    assert 200 < below < 400


def fake_disk(monkeypatch: pytest.MonkeyPatch, blocks: list[int] | None, extents: int = 0) -> None:
    """`blocks`: what FIBMAP says; None: FIEMAP says `extents`."""

    def ioctl(_: int, request: int, argument: bytes) -> bytes:
        if request == small_files.FS_IOC_FIEMAP:
            if blocks is not None:
                raise OSError(errno.EOPNOTSUPP, "not supported")
            return struct.pack("=QQIIII", 0, 0, 0, extents, 0, 0)
        if request == small_files.FIGETBSZ:
            return struct.pack("=I", 4096)
        assert blocks is not None
        return struct.pack("=I", blocks[struct.unpack("=I", argument)[0]])

    monkeypatch.setattr("harness.measure.guest.small_files.fcntl.ioctl", ioctl)


@pytest.mark.parametrize(
    ("blocks", "stretches"), [([7], 1), ([7, 8, 9], 1), ([7, 9, 10], 2), ([9, 8, 7], 3), ([0, 1], 1)]
)
def test_fragments_by_fibmap(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, blocks: list[int], stretches: int
) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(4096 * len(blocks) - 1))
    fake_disk(monkeypatch, blocks)
    assert small_files.fragments(str(path)) == stretches


def test_fragments_by_fiemap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x")
    fake_disk(monkeypatch, None, extents=3)
    assert small_files.fragments(str(path)) == 3
    (tmp_path / "empty").touch()
    assert small_files.fragments_a_file([str(path), str(tmp_path / "empty")]) == 3
