//! What a program prints, line by line as it comes.
//!
//! Its standard output is a file in the memory of the guest, not a pipe: a write never waits for a reader, so that
//! whoever traces the program may read between two of its calls.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsRawFd, RawFd},
        unix::fs::{FileExt, OpenOptionsExt},
    },
    path::PathBuf,
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
        let path = PathBuf::from(format!("/tmp/powercut-printed-{}", std::process::id()));
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

    /// Whether each line that has ended was acknowledged.
    pub fn is_acknowledged(&self) -> bool {
        !self.refused && !self.line.contains(&b'\n')
    }
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
