//! Formats the line that `event.print()` writes: wall clock, task, latency characters, CPU, perf time and name of the event.
//! The kernel's text or the members of the sample follow. Each frame of the call chain gets a line of its own.

use std::{cell::RefCell, io::Write, sync::Arc};

use chrono::{DateTime, Local};
use perf_prof_format::{
    abi::RegisterSet,
    control_characters::put_in_one_line,
    record::{Counters, Registers, SampleMember},
    tracefs::Kernel,
    value::Value,
};

use super::{EventType, Format, Frame, Origin, Sample, SpanPart};

/// Stands for the unknown name of a task, as in ftrace.
pub const UNKNOWN_COMM: &[u8] = b"<...>";

/// The optional parts of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineParts {
    /// The wall clock time, at the start of the line.
    pub timestamp: bool,
    /// The frames of the call chain, after the line.
    pub callchain: bool,
}

/// What the line shows besides the sample itself.
pub struct LineContext<'a> {
    /// The task's name.
    pub comm: Option<&'a [u8]>,
    /// The time of the sample in nanoseconds since the Unix epoch; `None` if it is unknown.
    pub realtime: Option<i64>,
    /// The resolved call chain.
    pub frames: &'a [Arc<Frame>],
    /// The frame of the sample's instruction; `None` if the samples have no instruction address.
    pub ip: Option<Arc<Frame>>,
    /// Names of kernel addresses.
    pub kernel: &'a dyn Kernel,
    /// Names of registers.
    pub registers: RegisterSet,
    /// The path of the task's cgroup; `None` if the samples have no cgroup.
    pub cgroup: Option<&'a [u8]>,
}

/// Appends the line with its newline to `out`, and then the lines of the frames.
pub fn write_line(sample: &Sample<'_>, parts: LineParts, context: &LineContext<'_>, out: &mut Vec<u8>) {
    if let (true, Some(realtime)) = (parts.timestamp, context.realtime) {
        write_date(realtime, out);
        out.push(b' ');
    }
    let EventType { format, .. } = sample.event;
    let comm = context.comm.unwrap_or(UNKNOWN_COMM);
    let tid = sample.task();
    let flags = match format {
        Format::Tracepoint(_) | Format::Span(_) => {
            let raw = sample.raw();
            latency_characters(raw.get(2).copied().unwrap_or(0), raw.get(3).copied().unwrap_or(0))
        }
        // Only the data of tracepoints contains these flags.
        Format::Other(_) => *b"....",
    };
    // As in ftrace: rounded to the nearest microsecond.
    let micros = sample.time().saturating_add(500) / 1000;
    out.extend(std::iter::repeat_n(b' ', 16usize.saturating_sub(comm.len())));
    let start = out.len();
    out.extend_from_slice(comm);
    put_in_one_line(out, start);
    out.push(b' ');
    match u64::try_from(tid) {
        Ok(tid) => push_number(tid, 6, b' ', out),
        Err(_) => push(out, format_args!("{tid:>6}")),
    }
    out.push(b' ');
    out.extend_from_slice(&flags);
    out.extend_from_slice(b" [");
    push_number(sample.cpu().into(), 3, b'0', out);
    out.extend_from_slice(b"] ");
    push_number(micros / 1_000_000, 1, b'0', out);
    out.push(b'.');
    push_number(micros % 1_000_000, 6, b'0', out);
    out.extend_from_slice(b": ");
    match format {
        Format::Tracepoint(format) => {
            out.extend_from_slice(format.system.as_bytes());
            out.push(b':');
            out.extend_from_slice(format.name.as_bytes());
            out.extend_from_slice(b": ");
        }
        Format::Span(span) => {
            push(out, format_args!("{}: ", span.name()));
        }
        Format::Other(format) => {
            out.extend_from_slice(format.name.as_bytes());
            out.extend_from_slice(b": ");
        }
    }
    let start = out.len();
    write_text(sample, context, out);
    // The text may end with a line break of its own, for example in messages of trace_printk(). Remove it.
    if out.len() > start && out.ends_with(b"\n") {
        out.pop();
    }
    put_in_one_line(out, start);
    out.push(b'\n');
    if parts.callchain {
        write_frames(context.frames, out);
    }
}

/// Appends the text of an event without the event's name: the kernel's text, or the members of the sample.
pub fn write_text(sample: &Sample<'_>, context: &LineContext<'_>, out: &mut Vec<u8>) {
    match &sample.event.format {
        Format::Tracepoint(format) => format.render(sample.raw(), context.kernel, out),
        Format::Span(span) => {
            span.format.render(sample.raw(), context.kernel, out);
            let part = |part| span.sample(part, sample.raw()).filter(|_| !span.is_source());
            for part in [SpanPart::Begin, SpanPart::End].into_iter().filter_map(part) {
                if let Some(format) = part.event.format.tracepoint() {
                    push(out, format_args!(" | {}: ", format.name));
                    format.render(part.raw(), context.kernel, out);
                }
            }
        }
        Format::Other(_) => write_members(sample, context, out),
    }
}

/// Appends a line for each frame of a call chain.
pub fn write_frames(frames: &[Arc<Frame>], out: &mut Vec<u8>) {
    for frame in frames {
        let Frame { addr, symbol, offset, origin, dso, srcline, .. } = &**frame;
        let line = srcline.as_ref().map(|(file, line)| format!(" {file}:{line}")).unwrap_or_default();
        match origin {
            Origin::Inlined { .. } => push(out, format_args!("    {addr:016x} {symbol} ({dso}) (inlined){line}\n")),
            Origin::Python { .. } => {
                let line = srcline.as_ref().map(|(_, line)| format!(":{line}")).unwrap_or_default();
                push(out, format_args!("    {addr:016x} {symbol} ({dso}{line})\n"));
            }
            _ => push(out, format_args!("    {addr:016x} {symbol}+{offset:#x} ({dso}){line}\n")),
        }
    }
}

/// Writes the members of a sample: the instruction, numbers and counter values, and the sizes of longer members. Skips
/// members that the start of the line or the frames show.
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
            RegsUser => layout.regs_user(record).map(|found| registers_text(name, &found, context.registers)),
            RegsIntr => layout.regs_intr(record).map(|found| registers_text(name, &found, context.registers)),
            Cgroup => context.cgroup.map(|path| format!("{name}={}", String::from_utf8_lossy(path))),
            Weight | DataPageSize | CodePageSize => {
                layout.number(member, record).map(|value| format!("{name}={value}"))
            }
            Addr | DataSrc | Transaction | PhysAddr => {
                layout.number(member, record).map(|value| format!("{name}={value:#x}"))
            }
            BranchStack => layout.branches(record).map(|branches| format!("{name}={}", branches.len())),
            Raw | StackUser | Aux => match layout.value(member, record) {
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

thread_local! {
    /// The last date that was formatted: the seconds since the Unix epoch, and the text. Formatting a date takes longer
    /// than the rest of a line, and most lines have the same date as the line before.
    static DATE: RefCell<(i64, String)> = const { RefCell::new((0, String::new())) };
}

/// Appends the local date and time of `realtime`, in nanoseconds since the Unix epoch. Truncates to microseconds.
pub fn write_date(realtime: i64, out: &mut Vec<u8>) {
    let second = realtime.div_euclid(1_000_000_000);
    DATE.with_borrow_mut(|(of, text)| {
        if *of != second || text.is_empty() {
            let wall = DateTime::from_timestamp_nanos(realtime).with_timezone(&Local);
            (*of, *text) = (second, wall.format("%Y-%m-%d %H:%M:%S").to_string());
        }
        out.extend_from_slice(text.as_bytes());
    });
    out.push(b'.');
    push_number(realtime.rem_euclid(1_000_000_000) as u64 / 1000, 6, b'0', out);
}

/// Appends a number in decimal, filled with `fill` to at least `width` characters.
#[inline]
fn push_number(mut number: u64, width: usize, fill: u8, out: &mut Vec<u8>) {
    // A `u64` has at most 20 digits.
    let mut digits = [fill; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at.min(digits.len() - width)..]);
}

/// Returns the registers by name, for example `regs_user=[ax=0x1 bx=0x2]`.
fn registers_text(member: &str, registers: &Registers<'_>, names: RegisterSet) -> String {
    let shown = registers.iter().map(|(bit, value)| match names.name(registers.abi, bit) {
        Some(name) => format!("{name}={value:#x}"),
        None => format!("reg{bit}={value:#x}"),
    });
    format!("{member}=[{}]", shown.collect::<Vec<_>>().join(" "))
}

#[inline]
pub(super) fn push(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a Vec cannot fail.
    let _ = out.write_fmt(text);
}

/// Returns ftrace's four latency characters: interrupts, reschedule, context, preempt depth. The bits are those of `enum
/// trace_flag_type` in `include/linux/trace_events.h`, and the letters those of `Documentation/trace/ftrace.rst`.
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
    fn numbers_have_at_least_their_width() {
        let text = |number, width, fill| {
            let mut out = Vec::new();
            push_number(number, width, fill, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(0, 1, b'0') + &text(7, 3, b'0') + &text(42, 6, b' '), "0007    42");
        assert_eq!(text(1234, 3, b'0') + " " + &text(u64::MAX, 6, b' '), "1234 18446744073709551615");
    }

    #[test]
    fn dates_are_those_of_their_second() {
        let date = |realtime: i64| {
            let mut out = Vec::new();
            write_date(realtime, &mut out);
            String::from_utf8(out).unwrap()
        };
        let expected = |realtime: i64| {
            let wall = DateTime::from_timestamp_nanos(realtime).with_timezone(&Local);
            wall.format("%Y-%m-%d %H:%M:%S%.6f").to_string()
        };
        for realtime in [1_705_298_445_123_456_789, 1_705_298_445_999_999_999, 1_705_298_446_000_000_000, 0, 1, -1] {
            assert_eq!(date(realtime), expected(realtime));
        }
    }

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
