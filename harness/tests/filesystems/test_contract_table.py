"""CONTRACTS.md and the modes' files say the same. They did not, for btrfs flushoncommit and ReiserFS."""

from __future__ import annotations

import re

from harness.filesystems.profiles import profiles, select_profiles
from harness.host.resources import resource
from harness.oracles.contract import CHOICES, RULES, Contract

_TEXT = resource("vms/filesystems/CONTRACTS.md").read_text()


def table(first: str) -> list[list[str]]:
    """The cells of the one table whose header begins with this cell."""
    (found,) = re.findall(rf"^\| {first} \|.*\n\|[ -|]*\n((?:\|.*\n)+)", _TEXT, re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found.splitlines()]


def words(contract: Contract) -> list[str]:
    """A contract as the cells of its row in the table of all modes."""
    values = (getattr(contract, name) for name in CHOICES)
    told = [("yes" if v else "no") if isinstance(v, bool) else str(v) for v in values]
    return [*told, ", ".join(contract.rules) or "none"]


def test_every_mode_is_in_the_table_with_what_its_file_says() -> None:
    written = {mode: row[1:] for row in table("modes") for mode in row[0].split(", ")}
    in_files = {f"{p.filesystem}/{p.mode}": words(p.contract) for p in profiles().values()}
    assert written == in_files


def test_each_mode_has_one_row() -> None:
    modes = [mode for row in table("modes") for mode in row[0].split(", ")]
    assert sorted(set(modes)) == sorted(modes)


def test_the_header_names_the_fields_in_their_order() -> None:
    (header,) = re.findall(r"^\| modes \|(.*)\|$", _TEXT, re.MULTILINE)
    assert [cell.strip(" `") for cell in header.split("|")] == [*CHOICES, "rules"]


def test_every_rule_is_explained() -> None:
    assert [row[0].strip("`") for row in table("rule")] == list(RULES)


def test_every_rule_is_chosen_by_a_mode() -> None:
    modes = [*profiles().values(), *select_profiles(["ext4/ordered@raid1", "ext4/ordered@overlay"])]
    assert {rule for p in modes for rule in p.contract.rules} == set(RULES)
