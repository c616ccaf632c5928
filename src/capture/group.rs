//! Changes groups of events so that the kernel accepts them, and finds the leader and the members of a group.
//!
//! While the leader of a group is off, its members count nothing, even if they are on. A task that inherits the group
//! inherits the state of the leader. So members are on from the start and are never turned off. Only leaders are turned
//! on and off; for inherited events, several times.

use std::borrow::Cow;

use perf_prof_format::{
    abi::{PERF_FORMAT_GROUP, PERF_SAMPLE_READ},
    spec::{Grouping, Sampled},
};

use super::{CaptureError, EventRequest, Presence, Sampling};

/// Returns the requests. Changes the requests of groups so that the kernel and perf accept the groups.
///
/// All events of a group are required, and they have to be on the same CPUs. If only the leader is sampled, its samples
/// contain the counts of all events, and the other events get the leader's sample format. perf expects this: it splits
/// each sample of the leader into one sample for each event of the group.
pub(super) fn complete(mut events: Cow<'_, [EventRequest]>) -> Result<Cow<'_, [EventRequest]>, CaptureError> {
    if events.iter().all(|event| event.grouping == Grouping::Alone) {
        return Ok(events);
    }
    let mut leader: Option<EventRequest> = None;
    for event in events.to_mut() {
        match (event.grouping, &leader) {
            (Grouping::Alone, _) => leader = None,
            (Grouping::Leader(sampled), _) => {
                if sampled == Sampled::Leader {
                    event.samples.sample_type |= PERF_SAMPLE_READ;
                    event.samples.read_format |= PERF_FORMAT_GROUP;
                }
                leader = Some(event.clone());
            }
            (Grouping::Member(sampled), Some(leader)) => {
                if event.cpus != leader.cpus {
                    let (event, leader) = (event.name.clone(), leader.name.clone());
                    return Err(CaptureError::GroupCpus { event, leader });
                }
                if sampled == Sampled::Leader {
                    event.sampling = Sampling::Period(0);
                    event.samples = leader.samples;
                    event.callchain = leader.callchain;
                    event.stack_user = leader.stack_user;
                }
            }
            (Grouping::Member(_), None) => event.grouping = Grouping::Alone,
        }
        if event.grouping != Grouping::Alone {
            event.presence = Presence::Required;
        }
    }
    Ok(events)
}

/// Returns the index of the leader of the request `member`; `None` if this request is not a group member.
pub(super) fn leader_of(events: &[EventRequest], member: usize) -> Option<usize> {
    events[member].grouping.is_member().then_some(())?;
    events[..member].iter().rposition(|event| !event.grouping.is_member())
}

/// Returns all requests in the group of the request `event`; only this request if it is in no group.
pub(super) fn requests_of_group(events: &[EventRequest], event: usize) -> &[EventRequest] {
    let first = leader_of(events, event).unwrap_or(event);
    let members = events[first + 1..].iter().take_while(|event| event.grouping.is_member()).count();
    &events[first..=first + members]
}

#[cfg(test)]
mod tests {
    use perf_prof_format::abi::*;

    use super::*;
    use crate::PerfEvent;

    fn group(sampled: Sampled) -> Vec<EventRequest> {
        let request = |kind, sample_type, grouping| {
            let mut request = EventRequest::new("e", PerfEvent { kind, ..PerfEvent::default() });
            request.samples.sample_type = sample_type;
            EventRequest { grouping, ..request }
        };
        vec![
            request(PERF_TYPE_SOFTWARE, 0, Grouping::Alone),
            request(PERF_TYPE_SOFTWARE, PERF_SAMPLE_ADDR, Grouping::Leader(sampled)),
            request(PERF_TYPE_TRACEPOINT, PERF_SAMPLE_RAW, Grouping::Member(sampled)),
        ]
    }

    #[test]
    fn members_whose_leader_reads_all_look_like_it_and_are_not_sampled() {
        let events = group(Sampled::Leader);
        let complete = complete(Cow::Borrowed(&events)).unwrap();
        assert_eq!(complete[0].samples, events[0].samples);
        assert_eq!(complete[1].samples.sample_type, PERF_SAMPLE_ADDR | PERF_SAMPLE_READ);
        assert_eq!(complete[1].samples.read_format, PERF_FORMAT_GROUP);
        assert_eq!((complete[2].samples, complete[2].sampling), (complete[1].samples, Sampling::Period(0)));
        assert_eq!([0, 1, 2].map(|event| leader_of(&complete, event)), [None, None, Some(1)]);
        assert_eq!([0, 1, 2].map(|event| requests_of_group(&complete, event).len()), [1, 2, 2]);
    }

    #[test]
    fn members_sampled_individually_are_unchanged() {
        let events = group(Sampled::Each);
        let complete = complete(Cow::Borrowed(&events)).unwrap();
        let samples =
            |events: &[EventRequest]| events.iter().map(|event| (event.samples, event.sampling)).collect::<Vec<_>>();
        assert_eq!(samples(&complete), samples(&events));
    }

    #[test]
    fn a_group_is_on_the_same_cpus() {
        let mut events = group(Sampled::Each);
        events[2].cpus = Some("0".parse().unwrap());
        assert!(matches!(complete(Cow::Owned(events)), Err(CaptureError::GroupCpus { .. })));
    }
}
