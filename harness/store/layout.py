"""The paths in a run directory. No other module spells one.

```
reports/latest -> runs/...
reports/runs/.unpacking-*   a packed run that is being unpacked, or what a kill left of it
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
    shrunk/<workload>-<oracle>-<hash12>.toml    the fewest operations that show a finding (`powercut shrink`)
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
UNPACKING = ".unpacking-"
DELETING = ".deleting-"
_SHRUNK = 32
"""Letters of a workload's name in that of a shrunk one, which has the oracle and the finding, too."""


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


class _Below:
    """A path below one of an owner's."""

    def __init__(self, name: str, of: str = "path") -> None:
        self._name, self._of = name, of

    def __get__(self, owner: object, kind: type) -> Path:
        above: Path = getattr(owner, self._of)
        return above / self._name


@dataclass(frozen=True, slots=True)
class CaseLayout:
    """The files of one case's recording, and of recoveries. `own_base`: the base image of a workload that
    needs a larger one than its mode's; else it is not there. `events`: when the log's writes were submitted
    and completed; `said`: what the kernel said while the workload ran; recordings of before have neither.
    `calls`: what a program's calls did, where a mode is only rules, as a guest notes it. `history` is written
    last: it marks the recording as complete.
    """

    base: Path
    folder: Path
    own_base = _Below("own-base.img.zst", "folder")
    log = _Below("log.zst", "folder")
    events = _Below("events.zst", "folder")
    console = _Below("console.txt", "folder")
    calls = _Below("calls.zst", "folder")
    said = _Below("kernel.json", "folder")
    history = _Below("history.json", "folder")

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
    """The paths inside the run directory `path`. `packed`: names the one case whose recording was packed;
    else it is not there. `recovery_code`: which lines of recovery ran. `hits`: in which guests note what they
    run, sparse; `recording_hits`: the same of guests that record.
    """

    path: Path
    database = _Below(DATABASE)
    lock = _Below(LOCK)
    cases = _Below("cases")
    findings = _Below("findings")
    scratch = _Below(SCRATCH)
    packed = _Below(PACKED)
    recovery_code = _Below("recovery-code.json")
    hits = _Below("recovery-code.hits")
    recording_hits = _Below("recording-code.hits")

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

    def module(self, name: str) -> Path:
        """The copy of a module file that replaced the kernel's own."""
        return self.path / "modules" / name

    def finding(self, finding: str) -> Path:
        return self.findings / finding

    def explanation(self, finding: str) -> Path:
        return self.path / "explained" / f"{finding}.json"

    def shrunk(self, workload: str, oracle: str, finding: str) -> Path:
        """The file with the fewest operations of a workload that still show the finding with this id. It is
        named as a workload may be: of a long name, by its beginning.
        """
        return self.path / "shrunk" / f"{workload[:_SHRUNK]}-{oracle}-{finding}.toml"

    def strip(self, finding: str) -> Path:
        """The file that says which kernels have the finding with this id."""
        return self.path / "strips" / f"{finding}.json"
