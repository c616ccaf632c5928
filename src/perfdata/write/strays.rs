//! Samples with an id that no event of the recording has, though they are one's: where another program counts the same
//! software event, they have the id of its event. Knows nothing of which event they belong to.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use crate::{
    abi::PERF_RECORD_SAMPLE,
    record::{EventIds, Records, SampleLayout, SampleMember, record_type},
};

/// How samples with an id of another program come to be their event's.
#[derive(Clone, Debug)]
pub struct Strays {
    known: Arc<EventIds>,
    claim: Claim,
}

/// What is done with a sample.
#[derive(Clone, Copy, Debug)]
pub enum Claim {
    /// It stays as it is, and its id joins those of its event, which are written at the end.
    Listed,
    /// It gets an id that its event has: those of a pipe are written first.
    Renamed {
        /// That id.
        id: u64,
        /// What samples of the event look like.
        layout: SampleLayout,
    },
    /// It is not written: nobody can tell whose it is, and perf refuses a recording with an id that it does not know.
    LeftOut,
}

/// Strays that were met.
#[derive(Clone, Debug, Default)]
pub struct Met {
    /// Ids that are to be listed.
    pub ids: BTreeSet<u64>,
    /// How many samples were left out.
    pub left_out: u64,
}

impl Strays {
    /// Samples are strays that have none of the known ids.
    pub fn new(known: EventIds, claim: Claim) -> Strays {
        Strays { known: Arc::new(known), claim }
    }

    /// Whole records as they are to be written; what there is to know of strays joins what was met.
    pub(super) fn claim<'a>(&self, records: &'a [u8], layout: &SampleLayout, met: &mut Met) -> Cow<'a, [u8]> {
        let mut out = Cow::Borrowed(records);
        // Up to where records were read, and up to where those that stay lie.
        let (mut read, mut kept) = (0, 0);
        for record in Records::new(records) {
            let place = read..read + record.len();
            read = place.end;
            let id = if record_type(record) == PERF_RECORD_SAMPLE { layout.id(record) } else { None };
            if let Some(stray) = id.filter(|&id| self.known.event(id).is_none()) {
                match self.claim {
                    Claim::Listed => {
                        met.ids.insert(stray);
                    }
                    Claim::Renamed { id, layout } => rename(&mut out.to_mut()[place.clone()], id, &layout),
                    Claim::LeftOut => {
                        met.left_out += 1;
                        continue;
                    }
                }
            }
            if kept != place.start {
                out.to_mut().copy_within(place.clone(), kept);
            }
            kept += place.len();
        }
        if kept != read {
            out.to_mut().truncate(kept);
        }
        out
    }
}

fn rename(sample: &mut [u8], id: u64, layout: &SampleLayout) {
    for at in [SampleMember::Identifier, SampleMember::Id].into_iter().filter_map(|member| layout.fixed_offset(member))
    {
        if let Some(place) = sample.get_mut(at..at + 8) {
            place.copy_from_slice(&id.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{PERF_SAMPLE_ID, PERF_SAMPLE_IDENTIFIER};

    fn record(kind: u32, words: [u64; 2]) -> Vec<u8> {
        [&kind.to_ne_bytes()[..], &[0, 0, 24, 0], words.map(u64::to_ne_bytes).as_flattened()].concat()
    }

    #[test]
    fn strays_are_listed_renamed_or_left_out_and_nothing_else_is() {
        let layout = SampleLayout::new(PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_ID, 0);
        let sample = |id| record(PERF_RECORD_SAMPLE, [id, id]);
        let other = record(PERF_RECORD_SAMPLE + 1, [9, 9]);
        let records = [sample(5), sample(9), other.clone(), sample(6), sample(8)].concat();
        let with = |claim| {
            let mut met = Met::default();
            let strays = Strays::new(EventIds::new(&[(5, 0), (6, 1)]), claim);
            (
                strays.claim(&records, &layout, &mut met).into_owned(),
                met.ids.into_iter().collect::<Vec<_>>(),
                met.left_out,
            )
        };
        assert_eq!(with(Claim::Listed), (records.clone(), vec![8, 9], 0));
        let renamed = [sample(5), sample(6), other.clone(), sample(6), sample(6)].concat();
        assert_eq!(with(Claim::Renamed { id: 6, layout }), (renamed, vec![], 0));
        assert_eq!(with(Claim::LeftOut), ([sample(5), other, sample(6)].concat(), vec![], 2));
    }
}
