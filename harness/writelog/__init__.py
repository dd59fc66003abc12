"""Write logs of dm-log-writes: read, select, build."""

from harness.writelog.build import Discard, Flush, MarkText, Step, Write, write_log
from harness.writelog.log import WriteLog, read_log
from harness.writelog.select import select

__all__ = [
    "Discard",
    "Flush",
    "MarkText",
    "Step",
    "Write",
    "WriteLog",
    "read_log",
    "select",
    "write_log",
]
