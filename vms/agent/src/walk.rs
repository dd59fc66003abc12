//! What is in a recovered file system: every name with its metadata, and files by origin of their
//! contents.
//!
//! The tree may be damaged in any way that the kernel lets through: nothing here trusts it, and each
//! error becomes a line beside what could still be read. Symbolic links are not followed, other
//! mounts not entered. Names are visited in order, so that the same image is read the same way.

use std::{
    ffi::{CStr, CString},
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use powercut_protocol::{pattern::WORD_BYTES, TreeEntry, Xattr};
use rustix::{
    buffer::spare_capacity,
    fs::{
        fgetxattr, flistxattr, lgetxattr, llistxattr, openat, readlinkat, seek, statx, AtFlags,
        FileType, Mode, OFlags, RawDir, SeekFrom, Statx, StatxAttributes, StatxFlags, CWD,
    },
    io::{pread, Errno},
};
use xxhash_rust::xxh3::Xxh3;

use crate::{classify::Classifier, failure::describe};

/// Directories below each other; a deeper tree is a damaged one.
const DEPTH_LIMIT: usize = 64;
/// Entries; more is a cycle, or no tree of a workload.
const ENTRIES_LIMIT: usize = 100_000;
/// Bytes looked at of one file: a damaged size may claim any length. The rest is `unreadable`, EFBIG.
const FILE_LIMIT_BYTES: u64 = 1 << 30;
/// Most bytes asked for in one read; also the size from which a sparse file's holes are skipped.
const CHUNK_BYTES: usize = 256 << 10;
/// Unit in which a file that cannot be read is tried.
const BLOCK_BYTES: u64 = 4096;
/// XATTR_LIST_MAX and XATTR_SIZE_MAX of `include/uapi/linux/limits.h`.
const XATTR_BYTES: usize = 64 << 10;

/// A recovered tree and what could not be read of it.
#[derive(Debug, Default)]
pub struct Walked {
    /// In order of path, the root first.
    pub entries: Vec<TreeEntry>,
    /// Such as `openat a/b: EUCLEAN (117)`.
    pub errors: Vec<String>,
}

/// Walks trees; holds the buffers that all walks share.
pub struct Walker {
    chunk: Vec<u8>,
    listing: Vec<MaybeUninit<u8>>,
    xattr_names: Vec<u8>,
    xattr_value: Vec<u8>,
    file_limit_bytes: u64,
    walked: Walked,
}

/// Where extended attributes are asked: of an open file, or of a name that cannot be opened.
enum Subject<'a> {
    Open(BorrowedFd<'a>),
    Name(Vec<u8>),
}

impl Walker {
    pub fn new() -> Self {
        Self {
            chunk: vec![0; CHUNK_BYTES],
            listing: vec![MaybeUninit::uninit(); 32 << 10],
            xattr_names: Vec::with_capacity(XATTR_BYTES),
            xattr_value: Vec::with_capacity(XATTR_BYTES),
            file_limit_bytes: FILE_LIMIT_BYTES,
            walked: Walked::default(),
        }
    }

    /// Walk the tree at `root`.
    pub fn walk(&mut self, root: &str) -> Walked {
        self.walked = Walked::default();
        let mut path = Vec::new();
        match CString::new(root) {
            Ok(root) => self.visit(CWD, &root, &mut path, 0),
            Err(_) => self.error("openat", &path, Errno::INVAL),
        }
        let mut walked = std::mem::take(&mut self.walked);
        // Depth first is not the order of whole paths: `a-b` sorts before `a/b`.
        walked.entries.sort_by(|a, b| a.path.cmp(&b.path));
        walked
    }

    fn error(&mut self, call: &str, path: &[u8], errno: Errno) {
        let what = format!("{call} {}", String::from_utf8_lossy(path));
        self.walked.errors.push(describe(what.trim_end(), errno));
    }

    /// Take the entry `name` of `parent`, and what is below it.
    fn visit(&mut self, parent: BorrowedFd<'_>, name: &CStr, path: &mut Vec<u8>, depth: usize) {
        if self.walked.entries.len() >= ENTRIES_LIMIT {
            if self.walked.entries.len() == ENTRIES_LIMIT {
                self.error("too many entries at", path, Errno::OVERFLOW);
            }
            return;
        }
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let stat = match statx(parent, name, flags, StatxFlags::BASIC_STATS) {
            Ok(stat) => stat,
            Err(errno) => return self.error("statx", path, errno),
        };
        let mut entry = described(&stat, path);
        let kind = FileType::from_raw_mode(stat.stx_mode.into());
        let opened = match kind {
            FileType::Directory | FileType::RegularFile => self.open(parent, name, path, kind),
            _ => None,
        };
        match (kind, &opened) {
            (FileType::Directory | FileType::RegularFile, None) => {}
            (_, Some(file)) => entry.xattrs = self.xattrs(&Subject::Open(file.as_fd()), path),
            _ => entry.xattrs = self.xattrs(&named(parent, name), path),
        }
        match (kind, opened) {
            (FileType::RegularFile, Some(file)) => self.contents(&file, &mut entry),
            (FileType::Symlink, _) => match readlinkat(parent, name, Vec::new()) {
                Ok(target) => entry.target = target.into_bytes(),
                Err(errno) => self.error("readlinkat", path, errno),
            },
            (FileType::Directory, Some(directory)) => {
                self.walked.entries.push(entry);
                let other_mount = stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
                if depth > 0 && other_mount {
                    return self.error("another mount at", path, Errno::XDEV);
                }
                return self.enter(&directory, path, depth);
            }
            _ => {}
        }
        self.walked.entries.push(entry);
    }

    fn open(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        path: &[u8],
        kind: FileType,
    ) -> Option<OwnedFd> {
        let mut flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        if kind == FileType::Directory {
            flags |= OFlags::DIRECTORY;
        }
        openat(parent, name, flags, Mode::empty())
            .map_err(|errno| self.error("openat", path, errno))
            .ok()
    }

    /// Visit what is in a directory, in order of name.
    fn enter(&mut self, directory: &OwnedFd, path: &mut Vec<u8>, depth: usize) {
        if depth >= DEPTH_LIMIT {
            return self.error("too deep at", path, Errno::LOOP);
        }
        let mut names = self.names(directory, path);
        names.sort_unstable();
        let length = path.len();
        for name in names {
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name.as_bytes());
            self.visit(directory.as_fd(), &name, path, depth + 1);
            path.truncate(length);
        }
    }

    /// The names in a directory as far as they can be read.
    fn names(&mut self, directory: &OwnedFd, path: &[u8]) -> Vec<CString> {
        let mut names = Vec::new();
        let mut error = None;
        let mut listing = RawDir::new(directory, &mut self.listing);
        while let Some(next) = listing.next() {
            match next {
                Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
                // A damaged directory may go round in a circle.
                Ok(_) if names.len() >= ENTRIES_LIMIT => {
                    error = Some(Errno::OVERFLOW);
                    break;
                }
                Ok(entry) => names.push(entry.file_name().to_owned()),
                Err(errno) => {
                    error = Some(errno);
                    break;
                }
            }
        }
        if let Some(errno) = error {
            self.error("getdents", path, errno);
        }
        names
    }

    fn xattrs(&mut self, subject: &Subject<'_>, path: &[u8]) -> Vec<Xattr> {
        self.xattr_names.clear();
        match subject.list(&mut self.xattr_names) {
            Ok(()) if self.xattr_names.is_empty() => return Vec::new(),
            Ok(()) => {}
            Err(Errno::OPNOTSUPP) => return Vec::new(),
            Err(errno) => {
                self.error("listxattr", path, errno);
                return Vec::new();
            }
        }
        let names = std::mem::take(&mut self.xattr_names);
        let mut xattrs = Vec::new();
        for name in names.split_inclusive(|b| *b == 0) {
            let Ok(name) = CStr::from_bytes_with_nul(name) else {
                continue;
            };
            self.xattr_value.clear();
            match subject.get(name, &mut self.xattr_value) {
                Ok(()) => xattrs.push(Xattr {
                    name: name.to_string_lossy().into_owned(),
                    value: self.xattr_value.clone(),
                }),
                Err(errno) => {
                    let call = format!("getxattr {}", name.to_string_lossy());
                    self.error(&call, path, errno);
                }
            }
        }
        self.xattr_names = names;
        xattrs.sort_by(|a, b| a.name.cmp(&b.name));
        xattrs
    }

    /// Fill in the origin of a regular file's contents and, where all could be read, their digest.
    fn contents(&mut self, file: &OwnedFd, entry: &mut TreeEntry) {
        let mut reading = Reading {
            classifier: Classifier::default(),
            hash: Xxh3::new(),
            errors: Vec::new(),
        };
        let end = entry.size.min(self.file_limit_bytes);
        let sparse = entry.size > CHUNK_BYTES as u64 && entry.blocks * 512 < entry.size;
        let mut at = 0;
        while at < end {
            let data = if sparse {
                data_from(file, at, end)
            } else {
                at..end
            };
            reading.hole(data.start - at);
            reading.data(file, data.start, data.end, end, &mut self.chunk);
            at = data.end;
        }
        if end < entry.size {
            reading.refused(entry.size - end, Errno::FBIG);
        }
        for errno in &reading.errors {
            self.error("read", &entry.path, *errno);
        }
        if reading.errors.is_empty() {
            entry.digest = format!("{:032x}", reading.hash.digest128());
        }
        entry.runs = reading.classifier.finish();
    }
}

/// One file's contents being read.
struct Reading {
    classifier: Classifier,
    hash: Xxh3,
    /// Each errno that a read failed with, once.
    errors: Vec<Errno>,
}

impl Reading {
    fn hole(&mut self, length: u64) {
        const ZEROS: [u8; 16 << 10] = [0; 16 << 10];
        let mut rest = length;
        while rest > 0 {
            let n = rest.min(ZEROS.len() as u64);
            self.hash.update(&ZEROS[..n as usize]);
            rest -= n;
        }
        if length > 0 {
            self.classifier.hole(length);
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
        while at < to {
            let wanted = (to - at).min(chunk.len() as u64);
            let got = match pread(file, &mut chunk[..wanted as usize], at) {
                // The file ends before its size: a file system that contradicts itself.
                Ok(0) => Err(Errno::IO),
                // A word must not be cut but by the end of the file.
                Ok(n) if at + (n as u64) < end => Ok(n - n % WORD_BYTES as usize),
                other => other,
            };
            match got {
                Ok(n) if n > 0 => {
                    self.hash.update(&chunk[..n]);
                    self.classifier.bytes(&chunk[..n]);
                    at += n as u64;
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

/// The next stretch of data in a sparse file, in whole words: `end..end` where only a hole is left.
fn data_from(file: &OwnedFd, at: u64, end: u64) -> std::ops::Range<u64> {
    let start = match seek(file, SeekFrom::Data(at)) {
        Ok(start) => start.clamp(at, end),
        Err(Errno::NXIO) => return end..end,
        // It cannot tell: read everything.
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

impl Subject<'_> {
    fn list(&self, names: &mut Vec<u8>) -> rustix::io::Result<()> {
        match self {
            Self::Open(file) => flistxattr(file, spare_capacity(names)),
            Self::Name(name) => llistxattr(name.as_slice(), spare_capacity(names)),
        }
        .map(|_| ())
    }

    fn get(&self, name: &CStr, value: &mut Vec<u8>) -> rustix::io::Result<()> {
        match self {
            Self::Open(file) => fgetxattr(file, name, spare_capacity(value)),
            Self::Name(path) => lgetxattr(path.as_slice(), name, spare_capacity(value)),
        }
        .map(|_| ())
    }
}

/// A name in an open directory, by way of /proc: there are no `*xattrat` calls before Linux 6.13, and
/// a whole path may be too long.
fn named<'a>(parent: BorrowedFd<'_>, name: &CStr) -> Subject<'a> {
    let mut path = format!("/proc/self/fd/{}/", parent.as_raw_fd()).into_bytes();
    path.extend_from_slice(name.to_bytes());
    Subject::Name(path)
}

fn described(stat: &Statx, path: &[u8]) -> TreeEntry {
    let kind = match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::BlockDevice => "block",
        FileType::CharacterDevice => "char",
        _ => "unknown",
    };
    TreeEntry {
        path: path.to_vec(),
        kind: kind.to_owned(),
        inode: stat.stx_ino,
        mode: u32::from(stat.stx_mode) & 0o7777,
        links: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        ..TreeEntry::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use powercut_protocol::{pattern, Run};
    use rustix::fs::{lsetxattr, mkfifoat, symlinkat, XattrFlags};
    use std::{fs, os::unix::fs::FileExt, path::PathBuf};

    /// A directory that goes when the test ends.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("powercut-{name}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn walk(&self) -> Walked {
            Walker::new().walk(self.0.to_str().unwrap())
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn paths(walked: &Walked) -> Vec<&str> {
        let paths = walked
            .entries
            .iter()
            .map(|e| std::str::from_utf8(&e.path).unwrap());
        paths.collect()
    }

    #[test]
    fn a_tree_is_walked_in_order_of_whole_paths() {
        let scratch = Scratch::new("order");
        fs::create_dir_all(scratch.0.join("a/c")).unwrap();
        for name in ["a/b", "a-b", "z"] {
            fs::write(scratch.0.join(name), b"").unwrap();
        }
        let walked = scratch.walk();
        assert_eq!(paths(&walked), ["", "a", "a-b", "a/b", "a/c", "z"]);
        assert!(walked.errors.is_empty());
    }

    #[test]
    fn every_kind_of_entry_is_described() {
        let scratch = Scratch::new("kinds");
        let root = fs::File::open(&scratch.0).unwrap();
        symlinkat("nowhere/\u{e9}", &root, "link").unwrap();
        mkfifoat(&root, "pipe", Mode::from_raw_mode(0o600)).unwrap();
        fs::write(scratch.0.join("file"), b"hello").unwrap();
        fs::hard_link(scratch.0.join("file"), scratch.0.join("hard")).unwrap();
        let walked = scratch.walk();
        let kinds: Vec<_> = walked.entries.iter().map(|e| e.kind.as_str()).collect();
        assert_eq!(kinds, ["directory", "file", "file", "symlink", "fifo"]);
        assert_eq!(walked.entries[3].target, "nowhere/\u{e9}".as_bytes());
        assert_eq!(walked.entries[4].mode, 0o600);
        let (file, hard) = (&walked.entries[1], &walked.entries[2]);
        assert_eq!((file.size, file.links, file.inode), (5, 2, hard.inode));
        // A known answer, so that digests stay comparable between versions of the agent.
        assert_eq!(file.digest, "b5e9c1ad071b3e7fc779cfaa5e523818");
    }

    #[test]
    fn holes_read_as_zeros_whether_skipped_or_not() {
        let scratch = Scratch::new("holes");
        let path = scratch.0.join("sparse");
        let file = fs::File::create(&path).unwrap();
        let mut data = vec![0; 4097];
        pattern::fill(7, 2 << 20, &mut data);
        file.write_all_at(&data, 2 << 20).unwrap();
        file.set_len((4 << 20) + 3).unwrap();
        let entry = scratch.walk().entries.pop().unwrap();
        let kinds: Vec<_> = entry
            .runs
            .iter()
            .map(|r| (&*r.kind, r.start, r.length))
            .collect();
        let tail = (2 << 20) + 4096;
        assert_eq!(
            kinds,
            [
                ("zero", 0, 2 << 20),
                ("written", 2 << 20, 4096),
                ("literal", tail, 8),
                ("zero", tail + 8, (4 << 20) + 3 - tail - 8),
            ]
        );
        let contents = fs::read(&path).unwrap();
        let digest = xxhash_rust::xxh3::xxh3_128(&contents);
        assert_eq!(entry.digest, format!("{digest:032x}"));
    }

    #[test]
    fn a_size_beyond_the_limit_is_not_read_and_not_digested() {
        let scratch = Scratch::new("limit");
        fs::write(scratch.0.join("huge"), b"some bytes of no origin").unwrap();
        let mut walker = Walker::new();
        walker.file_limit_bytes = 16;
        let walked = walker.walk(scratch.0.to_str().unwrap());
        assert_eq!(walked.errors, ["read huge: EFBIG (27)"]);
        let entry = &walked.entries[1];
        let last = entry.runs.last().unwrap();
        assert_eq!(
            (&*last.kind, last.start, last.length, last.value),
            ("unreadable", 16, 7, 27)
        );
        assert_eq!((entry.size, &*entry.digest), (23, ""));
    }

    #[test]
    fn xattrs_are_found_on_files_and_directories() {
        let scratch = Scratch::new("xattrs");
        let path = scratch.0.join("file");
        fs::write(&path, b"").unwrap();
        for (path, name) in [(&path, "user.b"), (&path, "user.a"), (&scratch.0, "user.c")] {
            match lsetxattr(path, name, name.as_bytes(), XattrFlags::empty()) {
                // A file system without them, such as an old tmpfs: nothing to be seen.
                Err(Errno::OPNOTSUPP) => return,
                done => done.unwrap(),
            }
        }
        let walked = scratch.walk();
        let names = |i: usize| -> Vec<_> {
            let xattrs = &walked.entries[i].xattrs;
            xattrs.iter().map(|x| (&*x.name, &*x.value)).collect()
        };
        assert_eq!(names(0), [("user.c", &b"user.c"[..])]);
        assert_eq!(
            names(1),
            [("user.a", &b"user.a"[..]), ("user.b", &b"user.b"[..])]
        );
    }

    #[test]
    fn a_tree_too_deep_is_cut_and_told() {
        let scratch = Scratch::new("deep");
        let deep = vec!["d"; DEPTH_LIMIT + 3].join("/");
        fs::create_dir_all(scratch.0.join(deep)).unwrap();
        let walked = scratch.walk();
        assert_eq!(walked.entries.len(), DEPTH_LIMIT + 1);
        assert_eq!(walked.errors.len(), 1);
        assert!(
            walked.errors[0].starts_with("too deep at d/d/"),
            "{}",
            walked.errors[0]
        );
        assert!(
            walked.errors[0].ends_with(": ELOOP (40)"),
            "{}",
            walked.errors[0]
        );
    }

    #[test]
    fn a_missing_root_is_an_error_line() {
        let walked = Walker::new().walk("/no/such/directory");
        assert!(walked.entries.is_empty());
        assert_eq!(walked.errors, ["statx: ENOENT (2)"]);
    }

    #[test]
    fn a_block_that_cannot_be_read_costs_only_itself() {
        // A directory's descriptor refuses pread with EISDIR, wherever it is tried.
        let scratch = Scratch::new("refused");
        let directory = OwnedFd::from(fs::File::open(&scratch.0).unwrap());
        let mut reading = Reading {
            classifier: Classifier::default(),
            hash: Xxh3::new(),
            errors: Vec::new(),
        };
        reading.data(&directory, 0, 10_000, 10_000, &mut [0; 8192]);
        let expected = Run {
            kind: "unreadable".to_owned(),
            length: 10_000,
            value: 21,
            ..Run::default()
        };
        assert_eq!(reading.errors, [Errno::ISDIR]);
        assert_eq!(reading.classifier.finish(), [expected]);
    }
}
