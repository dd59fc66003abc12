//! What a program does to files, whole: each call with the bytes that it wrote, in one order.
//!
//! The tracer of `calls.rs` lets one thread at a time be in a call that is noted here. What a call wrote is read from
//! the memory that it gave; of a copy within the kernel, from the file once it has returned. Notes are lines with
//! fields between tabs:
//!
//! ```text
//! write  THREAD CALL INODE OFFSET LENGTH AT MODE UID GID FLAGS PATH OTHER TEXT PLACE
//! ```
//!
//! CALL: its number among the events of a recording. INODE: of the file that is changed, or made. AT: where its
//! bytes begin in a second file. MODE, UID, GID: those
//! that the file has after the call. PATH and OTHER are escaped. PLACE: where in
//! the program the call was made (`frames.rs`). Words: `start`, the directory; `create`, `tmpfile`,
//! `mkdir`, `symlink`, `link`, `unlink`, `rmdir`, `rename`, `exchange`; `write`, `zero`, `size`, `attributes`;
//! `setxattr`, whose bytes are the value of the extended attribute that OTHER names, and `removexattr`;
//! `fsync`, `fdatasync`, `sync`, `nothing` (a call that syncs nothing for certain); `ack`; `unseen`, whose effect
//! this does not see; `refused`, a call that the file system does not have; `more`, where a limit was met; `left`, what the program left, with `xattr` in FLAGS an extended
//! attribute of the name before; `end`, with its exit code.
//! `harness/rules/calls.py` reads them.
//!
//! A program may be recorded at the same time. Then nothing here may change what is recorded, so files are neither
//! opened nor read, whose access times would change, and which some file systems write back when they are closed
//! (`ext4_release_file`, `xfs_file_release`). There are two exceptions, and both leave access times alone: a file into
//! which sendfile(2), splice(2) or copy_file_range(2) copied is opened once more; and a file that is mapped and may be
//! written to is held open until nobody maps it any more. What the program left the host sees in the recording's end.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ffi::OsString,
    fs::{self, File, Metadata},
    io::{self, Write},
    os::fd::AsRawFd,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{FileExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use libc::{c_int, c_long, pid_t};

use crate::{
    calls::{whole_below, Call, Piece},
    frames::Frames,
    mounts::MOUNT_POINT,
    paths, xattrs,
};

/// In place of the length of a pwritev2(2): it was RWF_SYNC. 1: RWF_DSYNC.
const WITH_METADATA: u64 = 2;
/// Since Linux 6.9: as if the file had not been opened to be appended to.
const RWF_NOAPPEND: c_int = 0x20;

/// The lines, and the bytes: in the root of the guest, which is memory.
const LINES: &str = "/tmp/powercut-notes";
pub const BYTES: &str = "/tmp/powercut-noted-bytes";
/// Calls that are noted, and bytes that they wrote; with the files that are left, twice as many. All has to
/// fit a reply.
const CALLS_MAX: u64 = 20_000;
const BYTES_MAX: u64 = 24 << 20;
/// Extended attributes of this namespace are followed: those of others may change without a call that names them.
const FOLLOWED: &[u8] = b"user.";
/// How the directory itself is shown. No tree that is made has attributes of it, so a change of them is not followed.
const TOP: &str = ".";
/// With which the text of a store begins; `harness/rules/calls.py` knows it by this.
const STORE: &str = "a store into a mapping";
/// Bytes of a mapping that are compared at once.
const BLOCK: usize = 4096;
/// Bytes of it that are read at once: they stay in the processor's cache until they are compared.
const READ: usize = 64 << 10;

/// Since Linux 6.13; the C library's headers lack them.
const SYS_SETXATTRAT: c_long = 463;
const SYS_REMOVEXATTRAT: c_long = 466;

/// Calls that may change a file, beside those of `calls.rs`.
pub const MORE_CHOSEN: [c_long; 20] = [
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_exit_group,
    libc::SYS_mknod,
    libc::SYS_mknodat,
    libc::SYS_bind,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SYS_SETXATTRAT,
    SYS_REMOVEXATTRAT,
    libc::SYS_io_uring_setup,
    libc::SYS_mremap,
    libc::SYS_vmsplice,
    libc::SYS_io_setup,
    libc::SYS_clone,
    libc::SYS_clone3,
];

/// A call that has begun.
struct Pending {
    word: &'static str,
    text: String,
    /// Where in the program it was made.
    place: String,
    descriptor: Option<i32>,
    /// Where it writes, if it says so; else where the descriptor stands.
    offset: Option<u64>,
    length: u64,
    /// Below the mount point.
    path: PathBuf,
    other: PathBuf,
    /// A link in /proc to the file, if it has no path; else empty.
    nameless: PathBuf,
    /// Of an msync(2).
    ranges: Vec<Piece>,
    /// The file that an open(2) empties, as it was.
    before: Option<Metadata>,
    /// What it is about to write, as far as its memory can be read; none of a copy within the kernel.
    given: Option<Vec<u8>>,
    /// Its number among the events of a recording.
    number: u64,
    /// Whether it writes to the end of the file, where it says so itself.
    appends: Option<bool>,
    /// It may wait for another thread, as for what that writes into a pipe; it writes at its end.
    may_wait: bool,
}

impl Pending {
    fn waiting(mut self) -> Self {
        self.may_wait = true;
        self
    }

    fn new(word: &'static str, text: String) -> Self {
        Self {
            word,
            text,
            place: String::new(),
            descriptor: None,
            offset: None,
            length: 0,
            path: PathBuf::new(),
            other: PathBuf::new(),
            nameless: PathBuf::new(),
            ranges: Vec::new(),
            before: None,
            given: None,
            number: 0,
            appends: None,
            may_wait: false,
        }
    }

    /// A call that nobody follows.
    fn unseen(text: String) -> Self {
        Self::new("unseen", text)
    }

    /// It is about the file to which the path in an argument leads; none if that is elsewhere.
    fn about(mut self, call: &Call<'_>, directory: c_int, argument: usize) -> Option<Self> {
        let led = call.led(directory, argument, true)?;
        match whole_below(&led) {
            Some(below) => self.path = below,
            None if is_nameless(&led) => self.nameless = led,
            None => return None,
        }
        Some(self)
    }

    /// The path of the file that it is about, for people.
    fn shown(&self) -> String {
        let is_top = self.path.as_os_str().is_empty() && self.nameless.as_os_str().is_empty();
        if is_top {
            return TOP.to_owned();
        }
        self.path.display().to_string()
    }

    /// The file that it is about.
    fn file(&self, task: pid_t) -> Option<Metadata> {
        if let Some(descriptor) = self.descriptor {
            return opened(task, descriptor);
        }
        if !self.nameless.as_os_str().is_empty() {
            return fs::metadata(&self.nameless).ok();
        }
        let named = if self.word == "link" {
            &self.other
        } else {
            &self.path
        };
        fs::symlink_metadata(below(named)).ok()
    }
}

/// A file that is mapped and may be written to, with what it held when it was looked at last.
struct Mapped {
    file: File,
    known: Vec<u8>,
}

impl Mapped {
    /// The path that it has now, for people.
    fn shown(&self) -> String {
        let led =
            fs::read_link(format!("/proc/self/fd/{}", self.file.as_raw_fd())).unwrap_or_default();
        whole_below(&led).unwrap_or(led).display().to_string()
    }

    /// The blocks that are not what they were, and where each begins. From now on, that is what is known.
    fn changed(&mut self) -> Vec<(u64, Vec<u8>)> {
        let mut changed = Vec::new();
        let mut read = vec![0; READ];
        let mut end = 0;
        while let Ok(count @ 1..) = self.file.read_at(&mut read, end as u64) {
            self.known.resize(self.known.len().max(end + count), 0);
            let known = self.known[end..].chunks_mut(BLOCK);
            for (number, (now, known)) in read[..count].chunks(BLOCK).zip(known).enumerate() {
                let known = &mut known[..now.len()];
                if now != known {
                    known.copy_from_slice(now);
                    changed.push(((end + number * BLOCK) as u64, now.to_vec()));
                }
            }
            end += count;
            if end >= BYTES_MAX as usize {
                break;
            }
        }
        self.known.truncate(end);
        changed
    }
}

/// What is noted.
pub struct Notes {
    lines: File,
    bytes: File,
    noted: u64,
    at: u64,
    pending: Option<Pending>,
    /// Writes of threads that wait for others: see `let_wait`.
    waiting: HashMap<pid_t, Pending>,
    /// By inode, in an order that is the same whenever the program runs.
    mapped: BTreeMap<u64, Mapped>,
    /// A mapping may have gone since it was seen last which are left.
    unmapped: bool,
    frames: Frames,
    full: bool,
}

/// One line; what a call does not have is 0, or empty.
#[derive(Default)]
struct Line<'a> {
    word: &'a str,
    thread: pid_t,
    number: u64,
    inode: u64,
    offset: u64,
    length: u64,
    at: u64,
    owner: (u32, u32, u32),
    flags: &'a str,
    path: &'a [u8],
    other: &'a [u8],
    text: &'a str,
    place: &'a str,
}

impl Line<'_> {
    fn text(&self) -> String {
        let Self {
            word,
            thread,
            number,
            inode,
            offset,
            length,
            at,
            flags,
            ..
        } = self;
        let (mode, uid, gid) = self.owner;
        let (path, other) = (self.path.escape_ascii(), self.other.escape_ascii());
        let text = self.text.as_bytes().escape_ascii();
        let place = self.place.as_bytes().escape_ascii();
        format!(
            "{word}\t{thread}\t{number}\t{inode}\t{offset}\t{length}\t{at}\t{mode}\t{uid}\t{gid}\t{flags}\t{path}\t{other}\t{text}\t{place}\n"
        )
    }
}

/// Begin notes of a directory that is mounted, without any that were there.
pub fn begin() -> io::Result<()> {
    File::create(BYTES)?;
    let seen = fs::metadata(MOUNT_POINT)?;
    let start = Line {
        word: "start",
        inode: seen.ino(),
        owner: owner_of(&seen),
        ..Line::default()
    };
    fs::write(LINES, start.text())
}

/// Note that the program acknowledges something.
pub fn acknowledge(text: &str) -> io::Result<()> {
    let line = Line {
        word: "ack",
        text,
        ..Line::default()
    };
    File::options()
        .append(true)
        .open(LINES)?
        .write_all(line.text().as_bytes())
}

/// Note how the program ended and, if that is wanted, what it left. Returns the lines and the bytes.
pub fn finish(
    exit_code: Option<i32>,
    output: &[u8],
    left_wanted: bool,
) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut notes = Notes::open()?;
    notes.at = fs::metadata(BYTES)?.len();
    if left_wanted {
        let device = fs::metadata(MOUNT_POINT)?.dev();
        let mut room = CALLS_MAX;
        notes.left(Path::new(MOUNT_POINT), device, &mut room)?;
    }
    let code = exit_code.map_or_else(|| "none".to_owned(), |code| code.to_string());
    notes.write(&Line {
        word: "end",
        path: output,
        text: &code,
        ..Line::default()
    });
    Ok((fs::read(LINES)?, fs::read(BYTES)?))
}

impl Notes {
    /// Go on with notes that were begun.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            lines: File::options().append(true).open(LINES)?,
            bytes: File::options().append(true).open(BYTES)?,
            noted: 0,
            at: 0,
            pending: None,
            waiting: HashMap::new(),
            mapped: BTreeMap::new(),
            unmapped: false,
            frames: Frames::default(),
            full: false,
        })
    }

    /// The thread that was in a call will not return from it.
    pub fn forget(&mut self) {
        let pending = self.pending.take();
        self.lose(pending);
    }

    /// A thread has ended, perhaps in a call in which others were let go on.
    pub fn forget_waiting(&mut self, task: pid_t) {
        let pending = self.waiting.remove(&task);
        self.lose(pending);
    }

    /// A call does not return. What nobody follows may have had its effect.
    fn lose(&mut self, pending: Option<Pending>) {
        if let Some(pending) = pending.filter(|p| p.word == "unseen") {
            self.write(&Line {
                word: "unseen",
                text: &pending.text,
                ..Line::default()
            });
        }
    }

    /// The thread that is in a call may be waiting for another one, as in splice(2) from a pipe. Returns
    /// whether others may make calls before it returns: what it writes, it writes at its end.
    pub fn let_wait(&mut self, task: pid_t) -> bool {
        let Some(pending) = self.pending.take_if(|pending| pending.may_wait) else {
            return false;
        };
        self.waiting.insert(task, pending);
        true
    }

    fn write(&mut self, line: &Line<'_>) {
        // A line that is missing is told by what the program left.
        let _ = self.lines.write_all(line.text().as_bytes());
    }

    /// A call begins, which is the `noted`th among the events of a recording if it is noted. Returns what it does
    /// if its end is wanted.
    pub fn begin_call(&mut self, call: &Call<'_>, noted: u64) -> Option<&str> {
        if !self.mapped.is_empty() {
            self.note_stores(call.task(), noted);
        }
        match call.number() {
            libc::SYS_mmap => self.map(call),
            libc::SYS_munmap | libc::SYS_mremap | libc::SYS_exit_group => self.unmapped = true,
            _ if self.unmapped => self.let_go(),
            _ => {}
        }
        let mut pending = pending_of(call)?;
        pending.number = noted;
        self.noted += 1;
        if self.noted > CALLS_MAX && !self.full {
            self.overflow();
        }
        if !self.full && pending.word != "unseen" {
            pending.place = self.frames.place(call.task(), call.registers());
        }
        self.pending = (!self.full).then_some(pending);
        self.pending.as_ref().map(|pending| pending.text.as_str())
    }

    /// The program has ended: what nobody maps any more is no longer held open.
    pub fn let_go(&mut self) {
        self.unmapped = false;
        if self.mapped.is_empty() {
            return;
        }
        let mapped = mapped_inodes();
        self.mapped.retain(|inode, _| mapped.contains(inode));
    }

    fn overflow(&mut self) {
        if std::mem::replace(&mut self.full, true) {
            return;
        }
        self.write(&Line {
            word: "more",
            ..Line::default()
        });
    }

    /// The call that was begun has returned.
    pub fn end_call(&mut self, task: pid_t, result: i64) {
        let waited = self.waiting.remove(&task);
        let Some(pending) = waited.or_else(|| self.pending.take()) else {
            return;
        };
        if result == -i64::from(libc::EOPNOTSUPP) {
            return self.write(&Line {
                word: "refused",
                thread: task,
                number: pending.number,
                text: &pending.text,
                ..Line::default()
            });
        }
        if result < 0 {
            return;
        }
        match pending.word {
            "open" => self.end_open(task, &pending, result as i32),
            "write" => self.end_write(task, &pending, result as u64),
            "setxattr" => self.end_setxattr(task, &pending),
            "size" | "zero" => self.end_size(task, &pending),
            "unseen" => self.write(&Line {
                word: "unseen",
                thread: task,
                number: pending.number,
                text: &pending.text,
                ..Line::default()
            }),
            _ => self.end_other(task, &pending),
        }
    }

    fn end_open(&mut self, task: pid_t, pending: &Pending, descriptor: i32) {
        let Some(seen) = opened(task, descriptor) else {
            return;
        };
        // `other` tells what was asked for.
        let asked = pending.other.as_os_str().as_bytes();
        // An empty file that is emptied may lose its set-user-ID bit.
        let before = pending.before.as_ref();
        let is_as_before =
            before.is_none_or(|before| before.len() == 0 && owner_of(before) == owner_of(&seen));
        let word = match asked {
            b"tmpfile" => "tmpfile",
            b"create" => "create",
            _ if is_as_before => return,
            _ => "size",
        };
        // Through a symbolic link that led nowhere, it has the name to which that led.
        let made = match word {
            "create" => fs::read_link(format!("/proc/{task}/fd/{descriptor}"))
                .ok()
                .and_then(|path| Some(path.strip_prefix(MOUNT_POINT).ok()?.to_owned()))
                .unwrap_or_else(|| pending.path.clone()),
            _ => pending.path.clone(),
        };
        self.write(&Line {
            word,
            thread: task,
            number: pending.number,
            inode: seen.ino(),
            owner: owner_of(&seen),
            path: made.as_os_str().as_bytes(),
            text: &pending.text,
            place: &pending.place,
            ..Line::default()
        });
        self.know(seen.ino(), 0, |_| {});
    }

    fn end_write(&mut self, task: pid_t, pending: &Pending, length: u64) {
        let Some(descriptor) = pending.descriptor else {
            return;
        };
        let Some(seen) = opened(task, descriptor).filter(|seen| seen.is_file() && length > 0)
        else {
            return;
        };
        let (at, flags) = position(task, descriptor);
        let opened_so = flags & libc::O_APPEND as u64 != 0;
        let appends = pending.appends.unwrap_or(opened_so);
        let offset = match pending.offset {
            Some(offset) if !appends => offset,
            // Whatever it is given: pwrite(2) to a file that was opened to be appended to, RWF_APPEND.
            Some(_) => seen.len().saturating_sub(length),
            None => at.saturating_sub(length),
        };
        let written = match &pending.given {
            Some(given) => given.get(..length as usize).map(<[u8]>::to_vec),
            None => read_back(task, descriptor, offset, length).ok(),
        };
        let Some(bytes) = written else {
            let text = format!("{}: what it wrote cannot be read", pending.text);
            self.write(&Line {
                word: "unseen",
                thread: task,
                number: pending.number,
                text: &text,
                ..Line::default()
            });
            return;
        };
        let (whole, data) = (libc::O_SYNC as u64, libc::O_DSYNC as u64); // O_SYNC contains O_DSYNC
        let flags = if pending.length == WITH_METADATA || flags & whole == whole {
            "sync"
        } else if pending.length != 0 || flags & data != 0 {
            "dsync"
        } else {
            ""
        };
        let line = Line {
            word: "write",
            thread: task,
            number: pending.number,
            inode: seen.ino(),
            offset,
            owner: owner_of(&seen),
            flags,
            text: &pending.text,
            place: &pending.place,
            ..Line::default()
        };
        self.note_bytes(line, &bytes);
        self.know(seen.ino(), seen.len(), |known| {
            if let Some(there) = known.get_mut(offset as usize..offset as usize + bytes.len()) {
                there.copy_from_slice(&bytes);
            }
        });
    }

    fn note_bytes(&mut self, line: Line<'_>, bytes: &[u8]) {
        if self.at + bytes.len() as u64 > BYTES_MAX || self.bytes.write_all(bytes).is_err() {
            return self.overflow();
        }
        let (at, length) = (self.at, bytes.len() as u64);
        self.at += length;
        self.write(&Line { length, at, ..line });
    }

    fn end_setxattr(&mut self, task: pid_t, pending: &Pending) {
        let (Some(seen), Some(value)) = (pending.file(task), &pending.given) else {
            return;
        };
        let line = Line {
            word: pending.word,
            thread: task,
            number: pending.number,
            inode: seen.ino(),
            owner: owner_of(&seen),
            other: pending.other.as_os_str().as_bytes(),
            text: &pending.text,
            place: &pending.place,
            ..Line::default()
        };
        self.note_bytes(line, value);
    }

    fn end_size(&mut self, task: pid_t, pending: &Pending) {
        let Some(seen) = pending.file(task) else {
            return;
        };
        let line = Line {
            thread: task,
            number: pending.number,
            inode: seen.ino(),
            owner: owner_of(&seen),
            text: &pending.text,
            place: &pending.place,
            ..Line::default()
        };
        if pending.word == "zero" {
            let (offset, length) = (pending.offset.unwrap_or(0), pending.length);
            self.write(&Line {
                word: "zero",
                offset,
                length,
                ..line
            });
        } else {
            self.write(&Line {
                word: "size",
                length: seen.len(),
                ..line
            });
        }
        let zeroes = pending.word == "zero";
        let (offset, length) = (pending.offset.unwrap_or(0), pending.length);
        self.know(seen.ino(), seen.len(), |known| {
            let size = known.len();
            let at = |place: u64| usize::try_from(place).unwrap_or(size).min(size);
            if zeroes {
                known[at(offset)..at(offset.saturating_add(length))].fill(0);
            }
        });
    }

    fn end_other(&mut self, task: pid_t, pending: &Pending) {
        let (inode, owner) = pending
            .file(task)
            .map_or((0, (0, 0, 0)), |seen| (seen.ino(), owner_of(&seen)));
        let ranges = pending.ranges.iter();
        let ranges = ranges.map(|piece| (piece.inode, piece.offset, piece.length));
        let of_call = pending.ranges.is_empty().then_some((inode, 0, 0));
        for (inode, offset, length) in ranges.chain(of_call) {
            self.write(&Line {
                word: pending.word,
                thread: task,
                number: pending.number,
                inode,
                offset,
                length,
                owner,
                path: pending.path.as_os_str().as_bytes(),
                other: pending.other.as_os_str().as_bytes(),
                text: &pending.text,
                place: &pending.place,
                ..Line::default()
            });
        }
    }

    /// Remember what a file holds that is going to be mapped so that it may be written to.
    fn map(&mut self, call: &Call<'_>) {
        let descriptor = call.argument(4) as i32;
        if call.file(4).is_none() || !maps_to_write(call) {
            return;
        }
        let path = format!("/proc/{}/fd/{descriptor}", call.task());
        let Ok(file) = open_unnoticed(&path) else {
            return;
        };
        let Ok(seen) = file.metadata() else { return };
        self.unmapped = false; // it is not mapped yet
        if seen.len() > BYTES_MAX {
            self.overflow();
        }
        self.mapped.entry(seen.ino()).or_insert_with(|| {
            let known = Vec::new();
            let mut mapped = Mapped { file, known };
            mapped.changed();
            mapped
        });
    }

    /// A call that is noted changed a file, which has so many bytes now: what it did is known, and no more than that,
    /// since another thread may have stored something meanwhile.
    fn know(&mut self, inode: u64, size: u64, change: impl FnOnce(&mut [u8])) {
        let Some(mapped) = self.mapped.get_mut(&inode) else {
            return;
        };
        if size > BYTES_MAX {
            return self.overflow(); // what is stored behind that would not be seen
        }
        mapped.known.resize(size as usize, 0);
        change(&mut mapped.known);
    }

    /// Note what was stored into mappings.
    fn note_stores(&mut self, task: pid_t, number: u64) {
        let mapped = self.mapped.iter_mut();
        let stores = mapped.flat_map(|(inode, mapped)| {
            let changed = mapped.changed();
            let shown = (!changed.is_empty()).then(|| mapped.shown());
            let told =
                move |(offset, block)| (*inode, shown.clone().unwrap_or_default(), offset, block);
            changed.into_iter().map(told)
        });
        for (inode, shown, offset, block) in stores.collect::<Vec<_>>() {
            let text = format!("{STORE} of {shown} ({} at {offset})", block.len());
            let line = Line {
                word: "write",
                thread: task,
                number,
                inode,
                offset,
                text: &text,
                ..Line::default()
            };
            self.note_bytes(line, &block);
        }
    }

    /// Note what is in a directory on a device, and below it. `room`: for so many names; a program whose calls are all
    /// noted has made no more. What it has mounted there, as /proc, may have no end, or make whoever reads it wait.
    fn left(&mut self, directory: &Path, device: u64, room: &mut u64) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let seen = fs::symlink_metadata(&path)?;
            if *room == 0 {
                self.overflow();
                return Ok(());
            }
            *room -= 1;
            let mut line = Line {
                word: "left",
                owner: owner_of(&seen),
                at: self.at,
                ..Line::default()
            };
            let name = path.strip_prefix(MOUNT_POINT).unwrap_or(&path).to_owned();
            let target = fs::read_link(&path).unwrap_or_default();
            line.path = name.as_os_str().as_bytes();
            line.inode = seen.ino();
            if seen.is_symlink() {
                (line.flags, line.other) = ("symlink", target.as_os_str().as_bytes());
            } else if seen.is_file() && self.at + seen.len() > 2 * BYTES_MAX {
                self.overflow();
                continue;
            } else if seen.is_file() && seen.dev() == device {
                let held = fs::read(&path)?;
                self.bytes.write_all(&held)?;
                self.at += held.len() as u64;
                (line.flags, line.length) = ("file", held.len() as u64);
            } else {
                line.flags = if seen.is_dir() {
                    "directory"
                } else {
                    "special"
                };
            }
            self.write(&line);
            if seen.dev() == device {
                self.left_xattrs(&path, name.as_os_str().as_bytes())?;
            }
            if seen.is_dir() && seen.dev() == device {
                self.left(&path, device, room)?;
            }
        }
        Ok(())
    }

    /// Note the extended attributes of a name, but those that are not followed.
    fn left_xattrs(&mut self, path: &Path, name: &[u8]) -> io::Result<()> {
        let subject = xattrs::Subject::Name(path.as_os_str().as_bytes().to_vec());
        let found = xattrs::Reader::new().read(&subject).xattrs.into_iter();
        for one in found.filter(|one| one.name.as_bytes().starts_with(FOLLOWED)) {
            self.bytes.write_all(&one.value)?;
            self.write(&Line {
                word: "left",
                flags: "xattr",
                path: name,
                other: one.name.as_bytes(),
                at: self.at,
                length: one.value.len() as u64,
                ..Line::default()
            });
            self.at += one.value.len() as u64;
        }
        Ok(())
    }
}

/// What a call that begins will do to files below the mount point; none if it does nothing.
fn pending_of(call: &Call<'_>) -> Option<Pending> {
    if call.is_foreign() {
        let text = "a system call of a program that is not 64-bit";
        return Some(Pending::unseen(text.to_owned()));
    }
    data_of(call)
        .or_else(|| name_of(call))
        .or_else(|| other_of(call))
        .or_else(|| hidden_of(call))
}

/// What changes the file system under test by a way that these notes have no name for, as through another mount of it.
fn hidden_of(call: &Call<'_>) -> Option<Pending> {
    let here = libc::AT_FDCWD;
    let led = |directory: Option<usize>, argument, follows| {
        let directory = directory.map_or(here, |number| call.argument(number) as c_int);
        Some((call.led(directory, argument, follows)?, follows))
    };
    let follows_at = |flags: usize| call.argument(flags) as c_int & libc::AT_SYMLINK_NOFOLLOW == 0;
    let opened = |argument: usize| {
        let descriptor = call.argument(argument) as c_int;
        let link = format!("/proc/{}/fd/{descriptor}", call.task());
        Some((PathBuf::from(link), true))
    };
    let (found, follows) = match call.number() {
        libc::SYS_sendfile
        | libc::SYS_write
        | libc::SYS_pwrite64
        | libc::SYS_writev
        | libc::SYS_pwritev
        | libc::SYS_pwritev2
        | libc::SYS_ftruncate
        | libc::SYS_fallocate
        | libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_syncfs
        | libc::SYS_fchmod
        | libc::SYS_fchown
        | libc::SYS_fsetxattr
        | libc::SYS_fremovexattr => opened(0),
        libc::SYS_copy_file_range | libc::SYS_splice => opened(2),
        libc::SYS_mmap if maps_to_write(call) => opened(4),
        libc::SYS_open if makes(call.argument(1)) => led(None, 0, true),
        libc::SYS_openat if makes(call.argument(2)) => led(Some(0), 1, true),
        libc::SYS_openat2 if makes(call.pointed(2)?) => led(Some(0), 1, true),
        libc::SYS_creat | libc::SYS_truncate | libc::SYS_chmod | libc::SYS_chown => {
            led(None, 0, true)
        }
        libc::SYS_setxattr | libc::SYS_removexattr => led(None, 0, true),
        libc::SYS_fchmodat => led(Some(0), 1, true),
        libc::SYS_fchmodat2 => led(Some(0), 1, follows_at(3)),
        libc::SYS_fchownat => led(Some(0), 1, follows_at(4)),
        libc::SYS_lsetxattr | libc::SYS_lremovexattr => led(None, 0, false),
        libc::SYS_lchown | libc::SYS_unlink | libc::SYS_rmdir => led(None, 0, false),
        libc::SYS_mkdir | libc::SYS_mknod => led(None, 0, false),
        libc::SYS_unlinkat | libc::SYS_mkdirat | libc::SYS_mknodat => led(Some(0), 1, false),
        libc::SYS_rename | libc::SYS_link | libc::SYS_symlink => led(None, 1, false),
        libc::SYS_renameat | libc::SYS_renameat2 | libc::SYS_linkat => led(Some(2), 3, false),
        libc::SYS_symlinkat => led(Some(1), 2, false),
        _ => None,
    }?;
    is_hidden(&found, follows).then(|| {
        let named = paths::text(&found).unwrap_or(found);
        let text = format!(
            "a call on {} by way of another mount or root",
            named.display()
        );
        Pending::unseen(text)
    })
}

/// Whether a path that does not lead below the mount point leads to the file system under test all the same.
/// `follows`: the call would follow a link that is its last part.
fn is_hidden(path: &Path, follows: bool) -> bool {
    let mounted = device_of(Path::new(MOUNT_POINT), true);
    let (Some(_), None) = (mounted, whole_below(path)) else {
        return false;
    };
    device_of(path, follows) == mounted && !is_nameless(path)
}

/// Which device has the file of a path, or has the folder where it would be made.
fn device_of(path: &Path, follows: bool) -> Option<u64> {
    // What a descriptor stands for, though its link in /proc is all that is known of it.
    let seen = match follows || paths::text(path).is_some() {
        true => fs::metadata(path),
        false => fs::symlink_metadata(path),
    };
    let seen = seen.or_else(|_| fs::metadata(path.parent().unwrap_or(path)));
    seen.ok().map(|seen| seen.dev())
}

/// Whether it is a link in /proc to a file of the file system under test that has no name, or has lost it.
fn is_nameless(path: &Path) -> bool {
    paths::text(path).is_some_and(|named| whole_below(&named).is_some())
}

/// Whether an open(2) changes more than what its descriptor is used for later.
fn makes(flags: u64) -> bool {
    let flags = flags as c_int;
    flags & (libc::O_CREAT | libc::O_TRUNC) != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE
}

/// Whether an mmap(2) is one through which a file may be changed: mprotect(2) allows it later, if the descriptor does.
fn maps_to_write(call: &Call<'_>) -> bool {
    let flags = call.argument(3) as c_int;
    let is_shared = flags & libc::MAP_TYPE != libc::MAP_PRIVATE && flags & libc::MAP_ANONYMOUS == 0;
    is_shared && is_writable(call.task(), call.argument(4) as i32)
}

fn data_of(call: &Call<'_>) -> Option<Pending> {
    let a = |number| call.argument(number);
    let write = |descriptor: usize, offset: Option<u64>| {
        let mut pending = Pending::new("write", call.text().unwrap_or_default());
        call.file(descriptor)?;
        // A FIFO has nothing to lose, and to write to one may wait for another thread.
        opened(call.task(), a(descriptor) as i32).filter(Metadata::is_file)?;
        (pending.descriptor, pending.offset) = (Some(a(descriptor) as i32), offset);
        Some(pending)
    };
    let from_memory = |offset| {
        let mut pending = write(0, offset)?;
        pending.given = Some(given_to(call));
        Some(pending)
    };
    match call.number() {
        libc::SYS_write | libc::SYS_writev => from_memory(None),
        libc::SYS_pwrite64 | libc::SYS_pwritev => from_memory(Some(a(3))),
        libc::SYS_pwritev2 => {
            let mut pending = from_memory((a(3) != u64::MAX).then(|| a(3)))?;
            let flags = a(5) as c_int;
            pending.length = match flags & (libc::RWF_DSYNC | libc::RWF_SYNC) {
                0 => 0,
                libc::RWF_DSYNC => 1,
                _ => WITH_METADATA,
            };
            if flags & (libc::RWF_APPEND | RWF_NOAPPEND) != 0 {
                pending.appends = Some(flags & libc::RWF_APPEND != 0);
            }
            Some(pending)
        }
        libc::SYS_sendfile => write(0, None).map(Pending::waiting),
        libc::SYS_copy_file_range => write(2, call.pointed(3)),
        libc::SYS_splice => write(2, call.pointed(3)).map(Pending::waiting),
        libc::SYS_ftruncate => {
            let mut pending = Pending::new("size", call.text()?);
            pending.descriptor = Some(a(0) as i32);
            Some(pending)
        }
        libc::SYS_truncate => Pending::new("size", call.text()?).about(call, libc::AT_FDCWD, 0),
        libc::SYS_fallocate => fallocate_of(call),
        libc::SYS_ioctl => call.text().map(Pending::unseen),
        _ => None,
    }
}

/// What a call is given to write, as far as its memory can be read and can be noted.
fn given_to(call: &Call<'_>) -> Vec<u8> {
    let pieces = match call.number() {
        libc::SYS_write | libc::SYS_pwrite64 => vec![(call.argument(1), call.argument(2))],
        _ => call.pieces(),
    };
    let mut given = Vec::new();
    for (at, length) in pieces {
        let room = BYTES_MAX.saturating_sub(given.len() as u64);
        let piece = call.bytes(at, length.min(room) as usize);
        let whole = piece.len() as u64 == length;
        given.extend_from_slice(&piece);
        if !whole {
            break;
        }
    }
    given
}

fn fallocate_of(call: &Call<'_>) -> Option<Pending> {
    let (mode, text) = (call.argument(1) as c_int, call.text()?);
    let zeroes = mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0;
    let known = libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE;
    if mode & !known != 0 {
        return Some(Pending::unseen(text));
    }
    // With FALLOC_FL_KEEP_SIZE alone it zeroes nothing, but a set-user-ID bit may go.
    let keeps = mode == libc::FALLOC_FL_KEEP_SIZE;
    let mut pending = Pending::new(if zeroes || keeps { "zero" } else { "size" }, text);
    pending.descriptor = Some(call.argument(0) as i32);
    pending.offset = Some(call.argument(2));
    pending.length = if keeps { 0 } else { call.argument(3) };
    Some(pending)
}

fn name_of(call: &Call<'_>) -> Option<Pending> {
    let a = |number| call.argument(number);
    let here = libc::AT_FDCWD;
    let one = |word, directory, argument: usize| {
        let mut pending = Pending::new(word, call.text().unwrap_or_default());
        pending.path = call.named_path(directory, argument)?;
        Some(pending)
    };
    let two = |word, from: (c_int, usize), to: (c_int, usize)| {
        let mut pending = Pending::new(word, call.text().unwrap_or_default());
        pending.other = call.named_path(to.0, to.1)?;
        pending.path = call.named_path(from.0, from.1).unwrap_or_default();
        Some(pending)
    };
    match call.number() {
        libc::SYS_open => open_of(call, here, 0, a(1)),
        libc::SYS_creat => open_of(
            call,
            here,
            0,
            (libc::O_CREAT | libc::O_TRUNC | libc::O_WRONLY) as u64,
        ),
        libc::SYS_openat => open_of(call, a(0) as i32, 1, a(2)),
        libc::SYS_openat2 => open_of(call, a(0) as i32, 1, call.pointed(2)?),
        libc::SYS_rename => two("rename", (here, 0), (here, 1)),
        libc::SYS_renameat => two("rename", (a(0) as i32, 1), (a(2) as i32, 3)),
        libc::SYS_renameat2 => {
            let word = match a(4) as u32 {
                libc::RENAME_EXCHANGE => "exchange",
                flags if flags & libc::RENAME_WHITEOUT != 0 => "unseen",
                _ => "rename",
            };
            two(word, (a(0) as i32, 1), (a(2) as i32, 3))
        }
        libc::SYS_link => two("link", (here, 0), (here, 1)),
        libc::SYS_linkat => two("link", (a(0) as i32, 1), (a(2) as i32, 3)),
        libc::SYS_symlink => symlink_of(call, one("symlink", here, 1)?),
        libc::SYS_symlinkat => symlink_of(call, one("symlink", a(1) as i32, 2)?),
        libc::SYS_unlink => one("unlink", here, 0),
        libc::SYS_unlinkat => one("unlink", a(0) as i32, 1),
        libc::SYS_mkdir => one("mkdir", here, 0),
        libc::SYS_mkdirat => one("mkdir", a(0) as i32, 1),
        libc::SYS_rmdir => one("unlink", here, 0),
        libc::SYS_mknod => mknod_of(one("create", here, 0)?, a(1)),
        libc::SYS_mknodat => mknod_of(one("create", a(0) as i32, 1)?, a(2)),
        _ => None,
    }
}

/// Where it leads to is read from memory: to read the link would change its access time.
fn symlink_of(call: &Call<'_>, mut pending: Pending) -> Option<Pending> {
    pending.other = PathBuf::from(OsString::from_vec(call.text_at(0)?));
    Some(pending)
}

fn mknod_of(mut pending: Pending, mode: u64) -> Option<Pending> {
    let kind = mode as u32 & libc::S_IFMT;
    pending.text = format!("mknod({})", pending.path.display());
    if kind != 0 && kind != libc::S_IFREG {
        pending = Pending::unseen(format!("{}, which makes no regular file", pending.text));
    }
    Some(pending)
}

/// What an open(2) may make or empty. `other` says which of them.
fn open_of(call: &Call<'_>, directory: c_int, argument: usize, flags: u64) -> Option<Pending> {
    if !makes(flags) {
        return None;
    }
    let flags = flags as c_int;
    let pending = Pending::new("open", call.text().unwrap_or_default());
    let mut pending = pending.about(call, directory, argument)?;
    let before = pending.file(call.task());
    pending.other = match before {
        _ if flags & libc::O_TMPFILE == libc::O_TMPFILE => "tmpfile",
        None if flags & libc::O_CREAT != 0 => "create",
        // A FIFO has nothing to lose, and its open(2) may wait for another thread.
        Some(seen) if flags & libc::O_TRUNC != 0 && seen.is_file() => {
            pending.before = Some(seen);
            "truncate"
        }
        _ => return None,
    }
    .into();
    Some(pending)
}

fn other_of(call: &Call<'_>) -> Option<Pending> {
    let a = |number| call.argument(number);
    let of_file = |word, text: Option<String>| {
        let mut pending = Pending::new(word, text?);
        pending.descriptor = Some(a(0) as i32);
        Some(pending)
    };
    let attributes = |directory: c_int, argument: usize, follow: bool| {
        let mut pending = Pending::new("attributes", call.text()?);
        if follow || call.text_at(argument)?.is_empty() {
            return pending.about(call, directory, argument);
        }
        pending.path = call.named_path(directory, argument)?;
        Some(pending)
    };
    let extended = |directory: c_int, argument: usize| {
        let found = Pending::unseen(String::new()).about(call, directory, argument)?;
        let path = found.path.display();
        Some(unseen_xattr(&path.to_string()))
    };
    let here = libc::AT_FDCWD;
    match call.number() {
        libc::SYS_fsync => of_file("fsync", call.text()),
        libc::SYS_fdatasync => of_file("fdatasync", call.text()),
        libc::SYS_sync => Some(Pending::new("sync", call.text()?)),
        libc::SYS_syncfs => of_file("sync", call.text()),
        libc::SYS_sync_file_range => of_file("nothing", call.text()),
        libc::SYS_msync => {
            // Of no bytes, it does nothing; a length of 0 stands for the whole file in these notes.
            let syncs = a(2) as c_int & libc::MS_SYNC != 0 && a(1) > 0;
            let word = if syncs { "fdatasync" } else { "nothing" };
            let mut pending = Pending::new(word, call.text()?);
            pending.ranges = call.mapped_in(a(0), a(1));
            pending.ranges.retain(|p| whole_below(&p.path).is_some());
            Some(pending)
        }
        libc::SYS_bind => {
            let made = whole_below(&call.socket_path()?)?;
            let text = format!("bind({}), which makes a socket", made.display());
            Some(Pending::unseen(text))
        }
        libc::SYS_fchmod | libc::SYS_fchown => of_file("attributes", call.text()),
        libc::SYS_chmod | libc::SYS_chown => attributes(here, 0, true),
        libc::SYS_lchown => attributes(here, 0, false),
        libc::SYS_fchmodat => attributes(a(0) as i32, 1, true),
        libc::SYS_fchmodat2 => attributes(a(0) as i32, 1, a(3) & 0x100 == 0),
        libc::SYS_fchownat => attributes(a(0) as i32, 1, a(4) & 0x100 == 0),
        libc::SYS_setxattr
        | libc::SYS_lsetxattr
        | libc::SYS_removexattr
        | libc::SYS_lremovexattr
        | libc::SYS_fsetxattr
        | libc::SYS_fremovexattr => xattr_of(call),
        SYS_SETXATTRAT | SYS_REMOVEXATTRAT => extended(a(0) as i32, 1),
        libc::SYS_io_uring_setup => Some(Pending::unseen("io_uring_setup()".to_owned())),
        libc::SYS_io_submit => Some(Pending::unseen(call.text()?)),
        libc::SYS_clone => untraced_of("clone", a(0)),
        libc::SYS_clone3 => untraced_of("clone3", call.pointed(0)?),
        _ => None,
    }
}

/// What makes a child that no tracer gets: whatever that one does, nobody sees it. With CLONE_VFORK, whoever made it
/// waits for it.
fn untraced_of(call: &str, flags: u64) -> Option<Pending> {
    (flags as c_int & libc::CLONE_UNTRACED != 0)
        .then(|| Pending::unseen(format!("{call}() with CLONE_UNTRACED")).waiting())
}

/// What sets or removes an extended attribute: a descriptor or a path, then the name, then its value and length.
fn xattr_of(call: &Call<'_>) -> Option<Pending> {
    let removes = matches!(
        call.number(),
        libc::SYS_removexattr | libc::SYS_lremovexattr | libc::SYS_fremovexattr
    );
    let word = if removes { "removexattr" } else { "setxattr" };
    let mut pending = Pending::new(word, String::new());
    let shown = match call.number() {
        libc::SYS_fsetxattr | libc::SYS_fremovexattr => {
            pending.descriptor = Some(call.argument(0) as i32);
            call.file(0)?
        }
        // A link with a slash behind it is followed (path_resolution(7)).
        libc::SYS_lsetxattr | libc::SYS_lremovexattr if !call.text_at(0)?.ends_with(b"/") => {
            pending.path = call.named_path(libc::AT_FDCWD, 0)?;
            pending.shown()
        }
        _ => {
            pending = pending.about(call, libc::AT_FDCWD, 0)?;
            pending.shown()
        }
    };
    if shown == TOP {
        return Some(unseen_xattr("., the directory itself"));
    }
    let name = call
        .text_at(1)
        .and_then(|name| String::from_utf8(name).ok())
        .filter(|name| name.as_bytes().starts_with(FOLLOWED));
    let Some(name) = name else {
        return Some(unseen_xattr(&shown));
    };
    pending.text = format!("{word}({shown}, {name})");
    if !removes {
        let length = call.argument(3).min(xattrs::XATTR_BYTES as u64) as usize;
        pending.text = format!("{word}({shown}, {name}, {length})");
        pending.given = Some(call.bytes(call.argument(2), length));
    }
    pending.other = name.into();
    Some(pending)
}

fn unseen_xattr(shown: &str) -> Pending {
    Pending::unseen(format!("a change of extended attributes of {shown}"))
}

fn below(path: &Path) -> PathBuf {
    Path::new(MOUNT_POINT).join(path)
}

/// The file of a descriptor, also if it has no name.
fn opened(task: pid_t, descriptor: i32) -> Option<Metadata> {
    fs::metadata(format!("/proc/{task}/fd/{descriptor}")).ok()
}

/// Where a descriptor stands, and its flags (proc_pid_fdinfo(5)).
fn position(task: pid_t, descriptor: i32) -> (u64, u64) {
    let text = fs::read_to_string(format!("/proc/{task}/fdinfo/{descriptor}")).unwrap_or_default();
    let field = |name: &str| {
        text.lines()
            .find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
    };
    let position = field("pos:")
        .and_then(|word| word.parse().ok())
        .unwrap_or(0);
    let flags = field("flags:").and_then(|word| u64::from_str_radix(&word, 8).ok());
    (position, flags.unwrap_or(0))
}

/// Whether a descriptor allows to write.
fn is_writable(task: pid_t, descriptor: i32) -> bool {
    let (_, flags) = position(task, descriptor);
    flags & libc::O_ACCMODE as u64 != libc::O_RDONLY as u64
}

fn owner_of(seen: &Metadata) -> (u32, u32, u32) {
    (seen.mode() & 0o7777, seen.uid(), seen.gid())
}

/// Open a file to be read so that its access time stays.
fn open_unnoticed(path: &str) -> io::Result<File> {
    File::options()
        .read(true)
        .custom_flags(libc::O_NOATIME)
        .open(path)
}

/// What is in the file of a descriptor, which may be one for writing alone.
fn read_back(task: pid_t, descriptor: i32, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length as usize];
    open_unnoticed(&format!("/proc/{task}/fd/{descriptor}"))?.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// The inodes that any process maps (proc_pid_maps(5)).
fn mapped_inodes() -> HashSet<u64> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    // Bytes, not text: a name that is not UTF-8 must not hide what else the process maps.
    let maps = processes.filter_map(|one| fs::read(one.path().join("maps")).ok());
    let of_lines = |text: Vec<u8>| -> Vec<u64> {
        let lines = text.split(|byte| *byte == b'\n');
        lines.filter_map(mapped_inode).collect()
    };
    maps.flat_map(of_lines).collect()
}

fn mapped_inode(line: &[u8]) -> Option<u64> {
    let mut words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    std::str::from_utf8(words.nth(4)?).ok()?.parse().ok()
}

#[cfg(test)]
pub mod tests {
    use std::ffi::{CString, OsStr};

    use super::*;
    use crate::calls::CHOSEN;

    /// Notes whose bytes go nowhere.
    fn notes_in(lines: File) -> Notes {
        Notes {
            lines,
            bytes: File::options().write(true).open("/dev/null").unwrap(),
            noted: 0,
            at: 0,
            pending: None,
            waiting: HashMap::new(),
            mapped: BTreeMap::new(),
            unmapped: false,
            frames: Frames::default(),
            full: false,
        }
    }

    /// A thread that was killed while it waited for others took what was known of its call along.
    #[test]
    fn what_nobody_follows_is_noted_of_a_thread_that_ends_in_it() {
        let path = std::env::temp_dir().join(format!("powercut-ended-{}", std::process::id()));
        let mut notes = notes_in(File::create(&path).unwrap());
        for (task, text) in [(7, "clone() of one"), (8, "clone() of another")] {
            notes.pending = Some(Pending::unseen(text.to_owned()).waiting());
            assert!(notes.let_wait(task));
        }
        notes.forget_waiting(7);
        let told = fs::read_to_string(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(
            told.starts_with("unseen\t") && told.contains("of one"),
            "{told}"
        );
        assert_eq!(told.lines().count(), 1);
        notes.forget_waiting(9);
        assert!(notes.waiting.contains_key(&8));
    }

    /// A file of this name, whose first page this process maps; where.
    pub fn mapped_file(name: &[u8], is_writable: bool) -> (PathBuf, File, usize) {
        let folder = fs::canonicalize(std::env::temp_dir()).unwrap();
        let mut whole = format!("powercut-mapped-{}-", std::process::id()).into_bytes();
        whole.extend_from_slice(name);
        let path = folder.join(OsStr::from_bytes(&whole));
        fs::write(&path, [1; 4096]).unwrap();
        let file = File::options()
            .read(true)
            .write(is_writable)
            .open(&path)
            .unwrap();
        let (access, kind) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a mapping at a place that the kernel chooses, which stays until this process ends.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                access,
                kind,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(mapped, libc::MAP_FAILED);
        (path, file, mapped as usize)
    }

    /// A store was taken for unmapped, and what it wrote was no longer noted.
    #[test]
    fn a_file_is_mapped_where_a_name_is_not_text() {
        let (path, file, _) = mapped_file(b"whole-\xe9", true);
        assert!(mapped_inodes().contains(&file.metadata().unwrap().ino()));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn the_blocks_of_a_mapped_file_that_changed_are_told_once() {
        let (path, file, _) = mapped_file(b"changed", true);
        let mut mapped = Mapped {
            file,
            known: Vec::new(),
        };
        let size = 2 * READ + 100;
        mapped.file.set_len(size as u64).unwrap();
        assert_eq!(mapped.changed(), [(0, vec![1; BLOCK])]);
        assert_eq!(mapped.known.len(), size);
        let (middle, last) = (READ + 5, size - 1);
        mapped.file.write_all_at(b"x", middle as u64).unwrap();
        mapped.file.write_all_at(b"y", last as u64).unwrap();
        let places: Vec<_> = mapped.changed().iter().map(|(at, _)| *at).collect();
        assert_eq!(places, [READ as u64, 2 * READ as u64]);
        assert_eq!((mapped.known[middle], mapped.known[last]), (b'x', b'y'));
        mapped.file.set_len(1).unwrap();
        assert_eq!((mapped.changed(), mapped.known.len()), (vec![], 1));
        fs::remove_file(path).unwrap();
    }

    /// It was taken for what the call did: nobody noted it.
    #[test]
    fn what_another_thread_stores_during_a_call_is_seen_behind_it() {
        let (path, file, _) = mapped_file(b"during", true);
        file.set_len(3 * BLOCK as u64).unwrap();
        let inode = file.metadata().unwrap().ino();
        let known = Vec::new();
        let mut mapped = Mapped { file, known };
        mapped.changed();
        let nothing = || File::options().write(true).open("/dev/null").unwrap();
        let mut notes = notes_in(nothing());
        notes.mapped.insert(inode, mapped);
        let held = &notes.mapped[&inode].file;
        held.write_all_at(b"by the call", 0).unwrap();
        held.write_all_at(b"stored", BLOCK as u64).unwrap();
        notes.know(inode, 3 * BLOCK as u64, |known| {
            known[..11].copy_from_slice(b"by the call");
        });
        let changed = notes.mapped.get_mut(&inode).unwrap().changed();
        assert_eq!(changed.len(), 1);
        assert_eq!(changed[0].0, BLOCK as u64);
        notes.know(inode, 1, |_| {});
        assert!(!notes.full);
        notes.know(inode, BYTES_MAX + 1, |_| {});
        assert!(notes.full);
        fs::remove_file(path).unwrap();
    }

    /// What it did was taken for nothing.
    #[test]
    fn a_child_that_is_not_traced_is_told() {
        // SAFETY: any bytes are a value of it.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        registers.cs = 0x33;
        let traced = (libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD) as u64;
        let untraced = traced | libc::CLONE_UNTRACED as u64;
        for (number, name) in [(libc::SYS_clone, "clone"), (libc::SYS_clone3, "clone3")] {
            assert!(MORE_CHOSEN.contains(&number));
            registers.orig_rax = number as u64;
            let mut told = |flags: &u64| {
                registers.rdi = match name {
                    "clone" => *flags,
                    _ => std::ptr::from_ref(flags) as u64,
                };
                pending_of(&Call::own(&registers)).map(|seen| (seen.word, seen.text))
            };
            let text = format!("{name}() with CLONE_UNTRACED");
            assert_eq!(
                (told(&traced), told(&untraced)),
                (None, Some(("unseen", text)))
            );
        }
    }

    /// Where a link from elsewhere leads counted for its removal, too.
    #[test]
    fn a_link_is_on_its_own_device_for_a_call_that_does_not_follow_it() {
        let link = std::env::temp_dir().join(format!("powercut-own-device-{}", std::process::id()));
        let of = |path: &Path| fs::metadata(path).unwrap().dev();
        let (here, there) = (of(&std::env::temp_dir()), of(Path::new("/proc/version")));
        assert_eq!(device_of(&link, false), Some(here));
        std::os::unix::fs::symlink("/proc/version", &link).unwrap();
        assert_eq!(device_of(&link, false), Some(here));
        assert_eq!(device_of(&link, true), Some(there));
        fs::remove_file(&link).unwrap();
        let file = File::create(&link).unwrap();
        let held = format!("/proc/self/fd/{}", file.as_raw_fd());
        assert_eq!(device_of(Path::new(&held), false), Some(here));
        fs::remove_file(&link).unwrap();
    }

    /// The agent read on without end, or until a file in it had something to say.
    #[test]
    fn of_what_is_left_no_more_names_are_told_than_calls_made_and_none_of_another_device() {
        let top = std::env::temp_dir().join(format!("powercut-left-{}", std::process::id()));
        fs::create_dir_all(top.join("d")).unwrap();
        for name in ["a", "d/b", "d/c"] {
            fs::write(top.join(name), name).unwrap();
        }
        let device = fs::metadata(&top).unwrap().dev();
        let told = |device, mut room: u64| {
            let lines = top.with_extension("lines");
            let mut notes = notes_in(File::create(&lines).unwrap());
            notes.left(&top, device, &mut room).unwrap();
            let text = fs::read_to_string(&lines).unwrap();
            fs::remove_file(&lines).unwrap();
            let words = text.lines().map(|line| line.split('\t').next().unwrap());
            let left = words.filter(|word| *word == "left").count();
            (left, notes.full, notes.at)
        };
        assert_eq!(told(device, 4), (4, false, 7));
        assert_eq!(told(device, 3).0, 3);
        assert!(told(device, 3).1);
        assert_eq!(told(device + 1, 4), (2, false, 0));
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn extended_attributes_of_the_user_are_followed_and_others_seen() {
        let path = CString::new(format!("{MOUNT_POINT}/f")).unwrap();
        // SAFETY: any bytes are a value of it.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        (registers.cs, registers.rdi) = (0x33, path.as_ptr() as u64);
        let value = b"value";
        (registers.rdx, registers.r10) = (value.as_ptr() as u64, 5);
        for (number, name, word, text) in [
            (188, c"user.n", "setxattr", "setxattr(f, user.n, 5)"),
            (189, c"user.n", "setxattr", "setxattr(f, user.n, 5)"),
            (197, c"user.n", "removexattr", "removexattr(f, user.n)"),
            (
                188,
                c"trusted.n",
                "unseen",
                "a change of extended attributes of f",
            ),
            (
                189,
                c"user.\xff",
                "unseen",
                "a change of extended attributes of f",
            ),
        ] {
            (registers.orig_rax, registers.rsi) = (number, name.as_ptr() as u64);
            let seen = other_of(&Call::own(&registers)).unwrap();
            assert_eq!((seen.word, seen.text.as_str()), (word, text));
            let given = (word == "setxattr").then(|| value.to_vec());
            assert_eq!(seen.given, given);
        }
    }

    /// They show in no tree that is made, and a program that relied on one passed.
    #[test]
    fn extended_attributes_of_the_directory_itself_are_seen_and_not_followed() {
        // SAFETY: any bytes are a value of it.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        (registers.cs, registers.rsi) = (0x33, c"user.n".as_ptr() as u64);
        for path in [MOUNT_POINT.to_owned(), format!("{MOUNT_POINT}/d/../.")] {
            let path = CString::new(path).unwrap();
            for number in [188, 189, 197, 198] {
                (registers.orig_rax, registers.rdi) = (number, path.as_ptr() as u64);
                let seen = other_of(&Call::own(&registers)).unwrap();
                let text = "a change of extended attributes of ., the directory itself";
                assert_eq!((seen.word, seen.text.as_str()), ("unseen", text));
            }
        }
    }

    /// The link was taken for what the call is about, and the kernel follows it.
    #[test]
    fn a_link_with_a_slash_behind_it_is_followed() {
        let top = std::env::temp_dir().join(format!("powercut-slash-{}", std::process::id()));
        std::os::unix::fs::symlink(format!("{MOUNT_POINT}/real"), &top).unwrap();
        // SAFETY: any bytes are a value of it.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        (registers.cs, registers.rsi) = (0x33, c"user.n".as_ptr() as u64);
        for (number, word) in [
            (libc::SYS_lsetxattr, "setxattr"),
            (libc::SYS_lremovexattr, "removexattr"),
        ] {
            registers.orig_rax = number as u64;
            let seen = |end: &str| {
                let path = CString::new(format!("{}{end}", top.display())).unwrap();
                let registers = libc::user_regs_struct {
                    rdi: path.as_ptr() as u64,
                    ..registers
                };
                other_of(&Call::own(&registers)).map(|seen| (seen.word, seen.path))
            };
            assert_eq!((seen(""), seen("/")), (None, Some((word, "real".into()))));
        }
        fs::remove_file(top).unwrap();
    }

    /// What changes an extended attribute by these is not followed, so it has to be seen.
    #[test]
    fn calls_that_name_a_directory_are_seen_as_those_that_do_not() {
        let name = CString::new(format!("{MOUNT_POINT}/f")).unwrap();
        // SAFETY: any bytes are a value of it.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        (registers.cs, registers.rsi) = (0x33, name.as_ptr() as u64);
        registers.rdi = libc::AT_FDCWD as u64;
        for (number, word) in [(452, "attributes"), (463, "unseen"), (466, "unseen")] {
            registers.orig_rax = number;
            let call = Call::own(&registers);
            let chosen = CHOSEN.iter().chain(&MORE_CHOSEN);
            assert_eq!(chosen.filter(|n| **n == number as c_long).count(), 1);
            assert_eq!(other_of(&call).map(|seen| seen.word), Some(word));
        }
    }
}
