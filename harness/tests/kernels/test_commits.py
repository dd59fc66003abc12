"""Kernels of commits: which commits a patch is, and what is compiled. Git and make are real; the kernel is a
C program of two files."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from harness.errors import EnvironmentLacks, KernelError, NothingToAsk, UsageError
from harness.kernels import build as build_module
from harness.kernels import commits as commits_module
from harness.kernels import git as git_module
from harness.kernels.build import Addition, BuildFails, Flavour, ReleaseEdit, make_again
from harness.kernels.commits import UNCOMMITTED, CommitRange, CommitTree, Revision, commit_tree
from harness.kernels.instrumented import Points, points_of
from harness.patches.marks import marked
from harness.patches.mistakes import hunks
from harness.patches.work import untouched_in

MAIN = "int other(void);\nint main(void)\n{\n\treturn other();\n}\n"
OTHER = "int other(void)\n{\n\treturn 7;\n}\n"
MAKEFILE = """
allnoconfig olddefconfig:
\t@touch $(O)/.config
linux: $(O)/linux
$(O)/%.o: fs/%.c
\t@echo $< >>$(O)/compiled
\t$(CC) -c -o $@ $<
$(O)/linux: $(O)/main.o $(O)/other.o
\t$(CC) -o $@ $^
"""
NOTES = '#include <stdio.h>\nvoid powercut_ran(unsigned int n) { printf("%u", n); }'
"""In place of what UML kernels have: a mark says its number."""
FLAVOUR = Flavour(
    "toy", "linux", "linux", (), edits=(ReleaseEdit("fs/main.c", "main", "other()", "other() + 100"),),
    hits=Addition("umlcoverage", "notes", "fs/main.c", NOTES),
)  # fmt: skip


def git(tree: Path, *words: str) -> str:
    named = ["-c", "user.name=A Developer", "-c", "user.email=dev@example.org"]
    done = subprocess.run(
        ["git", *named, "-C", str(tree), *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def change(tree: Path, answer: str, subject: str = "") -> str:
    """Change what the kernel answers; with a subject, commit it. The commit."""
    (tree / "fs/other.c").write_text(OTHER.replace("7", answer))
    if subject:
        git(tree, "commit", "-qam", subject)
    return git(tree, "rev-parse", "HEAD")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return a_tree(tmp_path / "linux")


def a_tree(path: Path, *options: str) -> Path:
    """`options`: of git init."""
    (path / "fs").mkdir(parents=True)
    (path / "scripts/kconfig").mkdir(parents=True)
    merge = path / "scripts/kconfig/merge_config.sh"
    merge.write_text("#!/bin/sh\n")
    merge.chmod(0o755)
    files = {"Kconfig": "", "Makefile": MAKEFILE, "fs/main.c": MAIN, "fs/other.c": OTHER}
    for name, text in files.items():
        (path / name).write_text(text)
    git(path, "init", "-q", "-b", "main", *options)
    git(path, "add", "-A")
    git(path, "commit", "-qm", "base")
    return path


@pytest.fixture
def cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(commits_module, "need_tools", lambda flavour: None)
    return cache


@pytest.fixture
def kernels(tree: Path, cache: Path) -> Iterator[CommitTree]:
    with commit_tree(tree, "toy", FLAVOUR, 1, lambda text: None) as kept:
        yield kept


def answer(image: Path) -> int:
    return subprocess.run([image], check=False).returncode


def compiled(kernels: CommitTree) -> list[str]:
    """The files that were compiled since this was asked last."""
    file = kernels.path / "out/compiled"
    found = file.read_text().split() if file.exists() else []
    file.unlink(missing_ok=True)
    return found


def snapshot(tree: Path) -> dict[str, bytes]:
    """Every file of a tree, its repository too."""
    return {str(p.relative_to(tree)): p.read_bytes() for p in sorted(tree.rglob("*")) if p.is_file()}


def test_each_commit_has_its_kernel_and_only_what_differs_is_compiled(
    tree: Path, kernels: CommitTree
) -> None:
    change(tree, "3", "three")
    change(tree, "4", "four")
    series = kernels.series("main~2..main")
    assert [c.subject for c in series.commits] == ["three", "four"]
    assert series.changed == ("fs/other.c",)
    assert answer(kernels.kernel(series.head)) == 104
    assert compiled(kernels) == ["fs/main.c", "fs/other.c"]
    assert answer(kernels.kernel(series.base)) == 107
    assert compiled(kernels) == ["fs/other.c"]
    assert answer(kernels.kernel(series.commits[0])) == 103
    assert answer(kernels.kernel(series.head)) == 104  # from the cache
    assert compiled(kernels) == ["fs/other.c"]


def test_what_is_not_committed_is_the_last_commit(tree: Path, kernels: CommitTree) -> None:
    base = change(tree, "7")
    change(tree, "5")
    series = kernels.series()
    assert (series.base.id, [c.subject for c in series.commits]) == (base, [UNCOMMITTED])
    assert answer(kernels.kernel(series.head)) == 105


def test_the_users_tree_is_not_written(tree: Path, kernels: CommitTree) -> None:
    """Its index, objects and work tree: somebody works there at the same time."""
    change(tree, "3", "three")
    change(tree, "5")
    os.utime(tree / "fs/main.c", (1, 1))  # `git status` would write the index for this
    before = snapshot(tree)
    series = kernels.series(base="HEAD~1")
    assert [c.subject for c in series.commits] == ["three", UNCOMMITTED]
    for commit in series.commits:
        kernels.kernel(commit)
    assert snapshot(tree) == before


def test_a_file_that_was_only_touched_is_no_change(tree: Path, kernels: CommitTree) -> None:
    """Git's index then differs in the time alone."""
    change(tree, "3", "three")
    os.utime(tree / "fs/main.c", (1, 1))
    assert [c.subject for c in kernels.series().commits] == ["three"]


def test_a_branch_begins_where_it_left_its_upstream(tree: Path, kernels: CommitTree) -> None:
    base = git(tree, "rev-parse", "HEAD")
    git(tree, "checkout", "-qb", "topic", "--track", "main")
    change(tree, "3", "three")
    change(tree, "4", "four")
    series = kernels.series()
    assert (series.base.id, [c.subject for c in series.commits]) == (base, ["three", "four"])


def test_patches_of_a_mailbox_are_applied_to_the_base(
    tree: Path, kernels: CommitTree, tmp_path: Path
) -> None:
    git(tree, "checkout", "-qb", "theirs")
    change(tree, "3", "three")
    change(tree, "4", "four")
    mbox = tmp_path / "series.mbox"
    mbox.write_text(git(tree, "format-patch", "--stdout", "main..theirs") + "\n")
    git(tree, "checkout", "-q", "main")
    before = snapshot(tree)
    series = kernels.series(mbox=mbox)
    assert [c.subject for c in series.commits] == ["three", "four"]
    assert answer(kernels.kernel(series.head)) == 104
    assert snapshot(tree) == before


@pytest.mark.parametrize("packed", [False, True])
def test_mails_without_a_patch_are_passed_over(
    tree: Path, kernels: CommitTree, tmp_path: Path, *, packed: bool
) -> None:
    """A series with its cover letter, as mailing lists have it: `git am: exit code 128`."""
    change(tree, "3", "three")
    letter = "From 0 Mon Sep 17 00:00:00 2001\nFrom: a <a@b.c>\nSubject: [PATCH 0/1] all of it\n\nHello\n\n"
    mails = (letter + git(tree, "format-patch", "--stdout", "HEAD~1..HEAD") + "\n").encode()
    mbox = tmp_path / "series.mbox"
    mbox.write_bytes(gzip.compress(mails) if packed else mails)
    assert [c.subject for c in kernels.series(base="HEAD~1", mbox=mbox).commits] == ["three"]
    mbox.write_text(letter)
    with pytest.raises(UsageError, match="holds no patch"):
        kernels.series(base="HEAD~1", mbox=mbox)
    mbox.write_bytes(b"\x1f\x8bno gzip")
    with pytest.raises(UsageError, match="cannot be read"):
        kernels.series(base="HEAD~1", mbox=mbox)


def test_an_answer_in_a_thread_is_no_part_of_its_series(tree: Path, cache: Path, tmp_path: Path) -> None:
    """The diff that a reviewer would rather have was applied as one more commit of the author's."""
    change(tree, "3", "three")
    mails = git(tree, "format-patch", "--stdout", "HEAD~1..HEAD") + "\n"
    (tree / "fs/main.c").write_text(MAIN.replace("other();", "other() + 1;"))
    rather = git(tree, "diff")
    began = "From 0 Mon Sep 17 00:00:00 2001\nFrom: a <a@b.c>\nDate: Mon, 1 Jan 2024 00:00:00 +0000\n"
    answers = [
        f"{began}Subject: {word} [PATCH] three\n\n> -\treturn 7;\n\nI would rather have\n\n{text}\n\n"
        for word, text in (("Re:", rather), ("AW:", rather), ("=?utf-8?q?Re=3A?=", ""))
    ]
    mbox = tmp_path / "series.mbox"
    said: list[str] = []
    with commit_tree(tree, "toy", FLAVOUR, 1, said.append) as kept:
        for text in (mails + "".join(answers), "".join(answers) + mails):
            mbox.write_text(text)
            series = kept.series(base="HEAD~1", mbox=mbox)
            assert ([c.subject for c in series.commits], series.changed) == (["three"], ("fs/other.c",))
            told = "not applied, as answers are no part of a series: Re: [PATCH] three; AW: [PATCH] three"
            assert said.pop(0) == told
            assert said == []
        mbox.write_text("".join(answers))
        with pytest.raises(UsageError, match="holds no patch"):
            kept.series(base="HEAD~1", mbox=mbox)


def test_a_mailbox_may_come_through_a_pipe(tree: Path, kernels: CommitTree) -> None:
    """`--mbox /dev/stdin`, as of `b4 am -o -`: git could not open it."""
    change(tree, "3", "three")
    mails = git(tree, "format-patch", "--stdout", "HEAD~1..HEAD") + "\n"
    ours, theirs = os.pipe()
    with os.fdopen(theirs, "w") as file:
        file.write(mails)
    with os.fdopen(ours):
        series = kernels.series(base="HEAD~1", mbox=Path(f"/dev/fd/{ours}"))
    assert [c.subject for c in series.commits] == ["three"]


def test_a_diff_and_a_folder_are_no_mailbox(
    tree: Path, kernels: CommitTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a diff without a mail it was said that another base would help."""
    change(tree, "3", "three")
    mbox = tmp_path / "three.diff"
    mbox.write_text(git(tree, "diff", "HEAD~1") + "\n")
    with pytest.raises(UsageError, match="has no mails") as raised:
        kernels.series(base="HEAD~1", mbox=mbox)
    assert raised.value.next_step == "name a mailbox as git format-patch --stdout writes it"
    git(tree, "format-patch", "-q", "-o", str(tmp_path / "patches"), "HEAD~1..HEAD")
    with monkeypatch.context() as no_tree, pytest.raises(UsageError, match="is a folder") as raised:
        no_tree.setattr(kernels, "_switch", None)  # 90 s, before a word on the folder
        kernels.series(base="HEAD~1", mbox=tmp_path / "patches")
    line = raised.value.next_step.removeprefix("make one mailbox of it: ")
    subprocess.run(line, shell=True, cwd=tmp_path, check=True)  # noqa: S602 - the line that a user is told
    series = kernels.series(base="HEAD~1", mbox=tmp_path / "series.mbox")
    assert [c.subject for c in series.commits] == ["three"]


@pytest.mark.parametrize("number", ["2/3", "3/3", "v2 net 2/3", ""])
def test_a_patch_that_lost_its_changes_is_refused(
    tree: Path, kernels: CommitTree, tmp_path: Path, number: str
) -> None:
    """It was passed over as a cover letter is, and the series was tried without it."""
    change(tree, "3", "three")
    mails = git(tree, "format-patch", "--stdout", "HEAD~1..HEAD") + "\n"
    began = "From 0 Mon Sep 17 00:00:00 2001\nFrom: a <a@b.c>\n"
    bare = f"{began}Subject: [PATCH {number}] all\n of it\n\nHello\n\n"
    mbox = tmp_path / "series.mbox"
    for text in (bare + mails, mails + bare):
        mbox.write_text(text)
        with pytest.raises(UsageError, match=r"\[PATCH .*\] all of it: this patch of .* has no changes"):
            kernels.series(base="HEAD~1", mbox=mbox)
    mbox.write_text(mails + bare.replace("Subject: ", "Subject: Re: "))
    assert [c.subject for c in kernels.series(base="HEAD~1", mbox=mbox).commits] == ["three"]


@pytest.mark.parametrize(
    "head",
    [
        "# HG changeset patch\n# User a <a@b.c>\n# Date 0 0\n# Node ID 00\n# Parent 00\nthree\n\n",
        "three\n\nFrom: a <a@b.c>\n---\n\n",
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_patches_of_mercurial_and_stgit_are_applied(
    tree: Path, kernels: CommitTree, tmp_path: Path, head: str, *, packed: bool
) -> None:
    """Git tells their form by the file, and was given a pipe: `empty ident name`."""
    change(tree, "3", "three")
    mails = f"{head}{git(tree, 'diff', 'HEAD~1')}\n".encode()
    mbox = tmp_path / "series.patch"
    mbox.write_bytes(gzip.compress(mails) if packed else mails)
    assert [c.subject for c in kernels.series(base="HEAD~1", mbox=mbox).commits] == ["three"]


@pytest.mark.parametrize("letter", [False, True])
def test_patches_that_the_base_has_already_are_told(
    tree: Path, kernels: CommitTree, tmp_path: Path, *, letter: bool
) -> None:
    """The mailbox was said to hold no patch."""
    change(tree, "3", "three")
    cover = "From 0 Mon Sep 17 00:00:00 2001\nFrom: a <a@b.c>\nSubject: [PATCH 0/1] all of it\n\nHello\n\n"
    mbox = tmp_path / "series.mbox"
    mbox.write_text(cover * letter + git(tree, "format-patch", "--stdout", "HEAD~1..HEAD") + "\n")
    with pytest.raises(UsageError, match=r"series\.mbox are in [0-9a-f]{12} already") as raised:
        kernels.series(mbox=mbox)
    assert raised.value.next_step == "name the commit below them with --base"


def test_what_git_complains_of_on_its_output_is_told(tree: Path, kernels: CommitTree) -> None:
    (tree / "fs/other.c").write_text("int something_else;\n")
    with pytest.raises(KernelError, match=r"git diff: .*[+]int something_else"):
        kernels._git("diff", "--no-index", "--", "/dev/null", str(tree / "fs/other.c"))


def test_a_mailbox_that_does_not_apply_says_so_and_the_next_one_does(
    tree: Path, kernels: CommitTree, tmp_path: Path
) -> None:
    change(tree, "3", "three")
    mbox = tmp_path / "series.mbox"
    mbox.write_text(git(tree, "format-patch", "--stdout", "HEAD~1..HEAD") + "\n")
    git(tree, "reset", "-q", "--hard", "HEAD~1")
    (tree / "fs/other.c").write_text("int something_else;\n")
    git(tree, "commit", "-qam", "else")
    with pytest.raises(UsageError, match="does not apply to") as refused:
        kernels.series(mbox=mbox)
    assert "hint:" not in refused.value.what, "of git am, whose work tree is not the user's"
    assert [c.subject for c in kernels.series(base="HEAD~1", mbox=mbox).commits] == ["three"]


def test_a_commit_that_does_not_build_says_the_first_error(tree: Path, kernels: CommitTree) -> None:
    change(tree, "no_such_name", "broken")
    series = kernels.series()
    with pytest.raises(BuildFails, match=r"broken.* does not build: .*no_such_name"):
        kernels.kernel(series.head)
    assert answer(kernels.kernel(series.base)) == 107


SPOILED = MAKEFILE.replace("$(CC) -c", "@echo '{}'; exit 1; $(CC) -c")


def test_an_error_of_the_source_is_that_where_temporary_files_have_little_room(
    tree: Path, kernels: CommitTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a /tmp of 50 MiB, no commit was one that does not build."""
    real, small = shutil.disk_usage, Path(tempfile.gettempdir())
    room = real(small)._replace(free=50 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: room if path == small else real(path))
    change(tree, "no_such_name", "broken")
    with pytest.raises(BuildFails, match="no_such_name"):
        kernels.kernel(kernels.series().head)


@pytest.mark.parametrize(
    "said",
    [
        "gcc: fatal error: Killed signal terminated program cc1",
        "as: Fatal error: a.s: cannot write: No space left on device",
        "sh: 1: bison: not found",
        "make[1]: as: No such file or directory",
    ],
)
def test_what_fails_for_the_hosts_sake_is_no_commit_that_does_not_build(
    tree: Path, kernels: CommitTree, said: str
) -> None:
    """A compiler that was killed for memory, or had no room, ended with 125: git bisect skipped commits."""
    (tree / "Makefile").write_text(SPOILED.format(said))
    with pytest.raises(EnvironmentLacks) as raised:
        kernels.kernel(kernels.series().head)
    assert said in raised.value.what
    assert "not the source" in raised.value.next_step


def test_a_source_line_that_the_compiler_shows_says_nothing_of_the_host(
    tree: Path, kernels: CommitTree
) -> None:
    """A patch that used ENOSPC as a pointer did not build, and this host had no space left."""
    (tree / "Makefile").write_text(SPOILED.format("   32 | #define ENOSPC 28 /* No space left on device */"))
    with pytest.raises(BuildFails):
        kernels.kernel(kernels.series().head)


def test_a_build_without_room_is_no_commit_that_does_not_build(
    tree: Path, kernels: CommitTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log of a full disk says nothing: it had no room, either."""
    (tree / "Makefile").write_text(SPOILED.format(""))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=3 << 20))
    with pytest.raises(EnvironmentLacks, match="with 3 MiB free at"):
        kernels.kernel(kernels.series().head)


def test_surroundings_do_not_steer_make(
    tree: Path, kernels: CommitTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With CROSS_COMPILE, no commit built; with MAKEFLAGS=-n, nothing was made."""
    steered = ("CROSS_COMPILE", "KCONFIG_CONFIG", "KBUILD_OUTPUT", "LLVM", "KCFLAGS", "GIT_DIR")
    for name in steered:
        monkeypatch.setenv(name, "elsewhere")
    monkeypatch.setenv("MAKEFLAGS", "-n")
    (tree / "Makefile").write_text(f"{MAKEFILE}\t@env >$(O)/environment\n")
    assert answer(kernels.kernel(kernels.series().head)) == 107
    had = (kernels.path / "out/environment").read_text().splitlines()
    assert "LC_ALL=C" in had
    assert not {line.split("=")[0] for line in had} & set(steered)


def test_a_configuration_that_fails_is_the_commits_fault_only_if_its_kconfig_says_so(
    tree: Path, kernels: CommitTree
) -> None:
    """Whatever was wrong with the host was: the commit did not build."""
    spoiled = MAKEFILE.replace("\t@touch", "\t@echo '{}'; exit 1\n\t@touch")
    for said, kind in (("fs/Kconfig:3: syntax error", BuildFails), ("no output directory", KernelError)):
        (tree / "Makefile").write_text(spoiled.format(said))
        with pytest.raises(KernelError, match=said) as raised:
            kernels.kernel(kernels.series().head)
        assert type(raised.value) is kind


@pytest.mark.parametrize("by", ["kill", "power cut"])
def test_objects_that_were_not_made_whole_are_made_again_before_a_commit_is_blamed(
    tree: Path, kernels: CommitTree, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """An empty object that a power cut of the host left: no further commit built, for good."""
    change(tree, "3", "three")
    assert answer(kernels.kernel(kernels.series().head)) == 103
    (kernels.path / "out/main.o").write_bytes(b"")
    if by == "kill":
        (kernels.path / "out/powercut-sound").unlink()
    else:
        monkeypatch.setattr(build_module, "_boot", lambda: "the next one")
    change(tree, "4", "four")
    assert answer(kernels.kernel(kernels.series().head)) == 104


def test_a_commit_that_does_not_build_is_built_once(tree: Path, kernels: CommitTree) -> None:
    """All of it is made again only where make may have been killed."""
    change(tree, "3", "three")
    kernels.kernel(kernels.series().head)
    compiled(kernels)
    for n in range(2):
        change(tree, f"no_such_name_{n}", "broken")
        with pytest.raises(BuildFails):
            kernels.kernel(kernels.series().head)
        assert compiled(kernels) == ["fs/other.c"]


@pytest.mark.parametrize("becomes", ["file", "link"])
def test_a_folder_may_have_become_something_else(tree: Path, kernels: CommitTree, becomes: str) -> None:
    """`'d' appears as both a file and as a directory`, and of the user's tree whether it is whole."""
    for name in ("d", "e"):
        (tree / name).mkdir()
        (tree / name / "x").write_text(name)
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "folders")
    shutil.rmtree(tree / "d")
    (tree / "d").write_text("a file") if becomes == "file" else (tree / "d").symlink_to("e")
    git(tree, "add", "-A")
    assert kernels.series().changed == ("d", "d/x")
    git(tree, "commit", "-qm", becomes)
    (tree / "d").unlink()
    (tree / "d").mkdir()
    (tree / "d/x").write_text("back")
    git(tree, "add", "-A")
    assert kernels.series().changed == ("d", "d/x")


@pytest.mark.parametrize("flag", ["assume-unchanged", "skip-worktree"])
def test_a_change_that_git_is_told_not_to_look_for_is_one(tree: Path, kernels: CommitTree, flag: str) -> None:
    """The kernel from before it was asked about."""
    git(tree, "update-index", f"--{flag}", "fs/other.c")
    change(tree, "5")
    (tree / "fs/main.c").unlink()  # as in a sparse checkout
    git(tree, "update-index", "--skip-worktree", "fs/main.c")
    series = kernels.series()
    assert series.changed == ("fs/other.c",)
    assert answer(kernels.kernel(series.head)) == 105


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("main",), "is no range of commits"),
        (("nope..main",), "has no commit nope"),
        (("main~1...main",), r"'main~1\.\.\.main' is no range of commits"),
        (("...main",), r"'\.\.\.main' is no range of commits"),
        (("main~1..main", "main~1"), "both say where it begins"),
    ],
)
def test_a_range_that_is_none_is_refused(
    tree: Path, kernels: CommitTree, words: tuple[str, ...], what: str
) -> None:
    change(tree, "3", "three")
    with pytest.raises(UsageError, match=what):
        kernels.series(asked=words[0], base="".join(words[1:]))


def test_a_range_beside_a_mailbox_is_a_second_patch(kernels: CommitTree) -> None:
    """ "Both say where it begins": a mailbox does not."""
    with pytest.raises(UsageError, match="both say what the patch is"):
        kernels.series("main~1..main", mbox=Path("series.mbox"))


def test_a_series_that_changes_nothing_has_nothing_to_ask(tree: Path, kernels: CommitTree) -> None:
    """`nothing here is known to run `, and nothing after it."""
    with pytest.raises(NothingToAsk, match="there is no commit from"):
        kernels.series("main..main")
    above = git(tree, "commit-tree", "-p", "main", "-m", "above", "main^{tree}")
    with pytest.raises(NothingToAsk, match=r"is below .*: the range runs the other way"):
        kernels.series(f"{above}..main")  # a push that took commits away made its job red
    with pytest.raises(NothingToAsk, match=r"has no commit that .* lacks"):
        kernels.series(base=above)
    git(tree, "commit", "-q", "--allow-empty", "-m", "empty")
    with pytest.raises(NothingToAsk, match=r"\(empty\) has the same files as .* \(base\)"):
        kernels.series()


def test_a_revision_is_never_an_option_of_git(tree: Path, kernels: CommitTree) -> None:
    with pytest.raises(UsageError, match="has no commit --all"):
        kernels.series("--all..main")


def test_a_folder_that_is_no_tree_of_linux_says_how_it_becomes_one(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with (
        pytest.raises(UsageError, match="is no git tree of Linux"),
        commit_tree(tmp_path / "plain", "toy", FLAVOUR, 1, lambda text: None),
    ):
        pytest.fail("it was taken")


def test_what_git_says_of_a_tree_is_told(tree: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree of another user, as in a container, "is no git tree of Linux", and became one by git init."""
    ours = git_module.plain_environment

    def of_another_user() -> dict[str, str]:
        return ours() | {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1", "HOME": "/nonexistent"}

    monkeypatch.setattr(git_module, "plain_environment", of_another_user)
    with (
        pytest.raises(UsageError, match="git reads no tree of another user") as refused,
        commit_tree(tree, "toy", FLAVOUR, 1, lambda text: None),
    ):
        pytest.fail("it was taken")
    assert f"git config --global --add safe.directory {tree}" in refused.value.next_step
    monkeypatch.setattr(git_module, "plain_environment", ours)
    (tree / ".git/config").write_text("[core\n")
    with (
        pytest.raises(UsageError, match=r"git does not read .*bad config"),
        commit_tree(tree, "toy", FLAVOUR, 1, lambda text: None),
    ):
        pytest.fail("it was taken")


def test_the_settings_that_a_user_names_to_git_count(
    tree: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who had GIT_CONFIG_GLOBAL was told to do again and again what was done: git config --global."""
    (tmp_path / "settings").write_text(f"[safe]\n\tdirectory = {tree}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "settings"))
    monkeypatch.setenv("GIT_SSH_COMMAND", "ssh -i key")
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    ours = git_module.plain_environment
    assert {"GIT_SSH_COMMAND"} <= ours().keys() and "GIT_DIR" not in ours()
    other = {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}
    monkeypatch.setattr(git_module, "plain_environment", lambda: ours() | other)
    with commit_tree(tree, "toy", FLAVOUR, 1, lambda text: None) as kept:
        assert kept.tree == tree


def test_a_new_file_that_git_does_not_know_is_said_to_be_left_out(tree: Path, cache: Path) -> None:
    said: list[str] = []
    change(tree, "3")
    for n in range(5):
        (tree / f"fs/new{n}.c").write_text("")
    with commit_tree(tree, "toy", FLAVOUR, 1, said.append) as kept:
        kept.series()
        (told,) = said
        assert (
            "not asked about, as git does not know of it: fs/new0.c, fs/new1.c, fs/new2.c and 2 more" in told
        )
        git(tree, "add", "-A")
        assert "fs/new0.c" in kept.series().changed
        assert said == [told]


def test_a_tree_that_is_cut_off_says_how_it_gets_its_history(tree: Path, cache: Path, tmp_path: Path) -> None:
    """`has no commit HEAD~1; see: git log`, of a clone as CI makes it, though nobody named HEAD~1."""
    change(tree, "3", "three")
    cut = tmp_path / "cut"
    git(tree, "clone", "-q", "--depth=1", f"file://{tree}", str(cut))
    git(cut, "branch", "-q", "--unset-upstream")
    with commit_tree(cut, "toy", FLAVOUR, 1, lambda text: None) as kept:
        for words in ((), ("main~1..main",)):
            with pytest.raises(UsageError, match=r"has no commit (below|main)") as refused:
                kept.series(*words)
            assert refused.value.next_step.endswith(f"git -C {cut} fetch --unshallow")


def test_a_repository_of_sha256_has_its_kernels(cache: Path, tmp_path: Path) -> None:
    """Its objects were not found, and the tree was said not to be whole."""
    tree = a_tree(tmp_path / "linux", "--object-format=sha256")
    change(tree, "3", "three")
    mbox = tmp_path / "series.mbox"
    mbox.write_text(git(tree, "format-patch", "--stdout", "HEAD~1..HEAD") + "\n")
    change(tree, "4")
    for _ in range(2):  # the second time, our repository is there
        with commit_tree(tree, "toy", FLAVOUR, 1, lambda text: None) as kept:
            series = kept.series(base="HEAD~1")
            assert [answer(kept.kernel(c)) for c in (series.base, *series.commits)] == [107, 103, 104]
            assert [c.subject for c in kept.series(base="HEAD~1", mbox=mbox).commits] == ["three"]


def test_another_configuration_is_another_kernel(tree: Path, kernels: CommitTree, tmp_path: Path) -> None:
    fragment = tmp_path / "kasan.config"
    fragment.write_text("CONFIG_KASAN=y\n")
    flavour = Flavour("toy", "linux", "linux", (str(fragment),))
    head = git(tree, "rev-parse", "HEAD")
    with commit_tree(tree, "toy", flavour, 1, lambda text: None) as other:
        assert other.key(head) != kernels.key(head)
        assert other.path != kernels.path


def test_a_kernel_with_marks_notes_what_it_runs_and_the_next_kernel_has_none(
    tree: Path, kernels: CommitTree
) -> None:
    change(tree, "3", "three")
    head = kernels.series("main~1..main").head
    texts = {"fs/other.c": marked(kernels.text(head.id, "fs/other.c"), [3], 4).text}
    noting = kernels.noting_kernel(head, texts, 5)
    said = subprocess.run([noting], capture_output=True, text=True, check=False)
    assert (said.stdout, said.returncode) == ("4", 103), "the edit for speed is in it, too"
    assert points_of(noting) == Points(5, ())
    compiled(kernels)
    assert kernels.noting_kernel(head, texts, 5) == noting
    assert compiled(kernels) == []
    plain = subprocess.run([kernels.kernel(head)], capture_output=True, text=True, check=False)
    assert (plain.stdout, plain.returncode) == ("", 103)
    other = {"fs/other.c": marked(kernels.text(head.id, "fs/other.c"), [3], 6).text}
    assert kernels.noting_kernel(head, other, 7) != noting


def test_a_build_of_a_commit_tells_how_far_it_is(
    tree: Path, kernels: CommitTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first build of a tree took 25 minutes, in which one line was said."""
    monkeypatch.setattr("harness.host.progress.PLAIN_INTERVAL_S", 0.01)
    said: list[str] = []
    monkeypatch.setattr(kernels, "_say", said.append)
    heard = threading.Event()
    make = make_again

    def slowly(*given: object) -> None:
        make(*given)  # type: ignore[arg-type]  # as it is called
        (kernels.path / "out/a.o").touch()
        for _ in range(6000):
            if any(line.endswith(" files compiled") and " 0 files" not in line for line in said):
                return
            heard.wait(0.01)
        pytest.fail(f"nothing was told: {said}")

    monkeypatch.setattr(commits_module, "make_again", slowly)
    change(tree, "3", "three")
    kernels.kernel(kernels.series().head)


def diverged(tree: Path) -> tuple[str, str]:
    """A branch `topic`, and `main` that got a fix since it forked: where it forked, and the fix."""
    forked = git(tree, "rev-parse", "HEAD")
    git(tree, "checkout", "-qb", "topic")
    change(tree, "3", "three")
    git(tree, "checkout", "-q", "main")
    (tree / "fs/main.c").write_text(f"/* fixed */\n{MAIN}")
    git(tree, "commit", "-qam", "a fix")
    return forked, git(tree, "rev-parse", "HEAD")


@pytest.mark.parametrize("by", ["range", "base"])
def test_a_branch_is_not_blamed_for_what_its_base_got_since(
    tree: Path, kernels: CommitTree, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """`main..topic` took the tip of main as the base: a fix that topic lacks was its first commit's."""
    said: list[str] = []
    monkeypatch.setattr(kernels, "_say", said.append)
    forked, fix = diverged(tree)
    git(tree, "checkout", "-q", "topic")
    series = kernels.series("main..topic") if by == "range" else kernels.series(base="main")
    assert (series.base.id, [c.subject for c in series.commits]) == (forked, ["three"])
    assert series.changed == ("fs/other.c",)
    assert len(said) == 1
    assert f"{fix[:12]} (a fix) is not below" in said[0]
    assert f"the base is {forked[:12]} (base)" in said[0]


def test_a_base_that_the_head_is_on_top_of_is_taken_without_a_word(
    tree: Path, kernels: CommitTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(kernels, "_say", said.append)
    base = git(tree, "rev-parse", "HEAD")
    change(tree, "3", "three")
    assert kernels.series("main~1..main").base.id == base
    assert said == []


def test_commits_of_unrelated_histories_are_no_patch(tree: Path, kernels: CommitTree) -> None:
    """All of the other history was taken for what the patch changes."""
    git(tree, "checkout", "-q", "--orphan", "other")
    git(tree, "commit", "-qm", "another root")
    with pytest.raises(UsageError, match="no commit in common"):
        kernels.series("main..other")


def test_what_a_killed_git_left_does_not_break_the_kept_build(
    tree: Path, cache: Path, tmp_path: Path
) -> None:
    """A kill during a checkout or an application of patches left the kept repository unusable for good."""
    base = git(tree, "rev-parse", "HEAD")
    change(tree, "3", "three")
    mbox = tmp_path / "series.mbox"
    mbox.write_text(git(tree, "format-patch", "--stdout", "HEAD~1..HEAD") + "\n")
    with commit_tree(tree, "toy", FLAVOUR, 1, lambda text: None) as kept:
        kept.kernel(kept.series().head)
        (kept.path / "git/index.lock").touch()
        (kept.path / "git/HEAD.lock").touch()
        patches = kept.path / "git/rebase-apply"
        patches.mkdir()
        for name in ("next", "last"):
            (patches / name).write_text("1\n")
        (kept.path / "source/fs/half.c").write_text("a file of the commit that was not reached\n")
    with commit_tree(tree, "toy", FLAVOUR, 1, lambda text: None) as kept:
        assert not (kept.path / "source/fs/half.c").exists()
        assert [c.subject for c in kept.series(base=base, mbox=mbox).commits] == ["three"]
        change(tree, "4", "four")
        assert answer(kept.kernel(kept.series().head)) == 104


@pytest.mark.parametrize(
    "damage", ["objects", "index empty", "index half", "HEAD", "HEAD empty", "config", "refs", "objects gone"]
)
def test_what_a_power_cut_of_the_host_left_does_not_break_the_kept_build(
    tree: Path, cache: Path, damage: str
) -> None:
    """Git took empty objects and an empty index for whole: the user's tree was said not to be, for good."""
    change(tree, "3", "three")
    change(tree, "4")
    with commit_tree(tree, "toy", FLAVOUR, 1, lambda text: None) as kept:
        assert answer(kept.kernel(kept.series().head)) == 104
    ours = kept.path / "git"
    name, _, how = damage.partition(" ")
    if name == "objects" and not how:
        for file in ours.glob("objects/??/*"):
            file.chmod(0o600)
            file.write_bytes(b"")
    elif how in ("empty", "half") or name == "config":
        (ours / name).write_bytes((ours / name).read_bytes()[: 99 if how == "half" else 0])
    else:
        there = ours / name
        shutil.rmtree(there) if there.is_dir() else there.unlink()
    (kept.path / "source/fs/half.c").write_text("of a commit that git knows no more\n")
    with commit_tree(tree, "toy", FLAVOUR, 1, lambda text: None) as kept:
        head = kept.series().head
        assert head.subject == UNCOMMITTED
        assert kept.has(head.id, "fs/other.c")
        change(tree, "5")
        assert answer(kept.kernel(kept.series().head)) == 105
        assert (kept.path / "source/fs/half.c").exists() is (name != "index")


def test_a_git_that_fails_says_which_of_two_is_at_fault(kernels: CommitTree) -> None:
    """A full disk was the user's tree, which is blameless."""
    assert str(kernels.path) in kernels._fault("git checkout: fatal: bad object").next_step
    for said in ("error: copy-fd: write returned: No space left on device", "fatal: Out of diskspace"):
        fault = kernels._fault(said)
        assert (type(fault), fault.next_step) == (EnvironmentLacks, f"free some space at {kernels.path}")


def test_what_a_partial_clone_lacks_is_fetched_for_us_alone(
    tree: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`unable to read c3f84431`, and a base that is not built, of a clone with --filter=blob:none."""
    change(tree, "3", "three")
    change(tree, "4", "four")
    git(tree, "config", "uploadpack.allowFilter", "true")
    (tmp_path / ".gitconfig").write_text(f'[url "file://{tmp_path}/"]\n\tinsteadOf = here:\n')
    monkeypatch.setenv("HOME", str(tmp_path))
    git(tmp_path, "clone", "-q", "--filter=blob:none", "here:linux", str(tmp_path / "part"))
    before = snapshot(tmp_path / "part")
    with commit_tree(tmp_path / "part", "toy", FLAVOUR, 1, lambda text: None) as kept:
        series = kept.series("main~2..main")
        assert "+\treturn 4;" in kept.diff(series.base.id, series.head.id, "fs/other.c")
        kernels = [kept.kernel(commit) for commit in (series.head, series.commits[0], series.base)]
    assert [answer(kernel) for kernel in kernels] == [104, 103, 107]
    assert snapshot(tmp_path / "part") == before
    git(tmp_path / "part", "remote", "set-url", "origin", "../part/../linux")
    shutil.rmtree(cache)
    with commit_tree(tmp_path / "part", "toy", FLAVOUR, 1, lambda text: None) as kept:
        assert "\treturn 7;" in kept.text(series.base.id, "fs/other.c")
    git(tmp_path / "part", "remote", "set-url", "origin", "here:none")
    shutil.rmtree(cache)
    with (
        commit_tree(tmp_path / "part", "toy", FLAVOUR, 1, lambda text: None) as kept,
        pytest.raises(EnvironmentLacks) as raised,
    ):
        kept.text(series.base.id, "fs/other.c")
    assert "is a partial clone" in raised.value.next_step


def test_a_tree_below_a_name_that_is_no_text_has_its_kernels(tree: Path, cache: Path, tmp_path: Path) -> None:
    """UnicodeEncodeError."""
    odd = tmp_path / os.fsdecode(b"lat\xe9")
    odd.mkdir()
    tree.rename(odd / "linux")
    change(odd / "linux", "4")
    with commit_tree(odd / "linux", "toy", FLAVOUR, 1, lambda text: None) as kept:
        assert answer(kept.kernel(kept.series().head)) == 104


def test_a_difference_names_its_function(tree: Path, kernels: CommitTree) -> None:
    """A label, which kernel code begins a line with, was taken for the beginning of a function."""
    text = "int fs_collapse_range(int a)\n{\n\tif (a)\n\t\tgoto out;\nout:\n\treturn 7;\n}\n"
    for number in ("7", "8"):
        (tree / "fs/range.c").write_text(text.replace("7", number))
        git(tree, "add", "-A")
        git(tree, "commit", "-qm", number)
    series = kernels.series()
    said = kernels.diff(series.base.id, series.head.id, "fs/range.c")
    assert said.splitlines()[4] == "@@ -6 +6 @@ int fs_collapse_range(int a)"


def test_a_file_that_was_renamed_differs_in_what_the_patch_changed(tree: Path, kernels: CommitTree) -> None:
    """All of a renamed file was taken for changed: 41 mistakes were to be planted in a patch of two lines."""
    (tree / "Makefile").write_text(MAKEFILE.replace("other.o", "another.o"))
    git(tree, "mv", "fs/other.c", "fs/another.c")
    (tree / "fs/another.c").write_text(OTHER.replace("7", "8"))
    git(tree, "commit", "-qam", "renamed, and changed")
    series = kernels.series()
    assert series.changed == ("Makefile", "fs/another.c", "fs/other.c")
    old, new = (kernels.diff(series.base.id, series.head.id, f"fs/{name}.c") for name in ("other", "another"))
    assert [(h.first, h.before) for h in hunks(new)] == [(3, ("\treturn 7;\n",))]
    assert not old
    assert untouched_in(kernels, series) == ("fs/other.c",)


def test_a_commit_that_is_gone_is_not_known(tree: Path, kernels: CommitTree) -> None:
    assert kernels.knows(git(tree, "rev-parse", "HEAD"))
    assert not kernels.knows("a" * 40)


def test_a_git_that_outlives_its_process_holds_the_lock(kernels: CommitTree) -> None:
    """The next process would take its lock for a left one, and write the same files at the same time."""
    asked = ("-c", "alias.held=!readlink /proc/self/fd/*; true", "held")
    with kernels._alone(print):
        assert str(kernels.path / "lock") in kernels._git(*asked).splitlines()


def test_a_patch_is_planned_while_another_one_is_built(
    tree: Path, kernels: CommitTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`patch -n` waited up to ten minutes for the runs of another patch, and was refused then."""
    monkeypatch.setattr(commits_module, "WAIT_S", 0)
    change(tree, "3", "three")
    change(tree, "4")
    with kernels._alone(print), commit_tree(tree, "toy", FLAVOUR, 1, lambda text: None) as other:
        series = other.series(base="HEAD~1")
        assert [c.subject for c in series.commits] == ["three", UNCOMMITTED]
        assert "+\treturn 4;" in other.diff(series.base.id, series.head.id, "fs/other.c")
        assert other.with_text(series.head, "fs/other.c", OTHER, "seven").subject == "seven"


def test_two_processes_build_in_turn(tree: Path, kernels: CommitTree, cache: Path) -> None:
    """The first of them had the tree until it ended, guests and all."""
    change(tree, "3", "three")
    change(tree, "4", "four")
    series = kernels.series("main~2..main")
    with commit_tree(tree, "toy", FLAVOUR, 1, lambda text: None) as other:
        for kept, commit, code in ((kernels, series.head, 104), (other, series.base, 107)) * 2:
            shutil.rmtree(cache / "kernels/variants", ignore_errors=True)
            (cache / "kernels/variants").mkdir()
            assert answer(kept.kernel(commit)) == code


def test_what_another_process_has_built_is_not_built_again(
    tree: Path, kernels: CommitTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that wait for the tree may want the same kernel."""
    change(tree, "3", "three")
    head = kernels.series().head
    alone = kernels._alone

    @contextlib.contextmanager
    def later(say: Callable[[str], None]) -> Iterator[None]:
        monkeypatch.setattr(kernels, "_alone", alone)
        kernels.kernel(head)
        monkeypatch.setattr(kernels, "_build", lambda *given: pytest.fail("it was built again"))
        with alone(say):
            yield

    monkeypatch.setattr(kernels, "_alone", later)
    assert answer(kernels.kernel(head)) == 103


def test_an_object_that_another_process_is_writing_stays(tree: Path, kernels: CommitTree) -> None:
    """It is empty at first, as one that a power cut left is."""
    (kernels.path / "git/objects/ab").mkdir(parents=True)
    being_written = kernels.path / "git/objects/ab/tmp_obj_x"
    being_written.touch()
    with kernels._alone(print):
        assert being_written.exists()


def test_a_git_that_fails_is_no_commit_that_does_not_build(
    tree: Path, kernels: CommitTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repository that was locked ended with 125, so `git bisect run` skipped commit after commit."""
    change(tree, "3", "three")
    head = kernels.series().head
    monkeypatch.setattr(commits_module, "_removed_leftovers", lambda ours: False)
    (kernels.path / "git/index.lock").touch()
    with pytest.raises(KernelError, match=r"index\.lock") as raised:
        kernels.kernel(head)
    assert not isinstance(raised.value, BuildFails)


@pytest.mark.parametrize(
    "settings",
    [
        "[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = false\n[core]\n\thooksPath = {}/hooks\n",
        "[apply]\n\twhitespace = error\n",
        "[core]\n\tautocrlf = true\n",
        "[core]\n\tattributesFile = {}/attributes\n\teol = crlf\n",
        "[diff]\n\torderFile = /nonexistent\n\tnoprefix = true\n\texternal = false\n",
        "[init]\n\tdefaultObjectFormat = sha256\n[core]\n\tsymlinks = false\n\tfileMode = false\n",
    ],
)
def test_settings_of_the_user_are_not_for_commits_of_ours(
    tree: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str
) -> None:
    """Commits of ours were to be signed, hooks of the user ran in our sources, and scripts had the lines of
    Windows: no mailbox applied, or no kernel was built.
    """
    (tree / "fs/other.c").write_text(OTHER.replace("7;", "3;  "))
    git(tree, "commit", "-qam", "three")
    mbox = tmp_path / "series.mbox"
    mbox.write_text(git(tree, "format-patch", "--stdout", "HEAD~1..HEAD") + "\n")
    git(tree, "reset", "-q", "--hard", "HEAD~1")
    home = tmp_path / "home"
    (home / "hooks").mkdir(parents=True)
    for hook in ("applypatch-msg", "post-checkout"):
        (home / "hooks" / hook).write_text(f"#!/bin/sh\ntouch {home}/ran\nexit 1\n")
        (home / "hooks" / hook).chmod(0o755)
    (home / "attributes").write_text("* text\n")
    (home / ".gitconfig").write_text(settings.format(home, home))
    monkeypatch.setenv("HOME", str(home))
    with commit_tree(tree, "toy", FLAVOUR, 1, lambda text: None) as kept:
        series = kept.series(mbox=mbox)
        assert [c.subject for c in series.commits] == ["three"]
        assert answer(kept.kernel(series.head)) == 103
        assert b"\r" not in (kept.path / "source/Makefile").read_bytes()
        assert os.access(kept.path / "source/scripts/kconfig/merge_config.sh", os.X_OK)
    assert not (home / "ran").exists()


@pytest.mark.parametrize("committed", [True, False])
def test_a_file_that_was_moved_is_gone_where_it_was(tree: Path, kernels: CommitTree, committed: bool) -> None:
    """Git told the new name alone: what was not committed was built with the old file as well, and the modes
    of the folder that the file left were not asked.
    """
    (tree / "lib").mkdir()
    git(tree, "mv", "fs/other.c", "lib/other.c")
    if committed:
        git(tree, "commit", "-qm", "move")
    series = kernels.series()
    assert not kernels.has(series.head.id, "fs/other.c")
    assert kernels.has(series.head.id, "lib/other.c")
    assert series.changed == ("fs/other.c", "lib/other.c")


@pytest.mark.parametrize("odd", ["\u2028", "\x0c", "\x85", "\r"])
def test_a_subject_may_have_what_ends_a_line_for_python(tree: Path, kernels: CommitTree, odd: str) -> None:
    """Such a subject was read as two commits, the second one without a subject: TypeError."""
    change(tree, "3", f"ext4: a{odd}b")
    change(tree, "4", "four")
    series = kernels.series("main~2..main")
    assert [c.subject for c in series.commits] == ["ext4: a b", "four"]
    assert kernels.series("main~1..main").base.subject == "ext4: a b"


def test_an_option_that_the_patch_brings_is_not_lost_for_the_commits_built_after_its_base(
    tree: Path, cache: Path, tmp_path: Path
) -> None:
    """The base does not know it, so make dropped it, and the next commits were built and judged without."""
    (tree / "scripts/kconfig/merge_config.sh").write_text(
        '#!/bin/sh\nto=$3; shift 4; cat "$@" >$to/.config\n'
    )
    sync = "linux: sync\nsync:\n\t@[ -f fs/Kconfig ] || sed -i /MINE/d $(O)/.config\n"
    (tree / "Makefile").write_text(MAKEFILE.replace("@touch $(O)/.config", "@:") + sync)
    git(tree, "commit", "-qam", "base")
    (tree / "fs/Kconfig").write_text("config MINE\n")
    git(tree, "add", "-A")
    change(tree, "3", "three")
    change(tree, "4", "four")
    fragment = tmp_path / "mine.config"
    fragment.write_text("CONFIG_MINE=y\n")
    flavour = Flavour("toy", "linux", "linux", (str(fragment),))
    said: list[str] = []
    with commit_tree(tree, "toy", flavour, 1, said.append) as kept:
        series = kept.series("main~2..main")
        had = []
        for commit in (series.head, series.base, series.commits[0]):
            kept.kernel(commit)
            had.append((kept.path / "out/.config").read_text())
    assert had == ["CONFIG_MINE=y\n", "", "CONFIG_MINE=y\n"]
    lost = [line for line in said if "does not take" in line]
    assert lost == [f"{series.base} does not take CONFIG_MINE=y: its kernel is without"]


KCONFIG = """
allnoconfig:
\t@echo configured >>$(O)/configurations
\t@: >$(O)/.config
olddefconfig linux: drop
drop:
\t@for o in $$(sed 's/=.*//' $(O)/.config); do grep -q "^$$o$$" Kconfig || sed -i "/$$o/d" $(O)/.config; done
linux: $(O)/linux
$(O)/linux: fs/main.c fs/other.c
\t$(CC) -o $@ $^
"""
"""As Linux's: options that no Kconfig file has are dropped."""


@pytest.mark.parametrize("first", ["base", "head"])
def test_a_commit_has_one_configuration_whatever_was_built_before(
    tree: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """An option of our own fragments that one commit did not know was gone for all that were built after it:
    the kernel of a commit, kept under one key, had it or not.
    """
    fragment = tmp_path / "ours.config"
    fragment.write_text("CONFIG_OLD=y\nCONFIG_NEW=y\n")
    monkeypatch.setattr("harness.kernels.build._fragment", lambda name: fragment)
    merge = tree / "scripts/kconfig/merge_config.sh"
    merge.write_text('#!/bin/sh\nto=$3; shift 4; cat "$@" >$to/.config\n')
    (tree / "Makefile").write_text(KCONFIG)
    (tree / "Kconfig").write_text("CONFIG_OLD\n")
    git(tree, "commit", "-qam", "base")
    (tree / "Kconfig").write_text("CONFIG_OLD\nCONFIG_NEW\n")
    change(tree, "3", "new")
    change(tree, "4", "more")
    flavour = Flavour("toy", "linux", "linux", ("ours.config",))
    had = {}
    with commit_tree(tree, "toy", flavour, 1, lambda text: None) as kept:
        series = kept.series("main~2..main")
        new, more = series.commits
        for commit in (series.base, new, more) if first == "base" else (more, series.base, new):
            kept.kernel(commit)
            had[commit.subject] = (kept.path / "out/.config").read_text()
        configured = (kept.path / "out/configurations").read_text().split()
    both = "CONFIG_OLD=y\nCONFIG_NEW=y\n"
    assert had == {"base": "CONFIG_OLD=y\n", "new": both, "more": both}
    assert len(configured) == (2 if first == "base" else 3), "only where the Kconfig files differ"


def added(tree: Path, name: str) -> str:
    """A commit that adds a file of this name, and has it as its subject."""
    (tree / "fs" / name).write_text(name)
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", name)
    return git(tree, "rev-parse", "HEAD")


def test_a_commit_that_the_base_is_not_below_is_not_tried(tree: Path, kernels: CommitTree) -> None:
    """Of a branch that had the base merged into it, a commit of before that showed what the base mended, and
    was named as the first that breaks it.
    """
    git(tree, "checkout", "-qb", "mine")
    added(tree, "mine-1")
    git(tree, "checkout", "-q", "main")
    fixed = added(tree, "fix")
    git(tree, "checkout", "-q", "mine")
    git(tree, "merge", "-q", "--no-ff", "-m", "merge", "main")
    added(tree, "mine-2")
    series = kernels.series("main..mine")
    assert series.base.id == fixed
    assert [c.subject for c in series.commits] == ["merge", "mine-2"]
    assert [c.subject for c in series.brought] == ["mine-1"]


@pytest.mark.parametrize("moved", [False, True])
def test_of_the_merge_of_a_pull_request_the_commits_of_its_branch_are_tried(
    tree: Path, kernels: CommitTree, *, moved: bool
) -> None:
    """The merge was the one commit, and blamed for all. Where the base has moved on, those of the branch lack
    what it mended since.
    """
    git(tree, "checkout", "-qb", "topic")
    for name in ("one", "two"):
        added(tree, name)
    git(tree, "checkout", "-q", "main")
    base = added(tree, "moved") if moved else git(tree, "rev-parse", "HEAD")
    git(tree, "checkout", "-q", "--detach")
    git(tree, "merge", "-q", "--no-ff", "-m", "merge", "topic")
    for series in (kernels.series(), kernels.series("main..HEAD")):
        assert series.base.id == base
        assert [c.subject for c in series.commits] == ["one", "two", "merge"]
        assert [c.subject for c in series.brought] == (["one", "two"] if moved else [])


def test_of_a_merge_of_several_branches_the_commits_of_each_are_tried(
    tree: Path, kernels: CommitTree
) -> None:
    for name in ("one", "two"):
        git(tree, "checkout", "-qb", name, "main")
        added(tree, name)
    git(tree, "checkout", "-q", "main")
    added(tree, "moved")
    git(tree, "merge", "-q", "-m", "merge", "one", "two")
    series = kernels.series(base="HEAD~1")
    assert [c.subject for c in series.commits] == ["one", "two", "merge"]
    assert [c.subject for c in series.brought] == ["one", "two"]


def test_a_commit_that_two_merged_branches_begin_with_is_tried_once(tree: Path, kernels: CommitTree) -> None:
    """It was in the list twice, and so was what the list was said to bring."""
    git(tree, "checkout", "-qb", "one", "main")
    added(tree, "shared")
    added(tree, "one")
    git(tree, "checkout", "-qb", "two", "HEAD~1")
    added(tree, "two")
    git(tree, "checkout", "-q", "main")
    added(tree, "moved")
    git(tree, "merge", "-q", "-m", "merge", "one", "two")
    series = kernels.series(base="HEAD~1")
    assert [c.subject for c in series.commits] == ["shared", "one", "two", "merge"]
    assert [c.subject for c in series.brought] == ["shared", "one", "two"]
    assert kernels.below(series) == [0, 0b1, 0b1, 0b111]


def test_the_histories_of_a_long_series_take_little_room(tree: Path, kernels: CommitTree) -> None:
    """A set of all that is below each of 10,000 commits took 2.3 GiB."""
    base, count = git(tree, "rev-parse", "main"), 500
    made = [f"commit refs/heads/main\ncommitter a <a> {n} +0000\ndata 1\na\n" for n in range(count)]
    made[0] += f"from {base}\n"
    subprocess.run(
        ["git", "-C", str(tree), "fast-import", "--quiet"], input="\n".join(made), text=True, check=True
    )
    names = git(tree, "rev-list", "--reverse", f"{base}..main").split()
    series = CommitRange(Revision(base, "base"), tuple(Revision(name, "a") for name in names), ())
    below = kernels.below(series)
    assert len(below) == count
    assert sum(map(sys.getsizeof, below)) < 100 * count


def test_one_commit_has_no_others_to_look_for(kernels: CommitTree) -> None:
    """The histories of all that a merge brings were made, although it was the one commit to try."""
    base, head = Revision("0" * 40, "is not there"), Revision("1" * 40, "nor is this")
    assert kernels.below(CommitRange(base, (head,), ())) == [0]


def test_lines_that_did_not_change_are_in_no_hunk(
    tree: Path, kernels: CommitTree, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With `diff.interHunkContext` set, mistakes were planted in lines that the patch did not touch."""
    (tmp_path / ".gitconfig").write_text("[diff]\n\tinterHunkContext = 5\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tree / "fs/main.c").write_text(MAIN.replace("int other", "long other").replace("return", "return -"))
    git(tree, "commit", "-qam", "two lines")
    series = kernels.series("main~1..main")
    assert [(h.first, h.count) for h in hunks(kernels.diff(series.base.id, series.head.id, "fs/main.c"))] == [
        (1, 1),
        (4, 1),
    ]


def test_a_commit_gets_the_edits_of_its_release(tree: Path, cache: Path, tmp_path: Path) -> None:
    """Kernels of 7.3 had none of the edits that were written for 6.12. One may be of a file that is added."""
    added = tmp_path / "added"
    added.mkdir()
    (added / "ours.c").write_text("int ours(void) { return 1; }\n")
    flavour = msgspec.structs.replace(
        FLAVOUR,
        edits=(
            ReleaseEdit("fs/other.c", "other", "7", "12", before=(7, 3)),
            ReleaseEdit("fs/other.c", "other", "7", "73", since=(7, 3)),
            ReleaseEdit("ours/ours.c", "", "return 1", "return 20", since=(7, 3)),
            ReleaseEdit("fs/main.c", "main", "other()", "other() + ours()"),
        ),
        addition=Addition(str(added), "ours", "fs/main.c", '#include "../ours/ours.c"'),
    )
    (tree / "fs/main.c").write_text("int ours(void);\n" + MAIN)
    git(tree, "commit", "-qam", "without a release")
    (tree / "Makefile").write_text("VERSION = 7\nPATCHLEVEL = 3\n" + MAKEFILE)
    (tree / "fs/main.c").write_text(f"int ours(void);{MAIN}")  # make does not know that it includes ours.c
    git(tree, "commit", "-qam", "Linux 7.3")
    with commit_tree(tree, "toy", flavour, 1, print) as kept:
        series = kept.series("main~1..main")
        assert answer(kept.kernel(series.base)) == 12 + 1
        assert answer(kept.kernel(series.head)) == 73 + 20
        older = msgspec.structs.replace(flavour, edits=(flavour.edits[0], flavour.edits[3]))
        before = CommitTree(kept.tree, kept.path, older, 1, print)
        assert before.key(series.base.id) == kept.key(series.base.id), "built already"
        assert before.key(series.head.id) != kept.key(series.head.id), "built without its edits"
