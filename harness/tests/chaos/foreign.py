"""Directories from somebody else, damaged: nothing they name is run, contacted or opened, and nothing falls
over. The directories and commands are those of `harness/tests/cli/foreign.py`.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from harness.errors import PowercutError
from harness.plan import Plan
from harness.store import RunStore
from harness.tests.chaos.damage import damage, look_for_leftovers_of_files
from harness.tests.chaos.reference import Reference, copy_run
from harness.tests.chaos.trial import Trial
from harness.tests.chaos.verdicts import wrong_code, wrong_words
from harness.tests.cli.foreign import (
    ATTACKS,
    EVERY,
    NOTHING_STARTS,
    WORKLOAD,
    Attack,
    Hostile,
    a_run,
    given,
    lay_bait,
    watching,
)
from harness.tests.cli.runner import powercut

DIRECTORIES = 40  # per trial
_WORDS = (
    "",
    ".",
    "..",
    "/",
    "../../host/evil",
    "a\0b",
    "\x1b[2J",
    "x" * 5000,
    "local:9",
    "tcp://127.0.0.1:9",
)


def run_foreign(trial: Trial, reference: Reference, plant: str = "") -> None:
    """Give hostile directories to commands. An error of one line is right, and so is going on, up to where
    the first program would be started.
    """
    tempfile.tempdir = str(trial.temporary)
    for number in range(DIRECTORIES):
        root = trial.directory / str(number)
        kept = len(trial.defects)
        _give(trial, reference, root)
        if len(trial.defects) == kept:
            shutil.rmtree(root)
    look_for_leftovers_of_files(trial)


def _give(trial: Trial, reference: Reference, root: Path) -> None:
    chance = trial.random
    command, attack = chance.choice(list(ATTACKS.items()))
    hostile = chance.choice(EVERY)
    bait = lay_bait(root / "host", hostile)
    before = _contents(root / "host")
    directory = _make(chance, reference, attack, hostile, root, bait)
    how = [_spoil(chance, directory, bait) for _ in range(chance.choice([0, 1, 1, 2]))]
    line = given(attack, directory, hostile)
    with contextlib.chdir(root), watching(root / "cache") as trap:
        trap.baits.append(str(bait))
        done = powercut(*line)
    trial.figures["foreign directories"] += 1
    what = f"[{'-'.join(command)}, {hostile.name}, {'; '.join(how) or 'whole'}: {directory}]"
    for sprung in trap.sprung:
        trial.tell("touched", f"{sprung} {what}")
    if _contents(root / "host") != before:
        trial.tell("touched", f"what lies outside was changed {what}")
    if NOTHING_STARTS in done.output:
        trial.figures["foreign directories stopped at the first program"] += 1
    elif (defect := wrong_words(done.output)) is not None:
        trial.tell(defect.kind, f"{defect.what} {what}")
    if command[0] == "report" and (defect := wrong_code(1, done.exit_code)) is not None:
        trial.tell(defect.kind, f"report: {defect.what} {what}")


def _make(
    chance: random.Random, reference: Reference, attack: Attack, hostile: Hostile, root: Path, bait: Path
) -> Path:
    """The directory; of runs, half have all that a real one has."""
    if attack.make is not a_run or hostile is WORKLOAD or chance.random() < 0.5:
        return attack.make(root / "theirs", hostile, str(bait))
    directory = root / "theirs" / "runs" / "theirs"
    directory.parent.mkdir(parents=True)
    copy_run(reference.mixed.path, directory)
    with RunStore.open(directory) as store:
        store.put_plan(hostile.plan(str(bait)))
    return directory


def _spoil(chance: random.Random, directory: Path, bait: Path) -> str:
    """Damage a file, or write another word into the plan; returns how, in words."""
    if chance.random() < 0.5:
        with contextlib.suppress(PowercutError, OSError, ValueError, msgspec.MsgspecError):
            return _reword(chance, directory, bait)
    files = sorted(p for p in directory.rglob("*") if p.is_file())
    if not files:
        return "no files"
    file = chance.choice(files)
    return f"{file.relative_to(directory)}: {damage(chance, file, [])}"


def _reword(chance: random.Random, directory: Path, bait: Path) -> str:
    """Change one text of the plan. Of a run, the digest of the plan is made anew: whoever made it could."""
    plan = json.loads((directory / "plan.json").read_bytes())
    word = chance.choice([*_WORDS, str(bait), f"{bait}/x"])
    place = chance.choice(list(_texts(plan)))
    inner = plan
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = word
    if (directory / "run.json").exists():
        with RunStore.open(directory) as store:
            store.put_plan(msgspec.convert(plan, Plan))
    else:
        (directory / "plan.json").write_text(json.dumps(plan))
    return f"plan.json: {'.'.join(map(str, place))} is {word[:40]!r}"


def _texts(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the texts of a JSON value are."""
    if isinstance(value, str):
        return [place]
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, one in inner for found in _texts(one, (*place, key))]


def _contents(folder: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() if p.is_file() else b"" for p in sorted(folder.rglob("*"))}
