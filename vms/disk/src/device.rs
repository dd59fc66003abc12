//! What the guest sees: base image, state, and its own writes.

use std::{
    collections::HashMap,
    fs::File,
    path::{Path, PathBuf},
};

use memmap2::Mmap;
use powercut_protocol::{State, Stats};

use xxhash_rust::xxh3::xxh3_128;

use crate::{
    hash::contribution,
    image::{self, Imaged},
    index::{base_sector, Index, Recipe},
    log::{map_file, Log},
    memo::{Memo, ReadSet},
    overlay::Overlay,
    Answer, BLOCK_SECTORS, SECTOR_BYTES,
};

/// One device. Sector numbers and ranges that reach here have been checked by [`Device::holds`].
pub struct Device {
    /// Base image and log, which no image may overwrite.
    sources: Vec<PathBuf>,
    base: Mmap,
    base_file: File,
    index: Index,
    recipe: Recipe,
    overlay: Overlay,
    images: HashMap<PathBuf, Imaged>,
    reads: ReadSet,
    /// Whether anything was read since the last switch, changed by the log or not.
    looked_at: bool,
    memo: Memo,
    pub stats: Stats,
}

impl Device {
    /// Show the base image with nothing of the log on it: the state of 0 entries.
    pub fn open(base: &Path, source_log: Option<&Path>) -> Answer<Self> {
        let (map, base_file) = map_file(base)?;
        if map.len() % SECTOR_BYTES != 0 {
            return Err(format!(
                "{}: {} bytes are no whole number of sectors of {SECTOR_BYTES}",
                base.display(),
                map.len()
            ));
        }
        let log = match source_log {
            Some(path) => Log::open(path, (map.len() / SECTOR_BYTES) as u64)?,
            None => Log::empty(),
        };
        let index = Index::new(log, &map)?;
        Ok(Device {
            sources: [Some(base), source_log]
                .into_iter()
                .flatten()
                .map(Path::to_path_buf)
                .collect(),
            reads: ReadSet::new(index.slot_count()),
            looked_at: false,
            memo: Memo::default(),
            index,
            base: map,
            base_file,
            recipe: Recipe::default(),
            overlay: Overlay::default(),
            images: HashMap::new(),
            stats: Stats::default(),
        })
    }

    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.base.len() as u64
    }

    #[must_use]
    pub fn sectors(&self) -> u64 {
        (self.base.len() / SECTOR_BYTES) as u64
    }

    /// Entries in the log.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.index.entries()
    }

    /// Whether `count` sectors from `sector` lie on the device.
    #[must_use]
    pub fn holds(&self, sector: u64, count: u64) -> bool {
        sector
            .checked_add(count)
            .is_some_and(|end| end <= self.sectors())
    }

    /// Show another state and drop what the guest wrote.
    pub fn switch(&mut self, state: &State) -> Answer<()> {
        self.recipe = self.index.recipe(state)?;
        self.overlay.clear();
        self.reads.clear();
        self.looked_at = false;
        self.stats = Stats::default();
        Ok(())
    }

    /// The 512 bytes of `sector` as the guest sees them.
    #[must_use]
    pub fn sector(&self, sector: u64) -> &[u8] {
        match self.overlay.sector(sector) {
            Some(written) => written,
            None => self.index.sector(&self.recipe, &self.base, sector),
        }
    }

    /// xxh3-128 of each 4 KiB block as the guest sees it, little-endian, one after the other.
    ///
    /// # Errors
    /// A block that is not wholly on the device.
    pub fn block_hashes(&self, blocks: &[u64]) -> Answer<Vec<u8>> {
        let mut hashes = Vec::with_capacity(blocks.len() * 16);
        let mut content = [0u8; BLOCK_SECTORS as usize * SECTOR_BYTES];
        for &block in blocks {
            let first = block.saturating_mul(BLOCK_SECTORS);
            if !self.holds(first, BLOCK_SECTORS) {
                return Err(format!(
                    "block {block} lies behind the end, at {} sectors",
                    self.sectors()
                ));
            }
            self.read(first, &mut content);
            hashes.extend_from_slice(&xxh3_128(&content).to_le_bytes());
        }
        Ok(hashes)
    }

    /// Fill `out`, whole sectors, with what stands at `sector`.
    pub fn read(&self, sector: u64, out: &mut [u8]) {
        let end = sector + (out.len() / SECTOR_BYTES) as u64;
        let mut at = sector;
        while at < end {
            let block = at / BLOCK_SECTORS;
            let stop = end.min((block + 1) * BLOCK_SECTORS);
            let part = |from: u64, to: u64| {
                (from - sector) as usize * SECTOR_BYTES..(to - sector) as usize * SECTOR_BYTES
            };
            if self.overlay.written(block) == 0 && self.index.slot(block).is_none() {
                let start = at as usize * SECTOR_BYTES;
                let range = part(at, stop);
                let length = range.len();
                out[range].copy_from_slice(&self.base[start..start + length]);
            } else {
                for s in at..stop {
                    out[part(s, s + 1)].copy_from_slice(self.sector(s));
                }
            }
            at = stop;
        }
    }

    /// As [`read`](Self::read), for the guest: remembers what it saw of the state.
    pub fn guest_read(&mut self, sector: u64, out: &mut [u8]) {
        self.note(sector, (out.len() / SECTOR_BYTES) as u64);
        self.read(sector, out);
    }

    /// Count blocks as read that a program of the host saw in the image.
    pub fn also_read(&mut self, blocks: &[u64]) -> Answer<()> {
        let last = self.sectors().div_ceil(BLOCK_SECTORS);
        if let Some(past) = blocks.iter().find(|block| **block >= last) {
            return Err(format!("block {past} was read, the device has {last}"));
        }
        for block in blocks {
            self.note(block * BLOCK_SECTORS, BLOCK_SECTORS);
        }
        Ok(())
    }

    /// Enter into the read set the blocks of which these sectors show anything of the state.
    fn note(&mut self, sector: u64, count: u64) {
        self.looked_at = true;
        let end = sector + count;
        for block in sector / BLOCK_SECTORS..end.div_ceil(BLOCK_SECTORS) {
            let Some(slot) = self.index.slot(block) else {
                continue;
            };
            let written = self.overlay.written(block);
            let first = block * BLOCK_SECTORS;
            let mut asked = (first.max(sector)..end.min(first + BLOCK_SECTORS)).map(|s| s - first);
            if asked.any(|within| written & (1 << within) == 0) {
                self.reads.add(slot);
            }
        }
    }

    /// Keep `outcome` for this state and what was read of it; see [`Memo::remember`]. Refused when nothing
    /// at all was read: such a visit would answer for every state.
    pub fn remember(&mut self, outcome: u64) -> Answer<Option<u64>> {
        if !self.looked_at {
            let why = "nothing was read since the switch, so the guest looked at its own cache";
            return Err(format!("outcome {outcome} cannot be remembered: {why}"));
        }
        let (index, recipe) = (&self.index, &self.recipe);
        let content = |slot| index.block_hash(recipe, slot);
        Ok(self.memo.remember(self.reads.slots(), content, outcome))
    }

    /// The outcome of a remembered state that agrees with `state` on all that was read there.
    pub fn recall(&self, state: &State) -> Answer<Option<u64>> {
        let recipe = self.index.recipe(state)?;
        Ok(self
            .memo
            .recall(|slot| self.index.block_hash(&recipe, slot)))
    }

    /// Put the guest's `data`, whole sectors, at `sector`.
    pub fn write(&mut self, sector: u64, data: &[u8]) {
        self.overlay.write(sector, data);
    }

    /// Make `count` sectors from `sector` read as zeros.
    pub fn zero(&mut self, sector: u64, count: u64) {
        self.overlay.zero(sector, count);
    }

    /// Content hash of `state`, without the guest's writes.
    pub fn state_hash(&self, state: &State) -> Answer<u128> {
        Ok(self.index.hash(&self.index.recipe(state)?))
    }

    /// Content hash of what the guest sees.
    #[must_use]
    pub fn hash(&self) -> u128 {
        let mut hash = self.index.hash(&self.recipe);
        for sector in self.overlay.sectors() {
            let now = contribution(sector, self.sector(sector), base_sector(&self.base, sector));
            hash = hash
                .wrapping_sub(self.index.contribution(&self.recipe, sector))
                .wrapping_add(now);
        }
        hash
    }

    /// Bytes that had to be written to make the file at `path` equal to what the guest sees.
    pub fn image(&mut self, path: &Path) -> Answer<u64> {
        if self.sources.iter().any(|own| image::same_file(own, path)) {
            let shown = path.display();
            return Err(format!("{shown} is the base image or the write log itself"));
        }
        let known = self
            .images
            .remove(path)
            .filter(|old| old.is_untouched(path));
        let blocks = known.as_ref().map(|old| self.blocks_since(old));
        let copied = match blocks {
            Some(blocks) => image::update(path, self, blocks)?,
            None => image::create(path, self)?,
        };
        let written = self.overlay.blocks().collect();
        let imaged = Imaged::new(path, self.recipe.clone(), written)?;
        self.images.insert(path.to_path_buf(), imaged);
        Ok(copied)
    }

    /// Blocks in which the device may differ from the image `old`, ascending.
    fn blocks_since(&self, old: &Imaged) -> Vec<u64> {
        let mut blocks = self.index.blocks_between(&old.recipe, &self.recipe);
        blocks.sort_unstable();
        blocks.dedup();
        blocks.retain(|block| {
            self.index.slot(*block).is_some_and(|slot| {
                self.index.block_hash(&old.recipe, slot)
                    != self.index.block_hash(&self.recipe, slot)
            })
        });
        blocks.extend(&old.written);
        blocks.extend(self.overlay.blocks());
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// Blocks that differ from the base, or may, ascending.
    #[must_use]
    pub fn changed_blocks(&self) -> Vec<u64> {
        let mut blocks: Vec<u64> = self.index.blocks().chain(self.overlay.blocks()).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// The base image.
    #[must_use]
    pub fn base(&self) -> &[u8] {
        &self.base
    }

    /// The base image's file, for its holes.
    #[must_use]
    pub fn base_file(&self) -> &File {
        &self.base_file
    }

    /// The first sector in which the device differs from the base after the whole of the log at `path`.
    pub fn compare(&self, path: &Path) -> Answer<Option<u64>> {
        let other = Index::new(Log::open(path, self.sectors())?, &self.base)?;
        let whole = other.whole();
        let mut blocks = self.changed_blocks();
        blocks.extend(other.blocks());
        blocks.sort_unstable();
        blocks.dedup();
        let sectors = blocks
            .into_iter()
            .flat_map(|block| block * BLOCK_SECTORS..(block + 1) * BLOCK_SECTORS)
            .take_while(|sector| *sector < self.sectors());
        for sector in sectors {
            if self.sector(sector) != other.sector(&whole, &self.base, sector) {
                return Ok(Some(sector));
            }
        }
        Ok(None)
    }

    /// Counters since the last switch.
    #[must_use]
    pub fn counted(&self) -> Stats {
        Stats {
            overlay_bytes: self.overlay.bytes(),
            ..self.stats.clone()
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::log::build::{log_bytes, Scratch, Step};

    /// A device of 20 sectors whose base holds the letter of each sector.
    pub fn device(steps: &[Step]) -> (Device, [Scratch; 2]) {
        let base: Vec<u8> = (0..20u8).flat_map(|s| [b'a' + s; 512]).collect();
        let files = [Scratch::new(&base), Scratch::new(&log_bytes(steps))];
        let device = Device::open(&files[0].0, Some(&files[1].0)).unwrap();
        (device, files)
    }

    fn prefix(prefix: u64) -> State {
        State {
            prefix,
            ..State::default()
        }
    }

    fn shown(device: &Device) -> String {
        let mut bytes = vec![0; 20 * 512];
        device.read(0, &mut bytes);
        let letter = |s: &[u8]| if s[0] == 0 { '0' } else { s[0] as char };
        bytes.chunks(512).map(letter).collect()
    }

    #[test]
    fn a_switch_drops_what_the_guest_wrote() {
        let (mut device, _files) = device(&[Step::Write(1, &[b'X'; 1024])]);
        device.switch(&prefix(1)).unwrap();
        device.write(2, &[b'Y'; 512]);
        device.zero(17, 2);
        assert_eq!(shown(&device), "aXYdefghijklmnopq00t");
        device.switch(&prefix(1)).unwrap();
        assert_eq!(shown(&device), "aXXdefghijklmnopqrst");
        device.switch(&prefix(0)).unwrap();
        assert_eq!(shown(&device), "abcdefghijklmnopqrst");
    }

    #[test]
    fn a_refused_switch_changes_nothing() {
        let (mut device, _files) = device(&[Step::Write(1, &[b'X'; 1024])]);
        device.switch(&prefix(1)).unwrap();
        device.write(0, &[b'Y'; 512]);
        assert!(device.switch(&prefix(2)).is_err());
        assert_eq!(shown(&device), "YXXdefghijklmnopqrst");
    }

    #[test]
    fn the_hash_counts_the_guests_writes() {
        let (mut device, _files) = device(&[Step::Write(1, &[b'X'; 1024])]);
        let state = device.state_hash(&prefix(1)).unwrap();
        device.write(1, &[b'X'; 1024]);
        assert_eq!(device.hash(), state);
        device.zero(5, 1);
        assert_ne!(device.hash(), state);
        device.write(5, &[b'f'; 512]);
        assert_eq!(device.hash(), state);
    }

    #[test]
    fn images_follow_state_and_guest() {
        let (mut device, _files) =
            device(&[Step::Write(1, &[b'X'; 1024]), Step::Write(19, &[b'Z'; 512])]);
        let target = Scratch::new(b"");
        let read = || std::fs::read(&target.0).unwrap();
        let mut expect = vec![0; 20 * 512];
        device.switch(&prefix(2)).unwrap();
        device.write(9, &[b'Y'; 512]);
        device.image(&target.0).unwrap();
        device.read(0, &mut expect);
        assert_eq!(read(), expect);
        device.switch(&prefix(1)).unwrap();
        device.zero(0, 1);
        // the tail with entry 1 gone, the guest's old block, and its new one
        assert_eq!(device.image(&target.0).unwrap(), 2048 + 4096 + 4096);
        device.read(0, &mut expect);
        assert_eq!(read(), expect);
        assert_eq!(device.image(&target.0).unwrap(), 4096);
    }

    #[test]
    fn an_image_that_somebody_replaced_is_copied_whole() {
        let (mut device, _files) = device(&[]);
        let target = Scratch::new(b"");
        device.image(&target.0).unwrap();
        std::fs::write(&target.0, b"other").unwrap();
        device.image(&target.0).unwrap();
        assert_eq!(std::fs::read(&target.0).unwrap(), device.base());
    }

    #[test]
    fn what_the_guest_read_of_the_state_decides_the_outcome() {
        let (mut device, _files) = device(&[
            Step::Write(0, &[b'X'; 512]),
            Step::Write(8, &[b'Y'; 512]),
            Step::Write(16, &[b'Z'; 512]),
        ]);
        let mut sector = [0; 512];
        device.switch(&prefix(1)).unwrap();
        device.guest_read(1, &mut sector);
        device.zero(8, 8);
        device.guest_read(9, &mut sector);
        assert_eq!(device.remember(7), Ok(None));
        // the second block had been overwritten before it was read
        let recalled: Vec<_> = (0..=3)
            .map(|p| device.recall(&prefix(p)).unwrap())
            .collect();
        assert_eq!(recalled, [None, Some(7), Some(7), Some(7)]);
    }

    #[test]
    fn a_block_that_was_overwritten_in_part_counts_as_read() {
        let (mut device, _files) = device(&[Step::Write(0, &[b'X'; 512])]);
        let mut sectors = [0; 1024];
        device.write(0, &[b'G'; 512]);
        device.guest_read(0, &mut sectors[..512]);
        device.remember(1).unwrap();
        assert_eq!(device.recall(&prefix(1)).unwrap(), Some(1));
        let (mut device, _files) = self::device(&[Step::Write(0, &[b'X'; 512])]);
        device.write(0, &[b'G'; 512]);
        device.guest_read(0, &mut sectors);
        device.remember(1).unwrap();
        assert_eq!(device.recall(&prefix(1)).unwrap(), None);
    }

    #[test]
    fn what_the_host_read_counts_until_the_next_switch() {
        let (mut device, _files) = device(&[Step::Write(8, &[b'Y'; 512])]);
        assert!(device
            .also_read(&[3])
            .unwrap_err()
            .contains("the device has 3"));
        device.also_read(&[1, 2]).unwrap();
        device.remember(1).unwrap();
        assert_eq!(device.recall(&prefix(1)).unwrap(), None);
        device.switch(&prefix(1)).unwrap();
        assert!(device.remember(2).unwrap_err().contains("nothing was read"));
        device.also_read(&[0]).unwrap();
        assert_eq!(device.remember(2), Ok(None));
        assert_eq!(device.recall(&prefix(1)).unwrap(), Some(2));
        assert_eq!(device.recall(&prefix(0)).unwrap(), Some(1));
    }

    #[test]
    fn the_base_is_no_place_for_an_image() {
        let (mut device, files) = device(&[]);
        assert!(device.image(&files[0].0).unwrap_err().contains("itself"));
    }

    #[test]
    fn compare_finds_the_first_difference_from_either_side() {
        let (mut device, _files) = device(&[]);
        let log = Scratch::new(&log_bytes(&[Step::Write(8, &[b'X'; 1024])]));
        assert_eq!(device.compare(&log.0).unwrap(), Some(8));
        device.write(8, &[b'X'; 1024]);
        assert_eq!(device.compare(&log.0).unwrap(), None);
        device.write(19, &[b'Y'; 512]);
        assert_eq!(device.compare(&log.0).unwrap(), Some(19));
        device.write(3, &[b'Y'; 512]);
        assert_eq!(device.compare(&log.0).unwrap(), Some(3));
    }
}
