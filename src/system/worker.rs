//! Worker processes: forked copies of this process that do a part of its work. If this process ends, the kernel kills
//! the workers.

use std::{
    fs::File,
    io,
    os::{
        fd::AsRawFd,
        unix::{fs::OpenOptionsExt, process::ExitStatusExt},
    },
    process::ExitStatus,
};

use rustix::fs::{MemfdFlags, memfd_create};

use super::{
    call::{CallError, check, failed},
    process,
};

/// A worker process. Dropping the value kills the worker if it still runs.
#[derive(Debug)]
pub struct Worker {
    pid: libc::pid_t,
    status: Option<ExitStatus>,
}

/// The destination of a worker's stdout.
#[derive(Debug)]
pub enum Stdout<'a> {
    /// The stdout of this process.
    Inherited,
    /// A file.
    File(&'a File),
}

impl Worker {
    /// Forks a worker that runs `work`. The result of `work` is the worker's exit status. Must be called while this
    /// process has only one thread. If another thread held a lock at the fork, the lock would stay locked in the worker
    /// for ever.
    pub fn fork(stdout: Stdout<'_>, work: impl FnOnce() -> u8) -> Result<Worker, CallError> {
        let parent = std::process::id();
        // SAFETY: callers must ensure that this process has only one thread, so the copy is complete.
        let pid = check("fork", unsafe { libc::fork() })?;
        if pid != 0 {
            return Ok(Worker { pid, status: None });
        }
        // In its own process group, the worker does not get the Ctrl-C of a terminal. The parent gets the signal and
        // forwards it. Without the process group, the worker would get the signal twice.
        // SAFETY: the call takes only numbers. A process may always create its own group.
        unsafe { libc::setpgid(0, 0) };
        if !process::die_with(parent, libc::SIGKILL) {
            process::exit_now(1);
        }
        if let Stdout::File(file) = stdout {
            // SAFETY: the file's descriptor is open; dup2 closes the old descriptor 1.
            if unsafe { libc::dup2(file.as_raw_fd(), 1) } == -1 {
                process::exit_now(1);
            }
        }
        process::exit_now(work())
    }

    /// Returns the worker's process id.
    pub fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// Returns the worker's exit status if it has ended.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>, CallError> {
        if self.status.is_none() {
            let mut status = 0;
            // SAFETY: `status` outlives the call.
            match check("waitpid", unsafe { libc::waitpid(self.pid, &mut status, libc::WNOHANG) })? {
                0 => {}
                _ => self.status = Some(ExitStatus::from_raw(status)),
            }
        }
        Ok(self.status)
    }

    /// Sends a signal to the worker if it has not ended.
    pub fn signal(&self, signal: i32) {
        if self.status.is_none() {
            // SAFETY: the call takes only numbers. The worker was not waited for, so the id still belongs to it.
            unsafe { libc::kill(self.pid, signal) };
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.status.is_none() {
            self.signal(libc::SIGKILL);
            // SAFETY: a null pointer means that the status is not stored.
            unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
        }
    }
}

/// Creates a file without a name in the folder for temporary files. Closing the file deletes it.
pub fn nameless_file() -> io::Result<File> {
    File::options().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(std::env::temp_dir())
}

/// Creates a file in memory, which can be written even if the disk is full.
pub fn memory_file() -> Result<File, CallError> {
    memfd_create("perf-prof", MemfdFlags::CLOEXEC).map(File::from).map_err(failed("memfd_create"))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Seek},
        time::Duration,
    };

    use super::*;

    fn ended(worker: &mut Worker) -> ExitStatus {
        loop {
            if let Some(status) = worker.try_wait().unwrap() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_worker_writes_to_its_file_and_ends_with_its_status() {
        let mut file = nameless_file().unwrap();
        // The test process has several threads, so the worker must not take any lock.
        let work = || {
            // SAFETY: the bytes are static, and their number is 4.
            let written = unsafe { libc::write(1, b"part".as_ptr().cast(), 4) };
            if written == 4 { 7 } else { 1 }
        };
        let mut worker = Worker::fork(Stdout::File(&file), work).unwrap();
        assert_eq!(ended(&mut worker).code(), Some(7));
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "part");
    }

    #[test]
    fn a_worker_can_be_ended() {
        let forever = || loop {
            // SAFETY: the call has no preconditions.
            unsafe { libc::pause() };
        };
        let mut worker = Worker::fork(Stdout::Inherited, forever).unwrap();
        worker.signal(libc::SIGTERM);
        assert_eq!(ended(&mut worker).signal(), Some(libc::SIGTERM));
    }
}
