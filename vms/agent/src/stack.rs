//! A stack between the disk's parts and the file system: put together and taken apart by its own programs.
//!
//! The steps are a shell script of the stack's file (`vms/stacks`); the agent knows nothing of RAID or thin
//! volumes. What a script says when it fails is for the host to judge.

use std::time::{Duration, Instant};

use powercut_protocol::StackSpec;
use rustix::io::Errno;

use crate::{failure::Failure, program};

const SHELL: [&str; 4] = ["/bin/busybox", "sh", "-e", "-c"];
/// Under emulation on a busy host a start takes seconds. One that does not end decides nothing.
const DEADLINE: Duration = Duration::from_secs(100);

/// Start the stack on the parts of the disk. Returns the device to mount, or what the steps said if one failed.
///
/// # Errors
/// [`Failure::Steps`] for steps that do not end; errors of fork(2).
pub fn start(stack: &StackSpec) -> Result<Result<String, String>, Failure> {
    Ok(run("start", &stack.start)?.map(|()| stack.device.clone()))
}

/// Take it apart.
///
/// # Errors
/// As `start`; also if a step fails: the disk is then still in use.
pub fn stop(stack: &StackSpec) -> Result<(), Failure> {
    run("stop", &stack.stop)?.map_err(|said| Failure::Steps { what: "stop", said })
}

/// Take it apart, and start it again.
///
/// # Errors
/// As `start` and `stop`; ENXIO if a step fails.
pub fn restart(stack: &StackSpec) -> Result<(), Errno> {
    let restarted = stop(stack).and_then(|()| start(stack));
    match restarted.map_err(|failure| failure.errno())? {
        Ok(_) => Ok(()),
        Err(said) => {
            eprintln!("powercut-agent: restart the stack: {said}");
            Err(Errno::NXIO)
        }
    }
}

fn run(what: &'static str, script: &str) -> Result<Result<(), String>, Failure> {
    let argv: Vec<String> = SHELL
        .into_iter()
        .chain([script])
        .map(str::to_owned)
        .collect();
    let ended = program::run(&argv, Instant::now() + DEADLINE).map_err(|errno| Failure::Call {
        what: format!("{what} the stack"),
        errno,
    })?;
    let said = String::from_utf8_lossy(&ended.output).trim().to_owned();
    match ended.exit_code {
        Some(0) => Ok(Ok(())),
        Some(code) => Ok(Err(format!("exit code {code}: {said}"))),
        None => Err(Failure::Steps {
            what,
            said: format!("no end within {} s: {said}", DEADLINE.as_secs()),
        }),
    }
}
