//! The report as a flame graph, of one recording or of the difference of two.

use std::{
    ffi::OsStr,
    fs::File,
    io::{BufWriter, Write},
    path::PathBuf,
};

use anyhow::{Context as _, Result};
use chrono::{DateTime, Local};
use perf_prof_events::picture::{FlameGraphStyle, StackDifference, Stacks, draw, draw_difference};
use perf_prof_recordings::Recording;

use super::{Added, Before, Missing};

/// A flame graph of the samples of a recording.
#[derive(Clone, Debug)]
pub struct FlamePlan {
    /// The path of the file. If it ends in `.folded`, the file contains folded stacks as text. Otherwise it is an SVG
    /// picture.
    pub path: PathBuf,
}

/// What the title and the subtitle of a flame graph say about its recording.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorded {
    hostname: Option<String>,
    /// The local date and time of the first sample.
    began: Option<String>,
    /// The time from the first to the last sample, in ns.
    duration: Option<u64>,
}

impl Recorded {
    pub(super) fn of(recording: &Recording) -> Recorded {
        let features = &recording.features;
        let began = features.clock.zip(features.sample_time).map(|(clock, (first, _))| {
            let wall = clock.wall.wrapping_add(first).wrapping_sub(clock.time);
            DateTime::from_timestamp_nanos(wall as i64).with_timezone(&Local).format("%F %T").to_string()
        });
        let duration = features.sample_time.map(|(first, last)| last.saturating_sub(first));
        Recorded { hostname: features.hostname.clone(), began, duration }
    }
}

/// Returns the unit of the events' weights, and the number by which weights are divided.
fn unit(events: &[String]) -> (String, u64) {
    let [event] = events else { return ("periods".to_owned(), 1) };
    match event.split(':').next().unwrap_or_default() {
        "cpu-clock" | "task-clock" => ("us".to_owned(), 1000),
        // A tracepoint, for which the graph shows numbers of events.
        name if event.len() > name.len() && event[name.len() + 1..].contains('_') => ("events".to_owned(), 1),
        name => (name.to_owned(), 1),
    }
}

/// Returns a number in groups of three digits, for example `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned());
    groups.collect::<Vec<_>>().join(",")
}

impl FlamePlan {
    /// Writes the file.
    pub(super) fn write(&self, after: &Added, before: Option<(&Before, &Added)>) -> Result<()> {
        let Some(stacks) = &after.sums.stacks else { return Ok(()) };
        self.try_write(after, stacks, before)
            .with_context(|| format!("cannot write the flame graph {}", self.path.display()))
    }

    fn try_write(&self, after: &Added, stacks: &Stacks, before: Option<(&Before, &Added)>) -> Result<()> {
        let is_text = self.path.extension().and_then(OsStr::to_str) == Some("folded");
        let (count_name, divisor) = unit(&after.names);
        let style = |subtitle| FlameGraphStyle {
            title: Some(title(after)),
            count_name: count_name.clone(),
            divisor,
            subtitle: Some(subtitle),
            ..FlameGraphStyle::default()
        };
        let mut to = BufWriter::new(File::create(&self.path)?);
        match before {
            None if is_text => stacks.lines().iter().try_for_each(|line| writeln!(to, "{line}"))?,
            None => draw(stacks, &style(subtitle(after, stacks.total(), (&count_name, divisor))), &mut to)?,
            Some((before, added)) => {
                let Some(stacks_before) = &added.sums.stacks else { return Ok(()) };
                let difference = StackDifference::new(stacks_before, stacks);
                if is_text {
                    difference.lines().try_for_each(|line| writeln!(to, "{line}"))?;
                } else {
                    let lost = partial(added.missing.and(after.missing));
                    let subtitle = format!("red has a larger share than in {}, blue a smaller one{lost}", before.name);
                    draw_difference(&difference, &style(subtitle), &mut to)?;
                }
            }
        }
        Ok(to.flush()?)
    }
}

/// Returns the title: the names of the events, the host and the date.
fn title(Added { names, recorded, .. }: &Added) -> String {
    let host = recorded.hostname.iter().map(|host| format!(" on {host}"));
    let began = recorded.began.iter().map(|began| format!(", {began}"));
    [names.join(", ")].into_iter().chain(host).chain(began).collect()
}

/// Returns the subtitle: the total, the duration of the recording, and whether events are missing.
fn subtitle(Added { recorded, missing, .. }: &Added, total: u64, (unit, divisor): (&str, u64)) -> String {
    let total = match divisor {
        1 => format!("{} {unit}", grouped(total)),
        _ => format!("{:.3} ms of CPU time", total as f64 / 1e6),
    };
    let within = recorded.duration.map(|ns| format!(" in {:.3} s", ns as f64 / 1e9));
    [Some(total), within, Some(partial(*missing))].into_iter().flatten().collect()
}

/// Returns the end of the subtitle, which says why events are missing. Empty if none are missing.
fn partial(missing: Missing) -> String {
    let reasons = missing.reasons();
    if reasons.is_empty() { String::new() } else { format!("; partial: {}", reasons.join(", ")) }
}
