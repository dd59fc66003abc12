//! Recalls outcomes of states without a guest.
//!
//! Recovery, walk and fsck are deterministic: their result depends only on the blocks of the state that
//! they read. So a state that agrees with an earlier one on every block that was read there has the same
//! outcome. Blocks that the log never changes agree in all states and are left out; a block does not
//! count as read *of the state* if the guest had already overwritten every sector that it read.
//!
//! The remembered visits form a decision tree. A node tests the content of some blocks in turn, each of
//! which has one value that leads on; at the last one the tree may branch, or end in an outcome. The path
//! to an outcome holds all blocks that its visit read, and maybe more: a visit that follows a path laid
//! by others is put below it even if that path tests blocks that the visit never read. That costs hits,
//! never correctness, so the order of reads may differ between visits.
//!
//! Not checked: that outcomes are deterministic. `remember` reports when a visit ends where another one
//! did, so that the host can compare the two.

use std::{collections::HashMap, ops::Range};

/// Where the index keeps a block; see `Index::slot`.
pub type Slot = u32;

/// The blocks read since the last switch, in order of first read.
#[derive(Default)]
pub struct ReadSet {
    order: Vec<Slot>,
    /// Number of the visit that last read the slot, so that starting a new visit costs nothing.
    seen: Vec<u64>,
    visit: u64,
}

impl ReadSet {
    /// For an index of `slots` blocks.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        ReadSet {
            order: Vec::new(),
            seen: vec![0; slots],
            visit: 1,
        }
    }

    /// Forget all.
    pub fn clear(&mut self) {
        self.order.clear();
        self.visit += 1;
    }

    /// Record that a block was read.
    pub fn add(&mut self, slot: Slot) {
        let seen = &mut self.seen[slot as usize];
        if *seen != self.visit {
            *seen = self.visit;
            self.order.push(slot);
        }
    }

    #[must_use]
    pub fn slots(&self) -> &[Slot] {
        &self.order
    }
}

enum End {
    /// The outcome, once all steps agree.
    Leaf(u64),
    /// The next node, by the content of one more block.
    Branch(Slot, HashMap<u128, u32>),
}

struct Node {
    /// In `slots` and `contents`.
    steps: Range<usize>,
    end: End,
}

/// Where a walk ended.
enum Walk {
    Hit(u64),
    /// The step of the node at this position in `contents` has another content.
    Differs {
        node: u32,
        step: usize,
    },
    /// The node's branch has no such content.
    NoBranch {
        node: u32,
        content: u128,
    },
}

/// The decision tree.
#[derive(Default)]
pub struct Memo {
    nodes: Vec<Node>,
    slots: Vec<Slot>,
    contents: Vec<u128>,
}

impl Memo {
    /// The outcome of a remembered state that agrees with this one on everything that was read there.
    /// `content` returns the hash of a block in this state.
    pub fn recall(&self, content: impl Fn(Slot) -> u128) -> Option<u64> {
        match self.walk(content, |_| ()) {
            Some(Walk::Hit(outcome)) => Some(outcome),
            _ => None,
        }
    }

    /// Keep `outcome` for the state whose blocks hold `content` and of which `read` was read. If an outcome
    /// is already recalled for this state, returns that one and changes nothing.
    pub fn remember(
        &mut self,
        read: &[Slot],
        content: impl Fn(Slot) -> u128,
        outcome: u64,
    ) -> Option<u64> {
        let mut asked = std::collections::HashSet::new();
        let walk = self.walk(&content, |slot| {
            asked.insert(slot);
        });
        let rest = read.iter().filter(|slot| !asked.contains(slot));
        let start = self.slots.len();
        if !matches!(walk, Some(Walk::Hit(_))) {
            for slot in rest {
                self.slots.push(*slot);
                self.contents.push(content(*slot));
            }
        }
        let steps = start..self.slots.len();
        let end = End::Leaf(outcome);
        match walk {
            Some(Walk::Hit(earlier)) => return Some(earlier),
            None => {
                self.push(steps, end);
            }
            Some(Walk::NoBranch { node, content }) => {
                let leaf = self.push(steps, end);
                if let End::Branch(_, children) = &mut self.nodes[node as usize].end {
                    children.insert(content, leaf);
                }
            }
            Some(Walk::Differs { node, step }) => {
                let leaf = self.push(steps, end);
                self.split(node, step, content(self.slots[step]), leaf);
            }
        }
        None
    }

    fn push(&mut self, steps: Range<usize>, end: End) -> u32 {
        self.nodes.push(Node { steps, end });
        (self.nodes.len() - 1) as u32
    }

    /// Make `node` branch at `step`: to its previous successor, and to `other` for the content `found`.
    fn split(&mut self, node: u32, step: usize, found: u128, other: u32) {
        let branch = End::Branch(self.slots[step], HashMap::new());
        let old = &mut self.nodes[node as usize];
        let after = step + 1..old.steps.end;
        old.steps.end = step;
        let end = std::mem::replace(&mut old.end, branch);
        let before = self.push(after, end);
        let expected = self.contents[step];
        if let End::Branch(_, children) = &mut self.nodes[node as usize].end {
            children.extend([(expected, before), (found, other)]);
        }
    }

    /// Descend as far as the contents agree; calls `asked` for every block tested. None: no root.
    fn walk(&self, content: impl Fn(Slot) -> u128, mut asked: impl FnMut(Slot)) -> Option<Walk> {
        let mut at = 0u32;
        loop {
            let node = self.nodes.get(at as usize)?;
            for step in node.steps.clone() {
                let slot = self.slots[step];
                asked(slot);
                if content(slot) != self.contents[step] {
                    return Some(Walk::Differs { node: at, step });
                }
            }
            match &node.end {
                End::Leaf(outcome) => return Some(Walk::Hit(*outcome)),
                End::Branch(slot, children) => {
                    asked(*slot);
                    let content = content(*slot);
                    match children.get(&content) {
                        Some(child) => at = *child,
                        None => return Some(Walk::NoBranch { node: at, content }),
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A state is the contents of four blocks.
    type State = [u128; 4];

    fn remember(memo: &mut Memo, state: State, read: &[Slot], outcome: u64) -> Option<u64> {
        memo.remember(read, |slot| state[slot as usize], outcome)
    }

    fn recall(memo: &Memo, state: State) -> Option<u64> {
        memo.recall(|slot| state[slot as usize])
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

    #[test]
    fn a_read_set_keeps_the_order_of_first_readings() {
        let mut reads = ReadSet::new(4);
        for slot in [3, 1, 3, 0, 1] {
            reads.add(slot);
        }
        assert_eq!(reads.slots(), [3, 1, 0]);
        reads.clear();
        reads.add(1);
        assert_eq!(reads.slots(), [1]);
    }
}
