"""`python -m harness.tests.quick`: the tests that a change reaches (`make quick`). See `--help`.

A test file is reached if it imports a changed module itself, or if it is in the room of tests of a changed
file. Modules far above a changed one are not followed: nearly every test would be. `make quick` is the loop
while one works; `make test` is the proof.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from harness.tests.test_arrows import PACKAGE, imported, module_of

ROOT = PACKAGE.parent
# Laws over the whole tree: where a file may lie, what it may import.
ALWAYS = ("harness/tests/test_arrows.py",)
DOCUMENTS = "harness/tests/test_documents.py"
# Data, and the room of tests that reads it.
DATA = {
    "kernels": ("kernels", "faults", "regressions"),
    "reports": ("findings", "report"),
    "vms/ci": ("cli",),
    "vms/disks": ("filesystems",),
    "vms/filesystems": ("filesystems", "model"),
    "vms/layers": ("filesystems",),
    "vms/machines": ("guests",),
    "vms/stacks": ("filesystems",),
    "workloads": ("workloads", "litmus"),
}
CRATES = ("agent", "disk", "protocol", "readtrace", "umlshim")
# Rooms on the way of every crash state: a change there is also tried on one real guest.
ON_THE_WAY = (
    "cases",
    "filesystems",
    "guests",
    "model",
    "oracles",
    "states",
    "store",
    "workloads",
    "writelog",
)


class Choice:
    """What a change reaches: test files (relative to the checkout), crates, and whether to boot a guest."""

    def __init__(self, changed: Iterable[str], root: Path = ROOT) -> None:
        self.files: set[str] = set(ALWAYS)
        self.crates: set[str] = set()
        self.guest = False
        self._root = root
        self._imports = _imports_of_tests(root)
        for path in changed:
            self._add(path)

    def _add(self, path: str) -> None:
        parts = Path(path).parts
        if path.endswith(".md") or parts[0] == "docs":
            self.files.add(DOCUMENTS)
        elif parts[:2] == ("harness", "tests"):
            self._add_test(path)
        elif parts[0] == "harness" and path.endswith(".py"):
            self._add_module(path)
        elif parts[0] == "vms" and len(parts) > 2 and parts[1] in CRATES:
            self.crates.add(f"powercut-{parts[1]}")
            self._room("guests")
            self.guest = True
        else:
            for folder, rooms in DATA.items():
                if path.startswith(f"{folder}/"):
                    for room in rooms:
                        self._room(room)

    def _add_test(self, path: str) -> None:
        """A test file is run; a part that tests share brings those that import it."""
        if Path(path).name.startswith("test_") and (self._root / path).exists():
            self.files.add(path)
        elif path.endswith(".py"):
            self._importing(module_of(PACKAGE / Path(path).relative_to("harness")))

    def _add_module(self, path: str) -> None:
        parts = Path(path).parts
        room = parts[1].removesuffix(".py")
        self._room("cli" if room == "__main__" else room)
        self._importing(module_of(PACKAGE / Path(path).relative_to("harness")))
        self.guest |= room in ON_THE_WAY

    def _room(self, room: str) -> None:
        tests = self._root / "harness" / "tests"
        found = [*(tests / room).rglob("test_*.py"), *tests.glob(f"test_{room}.py")]
        self.files |= {str(p.relative_to(self._root)) for p in found}

    def _importing(self, module: str) -> None:
        self.files |= {test for test, modules in self._imports.items() if module in modules}


@cache
def _imports_of_tests(root: Path) -> dict[str, set[str]]:
    """Of each test file without a guest: the modules that it imports itself."""
    package = root / "harness"
    known = {
        ".".join(p.relative_to(package).with_suffix("").parts).removesuffix(".__init__"): p
        for p in package.rglob("*.py")
    }
    tests = [p for p in (package / "tests").rglob("test_*.py") if "vm" not in p.relative_to(package).parts]
    return {str(p.relative_to(root)): set(imported(p, known)) for p in tests}


def changed_files(base: str, root: Path = ROOT) -> list[str]:
    """Paths that differ from `base`, those that git does not track among them. Raises CalledProcessError."""
    git = ["git", "-C", str(root)]
    differing = subprocess.run(
        [*git, "diff", "--name-only", base], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    new = subprocess.run(
        [*git, "ls-files", "--others", "--exclude-standard"], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    return sorted({*differing, *new})


def commands(choice: Choice, jobs: int) -> list[list[str]]:
    """The commands to run, in order: crates, tests without a guest, one mode and workload on a real guest."""
    found = [["cargo", "test", "-q", "--locked", "--release", "-p", crate] for crate in sorted(choice.crates)]
    python = sys.executable
    parallel = ["-n", str(jobs), "--dist", "loadfile"] if len(choice.files) > 4 else ["-n", "0"]
    found.append(
        [python, "-m", "pytest", "-q", "-m", "not vm and not nightly", *parallel, *sorted(choice.files)]
    )
    if choice.guest:
        found.append([python, "-m", "harness", "smoke"])
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: that of the first command that fails, or 0."""
    parser = argparse.ArgumentParser(prog="quick", description="Run the tests that a change reaches.")
    parser.add_argument(
        "--base", default="HEAD", help="what counts as changed is all since this commit (HEAD)"
    )
    parser.add_argument("--jobs", type=int, default=2, help="pytest's processes (2)")
    parser.add_argument("--list", action="store_true", help="print the commands, and run nothing")
    asked = parser.parse_args(arguments)
    changed = changed_files(asked.base)
    if not changed:
        print(f"nothing differs from {asked.base}; name an earlier commit: make quick BASE=HEAD~1")
        return 0
    choice = Choice(changed)
    print(f"{len(changed)} changed files reach {len(choice.files)} test files", flush=True)
    for command in commands(choice, asked.jobs):
        if asked.list:
            print(" ".join(command))
        elif code := subprocess.run(command, cwd=ROOT, check=False).returncode:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
