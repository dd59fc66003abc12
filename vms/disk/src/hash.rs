//! Content hashes.
//!
//! The hash of a device is the sum, modulo 2^128, of one contribution per sector. A sector whose content
//! equals the base contributes nothing; any other contributes xxh3-128 of its content seeded with its
//! number. So equal contents have equal hashes however they were written, a change costs one subtraction
//! and one addition, and hashes compare only between states of the same base image.

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// What `sector` adds to the hash of the device when it holds `content` and the base holds `base`.
#[must_use]
pub fn contribution(sector: u64, content: &[u8], base: &[u8]) -> u128 {
    if content == base {
        0
    } else {
        xxh3_128_with_seed(content, sector)
    }
}

/// 32 hexadecimal digits.
#[must_use]
pub fn text(hash: u128) -> String {
    format!("{hash:032x}")
}
