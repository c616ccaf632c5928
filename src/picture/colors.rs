//! The palettes of flame graphs, by the names that such tools give them.

use std::str::FromStr;

use inferno::flamegraph::{
    Palette,
    color::{BasicPalette, MultiPalette},
};

/// What the frames are coloured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colors {
    pub(super) palette: Palette,
    meaning: Meaning,
}

/// What a picture in these colours is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Anything,
    OffCpu,
}

/// No palette has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown colors '{0}'; there are offcpu, {names}", names = Palette::VARIANTS.join(", "))]
pub struct UnknownColors(String);

impl Default for Colors {
    fn default() -> Colors {
        Colors { palette: Palette::Basic(BasicPalette::Hot), meaning: Meaning::Anything }
    }
}

impl FromStr for Colors {
    type Err = UnknownColors;

    fn from_str(name: &str) -> Result<Colors, UnknownColors> {
        // Blue is what pictures of waiting are known by.
        if name == "offcpu" {
            return Ok(Colors { palette: Palette::Basic(BasicPalette::Io), meaning: Meaning::OffCpu });
        }
        let palette = name.parse().map_err(|_| UnknownColors(name.to_owned()))?;
        Ok(Colors { palette, meaning: Meaning::Anything })
    }
}

impl Colors {
    /// The title of a picture in these colours that has none of its own.
    pub fn title(self) -> &'static str {
        match (self.meaning, self.palette) {
            (Meaning::OffCpu, _) => "Off-CPU Time Flame Graph",
            (_, Palette::Multi(MultiPalette::Wakeup)) => "Wakeup Flame Graph",
            _ => "Flame Graph",
        }
    }
}
