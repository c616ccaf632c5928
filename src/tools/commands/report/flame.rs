//! The report as a flame graph, or as the difference of two recordings.

use std::{
    ffi::OsStr,
    fs::File,
    io::{BufWriter, Write},
    path::PathBuf,
};

use anyhow::{Context as _, Result};
use perf_prof_events::picture::{FlameGraphStyle, StackDifference, Stacks, draw, draw_difference};
use perf_prof_system::output;

/// A flame graph of the samples of a recording.
#[derive(Clone, Debug)]
pub struct FlamePlan {
    /// The file. If the name ends in `.folded`, it contains text; otherwise it contains a picture.
    pub path: PathBuf,
    /// The recording with which the report's recording is compared, if the user wants a comparison.
    pub before: Option<PathBuf>,
}

impl FlamePlan {
    /// Warns if the recordings have no event in common, because shares of different events cannot be compared. The
    /// warning is printed even with `-q`: the picture itself does not show the problem.
    pub(super) fn warn_of_other_events(&self, events: &[String], before: &[String]) {
        let Some(path) = &self.before else { return };
        if shares_no_event(events, before) {
            output::say(format_args!(
                "warning: {} has none of these events, so the difference says nothing: it has {}, and the report is of {}",
                path.display(),
                before.join(", "),
                events.join(", ")
            ));
        }
    }

    /// Writes the file.
    pub(super) fn write(&self, stacks: &Stacks, before: Option<&Stacks>, events: &[String]) -> Result<()> {
        self.try_write(stacks, before, events)
            .with_context(|| format!("cannot write the flame graph {}", self.path.display()))
    }

    fn try_write(&self, stacks: &Stacks, before: Option<&Stacks>, events: &[String]) -> Result<()> {
        let is_text = self.path.extension().and_then(OsStr::to_str) == Some("folded");
        let events = events.join(", ");
        let style = |subtitle| FlameGraphStyle {
            count_name: "periods".into(),
            subtitle: Some(subtitle),
            ..FlameGraphStyle::default()
        };
        let mut to = BufWriter::new(File::create(&self.path)?);
        match before {
            None if is_text => stacks.lines().iter().try_for_each(|line| writeln!(to, "{line}"))?,
            None => draw(stacks, &style(events), &mut to)?,
            Some(before) => {
                let difference = StackDifference::new(before, stacks);
                if is_text {
                    difference.lines().try_for_each(|line| writeln!(to, "{line}"))?;
                } else {
                    let shown = self.before.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
                    let subtitle = format!("{events}: red has a larger share than in {shown}, blue a smaller one");
                    draw_difference(&difference, &style(subtitle), &mut to)?;
                }
            }
        }
        Ok(to.flush()?)
    }
}

/// Returns whether no event is in both lists. The modifiers of events (`cycles:u`) make no difference.
fn shares_no_event(events: &[String], before: &[String]) -> bool {
    let has = |event: &String| before.iter().any(|other| without_modifiers(other) == without_modifiers(event));
    !events.is_empty() && !before.is_empty() && !events.iter().any(has)
}

/// Returns the name of an event without perf's modifiers.
fn without_modifiers(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((event, modifiers)) if modifiers.chars().all(|letter| "ukhGHpPSDWeIbR".contains(letter)) => event,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_with_other_modifiers_can_be_compared() {
        let no_common = |events: &[&str], before: &[&str]| {
            let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
            shares_no_event(&names(events), &names(before))
        };
        assert!(no_common(&["sched:sched_switch"], &["cpu-clock", "sched:sched_wakeup"]));
        assert!(!no_common(&["cycles:u", "sched:sched_switch"], &["cycles:P"]));
        assert!(!no_common(&["sched:sched_switch"], &["cpu-clock", "sched:sched_switch"]));
        assert!(!no_common(&["cpu-clock"], &[]));
    }
}
