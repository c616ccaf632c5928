//! From a command and what it is to read to the jobs that read it in parts. Looks at no file.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{Divide, Divided, Job, Lengths, Named, NoValue, RangeError, Reader, TimeRange, Tool, divide};
use crate::spec::CpuSet;

/// What a recording holds, as far as it is divided by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// From the first sample to the last.
    pub times: TimeRange,
    /// Its CPUs.
    pub cpus: CpuSet,
}

/// Whether CPUs have jobs of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Splits {
    /// Only time is divided.
    Time,
    /// Each CPU's time is.
    CpusAndTime,
}

/// How the work is divided.
#[derive(Clone, Debug)]
pub struct Split {
    /// What is divided.
    pub splits: Splits,
    /// How time is.
    pub divide: Divide,
    /// No range of time becomes shorter than this by it.
    pub least: Duration,
    /// A shell command that each job's output goes through.
    pub pipe_to: Option<OsString>,
    /// What the jobs' folders are made in.
    pub output: PathBuf,
}

/// What comes of it.
#[derive(Clone, Debug)]
pub struct Planned {
    /// For each CPU, where they are divided, for each range of time.
    pub jobs: Vec<Job>,
    /// How many ranges of time there are.
    pub ranges: usize,
    /// How long they are.
    pub lengths: Lengths,
}

/// Why there are no jobs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// An option of the command.
    #[error(transparent)]
    NoValue(#[from] NoValue),
    /// `perf-prof python` without a recording runs live.
    #[error("the command names no recording, which is what is divided: --input FILE")]
    NoInput,
    /// Its `--time`.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// Its list of CPUs.
    #[error("the command's list of CPUs {0:?} is none, as 0-3,7 is")]
    Cpus(String),
    /// CPUs that the recording does not have.
    #[error("the recording has no CPU {0}; it has {1}")]
    NoSuchCpu(u32, CpuSet),
}

const TIME: Named = Named { short: None, long: "time" };

fn cpus(tool: Tool) -> Named {
    let long = if tool == Tool::Python { "cpus" } else { "cpu" };
    Named { short: Some(b'C'), long }
}

/// The recording that a command reads.
pub fn input(command: &Reader) -> Result<PathBuf, PlanError> {
    let short = (command.tool() == Tool::Script).then_some(b'i');
    match (command.value(Named { short, long: "input" })?, command.tool()) {
        (Some(path), _) => Ok(path.into()),
        (None, Tool::Script) => Ok("perf.data".into()),
        (None, Tool::Python) => Err(PlanError::NoInput),
    }
}

/// The jobs of a command.
pub fn plan(mut command: Reader, recorded: &Recorded, split: &Split) -> Result<Planned, PlanError> {
    let ranges = match command.take(TIME)? {
        Some(text) => TimeRange::parse_all(&text.to_string_lossy(), recorded.times)?,
        None => vec![recorded.times],
    };
    let Divided { ranges, lengths } = divide(&ranges, split.divide, split.least);
    let option = cpus(command.tool());
    let cpus: Vec<Option<u32>> = match split.splits {
        Splits::Time => vec![None],
        Splits::CpusAndTime => chosen(&mut command, option, recorded)?.iter().map(Some).collect(),
    };
    let width = |count: usize| count.saturating_sub(1).to_string().len();
    let cpu_width = recorded.cpus.iter().last().map_or(1, |cpu| cpu.to_string().len());
    let mut jobs = Vec::new();
    for &cpu in &cpus {
        let mut folder = split.output.clone();
        folder.extend(cpu.map(|cpu| format!("cpu-{cpu:0cpu_width$}")));
        for (at, &range) in ranges.iter().enumerate() {
            let (mut command, mut directory) = (command.clone(), folder.clone());
            if let Some(time) = time(range, recorded.times) {
                directory.push(format!("time-range-{at:0width$}", width = width(ranges.len())));
                command.insert(format!("--time={time}"));
            }
            if let Some(cpu) = cpu {
                command.insert(format!("--{}={cpu}", option.long));
            }
            jobs.push(Job { command: command.command(), directory, pipe_to: split.pipe_to.clone() });
        }
    }
    Ok(Planned { jobs, ranges: ranges.len(), lengths })
}

/// The CPUs that the command names, which it then does no more, or all.
fn chosen(command: &mut Reader, option: Named, recorded: &Recorded) -> Result<CpuSet, PlanError> {
    let Some(list) = command.take(option)? else { return Ok(recorded.cpus.clone()) };
    let list = list.to_string_lossy();
    let named: CpuSet = list.parse().map_err(|_| PlanError::Cpus(list.into_owned()))?;
    let unknown = named.iter().find(|&cpu| !recorded.cpus.contains(cpu));
    unknown.map_or(Ok(named), |cpu| Err(PlanError::NoSuchCpu(cpu, recorded.cpus.clone())))
}

/// A range as an option has it. Where it begins or ends with the recording it is open there: then nothing is left out that
/// has a time beyond the first and last sample's, as names and mappings of tasks have.
fn time(range: TimeRange, all: TimeRange) -> Option<String> {
    let text = range.to_string();
    let (from, to) = text.split_once(',')?;
    match (range.start <= all.start, range.end >= all.end) {
        (true, true) => None,
        (true, false) => Some(format!(",{to}")),
        (false, true) => Some(format!("{from},")),
        (false, false) => Some(text),
    }
}

/// Where the outputs of all jobs are joined; `None` for a job that writes there itself.
pub fn joined(jobs: &[Job], output: &Path) -> Option<PathBuf> {
    let path = output.join("out.txt");
    (!jobs.iter().any(|job| job.output() == path)).then_some(path)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use expect_test::{Expect, expect};

    use super::*;

    fn check(words: &str, splits: Splits, divide: Divide, expect: Expect) {
        let recorded = Recorded {
            times: TimeRange { start: 9_464_000_000_000, end: 9_473_999_999_999 },
            cpus: "0-1,10".parse().unwrap(),
        };
        let command = Reader::find(words.split(' ').map(Into::into).collect(), |_| false).unwrap();
        let split = Split { splits, divide, least: Duration::ZERO, pipe_to: None, output: "out".into() };
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
            Divide::Into(2),
            expect![[r#"
            Ok("x.data")
            out/time-range-0: perf script --time=,9468.999999999 --ns -i x.data
            out/time-range-1: perf script --time=9469.000000000, --ns -i x.data
        "#]],
        );
        check(
            "perf-prof python -i 500 --input x.data s.py",
            Splits::Time,
            Divide::Into(1),
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

    /// `./perf.data` was divided, for a command that does not read it.
    #[test]
    fn a_live_run_names_no_recording() {
        let live = Reader::find(["perf-prof", "python", "-i", "500", "s.py"].map(Into::into).to_vec(), |_| false);
        assert_eq!(input(&live.unwrap()), Err(PlanError::NoInput));
    }

    #[test]
    fn cpus_have_folders_of_their_own() {
        check(
            "perf-prof python --input d s.py",
            Splits::CpusAndTime,
            Divide::Into(1),
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
            Divide::Into(2),
            expect![[r#"
            Ok("perf.data")
            out/cpu-10/time-range-0: perf script --cpu=10 --time=,9468.999999999
            out/cpu-10/time-range-1: perf script --cpu=10 --time=9469.000000000,
        "#]],
        );
        check(
            "perf script -C 10-11",
            Splits::CpusAndTime,
            Divide::Into(2),
            expect![[r#"
            Ok("perf.data")
            the recording has no CPU 11; it has 0-1,10
        "#]],
        );
    }
}
