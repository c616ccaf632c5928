//! The report as a flame graph, or as the difference of two recordings.

use std::{
    ffi::OsStr,
    fs::File,
    io::{BufWriter, Write},
    path::PathBuf,
};

use anyhow::{Context as _, Result};

use crate::picture::{FlameGraphStyle, StackDifference, Stacks, draw, draw_difference};

/// A flame graph of the samples of a recording.
#[derive(Clone, Debug)]
pub struct FlamePlan {
    /// The file. If the name ends in `.folded`, it contains text; otherwise it contains a picture.
    pub path: PathBuf,
    /// The recording with which the report's recording is compared, if the user wants a comparison.
    pub before: Option<PathBuf>,
}

impl FlamePlan {
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
