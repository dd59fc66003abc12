//! The disk: one virtio block device that shows any crash state of a write log.
//!
//! Modelled: a base image, on top of it those writes of a dm-log-writes log that the chosen state
//! has, and the guest's own writes in an overlay that the next switch drops. Neither the base nor the
//! log is ever written. Not checked: whether the log is what the recorded device really saw (the host
//! requests that with `Compare`), and whether files change under the process (they must not).

pub mod alternatives;
pub mod asleep;
pub mod block;
pub mod control;
pub mod device;
pub mod error;
pub mod explore;
#[cfg(test)]
mod explore_properties;
pub mod fault;
pub mod guest_log;
pub mod hash;
pub mod hold;
pub mod image;
pub mod index;
pub mod log;
pub mod memo;
pub mod memory;
pub mod mount_counter;
pub mod overlay;
#[cfg(test)]
mod properties;
pub mod recipe;
pub mod relay;
pub mod snapshot;
pub mod vhost;
pub mod view;
pub mod window;

/// The unit of virtio-blk, and the smallest piece that reaches the platter whole.
pub const SECTOR_BYTES: usize = 512;
/// The unit of the index, the overlay and the image.
pub const BLOCK_BYTES: usize = 4096;
/// Sectors in a block.
pub const BLOCK_SECTORS: u64 = (BLOCK_BYTES / SECTOR_BYTES) as u64;

/// The result of a request.
pub type Answer<T> = Result<T, error::DiskError>;

/// A map from block numbers.
pub type BlockMap<T> = std::collections::HashMap<u64, T, BlockHasherBuilder>;

/// Hashes block numbers by one multiplication (Fibonacci hashing): they come from a trusted log, and
/// every sector read from the device needs one.
#[derive(Clone, Copy, Default)]
pub struct BlockHasher(u64);

/// Makes [`BlockHasher`]s.
pub type BlockHasherBuilder = std::hash::BuildHasherDefault<BlockHasher>;

impl std::hash::Hasher for BlockHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // hashbrown takes its control bits from the top and its bucket index from the bottom
        self.0 = mixed ^ (mixed >> 32);
    }
}
