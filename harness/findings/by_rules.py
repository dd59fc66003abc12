"""A state of a mode that is only rules, once more: the check looks at it again.

A state is named by what the program's calls change, which the run has kept: a program that draws names at
random, or has threads, makes other calls each time. Where a run of before has kept nothing, the program runs
again; one that makes other calls then is undecided.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from harness.errors import EnvironmentLacks, UsageError
from harness.filesystems.profile import Profile
from harness.filesystems.profiles import select_profiles
from harness.guests.guest_specs import make_specs
from harness.guests.made_trees import NOTES_MAX_BYTES, MadeTrees
from harness.guests.session import Session, Target
from harness.host.folders import OwnedFolder
from harness.host.packed import unpack
from harness.model import Check, CrashPoint, Judgement
from harness.plan import GuestChoice
from harness.report.lines import run_again
from harness.ruled.judging import Judging, check_of, judgement_of, state_of
from harness.rules.calls import Xattrs
from harness.rules.states import Partial
from harness.rules.trees import contents
from harness.store import RunStore
from harness.trust import Named, chosen_kernel, plan_here, vouched_word, vouched_workload


def ruled_profile(point: CrashPoint) -> Profile | None:
    """The mode of a crash point, if it is only rules."""
    (profile,) = select_profiles([point.case.configuration])
    return profile if profile.rules else None


def judge_again(store: RunStore, point: CrashPoint, profile: Profile, named: Named, accel: str) -> Judgement:
    """Judge a state again. Raises UsageError for a state that the rules do not leave
    possible, NotJudged, GuestLost.
    """
    with _again(store, point, profile, named, accel) as (judging, state, check):
        return judgement_of(judging.result(state, judging.legal.acks(state)), check, "")


def export_files(
    store: RunStore, point: CrashPoint, profile: Profile, named: Named, accel: str, folder: Path
) -> list[str]:
    """Make a folder: in `files` the files that are left in the state, in
    `acknowledged` what had been acknowledged, a line each. Returns the extended attributes that are not
    written, in words. Raises as `judge_again`, and UsageError for a folder that is there.
    """
    if folder.exists():
        raise UsageError(f"{folder} already exists", "name a folder that does not")
    with _again(store, point, profile, named, accel) as (judging, state, _):
        try:
            return _write(judging, state, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def _write(judging: Judging, state: Partial, folder: Path) -> list[str]:
    """The names are those that `followed` took: of files, below `files`."""
    notes, root, left_out = judging.notes, folder / "files", list[str]()
    root.mkdir(parents=True)
    told = [f"{ack.text}\n" for ack in notes.acks[: judging.legal.acks(state)]]
    (folder / "acknowledged").write_text("".join(told))
    # A directory stands before what is in it, and a file before its other names.
    for path, entry in sorted(judging.files(state).items(), key=lambda e: (e[1].kind == "link", e[0])):
        place = root / path
        match entry.kind:
            case "directory":
                place.mkdir()
            case "symlink":
                place.symlink_to(entry.target)
            case "link":
                place.hardlink_to(root / entry.first)
            case _:
                place.write_bytes(contents(notes, entry.size, entry.pieces))
        left_out += [f"{name} of {path}" for name in _not_set(place, () if entry.first else entry.xattrs)]
        if entry.kind in ("file", "special"):
            place.chmod(entry.owner[0])
    # Of directories last, the deepest first: one that nobody may write to takes no file.
    for path, entry in sorted(judging.files(state).items(), reverse=True):
        if entry.kind == "directory":
            (root / path).chmod(entry.owner[0])
    return left_out


def _not_set(place: Path, xattrs: Xattrs) -> Iterator[str]:
    """Set the extended attributes of a file. Returns the names of those that are not: any that is no user's,
    since a run of somebody else would give programs capabilities here, and what this file system refuses.
    """
    for name, value in xattrs:
        try:
            if not name.startswith("user."):
                raise ValueError
            os.setxattr(place, name, value, follow_symlinks=False)
        except (OSError, ValueError):
            yield name


@contextlib.contextmanager
def _again(
    store: RunStore, point: CrashPoint, profile: Profile, named: Named, accel: str
) -> Iterator[tuple[Judging, Partial, Check]]:
    """What judges the state."""
    plan = plan_here(store, named)
    workload = vouched_workload(store, named, point.case.workload)
    check, record = check_of(workload.checks), store.case(point.case)
    if check is None or profile.rules is None or record is None:
        raise UsageError(f"{point.case} has no check of its own", "name a crash point of the report")
    kernel = chosen_kernel(plan, store.info.kernel.name, named)
    with OwnedFolder("powercut-rules-") as folder:
        base = folder.path / "base.img"
        base.write_bytes(bytes(profile.size_bytes))
        asked = GuestChoice(plan.machine, accel, plan.log_bytes)
        specs = make_specs(asked, kernel, [profile], [replace(workload)], base, folder.path)
        target = Target(profile.fstype, "", base, None)
        with (
            Session(specs.judge, folder.path / "ruled", plan.log_bytes) as session,
            MadeTrees(session, target) as trees,
        ):
            kept = store.layout.case(point.case).calls
            if kept.exists():
                notes = trees.take(unpack(kept, folder.path / "calls", NOTES_MAX_BYTES).read_bytes())
            else:  # a run of before
                notes = trees.note(workload.operations[check.operation].argv)
            if notes.digest() != record.info.log_hash:
                raise EnvironmentLacks(
                    f"{point.case}: the program made or acknowledged its calls otherwise than in the run",
                    "run it again",
                )
            acks = [ack.text for ack in notes.acks]
            judging = Judging(notes, profile.rules, lambda asked: trees.check(asked, check, acks))
            state, why_not = state_of(judging, point.state)
            if why_not:
                again = run_again(plan, profile.name, vouched_word(plan, named, point.case.workload))
                raise UsageError(
                    f"the rules of {profile.name} do not leave {point} possible: {why_not}",
                    "name a crash point of the report; if it is of one, rules have changed since: " + again,
                )
            yield judging, state, check
