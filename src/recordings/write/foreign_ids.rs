//! Handles samples with a foreign id: an id that belongs to no event of the recording. If another program counts the
//! same software event, the kernel may write the id of the other program's event into samples of the recorded event.
//! The caller says which recorded event such a sample belongs to.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use perf_prof_format::{
    abi::PERF_RECORD_SAMPLE,
    record::{EventIds, Records, SampleLayout, SampleMember, record_type},
};

/// Finds samples with foreign ids and treats them according to a rule.
#[derive(Clone, Debug)]
pub struct ForeignIds {
    known: Arc<EventIds>,
    claim: ForeignIdRule,
}

/// How a sample with a foreign id is handled.
#[derive(Clone, Copy, Debug)]
pub enum ForeignIdRule {
    /// The sample is unchanged. The foreign id is added to the ids of the sample's event, and these ids are written at
    /// the end of the recording.
    Listed,
    /// The id in the sample is replaced by an id of the sample's event. This is necessary in a pipe, because a pipe
    /// recording contains the ids of events before the samples.
    Renamed {
        /// The new id.
        id: u64,
        /// The layout of the event's samples.
        layout: SampleLayout,
    },
    /// The sample is not written. Its event is unknown, and perf refuses a recording with an unknown id.
    LeftOut,
}

/// The foreign ids that were found.
#[derive(Clone, Debug, Default)]
pub struct ForeignIdCounts {
    /// The foreign ids that have to be added to the ids of the event that the samples belong to.
    pub ids: BTreeSet<u64>,
    /// The number of samples that were not written.
    pub left_out: u64,
}

impl ForeignIds {
    /// Creates a filter. All ids that are not in `known` are foreign.
    pub fn new(known: EventIds, claim: ForeignIdRule) -> ForeignIds {
        ForeignIds { known: Arc::new(known), claim }
    }

    /// Applies the rule to `records`. Returns the records to write. Adds the foreign ids, and the number of samples
    /// that are left out, to `met`.
    pub(super) fn claim<'a>(
        &self,
        records: &'a [u8],
        layout: &SampleLayout,
        met: &mut ForeignIdCounts,
    ) -> Cow<'a, [u8]> {
        let mut out = Cow::Borrowed(records);
        // `read` is the number of bytes that were checked so far. `kept` is how many of these bytes were kept.
        let (mut read, mut kept) = (0, 0);
        for record in Records::new(records) {
            let place = read..read + record.len();
            read = place.end;
            let id = if record_type(record) == PERF_RECORD_SAMPLE { layout.id(record) } else { None };
            if let Some(stray) = id.filter(|&id| self.known.event(id).is_none()) {
                match self.claim {
                    ForeignIdRule::Listed => {
                        met.ids.insert(stray);
                    }
                    ForeignIdRule::Renamed { id, layout } => rename(&mut out.to_mut()[place.clone()], id, &layout),
                    ForeignIdRule::LeftOut => {
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
    use perf_prof_format::abi::{PERF_SAMPLE_ID, PERF_SAMPLE_IDENTIFIER};

    use super::*;

    fn record(kind: u32, words: [u64; 2]) -> Vec<u8> {
        [&kind.to_ne_bytes()[..], &[0, 0, 24, 0], words.map(u64::to_ne_bytes).as_flattened()].concat()
    }

    #[test]
    fn only_foreign_ids_are_listed_renamed_or_left_out() {
        let layout = SampleLayout::new(PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_ID, 0);
        let sample = |id| record(PERF_RECORD_SAMPLE, [id, id]);
        let other = record(PERF_RECORD_SAMPLE + 1, [9, 9]);
        let records = [sample(5), sample(9), other.clone(), sample(6), sample(8)].concat();
        let with = |claim| {
            let mut met = ForeignIdCounts::default();
            let strays = ForeignIds::new(EventIds::new(&[(5, 0), (6, 1)]), claim);
            (
                strays.claim(&records, &layout, &mut met).into_owned(),
                met.ids.into_iter().collect::<Vec<_>>(),
                met.left_out,
            )
        };
        assert_eq!(with(ForeignIdRule::Listed), (records.clone(), vec![8, 9], 0));
        let renamed = [sample(5), sample(6), other.clone(), sample(6), sample(6)].concat();
        assert_eq!(with(ForeignIdRule::Renamed { id: 6, layout }), (renamed, vec![], 0));
        assert_eq!(with(ForeignIdRule::LeftOut), ([sample(5), other, sample(6)].concat(), vec![], 2));
    }
}
