"""The mail of a bug report: whole, and no longer than a screen."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.findings.mail import LINES, NUMBERING, mail
from harness.model import Operation
from harness.report.explanation import LABELS
from harness.tests.explain.test_explain import explanation
from harness.workloads.load import parse_operation

LIST = "linux-ext4@vger.kernel.org"
SEEN = ("debian-6.12: seen", "debian-7.3: found")


def operations(count: int) -> list[Operation]:
    return [parse_operation(f"create file-{n}") for n in range(count)]


def test_it_says_to_whom_of_what_why_and_on_which_kernels() -> None:
    lines = dict.fromkeys(LABELS, "some words") | {"promised": "by `fsync f`, operation 2"}
    found = msgspec.structs.replace(explanation(), lines=lines, mechanism="No flush at all. None was sent.")
    text = mail(LIST, "ext4: f: missing", "ext4/x: f: missing", operations(3), SEEN, found)
    head, _, body = text.partition("\n\n")
    assert head == f"To: {LIST}\nSubject: ext4: f: missing"
    assert "No flush at all. None was sent." in body
    assert "    create file-2\n    (power cut)\n" in body
    assert "promised:  by `fsync f`, operation 2" in body
    assert "reproduce:" not in body  # it names a run directory that only the sender has
    assert "Kernels: debian-6.12: seen; debian-7.3: found." in body
    assert "TO DO: Fixes:" in body


@pytest.mark.parametrize(("returned", "before"), [(None, 3), (2, 2), (0, 0)])
def test_the_power_cut_stands_behind_what_had_returned(returned: int | None, before: int) -> None:
    """It stood behind all operations, while the script cut the power in front of some."""
    lines = mail(LIST, "s", "s", operations(3), SEEN, None, returned=returned).splitlines()
    first = lines.index("    (power cut)" if before == 0 else "    create file-0")
    assert [line.strip() for line in lines[first : first + 4]].index("(power cut)") == before


def test_it_says_which_of_its_numbers_are_of_the_shrunk_workload() -> None:
    """Operations were numbered as in the shrunk one, entries as in the whole, and neither was said."""
    texts = [mail(LIST, "s", "s", operations(3), SEEN, explanation(), shrunk=s) for s in (False, True)]
    assert ["are numbered" in text for text in texts] == [False, True]
    assert texts[1].replace("\n", " ").count(NUMBERING) == 1
    assert texts[1].splitlines()[-1].startswith("TO DO: Fixes:")


def test_what_is_not_explained_is_sent_as_it_is() -> None:
    text = mail("", "x: y", "x/y: lost", operations(30), SEEN, None)
    assert text.startswith("To: TO DO")
    assert "x/y: lost" in text
    assert "file-29" not in text


def test_what_is_too_long_loses_nothing_at_its_end() -> None:
    """The last lines were cut off: the mail had no line for the commit any more, and nobody missed it."""
    why = "it has many words " * 50
    found = msgspec.structs.replace(explanation(), mechanism=why, lines=dict.fromkeys(LABELS, why))
    lines = mail(LIST, "s", "s", operations(8), [why], found, shrunk=True).splitlines()
    assert len(lines) == LINES
    assert lines[-1].startswith("TO DO: Fixes:")
    end = " ".join(lines[lines.index("...") :])
    assert "Kernels: it has" in end
    assert NUMBERING in end


WORDS = st.text(st.sampled_from("abc f.,\n"), max_size=900)


@given(WORDS, st.dictionaries(st.sampled_from(LABELS), WORDS), st.integers(0, 12))
def test_it_fits_a_screen_and_ends_with_what_is_to_do(
    mechanism: str, lines: dict[str, str], count: int
) -> None:
    found = msgspec.structs.replace(explanation(), lines=lines, mechanism=mechanism)
    text = mail(LIST, "ext4: f\nTo: me", "f", operations(count), SEEN, found, shrunk=True).splitlines()
    assert len(text) <= LINES
    assert [line for line in text if line.startswith("To:")] == [f"To: {LIST}"]
    assert text[-1].startswith("TO DO: Fixes:")
