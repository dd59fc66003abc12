//! The format of dm-log-writes (drivers/md/dm-log-writes.c, `struct log_write_super` and `log_write_entry`).

use std::{fs::File, path::Path};

use memmap2::Mmap;

use crate::{
    error::{DiskError, EntryError, LogError, OrderError},
    Answer, SECTOR_BYTES,
};

const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;
const ENTRY_HEADER_BYTES: u64 = 32;
pub const FLAG_FLUSH: u64 = 1;
pub const FLAG_DISCARD: u64 = 4;
const FLAG_MARK: u64 = 8;
/// The kernel writes a header within one page, so a file with a larger unit is not a log.
const MAX_UNIT_BYTES: u64 = 65536;

/// The superblock of a log of so many entries, in units of 512 bytes.
#[must_use]
pub fn super_block(entries: u64) -> [u8; SECTOR_BYTES] {
    words([MAGIC, VERSION, entries, SECTOR_BYTES as u64])
}

/// The header of an entry without text, in units of 512 bytes.
#[must_use]
pub fn entry_header(sector: u64, sectors: u64, flags: u64) -> [u8; SECTOR_BYTES] {
    words([sector, sectors, flags, 0])
}

fn words(words: [u64; 4]) -> [u8; SECTOR_BYTES] {
    let mut unit = [0; SECTOR_BYTES];
    for (place, word) in unit.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    unit
}

/// One entry. `sector` and `sectors` are in units of 512 bytes, whatever the log's unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub sector: u64,
    /// 0 for an entry that changes nothing: a mark, or a flush without data.
    pub sectors: u64,
    /// Where the data is in the log; `None` for a discard, after which sectors read as zeros.
    pub data_offset: Option<u64>,
}

impl Entry {
    /// Whether the entry changes `sector`.
    #[must_use]
    pub fn covers(&self, sector: u64) -> bool {
        sector >= self.sector && sector - self.sector < self.sectors
    }
}

/// Chunks of a log: 16 GiB of whole blocks. The index takes some 100 bytes for each.
const CHUNKS_MAX: u64 = 1 << 22;

/// In which order a log's entries were applied, and how finely they are split; see `DiskRequest::Open`.
#[derive(Clone, Copy)]
pub struct Order<'a> {
    pub entries: &'a [u64],
    pub unit_sectors: u64,
}

/// A validated write log.
pub struct Log {
    map: Option<Mmap>,
    /// In the order in which they are applied; chunks of entries if the log was split.
    pub entries: Vec<Entry>,
    /// Whether the log was split into chunks, so that each lies within one block.
    pub in_chunks: bool,
}

impl Log {
    /// A log without entries.
    #[must_use]
    pub fn empty() -> Self {
        Log {
            map: None,
            entries: Vec::new(),
            in_chunks: false,
        }
    }

    /// Map the log at `path` and read all headers. Fails if the file is not a log, if the log ends before
    /// its last entry, or if an entry reaches past a device of `device_sectors`.
    pub fn open(path: &Path, device_sectors: u64) -> Answer<Self> {
        let (map, _) = map_file(path)?;
        let entries = read_entries(&map, device_sectors).map_err(|source| DiskError::Log {
            path: path.to_path_buf(),
            source,
        })?;
        Ok(Log {
            map: Some(map),
            entries,
            in_chunks: false,
        })
    }

    /// As [`Log::open`], put into an order and split into chunks if there is one.
    pub fn open_in_order(path: &Path, sectors: u64, order: Option<Order>) -> Answer<Self> {
        let log = Self::open(path, sectors)?;
        let Some(order) = order else { return Ok(log) };
        let refused = |source| DiskError::Order {
            path: path.to_path_buf(),
            source,
        };
        check_order(&log.entries, order).map_err(refused)?;
        Ok(Log {
            entries: chunks(&log.entries, order),
            in_chunks: true,
            ..log
        })
    }

    /// The 512 bytes that `entry` writes at `sector`, which it must cover.
    #[must_use]
    pub fn sector(&self, entry: &Entry, sector: u64) -> &[u8] {
        match (&self.map, entry.data_offset) {
            (Some(map), Some(offset)) => {
                let start = offset as usize + (sector - entry.sector) as usize * SECTOR_BYTES;
                &map[start..start + SECTOR_BYTES]
            }
            _ => &[0; SECTOR_BYTES],
        }
    }
}

/// Whether the order names each entry that changes something exactly once, and does not make too many chunks.
fn check_order(entries: &[Entry], order: Order) -> Result<(), OrderError> {
    let unit = order.unit_sectors;
    if ![1, 2, 4, 8].contains(&unit) {
        return Err(OrderError::Unit(unit));
    }
    let mut named = vec![false; entries.len()];
    for &number in order.entries {
        let known = usize::try_from(number).ok().filter(|n| *n < entries.len());
        let Some(at) = known else {
            return Err(OrderError::Unknown {
                entry: number,
                entries: entries.len(),
            });
        };
        if entries[at].sectors == 0 {
            return Err(OrderError::ChangesNothing(number));
        }
        if std::mem::replace(&mut named[at], true) {
            return Err(OrderError::Twice(number));
        }
    }
    let changing = entries.iter().map(|entry| entry.sectors > 0);
    if let Some(left) = changing
        .zip(named)
        .position(|(changes, named)| changes && !named)
    {
        return Err(OrderError::LeftOut(left as u64));
    }
    let count = |e: &Entry| match e.sectors {
        0 => 0,
        sectors => (e.sector + sectors).div_ceil(unit) - e.sector / unit,
    };
    let chunks = entries.iter().map(count).fold(0, u64::saturating_add);
    if chunks > CHUNKS_MAX {
        let limit = CHUNKS_MAX;
        return Err(OrderError::TooManyChunks { chunks, limit });
    }
    Ok(())
}

/// The entries in order, each split at multiples of the unit.
fn chunks(entries: &[Entry], order: Order) -> Vec<Entry> {
    let unit = order.unit_sectors;
    let mut chunks = Vec::new();
    for &number in order.entries {
        let entry = entries[number as usize];
        let end = entry.sector + entry.sectors;
        let mut at = entry.sector;
        while at < end {
            let stop = end.min((at / unit + 1) * unit);
            let skipped = (at - entry.sector) * SECTOR_BYTES as u64;
            chunks.push(Entry {
                sector: at,
                sectors: stop - at,
                data_offset: entry.data_offset.map(|offset| offset + skipped),
            });
            at = stop;
        }
    }
    chunks
}

/// All entries of a log; there are never more than it has units.
fn read_entries(map: &[u8], device_sectors: u64) -> Result<Vec<Entry>, LogError> {
    let unit = read_super(map)?;
    let count = u64_at(map, 16);
    let mut entries = Vec::with_capacity(count.min(map.len() as u64 / unit) as usize);
    let mut at = unit;
    for number in 0..count {
        let (entry, next) = read_entry(map, at, unit)
            .and_then(|found| check_end(found, device_sectors))
            .map_err(|source| LogError::Entry {
                number,
                count,
                source,
            })?;
        entries.push(entry);
        at = next;
    }
    Ok(entries)
}

/// Map a regular file for reading.
pub fn map_file(path: &Path) -> Answer<(Mmap, File)> {
    let file = File::open(path).map_err(DiskError::file("open", path))?;
    let length = file
        .metadata()
        .map_err(DiskError::file("stat", path))?
        .len();
    if length == 0 {
        return Err(DiskError::Empty(path.to_path_buf()));
    }
    // SAFETY: the mapping is read-only, and nobody writes a base image or a log once it has been
    // handed to the disk; that is the contract of `Open` and `Compare`.
    let map = unsafe { Mmap::map(&file) }.map_err(DiskError::file("map", path))?;
    Ok((map, file))
}

fn u64_at(map: &[u8], at: u64) -> u64 {
    let at = at as usize;
    u64::from_le_bytes(map[at..at + 8].try_into().expect("8 bytes"))
}

/// Check the superblock and return the log's unit in bytes.
fn read_super(map: &[u8]) -> Result<u64, LogError> {
    if map.len() < SECTOR_BYTES {
        return Err(LogError::TooShort { bytes: map.len() });
    }
    let magic = u64_at(map, 0);
    if magic != MAGIC {
        return Err(LogError::Magic {
            found: magic,
            expected: MAGIC,
        });
    }
    let version = u64_at(map, 8);
    if version != VERSION {
        return Err(LogError::Version {
            found: version,
            known: VERSION,
        });
    }
    let unit = u64_at(map, 24) & 0xffff_ffff;
    if !unit.is_power_of_two() || !(SECTOR_BYTES as u64..=MAX_UNIT_BYTES).contains(&unit) {
        return Err(LogError::Unit {
            unit,
            limit: MAX_UNIT_BYTES,
        });
    }
    Ok(unit)
}

/// The entry at byte `at`, and the position of the next one.
fn read_entry(map: &[u8], at: u64, unit: u64) -> Result<(Entry, u64), EntryError> {
    let length = map.len() as u64;
    // `end` if the sum fits 64 bits
    let within = |end: Option<u64>, count| match end {
        Some(end) if end <= length => Ok(end),
        Some(end) => Err(EntryError::Truncated { end, length }),
        None => Err(EntryError::TooLarge { count, unit }),
    };
    let data = within(at.checked_add(unit), 1)?;
    debug_assert!(unit >= ENTRY_HEADER_BYTES);
    let (sector, count, flags) = (u64_at(map, at), u64_at(map, at + 8), u64_at(map, at + 16));
    let scaled = |n: u64| {
        n.checked_mul(unit / SECTOR_BYTES as u64)
            .ok_or(EntryError::TooLarge { count: n, unit })
    };
    let (sector, sectors) = (scaled(sector)?, scaled(count)?);
    if flags & FLAG_DISCARD != 0 {
        let entry = Entry {
            sector,
            sectors,
            data_offset: None,
        };
        return Ok((entry, data));
    }
    let next = sectors
        .checked_mul(SECTOR_BYTES as u64)
        .and_then(|bytes| data.checked_add(bytes));
    let next = within(next, count)?;
    let entry = Entry {
        sector,
        sectors: if flags & FLAG_MARK != 0 { 0 } else { sectors },
        data_offset: Some(data),
    };
    Ok((entry, next))
}

fn check_end(found: (Entry, u64), device_sectors: u64) -> Result<(Entry, u64), EntryError> {
    let entry = &found.0;
    let end = entry.sector.checked_add(entry.sectors);
    if entry.sectors > 0 && end.is_none_or(|end| end > device_sectors) {
        return Err(EntryError::PastEnd {
            sector: entry.sector,
            sectors: entry.sectors,
            device: device_sectors,
        });
    }
    Ok(found)
}

#[cfg(test)]
pub mod build {
    //! Logs for tests.

    use std::io::Write;

    pub enum Step<'a> {
        Write(u64, &'a [u8]),
        Discard(u64, u64),
        Flush,
        Mark(&'a str),
    }

    /// A log file of 512-byte units, in a directory of its own.
    pub fn log_bytes(steps: &[Step]) -> Vec<u8> {
        let mut out = vec![0u8; 512];
        out[..8].copy_from_slice(&super::MAGIC.to_le_bytes());
        out[8] = 1;
        out[16..24].copy_from_slice(&(steps.len() as u64).to_le_bytes());
        out[24..28].copy_from_slice(&512u32.to_le_bytes());
        for step in steps {
            let (sector, sectors, flags, text, data): (u64, u64, u64, &[u8], &[u8]) = match step {
                Step::Write(sector, data) => (*sector, data.len() as u64 / 512, 0, b"", data),
                Step::Discard(sector, sectors) => (*sector, *sectors, 4, b"", b""),
                Step::Flush => (0, 0, 1, b"", b""),
                Step::Mark(text) => (0, 0, 8, text.as_bytes(), b""),
            };
            let mut header = [0u8; 512];
            for (i, word) in [sector, sectors, flags, text.len() as u64]
                .iter()
                .enumerate()
            {
                header[i * 8..i * 8 + 8].copy_from_slice(&word.to_le_bytes());
            }
            header[32..32 + text.len()].copy_from_slice(text);
            out.extend_from_slice(&header);
            out.extend_from_slice(data);
        }
        out
    }

    /// A file with these contents that lives as long as the value.
    pub struct Scratch(pub std::path::PathBuf);

    impl Scratch {
        pub fn new(bytes: &[u8]) -> Self {
            use std::sync::atomic::{AtomicU32, Ordering};
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("powercut-disk-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let mut file = std::fs::File::create(&path).unwrap();
            file.write_all(bytes).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        build::{log_bytes, Scratch, Step},
        *,
    };

    fn open(bytes: &[u8], device_sectors: u64) -> Answer<Log> {
        Log::open(&Scratch::new(bytes).0, device_sectors)
    }

    fn refusal(bytes: &[u8], device_sectors: u64) -> String {
        let error = open(bytes, device_sectors).err().expect("a refusal");
        powercut_protocol::chain(&error)
    }

    #[test]
    fn reads_every_kind_of_entry() {
        let data = [7u8; 1024];
        let steps = [
            Step::Write(3, &data),
            Step::Flush,
            Step::Mark("ack 1"),
            Step::Discard(8, 4),
        ];
        let log = open(&log_bytes(&steps), 12).unwrap();
        let sectors: Vec<_> = log.entries.iter().map(|e| (e.sector, e.sectors)).collect();
        assert_eq!(sectors, [(3, 2), (0, 0), (0, 0), (8, 4)]);
        assert_eq!(log.sector(&log.entries[0], 4), &data[..512]);
        assert_eq!(log.sector(&log.entries[3], 9), &[0; 512]);
    }

    #[test]
    fn counts_in_the_logs_own_unit() {
        let mut bytes = vec![0u8; 4096 * 3];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8] = 1;
        bytes[16] = 1;
        bytes[24..28].copy_from_slice(&4096u32.to_le_bytes());
        bytes[4096] = 2;
        bytes[4096 + 8] = 1;
        let log = open(&bytes, 24).unwrap();
        assert_eq!((log.entries[0].sector, log.entries[0].sectors), (16, 8));
        assert_eq!(log.entries[0].data_offset, Some(8192));
    }

    #[test]
    fn refuses_what_is_no_log() {
        assert!(refusal(&[0; 512], 8).contains("magic 0x0"));
        assert!(refusal(&[0; 100], 8).contains("100 bytes"));
        let mut bytes = log_bytes(&[]);
        bytes[8] = 2;
        assert!(refusal(&bytes, 8).contains("version 2"));
        let mut bytes = log_bytes(&[]);
        bytes[24] = 1;
        assert!(refusal(&bytes, 8).contains("sector size 513"));
    }

    #[test]
    fn refuses_a_truncated_entry() {
        let bytes = log_bytes(&[Step::Write(0, &[1; 1024])]);
        assert!(refusal(&bytes[..bytes.len() - 1], 8)
            .contains("ends at byte 2048, the log at byte 2047"));
        assert!(refusal(&bytes[..600], 8).contains("entry 0 of 1: truncated"));
        let mut huge = log_bytes(&[Step::Flush]);
        huge[512 + 8..512 + 16].copy_from_slice(&(u64::MAX / 512).to_le_bytes());
        assert!(refusal(&huge, 8).contains("past 2^64"));
    }

    #[test]
    fn refuses_an_entry_past_the_end_of_the_device() {
        let bytes = log_bytes(&[Step::Write(7, &[1; 1024])]);
        assert!(refusal(&bytes, 8).contains("2 sectors from sector 7, the device ends at sector 8"));
        let bytes = log_bytes(&[Step::Discard(u64::MAX, 2)]);
        assert!(refusal(&bytes, 8).contains("the device ends at sector 8"));
    }

    #[test]
    fn an_order_names_every_change_once_and_splits_it_at_the_unit() {
        let data: Vec<u8> = (0..10).flat_map(|sector| [sector; 512]).collect();
        let steps = [
            Step::Write(6, &data),
            Step::Flush,
            Step::Discard(0, 3),
            Step::Mark("ack 1"),
        ];
        let file = Scratch::new(&log_bytes(&steps));
        let split = |entries: &[u64], unit_sectors| {
            let order = Order {
                entries,
                unit_sectors,
            };
            Log::open_in_order(&file.0, 16, Some(order))
        };
        let shown = |log: &Log| -> Vec<(u64, u64, u8)> {
            let first = |e: &Entry| log.sector(e, e.sector)[0];
            let entries = log.entries.iter();
            entries.map(|e| (e.sector, e.sectors, first(e))).collect()
        };
        let whole = split(&[2, 0], 8).unwrap();
        assert!(whole.in_chunks);
        assert_eq!(shown(&whole), [(0, 3, 0), (6, 2, 0), (8, 8, 2)]);
        let sectors = shown(&split(&[0, 2], 1).unwrap());
        assert_eq!(sectors.len(), 13);
        assert_eq!((sectors[9], sectors[10]), ((15, 1, 9), (0, 1, 0)));
        let refusal = |entries: &[u64], unit| {
            let error = split(entries, unit).err().expect("a refusal");
            powercut_protocol::chain(&error)
        };
        assert!(refusal(&[2], 8).contains("leaves out entry 0"));
        assert!(refusal(&[2, 0, 2], 8).contains("entry 2 twice"));
        assert!(refusal(&[2, 0, 1], 8).contains("entry 1, which changes nothing"));
        assert!(refusal(&[2, 0, 4], 8).contains("entry 4, the log has 4"));
        assert!(refusal(&[2, 0], 16).contains("chunks of 16 sectors"));
        assert!(refusal(&[2, 0], 0).contains("chunks of 0 sectors"));
    }

    #[test]
    fn chunks_have_a_limit_before_room_is_made_for_them() {
        let steps = [Step::Discard(0, CHUNKS_MAX), Step::Discard(0, 1)];
        let file = Scratch::new(&log_bytes(&steps));
        let order = Order {
            entries: &[0, 1],
            unit_sectors: 1,
        };
        let error = Log::open_in_order(&file.0, CHUNKS_MAX, Some(order)).err();
        let told = powercut_protocol::chain(&error.expect("a refusal"));
        assert!(
            told.contains("4194305 chunks, the limit is 4194304"),
            "{told}"
        );
    }

    /// Any bytes are either a log or rejected: no sum may wrap, no slice may be too long.
    #[test]
    fn a_damaged_log_is_refused_or_read_and_never_panics() {
        let bytes = log_bytes(&[
            Step::Write(3, &[7; 1024]),
            Step::Flush,
            Step::Mark("ack 1"),
            Step::Discard(8, 4),
        ]);
        let extremes = [
            0,
            1,
            8,
            u64::MAX,
            u64::MAX / 512,
            u64::MAX / 512 + 1,
            1 << 63,
        ];
        let heads = [0, 512, 512 + 512 + 1024];
        for at in heads
            .iter()
            .flat_map(|head| (0..5).map(move |w| head + w * 8))
        {
            for value in extremes {
                let mut damaged = bytes.clone();
                damaged[at..at + 8].copy_from_slice(&value.to_le_bytes());
                let Ok(log) = open(&damaged, 12) else {
                    continue;
                };
                for entry in &log.entries {
                    for sector in entry.sector..entry.sector + entry.sectors {
                        assert_eq!(log.sector(entry, sector).len(), SECTOR_BYTES);
                    }
                }
            }
        }
        for end in 0..bytes.len() {
            let _ = open(&bytes[..end], 12);
        }
    }
}
