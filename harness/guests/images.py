"""Roots of programs that come in a container image: an archive beside the guest's own, below a folder of its
own. `vms/agent/src/image.rs` runs programs in them.
"""

from __future__ import annotations

import contextlib
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from harness.guests.initramfs import TRAILER, record
from harness.host.cache import cache_dir, hold, scratch_folder
from harness.host.oci import LayerEntry, merged, read_image, unpacked_layers
from harness.workloads.applications import image_root

BOUND = {"dev": 0o755, "proc": 0o755, "sys": 0o755, "tmp": 0o1777, "workload": 0o755, "mnt": 0o755}
"""Those of the guest itself, which an image's own are not: `vms/agent/src/image.rs`."""
_HOSTS = "etc/hosts"  # containers get it when they are started
_KINDS = {
    tarfile.DIRTYPE: stat.S_IFDIR,
    tarfile.SYMTYPE: stat.S_IFLNK,
    tarfile.FIFOTYPE: stat.S_IFIFO,
    tarfile.CHRTYPE: stat.S_IFCHR,
    tarfile.BLKTYPE: stat.S_IFBLK,
}


def root_archive(path: Path) -> Path:
    """The root of an image as a cpio archive, made on first use and cached by the image's ID. Extended
    attributes are left out, which the archive cannot hold; a further name of a file is a symbolic link.

    Raises UsageError for a file that is no image: see `harness.host.oci`.
    """
    image = read_image(path)
    final = cache_dir("images") / f"{image.identity}-1"
    if not (final / "root.cpio").exists():
        with scratch_folder(cache_dir("images"), "making-") as scratch, contextlib.ExitStack() as opened:
            plain = unpacked_layers(image, scratch)
            tree = merged(path, [opened.enter_context(tarfile.open(layer, "r:")) for layer in plain])
            part = scratch / "part"
            part.mkdir()
            with (part / "root.cpio").open("wb") as file:
                file.writelines([*_records(image_root(image).lstrip("/"), tree), TRAILER])
            if not final.exists():  # another process may have been faster
                part.rename(final)
    return hold(final / "root.cpio")


def _records(root: str, tree: dict[str, LayerEntry]) -> Iterator[bytes]:
    for above in reversed(PurePosixPath(f"{root}/x").parents[:-1]):
        yield record(0, str(above), stat.S_IFDIR | 0o755)
    for name, mode in BOUND.items():
        yield record(0, f"{root}/{name}", stat.S_IFDIR | mode)
    if "etc" in tree and tree["etc"].info.isdir() and _HOSTS not in tree:
        yield record(0, f"{root}/{_HOSTS}", stat.S_IFREG | 0o644, b"127.0.0.1 localhost\n")
    firsts: dict[LayerEntry, str] = {}
    for path, entry in sorted(tree.items()):
        if path.split("/")[0] not in BOUND:
            yield _record(f"{root}/{path}", entry, firsts.setdefault(entry, path) == path, firsts[entry])


def _record(name: str, entry: LayerEntry, is_first: bool, first: str) -> bytes:
    info, data = entry.info, b""
    kind = _KINDS.get(info.type, stat.S_IFREG)
    if kind == stat.S_IFLNK:
        data = info.linkname.encode(errors="surrogateescape")
    elif kind == stat.S_IFREG and not is_first:
        kind, data = stat.S_IFLNK, f"/{first}".encode(errors="surrogateescape")
    elif kind == stat.S_IFREG:
        data = entry.read()
    device = (info.devmajor, info.devminor) if info.isdev() else (0, 0)
    return record(
        0, name, kind | info.mode & 0o7777, data, device, max(0, int(info.mtime)), (info.uid, info.gid)
    )
