// What happens before the power fails. The current directory is the file system under test, and empty.
// Run `powercut-ack TEXT` wherever a user would be told that TEXT is done. Built by `make`, statically: the
// guest has no libraries.
use std::fs::{File, OpenOptions};
use std::io::{Error, Write};
use std::process::Command;

fn main() -> Result<(), Error> {
    let forgets = std::env::args().nth(1).as_deref() == Some("forget");
    let mut lines = OpenOptions::new().create(true).append(true).open("lines")?;
    if !forgets {
        // The name of a new file is in its directory, which needs an fsync of its own.
        File::open(".")?.sync_all()?;
    }
    for i in 1..=5 {
        let text = format!("line {i}");
        writeln!(lines, "{text}")?;
        if !forgets {
            lines.sync_all()?;
        }
        if !Command::new("powercut-ack").arg(&text).status()?.success() {
            return Err(Error::other("powercut-ack failed"));
        }
    }
    Ok(())
}
