//! The kernel's log, from `/dev/kmsg` (Documentation/ABI/testing/dev-kmsg).

use std::os::fd::OwnedFd;

use powercut_protocol::limits::{LOG_BYTES, LOG_LINES};
use rustix::{
    fs::{open, seek, Mode, OFlags, SeekFrom},
    io::{self, Errno},
};

/// The kernel's longest record (PRINTK_MESSAGE_MAX).
const RECORD_BYTES: usize = 8192;

/// What the kernel has logged since the last reading.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Messages {
    /// Without time stamps, in order: at most [`LOG_LINES`] of [`LOG_BYTES`].
    pub lines: Vec<String>,
    /// Whether no message is missing. The host judges no other log.
    pub complete: bool,
}

/// Continues where the last reading ended.
pub struct KernelLog {
    device: OwnedFd,
}

impl KernelLog {
    /// Read only what is logged from now on.
    pub fn open() -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let device = open("/dev/kmsg", flags, Mode::empty())?;
        seek(&device, SeekFrom::End(0))?;
        Ok(Self { device })
    }

    /// Messages since the last call.
    pub fn drain(&self) -> Messages {
        let mut record = [0u8; RECORD_BYTES];
        collect(|| match io::read(&self.device, &mut record)? {
            0 => Err(Errno::IO), // a device has no end
            n => Ok(message(&record[..n])),
        })
    }
}

/// The lines of all records until there are no more, and whether any could not be read or kept.
fn collect(mut next: impl FnMut() -> io::Result<Option<String>>) -> Messages {
    let mut lines = Vec::new();
    let (mut bytes, mut lost) = (0, false);
    loop {
        match next() {
            Ok(Some(line)) if lines.len() < LOG_LINES && bytes + line.len() <= LOG_BYTES => {
                bytes += line.len();
                lines.push(line);
            }
            // No record begins without its prefix.
            Ok(_) => lost = true,
            // The ring buffer overran before it was read; the next read returns what is left.
            Err(Errno::PIPE) => lost = true,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(_) => {
                lost = true;
                break;
            }
        }
    }
    Messages {
        lines,
        complete: !lost,
    }
}

/// The text of `priority,sequence,time,flags;text\n KEY=value\n`.
fn message(record: &[u8]) -> Option<String> {
    let start = record.iter().position(|b| *b == b';')? + 1;
    let line = record[start..].split(|b| *b == b'\n').next()?;
    Some(String::from_utf8_lossy(line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is collected from a log of exactly these records.
    fn collected(records: Vec<io::Result<Option<String>>>) -> Messages {
        let mut records = records.into_iter();
        collect(|| records.next().unwrap_or(Err(Errno::AGAIN)))
    }

    fn line(text: &str) -> io::Result<Option<String>> {
        Ok(Some(text.to_owned()))
    }

    #[test]
    fn a_log_that_was_read_whole_is_told_as_it_is() {
        let nothing = Messages {
            lines: Vec::new(),
            complete: true,
        };
        assert_eq!(collected(Vec::new()), nothing);
        let records = vec![line("a"), Err(Errno::INTR), line("b")];
        let expected = Messages {
            lines: ["a", "b"].map(str::to_owned).into(),
            complete: true,
        };
        assert_eq!(collected(records), expected);
    }

    #[test]
    fn what_was_lost_of_the_log_is_told() {
        assert!(!collected(vec![Err(Errno::PIPE), line("b")]).complete);
        assert!(!collected(vec![line("a"), Err(Errno::INVAL)]).complete);
        assert!(!collected(vec![line("a"), Ok(None)]).complete);
        let many = collected((0..=LOG_LINES).map(|_| line("again")).collect());
        assert_eq!((many.lines.len(), many.complete), (LOG_LINES, false));
        let long = "x".repeat(RECORD_BYTES);
        let many = collected(
            (0..=LOG_BYTES / RECORD_BYTES)
                .map(|_| line(&long))
                .collect(),
        );
        assert_eq!(
            (many.lines.len(), many.complete),
            (LOG_BYTES / RECORD_BYTES, false)
        );
    }

    #[test]
    fn only_the_message_is_kept() {
        let record = b"6,1,2,-;EXT4-fs (vda): a; b\n SUBSYSTEM=block\n DEVICE=b254:0\n";
        assert_eq!(message(record).unwrap(), "EXT4-fs (vda): a; b");
        assert_eq!(message(b"no record"), None);
    }
}
