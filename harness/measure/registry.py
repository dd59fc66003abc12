"""The measurements by name. A new one is a module of this folder and a line here."""

from __future__ import annotations

from collections.abc import Mapping

from harness.measure.bonnie import Bonnie
from harness.measure.comparison import Comparison
from harness.measure.double_write import DoubleWrite
from harness.measure.large_file import LargeFile
from harness.measure.many_entries import ManyEntries
from harness.measure.power_cut import PowerCut
from harness.measure.read_while_writing import ReadWhileWriting
from harness.measure.small_files import SmallFiles

_ALL: tuple[Comparison, ...] = (  # type: ignore[type-arg]  # each has a rig of its own
    DoubleWrite(),
    PowerCut(),
    Bonnie(),
    SmallFiles(),
    LargeFile(),
    ReadWhileWriting(),
    ManyEntries(),
)

COMPARISONS: Mapping[str, Comparison] = {c.name: c for c in _ALL}  # type: ignore[type-arg]  # as above
