"""Packed files: whole or not there, bounded before they are unpacked, refused where they are damaged."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import EnvironmentLacks, StoreError
from harness.host import packed
from harness.host.packed import pack, unpack

LIMIT = 1 << 20


@given(data=st.binary(max_size=5000))
def test_what_is_packed_unpacks_to_the_same(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("pack")
    (folder / "image").write_bytes(data)
    pack(folder / "image", folder / "kept" / "image.zst")
    assert unpack(folder / "kept" / "image.zst", folder / "again", LIMIT).read_bytes() == data
    assert [p.name for p in (folder / "kept").iterdir()] == ["image.zst"]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Half a MiB, some of it random."""
    chance = random.Random(1)  # noqa: S311  # no secret
    (tmp_path / "image").write_bytes(chance.randbytes(5000) + bytes(LIMIT // 2))
    pack(tmp_path / "image", tmp_path / "log.zst")
    return tmp_path / "log.zst"


@pytest.mark.parametrize("wrong", [b"no zstd at all, and long enough for a header", b"", b"\x28\xb5\x2f\xfd"])
def test_what_is_no_packed_file_is_named_and_leaves_nothing(kept: Path, wrong: bytes) -> None:
    kept.write_bytes(wrong)
    with pytest.raises(StoreError, match=r"log\.zst is damaged"):
        unpack(kept, kept.with_name("log"), LIMIT)
    assert sorted(p.name for p in kept.parent.iterdir()) == ["image", "log.zst"]


@pytest.mark.fuzz
@given(at=st.integers(0, 10**9), bit=st.integers(0, 7), cut=st.booleans())
def test_a_damaged_file_is_refused_or_gives_what_was_packed(
    tmp_path_factory: pytest.TempPathFactory, at: int, bit: int, cut: bool
) -> None:
    """Frames had no checksum: a changed byte in a log was a changed crash state."""
    folder = tmp_path_factory.mktemp("damaged")
    data = random.Random(2).randbytes(3000) + b"abcd" * 3000  # noqa: S311  # no secret
    (folder / "image").write_bytes(data)
    pack(folder / "image", folder / "log.zst")
    packed_bytes = bytearray((folder / "log.zst").read_bytes())
    at %= len(packed_bytes)
    if cut:
        del packed_bytes[at:]
    else:
        packed_bytes[at] ^= 1 << bit
    (folder / "log.zst").write_bytes(packed_bytes)
    try:
        assert unpack(folder / "log.zst", folder / "log", LIMIT).read_bytes() == data
    except StoreError as e:
        assert "\n" not in e.what
        assert not (folder / "log").exists()


def test_unpacking_is_bounded_before_a_byte_is_written(kept: Path) -> None:
    """205 KB became 6 GiB."""
    with pytest.raises(StoreError, match="would unpack to 529,288 bytes, and there can be 529,287 at most"):
        unpack(kept, kept.with_name("log"), 529_287)
    assert not kept.with_name("log").exists()


def test_a_frame_that_names_no_size_is_refused(kept: Path) -> None:
    """Nobody could say what it unpacks to before it is too late."""
    compressor = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True)
    kept.write_bytes(compressor.compress(bytes(9 << 20)))
    with pytest.raises(StoreError, match="names no size"):
        unpack(kept, kept.with_name("log"), LIMIT)


def test_what_would_fill_the_hosts_disk_is_not_unpacked(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "SPARE_BYTES", 1 << 60)
    with pytest.raises(EnvironmentLacks, match="MiB free"):
        unpack(kept, kept.with_name("log"), LIMIT)


def test_half_a_file_that_a_kill_left_is_not_taken_for_a_whole_one(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def dies(*_: object) -> None:
        raise Killed

    whole = kept.read_bytes()
    kept.with_name("image").write_bytes(b"another")
    monkeypatch.setattr("os.fsync", dies)
    with pytest.raises(Killed):
        pack(kept.with_name("image"), kept)
    assert kept.read_bytes() == whole


def test_zeros_unpack_to_holes(tmp_path: Path) -> None:
    """A disk of some GiB, of which a few MiB are written, took all of them in every scratch folder."""
    data = b"a" + bytes((64 << 20) - 1) + b"b" + bytes(5 << 20)
    (tmp_path / "image").write_bytes(data)
    pack(tmp_path / "image", tmp_path / "image.zst")
    again = unpack(tmp_path / "image.zst", tmp_path / "again", len(data))
    assert again.read_bytes() == data
    assert again.stat().st_blocks * 512 < 16 << 20
