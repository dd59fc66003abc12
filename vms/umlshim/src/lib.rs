//! Lets User Mode Linux run on today's hosts, with today's vhost-user back ends. Loaded by LD_PRELOAD.
//!
//! **ptrace(2).** UML up to 6.12 keeps its processes' floating point registers in buffers of 2,696 bytes
//! (HOST_FP_SIZE, `arch/x86/um/user-offsets.c`) and sets them by PTRACE_SETREGSET with that length. A host
//! with AMX has some 11,000 bytes, and its kernel refuses to set a part of them (`xstateregs_set`,
//! `arch/x86/kernel/fpu/regset.c`: EFAULT), so that UML panics before its first process runs. A set that is
//! shorter than the host's state is made whole with what the process has now. What UML does not know (AMX
//! tiles, protection keys) therefore stays as it is, over switches between its processes too: nothing in
//! the guest uses it. UML's processes are also told to end with it (PTRACE_O_EXITKILL).
//!
//! **sendmsg(2).** `drivers/virtio_uml.c` sends VHOST_USER_SET_MEM_TABLE with room for two memory regions
//! even where it fills only one. QEMU's back end overlooks that; the vhost crate, which the disk is built
//! on, refuses a message longer than its count of regions says. The empty region is cut off.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_long, c_uint, c_void, CStr};
use std::mem::transmute;
use std::sync::OnceLock;

use libc::{
    dlsym, iovec, msghdr, pid_t, ssize_t, PTRACE_GETREGSET, PTRACE_O_EXITKILL, PTRACE_SETOPTIONS,
    PTRACE_SETREGSET, RTLD_NEXT,
};

/// NT_X86_XSTATE of elf.h.
const XSTATE: usize = 0x202;
/// More than any x86-64 processor's extended state (CPUID leaf 0xd; 11,008 bytes with AMX).
const STATE_BYTES: usize = 32 << 10;

/// VHOST_USER_SET_MEM_TABLE (QEMU's docs/interop/vhost-user.rst): header, count of regions, regions.
const SET_MEM_TABLE: u32 = 5;
const HEADER_BYTES: usize = 12;
const COUNT_BYTES: usize = 8;
const REGION_BYTES: usize = 32;

type Ptrace = unsafe extern "C" fn(c_uint, pid_t, *mut c_void, *mut c_void) -> c_long;
type Sendmsg = unsafe extern "C" fn(c_int, *const msghdr, c_int) -> ssize_t;

/// One buffer is enough: only UML's kernel traces, and it is one thread.
struct Buffer(UnsafeCell<[u8; STATE_BYTES]>);
// SAFETY: see above; a second tracing thread does not exist in UML up to 6.12 (no SMP).
unsafe impl Sync for Buffer {}
static STATE: Buffer = Buffer(UnsafeCell::new([0; STATE_BYTES]));

/// The next definition of `name`: the C library's.
fn next(name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string.
    let found = unsafe { dlsym(RTLD_NEXT, name.as_ptr()) };
    assert!(!found.is_null(), "the C library has no {name:?}");
    found
}

fn real_ptrace() -> Ptrace {
    static REAL: OnceLock<Ptrace> = OnceLock::new();
    // SAFETY: the C library's ptrace takes its variable arguments where four plain ones are passed.
    *REAL.get_or_init(|| unsafe { transmute::<*mut c_void, Ptrace>(next(c"ptrace")) })
}

fn real_sendmsg() -> Sendmsg {
    static REAL: OnceLock<Sendmsg> = OnceLock::new();
    // SAFETY: the type is that of sendmsg(2).
    *REAL.get_or_init(|| unsafe { transmute::<*mut c_void, Sendmsg>(next(c"sendmsg")) })
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
        // SAFETY: the options are a number in a pointer's place.
        return unsafe { real_ptrace()(request, pid, address, options) };
    }
    if request != PTRACE_SETREGSET as c_uint || address as usize != XSTATE {
        // SAFETY: passed on as it came.
        return unsafe { real_ptrace()(request, pid, address, data) };
    }
    // SAFETY: PTRACE_SETREGSET takes an iovec; the buffer is ours alone (see `Buffer`), and no more than
    // its length is copied into it.
    unsafe {
        let given = &*data.cast::<iovec>();
        let state = STATE.0.get().cast::<u8>();
        let mut whole = iovec {
            iov_base: state.cast(),
            iov_len: STATE_BYTES,
        };
        let got = real_ptrace()(
            PTRACE_GETREGSET as c_uint,
            pid,
            address,
            (&raw mut whole).cast(),
        );
        if got != 0 || given.iov_len >= whole.iov_len {
            return real_ptrace()(request, pid, address, data);
        }
        std::ptr::copy_nonoverlapping(given.iov_base.cast::<u8>(), state, given.iov_len);
        real_ptrace()(request, pid, address, (&raw mut whole).cast())
    }
}

/// sendmsg(2).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C" fn sendmsg(socket: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: a caller of sendmsg(2) passes a message with `msg_iovlen` readable parts.
    unsafe {
        let mut cut = *message;
        if cut.msg_iovlen == 1 {
            let part = *cut.msg_iov;
            let bytes = std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len);
            if let Some(mut shorter) = without_empty_regions(bytes) {
                let missing = part.iov_len - shorter.len();
                let mut one = iovec {
                    iov_base: shorter.as_mut_ptr().cast(),
                    iov_len: shorter.len(),
                };
                cut.msg_iov = &raw mut one;
                let sent = real_sendmsg()(socket, &raw const cut, flags);
                // the caller compares with what it gave
                return if sent < 0 {
                    sent
                } else {
                    sent + missing as ssize_t
                };
            }
        }
        real_sendmsg()(socket, message, flags)
    }
}

/// The message without the regions that its count does not cover; None where there is nothing to mend.
fn without_empty_regions(message: &[u8]) -> Option<Vec<u8>> {
    let word = |at: usize| {
        Some(u32::from_le_bytes(
            message.get(at..at + 4)?.try_into().ok()?,
        ))
    };
    let body = word(8)? as usize;
    if word(0)? != SET_MEM_TABLE || message.len() != HEADER_BYTES + body {
        return None;
    }
    let needed = COUNT_BYTES + word(HEADER_BYTES)? as usize * REGION_BYTES;
    if needed >= body {
        return None;
    }
    let mut shorter = message[..HEADER_BYTES + needed].to_vec();
    shorter[8..12].copy_from_slice(&(needed as u32).to_le_bytes());
    Some(shorter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(regions: u32, room: usize) -> Vec<u8> {
        let body = COUNT_BYTES + room * REGION_BYTES;
        let mut message = vec![0u8; HEADER_BYTES + body];
        message[..4].copy_from_slice(&SET_MEM_TABLE.to_le_bytes());
        message[8..12].copy_from_slice(&(body as u32).to_le_bytes());
        message[12..16].copy_from_slice(&regions.to_le_bytes());
        message
    }

    #[test]
    fn an_empty_region_is_cut_off() {
        assert_eq!(without_empty_regions(&table(1, 2)), Some(table(1, 1)));
    }

    #[test]
    fn a_full_table_and_other_messages_stay() {
        assert_eq!(without_empty_regions(&table(2, 2)), None);
        assert_eq!(without_empty_regions(&[1, 2, 3]), None);
        let mut other = table(1, 2);
        other[0] = 6;
        assert_eq!(without_empty_regions(&other), None);
    }
}
