//! What the guest wrote and flushed since it was asked for, in order: the log of a recovery.
//!
//! Modelled: each request takes effect, and completes, before the next one is looked at; so a flush covers
//! every write that this device completed before. A write that changes nothing of what the device shows is left
//! out: whatever a cut does to the writes before it, the same contents are possible without it, and the flush
//! that makes it durable makes those durable as well. Not modelled: requests that were in the queue together. A
//! kernel that sends a flush without waiting for a write is seen here as one that waited.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
};

use crate::{
    error::DiskError,
    log::{entry_header, super_block},
    view::View,
    Answer, BLOCK_SECTORS, SECTOR_BYTES,
};

/// Bytes that are kept of one recovery. What is longer is said to be incomplete.
const BYTES_MAX: usize = 64 << 20;

enum Change {
    Write { sector: u64, data: Vec<u8> },
    Zero { sector: u64, sectors: u64 },
    Flush,
}

/// The guest's changes, in order.
#[derive(Default)]
pub struct GuestLog {
    changes: Vec<Change>,
    bytes: usize,
    too_long: bool,
}

/// How a log was written: entries that make up the state, entries in all, and whether none is missing.
pub struct Logged {
    pub state: u64,
    pub entries: u64,
    pub complete: bool,
}

impl GuestLog {
    /// The guest writes `data` at `sector`; `view` does not show that yet.
    pub fn write(&mut self, view: &View, sector: u64, data: &[u8]) {
        for (at, length) in self.changing(view, sector, sectors_of(data), |s| {
            let start = (s - sector) as usize * SECTOR_BYTES;
            &data[start..start + SECTOR_BYTES]
        }) {
            let start = (at - sector) as usize * SECTOR_BYTES;
            let data = data[start..start + length as usize * SECTOR_BYTES].to_vec();
            self.add(data.len(), Change::Write { sector: at, data });
        }
    }

    /// The guest discards or zeroes sectors; `view` does not show that yet.
    pub fn zero(&mut self, view: &View, sector: u64, count: u64) {
        const ZEROS: [u8; SECTOR_BYTES] = [0; SECTOR_BYTES];
        for (sector, sectors) in self.changing(view, sector, count, |_| &ZEROS) {
            self.add(SECTOR_BYTES, Change::Zero { sector, sectors });
        }
    }

    /// All that was written is durable from here on.
    pub fn flush(&mut self) {
        if !matches!(self.changes.last(), None | Some(Change::Flush)) {
            self.add(SECTOR_BYTES, Change::Flush);
        }
    }

    /// The stretches of whole blocks, split at the request's ends, of which something changes.
    fn changing<'a>(
        &self,
        view: &View,
        sector: u64,
        count: u64,
        content: impl Fn(u64) -> &'a [u8],
    ) -> Vec<(u64, u64)> {
        let end = sector + count;
        let mut found: Vec<(u64, u64)> = Vec::new();
        let mut at = sector;
        while at < end && !self.too_long {
            let stop = end.min((at / BLOCK_SECTORS + 1) * BLOCK_SECTORS);
            if (at..stop).any(|s| view.sector(s) != content(s)) {
                match found.last_mut() {
                    Some((first, length)) if *first + *length == at => *length += stop - at,
                    _ => found.push((at, stop - at)),
                }
            }
            at = stop;
        }
        found
    }

    fn add(&mut self, bytes: usize, change: Change) {
        self.too_long |= self.bytes + bytes > BYTES_MAX;
        if !self.too_long {
            self.bytes += bytes;
            self.changes.push(change);
        }
    }

    /// Write a log to `path` in the format of dm-log-writes: first the blocks in which the state that `view` shows
    /// differs from the base, then what the guest changed of it. So its states are made over the same base, and
    /// have contents that compare with those of every other log.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn log(&self, view: &View, path: &Path) -> Answer<Logged> {
        let blocks = view.state_blocks();
        let state = blocks.len() as u64;
        let entries = state + self.changes.len() as u64;
        let written = File::create(path).and_then(|file| {
            let mut out = BufWriter::new(file);
            out.write_all(&super_block(entries))?;
            for block in blocks {
                let (sector, data) = view.state_block(block);
                put(&mut out, sector, &data)?;
            }
            for change in &self.changes {
                match change {
                    Change::Write { sector, data } => put(&mut out, *sector, data)?,
                    Change::Zero { sector, sectors } => {
                        out.write_all(&entry_header(*sector, *sectors, crate::log::FLAG_DISCARD))?;
                    }
                    Change::Flush => out.write_all(&entry_header(0, 0, crate::log::FLAG_FLUSH))?,
                }
            }
            out.flush()
        });
        written.map_err(DiskError::file("write", path))?;
        Ok(Logged {
            state,
            entries,
            complete: !self.too_long,
        })
    }
}

fn sectors_of(data: &[u8]) -> u64 {
    (data.len() / SECTOR_BYTES) as u64
}

fn put(out: &mut impl Write, sector: u64, data: &[u8]) -> io::Result<()> {
    out.write_all(&entry_header(sector, sectors_of(data), 0))?;
    out.write_all(data)
}

#[cfg(test)]
mod tests {
    use powercut_protocol::State;

    use super::*;
    use crate::{
        device::{tests::device, Device},
        log::build::{Scratch, Step},
    };

    fn prefix(prefix: u64) -> State {
        State {
            prefix,
            ..State::default()
        }
    }

    fn shown(device: &Device) -> String {
        let mut bytes = vec![0; 20 * 512];
        device.view().read(0, &mut bytes);
        let letter = |s: &[u8]| if s[0] == 0 { '0' } else { s[0] as char };
        bytes.chunks(512).map(letter).collect()
    }

    /// What a recovery did, then what is made of its log on a device of its own.
    fn logged(act: impl Fn(&mut Device)) -> (Logged, Vec<String>) {
        let (mut device, files) =
            device(&[Step::Write(1, &[b'X'; 1024]), Step::Write(17, &[b'Y'; 512])]);
        device.switch(&prefix(2)).unwrap();
        device.note_writes();
        act(&mut device);
        let log = Scratch::new(b"");
        let logged = device.log_writes(&log.0).unwrap();
        let mut stacked = Device::open(&files[0].0, Some(&log.0), None).unwrap();
        let states = logged.state..=logged.entries;
        let show = |number| {
            stacked.switch(&prefix(number)).unwrap();
            shown(&stacked)
        };
        (logged, states.map(show).collect())
    }

    #[test]
    fn a_log_begins_with_the_state_and_goes_on_with_the_guests_changes() {
        let (logged, states) = logged(|device| {
            device.flush();
            device.write(2, &[b'Z'; 512]);
            device.flush();
            device.flush();
            device.zero(9, 3);
        });
        assert_eq!(
            (logged.state, logged.entries, logged.complete),
            (2, 5, true)
        );
        assert_eq!(
            states,
            [
                "aXXdefghijklmnopqYst",
                "aXZdefghijklmnopqYst",
                "aXZdefghijklmnopqYst",
                "aXZdefghi000mnopqYst"
            ]
        );
    }

    /// XFS writes 2 MiB of its log at each mount, all of it as it is already.
    #[test]
    fn what_changes_nothing_is_left_out_block_by_block() {
        let (logged, states) = logged(|device| {
            let mut as_it_is = vec![0; 20 * 512];
            device.view().read(0, &mut as_it_is);
            device.write(0, &as_it_is);
            as_it_is[8 * 512] = b'!';
            device.write(0, &as_it_is);
            device.zero(4, 0);
        });
        assert_eq!((logged.state, logged.entries), (2, 3));
        assert_eq!(states[1], "aXXdefgh!jklmnopqYst");
    }

    /// What was discarded in front of it was lost with it: a cut then had what no disk may leave.
    #[test]
    fn a_flush_behind_zeroed_sectors_is_one() {
        let (logged, states) = logged(|device| {
            device.zero(9, 3);
            device.flush();
            device.write(3, &[b'Z'; 512]);
            device.flush();
        });
        assert_eq!(logged.entries - logged.state, 4);
        assert_eq!(states[1], states[2], "the flush");
    }

    #[test]
    fn the_log_of_a_snapshot_is_not_that_of_the_recovery() {
        let (logged, _) = logged(|device| {
            device.write(3, &[b'R'; 512]);
            device.snapshot();
            device.write(4, &[b'U'; 512]);
            device.flush();
            device.roll_back().unwrap();
        });
        assert_eq!(logged.entries - logged.state, 1);
    }

    #[test]
    fn a_switch_ends_the_log_and_nothing_is_told_of_it() {
        let (mut device, _files) = device(&[]);
        device.note_writes();
        device.switch(&prefix(0)).unwrap();
        assert!(device.log_writes(&Scratch::new(b"").0).is_err());
    }

    #[test]
    fn a_log_that_is_too_long_is_said_to_be_incomplete() {
        let (mut device, _files) = device(&[]);
        let mut long = GuestLog::default();
        long.add(BYTES_MAX, Change::Flush);
        device.write(0, &[b'a'; 512]);
        long.write(device.view(), 0, &[b'z'; 512]);
        let told = long.log(device.view(), &Scratch::new(b"").0).unwrap();
        assert_eq!((told.entries, told.complete), (1, false));
    }
}
