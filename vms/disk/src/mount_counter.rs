//! What a file system counts in a structure of its own at each mount: mounts, times, bytes written, where its journal's
//! tail was.
//!
//! Two contents of a block that differ in such fields alone count as alike to whoever remembers outcomes: no
//! recovery looks at them. A structure with a checksum has them only if that fits; so a torn one is like no other.
//! One that is marked stands in any sector that begins with its mark and has zeros where it has to.
//! Only the memory of outcomes uses this. What is shown, hashed as a device, or imaged is exact.

use std::ops::Range;

use powercut_protocol::MountCounter as Told;

use crate::{error::DiskError, Answer, BLOCK_BYTES, SECTOR_BYTES};

/// A structure that counts.
#[derive(Clone)]
pub struct MountCounter {
    place: Place,
    within: Range<usize>,
    fields: Vec<Range<usize>>,
    recounted: Vec<Range<usize>>,
    checksum: Option<usize>,
}

#[derive(Clone)]
enum Place {
    Block(u64),
    Marked {
        mark: Vec<u8>,
        zeros: Vec<Range<usize>>,
    },
}

const CHECKSUM_BYTES: usize = 4;

impl MountCounter {
    /// Check that all of it lies in one block; in one sector, if it is marked.
    ///
    /// # Errors
    /// If it does not.
    pub fn of(told: &Told) -> Answer<Self> {
        let refused = || DiskError::MountCounter { at: told.at };
        let marked = !told.marked.is_empty();
        let room = if marked { SECTOR_BYTES } else { BLOCK_BYTES } as u64;
        let (block, start) = (
            told.at / BLOCK_BYTES as u64,
            (told.at % BLOCK_BYTES as u64) as usize,
        );
        let inside = |at: u64, bytes: u64| {
            let end = at.checked_add(bytes).filter(|end| *end <= told.size_bytes);
            end.map(|end| start + at as usize..start + end as usize)
                .ok_or_else(refused)
        };
        if told.size_bytes > room - start.min(room as usize) as u64 || marked && told.at != 0 {
            return Err(refused());
        }
        let ranges = |of: &[(u64, u64)]| {
            let ranges = of.iter().map(|(at, bytes)| inside(*at, *bytes));
            ranges.collect::<Answer<Vec<_>>>()
        };
        let place = match marked {
            true => Place::Marked {
                mark: told.marked[inside(0, told.marked.len() as u64)?].to_vec(),
                zeros: ranges(&told.zeros)?,
            },
            false => Place::Block(block),
        };
        let checksum = told.crc32c_at.map(|at| inside(at, CHECKSUM_BYTES as u64));
        Ok(MountCounter {
            place,
            within: inside(0, told.size_bytes)?,
            fields: ranges(&told.fields)?,
            recounted: ranges(&told.recounted)?,
            checksum: checksum.transpose()?.map(|range| range.start),
        })
    }

    /// The block that it stands in; `None`: any.
    #[must_use]
    pub fn block(&self) -> Option<u64> {
        match self.place {
            Place::Block(block) => Some(block),
            Place::Marked { .. } => None,
        }
    }

    /// Blank what it counts in this content of a block, unless its checksum does not fit. `recovers`: a mount is yet
    /// to come, so that what it counts anew is blanked as well. Returns whether it may stand there.
    pub fn blank(&self, content: &mut [u8], recovers: bool) -> bool {
        let Place::Marked { mark, zeros } = &self.place else {
            self.blank_one(content, recovers);
            return true;
        };
        let mut found = false;
        for sector in content.chunks_exact_mut(SECTOR_BYTES) {
            let empty = |range: &Range<usize>| sector[range.clone()].iter().all(|byte| *byte == 0);
            if sector.starts_with(mark) && zeros.iter().all(empty) {
                self.blank_one(sector, recovers);
                found = true;
            }
        }
        found
    }

    fn blank_one(&self, content: &mut [u8], recovers: bool) {
        if let Some(at) = self.checksum {
            let told = &content[at..at + CHECKSUM_BYTES];
            if told != crc32c(&content[self.within.start..at]).to_le_bytes() {
                return;
            }
            content[at..at + CHECKSUM_BYTES].fill(0);
        }
        let recounted = self.recounted.iter().filter(|_| recovers);
        for field in self.fields.iter().chain(recounted) {
            content[field.clone()].fill(0);
        }
    }
}

/// CRC-32C without a final inversion, as ext4 and jbd2 keep it.
fn crc32c(data: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    data.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (POLYNOMIAL & (crc & 1).wrapping_neg())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount_counter() -> MountCounter {
        let told = Told {
            at: 4096 + 100,
            size_bytes: 40,
            marked: vec![],
            zeros: vec![],
            fields: vec![(4, 2), (10, 1)],
            recounted: vec![(12, 1)],
            crc32c_at: Some(36),
        };
        MountCounter::of(&told).unwrap()
    }

    fn holding(count: u8, other: u8) -> Vec<u8> {
        let mut content = vec![0; BLOCK_BYTES];
        (content[104], content[110], content[120]) = (count, count, other);
        let sum = crc32c(&content[100..136]).to_le_bytes();
        content[136..140].copy_from_slice(&sum);
        content
    }

    fn blanked(mut content: Vec<u8>) -> Vec<u8> {
        mount_counter().blank(&mut content, false);
        content
    }

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        assert_eq!(!crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn contents_that_differ_in_what_is_counted_are_alike_and_no_others() {
        assert_eq!(mount_counter().block(), Some(1));
        assert_eq!(blanked(holding(1, 0)), blanked(holding(2, 0)));
        assert_ne!(blanked(holding(1, 0)), blanked(holding(1, 1)));
    }

    #[test]
    fn what_is_counted_anew_is_blanked_where_a_mount_is_to_come() {
        let (mut one, mut other) = (holding(1, 0), holding(1, 0));
        other[112] = 9;
        let sum = crc32c(&other[100..136]).to_le_bytes();
        other[136..140].copy_from_slice(&sum);
        assert_ne!(blanked(one.clone()), blanked(other.clone()));
        mount_counter().blank(&mut one, true);
        mount_counter().blank(&mut other, true);
        assert_eq!(one, other);
    }

    #[test]
    fn a_content_whose_checksum_does_not_fit_is_like_no_other() {
        let mut torn = holding(1, 0);
        torn[110] = 7;
        assert_eq!(blanked(torn.clone()), torn);
    }

    #[test]
    fn what_is_not_in_one_block_is_refused() {
        for (at, bytes, field) in [(4000, 200, (0, 1)), (0, 8, (7, 2)), (0, 8, (u64::MAX, 2))] {
            let fields = vec![field];
            let crc32c_at = None;
            assert!(MountCounter::of(&Told {
                at,
                size_bytes: bytes,
                fields,
                crc32c_at,
                ..Told::default()
            })
            .is_err());
        }
    }

    fn marked() -> Told {
        Told {
            size_bytes: 512,
            marked: vec![0xfe, 0xed],
            zeros: vec![(12, 4)],
            fields: vec![(24, 8)],
            ..Told::default()
        }
    }

    #[test]
    fn a_marked_one_is_blanked_in_every_sector_that_it_stands_in() {
        let mount_counter = MountCounter::of(&marked()).unwrap();
        assert_eq!(mount_counter.block(), None);
        let record = |sector: usize, length: u8, counted: u8| {
            let mut content = vec![0; BLOCK_BYTES];
            let at = sector * SECTOR_BYTES;
            content[at..at + 2].copy_from_slice(&[0xfe, 0xed]);
            (content[at + 12], content[at + 24]) = (length, counted);
            content
        };
        for sector in [0, 3, 7] {
            let (mut one, mut other) = (record(sector, 0, 1), record(sector, 0, 2));
            assert!(mount_counter.blank(&mut one, false) && mount_counter.blank(&mut other, false));
            assert_eq!(one, other);
        }
        let mut full = record(3, 1, 5);
        assert!(!mount_counter.blank(&mut full, true));
        assert_eq!(full, record(3, 1, 5));
        let mut shifted = record(3, 0, 5);
        shifted.rotate_right(16);
        assert!(!mount_counter.blank(&mut shifted, true));
    }

    #[test]
    fn a_marked_one_that_does_not_fit_a_sector_is_refused() {
        let refused = |change: fn(&mut Told)| {
            let mut told = marked();
            change(&mut told);
            MountCounter::of(&told).is_err()
        };
        assert!(refused(|told| told.size_bytes = 513));
        assert!(refused(|told| told.at = 8));
        assert!(refused(|told| told.zeros = vec![(510, 3)]));
        assert!(refused(|told| told.marked = vec![1; 513]));
    }
}
