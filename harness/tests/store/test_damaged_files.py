"""run.json and plan.json that are not what was written: refused in one line, never read as something else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.errors import StoreError
from harness.model import CrashState, Judgement
from harness.plan import Plan
from harness.store import RunStore
from harness.store.layout import PLAN, RUN
from harness.store.records import CaseInfo, CaseStatus, JudgedState
from harness.tests.budget import budget
from harness.tests.store.samples import CASE, INFO

PLANNED = Plan(configurations=["ext4/ordered"], workloads=["append-fsync"])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of one state."""
    with RunStore.create(tmp_path_factory.mktemp("damaged"), "t", INFO) as store:
        store.put_plan(PLANNED)
        store.add_case(CaseInfo(CASE, generated=1, distinct=1, log_hash="log"))
        store.put_judgements(CASE, [JudgedState(CrashState(0), "0" * 32, Judgement())])
        store.set_case_status(CASE, CaseStatus.DONE)
        store.finish()
        return store.path


@pytest.mark.fuzz
@settings(budget(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from([RUN, PLAN]),
    changes=st.lists(st.tuples(st.integers(0, 4095), st.integers(0, 255)), max_size=3),
    cut=st.one_of(st.none(), st.integers(0, 4095)),
    more=st.binary(max_size=8),
)
def test_a_damaged_file_of_a_run_is_refused_or_says_the_same(
    run: Path, name: str, changes: list[tuple[int, int]], cut: int | None, more: bytes
) -> None:
    """UnicodeDecodeError and RecursionError came out of it, and a plan of another length of the log."""
    with RunStore.open(run) as store:
        truth = (store.info, store.plan())
    whole = (run / name).read_bytes()
    data = bytearray(whole)
    for at, value in changes:
        data[at % len(data)] = value
    (run / name).write_bytes(bytes(data[:cut]) + more)
    try:
        with RunStore.open(run) as store:
            assert (store.info, store.plan()) == truth
    except StoreError as error:
        assert "\n" not in error.what
    finally:
        (run / name).write_bytes(whole)


@pytest.mark.fuzz
@settings(budget(60))
@given(name=st.sampled_from([RUN, PLAN]), text=st.one_of(st.binary(max_size=200), st.just(b"[" * 100_000)))
def test_any_bytes_in_place_of_a_file_of_a_run_are_refused(run: Path, name: str, text: bytes) -> None:
    whole = (run / name).read_bytes()
    (run / name).write_bytes(text)
    try:
        with pytest.raises(StoreError), RunStore.open(run) as store:
            store.plan()
    finally:
        (run / name).write_bytes(whole)
