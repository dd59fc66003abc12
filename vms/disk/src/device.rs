//! One device: what the guest sees, what was read, and the files that mirror it.

use std::{collections::HashSet, path::Path};

use powercut_protocol::{
    limits, CrashTime, Effect, ExploredCrashTime, Fault, MountCounter, RequestKind, Requested,
    State, Stats,
};

use crate::{
    error::DiskError,
    explore::{self, Bounds},
    fault::Armed,
    guest_log::{GuestLog, Logged},
    image::Images,
    log::Order,
    memo::{Memo, Read, ReadSet},
    snapshot::Snapshot,
    view::View,
    Answer, BLOCK_SECTORS, SECTOR_BYTES,
};

/// One device. Callers check sector numbers and ranges with [`View::holds`].
pub struct Device {
    view: View,
    images: Images,
    reads: ReadSet,
    /// Whether anything was read since the last switch, changed by the log or not.
    looked_at: bool,
    /// Whether the guest reads files' contents now; see [`Device::next_phase`].
    in_data: bool,
    snapshot: Option<Snapshot>,
    /// What the guest changed, if that was asked for since the last switch.
    guest_log: Option<GuestLog>,
    /// What the guest asked for, noted along with that.
    requests: Vec<Requested>,
    /// How the disk is faulty, if it is.
    armed: Option<Armed>,
    /// The sector of which a bit has rotted, as it then was.
    rotten: Vec<u8>,
    memo: Memo,
    pub stats: Stats,
}

impl Device {
    /// Show the base image with nothing of the log on it: the state of 0 entries.
    ///
    /// # Errors
    /// As [`View::open`].
    pub fn open(base: &Path, log: Option<&Path>, order: Option<Order>) -> Answer<Self> {
        let view = View::open(base, log, order)?;
        Ok(Device {
            images: Images::of([Some(base), log].into_iter().flatten()),
            reads: ReadSet::default(),
            looked_at: false,
            in_data: false,
            snapshot: None,
            guest_log: None,
            requests: Vec::new(),
            armed: None,
            rotten: Vec::new(),
            memo: Memo::default(),
            view,
            stats: Stats::default(),
        })
    }

    /// See [`View::count`].
    ///
    /// # Errors
    /// If a structure is not in one block of the device.
    pub fn count(&mut self, mount_counters: &[MountCounter]) -> Answer<()> {
        self.view.count(mount_counters)
    }

    /// Go on with the files of another device, if it has the same base image, and with what it remembered, if that
    /// is wanted and holds for any log.
    pub fn inherit(&mut self, other: Device, keep_memo: bool) {
        if other.view.base_identity() != self.view.base_identity() {
            return;
        }
        self.images
            .inherit(other.images, &other.view.changed_blocks());
        if keep_memo && !other.memo.is_local() {
            self.memo = other.memo;
        }
    }

    /// What the guest sees.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Show another state; drop what the guest wrote, and forget what was read.
    ///
    /// # Errors
    /// If the state does not fit the log; then nothing changes.
    pub fn switch(&mut self, state: &State) -> Answer<()> {
        self.view.switch(state)?;
        self.reads.clear();
        self.looked_at = false;
        self.in_data = false;
        self.snapshot = None;
        self.guest_log = None;
        self.requests.clear();
        self.armed = None;
        self.stats = Stats::default();
        Ok(())
    }

    /// As [`View::read`], for the guest: records what it saw of the state.
    pub fn guest_read(&mut self, sector: u64, out: &mut [u8]) {
        self.guest_looks(sector, (out.len() / SECTOR_BYTES) as u64);
        self.view.read(sector, out);
    }

    /// Record what the guest sees of the state, without showing it: it saw that itself.
    pub fn guest_looks(&mut self, sector: u64, count: u64) {
        match &mut self.snapshot {
            Some(snapshot) => snapshot.read(sector, count),
            None => self.note(sector, count),
        }
    }

    /// The guest begins to read files' contents, or has read them: blocks that are read for nothing else are data.
    pub fn next_phase(&mut self) {
        // Behind a snapshot is another look, with marks of its own: an odd number here may not be made even there.
        if self.snapshot.is_none() {
            self.in_data = !self.in_data;
        }
    }

    /// Count blocks that a program on the host saw in the image as read; in a snapshot, those that the guest has not
    /// overwritten whole since.
    ///
    /// # Errors
    /// If a block lies past the end.
    pub fn also_read(&mut self, blocks: &[u64]) -> Answer<()> {
        self.need_inside(blocks)?;
        if let Some(snapshot) = &mut self.snapshot {
            for block in blocks {
                snapshot.read(block * BLOCK_SECTORS, BLOCK_SECTORS);
            }
            return Ok(());
        }
        let in_data = std::mem::replace(&mut self.in_data, false);
        for block in blocks {
            self.note(block * BLOCK_SECTORS, BLOCK_SECTORS);
        }
        self.in_data = in_data;
        Ok(())
    }

    /// What was read is known for what it is.
    fn need_whole_visit(&self) -> Answer<()> {
        if self.in_data {
            return Err(DiskError::InDataPhase);
        }
        Ok(())
    }

    fn need_inside(&self, blocks: &[u64]) -> Answer<()> {
        let last = self.view.sectors().div_ceil(BLOCK_SECTORS);
        match blocks.iter().find(|block| **block >= last) {
            None => Ok(()),
            Some(past) => Err(DiskError::BehindEnd {
                block: *past,
                blocks: last,
            }),
        }
    }

    /// Add to the read set the blocks of which these sectors show anything of the state.
    fn note(&mut self, sector: u64, count: u64) {
        self.looked_at = true;
        let end = sector + count;
        for block in sector / BLOCK_SECTORS..end.div_ceil(BLOCK_SECTORS) {
            let written = self.view.overlay.written(block);
            let first = block * BLOCK_SECTORS;
            let mut asked = (first.max(sector)..end.min(first + BLOCK_SECTORS)).map(|s| s - first);
            if asked.any(|within| written & (1 << within) == 0) {
                self.reads.add(block, self.in_data);
            }
        }
    }

    /// Keep the device as it is now, to come back to; see [`Snapshot`].
    pub fn snapshot(&mut self) {
        self.snapshot = Some(Snapshot::of(&self.view.overlay));
    }

    /// Show the device again as it was at the snapshot. Returns the blocks of that which the guest has read since, in
    /// order.
    ///
    /// # Errors
    /// If there was no snapshot since the last switch.
    pub fn roll_back(&mut self) -> Answer<Vec<u64>> {
        let snapshot = self.snapshot.take().ok_or(DiskError::NoSnapshot)?;
        let (overlay, blocks) = snapshot.end();
        self.view.overlay = overlay;
        Ok(blocks)
    }

    /// [`Self::learn`] of the state that is shown, and what was read of it.
    #[cfg(test)]
    pub fn remember(&mut self, outcome: u64) -> Answer<Option<u64>> {
        if !self.looked_at {
            return Err(DiskError::NothingReadYet);
        }
        self.need_whole_visit()?;
        let (index, recipe) = (&self.view.index, &self.view.recipe);
        let content = |block| index.look(recipe, block);
        let changes = |block| index.slot(block).is_some();
        let reads = self.memo.relevant(self.reads.reads(), changes);
        Ok(self.memo.remember(&reads, content, outcome))
    }

    /// The outcome of a remembered state that agrees with `state` on everything that was read there.
    #[cfg(test)]
    pub fn recall(&self, state: &State) -> Answer<Option<u64>> {
        let recipe = self.view.index.recipe(state)?;
        Ok(self
            .memo
            .recall(|block| self.view.index.look(&recipe, block)))
    }

    /// The blocks that were read since the last switch, and those of them that were read for data alone.
    ///
    /// # Errors
    /// If nothing at all was read. If the guest's last mark began a data phase: one mark is missing, or one was not
    /// the walk's, and what was read for more than data may count as data.
    pub fn was_read(&self) -> Answer<(Vec<u64>, Vec<u64>)> {
        if !self.looked_at {
            return Err(DiskError::NothingReadYet);
        }
        self.need_whole_visit()?;
        let reads = self.reads.reads();
        let blocks = reads.iter().map(|read| read.block).collect();
        let data = reads.iter().filter(|read| read.data).map(|read| read.block);
        Ok((blocks, data.collect()))
    }

    /// Keep `outcome` for `state`, of which another device read `blocks`, some of them for `data` alone; see
    /// [`Memo::remember`].
    ///
    /// # Errors
    /// If the state does not fit the log, or a block lies past the end.
    pub fn learn(
        &mut self,
        state: &State,
        blocks: &[u64],
        data: &[u64],
        outcome: u64,
    ) -> Answer<Option<u64>> {
        self.need_inside(blocks)?;
        let data: HashSet<&u64> = data.iter().collect();
        let read = |block: &u64| Read {
            block: *block,
            data: data.contains(block),
        };
        let reads: Vec<Read> = blocks.iter().map(read).collect();
        let index = &self.view.index;
        let recipe = index.recipe(state)?;
        let reads = self
            .memo
            .relevant(&reads, |block| index.slot(block).is_some());
        let content = |block| index.look(&recipe, block);
        Ok(self.memo.remember(&reads, content, outcome))
    }

    /// The outcomes and the unknown ends of crash times; see [`explore::explore_all`].
    ///
    /// # Errors
    /// If a crash time does not fit the log, or something has more than its limit.
    pub fn explore_all(
        &self,
        crash_times: &[CrashTime],
        bounds: &Bounds,
    ) -> Answer<Vec<ExploredCrashTime>> {
        explore::explore_all(&self.view.index, &self.memo, crash_times, bounds)
    }

    /// What was read since the last switch.
    #[cfg(test)]
    pub fn reads(&self) -> &[crate::memo::Read] {
        self.reads.reads()
    }

    /// Write the guest's `data`, whole sectors, at `sector`.
    pub fn write(&mut self, sector: u64, data: &[u8]) {
        if let (Some(log), None) = (&mut self.guest_log, &self.snapshot) {
            log.write(&self.view, sector, data);
        }
        self.view.overlay.write(sector, data);
        self.overwritten(sector, (data.len() / SECTOR_BYTES) as u64);
    }

    fn overwritten(&mut self, sector: u64, count: u64) {
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.wrote(sector, count);
        }
    }

    /// Whether the guest may write `count` sectors from `sector`, or, without `data`, zero them.
    #[must_use]
    pub fn has_room(&self, sector: u64, count: u64, data: bool) -> bool {
        self.view.overlay.has_room(sector, count, data)
    }

    /// Make `count` sectors from `sector` read as zeros.
    pub fn zero(&mut self, sector: u64, count: u64) {
        if let (Some(log), None) = (&mut self.guest_log, &self.snapshot) {
            log.zero(&self.view, sector, count);
        }
        self.view.overlay.zero(sector, count);
        self.overwritten(sector, count);
    }

    /// All that the guest has written is durable.
    pub fn flush(&mut self) {
        self.stats.flushes += 1;
        if let (Some(log), None) = (&mut self.guest_log, &self.snapshot) {
            log.flush();
        }
    }

    /// From here on, note what the guest writes and flushes, and what it asks for, until the next switch; not in
    /// snapshots.
    pub fn note_writes(&mut self) {
        self.guest_log = Some(GuestLog::default());
        self.requests.clear();
    }

    /// The guest asks for something. Returns what befalls that, if the disk is faulty.
    pub fn asked(&mut self, kind: RequestKind, sector: u64, sectors: u64) -> Option<Effect> {
        if self.guest_log.is_some()
            && self.snapshot.is_none()
            && self.requests.len() <= limits::REQUESTS
        {
            self.requests.push(Requested {
                kind,
                sector,
                sectors,
            });
        }
        let armed = self.armed.as_mut()?;
        let bit_rot = matches!(armed.fault.effect, Effect::Flip { .. });
        if bit_rot && self.view.sector(armed.fault.sector) != self.rotten {
            return None; // the guest has written it anew
        }
        armed.meets(kind, sector, sectors)
    }

    /// What the guest asked for, as far as that was noted.
    ///
    /// # Errors
    /// If nothing was noted, or it was too much.
    pub fn requests(&self) -> Answer<Vec<Requested>> {
        if self.guest_log.is_none() {
            return Err(DiskError::NotNoted);
        }
        let limit = limits::REQUESTS;
        if self.requests.len() > limit {
            return Err(DiskError::TooManyRequests { limit });
        }
        Ok(self.requests.clone())
    }

    /// Inject this fault until `end_fault` or the next switch.
    ///
    /// # Errors
    /// If the device has no such sector, or a sector no such bit.
    pub fn inject(&mut self, fault: Fault) -> Answer<()> {
        let sectors = self.view.sectors();
        let fits = match fault.effect {
            Effect::Flip { bit } => bit < 8 * SECTOR_BYTES as u64,
            Effect::Divert { sector } => sector < sectors,
            Effect::Error {} | Effect::Lose {} => true,
        };
        if !fits || fault.sector >= sectors {
            return Err(DiskError::NoSuchFault { sectors });
        }
        if let Effect::Flip { bit } = fault.effect {
            let rotten = flipped(self.view.sector(fault.sector), bit);
            self.view.overlay.write(fault.sector, &rotten);
            self.rotten = rotten;
        }
        self.armed = Some(Armed::new(fault));
        Ok(())
    }

    /// Err no more. Returns how many requests the fault befell.
    ///
    /// # Errors
    /// If there was none.
    pub fn end_fault(&mut self) -> Answer<u64> {
        let armed = self.armed.take().ok_or(DiskError::NotInjected)?;
        if let Effect::Flip { bit } = armed.fault.effect {
            let sector = armed.fault.sector;
            if self.view.sector(sector) == self.rotten {
                let sound = flipped(&self.rotten, bit);
                self.view.overlay.write(sector, &sound);
            }
        }
        Ok(armed.hits)
    }

    /// Write the state and what was noted of the guest to a log; see [`GuestLog::log`].
    ///
    /// # Errors
    /// If nothing was noted, or the file cannot be written.
    pub fn log_writes(&self, path: &Path) -> Answer<Logged> {
        let log = self.guest_log.as_ref().ok_or(DiskError::NotNoted)?;
        log.log(&self.view, path)
    }

    /// Content hash of `state`, without the guest's writes.
    ///
    /// # Errors
    /// If the state does not fit the log.
    pub fn state_hash(&self, state: &State) -> Answer<u128> {
        let index = &self.view.index;
        Ok(index.hash(&index.recipe(state)?))
    }

    /// Make the file at `path` equal to what the guest sees. Returns the bytes that had to be written.
    ///
    /// # Errors
    /// If `path` is the base image or the log itself, or cannot be written.
    pub fn image(&mut self, path: &Path) -> Answer<u64> {
        self.images.bring_up_to_date(path, &self.view)
    }

    /// Counters since the last switch.
    #[must_use]
    pub fn counted(&self) -> Stats {
        Stats {
            overlay_bytes: self.view.overlay.bytes(),
            ..self.stats.clone()
        }
    }
}

fn flipped(sector: &[u8], bit: u64) -> Vec<u8> {
    let mut bytes = sector.to_vec();
    bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    bytes
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::log::build::{log_bytes, Scratch, Step};

    /// A device of 20 sectors whose base holds the letter of each sector.
    pub fn device(steps: &[Step]) -> (Device, [Scratch; 2]) {
        let base: Vec<u8> = (0..20u8).flat_map(|s| [b'a' + s; 512]).collect();
        let files = [Scratch::new(&base), Scratch::new(&log_bytes(steps))];
        let device = Device::open(&files[0].0, Some(&files[1].0), None).unwrap();
        (device, files)
    }

    fn prefix(prefix: u64) -> State {
        State {
            prefix,
            ..State::default()
        }
    }

    fn shown(device: &Device) -> String {
        let mut bytes = vec![0; 20 * 512];
        device.view.read(0, &mut bytes);
        let letter = |s: &[u8]| if s[0] == 0 { '0' } else { s[0] as char };
        bytes.chunks(512).map(letter).collect()
    }

    #[test]
    fn a_switch_drops_what_the_guest_wrote() {
        let (mut device, _files) = device(&[Step::Write(1, &[b'X'; 1024])]);
        device.switch(&prefix(1)).unwrap();
        device.write(2, &[b'Y'; 512]);
        device.zero(17, 2);
        assert_eq!(shown(&device), "aXYdefghijklmnopq00t");
        device.switch(&prefix(1)).unwrap();
        assert_eq!(shown(&device), "aXXdefghijklmnopqrst");
        device.switch(&prefix(0)).unwrap();
        assert_eq!(shown(&device), "abcdefghijklmnopqrst");
    }

    #[test]
    fn a_refused_switch_changes_nothing() {
        let (mut device, _files) = device(&[Step::Write(1, &[b'X'; 1024])]);
        device.switch(&prefix(1)).unwrap();
        device.write(0, &[b'Y'; 512]);
        assert!(device.switch(&prefix(2)).is_err());
        assert_eq!(shown(&device), "YXXdefghijklmnopqrst");
    }

    #[test]
    fn the_hash_counts_the_guests_writes() {
        let (mut device, _files) = device(&[Step::Write(1, &[b'X'; 1024])]);
        let state = device.state_hash(&prefix(1)).unwrap();
        device.write(1, &[b'X'; 1024]);
        assert_eq!(device.view.hash(), state);
        device.zero(5, 1);
        assert_ne!(device.view.hash(), state);
        device.write(5, &[b'f'; 512]);
        assert_eq!(device.view.hash(), state);
    }

    #[test]
    fn images_follow_state_and_guest() {
        let (mut device, _files) =
            device(&[Step::Write(1, &[b'X'; 1024]), Step::Write(19, &[b'Z'; 512])]);
        let target = Scratch::new(b"");
        let read = || std::fs::read(&target.0).unwrap();
        let mut expect = vec![0; 20 * 512];
        device.switch(&prefix(2)).unwrap();
        device.write(9, &[b'Y'; 512]);
        device.image(&target.0).unwrap();
        device.view.read(0, &mut expect);
        assert_eq!(read(), expect);
        device.switch(&prefix(1)).unwrap();
        device.zero(0, 1);
        // the tail with entry 1 gone, the guest's old block, and its new one
        assert_eq!(device.image(&target.0).unwrap(), 2048 + 4096 + 4096);
        device.view.read(0, &mut expect);
        assert_eq!(read(), expect);
        assert_eq!(device.image(&target.0).unwrap(), 4096);
    }

    #[test]
    fn a_file_is_not_written_whole_for_each_log_on_one_base() {
        let (mut first, files) = device(&[Step::Write(1, &[b'X'; 1024])]);
        let target = Scratch::new(b"");
        first.image(&target.0).unwrap();
        let log = Scratch::new(&log_bytes(&[Step::Write(19, &[b'Z'; 512])]));
        let mut second = Device::open(&files[0].0, Some(&log.0), None).unwrap();
        second.inherit(first, false);
        second.switch(&prefix(1)).unwrap();
        // the block that the first log may have changed, and that of the second at the device's end
        assert_eq!(second.image(&target.0).unwrap(), 4096 + 2048);
    }

    #[test]
    fn an_image_that_somebody_replaced_is_copied_whole() {
        let (mut device, _files) = device(&[]);
        let target = Scratch::new(b"");
        device.image(&target.0).unwrap();
        std::fs::write(&target.0, b"other").unwrap();
        device.image(&target.0).unwrap();
        assert_eq!(std::fs::read(&target.0).unwrap(), device.view.base());
    }

    #[test]
    fn what_the_guest_read_of_the_state_decides_the_outcome() {
        let (mut device, _files) = device(&[
            Step::Write(0, &[b'X'; 512]),
            Step::Write(8, &[b'Y'; 512]),
            Step::Write(16, &[b'Z'; 512]),
        ]);
        let mut sector = [0; 512];
        device.switch(&prefix(1)).unwrap();
        device.guest_read(1, &mut sector);
        device.zero(8, 8);
        device.guest_read(9, &mut sector);
        assert_eq!(device.remember(7).unwrap(), None);
        // the second block had been overwritten before it was read
        let recalled: Vec<_> = (0..=3)
            .map(|p| device.recall(&prefix(p)).unwrap())
            .collect();
        assert_eq!(recalled, [None, Some(7), Some(7), Some(7)]);
    }

    #[test]
    fn a_block_that_was_overwritten_in_part_counts_as_read() {
        let (mut device, _files) = device(&[Step::Write(0, &[b'X'; 512])]);
        let mut sectors = [0; 1024];
        device.write(0, &[b'G'; 512]);
        device.guest_read(0, &mut sectors[..512]);
        device.remember(1).unwrap();
        assert_eq!(device.recall(&prefix(1)).unwrap(), Some(1));
        let (mut device, _files) = self::device(&[Step::Write(0, &[b'X'; 512])]);
        device.write(0, &[b'G'; 512]);
        device.guest_read(0, &mut sectors);
        device.remember(1).unwrap();
        assert_eq!(device.recall(&prefix(1)).unwrap(), None);
    }

    #[test]
    fn what_the_host_read_counts_until_the_next_switch() {
        let (mut device, _files) = device(&[Step::Write(8, &[b'Y'; 512])]);
        assert!(device
            .also_read(&[3])
            .unwrap_err()
            .to_string()
            .contains("the device has 3"));
        device.also_read(&[1, 2]).unwrap();
        device.remember(1).unwrap();
        assert_eq!(device.recall(&prefix(1)).unwrap(), None);
        device.switch(&prefix(1)).unwrap();
        let told = device.remember(2).unwrap_err().to_string();
        assert!(told.contains("nothing was read"), "{told}");
        device.also_read(&[0]).unwrap();
        assert_eq!(device.remember(2).unwrap(), None);
        assert_eq!(device.recall(&prefix(1)).unwrap(), Some(2));
        assert_eq!(device.recall(&prefix(0)).unwrap(), Some(1));
    }

    #[test]
    fn a_memo_goes_on_with_another_log_and_not_with_another_base() {
        let log = |sector| Scratch::new(&log_bytes(&[Step::Write(sector, &[b'X'; 512])]));
        let (mut first, files) = device(&[Step::Write(0, &[b'X'; 512])]);
        first.guest_read(8, &mut [0; 512]);
        first.remember(7).unwrap();
        let (other, _files) = device(&[]);
        let (in_place, elsewhere) = (log(8), log(16));
        let next = |log: &Scratch| Device::open(&files[0].0, Some(&log.0), None).unwrap();
        let mut second = next(&in_place);
        second.inherit(first, true);
        let recalled = |device: &Device| [0, 1].map(|p| device.recall(&prefix(p)).unwrap());
        assert_eq!(recalled(&second), [Some(7), None]);
        let mut third = next(&elsewhere);
        third.inherit(second, true);
        assert_eq!(recalled(&third), [Some(7), Some(7)]);
        let mut foreign = other;
        foreign.inherit(third, true);
        assert_eq!(foreign.recall(&prefix(0)).unwrap(), None);
    }

    /// What was written on the way would change what fsck sees, and what was read there the memo.
    #[test]
    fn nothing_of_a_snapshot_is_left_but_what_it_read_of_the_device() {
        let (mut device, _files) = device(&[Step::Write(1, &[b'X'; 1024])]);
        let mut sector = [0; 512];
        device.switch(&prefix(1)).unwrap();
        device.guest_read(0, &mut sector);
        device.write(2, &[b'Y'; 512]);
        device.snapshot();
        device.write(8, &[b'Z'; 4096]);
        device.zero(16, 1);
        device.guest_read(8, &mut sector); // its own
        device.guest_read(16, &mut sector); // its own
        device.guest_read(17, &mut sector); // not written since, though its neighbour was
        device.guest_read(2, &mut sector); // written before: content of the device at the snapshot
        device.guest_read(3, &mut sector);
        assert_eq!(shown(&device), "aXYdefghZZZZZZZZ0rst");
        assert_eq!(device.roll_back().unwrap(), [2, 0]);
        assert_eq!(shown(&device), "aXYdefghijklmnopqrst");
        let blocks: Vec<_> = device.reads().iter().map(|read| read.block).collect();
        assert_eq!(blocks, [0], "the snapshot's reads are not the state's");
        device.guest_read(16, &mut sector);
        assert_eq!(device.reads().len(), 2, "and later ones are again");
    }

    /// A snapshot's image is checked by a program on the host, whose answer depends on what it reads there.
    #[test]
    fn what_a_program_reads_of_a_snapshots_image_is_the_snapshots_unless_it_was_overwritten_whole()
    {
        let (mut device, _files) = device(&[Step::Write(1, &[b'X'; 1024])]);
        device.switch(&prefix(1)).unwrap();
        device.guest_read(0, &mut [0; 512]);
        device.snapshot();
        device.write(0, &[b'Y'; 512]);
        device.write(8, &[b'Z'; 4096]);
        device.also_read(&[2, 1, 0]).unwrap();
        assert_eq!(device.roll_back().unwrap(), [2, 0]);
        assert_eq!(device.reads().len(), 1, "none of it is the state's");
        device.also_read(&[1]).unwrap();
        assert_eq!(device.reads().len(), 2, "but what is read later is");
    }

    #[test]
    fn there_is_nothing_to_roll_back_to_without_a_snapshot_of_this_state() {
        let (mut device, _files) = device(&[]);
        assert!(device.roll_back().is_err());
        device.snapshot();
        device.switch(&prefix(0)).unwrap();
        assert!(device.roll_back().is_err());
    }

    #[test]
    fn the_base_is_no_place_for_an_image() {
        let (mut device, files) = device(&[]);
        let told = device.image(&files[0].0).unwrap_err().to_string();
        assert!(told.contains("itself"), "{told}");
    }

    #[test]
    fn compare_finds_the_first_difference_from_either_side() {
        let (mut device, _files) = device(&[]);
        let log = Scratch::new(&log_bytes(&[Step::Write(8, &[b'X'; 1024])]));
        assert_eq!(device.view.compare(&log.0, None).unwrap(), Some(8));
        device.write(8, &[b'X'; 1024]);
        assert_eq!(device.view.compare(&log.0, None).unwrap(), None);
        device.write(19, &[b'Y'; 512]);
        assert_eq!(device.view.compare(&log.0, None).unwrap(), Some(19));
        device.write(3, &[b'Y'; 512]);
        assert_eq!(device.view.compare(&log.0, None).unwrap(), Some(3));
    }
}
