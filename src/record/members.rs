//! The members that a sample may have beyond those that every event has: their names, and their bytes in the record.
//!
//! Members of variable size have no fixed place, so they are found by walking from the first of them.

use std::iter;

use super::layout::{ABSENT, SampleLayout, member, u64_at};
use crate::{abi::*, value::Value};

/// A member of samples, as PERF_SAMPLE_* bits of `sample_type` ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "`SampleMember::doc` says what each is")]
pub enum SampleMember {
    Identifier,
    Ip,
    Pid,
    Tid,
    Time,
    Addr,
    Id,
    StreamId,
    Cpu,
    Period,
    Callchain,
    Raw,
    Read,
    BranchStack,
    RegsUser,
    StackUser,
    Weight,
    DataSrc,
    Transaction,
    RegsIntr,
    PhysAddr,
    Aux,
    Cgroup,
    DataPageSize,
    CodePageSize,
}

use SampleMember::*;

/// What a member's value is to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberType {
    /// A number.
    Int,
    /// Bytes as they stand in the record, with the count or size in front.
    Bytes,
    /// Frames.
    Callchain,
    /// Counter values by name.
    Read,
    /// Registers by name.
    Registers,
}

const WEIGHT: u64 = PERF_SAMPLE_WEIGHT | PERF_SAMPLE_WEIGHT_STRUCT;

/// Every member: the bits that ask for it, its name, its type, what it is. In the order in which programs see them.
const ALL: [(SampleMember, u64, &str, MemberType, &str); 25] = [
    (Identifier, PERF_SAMPLE_IDENTIFIER, "identifier", MemberType::Int, "the event's id on its CPU or thread"),
    (Ip, PERF_SAMPLE_IP, "ip", MemberType::Int, "address of the instruction"),
    (Pid, PERF_SAMPLE_TID, "pid", MemberType::Int, "process id"),
    (Tid, PERF_SAMPLE_TID, "tid", MemberType::Int, "thread id"),
    (Time, PERF_SAMPLE_TIME, "time", MemberType::Int, "time in ns, of the perf clock"),
    (Addr, PERF_SAMPLE_ADDR, "addr", MemberType::Int, "address of the data, as of the page that was missing"),
    (Id, PERF_SAMPLE_ID, "id", MemberType::Int, "id of the event or of its group's leader"),
    (StreamId, PERF_SAMPLE_STREAM_ID, "stream_id", MemberType::Int, "the event's own id"),
    (Cpu, PERF_SAMPLE_CPU, "cpu", MemberType::Int, "CPU"),
    (Period, PERF_SAMPLE_PERIOD, "period", MemberType::Int, "how much was counted for this sample"),
    (Callchain, PERF_SAMPLE_CALLCHAIN, "callchain", MemberType::Callchain, "call chain, innermost first"),
    (Raw, PERF_SAMPLE_RAW, "raw", MemberType::Bytes, "raw data"),
    (Read, PERF_SAMPLE_READ, "read", MemberType::Read, "the counter's values"),
    (BranchStack, PERF_SAMPLE_BRANCH_STACK, "branch_stack", MemberType::Bytes, "{ u64 nr; lbr[nr]; }"),
    (RegsUser, PERF_SAMPLE_REGS_USER, "regs_user", MemberType::Registers, "registers of user space"),
    (StackUser, PERF_SAMPLE_STACK_USER, "stack_user", MemberType::Bytes, "user stack, { u64 size; data[size]; }"),
    (Weight, WEIGHT, "weight", MemberType::Int, "what the access cost"),
    (DataSrc, PERF_SAMPLE_DATA_SRC, "data_src", MemberType::Int, "where the data came from, perf_mem_data_src"),
    (Transaction, PERF_SAMPLE_TRANSACTION, "transaction", MemberType::Int, "why a transaction was aborted"),
    (RegsIntr, PERF_SAMPLE_REGS_INTR, "regs_intr", MemberType::Registers, "registers when the sample was taken"),
    (PhysAddr, PERF_SAMPLE_PHYS_ADDR, "phys_addr", MemberType::Int, "physical address of the data"),
    (Aux, PERF_SAMPLE_AUX, "aux", MemberType::Bytes, "AUX data, { u64 size; data[size]; }"),
    (Cgroup, PERF_SAMPLE_CGROUP, "cgroup", MemberType::Int, "id of the perf_event cgroup"),
    (DataPageSize, PERF_SAMPLE_DATA_PAGE_SIZE, "data_page_size", MemberType::Int, "size of the data's page"),
    (CodePageSize, PERF_SAMPLE_CODE_PAGE_SIZE, "code_page_size", MemberType::Int, "size of the instruction's page"),
];

impl SampleMember {
    /// The members that samples with this `sample_type` have, in the order in which programs see them.
    pub fn of(sample_type: u64) -> impl Iterator<Item = SampleMember> {
        ALL.iter().filter(move |row| sample_type & row.1 != 0).map(|row| row.0)
    }

    /// The member with this name.
    pub fn named(name: &str) -> Option<SampleMember> {
        ALL.iter().find(|row| row.2 == name).map(|row| row.0)
    }

    /// The names of all members.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ALL.iter().map(|row| row.2)
    }

    /// The bits of `sample_type` that ask for it; more than one where they exclude each other.
    pub fn bits(self) -> u64 {
        ALL[self as usize].1
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        ALL[self as usize].2
    }

    /// What its value is.
    pub fn kind(self) -> MemberType {
        ALL[self as usize].3
    }

    /// What it means.
    pub fn doc(self) -> &'static str {
        ALL[self as usize].4
    }
}

/// Members behind the fixed ones, in the order of `perf_output_sample()`.
const VARIABLE: [u64; 15] = [
    PERF_SAMPLE_READ,
    PERF_SAMPLE_CALLCHAIN,
    PERF_SAMPLE_RAW,
    PERF_SAMPLE_BRANCH_STACK,
    PERF_SAMPLE_REGS_USER,
    PERF_SAMPLE_STACK_USER,
    WEIGHT,
    PERF_SAMPLE_DATA_SRC,
    PERF_SAMPLE_TRANSACTION,
    PERF_SAMPLE_REGS_INTR,
    PERF_SAMPLE_PHYS_ADDR,
    PERF_SAMPLE_CGROUP,
    PERF_SAMPLE_DATA_PAGE_SIZE,
    PERF_SAMPLE_CODE_PAGE_SIZE,
    PERF_SAMPLE_AUX,
];

/// Registers of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers<'a> {
    /// Which kind of program they are of.
    pub abi: RegsAbi,
    /// The attr's mask: a bit for each register that there is.
    pub mask: u64,
    /// A native u64 per bit of the mask; empty when there are none.
    pub words: &'a [u8],
}

impl<'a> Registers<'a> {
    /// The registers by the bits of their mask.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u64)> + 'a {
        let mask = self.mask;
        (0..u64::BITS).filter(move |bit| mask >> bit & 1 != 0).zip(words(self.words))
    }
}

/// What a counter showed when the sample was taken (PERF_SAMPLE_READ).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// How long it was enabled, in ns.
    pub time_enabled: Option<u64>,
    /// How long it counted, in ns.
    pub time_running: Option<u64>,
    /// The counter itself, or those of its group.
    pub counters: Counters,
}

/// The counters of a reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counters {
    /// The event's own.
    One(Counter),
    /// Those of its group (PERF_FORMAT_GROUP), the leader first.
    Group(Vec<Counter>),
}

impl Default for Counters {
    fn default() -> Self {
        Counters::Group(Vec::new())
    }
}

/// A counter's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// What it counted.
    pub value: u64,
    /// The id of its event.
    pub id: Option<u64>,
    /// Samples that it lost.
    pub lost: Option<u64>,
}

impl SampleLayout {
    /// The members that samples have, in the order in which programs see them. Their period is always known.
    pub fn members(&self) -> impl Iterator<Item = SampleMember> + use<> {
        SampleMember::of(self.format.sample_type | PERF_SAMPLE_PERIOD)
    }

    /// The value of a member that is a number or bytes; `None` where the layout does not have it or the record is cut
    /// off, and for members of other kinds.
    pub fn value<'a>(&self, of: SampleMember, record: &'a [u8]) -> Option<Value<'a>> {
        let fixed = |at| member(record, at).map(Value::Uint);
        match of {
            Identifier => fixed(self.identifier),
            Ip => fixed(self.ip),
            Pid => self.pid_tid(record).map(|(pid, _)| Value::Int((pid as i32).into())),
            Tid => self.pid_tid(record).map(|(_, tid)| Value::Int((tid as i32).into())),
            Time => fixed(self.time),
            Addr => fixed(self.addr),
            Id => fixed(self.sample_id),
            StreamId => fixed(self.stream_id),
            Cpu => self.cpu(record).map(|cpu| Value::Uint(cpu.into())),
            Period => self.period(record).map(Value::Uint),
            Raw => self.raw(record).map(Value::Bytes),
            BranchStack | Aux => self.variable(record, of.bits()).map(Value::Bytes),
            StackUser => {
                let whole = self.variable(record, of.bits())?;
                // Behind data stands how much of it is valid, which is no part of what programs are promised.
                whole.get(..(whole.len() - 8).max(8)).map(Value::Bytes)
            }
            Weight | DataSrc | Transaction | PhysAddr | Cgroup | DataPageSize | CodePageSize => {
                u64_at(self.variable(record, of.bits())?, 0).map(Value::Uint)
            }
            Callchain | Read | RegsUser | RegsIntr => None,
        }
    }

    /// Where a member lies in every record; `None` for one without a fixed place, and one that the layout does not have.
    pub fn fixed_offset(&self, of: SampleMember) -> Option<usize> {
        let at = match of {
            Identifier => self.identifier,
            Ip => self.ip,
            Pid | Tid => self.tid,
            Time => self.time,
            Addr => self.addr,
            Id => self.sample_id,
            StreamId => self.stream_id,
            Cpu => self.cpu,
            Period => self.period,
            _ => ABSENT,
        };
        // Process and thread share a word.
        (at != ABSENT).then(|| usize::from(at) + if of == Tid { 4 } else { 0 })
    }

    /// The registers of user space.
    pub fn regs_user<'a>(&self, record: &'a [u8]) -> Option<Registers<'a>> {
        let member = self.variable(record, PERF_SAMPLE_REGS_USER)?;
        Some(Registers { abi: u64_at(member, 0)?.into(), mask: self.format.regs_user, words: member.get(8..)? })
    }

    /// The registers when the sample was taken.
    pub fn regs_intr<'a>(&self, record: &'a [u8]) -> Option<Registers<'a>> {
        let member = self.variable(record, PERF_SAMPLE_REGS_INTR)?;
        Some(Registers { abi: u64_at(member, 0)?.into(), mask: self.format.regs_intr, words: member.get(8..)? })
    }

    /// The user stack from the stack pointer on, as much of it as could be copied.
    pub fn stack_user<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        let member = self.variable(record, PERF_SAMPLE_STACK_USER)?;
        let data = member.get(8..)?;
        let Some((data, valid)) = data.split_last_chunk::<8>() else { return Some(data) };
        let valid = usize::try_from(u64::from_ne_bytes(*valid)).unwrap_or(usize::MAX);
        Some(&data[..valid.min(data.len())])
    }

    /// The values of the counter.
    pub fn reading(&self, record: &[u8]) -> Option<Reading> {
        let bytes = self.variable(record, PERF_SAMPLE_READ)?;
        let format = self.format.read_format;
        let has = |bit: u64| format & bit != 0;
        // The size was worked out from the same format, so there are as many words as are taken here.
        let mut words = words(bytes);
        let first = words.next()?;
        let time_enabled = has(PERF_FORMAT_TOTAL_TIME_ENABLED).then(|| words.next()).flatten();
        let time_running = has(PERF_FORMAT_TOTAL_TIME_RUNNING).then(|| words.next()).flatten();
        let counter = |value, words: &mut dyn Iterator<Item = u64>| {
            let id = has(PERF_FORMAT_ID).then(|| words.next()).flatten();
            Counter { value, id, lost: has(PERF_FORMAT_LOST).then(|| words.next()).flatten() }
        };
        let counters = if has(PERF_FORMAT_GROUP) {
            Counters::Group(iter::from_fn(|| Some(counter(words.next()?, &mut words))).collect())
        } else {
            Counters::One(counter(first, &mut words))
        };
        Some(Reading { time_enabled, time_running, counters })
    }

    /// The bytes of a member behind the fixed ones.
    pub(super) fn variable<'a>(&self, record: &'a [u8], which: u64) -> Option<&'a [u8]> {
        let has = |bits: u64| self.format.sample_type & bits != 0;
        if !has(which) {
            return None;
        }
        let mut rest = record.get(self.fixed_end as usize..)?;
        for bits in VARIABLE.into_iter().filter(|&bits| has(bits)) {
            let (member, after) = rest.split_at_checked(self.size(bits, rest)?)?;
            if bits == which {
                return Some(member);
            }
            rest = after;
        }
        None
    }

    /// The size of the member that `rest` begins with.
    fn size(&self, bits: u64, rest: &[u8]) -> Option<usize> {
        let count = || usize::try_from(u64_at(rest, 0)?).ok();
        let registers = |mask: u64| Some(if u64_at(rest, 0)? == 0 { 8 } else { 8 + 8 * mask.count_ones() as usize });
        match bits {
            PERF_SAMPLE_READ => self.reading_size(rest),
            PERF_SAMPLE_CALLCHAIN => count()?.checked_mul(8)?.checked_add(8),
            PERF_SAMPLE_RAW => (u32::from_ne_bytes(*rest.first_chunk()?) as usize).checked_add(4),
            PERF_SAMPLE_BRANCH_STACK => {
                // An entry is `struct perf_branch_entry`: from, to, flags. The counters of all follow them.
                let asked = |bit: u64| usize::from(self.format.branch_sample_type & bit != 0);
                let each = 24 + 8 * asked(PERF_SAMPLE_BRANCH_COUNTERS);
                count()?.checked_mul(each)?.checked_add(8 + 8 * asked(PERF_SAMPLE_BRANCH_HW_INDEX))
            }
            PERF_SAMPLE_REGS_USER => registers(self.format.regs_user),
            PERF_SAMPLE_REGS_INTR => registers(self.format.regs_intr),
            // Without data, there is no word behind it that says how much is valid (perf_output_sample_ustack()).
            PERF_SAMPLE_STACK_USER => match count()? {
                0 => Some(8),
                size => size.checked_add(16),
            },
            PERF_SAMPLE_AUX => count()?.checked_add(8),
            _ => Some(8),
        }
    }

    fn reading_size(&self, rest: &[u8]) -> Option<usize> {
        let has = |bit: u64| usize::from(self.format.read_format & bit != 0);
        let times = has(PERF_FORMAT_TOTAL_TIME_ENABLED) + has(PERF_FORMAT_TOTAL_TIME_RUNNING);
        let each = 1 + has(PERF_FORMAT_ID) + has(PERF_FORMAT_LOST);
        let words = if self.format.read_format & PERF_FORMAT_GROUP != 0 {
            usize::try_from(u64_at(rest, 0)?).ok()?.checked_mul(each)?.checked_add(1 + times)?
        } else {
            each + times
        };
        words.checked_mul(8)
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes))
}

#[cfg(test)]
mod tests;
