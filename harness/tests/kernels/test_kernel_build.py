"""Which built kernel may judge: one built from the same source, with the current configuration."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.errors import EnvironmentLacks, KernelError, UsageError
from harness.guests.guest_specs import booted_kernel, spec_of
from harness.guests.machine import flavour_of, machine_of
from harness.host.archive import Archive
from harness.host.resources import resource
from harness.kernels import build as kernel_build
from harness.kernels import instrumented
from harness.kernels.build import (
    Built,
    Flavour,
    ReleaseEdit,
    built_kernels,
    key_for,
    matching_kernel,
    outdated_kernel,
)
from harness.kernels.find import Kernel
from harness.report.words import kernel_name
from harness.run import kernel_info
from harness.tests.report.demo import run_info
from harness.tests.there import there

VERSION = "6.12.117-1~deb12u1"


def kept(cache: Path, folder: str, built: Built) -> Path:
    """A built kernel in the cache."""
    (cache / folder).mkdir()
    (cache / folder / "built.json").write_bytes(msgspec.json.encode(built))
    return cache / folder / "image"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kernel_build, "cache_dir", lambda _: tmp_path)
    return tmp_path


def today(version: str, machine: str = "uml") -> Built:
    """As a build of the package with the current configuration would be kept."""
    built = Built(machine, "linux-source-6.12", version, "6.12.117", "")
    return msgspec.structs.replace(built, key=kernel_build.key_of(built, flavour_of(machine)))


def test_one_of_the_same_source_and_configuration_judges(cache: Path) -> None:
    image = kept(cache, "built-uml-1", today(VERSION))
    kept(cache, "built-qemu-1", today(VERSION, "qemu"))
    kept(cache, "built-uml-2", today("6.12.1-1"))
    assert len(built_kernels()) == 3
    assert matching_kernel("uml", flavour_of("uml"), VERSION) == image
    assert not outdated_kernel("uml", flavour_of("uml"), VERSION)
    assert matching_kernel("uml", flavour_of("uml"), "6.12.9-9") is None
    assert not outdated_kernel("uml", flavour_of("uml"), "6.12.9-9")


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[]"])
def test_one_whose_description_is_damaged_is_passed_over(
    cache: Path, monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    """A power cut of the host left it empty: each command that looks for a kernel ended in a traceback."""
    image = kept(cache, "built-uml-1", today(VERSION))
    for folder in ("built-uml-2", "built-uml-3"):
        (cache / folder).mkdir()
        (cache / folder / "built.json").write_bytes(text)
    assert built_kernels() == [(image, today(VERSION))]
    assert matching_kernel("uml", flavour_of("uml"), VERSION) == image
    monkeypatch.setattr(kernel_build, "cache_dir", lambda *_: cache)
    made = kernel_build._of_kept_tree(today(VERSION).key)
    assert made is not None, "trees are looked through the same way"
    monkeypatch.setattr(instrumented, "cache_dir", lambda *_: cache)
    assert instrumented.instrumented_kernel("uml", flavour_of("uml"), VERSION, ["fs/a.c"]) is None


def test_one_of_another_configuration_does_not_judge_and_is_told_of(cache: Path) -> None:
    kept(cache, "built-uml-1", msgspec.structs.replace(today(VERSION), key="of other fragments"))
    assert matching_kernel("uml", flavour_of("uml"), VERSION) is None
    assert outdated_kernel("uml", flavour_of("uml"), VERSION)


def test_a_machine_whose_kernel_an_update_outdated_says_so(cache: Path) -> None:
    """After an update, `try --machine uml` said that no kernel of that source was in the cache."""
    kernel = Kernel("debian-6.12", cache / "vmlinuz", cache, "", VERSION, source="linux-source-6.12")
    with pytest.raises(KernelError, match=r"no UML kernel of this kernel's source is in the cache"):
        booted_kernel("uml", kernel)
    kept(cache, "built-uml-1", msgspec.structs.replace(today(VERSION), key="of other fragments"))
    with pytest.raises(KernelError, match="is of another configuration") as refused:
        booted_kernel("uml", kernel)
    assert "powercut kernel build linux-source-6.12" in refused.value.next_step


def test_one_without_our_disk_driver_judges_until_there_is_one_with_it(cache: Path) -> None:
    """It lacks nothing but speed: no reason to judge in an emulator until somebody builds another."""
    uml = flavour_of("uml")
    plain = kernel_build.key_of(today(VERSION), msgspec.structs.replace(uml, addition=None))
    old = kept(cache, "built-uml-1", msgspec.structs.replace(today(VERSION), key=plain))
    assert matching_kernel("uml", uml, VERSION) == old
    assert not outdated_kernel("uml", uml, VERSION)
    current = kept(cache, "built-uml-2", today(VERSION))
    assert matching_kernel("uml", uml, VERSION) == current


def test_another_version_of_the_disk_driver_is_another_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uml, before = flavour_of("uml"), today(VERSION).key
    assert uml.addition is not None
    changed = tmp_path / "umldisk"
    shutil.copytree(resource("vms", "umldisk"), changed)
    (changed / "disk_kern.c").write_text("/* driver 2 */\n")
    monkeypatch.setattr(kernel_build, "added_files", lambda _: sorted(changed.iterdir()))
    assert today(VERSION).key != before


def test_files_are_added_to_a_tree_that_can_name_them_or_left_out_aloud(tmp_path: Path) -> None:
    added = there(flavour_of("uml").addition)
    said: list[str] = []
    kernel_build._add(added, tmp_path, said.append)
    assert len(said) == 1
    assert added.named_in in said[0]
    assert not list(tmp_path.iterdir())
    names = tmp_path / added.named_in
    names.parent.mkdir(parents=True)
    names.write_text("obj-y += kernel/\n")
    kernel_build._add(added, tmp_path, said.append)
    assert len(said) == 1
    assert names.read_text() == "obj-y += kernel/\nobj-y += powercut/\n"
    assert {p.name for p in (tmp_path / added.to).iterdir()} >= {"Makefile", "disk_kern.c", "disk_user.c"}


def test_a_kernel_of_no_package_has_no_match(cache: Path) -> None:
    kept(cache, "built-uml-1", today(""))
    assert matching_kernel("uml", flavour_of("uml"), "") is None
    assert not outdated_kernel("uml", flavour_of("uml"), "")


def test_a_package_without_a_kernel_source_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dpkg(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        """The package is unpacked, and has nothing in it."""
        return subprocess.CompletedProcess(command, 0, "2.10-3\n", "")

    monkeypatch.setattr(Archive, "offered", lambda *_: {"hello"})
    monkeypatch.setattr(Archive, "download", lambda *_: tmp_path / "hello.deb")
    monkeypatch.setattr(subprocess, "run", dpkg)
    with (
        pytest.raises(KernelError, match=r"the package hello 2\.10-3 holds no kernel source"),
        kernel_build.source_tree("hello", flavour_of("uml"), tmp_path, lambda _: None),
    ):
        pytest.fail("there is a tree")


def test_an_edit_for_speed_is_done_or_left_out_aloud(tmp_path: Path) -> None:
    """A source that it does not fit still gives a kernel; only judging in it takes longer."""
    tree = tmp_path / "fs"
    tree.mkdir()
    (tree / "ahead.c").write_text("int ahead(void)\n{\n\treturn 128;\n}\n")
    said: list[str] = []
    for pattern in ("128", "1024"):
        kernel_build._apply(ReleaseEdit("fs/ahead.c", "ahead", pattern, "0"), tmp_path, said.append)
    assert "return 0;" in (tree / "ahead.c").read_text()
    assert len(said) == 1
    assert "'1024'" in said[0]


def test_a_source_gets_the_edits_of_its_release_those_of_added_files_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """7.3 was built without two of the edits for 6.12, so it was slow in F2FS and refused schedules."""

    def unpack(source: str, scratch: Path, *_: object) -> str:
        for name, text in {"arch/um/Kbuild": "", "fs/x.c": "int x(void) { return 1; }\n"}.items():
            (scratch / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / "tree" / name).write_text(text)
        return f"{source}-1"

    monkeypatch.setattr(kernel_build, "unpack_source", unpack)
    added = there(flavour_of("uml").addition)
    edits = (
        ReleaseEdit("fs/x.c", "x", "1", "12", before=(7, 3)),
        ReleaseEdit("fs/x.c", "x", "1", "73", since=(7, 3)),
        ReleaseEdit(f"{added.to}/disk_kern.c", "", '"powercut_disk driver 1"', '"2"', since=(7, 3)),
    )
    flavour = Flavour("um", "linux", "linux", (), edits=edits, addition=added)
    for release, answer, driver in (("6.12", "12", '"powercut_disk driver 1"'), ("7.3", "73", '"2"')):
        said: list[str] = []
        scratch = tmp_path / release
        with kernel_build.source_tree(f"linux-source-{release}", flavour, scratch, said.append):
            assert f"return {answer};" in (scratch / "tree/fs/x.c").read_text()
            assert f"= {driver};" in (scratch / "tree" / added.to / "disk_kern.c").read_text()
        assert not said


def test_an_edit_for_another_release_makes_no_other_kernel() -> None:
    """Each of 6.12, and of its planted faults, would have been built anew for one that only 7.3 gets."""
    uml = flavour_of("uml")
    more = (*uml.edits, ReleaseEdit("fs/x.c", "x", "1", "2", since=(7, 3)))
    changed = msgspec.structs.replace(uml, edits=more)
    for release, same in (("6.12", True), ("7.2", True), ("7.3", False), ("7.10", False)):
        built = Built("uml", f"linux-source-{release}", "1", f"{release}.1", "")
        assert (kernel_build.key_of(built, changed) == kernel_build.key_of(built, uml)) is same
    assert kernel_build.release_of_package("/home/user/linux-7.3") == kernel_build.UNKNOWN
    assert key_for("a tree", changed) == key_for("a tree", uml)


@pytest.mark.parametrize(
    ("source", "release"),
    [
        ("linux-source-6.12", (6, 12)),
        ("linux-source-7.3.4", (7, 3)),
        ("linux-source-6.12-rt", (6, 12)),
        ("linux-source", kernel_build.UNKNOWN),  # it holds no source
    ],
)
def test_a_source_package_tells_its_release_by_its_name(source: str, release: kernel_build.Release) -> None:
    assert kernel_build.release_of_package(source) == release


def test_a_kernel_with_other_edits_is_another_one() -> None:
    uml = flavour_of("uml")
    assert [e.function for e in uml.edits][:2] == ["do_readahead", "xlog_ticket_alloc"]
    assert key_for("linux-source-1 1.0", uml) != key_for(
        "linux-source-1 1.0", msgspec.structs.replace(uml, edits=())
    )


def test_a_source_package_of_another_suite_comes_from_where_its_series_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Debian 12 has no linux-source-7.3: the pin of 7.3 knows the suite."""
    there = {"": "linux-source-6.12", "trixie-backports": "linux-source-7.3"}
    monkeypatch.setattr(
        Archive, "offered", lambda archive, pattern: re.findall(pattern, there.get(archive.suite, ""))
    )
    assert kernel_build._source_archive("linux-source-7.3").suite == "trixie-backports"
    assert kernel_build._source_archive("linux-source-6.12").suite == ""
    with pytest.raises(KernelError, match=r"no package linux-source-7\.2 in .*trixie-backports"):
        kernel_build._source_archive("linux-source-7.2")


@pytest.mark.parametrize("sealed", [True, False])
def test_a_kernel_of_the_cache_that_changed_on_disk_boots_nothing(cache: Path, sealed: bool) -> None:
    """Eight bytes of a cached kernel were changed on disk, and 94 states were "ok": nothing held it against
    what had been built. One that was kept without a digest is held against what it was at its first use.
    """
    image = kept(cache, "built-uml-1", today(VERSION))
    image.write_bytes(bytes(range(256)) * 16)
    if sealed:
        kernel_build.seal(image)
    kernel_build.need_as_built(image)
    with image.open("r+b") as f:
        f.seek(1024)
        f.write(b"8 bytes!")
    os.utime(image, (1, 1))  # the clock of the file system may not have moved on since
    with pytest.raises(KernelError, match="is not what was built"):
        kernel_build.need_as_built(image)


def test_a_kernel_behind_a_link_to_the_cache_is_held_against_its_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that had changed on disk was accepted by its resolved path, by which `find_kernel` names it."""
    (tmp_path / "larger").mkdir()
    (tmp_path / "cache").symlink_to("larger")
    monkeypatch.setattr(kernel_build, "cache_dir", lambda _: tmp_path / "cache")
    for named in (tmp_path / "larger/image", tmp_path / "cache/image"):
        named.write_bytes(b"a kernel")
        kernel_build.seal(named)
        named.write_bytes(b"a damaged kernel")
        with pytest.raises(KernelError, match="is not what was built"):
            kernel_build.need_as_built(named)


def test_a_kernel_of_a_cache_that_may_only_be_read_boots(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was run, where an earlier version had kept it without a digest: Permission denied."""

    def refuse(*_: object) -> None:
        raise PermissionError

    image = kept(cache, "built-uml-1", today(VERSION))
    image.write_bytes(b"a kernel")
    monkeypatch.setattr(kernel_build, "seal", refuse)
    kernel_build.need_as_built(image)


def test_a_kernel_that_is_not_of_the_cache_is_the_users_own(cache: Path, tmp_path_factory: Any) -> None:
    image = tmp_path_factory.mktemp("own") / "image"
    image.write_bytes(b"a kernel")
    kernel_build.need_as_built(image)
    assert [p.name for p in image.parent.iterdir()] == ["image"]


def test_every_guest_spec_holds_its_kernel_against_its_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So no command boots one that has changed: each makes its guests here."""
    asked: list[Path] = []

    def refuse(image: Path) -> None:
        asked.append(image)
        raise KernelError("is not what was built", "build it again")

    monkeypatch.setattr("harness.guests.guest_specs.need_as_built", refuse)
    kernel = Kernel("k", tmp_path / "image", None, "")
    with pytest.raises(KernelError, match="not what was built"):
        spec_of(machine_of("uml"), kernel, [], [], tmp_path / "initramfs")
    assert asked == [tmp_path / "image"]


def test_a_kernel_of_ones_own_is_named_by_its_tree_and_commit(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A headline named the kernel by its place in the cache, which says nothing of the tree."""
    monkeypatch.setenv("HOME", str(tmp_path))
    tree = tmp_path / "linux"
    tree.mkdir()
    (tree / "Kconfig").write_text("mainmenu\n")
    assert kernel_build._described(tree) == "~/linux"
    git = ["git", "-C", str(tree), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "c"], ["tag", "-am", "v6.12", "v6.12"]):
        subprocess.run([*git, *words], check=True)
    assert kernel_build._described(tree) == "~/linux (v6.12)"
    (tree / "Kconfig").write_text("mainmenu changed\n")
    built = Built("uml", str(tree), "", "6.12.0", "key", kernel_build._described(tree))
    image = kept(cache, "built-uml-6.12.0-key", built)
    image.write_bytes(b"")
    kernel = Kernel(str(image), image, None, "00")
    assert kernel_build.title_of(kernel) == "~/linux (v6.12-dirty)"
    info = dataclasses.replace(run_info(), kernel=kernel_info(kernel))
    assert kernel_name(info) == "~/linux (v6.12-dirty)"
    booted = dataclasses.replace(info, kernel=dataclasses.replace(info.kernel, release="6.12.0"))
    assert kernel_name(booted) == "Linux 6.12.0 of ~/linux (v6.12-dirty)"
    assert kernel_build.title_of(dataclasses.replace(kernel, image=tmp_path / "bzImage")) == str(image)


def git(tree: Path, *words: str) -> None:
    named = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "-C", str(tree), *named, *words], check=True)


def source_of_a_user(path: Path) -> Path:
    """A git tree with one commit."""
    (path / "fs").mkdir(parents=True)
    (path / "Kconfig").write_text("mainmenu\n")
    (path / ".gitignore").write_text("*.o\n")
    git(path, "init", "-q")
    git(path, "add", "-A")
    git(path, "commit", "-qm", "base")
    return path


def identities(tree: Path, file: Path) -> list[str]:
    """Of a tree before there is a file, with it, and once it has changed."""
    found = [kernel_build._identity(tree)]
    for text in ("int bug;\n", "int mended;\n"):
        file.write_text(text)
        found.append(kernel_build._identity(tree))
    return found


def test_a_new_file_makes_another_kernel(tmp_path: Path) -> None:
    """A file that was not added to git yet was mended, and the kernel from before was `built already`."""
    tree = source_of_a_user(tmp_path / "linux")
    assert len(set(identities(tree, tree / "fs/new.c"))) == 3
    assert len(set(identities(tree, tree / "fs/new.o"))) == 1, "no source"
    (tree / "fs/new.c").write_text("int other;\n")
    git(tree, "add", "-N", "fs/new.c")
    assert len(set(identities(tree, tree / "fs/new.c"))) == 3


def test_a_change_that_git_is_told_not_to_look_for_makes_another_kernel(tmp_path: Path) -> None:
    """The kernel from before it was `built already`."""
    tree = source_of_a_user(tmp_path / "linux")
    before = kernel_build._identity(tree)
    for flag in ("assume-unchanged", "skip-worktree"):
        git(tree, "update-index", f"--{flag}", "Kconfig")
        assert len({before, *identities(tree, tree / "Kconfig")}) >= 3
        git(tree, "update-index", f"--no-{flag}", "Kconfig")


@pytest.mark.parametrize("letter", [" ", ":"])
def test_a_folder_that_kbuild_would_split_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, letter: str
) -> None:
    """With a space in the cache's path, every commit of a patch "does not build"."""
    monkeypatch.setattr(kernel_build, "cache_dir", lambda _: tmp_path / f"my{letter}cache")
    with pytest.raises(EnvironmentLacks, match="make builds no kernel in a folder with") as refused:
        kernel_build.need_tools(flavour_of("uml"))
    assert refused.value.next_step == "name another cache: export POWERCUT_CACHE=DIR"
    tree = source_of_a_user(tmp_path / f"my{letter}linux")
    with (
        pytest.raises(UsageError, match="make builds no kernel of a folder with"),
        kernel_build.source_tree(str(tree), flavour_of("uml"), tmp_path, lambda _: None),
    ):
        pytest.fail("there is a tree")


def test_a_new_folder_that_git_does_not_look_into_makes_another_kernel(tmp_path: Path) -> None:
    """Of a file system in a repository of its own, or behind a link, git tells the folder alone."""
    tree = source_of_a_user(tmp_path / "linux")
    source_of_a_user(tree / "fs/nested")
    assert len(set(identities(tree, tree / "fs/nested/new.c"))) == 3
    (tmp_path / "myfs").mkdir()
    (tree / "fs/linked").symlink_to(tmp_path / "myfs")
    assert len(set(identities(tree, tmp_path / "myfs/new.c"))) == 3


def test_a_source_below_another_repository_is_not_that_repositorys(tmp_path: Path) -> None:
    """It was known by that repository's commit, which no change of the source changes."""
    outer = source_of_a_user(tmp_path / "project")
    (outer / ".gitignore").write_text("linux/\n")
    git(outer, "commit", "-qam", "ignore")
    tree = outer / "linux"
    (tree / "fs").mkdir(parents=True)
    assert len(set(identities(tree, tree / "fs/new.c"))) == 3
    assert kernel_build._described(tree) == str(tree)


def test_a_hook_does_not_change_which_tree_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git tells its hooks a repository by GIT_DIR: the kernel was known by that one's commit."""
    tree, other = source_of_a_user(tmp_path / "linux"), source_of_a_user(tmp_path / "other")
    git(other, "commit", "-qm", "two", "--allow-empty")
    before = kernel_build._identity(tree)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    assert kernel_build._identity(tree) == before


MAKEFILE = """
allnoconfig:
\t@:
olddefconfig:
\t@grep -v KASSAN $(O)/.config >$(O)/some
\t@sed -e 's/^CONFIG_XFS_FS=m/CONFIG_XFS_FS=y/' -e 's/# CONFIG_PRINTK .*/CONFIG_PRINTK=y/' \\
\t\t-e 's/=y .*/=y/' $(O)/some >$(O)/.config
"""
"""It knows no KASSAN, has no modules, and something selects PRINTK."""


@pytest.fixture
def configured(tmp_path: Path) -> Any:
    """Configures a toy tree with a fragment of the user's, and returns what the configuration then is."""
    merge = tmp_path / "linux/scripts/kconfig/merge_config.sh"
    merge.parent.mkdir(parents=True)
    merge.write_text('#!/bin/sh\nto=$3; shift 4; cat "$@" >$to/.config\n')
    merge.chmod(0o755)
    (tmp_path / "linux/Makefile").write_text(MAKEFILE)
    (tmp_path / "out").mkdir()

    def configure(*fragments: str) -> str:
        files = [tmp_path / f"{number}.config" for number in range(len(fragments))]
        for file, text in zip(files, fragments, strict=True):
            file.write_text(text)
        flavour = Flavour("toy", "linux", "linux", tuple(map(str, files)))
        kernel_build.configure(tmp_path / "linux", tmp_path / "out", flavour, tmp_path / "log")
        return (tmp_path / "out/.config").read_text()

    return configure


def test_an_option_of_ones_own_that_the_tree_does_not_take_is_named(configured: Any) -> None:
    """A misspelled KASAN was dropped without a word: the kernel was judged as one that has it."""
    with pytest.raises(KernelError, match="does not take CONFIG_KASSAN=y, CONFIG_PRINTK=n"):
        configured("CONFIG_KASSAN=y\nCONFIG_KASAN=y\n# CONFIG_PRINTK is not set\n")


def test_an_option_of_ones_own_that_the_tree_takes_is_no_complaint(configured: Any) -> None:
    taken = '# a comment\nCONFIG_KASAN=y  # all of it\nCONFIG_XFS_FS=m\nCONFIG_CMDLINE="a # b"\n'
    assert "CONFIG_KASAN=y\nCONFIG_XFS_FS=y\n" in configured(f"{taken}# CONFIG_KCSAN is not set\n")
    assert "KASAN=n" in configured("CONFIG_KASAN=y\n", "CONFIG_KASAN=n\n"), "the last one counts"


def test_a_tree_is_identified_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`git: No such file or directory`, of a tree that need not be one of git."""
    (tmp_path / "Kconfig").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    before = kernel_build._identity(tmp_path)
    assert kernel_build._described(tmp_path) == str(tmp_path)
    (tmp_path / "Makefile").write_text("")
    assert kernel_build._identity(tmp_path) != before
