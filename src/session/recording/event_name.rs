//! Makes names for events without a name in the recording, from their attrs, as perf does.

use perf_prof_format::{
    abi::{PERF_TYPE_RAW, PERF_TYPE_TRACEPOINT},
    spec::{NamedEvent, perf_event_name},
};
use perf_prof_recordings::{Attr, AttrFlag};

/// Returns the name of an event with this attr, for example `cycles:u` or `cycles:ppH`.
pub fn event_name(attr: &Attr) -> String {
    let (kind, config) = (attr.kind, attr.config);
    let name = match kind {
        PERF_TYPE_TRACEPOINT => return format!("tracepoint-{config}"),
        PERF_TYPE_RAW => format!("raw {config:#x}"),
        _ => match perf_event_name(NamedEvent { kind, config }) {
            Some(name) => name,
            None => return format!("event-{kind}-{config:x}"),
        },
    };
    match modifiers(attr) {
        letters if letters.is_empty() => name,
        letters => format!("{name}:{letters}"),
    }
}

/// Returns the modifiers of an event, like `perf_evsel__add_modifiers()` in `tools/perf/util/evsel.c`. There is one
/// exception: without exclusions, there are no letters. perf adds `HG` in version 6.1, but not in later versions.
fn modifiers(attr: &Attr) -> String {
    use AttrFlag::*;
    let mut letters = String::new();
    let mut add = |excluded, letter| {
        if !attr.has(excluded) {
            letters.push(letter);
        }
    };
    let has_sides = [ExcludeKernel, ExcludeUser, ExcludeHv].iter().any(|&flag| attr.has(flag));
    if has_sides {
        [(ExcludeKernel, 'k'), (ExcludeUser, 'u'), (ExcludeHv, 'h')]
            .iter()
            .for_each(|&(flag, letter)| add(flag, letter));
    }
    let precise = attr.precise_ip();
    letters.extend(std::iter::repeat_n('p', precise));
    // perf excludes guests by default, but not if the user typed other modifiers.
    if attr.has(ExcludeHost) || attr.has(ExcludeGuest) && (has_sides || precise != 0) {
        let sides = [(ExcludeHost, 'H'), (ExcludeGuest, 'G')];
        letters.extend(sides.iter().filter(|(flag, _)| !attr.has(*flag)).map(|(_, letter)| letter));
    }
    letters
}

#[cfg(test)]
mod tests {
    use perf_prof_format::abi::{PERF_TYPE_HARDWARE, PERF_TYPE_SOFTWARE};

    use super::*;

    #[test]
    fn names_are_those_of_perf() {
        let named = |kind, config, flags: &[AttrFlag], precise: u64| {
            let flags = flags.iter().fold(precise << 15, |flags, &flag| flags | 1 << flag as u32);
            event_name(&Attr { kind, config, flags, ..Attr::default() })
        };
        use AttrFlag::*;
        let cycles = |flags: &[AttrFlag], precise| named(PERF_TYPE_HARDWARE, 0, flags, precise);
        assert_eq!(cycles(&[], 0), "cycles");
        assert_eq!(cycles(&[ExcludeGuest], 0), "cycles");
        assert_eq!(cycles(&[ExcludeKernel, ExcludeHv], 0), "cycles:u");
        assert_eq!(cycles(&[ExcludeKernel, ExcludeHv, ExcludeGuest], 0), "cycles:uH");
        assert_eq!(cycles(&[ExcludeUser], 3), "cycles:khppp");
        assert_eq!(cycles(&[ExcludeGuest], 2), "cycles:ppH");
        assert_eq!(cycles(&[ExcludeHost], 0), "cycles:G");
        assert_eq!(named(PERF_TYPE_SOFTWARE, 1, &[], 3), "task-clock:ppp");
        assert_eq!(named(PERF_TYPE_RAW, 0x1a8, &[ExcludeUser, ExcludeHv], 0), "raw 0x1a8:k");
        assert_eq!(named(PERF_TYPE_TRACEPOINT, 9, &[ExcludeGuest], 0), "tracepoint-9");
        assert_eq!(named(8, 0x20, &[], 0), "event-8-20");
    }
}
