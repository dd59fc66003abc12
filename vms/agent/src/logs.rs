//! The logs of a recording: a `log-writes` target for each device that has a cache of its own.
//!
//! A disk that is cut is several devices, so each part has its target: a flush takes along what completed on its
//! own device. Nothing but the block layer's events tells the order of writes to different devices. So where a
//! kernel has no such events, one target lies below all parts, as if they were partitions of one disk.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::fs::{major, minor};

use crate::{
    dm::{DeviceMapper, LogWrites, Status, Target, SECTOR_BYTES},
    failure::{errno_of, failed, Failure},
    files,
    parts::{self, Parts},
};

/// Alignment of the logs on the log device.
const PAGE_BYTES: u64 = 4096;

/// What a recording logs to.
pub struct Logs {
    /// The first part's takes the marks.
    targets: Vec<LogWrites>,
    /// The slices of the log device where the logs of all parts but the first are.
    slices: Vec<Target>,
    /// Where each part begins on the disk, in sectors; none where the whole disk has one log.
    begins: Vec<u64>,
}

impl Logs {
    /// One log of the whole of `disk`.
    ///
    /// # Errors
    /// Errors of device-mapper.
    pub fn of_one(mapper: &mut DeviceMapper, disk: &str, log: &str) -> Result<Self, Failure> {
        Ok(Self {
            targets: vec![mapper.log_writes(disk, log)?],
            slices: Vec::new(),
            begins: Vec::new(),
        })
    }

    /// A log for each part of a disk. `/dev/second` is then the second part's target, `/dev/member-0` the first's.
    ///
    /// # Errors
    /// Errors of device-mapper.
    pub fn of_parts(mapper: &mut DeviceMapper, parts: &Parts, log: &str) -> Result<Self, Failure> {
        let mut logs = Self {
            targets: Vec::new(),
            slices: Vec::new(),
            begins: parts.sectors(),
        };
        match logs.make(mapper, parts, log) {
            Ok(()) => Ok(logs),
            Err(failure) => {
                // The first failure is the one to report.
                let _ = logs.remove(mapper);
                Err(failure)
            }
        }
    }

    fn make(&mut self, mapper: &mut DeviceMapper, parts: &Parts, log: &str) -> Result<(), Failure> {
        let nodes = parts.nodes();
        let slice = files::device_bytes(log)? / nodes.len() as u64 / PAGE_BYTES * PAGE_BYTES;
        let slice = slice / SECTOR_BYTES;
        for (number, node) in (0u64..).zip(&nodes) {
            let mut log = log.to_owned();
            if number > 0 {
                let behind = mapper.linear(&log, number * slice, slice)?;
                log = behind.node.to_string_lossy().into_owned();
                self.slices.push(behind);
            }
            self.targets
                .push(mapper.log_writes(&node.to_string_lossy(), &log)?);
        }
        parts::point_to(&self.nodes())
    }

    /// Whether each part of the disk has a log of its own.
    pub fn are_apart(&self) -> bool {
        !self.begins.is_empty()
    }

    /// The target that takes the marks; the file system's own device, or the whole disk.
    pub fn first(&self) -> &LogWrites {
        &self.targets[0]
    }

    /// The devices that are recorded.
    pub fn nodes(&self) -> Vec<PathBuf> {
        self.targets.iter().map(|t| t.node.clone()).collect()
    }

    /// The mark that says which devices there are: the number of each as events have it, and the sector of the
    /// disk at which it begins. `devices 254,2+0 254,3+131072`.
    ///
    /// # Errors
    /// Errors of stat(2).
    pub fn described(&self) -> Result<String, Failure> {
        let mut text = "devices".to_owned();
        for (target, begin) in self.targets.iter().zip(&self.begins) {
            let (major, minor) = number_of(&target.node)?;
            text.push_str(&format!(" {major},{minor}+{begin}"));
        }
        Ok(text)
    }

    /// Have the targets say of their cache what `disk` says of its own: whatever lies below it, a log-writes
    /// target says that it has a volatile one (`flush_supported` in drivers/md/dm-log-writes.c). On a disk without
    /// one, file systems then send no flushes, and nothing is logged before [`Logs::flush`].
    ///
    /// # Errors
    /// Errors of sysfs.
    pub fn cache_as(&self, disk: &str) -> Result<(), Failure> {
        let attribute = write_cache(Path::new(disk))?;
        let says = fs::read_to_string(&attribute)
            .map_err(|e| failed(format!("read {}", attribute.display()))(errno_of(&e)))?;
        match says.trim() {
            WRITE_THROUGH => self.say(WRITE_THROUGH),
            _ => Ok(()),
        }
    }

    fn say(&self, cache: &str) -> Result<(), Failure> {
        self.targets.iter().try_for_each(|target| {
            let attribute = write_cache(&target.node)?;
            fs::write(&attribute, cache)
                .map_err(|e| failed(format!("write {}", attribute.display()))(errno_of(&e)))
        })
    }

    /// Have what the file system never flushed logged.
    ///
    /// # Errors
    /// Errors of the devices.
    pub fn flush(&self) -> Result<(), Failure> {
        self.say(WRITE_BACK)?;
        self.targets
            .iter()
            .try_for_each(|target| files::flush_device(&target.node))
    }

    /// The status of all, which have stopped logging if one has.
    ///
    /// # Errors
    /// Errors of device-mapper.
    pub fn status(&self, mapper: &DeviceMapper) -> Result<Status, Failure> {
        let each: Vec<Status> = self
            .targets
            .iter()
            .map(|target| mapper.status(target))
            .collect::<Result<_, _>>()?;
        Ok(Status {
            logging_disabled: each.iter().any(|status| status.logging_disabled),
            line: each
                .iter()
                .map(|status| status.line.trim())
                .collect::<Vec<_>>()
                .join("; "),
        })
    }

    /// Remove all, which completes the logs. What is busy stays behind under its own name.
    ///
    /// # Errors
    /// The first error of device-mapper.
    pub fn remove(&self, mapper: &DeviceMapper) -> Result<(), Failure> {
        let all = self.targets.iter().rev().chain(&self.slices);
        all.map(|target| mapper.remove(target))
            .fold(Ok(()), Result::and)
    }
}

/// What sysfs says of a volatile cache (Documentation/ABI/stable/sysfs-block, `queue/write_cache`).
const WRITE_THROUGH: &str = "write through";
const WRITE_BACK: &str = "write back";

fn write_cache(node: &Path) -> Result<PathBuf, Failure> {
    let (major, minor) = number_of(node)?;
    Ok(format!("/sys/dev/block/{major}:{minor}/queue/write_cache").into())
}

/// Major and minor number of a device, as the block layer's events have them.
///
/// # Errors
/// Errors of stat(2).
pub fn number_of(node: &Path) -> Result<(u32, u32), Failure> {
    let device = fs::metadata(node)
        .map_err(|e| failed(format!("stat {}", node.display()))(errno_of(&e)))?
        .rdev();
    Ok((major(device), minor(device)))
}
