//! Maps a sector and a crash state to the content of that sector.
//!
//! Every sector that the log changes has an ascending list of the entries that change it: its versions.
//! All lists lie in one array, the eight lists of a block next to each other, so a look-up is one probe
//! of a hash map and a binary search. A version costs 20 bytes (entry number and content hash), one per
//! logged sector: 4 % of the log. Blocks have such lists as well, so that the content hash of a block
//! needs one search instead of eight.

use std::collections::HashMap;

use powercut_protocol::State;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::{
    error::DiskError,
    hash::contribution,
    log::{Entry, Log},
    mount_counter::MountCounter,
    recipe::Recipe,
    Answer, BlockMap, BLOCK_SECTORS, SECTOR_BYTES,
};

/// Sectors that a log may discard, counted once per discard: 8 GiB, for which the index takes some 600 MB.
/// A write carries its data, so many writes make a large log; a discard of a whole large device takes one
/// sector of the log.
const DISCARDED_MAX: u64 = 1 << 24;

/// A log, indexed for look-ups in any state.
pub struct Index {
    log: Log,
    /// Slot by block.
    slots: BlockMap<u32>,
    /// The versions of sector i of slot s are `starts[8 s + i]..starts[8 s + i + 1]`.
    starts: Vec<u32>,
    /// Entry numbers.
    versions: Vec<u32>,
    /// What each version adds to the hash of the device.
    contributions: Vec<u128>,
    /// The hash of the state of each prefix.
    prefix_hashes: Vec<u128>,
    blocks: BlockVersions,
    /// For a block and the hash of its content, the hash of what counts as alike.
    normalized: HashMap<(u64, u128), u128>,
}

/// For every slot, the entries that change any sector of its block, and the block's hash after each.
struct BlockVersions {
    /// Block by slot.
    numbers: Vec<u64>,
    /// The versions of slot s are `starts[s]..starts[s + 1]`.
    starts: Vec<u32>,
    versions: Vec<u32>,
    hashes: Vec<u128>,
}

impl Index {
    /// Index `log` over `base`, which covers all its entries. Costs one pass over the log's data.
    pub fn new(log: Log, base: &[u8]) -> Answer<Self> {
        let sectors = log.entries.iter().map(|e| e.sectors);
        let total = sectors.fold(0, u64::saturating_add);
        if total >= u64::from(u32::MAX) || log.entries.len() >= u32::MAX as usize {
            return Err(DiskError::TooManyChanges {
                sectors: total,
                entries: log.entries.len(),
            });
        }
        check_discards(&log.entries)?;
        let (slots, starts, blocks) = lay_out(&log.entries);
        let mut index = Index {
            blocks,
            versions: vec![0; total as usize],
            contributions: vec![0; total as usize],
            prefix_hashes: Vec::with_capacity(log.entries.len() + 1),
            log,
            slots,
            starts,
            normalized: HashMap::new(),
        };
        index.fill(base);
        Ok(index)
    }

    /// From now on, contents that differ in what is counted alone are `normalized`: of those that an entry writes
    /// whole, and of the base.
    pub fn count(&mut self, mount_counters: &[MountCounter], base: &[u8]) {
        let (placed, marked): (Vec<_>, Vec<_>) = mount_counters
            .iter()
            .cloned()
            .partition(|mount_counter| mount_counter.block().is_some());
        for mount_counter in placed {
            let block = mount_counter.block().unwrap_or_default();
            self.count_in(block, &[mount_counter], base);
        }
        if !marked.is_empty() {
            for block in self.blocks.numbers.clone() {
                self.count_in(block, &marked, base);
            }
        }
    }

    fn count_in(&mut self, block: u64, mount_counters: &[MountCounter], base: &[u8]) {
        for (hash, mut content) in self.whole_contents(block, base) {
            let blanked = mount_counters
                .iter()
                .map(|mount_counter| mount_counter.blank(&mut content, true));
            if blanked.fold(false, |any, one| any | one) {
                let normalized = xxh3_128_with_seed(&content, block);
                self.normalized.insert((block, hash), normalized);
            }
        }
    }

    /// Contents of a block, each with its hash: what the base holds, and what an entry writes whole.
    fn whole_contents(&self, block: u64, base: &[u8]) -> Vec<(u128, Vec<u8>)> {
        let sectors = block * BLOCK_SECTORS..(block + 1) * BLOCK_SECTORS;
        let from_base = sectors.clone().map(|sector| base_sector(base, sector));
        let mut contents = vec![(0, from_base.collect::<Vec<_>>().concat())];
        if let Some(slot) = self.slot(block) {
            let (versions, hashes) = self.block_versions(&self.whole(), slot);
            for (number, hash) in versions.iter().zip(hashes) {
                let entry = &self.log.entries[*number as usize];
                if covers_block(entry, block) {
                    let written = sectors.clone().map(|sector| self.log.sector(entry, sector));
                    contents.push((*hash, written.collect::<Vec<_>>().concat()));
                }
            }
        }
        contents
    }

    /// Equal for contents of a block that count as alike; `hash`: of its content.
    #[must_use]
    pub fn normalized(&self, block: u64, hash: u128) -> u128 {
        *self.normalized.get(&(block, hash)).unwrap_or(&hash)
    }

    /// As `normalized`, of what a block holds in a state.
    #[must_use]
    pub fn look(&self, recipe: &Recipe, block: u64) -> u128 {
        self.normalized(block, self.content(recipe, block))
    }

    fn fill(&mut self, base: &[u8]) {
        let mut used = self.starts.clone();
        let mut blocks_used = self.blocks.starts.clone();
        let mut hash = 0u128;
        self.prefix_hashes.push(hash);
        for number in 0..self.log.entries.len() {
            let entry = self.log.entries[number];
            for block in entry_blocks(&entry) {
                let slot = self.slots[&block] as usize;
                let change = self.fill_block(number, block, &mut used, base);
                let at = blocks_used[slot] as usize;
                let before = match at == self.blocks.starts[slot] as usize {
                    true => 0,
                    false => self.blocks.hashes[at - 1],
                };
                self.blocks.versions[at] = number as u32;
                self.blocks.hashes[at] = before.wrapping_add(change);
                blocks_used[slot] += 1;
                hash = hash.wrapping_add(change);
            }
            self.prefix_hashes.push(hash);
        }
    }

    /// Add what entry `number` does to `block`; `used` is the next free place in each sector's list.
    /// Returns the change of the block's hash.
    fn fill_block(&mut self, number: usize, block: u64, used: &mut [u32], base: &[u8]) -> u128 {
        let entry = &self.log.entries[number];
        let first = self.slots[&block] as usize * 8;
        let mut change = 0u128;
        for within in 0..BLOCK_SECTORS {
            let sector = block * BLOCK_SECTORS + within;
            if !entry.covers(sector) {
                continue;
            }
            let list = first + within as usize;
            let at = used[list] as usize;
            let before = match used[list] == self.starts[list] {
                true => 0,
                false => self.contributions[at - 1],
            };
            let content = self.log.sector(entry, sector);
            let added = contribution(sector, content, base_sector(base, sector));
            self.versions[at] = number as u32;
            self.contributions[at] = added;
            used[list] += 1;
            change = change.wrapping_add(added).wrapping_sub(before);
        }
        change
    }

    /// Entries in the log.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.log.entries.len() as u64
    }

    /// Check `state` against this log.
    pub fn recipe(&self, state: &State) -> Answer<Recipe> {
        Ok(Recipe::of(state, &self.log.entries)?)
    }

    /// Position in `versions` of what `sector` holds in the state; `None` if it holds the base.
    fn version(&self, recipe: &Recipe, sector: u64) -> Option<usize> {
        let slot = *self.slots.get(&(sector / BLOCK_SECTORS))?;
        self.version_in_slot(recipe, slot, sector)
    }

    fn version_in_slot(&self, recipe: &Recipe, slot: u32, sector: u64) -> Option<usize> {
        self.version_below(recipe, recipe.prefix(), slot, sector)
    }

    /// As `version`, of the entries below `end` alone.
    fn version_below(&self, recipe: &Recipe, end: u32, slot: u32, sector: u64) -> Option<usize> {
        let (start, versions) = self.sector_versions(slot, sector);
        let below = versions.partition_point(|number| *number < end);
        let kept = versions[..below]
            .iter()
            .rposition(|number| recipe.keeps(*number, sector));
        kept.map(|at| start + at)
    }

    /// The entries that change a sector of the block of `slot`, and where they are in `versions`.
    fn sector_versions(&self, slot: u32, sector: u64) -> (usize, &[u32]) {
        let list = slot as usize * 8 + (sector % BLOCK_SECTORS) as usize;
        let (start, end) = (self.starts[list] as usize, self.starts[list + 1] as usize);
        (start, &self.versions[start..end])
    }

    /// The content of `sector` in the state.
    #[must_use]
    pub fn sector<'a>(&'a self, recipe: &Recipe, base: &'a [u8], sector: u64) -> &'a [u8] {
        match self.version(recipe, sector) {
            None => base_sector(base, sector),
            Some(at) => {
                let entry = &self.log.entries[self.versions[at] as usize];
                self.log.sector(entry, sector)
            }
        }
    }

    /// Where the content of `sector` in the state lies.
    #[must_use]
    pub fn source(&self, recipe: &Recipe, sector: u64) -> Source {
        let Some(at) = self.version(recipe, sector) else {
            return Source::Base;
        };
        let entry = &self.log.entries[self.versions[at] as usize];
        entry.data_offset.map_or(Source::Zero, |offset| {
            Source::Log(offset / SECTOR_BYTES as u64 + (sector - entry.sector))
        })
    }

    /// The slot of `block`; `None` if the log never changes it.
    #[must_use]
    pub fn slot(&self, block: u64) -> Option<u32> {
        self.slots.get(&block).copied()
    }

    /// Blocks that the log changes.
    #[must_use]
    pub fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// What the block of `slot` adds to the hash of the state: equal for two states if its content is equal. Costs
    /// in proportion to the block's own versions that the state lacks, whatever else it lacks.
    #[must_use]
    pub fn block_hash(&self, recipe: &Recipe, slot: u32) -> u128 {
        let (versions, hashes) = self.block_versions(recipe, slot);
        let Some(last) = versions.last() else {
            return 0;
        };
        if recipe.first_lacking().is_none_or(|first| *last < first) {
            return hashes[versions.len() - 1];
        }
        let block = self.blocks.numbers[slot as usize];
        let Some(at) = versions.iter().rposition(|n| !recipe.drops(*n)) else {
            return 0;
        };
        // an entry that covers the block hides all before it
        let covered = covers_block(&self.log.entries[versions[at] as usize], block);
        if covered && !recipe.lacks(versions[at]) {
            return hashes[at];
        }
        self.contents_below(recipe, recipe.prefix(), slot).hash()
    }

    /// As `block_hash`, of any block: 0 if the log never changes it.
    #[must_use]
    pub fn content(&self, recipe: &Recipe, block: u64) -> u128 {
        self.slot(block)
            .map_or(0, |slot| self.block_hash(recipe, slot))
    }

    /// The entries below the state's prefix that change the block of `slot`, and its hash after each.
    fn block_versions(&self, recipe: &Recipe, slot: u32) -> (&[u32], &[u128]) {
        let starts = &self.blocks.starts[slot as usize..];
        let range = starts[0] as usize..starts[1] as usize;
        let versions = &self.blocks.versions[range.clone()];
        let below = versions.partition_point(|number| *number < recipe.prefix());
        (&versions[..below], &self.blocks.hashes[range][..below])
    }

    /// What the block of `slot` holds after those entries below `end` that the state has.
    #[must_use]
    pub fn contents_below(&self, recipe: &Recipe, end: u32, slot: u32) -> Contents {
        let first = self.blocks.numbers[slot as usize] * BLOCK_SECTORS;
        let mut contents = Contents::default();
        for (sector, content) in (first..).zip(&mut contents.0) {
            let found = self.version_below(recipe, end, slot, sector);
            *content = found.map_or(0, |at| self.contributions[at]);
        }
        contents
    }

    /// What entry `number` writes to the block of `slot`.
    #[must_use]
    pub fn change(&self, number: u32, slot: u32) -> Overwrite {
        let first = self.blocks.numbers[slot as usize] * BLOCK_SECTORS;
        let mut change = Overwrite::default();
        for (sector, written) in (first..).zip(&mut change.0) {
            let (start, versions) = self.sector_versions(slot, sector);
            let found = versions.binary_search(&number).ok();
            *written = found.map(|at| self.contributions[start + at]);
        }
        change
    }

    /// The entries from `from` on that change the block of `slot` and that the state has, whole.
    pub fn persisted<'a>(
        &'a self,
        recipe: &'a Recipe,
        slot: u32,
        from: u32,
    ) -> impl Iterator<Item = u32> + 'a {
        let (versions, _) = self.block_versions(recipe, slot);
        let later = &versions[versions.partition_point(|number| *number < from)..];
        let persisted = later.iter().filter(|number| !recipe.lacks(**number));
        persisted.copied()
    }

    /// The number of the block of `slot`.
    #[must_use]
    pub fn block(&self, slot: u32) -> u64 {
        self.blocks.numbers[slot as usize]
    }

    /// The block that holds chunk `number` of a log that was split into chunks.
    #[must_use]
    pub fn chunk_block(&self, number: u32) -> u64 {
        self.log.entries[number as usize].sector / BLOCK_SECTORS
    }

    /// Whether the log was split into chunks.
    #[must_use]
    pub fn in_chunks(&self) -> bool {
        self.log.in_chunks
    }

    /// What `sector` adds to the hash of the state.
    #[must_use]
    pub fn contribution(&self, recipe: &Recipe, sector: u64) -> u128 {
        self.version(recipe, sector)
            .map_or(0, |at| self.contributions[at])
    }

    /// Hash of the content of the state. Costs in proportion to what was dropped and torn, not to what is there.
    #[must_use]
    pub fn hash(&self, recipe: &Recipe) -> u128 {
        let whole = Recipe::of_prefix(recipe.prefix());
        let lacking = recipe.lacking();
        let mut blocks: Vec<u64> = lacking
            .flat_map(|number| entry_blocks(&self.log.entries[number as usize]))
            .collect();
        blocks.sort_unstable();
        blocks.dedup();
        let changes = blocks.iter().map(|block| {
            let slot = self.slots[block];
            let now = self.block_hash(recipe, slot);
            now.wrapping_sub(self.block_hash(&whole, slot))
        });
        changes.fold(
            self.prefix_hashes[recipe.prefix() as usize],
            u128::wrapping_add,
        )
    }

    /// Blocks that may differ between two states, each at least once. Costs in proportion to the entries
    /// between the states, or to all blocks that the log changes if those are fewer.
    #[must_use]
    pub fn blocks_between(&self, a: &Recipe, b: &Recipe) -> Vec<u64> {
        let (low, high) = (a.prefix().min(b.prefix()), a.prefix().max(b.prefix()));
        let numbers = (low..high).chain(a.lacking()).chain(b.lacking());
        let mut blocks = Vec::new();
        for number in numbers {
            blocks.extend(entry_blocks(&self.log.entries[number as usize]));
            if blocks.len() > self.slots.len() {
                return self.blocks().collect();
            }
        }
        blocks
    }

    /// All blocks that the log changes, in no order.
    pub fn blocks(&self) -> impl Iterator<Item = u64> + '_ {
        self.slots.keys().copied()
    }

    /// The state of the whole log.
    #[must_use]
    pub fn whole(&self) -> Recipe {
        Recipe::of_prefix(self.entries() as u32)
    }
}

/// Where a sector's content lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Base,
    /// In this sector of the log's file.
    Log(u64),
    /// It was discarded.
    Zero,
}

/// What the eight sectors of a block hold: what each adds to the hash of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Contents([u128; BLOCK_SECTORS as usize]);

impl Contents {
    /// What the block adds to the hash of the device.
    #[must_use]
    pub fn hash(&self) -> u128 {
        self.0.iter().copied().fold(0, u128::wrapping_add)
    }
}

/// What entries write to the eight sectors of a block: what each sector adds to the hash of the device then.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overwrite([Option<u128>; BLOCK_SECTORS as usize]);

impl Overwrite {
    /// Whether nothing is left of what was there before.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.0.iter().all(Option::is_some)
    }

    /// What is there after it.
    #[must_use]
    pub fn on(&self, mut contents: Contents) -> Contents {
        for (content, written) in contents.0.iter_mut().zip(self.0) {
            *content = written.unwrap_or(*content);
        }
        contents
    }

    /// This change, and `later` after it.
    #[must_use]
    pub fn then(&self, later: &Overwrite) -> Overwrite {
        let mut both = *self;
        for (first, second) in both.0.iter_mut().zip(later.0) {
            *first = second.or(*first);
        }
        both
    }
}

/// Whether an entry changes every sector of a block. A device may end inside its last block, which no entry
/// covers then.
fn covers_block(entry: &Entry, block: u64) -> bool {
    let first = block * BLOCK_SECTORS;
    entry.covers(first) && entry.covers(first + BLOCK_SECTORS - 1)
}

/// The 512 bytes of `sector` in a base image.
#[must_use]
pub fn base_sector(base: &[u8], sector: u64) -> &[u8] {
    let start = sector as usize * SECTOR_BYTES;
    &base[start..start + SECTOR_BYTES]
}

fn check_discards(entries: &[Entry]) -> Answer<()> {
    let discards = entries.iter().filter(|e| e.data_offset.is_none());
    let sectors = discards.fold(0, |sum: u64, e| sum.saturating_add(e.sectors));
    if sectors > DISCARDED_MAX {
        let limit = DISCARDED_MAX;
        return Err(DiskError::TooManyDiscards { sectors, limit });
    }
    Ok(())
}

fn entry_blocks(entry: &Entry) -> std::ops::Range<u64> {
    let end = entry.sector + entry.sectors;
    if entry.sectors == 0 {
        return 0..0;
    }
    entry.sector / BLOCK_SECTORS..end.div_ceil(BLOCK_SECTORS)
}

/// Give every changed block a slot, and reserve room for the versions of the block and its sectors.
fn lay_out(entries: &[Entry]) -> (BlockMap<u32>, Vec<u32>, BlockVersions) {
    let mut slots = BlockMap::default();
    let mut numbers = Vec::new();
    let mut sector_counts: Vec<u32> = Vec::new();
    let mut block_counts: Vec<u32> = Vec::new();
    for entry in entries {
        for block in entry_blocks(entry) {
            let next = numbers.len() as u32;
            let slot = *slots.entry(block).or_insert(next);
            if slot == next {
                numbers.push(block);
                sector_counts.extend([0; 8]);
                block_counts.push(0);
            }
            block_counts[slot as usize] += 1;
            for within in 0..BLOCK_SECTORS {
                if entry.covers(block * BLOCK_SECTORS + within) {
                    sector_counts[slot as usize * 8 + within as usize] += 1;
                }
            }
        }
    }
    let starts = running_sums(&block_counts);
    let total = starts[starts.len() - 1] as usize;
    let blocks = BlockVersions {
        numbers,
        starts,
        versions: vec![0; total],
        hashes: vec![0; total],
    };
    (slots, running_sums(&sector_counts), blocks)
}

/// 0, the first, the first two, ... : one more than there are counts.
fn running_sums(counts: &[u32]) -> Vec<u32> {
    let sums = counts.iter().scan(0, |sum, count| {
        *sum += count;
        Some(*sum)
    });
    std::iter::once(0).chain(sums).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::build::{log_bytes, Scratch, Step};

    const BASE: [u8; 16 * 512] = [b'.'; 16 * 512];

    fn index(steps: &[Step]) -> Index {
        let log = Log::open(&Scratch::new(&log_bytes(steps)).0, 16).unwrap();
        Index::new(log, &BASE).unwrap()
    }

    fn state(prefix: u64, dropped: &[u64], torn_sectors: Option<u64>) -> State {
        State {
            prefix,
            dropped: dropped.to_vec(),
            torn_sectors,
        }
    }

    /// The first byte of every sector.
    fn shown(index: &Index, state: &State) -> String {
        let recipe = index.recipe(state).unwrap();
        (0..16)
            .map(|s| index.sector(&recipe, &BASE, s)[0])
            .map(|byte| if byte == 0 { '0' } else { byte as char })
            .collect()
    }

    fn sample() -> Index {
        index(&[
            Step::Write(2, &[b'a'; 2048]),
            Step::Write(4, &[b'b'; 512]),
            Step::Flush,
            Step::Discard(3, 7),
            Step::Write(7, &[b'c'; 1024]),
        ])
    }

    #[test]
    fn prefixes_show_the_last_write() {
        let index = sample();
        assert_eq!(shown(&index, &state(0, &[], None)), "................");
        assert_eq!(shown(&index, &state(1, &[], None)), "..aaaa..........");
        assert_eq!(shown(&index, &state(3, &[], None)), "..aaba..........");
        assert_eq!(shown(&index, &state(4, &[], None)), "..a0000000......");
        assert_eq!(shown(&index, &state(5, &[], None)), "..a0000cc0......");
    }

    #[test]
    fn dropped_and_torn_entries_show_what_was_before() {
        let index = sample();
        assert_eq!(shown(&index, &state(5, &[3], None)), "..aaba.cc.......");
        assert_eq!(shown(&index, &state(5, &[1, 3], None)), "..aaaa.cc.......");
        assert_eq!(
            shown(&index, &state(5, &[0, 3], Some(1))),
            "....b..c........"
        );
        assert_eq!(shown(&index, &state(4, &[], Some(2))), "..a00a..........");
        assert_eq!(shown(&index, &state(5, &[4], Some(1))), "..a0000000......");
    }

    #[test]
    fn hashes_are_equal_exactly_when_contents_are() {
        let index = sample();
        let mut states = Vec::new();
        for prefix in 0..=5u64 {
            for mask in 0..1u64 << prefix {
                let dropped: Vec<_> = (0..prefix).filter(|d| mask & (1 << d) != 0).collect();
                let last = prefix
                    .checked_sub(1)
                    .map(|e| index.log.entries[e as usize].sectors);
                states.push(state(prefix, &dropped, None));
                for torn in 0..=last.unwrap_or(0) {
                    if prefix > 0 {
                        states.push(state(prefix, &dropped, Some(torn)));
                    }
                }
            }
        }
        let mut seen = std::collections::HashMap::new();
        for state in &states {
            let recipe = index.recipe(state).unwrap();
            let hash = index.hash(&recipe);
            let blocks = (0..index.slot_count()).map(|slot| index.block_hash(&recipe, slot as u32));
            assert_eq!(blocks.fold(0, u128::wrapping_add), hash, "{state:?}");
            let content = shown(&index, state);
            assert_eq!(
                *seen.entry(hash).or_insert(content.clone()),
                content,
                "{state:?}"
            );
        }
        let contents: std::collections::HashSet<_> = seen.values().collect();
        assert_eq!(contents.len(), seen.len());
    }

    #[test]
    fn writing_what_the_base_holds_changes_no_hash() {
        let index = index(&[Step::Write(0, &[b'.'; 512]), Step::Write(1, &[b'x'; 512])]);
        let hash = |prefix| index.hash(&index.recipe(&state(prefix, &[], None)).unwrap());
        assert_eq!(hash(0), 0);
        assert_eq!(hash(1), 0);
        assert_ne!(hash(2), 0);
    }

    /// A log of some kilobytes used to take 16.8 GB: 20 bytes for every sector of every discard.
    #[test]
    fn discards_of_more_than_the_limit_are_refused_before_room_is_made_for_them() {
        let whole = DISCARDED_MAX / 4;
        let discards = |count| -> Vec<Entry> {
            let entry = Entry {
                sector: 0,
                sectors: whole,
                data_offset: None,
            };
            vec![entry; count]
        };
        check_discards(&discards(4)).unwrap();
        let told = check_discards(&discards(5)).unwrap_err().to_string();
        assert_eq!(
            told,
            "the log discards 20971520 sectors, the limit is 16777216"
        );
        let steps: Vec<_> = (0..5).map(|_| Step::Discard(0, whole)).collect();
        let log = Log::open(&Scratch::new(&log_bytes(&steps)).0, whole).unwrap();
        assert!(Index::new(log, &[]).is_err());
    }

    #[test]
    fn blocks_between_hold_every_difference() {
        let index = sample();
        let a = index.recipe(&state(1, &[], None)).unwrap();
        let b = index.recipe(&state(5, &[3], None)).unwrap();
        let mut blocks = index.blocks_between(&a, &b);
        blocks.sort_unstable();
        blocks.dedup();
        assert_eq!(blocks, [0, 1]);
        assert!(index.blocks_between(&a, &a).is_empty());
    }
}
