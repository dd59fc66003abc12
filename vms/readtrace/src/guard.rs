//! Finds out which pages of a wide read the program looks at.
//!
//! A program may read much more than it uses: xfs_repair reads 512 KiB for one superblock, and with it the first
//! blocks of files. So the pages that a wide read has filled are made inaccessible, and the first look at each
//! raises SIGSEGV, whose handler notes it and gives the page back. When the program frees the memory, the pages
//! that it never looked at do not count as read. Whatever else happens first, such as another read, ends the watch
//! early, and all pages count: the memory might be handed to the kernel, which would not fault but fail.
//!
//! One read at a time is watched. Nothing here allocates: `free` calls it.

use std::{
    hint::spin_loop,
    mem::{size_of, zeroed},
    ptr::null_mut,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst},
};

use libc::{c_int, c_void, sigaction, siginfo_t};

/// Shorter reads are taken for used as a whole.
const WIDE_BYTES: usize = 128 << 10;
const PAGE_BYTES: usize = 4096;
/// Of one read; a wider one is taken for used as a whole.
const PAGES: usize = 1024;
/// Pages that may be noted in all.
const NOTED: usize = 1 << 14;

/// Numbers reads and looks in the order in which they happened; from 1.
static NEXT: AtomicU32 = AtomicU32::new(1);
/// Taken to begin and end a watch, never by the handler.
static BUSY: AtomicBool = AtomicBool::new(false);
/// The watched pages, and whether they are watched still. The handler also knows pages of the last watch: another
/// thread may have faulted just before it ended.
static ACTIVE: AtomicBool = AtomicBool::new(false);
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
/// Where the first page is in the file, and the number of the read.
static OFFSET: AtomicU64 = AtomicU64::new(0);
static READ: AtomicU32 = AtomicU32::new(0);
/// The number of the first look at each page; 0: none.
static LOOKS: [AtomicU32; PAGES] = [const { AtomicU32::new(0) }; PAGES];
/// What the watches of before came to: number of the look, offset of the page.
static NOTED_LOOKS: [(AtomicU32, AtomicU64); NOTED] =
    [const { (AtomicU32::new(0), AtomicU64::new(0)) }; NOTED];
static NOTED_COUNT: AtomicUsize = AtomicUsize::new(0);

/// The number of what happens now.
pub fn next() -> u32 {
    NEXT.fetch_add(1, SeqCst)
}

/// Whether a read is being watched.
pub fn is_active() -> bool {
    ACTIVE.load(SeqCst)
}

/// Watch a read of `length` bytes at `offset` into `buffer`, which has the number `read`. Returns the part of the
/// buffer that is watched, whole pages.
pub fn watch(
    buffer: usize,
    length: usize,
    offset: u64,
    read: u32,
) -> Option<std::ops::Range<usize>> {
    let start = buffer.next_multiple_of(PAGE_BYTES);
    let end = (buffer + length) / PAGE_BYTES * PAGE_BYTES;
    let first = offset + (start - buffer) as u64;
    let fits = length >= WIDE_BYTES && (end - start) / PAGE_BYTES <= PAGES;
    if !fits || !handles_faults() {
        return None;
    }
    let _busy = Busy::begin();
    settle(false);
    for look in &LOOKS[..(end - start) / PAGE_BYTES] {
        look.store(0, SeqCst);
    }
    START.store(start, SeqCst);
    END.store(end, SeqCst);
    OFFSET.store(first, SeqCst);
    READ.store(read, SeqCst);
    ACTIVE.store(true, SeqCst);
    if !protect(start, end - start, libc::PROT_NONE) {
        ACTIVE.store(false, SeqCst);
        return None;
    }
    Some(start..end)
}

/// The program frees `size` bytes at `start`: pages among them that it has not looked at were not used.
pub fn freed(start: usize, size: usize) {
    let _busy = Busy::begin();
    let watched = START.load(SeqCst)..END.load(SeqCst);
    if is_active() && start <= watched.start && watched.end <= start.saturating_add(size) {
        settle(true);
    } else if is_active() && start < watched.end && watched.start < start.saturating_add(size) {
        settle(false);
    }
}

/// What the program has in `size` bytes at `start` goes elsewhere: where pages among them are watched, all count.
pub fn moved(start: usize, size: usize) {
    let _busy = Busy::begin();
    if start < END.load(SeqCst) && START.load(SeqCst) < start.saturating_add(size) {
        settle(false);
    }
}

/// The watch ends with the memory still in use: all its pages count as read.
pub fn give_up() {
    if is_active() {
        let _busy = Busy::begin();
        settle(false);
    }
}

/// What was looked at, as number and offset of the page; None if there was more than fits.
pub fn looks() -> Option<Vec<(u32, u64)>> {
    give_up();
    let count = NOTED_COUNT.load(SeqCst);
    let noted = NOTED_LOOKS.get(..count)?.iter();
    Some(
        noted
            .map(|(look, page)| (look.load(SeqCst), page.load(SeqCst)))
            .collect(),
    )
}

/// End a watch, with the lock held. `freed`: what was not looked at will not be.
fn settle(freed: bool) {
    if !is_active() {
        return;
    }
    let (start, end) = (START.load(SeqCst), END.load(SeqCst));
    protect(start, end - start, libc::PROT_READ | libc::PROT_WRITE);
    ACTIVE.store(false, SeqCst);
    for (page, look) in LOOKS[..(end - start) / PAGE_BYTES].iter().enumerate() {
        let number = match look.load(SeqCst) {
            0 if freed => continue,
            0 => READ.load(SeqCst),
            number => number,
        };
        let at = NOTED_COUNT.fetch_add(1, SeqCst);
        if let Some((look, offset)) = NOTED_LOOKS.get(at) {
            look.store(number, SeqCst);
            offset.store(OFFSET.load(SeqCst) + (page * PAGE_BYTES) as u64, SeqCst);
        }
    }
}

fn protect(start: usize, length: usize, access: c_int) -> bool {
    // SAFETY: whole pages of a buffer that the program read into, or of one that it had before; whoever looks at
    // a page without access gets it back from the handler.
    unsafe { libc::mprotect(start as *mut c_void, length, access) == 0 }
}

/// Whether faults come to our handler. A program that has a handler of its own is not watched.
fn handles_faults() -> bool {
    // SAFETY: valid structures of this size; the handler is a function of the kind that SA_SIGINFO asks for.
    unsafe {
        let mut before: sigaction = zeroed();
        if libc::sigaction(libc::SIGSEGV, null_mut(), &raw mut before) != 0 {
            return false;
        }
        let ours = on_fault as *const () as usize;
        if before.sa_sigaction == ours {
            return true;
        }
        let mut action: sigaction = zeroed();
        action.sa_sigaction = ours;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        before.sa_sigaction == libc::SIG_DFL
            && libc::sigaction(libc::SIGSEGV, &raw const action, null_mut()) == 0
    }
}

/// SIGSEGV: a look at a watched page, or a crash of the program.
extern "C" fn on_fault(_signal: c_int, info: *mut siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel fills the structure for SA_SIGINFO.
    let address = unsafe { (*info).si_addr() } as usize;
    let (start, end) = (START.load(SeqCst), END.load(SeqCst));
    if (start..end).contains(&address) {
        let page = (address - start) / PAGE_BYTES;
        if is_active() {
            let _ = LOOKS[page].compare_exchange(0, next(), SeqCst, SeqCst);
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        if protect(start + page * PAGE_BYTES, PAGE_BYTES, access) {
            return;
        }
    }
    // A crash: with the default action the instruction faults again, and ends the program.
    // SAFETY: a signal's number and the default action.
    unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
}

/// The lock on beginning and ending a watch. Held for a few instructions.
struct Busy;

impl Busy {
    fn begin() -> Self {
        while BUSY.swap(true, SeqCst) {
            spin_loop();
        }
        Busy
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.store(false, SeqCst);
    }
}

const _: () = assert!(size_of::<usize>() == size_of::<u64>());
