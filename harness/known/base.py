"""The base of known bugs.

A bug has a `[record]` in its own TOML file: `reports/findings/SLUG/finding.toml` if Powercut found it,
`kernels/regressions/NAME.toml` if it was mended upstream. `--known FILE` adds those of a file:

```toml
[[bug]]
name = "ourfs-fsync-dir"
title = "ourfs: fsync of a directory logs no names"

[bug.record]
severity = "loses-synced"
mechanism = "the log has the directory's inode alone"
first = "6.12"
[[bug.record.shows]]
modes = ["ourfs/*"]
oracles = ["durability"]
symptoms = ["NAME: missing"]
operations = '(?m)^fsync d$'
```
"""

from __future__ import annotations

import enum
import functools
import importlib
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from harness.errors import UsageError
from harness.host.resources import resource
from harness.host.text import near_or

T = TypeVar("T", bound=msgspec.Struct)
Version = tuple[int, ...]
NOT_NAMED = "not named"
"""Among causes: that of a finding whose cause `powercut show` could not tell."""
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?")


# What `re` itself makes of an expression, as a sequence of (operation, its arguments).
_PARSER, _COMPILER = importlib.import_module("re._parser"), importlib.import_module("re._compiler")


def _ends(items: Any) -> bool:
    """Whether a search with a parsed expression ends: it repeats nothing that the same text can be in more
    ways than one, all of which would be tried.
    """
    for operation, arguments in items:
        if str(operation) in _REPEATS and arguments[1] > 1 and not _is_one_way(arguments[2]):
            return False
        if not all(map(_ends, _parts(arguments))):
            return False
    return True


_REPEATS = ("MAX_REPEAT", "MIN_REPEAT")


def _parts(arguments: Any) -> Iterator[Any]:
    """The expressions in the arguments of an operation."""
    if isinstance(arguments, _PARSER.SubPattern):
        yield arguments
    elif isinstance(arguments, list | tuple):
        for part in arguments:
            yield from _parts(part)


def _is_one_way(body: Any) -> bool:
    """Whether what is repeated has one length, or is a line of which one part alone varies."""
    if len(body) == 1 and str(body[0][0]) == "SUBPATTERN" and not body[0][1][1]:
        return _is_one_way(body[0][1][3])
    varying = [again for low, high, again in _repeats(body) if low != high]
    if not varying:
        return _is_told_apart(body, "")
    again, *more = varying
    is_line = any((str(end[0]), end[1]) == ("LITERAL", ord("\n")) for end in (body[0], body[-1]))
    is_in_line = again.getwidth() == (1, 1) and _COMPILER.compile(again).fullmatch("\n") is None
    return is_line and not more and is_in_line and _is_told_apart(body, "")


def _repeats(items: Any) -> Iterator[tuple[int, int, Any]]:
    """The repeats in what is repeated that are gone back to."""
    for operation, arguments in items:
        match str(operation):
            case "MAX_REPEAT" | "MIN_REPEAT":
                yield arguments
            case "SUBPATTERN" if arguments[1]:  # flags of its own: nobody looks whether `.` is a newline
                yield 0, 2, arguments[3]
            case "SUBPATTERN" | "BRANCH" | "GROUPREF_EXISTS":
                for part in _parts(arguments):
                    yield from _repeats(part)


def _is_told_apart(items: Any, behind: str) -> bool:
    """Whether no alternative begins like another one. `behind`: the letter that follows."""
    for n, (operation, arguments) in enumerate(items):
        follows = _letters(items[n + 1 : n + 2], "") if n + 1 < len(items) else behind
        if str(operation) == "BRANCH":
            begins = [_letters(part, follows) for part in arguments[1]]
            if any(a.startswith(b) for a, b in itertools.permutations(begins, 2)):
                return False
        inside = _parts(arguments) if str(operation) in ("SUBPATTERN", "BRANCH") else ()
        if not all(_is_told_apart(part, follows) for part in inside):
            return False
    return True


def _letters(items: Any, behind: str) -> str:
    """With which letters an expression begins; with what follows, if it is nothing but letters."""
    literal = list(itertools.takewhile(lambda item: str(item[0]) == "LITERAL", items))
    return "".join(chr(code).lower() for _, code in literal) + (behind if len(literal) == len(items) else "")


class Severity(enum.StrEnum):
    """What a bug does to those whom it meets; the worst first."""

    DESTROYS = "destroys"
    LOSES_SYNCED = "loses-synced"
    DAMAGES_UNSYNCED = "damages-unsynced"
    COSMETIC = "cosmetic"

    @property
    def words(self) -> str:
        """For people, behind the name of a bug."""
        return {
            Severity.DESTROYS: "makes the file system unusable without repair",
            Severity.LOSES_SYNCED: "loses data that was synced",
            Severity.DAMAGES_UNSYNCED: "damages data that was not synced",
            Severity.COSMETIC: "loses no data",
        }[self]


class During(enum.StrEnum):
    """What went wrong beside the power cut: nothing; another power cut, or a faulty disk, in recovery."""

    POWER_CUT = "power-cut"
    CUT_RECOVERY = "cut-recovery"
    FAULTY_DISK = "faulty-disk"


class Sighting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a bug shows in a run; everything that is stated here has to agree.

    `modes`, `symptoms`: shell patterns; a symptom as report.txt of a finding has it, never left out. Modes as
    in a file of expected failures: `ext4/*` does not cover `ext4/nobarrier`, or `ext4/ordered@loop`.
    `says`: a regular expression; it has to be found in what the finding says, names and numbers included.
    `operations`: a regular expression; it has to be found in the operations that had begun when the power
    failed, a line each, up to the one whose promise is broken. `{lost}` in it: the path that was lost, or any
    of the names of what was. Names stand in place of handles, where what they hold has a name at the time; a
    write with O_SYNC or O_DSYNC is found as it is written, and as one with fsync or fdatasync behind it. An
    expression that names a handle (`@h`) is looked for in the operations as they were written, too.
    Lines between two operations are `(.*\\n)*`. An expression that repeats what can be read in more ways than
    one, as in `(.*\\n?)*`, is refused: the search might never end.
    `later`: the same, in all that had begun, for what another operation destroyed after the promise.
    `quiet`: the operation whose promise is broken has to have returned without a flush and without a write
    with FUA. `loses`: whether the state lacks writes that had been sent; a prefix of the log is not told to,
    and false refuses one only if the finding was explained by a lost write. `whole`: whether the disk may
    have had all that it was sent, which is never said of a prefix of the log. `causes`: the causes that
    `powercut show` names for it, in its words (`record ahead of its blocks`). A finding that was explained
    has to have one of these; one whose cause could not be told is new without `not named` among them.
    `during`: what went wrong: power-cut alone, cut-recovery (of which alone confluence judges) or faulty-disk
    (of which honesty does, and no other oracle).
    """

    modes: tuple[str, ...]
    oracles: tuple[str, ...]
    symptoms: tuple[str, ...]
    says: str = ""
    operations: str = ""
    later: str = ""
    quiet: bool = False
    loses: bool | None = None
    whole: bool = True
    causes: tuple[str, ...] = ()
    during: During = During.POWER_CUT

    def __post_init__(self) -> None:
        if not (self.modes and self.oracles and self.symptoms):
            raise ValueError("a bug is known by modes, oracles and symptoms: name at least one of each")
        if any(not s.strip("*? ") for s in self.symptoms):
            raise ValueError("a symptom of wildcards alone fits every bug: say what is lost")
        for field, pattern in (("says", self.says), ("operations", self.operations), ("later", self.later)):
            try:
                parsed = _PARSER.parse(pattern.replace("{lost}", "x"))
                re.compile(pattern.replace("{lost}", "x"))
            except re.error as e:
                raise ValueError(f"{field}: {pattern!r} is no regular expression: {e}") from e
            if not _ends(parsed):
                raise ValueError(
                    f"{field}: {pattern!r} repeats what can be read in more ways than one, so that a search "
                    "may never end: repeat whole lines, as in (.*\\n)*, or do not go back, as in (?>...)"
                )


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is known of a bug.

    `severity`: destroys, loses-synced, damages-unsynced or cosmetic. `mechanism`: how the promise is broken.
    `shows`: what a run sees of it; none: no run can see it, none has, or another bug's record says it.
    `first`: the first version that has it, so far as known: `6.1`. `last`: the last in which it was seen.
    `since`: where it comes from. `mended`: versions that no longer have it; one of two numbers, `6.17`, says
    so of all later ones, too, one of three of its own series alone. `mended_by`: the commit. `likely`: how
    often it is met. `workaround`: what a user can do. `list`: where it belongs. `status`: what became of it.
    """

    severity: Severity
    mechanism: str
    shows: tuple[Sighting, ...] = ()
    first: str
    last: str = ""
    since: str = ""
    mended: tuple[str, ...] = ()
    mended_by: str = ""
    likely: str = ""
    workaround: str = ""
    list: str = ""
    status: str = ""

    def __post_init__(self) -> None:
        for text in filter(None, (self.first, self.last, *self.mended)):
            if not _VERSION.fullmatch(text):
                raise ValueError(f"{text!r} is no version of a kernel, such as 6.12 or 6.12.117")

    def affects(self, version: Version) -> bool:
        """Whether a kernel of this version has the bug, so far as known."""
        return version >= version_of(self.first) and not any(_is_mended(version, m) for m in self.mended)

    def may_affect(self, version: Version) -> bool:
        """Whether a kernel of this version may have the bug: one before `first` only if nobody knows where it
        comes from, for then it is the first that was looked at.
        """
        early = not self.since and version < version_of(self.first)
        return early or self.affects(version)

    def affects_any(self, version: Version) -> bool:
        """The same; of two numbers, whether any release of that series has it: a bug may have come in one."""
        first = version_of(self.first)
        return self.affects(first if len(version) == 2 and first[:2] == version else version)

    def looked_for(self, version: Version) -> bool:
        """Whether the bug was looked for in a kernel as late as this one."""
        last = version_of(self.last or self.first)
        both = min(len(last), len(version))
        return last[:both] >= version[:both]


def _is_mended(version: Version, mended: str) -> bool:
    since = version_of(mended)
    return version >= since and (len(since) == 2 or version[:2] == since[:2])


def version_of(release: str) -> Version:
    """The numbers of a kernel's release: `6.12.117+deb12-amd64`. Empty if it names none."""
    found = _VERSION.match(release)
    return tuple(int(n) for n in found[0].split(".")) if found else ()


class KnownBug(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A bug by its name."""

    name: str
    title: str
    record: Record


class KnownBugs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a run has beside the installed base: `bug`, from files of the user. `new_only`: known bugs count
    as expected failures.
    """

    bug: tuple[KnownBug, ...] = ()
    new_only: bool = False


class _File(msgspec.Struct, frozen=True):
    """What the base reads of a bug's own file; other fields are others' business."""

    title: str = ""
    summary: str = ""
    record: Record | None = None


@functools.cache
def installed() -> Mapping[str, KnownBug]:
    """The bugs that this installation knows, by name. Raises UsageError for a file that does not parse."""
    findings = resource("reports", "findings").glob("*/finding.toml")
    files = [(path.parent.name, path) for path in sorted(findings)]
    files += [(path.stem, path) for path in sorted(resource("kernels", "regressions").glob("*.toml"))]
    return {bug.name: bug for name, path in files if (bug := _bug_in(name, path))}


def _bug_in(name: str, path: Path) -> KnownBug | None:
    file = _decoded(path, _File)
    if file.record is None:
        return None
    return KnownBug(name=name, title=file.title or file.summary, record=file.record)


def read_known(path: Path, oracles: Collection[str]) -> tuple[KnownBug, ...]:
    """The bugs in a file of the user. Raises UsageError if it cannot be read or is malformed, names an oracle
    that is none of `oracles`, or one that does not judge what went wrong: such a bug would be known and match
    nothing.
    """
    bugs = _decoded(path, KnownBugs).bug
    for bug in bugs:
        for name in (o for sighting in bug.record.shows for o in sighting.oracles if o not in oracles):
            raise UsageError(
                f"{path}: {bug.name}: no oracle is called {name}",
                near_or(name, oracles, f"there are: {', '.join(oracles)}"),
            )
        for why in filter(None, map(never_seen, bug.record.shows)):
            raise UsageError(f"{path}: {bug.name}: {why}", "give each a [[bug.record.shows]] of its own")
    return bugs


_JUDGES_ONLY: Mapping[str, During] = {"honesty": During.FAULTY_DISK, "confluence": During.CUT_RECOVERY}


def never_seen(sighting: Sighting) -> str:
    """Why no finding can be this: an oracle of it does not judge what went wrong. Empty if each does."""
    for oracle in sighting.oracles:
        only = _JUDGES_ONLY.get(oracle)
        if only not in (None, sighting.during):
            return f"{oracle} is for {only}, and not for {sighting.during}"
        if only is None and sighting.during is During.FAULTY_DISK:
            return f"{oracle} does not judge a {sighting.during}: honesty alone does"
    return ""


def _decoded(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.toml.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, ValueError) as e:
        raise UsageError(
            f"{path}: {e}", "powercut known NAME shows a bug; docs/reference/files.md has the form"
        ) from e


def with_bugs(more: Iterable[KnownBug]) -> Mapping[str, KnownBug]:
    """The installed base with these; one of the same name takes the place of the installed one."""
    return {**installed(), **{bug.name: bug for bug in more}}
