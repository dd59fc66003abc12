//! Explores the states of a crash time: which outcomes it may have, and which states must be visited to know.
//!
//! A crash time has *volatile* chunks, each of which may have persisted or not. The volatile chunks of a block give
//! it a few distinct contents, its *alternatives*. The memo's decision tree holds, in the order of reading,
//! every block on which a visit's outcome depended. Descending it with all states of the crash time at once, a
//! walk branches only at blocks with several alternatives; where it finds an outcome, all states that came
//! there have it; where the tree ends, one of them has to be visited.
//!
//! Every branch leads to a known outcome, to a state to visit or, with `losses`, to an unexplored branch, since the
//! nearer default's content may always be chosen. So the work is bounded by what is asked for, times the length of a
//! path. The memory is bounded by the blocks on one path and by the limits on the answer.
//!
//! A block of more contents than [`limits::CONTENTS`] is *crowded*: four writes to its eight sectors, all in flight,
//! make 390,625. Of these a walk follows the two defaults and what one chunk makes of them, and says that it did.
//!
//! *Data blocks* (see `Explore`): a path may follow a default in all of them. Which one is chosen at the first
//! data block whose content differs between the two; from there on the path follows the other one no more, which
//! counts as out of reach unless both are followed in turn (`data_together`).

use std::{collections::HashMap, rc::Rc};

use powercut_protocol::{limits, Choice, ExploredCrashTime, KnownOutcome, State};

use crate::{
    error::ExploreError,
    index::{Contents, Index},
    memo::{Found, Memo, Place},
    recipe::Recipe,
    Answer,
};

/// Steps of finding the distinct contents of a block: 64 Ki contents of one chunk each to 16 of 4 Mi.
const WAYS_MAX: usize = 1 << 22;
/// Chunks that an answer may name in all.
const NAMED_MAX: usize = 1 << 20;
/// The two defaults, as indices.
const LOST: usize = 0;
const KEPT: usize = 1;

/// What is asked of all crash times together, as in `DiskRequest::Explore`.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    pub losses: u64,
    pub separate_data: bool,
    pub data_together: bool,
    pub to_visit_max: u64,
    pub known_outcomes_max: u64,
}

/// What crash times have to share: each unknown end of the tree wants one state, whichever crash time came there first.
struct Shared<'a> {
    index: &'a Index,
    memo: &'a Memo,
    bounds: &'a Bounds,
    /// Ends of the tree from which a state is to be visited, by the test and the content that nobody had there: the
    /// number of the crash time that came there first.
    ends: HashMap<(Place, u128), usize>,
    /// The number of the crash time that is looked at.
    number: usize,
    to_visit: u64,
    known_outcomes: u64,
    /// Chunks that the answer names.
    named: usize,
}

impl Shared<'_> {
    fn has_enough_to_visit(&self) -> bool {
        self.to_visit >= self.bounds.to_visit_max
    }

    fn has_enough_known(&self) -> bool {
        self.known_outcomes >= self.bounds.known_outcomes_max
    }
}

/// Say of each crash time what `memo` knows. Crash times for which the answer has no room wait; the first one has all
/// of it.
///
/// Visits to the states to visit never come to the same place of the tree, since their ends differ: so they may be made
/// in any order, or at once.
///
/// # Errors
/// If a crash time does not fit the log, or the first one has more of something than its limit.
pub fn explore_all(
    index: &Index,
    memo: &Memo,
    crash_times: &[powercut_protocol::CrashTime],
    bounds: &Bounds,
) -> Answer<Vec<ExploredCrashTime>> {
    if bounds.to_visit_max == 0 {
        return Err(ExploreError::NoneToVisit.into());
    }
    check_limit("crash times", crash_times.len() as u64, limits::STATES)?;
    check_limit("states to visit", bounds.to_visit_max, limits::STATES)?;
    check_limit("known outcomes", bounds.known_outcomes_max, limits::STATES)?;
    let mut shared = Shared {
        index,
        memo,
        bounds,
        ends: HashMap::new(),
        number: 0,
        to_visit: 0,
        known_outcomes: 0,
        named: 0,
    };
    let mut answer: Vec<ExploredCrashTime> = Vec::new();
    for asked in crash_times {
        let crash_time = CrashTime::of(index, asked)?;
        let full = shared.has_enough_to_visit() || shared.has_enough_known();
        if full && !answer.is_empty() {
            answer.push(waiting());
            continue;
        }
        let (known_outcomes, named) = (shared.known_outcomes, shared.named);
        shared.number = answer.len();
        match Walk::of(&mut shared, crash_time).run() {
            Ok(explored) => answer.push(explored),
            Err(_) if !answer.is_empty() => {
                // with the whole answer for itself it may have room
                (shared.known_outcomes, shared.named) = (known_outcomes, named);
                answer.push(waiting());
                shared.to_visit = bounds.to_visit_max;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(answer)
}

fn waiting() -> ExploredCrashTime {
    ExploredCrashTime {
        waits: true,
        ..ExploredCrashTime::default()
    }
}

/// A request's chunks, checked against the log.
struct CrashTime {
    /// The state in which every volatile chunk persisted.
    kept: Recipe,
    /// The volatile chunks of each block that has some, ascending.
    volatile: HashMap<u64, Vec<u32>>,
}

impl CrashTime {
    fn of(index: &Index, asked: &powercut_protocol::CrashTime) -> Answer<Self> {
        let kept = index.recipe(&asked.state)?;
        if asked.volatile.is_empty() {
            return Ok(CrashTime {
                kept,
                volatile: HashMap::new(),
            });
        }
        if !index.in_chunks() {
            return Err(ExploreError::NoOrder.into());
        }
        let lost = index.recipe(&State {
            prefix: asked.state.prefix,
            dropped: asked.volatile.clone(),
            torn_sectors: None,
        })?;
        let mut volatile: HashMap<u64, Vec<u32>> = HashMap::new();
        for number in lost.lacking() {
            if kept.lacks(number) {
                return Err(ExploreError::AbsentAndVolatile(number.into()).into());
            }
            let block = index.chunk_block(number);
            volatile.entry(block).or_default().push(number);
        }
        Ok(CrashTime { kept, volatile })
    }
}

fn check_limit(what: &'static str, asked: u64, limit: usize) -> Result<(), ExploreError> {
    if asked > limit as u64 {
        return Err(ExploreError::Limit { what, asked, limit });
    }
    Ok(())
}

/// What a block may hold at the crash time.
struct Block {
    /// Its volatile chunks.
    chunks: Vec<u32>,
    /// Hashes of its distinct contents.
    contents: Vec<u128>,
    /// For each content the volatile chunks that are lost, as few as possible.
    lost: Vec<Vec<u32>>,
    /// The contents of the two defaults.
    defaults: [usize; 2],
    /// It may hold more than these: see [`Block::narrow`].
    crowded: bool,
}

impl Block {
    /// Without volatile chunks.
    fn fixed(content: u128) -> Self {
        Block {
            chunks: Vec::new(),
            contents: vec![content],
            lost: vec![Vec::new()],
            defaults: [0, 0],
            crowded: false,
        }
    }

    /// What the block may hold, or, where that is more than the limit, a few contents of it.
    fn of(index: &Index, kept: &Recipe, slot: u32, chunks: &[u32]) -> Self {
        let all = Self::folded(index, kept, slot, chunks);
        all.unwrap_or_else(|| Self::narrow(index, kept, slot, chunks))
    }

    /// The contents of a block with more of them than the limit in which at most one chunk has another fate than in
    /// one of the defaults.
    fn narrow(index: &Index, kept: &Recipe, slot: u32, chunks: &[u32]) -> Self {
        let mut block = Self::fixed(0);
        (block.chunks, block.crowded) = (chunks.to_vec(), true);
        (block.contents, block.lost) = (Vec::new(), Vec::new());
        let but = |alone: u32| chunks.iter().copied().filter(move |other| *other != alone);
        let one_kept = chunks.iter().map(|alone| but(*alone).collect());
        let one_lost = chunks.iter().map(|alone| vec![*alone]);
        let defaults = [chunks.to_vec(), Vec::new()];
        let all = defaults.into_iter().chain(one_kept).chain(one_lost);
        for (number, lost) in all.enumerate() {
            let hash = content(index, kept, slot, chunks, &lost);
            let known = block.contents.iter().position(|known| *known == hash);
            let at = known.unwrap_or(block.contents.len());
            if known.is_none() {
                block.contents.push(hash);
                block.lost.push(lost);
            }
            if let Some(default) = block.defaults.get_mut(number) {
                *default = at;
            }
        }
        block
    }

    /// Follow the block through its chunks: each volatile one doubles the ways, equal contents fold. None: there are
    /// more contents, or ways to them, than the limit.
    fn folded(index: &Index, kept: &Recipe, slot: u32, chunks: &[u32]) -> Option<Self> {
        let start = index.contents_below(kept, chunks[0], slot);
        let mut ways = Ways::new(start);
        let mut all_kept = start;
        for number in index.persisted(kept, slot, chunks[0]) {
            index.apply(number, slot, &mut all_kept);
            let after = |contents: Contents| {
                let mut contents = contents;
                index.apply(number, slot, &mut contents);
                contents
            };
            let in_bounds = match chunks.binary_search(&number) {
                Ok(_) => ways.branch(number, after),
                Err(_) => ways.advance(after),
            };
            if !in_bounds {
                return None;
            }
        }
        let kept_at = ways.at[&all_kept];
        let number = index.block(slot);
        let look = |way: &Way| index.normalized(number, way.contents.hash());
        Some(Block {
            chunks: chunks.to_vec(),
            contents: ways.all.iter().map(look).collect(),
            lost: ways.all.iter().map(|way| ways.lost(way)).collect(),
            // every step keeps the order of the ways, and the first one has lost all
            defaults: [0, kept_at],
            crowded: false,
        })
    }

    /// Chunks whose fate in this content is not that of the default.
    fn exceptions(&self, content: usize, default: usize) -> Vec<u32> {
        let lost = &self.lost[content];
        if content == self.defaults[default] {
            Vec::new()
        } else if default == KEPT {
            lost.clone()
        } else {
            let kept = |number: &&u32| lost.binary_search(number).is_err();
            self.chunks.iter().filter(kept).copied().collect()
        }
    }
}

/// The content of a block that has lost these of its volatile chunks.
fn content(index: &Index, kept: &Recipe, slot: u32, chunks: &[u32], lost: &[u32]) -> u128 {
    let mut contents = index.contents_below(kept, chunks[0], slot);
    for number in index.persisted(kept, slot, chunks[0]) {
        if lost.binary_search(&number).is_err() {
            index.apply(number, slot, &mut contents);
        }
    }
    index.normalized(index.block(slot), contents.hash())
}

/// The contents that a block may have after some of its chunks.
struct Ways {
    all: Vec<Way>,
    at: HashMap<Contents, usize>,
    /// Lost chunks as lists that share their beginnings: a chunk, and the list before it.
    lists: Vec<(u32, Option<u32>)>,
    steps: usize,
}

#[derive(Clone, Copy)]
struct Way {
    contents: Contents,
    /// In `lists`, and its length.
    lost: Option<u32>,
    lost_count: u32,
}

impl Ways {
    fn new(start: Contents) -> Self {
        let way = Way {
            contents: start,
            lost: None,
            lost_count: 0,
        };
        Ways {
            all: vec![way],
            at: HashMap::from([(start, 0)]),
            lists: Vec::new(),
            steps: 0,
        }
    }

    /// Every way goes through a chunk that persisted. Returns false if there are more ways than the limit.
    fn advance(&mut self, after: impl Fn(Contents) -> Contents) -> bool {
        let before = std::mem::take(&mut self.all);
        self.at.clear();
        for way in before {
            self.add(Way {
                contents: after(way.contents),
                ..way
            });
        }
        self.is_in_bounds()
    }

    /// Every way goes on without chunk `number` and with it. Returns false if there are more than the limit.
    fn branch(&mut self, number: u32, after: impl Fn(Contents) -> Contents) -> bool {
        let before = std::mem::take(&mut self.all);
        self.at.clear();
        for way in &before {
            self.lists.push((number, way.lost));
            self.add(Way {
                contents: way.contents,
                lost: Some((self.lists.len() - 1) as u32),
                lost_count: way.lost_count + 1,
            });
        }
        for way in before {
            self.add(Way {
                contents: after(way.contents),
                ..way
            });
        }
        self.is_in_bounds()
    }

    /// Of two ways to one content, the one that loses less stays, in the place of the first.
    fn add(&mut self, way: Way) {
        self.steps += 1;
        let at = *self.at.entry(way.contents).or_insert(self.all.len());
        match self.all.get_mut(at) {
            None => self.all.push(way),
            Some(known) if way.lost_count < known.lost_count => *known = way,
            Some(_) => {}
        }
    }

    fn is_in_bounds(&self) -> bool {
        self.all.len() <= limits::CONTENTS && self.steps <= WAYS_MAX
    }

    /// The chunks that a way has lost, ascending.
    fn lost(&self, way: &Way) -> Vec<u32> {
        let mut lost = Vec::new();
        let mut next = way.lost;
        while let Some(at) = next {
            let (number, before) = self.lists[at as usize];
            lost.push(number);
            next = before;
        }
        lost.reverse();
        lost
    }
}

/// A block with several contents on the current path.
struct Frame {
    number: u64,
    block: Rc<Block>,
    /// Where the tree tests it.
    place: Place,
    data: bool,
    /// On the path before this block.
    deviations: Deviations,
    /// The content to choose next; the one before it is that of the current path.
    next: usize,
}

impl Frame {
    /// With `content` chosen here.
    fn deviations_with(&self, content: usize) -> Deviations {
        let mut deviations = self.deviations;
        for default in [LOST, KEPT] {
            if content == self.block.defaults[default] {
                continue;
            }
            if self.data {
                deviations.follows[default] = false;
            } else {
                deviations.counts[default] += 1;
            }
        }
        deviations
    }
}

/// How a path deviates from the two defaults.
#[derive(Clone, Copy)]
struct Deviations {
    /// From each, but in data blocks.
    counts: [u64; 2],
    /// Whether it has the contents of this one in all data blocks.
    follows: [bool; 2],
    /// Whether one default may be followed in data while another one is nearer.
    together: bool,
}

impl Deviations {
    fn none(bounds: &Bounds) -> Self {
        Deviations {
            counts: [0, 0],
            follows: [true, true],
            together: bounds.data_together,
        }
    }

    /// Whether the path follows any default in its data blocks.
    fn in_reach(self) -> bool {
        self.follows[LOST] || self.follows[KEPT]
    }

    /// The default that the path follows in its data blocks; if it follows both, the one that it deviates from less
    /// often; the one that keeps everything if that is equal, too.
    fn nearer(self) -> usize {
        let [lost, kept] = self.follows;
        if kept && (!lost || self.counts[KEPT] <= self.counts[LOST]) {
            KEPT
        } else {
            LOST
        }
    }

    /// What counts against the bound.
    fn least(self) -> u64 {
        let [lost, kept] = self.counts;
        if self.together {
            lost.min(kept)
        } else {
            self.counts[self.nearer()]
        }
    }
}

struct Walk<'w, 's> {
    shared: &'w mut Shared<'s>,
    crash_time: CrashTime,
    known: HashMap<u64, Rc<Block>>,
    /// The blocks with several contents on the current path, in order.
    frames: Vec<Frame>,
    /// In `explored.known_outcomes`, by the place of the outcome.
    known_at: HashMap<Place, usize>,
    explored: ExploredCrashTime,
}

impl<'w, 's> Walk<'w, 's> {
    fn of(shared: &'w mut Shared<'s>, crash_time: CrashTime) -> Self {
        Walk {
            shared,
            crash_time,
            known: HashMap::new(),
            frames: Vec::new(),
            known_at: HashMap::new(),
            explored: ExploredCrashTime::default(),
        }
    }

    /// Depth first, with `frames` as the stack.
    fn run(mut self) -> Answer<ExploredCrashTime> {
        let none = Deviations::none(self.shared.bounds);
        self.descend(self.shared.memo.root(), none)?;
        while !self.shared.has_enough_to_visit() {
            let Some(frame) = self.frames.last_mut() else {
                break;
            };
            let content = frame.next;
            if content == frame.block.contents.len() {
                self.frames.pop();
                continue;
            }
            frame.next += 1;
            let deviations = frame.deviations_with(content);
            if !deviations.in_reach() {
                continue; // a data block of neither default: a state of its own
            }
            let (place, hash) = (frame.place, frame.block.contents[content]);
            if deviations.least() > self.shared.bounds.losses || self.shared.has_enough_known() {
                self.explored.unexplored += 1;
                continue;
            }
            match self.shared.memo.follow(place, hash) {
                Some(next) => self.descend(next, deviations)?,
                None => self.want(place, hash, deviations, None)?,
            }
        }
        self.explored.waits |= !self.frames.is_empty() && self.explored.to_visit.is_empty();
        Ok(self.explored)
    }

    /// Go on from `place` to the next block with several contents, or to the end.
    fn descend(&mut self, mut place: Place, deviations: Deviations) -> Answer<()> {
        loop {
            let read = match self.shared.memo.at(place) {
                Found::Nothing => return self.want(place, 0, deviations, None),
                Found::Outcome(outcome) => return self.reach(place, outcome, deviations),
                Found::Test(read) => read,
            };
            let block = self.block(read.block);
            let content = match (self.chosen(read.block), block.contents.len()) {
                (Some(content), _) => content,
                (None, 1) => 0,
                (None, _) => {
                    self.frames.push(Frame {
                        number: read.block,
                        block,
                        place,
                        data: read.data && self.shared.bounds.separate_data,
                        deviations,
                        next: 0,
                    });
                    return Ok(());
                }
            };
            let hash = block.contents[content];
            match self.shared.memo.follow(place, hash) {
                Some(next) => place = next,
                None => return self.want(place, hash, deviations, None),
            }
        }
    }

    fn block(&mut self, number: u64) -> Rc<Block> {
        if let Some(known) = self.known.get(&number) {
            return Rc::clone(known);
        }
        let kept = &self.crash_time.kept;
        let volatile = self.crash_time.volatile.get(&number);
        let block = Rc::new(match (volatile, self.shared.index.slot(number)) {
            (Some(chunks), Some(slot)) => Block::of(self.shared.index, kept, slot, chunks),
            _ => Block::fixed(self.shared.index.look(kept, number)),
        });
        self.explored.crowded += u64::from(block.crowded);
        self.known.insert(number, Rc::clone(&block));
        block
    }

    /// The content that the current path has chosen for a block.
    fn chosen(&self, number: u64) -> Option<usize> {
        let frame = self.frames.iter().find(|frame| frame.number == number)?;
        Some(frame.next - 1)
    }

    /// The tree has no answer for the test at `place` with this content. `other`: see [`Walk::choice`].
    fn want(
        &mut self,
        place: Place,
        content: u128,
        deviations: Deviations,
        other: Option<(usize, usize)>,
    ) -> Answer<()> {
        if self.shared.has_enough_to_visit() {
            self.explored.waits = true;
            return Ok(());
        }
        let number = self.shared.number;
        if let Some(first) = self.shared.ends.get(&(place, content)) {
            self.explored.waits |= *first != number;
            return Ok(());
        }
        self.shared.ends.insert((place, content), number);
        let choice = self.choice(deviations.nearer(), other)?;
        self.explored.to_visit.push(choice);
        self.shared.to_visit += 1;
        Ok(())
    }

    /// The path ends in an outcome.
    fn reach(&mut self, place: Place, outcome: u64, deviations: Deviations) -> Answer<()> {
        let default = deviations.nearer();
        match self.known_at.get(&place) {
            Some(known) => {
                // found before as a state with another content of a data block
                let known_outcome = &mut self.explored.known_outcomes[*known];
                (known_outcome.data, known_outcome.losses) = (false, deviations.least());
            }
            None if self.shared.has_enough_known() => self.explored.unexplored += 1,
            None => {
                let choice = self.choice(default, None)?;
                self.known_at
                    .insert(place, self.explored.known_outcomes.len());
                self.shared.known_outcomes += 1;
                self.explored.known_outcomes.push(KnownOutcome {
                    outcome,
                    choice,
                    data: false,
                    losses: deviations.least(),
                });
            }
        }
        for at in 0..self.frames.len() {
            if self.frames[at].data {
                self.change_data(at, deviations)?;
            }
        }
        Ok(())
    }

    /// The states that differ from the current path in the data block of one frame.
    fn change_data(&mut self, at: usize, deviations: Deviations) -> Answer<()> {
        let default = deviations.nearer();
        let chosen = self.frames[at].next - 1;
        let followed = self.shared.bounds.data_together;
        for content in 0..self.frames[at].block.contents.len() {
            if content == chosen || self.shared.has_enough_to_visit() {
                continue;
            }
            if followed && self.frames[at].block.defaults.contains(&content) {
                continue; // the path that follows the other default has it
            }
            let (place, found) = self.walk_with(at, content, default)?;
            match found {
                Ok(_) if self.known_at.contains_key(&place) => {}
                _ if self.shared.has_enough_known() => self.explored.unexplored += 1,
                Ok(outcome) => {
                    let choice = self.choice(default, Some((at, content)))?;
                    self.known_at
                        .insert(place, self.explored.known_outcomes.len());
                    self.shared.known_outcomes += 1;
                    self.explored.known_outcomes.push(KnownOutcome {
                        outcome,
                        choice,
                        data: true,
                        losses: deviations.least(),
                    });
                }
                Err(hash) => self.want(place, hash, deviations, Some((at, content)))?,
            }
        }
        Ok(())
    }

    /// Where the state of the current path leads, with another content in one frame and the default in every
    /// block that the path has not read: to an outcome, or to a test that has no answer for this content.
    fn walk_with(
        &mut self,
        changed: usize,
        content: usize,
        default: usize,
    ) -> Answer<(Place, Result<u64, u128>)> {
        let mut place = self.frames[changed].place;
        loop {
            let number = match self.shared.memo.at(place) {
                Found::Nothing => return Ok((place, Err(0))),
                Found::Outcome(outcome) => return Ok((place, Ok(outcome))),
                Found::Test(read) => read.block,
            };
            let block = self.block(number);
            let content = if number == self.frames[changed].number {
                content
            } else {
                self.chosen(number).unwrap_or(block.defaults[default])
            };
            let hash = block.contents[content];
            match self.shared.memo.follow(place, hash) {
                Some(next) => place = next,
                None => return Ok((place, Err(hash))),
            }
        }
    }

    /// The state of the current path. `other`: a frame with another content than the path's.
    fn choice(&mut self, default: usize, other: Option<(usize, usize)>) -> Answer<Choice> {
        let mut except = Vec::new();
        for (at, frame) in self.frames.iter().enumerate() {
            let content = match other {
                Some((changed, content)) if changed == at => content,
                _ => frame.next - 1,
            };
            let exceptions = frame.block.exceptions(content, default);
            except.extend(exceptions.into_iter().map(u64::from));
        }
        except.sort_unstable();
        self.shared.named += except.len();
        if self.shared.named > NAMED_MAX {
            return Err(ExploreError::TooLong { limit: NAMED_MAX }.into());
        }
        Ok(Choice {
            kept: default == KEPT,
            except,
        })
    }
}
