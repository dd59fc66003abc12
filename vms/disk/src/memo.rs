//! Recalls outcomes of states without a guest.
//!
//! Recovery, walk and fsck are deterministic: their result depends only on the blocks of the state that
//! they read. So a state that agrees with an earlier one on every block that was read there has the same
//! outcome. A block does not count as read *of the state* if the guest had already overwritten every sector
//! that it read.
//!
//! A content is a hash against the base image, 0 for what the base holds. So blocks that the log never changes
//! cost little, and what was remembered with one log holds for every other log on the same base.
//!
//! The remembered visits form a decision tree. A node tests the content of some blocks in turn, each of
//! which has one value that leads on; at the last one the tree may branch, or end in an outcome. The path
//! to an outcome holds all blocks that its visit read, and maybe more: a visit that follows a path laid
//! by others is put below it even if that path tests blocks that the visit never read. That costs hits,
//! never correctness, so the order of reads may differ between visits.
//!
//! Not checked: that outcomes are deterministic. `remember` reports when a visit ends where another one
//! did, so that the host can compare the two.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

use crate::BlockMap;

/// Blocks of one visit that a memo may hold for other logs' sake.
const OTHERS_MAX: usize = 1 << 13;

/// A block that a visit read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    pub block: u64,
    /// Whether it was read in the walk's data phase alone.
    pub data: bool,
}

/// The blocks read since the last switch, in order of first read.
#[derive(Default)]
pub struct ReadSet {
    order: Vec<Read>,
    /// The place in `order` of each block.
    places: BlockMap<usize>,
}

impl ReadSet {
    /// Forget all.
    pub fn clear(&mut self) {
        // new ones, so that one state of which a lot was read does not slow down every later clear
        *self = Self::default();
    }

    /// Record that a block was read. `data`: in the walk's data phase.
    pub fn add(&mut self, block: u64, data: bool) {
        let next = self.order.len();
        match *self.places.entry(block).or_insert(next) {
            at if at < next => self.order[at].data &= data,
            _ => self.order.push(Read { block, data }),
        }
    }

    #[must_use]
    pub fn reads(&self) -> &[Read] {
        &self.order
    }
}

enum End {
    /// The outcome, once all steps agree.
    KnownOutcome(u64),
    /// The next node, by the content of one more block.
    Branch(Read, HashMap<u128, u32>),
}

struct Node {
    /// In `tests` and `contents`.
    steps: Range<usize>,
    end: End,
}

/// A place in the tree: in front of a step of a node, or at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    node: u32,
    step: usize,
}

/// What the tree has at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// No visit has been remembered yet.
    Nothing,
    /// A block whose content decides where to go. `data`: no visit that came here read it for anything but data.
    Test(Read),
    Outcome(u64),
}

/// The decision tree.
#[derive(Default)]
pub struct Memo {
    nodes: Vec<Node>,
    tests: Vec<Read>,
    contents: Vec<u128>,
    /// See [`Memo::is_local`].
    local: bool,
}

impl Memo {
    /// Whether it holds for the log alone with which it was made: a visit read too many blocks that this log does
    /// not change, and they were left out.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.local
    }

    /// Those of `reads` that have to be remembered. `changes`: whether the log changes a block.
    pub fn relevant(&mut self, reads: &[Read], changes: impl Fn(u64) -> bool) -> Vec<Read> {
        let others = reads.iter().filter(|read| !changes(read.block)).count();
        self.local |= others > OTHERS_MAX;
        let local = self.local;
        let kept = reads.iter().filter(|read| !local || changes(read.block));
        kept.copied().collect()
    }

    /// Where every walk begins.
    #[must_use]
    pub fn root(&self) -> Place {
        let step = self.nodes.first().map_or(0, |node| node.steps.start);
        Place { node: 0, step }
    }

    /// What is at `place`.
    #[must_use]
    pub fn at(&self, place: Place) -> Found {
        let Some(node) = self.nodes.get(place.node as usize) else {
            return Found::Nothing;
        };
        if place.step < node.steps.end {
            return Found::Test(self.tests[place.step]);
        }
        match &node.end {
            End::KnownOutcome(outcome) => Found::Outcome(*outcome),
            End::Branch(read, _) => Found::Test(*read),
        }
    }

    /// The place behind the test at `place` for a block of this content; None if no visit had one.
    #[must_use]
    pub fn follow(&self, place: Place, content: u128) -> Option<Place> {
        let node = self.nodes.get(place.node as usize)?;
        if place.step < node.steps.end {
            let next = Place {
                step: place.step + 1,
                ..place
            };
            return (self.contents[place.step] == content).then_some(next);
        }
        match &node.end {
            End::KnownOutcome(_) => None,
            End::Branch(_, children) => children.get(&content).map(|child| self.start(*child)),
        }
    }

    fn start(&self, node: u32) -> Place {
        let step = self.nodes[node as usize].steps.start;
        Place { node, step }
    }

    /// The outcome of a remembered state that agrees with this one on everything that was read there.
    /// `content` returns the hash of a block in this state.
    #[cfg(test)]
    pub fn recall(&self, content: impl Fn(u64) -> u128) -> Option<u64> {
        match self.at(self.walk(self.root(), content, |_, _| ())) {
            Found::Outcome(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// Descend from `place` as far as contents agree; calls `tested` with each test passed or failed. Returns the
    /// outcome's place, or that of the test where no visit had this state's content.
    pub fn walk(
        &self,
        mut place: Place,
        content: impl Fn(u64) -> u128,
        mut tested: impl FnMut(Place, Read),
    ) -> Place {
        while let Found::Test(read) = self.at(place) {
            tested(place, read);
            match self.follow(place, content(read.block)) {
                Some(next) => place = next,
                None => break,
            }
        }
        place
    }

    /// Keep `outcome` for the state whose blocks hold `content` and of which `reads` were read. If an outcome
    /// is already recalled for this state, returns that one and adds nothing.
    pub fn remember(
        &mut self,
        reads: &[Read],
        content: impl Fn(u64) -> u128,
        outcome: u64,
    ) -> Option<u64> {
        let mut passed = Vec::new();
        let place = self.walk(self.root(), &content, |at, read| passed.push((at, read)));
        self.mark_other_than_data(&passed, reads);
        let found = self.at(place);
        if let Found::Outcome(earlier) = found {
            return Some(earlier);
        }
        let tested: HashSet<u64> = passed.iter().map(|(_, read)| read.block).collect();
        let start = self.tests.len();
        for read in reads.iter().filter(|read| !tested.contains(&read.block)) {
            self.tests.push(*read);
            self.contents.push(content(read.block));
        }
        let leaf = self.push(start..self.tests.len(), End::KnownOutcome(outcome));
        if let Found::Test(test) = found {
            self.branch(place, content(test.block), leaf);
        }
        None
    }

    /// A test on the path of a visit that read its block for more than data is not one of data.
    fn mark_other_than_data(&mut self, passed: &[(Place, Read)], reads: &[Read]) {
        if !passed.iter().any(|(_, test)| test.data) {
            return;
        }
        let others = reads.iter().filter(|read| !read.data);
        let others: HashSet<u64> = others.map(|read| read.block).collect();
        for (place, test) in passed {
            if test.data && others.contains(&test.block) {
                self.test_at(*place).data = false;
            }
        }
    }

    fn test_at(&mut self, place: Place) -> &mut Read {
        let node = &mut self.nodes[place.node as usize];
        match &mut node.end {
            End::Branch(read, _) if place.step == node.steps.end => read,
            _ => &mut self.tests[place.step],
        }
    }

    fn push(&mut self, steps: Range<usize>, end: End) -> u32 {
        self.nodes.push(Node { steps, end });
        (self.nodes.len() - 1) as u32
    }

    /// Lead from the test at `place` to node `to` for the content `found`, which leads nowhere yet.
    fn branch(&mut self, place: Place, found: u128, to: u32) {
        let Place { node, step } = place;
        if step < self.nodes[node as usize].steps.end {
            self.split(node, step);
        }
        if let End::Branch(_, children) = &mut self.nodes[node as usize].end {
            children.insert(found, to);
        }
    }

    /// Make `node` end with a branch at `step`, which leads to what came after it.
    fn split(&mut self, node: u32, step: usize) {
        let branch = End::Branch(self.tests[step], HashMap::new());
        let old = &mut self.nodes[node as usize];
        let after = step + 1..old.steps.end;
        old.steps.end = step;
        let end = std::mem::replace(&mut old.end, branch);
        let successor = self.push(after, end);
        let expected = self.contents[step];
        if let End::Branch(_, children) = &mut self.nodes[node as usize].end {
            children.insert(expected, successor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A state is the contents of four blocks.
    type State = [u128; 4];

    fn remember(memo: &mut Memo, state: State, read_of: &[u64], outcome: u64) -> Option<u64> {
        let read = |block: &u64| Read {
            block: *block,
            data: false,
        };
        let reads: Vec<Read> = read_of.iter().map(read).collect();
        memo.remember(&reads, |block| state[block as usize], outcome)
    }

    fn recall(memo: &Memo, state: State) -> Option<u64> {
        memo.recall(|block| state[block as usize])
    }

    #[test]
    fn an_empty_memo_recalls_nothing() {
        assert_eq!(recall(&Memo::default(), [0; 4]), None);
    }

    #[test]
    fn states_that_agree_on_what_was_read_are_recalled() {
        let mut memo = Memo::default();
        assert_eq!(remember(&mut memo, [1, 2, 3, 4], &[0, 2], 7), None);
        assert_eq!(recall(&memo, [1, 9, 3, 9]), Some(7));
        assert_eq!(recall(&memo, [1, 2, 9, 4]), None);
        assert_eq!(recall(&memo, [9, 2, 3, 4]), None);
    }

    #[test]
    fn paths_split_where_contents_do() {
        let mut memo = Memo::default();
        remember(&mut memo, [1, 1, 1, 1], &[0, 1, 2], 1);
        remember(&mut memo, [1, 2, 1, 1], &[0, 1, 3], 2);
        remember(&mut memo, [1, 3, 1, 1], &[0, 1], 3);
        remember(&mut memo, [2, 3, 1, 1], &[0], 4);
        assert_eq!(recall(&memo, [1, 1, 1, 9]), Some(1));
        assert_eq!(recall(&memo, [1, 2, 9, 1]), Some(2));
        assert_eq!(recall(&memo, [1, 3, 9, 9]), Some(3));
        assert_eq!(recall(&memo, [2, 9, 9, 9]), Some(4));
        assert_eq!(recall(&memo, [1, 1, 9, 1]), None);
        assert_eq!(recall(&memo, [1, 2, 1, 9]), None);
    }

    #[test]
    fn a_visit_that_read_in_another_order_is_found_again_and_answers_for_no_other() {
        let mut memo = Memo::default();
        remember(&mut memo, [1, 1, 1, 1], &[0, 1, 2, 3], 1);
        // reads nothing that the first step tests, so it goes below that step's other value
        remember(&mut memo, [2, 1, 1, 1], &[3, 1], 2);
        assert_eq!(recall(&memo, [2, 1, 9, 1]), Some(2));
        assert_eq!(recall(&memo, [2, 9, 1, 1]), None);
        assert_eq!(recall(&memo, [1, 1, 1, 1]), Some(1));
        assert_eq!(
            recall(&memo, [3, 1, 1, 1]),
            None,
            "lost for want of block 0, as documented"
        );
    }

    #[test]
    fn a_visit_that_ends_where_another_did_tells() {
        let mut memo = Memo::default();
        remember(&mut memo, [1, 1, 1, 1], &[0], 1);
        assert_eq!(remember(&mut memo, [1, 2, 2, 2], &[0, 1], 2), Some(1));
        assert_eq!(recall(&memo, [1, 2, 2, 2]), Some(1));
    }

    #[test]
    fn a_visit_that_read_nothing_answers_for_all() {
        let mut memo = Memo::default();
        remember(&mut memo, [1, 1, 1, 1], &[], 5);
        assert_eq!(recall(&memo, [2, 2, 2, 2]), Some(5));
    }

    /// A guest that reads all of a large device must not fill the host's memory with blocks that no log changes.
    #[test]
    fn a_visit_that_read_too_many_other_blocks_makes_the_memo_that_of_one_log() {
        let mut memo = Memo::default();
        let read = |block| Read { block, data: false };
        let few: Vec<Read> = (0..100).map(read).collect();
        assert_eq!(memo.relevant(&few, |block| block < 3), few);
        assert!(!memo.is_local());
        let many: Vec<Read> = (0..10_000).map(read).collect();
        assert_eq!(memo.relevant(&many, |block| block < 3), few[..3]);
        assert!(memo.is_local());
        assert_eq!(memo.relevant(&few, |block| block < 3), few[..3]);
    }

    #[test]
    fn a_read_set_keeps_the_order_of_first_readings() {
        let mut reads = ReadSet::default();
        for block in [3, 1, 3, 0, 1] {
            reads.add(block, false);
        }
        let blocks = |reads: &ReadSet| reads.reads().iter().map(|r| r.block).collect::<Vec<_>>();
        assert_eq!(blocks(&reads), [3, 1, 0]);
        reads.clear();
        reads.add(1, false);
        assert_eq!(blocks(&reads), [1]);
    }

    #[test]
    fn a_block_is_data_if_it_was_read_for_nothing_else() {
        let mut reads = ReadSet::default();
        for (block, data) in [(0, false), (1, true), (2, true), (0, true), (1, false)] {
            reads.add(block, data);
        }
        let data: Vec<_> = reads.reads().iter().map(|r| r.data).collect();
        assert_eq!(data, [false, false, true]);
    }

    #[test]
    fn a_test_is_one_of_data_until_a_visit_on_its_path_needs_more() {
        let mut memo = Memo::default();
        let read = |block, data| Read { block, data };
        let content = |state: State| move |block: u64| state[block as usize];
        memo.remember(&[read(0, true), read(1, true)], content([1; 4]), 1);
        assert_eq!(memo.at(memo.root()), Found::Test(read(0, true)));
        memo.remember(&[read(0, true), read(2, false)], content([2, 2, 2, 2]), 2);
        assert_eq!(memo.at(memo.root()), Found::Test(read(0, true)));
        memo.remember(&[read(0, false), read(1, true)], content([1, 3, 1, 1]), 3);
        assert_eq!(memo.at(memo.root()), Found::Test(read(0, false)));
        let second = memo.follow(memo.root(), 1).unwrap();
        assert_eq!(memo.at(second), Found::Test(read(1, true)));
    }
}
