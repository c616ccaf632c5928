//! Selectors to the events of this kernel.

use std::sync::Arc;

use anyhow::{Result, anyhow, bail};

use crate::{
    spec::{EventKind, EventSpec, handler_name, near},
    sys::tracefs::Tracefs,
    tracefs::EventFormat,
};

/// An event that was selected, with its format.
#[derive(Clone, Debug)]
pub struct Selected {
    /// The selector that it came from.
    pub spec: EventSpec,
    /// Its format.
    pub format: Arc<EventFormat>,
}

/// Expands the selectors over the tracepoints of this kernel, in the order in which they stand.
pub fn select(specs: &[EventSpec], tracefs: &Tracefs) -> Result<Vec<Selected>> {
    let mut selected = Vec::new();
    for spec in specs {
        if let Some(why) = spec.unsupported() {
            bail!("{why}");
        }
        let EventKind::Tracepoint { system, name } = &spec.kind else {
            bail!("{}: only tracepoints (sys:name) can be selected", spec.selector);
        };
        if spec.is_pattern() {
            let all = tracefs.events()?;
            let matching: Vec<_> = all.iter().filter(|(system, name)| spec.matches(system, name)).collect();
            if matching.is_empty() {
                bail!("no event of this kernel matches {system}:{name}; `perf-prof list` shows them all");
            }
            for (system, name) in matching {
                selected.push(Selected { spec: spec.clone(), format: format(tracefs, system, name)? });
            }
        } else {
            if !tracefs.has_event(system, name) {
                bail!("{}", unknown(system, name, &tracefs.events()?));
            }
            selected.push(Selected { spec: spec.clone(), format: format(tracefs, system, name)? });
        }
    }
    Ok(selected)
}

fn format(tracefs: &Tracefs, system: &str, name: &str) -> Result<Arc<EventFormat>> {
    let text = tracefs.format(system, name)?;
    let format =
        EventFormat::parse(system, &text).map_err(|error| anyhow!("the format of {system}:{name}: {error}"))?;
    Ok(Arc::new(format))
}

fn unknown(system: &str, name: &str, all: &[(String, String)]) -> String {
    let typed = format!("{system}:{name}");
    let names: Vec<String> = all.iter().map(|(system, name)| format!("{system}:{name}")).collect();
    let near = near(&typed, names.iter().map(String::as_str));
    // The system may be the wrong one, and the name right.
    let elsewhere: Vec<&str> =
        all.iter().zip(&names).filter(|((_, n), _)| n == name).map(|(_, full)| full.as_str()).collect();
    let guesses = if elsewhere.is_empty() { near } else { elsewhere };
    match guesses.as_slice() {
        [] => format!("unknown event {typed}; `perf-prof list '{system}:*'` shows what there is"),
        guesses => format!("unknown event {typed}; did you mean {}?", guesses.join(" or ")),
    }
}

/// Of functions that look like handlers, those that no selected event calls though an event of this kernel is called
/// like that, each with the reason.
pub fn unused_handlers(names: &[String], selected: &[Selected], tracefs: &Tracefs) -> Vec<(String, String)> {
    let handler = |event: &Selected| {
        let shown = event.spec.attrs.alias.as_ref().unwrap_or(&event.format.name);
        handler_name(&event.format.system, shown)
    };
    let open: Vec<&String> = names.iter().filter(|name| !selected.iter().any(|e| handler(e) == **name)).collect();
    if open.is_empty() {
        return Vec::new();
    }
    let events = tracefs.events().unwrap_or_default();
    let event_of = |name: &str| events.iter().find(|(system, event)| handler_name(system, event) == *name);
    let why = |(system, name): &(String, String)| {
        let aliased = selected.iter().find(|e| e.format.system == *system && e.format.name == *name);
        match aliased {
            Some(event) => format!("with its alias, {system}:{name} calls {}()", handler(event)),
            None => format!("{system}:{name} is not selected (-e {system}:{name})"),
        }
    };
    open.into_iter().filter_map(|name| event_of(name).map(|event| (name.clone(), why(event)))).collect()
}
