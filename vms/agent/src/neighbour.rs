//! Another program's commit behind each call of the program under test.
//!
//! What a call changed becomes durable when the file system commits, and that may be on another program's behalf.
//! A recording of one program alone seldom shows a commit between two of its calls. The neighbour is the tracer: its
//! file has no name, so that the program under test finds nothing of it.

use std::{
    fs::{File, Permissions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, OpenOptionsExt, PermissionsExt},
    },
};

use crate::mounts::MOUNT_POINT;

/// The word in front of a program that has one.
pub const NAME: &str = "powercut-neighbour";

/// Commits of one program: each is a dozen writes of the log, and all of them are combined.
const COMMITS_MAX: u32 = 200;

/// `BTRFS_IOC_START_SYNC` and `BTRFS_IOC_WAIT_SYNC` of include/uapi/linux/btrfs.h: a commit that writes no data back,
/// as the one of each half minute. An fsync there logs its own file alone.
const BTRFS_START_SYNC: libc::c_ulong = 0x8008_9418;
const BTRFS_WAIT_SYNC: libc::c_ulong = 0x4008_9416;

/// A file of its own on the file system under test.
pub struct Neighbour {
    file: File,
    left: u32,
}

impl Neighbour {
    /// # Errors
    /// `EOPNOTSUPP` where the file system has no files without a name.
    pub fn open() -> io::Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_TMPFILE)
            .open(MOUNT_POINT)?;
        Ok(Self {
            file,
            left: COMMITS_MAX,
        })
    }

    /// Whether it may commit once more.
    pub fn is_there(&self) -> bool {
        self.left > 0
    }

    /// Change the file, and sync it. Its mode changes as well: a write within the same tick of the clock as the last
    /// one changes no time stamp, and an fsync of data alone commits nothing.
    pub fn commit(&mut self) {
        self.left -= 1;
        let mode = Permissions::from_mode(if self.left.is_multiple_of(2) {
            0o600
        } else {
            0o400
        });
        let written = self.file.write_all_at(&self.left.to_le_bytes(), 0);
        let changed = written.and_then(|()| self.file.set_permissions(mode));
        if let Err(why) = changed.and_then(|()| self.file.sync_all()) {
            // A disk that is full, or a file system that has failed: the program meets that itself.
            eprintln!("{NAME}: {why}");
        }
        let mut transaction = 0_u64;
        // SAFETY: both requests take a pointer to a number; other file systems refuse them.
        unsafe {
            let file = self.file.as_raw_fd();
            if libc::ioctl(file, BTRFS_START_SYNC as _, &mut transaction) == 0 {
                libc::ioctl(file, BTRFS_WAIT_SYNC as _, &mut transaction);
            }
        }
    }
}
