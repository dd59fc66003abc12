"""Kernels that tell which lines of chosen files they ran: of the same source and configuration as the kernel
that judges, with a call where each basic block of those files begins (GCC's `-fsanitize-coverage=trace-pc`).
The call sets a byte in a file of the host (`Flavour.hits`).

They are variants of a kept tree, so one costs the compilation of these files and a link. The kernel of a
commit notes marks in its source instead, and has no points: see `CommitTree.noting_kernel`. In the cache:

```
kernels/instrumented/<key>/
    image, config, built.json   as of any kernel that was built
    points.json                 where a basic block begins: function, line, and its byte in the file of hits
```
"""

from __future__ import annotations

import hashlib
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from harness.errors import KernelError, UsageError
from harness.host.cache import cache_dir, hold
from harness.host.files import write_atomically
from harness.kernels.build import Addition, Built, Flavour, added_files, built_as, key_of
from harness.kernels.variants import KeptTree, keeping

FLAGS = (
    "-fsanitize-coverage=trace-pc -g "
    # a plain call says where it goes; with the model `large`, calls go by way of registers
    "-mcmodel=small "
    # a function that the compiler copied into its caller would be reached where the caller was
    "-fno-inline-functions -fno-inline-small-functions -fno-inline-functions-called-once "
    "-fno-partial-inlining -fno-ipa-cp"
)
_CALLED = "__sanitizer_cov_trace_pc"
_CALL = 0xE8  # with a distance of 32 bits, from the instruction after it
_CALL_BYTES = 5
_SHIFT = 2  # hits.c of `Flavour.hits`


class Point(msgspec.Struct, frozen=True, array_like=True):
    """Where a basic block begins. `at`: the byte that says that it ran."""

    at: int
    file: str
    function: str
    line: int


class Points(msgspec.Struct, frozen=True):
    """`points.json`. `hits_bytes`: the size of a file of hits."""

    hits_bytes: int
    points: tuple[Point, ...]


def instrumented_kernel(
    machine: str, flavour: Flavour, package_version: str, files: Sequence[str]
) -> Path | None:
    """The image in the cache with points in these files, of the same source as a distribution's kernel and of
    the current configuration; None if there is none.
    """
    for path in sorted(cache_dir("kernels", "instrumented").glob("*/built.json")):
        built = built_as(path.parent)
        if built is None or (built.machine, built.source_version) != (machine, package_version):
            continue
        if built.key == _key(key_of(built, flavour), flavour, files):
            return hold(path.parent / "image")
    return None


def is_instrumented(image: Path) -> bool:
    """Whether a kernel's points are known."""
    return (image.parent / "points.json").is_file()


def source_of(image: Path) -> str:
    """From which source an instrumented kernel was built, for people."""
    built = msgspec.json.decode((image.parent / "built.json").read_bytes(), type=Built)
    return f"{built.source} {built.source_version}"


def points_of(image: Path) -> Points:
    """Those of an instrumented kernel."""
    return msgspec.json.decode((image.parent / "points.json").read_bytes(), type=Points)


def instrument(tree: KeptTree, files: Sequence[str]) -> Path:
    """The image of this tree's kernel with points in these files, as far as its source has them; from the
    cache if it has been built before. Raises KernelError if it does not build, or has no point.
    """
    key = _key(tree.built.key, tree.flavour, files)
    final = cache_dir("kernels", "instrumented") / key[:24]
    if built_as(final) is None:
        there = [name for name in files if (tree.path / "source" / name).is_file()]
        with tree.changed(_changes(tree, there)) as image:
            built = msgspec.structs.replace(tree.built, key=key)
            keep_noting(image, tree.path / "out" / ".config", built, find_points(image, there), final)
    return hold(final / "image")


def _key(of_kernel: str, flavour: Flavour, files: Sequence[str]) -> str:
    hits = hits_of(flavour)
    digest = hashlib.sha256(f"{of_kernel} {FLAGS} {hits.line} {' '.join(sorted(files))}".encode())
    for path in added_files(hits):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def hits_of(flavour: Flavour) -> Addition:
    """The additional files of a kernel that notes which lines it runs. Raises UsageError for a flavour whose
    kernels cannot.
    """
    if flavour.hits is None:
        raise UsageError(f"kernels of ARCH={flavour.arch} do not note what they run", "name another machine")
    return flavour.hits


def _changes(tree: KeptTree, files: Sequence[str]) -> dict[str, str]:
    """The text of each file of the tree that changes: makefiles, and what is added."""
    hits = hits_of(tree.flavour)
    changed = {f"{hits.to}/{path.name}": path.read_text() for path in added_files(hits)}
    lines = {hits.named_in: [hits.line]}
    for name in files:
        path = Path(name)
        lines.setdefault(f"{path.parent}/Makefile", []).append(f"CFLAGS_{path.stem}.o += {FLAGS}")
    for makefile, more in lines.items():
        text = (tree.path / "source" / makefile).read_text()
        changed[makefile] = "\n".join([text, *more, ""])
    return changed


def keep_noting(image: Path, config: Path, built: Built, points: Points, final: Path) -> None:
    """Move a kernel that notes what it runs into the cache, atomically."""
    with keeping(image, final) as part:
        shutil.copy2(config, part / "config")
        for name, value in (("points.json", points), ("built.json", built)):
            write_atomically(part / name, msgspec.json.encode(value))


def find_points(image: Path, files: Sequence[str]) -> Points:
    """Every call that marks a basic block of these files, in an image with their line numbers. Raises
    KernelError if there is none.
    """
    symbols = _symbols(image)
    start, end, called = (symbols.get(name, 0) for name in ("_stext", "_etext", _CALLED))
    text = _bytes_at(image, start, end)
    calls = list(_calls(text, start, called)) if called else []
    where = _lines(image, calls, files)
    points = [Point((at + _CALL_BYTES - start) >> _SHIFT, *where[at]) for at in calls if at in where]
    if not points:
        raise KernelError(f"{image} has no point in {', '.join(files)}", "is its compiler GCC, 12 or later?")
    return Points(((end - start) >> _SHIFT) + 1, tuple(points))


def _symbols(image: Path) -> Mapping[str, int]:
    said = subprocess.run(["nm", image], capture_output=True, text=True, check=True).stdout
    found = (line.split() for line in said.splitlines())
    return {words[2]: int(words[0], 16) for words in found if len(words) == 3}  # value, type, name


def _bytes_at(image: Path, start: int, end: int) -> bytes:
    """What the image maps at these addresses (ELF-64 object file format, program header)."""
    data = image.read_bytes()
    offset, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    for n in range(count):
        kind, _, at, address, _, length = struct.unpack_from("<IIQQQQ", data, offset + n * size)
        if kind == 1 and address <= start and end <= address + length:
            return data[at + start - address : at + end - address]
    raise KernelError(
        f"{image} does not hold its text as one piece", "is it a kernel for x86-64 that runs as a process?"
    )


def _calls(text: bytes, start: int, called: int) -> Iterator[int]:
    """Addresses of the calls of one function."""
    at = text.find(_CALL)
    while 0 <= at <= len(text) - _CALL_BYTES:
        (distance,) = struct.unpack_from("<i", text, at + 1)
        if start + at + _CALL_BYTES + distance == called:
            yield start + at
        at = text.find(_CALL, at + 1)


def _lines(image: Path, addresses: Sequence[int], files: Sequence[str]) -> dict[int, tuple[str, str, int]]:
    """File, function and line of each address that belongs to one of the files: of what was put in from a
    header, where the file has put it.
    """
    said = subprocess.run(
        ["addr2line", "-a", "-f", "-i", "-e", image],
        input="".join(f"{at:#x}\n" for at in addresses),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    found: dict[int, tuple[str, str, int]] = {}
    address = 0
    for n, line in enumerate(said):
        if line.startswith("0x"):
            address = int(line, 16)
        elif (m := re.match(r"(.*):(\d+)( |$)", line)) and address not in found:
            name = next((f for f in files if f"/{m[1]}".endswith(f"/{f}")), "")
            if name and int(m[2]):
                found[address] = (name, said[n - 1].split(".")[0], int(m[2]))
    return found
