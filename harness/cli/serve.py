"""`powercut report --serve`: the report on loopback, with every crash state opened live."""

from __future__ import annotations

import contextlib
import queue
import secrets
import socket
import sys
import threading
import traceback
import urllib.parse
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias, cast

from harness.cli.console import errors
from harness.errors import PowercutError, UsageError
from harness.explain.look import CaseNames, look
from harness.findings.repro import ReproContext, find_point, repro_context
from harness.model import CaseId, CrashPoint
from harness.report import shown_path, source_words
from harness.report.html import report_html
from harness.report.lines import reproduce
from harness.report.live import ask_html, look_html, neighbours, states_html
from harness.report.words import device_of, state_words
from harness.store import RunStore
from harness.summary import summarise
from harness.trust import Named

HOST = "127.0.0.1"
_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",  # its paths hold the secret; without any, forms would have no origin
    "X-Content-Type-Options": "nosniff",
}
"""A page loads nothing, whatever a run directory has put into it."""
SOCKET_S = 10.0
"""For each read and write of a connection."""
REQUEST_S = 30.0
"""For a request to be read."""
CONNECTIONS = 32
WAITING = 8
"""Requests that wait while another is answered."""


_Page: TypeAlias = Callable[[], str | None]
"""Makes a page, or does something of which there is none."""

_CASES = 4
"""Cases that are kept unpacked: each takes the room of its base image and log."""


@dataclass(frozen=True, slots=True)
class _Case:
    """A case, unpacked for its first state; the names of its log's blocks; and the call that ends it."""

    shown: ReproContext
    names: CaseNames
    end: Callable[[], None]


class Site(contextlib.AbstractContextManager["Site"]):
    """The pages of one run. A state is recovered when that is asked for, one at a time, and kept; so are the
    cases that were looked at last. `root`: what the paths in its links begin with. A context manager.
    """

    root = ""

    def __init__(self, store: RunStore, named: Named, accel: str) -> None:
        self._store, self._named, self._accel = store, named, accel
        self._looked: dict[str, str] = {}
        self._cases: dict[CaseId, _Case] = {}

    def __exit__(self, *_: object) -> None:
        while self._cases:
            self._cases.popitem()[1].end()

    def page(self, path: str) -> str:
        """The page at a path of the site; nothing is started for it. Raises UsageError for one that is not
        there.
        """
        kind, _, rest = urllib.parse.unquote(path).lstrip("/").partition("/")
        pages: dict[str, Callable[[str], str]] = {"": self._report, "state": self._state, "case": self._case}
        if kind not in pages:
            raise UsageError(f"there is no page {path}", "the report is at /")
        return pages[kind](rest)

    def _report(self, _: str) -> str:
        source = source_words(self._store, shown_path(self._store.path))
        return report_html(summarise(self._store), self._store, source, live=self.root)

    def _case(self, text: str) -> str:
        case = self._known(text)
        return states_html(case, self._store.iter_verdicts(case), self._store, self.root)

    def _known(self, text: str) -> CaseId:
        known = {str(record.case): record.case for record in self._store.cases()}
        if text not in known:
            raise UsageError(f"the run has no case {text}", "the report names them")
        return known[text]

    def _state(self, text: str) -> str:
        """The state as it was recovered; before that, the page that asks whether it should be."""
        point = find_point(text, self._store)
        if str(point) in self._looked:
            return self._looked[str(point)]
        about = state_words(point.state, device_of(self._store.timeline(point.case)))
        return ask_html(str(point), about, self._store, self.root)

    def look(self, path: str) -> None:
        """Recover the state of this path in a guest, unless it was. Raises UsageError for a path that is not
        that of a state, PowercutError where it cannot be shown.
        """
        kind, _, text = urllib.parse.unquote(path).lstrip("/").partition("/")
        if kind != "state":
            raise UsageError(f"nothing is recovered for {path}", "the report links the states")
        point = find_point(text, self._store)
        if str(point) not in self._looked:
            self._looked[str(point)] = self._look(point)

    def _look(self, point: CrashPoint) -> str:
        case = self._case_of(point)
        found = look(case.shown.at(point), case.names)
        about = state_words(point.state, device_of(self._store.timeline(point.case)))
        near = neighbours(point.case, self._store.iter_verdicts(point.case), str(point))
        again = reproduce(point.case, point.state, source_words(self._store, shown_path(self._store.path)))
        links = [*near, ("all states", f"/case/{point.case}")]
        return look_html(found, self._store, about, links, again, self.root)

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
    """A request, in a thread of its own until it is known to come from whoever was given the address."""

    timeout = SOCKET_S

    def setup(self) -> None:
        super().setup()
        self._late = threading.Timer(REQUEST_S, self._cut_off)
        self._late.daemon = True
        self._late.start()

    def finish(self) -> None:
        self._late.cancel()
        with contextlib.suppress(OSError):  # the browser is gone
            super().finish()

    def _cut_off(self) -> None:
        """Ends a request that comes byte by byte, each in time."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        server = cast(Server, self.server)
        path = self._trusted_path()
        if path is not None:
            self._work(lambda: server.site.page(path), HTTPStatus.OK)

    def do_POST(self) -> None:
        server = cast(Server, self.server)
        path = self._trusted_path()
        if path is None:
            return
        if self.headers.get("Origin") not in {f"http://{name}" for name in server.names}:
            self._refuse("a guest is started from a page of this report only")
        elif self.headers.get("Content-Length", "0") != "0":
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "nothing more is asked for", plain=True)
        else:
            # then to its page: to load that again starts nothing
            self._work(lambda: server.site.look(path), HTTPStatus.SEE_OTHER, f"{server.site.root}{path}")

    def _trusted_path(self) -> str | None:
        """The path behind the secret of the address; None where that is wrong, which has been answered."""
        self._late.cancel()
        server = cast(Server, self.server)
        if self.headers.get("Host") not in server.names:  # a page elsewhere that gave its name our address
            self._refuse("powercut answers on loopback only")
            return None
        _, given, *rest = [*urllib.parse.urlsplit(self.path).path.split("/", 2), ""]
        if not secrets.compare_digest(given.encode("utf-8", "surrogatepass"), server.secret.encode()):
            self._refuse("open the address that powercut report --serve has printed, with its secret")
            return None
        return f"/{rest[0]}"

    def _work(self, page: _Page, status: HTTPStatus, location: str = "") -> None:
        """Answer with what the owner of the run makes, or with the error that it comes to."""
        try:
            self._answer(status, cast(Server, self.server).do(page) or "", location=location)
        except queue.Full:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "others are looking; try again later", plain=True)
        except UsageError as e:
            self._answer(HTTPStatus.NOT_FOUND, e.line, plain=True)
        except PowercutError as e:
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, e.line, plain=True)

    def _refuse(self, why: str) -> None:
        self._answer(HTTPStatus.FORBIDDEN, why, plain=True)

    def _answer(self, status: HTTPStatus, text: str, *, plain: bool = False, location: str = "") -> None:
        body = text.encode("utf-8", "backslashreplace")
        headers = dict(_HEADERS) | ({"Location": location} if location else {})
        if plain:
            headers["Content-Type"] = "text/plain; charset=utf-8"
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: the terminal is not a log of requests."""


class Server(ThreadingHTTPServer):
    """Requests are read in threads, a bounded number of them, and answered one at a time by whoever called
    `work`: a run has one database, a guest is enough for this host, and ends with the thread that started it.
    """

    daemon_threads = True

    def __init__(self, site: Site, port: int = 0) -> None:
        super().__init__((HOST, port), _Handler)
        self.site = site
        self.names = {f"{name}:{self.server_port}" for name in (HOST, "localhost")}
        self.secret = secrets.token_urlsafe(32)
        site.root = f"/{self.secret}"
        self._connections = threading.BoundedSemaphore(CONNECTIONS)
        self._asked: queue.Queue[tuple[Future[str | None], _Page] | None] = queue.Queue(WAITING)

    @property
    def url(self) -> str:
        """With the secret that every request must have: other users of this host can connect as well."""
        return f"http://{HOST}:{self.server_port}{self.site.root}/"

    def work(self) -> None:
        """Accept requests, and answer them in this thread, until `shutdown` or Ctrl-C."""
        accepts = threading.Thread(target=self.serve_forever, name="accept", daemon=True)
        accepts.start()
        try:
            while (asked := self._asked.get()) is not None:
                _do(*asked)
        finally:
            super().shutdown()

    def shutdown(self) -> None:
        """End `work`, from another thread."""
        self._asked.put(None)

    def do(self, page: _Page) -> str | None:
        """What this comes to in the thread that is in `work`. Raises queue.Full where as many wait as may."""
        done: Future[str | None] = Future()
        self._asked.put_nowait((done, page))
        return done.result()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Where there are too many connections, this one is closed."""
        if self._connections.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks off is nothing to tell; an error of ours is."""
        if not isinstance(sys.exception(), OSError):
            errors.block(traceback.format_exc())


def _do(done: Future[str | None], page: _Page) -> None:
    try:
        done.set_result(page())
    except Exception as e:  # its thread answers with it
        done.set_exception(e)
