"""Container images in a tar archive: an OCI image layout, or what `docker save` and `podman save` write.

Sources: the OCI Image Format Specification 1.1 (image-layout.md, image-index.md, manifest.md, config.md,
layer.md) and the Docker Image Specification 1.2 ("Combined Image JSON + Filesystem Changeset Format").
Nothing is unpacked to this host: an image may be somebody else's.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import platform
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TypeVar, cast

import msgspec
import zstandard

from harness.errors import UsageError

LAYERS_MIB_MAX = 4 << 10
"""Of all layers together, unpacked: a guest has its root in memory."""
_DOCUMENT_BYTES_MAX = 4 << 20
_COPY_BYTES = 1 << 20
_LINKS_MAX = 40  # path_resolution(7)
_WHITEOUT = ".wh."  # layer.md, "Whiteouts"
_OPAQUE = ".wh..wh..opq"
_PACKED = ("", "+gzip", "+zstd", ".gzip", ".zstd")
_KINDS = ("application/vnd.oci.image.layer.", "application/vnd.docker.image.rootfs.")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_DAMAGED = (tarfile.TarError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError, EOFError)
_SAVE = "save one with: docker save, podman save, or skopeo copy ... oci-archive:FILE"


class _Platform(msgspec.Struct):
    architecture: str = ""
    os: str = ""


class _Descriptor(msgspec.Struct):
    digest: str
    mediaType: str = ""  # noqa: N815 - descriptor.md
    platform: _Platform | None = None


class _Manifest(msgspec.Struct):
    """An index has `manifests`, a manifest the others."""

    manifests: list[_Descriptor] = []
    config: _Descriptor | None = None
    layers: list[_Descriptor] = []


class _RootFs(msgspec.Struct):
    diff_ids: list[str]


class _Config(_Platform):
    rootfs: _RootFs = msgspec.field(default_factory=lambda: _RootFs([]))


class _Saved(msgspec.Struct, rename="pascal"):
    """An entry of `manifest.json`, as `docker save` writes it."""

    config: str
    layers: list[str]


@dataclass(frozen=True, slots=True)
class ContainerImage:
    """`identity`: the image's ID, the hash of its configuration, which names the contents of all layers.
    `layers`: of each, from the lowest on, where it is in the archive, and the digest of what it unpacks to.
    """

    path: Path
    identity: str
    layers: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, eq=False)
class LayerEntry:
    """A file of the merged layers. Hard links to one file are one entry."""

    info: tarfile.TarInfo
    layer: tarfile.TarFile | None = None

    def read(self) -> bytes:
        """The contents of a regular file."""
        assert self.layer  # noqa: S101 - only directories are implied
        return cast(IO[bytes], self.layer.extractfile(self.info)).read()


def read_image(path: Path) -> ContainerImage:
    """What an archive says of its image for this host's platform. Raises UsageError for a file that is none,
    for several images, for a digest that does not match, and for a layer of an unknown kind.
    """
    with _archive(path) as archive:
        names = set(archive.getnames())
        if "index.json" in names:
            config, digest, layers = _of_layout(archive, path)
        elif "manifest.json" in names:
            config, digest, layers = _of_save(archive, path)
        else:
            raise _refused(path, "it has neither index.json nor manifest.json")
    found, wanted = f"{config.os}/{config.architecture}", _platform()
    if found != wanted:
        raise _refused(path, f"it is for {found}, and this host is {wanted}")
    if not layers or len(layers) != len(config.rootfs.diff_ids):
        raise _refused(
            path, f"it has {len(layers)} layers, and {len(config.rootfs.diff_ids)} digests of them"
        )
    if lacking := next((name for name in layers if name not in names), None):
        raise _refused(path, f"it lacks the layer {lacking}")
    return ContainerImage(path, digest, tuple(zip(layers, config.rootfs.diff_ids, strict=True)))


def unpacked_layers(image: ContainerImage, folder: Path) -> list[Path]:
    """The layers as plain archives in `folder`, from the lowest on. Raises UsageError for a damaged one, and
    for more than LAYERS_MIB_MAX.
    """
    found, left = [], LAYERS_MIB_MAX << 20
    with _archive(image.path) as archive:
        for number, (name, wanted) in enumerate(image.layers):
            plain, digest = folder / f"{number}.tar", hashlib.new("sha256")
            with plain.open("wb") as file:
                for piece in _pieces(_opened(archive, name, image.path)):
                    digest.update(piece)
                    file.write(piece)
                    if (left := left - len(piece)) < 0:
                        raise _refused(image.path, f"its layers are larger than {LAYERS_MIB_MAX} MiB")
            _need_match(image.path, name, f"sha256:{digest.hexdigest()}", wanted)
            found.append(plain)
    return found


def merged(image: Path, layers: Sequence[tarfile.TarFile]) -> dict[str, LayerEntry]:
    """The root file system: layers on top of each other, by path without a slash at its beginning. Each
    directory above a file is there, and no path leads through a symbolic link. Raises UsageError for an entry
    that leaves the root, or is of an unknown kind. Source: layer.md, "Applying Changesets".
    """
    tree: dict[str, LayerEntry] = {}
    for layer in layers:
        with _readable(image):
            members = [(info, PurePosixPath(info.name).name) for info in layer]
        for info, name in members:  # they hide files of lower layers alone, wherever they stand
            if name.startswith(_WHITEOUT):
                above = _place(tree, info.name, image).removesuffix(name)
                _remove(tree, above if name == _OPAQUE else above + name.removeprefix(_WHITEOUT))
        for info, name in members:
            if not name.startswith(_WHITEOUT):
                _put(tree, info, layer, image)
    return tree


def _put(tree: dict[str, LayerEntry], info: tarfile.TarInfo, layer: tarfile.TarFile, image: Path) -> None:
    entry, path = LayerEntry(info, layer), _place(tree, info.name, image)
    if info.islnk():
        target = tree.get(_place(tree, info.linkname, image))
        if target is None or target.info.isdir():
            raise _refused(image, f"{info.name} is a hard link to {info.linkname}, which is no file of it")
        entry = target
    elif not ((info.isreg() and not info.issparse()) or info.isdir() or info.issym() or info.isdev()):
        raise _refused(image, f"{info.name} is of an unknown kind")
    if not path:
        return  # the root itself
    if path in tree and not info.isdir():
        _remove(tree, path)
    for above in list(PurePosixPath(path).parents)[:-1]:
        tree.setdefault(str(above), _implied(str(above)))
    tree[path] = entry


def _implied(path: str) -> LayerEntry:
    info = tarfile.TarInfo(path)
    info.type, info.mode = tarfile.DIRTYPE, 0o755
    return LayerEntry(info)


def _remove(tree: dict[str, LayerEntry], path: str) -> None:
    """Remove a file or a directory with all below it; of a path that ends in a slash, or of the root, only
    what is below it.
    """
    if path and not path.endswith("/"):
        removed = tree.pop(path, None)
        if removed is None or not removed.info.isdir():
            return
        path += "/"
    for below in [p for p in tree if p.startswith(path)]:
        del tree[below]


def _place(tree: dict[str, LayerEntry], name: str, image: Path) -> str:
    """The path of an entry, once symbolic links above it are followed, within the root as chroot(2) does."""
    done: list[str] = []
    left, links = PurePosixPath(name.lstrip("/")).parts, 0
    if ".." in left:
        raise _refused(image, f"{name} leaves the root")
    while left:
        part, left = left[0], left[1:]
        if part == "..":
            if not done:
                raise _refused(image, f"{name} leaves the root by a symbolic link")
            done.pop()
            continue
        done.append(part)
        above = tree.get("/".join(done))
        if left and above and above.info.issym():
            links += 1
            if links > _LINKS_MAX:
                raise _refused(image, f"{name} is below a symbolic link that leads to itself")
            target = above.info.linkname
            done = [] if target.startswith("/") else done[:-1]
            left = (*PurePosixPath(target.lstrip("/")).parts, *left)
    return "/".join(done)


# --- what an archive says --------------------------------------------------------------------


def _of_layout(archive: tarfile.TarFile, path: Path) -> tuple[_Config, str, list[str]]:
    """The configuration with its hash, and the places of the layers. Source: image-layout.md."""
    index = _decoded(_document(archive, "index.json", path), _Manifest, path)
    found = {d.digest for d in _manifests(archive, index, path)}
    if len(found) != 1:
        raise _refused(path, f"it has {len(found)} images for {_platform()}, and one is needed")
    manifest = _decoded(_blob(archive, found.pop(), path), _Manifest, path)
    if manifest.config is None:
        raise _refused(path, "its manifest names no configuration")
    for layer in manifest.layers:
        kind, tar, packed = layer.mediaType.rpartition("tar")
        if not (kind.startswith(_KINDS) and tar and packed in _PACKED):
            raise _refused(path, f"a layer is of an unknown kind: {layer.mediaType}")
    config = _decoded(_blob(archive, manifest.config.digest, path), _Config, path)
    return config, manifest.config.digest.partition(":")[2], [_named(d.digest, path) for d in manifest.layers]


def _manifests(archive: tarfile.TarFile, index: _Manifest, path: Path) -> Iterator[_Descriptor]:
    """Those for this host in an index, which may name other ones (image-index.md)."""
    for each in index.manifests:
        if "index" in each.mediaType or "manifest.list" in each.mediaType:
            inner = _decoded(_blob(archive, each.digest, path), _Manifest, path)
            yield from (d for d in inner.manifests if _is_ours(d))
        elif _is_ours(each):
            yield each


def _is_ours(descriptor: _Descriptor) -> bool:
    of = descriptor.platform
    return of is None or f"{of.os}/{of.architecture}" == _platform()


def _of_save(archive: tarfile.TarFile, path: Path) -> tuple[_Config, str, list[str]]:
    """The same of what `docker save` writes, where the configuration's name is its hash."""
    saved = _decoded(_document(archive, "manifest.json", path), list[_Saved], path)
    if len(saved) != 1:
        raise _refused(path, f"it has {len(saved)} images, and one is needed")
    document = _document(archive, saved[0].config, path)
    digest = hashlib.sha256(document).hexdigest()
    _need_match(path, saved[0].config, digest, PurePosixPath(saved[0].config).stem)
    return _decoded(document, _Config, path), digest, saved[0].layers


def _named(digest: str, path: Path) -> str:
    """The place of a blob in a layout. Raises UsageError for a digest that this one cannot verify."""
    algorithm, _, encoded = digest.partition(":")
    if algorithm != "sha256" or not encoded.isalnum():
        raise _refused(path, f"{digest} is no SHA-256 digest")
    return f"blobs/{algorithm}/{encoded}"


def _blob(archive: tarfile.TarFile, digest: str, path: Path) -> bytes:
    name = _named(digest, path)
    document = _document(archive, name, path)
    _need_match(path, name, f"sha256:{hashlib.sha256(document).hexdigest()}", digest)
    return document


def _document(archive: tarfile.TarFile, name: str, path: Path) -> bytes:
    text = _opened(archive, name, path).read(_DOCUMENT_BYTES_MAX + 1)
    if len(text) > _DOCUMENT_BYTES_MAX:
        raise _refused(path, f"{name} is larger than {_DOCUMENT_BYTES_MAX >> 20} MiB")
    return text


T = TypeVar("T")


def _decoded(document: bytes, of: type[T], path: Path) -> T:
    try:
        return msgspec.json.decode(document, type=of)
    except (msgspec.MsgspecError, UnicodeDecodeError) as e:
        raise _refused(path, f"a document of it cannot be read: {e}") from e


def _opened(archive: tarfile.TarFile, name: str, path: Path) -> IO[bytes]:
    try:
        file = archive.extractfile(name)
    except KeyError:
        file = None
    if file is None:
        raise _refused(path, f"it lacks {name}")
    return file


def _pieces(packed: IO[bytes]) -> Iterator[bytes]:
    """What a layer unpacks to. Its first bytes tell how it is packed: RFC 1952, RFC 8878."""
    magic = packed.read(4)
    packed.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        plain: IO[bytes] = cast(IO[bytes], gzip.GzipFile(fileobj=packed))
    elif magic == b"\x28\xb5\x2f\xfd":
        plain = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True)
    else:
        plain = packed
    while piece := plain.read(_COPY_BYTES):
        yield piece


@contextlib.contextmanager
def _archive(path: Path) -> Iterator[tarfile.TarFile]:
    with _readable(path), tarfile.open(path, "r:") as archive:
        yield archive


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raises UsageError for a file that is not there, or damaged."""
    try:
        yield
    except (*_DAMAGED, FileNotFoundError, IsADirectoryError, PermissionError) as e:
        raise _refused(path, f"it cannot be read as a tar archive that is not packed as a whole: {e}") from e


def _need_match(path: Path, name: str, found: str, wanted: str) -> None:
    if found != wanted:
        raise _refused(path, f"{name} is damaged: its digest is {found}, and should be {wanted}")


def _platform() -> str:
    machine = platform.machine()
    return f"linux/{_ARCHITECTURES.get(machine, machine)}"


def _refused(path: Path, why: str) -> UsageError:
    return UsageError(f"{path} is no image that can be used: {why}", _SAVE)
