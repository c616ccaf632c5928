//! The report as a flame graph, or as the difference of two recordings.

use std::{
    ffi::OsStr,
    fs::File,
    io::{BufWriter, Write},
    path::PathBuf,
};

use anyhow::{Context as _, Result};
use perf_prof_events::picture::{FlameGraphStyle, StackDifference, Stacks, draw, draw_difference};

use super::Before;

/// A flame graph of the samples of a recording.
#[derive(Clone, Debug)]
pub struct FlamePlan {
    /// The file. If the name ends in `.folded`, it contains text; otherwise it contains a picture.
    pub path: PathBuf,
}

impl FlamePlan {
    /// Writes the file.
    pub(super) fn write(&self, stacks: &Stacks, before: Option<(&Before, &Stacks)>, events: &[String]) -> Result<()> {
        self.try_write(stacks, before, events)
            .with_context(|| format!("cannot write the flame graph {}", self.path.display()))
    }

    fn try_write(&self, stacks: &Stacks, before: Option<(&Before, &Stacks)>, events: &[String]) -> Result<()> {
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
            Some((before, stacks_before)) => {
                let difference = StackDifference::new(stacks_before, stacks);
                if is_text {
                    difference.lines().try_for_each(|line| writeln!(to, "{line}"))?;
                } else {
                    let subtitle =
                        format!("{events}: red has a larger share than in {}, blue a smaller one", before.name);
                    draw_difference(&difference, &style(subtitle), &mut to)?;
                }
            }
        }
        Ok(to.flush()?)
    }
}
