//! A command that is started by us: forked first, so that events can be attached to it, executed later.

use std::{
    ffi::{CString, OsString},
    io::{self, Read, Write},
    os::{
        fd::{OwnedFd, RawFd},
        unix::{ffi::OsStrExt, process::ExitStatusExt},
    },
    process::ExitStatus,
};

use super::{
    call::{CallError, check},
    eventfd, pipe, signals,
};

/// A child that waits to become its command, or has become it.
#[derive(Debug)]
pub struct Workload {
    pid: u32,
    command: String,
    /// Writing to it lets the child go on; it is there as long as nothing was written.
    go: Option<OwnedFd>,
    /// The child's errno when exec fails; closed by exec when it does not.
    failure: OwnedFd,
    status: Option<ExitStatus>,
}

/// Where a command's standard output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stdout {
    /// Where ours does.
    Inherited,
    /// To the standard error: ours is not for it.
    ToStderr,
}

/// Why a workload did not start.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// It is no command.
    #[error("cannot execute {command}: {source}")]
    Exec {
        /// Its name.
        command: String,
        /// exec's error.
        source: io::Error,
    },
    /// Another system call failed.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl Workload {
    /// Forks a child that waits for [`Workload::start`]. `command` is the program and its arguments.
    pub fn fork(command: &[OsString]) -> Result<Workload, WorkloadError> {
        Self::fork_with(command, Stdout::Inherited)
    }

    /// The same, and says where its standard output goes.
    pub fn fork_with(command: &[OsString], stdout: Stdout) -> Result<Workload, WorkloadError> {
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

        // SAFETY: between fork and exec the child does only what is async-signal-safe: another thread may have held any
        // lock, the allocator's included, at the moment of the fork.
        let pid = check("fork", unsafe { libc::fork() })?;
        if pid == 0 {
            // SAFETY: as above; `argv` ends with a null pointer and its texts live as long as the image.
            unsafe { child(&argv, stdout, raw(&go_read), raw(&go_write), raw(&failure_write)) }
        }
        Ok(Workload { pid: pid as u32, command: name, go: Some(go_write), failure: failure_read, status: None })
    }

    /// The child's process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets the child execute its command, and waits until it has done so or failed.
    pub fn start(&mut self) -> Result<(), WorkloadError> {
        let Some(go) = self.go.take() else { return Ok(()) };
        // A child that is gone already has closed its end; the pipe of failures tells nothing then, which is right.
        let _ = std::fs::File::from(go).write_all(&[1]);
        let mut errno = [0; 4];
        let failure = self.failure.try_clone().map_err(|error| CallError::new("fcntl", error))?;
        match std::fs::File::from(failure).read_exact(&mut errno) {
            Ok(()) => {
                let source = io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
                Err(WorkloadError::Exec { command: self.command.clone(), source })
            }
            // Nothing was written before exec closed it.
            Err(_) => Ok(()),
        }
    }

    /// Makes the eventfd `wake` readable when the child exits.
    pub fn wake_at_exit(&self, wake: RawFd) {
        let pid = self.pid;
        let wait = move || {
            signals::block_in_this_thread();
            // SAFETY: all zeroes is a siginfo, which lives across the call. WNOWAIT leaves the child to be reaped by us.
            while unsafe {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                libc::waitid(libc::P_PID, pid, &mut info, libc::WEXITED | libc::WNOWAIT)
            } == -1
                && CallError::last("waitid").errno() == libc::EINTR
            {}
            eventfd::signal(wake);
        };
        // Without the thread, its end is noticed with the next thing that happens.
        let _ = std::thread::Builder::new().name("perf-prof-child".to_owned()).spawn(wait);
    }

    /// The child's status when it has exited.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>, CallError> {
        self.wait_with(libc::WNOHANG)
    }

    /// Waits until the child has exited.
    pub fn wait(&mut self) -> Result<ExitStatus, CallError> {
        loop {
            if let Some(status) = self.wait_with(0)? {
                return Ok(status);
            }
        }
    }

    /// Sends a signal to the child, as long as it has not been waited for.
    pub fn signal(&self, signal: i32) {
        if self.status.is_none() {
            // SAFETY: the child was not reaped, so the id is still its own.
            unsafe { libc::kill(self.pid as i32, signal) };
        }
    }

    fn wait_with(&mut self, flags: i32) -> Result<Option<ExitStatus>, CallError> {
        if self.status.is_none() {
            let mut status = 0;
            // SAFETY: `status` lives across the call.
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
        // A child that was never started is ended and reaped here. Closing the pipe would not do: a child that the
        // script forked has inherited the writing end. One that runs goes on.
        if self.go.take().is_some() {
            self.signal(libc::SIGKILL);
            let _ = self.wait();
        } else {
            let _ = self.try_wait();
        }
    }
}

/// Becomes the command when it is told to.
///
/// # Safety
///
/// Only in a forked child; `argv` ends with a null pointer.
unsafe fn child(argv: &[*const libc::c_char], stdout: Stdout, go_read: i32, go_write: i32, failure: i32) -> ! {
    // SAFETY: the caller's promise; every call here is async-signal-safe and is given live memory.
    unsafe {
        // Our own copy of the writing end would keep the pipe open for ever.
        libc::close(go_write);
        if stdout == Stdout::ToStderr {
            libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO);
        }
        signals::reset_in_child();
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

    /// The pipe stays open in whoever was forked meanwhile.
    #[test]
    fn a_command_that_is_never_started_does_not_wait_for_a_forked_child() {
        let workload = Workload::fork(&words(&["sleep", "1000"])).unwrap();
        // SAFETY: the child only makes system calls. It would let a drop that waits for it end, but too late.
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
        // SAFETY: the child was not waited for; `status` lives across the call.
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
