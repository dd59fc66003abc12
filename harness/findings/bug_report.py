"""A bug report on disk: `reports/findings/SLUG`, what maintainers get of one bug.

```
README.md       what goes wrong, on which kernels, where in the code, and what is not claimed
finding.toml    on which kernels reproduce.sh is run, and what it says there
reproduce.sh    shows the bug without Powercut; its last line is `BROKEN: ...` or `KEPT: ...`
mail.txt        the mail: its list, a subject, and the commit that the bug comes from, where that is known
*.patch         a few lines that fix a module, as a control
evidence/       what reproduce.sh and the kernel printed
```
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from harness.errors import UsageError
from harness.host.resources import resource
from harness.host.text import near_or
from harness.known.base import Record

SCRIPT = "reproduce.sh"
MAIL = "mail.txt"
EVIDENCE = "evidence"
TO_DO = "TO DO"
NO_CHECK = f"{TO_DO}: the check is not written yet"
"""What a script says, and ends with 2, until somebody has written down what was promised."""
Said = Literal["BROKEN", "KEPT"]


class StatedRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A `[[run]]` of finding.toml: what reproduce.sh says on one kernel.

    `environment`: variables of the script, such as one that chooses a control. `patch`: a file of the folder;
    the module that it changes is built with it, from the kernel's source, and takes the stock module's place;
    of a folder with several modules, such as drivers/md, the first of the bug report's `modules`.
    `module`: a built module of the folder that takes the stock one's place. `note`: why this run is there.
    """

    kernel: str
    says: Said
    environment: dict[str, str] = {}
    patch: str = ""
    module: str = ""
    note: str = ""

    @property
    def name(self) -> str:
        """What tells it from the bug report's other runs: `debian-7.3 CONTROL=1`."""
        variables = [f"{k}={v}" for k, v in sorted(self.environment.items())]
        return " ".join([self.kernel, *variables, *filter(None, [self.patch, self.module])])


class BugReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A folder of `reports/findings` with its finding.toml.

    `record`: what the base of known bugs holds of it. `modules`: those of the kernel that the script needs,
    beside loop and device-mapper's: a guest cannot load more. `timeout_s`: for one run of the script.
    `memory_mib`: the guest's; the script's files are in it.
    """

    title: str
    run: list[StatedRun]
    record: Record | None = None
    modules: list[str] = []
    timeout_s: float = 600.0
    memory_mib: int = 1536
    path: Path = Path()

    @property
    def slug(self) -> str:
        return self.path.name

    @property
    def script(self) -> Path:
        return self.path / SCRIPT

    def lacks(self) -> list[str]:
        """What of a draft must be written before its script can decide anything."""
        controls = [TO_DO in r.environment.values() for r in self.run]
        return [
            *([f"{SCRIPT}: the check at its end"] if NO_CHECK in self.script.read_text() else []),
            *(["finding.toml: a control, in the [[run]] that says KEPT"] if any(controls) else []),
        ]


def findings_folder() -> Path:
    """Where the committed bug reports are."""
    return resource("reports", "findings")


def bug_reports(folder: Path) -> dict[str, BugReport]:
    """Every bug report of a folder by its slug. Raises UsageError for one that is not complete."""
    return {path.parent.name: load(path.parent) for path in sorted(folder.glob("*/finding.toml"))}


def load(path: Path) -> BugReport:
    """The bug report in a folder. Raises UsageError if its finding.toml does not parse, states no affected
    kernel or no control, or if there is no script.
    """
    toml = path / "finding.toml"
    try:
        found = msgspec.toml.decode(toml.read_bytes(), type=BugReport)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as e:
        raise UsageError(f"{toml}: {e}", f"compare it with its neighbours in {path.parent}") from e
    for says, what in (("BROKEN", "an affected kernel"), ("KEPT", "a control")):
        if says not in [r.says for r in found.run]:
            raise UsageError(
                f"{toml}: no [[run]] says {says}", f"a bug report shows a bug on {what} too: add a [[run]]"
            )
    names = [r.name for r in found.run]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"{toml}: two runs of {twice[0]}", "leave out one of the two")
    named = [name for r in found.run for name in (r.patch, r.module) if name]
    if lacking := [name for name in named if not (path / name).is_file()]:
        raise UsageError(f"{path} has no {lacking[0]}", "a patch or module stands beside its finding.toml")
    if not (path / SCRIPT).is_file():
        raise UsageError(f"{path} has no {SCRIPT}", "a bug report shows its bug without Powercut: write one")
    return msgspec.structs.replace(found, path=path)


def select_bug_reports(names: Sequence[str], folder: Path) -> list[BugReport]:
    """Those of these slugs; all if none is named. Raises UsageError for an unknown slug."""
    known = bug_reports(folder)
    for name in names:
        if name not in known:
            listed = f"powercut findings --list names all {len(known)}"
            raise UsageError(f"no finding {name!r} in {folder}", near_or(name, known, listed))
    return [known[name] for name in dict.fromkeys(names)] or list(known.values())
