"""What a disk does wrong while a crash state is recovered: one thing, as the end of the state's name."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


class RequestKind(enum.StrEnum):
    """What a guest asks of its disk."""

    READ = "read"
    WRITE = "write"
    FLUSH = "flush"


class FaultKind(enum.StrEnum):
    """What goes wrong. `eio`: the request fails whole. `rot`: a bit of what is read has changed. `lost`: a
    write is acknowledged and vanishes. `stray`: a write is acknowledged, and lands where another one was
    meant to go.
    """

    EIO_READ = "eio-read"
    EIO_WRITE = "eio-write"
    EIO_FLUSH = "eio-flush"
    ROT = "rot"
    LOST_WRITE = "lost-write"
    STRAY_WRITE = "stray-write"

    @property
    def request(self) -> RequestKind:
        """What it befalls."""
        return _REQUESTS[self]


_REQUESTS = {
    FaultKind.EIO_READ: RequestKind.READ,
    FaultKind.EIO_WRITE: RequestKind.WRITE,
    FaultKind.EIO_FLUSH: RequestKind.FLUSH,
    FaultKind.ROT: RequestKind.READ,
    FaultKind.LOST_WRITE: RequestKind.WRITE,
    FaultKind.STRAY_WRITE: RequestKind.WRITE,
}


DISK_FAULTS: Mapping[str, tuple[FaultKind, ...]] = MappingProxyType(
    {
        "errors": (FaultKind.EIO_READ, FaultKind.EIO_WRITE, FaultKind.EIO_FLUSH),
        "bit-rot": (FaultKind.ROT,),
        "loses-one": (FaultKind.LOST_WRITE,),
        "misdirects": (FaultKind.STRAY_WRITE,),
    }
)
"""Ways in which a disk may err, with the faults that belong to each."""


@dataclass(frozen=True, slots=True)
class DiskFault:
    """One fault of a disk. `sector`: 512 bytes of the device that the request touches; 0 of a flush. `nth`:
    which of the requests of this kind that touch it, counted from 1. `stays`: it befalls all later ones as
    well. `bit`: that has changed, from the lowest of its first byte. `to`: the sector from which on a
    stray write lands.

    Written `eio-read2048`, `eio-write2048.3` (the third write to the sector), `eio-write2048.3-on` (that, and
    all after it), `eio-flush2`, `rot2048.77` (a bit), `lost-write2048.3`, `stray-write2048.3-to4096`.
    """

    kind: FaultKind
    sector: int = 0
    nth: int = 1
    stays: bool = False
    bit: int = 0
    to: int = 0

    def __str__(self) -> str:
        on = "-on" if self.stays else ""
        match self.kind:
            case FaultKind.EIO_FLUSH:
                return f"{self.kind}{self.nth}{on}"
            case FaultKind.ROT:
                return f"{self.kind}{self.sector}.{self.bit}"
            case _:
                to = f"-to{self.to}" if self.kind is FaultKind.STRAY_WRITE else ""
                return f"{self.kind}{self.sector}{f'.{self.nth}' if self.nth > 1 else ''}{to}{on}"

    @classmethod
    def parse(cls, text: str) -> DiskFault:
        """Inverse of `str`. Raises ValueError that shows the form expected."""
        kinds = "|".join(FaultKind)
        m = re.fullmatch(rf"({kinds})(\d+)(?:\.(\d+))?(?:-to(\d+))?(-on)?", text, re.ASCII)
        if m:
            kind, first, second, stays = FaultKind(m[1]), int(m[2]), int(m[3] or 0), bool(m[5])
            match kind:
                case FaultKind.EIO_FLUSH:
                    fault = cls(kind, nth=first, stays=stays)
                case FaultKind.ROT:
                    fault = cls(kind, first, bit=second)
                case FaultKind.STRAY_WRITE:
                    fault = cls(kind, first, second or 1, to=int(m[4] or 0))
                case _:
                    fault = cls(kind, first, second or 1, stays)
            if str(fault) == text and fault.nth:
                return fault
        raise ValueError(
            f"disk fault {text!r} is none of the forms eio-read2048, eio-write2048.3-on, eio-flush2, "
            "rot2048.77, lost-write2048, stray-write2048-to4096"
        )

    @property
    def cell(self) -> str:
        """Its kind, for tables: `read fails`, `read fails for good`."""
        return _CELLS[self.kind] + (" for good" if self.stays else "")

    @property
    def text(self) -> str:
        """In words."""
        if self.kind is FaultKind.ROT:
            return f"bit {self.bit} of sector {self.sector} has rotted"
        if self.kind in (FaultKind.LOST_WRITE, FaultKind.STRAY_WRITE):
            fate = f"lands at sector {self.to}" if self.kind is FaultKind.STRAY_WRITE else "is lost"
            return f"write {self.nth} of sector {self.sector} is acknowledged and {fate}"
        where = "" if self.kind is FaultKind.EIO_FLUSH else f" of sector {self.sector}"
        later = ", and so do all later ones" if self.stays else ""
        return f"{self.kind.request.value} {self.nth}{where} fails with EIO{later}"


_CELLS = {
    FaultKind.EIO_READ: "read fails",
    FaultKind.EIO_WRITE: "write fails",
    FaultKind.EIO_FLUSH: "flush fails",
    FaultKind.ROT: "bit rot",
    FaultKind.LOST_WRITE: "write is lost",
    FaultKind.STRAY_WRITE: "write strays",
}
