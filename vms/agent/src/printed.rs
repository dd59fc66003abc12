//! What a program prints, line by line as it comes.
//!
//! Its standard output is a file in the memory of the guest, not a pipe: a write never waits for a reader, so that
//! whoever traces the program may read between two of its calls. But as with a pipe, what was printed stays printed:
//! a program that opens its standard output anew, as `echo >/dev/stdout` does, cuts it off, and writes from the begin.

use std::{
    fs::{self, File, Metadata},
    io,
    os::{
        fd::{AsRawFd, RawFd},
        unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    },
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

use libc::pid_t;
use rustix::{
    fs::{fcntl_getfl, fcntl_setfl, OFlags},
    io::Errno,
    process::{pidfd_getfd, pidfd_open, Pid, PidfdFlags, PidfdGetfdFlags},
};

/// The file, and how far it was read.
pub struct Printed {
    file: File,
    at: u64,
    line: Vec<u8>,
    refused: bool,
}

impl Printed {
    /// An empty file without a name.
    pub fn open() -> io::Result<Self> {
        static OPENED: AtomicU32 = AtomicU32::new(0);
        let number = OPENED.fetch_add(1, Ordering::Relaxed); // two threads may open one at a time
        let name = format!("/tmp/powercut-printed-{}-{number}", std::process::id());
        let path = PathBuf::from(name);
        let file = File::options()
            .read(true)
            .append(true) // whoever opens /dev/stdout must not write from its beginning on
            .create_new(true)
            .mode(0o666)
            .open(&path)?;
        fs::remove_file(path)?;
        Ok(Self {
            file,
            at: 0,
            line: Vec::new(),
            refused: false,
        })
    }

    /// To be the program's standard output.
    pub fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Do `act` with each line that has ended since, in its order; lines for which it returns false come again.
    /// Blanks at the ends of a line do not count, nor does a line of blanks. An error is told on standard error.
    pub fn acknowledge(&mut self, mut act: impl FnMut(&[String]) -> Result<bool, String>) {
        let mut bytes = [0; 4096];
        if self.file.metadata().is_ok_and(|seen| seen.len() < self.at) {
            self.at = 0; // all that was cut off had been read before the call that did it
        }
        while let Ok(count @ 1..) = self.file.read_at(&mut bytes, self.at) {
            self.line.extend_from_slice(&bytes[..count]);
            self.at += count as u64;
        }
        while let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
            let text = String::from_utf8_lossy(&self.line[..end]).trim().to_owned();
            if !text.is_empty() {
                match act(&[text]) {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(why) => {
                        eprintln!("{}: {why}", crate::ack::LINES_NAME);
                        self.refused = true;
                    }
                }
            }
            self.line.drain(..=end);
        }
    }

    /// A thread has opened a file: if it is this one, whoever writes to it writes to its end.
    pub fn keep_whole(&mut self, task: pid_t, descriptor: i32) {
        let identity = |seen: Metadata| (seen.dev(), seen.ino());
        let own = self.file.metadata().map(identity).ok();
        let link = format!("/proc/{task}/fd/{descriptor}");
        if own.is_none() || fs::metadata(link).map(identity).ok() != own {
            return;
        }
        if let Err(why) = append_always(task, descriptor) {
            eprintln!(
                "{}: the program opened its standard output anew, and what it prints there cannot be followed: {why}",
                crate::ack::LINES_NAME
            );
            self.refused = true;
        }
    }

    /// Whether each line that has ended was acknowledged.
    pub fn is_acknowledged(&self) -> bool {
        !self.refused && !self.line.contains(&b'\n')
    }
}

/// Have a descriptor of another process write to the end of its file. Kernels before 5.6 cannot do it.
fn append_always(task: pid_t, descriptor: i32) -> io::Result<()> {
    let process = fs::read_to_string(format!("/proc/{task}/status"))?;
    let leader = process.lines().find_map(|l| l.strip_prefix("Tgid:"));
    let leader = leader.and_then(|number| Pid::from_raw(number.trim().parse().ok()?));
    let leader = leader.ok_or(Errno::SRCH)?;
    let held = pidfd_open(leader, PidfdFlags::empty())?;
    let held = pidfd_getfd(held, descriptor, PidfdGetfdFlags::empty())?;
    let flags = fcntl_getfl(&held)?;
    Ok(fcntl_setfl(&held, flags | OFlags::APPEND)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn each_line_that_has_ended_is_acknowledged_once_and_in_its_order() {
        let mut printed = Printed::open().unwrap();
        let mut output = printed.file.try_clone().unwrap();
        let mut seen = Vec::new();
        for (bytes, busy) in [
            (&b"one\ntwo  words * \\x \r\n\n cu"[..], false),
            (b"t\nlater\n", true),
            (b"\xff\n", false),
            (b"last", false),
        ] {
            output.write_all(bytes).unwrap();
            printed.acknowledge(|words| {
                if !busy {
                    seen.push(words[0].clone());
                }
                Ok(!busy)
            });
        }
        let whole = ["one", "two  words * \\x", "cut", "later", "\u{fffd}"];
        assert_eq!(seen, whole);
        assert!(printed.is_acknowledged());
    }

    /// All lines were lost that a program printed after it had opened its standard output anew: what they acknowledged
    /// was not held against it.
    #[test]
    fn what_is_printed_to_an_output_that_was_opened_anew_is_acknowledged() {
        let own = std::process::id() as pid_t;
        for cuts in [true, false] {
            let mut printed = Printed::open().unwrap();
            let mut seen = Vec::new();
            let mut acknowledge = |printed: &mut Printed| {
                printed.acknowledge(|words| {
                    seen.push(words[0].clone());
                    Ok(true)
                });
            };
            printed.file.write_all(b"first line\n").unwrap();
            acknowledge(&mut printed);
            let path = format!("/proc/self/fd/{}", printed.descriptor());
            let mut anew = File::options()
                .write(true)
                .truncate(cuts)
                .open(path)
                .unwrap();
            acknowledge(&mut printed);
            printed.keep_whole(own, anew.as_raw_fd());
            printed.file.write_all(b"2\n").unwrap();
            acknowledge(&mut printed);
            anew.write_all(b"3\n").unwrap();
            acknowledge(&mut printed);
            assert!(printed.is_acknowledged());
            assert_eq!(seen, ["first line", "2", "3"], "{cuts}");
        }
    }

    /// Two that were opened at a time took the same name, and the second was refused.
    #[test]
    fn many_are_opened_at_a_time() {
        let opened = || (0..100).all(|_| Printed::open().is_ok());
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(opened)).collect();
            assert!(threads.into_iter().all(|one| one.join().unwrap()));
        });
    }

    #[test]
    fn a_line_that_cannot_be_acknowledged_is_not_forgotten() {
        for (answer, acknowledged) in [
            (Ok(true), true),
            (Ok(false), false),
            (Err(String::new()), false),
        ] {
            let mut printed = Printed::open().unwrap();
            printed.file.write_all(b"line\n").unwrap();
            printed.acknowledge(|_| answer.clone());
            printed.acknowledge(|_| answer.clone());
            assert_eq!(printed.is_acknowledged(), acknowledged);
        }
    }
}
