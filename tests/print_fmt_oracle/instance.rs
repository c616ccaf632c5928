//! A tracefs instance of the test's own, gone when the test is.

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
    /// Makes an instance, or says why it cannot.
    pub fn new(name: &str) -> Result<Instance, String> {
        let path = PathBuf::from(format!("/sys/kernel/tracing/instances/{name}_{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Instance { path })
    }

    fn write(&self, file: &str, value: &str) -> io::Result<()> {
        let error = |error: io::Error| io::Error::new(error.kind(), format!("{file} <- {value}: {error}"));
        fs::write(self.path.join(file), value).map_err(error)
    }

    /// Records the events of the threads of `process` while `workload` runs, of all that they start, and of the kernel's
    /// own threads.
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
        // One function is enough to see how calls are shown; not every kernel can trace any.
        let _ =
            self.write("set_ftrace_filter", "vfs_fsync_range").and_then(|()| self.write("current_tracer", "function"));
        self.write("tracing_on", "1")?;
        workload();
        self.write("trace_marker", "a marker")?;
        self.write("trace_marker_raw", "\x01\x02\0\0raw data")?;
        self.write("tracing_on", "0")?;
        self.write("events/enable", "0")
    }

    /// The CPUs that have a buffer.
    pub fn cpus(&self) -> impl Iterator<Item = u32> + use<> {
        let mut cpus: Vec<u32> = fs::read_dir(self.path.join("per_cpu"))
            .unwrap()
            .flatten()
            .filter_map(|entry| entry.file_name().to_string_lossy().strip_prefix("cpu")?.parse().ok())
            .collect();
        cpus.sort();
        cpus.into_iter()
    }

    /// The text of a CPU's events; they stay in the buffer.
    pub fn text(&self, cpu: u32) -> io::Result<String> {
        let bytes = fs::read(self.path.join(format!("per_cpu/cpu{cpu}/trace")))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The kernel's own count of what is in a CPU's buffer and what was read of it.
    pub fn stats(&self, cpu: u32) -> String {
        let text = fs::read_to_string(self.path.join(format!("per_cpu/cpu{cpu}/stats"))).unwrap_or_default();
        text.lines().collect::<Vec<_>>().join(", ")
    }

    /// The pages of a CPU's buffer, taken out of it.
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
        // Whatever failed before, the instance goes.
        let _ = self.write("tracing_on", "0");
        let _ = self.write("current_tracer", "nop");
        let _ = self.write("events/enable", "0");
        if let Err(error) = fs::remove_dir(&self.path) {
            println!("{}: {error}", self.path.display());
        }
    }
}

/// The ids of the kernel's threads: those without a command line.
fn kernel_threads() -> Vec<String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().bytes().all(|b| b.is_ascii_digit())))
        .filter(|path| is_kernel_thread(path))
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect()
}

/// By `PF_KTHREAD` in the flags that stand 7th behind the name.
fn is_kernel_thread(path: &Path) -> bool {
    const PF_KTHREAD: u64 = 0x0020_0000;
    let Ok(stat) = fs::read_to_string(path.join("stat")) else { return false };
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(6)?.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & PF_KTHREAD != 0)
}
