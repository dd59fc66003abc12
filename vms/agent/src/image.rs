//! `powercut-in ROOT PROGRAM...`: run a program in the root file system of an image, which is a directory of the
//! initramfs.
//!
//! The directories in [`BOUND`] are those of the initramfs there, too: so the program finds the file system under test
//! and the files of its workload where every other program finds them.

use std::{
    fs, io,
    os::unix::{
        fs::{symlink, MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::Path,
    process::Command,
};

use rustix::{
    io::Errno,
    mount::{mount_bind_recursive, unmount, UnmountFlags},
    process::{chdir, chroot},
};

use crate::{ack, mounts::MOUNT_POINT, neighbour, processes, user};

/// The name that the program goes by in the guest.
pub const NAME: &str = "powercut-in";

/// `harness/guests/images.py` makes an empty directory of each.
const BOUND: [&str; 6] = ["/dev", "/proc", "/sys", "/tmp", "/workload", MOUNT_POINT];
/// Where PATH leads first: that of this agent, and that of su(1).
const TOOLS: &str = "/usr/local/bin";

/// Become the program, in the root. Returns only if that fails.
pub fn run(argv: &[String]) -> Result<(), String> {
    let [root, program, arguments @ ..] = argv else {
        return Err(format!("usage: {NAME} ROOT PROGRAM [ARGUMENT...]"));
    };
    enter(root).map_err(|e| format!("enter {root}: {e}"))?;
    let error = Command::new(program).args(arguments).exec();
    Err(format!("{program}: {error}"))
}

fn enter(root: &str) -> io::Result<()> {
    for place in BOUND {
        let inside = format!("{root}{place}");
        let (there, here) = (fs::metadata(&inside)?, fs::metadata(place)?);
        if (there.dev(), there.ino()) != (here.dev(), here.ino()) {
            mount_bind_recursive(place, inside)?;
        }
    }
    chroot(root)?;
    chdir(MOUNT_POINT)?;
    bring_tools(Path::new(TOOLS))
}

/// Put this binary into the root, under the names by which programs call it. A mark in the log takes root's rights.
fn bring_tools(folder: &Path) -> io::Result<()> {
    let tool = folder.join(ack::NAME);
    if tool.exists() {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    let names = [ack::LINES_NAME, neighbour::NAME, neighbour::PRESSURE_NAME];
    for name in names.into_iter().chain([user::NAME]) {
        symlink(ack::NAME, folder.join(name))?;
    }
    fs::copy("/proc/self/exe", &tool)?;
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o4755))
}

/// The words of a command line that lead into an image, and those that are run there.
pub fn split(argv: &[String]) -> (&[String], &[String]) {
    let words = if argv.first().is_some_and(|word| word == NAME) {
        2
    } else {
        0
    };
    argv.split_at(words.min(argv.len()))
}

/// Once a program has ended: take the file system under test out of its image, where it would stay mounted while the
/// agent takes it for unmounted. Processes that the program has left behind are killed if they hold it.
pub fn leave(argv: &[String]) {
    let ([_, root], _) = split(argv) else { return };
    let place = format!("{root}{MOUNT_POINT}");
    if unmount(&place, UnmountFlags::empty()) == Err(Errno::BUSY) {
        processes::kill_all();
        // One that hangs in the kernel: unmounting the file system itself tells that.
        let _ = unmount(&place, UnmountFlags::DETACH);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_root_comes_before_all_that_is_run_in_it() {
        let line = words("powercut-in /images/1 powercut-as me /workload/w/run");
        let (ahead, rest) = split(&line);
        assert_eq!(ahead, words("powercut-in /images/1"));
        assert_eq!(rest[0], "powercut-as");
        assert_eq!(split(&words("run powercut-in")).0.len(), 0);
        assert_eq!(split(&words("powercut-in")).1.len(), 0);
    }

    #[test]
    fn a_program_is_started_in_a_root_alone() {
        assert!(run(&words("/images/1")).unwrap_err().starts_with("usage:"));
        let told = run(&words("/no/such/root program")).unwrap_err();
        assert!(told.starts_with("enter /no/such/root: "), "{told}");
    }
}
