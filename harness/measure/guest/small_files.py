"""What the mongo benchmark does to a tree of small files: create, copy, symlink, read, stat, rename, delete.

Argument: `root` (an empty directory), `median_bytes`, `files`, `seed`. Each phase begins with an empty cache;
a phase that writes lasts until sync(2) has returned.
"""

import fcntl
import json
import math
import os
import random
import stat
import struct
import sys
import time
from collections.abc import Callable

FILES_A_DIRECTORY = 100
SPREAD = 1.0  # of the natural logarithm of sizes about that of the median
LARGEST = 10  # medians
FS_IOC_FIEMAP = 0xC020660B  # linux/fiemap.h
FIEMAP_FLAG_SYNC = 1
FIBMAP = 1  # linux/fs.h
FIGETBSZ = 2


def sizes(median_bytes: int, files: int, seed: int) -> list[int]:
    """Log-normal about the median: half below, half above it, none more than LARGEST medians."""
    chance = random.Random(seed)
    middle = math.log(median_bytes)
    return [min(round(math.exp(chance.gauss(middle, SPREAD))), LARGEST * median_bytes) for _ in range(files)]


def names(root: str, files: int) -> list[str]:
    """Paths of the tree's files."""
    return [f"{root}/{i // FILES_A_DIRECTORY}/{i % FILES_A_DIRECTORY}" for i in range(files)]


def make_directories(paths: list[str]) -> None:
    """Those that the paths lie in."""
    for directory in dict.fromkeys(os.path.dirname(path) for path in paths):
        os.makedirs(directory)


def drop_caches() -> None:
    """Write everything and forget it; where that is not allowed (a test on the host), only write."""
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("3")
    except OSError:
        return


def write(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(descriptor, data)
    os.close(descriptor)


def read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    found = os.read(descriptor, 1 << 24)
    os.close(descriptor)
    return found


def fragments(path: str) -> int:
    """Stretches of neighbouring blocks that the file's data lies in. By FIEMAP; where the file system has
    none (ReiserFS), by FIBMAP, block by block. Raises OSError where neither is there.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        try:
            request = struct.pack("=QQIIII", 0, 0xFFFFFFFFFFFFFFFF, FIEMAP_FLAG_SYNC, 0, 0, 0)
            return int(struct.unpack("=QQIIII", fcntl.ioctl(descriptor, FS_IOC_FIEMAP, request))[3])
        except OSError:
            return _stretches(descriptor, size)
    finally:
        os.close(descriptor)


def _stretches(descriptor: int, size: int) -> int:
    (block_bytes,) = struct.unpack("=I", fcntl.ioctl(descriptor, FIGETBSZ, struct.pack("=I", 0)))
    count, last = 0, -1
    for number in range(-(-size // block_bytes)):
        (block,) = struct.unpack("=I", fcntl.ioctl(descriptor, FIBMAP, struct.pack("=I", number)))
        count += block != last + 1 or count == 0
        last = block
    return count


def fragments_a_file(paths: list[str]) -> float:
    """On average, over the files that hold anything. 0 where it cannot be known."""
    try:
        counts = [fragments(path) for path in paths if os.stat(path).st_size]
    except OSError:
        return 0.0
    return sum(counts) / len(counts) if counts else 0.0


def timed(phase: Callable[[], None], writes: bool) -> float:
    """Seconds, with the sync where it writes; from an empty cache."""
    drop_caches()
    begun = time.monotonic()
    phase()
    if writes:
        os.sync()
    return time.monotonic() - begun


class Tree:
    """The phases. Trees: `a` is created, `b` its copy, `c` symlinks to it, `d` what `b` is renamed to."""

    def __init__(self, root: str, median_bytes: int, files: int, seed: int) -> None:
        self.sizes = sizes(median_bytes, files, seed)
        self.a, self.b, self.c, self.d = (names(f"{root}/{tree}", files) for tree in "abcd")
        self.data = random.Random(seed + 1).randbytes(LARGEST * median_bytes)
        self.read_bytes = 0

    def create(self) -> None:
        make_directories(self.a)
        for path, size in zip(self.a, self.sizes, strict=True):
            write(path, self.data[:size])

    def copy(self) -> None:
        make_directories(self.b)
        for source, target in zip(self.a, self.b, strict=True):
            write(target, read(source))

    def symlink(self) -> None:
        make_directories(self.c)
        for source, target in zip(self.a, self.c, strict=True):
            os.symlink(source, target)

    def read(self) -> None:
        self.read_bytes = sum(len(read(path)) for path in self.a)

    def stat(self) -> None:
        if not all(stat.S_ISREG(os.stat(path).st_mode) for path in self.a):
            raise RuntimeError("a file is no file")

    def rename(self) -> None:
        make_directories(self.d)
        for source, target in zip(self.b, self.d, strict=True):
            os.rename(source, target)

    def delete(self) -> None:
        for path in (*self.a, *self.c, *self.d):
            os.unlink(path)


def main(given: dict[str, object]) -> dict[str, float]:
    """Seconds by phase; fragments a file after create and after copy."""
    root, files = str(given["root"]), int(str(given["files"]))
    tree = Tree(root, int(str(given["median_bytes"])), files, int(str(given["seed"])))
    result = {"create_s": timed(tree.create, True)}
    result["created_fragments"] = fragments_a_file(tree.a)
    result["copy_s"] = timed(tree.copy, True)
    result["copied_fragments"] = fragments_a_file(tree.b)
    result["symlink_s"] = timed(tree.symlink, True)
    result["read_s"] = timed(tree.read, False)
    if tree.read_bytes != sum(tree.sizes):
        raise RuntimeError(f"read {tree.read_bytes} bytes, wrote {sum(tree.sizes)}")
    result["stat_s"] = timed(tree.stat, False)
    result["rename_s"] = timed(tree.rename, True)
    result["delete_s"] = timed(tree.delete, True)
    return result


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
