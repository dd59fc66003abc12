//! When each write was submitted and completed: the block layer's events of the recorded devices, from tracefs.
//!
//! dm-log-writes tells in which order writes became durable, not when each was submitted and completed. The
//! events `block_bio_queue` and `block_bio_complete` tell that, and the agent's marks go into the same buffer,
//! so all have one order. The lines are the kernel's own, without the columns in front of the event's name:
//!
//! ```text
//! tracing_mark_write: powercut: begin 0
//! block_bio_queue: 254,0 FWFS 66312 + 8 [jbd2/dm-0-8]
//! block_bio_complete: 254,0 WFS 66312 + 8 [0]
//! ```
//!
//! `harness/writelog/events.py` reads them.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::mount::{mount, MountFlags};

use crate::{
    failure::{errno_of, failed, Failure},
    files,
    logs::number_of,
};

const TRACEFS: &str = "/sys/kernel/tracing";
const EVENTS: [&str; 2] = ["block_bio_queue", "block_bio_complete"];
/// Begins the text of every mark of ours in the trace.
const MARK: &str = "powercut: ";
/// Room for some 100,000 events: a buffer that overruns voids the recording. It is emptied after every request.
const BUFFER_KIB: &str = "8192";
/// Bits of the minor number in the kernel's own `dev_t` (`MINORBITS` of include/linux/kdev_t.h).
const MINOR_BITS: u32 = 20;
/// Alignment of the events on the log device: a page, so that nothing in front of them is read and written again.
const PAGE_BYTES: usize = 4096;
/// What reads of the trace ask for at once; the kernel gives less.
const READ_BYTES: usize = 64 << 10;

/// The events of one recording, from its begin to its end.
pub struct Events {
    marker: File,
    pipe: File,
    text: Vec<u8>,
}

impl Events {
    /// Trace what is written to the devices, from now on.
    ///
    /// # Errors
    /// Why there are no events, in words: this kernel may lack them, which is not a failure.
    pub fn begin(nodes: &[PathBuf]) -> Result<Self, String> {
        let devices: Result<Vec<_>, _> = nodes.iter().map(|node| number_of(node)).collect();
        let filter = filter(&devices.map_err(|failure| failure.to_string())?);
        need_tracefs()?;
        stop()?;
        set("trace_clock", "counter")?;
        set("trace_options", "nocontext-info")?;
        set("buffer_size_kb", BUFFER_KIB)?;
        set("trace", "")?;
        for event in EVENTS {
            set(&format!("events/block/{event}/filter"), &filter)?;
            set(&format!("events/block/{event}/enable"), "1")?;
        }
        let events = Self {
            marker: open_marker()?,
            pipe: File::options()
                .read(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(path("trace_pipe"))
                .map_err(|e| told("trace_pipe", &e))?,
            text: Vec::new(),
        };
        set("tracing_on", "1")?;
        Ok(events)
    }

    /// Put a mark between the events, after all so far.
    pub fn mark(&mut self, text: &str) -> Result<(), Failure> {
        mark(&mut self.marker, text)
    }

    /// Take what has been traced so far out of the kernel's buffer.
    pub fn collect(&mut self) -> Result<(), Failure> {
        let mut chunk = vec![0; READ_BYTES];
        loop {
            match self.pipe.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(count) => self.text.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed("read trace_pipe")(errno_of(&error))),
            }
        }
    }

    /// Stop, and return every event since `begin`, a line each. A line for each processor that lost events
    /// says so, as those do that the kernel itself puts where it noticed.
    pub fn end(mut self) -> Result<Vec<u8>, Failure> {
        // What is traced no longer is collected below; the switch itself can hardly fail.
        stop().map_err(Failure::Tracing)?;
        self.collect()?;
        for line in losses() {
            self.text.extend_from_slice(line.as_bytes());
        }
        Ok(self.text)
    }
}

/// Put `powercut-ack`'s mark between the events, from another process than the agent's.
pub fn mark_from_outside(text: &str) -> Result<(), Failure> {
    mark(&mut open_marker().map_err(Failure::Tracing)?, text)
}

/// Write `text` to the end of the log device. Returns where. The host checks that the log ends before it.
///
/// # Errors
/// [`Failure::NoRoom`] if the device is too small; errors of the device.
pub fn put_last(log: &str, text: &[u8]) -> Result<u64, Failure> {
    let mut padded = text.to_vec();
    padded.resize(text.len().next_multiple_of(PAGE_BYTES), 0);
    let end = files::device_bytes(log)? / PAGE_BYTES as u64 * PAGE_BYTES as u64;
    let start = end.checked_sub(padded.len() as u64);
    let start = start.ok_or_else(|| Failure::NoRoom {
        log: log.to_owned(),
        bytes: text.len(),
    })?;
    let put = || {
        let device = File::options().write(true).open(log)?;
        device.write_all_at(&padded, start)?;
        device.sync_all()
    };
    put().map_err(|e| failed(format!("write {log}"))(errno_of(&e)))?;
    Ok(start)
}

/// Trace no more, and enable none of our events.
fn stop() -> Result<(), String> {
    set("tracing_on", "0")?;
    for event in EVENTS {
        set(&format!("events/block/{event}/enable"), "0")?;
    }
    Ok(())
}

/// Events of these devices, by their numbers, that are no reads.
fn filter(devices: &[(u32, u32)]) -> String {
    let each = devices
        .iter()
        .map(|(major, minor)| format!("dev == {}", major << MINOR_BITS | minor));
    format!(
        "({}) && !(rwbs ~ \"R*\")",
        each.collect::<Vec<_>>().join(" || ")
    )
}

/// Mount tracefs, unless it is there.
///
/// # Errors
/// What this kernel lacks, in words.
pub fn need_tracefs() -> Result<(), String> {
    if !path("trace").exists() {
        mount("tracefs", TRACEFS, "tracefs", MountFlags::empty(), None)
            .map_err(|errno| format!("this kernel has no tracefs ({errno})"))?;
    }
    for event in EVENTS {
        if !path(&format!("events/block/{event}")).exists() {
            return Err(format!("this kernel has no event {event}"));
        }
    }
    Ok(())
}

/// For marks from this process.
///
/// # Errors
/// Why there can be none, in words.
pub fn open_marker() -> Result<File, String> {
    let file = File::options().write(true).open(path("trace_marker"));
    file.map_err(|e| told("trace_marker", &e))
}

/// One write: each makes an event of its own.
fn mark(marker: &mut File, text: &str) -> Result<(), Failure> {
    let written = marker.write(format!("{MARK}{text}").as_bytes());
    written
        .map(|_| ())
        .map_err(|e| failed(format!("mark {text} in the trace"))(errno_of(&e)))
}

/// What the buffers' statistics say was lost. The kernel resets them when `trace` is emptied.
fn losses() -> Vec<String> {
    let Ok(cpus) = fs::read_dir(path("per_cpu")) else {
        return vec!["the buffers' statistics cannot be read\n".to_owned()];
    };
    cpus.filter_map(Result::ok)
        .filter_map(|cpu| {
            let stats = fs::read_to_string(cpu.path().join("stats")).unwrap_or_default();
            let lost = lost(&stats)?;
            Some(format!("{}: {lost}\n", cpu.file_name().to_string_lossy()))
        })
        .collect()
}

/// The first count of lost events in a buffer's statistics that is not zero.
fn lost(stats: &str) -> Option<&str> {
    const LOSSES: [&str; 3] = ["overrun: ", "commit overrun: ", "dropped events: "];
    let is_loss = |line: &&str| {
        LOSSES.iter().any(|name| {
            let count = line.strip_prefix(name);
            count.is_some_and(|count| count.trim() != "0")
        })
    };
    stats.lines().find(is_loss)
}

fn set(name: &str, value: &str) -> Result<(), String> {
    let put = || -> io::Result<()> {
        // Opening with O_TRUNC empties the buffer where `name` is `trace`.
        File::create(path(name))?.write_all(value.as_bytes())
    };
    put().map_err(|e| told(name, &e))
}

fn path(name: &str) -> PathBuf {
    Path::new(TRACEFS).join(name)
}

fn told(name: &str, error: &io::Error) -> String {
    format!("tracefs: {name}: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_filtered_by_the_kernel_s_own_number() {
        let one = "(dev == 266338307) && !(rwbs ~ \"R*\")";
        assert_eq!(filter(&[(254, 3)]), one);
        let two = "(dev == 266338307 || dev == 266338308) && !(rwbs ~ \"R*\")";
        assert_eq!(filter(&[(254, 3), (254, 4)]), two);
    }

    #[test]
    fn lost_events_show_in_the_statistics() {
        let sound = "entries: 9\noverrun: 0\ncommit overrun: 0\nbytes: 800\noldest event ts: 1\n\
                     now ts: 7\ndropped events: 0\nread events: 3\n";
        assert_eq!(lost(sound), None);
        for line in ["overrun: 7", "commit overrun: 7", "dropped events: 7"] {
            let (name, _) = line.split_once(':').unwrap();
            let stats = sound.replace(&format!("\n{name}: 0"), &format!("\n{line}"));
            assert_eq!(lost(&stats), Some(line));
        }
    }
}
