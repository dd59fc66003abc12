"""`powercut report --serve`: the report on loopback, with every crash state opened live."""

from __future__ import annotations

import contextlib
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import cast

from harness.errors import PowercutError, UsageError
from harness.explain.look import CaseNames, look
from harness.findings.repro import ReproContext, find_point, repro_context
from harness.model import CaseId, CrashPoint
from harness.report import shown_path, source_words
from harness.report.html import report_html
from harness.report.lines import reproduce
from harness.report.live import look_html, neighbours, states_html
from harness.report.words import device_of, state_words
from harness.store import RunStore
from harness.summary import summarise
from harness.trust import Named

HOST = "127.0.0.1"
_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
}
"""A page loads nothing, whatever a run directory has put into it."""


_CASES = 4
"""Cases that are kept unpacked: each takes the room of its base image and log."""


@dataclass(frozen=True, slots=True)
class _Case:
    """A case as it was unpacked for its first state, what its log's blocks are called, and what ends it."""

    shown: ReproContext
    names: CaseNames
    end: Callable[[], None]


class Site:
    """The pages of one run. A state is recovered when it is asked for, one at a time, and kept; so are the
    cases that were looked at last. A context manager.
    """

    def __init__(self, store: RunStore, named: Named, accel: str) -> None:
        self._store, self._named, self._accel = store, named, accel
        self._looked: dict[str, str] = {}
        self._cases: dict[CaseId, _Case] = {}

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None:
        while self._cases:
            self._cases.popitem()[1].end()

    def page(self, path: str) -> str:
        """The page at a path of the site. Raises UsageError for one that is not there, PowercutError where a
        state cannot be shown.
        """
        kind, _, rest = urllib.parse.unquote(path).lstrip("/").partition("/")
        pages: dict[str, Callable[[str], str]] = {"": self._report, "state": self._state, "case": self._case}
        if kind not in pages:
            raise UsageError(f"there is no page {path}", "the report is at /")
        return pages[kind](rest)

    def _report(self, _: str) -> str:
        source = source_words(self._store, shown_path(self._store.path))
        return report_html(summarise(self._store), self._store, source, live=True)

    def _case(self, text: str) -> str:
        case = self._known(text)
        return states_html(case, self._store.iter_verdicts(case), self._store)

    def _known(self, text: str) -> CaseId:
        known = {str(record.case): record.case for record in self._store.cases()}
        if text not in known:
            raise UsageError(f"the run has no case {text}", "the report names them")
        return known[text]

    def _state(self, text: str) -> str:
        if text not in self._looked:
            self._looked[text] = self._look(find_point(text, self._store))
        return self._looked[text]

    def _look(self, point: CrashPoint) -> str:
        case = self._case_of(point)
        found = look(case.shown.at(point), case.names)
        about = state_words(point.state, device_of(self._store.timeline(point.case)))
        near = neighbours(point.case, self._store.iter_verdicts(point.case), str(point))
        again = reproduce(point.case, point.state, source_words(self._store, shown_path(self._store.path)))
        links = [*near, ("all states", f"/case/{point.case}")]
        return look_html(found, self._store, about, links, again)

    def _case_of(self, point: CrashPoint) -> _Case:
        """The case of a crash point, unpacked; the last one that was asked for is kept longest."""
        known = self._cases.pop(point.case, None)
        if known is None:
            while len(self._cases) >= _CASES:
                self._cases.pop(next(iter(self._cases))).end()
            with contextlib.ExitStack() as opened:
                shown = opened.enter_context(repro_context(self._store, point, self._named, self._accel))
                known = _Case(shown, CaseNames(), opened.pop_all().close)
        self._cases[point.case] = known
        return known


class _Handler(BaseHTTPRequestHandler):
    """Answers GET, for whoever came by the name of this host's own loopback."""

    def do_GET(self) -> None:
        server = cast(Server, self.server)
        if self.headers.get("Host") not in server.names:  # a page elsewhere that gave its name our address
            self._answer(HTTPStatus.FORBIDDEN, "powercut answers on loopback only")
            return
        try:
            self._answer(HTTPStatus.OK, server.site.page(urllib.parse.urlsplit(self.path).path))
        except UsageError as e:
            self._answer(HTTPStatus.NOT_FOUND, e.line, plain=True)
        except PowercutError as e:
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, e.line, plain=True)

    def _answer(self, status: HTTPStatus, text: str, *, plain: bool = False) -> None:
        body = text.encode("utf-8", "backslashreplace")
        headers = dict(_HEADERS)
        if plain or status is not HTTPStatus.OK:
            headers["Content-Type"] = "text/plain; charset=utf-8"
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: the terminal is not a log of requests."""


class Server(HTTPServer):
    """One request at a time: a run has one database, and a guest is enough for this host."""

    def __init__(self, site: Site, port: int = 0) -> None:
        super().__init__((HOST, port), _Handler)
        self.site = site
        self.names = {f"{name}:{self.server_port}" for name in (HOST, "localhost")}

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}/"
