//! The grammar of spans: `span:NAME=BEGIN..END/filter/key=FIELD+FIELD/min=TIME/.../`, and of the sources that are
//! spans: `offcpu/comm=make, min=10ms/stack/`.

use std::fmt;

use super::{
    attrs::Attrs,
    error::{SpanSyntaxError, SpecError},
    event::EventKind,
    parse::{find, quoted, unquote},
    probe::{Probe, ProbeKind},
    probe_args::ProbeArgument,
    quantity::parse_interval,
    span_events::{self, ParsedEvents},
};

/// The names of the built-in sources that are spans. `events/derive/source/` defines them.
pub const SPAN_SOURCES: &[&str] = &[
    "syscall",
    "offcpu",
    "runqueue",
    "oncpu",
    "task-state",
    "process",
    "tcp",
    "block-io",
    "irq",
    "softirq",
    "hrtimer",
    "workqueue",
    "lock",
    "alloc",
    "signal",
    "kvm-exit",
];

/// The start of a selector of the source `function`. The events of this source are probes of a function.
const FUNCTION: &str = "function:";

/// The start of a selector of a span whose events the user names.
const SPAN: &str = "span:";

/// The options of the source `function`. Other names with a value are arguments of its probes.
const OPTIONS_OF_FUNCTION: [&str; 3] = ["name", "ret", "comm"];

/// The default of `max-open=`: the number of spans that may be open at the same time.
const MAX_OPEN: u32 = 1_000_000;

/// A span: the time from an event that begins it to an event that ends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanSpec {
    /// The name of the span's event.
    pub name: String,
    /// The events that begin and end the span.
    pub events: SpanEvents,
    /// The fields that have the same values in both events of a span. Empty for a source, which has its own key.
    pub key: Vec<KeyField>,
    /// The options of a source: `failed`, `comm=make|cc*`. Empty for other spans.
    pub options: Vec<SpanOption>,
    /// The arguments that the user requested from the probes that begin and end the span.
    pub arguments: SpanArguments,
    /// `min=TIME`: the duration of the shortest span that is delivered, in ns.
    pub min: u64,
    /// Which events of a span have a call chain.
    pub stack: SpanStack,
    /// `max-open=N`: the number of spans that may be open at the same time.
    pub max_open: u32,
    /// Whether several spans with the same key may be open at the same time.
    pub nesting: Nesting,
    /// What happens to the spans that are open at the end.
    pub at_end: OpenAtEnd,
}

/// The events that begin and end a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanEvents {
    /// The user names the events.
    Selected {
        /// The tracepoints and probes that begin a span.
        begin: Vec<EventKind>,
        /// The tracepoints and probes that end a span.
        end: Vec<EventKind>,
    },
    /// A built-in source defines the events.
    Source {
        /// The name of the source, for example `offcpu`.
        source: String,
        /// The probe of the function whose calls are the spans, for `function:NAME@FILE`.
        function: Option<Box<Probe>>,
    },
}

/// An option of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanOption {
    /// The name of the option: a word that the source knows, or the name of one of the source's fields.
    pub name: String,
    /// The values that the field may have, with wildcards; empty if the option has no value.
    pub values: Vec<String>,
}

/// The arguments of the probes of a span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanArguments {
    /// `NAME=FETCH` or `begin.NAME=FETCH`: the arguments of the probes that begin a span.
    pub begin: Vec<ProbeArgument>,
    /// `end.NAME=FETCH`: the arguments of the probes that end a span.
    pub end: Vec<ProbeArgument>,
}

/// A field of the key. It may have different names in the event that begins a span and in the event that ends the span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyField {
    /// The name in the event that begins the span. This is also the name in the span.
    pub begin: String,
    /// The name in the event that ends the span.
    pub end: String,
}

/// Which events of a span have a call chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpanStack {
    /// The options that apply to all events decide.
    #[default]
    Inherit,
    /// Only the event that begins the span. The span gets the call chain of this event.
    Begin,
    /// Only the event that ends the span. The span gets the call chain of this event.
    End,
    /// Both events. The span gets the call chain of the event that begins it.
    Both,
}

/// Whether several spans with the same key may be open at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nesting {
    /// A new span replaces the open span with the same key.
    #[default]
    Replaced,
    /// `nested`: several spans with the same key may be open. The span that was opened last ends first.
    Nested,
}

/// What happens to the spans that are open at the end of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OpenAtEnd {
    /// The spans are counted, but not delivered.
    #[default]
    Counted,
    /// `open`: the spans are delivered.
    Delivered,
}

impl SpanSpec {
    /// Returns the conditions on spans, without the filter, as the user can type them: `name=read, min=10ms`.
    pub fn conditions(&self) -> Vec<String> {
        // `str` is an option, but not a condition.
        let options = self.options.iter().filter(|option| option.name != "str");
        let options = options.map(|SpanOption { name, values }| match values.as_slice() {
            [] => name.clone(),
            values => format!("{name}={}", values.join("|")),
        });
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us"), (1, "ns")];
        let unit = units.into_iter().find(|(size, _)| self.min != 0 && self.min.is_multiple_of(*size));
        options.chain(unit.map(|(size, unit)| format!("min={}{unit}", self.min / size))).collect()
    }

    /// Parses the name of a source. Returns `None` if the text is something else.
    pub(super) fn parse_source(selector: &str) -> Option<SpanSpec> {
        let events = SpanEvents::Source { source: selector.to_owned(), function: None };
        SPAN_SOURCES.contains(&selector).then(|| SpanSpec::new(selector, events))
    }

    /// Parses `span:NAME=BEGIN..END` or `function:NAME@FILE` at the start of a text. Returns the span and the offset of the
    /// text after it, or `None` if the text is something else.
    pub(super) fn parse_with_events(text: &str) -> Option<Result<(SpanSpec, usize), SpecError>> {
        let Some(after) = text.strip_prefix(SPAN) else { return Self::parse_function(text) };
        let head = || find(text, 0, &[',', '/']).ok().flatten().map_or(text, |end| &text[..end]).trim().to_owned();
        let wrong = |error| SpecError::Span { selector: head(), error };
        Some(Self::parse_named(after).map(|(span, length)| (span, SPAN.len() + length)).map_err(wrong))
    }

    fn parse_function(text: &str) -> Option<Result<(SpanSpec, usize), SpecError>> {
        let probe_text = format!("{}:{}", ProbeKind::Uprobe.name(), text.strip_prefix(FUNCTION)?);
        let wrong = |error| SpecError::Probe { selector: text.trim().to_owned(), error };
        let parsed = super::probe::parse(&probe_text)?.map_err(wrong).map(|(probe, end)| {
            let (_, name) = probe.recorded_name();
            let events = SpanEvents::Source { source: "function".to_owned(), function: Some(Box::new(probe)) };
            (SpanSpec::new(&name, events), end + text.len() - probe_text.len())
        });
        Some(parsed)
    }

    fn new(name: &str, events: SpanEvents) -> SpanSpec {
        SpanSpec {
            name: name.to_owned(),
            events,
            key: Vec::new(),
            options: Vec::new(),
            arguments: SpanArguments::default(),
            min: 0,
            stack: SpanStack::Inherit,
            max_open: MAX_OPEN,
            nesting: Nesting::Replaced,
            at_end: OpenAtEnd::Counted,
        }
    }

    /// Parses `NAME=BEGIN..END` at the start of a text. Returns the span and its length.
    fn parse_named(text: &str) -> Result<(SpanSpec, usize), SpanSyntaxError> {
        let (name, events) = text.split_once('=').ok_or(SpanSyntaxError::Form)?;
        let before = name.len() + 1;
        let name = name.trim();
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)) {
            return Err(SpanSyntaxError::Name(name.to_owned()));
        }
        let ParsedEvents { begin, end, length } = span_events::parse(events)?;
        Ok((SpanSpec::new(name, SpanEvents::Selected { begin, end }), before + length))
    }

    /// Parses the first section of a source: options, separated by commas. Returns false, and changes nothing, if the
    /// section is a filter.
    pub(super) fn add_options(&mut self, section: &str) -> Result<bool, SpanSyntaxError> {
        if !self.is_source() || !section.split(',').all(is_option) {
            return Ok(false);
        }
        for text in section.split(',').map(str::trim) {
            if !self.add(text)? && !self.add_argument(text)? {
                self.add_option(text);
            }
        }
        Ok(true)
    }

    /// Adds an attribute as an argument of the probes that begin the span, or of the probes that end it. Returns false if the
    /// attribute is no argument, or if the span has no probes.
    pub(super) fn add_argument(&mut self, text: &str) -> Result<bool, SpanSyntaxError> {
        let (part, text) = match (text.strip_prefix("begin."), text.strip_prefix("end.")) {
            (Some(text), _) => (Some("begin"), text),
            (None, Some(text)) => (Some("end"), text),
            (None, None) => (None, text),
        };
        let are_probes = |events: &[EventKind]| events.iter().all(|event| matches!(event, EventKind::Probe(_)));
        let (takes, is_option) = match &self.events {
            SpanEvents::Selected { begin, end } => (are_probes(if part == Some("end") { end } else { begin }), false),
            SpanEvents::Source { function, .. } => {
                let name = text.split('=').next().unwrap_or(text).trim();
                (function.is_some(), OPTIONS_OF_FUNCTION.contains(&name))
            }
        };
        match (ProbeArgument::parse(text).filter(|_| part.is_some() || takes && !is_option), part) {
            (None, _) => Ok(false),
            (Some(_), Some(part)) if !takes => Err(SpanSyntaxError::NoProbe(part)),
            (Some(argument), part) => {
                let argument = argument.map_err(SpanSyntaxError::Argument)?;
                if part == Some("end") { &mut self.arguments.end } else { &mut self.arguments.begin }.push(argument);
                Ok(true)
            }
        }
    }

    /// Adds an attribute as an option of the source. Returns false if the attribute is one that all events have, or if
    /// this span is not a source.
    pub(super) fn add_as_option(&mut self, text: &str) -> bool {
        let is_own = self.is_source() && is_option(text) && !Attrs::has(text.split('=').next().unwrap_or(text).trim());
        if is_own {
            self.add_option(text);
        }
        is_own
    }

    fn add_option(&mut self, text: &str) {
        let (name, values) = text.split_once('=').unwrap_or((text, ""));
        let values = unquote(values.trim()).split('|').map(|value| unquote(value.trim()).to_owned());
        let values = values.filter(|value| !value.is_empty()).collect();
        self.options.push(SpanOption { name: name.trim().to_owned(), values });
    }

    /// Returns whether a built-in source defines the events of this span.
    pub fn is_source(&self) -> bool {
        matches!(self.events, SpanEvents::Source { .. })
    }

    /// Parses an attribute that only spans have, or that has another meaning for spans. Returns false for other
    /// attributes.
    pub(super) fn add(&mut self, text: &str) -> Result<bool, SpanSyntaxError> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name.trim(), Some(unquote(value.trim()))),
            None => (text.trim(), None),
        };
        match (name, value) {
            ("key", Some(value)) => {
                self.key = value.split('+').map(KeyField::parse).collect::<Result<_, _>>()?;
            }
            ("min", Some(value)) => {
                let time = parse_interval(value).map_err(SpanSyntaxError::Time)?;
                self.min = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            }
            // `str` without a value is an option of sources. With a value, it is an attribute of tracepoints.
            ("str", None) if self.is_source() => self.add_option("str"),
            ("max-open", Some(value)) => {
                let number = value.parse().ok().filter(|&number| (1..u32::MAX).contains(&number));
                self.max_open = number.ok_or_else(|| SpanSyntaxError::MaxOpen(value.to_owned()))?;
            }
            ("stack", None) => self.stack = SpanStack::Begin,
            ("stack", Some("begin")) => self.stack = SpanStack::Begin,
            ("stack", Some("end")) => self.stack = SpanStack::End,
            ("stack", Some("both")) => self.stack = SpanStack::Both,
            ("stack", Some(other)) => return Err(SpanSyntaxError::Stack(other.to_owned())),
            ("nested", None) => self.nesting = Nesting::Nested,
            ("open", None) => self.at_end = OpenAtEnd::Delivered,
            ("key" | "min" | "max-open", None) => return Err(SpanSyntaxError::NeedsValue(name.to_owned())),
            ("nested" | "open", Some(_)) => return Err(SpanSyntaxError::TakesNoValue(name.to_owned())),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Sets the key of system calls if none was given. Fails if the span has no key.
    pub(super) fn finish(&mut self) -> Result<(), SpanSyntaxError> {
        let SpanEvents::Selected { begin, end } = &self.events else {
            return if self.key.is_empty() { Ok(()) } else { Err(SpanSyntaxError::KeyOfSource(self.name.clone())) };
        };
        if !self.key.is_empty() {
            return Ok(());
        }
        let is_system_call = |event: &EventKind| match event {
            EventKind::Tracepoint { system, .. } => ["syscalls", "raw_syscalls"].contains(&system.as_str()),
            _ => false,
        };
        if !begin.iter().chain(end).all(is_system_call) {
            return Err(SpanSyntaxError::NoKey);
        }
        self.key = vec![KeyField { begin: "_tid".to_owned(), end: "_tid".to_owned() }];
        Ok(())
    }

    /// Writes the attributes as sections of a selector, each with its closing `/`.
    pub(super) fn write_attrs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.key.is_empty() {
            let key: Vec<String> = self.key.iter().map(KeyField::to_string).collect();
            write!(f, "key={}/", key.join("+"))?;
        }
        for SpanOption { name, values } in &self.options {
            match values.as_slice() {
                [] => write!(f, "{name}/")?,
                values => write!(f, "{name}={}/", quoted(&values.join("|")))?,
            }
        }
        for (part, arguments) in [("begin", &self.arguments.begin), ("end", &self.arguments.end)] {
            arguments.iter().try_for_each(|argument| write!(f, "{}/", quoted(&format!("{part}.{argument}"))))?;
        }
        if self.min != 0 {
            write!(f, "min={}ns/", self.min)?;
        }
        f.write_str(match self.stack {
            SpanStack::Inherit => "",
            SpanStack::Begin => "stack/",
            SpanStack::End => "stack=end/",
            SpanStack::Both => "stack=both/",
        })?;
        if self.max_open != MAX_OPEN {
            write!(f, "max-open={}/", self.max_open)?;
        }
        if self.nesting == Nesting::Nested {
            f.write_str("nested/")?;
        }
        if self.at_end == OpenAtEnd::Delivered {
            f.write_str("open/")?;
        }
        Ok(())
    }
}

/// Returns whether a text is an option: a word, or a word with a value after `=`. A comparison is not an option.
fn is_option(text: &str) -> bool {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    let is_word = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
    };
    is_word(name.trim()) && !value.starts_with('=') && !value.contains("&&")
}

impl KeyField {
    fn parse(text: &str) -> Result<KeyField, SpanSyntaxError> {
        let (begin, end) = text.split_once(':').unwrap_or((text, text));
        let is_name = |text: &str| {
            text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        match (begin.trim(), end.trim()) {
            (begin, end) if is_name(begin) && is_name(end) => {
                Ok(KeyField { begin: begin.to_owned(), end: end.to_owned() })
            }
            _ => Err(SpanSyntaxError::Key(text.trim().to_owned())),
        }
    }
}

impl fmt::Display for SpanSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |event: &EventKind| match event {
            EventKind::Tracepoint { system, name } => format!("{system}:{name}"),
            EventKind::Probe(probe) => probe.to_string(),
            // Nothing else can be here: only tracepoints and probes begin and end a span.
            _ => String::new(),
        };
        let names = |events: &[EventKind]| events.iter().map(name).collect::<Vec<_>>().join("|");
        match &self.events {
            SpanEvents::Selected { begin, end } => write!(f, "span:{}={}..{}", self.name, names(begin), names(end)),
            SpanEvents::Source { source, function: None } => f.write_str(source),
            SpanEvents::Source { source, function: Some(probe) } => {
                let text = probe.to_string();
                write!(f, "{source}:{}", text.split_once(':').map_or(text.as_str(), |(_, function)| function))
            }
        }
    }
}

impl fmt::Display for KeyField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.begin)?;
        if self.begin == self.end { Ok(()) } else { write!(f, ":{}", self.end) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{EventKind, EventSpec, parse_events};

    fn parse(text: &str) -> (EventSpec, SpanSpec) {
        let mut events = parse_events(text).unwrap();
        let event = events.remove(0);
        assert!(events.is_empty());
        let EventKind::Span(span) = event.kind.clone() else { panic!("{text} is not a span") };
        (event, *span)
    }

    #[test]
    fn conditions_are_shown_as_they_are_typed() {
        let shown = |text| parse(text).1.conditions().join(", ");
        assert_eq!(shown("syscall/name=open*|read, failed, min=10ms/"), "name=open*|read, failed, min=10ms");
        assert_eq!(shown("offcpu/min=1500us/"), "min=1500us");
        assert_eq!(shown("offcpu/blocked > 5/"), "");
    }

    #[test]
    fn a_span_has_events_a_filter_and_attributes() {
        let text = "span:io=a:b|a:c..d:e/ret < 0 && duration > 5/key=dev+x:y/min=2ms/stack=both/alias=z/cpus=0,2/\
                    max-open=10/nested/open/";
        let (event, span) = parse(text);
        let name =
            |system: &str, name: &str| EventKind::Tracepoint { system: system.to_owned(), name: name.to_owned() };
        let (begin, end) = (vec![name("a", "b"), name("a", "c")], vec![name("d", "e")]);
        assert_eq!(span.events, SpanEvents::Selected { begin, end });
        assert_eq!(span.key.iter().map(KeyField::to_string).collect::<Vec<_>>(), ["dev", "x:y"]);
        assert_eq!((span.min, span.stack, span.max_open), (2_000_000, SpanStack::Both, 10));
        assert_eq!((span.nesting, span.at_end), (Nesting::Nested, OpenAtEnd::Delivered));
        assert_eq!(event.filter.as_deref(), Some("ret < 0 && duration > 5"));
        assert_eq!(event.attrs.alias.as_deref(), Some("z"));
        assert!(event.attrs.cpus.is_some());
    }

    #[test]
    fn a_span_may_begin_and_end_with_probes() {
        for (text, events, end) in [
            ("usdt:a:b@/usr/bin/x..usdt:a:c@/usr/bin/x", "usdt:a:b@\"/usr/bin/x\"..usdt:a:c@\"/usr/bin/x\"", ""),
            ("usdt:a:b..usdt:a:c|usdt:a:d@./x,y:z", "usdt:a:b..usdt:a:c|usdt:a:d@\"./x\"", ",y:z"),
            ("uprobe:f@../lib/x.so.6..uretprobe:f@\"a..b\"", "uprobe:f@\"../lib/x.so.6\"..uretprobe:f@\"a..b\"", ""),
            ("uprobe:f..uretprobe:g", "uprobe:f..uretprobe:g", ""),
            ("a:b|kprobe:f+0x4..usdt:c:d@x", "a:b|kprobe:f+0x4..usdt:c:d@\"x\"", ""),
            ("usdt:a:b@/x//..c:d", "", ""),
            ("usdt:a:b@/x/../y..c:d", "usdt:a:b@\"/x/../y\"..c:d", ""),
        ] {
            let text = format!("span:s={text}");
            match SpanSpec::parse_with_events(&text).unwrap() {
                Ok((span, at)) => assert_eq!((span.to_string(), &text[at..]), (format!("span:s={events}"), end)),
                Err(error) => assert!(events.is_empty(), "{text}: {error}"),
            }
        }
    }

    #[test]
    fn arguments_are_read_by_the_probes_that_begin_or_end_the_span() {
        let arguments = |text: &str| {
            let SpanArguments { begin, end } = parse(text).1.arguments;
            let shown = |of: Vec<ProbeArgument>| of.iter().map(ProbeArgument::to_string).collect::<Vec<_>>().join(" ");
            (shown(begin), shown(end))
        };
        let row = |begin: &str, end: &str| (begin.to_owned(), end.to_owned());
        let text = "function:f@postgres//q=+0(%di):string/end.rows=%ax:u32/ret=5/comm=a/";
        assert_eq!(arguments(text), row("q=+0(%di):string", "rows=%ax:u32"));
        assert_eq!(parse(text).1.options.len(), 2);
        assert_eq!(arguments("function:f@x/min=1ms,q=%di/"), row("q=%di", ""));
        let text = "span:s=usdt:a:b@x..usdt:a:c@x//key=_tid/q=arg1:string/begin.arg2:string/end.n=arg1/";
        assert_eq!(arguments(text), row("q=arg1:string arg2:string", "n=arg1"));
    }

    #[test]
    fn the_key_of_system_calls_is_the_thread() {
        let (_, span) = parse("span:f=syscalls:sys_enter_fsync..syscalls:sys_exit_fsync");
        assert_eq!(span.key, [KeyField { begin: "_tid".to_owned(), end: "_tid".to_owned() }]);
        assert_eq!((span.min, span.max_open, span.stack), (0, MAX_OPEN, SpanStack::Inherit));
    }

    #[test]
    fn what_is_written_is_read_as_the_same_span() {
        for text in [
            "span:f=syscalls:sys_enter_*..syscalls:sys_exit_*/duration>5/stack/",
            "span:io=a:b|a:c..d:e//key=dev+x:y/min=7us/stack=end/max-open=3/nested/open/alias=q/",
            "offcpu",
            "syscall/name=openat|read*, min=10ms, failed/stack/",
            "offcpu/duration > 5 && state == \"disk\"/comm=make/stack=both/alias=q/",
            "function:malloc@\"/usr/lib/libc.so.6\"/min=1us/open/",
            "function:f@x//name=a/q=+0(%di):string/end.comm=%ax/",
            "span:s=usdt:a:b@/usr/x|usdt:a:c@y..a:d//key=_tid/begin.q=arg1:string/",
        ] {
            let (event, span) = parse(text);
            let (again, span_again) = parse(&event.to_string());
            assert_eq!((span_again, again.filter, again.attrs), (span, event.filter, event.attrs), "{text}");
        }
    }

    #[test]
    fn a_source_has_options_or_a_filter() {
        let options = |text: &str| {
            let (event, span) = parse(text);
            let options = span.options.iter().map(|SpanOption { name, values }| format!("{name}={}", values.join("|")));
            (options.collect::<Vec<_>>().join(","), span.min, event.filter)
        };
        let row = |options: &str, min, filter: Option<&str>| (options.to_owned(), min, filter.map(str::to_owned));
        let text = "syscall/name=openat|read, min=10ms, failed/";
        assert_eq!(options(text), row("name=openat|read,failed=", 10_000_000, None));
        assert_eq!(options("syscall//failed/stack/"), row("failed=", 0, None));
        assert_eq!(options("offcpu/duration>5/pid=7/"), row("pid=7", 0, Some("duration>5")));
        assert_eq!(options("offcpu/state==\"disk\"/"), row("", 0, Some("state==\"disk\"")));
        let (event, span) = parse("function:f@\"/lib/x.so\"/min=1us/");
        assert_eq!((span.name.as_str(), span.min), ("f", 1000));
        assert_eq!(event.to_string(), "function:f@\"/lib/x.so\"//min=1000ns/");
    }

    #[test]
    fn messages_name_the_wrong_part() {
        let rows = [
            ("span:x", "write a span as span:NAME=BEGIN..END"),
            ("span:x=a:b", "write a span as span:NAME=BEGIN..END"),
            ("span:x y=a:b..c:d", "`x y` is not a name"),
            ("span:x=a:b..c", "`c` is neither a tracepoint nor a probe"),
            ("span:x=a:b..c:d", "key="),
            ("span:x=a:b..c:d//key=a+/", "`` is not a field"),
            ("span:x=a:b..c:d//key=0/", "`0` is not a field"),
            ("span:x=a:b..c:d//key=a/min=x/", "`x` is not a time"),
            ("span:x=a:b..c:d//key=a/max-open=0/", "`0` is not a number of spans"),
            ("span:x=a:b..c:d//key=a/stack=all/", "`all`"),
            ("span:x=a:b..c:d//key=a/nested=1/", "nested takes no value"),
            ("span:x=a:b..c:d//key/", "key needs a value"),
            ("span:x=a:b..c:d//key=a/period=5/", "period"),
            ("span:x=a:b..c:d//key=a/maximum/", "unknown attribute `maximum`"),
            ("span:x=a:b..c:d//key=a/end.q=%di/", "end.NAME=FETCH: only probes have arguments"),
            ("span:x=usdt:a:b..c:d//key=a/q=5/", "argument: `5` is not a fetch argument"),
            ("span:x=uretprobe:f+4@x..c:d//key=a/", "a return probe takes no offset"),
        ];
        for (text, part) in rows {
            let message = parse_events(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
