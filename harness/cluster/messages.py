"""What travels between a run and its workers: structs, which Dask pickles. Only a worker with the same source
as the run gets any of them.
"""

from __future__ import annotations

import msgspec

from harness.errors import PowercutError
from harness.model import CaseId, Workload
from harness.plan import Plan
from harness.store.records import CaseRows


class SentSpec(msgspec.Struct, frozen=True):
    """A `GuestSpec` by its contents: the machine with its accelerator, and hashes of kernel and initramfs."""

    machine: str
    accel: str
    kernel: str
    initramfs: str
    memory_mib: int = 0


class Requirements(msgspec.Struct, frozen=True):
    """What a worker must have for the cases of a run: the same for all of them.

    `run`: the name of the run, with a random part. `judge`: None where the recorder judges as well. `bases`:
    the packed base image of each mode, by the mode's name. `variables`: the built parts, by the environment
    variable that names each. All of these are hashes of `blobs`, which says where the run has each, for
    workers that share a file system with it. `pins`: those of the run (`harness.cases.pins`).
    """

    run: str
    plan: Plan
    recorder: SentSpec
    judge: SentSpec | None
    bases: dict[str, str]
    variables: dict[str, str]
    blobs: dict[str, str]
    pins: dict[str, str]


class Payload(msgspec.Struct, frozen=True):
    """What is known of a case: its rows, and packed files by name, of its recording and of recoveries."""

    rows: CaseRows | None = None
    files: dict[str, bytes] = {}


class Job(msgspec.Struct, frozen=True):
    """One case, to be recorded and decided. `workload`: the name of a generated one, else all of it.
    `payload`: what is known already; `files`: hashes that its recording must have. `all_logs`: send the
    recording back whatever comes of it.
    """

    run: str
    number: int
    case: CaseId
    workload: str | Workload
    payload: Payload = Payload()
    files: dict[str, str] = {}
    all_logs: bool = False


class Note(msgspec.Struct, frozen=True):
    """How far a job is, in all, and what it has to say. `Progress` has the words."""

    number: int
    said: str = ""
    begun: dict[str, int] = {}
    advanced: dict[str, int] = {}


class Done(msgspec.Struct, frozen=True):
    """A job that came to its end, and its last note."""

    payload: Payload
    note: Note


class Identity(msgspec.Struct, frozen=True):
    """Who a worker is. `place`: the same for all processes that share a cache of blobs. `process`: another
    one once it was started anew.
    """

    powercut: str
    source: str
    place: str
    process: str


class ClusterWorker(msgspec.Struct, frozen=True):
    """A worker as its scheduler knows it. `name`: for people. `slots`: how many cases it takes at once."""

    address: str
    name: str
    slots: int


class NotFitted(PowercutError):
    """The worker's process has no requirements of this run: it was started anew, or gave them up."""


class BusyWithAnotherRun(PowercutError):
    """The worker works for another run."""


class HostFull(PowercutError):
    """The disk of the run's own host is full: no shard can go on, nor can the run."""


class Unfit(PowercutError):
    """The worker cannot do this run's work: what it lacks, or what differs."""
