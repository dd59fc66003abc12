//! Device nodes, and waiting for them to appear.

use std::{
    fs, io,
    os::fd::{IntoRawFd, OwnedFd},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{makedev, mknodat, seek, FileType, Mode, OFlags, SeekFrom, CWD},
    process::{getrlimit, setrlimit, Resource, Rlimit},
};

use crate::failure::{errno_of, failed, Failure};

/// How long a device may take to appear after its driver was loaded: drivers probe in the background.
pub const APPEAR_TIMEOUT: Duration = Duration::from_secs(10);
const APPEAR_POLL: Duration = Duration::from_millis(5);

/// Files that may be open at once: a walk keeps every directory open that is above the one it is in.
const OPEN_FILES: u64 = 65_536;

/// Have the kernel allow [`OPEN_FILES`], or as many as it will.
pub fn raise_file_limit() {
    let wanted = |maximum| Rlimit {
        current: Some(maximum),
        maximum: Some(maximum),
    };
    if setrlimit(Resource::Nofile, wanted(OPEN_FILES)).is_err() {
        let most = getrlimit(Resource::Nofile).maximum.unwrap_or(OPEN_FILES);
        let _ = setrlimit(Resource::Nofile, wanted(most));
    }
}

/// Retry until there is a result; None after [`APPEAR_TIMEOUT`].
pub fn wait_for<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    if let Some(answer) = ask() {
        return Some(answer);
    }
    let end = Instant::now() + APPEAR_TIMEOUT;
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if Instant::now() >= end {
            return None;
        }
        thread::sleep(APPEAR_POLL);
    }
}

/// Wait for a device node.
///
/// # Errors
/// [`Failure::NoDevice`].
pub fn wait_for_device(path: &str) -> Result<(), Failure> {
    wait_for(|| Path::new(path).exists().then_some(()))
        .ok_or_else(|| Failure::NoDevice(path.to_owned()))
}

/// Close files, in as few calls as their numbers allow: in UML, a system call costs some 15 us.
pub fn close_all(files: impl IntoIterator<Item = OwnedFd>) {
    let mut numbers: Vec<_> = files.into_iter().map(IntoRawFd::into_raw_fd).collect();
    numbers.sort_unstable();
    for run in numbers.chunk_by(|a, b| a + 1 == *b) {
        // SAFETY: they were owned until now, so nobody else uses these numbers.
        unsafe {
            // Linux 5.9; before that, one by one.
            if libc::syscall(libc::SYS_close_range, run[0], run[run.len() - 1], 0) != 0 {
                for number in run {
                    libc::close(*number);
                }
            }
        }
    }
}

/// Make what a block device was given durable (fsync(2) of a block device sends a flush).
///
/// # Errors
/// Errors of open(2) and fsync(2).
pub fn flush_device(node: &Path) -> Result<(), Failure> {
    fs::File::open(node)
        .and_then(|device| device.sync_all())
        .map_err(|e| failed(format!("flush {}", node.display()))(errno_of(&e)))
}

/// Ensure a character device's node at `path`; if missing, make it from `MAJOR:MINOR` in the sysfs file `dev`.
pub fn node(path: &str, dev: &str) -> Result<PathBuf, Failure> {
    let node = PathBuf::from(path);
    if node.exists() {
        return Ok(node);
    }
    let text = fs::read_to_string(dev).map_err(|e| failed(format!("read {dev}"))(errno_of(&e)))?;
    let Some((major, minor)) = parse_dev(&text) else {
        let path = dev.to_owned();
        return Err(Failure::NoDeviceNumber { path, text });
    };
    make_parent(&node)?;
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(
        CWD,
        &node,
        FileType::CharacterDevice,
        mode,
        makedev(major, minor),
    )
    .map_err(failed(format!("mknod {path}")))?;
    Ok(node)
}

/// `10:236\n`
fn parse_dev(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Make the directories above `path`.
pub fn make_parent(path: &Path) -> Result<(), Failure> {
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent)
        .map_err(|e: io::Error| failed(format!("mkdir {}", parent.display()))(errno_of(&e)))
}

/// Size of a block device.
pub fn device_bytes(path: &str) -> Result<u64, Failure> {
    wait_for_device(path)?;
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .and_then(|device| seek(device, SeekFrom::End(0)))
        .map_err(failed(format!("size of {path}")))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn device_numbers_of_sysfs_are_read() {
        assert_eq!(parse_dev("10:236\n"), Some((10, 236)));
        assert_eq!(parse_dev("10"), None);
    }

    /// Of files whose numbers are not next to each other, one between them would be closed as well.
    #[test]
    fn only_the_given_files_are_closed() {
        let open = || OwnedFd::from(fs::File::open("/dev/null").unwrap());
        let (mut given, kept) = ([open(), open()].into_iter().collect::<Vec<_>>(), open());
        given.push(open());
        let mark = kept.as_raw_fd();
        let before = fs::read_link(format!("/proc/self/fd/{mark}")).unwrap();
        close_all(given);
        assert_eq!(
            fs::read_link(format!("/proc/self/fd/{mark}")).unwrap(),
            before
        );
        close_all([]);
    }
}
