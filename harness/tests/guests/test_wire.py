"""Frames and messages. The Rust side reads the same vectors: `vms/protocol/tests/vectors.rs`."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from harness.guests import wire
from harness.model import CrashState
from harness.tests.guests.samples import UNIONS, VECTORS, vectors


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    a, b = socket.socketpair()
    with a, b:
        yield a, b


def soon() -> float:
    return time.monotonic() + 20


def _stored() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(VECTORS.read_text())
    return stored


@pytest.mark.parametrize("vector", _stored()["messages"], ids=lambda vector: vector["name"])
def test_vectors_survive_byte_for_byte(vector: dict[str, Any]) -> None:
    body = bytes.fromhex(vector["hex"])
    message = wire.decode(body, UNIONS[vector["type"]])
    assert wire.encode(message) == body


def test_vectors_are_the_samples() -> None:
    assert _stored() == vectors(), "python -m harness.tests.guests.samples writes the file anew"


def test_a_frame_is_a_length_and_a_body(pair: tuple[socket.socket, socket.socket]) -> None:
    wire.send(pair[0], wire.Switched(), soon())
    assert pair[1].recv(100) == b"\x0f\0\0\0\x81\xa4type\xa8switched"


def test_a_large_message_passes_through_a_small_socket(pair: tuple[socket.socket, socket.socket]) -> None:
    message = wire.PutFile(path="/x", mode=0o644, data=bytes(8 << 20))
    sender = threading.Thread(target=wire.send, args=(pair[0], message, soon()))
    sender.start()
    assert wire.receive(pair[1], wire.AgentRequest, soon()) == message
    sender.join()


def test_a_silent_peer_runs_into_the_deadline(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[0].send(b"\x05\0\0\0ab")
    with pytest.raises(wire.WireTimeoutError):
        wire.receive(pair[1], wire.DiskReply, time.monotonic() + 0.05)
    with pytest.raises(wire.WireTimeoutError):
        wire.send(pair[0], wire.DiskFailed(what="x" * (8 << 20)), time.monotonic() + 0.05)


def test_a_peer_that_goes_is_told_from_one_that_is_silent(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    pair[0].send(b"\x05\0\0\0ab")
    pair[0].close()
    with pytest.raises(wire.WireClosedError, match="after 2 of 5 bytes"):
        wire.receive(pair[1], wire.DiskReply, soon())
    with pytest.raises(wire.WireClosedError):
        wire.send(pair[1], wire.Stats(), soon())


@pytest.mark.parametrize(
    "frame",
    [
        b"\xff\xff\xff\xff",
        b"\x01\0\0\0\xc1",
        b"\x0e\0\0\0\x81\xa4type\xa7explode",
        b"\x12\0\0\0\x82\xa4type\xa8switched\xa1x\x01",
    ],
    ids=["too long", "no MessagePack", "unknown type", "unknown field"],
)
def test_what_is_no_message_is_refused(pair: tuple[socket.socket, socket.socket], frame: bytes) -> None:
    pair[0].send(frame)
    with pytest.raises(wire.WireError):
        wire.receive(pair[1], wire.DiskReply, soon())


def test_a_message_that_is_too_long_is_not_sent(pair: tuple[socket.socket, socket.socket]) -> None:
    limit = wire.LIMITS["STRUCTURED_FRAME_BYTES"]
    with pytest.raises(wire.WireError, match=f"longer than a frame may be, {limit}"):
        wire.send(pair[0], wire.DiskFailed(what="x" * limit), soon())
    with pytest.raises(wire.WireError, match="longer than a frame may be"):
        wire.decode(b"\x00" * (limit + 1), wire.AgentReply)


def test_a_crash_state_becomes_a_message() -> None:
    state = wire.State.of(CrashState(417, (402, 405), 3))
    assert (state.prefix, state.dropped, state.torn_sectors) == (417, [402, 405], 3)
