//! The words of the protocol: kinds, flags and calls. `vms/protocol/vectors.json` holds every one of them;
//! `harness/model/` is the other side.

use serde::{Deserialize, Serialize};

/// Define an enum of unit variants that are words on the wire, with a list of all of them.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$of:meta])* $variant:ident,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name { $($(#[$of])* $variant,)+ }

        impl $name {
            /// Every variant, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];
        }
    };
}

words! {
    /// What an operation does.
    #[derive(Default)]
    OperationKind {
        Create,
        Tmpfile,
        Open,
        OpenTmpfile,
        Close,
        Write,
        Append,
        MmapWrite,
        Truncate,
        Fallocate,
        Link,
        Symlink,
        Rename,
        Exchange,
        Unlink,
        Mkdir,
        Rmdir,
        Mkfifo,
        Mknod,
        Setxattr,
        Removexattr,
        Chmod,
        Chown,
        Chattr,
        EnableVerity,
        Clone,
        ExchangeRange,
        CopyRange,
        Touch,
        Subvolume,
        Snapshot,
        SubvolumeDelete,
        StartAtomic,
        CommitAtomic,
        AbortAtomic,
        Gc,
        Fsync,
        Fdatasync,
        SyncFileRange,
        #[default]
        Sync,
        BeginSync,
        WriteBack,
        DropCaches,
        Remount,
        Shutdown,
        Run,
    }
}

words! {
    /// How an operation does it.
    OperationFlag {
        /// `write`, `append`: O_SYNC. `mmap-write`: msync(2) of the whole file.
        Sync,
        /// `write`, `append`: O_DSYNC. `exchange-range`: XFS_EXCHANGE_RANGE_DSYNC.
        Dsync,
        /// `write`, `append`: O_DIRECT.
        Direct,
        /// `fallocate`: FALLOC_FL_KEEP_SIZE.
        KeepSize,
        /// `fallocate`: FALLOC_FL_PUNCH_HOLE, which includes KEEP_SIZE.
        PunchHole,
        /// `fallocate`: FALLOC_FL_ZERO_RANGE.
        ZeroRange,
        /// `fallocate`: FALLOC_FL_COLLAPSE_RANGE.
        CollapseRange,
        /// `fallocate`: FALLOC_FL_INSERT_RANGE.
        InsertRange,
        /// `mmap-write`: msync(2) of the pages written.
        SyncRange,
        /// `mmap-write`: behind the end of the file, in its last page.
        PastEnd,
        /// `sync-file-range`: SYNC_FILE_RANGE_WRITE alone.
        Async,
        /// `shutdown`: the log is written first, and nothing else.
        Logflush,
        /// `shutdown`: nothing is written any more.
        Nologflush,
    }
}

words! {
    /// Which of the completions that it holds a disk releases, when the guest waits or asks for a flush.
    #[derive(Default)]
    HoldOrder {
        /// Everything, the newest first.
        #[default]
        All,
        /// Half of them, the newest; for a flush, none.
        Newest,
        /// Half of them, the oldest; for a flush, everything.
        Oldest,
        /// Any half of them; for a flush, any.
        Random,
    }
}

words! {
    /// The type of an inode. `Unknown`: not one that stat(2) documents.
    #[derive(Default)]
    FileKind {
        File,
        Directory,
        Symlink,
        Fifo,
        Socket,
        Block,
        Char,
        #[default]
        Unknown,
    }
}

words! {
    /// Where a stretch of a file comes from.
    #[derive(Default)]
    ExtentKind {
        /// Data of operation `value`, at this very offset.
        Written,
        /// Data of operation `value`, written at another offset (`origin`).
        Misplaced,
        #[default]
        Zero,
        /// The device's poison, from device block `value`.
        Poison,
        /// Bytes in `data`, too few or too mixed to tell (at most 64).
        Literal,
        /// Other bytes; `data` holds the first 64.
        Foreign,
        /// read(2) failed with errno `value`.
        Unreadable,
    }
}

words! {
    /// What failed in the guest: a system call, or one of the agent's own limits.
    Call {
        Statx,
        Openat,
        Getdents,
        Readlinkat,
        Listxattr,
        Getxattr,
        Read,
        /// The walk did not descend into a directory that is below itself: ELOOP.
        InsideItself,
        /// The walk did not descend into what is mounted there: EXDEV.
        AnotherMount,
        Open,
        Fstat,
        Write,
        Fallocate,
        Truncate,
        Link,
        Linkat,
        Symlink,
        Rename,
        Renameat2,
        Unlink,
        Mkdir,
        Rmdir,
        Mknodat,
        Setxattr,
        Removexattr,
        Chmod,
        Chown,
        Setflags,
        EnableVerity,
        Ficlone,
        ExchangeRange,
        CopyFileRange,
        Utimensat,
        Subvolume,
        Snapshot,
        SubvolumeDelete,
        StartAtomic,
        CommitAtomic,
        AbortAtomic,
        Gc,
        Shutdown,
        Fsync,
        Fdatasync,
        SyncFileRange,
        WriteBack,
        DropCaches,
        Unmount,
        Mount,
        Syncfs,
        Mmap,
        Msync,
        Munmap,
        /// A program could not be started or awaited.
        Spawn,
        /// ETIMEDOUT: the deadline passed before the operation began, or before its program ended.
        Deadline,
        /// EINVAL: the operation contradicts itself, such as a path that leads out of the mount point.
        Request,
    }
}

words! {
    /// How a file differs from what was written.
    DifferenceKind {
        /// write(2) wrote less than it was given, although there was room.
        ShortWrite,
        Size,
        Data,
    }
}

words! {
    /// What becomes of a name.
    #[derive(Default)]
    ChangeKind {
        #[default]
        Remove,
        Directory,
        File,
        Symlink,
        /// Another name of a file.
        Link,
    }
}
