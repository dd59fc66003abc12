//! Relays messages between a guest's vhost-user socket and the library that serves it, and makes one of
//! them conform.
//!
//! UML's driver (drivers/um/virtio_uml.c, `vhost_user_set_mem_table`) always sends the whole payload of
//! SET_MEM_TABLE, room for two regions, however many it fills in. Other back ends tolerate that; the
//! `vhost` crate expects exactly as many regions as are counted and drops the connection. The surplus is
//! cut off here. Only set-up passes this way: requests and notifications go through memory and eventfds.

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    net::Shutdown,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    thread::{self, JoinHandle},
};

use rustix::net::{
    recvmsg, sendmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

/// request, flags, size of the payload; u32 each, in host byte order.
const HEADER_BYTES: usize = 12;
const SET_MEM_TABLE: u32 = 5;
/// Count and padding before the regions, and each region.
const TABLE_HEAD_BYTES: usize = 8;
const REGION_BYTES: usize = 32;
/// The protocol's largest payload is a configuration space of 4 KiB with its header.
const PAYLOAD_BYTES_MAX: usize = 8192;
/// Memory regions that a front end may hand over at once.
const FILES_MAX: usize = 32;

/// A message and its file descriptors.
struct Message {
    bytes: Vec<u8>,
    files: Vec<OwnedFd>,
}

/// Relay messages between the two until one side closes; then close both.
pub fn between(guest: UnixStream, library: UnixStream) -> io::Result<[JoinHandle<()>; 2]> {
    let (guest_too, library_too) = (guest.try_clone()?, library.try_clone()?);
    let requests = thread::spawn(move || {
        // an error ends the relay: the other thread and the library see a closed connection
        while let Ok(Some(message)) = receive(&guest) {
            if send(&library, conforming(message)).is_err() {
                break;
            }
        }
        close(&guest, &library);
    });
    let replies = thread::spawn(move || {
        // the features that would send files to the guest are not negotiated
        let _ = copy(&library_too, &guest_too);
        close(&guest_too, &library_too);
    });
    Ok([requests, replies])
}

fn close(a: &UnixStream, b: &UnixStream) {
    for stream in [a, b] {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

fn copy(mut from: &UnixStream, mut to: &UnixStream) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            count => to.write_all(&buffer[..count])?,
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

/// Cut a SET_MEM_TABLE down to the regions that it counts; leave everything else alone.
fn conforming(mut message: Message) -> Message {
    let bytes = &mut message.bytes;
    if u32_at(bytes, 0) == SET_MEM_TABLE && bytes.len() >= HEADER_BYTES + TABLE_HEAD_BYTES {
        let regions = u32_at(bytes, HEADER_BYTES) as usize;
        let payload = TABLE_HEAD_BYTES + regions.min(FILES_MAX) * REGION_BYTES;
        if payload < bytes.len() - HEADER_BYTES {
            bytes.truncate(HEADER_BYTES + payload);
            bytes[8..12].copy_from_slice(&(payload as u32).to_ne_bytes());
        }
    }
    message
}

/// The next message; `None` when the guest has closed.
fn receive(from: &UnixStream) -> io::Result<Option<Message>> {
    let mut bytes = vec![0; HEADER_BYTES];
    let mut files = Vec::new();
    if !fill(from, &mut bytes, &mut files)? {
        return Ok(None);
    }
    let payload = u32_at(&bytes, 8) as usize;
    if payload > PAYLOAD_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    bytes.resize(HEADER_BYTES + payload, 0);
    if payload > 0 && !fill(from, &mut bytes[HEADER_BYTES..], &mut files)? {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(Message { bytes, files }))
}

/// Fill `buffer`; false when the stream ended before its first byte.
fn fill(from: &UnixStream, buffer: &mut [u8], files: &mut Vec<OwnedFd>) -> io::Result<bool> {
    let mut have = 0;
    while have < buffer.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut buffer[have..])];
        let got = match recvmsg(from, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?.bytes,
        };
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = part {
                files.extend(received);
            }
        }
        if files.len() > FILES_MAX {
            // a message sent byte by byte could bring as many with each byte
            return Err(io::ErrorKind::InvalidData.into());
        }
        match (got, have) {
            (0, 0) => return Ok(false),
            (0, _) => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => have += got,
        }
    }
    Ok(true)
}

fn send(mut to: &UnixStream, message: Message) -> io::Result<()> {
    let files: Vec<_> = message.files.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let parts = [IoSlice::new(&message.bytes)];
    let sent = loop {
        match sendmsg(to, &parts, &mut control, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    to.write_all(&message.bytes[sent..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(counted: u32, room: usize) -> Vec<u8> {
        let payload = TABLE_HEAD_BYTES + room * REGION_BYTES;
        let mut bytes = Vec::new();
        for word in [SET_MEM_TABLE, 1, payload as u32, counted, 0] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes.resize(HEADER_BYTES + payload, 0xab);
        bytes
    }

    /// What the library receives when the guest sends `bytes` with `files`.
    fn passed(bytes: &[u8], files: Vec<OwnedFd>) -> Message {
        let (guest, outer) = UnixStream::pair().unwrap();
        let (inner, library) = UnixStream::pair().unwrap();
        let threads = between(outer, inner).unwrap();
        let bytes = bytes.to_vec();
        send(&guest, Message { bytes, files }).unwrap();
        let message = receive(&library).unwrap().unwrap();
        (&library).write_all(b"reply").unwrap();
        let mut reply = [0; 5];
        (&guest).read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"reply");
        drop(guest);
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(receive(&library).unwrap().is_none());
        message
    }

    /// UML of Linux 6.1 and 6.12 sends one region in a payload of two: the connection must survive.
    #[test]
    fn a_memory_table_is_cut_to_the_regions_it_counts() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let message = passed(&table(1, 2), vec![file.into()]);
        assert_eq!(message.bytes, table(1, 1));
        assert_eq!(message.files.len(), 1);
    }

    #[test]
    fn everything_else_passes_as_it_is() {
        assert_eq!(passed(&table(2, 2), Vec::new()).bytes, table(2, 2));
        assert_eq!(passed(&table(3, 2), Vec::new()).bytes, table(3, 2));
        let other: Vec<u8> = [1u32, 1, 0].iter().flat_map(|w| w.to_ne_bytes()).collect();
        assert_eq!(passed(&other, Vec::new()).bytes, other);
    }
}
