//! Trees that are made by differences, in a directory in memory: what a crash may leave of a program's files where
//! the file system is only rules.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::{
        ffi::OsStrExt,
        fs::{lchown, symlink, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use powercut_protocol::{ChangeKind, TreeChange};
use rustix::mount::{mount, MountFlags};

use crate::{
    failure::{errno_of, failed, Failure},
    mounts::MOUNT_POINT,
};

/// Bytes of a file that is made.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Mount an empty directory in memory at the mount point.
pub fn mount_empty() -> Result<(), Failure> {
    mount("powercut", MOUNT_POINT, "tmpfs", MountFlags::empty(), None)
        .map_err(failed("mount tmpfs"))
}

/// Make changes, in their order. `bytes`: what pieces of files are cut from.
pub fn change(changes: &[TreeChange], bytes: &[u8]) -> Result<(), Failure> {
    changes.iter().try_for_each(|one| {
        let path = below(&one.path);
        make(one, &path, bytes)
            .map_err(|e| failed(format!("make {}", path.display()))(errno_of(&e)))
    })
}

fn below(path: &[u8]) -> PathBuf {
    Path::new(MOUNT_POINT).join(OsStr::from_bytes(path))
}

fn make(one: &TreeChange, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let seen = fs::symlink_metadata(path).ok();
    let stays =
        one.kind == ChangeKind::Directory && seen.as_ref().is_some_and(fs::Metadata::is_dir);
    match seen {
        Some(_) if stays => {}
        Some(seen) if seen.is_dir() => fs::remove_dir_all(path)?,
        Some(_) => fs::remove_file(path)?,
        None => {}
    }
    match one.kind {
        ChangeKind::Remove => return Ok(()),
        ChangeKind::Directory if stays => {}
        ChangeKind::Directory => fs::create_dir(path)?,
        ChangeKind::File => fs::write(path, contents(one, bytes)?)?,
        ChangeKind::Symlink => symlink(OsStr::from_bytes(&one.target), path)?,
        ChangeKind::Link => return fs::hard_link(below(&one.target), path),
    }
    lchown(path, Some(one.uid), Some(one.gid))?;
    match one.kind {
        ChangeKind::Symlink => Ok(()),
        _ => fs::set_permissions(path, fs::Permissions::from_mode(one.mode)),
    }
}

fn contents(one: &TreeChange, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let wrong = || io::Error::from_raw_os_error(libc::EINVAL);
    if one.size > FILE_BYTES_MAX {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    let mut made = vec![0; one.size as usize];
    for (from, at, length) in &one.pieces {
        let from = *from as usize..from.saturating_add(*length) as usize;
        let at = *at as usize..at.saturating_add(*length) as usize;
        let piece = bytes.get(from).ok_or_else(wrong)?;
        made.get_mut(at).ok_or_else(wrong)?.copy_from_slice(piece);
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A piece beyond the bytes, or beyond the file, would end the agent, which is the guest's first process.
    #[test]
    fn pieces_that_do_not_fit_are_refused() {
        let file = |size, pieces| TreeChange {
            size,
            pieces,
            ..TreeChange::default()
        };
        let bytes = b"abcdef";
        let made = contents(&file(5, vec![(0, 1, 3), (4, 2, 1)]), bytes).unwrap();
        assert_eq!(made, b"\0aec\0");
        for pieces in [
            vec![(4, 0, 3)],
            vec![(0, 4, 2)],
            vec![(u64::MAX, 0, 2)],
            vec![(0, u64::MAX, 2)],
        ] {
            assert!(contents(&file(5, pieces), bytes).is_err());
        }
        assert!(contents(&file(u64::MAX, vec![]), bytes).is_err());
    }
}
