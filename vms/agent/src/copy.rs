//! `powercut-on-copy PROGRAM...`: run a program on a copy of the recovered file system.
//!
//! An application that starts after a power cut first recovers its own files, so it writes. Here it writes
//! to a copy in memory that only it sees, at the usual mount point. fsck then sees what the kernel's
//! recovery left, and the program's answer depends on the files' contents alone.
//!
//! The copy has contents, kinds, hard links, modes and owners; no extended attributes. All times are the epoch: an
//! answer is kept for states whose files differ in times alone.

use std::{
    collections::HashMap,
    fs, io,
    os::unix::{
        fs::{symlink, MetadataExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
};

use rustix::{
    fs::{chownat, mknodat, utimensat, AtFlags, FileType, Mode, Timespec, Timestamps, CWD},
    mount::{
        mount, mount_change, mount_move, unmount, MountFlags, MountPropagationFlags, UnmountFlags,
    },
    process::{Gid, Uid},
};

use crate::mounts::MOUNT_POINT;

/// The name that the program goes by in the guest.
pub const NAME: &str = "powercut-on-copy";

/// Where the copy is made before it is moved over the mount point.
const COPY: &str = "/tmp/powercut-copy";

/// Become the program, in the copy. Returns only if that fails.
pub fn run(argv: &[String]) -> Result<(), String> {
    let (program, arguments) = argv
        .split_first()
        .ok_or_else(|| format!("usage: {NAME} PROGRAM [ARGUMENT...]"))?;
    replace_mount().map_err(|e| format!("copy {MOUNT_POINT}: {e}"))?;
    let error = Command::new(program).args(arguments).exec();
    Err(format!("{program}: {error}"))
}

/// Replace what is mounted by a copy, in a mount namespace of this process alone. From then on the namespace
/// holds nothing of the recovered file system, which could not be unmounted otherwise.
fn replace_mount() -> io::Result<()> {
    // SAFETY: this process has one thread and hands no descriptor to anything but what it becomes.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )?;
    std::env::set_current_dir("/")?;
    fs::create_dir_all(COPY)?;
    mount("powercut", COPY, "tmpfs", MountFlags::empty(), None)?;
    copy_tree(Path::new(MOUNT_POINT), Path::new(COPY), &mut HashMap::new())?;
    unmount(MOUNT_POINT, UnmountFlags::empty())?;
    mount_move(COPY, MOUNT_POINT)?;
    std::env::set_current_dir(MOUNT_POINT)
}

/// Copy the contents of `from` into the directory `to`. `linked`: the copy of each file with several names,
/// by inode.
fn copy_tree(from: &Path, to: &Path, linked: &mut HashMap<u64, PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy_entry(&entry.path(), &to.join(entry.file_name()), linked)?;
    }
    copy_attributes(&fs::metadata(from)?, to)
}

fn copy_entry(from: &Path, to: &Path, linked: &mut HashMap<u64, PathBuf>) -> io::Result<()> {
    let seen = fs::symlink_metadata(from)?;
    if seen.is_dir() {
        fs::create_dir(to)?;
        return copy_tree(from, to, linked);
    }
    if seen.nlink() > 1 {
        if let Some(first) = linked.get(&seen.ino()) {
            return fs::hard_link(first, to);
        }
        linked.insert(seen.ino(), to.to_owned());
    }
    if seen.is_file() {
        fs::copy(from, to)?;
    } else if seen.is_symlink() {
        symlink(fs::read_link(from)?, to)?;
    } else {
        let kind = FileType::from_raw_mode(seen.mode());
        mknodat(CWD, to, kind, Mode::from_raw_mode(seen.mode()), seen.rdev())?;
    }
    copy_attributes(&seen, to)
}

/// Owner and mode.
fn copy_attributes(seen: &fs::Metadata, to: &Path) -> io::Result<()> {
    let (owner, group) = (Uid::from_raw(seen.uid()), Gid::from_raw(seen.gid()));
    chownat(CWD, to, Some(owner), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
    if !seen.is_symlink() {
        fs::set_permissions(to, seen.permissions())?;
    }
    let epoch = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: epoch,
        last_modification: epoch,
    };
    Ok(utimensat(CWD, to, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_copy_has_contents_links_and_modes_and_no_times() {
        let folder = std::env::temp_dir().join(format!("powercut-copy-{}", std::process::id()));
        let (from, to) = (folder.join("from"), folder.join("to"));
        fs::create_dir_all(from.join("d")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("d/f"), "text").unwrap();
        fs::set_permissions(from.join("d/f"), fs::Permissions::from_mode(0o751)).unwrap();
        fs::hard_link(from.join("d/f"), from.join("g")).unwrap();
        symlink("nowhere", from.join("s")).unwrap();
        fs::set_permissions(from.join("d"), fs::Permissions::from_mode(0o500)).unwrap();

        copy_tree(&from, &to, &mut HashMap::new()).unwrap();

        let (old, new) = (
            fs::metadata(from.join("g")).unwrap(),
            fs::metadata(to.join("g")).unwrap(),
        );
        assert_eq!(fs::read_to_string(to.join("d/f")).unwrap(), "text");
        assert_eq!(new.mode() & 0o7777, 0o751);
        assert_eq!((new.mtime(), new.mtime_nsec()), (0, 0));
        assert_eq!(new.ino(), fs::metadata(to.join("d/f")).unwrap().ino());
        assert_ne!(new.ino(), old.ino());
        assert_eq!(fs::read_link(to.join("s")).unwrap(), Path::new("nowhere"));
        assert_eq!(fs::metadata(to.join("d")).unwrap().mode() & 0o7777, 0o500);
        for d in [from.join("d"), to.join("d")] {
            fs::set_permissions(d, fs::Permissions::from_mode(0o700)).unwrap();
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
