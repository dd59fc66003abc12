"""Contracts are data: an error says what would be valid."""

from __future__ import annotations

import dataclasses

import pytest

from harness.errors import UsageError
from harness.oracles.contract import CHOICES, Contract
from harness.tests.oracles.cases import CONTRACTS, ORDERED, variant


def table_of(contract: Contract) -> dict[str, object]:
    """As it stands in a mode's file."""
    return {**{name: getattr(contract, name) for name in CHOICES}, "rules": list(contract.rules)}


@pytest.mark.parametrize("contract", CONTRACTS.values(), ids=list(CONTRACTS))
def test_a_table_gives_the_contract_back(contract: Contract) -> None:
    assert Contract.from_table(table_of(contract)) == contract


def test_every_field_has_its_choices() -> None:
    assert list(CHOICES) == sorted(CHOICES, key=[f.name for f in dataclasses.fields(Contract)].index)


def refusal(**changes: object) -> str:
    with pytest.raises(UsageError) as e:
        Contract.from_table({**table_of(ORDERED), **changes})
    return str(e.value)


def test_an_unknown_key_names_the_nearest() -> None:
    assert "'size_lag'" in refusal(size_lag=True)
    assert "try 'size_lags'" in refusal(size_lag=True)


def test_an_unknown_value_names_the_nearest() -> None:
    message = refusal(data="orderd")
    assert "data = 'orderd'" in message
    assert "'ordered'" in message


@pytest.mark.parametrize("value", [1, 0, "true", None])
def test_a_flag_must_be_a_flag(value: object) -> None:
    assert f"size_lags = {value!r} is not allowed" in refusal(size_lags=value)
    assert "true" in refusal(size_lags=value)


@pytest.mark.parametrize("rules", ["only-sync", [1], [["only-sync"]], {"only-sync": True}])
def test_rules_are_a_list_of_their_names(rules: object) -> None:
    """What was no name ended in a TypeError."""
    with pytest.raises(UsageError, match="rules = "):
        variant(rules=rules)


def test_a_missing_key_shows_what_to_add() -> None:
    table = table_of(ORDERED)
    del table["persists"]
    with pytest.raises(UsageError, match="persists missing") as e:
        Contract.from_table(table)
    assert "persists = 'transaction' or 'operations' or 'inode' or 'nothing'" in str(e.value)


def test_what_is_left_out_is_promised_in_full() -> None:
    """A new field had to be put into the file of every mode of every file system."""
    table = {name: table_of(ORDERED)[name] for name in ("namespace", "persists", "data")}
    assert Contract.from_table(table) == Contract(
        "prefix", "transaction", "ordered", False, False, False, True, True
    )
    for name in table:
        with pytest.raises(UsageError, match=f"{name} missing"):
            Contract.from_table({key: value for key, value in table.items() if key != name})


@pytest.mark.parametrize(
    "changes",
    [
        {"data": "journal"},
        {"data": "journal", "size_lags": False},
        {"stale_allowed": True},
        {"zeros_in_new_blocks": False},
        {"namespace": "none"},
    ],
    ids=str,
)
def test_contradictions_are_refused(changes: dict[str, object]) -> None:
    assert "CONTRACTS.md" in refusal(**changes)
