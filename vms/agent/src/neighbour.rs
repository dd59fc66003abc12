//! Another program's commit, or writeback, behind each call of the program under test.
//!
//! What a call changed becomes durable when the file system commits, and that may be on another program's behalf.
//! A recording of one program alone seldom shows a commit between two of its calls. The neighbour is the tracer: its
//! file has no name, so that the program under test finds nothing of it.
//!
//! Under memory pressure, a kernel writes dirty pages back long before anybody syncs them, and commits nothing by that.
//! A page that was overwritten in place then comes before whatever is synced behind it.

use std::{
    fs::{self, File, Permissions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, OpenOptionsExt, PermissionsExt},
    },
    path::Path,
};

use crate::mounts::MOUNT_POINT;

/// The word in front of a program that has one.
pub const NAME: &str = "powercut-neighbour";
/// The word in front of a program under memory pressure.
pub const PRESSURE_NAME: &str = "powercut-pressure";

/// Commits of one program: each is a dozen writes of the log, and all of them are combined. What ends behind fewer
/// calls than the program made is told as a failure: nobody is to take it for all of them.
const COMMITS_MAX: u32 = 200;

/// `BTRFS_IOC_START_SYNC` and `BTRFS_IOC_WAIT_SYNC` of include/uapi/linux/btrfs.h: a commit that writes no data back,
/// as the one of each half minute. An fsync there logs its own file alone.
const BTRFS_START_SYNC: libc::c_ulong = 0x8008_9418;
const BTRFS_WAIT_SYNC: libc::c_ulong = 0x4008_9416;

/// `F2FS_IOC_WRITE_CHECKPOINT` of include/uapi/linux/f2fs.h: an fsync there makes its own file durable alone.
const F2FS_WRITE_CHECKPOINT: libc::c_ulong = 0xf507;

/// What is done behind each call.
pub enum Neighbour {
    Commits(Commits),
    /// The data of each file that has a name is written back.
    WritesBack,
}

impl Neighbour {
    /// What it does, for the list of calls.
    pub fn does(&self) -> &'static str {
        match self {
            Self::Commits(_) => "another program: fsync of its own file",
            Self::WritesBack => "memory pressure: what is dirty is written back",
        }
    }

    /// # Errors
    /// Why it did not do that, in words: too many commits, or what a call said.
    pub fn act(&mut self) -> Result<(), String> {
        match self {
            Self::Commits(commits) => commits.commit(),
            Self::WritesBack => write_back(Path::new(MOUNT_POINT))
                .map_err(|why| format!("what is dirty was not written back: {why}")),
        }
    }
}

/// Write back what is dirty of the files in a folder and below, and wait for it. Nothing is flushed or committed. A
/// file that is gone meanwhile is none.
fn write_back(folder: &Path) -> io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type()?;
        if kind.is_dir() {
            write_back(&entry.path())?;
        } else if kind.is_file() {
            match File::open(entry.path()) {
                Ok(file) => write_file_back(&file)?,
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(())
}

fn write_file_back(file: &File) -> io::Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the call takes numbers.
    if unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// A file of its own on the file system under test.
pub struct Commits {
    file: File,
    left: u32,
}

impl Commits {
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

    /// Change the file, and sync it. Its mode changes as well: a write within the same tick of the clock as the last
    /// one changes no time stamp, and an fsync of data alone commits nothing.
    ///
    /// # Errors
    /// Why it did not commit, in words: too many commits, or what a call said.
    fn commit(&mut self) -> Result<(), String> {
        self.left = self.left.checked_sub(1).ok_or_else(|| {
            format!("the program changes files by more than {COMMITS_MAX} calls, and another program commits behind at most so many: make the workload smaller")
        })?;
        self.change()
            .map_err(|why| format!("another program's commit failed: {why}"))
    }

    fn change(&mut self) -> io::Result<()> {
        let even = self.left.is_multiple_of(2);
        let mode = Permissions::from_mode(if even { 0o600 } else { 0o400 });
        self.file.write_all_at(&self.left.to_le_bytes(), 0)?;
        self.file.set_permissions(mode)?;
        self.file.sync_all()?;
        let (fd, mut transaction) = (self.file.as_raw_fd(), 0_u64);
        // SAFETY: the requests of btrfs take a pointer to a number, that of F2FS nothing; others refuse them.
        unsafe {
            let started = libc::ioctl(fd, BTRFS_START_SYNC as _, &mut transaction);
            done(started)?;
            if started == 0 {
                done(libc::ioctl(fd, BTRFS_WAIT_SYNC as _, &mut transaction))
            } else {
                done(libc::ioctl(fd, F2FS_WRITE_CHECKPOINT as _))
            }
        }
    }
}

/// A file system that knows no such request commits by fsync.
fn done(answer: libc::c_int) -> io::Result<()> {
    let why = io::Error::last_os_error();
    match why.raw_os_error() {
        _ if answer == 0 => Ok(()),
        Some(libc::ENOTTY | libc::EOPNOTSUPP | libc::EINVAL) => Ok(()),
        _ => Err(why),
    }
}
