//! A cgroup for one test.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::Duration,
};

use super::machine::{Need, needs, skip};

/// A cgroup. It is removed when this is dropped.
pub struct Cgroup {
    pub name: String,
    pub path: PathBuf,
}

impl Cgroup {
    pub fn new() -> Cgroup {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        needs([Need::Cgroups]);
        let name = format!("perf-prof-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = perf_prof_core::sys::cgroup::resolve("/").unwrap()[0].join(&name);
        if let Err(error) = fs::create_dir(&path) {
            skip(Need::Cgroups, format!("{}: {error}", path.display()));
        }
        Cgroup { name, path }
    }

    /// Returns the file to which the ids of processes are written, to move them into the cgroup.
    pub fn procs(&self) -> String {
        self.path.join("cgroup.procs").display().to_string()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The tasks in it have exited, but the kernel may take a moment to notice.
        while fs::remove_dir(&self.path).is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY)) {
            thread::sleep(Duration::from_millis(5));
        }
    }
}
