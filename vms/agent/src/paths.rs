//! Where the paths of a traced program lead: as its own calls follow them, from its root and its directory, and through
//! its links in /proc. To this process, /proc/self is another one.

use std::{
    cell::OnceCell,
    ffi::{OsStr, OsString},
    fs::{self, Metadata},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Component, Path, PathBuf},
};

use libc::pid_t;

/// Links that one path may lead through (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// Where a path leads that a thread names from `start`, by a path of this process's own. `in_root`: `start` is its
/// root as well (openat2(2), RESOLVE_IN_ROOT). `follows`: a link that is the last part is followed, too. What is not
/// there is where it would be made.
pub fn leads(task: pid_t, start: &str, name: &[u8], in_root: bool, follows: bool) -> PathBuf {
    let name = Path::new(OsStr::from_bytes(name));
    let of_start = || behind(&PathBuf::from(format!("/proc/{task}/{start}")));
    let root = OnceCell::new();
    let root = || {
        root.get_or_init(|| match in_root {
            true => of_start(),
            false => behind(&PathBuf::from(format!("/proc/{task}/root"))),
        })
    };
    let mut at = match name.is_absolute() {
        true => root().clone(),
        false => of_start(),
    };
    let mut left = parts(name);
    let mut links = 0;
    while let Some(part) = left.pop() {
        if part == "/" {
            at.clone_from(root());
            continue;
        }
        if part == ".." {
            if at != *root() {
                at.pop();
            }
            continue;
        }
        let next = of_thread(at.join(part), task);
        // Reading a link sets its access time, so none is read that the call does not follow.
        let is_followed = (follows || !left.is_empty()) && links < LINKS_MAX;
        let target = is_followed.then(|| fs::read_link(&next).ok()).flatten();
        links += usize::from(target.is_some());
        match target {
            Some(_) if is_of_kernel(&next) => at = behind(&next),
            Some(target) => left.extend(parts(&target)),
            None => at = next,
        }
    }
    at
}

/// The parts of a path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let parts = path
        .components()
        .filter(|part| *part != Component::CurDir)
        .map(|part| part.as_os_str().to_owned());
    parts.rev().collect()
}

/// `/proc/self` and `/proc/thread-self` of a thread.
fn of_thread(path: PathBuf, task: pid_t) -> PathBuf {
    match path.as_os_str().as_bytes() {
        b"/proc/self" | b"/proc/thread-self" => PathBuf::from(format!("/proc/{task}")),
        _ => path,
    }
}

/// What the kernel calls that to which one of its links in /proc leads; none for any other path.
pub fn text(link: &Path) -> Option<PathBuf> {
    is_of_kernel(link).then(|| fs::read_link(link).ok())?
}

/// Whether a link leads to a file that some process has, whatever its text says: proc_pid_fd(5), proc_pid_cwd(5).
fn is_of_kernel(link: &Path) -> bool {
    let mut names = link.iter().rev();
    let name = names.next().unwrap_or_default();
    let is_open = names.next().is_some_and(|folder| folder == "fd");
    let is_other = ["cwd", "root", "exe"].iter().any(|other| name == *other);
    link.starts_with("/proc") && (is_open || is_other)
}

/// The path of what such a link leads to; the link itself, if that has no name, or none in this process's sight.
pub fn behind(link: &Path) -> PathBuf {
    let same = |a: &Metadata, b: &Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    let named = fs::read_link(link).ok().filter(|path| {
        let (there, held) = (fs::symlink_metadata(path), fs::metadata(link));
        there.is_ok_and(|there| held.is_ok_and(|held| same(&there, &held)))
    });
    named.unwrap_or_else(|| link.to_owned())
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        os::{fd::AsRawFd, unix::fs::symlink},
    };

    use super::*;

    fn own() -> pid_t {
        std::process::id() as pid_t
    }

    fn scratch(name: &str) -> PathBuf {
        let top = std::env::temp_dir().join(format!("powercut-{name}-{}", std::process::id()));
        fs::create_dir_all(top.join("real")).unwrap();
        fs::canonicalize(top).unwrap()
    }

    /// Where a thread of its own is led: its links are not those of the process.
    fn led(name: &Path, follows: bool) -> PathBuf {
        leads(own(), "cwd", name.as_os_str().as_bytes(), false, follows)
    }

    /// They were those of the tracer: what a program emptied by such a name was not noted.
    #[test]
    fn a_descriptor_that_is_named_in_proc_is_the_programs() {
        let top = scratch("named");
        let file = File::create(top.join("f")).unwrap();
        let folder = File::open(&top).unwrap();
        let (number, inside) = (file.as_raw_fd(), folder.as_raw_fd());
        for name in ["/proc/self/fd", "/proc/thread-self/fd", "/dev/fd"] {
            assert_eq!(
                led(Path::new(&format!("{name}/{number}")), true),
                top.join("f")
            );
            let within = format!("{name}/{inside}/real/../g");
            assert_eq!(led(Path::new(&within), false), top.join("g"));
        }
        let cwd = std::env::current_dir().unwrap();
        assert_eq!(led(Path::new("/proc/self/cwd/f"), true), cwd.join("f"));
        assert_eq!(led(Path::new("f"), true), cwd.join("f"));
        fs::remove_file(top.join("f")).unwrap();
        fs::write(top.join("f (deleted)"), "another").unwrap();
        let held = PathBuf::from(format!("/proc/{}/fd/{number}", own()));
        assert_eq!(
            led(Path::new(&format!("/proc/self/fd/{number}")), true),
            held
        );
        fs::remove_dir_all(&top).unwrap();
    }

    /// A file that was made through a link from elsewhere was made by no call.
    #[test]
    fn a_link_that_leads_nowhere_leads_to_what_would_be_made() {
        let top = scratch("nowhere");
        symlink(top.join("real/f"), top.join("link")).unwrap();
        symlink("link", top.join("second")).unwrap();
        symlink("round", top.join("round")).unwrap();
        assert_eq!(led(&top.join("second"), true), top.join("real/f"));
        assert_eq!(led(&top.join("second"), false), top.join("second"));
        assert_eq!(led(&top.join("absent/./g"), true), top.join("absent/g"));
        led(&top.join("round"), true);
        fs::remove_dir_all(&top).unwrap();
    }

    /// Each part of a path was counted as a link: the last one, a link, was not followed.
    #[test]
    fn a_link_is_followed_however_deep_it_is() {
        let top = scratch("many-parts");
        let deep = top.join(["a"; LINKS_MAX + 5].join("/"));
        fs::create_dir_all(&deep).unwrap();
        symlink(top.join("real/f"), deep.join("link")).unwrap();
        assert_eq!(led(&deep.join("link"), true), top.join("real/f"));
        fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn a_path_in_another_root_does_not_leave_it() {
        let top = scratch("root");
        symlink("/f", top.join("link")).unwrap();
        let folder = File::open(&top).unwrap();
        let start = format!("fd/{}", folder.as_raw_fd());
        let in_root = |name: &str| leads(own(), &start, name.as_bytes(), true, true);
        for name in ["/f", "f", "../../f", "link", "real/../../f"] {
            assert_eq!(in_root(name), top.join("f"), "{name}");
        }
        fs::remove_dir_all(&top).unwrap();
    }
}
