"""Trees and their checks in namespaces of this host, where it allows them: `vms/agent/src/contained.rs`.

No kernel is under test there, and a check costs what it costs on the host: a fifth to a tenth of what it
costs a guest.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterable
from pathlib import Path

from harness.errors import GuestLost
from harness.guests import guest
from harness.guests.guest import Guest
from harness.guests.session import find_agent
from harness.rules.calls import Notes

_WORD = "contained"
_UP_TIMEOUT_S = 30.0
_NOTED = "noted"
_LIKE_IT = ("unshare", "--user", "--map-root-user", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork")


def allowed() -> bool:
    """Whether this host allows what it needs, as far as unshare(1) can tell."""
    with contextlib.suppress(OSError):
        line = [*_LIKE_IT, "mount", "-t", "proc", "proc", "/proc"]
        return subprocess.run(line, capture_output=True, check=False).returncode == 0
    return False


def contained(initramfs: Path, notes: Notes, directory: Path) -> Guest | None:
    """A process that makes trees of a program's writes and answers as a guest does. None: this host does not
    allow it; some file belongs to a user other than root, who is the only user there; or some file has
    extended attributes, which tmpfs takes from users since Linux 6.6.
    """
    if any(owner[1:] != (0, 0) for owner in _owners(notes)):
        return None
    if any(call.word == "setxattr" for call in notes.calls):
        return None
    directory.mkdir(exist_ok=True)
    noted = directory / _NOTED
    noted.write_bytes(notes.data)
    agent = str(find_agent())
    made = guest.launch(lambda fd: [agent, _WORD, str(fd), str(initramfs), str(noted)], directory)
    try:
        made.wait_until_up(_UP_TIMEOUT_S)
    except GuestLost:
        made.kill()
        return None
    except BaseException:
        made.kill()
        raise
    return made


def _owners(notes: Notes) -> Iterable[tuple[int, int, int]]:
    yield notes.owner
    yield from (call.owner for call in notes.calls)
