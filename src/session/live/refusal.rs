//! Error messages about events that could not be opened. They contain the event names that the user typed.

use anyhow::anyhow;
use perf_prof_capture::CaptureError;
use perf_prof_format::{
    abi::PERF_TYPE_RAW,
    spec::{EventKind, attribute_meant_by, named_event, similar_names},
};
use perf_prof_system::tracefs::explain_filter;

use super::select::Selected;
use crate::selectors::system_call_names;

/// Returns the error to report if events could not be opened. If the kernel refused a filter, the error includes the
/// kernel's reason and the fields of the event.
pub fn open_error(mut error: CaptureError, selected: &[Selected]) -> anyhow::Error {
    if let Some(name) = error.event_mut() {
        // All breakpoints have the same name, and so do all events of a PMU. Their selectors differ, so the message
        // contains the selector.
        let mut of_name = selected.iter().filter(|event| event.request.name == *name);
        if let (Some(event), None) = (of_name.next(), of_name.next()) {
            match event.spec.kind {
                EventKind::Breakpoint { .. } | EventKind::Source { option: Some(_), .. } => {
                    name.clone_from(&event.spec.selector);
                }
                _ => {}
            }
        }
    }
    if let Some(calls) = error.event_mut().and_then(|name| calls_meant_by(name)) {
        return anyhow!("{error}; did you mean the system call {calls}?");
    }
    let CaptureError::Filter { event, filter, .. } = &error else { return error.into() };
    let Some(of_event) = selected.iter().find(|selected| selected.format.name() == *event) else {
        return error.into();
    };
    let Some(format) = of_event.format.tracepoint() else { return error.into() };
    // If a probe is opened as a perf event, it has no filter file in tracefs, and the kernel accepts only the common
    // fields in its filter.
    let is_probe = matches!(of_event.spec.kind, EventKind::Probe(_));
    let reason = if is_probe { None } else { explain_filter(&format.system, &format.name, filter) };
    let own = if is_probe { &[] } else { format.fields() };
    let fields = own.iter().chain(format.common_fields());
    let fields: Vec<String> = fields.map(|field| format!("{} ({})", field.name, field.c_type())).collect();
    let reason = reason.map(|reason| format!(": {}", reason.trim())).unwrap_or_default();
    match attribute_meant_by(filter) {
        Some(attribute) => {
            let event = of_event.format.name();
            anyhow!("{error}{reason}\nthe first section is the filter; attributes come after it: {event}//{attribute}/")
        }
        None => anyhow!("{error}{reason}\nits fields: {}", fields.join(", ")),
    }
}

/// Returns the names of system calls that are similar to `name`, if `name` is also the code of a hardware event: `reed`
/// is parsed as `r` with the code `eed`.
fn calls_meant_by(name: &str) -> Option<String> {
    named_event(name).filter(|event| event.kind == PERF_TYPE_RAW)?;
    if name.bytes().skip(1).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mut near = similar_names(name, system_call_names());
    if near.is_empty() {
        // In a short name, one wrong letter makes the similarity small. So names with one wrong letter are searched for
        // separately.
        let differs_in_one = |call: &&str| {
            call.len() == name.len() && call.bytes().zip(name.bytes()).filter(|(one, other)| one != other).count() == 1
        };
        near.extend(system_call_names().filter(differs_in_one).map(str::to_owned));
    }
    (!near.is_empty()).then(|| near.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_system_call_that_is_also_the_code_of_an_event_is_known() {
        assert!(calls_meant_by("reed").is_some_and(|calls| calls.split(" or ").any(|name| name == "read")));
        for name in ["r00c0", "cycles", "openat", "r1"] {
            assert_eq!(calls_meant_by(name), None, "{name}");
        }
    }
}
