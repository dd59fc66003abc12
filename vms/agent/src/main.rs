//! The agent: PID 1 of a guest. It does what the host asks for (see `powercut-protocol`) and knows
//! nothing of crash states or promises.
//!
//! It stands alone in an initramfs with empty `/dev /proc /sys /mnt /tmp`, so it is linked statically:
//!
//! ```sh
//! RUSTFLAGS='-C target-feature=+crt-static' \
//!     cargo build --release -p powercut-agent --target x86_64-unknown-linux-gnu
//! ```

use std::{
    ffi::OsString,
    fs::File,
    io::{self, BufReader, Write},
};

use powercut_protocol::{
    chain, receive_in_pieces, send, AgentReply, AgentRequest, FrameError, ModuleError, MORE,
};
use rustix::{
    io::Errno,
    process::getpid,
    system::{reboot, RebootCommand},
};

mod ack;
mod agent;
mod boot;
mod calls;
mod classify;
mod contained;
mod contents;
mod copy;
mod dm;
mod events;
mod extras;
mod failure;
mod files;
mod frames;
mod image;
mod kmsg;
mod logs;
mod mounts;
mod neighbour;
mod operations;
mod outside;
mod parts;
mod paths;
mod phases;
mod printed;
mod processes;
mod program;
mod requests;
mod root;
mod scratch;
mod script;
mod shell;
mod stack;
mod trees;
mod usable;
mod user;
mod walk;
mod watch;
mod whole;
mod xattrs;

use agent::Agent;
use boot::Settings;
use failure::{errno_of, failed, Failure};

/// Names the modules to load, one path a line, in order.
const MODULE_LIST: &str = "/modules";

fn main() {
    if !getpid().is_init() {
        std::process::exit(match words(std::env::args_os()) {
            Ok(argv) => tool(&argv),
            Err(why) => ended(&[], Err(why)),
        });
    }
    std::panic::set_hook(Box::new(|panic| {
        say(&format!("defect: {panic}"));
        // A panic of PID 1 would look like a panic of the kernel under test.
        power_off();
    }));
    boot::mount_kernel_file_systems();
    if let Err(failure) = Settings::of_kernel().and_then(|settings| live(&settings)) {
        say(&failure.to_string());
    }
    power_off();
}

/// Do what the kernel's command line asks for, to the end.
fn live(settings: &Settings) -> Result<(), Failure> {
    files::raise_file_limit();
    let module_errors = boot::load_modules(MODULE_LIST);
    boot::raise_loopback();
    if settings.shell {
        shell::run(settings, &module_errors).map_err(|e| failed("shell")(errno_of(&e)))
    } else if settings.root.is_empty() {
        boot::watch_for_hangs();
        boot::mount_debugfs();
        watch::begin(settings.between_looks);
        match &settings.script {
            Some((device, bytes)) => {
                script::perform(&settings.port, device, *bytes, Agent::new()?, module_errors)
            }
            None => serve(&settings.port, Agent::new(), module_errors),
        }
    } else {
        root::enter(&settings.root)?;
        serve(&settings.port, Agent::with_tools(), module_errors)
    }
}

/// The words of a command line. One that is not text would end the program by a panic, whose exit code may be one that
/// a check gives.
fn words(all: impl Iterator<Item = OsString>) -> Result<Vec<String>, String> {
    all.map(OsString::into_string)
        .collect::<Result<_, _>>()
        .map_err(|word| format!("{word:?} of the command line is not UTF-8"))
}

/// The programs that this binary is under other names, for workloads. Exits with 125 if it could not do
/// its work, so that this is not mistaken for a check's result.
fn tool(argv: &[String]) -> i32 {
    let name = argv.first().and_then(|path| path.rsplit('/').next());
    let done = match name {
        Some(ack::NAME) => ack::run(&argv[1..]),
        Some(name) if calls::AHEAD.contains(&name) => return traced(argv, calls::Noted::Nothing),
        Some(copy::NAME) => copy::run(&argv[1..]),
        Some(image::NAME) => image::run(&argv[1..]),
        Some(user::NAME) => user::run(&argv[1..]),
        _ if argv.get(1).is_some_and(|word| word == contained::NAME) => contained::run(&argv[2..]),
        _ => match argv.get(1).and_then(|word| calls::how(word)) {
            Some(noted) => return traced(&argv[2..], noted),
            None => Err("it is the first process of a guest and does nothing elsewhere".to_owned()),
        },
    };
    ended(argv, done.map(|()| 0))
}

/// A program that is traced: its exit code.
fn traced(argv: &[String], noted: calls::Noted) -> i32 {
    ended(argv, calls::run(argv, noted))
}

fn ended(argv: &[String], done: Result<i32, String>) -> i32 {
    done.unwrap_or_else(|why| {
        let name = argv.first().and_then(|path| path.rsplit('/').next());
        eprintln!("{}: {why}", name.unwrap_or("powercut-agent"));
        125
    })
}

/// Answer the host until it closes the channel.
fn serve(
    port: &str,
    agent: Result<Agent, Failure>,
    module_errors: Vec<ModuleError>,
) -> Result<(), Failure> {
    let mut agent = agent?;
    let channel = boot::open_channel(port)?;
    let hello = agent.hello(module_errors);
    serve_on(&channel, &hello, |request| agent.answer(request))?;
    agent.release();
    Ok(())
}

/// Greet the host, and answer it until it closes the channel.
fn serve_on(
    channel: &File,
    hello: &AgentReply,
    mut answer: impl FnMut(AgentRequest) -> AgentReply,
) -> Result<(), Failure> {
    let mut requests = BufReader::new(channel);
    let mut replies = channel;
    reply(&mut replies, hello)?;
    loop {
        let answered = match receive_in_pieces(&mut requests, || (&*channel).write_all(&[MORE])) {
            Ok(request) => answer(request),
            Err(error) if error.is_in_step() => AgentReply::Failed {
                what: format!("not a request: {}", chain(&error)),
                errno: Errno::PROTO.raw_os_error(),
            },
            // The host has gone (a tty reports that as EIO), or the stream is out of step for good.
            Err(_) => return Ok(()),
        };
        reply(&mut replies, &answered)?;
    }
}

/// Send a reply. One that is too long for a frame is reported as a failure instead.
fn reply(channel: &mut &File, answer: &AgentReply) -> Result<(), Failure> {
    match send(channel, answer) {
        Err(error @ FrameError::TooLong { .. }) => {
            let what = format!("the reply is too long: {error}");
            let errno = Errno::MSGSIZE.raw_os_error();
            Ok(send(channel, &AgentReply::Failed { what, errno })?)
        }
        other => Ok(other?),
    }
}

/// Write to the kernel's log, and so to the console; to standard error if there is no log.
fn say(text: &str) {
    let line = format!("powercut-agent: {text}\n");
    let logged = File::options()
        .write(true)
        .open("/dev/kmsg")
        // Priority 3, an error: shown on a `quiet` console as well.
        .and_then(|mut log| log.write_all(format!("<3>{line}").as_bytes()));
    if logged.is_err() {
        let _ = io::stderr().write_all(line.as_bytes());
    }
}

fn power_off() -> ! {
    // Fails only without the privilege, which PID 1 has; then all that is left is to exit.
    let _ = reboot(RebootCommand::PowerOff);
    std::process::exit(1)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn a_word_that_is_not_text_is_an_error_and_no_panic() {
        let all = |last: &[u8]| [OsString::from("ack"), OsString::from_vec(last.to_vec())];
        assert_eq!(words(all(b"x").into_iter()).unwrap(), ["ack", "x"]);
        let why = words(all(b"caf\xe9").into_iter()).unwrap_err();
        assert_eq!(why, r#""caf\xE9" of the command line is not UTF-8"#);
        assert_eq!(ended(&[], Err(why)), 125);
    }
}
