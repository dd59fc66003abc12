//! The most that a message may hold. A guest under test may send anything: without limits a frame of 64 MiB
//! becomes gigabytes of objects. `harness/guests/wire.py` has the same numbers; `vms/protocol/vectors.json`
//! keeps the two in step.

/// Bytes of any frame: 64 MiB.
pub const FRAME_BYTES: usize = 64 << 20;
/// Bytes of a frame whose bulk is not one string of bytes (as in `put_file`, `program_done`): 16 MiB, since
/// objects take many times the room of their encoding.
pub const STRUCTURED_FRAME_BYTES: usize = 16 << 20;
/// Bytes of a request that are on their way to an agent at once. A line of UML that holds more than some 3.9 KiB is
/// throttled (`n_tty_check_throttle`), and its driver then gives up its interrupt for good (`line_throttle`).
pub const PIECE_BYTES: usize = 2048;
/// MessagePack values in a frame, keys and containers included.
pub const FRAME_VALUES: usize = 4 << 20;
/// Nested containers.
pub const FRAME_DEPTH: usize = 16;
/// Operations in a request, and their results.
pub const OPERATIONS: usize = 1024;
/// Flags of one operation.
pub const FLAGS: usize = 16;
/// Words of a command line.
pub const ARGUMENTS: usize = 65_536;
/// Modules that were refused; device-mapper targets.
pub const MODULES: usize = 1024;
/// What changed outside the folder of a workload.
pub const OUTSIDE_CHANGES: usize = 100;
/// Entries of a tree: more mean a cycle, or not a workload's tree.
pub const ENTRIES: usize = 50_000;
/// Runs of one file.
pub const EXTENTS: usize = 200_000;
/// Extended attributes of one name.
pub const XATTRS: usize = 4096;
/// Errors of a walk.
pub const WALK_ERRORS: usize = 50_000;
/// Lines of the kernel's log in a reply, and their bytes: more mean a kernel that repeats itself.
pub const LOG_LINES: usize = 4096;
pub const LOG_BYTES: usize = 1 << 20;
/// Crash states in a request, and results in its reply; states to visit and known outcomes of an exploration.
pub const STATES: usize = 50_000;
/// Log entries that a crash state drops, or that a crash time has; entries in an order.
pub const DROPPED: usize = 1 << 20;
/// Contents of one block that an exploration tells apart.
pub const CONTENTS: usize = 1 << 16;
/// Blocks in a request.
pub const BLOCKS: usize = 1 << 20;
/// Requests of a guest in one visit: some 300 are usual.
pub const REQUESTS: usize = 100_000;

/// All limits by name, to compare with the host's.
pub const ALL: &[(&str, usize)] = &[
    ("FRAME_BYTES", FRAME_BYTES),
    ("STRUCTURED_FRAME_BYTES", STRUCTURED_FRAME_BYTES),
    ("PIECE_BYTES", PIECE_BYTES),
    ("FRAME_VALUES", FRAME_VALUES),
    ("FRAME_DEPTH", FRAME_DEPTH),
    ("OPERATIONS", OPERATIONS),
    ("FLAGS", FLAGS),
    ("ARGUMENTS", ARGUMENTS),
    ("MODULES", MODULES),
    ("OUTSIDE_CHANGES", OUTSIDE_CHANGES),
    ("ENTRIES", ENTRIES),
    ("EXTENTS", EXTENTS),
    ("XATTRS", XATTRS),
    ("WALK_ERRORS", WALK_ERRORS),
    ("LOG_LINES", LOG_LINES),
    ("LOG_BYTES", LOG_BYTES),
    ("STATES", STATES),
    ("DROPPED", DROPPED),
    ("CONTENTS", CONTENTS),
    ("BLOCKS", BLOCKS),
    ("REQUESTS", REQUESTS),
];
