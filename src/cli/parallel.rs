//! `perf-prof parallel`: a command that reads a recording, run several times side by side, each time on a part of it.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, IsTerminal, Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::Duration,
};

use anyhow::{Context, bail};
use clap::{ArgAction, Args};

use super::report::Failure;
use crate::{
    parallel::{self, Divide, Job, JobError, Lengths, Planned, Progress, Reader, Recorded, Split, Splits, TimeRange},
    script::LOADED,
    session::{is_no_sample, opened},
    sys::{output, signals::Signals},
};

const LONG_ABOUT: &str = "\
Run a command that reads a recording several times side by side, each time on a part of it

The command is `perf-prof python --input FILE script.py`, `perf-prof script`, `perf script` of perf itself, or a script with a \
first line of ours. Each job is given its part as --time, and with -c its CPU. A --time, and with -c a list of CPUs, that \
the command has itself is what is divided. Other commands, `perf-prof report` for one, are refused.

Each job has a folder with cmd.txt, out.txt and err.txt, and with -p pipe-err.txt for what PIPE_TO says. Either is removed \
when it is empty, and err.txt also when all it says is which script was loaded, or that the part has no sample. When all have ended well their outputs are joined, in the order of time, in out.txt of the output folder. \
When one fails, all others are ended. A PIPE_TO that ends with status 1 and says nothing has not failed: so do grep, which \
found no line, cmp and diff.";

const AFTER_HELP: &str = "\
Examples:
  perf-prof parallel -- perf-prof python --input perf.data script.py
      as many parts as there are CPUs here
  perf-prof parallel -n 8 -j 4 -p 'grep nginx' -- perf-prof script -i perf.data
      8 parts, 4 at a time, of each only the lines with nginx
  perf-prof parallel -i 0.5 -o parts -- perf script --ns
      a part for each half a second, in the folder parts
  perf-prof parallel -c -D -- perf script
      show the commands, one for each CPU, and run nothing

A script that counts sees the counts of its part only. To have one result of one script, use `perf-prof python --jobs`.";

/// What can be divided.
const DIVISIBLE: &str = "what can be divided are `perf-prof python --input FILE SCRIPT`, `perf-prof script`, `perf script` of \
                         perf itself, and a script with a first line of ours; what their output goes through is named with -p";

/// Run a command that reads a recording several times side by side, each time on a part of it
#[derive(Args)]
#[command(long_about = LONG_ABOUT, after_help = AFTER_HELP)]
pub struct Parallel {
    /// Jobs that run at a time (0: as many as there are CPUs)
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    jobs: usize,
    /// Parts that time is divided into (default: as many as jobs run at a time; with -c: 1)
    #[arg(short, long, value_name = "NR", conflicts_with = "interval")]
    nr: Option<usize>,
    /// The length of a part
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    interval: Option<Duration>,
    /// Give each CPU jobs of its own
    #[arg(short = 'c', long)]
    per_cpu: bool,
    /// No part is made shorter than this
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds, default_value = "0.1")]
    min_interval: Duration,
    /// A shell command that each job's output goes through
    #[arg(short, long, value_name = "PIPE_TO")]
    pipe_to: Option<OsString>,
    /// The folder for the jobs' files, which is made
    #[arg(short, long, value_name = "DIR", default_value = "parallel-perf-output")]
    output_dir: PathBuf,
    /// Show the commands, run nothing
    #[arg(short = 'D', long)]
    dry_run: bool,
    /// Say which jobs begin, and how they go
    #[arg(short, long, action = ArgAction::Count, conflicts_with = "quiet")]
    verbose: u8,
    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
    /// The command, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// A length of time in seconds, as `0.5`.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds, as 0.5 is".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "not a length of time".to_owned())
}

/// Whether a word names, as a program, a script whose first line has us run it.
fn is_script(word: &OsStr) -> bool {
    const MOST: u64 = 4096;
    let first_line = |path: PathBuf| {
        let mut text = Vec::new();
        // No other file is opened: a pipe would keep us waiting.
        let file = fs::metadata(&path).ok().filter(fs::Metadata::is_file).and_then(|_| File::open(&path).ok())?;
        file.take(MOST).read_to_end(&mut text).ok()?;
        let line = text.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
        Some(String::from_utf8_lossy(line).into_owned())
    };
    let ours = |line: String| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words
            .windows(2)
            .any(|two| two[0].rsplit('/').next().is_some_and(|name| name == "perf-prof") && two[1] == "python")
    };
    let path = Path::new(word);
    // As execvp finds it.
    let found = if word.as_encoded_bytes().contains(&b'/') {
        Some(path.to_owned())
    } else {
        let folders = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&folders).map(|folder| folder.join(path)).find(|path| path.is_file())
    };
    found.and_then(first_line).is_some_and(ours)
}

impl Parallel {
    /// Runs the jobs.
    pub fn run(self) -> Result<ExitCode, Failure> {
        if self.nr == Some(0) || self.interval.is_some_and(|interval| interval.is_zero()) {
            let message = "there is nothing to divide time by: -n and -i are more than 0".to_owned();
            return Err(Failure::Usage(message, "`perf-prof parallel --help` explains the options".into()));
        }
        let reader = Reader::find(self.command.clone(), is_script)
            .map_err(|error| Failure::Usage(error.to_string(), DIVISIBLE.into()))?;
        let jobs = self.plan(reader)?;
        if self.dry_run {
            let mut out = io::stdout().lock();
            for job in &jobs {
                writeln!(out, "{}", job.command.quoted())?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        self.check_output()?;
        self.work(&jobs)?;
        Ok(ExitCode::SUCCESS)
    }

    /// A folder of former jobs would hold some of theirs and some of ours.
    fn check_output(&self) -> anyhow::Result<()> {
        let folder = self.output_dir.display();
        match fs::read_dir(&self.output_dir).map(|mut files| files.next().is_none()) {
            Ok(false) => {
                bail!("{folder} exists already, and is not empty: remove it, or name another folder with -o")
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                bail!("{folder} is no folder: name another one with -o")
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).with_context(|| folder.to_string()),
            _ => Ok(()),
        }
    }

    fn at_once(&self) -> usize {
        match self.jobs {
            0 => thread::available_parallelism().map_or(1, usize::from),
            jobs => jobs,
        }
    }

    fn plan(&self, command: Reader) -> anyhow::Result<Vec<Job>> {
        let input = parallel::input(&command)?;
        if input == Path::new("-") {
            bail!("a pipe cannot be divided: write the recording to a file first");
        }
        let recorded = recorded(&input)?;
        if self.per_cpu && recorded.cpus.is_empty() {
            bail!("{} does not say how many CPUs there were: leave -c out", input.display());
        }
        let split = Split {
            splits: if self.per_cpu { Splits::CpusAndTime } else { Splits::Time },
            divide: match (self.interval, self.nr) {
                (Some(interval), _) => Divide::Every(interval),
                (None, Some(nr)) => Divide::Into(nr),
                (None, None) => Divide::Into(if self.per_cpu { 1 } else { self.at_once() }),
            },
            least: self.min_interval,
            pipe_to: self.pipe_to.clone(),
            output: self.output_dir.clone(),
        };
        let Planned { jobs, ranges, lengths } = parallel::plan(command, &recorded, &split)?;
        if lengths == Lengths::Least && !self.quiet {
            let least = self.min_interval.as_secs_f64();
            match (self.interval, self.nr) {
                (Some(_), _) => output::say(format_args!("parts are {least} s long, not shorter: -m changes that")),
                (None, Some(nr)) => output::say(format_args!(
                    "{ranges} instead of {nr} parts, so that none is shorter than {least} s: -m changes that"
                )),
                (None, None) => {}
            }
        }
        Ok(jobs)
    }

    /// Names what jobs have said that ended well, and removes what need not be read.
    fn look_at_messages(&self, jobs: &[Job]) -> anyhow::Result<()> {
        let mut without_samples = Vec::new();
        for job in jobs {
            for messages in [Some(job.messages()), job.pipe_messages()].into_iter().flatten() {
                match said(&messages).with_context(|| messages.display().to_string())? {
                    Said::Nothing => fs::remove_file(&messages)?,
                    Said::NoSample => without_samples.push(messages),
                    Said::Messages if !self.quiet => output::say(format_args!("{} has messages", messages.display())),
                    Said::Messages => {}
                }
            }
        }
        if without_samples.len() < jobs.len() {
            without_samples.iter().try_for_each(fs::remove_file)?;
        } else if let (Some(first), false) = (without_samples.first(), self.quiet) {
            output::say(format_args!("no job has found a sample: {} says what the recording has", first.display()));
        }
        Ok(())
    }

    fn work(&self, jobs: &[Job]) -> anyhow::Result<()> {
        let signals = Signals::install()?;
        let shown = !self.quiet && self.verbose == 0 && io::stderr().is_terminal();
        let mut begun = 0;
        let watch = |Progress { jobs: all, done, running }| {
            if shown {
                // Nobody is left to tell when stderr is closed.
                let _ = write!(io::stderr(), "\r{all} jobs: {done} done, {running} running ");
            }
            if self.verbose > 0 {
                for job in &jobs[begun..done + running] {
                    output::say(format_args!("{}", job.command.quoted()));
                }
                begun = done + running;
            }
        };
        let result = parallel::run(jobs, self.at_once(), watch, || signals.is_pending());
        if shown {
            let _ = writeln!(io::stderr());
        }
        // What there was to say of a failure is in the error; the other jobs' messages stay where they are.
        if let Err(error @ JobError::Interrupted) = result {
            bail!(error);
        }
        result?;
        self.look_at_messages(jobs)?;
        if let Some(path) = parallel::joined(jobs, &self.output_dir) {
            join(jobs, &path).with_context(|| format!("cannot write {}", path.display()))?;
        }
        if !self.quiet {
            let path = self.output_dir.join("out.txt");
            output::say(format_args!("all {} jobs ended well; their output is in {}", jobs.len(), path.display()));
        }
        Ok(())
    }
}

/// What a job has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// Nothing but what a replay says that goes well.
    Nothing,
    /// The same, and that nothing was selected of its part: no job of a divided replay can know whether that is right.
    NoSample,
    /// Something that is to be read.
    Messages,
}

fn said(messages: &Path) -> io::Result<Said> {
    const MOST: u64 = 64 << 10;
    let mut text = Vec::new();
    File::open(messages)?.take(MOST).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with(LOADED)).collect();
    Ok(match lines[..] {
        [] if (text.len() as u64) < MOST => Said::Nothing,
        [line] if is_no_sample(line) => Said::NoSample,
        _ => Said::Messages,
    })
}

/// What a recording holds: by its header where that says it, else by a look at all of its records.
fn recorded(path: &Path) -> anyhow::Result<Recorded> {
    let mut recording = opened::open(path)?;
    let Some((start, end)) = recording.times()? else {
        bail!("{}: there is nothing to divide: no sample has a time", path.display());
    };
    let (available, _) = recording.features.cpus.unwrap_or_default();
    Ok(Recorded { times: TimeRange { start, end }, cpus: (0..available).collect() })
}

fn join(jobs: &[Job], path: &Path) -> io::Result<()> {
    let mut joined = File::create(path)?;
    for job in jobs {
        io::copy(&mut File::open(job.output())?, &mut joined)?;
    }
    Ok(())
}
