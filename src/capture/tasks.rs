//! Notices when the tasks that a capture is attached to have exited.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::sys::{CallError, pidfd, procfs};

/// Tasks that may still be running.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    watched: Vec<OwnedFd>,
    /// Tasks without a pidfd: an old kernel, or a thread before Linux 6.9.
    polled: Vec<u32>,
}

/// What a task's id names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A process: it has exited when all of its threads have.
    Process,
    /// A thread.
    Thread,
}

impl Tasks {
    /// Watches `ids`. Those that have exited already are left out.
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

    /// The descriptors that become readable when their task exits.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.watched.iter().map(AsRawFd::as_raw_fd)
    }

    /// A descriptor became readable.
    pub fn exited(&mut self, fd: RawFd) {
        self.watched.retain(|watched| watched.as_raw_fd() != fd);
    }

    /// Whether there are some that have no descriptor, so that their end has to be looked for.
    pub fn are_polled(&self) -> bool {
        !self.polled.is_empty()
    }

    /// Whether all have exited. Looks at those that have no descriptor.
    pub fn all_exited(&mut self) -> bool {
        self.polled.retain(|&id| !procfs::has_exited(id));
        self.watched.is_empty() && self.polled.is_empty()
    }
}

fn gone(error: &CallError) -> bool {
    error.errno() == libc::ESRCH
}
