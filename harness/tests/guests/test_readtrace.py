"""The library that notes what fsck reads, loaded into a program that reads in every way there is.

What matters is the last line: a trace that may lack a read must not be told as complete.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from harness.cases.fsck_reads import find_library, parse_trace
from harness.host.fork_server import TRACE_OUT, ForkServers, Start, start_anew
from harness.model import BLOCK_BYTES
from harness.tests.needs import needed

BLOCKS = 8
Completed = subprocess.CompletedProcess[bytes]

PREPARE = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
image, tail = sys.argv[1], sys.argv[2]
buffer = ctypes.create_string_buffer(65536)
pieces = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 4096)
at = lambda n: ctypes.c_long(n)
queue = ctypes.c_void_p()
libc.fopen.restype = libc.fdopen.restype = libc.freopen.restype = ctypes.c_void_p
fd = libc.open(image.encode(), os.O_RDONLY)
assert fd >= 0
"""

SEEN = {
    "nothing": ("", ()),
    "read": ("os.read(fd, 100); os.read(fd, 5000)", (0, 1)),
    "read behind a seek": ("os.lseek(fd, 12287, 0); os.read(fd, 2)", (2, 3)),
    "pread": ("os.pread(fd, 4096, 4096)", (1,)),
    "the end": ("os.pread(fd, 1 << 20, 7 * 4096)", (7,)),
    "behind the end": ("os.pread(fd, 4096, 99 * 4096)", ()),
    "fortified": ("assert libc.__read_chk(fd, buffer, at(1), at(65536)) == 1", (0,)),
    "fortified pread": ("assert libc.__pread_chk(fd, buffer, at(4096), at(8192), at(65536)) == 4096", (2,)),
    "fortified pread64": (
        "assert libc.__pread64_chk(fd, buffer, at(4096), at(4096), at(65536)) == 4096",
        (1,),
    ),
    "a tail": ("os.pread(os.open(tail, 0), 4096, 0)", (6,)),
    "another file": ("os.read(os.open(sys.executable, 0), 4096)", ()),
    # fsync(2) of what O_PATH opened fails
    "no flush of the host's disk": (
        "f = os.open(image, os.O_PATH); assert not libc.fsync(f) | libc.fdatasync(f)",
        (),
    ),
    "a flush for another file": ("assert libc.fsync(os.open(sys.executable, os.O_PATH)) == -1", ()),
    "another program's system call": ("libc.syscall(39)", ()),
}

LOST = {
    "readv": "libc.readv(fd, pieces, 1)",
    "preadv": "libc.preadv(fd, pieces, 1, at(0))",
    "preadv64": "libc.preadv64(fd, pieces, 1, at(0))",
    "preadv2": "libc.preadv2(fd, pieces, 1, at(0), 0)",
    "preadv64v2": "libc.preadv64v2(fd, pieces, 1, at(0), 0)",
    "mmap": "libc.mmap(None, at(4096), 1, 2, fd, at(0))",
    "mmap64": "libc.mmap64(None, at(4096), 1, 2, fd, at(0))",
    "fopen": "libc.fopen(image.encode(), b'r')",
    "fopen64": "libc.fopen64(image.encode(), b'r')",
    "fdopen": "libc.fdopen(fd, b'r')",
    "freopen": "libc.freopen(image.encode(), b'r', ctypes.c_void_p.in_dll(libc, 'stdin'))",
    "dup": "libc.dup(fd)",
    "dup2": "libc.dup2(fd, 0)",
    "dup3": "libc.dup3(fd, 9, 0)",
    "sendfile": "libc.sendfile(1, fd, None, at(10))",
    "copy_file_range": "libc.copy_file_range(fd, None, 1, None, at(10), 0)",
    "splice": "libc.splice(fd, None, os.pipe()[1], None, at(10), 0)",
    "system call pread": "libc.syscall(17, fd, buffer, at(10), at(0))",
    "system call mmap": "libc.syscall(9, None, at(4096), 1, 2, fd, at(0))",
    "io_uring": "libc.syscall(425, 1, None)",
    "aio_read": "assert not libc.aio_read(struct.pack('=i252x', fd))",
    "aio_read64": "assert not libc.aio_read64(struct.pack('=i252x', fd))",
    "lio_listio": "assert not libc.lio_listio(0, None, 0, None)",
    "lio_listio64": "assert not libc.lio_listio64(0, None, 0, None)",
    # libaio need not be there: the library does what it does
    "libaio": "assert not libc.io_setup(1, ctypes.byref(queue)) and queue",
    "libaio by its older name": "assert not libc.io_queue_init(1, ctypes.byref(queue)) and queue",
    "fork": "os._exit(0) if os.fork() == 0 else os.wait()",
    "fork that reads": "os.pread(fd, 1, 0) if os.fork() == 0 else os.wait()",
    "a program": "os.posix_spawn('/bin/cat', ['cat', image], os.environ); os.wait()",
    "_exit": "os._exit(0)",
}


PREPARE_WIDE = """
libc.aligned_alloc.restype = ctypes.c_void_p
wide = 1 << 18
memory = libc.aligned_alloc(at(4096), at(wide))
look = lambda block: ctypes.string_at(memory + block * 4096, 1)
free = lambda: libc.free(ctypes.c_void_p(memory))
read = lambda fd: libc.pread(fd, ctypes.c_void_p(memory), at(wide), at(0))
part = (ctypes.c_void_p * 2)(memory, wide)
copy = os.memfd_create("copy")
"""
PREPARE_MAPPED = """
for made in (libc.malloc, libc.mmap, libc.mremap, libc.realloc, libc.reallocarray):
    made.restype = ctypes.c_void_p
large = at(1 << 26)  # the C library maps it


def map_():
    global memory
    memory = libc.malloc(large)
    return -(-memory // 4096) * 4096


def stays(place):
    # what is mapped there next, to be read alone, once the watch has ended
    assert libc.mmap(ctypes.c_void_p(place), at(wide), 1, 0x100022, -1, at(0)) == place
    os.pread(fd, 1, 0)
    lines = open("/proc/self/maps").read().splitlines()
    assert any(line.startswith(f"{place:x}-") and " r--p " in line for line in lines), lines


address = lambda: ctypes.c_void_p(memory)
mapped = lambda access: libc.mmap(None, at(wide), access, 0x22, -1, at(0))
"""
WIDE_BLOCKS = 64
ALL = tuple(range(WIDE_BLOCKS))

# The place was watched on: what was mapped there next could be written to in the end. mremap(2) failed.
MOVED = {
    "grown": ("old = map_(); read(fd); libc.realloc(address(), at(1 << 28)); stays(old)", ALL),
    "grown as an array": (
        "old = map_(); read(fd); libc.reallocarray(address(), at(4), large); stays(old)",
        ALL,
    ),
    "other memory grown": (
        "read(fd); libc.realloc(ctypes.c_void_p(libc.aligned_alloc(at(4096), at(4096))), at(wide)); free()",
        (),
    ),
    "unmapped": ("memory = mapped(3); read(fd); look(10); libc.munmap(address(), at(wide))", (10,)),
    "unmapped in part": ("memory = mapped(3); read(fd); libc.munmap(address(), at(4096)); look(10)", ALL),
    "unmapped by a system call": ("memory = mapped(3); read(fd); libc.syscall(11, address(), at(wide))", ALL),
    "moved": (
        "memory = mapped(3); read(fd); memory = libc.mremap(address(), at(wide), at(2 * wide), 1); look(10)",
        ALL,
    ),
}

# xfs_repair reads 512 KiB for a super block: every data block in it seemed to matter for its answer.
WIDE = {
    "freed": ("assert read(fd) == wide; free()", ()),
    "looked at": ("read(fd); look(10); look(3); look(10); free()", (10, 3)),
    "looked at between": (
        "os.pread(fd, 1, 0); read(fd); look(10); free(); os.pread(fd, 1, 8192)",
        (0, 10, 2),
    ),
    "twice": ("read(fd); look(1); read(fd); look(2); free()", ALL),
    "kept": ("read(fd); look(10)", ALL),
    "freed after another read": ("read(fd); os.pread(fd, 1, 0); free()", ALL),
    "freed after a read of another file": ("read(fd); os.read(os.open(sys.executable, 0), 9); free()", ALL),
    "writable": ("read(os.open(image, os.O_RDWR)); free()", ALL),
    "with a handler of its own": (
        "import signal; signal.signal(signal.SIGSEGV, lambda *_: None); read(fd); free()",
        ALL,
    ),
    "other memory freed": (
        "read(fd); libc.free(ctypes.c_void_p(libc.aligned_alloc(at(4096), at(4096)))); free()",
        (),
    ),
}


_MEMORY = "ctypes.c_void_p(memory), at(wide)"
GIVEN = {
    "write": f"libc.write(copy, {_MEMORY})",
    "pwrite": f"libc.pwrite(copy, {_MEMORY}, at(0))",
    "pwrite64": f"libc.pwrite64(copy, {_MEMORY}, at(0))",
    "writev": "libc.writev(copy, part, 1)",
    "pwritev": "libc.pwritev(copy, part, 1, at(0))",
    "pwritev64": "libc.pwritev64(copy, part, 1, at(0))",
    "fwrite": f"libc.fwrite({_MEMORY}, at(1), stream)",
    "system call write": f"libc.syscall(1, copy, {_MEMORY})",
    "send": "libc.send(there.fileno(), ctypes.c_void_p(memory), at(4096), 0)",
    "sendto": "libc.sendto(there.fileno(), ctypes.c_void_p(memory), at(4096), 0, None, 0)",
    "sendmsg": "libc.sendmsg(there.fileno(), message, 0)",
}
PREPARE_GIVEN = """
import socket
here, there = socket.socketpair()
part[1] = 4096
of_part = struct.pack("PIPNPNi", 0, 0, ctypes.addressof(part), 1, 0, 0, 0)
message = ctypes.create_string_buffer(of_part, 64)
stream = ctypes.c_void_p(libc.fopen(f"/proc/self/fd/{copy}".encode(), b"w"))
read(fd)
"""


@pytest.fixture(params=["anew", "in a fork"])
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """How the program is started; in the second fork of a server, where the first has left nothing."""
    servers = ForkServers()

    def twice(line: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> Completed:
        servers.run(line, environment, timeout_s)
        os.truncate(environment[TRACE_OUT], 0)
        assert all(servers._servers.values()), "it is served"
        return servers.run(line, environment, timeout_s)

    yield start_anew if request.param == "anew" else twice
    servers.close()


def _run(
    tmp_path: Path, start: Start, body: str, tail: str | None = None, blocks: int = BLOCKS
) -> tuple[int, ...] | None:
    with needed():
        library = find_library()
    image, second, out = tmp_path / "image", tmp_path / "second", tmp_path / "out"
    image.write_bytes(bytes(blocks * BLOCK_BYTES))
    second.write_bytes(bytes(2 * BLOCK_BYTES))
    out.write_bytes(b"")
    environment = {
        "LD_PRELOAD": str(library),
        "POWERCUT_TRACE_FILE": str(image),
        TRACE_OUT: str(out),
        "POWERCUT_TRACE_TAIL": f"{6 * BLOCK_BYTES}:{second}" if tail is None else tail,
    }
    line = [sys.executable, "-I", "-S", "-c", PREPARE + body, str(image), str(second)]
    start(line, {**os.environ, **environment}, 60).check_returncode()
    return parse_trace(out.read_text())


@pytest.mark.parametrize("how", SEEN)
def test_reads_are_seen(tmp_path: Path, start: Start, how: str) -> None:
    body, blocks = SEEN[how]
    assert _run(tmp_path, start, body) == blocks


@pytest.mark.parametrize("how", WIDE)
def test_of_a_wide_read_only_the_pages_that_were_looked_at_count(
    tmp_path: Path, start: Start, how: str
) -> None:
    body, blocks = WIDE[how]
    found = _run(tmp_path, start, PREPARE_WIDE + body, blocks=WIDE_BLOCKS)
    assert found is not None
    assert (found if len(blocks) < WIDE_BLOCKS else tuple(sorted(found))) == blocks


@pytest.mark.parametrize("how", MOVED)
def test_memory_that_is_moved_or_unmapped_is_watched_no_more(tmp_path: Path, start: Start, how: str) -> None:
    body, blocks = MOVED[how]
    found = _run(tmp_path, start, PREPARE_WIDE + PREPARE_MAPPED + body, blocks=WIDE_BLOCKS)
    assert found is not None
    assert tuple(sorted(found)) == blocks


@pytest.mark.parametrize("how", GIVEN)
def test_memory_that_is_handed_to_the_kernel_is_whole(tmp_path: Path, start: Start, how: str) -> None:
    """A tool that copied what it had read wrote less, or nothing, and its answer was another one."""
    body = f"{PREPARE_GIVEN}done = {GIVEN[how]}; assert done in (1, 4096, wide), done; free()"
    found = _run(tmp_path, start, PREPARE_WIDE + body, blocks=WIDE_BLOCKS)
    assert found is not None
    assert tuple(sorted(found)) == ALL


def test_a_crash_of_the_program_stays_one(tmp_path: Path, start: Start) -> None:
    with pytest.raises(subprocess.CalledProcessError, match="SIGSEGV"):
        _run(tmp_path, start, PREPARE_WIDE + "read(fd); ctypes.string_at(0)", blocks=WIDE_BLOCKS)


@pytest.mark.parametrize("how", LOST)
def test_what_is_not_followed_is_not_told_as_complete(tmp_path: Path, start: Start, how: str) -> None:
    assert _run(tmp_path, start, LOST[how]) is None


def test_a_tail_that_is_not_there_is_not_told_as_complete(tmp_path: Path, start: Start) -> None:
    assert _run(tmp_path, start, "", tail=f"4096:{tmp_path / 'missing'}") is None
    assert _run(tmp_path, start, "", tail="nonsense") is None


SAY = """
import os, sys
print("out", os.getppid()); print("err", file=sys.stderr)
sys.exit(7)
"""


def _environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "out").touch()
    library = str(find_library())
    return {**os.environ, "LD_PRELOAD": library, TRACE_OUT: str(tmp_path / "out"), "POWERCUT_TRACE_FILE": "/"}


def test_a_fork_says_and_ends_as_the_program_would(tmp_path: Path) -> None:
    """Outputs and codes are those of the forks, which come from the server, not from a new start."""
    line, environment = [sys.executable, "-c", SAY], _environment(tmp_path)
    servers = ForkServers()
    runs = [servers.run(line, environment, 60) for _ in range(3)]
    (server,) = servers._servers.values()
    assert server is not None
    for done in runs:
        assert sorted(done.stdout.decode().split()) == sorted(["err", "out", str(server._process.pid)])
        assert done.returncode == 7
    servers.close()
    assert server._process.poll() is not None


def test_a_server_that_was_killed_takes_its_run_along_and_is_replaced(tmp_path: Path) -> None:
    """As by a host without memory. The run is not made anew on the trace that its fork may still write to."""
    line, environment = [sys.executable, "-c", SAY], _environment(tmp_path)
    servers = ForkServers()
    servers.run(line, environment, 60)
    (server,) = servers._servers.values()
    assert server is not None
    server._process.kill()
    server._process.wait()
    assert servers.run(line, environment, 60).returncode == -signal.SIGKILL
    assert servers.run(line, environment, 60).returncode == 7
    servers.close()


def test_a_run_that_does_not_end_is_ended_with_its_server(tmp_path: Path) -> None:
    line = [sys.executable, "-c", "import time; time.sleep(600)"]
    servers = ForkServers()
    with pytest.raises(subprocess.TimeoutExpired):
        servers.run(line, _environment(tmp_path), 0.5)
    assert not servers._servers


def test_a_program_that_cannot_be_served_is_started_anew(tmp_path: Path) -> None:
    """One that is linked statically loads no library."""
    environment = {k: v for k, v in _environment(tmp_path).items() if k != "LD_PRELOAD"}
    servers = ForkServers()
    assert servers.run([sys.executable, "-c", SAY], environment, 60).returncode == 7
    assert list(servers._servers.values()) == [None]
