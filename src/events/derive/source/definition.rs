//! The definition of a source: its rules, fields and options.

use std::borrow::Cow;

use perf_prof_format::{
    spec::{EventKind, Probe, ProbeArgument, ProbeKind, SpanOption, SpanSpec, similar_names},
    tracefs::{Filter, FilterError},
};

use super::{BegunBefore, STRINGS, UnseenBegin, field_values::FieldValues, syscall};
use crate::{
    derive::span::{
        Action, Belongs, Change, FieldCondition, FlushChange, Keep, OpenCondition, Presence, SpanError, SpanRule,
    },
    event::{ComputeField, SpanField, SpanFieldSource, SpanFormat, SpanOrigin, SpanPart, SpanTask, SpanView},
};

/// The name of the task that a span belongs to: an option of all sources, and a field of some.
pub(super) const COMM: &str = "comm";

/// A built-in source, such as `offcpu`.
#[derive(Debug)]
pub struct SourceDefinition {
    /// The part before the colon in the source's name; empty if there is none.
    pub system: &'static str,
    /// Its name in selectors.
    pub name: &'static str,
    /// What a span of the source is, as the end of a sentence: "the time for which ...".
    pub about: &'static str,
    /// A selector that shows some of its options.
    pub example: &'static str,
    /// What each sample does to spans. A sample applies all rules for its event, in this order.
    pub rules: &'static [Rule],
    /// Which task a span belongs to.
    pub task: SpanTask,
    /// In which tasks the events of a span happen.
    pub scope: Scope,
    /// The options without a value.
    pub flags: &'static [Flag],
    /// The fields besides `duration` and `open`.
    pub fields: &'static [Field],
    /// The fields that are not known if events that the source also works without were not recorded.
    pub dependent: &'static [Dependent],
    /// If the source's spans are short: a function that returns the kind of a span. Spans of one kind last about equally
    /// long. If one of them stays open for long, its end was not delivered. For example, some kernels do not deliver an end
    /// in an interrupt of an idle task.
    pub ends_soon: Option<Kind>,
    /// A function that returns whether the task of a span does not exit before the span has ended. If a task has exited, the ends of
    /// such spans of it were not delivered.
    pub is_awaited: Option<fn(&SpanView<'_>) -> bool>,
    /// If spans often outlast a run: what one of them is called, and several. Commands then say how many had not ended.
    pub outlasting: Option<[&'static str; 2]>,
    /// Whether the kernel reports the end of each span. A second begin with the same key then shows that the end of the open
    /// span was not delivered.
    pub reports_ends: bool,
    /// If ends show that spans began: a function that returns what this end says about its begin. In a recording, an end without
    /// a begin that was reported counts as that of a span that began before, or whose begin is missing.
    pub unseen_begin: Option<fn(&SpanView<'_>) -> UnseenBegin>,
    /// If all spans that begin are seen: which ends without a begin are those of spans that began before the run.
    pub begun_before: Option<BegunBefore>,
    /// The names of the system calls from which no thread returns. Their spans, whose key is a thread and the number of a
    /// call, end with the thread and are not delivered.
    pub without_return: &'static [&'static str],
    /// A function that makes a filter for the kernel from the options. The filter only saves work: perf-prof filters the
    /// spans in any case.
    pub narrow: Option<Narrow>,
    /// The fields with paths, and a function that returns whether a span has a path that is not known in one of them. A filter
    /// over this field then has no result.
    pub lacks_path: Option<(&'static [&'static str], LacksPath)>,
}

/// A function that returns the kind of a span, as a number.
pub type Kind = fn(&SpanView<'_>) -> u64;

/// A function that returns whether a span has a path, in the field with this name, that is not known.
pub type LacksPath = fn(&SpanView<'_>, &str) -> bool;

/// A function that makes a filter for events from the options. It returns `None` if no filter can be made from them.
type Narrow = fn(&[SpanOption], ProgramBits) -> Option<String>;

/// The programs whose events a filter selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramBits {
    /// All programs.
    Any,
    /// Those of 64 bits. Others cannot be recognized in the samples.
    Only64,
}

/// In which tasks the events of a span happen. This determines which events are needed for a selected task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Only in the task that the span belongs to.
    Task,
    /// Also in other tasks, for example in the task that wakes the span's task.
    Machine,
}

/// What the samples of an event do to spans.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    event: RuleEvent,
    /// For a rule of the source's function: the fields that its probe reads, each with the name and the fetch argument.
    arguments: &'static [(&'static str, &'static str)],
    action: Action,
    /// The key of the span. Samples with the same key belong to the same span.
    ///
    /// * `A+B`: a key of several parts. Each part is a field of the event, `_tid`, `_pid` or `_cpu`, for example `_cpu+irq`.
    /// * `A plus B`: a part that is the sum of two fields, for example `dev+sector plus nr_sector`.
    /// * `A+15`: a part that is a constant number, for example `_tid+15`.
    /// * `A|B`: alternative keys, for example `_tid+sig|_pid+sig`. Of the open spans with one of these keys, the span that
    ///   began last is meant.
    key: &'static str,
    when: Option<&'static str>,
    presence: Presence,
    only_if: Option<FieldCondition>,
    after: Option<OpenCondition>,
    belongs: Option<Belongs>,
}

#[derive(Clone, Copy, Debug)]
enum RuleEvent {
    /// `system:name`
    Tracepoint(&'static str),
    /// A call of the source's function.
    Entry,
    /// A return of the source's function.
    Return,
}

/// An option without a value.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Its name.
    pub name: &'static str,
    /// The filter that the option stands for; empty if the option is not a filter.
    pub filter: &'static str,
    /// What the option selects.
    pub about: &'static str,
}

/// Fields that need an event without which the source works too.
#[derive(Clone, Copy, Debug)]
pub struct Dependent {
    /// The fields, as the subject of a sentence: "`blocked` and `waited`".
    pub fields: &'static str,
    /// The events, of which one is enough. The first one is that which live runs open.
    pub events: &'static [&'static str],
}

/// A field of a source.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// The description of the field.
    pub about: &'static str,
    /// The function that computes its value.
    pub value: ComputeField,
    /// The texts that it can contain; `None` if there is no list.
    pub values: Option<FieldValues>,
    /// Where a BPF program finds the value, because it cannot call `value`. If the value is the text of a number, such as
    /// the name of a system call, this is the origin of the number. `None` if only `value` can compute the value.
    pub origin: Option<SpanOrigin>,
}

impl Rule {
    const fn new(event: RuleEvent, action: Action, key: &'static str) -> Rule {
        Rule {
            event,
            arguments: &[],
            action,
            key,
            when: None,
            presence: Presence::Needed,
            only_if: None,
            after: None,
            belongs: None,
        }
    }

    /// Makes a rule: a sample opens a span.
    pub const fn begin(event: &'static str, key: &'static str) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::Begin, key)
    }

    /// Makes a rule: a sample opens a span, unless a span with this key is open.
    pub const fn begin_unless_open(event: &'static str, key: &'static str) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::BeginUnlessOpen, key)
    }

    /// Makes a rule: a sample opens a span, even if spans with this key are open.
    pub const fn begin_another(event: &'static str, key: &'static str) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::BeginAnother, key)
    }

    /// Makes a rule: a sample ends the span with this key. If several are open, it ends the span that was opened last.
    pub const fn end(event: &'static str, key: &'static str) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::End, key)
    }

    /// Makes a rule: a sample ends the span with this key. If several are open, it ends the span that was opened first.
    pub const fn end_first(event: &'static str, key: &'static str) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::EndFirst, key)
    }

    /// Makes a rule: a sample is kept with the open span that has this key.
    pub const fn note(event: &'static str, key: &'static str, keep: Keep) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::Note(keep), key)
    }

    /// Makes a rule: a sample drops the open span that has this key, because the end of this span is unknown.
    pub const fn discard(event: &'static str, key: &'static str) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::Discard, key)
    }

    /// Makes a rule: a sample is a wakeup. It drops the open span of the woken task if the task must have run since its
    /// last wakeup.
    pub const fn discard_woken_again(event: &'static str, key: &'static str) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::DiscardWokenAgain, key)
    }

    /// Makes a rule: a sample comes before its span begins. The sample is kept under this key until a later sample recalls
    /// it. The key may differ from that of the span. Of several samples with this key, `keep` says whether the first or the
    /// last one is kept.
    pub const fn ahead(event: &'static str, key: &'static str, keep: Keep) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::Ahead(keep), key)
    }

    /// Makes a rule: a sample recalls the sample that [`Rule::ahead`] has kept under this key. The span that the next rules
    /// open gets the recalled sample.
    pub const fn recall(event: &'static str, key: &'static str) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::Recall, key)
    }

    /// Makes a rule: a sample drops the sample that [`Rule::ahead`] has kept under this key.
    pub const fn forget(event: &'static str, key: &'static str) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::Forget, key)
    }

    /// Makes a rule: a sample reports that another task now runs on the CPU. `comm` and `tid` are the fields that hold its
    /// name and its thread id.
    pub const fn run(event: &'static str, comm: &'static str, tid: &'static str) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::Run(comm), tid)
    }

    /// Makes a rule: a sample reports a change of the state of the task in the key. For [`Change::Leaves`], the key is
    /// `prev_pid+prev_state`.
    pub const fn schedule(event: &'static str, key: &'static str, change: Change) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::Schedule(change), key)
    }

    /// Makes a rule: a sample reports a change of the flushes of a device. The first part of the key is the device's
    /// number.
    pub const fn flush(event: &'static str, key: &'static str, change: FlushChange) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::Flush(change), key)
    }

    /// Makes a rule: a call of the source's function opens a span. `arguments` are the fields that the probe reads: for
    /// each, the name and the fetch argument.
    pub const fn begin_at_entry(key: &'static str, arguments: &'static [(&'static str, &'static str)]) -> Rule {
        Rule { arguments, ..Rule::new(RuleEvent::Entry, Action::Begin, key) }
    }

    /// Makes a rule: a return of the source's function ends the span.
    pub const fn end_at_return(key: &'static str, arguments: &'static [(&'static str, &'static str)]) -> Rule {
        Rule { arguments, ..Rule::new(RuleEvent::Return, Action::End, key) }
    }

    /// Limits the rule to samples that pass this filter.
    pub const fn when(self, filter: &'static str) -> Rule {
        Rule { when: Some(filter), ..self }
    }

    /// Limits the rule: if a span with this key is open, it must meet the condition.
    pub const fn after(self, condition: OpenCondition) -> Rule {
        Rule { after: Some(condition), ..self }
    }

    /// Allows several open spans with this key. A sample applies to the span that it can belong to. If it can belong to
    /// several spans, nobody knows to which one. Then all spans with this key are dropped when they end.
    pub const fn among(self, belongs: Belongs) -> Rule {
        Rule { belongs: Some(belongs), ..self }
    }

    /// Makes the event optional: the source works without it.
    pub const fn optional(self) -> Rule {
        Rule { presence: Presence::Optional, ..self }
    }

    /// Limits the event to recordings. Live runs do not open it, because another event contains the same information.
    pub const fn only_recorded(self) -> Rule {
        Rule { presence: Presence::OnlyRecorded, ..self }
    }

    /// Limits the rule to kernels on which the event has this field.
    pub const fn with_field(self, name: &'static str) -> Rule {
        Rule { only_if: Some(FieldCondition::Has(name)), ..self }
    }

    /// Limits the rule to kernels on which the event lacks this field.
    pub const fn without_field(self, name: &'static str) -> Rule {
        Rule { only_if: Some(FieldCondition::Lacks(name)), ..self }
    }

    /// Resolves the rule for a selector. `function` is the function that the user named.
    pub(crate) fn resolve(&self, function: Option<&Probe>) -> SpanRule {
        let probe = |kind| match function {
            Some(probe) => EventKind::Probe(Probe { kind, ..probe.clone() }),
            // Not reached: only sources of functions have rules for calls and returns.
            None => EventKind::Tracepoint { system: String::new(), name: String::new() },
        };
        let event = match self.event {
            RuleEvent::Tracepoint(event) => {
                let (system, name) = event.split_once(':').unwrap_or(("", event));
                EventKind::Tracepoint { system: system.to_owned(), name: name.to_owned() }
            }
            RuleEvent::Entry => probe(ProbeKind::Uprobe),
            RuleEvent::Return => probe(ProbeKind::Uretprobe),
        };
        let mut keys = self.key.split('|').map(|key| key.split('+').map(str::to_owned).collect());
        let key = keys.next().unwrap_or_default();
        let argument = |&(name, fetch): &(&str, &str)| ProbeArgument {
            name: Some(name.to_owned()),
            fetch: fetch.to_owned(),
            type_name: None,
        };
        let arguments = self.arguments.iter().map(argument).collect();
        SpanRule {
            event,
            arguments,
            action: self.action,
            key,
            other_keys: keys.collect(),
            when: self.when,
            presence: self.presence,
            only_if: self.only_if,
            after: self.after,
            belongs: self.belongs,
        }
    }
}

impl Field {
    const fn new(name: &'static str, about: &'static str, value: ComputeField) -> Field {
        Field { name, about, value, values: None, origin: None }
    }

    /// Sets the texts that the field can contain. `unnamed` is the prefix of texts for numbers without a name.
    pub const fn one_of(self, list: fn() -> Vec<Cow<'static, str>>, unnamed: &'static str) -> Field {
        Field { values: Some(FieldValues { list, unnamed }), ..self }
    }

    /// Sets where a BPF program finds the value. If the value is the text of a number, this is the origin of the number.
    pub const fn is(self, origin: SpanOrigin) -> Field {
        Field { origin: Some(origin), ..self }
    }

    /// Makes a field whose value is a signed number.
    pub const fn int(name: &'static str, about: &'static str, value: fn(&SpanView<'_>) -> i64) -> Field {
        Field::new(name, about, ComputeField::Int(value))
    }

    /// Makes a field whose value is an unsigned number.
    pub const fn uint(name: &'static str, about: &'static str, value: fn(&SpanView<'_>) -> u64) -> Field {
        Field::new(name, about, ComputeField::Uint(value))
    }

    /// Makes a field whose value is a time in ns.
    pub const fn time(name: &'static str, about: &'static str, value: fn(&SpanView<'_>) -> u64) -> Field {
        Field::new(name, about, ComputeField::Time(value))
    }

    /// Makes a field whose value is a time in ns. `value` returns `None` if the time is not known.
    pub const fn time_if_known(
        name: &'static str,
        about: &'static str,
        value: fn(&SpanView<'_>) -> Option<u64>,
    ) -> Field {
        Field::new(name, about, ComputeField::TimeIfKnown(value))
    }

    /// Makes a field whose value is an address.
    pub const fn address(name: &'static str, about: &'static str, value: fn(&SpanView<'_>) -> u64) -> Field {
        Field::new(name, about, ComputeField::Address(value))
    }

    /// Makes a field whose value is text.
    pub const fn text(
        name: &'static str,
        about: &'static str,
        value: for<'a> fn(&SpanView<'a>) -> Cow<'a, [u8]>,
    ) -> Field {
        Field::new(name, about, ComputeField::Text(value))
    }

    /// Makes a field whose value is text that depends only on a number of the span.
    pub const fn text_of_number(
        name: &'static str,
        about: &'static str,
        number: fn(&SpanView<'_>) -> i64,
        text: for<'a> fn(&SpanView<'a>, i64) -> Cow<'a, [u8]>,
    ) -> Field {
        Field::new(name, about, ComputeField::TextOfNumber(number, text))
    }

    /// Makes a field whose value is the name of a function. The begin event has the function's address in its field
    /// `function`.
    pub const fn function() -> Field {
        let address = |span: &SpanView<'_>| span.begin().int("function");
        Field::text_of_number("function", "its function", address, |span, address| span.function(address as u64))
            .is(SpanOrigin::Begin("function"))
    }

    /// Makes a field whose value is an array of unsigned 64-bit numbers.
    pub const fn words(name: &'static str, about: &'static str, value: for<'a> fn(&SpanView<'a>) -> &'a [u8]) -> Field {
        Field::new(name, about, ComputeField::Words(value))
    }
}

impl SourceDefinition {
    /// A source without rules and fields. A definition takes from it what is not said about the source.
    pub(super) const EMPTY: SourceDefinition = SourceDefinition {
        system: "",
        name: "",
        about: "",
        example: "",
        rules: &[],
        task: SpanTask::OfEnd,
        scope: Scope::Task,
        flags: &[],
        fields: &[],
        dependent: &[],
        ends_soon: None,
        is_awaited: None,
        outlasting: None,
        reports_ends: false,
        unseen_begin: None,
        begun_before: None,
        without_return: &[],
        narrow: None,
        lacks_path: None,
    };

    /// Returns the fields of the source's spans.
    pub fn span_fields(&self) -> Vec<SpanField> {
        let field = |field: &Field| SpanField {
            name: field.name.to_owned(),
            about: field.about,
            kind: field.value.kind(),
            source: SpanFieldSource::Computed(field.value),
            origin: field.origin,
        };
        self.fields.iter().map(field).collect()
    }

    /// Returns whether a span that stays open for long shows that events are missing. This needs the events of all `Discard`
    /// rules: without them, spans stay open although no event is missing. `discards` is the number of `Discard` rules whose
    /// events the run receives.
    pub(crate) fn misses_ends(&self, discards: usize) -> bool {
        let all = self.rules.iter().filter(|rule| rule.action == Action::Discard);
        self.ends_soon.is_some() && all.count() == discards
    }

    /// Returns whether the source has the option `str`: arguments of its events point to strings.
    pub(super) fn has_strings(&self) -> bool {
        self.flags.iter().any(|flag| flag.name == STRINGS)
    }

    /// Returns the fields that the option `str` adds; none if the source has no such option.
    pub fn string_fields(&self) -> impl Iterator<Item = SpanField> {
        self.has_strings().then(syscall::string_fields).into_iter().flatten()
    }

    /// Returns the filter for the source's spans, made of the user's filter and the options. `fields` are the fields of the
    /// source and the arguments of its probes.
    pub(crate) fn filter(
        &self,
        spec: &SpanSpec,
        filter: Option<&str>,
        fields: &[SpanField],
    ) -> Result<Option<Filter>, SpanError> {
        let mut parts: Vec<String> = filter.map(|filter| format!("({filter})")).into_iter().collect();
        for option in spec.options.iter().filter(|option| !self.is_name_of_task(option)) {
            parts.extend(self.option(option, fields)?);
        }
        if parts.is_empty() {
            return Ok(None);
        }
        let format = SpanFormat::new(("", self.name), Vec::new(), SpanPart::Begin, self.task, fields.to_vec())?;
        let wrong = |text: &str, error| match error {
            FilterError::Field { field } if self.has_string_field(&field) => {
                self.needs_strings(field, format!("{text}/{STRINGS}"))
            }
            error => SpanError::SourceFilter {
                filter: text.to_owned(),
                error: Box::new(error),
                source_name: self.name.to_owned(),
                fields: self.field_names(),
            },
        };
        if let Some(text) = filter {
            // Check the user's filter alone first: the message then quotes only what the user wrote.
            Filter::parse(text, &format.format).map_err(|error| wrong(text, error))?;
        }
        let text = parts.join(" && ");
        let filter = Filter::parse(&text, &format.format).map_err(|error| wrong(&text, error))?;
        for (field, text) in format.texts_of(&filter) {
            // Other fields are arguments of a probe, which can contain any text.
            self.fields.get(field).map_or(Ok(()), |field| self.check_value(field, text))?;
        }
        Ok(Some(filter))
    }

    /// Fails if the field can never contain this text, or a text that matches this pattern.
    fn check_value(&self, field: &Field, text: &str) -> Result<(), SpanError> {
        const FEW: usize = 32;
        let Some(values) = field.values.filter(|values| !values.may_be(text)) else { return Ok(()) };
        let all = (values.list)();
        let mut known = if all.len() > FEW { String::new() } else { format!("\nits values: {}", all.join(", ")) };
        if text.split_once(',').is_some_and(|(value, _)| values.may_be(value)) {
            let options = format!("{}={text}", field.name);
            known += &format!("\nhere, `,` is part of the value: write `/` in its place, or only options: `{options}`");
        }
        Err(SpanError::UnknownValue {
            source_name: self.name.to_owned(),
            field: field.name.to_owned(),
            value: text.to_owned(),
            near: similar_names(text, &all),
            known,
        })
    }

    /// Returns the names and patterns of the option `comm=`; empty if all tasks are selected. Also empty if the source has a
    /// field `comm`: then the option is part of the filter.
    pub(crate) fn comms(&self, spec: &SpanSpec) -> Vec<String> {
        let names = spec.options.iter().filter(|option| self.is_name_of_task(option));
        names.flat_map(|option| &option.values).cloned().collect()
    }

    /// Returns whether this is the option `comm=`, and the source has no field `comm`.
    pub(super) fn is_name_of_task(&self, option: &SpanOption) -> bool {
        option.name == COMM && !option.values.is_empty() && !self.has_name_of_task()
    }

    pub(super) fn has_name_of_task(&self) -> bool {
        self.fields.iter().any(|field| field.name == COMM)
    }

    /// Returns whether spans end on the CPU on which they began.
    pub(super) fn stays_on_its_cpu(&self) -> bool {
        self.rules.iter().all(|rule| rule.key.split(['+', '|']).any(|field| field == "_cpu"))
    }

    fn field_names(&self) -> String {
        let names: Vec<&str> =
            ["duration", "open"].into_iter().chain(self.fields.iter().map(|field| field.name)).collect();
        let option = if self.has_name_of_task() { "" } else { "\nan option selects tasks by their names: comm=NAME" };
        names.join(", ") + option
    }
}
