"""Names and paths of the user's own: which one is meant, and how commands that are printed write them."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.cli import fetch
from harness.cli.kernel import _next
from harness.errors import ExitCode
from harness.filesystems.profile import Profile
from harness.tests.cli.runner import powercut, printed
from harness.tests.needs import need_program
from harness.workloads.load import absolute_word, workload_sets


@pytest.mark.parametrize(
    "name", ["all", "quick", "more", "ace1", "quick.s1", "append-fsync", workload_sets()["more"][0]]
)
def test_a_file_here_does_not_take_the_name_of_what_is_installed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file called `all` broke `powercut run`, which was told that it is no workload."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / name.removesuffix(".s1")).touch()
    assert absolute_word(name) == name
    assert absolute_word(f"./{name}") == str(tmp_path / name)


def test_the_kernel_tree_that_one_stands_in_is_no_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`powercut kernel build .` went on with: powercut run --kernel debian-."""
    (tmp_path / "linux").mkdir()
    for here, tree in ((tmp_path / "linux", "."), (tmp_path, "linux")):
        monkeypatch.chdir(here)
        assert _next(tree, "uml", Path("/c/linux")).startswith(
            "powercut run --machine uml --kernel /c/linux "
        )


def test_fetch_fails_where_a_program_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It said so, and exited with 0; its help promises 3."""
    found = SimpleNamespace(name="debian-6.12.1", image="/k")
    monkeypatch.setattr(fetch, "find_chosen", lambda _: found)
    monkeypatch.setattr(Profile, "fetch_tools", lambda _: None)
    monkeypatch.setattr(Profile, "lacks", lambda _: "mkfs.ext4 is not installed")
    done = powercut("fetch", "-c", "ext4/ordered,xfs/default")
    assert done.exit_code == ExitCode.UNDECIDED
    assert done.output.count("mkfs.ext4 is not installed") == 2, "of each mode, once"
    monkeypatch.setattr(Profile, "lacks", lambda _: "")
    assert "ext4/ordered: its tools are here" in printed("fetch", "-c", "ext4/ordered")


@pytest.mark.parametrize("folder", ["my tests", "it's", "-x", "$HOME"])
@pytest.mark.parametrize("kind", ["shell", "operations"])
def test_what_new_proposes_can_be_pasted(
    folder: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path with a blank was two words, and one with a hyphen in front an option."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / folder).mkdir()
    told = printed("new", "--kind", kind, "--", f"{folder}/mine").splitlines()
    proposed = [line.partition(":")[2] for line in told if ":  " in line]
    assert len(proposed) >= 2
    for line in proposed:
        *_, place = shlex.split(line)
        assert not place.startswith("-")
        assert Path(place).resolve().parent == tmp_path / folder
        assert Path(place).exists()


@pytest.mark.parametrize("name", ["my tests/w.toml", "-x/w.toml", "w.toml"])
def test_what_import_proposes_can_be_pasted(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above; and `-w w.toml` is looked for among the names that there are."""
    need_program("strace")
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    done = powercut("import", f"--output={name}", "--", "sh", "-c", "echo >f")
    assert done.exit_code == 0, done.output
    (line,) = (n for n in done.output.splitlines() if n.startswith("next: "))
    *_, place = shlex.split(line)
    assert "/" in place
    assert not place.startswith("-")
    assert Path(place).resolve() == tmp_path / name
