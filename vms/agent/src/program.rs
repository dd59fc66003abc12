//! Programs, run with a deadline.

use std::{
    ffi::CString,
    fs::File,
    io,
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use libc::{c_char, c_int, c_void};
use rustix::{
    event::{poll, PollFd, PollFlags, Timespec},
    fs::{fcntl_setfl, OFlags},
    io::Errno,
    pipe::{pipe_with, PipeFlags},
    process::{kill_process_group, pidfd_open, waitpid, Pid, PidfdFlags, Signal, WaitOptions},
};

use crate::{
    failure::errno_of,
    image,
    mounts::MOUNT_POINT,
    processes::{reap, DEATH},
};

/// Output kept of a program; the rest is read and dropped.
const OUTPUT_BYTES: usize = 64 << 10;
/// The same for a tool: a trace is long. Well below a frame (`powercut_protocol::limits::FRAME_BYTES`).
const TOOL_OUTPUT_BYTES: usize = 32 << 20;
/// What a child ends with that could not become the program.
const NOT_STARTED: c_int = 127;
/// How often to check on a program that holds its output open without writing.
const POLL: Duration = Duration::from_millis(10);

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Exit code, or 128 + signal; none if it was stopped at its deadline.
    pub exit_code: Option<i32>,
    /// Standard output and error as they came, the first `output_bytes`.
    pub output: Vec<u8>,
}

/// Run a program in the mount point until it ends or the deadline passes; then kill its process group.
/// Its standard input is empty; its environment holds only PATH and HOME.
pub fn run(argv: &[String], deadline: Instant) -> Result<Ended, Errno> {
    let ended = run_in(MOUNT_POINT, argv, deadline, OUTPUT_BYTES);
    image::leave(argv);
    ended
}

/// The same in the root, with more output kept.
pub fn run_tool(argv: &[String], deadline: Instant) -> Result<Ended, Errno> {
    run_in("/", argv, deadline, TOOL_OUTPUT_BYTES)
}

fn run_in(
    directory: &str,
    argv: &[String],
    deadline: Instant,
    output_bytes: usize,
) -> Result<Ended, Errno> {
    let (program, arguments) = argv.split_first().ok_or(Errno::INVAL)?;
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    // Only this end: the flag belongs to the open file description, and the program's end must block.
    fcntl_setfl(&reader, OFlags::NONBLOCK)?;
    let pid = spawn(program, arguments, directory, &writer)?;
    // The end of output is seen once nobody has the pipe's write end.
    drop(writer);
    let mut output = Output::new(reader, pid, output_bytes);
    let exit_code = await_exit(pid, deadline, &mut output)?;
    if exit_code.is_none() {
        // The group may be gone already; then so is the program.
        let _ = kill_process_group(pid, Signal::KILL);
        await_exit(pid, Instant::now() + DEATH, &mut output)?;
    }
    output.read_available();
    Ok(Ended {
        exit_code,
        output: output.kept,
    })
}

/// The environment of every program.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
/// Stack of a child until it is the program.
const STACK_BYTES: usize = 64 << 10;

/// What a child needs to become the program. All is made before, since it shares this process's memory.
struct Child {
    /// Where the program may be, in the order in which it is looked for.
    files: Vec<CString>,
    arguments: Vec<*const c_char>,
    environment: [*const c_char; 3],
    directory: CString,
    nothing: c_int,
    output: c_int,
    errno: c_int,
}

/// Start a program in a process group of its own.
///
/// posix_spawn(3) of glibc asks for the handler of each signal: some 60 calls, of the hundred that a short program takes
/// in all, and each costs a User Mode Linux two switches between processes of the host.
fn spawn(
    program: &str,
    arguments: &[String],
    directory: &str,
    output: &OwnedFd,
) -> Result<Pid, Errno> {
    let text = |text: &str| CString::new(text).map_err(|_| Errno::INVAL);
    let nothing = File::open("/dev/null").map_err(|e| errno_of(&e))?;
    let files = match program.contains('/') {
        true => vec![text(program)?],
        false => PATH
            .split(':')
            .map(|folder| text(&format!("{folder}/{program}")))
            .collect::<Result<_, _>>()?,
    };
    let words = std::iter::once(program)
        .chain(arguments.iter().map(String::as_str))
        .map(text)
        .collect::<Result<Vec<_>, _>>()?;
    let (path, home) = (text(&format!("PATH={PATH}"))?, c"HOME=/tmp");
    let end = std::iter::once(std::ptr::null());
    let mut child = Child {
        files,
        arguments: words.iter().map(|word| word.as_ptr()).chain(end).collect(),
        environment: [path.as_ptr(), home.as_ptr(), std::ptr::null()],
        directory: text(directory)?,
        nothing: nothing.as_raw_fd(),
        output: output.as_raw_fd(),
        errno: 0,
    };
    let mut stack = vec![0_u128; STACK_BYTES / size_of::<u128>()];
    // SAFETY: this process waits until the child has become the program or has ended (CLONE_VFORK), so that the
    // child alone uses what both have; it runs on a stack of its own, whose end is aligned.
    let number = unsafe {
        libc::clone(
            become_program,
            stack.as_mut_ptr_range().end.cast(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            (&raw mut child).cast(),
        )
    };
    if number < 0 {
        return Err(errno_of(&io::Error::last_os_error()));
    }
    let pid = Pid::from_raw(number).ok_or(Errno::INVAL)?;
    if child.errno != 0 {
        let _ = waitpid(Some(pid), WaitOptions::empty());
        return Err(Errno::from_raw_os_error(child.errno));
    }
    Ok(pid)
}

/// The child. It makes system calls alone, and returns only if one fails.
extern "C" fn become_program(of: *mut c_void) -> c_int {
    // SAFETY: see `spawn`. Strings end in NUL, lists in a null pointer; descriptors are open.
    unsafe {
        let child = &mut *of.cast::<Child>();
        libc::signal(libc::SIGPIPE, libc::SIG_DFL); // the Rust runtime ignores it
        let ready = libc::setpgid(0, 0) == 0
            && libc::chdir(child.directory.as_ptr()) == 0
            && libc::dup2(child.nothing, 0) == 0
            && libc::dup2(child.output, 1) == 1
            && libc::dup2(child.output, 2) == 2;
        if ready {
            for file in &child.files {
                libc::execve(
                    file.as_ptr(),
                    child.arguments.as_ptr(),
                    child.environment.as_ptr(),
                );
                if *libc::__errno_location() != libc::ENOENT {
                    break;
                }
            }
        }
        child.errno = *libc::__errno_location();
    }
    NOT_STARTED
}

/// The program's exit code; None if the deadline came first.
fn await_exit(pid: Pid, deadline: Instant, output: &mut Output) -> Result<Option<i32>, Errno> {
    loop {
        if let Some(exit_code) = reap(pid)? {
            return Ok(Some(exit_code));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        output.wait();
    }
}

/// A program's output.
struct Output {
    pipe: OwnedFd,
    /// Readable once the program has ended (pidfd_open(2)); none where the kernel lacks it.
    end: Option<OwnedFd>,
    kept: Vec<u8>,
    room: usize,
    open: bool,
}

impl Output {
    fn new(pipe: OwnedFd, of: Pid, room: usize) -> Self {
        Self {
            pipe,
            end: pidfd_open(of, PidfdFlags::empty()).ok(),
            kept: Vec::new(),
            room,
            open: true,
        }
    }

    /// Wait a moment for output or the program's end, and take the output.
    fn wait(&mut self) {
        if !self.open && self.end.is_none() {
            // Only the program's exit is left, which usually follows at once.
            std::thread::sleep(Duration::from_millis(1));
            return;
        }
        let timeout = Timespec::try_from(POLL).expect("a few milliseconds");
        let pipe = self.open.then_some(&self.pipe);
        let mut polled: Vec<_> = [pipe, self.end.as_ref()]
            .into_iter()
            .flatten()
            .map(|of| PollFd::new(of, PollFlags::IN))
            .collect();
        if poll(&mut polled, Some(&timeout)).is_ok_and(|n| n > 0) && self.open {
            self.read_available();
        }
    }

    fn read_available(&mut self) {
        let mut buffer = [0u8; 4096];
        loop {
            match rustix::io::read(&self.pipe, &mut buffer) {
                Ok(0) => {
                    self.open = false;
                    return;
                }
                Ok(n) => {
                    let kept = n.min(self.room);
                    self.kept.extend_from_slice(&buffer[..kept]);
                    self.room -= kept;
                }
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, seconds: u64) -> Ended {
        let argv = ["/bin/sh", "-c", script].map(str::to_owned);
        run_in(
            "/",
            &argv,
            Instant::now() + Duration::from_secs(seconds),
            OUTPUT_BYTES,
        )
        .unwrap()
    }

    #[test]
    fn output_and_exit_code_are_told() {
        let ended = shell("echo out; echo err >&2; exit 3", 60);
        assert_eq!(
            (ended.exit_code, ended.output.as_slice()),
            (Some(3), &b"out\nerr\n"[..])
        );
    }

    #[test]
    fn a_signal_is_told_as_shells_do() {
        assert_eq!(shell("kill -9 $$", 60).exit_code, Some(137));
    }

    #[test]
    fn a_program_over_its_deadline_is_killed_with_its_group() {
        let ended = shell("echo begun; sleep 1000 & sleep 1000", 1);
        assert_eq!(
            (ended.exit_code, ended.output.as_slice()),
            (None, &b"begun\n"[..])
        );
    }

    #[test]
    fn long_output_is_cut_and_does_not_block() {
        let ended = shell("head -c 1000000 /dev/zero", 60);
        assert_eq!(
            (ended.exit_code, ended.output.len()),
            (Some(0), OUTPUT_BYTES)
        );
    }

    #[test]
    fn what_cannot_be_started_is_an_errno() {
        let argv = ["/no/such/program".to_owned()];
        assert_eq!(
            run_in("/", &argv, Instant::now(), OUTPUT_BYTES),
            Err(Errno::NOENT)
        );
        assert_eq!(
            run_in("/", &[], Instant::now(), OUTPUT_BYTES),
            Err(Errno::INVAL)
        );
    }
}
