//! One request at a time: what the agent does for the host.

use std::{
    collections::HashSet,
    os::unix::fs::OpenOptionsExt,
    time::{Duration, Instant},
};

use powercut_protocol::{
    limits::{LOG_BYTES, LOG_LINES},
    pattern::POISON,
    AgentReply, AgentRequest, CallError, Looks, ModuleError, MountSpec, Operation, OutsideChange,
    OutsideSpec, RecordedEvents, Recovered, Said, StackSpec, TreeEntry, TreeToTry,
    PROTOCOL_VERSION,
};
use rustix::{
    io::Errno,
    mount::MountFlags,
    system::uname,
    time::{clock_settime, ClockId, Timespec},
};

use crate::{
    ack, boot, calls,
    dm::DeviceMapper,
    events::{self, Events},
    failure::{errno_of, failed, Failure},
    files,
    kmsg::{KernelLog, Messages},
    logs::Logs,
    mounts::{self, MOUNT_POINT},
    operations,
    outside::Outside,
    parts::Parts,
    processes, program,
    scratch::Scratch,
    stack,
    trees::{self, TreeCheck, Trees},
    usable,
    walk::Walker,
    watch::{self, Call},
    whole,
};

/// Lines of the kernel's log that a failure carries: the reason is among the last.
const FAILURE_LOG_LINES: usize = 5;

/// What is mounted at the mount point.
enum Mounted {
    Nothing,
    /// A recovered file system that was kept.
    Recovered,
    /// A directory in memory, of which the calls were noted, or in which trees are made.
    Tree,
    /// A recording, with its target mounted.
    Recording(Box<Recording>),
}

/// What a recording consists of.
struct Recording {
    logs: Logs,
    /// The log device.
    log: String,
    /// The events of the targets, or why this kernel gives none.
    events: Result<Events, String>,
    /// What its operations act on.
    scene: operations::Scene,
    kernel_log: Noted,
}

/// What the kernel has said since a recording began: as much as one request may have.
#[derive(Default)]
struct Noted {
    said: Vec<Said>,
    lines: usize,
    bytes: usize,
    lost: bool,
}

impl Noted {
    fn add(&mut self, operation: Option<u32>, messages: Messages) {
        self.lines += messages.lines.len();
        self.bytes += messages.lines.iter().map(String::len).sum::<usize>();
        self.lost |= !messages.complete || self.lines > LOG_LINES || self.bytes > LOG_BYTES;
        if !self.lost && !messages.lines.is_empty() {
            self.said.push(Said {
                operation,
                lines: messages.lines,
            });
        }
    }
}

impl Recording {
    /// Put a mark into the log, and then among the events: what had completed before it in the log has the
    /// earlier time.
    fn mark(&mut self, mapper: &DeviceMapper, text: &str) -> Result<(), Failure> {
        mapper.mark(self.logs.first(), text)?;
        match &mut self.events {
            Ok(events) => events.mark(text),
            Err(_) => Ok(()),
        }
    }
}

/// What is on the disk, and how to mount it.
#[derive(Clone, Copy)]
struct Shown<'a> {
    device: &'a str,
    mount: &'a MountSpec,
    clock_s: u64,
}

/// What a second mount showed. After it, the file system is mounted, unless `mounted` has an errno.
struct Second {
    mounted: Result<(), Errno>,
    looks: Looks,
    /// If that is not what the first showed.
    entries: Vec<TreeEntry>,
    errors: Vec<CallError>,
}

/// What is on the disk, while it is written to.
struct Used<'a> {
    agent: &'a mut Agent,
    shown: Shown<'a>,
}

impl usable::Remount for Used<'_> {
    fn mount(&mut self) -> Result<Result<(), Errno>, Failure> {
        self.agent.mount_to_use(self.shown)
    }

    fn unmount(&mut self) -> Result<i32, Failure> {
        self.agent.unmount_used()
    }
}

/// The agent between two requests.
pub struct Agent {
    kernel_log: KernelLog,
    mapper: Result<DeviceMapper, Failure>,
    walker: Walker,
    mounted: Mounted,
    /// The parts of the disk, if it has any; kept from one state to the next.
    parts: Option<Parts>,
    /// What is started on them: its last writes belong to the state that is on the disk now.
    stack: Option<StackSpec>,
    /// The bytes that calls wrote of which trees are made.
    noted: Vec<u8>,
    /// Those that are made; none while the directory is as the calls left it.
    trees: Option<Trees>,
    /// What lies outside the folder of the workload, as it was before any crash.
    outside: Option<Outside>,
    /// Runs in an image with tools: programs may run anywhere and print a lot.
    tools: bool,
}

impl Agent {
    pub fn new() -> Result<Self, Failure> {
        Ok(Self {
            kernel_log: KernelLog::open().map_err(failed("open /dev/kmsg"))?,
            mapper: DeviceMapper::open(),
            walker: Walker::new(),
            mounted: Mounted::Nothing,
            parts: None,
            stack: None,
            noted: Vec::new(),
            trees: None,
            outside: None,
            tools: false,
        })
    }

    /// The agent in an image with tools.
    pub fn with_tools() -> Result<Self, Failure> {
        Ok(Self {
            tools: true,
            ..Self::new()?
        })
    }

    /// The agent's greeting. A kernel without device-mapper has no targets.
    pub fn hello(&self, module_errors: Vec<ModuleError>) -> AgentReply {
        let system = uname();
        let mapper = self.mapper.as_ref().ok();
        AgentReply::Hello {
            protocol: PROTOCOL_VERSION,
            release: system.release().to_string_lossy().into_owned(),
            version: system.version().to_string_lossy().into_owned(),
            module_errors,
            dm_targets: mapper.and_then(|m| m.targets().ok()).unwrap_or_default(),
        }
    }

    /// Go on from a saved state, with a disk that was attached since.
    fn wake(&self, device: &str, seed: &[u8], clock_s: u64) -> Result<AgentReply, Failure> {
        if boot::has_complained() {
            return Err(failed("the kernel complained while it booted")(Errno::IO));
            // each guest would inherit it
        }
        boot::stir(seed)?;
        set_clock(clock_s)?;
        boot::look_for(device)?;
        self.kernel_log.drain(); // what it said of that disk
        Ok(AgentReply::Done {})
    }

    /// Carry out a request. After a failure nothing is mounted and no target is left.
    pub fn answer(&mut self, request: AgentRequest) -> AgentReply {
        processes::reap_orphans();
        let answer = match request {
            AgentRequest::Wake {
                device,
                seed,
                clock_s,
            } => self.wake(&device, &seed, clock_s),
            AgentRequest::RecordStart {
                data,
                log,
                mount,
                whole,
            } => self.record_start(&data, &log, &mount, whole),
            AgentRequest::RunOperations {
                first_index,
                operations,
                deadline_s,
            } => self.run_operations(first_index, &operations, seconds_from_now(deadline_s)),
            AgentRequest::RecordFinish {} => self.record_finish(),
            AgentRequest::Recover {
                device,
                mount,
                clock_s,
                keep_mounted,
                outside,
            } => {
                let shown = Shown {
                    device: &device,
                    mount: &mount,
                    clock_s,
                };
                self.recover(shown, keep_mounted, outside)
            }
            AgentRequest::Remember {
                device,
                mount,
                clock_s,
                outside,
            } => {
                let shown = Shown {
                    device: &device,
                    mount: &mount,
                    clock_s,
                };
                self.remember(shown, &outside)
            }
            AgentRequest::RunProgram { argv, deadline_s } => {
                self.run_program(&argv, seconds_from_now(deadline_s))
            }
            AgentRequest::RunBeside {
                device,
                mount,
                clock_s,
                argv,
                deadline_s,
            } => {
                let deadline = seconds_from_now(deadline_s);
                self.run_beside(&device, &mount, clock_s, &argv, deadline)
            }
            AgentRequest::Unmount {} => self.unmount(),
            AgentRequest::Use {
                device,
                mount,
                clock_s,
                before,
                read_contents,
                write,
                keep,
                deadline_s,
            } => {
                let shown = Shown {
                    device: &device,
                    mount: &mount,
                    clock_s,
                };
                let deadline = seconds_from_now(deadline_s);
                self.look_again(shown, &before, read_contents)
                    .and_then(|second| {
                        let keep = write.then_some(keep.as_slice());
                        self.write_and_remove(shown, second, keep, deadline)
                    })
            }
            AgentRequest::PutFile {
                path,
                mode,
                data,
                append,
            } => {
                if path == whole::BYTES {
                    self.trees = None; // they were made of others
                }
                put_file(&path, mode, &data, append)
            }
            AgentRequest::NoteCalls { argv, deadline_s } => {
                self.note_calls(&argv, seconds_from_now(deadline_s))
            }
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
                self.try_trees(&trees, &asked)
            }
        };
        answer.unwrap_or_else(|failure| self.refuse(&failure))
    }

    /// Clean up after a failure and report it, with the kernel's last messages.
    fn refuse(&mut self, failure: &Failure) -> AgentReply {
        self.release();
        let lines = self.kernel_log.drain().lines;
        let last = &lines[lines.len().saturating_sub(FAILURE_LOG_LINES)..];
        let mut what = failure.to_string();
        for line in last {
            what.push_str("\nkernel: ");
            what.push_str(line);
        }
        AgentReply::Failed {
            what,
            errno: failure.errno().raw_os_error(),
        }
    }

    /// Unmount everything and remove every target. What cannot be removed stays behind under its own name.
    pub fn release(&mut self) {
        match std::mem::replace(&mut self.mounted, Mounted::Nothing) {
            Mounted::Nothing => {}
            Mounted::Tree => {
                ack::end();
                mounts::unmount_device();
            }
            Mounted::Recovered => {
                watch::during(Call::Unmount, mounts::unmount_device);
                let _ = self.stop_stack();
            }
            Mounted::Recording(mut recording) => {
                ack::end();
                recording.scene.close_all();
                watch::during(Call::Unmount, mounts::unmount_device);
                let _ = self.stop_stack();
                if !recording.logs.are_apart() {
                    let _ = self.join();
                }
                if let Ok(events) = recording.events {
                    let _ = events.end();
                }
                if let Ok(mapper) = &self.mapper {
                    let _ = recording.logs.remove(mapper);
                }
                let _ = self.join();
            }
        }
        // Best effort, like everything here: the failure has already been reported.
        let _ = mounts::forget_btrfs_devices();
    }

    fn record_start(
        &mut self,
        data: &str,
        log: &str,
        mount: &MountSpec,
        whole: bool,
    ) -> Result<AgentReply, Failure> {
        self.release();
        self.join()?;
        // What came before is no part of it.
        let _ = self.kernel_log.drain();
        boot::forget_what_was_said_once();
        files::wait_for_device(log)?;
        // Without events nothing would tell the order of several logs.
        let traced = events::need_tracefs();
        if mount.stack.is_some() {
            traced.clone().map_err(Failure::Tracing)?;
        }
        let apart = mount.is_divided() && traced.is_ok();
        if apart {
            self.cut(data, mount)?;
        }
        let mapper = self.mapper.as_mut().map_err(|failure| failure.clone())?;
        let logs = match &self.parts {
            Some(parts) => Logs::of_parts(mapper, parts, log)?,
            None => Logs::of_one(mapper, data, log)?,
        };
        let told = logs.cache_as(data);
        let node = logs.first().node.to_string_lossy().into_owned();
        self.mounted = Mounted::Recording(Box::new(Recording {
            events: Events::begin(&logs.nodes()),
            log: log.to_owned(),
            logs,
            scene: operations::Scene::default(),
            kernel_log: Noted::default(),
        })); // a failure from here on releases it
        told?;
        let node = if apart {
            self.say_which_devices()?;
            let started = self.start_stack(mount)?;
            started
                .map_err(|said| Failure::Steps {
                    what: "start",
                    said,
                })?
                .unwrap_or(node)
        } else {
            self.cut(&node, mount)?
        };
        mounts::mount_device(&node, mount, MountFlags::empty()).map_err(failed(format!(
            "mount {node} ({}) as {}",
            mount.options, mount.fstype
        )))?;
        let (_, recording) = self.recording()?;
        let traced = recording.events.is_ok();
        let noted = match (traced, whole) {
            (true, true) => calls::Noted::Both,
            (true, false) => calls::Noted::Briefly,
            (false, _) => calls::Noted::Nothing,
        };
        let whole = noted == calls::Noted::Both;
        if whole {
            whole::begin().map_err(noting)?;
        }
        recording.scene = operations::Scene::of(node, mount.clone(), noted);
        ack::begin(recording.logs.first(), traced, whole)?;
        self.note_messages(None)?;
        Ok(AgentReply::RecordStarted {})
    }

    /// The first mark of a recording of several devices.
    fn say_which_devices(&mut self) -> Result<(), Failure> {
        let (mapper, recording) = self.recording()?;
        if let Err(lacking) = &recording.events {
            return Err(Failure::Tracing(lacking.clone()));
        }
        recording.mark(mapper, &recording.logs.described()?)
    }

    /// The device to mount where there is no stack: the disk, or its first part if it is cut.
    fn cut(&mut self, disk: &str, mount: &MountSpec) -> Result<String, Failure> {
        let begins = &mount.parts;
        let kept = self.parts.as_ref();
        if kept.is_some_and(|parts| !mount.is_divided() || !parts.is_of(disk, begins)) {
            self.join()?;
        }
        if !mount.is_divided() {
            return Ok(disk.to_owned());
        }
        let parts = match self.parts.take() {
            Some(parts) => parts,
            None => {
                let mapper = self.mapper.as_mut().map_err(|failure| failure.clone())?;
                Parts::cut(mapper, disk, begins)?
            }
        };
        let nodes = self.parts.insert(parts).nodes();
        Ok(nodes[0].to_string_lossy().into_owned())
    }

    /// Undo a `cut`.
    fn join(&mut self) -> Result<(), Failure> {
        match (self.parts.take(), &self.mapper) {
            (Some(parts), Ok(mapper)) => parts.remove(mapper),
            _ => Ok(()),
        }
    }

    /// The device that the stack gives, or None where there is none; what its steps said, if one failed.
    fn start_stack(
        &mut self,
        mount: &MountSpec,
    ) -> Result<Result<Option<String>, String>, Failure> {
        let Some(stack) = &mount.stack else {
            return Ok(Ok(None));
        };
        // Steps that fail half-way leave something behind, too.
        self.stack = Some(stack.clone());
        let started = stack::start(stack)?;
        if started.is_err() {
            self.stop_stack()?;
        }
        Ok(started.map(Some))
    }

    fn stop_stack(&mut self) -> Result<(), Failure> {
        self.stack.take().as_ref().map_or(Ok(()), stack::stop)
    }

    fn recording(&mut self) -> Result<(&DeviceMapper, &mut Recording), Failure> {
        match (&self.mapper, &mut self.mounted) {
            (Ok(mapper), Mounted::Recording(recording)) => Ok((mapper, recording)),
            _ => Err(Failure::NoRecording),
        }
    }

    /// Keep what the kernel has said since this was called last, along with the operation that was under way.
    fn note_messages(&mut self, operation: Option<u32>) -> Result<(), Failure> {
        let messages = self.kernel_log.drain();
        let (_, recording) = self.recording()?;
        recording.kernel_log.add(operation, messages);
        Ok(())
    }

    fn run_operations(
        &mut self,
        first_index: u32,
        operations: &[Operation],
        deadline: Instant,
    ) -> Result<AgentReply, Failure> {
        let mut results = Vec::with_capacity(operations.len());
        for (index, operation) in (first_index..).zip(operations) {
            let (mapper, recording) = self.recording()?;
            let writer = u16::try_from(index)
                .ok()
                .filter(|w| *w != POISON)
                .ok_or(Failure::TooManyWriters(index))?;
            recording.mark(mapper, &format!("begin {index}"))?;
            let done = if Instant::now() < deadline {
                operations::perform(&mut recording.scene, operation, index, writer, deadline)
            } else {
                operations::overdue(operation, index)
            };
            let failed = done.error.is_some() || done.exit_code.is_some_and(|code| code != 0);
            results.push(done);
            if !failed {
                recording.mark(mapper, &format!("ack {index}"))?;
            }
            self.note_messages(Some(index))?;
            if failed {
                break;
            }
        }
        if let Ok(events) = &mut self.recording()?.1.events {
            events.collect()?;
        }
        Ok(AgentReply::OperationsDone { results })
    }

    fn record_finish(&mut self) -> Result<AgentReply, Failure> {
        ack::end();
        let (mapper, recording) = self.recording()?;
        recording.mark(mapper, "end")?;
        recording.scene.close_all();
        let unmount_errno = watch::during(Call::Unmount, mounts::unmount_device);
        self.stop_stack()?;
        let (mapper, recording) = self.recording()?;
        recording.mark(mapper, "unmounted")?;
        if !recording.logs.are_apart() {
            self.join()?;
        }
        let (mapper, recording) = self.recording()?;
        // Log what the file system never flushed here, behind every mark: removing the target would put it
        // in front of whatever its thread has not yet written to the log, marks included
        // (`log_writes_dtr` splices to the head of the list, drivers/md/dm-log-writes.c).
        recording.logs.flush()?;
        let status = recording.logs.status(mapper)?;
        recording.logs.remove(mapper)?;
        let mut noted = std::mem::take(&mut recording.kernel_log);
        self.join()?;
        let recorded = self.keep_events()?;
        forget_devices()?;
        noted.add(None, self.kernel_log.drain());
        Ok(AgentReply::RecordFinished {
            status: status.line,
            logging_disabled: status.logging_disabled,
            unmount_errno,
            kernel_log: noted.said,
            log_complete: !noted.lost,
            events: recorded,
        })
    }

    /// End a recording whose target has been removed: put its events on the log device, whose end the log does
    /// not use. The channel of some machines is too slow for them.
    fn keep_events(&mut self) -> Result<RecordedEvents, Failure> {
        let Mounted::Recording(recording) = std::mem::replace(&mut self.mounted, Mounted::Nothing)
        else {
            return Err(Failure::NoRecording);
        };
        let Recording {
            log, events, scene, ..
        } = *recording;
        let text = match events {
            Ok(events) => events.end()?,
            Err(lacking) => {
                return Ok(RecordedEvents {
                    lacking,
                    ..RecordedEvents::default()
                })
            }
        };
        let notes = match scene.ended {
            Some(ended) => noted_of(&ended, false)?,
            None => Vec::new(),
        };
        Ok(RecordedEvents {
            offset: events::put_last(&log, &[text.as_slice(), &notes].concat())?,
            bytes: text.len() as u64,
            notes: notes.len() as u64,
            lacking: String::new(),
        })
    }

    fn recover(
        &mut self,
        shown: Shown<'_>,
        keep_mounted: bool,
        outside: bool,
    ) -> Result<AgentReply, Failure> {
        self.walker.phases.follow(shown.device);
        let device = match self.prepare(shown.device, shown.mount, shown.clock_s)? {
            Ok(device) => device,
            Err(not_started) => return self.not_started(not_started),
        };
        let mut recovered = Recovered::default();
        let mut clock = Instant::now();
        // Without access times the walk writes nothing: what is on the disk afterwards comes from recovery.
        let mounted = watch::during(Call::Mount, || {
            mounts::mount_crashed(&device, shown.mount, MountFlags::NOATIME)
        });
        match mounted {
            Ok(()) => {
                recovered.mount_us = lap(&mut clock);
                self.mounted = Mounted::Recovered;
                self.inspect(&mut recovered)?;
                if outside {
                    recovered.outside = self.outside_changes()?;
                }
                recovered.walk_us = lap(&mut clock);
                if !keep_mounted {
                    recovered.unmount_errno = self.unmount_recovered()?;
                    recovered.unmount_us = lap(&mut clock);
                }
            }
            Err(errno) => {
                recovered.mount_us = lap(&mut clock);
                recovered.mount_errno = errno.raw_os_error();
                self.stop_stack()?;
            }
        }
        if matches!(self.mounted, Mounted::Nothing) {
            forget_devices()?;
        }
        let said = self.kernel_log.drain();
        (recovered.kernel_log, recovered.log_complete) = (said.lines, said.complete);
        Ok(AgentReply::Recovered(recovered))
    }

    /// What changed outside the folder.
    fn outside_changes(&self) -> Result<Vec<OutsideChange>, Failure> {
        let outside = self.outside.as_ref().ok_or(Failure::NothingRemembered)?;
        Ok(watch::during(Call::Files, || outside.changes()))
    }

    /// Look at what lies outside the folder, of a disk that nothing has crashed.
    fn remember(&mut self, shown: Shown<'_>, spec: &OutsideSpec) -> Result<AgentReply, Failure> {
        self.outside = None;
        let mounted = self.mount_to_use(shown)?;
        mounted.map_err(failed("mount the disk as it was"))?;
        let (outside, mut seen) = watch::during(Call::Files, || Outside::remember(spec))?;
        let errno = self.unmount_recovered()?;
        if errno != 0 {
            return Err(failed("unmount the disk as it was")(
                Errno::from_raw_os_error(errno),
            ));
        }
        forget_devices()?;
        self.outside = Some(outside);
        seen.kernel_log = self.kernel_log.drain().lines;
        Ok(AgentReply::OutsideSeen(seen))
    }

    /// The answer where the stack did not start: there is no device.
    fn not_started(&mut self, not_started: String) -> Result<AgentReply, Failure> {
        let said = self.kernel_log.drain();
        Ok(AgentReply::Recovered(Recovered {
            mount_errno: Errno::NXIO.raw_os_error(),
            not_started,
            kernel_log: said.lines,
            log_complete: said.complete,
            ..Recovered::default()
        }))
    }

    /// Whatever is mounted goes, nothing of the device is in a cache, and the stack is started. Returns the
    /// device to mount, or what the steps said that start the stack.
    fn prepare(
        &mut self,
        device: &str,
        mount: &MountSpec,
        clock_s: u64,
    ) -> Result<Result<String, String>, Failure> {
        let device = self.lay_out(device, mount, clock_s)?;
        let started = self.start_stack(mount)?;
        Ok(started.map(|of_stack| of_stack.unwrap_or(device)))
    }

    /// Whatever is mounted goes, nothing of the device is in a cache, and its parts are there.
    fn lay_out(
        &mut self,
        device: &str,
        mount: &MountSpec,
        clock_s: u64,
    ) -> Result<String, Failure> {
        self.release();
        boot::forget_what_was_said_once();
        // Before the mount: recovery writes times into the super block.
        set_clock(clock_s)?;
        files::wait_for_device(device)?;
        mounts::drop_cache(device).map_err(failed(format!("drop the cache of {device}")))?;
        let device = self.cut(device, mount)?;
        if let Some(parts) = &self.parts {
            parts.drop_caches()?;
        }
        Ok(device)
    }

    fn run_beside(
        &mut self,
        device: &str,
        mount: &MountSpec,
        clock_s: u64,
        argv: &[String],
        deadline: Instant,
    ) -> Result<AgentReply, Failure> {
        self.lay_out(device, mount, clock_s)?;
        let ended = program::run(argv, deadline).map_err(failed("start the program"))?;
        forget_devices()?;
        Ok(AgentReply::ProgramDone {
            exit_code: ended.exit_code,
            output: ended.output,
        })
    }

    /// Mount what recovery left once more, and walk it.
    fn look_again(
        &mut self,
        shown: Shown<'_>,
        before: &Looks,
        read_contents: bool,
    ) -> Result<Second, Failure> {
        let mut second = Second {
            mounted: self.mount_to_use(shown)?,
            looks: Looks::default(),
            entries: Vec::new(),
            errors: Vec::new(),
        };
        if second.mounted.is_ok() {
            let walked =
                watch::during(Call::Files, || self.walker.look(MOUNT_POINT, read_contents))?;
            let contents = !read_contents || walked.looks.contents == before.contents;
            if walked.looks.names != before.names || !contents {
                second.entries = walked.entries;
            }
            (second.looks, second.errors) = (walked.looks, walked.errors);
        }
        Ok(second)
    }

    /// Write to what is mounted and unmount it. `keep`: names in the root; None: nothing is written.
    fn write_and_remove(
        &mut self,
        shown: Shown<'_>,
        second: Second,
        keep: Option<&[String]>,
        deadline: Instant,
    ) -> Result<AgentReply, Failure> {
        let mut user = usable::User::new(MOUNT_POINT, keep.unwrap_or_default(), deadline);
        let mut ended = usable::Ended::default();
        if second.mounted.is_ok() && keep.is_some() {
            ended = user.use_up(&mut Used { agent: self, shown })?;
        } else if second.mounted.is_ok() {
            ended.unmount_errno = self.unmount_used()?;
        }
        forget_devices()?;
        let (said, used) = (self.kernel_log.drain(), user.end());
        let mut errors = second.errors;
        errors.extend(used.errors);
        Ok(AgentReply::Used {
            mount_errno: second.mounted.err().map_or(0, Errno::raw_os_error),
            errors,
            finished: used.finished,
            unmount_errno: ended.unmount_errno,
            kernel_log: said.lines,
            log_complete: said.complete,
            differences: used.differences,
            remount_errno: ended.remount_errno,
            looks: second.looks,
            entries: second.entries,
        })
    }

    /// Mount a recovered file system that is to be written to.
    fn mount_to_use(&mut self, shown: Shown<'_>) -> Result<Result<(), Errno>, Failure> {
        let Ok(device) = self.prepare(shown.device, shown.mount, shown.clock_s)? else {
            return Ok(Err(Errno::NXIO));
        };
        let mounted = watch::during(Call::Mount, || {
            mounts::mount_device(&device, shown.mount, MountFlags::NOATIME)
        });
        if mounted.is_ok() {
            self.mounted = Mounted::Recovered;
        } else {
            self.stop_stack()?;
        }
        Ok(mounted)
    }

    fn unmount_used(&mut self) -> Result<i32, Failure> {
        let errno = watch::during(Call::Unmount, mounts::unmount_device);
        self.mounted = Mounted::Nothing;
        self.stop_after(errno)?;
        Ok(errno)
    }

    /// Stop the stack after an unmount. Where that failed, the stack is still in use, which is no news.
    fn stop_after(&mut self, unmount_errno: i32) -> Result<(), Failure> {
        let stopped = self.stop_stack();
        if unmount_errno == 0 {
            stopped
        } else {
            Ok(())
        }
    }

    fn inspect(&mut self, recovered: &mut Recovered) -> Result<(), Failure> {
        let walked = watch::during(Call::Files, || self.walker.walk(MOUNT_POINT))?;
        recovered.entries = walked.entries;
        recovered.walk_errors = walked.errors;
        recovered.looks = walked.looks;
        recovered.read_only = mounts::is_read_only();
        Ok(())
    }

    fn unmount_recovered(&mut self) -> Result<i32, Failure> {
        let errno = watch::during(Call::Unmount, mounts::unmount_device);
        self.mounted = Mounted::Nothing;
        self.stop_after(errno)?;
        Ok(errno)
    }

    fn run_program(&mut self, argv: &[String], deadline: Instant) -> Result<AgentReply, Failure> {
        if !self.tools && !matches!(self.mounted, Mounted::Recovered) {
            return Err(Failure::NothingRecovered);
        }
        let scratch = Scratch::before();
        let before = processes::running();
        let ended = if self.tools {
            program::run_tool(argv, deadline)
        } else {
            program::run(argv, deadline)
        }
        .map_err(failed(format!("run {}", argv.join(" "))))?;
        if !self.tools {
            // A server that a check left running must not answer the next check. A daemon that holds the file
            // system has to.
            scratch.leave(&before);
        }
        Ok(AgentReply::ProgramDone {
            exit_code: ended.exit_code,
            output: ended.output,
        })
    }

    fn note_calls(&mut self, argv: &[String], deadline: Instant) -> Result<AgentReply, Failure> {
        self.release();
        trees::mount_empty()?;
        self.mounted = Mounted::Tree; // a failure from here on releases it
        whole::begin().map_err(noting)?;
        ack::begin_whole()?;
        let scratch = Scratch::before();
        let ended = program::run(&calls::noted(calls::Noted::Whole, argv), deadline)
            .map_err(failed(format!("run {}", argv.join(" "))))?;
        ack::end();
        scratch.leave(&HashSet::new());
        let output = noted_of(&ended, true)?;
        self.trees = None;
        Ok(AgentReply::ProgramDone {
            exit_code: ended.exit_code,
            output,
        })
    }

    fn try_trees(
        &mut self,
        trees: &[TreeToTry],
        asked: &TreeCheck<'_>,
    ) -> Result<AgentReply, Failure> {
        if !matches!(self.mounted, Mounted::Tree) {
            self.trees = None;
            self.release();
        }
        let mut made = match self.trees.take() {
            Some(made) => made,
            None => {
                self.noted = std::fs::read(whole::BYTES).map_err(|_| Failure::NothingRecovered)?;
                if matches!(self.mounted, Mounted::Tree) {
                    mounts::unmount_device();
                }
                trees::mount_empty()?;
                self.mounted = Mounted::Tree;
                Trees::begin()?
            }
        };
        let tried = made.try_all(trees, &self.noted, asked)?;
        self.trees = Some(made);
        Ok(tried)
    }

    fn unmount(&mut self) -> Result<AgentReply, Failure> {
        if !matches!(self.mounted, Mounted::Recovered) {
            return Err(Failure::NothingRecovered);
        }
        let unmount_errno = self.unmount_recovered()?;
        forget_devices()?;
        let said = self.kernel_log.drain();
        Ok(AgentReply::Unmounted {
            unmount_errno,
            kernel_log: said.lines,
            log_complete: said.complete,
        })
    }
}

fn noting(e: std::io::Error) -> Failure {
    failed("note calls")(errno_of(&e))
}

/// What was noted of a program that has ended, with what it left if that is wanted: as the host reads it.
fn noted_of(ended: &program::Ended, left: bool) -> Result<Vec<u8>, Failure> {
    let (lines, bytes) = whole::finish(ended.exit_code, &ended.output, left).map_err(noting)?;
    let length = u32::try_from(lines.len()).unwrap_or(u32::MAX).to_le_bytes();
    Ok([&length[..], &lines, &bytes].concat())
}

fn forget_devices() -> Result<(), Failure> {
    mounts::forget_btrfs_devices().map_err(failed("BTRFS_IOC_FORGET_DEV"))
}

fn put_file(path: &str, mode: u32, data: &[u8], append: bool) -> Result<AgentReply, Failure> {
    let outside = path.starts_with('/')
        && !path.split('/').any(|part| part == "..")
        && !std::path::Path::new(path).starts_with(MOUNT_POINT);
    if !outside {
        return Err(Failure::NotOutside(path.to_owned()));
    }
    files::make_parent(std::path::Path::new(path))?;
    let put = || {
        let mut options = std::fs::File::options();
        if append {
            options.append(true);
        } else {
            // A new file: the old one may be running, and would keep its mode.
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            options.write(true).create_new(true).mode(mode);
        }
        std::io::Write::write_all(&mut options.open(path)?, data)
    };
    put().map_err(|e| failed(format!("put {path}"))(errno_of(&e)))?;
    Ok(AgentReply::Done {})
}

/// Set the guest's clock to so many seconds since the epoch.
fn set_clock(clock_s: u64) -> Result<(), Failure> {
    let time = Timespec {
        tv_sec: i64::try_from(clock_s).map_err(|_| failed("clock_settime")(Errno::INVAL))?,
        tv_nsec: 0,
    };
    clock_settime(ClockId::Realtime, time).map_err(failed("clock_settime"))
}

fn seconds_from_now(seconds: u32) -> Instant {
    Instant::now() + Duration::from_secs(seconds.into())
}

/// The microseconds since the clock was read last. In UML, a look at the clock is a system call like others.
fn lap(clock: &mut Instant) -> u64 {
    let before = std::mem::replace(clock, Instant::now());
    u64::try_from((*clock - before).as_micros()).unwrap_or(u64::MAX)
}
