//! The colours of flame graphs. By default, the colour of a box shows the kind of its function. Further palettes have the
//! names that flame graph tools use.

use std::str::FromStr;

use inferno::flamegraph::{
    Palette,
    color::{BasicPalette, Color, MultiPalette},
};

use super::label::LabelKind;

/// The colours of the frames in a flame graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colors {
    /// The colours of the background. Without `kinds`, also those of the frames.
    pub(super) palette: Palette,
    pub(super) kinds: Option<KindColors>,
}

/// The colours of the kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KindColors {
    Warm,
    /// For time off the CPU. Such flame graphs are blue by convention.
    OffCpu,
}

/// The lightest colour of a kind of frames, and its name in the legend.
struct Hue {
    lightest: [u8; 3],
    name: &'static str,
}

const GREEN: Hue = Hue { lightest: [165, 230, 165], name: "green" };
const ORANGE: Hue = Hue { lightest: [255, 165, 120], name: "orange" };
const YELLOW: Hue = Hue { lightest: [255, 224, 110], name: "yellow" };
const VIOLET: Hue = Hue { lightest: [210, 190, 250], name: "violet" };
const BLUE: Hue = Hue { lightest: [160, 205, 255], name: "blue" };

/// The number of shades of a colour. They separate neighbouring boxes.
const SHADES: u8 = 20;

impl Hue {
    /// Returns the shade of a name.
    pub fn color(&self, name: &str) -> Color {
        let shade = name.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let shade = (shade % u32::from(SHADES)) as u8;
        let [r, g, b] = self.lightest.map(|lightest| lightest - shade);
        Color { r, g, b }
    }
}

impl KindColors {
    fn hue(self, kind: LabelKind) -> Hue {
        match (self, kind) {
            (_, LabelKind::Python) => GREEN,
            (KindColors::Warm, LabelKind::Kernel) => ORANGE,
            (KindColors::Warm, LabelKind::Native) => YELLOW,
            (KindColors::OffCpu, LabelKind::Kernel) => VIOLET,
            (KindColors::OffCpu, LabelKind::Native) => BLUE,
        }
    }

    /// Returns the colour of a frame. A name has the same colour in every flame graph.
    pub fn color(self, name: &str) -> Color {
        self.hue(LabelKind::of(name)).color(name)
    }

    /// Returns the legend for these names. `None` if all are of one kind.
    pub fn legend<'a>(self, names: impl Iterator<Item = &'a str> + Clone) -> Option<String> {
        let has = |kind| names.clone().any(|name| LabelKind::of(name) == kind);
        let marked = [(LabelKind::Python, "Python"), (LabelKind::Kernel, "the kernel")];
        let marked = marked.into_iter().filter(|(kind, _)| has(*kind));
        let mut parts: Vec<String> = marked.map(|(kind, of)| format!("{}: {of}", self.hue(kind).name)).collect();
        if has(LabelKind::Native) {
            parts.push(format!("{}: other functions", self.hue(LabelKind::Native).name));
        }
        (parts.len() > 1).then(|| parts.join(", "))
    }
}

/// The error for an unknown name of a palette.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown colors '{0}'; choose one of offcpu, {names}", names = Palette::VARIANTS.join(", "))]
pub struct UnknownColors(String);

impl Default for Colors {
    fn default() -> Colors {
        Colors { palette: Palette::Basic(BasicPalette::Hot), kinds: Some(KindColors::Warm) }
    }
}

impl FromStr for Colors {
    type Err = UnknownColors;

    fn from_str(name: &str) -> Result<Colors, UnknownColors> {
        if name == "offcpu" {
            return Ok(Colors { palette: Palette::Basic(BasicPalette::Io), kinds: Some(KindColors::OffCpu) });
        }
        let palette = name.parse().map_err(|_| UnknownColors(name.to_owned()))?;
        Ok(Colors { palette, kinds: None })
    }
}

impl Colors {
    /// Returns the default title of a flame graph in these colours.
    pub fn title(self) -> &'static str {
        match (self.kinds, self.palette) {
            (Some(KindColors::OffCpu), _) => "Off-CPU Time Flame Graph",
            (_, Palette::Multi(MultiPalette::Wakeup)) => "Wakeup Flame Graph",
            _ => "Flame Graph",
        }
    }
}
