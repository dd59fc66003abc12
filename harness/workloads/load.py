"""Load workloads, which run before the power fails, from files of `workloads/` or of the user.

`*.toml` is a list of operations. `*.fio` is an unchanged job file of fio(1): each of its sections is one
operation, and fio's own verification judges what is recovered. A directory is an application: see
`harness.workloads.applications`.
"""

from __future__ import annotations

import configparser
import dataclasses
import difflib
import hashlib
import itertools
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec

from harness.errors import UsageError
from harness.host.files import json_bytes
from harness.host.resources import resource
from harness.host.text import near_or, whole_number
from harness.model import Check, CrashState, Operation, OperationKind, Workload
from harness.model.operations import ARGUMENTS
from harness.model.questions import Question
from harness.model.schedules import ScheduleName, under_schedule, without_schedule
from harness.oracles.chattr import LETTERS
from harness.oracles.replay import most_names, need_possible
from harness.workloads.applications import (
    DESCRIPTION,
    ENDINGS,
    beside_another,
    has_neighbour,
    is_application,
    load_application,
    need_name,
    next_key,
)
from harness.workloads.generate import SETS as GENERATED_SETS
from harness.workloads.generate import generate, is_generated, names_of

MAX_OFFSET = (1 << 63) - 1  # loff_t
MAX_OWNER = (1 << 32) - 2  # the next one stands for "unchanged" (chown(2))
MAX_FILE_BYTES = 32 << 30
"""A word of data names its place in 32 bits (vms/protocol/src/pattern.rs): beyond, data 32 GiB away from
where it was written would be taken for data at home.
"""
MAX_NAME_BYTES = 255  # NAME_MAX, XATTR_NAME_MAX
MAX_PATH_BYTES = 4090  # PATH_MAX, less the end and what the guest puts in front, /mnt/
MAX_NAMES = 49_900
"""Names that are there at once: a guest tells 50,000 of a tree (vms/protocol/src/limits.rs), and a file
system comes with some of its own.
"""
MAX_EXPANDED = 1 << 18
"""Lines of a block with all its choices, of which some come to nothing."""
MAX_OPERATIONS = 0xFFFE  # a writer number has 16 bits, and 0xffff is poison (vms/protocol/src/pattern.rs)

_FLAGS: Mapping[OperationKind, tuple[str, ...]] = {
    OperationKind.WRITE: ("sync", "dsync", "direct"),
    OperationKind.APPEND: ("sync", "dsync", "direct"),
    OperationKind.MMAP_WRITE: ("sync", "sync-range", "past-end"),
    OperationKind.SYNC_FILE_RANGE: ("async",),
    OperationKind.EXCHANGE_RANGE: ("dsync",),
    OperationKind.SHUTDOWN: ("logflush", "nologflush"),
    OperationKind.FALLOCATE: ("keep-size", "punch-hole", "zero-range", "collapse-range", "insert-range"),
}

# Operations whose offset and length are bytes of a file.
_OF_BYTES = frozenset(
    {
        OperationKind.WRITE,
        OperationKind.APPEND,
        OperationKind.MMAP_WRITE,
        OperationKind.TRUNCATE,
        OperationKind.FALLOCATE,
        OperationKind.COPY_RANGE,
        OperationKind.TMPFILE,
    }
)

# Operations whose path may be a handle.
BY_HANDLE = frozenset(
    {
        OperationKind.WRITE,
        OperationKind.APPEND,
        OperationKind.MMAP_WRITE,
        OperationKind.TRUNCATE,
        OperationKind.FALLOCATE,
        OperationKind.LINK,
        OperationKind.SETXATTR,
        OperationKind.REMOVEXATTR,
        OperationKind.CHMOD,
        OperationKind.CHOWN,
        OperationKind.CLONE,
        OperationKind.COPY_RANGE,
        OperationKind.TOUCH,
        OperationKind.START_ATOMIC,
        OperationKind.COMMIT_ATOMIC,
        OperationKind.ABORT_ATOMIC,
        OperationKind.FSYNC,
        OperationKind.FDATASYNC,
        OperationKind.SYNC_FILE_RANGE,
    }
)


_Choice = str | dict[str, str]
_CHOSEN = re.compile(r"\{(\w+(?:\.\w+)?)\}")


class _Repeat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The same operations `repeat` times, for every combination of the choices in `each`; `{n}` in them is
    the number of the time, from 0.

    `{word}` stands for the choice of that name, `{word.part}` for a part of it; a choice may hold such words
    itself. With choices, an operation may be several, with `;` between them, or none.
    """

    operations: list[str]
    repeat: int = 1
    each: dict[str, list[_Choice]] = {}

    def __post_init__(self) -> None:
        if self.repeat < 1:
            raise ValueError(f"repeat = {self.repeat}: at least 1")
        if not self.operations:
            raise ValueError("operations = []: it has no operations")
        if empty := [name for name, choices in self.each.items() if not choices]:
            raise ValueError(f"each: {empty[0]!r} has no choices")

    def lines(self) -> Iterator[str]:
        """The operations one by one."""
        n = 0
        for _ in range(self.repeat):
            for chosen in itertools.product(*self.each.values()):
                words = {"n": str(n)}
                for name, choice in zip(self.each, chosen, strict=True):
                    words |= _words(name, choice)
                n += 1
                if n * len(self.operations) > MAX_EXPANDED:
                    raise UsageError(
                        f"a block with more than {MAX_EXPANDED} lines, most of which come to nothing",
                        "fewer choices, or a smaller repeat",
                    )
                for line in self.operations:
                    yield from self._expanded(line, words)

    def _expanded(self, line: str, words: Mapping[str, str]) -> Iterator[str]:
        if not self.each:
            yield line.replace("{n}", words["n"])
            return
        whole = _CHOSEN.sub(lambda m: _chosen(words, m[1]), line)
        for part in _CHOSEN.sub(lambda m: _chosen(words, m[1]), whole).split(";"):
            if operation := part.strip():
                yield operation


def _words(name: str, choice: _Choice) -> dict[str, str]:
    return {name: choice} if isinstance(choice, str) else {f"{name}.{p}": t for p, t in choice.items()}


def _chosen(words: Mapping[str, str], word: str) -> str:
    if word not in words:
        raise UsageError(f"{{{word}}} is no choice", f"these are: {', '.join(words)}")
    return words[word]


class _OperationList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`question`: makes it a litmus program (`powercut litmus`)."""

    summary: str
    operations: list[str | _Repeat]
    question: Question | None = None

    def lines(self) -> Iterator[str]:
        """The operations one by one."""
        for entry in self.operations:
            if isinstance(entry, str):
                yield entry
            else:
                yield from entry.lines()


def parse_operation(text: str) -> Operation:
    """Inverse of `str(operation)`, except for RUN. Sizes may end in K or M; `.` is the root directory.

    Raises UsageError, which names the operation, the word and what is expected.
    """
    kind_word, *words = text.split() or [""]
    try:
        kind = OperationKind(kind_word)
        names = ARGUMENTS[kind]
    except (ValueError, KeyError):
        near = difflib.get_close_matches(kind_word, [str(k) for k in ARGUMENTS], n=3)
        raise UsageError(
            f"operation {text!r}: unknown kind {kind_word!r}",
            f"try one of: {', '.join(near or map(str, ARGUMENTS))}",
        ) from None
    plain = [n for n in names if not n.endswith("*")]
    rest = words[len(plain) :]
    if len(words) < len(plain) or (rest and plain == list(names)):
        raise UsageError(f"operation {text!r}: {kind} takes {' '.join(names) or 'nothing'}")
    fields: dict[str, object] = {n: _convert(text, kind, n, w) for n, w in zip(plain, words, strict=False)}
    if "state" in fields:
        fields["argv"] = (fields.pop("state"),)
    if "handle" in fields:
        fields["path" if kind is OperationKind.CLOSE else "target"] = fields.pop("handle")
    if kind is OperationKind.CHOWN:
        fields |= {"offset": fields.pop("user"), "length": fields.pop("group")}
    if rest:
        fields["flags"] = _flags(text, kind, rest)
    if kind in _OF_BYTES and (end := _end_of(fields)) > MAX_FILE_BYTES:
        raise UsageError(
            f"operation {text!r}: it ends at byte {end}",
            f"a file has {MAX_FILE_BYTES} bytes at most (32 GiB), so that each word of data names its place",
        )
    return Operation(kind, **fields)  # type: ignore[arg-type]  # names and types come from ARGUMENTS


def _end_of(fields: Mapping[str, object]) -> int:
    """The byte behind the last that an operation with these fields touches."""
    return cast(int, fields.get("offset", 0)) + cast(int, fields.get("length", 0))


def _convert(text: str, kind: OperationKind, name: str, word: str) -> object:
    if name == "value":
        return _inode_flag(text, word) if kind is OperationKind.CHATTR else word.encode()
    if name == "state":
        return _state(text, word)
    if name in ("offset", "length", "user", "group"):
        return _number(text, kind, name, word)
    if name == "name":  # an attribute's: a / in it parts nothing
        _need_length([word])
    if name == "name" or (name == "target" and kind is OperationKind.SYMLINK):
        return word
    if name == "handle" or word.startswith("@"):
        return _handle(text, kind, name, word)
    if word.startswith("/") or ".." in word.split("/"):
        raise UsageError(f"operation {text!r}: {word!r} must lie below the mount point (no leading /, no ..)")
    plain = "/".join(n for n in word.split("/") if n not in ("", ".")) or "."
    if word != plain:
        raise UsageError(f"operation {text!r}: {word!r} has a / or a . that names nothing", f"write: {plain}")
    _need_length(word.split("/"))
    return "" if word == "." else word


def _inode_flag(text: str, word: str) -> bytes:
    if not re.fullmatch(f"[+-][{LETTERS}]", word):
        known = ", ".join(f"+{letter}" for letter in LETTERS)
        raise UsageError(f"operation {text!r}: {word!r} is no inode flag", f"one of {known}, or with -")
    return word.encode()


def _need_length(names: Sequence[str]) -> None:
    """Raises UsageError for a path of these names that no call takes."""
    path = "/".join(names)
    longest = max(len(name.encode(errors="surrogateescape")) for name in names)
    if longest > MAX_NAME_BYTES:
        raise UsageError(f"a name of {longest} bytes: {path[:40]}...", f"{MAX_NAME_BYTES} at most")
    if (length := len(path.encode(errors="surrogateescape"))) > MAX_PATH_BYTES:
        raise UsageError(f"a path of {length} bytes: {path[:40]}...", f"{MAX_PATH_BYTES} at most (PATH_MAX)")


def _handle(text: str, kind: OperationKind, name: str, word: str) -> str:
    if not re.fullmatch(r"@[A-Za-z0-9_-]+", word):
        raise UsageError(f"operation {text!r}: {word!r} is no handle", "@ and a word: @h")
    if name != "handle" and (name != "path" or kind not in BY_HANDLE):
        known = ", ".join(sorted(BY_HANDLE))
        raise UsageError(f"operation {text!r}: {name} cannot be a handle", f"these take one: {known}")
    return word


def _state(text: str, word: str) -> str:
    if re.fullmatch(r"\d{1,40}", word, re.ASCII):
        return word
    try:
        state = CrashState.parse(word)
    except ValueError as e:
        raise UsageError(f"operation {text!r}: {e}", "or a number, which chooses one") from e
    if state != state.first:
        raise UsageError(f"operation {text!r}: {word} is more than one power cut", "name its first: @t34-2")
    return word


def _number(text: str, kind: OperationKind, name: str, word: str) -> int:
    if kind is OperationKind.CHMOD:
        if not re.fullmatch("0*[0-7]{1,4}", word):
            raise UsageError(f"operation {text!r}: {word!r} are no permission bits", "octal: 644")
        return int(word, 8)
    m = re.fullmatch(r"(\d+)([KM]?)", word, re.ASCII)
    if not m:
        raise UsageError(f"operation {text!r}: {name} {word!r} is no number", "bytes, or with K or M: 4K")
    number = whole_number(m[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20}[m[2]]
    limit = MAX_OFFSET if name in ("offset", "length") else MAX_OWNER
    if number > limit:
        raise UsageError(f"operation {text!r}: {name} {word!r} is more than {limit}, the kernel's limit")
    return number


def flags_of(kind: OperationKind) -> Sequence[str]:
    """The flags that an operation may have; for `docs/generate.py`."""
    return _FLAGS.get(kind, ())


def _flags(text: str, kind: OperationKind, words: Sequence[str]) -> tuple[str, ...]:
    known = _FLAGS[kind]
    for word in words:
        if word not in known:
            raise UsageError(f"operation {text!r}: unknown flag {word!r}", f"one of: {', '.join(known)}")
    return tuple(words)


def operations_of(lines: Iterable[str]) -> tuple[Operation, ...]:
    """The operations of a workload. Raises UsageError for what no guest can do."""
    operations = tuple(map(parse_operation, lines))
    if not 0 < len(operations) <= MAX_OPERATIONS:
        raise UsageError(f"{len(operations)} operations", f"1 to {MAX_OPERATIONS} are possible")
    need_possible(operations)
    if len(operations) > MAX_NAMES and (names := most_names(operations)) > MAX_NAMES:
        raise UsageError(f"{names} names at once", f"a guest can tell of {MAX_NAMES}: make fewer")
    return operations


def _load_operations(path: Path) -> Workload:
    try:
        table = msgspec.toml.decode(path.read_bytes(), type=_OperationList)
    except (msgspec.MsgspecError, UnicodeDecodeError) as e:
        if path.name == DESCRIPTION and (path.parent / "run").is_file():
            raise UsageError(
                f"{path} describes an application, which is named by its directory",
                f"-w {as_argument(str(path.parent))}",
            ) from e
        raise UsageError(f"{path}: {e}", next_key(e, _OperationList)) from e
    try:
        operations = operations_of(itertools.islice(table.lines(), MAX_OPERATIONS + 1))
    except UsageError as e:
        raise UsageError(f"{path}: {e.what}", e.next_step) from e
    return Workload(path.stem, table.summary, operations, question=table.question)


def _load_fio(path: Path) -> Workload:
    try:
        text = path.read_text(encoding="utf-8")
        jobs = _fio_jobs(text, str(path))
    except (configparser.Error, UnicodeDecodeError) as e:
        raise UsageError(f"{path}: {e}", _FIO_HELP) from e
    except UsageError as e:
        raise UsageError(f"{path}: {e.what}", e.next_step) from e
    job = f"/etc/{path.name}"
    runs = tuple(Operation(OperationKind.RUN, argv=("fio", f"--section={s}", job)) for s in jobs)
    # Where a file is not what it should be, fio leaves its state in a file: below /mnt, the second mount
    # showed what the first had not.
    verify = ("fio", "--aux-path=/", "--verify_only")
    # `filename=` and others say where a job's files are, so the check may read any.
    checks = tuple(
        Check(i, (*verify, f"--section={s}", job), ("*",))
        for i, (s, why) in enumerate(jobs.items())
        if not why
    )
    comments = (line.strip("; #") for line in _stripped(text) if line.startswith((";", "#")))
    return Workload(
        path.stem, next(filter(None, comments), "fio job file"), runs, checks, ("fio",), {job: text.encode()}
    )


def _stripped(text: str) -> list[str]:
    """The lines of a job file: fio takes no notice of how far they are indented."""
    return [line.strip() for line in text.split("\n")]


def _fio_jobs(text: str, source: str) -> dict[str, str]:
    """The jobs of a job file, each with why fio would verify nothing of it; empty if it does verify.

    Raises configparser.Error, and UsageError unless one of them is verified.
    """
    shared: dict[str, str | None] = {}
    jobs: dict[str, str] = {}
    for name, options in _fio_sections(text, source):
        if not name.startswith("global"):  # fio looks at no more of the name
            why = _unverified(shared | options)
            jobs[name] = why and jobs.get(name, why)  # sections of one name are one operation
            continue
        shared |= options
        bare = next((job for job, why in jobs.items() if why == _NO_VERIFY), None)
        if bare and "verify" in options:
            raise UsageError(
                f"[{bare}] stands above the [{name}] with verify=, which fio applies to what is below it",
                f"put [{name}] above it",
            )
    if not jobs:
        raise UsageError("no job section", _FIO_HELP)
    if all(jobs.values()):
        told = ", ".join(f"[{job}] {why}" for job, why in jobs.items())
        raise UsageError(f"{told}, so nothing would be looked at after a crash", _VERIFY)
    return jobs


def _fio_sections(text: str, source: str) -> Iterator[tuple[str, dict[str, str | None]]]:
    """The sections in their order, and what stands in each. configparser joins those of one name, and shares
    what is in [DEFAULT]: fio does neither, so each gets a number.
    """
    parser = configparser.ConfigParser(
        allow_no_value=True, comment_prefixes=("#", ";"), interpolation=None, strict=False
    )
    number = itertools.count()
    lines = (f"[{next(number)} {line[1:]}" if line.startswith("[") else line for line in _stripped(text))
    parser.read_string("\n".join(lines), source)
    for section in parser.sections():
        yield section.partition(" ")[2], dict(parser[section])


def _unverified(options: Mapping[str, str | None]) -> str:
    """Why fio would verify nothing of a job with these options; empty if it does verify."""
    if "verify" not in options:
        return _NO_VERIFY
    none = (("verify", "0"), ("verify", "null"), ("do_verify", "0"))
    return next((f"has {key}={value}" for key, value in none if options.get(key) == value), "")


_FIO_HELP = "see fio(1), JOB FILE FORMAT"
_NO_VERIFY = "has no verify="
_VERIFY = "add verify=crc32c, without do_verify=0"
_FORMATS = "workloads/README.md shows the formats, powercut list workloads those that are there"

LOADERS: Mapping[str, Callable[[Path], Workload]] = {".toml": _load_operations, ".fio": _load_fio}


def workload_files() -> dict[str, Path]:
    """The workloads of the set `all`, by name: the files of `workloads/`."""
    return _files_in(resource("workloads"))


def _files_in(folder: Path) -> dict[str, Path]:
    return {p.stem: p for p in sorted(folder.iterdir()) if p.suffix in LOADERS}


def folder_sets() -> dict[str, dict[str, Path]]:
    """The folders of `workloads/` that are sets of their own: they hold workloads that `all` leaves out."""
    folders = [p for p in sorted(resource("workloads").iterdir()) if p.is_dir() and not is_application(p)]
    return {p.name: _files_in(p) for p in folders if _files_in(p)}


def applications() -> dict[str, Path]:
    """The directories of `workloads/`, by the names of the workloads in them."""
    folders = [p for p in sorted(resource("workloads").iterdir()) if is_application(p)]
    return {w.name: folder for folder in folders for w in load_application(folder)}


def without_neighbour(word: str) -> tuple[str, str]:
    """An application's word without what asks for a neighbour; and that, of ENDINGS, empty if it asks for
    none. The word has no schedule.
    """
    ending = next((ending for ending in ENDINGS if word.endswith(ending)), "")
    plain = word.removesuffix(ending)
    if not ending or Path(word).exists() or (word not in applications() and not _is_application(plain)):
        return word, ""
    return plain, ending


def with_neighbours(words: Sequence[str], endings: Iterable[str]) -> list[str]:
    """Every word, and then each once more with each of these neighbours. Raises UsageError for what is no
    application.
    """
    sets, beside = workload_sets(), list[str]()
    for ending, name in itertools.product(endings, [n for word in words for n in _expanded(word, sets)]):
        plain, number = without_schedule(name)
        plain, other = without_neighbour(plain)
        if not other and not _is_application(plain):
            raise UsageError(
                f"{name} has no neighbour: it is no application, and its operations are all that runs",
                f"leave out --{ending[1:]}, or name applications alone: powercut list workloads",
            )
        beside += [] if other else [under_schedule(f"{plain.rstrip('/')}{ending}", number)]
    return list(dict.fromkeys([*words, *beside]))


def _is_application(word: str) -> bool:
    return is_application(Path(word)) if "/" in word else word in applications()


def is_own_application(word: str) -> bool:
    """Whether a word of `select_workloads` stands for an application that this installation does not bring:
    by its path, or by the name of one that `powercut new` made in this checkout.
    """
    place, plain = resource("workloads"), without_neighbour(without_schedule(word)[0])[0]
    if not (folder := Path(plain)).is_absolute():
        folder = place / plain if is_application(place / plain) else applications().get(plain, place)
    brought = (place / "applications.txt").read_text().split()
    return is_application(folder) and folder.resolve() not in {(place / name).resolve() for name in brought}


def load_workload(name: str) -> Workload:
    """One by name, or by the path of a file of one's own. Raises UsageError with the nearest names."""
    if is_generated(name):
        return generate(name)
    plain, number = without_schedule(name)
    if number:
        return _scheduled(load_workload(plain), number)
    known = workload_files()
    if name not in known:  # else no application is read
        if folder := applications().get(name):
            return next(w for w in load_application(folder) if w.name == name)
        alone, ending = without_neighbour(name)
        if ending:
            return beside_another(load_workload(alone), ending)
        for apart in folder_sets().values():
            known |= apart
    path = known.get(name) or Path(name)
    if path.suffix not in LOADERS or not path.is_file():
        raise _no_workload(name, known | applications())
    need_name(path.stem, str(path))
    return LOADERS[path.suffix](path)


def _scheduled(workload: Workload, schedule: ScheduleName) -> Workload:
    return dataclasses.replace(workload, name=under_schedule(workload.name, schedule))


def as_argument(path: str) -> str:
    """A path as a word of a command line, where it is neither a name nor an option."""
    return shlex.quote(path if "/" in path and not path.startswith("-") else f"./{path}")


def absolute_word(word: str) -> str:
    """A workload of the user's own by its absolute path, so that what is begun with it can be resumed from
    another directory. A name of this installation stays one, whatever file has it here.
    """
    plain, number = without_schedule(word)
    path, folder = Path(plain), Path(without_neighbour(plain)[0])
    own = path.is_file() or ("/" in plain and folder.is_dir())
    return under_schedule(str(path.resolve()), number) if own and not what_has_the_name(plain) else word


_MADE_IN = Path("workloads")
"""Where `powercut new` puts what has a plain name."""


def _no_workload(name: str, known: Iterable[str]) -> UsageError:
    path = Path(name)
    if path.is_file():
        kinds = " or ".join(f"*{suffix}" for suffix in LOADERS)
        program = f"a program of one's own stands behind --: powercut run -- {shlex.quote(name)}"
        step = program if os.access(path, os.X_OK) else _FORMATS
        return UsageError(f"{name} is no workload: a file of one's own is {kinds}", step)
    if path.is_dir():
        step = f"an application's directory is named by its path: ./{name}"
        inside = next((p for p in sorted(path.iterdir()) if is_application(p)), None)
        if inside and not is_application(path):
            step = f"each workload of a folder is named by itself: {inside}"
        return UsageError(f"no workload {name!r}", step)
    places = (_MADE_IN / name, _MADE_IN / f"{name}.toml") if "/" not in name else ()
    made = [p for p in places if is_application(p) or (p.suffix in LOADERS and p.is_file())]
    if made:
        return UsageError(f"no workload {name!r}", f"one of your own is named by its path: {made[0]}")
    if variant_of := _variant_of(path):
        folder, one = as_argument(str(variant_of)), shlex.quote(path.name)
        return UsageError(
            f"no workload {name!r}: it is one of those of {variant_of}",
            f"name the folder, and that one by -k: powercut run -w {folder} -k {one}; "
            f"powercut try {folder} -k {one}",
        )
    if "/" in name or path.suffix in LOADERS:
        return UsageError(f"no workload {name!r}: there is no such file or directory", _FORMATS)
    every = [*known, *workload_sets(), *GENERATED_SETS]
    return UsageError(f"no workload {name!r}", near_or(name, every, "powercut list workloads names all"))


def _variant_of(path: Path) -> Path | None:
    """The application's directory of which this would be a variant, named as its cases are."""
    beside = [p for p in path.parent.glob("*/") if path.name.startswith(f"{p.name}-") and is_application(p)]
    return next((p for p in beside if path.name in {w.name for w in load_application(p)}), None)


def workload_sets() -> dict[str, list[str]]:
    """The names of the workloads in each set, by the set's name: `all` files, all `applications`, each
    directory with several, each folder of files, and each `workloads/NAME.set`, which has one name per line.
    """
    of_applications = applications()
    sets = {"all": list(workload_files()), "applications": list(of_applications)}
    sets |= {name: list(files) for name, files in folder_sets().items()}
    for name, folder in of_applications.items():
        if name != folder.name:
            sets.setdefault(folder.name, []).append(name)
    for path in sorted(resource("workloads").glob("*.set")):
        lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
        sets[path.stem] = [line for line in lines if line]
    return sets


def what_has_the_name(name: str) -> str:
    """What of this installation has that name: a workload, or a set of them; empty if nothing has."""
    sets = workload_sets()
    if name in sets or name in GENERATED_SETS:
        return "a set of workloads"
    of_sets = {workload for names in sets.values() for workload in names}
    return "a workload of powercut's own" if name in of_sets or is_generated(name) else ""


def select_workloads(wanted: Sequence[str], shard: str = "") -> list[Workload]:
    """The workloads that `wanted` names: by their own names, by a set's, or by the path of a file or of an
    application's directory.

    `shard`: `2/5` selects the second of five parts: every fifth name, beginning with the second. Raises
    UsageError for an unknown name, for an empty part, and where two workloads have one name: their cases
    would be one.
    """
    sets = workload_sets()
    names = list(dict.fromkeys(n for name in wanted for n in _expanded(name, sets)))
    part = names[_slice_of(shard)]
    if names and not part:
        raise UsageError(f"shard {shard} holds none of {len(names)} workloads", "make fewer parts")
    found: dict[str, Workload] = {}
    for workload in (w for name in part for w in _load_all(name)):
        if workload != found.setdefault(workload.name, workload):
            raise UsageError(
                f"two workloads of one run are named {workload.name!r}", "rename one, or run each by itself"
            )
    return [*found.values()]


def _expanded(name: str, sets: Mapping[str, Sequence[str]]) -> Iterator[str]:
    plain, number = without_schedule(name)
    for found in names_of(plain) if plain in GENERATED_SETS else sets.get(plain, [plain]):
        yield under_schedule(found, number)


def _slice_of(shard: str) -> slice:
    """The names in part `i/n`; all if `shard` is empty. Raises UsageError unless 1 <= i <= n."""
    if not shard:
        return slice(None)
    m = re.fullmatch(r"(\d+)/(\d+)", shard)
    part, parts = (whole_number(m[1]), whole_number(m[2])) if m else (0, 0)
    if not 1 <= part <= parts:
        why = f"there is no part {part} of {parts}" if parts else "that is no part of the workloads"
        reads = f"1/{parts} to {parts}/{parts}" if parts > 1 else "it reads 2/5: the second of five parts"
        raise UsageError(f"shard {shard!r}: {why}", reads)
    return slice(part - 1, None, parts)


def pin_name(workload: str) -> str:
    """What a run calls a workload where it keeps `contents_hash`."""
    return f"workload {workload}"


def contents_hash(workload: Workload) -> str:
    """SHA-256 of a workload with all its files, wherever they lie: of an application, each in its folder. Its
    image is named by what it runs.
    """
    return hashlib.sha256(json_bytes(dataclasses.replace(workload, image=""))).hexdigest()


def is_installed(word: str) -> bool:
    """Whether a word of `select_workloads` stands for workloads of this installation, or generated ones: a
    name, or a path below our own folder of workloads. Looks at no file.
    """
    path = Path(without_schedule(word)[0])
    if "/" not in word and path.suffix not in LOADERS:
        return True
    return path.resolve().is_relative_to(resource("workloads").resolve())


def _load_all(name: str) -> list[Workload]:
    """The workloads of one name; a directory may have several."""
    plain, number = without_schedule(name)
    if "/" in plain and Path(plain).is_dir():
        return [_scheduled(w, number) for w in load_application(Path(plain))]
    folder, ending = without_neighbour(plain)
    if "/" in plain and ending:
        alone = (w for w in load_application(Path(folder)) if not has_neighbour(w))
        return [_scheduled(beside_another(w, ending), number) for w in alone]
    return [load_workload(name)]
