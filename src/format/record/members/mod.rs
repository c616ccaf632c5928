//! The optional members of a sample: their names, their types and their bytes in the record.
//!
//! A member after a member of variable size has no fixed offset. To find such a member, the members before it are
//! skipped one by one.

use std::iter;

use super::layout::{ABSENT, SampleLayout, member, u64_at};
use crate::{abi::*, value::Value};

/// The cost of a memory access, in units of the processor, mostly cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessCost {
    /// The whole cost.
    pub weight: u64,
    /// The part of the instruction, from its start to its end.
    pub instruction_latency: u16,
}

/// An optional part of a sample. A bit PERF_SAMPLE_* of `sample_type` requests it.
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

/// The type of a member's value, as scripts see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberType {
    /// A number.
    Int,
    /// Bytes, as they are in the record. They start with the number of entries or the size in bytes, except for raw
    /// data.
    Bytes,
    /// The frames of a call chain.
    Callchain,
    /// Counter values by name.
    Read,
    /// Registers by name.
    Registers,
    /// Branches.
    Branches,
}

const WEIGHT: u64 = PERF_SAMPLE_WEIGHT | PERF_SAMPLE_WEIGHT_STRUCT;

/// Every member: the bits that request it, its name, its type and its description. The members are in the order in
/// which scripts see them.
const ALL: [(SampleMember, u64, &str, MemberType, &str); 25] = [
    (Identifier, PERF_SAMPLE_IDENTIFIER, "identifier", MemberType::Int, "the event's id on its CPU or thread"),
    (Ip, PERF_SAMPLE_IP, "ip", MemberType::Int, "address of the instruction"),
    (Pid, PERF_SAMPLE_TID, "pid", MemberType::Int, "process id"),
    (Tid, PERF_SAMPLE_TID, "tid", MemberType::Int, "thread id"),
    (Time, PERF_SAMPLE_TIME, "time", MemberType::Int, "time in ns, of the perf clock"),
    (Addr, PERF_SAMPLE_ADDR, "addr", MemberType::Int, "address of the accessed data or of the page fault"),
    (Id, PERF_SAMPLE_ID, "id", MemberType::Int, "id of the event or of its group's leader"),
    (StreamId, PERF_SAMPLE_STREAM_ID, "stream_id", MemberType::Int, "the event's own id"),
    (Cpu, PERF_SAMPLE_CPU, "cpu", MemberType::Int, "CPU"),
    (Period, PERF_SAMPLE_PERIOD, "period", MemberType::Int, "number of counted events that this sample stands for"),
    (Callchain, PERF_SAMPLE_CALLCHAIN, "callchain", MemberType::Callchain, "call chain, innermost first"),
    (Raw, PERF_SAMPLE_RAW, "raw", MemberType::Bytes, "raw data"),
    (Read, PERF_SAMPLE_READ, "read", MemberType::Read, "the counter's values"),
    (BranchStack, PERF_SAMPLE_BRANCH_STACK, "branch_stack", MemberType::Branches, "branches, the latest first"),
    (RegsUser, PERF_SAMPLE_REGS_USER, "regs_user", MemberType::Registers, "registers of user space"),
    (StackUser, PERF_SAMPLE_STACK_USER, "stack_user", MemberType::Bytes, "user stack, { u64 size; data[size]; }"),
    (Weight, WEIGHT, "weight", MemberType::Int, "cost of the memory access"),
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
    /// Returns the members that samples with this `sample_type` have, in the order in which scripts see them.
    pub fn of_sample_type(sample_type: u64) -> impl Iterator<Item = SampleMember> {
        ALL.iter().filter(move |row| sample_type & row.1 != 0).map(|row| row.0)
    }

    /// Returns the member with this name.
    pub fn named(name: &str) -> Option<SampleMember> {
        ALL.iter().find(|row| row.2 == name).map(|row| row.0)
    }

    /// Returns all members, in the order in which scripts see them.
    pub fn all() -> impl Iterator<Item = SampleMember> {
        ALL.iter().map(|row| row.0)
    }

    /// Returns the names of all members.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ALL.iter().map(|row| row.2)
    }

    /// Returns the bits of `sample_type` that request the member. If several bits request the member, an attr can set
    /// only one of these bits.
    pub fn bits(self) -> u64 {
        ALL[self as usize].1
    }

    /// Returns the member's name.
    pub fn name(self) -> &'static str {
        ALL[self as usize].2
    }

    /// Returns the type of the member's value.
    pub fn kind(self) -> MemberType {
        ALL[self as usize].3
    }

    /// Returns the description of the member.
    pub fn doc(self) -> &'static str {
        ALL[self as usize].4
    }
}

/// The members after the members with a fixed offset, in the order of `perf_output_sample()`.
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

/// The registers in a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers<'a> {
    /// The kind of program that the registers belong to.
    pub abi: RegsAbi,
    /// The attr's mask: one bit for each register in the sample.
    pub mask: u64,
    /// The values of the registers: one native u64 for each bit of the mask. Empty if the sample has no registers.
    pub words: &'a [u8],
}

impl<'a> Registers<'a> {
    /// Returns the bit number and the value of each register.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (u32, u64)> + 'a {
        let mask = self.mask;
        (0..u64::BITS).filter(move |bit| mask >> bit & 1 != 0).zip(words(self.words))
    }
}

/// The value of a counter, or the values of all counters of a group, at the time of the sample (PERF_SAMPLE_READ).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// How long the counter was enabled, in ns.
    pub time_enabled: Option<u64>,
    /// How long the counter was counting, in ns. With multiplexing, it is less than `time_enabled`.
    pub time_running: Option<u64>,
    /// The counter itself, or the counters of its group.
    pub counters: Counters,
}

/// The counters of a reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counters {
    /// The event's own counter.
    One(Counter),
    /// The counters of the event's group (PERF_FORMAT_GROUP), the leader's first.
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
    /// The count.
    pub value: u64,
    /// The id of the counter's event.
    pub id: Option<u64>,
    /// The number of lost samples of the event.
    pub lost: Option<u64>,
}

impl SampleLayout {
    /// Returns the members that samples have, in the order in which scripts see them. The period is always included: if
    /// samples do not contain the period, the attr contains it.
    pub fn members(&self) -> impl Iterator<Item = SampleMember> + use<> {
        SampleMember::of_sample_type(self.format.sample_type | PERF_SAMPLE_PERIOD)
    }

    /// Returns the value of a member that is a number or bytes. Returns `None` if the layout does not have the member,
    /// if the record is cut off, or if the member has another type.
    #[inline]
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
            Aux => self.variable(record, of.bits()).map(Value::Bytes),
            StackUser => {
                let whole = self.variable(record, of.bits())?;
                // A word with the number of valid bytes follows the data. The documented value does not include this
                // word.
                whole.get(..(whole.len() - 8).max(8)).map(Value::Bytes)
            }
            Weight | DataSrc | Transaction | PhysAddr | Cgroup | DataPageSize | CodePageSize => {
                u64_at(self.variable(record, of.bits())?, 0).map(Value::Uint)
            }
            Callchain | Read | RegsUser | RegsIntr | BranchStack => None,
        }
    }

    /// Returns the value of a member that is a number, as 64 bits. Returns `None` as [`SampleLayout::value`] does.
    #[inline]
    pub fn number(&self, of: SampleMember, record: &[u8]) -> Option<u64> {
        match self.value(of, record)? {
            Value::Uint(number) => Some(number),
            Value::Int(number) => Some(number as u64),
            _ => None,
        }
    }

    /// Returns the cost of a sample's memory access; zeros if it was not recorded. If the sample has a struct of costs, the
    /// first one is the weight, and the second one is the latency of the instruction (`union perf_sample_weight` in
    /// `include/uapi/linux/perf_event.h`).
    pub fn access_cost(&self, record: &[u8]) -> AccessCost {
        let number = self.number(SampleMember::Weight, record).unwrap_or(0);
        match self.format.sample_type & PERF_SAMPLE_WEIGHT_STRUCT {
            0 => AccessCost { weight: number, instruction_latency: 0 },
            _ => AccessCost { weight: number as u32 as u64, instruction_latency: (number >> 32) as u16 },
        }
    }

    /// Returns the id of the cgroup of the task in which the sample was taken.
    #[inline]
    pub fn cgroup(&self, record: &[u8]) -> Option<u64> {
        u64_at(self.variable(record, PERF_SAMPLE_CGROUP)?, 0)
    }

    /// Returns whether samples have the cgroup of their task.
    #[inline]
    pub fn has_cgroup(&self) -> bool {
        self.format.sample_type & PERF_SAMPLE_CGROUP != 0
    }

    /// Returns the offset of a member that is at the same offset in every record. Returns `None` if the member has no
    /// fixed offset or if the layout does not have the member.
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
        // The process id and the thread id share one u64.
        (at != ABSENT).then(|| usize::from(at) + if of == Tid { 4 } else { 0 })
    }

    /// Returns the registers of user space.
    #[inline]
    pub fn regs_user<'a>(&self, record: &'a [u8]) -> Option<Registers<'a>> {
        let member = self.variable(record, PERF_SAMPLE_REGS_USER)?;
        Some(Registers { abi: u64_at(member, 0)?.into(), mask: self.format.regs_user, words: member.get(8..)? })
    }

    /// Returns the registers at the time of the sample.
    #[inline]
    pub fn regs_intr<'a>(&self, record: &'a [u8]) -> Option<Registers<'a>> {
        let member = self.variable(record, PERF_SAMPLE_REGS_INTR)?;
        Some(Registers { abi: u64_at(member, 0)?.into(), mask: self.format.regs_intr, words: member.get(8..)? })
    }

    /// Returns the part of the user stack that the kernel could copy. The part starts at the stack pointer.
    #[inline]
    pub fn stack_user<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        let member = self.variable(record, PERF_SAMPLE_STACK_USER)?;
        let data = member.get(8..)?;
        let Some((data, valid)) = data.split_last_chunk::<8>() else { return Some(data) };
        let valid = usize::try_from(u64::from_ne_bytes(*valid)).unwrap_or(usize::MAX);
        Some(&data[..valid.min(data.len())])
    }

    /// Returns the values of the counter, or of the counters of its group.
    pub fn reading(&self, record: &[u8]) -> Option<Reading> {
        let bytes = self.variable(record, PERF_SAMPLE_READ)?;
        let format = self.format.read_format;
        let has = |bit: u64| format & bit != 0;
        // `bytes` has the size of a reading in this format, so it holds all words that are read here.
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

    /// Returns the bytes of a member that comes after the fixed members.
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

    /// Returns the size in bytes of the member at the start of `rest`.
    fn size(&self, bits: u64, rest: &[u8]) -> Option<usize> {
        let count = || usize::try_from(u64_at(rest, 0)?).ok();
        let registers = |mask: u64| Some(if u64_at(rest, 0)? == 0 { 8 } else { 8 + 8 * mask.count_ones() as usize });
        match bits {
            PERF_SAMPLE_READ => self.reading_size(rest),
            PERF_SAMPLE_CALLCHAIN => count()?.checked_mul(8)?.checked_add(8),
            PERF_SAMPLE_RAW => (u32::from_ne_bytes(*rest.first_chunk()?) as usize).checked_add(4),
            PERF_SAMPLE_BRANCH_STACK => {
                // An entry is `struct perf_branch_entry`: from, to, flags. After all entries come the counters of all
                // entries.
                let asked = |bit: u64| usize::from(self.format.branch_sample_type & bit != 0);
                let each = 24 + 8 * asked(PERF_SAMPLE_BRANCH_COUNTERS);
                count()?.checked_mul(each)?.checked_add(8 + 8 * asked(PERF_SAMPLE_BRANCH_HW_INDEX))
            }
            PERF_SAMPLE_REGS_USER => registers(self.format.regs_user),
            PERF_SAMPLE_REGS_INTR => registers(self.format.regs_intr),
            // If there is no data, the word with the number of valid bytes is missing too
            // (perf_output_sample_ustack()).
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

#[inline]
fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes))
}

#[cfg(test)]
mod tests;
