//! Threads that write a recording, each the events of its own CPUs.

use std::{
    fs,
    os::fd::RawFd,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::{
    capture::{Capture, Lane, Take},
    perfdata::write::{Level, Strays, Stream, WriteError, directory},
    record::{Chunk, Source},
    spec::{CpuSet, ThreadSpec, Threads},
    sys::{eventfd, procfs},
};

/// No longer than this are records gathered, so that what a recorder that is killed had read is in its files. A CPU that
/// has a few events all the time never pauses, and takes minutes to fill what may be gathered.
const GATHER: Duration = Duration::from_millis(100);

/// What threads leave to the session.
#[derive(Debug, Default)]
pub struct Shared {
    left: Mutex<Left>,
}

#[derive(Debug, Default)]
struct Left {
    streams: Vec<(u32, Stream)>,
    failure: Option<WriteError>,
}

impl Shared {
    /// The first failure, if there was one that nobody has taken.
    pub fn take_failure(&self) -> Option<WriteError> {
        self.lock().failure.take()
    }

    /// The rings' streams of threads that have ended.
    pub fn take_streams(&self) -> Vec<(u32, Stream)> {
        std::mem::take(&mut self.lock().streams)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Splits a capture among threads that write into a directory.
pub fn split(
    capture: &mut Capture,
    threads: &Threads,
    path: &Path,
    (level, gathered): (Option<Level>, usize),
    strays: Option<&Strays>,
    wake: RawFd,
) -> Result<Arc<Shared>> {
    let ring_cpus = capture.ring_cpus();
    let Some(cpus) = ring_cpus.iter().copied().collect::<Option<CpuSet>>() else {
        bail!(
            "--threads: a thread that is attached to has one ring, whatever CPU it runs on; attach to its process (-p)"
        );
    };
    let online = procfs::online_cpus()?;
    let layout = layout(threads, &cpus, &online, group)?;
    let shared = Arc::new(Shared::default());
    let mut lanes = Vec::new();
    for ThreadSpec { cpus, affinity } in layout {
        let mut streams = Vec::new();
        for (ring, _) in ring_cpus.iter().enumerate().filter(|(_, cpu)| cpu.is_some_and(|cpu| cpus.contains(cpu))) {
            let stream = directory::stream(path, ring, capture.layout(0), level);
            let mut stream = stream.with_context(|| format!("cannot write '{}'", path.display()))?;
            stream.gather(gathered);
            strays.cloned().into_iter().for_each(|strays| stream.adopt(strays));
            streams.push((ring as u32, stream));
        }
        let taker = Box::new(Writer { streams, shared: Arc::clone(&shared), wake, flushed: Instant::now() });
        lanes.push(Lane { cpus, affinity: Some(affinity), taker });
    }
    capture.split(lanes)?;
    Ok(shared)
}

/// The threads for these CPUs. `group` gives the CPUs that a CPU shares something with.
fn layout(
    threads: &Threads,
    cpus: &CpuSet,
    online: &CpuSet,
    group: impl Fn(&Threads, u32) -> CpuSet,
) -> Result<Vec<ThreadSpec>> {
    let mut specs: Vec<ThreadSpec> = Vec::new();
    match threads {
        Threads::Spec(asked) => {
            for spec in asked {
                let named = spec.cpus.iter().chain(spec.affinity.iter());
                if let Some(cpu) = named.into_iter().find(|&cpu| !online.contains(cpu)) {
                    bail!("--threads: there is no CPU {cpu}, or it is offline; online are {online}");
                }
                let own: CpuSet = spec.cpus.iter().filter(|&cpu| cpus.contains(cpu)).collect();
                if !own.is_empty() {
                    specs.push(ThreadSpec { cpus: own, affinity: spec.affinity.clone() });
                }
            }
        }
        _ => {
            for cpu in cpus.iter().collect::<Vec<_>>() {
                if specs.iter().any(|spec| spec.cpus.contains(cpu)) {
                    continue;
                }
                let group: CpuSet =
                    group(threads, cpu).iter().chain([cpu]).filter(|&other| cpus.contains(other)).collect();
                specs.push(ThreadSpec { cpus: group.clone(), affinity: group });
            }
        }
    }
    if let Some(cpu) = cpus.iter().find(|&cpu| !specs.iter().any(|spec| spec.cpus.contains(cpu))) {
        bail!("--threads: CPU {cpu} is recorded and no thread writes its events; name it, or leave it out (-C)");
    }
    Ok(specs)
}

/// The CPUs of the same core, package or node of memory; none where the kernel does not tell.
fn group(threads: &Threads, cpu: u32) -> CpuSet {
    let topology = |name| format!("/sys/devices/system/cpu/cpu{cpu}/topology/{name}");
    let list = |path: &str| -> CpuSet {
        fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or_default()
    };
    match threads {
        Threads::Core => list(&topology("thread_siblings_list")),
        Threads::Package => list(&topology("core_siblings_list")),
        Threads::Numa => {
            const NODES: &str = "/sys/devices/system/node";
            let nodes = list(&format!("{NODES}/online"));
            let of_node = nodes.iter().map(|node| list(&format!("{NODES}/node{node}/cpulist")));
            of_node.into_iter().find(|cpus| cpus.contains(cpu)).unwrap_or_default()
        }
        Threads::Cpu | Threads::Spec(_) => CpuSet::default(),
    }
}

/// Writes what its reader reads, each ring into a file of its own.
struct Writer {
    streams: Vec<(u32, Stream)>,
    shared: Arc<Shared>,
    /// The eventfd that tells the session to look.
    wake: RawFd,
    /// When all that had come was written.
    flushed: Instant,
}

impl Writer {
    fn note(&self, result: Result<(), WriteError>) {
        if let Err(error) = result {
            self.shared.lock().failure.get_or_insert(error);
            eventfd::signal(self.wake);
        }
    }
}

impl Take for Writer {
    fn take(&mut self, chunk: Chunk) {
        if let Some((_, stream)) = self.streams.iter_mut().find(|(ring, _)| *ring == chunk.ring) {
            let result = stream.records(chunk.bytes());
            self.note(result);
        }
        if self.flushed.elapsed() >= GATHER {
            self.pause();
        }
    }

    fn pause(&mut self) {
        for at in 0..self.streams.len() {
            let result = self.streams[at].1.flush();
            self.note(result);
        }
        self.flushed = Instant::now();
    }

    fn end(&mut self) {
        self.pause();
        let streams = std::mem::take(&mut self.streams);
        self.shared.lock().streams.extend(streams);
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::{abi::*, record::SampleLayout};

    /// On a machine of eight CPUs, two of them to a core and four to a package.
    #[track_caller]
    fn check(threads: &str, cpus: &str, expected: Expect) {
        let group = |threads: &Threads, cpu: u32| match threads {
            Threads::Core => [cpu, cpu ^ 1].into_iter().collect(),
            Threads::Package => (cpu / 4 * 4..cpu / 4 * 4 + 4).collect(),
            _ => CpuSet::default(),
        };
        let online = "0-7".parse().unwrap();
        let shown = match layout(&threads.parse().unwrap(), &cpus.parse().unwrap(), &online, group) {
            Ok(specs) => Threads::Spec(specs).to_string(),
            Err(error) => format!("error: {error}"),
        };
        expected.assert_eq(&shown);
    }

    /// A killed recorder's files were empty: records of a CPU that never paused were gathered by their size alone.
    #[test]
    fn a_few_events_all_the_time_are_written_soon() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let layout = SampleLayout::new(PERF_SAMPLE_TIME, 0);
        let record = [9u32.to_ne_bytes(), (16u32 << 16).to_ne_bytes(), [1; 4], [2; 4]].concat();
        let stream = Stream::new(file.reopen().unwrap(), 0, layout, None).unwrap();
        let flushed = Instant::now() + Duration::from_secs(3600);
        let mut writer = Writer { streams: vec![(0, stream)], shared: Arc::default(), wake: -1, flushed };
        let size = || file.as_file().metadata().unwrap().len();
        writer.take(Chunk::new(0, record.clone(), None));
        assert_eq!(size(), 0);
        writer.flushed = Instant::now().checked_sub(GATHER).unwrap();
        writer.take(Chunk::new(0, record, None));
        assert_eq!(size(), 32);
        assert!(writer.shared.take_failure().is_none());
    }

    #[test]
    fn layouts() {
        check("cpu", "0-3", expect!["0/0:1/1:2/2:3/3"]);
        check("core", "0-3", expect!["0-1/0-1:2-3/2-3"]);
        check("core", "0,2-3", expect!["0/0:2-3/2-3"]);
        check("package", "0-7", expect!["0-3/0-3:4-7/4-7"]);
        check("numa", "0,5", expect!["0/0:5/5"]);
        check("0-3/3:4-7/4", "2,5", expect!["2/3:5/4"]);
        check("0-3/3:4-7/4", "0-1", expect!["0-1/3"]);
        check("0-3/3:4-8/4", "0-7", expect!["error: --threads: there is no CPU 8, or it is offline; online are 0-7"]);
        check("0/9", "0", expect!["error: --threads: there is no CPU 9, or it is offline; online are 0-7"]);
        check(
            "0-3/3",
            "0-4",
            expect![
                "error: --threads: CPU 4 is recorded and no thread writes its events; name it, or leave it out (-C)"
            ],
        );
    }
}
