"""`powercut report --serve`: pages of a run on loopback, and crash states that are opened live."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import HTTPServer
from pathlib import Path

import pytest

from harness.cli import serve
from harness.cli.serve import HOST, Server, Site
from harness.errors import GuestLost, UsageError
from harness.explain.look import CaseNames
from harness.model import CrashPoint, Verdict, Violation
from harness.report.live import Block, LiveLook, LiveWrite
from harness.store import RunStore
from harness.tests.cli.runner import powercut
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


def looked(monkeypatch: pytest.MonkeyPatch, found: LiveLook) -> list[str]:
    """Every look finds this; returns the points that were looked at."""
    return opened(monkeypatch, found)[1]


def opened(monkeypatch: pytest.MonkeyPatch, found: LiveLook) -> tuple[list[str], list[str]]:
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

    def look(shown: CrashPoint, _: CaseNames) -> LiveLook:
        asked.append(str(shown))
        return found

    monkeypatch.setattr(serve, "repro_context", Shown)
    monkeypatch.setattr(serve, "look", look)
    return cases, asked


FOUND = LiveLook(
    "ext4-nobarrier/append-fsync@33-31",
    "fail",
    (Violation("contents", "a", "a: <b>lost</b> after `sync`", "32 bytes", "nothing", "lost"),),
    (),
    (LiveWrite(31, 8, 16, "data of a", "lost"),),
    ((LiveWrite(0, 24, 8, "bitmap", "lost"),),),
    (Block(7, "superblock", False), Block(9, "data of a", True)),
    (LiveWrite(0, 64, 8, "journal superblock", "write"),),
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
    site.look(f"/state/{point.replace('@', '%40')}")
    text = site.page(f"/state/{point.replace('@', '%40')}")
    site.look(f"/state/{point}")
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
            site.look(f"/state/{case}{state}")
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
        site.look(f"/state/{case}{state}")
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
    site.look(f"/state/{point}")
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


@pytest.mark.parametrize("path", ["/", "/case/ext4-nobarrier/append-fsync", "/state/nothing"])
def test_only_a_state_is_recovered(path: str, site: Site) -> None:
    with pytest.raises(UsageError):
        site.look(path)


def test_to_load_the_page_of_a_state_starts_nothing(
    site: Site, run: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any page of the web could boot guests, with an image whose address was that of a state."""
    asked = looked(monkeypatch, FOUND)
    site.root = "/secret"
    point = str(run.findings()[0].crash_point)
    page = Page(site.page(f"/state/{point}"))
    assert asked == []
    (form,) = page.all("form")
    assert form["method"] == "post"
    assert form["action"].replace("%40", "@") == f"/secret/state/{point}"


def test_every_link_of_every_page_holds_the_secret(
    site: Site, run: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked(monkeypatch, FOUND)
    site.root = "/secret"
    case = run.findings()[1].case
    before, point, after, *_ = [f"/state/{case}{v.state}" for v in run.iter_verdicts(case)]
    site.look(point)
    for path in ("/", f"/case/{case}", point, before, after):
        page = Page(site.page(path))
        for link in (a.get("href", a.get("action", "#")) for _, a in page.tags):
            assert link.startswith(("#", "/secret/")), f"{path}: {link}"


@pytest.fixture
def server(site: Site) -> Iterator[Server]:
    """Answers until the test ends, in a thread."""
    with Server(site) as serving:
        thread = threading.Thread(target=serving.work, daemon=True)
        thread.start()
        yield serving
        serving.shutdown()
        thread.join(WAIT_S)


@dataclass(frozen=True)
class Answer:
    status: int
    text: str
    policy: str
    location: str


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> Answer:
    """`path`: behind the secret, if it begins with a slash."""
    connection = http.client.HTTPConnection(HOST, server.server_port, timeout=WAIT_S)
    own = {"Host": f"{HOST}:{server.server_port}"}
    connection.request(method, f"{server.site.root}{path}", headers=own | headers)
    answer = connection.getresponse()
    said = answer.read().decode()
    return Answer(
        answer.status, said, answer.headers["Content-Security-Policy"], answer.headers.get("Location", "")
    )


def test_it_answers_on_loopback_and_to_its_own_name_alone(
    server: Server, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page from elsewhere could have given its own name our address, and read the run."""
    monkeypatch.setattr(site, "page", lambda path: f"page {path}")
    assert server.server_address[0] == "127.0.0.1"
    assert ask(server, "/a?b=c").text == "page /a"
    assert ask(server, "/", Host="evil.example").status == 403
    assert ask(server, "/", Host=f"localhost:{server.server_port}").status == 200
    assert "default-src 'none'" in ask(server, "/").policy


def test_who_does_not_know_the_secret_sees_and_starts_nothing(
    server: Server, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every user of the host could read the run, and boot guests with the rights of whoever served it."""
    asked: list[str] = []
    monkeypatch.setattr(site, "page", asked.append)
    monkeypatch.setattr(site, "look", asked.append)
    true = server.site.root
    for root in ("", "/", "/x", true[:-1], f"{true}x", f"{true}%00", "/é"):
        site.root = urllib.parse.quote(root, safe="/%")
        for method in ("GET", "POST"):
            origin = f"http://{HOST}:{server.server_port}"
            answer = ask(server, "/state/x", method, Origin=origin)
            assert answer.status == 403, root
            assert true[1:] not in answer.text
    assert asked == []
    assert len(true) > 40


def test_a_guest_is_started_from_a_page_of_the_report_only(
    server: Server, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(site, "look", asked.append)
    for origin in ({}, {"Origin": "null"}, {"Origin": "http://evil.example"}, {"Origin": f"http://{HOST}"}):
        assert ask(server, "/state/x", "POST", **origin).status == 403
    own = f"http://{HOST}:{server.server_port}"
    assert ask(server, "/state/x", "POST", Origin=own, Host="evil.example").status == 403
    assert ask(server, "/state/x", "PUT", Origin=own).status == 501
    assert asked == []
    answer = ask(server, "/state/x%40y", "POST", Origin=own)
    assert (answer.status, answer.location) == (303, f"{site.root}/state/x%40y")
    assert asked == ["/state/x%40y"]


def test_who_says_nothing_or_reads_nothing_keeps_nobody_waiting(
    server: Server, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One connection without a request was enough: the server read that for ever."""
    monkeypatch.setattr(site, "page", lambda _: "there")
    with contextlib.ExitStack() as silent:
        for _ in range(3):
            silent.enter_context(socket.create_connection((HOST, server.server_port), timeout=WAIT_S))
        assert ask(server, "/").text == "there"


def test_a_request_that_takes_too_long_is_cut_off(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "REQUEST_S", 0.05)
    with socket.create_connection((HOST, server.server_port), timeout=WAIT_S) as slow:
        slow.sendall(b"GET / HT")
        assert slow.recv(1) == b""


def test_connections_and_waiting_requests_are_bounded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "CONNECTIONS", 2)
    with Server(site) as serving, contextlib.ExitStack() as opened:
        thread = threading.Thread(target=serving.work, daemon=True)
        thread.start()
        for _ in range(2):
            taken = opened.enter_context(
                socket.create_connection((HOST, serving.server_port), timeout=WAIT_S)
            )
            taken.sendall(b"GET / HT")
        with socket.create_connection((HOST, serving.server_port), timeout=WAIT_S) as third:
            assert third.recv(1) == b""
        serving.shutdown()
        thread.join(WAIT_S)


def test_who_would_wait_behind_too_many_is_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "WAITING", 1)
    with Server(site) as serving:
        accepts = threading.Thread(target=serving.serve_forever, daemon=True)
        accepts.start()
        serving._asked.put_nowait(None)  # the one that waits: nobody is in `work` yet
        assert ask(serving, "/").status == 503
        HTTPServer.shutdown(serving)
        accepts.join(WAIT_S)


def test_an_error_is_an_answer_and_the_next_page_comes(
    server: Server, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [UsageError("no such state"), GuestLost("the guest is gone", "console")]

    def page(_: str) -> str:
        if errors:
            raise errors.pop(0)
        return "there"

    monkeypatch.setattr(site, "page", page)
    for status, text in ((404, "no such state"), (500, "the guest is gone"), (200, "there")):
        answer = ask(server, "/state/x")
        assert (answer.status, answer.text) == (status, text)


def test_a_port_without_serve_is_refused(run: RunStore) -> None:
    """It was taken in silence, and nobody listened there."""
    result = powercut("report", run.path, "--port", 8000)
    assert result.exit_code == 2
    assert "--serve" in result.output


def test_annotations_and_serve_are_refused_together(run: RunStore) -> None:
    """The annotations were printed, and nothing was served, without a word."""
    result = powercut("report", run.path, "--annotations", "--serve")
    assert result.exit_code == 2
    assert "use one of them" in result.output
