//! Reads one regular file and classifies its bytes by origin.

use std::os::fd::{AsFd, OwnedFd};

use powercut_protocol::{pattern::WORD_BYTES, Extent};
use rustix::{
    fs::{seek, SeekFrom},
    io::{pread, Errno},
};
use xxhash_rust::xxh3::Xxh3;

use crate::classify::Classifier;

/// Most bytes asked for in one read.
pub const CHUNK_BYTES: usize = 256 << 10;
/// Holes are skipped only in longer files: a user gets what read(2) returns, and for holes lseek(2) offers
/// only the file system's claim.
const SPARSE_BYTES: u64 = 4 << 20;
/// The digest of a longer file is that of its size and of what in it is not zero, each stretch with its place: zeros take
/// long to digest in an emulated guest, and 32 GiB of them may cost one block of the disk.
const LARGE_BYTES: u64 = 1 << 30;
/// Unit in which a file with read errors is retried.
const BLOCK_BYTES: u64 = 4096;

/// Size and allocation of the file, as stat(2) reports them, and how far to look.
#[derive(Clone, Copy)]
pub struct Bounds {
    pub size: u64,
    /// In units of 512 bytes.
    pub blocks: u64,
    /// Bytes read, holes aside; the rest is `unreadable`, EFBIG.
    pub limit_bytes: u64,
    /// Number of extents at which to give up.
    pub extents_limit: usize,
}

/// What a file holds.
#[derive(Debug, Default)]
pub struct Contents {
    /// They cover the file, in order and without gaps, unless there are more than the limit.
    pub extents: Vec<Extent>,
    /// xxh3-128 in hexadecimal, see [`LARGE_BYTES`]; empty if not all could be read.
    pub digest: String,
    /// Each errno that a read failed with, once.
    pub errors: Vec<Errno>,
}

/// Read the file through `chunk`.
pub fn read(file: &OwnedFd, bounds: Bounds, chunk: &mut [u8]) -> Contents {
    let mut reading = Reading {
        classifier: Classifier::default(),
        hash: Xxh3::new(),
        errors: Vec::new(),
        extents_limit: bounds.extents_limit,
        left_bytes: bounds.limit_bytes,
        large: bounds.size > LARGE_BYTES,
    };
    let end = bounds.size;
    let sparse = is_sparse(bounds.size, bounds.blocks);
    let mut at = 0;
    while at < end && !reading.is_full() {
        let data = if sparse {
            data_from(file, at, end)
        } else {
            at..end
        };
        reading.hole(data.start - at);
        reading.data(file, data.start, data.end, end, chunk);
        at = data.end;
    }
    if reading.large {
        reading.hash.update(&bounds.size.to_le_bytes());
    }
    let whole = reading.errors.is_empty() && !reading.is_full();
    Contents {
        digest: if whole {
            format!("{:032x}", reading.hash.digest128())
        } else {
            String::new()
        },
        extents: reading.classifier.finish(),
        errors: reading.errors,
    }
}

/// One file's contents being read.
struct Reading {
    classifier: Classifier,
    hash: Xxh3,
    errors: Vec<Errno>,
    extents_limit: usize,
    /// Bytes that may still be read.
    left_bytes: u64,
    /// Zeros are not digested.
    large: bool,
}

impl Reading {
    fn is_full(&self) -> bool {
        self.classifier.closed_extents() > self.extents_limit
    }

    fn hole(&mut self, length: u64) {
        const ZEROS: [u8; 16 << 10] = [0; 16 << 10];
        let mut rest = if self.large { 0 } else { length };
        while rest > 0 {
            let n = rest.min(ZEROS.len() as u64);
            self.hash.update(&ZEROS[..n as usize]);
            rest -= n;
        }
        if length > 0 {
            self.classifier.hole(length);
        }
    }

    fn bytes(&mut self, bytes: &[u8], at: u64) {
        self.classifier.bytes(bytes);
        if !self.large {
            self.hash.update(bytes);
            return;
        }
        let is_zero = |word: &[u8]| word.iter().all(|byte| *byte == 0);
        for (number, word) in (0..).zip(bytes.chunks(WORD_BYTES as usize)) {
            if !is_zero(word) {
                self.hash.update(&(at + number * WORD_BYTES).to_le_bytes());
                self.hash.update(word);
            }
        }
    }

    fn refused(&mut self, length: u64, errno: Errno) {
        if !self.errors.contains(&errno) {
            self.errors.push(errno);
        }
        self.classifier.unreadable(length, errno.raw_os_error());
    }

    /// Read from `at` to `to`. A read error costs its block. `end` is where the file ends.
    fn data(&mut self, file: &OwnedFd, mut at: u64, to: u64, end: u64, chunk: &mut [u8]) {
        while at < to && !self.is_full() {
            if self.left_bytes == 0 {
                return self.refused(to - at, Errno::FBIG);
            }
            let wanted = (to - at).min(chunk.len() as u64).min(self.left_bytes);
            let got = match pread(file, &mut chunk[..wanted as usize], at) {
                // The file ends before its size: the file system contradicts itself.
                Ok(0) => Err(Errno::IO),
                // Only the end of the file may cut a word.
                Ok(n) if at + (n as u64) < end => Ok(n - n % WORD_BYTES as usize),
                other => other,
            };
            match got {
                Ok(n) if n > 0 => {
                    self.bytes(&chunk[..n], at);
                    at += n as u64;
                    self.left_bytes -= n as u64;
                }
                Err(Errno::INTR) => {}
                result => {
                    let block_end = (at / BLOCK_BYTES + 1) * BLOCK_BYTES;
                    let length = block_end.min(to) - at;
                    self.refused(length, result.err().unwrap_or(Errno::IO));
                    at += length;
                }
            }
        }
    }
}

/// Whether holes in a file are skipped. `blocks` as in [`Bounds`].
pub fn is_sparse(size: u64, blocks: u64) -> bool {
    size > SPARSE_BYTES && blocks.saturating_mul(512) < size
}

/// The next stretch of data in a sparse file, in whole words: `end..end` where only a hole is left.
pub fn data_from(file: impl AsFd, at: u64, end: u64) -> std::ops::Range<u64> {
    let file = file.as_fd();
    let start = match seek(file, SeekFrom::Data(at)) {
        Ok(start) => start.clamp(at, end),
        Err(Errno::NXIO) => return end..end,
        // The file system cannot tell: read everything.
        Err(_) => return at..end,
    };
    let stop = seek(file, SeekFrom::Hole(start)).unwrap_or(end);
    let start = start - start % WORD_BYTES;
    let stop = stop.next_multiple_of(WORD_BYTES).min(end);
    if stop > start {
        start..stop
    } else {
        start..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use powercut_protocol::ExtentKind;

    fn read_all(file: &OwnedFd, size: u64, extents_limit: usize) -> Contents {
        let bounds = Bounds {
            size,
            blocks: size.div_ceil(512),
            limit_bytes: u64::MAX,
            extents_limit,
        };
        read(file, bounds, &mut [0; 8192])
    }

    #[test]
    fn a_block_that_cannot_be_read_costs_only_itself() {
        // pread on a directory fails with EISDIR at any offset.
        let directory = OwnedFd::from(std::fs::File::open("/").unwrap());
        let found = read_all(&directory, 10_000, 100);
        let expected = Extent {
            kind: ExtentKind::Unreadable,
            length: 10_000,
            value: 21,
            ..Extent::default()
        };
        assert_eq!(found.errors, [Errno::ISDIR]);
        assert_eq!((found.extents, &*found.digest), (vec![expected], ""));
    }

    #[test]
    fn a_file_that_ends_before_its_size_is_unreadable_behind() {
        let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let found = read_all(&null, 5, 100);
        assert_eq!(found.errors, [Errno::IO]);
        assert_eq!(
            (found.extents[0].kind, found.extents[0].length),
            (ExtentKind::Unreadable, 5)
        );
    }

    #[test]
    fn contents_of_too_many_origins_are_given_up_before_memory_is() {
        let file = tempfile_of(&[&[0; 8][..], b"strange!"].concat().repeat(64 << 10));
        let found = read_all(&file, 1 << 20, 1000);
        assert!(
            (1000..10_000).contains(&found.extents.len()),
            "{}",
            found.extents.len()
        );
        assert_eq!(found.digest, "");
    }

    fn tempfile_of(bytes: &[u8]) -> OwnedFd {
        let path = std::env::temp_dir().join(format!("powercut-contents-{}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.into()
    }
}
