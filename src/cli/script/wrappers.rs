//! Runs the wrappers `NAME-record` and `NAME-report` of a script: shell scripts that call `perf`. In the PATH of the
//! wrappers, `perf` is perf-prof itself, so perf need not be installed.

use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, IsTerminal, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, OpenOptionsExt, symlink},
        process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use perf_prof_python::script::running_python;
use perf_prof_system::{process, procfs, shell::shell_quote, signals::Signals};

use super::folders::Found;

/// A private folder in which this program has the name `perf`. Dropping the value removes the folder.
struct FolderOfPerf(PathBuf);

/// How this program can be run.
enum This {
    /// This program is an executable, at this path.
    Executable(PathBuf),
    /// This program is a package of the Python interpreter at this path.
    Package(PathBuf),
}

impl This {
    fn find() -> Result<This> {
        match running_python() {
            Some(python) => Ok(This::Package(python)),
            None => Ok(This::Executable(env::current_exe().context("cannot find the file of this program")?)),
        }
    }

    /// Makes this program runnable as `perf` in `folder`.
    fn put_in(&self, folder: &Path) -> Result<()> {
        match self {
            This::Executable(file) => symlink(file, folder.join("perf")).context("cannot create a link to perf-prof"),
            This::Package(python) => {
                let file = folder.join(PACKAGE_AS_PERF);
                let command = format!("#!/bin/sh\nexec {} {} \"$@\"\n", shell_quote(python), shell_quote(&file));
                fs::write(&file, RUN_PACKAGE_AS_PERF)?;
                let mut perf =
                    fs::OpenOptions::new().write(true).create_new(true).mode(0o700).open(folder.join("perf"))?;
                perf.write_all(command.as_bytes())?;
                Ok(())
            }
        }
    }

    /// Returns whether a process runs this program.
    fn is_run_by(&self, pid: u32, folder: &Path) -> bool {
        match self {
            This::Executable(file) => fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == *file),
            This::Package(_) => {
                let script = folder.join(PACKAGE_AS_PERF);
                let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                words.split(|&byte| byte == 0).nth(1) == Some(script.as_os_str().as_bytes())
            }
        }
    }
}

/// The file that runs the package under the name `perf`.
const PACKAGE_AS_PERF: &str = "perf.py";
const RUN_PACKAGE_AS_PERF: &str = "import sys\nfrom perf_prof.__main__ import main\nsys.argv[0] = 'perf'\nmain()\n";

impl FolderOfPerf {
    fn new(this: &This) -> Result<FolderOfPerf> {
        let mut number = 0u32;
        loop {
            let folder = env::temp_dir().join(format!("perf-prof-{}-{number}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => {
                    let folder = FolderOfPerf(folder);
                    this.put_in(&folder.0).context("cannot make perf-prof runnable as perf")?;
                    return Ok(folder);
                }
                // A folder of this name exists already.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1000 => number += 1,
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot create the folder {}", folder.display()));
                }
            }
        }
    }

    /// Returns PATH with this folder in front. If PATH is not set, returns this folder and the usual folders of PATH:
    /// an empty entry would mean the current folder.
    fn path(&self) -> Result<OsString> {
        const USUAL: &str = "/usr/local/bin:/usr/bin:/bin";
        let others = env::var_os("PATH").unwrap_or_else(|| USUAL.into());
        let folders = std::iter::once(self.0.clone()).chain(env::split_paths(&others));
        env::join_paths(folders).context("cannot extend PATH")
    }
}

impl Drop for FolderOfPerf {
    fn drop(&mut self) {
        // If the folder cannot be removed, it does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Running {
    /// The wrappers in the order of the pipe. The exit status of the last wrapper is returned.
    children: Vec<Child>,
    this: This,
    /// Whether the terminal sends its signals to the wrappers.
    terminal: Terminal,
    folder: FolderOfPerf,
}

/// Whether the terminal itself sends the SIGINT of Ctrl-C to the wrappers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Terminal {
    /// Yes: the terminal sends signals to the whole process group of perf-prof.
    Ours,
    /// No: the wrappers have a process group of their own, and perf-prof passes signals on.
    None,
}

/// A wrapper and its arguments.
pub struct Invocation<'a> {
    pub wrapper: &'a Found,
    pub args: &'a [OsString],
}

/// Runs the wrappers. Each wrapper reads the output of the previous one. Returns the exit status of the last wrapper.
pub fn run(wrappers: &[Invocation<'_>]) -> Result<u8> {
    start(wrappers)?.wait()
}

/// Starts the wrappers. The output of each wrapper is piped to the next one.
fn start(wrappers: &[Invocation<'_>]) -> Result<Running> {
    let this = This::find()?;
    let folder = FolderOfPerf::new(&this)?;
    let path = folder.path()?;
    let on_terminal = io::stdin().is_terminal() || io::stdout().is_terminal() || io::stderr().is_terminal();
    let terminal = if on_terminal { Terminal::Ours } else { Terminal::None };
    let mut running = Running { children: Vec::new(), this, terminal, folder };
    let mut input = None;
    for (number, Invocation { wrapper, args }) in (1..).zip(wrappers) {
        let mut command = Command::new("/bin/sh");
        command.arg(&wrapper.file).args(*args).env("PATH", &path).env("PERF_EXEC_PATH", &wrapper.exec_path);
        if let Some(input) = input.take() {
            command.stdin(Stdio::from(input));
        }
        if number < wrappers.len() {
            command.stdout(Stdio::piped());
        }
        if terminal == Terminal::None {
            command.process_group(0);
        }
        let mut child = command.spawn().with_context(|| format!("cannot run {}", wrapper.file.display()))?;
        input = child.stdout.take();
        running.children.push(child);
    }
    Ok(running)
}

impl Running {
    /// Waits until the wrappers have ended, and until the processes of perf-prof that the wrappers started have ended.
    fn wait(mut self) -> Result<u8> {
        const PAUSE: Duration = Duration::from_millis(10);
        let signals = Signals::install()?;
        let mut asked: Vec<u32> = Vec::new();
        let (mut ended_by, mut unread) = (None, Vec::new());
        let status = loop {
            for (_, signal) in signals.take_pending().end_requests() {
                ended_by = Some(signal);
                let own = self.runs_of_this();
                if self.terminal == Terminal::None || signal != libc::SIGINT {
                    own.iter().for_each(|&pid| process::send_signal(pid, signal));
                }
                asked.extend(own);
            }
            let mut statuses = Vec::new();
            for child in &mut self.children {
                statuses.push(child.try_wait().context("waitpid")?);
            }
            if let Some(status) = statuses.last().copied().flatten() {
                if statuses.iter().all(Option::is_some) {
                    break status;
                }
                // The last wrapper has ended, so nobody reads the recordings any more. The recorders get SIGTERM.
                for pid in self.runs_of_this().into_iter().filter(|pid| !unread.contains(pid)).collect::<Vec<_>>() {
                    process::send_signal(pid, libc::SIGTERM);
                    unread.push(pid);
                }
            }
            thread::sleep(PAUSE);
        };
        // If a signal killed a shell, the programs that the shell started may still run. Waits until these programs
        // have ended.
        while asked.iter().any(|&pid| !procfs::has_exited(pid)) {
            thread::sleep(PAUSE);
        }
        Ok(match ended_by {
            Some(signal) if signal != libc::SIGINT => 128 + signal as u8,
            Some(_) if status.signal() == Some(libc::SIGINT) => 0,
            _ => exit_status(status),
        })
    }

    /// Returns the descendants of this process that run this program.
    fn runs_of_this(&self) -> Vec<u32> {
        let processes = procfs::processes();
        let parents: Vec<(u32, u32)> =
            processes.into_iter().filter_map(|pid| Some((pid, procfs::parent(pid)?))).collect();
        let mut found: Vec<u32> = self.children.iter().map(Child::id).collect();
        let mut at = 0;
        while let Some(&parent) = found.get(at) {
            found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
            at += 1;
        }
        found.into_iter().filter(|&pid| self.this.is_run_by(pid, &self.folder.0)).collect()
    }
}

fn exit_status(status: ExitStatus) -> u8 {
    let of_signal = status.signal().map(|signal| 128 + signal);
    status.code().or(of_signal).map_or(1, |status| status as u8)
}
