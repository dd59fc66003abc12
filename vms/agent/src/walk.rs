//! Walks a recovered file system: every name with its metadata, and files by the origin of their
//! contents.
//!
//! Contents are read after the names, attributes and mappings of all files, so that the disk can tell what was
//! read for nothing but contents ([`Phases`]). Very large trees take turns, a batch of files at a time.
//!
//! The tree may be damaged in any way that the kernel lets through: nothing here trusts it, and each
//! error becomes a line beside what could still be read. Symbolic links are not followed, other
//! mounts not entered. Names are visited in order, so that the same image is read the same way. Nothing limits how deep
//! directories nest but the reply, which holds every path.

use std::{
    collections::HashSet,
    ffi::{CStr, CString},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use powercut_protocol::{
    limits::{ENTRIES, LOG_BYTES, STRUCTURED_FRAME_BYTES, WALK_ERRORS},
    Call, CallError, FileKind, Looks, TreeEntry, Xattr,
};
use rustix::{
    fs::{
        openat, readlinkat, seek, statx, AtFlags, FileType, Mode, OFlags, RawDir, SeekFrom, Statx,
        StatxAttributes, StatxFlags, CWD,
    },
    io::Errno,
};
use xxhash_rust::xxh3::Xxh3;

use crate::{
    contents::{self, Bounds, CHUNK_BYTES},
    failure::Failure,
    files::close_all,
    phases::Phases,
    xattrs::{self, Subject},
};

/// What a file with fs-verity has as one more extended attribute; harness/oracles/verity.py has the same word.
const VERITY: &str = "verity";
/// Files that are held open until their contents are read.
const BATCH_FILES: usize = 256;
/// Stretches of data and holes that are looked up in one file before its contents are read.
const MAPPINGS_LIMIT: usize = 10_000;
/// Bytes read of one file, holes aside: a damaged one may claim any length. The rest is `unreadable`, EFBIG.
const FILE_LIMIT_BYTES: u64 = 1 << 30;
/// Bytes of a frame that a tree may take. The kernel's log gets the rest.
const TOLD_LIMIT_BYTES: usize = STRUCTURED_FRAME_BYTES - LOG_BYTES - LOG_HEADS_BYTES;
/// The most that the heads of the log's lines and the frame's other fields take.
const LOG_HEADS_BYTES: usize = 64 << 10;
/// Where, in the inode number that is told, the place of its device begins: 0 for the root's.
const DEVICE_SHIFT: u32 = 48;
/// The most that an entry, an extended attribute, an extent and an error take, variable-length parts aside.
const ENTRY_BYTES: usize = 200;
const XATTR_BYTES: usize = 30;
const EXTENT_BYTES: usize = 150;
const ERROR_BYTES: usize = 80;

/// A recovered tree and what could not be read of it.
#[derive(Debug, Default)]
pub struct Walked {
    /// In order of path, the root first.
    pub entries: Vec<TreeEntry>,
    pub errors: Vec<CallError>,
    /// Without `contents`, if these were not read.
    pub looks: Looks,
}

/// Which directory it is: device and inode.
type Place = (u32, u32, u64);

/// A directory that is being walked.
struct Directory {
    file: OwnedFd,
    place: Place,
    /// Names that are still to be visited, in order.
    names: std::vec::IntoIter<CString>,
    path_length: usize,
}

/// Walks trees; holds the buffers that all walks share.
pub struct Walker {
    /// Told where the reading of contents begins and ends.
    pub phases: Phases,
    /// Open files whose contents are still to be read, and their entries.
    unread: Vec<(OwnedFd, usize)>,
    chunk: Vec<u8>,
    listing: Vec<MaybeUninit<u8>>,
    xattrs: xattrs::Reader,
    file_limit_bytes: u64,
    entries_limit: usize,
    told_limit_bytes: usize,
    /// For the current walk: bytes its tree takes, and whether it has more entries than allowed.
    told_bytes: usize,
    reads_contents: bool,
    too_many: bool,
    /// In the order in which they were met, the root's first: a subvolume of btrfs has one of its own.
    devices: Vec<(u32, u32)>,
    walked: Walked,
}

impl Walker {
    pub fn new() -> Self {
        Self {
            phases: Phases::default(),
            unread: Vec::new(),
            chunk: vec![0; CHUNK_BYTES],
            listing: vec![MaybeUninit::uninit(); 32 << 10],
            xattrs: xattrs::Reader::new(),
            file_limit_bytes: FILE_LIMIT_BYTES,
            entries_limit: ENTRIES,
            told_limit_bytes: TOLD_LIMIT_BYTES,
            told_bytes: 0,
            reads_contents: true,
            too_many: false,
            devices: Vec::new(),
            walked: Walked::default(),
        }
    }

    /// Walk the tree at `root`.
    ///
    /// # Errors
    /// [`Failure::TreeTooLarge`] for a tree that does not fit into a frame, [`Failure::TooManyEntries`] for one of more
    /// entries than a reply may have: not all of it was looked at.
    pub fn walk(&mut self, root: &str) -> Result<Walked, Failure> {
        self.look(root, true)
    }

    /// As `walk`; without `contents`, files have neither extents nor a digest.
    ///
    /// # Errors
    /// As `walk`.
    pub fn look(&mut self, root: &str, contents: bool) -> Result<Walked, Failure> {
        self.walked = Walked::default();
        self.reads_contents = contents;
        (self.told_bytes, self.too_many) = (0, false);
        self.devices.clear();
        match CString::new(root) {
            Ok(root) => self.descend(&root),
            Err(_) => self.error(Call::Openat, &[], Errno::INVAL),
        }
        self.read_contents();
        let mut walked = std::mem::take(&mut self.walked);
        if self.too_many {
            return Err(Failure::TooManyEntries {
                limit: self.entries_limit,
            });
        }
        if self.told_bytes > self.told_limit_bytes {
            return Err(Failure::TreeTooLarge {
                limit: self.told_limit_bytes,
            });
        }
        // Depth first is not the order of whole paths: `a-b` sorts before `a/b`.
        walked.entries.sort_by(|a, b| a.path.cmp(&b.path));
        walked.looks = looks_of(&walked.entries, contents);
        Ok(walked)
    }

    /// Visit everything from `root` on: the directories on the way down are open, and wait for their turn.
    fn descend(&mut self, root: &CStr) {
        let mut path = Vec::new();
        let mut open: Vec<Directory> = Vec::new();
        if let Some((file, place)) = self.visit(CWD, root, &path, true) {
            open.extend(self.enter(file, place, &path, &open));
        }
        while let Some(directory) = open.last_mut() {
            path.truncate(directory.path_length);
            let Some(name) = directory.names.next() else {
                open.pop();
                continue;
            };
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name.as_bytes());
            if let Some((file, place)) = self.visit(directory.file.as_fd(), &name, &path, false) {
                open.extend(self.enter(file, place, &path, &open));
            }
        }
    }

    fn error(&mut self, call: Call, path: &[u8], errno: Errno) {
        self.error_of(call, path, String::new(), errno);
    }

    /// An error that concerns `name`, an extended attribute or one of two equal names, at `path`.
    fn error_of(&mut self, call: Call, path: &[u8], name: String, errno: Errno) {
        self.told_bytes += ERROR_BYTES + path.len() + name.len();
        if self.walked.errors.len() >= WALK_ERRORS {
            // Too large to report; the byte limit would reject it later anyway.
            self.told_bytes = usize::MAX / 2;
            return;
        }
        self.walked.errors.push(CallError {
            call,
            path: path.to_vec(),
            name,
            errno: errno.raw_os_error(),
        });
    }

    /// Take the entry `name` of `parent`. Returns it, if it is a directory to be entered.
    fn visit(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        path: &[u8],
        is_root: bool,
    ) -> Option<(OwnedFd, Place)> {
        if self.told_bytes > self.told_limit_bytes || self.too_many {
            return None;
        }
        if self.walked.entries.len() >= self.entries_limit {
            self.too_many = true;
            return None;
        }
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let stat = match statx(parent, name, flags, StatxFlags::BASIC_STATS) {
            Ok(stat) => stat,
            Err(errno) => {
                self.error(Call::Statx, path, errno);
                return None;
            }
        };
        let mut entry = described(&stat, path);
        entry.inode |= self.device((stat.stx_dev_major, stat.stx_dev_minor)) << DEVICE_SHIFT;
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
        if stat.stx_attributes.contains(StatxAttributes::VERITY) {
            // Behind all names that an attribute may have.
            entry.xattrs.push(Xattr {
                name: VERITY.into(),
                ..Xattr::default()
            });
        }
        match (kind, opened) {
            (FileType::RegularFile, Some(file)) if self.reads_contents => {
                find_mappings(&file, entry.size);
                self.unread.push((file, self.walked.entries.len()));
                self.tell(entry);
                if self.unread.len() == BATCH_FILES {
                    self.read_contents();
                }
                return None;
            }
            (FileType::Symlink, _) => match readlinkat(parent, name, Vec::new()) {
                Ok(target) => entry.target = target.into_bytes(),
                Err(errno) => self.error(Call::Readlinkat, path, errno),
            },
            (FileType::Directory, Some(directory)) => {
                self.tell(entry);
                let other_mount = stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
                if !is_root && other_mount {
                    self.error(Call::AnotherMount, path, Errno::XDEV);
                    return None;
                }
                let place = (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
                return Some((directory, place));
            }
            _ => {}
        }
        self.tell(entry);
        None
    }

    /// The place of a device among those of this walk. Two subvolumes use the same inode numbers.
    fn device(&mut self, device: (u32, u32)) -> u64 {
        let known = self.devices.iter().position(|each| *each == device);
        let place = known.unwrap_or_else(|| {
            self.devices.push(device);
            self.devices.len() - 1
        });
        place as u64
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
            .map_err(|errno| self.error(Call::Openat, path, errno))
            .ok()
    }

    /// List a directory, unless it is inside itself: `above` are those on the way to it.
    fn enter(
        &mut self,
        file: OwnedFd,
        place: Place,
        path: &[u8],
        above: &[Directory],
    ) -> Option<Directory> {
        if above.iter().any(|directory| directory.place == place) {
            self.error(Call::InsideItself, path, Errno::LOOP);
            return None;
        }
        let names = self.names(&file, path);
        let names = self.each_once(names, path);
        Some(Directory {
            file,
            place,
            names: names.into_iter(),
            path_length: path.len(),
        })
    }

    /// The names in order, each once. The host keeps one entry per path: of two that are equal, the other would be
    /// hidden.
    fn each_once(&mut self, names: Vec<CString>, path: &[u8]) -> Vec<CString> {
        let (names, repeated) = ordered(names);
        for name in repeated {
            let name = name.to_string_lossy().into_owned();
            self.error_of(Call::Getdents, path, name, Errno::EXIST);
        }
        names
    }

    /// The names in a directory as far as they can be read.
    fn names(&mut self, directory: &OwnedFd, path: &[u8]) -> Vec<CString> {
        let mut names = Vec::new();
        let mut error = None;
        let mut listing = RawDir::new(directory, &mut self.listing);
        while let Some(next) = listing.next() {
            match next {
                Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
                // A damaged directory may loop: then names repeat, and that is told.
                Ok(_) if names.len() >= self.entries_limit => {
                    self.too_many = !has_repeated(&names);
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
            self.error(Call::Getdents, path, errno);
        }
        names
    }

    fn xattrs(&mut self, subject: &Subject<'_>, path: &[u8]) -> Vec<Xattr> {
        let found = self.xattrs.read(subject);
        for (call, name, errno) in found.errors {
            self.error_of(call, path, name, errno);
        }
        found.xattrs
    }

    /// Read the contents of the files that wait for it.
    fn read_contents(&mut self) {
        if self.unread.is_empty() {
            return;
        }
        self.phases.next();
        let unread = std::mem::take(&mut self.unread);
        for (file, at) in &unread {
            let at = *at;
            if self.told_bytes <= self.told_limit_bytes {
                let mut entry = std::mem::take(&mut self.walked.entries[at]);
                self.contents(file, &mut entry);
                self.told_bytes += entry.extents.len() * EXTENT_BYTES;
                self.walked.entries[at] = entry;
            }
        }
        self.phases.next();
        close_all(unread.into_iter().map(|(file, _)| file));
    }

    /// Fill in the origin of a regular file's contents and, where all could be read, their digest.
    fn contents(&mut self, file: &OwnedFd, entry: &mut TreeEntry) {
        let bounds = Bounds {
            size: entry.size,
            blocks: entry.blocks,
            limit_bytes: self.file_limit_bytes,
            extents_limit: self.told_limit_bytes.saturating_sub(self.told_bytes) / EXTENT_BYTES,
        };
        let found = contents::read(file, bounds, &mut self.chunk);
        for errno in found.errors {
            self.error(Call::Read, &entry.path, errno);
        }
        (entry.extents, entry.digest) = (found.extents, found.digest);
    }

    /// Take an entry into the tree.
    fn tell(&mut self, entry: TreeEntry) {
        let xattrs = entry.xattrs.iter();
        let xattrs = xattrs.map(|x| XATTR_BYTES + x.name.len() + x.value.len());
        self.told_bytes += ENTRY_BYTES
            + entry.path.len()
            + entry.target.len()
            + xattrs.sum::<usize>()
            + entry.extents.len() * EXTENT_BYTES;
        self.walked.entries.push(entry);
    }
}

/// What tells trees apart. Entries are in order, and each part says how long it is.
fn looks_of(entries: &[TreeEntry], contents: bool) -> Looks {
    let (mut names, mut held) = (Xxh3::new(), Xxh3::new());
    let part = |hash: &mut Xxh3, bytes: &[u8]| {
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    for entry in entries {
        // How a directory is stored decides its size.
        let size = if entry.kind == FileKind::Directory {
            0
        } else {
            entry.size
        };
        let numbers = [entry.mode, entry.links, entry.uid, entry.gid].map(u64::from);
        let kind = entry.kind as u64;
        for number in [kind, size, entry.xattrs.len() as u64]
            .into_iter()
            .chain(numbers)
        {
            names.update(&number.to_le_bytes());
        }
        part(&mut names, &entry.path);
        part(&mut names, &entry.target);
        for xattr in &entry.xattrs {
            part(&mut names, xattr.name.as_bytes());
            part(&mut names, &xattr.value);
        }
        part(&mut held, entry.digest.as_bytes());
    }
    let told = |hash: &Xxh3| format!("{:032x}", hash.digest128());
    Looks {
        names: told(&names),
        contents: if contents { told(&held) } else { String::new() },
    }
}

/// Make the file system look up where the file's data is: what it reads for that decides more than bytes. One that
/// does not know holes (lseek(2)) looks when the contents are read.
fn find_mappings(file: &OwnedFd, size: u64) {
    let mut at = 0;
    for _ in 0..MAPPINGS_LIMIT {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) if data < size => data,
            _ => return,
        };
        match seek(file, SeekFrom::Hole(data)) {
            Ok(hole) if hole > data && hole < size => at = hole,
            _ => return,
        }
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

/// Whether a name is there twice: the directory is damaged, and not a long one.
pub fn has_repeated(names: &[CString]) -> bool {
    let mut seen = HashSet::new();
    names.iter().any(|name| !seen.insert(name))
}

/// All that statx(2) tells.
pub fn described(stat: &Statx, path: &[u8]) -> TreeEntry {
    let kind = match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::BlockDevice => FileKind::Block,
        FileType::CharacterDevice => FileKind::Char,
        _ => FileKind::Unknown,
    };
    TreeEntry {
        path: path.to_vec(),
        kind,
        inode: stat.stx_ino,
        mode: u32::from(stat.stx_mode) & 0o7777,
        links: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        target: match kind {
            FileKind::Block | FileKind::Char => {
                format!("{}:{}", stat.stx_rdev_major, stat.stx_rdev_minor).into_bytes()
            }
            _ => Vec::new(),
        },
        ..TreeEntry::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use powercut_protocol::{pattern, ExtentKind};
    use rustix::fs::{lsetxattr, makedev, mkdirat, mkfifoat, mknodat, symlinkat, XattrFlags};
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

    fn error(call: Call, path: &str, errno: Errno) -> CallError {
        CallError {
            call,
            path: path.into(),
            name: String::new(),
            errno: errno.raw_os_error(),
        }
    }

    fn paths(walked: &Walked) -> Vec<&str> {
        let paths = walked
            .entries
            .iter()
            .map(|e| std::str::from_utf8(&e.path).unwrap());
        paths.collect()
    }

    /// That the second of two equal names was told, no test saw: the damaged directory passed.
    #[test]
    fn a_name_that_a_directory_has_twice_is_an_error_with_that_name() {
        let mut walker = Walker::new();
        let names = [c"b", c"a", c"b"].map(CStr::to_owned).to_vec();
        assert_eq!(
            walker.each_once(names, b"d"),
            [c"a", c"b"].map(CStr::to_owned)
        );
        let told = CallError {
            name: "b".to_owned(),
            ..error(Call::Getdents, "d", Errno::EXIST)
        };
        assert_eq!(walker.walked.errors, [told]);
    }

    /// What the second mount shows is held against the first by these digests alone.
    #[test]
    fn trees_that_differ_in_anything_that_counts_look_different() {
        let entry = || TreeEntry {
            path: b"f".to_vec(),
            size: 1,
            digest: "d".to_owned(),
            target: b"t".to_vec(),
            xattrs: vec![Xattr {
                name: "user.a".to_owned(),
                value: b"v".to_vec(),
            }],
            ..TreeEntry::default()
        };
        let looks = |change: fn(&mut TreeEntry)| {
            let mut changed = entry();
            change(&mut changed);
            looks_of(&[changed], true)
        };
        let plain = looks(|_| {});
        let names: [fn(&mut TreeEntry); 10] = [
            |e| e.path = b"g".to_vec(),
            |e| e.kind = FileKind::Fifo,
            |e| e.mode = 1,
            |e| e.links = 1,
            |e| e.uid = 1,
            |e| e.gid = 1,
            |e| e.size = 2,
            |e| e.target = b"u".to_vec(),
            |e| e.xattrs.clear(),
            |e| e.xattrs[0].value = b"w".to_vec(),
        ];
        for change in names {
            assert_ne!(looks(change).names, plain.names);
        }
        assert_ne!(
            looks(|e| e.digest = "e".to_owned()).contents,
            plain.contents
        );
        assert_eq!(looks(|e| e.blocks = 8), plain);
        let directory = |size| {
            let mut directory = entry();
            (directory.kind, directory.size) = (FileKind::Directory, size);
            looks_of(&[directory], false)
        };
        assert_eq!(directory(1), directory(2), "how it is stored");
        assert_eq!(directory(1).contents, "");
    }

    #[test]
    fn a_look_without_contents_reads_no_file() {
        let scratch = Scratch::new("look");
        fs::write(scratch.0.join("f"), "text").unwrap();
        let root = scratch.0.to_str().unwrap();
        let mut walker = Walker::new();
        let (whole, brief) = (
            walker.walk(root).unwrap(),
            walker.look(root, false).unwrap(),
        );
        assert_eq!(whole.looks.names, brief.looks.names);
        assert_eq!(brief.looks.contents, "");
        assert!(brief.entries[1].digest.is_empty() && brief.entries[1].extents.is_empty());
        assert!(!whole.entries[1].digest.is_empty());
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
        let kinds: Vec<_> = walked.entries.iter().map(|e| e.kind).collect();
        use FileKind::{Directory, Fifo, File, Symlink};
        assert_eq!(kinds, [Directory, File, File, Symlink, Fifo]);
        assert_eq!(walked.entries[3].target, "nowhere/\u{e9}".as_bytes());
        assert_eq!(walked.entries[4].mode, 0o600);
        let (file, hard) = (&walked.entries[1], &walked.entries[2]);
        assert_eq!((file.size, file.links, file.inode), (5, 2, hard.inode));
        // A known answer, so that digests stay comparable between versions of the agent.
        assert_eq!(file.digest, "b5e9c1ad071b3e7fc779cfaa5e523818");
    }

    /// A device that came back as another one was taken for the one that was made.
    #[test]
    fn a_device_is_told_by_its_numbers() {
        let looks = |numbers: (u32, u32)| {
            let scratch = Scratch::new(&format!("device-{}", numbers.0));
            let device = makedev(numbers.0, numbers.1);
            let mode = Mode::from_raw_mode(0o644);
            let node = scratch.0.join("null");
            match mknodat(CWD, node, FileType::CharacterDevice, mode, device) {
                Err(Errno::PERM) => return None, // only root makes devices
                made => made.unwrap(),
            }
            let walked = scratch.walk();
            let target = walked.entries[1].target.clone();
            Some((String::from_utf8(target).unwrap(), walked.looks.names))
        };
        let (Some(made), Some(other)) = (looks((1, 3)), looks((0, 0))) else {
            return;
        };
        assert_eq!((&*made.0, &*other.0), ("1:3", "0:0"));
        assert_ne!(made.1, other.1);
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
            .extents
            .iter()
            .map(|r| (r.kind, r.start, r.length))
            .collect();
        let tail = (2 << 20) + 4096;
        assert_eq!(
            kinds,
            [
                (ExtentKind::Zero, 0, 2 << 20),
                (ExtentKind::Written, 2 << 20, 4096),
                (ExtentKind::Literal, tail, 8),
                (ExtentKind::Zero, tail + 8, (4 << 20) + 3 - tail - 8),
            ]
        );
        let contents = fs::read(&path).unwrap();
        let digest = xxhash_rust::xxh3::xxh3_128(&contents);
        assert_eq!(entry.digest, format!("{digest:032x}"));
    }

    /// Contents wait until all names are known, but only so many files are held open.
    #[test]
    fn every_file_of_a_large_tree_gets_its_own_contents() {
        let scratch = Scratch::new("batches");
        let count = 2 * BATCH_FILES + 7;
        for number in 0..count {
            let text = number.to_string();
            fs::write(scratch.0.join(format!("{number:04}")), text).unwrap();
        }
        let walked = scratch.walk();
        assert_eq!(walked.entries.len(), count + 1);
        for (number, entry) in walked.entries[1..].iter().enumerate() {
            let digest = xxhash_rust::xxh3::xxh3_128(number.to_string().as_bytes());
            assert_eq!(entry.digest, format!("{digest:032x}"));
        }
    }

    #[test]
    fn a_size_beyond_the_limit_is_not_read_and_not_digested() {
        let scratch = Scratch::new("limit");
        fs::write(scratch.0.join("huge"), b"some bytes of no origin").unwrap();
        let mut walker = Walker::new();
        walker.file_limit_bytes = 16;
        let walked = walker.walk(scratch.0.to_str().unwrap()).unwrap();
        assert_eq!(walked.errors, [error(Call::Read, "huge", Errno::FBIG)]);
        let entry = &walked.entries[1];
        let last = entry.extents.last().unwrap();
        assert_eq!(
            (last.kind, last.start, last.length, last.value),
            (ExtentKind::Unreadable, 16, 7, 27)
        );
        assert_eq!((entry.size, &*entry.digest), (23, ""));
    }

    /// A file of more than 1 GiB was never looked at whole, whatever it held.
    #[test]
    fn a_file_may_be_as_large_as_holes_make_it() {
        let scratch = Scratch::new("large");
        let digest = |name: &str, zeros: bool| {
            let path = scratch.0.join(name);
            let file = fs::File::create(&path).unwrap();
            let mut data = [0; 4096];
            pattern::fill(7, 20 << 30, &mut data);
            file.write_all_at(&data, 20 << 30).unwrap();
            if zeros {
                file.write_all_at(&[0; 8192], 5 << 30).unwrap();
            }
            file.set_len(30 << 30).unwrap();
            let walked = scratch.walk();
            assert_eq!(walked.errors, []);
            let entry = walked
                .entries
                .into_iter()
                .find(|e| e.path == name.as_bytes());
            let entry = entry.unwrap();
            let kinds: Vec<_> = entry.extents.iter().map(|r| (r.kind, r.length)).collect();
            let (before, after) = (20 << 30, (10 << 30) - 4096);
            assert_eq!(
                kinds,
                [
                    (ExtentKind::Zero, before),
                    (ExtentKind::Written, 4096),
                    (ExtentKind::Zero, after)
                ]
            );
            assert!(!entry.digest.is_empty());
            entry.digest
        };
        assert_eq!(digest("holes", false), digest("zeros", true));
    }

    #[test]
    fn xattrs_are_found_on_files_and_directories() {
        let scratch = Scratch::new("xattrs");
        let path = scratch.0.join("file");
        fs::write(&path, b"").unwrap();
        for (path, name) in [(&path, "user.b"), (&path, "user.a"), (&scratch.0, "user.c")] {
            match lsetxattr(path, name, name.as_bytes(), XattrFlags::empty()) {
                // A file system without them, such as an old tmpfs: nothing to see.
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

    /// More than 64 nested directories were called unreadable, of every file system.
    #[test]
    fn directories_nest_as_deep_as_the_reply_has_room_for() {
        crate::files::raise_file_limit();
        let scratch = Scratch::new("deep");
        let mut parent = fs::File::open(&scratch.0).unwrap().into();
        for _ in 0..1000 {
            mkdirat(&parent, "d", Mode::from_raw_mode(0o755)).unwrap();
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            parent = openat(&parent, "d", flags, Mode::empty()).unwrap();
        }
        drop(parent);
        let walked = scratch.walk();
        assert_eq!((walked.entries.len(), walked.errors), (1001, vec![]));
        assert_eq!(
            walked.entries[1000].path,
            vec!["d"; 1000].join("/").as_bytes()
        );
    }

    #[test]
    fn a_directory_inside_itself_is_told_and_not_entered() {
        let scratch = Scratch::new("inside");
        let mut walker = Walker::new();
        let open = || OwnedFd::from(fs::File::open(&scratch.0).unwrap());
        let place = (8, 1, 2);
        let outer = walker.enter(open(), place, b"d", &[]).unwrap();
        let beside = walker.enter(open(), (8, 2, 2), b"d/d", std::slice::from_ref(&outer));
        assert!(beside.is_some(), "of another device");
        assert!(walker.enter(open(), place, b"d/d", &[outer]).is_none());
        let expected = error(Call::InsideItself, "d/d", Errno::LOOP);
        assert_eq!(walker.walked.errors, [expected]);
    }

    #[test]
    fn a_missing_root_is_an_error() {
        let walked = Walker::new().walk("/no/such/directory").unwrap();
        assert!(walked.entries.is_empty());
        assert_eq!(walked.errors, [error(Call::Statx, "", Errno::NOENT)]);
    }

    #[test]
    fn a_name_that_is_listed_twice_is_told() {
        let names = ["b", "a", "b", "b"].map(|n| CString::new(n).unwrap());
        let (names, repeated) = ordered(names.to_vec());
        assert_eq!(names, [c"a", c"b"].map(CStr::to_owned));
        assert_eq!(repeated, [c"b", c"b"].map(CStr::to_owned));
    }

    /// They were reported as damage of the file system.
    #[test]
    fn a_tree_of_too_many_entries_is_refused_and_not_called_damaged() {
        let scratch = Scratch::new("many");
        for d in 0..4 {
            fs::create_dir_all(scratch.0.join(format!("{d}/x/y"))).unwrap();
        }
        let mut walker = Walker::new();
        // Fewer than one directory holds, and than all do.
        for limit in [3, 5, 12] {
            walker.entries_limit = limit;
            let failure = walker.walk(scratch.0.to_str().unwrap()).unwrap_err();
            assert!(matches!(failure, Failure::TooManyEntries { limit: l } if l == limit));
        }
        walker.entries_limit = 13;
        assert!(walker.walk(scratch.0.to_str().unwrap()).is_ok());
    }

    #[test]
    fn names_that_repeat_are_damage_and_not_too_many() {
        let names = ["a", "b", "a"].map(|n| CString::new(n).unwrap());
        assert!(has_repeated(&names));
        assert!(!has_repeated(&names[..2]));
    }

    #[test]
    fn a_tree_that_takes_too_much_to_tell_is_refused() {
        let scratch = Scratch::new("much");
        let mixed = [&[0; 8][..], b"strange!"].concat().repeat(1000);
        fs::write(scratch.0.join("mixed"), mixed).unwrap();
        let mut walker = Walker::new();
        walker.told_limit_bytes = 100_000;
        let failure = walker.walk(scratch.0.to_str().unwrap()).unwrap_err();
        assert!(matches!(failure, Failure::TreeTooLarge { limit: 100_000 }));
        walker.told_limit_bytes = TOLD_LIMIT_BYTES;
        assert!(walker.walk(scratch.0.to_str().unwrap()).is_ok());
    }

    /// The count must not be less than what is sent, or a tree within the limit would not fit a frame, and its
    /// state would be lost.
    #[test]
    fn what_is_counted_of_a_tree_is_no_less_than_it_takes_to_send() {
        let long = |n: usize| "n".repeat(n);
        let run = powercut_protocol::Extent {
            kind: ExtentKind::Unreadable,
            start: u64::MAX,
            length: u64::MAX,
            value: u64::MAX,
            origin: u64::MAX,
            data: vec![b'x'; 64],
        };
        let entry = TreeEntry {
            path: vec![b'p'; 70_000],
            kind: FileKind::Directory,
            inode: u64::MAX,
            mode: u32::MAX,
            links: u32::MAX,
            uid: u32::MAX,
            gid: u32::MAX,
            size: u64::MAX,
            blocks: u64::MAX,
            target: vec![b't'; 70_000],
            xattrs: vec![
                Xattr {
                    name: long(70_000),
                    value: vec![0; 70_000]
                };
                20
            ],
            extents: vec![run; 20],
            digest: long(32),
        };
        let mut walker = Walker::new();
        for _ in 0..3 {
            walker.tell(entry.clone());
            walker.error_of(
                Call::InsideItself,
                &[b'p'; 70_000],
                long(70_000),
                Errno::UCLEAN,
            );
        }
        let counted = walker.told_bytes;
        let recovered = powercut_protocol::Recovered {
            entries: std::mem::take(&mut walker.walked.entries),
            walk_errors: std::mem::take(&mut walker.walked.errors),
            ..powercut_protocol::Recovered::default()
        };
        let mut frame = Vec::new();
        let reply = powercut_protocol::AgentReply::Recovered(recovered);
        powercut_protocol::send(&mut frame, &reply).unwrap();
        assert!(frame.len() < counted + 200, "{} for {counted}", frame.len());
    }
}
