//! The operations of a workload, each as its user would do it: open, act, close.

use std::{
    fmt::Display,
    os::fd::{AsFd, BorrowedFd},
    ptr,
    time::Instant,
};

use powercut_protocol::{pattern, Operation};
use rustix::{
    fs::{
        self, fallocate, fdatasync, fstat, fsync, AtFlags, FallocateFlags, Mode, OFlags,
        XattrFlags, CWD,
    },
    io::{pwrite, Errno},
    mm::{mmap, msync, munmap, MapFlags, MsyncFlags, ProtFlags},
};

use crate::{
    failure::{describe, errno_of},
    mounts::MOUNT_POINT,
    program,
};

/// The longest stretch written in one call; a longer write is written in several.
const WRITE_BYTES: u64 = 16 << 20;
/// Alignment of memory, offset and length that O_DIRECT asks for at most.
const DIRECT_BYTES: usize = 4096;

/// How an operation went: `detail` says what failed, or holds a program's output.
pub struct Done {
    pub errno: i32,
    pub detail: String,
}

impl Done {
    /// For an operation whose turn came after the deadline.
    pub fn overdue() -> Self {
        Self::failed("not begun before the deadline", Errno::TIMEDOUT)
    }

    fn failed(what: impl Display, errno: Errno) -> Self {
        Self {
            errno: errno.raw_os_error(),
            detail: describe(&what.to_string(), errno),
        }
    }
}

/// Carry out one operation. `writer` is its number, of which its data is made.
pub fn perform(operation: &Operation, writer: u16, deadline: Instant) -> Done {
    if operation.kind == "run" {
        return perform_run(operation, deadline);
    }
    match perform_call(operation, writer) {
        Ok(()) => Done {
            errno: 0,
            detail: String::new(),
        },
        Err(errno) => Done::failed(format_args!("{} {}", operation.kind, operation.path), errno),
    }
}

/// `run`: a program that does not exit 0 has failed, as EIO; at its deadline, as ETIMEDOUT. The detail
/// is its output, and how it failed where there is none.
fn perform_run(operation: &Operation, deadline: Instant) -> Done {
    let what = format!("run {}", operation.argv.join(" "));
    let ended = match program::run(&operation.argv, deadline) {
        Ok(ended) => ended,
        Err(errno) => return Done::failed(what, errno),
    };
    let (errno, outcome) = match ended.exit_code {
        0 => (0, String::new()),
        -1 => (
            Errno::TIMEDOUT.raw_os_error(),
            format!("{what}: stopped at its deadline"),
        ),
        code => (
            Errno::IO.raw_os_error(),
            format!("{what}: exit code {code}"),
        ),
    };
    let output = String::from_utf8_lossy(&ended.output).into_owned();
    Done {
        errno,
        detail: if output.is_empty() { outcome } else { output },
    }
}

fn perform_call(op: &Operation, writer: u16) -> Result<(), Errno> {
    let path = &below_mount(&op.path)?;
    let (name, value) = (op.name.as_str(), op.value.as_slice());
    match op.kind.as_str() {
        "create" => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            fs::open(path, flags, Mode::from_raw_mode(0o644)).map(drop)
        }
        "tmpfile" => make_nameless(op, path, writer),
        "mmap-write" => write_mapped(op, path, writer),
        "write" => write(op, path, writer, false),
        "append" => write(op, path, writer, true),
        "truncate" => truncate(path, op.length),
        "fallocate" => allocate(op, path),
        "link" => fs::link(path, &below_mount(&op.target)?),
        "symlink" => fs::symlink(&op.target, path),
        "rename" => fs::rename(path, &below_mount(&op.target)?),
        "unlink" => fs::unlink(path),
        "mkdir" => fs::mkdir(path, Mode::from_raw_mode(0o755)),
        "rmdir" => fs::rmdir(path),
        "setxattr" => fs::lsetxattr(path, name, value, XattrFlags::empty()),
        "removexattr" => fs::lremovexattr(path, name),
        "chmod" => {
            let bits = u32::try_from(op.length).map_err(|_| Errno::INVAL)?;
            fs::chmodat(
                CWD,
                path,
                Mode::from_raw_mode(bits & 0o7777),
                AtFlags::empty(),
            )
        }
        "fsync" => fsync(fs::open(
            path,
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?),
        "fdatasync" => fdatasync(fs::open(
            path,
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?),
        "sync" => {
            fs::sync();
            Ok(())
        }
        // Not OPNOTSUPP, with which a file system says that it does not support an operation.
        _ => Err(Errno::NOSYS),
    }
}

/// The path in the guest of a path in the file system under test, from which there is no way out.
fn below_mount(path: &str) -> Result<String, Errno> {
    if path.starts_with('/') || path.split('/').any(|part| part == "..") {
        return Err(Errno::INVAL);
    }
    Ok(format!("{MOUNT_POINT}/{path}"))
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

fn allocate(op: &Operation, path: &str) -> Result<(), Errno> {
    let mut mode = FallocateFlags::empty();
    for flag in &op.flags {
        mode |= match flag.as_str() {
            "keep-size" => FallocateFlags::KEEP_SIZE,
            "punch-hole" => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            "zero-range" => FallocateFlags::ZERO_RANGE,
            _ => return Err(Errno::INVAL),
        };
    }
    let file = fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    fallocate(file, mode, op.offset, op.length)
}

/// Write the pattern, at the operation's offset or at the end of the file.
fn write(op: &Operation, path: &str, writer: u16, append: bool) -> Result<(), Errno> {
    let mut flags = OFlags::WRONLY | OFlags::CLOEXEC;
    for flag in &op.flags {
        flags |= match flag.as_str() {
            "sync" => OFlags::SYNC,
            "dsync" => OFlags::DSYNC,
            "direct" => OFlags::DIRECT,
            _ => return Err(Errno::INVAL),
        };
    }
    // Before the open, so that the time of the file's being open holds the write alone.
    let mut buffer = vec![0; op.length.min(WRITE_BYTES) as usize + DIRECT_BYTES];
    let aligned = buffer.as_ptr().align_offset(DIRECT_BYTES);
    // EINVAL is what a file system without O_DIRECT says: of open(2), or of an aligned write (`noop_direct_IO`).
    let aligned_for_direct = (op.offset | op.length) & (DIRECT_BYTES as u64 - 1) == 0;
    let unsupported = |errno| match errno {
        Errno::INVAL if flags.contains(OFlags::DIRECT) && aligned_for_direct => Errno::OPNOTSUPP,
        other => other,
    };
    let file = fs::open(path, flags, Mode::empty()).map_err(unsupported)?;
    let start = if append {
        fstat(&file)?.st_size.unsigned_abs()
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
    .map_err(unsupported)
}

/// Write `length` bytes of the pattern at `start`, as much at once as `buffer` holds.
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

/// A file without a name, written, then given its name at once.
fn make_nameless(op: &Operation, path: &str, writer: u16) -> Result<(), Errno> {
    let directory = path.rsplit_once('/').map_or("/", |(parent, _)| parent);
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = fs::open(directory, flags, Mode::from_raw_mode(0o644))?;
    let mut buffer = vec![0; op.length.min(WRITE_BYTES) as usize];
    write_pattern(file.as_fd(), writer, 0, op.length, &mut buffer)?;
    fs::linkat(&file, "", CWD, path, AtFlags::EMPTY_PATH)
}

/// Store the pattern into a shared mapping of the whole file; with `sync`, msync all of it.
fn write_mapped(op: &Operation, path: &str, writer: u16) -> Result<(), Errno> {
    let sync = match op.flags.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["sync"] => true,
        _ => return Err(Errno::INVAL),
    };
    let file = fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let size = fstat(&file)?.st_size.unsigned_abs();
    let end = op.offset.checked_add(op.length).ok_or(Errno::INVAL)?;
    if op.length == 0 || end > size {
        return Err(Errno::INVAL);
    }
    let mut data = vec![0; op.length as usize];
    pattern::fill(writer, op.offset, &mut data);
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in use.
    let mapped = unsafe {
        mmap(
            ptr::null_mut(),
            size as usize,
            protection,
            MapFlags::SHARED,
            &file,
            0,
        )?
    };
    // SAFETY: `offset + length` lies within the `size` bytes mapped, and nobody shortens the file.
    unsafe {
        ptr::copy_nonoverlapping(
            data.as_ptr(),
            mapped.cast::<u8>().add(op.offset as usize),
            data.len(),
        );
    }
    let synced = if sync {
        // SAFETY: this is the mapping made above.
        unsafe { msync(mapped, size as usize, MsyncFlags::SYNC) }
    } else {
        Ok(())
    };
    // SAFETY: nothing refers to the mapping any more.
    unsafe { munmap(mapped, size as usize)? };
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
            assert_eq!(below_mount(path), Err(Errno::INVAL), "{path}");
        }
    }

    #[test]
    fn unknown_kinds_and_flags_are_refused() {
        let mut op = Operation {
            kind: "frobnicate".to_owned(),
            ..Operation::default()
        };
        assert_eq!(perform_call(&op, 0), Err(Errno::NOSYS));
        op.kind = "write".to_owned();
        op.flags = vec!["fast".to_owned()];
        assert_eq!(perform_call(&op, 0), Err(Errno::INVAL));
    }
}
