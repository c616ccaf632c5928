//! Formats a sample as `perf script` does.

use std::sync::Arc;

use perf_prof_format::abi::PERF_SAMPLE_CALLCHAIN;

use super::{
    Column, Columns, Context, FieldList, Frame, Origin, Sample, UNKNOWN,
    callchain::{self, Chain},
    columns,
    interpreter_frames::Place,
    line::push,
};

/// The maximum width of the column of event names. Longer names are not aligned. A recording may contain names of any
/// length, and formatting panics at large widths.
const WIDEST: usize = 256;

/// What is needed of a recorded event to format its samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfEvent {
    /// Its name.
    pub name: String,
    /// The `type` in its attr.
    pub kind: u32,
    /// The `sample_type` in its attr.
    pub sample_type: u64,
}

/// The precision of printed times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Digits {
    /// Microseconds, truncated.
    #[default]
    Micros,
    /// Nanoseconds.
    Nanos,
}

/// Whether call chains are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Chains {
    /// Samples are printed with their call chains.
    #[default]
    Shown,
    /// Samples are printed with their own instruction only.
    Hidden,
}

/// Formats the samples of a recording as lines of text.
#[derive(Clone, Debug)]
pub struct PerfLines {
    events: Vec<PerfEvent>,
    columns: Vec<Columns>,
    /// The length of the longest event name, in bytes. Shorter names are padded to it.
    width: usize,
    digits: Digits,
    chains: Chains,
}

impl PerfLines {
    /// Creates the formatter for all events of a recording. The longest event name sets the width of the event column.
    pub fn new(events: Vec<PerfEvent>, fields: &[FieldList], digits: Digits, chains: Chains) -> PerfLines {
        let shown = |event: &PerfEvent| match chains {
            Chains::Shown => (event.kind, event.sample_type),
            Chains::Hidden => (event.kind, event.sample_type & !PERF_SAMPLE_CALLCHAIN),
        };
        let columns = columns::columns(&events.iter().map(shown).collect::<Vec<_>>(), fields);
        let width = events.iter().map(|event| event.name.len()).filter(|&width| width <= WIDEST).max().unwrap_or(0);
        PerfLines { events, columns, width, digits, chains }
    }

    /// Appends the lines of a sample to `out`. `event` is the index of its event in the list that `new` got.
    pub fn write(&self, event: usize, sample: &Sample<'_>, context: &Context, out: &mut Vec<u8>) {
        let (Some(shown), Some(&columns)) = (self.events.get(event), self.columns.get(event)) else { return };
        if columns.is_empty() {
            return;
        }
        let has_chain = self.chains == Chains::Shown && shown.sample_type & PERF_SAMPLE_CALLCHAIN != 0;
        // If lines with frames follow, perf does not align the columns of this line.
        let in_columns = !(has_chain && columns.has(Column::Ip));
        self.write_head(columns, in_columns, sample, context, out);
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
        if columns.has(Column::Cgroup) {
            let path = sample.cgroup().and_then(|id| context.cgroup_path(id));
            out.push(b' ');
            out.extend_from_slice(path.as_deref().unwrap_or(b"unknown"));
        }
        if columns.has(Column::Ip) && has_chain {
            out.push(b'\n');
            write_chain(sample, columns, context, out);
        } else if columns.has(Column::Ip) {
            out.push(b' ');
            if let Some(frame) = callchain::ip_function(sample, context) {
                let shown = Shown { frame: &frame, addr: frame.addr, offset: frame.offset, shift: Shift::None };
                write_frame(&shown, columns, sample, out);
            }
        }
        out.push(b'\n');
    }

    /// Appends task, CPU and time.
    fn write_head(
        &self,
        columns: Columns,
        in_columns: bool,
        sample: &Sample<'_>,
        context: &Context,
        out: &mut Vec<u8>,
    ) {
        let (pid, tid) = sample.pid_tid();
        if columns.has(Column::Comm) {
            let width = if in_columns { 16 } else { 0 };
            context.with_tasks(|tasks| match tasks.name(tid, sample.time()) {
                Some(comm) => {
                    out.extend(std::iter::repeat_n(b' ', usize::saturating_sub(width, comm.len())));
                    out.extend_from_slice(comm);
                }
                // perf writes this for a thread without a known name.
                None => push(out, format_args!("{:>width$}", format!(":{tid}"))),
            });
            out.push(b' ');
        }
        match (columns.has(Column::Pid), columns.has(Column::Tid)) {
            (true, true) => push(out, format_args!("{pid:>7}/{tid:<7} ")),
            (true, false) => push(out, format_args!("{pid:>7} ")),
            (false, true) => push(out, format_args!("{tid:>7} ")),
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

/// What is subtracted from the address of a frame before it is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shift {
    None,
    /// One byte: for an unwound frame, perf prints the address of the call's last byte instead of the return address
    /// (`get_entries()` in `tools/perf/util/unwind-libunwind-local.c`).
    Call,
}

/// A frame of a call chain, and whether it was unwound from a copied stack.
struct ChainFrame {
    frame: Arc<Frame>,
    unwound: bool,
}

impl Place for ChainFrame {
    fn is_loop(&self) -> bool {
        self.frame.is_loop()
    }

    fn of(frame: Arc<Frame>) -> Self {
        ChainFrame { frame, unwound: false }
    }
}

/// Returns the call chain of a sample. Includes frames of interpreters if the run asks for them.
fn chain_frames(sample: &Sample<'_>, context: &Context) -> Vec<ChainFrame> {
    let Chain { frames, recorded } = callchain::chain(sample, context);
    let native = frames.into_iter().enumerate().map(|(at, frame)| ChainFrame { frame, unwound: at >= recorded });
    match context.functions_of_interpreter(sample) {
        Some(functions) => functions.place(native.collect()),
        None => native.collect(),
    }
}

fn write_chain(sample: &Sample<'_>, columns: Columns, context: &Context, out: &mut Vec<u8>) {
    let frames = chain_frames(sample, context);
    let mut shift = Shift::None;
    for (at, ChainFrame { frame, unwound }) in frames.iter().enumerate() {
        let unwound = *unwound;
        let is_inlined = matches!(frame.origin, Origin::Inlined { .. });
        out.push(b'\t');
        // perf prints the outer function if the inlined function has the same name.
        let mut outwards = frames[at..].iter().map(|outer| &outer.frame);
        let outer = outwards.find(|frame| !matches!(frame.origin, Origin::Inlined { .. })).unwrap_or(frame);
        let is_outer = !is_inlined || outer.symbol == frame.symbol;
        let shown =
            Shown { frame: if is_outer { outer } else { frame }, addr: frame.addr, offset: outer.offset, shift };
        write_frame(&shown, columns, sample, out);
        if !is_outer {
            out.extend_from_slice(b" (inlined)");
        } else if !is_inlined && unwound && frame.origin != Origin::Kernel {
            shift = Shift::Call;
        }
        out.push(b'\n');
    }
}

/// A frame, and the address and offset to print for it.
struct Shown<'a> {
    frame: &'a Frame,
    addr: u64,
    offset: u64,
    shift: Shift,
}

fn write_frame(shown: &Shown<'_>, columns: Columns, sample: &Sample<'_>, out: &mut Vec<u8>) {
    let &Shown { frame, addr, offset, shift } = shown;
    let of_python = matches!(frame.origin, Origin::Python { .. });
    let back = u64::from(shift == Shift::Call && !of_python);
    push(out, format_args!("{:>16x}", addr.wrapping_sub(back)));
    if columns.has(Column::Symbol) {
        match &*frame.symbol {
            UNKNOWN => out.extend_from_slice(b" [unknown]"),
            symbol if columns.has(Column::Offset) && !of_python => {
                push(out, format_args!(" {symbol}+{:#x}", offset.wrapping_sub(back)));
            }
            symbol => push(out, format_args!(" {symbol}")),
        }
    }
    if columns.has(Column::Dso) && !matches!(frame.origin, Origin::Inlined { .. }) {
        match is_generated_code(&frame.dso) {
            // For generated code of a process, print the perf map: the file in which the process lists its generated
            // functions.
            true => push(out, format_args!(" (/tmp/perf-{}.map)", sample.pid_tid().0)),
            // For generated code of the kernel, perf prints the symbol as the file (`machine__process_ksymbol_register()` in
            // `tools/perf/util/machine.c`).
            false if callchain::is_generated_kernel_code(&frame.dso) => push(out, format_args!(" ({})", frame.symbol)),
            false => match frame.srcline.as_ref().filter(|_| of_python) {
                Some((_, line)) => push(out, format_args!(" ({}:{line})", frame.dso)),
                None => push(out, format_args!(" ({})", frame.dso)),
            },
        }
    }
}

/// Returns whether `dso` stands for memory in which a process may generate code. Follows `is_anon_memory()` and
/// `is_no_dso_memory()` in `tools/perf/util/map.c`.
pub(super) fn is_generated_code(dso: &str) -> bool {
    ["//anon", "/dev/zero", "/anon_hugepage", "[stack", "/SYSV"].iter().any(|prefix| dso.starts_with(prefix))
        || dso == "[heap]"
}
