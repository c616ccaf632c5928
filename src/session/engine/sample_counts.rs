//! How many samples of a recording were delivered and left out.

use super::run_loop::Ending;

/// How far a recording was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadExtent {
    /// To the end of the selection.
    #[default]
    End,
    /// Not to the end of the selection.
    Short,
}

impl ReadExtent {
    /// Returns how far the recording was read, if its replay ended with `ending`.
    pub fn from_ending(ending: Ending) -> ReadExtent {
        if let Ending::Source(_) = ending { ReadExtent::End } else { ReadExtent::Short }
    }
}

/// How many samples were delivered and left out. The default is for an empty selection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleCounts {
    /// The number of samples that were selected and delivered.
    pub delivered: u64,
    /// The number of samples that were left out because no event in the recording has their id.
    pub unknown_ids: u64,
    /// The number of samples that were left out because they were taken in virtual machines.
    pub guests: u64,
    /// How far the recording was read.
    pub reach: ReadExtent,
}

impl SampleCounts {
    /// Adds the counts of another part, or of another recording.
    pub fn add(&mut self, other: &SampleCounts) {
        let &SampleCounts { delivered, unknown_ids, guests, reach } = other;
        self.delivered = self.delivered.saturating_add(delivered);
        self.unknown_ids = self.unknown_ids.saturating_add(unknown_ids);
        self.guests = self.guests.saturating_add(guests);
        if reach == ReadExtent::Short {
            self.reach = ReadExtent::Short;
        }
    }

    /// Returns the exit status, if nothing else determines it. The status is 1 if all samples had unknown ids, so that
    /// none could be delivered: then the empty result is not a valid result.
    pub fn status(&self) -> u8 {
        u8::from(self.delivered == 0 && self.unknown_ids != 0 && self.reach == ReadExtent::End)
    }
}
