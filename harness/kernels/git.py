"""Git as Powercut asks it: nothing of the surroundings points it elsewhere, and of a user's tree it only
reads.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

_OF_USER = re.compile(r"GIT_(CONFIG_(GLOBAL|SYSTEM|NOSYSTEM)|EXEC_PATH|SSH|SSH_COMMAND|SSH_VARIANT|SSL_\w+)")


def plain_environment() -> dict[str, str]:
    """Without variables that point git elsewhere, as a hook has them, and with no prompt. Where the user's
    settings are (safe.directory), and how git reaches a server, stays.
    """
    kept = {n: value for n, value in os.environ.items() if not n.startswith("GIT_") or _OF_USER.fullmatch(n)}
    return kept | {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}


def read_only_git(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Ask the user's repository, without the refresh of its index that some questions bring."""
    return subprocess.run(
        ["git", "-C", str(tree), "-c", "diff.autoRefreshIndex=false", *words],
        env=plain_environment(),
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
    )


def is_top(tree: Path) -> bool:
    """Whether a folder is the top of a git tree. A source that was unpacked below another repository is not:
    that repository's commit says nothing of the source. Without git, none is.
    """
    if shutil.which("git") is None:
        return False
    top = read_only_git(tree, "rev-parse", "--show-toplevel")
    return top.returncode == 0 and Path(top.stdout.rstrip("\n")).resolve() == tree.resolve()


def unwatched(tree: Path) -> list[str]:
    """The files of a tree whose changes git is told not to look for (`update-index --assume-unchanged`,
    `--skip-worktree`), by their names; those of a sparse checkout that are not there are left out.
    """
    listed = read_only_git(tree, "ls-files", "-v", "-z").stdout.split("\0")
    flagged = (line[2:] for line in listed if line[:1].islower() or line[:1] == "S")
    return [name for name in flagged if os.path.lexists(tree / name)]
