//! Plans jobs that each read a part of a recording. The plan depends on a command, and on the times and CPUs of the
//! recording. This module opens no files.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use perf_prof_format::spec::CpuSet;

use super::{
    Divide, Divided, Job, MissingValue, OptionName, RangeError, RangeLength, ReadingCommand, TimeRange, Tool, divide,
};

/// The times and CPUs of a recording, by which it is divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingExtent {
    /// The time range from the first sample to the last one.
    pub times: TimeRange,
    /// The CPUs that were available when the recording was written.
    pub cpus: CpuSet,
}

/// By what a recording is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Splits {
    /// Only by time. Each job reads the samples of all CPUs.
    Time,
    /// By CPU and by time. Each job reads the samples of one CPU.
    CpusAndTime,
}

/// How the work is divided.
#[derive(Clone, Debug)]
pub struct Division {
    /// By what the recording is divided: only time, or CPUs and time.
    pub splits: Splits,
    /// The number or the length of the time ranges.
    pub divide: Divide,
    /// The minimum length of the time ranges.
    pub least: Duration,
    /// A shell command to which each job's output is piped.
    pub pipe_to: Option<OsString>,
    /// The folder for the folders of the jobs.
    pub output: PathBuf,
}

/// The result of planning.
#[derive(Clone, Debug)]
pub struct JobPlan {
    /// The jobs, ordered by time. If the recording is divided by CPU, they are ordered by CPU first.
    pub jobs: Vec<Job>,
    /// The number of time ranges.
    pub ranges: usize,
    /// Whether the time ranges have the requested length, or the minimum length.
    pub lengths: RangeLength,
}

/// Why the jobs cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// An option of the command has no value.
    #[error(transparent)]
    MissingValue(#[from] MissingValue),
    /// The command is `perf-prof python` without --input. Such a command traces live and reads no recording.
    #[error("the command traces live, so there is no recording to divide; add --input FILE to the command")]
    NoInput,
    /// The command's `--time` is not valid.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// The command's list of CPUs is not valid.
    #[error("the command's list of CPUs {0:?} is not valid; write, for example, `0-3,7`")]
    Cpus(String),
    /// The command selects a CPU that the recording does not contain.
    #[error("the recording has no CPU {0}; it has the CPUs {1}")]
    NoSuchCpu(u32, CpuSet),
}

const TIME: OptionName = OptionName { short: None, long: "time" };

fn cpus(tool: Tool) -> OptionName {
    let long = if tool == Tool::Python { "cpus" } else { "cpu" };
    OptionName { short: Some(b'C'), long }
}

/// Returns the path of the recording that a command reads.
pub fn input(command: &ReadingCommand) -> Result<PathBuf, PlanError> {
    let short = (command.tool() == Tool::Script).then_some(b'i');
    match (command.value(OptionName { short, long: "input" })?, command.tool()) {
        (Some(path), _) => Ok(path.into()),
        (None, Tool::Script) => Ok("perf.data".into()),
        (None, Tool::Python) => Err(PlanError::NoInput),
    }
}

/// Plans the jobs of a command.
pub fn plan(mut command: ReadingCommand, recorded: &RecordingExtent, split: &Division) -> Result<JobPlan, PlanError> {
    let ranges = match command.remove_option(TIME)? {
        Some(text) => TimeRange::parse_all(&text.to_string_lossy(), recorded.times)?,
        None => vec![recorded.times],
    };
    let Divided { ranges, lengths } = divide(&ranges, split.divide, split.least);
    let option = cpus(command.tool());
    let cpus: Vec<Option<u32>> = match split.splits {
        Splits::Time => vec![None],
        Splits::CpusAndTime => selected_cpus(&mut command, option, recorded)?.iter().map(Some).collect(),
    };
    let width = |count: usize| count.saturating_sub(1).to_string().len();
    let cpu_width = recorded.cpus.iter().last().map_or(1, |cpu| cpu.to_string().len());
    let mut jobs = Vec::new();
    for &cpu in &cpus {
        let mut folder = split.output.clone();
        folder.extend(cpu.map(|cpu| format!("cpu-{cpu:0cpu_width$}")));
        for (at, &range) in ranges.iter().enumerate() {
            let (mut command, mut directory) = (command.clone(), folder.clone());
            if let Some(time) = time_option(range, recorded.times) {
                directory.push(format!("time-range-{at:0width$}", width = width(ranges.len())));
                command.add_option(format!("--time={time}"));
            }
            if let Some(cpu) = cpu {
                command.add_option(format!("--{}={cpu}", option.long));
            }
            jobs.push(Job { command: command.command(), directory, pipe_to: split.pipe_to.clone() });
        }
    }
    Ok(JobPlan { jobs, ranges: ranges.len(), lengths })
}

/// Removes the option that selects CPUs from the command, and returns the selected CPUs. Without the option, returns
/// all CPUs.
fn selected_cpus(
    command: &mut ReadingCommand,
    option: OptionName,
    recorded: &RecordingExtent,
) -> Result<CpuSet, PlanError> {
    let Some(list) = command.remove_option(option)? else { return Ok(recorded.cpus.clone()) };
    let list = list.to_string_lossy();
    let named: CpuSet = list.parse().map_err(|_| PlanError::Cpus(list.into_owned()))?;
    let unknown = named.iter().find(|&cpu| !recorded.cpus.contains(cpu));
    unknown.map_or(Ok(named), |cpu| Err(PlanError::NoSuchCpu(cpu, recorded.cpus.clone())))
}

/// Returns the value of `--time` for a range, or `None` if the range is the whole recording. FROM is omitted if the
/// range starts at the first sample, and TO if it ends at the last sample. So jobs also read records before the first
/// and after the last sample, such as comms and mappings of tasks.
fn time_option(range: TimeRange, all: TimeRange) -> Option<String> {
    let text = range.to_string();
    let (from, to) = text.split_once(',')?;
    match (range.start <= all.start, range.end >= all.end) {
        (true, true) => None,
        (true, false) => Some(format!(",{to}")),
        (false, true) => Some(format!("{from},")),
        (false, false) => Some(text),
    }
}

/// Returns the path of the file into which the outputs of all jobs are joined. `None` if a job writes to this path
/// itself.
pub fn joined_output(jobs: &[Job], output: &Path) -> Option<PathBuf> {
    let path = output.join("out.txt");
    (!jobs.iter().any(|job| job.output() == path)).then_some(path)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use expect_test::{Expect, expect};

    use super::*;

    fn check(words: &str, splits: Splits, divide: Divide, expect: Expect) {
        let recorded = RecordingExtent {
            times: TimeRange { start: 9_464_000_000_000, end: 9_473_999_999_999 },
            cpus: "0-1,10".parse().unwrap(),
        };
        let command = ReadingCommand::find(words.split(' ').map(Into::into).collect(), |_| false).unwrap();
        let split = Division { splits, divide, least: Duration::ZERO, pipe_to: None, output: "out".into() };
        let mut shown = format!("{:?}\n", input(&command));
        match plan(command, &recorded, &split) {
            Ok(planned) => {
                for job in planned.jobs {
                    writeln!(shown, "{}: {}", job.directory.display(), job.command.quoted()).unwrap();
                }
            }
            Err(error) => writeln!(shown, "{error}").unwrap(),
        }
        expect.assert_eq(&shown);
    }

    #[test]
    fn time_is_divided_with_open_ends() {
        check(
            "perf script --ns -i x.data",
            Splits::Time,
            Divide::Count(2),
            expect![[r#"
            Ok("x.data")
            out/time-range-0: perf script --time=,9468.999999999 --ns -i x.data
            out/time-range-1: perf script --time=9469.000000000, --ns -i x.data
        "#]],
        );
        check(
            "perf-prof python -i 500 --input x.data s.py",
            Splits::Time,
            Divide::Count(1),
            expect![[r#"
            Ok("x.data")
            out: perf-prof python -i 500 --input x.data s.py
        "#]],
        );
        check(
            "perf script --time=9465,9467",
            Splits::Time,
            Divide::Every(Duration::from_secs(1)),
            expect![[r#"
            Ok("perf.data")
            out/time-range-0: perf script --time=9465.000000000,9465.999999999
            out/time-range-1: perf script --time=9466.000000000,9467.000000000
        "#]],
        );
    }

    /// A live command is refused even if `./perf.data` exists, because it does not read that file.
    #[test]
    fn a_live_run_names_no_recording() {
        let live =
            ReadingCommand::find(["perf-prof", "python", "-i", "500", "s.py"].map(Into::into).to_vec(), |_| false);
        assert_eq!(input(&live.unwrap()), Err(PlanError::NoInput));
    }

    #[test]
    fn cpus_have_folders_of_their_own() {
        check(
            "perf-prof python --input d s.py",
            Splits::CpusAndTime,
            Divide::Count(1),
            expect![[r#"
            Ok("d")
            out/cpu-00: perf-prof python --cpus=0 --input d s.py
            out/cpu-01: perf-prof python --cpus=1 --input d s.py
            out/cpu-10: perf-prof python --cpus=10 --input d s.py
        "#]],
        );
        check(
            "perf script -C 10",
            Splits::CpusAndTime,
            Divide::Count(2),
            expect![[r#"
            Ok("perf.data")
            out/cpu-10/time-range-0: perf script --cpu=10 --time=,9468.999999999
            out/cpu-10/time-range-1: perf script --cpu=10 --time=9469.000000000,
        "#]],
        );
        check(
            "perf script -C 10-11",
            Splits::CpusAndTime,
            Divide::Count(2),
            expect![[r#"
                Ok("perf.data")
                the recording has no CPU 11; it has the CPUs 0-1,10
            "#]],
        );
    }
}
