//! What went wrong, in words and as an errno.

use rustix::io::Errno;

/// A request that could not be carried out; becomes `AgentReply::Failed`.
#[derive(Clone, Debug)]
pub struct Failure {
    pub what: String,
    pub errno: i32,
}

/// Make a [`Failure`] of an errno: `open(path).map_err(failed("open a/b"))`.
pub fn failed(what: impl Into<String>) -> impl FnOnce(Errno) -> Failure {
    let what = what.into();
    move |errno| Failure {
        what: describe(&what, errno),
        errno: errno.raw_os_error(),
    }
}

/// `what: EUCLEAN (117)`.
pub fn describe(what: &str, errno: Errno) -> String {
    format!("{what}: {} ({})", name(errno), errno.raw_os_error())
}

/// The errno that an I/O error of the standard library carries; EIO for one of its own making.
pub fn errno_of(error: &std::io::Error) -> Errno {
    error
        .raw_os_error()
        .map_or(Errno::IO, Errno::from_raw_os_error)
}

/// Symbolic name of an errno that the file and device calls here can give; `errno` for others.
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
        assert_eq!(
            describe("openat a/b", Errno::UCLEAN),
            "openat a/b: EUCLEAN (117)"
        );
        assert_eq!(
            describe("x", Errno::from_raw_os_error(133)),
            "x: errno (133)"
        );
    }
}
