//! Detects that the tasks that a capture is attached to have exited.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use perf_prof_system::{CallError, pidfd, procfs};

/// Tasks that may still be running.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    watched: Vec<OwnedFd>,
    /// The ids of tasks without a pidfd. Before Linux 6.9 threads have no pidfd; on older kernels processes have none
    /// either.
    polled: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A process. It has exited when all of its threads have exited.
    Process,
    /// A thread.
    Thread,
}

impl Tasks {
    /// Watches the tasks `ids`. Tasks that have already exited are left out.
    pub fn watch(ids: &[u32], kind: Kind) -> Self {
        let mut tasks = Tasks::default();
        for &id in ids {
            let fd = match kind {
                Kind::Process => pidfd::of_process(id),
                Kind::Thread => pidfd::of_thread(id),
            };
            match fd {
                Ok(fd) => tasks.watched.push(fd),
                Err(error) if gone(&error) => {}
                Err(_) => tasks.polled.push(id),
            }
        }
        tasks
    }

    /// Returns the pidfds. A pidfd becomes readable when its task exits.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.watched.iter().map(AsRawFd::as_raw_fd)
    }

    /// Removes the task whose pidfd became readable.
    pub fn exited(&mut self, fd: RawFd) {
        self.watched.retain(|watched| watched.as_raw_fd() != fd);
    }

    /// Returns whether some tasks have no pidfd. Their exit has to be checked from time to time.
    pub fn are_polled(&self) -> bool {
        !self.polled.is_empty()
    }

    /// Returns whether all tasks have exited. Also checks the tasks that have no pidfd.
    pub fn all_exited(&mut self) -> bool {
        self.polled.retain(|&id| !procfs::has_exited(id));
        self.watched.is_empty() && self.polled.is_empty()
    }
}

fn gone(error: &CallError) -> bool {
    error.errno() == libc::ESRCH
}
