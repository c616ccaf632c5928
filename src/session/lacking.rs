//! Events that a script names itself and a recording does not have: whether it can do without them, what is said of that,
//! and how they are recorded.

use std::{ffi::OsStr, path::Path};

use super::{
    delivery::Warnings,
    plan::{Plan, Switch},
};
use crate::{
    parallel::shell_quote,
    script::{Module, ScriptError, Without},
    spec::EventSpec,
    sys::output,
};

/// What a recording lacks.
pub(super) struct Lacking {
    /// The events' names.
    pub names: Vec<String>,
    /// The recording's name.
    pub recording: String,
    /// What is wrong with the recording, which may be why.
    pub damage: Vec<String>,
    /// Whether this process says what the script does without.
    pub warnings: Warnings,
}

impl Lacking {
    /// Says what the script does without. An event that it needs is an error, and so is a recording with none of those
    /// that its result is made of; `selected` are there.
    pub fn check(&self, plan: &Plan, module: &Module, selected: usize) -> Result<(), ScriptError> {
        if self.names.is_empty() {
            return Ok(());
        }
        let without = module.without()?;
        let needed: Vec<&str> =
            self.names.iter().map(String::as_str).filter(|name| !without.contains_key(*name)).collect();
        let said = said(&self.names, &without);
        if !needed.is_empty() {
            return Err(self.error(plan, module, needed.join(", ")));
        }
        if selected == 0 && !said.is_empty() {
            return Err(self.error(plan, module, self.names.join(" or ")));
        }
        if self.warnings == Warnings::Said {
            for (names, meaning) in said {
                output::say(format_args!("warning: {} has no {names}: {meaning}", self.recording));
            }
        }
        Ok(())
    }

    fn error(&self, plan: &Plan, module: &Module, events: String) -> ScriptError {
        if self.warnings == Warnings::Said {
            self.damage.iter().for_each(|damage| output::say(format_args!("warning: {damage}")));
        }
        let name = Path::new(module.path()).file_name().map(|name| name.to_string_lossy().into_owned());
        ScriptError::Lacks {
            module: name.unwrap_or_else(|| module.path().to_owned()),
            events,
            recording: self.recording.clone(),
            command: command(plan),
        }
    }
}

/// The names of what is done without, with what that means; those of one meaning together.
fn said(names: &[String], without: &Without) -> Vec<(String, String)> {
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

/// What records the events that the script names.
fn command(plan: &Plan) -> String {
    let own = plan.capture.events.iter().take(plan.own_events);
    let events: Vec<String> = own.map(EventSpec::to_string).collect();
    let chains = if plan.capture.callchain.every_event == Switch::On { " -g" } else { "" };
    format!("perf-prof record -a{chains} -e {} -- sleep 10", shell_quote(OsStr::new(&events.join(","))))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn events_that_mean_the_same_are_said_together() {
        let names = ["a:b", "dummy", "c:d", "e:f"].map(str::to_owned);
        let meaning = |text: &str| Some(text.to_owned());
        let without = [("a:b", meaning("no ends")), ("c:d", meaning("no names")), ("e:f", meaning("no ends"))];
        let mut without: Without = without.into_iter().map(|(name, text)| (name.to_owned(), text)).collect();
        without.insert("dummy".into(), None);
        expect![[r#"[("a:b, e:f", "no ends"), ("c:d", "no names")]"#]]
            .assert_eq(&format!("{:?}", said(&names, &without)));
    }
}
