//! The attr of an event as a recording stores it, in any size and byte order.

use perf_prof_format::{
    abi::{PERF_SAMPLE_PERIOD, PERF_TYPE_TRACEPOINT},
    record::{SampleFormat, SampleLayout, TrailerLayout},
};

use super::bytes::{ByteOrder, ByteReader};

/// `struct perf_event_attr` as a recording stores it. If the recorder's version of the attr lacks a member, this member
/// is 0. `include/uapi/linux/perf_event.h` defines the layout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// `type`: PERF_TYPE_*.
    pub kind: u32,
    /// `config`. For a tracepoint, this is the id of the tracepoint.
    pub config: u64,
    /// `sample_period` or `sample_freq`.
    pub sample_period: u64,
    /// The flags as one word. [`Attr::has`] reads them.
    pub flags: u64,
    /// `config1`, or the address of a breakpoint.
    pub config1: u64,
    /// `config2`, or the length of a breakpoint.
    pub config2: u64,
    /// The size in bytes of the user stack that is copied into each sample.
    pub sample_stack_user: u32,
    /// The maximum number of frames in a callchain; 0 if no maximum was requested.
    pub sample_max_stack: u16,
    /// The id of the clock of the timestamps, if `use_clockid` is set.
    pub clockid: i32,
    /// The members that determine the layout of samples.
    pub format: SampleFormat,
    /// The bytes of the attr in the recording.
    pub bytes: Box<[u8]>,
}

/// A flag of an attr. The value is the number of the flag's bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum AttrFlag {
    /// Tasks that are created later inherit the event. Events of CPUs are not inherited.
    Inherit = 1,
    /// The event is not counted in user space.
    ExcludeUser = 4,
    /// The event is not counted in the kernel.
    ExcludeKernel = 5,
    /// The event is not counted in the hypervisor.
    ExcludeHv = 6,
    /// `sample_period` is a frequency.
    Freq = 10,
    /// Records other than samples end with a sample id.
    SampleIdAll = 18,
    /// The event is not counted outside of guests.
    ExcludeHost = 19,
    /// The event is not counted in guests.
    ExcludeGuest = 20,
    /// Callchains have no kernel frames.
    ExcludeCallchainKernel = 21,
    /// Callchains have no user-space frames.
    ExcludeCallchainUser = 22,
    /// `clockid` is set.
    UseClockid = 25,
}

/// The size of the first version of the attr, PERF_ATTR_SIZE_VER0.
pub(crate) const SMALLEST_ATTR: usize = 64;

impl Attr {
    /// Parses an attr from `bytes`. Members that are beyond the end of the stored attr are 0. Returns `None` if `bytes`
    /// are too short for an attr.
    pub fn parse(bytes: &[u8], order: ByteOrder) -> Option<Attr> {
        let mut read = ByteReader::new(bytes.get(..bytes.len().min(512))?, order);
        let (kind, size) = (read.u32()?, read.u32()? as usize);
        // The attr states its size, which may be smaller than `bytes`. A size of 0 stands for the size of the first
        // version.
        let size = if size == 0 { SMALLEST_ATTR } else { size };
        let mut read = ByteReader::new(bytes.get(8..size.min(bytes.len()))?, order);
        let (config, sample_period) = (read.u64()?, read.u64()?);
        let (sample_type, read_format) = (read.u64()?, read.u64()?);
        let flags = flags(read.read_bytes(8)?, order);
        let stored = bytes[..size.min(bytes.len())].into();
        let mut attr = Attr { kind, config, sample_period, flags, bytes: stored, ..Attr::default() };
        attr.format = SampleFormat { sample_type, read_format, period: sample_period, ..SampleFormat::default() };
        // Skips wakeup_events and bp_type.
        read.read_bytes(8)?;
        attr.config1 = read.u64().unwrap_or(0);
        attr.config2 = read.u64().unwrap_or(0);
        attr.format.branch_sample_type = read.u64().unwrap_or(0);
        attr.format.regs_user = read.u64().unwrap_or(0);
        attr.sample_stack_user = read.u32().unwrap_or(0);
        attr.clockid = read.u32().unwrap_or(0) as i32;
        attr.format.regs_intr = read.u64().unwrap_or(0);
        let _aux_watermark = read.u32();
        attr.sample_max_stack = read.u16().unwrap_or(0);
        Some(attr)
    }

    /// Returns whether a flag is set.
    pub fn has(&self, flag: AttrFlag) -> bool {
        self.flags >> flag as u32 & 1 != 0
    }

    /// Returns how the samples of a tracepoint are selected, if there is not one for each time that it happened: `199 a second`,
    /// `1 of 100`. `None` for other events, which count something that is always sampled. With the period in its samples, a
    /// tracepoint without a frequency has a sample each time (`perf_swevent_event()` in kernel/events/core.c).
    pub fn sampled_tracepoints(&self) -> Option<String> {
        let period = self.sample_period;
        match self.has(AttrFlag::Freq) {
            _ if self.kind != PERF_TYPE_TRACEPOINT => None,
            true => Some(format!("{period} a second")),
            false => {
                (period > 1 && self.format.sample_type & PERF_SAMPLE_PERIOD == 0).then(|| format!("1 of {period}"))
            }
        }
    }

    /// Returns `precise_ip`: how precise the sampled address is, from 0 to 3.
    pub fn precise_ip(&self) -> usize {
        (self.flags >> 15 & 3) as usize
    }

    /// Returns the layout of the event's samples.
    pub fn layout(&self) -> SampleLayout {
        SampleLayout::from_format(self.format)
    }

    /// Returns the layout of the sample id at the end of records other than samples; `None` if these records have no
    /// sample id.
    pub fn sample_id_layout(&self) -> Option<TrailerLayout> {
        self.has(AttrFlag::SampleIdAll).then(|| TrailerLayout::new(self.format.sample_type))
    }
}

/// Reads the flags. The flags are a C bit field. The first bit of the field is the lowest bit of the first byte on
/// little-endian machines, and the highest bit of the first byte on big-endian machines.
fn flags(bytes: &[u8], order: ByteOrder) -> u64 {
    let little = |byte: u8| byte;
    let written_little = (order == ByteOrder::Native) == cfg!(target_endian = "little");
    let bits = if written_little { little } else { u8::reverse_bits };
    bytes.iter().rev().fold(0, |flags, &byte| flags << 8 | u64::from(bits(byte)))
}

#[cfg(test)]
mod tests {
    use perf_prof_format::abi::{PERF_SAMPLE_ID, PERF_SAMPLE_TIME};

    use super::*;

    /// Returns the bytes of an attr as a machine of this byte order writes them. The numbers of the attr have 4 and 8
    /// bytes.
    fn bytes(big: bool, size: usize) -> Vec<u8> {
        let u32s = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let u64s = |value: u64| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let mut bytes = [u32s(2), u32s(size as u32)].concat();
        for word in [0x176, 1, PERF_SAMPLE_TIME | PERF_SAMPLE_ID, 4] {
            bytes.extend(u64s(word));
        }
        // These bytes are the flags, of which freq and sample_id_all are set.
        bytes.extend(if big { [0, 0x20, 0x20, 0, 0, 0, 0, 0] } else { [0, 4, 4, 0, 0, 0, 0, 0] });
        bytes.extend([u64s(0), u64s(7), u64s(8), u64s(9)].concat());
        bytes.resize(108, 0);
        bytes.extend(if big { 9u16.to_be_bytes() } else { 9u16.to_le_bytes() });
        bytes.resize(size, 0);
        bytes
    }

    #[test]
    fn tracepoints_are_sampled_by_a_frequency_or_by_a_period_that_samples_do_not_have() {
        let mut attr = Attr::parse(&bytes(false, 136), ByteOrder::Native).unwrap();
        attr.sample_period = 99;
        assert_eq!(attr.sampled_tracepoints().as_deref(), Some("99 a second"));
        attr.flags = 0;
        assert_eq!(attr.sampled_tracepoints().as_deref(), Some("1 of 99"));
        attr.format.sample_type |= PERF_SAMPLE_PERIOD;
        assert_eq!(attr.sampled_tracepoints(), None);
        (attr.sample_period, attr.kind) = (4000, 1);
        attr.flags = 1 << AttrFlag::Freq as u32;
        assert_eq!(attr.sampled_tracepoints(), None);
    }

    #[test]
    fn attrs_of_any_size_and_byte_order() {
        for big in [false, true] {
            for size in [64, 72, 96, 136, 160] {
                let attr = Attr::parse(&bytes(big, size), ByteOrder::from_big_endian_flag(big)).unwrap();
                assert_eq!((attr.kind, attr.config, attr.sample_period), (2, 0x176, 1));
                assert!(attr.has(AttrFlag::Freq) && attr.has(AttrFlag::SampleIdAll) && !attr.has(AttrFlag::UseClockid));
                assert_eq!((attr.config1, attr.config2), (7, if size >= 72 { 8 } else { 0 }), "{size}");
                assert_eq!(attr.sample_max_stack, if size >= 112 { 9 } else { 0 }, "{size}");
            }
        }
        assert_eq!(Attr::parse(&bytes(false, 64)[..40], ByteOrder::from_big_endian_flag(false)), None);
    }
}
