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
        let mut lines = Vec::new();
        let mut record = [0u8; RECORD_BYTES];
        loop {
            match io::read(&self.device, &mut record) {
                Ok(n) if n > 0 => {
                    if lines.len() < LINES_LIMIT {
                        lines.extend(message(&record[..n]));
                    }
                }
                // The ring went round before it was read; the next read is of what is left.
                Err(Errno::PIPE) => lines.push("(kernel messages were lost)".to_owned()),
                Err(Errno::INTR) => {}
                // EAGAIN: no more. Nothing else can be mended here.
                _ => return lines,
            }
        }
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

    #[test]
    fn only_the_message_is_kept() {
        let record = b"6,1,2,-;EXT4-fs (vda): a; b\n SUBSYSTEM=block\n DEVICE=b254:0\n";
        assert_eq!(message(record).unwrap(), "EXT4-fs (vda): a; b");
        assert_eq!(message(b"no record"), None);
    }
}
