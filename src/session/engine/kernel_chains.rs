//! Names the call chains in the keys of tables that BPF programs fill.

use std::collections::HashMap;

use perf_prof_events::{
    aggregate::KeyPart,
    event::{AddressChain, Context},
};
use perf_prof_in_kernel::table::{Row, chain::ChainAt};
use perf_prof_system::clock::{Clock, MonotonicOffset, monotonic_offset};

/// Rows of a kernel table that were read. Their call chains have no names yet.
#[derive(Debug)]
pub struct UnnamedRows {
    /// The index of the receiver's table.
    pub target: usize,
    /// The rows.
    pub rows: Vec<Row>,
    /// The call chains of the rows, by id.
    pub chains: HashMap<u64, AddressChain>,
    /// How to convert times of these rows to the clock of records.
    pub clock: ProgramClock,
}

/// The relation between the clock of BPF programs and the clock of records. The two clocks run at slightly different
/// speeds.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProgramClock {
    clock: Clock,
    /// The last two comparisons of the clocks.
    compared: Option<[MonotonicOffset; 2]>,
}

impl UnnamedRows {
    /// Returns the memory of the call chains, in bytes.
    pub fn bytes_of_chains(&self) -> usize {
        let of_chain = |chain: &AddressChain| size_of_val(chain) + 8 * (chain.kernel.len() + chain.user.len());
        self.chains.values().map(of_chain).sum()
    }

    /// Returns the index of the receiver's table, and the rows with the names of their call chains in their keys.
    pub fn named(self, context: &Context) -> (usize, Vec<Row>) {
        let UnnamedRows { target, mut rows, chains, clock } = self;
        for Row { key, first, chain, .. } in &mut rows {
            // An exec makes new rows. So the process ran the same program at all events of a row, and the time of the
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

    /// Compares the clocks again. [`UnnamedRows::clock`] then converts times between the last comparison and this one.
    pub fn compare(&mut self) {
        if let Ok(now) = monotonic_offset(self.clock) {
            self.compared = Some([self.compared.map_or(now, |[_, last]| last), now]);
        }
    }

    /// Converts a time of a BPF program to the clock of records. The result must be exact to less than a millisecond,
    /// because an exec may be that close.
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
