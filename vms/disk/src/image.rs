//! Keeping a regular file equal to the device, for programs that want one (fsck).

use std::{
    fs::{File, Metadata, OpenOptions},
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
};

use rustix::fs::SeekFrom;

use crate::{device::Device, index::Recipe, Answer, BLOCK_BYTES, BLOCK_SECTORS, SECTOR_BYTES};

/// Zeros of the base are looked for in pieces of this size.
const PIECE_BYTES: usize = 64 << 10;

/// What a file was made to hold.
///
/// Whoever changes the file must unlink it, since a change within the kernel's clock tick after the
/// last `Image` could not be told from our own.
pub struct Imaged {
    pub recipe: Recipe,
    /// Blocks that held writes of the guest.
    pub written: Vec<u64>,
    stamp: Stamp,
}

/// Tells whether somebody replaced or wrote a file since.
type Stamp = (u64, u64, u64, (i64, i64), (i64, i64));

fn stamp(meta: &Metadata) -> Stamp {
    let changed = (meta.ctime(), meta.ctime_nsec());
    let written = (meta.mtime(), meta.mtime_nsec());
    (meta.dev(), meta.ino(), meta.len(), written, changed)
}

impl Imaged {
    /// Note what the file at `path` has just been made to hold.
    pub fn new(path: &Path, recipe: Recipe, written: Vec<u64>) -> Answer<Self> {
        let meta = std::fs::metadata(path).map_err(|e| lost(path, &e))?;
        Ok(Imaged {
            recipe,
            written,
            stamp: stamp(&meta),
        })
    }

    /// Whether the file at `path` is still the one that was written.
    #[must_use]
    pub fn is_untouched(&self, path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|meta| stamp(&meta) == self.stamp)
    }
}

/// Whether two paths lead to one file.
#[must_use]
pub fn same_file(a: &Path, b: &Path) -> bool {
    match (std::fs::metadata(a), std::fs::metadata(b)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

fn lost(path: &Path, error: &std::io::Error) -> String {
    format!("cannot write the image {}: {error}", path.display())
}

/// Write the whole device, leaving holes where the base has holes or zeros. Returns the bytes written.
pub fn create(path: &Path, device: &Device) -> Answer<u64> {
    let file = File::create(path).map_err(|e| lost(path, &e))?;
    file.set_len(device.size_bytes())
        .map_err(|e| lost(path, &e))?;
    let mut copied = 0;
    let mut at = 0;
    while let Some(data) = next_data(device.base_file(), at) {
        let from = data.start as usize;
        for (number, piece) in device.base()[from..data.end as usize]
            .chunks(PIECE_BYTES)
            .enumerate()
        {
            if piece.iter().any(|byte| *byte != 0) {
                file.write_all_at(piece, (from + number * PIECE_BYTES) as u64)
                    .map_err(|e| lost(path, &e))?;
                copied += piece.len() as u64;
            }
        }
        at = data.end;
    }
    Ok(copied + write_blocks(path, &file, device, device.changed_blocks())?)
}

/// The next stretch of `file` from `at` on that is no hole; `None` at its end. A file system that
/// knows no holes says that all is data (lseek(2)).
fn next_data(file: &File, at: u64) -> Option<std::ops::Range<u64>> {
    let start = rustix::fs::seek(file, SeekFrom::Data(at)).ok()?;
    let end = rustix::fs::seek(file, SeekFrom::Hole(start)).ok()?;
    Some(start..end)
}

/// Write these blocks of the device. Returns the bytes written.
pub fn update(path: &Path, device: &Device, blocks: Vec<u64>) -> Answer<u64> {
    let file = OpenOptions::new()
        .write(true)
        .open(path)
        .map_err(|e| lost(path, &e))?;
    write_blocks(path, &file, device, blocks)
}

fn write_blocks(path: &Path, file: &File, device: &Device, blocks: Vec<u64>) -> Answer<u64> {
    let mut buffer = [0; BLOCK_BYTES];
    let mut copied = 0;
    for block in blocks {
        let sector = block * BLOCK_SECTORS;
        // the device may end inside its last block
        let sectors = BLOCK_SECTORS.min(device.sectors() - sector);
        let part = &mut buffer[..sectors as usize * SECTOR_BYTES];
        device.read(sector, part);
        file.write_all_at(part, block * BLOCK_BYTES as u64)
            .map_err(|e| lost(path, &e))?;
        copied += part.len() as u64;
    }
    Ok(copied)
}
