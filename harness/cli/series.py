"""What the commands have in common that carry out a series: campaign, faults, history, litmus, matrix, patch,
regressions, verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from harness.cli.console import console
from harness.errors import EnvironmentLacks, ExitCode, UsageError
from harness.host.progress import progress_for
from harness.kernels.find import look_up_kernel
from harness.kernels.packages import cached_packages, offered
from harness.kernels.pins import Pin, version_of
from harness.report.page import Page
from harness.report.words import shown_path
from harness.series.journal import DoneT, End
from harness.series.work import Series, carry_out

CODES = {"fail": ExitCode.INCONSISTENT, "unknown": ExitCode.UNDECIDED, "pass": ExitCode.CONSISTENT}
"""The exit code for the kind of a page."""


def absolute_kernels(names: Iterable[str]) -> list[str]:
    """Each once, however it is named; files of the user's own by their absolute paths: a series is resumed
    from any folder.
    """
    found = dict.fromkeys(str(Path(n).resolve()) if Path(n).is_file() else n for n in names)
    pinned = {name: known for name in found if (known := _pinned(name))}
    named = Counter(pin.name for pin, _ in pinned.values())
    twice = {name: known for name, known in pinned.items() if named[known[0].name] > 1}
    meant = {name: (pin.name, version or _newest(pin)) for name, (pin, version) in twice.items()}
    kernels: dict[object, str] = {}
    for name in found:
        kernels.setdefault(meant.get(name, name), name)
    return list(kernels.values())


def _pinned(name: str) -> tuple[Pin, str] | None:
    """See `look_up_kernel`; None as well of what names no kernel, which the series refuses."""
    try:
        return look_up_kernel(name)
    except UsageError:
        return None


def _newest(pin: Pin) -> str:
    """The version that a pin's own name stands for, as far as apt or the cache tells."""
    try:
        found = offered(pin)
    except EnvironmentLacks:
        found = None
    packages = [found[0]] if found else cached_packages(pin)
    return version_of(pin, packages[-1]) if packages else ""


def run_series(series: Series[DoneT], what: str, again: str, until_s: float | None = None) -> End:
    """Carry out a series, and show what it has come to. `what`: of it, before it begins; `again`: the command
    that goes on with it; `until_s`: see `carry_out`.
    """
    end = work_at(series, f"{shown_path(series.path)}: {what}", until_s)
    show_series(series, end, again)
    return end


def work_at(series: Series[DoneT], what: str, until_s: float | None = None) -> End:
    """Carry out a series, or a part of it, and show what happens."""
    console.say(what)
    with progress_for(console) as progress:
        return carry_out(series, progress, until_s=until_s)


def show_series(series: Series[DoneT], end: End, again: str) -> None:
    """What a series has come to."""
    page = series.page()
    show_page(page)
    if end is not End.COMPLETE and not page.again:
        console.say(f"{end}; continue with: {again}")
    console.say(f"report: {shown_path(series.path / 'report.html')}")


def show_page(page: Page) -> None:
    """A page as text, as wide as the terminal; a file has no width."""
    console.block(page.text(console.width if console.is_terminal else 0))
