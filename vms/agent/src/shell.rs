//! A shell on the console, for a person who wants to look at a crash state.

use std::{
    fs::File,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use powercut_protocol::ModuleError;
use rustix::process::{ioctl_tiocsctty, setsid};

use crate::{
    boot::{self, Settings, STACK_STEPS, STOP_STEPS},
    dm::DeviceMapper,
    files,
    mounts::MOUNT_POINT,
    parts::{self, Parts, SECOND},
    processes,
};

const CONSOLE: &str = "/dev/console";

/// Run a shell until it ends.
///
/// # Errors
/// If there is no console or no shell.
pub fn run(settings: &Settings, module_errors: &[ModuleError]) -> std::io::Result<()> {
    // Report it and go on: the shell is useful without it.
    let attached = files::wait_for_device(&settings.device).is_ok();
    let with_steps = Path::new(STACK_STEPS).exists();
    let (device, mut problems) = cut(settings, with_steps);
    problems.extend(
        module_errors
            .iter()
            .map(|e| format!("module not loaded: {}", boot::shown(e))),
    );
    let console = File::options().read(true).write(true).open(CONSOLE)?;
    std::io::Write::write_all(
        &mut &console,
        banner(settings, &device, attached, with_steps, &problems).as_bytes(),
    )?;
    let mut shell = Command::new("/bin/busybox");
    shell
        .arg("sh")
        .env_clear()
        .env(
            "PATH",
            "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
        )
        .env("HOME", "/")
        .env("TERM", "linux")
        .env("PS1", "powercut# ")
        .stdin(console.try_clone()?)
        .stdout(console.try_clone()?)
        .stderr(console);
    // SAFETY: between fork and exec only two system calls are made; neither allocates nor locks.
    unsafe {
        shell.pre_exec(|| {
            setsid()?;
            ioctl_tiocsctty(std::io::stdin())?;
            Ok(())
        })
    };
    processes::wait_for(&shell.spawn()?).map_err(Into::into)
}

/// The device to mount, and any problem in making it: the disk, its first part, or what the steps give.
fn cut(settings: &Settings, with_steps: bool) -> (String, Vec<String>) {
    let disk = settings.device.clone();
    if settings.parts.is_empty() {
        if !with_steps {
            return (disk, Vec::new());
        }
        let problem = parts::point_to(&[PathBuf::from(&disk)]).err();
        let made = if settings.stack.is_empty() {
            disk
        } else {
            settings.stack.clone()
        };
        return (made, problem.iter().map(ToString::to_string).collect());
    }
    let parts =
        DeviceMapper::open().and_then(|mut mapper| Parts::cut(&mut mapper, &disk, &settings.parts));
    match parts {
        Ok(_) if !settings.stack.is_empty() => (settings.stack.clone(), Vec::new()),
        Ok(parts) => (parts.nodes()[0].to_string_lossy().into_owned(), Vec::new()),
        Err(failure) => (disk, vec![format!("the disk is not cut: {failure}")]),
    }
}

fn banner(
    settings: &Settings,
    device: &str,
    attached: bool,
    with_steps: bool,
    problems: &[String],
) -> String {
    let state = if attached { "not mounted" } else { "missing" };
    let (fstype, options) = settings
        .mount
        .split_once(':')
        .unwrap_or((&settings.mount, ""));
    let mut words = vec!["mount".to_owned()];
    if !fstype.is_empty() {
        words.push(format!("-t {fstype}"));
    }
    if !options.is_empty() {
        words.push(format!("-o {options}"));
    }
    let mount = words.join(" ");
    let disk = &settings.device;
    let intro = if settings.stack.is_empty() {
        let second = if settings.parts.is_empty() {
            String::new()
        } else {
            format!(" Its second device is {SECOND}.")
        };
        let first = if with_steps {
            format!(" In this mode the steps in {STACK_STEPS} come before the first mount.")
        } else {
            String::new()
        };
        format!("The disk after the power cut is {device} ({state}).{second}{first}")
    } else if settings.parts.is_empty() {
        format!("The disk after the power cut is {disk} ({state}). The steps in {STACK_STEPS} mount it elsewhere and prepare what is above it; those in {STOP_STEPS} follow the unmount.")
    } else {
        let last = settings.parts.len();
        let members = format!("/dev/member-0 to /dev/member-{last}");
        format!("The disks after the power cut are {members}; {device} is what the steps in {STACK_STEPS} make of them (not started). Those in {STOP_STEPS} follow the unmount.")
    };
    let mut text = format!("\n{intro} Try:\n\n");
    text.push_str(&mounting(with_steps, "", &format!("{mount} {device}")));
    let recovered = &settings.recovered;
    if !recovered.is_empty() {
        let unmounted = format!("umount {MOUNT_POINT}");
        let (undo, again) = if with_steps && !settings.stack.is_empty() {
            let undo = format!("{unmounted} && sh -e {STOP_STEPS}");
            (
                undo,
                mounting(true, recovered, &format!("{mount} {device}")),
            )
        } else {
            let again = mounting(false, "", &format!("{mount} {recovered}"));
            (unmounted, again)
        };
        text.push_str(&format!(
            "The same disk as recovery left it is {recovered} (not mounted). Both have one UUID, so first \
             {undo}, then:\n\n{again}"
        ));
    }
    text.push_str("`dmesg` tells of recovery; `exit` powers off.\n");
    for problem in problems {
        text.push_str(&format!("{problem}\n"));
    }
    text.push('\n');
    text
}

/// The lines to type for a mount, behind the steps if there are any; `disk`: for which, if it is another one.
fn mounting(with_steps: bool, disk: &str, mount: &str) -> String {
    let start = format!("    {}\n", format!("sh -e {STACK_STEPS} {disk}").trim_end());
    let start = if with_steps { start.as_str() } else { "" };
    format!("{start}    {mount} {MOUNT_POINT}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_banner_shows_the_mount_command() {
        let settings = Settings {
            device: "/dev/vda".to_owned(),
            mount: "ext4:data=journal".to_owned(),
            ..Settings::default()
        };
        let problems = ["module not loaded: xfs: ENOENT (2)".to_owned()];
        let text = banner(&settings, "/dev/vda", true, false, &problems);
        assert!(text.contains("    mount -t ext4 -o data=journal /dev/vda /mnt\n"));
        assert!(text.contains("module not loaded: xfs: ENOENT (2)"));
        assert!(!text.contains("as recovery left it"));
    }

    #[test]
    fn a_stack_is_started_before_the_mount() {
        let settings = Settings {
            device: "/dev/vda".to_owned(),
            mount: "ext4:".to_owned(),
            parts: vec![1 << 20, 2 << 20],
            stack: "/dev/md0".to_owned(),
            ..Settings::default()
        };
        let text = banner(&settings, "/dev/md0", true, true, &[]);
        assert!(text.contains("/dev/member-0 to /dev/member-2"));
        assert!(text.contains("    sh -e /start-stack\n    mount -t ext4 /dev/md0 /mnt\n"));
    }

    #[test]
    fn what_is_below_a_layer_is_prepared_before_each_mount_and_undone_behind_it() {
        let settings = Settings {
            device: "/dev/vda".to_owned(),
            mount: "ext4:data=ordered".to_owned(),
            stack: "/dev/loop0".to_owned(),
            recovered: "/dev/vdb".to_owned(),
            ..Settings::default()
        };
        let text = banner(&settings, "/dev/loop0", true, true, &[]);
        let mount = "    mount -t ext4 -o data=ordered /dev/loop0 /mnt\n";
        assert!(text.contains("The disk after the power cut is /dev/vda (not mounted)."));
        assert!(text.contains(&format!("    sh -e /start-stack\n{mount}")));
        assert!(text.contains("first umount /mnt && sh -e /stop-stack, then:"));
        assert!(text.contains(&format!("    sh -e /start-stack /dev/vdb\n{mount}")));
    }

    /// A disk that the mode repairs before the mount was mounted as it was.
    #[test]
    fn steps_of_the_mode_come_before_the_first_mount_and_not_before_that_of_the_recovered_disk() {
        let settings = Settings {
            device: "/dev/vda".to_owned(),
            mount: "ext4:data=ordered".to_owned(),
            recovered: "/dev/vdb".to_owned(),
            ..Settings::default()
        };
        let text = banner(&settings, "/dev/vda", true, true, &[]);
        let mount = "    mount -t ext4 -o data=ordered";
        assert!(text.contains("steps in /start-stack come before the first mount."));
        assert!(text.contains(&format!("    sh -e /start-stack\n{mount} /dev/vda /mnt\n")));
        assert!(text.contains(&format!(
            "first umount /mnt, then:\n\n{mount} /dev/vdb /mnt\n"
        )));
        assert!(!banner(&settings, "/dev/vda", true, false, &[]).contains("/start-stack"));
    }

    #[test]
    fn a_second_device_is_named() {
        let mut settings = Settings {
            mount: "ext4:journal_path=/dev/second".to_owned(),
            ..Settings::default()
        };
        let text = banner(&settings, "/dev/vda", true, false, &[]);
        assert!(!text.contains("second device"));
        settings.parts = vec![1 << 20];
        let text = banner(&settings, "/dev/mapper/part-0", true, false, &[]);
        assert!(
            text.contains("/dev/mapper/part-0 (not mounted). Its second device is /dev/second.")
        );
    }

    #[test]
    fn the_recovered_disk_has_a_mount_command_of_its_own() {
        let settings = Settings {
            mount: "xfs:".to_owned(),
            recovered: "/dev/vdb".to_owned(),
            ..Settings::default()
        };
        let text = banner(&settings, "/dev/vda", true, false, &[]);
        assert!(text.contains("    mount -t xfs /dev/vda /mnt\n"));
        assert!(text.contains("    mount -t xfs /dev/vdb /mnt\n"));
    }
}
