"""`powercut log`."""

from __future__ import annotations

import bisect
import contextlib
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from harness.cli.block_texts import Texts, blkparse_lines, texts_of
from harness.cli.console import console
from harness.cli.guard import guarded
from harness.cli.options import NewFile, RunDirectory, bounded, open_run, source_option
from harness.cli.perfetto import need_perfetto, trace_of
from harness.errors import UsageError
from harness.filesystems.profiles import ruled_modes
from harness.findings.named import finding_by_id, not_a_point
from harness.guests.recorded_log import EVENTS_BYTES_MAX
from harness.host.files import json_line, write_atomically
from harness.host.folders import OwnedFolder
from harness.host.packed import unpack
from harness.host.text import named_few, one_line
from harness.model import CaseId, LogEntry, bounds
from harness.plan import LOG_BYTES
from harness.store import RunStore
from harness.store.bundle import holds_a_run, packed_case
from harness.writelog import WriteLog, read_log, select
from harness.writelog.calls import NOT_NOTED, Places, ProgramCall, ProgramCalls, calls_of
from harness.writelog.events import times_of
from harness.writelog.times import TimedFlush, Times

_EXAMPLES = """\b
powercut log ls ext4-ordered/append-fsync
powercut log ls 1f2e3d4c5b6a --from run.tar.zst --by-time
powercut log ls /dev/sdb --start-mark fsync --next-flush
powercut log ls ext4-ordered/append-fsync --perfetto append.pftrace
"""


@click.group("log")
def log_group() -> None:
    """Look into write logs (the format of dm-log-writes).

    \b
    powercut log ls ext4-ordered/append-fsync
    """


@log_group.command("ls", epilog=_EXAMPLES)
@click.argument("named", metavar="CASE|FILE", required=False)
@source_option
@click.option("--limit", type=bounded(bounds.Rows), help="List at most this many entries.")
@click.option("--start-entry", type=bounded(bounds.Entries), default=0, show_default=True)
@click.option("--start-mark", help="Begin after this mark.")
@click.option("--end-mark", help="End with this mark.")
@click.option("--next-flush", is_flag=True, help="Only up to the next flush.")
@click.option("--next-fua", is_flag=True, help="Only up to the next FUA write.")
@click.option(
    "--log-size",
    "log_mib",
    type=bounded(bounds.LogMib),
    default=LOG_BYTES >> 20,
    show_default=True,
    metavar="MIB",
    help="Refuse a packed log that would unpack to more.",
)
@click.option("--by-time", is_flag=True, help="In the order of submission, not of the log.")
@click.option("--names/--no-names", default=True, show_default=True, help="Say what each write wrote.")
@click.option(
    "--calls/--no-calls",
    "show_calls",
    default=True,
    show_default=True,
    help="List the system calls of a workload's programs.",
)
@click.option(
    "--blkparse",
    is_flag=True,
    help="In the form of blkparse(1), by time; where that has a time, the number of an event, where it has "
    "a process, what was written.",
)
@click.option(
    "--perfetto",
    type=NewFile(),
    metavar="FILE",
    help="Write a trace for ui.perfetto.dev instead; an event of the recording is a microsecond there. Needs "
    "pip install 'powercut[perfetto]'.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print a JSON object for each entry, and each system call."
)
@guarded
def log_ls(
    log_mib: int,
    by_time: bool,
    names: bool,
    show_calls: bool,
    blkparse: bool,
    perfetto: Path | None,
    as_json: bool,
    **selection: Any,
) -> None:
    """List the entries of a write log: that of a case of a run, any other log file, or a log device.

    A case is named by itself, by one of its crash points or by a finding of it; it need not be named where
    the run has one alone.

    \b
    entry      its number: @41 is the disk after the entries 0 to 40
    flags      of the request: FLUSH, FUA, METADATA, DISCARD; MARK: not written, see below
    submitted  when it was sent to the disk, as the number of an event; completed: when the disk was done
    call       a system call of a workload's program
    begin 3    operation 3 begins; ack 3: it has returned; app TEXT: powercut-ack TEXT

    In a run directory, marks show their operations, and writes what they wrote: metadata by its place and its
    contents, file data by the operation that wrote it. A question mark stands behind a name that follows from
    other blocks.

    Entries stand in the log's order, in which a write that nobody flushed comes late, behind acknowledgements
    that it preceded. Where the run has the events of the log, each write and flush shows when it was
    submitted and completed, as numbers of events, and each mark when it was made; --by-time lists them in
    that order. The system calls of a workload's programs stand between the entries, with the events at which
    they began and returned. Of a flush that may be one of two, both are shown: 9|12. Where two devices were
    recorded, each write and flush shows of which it is.
    """
    file = _log_of(selection.pop("named"), selection.pop("source"))
    _need_log(file)
    if perfetto is not None:
        need_perfetto()
    with _plain_log(file, log_mib << 20) as path:
        log = replace(read_log(path), path=file)
        text = _events(file.with_name("events.zst"))
        joined = times_of(log.entries, text) if text else None
        times = _shown(joined) if joined else {}
        most = selection.pop("limit") if by_time else None
        chosen = list(select(log, **selection))
        if (by_time or blkparse or perfetto) and not times:
            raise UsageError(f"{file} has no times", "they are in events.zst beside a run's log.zst")
        if by_time:
            chosen = sorted(chosen, key=lambda entry: _first(times.get(entry.index, "")))[:most]
        order = sorted(times, key=lambda n: _first(times[n]))
        texts = texts_of(file, log, path, order) if names else Texts(devices=log.devices)
        if blkparse:
            for line in blkparse_lines(chosen, times, texts):
                console.say(line)
            return
        calls = calls_of(text) if joined and show_calls else NOT_NOTED
        if perfetto is not None and joined is not None:
            write_atomically(perfetto, trace_of(chosen, joined, calls, texts))
            console.say(f"{perfetto}: open it at https://ui.perfetto.dev")
            return
        among = list(_among(chosen, _placed(calls, log, joined, times, by_time=by_time)))
        if as_json:
            _say_rows(among, times, texts)
        else:
            _say_lines(among, times, texts, calls.more or 0)


def _say_rows(among: Iterable[LogEntry | ProgramCall], times: dict[int, str], texts: Texts) -> None:
    for at in among:
        row = _call_row(at) if isinstance(at, ProgramCall) else _row(at, times) | texts.row(at)
        console.say(json_line(row))


def _say_lines(
    among: Iterable[LogEntry | ProgramCall], times: dict[int, str], texts: Texts, not_noted: int
) -> None:
    if texts.earlier:
        console.say(one_line(f"before this log: {texts.earlier}"))
    console.say(_line("entry", "flags", "submitted..completed" if times else "", "what"))
    for at in among:
        if isinstance(at, ProgramCall):
            console.say(_line("", "call", _when(at), one_line(f"{at.text} {at.outcome}")))
            continue
        flags = "|".join(f.name or "" for f in at.flags) or "-"
        when = times.get(at.index, "-" if times else "")
        console.say(_line(str(at.index), flags, when, texts.line(at)))
    if not_noted:
        console.say(f"{not_noted} more calls, the last, were not noted")


def _line(entry: str, flags: str, when: str, what: str) -> str:
    """A row; `when` takes its place even where it is `-`, and none in a log without times."""
    submitted, _, completed = when.partition("..")
    when = f"{submitted:>9} {completed:>9}  " if when else ""
    return f"{entry:>8} {flags:12} {when}{what}"


def _first(when: str) -> int:
    """The event with which an entry begins; one without times, which has no bio of its own, stands last."""
    return int(re.split(r"[|.]", when)[0]) if when else sys.maxsize


def _row(entry: LogEntry, times: dict[int, str]) -> dict[str, object]:
    return {
        "entry": entry.index,
        "flags": [(f.name or "").lower() for f in entry.flags],
        "sector": entry.sector,
        "sectors": entry.sectors,
        "mark": entry.mark,
        "times": times.get(entry.index, ""),
    }


def _placed(
    calls: ProgramCalls, log: WriteLog, joined: Times | None, times: dict[int, str], *, by_time: bool
) -> dict[int, list[ProgramCall]]:
    """The calls by the number of the entry that they stand before."""
    placed: dict[int, list[ProgramCall]] = {}
    if joined is None:
        return placed
    if by_time:
        order = sorted((_first(when), number) for number, when in times.items())
        starts = [at for at, _ in order]
        for call in calls.calls:
            after = bisect.bisect_left(starts, call.began)
            placed.setdefault(order[after][1] if after < len(order) else -1, []).append(call)
        return placed
    places = Places(log.entries, joined)
    for call in calls.calls:
        placed.setdefault(places.before(call.began), []).append(call)
    return placed


def _among(
    entries: Iterable[LogEntry], placed: dict[int, list[ProgramCall]]
) -> Iterator[LogEntry | ProgramCall]:
    for entry in entries:
        yield from placed.get(entry.index, ())
        yield entry


def _when(call: ProgramCall) -> str:
    return f"{call.began}..{'-' if call.returned is None else call.returned}"


def _call_row(call: ProgramCall) -> dict[str, object]:
    return {
        "call": call.text,
        "thread": call.thread,
        "outcome": call.outcome,
        "times": _when(call),
    }


def _events(file: Path) -> str:
    """The text of a log's events; empty where it has none."""
    if not file.is_file() or file.is_symlink():
        return ""
    with OwnedFolder("powercut-log-") as folder:
        return unpack(file, folder.path / "events", EVENTS_BYTES_MAX).read_text(errors="backslashreplace")


def _shown(times: Times) -> dict[int, str]:
    """What to show of each entry's times, by number."""
    shown = {mark.entry: str(mark.at) for mark in times.marks}
    shown |= {write.entry: f"{write.submitted}..{write.completed}" for write in times.writes}
    return shown | {flush.entry: f"{_submitted(flush)}..{flush.completed}" for flush in times.flushes}


def _submitted(flush: TimedFlush) -> str:
    return str(flush.submitted) if flush.since is None else f"{flush.since}|{flush.submitted}"


def _log_of(named: str | None, source: Path) -> Path:
    """The file of the log that is named: a path that is there, or a case of the run `source`; of a run that
    is named itself, the only case. Raises UsageError for another word.
    """
    if named is not None and (path := Path(named)).exists():
        if not path.is_dir() and not holds_a_run(path):
            return path
        named, source = None, _unpacked(path)
    elif named is not None and named.startswith(("/", ".")):
        raise UsageError(f"there is no {named}", "name a case of a run, or a log.zst under its cases/")
    with open_run(source) as store:
        case = _only_case(store) if named is None else _case_named(named, store)
        file = store.layout.case(case).log
    if not file.exists():
        if case.filesystem in {profile.filesystem for profile in ruled_modes().values()}:
            raise UsageError(
                f"{case} has no write log: its mode is rules alone",
                "the calls of its program are in report.html, and in what powercut show says of a finding",
            )
        raise UsageError(
            f"the run {store.path.name} has no log of {case}",
            "it came without recordings, or the case was not recorded",
        )
    return file


def _unpacked(path: Path) -> Path:
    """The run directory that `path` is, or is a package of."""
    found = RunDirectory().convert(path, None, click.get_current_context())
    return Path(found)


def _case_named(text: str, store: RunStore) -> CaseId:
    if (finding := finding_by_id(text, store)) is not None:
        return finding.case
    try:
        case = CaseId.named_in(text)
    except ValueError as e:
        raise UsageError(*not_a_point(text, store, str(e))) from e
    known = [c.case for c in store.cases()]
    if case not in known:
        raise UsageError(
            f"the run {store.path.name} has no case {case}", f"it has: {named_few([*map(str, known)])}"
        )
    return case


def _only_case(store: RunStore) -> CaseId:
    known = [c.case for c in store.cases()]
    if len(known) == 1:
        return known[0]
    if (packed := packed_case(store.layout)) in known:
        return packed
    has = named_few([*map(str, known)])
    raise UsageError(f"the run {store.path.name} has {len(known)} cases", f"name one: {has}")


def _need_log(file: Path) -> None:
    """Raises UsageError for a file that is not there."""
    if not file.exists():
        raise UsageError(f"there is no {file}", "name a run's log.zst: reports/latest/cases/.../log.zst")


@contextlib.contextmanager
def _plain_log(file: Path, limit_bytes: int) -> Iterator[Path]:
    """`file`, unpacked if it is a run's compressed log."""
    if not file.is_file() and not file.is_block_device():
        raise UsageError(
            f"{file} is not a file", "name a log.zst under cases/ in a run directory, or a log device"
        )
    if file.suffix != ".zst":
        yield file
        return
    with OwnedFolder("powercut-log-") as folder:
        yield unpack(file, folder.path / "log", limit_bytes)
