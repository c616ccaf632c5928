//! Counts as text for people. Pure.

use std::fmt::Write;

use crate::session::stat::{Mean, Metric, Row, Span, Table, Tally, Unit};

/// Whether there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    /// There are none.
    None,
    /// For a terminal.
    Some,
}

/// Turns tables into text, one after the other.
#[derive(Debug)]
pub struct Text {
    colours: Colours,
    /// Whether the head of intervals stands above already.
    has_head: bool,
}

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const YELLOW: &str = "\x1b[33m";

/// The column of counts.
const COUNT: usize = 18;

impl Text {
    /// Nothing has been shown yet.
    pub fn new(colours: Colours) -> Text {
        Text { colours, has_head: false }
    }

    /// A table.
    pub fn table(&mut self, table: &Table<'_>) -> String {
        let widest = table.rows.iter().map(|row| row.event.name.chars().count()).max();
        let width = widest.unwrap_or(0).clamp(24, 60);
        let per_cpu = table.rows.iter().any(|row| row.cpu.is_some());
        let mut text = String::new();
        let mut begin = String::new();
        match table.span {
            Span::Whole => {
                let runs = if table.runs > 1 { format!(" ({} runs)", table.runs) } else { String::new() };
                text += &format!("\n Counts of {}{runs}:\n\n", table.subject);
            }
            Span::Interval(end) => {
                begin = format!("{:>14.9} ", end.as_secs_f64());
                if !self.has_head {
                    let cpu = if per_cpu { "CPU    " } else { "" };
                    text += &format!("#{:>13} {cpu}{:>COUNT$} unit event\n", "time", "count");
                    self.has_head = true;
                }
            }
        }
        for row in &table.rows {
            let cpu = match row.cpu {
                Some(cpu) => format!("{:<7}", format!("CPU{cpu}")),
                None if per_cpu => " ".repeat(7),
                None => String::new(),
            };
            let row = self.row(row, width);
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

    fn row(&self, row: &Row<'_>, width: usize) -> String {
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
            Colours::None => text.to_owned(),
            Colours::Some => format!("{colour}{text}\x1b[0m"),
        }
    }
}

fn metric(Metric { value, unit }: &Metric) -> String {
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

/// Nanoseconds as milliseconds.
fn milliseconds(nanoseconds: u64) -> String {
    let hundredths = nanoseconds / 10_000 + u64::from(nanoseconds % 10_000 >= 5_000);
    format!("{}.{:02}", grouped(hundredths / 100), hundredths % 100)
}

/// A number in groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
