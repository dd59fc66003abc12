"""Names of the blocks of a log: total over any bytes, and right on what was put together by hand."""

from __future__ import annotations

import itertools
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.blocks import describe, named_log
from harness.blocks.ext4 import Ext4
from harness.blocks.f2fs import F2fs
from harness.blocks.fat import Exfat, Fat
from harness.blocks.fields import Format, Image, Kind, Write
from harness.blocks.jbd2 import MAGIC
from harness.blocks.naming import FORMATS, name_write
from harness.blocks.ntfs import Ntfs
from harness.blocks.words import extents
from harness.oracles.pattern import POISON, fill, word
from harness.tests.there import there
from harness.writelog import Flush, MarkText, Step, read_log, write_log
from harness.writelog import Write as Logged

BLOCK = 4096
MKFS: dict[str, tuple[int, Sequence[str]]] = {
    "ext4": (32, ["/usr/sbin/mkfs.ext4", "-q", "-F", "-b", "4096", "-O", "fast_commit"]),
    "xfs": (300, ["/usr/sbin/mkfs.xfs", "-q", "-f"]),
    "btrfs": (110, ["/usr/bin/env", "mkfs.btrfs", "-q", "-f"]),
    "f2fs": (64, ["/usr/bin/env", "mkfs.f2fs", "-q", "-f"]),
    "nilfs2": (132, ["/usr/bin/env", "mkfs.nilfs2", "-q", "-f"]),
    "gfs2": (32, ["/usr/bin/env", "mkfs.gfs2", "-q", "-O", "-p", "lock_nolock", "-j", "1", "-J", "8"]),
    "fat": (40, ["/usr/bin/env", "mkfs.fat", "-F", "32", "-s", "1"]),
    "exfat": (40, ["/usr/bin/env", "mkfs.exfat", "-c", "4096"]),
    "ntfs": (
        40,
        ["/usr/bin/env", "mkntfs", "-F", "-Q", "-q", "-s", "512", "-p", "0", "-H", "255", "-S", "63"],
    ),
}


class Memory(Image):
    """An image in memory: what mkfs wrote, with bytes changed."""

    def __init__(self, blocks: dict[int, bytes]) -> None:
        super().__init__(Path("/nowhere"))
        self._blocks = blocks

    def read(self, at: int, length: int) -> bytes:
        if at < 0 or length <= 0:
            return b""
        first, last = at // BLOCK, (at + min(length, 1 << 22) - 1) // BLOCK
        whole = b"".join(self._blocks.get(n, bytes(BLOCK)) for n in range(first, last + 1))
        return whole[at - first * BLOCK :][:length]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, bytes]]:
    """What mkfs of each file system writes: its blocks that are not empty."""
    folder = tmp_path_factory.mktemp("images")
    return {name: made_by(command, mib, folder / name) for name, (mib, command) in MKFS.items()}


def made_by(command: Sequence[str], mib: int, file: Path) -> dict[int, bytes]:
    with file.open("wb") as f:
        f.truncate(mib << 20)
    path = "/usr/sbin:/sbin:/usr/bin:/bin"
    subprocess.run(
        [*command, str(file)],
        env={"PATH": path, "BLKID_FILE": "/dev/null"},
        capture_output=True,
        timeout=120,
        check=True,
    )
    with file.open("rb") as f:
        data = iter(lambda: f.read(BLOCK), b"")
        return {n: block for n, block in enumerate(data) if block.strip(b"\0")}


def form_of(image: Image) -> Format | None:
    return next((form for read in FORMATS if (form := read(image, 0)) is not None), None)


@pytest.mark.parametrize("name", MKFS)
def test_each_format_knows_its_own_image_and_no_other(name: str, images: dict[str, dict[int, bytes]]) -> None:
    known = [read(Memory(images[name]), 0) for read in FORMATS]
    assert [type(form).__name__.lower() for form in known if form is not None] == [name]


def test_a_superblock_that_speaks_of_endless_inode_tables_ends(images: dict[str, dict[int, bytes]]) -> None:
    """Groups of a few blocks, each with a table of a million: the same blocks were read again for each."""
    data = bytearray(images["ext4"][0])
    struct.pack_into("<I", data, 1024 + 0x20, 64)  # blocks of a group
    struct.pack_into("<I", data, 1024 + 0x28, 1 << 24)  # inodes of a group
    read_at: list[int] = []

    class Counted(Memory):
        def read(self, at: int, length: int) -> bytes:
            read_at.append(at)
            return super().read(at, length)

    form_of(Counted({**images["ext4"], 0: bytes(data)}))
    assert len(read_at) < 300_000


def _ext4_inode(extents: Sequence[tuple[int, int, int]], depth: int = 0) -> bytes:
    """A file's inode; of each extent the first block of the file, how many, and the first on the device."""
    raw = bytearray(256)
    struct.pack_into("<H", raw, 0, 0o100644)
    struct.pack_into("<I", raw, 0x20, 0x80000)
    struct.pack_into("<HHHHI", raw, 0x28, 0xF30A, len(extents), 4, depth, 0)
    for n, (logical, count, start) in enumerate(extents):
        one = (
            struct.pack("<IIHH", logical, start, 0, 0)
            if depth
            else struct.pack("<IHHI", logical, count, 0, start)
        )
        raw[0x34 + 12 * n : 0x40 + 12 * n] = one
    return bytes(raw)


def _ext4_table(images: dict[str, dict[int, bytes]], image: Image) -> tuple[Format, int]:
    form = there(form_of(image))
    names = ((n, next(iter(form.name(Write(0, n * BLOCK, bytes(BLOCK)))))) for n in range(64))
    return form, next(n for n, name in names if "inodes 1 to 16" in name.text)


@pytest.mark.parametrize("pointers", [False, True])
def test_a_damaged_map_that_leads_to_its_own_block_ends(
    images: dict[str, dict[int, bytes]], *, pointers: bool
) -> None:
    """A full block of index entries to itself was followed 340 ** 5 times."""
    blocks, damaged = dict(images["ext4"]), 5000
    _, table = _ext4_table(images, Memory(blocks))
    raw = bytearray(_ext4_inode([(0, 1, damaged)], depth=5))
    blocks[damaged] = (
        struct.pack("<HHHHI", 0xF30A, 340, 340, 4, 0) + struct.pack("<IIHH", 0, damaged, 0, 0) * 340
    )
    if pointers:
        struct.pack_into("<I", raw, 0x20, 0)
        raw[0x28 : 0x28 + 60] = bytes(52) + struct.pack("<II", 0, damaged)
        blocks[damaged] = struct.pack("<I", damaged) * 1024
    read_at: list[int] = []

    class Counted(Memory):
        def read(self, at: int, length: int) -> bytes:
            read_at.append(at)
            assert len(read_at) < 5000, "it goes on and on"
            return super().read(at, length)

    blocks[table] = blocks[table][: 11 * 256] + bytes(raw) + blocks[table][12 * 256 :]
    assert form_of(Counted(blocks)) is not None


def test_a_file_is_not_gone_through_again_for_each_write_of_its_inode(
    images: dict[str, dict[int, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand fsyncs of a file of 40 MiB took half a minute to name. Another file's block is its own."""
    form, table = _ext4_table(images, Memory(images["ext4"]))
    assert isinstance(form, Ext4)
    owned = 0
    own = Ext4._own

    def counting(self: Ext4, block: int, owner: Any) -> None:
        nonlocal owned
        owned += 1
        own(self, block, owner)

    monkeypatch.setattr(Ext4, "_own", counting)

    def written(entry: int, *inodes: bytes) -> None:
        data = images["ext4"][table]
        data = data[: 11 * 256] + b"".join(inodes) + data[(11 + len(inodes)) * 256 :]
        form.learn(Write(entry, table * BLOCK, data))

    for entry in range(100):
        grown = bytearray(_ext4_inode([(0, 1000 + entry, 5000)]))
        struct.pack_into("<I", grown, 0x10, entry)
        written(entry, bytes(grown))
    assert owned == 1099
    written(200, _ext4_inode([(0, 500, 5000)]), _ext4_inode([(0, 1, 5600)]))
    written(300, _ext4_inode([(0, 1000, 5000)]), _ext4_inode([]))
    texts = [describe([*form.name(Write(entry, 5600 * BLOCK, bytes(BLOCK)))]) for entry in (100, 250, 350)]
    assert texts == [
        "data of inode 12, block 600 (?)",
        "data of inode 13, block 0 (?)",
        "data of inode 12, block 600 (?)",
    ]


def _f2fs_node(nid: int, inode: int, place: int, addresses: Sequence[int], inline: int = 0) -> bytes:
    """A node of F2FS: number `place` of its file, whose inode is number 0."""
    data = bytearray(BLOCK)
    if not place:
        struct.pack_into("<HBB", data, 0, 0o100644, 0, inline)
        struct.pack_into("<I1s", data, 88, 1, b"f")
    struct.pack_into(f"<{len(addresses)}I", data, 0 if place else 360, *addresses)
    struct.pack_into("<IIIQI", data, BLOCK - 24, nid, inode, place << 3, 1, 0)
    return bytes(data)


def test_f2fs_numbers_a_files_blocks_as_the_kernel_does(images: dict[str, dict[int, bytes]]) -> None:
    """Inline extended attributes, which are the default, leave an inode 873 addresses, not 923; and nodes
    below an indirect one were counted one too far: "block 5018" of a file of 4,000.
    """
    form = there(form_of(Memory(images["f2fs"])))
    main = 8192
    #          place -> its first block of the file, after f2fs_start_bidx_of_node
    expected = {1: 873, 2: 873 + 1018, 4: 873 + 2 * 1018, 1021: 873 + 1019 * 1018, 1023: 873 + 1020 * 1018}
    places = [*expected, 3, 1022, (1 << 29) - 1]
    nodes = [_f2fs_node(20 + n, 7, place, [main + n]) for n, place in enumerate(places)]
    nodes.append(_f2fs_node(7, 7, 0, [main + 100] * 872 + [main + 101] + [main + 102] * 50, inline=1))
    nodes.append(_f2fs_node(90, 8, 1, [main + 103]))
    for entry, node in enumerate(nodes):
        form.learn(Write(entry, (main + 2000 + entry) * BLOCK, node))

    def name(place: int) -> str:
        return describe([*form.name(Write(0, place * BLOCK, bytes(BLOCK)))])

    numbers = [name(main + n) for n in range(len(places))]
    assert numbers == [f"data of inode 7 (f), block {n} (?)" for n in expected.values()] + ["?"] * 3
    assert name(main + 101) == "data of inode 7 (f), block 872 (?)"
    assert name(main + 102) == "?"
    assert name(main + 103) == "data of inode 8 (?)"


def test_an_inode_of_f2fs_that_is_written_again_and_again_is_one_owner(
    images: dict[str, dict[int, bytes]],
) -> None:
    """Each of 4,000 fsyncs added 873 owners: 3.5 million, in 341 MB."""
    form = there(form_of(Memory(images["f2fs"])))
    assert isinstance(form, F2fs)
    main = 8192
    for entry in range(0, 100, 2):
        form.learn(Write(entry, (main + entry) * BLOCK, _f2fs_node(7, 7, 0, [main + 500])))
    form.learn(Write(200, (main + 300) * BLOCK, _f2fs_node(8, 8, 0, [0, main + 500])))
    assert len(form._owners[main + 500]) == 2
    texts = [describe([*form.name(Write(n, (main + 500) * BLOCK, bytes(BLOCK)))]) for n in (50, 98, 150, 300)]
    of_7, of_8 = "data of inode 7 (f), block 0 (?)", "data of inode 8 (f), block 1 (?)"
    assert texts == [of_7, of_7, of_8, of_8]


def test_a_number_that_f2fs_gives_to_a_directory_was_a_file_s_before(
    images: dict[str, dict[int, bytes]],
) -> None:
    """The data of a file that was removed was called the directory that got its inode number later."""
    form = there(form_of(Memory(images["f2fs"])))
    main = 8192
    form.learn(Write(2, main * BLOCK, _f2fs_node(7, 7, 0, [main + 500])))
    made = bytearray(_f2fs_node(7, 7, 0, [main + 600]))
    struct.pack_into("<H", made, 0, 0o040755)
    form.learn(Write(9, (main + 1) * BLOCK, bytes(made)))
    texts = [describe([*form.name(Write(1, (main + n) * BLOCK, bytes(BLOCK)))]) for n in (500, 600)]
    assert texts == ["data of inode 7 (f), block 0 (?)", "directory 7 (f), block 0 (?)"]


def test_what_operations_wrote_is_no_node_of_f2fs(images: dict[str, dict[int, bytes]]) -> None:
    """The last words of some blocks have the numbers of a node: their names were told with certainty."""
    form = form_of(Memory(images["f2fs"]))
    assert form is not None
    place = (40 << 20) // BLOCK  # far in the main area
    for writer, block in itertools.product(range(7), range(8, 32)):
        data = struct.pack("<512Q", *(word(writer, block * 512 + n) for n in range(512)))
        found = list(name_write(form, Write(0, place * BLOCK, data)))
        assert [n.writer for n in found] == [writer], found


@pytest.mark.parametrize("name", MKFS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_bytes_raise_and_names_cover_each_write(
    name: str, images: dict[str, dict[int, bytes]], data: st.DataObject
) -> None:
    """Torn images are what there is to name: changed superblocks, cut and changed blocks, at any place."""
    blocks = dict(images[name])
    places = sorted(blocks)
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.sampled_from(places[:4]))
        blocks[place] = changed(data, blocks[place])
    form = form_of(Memory(blocks))
    if form is None:
        return
    writes = []
    for entry in range(data.draw(st.integers(1, 6))):
        block = changed(data, blocks[data.draw(st.sampled_from(places))])
        sectors = data.draw(st.integers(1, 24))
        whole = (block * 3)[: sectors * 512]
        sector = data.draw(st.sampled_from([p * 8 for p in places]) | st.integers(0, 1 << 19))
        writes.append(Write(entry, sector * 512, whole))
    for write in writes:
        form.learn(write)
    for write in writes:
        at = write.at
        for piece in name_write(form, write):
            assert piece.at == at
            assert piece.length > 0
            at += piece.length
        assert at == write.at + len(write.data)


def changed(data: st.DataObject, block: bytes) -> bytes:
    """A block with words of it replaced, or other bytes behind some sector, as after a torn write."""
    new = bytearray(block)
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, len(new) - 8))
        new[at : at + 8] = data.draw(st.sampled_from([b"\0" * 8, b"\xff" * 8, b"\1" * 8, b"\x7f\0\0\0" * 2]))
    if data.draw(st.booleans()):
        cut = data.draw(st.integers(0, 7)) * 512
        new[cut:] = data.draw(st.sampled_from([b"\0", b"\xff", b"\xc0"])) * (len(new) - cut)
    return bytes(new)


@pytest.mark.parametrize("name", MKFS)
def test_a_long_write_is_looked_at_once(name: str, images: dict[str, dict[int, bytes]]) -> None:
    """For each of its blocks all the rest of a write was copied: 16 MiB of XFS took nine seconds to name."""
    form = there(form_of(Memory(images[name])))

    class Counted(bytes):
        taken = 0

        def __getitem__(self, key: Any) -> Any:
            found = super().__getitem__(key)
            Counted.taken += len(found) if isinstance(found, bytes) else 1
            return found

    def taken(mib: int) -> int:
        Counted.taken = 0
        names = [*form.name(Write(0, 20 << 20, Counted(mib << 20)))]
        assert sum(n.length for n in names) == mib << 20
        return Counted.taken

    assert taken(4) <= 5 * taken(1)


def test_an_inode_of_btrfs_is_one_of_its_own_subvolume(images: dict[str, dict[int, bytes]]) -> None:
    """Inode 257 of the one, database.db, was called by the name of inode 257 of the other, with certainty."""
    form = there(form_of(Memory(images["btrfs"])))
    fsid = images["btrfs"][16][0x20:0x30]
    log_tree, reference, extent = (1 << 64) - 6, 12, 108

    def leaf(entry: int, tree: int, kind: int, name: bytes) -> Write:
        node, at = bytearray(16384), (30 + entry) << 20
        node[0x20:0x30] = fsid
        struct.pack_into("<Q", node, 0x30, at)
        struct.pack_into("<QQIB", node, 0x50, 7, tree, 1, 0)
        item = struct.pack("<QH", 2, len(name)) + name
        struct.pack_into("<QBQII", node, 101, 257, kind, 256, 16384 - 101 - len(item), len(item))
        node[-len(item) :] = item
        return Write(entry, at, bytes(node))

    writes = [
        leaf(0, 256, reference, b"database.db"),
        leaf(1, 257, reference, b"cache.tmp"),
        leaf(2, 256, extent, b""),
        leaf(3, log_tree, extent, b""),
        leaf(4, log_tree, reference, b"database.db"),
    ]
    for write in writes:
        form.learn(write)
    texts = [describe([*form.name(w)]).partition(": ")[2] for w in writes]
    assert texts == [
        "inode 257 (database.db): name",
        "inode 257 (cache.tmp): name",
        "inode 257 (database.db): extent",
        "inode 257: extent",
        "inode 257 (database.db): name",
    ]


@pytest.mark.parametrize("name", ["xfs", "btrfs", "gfs2", "nilfs2"])
def test_bytes_without_a_magic_number_have_no_sure_name(
    name: str, images: dict[str, dict[int, bytes]]
) -> None:
    form = there(form_of(Memory(images[name])))
    for data in (b"\x5a" * BLOCK, bytes(range(256)) * 16):
        names = [*name_write(form, Write(0, 20000 * BLOCK, data))]
        assert not any(n.named and n.sure for n in names), names


def test_an_xfs_block_that_says_it_is_elsewhere_has_no_sure_name(
    images: dict[str, dict[int, bytes]],
) -> None:
    form = there(form_of(Memory(images["xfs"])))
    place, block = next((p, b) for p, b in images["xfs"].items() if b[:4] == b"AB3B")
    assert [n.sure for n in form.name(Write(0, place * BLOCK, block))] == [True]
    assert [n.sure for n in form.name(Write(0, (place + 7) * BLOCK, block))] == [False]


# --- data --------------------------------------------------------------------------------------


def test_data_says_which_operation_wrote_it_and_where() -> None:
    block = fill(3, 8192, 1000) + fill(5, 9192, 96) + bytes(3000)
    found = [(e.start, e.stop, e.writer, e.offset) for e in extents(block)]
    assert found == [(0, 1000, 3, 8192), (1000, 1096, 5, 9192)]


def test_a_last_word_that_was_not_written_whole_is_part_of_its_extent() -> None:
    assert [(e.start, e.stop) for e in extents(fill(7, 0, 11) + bytes(BLOCK - 11))] == [(0, 11)]


def test_one_word_amid_others_is_no_data_of_an_operation() -> None:
    """Any eight bytes pass for a word once in 65,536 times: an inode table may hold one."""
    block = b"\x11" * 80 + struct.pack("<Q", word(4, 9)) + b"\x22" * 200
    assert extents(block) == []


def test_a_block_that_mkfs_found_is_told_from_data() -> None:
    assert [e.writer for e in extents(struct.pack("<Q", word(POISON, 17)) * 512)] == [POISON]


# --- a whole log ---------------------------------------------------------------------------------


def _log(tmp_path: Path, steps: Sequence[Step]) -> Path:
    file = tmp_path / "log"
    write_log(file, steps)
    return file


def _be(*words: int) -> bytes:
    return struct.pack(f">{len(words)}I", *words)


def test_the_copies_in_an_ext4_journal_are_named_after_their_homes(
    tmp_path: Path, images: dict[str, dict[int, bytes]]
) -> None:
    """In a log's own order a copy may stand ahead of its descriptor."""
    image = _image(tmp_path, images["ext4"])
    journal = next(p for p, b in images["ext4"].items() if b[:8] == _be(MAGIC, 4))
    home = next(n for n in range(64) if "inodes 1 to 16" in _name_at(image, n))
    table = bytearray(images["ext4"][home])
    table[256 * 11 : 256 * 11 + 2] = struct.pack("<H", 0x8180)
    descriptor = _be(MAGIC, 1, 2) + struct.pack(">IHH", home, 0, 0x8) + bytes(16)
    steps: list[Step] = [
        MarkText("begin 0"),
        Logged((journal + 2) * 8, bytes(table)),
        Logged((journal + 1) * 8, descriptor.ljust(BLOCK, b"\0")),
        Flush(),
        Logged((journal + 3) * 8, _be(MAGIC, 2, 2).ljust(BLOCK, b"\0")),
        Logged(80000 // 8 * 8, fill(0, 0, BLOCK)),
    ]
    file = _log(tmp_path, steps)
    names = named_log(image, read_log(file), file, paths=["f"]).writes
    texts = [describe(names[n]) for n in sorted(names)]
    assert texts[0] == ("journal: copy of inode table of group 0, inodes 1 to 16: 12, transaction 2 (?)"), (
        texts
    )
    assert texts[1] == "journal: descriptor of transaction 2 for 1 blocks"
    assert texts[2] == "journal: commit record of transaction 2"
    assert texts[3] == "data of f from 0, written by operation 0"
    assert [n.kind for n in names[4]] == [Kind.RECORD]
    assert all(n.named for of_write in names.values() for n in of_write)


def _image(tmp_path: Path, blocks: dict[int, bytes]) -> Path:
    image = tmp_path / "image"
    with image.open("wb") as f:
        f.truncate(32 << 20)
        for place, block in blocks.items():
            f.seek(place * BLOCK)
            f.write(block)
    return image


def test_an_inode_is_called_by_the_name_that_it_had_when_a_block_was_written(
    tmp_path: Path, images: dict[str, dict[int, bytes]]
) -> None:
    """A store's first alpha.tmp was called by the last name of its inode: "data of inode 12 (beta)"."""
    image = _image(tmp_path, images["ext4"])
    root = next(
        n for n in sorted(images["ext4"]) if "directory 2" in describe_block(image, n, images["ext4"][n])
    )
    table = next(n for n in range(64) if "inodes 1 to 16" in _name_at(image, n))

    def inode(mode: int) -> bytes:
        changed = bytearray(images["ext4"][table])
        changed[256 * 11 : 256 * 11 + 2] = struct.pack("<H", 0x8000 | mode)
        return bytes(changed)

    def directory(name: bytes) -> bytes:
        entry = struct.pack("<IHBB", 12, BLOCK - 24, len(name), 1) + name
        dots = images["ext4"][root][:12] + struct.pack("<IHBB4s", 2, 12, 2, 2, b"..")
        return (dots + entry).ljust(BLOCK, b"\0")

    steps: list[Step] = [
        Logged(table * 8, inode(0o600)),
        Logged(root * 8, directory(b"alpha.tmp")),
        Logged(table * 8, inode(0o640)),
        Flush(),
        Logged(root * 8, directory(b"alpha")),
        Logged(table * 8, inode(0o644)),
    ]
    file = _log(tmp_path, steps)
    names = named_log(image, read_log(file), file).writes
    tables = [describe(n).partition(": ")[2] for n in names.values() if "inode table" in describe(n)]
    assert tables == ["12 (alpha.tmp)", "12 (alpha.tmp)", "12 (alpha)"]


@pytest.mark.parametrize(("features", "kind"), [("", Kind.RECORD), ("^has_journal", Kind.METADATA)])
def test_a_superblock_makes_others_count_only_where_there_is_a_journal(
    features: str, kind: Kind, tmp_path: Path
) -> None:
    """Of ext2, "it takes the superblock to bring it back" was said."""
    blocks = made_by([*MKFS["ext4"][1][:5], "-O", features], 32, tmp_path / "image")
    (named,) = there(form_of(Memory(blocks))).name(Write(0, 0, blocks[0]))
    assert (named.text, named.kind) == ("superblock", kind)


def describe_block(image: Path, block: int, data: bytes) -> str:
    form = there(form_of(Image(image)))
    return describe([*form.name(Write(0, block * BLOCK, data))])


def _name_at(image: Path, block: int) -> str:
    form = there(form_of(Image(image)))
    return next(iter(form.name(Write(0, block * BLOCK, bytes(BLOCK))))).text


def test_a_base_image_that_is_gone_leaves_the_data_its_names(tmp_path: Path) -> None:
    file = _log(tmp_path, [Logged(8, fill(2, 4096, BLOCK)), Logged(16, b"\x11" * BLOCK)])
    names = named_log(tmp_path / "gone", read_log(file), file).writes
    assert [describe(n) for n in names.values()] == ["data from 4096, written by operation 2", "?"]


def _fat_entry(name: bytes, cluster: int, attributes: int) -> bytes:
    return name.ljust(11) + bytes([attributes]) + bytes(14) + struct.pack("<HI", cluster, 0)


def test_a_cluster_of_fat_is_named_after_the_directory_that_leads_to_it(
    images: dict[str, dict[int, bytes]],
) -> None:
    """Also one further down the chain, and a directory that is written ahead of its own entry."""
    form = form_of(Memory(images["fat"]))
    assert isinstance(form, Fat)
    boot = images["fat"][0]
    table = struct.unpack_from("<H", boot, 14)[0] * 512
    clusters = table + 2 * struct.unpack_from("<I", boot, 36)[0] * 512
    root = _fat_entry(b"D", 5, 0x10) + _fat_entry(b"F", 7, 0x20) + _fat_entry(b"\xe5OLD", 8, 0x20)
    links = struct.pack("<10I", 0x0FFFFFF8, 0x0FFFFFFF, 0x0FFFFFFF, 0, 0, 9, 0, 0x0FFFFFFF, 0, 0x0FFFFFFF)
    writes = [
        Write(
            0, clusters + 3 * 512, (_fat_entry(b".", 5, 0x10) + _fat_entry(b"E", 0, 0x20)).ljust(512, b"\0")
        ),
        Write(1, clusters + 7 * 512, _fat_entry(b"LATER", 0, 0x20).ljust(512, b"\0")),
        Write(2, clusters, root.ljust(512, b"\0")),
        Write(3, table, links.ljust(1024, b"\0")),
        Write(4, clusters + 5 * 512, fill(2, 0, 512)),
        Write(5, 512, bytes(512)),
    ]
    for write in writes:
        form.learn(write)
    assert [describe([*name_write(form, w)]) for w in writes] == [
        "directory d: e (?)",
        "directory d: later (?)",
        "root directory: d, f",
        "FAT 1, clusters 0 to 255",
        "",
        "FSInfo: free clusters",
    ]


def test_exfat_names_its_bitmap_and_a_directory_without_a_chain(images: dict[str, dict[int, bytes]]) -> None:
    form = form_of(Memory(images["exfat"]))
    assert isinstance(form, Exfat)
    boot = images["exfat"][0]
    heap, root = struct.unpack_from("<I", boot, 88)[0] * 512, struct.unpack_from("<I", boot, 96)[0]
    entry = struct.pack("<BBHH", 0x85, 2, 0, 0x10).ljust(32, b"\0")
    stream = struct.pack("<BBBB", 0xC0, 3, 0, 1).ljust(20, b"\0") + struct.pack("<IQ", 9, 8192)
    names = (b"\xc1\0" + "d".encode("utf-16-le")).ljust(32, b"\0")
    parent = images["exfat"][(heap + (root - 2) * 4096) // BLOCK][:96] + entry + stream + names
    writes = [
        Write(0, heap, bytes(4096)),
        Write(1, heap + (root - 2) * 4096, parent.ljust(4096, b"\0")),
        Write(2, heap + 8 * 4096, (entry + stream + names).ljust(4096, b"\0")),
        Write(3, heap + 9 * 4096, fill(1, 0, 4096)),
        Write(4, 0, boot[:512]),
    ]
    for write in writes:
        form.learn(write)
    assert [describe([*form.name(w)]) for w in writes] == [
        "bitmap of clusters (?)",
        "root directory: d",
        "directory d: d (?)",
        "?",
        "boot sector",
    ]


def _ntfs_key(parent: int, name: str) -> bytes:
    return struct.pack("<Q", parent).ljust(0x40, b"\0") + bytes([len(name), 0]) + name.encode("utf-16-le")


def test_ntfs_names_a_record_by_its_place_and_an_index_by_its_directory(
    images: dict[str, dict[int, bytes]],
) -> None:
    """ntfs3 writes no number into a record. mkfs makes a table of 28 records, which grows."""
    form = form_of(Memory(images["ntfs"]))
    assert isinstance(form, Ntfs)
    boot = images["ntfs"][0]
    table = struct.unpack_from("<Q", boot, 0x30)[0] * 4096
    key = _ntfs_key(5, "f.tmp")
    attribute = (
        struct.pack("<IIBBHHHIH", 0x30, 24 + len(key), 0, 0, 0, 0, 0, len(key), 24).ljust(24, b"\0") + key
    )
    head = struct.pack("<4sHH", b"FILE", 0x30, 0).ljust(0x14, b"\0") + struct.pack("<HH", 0x38, 1)
    record = (head.ljust(0x38, b"\0") + attribute + b"\xff" * 4).ljust(1024, b"\0")
    entry = struct.pack("<QHHI", 30, 16 + len(key), len(key), 0) + key
    header = struct.pack("<4sHH", b"INDX", 0x28, 0).ljust(0x18, b"\0") + struct.pack(
        "<II", 0x28, 0x28 + len(entry)
    )
    index = (header.ljust(0x40, b"\0") + entry).ljust(4096, b"\0")
    free = record[:0x16] + b"\0" + record[0x17:]
    run = struct.pack("<BBI", 0x41, 16, table // 4096)
    data = struct.pack("<IIB", 0x80, 0x48 + 8, 1).ljust(0x20, b"\0") + struct.pack("<H", 0x40)
    first = (head.ljust(0x38, b"\0") + data.ljust(0x40, b"\0") + run).ljust(0x38 + 0x50, b"\0") + b"\xff" * 4
    assert describe([*form.name(Write(0, table + 30 * 1024, record))]) == "record 0: f.tmp (?)"
    form.learn(Write(0, table, first.ljust(1024, b"\0")))
    assert [
        describe([*form.name(w)])
        for w in (
            Write(0, table + 30 * 1024, record + free),
            Write(1, 1 << 24, index),
            Write(2, (1 << 24) + 4096, record),
            Write(3, 0, boot[:512]),
        )
    ] == [
        "record 30: f.tmp, record 31, free",
        "index of directory 5: f.tmp",
        "record 0: f.tmp (?)",
        "boot sector",
    ]
