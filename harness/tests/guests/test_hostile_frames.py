"""Whatever a guest or a disk sends, the host gets a message or a WireError, and memory within the limits."""

from __future__ import annotations

import resource
import socket
import struct
import subprocess
import sys
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import PowercutError
from harness.guests import wire
from harness.guests.operations import check_results
from harness.guests.outcomes import outcome_of
from harness.model import ExtentKind, FileKind, Operation, OperationKind
from harness.tests.budget import budget
from harness.tests.guests.samples import SAMPLES, UNIONS

BODIES = [wire.encode(message) for _, _, message in SAMPLES]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def decoded(body: bytes) -> list[Any]:
    """What the host makes of it, as each kind of message; anything but a WireError is a defect."""
    found = []
    for union in UNIONS.values():
        try:
            found.append(wire.decode(body, union))
        except wire.WireError:
            continue
    return found


def used(message: Any) -> None:
    """What the host does with a guest's answer."""
    try:
        if isinstance(message, wire.Recovered):
            outcome_of(message)
        if isinstance(message, wire.OperationsDone):
            check_results(message.results, 0, [Operation(OperationKind.SYNC)] * 2)
    except PowercutError:
        pass


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A message with a few bytes changed, removed, inserted or cut off."""
    body = bytearray(draw(st.sampled_from(BODIES)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(body) - 1)))
        match draw(st.sampled_from(["change", "remove", "insert", "cut"])):
            case "change":
                body[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case "remove":
                del body[at : at + draw(st.integers(1, 4))]
            case "insert":
                body[at:at] = draw(st.binary(min_size=1, max_size=4))
            case _:
                del body[at:]
    return bytes(body)


@st.composite
def misshapen(draw: st.DrawFn) -> bytes:
    """A message of which one field, at any depth, has another value."""
    message: Any = msgspec.msgpack.decode(draw(st.sampled_from(BODIES)))
    place = message
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = draw(st.sampled_from(keys))
        inner = place[key]
        if not (isinstance(inner, dict | list) and inner and draw(st.booleans())):
            place[key] = draw(VALUES)
            return msgspec.msgpack.encode(message)
        place = inner


@pytest.mark.fuzz
@budget(60)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_wire_error(body: bytes) -> None:
    """UnicodeDecodeError, RecursionError and others came through: 5 of 16 hostile guests ended the run."""
    for message in decoded(body):
        used(message)


@pytest.mark.fuzz
@budget(60)
@given(damaged())
def test_a_damaged_message_is_a_message_or_a_wire_error(body: bytes) -> None:
    for message in decoded(body):
        used(message)


@pytest.mark.fuzz
@budget(60)
@given(misshapen())
def test_a_message_with_a_strange_value_is_a_message_or_a_wire_error(body: bytes) -> None:
    for message in decoded(body):
        used(message)


@pytest.mark.parametrize("body", BODIES, ids=[name for name, _, _ in SAMPLES])
def test_every_cut_of_a_message_is_refused(body: bytes) -> None:
    for end in range(len(body)):
        assert not decoded(body[:end])


@pytest.mark.parametrize(
    "body",
    [
        b"\x81\xa4type\xa1\xff",
        b"\x82\xa1x" + b"\x91" * 100_000 + b"\x01\xa4type\xa4done",
        b"\x83\xa4type\xa6failed\xa4what\xa0\xa5errno\xcf" + b"\xff" * 8,
        b"\x83\xa4type\xa6failed\xa4what\xa2\xc3\x28\xa5errno\x05",
        b"\x82\xa4type\xafoperations_done\xa7results\xdd\xff\xff\xff\xff",
        b"",
    ],
    ids=["no UTF-8 type", "deep", "a large errno", "no UTF-8 text", "a long list", "nothing"],
)
def test_what_came_through_as_another_error_is_a_wire_error(body: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.decode(body, wire.AgentReply)


def test_what_has_no_encoding_is_a_wire_error() -> None:
    """A lone surrogate was a UnicodeEncodeError, a number of 65 bits an OverflowError."""
    for message in (
        wire.Image(path="\udc80"),
        wire.Unmounted(unmount_errno=1 << 64, kernel_log=[], log_complete=True),
        wire.FaultEnded(hits=-(1 << 64)),
    ):
        with pytest.raises(wire.WireError, match="cannot be encoded"):
            wire.encode(message)


def long_list(of: bytes, count: int) -> bytes:
    """`Unmounted` whose kernel log is `count` times `of`."""
    head = b"\x84\xa4type\xa9unmounted\xadunmount_errno\x00\xaakernel_log\xdd"
    return head + struct.pack(">I", count) + of * count + b"\xaclog_complete\xc3"


def test_a_list_longer_than_its_limit_is_refused() -> None:
    limit = wire.LIMITS["LOG_LINES"]
    assert len(wire.decode(long_list(b"\xa2ab", limit), wire.AgentReply).kernel_log) == limit
    with pytest.raises(wire.WireError, match="length <= 4096"):
        wire.decode(long_list(b"\xa2ab", limit + 1), wire.AgentReply)


# Each is the worst frame of its kind that is not refused at once: many small strings, extents, entries.
_HOSTILE = """
import resource, sys
from harness.guests import wire
from harness.guests.outcomes import outcome_of
from harness.tests.guests.test_hostile_frames import worst

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
body = worst(sys.argv[1])
try:
    outcome_of(wire.decode(body, wire.AgentReply))
except wire.WireError:
    pass
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def worst(kind: str) -> bytes:
    """A frame as long as it may be, of what takes most memory for its length."""
    limit = wire.LIMITS["STRUCTURED_FRAME_BYTES"]
    if kind == "strings":
        return long_list(b"\xa2ab", (limit - 100) // 3)
    run = wire.encode(wire.Extent(ExtentKind.ZERO, 0, 1, 0, 0, b""))
    xattr = wire.encode(wire.Xattr("ab", b""))
    entry = wire.TreeEntry(b"", FileKind.FILE, 2, 0, 1, 0, 0, 0, 0, b"", [], [], "")
    seen = wire.encode(wire.Recovered(0, [], [], 0, [], True, 0, 0, 0))
    field, inner, most = {
        "extents": (b"\xa7extents", run, wire.LIMITS["EXTENTS"]),
        "xattrs": (b"\xa6xattrs", xattr, wire.LIMITS["XATTRS"]),
    }[kind]
    one = wire.encode(entry)
    room = limit - 300
    entries = b""
    count = 0
    while len(entries) + len(one) + 5 < room:
        fits = min(most, (room - len(entries) - len(one) - 5) // len(inner))
        entries += one.replace(field + b"\x90", field + b"\xdd" + struct.pack(">I", fits) + inner * fits)
        count += 1
    return seen.replace(b"\xa7entries\x90", b"\xa7entries\xdd" + struct.pack(">I", count) + entries)


@pytest.mark.parametrize("kind", ["strings", "extents", "xattrs"])
def test_the_worst_frame_takes_a_bounded_amount_of_memory(kind: str) -> None:
    """64 MiB of short strings took 1.6 GB."""
    done = subprocess.run(
        [sys.executable, "-c", _HOSTILE, kind], capture_output=True, text=True, check=True, timeout=300
    )
    assert int(done.stdout) < 400, "MiB"


def test_a_frame_of_a_hostile_length_allocates_nothing() -> None:
    a, b = socket.socketpair()
    with a, b:
        a.send(b"\xff\xff\xff\xff")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(wire.WireError, match="4294967295 bytes"):
            wire.receive(b, wire.AgentReply, time.monotonic() + 20)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
