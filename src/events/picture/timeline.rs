//! A timeline: slices, instants and counter values on named tracks. This module does not know file formats.

use std::collections::HashMap;

use thiserror::Error;

/// A timeline. Times are in nanoseconds, on any clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    tracks: Vec<Track>,
    by_name: HashMap<(Option<TrackId>, String), TrackId>,
    names: Vec<String>,
    by_text: HashMap<String, NameId>,
    entries: Vec<Entry>,
    flows: Vec<(EntryId, EntryId)>,
}

/// The number of a track: its index in the list of tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TrackId(pub u32);

/// The number of an entry: a slice, an instant or a counter value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId(pub u32);

/// The number of a name. Several entries can share a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub u32);

/// A row of the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    /// Its name.
    pub name: String,
    /// The track below which this track is shown.
    pub parent: Option<TrackId>,
    /// What it shows; `None` until it has an entry.
    pub content: Option<Content>,
}

/// What a track shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Slices and instants.
    Slices,
    /// The values of a counter.
    Counter,
}

/// A slice, an instant or a counter value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The track.
    pub track: TrackId,
    /// The name; `None` for a counter value.
    pub name: Option<NameId>,
    /// The start, in ns.
    pub time: u64,
    /// The kind of the entry.
    pub shape: Shape,
    /// The arguments, each with its name.
    pub arguments: Box<[(NameId, Argument)]>,
    /// The functions on the stack, outermost first. Empty if they are unknown.
    pub stack: Box<[NameId]>,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// A slice that starts at the entry's time and lasts this many ns.
    Slice(u64),
    /// An instant.
    Instant,
    /// A new value of a counter.
    Value(Number),
}

/// A counter value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An integer.
    Int(i64),
    /// Any other number.
    Float(f64),
}

/// The value of an argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// True or false.
    Bool(bool),
    /// An integer that may be negative.
    Int(i64),
    /// An integer above the largest `i64`.
    Uint(u64),
    /// A floating-point number.
    Float(f64),
    /// Text.
    Text(String),
}

/// Why something cannot be added to a timeline.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TimelineError {
    /// The track shows slices and the new entry is a counter value, or the other way round.
    #[error("the track {name} shows {shown}, so it cannot show {wanted}; use another track")]
    Content {
        /// The track's name.
        name: String,
        /// What it shows.
        shown: &'static str,
        /// What cannot be added.
        wanted: &'static str,
    },
    /// The track belongs to another timeline.
    #[error("the track does not belong to this timeline")]
    Track,
    /// A flow starts or ends at an entry that does not exist, or that is a counter value.
    #[error("there is no slice or instant {0} in this timeline")]
    Entry(u32),
    /// There are more entries than a `u32` can number.
    #[error("a timeline has at most {} entries", u32::MAX)]
    Full,
}

impl Content {
    fn text(self) -> &'static str {
        match self {
            Content::Slices => "slices",
            Content::Counter => "a counter",
        }
    }
}

impl Timeline {
    /// Returns the track called `name` below `parent`. Creates it if it does not exist.
    pub fn track(&mut self, name: &str, parent: Option<TrackId>) -> Result<TrackId, TimelineError> {
        if parent.is_some_and(|TrackId(parent)| parent as usize >= self.tracks.len()) {
            return Err(TimelineError::Track);
        }
        let key = (parent, name.to_owned());
        if let Some(&track) = self.by_name.get(&key) {
            return Ok(track);
        }
        let track = TrackId(u32::try_from(self.tracks.len()).map_err(|_| TimelineError::Full)?);
        self.tracks.push(Track { name: name.to_owned(), parent, content: None });
        self.by_name.insert(key, track);
        Ok(track)
    }

    /// Adds an entry. A counter value has no name.
    pub fn add(
        &mut self,
        track: TrackId,
        name: Option<&str>,
        time: u64,
        shape: Shape,
        arguments: Vec<(String, Argument)>,
    ) -> Result<EntryId, TimelineError> {
        let wanted = if let Shape::Value(_) = shape { Content::Counter } else { Content::Slices };
        let Track { name: shown_name, content, .. } =
            self.tracks.get_mut(track.0 as usize).ok_or(TimelineError::Track)?;
        let shown = *content.get_or_insert(wanted);
        if shown != wanted {
            let name = shown_name.clone();
            return Err(TimelineError::Content { name, shown: shown.text(), wanted: wanted.text() });
        }
        let entry = EntryId(u32::try_from(self.entries.len()).map_err(|_| TimelineError::Full)?);
        let name = name.map(|name| self.name(name));
        let arguments = arguments.into_iter().map(|(name, value)| (self.name(&name), value)).collect();
        self.entries.push(Entry { track, name, time, shape, arguments, stack: Box::default() });
        Ok(entry)
    }

    /// Sets the functions on the stack of an entry, outermost first.
    fn set_stack<'a>(
        &mut self,
        EntryId(entry): EntryId,
        functions: impl Iterator<Item = &'a str>,
    ) -> Result<(), TimelineError> {
        let stack = functions.map(|function| self.name(function)).collect();
        self.entries.get_mut(entry as usize).ok_or(TimelineError::Entry(entry))?.stack = stack;
        Ok(())
    }

    /// Adds an arrow from one slice or instant to another.
    pub fn flow(&mut self, from: EntryId, to: EntryId) -> Result<(), TimelineError> {
        for EntryId(entry) in [from, to] {
            let found = self.entries.get(entry as usize);
            if !found.is_some_and(|entry| !matches!(entry.shape, Shape::Value(_))) {
                return Err(TimelineError::Entry(entry));
            }
        }
        self.flows.push((from, to));
        Ok(())
    }

    /// Adds everything in another timeline. Tracks with the same name and the same parent become one track.
    pub fn update(&mut self, other: &Timeline) -> Result<(), TimelineError> {
        let mut tracks: Vec<TrackId> = Vec::with_capacity(other.tracks.len());
        for Track { name, parent, .. } in &other.tracks {
            // A parent is created before its children.
            let parent = parent.and_then(|TrackId(parent)| tracks.get(parent as usize).copied());
            tracks.push(self.track(name, parent)?);
        }
        let first = u32::try_from(self.entries.len()).map_err(|_| TimelineError::Full)?;
        for Entry { track, name, time, shape, arguments, stack } in &other.entries {
            let named = |&(name, ref value): &(NameId, Argument)| (other.text(name).to_owned(), value.clone());
            let track = *tracks.get(track.0 as usize).ok_or(TimelineError::Track)?;
            let arguments = arguments.iter().map(named).collect();
            let entry = self.add(track, name.map(|name| other.text(name)), *time, *shape, arguments)?;
            self.set_stack(entry, stack.iter().map(|&name| other.text(name)))?;
        }
        let moved = |EntryId(entry)| entry.checked_add(first).map(EntryId).ok_or(TimelineError::Full);
        for &(from, to) in &other.flows {
            self.flow(moved(from)?, moved(to)?)?;
        }
        Ok(())
    }

    /// Returns the tracks, ordered by number. Parents come before their children.
    pub fn tracks(&self) -> &[Track] {
        &self.tracks
    }

    /// Returns the names of entries and arguments, ordered by number.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the entries in the order in which they were added.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the arrows between entries.
    pub fn flows(&self) -> &[(EntryId, EntryId)] {
        &self.flows
    }

    fn text(&self, NameId(name): NameId) -> &str {
        self.names.get(name as usize).map_or("", String::as_str)
    }

    fn name(&mut self, text: &str) -> NameId {
        if let Some(&name) = self.by_text.get(text) {
            return name;
        }
        // The number fits: each name takes at least a byte of memory, and the number of entries is limited.
        let name = NameId(self.names.len() as u32);
        self.names.push(text.to_owned());
        self.by_text.insert(text.to_owned(), name);
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracks_with_the_same_name_and_parent_are_one() {
        let mut timeline = Timeline::default();
        let cpus = timeline.track("cpus", None).unwrap();
        let first = timeline.track("0", Some(cpus)).unwrap();
        assert_eq!(timeline.track("0", Some(cpus)), Ok(first));
        assert_ne!(timeline.track("0", None), Ok(first));
        assert_eq!(timeline.track("1", Some(TrackId(77))), Err(TimelineError::Track));
    }

    #[test]
    fn a_track_shows_slices_or_a_counter() {
        let mut timeline = Timeline::default();
        let track = timeline.track("memory", None).unwrap();
        timeline.add(track, None, 5, Shape::Value(Number::Int(3)), vec![]).unwrap();
        let error = timeline.add(track, Some("gc"), 5, Shape::Slice(3), vec![]).unwrap_err();
        assert_eq!(error.to_string(), "the track memory shows a counter, so it cannot show slices; use another track");
    }

    #[test]
    fn flows_go_between_slices_and_instants_that_exist() {
        let mut timeline = Timeline::default();
        let (slices, counter) = (timeline.track("a", None).unwrap(), timeline.track("b", None).unwrap());
        let slice = timeline.add(slices, Some("s"), 1, Shape::Slice(2), vec![]).unwrap();
        let value = timeline.add(counter, None, 1, Shape::Value(Number::Float(0.5)), vec![]).unwrap();
        assert_eq!(timeline.flow(slice, slice), Ok(()));
        assert_eq!(timeline.flow(slice, value), Err(TimelineError::Entry(value.0)));
        assert_eq!(timeline.flow(EntryId(9), slice), Err(TimelineError::Entry(9)));
    }

    #[test]
    fn parts_give_the_same_timeline_as_the_whole() {
        let build = |timeline: &mut Timeline, range: std::ops::Range<u64>| {
            for time in range {
                let parent = timeline.track("cpus", None).unwrap();
                let track = timeline.track(&format!("cpu {}", time % 3), Some(parent)).unwrap();
                let arguments = vec![("n".to_owned(), Argument::Uint(time))];
                let slice = timeline.add(track, Some(&format!("task {}", time % 5)), time, Shape::Slice(1), arguments);
                timeline.flow(slice.clone().unwrap(), slice.unwrap()).unwrap();
            }
        };
        let [mut whole, mut first, mut second] = [(); 3].map(|()| Timeline::default());
        build(&mut whole, 0..20);
        build(&mut first, 0..7);
        build(&mut second, 7..20);
        first.update(&second).unwrap();
        assert_eq!(first, whole);
    }
}
