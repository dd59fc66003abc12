"""Damages bits, bytes, lengths and files of a finished run directory, then runs everything that reads it."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from click.testing import CliRunner

from harness.cli import main
from harness.errors import PowercutError
from harness.tests.chaos.command import Ended, clear, end_processes, look_for_leftovers, resume_line, start
from harness.tests.chaos.reference import Reference, Specimen, copy_run
from harness.tests.chaos.trial import Trial
from harness.tests.chaos.verdicts import Said, said, wrong, wrong_code, wrong_words

DATABASE = "powercut.sqlite"
_PRECIOUS = 0.35  # of the trials damage the database, which has most to lose
FLIPS = 250  # single bytes of the database, per trial of `flips`


def run_damage(trial: Trial, reference: Reference, plant: str = "") -> None:
    """Damage one file in a copy of a run directory: every reader must give the same result, or refuse."""
    specimen = trial.random.choice(list(reference.specimens.values()))
    run = trial.directory / "run"
    copy_run(specimen.path, run)
    file = _file(trial.random, run)
    how = damage(trial.random, file, _same_kind(file, run, reference))
    (trial.directory / "damage.txt").write_text(f"{specimen.name}: {file.relative_to(run)}: {how}\n")
    trial.figures["damaged files"] += 1
    trial.figures[f"damaged {_kind(file)}"] += 1
    _Reader(trial, reference, specimen, run, plant).ask()
    if trial.defects:
        what = f"{specimen.name}/{file.relative_to(run)}: {how}"
        trial.defects[:] = [type(d)(d.kind, f"{d.what} [{what}]") for d in trial.defects]


def _file(chance: random.Random, run: Path) -> Path:
    """Choose the kind of file first: there are more findings than databases."""
    files = sorted(p for p in run.rglob("*") if p.is_file() and not p.is_symlink())
    precious = [p for p in files if p.name.startswith(DATABASE)]
    if chance.random() < _PRECIOUS:
        return chance.choice(precious)
    kinds = sorted({_kind(p) for p in files})
    wanted = chance.choice(kinds)
    return chance.choice([p for p in files if _kind(p) == wanted])


def _kind(file: Path) -> str:
    return file.name


def _same_kind(file: Path, run: Path, reference: Reference) -> list[Path]:
    """Files of the same name from other cases and runs. The whole database of another run is not damage."""
    if file.name.startswith(DATABASE):
        return []
    others = [p for s in reference.specimens.values() for p in s.path.rglob(file.name) if p.is_file()]
    mine = [p for p in run.rglob(file.name) if p != file]
    return [p for p in [*mine, *others] if p.read_bytes() != file.read_bytes()]


def damage(chance: random.Random, file: Path, others: Sequence[Path]) -> str:
    """Damage the file; returns how, in words. The file is replaced, so that other links to it stay intact."""
    data = bytearray(file.read_bytes())
    file.unlink()
    kinds = ["bit", "byte", "cut", "gone", "hole", "stuffed", "swapped"]
    how = chance.choices(kinds, [45, 20, 12, 7, 6, 5, 5])[0]
    if how == "gone":
        return "deleted"
    if how == "swapped" and others:
        other = chance.choice(others)
        file.write_bytes(other.read_bytes())
        return f"replaced by {'/'.join(other.parts[-4:])}"
    at = chance.randrange(len(data)) if data else 0
    told = _change(chance, data, how, at)
    file.write_bytes(data)
    return told


def _change(chance: random.Random, data: bytearray, how: str, at: int) -> str:
    if not data or how == "stuffed":
        data[at:at] = chance.randbytes(chance.randint(1, 64))
        return f"bytes put in at {at}"
    if how == "cut":
        del data[at:]
        return f"cut off at byte {at}"
    if how == "hole":
        length = min(chance.choice([16, 512, 4096]), len(data) - at)
        data[at : at + length] = bytes(length)
        return f"{length} zeros at byte {at}"
    if how == "byte":
        data[at] ^= chance.randint(1, 255)
        return f"byte {at} is now {data[at]:#04x}"
    bit = chance.randrange(8)
    data[at] ^= 1 << bit
    return f"bit {bit} of byte {at}"


class _Reader:
    """Runs everything that reads a run directory on a damaged one."""

    def __init__(self, trial: Trial, reference: Reference, specimen: Specimen, run: Path, plant: str) -> None:
        self._trial = trial
        self._reference = reference
        self._specimen = specimen
        self._run = run
        self._plant = plant

    def ask(self) -> None:
        chance = self._trial.random
        tempfile.tempdir = str(self._trial.temporary)
        now = self._read()
        match chance.choices(["report", "compare", "list"], [35, 40, 25])[0]:
            case "report":
                self._command(["report", self._run], self._specimen.code)
            case "compare":
                self._compare(now)
            case _:
                self._command(["list", "runs", "--out", self._runs_above()], None)
        more: list[tuple[float, Callable[[], None]]] = [
            (0.03, self._fresh_report),
            (0.02, self._repro),
            (0.02, self._recordings),
            (0.03, self._resume),  # last: it may decide what was open
        ]
        for share, asked in more:
            if chance.random() < share and self._reference.guests:
                asked()
        look_for_leftovers_of_files(self._trial)

    def _runs_above(self) -> Path:
        """A reports directory whose `runs` contains the damaged run."""
        above = self._trial.directory / "above"
        above.mkdir()
        (above / "runs").symlink_to(self._trial.directory)
        return above

    def _read(self) -> Said | None:
        try:
            now = said(self._run)
        except PowercutError:
            self._trial.figures["refused"] += 1
            return None
        except Exception as e:  # whatever is no error of ours would be a traceback
            self._trial.tell("traceback", f"{type(e).__name__}: {e}")
            return None
        self._trial.defects += wrong(self._specimen.now, now)
        self._trial.figures["read"] += 1
        return now

    def _command(self, line: Sequence[object], right: int | None) -> int:
        """In this process."""
        self._trial.figures["commands"] += 1
        result = CliRunner().invoke(main, [str(a) for a in line])
        self._words(str(line[0]), result.output)
        if right is not None and (defect := wrong_code(right, result.exit_code)):
            self._trial.tell(defect.kind, f"{line[0]}: {defect.what}")
        return result.exit_code

    def _words(self, command: str, output: str) -> None:
        if (defect := wrong_words(output)) is not None:
            self._trial.tell(defect.kind, f"{command}: {defect.what}")

    def _compare(self, now: Said | None) -> None:
        pair = [self._specimen.path, self._run]
        if (self._specimen.path / f"{DATABASE}-wal").exists():
            pair[0] = self._reference.mixed.path
        code = self._command(["compare", *pair], None)
        if code == 0 and now is not None and now.states != self._specimen.now.states:
            self._trial.tell("false green", "compare: 0 differences between runs whose states differ")

    # with guests, or a new interpreter

    def _started(self, line: Sequence[object], *, fresh: bool = False) -> Ended | None:
        self._trial.figures["command lines"] += 1
        running = start(self._trial, line, fresh=fresh, plant=self._plant)
        ended = running.wait()
        if ended is None:
            self._trial.tell("hang", f"{line[0]} did not end")
            end_processes(self._trial)
            running.wait()
            return None
        self._words(str(line[0]), ended.output)
        look_for_leftovers(self._trial)
        return ended

    def _fresh_report(self) -> None:
        ended = self._started(["report", self._run], fresh=True)
        if ended and (defect := wrong_code(self._specimen.code, ended.code)):
            self._trial.tell(defect.kind, f"report: {defect.what}")

    def _resume(self) -> None:
        """A resume may decide what was undecided; it must not change what was decided."""
        ended = self._started(resume_line(self._run))
        right = self._reference.green.code if self._specimen.name == "open" else self._specimen.code
        if ended and (defect := wrong_code(right, ended.code)):
            self._trial.tell(defect.kind, f"run --resume: {defect.what}")
        self._check_against_truth("run --resume", self._run)

    def _recordings(self) -> None:
        out = self._trial.directory / "again"
        mixed = "mixed" in self._specimen.name
        what = ["-c", "ext4/nobarrier" if mixed else "ext4/ordered", "-w", "append-fsync"]
        line = ["run", *what, *self._reference.options, "--recordings", self._run, "--out", out]
        ended = self._started(line)
        if ended and (defect := wrong_code(1 if mixed else 0, ended.code)):
            self._trial.tell(defect.kind, f"run --recordings: {defect.what}")

    def _repro(self) -> None:
        verdict = self._trial.random.choice(["pass", "fail"])
        points = self._reference.points(self._specimen, verdict)
        if not points:
            return
        ended = self._started(["repro", self._trial.random.choice(points), "--from", self._run])
        if ended and (defect := wrong_code({"pass": 0, "fail": 1}[verdict], ended.code)):
            self._trial.tell(defect.kind, f"repro: {defect.what}")

    def _check_against_truth(self, command: str, run: Path) -> None:
        try:
            now = said(run)
        except PowercutError:
            return
        except Exception as e:  # whatever is no error of ours would be a traceback
            self._trial.tell("traceback", f"{command}: {type(e).__name__}: {e}")
            return
        for defect in wrong(self._specimen.truth, now):
            self._trial.tell(defect.kind, f"{command}: {defect.what}")


def look_for_leftovers_of_files(trial: Trial) -> None:
    """The cheap part of `look_for_leftovers`, for commands run in this process."""
    left = sorted(p.name for p in trial.temporary.iterdir())
    if left:
        trial.tell("left behind", f"{len(left)} in the temporary folder, e.g. {left[0]}")
    clear(trial.temporary)


def run_flips(trial: Trial, reference: Reference, plant: str = "", count: int = FLIPS) -> None:
    """Change single bytes of the database and read it as the reports do: the verdict must never change."""
    specimen = reference.specimens[trial.random.choice(["mixed", "green", "open", "open"])]
    run = trial.directory / "run"
    copy_run(specimen.path, run)
    whole = (run / DATABASE).read_bytes()
    for _ in range(count):
        at, change = trial.random.randrange(len(whole)), trial.random.randint(1, 255)
        for file in run.glob(f"{DATABASE}*"):
            file.unlink()
        (run / DATABASE).write_bytes(whole[:at] + bytes([whole[at] ^ change]) + whole[at + 1 :])
        _read_flipped(trial, specimen, run, f"byte {at} xor {change:#04x}")


def _read_flipped(trial: Trial, specimen: Specimen, run: Path, how: str) -> None:
    trial.figures["flipped bytes"] += 1
    try:
        now = said(run)
    except PowercutError:
        trial.figures["flips refused"] += 1
        return
    except Exception as e:  # whatever is no error of ours would be a traceback
        trial.tell("traceback", f"{type(e).__name__}: {e} [{specimen.name}: {how}]")
        return
    for defect in wrong(specimen.now, now):
        trial.tell(defect.kind, f"{defect.what} [{specimen.name}: {how}]")
