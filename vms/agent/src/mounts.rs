//! Mounting and unmounting the file system under test.

use std::{
    ffi::CString,
    sync::atomic::{AtomicBool, Ordering},
};

use powercut_protocol::MountSpec;
use rustix::{
    fs::{access, open, Access, Mode, OFlags},
    io::{self, Errno},
    ioctl::{self, opcode, Opcode},
    mount::{mount, mount_remount, unmount, MountFlags, UnmountFlags},
};

use crate::processes;

/// Where the file system under test is mounted.
pub const MOUNT_POINT: &str = "/mnt";

/// `BLKFLSBUF` of `include/uapi/linux/fs.h`: write back and drop a block device's cached pages.
const BLKFLSBUF: Opcode = opcode::none(0x12, 97);

/// `struct btrfs_ioctl_vol_args`: a descriptor and a name, both empty for "all devices".
type BtrfsVolArgs = [u8; 4096];
/// `BTRFS_IOC_FORGET_DEV` of `include/uapi/linux/btrfs.h` (since Linux 5.4).
const BTRFS_IOC_FORGET_DEV: Opcode = opcode::write::<BtrfsVolArgs>(0x94, 5);

/// Whether btrfs was to mount a device.
static BTRFS_SCANNED: AtomicBool = AtomicBool::new(false);

/// Options that mount(2) takes as flags, not as words for the file system (mount(8),
/// "filesystem-independent mount options").
const FLAG_OPTIONS: [(&str, MountFlags); 5] = [
    ("bind", MountFlags::BIND),
    ("noatime", MountFlags::NOATIME),
    ("nodiratime", MountFlags::NODIRATIME),
    ("sync", MountFlags::SYNCHRONOUS),
    ("dirsync", MountFlags::DIRSYNC),
];

/// Mount a disk after a power cut. One that is mounted read-only first is remounted with the same options, as
/// mount(8) does. If that fails, it is unmounted again.
pub fn mount_crashed(device: &str, spec: &MountSpec, flags: MountFlags) -> io::Result<()> {
    if !spec.read_only_first {
        return mount_device(device, spec, flags);
    }
    mount_device(device, spec, flags | MountFlags::RDONLY)?;
    let (flags, options) = split(spec, flags)?;
    let remounted = mount_remount(MOUNT_POINT, flags, options.as_c_str());
    if remounted.is_err() {
        unmount_device();
    }
    remounted
}

/// Whether what is mounted refuses to be written to. Asked of access(2), which looks at nothing but that: statfs(2)
/// has XFS begin to free inodes.
pub fn is_read_only() -> bool {
    access(MOUNT_POINT, Access::WRITE_OK) == Err(Errno::ROFS)
}

/// Mount according to `spec`.
pub fn mount_device(device: &str, spec: &MountSpec, flags: MountFlags) -> io::Result<()> {
    let (flags, options) = split(spec, flags)?;
    // Below a layer it is mounted by the steps.
    if spec.fstype == "btrfs" || spec.stack.is_some() {
        BTRFS_SCANNED.store(true, Ordering::Relaxed);
    }
    mount(
        device,
        MOUNT_POINT,
        &*spec.fstype,
        flags,
        options.as_c_str(),
    )
}

/// The flags of mount(2), with those that are words in the options, and the words that are left.
fn split(spec: &MountSpec, mut flags: MountFlags) -> io::Result<(MountFlags, CString)> {
    let mut words = Vec::new();
    for word in spec.options.split(',') {
        match FLAG_OPTIONS.iter().find(|(name, _)| *name == word) {
            Some((_, flag)) => flags |= *flag,
            None => words.push(word),
        }
    }
    let options = CString::new(words.join(",")).map_err(|_| Errno::INVAL)?;
    Ok((flags, options))
}

/// Unmount, killing programs that still hold the mount. If that fails, detach it so that the next
/// request can go on, and return the errno. 0: unmounted.
pub fn unmount_device() -> i32 {
    let mut result = unmount(MOUNT_POINT, UnmountFlags::empty());
    if result == Err(Errno::BUSY) {
        processes::kill_all();
        result = unmount(MOUNT_POINT, UnmountFlags::empty());
    }
    let Err(errno) = result else { return 0 };
    // Its failure could only repeat the first.
    let _ = unmount(MOUNT_POINT, UnmountFlags::DETACH);
    errno.raw_os_error()
}

/// Drop the kernel's cache of a device whose contents changed behind its back. The last close of a
/// block device does the same (`blkdev_flush_mapping`); this is for a device that something else
/// holds open.
pub fn drop_cache(device: &str) -> io::Result<()> {
    let device = open(device, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    // SAFETY: BLKFLSBUF takes no argument.
    unsafe { ioctl::ioctl(&device, ioctl::NoArg::<BLKFLSBUF>::new()) }
}

/// Make btrfs forget the devices it has scanned, which it does when one is mounted: it would remember a device's
/// generation and take another device with the same UUID for a copy of it. Kernels before 5.4 cannot do it, which is
/// not a failure.
pub fn forget_btrfs_devices() -> io::Result<()> {
    if !BTRFS_SCANNED.load(Ordering::Relaxed) {
        return Ok(());
    }
    let control = match open(
        "/dev/btrfs-control",
        OFlags::RDWR | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        Err(Errno::NOENT | Errno::NODEV) => return Ok(()),
        other => other?,
    };
    let all: BtrfsVolArgs = [0; 4096];
    // SAFETY: the argument has the type whose size the opcode encodes.
    let done =
        unsafe { ioctl::ioctl(&control, ioctl::Setter::<BTRFS_IOC_FORGET_DEV, _>::new(all)) };
    match done {
        Err(Errno::NOTTY) => Ok(()),
        other => other,
    }
}
