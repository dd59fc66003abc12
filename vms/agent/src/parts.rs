//! One disk cut into parts: the file system's own device with one for its journal or log behind it, or the
//! members of a stack.
//!
//! All are `linear` targets on the same disk, so a crash state covers all. Where their writes are logged:
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

/// The second part of a disk that is no stack: the device of a journal or log.
pub const SECOND: &str = "/dev/second";
/// Begins the names by which the steps of a stack call its members, from `/dev/member-0`.
const MEMBER: &str = "/dev/member-";

/// The parts of a disk, in their order.
pub struct Parts {
    disk: String,
    begins: Vec<u64>,
    targets: Vec<Target>,
}

impl Parts {
    /// Cut `disk` at these bytes. `/dev/second` is then the second part, `/dev/member-0` the first.
    ///
    /// # Errors
    /// [`Failure::CannotCut`] for a part without a sector; errors of device-mapper.
    pub fn cut(mapper: &mut DeviceMapper, disk: &str, begins: &[u64]) -> Result<Self, Failure> {
        let lengths =
            lengths(files::device_bytes(disk)?, begins).ok_or_else(|| Failure::CannotCut {
                disk: disk.to_owned(),
                begins: begins.to_vec(),
            })?;
        let mut parts = Self {
            disk: disk.to_owned(),
            begins: begins.to_vec(),
            targets: Vec::new(),
        };
        match parts.make(mapper, &lengths) {
            Ok(()) => Ok(parts),
            Err(failure) => {
                // The first failure is the one to report.
                let _ = parts.remove(mapper);
                Err(failure)
            }
        }
    }

    fn make(&mut self, mapper: &mut DeviceMapper, lengths: &[u64]) -> Result<(), Failure> {
        let mut begin = 0;
        for length in lengths {
            self.targets
                .push(mapper.linear(&self.disk, begin, *length)?);
            begin += length;
        }
        point_to(&self.nodes())
    }

    /// Whether this is `disk`, cut at `begins`.
    pub fn is_of(&self, disk: &str, begins: &[u64]) -> bool {
        self.disk == disk && self.begins == begins
    }

    /// Of each part.
    pub fn nodes(&self) -> Vec<PathBuf> {
        self.targets.iter().map(|t| t.node.clone()).collect()
    }

    /// Where each part begins on the disk, in sectors.
    pub fn sectors(&self) -> Vec<u64> {
        let behind = self.begins.iter().map(|byte| byte / SECTOR_BYTES);
        std::iter::once(0).chain(behind).collect()
    }

    /// Drop the caches of all: the disk has changed below them.
    ///
    /// # Errors
    /// Errors of open(2) and the ioctl.
    pub fn drop_caches(&self) -> Result<(), Failure> {
        for target in &self.targets {
            let node = target.node.to_string_lossy();
            mounts::drop_cache(&node).map_err(failed(format!("drop the cache of {node}")))?;
        }
        Ok(())
    }

    /// Remove all. A busy one stays behind under its own name.
    ///
    /// # Errors
    /// The first error of device-mapper.
    pub fn remove(&self, mapper: &DeviceMapper) -> Result<(), Failure> {
        let all = self
            .targets
            .iter()
            .rev()
            .map(|target| mapper.remove(target));
        all.fold(Ok(()), Result::and)
    }
}

/// Sectors of each part of a disk that is cut at `begins`, at least one each; None if that is impossible.
fn lengths(disk_bytes: u64, begins: &[u64]) -> Option<Vec<u64>> {
    let mut begin = 0;
    let mut found = Vec::new();
    for end in begins.iter().copied().chain([disk_bytes]) {
        let sectors = end.checked_sub(begin)? / SECTOR_BYTES;
        let whole = end % SECTOR_BYTES == 0 || end == disk_bytes;
        if sectors == 0 || !whole {
            return None;
        }
        found.push(sectors);
        begin = end;
    }
    Some(found)
}

/// Make `/dev/member-0` and so on symbolic links to `nodes`, and `/dev/second` one to the second, replacing
/// what was there.
///
/// # Errors
/// Errors of unlink(2) and symlink(2).
pub fn point_to(nodes: &[PathBuf]) -> Result<(), Failure> {
    for (number, node) in nodes.iter().enumerate() {
        link(&format!("{MEMBER}{number}"), node)?;
        if number == 1 {
            link(SECOND, node)?;
        }
    }
    Ok(())
}

fn link(name: &str, node: &Path) -> Result<(), Failure> {
    match fs::remove_file(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => symlink(node, name),
    }
    .map_err(|e| failed(format!("point {name} to {}", node.display()))(errno_of(&e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_cut_at_sectors_with_something_in_each_part() {
        assert_eq!(lengths(72 << 20, &[64 << 20]), Some(vec![131_072, 16_384]));
        assert_eq!(lengths(1024, &[512]), Some(vec![1, 1]));
        assert_eq!(lengths(2048, &[512, 1024]), Some(vec![1, 1, 2]));
        for begins in [[0, 512], [513, 1024], [1024, 512], [512, 2048], [512, 4096]] {
            assert_eq!(lengths(2048, &begins), None, "{begins:?}");
        }
    }
}
