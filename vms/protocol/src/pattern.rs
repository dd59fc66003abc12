//! Data that encodes where it comes from.
//!
//! Everything is built of 8-byte words (little-endian `u64`), so that a walk can name the origin of
//! any stretch of a file without knowing what was meant to be there:
//!
//! ```text
//! bits  0..16  check    folded splitmix64 of the other 48 bits, so that metadata is not taken for data
//! bits 16..32  writer   index of the operation that wrote it; 0xffff: poison
//! bits 32..64  place    file offset / 8; for poison the number of the 4 KiB device block
//! ```
//!
//! A write that begins or ends inside a word writes only the bytes that it covers.

/// Writer number of the poison that fills the device before mkfs.
pub const POISON: u16 = 0xffff;
/// Bytes in a word.
pub const WORD_BYTES: u64 = 8;
/// Poison is constant within a block of this many bytes.
pub const POISON_BLOCK_BYTES: u64 = 4096;

/// The word of `writer` at `place`.
#[must_use]
pub const fn word(writer: u16, place: u32) -> u64 {
    let body = ((place as u64) << 32) | ((writer as u64) << 16);
    body | check(body) as u64
}

/// `(writer, place)` of a word that carries a valid check.
#[must_use]
pub const fn decode(word: u64) -> Option<(u16, u32)> {
    if check(word & !0xffff) == (word & 0xffff) as u16 {
        Some(((word >> 16) as u16, (word >> 32) as u32))
    } else {
        None
    }
}

/// splitmix64 (Steele, Lea, Flood 2014), folded to 16 bits. Zero has no valid check, so zeros are not data.
const fn check(body: u64) -> u16 {
    let mut z = body.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    z ^= z >> 32;
    ((z ^ (z >> 16)) & 0xffff) as u16
}

/// The bytes that `writer` writes at file offset `offset`.
pub fn fill(writer: u16, offset: u64, out: &mut [u8]) {
    let mut at = offset;
    let mut rest = out;
    while !rest.is_empty() {
        let bytes = word(writer, (at / WORD_BYTES) as u32).to_le_bytes();
        let skip = (at % WORD_BYTES) as usize;
        let n = rest.len().min(bytes.len() - skip);
        let (head, tail) = rest.split_at_mut(n);
        head.copy_from_slice(&bytes[skip..skip + n]);
        rest = tail;
        at += n as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_decode_to_what_they_were_made_of() {
        for (writer, place) in [(0, 0), (1, 0), (7, 512), (0xfffe, u32::MAX), (POISON, 3)] {
            assert_eq!(decode(word(writer, place)), Some((writer, place)));
        }
    }

    #[test]
    fn zeros_are_no_data() {
        assert_eq!(decode(0), None);
    }

    #[test]
    fn fill_at_an_odd_offset_agrees_with_the_whole() {
        let mut whole = [0u8; 64];
        fill(9, 0, &mut whole);
        let mut part = [0u8; 21];
        fill(9, 13, &mut part);
        assert_eq!(part, whole[13..34]);
    }
}
