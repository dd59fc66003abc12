//! The extended attributes of one name.

use std::{
    ffi::CStr,
    os::fd::{AsRawFd, BorrowedFd},
};

use powercut_protocol::{Call, Xattr};
use rustix::{
    buffer::spare_capacity,
    fs::{fgetxattr, flistxattr, lgetxattr, llistxattr},
    io::{self, Errno},
};

/// XATTR_LIST_MAX and XATTR_SIZE_MAX of `include/uapi/linux/limits.h`.
pub const XATTR_BYTES: usize = 64 << 10;

/// What to read extended attributes from: an open file, or a name that cannot be opened.
pub enum Subject<'a> {
    Open(BorrowedFd<'a>),
    Name(Vec<u8>),
}

impl Subject<'_> {
    /// A name in an open directory, through /proc: there are no `*xattrat` calls before Linux 6.13,
    /// and a whole path may be too long.
    pub fn named(parent: BorrowedFd<'_>, name: &CStr) -> Self {
        let mut path = format!("/proc/self/fd/{}/", parent.as_raw_fd()).into_bytes();
        path.extend_from_slice(name.to_bytes());
        Self::Name(path)
    }

    fn list(&self, names: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Open(file) => flistxattr(file, spare_capacity(names)),
            Self::Name(name) => llistxattr(name.as_slice(), spare_capacity(names)),
        }
        .map(|_| ())
    }

    fn get(&self, name: &CStr, value: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Open(file) => fgetxattr(file, name, spare_capacity(value)),
            Self::Name(path) => lgetxattr(path.as_slice(), name, spare_capacity(value)),
        }
        .map(|_| ())
    }
}

/// A call that failed, and the attribute it failed for.
pub type XattrError = (Call, String, Errno);

/// What one subject has, in order of name, and each call that failed.
#[derive(Debug, Default)]
pub struct Found {
    pub xattrs: Vec<Xattr>,
    pub errors: Vec<XattrError>,
}

/// Buffers for all subjects.
pub struct Reader {
    names: Vec<u8>,
    value: Vec<u8>,
}

impl Reader {
    pub fn new() -> Self {
        Self {
            names: Vec::with_capacity(XATTR_BYTES),
            value: Vec::with_capacity(XATTR_BYTES),
        }
    }

    /// All attributes of `subject`. On a file system without extended attributes there are none.
    pub fn read(&mut self, subject: &Subject<'_>) -> Found {
        let mut found = Found::default();
        self.names.clear();
        match subject.list(&mut self.names) {
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(errno) => found.errors.push((Call::Listxattr, String::new(), errno)),
        }
        let mut names = split(&self.names, &mut found.errors);
        names.sort_unstable();
        for (i, name) in names.iter().enumerate() {
            let shown = text(name);
            if i > 0 && names[i - 1] == *name {
                // The host keeps one per name: the other would be hidden.
                found.errors.push((Call::Listxattr, shown, Errno::EXIST));
                continue;
            }
            self.value.clear();
            match subject.get(name, &mut self.value) {
                Ok(()) => found.xattrs.push(Xattr {
                    name: shown,
                    value: self.value.clone(),
                }),
                Err(errno) => {
                    found.errors.push((Call::Getxattr, shown, errno));
                }
            }
        }
        found
    }
}

/// A name as it is, or with escapes if it is no text: two that differ must not become one.
fn text(name: &CStr) -> String {
    match name.to_str() {
        Ok(text) => text.to_owned(),
        Err(_) => name.to_bytes().escape_ascii().to_string(),
    }
}

/// The names of a list, each of which must end in NUL; EIO for one that does not.
fn split<'a>(list: &'a [u8], errors: &mut Vec<XattrError>) -> Vec<&'a CStr> {
    let mut names = Vec::new();
    for name in list.split_inclusive(|b| *b == 0) {
        match CStr::from_bytes_with_nul(name) {
            Ok(name) => names.push(name),
            Err(_) => errors.push((Call::Listxattr, String::new(), Errno::IO)),
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_end_is_an_error() {
        let mut errors = Vec::new();
        assert_eq!(
            split(b"user.a\0user.b\0", &mut errors),
            [c"user.a", c"user.b"]
        );
        assert!(errors.is_empty());
        assert_eq!(split(b"user.a\0user.b", &mut errors), [c"user.a"]);
        assert_eq!(errors, [(Call::Listxattr, String::new(), Errno::IO)]);
        assert!(split(b"", &mut errors).is_empty());
    }

    #[test]
    fn a_list_that_fails_is_an_error() {
        let found = Reader::new().read(&Subject::Name(b"/no/such/file".to_vec()));
        assert!(found.xattrs.is_empty());
        assert_eq!(
            found.errors,
            [(Call::Listxattr, String::new(), Errno::NOENT)]
        );
    }

    /// They became one, and the host refused the reply: the state had no verdict.
    #[test]
    fn names_that_are_not_text_stay_apart() {
        let path = std::env::temp_dir().join(format!("powercut-xattrs-{}", std::process::id()));
        std::fs::write(&path, b"").unwrap();
        for name in [
            &b"user.caf\xe9"[..],
            b"user.caf\xe8",
            "user.caf\u{e9}".as_bytes(),
        ] {
            match rustix::fs::lsetxattr(&path, name, b"v", rustix::fs::XattrFlags::empty()) {
                // A file system without them, such as an old tmpfs: nothing to see.
                Err(Errno::OPNOTSUPP) => return,
                done => done.unwrap(),
            }
        }
        let found = Reader::new().read(&Subject::Name(path.to_str().unwrap().into()));
        std::fs::remove_file(&path).unwrap();
        let names: Vec<_> = found.xattrs.iter().map(|one| &*one.name).collect();
        assert_eq!(names, ["user.caf\u{e9}", "user.caf\\xe8", "user.caf\\xe9"]);
        assert!(found.errors.is_empty());
    }
}
