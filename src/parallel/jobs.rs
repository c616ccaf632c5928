//! Runs commands side by side, each with files of its own for what it writes. Knows nothing of recordings.

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

use super::Command;

/// How often the running jobs are looked at.
const LOOK: Duration = Duration::from_millis(20);

/// A command with the folder that its files go to.
#[derive(Clone, Debug)]
pub struct Job {
    /// What is run.
    pub command: Command,
    /// For `cmd.txt`, `out.txt`, `err.txt` and `pipe-err.txt`; made when the job starts.
    pub directory: PathBuf,
    /// A shell command that its output goes through.
    pub pipe_to: Option<OsString>,
}

/// What jobs have come to, for who looks on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// All of them.
    pub jobs: usize,
    /// Those that have ended well.
    pub done: usize,
    /// Those that are running.
    pub running: usize,
}

/// Why not all jobs were done.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// A job's files.
    #[error("{path}: {source}")]
    Files {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It could not be started.
    #[error("cannot run {command}: {source}")]
    Start {
        /// As a shell reads it.
        command: String,
        /// Why.
        source: io::Error,
    },
    /// It failed, and the others were ended.
    #[error("{command} failed ({status}); the other jobs were ended{}", below(.said))]
    Failed {
        /// As a shell reads it.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// What it wrote to stderr, its end.
        said: String,
    },
    /// What its output went through failed, and the others were ended.
    #[error("the pipe `{pipe_to}` behind {command} failed ({status}); the other jobs were ended{}", below(.said))]
    PipeFailed {
        /// The shell command.
        pipe_to: String,
        /// Whose output it got, as a shell reads it.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// What it wrote to stderr, its end.
        said: String,
    },
    /// Somebody asked for the end.
    #[error("interrupted: all jobs were ended")]
    Interrupted,
}

/// What the job said, in lines of its own.
fn below(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(":\n{text}") }
}

struct Running<'a> {
    job: &'a Job,
    child: Child,
    consumer: Option<Child>,
}

/// Runs jobs in their order, at most `at_once` at a time, until all are done or one fails; then the others are ended. `watch`
/// is told of what changes; `interrupted` is asked all the time.
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
                    end(&mut running);
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
        thread::sleep(LOOK);
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
    end(&mut running);
    result
}

fn end(running: &mut Vec<Running<'_>>) {
    for one in running.drain(..) {
        for mut child in [Some(one.child), one.consumer].into_iter().flatten() {
            // One that has ended already needs neither.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Job {
    /// Where its output goes.
    pub fn output(&self) -> PathBuf {
        self.directory.join("out.txt")
    }

    /// Where its messages go.
    pub fn messages(&self) -> PathBuf {
        self.directory.join("err.txt")
    }

    /// Where the messages of what its output goes through go.
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
        let (Some(consumer), Some(path)) = (&self.pipe_to, self.pipe_messages()) else {
            let child = process.stdout(output).spawn().map_err(failed(self.command.quoted()))?;
            return Ok(Running { job: self, child, consumer: None });
        };
        // Only by messages of its own can be seen whether it failed.
        let messages = create(&path)?;
        let mut child = process.stdout(Stdio::piped()).spawn().map_err(failed(self.command.quoted()))?;
        let mut shell = Process::new("sh");
        shell.arg("-c").arg(consumer).stdout(output).stderr(messages);
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
        JobError::Failed { command: self.command.quoted(), status, said: shortened(&said(&self.messages())) }
    }

    /// What comes of how its pipe ended. With status 1 and nothing to say about it grep, cmp and diff say what they found.
    fn piped(&self, status: ExitStatus) -> Result<(), JobError> {
        let said = self.pipe_messages().map(|path| said(&path)).unwrap_or_default();
        if status.success() || (status.code() == Some(1) && said.is_empty()) {
            return Ok(());
        }
        let pipe_to = self.pipe_to.as_deref().unwrap_or_default().to_string_lossy().into_owned();
        Err(JobError::PipeFailed { pipe_to, command: self.command.quoted(), status, said: shortened(&said) })
    }
}

fn said(messages: &Path) -> String {
    String::from_utf8_lossy(&fs::read(messages).unwrap_or_default()).into_owned()
}

/// What a program said before it failed: usage begins with what is wrong, a traceback ends with it.
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
    /// How it ended, if it has: by the status of its command, and then by that of its pipe.
    fn ended(&mut self) -> Option<Result<(), JobError>> {
        let own = |status: ExitStatus| if status.success() { Ok(()) } else { Err(self.job.failed(status)) };
        let Some(consumer) = &mut self.consumer else { return status(&mut self.child).map(own) };
        let piped = status(consumer).map(|status| self.job.piped(status));
        if let Some(Err(_)) = piped {
            // Nobody reads what the command writes. One that has ended meanwhile is not killed, and has a status of its own.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        let status = status(&mut self.child)?;
        // Who reads as much as he wants ends the other, which is no failure; of a command that it ran a shell says it like
        // this.
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

/// A child that cannot be waited for has ended badly.
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
        // Who has read enough ends the other.
        let head = job(folder.path(), "head", "yes", Some("head -1"));
        run(&[counted, head], 1, |_| {}, || false).unwrap();
        let read = |name| fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!((read("counted/out.txt").trim(), read("head/out.txt").trim()), ("271", "y"));
    }

    /// A job failed where grep found no line, and the message blamed the command.
    #[test]
    fn a_pipe_that_finds_nothing_has_not_failed() {
        let folder = tempfile::tempdir().unwrap();
        let check = |name: &str, script: &str, pipe_to: &str| {
            let job = job(folder.path(), name, script, Some(pipe_to));
            run(&[job], 1, |_| {}, || false).map_err(|error| error.to_string())
        };
        // What the command says is not said by its pipe.
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
            format!("the pipe `{pipe_to}` behind sh -c '{script}' failed ({how}); the other jobs were ended{said}")
        };
        let (two, one) = ("echo why >&2; exit 2", "echo why >&2; exit 1");
        assert_eq!(check("two", "seq 9", two), said(two, "seq 9", "exit status: 2", ":\nwhy"));
        assert_eq!(check("one", "seq 9", one), said(one, "seq 9", "exit status: 1", ":\nwhy"));
        assert_eq!(check("silent", "seq 9", "exit 2"), said("exit 2", "seq 9", "exit status: 2", ""));
        let killed = check("killed", "seq 9", "kill -9 $$");
        assert_eq!(killed, said("kill -9 $$", "seq 9", "signal: 9 (SIGKILL)", ""));
        // A command that it leaves alone is not waited for, nor blamed.
        let long = check("long", "sleep 100; true", two);
        assert_eq!(long, said(two, "sleep 100; true", "exit status: 2", ":\nwhy"));
        assert_eq!(check("cut", "yes 1", two), said(two, "yes 1", "exit status: 2", ":\nwhy"));
        // A command that fails by itself is what is wrong, whatever its pipe makes of it.
        let own = check("own", "echo own >&2; exit 3", "cat; sleep 0.1; exit 2");
        assert!(own.starts_with("sh -c 'echo own >&2; exit 3' failed (exit status: 3)") && own.ends_with(":\nown"));
        assert!(check("own-1", "exit 3", "grep 7").contains("failed (exit status: 3)"));
    }

    #[test]
    fn of_many_messages_the_first_and_the_last_are_shown() {
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
