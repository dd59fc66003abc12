"""Expected failures: a text file whose every line requires a reason.

```
# configuration   workload   oracle        why
ext4/nobarrier    *          durability    # barrier=0 sends no flush, so fsynced data may be lost
```

The three words are shell patterns (`*`, `?`, `[...]`). For each finding, the first matching line counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from harness.errors import UsageError
from harness.model import CaseId


@dataclass(frozen=True, slots=True)
class Expectation:
    """Findings of `oracle` in `configuration` under `workload` are expected. `origin`: `file:line`.

    Each of the three is a shell pattern. `oracle` may be several, separated by commas, for a fault that shows
    now in one oracle, now in another.
    """

    configuration: str
    workload: str
    oracle: str
    reason: str
    origin: str = ""

    def applies_to(self, case: CaseId) -> bool:
        """Whether it covers this case, under any oracle."""
        return fnmatchcase(case.configuration, self.configuration) and fnmatchcase(
            case.workload, self.workload
        )

    def matches(self, case: CaseId, oracle: str) -> bool:
        """Whether a finding of `oracle` in `case` is expected."""
        return self.applies_to(case) and any(fnmatchcase(oracle, p) for p in self.oracle.split(","))

    def __str__(self) -> str:
        return f"{self.configuration} {self.workload} {self.oracle}"


def first_match(expectations: Iterable[Expectation], case: CaseId, oracle: str) -> Expectation | None:
    """The first expectation that covers a finding of `oracle` in `case`, or None."""
    return next((e for e in expectations if e.matches(case, oracle)), None)


def parse_expectations(text: str, origin: str) -> tuple[Expectation, ...]:
    """Parse the text of a file of expectations; `origin` is its name in errors.

    Raises UsageError, naming file and line, for a line without a reason or without its three patterns.
    """
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        where = f"{origin}:{number}"
        words, _, reason = line.partition("#")
        patterns = words.split()
        if not patterns:
            continue
        if len(patterns) != 3:
            raise UsageError(
                f"{where}: {len(patterns)} patterns where three belong: {words.strip()!r}",
                "write: <configuration> <workload> <oracle>  # reason",
            )
        if not reason.strip():
            raise UsageError(
                f"{where}: the expected failure {words.strip()!r} has no reason",
                "say after a # why this failure is expected; a reader must be able to check it",
            )
        found.append(Expectation(patterns[0], patterns[1], patterns[2], reason.strip(), where))
    return tuple(found)


def read_expectations(path: Path) -> tuple[Expectation, ...]:
    """Read the file of expectations at `path`. Raises UsageError if it cannot be read or is malformed."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot read the expected failures in {path}: {error}", "give a readable text file"
        ) from error
    return parse_expectations(text, str(path))
