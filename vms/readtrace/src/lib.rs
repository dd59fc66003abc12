//! Notes what a program reads of one file, or of two that are parts of one. Loaded into an fsck by LD_PRELOAD.
//!
//! `POWERCUT_TRACE_FILE` names the file, `POWERCUT_TRACE_OUT` where its reads are written to: a line
//! `offset length` in bytes for each. `POWERCUT_TRACE_TAIL=OFFSET:FILE` names another, whose reads count as
//! reads from `OFFSET` on (a second device, cut out of the image). The last line is `complete` when the
//! program ends by `exit`. It is left out when something was done with a file that this library does not
//! follow (mmap, stdio, readv, a descriptor that was duplicated): a trace that may lack a read must not be
//! taken for one that lacks none. A program that is linked statically, or ends by `_exit`, leaves no trace.

use std::ffi::{c_char, c_int, c_uint, c_void, CStr, OsStr};
use std::fs::File;
use std::io::Write;
use std::mem::transmute;
use std::os::unix::{ffi::OsStrExt, fs::MetadataExt};
use std::sync::{Mutex, OnceLock};

use libc::{dlsym, mode_t, off64_t, size_t, ssize_t, FILE, RTLD_NEXT};

/// Device and inode of a file.
type Identity = (u64, u64);

/// What is known of the traced files.
#[derive(Default)]
struct Trace {
    /// Device and inode.
    identity: Option<Identity>,
    /// Of the second file, with the offset at which it begins.
    tail: Option<(Identity, u64)>,
    /// Reads, as offset and length.
    reads: Vec<(u64, u64)>,
    /// Something was done that is not followed.
    lost: bool,
}

static TRACE: Mutex<Option<Trace>> = Mutex::new(None);

fn with_trace<T>(act: impl FnOnce(&mut Trace) -> T) -> Option<T> {
    let mut trace = TRACE.lock().ok()?;
    Some(act(trace.get_or_insert_with(begin)))
}

/// The file's identity; what is written when the program ends.
fn begin() -> Trace {
    extern "C" fn at_exit() {
        finish();
    }
    // SAFETY: the function lives as long as the program.
    unsafe { libc::atexit(at_exit) };
    Trace {
        identity: std::env::var_os("POWERCUT_TRACE_FILE").and_then(|path| identify(path.as_ref())),
        tail: std::env::var("POWERCUT_TRACE_TAIL")
            .ok()
            .and_then(|text| parse_tail(&text)),
        ..Trace::default()
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
    /// Where the reads of a file begin to count; None for one that is not traced.
    fn base(&self, file: Identity) -> Option<u64> {
        match self.tail {
            Some((tail, offset)) if tail == file => Some(offset),
            _ => (self.identity == Some(file)).then_some(0),
        }
    }
}

fn finish() {
    let Some(out) = std::env::var_os("POWERCUT_TRACE_OUT") else {
        return;
    };
    let Ok(guard) = TRACE.lock() else { return };
    let Some(trace) = guard.as_ref() else { return };
    let mut text = String::new();
    for (offset, length) in &trace.reads {
        text.push_str(&format!("{offset} {length}\n"));
    }
    if trace.identity.is_some() && !trace.lost {
        text.push_str("complete\n");
    }
    drop(guard);
    // a failure leaves no last line, which says enough
    let _ = File::create(out).and_then(|mut file| file.write_all(text.as_bytes()));
}

/// Where the reads of a descriptor's file begin to count; None where it is not traced.
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

fn note(descriptor: c_int, offset: i64, length: ssize_t) {
    if length <= 0 {
        return;
    }
    let Some(base) = traced(descriptor) else {
        return;
    };
    with_trace(|t| match u64::try_from(offset) {
        Ok(offset) => t.reads.push((base + offset, length as u64)),
        Err(_) => t.lost = true,
    });
}

fn lose(descriptor: c_int) {
    if traced(descriptor).is_some() {
        with_trace(|t| t.lost = true);
    }
}

/// The next definition of a function, looked up once. Stands in an `unsafe` block: the type must be that of
/// the C library's function of that name.
macro_rules! real {
    ($name:literal as $type:ty) => {{
        static REAL: OnceLock<$type> = OnceLock::new();
        *REAL.get_or_init(|| {
            let found = dlsym(RTLD_NEXT, $name.as_ptr());
            assert!(!found.is_null(), "the C library has no {:?}", $name);
            transmute::<*mut c_void, $type>(found)
        })
    }};
}

type Pread = unsafe extern "C" fn(c_int, *mut c_void, size_t, off64_t) -> ssize_t;
type Read = unsafe extern "C" fn(c_int, *mut c_void, size_t) -> ssize_t;
type Mmap = unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off64_t) -> *mut c_void;
type Fopen = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut FILE;
type Fdopen = unsafe extern "C" fn(c_int, *const c_char) -> *mut FILE;
type Dup = unsafe extern "C" fn(c_int) -> c_int;
type Readv = unsafe extern "C" fn(c_int, *const libc::iovec, c_int) -> ssize_t;
type Preadv = unsafe extern "C" fn(c_int, *const libc::iovec, c_int, off64_t) -> ssize_t;
type Open = unsafe extern "C" fn(*const c_char, c_int, mode_t) -> c_int;
type Openat = unsafe extern "C" fn(c_int, *const c_char, c_int, mode_t) -> c_int;

/// A function of the C library with the same arguments, whose read is noted.
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
            // SAFETY: passed on as it came.
            let got = unsafe { real!($text as Pread)(fd, buffer, count, at) };
            note(fd, at, got);
            got
        }
    };
}
pread_like!(pread, c"pread");
pread_like!(pread64, c"pread64");

/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C" fn __pread64_chk(
    fd: c_int,
    buffer: *mut c_void,
    count: size_t,
    at: off64_t,
    _: size_t,
) -> ssize_t {
    // SAFETY: passed on; the buffer's length was checked by the compiler where it is known.
    unsafe { pread64(fd, buffer, count, at) }
}

/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t {
    // SAFETY: lseek changes nothing here; the read is passed on as it came.
    unsafe {
        let at = libc::lseek64(fd, 0, libc::SEEK_CUR);
        let got = real!(c"read" as Read)(fd, buffer, count);
        note(fd, at, got);
        got
    }
}

/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C" fn __read_chk(
    fd: c_int,
    buffer: *mut c_void,
    count: size_t,
    _: size_t,
) -> ssize_t {
    // SAFETY: as `read`.
    unsafe { read(fd, buffer, count) }
}

/// A function whose use on the traced file means that the trace cannot be complete.
macro_rules! loses {
    ($name:ident($($arg:ident: $type:ty),*) -> $result:ty, $text:literal as $real:ty) => {
        /// # Safety
        /// As the C library's.
        #[no_mangle]
        pub unsafe extern "C" fn $name(fd: c_int $(, $arg: $type)*) -> $result {
            lose(fd);
            // SAFETY: passed on as it came.
            unsafe { real!($text as $real)(fd $(, $arg)*) }
        }
    };
}
loses!(fdopen(mode: *const c_char) -> *mut FILE, c"fdopen" as Fdopen);
loses!(dup() -> c_int, c"dup" as Dup);
loses!(readv(parts: *const libc::iovec, count: c_int) -> ssize_t, c"readv" as Readv);
loses!(preadv(parts: *const libc::iovec, count: c_int, at: off64_t) -> ssize_t, c"preadv" as Preadv);
loses!(preadv64(parts: *const libc::iovec, count: c_int, at: off64_t) -> ssize_t, c"preadv64" as Preadv);

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
            // SAFETY: passed on as it came.
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
            // SAFETY: `path` is a C string, as fopen(3) requires; passed on as it came.
            unsafe {
                lose_path(path);
                real!($text as Fopen)(path, mode)
            }
        }
    };
}
fopen_like!(fopen, c"fopen");
fopen_like!(fopen64, c"fopen64");

/// # Safety
/// `path` is a C string.
unsafe fn lose_path(path: *const c_char) {
    // SAFETY: see above.
    let path = OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes());
    if let Some(file) = identify(path) {
        with_trace(|t| t.lost |= t.base(file).is_some());
    }
}

/// A function that opens a file. Nothing is noted; it makes sure that the trace has begun, so that a
/// program which opens the image and reads nothing of it has a trace too.
macro_rules! open_like {
    ($name:ident, $text:literal) => {
        /// # Safety
        /// As the C library's.
        #[no_mangle]
        pub unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            with_trace(|_| ());
            // SAFETY: passed on as it came; a mode that was not given is not looked at.
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
    // SAFETY: passed on as it came.
    unsafe { real!(c"openat" as Openat)(directory, path, flags, mode) }
}

/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C" fn dup3(fd: c_int, other: c_int, flags: c_uint) -> c_int {
    lose(fd);
    // SAFETY: passed on as it came.
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
