//! Names of system calls as events: `openat` is short for `syscall/name=openat/`.

use std::env::consts::ARCH;

use perf_prof_format::{
    abi::{PERF_TYPE_RAW, system_calls},
    spec::{Attrs, EventKind, EventSpec, Grouping, SpecError, named_event, parse_events},
};

use super::{built_in, error::SourceError};

/// The source of system calls.
pub const SYSTEM_CALLS: &str = "syscall";

/// Parses a list of selectors, in which names of system calls are events too.
pub fn parse(list: &str) -> Result<Vec<EventSpec>, SpecError> {
    with_system_calls(parse_events(list)?)
}

/// Replaces names of system calls by one selector of the source `syscall`: `openat,read` becomes
/// `syscall/name=openat|read/`. A name with attributes, such as `openat//stack/`, becomes a selector of its own.
pub fn with_system_calls(events: Vec<EventSpec>) -> Result<Vec<EventSpec>, SpecError> {
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

/// Returns whether this machine has a system call of this name.
pub fn is_system_call(name: &str) -> bool {
    system_calls::number(ARCH, name).is_some()
}

/// Returns the names of this machine's system calls.
pub fn system_call_names() -> impl Iterator<Item = &'static str> {
    system_calls::names().into_iter().filter(|name| is_system_call(name))
}

/// Returns the error for a system call that is written like a PMU, with options or a filter. Returns `None` if the event
/// is none.
pub fn call_with_options(name: &str, option: Option<&str>) -> Option<SourceError> {
    let option = option.filter(|_| is_system_call(name))?;
    let is_filter = option.contains(['<', '>', '!', '&', '(', '~']) || option.contains("==");
    let instead = match is_filter {
        true => format!("'{SYSTEM_CALLS}/name == \"{name}\" && {option}/'"),
        false => format!("'{SYSTEM_CALLS}/name={name},{option}/'"),
    };
    Some(SourceError::SystemCall { name: name.to_owned(), instead })
}

/// Returns the name of a system call, if the selector consists only of this name. Names of other events take
/// precedence. An event in a group is never a system call.
fn system_call(event: &EventSpec) -> Option<String> {
    let EventKind::Source { name, option: None, modifiers } = &event.kind else { return None };
    let is_alone = modifiers.is_empty() && event.grouping == Grouping::Alone;
    // `read` is also the code `ead` of a hardware event. The system call takes precedence here, because the code can be
    // written as `cpu/config=0xead/`.
    let is_named = named_event(name).is_some_and(|event| event.kind != PERF_TYPE_RAW);
    let is_event = is_named || built_in(name).is_some();
    (is_alone && !is_event && is_system_call(name)).then(|| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_system_calls_are_one_event_of_their_source() {
        let selected = |list: &str| parse(list).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
        let plain = |list: &str| parse_events(list).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(selected("fsync"), plain("syscall/name=fsync/"));
        assert_eq!(selected("openat,cycles,read"), plain("cycles,syscall/name=openat|read/"));
        assert_eq!(selected("openat//stack/,read").len(), 2);
        // `offcpu` stays the source of this name, and the unknown name `fsycn` stays unknown.
        assert_eq!(selected("syscall,offcpu,fsycn"), ["syscall", "offcpu", "fsycn"]);
    }
}
