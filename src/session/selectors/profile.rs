//! `profile`: samples what the CPUs execute. Uses hardware cycles, or the CPU clock if the machine cannot sample
//! cycles.

use perf_prof_capture::{Frames, PerfEvent};
use perf_prof_format::{abi::*, spec::NamedEvent};

use super::{BuiltIn, FREQUENCY, Machine, Source, SourceError, options, samples};

const NAME: &str = "profile";

/// The entry of this source in the list of built-in sources.
pub(super) const BUILT_IN: BuiltIn = BuiltIn { name: NAME, recorded_as: &[CYCLES, CLOCK, TASK_CLOCK], source };

/// The event that `profile` samples. If the machine cannot sample it, `profile` samples `CLOCK` instead.
const CYCLES: NamedEvent = NamedEvent { kind: PERF_TYPE_HARDWARE, config: PERF_COUNT_HW_CPU_CYCLES };
const CLOCK: NamedEvent = NamedEvent { kind: PERF_TYPE_SOFTWARE, config: PERF_COUNT_SW_CPU_CLOCK };
/// Recorders sample this event if they can sample neither `CYCLES` nor `CLOCK`, for example in containers.
const TASK_CLOCK: NamedEvent = NamedEvent { kind: PERF_TYPE_SOFTWARE, config: PERF_COUNT_SW_TASK_CLOCK };

fn source(options: &str, machine: &dyn Machine) -> Result<Source, SourceError> {
    let cycles = machine.can_sample(CYCLES.kind, CYCLES.config);
    let NamedEvent { kind, config } = if cycles { CYCLES } else { CLOCK };
    let mut source = Source::new(NAME, PerfEvent { kind, config, ..PerfEvent::default() }, FREQUENCY);
    source.note = Some(match cycles {
        true => "profile samples the hardware's cycles".to_owned(),
        false => "profile samples cpu-clock, because this machine cannot sample hardware cycles".to_owned(),
    });
    // The clock also counts on an idle CPU, but cycles do not. So idle tasks are excluded only if the clock is sampled.
    source.request.excluded.idle = !cycles;
    if let Some(word) = options::apply(&mut source, NAME, options)? {
        return Err(options::unknown(NAME, word));
    }
    if machine.has_c_members() {
        samples::add("read", &mut source.request, &mut source.stacks)?;
    }
    let excluded = source.request.excluded;
    if excluded.user && excluded.kernel {
        return Err(nothing("with both --exclude-user and --exclude-kernel, nothing is sampled"));
    }
    if source.stacks.user == Some(Frames::Excluded) && source.stacks.kernel == Some(Frames::Excluded) {
        return Err(nothing("with both --no-user-callchain and --no-kernel-callchain, callchains are empty"));
    }
    Ok(source)
}

fn nothing(what: &'static str) -> SourceError {
    SourceError::Nothing { source_name: NAME, what }
}
