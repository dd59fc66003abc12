"""Tests of generated workloads."""

from harness.model import OperationKind as K

NOT_GENERATED = {
    K.EXCHANGE,
    K.MKFIFO,
    K.MKNOD,
    K.SYNC_FILE_RANGE,
    K.DROP_CACHES,
    K.OPEN,
    K.OPEN_TMPFILE,
    K.CLOSE,
    K.REMOUNT,
    K.CHOWN,
    K.CLONE,
    K.RUN,
    K.CHMOD,
}
"""What only lists of operations have. A name of a generated workload means the same for ever."""
