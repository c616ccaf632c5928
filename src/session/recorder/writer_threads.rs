//! Threads that write a recording. Each thread writes the events of its own CPUs.

use std::{
    os::fd::RawFd,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use perf_prof_capture::{Capture, ExtraReader, RecordConsumer};
use perf_prof_format::{
    record::{Chunk, Source},
    spec::{CpuSet, ThreadSpec, Threads},
};
use perf_prof_recordings::write::{ForeignIds, Stream, WriteError, directory};
use perf_prof_system::{
    eventfd,
    folder::Folder,
    mutex::Mutex,
    procfs,
    topology::{self, Node},
};

use super::container::Destination;

/// The maximum time for which a thread collects records before it writes them. The limit keeps the number of lost records
/// low if the recorder is killed. Without this limit, a CPU with few but steady events would write late: its thread never
/// pauses, and its buffer is full only after minutes.
const GATHER: Duration = Duration::from_millis(100);

/// The results that the writer threads leave for the recorder.
#[derive(Debug, Default)]
pub struct WriterResults {
    left: Mutex<Left>,
}

#[derive(Debug, Default)]
struct Left {
    streams: Vec<(u32, Stream)>,
    failure: Option<WriteError>,
}

impl WriterResults {
    /// Removes and returns the first failure of a thread. Returns `None` if there was none since the last call.
    pub fn take_failure(&self) -> Option<WriteError> {
        self.left.lock().failure.take()
    }

    /// Removes and returns the streams of the threads that have ended, each with the number of its ring.
    pub fn take_streams(&self) -> Vec<(u32, Stream)> {
        std::mem::take(&mut self.left.lock().streams)
    }
}

/// The files that the threads write, and how they write them.
#[derive(Clone, Copy)]
pub struct Files<'a> {
    /// The recording, with its compression level.
    pub destination: &'a Destination,
    /// The open folder of the recording.
    pub folder: &'a Folder,
    /// The number of bytes that are collected before a write.
    pub flush_bytes: usize,
    /// Handles samples with the id of another program's event.
    pub strays: Option<&'a ForeignIds>,
}

/// Splits a capture among threads that write into the folder `files.folder`. If a thread fails, it makes the eventfd
/// `wake` readable.
pub fn split(capture: &mut Capture, threads: &Threads, files: &Files<'_>, wake: RawFd) -> Result<Arc<WriterResults>> {
    let &Files { destination, folder, flush_bytes, strays } = files;
    let ring_cpus = capture.ring_cpus();
    // The side-band records of other CPUs are few: the main thread writes them.
    let Some(cpus) = capture.cpus_of_events() else {
        bail!(
            "--threads cannot be used with -t: each traced thread has one ring for all CPUs, which cannot be divided; use -p"
        );
    };
    let online = procfs::online_cpus()?;
    let layout = layout(threads, &cpus, &online, group)?;
    let shared = Arc::new(WriterResults::default());
    let mut lanes = Vec::new();
    for ThreadSpec { cpus, affinity } in layout {
        let mut streams = Vec::new();
        for (ring, _) in ring_cpus.iter().enumerate().filter(|(_, cpu)| cpu.is_some_and(|cpu| cpus.contains(cpu))) {
            let stream = directory::stream(folder, ring, capture.layout(0), destination.level());
            let mut stream = stream.with_context(|| format!("cannot write {destination}"))?;
            stream.gather(flush_bytes);
            strays.cloned().into_iter().for_each(|strays| stream.set_foreign_ids(strays));
            streams.push((ring as u32, stream));
        }
        let taker = Box::new(Writer { streams, shared: Arc::clone(&shared), wake, flushed: Instant::now() });
        lanes.push(ExtraReader { cpus, affinity: Some(affinity), taker });
    }
    capture.split(lanes)?;
    Ok(shared)
}

/// Returns the threads for these CPUs. `group` returns the CPUs in the same core, package or NUMA node as a CPU.
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
                    bail!("--threads: CPU {cpu} does not exist or is offline; the online CPUs are {online}");
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
        bail!(
            "--threads: CPU {cpu} is recorded, but no thread writes its events; add it to --threads, or \
             exclude it with -C"
        );
    }
    Ok(specs)
}

/// Returns the CPUs in the same core, package or NUMA node as `cpu`. The set is empty if the kernel does not report
/// these CPUs.
fn group(threads: &Threads, cpu: u32) -> CpuSet {
    match threads {
        Threads::Core => topology::cpus_of_cpu(cpu, "thread_siblings_list"),
        Threads::Package => topology::cpus_of_cpu(cpu, "core_siblings_list"),
        Threads::Numa => {
            let mut of_nodes = topology::nodes().into_iter().map(Node::cpus);
            of_nodes.find(|cpus| cpus.contains(cpu)).unwrap_or_default()
        }
        Threads::Cpu | Threads::Spec(_) => CpuSet::default(),
    }
}

/// Writes the records that a thread reads. The records of each ring go into a file of their own.
struct Writer {
    streams: Vec<(u32, Stream)>,
    shared: Arc<WriterResults>,
    /// The eventfd that wakes the recorder after a failure.
    wake: RawFd,
    /// The time at which the streams were last flushed.
    flushed: Instant,
}

impl Writer {
    fn note(&self, result: Result<(), WriteError>) {
        if let Err(error) = result {
            self.shared.left.lock().failure.get_or_insert(error);
            eventfd::signal(self.wake);
        }
    }
}

impl RecordConsumer for Writer {
    fn consume(&mut self, chunk: Chunk) {
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
        self.shared.left.lock().streams.extend(streams);
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use perf_prof_format::{abi::*, record::SampleLayout};

    use super::*;

    /// Checks the layout on a machine with eight CPUs, with two CPUs per core and four per package.
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

    /// If a CPU always has a few events, its thread never pauses, and its buffer takes long to fill. Without a limit,
    /// the files of a killed recorder could be empty.
    #[test]
    fn a_few_events_all_the_time_are_written_soon() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let layout = SampleLayout::new(PERF_SAMPLE_TIME, 0);
        let record = [9u32.to_ne_bytes(), (16u32 << 16).to_ne_bytes(), [1; 4], [2; 4]].concat();
        let stream = Stream::new(file.reopen().unwrap(), 0, layout, None).unwrap();
        let flushed = Instant::now() + Duration::from_secs(3600);
        let mut writer = Writer { streams: vec![(0, stream)], shared: Arc::default(), wake: -1, flushed };
        let size = || file.as_file().metadata().unwrap().len();
        writer.consume(Chunk::new(0, record.clone(), None));
        assert_eq!(size(), 0);
        writer.flushed = Instant::now().checked_sub(GATHER).unwrap();
        writer.consume(Chunk::new(0, record, None));
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
        check(
            "0-3/3:4-8/4",
            "0-7",
            expect!["error: --threads: CPU 8 does not exist or is offline; the online CPUs are 0-7"],
        );
        check("0/9", "0", expect!["error: --threads: CPU 9 does not exist or is offline; the online CPUs are 0-7"]);
        check(
            "0-3/3",
            "0-4",
            expect![
                "error: --threads: CPU 4 is recorded, but no thread writes its events; add it to --threads, or \
                 exclude it with -C"
            ],
        );
    }
}
