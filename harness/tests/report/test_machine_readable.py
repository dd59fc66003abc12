"""results.json, junit.xml and the folders of findings: what programs read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import junitparser
import msgspec
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it ships no types

from harness.host.resources import resource
from harness.model import CaseId, CrashState, Judgement, Violation
from harness.report import rewrite_reports, write_reports
from harness.report.findings import repro_script
from harness.report.junit import junit_xml
from harness.report.markdown import summary_markdown
from harness.report.results import results, results_json
from harness.report.words import headline, kernel_name
from harness.store import RunStore
from harness.store.records import (
    CaseInfo,
    CaseNote,
    CaseStatus,
    Counts,
    DrawnCall,
    DrawnCalls,
    Evidence,
    JudgedState,
)
from harness.summary import CaseSummary, CaseVerdict, Summary, summarise
from harness.tests.report.conftest import SOURCE
from harness.tests.report.demo import FINISHED, demo_run, run_info

HOSTILE = "</script><script>alert(1)</script> ]]> \x1b[31m \x00 \udcff & \"'"


@pytest.fixture
def hostile(tmp_path: Path) -> RunStore:
    """A run in which every foreign text tries to break out."""
    store = RunStore.create(tmp_path, "hostile", run_info())
    case = CaseId("ext4", "ordered", "w")
    store.add_case(CaseInfo(case, HOSTILE, HOSTILE, HOSTILE, distinct=2))
    violation = Violation("durability", HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    store.put_judgements(
        case,
        [
            JudgedState(CrashState(3), "h", Judgement((violation,))),
            JudgedState(CrashState(4), "i", Judgement(unknown=(HOSTILE,))),
        ],
    )
    store.put_evidence(store.findings()[0], Evidence(CrashState(3), HOSTILE, HOSTILE, {HOSTILE: HOSTILE}))
    store.set_case_status(case, CaseStatus.DONE, HOSTILE)
    store.finish(FINISHED)
    return store


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema = json.loads(resource("reports", "schema", "results.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


# --- results.json ----------------------------------------------------------------------------


def test_results_json(
    summary: Summary, golden: Callable[[str, str], None], validator: Draft202012Validator
) -> None:
    text = results_json(summary, SOURCE)
    golden("results.json", text)
    validator.validate(json.loads(text))


def test_results_say_how_many_calls_of_a_program_were_noted(
    tmp_path: Path, validator: Draft202012Validator
) -> None:
    noted = DrawnCalls((DrawnCall(1, 2, "fsync(f)", "= 0"),), more=3)
    with RunStore.create(tmp_path, "t", run_info()) as store:
        for workload, calls in (("a", noted), ("b", DrawnCalls(lacking="no tracefs")), ("c", None)):
            store.add_case(CaseInfo(CaseId("ext4", "ordered", workload), calls=calls))
        found = results(summarise(store), SOURCE)
    validator.validate(found)
    assert [case.get("program_calls") for case in found["cases"]] == [
        {"noted": 1, "more": 3, "lacking": ""},
        {"noted": 0, "more": 0, "lacking": "no tracefs"},
        None,
    ]


def test_results_of_a_run_that_died_with_nothing_done(
    tmp_path: Path, validator: Draft202012Validator
) -> None:
    with RunStore.create(tmp_path, "t", run_info()) as store:
        found = results(summarise(store), SOURCE)
    validator.validate(found)
    assert (found["finished"], found["interrupted"], found["exit_code"]) == (None, True, 3)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda r: r.pop("cases"),
        lambda r: r.update(schema=2),
        lambda r: r["cases"][0]["states"].pop("unknown"),
        lambda r: r["cases"][0].update(verdict="green"),
        lambda r: r["cases"][7]["findings"][0].update(id="x"),
        lambda r: r["cases"][7]["findings"][0].update(crash_point="ext4@1"),
    ],
)
def test_the_schema_refuses_what_is_not_meant(
    summary: Summary, validator: Draft202012Validator, spoil: Callable[[dict[str, Any]], object]
) -> None:
    found = results(summary, SOURCE)
    assert validator.is_valid(found)
    spoil(found)
    assert not validator.is_valid(found)


def test_counts_in_results_add_up(summary: Summary) -> None:
    for case in results(summary, SOURCE)["cases"]:
        states = case["states"]
        assert states["checked"] == states["pass"] + states["fail"] + states["unknown"]
        assert sum(case["how"].values()) == states["checked"]


# --- junit.xml -------------------------------------------------------------------------------


def test_junit_xml(summary: Summary, golden: Callable[[str, str], None]) -> None:
    golden("junit.xml", junit_xml(summary, SOURCE))


def test_junit_as_a_reader_of_junit_sees_it(summary: Summary) -> None:
    suites = junitparser.JUnitXml.fromstring(junit_xml(summary, SOURCE).encode())
    assert (suites.tests, suites.failures, suites.errors, suites.skipped) == (18, 1, 1, 4)
    by_name = {suite.name: suite for suite in suites}
    assert list(by_name) == list(dict.fromkeys(c.case.configuration for c in summary.cases))
    properties = {p.name: p.value for p in by_name["ext4/nobarrier"].properties()}  # type: ignore[no-untyped-call]  # junitparser
    assert properties["KERNEL"] == "Linux 6.12.117+deb12-amd64"
    assert properties["FSTYP"] == "ext4"
    assert properties["MKFS_OPTIONS"] == "-b 4096 -O metadata_csum"
    assert properties["MOUNT_OPTIONS"] == "barrier=0"


def kinds(suites: junitparser.JUnitXml) -> dict[str, list[junitparser.junitparser.Result]]:
    return {f"{suite.name} {case.name}": list(case.result) for suite in suites for case in suite}


def test_junit_results_by_verdict(summary: Summary) -> None:
    seen = kinds(junitparser.JUnitXml.fromstring(junit_xml(summary, SOURCE).encode()))
    assert seen["ext4/ordered append-fsync"] == []
    (failure,) = seen["ext4/writeback-nodelalloc rename-replace"]
    assert isinstance(failure, junitparser.Failure)
    assert failure.text.splitlines()[-1] == (
        "reproduce: powercut repro ext4-writeback-nodelalloc/rename-replace@24 --from reports/latest"
    )
    (error,) = seen["xfs/default create-many"]
    assert isinstance(error, junitparser.Error)
    assert error.text.splitlines()[-1].startswith("reproduce: powercut repro xfs-default/create-many@")
    (known,) = seen["ext4/nobarrier append-fsync"]
    assert isinstance(known, junitparser.Skipped)
    assert known.type == "powercut.xfail"
    assert "barrier=0 sends no flush" in known.message
    (not_run,) = seen["xfs/nobarrier append-fsync"]
    assert isinstance(not_run, junitparser.Skipped)
    assert not_run.message == "XFS has no nobarrier option"


def test_a_failure_among_expected_ones_fails(summary: Summary) -> None:
    case = next(c for c in summary.cases if len(c.findings) == 2)
    expectation = summary.unmet[0]
    mixed = replace(case, findings=(replace(case.findings[0], expectation=expectation), case.findings[1]))
    (result,) = kinds(
        junitparser.JUnitXml.fromstring(junit_xml(replace(summary, cases=(mixed,)), SOURCE).encode())
    ).popitem()[1]
    assert isinstance(result, junitparser.Failure)
    assert case.findings[1].summary in result.message
    assert case.findings[0].summary not in result.message


def test_junit_survives_hostile_text(hostile: RunStore) -> None:
    suites = junitparser.JUnitXml.fromstring(junit_xml(summarise(hostile), HOSTILE).encode())
    (result,) = kinds(suites).popitem()[1]
    assert "</script><script>alert(1)</script> ]]> \\x1b[31m \\x00 \\udcff" in result.message


# --- findings/ -------------------------------------------------------------------------------


def test_the_folder_of_a_finding(
    tmp_path: Path, golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with demo_run(tmp_path / "reports") as store:
        write_reports(store, Path("reports/latest"))
        finding = next(f for f in store.findings() if f.expectation)
        folder = store.path / "findings" / finding.id
        assert sorted(p.name for p in folder.iterdir()) == [
            "crash.json",
            "description",
            "dmesg",
            "fsck.txt",
            "report.txt",
            "repro.sh",
        ]
        assert len((folder / "description").read_text().splitlines()) == 1
        assert (folder / "dmesg").read_text().startswith("EXT4-fs (vdb): recovery complete")
        report = (folder / "report.txt").read_text()
        assert f"--from {tmp_path}/reports/latest" in report
        golden("finding-report.txt", report.replace(f"{tmp_path}/", ""))
        golden("finding-crash.json", (folder / "crash.json").read_text())
        crash = json.loads((folder / "crash.json").read_text())
        assert msgspec.convert(crash["state"], CrashState) == finding.state
        assert {p.name for p in store.path.iterdir()} >= {
            "report.html",
            "results.json",
            "junit.xml",
            "summary.txt",
            "run.json",
        }


def test_the_script_finds_its_run_wherever_it_lies(
    demo: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finding = demo.findings()[0]
    run = tmp_path / "a copy"
    script = run / "findings" / finding.id / "repro.sh"
    script.parent.mkdir(parents=True)
    script.write_text(repro_script(finding, ["--kernel", "/my kernels/bzImage"], str(demo.path)))
    fake = tmp_path / "bin" / "powercut"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{fake.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", str(script), "--shell"], env=environment, capture_output=True, text=True, check=True
    )
    files = ["--kernel", "/my kernels/bzImage"]
    expected = ["repro", str(finding.crash_point), "--from", str(run), *files, "--shell"]
    assert done.stdout.splitlines() == expected
    # Without powercut in PATH, the interpreter that wrote it: the virtual environment is often not active.
    python = tmp_path / "python"
    fake.rename(python)
    shell = shutil.which("sh")
    assert shell is not None
    monkeypatch.setattr(sys, "executable", str(python))
    script.write_text(repro_script(finding, files, str(demo.path)))
    (fake.parent / "dirname").symlink_to(str(shutil.which("dirname")))
    alone = {**os.environ, "PATH": str(fake.parent)}
    done = subprocess.run([shell, str(script)], env=alone, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-m", "harness", *expected[:-1]]


def test_a_finding_without_evidence_says_so(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "t", run_info()) as store:
        case = CaseId("ext4", "ordered", "w")
        store.add_case(CaseInfo(case))
        violation = Violation("fsck", "a", "s", "e", "f", "x")
        store.put_judgements(case, [JudgedState(CrashState(3), "h", Judgement((violation,)))])
        write_reports(store)
        folder = store.path / "findings" / store.findings()[0].id
        assert (folder / "dmesg").read_text() == "(not kept)\n"
        assert json.loads((folder / "crash.json").read_text())["evidence_state"] is None


def test_hostile_text_stays_in_its_files(hostile: RunStore) -> None:
    write_reports(hostile)
    folder = hostile.path / "findings" / hostile.findings()[0].id
    assert len((folder / "description").read_text().splitlines()) == 1
    assert "\x1b" not in (folder / "report.txt").read_text()
    assert (folder / "report.txt").read_text().splitlines()[-1].startswith("reproduce: powercut repro ")


def test_a_module_of_the_users_is_named_with_its_hash(summary: Summary) -> None:
    """A module that was built again has the same name: nobody could tell which of the two had been tested."""
    kernel = replace(summary.info.kernel, replaced={"/home/me/linux/fs/ext4/ext4.ko": "0123456789abcdef" * 4})
    mine = replace(summary, info=replace(summary.info, kernel=kernel))
    named = f"{kernel_name(summary.info)} with ext4.ko (sha256 0123456789ab)"
    assert headline(mine).startswith(named)
    assert results(mine, SOURCE)["headline"].startswith(named)
    assert f'name="KERNEL" value="{named}"' in junit_xml(mine, SOURCE)


def test_what_the_time_did_not_reach_is_no_error_of_a_job_that_passes(
    tmp_path: Path, validator: Draft202012Validator
) -> None:
    """Exit code 5, which the recipes pass, and a red junit.xml."""
    reached, later = CaseId("ext4", "ordered", "one"), CaseId("ext4", "ordered", "two")
    with RunStore.create(tmp_path, "t", run_info(), durable=False) as store:
        for case in (reached, later):
            store.add_case(CaseInfo(case, "", "", "", generated=1, distinct=1))
        store.put_judgements(reached, [JudgedState(CrashState(3), "h", Judgement())])
        store.set_case_status(reached, CaseStatus.DONE)
        store.finish(FINISHED, interrupted=True, stopped="the time was up")
        summary = summarise(store)
    validator.validate(json.loads(results_json(summary, SOURCE)))
    root = ET.fromstring(junit_xml(summary, SOURCE))  # noqa: S314 - our own
    told = {case.attrib["name"]: [e.tag for e in case] for case in root.iter("testcase")}
    assert told == {"one": [], "two": ["skipped"]}
    assert (root.attrib["errors"], root.attrib["skipped"]) == ("0", "1")
    store_of_crash = replace(summary, info=replace(summary.info, stopped=""))
    assert ET.fromstring(junit_xml(store_of_crash, SOURCE)).attrib["errors"] == "1"  # noqa: S314 - our own


def of_so_many(summary: Summary, status: CaseStatus, count: int) -> Summary:
    """A run whose time was up after one case, with so many more of this status."""
    done = next(c for c in summary.cases if c.verdict is CaseVerdict.PASS)
    left = replace(done, status=status, counts=Counts(), reason="")
    cases = (
        replace(left, info=replace(left.info, case=replace(left.case, workload=f"w{n}")))
        for n in range(count)
    )
    info = replace(summary.info, interrupted=True, stopped="10 minutes were over", require_all=True)
    return replace(summary, info=info, cases=(done, *cases), unmet=())


@pytest.mark.parametrize("report", [junit_xml, summary_markdown])
@pytest.mark.parametrize("status", [CaseStatus.PLANNED, CaseStatus.NOT_RUN])
def test_a_report_goes_over_its_cases_so_many_times_and_not_once_for_each(
    summary: Summary,
    monkeypatch: pytest.MonkeyPatch,
    report: Callable[[Summary, str], str],
    status: CaseStatus,
) -> None:
    """For each case that was not decided it went over all of them: minutes, for some thousands."""
    looked = [0]
    is_lacking, verdict, equals = CaseSummary.lacks.fget, CaseSummary.verdict.fget, CaseSummary.__eq__  # type: ignore[attr-defined]  # mypy sees no properties

    def counting(real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*of: object) -> object:
            looked[0] += 1
            return real(*of)

        return counted

    monkeypatch.setattr(CaseSummary, "lacks", property(counting(is_lacking)))
    monkeypatch.setattr(CaseSummary, "verdict", property(counting(verdict)))
    monkeypatch.setattr(CaseSummary, "__eq__", counting(equals))

    def looks(count: int) -> int:
        looked[0] = 0
        report(of_so_many(summary, status, count), SOURCE)
        return looked[0]

    assert looks(80) < 3 * looks(40)


def test_reports_that_are_written_again_are_of_the_run_as_it_is_then(tmp_path: Path) -> None:
    """`show` had opened the run, which was resumed to its end meanwhile: exit code 5, interrupted."""
    with demo_run(tmp_path / "reports") as store:
        path = store.path
        with RunStore.open(path) as resumed:
            resumed.finish(interrupted=False)
        store.finish(stopped="the time given is up")
        with RunStore.open(path) as shown:
            with RunStore.open(path) as resumed, resumed.lock("powercut run --resume"):
                resumed.finish()
                rewrite_reports(shown)
                assert not (path / "results.json").exists(), "who works on the run writes its reports"
            rewrite_reports(shown)
    told = json.loads((path / "results.json").read_text())
    assert (told["interrupted"], told["exit_code"]) == (False, 1)


def test_a_note_of_all_cases_is_in_junit_too(summary: Summary) -> None:
    """That a baseline was gone by the end of the run, so that all may be old, only the other reports said."""
    of_one = str(summary.cases[0].case)
    notes = (CaseNote("", "of all"), CaseNote(of_one, "of one"))
    noted = replace(summary, info=replace(summary.info, notes=notes))
    suites = junitparser.JUnitXml.fromstring(junit_xml(noted, SOURCE).encode())
    out = [case.system_out or "" for suite in suites for case in suite]
    assert len(out) == len(summary.cases)
    assert all("note: of all" in text for text in out)
    assert sum("note: of one" in text for text in out) == 1
