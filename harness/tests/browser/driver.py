"""A browser without a screen: chromium, by the W3C WebDriver protocol of chromedriver, on loopback."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.tests.needs import need_program

_WAIT_S = 60
ENTER, ESCAPE = "\ue007", "\ue00c"


class Browser:
    """A page that is open. Each call ends after a minute, at the latest."""

    def __init__(self, base: str, session: str) -> None:
        self._base, self._session = base, session

    def open(self, page: Path, fragment: str = "") -> None:
        """Load a file anew."""
        self._ask("url", {"url": "about:blank"})
        self._ask("url", {"url": page.as_uri() + fragment})

    def run(self, script: str) -> Any:
        """The value that a script returns."""
        return self._ask("execute/sync", {"script": script, "args": []})

    def keys(self, text: str) -> None:
        """Press and release keys, wherever the focus is."""
        actions = [{"type": kind, "value": c} for c in text for kind in ("keyDown", "keyUp")]
        self._ask("actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def resize(self, width: int, height: int) -> None:
        self.cdp(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=True
        )

    def dark(self, dark: bool) -> None:
        value = "dark" if dark else "light"
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def cdp(self, command: str, **parameters: Any) -> Any:
        return self._ask("goog/cdp/execute", {"cmd": command, "params": parameters})

    def _ask(self, what: str, body: object) -> Any:
        return ask(f"{self._base}/session/{self._session}/{what}", body)


def ask(url: str, body: object = None, method: str = "POST") -> Any:
    """The `value` of an answer. Raises AssertionError with the driver's message."""
    data = json.dumps(body if body is not None else {}).encode() if method == "POST" else None
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310  # our own, on loopback
    try:
        with urllib.request.urlopen(request, timeout=_WAIT_S) as answer:  # noqa: S310  # as above
            return json.loads(answer.read())["value"]
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode(errors="replace")) from error


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Start chromedriver and one browser, which keeps its profile in `folder`."""
    need_program("chromium")
    need_program("chromedriver")
    program = shutil.which("chromedriver") or "chromedriver"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    base = f"http://127.0.0.1:{port}"
    driver = subprocess.Popen(
        [program, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    session = ""
    try:
        _need_ready(base)
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        asked = {"goog:chromeOptions": {"args": [*options, f"--user-data-dir={folder}"]}}
        session = ask(f"{base}/session", {"capabilities": {"alwaysMatch": asked}})["sessionId"]
        yield Browser(base, session)
    finally:
        with contextlib.suppress(OSError, AssertionError):
            if session:
                ask(f"{base}/session/{session}", method="DELETE")
        driver.terminate()
        driver.wait(_WAIT_S)


def _need_ready(base: str) -> None:
    for _ in range(_WAIT_S * 10):
        with contextlib.suppress(OSError):
            ask(f"{base}/status", method="GET")
            return
        time.sleep(0.1)
    raise AssertionError("chromedriver did not start")
