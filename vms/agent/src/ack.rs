//! `powercut-ack TEXT`: an application's own mark in the write log.
//!
//! The program is this very binary under another name. The application under test runs it once it has told
//! its user that something is done. It puts the mark `app TEXT` behind everything logged so far: for a
//! crash after the mark, the application's check receives TEXT.
//!
//! `powercut-ack-lines PROGRAM ARGUMENTS` acknowledges each line that a program prints: see `calls.rs`.

use std::{fs, io::Read, path::Path};

use rustix::{
    fs::{flock, FlockOperation},
    io::Errno,
};

use crate::{
    dm::{DeviceMapper, Target},
    events,
    failure::{errno_of, failed, Failure},
};

/// The name that the program goes by in the guest.
pub const NAME: &str = "powercut-ack";

/// The name of the program that acknowledges each line which another one prints.
pub const LINES_NAME: &str = "powercut-ack-lines";

/// Holds the name of the device-mapper device that records, in a second line [`EVENTS`] if its events are
/// recorded as well, and in a third [`WHOLE`] if calls are noted whole, too; exists only while one does.
///
/// In /dev, which an image has, too: see `image.rs`.
const RECORDING: &str = "/dev/powercut-recording";

const EVENTS: &str = "events";

/// What it holds where calls are noted whole.
const WHOLE: &str = "whole";

/// A mark has one sector, `struct log_write_entry` included; a longer one would be truncated silently
/// (`log_mark` in `drivers/md/dm-log-writes.c`).
const TEXT_BYTES: usize = 256;

/// Publish which device records, for `powercut-ack`.
pub fn begin(target: &Target, events: bool, whole: bool) -> Result<(), Failure> {
    let second = if events { EVENTS } else { "" };
    let third = if whole { WHOLE } else { "" };
    fs::write(RECORDING, format!("{}\n{second}\n{third}", target.name()))
        .map_err(|e| failed(format!("write {RECORDING}"))(errno_of(&e)))
}

/// Publish that calls are noted whole: then a mark is one of the notes.
pub fn begin_whole() -> Result<(), Failure> {
    fs::write(RECORDING, WHOLE).map_err(|e| failed(format!("write {RECORDING}"))(errno_of(&e)))
}

/// No device records any more.
pub fn end() {
    // Absent if nothing was recorded.
    let _ = fs::remove_file(RECORDING);
}

/// Put the mark into the log, and then among the events.
pub fn run(words: &[String]) -> Result<(), String> {
    acknowledge(words, FlockOperation::LockExclusive).map(drop)
}

/// The same, but false at once where another process acknowledges: it may be one that the caller has stopped.
pub fn try_run(words: &[String]) -> Result<bool, String> {
    acknowledge(words, FlockOperation::NonBlockingLockExclusive)
}

fn acknowledge(words: &[String], lock: FlockOperation) -> Result<bool, String> {
    let mark = mark_of(words)?;
    one_at_a_time(Path::new(RECORDING), lock, |recording| {
        let text = mark.split_once(' ').map_or("", |(_, text)| text);
        let note = || crate::whole::acknowledge(text).map_err(|e| e.to_string());
        if recording == WHOLE {
            return note();
        }
        let mut lines = recording.split('\n');
        let (name, events) = (lines.next().unwrap_or(""), lines.next());
        DeviceMapper::open()
            .and_then(|mapper| mapper.mark(&Target::named(name), &mark))
            .and_then(|()| match events {
                Some(EVENTS) => events::mark_from_outside(&mark),
                _ => Ok(()),
            })
            .map_err(|failure| failure.to_string())?;
        match lines.next() {
            Some(WHOLE) => note(),
            _ => Ok(()),
        }
    })
}

/// Do `act` with the contents of the file, while no other process does; false if one does, and `how` does not wait.
/// Processes of an application may acknowledge at the same time, and their marks must have one order in the log and
/// among the events.
fn one_at_a_time(
    file: &Path,
    how: FlockOperation,
    act: impl FnOnce(&str) -> Result<(), String>,
) -> Result<bool, String> {
    let mut lock = fs::File::open(file).map_err(|_| {
        "nothing is being recorded: only the `run` of a workload can acknowledge".to_owned()
    })?;
    match flock(&lock, how) {
        Err(Errno::WOULDBLOCK) => return Ok(false),
        locked => locked.map_err(|e| format!("lock: {e}"))?,
    }
    let mut contents = String::new();
    lock.read_to_string(&mut contents)
        .map_err(|e| format!("read {}: {e}", file.display()))?;
    act(&contents).map(|()| true)
}

/// The mark for a text, which must fit a mark and one line of the list that a check receives.
fn mark_of(words: &[String]) -> Result<String, String> {
    let text = words.join(" ");
    let plain = text.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
    if text.is_empty() || text.len() > TEXT_BYTES || !plain || text.trim() != text {
        return Err(format!(
            "usage: {NAME} TEXT (1 to {TEXT_BYTES} printable ASCII characters, none of them a blank at \
             either end); it was given {text:?}"
        ));
    }
    Ok(format!("app {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(words: &[&str]) -> Result<String, String> {
        mark_of(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_text_becomes_a_mark() {
        assert_eq!(mark(&["7"]).unwrap(), "app 7");
        assert_eq!(mark(&["put", "a\\b", "c d"]).unwrap(), "app put a\\b c d");
        assert_eq!(
            mark(&[&"x".repeat(TEXT_BYTES)]).unwrap().len(),
            4 + TEXT_BYTES
        );
    }

    /// Two marks stood in one order in the log and in the other among the events, which voided the recording.
    #[test]
    fn nobody_acknowledges_between_the_two_marks_of_another() {
        let file = std::env::temp_dir().join(format!("powercut-ack-{}", std::process::id()));
        fs::write(&file, "name\n").unwrap();
        let inside = std::sync::atomic::AtomicUsize::new(0);
        let both = |_: &str| {
            use std::sync::atomic::Ordering::SeqCst;
            assert_eq!(inside.fetch_add(1, SeqCst), 0);
            std::thread::sleep(std::time::Duration::from_millis(2));
            assert_eq!(inside.fetch_sub(1, SeqCst), 1);
            Ok(())
        };
        let waits = FlockOperation::LockExclusive;
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    (0..5).for_each(|_| assert_eq!(one_at_a_time(&file, waits, both), Ok(true)))
                });
            }
        });
        let asks = FlockOperation::NonBlockingLockExclusive;
        let inner = |_: &str| {
            assert_eq!(one_at_a_time(&file, asks, |_| Ok(())), Ok(false));
            Ok(())
        };
        assert_eq!(one_at_a_time(&file, waits, inner), Ok(true));
        // A program that another test starts has the file, with its lock, until it executes.
        let is_free = |_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            one_at_a_time(&file, asks, |_| Ok(())) == Ok(true)
        };
        assert!((0..1000).any(is_free));
        fs::remove_file(&file).unwrap();
        assert!(one_at_a_time(&file, waits, |_| Ok(()))
            .unwrap_err()
            .contains("nothing is being recorded"));
    }

    #[test]
    fn what_would_be_cut_or_split_is_refused() {
        let long = "x".repeat(TEXT_BYTES + 1);
        for words in [
            &[][..],
            &[""],
            &["a\nb"],
            &["a\tb"],
            &["à"],
            &[" a"],
            &["a", ""],
            &[&long],
        ] {
            let told = mark(words).unwrap_err();
            assert!(told.starts_with("usage: powercut-ack TEXT"), "{told}");
        }
    }
}
