//! Detects that the tasks that a capture is attached to have exited, or that their cgroups were removed.

use std::{
    fs,
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use perf_prof_system::{CallError, pidfd, procfs};

/// The interval in which cgroups are looked at. Nothing tells of the removal of a cgroup's folder in each of the hierarchies.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Tasks that may still be running.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    watched: Vec<OwnedFd>,
    /// The ids of tasks without a pidfd. Before Linux 6.9 threads have no pidfd; on older kernels processes have none
    /// either.
    polled: Vec<u32>,
    /// The folders of cgroups, with their inodes. A cgroup that is made again in the same folder is another one, whose events
    /// the capture does not get.
    cgroups: Vec<(PathBuf, u64)>,
    /// When the cgroups are looked at next; `None` for at once.
    next_look: Option<Instant>,
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

    /// Watches the tasks of the cgroups with these folders. They have exited when all folders are removed.
    pub fn of_cgroups(folders: &[PathBuf]) -> Self {
        let cgroups = folders.iter().filter_map(|folder| Some((folder.clone(), inode(folder)?))).collect();
        Tasks { cgroups, ..Tasks::default() }
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

    /// Returns whether all tasks have exited. Also checks the tasks that have no pidfd, and cgroups.
    pub fn all_exited(&mut self) -> bool {
        self.polled.retain(|&id| !procfs::has_exited(id));
        if !self.cgroups.is_empty() && self.next_look.is_none_or(|next| next <= Instant::now()) {
            self.cgroups.retain(|(folder, before)| inode(folder) == Some(*before));
            self.next_look = Some(Instant::now() + LOOK_INTERVAL);
        }
        self.watched.is_empty() && self.polled.is_empty() && self.cgroups.is_empty()
    }
}

fn inode(folder: &Path) -> Option<u64> {
    Some(fs::metadata(folder).ok()?.ino())
}

fn gone(error: &CallError) -> bool {
    error.errno() == libc::ESRCH
}
