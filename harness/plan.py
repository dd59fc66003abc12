"""What a run is asked to do, as data."""

from __future__ import annotations

import msgspec

from harness.cases.examine import SAMPLE_RATE
from harness.errors import StoreError
from harness.guests.worker import LOG_BYTES
from harness.store import RunStore


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the user asked for, as words; kept as plan.json, so that a run can be resumed."""

    configurations: list[str]
    workloads: list[str]
    kernel: str = "debian-6.12"
    modules: str | None = None
    replaced: list[str] = []
    # auto: the default machine records, and judges unless a faster one has a kernel of the same source
    machine: str = "auto"
    accel: str = "auto"
    jobs: int = 1
    fault_models: tuple[str, ...] = ("prefix",)
    memo: bool = True
    sample_rate: float = SAMPLE_RATE
    recordings: str | None = None  # a run whose recordings are judged again instead of making new ones
    log_bytes: int = LOG_BYTES
    require_all: bool = False  # what this host or kernel lacks for a case ends in an exit code of its own
    shard: str = ""  # 2/5: the second of five parts of the workloads
    argv: list[str] = []


def load_plan(store: RunStore) -> Plan:
    """The plan of a run that is to be resumed. Raises StoreError where it is of another version."""
    path = store.path / "plan.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Plan)
    except (OSError, msgspec.MsgspecError) as e:
        raise StoreError(f"{path} is no plan of this version: {e}", "start a new run") from e
