//! The times in a recording: its start and end, and the relation of its clock to the time of day.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Result, anyhow, bail};
use chrono::{DateTime, Datelike, Days, Local, NaiveDate, NaiveTime, TimeDelta, TimeZone};
use perf_prof_format::spec::{Date, DayTime, TimeRanges};
use perf_prof_recordings::{AttrFlag, ReadLimits, Recording};
use perf_prof_system::{
    clock::{self, Clock, boot},
    output,
    topology::hostname,
};

use super::binaries::data_file;
use crate::{engine::sample_routes::Span, plan::Input};

/// CLOCK_MONOTONIC (include/uapi/linux/time.h).
const MONOTONIC: i32 = 1;

/// Returns the time range that is replayed. It goes from the first to the last time in `times`, and is limited to the
/// times of the samples. If `times` is empty, it is the range of all samples. Returns `None` if the times of the
/// samples are not known yet.
pub fn span(times: &[(u64, u64)], recording: &mut Recording) -> Result<Option<Span>> {
    let Some((first, last)) = recording.times()? else { return Ok(None) };
    let begin = times.iter().map(|&(from, _)| from).min().unwrap_or(0).max(first);
    let end = times.iter().map(|&(_, to)| to).max().unwrap_or(u64::MAX).min(last);
    Ok(Some(Span { start: begin, last: end, intervals_after: begin, end }))
}

/// The number to add to the times of records to get nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RealtimeOffset {
    /// The recording contains the relation of its clock to the time of day.
    Exact(i64),
    /// The number is guessed from the time at which the recording ended.
    Guessed(Guess),
    /// The recording does not say at what time of day it was made.
    Unknown,
    /// The records have to be unpacked to find the time of the last sample
    /// ([`realtime_offset_by_unpacking`]).
    AfterUnpacking,
}

/// A guessed offset: it is assumed that the recorder finished at the time of the last sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guess {
    /// The number to add to the times of records.
    pub offset: i64,
    /// How the time at which the recording ended is known.
    end: RecordingEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordingEnd {
    /// The recorder stored it in the recording, in whole seconds.
    Stored,
    /// The file was last changed at this time. This was after the last sample, so the guess is late by at most this
    /// many ns. The maximum comes from the time at which the file was created, which was before the first sample.
    /// `None` if the file system does not store when a file was created.
    FileChanged(Option<i64>),
}

impl Guess {
    /// Returns a warning that says how exact the guess is, and how to make recordings with exact times.
    pub fn warning(self, recording: &str) -> String {
        let guess = match self.end {
            RecordingEnd::Stored => {
                "from the second in which the recorder finished, with an error of about a second".into()
            }
            RecordingEnd::FileChanged(late) => {
                let late = late.map_or_else(
                    || "late by the time that the recorder took to finish".into(),
                    |ns| format!("late by at most {:.3} s", ns as f64 / 1e9),
                );
                format!("from the time at which the file was last changed, {late}")
            }
        };
        format!(
            "{recording} does not contain the relation of its clock to the time of day: _realtime is a guess {guess}; \
             recordings of `perf record -k CLOCK_MONOTONIC` and of perf-prof have exact times"
        )
    }
}

/// Returns the number to add to the times of records to get nanoseconds since the Unix epoch. The number is exact if
/// the recording contains the relation of its clock to the time of day (`perf record -k`). Otherwise it is a guess: the
/// last sample is assumed to be from the time at which the recorder finished the file. Some recorders store this time.
/// Without a stored time, it is the time at which the file was last modified, but only if the recorder itself wrote
/// this file.
pub fn realtime_offset(recording: &mut Recording, path: &Path) -> Result<RealtimeOffset> {
    if let Some(clock) = recording.features.clock {
        return Ok(RealtimeOffset::Exact((clock.wall as i64).wrapping_sub(clock.time as i64)));
    }
    if path.as_os_str() == "-" {
        return Ok(RealtimeOffset::Unknown);
    }
    Ok(match recording.known_times()? {
        Some(times) => offset_by_end(recording, path, times).map_or(RealtimeOffset::Unknown, RealtimeOffset::Guessed),
        None => RealtimeOffset::AfterUnpacking,
    })
}

/// Like [`realtime_offset`], for a compressed recording whose header does not contain the time of the last sample.
/// Unpacks the records to find this time. Returns `None` if the offset is not known.
pub fn realtime_offset_by_unpacking(path: &Path, limits: &ReadLimits) -> Option<Guess> {
    let mut recording = Recording::open_with(path, limits).ok()?;
    let times = recording.times().ok()??;
    offset_by_end(&recording, path, times)
}

fn offset_by_end(recording: &Recording, path: &Path, (first, last): (u64, u64)) -> Option<Guess> {
    let (features, clock) = (&recording.features, clock(recording));
    let before_end = |end: i64| end.wrapping_sub(last as i64);
    if let Some(seconds) = features.finished {
        let end = (seconds as i64).wrapping_mul(1_000_000_000);
        return Some(Guess { offset: before_end(end), end: RecordingEnd::Stored });
    }
    let file = fs::metadata(data_file(path)).ok()?;
    let was_recorded_here = features.hostname.as_ref().map(|name| *name == hostname());
    let is_original = was_recorded_here != Some(false)
        && was_written_by_recorder(&file, (first, last), clock).unwrap_or(was_recorded_here == Some(true));
    if !is_original {
        return None;
    }
    let offset = before_end(file.mtime() * 1_000_000_000 + file.mtime_nsec());
    let created = file.created().ok().and_then(|created| created.duration_since(UNIX_EPOCH).ok());
    let earliest = created.map(|created| (created.as_nanos() as i64).wrapping_sub(first as i64));
    let late = earliest.map(|earliest| offset.wrapping_sub(earliest).max(0));
    Some(Guess { offset, end: RecordingEnd::FileChanged(late) })
}

/// Returns the clock of the times in a recording, if this machine may have the same clock.
fn clock(recording: &Recording) -> Option<Clock> {
    let attr = &recording.events.first()?.attr;
    match (attr.has(AttrFlag::UseClockid), attr.clockid) {
        (false, _) => Some(Clock::Perf),
        (true, MONOTONIC) => Some(Clock::Monotonic),
        (true, _) => None,
    }
}

/// Returns whether the recorder itself wrote a file. Such a file was created before the first sample and last modified
/// after the last sample. For a copy of the file, these two times are usually closer together than the first and the
/// last sample, or in reverse order. But copying a recording of a few milliseconds may take longer than recording it.
/// So the two times are also compared with the times of the samples, if `clock` still runs on this machine. Returns
/// `None` if the file system does not store the time at which the file was created.
fn was_written_by_recorder(file: &fs::Metadata, (first, last): (u64, u64), clock: Option<Clock>) -> Option<bool> {
    let (Ok(created), Ok(changed)) = (file.created(), file.modified()) else { return None };
    let written = changed.duration_since(created).unwrap_or_default();
    let is_long_enough = last.checked_sub(first).is_some_and(|span| written.as_nanos() >= u128::from(span));
    Some(is_long_enough && clock.and_then(|clock| holds_samples(created, changed, (first, last), clock)) != Some(false))
}

/// Returns whether a file was created before the first sample and modified after the last sample, by the running clock.
/// Returns `None` if this clock cannot tell: the file was created before the machine started, the machine was
/// suspended, or the user may not read the clock.
fn holds_samples(created: SystemTime, changed: SystemTime, (first, last): (u64, u64), clock: Clock) -> Option<bool> {
    const SECOND: i64 = 1_000_000_000;
    let since_epoch = |time: SystemTime| time.duration_since(UNIX_EPOCH).ok().map(|time| time.as_nanos() as i64);
    let (created, changed) = (since_epoch(created)?, since_epoch(changed)?);
    let boot = boot();
    if boot.suspended > SECOND || created < boot.began {
        return None;
    }
    let offset = clock::realtime_offset(clock).ok()?;
    let [first, last] = [first, last].map(|time| (time as i64).wrapping_add(offset));
    // The clock of the samples and the time of day drift apart, by at most 500 ppm (adjtimex(2)).
    let drift = clock::realtime().saturating_sub(created.min(first)).max(0) / 2000 + SECOND;
    Some(created <= first.saturating_add(drift) && changed >= last.saturating_sub(drift))
}

/// Returns a time, in ns since the Unix epoch, at or before which the recording was started. Returns `None` if another
/// machine made the recording, or if the time is not known.
///
/// For a recording without clock data, this is the time at which its file was created, but only if the recorder itself
/// wrote this file.
pub fn start_time(recording: &mut Recording, path: &Path) -> Result<Option<i64>> {
    if recording.features.hostname != Some(hostname()) {
        return Ok(None);
    }
    let times = recording.known_times()?;
    if let Some(clock) = recording.features.clock {
        // perf reads both clocks before the first sample. Other recorders may read the clocks after the first sample.
        let first = times.map_or(clock.time, |(first, _)| first.min(clock.time));
        return Ok(Some((clock.wall as i64).wrapping_sub(clock.time.wrapping_sub(first) as i64)));
    }
    let (Some(times), Ok(file)) = (times, fs::metadata(data_file(path))) else { return Ok(None) };
    let Ok(created) = file.created() else { return Ok(None) };
    let since = created.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(was_written_by_recorder(&file, times, clock(recording)).unwrap_or(false).then_some(since.as_nanos() as i64))
}

/// Returns the selected time ranges, in the recording's clock. The result is empty if no range was selected.
pub fn times(input: &Input, recording: &mut Recording) -> Result<Vec<(u64, u64)>> {
    let Some(times) = &input.times else { return Ok(Vec::new()) };
    let in_clock = if times.has_times_of_day() { Some(times_of_day(times, input, recording)?) } else { None };
    let times = in_clock.as_ref().unwrap_or(times);
    if !times.has_shares() {
        return Ok(times.resolve(0, u64::MAX));
    }
    match recording.times()? {
        Some((first, last)) => Ok(times.resolve(first, last)),
        None => {
            bail!("--time: {} does not say when it starts and ends; use seconds instead of percentages", recording.name)
        }
    }
}

/// Returns time ranges in the recording's clock for ranges in times of day. Fails if the recording does not say at what
/// time of day it was made.
fn times_of_day(times: &TimeRanges, input: &Input, recording: &mut Recording) -> Result<TimeRanges> {
    let name = recording.name.clone();
    let guess = match realtime_offset(recording, &input.path)? {
        RealtimeOffset::Exact(offset) => Ok(offset),
        RealtimeOffset::Guessed(guess) => Err(Some(guess)),
        RealtimeOffset::AfterUnpacking => Err(realtime_offset_by_unpacking(&input.path, &input.limits)),
        RealtimeOffset::Unknown => Err(None),
    };
    let (Ok(offset), Some((first, last))) = (guess.or_else(|guess| told(guess, &name)), recording.times()?) else {
        bail!(
            "--time {times}: {name} does not say at what time of day it was recorded; use seconds of its clock or \
             percentages. Recordings of `perf record -k CLOCK_MONOTONIC` and of perf-prof have the time of day"
        );
    };
    let [first, last] = [first, last].map(|time| (time as i64).wrapping_add(offset));
    times.without_times_of_day(|time, after| {
        let after = after.map(|after| (after as i64).saturating_add(offset));
        let realtime =
            realtime_of(time, after, (first, last), &Local).map_err(|error| anyhow!("--time {times}: {error}"))?;
        Ok(realtime.saturating_sub(offset).max(0) as u64)
    })
}

/// Returns times of the recording's clock as local times of day with their dates. `None` if the time of day is not known.
pub fn days(times: [u64; 2], input: &Input, recording: &mut Recording) -> Option<[DayTime; 2]> {
    let offset = match realtime_offset(recording, &input.path).ok()? {
        RealtimeOffset::Exact(offset) => offset,
        RealtimeOffset::Guessed(guess) => guess.offset,
        RealtimeOffset::AfterUnpacking => realtime_offset_by_unpacking(&input.path, &input.limits)?.offset,
        RealtimeOffset::Unknown => return None,
    };
    Some(times.map(|time| {
        let local =
            DateTime::from_timestamp_nanos((time as i64).wrapping_add(offset)).with_timezone(&Local).naive_local();
        let since_midnight = local.signed_duration_since(local.date().and_time(NaiveTime::MIN));
        let since_midnight = since_midnight.num_nanoseconds().unwrap_or(0) as u64;
        DayTime { date: Some(date_of(local.date())), since_midnight }
    }))
}

fn date_of(day: NaiveDate) -> Date {
    Date { year: day.year() as u16, month: day.month() as u8, day: day.day() as u8 }
}

/// The reason why a time of day is not one time.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum DayTimeError {
    #[error("{0} does not exist in the local time zone")]
    Missing(DayTime),
    /// With the first of these times.
    #[error("{0} is in this recording on several days; write the date: {1}")]
    Ambiguous(DayTime, DayTime),
}

/// Prints how exact a guessed offset is, and returns it.
fn told(guess: Option<Guess>, recording: &str) -> Result<i64, ()> {
    let guess = guess.ok_or(())?;
    output::say(format_args!("warning: {}", guess.warning(recording)));
    Ok(guess.offset)
}

/// Returns a time of day in ns since the Unix epoch. Without a date, it is on the day on which it lies in the recording,
/// which goes from `first` to `last`, or next to it: recordings may go on over midnight. The end of a range is the first such
/// time that is not before `after`, the range's begin. Fails if the time lies in the recording on several days, or if there is
/// no such day, or if clocks are set forward over this time.
fn realtime_of(
    time: DayTime,
    after: Option<i64>,
    (first, last): (i64, i64),
    zone: &impl TimeZone,
) -> Result<i64, DayTimeError> {
    let on = |day: NaiveDate| {
        let local = day.and_hms_opt(0, 0, 0)?.checked_add_signed(TimeDelta::nanoseconds(time.since_midnight as i64))?;
        zone.from_local_datetime(&local).earliest()?.timestamp_nanos_opt()
    };
    if let Some(Date { year, month, day }) = time.date {
        let day = NaiveDate::from_ymd_opt(year.into(), month.into(), day.into());
        return day.and_then(on).ok_or(DayTimeError::Missing(time));
    }
    let day_of = |realtime: i64| DateTime::from_timestamp_nanos(realtime).with_timezone(zone).date_naive();
    let around = |day: NaiveDate| {
        let beside = [day.checked_sub_days(Days::new(1)), Some(day), day.checked_add_days(Days::new(1))];
        beside.into_iter().flatten()
    };
    let begin = after.unwrap_or(first).clamp(first, last);
    let days: BTreeSet<_> = [first, begin, last].into_iter().flat_map(|time| around(day_of(time))).collect();
    let times: Vec<_> = days.into_iter().filter_map(on).collect();
    let mut inside = times.iter().filter(|&&time| begin <= time && time <= last);
    match (inside.next(), inside.next()) {
        (Some(&one), Some(_)) if after.is_none() => {
            let day = day_of(one);
            Err(DayTimeError::Ambiguous(time, DayTime { date: Some(date_of(day)), ..time }))
        }
        (Some(&one), _) => Ok(one),
        (None, _) => {
            let distance = |realtime: &i64| first.saturating_sub(*realtime).max(realtime.saturating_sub(last)).max(0);
            times.into_iter().min_by_key(distance).ok_or(DayTimeError::Missing(time))
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::FixedOffset;

    use super::*;

    #[test]
    fn a_time_without_a_date_is_on_the_day_on_which_it_is_in_the_recording() {
        let zone = FixedOffset::east_opt(9 * 3600).unwrap();
        let at = |text: &str| DateTime::parse_from_rfc3339(text).unwrap().timestamp_nanos_opt().unwrap();
        let times = (at("2026-11-27T23:50:13.5+09:00"), at("2026-11-28T00:05:00+09:00"));
        for (typed, expected) in [
            ("23:55", "2026-11-27T23:55:00+09:00"),
            ("00:01:00.25", "2026-11-28T00:01:00.25+09:00"),
            // These are outside of the recording, close to its start and its end.
            ("23:50:13", "2026-11-27T23:50:13+09:00"),
            ("00:10", "2026-11-28T00:10:00+09:00"),
            ("2026-11-27 00:01", "2026-11-27T00:01:00+09:00"),
        ] {
            assert_eq!(realtime_of(DayTime::parse(typed).unwrap(), None, times, &zone), Ok(at(expected)), "{typed}");
        }
        let no_day = DayTime::parse("2026-02-30 00:01").unwrap();
        assert_eq!(realtime_of(no_day, None, times, &zone), Err(DayTimeError::Missing(no_day)));
    }

    #[test]
    fn a_time_that_is_in_the_recording_on_several_days_needs_a_date_unless_it_ends_a_range() {
        let zone = FixedOffset::east_opt(9 * 3600).unwrap();
        let at = |text: &str| DateTime::parse_from_rfc3339(text).unwrap().timestamp_nanos_opt().unwrap();
        let times = (at("2026-11-27T12:00:00+09:00"), at("2026-12-01T11:00:00+09:00"));
        let found = |typed: &str, after: Option<&str>| {
            realtime_of(DayTime::parse(typed).unwrap(), after.map(at), times, &zone).map_err(|error| error.to_string())
        };
        let refused = "03:12:00 is in this recording on several days; write the date: 2026-11-28T03:12:00";
        assert_eq!(found("03:12", None), Err(refused.to_owned()));
        assert_eq!(found("2026-11-29T03:12", None), Ok(at("2026-11-29T03:12:00+09:00")));
        for (after, expected) in [
            ("2026-11-29T03:12:00+09:00", "2026-11-29T03:14:00+09:00"),
            ("2026-11-29T23:00:00+09:00", "2026-11-30T03:14:00+09:00"),
            ("2026-11-01T00:00:00+09:00", "2026-11-28T03:14:00+09:00"),
        ] {
            assert_eq!(found("03:14", Some(after)), Ok(at(expected)), "{after}");
        }
    }
}
