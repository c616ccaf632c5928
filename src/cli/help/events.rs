//! The entries of the index for events, their fields, members and columns. All of them come from the tables in the
//! code.

use perf_prof_events::{
    derive::source::{SOURCES, SourceDefinition},
    event::Columns,
    template::SPAN_MEMBERS,
};
use perf_prof_format::{
    record::SampleMember,
    spec::{EventGroup, perf_event_names},
};
use perf_prof_session::selectors;

use super::entry::{Entry, Kind};

/// The document that describes events other than tracepoints.
const EVENTS: &str = "docs/events-and-fields.md#events-other-than-tracepoints";

/// Events whose selectors contain an address, a number or a PMU, and what they are.
const WRITTEN: [(&str, &str); 3] = [
    (
        "mem:ADDR/LEN:w",
        "each write to LEN bytes of memory at an address, by a breakpoint of the CPU (a watchpoint); rw: each access; with -g, \
         who wrote the variable",
    ),
    ("rNNN", "the raw hardware event with this code"),
    ("PMU/TERM,TERM/", "an event of a PMU in /sys/bus/event_source/devices"),
];

/// Returns the entries of sources, events, members and columns.
pub fn entries() -> Vec<Entry> {
    let mut found: Vec<Entry> = SOURCES.iter().flat_map(|source| of_source(source)).collect();
    found.extend(events());
    found.extend(members());
    let columns = Columns::names().map(|name| {
        let text = format!("a column of the lines of perf-prof script: -F {name}");
        Entry::new(Kind::Column, name, text, "perf-prof script --help")
    });
    found.extend(columns);
    found
}

/// Returns the entries of a source, of its fields, and of its options.
fn of_source(source: &SourceDefinition) -> Vec<Entry> {
    let name = if source.system.is_empty() { source.name.to_owned() } else { format!("{}:NAME@FILE", source.name) };
    let place = format!("perf-prof list -v {}", source.name);
    let mut whole = Entry::new(Kind::Source, &name, source.about, &place);
    whole.more = vec![format!("-e '{}'", source.example)];
    let fields = source.fields.iter().map(|field| (format!("{} of {name}", field.name), field.about.to_owned()));
    let strings = source.string_fields();
    let strings = strings.map(|field| (format!("{} of {name}/str/", field.name), field.about.to_owned()));
    let flags = source.flags.iter().map(|flag| {
        let text = match flag.filter {
            "" => flag.about.to_owned(),
            filter => format!("only {}: {filter}", flag.about.trim_start_matches("only ")),
        };
        (format!("{name}/{}/", flag.name), text)
    });
    let parts = fields.chain(strings).chain(flags).map(|(name, text)| Entry::new(Kind::Source, name, text, &place));
    std::iter::once(whole).chain(parts).collect()
}

fn events() -> impl Iterator<Item = Entry> {
    let built_in = selectors::BUILT_IN.iter().map(|source| {
        let text = "what the CPUs execute: cycles of the hardware, or a clock where it has none";
        Entry::new(Kind::Event, source.name, text, EVENTS)
    });
    let named = perf_event_names().map(|(name, group)| {
        let text = match group {
            EventGroup::Software => "software event, which the kernel counts",
            EventGroup::Hardware => "hardware event, which a counter of the CPU counts",
            EventGroup::Cache => "hardware event of a cache, which a counter of the CPU counts",
        };
        Entry::new(Kind::Event, name, text, EVENTS)
    });
    let written = WRITTEN.iter().map(|&(form, text)| Entry::new(Kind::Event, form, text, EVENTS));
    built_in.chain(named).chain(written)
}

fn members() -> impl Iterator<Item = Entry> {
    let place = "docs/events-and-fields.md#members";
    let samples = SampleMember::all().map(move |member| {
        let name = format!("event.{}", member.name());
        let mut entry = Entry::new(Kind::Member, name, member.doc(), place);
        entry.more =
            vec![format!("-e 'EVENT//sample={}/' adds it to samples of events other than tracepoints", member.name())];
        entry
    });
    let spans = SPAN_MEMBERS.into_iter().map(|(name, _, text)| {
        Entry::new(Kind::Member, format!("event.{name}"), format!("{text}, of spans"), "docs/reference.md#spans")
    });
    samples.chain(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn named(kind: Kind, name: &str) {
        let found = entries();
        let is = |entry: &&Entry| entry.kind == kind && entry.name == name;
        let entry = found.iter().find(is).unwrap_or_else(|| panic!("{name} is not in the index"));
        assert!(!entry.text.is_empty(), "{name} has no text");
    }

    #[test]
    fn sources_have_entries_for_their_fields_and_options() {
        named(Kind::Source, "offcpu");
        named(Kind::Source, "waker_comm of offcpu");
        named(Kind::Source, "syscall/failed/");
        named(Kind::Source, "path of syscall/str/");
        named(Kind::Source, "function:NAME@FILE");
    }

    #[test]
    fn events_members_and_columns_have_entries() {
        named(Kind::Event, "page-faults");
        named(Kind::Event, "profile");
        named(Kind::Event, "mem:ADDR/LEN:w");
        named(Kind::Member, "event.branch_stack");
        named(Kind::Member, "event.between");
        named(Kind::Column, "symoff");
    }
}
