//! Where in a program a call was made: its innermost functions that are the program's own, with file and line.
//!
//! gimli reads how frames are unwound (`.eh_frame`, `.debug_frame`), addr2line what is at an address. Nothing is
//! guessed: where a frame has no such rule, or one that is not of a plain kind, its callers stay unknown. Frame
//! pointers are not followed, since most code keeps other things in that register.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs::{self, File, Metadata},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, MetadataExt},
    },
    path::{Path, PathBuf},
    rc::Rc,
};

use addr2line::Context;
use gimli::{
    BaseAddresses, CfaRule, DebugFrame, EhFrame, EhFrameHdr, EndianSlice, FrameDescriptionEntry,
    LittleEndian, RegisterRule, Section, SectionId, UnwindContext, UnwindSection, X86_64,
};
use libc::{pid_t, user_regs_struct};
use object::{
    read::elf::ElfFile64, CompressionFormat, Object, ObjectSection, ObjectSegment, ObjectSymbol,
    SymbolKind,
};
use rustix::mm::{mmap, MapFlags, ProtFlags};

/// Frames that are looked at, and those that are told.
const FRAMES_MAX: usize = 48;
const TOLD_MAX: usize = 3;
/// Bytes of a function's name, and of sections that are kept unpacked.
const NAME_BYTES: usize = 80;
const UNPACKED_MAX: u64 = 64 << 20;
/// Registers by their DWARF numbers (System V ABI of x86-64, figure 3.36), up to the return address.
const REGISTERS: usize = 17;
/// Libraries through which a program makes its calls. None of them is what the program's author looks for.
const SYSTEM: [&str; 8] = [
    "libc.",
    "libc-",
    "libpthread",
    "ld-",
    "ld.",
    "libstdc++",
    "libgcc_s",
    "libm.",
];
/// Programs whose own functions say nothing about the script that they run.
const INTERPRETERS: [&str; 12] = [
    "busybox",
    "sh",
    "dash",
    "bash",
    "zsh",
    "python",
    "libpython",
    "perl",
    "ruby",
    "node",
    "lua",
    "java",
];

/// The first words of the packages of Go's own library (pkg.go.dev/std).
const GO: &str = "archive arena bufio builtin bytes cmd cmp compress container context crypto database debug embed \
    encoding errors expvar flag fmt go hash html image index internal io iter log maps math mime net os path plugin \
    reflect regexp runtime simd slices sort strconv strings structs sync syscall testing text time unicode unique \
    unsafe vendor weak";

type Bytes = EndianSlice<'static, LittleEndian>;
type Registers = [Option<u64>; REGISTERS];

/// Programs and libraries that were met, and what was said of their frames.
#[derive(Default)]
pub struct Frames {
    modules: HashMap<Identity, Option<Rc<Module>>>,
    told: HashMap<Vec<(u64, u64)>, String>,
    maps: HashMap<pid_t, Maps>,
    unpacked: u64,
}

/// What a thread has mapped, and the files of it that were met, by where they begin.
struct Maps {
    text: Vec<u8>,
    mappings: Vec<Mapping>,
    modules: HashMap<u64, Option<Rc<Module>>>,
}

/// A file as it was when it was read: path, inode, size, and when it was changed.
type Identity = (PathBuf, u64, u64, (i64, i64));

struct Module {
    number: u64,
    name: String,
    elf: ElfFile64<'static>,
    bases: BaseAddresses,
    eh_frame: Bytes,
    eh_frame_hdr: Bytes,
    debug_frame: Bytes,
    lines: Option<Context<Bytes>>,
}

/// A part of a program's memory with code of a file.
struct Mapping {
    begin: u64,
    end: u64,
    offset: u64,
    inode: u64,
    path: PathBuf,
}

impl Mapping {
    /// Its file, unless another one has its name by now. The path is that from this process's root, also where the
    /// thread has another one (chroot(2)); of a mount that is not there, as of another namespace, from the root of
    /// its own.
    fn opened(&self, task: pid_t) -> Option<(File, Metadata)> {
        let path = self.path.strip_prefix("/").ok()?;
        let roots = [format!("/proc/{task}/root"), "/".to_owned()];
        roots.iter().find_map(|root| {
            let file = File::open(Path::new(root).join(path)).ok()?;
            let seen = file.metadata().ok()?;
            (seen.ino() == self.inode).then_some((file, seen))
        })
    }
}

impl Frames {
    /// Where the call that a thread begins was made; empty if that is not known.
    pub fn place(&mut self, task: pid_t, registers: &user_regs_struct) -> String {
        let found = self.unwound(task, registers);
        let key: Vec<_> = found.iter().map(|(m, at)| (m.number, *at)).collect();
        self.told.entry(key).or_insert_with(|| told(&found)).clone()
    }

    /// The frames of a thread, innermost first: of each, the file and the address in it. What called an interpreter
    /// says nothing.
    fn unwound(&mut self, task: pid_t, registers: &user_regs_struct) -> Vec<(Rc<Module>, u64)> {
        let mut found = Vec::new();
        let Ok(text) = fs::read(format!("/proc/{task}/maps")) else {
            return found;
        };
        let Ok(memory) = File::open(format!("/proc/{task}/mem")) else {
            return found;
        };
        let known = self.maps.remove(&task).filter(|maps| maps.text == text);
        let mut maps = known.unwrap_or_else(|| Maps::of(text));
        let mut registers = by_number(registers);
        let mut back = 0; // a return address may be behind the end of the function that called
        while let Some(at) = registers[16].filter(|_| found.len() < FRAMES_MAX) {
            let at = at.wrapping_sub(back);
            let Some((module, address)) = self.code(task, &mut maps, at) else {
                break;
            };
            let caller = module.caller(address, &registers, &memory);
            let is_interpreter = is_one_of(&module.name, &INTERPRETERS);
            found.push((module, address));
            let Some(caller) = caller.filter(|_| !is_interpreter) else {
                break;
            };
            (registers, back) = (caller, 1);
        }
        self.maps.insert(task, maps);
        found
    }

    /// The file whose code is at an address of a thread, and the address in it.
    fn code(&mut self, task: pid_t, maps: &mut Maps, at: u64) -> Option<(Rc<Module>, u64)> {
        let mapping = maps
            .mappings
            .iter()
            .find(|m| (m.begin..m.end).contains(&at))?;
        let known = maps.modules.entry(mapping.begin);
        let module = known
            .or_insert_with(|| self.module(task, mapping))
            .clone()?;
        let address = module.address(mapping, at)?;
        Some((module, address))
    }

    fn module(&mut self, task: pid_t, mapping: &Mapping) -> Option<Rc<Module>> {
        let (file, seen) = mapping.opened(task)?;
        let identity = (
            mapping.path.clone(),
            seen.ino(),
            seen.len(),
            (seen.mtime(), seen.mtime_nsec()),
        );
        if let Some(known) = self.modules.get(&identity) {
            return known.clone();
        }
        let number = self.modules.len() as u64;
        let read = Module::read(number, mapping, &file, &mut self.unpacked).map(Rc::new);
        self.modules.insert(identity, read.clone());
        read
    }
}

impl Maps {
    fn of(text: Vec<u8>) -> Self {
        let lines = text.split(|byte| *byte == b'\n');
        Self {
            mappings: lines.filter_map(mapping_of).collect(),
            modules: HashMap::new(),
            text,
        }
    }
}

impl Module {
    fn read(number: u64, mapping: &Mapping, file: &File, unpacked: &mut u64) -> Option<Self> {
        let elf = ElfFile64::parse(mapped(file)?).ok()?;
        let start = |name| elf.section_by_name(name).map_or(0, |s| s.address());
        let bases = BaseAddresses::default()
            .set_eh_frame(start(".eh_frame"))
            .set_eh_frame_hdr(start(".eh_frame_hdr"))
            .set_text(start(".text"))
            .set_got(start(".got"));
        let name = mapping.path.file_name()?.to_string_lossy().into_owned();
        let mut section = |name: &str| section(&elf, name, unpacked);
        let (eh_frame, eh_frame_hdr) = (section(".eh_frame"), section(".eh_frame_hdr"));
        let debug_frame = section(".debug_frame");
        let dwarf = gimli::Dwarf::load(|id: SectionId| Ok::<_, gimli::Error>(section(id.name())));
        let lines = dwarf
            .ok()
            .filter(|dwarf| !dwarf.debug_line.reader().is_empty())
            .and_then(|dwarf| Context::from_dwarf(dwarf).ok());
        Some(Self {
            number,
            name,
            bases,
            eh_frame,
            eh_frame_hdr,
            debug_frame,
            lines,
            elf,
        })
    }

    /// The address in the file of what is mapped at an address.
    fn address(&self, mapping: &Mapping, at: u64) -> Option<u64> {
        let offset = at - mapping.begin + mapping.offset;
        self.elf.segments().find_map(|segment| {
            let (begin, size) = segment.file_range();
            let within = offset.checked_sub(begin).filter(|within| *within < size)?;
            Some(segment.address() + within)
        })
    }

    /// The registers of the caller of a function that is at an address. None for the outermost frame, and where
    /// the file does not tell.
    fn caller(&self, address: u64, registers: &Registers, memory: &File) -> Option<Registers> {
        let hdr = EhFrameHdr::new(self.eh_frame_hdr.slice(), LittleEndian);
        let mut eh_frame = EhFrame::new(self.eh_frame.slice(), LittleEndian);
        eh_frame.set_address_size(8);
        let parsed = hdr.parse(&self.bases, 8).ok();
        let cie = EhFrame::cie_from_offset;
        let found = match parsed.as_ref().and_then(|hdr| hdr.table()) {
            Some(table) => table.fde_for_address(&eh_frame, &self.bases, address, cie),
            None => eh_frame.fde_for_address(&self.bases, address, cie),
        };
        if let Ok(found) = found {
            return applied(&eh_frame, &self.bases, &found, address, registers, memory);
        }
        let mut frame = DebugFrame::new(self.debug_frame.slice(), LittleEndian);
        frame.set_address_size(8);
        let cie = DebugFrame::cie_from_offset;
        let found = frame.fde_for_address(&self.bases, address, cie).ok()?;
        applied(&frame, &self.bases, &found, address, registers, memory)
    }

    /// Functions at an address, innermost first, if the file has lines: where they are, and their names.
    fn lines(&self, address: u64) -> Vec<String> {
        let mut told = Vec::new();
        let Some(lines) = &self.lines else {
            return told;
        };
        let Ok(mut frames) = lines.find_frames(address).skip_all_loads() else {
            return told;
        };
        while let Ok(Some(frame)) = frames.next() {
            let Some((file, line)) = frame.location.and_then(|at| Some((at.file?, at.line?)))
            else {
                continue;
            };
            let name = frame
                .function
                .and_then(|f| Some(f.demangle().ok()?.into_owned()));
            let in_go = name.as_deref().is_some_and(|name| is_of_go(file, name));
            if line == 0 || is_of_language(file) || in_go {
                continue;
            }
            let file = file.rsplit('/').next().unwrap_or(file);
            // Names of C++ stay as they are linked: what reads them is larger than all else here.
            let name = name
                .filter(|name| !name.starts_with("_Z"))
                .map_or(String::new(), |name| format!(" in {}", short(&name)));
            told.push(format!("{file}:{line}{name}"));
        }
        told
    }

    /// The function at an address by the symbol table.
    fn symbol(&self, address: u64) -> Option<String> {
        let found = self.elf.symbols().find(|symbol| {
            let within = address.checked_sub(symbol.address());
            symbol.kind() == SymbolKind::Text && within.is_some_and(|at| at < symbol.size())
        })?;
        let name = addr2line::demangle_auto(found.name().ok()?.into(), None);
        // What calls main is no function of the program's.
        (name != "_start").then(|| format!("{} of {}", short(&name), self.name))
    }
}

/// Whether a file's name begins with one of these, each a whole word.
fn is_one_of(file: &str, names: &[&str]) -> bool {
    names.iter().any(|name| {
        let rest = file.strip_prefix(name);
        rest.is_some_and(|rest| {
            name.ends_with(['.', '-']) || !rest.starts_with(char::is_alphabetic)
        })
    })
}

/// Frames in words: with lines where there are any, else by symbols, else by place in the file.
fn told(found: &[(Rc<Module>, u64)]) -> String {
    let own: Vec<_> = found
        .iter()
        .filter(|(module, _)| {
            !is_one_of(&module.name, &SYSTEM) && !is_one_of(&module.name, &INTERPRETERS)
        })
        .collect();
    let mut told: Vec<_> = own.iter().flat_map(|(m, at)| m.lines(*at)).collect();
    if told.is_empty() {
        told = own.iter().filter_map(|(m, at)| m.symbol(*at)).collect();
    }
    if told.is_empty() {
        let place = |(module, at): &&(Rc<Module>, u64)| format!("{}+{at:#x}", module.name);
        told = own.first().map(place).into_iter().collect();
    }
    told.dedup();
    told.truncate(TOLD_MAX);
    told.join(", called by ")
}

/// What a row of a table of frames makes of the registers (DWARF 5, 6.4.3).
fn applied<S: UnwindSection<Bytes>>(
    section: &S,
    bases: &BaseAddresses,
    found: &FrameDescriptionEntry<Bytes>,
    address: u64,
    registers: &Registers,
    memory: &File,
) -> Option<Registers> {
    if found.is_signal_trampoline() {
        return None;
    }
    let mut context = UnwindContext::new();
    let row = found
        .unwind_info_for_address(section, bases, &mut context, address)
        .ok()?;
    let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else {
        return None;
    };
    let frame = registers
        .get(usize::from(register.0))
        .copied()
        .flatten()?
        .checked_add_signed(*offset)?;
    if registers[usize::from(X86_64::RSP.0)]? >= frame {
        return None; // the stack of a caller is above
    }
    let saved = |offset: i64| {
        let mut bytes = [0; 8];
        memory
            .read_exact_at(&mut bytes, frame.checked_add_signed(offset)?)
            .ok()?;
        Some(u64::from_ne_bytes(bytes))
    };
    let mut caller = [None; REGISTERS];
    for kept in [
        X86_64::RBX,
        X86_64::RBP,
        X86_64::R12,
        X86_64::R13,
        X86_64::R14,
        X86_64::R15,
    ] {
        caller[usize::from(kept.0)] = registers[usize::from(kept.0)];
    }
    caller[usize::from(X86_64::RSP.0)] = Some(frame);
    for (register, rule) in row.registers() {
        if let Some(value) = caller.get_mut(usize::from(register.0)) {
            *value = match rule {
                RegisterRule::Offset(offset) => saved(*offset),
                RegisterRule::ValOffset(offset) => frame.checked_add_signed(*offset),
                RegisterRule::SameValue => registers[usize::from(register.0)],
                _ => None,
            };
        }
    }
    Some(caller)
}

fn by_number(r: &user_regs_struct) -> Registers {
    [
        r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12,
        r.r13, r.r14, r.r15, r.rip,
    ]
    .map(Some)
}

/// A line of /proc/PID/maps, if it is of code of a file (proc_pid_maps(5)).
fn mapping_of(line: &[u8]) -> Option<Mapping> {
    let mut words = line.splitn(6, |byte| *byte == b' ');
    let mut word = || std::str::from_utf8(words.next()?).ok();
    let (begin, end) = word()?.split_once('-')?;
    let is_code = word()?.as_bytes().get(2) == Some(&b'x');
    let (offset, _, inode) = (word()?, word()?, word()?.parse().ok()?);
    let path = words.next()?.trim_ascii_start();
    let hexadecimal = |word| u64::from_str_radix(word, 16).ok();
    Some(Mapping {
        begin: hexadecimal(begin)?,
        end: hexadecimal(end)?,
        offset: hexadecimal(offset)?,
        inode,
        path: PathBuf::from(OsStr::from_bytes(path)),
    })
    .filter(|_| is_code && path.starts_with(b"/"))
}

/// The bytes of a file, for good: its pages are the guest's root, which is memory as it is.
fn mapped(file: &File) -> Option<&'static [u8]> {
    let size = usize::try_from(file.metadata().ok()?.len()).ok()?;
    let (flags, protection) = (MapFlags::PRIVATE, ProtFlags::READ);
    // SAFETY: nothing else is at a place that the kernel chooses, and it is never unmapped.
    unsafe {
        let at = mmap(std::ptr::null_mut(), size, protection, flags, file, 0).ok()?;
        Some(std::slice::from_raw_parts(at.cast::<u8>(), size))
    }
}

/// A section, unpacked; empty if there is none, or too much is unpacked already.
fn section(elf: &ElfFile64<'static>, name: &str, unpacked: &mut u64) -> Bytes {
    let empty = EndianSlice::new(&[], LittleEndian);
    let Some(packed) = elf
        .section_by_name(name)
        .and_then(|section| section.compressed_data().ok())
    else {
        return empty;
    };
    match packed.format {
        CompressionFormat::None => EndianSlice::new(packed.data, LittleEndian),
        CompressionFormat::Zlib if *unpacked + packed.uncompressed_size <= UNPACKED_MAX => {
            let size = packed.uncompressed_size as usize;
            let Ok(bytes) =
                miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(packed.data, size)
            else {
                return empty;
            };
            *unpacked += bytes.len() as u64;
            EndianSlice::new(bytes.leak(), LittleEndian)
        }
        _ => empty,
    }
}

/// Whether a source file is of a language's own library: Rust's, Go's (whose paths have no host in them), C++'s.
fn is_of_language(file: &str) -> bool {
    let of_go = file.split_once("/src/").is_some_and(|(root, rest)| {
        let root = root.rsplit('/').next().unwrap_or(root);
        let package = rest.split('/').next().unwrap_or(rest);
        (root == "go" || root.starts_with("go-1") || root.starts_with("go1"))
            && !package.contains('.')
    });
    of_go
        || file.starts_with("/rustc/")
        || file.contains("/rustlib/src/rust/")
        || file.starts_with("/usr/include/")
}

/// Whether a function is of Go's own library, where `-trimpath` has left of its path no more than the package. The
/// package of a program has another name in its functions (`main`), begins with another word, or has a host before it.
fn is_of_go(file: &str, function: &str) -> bool {
    let file = file.strip_prefix("./").unwrap_or(file);
    let Some((package, _)) = file.rsplit_once('/') else {
        return false;
    };
    let rest = function.strip_prefix(package);
    let top = package.split('/').next().unwrap_or(package);
    rest.is_some_and(|rest| rest.starts_with('.')) && GO.split_whitespace().any(|word| word == top)
}

/// A function's name, not longer than can be read.
fn short(name: &str) -> String {
    match name.char_indices().nth(NAME_BYTES) {
        Some((at, _)) => format!("{}...", &name[..at]),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::CommandExt,
        process::{Command, Stdio},
        sync::atomic::{AtomicU32, Ordering},
    };

    use libc::c_int;

    use super::*;

    /// A store that calls through functions of its own and of the C library: its lines are looked up by what
    /// stands in them.
    const STORE: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#define KEPT __attribute__((noinline, noclone))
static volatile int kept;
KEPT static int written(int fd, const char *data, unsigned long size) {
    int n = write(fd, data, size); // write
    return n + kept;
}
KEPT static int append(int fd, const char *data) {
    int n = written(fd, data, 3); // append
    return n + kept;
}
KEPT static int flushed(FILE *file) {
    int n = fflush(file); // flush
    return n + kept;
}
KEPT static void *synced(void *fd) {
    int n = fsync(*(int *)fd); // sync
    kept = n;
    return 0;
}
int main(int count, char **words) {
    int fd = open(words[1], O_CREAT | O_RDWR, 0600);
    kept += append(fd, "abc"); // call append
    FILE *file = fdopen(fd, "w");
    fputs("more", file);
    kept += flushed(file); // call flush
    pthread_t thread;
    pthread_create(&thread, 0, synced, &fd); // start
    pthread_join(thread, 0);
    return 0;
}
"#;

    struct Built(PathBuf);

    impl Drop for Built {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// A program, built from one file of source.
    fn built(name: &str, source: &str, compiler: &[&str]) -> Built {
        static BUILT: AtomicU32 = AtomicU32::new(0);
        let number = BUILT.fetch_add(1, Ordering::Relaxed);
        let folder = format!("powercut-frames-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(name), source).unwrap();
        let done = Command::new(compiler[0])
            .args(&compiler[1..])
            .args([name, "-o", "store"])
            .current_dir(&folder)
            .status()
            .unwrap();
        assert!(done.success());
        Built(folder)
    }

    /// The places of the calls of these numbers that a program makes on descriptors of its own.
    fn places(program: &Built, wanted: &[libc::c_long]) -> Vec<String> {
        let mut command = Command::new(program.0.join("store"));
        command.arg(program.0.join("file")).stdout(Stdio::null());
        // SAFETY: the call takes numbers.
        unsafe {
            command.pre_exec(|| {
                libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                Ok(())
            });
        }
        #[allow(clippy::zombie_processes)] // it is waited for below
        let child = command.spawn().unwrap().id() as pid_t;
        let (mut frames, mut places, mut status) = (Frames::default(), Vec::new(), 0);
        let mut begun: HashMap<pid_t, bool> = HashMap::new();
        let mut prepared = false;
        loop {
            // Not another test's children: of this one's, those that share its thread.
            let flags = libc::__WALL | libc::__WNOTHREAD;
            // SAFETY: the status is a number of ours.
            let task = unsafe { libc::waitpid(-1, &mut status, flags) };
            if task < 0 {
                return places;
            }
            if !libc::WIFSTOPPED(status) {
                continue;
            }
            let mut delivered: c_int = 0;
            if !prepared {
                let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE;
                // SAFETY: the request takes numbers.
                unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, child, 0, options) };
                prepared = true;
            } else if libc::WSTOPSIG(status) == libc::SIGTRAP | 0x80 {
                let begins = begun.entry(task).or_insert(false);
                *begins = !*begins;
                let registers = crate::calls::registers(task).unwrap();
                let number = registers.orig_rax as libc::c_long;
                if *begins && wanted.contains(&number) && registers.rdi > 2 {
                    places.push(frames.place(task, &registers));
                }
            } else if !matches!(libc::WSTOPSIG(status), libc::SIGTRAP | libc::SIGSTOP) {
                delivered = libc::WSTOPSIG(status);
            }
            // SAFETY: the request takes numbers.
            unsafe { libc::ptrace(libc::PTRACE_SYSCALL, task, 0, delivered) };
        }
    }

    /// Where these words stand in a file.
    fn at(name: &str, source: &str, words: &str) -> String {
        let line = source.lines().position(|line| line.ends_with(words));
        format!("{name}:{}", line.unwrap() + 1)
    }

    fn of_store(flags: &[&str]) -> Vec<String> {
        let compiler = [&["gcc", "-pthread"], flags].concat();
        places(
            &built("store.c", STORE, &compiler),
            &[libc::SYS_write, libc::SYS_fsync],
        )
    }

    #[test]
    fn a_call_is_told_by_the_lines_that_lead_to_it() {
        let line = |words: &str| at("store.c", STORE, words);
        let expected = [
            format!(
                "{} in written, called by {} in append, called by {} in main",
                line("// write"),
                line("// append"),
                line("// call append")
            ),
            format!(
                "{} in flushed, called by {} in main",
                line("// flush"),
                line("// call flush")
            ),
            format!("{} in synced", line("// sync")),
        ];
        for flags in [
            &["-g", "-O0"][..],
            &["-g", "-O2", "-fomit-frame-pointer"],
            &["-g", "-O2", "-no-pie"],
            &["-g", "-O2", "-static"],
            &["-g", "-O2", "-static-pie", "-gz=zlib"],
            &["-g", "-O2", "-gdwarf-4"],
        ] {
            assert_eq!(of_store(flags), expected, "{flags:?}");
        }
    }

    /// The path of its file was looked for below its new root, where it is not.
    #[test]
    fn a_program_with_another_root_is_told_by_its_lines() {
        const ROOTED: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>
int main(int count, char **words) {
    int fd = open(words[1], O_CREAT | O_RDWR, 0600);
    if (geteuid())
        unshare(CLONE_NEWUSER);
    if (!chroot("/proc"))
        write(fd, "abc", 3); // write
    return 0;
}
"#;
        let program = built("rooted.c", ROOTED, &["gcc", "-g", "-w"]);
        let line = at("rooted.c", ROOTED, "// write");
        assert_eq!(
            places(&program, &[libc::SYS_write]),
            [format!("{line} in main")]
        );
    }

    #[test]
    fn a_program_without_lines_is_told_by_its_functions() {
        let told = of_store(&["-O2"]);
        assert_eq!(
            told,
            [
                "written of store, called by append of store, called by main of store",
                "flushed of store, called by main of store",
                "synced of store"
            ]
        );
    }

    #[test]
    fn a_stripped_program_is_told_by_its_file() {
        for place in of_store(&["-O2", "-s"]) {
            let offset = place.strip_prefix("store+0x").unwrap();
            assert!(u64::from_str_radix(offset, 16).unwrap() > 0, "{place}");
        }
    }

    /// Frame pointers and return addresses that are guessed would tell a function that did not call.
    #[test]
    fn a_stack_that_cannot_be_unwound_tells_no_caller() {
        const ODD: &str = r#"
#include <fcntl.h>
__asm__(".text\n.globl plain\n.type plain, @function\nplain:\n"
        "push %rbp\npush %rbx\nlea 8(%rsp), %rbp\nmov $1, %eax\nsyscall\n"
        "pop %rbx\npop %rbp\nret\n.size plain, .-plain\n"
        ".globl garbage\n.type garbage, @function\ngarbage:\n.cfi_startproc\n.cfi_def_cfa_offset 4096\n"
        "mov $1, %eax\nsyscall\n.cfi_endproc\nret\n.size garbage, .-garbage\n"
        ".globl around\n.type around, @function\naround:\n.cfi_startproc\n.cfi_def_cfa rbx, 0\n"
        "push %rbx\nlea main+8(%rip), %rax\nmov %rax, -80(%rsp)\nlea -72(%rsp), %rbx\n"
        "mov $1, %eax\nsyscall\npop %rbx\n.cfi_endproc\nret\n"
        ".size around, .-around\n");
int plain(int fd, const char *data, unsigned long size);
int garbage(int fd, const char *data, unsigned long size);
int around(int fd, const char *data, unsigned long size);
int main(int count, char **words) {
    int fd = open(words[1], O_CREAT | O_RDWR, 0600);
    char room[8192] = {0};
    return plain(fd, "abc", 3) + garbage(fd, room, 3) + around(fd, room, 3) - 9;
}
"#;
        let program = built("odd.c", ODD, &["gcc", "-O1"]);
        let told = places(&program, &[libc::SYS_write]);
        assert_eq!(
            told,
            ["plain of store", "garbage of store", "around of store"]
        );
    }

    #[test]
    fn the_functions_of_rusts_library_are_not_told() {
        const STORE: &str = r#"
use std::{fs::File, io::{BufWriter, Write}};
#[inline(never)]
fn commit(log: &mut BufWriter<File>) {
    log.flush().unwrap(); // flush
    println!();
}
fn main() {
    let file = File::create(std::env::args_os().nth(1).unwrap()).unwrap();
    let mut log = BufWriter::new(file);
    log.write_all(b"abc").unwrap();
    commit(&mut log); // commit
}
"#;
        let program = built("store.rs", STORE, &["rustc", "-g", "-O"]);
        let line = |words: &str| at("store.rs", STORE, words);
        let expected = format!(
            "{} in store::commit, called by {} in store::main",
            line("// flush"),
            line("// commit")
        );
        assert_eq!(places(&program, &[libc::SYS_write]), [expected]);
    }

    #[test]
    fn an_interpreter_is_not_the_program() {
        let told = |name: &str, names: &[&str]| is_one_of(name, names);
        for name in [
            "python3.11",
            "libpython3.11.so.1.0",
            "busybox",
            "dash",
            "sh",
        ] {
            assert!(told(name, &INTERPRETERS), "{name}");
        }
        for name in [
            "libc.so.6",
            "ld-linux-x86-64.so.2",
            "libc-2.31.so",
            "libm.so.6",
        ] {
            assert!(told(name, &SYSTEM), "{name}");
        }
        for name in ["shop", "libcurl.so.4", "nodes", "ldb"] {
            assert!(!told(name, &INTERPRETERS) && !told(name, &SYSTEM), "{name}");
        }
    }

    /// "os.(*File).Write" at file.go was told as the function of a program that is built without its paths.
    #[test]
    fn gos_own_library_is_known_where_its_paths_are_trimmed() {
        for (file, function) in [
            ("os/file.go", "os.(*File).Write"),
            ("./os/file_posix.go", "os.(*File).Sync"),
            ("internal/poll/fd_unix.go", "internal/poll.(*FD).Write"),
            (
                "runtime/internal/syscall/asm_linux_amd64.s",
                "runtime/internal/syscall.Syscall6",
            ),
            ("syscall/zsyscall_linux_amd64.go", "syscall.write"),
        ] {
            assert!(is_of_go(file, function), "{file}");
        }
        for (file, function) in [
            ("store/main.go", "main.commit"),
            ("log/main.go", "main.commit"),
            ("store/db/db.go", "store/db.(*DB).Commit"),
            ("example.com/me/store/db.go", "example.com/me/store.Commit"),
            ("example.com/os/file.go", "example.com/os.(*File).Write"),
            (
                "golang.org/x/sys@v0.5.0/unix/syscall.go",
                "golang.org/x/sys/unix.Fsync",
            ),
            ("internal/db/db.go", "example.com/me/internal/db.Commit"),
            ("os/file.c", "os_write"),
            ("main.go", "main.main"),
        ] {
            assert!(!is_of_go(file, function), "{file}");
        }
    }

    #[test]
    fn a_languages_own_library_is_known_by_its_place() {
        for path in [
            "/rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library/std/src/io/mod.rs",
            "/usr/local/go/src/os/file.go",
            "/usr/lib/go-1.19/src/internal/poll/fd_unix.go",
            "/usr/include/c++/12/fstream",
        ] {
            assert!(is_of_language(path), "{path}");
        }
        for path in [
            "/home/me/go/src/github.com/me/store/db.go",
            "/home/me/.cargo/registry/src/index/redb-2.1.0/src/file.rs",
            "/home/me/src/store.c",
            "store.c",
        ] {
            assert!(!is_of_language(path), "{path}");
        }
    }
}
