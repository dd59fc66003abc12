"""Layers above a file system, such as overlayfs: the TOML files of `vms/layers/`.

A layer is mounted where the file system under test would be. Its steps, which are shell scripts run in the
guest, mount that file system elsewhere, make what the layer needs there, and unmount it. Names and contents
are judged as the layer shows them; fsck checks the file system below.
"""

from __future__ import annotations

import difflib
import re
import shlex
import tomllib
from dataclasses import replace

import msgspec

from harness.errors import UsageError
from harness.filesystems.stacks import MEMBER
from harness.host.resources import resource
from harness.oracles.contract import Contract

BELOW = "{below}"
BELOW_ROOT = "/below"
"""Where the steps mount the file system below."""
EXISTING = "image"
"""The layer for a disk that somebody has."""
EVERYTHING = "everything"
SAFE_REPLACE = "replace_is_safe"
_NAME = re.compile(r"[a-z][a-z-]*")


class Layer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of `vms/layers`. `like`: the layer that has what is not in this file. `promises`: what may be
    relied on, for people. `modules`: of the kernel. `fstype`, `mount_options`: of the layer. `loses`: rules
    of the mode's contract, `replace_is_safe` or `everything`, that the layer does not keep. `source`: files
    of the kernel's source that are its own, as patterns. `device`: the first argument of mount(2), if not
    `fstype`. `folder`: in the root of the file system below; it is made before anything is recorded, and
    nothing outside it may change.

    `start`: the steps before the layer is mounted after a power cut; `record`: those before it is mounted
    in a recording, also by `remount`; `stop`: those after it was unmounted. In them, `{below}` stands for the
    arguments with which mount(8) mounts the file system below.
    """

    summary: str
    promises: str
    modules: list[str]
    fstype: str
    mount_options: list[str]
    start: str
    record: str
    stop: str
    loses: list[str] = []
    like: str = ""
    source: tuple[str, ...] = ()
    device: str = ""
    folder: str = ""

    def above(self, fstype: str, mount_options: str) -> Layer:
        """The layer above a file system that is mounted so."""
        below = ["-t", fstype, *(["-o", mount_options] if mount_options else []), MEMBER]
        start, record = (s.replace(BELOW, shlex.join(below)) for s in (self.start, self.record))
        return msgspec.structs.replace(self, start=start, record=record)

    def kept_of(self, contract: Contract) -> Contract:
        """What is left of the contract of the mode below."""
        if EVERYTHING in self.loses:
            return replace(contract, namespace="none", persists="nothing", rules=())
        return replace(
            contract,
            replace_is_safe=contract.replace_is_safe and SAFE_REPLACE not in self.loses,
            rules=tuple(rule for rule in contract.rules if rule not in self.loses),
        )


def layers() -> dict[str, Layer]:
    """Every layer, by name. Raises UsageError for a file that does not parse, or contradicts itself."""
    return {path.stem: _load(path.stem) for path in sorted(resource("vms", "layers").glob("*.toml"))}


def find_layer(name: str) -> Layer:
    """Raises UsageError with the nearest."""
    if (known := layers()).get(name):
        return known[name]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or [*known]
    raise UsageError(f"no layer {name!r}", f"try one of: {', '.join(near)} (powercut list layers)")


def _load(name: str) -> Layer:
    path = resource("vms", "layers", f"{name}.toml")
    neighbours = f"compare it with its neighbours in {path.parent}"
    try:
        layer = msgspec.convert(_table(name), Layer)
    except (OSError, tomllib.TOMLDecodeError, msgspec.MsgspecError) as e:
        raise UsageError(f"{path}: {e}", neighbours) from e
    if not _NAME.fullmatch(name):
        raise UsageError(f"{path}: its name is of small letters", neighbours)
    return layer


def _table(name: str) -> dict[str, object]:
    own: dict[str, object] = tomllib.loads(resource("vms", "layers", f"{name}.toml").read_text())
    return (_table(str(own["like"])) if "like" in own else {}) | own
