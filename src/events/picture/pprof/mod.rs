//! Profiles of pprof (`profile.proto`): call chains with labels and sums. Equal chains are merged as they are added, so only
//! sums are kept.
//!
//! The addresses of a program differ between processes. So the address of a location is the offset in its file, and all
//! processes share the locations of a file. A mapping is the part of the file that contains locations.

mod messages;

use std::{
    cmp::Reverse,
    collections::HashMap,
    hash::Hash,
    io::{self, Write},
};

use flate2::{Compression, write::GzEncoder};
use perf_prof_system::budget::{Budget, HeldFor, Holding};
use prost::Message as _;

use self::messages as proto;
use super::stacks::note_of_cut_chains;

/// What the periods of an event count, and in which unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantity {
    /// The name of the event.
    pub name: String,
    /// The unit, for example `nanoseconds` or `count`.
    pub unit: String,
}

/// The number of a text in the profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TextId(i64);

/// The number of a file in the profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MappingId(u64);

/// The number of a location in the profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LocationId(u64);

/// A function at an address.
#[derive(Clone, Copy, Debug)]
pub struct FunctionLine<'a> {
    /// The name of the function.
    pub name: &'a str,
    /// The source file and the line; `None` if they are unknown.
    pub source: Option<(&'a str, u32)>,
}

/// The value of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LabelValue {
    /// A text.
    Text(TextId),
    /// A number.
    Number(i64),
}

/// A label of a call chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Label {
    /// The name of the label.
    pub key: TextId,
    /// Its value.
    pub value: LabelValue,
}

/// Which values the profile has for each event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// The number of samples, and the sum of their periods.
    SamplesAndPeriods,
    /// One sum.
    Sums,
}

/// What is added for a call chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// The number of samples.
    pub samples: i64,
    /// The sum of the periods of these samples, or the only sum.
    pub periods: i64,
}

/// The facts about a profile.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The time of day at which the profile begins, in ns since 1970.
    pub time: Option<i64>,
    /// The duration, in ns.
    pub duration: u64,
    /// The fixed period that the user chose, if there is only one event.
    pub period: Option<i64>,
    /// Further facts, for people.
    pub comments: Vec<String>,
}

/// How the bytes of a profile are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    Plain,
    /// With gzip, as readers expect in files.
    Gzip,
}

/// A node in the tree of call chains. The root has no location.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Node {
    caller: usize,
    location: Option<LocationId>,
}

/// What a sum belongs to: an event, the node in which a call chain ends, and labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SumKey {
    event: usize,
    end: usize,
    labels: Box<[Label]>,
}

/// A list without duplicates, and the index of each element.
#[derive(Debug)]
struct Interned<T> {
    all: Vec<T>,
    indexes: HashMap<T, usize>,
}

impl<T: Clone + Eq + Hash> Interned<T> {
    fn starting_with(first: T) -> Interned<T> {
        Interned { all: vec![first.clone()], indexes: HashMap::from([(first, 0)]) }
    }

    fn index(&mut self, value: T) -> usize {
        if let Some(&known) = self.indexes.get(&value) {
            return known;
        }
        let index = self.all.len();
        self.all.push(value.clone());
        self.indexes.insert(value, index);
        index
    }
}

/// The memory of a node, of a location, of a sum and of a text, in bytes, without what they point to. Includes the spare
/// capacity of the tables.
const NODE: usize = 112;
const LOCATION: usize = 320;
const SUM: usize = 160;
const TEXT: usize = 128;

/// Stands for chains that did not fit into memory.
const NO_ROOM: &str = "[no room]";

/// The size of a page, in bytes. Mappings start and end at page boundaries.
const PAGE: u64 = 4096;

type LocationKey = (Option<MappingId>, u64, Vec<proto::Line>);

/// A profile to which samples are added.
#[derive(Debug)]
pub struct Profile {
    events: Vec<Quantity>,
    values: Values,
    texts: Interned<Box<str>>,
    /// The name and the source file of each function. Ids start at 1, so element 0 is unused.
    functions: Interned<(i64, i64)>,
    /// The name and the build id of each file. Element 0 is unused.
    mappings: Interned<(i64, i64)>,
    /// Element 0 is unused.
    locations: Interned<LocationKey>,
    nodes: Interned<Node>,
    sums: HashMap<SumKey, usize>,
    weights: Vec<(SumKey, Weight)>,
    cut: u64,
    memory: Holding,
}

impl Profile {
    /// Creates an empty profile of these events. The memory of the profile comes from `budget`.
    pub fn new(events: Vec<Quantity>, values: Values, budget: &Budget) -> Profile {
        Profile {
            events,
            values,
            texts: Interned::starting_with("".into()),
            functions: Interned::starting_with((0, 0)),
            mappings: Interned::starting_with((0, 0)),
            locations: Interned::starting_with((None, 0, Vec::new())),
            nodes: Interned::starting_with(Node { caller: 0, location: None }),
            sums: HashMap::new(),
            weights: Vec::new(),
            cut: 0,
            memory: budget.hold(HeldFor::Tables),
        }
    }

    /// Returns the number of a text. Adds the text if it is new.
    pub fn text(&mut self, text: &str) -> TextId {
        let index = match self.texts.indexes.get(text) {
            Some(&known) => known,
            None => {
                self.memory.set(self.memory.bytes() + TEXT + 2 * text.len());
                self.texts.index(text.into())
            }
        };
        TextId(index as i64)
    }

    /// Returns the number of a file: a path or a name such as `[kernel.kallsyms]`, with its build id, which may be empty.
    pub fn mapping(&mut self, file: &str, build_id: &[u8]) -> MappingId {
        let build_id: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        let key = (self.text(file).0, self.text(&build_id).0);
        MappingId(self.mappings.index(key) as u64)
    }

    /// Returns the number of a location: an address in a file, and the functions there, innermost first. Returns `None` if
    /// there is no memory for a new location.
    pub fn location(
        &mut self,
        mapping: Option<MappingId>,
        address: u64,
        functions: &[FunctionLine<'_>],
    ) -> Option<LocationId> {
        let texts =
            functions.iter().map(|of| 2 * TEXT + 2 * of.name.len() + 2 * of.source.map_or(0, |(file, _)| file.len()));
        if !self.memory.has_room(LOCATION + texts.sum::<usize>()) {
            return None;
        }
        let lines = functions.iter().map(|of| self.line(of)).collect();
        let key = (mapping, address, lines);
        if !self.locations.indexes.contains_key(&key) {
            self.memory.set(self.memory.bytes() + LOCATION);
        }
        Some(LocationId(self.locations.index(key) as u64))
    }

    fn line(&mut self, of: &FunctionLine<'_>) -> proto::Line {
        let (file, line) = of.source.unwrap_or_default();
        let key = (self.text(of.name).0, self.text(file).0);
        proto::Line { function_id: self.functions.index(key) as u64, line: line.into() }
    }

    /// Adds a weight to a call chain, whose locations start with the outermost one. `None` stands for a location that did
    /// not fit into memory: the chain ends before it.
    pub fn add(
        &mut self,
        event: usize,
        chain: impl IntoIterator<Item = Option<LocationId>>,
        labels: &[Label],
        weight: Weight,
    ) {
        let (mut end, mut is_whole) = (0, true);
        for location in chain {
            match location.and_then(|location| self.node(Node { caller: end, location: Some(location) })) {
                Some(next) => end = next,
                None => {
                    is_whole = false;
                    break;
                }
            }
        }
        let key = SumKey { event, end, labels: labels.into() };
        if let Some(&known) = self.sums.get(&key) {
            self.weights[known].1.add(weight);
        } else if self.memory.has_room(SUM + 2 * size_of_val(labels)) {
            self.memory.set(self.memory.bytes() + SUM + 2 * size_of_val(labels));
            self.push(key, weight);
        } else {
            is_whole = false;
            // This sum takes no memory from the budget: there is only one for each event.
            let key = SumKey { event, end: 0, labels: [].into() };
            match self.sums.get(&key) {
                Some(&known) => self.weights[known].1.add(weight),
                None => self.push(key, weight),
            }
        }
        self.cut += if is_whole { 0 } else { weight.samples.unsigned_abs() };
    }

    fn push(&mut self, key: SumKey, weight: Weight) {
        self.sums.insert(key.clone(), self.weights.len());
        self.weights.push((key, weight));
    }

    fn node(&mut self, node: Node) -> Option<usize> {
        if !self.nodes.indexes.contains_key(&node) {
            if !self.memory.has_room(NODE) {
                return None;
            }
            self.memory.set(self.memory.bytes() + NODE);
        }
        Some(self.nodes.index(node))
    }

    /// Returns the number of samples whose call chain was cut off because memory was short.
    pub fn cut(&self) -> u64 {
        self.cut
    }

    /// Replaces the texts of the labels named `key`: `names` maps old texts to new ones.
    pub fn rename(&mut self, key: TextId, names: &HashMap<String, String>) {
        let renamed: HashMap<TextId, TextId> =
            names.iter().map(|(from, to)| (self.text(from), self.text(to))).collect();
        for label in self.weights.iter_mut().flat_map(|(of, _)| &mut of.labels).filter(|label| label.key == key) {
            if let LabelValue::Text(text) = &mut label.value {
                *text = renamed.get(text).copied().unwrap_or(*text);
            }
        }
    }

    /// Writes the profile.
    pub fn write(&mut self, about: &About, packing: Packing, to: &mut impl Write) -> io::Result<()> {
        let bytes = self.message(about).encode_to_vec();
        match packing {
            Packing::Plain => to.write_all(&bytes),
            Packing::Gzip => {
                let mut packed = GzEncoder::new(to, Compression::default());
                packed.write_all(&bytes)?;
                packed.finish().map(|_| ())
            }
        }
    }

    fn message(&mut self, about: &About) -> proto::Profile {
        let mut shown: Vec<usize> = self.weights.iter().map(|(of, _)| of.event).collect();
        shown.sort_unstable();
        shown.dedup();
        // Leave out events without samples. If a pattern selected many events, most of them never happened.
        if shown.is_empty() {
            shown = (0..self.events.len()).collect();
        }
        let sample_type = self.sample_types(&shown);
        let mut comments = about.comments.clone();
        comments.extend(note_of_cut_chains(self.cut).map(|cut| format!("partial: {cut}")));
        let mut profile = proto::Profile {
            period_type: (shown.len() == 1).then(|| sample_type.last().cloned()).flatten(),
            period: if shown.len() == 1 { about.period.unwrap_or_else(|| self.mean_period()) } else { 0 },
            default_sample_type: sample_type.last().map_or(0, |last| last.r#type),
            sample_type,
            sample: self.samples(&shown),
            comment: comments.iter().map(|comment| self.text(comment).0).collect(),
            mapping: Vec::new(),
            location: self.location_messages(),
            function: self.function_messages(),
            string_table: Vec::new(),
            time_nanos: about.time.unwrap_or(0),
            duration_nanos: i64::try_from(about.duration).unwrap_or(i64::MAX),
        };
        profile.mapping = self.mapping_messages(&profile.location);
        if let Some(main) = self.main_program(&profile) {
            put_first(&mut profile, main);
        }
        profile.string_table = self.texts.all.iter().map(|text| text.to_string()).collect();
        profile
    }

    /// Returns the sample types of each event. Readers of profiles may split a name at colons, so names contain none.
    fn sample_types(&mut self, shown: &[usize]) -> Vec<proto::ValueType> {
        let has_samples = self.values == Values::SamplesAndPeriods;
        let of_event = |&event: &usize| {
            let Quantity { name, unit } = self.events[event].clone();
            let name = name.replace(':', "_");
            let samples = if shown.len() == 1 { "samples".to_owned() } else { format!("{name}.samples") };
            let mut value =
                |name: &str, unit: &str| proto::ValueType { r#type: self.text(name).0, unit: self.text(unit).0 };
            let samples = has_samples.then(|| value(&samples, "count"));
            samples.into_iter().chain([value(&name, &unit)]).collect::<Vec<_>>()
        };
        shown.iter().flat_map(of_event).collect()
    }

    fn mean_period(&self) -> i64 {
        let mut all = Weight::default();
        self.weights.iter().for_each(|(_, weight)| all.add(*weight));
        all.periods.checked_div(all.samples).unwrap_or(0)
    }

    fn samples(&mut self, shown: &[usize]) -> Vec<proto::Sample> {
        let no_room = self.line(&FunctionLine { name: NO_ROOM, source: None });
        let no_room = (self.cut != 0).then(|| self.locations.index((None, 0, vec![no_room])) as u64);
        let sample = |(of, weight): &(SumKey, Weight)| {
            let both = [weight.samples, weight.periods];
            let of_event = if self.values == Values::Sums { &both[1..] } else { &both[..] };
            let at = of_event.len() * shown.binary_search(&of.event).unwrap_or(0);
            let mut value = vec![0; of_event.len() * shown.len()];
            value[at..at + of_event.len()].copy_from_slice(of_event);
            let node = |at: usize| (at != 0).then(|| self.nodes.all[at]);
            let chain = std::iter::successors(node(of.end), |of| node(of.caller));
            let mut location_id: Vec<u64> = chain.filter_map(|node| node.location).map(|location| location.0).collect();
            if location_id.is_empty() {
                location_id.extend(no_room);
            }
            let label = |label: &Label| match label.value {
                LabelValue::Text(text) => proto::Label { key: label.key.0, str: text.0, num: 0, num_unit: 0 },
                LabelValue::Number(num) => proto::Label { key: label.key.0, str: 0, num, num_unit: label.key.0 },
            };
            proto::Sample { location_id, value, label: of.labels.iter().map(label).collect() }
        };
        self.weights.iter().map(sample).collect()
    }

    fn location_messages(&self) -> Vec<proto::Location> {
        let message = |(id, (mapping, address, line)): (u64, &LocationKey)| proto::Location {
            id,
            mapping_id: mapping.map_or(0, |mapping| mapping.0),
            address: *address,
            line: line.clone(),
        };
        (0..).zip(&self.locations.all).skip(1).map(message).collect()
    }

    fn function_messages(&self) -> Vec<proto::Function> {
        let message =
            |(id, &(name, filename)): (u64, &(i64, i64))| proto::Function { id, name, system_name: name, filename };
        (0..).zip(&self.functions.all).skip(1).map(message).collect()
    }

    fn mapping_messages(&self, locations: &[proto::Location]) -> Vec<proto::Mapping> {
        let mut all: Vec<proto::Mapping> = (0..)
            .zip(&self.mappings.all)
            .map(|(id, &(filename, build_id))| proto::Mapping {
                id,
                memory_start: u64::MAX,
                filename,
                build_id,
                has_line_numbers: true,
                ..proto::Mapping::default()
            })
            .collect();
        for of in locations {
            let mapping = &mut all[of.mapping_id as usize];
            mapping.memory_start = mapping.memory_start.min(of.address / PAGE * PAGE);
            mapping.memory_limit = mapping.memory_limit.max((of.address / PAGE).saturating_add(1).saturating_mul(PAGE));
            mapping.has_functions |= !of.line.is_empty();
            mapping.has_inline_frames |= of.line.len() > 1;
            mapping.has_line_numbers &= of.line.iter().all(|line| line.line != 0);
        }
        for mapping in &mut all {
            mapping.memory_start = mapping.memory_start.min(mapping.memory_limit);
            mapping.has_line_numbers &= mapping.has_functions;
            mapping.has_filenames = mapping.has_line_numbers;
            // Outside of files, in the kernel for example, an address is not a file offset.
            let is_file = self.texts.all[mapping.filename as usize].starts_with('/');
            mapping.file_offset = if is_file { mapping.memory_start } else { 0 };
        }
        all.split_off(1)
    }

    /// Returns the index of the mapping with the main program: the program that is in the call chains with the most weight. If
    /// there is no program, this is another file. `None` if there are no files.
    fn main_program(&self, profile: &proto::Profile) -> Option<usize> {
        let mut weights = vec![0_i64; profile.mapping.len() + 1];
        for (sample, (_, weight)) in profile.sample.iter().zip(&self.weights) {
            let mapping = |&id: &u64| profile.location[id as usize - 1].mapping_id as usize;
            let mut mappings: Vec<usize> = sample.location_id.iter().map(mapping).collect();
            mappings.sort_unstable();
            mappings.dedup();
            let weight = if self.values == Values::Sums { weight.periods } else { weight.samples };
            mappings.into_iter().for_each(|at| weights[at] = weights[at].saturating_add(weight));
        }
        let rank = |(at, mapping): (usize, &proto::Mapping)| {
            let name = &*self.texts.all[mapping.filename as usize];
            is_file(name).then(|| (is_program(name), weights[at + 1], Reverse(at)))
        };
        let (.., Reverse(main)) = profile.mapping.iter().enumerate().filter_map(rank).max()?;
        Some(main)
    }
}

/// Returns whether a mapping is of a file, and not of the kernel or of memory, such as `[vdso]` and `//anon`.
fn is_file(name: &str) -> bool {
    name.starts_with('/')
        && !["//", "/memfd:", "/SYSV", "/anon_hugepage", "/dev/zero"].iter().any(|memory| name.starts_with(memory))
}

/// Returns whether a file is neither a library, nor a module of the kernel, nor a script.
fn is_program(name: &str) -> bool {
    let (_, file) = name.trim_end_matches(" (deleted)").rsplit_once('/').unwrap_or_default();
    !file.split('.').skip(1).any(|part| matches!(part, "so" | "ko" | "py"))
}

/// Makes this mapping the first one. Readers show the first one as the program of the profile.
fn put_first(profile: &mut proto::Profile, main: usize) {
    profile.mapping[..=main].rotate_right(1);
    let mut ids = vec![0; profile.mapping.len() + 1];
    for (id, mapping) in (1..).zip(&mut profile.mapping) {
        ids[mapping.id as usize] = id;
        mapping.id = id;
    }
    profile.location.iter_mut().for_each(|of| of.mapping_id = ids[of.mapping_id as usize]);
}

impl Weight {
    fn add(&mut self, more: Weight) {
        self.samples = self.samples.saturating_add(more.samples);
        self.periods = self.periods.saturating_add(more.periods);
    }
}

#[cfg(test)]
mod tests;
