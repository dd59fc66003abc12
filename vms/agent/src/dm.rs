//! Device-mapper by ioctl: just enough to create `log-writes` and `linear` targets, each on its own device.
//!
//! Layouts and numbers are those of `include/uapi/linux/dm-ioctl.h`, interface version 4. Every
//! command takes one buffer: `struct dm_ioctl`, then what the command needs. Strings that the kernel
//! splits into words (`dm_split_args` in `drivers/md/dm-table.c`) quote a space with a backslash.

use std::{
    fs::File,
    mem::{offset_of, size_of},
    path::PathBuf,
};

use rustix::{
    fs::{makedev, mknodat, FileType, Mode, CWD},
    io::{self, Errno},
    ioctl::{self, opcode, Opcode},
};

use crate::{
    failure::{errno_of, failed, Failure},
    files,
};

/// `DM_IOCTL`, the ioctl group of device-mapper.
const GROUP: u8 = 0xfd;
const DEV_CREATE: Opcode = opcode::read_write::<Header>(GROUP, 3);
const DEV_REMOVE: Opcode = opcode::read_write::<Header>(GROUP, 4);
const DEV_SUSPEND: Opcode = opcode::read_write::<Header>(GROUP, 6);
const TABLE_LOAD: Opcode = opcode::read_write::<Header>(GROUP, 9);
const TABLE_STATUS: Opcode = opcode::read_write::<Header>(GROUP, 12);
const LIST_VERSIONS: Opcode = opcode::read_write::<Header>(GROUP, 13);
const TARGET_MSG: Opcode = opcode::read_write::<Header>(GROUP, 14);

/// The oldest interface with all commands used; the kernel accepts any minor up to its own.
const VERSION: [u32; 3] = [4, 0, 0];
/// `DM_BUFFER_FULL_FLAG`: the output did not fit.
const BUFFER_FULL: u32 = 1 << 8;
/// `DM_NAME_LEN`, `DM_UUID_LEN` and `DM_MAX_TYPE_NAME`.
const NAME_BYTES: usize = 128;
const UUID_BYTES: usize = 129;
const TYPE_BYTES: usize = 16;
/// Room for the output: a list of targets, one status line.
const PAYLOAD_BYTES: usize = 16 << 10;
/// The unit of tables.
pub const SECTOR_BYTES: u64 = 512;

/// `struct dm_ioctl`.
#[repr(C)]
struct Header {
    version: [u32; 3],
    data_size: u32,
    data_start: u32,
    target_count: u32,
    open_count: i32,
    flags: u32,
    event_nr: u32,
    padding: u32,
    dev: u64,
    name: [u8; NAME_BYTES],
    uuid: [u8; UUID_BYTES],
    data: [u8; 7],
}

/// `struct dm_target_spec`; a table line's parameter string follows it.
#[repr(C)]
struct TargetSpec {
    sector_start: u64,
    length: u64,
    status: i32,
    next: u32,
    target_type: [u8; TYPE_BYTES],
}

/// One command's buffer.
#[repr(C)]
struct Command {
    header: Header,
    payload: [u8; PAYLOAD_BYTES],
}

impl Command {
    fn new(name: &str) -> Box<Self> {
        let mut command = Box::new(Self {
            header: Header {
                version: VERSION,
                data_size: size_of::<Self>() as u32,
                data_start: offset_of!(Self, payload) as u32,
                target_count: 0,
                open_count: 0,
                flags: 0,
                event_nr: 0,
                padding: 0,
                dev: 0,
                name: [0; NAME_BYTES],
                uuid: [0; UUID_BYTES],
                data: [0; 7],
            },
            payload: [0; PAYLOAD_BYTES],
        });
        command.header.name[..name.len()].copy_from_slice(name.as_bytes());
        command
    }

    /// Put `parts` after the header, with a final NUL, and set the header's size.
    fn with(mut self: Box<Self>, parts: &[&[u8]]) -> io::Result<Box<Self>> {
        let bytes = parts.concat();
        if bytes.len() >= PAYLOAD_BYTES {
            return Err(Errno::TOOBIG);
        }
        self.payload[..bytes.len()].copy_from_slice(&bytes);
        self.header.data_size = (size_of::<Header>() + bytes.len() + 1).next_multiple_of(8) as u32;
        Ok(self)
    }

    fn run<const OPCODE: Opcode>(&mut self, control: &File) -> io::Result<()> {
        // SAFETY: every OPCODE here takes a `struct dm_ioctl` whose `data_size` bounds what the
        // kernel reads and writes; it never exceeds the size of `Command`.
        unsafe { ioctl::ioctl(control, ioctl::Updater::<OPCODE, Self>::new(self))? };
        if self.header.flags & BUFFER_FULL != 0 {
            return Err(Errno::OVERFLOW);
        }
        Ok(())
    }
}

/// The control device, which takes all commands.
pub struct DeviceMapper {
    control: File,
    /// Targets made so far: each gets its own name, since a busy one may outlive its removal.
    made: u32,
}

impl DeviceMapper {
    /// Open the control device; its number is dynamic and comes from sysfs.
    ///
    /// # Errors
    /// ENOENT if the kernel has no device-mapper.
    pub fn open() -> Result<Self, Failure> {
        let node = files::node("/dev/mapper/control", "/sys/class/misc/device-mapper/dev")?;
        let control = File::options()
            .read(true)
            .write(true)
            .open(node)
            .map_err(|e| failed("open /dev/mapper/control")(errno_of(&e)))?;
        Ok(Self { control, made: 0 })
    }

    /// Names of the targets that are loaded.
    pub fn targets(&self) -> Result<Vec<String>, Failure> {
        let mut command = Command::new("");
        command
            .run::<LIST_VERSIONS>(&self.control)
            .map_err(failed("DM_LIST_VERSIONS"))?;
        let end = (command.header.data_size as usize).saturating_sub(size_of::<Header>());
        Ok(version_names(&command.payload[..end.min(PAYLOAD_BYTES)]))
    }

    /// Stack `log-writes` on the whole of `data`, logging to `log`.
    pub fn log_writes(&mut self, data: &str, log: &str) -> Result<Target, Failure> {
        let sectors = files::device_bytes(data)? / SECTOR_BYTES;
        let params = format!("{} {}", quoted(data), quoted(log));
        self.make(&Table {
            kind: "log-writes",
            sectors,
            params,
        })
    }

    /// A device that maps `sectors` sectors of `disk` from sector `start` on.
    pub fn linear(&mut self, disk: &str, start: u64, sectors: u64) -> Result<Target, Failure> {
        self.make(&Table {
            kind: "linear",
            sectors,
            params: format!("{} {start}", quoted(disk)),
        })
    }

    fn make(&mut self, table: &Table) -> Result<Target, Failure> {
        self.made += 1;
        let mut target = Target {
            name: format!("powercut-{}", self.made),
            node: PathBuf::new(),
        };
        let mut create = Command::new(&target.name);
        create
            .run::<DEV_CREATE>(&self.control)
            .map_err(failed(format!("DM_DEV_CREATE {}", target.name)))?;
        let finished = self
            .load(&target, table)
            .and_then(|()| block_node(create.header.dev));
        match finished {
            Ok(node) => {
                target.node = node;
                Ok(target)
            }
            Err(failure) => {
                // The first failure is the one to report.
                let _ = self.remove(&target);
                Err(failure)
            }
        }
    }

    fn load(&self, target: &Target, table: &Table) -> Result<(), Failure> {
        let what = format!("DM_TABLE_LOAD {} {}", table.kind, table.params);
        let mut load = Command::new(&target.name)
            .with(&[&table.spec(), table.params.as_bytes()])
            .map_err(failed(&what))?;
        load.header.target_count = 1;
        load.run::<TABLE_LOAD>(&self.control)
            .map_err(failed(&what))?;
        // Without DM_SUSPEND_FLAG this command resumes, which makes the loaded table the live one.
        Command::new(&target.name)
            .run::<DEV_SUSPEND>(&self.control)
            .map_err(failed(format!("DM_DEV_SUSPEND (resume) {}", target.name)))
    }

    /// Put a mark into the log.
    pub fn mark(&self, target: &Target, text: &str) -> Result<(), Failure> {
        let what = format!("DM_TARGET_MSG mark {text}");
        let message = format!("mark {}", quoted(text));
        // The sector that selects the target, then the message.
        Command::new(&target.name)
            .with(&[&0u64.to_le_bytes(), message.as_bytes()])
            .map_err(failed(&what))?
            .run::<TARGET_MSG>(&self.control)
            .map_err(failed(&what))
    }

    /// The target's status.
    pub fn status(&self, target: &Target) -> Result<Status, Failure> {
        let mut command = Command::new(&target.name);
        command
            .run::<TABLE_STATUS>(&self.control)
            .map_err(failed(format!("DM_TABLE_STATUS {}", target.name)))?;
        if command.header.target_count != 1 {
            // No line would look like one without complaints.
            return Err(Failure::TargetStatus {
                name: target.name.clone(),
                lines: command.header.target_count,
            });
        }
        let line = &command.payload[size_of::<TargetSpec>()..];
        Ok(Status::of(&text(line)))
    }

    /// Remove the target, which writes what is left to the log and its final super block.
    pub fn remove(&self, target: &Target) -> Result<(), Failure> {
        Command::new(&target.name)
            .run::<DEV_REMOVE>(&self.control)
            .map_err(failed(format!("DM_DEV_REMOVE {}", target.name)))
    }
}

/// A target's status line: entries logged, last sector of the log, and `logging_disabled` where the log was
/// full or memory was short (`log_writes_status` in `drivers/md/dm-log-writes.c`).
#[derive(Debug, PartialEq, Eq)]
pub struct Status {
    pub line: String,
    pub logging_disabled: bool,
}

impl Status {
    fn of(line: &str) -> Self {
        Self {
            line: line.to_owned(),
            logging_disabled: line.split_whitespace().any(|w| w == "logging_disabled"),
        }
    }
}

/// A live device of one target.
pub struct Target {
    name: String,
    /// Its block device.
    pub node: PathBuf,
}

/// A live `log-writes` target.
pub type LogWrites = Target;

/// A table of one line.
struct Table {
    kind: &'static str,
    sectors: u64,
    params: String,
}

impl Table {
    /// `struct dm_target_spec`: from sector 0 on; status and next stay 0, as there is one line only.
    fn spec(&self) -> Vec<u8> {
        let mut spec = Vec::with_capacity(size_of::<TargetSpec>());
        spec.extend_from_slice(&0u64.to_le_bytes());
        spec.extend_from_slice(&self.sectors.to_le_bytes());
        spec.extend_from_slice(&[0; 8]);
        let mut kind = [0; TYPE_BYTES];
        kind[..self.kind.len()].copy_from_slice(self.kind.as_bytes());
        spec.extend_from_slice(&kind);
        spec
    }
}

impl Target {
    /// A target that another process made. Its node is not known here.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            node: PathBuf::new(),
        }
    }

    /// Its name in device-mapper.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The names in a list of `struct dm_target_versions { u32 next; u32 version[3]; char name[]; }`.
fn version_names(mut list: &[u8]) -> Vec<String> {
    const NAME_AT: usize = 16;
    let mut names = Vec::new();
    while let (Some(next), Some(name)) = (list.first_chunk::<4>(), list.get(NAME_AT..)) {
        names.push(text(name).into_owned());
        let next = u32::from_le_bytes(*next) as usize;
        match list.get(next..) {
            Some(rest) if next > 0 => list = rest,
            _ => break,
        }
    }
    names
}

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end])
}

/// One word for `dm_split_args`.
fn quoted(word: &str) -> String {
    word.replace('\\', "\\\\").replace(' ', "\\ ")
}

/// Major and minor of a device number as the kernel gives it (`huge_encode_dev`).
const fn split_dev(dev: u64) -> (u32, u32) {
    let major = (dev & 0xfff00) >> 8;
    let minor = (dev & 0xff) | ((dev >> 12) & 0xfff00);
    (major as u32, minor as u32)
}

/// The block node of a mapped device: devtmpfs makes it; otherwise make one.
fn block_node(dev: u64) -> Result<PathBuf, Failure> {
    let (major, minor) = split_dev(dev);
    let node = PathBuf::from(format!("/dev/dm-{minor}"));
    let mode = Mode::RUSR | Mode::WUSR;
    match mknodat(
        CWD,
        &node,
        FileType::BlockDevice,
        mode,
        makedev(major, minor),
    ) {
        Ok(()) | Err(Errno::EXIST) => Ok(node),
        Err(errno) => Err(failed(format!("mknod {}", node.display()))(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes and offsets as a C compiler lays them out on x86-64, printed from the kernel's header.
    #[test]
    fn layouts_are_the_kernel_s() {
        assert_eq!(size_of::<Header>(), 312);
        assert_eq!(offset_of!(Header, flags), 28);
        assert_eq!(offset_of!(Header, dev), 40);
        assert_eq!(offset_of!(Header, name), 48);
        assert_eq!(offset_of!(Header, uuid), 176);
        assert_eq!(offset_of!(Header, data), 305);
        assert_eq!(size_of::<TargetSpec>(), 40);
        assert_eq!(offset_of!(TargetSpec, target_type), 24);
        assert_eq!(offset_of!(Command, payload), 312);
    }

    #[test]
    fn opcodes_are_the_kernel_s() {
        assert_eq!(DEV_CREATE, 0xc138_fd03);
        assert_eq!(TARGET_MSG, 0xc138_fd0e);
    }

    #[test]
    fn marks_are_one_word() {
        assert_eq!(quoted("begin 7"), "begin\\ 7");
        assert_eq!(quoted("a\\b"), "a\\\\b");
    }

    #[test]
    fn a_table_line_names_its_target_and_its_length() {
        let table = Table {
            kind: "linear",
            sectors: 0x1_0002,
            params: "/dev/vda 131072".to_owned(),
        };
        let spec = table.spec();
        assert_eq!(spec.len(), size_of::<TargetSpec>());
        assert_eq!(spec[..8], [0; 8]);
        assert_eq!(spec[8..16], 0x1_0002u64.to_le_bytes());
        assert_eq!(spec[offset_of!(TargetSpec, status)..24], [0; 8]);
        assert_eq!(text(&spec[24..]), "linear");
    }

    #[test]
    fn a_status_line_says_whether_the_log_is_whole() {
        assert!(!Status::of("9 18").logging_disabled);
        assert!(Status::of("9 18 logging_disabled").logging_disabled);
    }

    #[test]
    fn device_numbers_are_split_as_the_kernel_joins_them() {
        assert_eq!(split_dev((254 << 8) | 3), (254, 3));
        assert_eq!(
            split_dev((0x12345 << 12 & !0xf_ffff) | (253 << 8) | 0x45),
            (253, 0x12345)
        );
    }

    #[test]
    fn target_names_are_read_from_the_list() {
        let mut list = Vec::new();
        for (next, name) in [
            (32u32, "linear\0\0\0\0\0\0\0\0\0\0"),
            (0, "log-writes\0\0\0\0\0\0"),
        ] {
            list.extend_from_slice(&next.to_le_bytes());
            list.extend_from_slice(&[0; 12]);
            list.extend_from_slice(name.as_bytes());
        }
        assert_eq!(version_names(&list), ["linear", "log-writes"]);
        assert!(version_names(&[]).is_empty());
        assert_eq!(version_names(&list[..40]), ["linear"]);
    }
}
