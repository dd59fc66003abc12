//! Compares the disk with a plain replay, over random logs, states, guests and checks.

use std::collections::HashMap;

use powercut_protocol::State;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{
    device::Device,
    log::build::{log_bytes, Scratch, Step},
    BLOCK_BYTES, BLOCK_SECTORS, SECTOR_BYTES,
};

/// Five blocks and a half: a device that ends inside a block.
pub const SECTORS: u64 = 44;
/// Few, including zeros and those of the base, so that different states often agree in content.
const LETTERS: &[u8] = b"abX\0";

/// splitmix64 (Steele, Lea, Flood 2014): the same run every time.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    /// Sector and count within the device, up to its end and across block boundaries.
    pub fn extent(&mut self) -> (u64, u64) {
        let sector = self.below(SECTORS);
        (sector, 1 + self.below((SECTORS - sector).min(12)))
    }

    pub fn letters(&mut self, sectors: u64) -> Vec<u8> {
        let letter = |_| LETTERS[self.below(LETTERS.len() as u64) as usize];
        let letters: Vec<u8> = (0..sectors).map(letter).collect();
        letters.iter().flat_map(|l| [*l; SECTOR_BYTES]).collect()
    }

    pub fn change(&mut self) -> Change {
        let (sector, sectors) = self.extent();
        match self.below(6) {
            0 => Change::Nothing,
            1 => Change::Zero(sector, sectors),
            _ => Change::Write(sector, self.letters(sectors)),
        }
    }

    /// Any state of a log of these changes, legal for a disk or not.
    pub fn state(&mut self, log: &[Change]) -> State {
        let prefix = self.below(log.len() as u64 + 1);
        let dropped = (0..prefix).filter(|_| self.below(5) == 0).collect();
        let last = prefix.checked_sub(1).map(|last| log[last as usize].count());
        let torn = last.filter(|_| self.below(3) == 0);
        State {
            prefix,
            dropped,
            torn_sectors: torn.map(|sectors| self.below(sectors + 1)),
        }
    }
}

/// What a log entry or a guest does to a disk.
pub enum Change {
    Nothing,
    Write(u64, Vec<u8>),
    Zero(u64, u64),
}

impl Change {
    pub fn count(&self) -> u64 {
        match self {
            Change::Nothing => 0,
            Change::Write(_, data) => (data.len() / SECTOR_BYTES) as u64,
            Change::Zero(_, sectors) => *sectors,
        }
    }

    pub fn step(&self) -> Step<'_> {
        match self {
            Change::Nothing => Step::Flush,
            Change::Write(sector, data) => Step::Write(*sector, data),
            Change::Zero(sector, sectors) => Step::Discard(*sector, *sectors),
        }
    }
}

/// What a recovery does with its disk.
trait Disk {
    fn read(&mut self, sector: u64, sectors: u64) -> Vec<u8>;
    fn write(&mut self, sector: u64, data: &[u8]);
    fn zero(&mut self, sector: u64, sectors: u64);
    /// A check on the host that reads a block of the image.
    fn inspect(&mut self, block: u64) -> Vec<u8>;
}

/// The reference: all bytes, changed in order.
struct Plain(Vec<u8>);

impl Plain {
    fn of(base: &[u8], log: &[Change], state: &State) -> Self {
        let mut plain = Plain(base.to_vec());
        for (number, change) in log[..state.prefix as usize].iter().enumerate() {
            let last = number as u64 + 1 == state.prefix;
            let torn = state.torn_sectors.filter(|_| last);
            let sectors = torn.unwrap_or(change.count());
            if state.dropped.contains(&(number as u64)) {
                continue;
            }
            match change {
                Change::Nothing => {}
                Change::Write(sector, data) => {
                    plain.write(*sector, &data[..sectors as usize * SECTOR_BYTES]);
                }
                Change::Zero(sector, _) => plain.zero(*sector, sectors),
            }
        }
        plain
    }

    fn block(&self, block: u64) -> &[u8] {
        let start = block as usize * BLOCK_BYTES;
        &self.0[start..self.0.len().min(start + BLOCK_BYTES)]
    }
}

impl Disk for Plain {
    fn read(&mut self, sector: u64, sectors: u64) -> Vec<u8> {
        let start = sector as usize * SECTOR_BYTES;
        self.0[start..start + sectors as usize * SECTOR_BYTES].to_vec()
    }

    fn write(&mut self, sector: u64, data: &[u8]) {
        let start = sector as usize * SECTOR_BYTES;
        self.0[start..start + data.len()].copy_from_slice(data);
    }

    fn zero(&mut self, sector: u64, sectors: u64) {
        self.write(sector, &vec![0; sectors as usize * SECTOR_BYTES]);
    }

    fn inspect(&mut self, block: u64) -> Vec<u8> {
        self.block(block).to_vec()
    }
}

impl Disk for Device {
    fn read(&mut self, sector: u64, sectors: u64) -> Vec<u8> {
        let mut data = vec![0xee; sectors as usize * SECTOR_BYTES];
        self.guest_read(sector, &mut data);
        data
    }

    fn write(&mut self, sector: u64, data: &[u8]) {
        Device::write(self, sector, data);
    }

    fn zero(&mut self, sector: u64, sectors: u64) {
        Device::zero(self, sector, sectors);
    }

    fn inspect(&mut self, block: u64) -> Vec<u8> {
        self.also_read(&[block]).unwrap();
        let sector = block * BLOCK_SECTORS;
        let sectors = BLOCK_SECTORS.min(SECTORS - sector);
        let mut data = vec![0xee; sectors as usize * SECTOR_BYTES];
        self.view().read(sector, &mut data);
        data
    }
}

/// Recovery and check as the memo assumes them: each step depends only on what was read. Reads any sectors,
/// before or after writing some of them. Returns a digest of everything read.
fn recover(disk: &mut impl Disk, kind: u64) -> u64 {
    let mut seen = kind;
    for step in 0..6 {
        let mut random = Random(seen ^ step);
        let (sector, sectors) = random.extent();
        match random.below(4) {
            0 => disk.write(sector, &random.letters(sectors)),
            1 => disk.zero(sector, sectors),
            _ => seen = xxh3_64_with_seed(&disk.read(sector, sectors), seen),
        }
    }
    // without this, remembering a state of which nothing was read would be refused
    seen = xxh3_64_with_seed(&disk.read(0, 1), seen);
    for _ in 0..2 {
        let block = Random(seen).below(SECTORS.div_ceil(BLOCK_SECTORS));
        seen = xxh3_64_with_seed(&disk.inspect(block), seen);
    }
    seen
}

/// A device with a random base and log.
struct Made {
    base: Vec<u8>,
    log: Vec<Change>,
    device: Device,
    _files: [Scratch; 2],
}

fn made(random: &mut Random) -> Made {
    let base = random.letters(SECTORS);
    let log: Vec<_> = (0..1 + random.below(10)).map(|_| random.change()).collect();
    let steps: Vec<_> = log.iter().map(Change::step).collect();
    let files = [Scratch::new(&base), Scratch::new(&log_bytes(&steps))];
    let device = Device::open(&files[0].0, Some(&files[1].0), None).unwrap();
    Made {
        base,
        log,
        device,
        _files: files,
    }
}

fn shown(device: &Device) -> Vec<u8> {
    let mut bytes = vec![0xee; SECTORS as usize * SECTOR_BYTES];
    device.view().read(0, &mut bytes);
    bytes
}

#[test]
fn every_state_and_every_write_on_it_is_what_a_plain_replay_gives() {
    let mut random = Random(1);
    for _ in 0..400 {
        let mut made = made(&mut random);
        let image = Scratch::new(b"");
        for _ in 0..6 {
            let state = random.state(&made.log);
            let mut plain = Plain::of(&made.base, &made.log, &state);
            made.device.switch(&state).unwrap();
            assert_eq!(shown(&made.device), plain.0, "{state:?}");
            let state_hash = made.device.state_hash(&state).unwrap();
            assert_eq!(made.device.view().hash(), state_hash);
            for _ in 0..random.below(4) {
                match random.change() {
                    Change::Nothing => {}
                    Change::Write(sector, data) => {
                        plain.write(sector, &data);
                        made.device.write(sector, &data);
                    }
                    Change::Zero(sector, sectors) => {
                        plain.zero(sector, sectors);
                        made.device.zero(sector, sectors);
                    }
                }
                let (sector, sectors) = random.extent();
                let read = Disk::read(&mut made.device, sector, sectors);
                assert_eq!(read, plain.read(sector, sectors), "{state:?}");
            }
            made.device.image(&image.0).unwrap();
            assert_eq!(std::fs::read(&image.0).unwrap(), plain.0, "{state:?}");
        }
    }
}

#[test]
fn hashes_of_states_and_of_their_blocks_are_equal_exactly_when_contents_are() {
    let mut random = Random(2);
    for _ in 0..200 {
        let made = made(&mut random);
        let index = &made.device.view().index;
        let mut states = HashMap::new();
        let mut blocks = HashMap::new();
        let mut contents = HashMap::new();
        for _ in 0..12 {
            let state = random.state(&made.log);
            let plain = Plain::of(&made.base, &made.log, &state);
            let hash = made.device.state_hash(&state).unwrap();
            assert_eq!(*states.entry(hash).or_insert(plain.0.clone()), plain.0);
            assert_eq!(*contents.entry(plain.0.clone()).or_insert(hash), hash);
            let recipe = index.recipe(&state).unwrap();
            for block in index.blocks() {
                let hash = index.block_hash(&recipe, index.slot(block).unwrap());
                let content = plain.block(block).to_vec();
                let known = blocks.entry((block, hash)).or_insert(content.clone());
                assert_eq!(*known, content, "block {block} of {state:?}");
            }
        }
        let distinct: std::collections::HashSet<_> =
            blocks.iter().map(|((block, _), c)| (block, c)).collect();
        assert_eq!(distinct.len(), blocks.len(), "one content, two hashes");
    }
}

/// What was remembered with one log must hold for another one on the same base, which changes other blocks.
#[test]
fn what_another_log_on_the_same_base_recalls_is_what_recovery_would_have_come_to() {
    let mut random = Random(6);
    let mut recalled = 0;
    for kind in 0..300 {
        let mut device: Option<Device> = None;
        let first = made(&mut random);
        let mut outcomes = Vec::new();
        for _ in 0..3 {
            let log: Vec<_> = (0..1 + random.below(4)).map(|_| random.change()).collect();
            let steps: Vec<_> = log.iter().map(Change::step).collect();
            let file = Scratch::new(&log_bytes(&steps));
            let mut next = Device::open(&first._files[0].0, Some(&file.0), None).unwrap();
            if let Some(before) = device.take() {
                next.inherit(before, true);
            }
            for _ in 0..5 {
                let state = random.state(&log);
                let expected = recover(&mut Plain::of(&first.base, &log, &state), kind % 7);
                if let Some(number) = next.recall(&state).unwrap() {
                    recalled += 1;
                    assert_eq!(outcomes[number as usize], expected, "{state:?}");
                }
                next.switch(&state).unwrap();
                assert_eq!(recover(&mut next, kind % 7), expected);
                next.remember(outcomes.len() as u64).unwrap();
                outcomes.push(expected);
            }
            device = Some(next);
        }
    }
    assert!(recalled > 500, "{recalled}: too few to tell anything");
}

/// A file that one log's states were written to goes on with the next log on the same base: nothing of the old log,
/// nor of what guests wrote over it, may stay.
#[test]
fn a_file_that_goes_on_with_another_log_holds_nothing_of_the_one_before() {
    let mut random = Random(9);
    for _ in 0..200 {
        let first = made(&mut random);
        let image = Scratch::new(b"");
        let mut device: Option<Device> = None;
        for _ in 0..4 {
            let log: Vec<_> = (0..1 + random.below(4)).map(|_| random.change()).collect();
            let steps: Vec<_> = log.iter().map(Change::step).collect();
            let file = Scratch::new(&log_bytes(&steps));
            let mut next = Device::open(&first._files[0].0, Some(&file.0), None).unwrap();
            if let Some(before) = device.take() {
                next.inherit(before, false);
            }
            for _ in 0..random.below(4) {
                next.switch(&random.state(&log)).unwrap();
                let (sector, sectors) = random.extent();
                next.write(sector, &random.letters(sectors));
                next.image(&image.0).unwrap();
                assert_eq!(std::fs::read(&image.0).unwrap(), shown(&next));
            }
            device = Some(next);
        }
    }
}

/// The memo must never recall an outcome for a state of which recovery or check would have read something else,
/// whatever they write in between.
#[test]
fn what_is_recalled_is_what_recovery_and_check_would_have_come_to() {
    let mut random = Random(3);
    let mut recalled = 0;
    for kind in 0..600 {
        let mut made = made(&mut random);
        let mut outcomes = Vec::new();
        for _ in 0..16 {
            let state = random.state(&made.log);
            let expected = recover(&mut Plain::of(&made.base, &made.log, &state), kind % 7);
            if let Some(number) = made.device.recall(&state).unwrap() {
                recalled += 1;
                assert_eq!(outcomes[number as usize], expected, "{state:?}");
            }
            made.device.switch(&state).unwrap();
            let outcome = recover(&mut made.device, kind % 7);
            assert_eq!(outcome, expected, "{state:?}");
            let earlier = made.device.remember(outcomes.len() as u64).unwrap();
            assert!(earlier.is_none_or(|number| outcomes[number as usize] == outcome));
            outcomes.push(outcome);
        }
    }
    assert!(recalled > 2000, "{recalled}: too few to tell anything");
}
