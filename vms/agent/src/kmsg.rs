//! The kernel's log, from `/dev/kmsg` (Documentation/ABI/testing/dev-kmsg).

use std::os::fd::OwnedFd;

use rustix::{
    fs::{open, seek, Mode, OFlags, SeekFrom},
    io::{self, Errno},
};

/// The longest record that the kernel gives (PRINTK_MESSAGE_MAX).
const RECORD_BYTES: usize = 8192;
/// Lines kept between two requests: more is a kernel that repeats itself.
const LINES_LIMIT: usize = 4096;
/// Stands for messages that could not be told. The host knows it, and judges no such log.
const LOST: &str = "(kernel messages were lost)";

/// Reads on from where the last reading ended.
pub struct KernelLog {
    device: OwnedFd,
}

impl KernelLog {
    /// Begin with what is logged from now on.
    pub fn open() -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let device = open("/dev/kmsg", flags, Mode::empty())?;
        seek(&device, SeekFrom::End(0))?;
        Ok(Self { device })
    }

    /// Messages since the last call, without time stamps, in order.
    pub fn drain(&self) -> Vec<String> {
        let mut record = [0u8; RECORD_BYTES];
        collect(|| match io::read(&self.device, &mut record)? {
            0 => Err(Errno::IO), // a device has no end
            n => Ok(message(&record[..n])),
        })
    }
}

/// The lines of all records until there are no more; what could not be read, or is too much to keep,
/// is told by a line of its own at the end.
fn collect(mut next: impl FnMut() -> io::Result<Option<String>>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut lost = false;
    loop {
        match next() {
            Ok(Some(line)) if lines.len() < LINES_LIMIT => lines.push(line),
            // No record begins without its prefix.
            Ok(_) => lost = true,
            // The ring went round before it was read; the next read is of what is left.
            Err(Errno::PIPE) => lost = true,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(_) => {
                lost = true;
                break;
            }
        }
    }
    if lost {
        lines.push(LOST.to_owned());
    }
    lines
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

    /// What is collected of these records, and then no more.
    fn collected(records: Vec<io::Result<Option<String>>>) -> Vec<String> {
        let mut records = records.into_iter();
        collect(|| records.next().unwrap_or(Err(Errno::AGAIN)))
    }

    fn line(text: &str) -> io::Result<Option<String>> {
        Ok(Some(text.to_owned()))
    }

    #[test]
    fn a_log_that_was_read_whole_is_told_as_it_is() {
        assert!(collected(Vec::new()).is_empty());
        let records = vec![line("a"), Err(Errno::INTR), line("b")];
        assert_eq!(collected(records), ["a", "b"]);
    }

    #[test]
    fn what_was_lost_of_the_log_is_told() {
        let lost = |records| collected(records).pop();
        assert_eq!(lost(vec![Err(Errno::PIPE), line("b")]).unwrap(), LOST);
        assert_eq!(lost(vec![line("a"), Err(Errno::INVAL)]).unwrap(), LOST);
        assert_eq!(lost(vec![line("a"), Ok(None)]).unwrap(), LOST);
        let many = (0..=LINES_LIMIT).map(|_| line("again")).collect();
        assert_eq!(lost(many).unwrap(), LOST);
    }

    #[test]
    fn only_the_message_is_kept() {
        let record = b"6,1,2,-;EXT4-fs (vda): a; b\n SUBSYSTEM=block\n DEVICE=b254:0\n";
        assert_eq!(message(record).unwrap(), "EXT4-fs (vda): a; b");
        assert_eq!(message(b"no record"), None);
    }
}
