//! `--header-only`: prints the feature sections of a recording in the format of `perf report --header-only`. The times of
//! the first and the last sample are those of the records: perf may store other times.

use std::{
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    path::Path,
};

use anyhow::{Context as _, Result};
use chrono::{DateTime, Local};
use perf_prof_format::spec::format_seconds;
use perf_prof_recordings::{AttrFlag, ClockData, ReadLimits, Recording};
use perf_prof_session::recording::{binaries::data_file, open};
use perf_prof_system::{output, shell::shell_quote_all, terminal::ShownOnStdout};

/// Prints the header.
pub fn run(path: &Path, limits: &ReadLimits) -> Result<()> {
    let mut recording = open::open_header(path, limits)?;
    let times = recording.times()?;
    recording.warnings.iter().for_each(|warning| output::say(format_args!("warning: {warning}")));
    let text = header_text(&recording, captured(path), times);
    let mut out = ShownOnStdout::new(io::stdout().lock());
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write the output")
}

/// Returns the time at which the file was last written, in the format of perf.
fn captured(path: &Path) -> Option<String> {
    let file = fs::metadata(data_file(path)).ok().filter(fs::Metadata::is_file)?;
    Some(DateTime::<Local>::from(file.modified().ok()?).format("%a %b %e %T %Y").to_string())
}

fn header_text(recording: &Recording, captured: Option<String>, times: Option<(u64, u64)>) -> String {
    let features = &recording.features;
    let (available, online) = features.cpus.unzip();
    let number = |number: Option<u32>| number.map(|number| number.to_string());
    let duration = |(first, last): (u64, u64)| format!("{:10.3} ms", last.saturating_sub(first) as f64 / 1e6);
    let lines = [
        ("captured on    ", captured),
        ("hostname ", features.hostname.clone()),
        ("os release ", features.os_release.clone()),
        ("perf version ", features.version.clone()),
        ("arch ", features.arch.clone()),
        ("nrcpus online ", number(online)),
        ("nrcpus avail ", number(available)),
        ("cmdline ", Some(shell_quote_all(&features.cmdline)).filter(|words| !words.is_empty())),
        // perf rounds these two times. They are exact here, because users pass them to --time: with rounded times,
        // --time would leave out samples.
        ("time of first sample ", times.map(|(first, _)| format_seconds(first))),
        ("time of last sample ", times.map(|(_, last)| format_seconds(last))),
        ("sample duration ", times.map(duration)),
        ("clockid", Some(clock(recording))),
        ("reference time", features.clock.map(|clock| reference(&clock))),
    ];
    let mut text = "# ========\n".to_owned();
    for (name, value) in lines {
        if let Some(value) = value {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# {name}: {value}");
        }
    }
    text + "# ========\n#\n"
}

/// Returns the name of the recording's clock, by which all records have their times.
pub fn clock(recording: &Recording) -> String {
    let of_events = recording.events.iter().find(|event| event.attr.has(AttrFlag::UseClockid));
    match of_events.map(|event| event.attr.clockid) {
        Some(number) => format!("{} ({number})", clock_name(number)),
        None => format!("none, {}", clock_name(-1)),
    }
}

/// Returns the name of a clock, as `perf record -k` accepts it. perf's default clock has no number and is -1 here.
fn clock_name(number: i32) -> &'static str {
    const NAMES: [(i32, &str); 5] = [
        (libc::CLOCK_REALTIME, "realtime"),
        (libc::CLOCK_MONOTONIC, "monotonic"),
        (libc::CLOCK_MONOTONIC_RAW, "monotonic_raw"),
        (libc::CLOCK_BOOTTIME, "boottime"),
        (libc::CLOCK_TAI, "tai"),
    ];
    NAMES.iter().find(|(known, _)| *known == number).map_or("perf's own", |(_, name)| name)
}

/// Returns a moment in two forms: as time of day, and as time of the recording's clock.
fn reference(clock: &ClockData) -> String {
    let (whole, nanos) = ((clock.wall / 1_000_000_000) as i64, (clock.wall % 1_000_000_000) as u32);
    let day =
        DateTime::from_timestamp(whole, nanos).map(|day| day.with_timezone(&Local).format("%F %T%.6f").to_string());
    let name = clock_name(clock.clockid as i32);
    let (wall, time) = (clock.wall / 1000, format_seconds(clock.time));
    let day = day.map_or_else(String::new, |day| format!("{day} = "));
    format!("{day}{}.{:06} (TOD) = {time} ({name})", wall / 1_000_000, wall % 1_000_000)
}
