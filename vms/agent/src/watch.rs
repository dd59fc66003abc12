//! Notices a kernel that does not return from a call, and ends the guest with a line that says where it is.
//!
//! From the host, a kernel that hangs looks like a guest that gets no processor, or like a disk that does not answer.
//! In the guest they differ. A thread looks once a second at the thread that makes the calls. A look counts if the disk
//! owes no answer, and each look takes a guest that runs: one that is stopped for a minute has looked once. So what
//! counts is not time but looks in a row. A mount or unmount that reads the same blocks for ever is told by what it asks
//! for ([`crate::requests`]).

use std::{
    fs, io,
    path::Path,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use rustix::{
    fs::{open, Mode, OFlags},
    io::pread,
};

use crate::{power_off, requests::Requests, say};

/// What the agent asks the kernel for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Mount,
    /// Reading or writing files: many calls.
    Files,
    Unmount,
}

impl Call {
    fn name(self) -> &'static str {
        match self {
            Self::Mount => "mount",
            Self::Files => "a call on a file",
            Self::Unmount => "unmount",
        }
    }
}

/// Looks in a row at which the thread waits, and was not woken in between.
const WAITING: u32 = 30;
/// Looks in a row at which one and the same mount or unmount is under way, and the disk was asked for nothing in
/// between: it computes, or wakes again and again. Of calls on files there are many, so nothing follows from these.
const BUSY: u32 = 60;

/// Looks in a row at one and the same mount or unmount, after which it is looked at what that asks the disks for.
const LATE: u32 = 2;

/// Unless the kernel's command line says otherwise.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
const FRAMES: usize = 4;
/// How often the stack is looked at, for what all have in common: a call that goes round is now here, now there.
const STACKS: usize = 20;
const BETWEEN_STACKS: Duration = Duration::from_millis(20);

/// The [`Call`] that is under way, plus 1; 0: none.
static UNDER_WAY: AtomicU32 = AtomicU32::new(0);
/// Calls begun so far.
static BEGUN: AtomicU32 = AtomicU32::new(0);

/// Blocks that the watch itself has read of disks.
static OWN_READS: AtomicU64 = AtomicU64::new(0);

/// Carry out `calls` of a kind. One thread does so at a time: the one with which the process began.
pub fn during<T>(kind: Call, calls: impl FnOnce() -> T) -> T {
    BEGUN.fetch_add(1, Ordering::Relaxed);
    UNDER_WAY.store(kind as u32 + 1, Ordering::Relaxed);
    let done = calls();
    UNDER_WAY.store(0, Ordering::Relaxed);
    done
}

/// Look from now on. `between`: two looks; None: a second. If no thread can be had, nobody looks, and the host waits
/// for its own deadline.
pub fn begin(between: Option<Duration>) {
    let between = between.unwrap_or(BETWEEN_LOOKS);
    let _ = thread::Builder::new().spawn(move || {
        let (mut looks, mut asked) = (Looks::default(), Asked::default());
        loop {
            thread::sleep(between);
            let now = Look::now();
            if asked.repeats(now) {
                give_up(now.map(|look| look.call));
            }
            if looks.hangs(now) {
                ask_disks();
                thread::sleep(between);
                let last = Look::now();
                if looks.hangs(last) {
                    give_up(last.map(|look| look.call));
                }
            }
        }
    });
}

/// What one look shows of the thread that makes the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    call: Call,
    /// Numbers the calls.
    number: u32,
    /// It sleeps, as opposed to: it may run.
    sleeps: bool,
    /// How often it was switched to another thread.
    switches: u64,
    /// Requests that the disks have answered, and those that they have not.
    answered: u64,
    owed: u64,
}

impl Look {
    /// None: nothing is under way, or it cannot be seen.
    fn now() -> Option<Self> {
        let call = match UNDER_WAY.load(Ordering::Relaxed) {
            1 => Call::Mount,
            2 => Call::Files,
            3 => Call::Unmount,
            _ => return None,
        };
        let status = fs::read_to_string("/proc/1/task/1/status").ok()?;
        let (answered, owed) = requests();
        Some(Self {
            call,
            number: BEGUN.load(Ordering::Relaxed),
            sleeps: matches!(field(&status, "State:")?.chars().next()?, 'D' | 'S'),
            switches: number(field(&status, "voluntary_ctxt_switches:")?)?
                + number(field(&status, "nonvoluntary_ctxt_switches:")?)?,
            answered,
            owed,
        })
    }
}

/// The looks in a row that count.
#[derive(Default)]
struct Looks {
    before: Option<Look>,
    waiting: u32,
    busy: u32,
}

impl Looks {
    /// Whether the call hangs, with one more look.
    fn hangs(&mut self, now: Option<Look>) -> bool {
        let before = std::mem::replace(&mut self.before, now);
        let (Some(before), Some(now)) = (before, now) else {
            (self.waiting, self.busy) = (0, 0);
            return false;
        };
        let same = before.number == now.number && now.owed == 0;
        let still = same && now.sleeps && before.sleeps && now.switches == before.switches;
        let alone = same && now.call != Call::Files && now.answered == before.answered;
        self.waiting = if still { self.waiting + 1 } else { 0 };
        self.busy = if alone { self.busy + 1 } else { 0 };
        self.waiting >= WAITING || self.busy >= BUSY
    }
}

/// What one mount or unmount asks the disks for, once it takes long.
#[derive(Default)]
struct Asked {
    number: u32,
    looks: u32,
    requests: Option<Requests>,
}

impl Asked {
    /// Whether the call asks for the same again and again, with one more look.
    fn repeats(&mut self, now: Option<Look>) -> bool {
        let call = now.filter(|look| look.call != Call::Files);
        let number = call.map_or(0, |look| look.number);
        if number != self.number {
            *self = Self {
                number,
                ..Self::default()
            };
        }
        self.looks += u32::from(call.is_some());
        if self.looks == LATE {
            self.requests = Requests::begin();
        }
        self.requests.as_mut().is_some_and(Requests::repeat)
    }
}

/// Ask each disk for its last block, in order with what it has been asked before, and wait for an answer of any kind.
/// If one does not answer, this never returns, and nothing is said of the kernel. Not for the serial number: to the
/// disk that is a mark of the walk's ([`crate::phases`]), and the kernel may go on after all.
fn ask_disks() {
    for disk in disks() {
        let Some(name) = disk.file_name() else {
            continue;
        };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECT;
        if ask(&disk, &Path::new("/dev").join(name), flags).is_ok() {
            OWN_READS.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Read the last block of the disk that is described at `disk`, past all caches. Returns its length in bytes.
fn ask(disk: &Path, device: &Path, flags: OFlags) -> io::Result<usize> {
    let sectors = fs::read_to_string(disk.join("size")).unwrap_or_default();
    let sectors = number(sectors.trim()).unwrap_or(0);
    let last = (sectors * SECTOR_BYTES / BLOCK_BYTES).saturating_sub(1) * BLOCK_BYTES;
    let file = open(device, flags, Mode::empty())?;
    let mut block = Block([0; BLOCK_BYTES as usize]);
    Ok(pread(file, &mut block.0[..], last)?)
}

const SECTOR_BYTES: u64 = 512;
const BLOCK_BYTES: u64 = 4096;

/// Where it may be read to without a copy.
#[repr(align(4096))]
struct Block([u8; BLOCK_BYTES as usize]);

fn disks() -> impl Iterator<Item = std::path::PathBuf> {
    let found = fs::read_dir("/sys/block").into_iter().flatten();
    found
        .filter_map(Result::ok)
        .map(|disk| disk.path())
        .filter(|disk| disk.join("serial").exists())
}

/// Of all disks: requests answered, but for those of [`ask_disks`], and owed. Documentation/block/stat.rst
fn requests() -> (u64, u64) {
    let (mut answered, mut owed) = (0, 0);
    for disk in disks() {
        let text = fs::read_to_string(disk.join("stat")).unwrap_or_default();
        let counts: Vec<u64> = text.split_whitespace().filter_map(number).collect();
        // Reads and writes that completed, requests in flight, flushes that completed (since 5.5).
        answered += [0, 4, 15]
            .iter()
            .filter_map(|i| counts.get(*i))
            .sum::<u64>();
        owed += counts.get(8).copied().unwrap_or(0);
    }
    (
        answered - OWN_READS.load(Ordering::Relaxed).min(answered),
        owed,
    )
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let line = status.lines().find(|line| line.starts_with(name))?;
    Some(line[name.len()..].trim())
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

/// Say where the kernel is, and end the guest.
fn give_up(call: Option<Call>) -> ! {
    // Whatever blocks as well is told on the console; kernels without this say only the line below.
    let _ = fs::write("/proc/sys/kernel/printk", "8");
    let _ = fs::write("/proc/sysrq-trigger", "w");
    let stacks: Vec<_> = (0..STACKS)
        .map(|_| {
            thread::sleep(BETWEEN_STACKS);
            fs::read_to_string("/proc/1/task/1/stack").unwrap_or_default()
        })
        .collect();
    let name = call.map_or("a call", Call::name);
    say(&format!("{name} hangs{}", place(&stacks)));
    power_off()
}

/// ` in wait_for_x < y < z`: the innermost functions that all stacks such as `[<0>] y+0x12/0x34 [jbd2]` have in common;
/// none of a thread that was running, whose stack is empty.
fn place(stacks: &[String]) -> String {
    let functions = |stack: &String| -> Vec<String> {
        let names = stack
            .lines()
            .filter_map(|line| line.split_whitespace().nth(1)?.split('+').next());
        names.map(str::to_owned).collect()
    };
    let seen = stacks.iter().filter(|stack| !stack.is_empty());
    let common = seen.map(functions).reduce(|mut common, next| {
        common.retain(|function| next.contains(function));
        common
    });
    let innermost: Vec<_> = common
        .unwrap_or_default()
        .into_iter()
        .take(FRAMES)
        .collect();
    if innermost.is_empty() {
        String::new()
    } else {
        format!(" in {}", innermost.join(" < "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Look = Look {
        call: Call::Mount,
        number: 7,
        sleeps: true,
        switches: 3,
        answered: 100,
        owed: 0,
    };

    /// After how many looks, at most a thousand, a call counts as hung.
    fn looks_until_hung(look: impl Fn(u32) -> Option<Look>) -> Option<u32> {
        let mut looks = Looks::default();
        (0..1000).find(|i| looks.hangs(look(*i)))
    }

    #[test]
    fn a_call_that_waits_for_nothing_hangs() {
        assert_eq!(looks_until_hung(|_| Some(LOOK)), Some(WAITING));
        let file = Look {
            call: Call::Files,
            ..LOOK
        };
        assert_eq!(looks_until_hung(|_| Some(file)), Some(WAITING));
        // Threads of the kernel's own go on writing.
        let beside = |i| Look {
            answered: i,
            ..LOOK
        };
        assert_eq!(looks_until_hung(|i| Some(beside(i.into()))), Some(WAITING));
    }

    #[test]
    fn a_call_that_waits_for_a_slow_disk_does_not_hang() {
        let slow = Look { owed: 1, ..LOOK };
        assert_eq!(looks_until_hung(|_| Some(slow)), None);
        // Seen to wait for the disk now and then.
        let at_times = |i| if i % 20 == 0 { slow } else { LOOK };
        assert_eq!(looks_until_hung(|i| Some(at_times(i))), None);
    }

    #[test]
    fn a_mount_that_computes_for_ever_hangs_and_one_that_asks_the_disk_does_not() {
        let computes = Look {
            sleeps: false,
            ..LOOK
        };
        assert_eq!(looks_until_hung(|_| Some(computes)), Some(BUSY));
        let wakes = |i: u32| Look {
            switches: i.into(),
            ..LOOK
        };
        assert_eq!(looks_until_hung(|i| Some(wakes(i))), Some(BUSY));
        let reads = |i: u32| Look {
            answered: (i / 50).into(),
            ..computes
        };
        assert_eq!(looks_until_hung(|i| Some(reads(i))), None);
    }

    /// Thousands of files take long where processors are few.
    #[test]
    fn files_may_take_long() {
        let computes = Look {
            call: Call::Files,
            sleeps: false,
            ..LOOK
        };
        assert_eq!(looks_until_hung(|_| Some(computes)), None);
    }

    #[test]
    fn each_call_is_looked_at_by_itself() {
        let next = |i: u32| Look {
            number: i / 25,
            ..LOOK
        };
        assert_eq!(looks_until_hung(|i| Some(next(i))), None);
        let between = |i: u32| (!i.is_multiple_of(25)).then_some(LOOK);
        assert_eq!(looks_until_hung(between), None);
    }

    /// It was asked for its serial number, which is the mark of the walk's data phase: a kernel that went on after
    /// all had its metadata taken for data.
    #[test]
    fn a_disk_is_asked_for_its_last_block_and_not_for_its_serial_number() {
        let scratch = std::env::temp_dir().join(format!("powercut-watch-{}", std::process::id()));
        fs::create_dir_all(&scratch).unwrap();
        let device = scratch.join("device");
        fs::write(&device, vec![1; 3 * 4096 + 512]).unwrap();
        for (sectors, bytes) in [("25\n", 4096), ("8\n", 4096), ("40\n", 0)] {
            fs::write(scratch.join("size"), sectors).unwrap();
            let read = ask(&scratch, &device, OFlags::RDONLY).unwrap();
            assert_eq!(read, bytes, "{sectors}");
        }
        assert!(ask(&scratch, &scratch.join("none"), OFlags::RDONLY).is_err());
        fs::remove_dir_all(&scratch).unwrap();
    }

    #[test]
    fn the_place_is_told_by_the_innermost_functions() {
        let stack = "[<0>] msleep+0x2d/0x40\n[<0>] jbd2_journal_recover+0x5a/0x150 [jbd2]\n[<0>] a+0x1/0x2\n\
                     [<0>] b+0x1/0x2\n[<0>] c+0x1/0x2\n";
        let told = " in msleep < jbd2_journal_recover < a < b";
        assert_eq!(place(&[stack.to_owned(), stack.to_owned()]), told);
        assert_eq!(place(&[String::new(), stack.to_owned()]), told);
        let elsewhere = stack.replace("msleep", "bh_read");
        let common = " in jbd2_journal_recover < a < b < c";
        assert_eq!(place(&[stack.to_owned(), elsewhere]), common);
        assert_eq!(place(&[]), "");
    }

    #[test]
    fn fields_of_a_status_are_found() {
        let status = "Name:\tinit\nState:\tD (disk sleep)\nvoluntary_ctxt_switches:\t12\n\
                      nonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(field(status, "State:"), Some("D (disk sleep)"));
        assert_eq!(
            field(status, "voluntary_ctxt_switches:").and_then(number),
            Some(12)
        );
        assert_eq!(field(status, "Threads:"), None);
    }
}
