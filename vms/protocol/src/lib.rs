//! What the host, the agent and the disk say to each other.
//!
//! One frame is a little-endian `u32` length followed by that many bytes of MessagePack. Every
//! message is a map with a `type` entry that names the variant. The host's side is
//! `harness/guests/wire.py`; both sides are tested against `vms/protocol/vectors.json`.

use std::io::{self, Read, Write};

use serde::{de::DeserializeOwned, Deserialize, Serialize};

pub mod pattern;

/// Raised whenever a message changes its meaning; both ends refuse another number.
pub const PROTOCOL_VERSION: u32 = 1;

/// A longer frame is a broken peer, not a large tree: 64 MiB.
pub const MAX_FRAME_BYTES: u32 = 64 << 20;

/// One step of a workload. Fields that a kind does not use are empty or zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// `create`, `write`, `append`, `truncate`, `fallocate`, `link`, `symlink`, `rename`, `unlink`,
    /// `mkdir`, `rmdir`, `setxattr`, `removexattr`, `chmod`, `fsync`, `fdatasync`, `sync`, `run`,
    /// `tmpfile`, `mmap-write`.
    pub kind: String,
    /// The file operated on, relative to the mount point.
    pub path: String,
    /// Second name: new name of `link` and `rename`, contents of a `symlink`.
    pub target: String,
    /// Bytes.
    pub offset: u64,
    /// Bytes; the new size of `truncate`; the permission bits of `chmod`.
    pub length: u64,
    /// Name of an extended attribute, such as `user.a`.
    pub name: String,
    /// Value of an extended attribute.
    #[serde(with = "serde_bytes")]
    pub value: Vec<u8>,
    /// `write`, `append`: `sync` (O_SYNC), `dsync` (O_DSYNC), `direct` (O_DIRECT).
    /// `fallocate`: `keep-size`, `punch-hole`, `zero-range`. `mmap-write`: `sync` (msync of it all).
    pub flags: Vec<String>,
    /// Program and arguments of `run`, started in the mount point.
    pub argv: Vec<String>,
}

/// How a file system is mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountSpec {
    /// Type as in mount(2): `ext4`.
    pub fstype: String,
    /// Comma-separated data string of mount(2): `data=ordered`.
    pub options: String,
    /// Byte of the disk at which a second device begins, `/dev/second` in `options`. 0: there is none.
    pub second_offset: u64,
}

/// What the host asks of the agent. The agent answers every request with one [`AgentReply`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AgentRequest {
    /// Stack dm-log-writes on `data`, logging to `log`, and mount it at the mount point.
    RecordStart {
        data: String,
        log: String,
        mount: MountSpec,
    },
    /// Do the operations in order, each between the marks `begin N` and `ack N`,
    /// N counting from `first_index`. Stops after the first that fails.
    RunOperations {
        first_index: u32,
        operations: Vec<Operation>,
        deadline_s: u32,
    },
    /// Mark `end`, unmount, mark `unmounted`, flush the target, read its status, remove it.
    RecordFinish {},
    /// Set the clock, mount, walk, and (unless `keep_mounted`) unmount.
    Recover {
        device: String,
        mount: MountSpec,
        /// Seconds since the epoch that the guest's clock is set to before the mount.
        clock_s: u64,
        keep_mounted: bool,
    },
    /// Run a program in the mount point of a file system that `Recover` left mounted.
    RunProgram { argv: Vec<String>, deadline_s: u32 },
    /// Unmount what `Recover` left mounted.
    Unmount {},
    /// Put a file into the guest's root, outside the mount point; or more of one that is there.
    PutFile {
        path: String,
        mode: u32,
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
        append: bool,
    },
}

/// What the agent answers. `Hello` comes once, unasked, when the agent is up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AgentReply {
    Hello {
        protocol: u32,
        /// `uname -r` and `uname -v`.
        release: String,
        version: String,
        /// Modules that could not be loaded: `name: errno text`.
        module_errors: Vec<String>,
        /// Names of the device-mapper targets that this kernel has.
        dm_targets: Vec<String>,
    },
    RecordStarted {},
    OperationsDone {
        results: Vec<OperationResult>,
    },
    RecordFinished {
        /// The status line of the log-writes target, read before its removal.
        status: String,
        unmount_errno: i32,
        kernel_log: Vec<String>,
    },
    Recovered(Recovered),
    ProgramDone {
        /// Exit code, or 128 + signal; -1 when it was stopped at its deadline.
        exit_code: i32,
        #[serde(with = "serde_bytes")]
        output: Vec<u8>,
    },
    Unmounted {
        unmount_errno: i32,
        kernel_log: Vec<String>,
    },
    Done {},
    /// The request could not be carried out; the agent lives on and holds nothing mounted.
    Failed {
        what: String,
        errno: i32,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationResult {
    pub index: u32,
    /// 0, or the errno with which the operation failed.
    pub errno: i32,
    /// What failed, and for `run` the program's output.
    pub detail: String,
}

/// What came back from one crash state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recovered {
    /// 0, or the errno of mount(2).
    pub mount_errno: i32,
    /// The tree below the mount point in path order, the root (path "") first.
    pub entries: Vec<TreeEntry>,
    /// Empty, or what could not be read: `opendir a/b: EUCLEAN`.
    pub walk_errors: Vec<String>,
    pub unmount_errno: i32,
    /// Kernel messages since the previous request.
    pub kernel_log: Vec<String>,
    /// Microseconds in the guest.
    pub mount_us: u64,
    pub walk_us: u64,
    pub unmount_us: u64,
}

/// One name in a recovered tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TreeEntry {
    /// Relative to the mount point, raw bytes.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// `file`, `directory`, `symlink`, `fifo`, `socket`, `block`, `char`.
    pub kind: String,
    pub inode: u64,
    /// Permission bits only.
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    /// Allocated, in units of 512 bytes (st_blocks).
    pub blocks: u64,
    /// Contents of a symbolic link.
    #[serde(with = "serde_bytes")]
    pub target: Vec<u8>,
    pub xattrs: Vec<Xattr>,
    /// A regular file's contents, in order, without gaps.
    pub runs: Vec<Run>,
    /// xxh3-128 of a regular file's contents in hexadecimal.
    pub digest: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xattr {
    pub name: String,
    #[serde(with = "serde_bytes")]
    pub value: Vec<u8>,
}

/// A stretch of a file whose bytes have one origin; see [`pattern`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// `written`: data of operation `value` at this very offset.
    /// `misplaced`: data of operation `value`, written at another offset (`origin`).
    /// `zero`: zeros. `poison`: the device's poison, from device block `value`.
    /// `literal`: bytes in `data`, too few or too mixed to tell (at most 64).
    /// `foreign`: other bytes; `data` holds the first 64. `unreadable`: read failed with errno `value`.
    pub kind: String,
    /// File offset in bytes.
    pub start: u64,
    pub length: u64,
    pub value: u64,
    /// File offset that `misplaced` data was written at.
    pub origin: u64,
    #[serde(with = "serde_bytes")]
    pub data: Vec<u8>,
}

/// A crash state: which log entries, or parts of entries, reached the platter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The first `prefix` entries of the log ...
    pub prefix: u64,
    /// ... less these (indices below `prefix`, ascending) ...
    pub dropped: Vec<u64>,
    /// ... and of entry `prefix - 1` only this many sectors, when given.
    pub torn_sectors: Option<u64>,
}

/// What the host asks of the disk. The disk answers every request with one [`DiskReply`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum DiskRequest {
    /// Show another base image (of the size of the device), with a write log or without.
    Open { base: String, log: Option<String> },
    /// Show this state; drop what the guest wrote on the one before.
    Switch { state: State },
    /// Make the file at `path` hold what the device shows now: state and the guest's writes.
    /// Costs what changed since the last call with that path.
    Image { path: String },
    /// Content of each of these states, without the guest's writes.
    Hashes { states: Vec<State> },
    /// Compare the device as the guest left it with the base after the whole of this log.
    Compare { log: String },
    /// Counters since the last `Switch` or `Open`.
    Stats {},
    /// Count these 4 KiB blocks of what the device shows now as read, as if the guest had read them:
    /// a host's program saw them in the `Image`.
    AlsoRead { blocks: Vec<u64> },
    /// What came of this state, by a number of the host's choice. Kept with the contents of all blocks
    /// that were read since the `Switch`, until the next `Open`. Refused when nothing was read.
    Remember { outcome: u64 },
    /// Outcomes of states that agree with a remembered one on every block that was read there.
    Recall { states: Vec<State> },
    /// Contents of 4 KiB blocks of the device as it is now, the guest's writes among them.
    BlockHashes { blocks: Vec<u64> },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum DiskReply {
    Opened {
        size_bytes: u64,
        /// Log entries, marks and flushes among them.
        entries: u64,
    },
    Switched {},
    Imaged {
        /// Bytes that had to be written to the file.
        copied_bytes: u64,
        /// Content of the device (state and guest's writes), 32 hexadecimal digits.
        hash: String,
    },
    Hashed {
        /// 32 hexadecimal digits a state; equal exactly when the contents are (but for collisions).
        hashes: Vec<String>,
    },
    Compared {
        equal: bool,
        /// First byte of the first sector that differs.
        first_difference: Option<u64>,
    },
    Counted(Stats),
    Noted {},
    Remembered {
        /// Another outcome that would have been recalled for this state; it stays the one recalled.
        /// If the two mean different things, the outcome depends on more than what was read.
        earlier: Option<u64>,
    },
    Recalled {
        /// One a state; none where no remembered state agrees.
        outcomes: Vec<Option<u64>>,
    },
    BlocksHashed {
        /// 16 bytes a block, in the order asked for; equal exactly when the contents are (but for
        /// collisions), whichever block, state or base image they are of.
        #[serde(with = "serde_bytes")]
        hashes: Vec<u8>,
    },
    Failed {
        what: String,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub discards: u64,
    /// Requests answered with VIRTIO_BLK_S_IOERR or refused.
    pub errors: u64,
    /// Bytes held in the overlay.
    pub overlay_bytes: u64,
}

/// Write one frame.
///
/// # Errors
/// What the writer reports; `InvalidData` for a message that is too long.
pub fn send<T: Serialize>(writer: &mut impl Write, message: &T) -> io::Result<()> {
    let body = rmp_serde::to_vec_named(message).map_err(io::Error::other)?;
    let length = u32::try_from(body.len())
        .ok()
        .filter(|n| *n <= MAX_FRAME_BYTES)
        .ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("frame of {} bytes", body.len()),
            )
        })?;
    let mut frame = Vec::with_capacity(body.len() + 4);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&body);
    writer.write_all(&frame)?;
    writer.flush()
}

/// Read one frame.
///
/// # Errors
/// What the reader reports (`UnexpectedEof` when the peer has gone); `InvalidData` for what is no message.
pub fn receive<T: DeserializeOwned>(reader: &mut impl Read) -> io::Result<T> {
    let mut length = [0u8; 4];
    reader.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > MAX_FRAME_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("frame of {length} bytes"),
        ));
    }
    let mut body = vec![0u8; length as usize];
    reader.read_exact(&mut body)?;
    rmp_serde::from_slice(&body).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}
