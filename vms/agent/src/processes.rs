//! PID 1's duties to the guest's processes: reaping and killing them.

use std::{
    collections::HashSet,
    fs,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    process::{
        getpid, kill_process, kill_process_group, wait, waitpid, Pid, Signal, WaitOptions,
        WaitStatus,
    },
};

/// How long a killed process may take to die; one that hangs in the kernel is left behind.
pub const DEATH: Duration = Duration::from_secs(5);

/// The exit code of `awaited` if it has ended. Never blocks. PID 1 inherits every orphan of the guest;
/// they are reaped here too, and their exit codes dropped.
pub fn reap(awaited: Pid) -> Result<Option<i32>, Errno> {
    if !is_first() {
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

/// The processes there are, but this one: neither threads of the kernel nor what has ended and was not reaped, which
/// have no program. A process that just begins another program has one, and may have no command line yet.
pub fn running() -> HashSet<Pid> {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten();
    names
        .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        .filter(|pid| *pid != getpid())
        .filter(|pid| fs::read_link(format!("/proc/{pid}/exe")).is_ok())
        .collect()
}

/// Kill what is not among these processes, which `running` found earlier, and reap it. Only for PID 1.
pub fn kill_all_but(spared: &HashSet<Pid>) {
    if spared.is_empty() {
        return kill_all();
    }
    if !is_first() {
        return;
    }
    kill_until_none_is_left(spared, Instant::now() + DEATH);
    reap_orphans();
}

/// One of them may have started another since it was looked for: looks again until there is none.
fn kill_until_none_is_left(spared: &HashSet<Pid>, end: Instant) {
    while Instant::now() < end {
        let left: Vec<Pid> = running().difference(spared).copied().collect();
        if left.is_empty() {
            return;
        }
        for pid in left {
            let _ = kill_process(pid, Signal::KILL);
        }
        reap_orphans();
        std::thread::sleep(Duration::from_millis(1));
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
    fn what_runs_is_found_until_it_has_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert!(running().contains(&pid));
        assert!(!running().contains(&getpid()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!running().contains(&pid));
    }

    #[test]
    fn what_is_no_child_cannot_be_reaped() {
        assert_eq!(reap(Pid::INIT), Err(Errno::CHILD));
    }
}
