//! The state shown, with the guest's writes on top: what every reader sees.

use std::{fs::File, os::unix::fs::MetadataExt, path::Path};

use memmap2::Mmap;
use powercut_protocol::{MountCounter as Told, State};
use xxhash_rust::xxh3::xxh3_128;

use crate::{
    error::{DiskError, OrderError},
    hash::contribution,
    index::{base_sector, Index},
    log::{map_file, Log, Order},
    mount_counter::MountCounter,
    overlay::Overlay,
    recipe::Recipe,
    Answer, BLOCK_BYTES, BLOCK_SECTORS, SECTOR_BYTES,
};

/// A file as it is: device, inode, bytes, and when it was last written.
pub type Identity = (u64, u64, u64, i64, i64);

fn identity(path: &Path, file: &File) -> Answer<Identity> {
    let meta = file.metadata().map_err(DiskError::file("stat", path))?;
    let written = (meta.mtime(), meta.mtime_nsec());
    Ok((meta.dev(), meta.ino(), meta.len(), written.0, written.1))
}

/// Base image, log, state and overlay. Callers check sector numbers and ranges with [`View::holds`].
pub struct View {
    base: Mmap,
    base_file: File,
    base_identity: Identity,
    pub index: Index,
    pub recipe: Recipe,
    pub overlay: Overlay,
    mount_counters: Vec<MountCounter>,
}

impl View {
    /// The base image with nothing of the log on it: the state of 0 entries.
    ///
    /// # Errors
    /// If a file cannot be mapped, the log is not one, or base, log and order do not fit each other.
    pub fn open(base: &Path, log: Option<&Path>, order: Option<Order>) -> Answer<Self> {
        let (map, base_file) = map_file(base)?;
        if map.len() % SECTOR_BYTES != 0 {
            return Err(DiskError::BrokenSector {
                path: base.to_path_buf(),
                bytes: map.len(),
            });
        }
        let log = match (log, order) {
            (Some(path), _) => Log::open_in_order(path, (map.len() / SECTOR_BYTES) as u64, order)?,
            (None, None) => Log::empty(),
            (None, Some(_)) => {
                return Err(DiskError::Order {
                    path: base.to_path_buf(),
                    source: OrderError::NoLog,
                })
            }
        };
        let base_identity = identity(base, &base_file)?;
        Ok(View {
            base_identity,
            index: Index::new(log, &map)?,
            base: map,
            base_file,
            recipe: Recipe::default(),
            overlay: Overlay::default(),
            mount_counters: Vec::new(),
        })
    }

    /// Contents of blocks that differ in what is counted alone are alike from now on; see [`MountCounter`].
    ///
    /// # Errors
    /// If a structure is not in one block of the device.
    pub fn count(&mut self, told: &[Told]) -> Answer<()> {
        let mount_counters = told
            .iter()
            .map(MountCounter::of)
            .collect::<Answer<Vec<_>>>()?;
        let held = |mount_counter: &MountCounter| {
            let first = mount_counter.block().unwrap_or_default();
            self.holds(first.saturating_mul(BLOCK_SECTORS), BLOCK_SECTORS)
        };
        if let Some(at) = mount_counters
            .iter()
            .position(|mount_counter| !held(mount_counter))
        {
            return Err(DiskError::MountCounter { at: told[at].at });
        }
        self.index.count(&mount_counters, &self.base);
        self.mount_counters = mount_counters;
        Ok(())
    }

    /// Tells base images apart.
    #[must_use]
    pub fn base_identity(&self) -> Identity {
        self.base_identity
    }

    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.base.len() as u64
    }

    #[must_use]
    pub fn sectors(&self) -> u64 {
        (self.base.len() / SECTOR_BYTES) as u64
    }

    /// Entries in the log, or chunks.
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
    ///
    /// # Errors
    /// If the state does not fit the log; then nothing changes.
    pub fn switch(&mut self, state: &State) -> Answer<()> {
        self.recipe = self.index.recipe(state)?;
        self.overlay.clear();
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

    /// xxh3-128 of each 4 KiB block as the guest sees it, less what is counted, little-endian, one after the other.
    ///
    /// # Errors
    /// If a block is not wholly on the device.
    pub fn block_hashes(&self, blocks: &[u64]) -> Answer<Vec<u8>> {
        let mut hashes = Vec::with_capacity(blocks.len() * 16);
        let mut content = [0u8; BLOCK_BYTES];
        for &block in blocks {
            let first = block.saturating_mul(BLOCK_SECTORS);
            if !self.holds(first, BLOCK_SECTORS) {
                return Err(DiskError::BehindEnd {
                    block,
                    blocks: self.sectors() / BLOCK_SECTORS,
                });
            }
            self.read(first, &mut content);
            let here =
                |mount_counter: &&MountCounter| mount_counter.block().is_none_or(|of| of == block);
            for mount_counter in self.mount_counters.iter().filter(here) {
                mount_counter.blank(&mut content, false);
            }
            hashes.extend_from_slice(&xxh3_128(&content).to_le_bytes());
        }
        Ok(hashes)
    }

    /// Fill `out`, whole sectors, with the content from `sector` on.
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

    /// Blocks in which the state differs from the base, whatever the guest wrote, ascending.
    #[must_use]
    pub fn state_blocks(&self) -> Vec<u64> {
        let differs = |block: &u64| self.index.content(&self.recipe, *block) != 0;
        let mut blocks: Vec<u64> = self.index.blocks().filter(differs).collect();
        blocks.sort_unstable();
        blocks
    }

    /// The first sector of a block, and the block's content in the state, whatever the guest wrote. The last block of
    /// a device may be shorter than others.
    #[must_use]
    pub fn state_block(&self, block: u64) -> (u64, Vec<u8>) {
        let first = block * BLOCK_SECTORS;
        let sectors = first..self.sectors().min(first + BLOCK_SECTORS);
        let content = sectors.map(|s| self.index.sector(&self.recipe, &self.base, s));
        (first, content.collect::<Vec<_>>().concat())
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

    /// The first sector in which the device differs from the base after the whole of the log at `path`, applied
    /// in `order`.
    pub fn compare(&self, path: &Path, order: Option<Order>) -> Answer<Option<u64>> {
        let log = Log::open_in_order(path, self.sectors(), order)?;
        let other = Index::new(log, &self.base)?;
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
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::{
        device::Device,
        log::build::{log_bytes, Scratch, Step},
    };

    fn grown(bytes: &[u8], length: u64) -> (Scratch, File) {
        let scratch = Scratch::new(bytes);
        let file = File::options().write(true).open(&scratch.0).unwrap();
        file.set_len(length).unwrap();
        (scratch, file)
    }

    fn prefix(prefix: u64) -> State {
        State {
            prefix,
            ..State::default()
        }
    }

    /// 2 TiB: sector numbers of more than 32 bits, in the log, from the guest, and in an image.
    #[test]
    fn sectors_behind_the_first_2_to_the_32_are_told_apart() {
        const FAR: u64 = (1 << 32) + 3;
        let (base, _file) = grown(b"", (FAR + 13) * 512);
        let steps = [Step::Write(FAR, &[b'X'; 1024]), Step::Discard(FAR + 1, 12)];
        let log = Scratch::new(&log_bytes(&steps));
        let mut device = Device::open(&base.0, Some(&log.0), None).unwrap();
        device.switch(&prefix(1)).unwrap();
        device.write(FAR + 12, &[b'G'; 512]);
        let letter = |device: &Device, sector| device.view().sector(sector)[0];
        assert_eq!(letter(&device, FAR), b'X');
        assert_eq!(letter(&device, FAR + 1), b'X');
        assert_eq!(letter(&device, FAR + 12), b'G');
        assert_eq!(letter(&device, 3), 0);
        let (image, _file) = grown(b"", 0);
        device.image(&image.0).unwrap();
        let mut found = [0xee; 2048];
        let file = File::open(&image.0).unwrap();
        file.read_exact_at(&mut found, (FAR - 1) * 512).unwrap();
        assert_eq!(
            found,
            *[[0; 512], [b'X'; 512], [b'X'; 512], [0; 512]].concat()
        );
        device.switch(&prefix(2)).unwrap();
        assert_eq!(letter(&device, FAR), b'X');
        assert_eq!(letter(&device, FAR + 1), 0);
    }

    #[test]
    fn a_log_may_be_longer_than_4_gib() {
        const SKIPPED: u64 = 9 << 20;
        let mut bytes = log_bytes(&[Step::Mark("long")]);
        bytes[16] = 2;
        bytes[512 + 8..512 + 16].copy_from_slice(&SKIPPED.to_le_bytes());
        let second = bytes.len() as u64 + SKIPPED * 512;
        let (log, file) = grown(&bytes, second + 1024);
        let last = log_bytes(&[Step::Write(5, &[b'X'; 512])]);
        file.write_all_at(&last[512..], second).unwrap();
        let base = Scratch::new(&[b'.'; 8 * 512]);
        let mut view = View::open(&base.0, Some(&log.0), None).unwrap();
        view.switch(&prefix(2)).unwrap();
        let letters: Vec<u8> = (0..8).map(|sector| view.sector(sector)[0]).collect();
        assert_eq!(letters, b".....X..");
        file.set_len(second + 1023).unwrap();
        assert!(View::open(&base.0, Some(&log.0), None).is_err());
    }
}
