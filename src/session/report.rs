//! What the program itself says while it runs: losses, statistics, its own cost.

use std::time::{Duration, Instant};

use super::plan::Verbosity;
use crate::{
    event::{Endings, EventType, Stats},
    record::Source,
    symbol::Nameless,
    sys::{output, usage::Usage},
};

/// How often at most a line about losses is printed.
const EVERY: Duration = Duration::from_secs(1);

/// Says that events are lost, at most once a second.
pub struct LossReport {
    ring_cpus: Vec<Option<u32>>,
    advice: &'static str,
    unsaid: Vec<u64>,
    last: Option<Instant>,
}

impl LossReport {
    /// Nothing lost yet; `advice` is what follows a loss in the line.
    pub fn new(ring_cpus: Vec<Option<u32>>, advice: &'static str) -> Self {
        let unsaid = vec![0; ring_cpus.len()];
        Self { ring_cpus, advice, unsaid, last: None }
    }

    /// Takes new losses per ring and says so when it is time.
    pub fn add(&mut self, losses: &[u64], now: Instant) {
        self.unsaid.iter_mut().zip(losses).for_each(|(sum, new)| *sum += new);
        let due = self.last.is_none_or(|last| now - last >= EVERY);
        if due && self.unsaid.iter().any(|&count| count != 0) {
            self.last = Some(now);
            let places = places(&self.ring_cpus, &self.unsaid);
            output::say(format_args!("lost {places}: {}", self.advice));
            self.unsaid.fill(0);
        }
    }
}

/// `12 events on CPU 0, 5 events on CPU 3`.
fn places(ring_cpus: &[Option<u32>], counts: &[u64]) -> String {
    const NAMED: usize = 8;
    let lossy: Vec<_> = ring_cpus.iter().zip(counts).filter(|&(_, &count)| count != 0).collect();
    let mut places: Vec<String> = lossy
        .iter()
        .take(NAMED)
        .map(|(cpu, count)| match cpu {
            Some(cpu) => format!("{count} events on CPU {cpu}"),
            None => format!("{count} events of a thread"),
        })
        .collect();
    if lossy.len() > NAMED {
        let rest: u64 = lossy[NAMED..].iter().map(|&(_, count)| count).sum();
        places.push(format!("{rest} events on {} more CPUs", lossy.len() - NAMED));
    }
    places.join(", ")
}

/// The line at the end, when something was lost or came late.
pub fn print_totals(stats: &Stats, source: &dyn Source) {
    print_lost(stats);
    print_left_out(source);
}

/// How much was lost, if anything was.
pub fn print_lost(stats: &Stats) {
    let (delivered, lost) = (stats.total_delivered(), stats.total_lost());
    if lost != 0 {
        let share = 100.0 * lost as f64 / (delivered + lost) as f64;
        output::say(format_args!("lost {lost} of {} events ({share:.1} %), delivered {delivered}", delivered + lost));
    }
    if stats.total_unattributed() != 0 {
        output::say(format_args!(
            "{} events were not delivered: another program counts the same software event, and the kernel gave them the number of \
             its event; with one software event a run they can be told apart",
            stats.total_unattributed()
        ));
    }
    if stats.total_throttled() != 0 {
        output::say(format_args!(
            "the kernel throttled sampling {} times: between then and the next tick nothing was sampled, and nothing was counted as \
             lost; sample less often (-F, -c)",
            stats.total_throttled()
        ));
    }
}

fn print_left_out(source: &dyn Source) {
    if source.limited() != 0 {
        output::say(format_args!("{} events were left out by --sampling-limit", source.limited()));
    }
    let late = source.late();
    if late != 0 {
        output::say(format_args!("{late} events came too late to be delivered in order"));
    }
}

/// The line at the end, when many of the stacks that were unwound are not whole.
pub fn print_endings(endings: &Endings, verbosity: Verbosity) {
    if verbosity >= Verbosity::Normal
        && let Some(line) = endings.line()
    {
        output::say(line);
    }
}

/// The line at the end, when frames have no names for want of a recording's binaries.
pub fn print_nameless(nameless: &Nameless, verbosity: Verbosity) {
    if verbosity >= Verbosity::Normal
        && let Some(line) = nameless.line()
    {
        output::say(line);
    }
}

/// The statistics that SIGUSR2 asks for.
pub fn print_statistics(events: &[EventType], stats: &Stats, source: &dyn Source, usage: &mut Usage, kept: usize) {
    output::write_line(&usage.line());
    let rings = source.ring_cpus();
    let mut line = format!("  rings: {}, backlog: {} KiB, events kept: {kept}", rings.len(), source.backlog() / 1024);
    if source.late() != 0 {
        line.push_str(&format!(", late: {}", source.late()));
    }
    output::write_line(&line);
    let width = events.iter().map(|event| event.shown_name().len()).max().unwrap_or(0);
    for (event, counts) in events.iter().zip(stats.per_event()) {
        let lost = counts.lost.map_or_else(|| "?".into(), |lost| lost.to_string());
        output::write_line(&format!(
            "  {:<width$} delivered {:>10} lost {lost:>8}",
            event.shown_name(),
            counts.delivered
        ));
    }
    for (cpu, (delivered, lost)) in
        rings.iter().zip(stats.per_ring()).filter_map(|(cpu, counts)| Some(((*cpu)?, counts)))
    {
        output::write_line(&format!("  CPU {cpu:<4} delivered {delivered:>10} lost {lost:>8}"));
    }
}
