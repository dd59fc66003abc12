//! Trees that are made by differences, in a directory in memory: what a crash may leave of a program's files where
//! the file system is only rules. A check runs on each.
//!
//! inotify(7) tells which files the check opened, and whether it changed anything. What it did not open cannot have
//! mattered beyond its name, size and attributes; and a tree that it changed is made anew before the next. All
//! processes are dead by then, so that files which were open to be written to have been closed, which is told, too.
//!
//! A file that the check renamed or linked may have been read by its other name, and counts as opened. Directories that
//! it made or moved are not watched, or not under the names that they have: what it opened is then not known.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ffi::OsStr,
    fs, io,
    mem::MaybeUninit,
    os::{
        fd::OwnedFd,
        unix::{
            ffi::OsStrExt,
            fs::{lchown, symlink, MetadataExt, PermissionsExt},
        },
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use powercut_protocol::{AgentReply, ChangeKind, TreeChange, TreeToTry, Tried};
use rustix::{
    fs::{
        inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags},
        lremovexattr, lsetxattr, XattrFlags,
    },
    io::Errno,
    mount::{mount, MountFlags},
};

use crate::{
    failure::{errno_of, failed, Failure},
    mounts::MOUNT_POINT,
    program,
    scratch::Scratch,
    xattrs::{self, Subject},
};

/// Bytes of a file that is made.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Room for events: each has at most 16 bytes and a name.
const EVENT_BYTES: usize = 16 << 10;

/// Mount an empty directory in memory at the mount point.
pub fn mount_empty() -> Result<(), Failure> {
    mount("powercut", MOUNT_POINT, "tmpfs", MountFlags::empty(), None)
        .map_err(failed("mount tmpfs"))
}

/// The check of each tree.
pub struct TreeCheck<'a> {
    pub at: &'a str,
    pub acknowledged: &'a [String],
    pub argv: &'a [String],
    pub deadline_s: u32,
}

impl TreeCheck<'_> {
    /// Write down the first acknowledgements, for the program.
    fn tell(&self, count: usize) -> Result<(), Failure> {
        let some = &self.acknowledged[..count.min(self.acknowledged.len())];
        let lines: String = some.iter().map(|line| format!("{line}\n")).collect();
        fs::write(self.at, lines).map_err(|e| failed(format!("write {}", self.at))(errno_of(&e)))
    }
}

/// The tree at the mount point, which was empty at first.
pub struct Trees {
    /// What is there, by path, if nobody has changed it.
    there: BTreeMap<Vec<u8>, TreeChange>,
    changed: bool,
    top: fs::Metadata,
    watch: Option<Watch>,
}

impl Trees {
    /// The mount point is empty.
    pub fn begin() -> Result<Self, Failure> {
        let top = fs::metadata(MOUNT_POINT)
            .map_err(|e| failed(format!("stat {MOUNT_POINT}"))(errno_of(&e)))?;
        let mut trees = Self {
            there: BTreeMap::new(),
            changed: false,
            top,
            watch: Watch::begin(Path::new(MOUNT_POINT)).ok(),
        };
        trees.watch(b"", true);
        Ok(trees)
    }

    /// Make one tree after the other, and run the program on each.
    pub fn try_all(
        &mut self,
        trees: &[TreeToTry],
        bytes: &[u8],
        asked: &TreeCheck<'_>,
    ) -> Result<AgentReply, Failure> {
        let mut tried = Vec::with_capacity(trees.len());
        let mut told = None;
        for tree in trees {
            if told != Some(tree.acknowledgements) {
                asked.tell(tree.acknowledgements as usize)?;
                told = Some(tree.acknowledgements);
            }
            self.change(&tree.changes, bytes)?;
            let deadline = Instant::now() + Duration::from_secs(asked.deadline_s.into());
            tried.push(self.run(asked.argv, deadline)?);
        }
        Ok(AgentReply::TreesTried { tried })
    }

    /// Make changes, in their order. `bytes`: what pieces of files are cut from.
    fn change(&mut self, changes: &[TreeChange], bytes: &[u8]) -> Result<(), Failure> {
        for one in changes {
            self.remember(one);
        }
        if std::mem::replace(&mut self.changed, false) {
            return self.make_anew(bytes);
        }
        changes.iter().try_for_each(|one| self.make(one, bytes))
    }

    fn remember(&mut self, one: &TreeChange) {
        if one.kind != ChangeKind::Directory {
            let below = [one.path.as_slice(), b"/"].concat();
            self.there.retain(|path, _| !path.starts_with(&below));
        }
        match one.kind {
            ChangeKind::Remove => self.there.remove(&one.path),
            _ => self.there.insert(one.path.clone(), one.clone()),
        };
    }

    fn make_anew(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        empty(Path::new(MOUNT_POINT), &self.top)
            .map_err(|e| failed(format!("empty {MOUNT_POINT}"))(errno_of(&e)))?;
        let there = std::mem::take(&mut self.there);
        let is_link = |one: &TreeChange| one.kind == ChangeKind::Link;
        for links in [false, true] {
            for one in there.values().filter(|one| is_link(one) == links) {
                self.make(one, bytes)?;
            }
        }
        self.there = there;
        Ok(())
    }

    fn make(&mut self, one: &TreeChange, bytes: &[u8]) -> Result<(), Failure> {
        let path = below(&one.path);
        make(one, &path, bytes)
            .map_err(|e| failed(format!("make {}", path.display()))(errno_of(&e)))?;
        match one.kind {
            ChangeKind::Directory => self.watch(&one.path, true),
            ChangeKind::File => self.watch(&one.path, false),
            _ => {}
        }
        Ok(())
    }

    /// A directory or file that cannot be watched ends all watching.
    fn watch(&mut self, path: &[u8], is_directory: bool) {
        if let Some(watch) = &mut self.watch {
            if watch.add(path, is_directory).is_err() {
                self.watch = None;
            }
        }
    }

    /// Run a program in the tree; afterwards nothing runs.
    fn run(&mut self, argv: &[String], deadline: Instant) -> Result<Tried, Failure> {
        if let Some(watch) = &mut self.watch {
            watch.take(); // of the making
        }
        let scratch = Scratch::before();
        let ended =
            program::run(argv, deadline).map_err(failed(format!("run {}", argv.join(" "))))?;
        scratch.leave(&HashSet::new());
        let seen = self.watch.as_mut().and_then(Watch::take);
        self.changed = seen.as_ref().is_none_or(|seen| seen.changed);
        Ok(Tried {
            exit_code: ended.exit_code,
            output: ended.output,
            opened: seen.map(|seen| seen.opened.into_iter().map(Into::into).collect()),
        })
    }
}

/// Remove all that is in a directory, which then is as it was seen: no tree has extended attributes of it.
fn empty(top: &Path, seen: &fs::Metadata) -> io::Result<()> {
    for entry in fs::read_dir(top)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    remove_xattrs(top)?;
    lchown(top, Some(seen.uid()), Some(seen.gid()))?;
    fs::set_permissions(top, seen.permissions())
}

/// What a program did in directories that are watched.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    /// Files that it opened, or may have opened by another name.
    opened: BTreeSet<Vec<u8>>,
    changed: bool,
}

/// Watches directories, and files for new names of theirs.
struct Watch {
    queue: OwnedFd,
    top: PathBuf,
    /// By number of the watch.
    paths: HashMap<i32, Vec<u8>>,
}

impl Watch {
    fn begin(top: &Path) -> Result<Self, Errno> {
        Ok(Self {
            queue: inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?,
            top: top.to_owned(),
            paths: HashMap::new(),
        })
    }

    /// Watch a directory; or a file, to see that it is linked, which no event in its directory tells: the new name might
    /// as well be that of a new file.
    fn add(&mut self, path: &[u8], is_directory: bool) -> Result<(), Errno> {
        let all = WatchFlags::CLOSE_WRITE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::OPEN;
        let place = self.top.join(OsStr::from_bytes(path));
        let events = if is_directory {
            all
        } else {
            WatchFlags::ATTRIB
        };
        let number = inotify::add_watch(&self.queue, place.as_path(), events)?;
        self.paths.insert(number, path.to_vec());
        Ok(())
    }

    /// What was seen since; none if that is not known.
    fn take(&mut self) -> Option<Seen> {
        let mut room = [const { MaybeUninit::<u8>::uninit() }; EVENT_BYTES];
        let mut seen = Some(Seen::default());
        let mut events = Reader::new(&self.queue, &mut room);
        loop {
            let event = match events.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return seen,
                Err(Errno::INTR) => continue,
                Err(_) => return None,
            };
            let flags = event.events();
            let of_directory = flags.contains(ReadFlags::ISDIR);
            let renamed = ReadFlags::CREATE | ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO;
            if flags.contains(ReadFlags::QUEUE_OVERFLOW)
                || (of_directory && flags.intersects(renamed))
            {
                seen = None;
            } else if flags.contains(ReadFlags::IGNORED) {
                self.paths.remove(&event.wd());
            } else if let Some(seen) = &mut seen {
                seen.changed |= !(flags & !(ReadFlags::OPEN | ReadFlags::ISDIR)).is_empty();
                let reads = ReadFlags::OPEN | ReadFlags::MOVED_FROM;
                match (self.paths.get(&event.wd()), event.file_name()) {
                    _ if of_directory => {}
                    (Some(top), Some(name)) if flags.intersects(reads) => {
                        seen.opened.insert(joined(top, name.to_bytes()));
                    }
                    // A file itself, of whose names there are more or fewer now.
                    (Some(file), None) => {
                        seen.opened.insert(file.clone());
                    }
                    _ => {}
                }
            }
        }
    }
}

fn joined(top: &[u8], name: &[u8]) -> Vec<u8> {
    match top {
        b"" => name.to_vec(),
        _ => [top, b"/", name].concat(),
    }
}

fn below(path: &[u8]) -> PathBuf {
    Path::new(MOUNT_POINT).join(OsStr::from_bytes(path))
}

fn make(one: &TreeChange, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let seen = fs::symlink_metadata(path).ok();
    let stays =
        one.kind == ChangeKind::Directory && seen.as_ref().is_some_and(fs::Metadata::is_dir);
    match seen {
        Some(_) if stays => {}
        Some(seen) if seen.is_dir() => fs::remove_dir_all(path)?,
        Some(_) => fs::remove_file(path)?,
        None => {}
    }
    match one.kind {
        ChangeKind::Remove => return Ok(()),
        ChangeKind::Directory if stays => {}
        ChangeKind::Directory => fs::create_dir(path)?,
        ChangeKind::File => fs::write(path, contents(one, bytes)?)?,
        ChangeKind::Symlink => symlink(OsStr::from_bytes(&one.target), path)?,
        ChangeKind::Link => return fs::hard_link(below(&one.target), path),
    }
    lchown(path, Some(one.uid), Some(one.gid))?;
    if stays {
        remove_xattrs(path)?;
    }
    for attribute in &one.xattrs {
        let name = attribute.name.as_str();
        lsetxattr(path, name, &attribute.value, XattrFlags::empty())?;
    }
    match one.kind {
        ChangeKind::Symlink => Ok(()),
        _ => fs::set_permissions(path, fs::Permissions::from_mode(one.mode)),
    }
}

/// Remove the extended attributes that an earlier tree had.
fn remove_xattrs(path: &Path) -> io::Result<()> {
    let subject = Subject::Name(path.as_os_str().as_bytes().to_vec());
    let found = xattrs::Reader::new().read(&subject).xattrs.into_iter();
    let mut of_user = found.filter(|one| one.name.starts_with("user."));
    of_user.try_for_each(|one| Ok(lremovexattr(path, one.name)?))
}

fn contents(one: &TreeChange, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let wrong = || io::Error::from_raw_os_error(libc::EINVAL);
    if one.size > FILE_BYTES_MAX {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    let mut made = vec![0; one.size as usize];
    for (from, at, length) in &one.pieces {
        let from = *from as usize..from.saturating_add(*length) as usize;
        let at = *at as usize..at.saturating_add(*length) as usize;
        let piece = bytes.get(from).ok_or_else(wrong)?;
        made.get_mut(at).ok_or_else(wrong)?.copy_from_slice(piece);
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A piece beyond the bytes, or beyond the file, would end the agent, which is the guest's first process.
    #[test]
    fn pieces_that_do_not_fit_are_refused() {
        let file = |size, pieces| TreeChange {
            size,
            pieces,
            ..TreeChange::default()
        };
        let bytes = b"abcdef";
        let made = contents(&file(5, vec![(0, 1, 3), (4, 2, 1)]), bytes).unwrap();
        assert_eq!(made, b"\0aec\0");
        for pieces in [
            vec![(4, 0, 3)],
            vec![(0, 4, 2)],
            vec![(u64::MAX, 0, 2)],
            vec![(0, u64::MAX, 2)],
        ] {
            assert!(contents(&file(5, pieces), bytes).is_err());
        }
        assert!(contents(&file(u64::MAX, vec![]), bytes).is_err());
    }

    /// A check that set an attribute of the directory saw it in the trees behind that.
    #[test]
    fn an_attribute_of_the_directory_goes_with_what_is_in_it() {
        let top = std::env::temp_dir().join(format!("powercut-empty-{}", std::process::id()));
        fs::create_dir_all(top.join("d")).unwrap();
        fs::write(top.join("f"), b"").unwrap();
        let seen = fs::metadata(&top).unwrap();
        fs::set_permissions(&top, fs::Permissions::from_mode(0o700)).unwrap();
        let set = lsetxattr(&top, "user.seen", b"1", XattrFlags::empty());
        empty(&top, &seen).unwrap();
        let subject = Subject::Name(top.as_os_str().as_bytes().to_vec());
        let found = xattrs::Reader::new().read(&subject).xattrs;
        assert_eq!(fs::read_dir(&top).unwrap().count(), 0);
        assert_eq!(fs::metadata(&top).unwrap().mode(), seen.mode());
        fs::remove_dir(&top).unwrap();
        // A file system without them, such as an old tmpfs: nothing to see.
        if set != Err(Errno::OPNOTSUPP) {
            assert!(set.is_ok() && found.iter().all(|one| one.name != "user.seen"));
        }
    }

    /// What is seen of a program in a directory that holds the files `a`, `b` and `d/c`.
    fn seen_of(name: &str, program: impl FnOnce(&Path)) -> Option<Seen> {
        let name = format!("powercut-trees-{name}-{}", std::process::id());
        let top = std::env::temp_dir().join(name);
        fs::create_dir_all(top.join("d")).unwrap();
        let mut watch = Watch::begin(&top).unwrap();
        for path in ["", "d"] {
            watch.add(path.as_bytes(), true).unwrap();
        }
        for path in ["a", "b", "d/c"] {
            fs::write(top.join(path), path).unwrap();
            watch.add(path.as_bytes(), false).unwrap();
        }
        watch.take();
        program(&top);
        let seen = watch.take();
        fs::remove_dir_all(&top).unwrap();
        seen
    }

    fn opened(seen: Option<Seen>) -> Option<Vec<String>> {
        let names = seen?.opened.into_iter();
        Some(names.map(|name| String::from_utf8(name).unwrap()).collect())
    }

    #[test]
    fn what_is_read_is_told_and_changes_nothing() {
        let seen = seen_of("read", |top| {
            fs::read(top.join("d/c")).unwrap();
            fs::metadata(top.join("a")).unwrap();
        });
        assert!(!seen.as_ref().unwrap().changed);
        assert_eq!(opened(seen).unwrap(), ["d/c"]);
    }

    /// An answer about a file's contents was given for a tree with other contents.
    #[test]
    fn a_file_that_is_read_by_a_new_name_counts_as_opened() {
        let renamed = seen_of("renamed", |top| {
            fs::rename(top.join("a"), top.join("new")).unwrap();
            fs::read(top.join("new")).unwrap();
        });
        assert!(renamed.as_ref().unwrap().changed);
        assert_eq!(opened(renamed).unwrap(), ["a", "new"]);
        let linked = seen_of("linked", |top| {
            fs::hard_link(top.join("d/c"), top.join("new")).unwrap();
            fs::read(top.join("new")).unwrap();
            fs::remove_file(top.join("new")).unwrap();
        });
        assert_eq!(opened(linked).unwrap(), ["d/c", "new"]);
        // under the name of another file, which is opened anyway
        let replaced = seen_of("replaced", |top| {
            fs::remove_file(top.join("b")).unwrap();
            fs::hard_link(top.join("a"), top.join("b")).unwrap();
            fs::remove_file(top.join("a")).unwrap();
            fs::read(top.join("b")).unwrap();
        });
        assert_eq!(opened(replaced).unwrap(), ["a", "b"]);
    }

    #[test]
    fn what_a_program_makes_is_no_file_that_it_found() {
        let seen = seen_of("made", |top| fs::write(top.join("log"), "text").unwrap());
        assert!(seen.as_ref().unwrap().changed);
        assert_eq!(opened(seen).unwrap(), ["log"]);
    }

    #[test]
    fn where_a_directory_is_new_or_elsewhere_nothing_is_known() {
        let made = seen_of("directory", |top| fs::create_dir(top.join("e")).unwrap());
        let moved = seen_of("moved", |top| {
            fs::rename(top.join("d"), top.join("e")).unwrap();
        });
        assert_eq!((made, moved), (None, None));
    }
}
