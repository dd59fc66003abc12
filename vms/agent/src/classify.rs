//! Turns a file's bytes into the [`Extent`]s that say where they come from.
//!
//! Contents are classified in 8-byte words at file offsets that are multiples of 8
//! ([`pattern`]). Limits:
//!
//! - A write that began or ended inside a word leaves a word that is partly its own. Bytes 4..8 of a
//!   word hold its place, bytes 2..4 its writer, so such a word may equal the whole word of one of
//!   the two writers; then it is `written` by that one, and the bytes are the same either way.
//!   Otherwise it is `literal`.
//! - Foreign bytes pass for a pattern word with a chance of 1 in 65536 a word.

use powercut_protocol::{
    pattern::{self, POISON, POISON_BLOCK_BYTES, WORD_BYTES},
    Extent, ExtentKind,
};

/// Bytes kept of a stretch of unknown origin. A longer one is `foreign`.
pub const LITERAL_BYTES: usize = 64;

/// Where the bytes of an open extent come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Written(u16),
    /// `distance`: from the file offset to the offset at which the data was written, modulo 2^64.
    Misplaced {
        writer: u16,
        distance: u64,
    },
    Zero,
    Poison(u32),
    Unknown,
    Unreadable(i32),
}

impl Origin {
    fn of_word(word: u64, offset: u64) -> Self {
        if word == 0 {
            return Self::Zero;
        }
        match pattern::decode(word) {
            None => Self::Unknown,
            Some((POISON, block)) => Self::Poison(block),
            Some((writer, place)) if place == place_of(offset) => Self::Written(writer),
            Some((writer, place)) => Self::Misplaced {
                writer,
                distance: (u64::from(place) * WORD_BYTES).wrapping_sub(offset),
            },
        }
    }

    /// The word at `offset` if the extent of this origin continued there.
    fn continued_at(self, offset: u64) -> Option<u64> {
        match self {
            Self::Written(writer) => Some(pattern::word(writer, place_of(offset))),
            Self::Misplaced { writer, distance } => Some(pattern::word(
                writer,
                place_of(offset.wrapping_add(distance)),
            )),
            Self::Zero => Some(0),
            // File blocks lie on whole device blocks: the next one would hold another block's poison.
            Self::Poison(block) if !offset.is_multiple_of(POISON_BLOCK_BYTES) => {
                Some(pattern::word(POISON, block))
            }
            Self::Poison(_) | Self::Unknown | Self::Unreadable(_) => None,
        }
    }
}

/// A place has 32 bits: offsets beyond 32 GiB wrap, as they do in [`pattern::fill`].
const fn place_of(offset: u64) -> u32 {
    (offset / WORD_BYTES) as u32
}

/// Takes a file's contents from front to back and returns extents that cover them in order without gaps.
#[derive(Debug, Default)]
pub struct Classifier {
    extents: Vec<Extent>,
    /// Origin and start of the extent that is open at `offset`.
    open: Option<(Origin, u64)>,
    /// First bytes of the open extent, if its origin is unknown.
    head: Vec<u8>,
    offset: u64,
}

impl Classifier {
    /// Take the next bytes. Only the last bytes of the file may end inside a word.
    pub fn bytes(&mut self, bytes: &[u8]) {
        debug_assert!(
            self.offset.is_multiple_of(WORD_BYTES),
            "bytes after the tail"
        );
        let words = bytes.chunks_exact(WORD_BYTES as usize);
        let tail = words.remainder();
        let mut last = None;
        for chunk in words {
            let word = u64::from_le_bytes(chunk.try_into().expect("chunks of a word"));
            // Zeros and poison are the words that repeat: a repeated word extends the open extent.
            if last != Some(word) {
                let origin = Origin::of_word(word, self.offset);
                self.turn_to(origin);
                last = matches!(origin, Origin::Zero | Origin::Poison(_)).then_some(word);
                if origin == Origin::Unknown {
                    self.keep(chunk);
                }
            }
            self.offset += WORD_BYTES;
        }
        if !tail.is_empty() {
            self.tail(tail);
        }
    }

    /// Take `length` zeros of a hole that was not read.
    pub fn hole(&mut self, length: u64) {
        let tail = (length % WORD_BYTES) as usize;
        if length >= WORD_BYTES {
            self.turn_to(Origin::Zero);
            self.offset += length - tail as u64;
        }
        if tail > 0 {
            self.tail(&[0; WORD_BYTES as usize][..tail]);
        }
    }

    /// Take `length` bytes that read(2) refused with `errno`.
    pub fn unreadable(&mut self, length: u64, errno: i32) {
        self.turn_to(Origin::Unreadable(errno));
        self.offset += length;
    }

    /// Finished extents so far, without the open one.
    pub fn closed_extents(&self) -> usize {
        self.extents.len()
    }

    /// The extents of everything taken.
    pub fn finish(mut self) -> Vec<Extent> {
        self.close();
        self.extents
    }

    /// The partial word at the end of a file extends the extent before it if it matches.
    fn tail(&mut self, bytes: &[u8]) {
        let continued = self
            .open
            .and_then(|(origin, _)| origin.continued_at(self.offset))
            .is_some_and(|word| word.to_le_bytes().starts_with(bytes));
        if !continued {
            let zeros = bytes.iter().all(|b| *b == 0);
            self.turn_to(if zeros { Origin::Zero } else { Origin::Unknown });
            if !zeros {
                self.keep(bytes);
            }
        }
        self.offset += bytes.len() as u64;
    }

    /// Extend the open extent if it has this origin, else begin another.
    fn turn_to(&mut self, origin: Origin) {
        if self.open.is_some_and(|(open, _)| open == origin) {
            return;
        }
        self.close();
        self.open = Some((origin, self.offset));
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = LITERAL_BYTES - self.head.len();
        self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn close(&mut self) {
        let Some((origin, start)) = self.open.take() else {
            return;
        };
        let length = self.offset - start;
        let (kind, value, source) = match origin {
            Origin::Written(writer) => (ExtentKind::Written, u64::from(writer), 0),
            Origin::Misplaced { writer, distance } => (
                ExtentKind::Misplaced,
                u64::from(writer),
                start.wrapping_add(distance),
            ),
            Origin::Zero => (ExtentKind::Zero, 0, 0),
            Origin::Poison(block) => (ExtentKind::Poison, u64::from(block), 0),
            Origin::Unknown if length <= LITERAL_BYTES as u64 => (ExtentKind::Literal, 0, 0),
            Origin::Unknown => (ExtentKind::Foreign, 0, 0),
            Origin::Unreadable(errno) => {
                (ExtentKind::Unreadable, u64::from(errno.unsigned_abs()), 0)
            }
        };
        self.extents.push(Extent {
            kind,
            start,
            length,
            value,
            origin: source,
            data: std::mem::take(&mut self.head),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The extents of `bytes`, taken in pieces of `piece` bytes (a multiple of 8).
    fn classify(bytes: &[u8], piece: usize) -> Vec<Extent> {
        let mut classifier = Classifier::default();
        bytes.chunks(piece).for_each(|p| classifier.bytes(p));
        classifier.finish()
    }

    fn extent(kind: ExtentKind, start: u64, length: u64, value: u64) -> Extent {
        Extent {
            kind,
            start,
            length,
            value,
            ..Extent::default()
        }
    }

    fn written(writer: u16, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        pattern::fill(writer, offset, &mut bytes);
        bytes
    }

    fn poison(block: u32, length: usize) -> Vec<u8> {
        let word = pattern::word(POISON, block).to_le_bytes();
        word.into_iter().cycle().take(length).collect()
    }

    #[test]
    fn nothing_gives_no_extents() {
        assert_eq!(classify(&[], 8), []);
    }

    #[test]
    fn one_write_is_one_extent_however_it_is_cut() {
        let bytes = written(3, 0, 8192);
        for piece in [8, 64, 4096, 8192] {
            assert_eq!(
                classify(&bytes, piece),
                [extent(ExtentKind::Written, 0, 8192, 3)]
            );
        }
    }

    #[test]
    fn a_tail_inside_a_word_goes_with_the_write_before_it() {
        for length in 8..32 {
            let bytes = written(5, 0, length);
            assert_eq!(
                classify(&bytes, 64),
                [extent(ExtentKind::Written, 0, length as u64, 5)]
            );
        }
    }

    #[test]
    fn a_file_shorter_than_a_word_is_literal() {
        let bytes = written(5, 0, 5);
        let mut expected = extent(ExtentKind::Literal, 0, 5, 0);
        expected.data.clone_from(&bytes);
        assert_eq!(classify(&bytes, 8), [expected]);
    }

    #[test]
    fn another_tail_is_zero_or_literal() {
        let mut bytes = written(5, 0, 11);
        bytes[8..].fill(0);
        assert_eq!(
            classify(&bytes, 16),
            [
                extent(ExtentKind::Written, 0, 8, 5),
                extent(ExtentKind::Zero, 8, 3, 0)
            ]
        );
        bytes[8..].fill(b'x');
        let mut tail = extent(ExtentKind::Literal, 8, 3, 0);
        tail.data = b"xxx".to_vec();
        assert_eq!(
            classify(&bytes, 16),
            [extent(ExtentKind::Written, 0, 8, 5), tail]
        );
    }

    #[test]
    fn data_at_another_offset_is_misplaced_and_says_from_where() {
        let mut bytes = written(2, 4096, 24);
        bytes.extend(written(2, 8192, 16));
        let mut first = extent(ExtentKind::Misplaced, 0, 24, 2);
        first.origin = 4096;
        let mut second = extent(ExtentKind::Misplaced, 24, 16, 2);
        second.origin = 8192;
        assert_eq!(classify(&bytes, 40), [first, second]);
    }

    #[test]
    fn data_from_an_earlier_offset_is_misplaced_too() {
        let mut bytes = vec![0; 64];
        bytes.extend(written(2, 8, 19));
        let mut moved = extent(ExtentKind::Misplaced, 64, 19, 2);
        moved.origin = 8;
        assert_eq!(
            classify(&bytes, 128),
            [extent(ExtentKind::Zero, 0, 64, 0), moved]
        );
    }

    #[test]
    fn poison_is_told_by_device_block() {
        let mut bytes = poison(70, 4096);
        bytes.extend(poison(71, 4096));
        bytes.extend(poison(9, 6));
        let mut tail = extent(ExtentKind::Literal, 8192, 6, 0);
        tail.data = poison(9, 6);
        assert_eq!(
            classify(&bytes, 16384),
            [
                extent(ExtentKind::Poison, 0, 4096, 70),
                extent(ExtentKind::Poison, 4096, 4096, 71),
                tail
            ]
        );
    }

    #[test]
    fn a_poison_tail_in_the_same_block_is_poison() {
        assert_eq!(
            classify(&poison(70, 21), 64),
            [extent(ExtentKind::Poison, 0, 21, 70)]
        );
    }

    #[test]
    fn a_write_inside_words_of_zeros_leaves_literal_ends() {
        let mut bytes = vec![0; 4096];
        pattern::fill(1, 1003, &mut bytes[1003..2027]);
        let mut head = extent(ExtentKind::Literal, 1000, 8, 0);
        head.data = bytes[1000..1008].to_vec();
        let mut tail = extent(ExtentKind::Literal, 2024, 8, 0);
        tail.data = bytes[2024..2032].to_vec();
        let expected = [
            extent(ExtentKind::Zero, 0, 1000, 0),
            head,
            extent(ExtentKind::Written, 1008, 1016, 1),
            tail,
            extent(ExtentKind::Zero, 2032, 4096 - 2032, 0),
        ];
        for piece in [8, 1008, 4096] {
            assert_eq!(classify(&bytes, piece), expected);
        }
    }

    #[test]
    fn a_long_unknown_stretch_is_foreign_and_keeps_its_first_bytes() {
        for (length, kind) in [
            (64, ExtentKind::Literal),
            (65, ExtentKind::Foreign),
            (5000, ExtentKind::Foreign),
        ] {
            let bytes: Vec<u8> = (0..length).map(|i| b'a' + (i % 23) as u8).collect();
            let mut expected = extent(kind, 0, length as u64, 0);
            expected.data = bytes[..64].to_vec();
            for piece in [8, 32, 8192] {
                assert_eq!(classify(&bytes, piece), std::slice::from_ref(&expected));
            }
        }
    }

    #[test]
    fn holes_are_zeros_with_or_without_reading() {
        let mut classifier = Classifier::default();
        classifier.bytes(&written(4, 0, 4096));
        classifier.hole(1 << 40);
        classifier.hole(4099);
        let expected = [
            extent(ExtentKind::Written, 0, 4096, 4),
            extent(ExtentKind::Zero, 4096, (1 << 40) + 4099, 0),
        ];
        assert_eq!(classifier.finish(), expected);
    }

    #[test]
    fn unreadable_blocks_merge_by_errno() {
        let mut classifier = Classifier::default();
        classifier.bytes(&written(4, 0, 4096));
        classifier.unreadable(4096, 5);
        classifier.unreadable(4096, 5);
        classifier.unreadable(4096, 117);
        classifier.bytes(&written(4, 16384, 10));
        let expected = [
            extent(ExtentKind::Written, 0, 4096, 4),
            extent(ExtentKind::Unreadable, 4096, 8192, 5),
            extent(ExtentKind::Unreadable, 12288, 4096, 117),
            extent(ExtentKind::Written, 16384, 10, 4),
        ];
        assert_eq!(classifier.finish(), expected);
    }

    /// Knuth's MMIX generator; good enough to scatter test cases.
    struct Lcg(u64);

    impl Lcg {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % limit
        }
    }

    /// A file of up to 12 KiB after some writes, shifted blocks, poison and noise at odd offsets.
    fn scribble(random: &mut Lcg) -> Vec<u8> {
        let mut bytes = vec![0u8; random.below(12 << 10) as usize + 1];
        let size = bytes.len() as u64;
        for writer in 0..random.below(8) {
            let start = random.below(size);
            let end = start + 1 + random.below((size - start).min(3000));
            let part = &mut bytes[start as usize..end.min(size) as usize];
            match random.below(6) {
                0 => part.iter_mut().for_each(|b| *b = random.below(256) as u8),
                1 => pattern::fill(writer as u16, random.below(99) * 4096 + start, part),
                2 => part.copy_from_slice(&poison(random.below(9) as u32, part.len())),
                _ => pattern::fill(writer as u16, start, part),
            }
        }
        bytes
    }

    /// The bytes that an extent claims; None if it does not say.
    fn claimed(extent: &Extent) -> Option<Vec<u8>> {
        let length = extent.length as usize;
        match extent.kind {
            ExtentKind::Written => Some(written(extent.value as u16, extent.start, length)),
            ExtentKind::Misplaced => Some(written(extent.value as u16, extent.origin, length)),
            ExtentKind::Zero => Some(vec![0; length]),
            ExtentKind::Poison => Some(poison(extent.value as u32, length)),
            ExtentKind::Literal => Some(extent.data.clone()),
            _ => None,
        }
    }

    #[test]
    fn extents_cover_a_scribbled_file_and_claim_only_what_is_there() {
        let mut random = Lcg(1);
        for _ in 0..2000 {
            let bytes = scribble(&mut random);
            let extents = classify(&bytes, 8 << random.below(10));
            let mut at = 0;
            for extent in &extents {
                assert_eq!(extent.start, at, "gap before {extent:?}");
                at += extent.length;
                let there = &bytes[extent.start as usize..at as usize];
                match claimed(extent) {
                    Some(claim) => assert_eq!(claim, there, "{:?}", extent.kind),
                    None => assert_eq!(
                        (extent.kind, &extent.data[..]),
                        (ExtentKind::Foreign, &there[..64])
                    ),
                }
            }
            assert_eq!(at, bytes.len() as u64);
        }
    }

    #[test]
    fn how_a_file_is_cut_makes_no_difference() {
        let mut random = Lcg(2);
        for _ in 0..500 {
            let bytes = scribble(&mut random);
            assert_eq!(
                classify(&bytes, 8 << random.below(10)),
                classify(&bytes, 1 << 20)
            );
        }
    }
}
