"""`python -m harness.tests.mutants`: see `--help`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.tests.mutants.catalogue import Mutant, catalogue
from harness.tests.mutants.trials import Fate, Result, Trees, try_all, unmodified

ROOT = Path(__file__).resolve().parents[3]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 if every mutant was killed, 1 if not, 3 if the tests fail without any."""
    asked = _parse(arguments)
    mutants = catalogue(Path(asked.catalogue), asked.only) if asked.catalogue else catalogue(only=asked.only)
    if not mutants:
        print(f"no mutant or part is called {' or '.join(asked.only)}; see --list")
        return 1
    if asked.list:
        print("\n".join(f"{m.part:12} {m.name}: {m.why}" for m in mutants))
        return 0
    root = Path(asked.root).resolve()
    trees = Trees(root, Path(asked.directory or root / "target" / "mutants").resolve(), asked.jobs)
    trees.make()
    if failing := unmodified(trees, [m.tests for m in mutants], asked.jobs):
        print("\n".join(f"fails without any mutant: {why}" for why in failing))
        return 3
    print(f"{len(mutants)} mutants; their tests pass without them", flush=True)
    results = try_all(trees, mutants, asked.jobs, lambda result: print(line(result), flush=True))
    print(told(results))
    return 0 if all(r.fate is Fate.KILLED for r in results) else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="mutants", description="Plant defects in the harness, and see which test notices."
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these mutants or parts alone")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (2)")
    parser.add_argument("--list", action="store_true", help="list them, and end")
    parser.add_argument("--directory", help="where the copies go (target/mutants)")
    parser.add_argument("--root", default=ROOT, help="the checkout (this one)")
    parser.add_argument("--catalogue", help="the folder with the files of mutants (this one)")
    return parser.parse_args(arguments)


def line(result: Result) -> str:
    """One row of the table."""
    mutant = result.mutant
    return f"{result.fate.value:8} {mutant.part:12} {mutant.name:44} {result.seconds:4.0f} s  {result.by}"


def told(results: Sequence[Result]) -> str:
    """The sum, and what has to be done."""
    counts = {fate: [r for r in results if r.fate is fate] for fate in Fate}
    lines = ["", ", ".join(f"{len(of_it)} {fate.value}" for fate, of_it in counts.items() if of_it)]
    advice = {
        Fate.SURVIVED: "write the test that misses it",
        Fate.STALE: "the code has changed: give it the words of today",
        Fate.BROKEN: "it stops the tests from running: plant something smaller",
    }
    for fate, what in advice.items():
        lines += [f"{fate.value}: {_about(r.mutant)}: {what}" for r in counts[fate]]
    return "\n".join(lines)


def _about(mutant: Mutant) -> str:
    return f"{mutant.name} ({mutant.why})"


if __name__ == "__main__":
    sys.exit(main())
