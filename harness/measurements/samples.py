"""Figures as they were taken, one line of JSON each, and what is made of them.

Rounds are interleaved: every configuration once, then every one again. So what changes on the host in
the meantime meets all of them, and two configurations are held against each other *within a round*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from harness.measurements.results import Spread

FILE_NAME = "samples.jsonl"
"""Of the file in a run's directory with every single figure."""


class Sample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one configuration gave in one round: numbers and words by name. `reason`: not empty where it could
    not be measured, and then it says why. `seconds`: that taking it has cost.
    """

    configuration: str
    round: int
    values: dict[str, float] = {}
    words: dict[str, str] = {}
    reason: str = ""
    seconds: float = 0.0


@dataclass
class Samples:
    """All of a run, in the order in which they were taken."""

    taken: list[Sample] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path) -> Samples:
        """From the lines of a file; a last line that was cut off by a crash is left out."""
        if not path.exists():
            return cls()
        whole, _, _ = path.read_bytes().rpartition(b"\n")
        return cls([msgspec.json.decode(line, type=Sample) for line in whole.splitlines()])

    def add(self, sample: Sample, path: Path) -> None:
        """Keep it, and write it behind those that `path` holds."""
        self.taken.append(sample)
        with path.open("ab") as file:
            file.write(msgspec.json.encode(sample) + b"\n")

    def has(self, configuration: str, number: int) -> bool:
        """Whether that was measured already; what failed is tried again."""
        return number in self._rounds(configuration)

    def configurations(self) -> tuple[str, ...]:
        """In the order in which they came."""
        return tuple(dict.fromkeys(s.configuration for s in self.taken))

    def values(self, configuration: str, figure: str) -> Mapping[int, float]:
        """One figure by round."""
        rounds = self._rounds(configuration)
        return {number: s.values[figure] for number, s in rounds.items() if figure in s.values}

    def words(self, configuration: str, name: str) -> tuple[str, ...]:
        """One of the words, in the order of rounds."""
        return tuple(s.words[name] for s in self._rounds(configuration).values() if name in s.words)

    def spread(self, configuration: str, figure: str) -> Spread | None:
        """Of one figure over the rounds; None where it was never measured."""
        taken = self.values(configuration, figure)
        return Spread.of(taken.values()) if taken else None

    def _rounds(self, configuration: str) -> dict[int, Sample]:
        of_it = (s for s in self.taken if s.configuration == configuration and not s.reason)
        return {s.round: s for s in of_it}


def ratios(upper: Mapping[int, float], lower: Mapping[int, float]) -> Spread | None:
    """Of `upper / lower`, taken within each round that has both and a lower one above zero; None where none
    has. The median is that of the rounds' own ratios: on a machine whose load drifts it spreads less than a
    ratio of two medians.
    """
    found = [upper[n] / lower[n] for n in sorted(upper.keys() & lower.keys()) if lower[n] > 0]
    return Spread.of(found) if found else None
