//! Handles events that a script selects and the recording does not contain. If the script can run without them, prints
//! a warning about the effect on the result. Otherwise returns an error with a command that records the events.

use std::path::Path;

use perf_prof_format::spec::EventSpec;
use perf_prof_session::{plan::Switch, recording::replay::Warnings, spine::MissingEvents};
use perf_prof_system::{output, shell::shell_quote};

use super::plan::ScriptPlan;
use crate::script::{Module, OptionalEvents, ScriptError};

/// Prints a warning about each missing event that makes the result incomplete. Returns an error if the script needs a
/// missing event. Also returns an error if the recording contains none of the selected events, and a missing event has
/// an effect on the result. `selected` is the number of selected events that the recording contains.
pub(super) fn check(
    missing: &MissingEvents,
    plan: &ScriptPlan,
    module: &Module,
    selected: usize,
) -> Result<(), ScriptError> {
    if missing.names.is_empty() {
        return Ok(());
    }
    let without = module.without()?;
    let needed: Vec<&str> =
        missing.names.iter().map(String::as_str).filter(|name| !without.contains_key(*name)).collect();
    let said = optional_events_with_effect(&missing.names, &without);
    if !needed.is_empty() {
        return Err(error(missing, plan, module, needed.join(", ")));
    }
    if selected == 0 && !said.is_empty() {
        return Err(error(missing, plan, module, missing.names.join(" or ")));
    }
    if missing.warnings == Warnings::Printed {
        for (names, meaning) in said {
            output::say(format_args!("warning: {} does not contain {names}: {meaning}", missing.recording));
        }
    }
    Ok(())
}

fn error(missing: &MissingEvents, plan: &ScriptPlan, module: &Module, events: String) -> ScriptError {
    missing.print_damage();
    let name = Path::new(module.path()).file_name().map(|name| name.to_string_lossy().into_owned());
    ScriptError::MissingEvents {
        module: name.unwrap_or_else(|| module.path().to_owned()),
        events,
        recording: missing.recording.clone(),
        command: command(plan),
    }
}

/// Returns the missing events that have an effect on the result, each with this effect. Events with the same effect are
/// joined: `a, b`.
fn optional_events_with_effect(names: &[String], without: &OptionalEvents) -> Vec<(String, String)> {
    let mut said: Vec<(String, String)> = Vec::new();
    for name in names {
        let Some(Some(meaning)) = without.get(name) else { continue };
        match said.iter_mut().find(|(_, other)| other == meaning) {
            Some((names, _)) => *names = format!("{names}, {name}"),
            None => said.push((name.clone(), meaning.clone())),
        }
    }
    said
}

/// Returns the command that records the events that the script selects.
fn command(plan: &ScriptPlan) -> String {
    let own = plan.run.capture.events.iter().take(plan.run.own_events);
    let events: Vec<String> = own.map(EventSpec::to_string).collect();
    let chains = if plan.run.capture.callchain.every_event == Switch::On { " -g" } else { "" };
    format!("perf-prof record -a{chains} -e {} -- sleep 10", shell_quote(events.join(",")))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn events_with_the_same_meaning_are_reported_together() {
        let names = ["a:b", "dummy", "c:d", "e:f"].map(str::to_owned);
        let meaning = |text: &str| Some(text.to_owned());
        let without = [("a:b", meaning("no ends")), ("c:d", meaning("no names")), ("e:f", meaning("no ends"))];
        let mut without: OptionalEvents = without.into_iter().map(|(name, text)| (name.to_owned(), text)).collect();
        without.insert("dummy".into(), None);
        expect![[r#"[("a:b, e:f", "no ends"), ("c:d", "no names")]"#]]
            .assert_eq(&format!("{:?}", optional_events_with_effect(&names, &without)));
    }
}
