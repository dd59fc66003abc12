"""Variants of a kernel: built from a kept tree that is always restored. The kernel here is a C program of one
line, with a makefile that takes what Linux's takes."""

from __future__ import annotations

import contextlib
import errno
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from harness.errors import EnvironmentLacks, KernelError, UsageError
from harness.kernels import build as build_module
from harness.kernels import variants
from harness.kernels.build import Built, Flavour, ReleaseEdit, build, key_for, make_again
from harness.kernels.edits import Edit
from harness.kernels.variants import KeptTree, SourceTree, kept_tree

PROGRAM = "int main(void)\n{\n\treturn 7;\n}\n"
MAKEFILE = "linux: $(O)/linux\n$(O)/linux: fs/main.c\n\t$(CC) -o $@ $<\n"
FLAVOUR = Flavour("toy", "linux", "linux", ())
BUILT = Built("toy", "linux-source-1", "1.0", "1.0-toy", key_for("linux-source-1 1.0", FLAVOUR))


def edit(replacement: str, pattern: str = "7") -> Edit:
    return Edit("fs/main.c", "main", pattern, replacement)


@pytest.fixture
def cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(variants, "offered_version", lambda source: "")
    return cache


@pytest.fixture
def tree(cache: Path) -> Path:
    """A kept tree as the first build leaves it."""
    path = cache / "kernels" / "trees" / f"toy-linux-source-1-{key_for('linux-source-1', FLAVOUR)[:12]}"
    (path / "source" / "fs").mkdir(parents=True)
    (path / "source" / "fs" / "main.c").write_text(PROGRAM)
    (path / "source" / "Makefile").write_text(MAKEFILE)
    (path / "out").mkdir()
    (path / "built.json").write_bytes(msgspec.json.encode(BUILT))
    return path


def opened(tree: Path) -> KeptTree:
    return KeptTree(tree, FLAVOUR, 1)


def answer(image: Path) -> int:
    return subprocess.run([image], check=False).returncode


def test_each_variant_has_its_edit_and_no_other(tree: Path) -> None:
    """Make sees times only: a file restored with its old time would leave a fault in the next kernel."""
    kept = opened(tree)
    assert [answer(kept.variant([edit(str(n))])) for n in (3, 4)] == [3, 4]
    assert (tree / "source" / "fs" / "main.c").read_text() == PROGRAM
    assert not (tree / "originals").exists()


def test_a_variant_is_built_once(tree: Path) -> None:
    image = opened(tree).variant([edit("3")])
    (tree / "source" / "Makefile").write_text("no longer a makefile")
    assert opened(tree).variant([edit("3")]) == image


def test_a_variant_that_does_not_build_leaves_the_tree_as_it_was(tree: Path) -> None:
    kept = opened(tree)
    with pytest.raises(KernelError, match="failed with"):
        kept.variant([edit("no such name")])
    assert (tree / "source" / "fs" / "main.c").read_text() == PROGRAM
    assert answer(kept.variant([edit("3")])) == 3


def test_what_a_killed_build_has_left_is_undone(tree: Path) -> None:
    (tree / "originals" / "fs").mkdir(parents=True)
    (tree / "originals" / "fs" / "main.c").write_text(PROGRAM)
    (tree / "source" / "fs" / "main.c").write_text(PROGRAM.replace("7", "99"))
    assert answer(opened(tree).variant([edit("3")])) == 3
    assert (tree / "source" / "fs" / "main.c").read_text() == PROGRAM


def test_an_original_that_was_not_kept_whole_is_not_restored(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of it, as a full disk or a kill left it, replaced the source: the tree was damaged for good."""

    def half(source: object, copy: object, *_: object) -> None:
        if isinstance(copy, Path):
            copy.write_text(PROGRAM[:9])
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("copy2", "copyfileobj"):
        monkeypatch.setattr(f"shutil.{name}", half)
    with pytest.raises(OSError, match="No space left"):
        opened(tree).variant([edit("3")])
    assert (tree / "source" / "fs" / "main.c").read_text() == PROGRAM


def test_what_a_kill_left_of_an_original_is_none(tree: Path) -> None:
    (tree / "originals" / "fs").mkdir(parents=True)
    (tree / "originals" / "fs" / ".main.c.12.34.part").write_text(PROGRAM[:9])
    opened(tree)
    assert [p.name for p in (tree / "source" / "fs").iterdir()] == ["main.c"]
    assert not (tree / "originals").exists()


@pytest.mark.parametrize("name", ["fs/none.c", "../../outside.c", "/etc/passwd", "fs"])
def test_a_file_that_is_not_in_the_source_is_refused(tree: Path, name: str) -> None:
    (tree.parent / "outside.c").write_text(PROGRAM)
    with pytest.raises(UsageError, match=r"linux-source-1 1\.0 has no file"):
        opened(tree).edited([Edit(name, "main", "7", "3")])


def test_another_source_or_another_edit_has_another_key(tree: Path) -> None:
    before = opened(tree)
    assert before.key([edit("3")]) != before.key([edit("4")])
    newer = msgspec.structs.replace(BUILT, key="of another source")
    (tree / "built.json").write_bytes(msgspec.json.encode(newer))
    assert opened(tree).key([edit("3")]) != before.key([edit("3")])


def test_a_tree_that_is_there_is_taken_without_a_download(tree: Path) -> None:
    with kept_tree("linux-source-1", "toy", FLAVOUR, 1, pytest.fail) as kept:
        assert kept.built == BUILT


def test_a_kernel_to_judge_with_is_not_built_a_second_time(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tree's unmodified kernel is the same one, whatever a variant left in its build folder."""
    (tree / "image").write_text("unmodified")
    (tree / "out" / "linux").write_text("of a variant")
    (tree / "out" / ".config").write_text("CONFIG_FS=y\n")
    source = contextlib.nullcontext(
        (tmp_path, BUILT.source_version, f"{BUILT.source} {BUILT.source_version}")
    )
    monkeypatch.setattr(build_module, "source_tree", lambda *_: source)
    monkeypatch.setattr(build_module, "need_tools", lambda flavour: None)
    monkeypatch.setattr(build_module, "make_kernel", lambda *_: pytest.fail("built again"))
    said: list[str] = []
    for told in ("built already, with its tree", "built already: "):
        image, built = build(BUILT.source, "toy", FLAVOUR, 1, tmp_path / "log", said.append)
        assert (image.read_text(), built) == ("unmodified", BUILT)
        assert (image.parent / "config").read_text() == "CONFIG_FS=y\n"
        assert said[-1].startswith(told)
    newer = msgspec.structs.replace(FLAVOUR, edits=(ReleaseEdit("fs/main.c", "main", "7", "3"),))
    with pytest.raises(pytest.fail.Exception, match="built again"):
        build(BUILT.source, "toy", newer, 1, tmp_path / "log", said.append)


def test_the_first_use_unpacks_and_builds_what_later_ones_take(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted before it is complete, it begins anew; and so it does without its description, which a
    crash of the host left empty: no variant could be made any more.
    """

    @contextlib.contextmanager
    def unpacked(
        source: str, flavour: Flavour, scratch: Path, say: object
    ) -> Iterator[tuple[Path, str, str]]:
        (scratch / "tree" / "fs").mkdir(parents=True)
        (scratch / "tree" / "fs" / "main.c").write_text(PROGRAM)
        (scratch / "tree" / "Makefile").write_text(MAKEFILE)
        yield scratch / "tree", "1.0", f"{source} 1.0"

    def make(tree: Path, out: Path, flavour: Flavour, jobs: int, log: Path) -> None:
        if builds.pop():
            raise KeyboardInterrupt
        make_again(tree, out, flavour, jobs, log)
        (out / "include" / "config").mkdir(parents=True)
        (out / "include" / "config" / "kernel.release").write_text("1.0-toy\n")

    builds = [False, False, True]
    monkeypatch.setattr(variants, "source_tree", unpacked)
    monkeypatch.setattr(variants, "make_kernel", make)
    with pytest.raises(KeyboardInterrupt), kept_tree("linux-source-1", "toy", FLAVOUR, 1, print):
        pytest.fail("it was not built")
    for _ in range(2):
        with kept_tree("linux-source-1", "toy", FLAVOUR, 1, print) as kept:
            assert kept.built == BUILT
            assert (answer(kept.image), answer(kept.variant([edit("3")]))) == (7, 3)
    assert builds == [False]
    (kept.path / "built.json").write_bytes(b"")
    (kept.path / "unpacking-killed").mkdir()
    with kept_tree("linux-source-1", "toy", FLAVOUR, 1, print) as kept:
        assert kept.built == BUILT
    assert not list(kept.path.glob("unpacking-*")), "what a kill left is gone"
    assert builds == []


@pytest.mark.parametrize("had", [True, False])
def test_a_tree_is_made_anew_once_apt_has_another_version(
    tree: Path, monkeypatch: pytest.MonkeyPatch, *, had: bool
) -> None:
    """It stayed at the version that it was made of, and `kernel build --coverage`, which was to make another
    one, did so as well.
    """

    @contextlib.contextmanager
    def unpacked(
        source: str, flavour: Flavour, scratch: Path, say: object
    ) -> Iterator[tuple[Path, str, str]]:
        if not had:
            raise EnvironmentLacks("apt-get download failed")
        (scratch / "tree").mkdir()
        (scratch / "tree/main.c").write_text(PROGRAM)
        yield scratch / "tree", "1.1", f"{source} 1.1"

    def make(tree: Path, out: Path, *_: object) -> None:
        (out / "include/config").mkdir(parents=True)
        (out / "include/config/kernel.release").write_text("1.1-toy\n")
        subprocess.run(["cc", "-o", out / "linux", tree / "main.c"], check=True)

    monkeypatch.setattr(variants, "offered_version", lambda source: "1.1")
    monkeypatch.setattr(variants, "source_tree", unpacked)
    monkeypatch.setattr(variants, "make_kernel", make)
    said: list[str] = []
    for _ in range(2):
        with kept_tree("linux-source-1", "toy", FLAVOUR, 1, said.append) as kept:
            assert kept.built.source_version == ("1.1" if had else "1.0")
            assert (kept.path / "source/main.c").exists() is had
            assert (kept.path / "source/fs/main.c").exists() is not had
    moved = "the kept tree is of linux-source-1 1.0, and apt has 1.1: it is made anew"
    assert said.count(moved) == (1 if had else 2)
    assert had or said[-1] == "the kept tree stays as it is: apt-get download failed"


def test_a_newer_source_that_does_not_fit_leaves_the_tree(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: SourceTree) -> None:
        raise UsageError("a planted fault does not fit")

    @contextlib.contextmanager
    def unpacked(
        source: str, flavour: Flavour, scratch: Path, say: object
    ) -> Iterator[tuple[Path, str, str]]:
        (scratch / "tree").mkdir()
        yield scratch / "tree", "1.1", f"{source} 1.1"

    monkeypatch.setattr(variants, "offered_version", lambda source: "1.1")
    monkeypatch.setattr(variants, "source_tree", unpacked)
    with (
        pytest.raises(UsageError, match="does not fit"),
        kept_tree("linux-source-1", "toy", FLAVOUR, 1, print, refuse),
    ):
        pytest.fail("it was taken")
    assert opened(tree).built == BUILT


def test_the_source_is_looked_at_before_anything_is_built(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That a planted fault does not fit was told once the kernel had been built, after 18 minutes."""

    @contextlib.contextmanager
    def unpacked(
        source: str, flavour: Flavour, scratch: Path, say: object
    ) -> Iterator[tuple[Path, str, str]]:
        (scratch / "tree" / "fs").mkdir(parents=True)
        (scratch / "tree" / "fs" / "main.c").write_text(PROGRAM)
        yield scratch / "tree", "1.0", f"{source} 1.0"

    monkeypatch.setattr(variants, "source_tree", unpacked)
    monkeypatch.setattr(variants, "make_kernel", lambda *_: pytest.fail("built"))

    def fits(source: SourceTree) -> None:
        assert source.edited([edit("3")])["fs/main.c"] == PROGRAM.replace("7", "3")
        source.edited([Edit("fs/none.c", "main", "7", "3")])

    with (
        pytest.raises(UsageError, match=r"linux-source-1 1\.0 has no file fs/none\.c"),
        kept_tree("linux-source-1", "toy", FLAVOUR, 1, print, fits),
    ):
        pytest.fail("it was taken")


def test_a_users_own_tree_is_never_edited(cache: Path) -> None:
    with (
        pytest.raises(UsageError, match="name a source package"),
        kept_tree("/home/me/linux", "toy", FLAVOUR, 1, print),
    ):
        pytest.fail("it was taken")
