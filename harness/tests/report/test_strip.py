"""The strip of kernels below a finding: kept beside the run, shown in its report, and only data."""

from __future__ import annotations

from pathlib import Path

from harness.report import write_reports
from harness.report.strip import Strip, StripCell, read_strip, write_strip
from harness.summary import CaseVerdict
from harness.tests.report.demo import demo_run

STRIP = Strip(
    "came after debian-6.1.9, first seen in <7.3>",
    (
        StripCell("debian-6.1.9", CaseVerdict.PASS, "kept"),
        StripCell("debian-7.3.4", CaseVerdict.FAIL, "3 of 91 broken", 'mountable: "EUCLEAN"'),
    ),
)


def page(run: Path) -> str:
    return (run / "report.html").read_text()


def test_a_finding_shows_the_kernels_that_have_it(tmp_path: Path) -> None:
    with demo_run(tmp_path) as store:
        write_reports(store)
        assert 'class="strip"' not in page(store.path)
        finding = store.findings()[0]
        write_strip(store.layout, finding.id, STRIP)
        write_reports(store)
        assert page(store.path).count('class="strip"') == 1
        assert '<span class="chip pass" title="">debian-6.1.9: kept</span>' in page(store.path)
        assert 'title="mountable: &#34;EUCLEAN&#34;">debian-7.3.4: 3 of 91 broken' in page(store.path)
        assert "first seen in &lt;7.3&gt;" in page(store.path)


def test_a_strip_that_cannot_be_read_is_not_shown(tmp_path: Path) -> None:
    """A run directory may come from somebody else; a strip decides no verdict."""
    with demo_run(tmp_path) as store:
        finding = store.findings()[0]
        for damaged in (b"", b"{}", b"\xff", b'{"story": "s", "cells": [{"kernel": "k", "verdict": "x"}]}'):
            write_strip(store.layout, finding.id, STRIP)
            assert read_strip(store.layout, finding.id) == STRIP
            store.layout.strip(finding.id).write_bytes(damaged)
            assert read_strip(store.layout, finding.id) is None
        write_reports(store)
        assert 'class="strip"' not in page(store.path)
