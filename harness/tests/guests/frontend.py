"""The guest's end of a vhost-user-blk device, in as few lines as it takes to read and write.

QEMU's docs/interop/vhost-user.rst (messages), Virtual I/O Device 1.2, sections 2.7 (split queues) and
5.2 (block devices). One queue, one request at a time, polite: it waits for each answer.
"""

from __future__ import annotations

import mmap
import os
import select
import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_GET_FEATURES, _SET_FEATURES, _SET_OWNER, _SET_MEM_TABLE = 1, 2, 3, 5
_SET_VRING_NUM, _SET_VRING_ADDR, _SET_VRING_BASE = 8, 9, 10
_SET_VRING_KICK, _SET_VRING_CALL = 12, 13
_GET_PROTOCOL_FEATURES, _SET_PROTOCOL_FEATURES, _SET_VRING_ENABLE = 15, 16, 18
_SET_BACKEND_REQ_FD, _GET_CONFIG = 21, 24
_VERSION_1, _PROTOCOL_FEATURES = 1 << 32, 1 << 30
_PROTOCOL_CONFIG, _PROTOCOL_BACKEND_REQ = 1 << 9, 1 << 5

_IN, _OUT, _FLUSH, _GET_ID, _DISCARD = 0, 1, 4, 8, 11
_DESC_NEXT, _DESC_WRITE = 1, 2
_QUEUE_ENTRIES = 16
_MEMORY_BYTES = 1 << 20
_ADDRESS = 0x7F00_0000_0000  # of the guest's memory in the front end; only differences count
_AVAIL, _USED, _HEADER, _STATUS, _DATA = 0x1000, 0x2000, 0x3000, 0x3800, 0x10000
_TIMEOUT_S = 20


class Frontend:
    """A guest that is nothing but a block driver. Raises TimeoutError when the disk does not answer.

    `like_uml`: do what arch/um/drivers/virtio_uml.c does and others do not: send room for two memory
    regions where one is given, and take the device for broken when it closes the channel for requests.
    """

    def __init__(self, path: Path, *, like_uml: bool = False) -> None:
        self._like_uml = like_uml
        self._channel, self._channel_of_disk = socket.socketpair()
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.settimeout(_TIMEOUT_S)
        self._sock.connect(str(path))
        self._memory_fd = os.memfd_create("guest")
        os.ftruncate(self._memory_fd, _MEMORY_BYTES)
        self._memory = mmap.mmap(self._memory_fd, _MEMORY_BYTES)
        self._kick, self._call = os.eventfd(0), os.eventfd(0)
        self._next = 0

    def start(self) -> Self:
        """Negotiate and set up the queue. Blocks until the disk has been opened."""
        self._send(_SET_OWNER)
        self.features = self._ask(_GET_FEATURES)
        wanted = _PROTOCOL_CONFIG | (_PROTOCOL_BACKEND_REQ if self._like_uml else 0)
        offered = self._ask(_GET_PROTOCOL_FEATURES)
        if wanted & ~offered:
            raise AssertionError(f"the disk offers the features {offered:#x}, wanted {wanted:#x}")
        self._send(_SET_PROTOCOL_FEATURES, struct.pack("<Q", wanted))
        if self._like_uml:
            self._send(_SET_BACKEND_REQ_FD, fd=self._channel_of_disk.fileno())
            self._channel_of_disk.close()
        self._send(_SET_FEATURES, struct.pack("<Q", _VERSION_1 | _PROTOCOL_FEATURES))
        region = struct.pack("<QQQQ", 0, _MEMORY_BYTES, _ADDRESS, 0)
        if self._like_uml:
            region += bytes(32)
        self._send(_SET_MEM_TABLE, struct.pack("<II", 1, 0) + region, self._memory_fd)
        self._send(_SET_VRING_NUM, struct.pack("<II", 0, _QUEUE_ENTRIES))
        self._send(_SET_VRING_BASE, struct.pack("<II", 0, 0))
        places = (_ADDRESS, _ADDRESS + _USED, _ADDRESS + _AVAIL, 0)
        self._send(_SET_VRING_ADDR, struct.pack("<IIQQQQ", 0, 0, *places))
        self._send(_SET_VRING_CALL, struct.pack("<Q", 0), self._call)
        self._send(_SET_VRING_KICK, struct.pack("<Q", 0), self._kick)
        self._send(_SET_VRING_ENABLE, struct.pack("<II", 0, 1))
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sock.close()
        self._memory.close()
        self._channel.close()
        self._channel_of_disk.close()
        for fd in (self._memory_fd, self._kick, self._call):
            os.close(fd)

    def channel_is_open(self) -> bool:
        """Whether the disk still holds its end of the channel for requests, and has asked for nothing."""
        return not select.select([self._channel], [], [], 0)[0]

    def capacity(self) -> int:
        """Sectors, by the configuration space."""
        body = struct.pack("<III", 0, 60, 0) + bytes(60)
        self._send(_GET_CONFIG, body)
        (sectors,) = struct.unpack_from("<Q", self._reply(), 12)
        return int(sectors)

    def read(self, sector: int, sectors: int) -> bytes:
        status, data = self._request(_IN, sector, room=sectors * 512)
        if status:
            raise OSError(f"read of {sectors} sectors at {sector}: status {status}")
        return data

    def write(self, sector: int, data: bytes) -> None:
        status, _ = self._request(_OUT, sector, data)
        if status:
            raise OSError(f"write of {len(data)} bytes at {sector}: status {status}")

    def submit_writes(self, writes: Sequence[tuple[int, bytes]], *, then_flush: bool = False) -> None:
        """Put writes of one sector each, and a flush behind them, into the queue, in one kick. The chains
        begin at the descriptors 0, 3, 6, ...; waits for no answer: see `completed`.
        """
        memory = self._memory
        requests = [(_OUT, sector, data) for sector, data in writes] + [(_FLUSH, 0, b"")] * then_flush
        for number, (kind, sector, data) in enumerate(requests):
            header, status, place = _HEADER + 64 * number, _STATUS + number, _DATA + 512 * number
            memory[header : header + 16] = struct.pack("<IIQ", kind, 0, sector)
            memory[place : place + len(data)] = data
            head = 3 * number
            struct.pack_into("<QIHH", memory, head * 16, header, 16, _DESC_NEXT, head + 1)
            struct.pack_into("<QIHH", memory, (head + 1) * 16, place, len(data), _DESC_NEXT, head + 2)
            if not data:
                struct.pack_into("<HH", memory, head * 16 + 12, _DESC_NEXT, head + 2)
            struct.pack_into("<QIHH", memory, (head + 2) * 16, status, 1, _DESC_WRITE, 0)
            struct.pack_into("<H", memory, _AVAIL + 4 + 2 * ((self._next + number) % _QUEUE_ENTRIES), head)
        self._next = (self._next + len(requests)) % (1 << 16)
        struct.pack_into("<HH", memory, _AVAIL, 0, self._next)
        os.eventfd_write(self._kick, 1)

    def completed(self, count: int) -> list[int]:
        """The first `count` requests that the disk completed, by number of `submit_writes`, in that order;
        waits for them.
        """
        while struct.unpack_from("<H", self._memory, _USED + 2)[0] < count:
            ready, _, _ = select.select([self._call], [], [], _TIMEOUT_S)
            if not ready:
                raise TimeoutError("the disk does not answer")
            os.eventfd_read(self._call)
        return [struct.unpack_from("<I", self._memory, _USED + 4 + 8 * i)[0] // 3 for i in range(count)]

    def used(self) -> int:
        """How many requests the disk has completed."""
        return int(struct.unpack_from("<H", self._memory, _USED + 2)[0])

    def discard(self, sector: int, sectors: int) -> int:
        return self._request(_DISCARD, 0, struct.pack("<QII", sector, sectors, 0))[0]

    def flush(self) -> int:
        return self._request(_FLUSH, 0)[0]

    def identity(self) -> bytes:
        return self._request(_GET_ID, 0, room=20)[1]

    def unanswerable(self) -> None:
        """Requests whose answer has no room: no byte for a status, and one outside the guest's memory."""
        self._memory[_HEADER : _HEADER + 16] = struct.pack("<IIQ", _FLUSH, 0, 0)
        self._submit([(_HEADER, 16, 0)])
        self._submit([(_HEADER, 16, 0), (_MEMORY_BYTES, 1, _DESC_WRITE)])

    def submit_raw(self, descriptors: bytes, head: int = 0, ahead: int = 1) -> None:
        """Put any bytes into the table of descriptors, and offer the chain at `head`. `ahead`: how far the
        index of the available ring moves. Waits for no answer: what comes of it is the disk's business.
        """
        memory = self._memory
        memory[: len(descriptors)] = descriptors
        struct.pack_into("<H", memory, _AVAIL + 4 + 2 * (self._next % _QUEUE_ENTRIES), head)
        self._next = (self._next + ahead) % (1 << 16)
        struct.pack_into("<HH", memory, _AVAIL, 0, self._next)
        os.eventfd_write(self._kick, 1)

    def _request(self, kind: int, sector: int, data: bytes = b"", room: int = 0) -> tuple[int, bytes]:
        memory = self._memory
        memory[_HEADER : _HEADER + 16] = struct.pack("<IIQ", kind, 0, sector)
        memory[_STATUS] = 0xFF
        memory[_DATA : _DATA + len(data)] = data
        parts = [(_HEADER, 16, 0)]
        if data or room:
            parts.append((_DATA, len(data) or room, _DESC_WRITE if room else 0))
        parts.append((_STATUS, 1, _DESC_WRITE))
        self._submit(parts)
        return memory[_STATUS], memory[_DATA : _DATA + room]

    def _submit(self, parts: list[tuple[int, int, int]]) -> None:
        """Put these pieces of memory into the queue as one request, and wait for it."""
        memory = self._memory
        for number, (address, length, flags) in enumerate(parts):
            following = _DESC_NEXT if number + 1 < len(parts) else 0
            struct.pack_into("<QIHH", memory, number * 16, address, length, flags | following, number + 1)
        struct.pack_into("<H", memory, _AVAIL + 4 + 2 * (self._next % _QUEUE_ENTRIES), 0)
        self._next = (self._next + 1) % (1 << 16)
        struct.pack_into("<HH", memory, _AVAIL, 0, self._next)
        os.eventfd_write(self._kick, 1)
        self._await_used()

    def _await_used(self) -> None:
        while struct.unpack_from("<H", self._memory, _USED + 2)[0] != self._next:
            ready, _, _ = select.select([self._call], [], [], _TIMEOUT_S)
            if not ready:
                raise TimeoutError("the disk does not answer")
            os.eventfd_read(self._call)

    def _send(self, request: int, body: bytes = b"", fd: int | None = None) -> None:
        message = struct.pack("<III", request, 1, len(body)) + body
        socket.send_fds(self._sock, [message], [fd] if fd is not None else [])

    def _ask(self, request: int) -> int:
        self._send(request)
        (value,) = struct.unpack("<Q", self._reply())
        return int(value)

    def _reply(self) -> bytes:
        header = self._exactly(12)
        return self._exactly(struct.unpack("<III", header)[2])

    def _exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            part = self._sock.recv(length - len(data))
            if not part:
                raise ConnectionError("the disk closed the guest's connection")
            data += part
        return data
