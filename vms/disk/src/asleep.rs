//! Whether a guest waits for its disk: all threads of its machine sleep.
//!
//! A virtual processor that has nothing to do is a thread that sleeps, under QEMU (a halted processor) as under UML
//! (`os_idle_sleep`, `arch/um/os-Linux/time.c`). One that the host does not let run is runnable all the same: a busy
//! host does not make a guest look as if it waited.

use std::fs;

/// Whether every thread of the process `pid`, and of all that it has started, sleeps. `None`: that cannot be seen,
/// since the process has ended or this host does not list the children of a process (`CONFIG_PROC_CHILDREN`).
#[must_use]
pub fn sleeps(pid: u32) -> Option<bool> {
    let mut processes = vec![pid];
    while let Some(process) = processes.pop() {
        let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
            if process == pid {
                return None;
            }
            continue; // one that has ended does not run
        };
        for thread in threads.flatten() {
            let thread = thread.path();
            let Ok(stat) = fs::read_to_string(thread.join("stat")) else {
                continue;
            };
            if !is_asleep(&stat) {
                return Some(false);
            }
            let Ok(children) = fs::read_to_string(thread.join("children")) else {
                if thread.exists() {
                    return None;
                }
                continue;
            };
            processes.extend(
                children
                    .split_whitespace()
                    .filter_map(|child| child.parse::<u32>().ok()),
            );
        }
    }
    Some(true)
}

/// From a thread's line in `/proc` (proc_pid_stat(5)): sleeping, stopped, traced or ended. Not: running, or waiting for
/// the host's own disk.
fn is_asleep(stat: &str) -> bool {
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().next());
    matches!(state, Some("S" | "T" | "t" | "Z" | "X" | "I"))
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::CommandExt,
        process::{Child, Command},
        time::{Duration, Instant},
    };

    use super::*;

    struct Ended(Child);

    /// With all that it started.
    impl Drop for Ended {
        fn drop(&mut self) {
            let group = format!("-{}", self.0.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
            let _ = self.0.wait();
        }
    }

    fn shell(script: &str) -> Ended {
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0);
        Ended(command.spawn().unwrap())
    }

    /// Waits for the answer, for at most 20 s.
    fn comes_to(child: &Ended, expected: Option<bool>) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(20) {
            if sleeps(child.0.id()) == expected {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    #[test]
    fn a_process_that_sleeps_or_waits_for_a_child_that_sleeps_does() {
        assert!(comes_to(&shell("exec sleep 60"), Some(true)));
        assert!(comes_to(&shell("sleep 60; true"), Some(true)));
    }

    #[test]
    fn one_that_works_does_not_nor_one_whose_child_works() {
        for script in ["while :; do :; done", "sh -c 'while :; do :; done'; true"] {
            let busy = shell(script);
            assert!(comes_to(&busy, Some(false)), "{script}");
            // runnable at every look, whether it runs or waits for a processor
            assert!(
                (0..50).all(|_| sleeps(busy.0.id()) == Some(false)),
                "{script}"
            );
        }
    }

    #[test]
    fn one_that_has_gone_cannot_be_seen() {
        let mut child = shell("exit 0");
        let pid = child.0.id();
        child.0.wait().unwrap();
        assert_eq!(sleeps(pid), None);
    }

    #[test]
    fn a_thread_that_waits_for_the_host_s_disk_is_not_asleep() {
        assert!(is_asleep("7 (a ) b) S 1"));
        for state in ["R", "D"] {
            assert!(!is_asleep(&format!("7 (S) {state} 1")), "{state}");
        }
        assert!(!is_asleep(""));
    }
}
