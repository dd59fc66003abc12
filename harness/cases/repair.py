"""Recovery for file systems whose kernel does not replay or repair: a program on the host does that first.

ext2 has no journal, and only fsck replays that of JFS: their users mount a file system after fsck has run. A
profile with a `[repair]` program is recovered in the same way: the crash state becomes an image file, the
program repairs it, and the guest mounts the result.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from harness.errors import PowercutError
from harness.filesystems.tools import Tool
from harness.guests.session import Session, Target
from harness.model import CrashState


def repaired(session: Session, target: Target, state: CrashState, tool: Tool) -> Target:
    """The target to show, at @0, in place of `state` of `target`. The session owns the image file.

    Raises PowercutError where the program reports that it could not repair; the state is then UNKNOWN.
    """
    disk = session.show(target)
    disk.switch(state)
    image = session.directory / "repaired.img"
    image.unlink(missing_ok=True)
    disk.image(image)
    repair(image, state, tool)
    return dataclasses.replace(target, base=image, log=None, order=None)


def repair(image: Path, state: CrashState, tool: Tool) -> None:
    """Run the program on the image of a crash state. Raises PowercutError where it could not repair."""
    done = tool.run(image)
    if done.returncode not in tool.clean:
        said = done.stdout.decode(errors="replace").strip()[-400:]
        raise PowercutError(f"{tool.program} could not repair {state}: exit code {done.returncode}: {said}")
