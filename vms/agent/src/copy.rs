//! `powercut-on-copy PROGRAM...`: run a program on a copy of the recovered file system.
//!
//! An application that starts after a power cut first recovers its own files, so it writes. Here it writes
//! to a copy in memory that only it sees, at the usual mount point. fsck then sees what the kernel's
//! recovery left, and the program's answer depends on the files' contents alone.
//!
//! The copy has contents, kinds, hard links, modes and owners; no extended attributes. Holes of large files stay holes:
//! there is no memory for the zeros that a file of many GiB reads as. All times are the epoch: an
//! answer is kept for states whose files differ in times alone.

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    os::unix::{
        fs::{symlink, FileExt, MetadataExt},
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

use crate::{
    contents::{data_from, is_sparse, CHUNK_BYTES},
    mounts::MOUNT_POINT,
};

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
    Copying::default().tree(Path::new(MOUNT_POINT), Path::new(COPY))?;
    unmount(MOUNT_POINT, UnmountFlags::empty())?;
    mount_move(COPY, MOUNT_POINT)?;
    std::env::set_current_dir(MOUNT_POINT)
}

/// What has been copied.
#[derive(Default)]
struct Copying {
    /// The copy of each file with several names, by device and inode: what is mounted below has inodes of its own.
    linked: HashMap<(u64, u64), PathBuf>,
}

impl Copying {
    /// Copy the contents of `from` into the directory `to`. A damaged directory may never end: then a name is there
    /// already, or the file system in memory has no room for another one.
    fn tree(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            self.entry(&entry.path(), &to.join(entry.file_name()))?;
        }
        copy_attributes(&fs::metadata(from)?, to)
    }

    fn entry(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let seen = fs::symlink_metadata(from)?;
        if seen.is_dir() {
            fs::create_dir(to)?;
            return self.tree(from, to);
        }
        if seen.nlink() > 1 {
            let inode = (seen.dev(), seen.ino());
            if let Some(first) = self.linked.get(&inode) {
                return fs::hard_link(first, to);
            }
            self.linked.insert(inode, to.to_owned());
        }
        if seen.is_file() {
            copy_contents(from, to, &seen)?;
        } else if seen.is_symlink() {
            symlink(fs::read_link(from)?, to)?;
        } else {
            let kind = FileType::from_raw_mode(seen.mode());
            mknodat(CWD, to, kind, Mode::from_raw_mode(seen.mode()), seen.rdev())?;
        }
        copy_attributes(&seen, to)
    }
}

/// Copy a file to a new one, up to where it ends, and holes as the walk takes them: `contents::data_from`.
fn copy_contents(from: &Path, to: &Path, seen: &fs::Metadata) -> io::Result<()> {
    let mut source = File::open(from)?;
    // A name that is listed twice must not be copied over and over.
    let mut copy = File::create_new(to)?;
    if !is_sparse(seen.len(), seen.blocks()) {
        return io::copy(&mut source, &mut copy).map(|_| ());
    }
    let (mut chunk, mut at, end) = (vec![0; CHUNK_BYTES], 0, seen.len());
    while at < end {
        let data = data_from(&source, at, end);
        at = data.start;
        while at < data.end {
            let wanted = (data.end - at).min(CHUNK_BYTES as u64) as usize;
            let read = match source.read_at(&mut chunk[..wanted], at) {
                Ok(0) => return copy.set_len(at), // before its size
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            copy.write_all_at(&chunk[..read], at)?;
            at += read as u64;
        }
    }
    copy.set_len(end)
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

        Copying::default().tree(&from, &to).unwrap();

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

    /// A folder that goes when the test ends, with `from` and `to` in it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("powercut-copy-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            for part in ["from", "to"] {
                fs::create_dir_all(folder.join(part)).unwrap();
            }
            Self(folder)
        }

        fn at(&self, path: &str) -> PathBuf {
            self.0.join(path)
        }

        fn copy(&self, copying: &mut Copying) -> io::Result<()> {
            copying.tree(&self.at("from"), &self.at("to"))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// The zeros of a database of 16 GiB filled the guest's memory, and no state had a verdict.
    #[test]
    fn holes_of_a_large_file_stay_holes() {
        let scratch = Scratch::new("holes");
        let file = File::create(scratch.at("from/f")).unwrap();
        for at in [0, 5 << 20, (256 << 20) - 3] {
            file.write_all_at(b"abc", at).unwrap();
        }
        file.write_all_at(&vec![7; 300 << 10], 9 << 20).unwrap();
        fs::write(scratch.at("from/small"), "text").unwrap();

        scratch.copy(&mut Copying::default()).unwrap();

        let copy = File::open(scratch.at("to/f")).unwrap();
        let seen = copy.metadata().unwrap();
        assert_eq!(seen.len(), 256 << 20);
        assert!(seen.blocks() * 512 < 1 << 20, "{} blocks", seen.blocks());
        let held = |at, length| {
            let mut bytes = vec![0; length];
            copy.read_exact_at(&mut bytes, at).unwrap();
            bytes
        };
        for at in [0, 5 << 20, (256 << 20) - 3] {
            assert_eq!(held(at, 3), b"abc");
        }
        assert_eq!(held(9 << 20, 300 << 10), vec![7; 300 << 10]);
        assert_eq!(held((9 << 20) - 8, 8), [0; 8]);
        assert_eq!(fs::read(scratch.at("to/small")).unwrap(), b"text");
    }

    /// What is mounted below the mount point counts its inodes anew: one file became a name of another.
    #[test]
    fn files_of_two_devices_with_one_inode_number_stay_apart() {
        let scratch = Scratch::new("devices");
        for name in ["f", "g"] {
            fs::write(scratch.at(&format!("from/{name}")), name).unwrap();
        }
        fs::hard_link(scratch.at("from/f"), scratch.at("from/h")).unwrap();
        let seen = fs::metadata(scratch.at("from/f")).unwrap();
        let mut copying = Copying::default();
        let elsewhere = (seen.dev() + 1, seen.ino());
        copying.linked.insert(elsewhere, scratch.at("from/g"));
        scratch.copy(&mut copying).unwrap();
        assert_eq!(fs::read(scratch.at("to/f")).unwrap(), b"f");
        assert_eq!(copying.linked.len(), 2);
    }

    /// It was copied over and over, until the deadline.
    #[test]
    fn a_directory_that_lists_a_name_again_is_an_error() {
        let scratch = Scratch::new("again");
        fs::write(scratch.at("from/f"), "text").unwrap();
        scratch.copy(&mut Copying::default()).unwrap();
        let error = scratch.copy(&mut Copying::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(scratch.at("to/f")).unwrap(), b"text");
    }
}
