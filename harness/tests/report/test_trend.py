"""The verdicts of the runs before."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harness.model import CaseId
from harness.report.html import report_html
from harness.report.results import results_json
from harness.report.trend import READ_MAX, RESULTS, SHOWN, trends
from harness.summary import CaseVerdict, summarise
from harness.tests.report.demo import demo_run

CASE = CaseId("ext4", "ordered", "w")
NOW = datetime(2026, 11, 22, tzinfo=UTC)
DEEP = '{"x":' + "[" * 100_000


def put(folder: Path, days_ago: int, verdict: str = "pass", workload: str = "w") -> None:
    run = folder / f"{NOW - timedelta(days=days_ago):%Y%m%d}-r"
    run.mkdir(parents=True, exist_ok=True)
    case = {"filesystem": "ext4", "mode": "ordered", "workload": workload, "verdict": verdict}
    started = (NOW - timedelta(days=days_ago)).isoformat()
    kernel = {"name": "debian-6.12", "release": "6.12.1"}
    (run / RESULTS).write_text(
        json.dumps({"started": started, "kernel": kernel, "cases": [{**case, "states": {"checked": 58}}]})
    )


def seen(folder: Path) -> list[str]:
    return [past.verdict.value for past in trends(folder / "20261122-r", NOW, [CASE]).get(CASE, ())]


def test_the_last_ten_verdicts_of_a_case_are_known_oldest_first(tmp_path: Path) -> None:
    """Whether a red case had been red yesterday took opening yesterday's page."""
    for days in range(1, SHOWN + 5):
        put(tmp_path, days, "fail" if days == 2 else "pass")
    put(tmp_path, 0, "fail")
    put(tmp_path, -1, "fail")
    assert seen(tmp_path) == ["pass"] * (SHOWN - 3) + ["fail", "pass"]
    past = trends(tmp_path / "20261122-r", NOW, [CASE])[CASE][-1]
    assert past.words == "20261121-r, 6.12.1, 58 states"


def test_a_case_that_no_other_run_had_has_no_trend(tmp_path: Path) -> None:
    put(tmp_path, 1, workload="other")
    assert not trends(tmp_path / "20261122-r", NOW, [CASE])


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"cases": 3}', "\udcff", '{"started": "x", "kernel": {}, "cases": []}', DEEP],
)
def test_what_cannot_be_read_is_left_out(tmp_path: Path, text: str) -> None:
    put(tmp_path, 1)
    put(tmp_path, 2, "fail")
    file = next(tmp_path.glob(f"*1121*/{RESULTS}"))
    file.write_bytes(text.encode(errors="surrogateescape"))
    assert seen(tmp_path) == ["fail"]


def test_a_packed_run_that_was_unpacked_beside_itself_counts_once(tmp_path: Path) -> None:
    put(tmp_path, 1)
    (file,) = tmp_path.glob(f"*/{RESULTS}")
    copy = file.parent.with_name(file.parent.name + ".13138d64c1cf")
    copy.mkdir()
    (copy / RESULTS).write_bytes(file.read_bytes())
    assert seen(tmp_path) == ["pass"]


def test_a_run_that_was_renamed_has_the_place_of_its_time(tmp_path: Path) -> None:
    """It was told as the latest, and sixty of them hid all others."""
    put(tmp_path, 20, "fail")
    (old,) = tmp_path.iterdir()
    old.rename(tmp_path / "baseline")
    for n in range(READ_MAX - 1):
        put(tmp_path, 30)
        (tmp_path / f"{NOW - timedelta(days=30):%Y%m%d}-r").rename(tmp_path / f"renamed-{n}")
    for days in (1, 2, 3):
        put(tmp_path, days)
    assert seen(tmp_path)[-4:] == ["fail", "pass", "pass", "pass"]


def test_thousands_of_runs_are_not_opened(tmp_path: Path) -> None:
    for days in range(1, READ_MAX + 20):
        put(tmp_path, days, workload="w" if days > READ_MAX + 1 else "other")
    assert seen(tmp_path) == []


def test_the_page_shows_it_and_results_of_today_are_what_is_read(tmp_path: Path) -> None:
    with demo_run(tmp_path / "runs") as store:
        summary = summarise(store)
        assert "Runs before" not in report_html(summary, store, "RUN")
        earlier = json.loads(results_json(summary, "RUN"))
        earlier["started"] = "2020-01-01T00:00:00Z"
        folder = store.path.parent / "20200101-000000-demo"
        folder.mkdir()
        (folder / RESULTS).write_text(json.dumps(earlier))
        html = report_html(summary, store, "RUN")
        failed = next(c.case for c in summary.cases if c.verdict is CaseVerdict.FAIL)
        assert trends(store.path, summary.info.started, [failed])[failed][0].verdict is CaseVerdict.FAIL
    ran = [c for c in summary.cases if c.verdict is not CaseVerdict.NOT_RUN]
    assert html.count("Runs before") == len(ran)
    assert 'title="20200101-000000-demo, 6.12.117+deb12-amd64' in html


def test_later_runs_take_no_place_of_the_earlier_ones(tmp_path: Path) -> None:
    """Sixty later runs were opened for nothing: the report of an older run, made again, lost its trend."""
    put(tmp_path, 1, "fail")
    for days in range(1, READ_MAX + 2):
        put(tmp_path, -days)
    assert seen(tmp_path) == ["fail"]


def test_a_run_that_was_renamed_is_no_later_one(tmp_path: Path) -> None:
    """`6.12-baseline` was taken for the name of a run of a later date."""
    put(tmp_path, 1, "fail")
    (file,) = tmp_path.glob(f"*/{RESULTS}")
    file.parent.rename(tmp_path / "6.12-baseline")
    assert seen(tmp_path) == ["fail"]
