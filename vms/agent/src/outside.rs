//! What lies outside the folder in which operations run, on a disk that somebody has: no crash may change it.
//!
//! The names are looked at once, on the disk as it was, and then after each recovery. Of a tree with more names than
//! asked for, a part is looked at, drawn by a hash of the path: the same names each time, and new ones are then not
//! noticed. Contents are compared of files drawn in the same way. All that is read counts as metadata to the disk: a
//! state that differs in any of it is another state.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs::File,
    mem::MaybeUninit,
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::{Path, PathBuf},
};

use powercut_protocol::{
    limits::OUTSIDE_CHANGES, FileKind, OutsideChange, OutsideSeen, OutsideSpec,
};
use rustix::{
    fs::{open, readlinkat, statx, AtFlags, FileType, Mode, OFlags, RawDir, StatxFlags, CWD},
    io::Errno,
};
use xxhash_rust::xxh3::{xxh3_64, Xxh3};

use crate::{
    failure::{errno_of, failed, Failure, Named},
    walk::described,
    xattrs::{Reader, Subject},
};

/// Bytes of one read(2).
const CHUNK_BYTES: usize = 1 << 20;
/// Names in one tree: more mean a directory inside itself.
const NAMES_MAX: usize = 4_000_000;

type Names = BTreeSet<Vec<u8>>;

/// One name as it looks. Not times, and not how a directory is stored, which decides its size.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Look {
    kind: FileKind,
    mode: u32,
    owners: (u32, u32),
    links: u32,
    size: u64,
    /// A digest of link target or numbers of the device, and extended attributes.
    attributes: u128,
    /// A digest of the contents, where they are read.
    contents: Option<u128>,
}

impl Look {
    /// What differs, with how it was and is.
    fn changes(&self, now: &Look) -> Vec<(&'static str, String, String)> {
        let owners = |look: &Look| format!("{}:{}", look.owners.0, look.owners.1);
        let of = |look: &Look| {
            [
                ("kind", format!("{:?}", look.kind).to_lowercase()),
                ("permissions", format!("{:o}", look.mode)),
                ("owners", owners(look)),
                ("links", look.links.to_string()),
                ("size", look.size.to_string()),
                (
                    "attributes",
                    format!("digest {:016x}", look.attributes as u64),
                ),
                (
                    "bytes",
                    look.contents.map_or_else(String::new, |digest| {
                        format!("digest {:016x}", digest as u64)
                    }),
                ),
            ]
        };
        let pairs = of(self).into_iter().zip(of(now));
        pairs
            .filter(|(then, now)| then != now)
            .map(|((what, then), (_, now))| (what, then, now))
            .collect()
    }
}

/// A tree as it was, and what is looked at of it.
pub struct Outside {
    spec: OutsideSpec,
    /// All names are looked at, and new ones noticed.
    whole: bool,
    looks: BTreeMap<Vec<u8>, Look>,
}

impl Outside {
    /// Look at the tree as it is now.
    ///
    /// # Errors
    /// Where something of it cannot be read: what cannot be read now cannot be compared later.
    pub fn remember(spec: &OutsideSpec) -> Result<(Self, OutsideSeen), Failure> {
        let mut eye = Eye::new(spec);
        let unread = |(path, errno): (Vec<u8>, Errno)| {
            failed(format!("read {}", String::from_utf8_lossy(&path)))(errno)
        };
        let names = eye.list().map_err(unread)?;
        let mut drawn: Vec<&Vec<u8>> = names.iter().collect();
        drawn.sort_by_key(|path| xxh3_64(path));
        drawn.truncate(spec.names as usize);
        let mut seen = OutsideSeen {
            names: names.len() as u64,
            compared: drawn.len() as u64,
            ..OutsideSeen::default()
        };
        let mut looks = BTreeMap::new();
        for path in drawn {
            let reads = spec.bytes - seen.bytes_read;
            let look = eye
                .look(path, Some(reads))
                .map_err(|errno| unread((path.clone(), errno)))?;
            if look.kind == FileKind::File {
                seen.files += 1;
            }
            if look.contents.is_some() {
                seen.files_read += 1;
                seen.bytes_read += look.size;
            }
            looks.insert(path.clone(), look);
        }
        let whole = looks.len() == names.len();
        let spec = spec.clone();
        Ok((Self { spec, whole, looks }, seen))
    }

    /// What has changed since, by path; as many changes as a reply may have.
    pub fn changes(&self) -> Vec<OutsideChange> {
        let (mut eye, mut found) = (Eye::new(&self.spec), Vec::new());
        let mut tell = |path: &[u8], what: &str, then: String, now: String| {
            if found.len() < OUTSIDE_CHANGES {
                let (path, what) = (path.to_vec(), what.to_owned());
                found.push(OutsideChange {
                    path,
                    what,
                    then,
                    now,
                });
            }
        };
        if self.whole {
            match eye.list() {
                Ok(names) => {
                    for path in names.iter().filter(|path| !self.looks.contains_key(*path)) {
                        tell(path, "existence", "not there".into(), "there".into());
                    }
                }
                Err((path, errno)) => tell(
                    &path,
                    "listing",
                    "can be read".into(),
                    Named(errno).to_string(),
                ),
            }
        }
        for (path, then) in &self.looks {
            match eye.look(path, then.contents.map(|_| then.size)) {
                Ok(now) => {
                    for (what, then, now) in then.changes(&now) {
                        tell(path, what, then, now);
                    }
                }
                Err(Errno::NOENT) => tell(path, "existence", "there".into(), "not there".into()),
                Err(errno) => tell(
                    path,
                    "reading",
                    "can be read".into(),
                    Named(errno).to_string(),
                ),
            }
        }
        found
    }
}

/// Looks at one tree; holds its buffers.
struct Eye<'a> {
    spec: &'a OutsideSpec,
    xattrs: Reader,
    listing: Vec<MaybeUninit<u8>>,
    chunk: Vec<u8>,
    names_max: usize,
}

impl<'a> Eye<'a> {
    fn new(spec: &'a OutsideSpec) -> Self {
        Self {
            spec,
            xattrs: Reader::new(),
            listing: vec![MaybeUninit::uninit(); 32 << 10],
            chunk: vec![0; CHUNK_BYTES],
            names_max: NAMES_MAX,
        }
    }

    fn full(&self, path: &[u8]) -> PathBuf {
        Path::new(&self.spec.root).join(OsStr::from_bytes(path))
    }

    /// Every name but the folder, the root (path "") too; or the directory that cannot be listed.
    fn list(&mut self) -> Result<Names, (Vec<u8>, Errno)> {
        let mut found = Names::from([Vec::new()]);
        let mut left = vec![Vec::new()];
        while let Some(directory) = left.pop() {
            let names = self.names(&directory, self.names_max - found.len());
            for (name, is_directory) in names.map_err(|errno| (directory.clone(), errno))? {
                let mut path = directory.clone();
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(&name);
                if path == self.spec.folder.as_bytes() {
                    continue;
                }
                if is_directory {
                    left.push(path.clone());
                }
                if !found.insert(path) {
                    return Err((directory, Errno::EXIST));
                }
            }
        }
        Ok(found)
    }

    /// The names in a directory, at most so many, and whether each is a directory. A damaged one may never end: then it
    /// has a name twice, or too many.
    fn names(&mut self, directory: &[u8], most: usize) -> Result<BTreeMap<Vec<u8>, bool>, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let place = self.full(directory);
        let file = open(&place, flags, Mode::empty())?;
        let mut names = BTreeMap::new();
        let mut listing = RawDir::new(&file, &mut self.listing);
        while let Some(next) = listing.next() {
            let entry = next?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => kind_of(&place.join(OsStr::from_bytes(name)))?,
                known => known,
            };
            if names.len() == most {
                return Err(Errno::LOOP);
            }
            if (names.insert(name.to_vec(), kind == FileType::Directory)).is_some() {
                return Err(Errno::EXIST);
            }
        }
        Ok(names)
    }

    /// One name. `reads`: how long a file may be whose contents are read; none are without it.
    fn look(&mut self, path: &[u8], reads: Option<u64>) -> Result<Look, Errno> {
        let place = self.full(path);
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let stat = described(&statx(CWD, &place, flags, StatxFlags::BASIC_STATS)?, path);
        let mut attributes = Xxh3::new();
        let subject = Subject::Name(place.as_os_str().as_bytes().to_vec());
        let found = self.xattrs.read(&subject);
        if let Some((_, _, errno)) = found.errors.first() {
            return Err(*errno);
        }
        for xattr in &found.xattrs {
            for part in [xattr.name.as_bytes(), xattr.value.as_slice()] {
                attributes.update(&(part.len() as u64).to_le_bytes());
                attributes.update(part);
            }
        }
        if stat.kind == FileKind::Symlink {
            attributes.update(readlinkat(CWD, &place, Vec::new())?.as_bytes());
        }
        attributes.update(&stat.target);
        let is_read = stat.kind == FileKind::File && reads.is_some_and(|most| stat.size <= most);
        Ok(Look {
            kind: stat.kind,
            mode: stat.mode,
            owners: (stat.uid, stat.gid),
            links: stat.links,
            size: if stat.kind == FileKind::Directory {
                0
            } else {
                stat.size
            },
            attributes: attributes.digest128(),
            contents: is_read.then(|| self.digest(&place)).transpose()?,
        })
    }

    fn digest(&mut self, place: &Path) -> Result<u128, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(open(place, flags, Mode::empty())?);
        let (mut digest, mut at) = (Xxh3::new(), 0);
        loop {
            let read = file
                .read_at(&mut self.chunk, at)
                .map_err(|error| errno_of(&error))?;
            if read == 0 {
                return Ok(digest.digest128());
            }
            digest.update(&self.chunk[..read]);
            at += read as u64;
        }
    }
}

fn kind_of(place: &Path) -> Result<FileType, Errno> {
    let stat = statx(CWD, place, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE)?;
    Ok(FileType::from_raw_mode(stat.stx_mode.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{makedev, mknodat};
    use std::{fs, os::unix::fs::symlink, os::unix::fs::PermissionsExt};

    /// A tree that goes when the test ends.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let root =
                std::env::temp_dir().join(format!("powercut-out-{name}-{}", std::process::id()));
            for folder in ["etc", "ours"] {
                fs::create_dir_all(root.join(folder)).unwrap();
            }
            for (path, text) in [
                ("etc/hosts", "localhost"),
                ("etc/fstab", "none"),
                ("ours/f", "x"),
            ] {
                fs::write(root.join(path), text).unwrap();
            }
            symlink("hosts", root.join("etc/link")).unwrap();
            Self(root)
        }

        fn spec(&self, names: u32, bytes: u64) -> OutsideSpec {
            OutsideSpec {
                root: self.0.to_str().unwrap().to_owned(),
                folder: "ours".to_owned(),
                names,
                bytes,
            }
        }

        fn at(&self, path: &str) -> PathBuf {
            self.0.join(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn told(outside: &Outside) -> Vec<String> {
        let changes = outside.changes();
        let line = |c: &OutsideChange| {
            format!(
                "{} {}: {} {}",
                String::from_utf8_lossy(&c.path),
                c.what,
                c.then,
                c.now
            )
        };
        changes.iter().map(line).collect()
    }

    #[test]
    fn every_change_outside_the_folder_is_told_and_none_inside() {
        let scratch = Scratch::new("all");
        let (outside, seen) = Outside::remember(&scratch.spec(100, 1 << 20)).unwrap();
        let counted = (
            seen.names,
            seen.compared,
            seen.files,
            seen.files_read,
            seen.bytes_read,
        );
        assert_eq!(counted, (5, 5, 2, 2, 13));
        fs::write(scratch.at("ours/g"), "new").unwrap();
        fs::remove_file(scratch.at("ours/f")).unwrap();
        assert_eq!(told(&outside), [""; 0]);
        fs::write(scratch.at("etc/hosts"), "locaLhost").unwrap();
        fs::set_permissions(scratch.at("etc/fstab"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::remove_file(scratch.at("etc/link")).unwrap();
        fs::write(scratch.at("etc/new"), "").unwrap();
        let lines = told(&outside);
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert_eq!(lines[0], "etc/new existence: not there there");
        assert_eq!(lines[1], "etc/fstab permissions: 644 600");
        assert!(
            lines[2].starts_with("etc/hosts bytes: digest "),
            "{lines:?}"
        );
        assert_eq!(lines[3], "etc/link existence: there not there");
    }

    #[test]
    fn a_link_that_leads_elsewhere_and_a_file_of_another_size_are_told() {
        let scratch = Scratch::new("link");
        let (outside, _) = Outside::remember(&scratch.spec(100, 0)).unwrap();
        fs::remove_file(scratch.at("etc/link")).unwrap();
        symlink("fstab", scratch.at("etc/link")).unwrap();
        fs::write(scratch.at("etc/fstab"), "none, really").unwrap();
        let lines = told(&outside);
        assert_eq!(lines[0], "etc/fstab size: 4 12");
        assert!(
            lines[1].starts_with("etc/link attributes: digest "),
            "{lines:?}"
        );
        assert_eq!(lines.len(), 2);
    }

    /// A directory was listed to its end before its names were counted, and one that is damaged has none.
    #[test]
    fn no_more_of_a_directory_is_listed_than_a_tree_may_have() {
        let scratch = Scratch::new("endless");
        let spec = scratch.spec(100, 0);
        let mut eye = Eye::new(&spec);
        eye.names_max = 6; // with the root and the folder
        assert_eq!(eye.list().unwrap().len(), 5);
        assert_eq!(eye.names(b"etc", 3).unwrap().len(), 3);
        assert_eq!(eye.names(b"etc", 2), Err(Errno::LOOP));
        eye.names_max = 4;
        assert_eq!(eye.list(), Err((b"etc".to_vec(), Errno::LOOP)));
    }

    #[test]
    fn a_device_of_other_numbers_is_told() {
        let scratch = Scratch::new("device");
        let make = |minor| {
            let (mode, device) = (Mode::from_raw_mode(0o644), makedev(1, minor));
            let node = scratch.at("etc/null");
            mknodat(CWD, node, FileType::CharacterDevice, mode, device)
        };
        if make(3) == Err(Errno::PERM) {
            return; // only root makes devices
        }
        let (outside, _) = Outside::remember(&scratch.spec(100, 0)).unwrap();
        assert_eq!(told(&outside), [""; 0]);
        fs::remove_file(scratch.at("etc/null")).unwrap();
        make(5).unwrap();
        let lines = told(&outside);
        assert!(
            lines[0].starts_with("etc/null attributes: digest "),
            "{lines:?}"
        );
        assert_eq!(lines.len(), 1);
    }

    /// A file that is too long to be read is compared by what stat(2) shows.
    #[test]
    fn of_a_larger_tree_a_part_is_compared_and_no_more_than_asked_for_is_read() {
        let scratch = Scratch::new("part");
        let (outside, seen) = Outside::remember(&scratch.spec(3, 5)).unwrap();
        assert_eq!((seen.names, seen.compared), (5, 3));
        assert!(seen.bytes_read <= 5 && seen.files_read <= 1, "{seen:?}");
        let drawn: Vec<_> = outside.looks.keys().cloned().collect();
        let (again, _) = Outside::remember(&scratch.spec(3, 5)).unwrap();
        assert_eq!(drawn, again.looks.keys().cloned().collect::<Vec<_>>());
        fs::write(scratch.at("etc/new"), "").unwrap();
        assert_eq!(told(&outside), [""; 0], "new names are not noticed");
    }

    #[test]
    fn a_tree_that_is_not_there_is_an_error() {
        let spec = OutsideSpec {
            root: "/no/such/tree".to_owned(),
            names: 1,
            ..OutsideSpec::default()
        };
        assert!(Outside::remember(&spec).is_err());
    }
}
