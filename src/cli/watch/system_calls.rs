//! Names of system calls as events: `openat` is short for `syscall/name=openat/`.

use std::env::consts::ARCH;

use perf_prof_format::{
    abi::system_calls,
    spec::{Attrs, EventKind, EventSpec, Grouping, named_event, parse_events},
};
use perf_prof_session::selectors;

use crate::option_error::OptionError;

/// The source of system calls.
pub const SYSTEM_CALLS: &str = "syscall";

/// Replaces names of system calls, such as `openat,read`, by the source of system calls with these names. Calls with
/// attributes, such as `openat//stack/`, are selected alone.
pub fn with_system_calls(events: Vec<EventSpec>) -> Result<Vec<EventSpec>, OptionError> {
    let mut selected = Vec::new();
    let mut calls: Vec<String> = Vec::new();
    for event in events {
        match system_call(&event) {
            None => selected.push(event),
            Some(name) if event.attrs == Attrs::default() => calls.push(name),
            Some(name) => selected.extend(parse_events(&format!("{SYSTEM_CALLS}/name={name}/{}", event.attrs))?),
        }
    }
    if !calls.is_empty() {
        selected.extend(parse_events(&format!("{SYSTEM_CALLS}/name={}/", calls.join("|")))?);
    }
    Ok(selected)
}

/// Returns the name of the system call, if a selector is only the name of a call and not of another event. An event in
/// a group is not a call.
fn system_call(event: &EventSpec) -> Option<String> {
    let EventKind::Source { name, option: None, modifiers } = &event.kind else { return None };
    let is_alone = modifiers.is_empty() && event.grouping == Grouping::Alone;
    let is_event = named_event(name).is_some() || selectors::built_in(name).is_some();
    (is_alone && !is_event && system_calls::number(ARCH, name).is_some()).then(|| name.clone())
}
