//! A program that is loaded and linked once, and forked for each time that it is to run: the way AFL starts its targets.
//!
//! `POWERCUT_SERVE` names a socket (SOCK_SEQPACKET) by its descriptor. The program's `main` is not called; one byte says
//! that it could be. Each message is two paths, each ended by a NUL: where output and errors go, and
//! `POWERCUT_TRACE_OUT`. A fork then runs `main` as if it had just been started, and the answer is its wait status, four
//! bytes in the host's order. The end of the connection ends the program.

use std::ffi::{c_char, c_int, c_long, c_void, CStr, CString};
use std::ptr::null_mut;
use std::sync::{
    atomic::{AtomicI32, AtomicPtr, Ordering},
    OnceLock,
};

use libc::{dlsym, RTLD_NEXT};

use crate::{real, TRACE};

/// Bytes of a message: two paths.
const MESSAGE_BYTES: usize = 2 * libc::PATH_MAX as usize;

type Main = unsafe extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;
type Start = unsafe extern "C" fn(
    Main,
    c_int,
    *mut *mut c_char,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_void,
) -> c_int;

extern "C" {
    /// environ(7).
    static mut environ: *mut *mut c_char;
}

static PROGRAM: OnceLock<Main> = OnceLock::new();
static SOCKET: AtomicI32 = AtomicI32::new(-1);

/// The C library's start of a program.
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C" fn __libc_start_main(
    main: Main,
    argc: c_int,
    argv: *mut *mut c_char,
    init: *mut c_void,
    fini: *mut c_void,
    linker_fini: *mut c_void,
    stack_end: *mut c_void,
) -> c_int {
    // SAFETY: passed on, with another `main` of the same type if the program is to serve. No thread exists yet that
    // could look at the environment.
    unsafe {
        let start = real!(c"__libc_start_main" as Start);
        let asked = libc::getenv(c"POWERCUT_SERVE".as_ptr());
        let number = (!asked.is_null())
            .then(|| CStr::from_ptr(asked).to_str().ok()?.parse().ok())
            .flatten();
        let Some(number) = number else {
            return start(main, argc, argv, init, fini, linker_fini, stack_end);
        };
        libc::unsetenv(c"POWERCUT_SERVE".as_ptr());
        SOCKET.store(number, Ordering::Relaxed);
        let _ = PROGRAM.set(main);
        start(serve, argc, argv, init, fini, linker_fini, stack_end)
    }
}

/// In place of `main`: returns only in a fork, what the program's own returns.
unsafe extern "C" fn serve(argc: c_int, argv: *mut *mut c_char, _: *mut *mut c_char) -> c_int {
    let socket = SOCKET.load(Ordering::Relaxed);
    // SAFETY: buffers of the lengths given; bare system calls, since this library follows the C library's functions. The
    // process has one thread, so a fork is as good as a new process.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
        libc::send(socket, c"r".as_ptr().cast(), 1, libc::MSG_NOSIGNAL);
        loop {
            let mut message = [0u8; MESSAGE_BYTES];
            let got = libc::recv(socket, message.as_mut_ptr().cast(), message.len(), 0);
            let Some((output, trace)) = usize::try_from(got)
                .ok()
                .and_then(|got| paths(&message[..got]))
            else {
                libc::_exit(0)
            };
            let child = libc::fork();
            if child == 0 {
                begin_again(socket, &output, &trace);
                let program = PROGRAM.get().expect("set before this is called");
                return program(argc, argv, environ);
            }
            let mut status: c_int = -1;
            while child > 0 && libc::waitpid(child, &raw mut status, 0) != child {}
            let answer = status.to_ne_bytes();
            libc::send(
                socket,
                answer.as_ptr().cast(),
                answer.len(),
                libc::MSG_NOSIGNAL,
            );
        }
    }
}

fn paths(message: &[u8]) -> Option<(CString, CString)> {
    let mut parts = message.split(|byte| *byte == 0);
    let mut next = || {
        CString::new(parts.next()?)
            .ok()
            .filter(|path| !path.is_empty())
    };
    Some((next()?, next()?))
}

/// Make a fork look as a program that has just been started.
unsafe fn begin_again(socket: c_int, output: &CStr, trace: &CStr) {
    // SAFETY: as in `serve`.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
        let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CLOEXEC;
        let to = libc::syscall(
            libc::SYS_openat,
            libc::AT_FDCWD as c_long,
            output.as_ptr(),
            flags as c_long,
        );
        for standard in [libc::STDOUT_FILENO, libc::STDERR_FILENO] {
            if libc::syscall(libc::SYS_dup2, to, standard as c_long) < 0 {
                libc::_exit(127);
            }
        }
        libc::syscall(libc::SYS_close, to);
        libc::syscall(libc::SYS_close, socket as c_long);
        if libc::setenv(c"POWERCUT_TRACE_OUT".as_ptr(), trace.as_ptr(), 1) != 0 {
            libc::_exit(127);
        }
    }
    // what this process did before it was this run's
    if let Ok(mut begun) = TRACE.lock() {
        *begun = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Trace;

    /// It noted its reads in the trace of the run before it, and no test of the library in the tree saw it.
    #[test]
    fn a_fork_begins_with_no_trace() {
        *TRACE.lock().unwrap() = Some(Trace::default());
        // SAFETY: takes no pointer.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the fork waits for no lock but that of TRACE, which is free here, and ends by `_exit`.
            unsafe {
                begin_again(-1, c"/dev/null", c"/dev/null");
                let kept = TRACE.lock().map_or(true, |trace| trace.is_some());
                libc::_exit(kept.into());
            }
        }
        let mut status: c_int = -1;
        // SAFETY: waits for a child of this process.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        *TRACE.lock().unwrap() = None;
        assert_eq!((ended, status), (child, 0));
    }
}
