"""Container images made for tests: layers of a few files, in the forms that images are saved in."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import zstandard

Member = tuple[tarfile.TarInfo, bytes]
LAYER = "application/vnd.oci.image.layer.v1.tar"
AMD64 = {"os": "linux", "architecture": "amd64"}


def file(name: str, data: bytes = b"", mode: int = 0o644, owner: int = 0) -> Member:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.uid, info.gid = len(data), mode, owner, owner
    return info, data


def folder(name: str) -> Member:
    info, _ = file(name, mode=0o755)
    info.type = tarfile.DIRTYPE
    return info, b""


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> Member:
    info, _ = file(name)
    info.type, info.linkname = kind, target
    return info, b""


def tar(*members: Member) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def configuration(layers: Sequence[bytes], platform: Mapping[str, str] = AMD64) -> bytes:
    digests = [f"sha256:{sha(layer)}" for layer in layers]
    return json.dumps({**platform, "rootfs": {"type": "layers", "diff_ids": digests}}).encode()


class Layout:
    """An OCI image layout. `blobs`: by path in the archive."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}'}
        self.manifests: list[object] = []

    def blob(self, data: bytes, kind: str) -> dict[str, object]:
        self.blobs[f"blobs/sha256/{sha(data)}"] = data
        return {"mediaType": kind, "digest": f"sha256:{sha(data)}", "size": len(data)}

    def add(
        self, *layers: bytes, packed: str = "+gzip", kind: str = LAYER, platform: Mapping[str, str] = AMD64
    ) -> None:
        """An image of these layers."""
        pack = {"+gzip": gzip.compress, "+zstd": zstandard.ZstdCompressor().compress}.get(packed, bytes)
        manifest = {
            "config": self.blob(configuration(layers, platform), "application/vnd.oci.image.config.v1+json"),
            "layers": [self.blob(pack(layer), kind + packed) for layer in layers],
        }
        of = self.blob(json.dumps(manifest).encode(), "application/vnd.oci.image.manifest.v1+json")
        self.manifests.append(of | {"platform": platform})

    def write(self, path: Path) -> Path:
        index = json.dumps({"schemaVersion": 2, "manifests": self.manifests}).encode()
        members = [file(name, data) for name, data in (self.blobs | {"index.json": index}).items()]
        path.write_bytes(tar(*members))
        return path


def layout(path: Path, *layers: bytes, packed: str = "+gzip", kind: str = LAYER) -> Path:
    """An image layout with one image."""
    made = Layout()
    made.add(*layers, packed=packed, kind=kind)
    return made.write(path)


def saved(path: Path, *layers: bytes) -> Path:
    """What `docker save` writes: Docker Image Specification 1.2."""
    config = configuration(layers)
    names = [f"{sha(layer)}/layer.tar" for layer in layers]
    manifest = [{"Config": f"{sha(config)}.json", "RepoTags": ["x:1"], "Layers": names}]
    files = dict(zip(names, layers, strict=True)) | {
        f"{sha(config)}.json": config,
        "manifest.json": json.dumps(manifest).encode(),
    }
    path.write_bytes(tar(*(file(name, data) for name, data in files.items())))
    return path
