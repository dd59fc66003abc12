"""Where the cache is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import harness
from harness.host.cache import _PARTED, cache_dir, entry_of
from harness.host.locks import exclusive
from harness.store.garbage import kept_cache


@pytest.mark.parametrize("variable", ["POWERCUT_CACHE", "XDG_CACHE_HOME"])
def test_a_cache_named_from_here_is_the_same_elsewhere(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """apt, which runs in another folder, did not find its configuration in it."""
    monkeypatch.delenv("POWERCUT_CACHE", raising=False)
    monkeypatch.setenv(variable, "cache")
    monkeypatch.chdir(tmp_path)
    made = cache_dir("archive")
    assert made.is_absolute()
    assert made.is_relative_to(tmp_path / "cache")


def named_folders() -> Iterator[str]:
    """The folders of the cache that our code names, by `cache_dir`."""
    top = Path(harness.__file__).parent
    for file in top.rglob("*.py"):
        if not file.is_relative_to(top / "tests") and "cache_dir(" in (text := file.read_text()):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "cache_dir" and node.args:
                    words = [a.value for a in node.args if isinstance(a, ast.Constant)]
                    if len(words) == len(node.args):
                        yield "/".join(map(str, words))


def test_each_folder_of_the_cache_has_entries_that_are_used_each_for_itself() -> None:
    """The builds of all trees of git were one entry: none was ever old while another one was used."""
    found = set(named_folders())
    assert "kernels/commits" in found
    assert found <= set(_PARTED)


def test_a_tree_that_a_killed_build_goes_on_in_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock was looked for a folder above: it was deleted under the make that a kill had left."""
    monkeypatch.setenv("POWERCUT_CACHE", str(tmp_path))
    trees = [cache_dir("kernels", "commits") / name for name in ("uml-1", "uml-2")]
    for tree in trees:
        tree.mkdir()
    with exclusive(trees[0] / "lock", "the tree", pytest.fail):
        stays = {k.path: bool(k.stays) for k in kept_cache(tmp_path)}
    assert stays == {trees[0]: True, trees[1]: False}


@pytest.mark.parametrize("linked", [True, False])
def test_a_cache_behind_a_link_is_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    """A kernel is named without links: nothing of a cache on a larger disk was held."""
    (tmp_path / "larger").mkdir()
    (tmp_path / "cache").symlink_to("larger")
    monkeypatch.setenv("POWERCUT_CACHE", str(tmp_path / "cache"))
    entry = tmp_path / "larger/kernels/built-1"
    entry.mkdir(parents=True)
    named = tmp_path / ("cache" if linked else "larger") / "kernels/built-1/image"
    assert entry_of(named) == entry
    assert cache_dir("kernels") == entry.parent
