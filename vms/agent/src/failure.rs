//! What can go wrong with a request: the agent's only error type.

use std::fmt;

use powercut_protocol::{chain, FrameError};
use rustix::io::Errno;

/// A request that could not be carried out; becomes `AgentReply::Failed`.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failure {
    /// A system call, and what it was for.
    #[error("{what}: {}", Named(*errno))]
    Call {
        what: String,
        #[source]
        errno: Errno,
    },
    #[error("device {0} does not appear")]
    NoDevice(String),
    #[error("virtio-serial port {0:?} does not appear")]
    NoPort(String),
    #[error("{path} holds {text:?}, not a device number MAJOR:MINOR")]
    NoDeviceNumber { path: String, text: String },
    #[error("DM_TABLE_STATUS {name}: {lines} lines, expected 1")]
    TargetStatus { name: String, lines: u32 },
    #[error("{disk} cannot be cut at bytes {begins:?}: each part needs whole sectors")]
    CannotCut { disk: String, begins: Vec<u64> },
    #[error("the steps that {what} the stack: {said}")]
    Steps { what: &'static str, said: String },
    #[error("{0}")]
    Tracing(String),
    #[error("{log} has no room for {bytes} bytes of events")]
    NoRoom { log: String, bytes: usize },
    #[error("no recording is under way")]
    NoRecording,
    #[error("no recovered file system is mounted")]
    NothingRecovered,
    #[error("nothing was remembered of what lies outside the folder")]
    NothingRemembered,
    #[error("operation {0}: data has room for 65535 writers")]
    TooManyWriters(u32),
    #[error("{0}: not a path outside the mount point")]
    NotOutside(String),
    #[error("the tree has more than the {limit} names of a reply: it was not looked at whole")]
    TooManyEntries { limit: usize },
    #[error("the tree takes more than the {limit} bytes of a reply: it was not looked at whole")]
    TreeTooLarge { limit: usize },
    #[error("powercut.{name}={value} on the kernel's command line: expected {expected}")]
    Setting {
        name: &'static str,
        value: String,
        expected: &'static str,
    },
    #[error("the reply cannot be sent: {0}")]
    Reply(String),
}

impl Failure {
    /// The errno nearest to it.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Call { errno, .. } => *errno,
            Self::NoDevice(_) | Self::NoPort(_) => Errno::NOENT,
            Self::TooManyWriters(_) => Errno::OVERFLOW,
            Self::TreeTooLarge { .. } | Self::TooManyEntries { .. } => Errno::TOOBIG,
            Self::Tracing(_) => Errno::IO,
            Self::NoRoom { .. } => Errno::NOSPC,
            Self::TargetStatus { .. } => Errno::PROTO,
            Self::Reply(_) => Errno::MSGSIZE,
            Self::NoDeviceNumber { .. }
            | Self::CannotCut { .. }
            | Self::Steps { .. }
            | Self::NoRecording
            | Self::NothingRecovered
            | Self::NothingRemembered
            | Self::NotOutside(_)
            | Self::Setting { .. } => Errno::INVAL,
        }
    }
}

impl From<FrameError> for Failure {
    fn from(error: FrameError) -> Self {
        Self::Reply(chain(&error))
    }
}

/// Turn an errno into a [`Failure`]: `open(path).map_err(failed("open a/b"))`.
pub fn failed(what: impl Into<String>) -> impl FnOnce(Errno) -> Failure {
    let what = what.into();
    move |errno| Failure::Call { what, errno }
}

/// The errno in an I/O error of the standard library; EIO if it carries none.
pub fn errno_of(error: &std::io::Error) -> Errno {
    error
        .raw_os_error()
        .map_or(Errno::IO, Errno::from_raw_os_error)
}

/// Shows an errno as `EUCLEAN (117)`.
pub struct Named(pub Errno);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", name(self.0), self.0.raw_os_error())
    }
}

/// Symbolic name of an errno that the file and device calls here can return; `errno` for others.
fn name(errno: Errno) -> &'static str {
    match errno {
        Errno::PERM => "EPERM",
        Errno::NOENT => "ENOENT",
        Errno::INTR => "EINTR",
        Errno::IO => "EIO",
        Errno::NXIO => "ENXIO",
        Errno::TOOBIG => "E2BIG",
        Errno::NOEXEC => "ENOEXEC",
        Errno::BADF => "EBADF",
        Errno::AGAIN => "EAGAIN",
        Errno::NOMEM => "ENOMEM",
        Errno::ACCESS => "EACCES",
        Errno::FAULT => "EFAULT",
        Errno::NOTBLK => "ENOTBLK",
        Errno::BUSY => "EBUSY",
        Errno::EXIST => "EEXIST",
        Errno::XDEV => "EXDEV",
        Errno::NODEV => "ENODEV",
        Errno::NOTDIR => "ENOTDIR",
        Errno::ISDIR => "EISDIR",
        Errno::INVAL => "EINVAL",
        Errno::NFILE => "ENFILE",
        Errno::MFILE => "EMFILE",
        Errno::NOTTY => "ENOTTY",
        Errno::TXTBSY => "ETXTBSY",
        Errno::FBIG => "EFBIG",
        Errno::NOSPC => "ENOSPC",
        Errno::SPIPE => "ESPIPE",
        Errno::ROFS => "EROFS",
        Errno::MLINK => "EMLINK",
        Errno::PIPE => "EPIPE",
        Errno::RANGE => "ERANGE",
        Errno::NAMETOOLONG => "ENAMETOOLONG",
        Errno::NOSYS => "ENOSYS",
        Errno::NOTEMPTY => "ENOTEMPTY",
        Errno::LOOP => "ELOOP",
        Errno::NODATA => "ENODATA",
        Errno::TIME => "ETIME",
        Errno::BADMSG => "EBADMSG",
        Errno::OVERFLOW => "EOVERFLOW",
        Errno::ILSEQ => "EILSEQ",
        Errno::OPNOTSUPP => "EOPNOTSUPP",
        Errno::PROTO => "EPROTO",
        Errno::TIMEDOUT => "ETIMEDOUT",
        Errno::MSGSIZE => "EMSGSIZE",
        Errno::STALE => "ESTALE",
        Errno::UCLEAN => "EUCLEAN",
        Errno::DQUOT => "EDQUOT",
        Errno::NOMEDIUM => "ENOMEDIUM",
        Errno::NOKEY => "ENOKEY",
        Errno::KEYREJECTED => "EKEYREJECTED",
        _ => "errno",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_errors_have_their_symbol_and_others_their_number() {
        let failure = failed("openat a/b")(Errno::UCLEAN);
        assert_eq!(failure.to_string(), "openat a/b: EUCLEAN (117)");
        assert_eq!(failure.errno(), Errno::UCLEAN);
        let other = failed("x")(Errno::from_raw_os_error(133));
        assert_eq!(other.to_string(), "x: errno (133)");
    }
}
