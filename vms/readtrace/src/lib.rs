//! Records what a program reads of one file, or of two that are parts of one. LD_PRELOAD loads it into an fsck.
//!
//! `POWERCUT_TRACE_FILE` names the file, `POWERCUT_TRACE_OUT` an empty file for the trace: a line
//! `offset length` in bytes for each read. `POWERCUT_TRACE_TAIL=OFFSET:FILE` names another file, whose reads
//! count as reads from `OFFSET` on (a second device, cut out of the image). The last line is `complete` if the
//! program ends by `exit`. It is left out after anything that this library does not follow: other access to
//! the file (mmap, stdio, readv, a duplicated descriptor, a bare system call, a queue of reads), or a second process (forked or
//! started). A trace that may lack a read must not be taken for a complete one. A program that is linked
//! statically, or ends by `_exit`, leaves no complete trace.
//!
//! Of a wide read into memory that the program frees, or unmaps, before it reads again, only the pages count that it looked
//! at ([`guard`]).
//!
//! fsync of the file does nothing: the file is a scratch copy.
//!
//! A traced program dies with the thread that started it: a killed orchestrator leaves no fsck behind.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void, CStr, CString, OsStr};
use std::fs::OpenOptions;
use std::io::{Read as _, Seek, Write};
use std::os::unix::{ffi::OsStrExt, fs::MetadataExt};
use std::ptr::null_mut;
use std::sync::{
    atomic::{AtomicPtr, Ordering},
    Mutex,
};

use libc::{dlsym, mode_t, off64_t, size_t, ssize_t, FILE, RTLD_NEXT};

mod guard;
pub mod server;

/// Device and inode of a file.
type Identity = (u64, u64);

/// The traced files and their reads so far.
#[derive(Default)]
struct Trace {
    /// Device and inode.
    identity: Option<Identity>,
    /// The second file's, with the offset at which it begins.
    tail: Option<(Identity, u64)>,
    /// Reads, as number, offset and length.
    reads: Vec<(u32, u64, u64)>,
    /// The program did something that is not followed.
    lost: bool,
}

/// What one look at a watched read counts for.
const PAGE_BYTES: u64 = 4096;

static TRACE: Mutex<Option<Trace>> = Mutex::new(None);

/// Run by the dynamic linker before the program's `main`.
#[used]
#[link_section = ".init_array"]
static END_WITH_PARENT: extern "C" fn() = {
    extern "C" fn end_with_parent() {
        // Only the traced program: a program that it starts must live to write the line that spoils the trace.
        let out =
            std::env::var_os("POWERCUT_TRACE_OUT").and_then(|path| std::fs::metadata(path).ok());
        if out.is_some_and(|trace| trace.len() == 0) {
            // SAFETY: this option takes a signal's number, and no pointer.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) };
        }
    }
    end_with_parent
};

fn with_trace<T>(act: impl FnOnce(&mut Trace) -> T) -> Option<T> {
    let mut trace = TRACE.lock().ok()?;
    Some(act(trace.get_or_insert_with(begin)))
}

/// The files' identities. Announces the trace with a line, so that no other process's trace passes for complete.
fn begin() -> Trace {
    extern "C" fn before_fork() {
        with_trace(|t| t.lost = true);
    }
    announce();
    // SAFETY: the function lives as long as the program. What the parent has lost by then, the child has lost too.
    let followed = unsafe { libc::pthread_atfork(Some(before_fork), None, None) };
    let tail = std::env::var("POWERCUT_TRACE_TAIL").ok();
    let parsed = tail.as_deref().and_then(parse_tail);
    Trace {
        identity: std::env::var_os("POWERCUT_TRACE_FILE").and_then(|path| identify(path.as_ref())),
        lost: followed != 0 || (tail.is_some() && parsed.is_none()),
        tail: parsed,
        ..Trace::default()
    }
}

/// The line that a process appends to the trace's file when it begins.
fn announcement() -> String {
    format!("begun {}\n", std::process::id())
}

/// Append the announcement. A failure shows at the end, when the line is missing.
fn announce() {
    let Some(out) = std::env::var_os("POWERCUT_TRACE_OUT") else {
        return;
    };
    let Ok(path) = CString::new(out.as_bytes()) else {
        return;
    };
    let text = announcement();
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CLOEXEC;
    // SAFETY: a path that ends in NUL, and a buffer of the length given. A bare system call, because this
    // library follows the C library's function, and the trace is only beginning.
    unsafe {
        let fd = libc::syscall(
            libc::SYS_openat,
            libc::AT_FDCWD as c_long,
            path.as_ptr(),
            flags as c_long,
        ) as c_int;
        if fd >= 0 {
            libc::write(fd, text.as_ptr().cast(), text.len());
            libc::close(fd);
        }
    }
}

fn identify(path: &OsStr) -> Option<Identity> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// `OFFSET:FILE`
fn parse_tail(text: &str) -> Option<(Identity, u64)> {
    let (offset, path) = text.split_once(':')?;
    Some((identify(path.as_ref())?, offset.parse().ok()?))
}

impl Trace {
    /// The offset from which the reads of a file count; None if it is not traced.
    fn base(&self, file: Identity) -> Option<u64> {
        match self.tail {
            Some((tail, offset)) if tail == file => Some(offset),
            _ => (self.identity == Some(file)).then_some(0),
        }
    }
}

/// Runs after everything that the program does at exit, which may read too.
#[used]
#[link_section = ".fini_array"]
static AT_THE_END: extern "C" fn() = finish;

extern "C" fn finish() {
    let Ok(mut guard) = TRACE.lock() else { return };
    let Some(trace) = guard.as_mut() else { return };
    // from here on nothing is followed, and opening the trace's own file does not begin a trace again
    let trace = std::mem::take(trace);
    drop(guard);
    if let Some(out) = std::env::var_os("POWERCUT_TRACE_OUT") {
        // a failure leaves no last line: the trace is incomplete
        let _ = write_trace(&out, &trace);
    }
}

/// The reads, and whether they are complete: only if no other process has begun a trace.
fn write_trace(out: &OsStr, trace: &Trace) -> std::io::Result<()> {
    let mut file = OpenOptions::new().read(true).write(true).open(out)?;
    let mut before = String::new();
    file.read_to_string(&mut before)?;
    if before != announcement() {
        return file.write_all(b"several processes\n");
    }
    let mut text = String::new();
    let looks = guard::looks();
    let complete = looks.is_some();
    let looks = looks.into_iter().flatten();
    let mut reads = trace.reads.clone();
    reads.extend(looks.map(|(number, offset)| (number, offset, PAGE_BYTES)));
    reads.sort_unstable();
    for (_, offset, length) in reads {
        text.push_str(&format!("{offset} {length}\n"));
    }
    if trace.identity.is_some() && !trace.lost && complete {
        text.push_str("complete\n");
    }
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(text.as_bytes())
}

/// The offset from which the reads of a descriptor's file count; None if it is not traced.
fn traced(descriptor: c_int) -> Option<u64> {
    // SAFETY: fstat fills the structure when it returns 0.
    let identity = unsafe {
        let mut status: libc::stat64 = std::mem::zeroed();
        if libc::fstat64(descriptor, &raw mut status) != 0 {
            return None;
        }
        (status.st_dev, status.st_ino)
    };
    with_trace(|t| t.base(identity)).flatten()
}

fn note(descriptor: c_int, buffer: *const c_void, offset: i64, length: ssize_t) {
    if length <= 0 {
        return;
    }
    let Some(base) = traced(descriptor) else {
        return;
    };
    let Ok(offset) = u64::try_from(offset) else {
        with_trace(|t| t.lost = true);
        return;
    };
    let (start, length, at) = (buffer as usize, length as usize, base + offset);
    let number = guard::next();
    let watched = is_read_only(descriptor).then(|| guard::watch(start, length, at, number));
    let end = at + length as u64;
    // what is not watched: all, or what lies in front of whole pages and behind them
    let parts = match watched.flatten() {
        None => [at..end, end..end],
        Some(pages) => {
            let place = |address: usize| at + (address - start) as u64;
            [at..place(pages.start), place(pages.end)..end]
        }
    };
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        let length = part.end - part.start;
        with_trace(|t| t.reads.push((number, part.start, length)));
    }
}

/// Whether what was read cannot be written back: memory that the kernel reads must not be watched.
fn is_read_only(descriptor: c_int) -> bool {
    // SAFETY: this command takes no argument.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_ACCMODE == libc::O_RDONLY
}

fn lose(descriptor: c_int) {
    guard::give_up();
    if traced(descriptor).is_some() {
        with_trace(|t| t.lost = true);
    }
}

/// The next definition of a function. Use in an `unsafe` block: the type must be that of the C library's
/// function of that name. Looked up once, or more than once by threads that race here: to wait for each other
/// they would call `syscall`, which is looked up here too.
#[macro_export]
macro_rules! real {
    ($name:literal as $type:ty) => {{
        static REAL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
        let mut found = REAL.load(Ordering::Relaxed);
        if found.is_null() {
            found = dlsym(RTLD_NEXT, $name.as_ptr());
            assert!(!found.is_null(), "the C library has no {:?}", $name);
            REAL.store(found, Ordering::Relaxed);
        }
        std::mem::transmute::<*mut c_void, $type>(found)
    }};
}

type WriteOut = unsafe extern "C" fn(c_int, *const c_void, size_t) -> ssize_t;
type Pwrite = unsafe extern "C" fn(c_int, *const c_void, size_t, off64_t) -> ssize_t;
type Writev = unsafe extern "C" fn(c_int, *const libc::iovec, c_int) -> ssize_t;
type Send = unsafe extern "C" fn(c_int, *const c_void, size_t, c_int) -> ssize_t;
type Pwritev = unsafe extern "C" fn(c_int, *const libc::iovec, c_int, off64_t) -> ssize_t;
type Sendto = unsafe extern "C" fn(
    c_int,
    *const c_void,
    size_t,
    c_int,
    *const libc::sockaddr,
    libc::socklen_t,
) -> ssize_t;
type Sendmsg = unsafe extern "C" fn(c_int, *const libc::msghdr, c_int) -> ssize_t;
type Fwrite = unsafe extern "C" fn(*const c_void, size_t, size_t, *mut FILE) -> size_t;
type AioRead = unsafe extern "C" fn(*mut c_void) -> c_int;
type LioListio = unsafe extern "C" fn(c_int, *const *mut c_void, c_int, *mut c_void) -> c_int;
type Pread = unsafe extern "C" fn(c_int, *mut c_void, size_t, off64_t) -> ssize_t;
type Free = unsafe extern "C" fn(*mut c_void);
type Realloc = unsafe extern "C" fn(*mut c_void, size_t) -> *mut c_void;
type Reallocarray = unsafe extern "C" fn(*mut c_void, size_t, size_t) -> *mut c_void;
type Munmap = unsafe extern "C" fn(*mut c_void, size_t) -> c_int;
type Mremap = unsafe extern "C" fn(*mut c_void, size_t, size_t, c_int, *mut c_void) -> *mut c_void;
type Read = unsafe extern "C" fn(c_int, *mut c_void, size_t) -> ssize_t;
type Mmap = unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off64_t) -> *mut c_void;
type Fopen = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut FILE;
type Fdopen = unsafe extern "C" fn(c_int, *const c_char) -> *mut FILE;
type Freopen = unsafe extern "C" fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE;
type Dup = unsafe extern "C" fn(c_int) -> c_int;
type Dup2 = unsafe extern "C" fn(c_int, c_int) -> c_int;
type Readv = unsafe extern "C" fn(c_int, *const libc::iovec, c_int) -> ssize_t;
type Preadv = unsafe extern "C" fn(c_int, *const libc::iovec, c_int, off64_t) -> ssize_t;
type Preadv2 = unsafe extern "C" fn(c_int, *const libc::iovec, c_int, off64_t, c_int) -> ssize_t;
type Transfer =
    unsafe extern "C" fn(c_int, *mut off64_t, c_int, *mut off64_t, size_t, c_uint) -> ssize_t;
type Sendfile = unsafe extern "C" fn(c_int, c_int, *mut off64_t, size_t) -> ssize_t;
type Syscall =
    unsafe extern "C" fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long;
type Open = unsafe extern "C" fn(*const c_char, c_int, mode_t) -> c_int;
type Openat = unsafe extern "C" fn(c_int, *const c_char, c_int, mode_t) -> c_int;

/// A function of the C library with the same arguments, which records the read.
macro_rules! pread_like {
    ($name:ident, $text:literal) => {
        /// # Safety
        /// As the C library's.
        #[no_mangle]
        pub unsafe extern "C" fn $name(
            fd: c_int,
            buffer: *mut c_void,
            count: size_t,
            at: off64_t,
        ) -> ssize_t {
            guard::give_up();
            // SAFETY: passed on unchanged.
            let got = unsafe { real!($text as Pread)(fd, buffer, count, at) };
            note(fd, buffer, at, got);
            got
        }
    };
}
pread_like!(pread, c"pread");
pread_like!(pread64, c"pread64");

/// The same for the functions that a program compiled with _FORTIFY_SOURCE calls.
macro_rules! checked_pread_like {
    ($name:ident) => {
        /// # Safety
        /// As the C library's.
        #[no_mangle]
        pub unsafe extern "C" fn $name(
            fd: c_int,
            buffer: *mut c_void,
            count: size_t,
            at: off64_t,
            room: size_t,
        ) -> ssize_t {
            if count > room {
                // As the C library does: the program has a defect and must not go on.
                std::process::abort();
            }
            // SAFETY: passed on; the buffer has room.
            unsafe { pread64(fd, buffer, count, at) }
        }
    };
}
checked_pread_like!(__pread_chk);
checked_pread_like!(__pread64_chk);

/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t {
    guard::give_up();
    // SAFETY: lseek changes nothing here; the read is passed on unchanged.
    unsafe {
        let at = libc::lseek64(fd, 0, libc::SEEK_CUR);
        let got = real!(c"read" as Read)(fd, buffer, count);
        note(fd, buffer, at, got);
        got
    }
}

/// Does nothing to a traced file, which is thrown away: nothing of it has to survive this host, and what e2fsck waits
/// for at its end is a flush of the host's disk, longer than the check.
macro_rules! sync_like {
    ($name:ident, $text:literal) => {
        /// # Safety
        /// As the C library's.
        #[no_mangle]
        pub unsafe extern "C" fn $name(fd: c_int) -> c_int {
            if traced(fd).is_some() {
                return 0;
            }
            // SAFETY: passed on unchanged.
            unsafe { real!($text as Dup)(fd) }
        }
    };
}
sync_like!(fsync, c"fsync");
sync_like!(fdatasync, c"fdatasync");

/// free(3): ends the watch of a read into this memory.
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C" fn free(memory: *mut c_void) {
    if memory.is_null() {
        return;
    }
    // SAFETY: allocated memory, passed on unchanged.
    unsafe {
        if guard::is_active() {
            guard::freed(memory as usize, libc::malloc_usable_size(memory));
        }
        real!(c"free" as Free)(memory);
    }
}

/// A function that may move allocated memory: its pages, or what is there next, would be watched on.
macro_rules! realloc_like {
    ($name:ident($($arg:ident),*), $text:literal as $real:ty) => {
        /// # Safety
        /// As the C library's.
        #[no_mangle]
        pub unsafe extern "C" fn $name(memory: *mut c_void $(, $arg: size_t)*) -> *mut c_void {
            // SAFETY: allocated memory, or null; passed on unchanged.
            unsafe {
                if guard::is_active() && !memory.is_null() {
                    guard::moved(memory as usize, libc::malloc_usable_size(memory));
                }
                real!($text as $real)(memory $(, $arg)*)
            }
        }
    };
}
realloc_like!(realloc(size), c"realloc" as Realloc);
realloc_like!(reallocarray(count, size), c"reallocarray" as Reallocarray);

/// munmap(2): what is mapped there next is no part of a read.
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C" fn munmap(at: *mut c_void, length: size_t) -> c_int {
    if guard::is_active() {
        guard::freed(at as usize, length);
    }
    // SAFETY: passed on unchanged.
    unsafe { real!(c"munmap" as Munmap)(at, length) }
}

/// # Safety
/// As the C library's. Nothing looks at a place that was not given.
#[no_mangle]
pub unsafe extern "C" fn mremap(
    at: *mut c_void,
    length: size_t,
    wanted: size_t,
    flags: c_int,
    place: *mut c_void,
) -> *mut c_void {
    if guard::is_active() {
        guard::moved(at as usize, length);
    }
    // SAFETY: passed on unchanged.
    unsafe { real!(c"mremap" as Mremap)(at, length, wanted, flags, place) }
}

/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C" fn __read_chk(
    fd: c_int,
    buffer: *mut c_void,
    count: size_t,
    room: size_t,
) -> ssize_t {
    if count > room {
        std::process::abort();
    }
    // SAFETY: as `read`; the buffer has room.
    unsafe { read(fd, buffer, count) }
}

/// A function whose use on a traced file makes the trace incomplete.
macro_rules! loses {
    ($name:ident($($arg:ident: $type:ty),*) -> $result:ty, $text:literal as $real:ty) => {
        /// # Safety
        /// As the C library's.
        #[no_mangle]
        pub unsafe extern "C" fn $name(fd: c_int $(, $arg: $type)*) -> $result {
            lose(fd);
            // SAFETY: passed on unchanged.
            unsafe { real!($text as $real)(fd $(, $arg)*) }
        }
    };
}
loses!(fdopen(mode: *const c_char) -> *mut FILE, c"fdopen" as Fdopen);
loses!(dup() -> c_int, c"dup" as Dup);
loses!(dup2(other: c_int) -> c_int, c"dup2" as Dup2);
loses!(readv(parts: *const libc::iovec, count: c_int) -> ssize_t, c"readv" as Readv);
loses!(preadv(parts: *const libc::iovec, count: c_int, at: off64_t) -> ssize_t, c"preadv" as Preadv);
loses!(preadv64(parts: *const libc::iovec, count: c_int, at: off64_t) -> ssize_t, c"preadv64" as Preadv);
loses!(
    preadv2(parts: *const libc::iovec, count: c_int, at: off64_t, flags: c_int) -> ssize_t,
    c"preadv2" as Preadv2
);
loses!(
    preadv64v2(parts: *const libc::iovec, count: c_int, at: off64_t, flags: c_int) -> ssize_t,
    c"preadv64v2" as Preadv2
);
loses!(
    splice(at: *mut off64_t, to: c_int, there: *mut off64_t, count: size_t, flags: c_uint) -> ssize_t,
    c"splice" as Transfer
);
loses!(
    copy_file_range(at: *mut off64_t, to: c_int, there: *mut off64_t, count: size_t, flags: c_uint) -> ssize_t,
    c"copy_file_range" as Transfer
);

/// A function that sends a file's contents to a descriptor; the file is its second argument.
macro_rules! sendfile_like {
    ($name:ident, $text:literal) => {
        /// # Safety
        /// As the C library's.
        #[no_mangle]
        pub unsafe extern "C" fn $name(
            to: c_int,
            fd: c_int,
            at: *mut off64_t,
            count: size_t,
        ) -> ssize_t {
            lose(fd);
            // SAFETY: passed on unchanged.
            unsafe { real!($text as Sendfile)(to, fd, at, count) }
        }
    };
}
sendfile_like!(sendfile, c"sendfile");
sendfile_like!(sendfile64, c"sendfile64");

/// syscall(2): reads that bypass the C library.
///
/// # Safety
/// As the C library's. It takes as many arguments as the call has; nothing looks at the others that are
/// passed on.
#[no_mangle]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    match number {
        libc::SYS_read
        | libc::SYS_pread64
        | libc::SYS_readv
        | libc::SYS_preadv
        | libc::SYS_preadv2
        | libc::SYS_splice
        | libc::SYS_copy_file_range => lose(a as c_int),
        libc::SYS_sendfile => lose(b as c_int),
        libc::SYS_write
        | libc::SYS_pwrite64
        | libc::SYS_writev
        | libc::SYS_pwritev
        | libc::SYS_pwritev2
        | libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_munmap
        | libc::SYS_mremap => guard::give_up(),
        libc::SYS_mmap if e as c_int >= 0 => lose(e as c_int),
        // Reads through rings and queues name their descriptors elsewhere.
        libc::SYS_io_uring_setup | libc::SYS_io_setup => {
            with_trace(|t| t.lost = true);
        }
        _ => {}
    }
    // SAFETY: passed on unchanged.
    unsafe { real!(c"syscall" as Syscall)(number, a, b, c, d, e, f) }
}

/// A function that gives the kernel memory to read, which may be watched: for that the kernel would not fault, but fail,
/// or write less.
macro_rules! hands_over {
    ($name:ident($($arg:ident: $type:ty),*) -> $result:ty, $text:literal as $real:ty) => {
        /// # Safety
        /// As the C library's.
        #[no_mangle]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $result {
            guard::give_up();
            // SAFETY: passed on unchanged.
            unsafe { real!($text as $real)($($arg),*) }
        }
    };
}
hands_over!(write(fd: c_int, from: *const c_void, count: size_t) -> ssize_t, c"write" as WriteOut);
hands_over!(
    pwrite(fd: c_int, from: *const c_void, count: size_t, at: off64_t) -> ssize_t,
    c"pwrite" as Pwrite
);
hands_over!(
    pwrite64(fd: c_int, from: *const c_void, count: size_t, at: off64_t) -> ssize_t,
    c"pwrite64" as Pwrite
);
hands_over!(writev(fd: c_int, parts: *const libc::iovec, count: c_int) -> ssize_t, c"writev" as Writev);
hands_over!(
    pwritev(fd: c_int, parts: *const libc::iovec, count: c_int, at: off64_t) -> ssize_t,
    c"pwritev" as Pwritev
);
hands_over!(
    pwritev64(fd: c_int, parts: *const libc::iovec, count: c_int, at: off64_t) -> ssize_t,
    c"pwritev64" as Pwritev
);
hands_over!(
    send(fd: c_int, from: *const c_void, count: size_t, flags: c_int) -> ssize_t,
    c"send" as Send
);
hands_over!(
    sendto(
        fd: c_int,
        from: *const c_void,
        count: size_t,
        flags: c_int,
        address: *const libc::sockaddr,
        length: libc::socklen_t
    ) -> ssize_t,
    c"sendto" as Sendto
);
hands_over!(
    sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t,
    c"sendmsg" as Sendmsg
);
// A large piece goes from the program's memory to write(2), inside the C library.
hands_over!(
    fwrite(from: *const c_void, size: size_t, count: size_t, to: *mut FILE) -> size_t,
    c"fwrite" as Fwrite
);

/// A function that reads in the background, through descriptors that it names elsewhere.
macro_rules! queues {
    ($name:ident($($arg:ident: $type:ty),*) -> $result:ty, $text:literal as $real:ty) => {
        /// # Safety
        /// As the C library's.
        #[no_mangle]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $result {
            guard::give_up();
            with_trace(|t| t.lost = true);
            // SAFETY: passed on unchanged.
            unsafe { real!($text as $real)($($arg),*) }
        }
    };
}
queues!(aio_read(block: *mut c_void) -> c_int, c"aio_read" as AioRead);
queues!(aio_read64(block: *mut c_void) -> c_int, c"aio_read64" as AioRead);
queues!(
    lio_listio(mode: c_int, all: *const *mut c_void, count: c_int, told: *mut c_void) -> c_int,
    c"lio_listio" as LioListio
);
queues!(
    lio_listio64(mode: c_int, all: *const *mut c_void, count: c_int, told: *mut c_void) -> c_int,
    c"lio_listio64" as LioListio
);

/// libaio's start of a queue. Its library makes bare system calls, so this does what it does (io_setup(2)): it may have
/// been loaded where `dlsym` does not look.
///
/// # Safety
/// As libaio's.
#[no_mangle]
pub unsafe extern "C" fn io_setup(most: c_uint, queue: *mut *mut c_void) -> c_int {
    // SAFETY: passed on unchanged.
    let done = unsafe { syscall(libc::SYS_io_setup, most.into(), queue as c_long, 0, 0, 0, 0) };
    match done {
        // SAFETY: this thread's errno.
        -1 => -unsafe { *libc::__errno_location() },
        done => done as c_int,
    }
}

/// The same by its older name.
///
/// # Safety
/// As libaio's.
#[no_mangle]
pub unsafe extern "C" fn io_queue_init(most: c_int, queue: *mut *mut c_void) -> c_int {
    if most <= 0 {
        return -libc::EINVAL;
    }
    // SAFETY: as libaio's: a pointer to one queue, which must be null.
    unsafe {
        *queue = null_mut();
        io_setup(most as c_uint, queue)
    }
}

/// A function that maps a file.
macro_rules! mmap_like {
    ($name:ident, $text:literal) => {
        /// # Safety
        /// As the C library's.
        #[no_mangle]
        pub unsafe extern "C" fn $name(
            at: *mut c_void,
            length: size_t,
            protection: c_int,
            flags: c_int,
            fd: c_int,
            offset: off64_t,
        ) -> *mut c_void {
            if fd >= 0 {
                lose(fd);
            }
            // SAFETY: passed on unchanged.
            unsafe { real!($text as Mmap)(at, length, protection, flags, fd, offset) }
        }
    };
}
mmap_like!(mmap, c"mmap");
mmap_like!(mmap64, c"mmap64");

/// A function that opens a stdio stream, whose reads happen inside the C library.
macro_rules! fopen_like {
    ($name:ident, $text:literal) => {
        /// # Safety
        /// As the C library's.
        #[no_mangle]
        pub unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> *mut FILE {
            // SAFETY: `path` is a C string, as fopen(3) requires; passed on unchanged.
            unsafe {
                lose_path(path);
                real!($text as Fopen)(path, mode)
            }
        }
    };
}
fopen_like!(fopen, c"fopen");
fopen_like!(fopen64, c"fopen64");

/// As [`fopen_like`], into an existing stream.
macro_rules! freopen_like {
    ($name:ident, $text:literal) => {
        /// # Safety
        /// As the C library's.
        #[no_mangle]
        pub unsafe extern "C" fn $name(
            path: *const c_char,
            mode: *const c_char,
            stream: *mut FILE,
        ) -> *mut FILE {
            // SAFETY: `path` is a C string or null, as freopen(3) requires; passed on unchanged.
            unsafe {
                if !path.is_null() {
                    lose_path(path);
                }
                real!($text as Freopen)(path, mode, stream)
            }
        }
    };
}
freopen_like!(freopen, c"freopen");
freopen_like!(freopen64, c"freopen64");

/// # Safety
/// `path` is a C string.
unsafe fn lose_path(path: *const c_char) {
    // SAFETY: see above.
    let path = OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes());
    if let Some(file) = identify(path) {
        with_trace(|t| t.lost |= t.base(file).is_some());
    }
}

/// A function that opens a file. Records nothing, but makes sure that the trace has begun, so that a
/// program that opens the image and reads nothing of it has a trace too.
macro_rules! open_like {
    ($name:ident, $text:literal) => {
        /// # Safety
        /// As the C library's.
        #[no_mangle]
        pub unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            with_trace(|_| ());
            // SAFETY: passed on unchanged; nothing looks at a mode that was not given.
            unsafe { real!($text as Open)(path, flags, mode) }
        }
    };
}
open_like!(open, c"open");
open_like!(open64, c"open64");

/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C" fn openat(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    with_trace(|_| ());
    // SAFETY: passed on unchanged.
    unsafe { real!(c"openat" as Openat)(directory, path, flags, mode) }
}

/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C" fn dup3(fd: c_int, other: c_int, flags: c_uint) -> c_int {
    lose(fd);
    // SAFETY: passed on unchanged.
    unsafe { libc::syscall(libc::SYS_dup3, fd, other, flags) as c_int }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_of_the_tail_count_from_its_offset() {
        let here = std::env::current_exe().unwrap();
        let file = identify(here.as_ref()).unwrap();
        let (tail, offset) = parse_tail(&format!("4096:{}", here.display())).unwrap();
        assert_eq!((tail, offset), (file, 4096));
        let image = (file.0, file.1 + 1);
        let trace = Trace {
            identity: Some(image),
            tail: Some((tail, offset)),
            ..Trace::default()
        };
        assert_eq!(trace.base(tail), Some(4096));
        assert_eq!(trace.base(image), Some(0));
        assert_eq!(trace.base((0, 0)), None);
        assert_eq!(parse_tail("4096"), None);
    }
}
