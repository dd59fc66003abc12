//! Operations that one file system alone has: subvolumes of btrfs, atomic writes and garbage collection of F2FS.
//! And the shutdown of a mounted file system, which several have.

use std::os::fd::{AsRawFd, BorrowedFd};

use powercut_protocol::{Call, OperationFlag};
use rustix::{
    fs::{open, Mode, OFlags},
    io::Errno,
};

use crate::failure::errno_of;

/// From `include/uapi/linux/btrfs.h`: _IOW(0x94, NUMBER, struct btrfs_ioctl_vol_args) or its version 2.
const BTRFS_IOC_SUBVOL_CREATE: u32 = 0x5000_940e;
const BTRFS_IOC_SNAP_DESTROY: u32 = 0x5000_940f;
const BTRFS_IOC_SNAP_CREATE_V2: u32 = 0x5000_9417;
/// Both structures have this size, and begin with a descriptor of 64 bits. The name follows, in version 2 behind
/// a transaction, flags and four words that are unused here. It ends in NUL.
const VOL_ARGS_BYTES: usize = 4096;
const NAME_AT: usize = 8;
const NAME_AT_V2: usize = 56;
const NAME_BYTES: usize = 255;

/// From `include/uapi/linux/f2fs.h`: _IO(0xf5, 1), _IO(0xf5, 2), _IO(0xf5, 5), _IOW(0xf5, 6, __u32).
const F2FS_IOC_START_ATOMIC_WRITE: u32 = 0xf501;
const F2FS_IOC_COMMIT_ATOMIC_WRITE: u32 = 0xf502;
const F2FS_IOC_ABORT_ATOMIC_WRITE: u32 = 0xf505;
const F2FS_IOC_GARBAGE_COLLECT: u32 = 0x4004_f506;
/// What it is asked to do: in the foreground, so that it is done when the call returns.
const GC_SYNC: u32 = 1;

/// _IOR('X', 125, __u32): XFS_IOC_GOINGDOWN, which ext4, F2FS and others took over.
const IOC_SHUTDOWN: u32 = 0x8004_587d;
const GOING_DEFAULT: u32 = 0;
const GOING_LOGFLUSH: u32 = 1;
const GOING_NOLOGFLUSH: u32 = 2;

type Failed = (Call, Errno);

/// A new, empty subvolume at this path.
pub fn make_subvolume(path: &str) -> Result<(), Failed> {
    by_name(Call::Subvolume, BTRFS_IOC_SUBVOL_CREATE, path)
}

/// Remove the subvolume at this path with all that it holds.
pub fn delete_subvolume(path: &str) -> Result<(), Failed> {
    by_name(Call::SubvolumeDelete, BTRFS_IOC_SNAP_DESTROY, path)
}

/// A writable snapshot of the subvolume at `source`.
pub fn snapshot(source: &str, target: &str) -> Result<(), Failed> {
    let call = Call::Snapshot;
    let source = open(source, DIRECTORY, Mode::empty()).map_err(|e| (call, e))?;
    let (parent, name) = target.rsplit_once('/').ok_or((call, Errno::INVAL))?;
    let parent = open(parent, DIRECTORY, Mode::empty()).map_err(|e| (call, e))?;
    let mut arguments = arguments(name, NAME_AT_V2).map_err(|e| (call, e))?;
    arguments.0[..8].copy_from_slice(&i64::from(source.as_raw_fd()).to_ne_bytes());
    request(
        call,
        parent.as_raw_fd(),
        BTRFS_IOC_SNAP_CREATE_V2,
        &arguments,
    )
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// `struct btrfs_ioctl_vol_args`, of either version.
#[repr(C, align(8))]
struct VolArgs([u8; VOL_ARGS_BYTES]);

fn arguments(name: &str, at: usize) -> Result<VolArgs, Errno> {
    if name.is_empty() || name.len() > NAME_BYTES || name.contains('\0') {
        return Err(Errno::INVAL);
    }
    let mut filled = VolArgs([0; VOL_ARGS_BYTES]);
    filled.0[at..at + name.len()].copy_from_slice(name.as_bytes());
    Ok(filled)
}

/// A request to the directory that a path is in, which names what is in there.
fn by_name(call: Call, number: u32, path: &str) -> Result<(), Failed> {
    let (parent, name) = path.rsplit_once('/').ok_or((call, Errno::INVAL))?;
    let parent = open(parent, DIRECTORY, Mode::empty()).map_err(|e| (call, e))?;
    let arguments = arguments(name, NAME_AT).map_err(|e| (call, e))?;
    request(call, parent.as_raw_fd(), number, &arguments)
}

/// From here on writes to the file wait for `commit_atomic`. The descriptor has to stay open: closing it aborts.
pub fn start_atomic(file: BorrowedFd<'_>) -> Result<(), Failed> {
    let (call, number) = (Call::StartAtomic, F2FS_IOC_START_ATOMIC_WRITE);
    request(call, file.as_raw_fd(), number, &())
}

/// All writes since `start_atomic`, and an fsync.
pub fn commit_atomic(file: BorrowedFd<'_>) -> Result<(), Failed> {
    let (call, number) = (Call::CommitAtomic, F2FS_IOC_COMMIT_ATOMIC_WRITE);
    request(call, file.as_raw_fd(), number, &())
}

/// No write since `start_atomic`.
pub fn abort_atomic(file: BorrowedFd<'_>) -> Result<(), Failed> {
    let (call, number) = (Call::AbortAtomic, F2FS_IOC_ABORT_ATOMIC_WRITE);
    request(call, file.as_raw_fd(), number, &())
}

/// One round of garbage collection in the foreground. That there was nothing to collect is no failure
/// (`f2fs_gc`: ENODATA without a victim, EAGAIN where it freed no section).
pub fn collect_garbage(root: &str) -> Result<(), Failed> {
    let call = Call::Gc;
    let root = open(root, DIRECTORY, Mode::empty()).map_err(|e| (call, e))?;
    match request(call, root.as_raw_fd(), F2FS_IOC_GARBAGE_COLLECT, &GC_SYNC) {
        Err((_, Errno::NODATA | Errno::AGAIN)) => Ok(()),
        other => other,
    }
}

/// Shut the mounted file system down: it writes nothing more, and does nothing until it is unmounted.
pub fn shut_down(root: &str, flags: &[OperationFlag]) -> Result<(), Failed> {
    let call = Call::Shutdown;
    let how = match flags {
        [] => GOING_DEFAULT,
        [OperationFlag::Logflush] => GOING_LOGFLUSH,
        [OperationFlag::Nologflush] => GOING_NOLOGFLUSH,
        _ => return Err((Call::Request, Errno::INVAL)),
    };
    let root = open(root, DIRECTORY, Mode::empty()).map_err(|e| (call, e))?;
    request(call, root.as_raw_fd(), IOC_SHUTDOWN, &how)
}

/// ioctl(2). A file system that does not have it answers ENOTTY.
fn request<T>(call: Call, file: i32, number: u32, argument: &T) -> Result<(), Failed> {
    // SAFETY: the kernel reads at most as many bytes as the request's number says, which are those of `argument`.
    match unsafe { libc::ioctl(file, number as _, std::ptr::from_ref(argument)) } {
        0 => Ok(()),
        _ => Err(match errno_of(&std::io::Error::last_os_error()) {
            Errno::NOTTY => (call, Errno::OPNOTSUPP),
            other => (call, other),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_where_the_kernel_looks_for_it() {
        let filled = arguments("snap", NAME_AT_V2).unwrap();
        assert_eq!(&filled.0[56..61], b"snap\0");
        assert!(filled.0[..56].iter().all(|byte| *byte == 0));
        assert_eq!(size_of::<VolArgs>(), 4096);
        for name in ["", &"x".repeat(256)] {
            assert!(arguments(name, NAME_AT).is_err(), "{name}");
        }
    }

    #[test]
    fn another_file_system_does_not_have_them() {
        let folder = std::env::temp_dir().join(format!("powercut-extras-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("f");
        let file = std::fs::File::create(&path).unwrap();
        let lacks = |call| Err((call, Errno::OPNOTSUPP));
        use std::os::fd::AsFd;
        assert_eq!(start_atomic(file.as_fd()), lacks(Call::StartAtomic));
        let root = folder.to_str().unwrap();
        assert_eq!(collect_garbage(root), lacks(Call::Gc));
        assert_eq!(
            shut_down(root, &[OperationFlag::Sync]),
            Err((Call::Request, Errno::INVAL))
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
