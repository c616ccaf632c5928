//! A tracefs instance, which is removed when the test ends.

use std::{
    fs, io,
    io::Read,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

pub struct Instance {
    path: PathBuf,
}

impl Instance {
    /// Creates an instance, or returns the reason why this is not possible.
    pub fn new(name: &str) -> Result<Instance, String> {
        let path = PathBuf::from(format!("/sys/kernel/tracing/instances/{name}_{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Instance { path })
    }

    fn write(&self, file: &str, value: &str) -> io::Result<()> {
        let error = |error: io::Error| io::Error::new(error.kind(), format!("{file} <- {value}: {error}"));
        fs::write(self.path.join(file), value).map_err(error)
    }

    /// Records events while `workload` runs: events of the threads of `process`, of all tasks that these threads
    /// create, and of kernel threads.
    pub fn record(&self, process: u32, workload: impl FnOnce()) -> io::Result<()> {
        self.write("tracing_on", "0")?;
        self.write("trace_clock", "perf")?;
        self.write("buffer_size_kb", "65536")?;
        self.write("options/overwrite", "0")?;
        self.write("options/hash-ptr", "0")?;
        self.write("options/context-info", "0")?;
        self.write("options/event-fork", "1")?;
        let mut tids: Vec<String> = kernel_threads();
        let threads = fs::read_dir(format!("/proc/{process}/task"))?.flatten();
        tids.extend(threads.map(|thread| thread.file_name().to_string_lossy().into_owned()));
        self.write("set_event_pid", &tids.join(" "))?;
        self.write("events/enable", "1")?;
        // One function is enough to test how function calls are shown. Some kernels have no function tracer.
        let _ =
            self.write("set_ftrace_filter", "vfs_fsync_range").and_then(|()| self.write("current_tracer", "function"));
        self.write("tracing_on", "1")?;
        workload();
        self.write("trace_marker", "a marker")?;
        self.write("trace_marker_raw", "\x01\x02\0\0raw data")?;
        self.write("tracing_on", "0")?;
        self.write("events/enable", "0")
    }

    /// Returns the CPUs that have a buffer.
    pub fn cpus(&self) -> impl Iterator<Item = u32> + use<> {
        let mut cpus: Vec<u32> = fs::read_dir(self.path.join("per_cpu"))
            .unwrap()
            .flatten()
            .filter_map(|entry| entry.file_name().to_string_lossy().strip_prefix("cpu")?.parse().ok())
            .collect();
        cpus.sort();
        cpus.into_iter()
    }

    /// Returns the text of a CPU's events. The events stay in the buffer.
    pub fn text(&self, cpu: u32) -> io::Result<String> {
        let bytes = fs::read(self.path.join(format!("per_cpu/cpu{cpu}/trace")))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns the kernel's counts of the events in a CPU's buffer, and of the events that were already read.
    pub fn stats(&self, cpu: u32) -> String {
        let text = fs::read_to_string(self.path.join(format!("per_cpu/cpu{cpu}/stats"))).unwrap_or_default();
        text.lines().collect::<Vec<_>>().join(", ")
    }

    /// Reads the pages of a CPU's buffer, which removes them from the buffer.
    pub fn raw(&self, cpu: u32) -> io::Result<Vec<u8>> {
        let path = self.path.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
        let mut file = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let mut pages = Vec::new();
        let mut page = [0; super::ring_buffer::PAGE];
        loop {
            match file.read(&mut page) {
                Ok(0) => return Ok(pages),
                Ok(_) => pages.extend(page),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(pages),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // The instance is removed even if an earlier step failed.
        let _ = self.write("tracing_on", "0");
        let _ = self.write("current_tracer", "nop");
        let _ = self.write("events/enable", "0");
        if let Err(error) = fs::remove_dir(&self.path) {
            println!("{}: {error}", self.path.display());
        }
    }
}

/// Returns the ids of the kernel threads.
fn kernel_threads() -> Vec<String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().bytes().all(|b| b.is_ascii_digit())))
        .filter(|path| is_kernel_thread(path))
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect()
}

/// Returns whether a process is a kernel thread: `PF_KTHREAD` is set in its flags, the 7th field after the comm.
fn is_kernel_thread(path: &Path) -> bool {
    const PF_KTHREAD: u64 = 0x0020_0000;
    let Ok(stat) = fs::read_to_string(path.join("stat")) else { return false };
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(6)?.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & PF_KTHREAD != 0)
}
