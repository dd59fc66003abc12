//! What is in a recovered file system: every name with its metadata, and files by origin of their
//! contents.
//!
//! The tree may be damaged in any way that the kernel lets through: nothing here trusts it, and each
//! error becomes a line beside what could still be read. Symbolic links are not followed, other
//! mounts not entered. Names are visited in order, so that the same image is read the same way.

use std::{
    ffi::{CStr, CString},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use powercut_protocol::{TreeEntry, Xattr};
use rustix::{
    fs::{
        openat, readlinkat, statx, AtFlags, FileType, Mode, OFlags, RawDir, Statx, StatxAttributes,
        StatxFlags, CWD,
    },
    io::Errno,
};

use crate::{
    contents::{self, Extent, CHUNK_BYTES},
    failure::{describe, failed, Failure},
    xattrs::{self, Subject},
};

/// Directories below each other; a deeper tree is a damaged one.
const DEPTH_LIMIT: usize = 64;
/// Entries; more is a cycle, or no tree of a workload.
const ENTRIES_LIMIT: usize = 100_000;
/// Bytes looked at of one file: a damaged size may claim any length. The rest is `unreadable`, EFBIG.
const FILE_LIMIT_BYTES: u64 = 1 << 30;
/// Bytes of a tree that can be told: it is held in memory twice, of which a guest has 192 MiB, and a frame
/// holds `powercut_protocol::MAX_FRAME_BYTES`.
const TOLD_LIMIT_BYTES: usize = 32 << 20;
/// What an entry, and a run of one, take of those beside what differs in length.
const ENTRY_BYTES: usize = 200;
const RUN_BYTES: usize = 150;

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
    xattrs: xattrs::Reader,
    file_limit_bytes: u64,
    entries_limit: usize,
    told_limit_bytes: usize,
    /// Of the walk that goes on: what its tree takes, and whether it has more entries than it may.
    told_bytes: usize,
    cut: bool,
    walked: Walked,
}

impl Walker {
    pub fn new() -> Self {
        Self {
            chunk: vec![0; CHUNK_BYTES],
            listing: vec![MaybeUninit::uninit(); 32 << 10],
            xattrs: xattrs::Reader::new(),
            file_limit_bytes: FILE_LIMIT_BYTES,
            entries_limit: ENTRIES_LIMIT,
            told_limit_bytes: TOLD_LIMIT_BYTES,
            told_bytes: 0,
            cut: false,
            walked: Walked::default(),
        }
    }

    /// Walk the tree at `root`.
    ///
    /// # Errors
    /// E2BIG for a tree that takes more memory than there is to tell it.
    pub fn walk(&mut self, root: &str) -> Result<Walked, Failure> {
        self.walked = Walked::default();
        (self.told_bytes, self.cut) = (0, false);
        let mut path = Vec::new();
        match CString::new(root) {
            Ok(root) => self.visit(CWD, &root, &mut path, 0),
            Err(_) => self.error("openat", &path, Errno::INVAL),
        }
        let mut walked = std::mem::take(&mut self.walked);
        if self.told_bytes > self.told_limit_bytes {
            let limit = self.told_limit_bytes;
            return Err(failed(format!(
                "the tree takes more than {limit} bytes to tell"
            ))(Errno::TOOBIG));
        }
        // Depth first is not the order of whole paths: `a-b` sorts before `a/b`.
        walked.entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(walked)
    }

    fn error(&mut self, call: &str, path: &[u8], errno: Errno) {
        let what = format!("{call} {}", String::from_utf8_lossy(path));
        let line = describe(what.trim_end(), errno);
        self.told_bytes += line.len();
        self.walked.errors.push(line);
    }

    /// Take the entry `name` of `parent`, and what is below it.
    fn visit(&mut self, parent: BorrowedFd<'_>, name: &CStr, path: &mut Vec<u8>, depth: usize) {
        if self.told_bytes > self.told_limit_bytes {
            return;
        }
        if self.walked.entries.len() >= self.entries_limit {
            if !self.cut {
                self.error("too many entries at", path, Errno::OVERFLOW);
            }
            self.cut = true;
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
            _ => entry.xattrs = self.xattrs(&Subject::named(parent, name), path),
        }
        match (kind, opened) {
            (FileType::RegularFile, Some(file)) => self.contents(&file, &mut entry),
            (FileType::Symlink, _) => match readlinkat(parent, name, Vec::new()) {
                Ok(target) => entry.target = target.into_bytes(),
                Err(errno) => self.error("readlinkat", path, errno),
            },
            (FileType::Directory, Some(directory)) => {
                self.tell(entry);
                let other_mount = stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
                if depth > 0 && other_mount {
                    return self.error("another mount at", path, Errno::XDEV);
                }
                return self.enter(&directory, path, depth);
            }
            _ => {}
        }
        self.tell(entry);
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
        let (names, repeated) = ordered(self.names(directory, path));
        for name in repeated {
            // The host keeps one entry of a path: the other would be hidden.
            let what = format!("getdents ({} twice)", name.to_string_lossy());
            self.error(&what, path, Errno::EXIST);
        }
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
                Ok(_) if names.len() >= self.entries_limit => {
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
        let found = self.xattrs.read(subject);
        for (call, errno) in found.errors {
            self.error(&call, path, errno);
        }
        found.xattrs
    }

    /// Fill in the origin of a regular file's contents and, where all could be read, their digest.
    fn contents(&mut self, file: &OwnedFd, entry: &mut TreeEntry) {
        let extent = Extent {
            size: entry.size,
            blocks: entry.blocks,
            limit_bytes: self.file_limit_bytes,
            runs_limit: self.told_limit_bytes.saturating_sub(self.told_bytes) / RUN_BYTES,
        };
        let found = contents::read(file, extent, &mut self.chunk);
        for errno in found.errors {
            self.error("read", &entry.path, errno);
        }
        (entry.runs, entry.digest) = (found.runs, found.digest);
    }

    /// Take an entry into the tree.
    fn tell(&mut self, entry: TreeEntry) {
        let xattrs = entry.xattrs.iter().map(|x| x.name.len() + x.value.len());
        self.told_bytes += ENTRY_BYTES
            + entry.path.len()
            + entry.target.len()
            + xattrs.sum::<usize>()
            + entry.runs.len() * RUN_BYTES;
        self.walked.entries.push(entry);
    }
}

/// Sort the names; the second of two that are equal goes into the other list.
fn ordered(mut names: Vec<CString>) -> (Vec<CString>, Vec<CString>) {
    names.sort_unstable();
    let mut repeated = Vec::new();
    names.dedup_by(|name, before| {
        let same = name == before;
        if same {
            repeated.push(name.clone());
        }
        same
    });
    (names, repeated)
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
    use powercut_protocol::pattern;
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
            Walker::new().walk(self.0.to_str().unwrap()).unwrap()
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
        let walked = walker.walk(scratch.0.to_str().unwrap()).unwrap();
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
        let walked = Walker::new().walk("/no/such/directory").unwrap();
        assert!(walked.entries.is_empty());
        assert_eq!(walked.errors, ["statx: ENOENT (2)"]);
    }

    #[test]
    fn a_name_that_is_listed_twice_is_told() {
        let names = ["b", "a", "b", "b"].map(|n| CString::new(n).unwrap());
        let (names, repeated) = ordered(names.to_vec());
        assert_eq!(names, [c"a", c"b"].map(CStr::to_owned));
        assert_eq!(repeated, [c"b", c"b"].map(CStr::to_owned));
    }

    #[test]
    fn too_many_entries_are_told_once() {
        let scratch = Scratch::new("many");
        for d in 0..4 {
            fs::create_dir_all(scratch.0.join(format!("{d}/x/y"))).unwrap();
        }
        let mut walker = Walker::new();
        walker.entries_limit = 5;
        let walked = walker.walk(scratch.0.to_str().unwrap()).unwrap();
        assert_eq!(walked.entries.len(), 5);
        assert_eq!(walked.errors, ["too many entries at 1/x: EOVERFLOW (75)"]);
    }

    #[test]
    fn a_tree_that_takes_too_much_to_tell_is_refused() {
        let scratch = Scratch::new("much");
        let mixed = [&[0; 8][..], b"strange!"].concat().repeat(1000);
        fs::write(scratch.0.join("mixed"), mixed).unwrap();
        let mut walker = Walker::new();
        walker.told_limit_bytes = 100_000;
        let failure = walker.walk(scratch.0.to_str().unwrap()).unwrap_err();
        assert_eq!(
            failure.what,
            "the tree takes more than 100000 bytes to tell: E2BIG (7)"
        );
        walker.told_limit_bytes = TOLD_LIMIT_BYTES;
        assert!(walker.walk(scratch.0.to_str().unwrap()).is_ok());
    }
}
