//! Writes to a recovered file system, as its users will: makes a file in the root and in each directory, removes
//! everything, and makes files again of what has become free.
//!
//! What fails for want of space or permission is no error. Everything else is, and nothing stops at it: each name is
//! tried. Symbolic links are not followed.

use std::{
    ffi::{CStr, CString},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Instant,
};

use powercut_protocol::{Call, CallError};
use rustix::{
    fs::{
        fsync, mkdirat, openat, renameat, seek, statx, syncfs, unlinkat, AtFlags, FileType, Mode,
        OFlags, RawDir, SeekFrom, StatxFlags, CWD,
    },
    io::{write, Errno},
};

/// Directories in which a file is made. All are removed.
const DIRECTORIES_MAX: usize = 64;
/// Files made after the removal: the first of them get the inodes and blocks that were freed first.
const AGAIN: usize = 8;
/// Nested directories: the walk refuses deeper trees.
const DEPTH_LIMIT: usize = 64;
/// Errors that are told. One is enough for a verdict.
const ERRORS_MAX: usize = 100;
/// What is written into each file: a block.
const DATA: [u8; 4096] = [b'u'; 4096];
const NEW: &CStr = c".powercut-new";
const RENAMED: &CStr = c".powercut-renamed";
const DIRECTORY: &CStr = c".powercut-directory";

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Used {
    pub errors: Vec<CallError>,
    /// Whether all was tried before the deadline.
    pub finished: bool,
}

/// Write to the file system at `root`, and remove all that it holds but the names in `keep`, which are in the root.
pub fn write_and_remove(root: &str, keep: &[String], deadline: Instant) -> Used {
    let mut user = User {
        keep,
        deadline,
        errors: Vec::new(),
        finished: true,
        filled: 0,
        left: 0,
        listing: vec![MaybeUninit::uninit(); 32 << 10],
    };
    let mut path = Vec::new();
    let opened = CString::new(root)
        .map_err(|_| Errno::INVAL)
        .and_then(|root| open_directory(CWD, &root));
    match opened {
        Ok(root) => {
            user.fill(&root, &mut path, 0);
            user.empty(&root, &mut path, 0);
            if user.left == 0 {
                user.fill_again(&root, &mut path);
                user.empty(&root, &mut path, 0);
            }
            if user.left == 0 && user.finished && !user.names(&root, &mut path, 0).is_empty() {
                user.error(Call::Rmdir, &path, Errno::NOTEMPTY);
            }
            user.check(Call::Syncfs, &path, syncfs(&root));
        }
        Err(errno) => user.error(Call::Openat, &path, errno),
    }
    Used {
        errors: user.errors,
        finished: user.finished,
    }
}

struct User<'a> {
    keep: &'a [String],
    deadline: Instant,
    errors: Vec<CallError>,
    finished: bool,
    /// Directories in which a file was made.
    filled: usize,
    /// Names that could not be removed.
    left: usize,
    listing: Vec<MaybeUninit<u8>>,
}

impl User<'_> {
    /// Make and write a file in this directory and in those below, rename it, and make a directory beside it.
    fn fill(&mut self, directory: &OwnedFd, path: &mut Vec<u8>, depth: usize) {
        if self.filled >= DIRECTORIES_MAX || depth > DEPTH_LIMIT || self.is_late() {
            return;
        }
        self.filled += 1;
        // Listed first: what is made here is not entered.
        let names = self.names(directory, path, depth);
        if let Some(file) = self.make_file(directory, NEW, path) {
            self.check_at(Call::Fsync, path, NEW, fsync(&file));
            let renamed = renameat(directory, NEW, directory, RENAMED);
            self.check_at(Call::Rename, path, NEW, renamed);
        }
        let made = mkdirat(directory, DIRECTORY, Mode::from_raw_mode(0o755));
        self.check_at(Call::Mkdir, path, DIRECTORY, made);
        for (name, is_directory) in names {
            if is_directory {
                self.enter(directory, &name, path, |user, child, path| {
                    user.fill(child, path, depth + 1);
                });
            }
        }
    }

    /// Make files in the root, of inodes and blocks that have just been freed.
    fn fill_again(&mut self, root: &OwnedFd, path: &mut Vec<u8>) {
        // XFS frees inodes in the background, which this brings forward.
        self.check(Call::Syncfs, path, syncfs(root));
        for number in 0..AGAIN {
            if self.is_late() {
                return;
            }
            let name = CString::new(format!(".powercut-again-{number}")).expect("no NUL");
            self.make_file(root, &name, path);
        }
        self.check(Call::Syncfs, path, syncfs(root));
    }

    /// Make a file and write a block.
    fn make_file(
        &mut self,
        directory: &OwnedFd,
        name: &CStr,
        path: &mut Vec<u8>,
    ) -> Option<OwnedFd> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let made = openat(directory, name, flags, Mode::from_raw_mode(0o644));
        let file = self.check_at(Call::Openat, path, name, made)?;
        let written = write(&file, &DATA);
        self.check_at(Call::Write, path, name, written);
        Some(file)
    }

    /// Remove everything below this directory, the deepest first.
    fn empty(&mut self, directory: &OwnedFd, path: &mut Vec<u8>, depth: usize) {
        if depth > DEPTH_LIMIT {
            self.left += 1;
            return;
        }
        for (name, is_directory) in self.names(directory, path, depth) {
            if self.is_late() {
                return;
            }
            let before = self.left;
            let flags = if is_directory {
                let entered = self.enter(directory, &name, path, |user, child, path| {
                    user.empty(child, path, depth + 1);
                });
                // Why it cannot be empty has been told, or is no error.
                if entered.is_none() || self.left > before || !self.finished {
                    self.left = before + 1;
                    continue;
                }
                AtFlags::REMOVEDIR
            } else {
                AtFlags::empty()
            };
            let call = if is_directory {
                Call::Rmdir
            } else {
                Call::Unlink
            };
            let removed = unlinkat(directory, &name, flags);
            self.left += usize::from(self.check_at(call, path, &name, removed).is_none());
        }
    }

    /// Do something in a directory.
    fn enter(
        &mut self,
        parent: &OwnedFd,
        name: &CStr,
        path: &mut Vec<u8>,
        act: impl FnOnce(&mut Self, &OwnedFd, &mut Vec<u8>),
    ) -> Option<()> {
        let opened = open_directory(parent.as_fd(), name);
        let child = self.check_at(Call::Openat, path, name, opened)?;
        below(path, name, |path| act(self, &child, path));
        Some(())
    }

    /// The names in a directory as far as they can be read, in order, and whether each is a directory. Without those
    /// to be kept.
    fn names(
        &mut self,
        directory: &OwnedFd,
        path: &mut Vec<u8>,
        depth: usize,
    ) -> Vec<(CString, bool)> {
        let mut found = Vec::new();
        // From the beginning: it may have been listed before.
        let mut error = seek(directory, SeekFrom::Start(0)).err();
        let mut listing = RawDir::new(directory, &mut self.listing);
        while let Some(next) = listing.next() {
            match next {
                Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
                Ok(entry) => found.push((entry.file_name().to_owned(), entry.file_type())),
                Err(errno) => {
                    error = Some(errno);
                    break;
                }
            }
        }
        if let Some(errno) = error {
            self.error(Call::Getdents, path, errno);
        }
        found.retain(|(name, _)| {
            let is = |kept: &String| kept.as_bytes() == name.to_bytes();
            depth > 0 || !self.keep.iter().any(is)
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
        self.finished &= Instant::now() < self.deadline;
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
        let no_error = [Errno::NOSPC, Errno::DQUOT, Errno::PERM].contains(&errno);
        if !no_error && self.errors.len() < ERRORS_MAX {
            self.errors.push(CallError {
                call,
                path: path.to_vec(),
                name: String::new(),
                errno: errno.raw_os_error(),
            });
        }
    }
}

fn open_directory(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

/// Append a name to a path for as long as `act` takes.
fn below<T>(path: &mut Vec<u8>, name: &CStr, act: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let length = path.len();
    if length > 0 {
        path.push(b'/');
    }
    path.extend_from_slice(name.to_bytes());
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
            write_and_remove(self.0.to_str().unwrap(), &keep, deadline)
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
        let used = write_and_remove(
            "/no/such/directory",
            &[],
            Instant::now() + Duration::from_secs(60),
        );
        let error = CallError {
            call: Call::Openat,
            path: Vec::new(),
            name: String::new(),
            errno: Errno::NOENT.raw_os_error(),
        };
        assert_eq!((used.errors, used.finished), (vec![error], true));
    }

    /// procfs lets nobody make or remove a name there: ENOENT for the file, EPERM for the names.
    #[test]
    fn what_fails_for_want_of_permission_to_remove_is_no_error() {
        let deadline = Instant::now() + Duration::from_secs(60);
        let used = write_and_remove("/proc/self/ns", &[], deadline);
        let told: Vec<_> = used
            .errors
            .iter()
            .map(|e| (e.call, e.path.as_slice(), e.errno))
            .collect();
        let expected = (Call::Openat, NEW.to_bytes(), Errno::NOENT.raw_os_error());
        assert_eq!(told.first(), Some(&expected));
        assert!(!told
            .iter()
            .any(|(_, _, errno)| *errno == Errno::PERM.raw_os_error()));
    }
}
