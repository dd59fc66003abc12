//! `powercut-disk`: the disk of one guest. See the library for what it shows.

use std::{
    fs,
    io::{self, Write},
    os::unix::net::UnixListener,
    process::ExitCode,
    sync::{Arc, Condvar, Mutex},
    thread,
    time::Duration,
};

use powercut_disk::{
    block::Traits,
    control,
    error::ServeError,
    vhost::{self, Shared},
    window::Window,
};
use powercut_protocol::{chain, FrameError, PROTOCOL_VERSION};
use vhost::serve as serve_guests;

const USAGE: &str = "\
usage: powercut-disk --socket PATH --control PATH [--shared] [--sectors L/P] [--write-through]

A virtio block device that shows the crash states of a write log.

  --socket PATH   vhost-user-blk socket for the guest, one queue
                  (QEMU: -device vhost-user-blk-pci,num-queues=1; UML: virtio_uml.device=PATH:2)
  --control PATH  socket for the host's requests (vms/protocol); takes one connection
  --shared        also show the device as memory, to a kernel with the driver of vms/umldisk
  --sectors L/P   bytes of logical and physical sectors: 512/512 (the default), 512/4096, 4096/4096
  --write-through tell guests that there is no volatile cache

Prints `ready PROTOCOL` once both sockets listen; with --shared, behind it, the number of its descriptor of that memory. Ends with the control connection.
";

/// Whoever starts the disk connects at once; if the starter died first, nothing would ever end the disk.
const CONTROL_DEADLINE: Duration = Duration::from_secs(60);

/// Why the process exits with a non-zero code.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("unknown argument {0:?}")]
    UnknownArgument(String),
    #[error("{0} wants a value")]
    NoValue(String),
    #[error("{0:?} are no sectors: give 512/512, 512/4096 or 4096/4096")]
    NoSectors(String),
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("cannot listen on {path}")]
    Listen { path: String, source: io::Error },
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("control connection")]
    Control(#[from] FrameError),
}

struct Arguments {
    socket: String,
    control: String,
    shared: bool,
    traits: Traits,
}

fn parse(arguments: impl Iterator<Item = String>) -> Result<Option<Arguments>, Failure> {
    let (mut socket, mut control, mut sectors) = (None, None, None);
    let (mut shared, mut write_through) = (false, false);
    let mut arguments = arguments;
    while let Some(name) = arguments.next() {
        let place = match name.as_str() {
            "--help" | "-h" => return Ok(None),
            "--socket" => &mut socket,
            "--control" => &mut control,
            "--sectors" => &mut sectors,
            "--shared" => {
                shared = true;
                continue;
            }
            "--write-through" => {
                write_through = true;
                continue;
            }
            _ => return Err(Failure::UnknownArgument(name)),
        };
        let value = arguments.next();
        *place = Some(value.ok_or(Failure::NoValue(name))?);
    }
    Ok(Some(Arguments {
        socket: socket.ok_or(Failure::Missing("--socket"))?,
        control: control.ok_or(Failure::Missing("--control"))?,
        shared,
        traits: traits(sectors, write_through)?,
    }))
}

fn traits(sectors: Option<String>, write_through: bool) -> Result<Traits, Failure> {
    let sectors = sectors.unwrap_or_else(|| "512/512".to_owned());
    let made = sectors.split_once('/').and_then(|(logical, physical)| {
        Traits::new(logical.parse().ok()?, physical.parse().ok()?, write_through)
    });
    made.ok_or(Failure::NoSectors(sectors))
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(what) => {
            eprint!("powercut-disk: {what}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("powercut-disk: {}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments {
        socket,
        control,
        traits,
        ..
    } = arguments;
    let guests = listen(socket)?;
    let host = listen(control)?;
    let window = match arguments.shared {
        true => Some(Window::new().map_err(ServeError::call("memory"))?),
        false => None,
    };
    let number = window.as_ref().map(Window::descriptor);
    let number = number.map_or(String::new(), |n| format!(" {n}"));
    println!("ready {PROTOCOL_VERSION}{number}");
    io::stdout()
        .flush()
        .map_err(ServeError::call("standard output"))?;

    let shared = Arc::new(Shared::new(window, *traits).map_err(ServeError::call("a thread"))?);
    let opened = Arc::new(Condvar::new());
    let (theirs, told) = (Arc::clone(&shared), Arc::clone(&opened));
    thread::spawn(move || {
        // the guest reads the capacity first of all, so it must wait until there is one
        let guard = told.wait_while(theirs.device(), |device| device.is_none());
        drop(guard);
        let error = serve_guests(&theirs, &guests);
        eprintln!(
            "powercut-disk: no more guests can be served: {}",
            chain(&error)
        );
        std::process::exit(1);
    });

    let mut stream = accept(&host)?;
    match control::serve(&shared, &opened, &mut stream) {
        Err(error) if error.is_farewell() => Ok(()),
        other => Ok(other?),
    }
}

fn listen(path: &str) -> Result<UnixListener, Failure> {
    // a disk that was killed leaves its socket behind
    let _ = fs::remove_file(path);
    UnixListener::bind(path).map_err(|source| Failure::Listen {
        path: path.to_owned(),
        source,
    })
}

/// Accept the host's connection, or exit if it never comes.
fn accept(listener: &UnixListener) -> Result<std::os::unix::net::UnixStream, Failure> {
    let came = Arc::new((Mutex::new(false), Condvar::new()));
    let theirs = Arc::clone(&came);
    thread::spawn(move || {
        let (flag, changed) = &*theirs;
        let guard = flag.lock().expect("never poisoned");
        let waited = changed.wait_timeout_while(guard, CONTROL_DEADLINE, |came| !*came);
        if waited.expect("never poisoned").1.timed_out() {
            eprintln!("powercut-disk: no control connection within {CONTROL_DEADLINE:?}");
            std::process::exit(1);
        }
    });
    let (stream, _) = listener.accept().map_err(ServeError::call("accept"))?;
    let (flag, changed) = &*came;
    *flag.lock().expect("never poisoned") = true;
    changed.notify_all();
    Ok(stream)
}
