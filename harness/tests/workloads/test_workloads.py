"""Workload files: the operation language, fio job files, and errors that say what to do."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.guests import wire
from harness.model import Operation, OperationKind
from harness.oracles import ORACLES
from harness.store.layout import RunLayout
from harness.workloads import load
from harness.workloads.applications import need_name
from harness.workloads.generate import chance, names_of
from harness.workloads.load import (
    BY_HANDLE,
    MAX_NAMES,
    load_workload,
    parse_operation,
    select_workloads,
    workload_files,
    workload_sets,
)

NAMES = st.from_regex(r"[a-z]{1,4}(/[a-z.]{1,4}[a-z])?", fullmatch=True)
HANDLES = st.from_regex(r"@[a-z]{1,4}", fullmatch=True)
ATTRIBUTES = st.from_regex(r"(user\.|@|/)[a-z./:@]{1,8}", fullmatch=True)  # none is a path or a handle
SIZES = st.integers(0, 1 << 34)
OWNERS = st.integers(0, (1 << 32) - 2)


K = OperationKind
FLAGS = {
    K.WRITE: [(), ("sync",), ("direct", "dsync")],
    K.MMAP_WRITE: [(), ("sync",), ("sync-range",), ("past-end",)],
    K.FALLOCATE: [(), ("keep-size",), ("zero-range", "keep-size"), ("insert-range",)],
    K.SYNC_FILE_RANGE: [(), ("async",)],
}
TARGETS = {
    **dict.fromkeys((K.OPEN, K.OPEN_TMPFILE), HANDLES),
    **dict.fromkeys((K.LINK, K.SYMLINK, K.RENAME, K.EXCHANGE, K.CLONE, K.SNAPSHOT), NAMES),
}
LENGTHS = {
    K.CHMOD: st.integers(0, 0o7777),
    **dict.fromkeys((K.APPEND, K.TRUNCATE, K.TMPFILE, K.TOUCH), SIZES),
}
ALONE = (K.SYNC, K.BEGIN_SYNC, K.WRITE_BACK, K.DROP_CACHES, K.REMOUNT, K.GC, K.SHUTDOWN)


@st.composite
def operations(draw: st.DrawFn) -> Operation:
    kind = draw(st.sampled_from([k for k in K if k is not K.RUN]))
    if kind in ALONE:
        return Operation(kind)
    if kind is K.CRASH:
        return Operation(kind, argv=(draw(st.from_regex(r"[0-9]{1,4}|@t?[1-9][0-9]{0,3}", fullmatch=True)),))
    if kind is K.CLOSE:
        return Operation(kind, draw(HANDLES))
    path = draw(NAMES | HANDLES if kind in BY_HANDLE else NAMES)
    if kind in FLAGS:
        flags = draw(st.sampled_from(FLAGS[kind]))
        return Operation(kind, path, offset=draw(SIZES), length=draw(SIZES), flags=flags)
    if kind is K.COPY_RANGE:
        return Operation(kind, path, draw(NAMES), offset=draw(SIZES), length=draw(SIZES))
    if kind is K.EXCHANGE_RANGE:
        return Operation(kind, path, draw(NAMES), flags=draw(st.sampled_from([(), ("dsync",)])))
    if kind in (K.SETXATTR, K.REMOVEXATTR):
        value = draw(NAMES).encode() if kind is K.SETXATTR else b""
        return Operation(kind, path, name=draw(ATTRIBUTES), value=value)
    if kind is K.CHATTR:
        return Operation(kind, path, value=draw(st.sampled_from([b"+S", b"-S", b"+D", b"-F", b"+C"])))
    if kind is K.CHOWN:
        return Operation(kind, path, offset=draw(OWNERS), length=draw(OWNERS))
    target = draw(TARGETS[kind]) if kind in TARGETS else ""
    return Operation(kind, path, target, length=draw(LENGTHS[kind]) if kind in LENGTHS else 0)


@given(operations())
def test_an_operation_reads_as_it_is_written(operation: Operation) -> None:
    assert parse_operation(str(operation)) == operation


def test_sizes_take_units_and_modes_are_octal() -> None:
    assert parse_operation("write f 4K 2M").offset == 4096
    assert parse_operation("write f 4K 2M").length == 2 << 20
    assert parse_operation("chmod f 640").length == 0o640


def test_a_dot_is_the_root() -> None:
    assert parse_operation("fsync .") == Operation(OperationKind.FSYNC, "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fsnc f", "fsync"),
        ("append f", "append takes path length flags*"),
        ("create f g", "create takes path"),
        ("chown f 0 4294967295", "more than 4294967294"),
        ("chown f root", "chown takes path user group"),
        ("open f h", "'h' is no handle"),
        ("close f", "'f' is no handle"),
        ("fsync @a/b", "'@a/b' is no handle"),
        ("create @h", "path cannot be a handle"),
        ("link f @h", "target cannot be a handle"),
        ("append f many", "'many' is no number"),
        ("create /etc/passwd", "must lie below the mount point"),
        ("create a/../../b", "must lie below the mount point"),
        ("mkdir d/", "'d/' has a / or a . that names nothing"),
        ("create d//f", "'d//f' has a / or a . that names nothing"),
        ("fsync ./d/f", "'./d/f' has a / or a . that names nothing"),
        ("write f 0 4K snyc", "one of: sync, dsync, direct"),
        ("mmap-write f 0 4K dsync", "one of: sync"),
        ("run fio", "unknown kind 'run'"),
        ("", "unknown kind ''"),
        ("append f -5", "'-5' is no number"),
        ("append f 4KK", "'4KK' is no number"),
        ("append f ٤", "is no number"),
        ("append f M", "'M' is no number"),
        ("write f 0 9223372036854775808", "more than 9223372036854775807"),
        ("write f 32768M 1", "32 GiB"),
        ("truncate f 9223372036854775807", "it ends at byte 9223372036854775807"),
        (f"create {'n' * 256}", "a name of 256 bytes"),
        (f"rename f {'é' * 128}", "a name of 256 bytes"),
        (f"mkdir {'d/' * 2045}dd", "a path of 4092 bytes"),
        (f"setxattr f user.{'a/' * 126} v", "a name of 257 bytes"),
        ("chmod f 8", "no permission bits"),
        ("chmod f 17777", "no permission bits"),
        ("chmod f -1", "no permission bits"),
    ],
)
def test_a_wrong_operation_says_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_operation(text)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "text", [f"create {'n' * 255}", f"mkdir {'d/' * 2044}dd", "write f 32767M 1M", "sync-file-range f 0 0"]
)
def test_what_a_guest_can_do_and_tell_is_taken(text: str) -> None:
    assert str(parse_operation(text)) in (text, text.replace("32767M 1M", "34358689792 1048576"))


def test_more_names_than_a_guest_can_tell_are_refused_when_loading(tmp_path: Path) -> None:
    """50,000 entries were damage of the file system, found after the recording: a mail to its maintainers."""
    assert wire.LIMITS["ENTRIES"] - 200 < MAX_NAMES < wire.LIMITS["ENTRIES"]
    file = tmp_path / "many.toml"

    def of(names: int) -> str:
        made = f'{{ repeat = {names}, operations = ["create f{{n}}"] }}'
        return f'summary = "many"\noperations = [{made}, "unlink f7", "create g", "create h", "sync"]\n'

    file.write_text(of(MAX_NAMES))
    with pytest.raises(UsageError, match=f"{MAX_NAMES + 1} names at once"):
        load_workload(str(file))
    file.write_text(of(MAX_NAMES - 1))
    assert len(load_workload(str(file)).operations) == MAX_NAMES + 3


def test_every_workload_of_the_repository_loads() -> None:
    names = workload_files()
    assert len(names) >= 9
    for workload in select_workloads(["all"]):
        assert workload.summary
        assert workload.operations


def test_fio_sections_become_operations_with_checks() -> None:
    workload = load_workload("fio-randwrite")
    assert workload.opaque
    assert [c.operation for c in workload.checks] == list(range(len(workload.operations)))
    assert workload.programs == ("fio",)
    assert workload.checks[0].argv[1:3] == ("--aux-path=/", "--verify_only"), "it writes nothing below /mnt"
    (job,) = workload.files
    assert workload.operations[0].argv[-1] == job


def test_an_unknown_workload_names_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        load_workload("apend-fsync")
    assert "append-fsync" in str(caught.value)


def test_a_file_of_ones_own_is_a_workload(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('summary = "x"\noperations = ["create f", "fsync f"]\n')
    assert load_workload(str(path)).name == "mine"


def test_a_bad_file_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('summary = "x"\noperations = ["create f", "fync f"]\n')
    with pytest.raises(UsageError) as caught:
        load_workload(str(path))
    assert str(path) in str(caught.value)
    assert "fync f" in str(caught.value)


def test_a_file_without_operations_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('summary = "x"\noperations = []\n')
    with pytest.raises(UsageError):
        load_workload(str(path))


def test_a_set_stands_for_its_workloads_and_repeats_none() -> None:
    quick = workload_sets()["quick"]
    assert [w.name for w in select_workloads(["quick", quick[0]])] == quick
    assert set(quick) < set(workload_sets()["all"])


def test_a_folder_of_files_is_a_set_that_all_leaves_out() -> None:
    apart = workload_sets()["more"]
    assert "journal-wrap" in apart
    assert not set(apart) & set(workload_sets()["all"])
    assert [w.name for w in select_workloads(["more"])] == apart
    assert load_workload("journal-wrap").name == "journal-wrap"


def test_operations_repeat_with_a_number(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'summary = "x"\noperations = ["mkdir d", { repeat = 2, operations = ["create f{n}", "sync"] }]\n'
    )
    told = [str(o) for o in load_workload(str(path)).operations]
    assert told == ["mkdir d", "create f0", "sync", "create f1", "sync"]


def test_operations_are_done_with_every_combination_of_choices(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("""summary = "x"
operations = [{ operations = ["{make.it}", "{then}", "fsync {n}"], each.make = [
    { it = "create {n}" }, { it = "mkdir {n}; mkdir {n}/d" },
], each.then = ["", "chmod {n} 700"] }]
""")
    told = [str(o) for o in load_workload(str(path)).operations]
    assert told == [
        *("create 0", "fsync 0", "create 1", "chmod 1 700", "fsync 1"),
        *("mkdir 2", "mkdir 2/d", "fsync 2", "mkdir 3", "mkdir 3/d", "chmod 3 700", "fsync 3"),
    ]


def test_a_choice_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('summary = "x"\noperations = [{ operations = ["create {h}"], each.g = ["f"] }]\n')
    with pytest.raises(UsageError, match=r"mine.toml: \{h\} is no choice") as e:
        load_workload(str(path))
    assert e.value.next_step == "these are: n, g"


def test_too_many_repetitions_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('summary = "x"\noperations = [{ repeat = 1000000000000, operations = ["sync"] }]\n')
    with pytest.raises(UsageError, match="65535 operations"):
        load_workload(str(path))


@pytest.mark.parametrize("name", workload_sets()["beside"])
def test_in_beside_what_is_synced_is_being_written_already(name: str) -> None:
    """Two bugs of F2FS take an fsync that meets a checkpoint; one thread alone shows neither. Dropping caches
    only takes time.
    """
    workload = load_workload(name)
    beside = [i for i, op in enumerate(workload.operations) if op.kind in (K.BEGIN_SYNC, K.WRITE_BACK)]
    assert beside
    for i in beside:
        after = [op for op in workload.operations[i + 1 :] if op.kind is not K.DROP_CACHES]
        assert any(op.kind in (K.FSYNC, K.FDATASYNC) for op in after[:3]), workload.operations[i + 1]
    assert not any(workload.operations[i].persists for i in beside)


@pytest.mark.parametrize("name", workload_sets()["oldtree"])
def test_the_trees_of_oldtree_are_on_disk_before_anything_happens_to_them(name: str) -> None:
    """All of each tree is used: a choice that was added without its tree would be refused, one that was taken
    away would leave trees to which nothing happens.
    """
    operations = load_workload(name).operations
    first = next(i for i, op in enumerate(operations) if op.persists)
    assert operations[first].kind in (K.SYNC, K.REMOUNT)
    made = {op.path for op in operations[:first] if op.kind is K.MKDIR and op.path.isdigit()}
    used = {path.partition("/")[0] for op in operations[first:] for path in (op.path, op.target)}
    assert made <= used


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_shards_are_a_partition(count: int) -> None:
    whole = [w.name for w in select_workloads(["ace1", "quick"])]
    parts = [
        [w.name for w in select_workloads(["ace1", "quick"], f"{i}/{count}")] for i in range(1, count + 1)
    ]
    assert sorted(itertools.chain(*parts)) == sorted(whole)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("name", ["we ird", "a@b", "\u00e4", "-x", "we ird.s2"])
def test_a_file_whose_name_could_name_no_crash_point_is_refused(name: str, tmp_path: Path) -> None:
    """It was recorded and judged, and then no command took the name that its findings had."""
    file = tmp_path / f"{name}.toml"
    file.write_text('summary = ""\noperations = ["sync"]\n')
    with pytest.raises(UsageError, match="a workload cannot be named"):
        load_workload(str(file))


def test_two_workloads_of_one_name_are_refused(tmp_path: Path) -> None:
    """Their cases would be one, and a finding of either could be lost."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.toml").write_text(f'summary = ""\noperations = ["create {folder}"]\n')
    wanted = [str(tmp_path / folder / "mine.toml") for folder in ("a", "b")]
    with pytest.raises(UsageError, match="two workloads of one run are named 'mine'"):
        select_workloads(wanted)
    (tmp_path / "b/mine.toml").write_bytes((tmp_path / "a/mine.toml").read_bytes())
    assert len(select_workloads(wanted)) == 1


@pytest.mark.parametrize("shard", ["0/3", "4/3", "1", "a/b", "1/0", "-1/2", "1/2/3"])
def test_a_shard_that_is_none_is_refused(shard: str) -> None:
    with pytest.raises(UsageError):
        select_workloads(["quick"], shard)


MANY = "9" * 5000
"""More digits than int() takes."""


def test_numbers_of_any_length_are_refused_in_words() -> None:
    """One of more than 4,300 digits was told as a defect of powercut."""
    for operation in (f"append f {MANY}", f"write f {MANY}K 1", f"chown f {MANY} 0"):
        with pytest.raises(UsageError, match="the kernel's limit"):
            parse_operation(operation)
    with pytest.raises(UsageError):
        parse_operation(f"crash {MANY}")
    for shard in (f"0/{MANY}", f"{MANY}/2", f"{MANY}/{MANY}"):
        with pytest.raises(UsageError, match="shard"):
            select_workloads(["quick"], shard)
    for name in (f"random{MANY}-1-4", f"random1-{MANY}-4", f"random1-1-{MANY}"):
        with pytest.raises(UsageError, match="no random workload"):
            chance.workload(name)


def test_a_shard_without_workloads_is_refused() -> None:
    with pytest.raises(UsageError, match="holds none"):
        select_workloads(["append-fsync"], "2/2")


@pytest.mark.parametrize("name", ["mine.toml", "mine.fio"])
def test_a_binary_file_is_no_workload(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x93\xff\x00\x80" * 100)
    with pytest.raises(UsageError, match=name):
        load_workload(str(tmp_path / name))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[a]\nrw=write\n", r"\[a\] has no verify="),
        ("[a]\nverify=0\n[b]\nrw=write\n", r"\[a\] has verify=0, \[b\] has no verify=, so nothing"),
        ("[global]\nverify=crc32c\n[a]\nverify=null\n", r"\[a\] has verify=null"),
        ("[global]\ndo_verify=0\n[a]\nverify=crc32c\n", r"\[a\] has do_verify=0"),
    ],
)
def test_a_fio_job_that_verifies_nothing_is_refused(text: str, why: str, tmp_path: Path) -> None:
    """It kept every promise, with its data lost."""
    (tmp_path / "mine.fio").write_text(text)
    with pytest.raises(UsageError, match=why):
        load_workload(str(tmp_path / "mine.fio"))


def test_a_fio_section_that_only_makes_load_has_no_check(tmp_path: Path) -> None:
    """A legal job file was refused, since nothing would be looked at; the other section is."""
    text = "[noise]\nrw=write\n[data]\nverify=crc32c\n[idle]\nrw=read\n[more]\nverify=md5\n"
    (tmp_path / "mine.fio").write_text(text)
    workload = load_workload(str(tmp_path / "mine.fio"))
    assert [op.argv[1] for op in workload.operations] == [
        f"--section={section}" for section in ("noise", "data", "idle", "more")
    ]
    assert [(c.operation, c.argv[3]) for c in workload.checks] == [
        (1, "--section=data"),
        (3, "--section=more"),
    ]


def test_a_global_fio_section_below_the_jobs_that_need_it_is_refused(tmp_path: Path) -> None:
    """fio applies [global] to the jobs below it: the check of those above found nothing wrong, ever."""
    (tmp_path / "mine.fio").write_text("[global]\nbs=4k\n[a]\nrw=write\n[global]\nverify=crc32c\n")
    with pytest.raises(UsageError, match=r"mine\.fio: \[a\] stands above the \[global\] with verify="):
        load_workload(str(tmp_path / "mine.fio"))
    (tmp_path / "mine.fio").write_text("[a]\nverify=md5\n[global]\nverify=crc32c\n[b]\nrw=write\n")
    assert [c.operation for c in load_workload(str(tmp_path / "mine.fio")).checks] == [0, 1]


def test_a_fio_job_may_have_any_name(tmp_path: Path) -> None:
    """[DEFAULT] means something to Python's parser, and was no job: it was never run."""
    (tmp_path / "mine.fio").write_text("[DEFAULT]\nverify=crc32c\n[b]\nrw=write\n")
    workload = load_workload(str(tmp_path / "mine.fio"))
    assert [op.argv[1] for op in workload.operations] == ["--section=DEFAULT", "--section=b"]
    assert [c.operation for c in workload.checks] == [0], "and shares nothing with the others"


def test_fio_lines_may_be_indented(tmp_path: Path) -> None:
    """An indented verify= went on with the line above, and was said to be missing."""
    (tmp_path / "mine.fio").write_text("  [a]\nrw=randwrite\n  size=64k\n\tverify=crc32c\n")
    assert len(load_workload(str(tmp_path / "mine.fio")).checks) == 1


@pytest.mark.parametrize("above", ["", "\n", ";\n", "[global]\n\n  ", "# \n;; "])
def test_a_fio_workload_is_summed_up_by_its_first_comment(above: str, tmp_path: Path) -> None:
    """An empty line above it was taken for a comment that says nothing."""
    (tmp_path / "mine.fio").write_text(f"{above}; random writes\n[job]\nverify=crc32c\n")
    assert load_workload(str(tmp_path / "mine.fio")).summary == "random writes"


def test_a_fio_job_reads_the_files_that_it_names_itself(tmp_path: Path) -> None:
    (tmp_path / "mine.fio").write_text("[global]\nverify=crc32c\n[a]\nfilename=data\n")
    (check,) = load_workload(str(tmp_path / "mine.fio")).checks
    assert check.reads == ("*",)


@pytest.mark.parametrize(
    "block",
    [
        "repeat = 1000000000000, operations = []",
        'repeat = 1000000000000, operations = ["{a}"], each = {a = [""]}',
        'operations = ["' + "".join(f"{{{a}}}" for a in "abcdefghijkl") + '"], each = {'
        + ", ".join(f'{a} = ["", "", "", "", "", "", "", "", "", ""]' for a in "abcdefghijkl") + "}",
    ],
)  # fmt: skip
def test_a_block_that_comes_to_nothing_ends(block: str, tmp_path: Path) -> None:
    """It was repeated for hours, to look for an operation."""
    path = tmp_path / "mine.toml"
    path.write_text(f'summary = "x"\noperations = ["create f", {{{block}}}]\n')
    with pytest.raises(UsageError, match=r"no operations|come to nothing"):
        load_workload(str(path))


def test_most_choices_of_a_block_may_come_to_nothing(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    each = 'each = {a = ["", "", "", "fsync f"]}'
    block = f'{{repeat = 10000, operations = ["{{a}}", "{{a}}"], {each}}}'
    path.write_text(f'summary = "x"\noperations = ["create f", {block}]\n')
    assert len(load_workload(str(path)).operations) == 20_001


@pytest.mark.parametrize("key", ["repeat = -3", "repeat = 0", "each = {s = []}"])
def test_a_block_of_operations_that_would_vanish_is_refused(key: str, tmp_path: Path) -> None:
    """It was left out without a word."""
    path = tmp_path / "mine.toml"
    path.write_text(f'summary = "x"\noperations = ["create a", {{{key}, operations = ["fsync a"]}}]\n')
    with pytest.raises(UsageError, match=r"at least 1|no choices"):
        load_workload(str(path))


def test_a_fio_file_that_does_not_parse_says_where(tmp_path: Path) -> None:
    (tmp_path / "mine.fio").write_text("bs=4k\n[job]\n")
    with pytest.raises(UsageError, match=r"mine\.fio"):
        load_workload(str(tmp_path / "mine.fio"))


def test_what_is_no_workload_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my-db").mkdir()
    Path("notes.txt").write_text("x")
    for name, says in (
        ("my-db", "named by its path: ./my-db"),
        ("notes.txt", "*.toml or *.fio"),
        ("gone.toml", "no such file"),
        ("./gone", "no such file"),
    ):
        with pytest.raises(UsageError) as caught:
            load_workload(name)
        assert says in str(caught.value)


@pytest.mark.parametrize(
    ("operations", "says"),
    [
        (["create f", "unlink g"], "operation 1, `unlink g`: g does not exist"),
        (["mkdir d", "mkdir d"], "operation 1, `mkdir d`: d exists already"),
        (["mkdir d", "write d 0 4096"], "d is a directory"),
        (["create f", "open f @h", "close @h", "fsync @h"], "operation 3, `fsync @h`: @h is not open"),
        (["create f", "open f @h", "open f @h"], "@h is open already"),
        (["create f", "open f @h", "unlink f", "link @h g"], "link cannot give it another"),
        (["create f", "open f @h", "remount"], "@h is still open"),
        (["create f", "append f 2", "create g", "append g 3", "clone f g"], "g is longer"),
        (["create f", "append f 2", "link f g", "clone f g"], "g is the same file"),
        (["create f", "link f g", "exchange-range f g"], "g is the same file"),
        (["mkdir d", "open d @h", "append @h 1"], "@h is a directory"),
    ],
)
def test_a_mistake_in_a_workload_is_told_before_anything_is_recorded(
    operations: list[str], says: str, tmp_path: Path
) -> None:
    """It was recorded, failed in the guest, and read "the workload does not fit this file system"."""
    file = tmp_path / "mine.toml"
    file.write_text(f'summary = "mine"\noperations = {json.dumps(operations)}\n')
    with pytest.raises(UsageError) as caught:
        load_workload(str(file))
    assert f"{file}: " in caught.value.what
    assert says in caught.value.what


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('sumary = "s"\noperations = ["sync"]\n', "is summary meant?"),
        ('summary = "s"\noperations = ["sync"]\nzzz = 1\n', "leave out zzz; there is summary, operations"),
        ('operations = ["sync"]\n', "it needs summary and operations"),
    ],
)
def test_a_wrong_key_is_told_as_such(tmp_path: Path, text: str, hint: str) -> None:
    """It was said to need `summary`, which was there."""
    file = tmp_path / "own.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_workload(str(file))
    assert hint in caught.value.next_step


def test_a_workload_a_set_and_a_generated_one_can_be_asked_for_under_a_schedule() -> None:
    plain, scheduled = select_workloads(["append-fsync", "append-fsync.s2"])
    assert (plain.name, scheduled.name) == ("append-fsync", "append-fsync.s2")
    assert scheduled.operations == plain.operations
    assert [w.name for w in select_workloads(["quick.s1"])] == [f"{w}.s1" for w in workload_sets()["quick"]]
    (by_chance,) = select_workloads(["random2-7-20.s3"])
    assert by_chance.name == "random2-7-20.s3"
    assert by_chance.operations == load_workload("random2-7-20").operations


def test_ones_own_file_is_recorded_under_a_schedule_that_is_asked_for(tmp_path: Path) -> None:
    """A file `short.s1.toml` was recorded under schedule 1, and nothing said so."""
    file = tmp_path / "mine.toml"
    file.write_text('summary = "s"\noperations = ["create f"]\n')
    (mine,) = select_workloads([f"{tmp_path}/mine.toml.s2"])
    assert mine.name == "mine.s2"
    with pytest.raises(UsageError, match="no workload"):
        select_workloads([f"{tmp_path}/none.toml.s2"])
    file.rename(tmp_path / "short.s1.toml")
    with pytest.raises(UsageError, match=r"cannot be named 'short\.s1'"):
        select_workloads([str(tmp_path / "short.s1.toml")])


def test_a_name_that_no_file_of_a_run_could_have_is_refused(tmp_path: Path) -> None:
    """A run of 240 letters ended in the middle (ENAMETOOLONG), and one of 130 could not be packed."""
    for length in (64, 65):
        (tmp_path / f"{'n' * length}.toml").write_text('summary = "s"\noperations = ["create f"]\n')
    assert load_workload(str(tmp_path / f"{'n' * 64}.toml")).name == "n" * 64
    with pytest.raises(UsageError, match="cannot be named") as caught:
        load_workload(str(tmp_path / f"{'n' * 65}.toml"))
    assert "at most 64 letters" in caught.value.next_step


def test_the_file_of_a_shrunk_workload_can_be_run(tmp_path: Path) -> None:
    """Of a generated workload, whose name has up to 88 letters, it could not be packed either."""
    for workload in (max(names_of("ace2"), key=len), "append-fsync.s2", f"{'n' * 29}.s1+7"):
        for oracle in ORACLES:
            need_name(RunLayout(tmp_path).shrunk(workload, oracle, "0" * 12).stem)


def test_applications_are_not_read_to_load_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A set of 89 files read each application 89 times."""
    monkeypatch.setattr(load, "applications", lambda: pytest.fail("all of them were read"))
    assert load.load_workload("append-fsync").name == "append-fsync"
