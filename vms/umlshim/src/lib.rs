//! Lets older User Mode Linux run on today's hosts. Loaded by LD_PRELOAD, but not into 7.2 and later: those
//! ask the host for the size of its registers (`arch_init_registers`), and their processes die with them.
//!
//! UML up to 6.12 keeps its processes' floating point registers in buffers of 2,696 bytes
//! (HOST_FP_SIZE, `arch/x86/um/user-offsets.c`) and sets them by PTRACE_SETREGSET with that length. A host
//! with AMX has some 11,000 bytes, and its kernel refuses to set a part of them (`xstateregs_set`,
//! `arch/x86/kernel/fpu/regset.c`: EFAULT), so that UML panics before its first process runs. A set that is
//! shorter than the host's state is completed with the process's current state. What UML does not know (AMX
//! tiles, protection keys) therefore stays as it is, even across switches between its processes: nothing in
//! the guest uses it. At each system call of a process, UML gets these registers and sets them again before the
//! process goes on (`userspace`, `arch/um/os-Linux/skas/process.c`); the host allocates memory for each set
//! (`xstateregs_set`). What a stopped process is known to have is not set again. The library also makes UML's processes die with UML (PTRACE_O_EXITKILL), and so do the
//! helpers that it clones for its devices and the children that it forks while it starts (PR_SET_PDEATHSIG).
//!
//! Where POWERCUT_RANDOM_SEED is set, the host's random numbers follow from it: UML's kernel seeds its generator with
//! them (`arch/um/include/asm/archrandom.h`), and a recording in virtual time has to be the same each time.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_long, c_uint, c_void};
use std::mem::transmute;
use std::sync::{Mutex, OnceLock, PoisonError};

use libc::{
    dlsym, iovec, pid_t, PR_SET_PDEATHSIG, PTRACE_GETREGS, PTRACE_GETREGSET, PTRACE_O_EXITKILL,
    PTRACE_SETOPTIONS, PTRACE_SETREGS, PTRACE_SETREGSET, RTLD_NEXT, SIGKILL,
};

/// NT_X86_XSTATE of elf.h.
const XSTATE: usize = 0x202;
/// More than any x86-64 processor's extended state (CPUID leaf 0xd; 11,008 bytes with AMX).
const STATE_BYTES: usize = 32 << 10;

type Ptrace = unsafe extern "C" fn(c_uint, pid_t, *mut c_void, *mut c_void) -> c_long;

/// What only the tracing thread uses.
struct Tracers<T>(UnsafeCell<T>);
// SAFETY: only UML's kernel traces, and it is one thread: there is no second one up to 6.12 (no SMP).
unsafe impl<T> Sync for Tracers<T> {}
static STATE: Tracers<[u8; STATE_BYTES]> = Tracers(UnsafeCell::new([0; STATE_BYTES]));
static HELD: Tracers<Held> = Tracers(UnsafeCell::new(Held {
    pid: 0,
    length: 0,
    state: [0; STATE_BYTES],
}));

/// The state that a stopped process is known to have: it was got, and the process has not run since.
struct Held {
    /// 0: of none.
    pid: pid_t,
    length: usize,
    state: [u8; STATE_BYTES],
}

impl Held {
    fn keep(&mut self, pid: pid_t, state: &[u8]) {
        self.pid = 0;
        if let Some(kept) = self.state.get_mut(..state.len()) {
            kept.copy_from_slice(state);
            (self.pid, self.length) = (pid, state.len());
        }
    }

    fn is(&self, pid: pid_t, state: &[u8]) -> bool {
        self.pid == pid && &self.state[..self.length] == state
    }
}

fn real_ptrace() -> Ptrace {
    static REAL: OnceLock<Ptrace> = OnceLock::new();
    *REAL.get_or_init(|| {
        // SAFETY: the name is a C string; the C library's ptrace takes its variable arguments where four
        // plain ones are passed.
        unsafe {
            let next = dlsym(RTLD_NEXT, c"ptrace".as_ptr());
            assert!(!next.is_null(), "the C library has no ptrace");
            transmute::<*mut c_void, Ptrace>(next)
        }
    })
}

/// ptrace(2).
///
/// # Safety
/// As the C library's: `address` and `data` must be what `request` takes.
#[no_mangle]
pub unsafe extern "C" fn ptrace(
    request: c_uint,
    pid: pid_t,
    address: *mut c_void,
    data: *mut c_void,
) -> c_long {
    if request == PTRACE_SETOPTIONS as c_uint {
        // A killed UML must not leave its processes behind: they hold its disk and its memory.
        let options = (data as usize | PTRACE_O_EXITKILL as usize) as *mut c_void;
        // SAFETY: the options are a number passed in place of a pointer.
        return unsafe { real_ptrace()(request, pid, address, options) };
    }
    // SAFETY: as `ptrace`; both take an iovec where they are for the extended state.
    unsafe {
        match request {
            GET if address as usize == XSTATE => get_state(pid, address, data),
            SET if address as usize == XSTATE => set_state(pid, address, data),
            _ => {
                if !LOOKS.contains(&request) {
                    (*HELD.0.get()).pid = 0; // it may run
                }
                real_ptrace()(request, pid, address, data)
            }
        }
    }
}

const GET: c_uint = PTRACE_GETREGSET as c_uint;
const SET: c_uint = PTRACE_SETREGSET as c_uint;
/// Requests after which a stopped process has the extended state that it had.
const LOOKS: [c_uint; 2] = [PTRACE_GETREGS as c_uint, PTRACE_SETREGS as c_uint];

unsafe fn get_state(pid: pid_t, address: *mut c_void, data: *mut c_void) -> c_long {
    // SAFETY: the host sets the iovec's length to what it has filled.
    unsafe {
        let got = real_ptrace()(GET, pid, address, data);
        if got == 0 {
            (*HELD.0.get()).keep(pid, slice_of(&*data.cast::<iovec>()));
        }
        got
    }
}

/// Completes a set that is shorter than the host's state. UML sets what it has just got at each system call of its
/// processes: that is left out.
unsafe fn set_state(pid: pid_t, address: *mut c_void, data: *mut c_void) -> c_long {
    // SAFETY: the buffer is ours alone (see `Tracers`), and no more than its length is copied into it.
    unsafe {
        let given = &*data.cast::<iovec>();
        let held = &mut *HELD.0.get();
        if held.is(pid, slice_of(given)) {
            return 0;
        }
        held.pid = 0;
        let state = STATE.0.get().cast::<u8>();
        let mut whole = iovec {
            iov_base: state.cast(),
            iov_len: STATE_BYTES,
        };
        let got = real_ptrace()(GET, pid, address, (&raw mut whole).cast());
        if got != 0 || given.iov_len >= whole.iov_len {
            return real_ptrace()(SET, pid, address, data);
        }
        std::ptr::copy_nonoverlapping(given.iov_base.cast::<u8>(), state, given.iov_len);
        real_ptrace()(SET, pid, address, (&raw mut whole).cast())
    }
}

unsafe fn slice_of(given: &iovec) -> &[u8] {
    // SAFETY: an iovec that ptrace takes.
    unsafe { std::slice::from_raw_parts(given.iov_base.cast(), given.iov_len) }
}

/// fork(2). UML forks while it starts, to learn what the host's ptrace can do (`check_ptrace`,
/// `arch/um/os-Linux/start_up.c`). That child stops itself and waits to be traced: it would wait for ever if UML
/// were killed at that time.
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C" fn fork() -> pid_t {
    type Fork = unsafe extern "C" fn() -> pid_t;
    let parent = std::process::id().cast_signed();
    // SAFETY: the name is a C string, and the C library's fork takes no arguments; what the child calls is
    // safe to call after a fork (signal-safety(7)).
    unsafe {
        let next = dlsym(RTLD_NEXT, c"fork".as_ptr());
        assert!(!next.is_null(), "the C library has no fork");
        let child = transmute::<*mut c_void, Fork>(next)();
        if child == 0 {
            die_with(parent);
        }
        child
    }
}

/// In a child: be killed when the parent ends, or end now if it has.
fn die_with(parent: pid_t) {
    // SAFETY: plain system calls.
    unsafe {
        libc::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if libc::getppid() != parent {
            libc::_exit(1); // UML died before the signal was asked for
        }
    }
}

/// The state from which the next random numbers follow; None: the host's own are wanted.
static CHANCE: OnceLock<Option<Mutex<u64>>> = OnceLock::new();

/// Numbers that follow from a seed: SplitMix64 (Steele, Lea and Flood, 2014).
fn next_chance(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn chance() -> Option<&'static Mutex<u64>> {
    let seed = || std::env::var("POWERCUT_RANDOM_SEED").ok()?.parse().ok();
    CHANCE.get_or_init(|| seed().map(Mutex::new)).as_ref()
}

/// getrandom(2).
///
/// # Safety
/// As the C library's: `buffer` must have room for `length` bytes.
#[no_mangle]
pub unsafe extern "C" fn getrandom(buffer: *mut c_void, length: usize, flags: c_uint) -> isize {
    let Some(chance) = chance() else {
        // SAFETY: passed on as given.
        return unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) } as isize;
    };
    let mut state = chance.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the caller says so.
    let buffer = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
    for part in buffer.chunks_mut(8) {
        part.copy_from_slice(&next_chance(&mut state).to_le_bytes()[..part.len()]);
    }
    length.cast_signed()
}

type Child = extern "C" fn(*mut c_void) -> c_int;
type Clone = unsafe extern "C" fn(
    Child,
    *mut c_void,
    c_int,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_void,
) -> c_int;

/// What a helper is to do.
struct Helper {
    child: Child,
    argument: *mut c_void,
    parent: pid_t,
}

fn real_clone() -> Clone {
    static REAL: OnceLock<Clone> = OnceLock::new();
    *REAL.get_or_init(|| {
        // SAFETY: the name is a C string; the C library's clone takes its variable arguments where plain
        // ones are passed.
        unsafe {
            let next = dlsym(RTLD_NEXT, c"clone".as_ptr());
            assert!(!next.is_null(), "the C library has no clone");
            transmute::<*mut c_void, Clone>(next)
        }
    })
}

extern "C" fn begin(helper: *mut c_void) -> c_int {
    // SAFETY: `clone` below passes a Helper that nobody else uses. It is not freed: the helper may share
    // UML's memory, and with it an allocator that UML is just using.
    unsafe {
        let helper = &*helper.cast::<Helper>();
        die_with(helper.parent);
        (helper.child)(helper.argument)
    }
}

/// clone(2).
///
/// # Safety
/// As the C library's. The last three arguments matter only with the flags that use them.
#[no_mangle]
pub unsafe extern "C" fn clone(
    child: Child,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_tid: *mut c_void,
    tls: *mut c_void,
    child_tid: *mut c_void,
) -> c_int {
    let helper = Box::new(Helper {
        child,
        argument,
        parent: std::process::id().cast_signed(),
    });
    // SAFETY: passed on as given, but for what the child calls first.
    unsafe {
        let helper = Box::into_raw(helper).cast();
        real_clone()(begin, stack, flags, helper, parent_tid, tls, child_tid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_follow_from_the_seed_alone() {
        let drawn = |mut seed| [next_chance(&mut seed), next_chance(&mut seed)];
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
        assert_ne!(drawn(7)[0], drawn(7)[1]);
    }

    #[test]
    fn without_a_seed_the_host_is_asked() {
        let mut bytes = [0u8; 32];
        // SAFETY: there is room.
        let got = unsafe { getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        assert_eq!(got, 32);
        assert_ne!(bytes, [0; 32]);
    }

    fn held() -> Box<Held> {
        Box::new(Held {
            pid: 0,
            length: 0,
            state: [0; STATE_BYTES],
        })
    }

    #[test]
    fn only_the_same_state_of_the_same_process_is_left_out() {
        let mut held = held();
        held.keep(7, b"state");
        assert!(held.is(7, b"state"));
        assert!(!held.is(8, b"state"), "another process");
        assert!(!held.is(7, b"stat"), "a part");
        assert!(!held.is(7, b"states"), "more");
        assert!(!held.is(7, b"State"));
    }

    #[test]
    fn a_state_that_is_too_long_is_not_kept() {
        let mut held = held();
        held.keep(7, b"state");
        let long = vec![0; STATE_BYTES + 1];
        held.keep(7, &long);
        assert!(!held.is(7, &long) && !held.is(7, b"state"));
    }

    /// A process that runs may change its registers: a set of the old ones would have been left out.
    #[test]
    fn a_process_that_was_let_run_is_set_anew() {
        // SAFETY: the child only stops itself and exits; all pointers are to what ptrace(2) takes.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                libc::raise(libc::SIGSTOP);
                libc::raise(libc::SIGSTOP);
                libc::_exit(0);
            }
            let mut status = 0;
            let none = std::ptr::null_mut::<c_void>();
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            let mut bytes = vec![0u8; STATE_BYTES];
            let mut state = iovec {
                iov_base: bytes.as_mut_ptr().cast(),
                iov_len: STATE_BYTES,
            };
            let at = XSTATE as *mut c_void;
            assert_eq!(ptrace(GET, child, at, (&raw mut state).cast()), 0);
            let length = state.iov_len;
            let known = || (*HELD.0.get()).is(child, &bytes[..length]);
            assert!(known());
            assert_eq!(ptrace(SET, child, at, (&raw mut state).cast()), 0);
            assert!(known(), "what was left out changes nothing");
            assert_eq!(ptrace(libc::PTRACE_CONT, child, none, none), 0);
            assert!(!known());
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            ptrace(libc::PTRACE_CONT, child, none, none);
            libc::waitpid(child, &raw mut status, 0);
        }
    }
}
