//! Formats the line that `event.print()` writes: wall clock, task, latency characters, CPU, time and name of the event,
//! then the text of the kernel's print format or the members of the sample. After this line, each frame of the call
//! chain has a line of its own.

use std::{io::Write, sync::Arc};

use chrono::{DateTime, Local};

use super::{EventType, Format, Frame, Origin, Sample};
use crate::{
    record::{Counters, SampleMember},
    tracefs::Kernel,
    value::Value,
};

/// The optional parts of the line that are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineParts {
    /// The wall clock time at the start.
    pub timestamp: bool,
    /// The call chain's frames after the line.
    pub callchain: bool,
}

/// The data that the line shows in addition to the sample's own data.
pub struct LineContext<'a> {
    /// The task's name.
    pub comm: Option<&'a [u8]>,
    /// The time of the sample, in nanoseconds since the Unix epoch.
    pub realtime: i64,
    /// The resolved call chain.
    pub frames: &'a [Arc<Frame>],
    /// The frame of the sample's instruction, if the event samples it.
    pub ip: Option<Arc<Frame>>,
    /// Names of kernel addresses.
    pub kernel: &'a dyn Kernel,
}

/// Appends the line with its newline, and the lines of the frames, to `out`.
pub fn write_line(sample: &Sample<'_>, parts: LineParts, context: &LineContext<'_>, out: &mut Vec<u8>) {
    if parts.timestamp {
        // If the wall clock is wrong, this date is wrong too. The line still has the time of the perf clock.
        let wall = DateTime::from_timestamp_nanos(context.realtime).with_timezone(&Local);
        push(out, format_args!("{} ", wall.format("%Y-%m-%d %H:%M:%S%.6f")));
    }
    let EventType { format, .. } = sample.event;
    let comm = context.comm.unwrap_or(b"<...>");
    let tid = sample.task();
    let flags = match format {
        Format::Tracepoint(_) => {
            let raw = sample.raw();
            latency_characters(raw.get(2).copied().unwrap_or(0), raw.get(3).copied().unwrap_or(0))
        }
        // Only the data of tracepoints has these flags.
        Format::Source(_) => *b"....",
    };
    // Rounded to the nearest microsecond, as ftrace does.
    let micros = sample.time().saturating_add(500) / 1000;
    out.extend(std::iter::repeat_n(b' ', 16usize.saturating_sub(comm.len())));
    out.extend_from_slice(comm);
    push(
        out,
        format_args!(
            " {tid:>6} {} [{:03}] {}.{:06}: {}: ",
            flags.iter().map(|&c| c as char).collect::<String>(),
            sample.cpu(),
            micros / 1_000_000,
            micros % 1_000_000,
            format.name(),
        ),
    );
    match format {
        Format::Tracepoint(format) => format.render(sample.raw(), context.kernel, out),
        Format::Source(_) => write_members(sample, context, out),
    }
    out.push(b'\n');
    if parts.callchain {
        for frame in context.frames {
            let Frame { addr, symbol, offset, origin, dso, srcline, .. } = &**frame;
            let line = srcline.as_ref().map(|(file, line)| format!(" {file}:{line}")).unwrap_or_default();
            match origin {
                Origin::Inlined { .. } => push(out, format_args!("    {addr:016x} {symbol} ({dso}) (inlined){line}\n")),
                _ => push(out, format_args!("    {addr:016x} {symbol}+{offset:#x} ({dso}){line}\n")),
            }
        }
    }
}

/// Writes the members of a sample. The instruction, numbers and counters are shown with their values, and longer
/// members with their sizes. Members that the start of the line or the lines of the frames show are skipped.
fn write_members(sample: &Sample<'_>, context: &LineContext<'_>, out: &mut Vec<u8>) {
    let (layout, record) = (&sample.event.layout, sample.record);
    let mut separator = "";
    for member in sample.event.members() {
        use SampleMember::*;
        let name = member.name();
        let text = match member {
            Identifier | Id | StreamId | Pid | Tid | Time | Cpu | Callchain => continue,
            Ip => context
                .ip
                .as_deref()
                .map(|Frame { addr, symbol, offset, dso, .. }| format!("ip={addr:x} {symbol}+{offset:#x} ({dso})")),
            Period => layout.period(record).map(|period| format!("period={period}")),
            Read => layout.reading(record).map(|reading| match reading.counters {
                Counters::One(counter) => format!("read={}", counter.value),
                Counters::Group(group) => {
                    let values: Vec<String> = group.iter().map(|counter| counter.value.to_string()).collect();
                    format!("read=[{}]", values.join(" "))
                }
            }),
            RegsUser => layout.regs_user(record).map(|registers| format!("{name}={}", registers.iter().count())),
            RegsIntr => layout.regs_intr(record).map(|registers| format!("{name}={}", registers.iter().count())),
            Weight | Cgroup | DataPageSize | CodePageSize => match layout.value(member, record) {
                Some(Value::Uint(value)) => Some(format!("{name}={value}")),
                _ => None,
            },
            Addr | DataSrc | Transaction | PhysAddr => match layout.value(member, record) {
                Some(Value::Uint(value)) => Some(format!("{name}={value:#x}")),
                _ => None,
            },
            Raw | BranchStack | StackUser | Aux => match layout.value(member, record) {
                Some(Value::Bytes(bytes)) => Some(format!("{name}=<{} bytes>", bytes.len())),
                _ => None,
            },
        };
        if let Some(text) = text {
            push(out, format_args!("{separator}{text}"));
            separator = " ";
        }
    }
}

pub(super) fn push(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a Vec cannot fail.
    let _ = out.write_fmt(text);
}

/// Returns ftrace's four latency characters: interrupts, reschedule, context, preempt depth. The bits are those of
/// `enum trace_flag_type` in `include/linux/trace_events.h`, the letters those of `Documentation/trace/ftrace.rst`.
fn latency_characters(flags: u8, preempt_count: u8) -> [u8; 4] {
    let has = |bit: u8| flags & bit != 0;
    let (irqs_off, bh_off) = (has(0x01), has(0x80));
    let (resched_lazy, need_resched, preempt_resched) = (has(0x02), has(0x04), has(0x20));
    let (hardirq, softirq, nmi) = (has(0x08), has(0x10), has(0x40));
    let irqs = match (irqs_off, bh_off) {
        (true, true) => b'D',
        (true, false) => b'd',
        (false, true) => b'b',
        (false, false) => b'.',
    };
    let resched = match (need_resched, preempt_resched, resched_lazy) {
        (true, true, true) => b'B',
        (true, true, false) => b'N',
        (false, true, true) => b'L',
        (true, false, true) => b'b',
        (true, false, false) => b'n',
        (false, true, false) => b'p',
        (false, false, true) => b'l',
        (false, false, false) => b'.',
    };
    let context = match (nmi, hardirq, softirq) {
        (true, true, _) => b'Z',
        (true, false, _) => b'z',
        (false, true, true) => b'H',
        (false, true, false) => b'h',
        (false, false, true) => b's',
        (false, false, false) => b'.',
    };
    // The lower four bits count preempt_disable() calls, the upper four bits count migrate_disable() calls.
    let depth = match preempt_count & 0xf {
        0 => b'.',
        depth => b"0123456789abcdef"[depth as usize],
    };
    [irqs, resched, context, depth]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_characters_are_those_of_ftrace() {
        let text = |flags, count| String::from_utf8(latency_characters(flags, count).to_vec()).unwrap();
        assert_eq!(text(0, 0), "....");
        assert_eq!(text(0x01 | 0x08, 2), "d.h2");
        assert_eq!(text(0x24 | 0x10, 0), ".Ns.");
        assert_eq!(text(0x81 | 0x18, 0x1f), "D.Hf");
        assert_eq!(text(0x40, 0x10), "..z.");
    }
}
