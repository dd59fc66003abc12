"""Samples, one line of JSON each, and what is computed from them.

Rounds are interleaved: each measures every configuration once. So a change on the host affects all
configurations alike, and two of them are compared *within a round*.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from harness.measurements.results import Spread

_NORMAL_95 = 1.959964  # of the normal distribution, 95 % lie within so many standard deviations
FILE_NAME = "samples.jsonl"
"""The file in a run directory with every single figure."""


class Sample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The figures of one configuration in one round: numbers and words by name. `reason`: why it could not be
    measured; empty if it was. `seconds`: how long measuring took.
    """

    configuration: str
    round: int
    values: dict[str, float] = {}
    words: dict[str, str] = {}
    reason: str = ""
    seconds: float = 0.0


@dataclass
class Samples:
    """All samples of a run, in the order in which they were taken."""

    taken: list[Sample] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path) -> Samples:
        """Read them from a file; a line that a crash cut off, or that is damaged, is ignored: its round is
        measured again.
        """
        return cls([*_read(path)] if path.exists() else [])

    def add(self, sample: Sample, path: Path) -> None:
        """Add a sample, and append it to the file `path`."""
        self.taken.append(sample)
        with path.open("ab") as file:
            # the line before may have been cut off
            file.write(b"\n" + msgspec.json.encode(sample) + b"\n")

    def has(self, configuration: str, number: int) -> bool:
        """Whether there is such a sample; one that failed does not count."""
        return number in self._rounds(configuration)

    def configurations(self) -> tuple[str, ...]:
        """In the order of their first samples."""
        return tuple(dict.fromkeys(s.configuration for s in self.taken))

    def values(self, configuration: str, figure: str) -> Mapping[int, float]:
        """One figure by round."""
        rounds = self._rounds(configuration)
        return {number: s.values[figure] for number, s in rounds.items() if figure in s.values}

    def words(self, configuration: str, name: str) -> tuple[str, ...]:
        """One of the words, in the order of rounds."""
        return tuple(s.words[name] for s in self._rounds(configuration).values() if name in s.words)

    def spread(self, configuration: str, figure: str) -> Spread | None:
        """The spread of one figure over the rounds; None if it was never measured."""
        taken = self.values(configuration, figure)
        return Spread.of(taken.values()) if taken else None

    def _rounds(self, configuration: str) -> dict[int, Sample]:
        of_it = (s for s in self.taken if s.configuration == configuration and not s.reason)
        return {s.round: s for s in of_it}


def _read(path: Path) -> Iterator[Sample]:
    for line in path.read_bytes().split(b"\n"):
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            yield msgspec.json.decode(line, type=Sample)


def interval(hits: int, times: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a rate that was `hits` of `times`; everything from 0 to 1 where nothing was
    tried. (E. B. Wilson, 1927, Journal of the American Statistical Association 22.)
    """
    if not times:
        return 0.0, 1.0
    rate, square = hits / times, _NORMAL_95**2
    middle = (rate + square / (2 * times)) / (1 + square / times)
    half = _NORMAL_95 / (1 + square / times) * math.sqrt(rate * (1 - rate) / times + square / (4 * times**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def ratios(upper: Mapping[int, float], lower: Mapping[int, float]) -> Spread | None:
    """The spread of `upper / lower` over the rounds that have both, with the lower one above zero; None if no
    round has. The median is that of the rounds' ratios: where the host's load drifts, it varies less than a
    ratio of two medians.
    """
    found = [upper[n] / lower[n] for n in sorted(upper.keys() & lower.keys()) if lower[n] > 0]
    return Spread.of(found) if found else None
