//! Runs commands in parallel, each with its own output files. This module knows nothing of recordings.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command as Process, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use perf_prof_system::process::end_with_this_thread;

use super::Command;

/// The time between two checks of the running jobs.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A command that is run, and the folder for its files.
#[derive(Clone, Debug)]
pub struct Job {
    /// The command to run.
    pub command: Command,
    /// The folder for `cmd.txt`, `out.txt`, `err.txt` and `pipe-err.txt`. It is created when the job starts.
    pub directory: PathBuf,
    /// A shell command to which the output is piped.
    pub pipe_to: Option<OsString>,
}

/// The progress of the jobs, to be shown to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The number of all jobs.
    pub jobs: usize,
    /// The number of jobs that have ended successfully.
    pub done: usize,
    /// The number of jobs that are running.
    pub running: usize,
}

/// Why not all jobs ended successfully.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The files of a job cannot be used.
    #[error("{path}: {source}")]
    Files {
        /// The path.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The job's command, or the command of its pipe, could not be started.
    #[error("cannot run {command}: {source}")]
    Start {
        /// The command, quoted for a shell.
        command: String,
        /// The error.
        source: io::Error,
    },
    /// The job's command failed, and the other jobs were ended.
    #[error("{command} failed ({status}); the other jobs were ended{}", on_own_lines(.messages))]
    Failed {
        /// The command, quoted for a shell.
        command: String,
        /// The command's exit status.
        status: ExitStatus,
        /// What the command wrote to stderr, shortened.
        messages: String,
    },
    /// The command to which a job's output is piped failed, and the other jobs were ended.
    #[error("the pipe command `{pipe_to}` failed ({status}) on the output of {command}; the other jobs were ended{}", on_own_lines(.messages))]
    PipeFailed {
        /// The shell command.
        pipe_to: String,
        /// The job's command, quoted for a shell.
        command: String,
        /// The exit status of the shell command.
        status: ExitStatus,
        /// What the shell command wrote to stderr, shortened.
        messages: String,
    },
    /// The user interrupted the run.
    #[error("interrupted: all jobs were ended")]
    Interrupted,
}

/// Returns what a command wrote to stderr as the end of a message, on lines of its own.
fn on_own_lines(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(":\n{text}") }
}

struct Running<'a> {
    job: &'a Job,
    child: Child,
    consumer: Option<Child>,
}

/// Runs jobs in order, at most `at_once` at a time. After a failure, the other jobs are ended. All jobs also end if the
/// calling thread ends. `watch` is called after each change of the progress. `interrupted` is called in each round of
/// checks; if it returns true, all jobs are ended.
pub fn run(
    jobs: &[Job],
    at_once: usize,
    mut watch: impl FnMut(Progress),
    mut interrupted: impl FnMut() -> bool,
) -> Result<(), JobError> {
    let mut waiting = jobs.iter();
    let mut running: Vec<Running<'_>> = Vec::new();
    let mut done = 0;
    let result = loop {
        let mut changed = false;
        while running.len() < at_once.max(1) {
            let Some(job) = waiting.next() else { break };
            match job.start() {
                Ok(started) => running.push(started),
                Err(error) => {
                    kill_all(&mut running);
                    return Err(error);
                }
            }
            changed = true;
        }
        if changed {
            watch(Progress { jobs: jobs.len(), done, running: running.len() });
        }
        if running.is_empty() {
            break Ok(());
        }
        thread::sleep(POLL_INTERVAL);
        if interrupted() {
            break Err(JobError::Interrupted);
        }
        let mut failed = None;
        running.retain_mut(|one| match one.ended() {
            None => true,
            Some(ended) => {
                if let Err(error) = ended {
                    failed.get_or_insert(error);
                }
                done += 1;
                changed = true;
                false
            }
        });
        if let Some(error) = failed {
            break Err(error);
        }
        if changed {
            watch(Progress { jobs: jobs.len(), done, running: running.len() });
        }
    };
    kill_all(&mut running);
    result
}

fn kill_all(running: &mut Vec<Running<'_>>) {
    for one in running.drain(..) {
        for mut child in [Some(one.child), one.consumer].into_iter().flatten() {
            // Both calls have no effect on a child that has already ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Job {
    /// Returns the path of the file that contains the job's output.
    pub fn output(&self) -> PathBuf {
        self.directory.join("out.txt")
    }

    /// Returns the path of the file that contains what the job wrote to stderr.
    pub fn messages(&self) -> PathBuf {
        self.directory.join("err.txt")
    }

    /// Returns the path of the file with the stderr of the command to which the job's output is piped. `None` if the
    /// output is not piped to a command.
    pub fn pipe_messages(&self) -> Option<PathBuf> {
        self.pipe_to.as_ref().map(|_| self.directory.join("pipe-err.txt"))
    }

    fn start(&self) -> Result<Running<'_>, JobError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| JobError::Files { path, source }
        };
        let create = |path: &Path| File::create(path).map_err(at(path));
        fs::create_dir_all(&self.directory).map_err(at(&self.directory))?;
        let text = self.directory.join("cmd.txt");
        fs::write(&text, format!("{}\n", self.command.quoted())).map_err(at(&text))?;
        let (output, messages) = (create(&self.output())?, create(&self.messages())?);
        let failed = |command: String| move |source| JobError::Start { command, source };
        let mut process = Process::new(&self.command.words()[0]);
        process.args(&self.command.words()[1..]).stdin(Stdio::null());
        process.stderr(messages);
        end_with_this_thread(&mut process);
        let (Some(consumer), Some(path)) = (&self.pipe_to, self.pipe_messages()) else {
            let child = process.stdout(output).spawn().map_err(failed(self.command.quoted()))?;
            return Ok(Running { job: self, child, consumer: None });
        };
        // The messages of the pipe's command go to a file of their own, because they show whether it failed.
        let messages = create(&path)?;
        let mut child = process.stdout(Stdio::piped()).spawn().map_err(failed(self.command.quoted()))?;
        let mut shell = Process::new("sh");
        shell.arg("-c").arg(consumer).stdout(output).stderr(messages);
        end_with_this_thread(&mut shell);
        shell.stdin(child.stdout.take().map_or_else(Stdio::null, Stdio::from));
        match shell.spawn() {
            Ok(consumer) => Ok(Running { job: self, child, consumer: Some(consumer) }),
            Err(source) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(JobError::Start { command: consumer.to_string_lossy().into_owned(), source })
            }
        }
    }

    fn failed(&self, status: ExitStatus) -> JobError {
        JobError::Failed {
            command: self.command.quoted(),
            status,
            messages: shortened(&read_messages(&self.messages())),
        }
    }

    /// Returns an error if the exit status of the pipe's command means a failure. Status 1 without a message is no
    /// failure: grep, cmp and diff report a result with this status.
    fn check_pipe(&self, status: ExitStatus) -> Result<(), JobError> {
        let said = self.pipe_messages().map(|path| read_messages(&path)).unwrap_or_default();
        if status.success() || (status.code() == Some(1) && said.is_empty()) {
            return Ok(());
        }
        let pipe_to = self.pipe_to.as_deref().unwrap_or_default().to_string_lossy().into_owned();
        Err(JobError::PipeFailed { pipe_to, command: self.command.quoted(), status, messages: shortened(&said) })
    }
}

fn read_messages(messages: &Path) -> String {
    String::from_utf8_lossy(&fs::read(messages).unwrap_or_default()).into_owned()
}

/// Shortens what a program wrote before it failed. Keeps the first lines, where usage messages show the error, and the
/// last lines, where tracebacks show it.
fn shortened(text: &str) -> String {
    const EACH: usize = 8;
    let lines: Vec<&str> = text.trim().lines().collect();
    if lines.len() <= 2 * EACH + 1 {
        return lines.join("\n");
    }
    let (first, last) = (&lines[..EACH], &lines[lines.len() - EACH..]);
    format!("{}\n... {} more lines ...\n{}", first.join("\n"), lines.len() - 2 * EACH, last.join("\n"))
}

impl Running<'_> {
    /// Returns the result of the job. `None` if the job still runs. The exit status of the job's command is checked
    /// before the status of the command behind the pipe.
    fn ended(&mut self) -> Option<Result<(), JobError>> {
        let own = |status: ExitStatus| if status.success() { Ok(()) } else { Err(self.job.failed(status)) };
        let Some(consumer) = &mut self.consumer else { return status(&mut self.child).map(own) };
        let piped = status(consumer).map(|status| self.job.check_pipe(status));
        if let Some(Err(_)) = piped {
            // Nobody reads the output of the job's command any more. If the command has already ended, the kill has no
            // effect, and its own status stays.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        let status = status(&mut self.child)?;
        // The pipe's command may close the pipe early, so SIGPIPE is no failure. A shell that ran the command reports
        // SIGPIPE as this exit code.
        let ended_by_pipe = match (status.signal(), &piped) {
            (Some(libc::SIGPIPE), _) | (Some(libc::SIGKILL), Some(Err(_))) => true,
            _ => status.code() == Some(128 + libc::SIGPIPE),
        };
        match piped? {
            piped if status.success() || ended_by_pipe => Some(piped),
            _ => Some(own(status)),
        }
    }
}

/// Returns the exit status of a child process. `None` if the child still runs. If waiting fails, returns the status of
/// a failed child.
fn status(child: &mut Child) -> Option<ExitStatus> {
    child.try_wait().unwrap_or(Some(ExitStatus::from_raw(0xff00)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(folder: &Path, name: &str, script: &str, pipe_to: Option<&str>) -> Job {
        let words = ["sh", "-c", script].map(Into::into).to_vec();
        Job { command: Command::new(words), directory: folder.join(name), pipe_to: pipe_to.map(Into::into) }
    }

    #[test]
    fn all_jobs_are_done_with_files_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let jobs =
            ["a", "b", "c"].map(|name| job(folder.path(), name, &format!("echo {name}; echo '{name}!' >&2"), None));
        let mut seen = Vec::new();
        run(&jobs, 2, |progress| seen.push((progress.done, progress.running)), || false).unwrap();
        assert_eq!((seen.first(), seen.last()), (Some(&(0, 2)), Some(&(3, 0))));
        assert!(seen.iter().all(|&(_, running)| running <= 2));
        let read = |name| fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!((read("b/out.txt"), read("b/err.txt")), ("b\n".into(), "b!\n".into()));
        assert_eq!(read("c/cmd.txt"), "sh -c 'echo c; echo '\\''c!'\\'' >&2'\n");
    }

    #[test]
    fn the_first_failure_ends_all() {
        let folder = tempfile::tempdir().unwrap();
        let jobs = [
            job(folder.path(), "long", "sleep 100", None),
            job(folder.path(), "bad", "echo why >&2; exit 3", None),
            job(folder.path(), "never", "echo never", None),
        ];
        let begun = std::time::Instant::now();
        let error = run(&jobs, 2, |_| {}, || false).unwrap_err();
        assert_eq!(
            error.to_string(),
            "sh -c 'echo why >&2; exit 3' failed (exit status: 3); the other jobs were ended:\nwhy"
        );
        assert!(begun.elapsed() < Duration::from_secs(50) && !folder.path().join("never").exists());
    }

    #[test]
    fn output_goes_through_a_command() {
        let folder = tempfile::tempdir().unwrap();
        let counted = job(folder.path(), "counted", "seq 1000", Some("grep 7 | wc -l"));
        // `head` closes the pipe early, which ends `yes`. This is no failure.
        let head = job(folder.path(), "head", "yes", Some("head -1"));
        run(&[counted, head], 1, |_| {}, || false).unwrap();
        let read = |name| fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!((read("counted/out.txt").trim(), read("head/out.txt").trim()), ("271", "y"));
    }

    /// A job does not fail if grep in the pipe finds no line.
    #[test]
    fn status_1_of_a_pipe_without_messages_is_no_failure() {
        let folder = tempfile::tempdir().unwrap();
        let check = |name: &str, script: &str, pipe_to: &str| {
            let job = job(folder.path(), name, script, Some(pipe_to));
            run(&[job], 1, |_| {}, || false).map_err(|error| error.to_string())
        };
        // What the job's command writes to stderr is no message of the pipe.
        assert_eq!(check("nothing", "echo 1; echo 'a warning' >&2", "grep 7"), Ok(()));
        assert_eq!(check("other", "yes", "cmp -s - /dev/null"), Ok(()));
        let read = |name| fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!((read("nothing/out.txt"), read("nothing/err.txt")), (String::new(), "a warning\n".into()));
        assert_eq!(read("nothing/pipe-err.txt"), "");
    }

    #[test]
    fn a_pipe_that_fails_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let check = |name: &str, script: &str, pipe_to: &str| {
            run(&[job(folder.path(), name, script, Some(pipe_to))], 1, |_| {}, || false).unwrap_err().to_string()
        };
        let said = |pipe_to, script, how, said| {
            format!(
                "the pipe command `{pipe_to}` failed ({how}) on the output of sh -c '{script}'; the other jobs were ended{said}"
            )
        };
        let (two, one) = ("echo why >&2; exit 2", "echo why >&2; exit 1");
        assert_eq!(check("two", "seq 9", two), said(two, "seq 9", "exit status: 2", ":\nwhy"));
        assert_eq!(check("one", "seq 9", one), said(one, "seq 9", "exit status: 1", ":\nwhy"));
        assert_eq!(check("silent", "seq 9", "exit 2"), said("exit 2", "seq 9", "exit status: 2", ""));
        let killed = check("killed", "seq 9", "kill -9 $$");
        assert_eq!(killed, said("kill -9 $$", "seq 9", "signal: 9 (SIGKILL)", ""));
        // If the pipe's command failed, the job's command is not waited for. The error is about the pipe.
        let long = check("long", "sleep 100; true", two);
        assert_eq!(long, said(two, "sleep 100; true", "exit status: 2", ":\nwhy"));
        assert_eq!(check("cut", "yes 1", two), said(two, "yes 1", "exit status: 2", ":\nwhy"));
        // If the job's command fails itself, the error is about this command, whatever the status of the pipe is.
        let own = check("own", "echo own >&2; exit 3", "cat; sleep 0.1; exit 2");
        assert!(own.starts_with("sh -c 'echo own >&2; exit 3' failed (exit status: 3)") && own.ends_with(":\nown"));
        assert!(check("own-1", "exit 3", "grep 7").contains("failed (exit status: 3)"));
    }

    #[test]
    fn long_messages_are_shortened_to_their_start_and_end() {
        let folder = tempfile::tempdir().unwrap();
        let error = run(&[job(folder.path(), "many", "seq 100 >&2; false", None)], 1, |_| {}, || false).unwrap_err();
        let shown = error.to_string();
        assert!(
            shown.ends_with(":\n1\n2\n3\n4\n5\n6\n7\n8\n... 84 more lines ...\n93\n94\n95\n96\n97\n98\n99\n100"),
            "{shown}"
        );
    }

    #[test]
    fn an_interruption_ends_all_and_a_missing_program_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let long = job(folder.path(), "long", "sleep 100", None);
        assert!(matches!(run(&[long], 1, |_| {}, || true), Err(JobError::Interrupted)));
        let command = Command::new(vec!["/no/such/program".into()]);
        let missing = Job { command, directory: folder.path().join("missing"), pipe_to: None };
        let error = run(&[missing], 1, |_| {}, || false).unwrap_err();
        assert_eq!(error.to_string(), "cannot run /no/such/program: No such file or directory (os error 2)");
    }
}
