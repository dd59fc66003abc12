"""Applications as workloads: a directory with a `run` and a `check` program (`workloads/README.md`).

`run` is one operation, in the recorded file system; each `powercut-ack TEXT` that it calls puts a mark into
the log. `check` judges every crash state, and is given what had been acknowledged by then. Both run in the
guest, at `/workload/<directory's name>/`, together with the directory's other files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from harness.errors import UsageError
from harness.model import Check, Operation, OperationKind, Workload

DESCRIPTION = "workload.toml"
SHELL = "busybox:busybox-static"
"""Provides `/bin/sh` and the usual commands of scripts in the guest."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
_STARTABLE = (b"#!", b"\x7fELF")
_SHELLS = ("sh", "ash", "busybox", "awk", "sed")  # of busybox
_HELP = "workloads/README.md shows the format"


class _Variant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    summary: str
    arguments: list[str]


class _Description(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file DESCRIPTION. `programs`: programs of the host, each with its Debian package if that has
    another name: `redis-cli:redis-tools`. `reads`: glob patterns of the files that `check` reads. `variants`:
    each is a workload; its key is appended to the directory's name.
    """

    summary: str
    programs: list[str] = []
    reads: tuple[str, ...] = ("*",)
    variants: dict[str, _Variant] = {}


def is_application(path: Path) -> bool:
    """Whether a directory is an application: it contains DESCRIPTION."""
    return (path / DESCRIPTION).is_file()


def load_application(directory: Path) -> list[Workload]:
    """One workload for each variant; without variants, one named after the directory. Raises UsageError,
    which says what is missing.
    """
    directory = directory.resolve()
    described = _read(directory)
    if relative := [p for p in described.programs if "/" in p and not p.startswith("/")]:
        raise UsageError(
            f"{directory / DESCRIPTION}: programs = {relative} are neither names nor paths of this host",
            "name a program (sqlite3) or its whole path; what lies beside `run` goes along by itself",
        )
    for program in ("run", "check"):
        _need_program(directory / program, described.programs)
    place = f"/workload/{directory.name}"
    files = {
        f"{place}/{path.relative_to(directory)}": path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
    variants = described.variants or {"": _Variant(described.summary, [])}
    return [
        _workload(directory, f"{directory.name}-{name}".rstrip("-"), v, described, place, files)
        for name, v in variants.items()
    ]


def _workload(
    directory: Path,
    name: str,
    variant: _Variant,
    described: _Description,
    place: str,
    files: Mapping[str, bytes],
) -> Workload:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{directory}: a workload cannot be named {name!r}", "letters, digits and _ . + -")
    run = Operation(OperationKind.RUN, argv=(f"{place}/run", *variant.arguments))
    check = Check(0, (f"{place}/check", *variant.arguments), described.reads, application=True)
    return Workload(name, variant.summary, (run,), (check,), (SHELL, *described.programs), files)


def _read(directory: Path) -> _Description:
    path = directory / DESCRIPTION
    try:
        return msgspec.toml.decode(path.read_bytes(), type=_Description)
    except FileNotFoundError as e:
        raise UsageError(f"{directory} has no {DESCRIPTION}, so it is no workload", _HELP) from e
    except (msgspec.MsgspecError, UnicodeDecodeError) as e:
        raise UsageError(f"{path}: {e}", f"it needs `summary`; {_HELP}") from e


def _need_program(path: Path, programs: Sequence[str]) -> None:
    if not path.is_file():
        raise UsageError(f"{path} is missing: an application needs the programs `run` and `check`", _HELP)
    head = path.read_bytes()[:256]
    if not head.startswith(_STARTABLE):
        raise UsageError(
            f"{path} begins neither with `#!` nor as an ELF program: the guest could not start it",
            "write #!/bin/sh into its first line",
        )
    interpreter = _interpreter(head)
    if interpreter not in ("", *_SHELLS, *(PurePosixPath(p.partition(":")[0]).name for p in programs)):
        raise UsageError(
            f"{path} is for {interpreter}, which the guest does not have",
            f"add {interpreter} to `programs` of {DESCRIPTION}, or write it for #!/bin/sh; {_HELP}",
        )


def _interpreter(head: bytes) -> str:
    """The interpreter that a script names, without its directory; empty if `head` is not of a script."""
    words = head.splitlines()[0].removeprefix(b"#!").decode(errors="replace").split()
    if not head.startswith(b"#!") or not words:
        return ""
    names = [word.rpartition("/")[2] for word in words]
    return names[1] if names[0] == "env" and len(names) > 1 else names[0]
