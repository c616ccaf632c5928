//! Names for the call chains in keys that BPF programs made.

use std::collections::HashMap;

use perf_prof_events::{
    aggregate::KeyPart,
    event::{AddressChain, Context},
};
use perf_prof_in_kernel::table::{Row, chain::ChainAt};
use perf_prof_system::clock::{Clock, MonotonicOffset, monotonic_offset};

/// Rows of a table in the kernel, whose call chains have no names yet.
#[derive(Debug)]
pub struct UnnamedRows {
    /// The index of the receiver's table.
    pub target: usize,
    /// The rows.
    pub rows: Vec<Row>,
    /// Their call chains, by id.
    pub chains: HashMap<u64, AddressChain>,
    /// The relation of the clocks from the previous reading to the reading of these rows.
    pub clock: ProgramClock,
}

/// The relation between the clock of BPF programs and the clock of records, which run at slightly different speeds.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProgramClock {
    clock: Clock,
    /// The last two comparisons.
    compared: Option<[MonotonicOffset; 2]>,
}

impl UnnamedRows {
    /// Returns the memory that the call chains take.
    pub fn bytes_of_chains(&self) -> usize {
        let of_chain = |chain: &AddressChain| size_of_val(chain) + 8 * (chain.kernel.len() + chain.user.len());
        self.chains.values().map(of_chain).sum()
    }

    /// Returns the rows with the names of their call chains in their keys, and the index of the receiver's table.
    pub fn named(self, context: &Context) -> (usize, Vec<Row>) {
        let UnnamedRows { target, mut rows, chains, clock } = self;
        for Row { key, first, chain, .. } in &mut rows {
            // The process had the same program at all events of a row, because an exec makes new rows. So the time of the
            // first event is valid for all of them.
            let time = clock.time(*first);
            let named = |&ChainAt { part, id }: &ChainAt| Some((part, chains.get(&id)?.folded(time, context)));
            if let Some((part, text)) = chain.as_ref().and_then(named)
                && let Some(place) = key.get_mut(part)
            {
                *place = KeyPart::Text(text.into_bytes().into());
            }
        }
        (target, rows)
    }
}

impl ProgramClock {
    /// Creates the relation to this clock of records, without a comparison.
    pub fn of(clock: Clock) -> ProgramClock {
        ProgramClock { clock, compared: None }
    }

    /// Compares the clocks again, for times from the last comparison to this one.
    pub fn compare(&mut self) {
        if let Ok(now) = monotonic_offset(self.clock) {
            self.compared = Some([self.compared.map_or(now, |[_, last]| last), now]);
        }
    }

    /// Returns the time that a record would have had at this time of a program. A millisecond matters: an exec may have
    /// been as long ago.
    fn time(&self, of_program: u64) -> u64 {
        let Some([before, after]) = self.compared else { return of_program };
        let passed = i128::from(after.at - before.at).max(1);
        let since = i128::from(of_program) - i128::from(before.at);
        let offset = i128::from(before.offset) + i128::from(after.offset - before.offset) * since / passed;
        (i128::from(of_program) + offset) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_between_two_comparisons_follow_both_clocks() {
        let of = |at, offset| MonotonicOffset { at, offset };
        let clock = ProgramClock { clock: Clock::Perf, compared: Some([of(1000, -300), of(3000, -500)]) };
        assert_eq!([1000, 2000, 3000, 3010].map(|time| clock.time(time)), [700, 1600, 2500, 2509]);
        assert_eq!(ProgramClock { compared: Some([of(5, 7); 2]), ..clock }.time(9), 16);
        assert_eq!(ProgramClock { compared: None, ..clock }.time(9), 9);
    }
}
