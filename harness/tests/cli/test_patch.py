"""`powercut patch`, before a kernel is built."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.kernels.commits import CommitTree
from harness.tests.cli.runner import refused


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-w", "no-such-workload"], "no workload 'no-such-workload'"),
        (["--config", "fragment"], "fragment, line 2: 'garbage' sets no option of a kernel"),
    ],
)
def test_what_cannot_be_used_is_refused_before_a_kernel_is_built(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-n` ended with 0, and without it the kernel was built first."""

    def build(*_: object) -> Path:
        pytest.fail("a kernel was built")

    monkeypatch.setattr(CommitTree, "kernel", build)
    monkeypatch.chdir(tmp_path)
    Path("fragment").write_text("# CONFIG_KASAN is not set\ngarbage\n")
    tree = tmp_path / "linux"
    for command in (
        ["init", "-q", str(tree)],
        *(["-C", str(tree), *_WHO, "commit", "-q", "--allow-empty", "-m", text] for text in ("one", "two")),
    ):
        subprocess.run(["git", *command], check=True)
    for more in (["-n"], []):
        assert says in refused("patch", tree, *words, *more)


_WHO = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
