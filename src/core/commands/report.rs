//! `perf-prof report`: shows where the samples of a recording were taken, as a table (with or without callers), or as a
//! flame graph. Only sums are kept in memory, not samples.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    ffi::OsStr,
    fs::File,
    io::{self, BufWriter, Write},
    ops::ControlFlow,
    path::PathBuf,
    sync::Arc,
};

use anyhow::{Context as _, Result};
use serde_json::json;

use super::{
    recording_view::{OpenRecording, ReadOutcome},
    script_text::names,
};
use crate::{
    engine::ExitStatus,
    event::{
        AddedSample, Caller, CallerSums, Context, Deliver, EventType, Flow, Frame, GroupKey, Line, Origin, Sample,
        Shares, Sink, Stop, UNKNOWN, frames, ip_function,
    },
    picture::{FlameGraphStyle, Label, Stacks, draw},
    plan::{Input, Verbosity},
    spec::EventSpec,
    symbol,
    sys::{
        output,
        output_path::{self, ExistingFile},
        terminal::ShownOnStdout,
    },
};

/// The plan of a report: the recording, and how its samples are added up.
#[derive(Clone, Debug)]
pub struct ReportPlan {
    /// The recording, and which part of it is read.
    pub input: Input,
    /// The events whose samples are added up. If there are none, the samples of all events are added up.
    pub events: Vec<EventSpec>,
    /// The keys by which samples are grouped.
    pub by: Vec<GroupKey>,
    /// How callers are shown.
    pub callers: CallerSums,
    /// The file for a flame graph, if the user wants one. If the name ends in `.folded`, the file contains text;
    /// otherwise it contains a picture.
    pub flame: Option<PathBuf>,
    /// How the table is printed.
    pub form: Form,
    /// How many messages about problems with the recording are printed.
    pub verbosity: Verbosity,
}

/// How the table is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Text for people.
    #[default]
    Text,
    /// JSON for programs.
    Json,
}

/// Adds up the samples and prints the report.
pub fn run(plan: &ReportPlan) -> Result<ExitStatus> {
    if let Some(path) = &plan.flame {
        output_path::check(path, ExistingFile::Overwritten)?;
    }
    let reading = OpenRecording::open(&plan.input, &plan.events, symbol::Options::default(), plan.verbosity)?;
    let all = names(&reading);
    let names: Vec<String> = reading.attrs().into_iter().map(|attr| all[attr].clone()).collect();
    let mut sums = Sums {
        types: reading.types().to_vec(),
        context: reading.context.clone(),
        shares: names.iter().map(|_| Shares::new(&plan.by, plan.callers)).collect(),
        stacks: plan.flame.is_some().then(Stacks::default),
        names: if names.len() > 1 { names.clone() } else { Vec::new() },
        unnamed_tasks: BTreeSet::new(),
        failed: None,
    };
    let ReadOutcome { status, lost } = reading.run(&mut sums)?;
    if let Some(error) = sums.failed {
        return Err(error);
    }
    // perf gives a task without a name the first name that is reported later (`____thread__set_comm()` in
    // `tools/perf/util/thread.c`).
    let later = |&tid: &i32| {
        let name =
            sums.context.with_tasks(|tasks| tasks.name(tid, 0).map(|comm| String::from_utf8_lossy(comm).into_owned()));
        Some((unnamed(tid), name?))
    };
    let later: HashMap<String, String> = sums.unnamed_tasks.iter().filter_map(later).collect();
    if !later.is_empty() {
        sums.shares.iter_mut().for_each(|shares| shares.rename_tasks(&later));
    }
    if let (Some(path), Some(stacks)) = (&plan.flame, &sums.stacks) {
        let write = || -> Result<()> {
            let mut to = BufWriter::new(File::create(path)?);
            let look = FlameGraphStyle {
                count_name: "periods".into(),
                subtitle: Some(names.join(", ")),
                ..FlameGraphStyle::default()
            };
            match path.extension().and_then(OsStr::to_str) {
                Some("folded") => stacks.lines().iter().try_for_each(|line| writeln!(to, "{line}"))?,
                _ => draw(stacks, &look, &mut to)?,
            }
            Ok(to.flush()?)
        };
        write().with_context(|| format!("cannot write the flame graph {}", path.display()))?;
        if plan.verbosity > Verbosity::Quiet {
            output::say(format_args!("the flame graph is in {}", path.display()));
        }
    }
    let mut out = ShownOnStdout::new(BufWriter::new(io::stdout().lock()));
    match plan.form {
        Form::Text => {
            writeln!(out, "# Total Lost Samples: {}\n#", lost)?;
            // If a pattern matched many events, most of these events never happened. Events without samples are not
            // shown.
            let any = sums.shares.iter().any(|shares| shares.samples() > 0);
            let shown = names.iter().zip(&sums.shares).filter(|(_, shares)| !any || shares.samples() > 0);
            for (name, shares) in shown {
                table(plan, name, shares, output::terminal_width(), &mut out)?;
            }
        }
        Form::Json => {
            let events: Vec<_> =
                names.iter().zip(&sums.shares).map(|(name, shares)| of_event(plan, name, shares)).collect();
            writeln!(out, "{}", serde_json::to_string_pretty(&json!({ "lost": lost, "events": events }))?)?;
        }
    }
    out.flush()?;
    Ok(status)
}

/// A sink that adds up samples.
struct Sums {
    types: Vec<EventType>,
    context: Arc<Context>,
    shares: Vec<Shares>,
    stacks: Option<Stacks>,
    /// The name of each event, which is the outermost frame in the flame graph. Without this frame, periods in
    /// different units would be added up, for example nanoseconds and calls. Empty if there is only one event.
    names: Vec<String>,
    /// Tasks without a name at the time of one of their samples. Their names may be reported later.
    unnamed_tasks: BTreeSet<i32>,
    failed: Option<anyhow::Error>,
}

/// Returns perf's notation for a task whose name is not known.
fn unnamed(tid: i32) -> String {
    format!(":{tid}")
}

impl Sink for Sums {
    fn enter(&mut self, body: &mut dyn FnMut(&mut dyn Deliver)) {
        body(self);
    }
}

impl Deliver for Sums {
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow {
        let Some(of_type) = self.types.get(event) else { return ControlFlow::Continue(()) };
        let sample = Sample { event: of_type, record };
        let (pid, tid) = sample.pid_tid();
        let comm = self
            .context
            .with_tasks(|tasks| tasks.name(tid, sample.time()).map(|comm| String::from_utf8_lossy(comm).into_owned()));
        let comm = comm.unwrap_or_else(|| {
            self.unnamed_tasks.insert(tid);
            unnamed(tid)
        });
        let chain = frames(&sample, &self.context);
        let place = ip_function(&sample, &self.context);
        let place = place.as_deref().or_else(|| chain.first().map(|frame| &**frame));
        let period = sample.period();
        let added = AddedSample { period, comm: &comm, ids: (pid, tid), cpu: sample.cpu(), place, chain: &chain };
        self.shares[event].add(&added);
        let Some(stacks) = &mut self.stacks else { return ControlFlow::Continue(()) };
        let mut at = stacks.root();
        if let Some(name) = self.names.get(event) {
            at = stacks.child(at, Label::Name(name));
        }
        at = stacks.child(at, Label::Name(&comm));
        let whole = chain.iter().rev().map(|frame| &**frame);
        for frame in whole.chain(place.filter(|_| chain.is_empty())) {
            at = stacks.child(at, label(frame));
        }
        match stacks.add_weight(at, period) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failed = Some(error.into());
                ControlFlow::Break(Stop::Failed)
            }
        }
    }
}

fn label(frame: &Frame) -> Label<'_> {
    match (&*frame.symbol, frame.origin) {
        (UNKNOWN, Origin::Kernel) => Label::InKernel(&frame.dso),
        (UNKNOWN, _) => Label::InFile(&frame.dso),
        (symbol, Origin::Kernel) => Label::Kernel(symbol),
        (symbol, _) => Label::Name(symbol),
    }
}

fn title(by: GroupKey) -> &'static str {
    match by {
        GroupKey::Comm => "Command",
        GroupKey::Pid => "Pid",
        GroupKey::Tid => "Tid",
        GroupKey::Cpu => "CPU",
        GroupKey::Dso => "Shared Object",
        GroupKey::Symbol => "Symbol",
    }
}

/// The minimum percentage of the event's total for callers. Callers with a smaller percentage are not shown, as in perf
/// by default.
const LEAST: f64 = 0.5;

fn percent(weight: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { 100.0 * weight as f64 / total as f64 }
}

/// Formats a count in thousands, millions or billions, for example `5K`. The number is rounded down, as in perf.
fn in_thousands(mut count: u64) -> String {
    let mut unit = ' ';
    for larger in ['K', 'M', 'G'] {
        if count < 1000 {
            break;
        }
        (count, unit) = (count / 1000, larger);
    }
    format!("{count}{unit}")
}

/// The widest column of a table that is not printed on a terminal. Longer texts are not aligned. A recording may have
/// names of any length, and formatting panics at large widths.
const WIDEST: usize = 256;

/// Cuts a text that is longer than `width` characters, and marks the end with two points.
fn cut(text: &str, width: usize) -> Cow<'_, str> {
    if text.chars().nth(width).is_none() {
        return Cow::Borrowed(text);
    }
    let kept: String = text.chars().take(width.saturating_sub(2)).collect();
    Cow::Owned(format!("{kept}{}", &".."[..width.min(2)]))
}

/// Prints the table of an event. `screen` is the width of the terminal: lines are cut to it, and no column but the last
/// takes more than a third of it.
fn table(
    plan: &ReportPlan,
    name: &str,
    shares: &Shares,
    screen: Option<usize>,
    out: &mut impl Write,
) -> io::Result<()> {
    let total = shares.total();
    writeln!(out, "# Samples: {} of event '{name}'", in_thousands(shares.samples()))?;
    writeln!(out, "# Event count (approx.): {total}\n#")?;
    let lines = shares.lines();
    let longest = |at: usize, by: &GroupKey| {
        let width = lines.iter().map(|line| line.keys[at].chars().count()).max().unwrap_or(0);
        let most = screen.map_or(WIDEST, |screen| screen / 3);
        width.min(most).max(title(*by).len())
    };
    let widths: Vec<usize> = plan.by.iter().enumerate().map(|(at, by)| longest(at, by)).collect();
    let shares_titles: &[&str] =
        if plan.callers == CallerSums::Children { &["Children", "    Self"] } else { &["Overhead"] };
    let titles = plan.by.iter().zip(&widths).map(|(by, width)| format!("{:width$}", title(*by)));
    let titles: Vec<String> = shares_titles.iter().map(|title| (*title).to_owned()).chain(titles).collect();
    let mut print =
        |line: String| writeln!(out, "{}", screen.map_or(Cow::Borrowed(&*line), |screen| cut(&line, screen)));
    print(format!("# {}", titles.join("  ")))?;
    let rules: Vec<String> = titles.iter().map(|title| ".".repeat(title.chars().count())).collect();
    print(format!("# {}", rules.join("  ")))?;
    print("#".to_owned())?;
    for line in &lines {
        let mut text = match plan.callers {
            CallerSums::Children => {
                format!("  {:7.2}%  {:7.2}%", percent(line.with_callees, total), percent(line.own, total))
            }
            CallerSums::Ignored | CallerSums::Trees => format!("  {:7.2}%", percent(line.own, total)),
        };
        for ((key, &width), by) in line.keys.iter().zip(&widths).zip(&plan.by) {
            // Function names can be very long, so this column is not padded. perf does the same. Other columns are cut
            // only on a terminal, because programs read the other outputs.
            let width = if *by == GroupKey::Symbol { 0 } else { width };
            let key = if width != 0 && screen.is_some() { cut(key, width) } else { Cow::Borrowed(&**key) };
            text.push_str(&format!("  {key:width$}"));
        }
        print(text)?;
        if plan.callers == CallerSums::Trees {
            tree(&line.callers, 2, total, &mut print)?;
            print(String::new())?;
        }
    }
    print("\n".to_owned())
}

/// Prints callers below the function that they called. Each caller is indented and has a percentage. If a function has
/// only one caller, this caller is printed without a percentage.
fn tree(
    callers: &[Caller],
    depth: usize,
    total: u64,
    print: &mut impl FnMut(String) -> io::Result<()>,
) -> io::Result<()> {
    let shown: Vec<&Caller> = callers.iter().filter(|caller| percent(caller.weight, total) >= LEAST).collect();
    for caller in &shown {
        let (mut caller, mut depth) = (*caller, depth);
        let share = percent(caller.weight, total);
        print(format!("{}{share:.2}% {}", "    ".repeat(depth), caller.name))?;
        // All of these samples have the same next caller, so the next caller gets no percentage and no deeper
        // indentation.
        while let [only] = &caller.callers[..] {
            if only.weight != caller.weight {
                break;
            }
            print(format!("{}      {}", "    ".repeat(depth), only.name))?;
            caller = only;
        }
        depth += 1;
        tree(&caller.callers, depth, total, print)?;
    }
    Ok(())
}

fn of_event(plan: &ReportPlan, name: &str, shares: &Shares) -> serde_json::Value {
    let key = |by: &GroupKey| match by {
        GroupKey::Comm => "comm",
        GroupKey::Pid => "pid",
        GroupKey::Tid => "tid",
        GroupKey::Cpu => "cpu",
        GroupKey::Dso => "dso",
        GroupKey::Symbol => "symbol",
    };
    fn callers(of: &[Caller]) -> Vec<serde_json::Value> {
        let caller = |it: &Caller| json!({ "name": it.name, "period": it.weight, "callers": callers(&it.callers) });
        of.iter().map(caller).collect()
    }
    let line = |line: &Line| {
        let mut object = serde_json::Map::new();
        for (by, text) in plan.by.iter().zip(&line.keys) {
            object.insert(key(by).into(), json!(text));
        }
        object.insert("period".into(), json!(line.own));
        object.insert("samples".into(), json!(line.samples));
        match plan.callers {
            CallerSums::Children => object.insert("children".into(), json!(line.with_callees)),
            CallerSums::Trees => object.insert("callers".into(), json!(callers(&line.callers))),
            CallerSums::Ignored => None,
        };
        serde_json::Value::Object(object)
    };
    let lines: Vec<_> = shares.lines().iter().map(line).collect();
    json!({ "name": name, "samples": shares.samples(), "period": shares.total(), "lines": lines })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the table of two samples with these names of tasks.
    fn table_of(comms: [&str; 2], screen: Option<usize>) -> String {
        let plan = ReportPlan {
            input: Input::default(),
            events: Vec::new(),
            by: vec![GroupKey::Comm, GroupKey::Cpu],
            callers: CallerSums::Ignored,
            flame: None,
            form: Form::Text,
            verbosity: Verbosity::Normal,
        };
        let mut shares = Shares::new(&plan.by, plan.callers);
        for comm in comms {
            shares.add(&AddedSample { period: 1, comm, ids: (1, 1), cpu: 3, place: None, chain: &[] });
        }
        let mut out = Vec::new();
        table(&plan, "x", &shares, screen, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_fit_on_a_terminal_and_are_whole_elsewhere() {
        let long = "c".repeat(100_000);
        let whole = table_of([&long, "short"], None);
        assert!(whole.contains(&long) && whole.contains("  short  "), "{}", &whole[whole.len() - 200..]);
        let cut = table_of([&long, "short"], Some(60));
        assert!(cut.lines().all(|line| line.chars().count() <= 60), "{cut}");
        let column = format!("{}..  003\n", "c".repeat(18));
        assert!(cut.contains(&column) || cut.contains(&column.replace("003", "3")), "{cut}");
    }

    #[test]
    fn numbers_of_samples_are_cut_off_as_perf_does() {
        assert_eq!([0, 999, 1000, 1999, 2_500_000].map(in_thousands), ["0 ", "999 ", "1K", "1K", "2M"]);
        assert_eq!(percent(1, 0), 0.0);
    }
}
