"""Catalogues of TOML files: one loader for planted faults and upstream bugs."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.faults.catalogue import PlantedFault
from harness.regressions.catalogue import Bug
from harness.series.catalogue import Listed, load_all, named


class Item(Listed, frozen=True, kw_only=True):
    """The least that a catalogue may hold."""

    weight: int = 0


WHOLE = 'summary = "x"\nmodes = ["ext4/ordered"]\noracles = ["fsck"]\n'


def light(item: Item) -> None:
    if item.weight > 9:
        raise UsageError("it is too heavy")


def test_a_file_is_known_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text(WHOLE + "weight = 9")
    (tmp_path / "a.toml").write_text(WHOLE)
    (tmp_path / "notes.txt").write_text("no file of the catalogue")
    found = load_all(tmp_path, Item, light)
    assert [(name, item.name, item.weight) for name, item in found.items()] == [("a", "a", 0), ("b", "b", 9)]


@pytest.mark.parametrize(
    ("text", "says", "next_step"),
    [
        ("\x00", "a.toml: ", "compare it with its neighbours"),
        (WHOLE + "colour = 1", "unknown field `colour`", "compare it with its neighbours"),
        (WHOLE.replace("ordered", "orderd"), "a.toml: there is no mode 'ext4/orderd'", "one of: "),
        (WHOLE.replace("ordered", "ordered@riad1"), "a.toml: no stack 'riad1'", "try one of: raid1"),
        (WHOLE.replace("fsck", "fsk"), "a.toml: there is no oracle 'fsk'", "one of: assembles"),
        (WHOLE + "weight = 10", "a.toml: it is too heavy", "compare it with its neighbours"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong_and_what_to_do(
    text: str, says: str, next_step: str, tmp_path: Path
) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(UsageError) as e:
        load_all(tmp_path, Item, light)
    assert says in e.value.what
    assert e.value.next_step.startswith(next_step)


def test_a_mode_may_be_on_a_stack(tmp_path: Path) -> None:
    """A fault of dm-thin could not be planted: no mode had it."""
    (tmp_path / "a.toml").write_text(WHOLE.replace("ordered", "ordered@thin"))
    assert load_all(tmp_path, Item, light)["a"].modes == ("ext4/ordered@thin",)


def test_names_are_looked_up_in_the_order_in_which_they_were_given(tmp_path: Path) -> None:
    for name in ("a", "b", "bc"):
        (tmp_path / f"{name}.toml").write_text(WHOLE)
    known = load_all(tmp_path, Item, light)
    assert [i.name for i in named(known, ["b", "a", "b"], "item", "list")] == ["b", "a"]
    assert [i.name for i in named(known, [], "item", "list")] == ["a", "b", "bc"]
    with pytest.raises(UsageError, match="no item 'bcd'") as e:
        named(known, ["bcd"], "item", "list")
    assert e.value.next_step == "did you mean bc?"


def test_both_catalogues_are_loaded_so() -> None:
    """Two copies of the loader refused alike only as long as nobody changed one of them."""
    assert issubclass(PlantedFault, Listed)
    assert issubclass(Bug, Listed)
