"""By what a real file system hides a loss that a program risks: `vms/filesystems/hides.toml`.

A mechanism is named only where it was seen to matter: the same check of the same run fails under the mode
that lacks this mechanism and differs in nothing else. That a mode keeps what its contract does not promise
says nothing of why.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from harness.errors import UsageError
from harness.host.resources import resource
from harness.report.words import number, plural
from harness.rules.micro import Effect, Micro, Sort
from harness.rules.vulnerabilities import Vulnerability

FILE = "hides.toml"
CONTENTS_BEFORE_REPLACE = "contents before a rename over a file"
CONTENTS_BEHIND_TRUNCATION = "contents behind a truncation to nothing"
CONTENTS_BEFORE_NAME = "contents before a name"
CONTENTS = "contents"
NAMES = "names"
ORDERS = (CONTENTS_BEFORE_REPLACE, CONTENTS_BEHIND_TRUNCATION, CONTENTS_BEFORE_NAME, CONTENTS, NAMES)
"""What a program may rely on, as far as a mechanism may give it."""
_CONTENTS = (Sort.DATA, Sort.SIZE)


class Hiding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`name`: as people call it, with what it does. `orders`: of ORDERS, those that it may give. `without`:
    by the mode that has it, the mode that lacks this alone. `source`: where the kernel does it.
    """

    name: str
    orders: tuple[str, ...]
    without: dict[str, str]
    source: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mechanism: tuple[Hiding, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """How many states of a mode failed a check, of how many."""

    failed: int
    states: int


@functools.cache
def mechanisms() -> tuple[Hiding, ...]:
    """All that are known. Raises UsageError for a file that does not parse."""
    path = resource("vms", "filesystems", FILE)
    try:
        return msgspec.toml.decode(path.read_bytes(), type=_File).mechanism
    except (OSError, msgspec.MsgspecError) as e:
        raise UsageError(f"{path}: {e}", "harness/ruled/hides.py has its form") from e


def orders_of(effect: Effect, found: Vulnerability) -> tuple[str, ...]:
    """Which of ORDERS a program relies on there; none where a call must not be torn, or nothing is lost."""
    lost = list(effect.of(found.missing))
    if found.state.torn is not None or not lost:
        return ()
    if all(m.sort is Sort.NAME for m in lost):
        return (NAMES,)
    if not all(m.sort in _CONTENTS for m in lost):
        return ()
    return tuple(_of_contents(effect, lost, list(effect.of(found.present))))


def _of_contents(effect: Effect, lost: Sequence[Micro], there: Sequence[Micro]) -> Iterator[str]:
    files = {m.inode for m in lost}
    named = [m for m in there if any(held in files for _, _, held in m.names)]
    if any(m.replaced for m in named):
        yield CONTENTS_BEFORE_REPLACE
    before = effect.issued(min(m.call for m in lost))
    if any(m.exact and not m.size and m.inode in files for m in effect.of(before)):
        yield CONTENTS_BEHIND_TRUNCATION
    if named:
        yield CONTENTS_BEFORE_NAME
    if not there:
        yield CONTENTS


def by_what(mode: str, orders: Collection[str], seen: Mapping[str, Seen], *, promised: bool) -> str:
    """By what a mode keeps or hides what breaks one of these orders, in words; empty if its contract promises
    the order and no more is known. `seen`: by mode, what the same check said in the same run.
    """
    mine = [(m, m.without[mode]) for m in mechanisms() if mode in m.without and {*m.orders} & {*orders}]
    shown = [
        f"by {m.name}: {number(seen[other].failed)} of {plural(seen[other].states, 'state')} fail under "
        f"{other}, which lacks that alone"
        for m, other in mine
        if other in seen and seen[other].failed
    ]
    if shown:
        return f"{'kept' if promised else 'hidden'} {' and '.join(shown)}"
    if promised:
        return ""
    left = dict.fromkeys(other for _, other in mine if other not in seen)
    more = f" (run {', '.join(left)} as well to learn more)" if left else ""
    return f"hidden, by what is not known{more}"
