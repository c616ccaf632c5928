//! The rounds of a section. perf marks the end of each round: after this mark, no record comes that is older than the newest
//! record of the previous round.

use perf_prof_format::record::MARGIN;

use crate::format::first_records::Rings;

/// How a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Finished,
    /// The recorder was killed. Records that it had not written yet are missing.
    Killed,
}

/// The rounds of the records that were read so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rounds {
    /// The newest time of all records.
    pub newest: u64,
    /// The newest time of all records up to the end of the last round, and up to the end of the round before it. A margin was
    /// subtracted from both. They are 0 before these rounds end.
    ended: [u64; 2],
}

impl Rounds {
    /// The margin for stored records, in ns.
    pub const MARGIN: u64 = MARGIN.as_nanos() as u64;

    /// Ends a round.
    pub fn end(&mut self, margin: u64) {
        self.ended = [self.newest.saturating_sub(margin), self.ended[0]];
    }

    /// Ends a round after which no record is older than a record before it.
    pub fn end_sorted(&mut self) {
        self.ended = [self.newest; 2];
    }

    /// Returns whether a round has ended.
    pub fn have_ended(&self) -> bool {
        self.ended[0] != 0
    }

    /// Returns the lower bound for the times of records that were not read; 0 if it is unknown.
    pub fn bound(&self) -> u64 {
        self.ended[1]
    }

    /// Returns the rounds of these records and of the records after them.
    pub fn followed_by(self, after: Rounds) -> Rounds {
        let newest = |ended: u64| ended.max(self.newest.saturating_sub(Self::MARGIN));
        let ended = match after.ended {
            [0, _] => self.ended,
            [last, 0] => [newest(last), self.ended[0]],
            [last, before] => [newest(last), newest(before)],
        };
        Rounds { newest: self.newest.max(after.newest), ended }
    }

    /// Returns since when records may be missing if the records end here, although more were recorded. `last` is the time of
    /// the last record.
    ///
    /// Each round has the records of all rings. So the records of a ring may lack from a round that has not ended. If the first
    /// one of several rings has not ended, all of them may lack.
    pub fn missing_from(&self, last: u64, rings: Rings) -> u64 {
        match rings {
            Rings::One if !self.have_ended() => last,
            Rings::One | Rings::Several => self.bound(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_several_rings_may_be_missing_from_the_start_until_two_rounds_have_ended() {
        let mut rounds = Rounds { newest: 100, ..Rounds::default() };
        let mut since = |newest: u64| {
            let found = [Rings::One, Rings::Several].map(|rings| rounds.missing_from(90, rings));
            rounds.end(0);
            rounds.newest = newest;
            found
        };
        assert_eq!([since(200), since(300), since(400)], [[90, 0], [0, 0], [100, 100]]);
    }
}
