//! Writes to a recovered file system, as its users will: makes a file in the root and in each directory, removes
//! everything, and makes files again of what has become free. After another mount these are read back and removed.
//!
//! What fails for want of space is no error where the file system itself says that there is none left (statvfs).
//! Everything else is, and nothing stops at it: each name is tried. Symbolic links are not followed.

use std::{
    ffi::{CStr, CString},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Instant,
};

use powercut_protocol::{limits::ENTRIES, Call, CallError, Difference, DifferenceKind};
use rustix::{
    fs::{
        fstatvfs, fsync, mkdirat, openat, renameat, seek, statvfs, statx, syncfs, unlinkat,
        AtFlags, FileType, Mode, OFlags, RawDir, SeekFrom, StatVfs, StatxFlags, CWD,
    },
    io::{read, write, Errno},
};

use crate::{
    failure::Failure,
    files::close_all,
    walk,
    watch::{self, Call as Watched},
};

/// Directories in which a file is made. All are removed.
const DIRECTORIES_MAX: usize = 64;
/// Files made after the removal: the first of them get the inodes and blocks that were freed first.
const AGAIN: u8 = 8;
/// Nested directories: the paths of a deeper tree do not fit into the walk's reply.
const DEPTH_LIMIT: usize = 4096;
/// Names in one directory: as many as the walk takes, and those that are made here. More of them are not removed.
const NAMES_MAX: usize = ENTRIES + 16;
/// Errors that are told. One is enough for a verdict.
const ERRORS_MAX: usize = 100;
/// Steps between two looks at the clock. A look is a system call, and a file system under test has a few dozen names.
const STEPS_PER_LOOK: u32 = 16;
/// What is written into each file: a block. The first byte of the pattern; that of the files made again counts up.
const FILL: u8 = b'A';
const FILE_BYTES: usize = 4096;
const NEW: &CStr = c".powercut-new";
const RENAMED: &CStr = c".powercut-renamed";
const DIRECTORY: &CStr = c".powercut-directory";

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Used {
    pub errors: Vec<CallError>,
    pub differences: Vec<Difference>,
    /// Whether all was tried before the deadline.
    pub finished: bool,
}

/// Mounts what is written to, and unmounts it. Each may find what is no matter of the file system.
pub trait Remount {
    fn mount(&mut self) -> Result<Result<(), Errno>, Failure>;
    /// Returns 0, or the errno of umount(2).
    fn unmount(&mut self) -> Result<i32, Failure>;
}

/// How mounts and unmounts went; 0: well.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Of the last unmount.
    pub unmount_errno: i32,
    /// Of the mount after the writing.
    pub remount_errno: i32,
}

type Put = dyn Fn(&OwnedFd, &[u8]) -> Result<usize, Errno>;

/// A directory on the way down, with the names in it that have not had their turn.
struct Level {
    /// None of the root, which its caller holds.
    directory: Option<OwnedFd>,
    /// In its parent.
    name: CString,
    names: std::vec::IntoIter<(CString, bool)>,
    path_length: usize,
    /// How many names could not be removed before it was entered.
    left_before: usize,
}

impl Level {
    fn file<'a>(&'a self, root: &'a OwnedFd) -> &'a OwnedFd {
        self.directory.as_ref().unwrap_or(root)
    }
}

/// A user of the file system at `root`, in which the names in `keep` stay.
pub struct User<'a> {
    root: &'a str,
    keep: &'a [String],
    deadline: Instant,
    /// Whether the file system says that it has room.
    has_room: &'a dyn Fn(&str) -> bool,
    /// write(2).
    put: &'a Put,
    errors: Vec<CallError>,
    differences: Vec<Difference>,
    finished: bool,
    /// Steps that were taken: see [`STEPS_PER_LOOK`].
    steps: u32,
    /// Directories in which a file was made.
    filled: usize,
    /// Names that could not be removed.
    left: usize,
    /// Files that were made again and written whole, each with the byte that fills it.
    written: Vec<(CString, u8)>,
    listing: Vec<MaybeUninit<u8>>,
    names_max: usize,
}

impl<'a> User<'a> {
    pub fn new(root: &'a str, keep: &'a [String], deadline: Instant) -> Self {
        User {
            root,
            keep,
            deadline,
            has_room: &says_it_has_room,
            put: &|file, data| write(file, data),
            errors: Vec::new(),
            differences: Vec::new(),
            finished: true,
            steps: 0,
            filled: 0,
            left: 0,
            written: Vec::new(),
            listing: vec![MaybeUninit::uninit(); 32 << 10],
            names_max: NAMES_MAX,
        }
    }

    /// Write to the file system that `disk` has mounted, and unmount it; mount it once more, and read back what was
    /// written last.
    ///
    /// # Errors
    /// As those of `disk`.
    pub fn use_up(&mut self, disk: &mut impl Remount) -> Result<Ended, Failure> {
        let mut ended = Ended::default();
        let again = watch::during(Watched::Files, || self.write_and_remove());
        ended.unmount_errno = disk.unmount()?;
        if again && ended.unmount_errno == 0 {
            match disk.mount()? {
                Ok(()) => {
                    watch::during(Watched::Files, || self.read_back());
                    ended.unmount_errno = disk.unmount()?;
                }
                Err(errno) => ended.remount_errno = errno.raw_os_error(),
            }
        }
        Ok(ended)
    }

    /// Write to the file system, remove all that it holds, and make files again. Returns whether they are worth a
    /// look after another mount, which is `read_back`.
    fn write_and_remove(&mut self) -> bool {
        let mut path = Vec::new();
        let Some(root) = self.open_root() else {
            return false;
        };
        self.fill(&root);
        self.empty(&root);
        let emptied = self.left == 0 && self.finished;
        if emptied {
            self.fill_again(&root, &mut path);
        }
        self.check(Call::Syncfs, &path, syncfs(&root));
        emptied && self.finished
    }

    /// Read what was written before the last mount, and remove it.
    fn read_back(&mut self) {
        let mut path = Vec::new();
        let Some(root) = self.open_root() else {
            return;
        };
        let mut files = Vec::new();
        for (name, fill) in std::mem::take(&mut self.written) {
            files.extend(self.compare(&root, &name, fill, &mut path));
        }
        close_all(files);
        self.empty(&root);
        if self.left == 0 && self.finished && !self.names(&root, &mut path, true).is_empty() {
            self.error(Call::Rmdir, &path, Errno::NOTEMPTY);
        }
        self.check(Call::Syncfs, &path, syncfs(&root));
    }

    pub fn end(self) -> Used {
        Used {
            errors: self.errors,
            differences: self.differences,
            finished: self.finished,
        }
    }

    fn open_root(&mut self) -> Option<OwnedFd> {
        let opened = CString::new(self.root)
            .map_err(|_| Errno::INVAL)
            .and_then(|root| open_directory(CWD, &root));
        self.check(Call::Openat, &[], opened)
    }

    /// Make and write a file in the root and in the directories below, the upper ones first, until
    /// [`DIRECTORIES_MAX`] have one.
    fn fill(&mut self, root: &OwnedFd) {
        let mut path = Vec::new();
        // Listed first: what is made here is not entered.
        let mut open = vec![self.root_level(root)];
        self.fill_one(root, &mut path);
        while let Some(level) = open.last_mut() {
            path.truncate(level.path_length);
            let Some((name, is_directory)) = level.names.next() else {
                open.pop();
                continue;
            };
            if self.filled >= DIRECTORIES_MAX || self.is_late() {
                return;
            }
            if !is_directory {
                continue;
            }
            if let Some(child) = self.enter(level.file(root), name, &mut path) {
                self.fill_one(child.file(root), &mut path);
                open.push(child);
            }
        }
    }

    /// Make and write a file in a directory, rename it, and make a directory beside it.
    fn fill_one(&mut self, directory: &OwnedFd, path: &mut Vec<u8>) {
        if self.is_late() {
            return;
        }
        self.filled += 1;
        if let Some((file, _)) = self.make_file(directory, NEW, FILL, path) {
            self.check_at(Call::Fsync, path, NEW, fsync(&file));
            let renamed = renameat(directory, NEW, directory, RENAMED);
            self.check_at(Call::Rename, path, NEW, renamed);
        }
        let made = mkdirat(directory, DIRECTORY, Mode::from_raw_mode(0o755));
        self.check_at(Call::Mkdir, path, DIRECTORY, made);
    }

    /// Make files in the root, of inodes and blocks that have just been freed.
    fn fill_again(&mut self, root: &OwnedFd, path: &mut Vec<u8>) {
        // XFS frees inodes in the background, a clock tick later at the earliest: statfs(2) has it begin at once
        // (xfs_fs_statfs, xfs_inodegc_push), and it is done while syncfs waits for the disk.
        let _ = fstatvfs(root);
        self.check(Call::Syncfs, path, syncfs(root));
        let mut files = Vec::new();
        for number in 0..AGAIN {
            if self.is_late() {
                break;
            }
            let name = CString::new(format!(".powercut-again-{number}")).expect("no NUL");
            let fill = FILL + number;
            if let Some((file, whole)) = self.make_file(root, &name, fill, path) {
                files.push(file);
                if whole {
                    self.written.push((name, fill));
                }
            }
        }
        close_all(files);
    }

    /// Make a file and write a block. Returns it, and whether the whole block was written.
    fn make_file(
        &mut self,
        directory: &OwnedFd,
        name: &CStr,
        fill: u8,
        path: &mut Vec<u8>,
    ) -> Option<(OwnedFd, bool)> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let made = openat(directory, name, flags, Mode::from_raw_mode(0o644));
        let file = self.check_at(Call::Openat, path, name, made)?;
        let put = self.put;
        let whole = self.write_block(path, name, fill, |data| put(&file, data));
        Some((file, whole))
    }

    /// Write a block by `put`, which is write(2). Returns whether all of it was written, at once or in parts.
    fn write_block(
        &mut self,
        path: &mut Vec<u8>,
        name: &CStr,
        fill: u8,
        mut put: impl FnMut(&[u8]) -> Result<usize, Errno>,
    ) -> bool {
        let data = [fill; FILE_BYTES];
        let mut done = 0;
        while done < FILE_BYTES {
            let Some(count) = self.check_at(Call::Write, path, name, put(&data[done..])) else {
                return false;
            };
            // Room for part of a block only is what a full file system has.
            if count < FILE_BYTES - done && (self.has_room)(self.root) {
                self.differs(path, name, DifferenceKind::ShortWrite, count);
            }
            if count == 0 {
                return false;
            }
            done += count;
        }
        true
    }

    /// Hold a file that was written before the last mount against what was written. Returns it, if it can be opened.
    fn compare(
        &mut self,
        root: &OwnedFd,
        name: &CStr,
        fill: u8,
        path: &mut Vec<u8>,
    ) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(root, name, flags, Mode::empty());
        let file = self.check_at(Call::Openat, path, name, opened)?;
        let (mut data, mut size) = ([0; FILE_BYTES + 1], 0);
        // A whole block and no byte more, although one was asked for: that is its end.
        while size < FILE_BYTES {
            let count = read(&file, &mut data[size..]);
            match self.check_at(Call::Read, path, name, count) {
                Some(0) => break,
                Some(count) => size += count,
                None => return Some(file),
            }
        }
        if size != FILE_BYTES {
            self.differs(path, name, DifferenceKind::Size, size);
        } else if let Some(at) = data[..size].iter().position(|byte| *byte != fill) {
            self.differs(path, name, DifferenceKind::Data, at);
        }
        Some(file)
    }

    /// Remove everything below the root, the deepest first.
    fn empty(&mut self, root: &OwnedFd) {
        let mut path = Vec::new();
        let mut open = vec![self.root_level(root)];
        while let Some(level) = open.last_mut() {
            path.truncate(level.path_length);
            let Some((name, is_directory)) = level.names.next() else {
                let emptied = open.pop();
                if let (Some(emptied), Some(above)) = (emptied, open.last()) {
                    path.truncate(above.path_length);
                    self.remove_emptied(above.file(root), &emptied, &mut path);
                }
                continue;
            };
            if self.is_late() {
                return;
            }
            if !is_directory {
                let removed = unlinkat(level.file(root), &name, AtFlags::empty());
                let removed = self.check_at(Call::Unlink, &mut path, &name, removed);
                self.left += usize::from(removed.is_none());
                continue;
            }
            match self.enter(level.file(root), name, &mut path) {
                Some(child) if open.len() < DEPTH_LIMIT => open.push(child),
                _ => self.left += 1,
            }
        }
    }

    /// Remove a directory, unless something is left in it: why has been told, or is no error.
    fn remove_emptied(&mut self, parent: &OwnedFd, emptied: &Level, path: &mut Vec<u8>) {
        if self.left == emptied.left_before {
            let removed = unlinkat(parent, &emptied.name, AtFlags::REMOVEDIR);
            let removed = self.check_at(Call::Rmdir, path, &emptied.name, removed);
            self.left += usize::from(removed.is_none());
        }
    }

    fn root_level(&mut self, root: &OwnedFd) -> Level {
        Level {
            directory: None,
            name: CString::default(),
            names: self.names(root, &mut Vec::new(), true).into_iter(),
            path_length: 0,
            left_before: self.left,
        }
    }

    /// Open and list a directory. `path` is that of its parent, and becomes its own.
    fn enter(&mut self, parent: &OwnedFd, name: CString, path: &mut Vec<u8>) -> Option<Level> {
        let opened = open_directory(parent.as_fd(), &name);
        let directory = self.check_at(Call::Openat, path, &name, opened)?;
        push(path, &name);
        Some(Level {
            names: self.names(&directory, path, false).into_iter(),
            directory: Some(directory),
            name,
            path_length: path.len(),
            left_before: self.left,
        })
    }

    /// The names in a directory as far as they can be read, in order, and whether each is a directory. Without those
    /// to be kept.
    fn names(
        &mut self,
        directory: &OwnedFd,
        path: &mut Vec<u8>,
        is_root: bool,
    ) -> Vec<(CString, bool)> {
        let mut found = Vec::new();
        // From the beginning: the root may have been listed before; all others are opened anew.
        let mut error = if is_root {
            seek(directory, SeekFrom::Start(0)).err()
        } else {
            None
        };
        let mut room = std::mem::take(&mut self.listing);
        let mut listing = RawDir::new(directory, &mut room);
        while let Some(next) = listing.next() {
            match next {
                Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
                // A damaged directory may never end.
                Ok(_) if self.is_late() => break,
                Ok(_) if found.len() == self.names_max => {
                    let names: Vec<_> = found.drain(..).map(|(name, _)| name).collect();
                    match walk::has_repeated(&names) {
                        true => error = Some(Errno::EXIST),
                        false => self.finished = false,
                    }
                    break;
                }
                Ok(entry) => found.push((entry.file_name().to_owned(), entry.file_type())),
                Err(errno) => {
                    error = Some(errno);
                    break;
                }
            }
        }
        self.listing = room;
        if let Some(errno) = error {
            self.error(Call::Getdents, path, errno);
        }
        found.retain(|(name, _)| {
            let is = |kept: &String| kept.as_bytes() == name.to_bytes();
            !is_root || !self.keep.iter().any(is)
        });
        found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let mut names = Vec::with_capacity(found.len());
        for (name, kind) in found {
            let kind = match kind {
                FileType::Unknown => self.kind(directory, &name, path),
                known => known,
            };
            names.push((name, kind == FileType::Directory));
        }
        names
    }

    /// The type of a name for which the directory has none.
    fn kind(&mut self, directory: &OwnedFd, name: &CStr, path: &mut Vec<u8>) -> FileType {
        let stat = statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE);
        self.check_at(Call::Statx, path, name, stat)
            .map_or(FileType::Unknown, |stat| {
                FileType::from_raw_mode(stat.stx_mode.into())
            })
    }

    fn is_late(&mut self) -> bool {
        if self.steps.is_multiple_of(STEPS_PER_LOOK) {
            self.finished &= Instant::now() < self.deadline;
        }
        self.steps = self.steps.wrapping_add(1);
        !self.finished
    }

    fn check_at<T>(
        &mut self,
        call: Call,
        directory: &mut Vec<u8>,
        name: &CStr,
        result: Result<T, Errno>,
    ) -> Option<T> {
        below(directory, name, |path| self.check(call, path, result))
    }

    fn check<T>(&mut self, call: Call, path: &[u8], result: Result<T, Errno>) -> Option<T> {
        result.map_err(|errno| self.error(call, path, errno)).ok()
    }

    fn error(&mut self, call: Call, path: &[u8], errno: Errno) {
        let want_of_space = [Errno::NOSPC, Errno::DQUOT].contains(&errno);
        if want_of_space && !(self.has_room)(self.root) {
            return;
        }
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(CallError {
                call,
                path: path.to_vec(),
                name: String::new(),
                errno: errno.raw_os_error(),
            });
        }
    }

    fn differs(
        &mut self,
        directory: &mut Vec<u8>,
        name: &CStr,
        kind: DifferenceKind,
        found: usize,
    ) {
        let found = found as u64;
        let path = below(directory, name, |path| path.clone());
        self.differences.push(Difference { path, kind, found });
    }
}

/// Whether a file system says that a quarter of its blocks and of its inodes is free, and 64 of each. That much is
/// more than what any keeps for itself, so there is room for a block and a name. No count of inodes: they are made of
/// blocks as they are needed.
fn says_it_has_room(root: &str) -> bool {
    statvfs(root).is_ok_and(|stat| is_roomy(&stat))
}

fn is_roomy(stat: &StatVfs) -> bool {
    let ample = |free: u64, all: u64| free >= 64 && free >= all / 4;
    ample(stat.f_bavail, stat.f_blocks) && (stat.f_files == 0 || ample(stat.f_favail, stat.f_files))
}

fn open_directory(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

/// Append a name to a path.
fn push(path: &mut Vec<u8>, name: &CStr) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name.to_bytes());
}

/// Append a name to a path for as long as `act` takes.
fn below<T>(path: &mut Vec<u8>, name: &CStr, act: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let length = path.len();
    push(path, name);
    let done = act(path);
    path.truncate(length);
    done
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::PathBuf, time::Duration};

    use super::*;

    /// A directory that goes when the test ends.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("powercut-usable-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn use_it(&self, keep: &[&str], seconds: u64) -> Used {
            let keep: Vec<_> = keep.iter().map(|name| (*name).to_owned()).collect();
            let deadline = Instant::now() + Duration::from_secs(seconds);
            let mut user = User::new(self.0.to_str().unwrap(), &keep, deadline);
            if user.write_and_remove() {
                user.read_back();
            }
            user.end()
        }

        /// A user of this directory, which says that it has room.
        fn user(&self) -> User<'_> {
            let deadline = Instant::now() + Duration::from_secs(60);
            User {
                has_room: &|_| true,
                ..User::new(self.0.to_str().unwrap(), &[], deadline)
            }
        }

        fn names(&self) -> Vec<String> {
            let found = fs::read_dir(&self.0).unwrap();
            let mut names: Vec<_> = found
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// A directory as a disk: of what mounts and unmounts, in order, come to.
    struct Played<'a> {
        mounts: &'a [Result<(), Errno>],
        unmounts: &'a [i32],
    }

    impl Remount for Played<'_> {
        fn mount(&mut self) -> Result<Result<(), Errno>, Failure> {
            let (first, left) = self.mounts.split_first().expect("no further mount");
            self.mounts = left;
            Ok(*first)
        }

        fn unmount(&mut self) -> Result<i32, Failure> {
            let (first, left) = self.unmounts.split_first().expect("no further unmount");
            self.unmounts = left;
            Ok(*first)
        }
    }

    /// It was listed for as long as there was memory, which ended the agent.
    #[test]
    fn a_directory_that_does_not_end_is_given_up() {
        let scratch = Scratch::new("endless");
        for number in 0..100 {
            fs::write(scratch.0.join(number.to_string()), "").unwrap();
        }
        let listed = |names_max, late| {
            let mut user = scratch.user();
            user.names_max = names_max;
            if late {
                user.deadline = Instant::now();
            }
            let root = user.open_root().unwrap();
            let names = user.names(&root, &mut Vec::new(), true);
            assert!(!user.listing.is_empty());
            (names.len(), user.end())
        };
        let used = |finished| Used {
            errors: vec![],
            differences: vec![],
            finished,
        };
        assert_eq!(listed(100, false), (100, used(true)));
        assert_eq!(listed(99, false), (0, used(false)));
        assert_eq!(listed(100, true), (0, used(false)));
    }

    /// A mount after the writing that failed was told as one that succeeded: no test of the agent saw it.
    #[test]
    fn a_mount_after_the_writing_that_fails_is_told() {
        let ended = |mounts: &[Result<(), Errno>], unmounts: &[i32]| {
            let scratch = Scratch::new("ended");
            let mut played = Played { mounts, unmounts };
            let ended = scratch.user().use_up(&mut played).unwrap();
            assert!(played.mounts.is_empty() && played.unmounts.is_empty());
            (ended.unmount_errno, ended.remount_errno)
        };
        assert_eq!(ended(&[Ok(())], &[0, 0]), (0, 0));
        assert_eq!(ended(&[Err(Errno::UCLEAN)], &[0]), (0, 117));
        assert_eq!(ended(&[], &[5]), (5, 0));
        assert_eq!(ended(&[Ok(())], &[0, 5]), (5, 0));
    }

    #[test]
    fn everything_goes_but_what_is_to_be_kept() {
        let scratch = Scratch::new("all");
        fs::create_dir_all(scratch.0.join("a/b/c")).unwrap();
        fs::create_dir_all(scratch.0.join("lost+found/x")).unwrap();
        fs::create_dir(scratch.0.join("a/lost+found")).unwrap();
        fs::write(scratch.0.join("a/b/f"), "text").unwrap();
        fs::hard_link(scratch.0.join("a/b/f"), scratch.0.join("g")).unwrap();
        symlink("a", scratch.0.join("s")).unwrap();
        symlink("nowhere", scratch.0.join("t")).unwrap();
        let used = scratch.use_it(&["lost+found"], 60);
        assert_eq!((used.errors, used.finished), (vec![], true));
        assert_eq!(scratch.names(), ["lost+found"]);
        assert!(scratch.0.join("lost+found/x").is_dir());
    }

    /// Each directory took a frame of the stack, and 4,096 of them more stack than a thread need have.
    #[test]
    fn directories_nest_deeper_than_a_stack_has_frames_for() {
        crate::files::raise_file_limit();
        let scratch = Scratch::new("deep");
        let mut parent: OwnedFd = fs::File::open(&scratch.0).unwrap().into();
        for _ in 0..2000 {
            mkdirat(&parent, c"d", Mode::from_raw_mode(0o755)).unwrap();
            parent = open_directory(parent.as_fd(), c"d").unwrap();
        }
        drop(parent);
        let used = std::thread::scope(|scope| {
            let small = std::thread::Builder::new().stack_size(128 << 10);
            let using = small.spawn_scoped(scope, || scratch.use_it(&[], 60));
            using.unwrap().join().unwrap()
        });
        assert_eq!((used.errors, used.finished), (vec![], true));
        assert_eq!(scratch.names(), Vec::<String>::new());
    }

    #[test]
    fn past_its_deadline_it_tells_so_and_removes_nothing() {
        let scratch = Scratch::new("late");
        fs::write(scratch.0.join("f"), "text").unwrap();
        let used = scratch.use_it(&[], 0);
        assert_eq!((used.errors, used.finished), (vec![], false));
        assert_eq!(scratch.names(), ["f"]);
    }

    #[test]
    fn what_fails_is_told_with_its_path_once() {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut user = User::new("/no/such/directory", &[], deadline);
        assert!(!user.write_and_remove());
        let used = user.end();
        let error = CallError {
            call: Call::Openat,
            path: Vec::new(),
            name: String::new(),
            errno: Errno::NOENT.raw_os_error(),
        };
        assert_eq!((used.errors, used.finished), (vec![error], true));
    }

    /// procfs lets nobody make or remove a name there: ENOENT for the file, EPERM for the names. EPERM was taken for
    /// an immutable file, which no workload makes.
    #[test]
    fn what_must_not_be_removed_is_an_error() {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut user = User::new("/proc/self/ns", &[], deadline);
        assert!(!user.write_and_remove());
        let used = user.end();
        let told: Vec<_> = used
            .errors
            .iter()
            .map(|e| (e.call, e.path.as_slice(), e.errno))
            .collect();
        let expected = (Call::Openat, NEW.to_bytes(), Errno::NOENT.raw_os_error());
        assert_eq!(told.first(), Some(&expected));
        assert!(told.contains(&(Call::Unlink, b"mnt", Errno::PERM.raw_os_error())));
    }

    /// Any ENOSPC was taken for a full disk.
    #[test]
    fn want_of_space_is_an_error_where_there_is_space() {
        let scratch = Scratch::new("space");
        for errno in [Errno::NOSPC, Errno::DQUOT] {
            let mut full = scratch.user();
            full.has_room = &|_| false;
            full.error(Call::Mkdir, b"d", errno);
            full.error(Call::Mkdir, b"d", Errno::IO);
            let told: Vec<_> = full.end().errors.iter().map(|e| e.errno).collect();
            assert_eq!(told, [Errno::IO.raw_os_error()]);
            let mut roomy = scratch.user();
            roomy.error(Call::Mkdir, b"d", errno);
            assert_eq!(roomy.end().errors[0].errno, errno.raw_os_error());
        }
    }

    #[test]
    fn there_is_room_where_a_quarter_of_blocks_and_inodes_is_free() {
        let mut stat = statvfs("/proc").unwrap();
        let mut room = |blocks: (u64, u64), inodes: (u64, u64)| {
            (stat.f_bavail, stat.f_blocks) = blocks;
            (stat.f_favail, stat.f_files) = inodes;
            is_roomy(&stat)
        };
        assert!(room((4000, 16_000), (1000, 4000)));
        assert!(room((4000, 16_000), (0, 0)), "inodes are made as needed");
        assert!(!room((3999, 16_000), (1000, 4000)));
        assert!(!room((4000, 16_000), (999, 4000)));
        assert!(!room((63, 100), (1000, 4000)), "too little to say");
    }

    /// The count that write(2) returned was dropped.
    #[test]
    fn a_short_write_is_told_unless_the_disk_is_full() {
        let scratch = Scratch::new("short");
        let short = |room: bool| {
            let mut user = scratch.user();
            user.has_room = if room { &|_| true } else { &|_| false };
            let mut given = Vec::new();
            let whole = user.write_block(&mut Vec::new(), c"f", b'x', |data| {
                given.push(data.len());
                Ok(data.len().min(3000))
            });
            assert_eq!((whole, given), (true, vec![4096, 1096]));
            user.end()
        };
        let difference = Difference {
            path: b"f".to_vec(),
            kind: DifferenceKind::ShortWrite,
            found: 3000,
        };
        assert_eq!(short(true).differences, [difference]);
        assert_eq!(short(false).differences, []);
    }

    #[test]
    fn a_write_that_ends_early_is_not_read_back() {
        let scratch = Scratch::new("early");
        let mut user = scratch.user();
        user.has_room = &|_| false;
        let mut left = [Ok(3000), Err(Errno::NOSPC)].into_iter();
        assert!(!user.write_block(&mut Vec::new(), c"f", b'x', |_| left.next().unwrap()));
        assert!(!user.write_block(&mut Vec::new(), c"f", b'x', |_| Ok(0)));
        let used = user.end();
        assert_eq!((used.errors, used.differences), (vec![], vec![]));
    }

    #[test]
    fn a_full_disk_is_not_held_against_what_it_refused() {
        let scratch = Scratch::new("full");
        let mut user = scratch.user();
        user.has_room = &|_| false;
        user.put = &|_, _| Err(Errno::NOSPC);
        assert!(user.write_and_remove());
        user.read_back();
        let used = user.end();
        assert_eq!((used.errors, used.differences), (vec![], vec![]));
    }

    /// Nothing was read back: data that never reached the disk, or another file's, went unseen.
    #[test]
    fn what_was_written_is_read_back_and_then_removed() {
        let scratch = Scratch::new("back");
        fs::write(scratch.0.join("f"), "text").unwrap();
        let mut user = scratch.user();
        assert!(user.write_and_remove());
        let again: Vec<_> = (0..AGAIN)
            .map(|number| scratch.0.join(format!(".powercut-again-{number}")))
            .collect();
        let held: Vec<_> = again.iter().map(|path| fs::read(path).unwrap()).collect();
        assert!(held.iter().all(|data| data.len() == FILE_BYTES));
        let own: std::collections::BTreeSet<_> = held.iter().collect();
        assert_eq!(own.len(), held.len(), "each file has data of its own");
        fs::remove_file(&again[1]).unwrap();
        fs::write(&again[2], &held[2][..100]).unwrap();
        fs::write(&again[3], [held[3].as_slice(), b"more"].concat()).unwrap();
        let mut other = held[4].clone();
        other[512..].copy_from_slice(&held[5][512..]);
        fs::write(&again[4], other).unwrap();
        user.read_back();
        let used = user.end();
        let told: Vec<_> = used
            .differences
            .iter()
            .map(|d| (d.path.last().copied().unwrap(), d.kind, d.found))
            .collect();
        assert_eq!(
            told,
            [
                (b'2', DifferenceKind::Size, 100),
                (b'3', DifferenceKind::Size, 4097),
                (b'4', DifferenceKind::Data, 512),
            ]
        );
        let missing: Vec<_> = used.errors.iter().map(|e| (e.call, e.errno)).collect();
        assert_eq!(missing, [(Call::Openat, Errno::NOENT.raw_os_error())]);
        assert_eq!(scratch.names(), Vec::<String>::new());
    }
}
