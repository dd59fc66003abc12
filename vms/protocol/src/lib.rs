//! The messages between the host, the agent and the disk.
//!
//! One frame is a little-endian `u32` length followed by that many bytes of MessagePack. Every
//! message is a map with a `type` entry that names the variant. A request to an agent comes in pieces, each but
//! the first at the agent's asking ([`receive_in_pieces`]). The host's side is
//! `harness/guests/wire.py`; both sides are tested against `vms/protocol/vectors.json`.

use serde::{Deserialize, Serialize};
pub use serde_bytes::ByteBuf;

mod frame;
pub mod limits;
mod names;
pub mod pattern;

pub use frame::{chain, decode, receive, receive_in_pieces, send, FrameError, MORE};
pub use names::{
    Call, ChangeKind, DifferenceKind, ExtentKind, FileKind, HoldOrder, OperationFlag, OperationKind,
};

/// Raised whenever a message changes its meaning; both ends reject any other number.
pub const PROTOCOL_VERSION: u32 = 20;

/// One step of a workload. Fields that a kind does not use are empty or zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    pub kind: OperationKind,
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
    pub flags: Vec<OperationFlag>,
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
    /// Bytes of the disk at which further devices begin, behind the first: `/dev/second` in `options`, or the
    /// members of `stack`. None: the disk is one device.
    pub parts: Vec<u64>,
    /// `Recover` mounts it read-only first, as a boot does with its root file system, and then remounts it.
    pub read_only_first: bool,
    /// What lies between the parts and the file system.
    pub stack: Option<StackSpec>,
}

impl MountSpec {
    /// Whether the disk is divided into parts; a stack may have one member.
    #[must_use]
    pub fn is_divided(&self) -> bool {
        !self.parts.is_empty() || self.stack.is_some()
    }
}

/// How a stack (RAID, a thin volume) is started on the parts of a disk, `/dev/member-0` and so on, and stopped:
/// shell scripts, of which no command may fail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackSpec {
    /// The device that holds the file system once it is started.
    pub device: String,
    pub start: String,
    pub stop: String,
}

/// What lies outside the folder in which operations run, on a disk that somebody has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutsideSpec {
    /// Where the file system is mounted, beside the mount point.
    pub root: String,
    /// In the root: left out.
    pub folder: String,
    /// How many names are looked at; of a tree with more, some are drawn.
    pub names: u32,
    /// How many bytes of contents are read.
    pub bytes: u64,
}

/// The host's requests to the agent, which answers each with one [`AgentReply`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AgentRequest {
    /// The guest was saved before it had disks, and goes on in another process: find one that was attached since,
    /// take random numbers of its own, and set the clock.
    Wake {
        device: String,
        /// Bytes for the kernel's random numbers: guests that go on from one state begin with the same ones.
        #[serde(with = "serde_bytes")]
        seed: Vec<u8>,
        /// Seconds since the epoch.
        clock_s: u64,
    },
    /// Stack dm-log-writes on `data`, logging to `log`, and mount it at the mount point. `whole`: note the calls of
    /// the program that is run, one at most, each with the bytes that it wrote (`vms/agent/src/whole.rs`).
    RecordStart {
        data: String,
        log: String,
        mount: MountSpec,
        whole: bool,
    },
    /// Carry out the operations in order, each between the marks `begin N` and `ack N`,
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
        /// Compare what lies outside the folder with what `Remember` saw.
        outside: bool,
    },
    /// Mount as `Recover` does, look at what lies outside the folder, and unmount.
    Remember {
        device: String,
        mount: MountSpec,
        clock_s: u64,
        outside: OutsideSpec,
    },
    /// Run a program in the mount point of a file system that `Recover` left mounted.
    RunProgram { argv: Vec<String>, deadline_s: u32 },
    /// Run a program beside the disk, whose parts are there as `mount` has them. Nothing is mounted, and no
    /// stack is started: the program does that itself where it has to.
    RunBeside {
        device: String,
        mount: MountSpec,
        clock_s: u64,
        argv: Vec<String>,
        deadline_s: u32,
    },
    /// Unmount what `Recover` left mounted.
    Unmount {},
    /// Mount a recovered file system that was unmounted again, and walk it. Then, if it is to be written to: make and
    /// write a file in its root and in its directories, remove all that is there but the names in `keep`, make files
    /// again, and unmount. Mount it once more, read them back, remove them, and unmount.
    Use {
        device: String,
        mount: MountSpec,
        clock_s: u64,
        /// What the first mount showed.
        before: Looks,
        /// Read what files hold, too.
        read_contents: bool,
        write: bool,
        /// Names in the root.
        keep: Vec<String>,
        deadline_s: u32,
    },
    /// Put a file into the guest's root, outside the mount point, or append to one that is there.
    PutFile {
        path: String,
        mode: u32,
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
        append: bool,
    },
    /// Run a program in an empty directory at the mount point, and answer with [`AgentReply::ProgramDone`], whose
    /// output is what it did to the directory: `vms/agent/src/whole.rs` has the form.
    NoteCalls { argv: Vec<String>, deadline_s: u32 },
    /// Make one tree after the other at the mount point, and run a program on each. Bytes are those that `NoteCalls`
    /// noted last, or that were put where it keeps them since (`vms/agent/src/whole.rs`, `BYTES`); the first tree after
    /// either is made of an empty directory. The answer is [`AgentReply::TreesTried`].
    TryTrees {
        trees: Vec<TreeToTry>,
        /// Where the program finds what was acknowledged, a line each.
        acknowledged_at: String,
        acknowledged: Vec<String>,
        argv: Vec<String>,
        /// Of each run of the program.
        deadline_s: u32,
    },
}

/// A tree, by what differs from the one before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeToTry {
    pub changes: Vec<TreeChange>,
    /// How many acknowledgements the program is told.
    pub acknowledgements: u32,
}

/// One name that is made, or is made anew, or is removed with all below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeChange {
    /// Relative to the mount point, raw bytes; empty: the directory itself, of which the attributes are set.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    pub kind: ChangeKind,
    /// Permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Of a file, in bytes; what no piece covers is zeros.
    pub size: u64,
    /// Of a file, later ones over earlier ones: where a piece begins in the bytes that were noted, where in the
    /// file, and its length.
    pub pieces: Vec<(u64, u64, u64)>,
    /// The contents of a symbolic link; another name of the same file for a `link`.
    #[serde(with = "serde_bytes")]
    pub target: Vec<u8>,
    /// All extended attributes that it is to have.
    #[serde(default)]
    pub xattrs: Vec<Xattr>,
}

/// What a program said of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// Exit code, or 128 + signal; none if it was stopped at its deadline.
    pub exit_code: Option<i32>,
    #[serde(with = "serde_bytes")]
    pub output: Vec<u8>,
    /// The files that it opened, relative to the mount point; none if that is not known.
    pub opened: Option<Vec<ByteBuf>>,
}

/// The agent's replies. `Hello` comes once, unsolicited, when the agent is up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AgentReply {
    Hello {
        protocol: u32,
        /// `uname -r` and `uname -v`.
        release: String,
        version: String,
        /// Modules that could not be loaded.
        module_errors: Vec<ModuleError>,
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
        /// Whether that line reports that the target stopped logging: the log is incomplete.
        logging_disabled: bool,
        unmount_errno: i32,
        /// Kernel messages since the recording began.
        kernel_log: Vec<Said>,
        /// Whether `kernel_log` has all of them.
        log_complete: bool,
        events: RecordedEvents,
    },
    Recovered(Recovered),
    ProgramDone {
        /// Exit code, or 128 + signal; none if it was stopped at its deadline.
        exit_code: Option<i32>,
        #[serde(with = "serde_bytes")]
        output: Vec<u8>,
    },
    Unmounted {
        unmount_errno: i32,
        kernel_log: Vec<String>,
        log_complete: bool,
    },
    TreesTried {
        tried: Vec<Tried>,
    },
    OutsideSeen(OutsideSeen),
    Used {
        /// 0, or the errno of mount(2).
        mount_errno: i32,
        /// What failed, but for want of space where there is none.
        errors: Vec<CallError>,
        /// Whether all was tried before the deadline.
        finished: bool,
        /// Of the last unmount.
        unmount_errno: i32,
        kernel_log: Vec<String>,
        log_complete: bool,
        differences: Vec<Difference>,
        /// Of the mount after the writing.
        remount_errno: i32,
        /// What the second mount showed, before anything was written; its `contents` are empty if nobody read them.
        looks: Looks,
        /// That tree, if it is not the one of the first mount.
        entries: Vec<TreeEntry>,
    },
    Done {},
    /// The request could not be carried out; the agent lives on and holds nothing mounted.
    Failed {
        what: String,
        errno: i32,
    },
}

/// Where a recording's events are: when its writes were submitted and completed, as lines of text at the
/// end of the log device, behind the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedEvents {
    /// Bytes.
    pub offset: u64,
    pub bytes: u64,
    /// Bytes of the notes of calls, behind the events; 0: there are none.
    pub notes: u64,
    /// Why there are none; empty if there are.
    pub lacking: String,
}

/// What the kernel said while a workload was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// The operation that was under way; none at the mount and the unmount.
    pub operation: Option<u32>,
    pub lines: Vec<String>,
}

/// How one operation went. It succeeded if there is neither an error nor an exit code other than 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationResult {
    pub index: u32,
    /// The call that failed.
    pub error: Option<CallError>,
    /// For `run`, if the program ended by itself: its exit code, or 128 + signal.
    pub exit_code: Option<i32>,
    /// For `run`: what the program wrote to its standard output and error.
    #[serde(with = "serde_bytes")]
    pub output: Vec<u8>,
}

/// A call that failed in the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallError {
    pub call: Call,
    /// Relative to the mount point, raw bytes.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// The extended attribute concerned, or the name that a directory or list holds twice; else empty.
    pub name: String,
    pub errno: i32,
}

/// A file that was written and is not what was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Relative to the mount point, raw bytes.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    pub kind: DifferenceKind,
    /// Bytes that were written, the size in bytes that was read back, or the first offset that differs.
    pub found: u64,
}

/// A module that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleError {
    pub name: String,
    pub errno: i32,
}

/// What was recovered from one crash state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recovered {
    /// 0, or the errno of mount(2).
    pub mount_errno: i32,
    /// The tree below the mount point in path order, the root (path "") first.
    pub entries: Vec<TreeEntry>,
    /// What could not be read.
    pub walk_errors: Vec<CallError>,
    pub unmount_errno: i32,
    /// Kernel messages since the previous request.
    pub kernel_log: Vec<String>,
    /// Whether no message is missing: the kernel's ring may overrun, and a reply's share of it is bounded.
    pub log_complete: bool,
    /// Microseconds in the guest.
    pub mount_us: u64,
    pub walk_us: u64,
    pub unmount_us: u64,
    /// What the steps that start the stack said if one failed; then nothing was mounted. Empty: they succeeded.
    pub not_started: String,
    /// Whether it refuses to be written to.
    pub read_only: bool,
    pub looks: Looks,
    /// What changed outside the folder.
    pub outside: Vec<OutsideChange>,
}

/// Something outside the folder that was as `then` when it was remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutsideChange {
    /// Relative to the root of the file system, which is "".
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    pub what: String,
    pub then: String,
    pub now: String,
}

/// What was remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutsideSeen {
    /// Names outside the folder.
    pub names: u64,
    /// Those that are compared: all of them, or those that were drawn.
    pub compared: u64,
    /// Regular files among these.
    pub files: u64,
    /// Those of which the contents are compared, and their bytes.
    pub files_read: u64,
    pub bytes_read: u64,
    /// Kernel messages since the previous request.
    pub kernel_log: Vec<String>,
}

/// Digests of a tree, xxh3-128 in hexadecimal: trees of which both are equal hold the same. Empty: not looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looks {
    /// Of names, kinds, permissions, owners, links, sizes of what is no directory, link targets and attributes.
    pub names: String,
    /// Of what regular files hold.
    pub contents: String,
}

/// One name in a recovered tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TreeEntry {
    /// Relative to the mount point, raw bytes.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    pub kind: FileKind,
    pub inode: u64,
    /// Permission bits only.
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    /// Allocated, in units of 512 bytes (st_blocks).
    pub blocks: u64,
    /// Contents of a symbolic link; of a device, its numbers, `major:minor`.
    #[serde(with = "serde_bytes")]
    pub target: Vec<u8>,
    pub xattrs: Vec<Xattr>,
    /// A regular file's contents, in order, without gaps.
    pub extents: Vec<Extent>,
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
pub struct Extent {
    pub kind: ExtentKind,
    /// File offset in bytes.
    pub start: u64,
    pub length: u64,
    pub value: u64,
    /// File offset at which `misplaced` data was written.
    pub origin: u64,
    #[serde(with = "serde_bytes")]
    pub data: Vec<u8>,
}

/// A crash state: which log entries, or parts of entries, reached the platter. On a device with an order
/// (see [`DiskRequest::Open`]), all numbers are those of chunks instead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The first `prefix` entries of the log ...
    pub prefix: u64,
    /// ... less these (indices below `prefix`, ascending) ...
    pub dropped: Vec<u64>,
    /// ... and of entry `prefix - 1` only this many sectors, when given.
    pub torn_sectors: Option<u64>,
}

/// A structure of a file system that counts mounts and the like, `size_bytes` long: on the device from byte `at` on, or
/// wherever a sector is `marked`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountCounter {
    /// What it begins with; empty for one that is in one place.
    #[serde(with = "serde_bytes")]
    pub marked: Vec<u8>,
    pub at: u64,
    pub size_bytes: u64,
    /// What of it has to be zeros, or it is none: offset, and length.
    pub zeros: Vec<(u64, u64)>,
    /// Where it counts: offset in it, and length.
    pub fields: Vec<(u64, u64)>,
    /// What a mount counts anew: alike in a state that is recovered, not in what recovery left.
    pub recounted: Vec<(u64, u64)>,
    /// The place of the CRC-32C of all before it, if it has one.
    pub crc32c_at: Option<u64>,
}

/// Which of a crash time's volatile chunks persisted: all if `kept`, else none, but for those in `except`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    pub kept: bool,
    /// Chunks whose fate is the other one, ascending.
    pub except: Vec<u64>,
}

/// A crash time at which the power may fail: see [`DiskRequest::Explore`]. Where nothing is volatile, one state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashTime {
    /// `dropped`: what has not persisted.
    pub state: State,
    pub volatile: Vec<u64>,
}

/// A crash time as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExploredCrashTime {
    /// States to visit and remember, each from another end of what is known. As long as there are any,
    /// or others to wait for, `known_outcomes` and `unexplored` count only part of the crash time.
    pub to_visit: Vec<Choice>,
    /// The outcomes of the crash time, each once.
    pub known_outcomes: Vec<KnownOutcome>,
    /// Branches that were not followed, because they deviate too often or there were `known_outcomes_max` known
    /// outcomes already. 0: every state of the crash time has the outcome of a known outcome (but for combinations of
    /// data).
    pub unexplored: u64,
    /// It has an end from which an earlier crash time wants a state, or there was no room left in the answer.
    pub waits: bool,
    /// Blocks that may hold more than [`limits::CONTENTS`] contents: only the two defaults were followed there, and
    /// what one chunk of another fate makes of them.
    pub crowded: u64,
}

/// A remembered outcome that a crash time may have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownOutcome {
    pub outcome: u64,
    /// One state that has it. Blocks that no visit read are as in the nearer default.
    pub choice: Choice,
    /// A main path with one data block changed; see [`DiskRequest::Explore`].
    pub data: bool,
    /// Blocks in which the path differs from the nearer default, data blocks aside.
    pub losses: u64,
}

/// What a guest asks of its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestKind {
    Read,
    Write,
    Flush,
}

/// A request of the guest, for `sectors` sectors of 512 bytes from `sector`; both 0 for a flush.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requested {
    pub kind: RequestKind,
    pub sector: u64,
    pub sectors: u64,
}

/// One thing that a disk does wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Of the requests that it befalls ...
    pub kind: RequestKind,
    /// ... which touch this sector (of a flush: any) ...
    pub sector: u64,
    /// ... the first one, counted from 1 ...
    pub nth: u64,
    /// ... and all that come later as well.
    pub stays: bool,
    pub effect: Effect,
}

/// What becomes of a request that a fault befalls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Effect {
    /// It fails, and nothing of it is done.
    Error {},
    /// This bit of the fault's sector has rotted, from the first request on: bit 0 is the lowest of the first byte.
    Flip { bit: u64 },
    /// A write is acknowledged, and nothing of it is done.
    Lose {},
    /// A write is acknowledged, and all of it lands from this sector on.
    Divert { sector: u64 },
}

/// The host's requests to the disk, which answers each with one [`DiskReply`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum DiskRequest {
    /// Show another base image (of the size of the device), with or without a write log.
    ///
    /// `order`: the entries that change the device, each once, in the order in which they were applied to it;
    /// none is the log's own. With an order, each entry is split at multiples of `unit_sectors` sectors of the
    /// device (1, 2, 4 or 8) into chunks, numbered from 0 in that order, ascending within an entry; states of
    /// the device are made of chunks.
    Open {
        base: String,
        log: Option<String>,
        order: Option<Vec<u64>>,
        unit_sectors: u64,
        /// Keep what was remembered on this very base image, whatever log it was shown with; else forget all.
        keep_memo: bool,
        /// To outcomes that are remembered, and in `BlockHashes`, blocks that differ in these alone are equal.
        mount_counters: Vec<MountCounter>,
    },
    /// Show this state; drop what the guest wrote on the one before.
    Switch { state: State },
    /// Make the file at `path` hold what the device shows now: state and the guest's writes.
    /// Costs what changed since the last call with that path.
    Image { path: String },
    /// Content of each of these states, without the guest's writes.
    Hashes { states: Vec<State> },
    /// Compare the device as the guest left it with the base after the whole of this log, whose entries were
    /// applied in `order`, as in `Open`.
    Compare {
        log: String,
        order: Option<Vec<u64>>,
    },
    /// From now on, hold completions of writes as long as the guest allows, as a slow disk may: until it asks for
    /// a flush, its queue is nearly full, or its machine, the process `guest`, sleeps; where that is not told or cannot
    /// be seen, until it has asked for nothing for `hold_us` microseconds. `order` says which are then released. None:
    /// complete each at once, as a disk does at first.
    Completions {
        hold_us: Option<u64>,
        guest: Option<u32>,
        order: HoldOrder,
        /// Of what `order` leaves to chance.
        seed: u64,
    },
    /// Counters since the last `Switch` or `Open`.
    Stats {},
    /// Count these 4 KiB blocks of what the device shows now as read, as if the guest had read them:
    /// a program on the host saw them in the `Image`.
    AlsoRead { blocks: Vec<u64> },
    /// Which blocks were read since the `Switch`. Refused if nothing was.
    Reads {},
    /// Keep the outcome of a state, a number that the host chose, with the contents of the blocks that were read
    /// of it, until an `Open` that does not keep them. A disk with the same base image and log says which were
    /// (`DiskReply::WereRead`); what this device shows does not matter.
    Learn {
        state: State,
        blocks: Vec<u64>,
        data: Vec<u64>,
        outcome: u64,
    },
    /// Contents of 4 KiB blocks of the device as it is now, the guest's writes included.
    BlockHashes { blocks: Vec<u64> },
    /// Keep the device as it is now, and note from here on which blocks of that the guest reads, until `RollBack`.
    /// `Reads` does not tell of these.
    Snapshot {},
    /// Show the device again as it was at the `Snapshot`.
    RollBack {},
    /// Note what the guest writes and flushes from here on, until the next `Switch`; not in snapshots.
    NoteWrites {},
    /// Write a log to the file at `path`, in the format of dm-log-writes: first each block in which the state shown
    /// differs from the base, then what was noted of the guest, in order, less what changed nothing. Refused if
    /// nothing was noted since the `Switch`.
    LogWrites { path: String },
    /// What the guest asked for since `NoteWrites`. Refused if nothing was noted, or if that was more than
    /// [`limits::REQUESTS`] requests.
    Requests {},
    /// Inject this fault until `EndFault` or the next `Switch`. A fault that was there is forgotten.
    Inject { fault: Fault },
    /// Err no more. A bit that rotted is as it was, unless the guest has written its sector since.
    EndFault {},
    /// Explore the states of crash times by what visits have read so far. Needs a device with an order, unless nothing
    /// is volatile: then a crash time is one state.
    ///
    /// Of the first `prefix` chunks, those in `absent` have not persisted; each of those in `volatile` may have
    /// persisted or not, independently; all others have. A state chooses for every volatile chunk, and two states
    /// that agree in all that a visit read have one outcome, so choices branch only at blocks that a visit
    /// read, in the order of reading, by their distinct contents.
    ///
    /// There are two defaults: every volatile chunk lost, and every one kept. A choice deviates from a default
    /// where its block has another content. Branches that deviate more than `losses` times from both are not followed.
    ///
    /// With `separate_data`, blocks that visits read only in the walk's data phase are not combined: a path
    /// follows one default in all of them, and each of their other contents is a state of its own, which
    /// differs from that path in this block alone. With `data_together`, paths follow each default in turn in all of
    /// them, whatever they chose before, so that only contents of neither default are states of their own.
    ///
    /// `to_visit_max` and `known_outcomes_max` are for all crash times together.
    Explore {
        crash_times: Vec<CrashTime>,
        losses: u64,
        separate_data: bool,
        data_together: bool,
        to_visit_max: u64,
        known_outcomes_max: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum DiskReply {
    Opened {
        size_bytes: u64,
        /// Log entries, marks and flushes included; with an order, chunks.
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
        /// 32 hexadecimal digits per state; equal exactly when the contents are (but for collisions).
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
    /// The 4 KiB blocks that were read since the `Switch`, before the guest had overwritten them, in the order of
    /// first reading. `data`: those that were read in the walk's data phase alone.
    WereRead {
        blocks: Vec<u64>,
        data: Vec<u64>,
    },
    BlocksHashed {
        /// 16 bytes per block, in the order of the request; equal exactly when the contents are (but for
        /// collisions), whichever block, state or base image they belong to.
        #[serde(with = "serde_bytes")]
        hashes: Vec<u8>,
    },
    RolledBack {
        /// The 4 KiB blocks that were read since the `Snapshot` before they had been overwritten, in that order.
        blocks: Vec<u64>,
    },
    /// `state`: the entries that make up the state; the guest's follow. `complete`: whether none is missing because
    /// there were too many.
    Logged {
        state: u64,
        entries: u64,
        complete: bool,
    },
    /// In the order in which they came.
    RequestsSeen {
        requests: Vec<Requested>,
    },
    /// `hits`: requests that the fault befell; of a bit that rotted, reads that showed it.
    FaultEnded {
        hits: u64,
    },
    /// The same for the same request and the same remembered visits.
    Explored {
        /// In the order of the request.
        crash_times: Vec<ExploredCrashTime>,
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
