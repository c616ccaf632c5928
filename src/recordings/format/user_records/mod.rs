//! Parses records that perf's user space writes: the counts of `perf stat record` with the CPUs and threads that they
//! belong to, and errors of AUX decoding. The records are in native byte order.
//!
//! Layouts are those of the structs `perf_record_*` in `tools/lib/perf/include/perf/event.h` of the Linux tree.

use perf_prof_format::{
    abi::{PERF_RECORD_MISC_CPUMODE_MASK, perf_data::*},
    record::{RECORD_HEADER, record_type},
};

use super::bytes::{ByteOrder, ByteReader};

/// Returns a reader of the body of a record, if the record has this type.
fn body(record: &[u8], kind: u32) -> Option<ByteReader<'_>> {
    let body = record.get(RECORD_HEADER..).filter(|_| record_type(record) == kind)?;
    Some(ByteReader::new(body, ByteOrder::Native))
}

fn i32_of(read: &mut ByteReader<'_>) -> Option<i32> {
    read.u32().map(u32::cast_signed)
}

/// Returns a text of a fixed size, up to its NUL.
fn text(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len())]
}

/// The settings of `perf stat record` (PERF_RECORD_STAT_CONFIG, `struct perf_record_stat_config`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatConfig {
    /// How counts are added up.
    pub aggregation: Aggregation,
    /// The interval of `-I` in ms; 0 if there is one round for the whole run.
    pub interval: u64,
    /// Whether the count of an event is scaled if the event was counted only part of the time.
    pub scale: Scaling,
}

/// How `perf stat` adds up the counts of an event (`enum aggr_mode` in `tools/perf/util/stat.h`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aggregation {
    /// There is one sum over all CPUs and threads (AGGR_GLOBAL).
    #[default]
    Global,
    /// `perf stat` keeps the counts separate, or adds them up only when it shows them: `-A`, `--per-core`,
    /// `--per-thread` and others. The value is the mode's number in `enum aggr_mode`.
    Other(u64),
}

/// Whether counts are scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scaling {
    /// Counts are scaled.
    #[default]
    On,
    /// Counts stay as they were read (`perf stat --no-scale`).
    Off,
}

impl Default for StatConfig {
    fn default() -> Self {
        Self { aggregation: Aggregation::Global, interval: 0, scale: Scaling::On }
    }
}

impl StatConfig {
    /// Parses a record. Ignores unknown settings. Missing settings have their defaults.
    pub fn parse(record: &[u8]) -> Option<StatConfig> {
        // The tags of `PERF_STAT_CONFIG_TERM__*`, and the number of AGGR_GLOBAL.
        const AGGR_MODE: u64 = 0;
        const INTERVAL: u64 = 1;
        const SCALE: u64 = 2;
        const AGGR_GLOBAL: u64 = 1;
        let mut read = body(record, PERF_RECORD_STAT_CONFIG)?;
        let mut config = StatConfig::default();
        for _ in 0..read.u64()? {
            match (read.u64()?, read.u64()?) {
                (AGGR_MODE, AGGR_GLOBAL) => config.aggregation = Aggregation::Global,
                (AGGR_MODE, mode) => config.aggregation = Aggregation::Other(mode),
                (INTERVAL, interval) => config.interval = interval,
                (SCALE, scale) => config.scale = if scale == 0 { Scaling::Off } else { Scaling::On },
                _ => {}
            }
        }
        Some(config)
    }
}

/// A count of `perf stat record` (PERF_RECORD_STAT, `struct perf_record_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The id of the event.
    pub id: u64,
    /// The number of the CPU, or -1 if the event was counted on any CPU.
    pub cpu: i32,
    /// The index of the thread in the recording's [`ThreadMap`].
    pub thread: u32,
    /// The count since the start.
    pub val: u64,
    /// The time in ns for which the event was enabled.
    pub ena: u64,
    /// The time in ns for which the event was counted.
    pub run: u64,
}

impl Stat {
    /// Parses a record.
    pub fn parse(record: &[u8]) -> Option<Stat> {
        let mut read = body(record, PERF_RECORD_STAT)?;
        let (id, cpu, thread) = (read.u64()?, i32_of(&mut read)?, read.u32()?);
        Some(Stat { id, cpu, thread, val: read.u64()?, ena: read.u64()?, run: read.u64()? })
    }
}

/// The end of a round of counts (PERF_RECORD_STAT_ROUND, `struct perf_record_stat_round`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatRound {
    /// The kind of round.
    pub kind: RoundKind,
    /// The time in ns since counting started.
    pub time: u64,
}

/// The kind of round (`PERF_STAT_ROUND_TYPE__*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundKind {
    /// An interval of `-I` has passed.
    Interval,
    /// Counting has ended.
    Final,
}

impl StatRound {
    /// Parses a record.
    pub fn parse(record: &[u8]) -> Option<StatRound> {
        let mut read = body(record, PERF_RECORD_STAT_ROUND)?;
        let kind = if read.u64()? == 0 { RoundKind::Interval } else { RoundKind::Final };
        Some(StatRound { kind, time: read.u64()? })
    }
}

/// The threads of a recording (PERF_RECORD_THREAD_MAP, `struct perf_record_thread_map`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadMap {
    /// The thread ids and the names of the threads. The id is -1 if the events were opened for whole CPUs.
    pub threads: Vec<(i32, Vec<u8>)>,
}

impl ThreadMap {
    /// Parses a record.
    pub fn parse(record: &[u8]) -> Option<ThreadMap> {
        const COMM: usize = 16;
        let mut read = body(record, PERF_RECORD_THREAD_MAP)?;
        let count = read.u64()?;
        let mut threads = Vec::new();
        for _ in 0..count {
            let tid = read.u64()? as i32;
            threads.push((tid, text(read.read_bytes(COMM)?).to_vec()));
        }
        Some(ThreadMap { threads })
    }
}

/// The CPUs of a recording (PERF_RECORD_CPU_MAP, `struct perf_record_cpu_map_data`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuMap {
    /// The CPUs. -1 stands for any CPU.
    pub cpus: Vec<i32>,
}

impl CpuMap {
    /// Parses a record.
    pub fn parse(record: &[u8]) -> Option<CpuMap> {
        Self::parse_data(body(record, PERF_RECORD_CPU_MAP)?)
    }

    fn parse_data(mut read: ByteReader<'_>) -> Option<CpuMap> {
        let mut cpus = Vec::new();
        match read.u16()? {
            // PERF_CPU_MAP__CPUS: a list.
            0 => {
                for _ in 0..read.u16()? {
                    let cpu = read.u16()?;
                    cpus.push(if cpu == u16::MAX { -1 } else { cpu.into() });
                }
            }
            // PERF_CPU_MAP__MASK: a mask of words of 4 or 8 bytes.
            1 => {
                let (words, size) = (read.u16()?, read.u16()?);
                match size {
                    4 => {}
                    // If the words have 8 bytes, 4 bytes of padding come before them.
                    8 => {
                        read.u32()?;
                    }
                    _ => return None,
                }
                for word in 0..i32::from(words) {
                    let bits = if size == 8 { read.u64()? } else { read.u32()?.into() };
                    let set = (0..64).filter(|bit| bits >> bit & 1 != 0);
                    cpus.extend(set.map(|bit| word * i32::from(size) * 8 + bit));
                }
            }
            // PERF_CPU_MAP__RANGE_CPUS: the first and the last CPU, and a flag that adds "any CPU".
            2 => {
                let (any, _, first, last) = (read.u8()?, read.u8()?, read.u16()?, read.u16()?);
                cpus.extend((any != 0).then_some(-1));
                cpus.extend((first..=last).map(i32::from));
            }
            _ => return None,
        }
        Some(CpuMap { cpus })
    }
}

/// The CPUs of one event, if they are not the same as the CPUs of the recording (PERF_RECORD_EVENT_UPDATE of the type
/// `PERF_EVENT_UPDATE__CPUS`, `struct perf_record_event_update`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventCpus {
    /// An id of the event.
    pub id: u64,
    /// The CPUs.
    pub cpus: CpuMap,
}

impl EventCpus {
    /// Parses a record. Returns `None` for updates of other types.
    pub fn parse(record: &[u8]) -> Option<EventCpus> {
        let mut read = body(record, PERF_RECORD_EVENT_UPDATE)?;
        let (kind, id) = (read.u64()?, read.u64()?);
        if kind != EVENT_UPDATE_CPUS {
            return None;
        }
        Some(EventCpus { id, cpus: CpuMap::parse_data(read)? })
    }
}

/// An error that was found when AUX area data were decoded (PERF_RECORD_AUXTRACE_ERROR,
/// `struct perf_record_auxtrace_error`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuxtraceError {
    /// The type of the error; 1 for errors in traces of instructions.
    pub kind: u32,
    /// The code of the error.
    pub code: u32,
    /// The CPU, or -1 if the record states none.
    pub cpu: i32,
    /// The process id, or -1 if the record states none.
    pub pid: i32,
    /// The thread id, or -1 if the record states none.
    pub tid: i32,
    /// The address of the instruction at which the error was found.
    pub ip: u64,
    /// The time at which the error was found, in ns; 0 if the recorder did not write the time.
    pub time: u64,
    /// The text of the error.
    pub message: Vec<u8>,
    /// The mode of the CPU (`PERF_RECORD_MISC_CPUMODE_MASK`).
    pub cpumode: u16,
    /// The process id of the virtual machine, or 0 if there is no virtual machine.
    pub machine_pid: i32,
    /// The CPU of the virtual machine, or -1 if there is no virtual machine.
    pub vcpu: i32,
}

impl AuxtraceError {
    /// Parses a record of any version. Older recorders wrote no time, and nothing about virtual machines.
    pub fn parse(record: &[u8]) -> Option<AuxtraceError> {
        const MESSAGE: usize = 64;
        let mut read = body(record, PERF_RECORD_AUXTRACE_ERROR)?;
        let cpumode = u16::from_ne_bytes(*record.get(4..)?.first_chunk()?) & PERF_RECORD_MISC_CPUMODE_MASK;
        let (kind, code) = (read.u32()?, read.u32()?);
        let (cpu, pid, tid) = (i32_of(&mut read)?, i32_of(&mut read)?, i32_of(&mut read)?);
        let (format, ip) = (read.u32()?, read.u64()?);
        let time = if format == 0 { 0 } else { read.u64()? };
        let message = text(read.read_bytes(MESSAGE.min(read.rest().len()))?).to_vec();
        let (machine_pid, vcpu) = match format {
            0 | 1 => (0, -1),
            _ => (i32_of(&mut read)?, i32_of(&mut read)?),
        };
        Some(AuxtraceError { kind, code, cpu, pid, tid, ip, time, message, cpumode, machine_pid, vcpu })
    }
}

#[cfg(test)]
mod tests;
