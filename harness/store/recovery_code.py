"""Which lines of recovery a run's crash states ran: a file of the run directory, written when the run ends.

A line is one at which a basic block begins, as the compiler of an instrumented kernel made them
(`harness.kernels.instrumented`). No text of the source is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from harness.errors import StoreError, UsageError
from harness.host.files import write_atomically
from harness.store.layout import RunLayout


class CodeLine(msgspec.Struct, frozen=True, array_like=True):
    """A line of a function. `first`: the case at whose end it was first seen to have run; empty: it has not.
    Of several cases at once, it may have been another that ran it.
    """

    file: str
    function: str
    line: int
    first: str = ""


class RecoveryCode(msgspec.Struct, frozen=True):
    """`kernel`: its source, with the version. `lines`: by file, function and number."""

    kernel: str
    lines: tuple[CodeLine, ...]

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(line.file for line in self.lines))

    def functions(self, file: str) -> dict[str, list[CodeLine]]:
        """The lines of each function of a file, by the functions' places there."""
        found: dict[str, list[CodeLine]] = {}
        for line in sorted((x for x in self.lines if x.file == file), key=lambda x: x.line):
            found.setdefault(line.function, []).append(line)
        return found

    @property
    def unreached(self) -> list[tuple[str, str]]:
        """File and name of each function of which no line ran."""
        return [
            (file, function)
            for file in self.files
            for function, lines in self.functions(file).items()
            if not any(line.first for line in lines)
        ]

    @property
    def reached(self) -> int:
        """How many lines ran."""
        return sum(bool(line.first) for line in self.lines)


def write_recovery_code(code: RecoveryCode, layout: RunLayout) -> None:
    write_atomically(layout.recovery_code, msgspec.json.encode(code))


def read_recovery_code(layout: RunLayout) -> RecoveryCode | None:
    """None for a run of which nobody asked that. Raises StoreError for a damaged file."""
    try:
        return msgspec.json.decode(layout.recovery_code.read_bytes(), type=RecoveryCode)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as e:
        raise StoreError(f"{layout.recovery_code} cannot be read: {e}", "run it again") from e


def merged(codes: Sequence[RecoveryCode]) -> RecoveryCode:
    """That of several runs together. Raises UsageError for runs on different kernels."""
    kernels = sorted({code.kernel for code in codes})
    if len(kernels) > 1:
        raise UsageError(
            f"lines of different kernels are not the same lines: {', '.join(kernels)}",
            "name runs of one kernel",
        )
    return RecoveryCode(kernels[0], united(line for code in codes for line in code.lines))


def united(lines: Iterable[CodeLine]) -> tuple[CodeLine, ...]:
    """Each line once, in order; it ran if it did in any of these."""
    found: dict[tuple[str, int, str], CodeLine] = {}
    for line in lines:
        key = (line.file, line.line, line.function)
        if key not in found or not found[key].first:
            found[key] = line
    return tuple(found[key] for key in sorted(found))
