//! The definition of a source: rules for its events, fields and options.

use std::borrow::Cow;

use perf_prof_format::{
    spec::{
        EventKind, Nesting, Probe, ProbeArgument, ProbeKind, SpanOption, SpanSpec, glob_matches, is_glob, similar_names,
    },
    tracefs::Filter,
};

use super::{STRINGS, syscall};
use crate::{
    derive::span::{Action, Change, FieldCondition, FlushChange, Keep, OpenCondition, Presence, SpanError, SpanRule},
    event::{
        ComputeField, SpanField, SpanFieldKind, SpanFieldSource, SpanFormat, SpanOrigin, SpanPart, SpanTask, SpanView,
    },
};

/// The name of a span's task: an option of all sources, and a field of some sources.
const COMM: &str = "comm";

/// A built-in source.
#[derive(Debug)]
pub struct SourceDefinition {
    /// The part before the colon in the names of its events; empty if they have none.
    pub system: &'static str,
    /// Its name in selectors.
    pub name: &'static str,
    /// What a span is, as the end of a sentence: "the time for which ...".
    pub about: &'static str,
    /// A selector that shows its options.
    pub example: &'static str,
    /// What the samples of each event do. A sample applies the rules of its event in this order.
    pub rules: &'static [Rule],
    /// Whether several spans with the same key may be open.
    pub nesting: Nesting,
    /// The task of a span.
    pub task: SpanTask,
    /// Where its events happen.
    pub scope: Scope,
    /// Options without a value.
    pub flags: &'static [Flag],
    /// The fields besides `duration` and `open`.
    pub fields: &'static [Field],
    /// Whether its spans are short. If a short span stays open for long, its end was not delivered. For example, some kernels
    /// do not deliver an end in an interrupt that hits an idle task.
    pub ends_soon: bool,
    /// A function that makes a filter for the source's events from the options. It saves work only: the spans are
    /// filtered in any case.
    pub narrow: Option<Narrow>,
}

/// A function that makes a filter for events from the options. Returns `None` if the options allow no such filter.
type Narrow = fn(&[SpanOption]) -> Option<String>;

/// Whether the events of a span happen in its own task or in any task. This decides how tasks are selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In the task of the span.
    Task,
    /// Also in other tasks, for example in the task that wakes it.
    Machine,
}

/// A rule: what the samples of an event do.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    event: RuleEvent,
    /// The fields that the probe of the source's function reads: for each, its name and its fetch argument.
    arguments: &'static [(&'static str, &'static str)],
    action: Action,
    /// The key of the span. For example, `dev+sector` is a key of two parts.
    ///
    /// * `A+B`: a key of several parts. Each part is a field of the event, `_tid`, `_pid` or `_cpu`: `_cpu+irq`.
    /// * `A plus B`: one part, the sum of two fields: `dev+sector plus nr_sector`.
    /// * `A+15`: a number is a constant part: `_tid+15`.
    /// * `A|B`: alternatives. The rule applies to the span that began last among those with one of the keys:
    ///   `_tid+sig|_pid+sig`.
    key: &'static str,
    when: Option<&'static str>,
    presence: Presence,
    only_if: Option<FieldCondition>,
    after: Option<OpenCondition>,
}

/// The event to whose samples a rule applies.
#[derive(Clone, Copy, Debug)]
enum RuleEvent {
    /// `system:name`
    Tracepoint(&'static str),
    /// A call of the source's function.
    Entry,
    /// A return from the source's function.
    Return,
}

/// An option without a value.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Its name.
    pub name: &'static str,
    /// The filter that the option stands for; empty if it selects nothing.
    pub filter: &'static str,
    /// What it selects.
    pub about: &'static str,
}

/// A field.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub about: &'static str,
    /// Its value.
    pub value: ComputeField,
    /// The texts that it may hold; `None` if they cannot be listed.
    pub values: Option<FieldValues>,
    /// Where the value comes from, so that it can be computed without `value`. If the field is a text for a number,
    /// this is the source of the number. `None` if only `value` can compute it.
    pub origin: Option<SpanOrigin>,
}

/// The texts that a field may hold. An empty text is always one of them.
#[derive(Clone, Copy, Debug)]
pub struct FieldValues {
    /// Returns the texts.
    pub list: fn() -> Vec<Cow<'static, str>>,
    /// The prefix of the texts for numbers without a name, for example `sys_` in `sys_999`.
    pub unnamed: &'static str,
}

impl FieldValues {
    /// Returns whether a field may hold this text, or a text that matches this pattern.
    fn may_be(self, text: &str) -> bool {
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        match is_glob(text) {
            true => {
                (self.list)().iter().any(|value| glob_matches(text, value))
                    || !self.unnamed.is_empty() && text.starts_with(self.unnamed)
            }
            false => {
                text.is_empty()
                    || text.strip_prefix(self.unnamed).is_some_and(is_number)
                    || (self.list)().iter().any(|value| value == text)
            }
        }
    }
}

impl Rule {
    const fn new(event: RuleEvent, action: Action, key: &'static str) -> Rule {
        Rule { event, arguments: &[], action, key, when: None, presence: Presence::Needed, only_if: None, after: None }
    }

    /// The samples open a span.
    pub const fn begin(event: &'static str, key: &'static str) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::Begin, key)
    }

    /// The samples open a span, unless one with the same key is open.
    pub const fn begin_unless_open(event: &'static str, key: &'static str) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::BeginUnlessOpen, key)
    }

    /// The samples open a span, also if others with the same key are open.
    pub const fn begin_another(event: &'static str, key: &'static str) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::BeginAnother, key)
    }

    /// The samples end the span with the key. If several are open, they end the span that was opened last.
    pub const fn end(event: &'static str, key: &'static str) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::End, key)
    }

    /// The samples end the span with the key. If several are open, they end the span that was opened first.
    pub const fn end_first(event: &'static str, key: &'static str) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::EndFirst, key)
    }

    /// The samples are kept with the open span that has the key.
    pub const fn note(event: &'static str, key: &'static str, keep: Keep) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::Note(keep), key)
    }

    /// The samples drop the open span that has the key, because its end is not known.
    pub const fn discard(event: &'static str, key: &'static str) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::Discard, key)
    }

    /// The samples are wakeups. A wakeup drops the open span if it shows that the task has run since the wakeup before.
    pub const fn discard_woken_again(event: &'static str, key: &'static str) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::DiscardWokenAgain, key)
    }

    /// The samples come before a span begins. Each is kept under this key, which may differ from the span's key, until a sample
    /// recalls it. If several samples have the same key, `keep` says whether the first or the last one is kept.
    pub const fn ahead(event: &'static str, key: &'static str, keep: Keep) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::Ahead(keep), key)
    }

    /// The samples recall the sample that [`Rule::ahead`] keeps under this key. The span that the next rules open keeps the
    /// recalled sample.
    pub const fn recall(event: &'static str, key: &'static str) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::Recall, key)
    }

    /// The samples drop the sample that [`Rule::ahead`] keeps under this key.
    pub const fn forget(event: &'static str, key: &'static str) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::Forget, key)
    }

    /// From this sample on, another task runs on the CPU. `comm` and `tid` are the fields with the task's name and thread
    /// id.
    pub const fn run(event: &'static str, comm: &'static str, tid: &'static str) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::Run(comm), tid)
    }

    /// The samples report that the scheduler changes the state of the task in the key. The key of [`Change::Leaves`] is
    /// `prev_pid+prev_state`.
    pub const fn schedule(event: &'static str, key: &'static str, change: Change) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::Schedule(change), key)
    }

    /// The samples report a change of the flushes of a device, whose number is the first part of the key.
    pub const fn flush(event: &'static str, key: &'static str, change: FlushChange) -> Rule {
        Rule::new(RuleEvent::Tracepoint(event), Action::Flush(change), key)
    }

    /// A call of the source's function opens a span. `arguments` are the fields that the probe reads, each with its fetch
    /// argument.
    pub const fn begin_at_entry(key: &'static str, arguments: &'static [(&'static str, &'static str)]) -> Rule {
        Rule { arguments, ..Rule::new(RuleEvent::Entry, Action::Begin, key) }
    }

    /// A return from the source's function ends the span.
    pub const fn end_at_return(key: &'static str, arguments: &'static [(&'static str, &'static str)]) -> Rule {
        Rule { arguments, ..Rule::new(RuleEvent::Return, Action::End, key) }
    }

    /// Applies the rule only to samples that pass this filter.
    pub const fn when(self, filter: &'static str) -> Rule {
        Rule { when: Some(filter), ..self }
    }

    /// Applies the rule only if the open span with this key meets the condition, or if no span with this key is open.
    pub const fn after(self, condition: OpenCondition) -> Rule {
        Rule { after: Some(condition), ..self }
    }

    /// Marks the event as optional: the source also works without it.
    pub const fn optional(self) -> Rule {
        Rule { presence: Presence::Optional, ..self }
    }

    /// Marks the event as one that only recordings need: live runs do not open it, because another event has the same
    /// information.
    pub const fn only_recorded(self) -> Rule {
        Rule { presence: Presence::OnlyRecorded, ..self }
    }

    /// Applies the rule only on kernels whose event has this field.
    pub const fn with_field(self, name: &'static str) -> Rule {
        Rule { only_if: Some(FieldCondition::Has(name)), ..self }
    }

    /// Applies the rule only on kernels whose event does not have this field.
    pub const fn without_field(self, name: &'static str) -> Rule {
        Rule { only_if: Some(FieldCondition::Lacks(name)), ..self }
    }

    /// Returns the rule with its event. `function` is the function of the source.
    pub(crate) fn resolve(&self, function: Option<&Probe>) -> SpanRule {
        let probe = |kind| match function {
            Some(probe) => EventKind::Probe(Probe { kind, ..probe.clone() }),
            // Not reached: only sources with a function have rules for entries and returns.
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
        }
    }
}

impl Field {
    const fn new(name: &'static str, about: &'static str, value: ComputeField) -> Field {
        Field { name, about, value, values: None, origin: None }
    }

    /// Lists the texts that the field may hold. `unnamed` is the prefix of texts for numbers without a name.
    pub const fn one_of(self, list: fn() -> Vec<Cow<'static, str>>, unnamed: &'static str) -> Field {
        Field { values: Some(FieldValues { list, unnamed }), ..self }
    }

    /// Sets the origin of the value. For a text that depends on a number, it is the origin of the number.
    pub const fn is(self, origin: SpanOrigin) -> Field {
        Field { origin: Some(origin), ..self }
    }

    /// A signed number.
    pub const fn int(name: &'static str, about: &'static str, value: fn(&SpanView<'_>) -> i64) -> Field {
        Field::new(name, about, ComputeField::Int(value))
    }

    /// An unsigned number.
    pub const fn uint(name: &'static str, about: &'static str, value: fn(&SpanView<'_>) -> u64) -> Field {
        Field::new(name, about, ComputeField::Uint(value))
    }

    /// A time in ns.
    pub const fn time(name: &'static str, about: &'static str, value: fn(&SpanView<'_>) -> u64) -> Field {
        Field::new(name, about, ComputeField::Time(value))
    }

    /// An address.
    pub const fn address(name: &'static str, about: &'static str, value: fn(&SpanView<'_>) -> u64) -> Field {
        Field::new(name, about, ComputeField::Address(value))
    }

    /// Text.
    pub const fn text(
        name: &'static str,
        about: &'static str,
        value: for<'a> fn(&SpanView<'a>) -> Cow<'a, [u8]>,
    ) -> Field {
        Field::new(name, about, ComputeField::Text(value))
    }

    /// Text that depends on a number only.
    pub const fn text_of_number(
        name: &'static str,
        about: &'static str,
        number: fn(&SpanView<'_>) -> i64,
        text: for<'a> fn(&SpanView<'a>, i64) -> Cow<'a, [u8]>,
    ) -> Field {
        Field::new(name, about, ComputeField::TextOfNumber(number, text))
    }

    /// An array of unsigned numbers of 64 bits.
    pub const fn words(name: &'static str, about: &'static str, value: for<'a> fn(&SpanView<'a>) -> &'a [u8]) -> Field {
        Field::new(name, about, ComputeField::Words(value))
    }
}

impl SourceDefinition {
    /// Returns the fields of its events.
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

    /// Returns whether events are missing if a span of the source stays open for long. This holds only if the run has the
    /// events of all `Discard` rules: otherwise, a span may stay open although no event is missing. `discards` is the number
    /// of `Discard` rules whose events the run has.
    pub(crate) fn misses_ends(&self, discards: usize) -> bool {
        let all = self.rules.iter().filter(|rule| rule.action == Action::Discard);
        self.ends_soon && all.count() == discards
    }

    /// Returns whether the arguments of its events may point to strings.
    pub(super) fn has_strings(&self) -> bool {
        self.flags.iter().any(|flag| flag.name == STRINGS)
    }

    /// Returns fields for the strings to which the arguments of its events point; none if it has no such strings.
    pub(crate) fn string_fields(&self) -> impl Iterator<Item = SpanField> {
        self.has_strings().then(syscall::string_fields).into_iter().flatten()
    }

    /// Returns the filter for the source's spans: the user's filter and the filters of the options. `fields` are the fields of
    /// the source and the arguments of its probes.
    pub(crate) fn filter(
        &self,
        spec: &SpanSpec,
        filter: Option<&str>,
        fields: &[SpanField],
    ) -> Result<Option<Filter>, SpanError> {
        let mut parts: Vec<String> = filter.map(|filter| format!("({filter})")).into_iter().collect();
        for option in spec.options.iter().filter(|option| !self.is_name_of_task(option)) {
            parts.extend(self.option(option)?);
        }
        if parts.is_empty() {
            return Ok(None);
        }
        let format = SpanFormat::new(("", self.name), Vec::new(), SpanPart::Begin, self.task, fields.to_vec())?;
        let wrong = |text: &str, error| SpanError::SourceFilter {
            filter: text.to_owned(),
            error: Box::new(error),
            source_name: self.name.to_owned(),
            fields: self.field_names(),
        };
        if let Some(text) = filter {
            // Parse the user's filter alone first, so that the message shows only what the user wrote.
            Filter::parse(text, &format.format).map_err(|error| wrong(text, error))?;
        }
        let text = parts.join(" && ");
        let filter = Filter::parse(&text, &format.format).map_err(|error| wrong(&text, error))?;
        for (field, text) in format.texts_of(&filter) {
            // A field that is not one of the source's own is an argument of a probe, which may hold any text.
            self.fields.get(field).map_or(Ok(()), |field| self.check_value(field, text))?;
        }
        Ok(Some(filter))
    }

    /// Fails if a field can never hold this text, or a text that matches this pattern.
    fn check_value(&self, field: &Field, text: &str) -> Result<(), SpanError> {
        const FEW: usize = 32;
        let Some(values) = field.values.filter(|values| !values.may_be(text)) else { return Ok(()) };
        let all = (values.list)();
        let known = if all.len() > FEW { String::new() } else { format!("\nits values: {}", all.join(", ")) };
        Err(SpanError::UnknownValue {
            source_name: self.name.to_owned(),
            field: field.name.to_owned(),
            value: text.to_owned(),
            near: similar_names(text, &all),
            known,
        })
    }

    /// Returns the task names, which may have wildcards, that the option `comm=` selects; empty for all tasks. If the source
    /// has a field `comm`, the result is empty, because the names are a part of the filter instead.
    pub(crate) fn comms(&self, spec: &SpanSpec) -> Vec<String> {
        let names = spec.options.iter().filter(|option| self.is_name_of_task(option));
        names.flat_map(|option| &option.values).cloned().collect()
    }

    /// Returns whether this is the option `comm=` of a source without a field `comm`.
    fn is_name_of_task(&self, option: &SpanOption) -> bool {
        option.name == COMM && !option.values.is_empty() && !self.has_name_of_task()
    }

    fn has_name_of_task(&self) -> bool {
        self.fields.iter().any(|field| field.name == COMM)
    }

    /// Returns whether its spans end on the CPU on which they began.
    pub(super) fn stays_on_its_cpu(&self) -> bool {
        self.rules.iter().all(|rule| rule.key.split(['+', '|']).any(|field| field == "_cpu"))
    }

    fn field_names(&self) -> String {
        let names: Vec<&str> =
            ["duration", "open"].into_iter().chain(self.fields.iter().map(|field| field.name)).collect();
        let option = if self.has_name_of_task() { "" } else { "\nan option selects tasks by their names: comm=NAME" };
        names.join(", ") + option
    }

    /// Returns the filter of an option; `None` if the option has no filter.
    fn option(&self, option: &SpanOption) -> Result<Option<String>, SpanError> {
        let SpanOption { name, values } = option;
        if let (Some(flag), true) = (self.flags.iter().find(|flag| flag.name == name), values.is_empty()) {
            return Ok((!flag.filter.is_empty()).then(|| format!("({})", flag.filter)));
        }
        let field = self.fields.iter().find(|field| field.name == name).filter(|_| !values.is_empty());
        let Some(field) = field else {
            let flags = self.flags.iter().map(|flag| flag.name.to_owned());
            let of_fields = self.fields.iter().map(|field| format!("{}=VALUE|VALUE", field.name));
            let of_task = (!self.has_name_of_task()).then(|| format!("{COMM}=VALUE|VALUE"));
            let known: Vec<String> = flags.chain(of_fields).chain(of_task).collect();
            let names = self.flags.iter().map(|flag| flag.name).chain(self.fields.iter().map(|field| field.name));
            let names = names.chain([COMM]);
            let near = similar_names(name, names);
            let known = known.join(", ");
            return Err(SpanError::Option { source_name: self.name.to_owned(), option: name.clone(), near, known });
        };
        let of_value = |value: &String| match field.value.kind() {
            SpanFieldKind::Text if is_glob(value) => Ok(format!("{name} ~ \"{value}\"")),
            SpanFieldKind::Text => Ok(format!("{name} == \"{value}\"")),
            _ if is_number(value) => Ok(format!("{name} == {value}")),
            _ => Err(SpanError::OptionValue {
                source_name: self.name.to_owned(),
                option: name.clone(),
                value: value.clone(),
            }),
        };
        let comparisons: Vec<String> = values.iter().map(of_value).collect::<Result<_, _>>()?;
        Ok(Some(format!("({})", comparisons.join(" || "))))
    }
}

/// Returns whether a filter would parse this text as a number.
fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16).is_ok());
    digits.unwrap_or_else(|| text.parse::<i64>().is_ok())
}
