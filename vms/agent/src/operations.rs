//! The operations of a workload, each done as a user would: open, act, close.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    ptr,
    thread::JoinHandle,
    time::Instant,
};

use powercut_protocol::{
    pattern, Call, CallError, MountSpec, Operation, OperationFlag, OperationKind as Kind,
    OperationResult,
};
use rustix::{
    fs::{
        self, fallocate, fdatasync, fstat, fsync, makedev, AtFlags, FallocateFlags, FileType,
        IFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags, CWD,
    },
    io::{fcntl_dupfd_cloexec, pwrite, Errno},
    mm::{mmap, msync, munmap, MapFlags, MsyncFlags, ProtFlags},
    mount::{unmount, MountFlags, UnmountFlags},
    process::{Gid, Uid},
};

use crate::{
    calls, extras,
    failure::errno_of,
    mounts::{self, MOUNT_POINT},
    program, stack,
};

/// The most written in one call; a longer write takes several.
const WRITE_BYTES: u64 = 16 << 20;
/// The largest alignment of memory, offset and length that O_DIRECT requires.
const DIRECT_BYTES: usize = 4096;
const PAGE_BYTES: u64 = 4096;
/// The permissions of new files.
const FILE_MODE: u32 = 0o644;
/// Another value than before, but zero, wakes the threads that write what is dirty, and they write all of it,
/// whatever its age (`dirty_writeback_centisecs_handler` in mm/page-writeback.c).
const WRITEBACK_INTERVAL: &str = "/proc/sys/vm/dirty_writeback_centisecs";
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
/// Pages, then names and inodes (Documentation/admin-guide/sysctl/vm.rst). An inode that still has pages in
/// the cache is not on the list of those that can be evicted (`mapping_shrinkable`).
const PAGES_AND_INODES: &str = "3";

/// From `include/uapi/linux/fsverity.h`: _IOW('f', 133, struct fsverity_enable_arg), and the hash.
const FS_IOC_ENABLE_VERITY: u32 = 0x4080_6685;
const FS_VERITY_HASH_ALG_SHA256: u32 = 1;
/// From `include/uapi/linux/fs.h`.
const FS_CASEFOLD_FL: u32 = 0x4000_0000;
/// From `fs/xfs/libxfs/xfs_fs.h`: _IOW('X', 129, struct xfs_exchange_range), and its flags.
const XFS_IOC_EXCHANGE_RANGE: u32 = 0x4028_5881;
const EXCHANGE_TO_EOF: u64 = 1;
const EXCHANGE_DSYNC: u64 = 2;

/// What a thread needs that makes one system call.
const SYNC_STACK_BYTES: usize = 64 << 10;
/// A thread that was just woken is begun at the first or second.
const TURNS: u32 = 4;

/// A call that failed.
type Failed = (Call, Errno);

/// What operations act on: the mounted file system, and what is held open in it.
#[derive(Default)]
pub struct Scene {
    device: String,
    mount: MountSpec,
    /// By their names, which begin with `@`.
    handles: BTreeMap<String, OwnedFd>,
    /// Threads that `begin-sync` began.
    syncs: Vec<JoinHandle<()>>,
    /// How the calls of programs are noted.
    noted: calls::Noted,
    /// How the program ended of which they are noted whole.
    pub ended: Option<program::Ended>,
}

impl Scene {
    pub fn of(device: String, mount: MountSpec, noted: calls::Noted) -> Self {
        Self {
            device,
            mount,
            noted,
            ended: None,
            handles: BTreeMap::new(),
            syncs: Vec::new(),
        }
    }

    /// Close what is still open, and await what is still being synced: the file system can be unmounted.
    pub fn close_all(&mut self) {
        self.handles.clear();
        self.await_syncs();
    }

    fn await_syncs(&mut self) {
        for sync in self.syncs.drain(..) {
            // It has no way to fail.
            let _ = sync.join();
        }
    }

    /// The path in the guest of an operation's path: below the mount point, which it cannot leave, or of a
    /// handle. Opening the latter gives the inode of the handle, whatever its name has become (proc(5)).
    fn resolve(&self, path: &str) -> Result<String, Failed> {
        if path.starts_with('@') {
            return Ok(format!("/proc/self/fd/{}", self.handle(path)?.as_raw_fd()));
        }
        below_mount(path)
    }

    fn handle(&self, name: &str) -> Result<&OwnedFd, Failed> {
        self.handles.get(name).ok_or((Call::Request, Errno::BADF))
    }

    fn hold(&mut self, name: &str, file: OwnedFd) -> Result<(), Failed> {
        if !name.starts_with('@') || self.handles.contains_key(name) {
            return Err((Call::Request, Errno::INVAL));
        }
        self.handles.insert(name.to_owned(), file);
        Ok(())
    }

    /// What to fsync: the handle itself, or the file of that name.
    fn opened(&self, op: &Operation, path: &str) -> Result<OwnedFd, Failed> {
        match op.path.starts_with('@') {
            true => fcntl_dupfd_cloexec(self.handle(&op.path)?, 0).map_err(of(Call::Open)),
            false => open(path, OFlags::RDONLY),
        }
    }

    /// Unmount and mount again, with what is below or above. With anything open it fails with EBUSY, as it would for
    /// a user.
    fn remount(&mut self) -> Result<(), Failed> {
        self.await_syncs();
        unmount(MOUNT_POINT, UnmountFlags::empty()).map_err(of(Call::Unmount))?;
        if let Some(stack) = &self.mount.stack {
            stack::restart(stack).map_err(of(Call::Mount))?;
        }
        mounts::mount_device(&self.device, &self.mount, MountFlags::empty())
            .map_err(of(Call::Mount))
    }
}

/// Name the call that an errno came from: `fsync(file).map_err(of(Call::Fsync))`.
fn of(call: Call) -> impl FnOnce(Errno) -> Failed {
    move |errno| (call, errno)
}

/// The result of an operation whose turn came after the deadline.
pub fn overdue(operation: &Operation, index: u32) -> OperationResult {
    failed(operation, index, (Call::Deadline, Errno::TIMEDOUT))
}

fn failed(operation: &Operation, index: u32, (call, errno): Failed) -> OperationResult {
    OperationResult {
        index,
        error: Some(CallError {
            call,
            path: operation.path.clone().into_bytes(),
            name: operation.name.clone(),
            errno: errno.raw_os_error(),
        }),
        ..OperationResult::default()
    }
}

/// Carry out operation `index`; its data carries the number `writer`.
pub fn perform(
    scene: &mut Scene,
    operation: &Operation,
    index: u32,
    writer: u16,
    deadline: Instant,
) -> OperationResult {
    if operation.kind == Kind::Run {
        return perform_run(scene, operation, index, deadline);
    }
    match perform_call(scene, operation, writer) {
        Ok(()) => OperationResult {
            index,
            ..OperationResult::default()
        },
        Err(error) => failed(operation, index, error),
    }
}

/// `run`: its program's exit code and output; at its deadline ETIMEDOUT and the output so far.
fn perform_run(
    scene: &mut Scene,
    operation: &Operation,
    index: u32,
    deadline: Instant,
) -> OperationResult {
    let whole = scene.noted == calls::Noted::Both;
    if whole && scene.ended.is_some() {
        return failed(operation, index, (Call::Request, Errno::INVAL)); // notes are of one program
    }
    let ended = program::run(&calls::noted(scene.noted, &operation.argv), deadline);
    scene.ended = ended.as_ref().ok().filter(|_| whole).cloned();
    match ended {
        Err(errno) => failed(operation, index, (Call::Spawn, errno)),
        Ok(ended) if ended.exit_code.is_none() => OperationResult {
            output: ended.output,
            ..overdue(operation, index)
        },
        Ok(ended) => OperationResult {
            index,
            error: None,
            exit_code: ended.exit_code,
            output: ended.output,
        },
    }
}

fn perform_call(scene: &mut Scene, op: &Operation, writer: u16) -> Result<(), Failed> {
    let path = &scene.resolve(&op.path)?;
    let (name, value) = (op.name.as_str(), op.value.as_slice());
    match op.kind {
        Kind::Create => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
            open(path, flags).map(drop)
        }
        Kind::Tmpfile => make_nameless(op, path, writer),
        Kind::Open => scene.hold(&op.target, open_to_hold(path)?),
        Kind::OpenTmpfile => scene.hold(&op.target, open(path, OFlags::TMPFILE | OFlags::RDWR)?),
        Kind::Close => scene
            .handles
            .remove(&op.path)
            .map(drop)
            .ok_or((Call::Request, Errno::BADF)),
        Kind::MmapWrite => write_mapped(op, path, writer),
        Kind::Write => write(op, path, writer, false),
        Kind::Append => write(op, path, writer, true),
        Kind::Truncate => truncate(path, op.length).map_err(of(Call::Truncate)),
        Kind::Fallocate => allocate(op, path),
        Kind::Link => link(scene, op, path),
        Kind::Symlink => fs::symlink(&op.target, path).map_err(of(Call::Symlink)),
        Kind::Rename => fs::rename(path, &below_mount(&op.target)?).map_err(of(Call::Rename)),
        Kind::Exchange => exchange(path, &below_mount(&op.target)?),
        Kind::Mkfifo => make_node(path, FileType::Fifo, 0),
        Kind::Mknod => make_node(path, FileType::CharacterDevice, makedev(1, 3)),
        Kind::Unlink => fs::unlink(path).map_err(of(Call::Unlink)),
        Kind::Mkdir => fs::mkdir(path, Mode::from_raw_mode(0o755)).map_err(of(Call::Mkdir)),
        Kind::Rmdir => fs::rmdir(path).map_err(of(Call::Rmdir)),
        Kind::Setxattr if op.path.starts_with('@') => {
            fs::fsetxattr(scene.handle(&op.path)?, name, value, XattrFlags::empty())
                .map_err(of(Call::Setxattr))
        }
        Kind::Setxattr => {
            fs::lsetxattr(path, name, value, XattrFlags::empty()).map_err(of(Call::Setxattr))
        }
        Kind::Removexattr if op.path.starts_with('@') => {
            fs::fremovexattr(scene.handle(&op.path)?, name).map_err(of(Call::Removexattr))
        }
        Kind::Removexattr => fs::lremovexattr(path, name).map_err(of(Call::Removexattr)),
        Kind::Chmod => {
            let bits = u32::try_from(op.length).map_err(|_| (Call::Request, Errno::INVAL))?;
            let mode = Mode::from_raw_mode(bits & 0o7777);
            fs::chmodat(CWD, path, mode, AtFlags::empty()).map_err(of(Call::Chmod))?;
            // FAT and exFAT take what they cannot keep for done (fs/fat/file.c, fat_setattr).
            let now = fs::statat(CWD, path, AtFlags::empty()).map_err(of(Call::Chmod))?;
            let kept = Mode::from_raw_mode(now.st_mode & 0o7777) == mode;
            if kept {
                Ok(())
            } else {
                Err((Call::Chmod, Errno::OPNOTSUPP))
            }
        }
        Kind::Chown => chown(op, path),
        Kind::Chattr => set_flag(path, value),
        Kind::EnableVerity => enable_verity(path),
        Kind::Clone => {
            let source = open(path, OFlags::RDONLY)?;
            let target = open(&below_mount(&op.target)?, OFlags::WRONLY)?;
            fs::ioctl_ficlone(target, source).map_err(of(Call::Ficlone))
        }
        Kind::ExchangeRange => exchange_range(op, path),
        Kind::CopyRange => copy_range(op, path),
        Kind::Touch => touch(op, path),
        Kind::Subvolume => extras::make_subvolume(path),
        Kind::Snapshot => extras::snapshot(path, &below_mount(&op.target)?),
        Kind::SubvolumeDelete => extras::delete_subvolume(path),
        Kind::StartAtomic => extras::start_atomic(scene.handle(&op.path)?.as_fd()),
        Kind::CommitAtomic => extras::commit_atomic(scene.handle(&op.path)?.as_fd()),
        Kind::AbortAtomic => extras::abort_atomic(scene.handle(&op.path)?.as_fd()),
        Kind::Gc => extras::collect_garbage(MOUNT_POINT),
        Kind::Fsync => fsync(scene.opened(op, path)?).map_err(of(Call::Fsync)),
        Kind::Fdatasync => fdatasync(scene.opened(op, path)?).map_err(of(Call::Fdatasync)),
        Kind::SyncFileRange => sync_file_range(op, path),
        Kind::Sync => {
            fs::sync();
            Ok(())
        }
        Kind::BeginSync => {
            let thread = std::thread::Builder::new().stack_size(SYNC_STACK_BYTES);
            let begun = thread.spawn(fs::sync).map_err(|e| errno_of(&e));
            scene.syncs.push(begun.map_err(of(Call::Spawn))?);
            give_way();
            Ok(())
        }
        Kind::WriteBack => write_back().map_err(|e| (Call::WriteBack, errno_of(&e))),
        Kind::DropCaches => std::fs::write(DROP_CACHES, PAGES_AND_INODES)
            .map_err(|e| (Call::DropCaches, errno_of(&e))),
        Kind::Remount => scene.remount(),
        Kind::Shutdown => {
            extras::shut_down(MOUNT_POINT, &op.flags)?;
            scene.handles.clear();
            scene.remount()
        }
        // Programs run before, with a deadline.
        Kind::Run => Err((Call::Request, Errno::INVAL)),
    }
}

/// Wake the kernel's own writeback, and let it begin.
fn write_back() -> std::io::Result<()> {
    let now: u32 = std::fs::read_to_string(WRITEBACK_INTERVAL)?
        .trim()
        .parse()
        .map_err(std::io::Error::other)?;
    // 0 would turn it off; a pair of an even number and the next odd one never has it, from 2 on.
    std::fs::write(WRITEBACK_INTERVAL, (now.max(2) ^ 1).to_string())?;
    give_way();
    Ok(())
}

/// Let threads that can run have a turn.
fn give_way() {
    for _ in 0..TURNS {
        std::thread::yield_now();
    }
}

/// open(2), close-on-exec; a file that it creates gets mode 644.
fn open(path: &str, flags: OFlags) -> Result<OwnedFd, Failed> {
    let mode = Mode::from_raw_mode(FILE_MODE);
    fs::open(path, flags | OFlags::CLOEXEC, mode).map_err(of(Call::Open))
}

/// The path in the guest of a path in the file system under test, which it cannot leave.
fn below_mount(path: &str) -> Result<String, Failed> {
    if path.starts_with('/') || path.split('/').any(|part| part == "..") {
        return Err((Call::Request, Errno::INVAL));
    }
    Ok(format!("{MOUNT_POINT}/{path}"))
}

/// To be read and written; a directory, which cannot be written, to be read.
fn open_to_hold(path: &str) -> Result<OwnedFd, Failed> {
    match open(path, OFlags::RDWR) {
        Err((_, Errno::ISDIR)) => open(path, OFlags::RDONLY | OFlags::DIRECTORY),
        other => other,
    }
}

/// link(2) or, from a handle, linkat(2) with AT_EMPTY_PATH, which also names what has no name yet.
fn link(scene: &Scene, op: &Operation, path: &str) -> Result<(), Failed> {
    let target = &below_mount(&op.target)?;
    if op.path.starts_with('@') {
        let file = scene.handle(&op.path)?;
        return fs::linkat(file, "", CWD, target, AtFlags::EMPTY_PATH).map_err(of(Call::Linkat));
    }
    fs::link(path, target).map_err(of(Call::Link))
}

/// renameat2(2) with RENAME_EXCHANGE. A file system that does not have it returns EINVAL, as for a name below
/// the other one, which the host does not ask for.
fn exchange(path: &str, other: &str) -> Result<(), Failed> {
    fs::renameat_with(CWD, path, CWD, other, RenameFlags::EXCHANGE).map_err(|errno| match errno {
        Errno::INVAL => (Call::Renameat2, Errno::OPNOTSUPP),
        other => (Call::Renameat2, other),
    })
}

/// mknod(2) with the permissions of a new file.
fn make_node(path: &str, kind: FileType, device: fs::Dev) -> Result<(), Failed> {
    fs::mknodat(CWD, path, kind, Mode::from_raw_mode(FILE_MODE), device).map_err(of(Call::Mknodat))
}

/// chown(2): `offset` is the user, `length` the group.
fn chown(op: &Operation, path: &str) -> Result<(), Failed> {
    // The last number stands for "unchanged".
    let number = |value| match u32::try_from(value) {
        Ok(u32::MAX) | Err(_) => Err((Call::Request, Errno::INVAL)),
        Ok(number) => Ok(number),
    };
    let (user, group) = (number(op.offset)?, number(op.length)?);
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    fs::chownat(CWD, path, Some(user), Some(group), AtFlags::empty()).map_err(of(Call::Chown))
}

/// ioctl(2) with FS_IOC_SETFLAGS: `+` or `-`, and a letter of chattr(1). A file system may take what it does not
/// keep for done: btrfs, for +C of a file that is not empty.
fn set_flag(path: &str, value: &[u8]) -> Result<(), Failed> {
    let (wanted, letter) = match value {
        [b'+', letter] => (true, letter),
        [b'-', letter] => (false, letter),
        _ => return Err((Call::Request, Errno::INVAL)),
    };
    let flag = match letter {
        b'C' => IFlags::NOCOW,
        b'D' => IFlags::DIRSYNC,
        b'F' => IFlags::from_bits_retain(FS_CASEFOLD_FL),
        b'S' => IFlags::SYNC,
        _ => return Err((Call::Request, Errno::INVAL)),
    };
    let lacks = |errno| match errno {
        // What does not know the ioctl, or lets the server of a mount answer.
        Errno::NOTTY | Errno::NOSYS => (Call::Setflags, Errno::OPNOTSUPP),
        other => (Call::Setflags, other),
    };
    let file = open(path, OFlags::RDONLY)?;
    let mut flags = fs::ioctl_getflags(&file).map_err(lacks)?;
    flags.set(flag, wanted);
    fs::ioctl_setflags(&file, flags).map_err(lacks)?;
    let kept = fs::ioctl_getflags(&file).map_err(lacks)?.contains(flag) == wanted;
    if kept {
        Ok(())
    } else {
        Err((Call::Setflags, Errno::OPNOTSUPP))
    }
}

/// The argument of FS_IOC_ENABLE_VERITY: see Documentation/filesystems/fsverity.rst. No salt, and no signature.
#[repr(C)]
#[derive(Default)]
struct VerityEnable {
    version: u32,
    hash_algorithm: u32,
    block_size: u32,
    salt_size: u32,
    salt: u64,
    signature_size: u32,
    reserved: u32,
    signature: u64,
    more: [u64; 11],
}

/// ioctl(2) with FS_IOC_ENABLE_VERITY, for which nobody may have the file open to write.
fn enable_verity(path: &str) -> Result<(), Failed> {
    let argument = VerityEnable {
        version: 1,
        hash_algorithm: FS_VERITY_HASH_ALG_SHA256,
        block_size: PAGE_BYTES as u32,
        ..VerityEnable::default()
    };
    let file = open(path, OFlags::RDONLY)?;
    // SAFETY: the kernel reads as many bytes as the request's number says, which are those of `argument`.
    match unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_ENABLE_VERITY as _, &argument) } {
        0 => Ok(()),
        _ => Err(match errno_of(&std::io::Error::last_os_error()) {
            // Another file system, or one whose kernel is without CONFIG_FS_VERITY.
            Errno::NOTTY => (Call::EnableVerity, Errno::OPNOTSUPP),
            other => (Call::EnableVerity, other),
        }),
    }
}

/// The argument of XFS_IOC_EXCHANGE_RANGE: see ioctl_xfs_exchange_range(2).
#[repr(C)]
struct ExchangeRange {
    file1_fd: i32,
    pad: u32,
    file1_offset: u64,
    file2_offset: u64,
    length: u64,
    flags: u64,
}

/// ioctl(2) with XFS_IOC_EXCHANGE_RANGE: everything up to the end of both files, and so their sizes, too.
fn exchange_range(op: &Operation, path: &str) -> Result<(), Failed> {
    let mut flags = EXCHANGE_TO_EOF;
    for flag in &op.flags {
        flags |= match flag {
            OperationFlag::Dsync => EXCHANGE_DSYNC,
            _ => return Err((Call::Request, Errno::INVAL)),
        };
    }
    let one = open(path, OFlags::RDWR)?;
    let other = open(&below_mount(&op.target)?, OFlags::RDWR)?;
    let ranges = ExchangeRange {
        file1_fd: one.as_raw_fd(),
        pad: 0,
        file1_offset: 0,
        file2_offset: 0,
        length: 0,
        flags,
    };
    // SAFETY: the kernel reads as many bytes as the request's number says, which are those of `ranges`.
    match unsafe { libc::ioctl(other.as_raw_fd(), XFS_IOC_EXCHANGE_RANGE as _, &ranges) } {
        0 => Ok(()),
        _ => Err(match errno_of(&std::io::Error::last_os_error()) {
            // Another file system, or an older kernel.
            Errno::NOTTY => (Call::ExchangeRange, Errno::OPNOTSUPP),
            other => (Call::ExchangeRange, other),
        }),
    }
}

/// sync_file_range(2), which makes nothing durable: it writes dirty pages, and nothing else.
fn sync_file_range(op: &Operation, path: &str) -> Result<(), Failed> {
    const INVALID: Failed = (Call::Request, Errno::INVAL);
    let flags = match op.flags[..] {
        [] => {
            libc::SYNC_FILE_RANGE_WAIT_BEFORE
                | libc::SYNC_FILE_RANGE_WRITE
                | libc::SYNC_FILE_RANGE_WAIT_AFTER
        }
        [OperationFlag::Async] => libc::SYNC_FILE_RANGE_WRITE,
        _ => return Err(INVALID),
    };
    let offset = i64::try_from(op.offset).map_err(|_| INVALID)?;
    let length = i64::try_from(op.length).map_err(|_| INVALID)?;
    let file = open(path, OFlags::RDONLY)?;
    // SAFETY: the call takes a descriptor, which is open, and numbers.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), offset, length, flags) } {
        0 => Ok(()),
        _ => Err((
            Call::SyncFileRange,
            errno_of(&std::io::Error::last_os_error()),
        )),
    }
}

fn truncate(path: &str, length: u64) -> Result<(), Errno> {
    let length = i64::try_from(length).map_err(|_| Errno::FBIG)?;
    let path = std::ffi::CString::new(path).map_err(|_| Errno::INVAL)?;
    // SAFETY: the path is a string that ends in NUL and outlives the call.
    match unsafe { libc::truncate(path.as_ptr(), length) } {
        0 => Ok(()),
        _ => Err(errno_of(&std::io::Error::last_os_error())),
    }
}

fn allocate(op: &Operation, path: &str) -> Result<(), Failed> {
    let mut mode = FallocateFlags::empty();
    for flag in &op.flags {
        mode |= match flag {
            OperationFlag::KeepSize => FallocateFlags::KEEP_SIZE,
            OperationFlag::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            OperationFlag::ZeroRange => FallocateFlags::ZERO_RANGE,
            OperationFlag::CollapseRange => FallocateFlags::COLLAPSE_RANGE,
            OperationFlag::InsertRange => FallocateFlags::INSERT_RANGE,
            _ => return Err((Call::Request, Errno::INVAL)),
        };
    }
    let shifts = mode.intersects(FallocateFlags::COLLAPSE_RANGE | FallocateFlags::INSERT_RANGE);
    let file = open(path, OFlags::WRONLY)?;
    fallocate(file, mode, op.offset, op.length).map_err(|errno| match errno {
        // The host asks for whole blocks of 4 KiB within the file: this file system allocates larger ones.
        Errno::INVAL if shifts => (Call::Fallocate, Errno::OPNOTSUPP),
        other => (Call::Fallocate, other),
    })
}

/// copy_file_range(2) to the same place in the target, as often as it takes.
fn copy_range(op: &Operation, path: &str) -> Result<(), Failed> {
    let source = open(path, OFlags::RDONLY)?;
    let target = open(&below_mount(&op.target)?, OFlags::WRONLY)?;
    let (mut from, mut to) = (op.offset, op.offset);
    let end = op.offset.saturating_add(op.length);
    while from < end {
        // No call copies more than MAX_RW_COUNT bytes (fs/read_write.c).
        let length = (end - from).min(WRITE_BYTES) as usize;
        match fs::copy_file_range(&source, Some(&mut from), &target, Some(&mut to), length) {
            // The host asks for bytes that the source has.
            Ok(0) => return Err((Call::CopyFileRange, Errno::IO)),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err((Call::CopyFileRange, errno)),
        }
    }
    Ok(())
}

/// utimensat(2): both times are `length` seconds after the beginning of 1970. A symbolic link has its own.
fn touch(op: &Operation, path: &str) -> Result<(), Failed> {
    let seconds = i64::try_from(op.length).map_err(|_| (Call::Request, Errno::INVAL))?;
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    let of_link = match op.path.starts_with('@') {
        true => AtFlags::empty(),
        false => AtFlags::SYMLINK_NOFOLLOW,
    };
    fs::utimensat(CWD, path, &times, of_link).map_err(of(Call::Utimensat))
}

/// Write the pattern, at the operation's offset or at the end of the file.
fn write(op: &Operation, path: &str, writer: u16, append: bool) -> Result<(), Failed> {
    let mut flags = OFlags::WRONLY;
    for flag in &op.flags {
        flags |= match flag {
            OperationFlag::Sync => OFlags::SYNC,
            OperationFlag::Dsync => OFlags::DSYNC,
            OperationFlag::Direct => OFlags::DIRECT,
            _ => return Err((Call::Request, Errno::INVAL)),
        };
    }
    // Before the open, so that only the write happens while the file is open.
    let mut buffer = vec![0; op.length.min(WRITE_BYTES) as usize + DIRECT_BYTES];
    let aligned = buffer.as_ptr().align_offset(DIRECT_BYTES);
    // A file system without O_DIRECT returns EINVAL, from open(2) or an aligned write (`noop_direct_IO`).
    let aligned_for_direct = (op.offset | op.length) & (DIRECT_BYTES as u64 - 1) == 0;
    let unsupported = |(call, errno)| match errno {
        Errno::INVAL if flags.contains(OFlags::DIRECT) && aligned_for_direct => {
            (call, Errno::OPNOTSUPP)
        }
        other => (call, other),
    };
    let file = open(path, flags).map_err(unsupported)?;
    let start = if append {
        fstat(&file)
            .map_err(of(Call::Fstat))?
            .st_size
            .unsigned_abs()
    } else {
        op.offset
    };
    write_pattern(
        file.as_fd(),
        writer,
        start,
        op.length,
        &mut buffer[aligned..],
    )
    .map_err(of(Call::Write))
    .map_err(unsupported)
}

/// Write `length` bytes of the pattern at `start`, as many at once as `buffer` holds.
fn write_pattern(
    file: BorrowedFd<'_>,
    writer: u16,
    start: u64,
    length: u64,
    buffer: &mut [u8],
) -> Result<(), Errno> {
    let mut done = 0;
    while done < length {
        let n = (length - done).min(WRITE_BYTES) as usize;
        let part = &mut buffer[..n];
        pattern::fill(writer, start + done, part);
        let mut written = 0;
        while written < n {
            match pwrite(file, &part[written..], start + done + written as u64) {
                Ok(0) => return Err(Errno::IO),
                Ok(more) => written += more,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        done += n as u64;
    }
    Ok(())
}

/// Write a file without a name, then link it into place.
fn make_nameless(op: &Operation, path: &str, writer: u16) -> Result<(), Failed> {
    let directory = path.rsplit_once('/').map_or("/", |(parent, _)| parent);
    let file = open(directory, OFlags::TMPFILE | OFlags::WRONLY)?;
    let mut buffer = vec![0; op.length.min(WRITE_BYTES) as usize];
    write_pattern(file.as_fd(), writer, 0, op.length, &mut buffer).map_err(of(Call::Write))?;
    fs::linkat(&file, "", CWD, path, AtFlags::EMPTY_PATH).map_err(of(Call::Linkat))
}

/// Store the pattern into a shared mapping of the whole file; with `sync`, msync all of it, with `sync-range`
/// the pages stored into. With `past-end`, all of it is stored behind the end of the file, in its last page.
fn write_mapped(op: &Operation, path: &str, writer: u16) -> Result<(), Failed> {
    const INVALID: Failed = (Call::Request, Errno::INVAL);
    let (sync_whole, past_end) = match op.flags[..] {
        [] => (None, false),
        [OperationFlag::Sync] => (Some(true), false),
        [OperationFlag::SyncRange] => (Some(false), false),
        [OperationFlag::PastEnd] => (None, true),
        _ => return Err(INVALID),
    };
    let file = open(path, OFlags::RDWR)?;
    let size = fstat(&file)
        .map_err(of(Call::Fstat))?
        .st_size
        .unsigned_abs();
    let end = op.offset.checked_add(op.length).ok_or(INVALID)?;
    // A mapping has whole pages: one that is not empty reaches to the end of the file's last page.
    let mapped_bytes = size.next_multiple_of(PAGE_BYTES);
    let fits = if past_end {
        op.offset >= size && end <= mapped_bytes
    } else {
        end <= size
    };
    if op.length == 0 || !fits {
        return Err(INVALID);
    }
    let mut data = vec![0; op.length as usize];
    pattern::fill(writer, op.offset, &mut data);
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in use.
    let mapped = unsafe {
        mmap(
            ptr::null_mut(),
            mapped_bytes as usize,
            protection,
            MapFlags::SHARED,
            &file,
            0,
        )
        .map_err(of(Call::Mmap))?
    };
    // SAFETY: `offset + length` lies within what is mapped, up to the file's last page, and nobody shortens the file.
    unsafe {
        ptr::copy_nonoverlapping(
            data.as_ptr(),
            mapped.cast::<u8>().add(op.offset as usize),
            data.len(),
        );
    }
    let first_page = op.offset / PAGE_BYTES * PAGE_BYTES;
    let synced = sync_whole.map_or(Ok(()), |whole| {
        let (start, end) = if whole { (0, size) } else { (first_page, end) };
        // SAFETY: this lies within the mapping made above, and `start` is a multiple of the page size.
        unsafe {
            let from = mapped.cast::<u8>().add(start as usize).cast();
            msync(from, (end - start) as usize, MsyncFlags::SYNC).map_err(of(Call::Msync))
        }
    });
    // SAFETY: nothing refers to the mapping any more.
    unsafe { munmap(mapped, mapped_bytes as usize).map_err(of(Call::Munmap))? };
    synced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_mount_point() {
        assert_eq!(below_mount("a/b").unwrap(), "/mnt/a/b");
        assert_eq!(below_mount("").unwrap(), "/mnt/");
        assert_eq!(below_mount("..a").unwrap(), "/mnt/..a");
        for path in ["..", "a/../b", "/etc", "a/.."] {
            assert_eq!(
                below_mount(path),
                Err((Call::Request, Errno::INVAL)),
                "{path}"
            );
        }
    }

    #[test]
    fn a_handle_keeps_the_inode_when_its_name_is_gone() {
        let folder = std::env::temp_dir().join(format!("powercut-handles-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let file = folder.join("f");
        std::fs::write(&file, b"").unwrap();
        let mut scene = Scene::default();
        let held = open_to_hold(file.to_str().unwrap()).unwrap();
        scene.hold("@h", held).unwrap();
        let held = open_to_hold(folder.to_str().unwrap()).unwrap();
        assert_eq!(scene.hold("@h", held), Err((Call::Request, Errno::INVAL)));
        std::fs::remove_file(&file).unwrap();
        let op = |kind, length| Operation {
            kind,
            path: "@h".to_owned(),
            length,
            ..Operation::default()
        };
        for (kind, length) in [
            (Kind::Append, 5000),
            (Kind::Fsync, 0),
            (Kind::Truncate, 4500),
            (Kind::Append, 500),
            (Kind::Fdatasync, 0),
        ] {
            assert_eq!(
                perform_call(&mut scene, &op(kind, length), 7),
                Ok(()),
                "{kind:?}"
            );
        }
        let size = fstat(scene.handle("@h").unwrap()).unwrap().st_size;
        assert_eq!(size, 5000);
        assert_eq!(perform_call(&mut scene, &op(Kind::Close, 0), 7), Ok(()));
        let refused = Err((Call::Request, Errno::BADF));
        assert_eq!(perform_call(&mut scene, &op(Kind::Fsync, 0), 7), refused);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_flag_of_another_kind_of_operation_is_refused() {
        let op = |kind, flag| Operation {
            kind,
            length: 1,
            flags: vec![flag],
            ..Operation::default()
        };
        for (kind, flag) in [
            (Kind::Write, OperationFlag::PunchHole),
            (Kind::Fallocate, OperationFlag::Direct),
            (Kind::MmapWrite, OperationFlag::Dsync),
            (Kind::SyncFileRange, OperationFlag::Sync),
            (Kind::ExchangeRange, OperationFlag::Sync),
        ] {
            let refused = perform_call(&mut Scene::default(), &op(kind, flag), 0);
            assert_eq!(refused, Err((Call::Request, Errno::INVAL)), "{kind:?}");
        }
    }

    /// An unmount beside a sync(2) that is under way would wait for it all the same, but its marks would say
    /// that nothing was.
    #[test]
    fn what_is_synced_beside_is_awaited() {
        let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let ends = done.clone();
        let mut scene = Scene::default();
        scene.syncs.push(std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            ends.store(true, std::sync::atomic::Ordering::Relaxed);
        }));
        scene.close_all();
        assert!(done.load(std::sync::atomic::Ordering::Relaxed));
        assert!(scene.syncs.is_empty());
    }

    /// The host used to take any EIO for a program with a non-zero exit code.
    #[test]
    fn an_exit_code_is_no_errno() {
        let run = |script: &str| {
            let op = Operation {
                kind: Kind::Run,
                argv: ["/bin/sh", "-c", script].map(str::to_owned).into(),
                ..Operation::default()
            };
            perform_run(
                &mut Scene::default(),
                &op,
                3,
                Instant::now() + std::time::Duration::from_secs(60),
            )
        };
        // The mount point need not exist where tests run; if so, nothing can be started there.
        if std::path::Path::new(MOUNT_POINT).is_dir() {
            let ended = run("echo said; exit 5");
            assert_eq!((ended.error, ended.exit_code), (None, Some(5)));
            assert_eq!(ended.output, b"said\n");
        }
        let op = Operation {
            kind: Kind::Run,
            argv: vec!["/no/such/program".to_owned()],
            ..Operation::default()
        };
        let never = perform_run(&mut Scene::default(), &op, 3, Instant::now());
        let error = never.error.unwrap();
        assert_eq!((error.call, error.errno), (Call::Spawn, 2));
        assert_eq!((never.index, never.exit_code), (3, None));
    }
}
