//! The colour palettes of flame graphs, under the names that flame graph tools use.

use std::str::FromStr;

use inferno::flamegraph::{
    Palette,
    color::{BasicPalette, MultiPalette},
};

/// The colours of the frames in a flame graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colors {
    pub(super) palette: Palette,
    meaning: Meaning,
}

/// What a flame graph in these colours shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Anything,
    OffCpu,
}

/// The error for an unknown name of a palette.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown colors '{0}'; choose one of offcpu, {names}", names = Palette::VARIANTS.join(", "))]
pub struct UnknownColors(String);

impl Default for Colors {
    fn default() -> Colors {
        Colors { palette: Palette::Basic(BasicPalette::Hot), meaning: Meaning::Anything }
    }
}

impl FromStr for Colors {
    type Err = UnknownColors;

    fn from_str(name: &str) -> Result<Colors, UnknownColors> {
        // Off-CPU flame graphs are blue by convention.
        if name == "offcpu" {
            return Ok(Colors { palette: Palette::Basic(BasicPalette::Io), meaning: Meaning::OffCpu });
        }
        let palette = name.parse().map_err(|_| UnknownColors(name.to_owned()))?;
        Ok(Colors { palette, meaning: Meaning::Anything })
    }
}

impl Colors {
    /// Returns the default title of a flame graph in these colours.
    pub fn title(self) -> &'static str {
        match (self.meaning, self.palette) {
            (Meaning::OffCpu, _) => "Off-CPU Time Flame Graph",
            (_, Palette::Multi(MultiPalette::Wakeup)) => "Wakeup Flame Graph",
            _ => "Flame Graph",
        }
    }
}
