"""Applications as workloads: a directory with a `run` and a `check` program (`workloads/README.md`).

`run` is one operation, in the recorded file system; each `powercut-ack TEXT` that it calls puts a mark into
the log. `check` judges every crash state, and is given what had been acknowledged by then. Both run in the
guest, at `/workload/<directory's name>/`, together with the directory's other files.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import msgspec

from harness.errors import UsageError
from harness.host.files import json_bytes, toml_string, write_atomically
from harness.host.oci import ContainerImage, read_image
from harness.host.trees import files_below
from harness.model import Check, Operation, OperationKind, Workload
from harness.model.schedules import without_schedule

DESCRIPTION = "workload.toml"
SHELL = "busybox:busybox-static"
"""Provides `/bin/sh` and the usual commands of scripts in the guest."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
MAX_WORKLOAD_NAME = 64
"""Letters of a name of the user's. A packed run names files in folders of up to 155 bytes: the name of the
run, that of the mode and this one among them.
"""
_STARTABLE = (b"#!", b"\x7fELF")
_SOURCES = (".c", ".cc", ".cpp", ".go", ".rs", ".zig", ".java")
_SHELLS = ("sh", "ash", "busybox", "awk", "sed")  # of busybox
_RUNTIMES: Mapping[str, tuple[str, ...]] = {"python": ("python", "python3")}
"""What can be brought along as a whole, with the names under which scripts call it."""
_ENV = "env:coreutils"
"""Splits its words by -S. That of busybox does not."""
_SPLITS = re.compile("-[iv]*S|--split-string=")
_OF_TWO_WORDS = ("-u", "--unset", "-C", "--chdir")  # options of env(1)
_INTERPRETER = re.compile(r"(python|perl|ruby|node|lua|php|bash|dash|sh)[\d.]*")
_USER = re.compile("[a-z_][a-z0-9_-]{0,30}")  # useradd(8)
BY_LINES = "powercut-ack-lines"  # vms/agent/src/calls.rs
"""The program that acknowledges each line which another one prints."""
NEIGHBOUR = "powercut-neighbour"  # vms/agent/src/neighbour.rs
"""The program that commits behind each call of another one."""
PRESSURE = "powercut-pressure"  # vms/agent/src/neighbour.rs
"""The program that writes back, behind each call of another one, what is dirty."""
ENDINGS: Mapping[str, str] = {"-neighbour": NEIGHBOUR, "-pressure": PRESSURE}
"""Of the name of a workload that has such a neighbour."""
_BESIDE: Mapping[str, str] = {
    NEIGHBOUR: "another program commits behind each call",
    PRESSURE: "what is dirty is written back behind each call",
}
_HELP = "workloads/README.md shows the format"
IMAGE_MIB_MAX = 4 << 10
MEMORY_MIB_MAX = 16 << 10
IN_ROOT = "powercut-in"  # vms/agent/src/image.rs
"""The program that runs another one in the root of an image."""


class _Variant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    summary: str = ""
    arguments: list[str] = []


class _Description(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file DESCRIPTION. `programs`: programs of the host, each with its Debian package if that has
    another name: `redis-cli:redis-tools`. `files`: files, folders and glob patterns of the host, with the
    package where that is known. `runtime`: one of _RUNTIMES. `user`: runs both programs, in a mount point
    that is the user's own. `image`: a container image, whose root both have, instead of `programs`, `files`
    and `runtime`. `memory_mib`: the least memory of the guests. `image_mib`: the least size of the file
    system. `reads`: glob patterns of the
    files that `check` reads. `acknowledges`: `lines`, if each line that `run` prints is acknowledged; else it
    calls powercut-ack. `neighbour`: each workload comes once more, `NAME-neighbour`, with another program's
    fsync behind each call, which may be 200 calls at most. `variants`: each is a workload; its key is
    appended to the directory's name, and it has the description's summary unless it has one of its own.
    """

    summary: str
    programs: list[str] = []
    files: tuple[str, ...] = ()
    runtime: str = ""
    user: str = ""
    image: str = ""
    memory_mib: int = 0
    image_mib: int = 0
    reads: tuple[str, ...] = ("*",)
    acknowledges: str = ""
    neighbour: bool = False
    variants: dict[str, _Variant] = {}


def of_program(program: Path, arguments: Sequence[str], place: Path) -> Path:
    """Make an application of one program, in a folder of `place` that has its name. As `run`, the program
    gets the arguments, and each line that it prints is acknowledged; as `check`, it gets `check`, the file
    with these lines, and the arguments. One application has one folder, however often it is made.

    Raises UsageError for a file that cannot be one.
    """
    script = next((a for a in arguments if not a.startswith("-")), "")
    if _INTERPRETER.fullmatch(program.name) and Path(script).is_file():
        raise UsageError(
            f"{program} would not find {script} in the guest, which gets one program and nothing beside it",
            f"name the script, whose first line names {program.name}: -- {shlex.join([script])} ...",
        )
    if not program.is_file():
        there = shutil.which(program) if "/" not in str(program) else None
        raise UsageError(
            f"there is no program {program}", f"its path: {there}" if there else "a workload is named with -w"
        )
    need_name(program.name)
    described, words = _of_program(program), shlex.join(arguments)
    start = f'#!/bin/sh\nexport PYTHONUNBUFFERED=1\nexec "${{0%/*}}/program/{program.name}"'
    files = {
        f"program/{program.name}": program.read_bytes(),
        "run": f"{start} {words}\n".encode(),
        "check": f'{start} check "$1" {words}\n'.encode(),
        DESCRIPTION: described.encode(),
    }
    digest = hashlib.sha256(json_bytes(files))
    folder = place / digest.hexdigest()[:12] / program.name
    if not _holds(folder, files):
        _make_folder(folder, files)
    return folder


def _holds(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Whether a folder holds these files and no others."""
    return folder.is_dir() and {name: path.read_bytes() for name, path in files_below(folder)} == files


def _make_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make a folder with these files, in place of what is there. It is made elsewhere: all that a kill left
    in it would be part of the workload.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parents[1], prefix=".making-") as scratch:
        part = Path(scratch) / folder.name
        for name, contents in files.items():
            file = part / name
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, contents, 0o755)
        try:
            part.rename(folder)
        except OSError:
            if not _holds(folder, files):  # else another process was faster
                shutil.rmtree(folder, ignore_errors=True)
                part.rename(folder)


def is_copy(path: Path) -> bool:
    """Whether an application is what `of_program` made of a program: it does not change with that."""
    return (path / "program" / path.name).is_file()


def _of_program(program: Path) -> str:
    """The description of an application of one program."""
    summary = toml_string(f"{program.name}: each line that it prints is acknowledged")
    head = _startable(program)
    interpreter = _interpreter(head)
    runtime = next((r for r, names in _RUNTIMES.items() if interpreter in names), "")
    programs = [interpreter] if interpreter and not runtime and interpreter not in _SHELLS else []
    programs += [_ENV] if _is_split(head) else []
    more = f'runtime = "{runtime}"\n' if runtime else ""
    more += f"programs = [{', '.join(map(toml_string, programs))}]\n" if programs else ""
    return f'summary = {summary}\nacknowledges = "lines"\n{more}'


def is_application(path: Path) -> bool:
    """Whether a directory is an application: it contains DESCRIPTION."""
    return (path / DESCRIPTION).is_file()


def need_name(name: str, of: str = "") -> None:
    """Raises UsageError unless a workload can have this name, by which its crash points and files of a run
    are named. `of`: what has it.
    """
    if not _NAME.fullmatch(name) or without_schedule(name)[1] or len(name) > MAX_WORKLOAD_NAME:
        raise UsageError(
            f"{of and f'{of}: '}a workload cannot be named {name!r}",
            f"at most {MAX_WORKLOAD_NAME} letters, digits and _ . + -, and at its end no .s2, which is a "
            "schedule: my-test",
        )


def load_application(directory: Path) -> list[Workload]:
    """One workload for each variant; without variants, one named after the directory. Where the description
    asks for neighbours, each once more with one. Raises UsageError, which says what is missing.
    """
    directory = directory.resolve()
    described = _read(directory)
    if relative := [p for p in described.programs if "/" in p and not p.startswith("/")]:
        raise UsageError(
            f"{directory / DESCRIPTION}: programs = {relative} are neither names nor paths of this host",
            "name a program (sqlite3) or its whole path; what lies beside `run` goes along by itself",
        )
    if wrong := next(_wrong(described), None):
        raise UsageError(f"{directory / DESCRIPTION}: {wrong}", _HELP)
    for program in ("run", "check"):
        _need_program(directory / program, described)
    place = f"/workload/{directory.name}"
    image = directory / described.image
    files = {f"{place}/{name}": p.read_bytes() for name, p in files_below(directory) if p != image}
    variants = described.variants or {"": _Variant()}
    alone = [
        _workload(
            directory, f"{directory.name}-{name}" if name else directory.name, v, described, place, files
        )
        for name, v in variants.items()
    ]
    return [*alone, *map(beside_another, alone)] if described.neighbour else alone


def image_root(image: ContainerImage) -> str:
    """Where the root of an image is in the guest."""
    return f"/images/{image.identity[:12]}"


def beside_another(workload: Workload, ending: str = "-neighbour") -> Workload:
    """An application's workload, with the neighbour of ENDINGS behind each call of its own. Raises UsageError
    for a name that becomes too long by that.
    """
    (run,) = workload.operations
    need_name(f"{workload.name}{ending}")
    words = 2 if run.argv[0] == IN_ROOT else 0
    return replace(
        workload,
        name=f"{workload.name}{ending}",
        summary=f"{workload.summary}; {_BESIDE[ENDINGS[ending]]}",
        operations=(replace(run, argv=(*run.argv[:words], ENDINGS[ending], *run.argv[words:])),),
    )


def has_neighbour(workload: Workload) -> bool:
    """Whether another program commits, or what is dirty is written back, behind each call of this one."""
    return not {NEIGHBOUR, PRESSURE}.isdisjoint(_ahead(workload))


def prints_acknowledgements(workload: Workload) -> bool:
    """Whether each line that its program prints is an acknowledgement."""
    return BY_LINES in _ahead(workload)


def _ahead(workload: Workload) -> list[str]:
    """The words of ours in front of its program: AHEAD of vms/agent/src/calls.rs."""
    argv = next((op.argv for op in workload.operations), ())
    if argv and argv[0] == IN_ROOT:
        argv = argv[2:]
    return list(itertools.takewhile((BY_LINES, NEIGHBOUR, PRESSURE).__contains__, argv))


def _workload(
    directory: Path,
    name: str,
    variant: _Variant,
    described: _Description,
    place: str,
    files: Mapping[str, bytes],
) -> Workload:
    need_name(name, str(directory))
    image = directory / described.image if described.image else None
    in_root = (IN_ROOT, image_root(read_image(image))) if image else ()
    as_user = ("powercut-as", described.user) if described.user else ()
    by_lines = (BY_LINES,) if described.acknowledges else ()  # before the user, who may not acknowledge
    run = (*in_root, *by_lines, *as_user, f"{place}/run", *variant.arguments)
    check = (f"{place}/check", *variant.arguments)
    return Workload(
        name,
        variant.summary or described.summary,
        (Operation(OperationKind.RUN, argv=run),),
        (Check(0, check, described.reads, application=True, ahead=(*in_root, *as_user)),),
        (SHELL, *_programs(directory, described)),
        files,
        described.files,
        described.runtime,
        described.user,
        described.image_mib,
        str(image or ""),
        described.memory_mib,
    )


def _programs(directory: Path, described: _Description) -> list[str]:
    """The programs of the host that it brings: those that it names, and what its first lines ask for."""
    splits = not described.image and any(_is_split(_startable(directory / n)) for n in ("run", "check"))
    return list(dict.fromkeys([*described.programs, *([_ENV] if splits else [])]))


def _wrong(described: _Description) -> Iterator[str]:
    """What a description asks for and cannot be had."""
    if relative := [f for f in described.files if not f.startswith("/")]:
        yield f"files = {relative} are no paths of this host; what lies beside `run` goes along by itself"
    if described.runtime not in ("", *_RUNTIMES):
        near = difflib.get_close_matches(described.runtime, _RUNTIMES, n=1) or list(_RUNTIMES)
        yield f"runtime = {described.runtime!r} is not known; there is {', '.join(near)}"
    if described.acknowledges not in ("", "lines"):
        yield f'acknowledges = {described.acknowledges!r} is not known; there is "lines", or leave it out'
    if described.user and not _USER.fullmatch(described.user):
        yield f"user = {described.user!r} is no user's name: lower-case letters, digits, _ and -"
    if described.image and (described.programs or described.files or described.runtime):
        yield "image brings all programs; leave out programs, files and runtime, or image"
    if not 0 <= described.memory_mib <= MEMORY_MIB_MAX:
        yield f"memory_mib = {described.memory_mib} is not from 1 to {MEMORY_MIB_MAX}"
    if not 0 <= described.image_mib <= IMAGE_MIB_MAX:
        yield f"image_mib = {described.image_mib} is not from 1 to {IMAGE_MIB_MAX}"


def _read(directory: Path) -> _Description:
    path = directory / DESCRIPTION
    try:
        return msgspec.toml.decode(path.read_bytes(), type=_Description)
    except FileNotFoundError as e:
        raise UsageError(f"{directory} has no {DESCRIPTION}, so it is no workload", _HELP) from e
    except (msgspec.MsgspecError, UnicodeDecodeError) as e:
        raise UsageError(f"{path}: {e}", f"{next_key(e, _Description)}; {_HELP}") from e


def next_key(e: Exception, table: type[msgspec.Struct]) -> str:
    """What to do about a file that is no TOML, or no such table: which key was meant, or is needed."""
    if not isinstance(e, msgspec.ValidationError):
        return "that is no TOML: mend it at that place; texts stand in quotation marks, lists in brackets"
    keys = {f.encode_name: f.required for f in msgspec.structs.fields(table)}
    wrong = re.search(r"unknown field `([^`]*)`", str(e))
    if wrong and "$." in str(e):
        return f"leave out {wrong[1]}, which is no key there"
    if wrong:
        if near := difflib.get_close_matches(wrong[1], keys, n=1):
            return f"is {near[0]} meant?"
        return f"leave out {wrong[1]}; there is {', '.join(keys)}"
    if "missing required" not in str(e) and (at := re.search(r"at `\$\.([^`]*)`", str(e))):
        return f"correct {at[1]}: another kind of value belongs there"
    return f"it needs {' and '.join(key for key, required in keys.items() if required)}"


def _need_program(path: Path, described: _Description) -> None:
    if not path.is_file():
        raise UsageError(f"{path} is missing: an application needs the programs `run` and `check`", _HELP)
    interpreter = _interpreter(_startable(path))
    named = [PurePosixPath(p.partition(":")[0]).name for p in (*described.programs, *described.files)]
    if described.image or interpreter in ("", *_SHELLS, *named, *_RUNTIMES.get(described.runtime, ())):
        return
    runtime = next((r for r in _RUNTIMES if interpreter.startswith(r)), "")
    add = f'runtime = "{runtime}"' if runtime else f"{interpreter} to `programs`"
    step = f"add {add} in {DESCRIPTION}, or write it for #!/bin/sh; {_HELP}"
    if runtime and runtime == described.runtime:
        *_, last = _RUNTIMES[runtime]
        step = f"there it is called {last}: #!/usr/bin/env {last}"
    raise UsageError(f"{path} is for {interpreter}, which the guest does not have", step)


def _startable(path: Path) -> bytes:
    """The beginning of a program. Raises UsageError for a file that is none."""
    head = path.read_bytes()[:256]
    if not head.startswith(_STARTABLE):
        raise UsageError(
            f"{path} begins neither with `#!` nor as an ELF program: the guest could not start it",
            "name the program that is built from it"
            if path.suffix in _SOURCES
            else "write #!/bin/sh into its first line",
        )
    words = _words(head)
    if words[0] == "env" and len(words) > 2 and not _is_split(head):
        raise UsageError(
            f"{path}: Linux hands `{' '.join(words[1:])}` to env as one word, which no program is called",
            f"write #!/usr/bin/env -S {' '.join(words[1:])}",
        )
    return head


def _words(head: bytes) -> list[str]:
    """The first line of a script, with its program without the directory; `[""]` of what is no script."""
    words = head.splitlines()[0].removeprefix(b"#!").decode(errors="replace").split()
    if not head.startswith(b"#!") or not words:
        return [""]
    return [words[0].rpartition("/")[2], *words[1:]]


def _is_split(head: bytes) -> bool:
    """Whether a script asks env(1) to split what stands behind it."""
    program, *rest = _words(head)
    return program == "env" and bool(rest) and _SPLITS.match(rest[0]) is not None


def _interpreter(head: bytes) -> str:
    """The interpreter that a script names, without its directory; empty if `head` is not of a script."""
    program, *rest = _words(head)
    return _behind_env(rest).rpartition("/")[2] if program == "env" and rest else program


def _behind_env(words: Sequence[str]) -> str:
    """The program that env(1) starts: what follows its options, and the variables that it sets."""
    left = iter(words)
    for word in left:
        rest = _SPLITS.sub("", word, count=1) if _SPLITS.match(word) else word
        if rest in _OF_TWO_WORDS:
            next(left, "")
        elif rest and not rest.startswith("-") and "=" not in rest:
            return rest
    return "env"
