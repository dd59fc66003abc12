//! A root other than the initramfs: a guest with tools runs from a read-only image.

use std::path::Path;

use rustix::{
    fs::{mkdirat, Mode, CWD},
    io::Errno,
    mount::{mount, mount_move, MountFlags},
    process::{chdir, chroot},
};

use crate::{
    failure::{failed, Failure},
    files,
};

const STAGE: &str = "/root";
/// Writable directories of the read-only root.
const SCRATCH: [&str; 4] = ["/tmp", "/run", "/var/tmp", "/mnt"];
/// Where programs look for kernel probes and their events.
const PROBES: [(&str, &str); 3] = [
    ("debugfs", "/sys/kernel/debug"),
    ("tracefs", "/sys/kernel/tracing"),
    ("bpf", "/sys/fs/bpf"),
];

/// Switch to the file system on `image` (`DEVICE:FSTYPE`). Moves /dev, /proc and /sys there, and mounts a
/// tmpfs for scratch files and the file systems of the kernel's probes, if the kernel has them.
///
/// # Errors
/// If `image` is not of that form, or cannot be mounted and entered.
pub fn enter(image: &str) -> Result<(), Failure> {
    let (device, fstype) = image.split_once(':').ok_or_else(|| Failure::Setting {
        name: "root",
        value: image.to_owned(),
        expected: "DEVICE:FSTYPE",
    })?;
    files::wait_for_device(device)?;
    match mkdirat(CWD, STAGE, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(failed(format!("mkdir {STAGE}"))(errno)),
    }
    mount(device, STAGE, fstype, MountFlags::RDONLY, None)
        .map_err(failed(format!("mount {device} as {fstype}")))?;
    for kept in ["/dev", "/proc", "/sys"] {
        mount_move(kept, format!("{STAGE}{kept}")).map_err(failed(format!("move {kept}")))?;
    }
    // As switch_root(8) does: with the new root mounted over the old one, programs see a sane mount table.
    chdir(STAGE)
        .and_then(|()| mount_move(".", "/"))
        .and_then(|()| chroot("."))
        .and_then(|()| chdir("/"))
        .map_err(failed(format!("enter {device}")))?;
    for directory in SCRATCH {
        mount("tmpfs", directory, "tmpfs", MountFlags::empty(), None)
            .map_err(failed(format!("mount {directory}")))?;
    }
    for (kind, target) in PROBES {
        mount_probes(kind, target);
    }
    Ok(())
}

/// A kernel may lack them; whatever needs one reports that.
fn mount_probes(kind: &str, target: &str) {
    if !Path::new(target).is_dir() {
        return;
    }
    match mount(kind, target, kind, MountFlags::empty(), None) {
        Ok(()) | Err(Errno::BUSY) => {}
        Err(errno) => eprintln!(
            "powercut-agent: {}",
            failed(format!("mount {target}"))(errno)
        ),
    }
}
