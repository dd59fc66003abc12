"""Names for the blocks of a write log: which journal record, whose inode, which operation's data.

`named_log` names every write of a log. A module a format knows how it describes itself; all are total: any
bytes have an answer, and none raises. What a block says of itself (a magic number with its own place, or a
place that the superblock fixes) is a sure name; what follows from other blocks, such as whose extent it lies
in, is a name with `sure` False and is shown with a question mark.
"""

from harness.blocks.naming import NamedLog, describe, named_log, written_paths

__all__ = ["NamedLog", "describe", "named_log", "written_paths"]
