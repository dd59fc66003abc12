"""A recording as a trace for the viewer Perfetto (https://ui.perfetto.dev), for `powercut log ls --perfetto`.

The package `perfetto` writes the format. The viewer wants nanoseconds: an event of the recording counts as a
microsecond, since the clock of an emulated guest means nothing, and the order of events is what is known.
"""

from __future__ import annotations

import heapq
import importlib.util
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.cli.block_texts import Texts
from harness.errors import EnvironmentLacks
from harness.host.text import one_line
from harness.model import LogEntry
from harness.writelog.calls import ProgramCalls
from harness.writelog.times import TimedFlush, TimedWrite, Times

EVENT_NS = 1000
"""How long an event of the recording takes in the viewer."""

_OPERATION = re.compile(r"(begin|ack) ([0-9]{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Slice:
    """From one event to another; `end` None: an instant."""

    name: str
    begin: int
    end: int | None
    notes: Mapping[str, int | str] = field(default_factory=dict)

    @property
    def last(self) -> int:
        return self.begin if self.end is None else self.end


def need_perfetto() -> None:
    """Raises EnvironmentLacks where the package is not installed."""
    if importlib.util.find_spec("perfetto") is None:
        raise EnvironmentLacks(
            "--perfetto needs the Python package perfetto", "run: pip install 'powercut[perfetto]'"
        )


def trace_of(entries: Sequence[LogEntry], times: Times, calls: ProgramCalls, texts: Texts) -> bytes:
    """The trace of these entries of a log, and of calls: a track for the operations, one for other marks, one
    for each thread that calls, and for each device its writes and flushes from submission to completion.
    What is in flight together lies on tracks of the same name, which the viewer shows as one.
    """
    chosen = {entry.index: entry for entry in entries}
    writer = _Writer()
    operations, marks = _marks(chosen, times, texts)
    writer.tracks("operations", operations)
    writer.tracks("marks", marks)
    for thread in dict.fromkeys(call.thread for call in calls.calls):
        own = [c for c in calls.calls if c.thread == thread]
        writer.tracks(
            f"calls of thread {thread}",
            [_Slice(c.text, c.began, c.returned, {"outcome": c.outcome}) for c in own],
        )
    for device, number in enumerate(texts.devices.numbers):
        name = f"disk {number}" if len(texts.devices.numbers) > 1 else "disk"
        requests: list[TimedWrite | TimedFlush] = [*times.writes, *times.flushes]
        own_requests = [r for r in requests if r.entry in chosen and r.device == device]
        writer.tracks(name, [_request(r, chosen[r.entry], texts) for r in own_requests])
    return writer.trace()


def _marks(chosen: Mapping[int, LogEntry], times: Times, texts: Texts) -> tuple[list[_Slice], list[_Slice]]:
    """Operations from their beginning to their acknowledgement, and all other marks."""
    begun: dict[str, tuple[int, str]] = {}
    operations: list[_Slice] = []
    others: list[_Slice] = []
    for mark in times.marks:
        if mark.entry not in chosen:
            continue
        found = _OPERATION.fullmatch(mark.text)
        text = texts.line(chosen[mark.entry])
        if found is None:
            others.append(_Slice(text, mark.at, None))
        elif found[1] == "begin":
            begun[found[2]] = (mark.at, text.removeprefix(f"{mark.text}  "))
        elif found[2] in begun:
            at, name = begun.pop(found[2])
            operations.append(_Slice(name, at, mark.at, {"operation": int(found[2])}))
    operations += [_Slice(f"{name} (not acknowledged)", at, None) for at, name in begun.values()]
    return operations, others


def _request(request: TimedWrite | TimedFlush, entry: LogEntry, texts: Texts) -> _Slice:
    flags = "|".join((f.name or "").lower() for f in entry.flags)
    what = texts.what(entry) or "write" if entry.sectors else flags
    notes: dict[str, int | str] = {"entry": entry.index, "sector": entry.sector, "sectors": entry.sectors}
    notes["flags"] = flags
    return _Slice(one_line(what), request.submitted, request.completed, notes)


class _Writer:
    """Tracks and their events, as packets of a trace. All have one sequence, whose ids begin at 1."""

    def __init__(self) -> None:
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent  # noqa: PLC0415  # an extra
        from perfetto.trace_builder.proto_builder import TraceProtoBuilder  # noqa: PLC0415  # an extra

        self._kinds = TrackEvent
        self._builder = TraceProtoBuilder()
        self._tracks = 0

    def trace(self) -> bytes:
        data: bytes = self._builder.serialize()
        return data

    def tracks(self, name: str, slices: Iterable[_Slice]) -> None:
        """As many tracks of this name as are needed so that no two slices of one overlap."""
        free: list[tuple[int, int]] = []  # the event at which a track becomes free, and its id
        for one in sorted(slices, key=lambda s: (s.begin, s.last)):
            track = heapq.heappop(free)[1] if free and free[0][0] <= one.begin else self._new_track(name)
            self._put(track, one)
            heapq.heappush(free, (one.last, track))

    def _new_track(self, name: str) -> int:
        self._tracks += 1
        descriptor = self._packet().track_descriptor
        descriptor.uuid, descriptor.name = self._tracks, name
        return self._tracks

    def _put(self, track: int, one: _Slice) -> None:
        kinds = self._kinds
        kind = kinds.TYPE_INSTANT if one.end is None else kinds.TYPE_SLICE_BEGIN
        event = self._event(track, one.begin, kind)
        event.name = one.name
        for key, value in one.notes.items():
            note = event.debug_annotations.add()
            note.name = key
            if isinstance(value, int):
                note.int_value = value
            else:
                note.string_value = value
        if one.end is not None:
            self._event(track, one.end, kinds.TYPE_SLICE_END)

    def _event(self, track: int, at: int, kind: int) -> Any:
        packet = self._packet()
        packet.timestamp = at * EVENT_NS
        event = packet.track_event
        event.type, event.track_uuid = kind, track
        return event

    def _packet(self) -> Any:
        packet = self._builder.add_packet()
        packet.trusted_packet_sequence_id = 1
        return packet
