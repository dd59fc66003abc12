//! One disk cut in two: the file system's own device, and behind it the one for its journal or log.
//!
//! Both are `linear` targets on the same disk, so a crash state covers both. Where their writes are logged:
//! `logs.rs`.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use crate::{
    dm::{DeviceMapper, Target, SECTOR_BYTES},
    failure::{errno_of, failed, Failure},
    files, mounts,
};

/// The name by which mount options call the second device.
const SECOND: &str = "/dev/second";

/// The two devices of a disk.
pub struct Pair {
    disk: String,
    offset: u64,
    first: Target,
    second: Target,
}

impl Pair {
    /// Cut `disk` at byte `offset`; `/dev/second` is then the part behind it.
    ///
    /// # Errors
    /// [`Failure::CannotCut`] if there is nothing behind; errors of device-mapper.
    pub fn cut(mapper: &mut DeviceMapper, disk: &str, offset: u64) -> Result<Self, Failure> {
        let (front, tail) =
            lengths(files::device_bytes(disk)?, offset).ok_or_else(|| Failure::CannotCut {
                disk: disk.to_owned(),
                offset,
            })?;
        let first = mapper.linear(disk, 0, front)?;
        let second = mapper.linear(disk, front, tail).inspect_err(|_| {
            // The first failure is the one to report.
            let _ = mapper.remove(&first);
        })?;
        let pair = Self {
            disk: disk.to_owned(),
            offset,
            first,
            second,
        };
        match point_to(&pair.second.node) {
            Ok(()) => Ok(pair),
            Err(failure) => {
                // As above.
                let _ = pair.remove(mapper);
                Err(failure)
            }
        }
    }

    /// Whether this is `disk`, cut at `offset`.
    pub fn is_of(&self, disk: &str, offset: u64) -> bool {
        self.disk == disk && self.offset == offset
    }

    /// The file system's own device.
    pub fn first(&self) -> PathBuf {
        self.first.node.clone()
    }

    /// Both devices, the file system's own first.
    pub fn nodes(&self) -> (&Path, &Path) {
        (&self.first.node, &self.second.node)
    }

    /// Where the second device begins on the disk, in sectors.
    pub const fn second_sector(&self) -> u64 {
        self.offset / SECTOR_BYTES
    }

    /// Drop the caches of both: the disk has changed below them.
    ///
    /// # Errors
    /// Errors of open(2) and the ioctl.
    pub fn drop_caches(&self) -> Result<(), Failure> {
        for target in [&self.first, &self.second] {
            let node = target.node.to_string_lossy();
            mounts::drop_cache(&node).map_err(failed(format!("drop the cache of {node}")))?;
        }
        Ok(())
    }

    /// Remove both. A busy one stays behind under its own name.
    ///
    /// # Errors
    /// Errors of device-mapper.
    pub fn remove(&self, mapper: &DeviceMapper) -> Result<(), Failure> {
        mapper.remove(&self.second).and(mapper.remove(&self.first))
    }
}

/// Sectors before and behind `offset`, at least one each; None if that is impossible.
const fn lengths(disk_bytes: u64, offset: u64) -> Option<(u64, u64)> {
    let front = offset / SECTOR_BYTES;
    if front == 0 || front * SECTOR_BYTES != offset || offset >= disk_bytes {
        return None;
    }
    Some((front, (disk_bytes - offset) / SECTOR_BYTES))
}

/// Make `/dev/second` a symbolic link to `node`, replacing what was there.
///
/// # Errors
/// Errors of unlink(2) and symlink(2).
pub fn point_to(node: &Path) -> Result<(), Failure> {
    match fs::remove_file(SECOND) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => symlink(node, SECOND),
    }
    .map_err(|e| failed(format!("point {SECOND} to {}", node.display()))(errno_of(&e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_cut_at_a_sector_with_something_on_both_sides() {
        assert_eq!(lengths(72 << 20, 64 << 20), Some((131_072, 16_384)));
        assert_eq!(lengths(1024, 512), Some((1, 1)));
        for offset in [0, 513, 1024, 4096] {
            assert_eq!(lengths(1024, offset), None, "{offset}");
        }
    }
}
