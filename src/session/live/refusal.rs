//! Error messages about events that could not be opened. They contain the event names that the user typed.

use anyhow::anyhow;
use perf_prof_capture::CaptureError;
use perf_prof_format::spec::{EventKind, attribute_meant_by};
use perf_prof_system::tracefs::explain_filter;

use super::select::Selected;

/// Returns the error to report if events could not be opened. If the kernel refused a filter, the error includes the
/// kernel's reason and the fields of the event.
pub fn open_error(mut error: CaptureError, selected: &[Selected]) -> anyhow::Error {
    if let Some(name) = error.event_mut() {
        // All breakpoints have the same name, and all events of a PMU have the same name. Their selectors differ, so
        // the message contains the selector.
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
