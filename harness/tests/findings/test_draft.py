"""What `powercut bugreport` writes: a script that does the operations, and what is left TO DO."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.filesystems.profiles import profiles, select_profiles
from harness.findings.bug_report import NO_CHECK, load
from harness.findings.draft import _numbers, draft, log_excerpt, renumbered, script, slug_of
from harness.findings.shell import shell_line, shell_lines
from harness.findings.shrink import Shrunk, workload_file
from harness.host.files import file_hash
from harness.host.resources import resource
from harness.model import CaseId, CrashState, Operation, OperationKind, Workload
from harness.plan import Plan
from harness.report.explanation import Rung, write_explanation
from harness.report.strip import Strip, StripCell, write_strip
from harness.store import RunStore
from harness.store.records import Finding
from harness.summary import CaseVerdict
from harness.tests.cli.runner import powercut, refused
from harness.tests.explain.test_explain import explanation
from harness.tests.report.demo import append_fsync, demo_run
from harness.trust import Named
from harness.workloads.load import load_workload, parse_operation

EVERY_KIND = """
create f
append f 5000
append f 300 dsync
write f 4096 100 sync
write f 0 10 direct
mmap-write f 0 8 sync
mmap-write f 0 8 sync-range
sync-file-range f 0 4096
sync-file-range f 0 4096 async
truncate f 4500
fallocate f 0 4096 punch-hole
fallocate f 0 8192 keep-size
fallocate f 0 4096 zero-range
mkdir d
rmdir d
mkfifo p
mknod n
link f g
symlink s f
rename g h
exchange f h
unlink h
setxattr f user.a it's
removexattr f user.a
chmod f 600
chown f 1000 100
chattr f +S
enable-verity v
clone f h
exchange-range f h
exchange-range f h dsync
fallocate f 0 4096 collapse-range
fallocate f 0 4096 insert-range
copy-range f h 0 100
touch f 1000000000
tmpfile A/foo 5000
fsync f
fdatasync f
fsync .
sync
drop-caches
begin-sync
write-back
subvolume v
snapshot v w
subvolume-delete w
gc
""".strip().splitlines()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunStore]:
    with demo_run(tmp_path) as store:
        yield store


def shrink_to(run: RunStore, finding: Finding, *operations: str) -> None:
    """Leave what `powercut shrink` leaves."""
    workload = Workload("short", "", tuple(map(parse_operation, operations)))
    (run.path / "shrunk").mkdir()
    file = run.layout.shrunk(finding.case.workload, finding.oracle, finding.id)
    shrunk = Shrunk(workload, finding.oracle, f"@7 {finding.oracle}: a: it is gone", 3)
    file.write_text(workload_file(shrunk, finding.case, finding.id))


def put_function() -> str:
    template = resource("reports", "templates", "reproduce.sh").read_text()
    found = re.search(r"^put\(\) \{\n.*?^\}$", template, re.MULTILINE | re.DOTALL)
    assert found
    return found[0]


def done_by_shell(folder: Path, *operations: str) -> None:
    lines = shell_lines([parse_operation(text) for text in operations])
    subprocess.run(
        ["sh", "-euc", "\n".join(["umask 022", put_function(), *lines])], cwd=folder, check=True, timeout=60
    )


def test_a_shell_does_what_the_operations_say(tmp_path: Path) -> None:
    done_by_shell(
        tmp_path, "create f", "append f 5000", "append f 10 dsync", "write f 4 3", "mkdir d",
        "rename f d/g", "link d/g hard", "symlink soft hard", "truncate hard 6", "chmod hard 640",
        "fsync hard", "fdatasync hard", "unlink hard",
    )  # fmt: skip
    (file,) = (tmp_path / "d").iterdir()
    assert file.read_bytes() == b"BBBBDD"
    assert file.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "soft").readlink() == Path("hard")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d", "soft"]


def test_data_of_an_append_goes_to_the_end(tmp_path: Path) -> None:
    done_by_shell(tmp_path, "create f", "append f 3", "append f 2")
    assert (tmp_path / "f").read_bytes() == b"BBBCC"


def test_all_flags_of_a_write_reach_dd() -> None:
    """`append f 4096 direct dsync` was written without O_DSYNC: the second flag got lost."""
    line = shell_line(parse_operation("append f 4096 direct dsync"), 0)
    told = 'dd() { echo "$@"; }; stat() { echo 0; }'
    done = subprocess.run(
        ["sh", "-euc", "\n".join([told, put_function(), line])], check=True, capture_output=True, text=True
    )
    assert "oflag=seek_bytes,direct,dsync " in done.stdout


def test_no_path_is_taken_for_an_option_or_ends_a_quotation(tmp_path: Path) -> None:
    """`mkdir -p` made nothing and `touch -f` was refused; a quotation mark in a path ended the script."""
    done_by_shell(
        tmp_path, "create -f", "append -f 3", "chmod -f 640", "rename -f -r", "mkdir -p", "symlink -s -r",
        "fsync -r", "create it's", "link it's -l", "unlink it's",
    )  # fmt: skip
    assert sorted(p.name for p in tmp_path.iterdir()) == ["-l", "-p", "-r", "-s"]
    assert (tmp_path / "-r").read_bytes() == b"BBB"
    assert (tmp_path / "-s").readlink() == Path("-r")


@pytest.mark.parametrize("text", ["tmpfile it's 4096", "clone it's g", "copy-range it's g 0 4096"])
def test_a_command_of_xfs_io_is_one_word_with_any_path(text: str) -> None:
    """`flink it's` had a quotation without an end."""
    words = shlex.split(shell_line(parse_operation(text), 0))
    assert any(word.startswith(("flink", "reflink", "copy_range")) and "it's" in word for word in words)


def test_a_rename_among_two_names_of_one_file_does_nothing(tmp_path: Path) -> None:
    """mv took one of the names away; rename(2) leaves both."""
    done_by_shell(
        tmp_path, "create f", "link f g", "rename f g", "rename g f", "link g h", "rename h h2", "create x",
        "rename x h2",
    )  # fmt: skip
    assert sorted(p.name for p in tmp_path.iterdir()) == ["f", "g", "h2"]
    assert (tmp_path / "f").stat().st_nlink == 2


def test_a_link_replaces_the_file_to_which_it_points(tmp_path: Path) -> None:
    """mv said `'s' and 'f' are the same file`, and that ended the script."""
    done_by_shell(tmp_path, "create f", "symlink s f", "rename s f")
    assert [p.name for p in tmp_path.iterdir() if p.is_symlink()] == ["f"]


@pytest.mark.parametrize("text", ["append f 0", "write f 2 0", "write f 0 0 sync"])
def test_a_write_of_no_bytes_changes_nothing(text: str, tmp_path: Path) -> None:
    """dd said `invalid number: '0'`, and that ended the script."""
    done_by_shell(tmp_path, "create f", "append f 3", text)
    assert (tmp_path / "f").read_bytes() == b"BBB"


def test_a_script_gives_the_modes_that_the_agent_gives(tmp_path: Path) -> None:
    """chmod of a directory kept its set-group-ID bit, and a file of `tmpfile` had mode 600."""
    done_by_shell(tmp_path, "mkdir d", "chmod d 2755", "tmpfile g 5000")
    modes = [(tmp_path / name).stat().st_mode & 0o7777 for name in ("d", "g")]
    done_by_shell(tmp_path, "chmod d 755")
    assert [*modes, (tmp_path / "d").stat().st_mode & 0o7777] == [0o2755, 0o644, 0o755]


@pytest.mark.parametrize("text", ["setxattr s trusted.a b", "removexattr s trusted.a"])
def test_an_attribute_of_a_link_is_its_own(text: str) -> None:
    """setfattr followed the link, unlike lsetxattr(2)."""
    assert shell_line(parse_operation(text), 0).startswith("setfattr -h ")


@pytest.mark.parametrize("value", [b"it's", b"0x41", b"0sQQ==", b'"quoted"', b"\xff\0", b""])
def test_a_value_of_an_attribute_is_never_taken_for_a_code(value: bytes) -> None:
    """setfattr takes 0x41 for the letter A, 0s for base64, and quotes for quotes."""
    line = shell_line(Operation(OperationKind.SETXATTR, "f", name="user.a", value=value), 0)
    code = line.removeprefix("setfattr -h -n user.a -v 0x").removesuffix(" f")
    assert bytes.fromhex(code) == value


def test_an_operation_of_every_kind_becomes_a_line_that_a_shell_understands() -> None:
    operations = [parse_operation(text) for text in EVERY_KIND]
    k = OperationKind
    assert {op.kind for op in operations} == set(k) - {
        k.RUN,
        k.OPEN,
        k.OPEN_TMPFILE,
        k.CLOSE,
        k.START_ATOMIC,
        k.COMMIT_ATOMIC,
        k.ABORT_ATOMIC,
        k.SHUTDOWN,
        k.REMOUNT,
        k.CRASH,
    }
    lines = [shell_line(op, i) for i, op in enumerate(operations)]
    subprocess.run(["sh", "-n", "-c", "\n".join(lines)], check=True)


@pytest.mark.parametrize(
    "text", ["open f @h", "open-tmpfile . @h", "append @h 1", "close @h", "remount", "crash 1"]
)
def test_what_a_shell_cannot_do_becomes_no_script(text: str) -> None:
    with pytest.raises(UsageError, match=f"`{text}` is no line of a shell script"):
        shell_line(parse_operation(text), 0)


def test_a_program_becomes_no_script() -> None:
    with pytest.raises(UsageError, match="is no line of a shell script"):
        shell_line(Operation(OperationKind.RUN, argv=("redis",)), 0)


@pytest.mark.parametrize("mode", ["ext4/ordered", "xfs/default", "f2fs/posix", "nilfs2/default"])
@pytest.mark.parametrize("oracle", ["durability", "fsck", "mountable"])
def test_the_script_is_whole(mode: str, oracle: str, run: RunStore) -> None:
    """Every mark of the template is filled, also where the file system has no fsck."""
    finding = replace(run.findings()[0], oracle=oracle)
    text = script(profiles()[mode], finding, append_fsync())
    subprocess.run(["sh", "-n", "-c", text], check=True)
    assert not re.search(r"@[A-Z_]+@", text)
    assert "powercut" not in text.lower()
    is_allowed_some = profiles()[mode].fsck is not None and mode.startswith("xfs") and oracle == "fsck"
    assert ("TO DO" in text) == (oracle == "durability" or is_allowed_some)


@pytest.mark.parametrize(
    "mode", ["ext4/ordered", "ext4/fast_commit", "xfs/default", "btrfs/default", "f2fs/posix"]
)
def test_the_script_mounts_as_the_mode_does(mode: str, run: RunStore) -> None:
    """A failure of a read-only mount is not shown by a script that mounts at once."""
    filesystem, name = mode.split("/")
    plain = profiles()[mode]
    first = profiles()[f"{filesystem}/{'' if name != 'fast_commit' else 'fast_commit-'}read-only-first"]
    finding = run.findings()[0]
    remount = 'mount -o remount,rw "$DIR/mnt"'
    (line,) = [line for line in script(first, finding, append_fsync()).splitlines() if remount in line]
    assert line.startswith(f'if ! mount -t {filesystem} -o "ro${{OPTIONS:+,$OPTIONS}}" "$AFTER" ')
    assert remount not in script(plain, finding, append_fsync())
    assert first.first_options.split(",") == [*filter(None, ["ro", *plain.mount_options.split(",")])]
    assert (plain.first_options, plain.contract) == (plain.mount_options, first.contract)


def test_a_second_device_is_not_guessed_at(run: RunStore) -> None:
    with pytest.raises(UsageError, match="several devices"):
        script(profiles()["ext4/external-journal"], run.findings()[0], append_fsync())


def test_what_is_done_before_the_mount_is_not_left_out(run: RunStore) -> None:
    """A script without the repair would show something else, or nothing."""
    with pytest.raises(UsageError, match="something is done before it is mounted"):
        script(profiles()["ext4/fsck-first"], run.findings()[0], append_fsync())


@pytest.mark.parametrize("mode", ["ext4/ordered@4k", "ext4/ordered@writethrough", "xfs/no-log-unit"])
def test_another_disk_or_a_step_after_mkfs_is_not_left_out(mode: str, run: RunStore) -> None:
    """The script was that of the usual disk, and without xfs_db, and said nothing of it."""
    (profile,) = select_profiles([mode])
    with pytest.raises(UsageError, match="another kind of disk, or programs that run after mkfs"):
        script(profile, run.findings()[0], append_fsync())


@pytest.mark.parametrize(
    ("mode", "exit_code", "said"),
    [
        ("ext4/ordered", 0, "KEPT: fsck finds nothing wrong"),
        ("ext4/ordered", 4, "BROKEN: fsck finds errors"),
        ("ext4/ordered", 12, "BROKEN: fsck finds errors"),
        ("ext4/ordered", 8, "fsck could not check: it ended with 8"),
        ("ext4/ordered", 127, "fsck could not check: it ended with 127"),
        ("xfs/default", 0, "KEPT: fsck finds nothing wrong"),
        ("xfs/default", 1, NO_CHECK),
        ("nilfs2/default", 0, "KEPT: fsck finds nothing wrong"),
    ],
)
def test_only_an_fsck_that_checked_decides(
    mode: str, exit_code: int, said: str, run: RunStore, tmp_path: Path
) -> None:
    """`BROKEN: fsck finds errors` was said of any code but 0: of an fsck that was killed, or is not there, or
    that found what recovery means to leave.
    """
    profile = profiles()[mode]
    fsck = tmp_path / (profile.fsck.program if profile.fsck else "fsck")
    fsck.write_text(f"#!/bin/sh\nexit {exit_code}\n")
    fsck.chmod(0o755)
    text = script(profile, replace(run.findings()[0], oracle="fsck"), append_fsync())
    check = text[text.rindex("umount") :].partition("\n")[2]
    fail = 'fail() { echo "$*"; exit 2; }'
    done = subprocess.run(
        ["sh", "-euc", f"DIR=.\n{fail}\n{check}"],
        cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert said in done.stdout
    assert done.returncode == (0 if said.startswith(("KEPT", "BROKEN")) else 2), done.stderr


def test_an_fsck_that_is_too_old_decides_nothing(run: RunStore, tmp_path: Path) -> None:
    """btrfs check ends with 1 also where it does not know a feature, and that was BROKEN."""
    profile = profiles()["btrfs/default"]
    assert profile.fsck
    fsck = tmp_path / profile.fsck.program
    fsck.write_text("#!/bin/sh\necho ERROR: unsupported option features 0x2000\nexit 1\n")
    fsck.chmod(0o755)
    text = script(profile, replace(run.findings()[0], oracle="fsck"), append_fsync())
    check = text[text.rindex("umount") :].partition("\n")[2]
    fail = 'fail() { echo "$*"; exit 2; }'
    done = subprocess.run(
        ["sh", "-euc", f"DIR=.\n{fail}\n{check}"],
        cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.partition(":")[0]) == (2, "fsck is too old for this file system")


def test_a_tree_that_cannot_be_listed_is_still_checked(run: RunStore, tmp_path: Path) -> None:
    """ls ends with 1 at a damaged name, and so did the script, in front of its check."""
    stubs = {
        "ls": "echo 'ls: cannot access a: Structure needs cleaning' >&2; exit 1",
        "losetup": "echo /dev/loop",
        "mount": "",
        "umount": "",
        "e2fsck": "exit 4",
    }
    for name, does in stubs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    text = script(profiles()["ext4/ordered"], replace(run.findings()[0], oracle="fsck"), append_fsync())
    end = text[text.index("AFTER=$(") :]
    done = subprocess.run(
        ["sh", "-euc", f"DIR=. OPTIONS=\n{end}"], cwd=tmp_path, timeout=60, check=False,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, "BROKEN: fsck finds errors" in done.stdout) == (0, True), done.stderr


def test_a_crash_before_any_operation_had_returned_is_not_one_after_all(run: RunStore) -> None:
    """`CUT=3`: of no operation that had returned, the script did all four, and cut the power then."""
    profile, finding, operations = profiles()["ext4/ordered"], run.findings()[0], append_fsync()
    none, some, every = (script(profile, finding, operations, "", n) for n in (0, 2, None))
    assert "CUT=${CUT:-begun}" in none
    assert "CUT=${CUT:-1}" in some
    assert f"CUT=${{CUT:-{len(operations) - 1}}}" in every


@pytest.mark.parametrize(
    ("cut", "shown"), [("begun", "begun begun"), ("0", "begun done-0"), ("2", "done-1 done-2")]
)
def test_the_log_is_replayed_to_the_mark_of_the_cut(cut: str, shown: str) -> None:
    """There was no mark for a cut before the first operation had returned."""
    template = resource("reports", "templates", "reproduce.sh").read_text()
    found = re.search(r"^case \$CUT in\n.*?^esac$", template, re.MULTILINE | re.DOTALL)
    assert found
    line = f'CUT={cut}\n{found[0]}\necho "$from $to"'
    done = subprocess.run(["sh", "-euc", line], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == shown
    assert 'walk show "$from"' in template
    assert 'walk replay "$to"' in template


def test_a_bug_report_has_what_the_run_knows(run: RunStore, tmp_path: Path) -> None:
    finding = next(f for f in run.findings() if str(f.case) == "ext4-nobarrier/append-fsync")
    cells = (StripCell("debian-7.3", CaseVerdict.FAIL, "found"),)
    write_strip(run.layout, finding.id, Strip("since ever", cells))
    shrink_to(run, finding, "create a", "append a 4096", "fsync a")

    folder = tmp_path / "found"
    names = sorted(str(p.relative_to(folder)) for p in draft(run, finding, folder))
    assert names == [
        "README.md", "evidence/finding.html", "evidence/fsck.txt", "evidence/kernel-log.txt",
        "evidence/write-log.txt", "finding.toml", "mail.txt", "reproduce.sh",
    ]  # fmt: skip
    readme = (folder / "README.md").read_text()
    assert "# ext4/nobarrier: a: it is gone" in readme
    assert "debian-7.3: found" in readme
    assert "create a\nappend a 4096\nfsync a\n" in readme
    assert "powercut shrink" not in readme
    assert "recovery complete" in (folder / "evidence/kernel-log.txt").read_text()
    assert (folder / "reproduce.sh").stat().st_mode & 0o111
    mail = (folder / "mail.txt").read_text()
    assert mail.startswith("To: linux-ext4@vger.kernel.org\nSubject: ext4: a: it is gone\n")
    assert "debian-7.3: found" in mail
    assert "TO DO: `powercut show` tells" in readme
    with pytest.raises(UsageError, match="is there already"):
        draft(run, finding, folder)


def test_a_bug_report_says_why(run: RunStore, tmp_path: Path) -> None:
    """What `powercut show` had found out stayed in the run directory."""
    finding = next(f for f in run.findings() if str(f.case) == "ext4-nobarrier/append-fsync")
    shrink_to(run, finding, "create a", "fsync a")
    found = msgspec.structs.replace(explanation(), finding=finding.id, mechanism="No flush at all. X.")
    write_explanation(run.layout, found)
    folder = tmp_path / "found"
    draft(run, finding, folder)
    why = (folder / "evidence/why.txt").read_text()
    assert "promised:   by `fsync f`" in why
    assert "<-- broken" in why
    assert (folder / "evidence/ladder.svg").read_text().startswith("<svg")
    assert "No flush at all. X." in (folder / "mail.txt").read_text()
    assert "**Why.** No flush at all. X." in (folder / "README.md").read_text()
    assert "No flush at all. X." in (folder / "evidence/finding.html").read_text()


def drafted(run: RunStore, state: str, folder: Path) -> list[str]:
    """What a draft of a finding at this state says in script, README and toml."""
    run.put_plan(Plan(configurations=["ext4/nobarrier"], workloads=["append-fsync"]))
    finding = next(f for f in run.findings() if str(f.case) == "ext4-nobarrier/append-fsync")
    draft(run, replace(finding, oracle="fsck", state=CrashState.parse(state)), folder)
    return [(folder / name).read_text() for name in ("reproduce.sh", "README.md", "finding.toml")]


@pytest.mark.parametrize("state", ["@t37@t12-3", "@37+eio-read2048"])
def test_what_no_script_of_ours_does_is_not_drafted(state: str, run: RunStore, tmp_path: Path) -> None:
    """A cut in a recovery and a faulty disk had the script of any other state, which knows neither."""
    with pytest.raises(UsageError, match=r"takes a (second power cut|faulty disk)"):
        drafted(run, state, tmp_path / "new")


@pytest.mark.parametrize(
    ("state", "unlike"),
    [("@35", False), ("@t37=", False), ("@37-35", True), ("@37/t3", True), ("@t37=35", True), ("@t37", True)],
)
def test_a_state_that_the_script_does_not_make_is_to_do(
    state: str, unlike: bool, run: RunStore, tmp_path: Path
) -> None:
    """Single writes that are lost, and torn ones, had a script that loses all of the cache, and says so
    nowhere.
    """
    said = drafted(run, state, tmp_path / "new")
    assert ["TO DO: make the state of the finding" in text for text in said] == [unlike] * 3
    subprocess.run(["sh", "-n", "-c", said[0]], check=True)
    assert [r.says for r in load(tmp_path / "new").run] == ["BROKEN", "KEPT"]


def test_a_cut_in_the_middle_of_an_operation_is_to_do(run: RunStore, tmp_path: Path) -> None:
    """The script cuts the power as an operation returns: what the next one wrote was left out."""
    finding = next(f for f in run.findings() if str(f.case) == "ext4-nobarrier/append-fsync")
    record = run.case(finding.case)
    assert record is not None
    (begin,) = [s.begin for s in record.info.steps if s.index == 3]
    assert begin is not None
    for cut, unlike in ((begin + 1, False), (begin + 3, True)):
        said = drafted(run, f"@{cut}", tmp_path / str(cut))
        assert ["TO DO: make the state" in text for text in said] == [unlike] * 3


def test_what_was_shrunk_from_another_finding_is_not_used(run: RunStore, tmp_path: Path) -> None:
    """Its operations stood under this one's title."""
    run.put_plan(Plan(configurations=["ext4/nobarrier"], workloads=["append-fsync"]))
    finding = next(f for f in run.findings() if str(f.case) == "ext4-nobarrier/append-fsync")
    shrink_to(run, replace(finding, signature="another"), "create other")
    draft(run, finding, tmp_path / "found")
    readme = (tmp_path / "found/README.md").read_text()
    assert "create other" not in readme
    assert finding.summary in readme
    assert "TO DO: `powercut shrink`" in readme


def test_a_title_has_no_numbers_of_operations(run: RunStore, tmp_path: Path) -> None:
    """They are those of the run's workload, and stood in the title of a shorter one."""
    run.put_plan(Plan(configurations=["ext4/nobarrier"], workloads=["append-fsync"]))
    finding = next(f for f in run.findings() if str(f.case) == "ext4-nobarrier/append-fsync")
    said = "`create f` (operation 0) is undone, although `fsync f` (operation 2) was acknowledged"
    told = replace(finding, violations=(replace(finding.violations[0], summary=said),))
    draft(run, told, tmp_path / "found")
    title = "`create f` is undone, although `fsync f` was acknowledged"
    assert load(tmp_path / "found").title == f"ext4: {title}"
    assert f"# ext4/nobarrier: {title}\n" in (tmp_path / "found/README.md").read_text()
    assert title in (tmp_path / "found/reproduce.sh").read_text()


def test_a_bug_report_of_a_hostile_run_can_be_read(run: RunStore, tmp_path: Path) -> None:
    """A kernel's name ended the string it stood in. With such a folder each command was refused."""
    finding = next(f for f in run.findings() if str(f.case) == "ext4-nobarrier/append-fsync")
    run.put_plan(Plan(configurations=["ext4/nobarrier"], workloads=["append-fsync"]))
    hostile = '\x1b[31mmine"\r\nsays = "KEPT'
    draft(run, finding, tmp_path / "plain")
    run.update_info(replace(run.info, kernel=replace(run.info.kernel, name=hostile)), run.info.seal)
    draft(run, finding, tmp_path / "found")
    plain, found = load(tmp_path / "plain"), load(tmp_path / "found")
    assert [r.kernel for r in found.run] == [hostile, hostile]
    assert [r.says for r in found.run] == [r.says for r in plain.run]


def test_what_a_draft_lacks_is_told_before_a_guest_runs_it(run: RunStore, tmp_path: Path) -> None:
    """Four minutes later the script said `the check is not written yet`, and mount `bad option`."""
    finding = next(f for f in run.findings() if str(f.case) == "ext4-nobarrier/append-fsync")
    shrink_to(run, finding, "create a")
    said = powercut("bugreport", finding.id, "--from", run.path, "--output", tmp_path / "all/new").output
    assert "TO DO: reproduce.sh: the check at its end\n" in said
    told = refused("findings", "new", "--folder", tmp_path / "all")
    assert "the check at its end; finding.toml: a control" in told
    assert powercut("findings", "--list", "--folder", tmp_path / "all").exit_code == 0


def test_a_run_with_a_module_accuses_that_module(run: RunStore, tmp_path: Path) -> None:
    """The folder said that Debian's kernel, which had loaded another ext4.ko, is broken."""
    module = tmp_path / "ext4.ko"
    module.write_bytes(b"mine")
    kernel = replace(run.info.kernel, name="debian-6.12", replaced={str(module): file_hash(module)})
    run.update_info(replace(run.info, kernel=kernel))
    finding = next(f for f in run.findings() if str(f.case) == "ext4-nobarrier/append-fsync")
    shrink_to(run, finding, "create a")
    asked = ("bugreport", finding.id, "--from", run.path, "--output", tmp_path / "new")
    assert f"name it, as it was: --module {module}" in refused(*asked)
    other = tmp_path / "other" / "ext4.ko"
    other.parent.mkdir()
    other.write_bytes(b"another")
    assert powercut(*asked, "--module", other).exit_code == 2

    assert powercut(*asked, "--module", module).exit_code == 0
    bug_report = load(tmp_path / "new")
    assert [(r.name, r.says) for r in bug_report.run] == [
        ("debian-6.12 ext4.ko", "BROKEN"),
        ("debian-6.12", "KEPT"),
    ]
    assert (tmp_path / "new/ext4.ko").read_bytes() == b"mine"
    assert "ext4.ko" in bug_report.title
    assert "**Kernels.** debian-6.12 with ext4.ko: seen" in (tmp_path / "new/README.md").read_text()


def test_a_run_with_a_module_is_no_matter_of_the_kernels_list(run: RunStore, tmp_path: Path) -> None:
    """The mail went to ext4's list, of somebody's own ext4.ko."""
    module = tmp_path / "ext4.ko"
    module.write_bytes(b"mine")
    kernel = replace(run.info.kernel, replaced={str(module): file_hash(module)})
    run.update_info(replace(run.info, kernel=kernel))
    finding = next(f for f in run.findings() if str(f.case) == "ext4-nobarrier/append-fsync")
    shrink_to(run, finding, "create a")
    draft(run, finding, tmp_path / "new", Named(replaced=(module,)))
    to = (tmp_path / "new/mail.txt").read_text().splitlines()[0]
    assert to == "To: TO DO: whoever maintains this ext4.ko, which is not the kernel's own"


def test_a_run_from_elsewhere_names_its_own_copy_of_a_module(run: RunStore, tmp_path: Path) -> None:
    """A package said `--module /home/maker/ext4.ko`, a path of its maker."""
    copy = run.layout.module("ext4.ko")
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(b"mine")
    kernel = replace(run.info.kernel, replaced={"/home/maker/ext4.ko": file_hash(copy)})
    run.update_info(replace(run.info, kernel=kernel))
    finding = next(f for f in run.findings() if str(f.case) == "ext4-nobarrier/append-fsync")
    with pytest.raises(UsageError) as refused:
        draft(run, finding, tmp_path / "new")
    assert "maker" not in str(refused.value)
    assert str(copy) in str(refused.value.next_step)


def test_a_shrunk_workload_has_one_numbering(run: RunStore) -> None:
    """Title and operations were of the shrunk workload, what was expected and why of the whole one."""
    finding = next(f for f in run.findings() if str(f.case) == "ext4-nobarrier/append-fsync")
    told = replace(
        finding,
        violations=(
            replace(
                finding.violations[0],
                summary="`fsync f` (operation 3) lost",
                expected="the names after at least the first 4 operations",
                found="the names after the first 2: d: no such name; the first 4 bytes",
            ),
        ),
    )
    why = msgspec.structs.replace(
        explanation(), lines={"promised": "by `sync`, operation 1: begun at event 7"}
    )
    whole, short = ["create g", "sync", "create f", "fsync f"], ["create f", "fsync f"]
    found, explained = renumbered(told, why, whole, short)
    assert found.summary == "`fsync f` (operation 1) lost"
    assert found.violations[0].expected == "the names after at least the first 2 operations"
    assert found.violations[0].found == "the names after no operation: d: no such name; the first 4 bytes"
    assert explained is not None
    assert explained.lines["promised"] == "by `sync`, operation that was left out: begun at event 7"


def test_the_evidence_of_a_shrunk_workload_has_the_numbers_of_the_whole_one(
    run: RunStore, tmp_path: Path
) -> None:
    """In why.txt, the number of the shrunk one stood above a ladder with `begin 7`, and meant the same."""
    finding = next(f for f in run.findings() if str(f.case) == "ext4-nobarrier/append-fsync")
    shrink_to(run, finding, "create a", "append a 4096", "fsync a")
    said = "`fsync a` (operation 7) lost"
    rungs = (Rung("mark", "begin 7 fsync a", event=5),)
    found = msgspec.structs.replace(
        explanation(), finding=finding.id, headline=said, mechanism=said, ladder=rungs, lines={}
    )
    write_explanation(run.layout, found)
    draft(run, replace(finding, violations=(replace(finding.violations[0], summary=said),)), tmp_path / "new")
    names = ("README.md", "mail.txt", "evidence/why.txt", "evidence/finding.html")
    texts = [(tmp_path / "new" / name).read_text() for name in names]
    assert ["(operation 7)" in text for text in texts] == [False, False, True, True]
    assert "numbers in the evidence are those of the whole workload" in texts[0].replace("\n", " ")
    excerpt = (tmp_path / "new/evidence/write-log.txt").read_text()
    for text in (texts[2], excerpt):
        assert text.startswith("# Numbers of operations are those of the whole workload")


def renumbered_summary(run: RunStore, summary: str, whole: list[str], short: list[str]) -> str:
    finding = run.findings()[0]
    told = replace(finding, violations=(replace(finding.violations[0], summary=summary),))
    return renumbered(told, None, whole, short)[0].violations[0].summary


def test_a_first_operation_is_counted_as_any_number_of_them_is(run: RunStore) -> None:
    """`the first operation` was kept, also where that was left out, or is not the first."""
    whole, said = ["mkdir d", "create f", "fsync f"], "the names after the first operation: f: missing"
    assert renumbered_summary(run, said, whole, whole[1:]) == "the names after no operation: f: missing"
    assert renumbered_summary(run, said, whole, whole) == said


def test_an_operation_that_is_there_is_not_told_as_left_out(run: RunStore) -> None:
    """Shrinking left operations 3 and 4. They were taken for 0 and 1, which are equal to them."""
    whole = ["create f", "fsync f", "unlink f", "create f", "fsync f", "write f 0 4096"]
    said = "`create f` (operation 3) is undone, although `fsync f` (operation 4) was acknowledged"
    assert renumbered_summary(run, said, whole, ["create f", "fsync f"]) == (
        "`create f` (operation 0) is undone, although `fsync f` (operation 1) was acknowledged"
    )


def test_an_operation_that_may_be_one_of_several_has_no_number(run: RunStore) -> None:
    """It had that of the earliest that is equal to it."""
    said = "`sync` (operation 1) and data of operation 1 of the first 2 operations, (or operation 1)"
    assert renumbered_summary(run, said, ["sync"] * 3, ["sync"] * 2) == (
        "`sync` and data of one of the operations of some of the operations, (or one of the operations)"
    )


def test_the_operations_of_another_workload_have_no_numbers(run: RunStore) -> None:
    """All of them were told as left out."""
    assert renumbered_summary(run, "`a` (operation 0)", ["sync"], ["create f"]) == "`a`"


FEW = st.lists(st.sampled_from("ab"), max_size=6)


@given(FEW, st.data())
def test_numbers_are_those_of_every_way_to_leave_operations_out(
    whole: list[str], data: st.DataObject
) -> None:
    """Of the ways that have all operations that are named."""
    kept = data.draw(st.lists(st.booleans(), min_size=len(whole), max_size=len(whole)))
    short = [text for text, keeps in zip(whole, kept, strict=True) if keeps]
    named = data.draw(st.sets(st.integers(0, len(whole)), max_size=2))
    ways = [
        places
        for places in itertools.combinations(range(len(whole)), len(short))
        if [whole[n] for n in places] == short
    ]
    there = {n for n in named if any(n in places for places in ways)}
    ways = [places for places in ways if there <= set(places)] or ways
    numbers = _numbers(whole, short, named)
    for n in range(len(whole)):
        assert numbers.of(n) == {places.index(n) if n in places else None for places in ways}
        assert numbers.first(n) == {sum(place < n for place in places) for places in ways}


def test_the_excerpt_begins_with_the_last_operation_that_returned(run: RunStore) -> None:
    finding = next(f for f in run.findings() if str(f.case) == "ext4-nobarrier/append-fsync")
    record = run.case(finding.case)
    assert record is not None
    lines = log_excerpt(run.timeline(finding.case), record.info, finding).splitlines()
    cut = lines.index("----- the power failed here")
    entries = [line.split() for line in lines if re.match(r" +\d+ (mark|write|flush)", line)]
    assert entries[0][2] == "begin"
    assert int(lines[cut + 1].split()[0]) == finding.state.prefix
    assert any(words[2:3] == ["ack"] for words in entries if int(words[0]) < finding.state.prefix)


def test_the_command_writes_a_folder_and_says_what_is_next(run: RunStore, tmp_path: Path) -> None:
    run.put_plan(Plan(configurations=["ext4/writeback-nodelalloc"], workloads=["rename-replace"]))
    case = CaseId.parse("ext4-writeback-nodelalloc/rename-replace")
    shrink_to(
        run, next(f for f in run.findings() if (f.case, f.oracle) == (case, "fsck")), "create a", "sync"
    )
    args = ("bugreport", "ext4-writeback-nodelalloc/rename-replace", "--from", run.path, "--oracle", "fsck")
    done = powercut(*args, "--output", tmp_path / "new")
    assert done.exit_code == 0, done.stderr
    assert "powercut findings new --folder" in done.output.splitlines()[-1]
    # What is left to do keeps nobody from loading it.
    assert [r.says for r in load(tmp_path / "new").run] == ["BROKEN", "KEPT"]


def test_the_command_that_is_next_can_be_pasted(run: RunStore, tmp_path: Path) -> None:
    """`--folder /my reports` was two words."""
    finding = next(f for f in run.findings() if str(f.case) == "ext4-nobarrier/append-fsync")
    shrink_to(run, finding, "create a")
    folder = tmp_path / "my reports" / "new"
    said = powercut("bugreport", finding.id, "--from", run.path, "--output", folder).output.splitlines()[-1]
    words = shlex.split(said.partition("then: ")[2])
    assert words == ["powercut", "findings", "new", "--folder", str(folder.parent)]


def test_a_case_without_a_finding_has_no_bug_report(run: RunStore) -> None:
    assert "has no finding" in refused("bugreport", "xfs-default/append-fsync", "--from", run.path)


def test_a_slug_is_a_name_of_a_folder(run: RunStore) -> None:
    assert {bool(re.fullmatch(r"[a-z0-9-]+", slug_of(f))) for f in run.findings()} == {True}


def test_who_begins_a_report_of_a_known_loss_is_told(run: RunStore, tmp_path: Path) -> None:
    """The draft went to the list as new, though its mode is known to lose this."""
    run.set_expectations([])
    run.put_plan(Plan(configurations=["ext4/nobarrier"], workloads=["append-fsync"]))
    lost = next(f for f in run.findings() if f.loss)
    done = powercut("bugreport", lost.id, "--from", run.path, "--output", tmp_path / "draft")
    assert f"before you send it: known loss of {lost.case.configuration}: " in done.output


def test_the_script_cuts_the_power_where_the_finding_did(run: RunStore, tmp_path: Path) -> None:
    """`CUT=7` ran an operation that came behind the finding, and the README did not say where the cut is."""
    run.put_plan(Plan(configurations=["ext4/nobarrier"], workloads=["append-fsync"]))
    finding = next(f for f in run.findings() if str(f.case) == "ext4-nobarrier/append-fsync")
    steps = run.case(finding.case).info.steps  # type: ignore[union-attr]  # a finding is of a case
    returned = sum(s.ack is not None and s.ack < finding.state.prefix for s in steps)
    assert 0 < returned < len(steps), "a test of something"
    draft(run, finding, tmp_path / "draft")
    assert f"CUT=${{CUT:-{returned - 1}}}" in (tmp_path / "draft/reproduce.sh").read_text()
    shown = list(map(str, load_workload("append-fsync").operations))
    shown.insert(returned, "(power cut)")
    assert "\n".join(["```", *shown, "```"]) in (tmp_path / "draft/README.md").read_text()
