//! The logs of a recording: a `log-writes` target for each device that has a cache of its own.
//!
//! A disk cut in two is two devices, so each part has its target: a flush takes along what completed on its own
//! device. Nothing but the block layer's events tells the order of writes to different devices. So where a
//! kernel has no such events, one target lies below both parts, as if they were partitions of one disk.

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
    second::{self, Pair},
};

/// Alignment of the second log on the log device.
const PAGE_BYTES: u64 = 4096;

/// What a recording logs to.
pub struct Logs {
    /// The file system's own device first, which takes the marks; then the second.
    targets: Vec<LogWrites>,
    /// The second half of the log device, where the second device's log is.
    half: Option<Target>,
    /// Where the second device begins on the disk, in sectors.
    second: u64,
}

impl Logs {
    /// One log of the whole of `disk`.
    ///
    /// # Errors
    /// Errors of device-mapper.
    pub fn of_one(mapper: &mut DeviceMapper, disk: &str, log: &str) -> Result<Self, Failure> {
        Ok(Self {
            targets: vec![mapper.log_writes(disk, log)?],
            half: None,
            second: 0,
        })
    }

    /// A log for each part of a disk. `/dev/second` is then the second part's target.
    ///
    /// # Errors
    /// Errors of device-mapper.
    pub fn of_two(mapper: &mut DeviceMapper, pair: &Pair, log: &str) -> Result<Self, Failure> {
        let mut logs = Self {
            targets: Vec::new(),
            half: None,
            second: pair.second_sector(),
        };
        match logs.make_two(mapper, pair, log) {
            Ok(()) => Ok(logs),
            Err(failure) => {
                // The first failure is the one to report.
                let _ = logs.remove(mapper);
                Err(failure)
            }
        }
    }

    fn make_two(
        &mut self,
        mapper: &mut DeviceMapper,
        pair: &Pair,
        log: &str,
    ) -> Result<(), Failure> {
        let (first, second) = pair.nodes();
        self.targets
            .push(mapper.log_writes(&first.to_string_lossy(), log)?);
        let half = files::device_bytes(log)? / 2 / PAGE_BYTES * PAGE_BYTES / SECTOR_BYTES;
        let half = self.half.insert(mapper.linear(log, half, half)?);
        let log = half.node.to_string_lossy();
        self.targets
            .push(mapper.log_writes(&second.to_string_lossy(), &log)?);
        second::point_to(&self.targets[1].node)
    }

    /// Whether each part of the disk has a log of its own.
    pub fn are_apart(&self) -> bool {
        self.half.is_some()
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
        for (target, begin) in self.targets.iter().zip([0, self.second]) {
            let (major, minor) = number_of(&target.node)?;
            text.push_str(&format!(" {major},{minor}+{begin}"));
        }
        Ok(text)
    }

    /// Have what the file system never flushed logged.
    ///
    /// # Errors
    /// Errors of the devices.
    pub fn flush(&self) -> Result<(), Failure> {
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
        let all = self.targets.iter().rev().chain(&self.half);
        all.map(|target| mapper.remove(target))
            .fold(Ok(()), Result::and)
    }
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
