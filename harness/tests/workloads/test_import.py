"""What a program did, as strace(1) saw it, becomes the operations that it did."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.cli.import_ import import_command
from harness.errors import ExitCode, UsageError
from harness.findings.shell import shell_line
from harness.model import OperationKind
from harness.tests.needs import need_program
from harness.workloads.imported import Imported, _Import, _Inode, imported
from harness.workloads.load import load_workload, parse_operation
from harness.workloads.strace import OPTIONS, calls_of, split, string

PROGRAM = """
import fcntl, os, sys
os.chdir(sys.argv[1])
fd = os.open("f", os.O_CREAT | os.O_EXCL | os.O_RDWR)
os.write(fd, b"x" * 100); os.write(fd, b"x" * 50)
os.pwrite(fd, b"y" * 10, 4096)
os.lseek(fd, 20, os.SEEK_SET); os.writev(fd, [b"a", b"bc"])
os.fsync(fd); os.fdatasync(fd)
os.ftruncate(fd, 5000); os.posix_fallocate(fd, 0, 8192)
os.rename("f", "g")
os.setxattr("g", "user.key", b"four"); os.removexattr("g", "user.key")
os.chmod("g", 0o600); os.chown("g", 1, 2); os.fchmod(fd, 0o640)
synced = os.open("log", os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_DSYNC)
os.write(synced, b"z" * 30)
os.mkdir("d"); os.link("g", "d/hard"); os.symlink("g", "d/soft"); os.mkfifo("d/pipe")
here = os.open("d", os.O_DIRECTORY)
os.fsync(here); os.unlink("pipe", dir_fd=here); os.rename("soft", "../soft", src_dir_fd=here, dst_dir_fd=here)
os.unlink("d/hard"); os.rmdir("d")
os.unlink("g"); os.write(fd, b"unseen by name"); os.fsync(fd); os.close(fd)
if not (child := os.fork()):
    os.write(synced, b"c"); os._exit(0)
os.waitpid(child, 0)
nameless = os.open(".", os.O_TMPFILE | os.O_WRONLY)
os.write(nameless, b"1234"); os.fsync(nameless)
os.link(f"/proc/self/fd/{nameless}", "named", src_dir_fd=0, follow_symlinks=True)
os.sync(); os.truncate("named", 2)
open(sys.argv[1] + "/../elsewhere", "w").write("not below the folder")
os.utime("named"); os.utime("soft", (3, 7), follow_symlinks=False)
os.chown("soft", 1, 2, follow_symlinks=False)
"""
DONE = """
create f; write f 0 100; write f 100 50; write f 4096 10; write f 20 3; fsync f; fdatasync f; truncate f 5000
fallocate f 0 8192; rename f g; setxattr g user.key vvvv; removexattr g user.key; chmod g 600; chown g 1 2
chmod g 640; create log; append log 30 dsync; mkdir d; link g d/hard; symlink d/soft g; mkfifo d/pipe; fsync d
unlink d/pipe; rename d/soft soft; unlink d/hard; rmdir d; open g @2; unlink g; write @2 23 14; fsync @2
close @2; append log 1 dsync; open-tmpfile . @3; write @3 0 4; fsync @3; link @3 named; sync; truncate named 2
touch named 0; touch soft 7; close @3
"""


def of(lines: str, root: str = "/r") -> Imported:
    return imported(calls_of(lines.splitlines()), root)


def told(found: Imported) -> list[str]:
    return [str(op) for op in found.operations]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_program("strace")
    folder = tmp_path_factory.mktemp("traced")
    (folder / "work").mkdir()
    log = folder / "strace.log"
    program = [sys.executable, "-c", PROGRAM, str(folder / "work")]
    traced = ["strace", *shlex.split(OPTIONS), "-o", str(log), *program]
    subprocess.run(traced, check=True, timeout=120)
    return log


_OPENED = '1 openat(AT_FDCWD</r>, "f", O_RDWR|O_CREAT, 0644) = 3</r/f>(deleted)\n'
_BEGUN = '1 openat(AT_FDCWD</r>, "f", O_RDWR|O_CREAT, 0644 <unfinished ...>\n'
_FORK, _GOES = "1 fork() = 2\n", '2 unlink("/r/f") = 0\n'
_WRITES = '1 write(3</r/f>(deleted), "x", 5) = 5\n1 close(3</r/f>(deleted)) = 0\n'


@pytest.mark.parametrize(
    ("lines", "before", "done", "left"),
    [
        (
            f"{_FORK}{_BEGUN}{_GOES}1 <... openat resumed>) = 3</r/f>(deleted)\n{_WRITES}",
            [],
            ["create f", "open f @1", "unlink f", "write @1 0 5", "close @1"],
            0,
        ),
        (f"{_FORK}{_OPENED}{_GOES}{_WRITES}", [], [], 3),
        (f"{_FORK}{_GOES}{_OPENED}{_GOES}{_WRITES}", ["create f"], ["unlink f"], 3),
        (
            f"{_FORK}{_GOES}{_BEGUN}{_GOES}1 <... openat resumed>) = 3</r/f>(deleted)\n{_WRITES}",
            ["create f"],
            ["unlink f"],
            3,
        ),
    ],
    ids=["told before the open", "told after it", "once more after it", "once more before it"],
)
def test_a_file_that_is_removed_while_it_is_opened_was_not_there_before(
    lines: str, before: list[str], done: list[str], left: int
) -> None:
    """It was made and synced before the workload, which only removed it; what was written to it was left
    out.
    """
    found = of(lines)
    assert (list(map(str, found.before)), told(found)) == (before, done)
    assert sum(found.left_out.values()) == left


def test_a_program_is_traced_in_an_empty_folder_that_goes(tmp_path: Path) -> None:
    need_program("strace")
    program = ["sh", "-c", "echo text >f && sync f && mv f g && pwd >&2 && ls -a"]
    done = CliRunner().invoke(import_command, ["-o", str(tmp_path / "w.toml"), "--", *program])
    assert done.exit_code == 0, done.output
    made = load_workload(str(tmp_path / "w.toml"))
    assert list(map(str, made.operations)) == ["create f", "write f 0 5", "fsync f", "rename f g"]
    assert made.summary.startswith("imported from sh -c")
    assert not list(Path(tempfile.gettempdir()).glob(f"powercut-import-{os.getpid()}-*"))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["sh", "-c", "echo why >&2; exit 3"], "ended with 3: why"),
        (["no-such-program"], "no-such-program is no program that can be run here, and no file"),
        (["--root", "/r", "no-such.log"], "there is no no-such.log"),
        (["{log}"], "--root says in which folder the program worked"),
        (["true"], "no call changes anything below"),
        (["--root", "/r", "{log}", "more"], "is not a log"),
    ],
)
def test_what_cannot_be_imported_says_why(words: list[str], says: str, tmp_path: Path) -> None:
    need_program("strace")
    (tmp_path / "log").write_text("1 sync() = 0\n")
    typed = [word.format(log=tmp_path / "log") for word in words]
    options = typed[:2] if typed[0] == "--root" else []
    done = CliRunner().invoke(import_command, [*options, "--", *typed[len(options) :]])
    assert done.exit_code == ExitCode.USAGE
    assert says in done.output


def test_each_call_that_changes_something_is_the_operation_that_it_did(log: Path) -> None:
    found = imported(calls_of(log.read_text().splitlines()), str(log.parent / "work"))
    assert told(found) == [line.strip() for line in DONE.replace("\n", ";").split(";") if line.strip()]
    assert found.before == ()
    assert found.left_out == {"owners of symbolic links": 1}


ROUND_TRIP = """
create f; write f 0 20000; fsync f; write f 4096 100; fallocate f 4096 8192 collapse-range; fsync f
fallocate f 0 4096 insert-range; fsync f; create g; copy-range f g 0 8192; copy-range f g 8192 100
touch g 1000000000; fdatasync g; truncate g 500; fallocate g 0 8192 keep-size; fsync g
fallocate f 4096 4096 punch-hole; fsync f; fallocate f 0 4096 zero-range; fsync f; mkdir d; link f d/h
symlink s f; rename g d/g; exchange f d/g; chmod f 600; chown f 1 2; sync-file-range f 0 4096 async
unlink d/h; mkfifo p; mknod n; touch s 7; fsync d; sync; write f 0 512
"""
PUT = 'put() { xfs_io -c "pwrite -q -b 64k $2 $3" "$1"; }\n'


def test_our_own_operations_come_back_as_they_were(tmp_path: Path) -> None:
    """As the lines of a shell script that `powercut bugreport` writes. fallocate(1) syncs what it changed."""
    for program in ("strace", "xfs_io", "fallocate", "perl"):
        need_program(program)
    texts = [text.strip() for text in ROUND_TRIP.replace("\n", ";").split(";") if text.strip()]
    done = [
        shell_line(parse_operation(text), n)
        for n, text in enumerate(texts)
        if not (text.startswith("fsync") and texts[n - 1].startswith("fallocate"))
    ]
    script = tmp_path / "script"
    script.write_text(PUT + "\n".join(done))
    made = tmp_path / "w.toml"
    ran = CliRunner().invoke(import_command, ["-o", str(made), "--", "sh", "-e", str(script)])
    assert ran.exit_code == 0, ran.output
    assert "left out" not in ran.output
    assert list(map(str, load_workload(str(made)).operations)) == texts


def test_fsync_through_a_symbolic_link_is_of_what_it_leads_to() -> None:
    found = of(
        """
7 symlink("\\x66", "\\x2f\\x72\\x2f\\x73") = 0
7 openat(AT_FDCWD</r>, "\\x73", O_RDONLY) = 3</r/\\x66>
7 fsync(3</r/\\x66>) = 0
"""
    )
    assert told(found) == ["symlink s f", "fsync f"]


@pytest.mark.parametrize(
    ("call", "is_copy"),
    [
        ("copy_file_range(3</r/a>, NULL, 4</r/b>, NULL, 50, 0) = 50", True),
        ("copy_file_range(3</r/a>, [0], 4</r/b>, [0], 50, 0) = 50", True),
        ("copy_file_range(3</r/a>, [8], 4</r/b>, [0], 50, 0) = 50", False),
        ("sendfile(4</r/b>, 3</r/a>, NULL, 50) = 50", False),
        ("copy_file_range(5</elsewhere>, [0], 4</r/b>, [0], 50, 0) = 50", False),
    ],
)
def test_a_copy_to_the_same_place_is_one_and_another_is_a_write(call: str, is_copy: bool) -> None:
    opened = """
7 openat(AT_FDCWD</r>, "\\x61", O_RDONLY) = 3</r/\\x61>
7 openat(AT_FDCWD</r>, "\\x62", O_WRONLY|O_CREAT|O_EXCL, 0644) = 4</r/\\x62>
7 openat(AT_FDCWD</r>, "\\x2fe", O_RDONLY) = 5</elsewhere>
7 """
    found = of(opened + call)
    assert told(found) == ["create b", "copy-range a b 0 50" if is_copy else "write b 0 50"]
    assert [str(op) for op in found.before] == ["create a", *(["append a 50"] if is_copy else [])]


def test_a_range_of_other_blocks_is_told() -> None:
    """A workload with it would be refused as a whole."""
    found = of(
        """
7 openat(AT_FDCWD</r>, "\\x62", O_WRONLY|O_CREAT|O_EXCL, 0644) = 4</r/\\x62>
7 fallocate(4</r/b>, FALLOC_FL_COLLAPSE_RANGE, 0, 1024) = 0
"""
    )
    assert list(found.left_out.values()) == [1]


def test_the_command_writes_a_workload_that_can_be_loaded(log: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    asked = [str(log), "--root", str(log.parent / "work"), "--output", str(file)]
    done = CliRunner().invoke(import_command, asked)
    assert done.exit_code == ExitCode.CONSISTENT, done.output
    assert "left out: owners of symbolic links: 1" in done.output
    assert [str(op) for op in load_workload(str(file)).operations][:2] == ["create f", "write f 0 100"]
    again = CliRunner().invoke(import_command, asked)
    assert again.exit_code == ExitCode.USAGE
    assert f"{file} is there" in again.output


@pytest.mark.parametrize(("last", "told"), [("", True), ("1 fsync(3</r/a>) = 0\n", False)])
def test_a_program_that_syncs_nothing_is_told_what_its_pass_will_mean(
    last: str, told: bool, tmp_path: Path
) -> None:
    """Its workload passes in every mode, ext4/nobarrier too: nothing was promised that could be lost."""
    log = tmp_path / "log"
    made = '1 openat(AT_FDCWD</r>, "\\x61", O_WRONLY|O_CREAT|O_EXCL, 0644) = 3</r/\\x61>\n'
    log.write_text(made + '1 write(3</r/\\x61>, "\\x61", 1) = 1\n' + last + "1 close(3</r/\\x61>) = 0\n")
    done = CliRunner().invoke(import_command, [str(log), "--root", "/r"])
    assert done.exit_code == ExitCode.CONSISTENT, done.output
    assert ("none of them syncs anything" in done.output) is told


def test_a_log_of_another_folder_names_the_root(tmp_path: Path) -> None:
    (tmp_path / "log").write_text('1 mkdir("\\x2f\\x61", 0777) = 0\n')
    done = CliRunner().invoke(import_command, [str(tmp_path / "log"), "--root", "/srv"])
    assert done.exit_code == ExitCode.USAGE
    assert "no call changes anything below /srv" in done.output


def test_what_was_there_before_is_made_first_with_its_size() -> None:
    found = of(
        """
7 newfstatat(AT_FDCWD</r>, "\\x6f\\x6c\\x64", {st_mode=S_IFREG|0644, st_size=700, ...}, 0) = 0
7 openat(AT_FDCWD</r>, "\\x6f\\x6c\\x64", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 3</r/\\x6f\\x6c\\x64>
7 unlink("\\x64\\x2f\\x78") = 0
"""
    )
    assert [str(op) for op in found.whole] == [
        *("create old", "append old 700", "mkdir d", "create d/x", "sync"),
        *("truncate old 0", "unlink d/x"),
    ]


def test_a_name_that_was_seen_and_removed_is_made_anew() -> None:
    """ld removes an old program before it writes a new one."""
    found = of(
        """
7 newfstatat(AT_FDCWD</r>, "\\x61", {st_mode=S_IFREG|0644, st_size=7, ...}, 0) = 0
7 unlink("\\x2f\\x72\\x2f\\x61") = 0
7 openat(AT_FDCWD</r>, "\\x61", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 3</r/\\x61>
"""
    )
    assert told(found) == ["unlink a", "create a"]


def test_a_call_that_failed_did_nothing() -> None:
    assert told(of('7 mkdir("\\x2fr", 0777) = -1 EEXIST (File exists)\n7 sync() = 0\n')) == ["sync"]


def test_calls_that_overlap_are_in_the_order_in_which_they_returned() -> None:
    found = of(
        """
1 openat(AT_FDCWD</r>, "\\x66", O_WRONLY|O_CREAT, 0666) = 3</r/\\x66>
1 clone(child_stack=0x1, flags=CLONE_VM|CLONE_FILES|CLONE_THREAD <unfinished ...>
2 write(3</r/\\x66>, ""..., 5 <unfinished ...>
1 <... clone resumed>, child_tidptr=0x2) = 2
1 write(3</r/\\x66>, ""..., 7) = 7
2 <... write resumed>) = 5
"""
    )
    assert told(found) == ["create f", "write f 0 7", "write f 7 5"]


def test_a_thread_shares_descriptors_and_a_process_has_its_own() -> None:
    calls = """
1 openat(AT_FDCWD</r>, "\\x66", O_WRONLY|O_CREAT|O_APPEND, 0666) = 3</r/\\x66>
1 clone(child_stack=NULL, flags={flags}) = 2
2 close(3</r/\\x66>) = 0
2 openat(AT_FDCWD</r>, "\\x67", O_WRONLY|O_CREAT, 0666) = 3</r/\\x67>
1 write(3</r/\\x66>, ""..., 5) = 5
"""
    assert told(of(calls.replace("{flags}", "SIGCHLD")))[-1] == "append f 5"
    assert told(of(calls.replace("{flags}", "CLONE_FILES")))[-1] == "write f 0 5"


def test_a_file_that_is_replaced_while_it_is_open_is_held_until_its_process_ends() -> None:
    found = of(
        """
1 openat(AT_FDCWD</r>, "\\x66", O_RDWR|O_CREAT, 0666) = 3</r/\\x66>
1 mkdir("\\x2f\\x72\\x2f\\x67", 0777) = 0
1 rename("\\x2f\\x72\\x2f\\x6e", "\\x2f\\x72\\x2f\\x66") = 0
1 fsync(3</r/\\x66>(deleted)) = 0
1 +++ exited with 0 +++
"""
    )
    assert told(found) == ["create f", "mkdir g", "open f @1", "rename n f", "fsync @1", "close @1"]
    assert [str(op) for op in found.before] == ["create n"]


def test_a_file_that_leaves_the_folder_is_removed_and_one_that_comes_is_told() -> None:
    found = of(
        """
1 rename("\\x2f\\x72\\x2f\\x66", "\\x2f\\x73") = 0
1 rename("\\x2f\\x73", "\\x2f\\x72\\x2f\\x67") = 0
"""
    )
    assert told(found) == ["unlink f"]
    assert sum(found.left_out.values()) == 1


def test_what_no_operation_does_is_counted() -> None:
    found = of(
        """
1 openat(AT_FDCWD</r>, "\\x66", O_RDWR|O_CREAT, 0666) = 3</r/\\x66>
1 fallocate(3</r/\\x66>, FALLOC_FL_UNSHARE_RANGE, 0, 4096) = 0
1 mmap(NULL, 3, PROT_READ|PROT_WRITE, MAP_SHARED, 3</r/\\x66>, 0) = 0x7f00
1 ioctl(3</r/\\x66>, FS_IOC_SETFLAGS, [FS_SYNC_FL]) = 0
1 ioctl(3</r/\\x66>, TCGETS, 0x7f) = 0
1 symlink("\\x66", "\\x2f\\x72\\x2f\\x6c") = 0
1 lchown("\\x2f\\x72\\x2f\\x6c", 0, 0) = 0
1 setxattr("\\x2f\\x72\\x2f\\x66", "\\x73\\x65\\x63\\x75\\x72\\x69\\x74\\x79\\x2e\\x78", ""..., 1, 0) = 0
1 io_uring_enter(4, 1, 1, IORING_ENTER_GETEVENTS, NULL, 8) = 1
"""
    )
    assert told(found) == ["create f", "symlink l f"]
    assert sum(found.left_out.values()) == 6


MAPPED = """
7 openat(AT_FDCWD</r>, "f", O_RDWR|O_CREAT|O_EXCL, 0666) = 3</r/f>
7 write(3</r/f>, "x", 5000) = 5000
7 mmap(NULL, 5000, {}, MAP_SHARED, 3</r/f>, 0) = 0x7f0000
7 mmap(NULL, 100, PROT_READ, MAP_SHARED, 4</elsewhere>, 0) = 0x8f0000
7 msync(0x8f0000, 100, MS_SYNC) = 0
"""


@pytest.mark.parametrize(
    ("protection", "calls", "stores"),
    [
        ("PROT_READ|PROT_WRITE", "", 1),
        ("PROT_READ", "7 mprotect(0x8f0000, 100, PROT_READ|PROT_WRITE) = 0\n", 0),
        ("PROT_READ", "7 mprotect(0x7f1000, 100, PROT_READ|PROT_WRITE) = 0\n" * 2, 1),
        ("PROT_NONE", "7 pkey_mprotect(0x7f0000, 5000, PROT_WRITE, 1) = 0\n", 1),
        ("PROT_NONE", "7 mprotect(0x7f0000, 5000, PROT_READ) = 0\n", 0),
        ("PROT_NONE", "", 1),
    ],
)
def test_stores_into_a_shared_mapping_are_counted_where_it_can_be_written(
    protection: str, calls: str, stores: int
) -> None:
    """A mapping that mprotect(2) made writable, after mmap(2) had not, left nothing out."""
    assert "mprotect" in OPTIONS
    assert sum(of(MAPPED.format(protection) + calls).left_out.values()) == stores


@pytest.mark.parametrize(
    ("calls", "done", "left_out"),
    [
        ("msync(0x7f0000, 5000, MS_SYNC) = 0", ["fdatasync f"], 0),
        ("close(3</r/f>) = 0\n7 msync(0x7f0000, 8192, MS_SYNC|MS_INVALIDATE) = 0", ["fdatasync f"], 0),
        ("msync(0x7f0000, 5000, MS_ASYNC) = 0", [], 0),
        ("msync(0x7f0000, 0, MS_SYNC) = 0", [], 0),
        ("msync(0x7f0000, 4096, MS_SYNC) = 0", [], 1),
        ("msync(0x7f1000, 4096, MS_SYNC) = 0", [], 1),
        ("msync(0x9f0000, 4096, MS_SYNC) = 0", [], 1),
        (
            'rename("/r/f", "/r/g") = 0\n7 msync(0x7f0000, 5000, MS_SYNC) = 0',
            ["rename f g", "fdatasync g"],
            0,
        ),
        (
            'close(3</r/f>) = 0\n7 rename("/r/f", "/r/g") = 0\n7 msync(0x7f0000, 5000, MS_SYNC) = 0',
            ["rename f g"],
            1,
        ),
        (
            'unlink("/r/f") = 0\n7 msync(0x7f0000, 5000, MS_SYNC) = 0',
            ["open f @1", "unlink f", "fdatasync @1"],
            0,
        ),
        (
            'unlink("/r/f") = 0\n7 close(3</r/f>(deleted)) = 0\n7 msync(0x7f0000, 5000, MS_SYNC) = 0',
            ["unlink f"],
            1,
        ),
        (
            "mmap(0x7f0000, 8192, PROT_READ, MAP_PRIVATE, 3</r/f>, 0) = 0x7f0000\n"
            "7 msync(0x7f0000, 5000, MS_SYNC) = 0",
            [],
            1,
        ),
        (
            "clone(child_stack=NULL, flags=SIGCHLD) = 8\n8 msync(0x7f0000, 5000, MS_SYNC) = 0",
            ["fdatasync f"],
            0,
        ),
    ],
)
def test_msync_of_a_whole_file_is_fdatasync_and_of_anything_else_is_counted(
    calls: str, done: list[str], left_out: int
) -> None:
    """It was in no workload and not counted, though it makes durable what write(2) had written."""
    found = of(f"{MAPPED.format('PROT_NONE')}7 {calls}\n7 mprotect(0x1000, 1, PROT_WRITE) = 0\n")
    assert told(found)[2:] == done
    assert sum(found.left_out.values()) == left_out


_ALLOCATES = "fallocate(3</r/f>, FALLOC_FL_"


@pytest.mark.parametrize(
    ("call", "whole"),
    [
        ("ftruncate(3</r/f>, 65536) = 0\n7 ftruncate(3</r/f>, 4096) = 0", True),
        (
            'ftruncate(3</r/f>, 65536) = 0\n7 openat(AT_FDCWD</r>, "f", O_RDWR|O_TRUNC) = 5</r/f>',
            True,
        ),
        ("ftruncate(3</r/f>, 4096) = 0\n7 ftruncate(3</r/f>, 9000) = 0", False),
        ('ftruncate(3</r/f>, 4096) = 0\n7 write(3</r/f>, "x", 5000) = 5000', False),
        (f"{_ALLOCATES}KEEP_SIZE, 0, 65536) = 0", True),
        (f"{_ALLOCATES}KEEP_SIZE|FALLOC_FL_PUNCH_HOLE, 4096, 65536) = 0", True),
        (f"{_ALLOCATES}ZERO_RANGE, 4096, 65536) = 0", False),
        (f"{_ALLOCATES}INSERT_RANGE, 0, 4096) = 0", False),
    ],
)
def test_a_file_ends_where_what_was_done_to_it_left_its_end(call: str, whole: bool) -> None:
    """What was cut off, or allocated without its size, counted for the file for good: an msync of all of it
    was one of a part. What was inserted did not count: one of a part was one of all.
    """
    calls = f"7 mprotect(0x1000, 1, PROT_READ) = 0\n7 {call}\n7 msync(0x7f0000, 5000, MS_SYNC) = 0\n"
    found = of(MAPPED.format("PROT_NONE") + calls)
    assert ("fdatasync f" in told(found)) == whole
    assert list(found.left_out) == ["msync of a part of a file"] * (not whole)


@pytest.mark.parametrize(
    "calls",
    [
        '7 unlink("/r/f") = 0\n7 ftruncate(3</r/f>(deleted), 65536) = 0\n',
        '7 unlink("/r/f") = 0\n7 copy_file_range(5</r/g>, [0], 3</r/f>(deleted), [8192], 9000, 0) = 9000\n',
        "7 ioctl(3</r/f>, FICLONE, 5</r/g>) = 0\n",
    ],
)
def test_a_file_ends_where_a_handle_or_a_clone_left_its_end(calls: str) -> None:
    """What was done by a handle to a file that has no name any more, and all that a clone had made longer,
    did not count: an msync of the first pages was one of all.
    """
    g = '7 openat(AT_FDCWD</r>, "g", O_RDWR|O_CREAT, 0666) = 5</r/g>\n7 write(5</r/g>, "x", 65536) = 65536\n'
    synced = "7 msync(0x7f0000, 5000, MS_SYNC) = 0\n7 mprotect(0x1000, 1, PROT_READ) = 0\n"
    found = of(MAPPED.format("PROT_NONE") + g + calls + synced)
    assert list(found.left_out) == ["msync of a part of a file"]
    assert not any(op.startswith("fdatasync") for op in told(found))


def test_a_program_that_is_executed_has_none_of_what_was_mapped() -> None:
    """What it makes writable at such a place was counted as a mapping of the file."""
    executed = '7 execve("/x", ["x"], 0x7f /* 1 var */) = 0\n'
    found = of(MAPPED.format("PROT_NONE") + executed + "7 mprotect(0x7f0000, 5000, PROT_WRITE) = 0\n")
    assert not found.left_out


@pytest.mark.parametrize(
    ("opened", "marked", "is_closed"),
    [
        ("O_CREAT|O_RDWR|O_CLOEXEC", "", True),
        ("O_CREAT|O_RDWR", "", False),
        ("O_CREAT|O_RDWR", "7 fcntl(3</r/f>, F_SETFD, FD_CLOEXEC) = 0", True),
        ("O_CREAT|O_RDWR|O_CLOEXEC", "7 fcntl(3</r/f>, F_SETFD, 0) = 0", False),
        ("O_CREAT|O_RDWR", "7 close_range(3, 4294967295, CLOSE_RANGE_CLOEXEC) = 0", True),
        ("O_CREAT|O_RDWR|O_CLOEXEC", "7 dup(3</r/f>) = 4</r/f>", False),
        ("O_CREAT|O_RDWR|O_CLOEXEC", "7 dup3(3</r/f>, 4, O_CLOEXEC) = 4</r/f>", True),
        ("O_CREAT|O_RDWR|O_CLOEXEC", "7 fcntl(3</r/f>, F_DUPFD_CLOEXEC, 4) = 4</r/f>", True),
        ("O_CREAT|O_RDWR", "7 ioctl(3</r/f>, FIOCLEX) = 0", True),
        ("O_CREAT|O_RDWR|O_CLOEXEC", "7 ioctl(3</r/f>, FIONCLEX) = 0", False),
        ("O_CREAT|O_RDWR|O_CLOEXEC", "7 dup2(3</r/f>, 3</r/f>) = 3</r/f>", True),
        ("O_CREAT|O_RDWR|O_CLOEXEC", "7 dup2(3</r/f>, 4) = 4</r/f>", False),
        ("O_CREAT|O_RDWR|O_CLOEXEC", "7 clone(flags=SIGCHLD) = 8", False),
        ("O_CREAT|O_RDWR|O_CLOEXEC", "7 clone(flags=CLONE_FILES|SIGCHLD) = 8", False),
    ],
)
def test_a_program_that_is_executed_has_no_descriptor_that_was_to_be_closed_then(
    opened: str, marked: str, is_closed: bool
) -> None:
    """It kept a file without a name until it ended: what was written and synced behind that did so beside an
    orphan that the kernel had freed. Later, one that ioctl(2) had kept open was closed, as Python's
    os.set_inheritable does: what the program wrote by it was left out.
    """
    lines = f"""7 openat(AT_FDCWD</r>, "f", {opened}, 0644) = 3</r/f>
{marked}
7 unlink("/r/f") = 0
7 fsync(3</r/f>(deleted)) = 0
7 execve("/x", ["x"], 0x7f /* 1 var */) = 0
7 mkdir("/r/d", 0755) = 0
"""
    done = told(of(lines))
    assert ("close @1" in done[: done.index("mkdir d")]) == is_closed


@pytest.mark.parametrize(
    "call", ['link("/r/f", "/x/g")', 'linkat(3</r/f>, "", AT_FDCWD</x>, "g", AT_EMPTY_PATH)']
)
def test_a_link_out_of_the_folder_is_counted(call: str) -> None:
    """It was passed over: what was done by the other name was missing, and nothing said so."""
    opened = '1 openat(AT_FDCWD</x>, "/r/f", O_CREAT|O_RDWR, 0644) = 3</r/f>\n'
    found = of(f'{opened}1 {call} = 0\n1 link("/x/a", "/x/b") = 0\n')
    assert (told(found), list(found.left_out)) == (
        ["create f"],
        ["links to what is not in the folder, or out of it"],
    )


@pytest.mark.parametrize("is_there", [False, True])
def test_a_file_opened_again_behind_its_name_is_not_the_one_that_has_the_name_now(is_there: bool) -> None:
    """The new file was emptied in its place, and nothing said so. Where there was none, an open(2) that only
    reads counted as a call that was left out.
    """
    again = '1 openat(AT_FDCWD</r>, "f", O_CREAT|O_EXCL|O_RDWR, 0600) = 4</r/f>\n' if is_there else ""
    lines = f"""1 openat(AT_FDCWD</r>, "f", O_CREAT|O_EXCL|O_RDWR, 0600) = 3</r/f>
1 unlink("/r/f") = 0
{again}1 openat(AT_FDCWD</r>, "/proc/self/fd/3", FLAGS) = 5</r/f>(deleted)
"""
    done = ["create f", "unlink f", *(["create f"] if is_there else [])]
    read = of(lines.replace("FLAGS", "O_RDONLY"))
    assert (told(read), read.left_out) == (done, {})
    emptied = of(lines.replace("FLAGS", "O_WRONLY|O_TRUNC"))
    assert told(emptied) == done
    assert emptied.left_out == {"calls on a file that had no name when it was opened": 1}


def test_the_size_of_a_file_that_was_replaced_is_not_that_of_the_one_in_its_place() -> None:
    """`g` was made with it, before the program began."""
    lines = """1 openat(AT_FDCWD</r>, "f", O_RDONLY) = 3</r/f>
1 rename("/r/g", "/r/f") = 0
1 fstat(3</r/f>(deleted), {st_mode=S_IFREG|0644, st_size=500, ...}) = 0
"""
    assert [str(op) for op in of(lines).before] == ["create f", "create g"]


def test_no_memory_at_all_is_an_address() -> None:
    """It was no number: the whole log was refused."""
    assert told(of("7 msync(NULL, 0, MS_SYNC) = 0\n7 mprotect(NULL, 0, PROT_READ|PROT_WRITE) = 0\n")) == []


def test_a_name_that_no_word_can_hold_is_escaped() -> None:
    (made,) = told(of('1 mkdir("\\x2f\\x72\\x2f\\x40\\x61\\x20\\x25\\xff", 0777) = 0\n'))
    assert made == "mkdir %40a%20%25%ff"


def test_arguments_with_commas_are_one_each() -> None:
    assert split('3</a,b>, [{iov_base="\\x2c"..., iov_len=1}, {}], 2') == [
        *("3</a,b>", '[{iov_base="\\x2c"..., iov_len=1}, {}]', "2")
    ]
    assert string('"\\x61"...') == "a"


def test_what_is_no_log_says_how_to_make_one() -> None:
    with pytest.raises(UsageError) as told_:
        list(calls_of(["nothing of the kind"]))
    assert OPTIONS in str(told_.value.next_step)


def test_a_log_without_the_paths_behind_descriptors_is_refused() -> None:
    with pytest.raises(UsageError, match="is not written as it should be") as told_:
        of('7 openat(AT_FDCWD, "\\x66", O_WRONLY|O_CREAT, 0666) = 3\n')
    assert OPTIONS in str(told_.value.next_step)


@pytest.mark.parametrize("line", ["pwrite64(3</r/f>", "fallocate(3</r/f>, 0, ?, 1", "ftruncate(3</r/f>, x"])
def test_a_call_that_is_cut_or_not_understood_is_a_usage_error(line: str) -> None:
    with pytest.raises(UsageError, match="is not written as it should be"):
        of(f"7 {line}) = 7\n")


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ('7 execve() = 0\n7 creat("\\x66", 0666) = 3</r/f>\n7 +++ exited with 0 +++\n', "no call on a descr"),
        ("close(3</r/f>) = 0\n[pid  7] write(3</r/f>, 1, 1) = 1\n", "which process they are of"),
        ('7 openat(AT_FDCWD</x>, "\\x2fr\\x2ff", O_RDWR) = 3</real/r/f>\n', "has another name in the log"),
    ],
)
def test_a_log_in_which_calls_are_not_to_be_seen_is_refused(lines: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        of(lines)


def test_a_root_that_no_log_could_name_is_refused() -> None:
    with pytest.raises(UsageError, match="no absolute path"):
        of("7 sync() = 0\n", "r")


def test_pipes_and_sockets_are_no_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert told(of("7 write(1<pipe:[33]>, 1, 1) = 1\n7 sync() = 0\n", str(tmp_path))) == ["sync"]


def test_a_time_before_a_call_is_no_process() -> None:
    opened = 'openat(AT_FDCWD</r>, "\\x66", O_WRONLY|O_CREAT, 0666) = 3</r/f>'
    calls = (opened, "write(3</r/f>, 1, 7) = 7", "write(3</r/f>, 1, 2) = 2")
    lines = "".join(f"170000000{i}.5 {call}\n" for i, call in enumerate(calls))
    assert told(of(lines)) == ["create f", "write f 0 7", "write f 7 2"]


def test_what_other_processes_did_is_told_where_the_log_does_not_show_it() -> None:
    without_f = of("clone(child_stack=NULL, flags=SIGCHLD) = 8\nsync() = 0\n")
    assert without_f.left_out == {"what another process did, which strace shows only with -f": 1}
    attached = of('7 sync() = 0\n8 write(1</r/f>, 1, 4) = 4\n8 mkdir("\\x64", 0777) = 0\n')
    assert told(attached) == ["sync"]
    assert sum(attached.left_out.values()) == 3


def test_requests_of_aio_are_counted() -> None:
    assert "io_submit" in OPTIONS
    assert sum(of("7 io_submit(0x1, 1, [{aio_fildes=3</r/f>}]) = 1\n").left_out.values()) == 1


def test_what_changes_a_file_without_a_name_changes_it_by_its_handle() -> None:
    found = of(
        """
7 openat(AT_FDCWD</r>, "\\x66", O_RDWR|O_CREAT, 0666) = 3</r/f>
7 unlink("\\x2fr\\x2ff") = 0
7 fchmod(3</r/f>(deleted), 0600) = 0
7 fchown(3</r/f>(deleted), 1, 2) = 0
7 dup2(1</dev/null>, 3</r/f>(deleted)) = 3</dev/null>
7 sync() = 0
"""
    )
    assert told(found) == [
        *("create f", "open f @1", "unlink f", "chmod @1 600", "chown @1 1 2", "close @1", "sync")
    ]
    assert found.before == ()


def test_a_symbolic_link_that_was_there_is_one_and_is_followed() -> None:
    found = of(
        """
7 readlink("\\x2fr\\x2fl", "\\x64", 4096) = 1
7 lstat("\\x2fr\\x2fl", {st_mode=S_IFLNK|0777, st_size=1, ...}) = 0
7 mkdir("\\x2fr\\x2fl\\x2fx", 0777) = 0
7 chmod("\\x2fr\\x2fl", 0700) = 0
7 unlink("\\x2fr\\x2fl") = 0
7 lstat("\\x2fr\\x2fm", {st_mode=S_IFLNK|0777, st_size=1, ...}) = 0
7 truncate("\\x2fr\\x2fm", 4) = 0
"""
    )
    assert told(found) == ["mkdir d/x", "chmod d 700", "unlink l"]
    assert [str(op) for op in found.before] == ["mkdir d", "symlink l d"]
    assert found.left_out == {"calls through a symbolic link that the log does not read": 1}


def test_what_a_log_shows_only_after_open_was_there_before() -> None:
    """A folder that was opened without O_DIRECTORY, and the sizes that fstat(2) tells of open files."""
    found = of(
        """
7 openat(AT_FDCWD</r>, "\\x64", O_RDONLY) = 3</r/d>
7 openat(AT_FDCWD</r>, "\\x66", O_RDWR) = 4</r/f>
7 fstat(4</r/f>, {st_mode=S_IFREG|0644, st_size=700, ...}) = 0
7 openat(AT_FDCWD</r>, "\\x67", O_RDWR|O_CREAT, 0644) = 5</r/g>
7 fstat(5</r/g>, {st_mode=S_IFREG|0644, st_size=300, ...}) = 0
7 pwrite64(4</r/f>, ""..., 9, 100) = 9
7 fstat(4</r/f>, {st_mode=S_IFREG|0644, st_size=800, ...}) = 0
7 mkdirat(3</r/d>, "\\x78", 0777) = 0
7 fsync(3</r/d>) = 0
"""
    )
    assert [str(op) for op in found.whole] == [
        *("mkdir d", "create f", "append f 700", "create g", "append g 300", "sync"),
        *("write f 100 9", "mkdir d/x", "fsync d"),
    ]


def test_what_was_in_a_folder_that_was_renamed_was_there_by_its_old_name() -> None:
    renamed = '7 rename("\\x2fr\\x2fd", "\\x2fr\\x2fe") = 0\n7 unlink("\\x2fr\\x2fe\\x2fx") = 0\n'
    found = of(renamed)
    assert told(found) == ["rename d e", "unlink e/x"]
    assert [str(op) for op in found.before] == ["mkdir d", "create d/x"]
    exchanged = of(
        """
7 mkdir("\\x2fr\\x2fd", 0777) = 0
7 mkdir("\\x2fr\\x2fd\\x2fx", 0777) = 0
7 mkdir("\\x2fr\\x2fe", 0777) = 0
7 renameat2(AT_FDCWD</r>, "\\x64", AT_FDCWD</r>, "\\x65", RENAME_EXCHANGE) = 0
7 rmdir("\\x2fr\\x2fe\\x2fx") = 0
"""
    )
    assert told(exchanged)[3:] == ["exchange d e", "rmdir e/x"]
    assert exchanged.before == ()


def test_offsets_follow_what_is_read_by_a_copy_and_flags_what_is_set_later() -> None:
    found = of(
        """
7 openat(AT_FDCWD</r>, "\\x66", O_RDWR|O_CREAT|O_EXCL, 0666) = 3</r/f>
7 openat(AT_FDCWD</r>, "\\x67", O_RDWR|O_CREAT|O_EXCL, 0666) = 4</r/g>
7 sendfile(4</r/g>, 3</r/f>, NULL, 50) = 50
7 write(3</r/f>, ""..., 5) = 5
7 fcntl(3</r/f>, F_SETFL, O_RDWR|O_APPEND) = 0
7 write(3</r/f>, ""..., 6) = 6
"""
    )
    assert told(found)[2:] == ["write g 0 50", "write f 50 5", "append f 6"]


@pytest.mark.parametrize(
    "append",
    [
        'fcntl(3</r/f>, F_SETFL, O_RDWR|O_APPEND) = 0\n7 write(3</r/f>, ""..., 5) = 5\n'
        "7 fcntl(3</r/f>, F_SETFL, O_RDWR) = 0",
        "pwritev2(3</r/f>, [{iov_len=5}], 1, -1, RWF_APPEND) = 5",
    ],
)
def test_an_append_leaves_the_offset_at_the_end(append: str) -> None:
    """What was written behind it overwrote the file's begin."""
    opened = '7 openat(AT_FDCWD</r>, "\\x66", O_RDWR|O_CREAT|O_EXCL, 0666) = 3</r/f>\n'
    log = f'{opened}7 {append}\n7 write(3</r/f>, ""..., 6) = 6\n'
    found = of(log)
    assert told(found) == ["create f", "append f 5"]
    assert found.left_out == {"writes at a place that the log does not show": 1}
    found = of(f'{log}7 lseek(3</r/f>, 0, SEEK_END) = 11\n7 write(3</r/f>, ""..., 7) = 7\n')
    assert told(found) == ["create f", "append f 5", "write f 11 7"]


@pytest.mark.parametrize(("place", "then"), [(-1, 5), (40, 0)])
def test_preadv2_moves_the_offset_that_it_reads_at(place: int, then: int) -> None:
    opened = '7 openat(AT_FDCWD</r>, "\\x66", O_RDWR|O_CREAT|O_EXCL, 0666) = 3</r/f>\n'
    read = f"7 preadv2(3</r/f>, [{{iov_len=5}}], 1, {place}, 0) = 5\n"
    assert told(of(f'{opened}{read}7 write(3</r/f>, ""..., 6) = 6\n')) == ["create f", f"write f {then} 6"]


def test_a_folder_of_which_only_a_part_is_named_is_not_known() -> None:
    """After chdir("s") from nobody knows where, calls by relative names were dropped without a word."""
    found = of('7 chdir("\\x73") = 0\n7 mkdir("\\x78", 0777) = 0\n7 close(3</r/f>) = 0\n')
    assert found.left_out == {"mkdir of a relative path in a folder that the log does not name": 1}


def test_where_a_program_began_is_known_before_its_calls_say_it() -> None:
    """A static program makes no call from AT_FDCWD: its folder was not known, and `mkdir d` was left out."""
    lines = """1 mkdir("d", 0755) = 0
1 symlink("d", "l") = 0
1 open("l/f", O_WRONLY|O_CREAT|O_EXCL, 0644) = 3</r/d/f>
1 rename("l/f", "f") = 0
1 close(3</r/f>) = 0"""
    found = imported(calls_of(lines.splitlines()), "/r", "/r")
    assert told(found) == ["mkdir d", "symlink l d", "create d/f", "rename d/f f"]
    assert not found.before
    assert not found.left_out


def test_a_link_in_proc_is_what_the_process_has_there() -> None:
    """What was called by such a name was left out, and not counted."""
    found = of(
        """1 openat(AT_FDCWD</r>, ".", O_RDONLY|O_DIRECTORY) = 3</r>
1 openat(AT_FDCWD</r>, "f", O_WRONLY|O_CREAT|O_EXCL, 0644) = 4</r/f>
1 chmod("/proc/self/fd/4", 0600) = 0
1 rename("/proc/self/fd/3/f", "/dev/fd/3/g") = 0
1 rename("/proc/1/cwd/g", "/proc/thread-self/cwd/h") = 0
1 unlink("/proc/self/fd/3/h") = 0
1 chmod("/proc/self/fd/4", 0644) = 0
1 chmod("/proc/self/fd/9", 0644) = 0"""
    )
    done = ["create f", "chmod f 600", "rename f g", "rename g h", "unlink h"]
    assert told(found) == done
    assert found.left_out == {"chmod of what a link in /proc leads to": 1}


def test_a_link_in_proc_of_another_process_is_what_that_one_has_there() -> None:
    """It was taken for the caller's own: the file of the caller's descriptor of that number was changed."""
    found = of(
        """1 openat(AT_FDCWD</r>, "f", O_WRONLY|O_CREAT|O_EXCL, 0644) = 4</r/f>
1 mkdir("d", 0755) = 0
1 openat(AT_FDCWD</r>, ".", O_WRONLY|O_TMPFILE, 0644) = 3</r/#5>(deleted)
1 clone(child_stack=NULL, flags=SIGCHLD) = 2
2 close(3</r/#5>(deleted)) = 0
2 close(4</r/f>) = 0
2 openat(AT_FDCWD</r>, "g", O_WRONLY|O_CREAT|O_EXCL, 0644) = 4</r/g>
2 chdir("d") = 0
2 chmod("/proc/1/fd/4", 0600) = 0
2 chmod("/proc/self/task/2/fd/4", 0640) = 0
2 linkat(AT_FDCWD</r/d>, "/proc/1/fd/3", AT_FDCWD</r/d>, "h", AT_SYMLINK_FOLLOW) = 0
1 unlink("/proc/2/cwd/h") = 0
1 mkdir("/proc/3/cwd/d", 0755) = 0
1 open("/proc/3/fd/4", O_RDONLY) = 7</elsewhere>
1 chmod("/proc/3/fd/4", 0644) = 0
1 linkat(AT_FDCWD</r>, "/proc/3/fd/4", AT_FDCWD</r>, "i", AT_SYMLINK_FOLLOW) = 0"""
    )
    made = ["create f", "mkdir d", "open-tmpfile . @1", "create g"]
    by_link = ["chmod f 600", "chmod g 640", "link @1 d/h", "unlink d/h"]
    assert [op for op in told(found) if not op.startswith("close")] == made + by_link
    calls = ("mkdir", "chmod", "linkat")
    assert found.left_out == {f"{call} of what a link in /proc leads to": 1 for call in calls}


def test_who_looks_at_a_link_in_proc_does_not_see_the_file_behind_it() -> None:
    """A file whose name realpath(3) asked for became a symbolic link to itself."""
    for look in ('readlink("/proc/self/fd/4", "/r/f", 4096)', 'lstat("/dev/fd/4", {st_mode=S_IFLNK|0700})'):
        found = of(f"""1 openat(AT_FDCWD</r>, "f", O_RDWR) = 4</r/f>\n1 {look} = 4\n1 fsync(4</r/f>) = 0""")
        assert [str(op) for op in found.before] == ["create f"], look
    found = of(
        """1 openat(AT_FDCWD</r>, ".", O_RDONLY|O_DIRECTORY) = 4</r>
1 readlink("/proc/self/fd/4/l", "t", 4096) = 1
1 unlink("l") = 0"""
    )
    assert [str(op) for op in found.before] == ["symlink l t"]


def test_a_child_is_of_the_process_that_made_it_while_another_is_making_one() -> None:
    found = of(
        """
1 openat(AT_FDCWD</r>, "\\x66", O_WRONLY|O_CREAT|O_APPEND, 0666) = 3</r/f>
1 clone(child_stack=NULL, flags=SIGCHLD) = 2
2 close(3</r/f>) = 0
1 clone(child_stack=NULL, flags=SIGCHLD) = 3
2 clone(child_stack=NULL, flags=SIGCHLD <unfinished ...>
3 write(3</r/f>, ""..., 5) = 5
2 <... clone resumed>) = 4
4 write(3</r/f>, ""..., 9) = 9
"""
    )
    assert told(found) == ["create f", "append f 5"]
    assert sum(found.left_out.values()) == 1


def test_a_thread_shares_the_folder_it_is_in() -> None:
    found = of(
        """
1 chdir("\\x2fr") = 0
1 clone(flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_THREAD) = 2
2 chdir("\\x64") = 0
1 mkdir("\\x78", 0777) = 0
"""
    )
    assert told(found) == ["mkdir d/x"]


def test_strings_of_other_options_of_strace_are_read() -> None:
    assert split(r'"a\", b", 5') == [r'"a\", b"', "5"]
    assert string(r'"a\"\303\244\n"...') == 'a"\u00e4\n'


def test_any_name_can_be_loaded_again(tmp_path: Path) -> None:
    log, file = tmp_path / "\U0001f389\x7f.log", tmp_path / "mine.toml"
    log.write_text('7 mkdir("\\x2fr\\x2f\\xf0\\x9f\\x8e\\x89", 0777) = 0\n')
    done = CliRunner().invoke(import_command, [str(log), "--root", "/r", "-o", str(file)])
    assert done.exit_code == ExitCode.CONSISTENT, done.output
    assert [op.path for op in load_workload(str(file)).operations] == ["\U0001f389"]


def test_a_program_that_changes_nothing_where_it_ran_is_told_so() -> None:
    """The message named a log and a folder that were there no more, and asked for another --root."""
    need_program("strace")
    done = CliRunner().invoke(import_command, ["--", "true"])
    assert done.exit_code == ExitCode.USAGE
    assert "true: no call changes anything below the folder that it ran in" in done.output
    assert "--root" not in done.output
    assert "powercut-import" not in done.output


def test_a_rename_of_a_file_looks_at_no_other_name() -> None:
    """Each rename went through all names that there are: 16,000 files took a minute and a half."""
    asked: list[str] = []

    class Counted(str):
        __slots__ = ()

        def startswith(self, *words: Any) -> bool:
            asked.append(self)
            return super().startswith(*words)

    work = _Import("/r")
    for i in range(100):
        work._there[Counted(f"f{i}")] = _Inode(OperationKind.CREATE)
    work._there[Counted("d/f")] = _Inode(OperationKind.CREATE)
    work._move("f0", "g0")
    assert not asked
    assert "g0" in work._there
    work._move("d", "e")
    assert "e/f" in work._there
    assert work._there.at("d") == []


def test_the_names_below_a_folder_move_with_it_though_nobody_made_it() -> None:
    """Of a folder that only names below it show, too."""
    found = of(
        'stat("/r/d/sub/f", {st_mode=S_IFREG|0644, st_size=10, ...}) = 0\n'
        'rename("/r/d", "/r/e") = 0\n'
        "close(3</r/x>) = 0\n"
        'openat(AT_FDCWD</r>, "e/sub/f", O_RDWR) = 3</r/e/sub/f>\n'
        'write(3</r/e/sub/f>, "x", 5) = 5\n'
    )
    assert "append d/sub/f 10" in [str(op) for op in found.before]
    assert told(found)[-1] == "write e/sub/f 0 5"


def test_a_handle_is_closed_once_by_the_last_that_holds_it() -> None:
    """Who holds one was looked for among all open files, at each close."""
    found = of(
        '1 openat(AT_FDCWD</r>, "f", O_RDWR|O_CREAT, 0666) = 3</r/f>\n'
        "1 dup2(3</r/f>, 4) = 4</r/f>\n"
        '1 unlink("f") = 0\n'
        "1 clone(child_stack=NULL, flags=SIGCHLD) = 2\n"
        "2 close(3</r/f>(deleted)) = 0\n"
        "1 close(3</r/f>(deleted)) = 0\n"
        "1 close(4</r/f>(deleted)) = 0\n"
        '2 write(4</r/f>(deleted), "x", 5) = 5\n'
        "2 +++ exited with 0 +++\n"
        "1 +++ exited with 0 +++\n"
    )
    assert told(found) == ["create f", "open f @1", "unlink f", "write @1 0 5", "close @1"]


def test_absolute_names_start_from_the_root_of_the_process() -> None:
    """After chroot(2), calls by absolute names were dropped without a word, as of names elsewhere."""
    found = of(
        """1 mkdir("/r/jail", 0755) = 0
1 symlink("jail", "/r/way") = 0
1 clone(child_stack=NULL, flags=SIGCHLD) = 2
2 chroot("/r/way") = 0
2 chdir("/") = 0
2 openat(AT_FDCWD</r/jail>, "/f", O_WRONLY|O_CREAT|O_EXCL, 0644) = 3</r/jail/f>
2 mkdir("/d", 0755) = 0
2 symlink("/d", "l") = 0
2 rename("/f", "/l/../../d/g") = 0
2 clone(child_stack=NULL, flags=SIGCHLD) = 3
3 chdir("d") = 0
3 mkdir("../../../of child", 0755) = 0
3 chroot("/of child") = 0
3 mkdir("/e", 0755) = 0
3 unlink("../d/g") = 0
1 mkdir("/d", 0755) = 0"""
    )
    assert told(found) == [
        *("mkdir jail", "symlink way jail", "create jail/f", "mkdir jail/d", "symlink jail/l /d"),
        *("rename jail/f jail/d/g", "mkdir jail/of%20child", "mkdir jail/of%20child/e", "unlink jail/d/g"),
    ]
    assert (found.before, found.left_out) == ((), {})


@pytest.mark.parametrize(
    ("call", "by"),
    [
        ('chroot("s")', {2}),
        ('pivot_root(".", "old")', {2, 3}),
        ("setns(9<mnt:[7]>, 0)", {2}),
        ("setns(9<net:[7]>, 0)", set()),
    ],
)
def test_what_a_process_does_from_a_root_that_is_not_known_is_counted(call: str, by: set[int]) -> None:
    """Its names were taken for those of the log: what was done below the root was lost."""
    calls = ["1 clone(flags=CLONE_NEWNS) = 2", "2 clone(flags=SIGCHLD) = 3", f"2 {call} = 0"]
    for pid in (1, 2, 3):
        calls += [
            f'{pid} openat(AT_FDCWD</x>, "/lib", O_RDONLY) = 4</lib>',
            f'{pid} mkdir("/r/{pid}", 0) = 0',
        ]
        calls += [f'{pid} write(5</x>, "", 1) = 1']
    found = of("\n".join(calls))
    assert told(found) == [f"mkdir {pid}" for pid in (1, 2, 3) if pid not in by]
    assert found.left_out.get("calls of a process whose root directory the log does not show", 0) == 2 * len(
        by
    )


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        ('1 rename("f", "g" <unfinished ...>) = ?\n1 +++ killed by SIGKILL +++', {"rename"}),
        ('1 write(3</r/f>, "D"..., 9 <unfinished ...>\n1 <... write resumed>) = ?', {"write"}),
        ("1 fsync(3</r/f> <unfinished ...>\n1 +++ killed by SIGKILL +++", {"fsync"}),
        ("1 fsync(3</r/f> <unfinished ...>\n2 fsync(3</r/f> <unfinished ...>", {"fsync"}),
        ('1 unlink("f"', {"unlink"}),
        ('1 openat(AT_FDCWD</r>, "g", O_WRONLY|O_CREAT, 0644 <unfinished ...>', {"openat"}),
        ('1 openat(AT_FDCWD</r>, "f", O_RDONLY <unfinished ...>', set()),
        ("1 sync( <unfinished ...>", {"sync"}),
        ('1 write(1</elsewhere>, "/r/f"..., 9 <unfinished ...>', set()),
        ('1 unlink("/elsewhere" <unfinished ...>', set()),
        ("1 read(3</r/f>,  <unfinished ...>", set()),
        ("1 ioctl(3</r/f>, FS_IOC_GETFLAGS <unfinished ...>", set()),
        ("1 fsync(3</r/f>) = ? ERESTARTSYS (To be restarted if SA_RESTART is set)", set()),
        ("1 exit_group(0) = ?\n1 +++ exited with 0 +++", set()),
        ("9 wait4(-1,  <unfinished ...>", set()),
    ],
)
def test_a_call_that_never_returned_is_counted_if_it_changes_something(lines: str, left: set[str]) -> None:
    """It was dropped without a word: nobody knows whether it was done."""
    begin = '1 openat(AT_FDCWD</r>, "f", O_RDWR|O_CREAT|O_EXCL, 0644) = 3</r/f>\n'
    found = of(begin + "1 close(9</x>) = 0\n1 clone(flags=CLONE_VM|CLONE_FS|CLONE_FILES) = 2\n" + lines)
    assert told(found) == ["create f"]
    assert set(found.left_out) == {f"{call}, which had not returned" for call in left}


def test_a_log_that_ends_within_a_line_says_so(tmp_path: Path) -> None:
    """A write of 4096 bytes was one of 40: the rest of the line was missing."""
    log = tmp_path / "log"
    log.write_text('7 creat("/r/f", 0644) = 3</r/f>\n7 write(3</r/f>, ""..., 4096) = 40')
    done = CliRunner().invoke(import_command, [str(log), "--root", "/r"])
    assert '"create f",\n]' in done.output
    assert "left out: write, which had not returned: 1" in done.output
    assert "left out: what the program did after the log, which ends within a line: 1" in done.output
    log.write_text("\n".join([*log.read_text().splitlines(), ""]))
    assert "write f 0 40" in CliRunner().invoke(import_command, [str(log), "--root", "/r"]).output


@pytest.mark.parametrize(
    ("line", "is_cut"),
    [
        ("7 +++ exited with 0 +++", False),
        ("7 --- SIGCHLD {si_signo=SIGCHLD} ---", False),
        ("7 fsync(3</r/f>)   = 0", False),
        ("7 <... fsync resumed>) = 0", False),
        ('7 openat(AT_FDCWD</r>, "g", O_RDWR|O_CREAT, 0644) = 4</r/g>', False),
        ('7 unlink("g") = -1 ENOENT (No such file or directory)', False),
        ('7 unlink("g") = -1 ENO', True),
        ('7 write(3</r/f>, ""..., 4096) = 40', True),
        ('7 write(3</r/f>, ") = 0', True),
        ("7 mmap(NULL, 9, PROT_READ, MAP_SHARED, 3</r/f>, 0) = 0", True),
        ('7 openat(AT_FDCWD</r>, "g", O_RDWR|O_CREAT, 0644) = 0', True),
    ],
)
def test_a_last_line_that_lacks_only_its_end_is_whole(line: str, is_cut: bool) -> None:
    """A log that was copied without its last newline had a sync less, and "ends within a line"."""
    begin = ['7 creat("/r/f", 0644) = 3</r/f>\n', "7 close(9</x>) = 0\n"]
    calls = list(calls_of([*begin, line]))
    assert (calls[-1].name == "cut") is is_cut
    assert all(call.has_returned for call in calls) or is_cut


def test_a_thread_that_unshares_has_a_folder_and_descriptors_of_its_own() -> None:
    """Its chdir(2) moved what the other threads did, and its close(2) closed their files."""
    begin = """1 chdir("/r") = 0
1 clone(flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_THREAD) = 2
1 openat(AT_FDCWD</r>, "f", O_WRONLY|O_CREAT|O_EXCL|O_APPEND, 0644) = 3</r/f>
2 {}
2 chdir("d") = 0
2 close(3</r/f>) = 0
1 mkdir("x", 0755) = 0
2 mkdir("y", 0755) = 0
1 write(3</r/f>, "", 5) = 5"""
    for call, folder, is_open in (
        ("unshare(CLONE_FS)", "", False),
        ("unshare(CLONE_NEWNS|CLONE_FILES)", "", True),
        ("unshare(CLONE_FILES)", "d/", True),
        ("close_range(9, 9, CLOSE_RANGE_UNSHARE)", "d/", True),
        ("close_range(9, 4294967295, 0)", "d/", False),
    ):
        found = of(begin.format(f"{call} = 0"))
        done = ["create f", f"mkdir {folder}x", "mkdir d/y", *(["append f 5"] if is_open else [])]
        assert told(found)[: len(done)] == done, call
        assert ("append f 5" in told(found)) == is_open, call


BIND = 'mount("{}", "{}", 0x1, MS_BIND, NULL)'
MOVED = 'move_mount(4</>, "", AT_FDCWD</r>, "{}", MOVE_MOUNT_F_EMPTY_PATH)'


@pytest.mark.parametrize(
    ("mounts", "point", "is_counted"),
    [
        ([BIND.format("/r/a", "/r/b")], "/r/b", True),
        (['mount("none", "/r/b", "tmpfs", 0, NULL)'], "/r/b", True),
        (['mount("n", "/r/o/m", "t", 0, NULL)', 'rename("/r/o", "/r/n")'], "/r/n/m", True),
        (['symlink("b", "/r/l")', BIND.format("/r/a", "/r/l")], "/r/b", True),
        ([MOVED.format("b")], "/r/b", True),
        ([BIND.format("/r/a", "/mnt")], "/mnt", True),
        ([BIND.format("/", "/mnt")], "/mnt/r", True),
        ([BIND.format("/r", "/mnt"), BIND.format("/mnt/a", "/mnt2")], "/mnt2", True),
        (['open_tree(AT_FDCWD</r>, "", OPEN_TREE_CLONE)', MOVED.format("/mnt")], "/mnt", True),
        (['mount("/dev/sda", "/mnt", "ext4", 0, NULL)'], "/mnt", False),
        ([BIND.format("/r/a", "/r/b"), 'umount2("/r/b", MNT_DETACH)'], "/r/b", False),
        (['mount("/dev/sda", "/r", "ext4", 0, NULL)'], "/r", False),
        (['mount("none", "/", NULL, MS_REC|MS_PRIVATE, NULL)'], "/r", False),
    ],
)
def test_what_is_done_below_a_mount_point_is_counted(mounts: list[str], point: str, is_counted: bool) -> None:
    """mount(2) was ignored: what a bind mount leads to was changed by its other name."""
    calls = [*(f"{call} = 0" for call in mounts), f'mkdir("{point}/x", 0755) = 0']
    calls += [f'openat(AT_FDCWD</x>, "{point}/f", O_RDWR) = 3<{point}/f>', f"fsync(3<{point}/f>) = 0"]
    calls += ['mkdir("/r/y", 0755) = 0']
    found = of("\n".join(f"1 {call}" for call in calls))
    is_done = point.startswith("/r") and not is_counted
    done = [op for op in told(found) if not op.startswith(("rename", "symlink"))]
    assert [op.partition(" ")[0] for op in done] == ["mkdir", "fsync", "mkdir"] if is_done else ["mkdir y"]
    assert found.left_out.get("calls below a mount point", 0) == 2 * is_counted


@pytest.mark.parametrize(
    ("made", "is_private"),
    [
        ("1 clone(flags=CLONE_NEWNS|SIGCHLD) = 2", True),
        ("1 clone(flags=SIGCHLD) = 2\n2 unshare(CLONE_NEWNS) = 0", True),
        ("1 clone(flags=SIGCHLD) = 2", False),
    ],
)
def test_a_mount_is_one_of_the_namespace_of_the_process(made: str, is_private: bool) -> None:
    """`unshare -m sh -c "mount --bind ..."`: what its parent wrote and synced below that name was gone."""
    found = of(
        f"""1 mkdir("/r/a", 0755) = 0
1 mount("none", "/r/a", "tmpfs", 0, NULL) = 0
1 mkdir("/r/b", 0755) = 0
{made}
2 mount("none", "/r/b", "tmpfs", 0, NULL) = 0
2 mkdir("/r/b/unseen", 0755) = 0
2 mkdir("/r/a/unseen", 0755) = 0
1 mkdir("/r/b/c", 0755) = 0
1 mkdir("/r/a/unseen", 0755) = 0
2 umount2("/r/a", 0) = 0
1 mkdir("/r/a/unseen", 0755) = 0
2 mkdir("/r/a/d", 0755) = 0"""
    )
    done = ["mkdir a", "mkdir b", "mkdir b/c", "mkdir a/d"]
    shared = ["mkdir a", "mkdir b", "mkdir a/unseen", "mkdir a/d"]
    assert told(found) == (done if is_private else shared)


def test_a_name_that_goes_or_moves_takes_what_is_mounted_there_in_another_namespace() -> None:
    calls = [
        'mkdir("/r/b", 0755) = 0',
        "clone(flags=CLONE_NEWNS) = 2",
        'rmdir("/r/b") = 0',
        'mkdir("/r/b", 0) = 0',
    ]
    lines = [f"1 {call}" for call in calls] + ['2 mkdir("/r/b/c", 0755) = 0']
    lines.insert(2, '2 mount("none", "/r/b", "tmpfs", 0, NULL) = 0')
    assert told(of("\n".join(lines)))[-1] == "mkdir b/c"
    lines[3:] = ['1 rename("/r/b", "/r/e") = 0', '2 mkdir("/r/e/unseen", 0) = 0', '1 mkdir("/r/e/f", 0) = 0']
    assert told(of("\n".join(lines))) == ["mkdir b", "rename b e", "mkdir e/f"]


@pytest.mark.parametrize("point", ["/r/m", "/r"])
def test_a_mount_that_is_detached_takes_those_below_it(point: str) -> None:
    """What was done afterwards below the second mount was left out for good."""
    lines = f"""1 mkdir("/r/m", 0755) = 0
1 mount("/x", "{point}", NULL, MS_BIND, NULL) = 0
1 mount("proc", "/r/m/proc", "proc", 0, NULL) = 0
1 mount("proc", "/r/mm", "proc", 0, NULL) = 0
1 umount2("{point}", MNT_DETACH) = 0
1 mkdir("/r/m/proc", 0755) = 0
1 mkdir("/r/mm/x", 0755) = 0"""
    done = ["mkdir m", "mkdir m/proc", *(["mkdir mm/x"] if point == "/r" else [])]
    assert told(of(lines)) == done


@pytest.mark.parametrize(
    ("call", "is_counted"),
    [
        (BIND.format("/r/a", "/r/b"), True),
        (BIND.format("/r/a", "/mnt"), True),
        ('mount("/dev/sda", "/r", "ext4", 0, NULL)', True),
        ('umount2("/r", 0)', True),
        ('umount2("/mnt", 0)', False),
        (BIND.format("/x", "/mnt"), False),
        ('mount("none", "/r", NULL, MS_REMOUNT, NULL)', False),
    ],
)
def test_a_mount_that_changes_what_names_of_the_folder_stand_for_is_counted(
    call: str, is_counted: bool
) -> None:
    assert of(f"1 {call} = 0").left_out == ({call.partition("(")[0]: 1} if is_counted else {})


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        ("_IOC(_IOC_WRITE, 0x58, 0x81, 0x28), 0x7ffe", "XFS_IOC_EXCHANGE_RANGE"),
        ("_IOC(_IOC_READ|_IOC_WRITE, 0xc1, 0x1, 0x8), 0x7ffe", "_IOC(_IOC_READ|_IOC_WRITE, 0xc1, 0x1, 0x8)"),
        ("BTRFS_IOC_FILE_EXTENT_SAME or FIDEDUPERANGE, {info=[{dest_fd=4</x>}]}", "FIDEDUPERANGE"),
        ("BTRFS_IOC_CLONE_RANGE or FICLONERANGE, {src_fd=4</x>}", "FICLONERANGE"),
        ("BTRFS_IOC_FORGET_DEV, {}", "BTRFS_IOC_FORGET_DEV"),
        ("FIDEDUPERANGE, {}", "FIDEDUPERANGE"),
        ("_IOC(_IOC_READ, 0x58, 0x7e, 0x100), 0x7ffe", ""),
        ("FS_IOC_FIEMAP, {}", ""),
        ("BTRFS_IOC_TREE_SEARCH, {}", ""),
        ("FS_IOC_FSGETXATTR, {}", ""),
    ],
)
def test_an_ioctl_that_may_change_something_is_counted(asked: str, left: str) -> None:
    """One that strace 6.1 writes by two names, or by its number, was dropped without a word."""
    found = of(f"1 ioctl(3</r/f>, {asked}) = 0\n1 sync() = 0\n")
    assert found.left_out == ({f"ioctl {left}": 1} if left else {})
    to_ours = "{dest_count=1, info=[{dest_fd=4</r/f>, dest_offset=0}]}"
    assert of(f"1 ioctl(3</x>, FIDEDUPERANGE, {to_ours}) = 0\n").left_out
    assert not of(f"1 ioctl(3</x>, {asked}) = 0\n").left_out
