//! The entries that `perf-prof help WORD` finds. Each entry has a kind, a name, a line of text, and the place where the
//! user can read more.

use serde::Serialize;

/// The kind of an entry. Entries of one kind are shown together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A command of perf-prof.
    Command,
    /// An option of a command.
    Option,
    /// A way to trace a program whose name the user typed.
    Program,
    /// A command line that answers a question.
    Example,
    /// A shipped script, or an option of one.
    Script,
    /// A built-in source, one of its fields or one of its options.
    Source,
    /// An event other than a tracepoint, or a form of its selector.
    Event,
    /// An attribute of selectors.
    Attribute,
    /// A member of events.
    Member,
    /// A column of a line or of a table.
    Column,
    /// A function that perf-prof calls.
    Callback,
    /// An aggregator, or one of its methods.
    Aggregator,
    /// A function, class or method of the package `perf_prof`.
    Module,
    /// An environment variable of perf-prof.
    Environment,
    /// A message of perf-prof that a document explains.
    Message,
    /// A section of a document.
    Document,
    /// A section of a document for developers of perf-prof.
    Design,
    /// A synonym of a word in perf-prof.
    Word,
}

impl Kind {
    /// Returns the heading of the entries of this kind.
    pub fn heading(self) -> &'static str {
        match self {
            Kind::Command => "Commands",
            Kind::Option => "Options",
            Kind::Program => "A program of this name",
            Kind::Example => "Examples",
            Kind::Script => "Scripts",
            Kind::Source => "Sources, their fields and options",
            Kind::Event => "Events",
            Kind::Attribute => "Attributes of selectors",
            Kind::Member => "Members of events",
            Kind::Column => "Columns",
            Kind::Callback => "Functions that perf-prof calls",
            Kind::Aggregator => "Aggregators",
            Kind::Module => "The module perf_prof",
            Kind::Environment => "Environment variables",
            Kind::Message => "Messages",
            Kind::Document => "Documents",
            Kind::Design => "For people who change the code",
            Kind::Word => "Other words that are understood",
        }
    }

    /// Returns the weight of the kind. If entries match equally well, things to use come before things to read.
    pub fn weight(self) -> f32 {
        match self {
            Kind::Command | Kind::Program => 1.2,
            Kind::Option | Kind::Script | Kind::Source | Kind::Attribute => 1.1,
            Kind::Event | Kind::Aggregator | Kind::Example | Kind::Callback | Kind::Environment => 1.0,
            Kind::Module | Kind::Member | Kind::Column | Kind::Message => 0.9,
            Kind::Document => 0.85,
            Kind::Design | Kind::Word => 0.5,
        }
    }
}

/// Something that users can search for, and the place that describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The kind of the entry.
    pub kind: Kind,
    /// The name, as users write it.
    pub name: String,
    /// One line that describes the entry.
    pub text: String,
    /// The command or document that describes the entry.
    pub place: String,
    /// Further lines that describe the entry. A search also looks into these lines.
    #[serde(skip)]
    pub more: Vec<String>,
}

impl Entry {
    /// Returns an entry without more lines.
    pub fn new(kind: Kind, name: impl Into<String>, text: impl Into<String>, place: impl Into<String>) -> Entry {
        Entry { kind, name: name.into(), text: text.into(), place: place.into(), more: Vec::new() }
    }

    /// Returns the name without additions: a method without its class and its parameters, an option without its value
    /// and its script.
    pub fn own_name(&self) -> &str {
        let name = self.name.split(['(', '<']).next().unwrap_or(&self.name);
        match self.kind {
            Kind::Script => name.split_once(' ').map_or(name, |(_, option)| option),
            Kind::Source => name.split_once(" of ").map_or(name, |(field, _)| field),
            Kind::Aggregator | Kind::Member | Kind::Module => name.rsplit_once('.').map_or(name, |(_, own)| own),
            _ => name,
        }
    }

    /// Returns whether the entry has this name. Ignores case, and text in parentheses.
    pub fn is_named(&self, name: &str) -> bool {
        let own = self.name.split(['(', '<', '=']).next().unwrap_or(&self.name).to_lowercase();
        let own = own.trim();
        own == name || own.strip_prefix("perf-prof ") == Some(name) || own.split(", ").any(|one| one == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn own_name(kind: Kind, name: &str, expected: &str) {
        assert_eq!(Entry::new(kind, name, "", "").own_name().trim(), expected);
    }

    #[test]
    fn a_name_is_divided_from_what_stands_beside_it() {
        own_name(Kind::Option, "-p, --pid <LIST>", "-p, --pid");
        own_name(Kind::Module, "Log2Hist.add(value, n)", "add");
        own_name(Kind::Aggregator, "Hist(value, by)", "Hist");
        own_name(Kind::Script, "scripts/offcpu.py --flame FILE", "--flame FILE");
        own_name(Kind::Source, "waker_comm of offcpu", "waker_comm");
    }

    #[test]
    fn an_entry_has_each_of_its_names() {
        let option = Entry::new(Kind::Option, "-p, --pid <LIST>", "", "");
        assert!(option.is_named("--pid") && option.is_named("-p") && !option.is_named("pid"));
        assert!(Entry::new(Kind::Command, "perf-prof top", "", "").is_named("top"));
        assert!(Entry::new(Kind::Attribute, "alias=NAME", "", "").is_named("alias"));
    }
}
