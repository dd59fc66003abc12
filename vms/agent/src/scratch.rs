//! What a check leaves in /tmp, which is the home of every program, as well: the next check must not meet it.

use std::{collections::HashSet, ffi::OsString, fs, path::Path};

use rustix::process::Pid;

use crate::processes;

const SCRATCH: &str = "/tmp";
/// With which the names begin of what this program keeps there.
const OURS: &str = "powercut-";

/// The names that were there before a program.
pub struct Scratch(HashSet<OsString>);

impl Scratch {
    pub fn before() -> Self {
        Self(names(Path::new(SCRATCH)))
    }

    /// Kill all that the program left running, but what ran before it, and remove the names that it left. Only for
    /// PID 1: elsewhere other programs use /tmp as well.
    pub fn leave(&self, spared: &HashSet<Pid>) {
        processes::kill_all_but(spared);
        if processes::is_first() {
            remove_new(Path::new(SCRATCH), &self.0);
        }
    }
}

fn names(directory: &Path) -> HashSet<OsString> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).collect()
}

/// What cannot be removed stays: the next program is told nothing wrong of files for that.
fn remove_new(directory: &Path, before: &HashSet<OsString>) {
    for name in names(directory) {
        if before.contains(&name) || name.to_string_lossy().starts_with(OURS) {
            continue;
        }
        let path = directory.join(name);
        let _ = match fs::symlink_metadata(&path) {
            Ok(seen) if seen.is_dir() => fs::remove_dir_all(&path),
            _ => fs::remove_file(&path),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_new_goes_and_nothing_behind_a_link_does() {
        let folder = std::env::temp_dir().join(format!("powercut-scratch-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("kept")).unwrap();
        fs::write(folder.join("kept/file"), "").unwrap();
        let before = names(&folder);
        fs::create_dir_all(folder.join("new/below")).unwrap();
        fs::write(folder.join("powercut-notes"), "").unwrap();
        fs::write(folder.join("file"), "").unwrap();
        symlink("kept", folder.join("link")).unwrap();
        remove_new(&folder, &before);
        let left = names(&folder);
        assert_eq!(
            left,
            HashSet::from(["kept".into(), "powercut-notes".into()])
        );
        assert!(folder.join("kept/file").exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
