"""What a mode promises, as data. The rules behind each field: `vms/filesystems/CONTRACTS.md`.

A contract states which recovered states are *allowed*. It is read from the `[contract]` table of a
mode's file in `vms/filesystems/`.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from harness.errors import UsageError


@dataclass(frozen=True, slots=True)
class Contract:
    """The promises of one mode. Fields with a default mean: the full promise.

    `namespace`: `prefix` - names, links, permissions, symbolic links and extended attributes are those
        after some number of whole operations, in their order. `each` - those of each inode date from some
        time since it was made durable, independently of other inodes. `synced` - only what was made
        durable and has not changed since is judged, and that its names exist. `none` - no order; names and
        contents are not judged (only poison, the mount, the kernel log, fsck and programs' own checks).
    `persists`: `transaction` - fsync of an inode makes durable the last operation that changed it and,
        by the journal's order, every operation before that. `operations` - in addition, each operation on
        names is durable, with all before it, when it returns. `inode` - fsync makes durable one inode and
        the name used (for a directory, the names in it). `nothing` - no operation makes anything durable.
    `data`: `journal` - contents follow the operations too, page by page. `ordered` - the data of a
        committed block was written before the commit. `writeback` - it may be written after it.
    `size_lags`: the size on disk follows writeback, not write(2) (delayed allocation).
    `zeros_in_new_blocks`: a block that a committed write allocated may still read as zeros.
    `stale_allowed`: such a block may hold whatever the device held before.
    `replace_is_safe`: rename over an existing file commits the new file's whole size first.
    `fsck_clean`: fsck finds nothing to repair once recovery has run.
    `rules`: what this mode promises beyond that, or does not promise; see `RULES`.
    `made_by_mkfs`: names that mkfs makes in the root; they are not judged.
    `folds_names`: a name is not its bytes to this file system. `case`: names that differ in case alone are
        one; `ends`: dots and spaces at the end are no part of a name; `composed`: a letter and its accent
        come back as one character, Unicode's NFC. What such operations leave is not followed.
    `chattr`: letters of chattr(1) whose promise the file system keeps; see `harness.oracles.chattr`.
    `checksums`: regular expressions for what blocks are for (`harness.cases.requests_seen`) that have a
    checksum, by
        which damage is told from a write that a power cut tore.
    """

    namespace: str
    persists: str
    data: str
    size_lags: bool = False
    zeros_in_new_blocks: bool = False
    stale_allowed: bool = False
    replace_is_safe: bool = True
    fsck_clean: bool = True
    rules: tuple[str, ...] = ()
    made_by_mkfs: tuple[str, ...] = ()
    folds_names: tuple[str, ...] = ()
    chattr: tuple[str, ...] = ()
    checksums: tuple[str, ...] = ()

    @property
    def keeps_files_synced(self) -> bool:
        """Whether fsync of a file makes its contents durable."""
        return self.persists != "nothing" and "only-sync" not in self.rules

    @property
    def commits_data(self) -> bool:
        """Whether what makes one operation durable does so with the data of those before it, of any file."""
        ordered = self.data == "ordered" and not (self.size_lags or self.zeros_in_new_blocks)
        return self.persists in ("transaction", "operations") and (self.data == "journal" or ordered)

    @property
    def fills_gaps(self) -> bool:
        """Whether a file has no holes, so that a write behind its end writes zeros up to there, to new blocks
        and in its own time. So it is in the file systems that lose what is moved.

        [code] cont_write_begin, by FAT and HFS+; exfat_extend_valid_size, ntfs_extend_initialized_size
        """
        return self.stale_allowed and "moved-may-be-lost" in self.rules

    def has_checksum(self, where: str) -> bool:
        """Whether the format can tell that such a block was damaged."""
        return any(re.fullmatch(pattern, where) for pattern in self.checksums)

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            value = getattr(self, name)
            if value not in allowed or type(value) is not type(allowed[0]):
                _refuse(f"contract: {name} = {value!r} is not allowed", str(value), allowed)
        for rule in self.rules:
            if rule not in RULES:
                _refuse(f"contract: rules has {rule!r}, which is none", rule, list(RULES))
        for word in self.folds_names:
            if word not in FOLDS:
                _refuse(f"folds_names has {word!r}, which is none", word, FOLDS)
        if set(self.chattr) - {"D"}:
            raise UsageError(
                f"chattr = {self.chattr}: of the letters, only D depends", 'write chattr = ["D"]'
            )
        for wrong, reason in _contradictions(self):
            if wrong:
                raise UsageError(f"contract: {reason}", "see vms/filesystems/CONTRACTS.md")

    @classmethod
    def from_table(
        cls,
        table: Mapping[str, object],
        made_by_mkfs: Sequence[str] = (),
        checksums: Sequence[str] = (),
    ) -> Contract:
        """Build it from the `[contract]` table of a mode's TOML file, which must have the fields without a
        default. `made_by_mkfs` is the same for all modes of the file system, `checksums` unless a mode has
        its own.

        Raises UsageError, which names what is unknown, missing or contradictory and the nearest allowed
        words.
        """
        for key in table:
            if key not in (*CHOICES, "rules"):
                _refuse(f"contract: unknown key {key!r}", key, [*CHOICES, "rules"])
        rules = table.get("rules", [])
        if (
            not isinstance(rules, Sequence)
            or isinstance(rules, str)
            or not all(type(r) is str for r in rules)
        ):
            raise UsageError(f"contract: rules = {rules!r} is no list of names", 'write rules = ["..."]')
        missing = [name for name in CHOICES if name not in table and CHOICES[name] is not _YES_NO]
        if missing:
            lines = "; ".join(f"{name} = {_one_of(CHOICES[name])}" for name in missing)
            raise UsageError(f"contract: {', '.join(missing)} missing", f"add {lines}")
        fields = {
            **table,
            "rules": tuple(rules),
            "made_by_mkfs": tuple(made_by_mkfs),
            "checksums": tuple(checksums),
        }
        return cls(**fields)  # type: ignore[arg-type]  # __post_init__ checks


FOLDS = ("case", "ends", "composed")
_YES_NO: Sequence[object] = (False, True)
CHOICES: Mapping[str, Sequence[object]] = {
    "namespace": ("prefix", "each", "synced", "none"),
    "persists": ("transaction", "operations", "inode", "nothing"),
    "data": ("journal", "ordered", "writeback"),
    **{f.name: _YES_NO for f in dataclasses.fields(Contract) if f.type == "bool"},
}


RULES: Mapping[str, str] = {
    "overwrites-commit": "a write into blocks that were there changes the inode too",
    "extension-zeroes": "what a committed truncate or fallocate adds to a file reads as zeros",
    "zeroed-edges-lag": "what punching or zeroing part of a block writes may reach the disk after its commit",
    "data-at-end": "a size that a write set follows that write's data in the file's last block",
    "allocations-stay": "blocks that fallocate allocated are durable once the file was synced",
    "only-sync": "nothing but sync is judged, and that only as long as nothing has begun since",
    "reused-name-loses": "fsync of a file may remove one that had its name before and was renamed",
    "exchange-leaves-inodes": "an exchange of names changes the directories only, not what they name",
    "rename-commits": "fsync of a file made after a rename into its directory covers the rename",
    "fsync-leaves-names": "fsync promises contents and what is in a directory, and not the name used",
    "moved-may-be-lost": "what is renamed or replaced may be lost until something makes that durable",
    "names-at-once": "each operation that makes or moves a name is durable when it returns",
    "writes-at-once": "each write is durable when it returns, as with O_DSYNC",
    "links-may-part": "what had several names at a remount may come apart; of overlayfs without an index",
    "untouched-stays": "a durable file that nothing touches stays as it is; of file systems on a stack",
}
"""Rules that only some modes have, each with what it says."""
_OF_SYNCED = frozenset({"fsync-leaves-names", "moved-may-be-lost", "names-at-once"})


def _contradictions(c: Contract) -> Sequence[tuple[bool, str]]:
    journal = c.data == "journal"
    return (
        (journal and c.size_lags, "data = 'journal' writes sizes with the data: size_lags must be false"),
        (
            journal and c.zeros_in_new_blocks,
            "data = 'journal' writes new blocks with their data: zeros_in_new_blocks must be false",
        ),
        (
            c.stale_allowed and c.data != "writeback",
            "stale_allowed needs data = 'writeback': the others write data before its block is committed",
        ),
        (
            c.size_lags and not c.zeros_in_new_blocks,
            "size_lags leaves open when blocks are allocated, so zeros_in_new_blocks must be true",
        ),
        (
            c.namespace == "none" and c.persists != "nothing",
            "namespace = 'none' gives persists = 'transaction' no order to refer to: use 'nothing'",
        ),
        (
            (c.namespace in ("each", "synced")) != (c.persists == "inode"),
            "namespace = 'each' or 'synced' goes with persists = 'inode', and with nothing else",
        ),
        (
            "only-sync" in c.rules and c.namespace != "synced",
            "the rule 'only-sync' weakens namespace = 'synced', and nothing else",
        ),
        (
            bool(_OF_SYNCED & {*c.rules}) and c.namespace != "synced",
            f"the rules {', '.join(sorted(_OF_SYNCED))} are of namespace = 'synced', and of no other",
        ),
        (
            c.namespace == "each" and c.data == "journal",
            "data = 'journal' ties contents to an order of operations: use namespace = 'prefix'",
        ),
    )


def _one_of(values: Sequence[object]) -> str:
    return " or ".join(repr(v).lower() if isinstance(v, bool) else repr(v) for v in values)


def _refuse(what: str, given: str, allowed: Sequence[object]) -> NoReturn:
    words = [str(a) for a in allowed]
    near = difflib.get_close_matches(given, words, n=3, cutoff=0.4)
    raise UsageError(what, f"try {_one_of([a for a in allowed if str(a) in near] or allowed)}")
