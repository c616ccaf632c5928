//! Stacks as a flame graph: an SVG that a browser shows and lets one search and zoom in.

use std::io::{self, Write};

use inferno::flamegraph::{self, Direction, Options, TextTruncateDirection};

use super::{Colors, Stacks, printable};

/// How a picture looks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// The headline; `None` for the one that goes with the colours.
    pub title: Option<String>,
    /// A line below it.
    pub subtitle: Option<String>,
    /// The palette.
    pub colors: Colors,
    /// What weights count: `samples`, `us`.
    pub count_name: String,
    /// Where the callers are.
    pub growth: Growth,
}

/// Where the callers are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Growth {
    /// Below what they call.
    #[default]
    Up,
    /// Above what they call, as icicles.
    Down,
}

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
pub enum DrawError {
    /// There are no stacks.
    #[error("no stacks were added")]
    Empty,
    /// Where it was to be written refuses it.
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// Writes the picture.
pub fn draw(stacks: &Stacks, look: &Look, to: impl Write) -> Result<(), DrawError> {
    if stacks.is_empty() {
        return Err(DrawError::Empty);
    }
    let mut options = Options::default();
    options.title = printable(look.title.as_deref().unwrap_or(look.colors.title())).into_owned();
    options.subtitle = look.subtitle.as_deref().map(|text| printable(text).into_owned());
    options.colors = look.colors.palette;
    options.count_name = printable(&look.count_name).into_owned();
    options.direction = match look.growth {
        Growth::Up => Direction::Straight,
        Growth::Down => Direction::Inverted,
    };
    // The begin of a function's name says more than its end.
    options.text_truncate_direction = TextTruncateDirection::Right;
    // A function has the same colour in every picture.
    options.deterministic = true;
    // Our lines have the order in which each function is one box, which sorting would spoil; this way takes them as they
    // are, last one first.
    options.flame_chart = true;
    let lines = stacks.lines();
    Ok(flamegraph::from_lines(&mut options, lines.iter().rev().map(String::as_str), to)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::Label;

    fn stacks(of: &[(&str, u64)]) -> Stacks {
        let mut stacks = Stacks::default();
        for (frames, weight) in of {
            let root = stacks.root();
            let end = frames.split('/').fold(root, |caller, name| stacks.called(caller, Label::Name(name)));
            stacks.weigh(end, *weight).unwrap();
        }
        stacks
    }

    fn svg(stacks: &Stacks, look: &Look) -> String {
        let mut svg = Vec::new();
        draw(stacks, look, &mut svg).unwrap();
        String::from_utf8(svg).unwrap()
    }

    fn samples() -> Look {
        Look { count_name: "samples".into(), ..Look::default() }
    }

    /// What the pointer shows of each box.
    fn boxes(svg: &str) -> Vec<&str> {
        svg.split("<title>").skip(1).map(|rest| rest.split_once("</title>").unwrap().0).collect()
    }

    #[test]
    fn each_frame_is_a_box_with_its_weight() {
        let stacks = stacks(&[("comm/main/read", 3), ("comm/main", 1), ("other/<f>", 4)]);
        let svg = svg(&stacks, &samples());
        let mut shown = boxes(&svg);
        shown.sort_unstable();
        expect_test::expect![[r#"
            &lt;f&gt; (4 samples, 50.00%)
            all (8 samples, 100%)
            comm (4 samples, 50.00%)
            main (4 samples, 50.00%)
            other (4 samples, 50.00%)
            read (3 samples, 37.50%)"#]]
        .assert_eq(&shown.join("\n"));
    }

    #[test]
    fn a_function_is_one_box() {
        let stacks = stacks(&[("f/g", 1), ("f.part.0", 1), ("f", 1), ("f/a 5", 1), ("f(int)", 1)]);
        let svg = svg(&stacks, &samples());
        assert_eq!(boxes(&svg).iter().filter(|title| title.starts_with("f (")).count(), 1, "{svg}");
        assert!(boxes(&svg).contains(&"a_5 (1 samples, 20.00%)"), "{svg}");
    }

    #[test]
    fn colours_and_texts_are_those_asked_for() {
        let stacks = stacks(&[("f", 1)]);
        let look = Look {
            colors: "offcpu".parse().unwrap(),
            count_name: "us".into(),
            subtitle: Some("a < b\u{1}".into()),
            ..Look::default()
        };
        let svg = svg(&stacks, &look);
        for text in ["Off-CPU Time Flame Graph", "a &lt; b?", "f (1 us, 100.00%)", "#e0e0ff"] {
            assert!(svg.contains(text), "{text} is not in {svg}");
        }
        let named = Look { title: Some("mine".into()), ..look };
        assert!(!self::svg(&stacks, &named).contains("Off-CPU"));
        let unknown = "blood".parse::<Colors>().unwrap_err().to_string();
        assert!(unknown.starts_with("unknown colors 'blood'; there are offcpu, aqua, "), "{unknown}");
    }

    #[test]
    fn no_picture_without_stacks() {
        assert!(matches!(draw(&Stacks::default(), &samples(), Vec::new()), Err(DrawError::Empty)));
    }

    /// Adding up in the drawing would overflow if sums were not watched before.
    #[test]
    fn the_heaviest_stacks_are_drawn() {
        let svg = svg(&stacks(&[("a", u64::MAX - 1), ("b", 1)]), &samples());
        assert!(svg.contains("a (18,446,744,073,709,551,615 samples, 100.00%)"), "{svg}");
    }
}
