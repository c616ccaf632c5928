//! Makes records of `sched:sched_wakeup` in memory, as a kernel would write them, and delivers them to a program.

use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex},
    time::Instant,
};

use perf_prof_events::event::{Context, EventType, Format, Sink, Stats};
use perf_prof_format::{
    abi::*,
    record::{Batch, Chunk, EventIds, Recycle, SampleLayout, Sorter, TrailerLayout},
    tracefs::{EventFormat, NoKernel},
};
use perf_prof_python::script::Program;
use perf_prof_session::engine::pump::{LossWindow, Pump, PumpSettings};
use perf_prof_session::spine::{About, EventAttr};

pub const FORMAT: &str = "name: sched_wakeup
ID: 374
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:char comm[16];	offset:8;	size:16;	signed:0;
	field:pid_t pid;	offset:24;	size:4;	signed:1;
	field:int prio;	offset:28;	size:4;	signed:1;
	field:int target_cpu;	offset:32;	size:4;	signed:1;

print fmt: \"comm=%s pid=%d prio=%d target_cpu=%03d\", REC->comm, REC->pid, REC->prio, REC->target_cpu
";

const SAMPLE_TYPE: u64 =
    PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ID | PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD | PERF_SAMPLE_RAW;
/// The id of the event.
const ID: u64 = 1000;
/// The size of a chunk in bytes. The reader of rings makes chunks of this size.
const CHUNK: usize = 256 << 10;

/// Returns a record of the same size as one from the kernel: a header, five members, the raw size and the raw data.
pub fn record(time: u64, cpu: u32) -> Vec<u8> {
    sample(1234, time, cpu, None)
}

/// Returns a sample of a process, with this call chain if there is one.
pub fn sample(pid: u32, time: u64, cpu: u32, chain: Option<&[u64]>) -> Vec<u8> {
    let chain: Vec<u64> = chain.map_or(Vec::new(), |chain| [chain.len() as u64].iter().chain(chain).copied().collect());
    let mut raw = 374u16.to_ne_bytes().to_vec();
    raw.extend([0, 0]);
    raw.extend(1234i32.to_ne_bytes());
    raw.extend(*b"worker\0\0\0\0\0\0\0\0\0\0");
    for number in [4321 + (time % 7) as i32, 120, cpu as i32] {
        raw.extend(number.to_ne_bytes());
    }
    let mut bytes = PERF_RECORD_SAMPLE.to_ne_bytes().to_vec();
    bytes.extend([0, 0]);
    bytes.extend((8 + 5 * 8 + 8 * chain.len() as u16 + 4 + raw.len() as u16).to_ne_bytes());
    bytes.extend(pid.to_ne_bytes());
    bytes.extend(pid.to_ne_bytes());
    bytes.extend(time.to_ne_bytes());
    bytes.extend(ID.to_ne_bytes());
    bytes.extend(u64::from(cpu).to_ne_bytes());
    bytes.extend(1u64.to_ne_bytes());
    chain.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
    bytes.extend((raw.len() as u32).to_ne_bytes());
    bytes.extend(raw);
    bytes
}

pub fn event() -> EventType {
    event_of(SAMPLE_TYPE)
}

fn event_of(sample_type: u64) -> EventType {
    let format = EventFormat::parse("sched", FORMAT).unwrap();
    let layout = SampleLayout::new(sample_type, 0);
    EventType { alias: None, format: Format::Tracepoint(Arc::new(format)), layout, max_stack: None }
}

/// Returns the run to which a program belongs.
pub fn run(rings: usize) -> Arc<About> {
    run_of(event(), Context::new(Box::new(NoKernel), 0), rings)
}

/// Returns a run whose events have call chains.
pub fn run_with_chains(context: Context) -> Arc<About> {
    run_of(event_of(SAMPLE_TYPE | PERF_SAMPLE_CALLCHAIN), context, 1)
}

fn run_of(event: EventType, context: Context, rings: usize) -> Arc<About> {
    Arc::new(About {
        events: vec![event],
        is_delivered: vec![true],
        attrs: vec![EventAttr::default()],
        ring_cpus: (0..rings as u32).map(Some).collect(),
        ..About::without_events(Arc::new(context), Arc::new(Stats::new(1, rings)))
    })
}

/// Chunks of records that can be delivered again and again without a copy.
pub struct Memory {
    home: Arc<ChunkPool>,
    rings: usize,
    pub events: u64,
}

#[derive(Default)]
struct ChunkPool(Mutex<Vec<(u32, Vec<u8>)>>);

/// Returns the memory of a chunk of this ring to the pool.
struct ReturnToPool(Arc<ChunkPool>, u32);

impl Recycle for ReturnToPool {
    fn recycle(&self, memory: Vec<u8>) {
        self.0.0.lock().unwrap().push((self.1, memory));
    }
}

impl Memory {
    /// Makes `events` records, spread evenly over the rings, as if all CPUs were equally busy.
    pub fn new(events: u64, rings: usize) -> Memory {
        let ring = |time| (time % rings as u64) as u32;
        Memory::of(rings, (0..events).map(|time| (ring(time) as usize, record(1_000_000 + time, ring(time)))))
    }

    /// Makes chunks of these records, which are given with their rings.
    pub fn of(rings: usize, records: impl Iterator<Item = (usize, Vec<u8>)>) -> Memory {
        let home = Arc::new(ChunkPool::default());
        let mut open: Vec<Vec<u8>> = vec![Vec::with_capacity(CHUNK); rings];
        let mut events = 0;
        for (ring, bytes) in records {
            events += 1;
            if open[ring].len() + bytes.len() > CHUNK {
                let full = std::mem::replace(&mut open[ring], Vec::with_capacity(CHUNK));
                home.0.lock().unwrap().push((ring as u32, full));
            }
            open[ring].extend(bytes);
        }
        let rest = open.into_iter().enumerate().filter(|(_, bytes)| !bytes.is_empty());
        home.0.lock().unwrap().extend(rest.map(|(ring, bytes)| (ring as u32, bytes)));
        // Chunks are sorted by the time of their first record, so they are in order within each ring. Chunks return to
        // the pool in the order of their use, so the order stays.
        home.0.lock().unwrap().sort_by_key(|(_, bytes)| u64::from_ne_bytes(bytes[16..24].try_into().unwrap()));
        Memory { home, rings, events }
    }

    fn chunks(&self) -> Vec<Chunk> {
        let all = std::mem::take(&mut *self.home.0.lock().unwrap());
        let way = |ring| Some(Arc::new(ReturnToPool(self.home.clone(), ring)) as Arc<dyn Recycle>);
        let mut chunks: Vec<_> = all.into_iter().collect();
        chunks.sort_by_key(|(_, bytes)| u64::from_ne_bytes(bytes[16..24].try_into().unwrap()));
        chunks.into_iter().map(|(ring, bytes)| Chunk::new(ring, bytes, way(ring))).collect()
    }

    /// Delivers all records. They are in the order of time only within each ring.
    pub fn deliver(&self, program: &mut Program, run: &About) {
        let mut pump = self.pump(run);
        for chunk in self.chunks() {
            push(&mut pump, program, &Batch::Ring(chunk));
        }
    }

    /// Delivers all records in the order of time. Each round of the reader brings as many chunks as there are rings.
    pub fn deliver_in_order(&self, program: &mut Program, run: &About) {
        let mut pump = self.pump(run);
        let (sample, trailer) = (run.events[0].layout, TrailerLayout::new(SAMPLE_TYPE));
        let mut sorter = Sorter::new(sample, trailer, std::time::Duration::ZERO);
        let mut chunks = self.chunks().into_iter().peekable();
        while chunks.peek().is_some() {
            sorter.begin_round(Instant::now());
            for chunk in chunks.by_ref().take(self.rings) {
                sorter.push(chunk);
            }
            sorter.end_round();
            while let Some(batch) = sorter.next_batch() {
                push(&mut pump, program, &Batch::Sorted(batch));
            }
        }
        sorter.finish();
        while let Some(batch) = sorter.next_batch() {
            push(&mut pump, program, &Batch::Sorted(batch));
        }
    }

    fn pump(&self, run: &About) -> Pump {
        Pump::new(PumpSettings {
            ids: EventIds::new(&[(ID, 0)]),
            layout: run.events[0].layout,
            trailer: TrailerLayout::new(SAMPLE_TYPE),
            context: run.context.clone(),
            stats: run.stats.clone(),
            window: LossWindow::Zero,
            rings: self.rings,
            limit: None,
        })
    }
}

fn push(pump: &mut Pump, program: &mut Program, batch: &Batch) {
    program.enter(&mut |program| {
        let flow = pump.deliver(batch, program, |_| ControlFlow::Continue(()));
        assert!(flow.is_continue(), "{flow:?}");
    });
}
