//! A device to come back to: what the guest wrote until then, and which of its blocks were read since.
//!
//! Whoever writes to a recovered file system only to see whether that works must leave nothing behind: fsck and the
//! memo see what recovery left. What happens in a snapshot depends only on the blocks that it returns, with the
//! contents that they have on the device when the snapshot is over.

use crate::{
    memo::ReadSet,
    overlay::{Overlay, Written},
    BLOCK_SECTORS,
};

/// What was there at the snapshot, and what has happened since.
pub struct Snapshot {
    before: Overlay,
    /// Sectors overwritten since, a bit each.
    written: Written,
    reads: ReadSet,
}

impl Snapshot {
    /// Snapshot a device with these writes of the guest.
    #[must_use]
    pub fn of(overlay: &Overlay) -> Self {
        Snapshot {
            before: overlay.clone(),
            written: Written::default(),
            reads: ReadSet::default(),
        }
    }

    /// These sectors were read.
    pub fn read(&mut self, sector: u64, count: u64) {
        for (block, asked) in by_block(sector, count) {
            let written = self.written.get(&block).copied().unwrap_or(0);
            if asked & !written != 0 {
                self.reads.add(block, false);
            }
        }
    }

    /// These sectors were overwritten.
    pub fn wrote(&mut self, sector: u64, count: u64) {
        for (block, sectors) in by_block(sector, count) {
            *self.written.entry(block).or_default() |= sectors;
        }
    }

    /// The guest's writes before the snapshot, and the blocks read since, in order.
    #[must_use]
    pub fn end(self) -> (Overlay, Vec<u64>) {
        let blocks = self.reads.reads().iter().map(|read| read.block).collect();
        (self.before, blocks)
    }
}

/// The blocks that `count` sectors from `sector` lie in, each with a bit for each of its sectors among them.
fn by_block(sector: u64, count: u64) -> impl Iterator<Item = (u64, u8)> {
    let end = sector + count;
    (sector / BLOCK_SECTORS..end.div_ceil(BLOCK_SECTORS)).map(move |block| {
        let first = block * BLOCK_SECTORS;
        let sectors = (0..BLOCK_SECTORS).filter(|i| (sector..end).contains(&(first + i)));
        (block, sectors.fold(0, |bits, i| bits | 1 << i))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The blocks that count as read after these sectors were overwritten, and those read: (first, count).
    fn read_behind(wrote: (u64, u64), read: (u64, u64)) -> Vec<u64> {
        let mut snapshot = Snapshot::of(&Overlay::default());
        snapshot.wrote(wrote.0, wrote.1);
        snapshot.read(read.0, read.1);
        snapshot.end().1
    }

    #[test]
    fn a_block_is_read_unless_all_that_was_asked_for_is_overwritten() {
        assert!(read_behind((0, 8), (3, 2)).is_empty());
        assert_eq!(read_behind((0, 7), (7, 1)), [0]);
        assert_eq!(read_behind((1, 7), (0, 1)), [0]);
        assert_eq!(read_behind((4, 8), (3, 6)), [0]);
        assert_eq!(read_behind((4, 8), (4, 9)), [1]);
    }
}
