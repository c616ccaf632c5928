//! A sample as text in the form that `perf script` prints. Knows nothing of where it is written to.

use std::io::Write;

use super::{Column, Columns, Context, Fields, Frame, Origin, Sample, UNKNOWN, callchain, columns};
use crate::abi::{PERF_SAMPLE_CALLCHAIN, PERF_SAMPLE_STACK_USER};

/// An event of a recording, as far as its lines need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfEvent {
    /// Its name.
    pub name: String,
    /// The type of its attr.
    pub kind: u32,
    /// What its samples hold.
    pub sample_type: u64,
}

/// How exact times are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Digits {
    /// To the microsecond, cut off.
    #[default]
    Micros,
    /// To the nanosecond.
    Nanos,
}

/// Whether call chains are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Chains {
    /// Where there are some.
    #[default]
    Shown,
    /// Only the place of the sample itself.
    Hidden,
}

/// The lines of a recording's events.
#[derive(Clone, Debug)]
pub struct PerfLines {
    events: Vec<PerfEvent>,
    columns: Vec<Columns>,
    /// The width of the longest name.
    width: usize,
    digits: Digits,
    chains: Chains,
}

impl PerfLines {
    /// The lines of these events, which are all of the recording: the longest name makes the width of all.
    pub fn new(events: Vec<PerfEvent>, fields: Fields, digits: Digits, chains: Chains) -> PerfLines {
        let shown = |event: &PerfEvent| match chains {
            Chains::Shown => (event.kind, event.sample_type),
            Chains::Hidden => (event.kind, event.sample_type & !PERF_SAMPLE_CALLCHAIN),
        };
        let columns = columns::columns(&events.iter().map(shown).collect::<Vec<_>>(), fields);
        let width = events.iter().map(|event| event.name.len()).max().unwrap_or(0);
        PerfLines { events, columns, width, digits, chains }
    }

    /// Appends the lines of a sample of the event with this index.
    pub fn write(&self, event: usize, sample: &Sample<'_>, context: &Context, out: &mut Vec<u8>) {
        let (Some(shown), Some(&columns)) = (self.events.get(event), self.columns.get(event)) else { return };
        let has_chain = self.chains == Chains::Shown && shown.sample_type & PERF_SAMPLE_CALLCHAIN != 0;
        // A line that frames follow is not put in columns.
        let in_columns = !(has_chain && columns.has(Column::Ip));
        self.begin(columns, in_columns, sample, context, out);
        if columns.has(Column::Period) {
            push(out, format_args!("{:>10} ", sample.period()));
        }
        if columns.has(Column::Event) {
            push(out, format_args!("{:>1$}: ", shown.name, self.width));
        }
        if columns.has(Column::Trace)
            && let (Some(format), false) = (sample.event.format.tracepoint(), sample.raw().is_empty())
        {
            format.render_print_fmt(sample.raw(), &*context.kernel, out);
        }
        if columns.has(Column::Ip) && has_chain {
            out.push(b'\n');
            write_chain(sample, columns, context, out);
        } else if columns.has(Column::Ip) {
            out.push(b' ');
            if let Some(frame) = callchain::ip_function(sample, context) {
                write_frame(&frame, (frame.addr, frame.offset), Shift::None, columns, sample, out);
            }
        }
        out.push(b'\n');
    }

    /// Task, CPU and time.
    fn begin(&self, columns: Columns, in_columns: bool, sample: &Sample<'_>, context: &Context, out: &mut Vec<u8>) {
        let (pid, tid) = sample.pid_tid();
        if columns.has(Column::Comm) {
            let width = if in_columns { 16 } else { 0 };
            context.with_tasks(|tasks| match tasks.name(tid, sample.time()) {
                Some(comm) => {
                    out.extend(std::iter::repeat_n(b' ', usize::saturating_sub(width, comm.len())));
                    out.extend_from_slice(comm);
                }
                // As perf calls a thread that it has not heard of.
                None => push(out, format_args!("{:>width$}", format!(":{tid}"))),
            });
            out.push(b' ');
        }
        match (columns.has(Column::Pid), columns.has(Column::Tid)) {
            (true, true) => push(out, format_args!("{pid:>5}/{tid:<5} ")),
            (true, false) => push(out, format_args!("{pid:>5} ")),
            (false, true) => push(out, format_args!("{tid:>5} ")),
            (false, false) => {}
        }
        if columns.has(Column::Cpu) {
            push(out, format_args!("[{:03}] ", sample.cpu()));
        }
        if columns.has(Column::Time) {
            let (seconds, nanos) = (sample.time() / 1_000_000_000, sample.time() % 1_000_000_000);
            match self.digits {
                Digits::Micros => push(out, format_args!("{seconds:>5}.{:06}: ", nanos / 1000)),
                Digits::Nanos => push(out, format_args!("{seconds:>5}.{nanos:09}: ")),
            }
        }
    }
}

/// By how much a frame's place is shown lower than it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shift {
    None,
    /// Of a frame that was unwound perf shows the call's last byte, not where it will go on (`get_entries()` in
    /// `tools/perf/util/unwind-libunwind-local.c`).
    Call,
}

fn write_chain(sample: &Sample<'_>, columns: Columns, context: &Context, out: &mut Vec<u8>) {
    let frames = callchain::frames(sample, context);
    // Frames that perf unwinds itself, as opposed to those that the kernel walked. It tells inlined functions of the first
    // alone (`unwind_entry()` in `tools/perf/util/machine.c`).
    let unwound = sample.event.layout.format.sample_type & PERF_SAMPLE_STACK_USER != 0;
    let mut shift = Shift::None;
    for (at, frame) in frames.iter().enumerate() {
        let is_inlined = matches!(frame.origin, Origin::Inlined { .. });
        if is_inlined && !unwound {
            continue;
        }
        out.push(b'\t');
        let addr = match frame.origin {
            Origin::Kernel => frame.addr,
            // Of a program, where it is in the file.
            Origin::User { .. } | Origin::Inlined { .. } if is_file(&frame.dso) => frame.dso_offset,
            Origin::User { .. } | Origin::Inlined { .. } => frame.addr,
        };
        // A function that bears the name of the one that it is inlined into is shown as that one.
        let outer = frames[at..].iter().find(|frame| !matches!(frame.origin, Origin::Inlined { .. })).unwrap_or(frame);
        let is_outer = !is_inlined || outer.symbol == frame.symbol;
        write_frame(if is_outer { outer } else { frame }, (addr, outer.offset), shift, columns, sample, out);
        if !is_outer {
            out.extend_from_slice(b" (inlined)");
        } else if !is_inlined && unwound && frame.origin != Origin::Kernel {
            shift = Shift::Call;
        }
        out.push(b'\n');
    }
}

fn write_frame(
    frame: &Frame,
    (addr, offset): (u64, u64),
    shift: Shift,
    columns: Columns,
    sample: &Sample<'_>,
    out: &mut Vec<u8>,
) {
    let back = u64::from(shift == Shift::Call);
    push(out, format_args!("{:>16x}", addr.wrapping_sub(back)));
    if columns.has(Column::Symbol) {
        match &*frame.symbol {
            UNKNOWN => out.extend_from_slice(b" [unknown]"),
            symbol if columns.has(Column::Offset) => {
                push(out, format_args!(" {symbol}+{:#x}", offset.wrapping_sub(back)));
            }
            symbol => push(out, format_args!(" {symbol}")),
        }
    }
    if columns.has(Column::Dso) && !matches!(frame.origin, Origin::Inlined { .. }) {
        match is_run_time(&frame.dso) {
            // Code made at run time is in the file that its process lists it in.
            true => push(out, format_args!(" (/tmp/perf-{}.map)", sample.pid_tid().0)),
            // To perf each piece of code that was made while the kernel ran is a file of its own
            // (`machine__process_ksymbol_register()` in `tools/perf/util/machine.c`).
            false if callchain::is_made(&frame.dso) => push(out, format_args!(" ({})", frame.symbol)),
            false => push(out, format_args!(" ({})", frame.dso)),
        }
    }
}

/// Whether a mapping's name stands for memory that code was made in: `is_anon_memory()` and `is_no_dso_memory()` in
/// `tools/perf/util/map.c`.
fn is_run_time(dso: &str) -> bool {
    ["//anon", "/dev/zero", "/anon_hugepage", "[stack", "/SYSV"].iter().any(|prefix| dso.starts_with(prefix))
        || dso == "[heap]"
}

fn is_file(dso: &str) -> bool {
    dso != "[unknown]" && !is_run_time(dso)
}

fn push(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a Vec cannot fail.
    let _ = out.write_fmt(text);
}
