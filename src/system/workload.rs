//! A command that perf-prof starts. The child process is forked first, so that events can be attached to it. The child
//! executes the command later.

use std::{
    ffi::{CString, OsString},
    io::{self, Read, Write},
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, process::ExitStatusExt},
    },
    process::ExitStatus,
};

use super::{
    call::{CallError, check},
    pipe, process, signals,
};

/// A child process that waits to execute its command, or has executed it.
#[derive(Debug)]
pub struct Workload {
    pid: u32,
    command: String,
    /// The writing end of a pipe. A byte in the pipe lets the child continue. `None` after the byte was written.
    go: Option<OwnedFd>,
    /// The reading end of the pipe to which the child writes its errno if exec fails. A successful exec closes the
    /// child's end.
    failure: OwnedFd,
    status: Option<ExitStatus>,
}

/// The destination of a command's standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stdout {
    /// The standard output of perf-prof.
    Inherited,
    /// The standard error of perf-prof, for a command that must not write to the standard output.
    ToStderr,
}

/// What happens to a command if perf-prof is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IfKilled {
    /// The command continues.
    Continue,
    /// The kernel sends SIGTERM to the command. The kernel does not do this for programs that are set-user-ID or have
    /// file capabilities (PR_SET_PDEATHSIG in prctl(2)).
    End,
}

/// Why a command did not start.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// The command cannot be executed.
    #[error("cannot execute {command}: {source}")]
    Exec {
        /// Name of the command.
        command: String,
        /// The error of exec.
        source: io::Error,
    },
    /// Another system call failed.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl Workload {
    /// Forks a child that waits for [`Workload::start`]. `command` is the program and its arguments.
    pub fn fork(command: &[OsString]) -> Result<Workload, WorkloadError> {
        Self::fork_child(command, Stdout::Inherited, IfKilled::Continue)
    }

    /// Like [`Workload::fork`], but `stdout` says where the command's standard output goes.
    pub fn fork_with(command: &[OsString], stdout: Stdout) -> Result<Workload, WorkloadError> {
        Self::fork_child(command, stdout, IfKilled::Continue)
    }

    /// Like [`Workload::fork`], but the kernel sends SIGTERM to the command when the calling thread ends. For callers
    /// whose commands must not continue after the run.
    pub fn fork_until_end(command: &[OsString]) -> Result<Workload, WorkloadError> {
        Self::fork_child(command, Stdout::Inherited, IfKilled::End)
    }

    fn fork_child(command: &[OsString], stdout: Stdout, if_killed: IfKilled) -> Result<Workload, WorkloadError> {
        let name = command.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let failed = |kind: io::ErrorKind| WorkloadError::Exec { command: name.clone(), source: kind.into() };
        let words: Result<Vec<CString>, _> = command.iter().map(|word| CString::new(word.as_bytes())).collect();
        let words = words.map_err(|_| failed(io::ErrorKind::InvalidInput))?;
        if words.is_empty() {
            return Err(failed(io::ErrorKind::NotFound));
        }
        let mut argv: Vec<*const libc::c_char> = words.iter().map(|word| word.as_ptr()).collect();
        argv.push(std::ptr::null());
        let (go_read, go_write) = pipe::new()?;
        let (failure_read, failure_write) = pipe::new()?;
        let parent = (if_killed == IfKilled::End).then(std::process::id);

        // SAFETY: between fork and exec the child makes only async-signal-safe calls. At the moment of the fork another
        // thread may have held any lock, including the allocator's.
        let pid = check("fork", unsafe { libc::fork() })?;
        if pid == 0 {
            // SAFETY: as above; `argv` ends with a null pointer, and the child's copy of its strings exists until exec.
            unsafe { child(&argv, parent, stdout, raw(&go_read), raw(&go_write), raw(&failure_write)) }
        }
        Ok(Workload { pid: pid as u32, command: name, go: Some(go_write), failure: failure_read, status: None })
    }

    /// Returns the child's process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets the child execute its command. Returns when exec has succeeded or failed.
    pub fn start(&mut self) -> Result<(), WorkloadError> {
        let Some(go) = self.go.take() else { return Ok(()) };
        // The write fails if the child has exited already. The failure pipe is then empty, so no error is reported
        // here; the child's wait status shows how it ended.
        let _ = std::fs::File::from(go).write_all(&[1]);
        let mut errno = [0; 4];
        let failure = self.failure.try_clone().map_err(|error| CallError::new("fcntl", error))?;
        match std::fs::File::from(failure).read_exact(&mut errno) {
            Ok(()) => {
                let source = io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
                Err(WorkloadError::Exec { command: self.command.clone(), source })
            }
            // exec closed the pipe without an error number: the command runs.
            Err(_) => Ok(()),
        }
    }

    /// Returns the child's status if it has exited.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>, CallError> {
        self.wait_with(libc::WNOHANG)
    }

    /// Waits until the child has exited. Returns its status.
    pub fn wait(&mut self) -> Result<ExitStatus, CallError> {
        loop {
            if let Some(status) = self.wait_with(0)? {
                return Ok(status);
            }
        }
    }

    /// Sends a signal to the child if it has not been waited for.
    pub fn signal(&self, signal: i32) {
        if self.status.is_none() {
            // SAFETY: the child was not reaped, so the id still belongs to it.
            unsafe { libc::kill(self.pid as i32, signal) };
        }
    }

    fn wait_with(&mut self, flags: i32) -> Result<Option<ExitStatus>, CallError> {
        if self.status.is_none() {
            let mut status = 0;
            // SAFETY: `status` outlives the call.
            match check("waitpid", unsafe { libc::waitpid(self.pid as i32, &mut status, flags) }) {
                Ok(0) => {}
                Ok(_) => self.status = Some(ExitStatus::from_raw(status)),
                Err(error) if error.errno() == libc::EINTR => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.status)
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        // A child that was never started is killed and reaped here. Closing the pipe is not enough: other children that
        // the script forked may have inherited the writing end. A command that was started continues.
        if self.go.take().is_some() {
            self.signal(libc::SIGKILL);
            let _ = self.wait();
        } else {
            let _ = self.try_wait();
        }
    }
}

/// Waits for a byte from the pipe `go_read`, then executes the command. If exec fails, writes the errno to `failure`.
/// If `parent` is set, the kernel sends SIGTERM to the command when the thread that forked it ends. `parent` is the id
/// of the process that contains this thread.
///
/// # Safety
///
/// To be called only in a forked child. `argv` must end with a null pointer.
unsafe fn child(
    argv: &[*const libc::c_char],
    parent: Option<u32>,
    stdout: Stdout,
    go_read: i32,
    go_write: i32,
    failure: i32,
) -> ! {
    // SAFETY: the caller keeps the conditions above. All calls are async-signal-safe and get live memory.
    unsafe {
        // The child's own copy of the writing end would keep the pipe open for ever.
        libc::close(go_write);
        if stdout == Stdout::ToStderr {
            libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO);
        }
        signals::reset_in_child();
        if parent.is_some_and(|parent| !process::die_with(parent, libc::SIGTERM)) {
            libc::_exit(127);
        }
        let mut byte = 0u8;
        let told = loop {
            let size = libc::read(go_read, (&raw mut byte).cast(), 1);
            if size != -1 || *libc::__errno_location() != libc::EINTR {
                break size == 1;
            }
        };
        if told {
            libc::execvp(argv[0], argv.as_ptr());
            let errno = *libc::__errno_location();
            libc::write(failure, (&raw const errno).cast(), 4);
        }
        libc::_exit(127)
    }
}

fn raw(fd: &OwnedFd) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn a_command_runs_when_it_is_started() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ran");
        let script = "touch \"$1\"; exit 7";
        let mut workload = Workload::fork(&words(&["sh", "-c", script, "sh", file.to_str().unwrap()])).unwrap();
        assert_eq!(workload.try_wait().unwrap(), None);
        assert!(!file.exists());
        workload.start().unwrap();
        assert_eq!(workload.wait().unwrap().code(), Some(7));
        assert!(file.exists());
    }

    #[test]
    fn a_command_that_does_not_exist() {
        let mut workload = Workload::fork(&words(&["/no/such/command"])).unwrap();
        let error = workload.start().unwrap_err().to_string();
        assert_eq!(error, "cannot execute /no/such/command: No such file or directory (os error 2)");
        assert_eq!(workload.wait().unwrap().code(), Some(127));
    }

    #[test]
    fn a_command_that_is_never_started_ends() {
        drop(Workload::fork(&words(&["sleep", "1000"])).unwrap());
    }

    /// Another child, which was forked in the meantime, keeps the pipe open.
    #[test]
    fn a_command_that_is_never_started_does_not_wait_for_a_forked_child() {
        let workload = Workload::fork(&words(&["sleep", "1000"])).unwrap();
        // SAFETY: the child only makes system calls. Its alarm ends it after 20 s, so that a drop that waits for it
        // fails the test and does not block for ever.
        let bystander = unsafe { libc::fork() };
        if bystander == 0 {
            // SAFETY: as above.
            unsafe {
                libc::alarm(20);
                loop {
                    libc::pause();
                }
            }
        }
        drop(workload);
        let mut status = 0;
        // SAFETY: the child was not waited for; `status` outlives the call.
        unsafe {
            libc::kill(bystander, libc::SIGKILL);
            assert_eq!(libc::waitpid(bystander, &mut status, 0), bystander);
        }
        assert_eq!(libc::WTERMSIG(status), libc::SIGKILL, "the workload was dropped only when the bystander had ended");
    }

    #[test]
    fn the_child_has_default_signals() {
        let mut workload = Workload::fork(&words(&["sh", "-c", "kill -PIPE $$; exit 0"])).unwrap();
        workload.start().unwrap();
        assert_eq!(workload.wait().unwrap().signal(), Some(libc::SIGPIPE));
    }
}
