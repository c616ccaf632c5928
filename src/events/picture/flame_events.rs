//! Draws the stacks of several events as one flame graph. Their weights have different units, such as nanoseconds and calls, and a
//! sum of them would mean nothing. So each event gets the same width, and its boxes show its own unit and shares.

use std::io::Write;

use inferno::flamegraph::color::Color;

use super::{DrawError, FlameGraphStyle, Label, Stacks, escaped, flame_graph::draw_weighted, quantity::counted};

/// The weights of an event, whose name is the outermost frame of its stacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventWeights {
    /// The event's name.
    pub name: String,
    /// The sum of its weights.
    pub total: u64,
    /// The unit of its weights, for example `us`.
    pub count_name: String,
    /// Weights are divided by this number before they are shown. 0 stands for 1.
    pub divisor: u64,
}

/// Writes the flame graph to `to` as an SVG. `count_name` and `divisor` of `look` are not used.
pub fn draw_events(
    stacks: &Stacks,
    events: &[EventWeights],
    look: &FlameGraphStyle,
    mut to: impl Write,
) -> Result<(), DrawError> {
    let mut parts = parts(events);
    let lines = scaled(stacks.lines(), &mut parts);
    let mut svg = Vec::new();
    let labels = parts.iter().filter_map(|part| part.label.as_deref());
    let names: Vec<&str> = stacks.names().chain(labels).collect();
    draw_weighted(&names, lines, &FlameGraphStyle { divisor: 1, ..look.clone() }, &mut svg)?;
    let svg = with_own_weights(&String::from_utf8_lossy(&svg), &parts, |_| Further::default());
    Ok(to.write_all(svg.as_bytes())?)
}

/// The part of the picture that belongs to an event.
pub(super) struct Part<'a> {
    pub event: &'a EventWeights,
    /// The outermost frame. `None` if there is only this event, and the outermost frames are others.
    pub root: Option<String>,
    /// What the picture has in place of the outermost frame: the event and its sum.
    pub label: Option<String>,
    /// Whether the event can be compared with an earlier one.
    pub comparison: Comparison,
    /// The weights are multiplied by this number, so that all parts have about the same width.
    pub factor: u64,
    /// The left and the right edge, in weights of the picture.
    edges: Option<(u64, u64)>,
}

/// Whether an event can be compared with an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Possible,
    /// The earlier set has no such event, or only one set has call chains.
    Impossible,
}

impl EventWeights {
    /// Returns a weight in the unit of the event.
    pub(super) fn text(&self, weight: u64) -> String {
        let count = (weight as f64 / self.divisor.max(1) as f64).round() as u64;
        counted(count, &self.count_name)
    }
}

impl Part<'_> {
    /// Returns the stack with the label in place of its outermost frame.
    pub fn labelled(&self, stack: &str) -> String {
        let called = self.root.as_deref().and_then(|root| stack.strip_prefix(root));
        called.zip(self.label.as_deref()).map_or_else(|| stack.to_owned(), |(called, label)| format!("{label}{called}"))
    }

    /// Returns whether a stack is in this part.
    pub fn has(&self, stack: &str) -> bool {
        self.root.as_deref().is_none_or(|root| stack.split(';').next() == Some(root))
    }

    /// Returns a weight in weights of the picture, and moves `end`, the right edge of what was drawn, to the right by it.
    pub fn widened(&mut self, weight: u64, end: &mut u64) -> u64 {
        let (begin, weight) = (*end, weight.saturating_mul(self.factor));
        *end = end.saturating_add(weight);
        self.edges = Some((self.edges.map_or(begin, |(first, _)| first), *end));
        weight
    }

    /// Returns the width in weights of the picture.
    pub fn width(&self) -> u64 {
        self.edges.map_or(0, |(begin, end)| end - begin)
    }
}

pub(super) fn parts(events: &[EventWeights]) -> Vec<Part<'_>> {
    /// A width in weights of the picture at which a hundredth of a percentage point is many. It is exact in a f64.
    const WIDTH: u64 = 1_000_000_000_000;
    let largest = events.iter().map(|event| event.total).max().unwrap_or(0).max(1);
    // The factors are whole numbers, so that the weights of an event are found again exactly. With 1000 for the largest sum, the
    // widths differ by less than a thousandth. The sum of all weights has to fit into a u64, so the largest ones stay as they are.
    let scale = (WIDTH / largest).max(1000).min(u64::MAX / (events.len() as u64 + 1) / largest);
    let parts = events.iter().map(|event| {
        let EventWeights { name, total, .. } = event;
        let factor = (largest.saturating_mul(scale) / total.max(&1)).max(1);
        let root = Label::Name(name).text();
        let label = Some(Label::Name(&format!("{root}: {}", event.text(*total))).text());
        Part { event, root: Some(root), label, comparison: Comparison::Possible, factor, edges: None }
    });
    parts.collect()
}

/// Multiplies the weights of folded lines by the factors of their parts, and notes the edges of the parts.
fn scaled(lines: Vec<String>, parts: &mut [Part<'_>]) -> Vec<String> {
    let mut end = 0u64;
    let mut scale = |line: String| {
        let (stack, weight) = line.rsplit_once(' ')?;
        let part = parts.iter_mut().find(|part| part.has(stack))?;
        let weight = part.widened(weight.parse().ok()?, &mut end);
        Some(format!("{} {weight}", part.labelled(stack)))
    };
    lines.into_iter().filter_map(&mut scale).collect()
}

/// A box of the picture.
pub(super) struct DrawnBox<'a, 'b> {
    pub part: &'a Part<'b>,
    /// The title so far.
    pub title: &'a str,
    /// The share of the event's weight, in percent.
    pub share: f64,
}

/// What is further shown of a box.
#[derive(Default)]
pub(super) struct Further {
    /// What comes after the share in the title.
    pub text: String,
    /// Another colour than that of the name.
    pub color: Option<Color>,
}

/// Replaces the number, the unit and the share in the title of each box, and adds what `further` returns for the box.
pub(super) fn with_own_weights(svg: &str, parts: &[Part<'_>], further: impl Fn(DrawnBox<'_, '_>) -> Further) -> String {
    let mut texts = svg.split("<title>");
    let mut shown = texts.next().unwrap_or_default().to_owned();
    for text in texts {
        shown.push_str("<title>");
        shown.push_str(&own_box(text, parts, &further).unwrap_or_else(|| text.to_owned()));
    }
    shown
}

/// Returns the text with another title. It begins with the title, and the rest has the place, the width and the colour of the box.
fn own_box(text: &str, parts: &[Part<'_>], further: impl Fn(DrawnBox<'_, '_>) -> Further) -> Option<String> {
    let (title, rest) = text.split_once("</title>")?;
    let (name, of_name) = title.rsplit_once(" (")?;
    let number = |attribute: &str| -> Option<u64> {
        rest.split_once(&format!(" {attribute}=\""))?.1.split_once('"')?.0.parse().ok()
    };
    let (place, width) = (number("fg:x")?, number("fg:w")?);
    let part = parts.iter().find(|part| part.edges.is_some_and(|(begin, end)| begin <= place && place + width <= end));
    let Some(part) = part else {
        let drawn = parts.iter().filter(|part| part.edges.is_some()).count();
        return Some(format!("{name} ({drawn} kinds of events, 100%)</title>{rest}"));
    };
    let weight = width / part.factor;
    // The box below all others has no decimals.
    let (share, rest) = if of_name.ends_with(", 100%)") {
        ("100%".to_owned(), rest.to_owned())
    } else {
        let share = 100.0 * weight as f64 / part.event.total.max(1) as f64;
        let Further { text, color } = further(DrawnBox { part, title, share });
        (format!("{share:.2}%{text}"), color.and_then(|color| colored(rest, color)).unwrap_or_else(|| rest.to_owned()))
    };
    if part.label.as_deref().is_some_and(|label| escaped(label) == name) {
        return Some(format!("{name} ({share})</title>{rest}"));
    }
    Some(format!("{name} ({}, {share})</title>{rest}", part.event.text(weight)))
}

/// Returns the text of a box with another colour.
fn colored(of_box: &str, Color { r, g, b }: Color) -> Option<String> {
    let (before, from) = of_box.split_once(" fill=\"rgb(")?;
    let (_, after) = from.split_once(')')?;
    Some(format!("{before} fill=\"rgb({r},{g},{b}){after}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::stacks::stacks;

    /// Returns the titles and the widths of all boxes, in percent of the picture.
    fn boxes(of: &[(&str, u64)], events: &[(&str, u64, &str, u64)]) -> Vec<(String, f64)> {
        let weights = |&(name, total, unit, divisor): &(&str, u64, &str, u64)| EventWeights {
            name: name.to_owned(),
            total,
            count_name: unit.to_owned(),
            divisor,
        };
        let mut svg = Vec::new();
        let events: Vec<_> = events.iter().map(weights).collect();
        draw_events(&stacks(of), &events, &FlameGraphStyle::default(), &mut svg).unwrap();
        let svg = String::from_utf8(svg).unwrap();
        let boxes = svg.split("<title>").skip(1).map(|text| {
            let (title, rest) = text.split_once("</title>").unwrap();
            let width = rest.split_once(" width=\"").unwrap().1.split_once("%\"").unwrap().0;
            (title.to_owned(), width.parse().unwrap())
        });
        boxes.collect()
    }

    #[test]
    fn events_of_different_units_have_equal_widths_and_their_own_weights() {
        let of = [("cpu-clock/ls/f", 9_000_000_000), ("cpu-clock/ls", 1_000_000_007), ("a: b/ls/f", 2), ("a: b/sh", 1)];
        let all =
            boxes(&of, &[("cpu-clock", 10_000_000_007, "us", 1000), ("a: b", 3, "events", 1), ("none", 0, "x", 1)]);
        let mut titles: Vec<&str> = all.iter().map(|(title, _)| title.as_str()).collect();
        titles.sort_unstable();
        expect_test::expect![[r#"
            a: b: 3 events (100.00%)
            all (2 kinds of events, 100%)
            cpu-clock: 10,000,000 us (100.00%)
            f (2 events, 66.67%)
            f (9,000,000 us, 90.00%)
            ls (10,000,000 us, 100.00%)
            ls (2 events, 66.67%)
            sh (1 event, 33.33%)"#]]
        .assert_eq(&titles.join("\n"));
        let width = |name: &str| all.iter().find(|(title, _)| title.starts_with(name)).unwrap().1;
        assert!((width("cpu-clock") - width("a: b")).abs() < 0.1, "{all:?}");
    }

    #[test]
    fn the_largest_weights_do_not_overflow() {
        let of = [("a/f", u64::MAX - 10), ("b/f", 10)];
        let all = boxes(&of, &[("a", u64::MAX - 10, "ns", 1), ("b", 10, "calls", 1)]);
        assert!(all.iter().any(|(title, _)| title.starts_with("a: 18,446,744,073,709,551,")), "{all:?}");
    }
}
