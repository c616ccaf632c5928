//! The options of the flight recorder of `perf-prof record` (samples stay in rings until a trigger), and its plan.

use std::{str::FromStr, time::Duration};

use clap::{ArgAction, Args, value_parser};
use perf_prof_format::spec::{EventSpec, Threads, parse_events, parse_size};
use perf_prof_session::{
    flight::{FlightPlan, Into, Rhythm},
    plan::{DeliveryOrder, Draft, Face, OwnThreads, Selection, Switch, Verbosity},
    recorder::RecordPlan,
    selectors::with_system_calls,
};

use super::{option_error::OptionError, values};

/// The default of `--min-gap`: the time after a dump in which an event of `--trigger` causes no further dump.
const MIN_GAP: Duration = Duration::from_secs(1);

/// What happened before something went wrong: the samples stay in rings until a trigger writes them.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Flight recorder")]
pub struct FlightOptions {
    /// Keep the samples of the last TIME in rings, for example `10s`, and write them when something triggers: an event of
    /// --trigger, SIGUSR2, `snapshot` of --control, or without --trigger the end of the recording. Each dump is a recording
    /// in the folder of -o
    #[arg(long, value_name = "TIME", value_parser = values::parse_duration)]
    before: Option<Duration>,
    /// Also write the samples of this time after a trigger
    #[arg(long, value_name = "TIME", value_parser = values::parse_duration_or_zero)]
    after: Option<Duration>,
    /// Write a dump at each of these events, for example 'syscall/name=fsync,min=200ms/' or oom:mark_victim. Write events as
    /// for -e
    #[arg(long, value_name = "EVENT,...", action = ArgAction::Append)]
    trigger: Vec<String>,
    /// After a dump, make no other one at an event of --trigger for TIME [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = values::parse_duration_or_zero)]
    min_gap: Option<Duration>,
    /// Keep only the newest N dumps in the folder
    #[arg(long, visible_alias = "switch-max-files", value_name = "N", value_parser = value_parser!(u32).range(1..))]
    max_files: Option<u32>,
    /// As in perf: rings overwrite their oldest samples, and are written at the end
    #[arg(long)]
    overwrite: bool,
    /// As in perf, with --overwrite: write a dump at SIGUSR2 (`signal`, the default), in each TIME such as `10s`, or after
    /// each SIZE of samples such as `100M`
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "signal")]
    switch_output: Option<SwitchOutput>,
    /// As in perf: like --trigger
    #[arg(long, value_name = "EVENT,...", action = ArgAction::Append)]
    switch_output_event: Vec<String>,
    /// As in perf: a dump has the tasks and mappings of its own time, which is always so with --overwrite
    #[arg(long)]
    tail_synthesize: bool,
}

/// When `--switch-output` writes a file, as in perf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SwitchOutput {
    Signal,
    InRhythm(Rhythm),
}

impl FromStr for SwitchOutput {
    type Err = String;

    fn from_str(text: &str) -> Result<SwitchOutput, String> {
        let is_size = text.ends_with(['B', 'K', 'M', 'G']);
        match text {
            "signal" => Ok(SwitchOutput::Signal),
            _ if is_size => {
                let size = parse_size(text.trim_end_matches('B')).map_err(|error| error.to_string())?;
                Ok(SwitchOutput::InRhythm(Rhythm::Bytes(size as u64)))
            }
            _ => match values::parse_duration(text) {
                Ok(time) if !time.is_zero() => Ok(SwitchOutput::InRhythm(Rhythm::Every(time))),
                _ => Err(format!("`{text}` is neither `signal`, nor a time such as 10s, nor a size such as 100M")),
            },
        }
    }
}

/// Why options of the flight recorder are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlightError {
    /// This option of the flight recorder is given, but neither --before nor --overwrite.
    #[error("{0} is an option of the flight recorder; add --before TIME, for example --before 10s")]
    NothingKept(&'static str),
    /// --switch-output without --overwrite.
    #[error(
        "--switch-output needs --overwrite: perf-prof writes an ordinary recording into one file only; with --overwrite, \
         each dump contains the newest samples"
    )]
    NotOverwritten,
    /// --switch-events together with --before.
    #[error(
        "--switch-events and --before cannot be combined: the record of each switch would wake perf-prof; use \
         -e sched:sched_switch, whose samples stay in the rings"
    )]
    SwitchEvents,
    /// --threads with a layout, together with --before.
    #[error(
        "--threads={0} and --before cannot be combined: a dump always consists of one file for each CPU; write --threads \
         without a value"
    )]
    ThreadLayout(Threads),
    /// --buffer-flush together with --before.
    #[error("--buffer-flush and --before cannot be combined: with --before, samples are written only at a trigger")]
    BufferFlush,
    /// An event of --trigger is wrong.
    #[error("--trigger {0}")]
    Trigger(String),
}

impl FlightOptions {
    /// Returns the plan of a flight recorder, or the plan of an ordinary recording if no option requests a flight
    /// recorder. `selection` contains the tasks and CPUs of the recording, but no command.
    pub fn plan(self, record: RecordPlan, selection: Selection) -> Result<Planned, OptionError> {
        let is_kept = self.before.is_some() || self.overwrite || !self.switch_output_event.is_empty();
        if !is_kept {
            self.refuse_without_rings()?;
            return Ok(Planned::Recording(Box::new(record)));
        }
        if record.capture.switches == Switch::On {
            return Err(FlightError::SwitchEvents.into());
        }
        if let Some(threads) = record.threads.as_ref().filter(|threads| !matches!(threads, Threads::Cpu)) {
            return Err(FlightError::ThreadLayout(threads.clone()).into());
        }
        if record.flush_bytes.is_some() {
            return Err(FlightError::BufferFlush.into());
        }
        let lists = self.trigger.iter().chain(&self.switch_output_event);
        let events = lists.map(|list| events(list)).collect::<Result<Vec<_>, _>>()?.concat();
        let is_divided = self.before.is_some() || self.switch_output.is_some() || !events.is_empty();
        Ok(Planned::Flight(Box::new(FlightPlan {
            triggers: (!events.is_empty()).then(|| Draft {
                events,
                selection,
                clock: record.capture.clock,
                order: DeliveryOrder::Time,
                own_threads: OwnThreads::LeftOut,
                face: Face::Command,
                verbosity: Verbosity::Quiet,
                ..Draft::default()
            }),
            before: self.before,
            after: self.after.unwrap_or_default(),
            min_gap: self.min_gap.unwrap_or(MIN_GAP),
            max_files: self.max_files.map(|count| count as usize),
            rhythm: match self.switch_output {
                Some(SwitchOutput::InRhythm(rhythm)) => Some(rhythm),
                Some(SwitchOutput::Signal) | None => None,
            },
            dumps_at_end: self.before.is_none() || self.trigger.is_empty(),
            into: if is_divided { Into::Folder } else { Into::File },
            record,
        })))
    }

    /// Fails if an option is given that needs samples in rings. Called if no option makes samples stay in rings.
    fn refuse_without_rings(&self) -> Result<(), FlightError> {
        if self.switch_output.is_some() {
            return Err(FlightError::NotOverwritten);
        }
        let given = [
            ("--after", self.after.is_some()),
            ("--trigger", !self.trigger.is_empty()),
            ("--min-gap", self.min_gap.is_some()),
            ("--max-files", self.max_files.is_some()),
            ("--tail-synthesize", self.tail_synthesize),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => Err(FlightError::NothingKept(option)),
            None => Ok(()),
        }
    }
}

/// The plan that `record` carries out.
pub enum Planned {
    /// An ordinary recording.
    Recording(Box<RecordPlan>),
    /// A flight recorder.
    Flight(Box<FlightPlan>),
}

fn events(list: &str) -> Result<Vec<EventSpec>, FlightError> {
    let parsed = parse_events(list).map_err(|error| FlightError::Trigger(error.to_string()))?;
    with_system_calls(parsed).map_err(|error| FlightError::Trigger(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perfs_values_of_switch_output() {
        let parse = |text: &str| text.parse::<SwitchOutput>().ok();
        assert_eq!(parse("signal"), Some(SwitchOutput::Signal));
        assert_eq!(parse("10s"), Some(SwitchOutput::InRhythm(Rhythm::Every(Duration::from_secs(10)))));
        assert_eq!(parse("2m"), Some(SwitchOutput::InRhythm(Rhythm::Every(Duration::from_secs(120)))));
        assert_eq!(parse("100M"), Some(SwitchOutput::InRhythm(Rhythm::Bytes(100 << 20))));
        assert_eq!(parse("512B"), Some(SwitchOutput::InRhythm(Rhythm::Bytes(512))));
        assert_eq!(parse("10"), None);
        assert_eq!(parse("x"), None);
    }
}
