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
//! counts as out of reach unless both are followed in turn (`data_together`). Each other content of a data block is a
//! state of its own, within one loss if one chunk makes it of a default, within two otherwise.

use std::{collections::HashMap, rc::Rc};

use powercut_protocol::{limits, Choice, ExploredCrashTime, KnownOutcome, State};

use crate::{
    alternatives::{Block, History, KEPT, LOST},
    error::ExploreError,
    index::Index,
    memo::{Found, Memo, Place},
    recipe::Recipe,
    Answer,
};

/// Steps, each of some 100 ns, after which the crash times that are left wait: nobody waits long for an answer.
const STEPS_MAX: usize = 1 << 22;
/// Chunks that an answer may name in all.
const NAMED_MAX: usize = 1 << 20;
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
    /// By block, what was last found out, with what that depends on: most crash times differ in few blocks from the one
    /// before.
    blocks: HashMap<u64, (History, Rc<Block>)>,
    steps: usize,
}

impl Shared<'_> {
    /// What the block of `slot` may hold.
    fn block(&mut self, slot: u32, history: History) -> Rc<Block> {
        let number = self.index.block(slot);
        if let Some((same, block)) = self.blocks.get(&number) {
            if *same == history {
                return Rc::clone(block);
            }
        }
        let block = Rc::new(Block::of(self.index, slot, &history));
        self.steps += block.steps;
        self.blocks.insert(number, (history, Rc::clone(&block)));
        block
    }

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
        blocks: HashMap::new(),
        steps: 0,
    };
    let mut answer: Vec<ExploredCrashTime> = Vec::new();
    for asked in crash_times {
        let crash_time = CrashTime::of(index, asked)?;
        let full =
            shared.has_enough_to_visit() || shared.has_enough_known() || shared.steps > STEPS_MAX;
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
            self.shared.steps += 1;
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
        let (index, kept) = (self.shared.index, &self.crash_time.kept);
        let volatile = self.crash_time.volatile.get(&number);
        let block = match (volatile, index.slot(number)) {
            (Some(chunks), Some(slot)) => {
                let history = History::of(index, kept, slot, chunks);
                self.shared.block(slot, history)
            }
            _ => Rc::new(Block::fixed(index.look(kept, number))),
        };
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

    /// The states that differ from the current path in the data block of one frame, as far as its contents are within
    /// the bound: a block may have 65,536 of them, of which each is a visit.
    fn change_data(&mut self, at: usize, deviations: Deviations) -> Answer<()> {
        let default = deviations.nearer();
        let chosen = self.frames[at].next - 1;
        let followed = self.shared.bounds.data_together;
        let block = &self.frames[at].block;
        let within = block.within(self.shared.bounds.losses);
        self.explored.unexplored += (block.contents.len() - within.len()) as u64;
        for content in within {
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
            self.shared.steps += 1;
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
