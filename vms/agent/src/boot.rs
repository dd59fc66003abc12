//! From a bare initramfs to a guest that answers.

use std::{
    fs::{self, File},
    io,
    num::NonZeroU64,
    os::{fd::AsRawFd, unix::fs::symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use powercut_protocol::ModuleError;
use rustix::{
    io::Errno,
    mount::{mount, MountFlags},
    system::finit_module,
    termios::{tcgetattr, tcsetattr, OptionalActions},
};

use crate::{
    failure::{errno_of, failed, Failure, Named},
    files,
};

/// In the guest's root, for the shell: the steps that start the stack or what is below a layer, or those of the mode
/// that come before a mount.
pub const STACK_STEPS: &str = "/start-stack";
/// The same, for what follows the unmount.
pub const STOP_STEPS: &str = "/stop-stack";
/// Seconds after which a process that waits in the kernel counts as hung.
const HUNG_TASK: &str = "/proc/sys/kernel/hung_task_timeout_secs";
const HUNG_TASK_S: &str = "30";

/// The agent's settings on the kernel command line; the kernel ignores words with a dot.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `powercut.port`: name of a virtio-serial port, or a tty below /dev.
    pub port: String,
    /// `powercut.shell=1`: a shell on the console instead of the agent's service.
    pub shell: bool,
    /// `powercut.device`: the disk that the shell's banner names.
    pub device: String,
    /// `powercut.mount=FSTYPE:OPTIONS`: the mount that the shell's banner proposes.
    pub mount: String,
    /// `powercut.parts=BYTE,BYTE`: where the disk's further devices begin, for the shell.
    pub parts: Vec<u64>,
    /// `powercut.stack=DEVICE`: what is mounted once the steps in [`STACK_STEPS`] were run, for the shell.
    pub stack: String,
    /// `powercut.recovered=DEVICE`: the same disk after recovery, for the shell; empty: there is none.
    pub recovered: String,
    /// `powercut.script=DEVICE:BYTES`: requests to carry out, from the device's first byte on, instead of the host's.
    pub script: Option<(String, u64)>,
    /// `powercut.root=DEVICE:FSTYPE`: an image with tools to switch to; empty: stay in the initramfs.
    pub root: String,
    /// `powercut.look_ms=MILLISECONDS`: between two looks for a hang ([`crate::watch`]); a test need not wait long.
    pub between_looks: Option<Duration>,
}

impl Settings {
    /// Parse a kernel command line.
    ///
    /// # Errors
    /// [`Failure::Setting`] for a malformed value. Otherwise a place that is not a number would pass for "there
    /// is no second device", and the file system would be mounted without its log.
    pub fn parse(command_line: &str) -> Result<Self, Failure> {
        let mut settings = Self {
            device: "/dev/vda".to_owned(),
            ..Self::default()
        };
        for word in command_line.split_whitespace() {
            match word.split_once('=') {
                Some(("powercut.port", value)) => value.clone_into(&mut settings.port),
                Some(("powercut.shell", value)) => settings.shell = value == "1",
                Some(("powercut.device", value)) => value.clone_into(&mut settings.device),
                Some(("powercut.mount", value)) => value.clone_into(&mut settings.mount),
                Some(("powercut.parts", value)) => {
                    let places: Result<_, _> = value.split(',').map(str::parse).collect();
                    settings.parts = places.map_err(|_| Failure::Setting {
                        name: "parts",
                        value: value.to_owned(),
                        expected: "bytes of the disk",
                    })?;
                }
                Some(("powercut.stack", value)) => value.clone_into(&mut settings.stack),
                Some(("powercut.recovered", value)) => value.clone_into(&mut settings.recovered),
                Some(("powercut.root", value)) => value.clone_into(&mut settings.root),
                Some(("powercut.look_ms", value)) => {
                    let given = value.parse::<NonZeroU64>().ok();
                    let look = given.map(|ms| Duration::from_millis(ms.get()));
                    settings.between_looks = Some(look.ok_or(Failure::Setting {
                        name: "look_ms",
                        value: value.to_owned(),
                        expected: "milliseconds",
                    })?);
                }
                Some(("powercut.script", value)) => {
                    let named = value.split_once(':');
                    let script = named
                        .and_then(|(device, bytes)| Some((device.to_owned(), bytes.parse().ok()?)));
                    settings.script = Some(script.ok_or(Failure::Setting {
                        name: "script",
                        value: value.to_owned(),
                        expected: "a device and a number of bytes",
                    })?);
                }
                _ => {}
            }
        }
        Ok(settings)
    }

    /// The settings of the running kernel.
    ///
    /// # Errors
    /// As [`Self::parse`]; also if the command line cannot be read.
    pub fn of_kernel() -> Result<Self, Failure> {
        let line = fs::read_to_string("/proc/cmdline")
            .map_err(|e| failed("read /proc/cmdline")(errno_of(&e)))?;
        Self::parse(&line)
    }
}

/// Names of a program's own descriptors, and where they lead. udev(7) makes them elsewhere; bash(1) has those in /dev
/// for redirections.
const DESCRIPTORS: [(&str, &str); 4] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];

/// Make the names of descriptors in a directory for devices.
///
/// # Errors
/// Those of symlink(2), but for names that are there.
pub fn link_descriptors(devices: &Path) -> io::Result<()> {
    for (name, target) in DESCRIPTORS {
        match symlink(target, devices.join(name)) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// Mount what programs and the agent expect. A kernel may lack one of these; whatever needs it reports that.
pub fn mount_kernel_file_systems() {
    for (kind, target) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        if let Err(errno) = mount(kind, target, kind, MountFlags::empty(), None) {
            if errno != Errno::BUSY {
                eprintln!(
                    "powercut-agent: {}",
                    failed(format!("mount {target}"))(errno)
                );
            }
        }
    }
    if let Err(e) = link_descriptors(Path::new("/dev")) {
        eprintln!("powercut-agent: make /dev/stdout: {e}");
    }
}

/// Bring up the loopback interface, which gets 127.0.0.1 with that (net/ipv4/devinet.c). A kernel without CONFIG_INET
/// has no such network.
pub fn raise_loopback() {
    // SAFETY: the calls take numbers, and a request that is all zeros but for its name, which ends in NUL, and flags.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        let mut request: libc::ifreq = std::mem::zeroed();
        (request.ifr_name[0], request.ifr_name[1]) = (b'l' as _, b'o' as _);
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as _;
        if socket >= 0 {
            libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw const request);
            libc::close(socket);
        }
    }
}

/// Make the kernel report a hung process sooner, with its stack: the host waits for a recovery no longer
/// than the kernel's default of 120 s (Documentation/admin-guide/sysctl/kernel.rst). A kernel without
/// CONFIG_DETECT_HUNG_TASK has no such file and reports nothing.
pub fn watch_for_hangs() {
    let _ = fs::write(HUNG_TASK, HUNG_TASK_S);
}

/// Looks at all PCI buses anew (Documentation/ABI/testing/sysfs-bus-pci); returns when drivers have what it found.
const PCI_RESCAN: &str = "/sys/bus/pci/rescan";

/// Find a device that the machine was given while the guest ran.
///
/// # Errors
/// [`Failure::NoDevice`] if it is not there.
pub fn look_for(device: &str) -> Result<(), Failure> {
    fs::write(PCI_RESCAN, "1").map_err(|e| failed(format!("write {PCI_RESCAN}"))(errno_of(&e)))?;
    files::wait_for_device(device)
}

/// Have the kernel draw random numbers from `seed` (random(4)).
///
/// # Errors
/// Those of ioctl(2).
pub fn stir(seed: &[u8]) -> Result<(), Failure> {
    /// `struct rand_pool_info`, with room for `SEED_BYTES`.
    #[repr(C)]
    struct Pool {
        entropy_bits: i32,
        bytes: i32,
        seed: [u8; SEED_BYTES],
    }
    const SEED_BYTES: usize = 32;
    const RNDADDENTROPY: libc::Ioctl = 0x4008_5203;
    const RNDRESEEDCRNG: libc::Ioctl = 0x5207;
    let mut pool = Pool {
        entropy_bits: 8 * SEED_BYTES as i32,
        bytes: SEED_BYTES as i32,
        seed: [0; SEED_BYTES],
    };
    let length = seed.len().min(SEED_BYTES);
    pool.seed[..length].copy_from_slice(&seed[..length]);
    let random = File::options()
        .write(true)
        .open("/dev/urandom")
        .map_err(|e| failed("open /dev/urandom")(errno_of(&e)))?;
    // SAFETY: the file is open, and the first call reads a structure of the form that it expects.
    let added = unsafe {
        let added = libc::ioctl(random.as_raw_fd(), RNDADDENTROPY, &raw const pool) == 0;
        libc::ioctl(random.as_raw_fd(), RNDRESEEDCRNG); // Linux 4.17; before that it takes them by itself
        added
    };
    if added {
        return Ok(());
    }
    Err(failed("seed /dev/urandom")(errno_of(
        &io::Error::last_os_error(),
    )))
}

/// Bits of /proc/sys/kernel/tainted: the kernel has died, warned, or locked up
/// (Documentation/admin-guide/tainted-kernels.rst).
const COMPLAINED: u64 = 1 << 7 | 1 << 9 | 1 << 14;

/// Whether the kernel has complained since it booted; not if that is not known.
pub fn has_complained() -> bool {
    let told = fs::read_to_string("/proc/sys/kernel/tainted").unwrap_or_default();
    told.trim().parse::<u64>().unwrap_or_default() & COMPLAINED != 0
}

/// Where the kernel takes it that what it says once may be said again (lib/bug.c, kernel/panic.c).
const CLEAR_WARN_ONCE: &str = "/sys/kernel/debug/clear_warn_once";

/// Have debugfs where it is looked for. A kernel may have none.
pub fn mount_debugfs() {
    let _ = mount(
        "debugfs",
        "/sys/kernel/debug",
        "debugfs",
        MountFlags::empty(),
        None,
    );
}

/// Let the kernel say again what it says once: WARN_ON_ONCE, pr_err_once. What it says so often in a while
/// (`*_ratelimited`), and what lockdep and KASAN say once, it does not forget. A kernel without debugfs forgets
/// nothing.
pub fn forget_what_was_said_once() {
    let _ = fs::write(CLEAR_WARN_ONCE, "1");
}

/// Load the modules named in the file `list`, in order. Returns those that failed; a module that is already
/// loaded does not count as one.
pub fn load_modules(list: &str) -> Vec<ModuleError> {
    let Ok(text) = fs::read_to_string(list) else {
        return Vec::new();
    };
    let paths = text.lines().map(str::trim).filter(|line| !line.is_empty());
    paths.filter_map(|path| load_module(path).err()).collect()
}

/// `ext4: ENOEXEC (8)`.
pub fn shown(error: &ModuleError) -> String {
    let errno = Errno::from_raw_os_error(error.errno);
    format!("{}: {}", error.name, Named(errno))
}

fn load_module(path: &str) -> Result<(), ModuleError> {
    let name = Path::new(path)
        .file_stem()
        .map_or_else(|| path.into(), |stem| stem.to_string_lossy());
    let loaded = File::open(path)
        .map_err(|error| errno_of(&error))
        .and_then(|file| finit_module(file, c"", 0));
    match loaded {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(ModuleError {
            name: name.into_owned(),
            errno: errno.raw_os_error(),
        }),
    }
}

/// Open the channel to the host. Its device may take a while to appear.
///
/// # Errors
/// [`Failure::NoPort`] if none appears within [`files::APPEAR_TIMEOUT`]; errors of open(2).
pub fn open_channel(port: &str) -> Result<File, Failure> {
    let path = if port.starts_with("/dev/") {
        files::wait_for_device(port)?;
        PathBuf::from(port)
    } else {
        files::wait_for(|| virtio_port(port)).ok_or_else(|| Failure::NoPort(port.to_owned()))?
    };
    let channel = File::options()
        .read(true)
        .write(true)
        .open(&path)
        .map_err(|e| failed(format!("open {}", path.display()))(errno_of(&e)))?;
    if rustix::termios::isatty(&channel) {
        make_raw(&channel).map_err(failed(format!("make {} raw", path.display())))?;
    }
    Ok(channel)
}

/// The node of a virtio-serial port, found by its name.
fn virtio_port(name: &str) -> Option<PathBuf> {
    let ports = fs::read_dir("/sys/class/virtio-ports").ok()?;
    ports.filter_map(Result::ok).find_map(|port| {
        let found = fs::read_to_string(port.path().join("name")).ok()?;
        let node = Path::new("/dev").join(port.file_name());
        (found.trim_end() == name && node.exists()).then_some(node)
    })
}

/// Pass every byte unchanged and at once: no echo, no line editing, no signals.
fn make_raw(tty: &File) -> rustix::io::Result<()> {
    let mut settings = tcgetattr(tty)?;
    settings.make_raw();
    tcsetattr(tty, OptionalActions::Now, &settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_off_the_command_line() {
        let line = "console=ttyS0 powercut.port=org.powercut.agent powercut.shell=1 \
                    powercut.mount=ext4:data=journal,noatime powercut.root=/dev/vda:erofs \
                    powercut.parts=67108864,134217728 powercut.stack=/dev/md0 \
                    powercut.recovered=/dev/vdb powercut.script=/dev/log:4096 powercut.look_ms=100 quiet";
        let expected = Settings {
            port: "org.powercut.agent".to_owned(),
            shell: true,
            device: "/dev/vda".to_owned(),
            mount: "ext4:data=journal,noatime".to_owned(),
            parts: vec![64 << 20, 128 << 20],
            stack: "/dev/md0".to_owned(),
            recovered: "/dev/vdb".to_owned(),
            script: Some(("/dev/log".to_owned(), 4096)),
            root: "/dev/vda:erofs".to_owned(),
            between_looks: Some(Duration::from_millis(100)),
        };
        assert_eq!(Settings::parse(line).unwrap(), expected);
    }

    /// It used to pass for 0: no second device.
    #[test]
    fn a_second_device_that_is_no_number_is_refused() {
        for value in ["", "64M", "-1", "1,", "99999999999999999999"] {
            let failure = Settings::parse(&format!("powercut.parts={value}")).unwrap_err();
            let told = failure.to_string();
            assert!(told.contains(&format!("powercut.parts={value} ")), "{told}");
        }
    }

    #[test]
    fn a_script_of_unknown_length_is_refused() {
        for value in ["", "/dev/log", "/dev/log:", "/dev/log:-1"] {
            assert!(Settings::parse(&format!("powercut.script={value}")).is_err());
        }
    }

    /// Without a pause, looks in a row would be no time at all.
    #[test]
    fn looks_without_a_pause_are_refused() {
        for value in ["", "0", "-1", "1s"] {
            assert!(Settings::parse(&format!("powercut.look_ms={value}")).is_err());
        }
    }

    /// `echo done >/dev/stdout` made a file of that name in the guest, and acknowledged nothing.
    #[test]
    fn a_program_finds_its_descriptors_below_dev() {
        let devices = std::env::temp_dir().join(format!("powercut-dev-{}", std::process::id()));
        fs::create_dir_all(&devices).unwrap();
        for _ in 0..2 {
            link_descriptors(&devices).unwrap();
            let led = fs::read_link(devices.join("stdout")).unwrap();
            assert_eq!(led, Path::new("/proc/self/fd/1"));
            assert!(devices.join("fd/0").symlink_metadata().is_ok());
        }
        fs::remove_dir_all(&devices).unwrap();
        assert!(link_descriptors(&devices).is_err());
    }

    #[test]
    fn a_missing_module_is_told_by_name() {
        assert_eq!(
            load_module("/no/ext4.ko"),
            Err(ModuleError {
                name: "ext4".to_owned(),
                errno: 2
            })
        );
    }
}
