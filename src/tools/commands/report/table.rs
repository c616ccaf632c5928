//! The report as text for people: a table for each event.

use std::{
    borrow::Cow,
    io::{self, Write},
};

use perf_prof_events::event::{Caller, CallerSums, GroupKey, Shares};
use perf_prof_format::control_characters::in_one_line;

use super::ReportPlan;

fn title(by: GroupKey) -> &'static str {
    match by {
        GroupKey::Comm => "Command",
        GroupKey::Pid => "Pid",
        GroupKey::Tid => "Tid",
        GroupKey::Cpu => "CPU",
        GroupKey::Cgroup => "Cgroup",
        GroupKey::Dso => "Shared Object",
        GroupKey::Symbol => "Symbol",
    }
}

/// The minimum share for a caller to be shown, in percent of the event's total. It is perf's default.
const LEAST: f64 = 0.5;

pub(super) fn percent(weight: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { 100.0 * weight as f64 / total as f64 }
}

/// Formats a count in thousands, millions or billions: `5K`. The number is rounded down, as in perf.
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

/// The maximum width of a column in characters if the output is no terminal. Longer texts are not aligned. A limit is
/// needed because names in a recording may be of any length, and formatting panics at large widths.
const WIDEST: usize = 256;

/// Cuts a text that is longer than `width` characters, and marks the end with two dots.
fn cut(text: &str, width: usize) -> Cow<'_, str> {
    if text.chars().nth(width).is_none() {
        return Cow::Borrowed(text);
    }
    let kept: String = text.chars().take(width.saturating_sub(2)).collect();
    Cow::Owned(format!("{kept}{}", &".."[..width.min(2)]))
}

/// The columns of the keys, which follow the columns of numbers in the table.
pub(super) struct Columns<'a> {
    by: &'a [GroupKey],
    widths: Vec<usize>,
    screen: Option<usize>,
}

impl<'a> Columns<'a> {
    /// Creates columns that fit the keys of all lines. `screen` is the width of the terminal. Lines are cut to this width,
    /// and only the last column may take more than a third of it.
    pub fn new<'k>(
        plan: &'a ReportPlan,
        lines: impl Iterator<Item = &'k [String]> + Clone,
        screen: Option<usize>,
    ) -> Columns<'a> {
        let most = screen.map_or(WIDEST, |screen| screen / 3);
        let longest = |(at, by): (usize, &GroupKey)| {
            let width = lines.clone().map(|keys| in_one_line(&keys[at]).chars().count()).max().unwrap_or(0);
            width.min(most).max(title(*by).len())
        };
        Columns { by: &plan.by, widths: plan.by.iter().enumerate().map(longest).collect(), screen }
    }

    /// Prints the titles of all columns. `numbers` contains the titles of the columns of numbers.
    pub fn print_titles(&self, numbers: &[&str], out: &mut impl Write) -> io::Result<()> {
        let titles = self.by.iter().zip(&self.widths).map(|(by, width)| format!("{:width$}", title(*by)));
        let titles: Vec<String> = numbers.iter().map(|title| (*title).to_owned()).chain(titles).collect();
        self.print_cut(&format!("# {}", titles.join("  ")), out)?;
        let rules: Vec<String> = titles.iter().map(|title| ".".repeat(title.chars().count())).collect();
        self.print_cut(&format!("# {}", rules.join("  ")), out)?;
        self.print_cut("#", out)
    }

    /// Prints a line of the table. `numbers` is the text of its columns of numbers.
    pub fn print_line(&self, numbers: &str, keys: &[String], out: &mut impl Write) -> io::Result<()> {
        let mut text = numbers.to_owned();
        for ((key, &width), by) in keys.iter().zip(&self.widths).zip(self.by) {
            // The column of symbols is not padded, because symbols can be very long. perf does the same. The other
            // columns are cut only on a terminal, because programs read the other outputs.
            let width = if *by == GroupKey::Symbol { 0 } else { width };
            let key = in_one_line(key);
            let key = if width != 0 && self.screen.is_some() { cut(&key, width) } else { key };
            text.push_str(&format!("  {key:width$}"));
        }
        self.print_cut(&text, out)
    }

    /// Prints a line, cut to the width of the terminal.
    fn print_cut(&self, line: &str, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}", self.screen.map_or(Cow::Borrowed(line), |screen| cut(line, screen)))
    }
}

/// Prints the table of an event. `screen` is the width of the terminal.
pub(super) fn print(
    plan: &ReportPlan,
    name: &str,
    shares: &Shares,
    screen: Option<usize>,
    out: &mut impl Write,
) -> io::Result<()> {
    let total = shares.total();
    writeln!(out, "# Samples: {} of event '{name}'", in_thousands(shares.samples()))?;
    writeln!(out, "# Event count (approx.): {total}\n#")?;
    if shares.others() != 0 {
        let others = shares.others();
        writeln!(
            out,
            "# [others]: {others} samples whose keys did not fit into memory; a larger --buffer keeps more\n#"
        )?;
    }
    let lines = shares.lines();
    let columns = Columns::new(plan, lines.iter().map(|line| &line.keys[..]), screen);
    let numbers: &[&str] = if plan.callers == CallerSums::Children { &["Children", "    Self"] } else { &["Overhead"] };
    columns.print_titles(numbers, out)?;
    for line in &lines {
        let numbers = match plan.callers {
            CallerSums::Children => {
                format!("  {:7.2}%  {:7.2}%", percent(line.with_callees, total), percent(line.own, total))
            }
            CallerSums::Ignored | CallerSums::Trees => format!("  {:7.2}%", percent(line.own, total)),
        };
        columns.print_line(&numbers, &line.keys, out)?;
        if plan.callers == CallerSums::Trees {
            let mut print = |line: String| columns.print_cut(&line, out);
            tree(&line.callers, 2, total, &mut print)?;
            print(String::new())?;
        }
    }
    columns.print_cut("\n", out)
}

/// Prints the callers below the function that they called, each indented and with a percentage. An only caller is
/// printed without a percentage.
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
        // All samples of `caller` have the same next caller. This caller gets no percentage, and no deeper indentation.
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

#[cfg(test)]
mod tests {
    use perf_prof_events::event::AddedSample;
    use perf_prof_session::plan::{Input, Verbosity};
    use perf_prof_system::budget::Budget;

    use super::{super::Form, *};

    /// Returns the table of two samples. `comms` are the comms of their tasks.
    fn table_of(comms: [&str; 2], screen: Option<usize>) -> String {
        let plan = ReportPlan {
            input: Input::default(),
            events: Vec::new(),
            by: vec![GroupKey::Comm, GroupKey::Cpu],
            callers: CallerSums::Ignored,
            python: None,
            before: None,
            flame: None,
            pprof: None,
            form: Form::Text,
            verbosity: Verbosity::Normal,
        };
        let mut shares = Shares::new(&plan.by, plan.callers, &Budget::unlimited());
        for comm in comms {
            shares.add(&AddedSample { period: 1, comm, ids: (1, 1), cpu: 3, cgroup: "", place: None, chain: &[] });
        }
        let mut out = Vec::new();
        print(&plan, "x", &shares, screen, &mut out).unwrap();
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
