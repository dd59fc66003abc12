//! A crash state, checked against its log.

use powercut_protocol::State;

use crate::{error::StateError, log::Entry};

/// A crash state that fits its log; see [`State`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recipe {
    prefix: u32,
    dropped: Vec<u32>,
    /// Sectors of entry `prefix - 1` from here on (device sector numbers) did not reach the platter.
    torn_from: Option<u64>,
}

impl Recipe {
    /// The first `prefix` entries.
    #[must_use]
    pub fn of_prefix(prefix: u32) -> Self {
        Recipe {
            prefix,
            ..Recipe::default()
        }
    }

    /// Check `state` against the entries of a log, fewer than 2^32.
    ///
    /// # Errors
    /// What does not fit, with the limit.
    pub fn of(state: &State, entries: &[Entry]) -> Result<Self, StateError> {
        let State {
            prefix,
            dropped,
            torn_sectors,
        } = state;
        let Some(number) = u32::try_from(*prefix)
            .ok()
            .filter(|number| *number as usize <= entries.len())
        else {
            return Err(StateError::Prefix {
                prefix: *prefix,
                entries: entries.len(),
            });
        };
        if let Some(wrong) = dropped.iter().find(|d| **d >= *prefix) {
            return Err(StateError::Dropped {
                entry: *wrong,
                prefix: *prefix,
            });
        }
        if let Some(pair) = dropped.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(StateError::Order(pair[0], pair[1]));
        }
        let last = entries[..number as usize].last();
        Ok(Recipe {
            prefix: number,
            // each lies below the prefix, which fits
            dropped: dropped.iter().map(|d| *d as u32).collect(),
            torn_from: torn_sectors.map(|n| torn_from(last, n)).transpose()?,
        })
    }

    /// How many entries of the log count.
    #[must_use]
    pub fn prefix(&self) -> u32 {
        self.prefix
    }

    /// Whether what entry `number` (below the prefix) put into `sector` reached the platter.
    #[must_use]
    pub fn keeps(&self, number: u32, sector: u64) -> bool {
        let torn = number + 1 == self.prefix && self.torn_from.is_some_and(|from| sector >= from);
        !torn && !self.drops(number)
    }

    /// Whether entry `number` (below the prefix) did not reach the platter, or only in part.
    #[must_use]
    pub fn lacks(&self, number: u32) -> bool {
        self.drops(number) || (number + 1 == self.prefix && self.torn_from.is_some())
    }

    /// Whether nothing of entry `number` reached the platter.
    #[must_use]
    pub fn drops(&self, number: u32) -> bool {
        self.dropped.binary_search(&number).is_ok()
    }

    /// The smallest number that `lacks` is true for.
    #[must_use]
    pub fn first_lacking(&self) -> Option<u32> {
        self.lacking().next()
    }

    /// Entries that did not reach the platter, or only in part, each once.
    pub fn lacking(&self) -> impl Iterator<Item = u32> + '_ {
        let torn = self.torn_from.map(|_| self.prefix - 1);
        let torn = torn.filter(|number| self.dropped.last() != Some(number));
        self.dropped.iter().copied().chain(torn)
    }
}

/// The first sector that the torn last entry leaves out.
fn torn_from(last: Option<&Entry>, count: u64) -> Result<u64, StateError> {
    let entry = last.ok_or(StateError::NothingToTear)?;
    if count > entry.sectors {
        return Err(StateError::Torn {
            sectors: count,
            of: entry.sectors,
        });
    }
    Ok(entry.sector + count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_states_that_do_not_fit_the_log() {
        let entries = [4, 1, 0, 7, 2].map(|sectors| Entry {
            sector: 0,
            sectors,
            data_offset: None,
        });
        let refusal = |prefix, dropped: &[u64], torn_sectors| {
            let dropped = dropped.to_vec();
            let state = State {
                prefix,
                dropped,
                torn_sectors,
            };
            Recipe::of(&state, &entries).unwrap_err().to_string()
        };
        assert!(refusal(6, &[], None).contains("6 entries, the log has 5"));
        assert!(refusal(1 << 32, &[], None).contains("the log has 5"));
        assert!(refusal(2, &[2], None).contains("dropped entry 2"));
        assert!(refusal(3, &[1, 1], None).contains("must ascend"));
        assert!(refusal(0, &[], Some(0)).contains("no last entry"));
        assert!(refusal(5, &[], Some(3)).contains("torn after 3 sectors, it has 2"));
    }
}
