//! Programs, run with a deadline.

use std::{
    os::{fd::OwnedFd, unix::process::CommandExt},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    event::{poll, PollFd, PollFlags, Timespec},
    fs::{fcntl_setfl, OFlags},
    io::Errno,
    pipe::{pipe_with, PipeFlags},
    process::{kill_process_group, Pid, Signal},
};

use crate::{
    failure::errno_of,
    mounts::MOUNT_POINT,
    processes::{reap, DEATH},
};

/// Output kept of a program; the rest is read and dropped.
const OUTPUT_BYTES: usize = 64 << 10;
/// The same for a tool: a trace is long. Well below a frame (`powercut_protocol::limits::FRAME_BYTES`).
const TOOL_OUTPUT_BYTES: usize = 32 << 20;
/// How often to check on a program that holds its output open without writing.
const POLL: Duration = Duration::from_millis(10);

/// How a program ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended {
    /// Exit code, or 128 + signal; none if it was stopped at its deadline.
    pub exit_code: Option<i32>,
    /// Standard output and error as they came, the first `output_bytes`.
    pub output: Vec<u8>,
}

/// Run a program in the mount point until it ends or the deadline passes; then kill its process group.
/// Its standard input is empty; its environment holds only PATH and HOME.
pub fn run(argv: &[String], deadline: Instant) -> Result<Ended, Errno> {
    run_in(MOUNT_POINT, argv, deadline, OUTPUT_BYTES)
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
    let child = {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(directory)
            .env_clear()
            .env(
                "PATH",
                "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
            )
            .env("HOME", "/tmp")
            .stdin(Stdio::null())
            .stdout(writer.try_clone().map_err(|e| errno_of(&e))?)
            .stderr(writer)
            .process_group(0);
        // The command holds the pipe's write end: drop it, or the end of output is never seen.
        command.spawn().map_err(|e| errno_of(&e))?
    };
    let pid = Pid::from_child(&child);
    let mut output = Output::new(reader, output_bytes);
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
    kept: Vec<u8>,
    room: usize,
    open: bool,
}

impl Output {
    fn new(pipe: OwnedFd, room: usize) -> Self {
        Self {
            pipe,
            kept: Vec::new(),
            room,
            open: true,
        }
    }

    /// Wait a moment for output, and take it.
    fn wait(&mut self) {
        if !self.open {
            // Only the program's exit is left, which usually follows at once.
            std::thread::sleep(Duration::from_millis(1));
            return;
        }
        let timeout = Timespec::try_from(POLL).expect("a few milliseconds");
        let mut polled = [PollFd::new(&self.pipe, PollFlags::IN)];
        if poll(&mut polled, Some(&timeout)).is_ok_and(|n| n > 0) {
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
