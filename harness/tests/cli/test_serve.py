"""`powercut report --serve`: pages of a run on loopback, and crash states that are opened live."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cli import serve
from harness.cli.serve import HOST, Server, Site
from harness.errors import GuestLost, UsageError
from harness.explain.look import CaseNames
from harness.model import CrashPoint, Verdict, Violation
from harness.report.live import Block, Look, Write
from harness.store import RunStore
from harness.tests.report.demo import demo_run
from harness.tests.report.test_html import Page
from harness.trust import NOTHING

WAIT_S = 60


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunStore]:
    with demo_run(tmp_path) as store:
        yield store


@pytest.fixture
def site(run: RunStore) -> Site:
    return Site(run, NOTHING, "tcg")


def looked(monkeypatch: pytest.MonkeyPatch, found: Look) -> list[str]:
    """Every look finds this; returns the points that were looked at."""
    return opened(monkeypatch, found)[1]


def opened(monkeypatch: pytest.MonkeyPatch, found: Look) -> tuple[list[str], list[str]]:
    """As `looked`; returns what became of cases, and the points that were looked at."""
    cases: list[str] = []
    asked: list[str] = []

    class Shown:
        def __init__(self, _: RunStore, point: CrashPoint, *__: object) -> None:
            self.case, self.point = point.case, point
            cases.append(f"unpacked {point.case}")

        def at(self, point: CrashPoint) -> CrashPoint:
            return point

        def __enter__(self) -> Shown:
            return self

        def __exit__(self, *_: object) -> None:
            cases.append(f"removed {self.case}")

    def look(shown: CrashPoint, _: CaseNames) -> Look:
        asked.append(str(shown))
        return found

    monkeypatch.setattr(serve, "repro_context", Shown)
    monkeypatch.setattr(serve, "look", look)
    return cases, asked


FOUND = Look(
    "ext4-nobarrier/append-fsync@33-31",
    "fail",
    (Violation("contents", "a", "a: <b>lost</b> after `sync`", "32 bytes", "nothing", "lost"),),
    (),
    (Write(31, 8, 16, "data of a", "lost"),),
    ((Write(0, 24, 8, "bitmap", "lost"),),),
    (Block(7, "superblock", False), Block(9, "data of a", True)),
    (Write(0, 64, 8, "journal superblock", "write"),),
    kernel_log=("EXT4-fs: recovery complete",),
    use_log=("EXT4-fs: no room",),
)


def test_the_report_links_every_finding_and_every_case_to_what_is_live(site: Site, run: RunStore) -> None:
    page = Page(site.page("/"))
    links = {a["href"] for tag, a in page.tags if tag == "a"}
    point = str(run.findings()[0].crash_point)
    assert f"/state/{point}" in {link.replace("%40", "@") for link in links}
    assert "/case/ext4-nobarrier/append-fsync" in links


def test_a_case_links_its_states_and_says_how_many_are_broken(site: Site, run: RunStore) -> None:
    """The page of a case with broken states was green."""
    text = site.page("/case/ext4-nobarrier/append-fsync")
    page = Page(text)
    links = [a["href"] for tag, a in page.tags if tag == "a" and "/state/" in a["href"]]
    assert len(links) > 20
    case = next(record.case for record in run.cases() if str(record.case) == "ext4-nobarrier/append-fsync")
    seen = [v.verdict for v in run.iter_verdicts(case)]
    said = [words for _, words in page.texts]
    assert f"{case}: {len(seen)} states, {seen.count(Verdict.FAIL)} broken" in said
    assert '<header class="fail">' in text
    with pytest.raises(UsageError, match="no case"):
        site.page("/case/ext4-nobarrier/other")


def test_a_state_is_recovered_once_and_shown_with_its_neighbours(
    site: Site, run: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = looked(monkeypatch, FOUND)
    point = str(run.findings()[1].crash_point)
    text = site.page(f"/state/{point.replace('@', '%40')}")
    assert site.page(f"/state/{point}") == text
    assert asked == [point]
    page = Page(text)
    said = [words for _, words in page.texts]
    assert {"superblock", "journal superblock", "data of a", "lost", "contents of files"} <= set(said)
    assert "<b>" not in text
    near = {words for tag, words in page.texts if tag == "a"}
    assert {"the state before", "the state after", "all states"} <= near


def test_a_case_is_unpacked_once_for_its_states_and_removed_at_the_end(
    site: Site, run: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each state unpacked its recording anew, and named every block of its log."""
    cases, asked = opened(monkeypatch, FOUND)
    case = run.findings()[0].case
    states = [v.state for v in run.iter_verdicts(case)][:3]
    with site:
        for state in states:
            site.page(f"/state/{case}{state}")
        assert cases == [f"unpacked {case}"]
    assert cases == [f"unpacked {case}", f"removed {case}"]
    assert asked == [f"{case}{state}" for state in states]


def test_of_many_cases_the_last_few_are_kept(
    site: Site, run: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases, _ = opened(monkeypatch, FOUND)
    monkeypatch.setattr(serve, "_CASES", 1)
    first, second, *_ = [record.case for record in run.cases() if [*run.iter_verdicts(record.case)]]
    for case in (first, second, first):
        state = next(v.state for v in run.iter_verdicts(case))
        site._looked.clear()
        site.page(f"/state/{case}{state}")
    assert cases == [
        f"unpacked {first}",
        f"removed {first}",
        f"unpacked {second}",
        f"removed {second}",
        f"unpacked {first}",
    ]


def test_what_is_broken_the_page_says_with_what_was_expected_and_how_to_see_it_again(
    site: Site, run: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked(monkeypatch, FOUND)
    point = str(run.findings()[0].crash_point)
    said = [words for _, words in Page(site.page(f"/state/{point}")).texts]
    assert {"contents", "32 bytes", "nothing", "sync"} <= set(said)
    assert not any("`" in words for words in said)
    assert any(words.startswith(f"powercut repro {point} --from ") for words in said)
    assert any("had written when it was cut" in words for words in said)
    assert any("EXT4-fs: no room" in words for words in said)


@pytest.mark.parametrize("path", ["/state/../../etc/passwd", "/etc/passwd", "/state/nothing", "/state/"])
def test_what_is_not_there_is_not_served(path: str, site: Site) -> None:
    with pytest.raises(UsageError):
        site.page(path)


@pytest.fixture
def server(site: Site) -> Iterator[Server]:
    """Answers until the test ends, in a thread: so it must not ask the database, which is this thread's."""
    with Server(site) as serving:
        thread = threading.Thread(target=serving.serve_forever, daemon=True)
        thread.start()
        yield serving
        serving.shutdown()
        thread.join(WAIT_S)


def ask(server: Server, path: str, host: str = "") -> tuple[int, str, str]:
    """Status, policy and text of an answer."""
    connection = http.client.HTTPConnection(HOST, server.server_port, timeout=WAIT_S)
    connection.request("GET", path, headers={"Host": host or f"{HOST}:{server.server_port}"})
    answer = connection.getresponse()
    return answer.status, answer.headers["Content-Security-Policy"], answer.read().decode()


def test_it_answers_on_loopback_and_to_its_own_name_alone(
    server: Server, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page from elsewhere could have given its own name our address, and read the run."""
    monkeypatch.setattr(site, "page", lambda path: f"page {path}")
    assert server.server_address[0] == "127.0.0.1"
    assert ask(server, "/a?b=c") == (200, ask(server, "/")[1], "page /a")
    assert ask(server, "/", "evil.example")[0] == 403
    assert ask(server, "/", f"localhost:{server.server_port}")[0] == 200
    assert "default-src 'none'" in ask(server, "/")[1]


def test_an_error_is_an_answer_and_the_next_page_comes(
    server: Server, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [UsageError("no such state"), GuestLost("the guest is gone", "console")]

    def page(_: str) -> str:
        if errors:
            raise errors.pop(0)
        return "there"

    monkeypatch.setattr(site, "page", page)
    assert ask(server, "/state/x")[::2] == (404, "no such state")
    assert ask(server, "/state/x")[::2] == (500, "the guest is gone")
    assert ask(server, "/")[::2] == (200, "there")
