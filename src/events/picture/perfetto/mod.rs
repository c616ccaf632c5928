//! Writes traces for Perfetto (ui.perfetto.dev): timelines as track events, and kernel traces as packets.

mod kernel;
mod kernel_event;
mod kernel_trace;
mod packet;

use std::{
    cmp::Reverse,
    collections::HashMap,
    io::{self, Write},
};

use self::packet::*;
pub use self::{
    kernel_event::{KernelEvent, Machine, Place, Task, ThreadMoment},
    kernel_trace::{KernelTrace, Switches, ThreadEnds, UNKNOWN_STATE, is_exit},
};
use super::timeline::{Argument, Content, Entry, EntryId, NameId, Number, Shape, Timeline, TrackId};

/// A point of the trace: the start of an entry, or the end of a slice.
#[derive(Clone, Copy)]
struct Point {
    time: u64,
    entry: EntryId,
    lane: u64,
    side: Side,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Start,
    End,
}

/// An extra track for slices that overlap other slices of their track, but are not nested in them.
struct Lane {
    uuid: u64,
    of: TrackId,
}

/// Writes the trace. In Perfetto, the slices of a track must be nested. Slices that overlap without being nested go to extra
/// tracks with the same name and parent. `partial` says what is missing, if anything is: it is a track and a moment at the start.
pub fn write(timeline: &Timeline, partial: Option<&str>, to: &mut impl Write) -> io::Result<()> {
    let mut packets = Packets::new(to);
    packets.write(TracePacket {
        interned_data: Some(names(timeline)),
        sequence_flags: Some(SEQ_INCREMENTAL_STATE_CLEARED),
        ..TracePacket::default()
    })?;
    let (points, lanes) = points(timeline);
    for (number, track) in timeline.tracks().iter().enumerate() {
        let id = TrackId(number as u32);
        let further = lanes.iter().filter(|lane| lane.of == id).map(|lane| lane.uuid);
        // Write tracks without entries too: they can be parents.
        for uuid in std::iter::once(uuid(id)).chain(further) {
            packets.write(TracePacket {
                track_descriptor: Some(TrackDescriptor {
                    uuid: Some(uuid),
                    name: Some(track.name.clone()),
                    parent_uuid: track.parent.map(self::uuid),
                    counter: (track.content == Some(Content::Counter)).then_some(CounterDescriptor {}),
                    ..TrackDescriptor::default()
                }),
                ..TracePacket::default()
            })?;
        }
    }
    let (mut starting, mut ending) = (HashMap::<EntryId, Vec<u64>>::new(), HashMap::<EntryId, Vec<u64>>::new());
    for (flow, &(from, to)) in (1..).zip(timeline.flows()) {
        starting.entry(from).or_default().push(flow);
        ending.entry(to).or_default().push(flow);
    }
    for Point { time, entry, lane, side } in points {
        let event = match side {
            Side::End => TrackEvent { r#type: Some(EventType::SliceEnd.into()), ..TrackEvent::default() },
            Side::Start => TrackEvent {
                flow_ids: starting.remove(&entry).unwrap_or_default(),
                terminating_flow_ids: ending.remove(&entry).unwrap_or_default(),
                ..start(timeline, &timeline.entries()[entry.0 as usize])
            },
        };
        packets.write(TracePacket {
            timestamp: Some(time),
            track_event: Some(TrackEvent { track_uuid: Some(lane), ..event }),
            sequence_flags: Some(SEQ_NEEDS_INCREMENTAL_STATE),
            ..TracePacket::default()
        })?;
    }
    match partial {
        Some(partial) => {
            let uuid = (timeline.tracks().len() + lanes.len()) as u64 + 1;
            write_mark(format!("partial: {partial}"), uuid, timeline, &mut packets)
        }
        None => Ok(()),
    }
}

/// Writes a track with this name, and a moment on it where the timeline begins. `uuid` is the number of the track.
fn write_mark(name: String, uuid: u64, timeline: &Timeline, packets: &mut Packets<'_, impl Write>) -> io::Result<()> {
    let iid = timeline.names().len() as u64 + 1;
    let track = TrackDescriptor { uuid: Some(uuid), name: Some(name.clone()), ..TrackDescriptor::default() };
    packets.write(TracePacket { track_descriptor: Some(track), ..TracePacket::default() })?;
    let event_names = vec![InternedName { iid: Some(iid), name: Some(name) }];
    packets.write(TracePacket {
        timestamp: Some(timeline.entries().iter().map(|entry| entry.time).min().unwrap_or(0)),
        track_event: Some(TrackEvent {
            r#type: Some(EventType::Instant.into()),
            track_uuid: Some(uuid),
            name_iid: Some(iid),
            ..TrackEvent::default()
        }),
        interned_data: Some(InternedData { event_names, ..InternedData::default() }),
        sequence_flags: Some(SEQ_NEEDS_INCREMENTAL_STATE),
        ..TracePacket::default()
    })
}

/// Returns the track event at the start of an entry, without its track and its flows.
fn start(timeline: &Timeline, entry: &Entry) -> TrackEvent {
    let (kind, value) = match entry.shape {
        Shape::Slice(_) => (EventType::SliceBegin, None),
        Shape::Instant => (EventType::Instant, None),
        Shape::Value(value) => (EventType::Counter, Some(value)),
    };
    let annotation = |(name, value): &(NameId, Argument)| DebugAnnotation::new(iid(*name), value);
    let frame = |name: &NameId| InlineFrame { function_name: timeline.names().get(name.0 as usize).cloned() };
    let frames: Vec<InlineFrame> = entry.stack.iter().map(frame).collect();
    TrackEvent {
        r#type: Some(kind.into()),
        callstack: (!frames.is_empty()).then_some(InlineCallstack { frames }),
        name_iid: entry.name.map(iid),
        debug_annotations: entry.arguments.iter().map(annotation).collect(),
        counter_value: match value {
            Some(Number::Int(value)) => Some(value),
            _ => None,
        },
        double_counter_value: match value {
            Some(Number::Float(value)) => Some(value),
            _ => None,
        },
        ..TrackEvent::default()
    }
}

/// Returns all points, ordered by time, and the extra tracks for overlapping slices.
fn points(timeline: &Timeline) -> (Vec<Point>, Vec<Lane>) {
    let mut by_track: Vec<Vec<EntryId>> = vec![Vec::new(); timeline.tracks().len()];
    for (number, entry) in (0..).zip(timeline.entries()) {
        by_track[entry.track.0 as usize].push(EntryId(number));
    }
    let (mut points, mut lanes) = (Vec::with_capacity(2 * timeline.entries().len()), Vec::<Lane>::new());
    for (track, mut entries) in (0..).map(TrackId).zip(by_track) {
        let entry = |id: EntryId| &timeline.entries()[id.0 as usize];
        // A slice comes before the slices and instants inside it.
        entries.sort_by_key(|&id| (entry(id).time, Reverse(duration(entry(id)))));
        let mut lane = uuid(track);
        while !entries.is_empty() {
            entries = put_in_lane(entries, lane, &entry, &mut points);
            if !entries.is_empty() {
                lane = (timeline.tracks().len() + lanes.len()) as u64 + 1;
                lanes.push(Lane { uuid: lane, of: track });
            }
        }
    }
    // The sort is stable: points with the same time keep their order within a lane.
    points.sort_by_key(|point| point.time);
    (points, lanes)
}

/// Puts entries into a lane, as long as they are nested, and adds their points. Returns the remaining entries, which need
/// another lane.
fn put_in_lane<'a>(
    entries: Vec<EntryId>,
    lane: u64,
    entry: &impl Fn(EntryId) -> &'a Entry,
    points: &mut Vec<Point>,
) -> Vec<EntryId> {
    let mut open: Vec<(u64, EntryId)> = Vec::new();
    let mut left = Vec::new();
    let close = |until: u64, open: &mut Vec<(u64, EntryId)>, points: &mut Vec<Point>| {
        while let Some((time, entry)) = open.pop_if(|(end, _)| *end <= until) {
            points.push(Point { time, entry, lane, side: Side::End });
        }
    };
    for id in entries {
        let (time, shape) = (entry(id).time, entry(id).shape);
        close(time, &mut open, points);
        let end = time.saturating_add(duration(entry(id)));
        if open.last().is_some_and(|(outer, _)| *outer < end) {
            left.push(id);
            continue;
        }
        points.push(Point { time, entry: id, lane, side: Side::Start });
        if let Shape::Slice(_) = shape {
            open.push((end, id));
        }
    }
    close(u64::MAX, &mut open, points);
    left
}

fn duration(entry: &Entry) -> u64 {
    if let Shape::Slice(duration) = entry.shape { duration } else { 0 }
}

/// Returns all names with their numbers.
fn names(timeline: &Timeline) -> InternedData {
    let name =
        |(number, name): (u32, &String)| InternedName { iid: Some(iid(NameId(number))), name: Some(name.clone()) };
    let all: Vec<InternedName> = (0..).zip(timeline.names()).map(name).collect();
    InternedData { event_names: all.clone(), debug_annotation_names: all }
}

/// Returns Perfetto's number of a name. The numbers start at 1.
fn iid(NameId(name): NameId) -> u64 {
    u64::from(name) + 1
}

/// Returns Perfetto's number of a track. The numbers start at 1, because 0 is the default track of the sequence.
fn uuid(TrackId(track): TrackId) -> u64 {
    u64::from(track) + 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::{packet::Trace, *};

    fn written(timeline: &Timeline) -> Trace {
        let mut bytes = Vec::new();
        write(timeline, None, &mut bytes).unwrap();
        Trace::decode(&*bytes).unwrap()
    }

    /// Returns the start, the end and the name of each slice as Perfetto finds them: an end belongs to the slice that was
    /// opened last.
    fn slices(trace: &Trace) -> Vec<(u64, u64, u64)> {
        let (mut open, mut slices, mut last) = (HashMap::<u64, Vec<(u64, u64)>>::new(), Vec::new(), 0);
        for packet in trace.packet.iter().filter(|packet| packet.track_event.is_some()) {
            let (event, time) = (packet.track_event.as_ref().unwrap(), packet.timestamp.unwrap());
            assert!(time >= last);
            last = time;
            let track = open.entry(event.track_uuid.unwrap()).or_default();
            match event.r#type() {
                EventType::SliceBegin => track.push((time, event.name_iid.unwrap())),
                EventType::SliceEnd => {
                    let (start, name) = track.pop().unwrap();
                    slices.push((start, time, name));
                }
                _ => {}
            }
        }
        assert!(open.values().all(Vec::is_empty));
        slices.sort_unstable();
        slices
    }

    proptest! {
        #[test]
        fn slices_that_overlap_keep_their_ends(all in prop::collection::vec((0u64..30, 0u64..12, 0u32..3), 0..40)) {
            let mut timeline = Timeline::default();
            let mut expected = Vec::new();
            for (number, (start, duration, track)) in all.into_iter().enumerate() {
                let track = timeline.track(&format!("track {track}"), None).unwrap();
                let name = format!("slice {number}");
                timeline.add(track, Some(&name), start, Shape::Slice(duration), vec![]).unwrap();
                expected.push((start, start + duration, number as u64 + 1));
            }
            expected.sort_unstable();
            prop_assert_eq!(slices(&written(&timeline)), expected);
        }
    }

    #[test]
    fn further_tracks_have_the_name_and_the_parent_of_their_track() {
        let mut timeline = Timeline::default();
        let parent = timeline.track("requests", None).unwrap();
        let track = timeline.track("http", Some(parent)).unwrap();
        for start in [0, 5] {
            timeline.add(track, Some("get"), start, Shape::Slice(10), vec![]).unwrap();
        }
        let trace = written(&timeline);
        let tracks: Vec<_> = trace.packet.iter().filter_map(|packet| packet.track_descriptor.as_ref()).collect();
        let shown: Vec<_> = tracks.iter().map(|track| (track.uuid.unwrap(), track.name(), track.parent_uuid)).collect();
        assert_eq!(shown, [(1, "requests", None), (2, "http", Some(1)), (3, "http", Some(1))]);
    }

    #[test]
    fn what_is_missing_is_a_track_and_a_moment_at_the_start() {
        let mut timeline = Timeline::default();
        let track = timeline.track("http", None).unwrap();
        timeline.add(track, Some("get"), 7, Shape::Slice(10), vec![]).unwrap();
        let mut bytes = Vec::new();
        write(&timeline, Some("5 events lost"), &mut bytes).unwrap();
        let trace = Trace::decode(&*bytes).unwrap();
        let tracks = trace.packet.iter().filter_map(|packet| packet.track_descriptor.as_ref());
        assert_eq!(tracks.map(|track| track.name()).collect::<Vec<_>>(), ["http", "partial: 5 events lost"]);
        let moments = trace
            .packet
            .iter()
            .filter(|packet| packet.track_event.as_ref().is_some_and(|event| event.r#type() == EventType::Instant));
        assert_eq!(moments.map(|packet| packet.timestamp).collect::<Vec<_>>(), [Some(7)]);
    }
}
