//! `powercut-agent contained CHANNEL INITRAMFS NOTED`: trees and their checks without a kernel of their own, on this
//! host, in namespaces.
//!
//! A check needs no kernel under test, and each of its system calls and page faults costs User Mode Linux several
//! switches between processes. Here the same agent has the same initramfs for its root, as a process of the host's
//! kernel that sees no file of the host, no network and no other process, and has the rights of whoever started it, or
//! of nobody if that was root. A host need not allow this: then the guest makes the trees.

use std::{
    fs::{self, File, Permissions},
    io,
    os::{
        fd::{FromRawFd, RawFd},
        unix::fs::{symlink, PermissionsExt},
    },
    path::Path,
    time::{Duration, SystemTime},
};

use powercut_protocol::{AgentReply, AgentRequest, PROTOCOL_VERSION};
use rustix::{
    fs::Mode,
    io::{fcntl_setfd, Errno, FdFlags},
    mount::{
        mount, mount_bind, mount_change, unmount, MountFlags, MountPropagationFlags, UnmountFlags,
    },
    process::{chdir, pivot_root, setrlimit, umask, Resource, Rlimit},
};

use crate::{
    boot,
    failure::Failure,
    files,
    trees::{self, TreeCheck, Trees},
};

/// What the first word of its arguments is.
pub const NAME: &str = "contained";

const NAMESPACES: libc::c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS;
/// Whose rights it has that root starts: the kernel's own number for whoever is not known.
const NOBODY: u32 = 65_534;
/// A directory that every host has, to put the new root over; only this process sees that.
const STAGE: &str = "/tmp";
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];
/// Processes that may be there at once.
const PROCESSES: u64 = 4096;
/// The parts of a header of cpio(5), "new ASCII format": its magic, and 13 numbers of eight hexadecimal digits.
const HEADER_BYTES: usize = 110;
const MAGIC: &[u8] = b"070701";

/// Serve until the host closes the channel.
pub fn run(argv: &[String]) -> Result<(), String> {
    let [channel, initramfs, noted] = argv else {
        return Err(format!("usage: {NAME} CHANNEL INITRAMFS NOTED"));
    };
    let channel: RawFd = channel.parse().map_err(|_| "CHANNEL is no number")?;
    let read = |path: &String| fs::read(path).map_err(|e| format!("read {path}: {e}"));
    let (archive, noted) = (read(initramfs)?, read(noted)?);
    let (allowed, allow) = io::pipe().map_err(|e| format!("pipe: {e}"))?;
    // SAFETY: this process has one thread, so that the child may go on as after fork(2).
    let child = unsafe { libc::syscall(libc::SYS_clone, NAMESPACES | libc::SIGCHLD, 0, 0, 0, 0) };
    if child < 0 {
        return Err(format!("namespaces: {}", io::Error::last_os_error()));
    }
    if child > 0 {
        drop(allowed);
        map_users(child).map_err(|e| format!("map the users: {e}"))?;
        drop((allow, archive, noted));
        return wait_for(child);
    }
    drop(allow);
    // SAFETY: it was handed to this process, which has nothing else that owns it.
    let channel = unsafe { File::from_raw_fd(channel) };
    fcntl_setfd(&channel, FdFlags::CLOEXEC).map_err(|e| format!("keep the channel: {e}"))?;
    io::copy(&mut &allowed, &mut io::sink()).map_err(|e| format!("wait: {e}"))?;
    enter(&archive).map_err(|e| format!("enter the new root: {e}"))?;
    drop(archive);
    serve(channel, &noted).map_err(|e| e.to_string())
}

/// Root in the namespaces is one user of the host, who has no rights there that its starter has not.
fn map_users(child: i64) -> io::Result<()> {
    // SAFETY: these cannot fail.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let outside = |id| if user == 0 { NOBODY } else { id };
    fs::write(format!("/proc/{child}/setgroups"), "deny")?;
    fs::write(
        format!("/proc/{child}/uid_map"),
        format!("0 {} 1", outside(user)),
    )?;
    fs::write(
        format!("/proc/{child}/gid_map"),
        format!("0 {} 1", outside(group)),
    )
}

fn wait_for(child: i64) -> Result<(), String> {
    let mut status = 0;
    // SAFETY: `status` is there until the call returns.
    let waited = unsafe { libc::waitpid(child as libc::pid_t, &raw mut status, 0) };
    match (waited, status) {
        (-1, _) => Err(format!("wait: {}", io::Error::last_os_error())),
        (_, 0) => Ok(()),
        _ => Err("it could not go on".to_owned()),
    }
}

/// Become root of the namespaces, with the files of the archive, and with none of the host's.
fn enter(archive: &[u8]) -> io::Result<()> {
    fs::write("/proc/self/oom_score_adj", "1000")?;
    // SAFETY: they change this process alone, which has one thread.
    unsafe {
        let became = libc::setresgid(0, 0, 0) == 0 && libc::setresuid(0, 0, 0) == 0;
        if !became || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    limit();
    boot::raise_loopback();
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )?;
    mount(
        "powercut",
        STAGE,
        "tmpfs",
        MountFlags::empty(),
        Some(c"mode=755"),
    )?;
    chdir(STAGE)?;
    for directory in ["dev", "proc"] {
        fs::create_dir(directory)?;
    }
    for device in DEVICES {
        let node = format!("dev/{device}");
        File::create(&node)?;
        mount_bind(format!("/{node}"), &node)?;
    }
    boot::link_descriptors(Path::new("dev"))?;
    mount("proc", "proc", "proc", MountFlags::empty(), None)?;
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    chdir("/")?;
    unpack(archive)
}

/// What a guest's first process has of itself; and a program that fails leaves no core on the host. A limit that is
/// lower already stays.
fn limit() {
    umask(Mode::from_raw_mode(0o022));
    files::raise_file_limit();
    let at_most = |limit| Rlimit {
        current: Some(limit),
        maximum: Some(limit),
    };
    let _ = setrlimit(Resource::Core, at_most(1)); // 0 would not hold where cores go to a program: core(5)
    let _ = setrlimit(Resource::Nproc, at_most(PROCESSES));
}

/// Unpack an archive of cpio(5) into the root. Directories come before what is in them.
fn unpack(archive: &[u8]) -> io::Result<()> {
    let wrong = || io::Error::from_raw_os_error(libc::EINVAL);
    let mut left = archive;
    loop {
        let head = left.get(..HEADER_BYTES).ok_or_else(wrong)?;
        if !head.starts_with(MAGIC) {
            return Err(wrong());
        }
        let number = |nth: usize| {
            let digits = &head[MAGIC.len() + 8 * nth..][..8];
            let text = std::str::from_utf8(digits).map_err(|_| wrong())?;
            u32::from_str_radix(text, 16).map_err(|_| wrong())
        };
        let (mode, time) = (number(1)?, number(5)?);
        let (length, named) = (number(6)? as usize, number(11)? as usize);
        let begin = (HEADER_BYTES + named).next_multiple_of(4);
        let name = left.get(HEADER_BYTES..HEADER_BYTES + named.saturating_sub(1));
        let name = std::str::from_utf8(name.ok_or_else(wrong)?).map_err(|_| wrong())?;
        let data = left.get(begin..begin + length).ok_or_else(wrong)?;
        left = left
            .get((begin + length).next_multiple_of(4)..)
            .ok_or_else(wrong)?;
        match name {
            "TRAILER!!!" if left.is_empty() => return Ok(()),
            "TRAILER!!!" => {} // the archive of an image follows
            _ => put(Path::new(name), mode, time, data)?,
        }
    }
}

fn put(path: &Path, mode: u32, time: u32, data: &[u8]) -> io::Result<()> {
    let permissions = Permissions::from_mode(mode & 0o7777);
    match mode & libc::S_IFMT {
        libc::S_IFDIR if path.is_dir() => Ok(()),
        libc::S_IFDIR => fs::create_dir(path).and_then(|()| fs::set_permissions(path, permissions)),
        libc::S_IFREG => {
            fs::write(path, data)?;
            fs::set_permissions(path, permissions)?;
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(time.into());
            File::options().write(true).open(path)?.set_modified(time) // Python compares them
        }
        libc::S_IFLNK => symlink(String::from_utf8_lossy(data).as_ref(), path),
        _ => Ok(()), // devices are there
    }
}

fn serve(channel: File, noted: &[u8]) -> Result<(), Failure> {
    trees::mount_empty()?;
    let mut made = Trees::begin()?;
    let hello = AgentReply::Hello {
        protocol: PROTOCOL_VERSION,
        release: String::new(),
        version: String::new(),
        module_errors: Vec::new(),
        dm_targets: Vec::new(),
    };
    crate::serve_on(&channel, &hello, |request| match request {
        AgentRequest::TryTrees {
            trees,
            acknowledged_at,
            acknowledged,
            argv,
            deadline_s,
        } => {
            let asked = TreeCheck {
                at: &acknowledged_at,
                acknowledged: &acknowledged,
                argv: &argv,
                deadline_s,
            };
            let tried = made.try_all(&trees, noted, &asked);
            tried.unwrap_or_else(|failure| AgentReply::Failed {
                errno: failure.errno().raw_os_error(),
                what: failure.to_string(),
            })
        }
        _ => AgentReply::Failed {
            what: "only trees are tried here".to_owned(),
            errno: Errno::NOTSUP.raw_os_error(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A length beyond the end would end it with a panic, and half an archive would be a root that lacks programs.
    #[test]
    fn what_is_no_whole_archive_is_refused() {
        let head = |length: &str| format!("070701{}{length}{}", "0".repeat(48), "0".repeat(48));
        for wrong in [
            String::new(),
            "070702".repeat(30),
            head("00000000"),
            head("ffffffff"),
            head("0000000g"),
        ] {
            assert!(unpack(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
