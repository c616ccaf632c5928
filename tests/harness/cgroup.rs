//! A cgroup of a test's own.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::Duration,
};

use super::machine::{Need, needs, skip};

/// A cgroup, which goes with it.
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

    /// The file that takes the numbers of processes into it.
    pub fn procs(&self) -> String {
        self.path.join("cgroup.procs").display().to_string()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Its tasks have exited; the kernel may take a moment to see it.
        while fs::remove_dir(&self.path).is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY)) {
            thread::sleep(Duration::from_millis(5));
        }
    }
}
