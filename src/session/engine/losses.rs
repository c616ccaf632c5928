//! Messages about a run, on stderr: lost events, statistics, and perf-prof's own CPU and memory use.

use std::time::{Duration, Instant};

use perf_prof_events::event::{Context, EventType, StackEndings, Stats, Stop};
use perf_prof_format::record::{Batch, LossCounts, Source};
use perf_prof_symbols::symbol::UnnamedFrames;
use perf_prof_system::{compat, output, usage::Usage};

use super::{bursts::Bursts, run_loop::Ending};
use crate::plan::Verbosity;

/// The minimum time between two messages about losses.
const EVERY: Duration = Duration::from_secs(1);

/// Reports lost events, at most once a second.
pub struct LossReport {
    ring_cpus: Vec<Option<u32>>,
    advice: &'static str,
    /// The lost records of each ring, side-band records included.
    records: Vec<u64>,
    /// The lost events of each ring that were reported.
    reported: Vec<u64>,
    has_new_losses: bool,
    last: Option<Instant>,
    bursts: Bursts,
}

impl LossReport {
    /// Creates a report without losses. `advice` is the end of each message: the cause of the losses, and what the user
    /// can do.
    pub fn new(source: &impl Source, advice: &'static str) -> Self {
        let ring_cpus = source.ring_cpus();
        let (records, reported) = (vec![0; ring_cpus.len()], vec![0; ring_cpus.len()]);
        let bursts = Bursts::new(ring_cpus.len(), source.ring_bytes());
        Self { ring_cpus, advice, records, reported, has_new_losses: false, last: None, bursts }
    }

    /// Notes the size of the records of a batch in which losses were found.
    pub fn measure(&mut self, batch: &Batch) {
        self.bursts.measure(batch);
    }

    /// Prints the ring size that would have held the largest burst of losses.
    pub fn say_which_rings_hold_all(&self) {
        if let Some((size, lost)) = self.bursts.ring_that_holds_all().filter(|_| !compat::is_on()) {
            output::say_lost(format_args!("-m {size} would have held the largest burst of lost events ({lost})"));
        }
    }

    /// Adds new losses. `losses` contains the number of newly lost records of each ring. Prints a message if the last
    /// message was at least a second ago. `side_band` returns the total number of lost side-band records of each ring, or
    /// `None` if it is not known. Side-band records are not events, so they are not reported.
    pub fn add(&mut self, losses: &[u64], side_band: impl FnOnce() -> Option<Vec<u64>>, now: Instant) {
        self.records.iter_mut().zip(losses).for_each(|(sum, new)| *sum += new);
        self.bursts.add(losses, now);
        self.has_new_losses |= losses.iter().any(|&count| count != 0);
        let due = self.last.is_none_or(|last| now - last >= EVERY);
        if due && self.has_new_losses {
            (self.last, self.has_new_losses) = (Some(now), false);
            let events = self.take_unreported(&side_band().unwrap_or_default());
            if events.iter().all(|&count| count == 0) {
                return;
            }
            if compat::is_on() {
                say_as_c_implementation(&self.ring_cpus, &events);
            } else {
                let places = describe_losses(&self.ring_cpus, &events);
                output::say_lost(format_args!("lost {places}: {}", self.advice));
            }
        }
    }

    /// Returns how many events of each ring were lost and not yet reported. The kernel counts a lost side-band record
    /// at once, but its PERF_RECORD_LOST may arrive later. Until then, the result is too low. The next call returns the
    /// rest.
    fn take_unreported(&mut self, side_band: &[u64]) -> Vec<u64> {
        let rings = self.records.iter().zip(&mut self.reported).enumerate();
        let unreported = rings.map(|(ring, (records, reported))| {
            let events = records.saturating_sub(side_band.get(ring).copied().unwrap_or(0));
            let unreported = events.saturating_sub(*reported);
            *reported += unreported;
            unreported
        });
        unreported.collect()
    }
}

/// Prints losses on stdout in the form of the C implementation: one line for each CPU.
fn say_as_c_implementation(ring_cpus: &[Option<u32>], counts: &[u64]) {
    let date = chrono::Local::now().format("%Y-%m-%d %H:%M:%S%.6f");
    for (cpu, count) in ring_cpus.iter().zip(counts).filter(|&(_, &count)| count != 0) {
        let place = cpu.map_or(String::new(), |cpu| format!(" on CPU #{cpu}"));
        output::print_line(&format!("{date} python: lost {count} events{place}"));
    }
}

/// Writes a line of the statistics: to stderr, or to stdout as the C implementation does.
fn write_statistics(line: &str) {
    if compat::is_on() { output::print_line(line) } else { output::write_line(line) }
}

/// The maximum number of rings that a message names. The message only counts the other rings.
const NAMED: usize = 8;

/// Returns, for example, `12 events on CPU 0, 5 events on CPU 3`.
fn describe_losses(ring_cpus: &[Option<u32>], counts: &[u64]) -> String {
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

/// Reads the kernel's counts of losses at the end of a run.
pub fn read_at_end(source: &mut impl Source, stats: &Stats, ending: Ending) -> Option<LossCounts> {
    if matches!(ending, Ending::Limit | Ending::Program(Stop::Exit(_))) {
        source.drop_rest();
    }
    let kernel = source.losses();
    stats.set_kernel_counts(kernel.clone());
    if !ending.is_complete() && stats.total_unwritten() != 0 {
        // Events without a sample have no time. Some of them may have happened after the last delivered event.
        stats.note_of_part();
    }
    kernel
}

/// Prints which CPUs went offline since the last call.
pub fn report_offline_cpus(source: &mut impl Source) {
    source.take_offline_cpus().into_iter().for_each(report_offline_cpu);
}

/// Prints that a CPU went offline. Prints it even with `-q`, because no counter counts the events that are missing from
/// then on.
pub fn report_offline_cpu(cpu: u32) {
    output::say(format_args!(
        "CPU {cpu} went offline: its events end here, even if it comes online again; to trace it, start again"
    ));
}

/// Returns which CPUs lost events in the whole run: `: 12 on CPU 0, 5 on CPU 3`. The text is empty if this is not
/// known.
fn lost_by_cpu(ring_cpus: &[Option<u32>], stats: &Stats) -> String {
    let per_ring = stats.per_ring();
    let lossy = ring_cpus.iter().zip(&per_ring).filter(|&(_, &(_, lost))| lost != 0);
    let lossy: Option<Vec<(u32, u64)>> = lossy.map(|(cpu, &(_, lost))| Some(((*cpu)?, lost))).collect();
    let Some(lossy) = lossy.filter(|lossy| !lossy.is_empty()) else { return String::new() };
    // Some recordings contain one number for both the lost samples and the other lost records of a CPU. Such a number is
    // not shown.
    let of_others = lossy.iter().map(|(_, lost)| lost).sum::<u64>() != stats.total_lost();
    let named = lossy.iter().take(NAMED);
    let mut places: Vec<String> = match of_others {
        true => named.map(|(cpu, _)| format!("on CPU {cpu}")).collect(),
        false => named.map(|(cpu, lost)| format!("{lost} on CPU {cpu}")).collect(),
    };
    if let Some(rest @ [_, ..]) = lossy.get(NAMED..) {
        let lost: u64 = rest.iter().map(|(_, lost)| lost).sum();
        let lost = if of_others { String::new() } else { format!("{lost} ") };
        places.push(format!("{lost}on {} more CPUs", rest.len()));
    }
    format!(": {}", places.join(", "))
}

/// Prints how many events were lost or not delivered, if any. `ring_cpus` are the CPUs of the rings.
pub fn print_lost(stats: &Stats, ring_cpus: &[Option<u32>]) {
    let (delivered, lost) = (stats.total_delivered(), stats.total_lost());
    // The C implementation prints each loss, but no sum.
    if lost != 0 && !compat::is_on() {
        let share = 100.0 * lost as f64 / (delivered + lost) as f64;
        let up_to = if stats.total_missed_in_kernel() == 0 && !stats.is_of_part() { "" } else { "up to " };
        output::say_lost(format_args!(
            "lost {up_to}{lost} of {} events ({up_to}{share:.1} %{}), delivered {delivered}",
            delivered + lost,
            lost_by_cpu(ring_cpus, stats)
        ));
        missed_in_kernel(stats).iter().for_each(output::say_lost);
        unwritten(stats.total_unwritten(), lost).iter().for_each(output::say_lost);
    }
    if stats.total_unattributed() != 0 {
        output::say(format_args!(
            "{} events were not delivered: another program counts the same software event, and the kernel gave these \
             events the id of that program's event; select only one software event, so that they can be delivered",
            stats.total_unattributed()
        ));
    }
    if stats.total_throttled() != 0 {
        output::say(format_args!(
            "the kernel throttled sampling (count: {}): each time, samples are missing until the next timer tick, and \
             the kernel does not report them as lost; use a lower -F or a larger -c",
            stats.total_throttled()
        ));
    }
}

/// Returns a line about the lost events that BPF programs did not add up. Rings have no part in them.
fn missed_in_kernel(stats: &Stats) -> Option<String> {
    let missed = match stats.missed_by_tables() {
        0 => return None,
        missed if missed == stats.total_lost() => "all of them".to_owned(),
        missed => format!("{missed} of them"),
    };
    Some(format!(
        "{missed} happened while another BPF program or bpf(2) was at work on their CPU, so that the program that adds them \
         up in the kernel did not run: -m changes nothing, `--in-kernel never` adds up in perf-prof"
    ))
}

/// Returns a line about the lost events that the kernel counted, and did not write into a ring.
pub fn unwritten(unwritten: u64, lost: u64) -> Option<String> {
    let share = match unwritten {
        0 => return None,
        _ if unwritten == lost => "all of them".to_owned(),
        _ => format!("{unwritten} of them"),
    };
    Some(format!(
        "the kernel counted {share}, and wrote no sample, as some virtual machines do in interrupts, above all of idle CPUs: -m changes \
         nothing, `perf-prof doctor` names such CPUs, and a command that keeps them from idling"
    ))
}

/// Prints how many events were left out because of a limit, or came late, if any.
pub fn print_limited_and_late(source: &dyn Source) {
    limited_and_late(source.dropped_by_limit(), source.late(), compat::is_on()).iter().for_each(output::say);
}

fn limited_and_late(by_limit: u64, late: u64, is_compat: bool) -> Vec<String> {
    let mut lines = Vec::new();
    if by_limit != 0 {
        lines.push(format!("{by_limit} events were not delivered because of --sampling-limit"));
    }
    // The C implementation counts late events in its statistics. The test suite of the C implementation takes every line on
    // stderr for an error.
    if late != 0 && !is_compat {
        let one = "event arrived late and was delivered out of order";
        lines.push(output::counted(late, one, "events arrived late and were delivered out of order"));
    }
    lines
}

/// Prints at the end of a run how unwound stacks ended, if many of them are incomplete.
pub fn print_endings(endings: &StackEndings, verbosity: Verbosity) {
    if verbosity >= Verbosity::Normal {
        endings.summary().into_iter().chain(endings.impossible()).for_each(output::say);
    }
}

/// Prints at the end of a run how many tasks were left out because their cgroups are unknown.
pub fn print_unknown_cgroups(context: &Context) {
    let tasks = context.tasks_of_unknown_cgroups();
    if tasks != 0 {
        output::say(format_args!(
            "--cgroups: some events are left out, because the cgroups of their tasks are unknown (number of tasks: {tasks})"
        ));
    }
}

/// Prints why the run ended, if cgroups were selected and all of them were removed.
pub fn print_removed_cgroups(names: &[String]) {
    if !names.is_empty() {
        output::say(format_args!(
            "--cgroups: the run ends, because {} was removed; a cgroup that is made with this name again is another one",
            names.join(", ")
        ));
    }
}

/// Prints at the end of a run how many frames have no names because the recording's binaries were not found.
pub fn print_unnamed_frames(nameless: &UnnamedFrames, verbosity: Verbosity) {
    if verbosity >= Verbosity::Normal
        && let Some(line) = nameless.summary()
    {
        output::say(line);
    }
}

/// Prints statistics, after SIGUSR2. `kept` is the number of events that the script keeps in memory.
pub fn print_statistics(events: &[EventType], stats: &Stats, source: &dyn Source, usage: &mut Usage, kept: usize) {
    write_statistics(&usage.line());
    let rings = source.ring_cpus();
    let mut line = format!("  rings: {}, backlog: {} KiB, events kept: {kept}", rings.len(), source.backlog() / 1024);
    if source.late() != 0 {
        line.push_str(&format!(", late: {}", source.late()));
    }
    write_statistics(&line);
    if stats.own_samples() != 0 {
        write_statistics(&format!("  own events left out: {} (--include-self delivers them)", stats.own_samples()));
    }
    // Longer names are not aligned: a recording may contain names of any length, and formatting panics at large widths.
    const WIDEST: usize = 256;
    let widths = events.iter().map(|event| event.shown_name().len()).filter(|&width| width <= WIDEST);
    let width = widths.max().unwrap_or(0);
    for (event, counts) in events.iter().zip(stats.per_event()) {
        let lost = counts.lost.map_or_else(|| "?".into(), |lost| lost.to_string());
        write_statistics(&format!(
            "  {:<width$} {:>10} delivered, {lost:>8} lost",
            event.shown_name(),
            counts.delivered
        ));
    }
    for (cpu, (delivered, lost)) in
        rings.iter().zip(stats.per_ring()).filter_map(|(cpu, counts)| Some(((*cpu)?, counts)))
    {
        write_statistics(&format!("  CPU {cpu:<4} {delivered:>10} delivered, {lost:>8} lost"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of all messages must not add up to more than the total at the end.
    #[test]
    fn reported_losses_are_events_without_side_band_records() {
        let bursts = Bursts::default();
        let (records, reported, ring_cpus) = (vec![0; 2], vec![0; 2], vec![Some(0), Some(1)]);
        let mut report =
            LossReport { ring_cpus, advice: "", records, reported, has_new_losses: false, last: None, bursts };
        let mut told = |records: [u64; 2], side_band: &[u64]| {
            report.records.iter_mut().zip(records).for_each(|(sum, new)| *sum += new);
            report.take_unreported(side_band)
        };
        assert_eq!(told([10, 4], &[3, 0]), [7, 4]);
        // The kernel has counted 5 lost side-band records, but their PERF_RECORD_LOST comes later.
        assert_eq!(told([2, 0], &[8, 0]), [0, 0]);
        assert_eq!(told([7, 0], &[8, 0]), [4, 0]);
        // The numbers of lost side-band records are not known.
        assert_eq!(told([1, 1], &[]), [9, 1]);
    }

    #[test]
    fn events_that_programs_miss_are_no_matter_of_rings() {
        let stats = Stats::new(2, 1);
        stats.count_lost(0, 5);
        stats.set_missed_in_kernel(1, 7);
        assert_eq!(missed_in_kernel(&stats), None);
        stats.set_in_kernel(1);
        assert!(missed_in_kernel(&stats).unwrap().starts_with("7 of them happened while another BPF program"));
        stats.set_kernel_counts(Some(LossCounts::default()));
        let text = missed_in_kernel(&stats).unwrap();
        assert!(text.starts_with("all of them ") && text.contains("-m changes nothing, `--in-kernel never`"), "{text}");
    }

    #[test]
    fn larger_rings_are_no_advice_for_events_without_samples() {
        assert_eq!(unwritten(0, 5), None);
        assert!(unwritten(3, 5).unwrap().starts_with("the kernel counted 3 of them, and wrote no sample"));
        let all = unwritten(5, 5).unwrap();
        assert!(all.starts_with("the kernel counted all of them") && all.contains("-m changes nothing"), "{all}");
    }

    #[test]
    fn late_events_are_no_message_for_programs_that_expect_the_c_implementation() {
        let lines = |late, is_compat| limited_and_late(0, late, is_compat).join("\n");
        assert_eq!(lines(5, false), "5 events arrived late and were delivered out of order");
        assert_eq!((lines(0, false), lines(5, true)), (String::new(), String::new()));
        assert_eq!(limited_and_late(7, 5, true), ["7 events were not delivered because of --sampling-limit"]);
    }

    #[test]
    fn the_sum_of_losses_names_the_cpus_with_their_numbers_if_these_are_of_the_events() {
        let many: Vec<Option<u32>> = (0..12).map(Some).chain([None]).collect();
        let stats = Stats::new(1, many.len());
        let text = || lost_by_cpu(&many, &stats);
        assert_eq!(text(), "");
        [(2, 5), (7, 12)].into_iter().for_each(|(ring, lost)| stats.count_lost(ring, lost));
        assert_eq!(text(), ": 5 on CPU 2, 12 on CPU 7");
        (0..12).for_each(|ring| stats.count_lost(ring, 1));
        assert!(text().ends_with(", 13 on CPU 7, 4 on 4 more CPUs"), "{}", text());
        // The rings have lost records of other events too.
        stats.set_kernel_counts(Some(LossCounts { per_event: vec![9], ..LossCounts::default() }));
        assert!(text().starts_with(": on CPU 0, on CPU 1, ") && text().ends_with(", on 4 more CPUs"), "{}", text());
        // Nobody knows which CPU lost these 12 events.
        stats.count_lost(12, 1);
        assert_eq!(text(), "");
    }
}
