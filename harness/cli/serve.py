"""`powercut report --serve`: the report on loopback, with every crash state opened live."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import cast

from harness.errors import PowercutError, UsageError
from harness.explain.look import look
from harness.findings.repro import find_point, repro_context
from harness.model import CaseId, CrashPoint
from harness.report import shown_path, source_words
from harness.report.html import report_html
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


class Site:
    """The pages of one run. A state is recovered when it is asked for, one at a time, and kept."""

    def __init__(self, store: RunStore, named: Named, accel: str) -> None:
        self._store, self._named, self._accel = store, named, accel
        self._looked: dict[str, str] = {}

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
        with repro_context(self._store, point, self._named, self._accel) as shown:
            found = look(shown)
        about = state_words(point.state, device_of(self._store.timeline(point.case)))
        near = neighbours(point.case, self._store.iter_verdicts(point.case), str(point))
        return look_html(found, self._store, about, [*near, ("all states", f"/case/{point.case}")])


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
