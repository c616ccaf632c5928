//! Cgroups for tests.

use std::{
    fs,
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::Duration,
};

use super::machine::{Need, needs, skip};

/// A cgroup, which is removed when this value is dropped.
pub struct Cgroup {
    pub name: String,
    pub path: PathBuf,
}

impl Cgroup {
    pub fn new() -> Cgroup {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        needs([Need::Cgroups]);
        let name = format!("perf-prof-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = perf_prof_system::cgroup::resolve("/").unwrap()[0].join(&name);
        if let Err(error) = fs::create_dir(&path) {
            skip(Need::Cgroups, format!("{}: {error}", path.display()));
        }
        Cgroup { name, path }
    }

    /// Creates a cgroup that may use at most this many bytes of memory.
    pub fn with_memory(limit: u64) -> Cgroup {
        Self::with_limit("memory", ["memory.limit_in_bytes", "memory.max"], limit)
    }

    /// Creates a cgroup that may contain at most this many threads.
    pub fn with_threads(limit: u64) -> Cgroup {
        Self::with_limit("pids", ["pids.max", "pids.max"], limit)
    }

    /// Creates a cgroup in the hierarchy, of version 1 or 2, with this controller. `files` are the names of the file
    /// for the limit in version 1 and in version 2.
    fn with_limit(controller: &str, files: [&str; 2], limit: u64) -> Cgroup {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("perf-prof-test-{controller}-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let first = format!("/sys/fs/cgroup/{controller}");
        let controllers = fs::read_to_string("/sys/fs/cgroup/cgroup.subtree_control").unwrap_or_default();
        let (root, file) = if fs::exists(format!("{first}/cgroup.procs")).unwrap_or(false) {
            (first.as_str(), files[0])
        } else if controllers.split_whitespace().any(|of| of == controller) {
            ("/sys/fs/cgroup", files[1])
        } else {
            skip(Need::Cgroups, format!("no cgroup hierarchy has the controller {controller}"))
        };
        let cgroup = Cgroup { path: PathBuf::from(root).join(&name), name };
        let made = fs::create_dir(&cgroup.path).and_then(|()| fs::write(cgroup.path.join(file), limit.to_string()));
        if let Err(error) = made {
            skip(Need::Cgroups, format!("{}: {error}", cgroup.path.display()));
        }
        cgroup
    }

    /// Creates a cgroup below this cgroup. The new cgroup has to be dropped first.
    pub fn below(&self, name: &str) -> Cgroup {
        let path = self.path.join(name);
        fs::create_dir(&path).unwrap();
        Cgroup { name: format!("{}/{name}", self.name), path }
    }

    /// Returns a shell that moves into the cgroup and then executes its arguments.
    pub fn shell(&self) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("echo $$ > {} && exec \"$@\"", self.procs()), "sh"]);
        shell
    }

    /// Returns the file to which the ids of processes are written, to move them into the cgroup.
    pub fn procs(&self) -> String {
        self.path.join("cgroup.procs").display().to_string()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The tasks of the cgroup have exited, but the kernel may need a moment to notice. A failed test may have left
        // some.
        for _ in 0..2000 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        eprintln!("{} could not be removed", self.path.display());
    }
}
