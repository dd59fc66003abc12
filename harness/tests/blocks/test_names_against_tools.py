"""The names of blocks, held against what each file system's own tool says of a whole image."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.blocks import btrfs, ext4, f2fs, xfs
from harness.blocks.fields import BlockName, Format, Image, Write
from harness.tests.there import there

BLOCK = 4096
PATH = f"/usr/sbin:/sbin:{os.environ['PATH']}"


def said(*command: str | Path, cwd: Path) -> str:
    """What a tool prints; it has to succeed."""
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env={"PATH": PATH, "LC_ALL": "C", "BLKID_FILE": "/dev/null", "TZ": "UTC"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Files and a directory of several blocks, with which mkfs fills the images."""
    folder = tmp_path / "tree"
    (folder / "sub").mkdir(parents=True)
    (folder / "big").write_bytes(os.urandom(20000))
    (folder / "small").write_bytes(os.urandom(100))
    for n in range(300):
        (folder / "sub" / f"a-name-of-some-length-{n}").touch()
    return folder


def image(tmp_path: Path, mib: int) -> Path:
    file = tmp_path / "image"
    with file.open("wb") as f:
        f.truncate(mib << 20)
    return file


def used(file: Path, step: int = BLOCK) -> Iterator[Write]:
    """Each block of an image that holds something, as if the log had written it."""
    with file.open("rb") as f:
        for place in range(0, file.stat().st_size, step):
            data = os.pread(f.fileno(), step, place)
            if data.strip(b"\0"):
                yield Write(0, place, data)


def named(form: Format, file: Path) -> dict[int, BlockName]:
    """The names of the used blocks, by number."""
    writes = [*used(file)]
    for write in writes:
        form.learn(write)
    return {w.at // BLOCK: next(iter(form.name(w))) for w in writes}


@pytest.mark.parametrize(
    "features",
    [
        ["-O", "sparse_super2,^resize_inode", "-E", "num_backup_sb=1"],
        ["-O", "meta_bg,^resize_inode"],
        ["-O", "^sparse_super,^resize_inode"],
        [],
    ],
)
def test_ext4_has_its_superblocks_and_descriptors_where_dumpe2fs_says(
    tmp_path: Path, features: list[str]
) -> None:
    """With sparse_super2, copies of the superblock were told with certainty where none are; with meta_bg, 49
    of 65 groups had no names.
    """
    file = image(tmp_path, 200)
    said("mkfs.ext4", "-q", "-F", "-b", "1024", "-g", "1024", *features, file, cwd=tmp_path)
    form = there(ext4.read(Image(file), 0))
    told = said("dumpe2fs", file, cwd=tmp_path)
    supers = {int(n) for n in re.findall(r"(?:Primary|Backup) superblock at (\d+)", told)}
    spans = re.findall(r"Group descriptors? at (\d+)(?:-(\d+))?", told)
    descriptors = {n for first, last in spans for n in range(int(first), int(last or first) + 1)}
    bitmaps = {int(n) for n in re.findall(r"Inode bitmap at (\d+)", told)}

    def at(what: str) -> set[int]:
        empty = (next(iter(form.name(Write(0, n * 1024, bytes(1024))))) for n in range(200 << 10))
        return {name.at // 1024 for name in empty if re.match(what, name.text)}

    assert at("superblock|copy of the superblock") == supers
    assert at("group descriptors") == descriptors
    assert at("inode bitmap") == bitmaps
    assert len(bitmaps) == 200


def test_ext4_names_the_inode_that_debugfs_names(tmp_path: Path, tree: Path) -> None:
    file = image(tmp_path, 64)
    said("mkfs.ext4", "-q", "-F", "-b", "4096", "-d", tree, file, cwd=tmp_path)
    form = there(ext4.read(Image(file), 0))
    names = named(form, file)
    owners = said("debugfs", "-R", f"icheck {' '.join(map(str, names))}", file, cwd=tmp_path)
    inodes = {int(b): int(i) for b, i in re.findall(r"^(\d+)\s+(\d+)$", owners, re.MULTILINE)}
    owned = {b: n for b, n in names.items() if b in inodes and inodes[b] > 10}
    assert len(owned) > 10
    for block, name in owned.items():
        found = re.search(r"(?:directory|inode) (\d+)", name.text)
        assert found is not None, name
        assert int(found[1]) == inodes[block], name
    journal = [n for b, n in names.items() if inodes.get(b) == 8]
    assert journal
    assert all(n.text.startswith("journal") for n in journal)


def test_ext4_finds_bitmaps_tables_and_descriptors_where_dumpe2fs_does(tmp_path: Path, tree: Path) -> None:
    file = image(tmp_path, 300)
    said("mkfs.ext4", "-q", "-F", "-b", "4096", "-d", tree, file, cwd=tmp_path)
    form = there(ext4.read(Image(file), 0))
    told = said("dumpe2fs", file, cwd=tmp_path)
    groups = re.split(r"^Group (?=\d)", told, flags=re.MULTILINE)[1:]
    assert len(groups) == 3
    for group, text in enumerate(groups):
        for word, block in re.findall(
            r"((?:Block|Inode) bitmap|Inode table|(?:Primary|Backup) superblock) at (\d+)", text
        ):
            (name,) = form.name(Write(0, int(block) * BLOCK, bytes(BLOCK)))
            assert word.split()[-1] in name.text.lower(), name
            assert f"group {group}" in name.text or word == "Primary superblock", name


def test_btrfs_names_every_node_that_dump_tree_lists(tmp_path: Path, tree: Path) -> None:
    file = image(tmp_path, 128)
    said("mkfs.btrfs", "-q", "-f", "--rootdir", tree, file, cwd=tmp_path)
    form = there(btrfs.read(Image(file), 0))
    writes = [*used(file, 16384)]
    for write in writes:
        form.learn(write)
    ours = {(int.from_bytes(w.data[0x30:0x38], "little"), next(iter(form.name(w))).text) for w in writes}
    told = said("btrfs", "inspect-internal", "dump-tree", file, cwd=tmp_path)
    words = {"ROOT": "root", "EXTENT": "extent", "CHUNK": "chunk", "DEV": "device", "FS": "file"}
    words |= {"DATA_RELOC": "data relocation", "CSUM": "checksum", "FREE_SPACE": "free space", "UUID": "UUID"}
    nodes = re.findall(
        r"^(leaf|node) (\d+) (?:level (\d+) )?items .* generation (\d+) owner (\w+)_TREE$", told, re.MULTILINE
    )
    assert len(nodes) > 8
    for _, place, level, generation, owner in nodes:
        text = f"{words[owner]} tree, level {level or 0}, generation {generation}"
        assert any(p == int(place) and ours_is.startswith(text) for p, ours_is in ours), (place, text)


def test_f2fs_names_the_nodes_that_dump_f2fs_lists(tmp_path: Path, tree: Path) -> None:
    file = image(tmp_path, 64)
    said("mkfs.f2fs", "-q", "-f", file, cwd=tmp_path)
    said("sload.f2fs", "-f", tree, file, cwd=tmp_path)
    form = there(f2fs.read(Image(file), 0))
    names = named(form, file)
    said("dump.f2fs", "-n", "0~400", file, cwd=tmp_path)
    told = (tmp_path / "dump_nat").read_text()
    nodes = re.findall(r"nid:\s*(\d+)\s+ino:\s*(\d+)\s+offset:\s*\d+\s+blkaddr:\s*(\d+)", told)
    assert len(nodes) > 300
    for nid, inode, place in nodes:
        what = f"inode {inode}" if nid == inode else f"node {nid} of inode {inode}"
        assert names[int(place)].text.startswith(what), names[int(place)]
    assert "head" in names[512].text


def test_f2fs_areas_begin_where_dump_f2fs_says(tmp_path: Path) -> None:
    file = image(tmp_path, 64)
    said("mkfs.f2fs", "-q", "-f", file, cwd=tmp_path)
    form = there(f2fs.read(Image(file), 0))
    told = said("dump.f2fs", "-d", "1", file, cwd=tmp_path)
    for area, word in (
        ("cp", "checkpoint pack 1"),
        ("sit", "SIT copy 1"),
        ("nat", "NAT copy 1"),
        ("ssa", "SSA"),
    ):
        (place,) = set(re.findall(rf"^{area}_blkaddr\s+\[0x\s*\w+ : (\d+)\]", told, re.MULTILINE))
        (name,) = form.name(Write(0, int(place) * BLOCK, bytes(BLOCK)))
        assert name.text.startswith(word), name


def test_xfs_names_what_xfs_db_says_a_block_is(tmp_path: Path, tree: Path) -> None:
    file = image(tmp_path, 300)
    proto = "/dev/null\n0 0\nd--755 0 0\nbig ---644 0 0 tree/big\nsub d--755 0 0\n"
    proto += "".join(f"{p.name} ---644 0 0 tree/small\n" for p in sorted((tree / "sub").iterdir()))
    (tmp_path / "proto").write_text(proto + "$\n$\n")
    said("mkfs.xfs", "-q", "-f", "-p", "proto", file, cwd=tmp_path)
    form = there(xfs.read(Image(file), 0))
    kinds = {
        "btbno": "free space by block", "btcnt": "free space by size", "btino": "inode B+tree",
        "btfino": "free inode B+tree", "btrmap": "reverse mappings", "inode": "inodes",
    }  # fmt: skip
    writes = [w for w in used(file) if w.at]
    asked = [word for w in writes for word in ("-c", f"daddr {w.at // 512}", "-c", "blockuse -n")]
    told = said("xfs_db", "-r", "-c", "blockget -n", *asked, file, cwd=tmp_path).splitlines()
    assert len(told) == len(writes)
    seen = set()
    for write, line in zip(writes, told, strict=True):
        name = next(iter(form.name(write)))
        match = re.fullmatch(r"block \d+ \(\d+/\d+\) type (\w+)(?: inode (\d+) .*)?", line)
        assert match is not None, line
        if match[1] in kinds and name.named:
            seen.add(match[1])
            assert kinds[match[1]] in name.text, (line, name)
        elif match[1] == "dir":
            seen.add("dir")
            assert name.text.endswith(f"inode {match[2]}"), (line, name)
        elif match[1] == "data":
            assert not name.named or not name.sure, (line, name)
    assert {"btbno", "btcnt", "btino", "inode", "dir"} <= seen
