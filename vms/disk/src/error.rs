//! What can go wrong with a request from the host. Each error names the value and the limit; sources add detail.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{BLOCK_SECTORS, SECTOR_BYTES};

/// A request that could not be carried out; becomes `DiskReply::Failed`.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    #[error("nothing is open yet: send Open first")]
    NothingOpen,
    #[error("cannot {call} {}", path.display())]
    File {
        call: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{} is empty (0 bytes)", .0.display())]
    Empty(PathBuf),
    #[error("{}: {bytes} bytes are not a whole number of sectors of {SECTOR_BYTES}", path.display())]
    BrokenSector { path: PathBuf, bytes: usize },
    #[error("{}", path.display())]
    Log { path: PathBuf, source: LogError },
    #[error(
        "the log changes {sectors} sectors in {entries} entries, the limit is {} of each",
        u32::MAX
    )]
    TooManyChanges { sectors: u64, entries: usize },
    #[error("the log discards {sectors} sectors, the limit is {limit}")]
    TooManyDiscards { sectors: u64, limit: u64 },
    #[error("a state does not fit the log")]
    State(#[from] StateError),
    #[error("the order does not fit {}", path.display())]
    Order { path: PathBuf, source: OrderError },
    #[error("cannot explore the crash time")]
    Explore(#[from] ExploreError),
    #[error("{} has {bytes} bytes, the connected guest's device {connected}", path.display())]
    OtherSize {
        path: PathBuf,
        bytes: u64,
        connected: u64,
    },
    #[error("block {block} lies behind the end: the device has {blocks} blocks of {BLOCK_SECTORS} sectors")]
    BehindEnd { block: u64, blocks: u64 },
    #[error("what counts at byte {at} is not in one block of the device")]
    MountCounter { at: u64 },
    #[error("outcome {0} cannot be remembered: nothing was read since the switch, so the guest looked at its own cache")]
    NothingRead(u64),
    #[error("nothing was read since the switch, so the guest looked at its own cache")]
    NothingReadYet,
    #[error(
        "the guest asked for the serial number an odd number of times, so it is not known which blocks were read \
         for files' contents alone"
    )]
    InDataPhase,
    #[error("there was no snapshot since the last switch")]
    NoSnapshot,
    #[error("what the guest wrote was not noted since the last switch")]
    NotNoted,
    #[error("of a guest that shares memory, only the last contents of a block are known")]
    SharedWrites,
    #[error("a guest that shares memory asks for nothing that could fail")]
    SharedFault,
    #[error("the guest asked for more than {limit} things")]
    TooManyRequests { limit: usize },
    #[error("the fault is aimed past the end: the device has {sectors} sectors of {} bits", 8 * SECTOR_BYTES)]
    NoSuchFault { sectors: u64 },
    #[error("no fault was injected since the last switch")]
    NotInjected,
    #[error("{} is the base image or the write log itself", .0.display())]
    OwnSource(PathBuf),
    #[error("cannot look for data of the base image from byte {at} on")]
    Holes { at: u64, source: io::Error },
    #[error("no memory to share with the guest")]
    Shared { source: io::Error },
    #[error("the guest asks its disk for something while another state is put there")]
    NotQuiet,
    #[error("too many blocks that lie in several places: there is no room to put them together")]
    ArenaFull,
}

impl DiskError {
    /// For `map_err`: a failed call on the file at `path`.
    pub fn file(call: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File { call, path, source }
    }
}

/// Why a file is not a write log.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    #[error("no write log: {bytes} bytes, less than one sector of {SECTOR_BYTES}")]
    TooShort { bytes: usize },
    #[error("no write log: magic {found:#x}, expected {expected:#x}")]
    Magic { found: u64, expected: u64 },
    #[error("write log of version {found}, only {known} is known")]
    Version { found: u64, known: u64 },
    #[error("sector size {unit}, expected a power of two from {SECTOR_BYTES} to {limit}")]
    Unit { unit: u64, limit: u64 },
    #[error("entry {number} of {count}")]
    Entry {
        number: u64,
        count: u64,
        source: EntryError,
    },
}

/// What is wrong with one entry of a log.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    #[error("truncated: it ends at byte {end}, the log at byte {length}")]
    Truncated { end: u64, length: u64 },
    #[error("it reaches past 2^64: {count} units of {unit} bytes")]
    TooLarge { count: u64, unit: u64 },
    #[error(
        "it covers {sectors} sectors from sector {sector}, the device ends at sector {device}"
    )]
    PastEnd {
        sector: u64,
        sectors: u64,
        device: u64,
    },
}

/// Why a crash state does not fit a log.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    #[error("state of {prefix} entries, the log has {entries}")]
    Prefix { prefix: u64, entries: usize },
    #[error("dropped entry {entry} does not lie below the prefix {prefix}")]
    Dropped { entry: u64, prefix: u64 },
    #[error("dropped entries must ascend, {0} comes before {1}")]
    Order(u64, u64),
    #[error("a state of 0 entries has no last entry to tear")]
    NothingToTear,
    #[error("the last entry is torn after {sectors} sectors, it has {of}")]
    Torn { sectors: u64, of: u64 },
}

/// Why a log cannot be read in an order.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    #[error("an order without a log")]
    NoLog,
    #[error("chunks of {0} sectors, expected 1, 2, 4 or 8")]
    Unit(u64),
    #[error("it names entry {entry}, the log has {entries}")]
    Unknown { entry: u64, entries: usize },
    #[error("it names entry {0} twice")]
    Twice(u64),
    #[error("it names entry {0}, which changes nothing")]
    ChangesNothing(u64),
    #[error("it leaves out entry {0}, which changes the device")]
    LeftOut(u64),
    #[error("the log has {chunks} chunks, the limit is {limit}")]
    TooManyChunks { chunks: u64, limit: u64 },
}

/// Why a crash time cannot be explored.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExploreError {
    #[error("the device was opened without an order, so its log is not split into chunks")]
    NoOrder,
    #[error("chunk {0} is both absent and volatile")]
    AbsentAndVolatile(u64),
    #[error(
        "no state may be visited: the answer could not be told from that of a finished exploration"
    )]
    NoneToVisit,
    #[error("{asked} {what}, the limit is {limit}")]
    Limit {
        what: &'static str,
        asked: u64,
        limit: usize,
    },
    #[error("the answer names more than {limit} chunks")]
    TooLong { limit: usize },
}

/// Why no further guest can be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("{call}")]
    Call {
        call: &'static str,
        source: io::Error,
    },
    /// The library's error does not implement `std::error::Error`, so it is shown, not a source.
    #[error("vhost-user: {0}")]
    Daemon(vhost_user_backend::Error),
}

impl ServeError {
    /// For `map_err`: a failed call.
    pub fn call(call: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Call { call, source }
    }
}
