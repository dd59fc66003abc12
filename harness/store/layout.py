"""The paths in a run directory. No other module spells one.

```
reports/latest -> runs/...
reports/runs/<date>-<name>/
    run.json                what was run, on what, by which version
    plan.json               what was asked for
    powercut.sqlite         cases, states, violations, evidence
    lock                    who is writing to it
    cases/<fs>-<mode>/base.img.zst
    cases/<fs>-<mode>/<workload>/log.zst, events.zst, console.txt, kernel.json, history.json, own-base.img.zst
    cases/any-<mode>/<workload>/calls.zst   what a program's calls did, where a mode is only rules
    cases/<fs>-<mode>/<workload>/recoveries/<hash16>.zst    what recoveries wrote that were cut, with findings
    modules/NAME.ko         those that replaced the kernel's own, as they were
    findings/<hash12>/      written by `harness.report`, like the reports
    explained/<hash12>.json why a finding failed (`harness.report.explanation`)
    shrunk/<workload>-<oracle>.toml     the fewest operations that show a finding (`powercut shrink`)
    strips/<hash12>.json    the kernels on which a finding was looked for again (`harness.report.strip`)
    recovery-code.json      which lines of recovery ran (`powercut run --coverage`); coverage.html: its page
    recovery-code.hits      the same as the guests note it: `harness.kernels.instrumented`
    recording-code.hits     the same of guests that record
    packed                  of a package with the recording of one case alone: which
    scratch/                uncompressed images, during the run
```
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from harness.host.trees import need_plain
from harness.model import CaseId, CrashState

RUN = "run.json"
PLAN = "plan.json"
DATABASE = "powercut.sqlite"
LOCK = "lock"
SCRATCH = "scratch"
PACKED = "packed"


def runs(reports: Path) -> Path:
    return reports / "runs"


def need_plain_run(path: Path) -> None:
    """Raises StoreError for a directory of ours (a run, or what holds runs) with symbolic links in it."""
    need_plain(path, _is_scratch)


def _is_scratch(path: Path) -> bool:
    """What a run deletes before it looks into it: a run that is at work has sockets there."""
    return path.name == SCRATCH and (path.parent / RUN).is_file()


def latest(reports: Path) -> Path:
    """The link to the run started last."""
    return reports / "latest"


@dataclass(frozen=True, slots=True)
class CaseLayout:
    """The files of one case's recording, and of recoveries. `history` is written last: it marks the recording
    as complete.
    """

    base: Path
    folder: Path

    @property
    def own_base(self) -> Path:
        """The base image of a workload that needs a larger one than its mode's; else it is not there."""
        return self.folder / "own-base.img.zst"

    @property
    def log(self) -> Path:
        return self.folder / "log.zst"

    @property
    def events(self) -> Path:
        """When the log's writes were submitted and completed. Recordings of before have none."""
        return self.folder / "events.zst"

    @property
    def console(self) -> Path:
        return self.folder / "console.txt"

    @property
    def calls(self) -> Path:
        """What a program's calls did, where a mode is only rules: as a guest notes it."""
        return self.folder / "calls.zst"

    @property
    def said(self) -> Path:
        """What the kernel said while the workload ran. Recordings of before have none."""
        return self.folder / "kernel.json"

    @property
    def history(self) -> Path:
        return self.folder / "history.json"

    def recovery(self, state: CrashState) -> Path:
        """What the recovery of a state wrote, where something was found in a cut of that."""
        name = hashlib.blake2b(str(state).encode(), digest_size=8).hexdigest()
        return self.folder / "recoveries" / f"{name}.zst"

    @property
    def files(self) -> tuple[Path, ...]:
        """All files except the base image that the workloads of a mode share; the history last."""
        return (self.own_base, self.log, self.events, self.console, self.said, self.history)


@dataclass(frozen=True, slots=True)
class RunLayout:
    """The paths inside the run directory `path`."""

    path: Path

    @property
    def database(self) -> Path:
        return self.path / DATABASE

    @property
    def lock(self) -> Path:
        return self.path / LOCK

    @property
    def cases(self) -> Path:
        return self.path / "cases"

    @property
    def findings(self) -> Path:
        return self.path / "findings"

    @property
    def scratch(self) -> Path:
        return self.path / SCRATCH

    def base(self, filesystem: str, mode: str) -> Path:
        """The compressed base image, shared by all workloads of a mode."""
        return self.cases / f"{filesystem}-{mode}" / "base.img.zst"

    def recordings(self, filesystem: str, mode: str) -> list[Path]:
        """The directories of the complete recordings of a mode."""
        return sorted(p.parent for p in self.base(filesystem, mode).parent.glob("*/history.json"))

    def case(self, case: CaseId) -> CaseLayout:
        base = self.base(case.filesystem, case.mode)
        shared = CaseLayout(base, base.parent / case.workload)
        return replace(shared, base=shared.own_base) if shared.own_base.exists() else shared

    @property
    def packed(self) -> Path:
        """Names the one case whose recording was packed; else it is not there."""
        return self.path / PACKED

    @property
    def recovery_code(self) -> Path:
        """Which lines of recovery ran."""
        return self.path / "recovery-code.json"

    @property
    def hits(self) -> Path:
        """The file in which guests note what they run; sparse."""
        return self.path / "recovery-code.hits"

    @property
    def recording_hits(self) -> Path:
        """The same of guests that record."""
        return self.path / "recording-code.hits"

    def module(self, name: str) -> Path:
        """The copy of a module file that replaced the kernel's own."""
        return self.path / "modules" / name

    def finding(self, finding: str) -> Path:
        return self.findings / finding

    def explanation(self, finding: str) -> Path:
        return self.path / "explained" / f"{finding}.json"

    def shrunk(self, workload: str, oracle: str) -> Path:
        """The file with the fewest operations of a workload that still break this oracle's promise."""
        return self.path / "shrunk" / f"{workload}-{oracle}.toml"

    def strip(self, finding: str) -> Path:
        """The file that says which kernels have the finding with this id."""
        return self.path / "strips" / f"{finding}.json"
