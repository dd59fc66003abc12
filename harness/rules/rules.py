"""The rules of a mode that is only rules, as data: `vms/filesystems/any/*.toml`. Pure.

Whatever the rules say, a name, a size, a block of data and the attributes of a file persist each as a whole,
and rename(2) does.
"""

from __future__ import annotations

import msgspec

from harness.oracles.contract import Contract


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether a rule holds, and where that is written down."""

    holds: bool
    source: str


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`fsync_names`: fsync(2) of a file makes its names durable, with those of the directories that lead to
    it, up to the last change of the file itself (`harness.rules.micro`). `names_in_order`: the names of one
    directory persist in the order of the calls. `truncates_at_once`: the whole blocks that a truncation cuts
    off go with the size, all of them or none. `block_bytes`: of data that persists as a whole;
    `torn_bytes`: of the least that a torn write leaves. `contract`: what a mode of a file system promises
    besides `any/posix` (`harness.rules.promised`).
    """

    fsync_names: Rule
    names_in_order: Rule
    truncates_at_once: Rule
    block_bytes: int = 4096
    torn_bytes: int = 512
    contract: Contract | None = None

    @property
    def size_with_data(self) -> bool:
        """Whether each block of a write comes with the size that makes it readable."""
        return self.contract is not None and self.contract.data == "journal"
