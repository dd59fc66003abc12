"""Files that a series is begun with, by paths that hold in any folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli import series as cli_series
from harness.cli.series import absolute_kernels
from harness.report.lines import resume_litmus, resume_sweep
from harness.trust import need_named_files
from harness.workloads.load import absolute_word


def test_files_of_ones_own_are_named_by_their_whole_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--kernels mylinux` and `-w ./mine.toml` made a series whose `continue with:` line was refused."""
    monkeypatch.chdir(tmp_path)
    for name in ("mylinux", "mine.toml", "quick"):
        Path(name).touch()
    Path("app").mkdir()
    assert absolute_kernels(["debian-6.12", "mylinux", "./mylinux"]) == [
        "debian-6.12",
        str(tmp_path / "mylinux"),
    ]
    words = ["quick", "mine.toml", "./mine.toml.s3", "./app", "app"]
    assert list(map(absolute_word, words)) == [
        "quick",
        str(tmp_path / "mine.toml"),
        f"{tmp_path / 'mine.toml'}.s3",
        str(tmp_path / "app"),
        "app",
    ]


def test_a_kernel_that_is_named_twice_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verdict looked twice at one kernel, `debian-6.12.117 (debian-6.12)` and the same again."""
    monkeypatch.setattr(cli_series, "offered", lambda _: ("linux-image-6.12.117+deb12-amd64", None))
    assert absolute_kernels(["6.12.117", "debian-6.12.117"]) == ["6.12.117"]
    assert absolute_kernels(["6.12", "debian-6.12.117", "debian-7.3"]) == ["6.12", "debian-7.3"]
    assert absolute_kernels(["debian-6.12", "6.12.100"]) == ["debian-6.12", "6.12.100"]
    assert absolute_kernels(["nosuch", "uml-6.12"]) == ["nosuch", "uml-6.12"]


def test_a_line_that_goes_on_names_the_kernels_that_it_has_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mylinux").touch()
    kernels = absolute_kernels(["mylinux"])
    for line in (resume_litmus(kernels, "RUN"), resume_sweep("matrix", kernels, [], "", "RUN")):
        words = line.split()
        named = words[words.index("--kernels") + 1]
        need_named_files("--kernels", kernels, [named])
