"""Python and Rust make the same data (the Rust side: `cargo test -p powercut-protocol`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.oracles.pattern import POISON, POISON_BLOCK_BYTES, fill, poison, word

VECTORS: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[3] / "vms/protocol/pattern_vectors.json").read_text()
)


@pytest.mark.parametrize("vector", VECTORS["words"], ids=str)
def test_words_agree_with_the_vectors(vector: dict[str, Any]) -> None:
    assert f"{word(vector['writer'], vector['place']):016x}" == vector["word"]


@pytest.mark.parametrize("vector", VECTORS["fills"], ids=str)
def test_fills_agree_with_the_vectors(vector: dict[str, Any]) -> None:
    assert fill(vector["writer"], vector["offset"], len(vector["bytes"]) // 2).hex() == vector["bytes"]


@given(st.integers(0, 0xFFFF), st.integers(0, 1 << 34), st.integers(0, 40), st.integers(0, 40))
def test_a_part_of_a_fill_is_that_part(writer: int, offset: int, skip: int, length: int) -> None:
    assert fill(writer, offset + skip, length) == fill(writer, offset, skip + length)[skip:]


@given(st.integers(0, 0xFFFF), st.integers(0, 0xFFFFFFFF))
def test_no_word_is_zero(writer: int, place: int) -> None:
    assert word(writer, place) != 0


def test_poison_numbers_the_blocks() -> None:
    blocks = 300
    device = b"".join(poison(blocks * POISON_BLOCK_BYTES))
    assert len(device) == blocks * POISON_BLOCK_BYTES
    for block in (0, 1, 255, 256, 299):
        at = block * POISON_BLOCK_BYTES
        assert device[at : at + POISON_BLOCK_BYTES] == word(POISON, block).to_bytes(8, "little") * 512


def test_poison_fills_whole_blocks_only() -> None:
    with pytest.raises(ValueError, match="5000"):
        list(poison(5000))
