"""Tests of generated workloads."""

from harness.model import OperationKind as K

NOT_GENERATED = {
    *(K.MKFIFO, K.MKNOD, K.OPEN_TMPFILE, K.CLONE, K.EXCHANGE_RANGE, K.COPY_RANGE, K.TOUCH, K.CRASH, K.RUN),
    *(K.SUBVOLUME, K.SNAPSHOT, K.SUBVOLUME_DELETE, K.START_ATOMIC, K.COMMIT_ATOMIC, K.ABORT_ATOMIC),
    *(K.GC, K.SHUTDOWN, K.CHATTR, K.ENABLE_VERITY),
    *(K.BEGIN_SYNC, K.WRITE_BACK),
}
"""What only lists of operations and single steps have. A generated name means the same workload for ever."""
ONLY_BY_CHANCE = {K.EXCHANGE, K.SYNC_FILE_RANGE, K.DROP_CACHES, K.OPEN, K.CLOSE, K.REMOUNT, K.CHOWN, K.CHMOD}
"""What sequences do not have."""
