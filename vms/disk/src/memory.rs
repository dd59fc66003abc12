//! The memory that a guest of our own kernels shares with the disk; see `vms/umldisk/disk.h`, its other side.
//!
//! The guest's kernel is what is tested: it may write anything here at any time. So every number from this memory is
//! checked where it is used, and no reference into it is ever made, only copies.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, OwnedFd},
    sync::atomic::{fence, AtomicU64, Ordering},
};

use memmap2::MmapRaw;
use rustix::fs::{fallocate, memfd_create, FallocateFlags, MemfdFlags};

use crate::{BLOCK_BYTES, BLOCK_SECTORS};

const MAGIC: u64 = u64::from_le_bytes(*b"pcwdisk1");
const BASE_PATH: u64 = 4096;
const LOG_PATH: u64 = 2 * 4096;
const PATH_BYTES: usize = 4096;
const TABLE: u64 = 3 * 4096;
/// Requests of one visit: more than 100 times those of the largest that was seen.
const RING_ENTRIES: u64 = 1 << 20;
const ASKED_BYTES: u64 = 16;
/// Blocks that the guest may write in one visit: as many as the overlay takes.
const GUEST_BLOCKS: u64 = 1 << 20;
/// Blocks of the arena in all: behind the guest's are our own.
const ARENA_BLOCKS: u64 = 2 * GUEST_BLOCKS;
/// What a visit leaves behind in ring and arena beyond this is given back.
const KEPT_BYTES: u64 = 4 << 20;

/// Fields of `struct powercut_head`, by their numbers.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
enum Field {
    Magic,
    Sectors,
    Epoch,
    Bytes,
    Table,
    Ring,
    RingEntries,
    Arena,
    ArenaBlocks,
    Begun,
    Ended,
    Asked,
    Used,
    Refused,
}

/// Where a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the base image, at its own place.
    Base,
    /// In the log, from this sector of the file on.
    Log(u64),
    /// In the arena: the number of its block there.
    Arena(u64),
    Zero,
}

const PLACE_SHIFT: u32 = 62;

impl Place {
    fn entry(self) -> u64 {
        match self {
            Place::Base => 0,
            Place::Log(sector) => 1 << PLACE_SHIFT | sector,
            Place::Arena(block) => 2 << PLACE_SHIFT | block,
            Place::Zero => 3 << PLACE_SHIFT,
        }
    }

    fn of(entry: u64) -> Self {
        let number = entry & ((1 << PLACE_SHIFT) - 1);
        match entry >> PLACE_SHIFT {
            1 => Place::Log(number),
            2 => Place::Arena(number),
            3 => Place::Zero,
            _ => Place::Base,
        }
    }
}

/// One request of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    pub sector: u64,
    pub sectors: u64,
    pub what: u32,
}

/// The file, mapped for a device of some size.
pub struct Memory {
    file: File,
    map: MmapRaw,
    sectors: u64,
    ring: u64,
    arena: u64,
}

impl Memory {
    /// A file in memory, empty.
    ///
    /// # Errors
    /// If the host has no memory for it.
    pub fn file() -> io::Result<File> {
        let file: OwnedFd = memfd_create("powercut-disk", MemfdFlags::CLOEXEC)?;
        Ok(File::from(file))
    }

    /// Lay `file` out for a device, empty of everything before.
    ///
    /// # Errors
    /// If the host has no memory for it.
    pub fn of(file: File, sectors: u64) -> io::Result<Self> {
        let page = |bytes: u64| bytes.next_multiple_of(4096);
        let ring = TABLE + page(sectors.div_ceil(BLOCK_SECTORS) * 8);
        let arena = ring + RING_ENTRIES * ASKED_BYTES;
        let bytes = arena + ARENA_BLOCKS * BLOCK_BYTES as u64;
        file.set_len(0)?;
        file.set_len(bytes)?;
        let memory = Memory {
            map: MmapRaw::map_raw(&file)?,
            file,
            sectors,
            ring,
            arena,
        };
        memory.set(Field::Sectors, sectors);
        memory.set(Field::Bytes, bytes);
        memory.set(Field::Table, TABLE);
        memory.set(Field::Ring, ring);
        memory.set(Field::RingEntries, RING_ENTRIES);
        memory.set(Field::Arena, arena);
        memory.set(Field::ArenaBlocks, GUEST_BLOCKS);
        memory.set(Field::Magic, MAGIC);
        Ok(memory)
    }

    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Number of the file among those of this process.
    #[must_use]
    pub fn descriptor(file: &File) -> i32 {
        file.as_raw_fd()
    }

    fn field(&self, field: Field) -> &AtomicU64 {
        // SAFETY: the head lies at the start of a mapping that is longer, aligned, and lives as long as `self`; every
        // access from this process is atomic.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().cast::<u64>().add(field as usize)) }
    }

    fn get(&self, field: Field) -> u64 {
        self.field(field).load(Ordering::Acquire)
    }

    fn set(&self, field: Field, value: u64) {
        self.field(field).store(value, Ordering::Release);
    }

    fn entry(&self, block: u64) -> &AtomicU64 {
        assert!(block < self.sectors.div_ceil(BLOCK_SECTORS));
        // SAFETY: as in `field`; the table has an entry for each block of the device.
        unsafe {
            let table = self.map.as_mut_ptr().add(TABLE as usize).cast::<u64>();
            AtomicU64::from_ptr(table.add(block as usize))
        }
    }

    /// Where a block of the device lies.
    #[must_use]
    pub fn place(&self, block: u64) -> Place {
        Place::of(self.entry(block).load(Ordering::Acquire))
    }

    /// Let a block of the device lie elsewhere.
    pub fn put(&self, block: u64, place: Place) {
        self.entry(block).store(place.entry(), Ordering::Release);
    }

    /// Other files hold base image and log; each block lies in the base image.
    ///
    /// # Errors
    /// If a path is too long for the guest.
    pub fn name_files(&self, base: &[u8], log: &[u8]) -> io::Result<()> {
        for (at, path) in [(BASE_PATH, base), (LOG_PATH, log)] {
            if path.len() >= PATH_BYTES {
                return Err(io::ErrorKind::InvalidFilename.into());
            }
            let mut text = [0; PATH_BYTES];
            text[..path.len()].copy_from_slice(path);
            self.copy_to(at, &text);
        }
        self.discard(TABLE, self.ring - TABLE)?;
        self.set(Field::Epoch, self.get(Field::Epoch) + 1);
        Ok(())
    }

    /// How many requests the guest has begun; None while one is not ended.
    #[must_use]
    pub fn quiet(&self) -> Option<u64> {
        fence(Ordering::SeqCst);
        let (ended, begun) = (self.get(Field::Ended), self.get(Field::Begun));
        (begun == ended).then_some(begun)
    }

    /// The requests since number `seen` of this visit, and how many in all were refused for lack of room.
    #[must_use]
    pub fn asked_since(&self, seen: u64) -> (Vec<Asked>, u64) {
        let asked = self.get(Field::Asked).min(RING_ENTRIES);
        let request = |number: u64| {
            let mut bytes = [0; ASKED_BYTES as usize];
            self.copy_from(self.ring + number * ASKED_BYTES, &mut bytes);
            let word =
                |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
            Asked {
                sector: u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")),
                sectors: word(8).into(),
                what: word(12),
            }
        };
        (
            (seen..asked).map(request).collect(),
            self.get(Field::Refused),
        )
    }

    /// Another visit begins: the ring is empty, and the guest has written nothing.
    ///
    /// # Errors
    /// If memory cannot be given back.
    pub fn begin_visit(&self) -> io::Result<()> {
        let rest = |at: u64, used: u64, whole: u64| match used.min(whole) {
            used if used > KEPT_BYTES => self.discard(at + KEPT_BYTES, used - KEPT_BYTES),
            _ => Ok(()),
        };
        let page = |bytes: u64| bytes.saturating_add(4095) / 4096 * 4096;
        let asked = self.get(Field::Asked).saturating_mul(ASKED_BYTES);
        rest(self.ring, page(asked), self.arena - self.ring)?;
        let used = self.get(Field::Used).saturating_mul(BLOCK_BYTES as u64);
        rest(self.arena, used, GUEST_BLOCKS * BLOCK_BYTES as u64)?;
        self.set(Field::Asked, 0);
        self.set(Field::Used, 0);
        self.set(Field::Refused, 0);
        Ok(())
    }

    /// The block of the arena that is ours for the `number`th block that needs one.
    #[must_use]
    pub fn own_place(number: u64) -> Option<Place> {
        let block = GUEST_BLOCKS + number;
        (block < ARENA_BLOCKS).then_some(Place::Arena(block))
    }

    /// Copy from block `number` of the arena, from byte `from` on; false if there is no such block.
    #[must_use]
    pub fn read_arena(&self, number: u64, from: usize, to: &mut [u8]) -> bool {
        let fits = number < ARENA_BLOCKS && from + to.len() <= BLOCK_BYTES;
        if fits {
            self.copy_from(self.arena + number * BLOCK_BYTES as u64 + from as u64, to);
        }
        fits
    }

    /// Fill block `number` of the arena.
    pub fn write_arena(&self, number: u64, data: &[u8]) {
        assert!(number < ARENA_BLOCKS && data.len() <= BLOCK_BYTES);
        self.copy_to(self.arena + number * BLOCK_BYTES as u64, data);
    }

    fn copy_from(&self, at: u64, to: &mut [u8]) {
        // SAFETY: callers stay inside the mapping. The guest may write meanwhile: then the copy is of no use, and
        // whoever asked finds that it was not quiet.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.map.as_ptr().add(at as usize),
                to.as_mut_ptr(),
                to.len(),
            );
        }
    }

    fn copy_to(&self, at: u64, from: &[u8]) {
        // SAFETY: as in `copy_from`.
        unsafe {
            let to = self.map.as_mut_ptr().add(at as usize);
            std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len());
        }
    }

    /// Let a stretch be zeros again, without memory.
    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.file, punch, at, bytes).map_err(Into::into)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::{window::what, SECTOR_BYTES};

    /// The other side, as `vms/umldisk/disk_kern.c` does it.
    pub struct Guest<'a> {
        pub memory: &'a Memory,
        pub base: &'a [u8],
        pub log: &'a [u8],
    }

    impl Guest<'_> {
        pub fn begin(&self) {
            self.memory
                .set(Field::Begun, self.memory.get(Field::Begun) + 1);
        }

        pub fn end(&self) {
            self.memory
                .set(Field::Ended, self.memory.get(Field::Ended) + 1);
        }

        fn note(&self, what: u32, sector: u64, sectors: u64) {
            let number = self.memory.get(Field::Asked);
            let at = self.memory.ring + number * ASKED_BYTES;
            self.memory.copy_to(at, &sector.to_le_bytes());
            self.memory.copy_to(at + 8, &(sectors as u32).to_le_bytes());
            self.memory.copy_to(at + 12, &what.to_le_bytes());
            self.memory.set(Field::Asked, number + 1);
        }

        pub fn ask(&self, what: u32, sector: u64, sectors: u64) {
            self.begin();
            self.note(what, sector, sectors);
            self.end();
        }

        /// A request that finds no room in the ring.
        pub fn refuse(&self) {
            self.begin();
            self.memory
                .set(Field::Refused, self.memory.get(Field::Refused) + 1);
            self.end();
        }

        fn block(&self, block: u64) -> [u8; BLOCK_BYTES] {
            let mut content = [0; BLOCK_BYTES];
            let mut take = |from: &[u8], at: usize| {
                let count = BLOCK_BYTES.min(from.len() - at);
                content[..count].copy_from_slice(&from[at..at + count]);
            };
            match self.memory.place(block) {
                Place::Base => take(self.base, block as usize * BLOCK_BYTES),
                Place::Log(sector) => take(self.log, sector as usize * SECTOR_BYTES),
                Place::Arena(number) => assert!(self.memory.read_arena(number, 0, &mut content)),
                Place::Zero => {}
            }
            content
        }

        pub fn read(&self, sector: u64, sectors: u64) -> Vec<u8> {
            let one = |s: u64| {
                let from = (s % BLOCK_SECTORS) as usize * SECTOR_BYTES;
                self.block(s / BLOCK_SECTORS)[from..from + SECTOR_BYTES].to_vec()
            };
            let found = (sector..sector + sectors).flat_map(one).collect();
            self.ask(what::READ, sector, sectors);
            found
        }

        fn put(&self, sector: u64, content: &[u8]) {
            let block = sector / BLOCK_SECTORS;
            let mut now = self.block(block);
            let from = (sector % BLOCK_SECTORS) as usize * SECTOR_BYTES;
            now[from..from + SECTOR_BYTES].copy_from_slice(content);
            let number = match self.memory.place(block) {
                Place::Arena(number) => number,
                _ => {
                    let number = self.memory.get(Field::Used);
                    self.memory.set(Field::Used, number + 1);
                    number
                }
            };
            self.memory.write_arena(number, &now);
            self.memory.put(block, Place::Arena(number));
        }

        pub fn write(&self, sector: u64, data: &[u8]) {
            for (s, content) in (sector..).zip(data.chunks(SECTOR_BYTES)) {
                self.put(s, content);
            }
            self.ask(what::WRITE, sector, (data.len() / SECTOR_BYTES) as u64);
        }

        pub fn zero(&self, sector: u64, sectors: u64) {
            for s in sector..sector + sectors {
                match s % BLOCK_SECTORS == 0 && s + BLOCK_SECTORS <= sector + sectors {
                    true => self.memory.put(s / BLOCK_SECTORS, Place::Zero),
                    false => self.put(s, &[0; SECTOR_BYTES]),
                }
            }
            self.ask(what::ZEROED, sector, sectors);
        }
    }

    /// The kernel's driver and the disk were compiled from two files that say the same.
    #[test]
    fn the_drivers_header_says_the_same() {
        let header = include_str!("../../umldisk/disk.h");
        let body = header.split("struct powercut_head {").nth(1).unwrap();
        let body = body.split('}').next().unwrap();
        let names: Vec<String> = body
            .lines()
            .filter_map(|line| line.trim().strip_prefix("unsigned long long "))
            .flat_map(|line| line.split(';').next().unwrap().split(", "))
            .map(|name| name.replace('_', ""))
            .collect();
        let fields = [
            Field::Magic,
            Field::Sectors,
            Field::Epoch,
            Field::Bytes,
            Field::Table,
            Field::Ring,
            Field::RingEntries,
            Field::Arena,
            Field::ArenaBlocks,
            Field::Begun,
            Field::Ended,
            Field::Asked,
            Field::Used,
            Field::Refused,
        ];
        let ours: Vec<String> = fields
            .iter()
            .map(|field| format!("{field:?}").to_lowercase())
            .collect();
        assert_eq!(names, ours);
        let says = |name: &str, value: String| {
            let line = header
                .lines()
                .find(|line| line.contains(&format!("{name} ")));
            assert!(
                line.is_some_and(|line| line.contains(&value)),
                "{name} {value}"
            );
        };
        says("POWERCUT_MAGIC", format!("{MAGIC:#x}"));
        says("POWERCUT_BASE_PATH", BASE_PATH.to_string());
        says("POWERCUT_LOG_PATH", LOG_PATH.to_string());
        says("POWERCUT_PLACE_SHIFT", PLACE_SHIFT.to_string());
        for (name, number) in [
            ("READ", what::READ),
            ("WRITE", what::WRITE),
            ("ZEROED", what::ZEROED),
            ("FLUSH", what::FLUSH),
            ("PHASE", what::PHASE),
        ] {
            says(&format!("POWERCUT_{name}"), format!("= {number},"));
        }
        for (name, place) in [
            ("IN_LOG", Place::Log(0)),
            ("IN_ARENA", Place::Arena(0)),
            ("ZERO", Place::Zero),
        ] {
            says(
                &format!("POWERCUT_{name}"),
                format!("{}ULL", place.entry() >> PLACE_SHIFT),
            );
        }
    }
}
