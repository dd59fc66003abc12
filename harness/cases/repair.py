"""Recovery whose first half is a program of the host: file systems whose kernel does not replay or repair.

ext2 has no journal, and JFS's is replayed by its fsck alone: what their users boot into has been through fsck
first. A profile with a `[repair]` program is recovered so: the crash state becomes an image file, the program
repairs it, and the guest mounts the result.
"""

from __future__ import annotations

import dataclasses

from harness.errors import PowercutError
from harness.filesystems.profiles import Tool
from harness.guests.worker import Target, Worker
from harness.model import CrashState


def repaired(worker: Worker, target: Target, state: CrashState, tool: Tool) -> Target:
    """What is to be shown, at @0, in place of `state` of `target`. The file belongs to the worker.

    Raises PowercutError where the program says that it could not repair: the state is UNKNOWN.
    """
    disk = worker.show(target.base, target.log)
    disk.switch(state)
    image = worker.directory / "repaired.img"
    image.unlink(missing_ok=True)
    disk.image(image)
    done = tool.run(image)
    if done.returncode not in tool.clean:
        said = done.stdout.decode(errors="replace").strip()[-400:]
        raise PowercutError(f"{tool.program} could not repair {state}: exit code {done.returncode}: {said}")
    return dataclasses.replace(target, base=image, log=None)
