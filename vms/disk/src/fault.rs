//! A faulty disk: one fault, aimed at what the guest asks of one sector, or at a flush.
//!
//! Modelled: a request that fails, a bit that has rotted, a write that is acknowledged and lost, and one that lands
//! elsewhere. Not modelled: requests that are torn, and anything that befalls a discard.

use powercut_protocol::{Effect, Fault, RequestKind};

/// A fault that lies in wait, and what it has done so far.
pub struct Armed {
    pub fault: Fault,
    /// Requests of its kind at its sector.
    seen: u64,
    /// Those that it befell.
    pub hits: u64,
}

impl Armed {
    #[must_use]
    pub fn new(fault: Fault) -> Self {
        Armed {
            fault,
            seen: 0,
            hits: 0,
        }
    }

    /// What befalls a request of the guest, if anything does.
    pub fn meets(&mut self, kind: RequestKind, sector: u64, count: u64) -> Option<Effect> {
        let fault = &self.fault;
        let touches =
            kind == RequestKind::Flush || (sector..sector + count).contains(&fault.sector);
        if kind != fault.kind || !touches {
            return None;
        }
        self.seen += 1;
        let hit = self.seen == fault.nth || (fault.stays && self.seen > fault.nth);
        self.hits += u64::from(hit);
        hit.then(|| fault.effect.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn armed(kind: RequestKind, nth: u64, stays: bool) -> Armed {
        Armed::new(Fault {
            kind,
            sector: 10,
            nth,
            stays,
            effect: Effect::Error {},
        })
    }

    /// Which of four requests for the sectors 8 to 15 it befalls.
    fn befallen(mut armed: Armed, kind: RequestKind) -> (Vec<bool>, u64) {
        let hits = (0..4).map(|_| armed.meets(kind, 8, 8).is_some()).collect();
        (hits, armed.hits)
    }

    #[test]
    fn a_fault_befalls_one_request_or_from_there_on_all() {
        let read = RequestKind::Read;
        let (once, hits) = befallen(armed(read, 2, false), read);
        assert_eq!((once, hits), (vec![false, true, false, false], 1));
        let (on, hits) = befallen(armed(read, 2, true), read);
        assert_eq!((on, hits), (vec![false, true, true, true], 3));
    }

    #[test]
    fn what_touches_another_sector_or_is_of_another_kind_is_none_of_its_business() {
        let mut armed = armed(RequestKind::Write, 1, true);
        assert!(armed.meets(RequestKind::Write, 11, 8).is_none());
        assert!(armed.meets(RequestKind::Write, 2, 8).is_none());
        assert!(armed.meets(RequestKind::Read, 8, 8).is_none());
        assert!(armed.meets(RequestKind::Flush, 0, 0).is_none());
        assert_eq!(armed.hits, 0);
        assert!(armed.meets(RequestKind::Write, 10, 1).is_some());
    }

    #[test]
    fn a_flush_has_no_sector() {
        let mut armed = armed(RequestKind::Flush, 1, false);
        assert!(armed.meets(RequestKind::Flush, 0, 0).is_some());
    }
}
