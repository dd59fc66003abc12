//! Frames: sending, receiving, and rejecting what exceeds the limits before anything is decoded.

use std::io::{self, Read, Write};

use serde::{de::DeserializeOwned, Serialize};

use crate::limits::{FRAME_BYTES, FRAME_DEPTH, FRAME_VALUES, PIECE_BYTES, STRUCTURED_FRAME_BYTES};

/// What an agent answers to each piece of a request but the last.
pub const MORE: u8 = b'+';

/// Messages whose bulk is one string of bytes: the only ones that may be longer than
/// [`STRUCTURED_FRAME_BYTES`].
const OPAQUE: [&[u8]; 2] = [b"\xa4type\xa8put_file", b"\xa4type\xacprogram_done"];

/// Why a frame could not be sent or received.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The connection failed. `UnexpectedEof`: the peer has gone.
    #[error("the connection failed")]
    Io(#[from] io::Error),
    #[error("a frame of {bytes} bytes is longer than its limit of {limit}")]
    TooLong { bytes: usize, limit: usize },
    #[error("a frame holds more than {FRAME_VALUES} values")]
    TooManyValues,
    #[error("a frame nests more than {FRAME_DEPTH} containers")]
    TooDeep,
    #[error("a frame ends inside a value, or is not MessagePack")]
    Malformed,
    #[error("a frame has {0} bytes behind its message")]
    Trailing(usize),
    #[error("a message cannot be encoded")]
    Encode(#[from] rmp_serde::encode::Error),
    #[error("a frame is not a message of this protocol")]
    Decode(#[from] rmp_serde::decode::Error),
}

impl FrameError {
    /// Whether the connection is still at the beginning of a frame, so that a reply can report the error.
    #[must_use]
    pub fn is_in_step(&self) -> bool {
        !matches!(self, Self::Io(_) | Self::TooLong { .. })
    }

    /// Whether the peer closed the connection.
    #[must_use]
    pub fn is_farewell(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof)
    }
}

/// An error and its sources in one line, for a reply or a console.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}

/// Write one frame. Unless the connection itself fails, an error means that nothing was written.
///
/// # Errors
/// [`FrameError::TooLong`], [`FrameError::Encode`], or the writer's error.
pub fn send<T: Serialize>(writer: &mut impl Write, message: &T) -> Result<(), FrameError> {
    let mut frame = vec![0; 4];
    rmp_serde::encode::write_named(&mut frame, message)?;
    let body = &frame[4..];
    check_length(body.len(), body)?;
    let length = u32::try_from(body.len()).expect("the limit fits into 32 bits");
    frame[..4].copy_from_slice(&length.to_le_bytes());
    writer.write_all(&frame)?;
    writer.flush()?;
    Ok(())
}

/// Read one frame.
///
/// # Errors
/// The reader's error, or as [`decode`].
pub fn receive<T: DeserializeOwned>(reader: &mut impl Read) -> Result<T, FrameError> {
    let mut body = vec![0u8; receive_length(reader)?];
    reader.read_exact(&mut body)?;
    decode(&body)
}

/// Read one frame of which the sender sends [`PIECE_BYTES`] at a time: the next piece comes once `more` has asked for
/// it with [`MORE`]. So no line has to hold more than a piece.
///
/// # Errors
/// The reader's error, that of `more`, or as [`decode`].
pub fn receive_in_pieces<T: DeserializeOwned>(
    reader: &mut impl Read,
    mut more: impl FnMut() -> io::Result<()>,
) -> Result<T, FrameError> {
    let mut body = vec![0u8; receive_length(reader)?];
    for (number, piece) in body.chunks_mut(PIECE_BYTES).enumerate() {
        if number > 0 {
            more()?;
        }
        reader.read_exact(piece)?;
    }
    decode(&body)
}

/// The bytes of the body that follows.
fn receive_length(reader: &mut impl Read) -> Result<usize, FrameError> {
    let mut length = [0u8; 4];
    reader.read_exact(&mut length)?;
    let bytes = u32::from_le_bytes(length) as usize;
    if bytes > FRAME_BYTES {
        return Err(FrameError::TooLong {
            bytes,
            limit: FRAME_BYTES,
        });
    }
    Ok(bytes)
}

/// The message in the body of a frame. Costs memory in proportion to the limits, whatever the bytes.
///
/// # Errors
/// Every [`FrameError`] but `Io` and `Encode`.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    check_length(body.len(), body)?;
    let rest = measure(body)?;
    if rest > 0 {
        return Err(FrameError::Trailing(rest));
    }
    Ok(rmp_serde::from_slice(body)?)
}

fn check_length(bytes: usize, body: &[u8]) -> Result<(), FrameError> {
    let opaque = OPAQUE
        .iter()
        .any(|head| body.get(1..).is_some_and(|rest| rest.starts_with(head)));
    let limit = if opaque {
        FRAME_BYTES
    } else {
        STRUCTURED_FRAME_BYTES
    };
    if bytes > limit {
        return Err(FrameError::TooLong { bytes, limit });
    }
    Ok(())
}

/// Skip one MessagePack value without decoding it. Returns the bytes behind it.
fn measure(body: &[u8]) -> Result<usize, FrameError> {
    let mut rest = body;
    // values still to come in each open container
    let mut open = vec![1u64];
    let mut values = 0;
    while let Some(left) = open.last_mut() {
        if *left == 0 {
            open.pop();
            continue;
        }
        *left -= 1;
        values += 1;
        if values > FRAME_VALUES {
            return Err(FrameError::TooManyValues);
        }
        let children = skip(&mut rest).ok_or(FrameError::Malformed)?;
        if children > 0 {
            open.push(children);
        }
        if open.len() > FRAME_DEPTH + 1 {
            return Err(FrameError::TooDeep);
        }
    }
    Ok(rest.len())
}

/// Skip a value's head and, for a string or number, its body. Returns how many values it contains.
fn skip(rest: &mut &[u8]) -> Option<u64> {
    let marker = take(rest, 1)?[0];
    let (bytes, children) = match marker {
        0x00..=0x7f | 0xc0 | 0xc2 | 0xc3 | 0xe0..=0xff => (0, 0),
        0x80..=0x8f => (0, 2 * u64::from(marker & 0x0f)),
        0x90..=0x9f => (0, u64::from(marker & 0x0f)),
        0xa0..=0xbf => (u64::from(marker & 0x1f), 0),
        0xc4 | 0xd9 => (number(rest, 1)?, 0),
        0xc5 | 0xda => (number(rest, 2)?, 0),
        0xc6 | 0xdb => (number(rest, 4)?, 0),
        0xcc | 0xd0 => (1, 0),
        0xcd | 0xd1 => (2, 0),
        0xca | 0xce | 0xd2 => (4, 0),
        0xcb | 0xcf | 0xd3 => (8, 0),
        0xdc => (0, number(rest, 2)?),
        0xdd => (0, number(rest, 4)?),
        0xde => (0, 2 * number(rest, 2)?),
        0xdf => (0, 2 * number(rest, 4)?),
        // extensions, which no message has, and the marker that MessagePack never uses
        0xc1 | 0xc7..=0xc9 | 0xd4..=0xd8 => return None,
    };
    take(rest, usize::try_from(bytes).ok()?)?;
    Some(children)
}

fn number(rest: &mut &[u8], bytes: usize) -> Option<u64> {
    let digits = take(rest, bytes)?;
    Some(digits.iter().fold(0, |n, b| n << 8 | u64::from(*b)))
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(bytes)?;
    *rest = tail;
    Some(head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AgentReply, AgentRequest, DiskRequest};

    fn refused<T: DeserializeOwned>(body: &[u8]) -> FrameError {
        match decode::<T>(body) {
            Err(error) => error,
            Ok(_) => panic!("decoded"),
        }
    }

    /// `{"type": "also_read", "blocks": ...}`
    fn also_read(blocks: &[u8]) -> Vec<u8> {
        [b"\x82\xa4type\xa9also_read\xa6blocks", blocks].concat()
    }

    /// serde first buffers a tagged message in a tree of its own, at 32 bytes a value: 64 MiB of small numbers
    /// took 2 GiB.
    #[test]
    fn a_frame_of_too_many_values_is_refused_before_it_is_decoded() {
        let many = FRAME_VALUES as u32;
        let mut body = also_read(b"\xdd");
        body.extend_from_slice(&many.to_be_bytes());
        body.resize(body.len() + FRAME_VALUES, 7);
        let error = refused::<DiskRequest>(&body);
        assert!(matches!(error, FrameError::TooManyValues), "{error}");
    }

    #[test]
    fn a_list_that_promises_more_than_it_holds_is_malformed() {
        let error = refused::<DiskRequest>(&also_read(b"\xdd\xff\xff\xff\xff\x01"));
        assert!(matches!(error, FrameError::Malformed), "{error}");
    }

    #[test]
    fn containers_inside_each_other_have_a_limit() {
        let deep = also_read(&[0x91; 100_000]);
        let error = refused::<DiskRequest>(&deep);
        assert!(matches!(error, FrameError::TooDeep), "{error}");
    }

    #[test]
    fn bytes_behind_a_message_are_refused() {
        let body = [&also_read(b"\x90")[..], b"\x01"].concat();
        let error = refused::<DiskRequest>(&body);
        assert!(matches!(error, FrameError::Trailing(1)), "{error}");
    }

    #[test]
    fn only_opaque_messages_may_be_as_long_as_a_frame() {
        let data = vec![0; STRUCTURED_FRAME_BYTES];
        let put = AgentRequest::PutFile {
            path: "/x".into(),
            mode: 0o644,
            data,
            append: false,
        };
        let mut frame = Vec::new();
        send(&mut frame, &put).unwrap();
        assert_eq!(receive::<AgentRequest>(&mut &frame[..]).unwrap(), put);
        let what = "x".repeat(STRUCTURED_FRAME_BYTES);
        let mut frame = Vec::new();
        let sent = send(&mut frame, &AgentReply::Failed { what, errno: 5 });
        assert!(matches!(sent, Err(FrameError::TooLong { .. })));
        assert!(frame.is_empty(), "nothing must be sent of it");
    }

    /// A line between host and guest that never works again once it holds more than its receiver takes, as UML's.
    struct Line<'a> {
        sent: &'a [u8],
        /// Bytes that the sender has put into the line and nobody has read.
        holds: std::cell::Cell<usize>,
        read: std::cell::Cell<usize>,
    }

    impl Line<'_> {
        fn put(&self, bytes: usize) {
            self.holds.set(self.holds.get() + bytes);
            assert!(
                self.holds.get() <= PIECE_BYTES + 4,
                "the line holds too much"
            );
        }
    }

    impl Read for &Line<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = buffer.len().min(self.holds.get());
            let from = self.read.get();
            buffer[..count].copy_from_slice(&self.sent[from..from + count]);
            self.holds.set(self.holds.get() - count);
            self.read.set(from + count);
            Ok(count)
        }
    }

    /// Requests of more than some 4 KiB stopped UML's serial line for good: the guest never answered.
    #[test]
    fn a_request_of_any_length_passes_through_a_line_that_holds_one_piece() {
        for bytes in [
            0,
            1,
            PIECE_BYTES - 1,
            PIECE_BYTES,
            PIECE_BYTES + 1,
            9000,
            1 << 20,
        ] {
            let put = AgentRequest::PutFile {
                path: "/x".into(),
                mode: 0o644,
                data: vec![7; bytes],
                append: false,
            };
            let mut frame = Vec::new();
            send(&mut frame, &put).unwrap();
            let line = Line {
                sent: &frame,
                holds: 0.into(),
                read: 0.into(),
            };
            line.put(frame.len().min(4 + PIECE_BYTES));
            let got: AgentRequest = receive_in_pieces(&mut &line, || {
                line.put((frame.len() - line.read.get()).min(PIECE_BYTES));
                Ok(())
            })
            .unwrap();
            assert_eq!(got, put);
            assert_eq!(line.read.get(), frame.len());
        }
    }

    #[test]
    fn a_length_over_the_limit_allocates_nothing() {
        let error = receive::<DiskRequest>(&mut &b"\xff\xff\xff\xff"[..]).unwrap_err();
        assert!(!error.is_in_step());
        assert!(error
            .to_string()
            .contains("4294967295 bytes is longer than its limit of 67108864"));
    }
}
