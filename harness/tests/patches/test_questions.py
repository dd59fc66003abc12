"""What follows from the files that a patch changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.errors import NothingToAsk, UsageError
from harness.filesystems.layers import layers
from harness.filesystems.profiles import profiles
from harness.filesystems.stacks import stacks
from harness.patches.questions import AffectedModes, _shared_code, affected_by, chosen, is_of, stages, to_name
from harness.workloads.load import select_workloads


@pytest.mark.parametrize(
    ("changed", "pattern", "is_it"),
    [
        ("fs/ext4/fsync.c", "fs/ext4", True),
        ("fs/ext4", "fs/ext4", True),
        ("fs/ext4x/fsync.c", "fs/ext4", False),
        ("drivers/md/raid5-ppl.c", "drivers/md/raid5*", True),
        ("fs/buffer.c", "fs/*.c", True),
        ("fs/ext4/super.c", "fs/*.c", False),
        ("tools/fs/buffer.c", "fs/*.c", False),
    ],
)
def test_a_pattern_ends_at_a_slash(changed: str, pattern: str, *, is_it: bool) -> None:
    assert is_of(changed, pattern) is is_it


def test_a_file_system_is_asked_in_its_usual_mode_and_then_in_all() -> None:
    asked = affected_by(["fs/xfs/xfs_log.c"])
    assert asked.first == ("xfs/default",)
    assert {"xfs/wsync", "xfs/external-log"} <= set(asked.then)
    assert asked.recovery == ()


def test_code_of_one_mode_brings_that_mode_to_the_front() -> None:
    asked = affected_by(["fs/ext4/fast_commit.c"])
    assert asked.first == ("ext4/fast_commit", "ext4/ordered")
    assert asked.recovery == ("fs/ext4/fast_commit.c",)


def test_code_that_modes_alone_run_need_not_be_of_their_file_system() -> None:
    """The modes with quotas named fs/quota, which is in no file system's folder: nothing here ran it."""
    found = affected_by(["fs/quota/dquot.c", "fs/ext4/super.c"])
    assert found.first == ("ext4/ordered", "ext4/quota", "f2fs/quota")
    assert found.nobodys == ()
    assert affected_by(["fs/quota/dquot.c"]).first == ("ext4/quota", "f2fs/quota")


def test_code_of_a_mode_that_runs_on_request_brings_that_mode() -> None:
    """Its code runs in no other: a patch to it was asked nothing, and read as kept."""
    exchanged = affected_by(["fs/xfs/xfs_exchrange.c"])
    assert set(exchanged.first) == {"xfs/default", "xfs/exchange", "xfs/exchange-wsync"}
    assert not any("exchange" in name for name in affected_by(["fs/xfs/xfs_log.c"]).first)
    assert affected_by(["fs/ntfs3/inode.c"]).first == ("ntfs3/default",)


def test_workloads_that_run_the_code_of_a_mode_come_first() -> None:
    """A minute about XFS's exchange ended in `all`, and the workloads that exchange are in `more`."""
    first, second, *_ = stages(affected_by(["fs/xfs/xfs_exchmaps_item.c"]))
    assert set(first.modes) == {"xfs/exchange", "xfs/exchange-wsync"}
    assert "exchange-fragments" in first.workloads
    assert second.name == "quick"
    assert stages(affected_by(["fs/xfs/xfs_log.c"]))[0].name == "quick"


def test_workloads_of_modes_are_there() -> None:
    named = {w for p in profiles().values() for w in p.workloads}
    assert {w.name for w in select_workloads(sorted(named))} == named
    for layer in layers().values():
        assert not layer.workloads or (layer.source and select_workloads(layer.workloads))
    assert all(p.mode_source for p in profiles().values() if p.workloads)


def test_workloads_that_run_the_code_of_a_layer_come_first() -> None:
    """No patch to overlayfs was given the workloads that copy up, although they find what others do not."""
    of_overlay = tuple(f"ext4/ordered@{name}" for name, of in layers().items() if "fs/overlayfs" in of.source)
    first, second, *_ = stages(affected_by(["fs/overlayfs/dir.c"]))
    assert (first.modes, first.workloads, second.name) == (of_overlay, ("overlay",), "quick")
    asked = chosen(["ext4/ordered@overlay", "ext4/ordered@loop"], ["fs/overlayfs/dir.c"])
    assert stages(asked)[0].modes == ("ext4/ordered@overlay",)
    assert stages(affected_by(["fs/nfs/file.c"]))[0].name == "quick"
    both = stages(affected_by(["fs/overlayfs/dir.c", "fs/xfs/xfs_exchrange.c"]))
    assert {m.partition("/")[0] for m in both[0].modes} == {"xfs"}
    assert both[1].modes == of_overlay


def test_every_operation_is_asked_in_the_end() -> None:
    """No stage collapsed a range, inserted one, or copied one."""
    names = [s.name for s in stages(affected_by(["fs/ext4/inode.c"]))]
    assert names[names.index("ace1") + 1] == "ace1more"


def hunk_in(function: str, changed: str = "-\tone();\n") -> Callable[[str], str]:
    """A diff of one hunk in a function."""
    return lambda file: f"--- a/{file}\n+++ b/{file}\n@@ -12 +11,0 @@ {function}\n{changed}"


@pytest.mark.parametrize(
    ("function", "step"),
    [
        ("static int ext4_collapse_range(struct file *file, loff_t offset, loff_t len)", "falloc-collapse"),
        ("static int f2fs_insert_range(struct inode *inode, loff_t offset, loff_t len)", "falloc-insert"),
        ("xfs_file_remap_range(", "copy-range"),
        ("int ext4_punch_hole(struct file *file, loff_t offset, loff_t length)", "falloc-punch"),
        ("static int ovl_rename(struct mnt_idmap *idmap, struct inode *olddir,", "rename-over"),
    ],
)
def test_an_operation_in_the_name_of_a_changed_function_is_asked_first(function: str, step: str) -> None:
    """A range that was collapsed without its size was found in a second, by a workload that nobody asked."""
    for asked in (
        affected_by(["fs/ext4/extents.c"], hunk_in(function)),
        chosen(["ext4/journal"], ["fs/ext4/extents.c"], hunk_in(function)),
    ):
        first, second, *_ = of_all = stages(asked)
        assert (first.modes, second.name) == (asked.first, "quick")
        assert f"ace-{step}.A_foo" in {w.partition("+")[0].removesuffix(".A_bar") for w in first.workloads}
        single = [w.name for s in of_all if s.name.startswith("ace1") for w in select_workloads(s.workloads)]
        assert not set(single) & set(first.workloads), "it is asked again"
        assert {*single, *first.workloads} == {w.name for w in select_workloads(["ace1", "ace1more"])}


def test_a_function_that_is_new_or_gone_counts() -> None:
    for sign in "+-":
        moved = hunk_in("out:", f"{sign}static long ext4_collapse_range(struct file *file)\n")
        assert stages(affected_by(["fs/ext4/extents.c"], moved))[0].name == "operations"


@pytest.mark.parametrize(
    "function",
    ["int ext4_sync_file(struct file *file)", "static int ext4_ext_insert_extent(handle_t *h)", ""],
)
def test_other_functions_bring_no_operation_to_the_front(function: str) -> None:
    assert stages(affected_by(["fs/ext4/extents.c"], hunk_in(function)))[0].name == "quick"


def test_a_function_s_name_is_on_one_line() -> None:
    """`struct foo {` and a call far below it were a function, and the search took the square of the lines."""
    call = "@@ -1 +1 @@ struct foo {\n-\tint a;\n+\tint b;\n \text4_rename(a);\n"
    assert stages(affected_by(["fs/ext4/namei.c"], lambda file: call))[0].name == "quick"


def test_operations_in_front_are_bounded_by_cases() -> None:
    """50 workloads in 4 modes, each once before the quick cases of any mode."""
    direct, link = hunk_in("iomap_dio_rw("), hunk_in("iomap_link(")
    assert stages(affected_by(["fs/iomap/direct-io.c"], direct))[0].name == "quick"
    assert stages(affected_by(["fs/iomap/direct-io.c"], link))[0].name == "operations"
    assert stages(affected_by(["fs/xfs/xfs_file.c"], direct))[0].name == "operations"


@pytest.mark.parametrize(
    ("function", "only"),
    [("ext4_cross_rename(", "exchange"), ("ext4_get_link(", "symlink"), ("nd_set_link(", "symlink"),
     ("ext4_link(", "link"), ("ext4_rename2(", "rename")],
)  # fmt: skip
def test_a_name_that_holds_another_operation_s_is_not_of_that(function: str, only: str) -> None:
    """A patch to the exchange of two names was asked 70 workloads, half of them renames."""
    asked = affected_by(["fs/ext4/namei.c"], hunk_in(function)).operations
    assert asked
    assert all(w.startswith(f"ace-{only}") for w in asked)


def test_a_patch_about_many_operations_is_asked_general_sets_first() -> None:
    hunks = "".join(f"@@ -1 +1 @@ int fs_{word}(int a)\n-x\n" for word in ("rename", "fallocate", "setxattr"))
    assert stages(affected_by(["fs/ext4/super.c"], lambda file: hunks))[0].name == "quick"


def test_steps_of_operations_are_there() -> None:
    names = [w.name for w in select_workloads(["ace1", "ace1more"])]
    for steps in _shared_code().operations.values():
        for step in steps:
            assert any(f"{n.partition('.')[0]}-".startswith(f"ace-{step}-") for n in names), step


def test_words_of_a_mode_in_changed_lines_bring_it_to_the_front() -> None:
    """A range that a fast commit no longer told of was asked in all modes, long after the usual one."""
    told = hunk_in("int f(void)", "-\text4_fc_mark_ineligible(sb, EXT4_FC_REASON_FALLOC_RANGE, handle);\n")
    assert affected_by(["fs/ext4/extents.c"], told).first == ("ext4/fast_commit", "ext4/ordered")
    assert affected_by(["fs/ext4/extents.c"], hunk_in("void ext4_fc_x(void)")).first == ("ext4/ordered",)
    assert affected_by(["fs/xfs/xfs_log.c"], told).first == ("xfs/default",)
    inline = hunk_in("int f(void)", "+\tif (ext4_has_inline_data(inode))\n")
    assert "ext4/inline_data" in affected_by(["fs/ext4/extents.c"], inline).first


def test_code_of_a_stack_is_asked_on_that_stack() -> None:
    assert affected_by(["drivers/md/raid5-ppl.c"]).first == (
        "ext4/ordered@raid5-journal", "ext4/ordered@raid5-ppl", "ext4/ordered@raid5", "ext4/ordered@raid6",
    )  # fmt: skip


def test_shared_code_is_asked_of_a_few_file_systems() -> None:
    assert affected_by(["block/blk-flush.c"]).first == (
        "ext4/ordered", "xfs/default", "btrfs/default", "f2fs/posix",
    )  # fmt: skip


def test_files_that_nothing_runs_are_named() -> None:
    asked = affected_by(["Documentation/x.rst", "fs/btrfs/inode.c"])
    assert (asked.first, asked.nobodys) == (("btrfs/default",), ("Documentation/x.rst",))
    assert not asked.named
    beside = affected_by(["fs/ext4/inode.c", "fs/hfsplus/extents.c"])
    assert beside.nobodys == ("fs/hfsplus/extents.c",)
    assert beside.named["fs/hfsplus/extents.c"].startswith("hfsplus/"), "it said that no mode runs it"
    with pytest.raises(NothingToAsk, match=r"nothing here is known to run Documentation/x\.rst"):
        affected_by(["Documentation/x.rst"])


def test_a_file_system_that_has_to_be_named_is_told() -> None:
    """ "Nothing here runs fs/hfsplus", whose fsck is not free: `-c hfsplus/default` runs it."""
    with pytest.raises(NothingToAsk, match="only if they are named") as refused:
        affected_by(["fs/hfsplus/inode.c"])
    assert "hfsplus/default" in refused.value.next_step


def test_a_stack_whose_driver_our_kernels_lack_has_to_be_named() -> None:
    """Eight stages of dm-vdo were planned; kernels were built for minutes, and then no case could run."""
    file, options = "drivers/md/dm-vdo/vdo.c", "--config FILE, with CONFIG_DM_VDO=y CONFIG_DM_ZERO=y in it"
    with pytest.raises(NothingToAsk, match="only if they are named") as refused:
        affected_by([file])
    assert refused.value.next_step == (
        f"name them: -c ext4/ordered@vdo-dedup,ext4/ordered@vdo, and build their drivers: {options}"
    )
    beside = affected_by(["fs/ext4/inode.c", file])
    assert not any("@vdo" in name for name in beside.first)
    assert beside.nobodys == (file,)
    assert to_name([beside.named[file]]) == f"-c ext4/ordered@vdo, and build their drivers: {options}"
    assert chosen(["ext4/ordered@vdo"], [file]).nobodys == ()


def test_a_changed_recovery_is_cut_again_and_meets_a_faulty_disk() -> None:
    """The long stages come after what shows more: a minute about btrfs's log ended on the faulty disk, and
    three upstream bugs that oldtree shows were missed.
    """
    asked = stages(affected_by(["fs/jbd2/recovery.c"]))
    assert [s.name for s in asked[:7]] == [
        "quick", "all", "more", "recovery-cut-again", "oldtree", "beside", "recovery-on-a-faulty-disk",
    ]  # fmt: skip
    assert [(s.again, s.disk) for s in asked if s.again or s.disk] == [(1, ()), (0, ("errors",))]
    assert asked[7].name == "quick-other-modes"
    assert not any(s.again or s.disk for s in stages(affected_by(["fs/jbd2/commit.c"])))


def test_stages_have_names_of_their_own() -> None:
    """A stage is kept by its name: two of one name would be one."""
    for asked in (affected_by(["fs/jbd2/recovery.c"]), AffectedModes(("xfs/default",))):
        for words in ((), ("append-fsync",)):
            names = [s.name for s in stages(asked, words)]
            assert len(set(names)) == len(names)


def test_no_case_is_asked_twice_of_one_kernel() -> None:
    """`all` ran what `quick` had run, nine of its fourteen cases, before any case of `more`."""
    asked = stages(affected_by(["fs/ext4/inode.c"]))
    names = [w.name for stage in asked[:3] for w in select_workloads(stage.workloads)]
    assert len(names) == len(set(names))
    assert set(names) == {w.name for w in select_workloads(["quick", "all", "more"])}


def test_what_the_user_names_is_asked_and_nothing_else() -> None:
    asked = chosen(["ext4/journal"], ["fs/jbd2/commit.c"])
    (stage,) = stages(asked, ["append-fsync"])
    assert (stage.modes, stage.workloads) == (("ext4/journal",), ("append-fsync",))


@pytest.mark.parametrize("modes", [["any"], ["ext4/ordered", "any/posix"], ["any/ext4-ordered"]])
def test_a_mode_that_is_only_rules_is_not_asked_about_a_patch(modes: list[str]) -> None:
    """No kernel ran there, so every patch passed."""
    with pytest.raises(UsageError, match="runs no kernel"):
        chosen(modes, ["fs/jbd2/commit.c"])


@pytest.mark.parametrize(
    ("mode", "file", "named"),
    [
        ("ext4/ordered", "drivers/net/foo.c", ""),
        ("ext4/ordered", "fs/btrfs/inode.c", "btrfs/default"),
        ("ext4/ordered", "drivers/md/dm-writecache.c", "ext4/ordered@writecache"),
        ("ext4/ordered", "fs/overlayfs/super.c", "ext4/ordered@overlay"),
        ("xfs/default", "fs/xfs/xfs_exchrange.c", "xfs/exchange"),
    ],
)
def test_named_modes_that_do_not_run_a_changed_file_are_told_so(mode: str, file: str, named: str) -> None:
    """Nothing was said: mistakes were planted in a file that nothing ran, and the page read as a pass."""
    asked = chosen([mode], ["fs/ext4/inode.c", "fs/xfs/xfs_log.c", "fs/iomap/direct-io.c", file])
    assert file in asked.nobodys
    assert asked.named.get(file, "") == named
    if named:
        assert file not in chosen([named], [file]).nobodys


@pytest.mark.parametrize(
    ("mode", "file"),
    [
        ("ext4/ordered", "fs/jbd2/commit.c"),
        ("ext4/fast_commit", "fs/ext4/fast_commit.c"),
        ("minix", "block/blk-flush.c"),
        ("ext4/ordered@raid1", "drivers/md/raid1.c"),
        ("ext4/ordered@loop", "drivers/block/loop.c"),
        ("ext4/ordered@overlay", "fs/overlayfs/super.c"),
    ],
)
def test_what_a_named_mode_runs_is_asked(mode: str, file: str) -> None:
    assert chosen([mode], [file]).nobodys == ()


def test_recovery_that_the_named_modes_do_not_run_is_not_cut() -> None:
    """Stages of minutes cut recoveries of a mode that had not been named."""
    assert chosen(["ext4/fast_commit"], ["fs/ext4/fast_commit.c"]).recovery == ("fs/ext4/fast_commit.c",)
    assert chosen(["ext4/ordered"], ["fs/ext4/fast_commit.c"]).recovery == ()


def test_every_file_system_and_stack_says_which_code_is_its_own() -> None:
    """A patch to one that does not would be asked nothing."""
    assert [p.name for p in profiles().values() if not p.source] == []
    assert [name for name, stack in stacks().items() if not stack.source] == []


def test_a_mode_on_a_disk_that_nobody_can_name_is_refused() -> None:
    with pytest.raises(UsageError, match="ext4/ordered@image begins with a disk that you have"):
        chosen(["ext4/ordered@image"], ["fs/ext4/inode.c"])
