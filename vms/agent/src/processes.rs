//! PID 1's duties to the guest's processes: reaping and killing them.

use std::time::{Duration, Instant};

use rustix::{
    io::Errno,
    process::{getpid, kill_process_group, wait, waitpid, Pid, Signal, WaitOptions, WaitStatus},
};

/// How long a killed process may take to die; one that hangs in the kernel is left behind.
pub const DEATH: Duration = Duration::from_secs(5);

/// The exit code of `awaited` if it has ended. Never blocks. PID 1 inherits every orphan of the guest;
/// they are reaped here too, and their exit codes dropped.
pub fn reap(awaited: Pid) -> Result<Option<i32>, Errno> {
    if !getpid().is_init() {
        return Ok(
            waitpid(Some(awaited), WaitOptions::NOHANG)?.and_then(|(_, status)| code_of(status))
        );
    }
    let mut code = None;
    while let Some((pid, status)) = wait(WaitOptions::NOHANG)? {
        if pid == awaited {
            code = code_of(status);
            // With no child left, wait(2) would fail with ECHILD.
            break;
        }
    }
    Ok(code)
}

/// Reap orphans while no program of our own runs.
pub fn reap_orphans() {
    // ECHILD: there are none.
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

/// Wait for a program to end, however long that takes, and reap orphans meanwhile.
pub fn wait_for(child: &std::process::Child) -> Result<(), Errno> {
    let awaited = Pid::from_child(child);
    while let Some((pid, _)) = wait(WaitOptions::empty())? {
        if pid == awaited {
            break;
        }
    }
    Ok(())
}

/// Whether this is PID 1: nobody else's programs are here.
pub fn is_first() -> bool {
    getpid().is_init()
}

/// Kill every process but this one, and reap them. Only for PID 1.
pub fn kill_all() {
    if !is_first() {
        return;
    }
    // The group of PID 1 stands for kill(-1): everything but the caller and the kernel.
    let _ = kill_process_group(Pid::INIT, Signal::KILL);
    let end = Instant::now() + DEATH;
    while Instant::now() < end {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            Err(_) => return,
        }
    }
}

fn code_of(status: WaitStatus) -> Option<i32> {
    status
        .exit_status()
        .or_else(|| status.terminating_signal().map(|signal| 128 + signal))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The exit code of a program, by reaping it.
    #[allow(clippy::zombie_processes)] // the function under test reaps it
    fn ended(script: &str) -> Option<i32> {
        let child = Command::new("/bin/sh")
            .args(["-c", script])
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        loop {
            let code = reap(pid).unwrap();
            if code.is_some() {
                return code;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn an_end_is_told_as_shells_do() {
        assert_eq!(ended("exit 3"), Some(3));
        assert_eq!(ended("kill -9 $$"), Some(137));
    }

    #[test]
    fn what_is_no_child_cannot_be_reaped() {
        assert_eq!(reap(Pid::INIT), Err(Errno::CHILD));
    }
}
