"""The upstream bugs: the TOML files of `kernels/regressions`, one for each bug that was mended upstream."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from harness.errors import UsageError
from harness.host.resources import resource
from harness.kernels.find import look_up_kernel
from harness.known.base import Record
from harness.model import DISK_FAULTS
from harness.series.catalogue import Listed, load_all, named
from harness.workloads.load import select_workloads

_COMMIT = re.compile(r"[0-9a-f]{12}")
_STABLE = re.compile(r"\d+\.\d+\.\d+(?: [0-9a-f]{12})?")


class Bug(Listed, frozen=True, kw_only=True):
    """`kernels/regressions/NAME.toml`.

    `subject`, `commit`: of the change that mends it upstream; `fixes`: the commit that made it, if the change
    names one. `stable`: releases that have the change, with its commit there where that was seen. A commit
    that nobody saw in a source is left out. `summary`: what went wrong. `before`: the last stock kernel with
    the bug, `after`: the first without it. `modes`: those in which it can show; `oracles`: those that should
    speak there, and `shows`: what they should say. `evidence`: how it is known which kernel has the bug.
    `test`: of fstests. `needs`: what Powercut has no mode or operation for, so that it cannot be run; then
    `modes` and `oracles` may be empty. `known`: words of the reason under which the bug stands among the
    known failures, since Powercut had found it before: such findings count here. `own`: workloads of general
    sets that were written for it, or for a planted fault that imitates it: what they find is counted apart.
    `disk`: how the disk is faulty in recovery (`powercut run --disk`), where that shows it. `record`: what
    the base of known bugs holds of it, where kernels that users run have it.
    """

    subject: str
    commit: str = ""
    fixes: str = ""
    stable: tuple[str, ...] = ()
    before: str
    after: str
    modes: tuple[str, ...] = ()
    oracles: tuple[str, ...] = ()
    shows: str
    evidence: str
    test: str = ""
    needs: str = ""
    known: str = ""
    own: tuple[str, ...] = ()
    disk: tuple[str, ...] = ()
    record: Record | None = None


def bugs() -> dict[str, Bug]:
    """Every bug by name. Raises UsageError for a file that does not parse or names what does not exist."""
    return load_all(resource("kernels", "regressions"), Bug, _check)


def _check(bug: Bug) -> None:
    if not bug.needs and not (bug.modes and bug.oracles):
        raise UsageError("a bug has modes and oracles, or says what it needs")
    for commit in filter(None, (bug.commit, bug.fixes)):
        if not _COMMIT.fullmatch(commit):
            raise UsageError(f"{commit!r} is not twelve digits of a commit")
    if unknown := [s for s in bug.stable if not _STABLE.fullmatch(s)]:
        raise UsageError(f"stable: {unknown[0]!r} is not a release, or one with twelve digits of a commit")
    if bug.before == bug.after:
        raise UsageError(f"{bug.before} cannot be both with the bug and without it")
    for kernel in (bug.before, bug.after):
        look_up_kernel(kernel)
    if unknown_ways := set(bug.disk) - set(DISK_FAULTS):
        raise UsageError(
            f"no disk is faulty in the way {min(unknown_ways)}", f"there are: {', '.join(DISK_FAULTS)}"
        )
    if bug.own:
        select_workloads(bug.own)


def select_bugs(names: Sequence[str], modes: Sequence[str]) -> list[Bug]:
    """The bugs of these names; all if none is named. With `modes`, only those that can show in one of them,
    and only there. Raises UsageError for an unknown name, and if nothing is left.
    """
    chosen = named(bugs(), names, "bug", "powercut regressions --list")
    if modes:
        chosen = [
            msgspec.structs.replace(b, modes=kept)
            for b in chosen
            if (kept := tuple(m for m in b.modes if m in modes))
        ]
    if not chosen:
        raise UsageError(
            f"no upstream bug shows in {', '.join(modes)}", "powercut regressions --list shows the modes"
        )
    return chosen
