//! Formats counts as text for people.

use std::fmt::Write;

use perf_prof_events::picture::grouped;
use perf_prof_session::stat::{Mean, Metric, PER_SECOND, Row, Span, Table, Tally, Unit};

/// Whether text contains colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    /// Plain text.
    Off,
    /// Text with escape sequences for a terminal.
    On,
}

/// Formats tables as text, one after the other.
#[derive(Debug)]
pub struct Text {
    colours: Colours,
    /// True if the column titles of interval tables have been printed.
    has_printed_titles: bool,
}

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const YELLOW: &str = "\x1b[33m";

/// The width of the column of counts, in characters.
const COUNT: usize = 18;

impl Text {
    /// Returns a formatter that has not printed any table yet.
    pub fn new(colours: Colours) -> Text {
        Text { colours, has_printed_titles: false }
    }

    /// Returns a table as text.
    pub fn table(&mut self, table: &Table<'_>) -> String {
        let widest = table.rows.iter().map(|row| row.event.name.chars().count()).max();
        let width = widest.unwrap_or(0).clamp(24, 60);
        let per_cpu = table.rows.iter().any(|row| row.cpu.is_some());
        let cgroup = table.rows.iter().filter_map(|row| row.cgroup).map(|path| path.chars().count()).max();
        let mut text = String::new();
        let mut begin = String::new();
        match table.span {
            Span::Whole => {
                let runs = if table.runs > 1 { format!(" ({} runs)", table.runs) } else { String::new() };
                text += &format!("\nCounts of {}{runs}:\n\n", table.subject);
            }
            Span::Interval(end) => {
                begin = format!("{:>14.9} ", end.as_secs_f64());
                if !self.has_printed_titles {
                    let cpu = if per_cpu { "CPU    " } else { "" };
                    text += &format!("#{:>13} {cpu}{:>COUNT$} unit event\n", "time", "count");
                    self.has_printed_titles = true;
                }
            }
        }
        for row in &table.rows {
            let cpu = match row.cpu {
                Some(cpu) => format!("{:<7}", format!("CPU{cpu}")),
                None if per_cpu => " ".repeat(7),
                None => String::new(),
            };
            let row = self.row(row, width, cgroup);
            text += format!("{begin}{cpu}{row}").trim_end();
            text.push('\n');
        }
        if table.span == Span::Whole {
            text.push('\n');
            text += &seconds(&table.elapsed, "elapsed");
            if let Some((user, system)) = &table.cpu_time {
                text += &(seconds(user, "user") + &seconds(system, "sys"));
            }
            text.push('\n');
        }
        text
    }

    /// Returns a row. `width` is the width of the event column. `cgroup` is the width of the cgroup column; `None` if
    /// there is no such column.
    fn row(&self, row: &Row<'_>, width: usize, cgroup: Option<usize>) -> String {
        let unit = match row.event.unit() {
            Unit::Nanoseconds => "msec",
            Unit::Times => "",
        };
        let name = &row.event.name;
        let value = match row.tally {
            Tally::NotSupported => self.coloured(DIM, &format!("{:>COUNT$}", "<not supported>")),
            Tally::NotCounted => self.coloured(DIM, &format!("{:>COUNT$}", "<not counted>")),
            Tally::Counted(counted) => {
                let value = match row.event.unit() {
                    Unit::Nanoseconds => milliseconds(counted.value),
                    Unit::Times => grouped(counted.value),
                };
                self.coloured(BOLD, &format!("{value:>COUNT$}"))
            }
        };
        let mut text = format!("{value} {unit:<4} {name:<width$}");
        if let Some(width) = cgroup {
            let _ = write!(text, "  {:<width$}", row.cgroup.unwrap_or_default(), width = width.min(60));
        }
        let Tally::Counted(counted) = row.tally else { return text };
        let metric = row.metric.as_ref().map(metric).unwrap_or_default();
        let _ = write!(text, "  {metric:<36}");
        text += &deviation(counted.deviation);
        if counted.running != counted.enabled {
            let share = 100.0 * counted.running as f64 / counted.enabled.max(1) as f64;
            text += &self.coloured(YELLOW, &format!("  ({share:.2}%)"));
        }
        text
    }

    fn coloured(&self, colour: &str, text: &str) -> String {
        match self.colours {
            Colours::Off => text.to_owned(),
            Colours::On => format!("{colour}{text}\x1b[0m"),
        }
    }
}

fn metric(Metric { value, unit }: &Metric) -> String {
    if unit == PER_SECOND {
        let (scale, prefix) = match value {
            1e9.. => (1e9, "G"),
            1e6.. => (1e6, "M"),
            1e3.. => (1e3, "K"),
            _ => (1.0, ""),
        };
        return format!("# {:>9.3} {prefix}{unit}", value / scale);
    }
    match unit.strip_prefix('%') {
        Some(of) => format!("# {value:>9.2}%{of}"),
        None => format!("# {value:>9.3} {unit}"),
    }
}

fn deviation(share: Option<f64>) -> String {
    share.filter(|&share| share > 0.0).map(|share| format!("  ( +- {:5.2}% )", 100.0 * share)).unwrap_or_default()
}

fn seconds(Mean { value, deviation }: &Mean, what: &str) -> String {
    format!("{value:>COUNT$.9} seconds {what}{}\n", self::deviation(*deviation))
}

/// Returns nanoseconds as milliseconds with two decimals, for example `1,234.57`.
fn milliseconds(nanoseconds: u64) -> String {
    let hundredths = nanoseconds / 10_000 + u64::from(nanoseconds % 10_000 >= 5_000);
    format!("{}.{:02}", grouped(hundredths / 100), hundredths % 100)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use expect_test::{Expect, expect};
    use perf_prof_capture::{Count, Excluded};
    use perf_prof_format::{abi::PERF_TYPE_TRACEPOINT, spec::named_event};
    use perf_prof_session::stat::{Event, RowTally, Run, Subject};
    use perf_prof_system::usage::CpuTime;

    use super::*;
    use crate::stat::json;

    /// The counts of each event: its name, the CPU, and the counts of its descriptors. A count is the value, the
    /// enabled time and the running time.
    type Counts<'a> = &'a [(&'a str, Option<u32>, &'a [(u64, u64, u64)])];

    fn event(name: &str) -> Event {
        let (plain, user) = name.strip_suffix(":u").map_or((name, false), |plain| (plain, true));
        let found = named_event(plain).map(|named| (named.kind, named.config));
        let (kind, config) = found.unwrap_or((PERF_TYPE_TRACEPOINT, 1));
        Event { name: name.to_owned(), kind, config, excluded: Excluded { kernel: user, ..Excluded::default() } }
    }

    fn run(counts: Counts<'_>, seconds: f64, cpu_time: Option<CpuTime>) -> Run {
        let tally = |&(value, enabled, running): &(u64, u64, u64)| Count { value, enabled, running };
        let row = |(at, (_, cpu, counts)): (usize, &(&str, Option<u32>, &[_]))| RowTally {
            event: at,
            cgroup: None,
            cpu: *cpu,
            tally: Tally::sum(counts.iter().map(tally)),
        };
        Run {
            tallies: counts.iter().enumerate().map(row).collect(),
            elapsed: Duration::from_secs_f64(seconds),
            cpu_time,
        }
    }

    fn of<'a>(name: &'a str, events: &'a [Event]) -> Subject<'a> {
        Subject { name, events, cgroups: &[] }
    }

    fn events(counts: Counts<'_>) -> Vec<Event> {
        counts.iter().map(|(name, ..)| event(name)).collect()
    }

    #[track_caller]
    fn check(counts: Counts<'_>, expected: Expect) {
        let cpu_time = CpuTime { user: Duration::from_millis(1200), system: Duration::from_micros(300) };
        let (events, run) = (events(counts), run(counts, 2.0, Some(cpu_time)));
        expected.assert_eq(&Text::new(Colours::Off).table(&Table::from_runs(
            of("./a.out", &events),
            Span::Whole,
            &[run],
        )));
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn counts_of_a_command() {
        let ran = |value| (value, 1000 * MS, 1000 * MS);
        check(
            &[
                ("task-clock", None, &[ran(1_234_565_000)]),
                ("context-switches", None, &[ran(0)]),
                ("page-faults", None, &[ran(12_345)]),
                ("cycles", None, &[ran(3_500_000_000)]),
                ("instructions", None, &[ran(7_000_000_001)]),
                ("branches", None, &[ran(1_000_000_000)]),
                ("branch-misses", None, &[ran(15_000_000)]),
                ("cycles:u", None, &[ran(1_000_000)]),
                ("instructions:u", None, &[ran(500_000)]),
                ("L1-dcache-loads", None, &[ran(1000)]),
                ("L1-dcache-load-misses", None, &[ran(25)]),
                ("stalled-cycles-backend", None, &[]),
                ("sched:sched_process_exec", None, &[ran(1)]),
            ],
            expect![[r#"

                Counts of ./a.out:

                          1,234.57 msec task-clock                #     0.617 CPUs utilized
                                 0      context-switches          #     0.000 /sec
                            12,345      page-faults               #     9.999 K/sec
                     3,500,000,000      cycles                    #     2.835 GHz
                     7,000,000,001      instructions              #     2.000 insn per cycle
                     1,000,000,000      branches                  #   810.002 M/sec
                        15,000,000      branch-misses             #      1.50% of all branches
                         1,000,000      cycles:u                  #     0.001 GHz
                           500,000      instructions:u            #     0.500 insn per cycle
                             1,000      L1-dcache-loads           #   810.002 /sec
                                25      L1-dcache-load-misses     #      2.50% of all L1-dcache-loads
                   <not supported>      stalled-cycles-backend
                                 1      sched:sched_process_exec  #     0.810 /sec

                       2.000000000 seconds elapsed
                       1.200000000 seconds user
                       0.000300000 seconds sys

            "#]],
        );
    }

    #[test]
    fn counters_that_are_shared() {
        check(
            &[
                ("cycles", None, &[(600, 100 * MS, 60 * MS), (30, 100 * MS, 100 * MS)]),
                ("instructions", None, &[(0, 100 * MS, 0)]),
                ("a:system_with_a_long_name_and_an_event_of_a_long_name_as_well", None, &[(1000, 7, 7)]),
            ],
            expect![[r#"

                Counts of ./a.out:

                             1,030      cycles                                                                                              (80.00%)
                     <not counted>      instructions
                             1,000      a:system_with_a_long_name_and_an_event_of_a_long_name_as_well  #   500.000 /sec

                       2.000000000 seconds elapsed
                       1.200000000 seconds user
                       0.000300000 seconds sys

            "#]],
        );
    }

    #[test]
    fn counts_of_cpus() {
        let counts: Counts<'_> = &[
            ("cpu-clock", Some(0), &[(2_000_000_000, 1, 1)]),
            ("cpu-clock", Some(11), &[(1_000_000_000, 1, 1)]),
            ("cs", Some(0), &[(10_000, 1, 1)]),
            ("cs", Some(11), &[(20, 1, 1)]),
            ("cycles", None, &[]),
        ];
        let events = events(counts);
        let run = run(counts, 2.0, None);
        let table = Table::from_runs(of("all CPUs", &events), Span::Whole, std::slice::from_ref(&run));
        expect![[r#"

            Counts of all CPUs:

            CPU0             2,000.00 msec cpu-clock                 #     1.000 CPUs utilized
            CPU11            1,000.00 msec cpu-clock                 #     0.500 CPUs utilized
            CPU0               10,000      cs                        #     5.000 K/sec
            CPU11                  20      cs                        #    20.000 /sec
                      <not supported>      cycles

                   2.000000000 seconds elapsed

        "#]]
        .assert_eq(&Text::new(Colours::Off).table(&table));
        expect![[r#"
            {"subject":"all CPUs","elapsed":2.0,"runs":1,"events":[{"event":"cpu-clock","cpu":0,"status":"counted","value":2000000000,"unit":"ns","enabled":1,"running":1,"metric":1.0,"metric_unit":"CPUs utilized"},{"event":"cpu-clock","cpu":11,"status":"counted","value":1000000000,"unit":"ns","enabled":1,"running":1,"metric":0.5,"metric_unit":"CPUs utilized"},{"event":"cs","cpu":0,"status":"counted","value":10000,"unit":"","enabled":1,"running":1,"metric":5000.0,"metric_unit":"/sec"},{"event":"cs","cpu":11,"status":"counted","value":20,"unit":"","enabled":1,"running":1,"metric":20.0,"metric_unit":"/sec"},{"event":"cycles","status":"not supported","value":null,"unit":"","enabled":0,"running":0}]}
        "#]].assert_eq(&json::line(&table).unwrap());
    }

    #[test]
    fn counts_of_cgroups() {
        let events = ["task-clock", "cycles"].map(event);
        let tally = |value| Tally::sum([Count { value, enabled: 1, running: 1 }].into_iter());
        let row = |event, cgroup, value| RowTally { event, cgroup: Some(cgroup), cpu: None, tally: tally(value) };
        let cgroups = ["/a".to_owned(), "/a/inner".to_owned()];
        let tallies = vec![row(0, 0, 4 * MS), row(1, 0, 8_000_000), row(0, 1, MS), row(1, 1, 1_000_000)];
        let run = Run { tallies, elapsed: Duration::from_secs(2), cpu_time: None };
        let subject = Subject { name: "cgroups a", events: &events, cgroups: &cgroups };
        let table = Table::from_runs(subject, Span::Whole, std::slice::from_ref(&run));
        // A metric is computed from counts of the same cgroup.
        expect![[r#"

            Counts of cgroups a:

                          4.00 msec task-clock                /a        #     0.002 CPUs utilized
                     8,000,000      cycles                    /a        #     2.000 GHz
                          1.00 msec task-clock                /a/inner  #     0.001 CPUs utilized
                     1,000,000      cycles                    /a/inner  #     1.000 GHz

                   2.000000000 seconds elapsed

        "#]]
        .assert_eq(&Text::new(Colours::Off).table(&table));
        assert!(json::line(&table).unwrap().contains(r#"{"event":"cycles","cgroup":"/a/inner","status":"counted""#));
    }

    #[test]
    fn intervals_have_one_head() {
        let (one, other): (Counts<'_>, Counts<'_>) = (&[("cs", None, &[(7, 1, 1)])], &[("cs", None, &[(1234, 1, 1)])]);
        let events = events(one);
        let mut text = Text::new(Colours::Off);
        let mut shown = String::new();
        for (end, counts) in [(1.000_1, one), (2.5, other)] {
            let span = Span::Interval(Duration::from_secs_f64(end));
            let table = Table::from_runs(of("x", &events), span, &[run(counts, 1.0, None)]);
            shown += &text.table(&table);
            shown += &json::line(&table).unwrap();
        }
        expect![[r##"
            #         time              count unit event
               1.000100000                  7      cs                        #     7.000 /sec
            {"subject":"x","time":1.0001,"elapsed":1.0,"runs":1,"events":[{"event":"cs","status":"counted","value":7,"unit":"","enabled":1,"running":1,"metric":7.0,"metric_unit":"/sec"}]}
               2.500000000              1,234      cs                        #     1.234 K/sec
            {"subject":"x","time":2.5,"elapsed":1.0,"runs":1,"events":[{"event":"cs","status":"counted","value":1234,"unit":"","enabled":1,"running":1,"metric":1234.0,"metric_unit":"/sec"}]}
        "##]].assert_eq(&shown);
    }

    #[test]
    fn means_of_runs() {
        let runs = [(90, 1.0), (110, 1.5), (100, 1.25)];
        let ran: Vec<_> = runs.iter().map(|&(value, seconds)| (vec![(value, 5, 5)], seconds)).collect();
        let events = vec![event("page-faults")];
        let run = |(counts, seconds): &(Vec<_>, f64)| run(&[("page-faults", None, counts)], *seconds, None);
        let runs: Vec<Run> = ran.iter().map(run).collect();
        let table = Table::from_runs(of("true", &events), Span::Whole, &runs);
        expect![[r#"

            Counts of true (3 runs):

                           100      page-faults               #    80.000 /sec                      ( +-  5.77% )

                   1.250000000 seconds elapsed  ( +- 11.55% )

        "#]]
        .assert_eq(&Text::new(Colours::Off).table(&table));
        expect![[r#"
            {"subject":"true","elapsed":1.25,"elapsed_deviation":0.11547005383792515,"runs":3,"events":[{"event":"page-faults","status":"counted","value":100,"unit":"","deviation":0.05773502691896258,"enabled":15,"running":15,"metric":80.0,"metric_unit":"/sec"}]}
        "#]].assert_eq(&json::line(&table).unwrap());
    }

    #[test]
    fn colours_are_for_terminals() {
        let counts: Counts<'_> = &[("cycles", None, &[(1, 2, 1)]), ("cs", None, &[])];
        let (events, run) = (events(counts), run(counts, 1.0, None));
        let table = Table::from_runs(of("x", &events), Span::Interval(Duration::from_secs(1)), &[run]);
        let coloured = Text::new(Colours::On).table(&table);
        let plain =
            [BOLD, DIM, YELLOW, "\x1b[0m"].iter().fold(coloured.clone(), |text, colour| text.replace(colour, ""));
        assert_eq!(plain, Text::new(Colours::Off).table(&table));
        assert_eq!(coloured.matches("\x1b[0m").count(), 3, "{coloured:?}");
    }

    #[test]
    fn numbers() {
        let all = [0, 7, 999, 1000, 123_456, 1_234_567, u64::MAX].map(grouped);
        assert_eq!(all, ["0", "7", "999", "1,000", "123,456", "1,234,567", "18,446,744,073,709,551,615"]);
        let all = [0, 4_999, 5_000, 9_999, 995_000, 999_999, 1_234_567_891].map(milliseconds);
        assert_eq!(all, ["0.00", "0.00", "0.01", "0.01", "1.00", "1.00", "1,234.57"]);
        // Rounding does not overflow.
        assert_eq!(milliseconds(u64::MAX), "18,446,744,073,709.55");
    }
}
