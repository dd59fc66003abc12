//! The device as memory that the guest's kernel sees: for the state shown, where each block's bytes lie.
//!
//! A driver in the kernels that we build (`vms/umldisk`) copies from there without a message, and notes each request
//! in a ring. The ring is read when the host asks for something, and each of its entries counts as the same request
//! over vhost-user does: what was read, what was written, the counters. So everything else here knows nothing of it.

use std::{fs::File, io, os::unix::ffi::OsStrExt, path::Path};

use crate::{
    device::Device,
    error::DiskError,
    index::Source,
    memory::{Asked, Memory, Place},
    recipe::Recipe,
    Answer, BlockMap, BLOCK_BYTES, BLOCK_SECTORS, SECTOR_BYTES,
};

/// `enum powercut_what` of `vms/umldisk/disk.h`.
pub mod what {
    pub const READ: u32 = 1;
    pub const WRITE: u32 = 2;
    pub const ZEROED: u32 = 3;
    pub const FLUSH: u32 = 4;
    pub const PHASE: u32 = 5;
}

/// What is shown to a guest that shares memory.
pub struct Window {
    /// Empty until a device is opened.
    file: File,
    shown: Option<Shown>,
}

struct Shown {
    memory: Memory,
    /// The state whose blocks the table names.
    recipe: Recipe,
    /// Blocks that the guest has written since they were last published.
    written: Vec<u64>,
    /// Entries of the ring that were taken, and requests refused that were counted.
    seen: u64,
    refused: u64,
    /// Blocks of the arena that are ours, by the block of the device.
    own: BlockMap<Place>,
    /// What else happens while a block's place is named.
    #[cfg(test)]
    meanwhile: fn(&Memory),
}

impl Window {
    /// Without a device.
    ///
    /// # Errors
    /// If the host has no memory for it.
    pub fn new() -> io::Result<Self> {
        Ok(Window {
            file: Memory::file()?,
            shown: None,
        })
    }

    /// The number of the shared file among those of this process.
    #[must_use]
    pub fn descriptor(&self) -> i32 {
        Memory::descriptor(&self.file)
    }

    /// Show another device, as it was opened.
    ///
    /// # Errors
    /// If the host has no memory for it, or the guest cannot be told.
    pub fn open(&mut self, device: &Device, base: &Path, log: Option<&Path>) -> Answer<()> {
        let sectors = device.view().sectors();
        let unshared = |source| DiskError::Shared { source };
        let before = self.shown.take().filter(|s| s.memory.sectors() == sectors);
        let memory = match before {
            Some(shown) => shown.memory,
            None => {
                let file = self.file.try_clone().map_err(unshared)?;
                Memory::of(file, sectors).map_err(unshared)?
            }
        };
        memory.quiet().ok_or(DiskError::NotQuiet)?;
        let log = log.map_or(&b""[..], |path| path.as_os_str().as_bytes());
        let base = base.as_os_str().as_bytes();
        memory.name_files(base, log).map_err(unshared)?;
        memory.begin_visit().map_err(unshared)?;
        self.shown = Some(Shown {
            memory,
            recipe: Recipe::default(),
            written: Vec::new(),
            seen: 0,
            refused: 0,
            own: BlockMap::default(),
            #[cfg(test)]
            meanwhile: |_| (),
        });
        self.publish(device)
    }

    /// Let the guest see the device as it is now: after a switch, or a return to what it was. The guest's requests up
    /// to here must have been taken.
    ///
    /// # Errors
    /// If the guest asked for something meanwhile, or there is no room.
    pub fn publish(&mut self, device: &Device) -> Answer<()> {
        self.shown
            .as_mut()
            .map_or(Ok(()), |shown| shown.publish(device))
    }

    /// Let the device know what the guest has done since this was called last.
    pub fn take(&mut self, device: &mut Device) {
        if let Some(shown) = &mut self.shown {
            shown.take(device);
        }
    }
}

impl Shown {
    fn publish(&mut self, device: &Device) -> Answer<()> {
        let view = device.view();
        let begun = self.memory.quiet().ok_or(DiskError::NotQuiet)?;
        let mut stale = view.index.blocks_between(&self.recipe, &view.recipe);
        stale.append(&mut self.written);
        stale.sort_unstable();
        stale.dedup();
        for block in stale {
            self.place(device, block)?;
        }
        self.recipe = view.recipe.clone();
        self.written = view.overlay.blocks().collect();
        if self.written.is_empty() {
            let unshared = |source| DiskError::Shared { source };
            self.memory.begin_visit().map_err(unshared)?;
            (self.seen, self.refused) = (0, 0);
        }
        if self.memory.quiet() != Some(begun) {
            return Err(DiskError::NotQuiet);
        }
        Ok(())
    }

    /// Name the place of a block, which is made if its parts lie in several.
    fn place(&mut self, device: &Device, block: u64) -> Answer<()> {
        let view = device.view();
        let first = block * BLOCK_SECTORS;
        let count = BLOCK_SECTORS.min(view.sectors() - first);
        let whole = match view.overlay.written(block) {
            0 => one_place((first..first + count).map(|s| view.index.source(&view.recipe, s))),
            _ => None,
        };
        let place = match whole {
            Some(place) => place,
            None => {
                let place = self.own_place(block)?;
                let mut content = [0; BLOCK_BYTES];
                let content = &mut content[..count as usize * SECTOR_BYTES];
                view.read(first, content);
                if let Place::Arena(number) = place {
                    self.memory.write_arena(number, content);
                }
                place
            }
        };
        self.memory.put(block, place);
        #[cfg(test)]
        (self.meanwhile)(&self.memory);
        Ok(())
    }

    fn own_place(&mut self, block: u64) -> Answer<Place> {
        let next = self.own.len() as u64;
        match self.own.get(&block) {
            Some(place) => Ok(*place),
            None => {
                let place = Memory::own_place(next).ok_or(DiskError::ArenaFull)?;
                self.own.insert(block, place);
                Ok(place)
            }
        }
    }

    fn take(&mut self, device: &mut Device) {
        let (asked, refused) = self.memory.asked_since(self.seen);
        self.seen += asked.len() as u64;
        for request in asked {
            if !self.apply(device, request) {
                device.stats.errors += 1;
            }
        }
        device.stats.errors += refused.saturating_sub(self.refused);
        self.refused = refused;
    }

    /// Count one request as if it had come by vhost-user. Returns whether it was one that may be made, and succeeded.
    fn apply(&mut self, device: &mut Device, request: Asked) -> bool {
        let Asked {
            sector,
            sectors,
            what,
        } = request;
        match what {
            what::FLUSH => device.stats.flushes += 1,
            what::PHASE => device.next_phase(),
            _ if !device.view().holds(sector, sectors) => return false,
            what::READ => {
                device.stats.reads += 1;
                device.guest_looks(sector, sectors);
            }
            what::WRITE => {
                device.stats.writes += 1;
                return self.written(device, sector, sectors);
            }
            what::ZEROED => {
                device.stats.discards += 1;
                self.note_written(sector, sectors);
                device.zero(sector, sectors);
            }
            _ => return false,
        }
        true
    }

    /// Copy what the guest wrote. It may have written there again since: that comes later in the ring.
    fn written(&mut self, device: &mut Device, sector: u64, sectors: u64) -> bool {
        self.note_written(sector, sectors);
        let mut content = [0; BLOCK_BYTES];
        for (block, first, count) in by_block(sector, sectors) {
            let from = (first - block * BLOCK_SECTORS) as usize * SECTOR_BYTES;
            let part = &mut content[..count as usize * SECTOR_BYTES];
            match self.memory.place(block) {
                Place::Zero => part.fill(0),
                Place::Arena(number) if self.memory.read_arena(number, from, part) => {}
                _ => return false,
            }
            device.write(first, part);
        }
        true
    }

    fn note_written(&mut self, sector: u64, sectors: u64) {
        self.written
            .extend(sector / BLOCK_SECTORS..(sector + sectors).div_ceil(BLOCK_SECTORS));
    }
}

/// The stretches of `sectors` sectors from `sector` on that lie in one block each: block, first sector, count.
fn by_block(sector: u64, sectors: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    let end = sector + sectors;
    (sector / BLOCK_SECTORS..end.div_ceil(BLOCK_SECTORS)).map(move |block| {
        let first = sector.max(block * BLOCK_SECTORS);
        let last = end.min((block + 1) * BLOCK_SECTORS);
        (block, first, last - first)
    })
}

/// The place of a whole block, given those of its sectors; None if they do not follow each other.
fn one_place(mut sectors: impl Iterator<Item = Source>) -> Option<Place> {
    let first = sectors.next()?;
    let mut number = 0;
    let follows = sectors.all(|source| {
        number += 1;
        match (first, source) {
            (Source::Base, Source::Base) | (Source::Zero, Source::Zero) => true,
            (Source::Log(a), Source::Log(b)) => b == a + number,
            _ => false,
        }
    });
    follows.then_some(match first {
        Source::Base => Place::Base,
        Source::Zero => Place::Zero,
        Source::Log(sector) => Place::Log(sector),
    })
}

#[cfg(test)]
mod tests {
    use powercut_protocol::State;

    use super::*;
    use crate::{
        log::build::{log_bytes, Scratch, Step},
        memory::tests::Guest,
        properties::{Change, Random, SECTORS},
    };

    /// One device twice: as vhost-user serves it, and as memory.
    struct Both {
        plain: Device,
        shared: Device,
        window: Window,
        base: Vec<u8>,
        log: Vec<u8>,
        _files: [Scratch; 2],
    }

    impl Both {
        fn of(base: Vec<u8>, log: &[Change]) -> Self {
            let steps: Vec<Step> = log.iter().map(Change::step).collect();
            let log = log_bytes(&steps);
            let files = [Scratch::new(&base), Scratch::new(&log)];
            let open = || Device::open(&files[0].0, Some(&files[1].0), None).unwrap();
            let (plain, shared) = (open(), open());
            let mut window = Window::new().unwrap();
            window
                .open(&shared, &files[0].0, Some(&files[1].0))
                .unwrap();
            Both {
                plain,
                shared,
                window,
                base,
                log,
                _files: files,
            }
        }

        fn guest(&self) -> Guest<'_> {
            Guest {
                memory: &self.window.shown.as_ref().unwrap().memory,
                base: &self.base,
                log: &self.log,
            }
        }

        /// As the control connection does it.
        fn host<T>(&mut self, shows: bool, ask: impl Fn(&mut Device) -> T) -> (T, T) {
            self.window.take(&mut self.shared);
            let both = (ask(&mut self.plain), ask(&mut self.shared));
            if shows {
                self.window.publish(&self.shared).unwrap();
            }
            both
        }

        fn switch(&mut self, state: &State) {
            self.host(true, |device| device.switch(state).unwrap());
        }

        fn guest_does(&mut self, random: &mut Random) {
            let (sector, sectors) = random.extent();
            match random.below(8) {
                0 => {
                    self.plain.stats.discards += 1;
                    self.plain.zero(sector, sectors);
                    self.guest().zero(sector, sectors);
                }
                1 | 2 => {
                    let data = random.letters(sectors);
                    self.plain.stats.writes += 1;
                    self.plain.write(sector, &data);
                    self.guest().write(sector, &data);
                }
                3 => {
                    self.plain.next_phase();
                    self.guest().ask(what::PHASE, 0, 0);
                }
                4 => {
                    self.plain.stats.flushes += 1;
                    self.guest().ask(what::FLUSH, u64::MAX, 0);
                }
                _ => {
                    let mut seen = vec![0; sectors as usize * SECTOR_BYTES];
                    self.plain.stats.reads += 1;
                    self.plain.guest_read(sector, &mut seen);
                    assert_eq!(self.guest().read(sector, sectors), seen);
                }
            }
        }

        fn host_does(&mut self, random: &mut Random, log: &[Change]) {
            match random.below(5) {
                0 => {
                    let state = random.state(log);
                    self.switch(&state);
                }
                1 => {
                    self.host(false, Device::snapshot);
                }
                2 => {
                    let (plain, shared) = self.host(true, |device| device.roll_back().ok());
                    assert_eq!(plain, shared);
                }
                _ => {
                    let block = random.below(SECTORS / BLOCK_SECTORS);
                    self.host(false, |device| device.also_read(&[block]).unwrap());
                }
            }
            let told = |device: &mut Device| {
                let (read, counted) = (device.was_read().ok(), device.counted());
                (read, counted, device.view().hash())
            };
            let (plain, shared) = self.host(false, told);
            assert_eq!(plain, shared);
        }
    }

    #[test]
    fn memory_shows_and_tells_what_vhost_user_does() {
        for seed in 0..600 {
            let mut random = Random(seed);
            let base = random.letters(SECTORS);
            let log: Vec<Change> = (0..random.below(12)).map(|_| random.change()).collect();
            let mut both = Both::of(base, &log);
            for _ in 0..40 {
                match random.below(5) {
                    0 => both.host_does(&mut random, &log),
                    _ => both.guest_does(&mut random),
                }
            }
        }
    }

    fn small() -> Both {
        Both::of(vec![b'.'; SECTORS as usize * SECTOR_BYTES], &[])
    }

    /// A guest that is just writing would write to the next state.
    #[test]
    fn no_state_is_shown_to_a_guest_that_asks_for_something() {
        let mut both = small();
        both.guest().begin();
        assert!(matches!(
            both.window.publish(&both.shared),
            Err(DiskError::NotQuiet)
        ));
        both.guest().end();
        both.window.publish(&both.shared).unwrap();
    }

    /// A guest that asked for something and was answered in between saw parts of two states.
    #[test]
    fn a_state_is_refused_if_the_guest_asked_for_something_while_it_was_put_there() {
        let log = [Change::Write(0, vec![b'X'; 512])];
        let mut both = Both::of(vec![b'.'; SECTORS as usize * SECTOR_BYTES], &log);
        let state = State {
            prefix: 1,
            ..State::default()
        };
        let reads = |memory: &Memory| {
            let guest = Guest {
                memory,
                base: &[],
                log: &[],
            };
            guest.ask(what::READ, 0, 1);
        };
        both.shared.switch(&state).unwrap();
        both.window.shown.as_mut().unwrap().meanwhile = reads;
        let published = both.window.publish(&both.shared);
        assert!(matches!(published, Err(DiskError::NotQuiet)));
    }

    /// What found no room in the ring was not seen by the disk: nobody knows what that visit read.
    #[test]
    fn requests_that_were_refused_for_lack_of_room_count_as_errors() {
        let mut both = small();
        for count in [1, 2] {
            both.guest().refuse();
            both.window.take(&mut both.shared);
            both.window.take(&mut both.shared);
            assert_eq!(both.shared.counted().errors, count);
        }
    }

    /// The ring is memory of the kernel that is tested.
    #[test]
    fn requests_that_no_driver_makes_count_as_errors() {
        let mut both = small();
        for (what, sector, sectors) in [
            (what::READ, SECTORS, 1),
            (what::READ, u64::MAX, 2),
            (what::WRITE, 0, 1), // and the table says that it lies in the base image
            (what::ZEROED, 0, SECTORS + 1),
            (6, 0, 1),
            (99, 0, 1),
        ] {
            both.guest().ask(what, sector, sectors);
        }
        both.window.take(&mut both.shared);
        assert_eq!(both.shared.counted().errors, 6);
        assert_eq!(both.shared.view().hash(), 0);
    }
}
