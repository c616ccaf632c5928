//! Draws the difference of two sets of stacks as a flame graph of the later set. Its colours and its hover texts say how the
//! shares changed. Each event has the same width and its own shares.

use std::io::Write;

use inferno::flamegraph::color::{Color, PaletteMap};

use super::{
    DrawError, EventWeights, FlameGraphStyle, StackDifference,
    difference::Roots,
    flame_events::{Comparison, DrawnBox, Further, Part, parts, with_own_weights},
    flame_graph::draw_lines,
};

/// The colour of boxes that have not changed. inferno has the same.
const SAME: Color = Color { r: 250, g: 250, b: 250 };

/// The colours of new boxes with the smallest and with the largest share.
const NEW: [Color; 2] = [Color { r: 238, g: 226, b: 252 }, Color { r: 180, g: 145, b: 250 }];

/// The colour of boxes that are not compared.
const NOT_COMPARED: Color = Color { r: 205, g: 205, b: 205 };

/// inferno writes a change as a percentage with two decimals, and divides the sum of all weights by this number before.
const PRECISION: u64 = 1_000_000;

/// Writes the flame graph of the later set of stacks to `to` as an SVG. `events` are those of the later set. `count_name` and
/// `divisor` of `look` are not used.
///
/// The colour of a box compares the shares of its chain of calls in both sets, each without the functions that it calls: red if
/// the later share is larger, blue if it is smaller, violet if the earlier set has no such chain. What a new chain calls is new
/// too, so the strength of violet is for the share with it. Events that are not compared are grey.
pub fn draw_difference(
    difference: &StackDifference,
    events: &[EventWeights],
    look: &FlameGraphStyle,
    mut to: impl Write,
) -> Result<(), DrawError> {
    if difference.is_without_later() {
        return Err(DrawError::Empty);
    }
    let mut parts = parts(events);
    if difference.roots() == Roots::Tasks {
        parts.truncate(1);
        parts.iter_mut().for_each(|part| (part.root, part.label) = (None, None));
    }
    let lines = difference.boxes(&mut parts);
    // Only the box below all others has no name.
    let mut colors = PaletteMap::default();
    colors.insert(String::new(), SAME);
    let mut svg = Vec::new();
    draw_lines(lines, &FlameGraphStyle { divisor: PRECISION, ..look.clone() }, Some(&mut colors), &mut svg)?;
    let (width, strongest): (u64, f64) = (parts.iter().map(Part::width).sum(), difference.strongest_change());
    let svg = with_own_weights(&String::from_utf8_lossy(&svg), &parts, |DrawnBox { part, title, share }| {
        if part.comparison == Comparison::Impossible {
            return Further { text: "; not compared".to_owned(), color: Some(NOT_COMPARED) };
        }
        // The change is relative to the whole width.
        let factor = width as f64 / part.width().max(1) as f64 / PRECISION as f64;
        match change(title) {
            Some(change) => Further { text: format!("; own {}", points(change * factor)), color: None },
            None => Further { text: "; new".to_owned(), color: Some(violet(share / strongest)) },
        }
    });
    Ok(to.write_all(svg.as_bytes())?)
}

/// Returns the change in a title of inferno: 1.5 in `f (3 us, 75.00%; +1.50%)`.
fn change(title: &str) -> Option<f64> {
    title.rsplit_once("%; ")?.1.strip_suffix("%)")?.parse().ok()
}

/// Returns the colour of a new box. `strength` is 1 for a share that is as large as the change with the strongest colour.
fn violet(strength: f64) -> Color {
    let [pale, strong] = NEW;
    let between = |pale: u8, strong: u8| {
        (f64::from(pale) + (f64::from(strong) - f64::from(pale)) * strength.clamp(0.0, 1.0)).round() as u8
    };
    Color { r: between(pale.r, strong.r), g: between(pale.g, strong.g), b: between(pale.b, strong.b) }
}

/// Returns the text of a change in percentage points. A change of -0.001 is not written as `-0.00`.
fn points(change: f64) -> String {
    if change.abs() < 0.005 { "0.00 points".to_owned() } else { format!("{change:+.2} points") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::{Stacks, stacks::stacks};

    fn event(name: &str, total: u64, count_name: &str, divisor: u64) -> EventWeights {
        EventWeights { name: name.into(), total, count_name: count_name.into(), divisor }
    }

    fn draw(difference: &StackDifference, events: &[EventWeights]) -> Result<String, DrawError> {
        let mut svg = Vec::new();
        draw_difference(difference, events, &FlameGraphStyle::default(), &mut svg)?;
        Ok(String::from_utf8(svg).unwrap())
    }

    fn picture(before: &Stacks, after: &Stacks) -> String {
        let events = [event("e", after.total(), "calls", 1)];
        draw(&StackDifference::new(before, after, Roots::Tasks), &events).unwrap()
    }

    /// Returns what the boxes of a function say, in the order of the picture.
    fn hover<'a>(svg: &'a str, function: &str) -> Vec<&'a str> {
        let boxes = svg.split("<title>").filter_map(|text| text.strip_prefix(function)?.strip_prefix(" ("));
        boxes.map(|text| text.split_once(")</title>").unwrap().0).collect()
    }

    /// Returns the colour of a function's box: red, green, blue.
    fn color(svg: &str, function: &str) -> [u8; 3] {
        let (_, from) = svg.split_once(&format!("<title>{function} (")).unwrap();
        let (_, from) = from.split_once("fill=\"rgb(").unwrap();
        let (numbers, _) = from.split_once(')').unwrap();
        let numbers: Vec<u8> = numbers.split(',').map(|number| number.parse().unwrap()).collect();
        numbers.try_into().unwrap()
    }

    #[test]
    fn shares_are_compared_and_not_weights() {
        // The second recording is ten times as long. `same` has half of the weight in both recordings.
        let before = stacks(&[("same", 50), ("more", 10), ("less", 40)]);
        let after = stacks(&[("same", 500), ("more", 400), ("less", 100)]);
        let difference = StackDifference::new(&before, &after, Roots::Tasks);
        assert!((difference.strongest_change() - 30.0).abs() < 0.001, "{}", difference.strongest_change());
        let svg = picture(&before, &after);
        let [same, [more_red, _, more_blue], [less_red, _, less_blue]] =
            ["same", "more", "less"].map(|function| color(&svg, function));
        assert_eq!(same, [250; 3]);
        assert!(more_red > more_blue && less_red < less_blue, "{svg}");
    }

    #[test]
    fn a_box_says_the_change_of_its_share_in_any_unit() {
        let before = stacks(&[("main/more", 10_000), ("main/less", 30_000)]);
        let after = stacks(&[("main/more", 60_000), ("main/less", 20_000)]);
        let difference = StackDifference::new(&before, &after, Roots::Tasks);
        for (divisor, all, more) in [(1, "80,000 us", "60,000 us"), (1000, "80 us", "60 us")] {
            let svg = draw(&difference, &[event("e", 80_000, "us", divisor)]).unwrap();
            assert_eq!(hover(&svg, "all"), [format!("{all}, 100%")]);
            assert_eq!(hover(&svg, "main"), [format!("{all}, 100.00%; own 0.00 points")]);
            assert_eq!(hover(&svg, "more"), [format!("{more}, 75.00%; own +50.00 points")]);
            assert!(hover(&svg, "less")[0].ends_with(", 25.00%; own -50.00 points"));
        }
    }

    #[test]
    fn changes_of_few_events_are_exact() {
        for (before, after, changes) in [
            ([1, 2], [1, 1], ["+16.67", "-16.67"]),
            ([30, 70], [3, 4], ["+12.86", "-12.86"]),
            ([10_000, 1], [20, 1], ["-4.75", "+4.75"]),
        ] {
            let svg =
                picture(&stacks(&[("f", before[0]), ("g", before[1])]), &stacks(&[("f", after[0]), ("g", after[1])]));
            for (function, change) in ["f", "g"].iter().zip(changes) {
                assert!(hover(&svg, function)[0].ends_with(&format!("; own {change} points")), "{svg}");
            }
        }
    }

    #[test]
    fn events_have_equal_widths_and_their_own_shares() {
        let before = stacks(&[("calls/f", 10), ("calls/g", 10), ("ns/f", 1_000_000)]);
        let after = stacks(&[("calls/f", 30), ("calls/g", 10), ("ns/f", 500_000), ("ns/g", 500_000), ("other/f", 1)]);
        let events =
            [event("calls", 40, "calls", 1), event("ns", 1_000_000, "us", 1000), event("other", 1, "events", 1)];
        let svg = draw(&StackDifference::new(&before, &after, Roots::Events), &events).unwrap();
        assert_eq!(hover(&svg, "all"), ["3 kinds of events, 100%"]);
        assert_eq!(hover(&svg, "calls: 40 calls, 20 calls before"), ["100.00%; own 0.00 points"]);
        assert_eq!(hover(&svg, "other: 1 event"), ["100.00%; not compared"]);
        let mut boxes = hover(&svg, "f");
        boxes.sort_unstable();
        assert_eq!(
            boxes,
            [
                "1 event, 100.00%; not compared",
                "30 calls, 75.00%; own +25.00 points",
                "500 us, 50.00%; own -50.00 points"
            ]
        );
        assert!(hover(&svg, "g").contains(&"500 us, 50.00%; new"), "{svg}");
        // White is for what has not changed.
        assert_eq!(
            (color(&svg, "other: 1 event"), color(&svg, "calls: 40 calls, 20 calls before")),
            ([205; 3], [250; 3])
        );
    }

    #[test]
    fn a_chain_that_the_earlier_set_does_not_have_is_no_increase() {
        // Only the name of a caller has changed.
        let before = stacks(&[("main/old/work", 60), ("main/other", 40)]);
        let after = stacks(&[("main/new/work", 60), ("main/other", 40)]);
        let difference = StackDifference::new(&before, &after, Roots::Tasks);
        assert_eq!((difference.strongest_change(), difference.new_share(), difference.gone_share()), (5.0, 60.0, 60.0));
        let svg = picture(&before, &after);
        let [main, new, work, other] = ["main", "new", "work", "other"].map(|function| color(&svg, function));
        assert_eq!((main, other), ([250; 3], [250; 3]));
        for [red, green, blue] in [new, work] {
            assert!(green < red && red < blue && green < 200, "not violet: {red} {green} {blue}");
        }
        assert_eq!(hover(&svg, "work"), ["60 calls, 60.00%; new"]);
    }

    #[test]
    fn marks_of_kinds_are_not_shown_in_boxes() {
        let of = stacks(&[("main_[python]/vfs_read_[k]", 1)]);
        let svg = picture(&of, &of);
        assert!(!hover(&svg, "main").is_empty() && !hover(&svg, "vfs_read").is_empty() && !svg.contains("_["), "{svg}");
    }

    #[test]
    fn a_small_change_has_a_pale_colour() {
        let svg = picture(&stacks(&[("f", 5000), ("g", 5000)]), &stacks(&[("f", 5010), ("g", 4990)]));
        let [_, paleness, _] = color(&svg, "f");
        assert!((230..250).contains(&paleness), "{paleness}");
    }

    #[test]
    fn a_new_chain_is_as_pale_as_a_change_of_its_share() {
        let before = stacks(&[("main/old", 9_000), ("main/same", 1_000)]);
        let after = stacks(&[("main/old", 4_500), ("main/same", 1_000), ("main/new/work", 4_499), ("main/once", 1)]);
        let difference = StackDifference::new(&before, &after, Roots::Tasks);
        let green = |difference: &StackDifference, function: &str| {
            let svg = draw(difference, &[event("e", after.total(), "samples", 1)]).unwrap();
            color(&svg, function)[1]
        };
        // A caller is as new as what it calls.
        assert_eq!(["new", "work", "once"].map(|function| green(&difference, function)), [145, 145, 226]);
        // Of few samples, the same share may be chance.
        let difference = difference.of_samples(10, 10);
        assert!((170..174).contains(&green(&difference, "work")), "{}", green(&difference, "work"));
    }

    #[test]
    fn large_weights_and_empty_sets_are_compared() {
        let (none, huge) = (Stacks::default(), stacks(&[("f", u64::MAX / 2)]));
        assert!(hover(&picture(&huge, &huge), "f")[0].ends_with(", 100.00%; own 0.00 points"));
        assert!(hover(&picture(&none, &huge), "f")[0].ends_with(", 100.00%; not compared"));
        let difference = StackDifference::new(&huge, &none, Roots::Tasks);
        assert!(matches!(draw(&difference, &[event("e", 0, "calls", 1)]), Err(DrawError::Empty)));
    }
}
