//! `perf-prof parallel`: divides a recording into parts, and runs a command for each part, several at the same time.
//! Each command reads the recording itself.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, IsTerminal, Read, Write},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use clap::{ArgAction, Args};
use perf_prof_session::{
    engine::ExitStatus,
    plan::ReadLimits,
    recording::{empty_result::is_no_sample, open},
};
use perf_prof_system::{output, signals::Signals};
use perf_prof_tools::parallel::{
    self, Divide, Division, Job, JobError, JobPlan, Progress, RangeLength, ReadingCommand, RecordingExtent, Splits,
    TimeRange,
};

use super::{failure::Failure, values::owner};

const LONG_ABOUT: &str = "\
Divide a recording into parts and run a command on all parts at the same time

COMMAND is `perf-prof python --input FILE script.py`, `perf-prof script`, `perf script` of perf itself, or a script \
with a first line that runs perf-prof. perf-prof runs COMMAND once for each part; each run is a job. perf-prof adds \
the option --time for the job's part and, with -c, the option for the job's CPU. If COMMAND itself has --time, that \
time is divided; if COMMAND has a list of CPUs, -c divides these CPUs. Other commands, for example \
`perf-prof report`, are refused.

Each job has a folder with its command (cmd.txt), stdout (out.txt) and stderr (err.txt), and with -p the stderr of \
PIPE_TO (pipe-err.txt). err.txt and pipe-err.txt are removed if they are empty. err.txt is also removed if it only \
says which script was loaded, or that the part has no sample. When all jobs have succeeded, their outputs are joined, \
in the order of the parts, in the file out.txt of the output folder. If a job fails, perf-prof ends all other jobs. A \
PIPE_TO that ends with status 1 and prints no message has not failed: grep ends like that if it finds no line, and so \
do cmp and diff if they find a difference.";

const AFTER_HELP: &str = "\
Examples:
  perf-prof parallel -- perf-prof python --input perf.data script.py
      divide perf.data into as many parts as this machine has CPUs
  perf-prof parallel -n 8 -j 4 -p 'grep nginx' -- perf-prof script -i perf.data
      run 8 jobs, 4 at a time, and keep only the lines with nginx
  perf-prof parallel -i 0.5 -o parts -- perf script --ns
      divide into parts of half a second, with the output in the folder parts
  perf-prof parallel -c -D -- perf script
      print the commands, one for each CPU, and run nothing

If a script counts events, each job has only the counts of its part. To get one result of a script, use \
`perf-prof python --jobs`.";

/// The commands that can run on a part.
const DIVISIBLE_COMMANDS: &str = "commands that can be divided: `perf-prof python --input FILE SCRIPT`, `perf-prof script`, \
                         `perf script` of perf itself, and a script with a first line that runs perf-prof; use -p to \
                         pipe their output";

/// The default folder for the files of the jobs.
const USUAL_FOLDER: &str = "parallel-perf-output";

/// Divide a recording into parts and run a command on all parts at the same time
#[derive(Args)]
#[command(long_about = LONG_ABOUT, after_help = AFTER_HELP)]
pub struct Parallel {
    /// Run N jobs at a time (0: as many as there are CPUs)
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    jobs: usize,
    /// Divide the time into NR parts (default: as many as jobs run at a time; with -c: 1)
    #[arg(short, long, value_name = "NR", conflicts_with = "interval")]
    nr: Option<usize>,
    /// Divide the time into parts of this length
    #[arg(short, long, value_name = "SECONDS", value_parser = parse_seconds)]
    interval: Option<Duration>,
    /// Also divide by CPU: each CPU has its own jobs
    #[arg(short = 'c', long)]
    per_cpu: bool,
    /// Make no part shorter than this
    #[arg(short, long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "0.1")]
    min_interval: Duration,
    /// Pipe the output of each job through this shell command
    #[arg(short, long, value_name = "PIPE_TO")]
    pipe_to: Option<OsString>,
    /// Create this folder for the files of the jobs [default: parallel-perf-output]
    #[arg(short, long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// Print the commands and run nothing
    #[arg(short = 'D', long)]
    dry_run: bool,
    /// Print the command of each job when it starts
    #[arg(short, long, action = ArgAction::Count, conflicts_with = "quiet")]
    verbose: u8,
    /// Print only errors
    #[arg(short, long)]
    quiet: bool,
    /// The command to run, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Parses a length of time in seconds, for example `0.5`.
fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds, such as 0.5".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "not a length of time, such as 0.5".to_owned())
}

/// Returns whether a word names a script whose first line runs `perf-prof python`.
fn is_perf_prof_script(word: &OsStr) -> bool {
    const MOST: u64 = 4096;
    let first_line = |path: PathBuf| {
        let mut text = Vec::new();
        // Only regular files are opened, because opening a named pipe would block.
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
    // The file is searched as execvp does: in PATH if the word contains no slash.
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
    pub fn run(self) -> Result<ExitStatus, Failure> {
        if self.nr == Some(0) || self.interval.is_some_and(|interval| interval.is_zero()) {
            let message =
                "time cannot be divided into 0 parts or parts of length 0: -n and -i must be above 0".to_owned();
            return Err(Failure::Usage(message, "`perf-prof parallel --help` explains the options".into()));
        }
        let reader = ReadingCommand::find(self.command.clone(), is_perf_prof_script)
            .map_err(|error| Failure::Usage(error.to_string(), DIVISIBLE_COMMANDS.into()))?;
        let jobs = self.plan(reader)?;
        if self.dry_run {
            let mut out = io::stdout().lock();
            for job in &jobs {
                writeln!(out, "{}", job.command.quoted())?;
            }
            return Ok(ExitStatus(0));
        }
        self.make_output_folder()?;
        self.run_jobs(&jobs)?;
        Ok(ExitStatus(0))
    }

    fn output_dir(&self) -> &Path {
        self.output_dir.as_deref().unwrap_or(Path::new(USUAL_FOLDER))
    }

    /// Creates the output folder. Fails if the folder is not empty, because files of an earlier run would be mixed with
    /// files of this run. If the user did not name the folder, it must not exist yet: another user may have put a link
    /// or a folder there.
    fn make_output_folder(&self) -> anyhow::Result<()> {
        let folder = self.output_dir().display();
        if self.output_dir.is_none() {
            return fs::create_dir(self.output_dir()).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => {
                    anyhow!("{folder} exists already: remove it, or use another folder with -o")
                }
                _ => anyhow!(error).context(folder.to_string()),
            });
        }
        match fs::read_dir(self.output_dir()).map(|mut files| files.next().is_none()) {
            Ok(false) => {
                bail!("{folder} exists already and is not empty: remove it, or use another folder with -o")
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                bail!("{folder} is not a folder: use another path with -o")
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).with_context(|| folder.to_string()),
            _ => Ok(()),
        }
    }

    fn concurrent_jobs(&self) -> usize {
        match self.jobs {
            0 => thread::available_parallelism().map_or(1, usize::from),
            jobs => jobs,
        }
    }

    fn plan(&self, command: ReadingCommand) -> anyhow::Result<Vec<Job>> {
        let input = parallel::input(&command)?;
        if input == Path::new("-") {
            bail!("a pipe cannot be divided: write the recording to a file first");
        }
        // The owner of the recording is checked here, and each job checks the owner again. The option -f of the command
        // turns off both checks.
        let force = self.command.iter().any(|word| word == "-f" || word == "--force");
        let recorded = read_extent(&input, &ReadLimits { owner: owner(force), memory: None })?;
        if self.per_cpu && recorded.cpus.is_empty() {
            bail!("{} does not contain the number of CPUs of the recorded machine: leave -c out", input.display());
        }
        let split = Division {
            splits: if self.per_cpu { Splits::CpusAndTime } else { Splits::Time },
            divide: match (self.interval, self.nr) {
                (Some(interval), _) => Divide::Every(interval),
                (None, Some(nr)) => Divide::Count(nr),
                (None, None) => Divide::Count(if self.per_cpu { 1 } else { self.concurrent_jobs() }),
            },
            least: self.min_interval,
            pipe_to: self.pipe_to.clone(),
            output: self.output_dir().to_owned(),
        };
        let JobPlan { jobs, ranges, lengths } = parallel::plan(command, &recorded, &split)?;
        if lengths == RangeLength::Minimum && !self.quiet {
            let least = self.min_interval.as_secs_f64();
            match (self.interval, self.nr) {
                (Some(_), _) => {
                    output::say(format_args!("parts are {least} s long, the shortest length that -m allows"))
                }
                (None, Some(nr)) => output::say(format_args!(
                    "the number of parts is {ranges} instead of {nr}: no part may be shorter than {least} s (see -m)"
                )),
                (None, None) => {}
            }
        }
        Ok(jobs)
    }

    /// Reports which files contain messages of successful jobs. Removes files without useful messages.
    fn report_messages(&self, jobs: &[Job]) -> anyhow::Result<()> {
        let mut without_samples = Vec::new();
        for job in jobs {
            for messages in [Some(job.messages()), job.pipe_messages()].into_iter().flatten() {
                match classify_messages(&messages).with_context(|| messages.display().to_string())? {
                    MessageContent::Empty => fs::remove_file(&messages)?,
                    MessageContent::NoSample => without_samples.push(messages),
                    MessageContent::Messages if !self.quiet => {
                        output::say(format_args!("{} contains messages", messages.display()))
                    }
                    MessageContent::Messages => {}
                }
            }
        }
        if without_samples.len() < jobs.len() {
            without_samples.iter().try_for_each(fs::remove_file)?;
        } else if let (Some(first), false) = (without_samples.first(), self.quiet) {
            output::say(format_args!("no job found a sample: {} says what the recording contains", first.display()));
        }
        Ok(())
    }

    fn run_jobs(&self, jobs: &[Job]) -> anyhow::Result<()> {
        let signals = Signals::install()?;
        let shown = !self.quiet && self.verbose == 0 && io::stderr().is_terminal();
        let mut begun = 0;
        let watch = |Progress { jobs: all, done, running }| {
            if shown {
                // If stderr is closed, the progress cannot be shown anywhere.
                let _ = write!(io::stderr(), "\r{all} jobs: {done} done, {running} running ");
            }
            if self.verbose > 0 {
                for job in &jobs[begun..done + running] {
                    output::say(format_args!("{}", job.command.quoted()));
                }
                begun = done + running;
            }
        };
        let result = parallel::run(jobs, self.concurrent_jobs(), watch, || signals.is_pending());
        if shown {
            let _ = writeln!(io::stderr());
        }
        // If a job has failed, the user gets only the error in `result`. The messages of all other jobs stay in their
        // files.
        if let Err(error @ JobError::Interrupted) = result {
            bail!(error);
        }
        result?;
        self.report_messages(jobs)?;
        if let Some(path) = parallel::joined_output(jobs, self.output_dir()) {
            join_outputs(jobs, &path).with_context(|| format!("cannot write {}", path.display()))?;
        }
        if !self.quiet {
            let path = self.output_dir().join("out.txt");
            output::say(format_args!(
                "all jobs succeeded (count: {}); their output is in {}",
                jobs.len(),
                path.display()
            ));
        }
        Ok(())
    }
}

/// What the message file of a job contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageContent {
    /// Nothing, or only the line that a successful replay prints about the loaded script.
    Empty,
    /// Only the line about the script, and the message that no sample of the part was selected. A job cannot know
    /// whether the user made a mistake, because other parts may contain selected samples.
    NoSample,
    /// Messages that the user should read.
    Messages,
}

fn classify_messages(messages: &Path) -> io::Result<MessageContent> {
    const MOST: u64 = 64 << 10;
    let mut text = Vec::new();
    File::open(messages)?.take(MOST).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with(parallel::LOADED)).collect();
    Ok(match lines[..] {
        [] if (text.len() as u64) < MOST => MessageContent::Empty,
        [line] if is_no_sample(line) => MessageContent::NoSample,
        _ => MessageContent::Messages,
    })
}

/// Returns the times and CPUs of a recording.
fn read_extent(path: &Path, limits: &ReadLimits) -> anyhow::Result<RecordingExtent> {
    let mut recording = open::open(path, limits)?;
    let Some((start, end)) = recording.times()? else {
        bail!("{}: the recording cannot be divided: no sample has a time", path.display());
    };
    let (available, _) = recording.features.cpus.unwrap_or_default();
    Ok(RecordingExtent { times: TimeRange { start, end }, cpus: (0..available).collect() })
}

fn join_outputs(jobs: &[Job], path: &Path) -> io::Result<()> {
    let mut joined = File::create(path)?;
    for job in jobs {
        io::copy(&mut File::open(job.output())?, &mut joined)?;
    }
    Ok(())
}
