//! `powercut-calls PROGRAM ARGUMENTS`: runs a program, and notes among the events of a recording which system
//! calls it makes on files of the recorded file system.
//!
//! Any kernel has ptrace(2), User Mode Linux too; trace events of system calls need options that a kernel may lack,
//! and know numbers of descriptors instead of names. Where the kernel has filters of system calls (Debian's has, our
//! UML kernels have not), only those stop that may be noted: a workload then takes 0.68 (PostgreSQL) to 0.77 (git) of
//! the processor's time in an emulated guest (docs/explanation/recordings.md). The tracer is a process of
//! its own (this binary under another name), so the agent waits for it as for any program. The kernel's trace gets two
//! lines for each call, between those of the block layer:
//!
//! ```text
//! tracing_mark_write: powercut-call: 7 61 pwrite(test.db, 4096 at 8192)
//! tracing_mark_write: powercut-done: 7 4096
//! ```
//!
//! The number of the call, its thread, and what it is; then what it returned, a negative errno if it failed. At
//! most [`CALLS_MAX`] are noted; `powercut-more: 12` says at the program's end how many were not. Stores into a
//! mapping are no calls. `harness/writelog/calls.py` reads them.
//!
//! Where calls are noted whole, each with what it wrote (`whole.rs`), one thread at a time is in a call. That may be
//! during a recording, too: the lines above then tell when each call was made.
//!
//! Behind `powercut-ack-lines`, each line that the program prints is acknowledged as soon as the call that prints it
//! has returned, while the thread that called is stopped. Behind `powercut-neighbour`, another program commits after
//! each call that changes a file, and behind `powercut-pressure`, dirty pages are written back: see `neighbour.rs`.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    ffi::{CString, OsStr},
    fs::{self, File},
    io::{self, Read, Write},
    ops::Range,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, MetadataExt},
    },
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use libc::{c_int, c_long, c_void, pid_t, user_regs_struct};

use crate::{
    ack, events, image,
    mounts::MOUNT_POINT,
    neighbour::{self, Commits, Neighbour},
    paths,
    printed::Printed,
    whole::{Notes, MORE_CHOSEN},
};

/// The name that the program goes by in the guest.
pub const NAME: &str = "powercut-calls";

/// Calls noted: a line of the trace is at most some 300 bytes, and all must fit its buffer beside the writes.
const CALLS_MAX: u64 = 4000;
/// How long a thread that is in a call keeps others waiting, if it may be waiting for them.
const WAITS: Duration = Duration::from_millis(500);
/// Bytes of a path that are noted; the end of a longer one, where its name is.
const PATH_BYTES: usize = 100;
/// A stop at a system call, by PTRACE_O_TRACESYSGOOD.
const SYSCALL_STOP: c_int = libc::SIGTRAP | 0x80;
/// What a program ends with that printed a line which cannot be acknowledged.
const NOT_ACKNOWLEDGED: i32 = 125;
/// What a program ends with beside which another one did not commit behind each call.
const NOT_COMMITTED: i32 = 124;
/// What shells exit with if they cannot start a program.
const NOT_STARTED: i32 = 127;
/// The code segment of 64-bit programs (`__USER_CS`); others number their calls differently.
const USER_CS: u64 = 0x33;

const OPTIONS: c_int = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACESECCOMP;

/// The same where its calls are noted whole.
pub const WHOLE: &str = "powercut-whole";

/// The same where they are noted whole while the program is recorded.
pub const BOTH: &str = "powercut-both";

/// The program's command line, with its calls noted.
pub fn noted(how: Noted, argv: &[String]) -> Vec<String> {
    match how {
        Noted::Nothing => argv.to_vec(),
        Noted::Briefly => behind_tracer(NAME, argv),
        Noted::Whole => behind_tracer(WHOLE, argv),
        Noted::Both => behind_tracer(BOTH, argv),
    }
}

/// How calls are noted by a program of this name, if it is a tracer's.
pub fn how(name: &str) -> Option<Noted> {
    match name {
        NAME => Some(Noted::Briefly),
        WHOLE => Some(Noted::Whole),
        BOTH => Some(Noted::Both),
        _ => None,
    }
}

/// The tracer is in the image, too, so that it reads paths as the program does.
fn behind_tracer(word: &str, argv: &[String]) -> Vec<String> {
    let (ahead, program) = image::split(argv);
    let tracer = ["/proc/self/exe", word].map(str::to_owned);
    [ahead, &tracer, program].concat()
}

/// Which calls of a program are noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Noted {
    /// None: what it prints is acknowledged.
    #[default]
    Nothing,
    /// What each does, among the events of a recording.
    Briefly,
    /// Each with what it wrote.
    Whole,
    /// Each with what it wrote, and when among the events of a recording.
    Both,
}

/// Words that may stand in front of a program, in any order.
pub const AHEAD: [&str; 3] = [ack::LINES_NAME, neighbour::NAME, neighbour::PRESSURE_NAME];

/// Run a program to its end; returns its exit code as shells tell it. Behind `powercut-ack-lines`, the lines that it
/// prints are acknowledged; behind `powercut-neighbour`, another program commits beside it; behind `powercut-pressure`,
/// what it makes dirty is written back.
///
/// The tracer is a child, since it has to outlive the program: where a filter chooses the calls, those of what the
/// program has left behind would fail with ENOSYS without a tracer (seccomp(2), SECCOMP_RET_TRACE).
///
/// # Errors
/// Why it could not be run, in words.
pub fn run(argv: &[String], noted: Noted) -> Result<i32, String> {
    let words = argv
        .iter()
        .take_while(|word| AHEAD.contains(&word.as_str()))
        .count();
    let (ahead, argv) = argv.split_at(words);
    let has = |name: &str| ahead.iter().any(|word| word == name);
    let told = |e: io::Error| format!("trace {}: {e}", argv.join(" "));
    let printed = has(ack::LINES_NAME)
        .then(Printed::open)
        .transpose()
        .map_err(told)?;
    // Where calls are noted whole, nothing commits by itself, and every order is tried.
    let alone = matches!(noted, Noted::Whole | Noted::Both);
    let commits = has(neighbour::NAME) && !alone;
    let commits = commits.then(Commits::open).transpose().map_err(|e| {
        format!(
            "{}: another program needs a file without a name, which this file system has not: {e}",
            neighbour::NAME
        )
    })?;
    let presses = has(neighbour::PRESSURE_NAME) && !alone;
    let neighbour = commits
        .map(Neighbour::Commits)
        .or(presses.then_some(Neighbour::WritesBack));
    let sink = match noted {
        Noted::Whole => Sink::Whole(Box::new(Notes::open().map_err(told)?), None),
        Noted::Both => {
            let notes = Box::new(Notes::open().map_err(told)?);
            Sink::Whole(notes, Some(events::open_marker()?))
        }
        Noted::Briefly => Sink::Events(events::open_marker()?),
        Noted::Nothing => Sink::Nothing,
    };
    let (mut ended, mut ends) = io::pipe().map_err(told)?;
    for signal in IGNORED {
        // SAFETY: no handler is set.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // SAFETY: this process has one thread.
    let tracer = unsafe { libc::fork() };
    if tracer < 0 {
        return Err(told(io::Error::last_os_error()));
    }
    if tracer == 0 {
        drop(ended);
        let task = Task { printed, neighbour };
        if let Err(why) = trace(argv, sink, task, &mut ends).map_err(told) {
            eprintln!("{NAME}: {why}");
        }
        std::process::exit(0);
    }
    drop(ends);
    let mut code = [0; 4];
    ended.read_exact(&mut code).map_err(told)?;
    Ok(i32::from_ne_bytes(code))
}

/// Trace a program, tell `ends` its exit code, and go on with what it has left behind, which is not noted.
fn trace(argv: &[String], sink: Sink, task: Task, ends: &mut impl Write) -> io::Result<()> {
    let whole = matches!(sink, Sink::Whole(..));
    let (program, tracing) = start(argv, whole, &task)?;
    let mut tracer = Tracer::new(sink, task, tracing);
    let mut code = tracer.follow(Some(program))?;
    if let Some(mut printed) = tracer.printed.take() {
        printed.acknowledge(ack::try_run);
        if code == 0 && !printed.is_acknowledged() {
            code = NOT_ACKNOWLEDGED;
        }
    }
    if let Some(why) = &tracer.not_committed {
        eprintln!("{}: {why}", neighbour::NAME);
        code = NOT_COMMITTED;
    }
    if tracing != Tracing::Nothing {
        tracer.say_more();
    }
    // What it left behind may still change files, which is told by what is there in the end.
    tracer.quiet = !whole;
    tracer.neighbour = None;
    if let Sink::Whole(notes, _) = &mut tracer.sink {
        notes.let_go();
    }
    // What is left may not keep the file system busy.
    std::env::set_current_dir("/")?;
    ends.write_all(&code.to_ne_bytes())?;
    tracer.follow(None).map(drop)
}

/// At which calls a program stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tracing {
    /// It could not be traced.
    Nothing,
    /// At each, before and after.
    All,
    /// At those that a filter chooses, before; and after, where that was asked for.
    Chosen,
}

/// A child that will be the program, traced from its first instruction on.
fn start(argv: &[String], whole: bool, task: &Task) -> io::Result<(pid_t, Tracing)> {
    let more: &[c_long] = if whole { &MORE_CHOSEN } else { &[] };
    let chosen: Vec<_> = CHOSEN.iter().chain(more).copied().collect();
    let child = stopped_child(argv, &chosen, task.printed.as_ref())?;
    let filtered = fs::read_to_string(format!("/proc/{child}/status"))
        .is_ok_and(|status| status.lines().any(|line| line == "Seccomp:\t2"));
    // SAFETY: the request takes numbers.
    if unsafe { libc::ptrace(libc::PTRACE_SEIZE, child, 0, OPTIONS) } == 0 {
        let tracing = if filtered {
            Tracing::Chosen
        } else {
            Tracing::All
        };
        return Ok((proceed(child), tracing));
    }
    let why = io::Error::last_os_error();
    // SAFETY: the calls take numbers.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    if task.printed.is_some() || task.neighbour.is_some() {
        return Err(why); // nobody would acknowledge what it prints, or commit beside it
    }
    eprintln!("{NAME}: no calls are noted: {why}");
    Ok((proceed(stopped_child(argv, &[], None)?), Tracing::Nothing))
}

fn proceed(child: pid_t) -> pid_t {
    // SAFETY: the call takes numbers.
    unsafe { libc::kill(child, libc::SIGCONT) };
    child
}

/// A child that becomes the program once it is continued, and prints to `printed`. With a filter for the chosen calls,
/// if there are any and the kernel has filters.
fn stopped_child(
    argv: &[String],
    chosen: &[c_long],
    printed: Option<&Printed>,
) -> io::Result<pid_t> {
    let words: Vec<CString> = argv
        .iter()
        .map(|word| CString::new(word.as_str()))
        .collect::<Result<_, _>>()?;
    let mut pointers: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let mut filter = filter(chosen);
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    let output = printed.map(Printed::descriptor);
    // SAFETY: this process has one thread. The child makes calls that take numbers and a filter, whose length is
    // beside it, stops itself, and becomes the program, whose words end in NUL, their list in a null pointer.
    let child = unsafe {
        let child = libc::fork();
        if child == 0 {
            for signal in IGNORED {
                libc::signal(signal, libc::SIG_DFL);
            }
            libc::signal(libc::SIGPIPE, libc::SIG_DFL); // the Rust runtime ignores it
            if let Some(output) = output {
                libc::dup2(output, 1);
            }
            if !chosen.is_empty() {
                libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program);
            }
            libc::raise(libc::SIGSTOP);
            libc::execvp(pointers[0], pointers.as_ptr());
            let why = io::Error::last_os_error();
            eprintln!("{NAME}: {}: {why}", argv.join(" "));
            libc::_exit(NOT_STARTED);
        }
        child
    };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call takes numbers; the status does not matter.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::WUNTRACED) };
    Ok(child)
}

/// Signals that a program may send to its whole group, and that the tracer survives as a shell would not.
const IGNORED: [c_int; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// Every call that may be noted.
pub const CHOSEN: [c_long; 44] = [
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_sendfile,
    libc::SYS_copy_file_range,
    libc::SYS_splice,
    libc::SYS_ioctl,
    libc::SYS_ftruncate,
    libc::SYS_truncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_syncfs,
    libc::SYS_sync,
    libc::SYS_sync_file_range,
    libc::SYS_msync,
    libc::SYS_io_submit,
    libc::SYS_io_uring_enter,
    libc::SYS_open,
    libc::SYS_creat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_symlink,
    libc::SYS_symlinkat,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_rmdir,
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_chown,
    libc::SYS_fchown,
    libc::SYS_lchown,
    libc::SYS_fchownat,
];

const AT_SYMLINK_NOFOLLOW: u64 = libc::AT_SYMLINK_NOFOLLOW as u64;

/// `FICLONE` and `FICLONERANGE` of include/uapi/linux/fs.h.
const FICLONE: u32 = 0x4004_9409;
const FICLONERANGE: u32 = 0x4020_940d;

/// Stops at the chosen calls of x86-64, and lets all others pass: each in its turn, by its number.
fn filter(chosen: &[c_long]) -> Vec<libc::sock_filter> {
    const ARCHITECTURE: u32 = 0xc000_003e; // AUDIT_ARCH_X86_64 of include/uapi/linux/audit.h
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let answer = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let mut steps = vec![
        step(load, 4, 0, 0), // arch of struct seccomp_data
        step(equal, ARCHITECTURE, 1, 0),
        step(answer, libc::SECCOMP_RET_ALLOW, 0, 0),
        step(load, 0, 0, 0), // nr
    ];
    for (number, call) in chosen.iter().enumerate() {
        let to_the_end = (chosen.len() - number) as u8;
        steps.push(step(equal, *call as u32, to_the_end, 0));
    }
    steps.push(step(answer, libc::SECCOMP_RET_ALLOW, 0, 0));
    steps.push(step(answer, libc::SECCOMP_RET_TRACE, 0, 0));
    steps
}

/// Where calls are noted.
enum Sink {
    /// Among the events of a recording.
    Events(File),
    /// In files of their own, with what they wrote; and among the events of a recording, if there is one.
    Whole(Box<Notes>, Option<File>),
    /// Nowhere.
    Nothing,
}

/// What a tracer does beside noting calls.
#[derive(Default)]
struct Task {
    printed: Option<Printed>,
    neighbour: Option<Neighbour>,
}

struct Tracer {
    sink: Sink,
    /// What the program prints, if that is acknowledged.
    printed: Option<Printed>,
    neighbour: Option<Neighbour>,
    /// Why it has not committed behind each call.
    not_committed: Option<String>,
    /// Calls that are under way and make something durable: behind them, nothing is left to commit.
    syncs: HashSet<u64>,
    /// Threads that wait until another one has returned from a call: only where calls are noted whole.
    held: VecDeque<pid_t>,
    /// The thread that is in such a call.
    inside: Option<pid_t>,
    tracing: Tracing,
    /// What each thread is in: nothing, or a call, which has a number if it was noted.
    tasks: HashMap<pid_t, Option<u64>>,
    /// Calls so far, noted or not.
    calls: u64,
    /// Note no more.
    quiet: bool,
}

impl Tracer {
    fn new(sink: Sink, task: Task, tracing: Tracing) -> Self {
        Self {
            quiet: matches!(sink, Sink::Nothing) && task.neighbour.is_none(),
            sink,
            printed: task.printed,
            neighbour: task.neighbour,
            not_committed: None,
            syncs: HashSet::new(),
            held: VecDeque::new(),
            inside: None,
            tracing,
            tasks: HashMap::new(),
            calls: 0,
        }
    }

    /// Until the program ends, whose exit code is returned; without one, until there is nothing left to trace.
    fn follow(&mut self, program: Option<pid_t>) -> io::Result<i32> {
        loop {
            let (task, status) = match self.wait_for_one() {
                Ok(waited) => waited,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.raw_os_error() == Some(libc::ECHILD) && program.is_none() => {
                    return Ok(0)
                }
                Err(e) => return Err(e),
            };
            if libc::WIFSTOPPED(status) {
                self.stopped(task, status);
                continue;
            }
            self.tasks.remove(&task);
            self.held.retain(|held| *held != task);
            if let Sink::Whole(notes, _) = &mut self.sink {
                notes.forget_waiting(task);
            }
            if self.inside == Some(task) {
                self.let_next_go_on();
            }
            if Some(task) == program {
                return Ok(match libc::WIFEXITED(status) {
                    true => libc::WEXITSTATUS(status),
                    false => 128 + libc::WTERMSIG(status),
                });
            }
        }
    }

    /// The next thread that stops or ends, with its status. Where one that is in a call keeps others waiting, it
    /// may be waiting for them: then they go on after a while.
    fn wait_for_one(&mut self) -> io::Result<(pid_t, c_int)> {
        let (began, flags) = (Instant::now(), libc::__WALL | libc::__WNOTHREAD);
        loop {
            let inside = self.inside.filter(|_| !self.held.is_empty());
            let mut status = 0;
            let at_once = if inside.is_some() { libc::WNOHANG } else { 0 };
            // SAFETY: the status is a number of ours.
            match unsafe { libc::waitpid(-1, &mut status, flags | at_once) } {
                -1 => return Err(io::Error::last_os_error()),
                0 => thread::sleep(Duration::from_millis(1)),
                task => return Ok((task, status)),
            }
            if let (Some(inside), Sink::Whole(notes, _)) = (inside, &mut self.sink) {
                if began.elapsed() > WAITS && notes.let_wait(inside) {
                    self.let_next_go_on();
                }
            }
        }
    }

    /// A thread has stopped: see what it does, and let it go on (ptrace(2), "Stopped states").
    fn stopped(&mut self, task: pid_t, status: c_int) {
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        let mut request = match self.tracing {
            Tracing::Chosen => libc::PTRACE_CONT,
            _ => libc::PTRACE_SYSCALL,
        };
        let mut delivered = 0;
        let in_call = event == libc::PTRACE_EVENT_SECCOMP || (event, signal) == (0, SYSCALL_STOP);
        if let Some(printed) = self.printed.as_mut().filter(|_| in_call) {
            printed.acknowledge(ack::try_run);
        }
        match (event, signal) {
            (libc::PTRACE_EVENT_STOP, libc::SIGTRAP) => {}
            // It was stopped by a signal, and stays so until another continues it.
            (libc::PTRACE_EVENT_STOP, _) => request = libc::PTRACE_LISTEN,
            (libc::PTRACE_EVENT_EXEC, _) => {
                // Another thread may have called execve(2); whoever is left returns from it.
                self.tasks.insert(task, None);
            }
            (libc::PTRACE_EVENT_SECCOMP, _) if self.tracing == Tracing::Chosen => {
                self.tasks.remove(&task);
                if self.has_to_wait(task) {
                    return;
                }
                self.at_call(task);
                // For its end, also where it prints.
                request = self.until_its_end(task);
            }
            (0, SYSCALL_STOP) => {
                if self.has_to_wait(task) {
                    return;
                }
                self.at_call(task);
            }
            (0, signal) => delivered = signal,
            _ => {}
        }
        go_on(request, task, delivered);
        if self.inside.is_none() {
            self.let_next_go_on();
        }
    }

    /// How a thread goes on that has begun a call: up to its end, where that is wanted.
    fn until_its_end(&self, task: pid_t) -> libc::c_uint {
        let is_noted = self.tasks.get(&task).copied().flatten().is_some();
        match self.tracing == Tracing::All || self.printed.is_some() || is_noted {
            true => libc::PTRACE_SYSCALL,
            false => libc::PTRACE_CONT,
        }
    }

    /// Whether a thread that begins a call waits for one that is in a call: then it is held.
    fn has_to_wait(&mut self, task: pid_t) -> bool {
        let begins = !self.tasks.contains_key(&task);
        let waits = begins && self.inside.is_some_and(|inside| inside != task);
        if waits {
            self.held.push_back(task);
        }
        waits
    }

    /// Nobody is in a call any more: those that wait begin theirs, up to the first that is noted.
    fn let_next_go_on(&mut self) {
        if let Sink::Whole(notes, _) = &mut self.sink {
            notes.forget();
        }
        self.inside = None;
        while self.inside.is_none() {
            let Some(task) = self.held.pop_front() else {
                return;
            };
            self.at_call(task);
            go_on(self.until_its_end(task), task, 0);
        }
    }

    /// A thread begins a call, or returns from one.
    fn at_call(&mut self, task: pid_t) {
        let Some(registers) = registers(task) else {
            return;
        };
        match self.tasks.remove(&task) {
            Some(noted) => {
                let call = Call {
                    task,
                    registers: &registers,
                };
                if let (Some(printed), Some(opened)) = (&mut self.printed, call.opened()) {
                    printed.keep_whole(task, opened);
                }
                if let Some(number) = noted {
                    self.ended(task, number, registers.rax as i64);
                }
            }
            None => {
                let number = self.begun(task, &registers);
                self.tasks.insert(task, number);
            }
        }
    }

    fn ended(&mut self, task: pid_t, number: u64, result: i64) {
        self.say(&format!("powercut-done: {number} {result}"));
        if let Sink::Whole(notes, _) = &mut self.sink {
            notes.end_call(task, result);
            self.inside = self.inside.filter(|inside| *inside != task);
        } else if !self.syncs.remove(&number) && result >= 0 {
            self.commit_beside();
        }
    }

    /// Another program commits, or what is dirty is written back: told as a call of thread 0, no sync of the program's.
    fn commit_beside(&mut self) {
        let number = self.calls;
        let Some(mut neighbour) = self.neighbour.take() else {
            return;
        };
        self.say(&format!("powercut-call: {number} 0 {}", neighbour.does()));
        match neighbour.act() {
            Ok(()) => self.neighbour = Some(neighbour),
            Err(why) => self.not_committed = Some(why),
        }
        self.say(&format!("powercut-done: {number} 0"));
        self.calls += 1;
    }

    /// The call's number, if it is one that is noted.
    fn begun(&mut self, task: pid_t, registers: &user_regs_struct) -> Option<u64> {
        if self.quiet {
            return None;
        }
        let call = Call { task, registers };
        if let Sink::Whole(notes, _) = &mut self.sink {
            // Where each call stops, most have nothing to do with files.
            let number = call.number();
            let chosen = CHOSEN.contains(&number) || MORE_CHOSEN.contains(&number);
            if !(chosen || call.is_foreign()) {
                return None;
            }
            let number = self.calls;
            let does = notes.begin_call(&call, number)?;
            let said = format!("powercut-call: {number} {task} {does}");
            self.inside = Some(task);
            self.calls += 1;
            self.say(&said);
            return Some(number);
        }
        let text = call.text()?;
        self.calls += 1;
        if self.calls > CALLS_MAX {
            if self.neighbour.take().is_some() {
                self.not_committed = Some(format!("the program makes more than {CALLS_MAX} calls"));
            }
            return None;
        }
        let number = self.calls - 1;
        if self.neighbour.is_some() && call.durability().is_some() {
            self.syncs.insert(number);
        }
        self.say(&format!("powercut-call: {number} {task} {text}"));
        Some(number)
    }

    /// The last line, which says that the calls of a program were noted, too.
    fn say_more(&mut self) {
        let more = match self.sink {
            Sink::Whole(..) => 0, // the notes say it
            _ => self.calls.saturating_sub(CALLS_MAX),
        };
        self.say(&format!("powercut-more: {more}"));
    }

    /// One write: each makes an event of its own.
    fn say(&mut self, text: &str) {
        // A call that is not noted lacks its other line, which the host tells.
        if let Sink::Events(marker) | Sink::Whole(_, Some(marker)) = &mut self.sink {
            let _ = marker.write(text.as_bytes());
        }
    }
}

/// It fails for a thread that was killed meanwhile, whose end is told next.
fn go_on(request: libc::c_uint, task: pid_t, delivered: c_int) {
    // SAFETY: the requests take numbers.
    unsafe { libc::ptrace(request, task, 0, c_long::from(delivered)) };
}

/// Those of a thread that has stopped.
pub fn registers(task: pid_t) -> Option<user_regs_struct> {
    let mut registers = std::mem::MaybeUninit::<user_regs_struct>::zeroed();
    // SAFETY: the kernel fills the structure, of which any bytes are a value.
    unsafe {
        let got = libc::ptrace(
            libc::PTRACE_GETREGS,
            task,
            0,
            registers.as_mut_ptr().cast::<c_void>(),
        );
        (got == 0).then(|| registers.assume_init())
    }
}

/// A call that begins.
pub struct Call<'a> {
    task: pid_t,
    registers: &'a user_regs_struct,
}

impl Call<'_> {
    /// The thread that calls.
    pub fn task(&self) -> pid_t {
        self.task
    }

    /// Its registers.
    pub fn registers(&self) -> &user_regs_struct {
        self.registers
    }

    /// Its number on x86-64; -1 for one that is none.
    pub fn number(&self) -> c_long {
        c_long::try_from(self.registers.orig_rax).unwrap_or(-1)
    }

    /// The descriptor that an open(2) which has returned gave.
    fn opened(&self) -> Option<i32> {
        let opens = [
            libc::SYS_open,
            libc::SYS_openat,
            libc::SYS_openat2,
            libc::SYS_creat,
        ];
        let result = i32::try_from(self.registers.rax as i64).ok();
        result.filter(|result| *result >= 0 && opens.contains(&self.number()))
    }

    /// Whether its numbers mean something else, since the program is not 64-bit.
    pub fn is_foreign(&self) -> bool {
        self.registers.cs != USER_CS
    }

    /// The number that an argument points to.
    pub fn pointed(&self, argument: usize) -> Option<u64> {
        self.number_at(self.argument(argument))
    }

    fn number_at(&self, at: u64) -> Option<u64> {
        Some(u64::from_ne_bytes(self.memory(at)?))
    }

    /// The string that an argument points to.
    pub fn text_at(&self, argument: usize) -> Option<Vec<u8>> {
        self.string(self.argument(argument))
    }

    /// Where the pieces of an iovec are, and how long each is.
    pub fn pieces(&self) -> Vec<(u64, u64)> {
        let (at, count) = (self.argument(1), self.argument(2).min(1024));
        let word = |at| self.memory(at).map_or(0, u64::from_ne_bytes);
        (0..count)
            .map(|n| (word(at + 16 * n), word(at + 16 * n + 8)))
            .collect()
    }

    /// So many bytes of its memory, or as many as can be read.
    pub fn bytes(&self, at: u64, length: usize) -> Vec<u8> {
        let mut held = vec![0; length];
        let mut read = 0;
        while let Some(memory) = self.open_memory().filter(|_| read < length) {
            match memory.read_at(&mut held[read..], at + read as u64) {
                Ok(count) if count > 0 => read += count,
                _ => break,
            }
        }
        held.truncate(read);
        held
    }

    /// The path in an argument from the mount point on, whole.
    pub fn named_path(&self, directory: i32, argument: usize) -> Option<PathBuf> {
        whole_below(&self.led(directory, argument, false)?)
    }

    /// Where the path in an argument leads, from the directory of a descriptor, by a path of this process's own. An
    /// empty path is the descriptor's file. `follows`: a link that is its last part is followed.
    pub fn led(&self, directory: i32, argument: usize, follows: bool) -> Option<PathBuf> {
        let name = self.string(self.argument(argument))?;
        let start = match directory {
            libc::AT_FDCWD => "cwd".to_owned(),
            number => format!("fd/{number}"),
        };
        let in_root = self.number() == libc::SYS_openat2
            && self.number_at(self.argument(2) + 16)? & libc::RESOLVE_IN_ROOT != 0;
        Some(paths::leads(self.task, &start, &name, in_root, follows))
    }

    /// The path of a socket that a bind(2) makes (unix(7)).
    pub fn socket_path(&self) -> Option<PathBuf> {
        const FAMILY: usize = 2;
        let address = self.bytes(self.argument(1), self.argument(2).min(110) as usize);
        let (family, name) = address.split_at_checked(FAMILY)?;
        let name = name.split(|byte| *byte == 0).next()?;
        let is_local = family == libc::AF_UNIX.to_ne_bytes()[..FAMILY].as_ref();
        (is_local && !name.is_empty()).then(|| paths::leads(self.task, "cwd", name, false, false))
    }

    /// The shared mappings that a range of addresses touches, each with as much of it as it has.
    pub fn mapped_in(&self, address: u64, length: u64) -> Vec<Piece> {
        // Names are bytes: one that is not UTF-8 must not hide all the others.
        let maps = fs::read(format!("/proc/{}/maps", self.task)).unwrap_or_default();
        let range = address..address.saturating_add(length);
        let lines = maps.split(|byte| *byte == b'\n');
        lines
            .filter_map(|line| piece(line, &range))
            .filter(|piece| piece.is_written(self.task))
            .collect()
    }

    /// A call of this process.
    #[cfg(test)]
    pub fn own(registers: &user_regs_struct) -> Call<'_> {
        Call {
            task: std::process::id() as pid_t,
            registers,
        }
    }

    /// Argument `number`, from 0.
    pub fn argument(&self, number: usize) -> u64 {
        let r = self.registers;
        [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9][number]
    }

    /// What the call does to files below the mount point; none if it does nothing.
    pub fn text(&self) -> Option<String> {
        if self.registers.cs != USER_CS {
            return None;
        }
        self.data()
            .or_else(|| self.durability())
            .or_else(|| self.names())
            .or_else(|| self.attributes())
    }

    /// Calls that change contents and sizes.
    fn data(&self) -> Option<String> {
        let a = |number| self.argument(number);
        let number = c_long::try_from(self.registers.orig_rax).ok()?;
        Some(match number {
            libc::SYS_write => format!("write({}, {})", self.file(0)?, a(2)),
            libc::SYS_pwrite64 => format!("pwrite({}, {} at {})", self.file(0)?, a(2), a(3)),
            libc::SYS_writev => format!("writev({}, {})", self.file(0)?, self.vector()),
            libc::SYS_pwritev => {
                format!("pwritev({}, {} at {})", self.file(0)?, self.vector(), a(3))
            }
            libc::SYS_pwritev2 => {
                let at = match a(3) {
                    u64::MAX => String::new(),
                    offset => format!(" at {offset}"),
                };
                let durable = match a(5) as c_int & (libc::RWF_DSYNC | libc::RWF_SYNC) {
                    0 => "",
                    _ => ", dsync",
                };
                format!(
                    "pwritev2({}, {}{at}{durable})",
                    self.file(0)?,
                    self.vector()
                )
            }
            libc::SYS_ioctl if a(1) as u32 == FICLONE => format!("ficlone({})", self.file(0)?),
            libc::SYS_ioctl if a(1) as u32 == FICLONERANGE => {
                format!("ficlonerange({})", self.file(0)?)
            }
            libc::SYS_sendfile => format!("sendfile({}, {})", self.file(0)?, a(3)),
            libc::SYS_copy_file_range => format!("copy_file_range({}, {})", self.file(2)?, a(4)),
            libc::SYS_splice => format!("splice({}, {})", self.file(2)?, a(4)),
            libc::SYS_ftruncate => format!("ftruncate({}, {})", self.file(0)?, a(1)),
            libc::SYS_truncate => {
                format!("truncate({}, {})", self.target(libc::AT_FDCWD, 0)?, a(1))
            }
            libc::SYS_fallocate => {
                let how = allocation(a(1) as c_int);
                format!("fallocate({}, {how}{} at {})", self.file(0)?, a(3), a(2))
            }
            _ => return None,
        })
    }

    /// Calls that make something durable, or that begin what does.
    fn durability(&self) -> Option<String> {
        let a = |number| self.argument(number);
        let number = c_long::try_from(self.registers.orig_rax).ok()?;
        Some(match number {
            libc::SYS_fsync => format!("fsync({})", self.file(0)?),
            libc::SYS_fdatasync => format!("fdatasync({})", self.file(0)?),
            libc::SYS_syncfs => format!("syncfs({})", self.file(0)?),
            libc::SYS_sync => "sync()".to_owned(),
            libc::SYS_sync_file_range => {
                format!("sync_file_range({}, {} at {})", self.file(0)?, a(2), a(1))
            }
            libc::SYS_msync => {
                let pieces = self.mapped_in(a(0), a(1).max(1));
                let first = |piece: &Piece| Some((below_mount(&piece.path)?, piece.offset));
                let (file, offset) = pieces.iter().find_map(first)?;
                format!("msync({file}, {} at {offset}{})", a(1), unwaited(a(2)))
            }
            // What it asks for is in memory that this does not read.
            libc::SYS_io_submit => format!("io_submit({} requests)", a(1)),
            libc::SYS_io_uring_enter if a(1) as u32 > 0 => {
                format!("io_uring_enter({} requests)", a(1) as u32)
            }
            _ => return None,
        })
    }

    /// Calls that change names, and those that open for more than reading and writing.
    fn names(&self) -> Option<String> {
        let a = |number| self.argument(number);
        let number = c_long::try_from(self.registers.orig_rax).ok()?;
        Some(match number {
            libc::SYS_open => {
                let flags = opened_for(a(1))?;
                format!("open({}, {flags})", self.target(libc::AT_FDCWD, 0)?)
            }
            libc::SYS_creat => format!("creat({})", self.target(libc::AT_FDCWD, 0)?),
            libc::SYS_openat => {
                let flags = opened_for(a(2))?;
                format!("openat({}, {flags})", self.target(a(0) as i32, 1)?)
            }
            libc::SYS_openat2 => {
                let flags = opened_for(self.pointed(2)?)?;
                format!("openat2({}, {flags})", self.target(a(0) as i32, 1)?)
            }
            libc::SYS_rename => self.pair("rename", self.path(0), self.path(1))?,
            libc::SYS_renameat => self.pair("renameat", self.path_at(0, 1), self.path_at(2, 3))?,
            libc::SYS_renameat2 if a(4) as u32 & libc::RENAME_EXCHANGE != 0 => {
                self.pair("renameat2 exchange", self.path_at(0, 1), self.path_at(2, 3))?
            }
            libc::SYS_renameat2 => {
                self.pair("renameat2", self.path_at(0, 1), self.path_at(2, 3))?
            }
            libc::SYS_link => self.pair("link", self.path(0), self.path(1))?,
            libc::SYS_linkat => self.pair("linkat", self.linked(), self.path_at(2, 3))?,
            libc::SYS_symlink => format!("symlink({})", self.path(1)?),
            libc::SYS_symlinkat => format!("symlinkat({})", self.path_at(1, 2)?),
            libc::SYS_unlink => format!("unlink({})", self.path(0)?),
            libc::SYS_unlinkat => format!("unlinkat({})", self.path_at(0, 1)?),
            libc::SYS_mkdir => format!("mkdir({})", self.path(0)?),
            libc::SYS_mkdirat => format!("mkdirat({})", self.path_at(0, 1)?),
            libc::SYS_rmdir => format!("rmdir({})", self.path(0)?),
            _ => return None,
        })
    }

    /// Calls that change permissions and owners.
    fn attributes(&self) -> Option<String> {
        let here = libc::AT_FDCWD;
        let directory = self.argument(0) as i32;
        Some(match c_long::try_from(self.registers.orig_rax).ok()? {
            libc::SYS_fchmod => format!("fchmod({})", self.file(0)?),
            libc::SYS_fchown => format!("fchown({})", self.file(0)?),
            libc::SYS_chmod => format!("chmod({})", self.target(here, 0)?),
            libc::SYS_chown => format!("chown({})", self.target(here, 0)?),
            libc::SYS_lchown => format!("lchown({})", self.path(0)?),
            libc::SYS_fchmodat => format!("fchmodat({})", self.target(directory, 1)?),
            libc::SYS_fchmodat2 if self.argument(3) & AT_SYMLINK_NOFOLLOW != 0 => {
                format!("fchmodat2({})", self.path_at(0, 1)?)
            }
            libc::SYS_fchmodat2 => format!("fchmodat2({})", self.target(directory, 1)?),
            libc::SYS_fchownat if self.argument(4) & AT_SYMLINK_NOFOLLOW != 0 => {
                format!("fchownat({})", self.path_at(0, 1)?)
            }
            libc::SYS_fchownat => format!("fchownat({})", self.target(directory, 1)?),
            _ => return None,
        })
    }

    /// Two names, of which the second counts: it is on the same file system if the call succeeds.
    fn pair(&self, call: &str, from: Option<String>, to: Option<String>) -> Option<String> {
        Some(format!(
            "{call}({}, {})",
            from.unwrap_or_else(|| "?".to_owned()),
            to?
        ))
    }

    /// The file of the descriptor in an argument.
    pub fn file(&self, argument: usize) -> Option<String> {
        let number = self.argument(argument) as i32;
        let path = fs::read_link(format!("/proc/{}/fd/{number}", self.task)).ok()?;
        below_mount(&path)
    }

    /// The path in an argument.
    fn path(&self, argument: usize) -> Option<String> {
        self.named(libc::AT_FDCWD, argument)
    }

    /// The path in argument `path`, from the directory whose descriptor is in argument `directory`.
    fn path_at(&self, directory: usize, path: usize) -> Option<String> {
        self.named(self.argument(directory) as i32, path)
    }

    /// What linkat(2) links: a path, or a descriptor by an empty path or by its name in /proc (open(2), O_TMPFILE).
    fn linked(&self) -> Option<String> {
        match self.argument(4) as c_int & libc::AT_SYMLINK_FOLLOW {
            0 => self.path_at(0, 1),
            _ => self.target(self.argument(0) as i32, 1),
        }
    }

    fn named(&self, directory: i32, argument: usize) -> Option<String> {
        told(&self.led(directory, argument, false)?)
    }

    /// The file that a path in an argument leads to, if the path itself is a link as well.
    fn target(&self, directory: i32, argument: usize) -> Option<String> {
        told(&self.led(directory, argument, true)?)
    }

    /// The bytes of an iovec.
    fn vector(&self) -> u64 {
        let lengths = self.pieces().into_iter().map(|(_, length)| length);
        lengths.fold(0, u64::saturating_add)
    }

    fn memory<const BYTES: usize>(&self, at: u64) -> Option<[u8; BYTES]> {
        let mut bytes = [0; BYTES];
        self.open_memory()?.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    }

    /// A string that ends in NUL: page by page, since the next one may be no memory.
    fn string(&self, mut at: u64) -> Option<Vec<u8>> {
        const PAGE: u64 = 4096;
        let memory = self.open_memory()?;
        let mut string = Vec::new();
        while string.len() < libc::PATH_MAX as usize {
            let mut page = vec![0; (PAGE - at % PAGE) as usize];
            let count = memory.read_at(&mut page, at).ok().filter(|n| *n > 0)?;
            let page = &page[..count];
            match page.iter().position(|byte| *byte == 0) {
                Some(end) => {
                    string.extend_from_slice(&page[..end]);
                    return Some(string);
                }
                None => string.extend_from_slice(page),
            }
            at = at.checked_add(count as u64)?;
        }
        None
    }

    fn open_memory(&self) -> Option<File> {
        File::open(format!("/proc/{}/mem", self.task)).ok()
    }
}

/// A part of a file that is mapped.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    pub path: PathBuf,
    pub inode: u64,
    pub offset: u64,
    pub length: u64,
    /// The whole mapping.
    begin: u64,
    end: u64,
}

impl Piece {
    /// Whether msync(2) writes it: not what was opened to be read alone (mm/mmap.c, VM_SHARED). Where the kernel lacks
    /// this folder, or forbids it, each shared mapping counts.
    fn is_written(&self, task: pid_t) -> bool {
        let link = format!("/proc/{task}/map_files/{:x}-{:x}", self.begin, self.end);
        fs::symlink_metadata(link).map_or(true, |seen| seen.mode() & 0o200 != 0)
    }
}

/// What a line of /proc/PID/maps has in a range of addresses, if it is of a shared mapping (proc_pid_maps(5)).
fn piece(line: &[u8], range: &Range<u64>) -> Option<Piece> {
    let mut words = line.splitn(6, |byte| *byte == b' ');
    let mut text = || std::str::from_utf8(words.next()?).ok();
    let hexadecimal = |word| u64::from_str_radix(word, 16).ok();
    let (begin, end) = text()?.split_once('-')?;
    let (begin, end) = (hexadecimal(begin)?, hexadecimal(end)?);
    let is_shared = text()?.as_bytes().get(3) == Some(&b's');
    let (offset, _, inode) = (hexadecimal(text()?)?, text()?, text()?.parse().ok()?);
    let path = words.next()?.trim_ascii_start();
    let (from, to) = (range.start.max(begin), range.end.min(end));
    (is_shared && from < to).then(|| Piece {
        path: PathBuf::from(OsStr::from_bytes(path)),
        inode,
        offset: offset + (from - begin),
        length: to - from,
        begin,
        end,
    })
}

/// What an open(2) does beyond giving a descriptor: flags that create, empty, or make writes durable.
fn opened_for(flags: u64) -> Option<String> {
    let flags = flags as c_int;
    let all = [
        (libc::O_TMPFILE, "tmpfile"),
        (libc::O_CREAT, "create"),
        (libc::O_TRUNC, "truncate"),
        (libc::O_SYNC, "sync"),
        (libc::O_DSYNC, "dsync"),
    ];
    let mut words: Vec<_> = all
        .iter()
        .filter(|(flag, _)| flags & flag == *flag)
        .map(|(_, word)| *word)
        .collect();
    if words.contains(&"sync") {
        words.pop(); // O_SYNC contains O_DSYNC
    }
    (!words.is_empty()).then(|| words.join("|"))
}

/// The path from the mount point on; none for one elsewhere.
pub fn whole_below(path: &Path) -> Option<PathBuf> {
    path.strip_prefix(MOUNT_POINT).ok().map(Path::to_path_buf)
}

/// The same in printable characters, also of a file that has lost its name, or never had one.
fn told(path: &Path) -> Option<String> {
    below_mount(path).or_else(|| below_mount(&paths::text(path)?))
}

/// The path from the mount point on, in printable characters; none for one elsewhere.
fn below_mount(path: &Path) -> Option<String> {
    let below = path.strip_prefix(MOUNT_POINT).ok()?;
    let bytes = match below.as_os_str().as_bytes() {
        b"" => b".",
        bytes => bytes,
    };
    let text = bytes.escape_ascii().to_string();
    match text.len().checked_sub(PATH_BYTES) {
        Some(cut) if cut > 0 => Some(format!("...{}", &text[cut..])),
        _ => Some(text),
    }
}

/// That an msync(2) with these flags waits for nothing, and makes nothing durable.
fn unwaited(flags: u64) -> &'static str {
    match flags as c_int & libc::MS_SYNC {
        0 => ", async",
        _ => "",
    }
}

/// The mode of `fallocate`, as operations name it, with a comma behind; empty for none. A hole is punched with
/// FALLOC_FL_KEEP_SIZE always.
fn allocation(mode: c_int) -> String {
    const NAMES: [(c_int, &str); 5] = [
        (libc::FALLOC_FL_PUNCH_HOLE, "punch-hole"),
        (libc::FALLOC_FL_COLLAPSE_RANGE, "collapse-range"),
        (libc::FALLOC_FL_ZERO_RANGE, "zero-range"),
        (libc::FALLOC_FL_INSERT_RANGE, "insert-range"),
        (libc::FALLOC_FL_UNSHARE_RANGE, "unshare-range"),
    ];
    let mut words: Vec<&str> = NAMES
        .iter()
        .filter(|(flag, _)| mode & flag != 0)
        .map(|(_, word)| *word)
        .collect();
    if mode & libc::FALLOC_FL_KEEP_SIZE != 0 && mode & libc::FALLOC_FL_PUNCH_HOLE == 0 {
        words.push("keep-size");
    }
    words.iter().map(|word| format!("{word}, ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_of_fallocate_has_the_words_of_operations() {
        let both = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        assert_eq!(allocation(0), "");
        assert_eq!(allocation(both), "punch-hole, ");
        assert_eq!(
            allocation(libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE),
            "zero-range, keep-size, "
        );
    }

    #[test]
    fn a_path_is_told_from_the_mount_point_on() {
        let told = |path: &str| below_mount(Path::new(path));
        assert_eq!(told(MOUNT_POINT).unwrap(), ".");
        assert_eq!(told(&format!("{MOUNT_POINT}s/f")), None);
        assert_eq!(told("/dev/null"), None);
        let odd = told(&format!("{MOUNT_POINT}/a\nb")).unwrap();
        assert_eq!(odd, "a\\nb");
        let long = told(&format!("{MOUNT_POINT}/{}/name", "x".repeat(200))).unwrap();
        assert_eq!((long.len(), &long[..4]), (PATH_BYTES + 3, "...x"));
        assert!(long.ends_with("/name"));
    }

    /// A call on the link itself was told as one on what it leads to.
    #[test]
    fn a_link_from_elsewhere_is_not_below_the_mount_point() {
        let link = std::env::temp_dir().join(format!("powercut-told-{}", std::process::id()));
        std::os::unix::fs::symlink(format!("{MOUNT_POINT}/f"), &link).unwrap();
        assert_eq!(told(&link), None);
        fs::remove_file(link).unwrap();
        let held = File::open(MOUNT_POINT).unwrap();
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&held));
        assert_eq!(told(Path::new(&link)).unwrap(), ".");
    }

    /// To read it back from the file would open that, and change what is recorded.
    #[test]
    fn what_a_call_gives_to_be_written_is_read_from_its_memory() {
        let (one, two) = (*b"abc", *b"defg");
        let part = |of: &[u8]| libc::iovec {
            iov_base: of.as_ptr().cast_mut().cast(),
            iov_len: of.len(),
        };
        let vector = [part(&one), part(&two)];
        // SAFETY: any bytes are a value of it.
        let mut registers: user_regs_struct = unsafe { std::mem::zeroed() };
        (registers.rsi, registers.rdx) = (vector.as_ptr() as u64, vector.len() as u64);
        let call = Call::own(&registers);
        let held = call.pieces().into_iter();
        let held: Vec<_> = held
            .map(|(at, length)| call.bytes(at, length as usize))
            .collect();
        assert_eq!(held.concat(), b"abcdefg");
        assert!(call.bytes(8, 4).is_empty()); // no memory is there
    }

    #[test]
    fn an_open_is_told_by_what_it_changes() {
        let flags = |flags: c_int| opened_for(flags as u64);
        assert_eq!(flags(libc::O_RDWR | libc::O_CLOEXEC), None);
        assert_eq!(
            flags(libc::O_CREAT | libc::O_TRUNC).unwrap(),
            "create|truncate"
        );
        assert_eq!(flags(libc::O_SYNC).unwrap(), "sync");
        assert_eq!(flags(libc::O_DSYNC).unwrap(), "dsync");
        assert_eq!(flags(libc::O_DIRECTORY), None);
        assert_eq!(flags(libc::O_TMPFILE).unwrap(), "tmpfile");
    }

    /// One that begins nothing, and waits for nothing, was told as one that makes its pages durable.
    #[test]
    fn an_msync_that_does_not_wait_says_so() {
        let told = |flags: c_int| unwaited(flags as u64);
        assert_eq!(told(libc::MS_ASYNC), ", async");
        assert_eq!(told(libc::MS_INVALIDATE), ", async");
        assert_eq!(told(libc::MS_SYNC | libc::MS_INVALIDATE), "");
    }

    /// What msync(2) covers was told by its first mapping alone.
    #[test]
    fn a_range_has_a_part_of_each_mapping() {
        let line =
            b"7f0000001000-7f0000003000 rw-s 00002000 fe:00 12                 /mnt/my f\xe9";
        let found =
            |from: u64, to: u64| piece(line, &(0x7f00_0000_0000 + from..0x7f00_0000_0000 + to));
        let part = |from, to| {
            let found = found(from, to).unwrap();
            assert_eq!(
                (found.path.as_os_str().as_bytes(), found.inode),
                (&b"/mnt/my f\xe9"[..], 12)
            );
            (found.offset, found.length)
        };
        assert_eq!(part(0x1800, 0x1801), (0x2800, 1));
        assert_eq!(part(0, 0x9000), (0x2000, 0x2000));
        assert_eq!(part(0x2000, 0x9000), (0x3000, 0x1000));
        assert_eq!(found(0x3000, 0x4000), None);
        let private = b"7f0000001000-7f0000003000 rw-p 00000000 fe:00 12 /mnt/f";
        assert_eq!(piece(private, &(0x7f00_0000_1000..0x7f00_0000_2000)), None);
    }

    /// A mapping whose name is not text hid all that the process maps: none of its msync(2) calls were noted. One of a
    /// file that was opened to be read is written by none.
    #[test]
    fn a_mapping_is_found_where_a_name_is_not_text() {
        // SAFETY: any bytes are a value of it.
        let registers: user_regs_struct = unsafe { std::mem::zeroed() };
        let call = Call::own(&registers);
        for is_written in [true, false] {
            let (path, file, mapped) = crate::whole::tests::mapped_file(b"calls-\xe9", is_written);
            let found = call.mapped_in(mapped as u64 + 9, 7);
            let told: Vec<_> = found
                .iter()
                .map(|p| (&p.path, p.offset, p.length))
                .collect();
            assert_eq!(told, [(&path, 9, 7)][..usize::from(is_written)]);
            drop(file);
            fs::remove_file(path).unwrap();
        }
    }

    /// What `follow` returns for a shell script, and what it noted.
    fn traced(script: &str) -> (i32, String) {
        let (own, thread) = (std::process::id(), std::thread::current().id());
        let name = format!("powercut-calls-{own}-{thread:?}");
        let file = std::env::temp_dir().join(name);
        let argv = ["/bin/sh", "-c", script].map(str::to_owned);
        let (program, tracing) = start(&argv, false, &Task::default()).unwrap();
        let mut tracer = Tracer::new(
            Sink::Events(File::create(&file).unwrap()),
            Task::default(),
            tracing,
        );
        let code = tracer.follow(Some(program)).unwrap();
        let noted = fs::read_to_string(&file).unwrap();
        fs::remove_file(&file).unwrap();
        (code, noted)
    }

    /// A tracer that took a stop for another would hang, or report another end than the program's.
    #[test]
    fn a_traced_program_ends_as_it_would() {
        assert_eq!(traced("exit 3").0, 3);
        assert_eq!(traced("kill -9 $$").0, 137);
        assert_eq!(traced("(exit 4) & wait $!").0, 4);
        assert_eq!(traced("trap 'exit 5' USR1; kill -USR1 $$; exit 6").0, 5);
        assert_eq!(
            traced("sh -c 'kill -STOP $$; exit 7' & sleep .2; kill -CONT $!; wait $!").0,
            7
        );
        assert_eq!(traced("sync; echo x >/dev/null").0, 0);
    }

    /// Calls that a filter chooses fail without a tracer: what a program left behind could not even open a file.
    #[test]
    fn what_a_program_leaves_behind_goes_on() {
        let file = std::env::temp_dir().join(format!("powercut-left-{}", std::process::id()));
        let script = format!("(sleep .3; echo late >{}) & exit 3", file.display());
        let argv = ["/bin/sh", "-c", &script].map(str::to_owned);
        let mut ends = Vec::new();
        trace(
            &argv,
            Sink::Events(File::create("/dev/null").unwrap()),
            Task::default(),
            &mut ends,
        )
        .unwrap();
        assert_eq!(ends, 3_i32.to_ne_bytes());
        assert_eq!(fs::read_to_string(&file).unwrap(), "late\n");
        fs::remove_file(&file).unwrap();
    }

    #[test]
    fn calls_are_noted_with_their_end() {
        let (code, noted) = traced("exec sync");
        assert_eq!(code, 0);
        let lines: Vec<_> = noted
            .split("powercut-")
            .filter(|line| !line.is_empty())
            .collect();
        assert!(
            lines[0].starts_with("call: 0 ") && lines[0].ends_with(" sync()"),
            "{noted}"
        );
        assert_eq!(lines[1..], ["done: 0 0"]);
    }
}
