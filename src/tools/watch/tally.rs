//! Adds up events by keys for commands that show the sums: in each interval, and at the end of the run.

use std::{
    mem,
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Result;
use perf_prof_events::{
    aggregate::{Definition, Groups, Memo, Plan, PlanError},
    event::{
        Context, DURATION_FIELD, Deliver, EventType, Flow, Format, IncompleteTask, Sample, Shortfall, Sink, Stats,
        reader::{Facts, Input},
    },
};
use perf_prof_format::{control_characters::in_json, spec::CallGraph};
use perf_prof_session::{
    engine::{
        ExitStatus,
        kernel_tables::{EventUse, SharedGroups, TableUse},
        span_report,
    },
    plan::{RunPlan, Verbosity},
    spine::{About, Receiver},
};
use perf_prof_system::output::{counted, say};
use serde_json::{Map, Value as Json, json};

use super::{
    begun_before::BegunBefore,
    difference::Side,
    events::{TimeFacts, deliver},
    not_ended::NotEnded,
    recorded_times::{RecordedTimes, Times},
    screen::Screen,
    short_chains,
    sum_table::{self, SumTable},
};
use crate::output::{Destination, Form, Output};

/// The maximum number of keys. If there are more, the smallest are added up together.
pub const KEYS: usize = 1_000_000;

/// The events that a command adds up, and how it shows the sums.
#[derive(Clone, Debug)]
pub struct TallyPlan {
    /// The run that delivers the events.
    pub watch: RunPlan,
    /// The number of keys that are shown. `None` means as many as fit on the screen, or 20 without a screen.
    pub rows: Option<usize>,
    /// The format of the sums.
    pub form: Form,
    /// Where the sums are shown while the command runs.
    pub place: Place,
    /// The recording for a comparison, if the user wants one.
    pub earlier: Option<Earlier>,
}

/// An earlier recording, or an earlier part of the same recording.
#[derive(Clone, Debug)]
pub struct Earlier {
    /// The run that delivers the same events of the earlier recording.
    pub watch: RunPlan,
    /// What messages call the earlier recording or part.
    pub name: String,
}

/// Where sums are shown while a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the whole terminal, which is drawn again in each interval.
    Screen,
    /// On stdout, the sums of one interval after the other.
    Lines,
    /// Nowhere. The sums are compared with the sums of another recording at the end.
    Nowhere,
}

/// The number of keys that are shown by default without a screen.
const ROWS: usize = 20;

/// The maximum number of tasks with missing spans that the JSON output lists.
const TASKS: usize = 100;

/// What differs between the commands: which sums they need, and how they show them.
pub trait TallyCommand {
    /// Returns the definition of the sums for these events.
    fn definition(&mut self, events: &[EventType]) -> Result<Definition>;
    /// Returns the names of further fields to add up.
    fn more_sums(&self) -> &[String] {
        &[]
    }
    /// Returns whether the command shows how long dropped spans may have lasted.
    fn counts_missing(&self) -> bool {
        false
    }
    /// Returns the lines that show the sums of a period. `rows` is the number of keys to show.
    fn lines(&self, period: &Period<'_>, rows: usize) -> Vec<String>;
    /// Returns the number of keys that fit into `lines` lines.
    fn rows_that_fit(&self, lines: usize) -> usize;
    /// Calls `row` with the sums of each key as a JSON object.
    fn json(&self, period: &Period<'_>, rows: usize, row: &mut dyn FnMut(Json));
    /// Returns the lines that show the changes between two recordings.
    fn difference(&self, sides: [&Side<'_>; 2], rows: usize) -> Vec<String>;
    /// Returns the changes of the keys between two recordings, as JSON objects.
    fn difference_json(&self, sides: [&Side<'_>; 2], rows: usize) -> Vec<Json>;
}

/// The sums of an interval, or of the whole run.
pub struct Period<'a> {
    /// The sums.
    pub groups: &'a Groups,
    /// The length of the period, or 0 if it is not known.
    pub length: Duration,
    /// The sums since the start, which a screen shows beside the sums of the interval. `None` without a screen.
    pub whole: Option<&'a Groups>,
    /// Which events and spans of the period are missing. `None` if they are complete.
    pub shortfall: Option<Shortfall>,
    /// The sums of further fields.
    pub more_sums: Vec<&'a Groups>,
    /// For each key, the maximum total duration of its dropped spans, in ns. A span is dropped if events were lost
    /// while it was open. `None` if no spans were dropped.
    pub missing: Option<&'a Groups>,
    /// The spans that began before the run or recording. They are in no sum. In an interval, all numbers are 0.
    pub begun_before: BegunBefore,
    /// The spans that had not ended. `None` in an interval.
    pub not_ended: Option<&'a NotEnded>,
}

impl Period<'_> {
    /// Returns the rate per second of a count.
    pub fn rate(&self, count: i128) -> Option<f64> {
        (!self.length.is_zero()).then(|| count as f64 / self.length.as_secs_f64())
    }
}

/// Adds up the events, and shows the sums.
pub fn run(plan: &TallyPlan, command: impl TallyCommand + Clone) -> Result<ExitStatus> {
    let before = plan.earlier.as_ref().map(|earlier| add_up(plan, &earlier.watch, command.clone())).transpose()?;
    let (status, mut tally) = add_up(plan, &plan.watch, command)?;
    if let (Some(earlier), Some((_, before))) = (&plan.earlier, before) {
        print_difference(plan, &earlier.name, &before, &mut tally);
        let _ = tally.output.write();
    }
    tally.output.check()?;
    Ok(status)
}

/// Adds up the events of a run. Shows the sums, unless they are compared with the sums of another recording.
fn add_up<L: TallyCommand>(plan: &TallyPlan, watch: &RunPlan, mut command: L) -> Result<(ExitStatus, Tally<L>)> {
    let is_live = watch.live().is_some();
    let (status, tally) = deliver(watch, TimeFacts::Length, |about| {
        let About { events, is_delivered, context, stats, .. } = &**about;
        let delivered: Vec<EventType> = events
            .iter()
            .zip(is_delivered)
            .filter(|(_, is_delivered)| **is_delivered)
            .map(|(event, _)| event.clone())
            .collect();
        let definition = command.definition(&delivered)?;
        let compiled = |definition: &Definition| -> Result<Vec<Option<Plan>>, PlanError> {
            let of_event = |(event, is_delivered): (&EventType, &bool)| {
                is_delivered.then(|| compile(definition, event)).transpose()
            };
            events.iter().zip(is_delivered).map(of_event).collect()
        };
        let plans = compiled(&definition)?;
        let sums_of = |field: &String| {
            let definition = SumTable::definition(field, &definition);
            Ok(SumTable::new(compiled(&definition)?, definition))
        };
        let more_sums = command.more_sums().iter().map(sums_of).collect::<Result<_>>()?;
        let missing = command.counts_missing().then(|| sums_of(&DURATION_FIELD.to_owned())).transpose()?;
        let screen = match plan.place {
            Place::Screen => Some(Screen::open()?),
            Place::Lines | Place::Nowhere => None,
        };
        let from_kernel = sum_table::shared(definition.clone());
        let (now, whole) = (Groups::new(definition.clone()), Groups::new(definition).within(context.budget()));
        let times = about.recording.as_ref().map_or(Times::Clock(None), |of| Times::Recorded(RecordedTimes::new(of)));
        let output = Output::open(&Destination::Stdout)?;
        let names = delivered.iter().map(EventType::shown_name).collect::<Vec<_>>().join(", ");
        let counted = Counted::of_events(&delivered);
        let with_index = events.iter().enumerate().zip(is_delivered);
        let not_ended =
            NotEnded::of_events(with_index.filter(|(_, is_delivered)| **is_delivered).map(|(event, _)| event));
        let (memo, rows, form, since) = (Memo::default(), plan.rows, plan.form, Duration::ZERO);
        Ok(Tally {
            command,
            events: events.clone(),
            names,
            counted,
            plans,
            context: context.clone(),
            stats: stats.clone(),
            from_kernel,
            now,
            memo,
            whole,
            more_sums,
            missing,
            not_ended,
            times,
            since,
            missed: Shortfall::default(),
            rows,
            form,
            place: plan.place,
            screen,
            output,
        })
    })?;
    // The hint is only for live events, because the call chains of a recording cannot be changed any more.
    let finds_by_pointers = is_live && watch.capture.callchain.how == CallGraph::FramePointer;
    if finds_by_pointers && watch.verbosity > Verbosity::Quiet {
        short_chains::hint(&tally.whole).into_iter().for_each(say);
    }
    Ok((status, tally))
}

/// Prints what has changed between two recordings.
fn print_difference<L: TallyCommand>(plan: &TallyPlan, name: &str, before: &Tally<L>, after: &mut Tally<L>) {
    let [one, other] = [before, &*after].map(|of| Side { groups: &of.whole, length: of.times.elapsed(&of.context) });
    let shortfalls = [before.shortfall(), after.shortfall()];
    let text = match plan.form {
        Form::Text => {
            let of_side = |side: &Side<'_>, shortfall: &Option<Shortfall>| {
                let number = after.counted.bound(events(side.groups), shortfall.as_ref());
                format!("{number} in {:.6} s", side.length.as_secs_f64())
            };
            let [was, is] = [of_side(&one, &shortfalls[0]), of_side(&other, &shortfalls[1])];
            let head = format!("before, {name}: {was}; after: {is}");
            let lines = after.command.difference([&one, &other], plan.rows.unwrap_or(ROWS));
            let note = |when: &str, of: &Option<Shortfall>| of.as_ref().map(|of| format!("{when}: {}", of.note()));
            let notes = [note("before", &shortfalls[0]), note("after", &shortfalls[1])];
            let not_ended =
                |when: &'static str, of: &NotEnded| of.lines().into_iter().map(move |line| format!("{when}: {line}"));
            let not_ended = not_ended("before", &before.not_ended).chain(not_ended("after", &after.not_ended));
            let lines = [head].into_iter().chain(lines).chain(notes.into_iter().flatten()).chain(not_ended);
            lines.map(|line| line + "\n").collect::<String>() + "\n"
        }
        Form::Json => {
            let of_side = |side: &Side<'_>, shortfall: &Option<Shortfall>, not_ended: &NotEnded| {
                let mut object = missing(shortfall.as_ref(), after.counted);
                object.extend(not_ended.member());
                object.insert("seconds".into(), json!(side.length.as_secs_f64()));
                object.insert("events".into(), json!(events(side.groups)));
                object
            };
            let mut was = of_side(&one, &shortfalls[0], &before.not_ended);
            was.insert("name".into(), json!(name));
            let rows = after.command.difference_json([&one, &other], plan.rows.unwrap_or(usize::MAX));
            let is = of_side(&other, &shortfalls[1], &after.not_ended);
            json!({ "kind": "difference", "before": was, "after": is, "rows": rows }).to_string() + "\n"
        }
    };
    after.output.waiting.extend_from_slice(text.as_bytes());
}

/// Compiles a definition for an event. If the event has no field `comm`, the key `comm` means the member `_comm`. The
/// same holds for `pid`, `cpu` and other members of all events.
fn compile(definition: &Definition, event: &EventType) -> Result<Plan, PlanError> {
    let only = |name: &str| Definition { keys: vec![name.to_owned()], value: None, ..definition.clone() };
    let find = |name: &String| {
        let own = format!("_{name}");
        match (Plan::new(&only(name), event), Plan::new(&only(&own), event)) {
            // The member `cgroup` of a sample is a number, so the key means `_cgroup`, which is a path.
            (Ok(_), Ok(_)) if name == "cgroup" && !has_field(event, name) => Ok(own),
            (Ok(_), _) => Ok(name.clone()),
            (Err(PlanError::Unknown { .. }), Ok(_)) => Ok(own),
            // The error contains the name that the user typed.
            (Err(PlanError::Unknown { .. }), Err(PlanError::NoCallchain { event, .. })) => {
                Err(PlanError::NoCallchain { name: name.clone(), event })
            }
            (Err(PlanError::Unknown { .. }), Err(error @ PlanError::NoCgroup { .. })) => Err(error),
            (Err(error), _) => Err(error),
        }
    };
    let keys = definition.keys.iter().map(find).collect::<Result<_, _>>()?;
    Plan::new(&Definition { keys, ..definition.clone() }, event)
}

fn has_field(event: &EventType, name: &str) -> bool {
    event.format.tracepoint().is_some_and(|format| format.field(name).is_some())
}

/// Whether events or spans are counted.
#[derive(Clone, Copy)]
enum Counted {
    Events,
    Spans,
}

impl Counted {
    fn of_events(events: &[EventType]) -> Counted {
        let are_spans = !events.is_empty() && events.iter().all(|event| matches!(event.format, Format::Span(_)));
        if are_spans { Counted::Spans } else { Counted::Events }
    }

    /// Returns a count with its noun: `1 span`, `2 spans`.
    fn text(self, number: u64) -> String {
        match self {
            Counted::Events => counted(number, "event", "events"),
            Counted::Spans => counted(number, "span", "spans"),
        }
    }

    /// Like [`Counted::text`], but with `at least` if some are missing.
    fn bound(self, number: u64, shortfall: Option<&Shortfall>) -> String {
        let at_least = if shortfall.is_some() { "at least " } else { "" };
        format!("{at_least}{}", self.text(number))
    }
}

/// The sink that adds up events.
struct Tally<L> {
    command: L,
    events: Vec<EventType>,
    /// The names of the events, for the screen.
    names: String,
    counted: Counted,
    /// For each delivered event, the plan for reading its keys and its value.
    plans: Vec<Option<Plan>>,
    context: Arc<Context>,
    stats: Arc<Stats>,
    /// The sums of this interval that the kernel kept.
    from_kernel: SharedGroups,
    /// All sums of this interval.
    now: Groups,
    memo: Memo,
    /// The sums of all earlier intervals.
    whole: Groups,
    /// The sums of further fields.
    more_sums: Vec<SumTable>,
    /// The maximum total duration of dropped spans, by key.
    missing: Option<SumTable>,
    not_ended: NotEnded,
    times: Times,
    /// The time from the start of the run to the start of the interval.
    since: Duration,
    /// What had been missing when the interval started.
    missed: Shortfall,
    rows: Option<usize>,
    form: Form,
    place: Place,
    screen: Option<Screen>,
    output: Output,
}

impl<L> Tally<L> {
    fn shortfall(&self) -> Option<Shortfall> {
        Shortfall::of_sums(&self.stats, Some(&self.context))
    }
}

impl<L: TallyCommand> Receiver for Tally<L> {
    fn uses(&self) -> Vec<EventUse> {
        let of_event = |(event, plan): (usize, &Option<Plan>)| match plan {
            Some(plan) => {
                let (definition, table) = (self.now.definition().clone(), self.from_kernel.clone());
                let of_more_sums = self.more_sums.iter().filter_map(|sums| sums.table_use(event));
                let own = TableUse { definition, plan: plan.clone(), table };
                EventUse::Tables([own].into_iter().chain(of_more_sums).collect())
            }
            None => EventUse::Samples("something else is made of it"),
        };
        self.plans.iter().enumerate().map(of_event).collect()
    }
}

impl<L: TallyCommand> Tally<L> {
    /// Takes the sums out of the kernel, and adds them to the sums of this interval.
    fn take_from_kernel(&mut self) {
        sum_table::take(&self.from_kernel, &mut self.now);
        self.more_sums.iter_mut().for_each(SumTable::take_from_kernel);
    }
}

impl<L: TallyCommand> Sink for Tally<L> {
    fn begin(&mut self) {
        if let Times::Clock(start) = &mut self.times {
            *start = Some(Instant::now());
        }
    }

    fn enter(&mut self, body: &mut dyn FnMut(&mut dyn Deliver)) {
        body(self);
    }

    fn counts_missing(&self) -> bool {
        self.missing.is_some()
    }
}

impl<L: TallyCommand> Deliver for Tally<L> {
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow {
        if let (Some(of_type), Some(Some(plan))) = (self.events.get(event), self.plans.get(event)) {
            let sample = Sample { event: of_type, record };
            if let Times::Recorded(times) = &mut self.times {
                times.note_event(sample.time());
            }
            let input = Input { sample, facts: Facts::Run(&self.context) };
            self.now.add(plan, &input, &mut self.memo);
            self.more_sums.iter_mut().for_each(|sums| sums.add(event, &input));
        }
        ControlFlow::Continue(())
    }

    fn missing(&mut self, event: usize, record: &[u8]) {
        if let (Some(of_type), Some(missing)) = (self.events.get(event), &mut self.missing) {
            let sample = Sample { event: of_type, record };
            missing.add(event, &Input { sample, facts: Facts::Run(&self.context) });
        }
    }

    fn interval(&mut self) -> Flow {
        let end = self.times.until_interval(&self.context);
        self.take_from_kernel();
        self.whole.merge(&self.now);
        let whole = self.screen.is_some().then_some(&self.whole);
        let missed = self.shortfall();
        let shortfall = missed.as_ref().and_then(|missed| missed.since(&self.missed));
        let more_sums = self.more_sums.iter().map(|sums| &sums.now).collect();
        let length = end.saturating_sub(self.since);
        let missing = self.missing.as_ref().map(|missing| &missing.now).filter(|missing| !missing.is_empty());
        let (begun_before, not_ended) = (BegunBefore::default(), None);
        let groups = &self.now;
        let period = Period { groups, length, whole, shortfall, more_sums, missing, begun_before, not_ended };
        match &mut self.screen {
            Some(screen) => {
                let rows = self.rows.unwrap_or(usize::MAX).min(self.command.rows_that_fit(screen.lines()));
                let counted = self.counted.bound(events(&self.whole), missed.as_ref());
                let head = format!("{}: {:.1} s, {counted}", self.names, end.as_secs_f64());
                let text = self.command.lines(&period, rows);
                screen.draw(&head, &text, &mut self.output.waiting);
            }
            None => {
                print(&self.command, &period, self.form, self.counted, self.rows, Some(end), &mut self.output.waiting)
            }
        }
        (self.since, self.missed) = (end, missed.unwrap_or_default());
        self.now.clear();
        self.more_sums.iter_mut().chain(&mut self.missing).for_each(SumTable::end_interval);
        self.output.write()
    }

    fn not_ended(&mut self, event: usize, number: u64) {
        self.not_ended.note(event, number);
    }

    fn events_ended(&mut self, time: u64) {
        if let Times::Recorded(times) = &mut self.times {
            times.note_end(time);
        }
    }

    fn exit(&mut self) -> Flow {
        if let Some(screen) = mem::take(&mut self.screen) {
            screen.close(&mut self.output.waiting);
        }
        self.take_from_kernel();
        let empty = Groups::new(self.now.definition().clone());
        self.whole.absorb(mem::replace(&mut self.now, empty));
        self.more_sums.iter_mut().chain(&mut self.missing).for_each(SumTable::end_interval);
        if self.place == Place::Nowhere {
            return Flow::Continue(());
        }
        let shortfall = self.shortfall();
        let more_sums = self.more_sums.iter().map(|sums| &sums.whole).collect();
        let (groups, length) = (&self.whole, self.times.elapsed(&self.context));
        let missing = self.missing.as_ref().map(|missing| &missing.whole).filter(|missing| !missing.is_empty());
        let (whole, begun_before, not_ended) = (None, BegunBefore::of(&self.stats), Some(&self.not_ended));
        let period = Period { groups, length, whole, shortfall, more_sums, missing, begun_before, not_ended };
        print(&self.command, &period, self.form, self.counted, self.rows, None, &mut self.output.waiting);
        self.output.write()
    }
}

/// Prints the sums of a period. `end` is the time from the start of the run to the end of an interval. `None` for the
/// whole run.
fn print(
    command: &impl TallyCommand,
    period: &Period<'_>,
    form: Form,
    counted: Counted,
    rows: Option<usize>,
    end: Option<Duration>,
    out: &mut Vec<u8>,
) {
    let (seconds, events) = (period.length.as_secs_f64(), events(period.groups));
    match form {
        Form::Text => {
            let name = match end {
                Some(end) => format!("{:.3} s", end.as_secs_f64()),
                None => "total".to_owned(),
            };
            let head = format!("{name}: {} in {seconds:.6} s", counted.bound(events, period.shortfall.as_ref()));
            let lines = command.lines(period, rows.unwrap_or(ROWS));
            let note = period.shortfall.as_ref().map(Shortfall::note);
            if end.is_none() && note.is_some() {
                span_report::note_named_tasks();
            }
            let not_ended = period.not_ended.map(NotEnded::lines).into_iter().flatten();
            for line in [head].into_iter().chain(lines).chain(note).chain(not_ended).chain([String::new()]) {
                out.extend_from_slice(line.as_bytes());
                out.push(b'\n');
            }
        }
        Form::Json => {
            let kind = if end.is_some() { "interval" } else { "total" };
            let mut object = json!({
                "kind": kind,
                "time": end.map_or(seconds, |end| end.as_secs_f64()),
                "seconds": seconds,
                "events": events,
                "rows": [],
                "others": others(period.groups),
            });
            if let Json::Object(members) = &mut object {
                members.extend(missing(period.shortfall.as_ref(), counted));
                members.extend(without_value(period));
                members.extend(period.not_ended.and_then(NotEnded::member));
                if let Counted::Spans = counted {
                    members.extend(period.begun_before.members());
                }
            }
            // The rows are inserted one by one into the text of the object, whose list `rows` is empty. There may be a
            // million rows. As JSON values they would take ten times the memory of their text.
            let object = object.to_string();
            let object = in_json(&object);
            let (before, after) = object.split_once("\"rows\":[]").unwrap_or((&object, ""));
            out.extend_from_slice(before.as_bytes());
            let mut separator = "\"rows\":[";
            command.json(period, rows.unwrap_or(usize::MAX), &mut |row| {
                out.extend_from_slice(separator.as_bytes());
                out.extend_from_slice(in_json(&row.to_string()).as_bytes());
                separator = ",";
            });
            let end = if separator == "," { "]" } else { "\"rows\":[]" };
            [end, after, "\n"].iter().for_each(|text| out.extend_from_slice(text.as_bytes()));
        }
    }
}

/// Returns the members of a JSON object for missing events and spans.
fn missing(shortfall: Option<&Shortfall>, of: Counted) -> Map<String, Json> {
    let mut members = Map::new();
    members.insert("partial".into(), json!(shortfall.is_some()));
    let Some(shortfall) = shortfall else { return members };
    members.insert("lost".into(), json!(shortfall.lost));
    members.insert("unattributed".into(), json!(shortfall.unattributed));
    members.insert("throttled".into(), json!(shortfall.throttled));
    members.insert("damaged".into(), json!(shortfall.damaged));
    if let Counted::Spans = of {
        let task = |task: &IncompleteTask| {
            let IncompleteTask { tid, comm, gaps, missing } = task;
            let missing = (*missing != 0).then_some(missing);
            json!({ "tid": tid, "comm": comm, "missing": gaps, "missing_time": missing })
        };
        members.insert("unfinished".into(), json!(shortfall.unfinished));
        members.insert("unseen".into(), json!(shortfall.unseen));
        members.insert("without_room".into(), json!(shortfall.without_room));
        members.insert("undecided".into(), json!(shortfall.undecided));
        members.insert("without_task".into(), json!(shortfall.without_task));
        members.insert("missing".into(), json!(shortfall.gaps));
        members.insert("missing_time".into(), json!(shortfall.missing_time()));
        members.insert("incomplete_tasks".into(), shortfall.tasks.iter().take(TASKS).map(task).collect());
        members.insert("cpus_without_idle_events".into(), json!(shortfall.cpus_without_idle_events));
    }
    members
}

/// Returns a member of a JSON object: for each field, how many events are not added up, because their value is not known.
/// `None` if there are none.
fn without_value(period: &Period<'_>) -> Option<(String, Json)> {
    let tables = [period.groups].into_iter().chain(period.more_sums.iter().copied());
    let of_table = |groups: &Groups| Some((groups.definition().value.clone()?, json!(groups.skipped())));
    let counts: Map<String, Json> = tables.filter(|groups| groups.skipped() != 0).filter_map(of_table).collect();
    (!counts.is_empty()).then(|| ("without_value".to_owned(), Json::Object(counts)))
}

fn events(groups: &Groups) -> u64 {
    u64::try_from(groups.total().weight()).unwrap_or(u64::MAX)
}

fn others(groups: &Groups) -> u64 {
    u64::try_from(groups.others().amount.weight()).unwrap_or(u64::MAX)
}
