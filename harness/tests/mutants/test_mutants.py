"""The runner of mutants, on a checkout of two files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.tests.mutants import trials
from harness.tests.mutants.__main__ import ROOT, main
from harness.tests.mutants.catalogue import CannotPlant, Mutant, catalogue, planted
from harness.tests.mutants.trials import Fate, Trees, try_all

CODE = "def larger(a, b):\n    return a if a > b else b\n"
TEST = "from code_of import larger\n\ndef test_larger():\n    assert larger(1, 2) == 2\n"
PART = """
tests = ["test_code.py"]

[[mutant]]
name = "smaller"
file = "code_of.py"
old = "a > b"
new = "a < b"
why = "the smaller one is returned"

[[mutant]]
name = "first-of-equals"
file = "code_of.py"
old = "a > b"
new = "a >= b"
why = "none: they are equal"
"""
MORE = """
[[mutant]]
name = "{name}"
file = "code_of.py"
old = "{old}"
new = "{new}"
why = "it says nothing"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    root.mkdir()
    (root / "code_of.py").write_text(CODE)
    (root / "test_code.py").write_text(TEST)
    (root / "part.toml").write_text(PART)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return root


def tried(checkout: Path, *more: str) -> dict[str, tuple[Fate, str]]:
    (checkout / "part.toml").write_text(PART + "".join(more))
    trees = Trees(checkout, checkout.parent / "trees", 1)
    trees.make()
    results = try_all(trees, catalogue(checkout), 1, lambda result: None)
    assert (checkout.parent / "trees" / "tree-0" / "code_of.py").read_text() == CODE
    return {r.mutant.name: (r.fate, r.by) for r in results}


def test_only_a_test_that_fails_kills_a_mutant(checkout: Path) -> None:
    """A mutant whose words are gone, or that stops every test from being found, would count as noticed."""
    found = tried(
        checkout,
        MORE.format(name="gone", old="a >> b", new="a << b"),
        MORE.format(name="twice", old="b", new="c"),
        MORE.format(name="no-python", old="a > b", new="a > > b"),
        MORE.format(name="no-import", old="def larger", new="def smaller"),
    )
    assert {name: fate for name, (fate, _) in found.items()} == {
        "smaller": Fate.KILLED,
        "first-of-equals": Fate.SURVIVED,
        "gone": Fate.STALE,
        "twice": Fate.STALE,
        "no-python": Fate.STALE,
        "no-import": Fate.BROKEN,
    }
    assert found["smaller"][1] == "test_code.py::test_larger"
    assert (checkout / "code_of.py").read_text() == CODE


def test_tests_without_an_end_notice(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "TIMEOUT_S", 10.0)
    found = tried(
        checkout, MORE.format(name="endless", old="return a", new="\\n    while True: pass\\n    return a")
    )
    assert found["endless"] == (Fate.KILLED, "the time limit of 10 s")


def run(checkout: Path, *more: str) -> int:
    trees = checkout.parent / "trees"
    given = ["--root", checkout, "--catalogue", checkout, "--directory", trees, "--jobs", "1", *more]
    return main(list(map(str, given)))


def test_exit_code_and_table_say_what_has_to_be_done(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(checkout, "--only", "smaller") == 0
    assert run(checkout) == 1
    assert "SURVIVED: first-of-equals (none: they are equal)" in capsys.readouterr().out
    assert run(checkout, "--only", "nobody") == 1


def test_tests_that_fail_without_any_mutant_kill_none(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "test_code.py").write_text(TEST.replace("== 2", "== 3"))
    assert run(checkout) == 3
    assert "test_code.py::test_larger" in capsys.readouterr().out


def test_a_tree_follows_the_checkout(checkout: Path) -> None:
    """A file that is gone from the checkout would go on being tested."""
    tree = checkout.parent / "trees" / "tree-0"
    for name in ("test_code.py", "test_other.py"):
        Trees(checkout, checkout.parent / "trees", 1).make()
        assert [path.name for path in tree.glob("test_*")] == [name]
        (checkout / name).rename(checkout / "test_other.py")


def test_tests_that_are_named_exist() -> None:
    assert not {p for m in catalogue() for p in m.tests.paths if not (ROOT / p).exists()}
    assert all(m.tests.paths or m.tests.crates for m in catalogue())


@pytest.mark.parametrize("mutant", catalogue(), ids=lambda mutant: mutant.name)
def test_the_words_of_every_mutant_are_of_today(mutant: Mutant) -> None:
    """Code was renamed, and the mutants that named it could no longer be planted: only the whole of
    `make mutants`, which takes long, said so.
    """
    try:
        planted((ROOT / mutant.file).read_text(), mutant)
    except (OSError, CannotPlant) as e:
        pytest.fail(f"{mutant.name} in {mutant.part}.toml is stale: {e}")
