//! The line of text that `event.print()` writes: wall clock, task, latency characters, CPU, time, name, the kernel's
//! own text or the sample's members, and the call chain below.

use std::{io::Write, sync::Arc};

use chrono::{DateTime, Local};

use super::{EventType, Format, Frame, Origin, Sample};
use crate::{
    record::{Counters, SampleMember},
    tracefs::Kernel,
    value::Value,
};

/// Which parts of the line are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineParts {
    /// The wall clock in front.
    pub timestamp: bool,
    /// The frames below.
    pub callchain: bool,
}

/// What the line shows that does not stand in the sample.
pub struct LineContext<'a> {
    /// The task's name.
    pub comm: Option<&'a [u8]>,
    /// Nanoseconds since the Unix epoch.
    pub realtime: i64,
    /// The resolved call chain.
    pub frames: &'a [Arc<Frame>],
    /// Where the sample's instruction is, of an event that samples that.
    pub ip: Option<Arc<Frame>>,
    /// Names of kernel addresses.
    pub kernel: &'a dyn Kernel,
}

/// Appends the line, its newline and the frames' lines to `out`.
pub fn write_line(sample: &Sample<'_>, parts: LineParts, context: &LineContext<'_>, out: &mut Vec<u8>) {
    if parts.timestamp {
        // A time that the calendar cannot hold is a broken clock's; the perf clock still stands in the line.
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
        // Only a tracepoint's data tells.
        Format::Source(_) => *b"....",
    };
    // As ftrace does: to the nearest microsecond.
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

/// What a sample holds, as far as it fits in a line: where it was, numbers, counters, and the sizes of the rest. The head
/// of the line and the frames below it have the other members.
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

fn push(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a Vec cannot fail.
    let _ = out.write_fmt(text);
}

/// ftrace's four characters: interrupts, reschedule, context, preempt depth. The bits are `enum trace_flag_type` of
/// `include/linux/trace_events.h`, the letters those of `Documentation/trace/ftrace.rst`.
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
    // The low half counts preempt_disable, the high half migrate_disable.
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
