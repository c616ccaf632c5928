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

    /// Makes a cgroup that may use so many bytes of memory, in the hierarchy that has the controller `memory`.
    pub fn with_memory(limit: u64) -> Cgroup {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("perf-prof-test-memory-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let has_memory = |folder: &str| {
            let controllers = fs::read_to_string(format!("{folder}/cgroup.subtree_control")).unwrap_or_default();
            controllers.split_whitespace().any(|controller| controller == "memory")
        };
        let (root, file) = if fs::exists("/sys/fs/cgroup/memory/memory.limit_in_bytes").unwrap_or(false) {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else if has_memory("/sys/fs/cgroup") {
            ("/sys/fs/cgroup", "memory.max")
        } else {
            skip(Need::Cgroups, "no cgroup hierarchy with the controller memory")
        };
        let cgroup = Cgroup { path: PathBuf::from(root).join(&name), name };
        let made = fs::create_dir(&cgroup.path).and_then(|()| fs::write(cgroup.path.join(file), limit.to_string()));
        if let Err(error) = made {
            skip(Need::Cgroups, format!("{}: {error}", cgroup.path.display()));
        }
        cgroup
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
