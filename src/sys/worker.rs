//! Processes that do a part of our work: forked copies of this one, which end when we do.

use std::{
    fs::File,
    io,
    os::{
        fd::AsRawFd,
        unix::{fs::OpenOptionsExt, process::ExitStatusExt},
    },
    process::ExitStatus,
};

use super::{
    call::{CallError, check},
    process,
};

/// A forked copy of this process.
#[derive(Debug)]
pub struct Worker {
    pid: libc::pid_t,
    status: Option<ExitStatus>,
}

/// Where a worker's stdout goes.
#[derive(Debug)]
pub enum Stdout<'a> {
    /// To ours.
    Ours,
    /// To a file.
    File(&'a File),
}

impl Worker {
    /// Forks a worker that does `work`, whose result is its exit status. To be called while this process has no other
    /// thread: a lock that one holds would be held for ever in the worker.
    pub fn fork(stdout: Stdout<'_>, work: impl FnOnce() -> u8) -> Result<Worker, CallError> {
        let parent = std::process::id();
        // SAFETY: by what is asked of callers this process has one thread, so that its copy is whole.
        let pid = check("fork", unsafe { libc::fork() })?;
        if pid != 0 {
            return Ok(Worker { pid, status: None });
        }
        // A terminal's Ctrl-C goes to its parent, who hands it on; otherwise it would come twice.
        // SAFETY: takes numbers only; a process can always lead a group of its own.
        unsafe { libc::setpgid(0, 0) };
        // SAFETY: takes numbers only.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        // SAFETY: always callable.
        if unsafe { libc::getppid() } as u32 != parent {
            // It was gone before it could be asked for.
            process::exit_now(1);
        }
        if let Stdout::File(file) = stdout {
            // SAFETY: both are descriptors; what 1 was is closed by it.
            if unsafe { libc::dup2(file.as_raw_fd(), 1) } == -1 {
                process::exit_now(1);
            }
        }
        process::exit_now(work())
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// Its status, if it has ended.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>, CallError> {
        if self.status.is_none() {
            let mut status = 0;
            // SAFETY: the number lives across the call.
            match check("waitpid", unsafe { libc::waitpid(self.pid, &mut status, libc::WNOHANG) })? {
                0 => {}
                _ => self.status = Some(ExitStatus::from_raw(status)),
            }
        }
        Ok(self.status)
    }

    /// Sends it a signal, if it has not ended.
    pub fn signal(&self, signal: i32) {
        if self.status.is_none() {
            // SAFETY: takes numbers only; it was not waited for, so its id is its own.
            unsafe { libc::kill(self.pid, signal) };
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.status.is_none() {
            self.signal(libc::SIGKILL);
            // SAFETY: no status is asked for.
            unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
        }
    }
}

/// A file without a name in the folder for temporary files, which goes when it is closed.
pub fn nameless_file() -> io::Result<File> {
    File::options().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(std::env::temp_dir())
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
        // A test's process has threads: the worker does nothing that takes a lock.
        let work = || {
            // SAFETY: a number and bytes that live across the call.
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
            // SAFETY: always callable.
            unsafe { libc::pause() };
        };
        let mut worker = Worker::fork(Stdout::Ours, forever).unwrap();
        worker.signal(libc::SIGTERM);
        assert_eq!(ended(&mut worker).signal(), Some(libc::SIGTERM));
    }
}
