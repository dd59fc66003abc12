"""`python -m harness.tests.chaos`: see `--help`."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from harness.tests.chaos.lanes import ATTACKS, Order, Result, gist, run_lanes, run_trial
from harness.tests.chaos.reference import make_reference
from harness.tests.chaos.trial import Defect

ON_UML = ("--machine", "uml")
IN_QEMU = ("--machine", "qemu")
SHOWN = 40  # distinct defects


def main(arguments: list[str] | None = None) -> int:
    """Exit code: 0 no defect, 1 defects found, 3 the undisturbed runs failed."""
    asked = _parse(arguments)
    seed = asked.seed if asked.seed is not None else int(time.time())
    directory = Path(asked.directory or tempfile.mkdtemp(prefix="chaos-")).resolve()
    begun = time.monotonic()
    say = _speaker(begun)
    say(f"seed {seed}, in {directory}; undisturbed runs first")
    kernel = ("--kernel", asked.kernel) if asked.kernel else ()
    reference = directory / "reference"
    if not (reference / "mixed_wal").exists():
        shutil.rmtree(reference, ignore_errors=True)
        make_reference(reference, (*ON_UML, *kernel))
    emulated = () if asked.no_emulation else (*IN_QEMU, *kernel)
    order = Order(
        directory,
        reference,
        (*ON_UML, *kernel),
        emulated,
        seed,
        begun + asked.minutes * 60,
        tuple(asked.only),
        asked.plant,
    )
    if asked.trial:
        return _one(order, *asked.trial.split("/"))
    result = run_lanes(order, say)
    seconds = time.monotonic() - begun
    print(table(result, seed, seconds))
    if asked.json:
        Path(asked.json).write_text(json.dumps(as_json(result, seed, seconds), indent=1) + "\n")
    return _tell_defects(result, directory, seed, keep=bool(asked.directory))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos", description="Attack the harness; see harness/tests/chaos.")
    parser.add_argument("--minutes", type=float, default=20, help="how long, undisturbed runs included (20)")
    parser.add_argument("--seed", type=int, help="seed of all random choices (default: the time)")
    parser.add_argument(
        "--only", action="append", default=[], choices=list(ATTACKS), help="this attack; repeatable"
    )
    parser.add_argument(
        "--trial", metavar="ATTACK/N", help="repeat one trial of --seed, and keep its directory"
    )
    parser.add_argument("--directory", help="working directory; trials with defects are kept there")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    parser.add_argument("--kernel", help="as for powercut run")
    parser.add_argument("--no-emulation", action="store_true", help="no trials in QEMU")
    parser.add_argument("--plant", default="", help="plant this defect of plants.py, which must be found")
    return parser.parse_args(arguments)


def _one(order: Order, attack: str, number: str) -> int:
    trial = run_trial(order, attack, int(number))
    for what, count in sorted(trial.figures.items()):
        print(f"{count:6} {what}")
    for defect in trial.defects:
        print(f"DEFECT {defect.kind}: {defect.what}")
    print(f"kept: {trial.directory}")
    return 1 if trial.defects else 0


def _speaker(begun: float) -> Callable[[str], None]:
    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:5.0f} s  {text}", flush=True)

    return say


def table(result: Result, seed: int, seconds: float) -> str:
    """The figures as text."""
    kinds = Counter(defect.kind for _, defect, _ in result.defects)
    kills = sum(n for what, n in result.figures.items() if what.startswith("SIGKILL"))
    lines = [f"chaos, seed {seed}, {seconds / 60:.1f} minutes", ""]
    lines += [f"{n:8,}  {what}" for what, n in [("SIGKILLs", kills), *sorted(result.figures.items())]]
    lines += [f"{seconds_:7.1f} s  slowest {what}" for what, seconds_ in sorted(result.slowest.items())]
    lines += [f"not tried  {attack}: {why}" for attack, why in result.not_tried.items()]
    always = ("false green", "false red", "traceback", "hang", "left behind")
    lines += ["", *(f"{kinds[kind]:8,}  {kind}" for kind in [*always, *sorted(kinds.keys() - set(always))])]
    return "\n".join(lines)


def as_json(result: Result, seed: int, seconds: float) -> dict[str, object]:
    """The figures as JSON values."""
    defects = [{"trial": t, "kind": d.kind, "what": d.what, "kept": kept} for t, d, kept in result.defects]
    return {
        "seed": seed,
        "seconds": round(seconds, 1),
        "figures": dict(sorted(result.figures.items())),
        "slowest_s": result.slowest,
        "not_tried": result.not_tried,
        "defects": defects,
    }


def _tell_defects(result: Result, directory: Path, seed: int, *, keep: bool) -> int:
    if not result.defects:
        print("no defects")
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)
        return 0
    alike: dict[tuple[str, str], list[tuple[str, Defect, str]]] = {}
    for found in result.defects:
        alike.setdefault((found[1].kind, gist(found[1].what)), []).append(found)
    print(f"\n{len(result.defects)} defects, {len(alike)} distinct:")
    for group in sorted(alike.values(), key=len, reverse=True)[:SHOWN]:
        trial, defect, kept = group[0]
        print(f"{len(group):5} x {defect.kind}: {defect.what}")
        print(f"        kept: {kept or 'no'}; repeat: {repeat_line(seed, trial, directory)}")
    return 1


def repeat_line(seed: int, trial: str, directory: Path) -> str:
    """The command that repeats a trial on the same runs."""
    return f"python -m harness.tests.chaos --seed {seed} --trial {trial} --directory {directory}"


if __name__ == "__main__":
    sys.exit(main())
