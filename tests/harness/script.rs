//! Runs the built `perf-prof` with a small script and a known workload, and returns the result.

use std::{
    ffi::{OsStr, OsString},
    fs,
    io::{BufRead, BufReader},
    os::unix::{ffi::OsStrExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use expect_test::Expect;
use tempfile::TempDir;

use super::{
    calls::WORKLOAD,
    machine::{Need, needs},
    run::{PATIENCE, is_installed_package, tested_program, with_patience},
};

/// The event that only tests cause. Its field `pid` numbers the calls.
pub const CALL: &str = "syscalls:sys_enter_getpgid";

/// An event deep in the kernel, for call chains: at the entry of a system call, there are no kernel frames yet. The
/// selector contains a filter, and attributes may be appended.
pub const RENAME: &str = "task:task_rename/newcomm==\"worker\"/";

/// A run of `perf-prof`, which is first described and then started.
pub struct Run {
    /// The folder that it runs in.
    pub dir: TempDir,
    options: Vec<OsString>,
    module: OsString,
    args: Vec<OsString>,
    workload: Option<Vec<OsString>>,
    env: Vec<(OsString, Option<OsString>)>,
    empty_env: bool,
}

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The exit status. If a signal ended the run: 128 plus the number of the signal.
    pub status: i32,
    /// What the run printed on stdout. `DIR` replaces the test's folder.
    pub stdout: String,
    /// What the run printed on stderr. `DIR` replaces the test's folder.
    pub stderr: String,
    /// stdout without replacements.
    pub bytes: Vec<u8>,
}

/// Returns the command of a workload that executes these operations. Spaces separate the words.
pub fn workload(operations: &str) -> Vec<String> {
    let own = std::env::current_exe().unwrap().into_os_string().into_string().unwrap();
    [own, WORKLOAD.to_owned()].into_iter().chain(operations.split_whitespace().map(str::to_owned)).collect()
}

impl Run {
    /// Creates a run of this text as `s.py`.
    pub fn script(text: &str) -> Run {
        let dir = tempfile::tempdir().unwrap();
        let run = Run {
            dir,
            options: Vec::new(),
            module: "s.py".into(),
            args: Vec::new(),
            workload: None,
            env: Vec::new(),
            empty_env: false,
        };
        run.file("s.py", text)
    }

    /// Adds a file to the run's folder.
    pub fn file(self, name: impl AsRef<Path>, text: impl AsRef<[u8]>) -> Run {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// Sets another module argument than `s.py`.
    pub fn module(mut self, module: impl AsRef<OsStr>) -> Run {
        self.module = module.as_ref().into();
        self
    }

    /// Adds options before the module.
    pub fn options<S: AsRef<OsStr>>(mut self, options: impl IntoIterator<Item = S>) -> Run {
        self.options.extend(options.into_iter().map(|option| option.as_ref().to_owned()));
        self
    }

    /// Selects an event.
    pub fn event(self, selector: impl AsRef<OsStr>) -> Run {
        self.options([OsStr::new("-e"), selector.as_ref()])
    }

    /// Selects the event of the workload's calls.
    pub fn call_event(self) -> Run {
        self.event(CALL)
    }

    /// Adds arguments of the script.
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Run {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Traces a workload that executes these operations. Spaces separate the words.
    pub fn workload(mut self, operations: &str) -> Run {
        self.workload = Some(workload(operations).into_iter().map(OsString::from).collect());
        self
    }

    /// Adds a word to the operations of the workload. The word may contain any bytes.
    pub fn operation(mut self, word: &[u8]) -> Run {
        self.workload.get_or_insert_default().push(OsStr::from_bytes(word).into());
        self
    }

    /// Traces a command.
    pub fn exec<S: AsRef<OsStr>>(mut self, command: impl IntoIterator<Item = S>) -> Run {
        self.workload = Some(command.into_iter().map(|word| word.as_ref().to_owned()).collect());
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Run {
        self.env.push((name.into(), Some(value.as_ref().into())));
        self
    }

    /// Starts perf-prof only with the environment variables that are set with `env`.
    pub fn empty_env(mut self) -> Run {
        self.empty_env = true;
        self
    }

    /// Returns a path in the run's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns the command of the run.
    pub fn command(&self) -> Command {
        let mut command = Command::new(tested_program());
        command.arg("python").args(&self.options).arg(&self.module).args(&self.args);
        if let Some(workload) = &self.workload {
            command.arg("--exec").args(workload);
        }
        if self.empty_env {
            command.env_clear();
        }
        for name in [
            "VIRTUAL_ENV",
            "CONDA_PREFIX",
            "PERF_PROF_PYTHON",
            "PERF_PROF_COMPAT",
            "PYTHONPATH",
            "PYTHONHOME",
            "PYTHONUNBUFFERED",
        ] {
            command.env_remove(name);
        }
        for (name, value) in &self.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        with_patience(&mut command, PATIENCE);
        command
    }

    /// Starts the run and waits for its end.
    pub fn run(&self) -> Outcome {
        let child = self.command().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        finish(child, self.dir.path())
    }

    /// Starts the run. Returns its process, and the lines that it prints.
    pub fn start(&self) -> (Child, impl Iterator<Item = String> + use<>) {
        start(&mut self.command())
    }
}

/// Starts a command. Returns its process, and the lines that it prints on stdout.
pub fn start(command: &mut Command) -> (Child, impl Iterator<Item = String> + use<>) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    (child, lines)
}

/// Reads everything that a process prints until its end.
pub fn finish(child: Child, dir: &Path) -> Outcome {
    let output = child.wait_with_output().unwrap();
    let own = std::env::current_exe().unwrap();
    let shown = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).replace(dir.to_str().unwrap(), "DIR");
        as_executable(&without_marks(&text.replace(own.to_str().unwrap(), "WORKLOAD")))
    };
    let status = output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap());
    Outcome { status, stdout: shown(&output.stdout), stderr: shown(&output.stderr), bytes: output.stdout }
}

/// Returns a text without the lines of `^` and `~` below the lines of a traceback, which differ between versions of
/// Python.
fn without_marks(text: &str) -> String {
    let is_mark = |line: &&str| !line.trim().is_empty() && line.trim().chars().all(|letter| "^~".contains(letter));
    text.split_inclusive('\n').filter(|line| !is_mark(line)).collect()
}

/// Returns a message in the words of the executable. Only the executable can use the packages of another environment.
fn as_executable(text: &str) -> String {
    const OF_PACKAGE: &str = "scripts use the packages of '";
    let Some((before, rest)) = text.split_once(OF_PACKAGE).filter(|_| is_installed_package()) else {
        return text.to_owned();
    };
    let after = rest.split_once('\'').unwrap().1;
    format!("{before}for the packages of a venv, use --python VENV{after}")
}

impl Outcome {
    /// A failed run must not look like a bug in perf-prof: no panic, no backtrace.
    pub fn assert_civil(&self) -> &Outcome {
        for word in ["panicked", "RUST_BACKTRACE", "stack backtrace", "Segmentation", "core dumped"] {
            assert!(!self.stderr.contains(word), "{}", self.stderr);
        }
        self
    }

    /// Returns stderr without the line that names the loaded file, and without lines about throttled sampling. These
    /// depend on the machine, because the kernel lowers its limit of samples if they take long.
    pub fn complaints(&self) -> String {
        self.stderr
            .lines()
            .filter(|line| !line.starts_with("Loaded module: "))
            .filter(|line| !line.starts_with("perf-prof: the kernel throttled sampling "))
            .fold(String::new(), |text, line| text + line + "\n")
    }
}

/// Checks the output, the messages and the status of a run.
pub fn check(run: Run, expect: Expect) {
    needs([Need::Tracefs]);
    let outcome = run.run();
    outcome.assert_civil();
    let errors = outcome.complaints();
    let errors = if errors.is_empty() { errors } else { format!("--- stderr\n{errors}") };
    expect.assert_eq(&format!("{}{errors}--- status {}\n", outcome.stdout, outcome.status));
}

/// Checks the output of a run, which must exit with status 0 and print no messages.
pub fn prints(run: Run, expect: Expect) {
    needs([Need::Tracefs]);
    let outcome = run.run();
    outcome.assert_civil();
    assert_eq!((outcome.status, outcome.complaints().as_str()), (0, ""), "stdout: {}", outcome.stdout);
    expect.assert_eq(&outcome.stdout);
}
