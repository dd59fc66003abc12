"""Modes that are only rules, with a real guest that notes the program and checks the trees."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from harness.filesystems.profiles import select_profiles
from harness.guests.made_trees import MadeTrees
from harness.kernels.find import find_kernel
from harness.model import CaseId, CheckResult, CrashPoint, Verdict
from harness.plan import Budget, Plan
from harness.report.explanation import read_explanation
from harness.ruled.judging import Judging, check_of, followed
from harness.rules.calls import NotedCall
from harness.store import RunStore
from harness.summary import CaseVerdict
from harness.tests.cli.runner import powercut
from harness.tests.there import there
from harness.tests.vm.came_back import Machine, note, noted
from harness.tests.vm.conftest import run_plan
from harness.workloads.load import select_workloads

# busybox: `sync FILE` is fsync, `sync .` of the directory.
RUN = """#!/bin/sh
echo old >c && sync c && sync . && powercut-ack 0
echo new >t && {sync} && mv t c && sync . && powercut-ack 1
"""
CHECK = """#!/bin/sh
read -r last </dev/null; while read -r line; do last=$line; done <"$1"
[ -n "$last" ] || exit 0
held=$(cat c 2>&1)
[ "$held" = new ] || { [ "$held" = old ] && [ "$last" = 0 ]; } || { echo "after $last: $held"; exit 1; }
"""

SPOILS = CHECK.replace(
    "2>&1)\n",
    '2>&1)\nrm -f t; echo spoiled >c; mkdir -p junk/below; chmod 700 .; mkdir "$HOME/mine" || exit 7\n',
)


def write_program(folder: Path, name: str, sync: str, check: str = CHECK) -> str:
    place = folder / name
    place.mkdir()
    (place / "workload.toml").write_text(f'summary = "{name}"\n')
    (place / "run").write_text(RUN.format(sync=sync))
    (place / "check").write_text(check)
    return str(place)


APPLICATIONS = ("git", "journal-magic", "parallel-fsync", "parallel-overwrite", "unlinked-open")
"""Those whose programs every host has that builds Powercut."""


@pytest.mark.parametrize("name", APPLICATIONS)
def test_the_calls_of_an_application_done_again_give_what_it_left(
    name: str, tmp_path: Path, uml_kernel: Path
) -> None:
    """A way to change a file that the tracer does not know would be taken for something that was lost."""
    (profile,) = select_profiles(["any/posix"])
    assert profile.rules is not None
    notes = note(Machine(find_kernel(str(uml_kernel)), tmp_path), select_workloads([name])[0])
    assert notes.exit_code == 0, notes.output
    assert notes.acks
    followed(notes, profile.rules)


def test_a_pipe_that_nobody_reads_any_more_ends_its_writer(tmp_path: Path, uml_kernel: Path) -> None:
    """What was traced had SIGPIPE ignored: `yes | head` told of an error, or never ended."""
    place = write_program(tmp_path, "pipe", "true")
    (tmp_path / "pipe" / "run").write_text("#!/bin/sh\nyes text | head -c 10 >f && powercut-ack 0\n")
    notes = note(Machine(find_kernel(str(uml_kernel)), tmp_path), select_workloads([place])[0])
    assert (notes.exit_code, notes.output) == (0, "")


PRINTS = """#!/bin/sh
for i in 1 2 3 4 5; do echo $i >f$i; sync f$i; echo "$i is done"; done
"""


MAPS = """
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
    int f = open("f", O_CREAT | O_RDWR, 0644);
    ftruncate(f, 8192);
    char *mapped = mmap(0, 4096, PROT_READ, MAP_SHARED, f, 0);
    mprotect(mapped, 4096, PROT_READ | PROT_WRITE);
    mapped[5] = 1;
    return msync(mapped, 0, MS_SYNC) + msync(mapped, 4096, MS_SYNC);
}
"""


def test_stores_into_a_mapping_that_became_writable_are_noted(tmp_path: Path, uml_kernel: Path) -> None:
    """They were not, and what msync(2) had made durable was missing: a false alarm. An msync of no bytes was
    noted as an fdatasync of the whole file, and nothing could be lost behind it.
    """
    place = write_program(tmp_path, "maps", "true")
    (tmp_path / "maps.c").write_text(MAPS)
    subprocess.run(["gcc", "-w", str(tmp_path / "maps.c"), "-o", f"{place}/maps"], check=True)
    (tmp_path / "maps" / "run").write_text('#!/bin/sh\n$(dirname "$0")/maps && powercut-ack 0\n')
    notes = note(Machine(find_kernel(str(uml_kernel)), tmp_path), select_workloads([place])[0])
    assert (notes.exit_code, notes.output) == (0, "")
    told = [(c.word, c.offset, c.length) for c in notes.calls if c.word not in ("create", "size")]
    assert told == [("write", 0, 4096), ("nothing", 0, 0), ("fdatasync", 0, 4096)]
    (store,) = (c.text for c in notes.calls if c.is_store)
    assert store == "a store into a mapping of f (4096 at 0)"  # no file and no place: which of several it was


REFUSED = """
#define _GNU_SOURCE
#include <fcntl.h>
int main(void) { return fallocate(open("f", O_CREAT | O_RDWR, 0644), FALLOC_FL_ZERO_RANGE, 0, 4096) ? 3 : 0; }
"""


def test_a_call_that_the_file_system_in_memory_lacks_is_noted(tmp_path: Path, uml_kernel: Path) -> None:
    """A program that failed for it was told to be corrected."""
    place = write_program(tmp_path, "zeroes", "true")
    (tmp_path / "zeroes.c").write_text(REFUSED)
    subprocess.run(["gcc", "-w", str(tmp_path / "zeroes.c"), "-o", f"{place}/zeroes"], check=True)
    (tmp_path / "zeroes" / "run").write_text('#!/bin/sh\nexec "$(dirname "$0")/zeroes"\n')
    notes = note(Machine(find_kernel(str(uml_kernel)), tmp_path), select_workloads([place])[0])
    assert (notes.exit_code, notes.refused) == (3, ("fallocate(f, zero-range, 4096 at 0)",))
    assert not notes.unseen


@pytest.mark.parametrize("user", ["", "me"])
def test_a_printed_line_is_acknowledged_where_it_was_printed(
    user: str, tmp_path: Path, uml_kernel: Path
) -> None:
    """The program went on while another one read its lines: they counted some calls later, at another one
    each time, and `repro` refused every finding of such a program.
    """
    place = write_program(tmp_path, "prints", "true")
    described = 'summary = "prints"\nacknowledges = "lines"\n' + (f'user = "{user}"\n' if user else "")
    (tmp_path / "prints" / "workload.toml").write_text(described)
    (tmp_path / "prints" / "run").write_text(PRINTS)
    notes = note(Machine(find_kernel(str(uml_kernel)), tmp_path), select_workloads([place])[0])
    assert (notes.exit_code, notes.output) == (0, "")
    assert [ack.text for ack in notes.acks] == [f"{i} is done" for i in range(1, 6)]
    done = [[call.word for call in notes.calls[: ack.calls]].count("fsync") for ack in notes.acks]
    begun = [[call.word for call in notes.calls[: ack.calls]].count("create") for ack in notes.acks]
    assert done == begun == [1, 2, 3, 4, 5]


def test_a_line_that_cannot_be_acknowledged_is_told(tmp_path: Path, uml_kernel: Path) -> None:
    """Only the last line of all was looked at: the others were left out, and what they promised."""
    place = write_program(tmp_path, "prints", "true")
    (tmp_path / "prints" / "workload.toml").write_text('summary = "prints"\nacknowledges = "lines"\n')
    (tmp_path / "prints" / "run").write_text("#!/bin/sh\necho caf\303\251 done\necho 2\n")
    notes = note(Machine(find_kernel(str(uml_kernel)), tmp_path), select_workloads([place])[0])
    assert [ack.text for ack in notes.acks] == ["2"]
    assert notes.exit_code == 125
    assert "printable ASCII" in notes.output


ANEW = """#!/bin/sh
for i in 1 2 3; do echo $i >f$i; sync f$i; echo "$i is done" >{stdout}; done
exec 3<>{stdout}; echo 4 is done; echo 5 is done >&3
"""


@pytest.mark.parametrize("stdout", ["/dev/stdout", "/proc/self/fd/1"])
def test_lines_to_an_output_that_was_opened_anew_are_acknowledged(
    stdout: str, tmp_path: Path, uml_kernel: Path
) -> None:
    """Only the longest of them was: what the others promised was not held against the program. A guest had no
    /dev/stdout, and they went into a file of that name.
    """
    place = write_program(tmp_path, "prints", "true")
    (tmp_path / "prints" / "workload.toml").write_text('summary = "prints"\nacknowledges = "lines"\n')
    (tmp_path / "prints" / "run").write_text(ANEW.format(stdout=stdout))
    notes = note(Machine(find_kernel(str(uml_kernel)), tmp_path), select_workloads([place])[0])
    assert (notes.exit_code, notes.output) == (0, "")
    assert [ack.text for ack in notes.acks] == [f"{i} is done" for i in range(1, 6)]
    begun = [[call.word for call in notes.calls[: ack.calls]].count("create") for ack in notes.acks]
    assert begun == [1, 2, 3, 3, 3]


NAMES_PROC = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
static char name[64], other[64];
static const char *in_proc(char *to, const char *how, int number) { sprintf(to, how, number); return to; }
int main(int count, char **words) {
    const char *how = words[1];
    int f = open("f", O_CREAT | O_RDWR, 0644), d = open(".", O_RDONLY | O_DIRECTORY);
    write(f, "first", 5);
    in_proc(name, "/proc/self/fd/%d", f);
    if (!strcmp(how, "open")) return open(name, O_RDWR | O_TRUNC) < 0;
    if (!strcmp(how, "truncate")) return truncate(name, 0);
    if (!strcmp(how, "chmod")) return chmod(name, 0600);
    if (!strcmp(how, "nameless")) { unlink("f"); return truncate(name, 0) + chmod(name, 0600); }
    if (!strcmp(how, "empty")) { unlink("f"); return syscall(SYS_fchownat, f, "", 0, 5, AT_EMPTY_PATH); }
    if (!strcmp(how, "directory"))
        return rename(in_proc(name, "/proc/self/fd/%d/f", d), in_proc(other, "/dev/fd/%d/g", d));
    if (!strcmp(how, "cwd")) return rename("/proc/self/cwd/f", "/proc/thread-self/cwd/g");
    if (!strcmp(how, "link")) {
        symlink("/mnt/g", "/tmp/leads-to-g");
        return open("/tmp/leads-to-g", O_CREAT | O_WRONLY, 0644) < 0;
    }
    if (!strcmp(how, "in-root")) {
        struct open_how asked = {O_CREAT | O_WRONLY, 0644, RESOLVE_IN_ROOT};
        return syscall(SYS_openat2, d, "/g", &asked, sizeof asked) < 0;
    }
    if (!strcmp(how, "root")) return chroot(".") + rename("/f", "/../g");
    if (!strcmp(how, "socket")) {
        struct sockaddr_un at = {AF_UNIX, "s"};
        return bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&at, sizeof at) + chmod("s", 0777);
    }
    if (!strcmp(how, "bound")) {
        mkdir("/tmp/bound", 0755);
        mount("/mnt", "/tmp/bound", 0, MS_BIND, 0);
        int bound = open("/tmp/bound/f", O_WRONLY);
        write(bound, "other", 5);
        close(bound);
        return umount("/tmp/bound");
    }
    if (!strncmp(how, "clone", 5)) {
        unsigned long long flags = CLONE_UNTRACED | CLONE_VFORK, asked[8] = {flags, 0, 0, 0, SIGCHLD};
        int ends[2], ended;
        pipe(ends);
        if (!fork()) { usleep(100000); _exit(write(ends[1], "x", 1) != 1); }
        int child = strcmp(how, "clone3") ? syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0)
                                          : syscall(SYS_clone3, asked, sizeof asked);
        if (!child) { read(ends[0], name, 1); _exit(fsync(f)); }
        return child < 0 || waitpid(child, &ended, 0) != child || ended;
    }
    char *mapped = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
    if (!strcmp(how, "unlinked")) { unlink("f"); mapped[0] = 'x'; return msync(mapped, 4096, MS_SYNC); }
    int g = open("g", O_CREAT | O_RDWR, 0644);
    ftruncate(g, 8192);
    char *two = mmap(0, 12288, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mmap(two, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, f, 0);
    mmap(two + 8192, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, g, 4096);
    two[0] = two[8192] = 'x';
    if (!strcmp(how, "two")) return msync(two, 12288, MS_SYNC);
    mmap(two, 4096, PROT_READ, MAP_SHARED | MAP_FIXED, open("f", O_RDONLY), 0);
    mmap(two + 4096, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, f, 0);
    if (!strcmp(how, "not-written")) return msync(two, 8192, MS_SYNC);
    return 2;
}
"""
_OPENED = ["create f", "write f"]
_G = ["create g", "size g", "write f", "write g"]


@pytest.mark.parametrize(
    ("how", "told", "unseen"),
    [
        ("open", ["size f"], ""),
        ("truncate", ["size f"], ""),
        ("chmod", ["attributes f"], ""),
        ("nameless", ["unlink ?", "size f", "attributes f"], ""),
        ("empty", ["unlink ?", "attributes f"], ""),
        ("directory", ["rename f g"], ""),
        ("cwd", ["rename f g"], ""),
        ("link", ["create g"], ""),
        ("in-root", ["create g"], ""),
        ("root", ["rename f g"], ""),
        ("socket", ["attributes ?"], "bind(s), which makes a socket"),
        ("bound", [], "a call on /tmp/bound/f by way of another mount or root"),
        ("clone", [], "clone() with CLONE_UNTRACED"),
        ("clone3", [], "clone3() with CLONE_UNTRACED"),
        ("unlinked", ["unlink ?", "write f", "fdatasync f 0 4096"], ""),
        ("two", [*_G, "fdatasync f 0 4096", "fdatasync g 4096 4096"], ""),
        ("not-written", _G, ""),
    ],
)
def test_a_call_is_noted_whatever_its_file_is_named_by(
    how: str, told: list[str], unseen: str, tmp_path: Path, uml_kernel: Path
) -> None:
    """Names in /proc were those of the tracer, whose own files they are: to open a file by one so that it is
    emptied was not noted, and what that lost passed. An msync(2) was one of the file that has the mapping's
    path now, and of the first mapping alone. Of a child with CLONE_UNTRACED nothing was told: a false alarm.
    """
    place = write_program(tmp_path, "names", "true")
    (tmp_path / "names.c").write_text(NAMES_PROC)
    built = ["gcc", "-w", "-static", str(tmp_path / "names.c"), "-o", f"{place}/names"]
    subprocess.run(built, check=True)
    run = f'#!/bin/sh\n$(dirname "$0")/names {how} && powercut-ack 0\n'
    (tmp_path / "names" / "run").write_text(run)
    notes = note(Machine(find_kernel(str(uml_kernel)), tmp_path), select_workloads([place])[0])
    assert (notes.exit_code, notes.output) == (0, "")
    files = {call.inode: call.path for call in notes.calls if call.word == "create"}

    def words_of(call: NotedCall) -> str:
        named = [call.path, call.other] if call.word == "rename" else [files.get(call.inode, "?")]
        place = [str(call.offset), str(call.length)] if call.is_sync else []
        return " ".join([call.word, *named, *place])

    assert [words_of(call) for call in notes.calls] == [*_OPENED, *told]
    assert list(dict.fromkeys(notes.unseen)) == ([unseen] if unseen else [])


FIFO = """
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
static char much[1 << 16];
int main(void) {
    mkfifo("p", 0644);
    if (!fork()) {
        int to = open("p", O_WRONLY);
        for (int i = 0; i < 4; i++) write(to, much, sizeof much);
        _exit(0);
    }
    int from = open("p", O_RDONLY);
    usleep(100000);
    int f = open("f", O_CREAT | O_WRONLY, 0644);
    write(f, "hello", 5);
    while (read(from, much, sizeof much) > 0);
    return unlink("p");
}
"""


def test_a_program_that_waits_for_a_fifo_goes_on(tmp_path: Path, uml_kernel: Path) -> None:
    """Who wrote to it kept its reader waiting for good."""
    place = write_program(tmp_path, "fifo", "true")
    (tmp_path / "fifo.c").write_text(FIFO)
    built = ["gcc", "-w", "-static", str(tmp_path / "fifo.c"), "-o", f"{place}/fifo"]
    subprocess.run(built, check=True)
    (tmp_path / "fifo" / "run").write_text('#!/bin/sh\ntimeout 20 $(dirname "$0")/fifo && powercut-ack 0\n')
    notes = note(Machine(find_kernel(str(uml_kernel)), tmp_path), select_workloads([place])[0])
    assert (notes.exit_code, notes.output) == (0, "")
    assert [call.word for call in notes.calls] == ["create", "write", "unlink"]
    assert notes.unseen == ("mknod(p), which makes no regular file",)


APPENDS = """#!/usr/bin/env python3
import os, subprocess
f = os.open("log", os.O_RDWR | os.O_CREAT)
for text in (b"one", b"two", b"three"):
    os.pwritev(f, [text], 0, os.RWF_APPEND)
os.write(f, b"O")
subprocess.run(["powercut-ack", "0"], check=True)
"""


def test_a_write_that_appends_by_its_flags_is_noted_at_the_end(tmp_path: Path, uml_kernel: Path) -> None:
    """pwritev2(2) with RWF_APPEND and an offset leaves the descriptor where it stands: each was noted at the
    beginning of the file, and the program was not judged.
    """
    (profile,) = select_profiles(["any/posix"])
    assert profile.rules is not None
    place = write_program(tmp_path, "appends", "true")
    (tmp_path / "appends" / "workload.toml").write_text('summary = "appends"\nruntime = "python"\n')
    (tmp_path / "appends" / "run").write_text(APPENDS)
    notes = note(Machine(find_kernel(str(uml_kernel)), tmp_path), select_workloads([place])[0])
    assert (notes.exit_code, notes.output) == (0, "")
    assert [(c.offset, c.length) for c in notes.calls if c.word == "write"] == [
        (0, 3),
        (3, 3),
        (6, 5),
        (0, 1),
    ]
    followed(notes, profile.rules)


CLEARS = """#!/usr/bin/env python3
import ctypes, os, subprocess
libc = ctypes.CDLL(None)
version, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
libc.capget(version, sets)
sets[0] &= ~(1 << 4)  # CAP_FSETID
libc.capset(version, sets)
f = os.open("f", os.O_CREAT | os.O_RDWR)
for change in (
    lambda: os.write(f, b"text"),
    lambda: os.ftruncate(f, 2),
    lambda: os.truncate("f", 0),
    lambda: os.close(os.open("f", os.O_WRONLY | os.O_TRUNC)),
    lambda: libc.fallocate(f, 1, 0, ctypes.c_long(4096)),  # FALLOC_FL_KEEP_SIZE
    lambda: os.posix_fallocate(f, 0, 4096),
    lambda: libc.fallocate(f, 3, 0, ctypes.c_long(4096)),  # with FALLOC_FL_PUNCH_HOLE
):
    os.chmod("f", 0o6777)
    change()
os.chmod("f", 0o6777)
sets[0] |= 1 << 4
libc.capset(version, sets)
os.write(f, b"it may keep them")
subprocess.run(["powercut-ack", "0"], check=True)
"""


def test_a_call_that_clears_a_set_user_id_bit_is_noted_with_what_it_left(
    tmp_path: Path, uml_kernel: Path
) -> None:
    """The calls, done again, left the bits set, and the program was not judged."""
    (profile,) = select_profiles(["any/posix"])
    assert profile.rules is not None
    place = write_program(tmp_path, "clears", "true")
    (tmp_path / "clears" / "workload.toml").write_text('summary = "clears"\nruntime = "python"\n')
    (tmp_path / "clears" / "run").write_text(CLEARS)
    notes = note(Machine(find_kernel(str(uml_kernel)), tmp_path), select_workloads([place])[0])
    assert (notes.exit_code, notes.output, notes.unseen) == (0, "", ())
    changes = [(c.word, oct(c.owner[0])) for c in notes.calls if c.word in ("write", "size", "zero")]
    words = ["write", "size", "size", "size", "zero", "size", "zero"]
    assert changes == [*((word, "0o777") for word in words), ("write", "0o6777")]
    followed(notes, profile.rules)


NAMES = """#!/usr/bin/env python3
import os, subprocess
f = os.open("f", os.O_CREAT | os.O_RDWR)
os.setxattr(f, "user.a", b"1")
os.fsync(f)
os.fsync(os.open(".", os.O_RDONLY))
os.symlink("f", "link")
os.setxattr("link", "user.b", b"two")
os.removexattr(f, "user.a")
{sync}
subprocess.run(["powercut-ack", "0"], check=True)
"""
READS_NAMES = """#!/usr/bin/env python3
import os, sys
if open(sys.argv[1]).read():
    found = {name: os.getxattr("f", name) for name in os.listxattr("f")}
    if found != {"user.b": b"two"}:
        print(found)
        sys.exit(1)
"""


@pytest.mark.parametrize(("sync", "fails"), [("os.fsync(f)", False), ("os.fdatasync(f)", True)])
def test_extended_attributes_are_noted_and_may_be_lost(
    sync: str, fails: bool, tmp_path: Path, uml_kernel: Path
) -> None:
    """A program that set one was not judged: the tracer did not follow the call."""
    (profile,) = select_profiles(["any/posix"])
    assert profile.rules is not None
    place = write_program(tmp_path, "names", "true", READS_NAMES)
    (tmp_path / "names" / "workload.toml").write_text('summary = "names"\nruntime = "python"\n')
    (tmp_path / "names" / "run").write_text(NAMES.replace("{sync}", sync))
    workload = select_workloads([place])[0]
    notes = note(Machine(find_kernel(str(uml_kernel)), tmp_path), workload)
    assert (notes.exit_code, notes.output, notes.unseen) == (0, "", ())
    assert [entry.xattrs for entry in notes.left if entry.kind == "file"] == [(("user.b", b"two"),)]
    followed(notes, profile.rules)
    plan = Plan(configurations=["any/posix"], workloads=[place], machine="uml", kernel=str(uml_kernel))
    summary, _ = run_plan(plan, tmp_path)
    assert summary.cases[0].verdict is (CaseVerdict.FAIL if fails else CaseVerdict.PASS)


TOP = """#!/usr/bin/env python3
import os, subprocess
{setting}
os.removexattr(".", "user.dirty")
subprocess.run(["powercut-ack", "clean"], check=True)
"""


@pytest.mark.parametrize("where", ['"."', 'os.open(".", os.O_RDONLY)', "os.getcwd()"])
def test_extended_attributes_of_the_directory_itself_are_not_followed(
    where: str, tmp_path: Path, uml_kernel: Path
) -> None:
    """No tree has them: a program that acknowledged what it had not synced passed."""
    place = write_program(tmp_path, "top", "true")
    (tmp_path / "top" / "workload.toml").write_text('summary = "top"\nruntime = "python"\n')
    setting = f'os.setxattr({where}, "user.dirty", b"1")'
    (tmp_path / "top" / "run").write_text(TOP.replace("{setting}", setting))
    notes = note(Machine(find_kernel(str(uml_kernel)), tmp_path), select_workloads([place])[0])
    assert (notes.exit_code, notes.output) == (0, "")
    assert notes.unseen == ("a change of extended attributes of ., the directory itself",) * 2


WAITS = """#!/usr/bin/env python3
import fcntl, os, subprocess, time
os.symlink("real", "link")
open("link", "w").close()
ours, theirs = os.pipe()
if os.fork() == 0:
    time.sleep(1)
    with open("other", "w") as other:
        other.write("by the child")
    os.write(theirs, b"hello")
    os._exit(0)
spliced = os.open("spliced", os.O_CREAT | os.O_WRONLY)
os.splice(ours, spliced, 5)
try:
    fcntl.ioctl(spliced, 0x40049409, os.open("other", os.O_RDONLY))  # FICLONE
except OSError:
    pass
os.wait()
subprocess.run(["powercut-ack", "0"], check=True)
"""


def test_a_call_that_waits_for_another_thread_keeps_nobody_waiting(tmp_path: Path, uml_kernel: Path) -> None:
    """One thread at a time is in a call: the child of a parent in splice(2) was held until the time was up.
    A clone that was refused, and a file made through a link that led nowhere, were followed no further.
    """
    (profile,) = select_profiles(["any/posix"])
    assert profile.rules is not None
    place = write_program(tmp_path, "waits", "true")
    (tmp_path / "waits" / "workload.toml").write_text('summary = "waits"\nruntime = "python"\n')
    (tmp_path / "waits" / "run").write_text(WAITS)
    notes = note(Machine(find_kernel(str(uml_kernel)), tmp_path), select_workloads([place])[0])
    assert (notes.exit_code, notes.output, notes.unseen) == (0, "", ())
    followed(notes, profile.rules)
    made = [call.path for call in notes.calls if call.word == "create"]
    assert made == ["real", "spliced", "other"]
    last = [call for call in notes.calls if call.word == "write"][-1]
    assert notes.data[last.at : last.at + last.length] == b"hello"


def test_a_file_too_large_to_send_is_told(tmp_path: Path, uml_kernel: Path) -> None:
    """The agent read a sparse file of a gigabyte whole, and the guest had no memory left."""
    place = write_program(tmp_path, "sparse", "true")
    (tmp_path / "sparse" / "run").write_text("#!/bin/sh\ntruncate -s 1G f && powercut-ack 0\n")
    notes = note(Machine(find_kernel(str(uml_kernel)), tmp_path), select_workloads([place])[0])
    assert (notes.exit_code, notes.cut) == (0, True)


def test_a_missing_fsync_is_named_and_the_right_program_passes(tmp_path: Path, uml_kernel: Path) -> None:
    """A file that is empty under its final name needed another program's commit to show: ext4 hid it."""
    wrong, right = write_program(tmp_path, "wrong", "true"), write_program(tmp_path, "right", "sync t")
    plan = Plan(
        configurations=["any/posix", "any/linux"],
        workloads=[wrong, right],
        machine="uml",
        kernel=str(uml_kernel),
    )
    summary, path = run_plan(plan, tmp_path)
    verdicts = {(c.case.mode, c.case.workload): c.verdict for c in summary.cases}
    assert verdicts == {
        ("posix", "wrong"): CaseVerdict.FAIL,
        ("linux", "wrong"): CaseVerdict.FAIL,
        ("posix", "right"): CaseVerdict.PASS,
        ("linux", "right"): CaseVerdict.PASS,
    }
    with RunStore.open(path) as store:
        findings = store.findings_of(CaseId("any", "linux", "wrong"))
        told = [read_explanation(store.layout, f.id) for f in findings]
    assert any(
        t and "must persist before" in t.headline and "fsync of `t`" in t.lines["missing"] for t in told
    )
    for explained in filter(None, told):  # the check's answer is that to what `promised` names
        last = explained.lines["promised"].split("`")[1]
        assert f"exit code 1: after {last}:" in explained.lines["cut"]
    named = ["--from", str(path), "--kernel", str(uml_kernel), "-w", wrong]
    shown = powercut("show", "--all", "--no-ladder", *named, "-w", right)
    assert "must persist before" in shown.stdout
    again = powercut("show", "--all", "--again", "--no-ladder", *named, "-w", right)
    assert again.stdout == shown.stdout, again.stderr  # it looked for a recording, which such a case has not
    point = CrashPoint(findings[0].case, findings[0].state)
    again = powercut("repro", str(point), *named)
    assert (again.exit_code, Verdict.FAIL.name in again.stdout) == (1, True), again.stdout
    left = tmp_path / "left"
    assert powercut("repro", str(point), *named, "--export", str(left)).exit_code == 0
    asked = ["sh", f"{wrong}/check", "../acknowledged"]
    checked = subprocess.run(asked, cwd=left / "files", capture_output=True, text=True, check=False)
    assert (checked.returncode, "after " in checked.stdout) == (1, True)


STORE = """#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int append(int fd, const char *text, int size) {
    return write(fd, text, size);
}
static int commit(const char *text) {
    int fd = open("t", O_CREAT | O_WRONLY, 0600), left = append(fd, text, 4);
    close(fd);
    left += rename("t", "c");
    return left != 4;
}
int main(void) {
    int failed = commit("old\\n");
    sync();
    system("powercut-ack 0");
    failed += commit("new\\n");
    sync();
    return failed + system("powercut-ack 1");
}
"""


@pytest.mark.parametrize("flags", [["-g"], ["-g", "-O2", "-static"], ["-O1", "-fno-inline"], ["-s"]])
def test_a_finding_says_where_in_the_program_its_calls_were_made(
    flags: list[str], tmp_path: Path, uml_kernel: Path
) -> None:
    """A call was told by its file and size alone, and its author had to look for it."""
    place = write_program(tmp_path, "store", "true")
    (tmp_path / "store.c").write_text(STORE)
    built = tmp_path / "store" / "keep"
    subprocess.run(["gcc", "-w", *flags, str(tmp_path / "store.c"), "-o", str(built)], check=True)
    (tmp_path / "store" / "run").write_text('#!/bin/sh\n$(dirname "$0")/keep\n')
    plan = Plan(configurations=["any/posix"], workloads=[place], machine="uml", kernel=str(uml_kernel))
    summary, path = run_plan(plan, tmp_path)
    assert summary.cases[0].verdict is CaseVerdict.FAIL
    lines = STORE.splitlines()
    wrote, appended, renamed, committed = (
        next(n for n, line in enumerate(lines, 1) if words in line)
        for words in ("return write(", "append(fd", "rename(", 'commit("new')
    )
    expected = {
        "-g": f"`write(t, 4)` at store.c:{wrote} in append, called by store.c:{appended} in commit, "
        f"called by store.c:{committed} in main; `rename(t, c)` at store.c:{renamed} in commit, "
        f"called by store.c:{committed} in main",
        "-O1": "`write(t, 4)` at append of keep, called by commit of keep, called by main of keep",
        "-s": "`write(t, 4)` at keep+0x",
    }[flags[0]]
    shown = powercut("show", "--all", "--no-ladder", "--from", str(path), "--kernel", str(uml_kernel))
    told = [f.summary for f in summary.findings]
    assert any(expected in text for text in told), told
    assert all("store.c" in text for text in told) == (flags[0] == "-g"), told
    in_call = expected.split("` at ")[1].split(";")[0]
    assert f"write(t, 4) ({in_call}" in " ".join(shown.stdout.split()), shown.stdout


def test_a_check_that_changes_the_files_does_not_change_what_the_next_one_sees(
    tmp_path: Path, uml_kernel: Path
) -> None:
    """Trees are made by differences, in place: what a check had written would have come back in the next."""
    named = {"plain": CHECK, "spoils": SPOILS}
    programs = [write_program(tmp_path, name, "true", check) for name, check in named.items()]
    plan = Plan(configurations=["any/posix"], workloads=programs, machine="uml", kernel=str(uml_kernel))
    summary, path = run_plan(plan, tmp_path)
    with RunStore.open(path) as store:
        failing = {
            name: sorted(str(f.state) for f in store.findings_of(CaseId("any", "posix", name)))
            for name in named
        }
    counts = {c.case.workload: c.counts for c in summary.cases}
    assert failing["plain"] == failing["spoils"] != []
    assert counts["plain"] == counts["spoils"]


def test_a_case_that_the_runs_time_ends_is_not_done(tmp_path: Path, uml_kernel: Path) -> None:
    """`--minutes` ended the visits: the case was PASS and done, and a resumed run had nothing left to do."""
    program = write_program(
        tmp_path, "slow", "true", "#!/bin/sh\nsleep 0.05; cat f* >/dev/null 2>&1; exit 0\n"
    )
    many = "#!/bin/sh\nfor i in 1 2 3 4 5 6 7 8 9; do echo $i >f$i; done; powercut-ack 0\n"
    (tmp_path / "slow" / "run").write_text(many)
    plan = Plan(configurations=["any/posix"], workloads=[program], machine="uml", kernel=str(uml_kernel))
    summary, _ = run_plan(replace(plan, minutes=0.05), tmp_path)
    (case,) = summary.cases
    assert summary.info.stopped
    assert (case.verdict, case.counts.checked > 0) == (CaseVerdict.UNKNOWN, True), case.undecided
    summary, _ = run_plan(replace(plan, budget=Budget(visits=1)), tmp_path)
    (case,) = summary.cases
    assert case.verdict is CaseVerdict.PASS, "what the case's own budget leaves out is told as coverage"
    assert case.info.coverage
    assert case.info.coverage.unexplored


REMOVES = """#!/bin/sh
last=$(tail -n 1 "$1")
held=$(cat c 2>/dev/null)
ls -l | cut -c1-10
rm -rf *
[ "$held" = new ] || [ "${last:-0}" = 0 ]
"""
LINKED = """#!/bin/sh
mkdir "$HOME/mine" d && echo one >d/a && ln d/a b && ln -s d/a s && echo more >z && sync && powercut-ack 0
echo two >>d/a && echo less >z && chmod 600 z && mv d e && powercut-ack 1
"""
BELOW = """#!/bin/sh
[ -s "$1" ] || exit 0
cat [de]/a && ls -l z | cut -c1-10 && exit 0
cat b s && exit 1
"""
CHECKS = {"plain": CHECK, "spoils": SPOILS, "removes": REMOVES, "linked": BELOW}


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_says_the_same_of_each_state_on_this_host_and_in_the_guest(
    name: str, tmp_path: Path, uml_kernel: Path
) -> None:
    """On the host it takes a tenth of the time. A tree that was made in another way there, or a check that
    saw something else, would change verdicts from one host to the next.
    """
    (profile,) = select_profiles(["any/posix"])
    place = write_program(tmp_path, name, "true", CHECKS[name])
    if name == "linked":
        (tmp_path / name / "run").write_text(LINKED)
    (workload,) = select_workloads([place])
    check = there(check_of(workload.checks))
    assert profile.rules is not None
    said: list[list[CheckResult]] = []
    with noted(Machine(find_kernel(str(uml_kernel)), tmp_path), workload, apart=True) as (trees, notes):
        acks = [ack.text for ack in notes.acks]
        plain = MadeTrees(trees.session, trees.target, apart=False)
        kept = MadeTrees(trees.session, trees.target, apart=False)
        for made, fold in ((trees, True), (plain, False), (kept, True)):
            if made is kept:  # as `repro` does; what the guest noted last is of another run
                again = there(trees.note_again(workload.operations[check.operation].argv))
                assert again.digest() == notes.digest()
                assert kept.take(trees.raw) == notes
            ask = functools.partial(made.check, check=check, acks=acks)
            judging = Judging(notes, profile.rules, ask, fold=fold)
            said.append([result for _, result in judging.visited(judging.legal.listed())])
    assert said[0] == said[1] == said[2]
    assert len(set(said[0])) > 1
