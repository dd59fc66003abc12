//! What the kernel asks the disks for while one call is under way, from a tracefs instance of its own, and whether it
//! asks for the same again and again.
//!
//! A recovery that reads one block for ever asks the disk for something all the time, so it looks busy. Requests tell
//! it apart, and are counted: progress is a write, or a read of what had not been read. An honest recovery reads a
//! block a few times without either: XFS goes over its log in two passes and searches its head before.

use std::{
    collections::{hash_map::Entry, HashMap},
    fs::{self, File},
    io::{ErrorKind, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use crate::events::need_tracefs;

/// Reads of the same sectors, with nothing but reads of what had been read before in between, that no recovery makes.
pub const REPEATS: u32 = 100;

const INSTANCE: &str = "/sys/kernel/tracing/instances/powercut-watch";
const EVENT: &str = "block_bio_queue";
const BUFFER_KIB: &str = "512";
/// What reads of the trace ask for at once; the kernel gives less.
const READ_BYTES: usize = 64 << 10;

/// Requests of the block layer, noted from `begin` until it is dropped.
pub struct Requests {
    pipe: File,
    /// The begin of a line that has not come whole.
    rest: String,
    again: Again,
}

impl Requests {
    /// None: this kernel has no such events.
    pub fn begin() -> Option<Self> {
        need_tracefs().ok()?;
        let instance = Path::new(INSTANCE);
        if !instance.exists() {
            fs::create_dir(instance).ok()?;
        }
        switch("0");
        fs::write(instance.join("buffer_size_kb"), BUFFER_KIB).ok()?;
        fs::write(instance.join("trace"), "").ok()?;
        switch("1");
        let pipe = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(instance.join("trace_pipe"))
            .ok()?;
        Some(Self {
            pipe,
            rest: String::new(),
            again: Again::default(),
        })
    }

    /// Take what has been noted since. Returns whether the kernel asks for the same again and again.
    pub fn repeat(&mut self) -> bool {
        let mut chunk = vec![0; READ_BYTES];
        loop {
            match self.pipe.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => self.take(&String::from_utf8_lossy(&chunk[..count])),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.again.most >= REPEATS
    }

    fn take(&mut self, text: &str) {
        self.rest.push_str(text);
        let Some(end) = self.rest.rfind('\n') else {
            return;
        };
        for line in self.rest[..end].lines() {
            self.again.note(line);
        }
        self.rest.drain(..=end);
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        switch("0");
    }
}

fn switch(on: &str) {
    let _ = fs::write(format!("{INSTANCE}/events/block/{EVENT}/enable"), on);
}

/// How often what was read is read again, without progress.
#[derive(Default)]
struct Again {
    /// Of each read (device, sector, length): how often since which progress.
    reads: HashMap<String, (u64, u32)>,
    /// Counts progress.
    progress: u64,
    /// The most that anything was read since the last progress.
    most: u32,
}

impl Again {
    /// Take one line: `block_bio_queue: 254,0 RM 24 + 8 [mount]`, perhaps with columns in front.
    fn note(&mut self, line: &str) {
        let Some((_, told)) = line.split_once("block_bio_queue: ") else {
            // Events were lost, or a line that nobody knows: what stands in it may be progress.
            *self = Self::default();
            return;
        };
        let words: Vec<&str> = told.split(' ').collect();
        let [device, kind, sector, _, sectors, ..] = words[..] else {
            *self = Self::default();
            return;
        };
        if !kind.starts_with('R') {
            return self.proceed();
        }
        match self.reads.entry(format!("{device} {sector} {sectors}")) {
            Entry::Vacant(entry) => {
                entry.insert((self.progress + 1, 1));
                self.proceed();
            }
            Entry::Occupied(mut entry) => {
                let (since, times) = entry.get_mut();
                *times = if *since == self.progress {
                    *times + 1
                } else {
                    1
                };
                *since = self.progress;
                self.most = self.most.max(*times);
            }
        }
    }

    fn proceed(&mut self) {
        self.progress += 1;
        self.most = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(sector: u32) -> String {
        format!("block_bio_queue: 254,0 R {sector} + 8 [mount]")
    }

    /// After how many requests, at most ten thousand, the kernel counts as asking for the same.
    fn requests_until_told(line: impl Fn(u32) -> String) -> Option<u32> {
        let mut again = Again::default();
        (0..10_000).find(|i| {
            again.note(&line(*i));
            again.most >= REPEATS
        })
    }

    /// It was UNKNOWN after two minutes for each guest: the disk was asked for something all the time.
    #[test]
    fn one_block_that_is_read_for_ever_is_told() {
        assert_eq!(requests_until_told(|_| read(24)), Some(REPEATS - 1));
        let with_columns = |_| format!("    mount-70   [000] D..1.     7.1: {}", read(24));
        assert_eq!(requests_until_told(with_columns), Some(REPEATS - 1));
    }

    #[test]
    fn a_few_blocks_that_are_read_in_turn_for_ever_are_told() {
        let told = requests_until_told(|i| read(i % 7)).unwrap();
        assert!((REPEATS * 7 - 7..=REPEATS * 7).contains(&told), "{told}");
    }

    #[test]
    fn what_goes_on_reading_or_writing_is_not_told() {
        assert_eq!(requests_until_told(read), None);
        // A log that is gone over in a few passes.
        assert_eq!(requests_until_told(|i| read(i % 2000)), None);
        for other in ["W 24 + 8", "FWFS 24 + 8", "D 24 + 8", "FF 0 + 0"] {
            let at_times = |i: u32| {
                if i.is_multiple_of(REPEATS) {
                    format!("block_bio_queue: 254,0 {other} [mount]")
                } else {
                    read(24)
                }
            };
            assert_eq!(requests_until_told(at_times), None, "{other}");
        }
        let new_at_times = |i: u32| {
            if i.is_multiple_of(REPEATS) {
                read(i)
            } else {
                read(24)
            }
        };
        assert_eq!(requests_until_told(new_at_times), None);
    }

    /// The trace is looked at once a second: what came last in it counts.
    #[test]
    fn a_kernel_that_went_on_since_is_not_told() {
        for progress in [
            read(32),
            "block_bio_queue: 254,0 W 24 + 8 [mount]".to_owned(),
        ] {
            let mut again = Again::default();
            (0..REPEATS).for_each(|_| again.note(&read(24)));
            assert_eq!(again.most, REPEATS);
            again.note(&progress);
            assert!(again.most < REPEATS, "{progress}");
        }
    }

    #[test]
    fn what_was_lost_may_have_been_progress() {
        let lost_at_times = |i: u32| {
            if i.is_multiple_of(REPEATS) {
                "CPU:0 [LOST 7 EVENTS]".to_owned()
            } else {
                read(24)
            }
        };
        assert_eq!(requests_until_told(lost_at_times), None);
    }
}
