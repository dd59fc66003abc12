//! What a block may hold at a crash time: the distinct contents that its volatile chunks give it, each of which may
//! have persisted or not.

use std::collections::{HashMap, HashSet};

use powercut_protocol::limits;

use crate::{
    index::{Contents, Index, Overwrite},
    recipe::Recipe,
};

/// Steps of finding the distinct contents of a block: 64 Ki contents of one chunk each to 16 of 4 Mi.
const WAYS_MAX: usize = 1 << 22;
/// The two defaults, as indices.
pub const LOST: usize = 0;
pub const KEPT: usize = 1;

/// All that the alternatives of a block depend on.
#[derive(PartialEq)]
pub struct History {
    /// What it holds before its first volatile chunk.
    start: Contents,
    /// The volatile chunks.
    volatile: Vec<u32>,
    /// All from the first of these on that have persisted if they have, ascending.
    persisted: Vec<u32>,
}

impl History {
    /// `kept`: the state in which all of `volatile` persisted, which ascend and are not empty.
    #[must_use]
    pub fn of(index: &Index, kept: &Recipe, slot: u32, volatile: &[u32]) -> Self {
        History {
            start: index.contents_below(kept, volatile[0], slot),
            volatile: volatile.to_vec(),
            persisted: index.persisted(kept, slot, volatile[0]).collect(),
        }
    }

    fn steps(&self, index: &Index, slot: u32) -> Vec<Step> {
        let of_each = self.persisted.iter().map(|number| Step {
            change: index.change(*number, slot),
            is_volatile: self.volatile.binary_search(number).is_ok(),
        });
        of_each.collect()
    }
}

struct Step {
    change: Overwrite,
    is_volatile: bool,
}

/// Volatile chunks of a block by their places among them: those of a list of ranges, and all from one on.
#[derive(Clone, Copy)]
struct Lost {
    /// The last range of the list.
    ranges: Option<u32>,
    from: u32,
}

/// Places, and the range before them.
struct Range {
    from: u32,
    to: u32,
    before: Option<u32>,
}

/// The contents of a block.
pub struct Block {
    /// Its volatile chunks.
    chunks: Vec<u32>,
    /// Hashes of its distinct contents.
    pub contents: Vec<u128>,
    /// For each content the volatile chunks that are lost, as few as possible.
    lost: Vec<Lost>,
    /// The lists of `lost`, which share their beginnings: the lists of n writes name n² / 2 chunks.
    ranges: Vec<Range>,
    /// The contents of the two defaults.
    pub defaults: [usize; 2],
    /// The contents in which at most one chunk has another fate than in one of the defaults.
    near: Vec<usize>,
    /// It may hold more than these: see [`Block::narrow`].
    pub crowded: bool,
    /// How many it took to find them.
    pub steps: usize,
}

impl Block {
    /// Without volatile chunks.
    #[must_use]
    pub fn fixed(content: u128) -> Self {
        Block {
            chunks: Vec::new(),
            contents: vec![content],
            lost: vec![Lost {
                ranges: None,
                from: 0,
            }],
            ranges: Vec::new(),
            defaults: [0, 0],
            near: vec![0],
            crowded: false,
            steps: 0,
        }
    }

    /// What the block may hold, or, where that is more than the limit, a few contents of it.
    #[must_use]
    pub fn of(index: &Index, slot: u32, history: &History) -> Self {
        let number = index.block(slot);
        let steps = history.steps(index, slot);
        let few: Vec<u128> = but_for_one(history.start, &steps)
            .map(|contents| index.normalized(number, contents.hash()))
            .collect();
        let mut block = match Ways::through(history.start, &steps) {
            Ok((ways, kept)) => Block {
                chunks: history.volatile.clone(),
                contents: ways
                    .all
                    .iter()
                    .map(|way| index.normalized(number, way.contents.hash()))
                    .collect(),
                lost: ways.all.iter().map(|way| way.lost).collect(),
                ranges: ways.ranges,
                // every step keeps the order of the ways, and the first one has lost all
                defaults: [0, kept],
                near: Vec::new(),
                crowded: false,
                steps: ways.steps,
            },
            Err(tried) => Self::narrow(&history.volatile, &few, tried),
        };
        let few: HashSet<u128> = few.into_iter().collect();
        let near = (0..block.contents.len()).filter(|at| few.contains(&block.contents[*at]));
        block.near = near.collect();
        block.steps += steps.len();
        block
    }

    /// The contents of a block with more of them than the limit in which at most one chunk has another fate than in
    /// one of the defaults. `few`: see [`but_for_one`]; `tried`: the steps by which there were too many.
    fn narrow(chunks: &[u32], few: &[u128], tried: usize) -> Self {
        let mut block = Self::fixed(0);
        (block.chunks, block.crowded) = (chunks.to_vec(), true);
        (block.contents, block.lost) = (Vec::new(), Vec::new());
        block.steps = tried;
        let end = chunks.len() as u32;
        let defaults = [(0, 0, 0), (0, 0, end)];
        let one_kept = (0..end).map(|place| (0, place, place + 1));
        let one_lost = (0..end).map(|place| (place, place + 1, end));
        let all = defaults.into_iter().chain(one_kept).chain(one_lost);
        let mut at = HashMap::new();
        for (number, (hash, (first, to, from))) in few.iter().zip(all).enumerate() {
            let known = *at.entry(*hash).or_insert(block.contents.len());
            if known == block.contents.len() {
                let ranges = add_range(&mut block.ranges, first, to, None);
                block.contents.push(*hash);
                block.lost.push(Lost { ranges, from });
            }
            if let Some(default) = block.defaults.get_mut(number) {
                *default = known;
            }
        }
        block
    }

    /// The contents within so many losses where the block is looked at alone: the defaults, what one chunk of another
    /// fate makes of them, all.
    #[must_use]
    pub fn within(&self, losses: u64) -> Vec<usize> {
        let mut defaults = self.defaults.to_vec();
        defaults.sort_unstable();
        defaults.dedup();
        match losses {
            0 => defaults,
            1 => self.near.clone(),
            _ => (0..self.contents.len()).collect(),
        }
    }

    /// Chunks whose fate in this content is not that of the default.
    #[must_use]
    pub fn exceptions(&self, content: usize, default: usize) -> Vec<u32> {
        if content == self.defaults[default] {
            return Vec::new();
        }
        let lost = self.lost(content);
        if default == KEPT {
            return lost;
        }
        let kept = |number: &&u32| lost.binary_search(number).is_err();
        self.chunks.iter().filter(kept).copied().collect()
    }

    /// The chunks that are lost in this content, ascending.
    fn lost(&self, content: usize) -> Vec<u32> {
        let Lost { mut ranges, from } = self.lost[content];
        let mut parts = vec![&self.chunks[from as usize..]];
        while let Some(at) = ranges {
            let range = &self.ranges[at as usize];
            parts.push(&self.chunks[range.from as usize..range.to as usize]);
            ranges = range.before;
        }
        parts.reverse();
        parts.concat()
    }
}

/// A list with one more range, if that has places.
fn add_range(ranges: &mut Vec<Range>, from: u32, to: u32, before: Option<u32>) -> Option<u32> {
    if from == to {
        return before;
    }
    ranges.push(Range { from, to, before });
    Some(ranges.len() as u32 - 1)
}

/// What the block holds by the two defaults, then with one volatile chunk kept alone, then with one lost alone.
fn but_for_one(start: Contents, steps: &[Step]) -> impl Iterator<Item = Contents> {
    let default = |kept: bool| {
        let persisted = steps.iter().filter(|step| kept || !step.is_volatile);
        persisted.fold(start, |contents, step| step.change.on(contents))
    };
    let of_defaults = [default(false), default(true)].into_iter();
    of_defaults
        .chain(but_one(start, steps, false))
        .chain(but_one(start, steps, true))
}

/// What the block holds if one of the volatile chunks, each in turn, has another fate than the others.
fn but_one(start: Contents, steps: &[Step], kept: bool) -> Vec<Contents> {
    let persists = |step: &Step| kept || !step.is_volatile;
    let (mut behind, mut later) = (Vec::new(), Overwrite::default());
    for step in steps.iter().rev() {
        if step.is_volatile {
            behind.push(later);
        }
        if persists(step) {
            later = step.change.then(&later);
        }
    }
    let (mut found, mut before) = (Vec::new(), start);
    for step in steps {
        let after = step.change.on(before);
        if step.is_volatile {
            let later = behind.pop().unwrap_or_default();
            found.push(later.on(if kept { before } else { after }));
        }
        if persists(step) {
            before = after;
        }
    }
    found
}

/// The contents that a block may have after some of its chunks.
struct Ways {
    all: Vec<Way>,
    at: HashMap<Contents, usize>,
    /// The first of those that lose least.
    least: usize,
    ranges: Vec<Range>,
    steps: usize,
}

/// It has lost every volatile chunk since the last one that it kept, so one that is lost changes nothing here.
#[derive(Clone, Copy)]
struct Way {
    contents: Contents,
    lost: Lost,
    /// How many the ranges of `lost` name.
    count: u32,
}

impl Way {
    /// The less, the fewer chunks it has lost.
    fn losses(&self) -> i64 {
        i64::from(self.count) - i64::from(self.lost.from)
    }
}

impl Ways {
    /// Follow the block through its chunks: each volatile one doubles the ways, equal contents fold. Returns the ways
    /// and the one that has kept all; an error with the steps until then if there are more contents, or ways to them,
    /// than the limit.
    fn through(start: Contents, steps: &[Step]) -> Result<(Self, usize), usize> {
        let mut ways = Ways {
            all: Vec::new(),
            at: HashMap::new(),
            least: 0,
            ranges: Vec::new(),
            steps: 0,
        };
        ways.add(Way {
            contents: start,
            lost: Lost {
                ranges: None,
                from: 0,
            },
            count: 0,
        });
        let (mut all_kept, mut place) = (start, 0);
        for step in steps {
            all_kept = step.change.on(all_kept);
            if step.is_volatile {
                ways.branch(place, &step.change);
                place += 1;
            } else {
                ways.advance(&step.change);
            }
            if ways.all.len() > limits::CONTENTS || ways.steps > WAYS_MAX {
                return Err(ways.steps);
            }
        }
        let kept = ways.at[&all_kept];
        Ok((ways, kept))
    }

    /// The ways that lead on through a change: of a whole block all lead to one content, and the one that loses least
    /// stands for them.
    fn leading_on(&self, change: &Overwrite) -> Vec<Way> {
        if change.is_whole() {
            vec![self.all[self.least]]
        } else {
            self.all.clone()
        }
    }

    /// Every way goes through a chunk that persisted.
    fn advance(&mut self, change: &Overwrite) {
        let before = self.leading_on(change);
        self.all.clear();
        self.at.clear();
        self.least = 0;
        for way in before {
            self.add(Way {
                contents: change.on(way.contents),
                ..way
            });
        }
    }

    /// Every way goes on without the volatile chunk of this place and with it.
    fn branch(&mut self, place: u32, change: &Overwrite) {
        for way in self.leading_on(change) {
            let ranges = add_range(&mut self.ranges, way.lost.from, place, way.lost.ranges);
            self.add(Way {
                contents: change.on(way.contents),
                lost: Lost {
                    ranges,
                    from: place + 1,
                },
                count: way.count + place - way.lost.from,
            });
        }
    }

    /// Of two ways to one content, the one that loses less stays, in the place of the first.
    fn add(&mut self, way: Way) {
        self.steps += 1;
        let at = *self.at.entry(way.contents).or_insert(self.all.len());
        match self.all.get_mut(at) {
            None => self.all.push(way),
            Some(known) if way.losses() < known.losses() => *known = way,
            Some(_) => {}
        }
        let order = |at: usize| (self.all[at].losses(), at);
        if order(at) < order(self.least) {
            self.least = at;
        }
    }
}
