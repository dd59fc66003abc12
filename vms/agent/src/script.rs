//! Requests that were written down beforehand, for a guest in virtual time.
//!
//! In virtual time a guest that waits for the host does not wait: its clock jumps from timer to timer as long as nothing
//! comes. So a recording gets all its requests before it begins, and nothing in it depends on the host. A script is
//! a pause and a request, again and again:
//!
//! ```text
//! u64 LE    microseconds to wait before it, by the guest's clock
//! frame     the request, as on the channel
//! ```
//!
//! The replies go to the channel as ever. `harness/guests/script.py` writes scripts.

use std::{
    fs::File,
    io::{self, Read},
    thread,
    time::Duration,
};

use powercut_protocol::{receive, AgentRequest, ModuleError};

use crate::{
    agent::Agent,
    boot,
    failure::{errno_of, failed, Failure},
    reply,
};

/// Carry out the script in the first `bytes` of `device`, and reply to each request on the channel at `port`.
///
/// # Errors
/// If the script cannot be read, or the host cannot be told.
pub fn perform(
    port: &str,
    device: &str,
    bytes: u64,
    mut agent: Agent,
    module_errors: Vec<ModuleError>,
) -> Result<(), Failure> {
    let mut script = Vec::new();
    let read = File::open(device).and_then(|file| file.take(bytes).read_to_end(&mut script));
    read.map_err(|e| failed(format!("read {device}"))(errno_of(&e)))?;
    let channel = boot::open_channel(port)?;
    let mut replies = &channel;
    reply(&mut replies, &agent.hello(module_errors))?;
    let mut left = script.as_slice();
    while !left.is_empty() {
        let (pause, request) =
            next(&mut left).map_err(|e| failed("read the script")(errno_of(&e)))?;
        if !pause.is_zero() {
            thread::sleep(pause);
        }
        reply(&mut replies, &agent.answer(request))?;
    }
    agent.release();
    Ok(())
}

fn next(script: &mut &[u8]) -> io::Result<(Duration, AgentRequest)> {
    let mut pause = [0; 8];
    script.read_exact(&mut pause)?;
    let request = receive(script).map_err(io::Error::other)?;
    Ok((Duration::from_micros(u64::from_le_bytes(pause)), request))
}

#[cfg(test)]
mod tests {
    use powercut_protocol::send;

    use super::*;

    #[test]
    fn a_script_is_read_to_its_end() {
        let mut bytes = Vec::new();
        for pause in [0u64, 7_000_000] {
            bytes.extend(pause.to_le_bytes());
            send(&mut bytes, &AgentRequest::Unmount {}).unwrap();
        }
        let mut left = bytes.as_slice();
        let pauses: Vec<_> =
            std::iter::from_fn(|| (!left.is_empty()).then(|| next(&mut left).unwrap())).collect();
        assert_eq!(pauses[0], (Duration::ZERO, AgentRequest::Unmount {}));
        assert_eq!(pauses[1].0, Duration::from_secs(7));
        assert_eq!(pauses.len(), 2);
        assert!(next(&mut &bytes[..bytes.len() - 1][20..]).is_err());
    }
}
