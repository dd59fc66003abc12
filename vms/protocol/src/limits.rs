//! What a message may hold at most. A guest under test may send anything: without limits a frame of 64 MiB
//! becomes gigabytes of objects. `harness/guests/wire.py` has the same numbers; `vms/protocol/vectors.json`
//! holds the two together.

/// Bytes of any frame: 64 MiB.
pub const FRAME_BYTES: usize = 64 << 20;
/// Bytes of a frame whose bulk is not one string of bytes (`put_file`, `program_done`), since objects take
/// many times the room of their encoding: 16 MiB.
pub const STRUCTURED_FRAME_BYTES: usize = 16 << 20;
/// MessagePack values in a frame, keys and containers counted.
pub const FRAME_VALUES: usize = 4 << 20;
/// Containers inside each other.
pub const FRAME_DEPTH: usize = 16;
/// Operations in a request, and their results.
pub const OPERATIONS: usize = 1024;
/// Flags of one operation.
pub const FLAGS: usize = 16;
/// Words of a command line.
pub const ARGUMENTS: usize = 65_536;
/// Modules that were refused; device-mapper targets.
pub const MODULES: usize = 1024;
/// Entries of a tree: more is a cycle, or no tree of a workload.
pub const ENTRIES: usize = 50_000;
/// Runs of one file.
pub const RUNS: usize = 200_000;
/// Extended attributes of one name.
pub const XATTRS: usize = 4096;
/// What could not be read of a tree.
pub const WALK_ERRORS: usize = 50_000;
/// Lines of the kernel's log in a reply, and their bytes: more is a kernel that repeats itself.
pub const LOG_LINES: usize = 4096;
pub const LOG_BYTES: usize = 1 << 20;
/// Crash states in a request, and answers to it.
pub const STATES: usize = 50_000;
/// Log entries that a crash state drops.
pub const DROPPED: usize = 1 << 20;
/// Blocks in a request.
pub const BLOCKS: usize = 1 << 20;

/// All of them, by name, for the comparison with the host's.
pub const ALL: &[(&str, usize)] = &[
    ("FRAME_BYTES", FRAME_BYTES),
    ("STRUCTURED_FRAME_BYTES", STRUCTURED_FRAME_BYTES),
    ("FRAME_VALUES", FRAME_VALUES),
    ("FRAME_DEPTH", FRAME_DEPTH),
    ("OPERATIONS", OPERATIONS),
    ("FLAGS", FLAGS),
    ("ARGUMENTS", ARGUMENTS),
    ("MODULES", MODULES),
    ("ENTRIES", ENTRIES),
    ("RUNS", RUNS),
    ("XATTRS", XATTRS),
    ("WALK_ERRORS", WALK_ERRORS),
    ("LOG_LINES", LOG_LINES),
    ("LOG_BYTES", LOG_BYTES),
    ("STATES", STATES),
    ("DROPPED", DROPPED),
    ("BLOCKS", BLOCKS),
];
