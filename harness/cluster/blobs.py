"""The files that guests are made of, by their contents: what a run needs on its workers, and where a worker
has it.

A worker uses a file that is there already, and keeps the others in its cache, `parts/<sha256>`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from harness.cases.fsck_reads import find_library
from harness.cluster.messages import Requirements, SentSpec
from harness.errors import PowercutError
from harness.guests.built import BUILT_PARTS
from harness.guests.guest_specs import GuestSpecs
from harness.guests.session import GuestSpec
from harness.host.cache import cache_dir, hold
from harness.host.files import file_hash, write_atomically
from harness.plan import Plan

FOLDER = "parts"
PROGRAM_MODE = 0o755  # the disk is a program, and for some machines the kernel is
_BUILT = {**BUILT_PARTS, "POWERCUT_READTRACE": find_library}
"""The built parts that run on the worker's host; the agent is in the initramfs."""


_OF_ONE_CASE: Mapping[str, Any] = MappingProxyType(
    {
        "jobs": 1,
        "recordings": None,
        "image": None,
        "minutes": None,
        "max_failures": None,
        "cluster": "",
        "argv": [],
    }
)
"""What a worker's plan has instead of the run's: limits hold for the run, and recordings come with the
case.
"""


def requirements_of(
    run: str, plan: Plan, specs: GuestSpecs, bases: Mapping[str, Path], pins: Mapping[str, str]
) -> Requirements:
    """What a run needs on its workers. `bases`: packed. Raises EnvironmentLacks for a built part that is
    missing.
    """
    blobs: dict[str, str] = {}

    def blob(path: Path) -> str:
        return blobs.setdefault(str(path.resolve()), file_hash(path))

    def spec(of: GuestSpec) -> SentSpec:
        kernel, initramfs = blob(of.kernel_image), blob(of.initramfs)
        return SentSpec(of.machine.name, of.machine.accel, kernel, initramfs, of.memory_mib)

    return Requirements(
        run=run,
        plan=msgspec.structs.replace(plan, **_OF_ONE_CASE),
        recorder=spec(specs.recorder),
        judge=None if specs.recorder is specs.judge else spec(specs.judge),
        bases={name: blob(path) for name, path in bases.items()},
        variables={name: blob(find()) for name, find in _BUILT.items()},
        blobs={sha256: path for path, sha256 in blobs.items()},
        pins=dict(pins),
    )


def found(sha256: str, path: Path) -> Path | None:
    """Where this host has a blob: in its cache, or where the run has it. None: nowhere, or other contents."""
    kept = cache_dir(FOLDER) / sha256
    if kept.is_file():
        os.utime(kept)  # in use: `powercut gc` goes by it
        hold(kept)
    for place in (kept, path):
        with contextlib.suppress(OSError):
            if file_hash(place) == sha256:
                return place
    return None


def keep(sha256: str, data: bytes) -> None:
    """Put a blob that was sent into this host's cache. Raises PowercutError if it is another one."""
    if (told := hashlib.sha256(data).hexdigest()) != sha256:
        raise PowercutError(f"a blob was changed on its way: sha256 {sha256} expected, {told} found")
    write_atomically(cache_dir(FOLDER) / sha256, data, mode=PROGRAM_MODE)
    hold(cache_dir(FOLDER) / sha256)
