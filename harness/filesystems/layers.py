"""Layers above a file system, such as overlayfs: the TOML files of `vms/layers/`.

A layer is mounted where the file system under test would be. Its steps, which are shell scripts run in the
guest, mount that file system elsewhere, make what the layer needs there, and unmount it. Names and contents
are judged as the layer shows them; fsck checks the file system below.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from dataclasses import replace

import msgspec

from harness.errors import UsageError
from harness.filesystems.stacks import MEMBER, NOT_MADE, between, steps_or
from harness.host.resources import resource
from harness.oracles.contract import Contract

BELOW = "{below}"
BELOW_ROOT = "/below"
"""Where the steps mount the file system below."""
EXISTING = "image"
"""The layer for a disk that somebody has."""
EVERYTHING = "everything"
SAFE_REPLACE = "replace_is_safe"
HARD_LINKS = "hard-links"
_NAME = re.compile(r"[a-z][a-z0-9-]*")


class Layer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of `vms/layers`. `like`: the layer that has what is not in this file. `promises`: what may be
    relied on, for people. `modules`: of the kernel; `options`: those of its configuration that stand for them
    in one without modules. `fstype`, `mount_options`: of the layer. `loses`: rules of the mode's contract,
    `replace_is_safe`, `hard-links` or `everything`, that the layer does not keep. `source`: files of the
    kernel's source that are its own, as patterns; `workloads`: those that run them. `device`: the first
    argument of mount(2), if not `fstype`. `folder`: in the root of the file system below; it is made before
    anything is recorded, and nothing outside it may change.
    `mode`: of the file system that is made on `device`, in place of `fstype` and `mount_options`: what it
    promises is promised. `programs`: of this host, with their packages, that come into the guest.
    `image_mib`: what the disk has at least. `persists`: what the layer makes of a mode whose fsync keeps all
    that came before it: see `Contract`. `passes_seek`: lseek(SEEK_DATA) above reads where the data of the
    file below lies. `judged_below`: `start` leaves the layer out, so that only a kernel that records needs
    its modules.

    `start`: the steps before the layer is mounted after a power cut; `record`: those before it is mounted
    in a recording, also by `remount`; `stop`: those after it was unmounted; `make`: those that come first,
    once, before the file system of `mode` is made. In them, `{below}` stands for the arguments with which
    mount(8) mounts the file system below.
    """

    summary: str
    promises: str
    modules: list[str]
    start: str
    record: str
    stop: str
    options: list[str] = []
    fstype: str = ""
    mount_options: list[str] = []
    loses: list[str] = []
    like: str = ""
    source: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    device: str = ""
    folder: str = ""
    mode: str = ""
    make: str = ""
    programs: list[str] = []
    image_mib: int = 0
    persists: str = ""
    passes_seek: bool = True
    judged_below: bool = False

    def above(self, fstype: str, mount_options: str) -> Layer:
        """The layer above a file system that is mounted so."""
        below = shlex.join(["-t", fstype, *(["-o", mount_options] if mount_options else []), MEMBER])
        steps = {name: getattr(self, name).replace(BELOW, below) for name in ("start", "record", "make")}
        return msgspec.structs.replace(self, **steps)

    def holding(self, fstype: str, mount_options: str) -> Layer:
        """The layer with a file system that is mounted so."""
        return msgspec.structs.replace(self, fstype=fstype, mount_options=mount_options.split(","))

    def making(self, line: str) -> str:
        """The script that makes the layer's own storage, and then a file system on it."""
        return "\n".join([steps_or(self.make, NOT_MADE), between(self.record, line, self.stop)])

    def checking(self, line: str) -> str:
        """The script that runs a line on what the layer is on; its exit code is that of the line."""
        return between(self.start, line, self.stop)

    def kept_of(self, contract: Contract) -> Contract:
        """What is left of a contract: that of the mode below, or of `mode`."""
        if EVERYTHING in self.loses:
            return replace(contract, namespace="none", persists="nothing", rules=())
        kept = self.persists or contract.persists
        parted = ("links-may-part",) if HARD_LINKS in self.loses else ()
        return replace(
            contract,
            persists=kept if contract.persists == "transaction" else contract.persists,
            replace_is_safe=contract.replace_is_safe and SAFE_REPLACE not in self.loses,
            rules=(*(rule for rule in contract.rules if rule not in self.loses), *parted),
        )


def layers() -> dict[str, Layer]:
    """Every layer, by name. Raises UsageError for a file that does not parse, or contradicts itself."""
    return {path.stem: _load(path.stem) for path in sorted(resource("vms", "layers").glob("*.toml"))}


def _load(name: str) -> Layer:
    path = resource("vms", "layers", f"{name}.toml")
    neighbours = f"compare it with its neighbours in {path.parent}"
    try:
        layer = msgspec.convert(_table(name), Layer)
    except (OSError, tomllib.TOMLDecodeError, msgspec.MsgspecError) as e:
        raise UsageError(f"{path}: {e}", neighbours) from e
    if not _NAME.fullmatch(name):
        raise UsageError(f"{path}: its name is of small letters and digits", neighbours)
    if bool(layer.fstype) == bool(layer.mode) or (layer.mode and not (layer.make and layer.device)):
        raise UsageError(f"{path}: it has either fstype, or mode with make and device", neighbours)
    return layer


def _table(name: str) -> dict[str, object]:
    own: dict[str, object] = tomllib.loads(resource("vms", "layers", f"{name}.toml").read_text())
    return (_table(str(own["like"])) if "like" in own else {}) | own
