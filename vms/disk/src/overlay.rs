//! What the guest wrote since the last switch: sparse, by sector, in blocks of 4 KiB.

use crate::{BlockMap, BLOCK_BYTES, BLOCK_SECTORS, SECTOR_BYTES};

/// Blocks that may hold data at once: 4 GiB, more than a state's recovery writes. A guest that writes all of
/// a large device must not exhaust the host's memory.
const DATA_BLOCKS_MAX: u64 = 1 << 20;
/// Blocks that may be kept in all, zeros without data included: 64 GiB of the device, 0.7 GB of memory.
const BLOCKS_MAX: u64 = 1 << 24;

/// Bit i of a block is set when its sector i was written.
pub type Written = BlockMap<u8>;

/// A block of which some sectors were written. Without data, those sectors are zeros.
#[derive(Clone)]
struct Block {
    written: u8,
    data: Option<Box<[u8; BLOCK_BYTES]>>,
}

/// The guest's writes.
#[derive(Clone, Default)]
pub struct Overlay {
    blocks: BlockMap<Block>,
    /// How many of them have data.
    with_data: u64,
}

impl Overlay {
    /// Forget everything. Costs in proportion to what had been written.
    pub fn clear(&mut self) {
        // a new map, so that one state that wrote a lot does not slow down every later clear
        *self = Self::default();
    }

    /// Whether `count` sectors from `sector` can be written, or, without `data`, zeroed. Counted as if none
    /// of their blocks were kept yet.
    #[must_use]
    pub fn has_room(&self, sector: u64, count: u64, data: bool) -> bool {
        let end = sector.saturating_add(count);
        let more = end.div_ceil(BLOCK_SECTORS) - sector / BLOCK_SECTORS;
        let fits = |have: u64, limit| have.saturating_add(more) <= limit;
        fits(self.blocks.len() as u64, BLOCKS_MAX)
            && (!data || fits(self.with_data, DATA_BLOCKS_MAX))
    }

    /// The content of `sector`, if it was written.
    #[must_use]
    pub fn sector(&self, sector: u64) -> Option<&[u8]> {
        let block = self.blocks.get(&(sector / BLOCK_SECTORS))?;
        let within = sector % BLOCK_SECTORS;
        if block.written & (1 << within) == 0 {
            return None;
        }
        let start = within as usize * SECTOR_BYTES;
        Some(match &block.data {
            Some(data) => &data[start..start + SECTOR_BYTES],
            None => &[0; SECTOR_BYTES],
        })
    }

    /// Bit i is set when sector i of the block was written.
    #[must_use]
    pub fn written(&self, block: u64) -> u8 {
        self.blocks.get(&block).map_or(0, |b| b.written)
    }

    /// Write `data`, whole sectors, at `sector`.
    pub fn write(&mut self, sector: u64, data: &[u8]) {
        for (number, content) in (sector..).zip(data.chunks_exact(SECTOR_BYTES)) {
            let mut new = false;
            let block = self.entry(number / BLOCK_SECTORS);
            let within = number % BLOCK_SECTORS;
            let start = within as usize * SECTOR_BYTES;
            block.written |= 1 << within;
            let bytes = block.data.get_or_insert_with(|| {
                new = true;
                Box::new([0; BLOCK_BYTES])
            });
            bytes[start..start + SECTOR_BYTES].copy_from_slice(content);
            self.with_data += u64::from(new);
        }
    }

    /// Zero `count` sectors from `sector`.
    pub fn zero(&mut self, sector: u64, count: u64) {
        let end = sector + count;
        let mut at = sector;
        while at < end {
            let number = at / BLOCK_SECTORS;
            let stop = end.min((number + 1) * BLOCK_SECTORS);
            let block = self.entry(number);
            for s in at..stop {
                let within = s % BLOCK_SECTORS;
                block.written |= 1 << within;
                if let Some(data) = &mut block.data {
                    let start = within as usize * SECTOR_BYTES;
                    data[start..start + SECTOR_BYTES].fill(0);
                }
            }
            at = stop;
        }
    }

    fn entry(&mut self, block: u64) -> &mut Block {
        self.blocks.entry(block).or_insert(Block {
            written: 0,
            data: None,
        })
    }

    /// The blocks that hold a written sector, in no order.
    pub fn blocks(&self) -> impl Iterator<Item = u64> + '_ {
        self.blocks.keys().copied()
    }

    /// The written sectors, in no order.
    pub fn sectors(&self) -> impl Iterator<Item = u64> + '_ {
        self.blocks.iter().flat_map(|(number, block)| {
            let (first, written) = (number * BLOCK_SECTORS, block.written);
            (0..BLOCK_SECTORS)
                .filter(move |i| written & (1 << i) != 0)
                .map(move |i| first + i)
        })
    }

    /// Bytes of memory that the written data takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.with_data * BLOCK_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_sectors_across_blocks() {
        let mut overlay = Overlay::default();
        overlay.write(7, &[9; 1024]);
        assert_eq!(overlay.sector(7), Some(&[9u8; 512][..]));
        assert_eq!(overlay.sector(8), Some(&[9u8; 512][..]));
        assert_eq!(overlay.sector(6), None);
        assert_eq!((overlay.written(0), overlay.written(1)), (0x80, 0x01));
        let mut sectors: Vec<_> = overlay.sectors().collect();
        sectors.sort_unstable();
        assert_eq!(sectors, [7, 8]);
    }

    /// The guest writes what it likes; the device may be larger than the host's memory.
    #[test]
    fn room_has_a_limit_for_data_and_for_zeros() {
        let mut overlay = Overlay::default();
        let blocks = |n| n * BLOCK_SECTORS;
        assert!(overlay.has_room(0, blocks(DATA_BLOCKS_MAX), true));
        assert!(!overlay.has_room(1, blocks(DATA_BLOCKS_MAX), true));
        assert!(overlay.has_room(0, blocks(BLOCKS_MAX), false));
        overlay.write(0, &[1; 512]);
        overlay.zero(0, 16);
        assert!(!overlay.has_room(0, blocks(DATA_BLOCKS_MAX), true));
        assert!(overlay.has_room(0, blocks(DATA_BLOCKS_MAX - 1), true));
        assert!(!overlay.has_room(0, blocks(BLOCKS_MAX - 1), false));
        assert!(!overlay.has_room(0, u64::MAX, false));
    }

    #[test]
    fn zeros_hide_data_and_take_no_room_of_their_own() {
        let mut overlay = Overlay::default();
        overlay.write(1, &[9; 512]);
        overlay.zero(0, 800);
        assert_eq!(overlay.sector(1), Some(&[0u8; 512][..]));
        assert_eq!(overlay.sector(799), Some(&[0u8; 512][..]));
        assert_eq!(overlay.sector(800), None);
        assert_eq!(overlay.bytes(), 4096);
        overlay.write(9, &[5; 512]);
        assert_eq!(overlay.sector(8), Some(&[0u8; 512][..]));
        assert_eq!(overlay.sector(9), Some(&[5u8; 512][..]));
        overlay.clear();
        assert_eq!((overlay.sector(9), overlay.bytes()), (None, 0));
    }
}
