"""The kernels on which a finding was looked for again: a strip below it in the report.

`powercut history` leaves it in the run directory whose finding it followed; it is data like the rest.
"""

from __future__ import annotations

import msgspec

from harness.host.files import json_or_none, write_atomically
from harness.store.layout import RunLayout
from harness.summary import CaseVerdict


class StripCell(msgspec.Struct, frozen=True):
    """A kernel's answer, in words, with the verdict that colours it; `why`: the details."""

    kernel: str
    verdict: CaseVerdict
    words: str
    why: str = ""


class Strip(msgspec.Struct, frozen=True):
    """All kernels in order, and the sentence that they come to."""

    story: str
    cells: tuple[StripCell, ...]


def write_strip(layout: RunLayout, finding: str, strip: Strip) -> None:
    """Keep the strip of a finding, by its id, in place of an older one."""
    path = layout.strip(finding)
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, msgspec.json.encode(strip))


def read_strip(layout: RunLayout, finding: str) -> Strip | None:
    """The strip of a finding; None if there is none, or none that can be read: it decides no verdict."""
    return json_or_none(layout.strip(finding), Strip)
