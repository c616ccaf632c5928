//! A sample. Each member is decoded when it is asked for.

use perf_prof_format::{
    abi::{
        PERF_RECORD_MISC_CPUMODE_MASK, PERF_RECORD_MISC_GUEST_KERNEL, PERF_RECORD_MISC_GUEST_USER,
        PERF_RECORD_MISC_HYPERVISOR, PERF_RECORD_MISC_KERNEL, PERF_RECORD_MISC_USER,
    },
    record::{SampleLayout, is_of_guest},
    tracefs::Field,
    value::Value,
};

use super::EventType;

/// A sample. It borrows the bytes of its record.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// The event type.
    pub event: &'a EventType,
    /// The whole record, header included.
    pub record: &'a [u8],
}

impl<'a> Sample<'a> {
    #[inline]
    fn layout(&self) -> &SampleLayout {
        &self.event.layout
    }

    /// Returns the process id and the thread id, in the pid namespace of perf-prof. Both are -1 if the thread is exiting and
    /// the kernel has already removed its ids (`perf_event_pid_type` in `kernel/events/core.c`).
    #[inline]
    pub fn pid_tid(&self) -> (i32, i32) {
        self.layout().pid_tid(self.record).map_or((-1, -1), |(pid, tid)| (pid as i32, tid as i32))
    }

    /// Returns the id of the thread in which the event happened. For an exiting thread whose ids the kernel has removed,
    /// takes the id from the data of the tracepoint. Returns -1 for a span that belongs to no known task.
    #[inline]
    pub fn task(&self) -> i32 {
        match self.pid_tid().1 {
            -1 if self.event.format.is_task_computed() => -1,
            -1 => {
                let common_pid = self.event.format.tracepoint().and_then(|format| format.field("common_pid"));
                match common_pid.and_then(|field| self.field(field)) {
                    Some(Value::Int(pid)) => pid as i32,
                    _ => -1,
                }
            }
            tid => tid,
        }
    }

    /// Returns the time on the perf clock, in nanoseconds.
    #[inline]
    pub fn time(&self) -> u64 {
        self.layout().time(self.record).unwrap_or(0)
    }

    /// Returns the CPU on which the event happened.
    #[inline]
    pub fn cpu(&self) -> u32 {
        self.layout().cpu(self.record).unwrap_or(0)
    }

    /// Returns the id of the task's cgroup; `None` if the samples have none.
    #[inline]
    pub fn cgroup(&self) -> Option<u64> {
        self.layout().cgroup(self.record)
    }

    /// Returns the sample's period.
    #[inline]
    pub fn period(&self) -> u64 {
        self.layout().period(self.record).unwrap_or(0)
    }

    /// Returns the data of the tracepoint: `trace_entry`, then the fields. Empty if the record is truncated.
    #[inline]
    pub fn raw(&self) -> &'a [u8] {
        self.event.layout.raw(self.record).unwrap_or(&[])
    }

    /// Returns whether the sample was taken in a virtual machine.
    #[inline]
    pub fn is_of_guest(&self) -> bool {
        is_of_guest(self.record)
    }

    /// Returns whether the sample was taken in the kernel; `None` if the header of the record does not say.
    #[inline]
    pub fn is_in_kernel(&self) -> Option<bool> {
        let misc = u16::from_ne_bytes(*self.record.get(4..)?.first_chunk()?);
        match misc & PERF_RECORD_MISC_CPUMODE_MASK {
            PERF_RECORD_MISC_KERNEL | PERF_RECORD_MISC_HYPERVISOR | PERF_RECORD_MISC_GUEST_KERNEL => Some(true),
            PERF_RECORD_MISC_USER | PERF_RECORD_MISC_GUEST_USER => Some(false),
            _ => None,
        }
    }

    /// Returns the addresses of the call chain and their context markers, innermost first.
    #[inline]
    pub fn callchain(&self) -> impl Iterator<Item = u64> + 'a {
        let words = self.event.layout.callchain(self.record).unwrap_or(&[]);
        words.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes))
    }

    /// Returns the value of a field; `None` if the record ends before the field.
    #[inline]
    pub fn field(&self, field: &Field) -> Option<Value<'a>> {
        field.value(self.raw())
    }
}
