//! `powercut-as USER PROGRAM...`: run a program as another user, in a directory that is the user's own.
//!
//! Some applications refuse to run as root. Their user comes with the initramfs, in `/etc/passwd`.

use std::{
    fs, io,
    os::unix::{fs::chown, process::CommandExt},
    process::Command,
};

/// The name that the program goes by in the guest.
pub const NAME: &str = "powercut-as";

const USERS: &str = "/etc/passwd";

/// Hand the current directory, the mount point, to the user and become the program. Returns only if that
/// fails.
pub fn run(argv: &[String]) -> Result<(), String> {
    let [user, program, arguments @ ..] = argv else {
        return Err(format!("usage: {NAME} USER PROGRAM [ARGUMENT...]"));
    };
    let users = fs::read_to_string(USERS).map_err(|e| format!("read {USERS}: {e}"))?;
    let (uid, gid) = ids(&users, user).ok_or_else(|| format!("there is no user {user}"))?;
    let error = own_directory(uid, gid).err().unwrap_or_else(|| {
        Command::new(program)
            .args(arguments)
            .envs([("USER", user), ("LOGNAME", user)])
            .uid(uid)
            .gid(gid)
            .exec()
    });
    Err(format!("{program} as {user}: {error}"))
}

fn own_directory(uid: u32, gid: u32) -> io::Result<()> {
    chown(".", Some(uid), Some(gid))
}

/// The numbers of a user and of the group of that user, by the text of passwd(5).
fn ids(users: &str, user: &str) -> Option<(u32, u32)> {
    let fields = users
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.first() == Some(&user))?;
    Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_the_whole_name() {
        let users = "root:x:0:0::/:/bin/sh\npostgres:x:1017:1018::/tmp:/bin/sh\nbroken:x:1\n";
        assert_eq!(ids(users, "postgres"), Some((1017, 1018)));
        for unknown in ["postgre", "", "broken", "nobody"] {
            assert_eq!(ids(users, unknown), None, "{unknown}");
        }
    }

    #[test]
    fn what_cannot_be_become_is_said() {
        let words = ["no-such-user", "/bin/true"].map(str::to_owned);
        assert_eq!(run(&words).unwrap_err(), "there is no user no-such-user");
        assert!(run(&words[..1]).unwrap_err().starts_with("usage:"));
    }
}
