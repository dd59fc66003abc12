//! Keeping a regular file equal to the device, for programs that want one (fsck).

use std::{
    collections::HashMap,
    fs::{File, Metadata, OpenOptions},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
};

use rustix::{fs::SeekFrom, io::Errno};

use crate::{
    error::DiskError, recipe::Recipe, view::View, Answer, BLOCK_BYTES, BLOCK_SECTORS, SECTOR_BYTES,
};

/// Piece size in which the base is searched for zeros.
const PIECE_BYTES: usize = 64 << 10;

/// The files kept equal to one device.
pub struct Images {
    /// Base image and log, which no image may overwrite.
    sources: Vec<PathBuf>,
    known: HashMap<PathBuf, Imaged>,
}

impl Images {
    /// For a device made of these files.
    #[must_use]
    pub fn of<'a>(sources: impl Iterator<Item = &'a Path>) -> Self {
        Images {
            sources: sources.map(Path::to_path_buf).collect(),
            known: HashMap::new(),
        }
    }

    /// Go on with the files of another device, which has the same base image: they need not be written whole.
    /// `changed`: all blocks that its log and its guest changed.
    pub fn inherit(&mut self, other: Images, changed: &[u64]) {
        for (path, mut old) in other.known {
            old.recipe = None;
            old.written.extend(changed);
            self.known.insert(path, old);
        }
    }

    /// Make the file at `path` hold what `view` shows. Returns the bytes that had to be written.
    ///
    /// # Errors
    /// If `path` is the base image or the log itself, or cannot be written.
    pub fn bring_up_to_date(&mut self, path: &Path, view: &View) -> Answer<u64> {
        if self.sources.iter().any(|own| same_file(own, path)) {
            return Err(DiskError::OwnSource(path.to_path_buf()));
        }
        let known = self.known.remove(path).filter(|old| old.is_untouched(path));
        let copied = match known {
            Some(old) => update(path, view, old.stale(view))?,
            None => create(path, view)?,
        };
        let now = Imaged::new(path, view)?;
        self.known.insert(path.to_path_buf(), now);
        Ok(copied)
    }
}

/// What a file was made to hold.
///
/// Whoever changes the file must unlink it: a change within the kernel's clock tick after the last
/// `Image` is indistinguishable from our own.
struct Imaged {
    /// The state that it held; `None`: one of another log on the same base.
    recipe: Option<Recipe>,
    /// Blocks that held writes of the guest, or may hold those of another log.
    written: Vec<u64>,
    stamp: Stamp,
}

/// Detects whether somebody has replaced or written a file since.
type Stamp = (u64, u64, u64, (i64, i64), (i64, i64));

fn stamp(meta: &Metadata) -> Stamp {
    let changed = (meta.ctime(), meta.ctime_nsec());
    let written = (meta.mtime(), meta.mtime_nsec());
    (meta.dev(), meta.ino(), meta.len(), written, changed)
}

impl Imaged {
    /// Record what the file at `path` now holds.
    fn new(path: &Path, view: &View) -> Answer<Self> {
        let meta = std::fs::metadata(path).map_err(DiskError::file("write the image", path))?;
        Ok(Imaged {
            recipe: Some(view.recipe.clone()),
            written: view.overlay.blocks().collect(),
            stamp: stamp(&meta),
        })
    }

    /// Whether the file at `path` is still the one that was written.
    fn is_untouched(&self, path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|meta| stamp(&meta) == self.stamp)
    }

    /// Blocks in which `view` may differ from the file, ascending.
    fn stale(&self, view: &View) -> Vec<u64> {
        let (index, now) = (&view.index, &view.recipe);
        let mut blocks = match &self.recipe {
            None => view.changed_blocks(),
            Some(then) => {
                let mut blocks = ordered(index.blocks_between(then, now));
                blocks.retain(|block| {
                    index.slot(*block).is_some_and(|slot| {
                        index.block_hash(then, slot) != index.block_hash(now, slot)
                    })
                });
                blocks
            }
        };
        blocks.extend(&self.written);
        blocks.extend(view.overlay.blocks());
        ordered(blocks)
    }
}

fn ordered(mut blocks: Vec<u64>) -> Vec<u64> {
    blocks.sort_unstable();
    blocks.dedup();
    blocks
}

/// Whether two paths lead to one file.
fn same_file(a: &Path, b: &Path) -> bool {
    match (std::fs::metadata(a), std::fs::metadata(b)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

/// Write the whole device, leaving holes where the base has holes or zeros. Returns the bytes written.
fn create(path: &Path, view: &View) -> Answer<u64> {
    let file = File::create(path).map_err(DiskError::file("write the image", path))?;
    file.set_len(view.size_bytes())
        .map_err(DiskError::file("write the image", path))?;
    let mut copied = 0;
    let mut at = 0;
    while let Some(data) = next_data(view.base_file(), at)? {
        let from = data.start as usize;
        for (number, piece) in view.base()[from..data.end as usize]
            .chunks(PIECE_BYTES)
            .enumerate()
        {
            if piece.iter().any(|byte| *byte != 0) {
                file.write_all_at(piece, (from + number * PIECE_BYTES) as u64)
                    .map_err(DiskError::file("write the image", path))?;
                copied += piece.len() as u64;
            }
        }
        at = data.end;
    }
    Ok(copied + write_blocks(path, &file, view, view.changed_blocks())?)
}

/// The next stretch of data in `file` from `at` on; `None` after the last. A file system without holes
/// reports everything as data (lseek(2)).
fn next_data(file: &File, at: u64) -> Answer<Option<std::ops::Range<u64>>> {
    let unknown = |e: Errno| DiskError::Holes {
        at,
        source: e.into(),
    };
    let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(error) => return Err(unknown(error)),
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start)).map_err(unknown)?;
    Ok(Some(start..end))
}

/// Write these blocks of the device. Returns the bytes written.
fn update(path: &Path, view: &View, blocks: Vec<u64>) -> Answer<u64> {
    let file = OpenOptions::new()
        .write(true)
        .open(path)
        .map_err(DiskError::file("write the image", path))?;
    write_blocks(path, &file, view, blocks)
}

fn write_blocks(path: &Path, file: &File, view: &View, blocks: Vec<u64>) -> Answer<u64> {
    let mut buffer = [0; BLOCK_BYTES];
    let mut copied = 0;
    for block in blocks {
        let sector = block * BLOCK_SECTORS;
        // the device may end inside its last block
        let sectors = BLOCK_SECTORS.min(view.sectors() - sector);
        let part = &mut buffer[..sectors as usize * SECTOR_BYTES];
        view.read(sector, part);
        file.write_all_at(part, block * BLOCK_BYTES as u64)
            .map_err(DiskError::file("write the image", path))?;
        copied += part.len() as u64;
    }
    Ok(copied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::build::Scratch;

    #[test]
    fn data_is_found_between_holes_and_what_cannot_be_asked_is_an_error() {
        let scratch = Scratch::new(b"");
        let file = OpenOptions::new().write(true).open(&scratch.0).unwrap();
        file.set_len(4 << 20).unwrap();
        file.write_all_at(b"x", 2 << 20).unwrap();
        let found = next_data(&file, 0).unwrap().unwrap();
        assert!(found.contains(&(2 << 20)), "{found:?}");
        assert!(next_data(&file, 4 << 20).unwrap().is_none());
        // seeking data in a pipe fails with ESPIPE, which must not pass for the end of the base image
        let (pipe, _end) = std::io::pipe().unwrap();
        let pipe = File::from(std::os::fd::OwnedFd::from(pipe));
        let told = next_data(&pipe, 0).unwrap_err().to_string();
        assert!(told.contains("cannot look"), "{told}");
    }
}
