//! Draws stacks as a flame graph: an SVG in which a browser can search and zoom.

use std::io::{self, Write};

use inferno::flamegraph::{self, Direction, Options, TextTruncateDirection};

use super::{Colors, StackDifference, Stacks, printable};

/// The appearance of a flame graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlameGraphStyle {
    /// The title. `None` stands for the default title of `colors`.
    pub title: Option<String>,
    /// A line below the title.
    pub subtitle: Option<String>,
    /// The colours of the frames.
    pub colors: Colors,
    /// The unit of the weights, for example `samples` or `us`.
    pub count_name: String,
    /// Weights are divided by this number before they are shown. 0 stands for 1.
    pub divisor: u64,
    /// The direction in which stacks grow.
    pub growth: StackDirection,
}

/// The direction in which stacks grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StackDirection {
    /// Callers are below the functions that they call.
    #[default]
    Up,
    /// Callers are above the functions that they call (an icicle graph).
    Down,
}

/// Why a picture was not drawn.
#[derive(Debug, thiserror::Error)]
pub enum DrawError {
    /// There is nothing to draw.
    #[error("no stacks were added")]
    Empty,
    /// The picture could not be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// Writes the flame graph to `to` as an SVG.
pub fn draw(stacks: &Stacks, look: &FlameGraphStyle, to: impl Write) -> Result<(), DrawError> {
    if stacks.is_empty() {
        return Err(DrawError::Empty);
    }
    draw_lines(stacks.lines(), look, to)
}

/// Writes the flame graph of the later set of stacks to `to` as an SVG. The colour of a box compares the shares of its
/// function in both sets: red if the later share is larger, blue if it is smaller.
pub fn draw_difference(difference: &StackDifference, look: &FlameGraphStyle, to: impl Write) -> Result<(), DrawError> {
    if difference.is_without_later() {
        return Err(DrawError::Empty);
    }
    draw_lines(difference.scaled_lines().collect(), look, to)
}

fn draw_lines(lines: Vec<String>, look: &FlameGraphStyle, mut to: impl Write) -> Result<(), DrawError> {
    let mut options = Options::default();
    options.title = printable(look.title.as_deref().unwrap_or(look.colors.title())).into_owned();
    options.subtitle = look.subtitle.as_deref().map(|text| printable(text).into_owned());
    options.colors = look.colors.palette;
    options.count_name = printable(&look.count_name).into_owned();
    options.direction = match look.growth {
        StackDirection::Up => Direction::Straight,
        StackDirection::Down => Direction::Inverted,
    };
    // If a name does not fit into its box, cut off the end of the name: the start says more.
    options.text_truncate_direction = TextTruncateDirection::Right;
    // Gives a function the same colour in every flame graph.
    options.deterministic = true;
    // Without this option, inferno would sort the lines, and a function could get several boxes. With it, inferno keeps the
    // order of the lines, but starts with the last line, so the lines are passed in reverse.
    options.flame_chart = true;
    options.factor = 1.0 / look.divisor.max(1) as f64;
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().rev().map(String::as_str), &mut svg)?;
    Ok(to.write_all(with_names(&String::from_utf8_lossy(&svg)).as_bytes())?)
}

/// The width of a picture that is shown alone, and the width of a letter, in pixels, as inferno assumes them.
const WIDTH: f64 = 1200.0;
const LETTER: f64 = 7.1;

/// Writes the names of functions into the boxes, each shortened to the width of its box. In inferno's picture, a script does
/// this, because it knows the real width. But many programs that show pictures run no scripts.
fn with_names(svg: &str) -> String {
    const EMPTY: &str = "></text>";
    let mut parts = svg.split("<title>");
    let mut named = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        named += "<title>";
        let label = part.split_once("</title>").and_then(|(title, of_box)| {
            let width = of_box.split_once(" width=\"")?.1.split_once("%\"")?.0.parse::<f64>().ok()?;
            let letters = (width / 100.0 * WIDTH / LETTER) as usize;
            let name = title.rsplit_once(" (")?.0;
            Some(shortened(name, letters))
        });
        match (label, part.split_once(EMPTY)) {
            (Some(label), Some((of_box, rest))) => named.extend([of_box, ">", &label, "</text>", rest]),
            _ => named += part,
        }
    }
    named
}

/// Shortens a name to this number of letters. An XML escape such as `&lt;` counts as one letter.
fn shortened(name: &str, letters: usize) -> String {
    const ESCAPED: [(&str, &str); 5] =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    let plain = ESCAPED.iter().fold(name.to_owned(), |name, (escaped, letter)| name.replace(escaped, letter));
    let short = match plain.chars().count() {
        count if count <= letters => plain,
        _ if letters < 3 => String::new(),
        _ => plain.chars().take(letters - 2).chain("..".chars()).collect(),
    };
    ESCAPED.iter().rev().fold(short, |name, (escaped, letter)| name.replace(letter, escaped))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::{Label, stacks::stacks};

    fn svg(stacks: &Stacks, look: &FlameGraphStyle) -> String {
        let mut svg = Vec::new();
        draw(stacks, look, &mut svg).unwrap();
        String::from_utf8(svg).unwrap()
    }

    fn samples() -> FlameGraphStyle {
        FlameGraphStyle { count_name: "samples".into(), ..FlameGraphStyle::default() }
    }

    /// Returns the tooltips of all boxes.
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
    fn boxes_have_names_without_a_script() {
        let long = "a".repeat(300);
        let stacks = stacks(&[("comm/<f>", 1), (&long, 1), ("x/small", 1000)]);
        let svg = svg(&stacks, &samples());
        let names: Vec<&str> = svg.split("</text>").filter_map(|part| Some(part.rsplit_once('>')?.1)).collect();
        assert!(names.contains(&"all") && names.contains(&"small"), "{names:?}");
        assert_eq!(["a&l", "a &"].map(|name| shortened(&name.replace('&', "&amp;"), 9)), ["a&amp;l", "a &amp;"]);
        assert_eq!([2, 5].map(|letters| shortened("&lt;abcdef", letters)), ["", "&lt;ab.."]);
    }

    #[test]
    fn weights_are_shown_in_the_unit() {
        let look = FlameGraphStyle { count_name: "us".into(), divisor: 1000, ..FlameGraphStyle::default() };
        assert_eq!(boxes(&svg(&stacks(&[("f", 1_500_000)]), &look))[0], "all (1,500 us, 100%)");
    }

    #[test]
    fn a_run_of_unknown_frames_of_a_file_is_one_box() {
        let mut stacks = Stacks::default();
        let labels = [Label::InFile("libc.so.6"), Label::InFile("libc.so.6"), Label::Name("f"), Label::Name("f")];
        let end = labels.into_iter().fold(stacks.root(), |caller, label| stacks.child(caller, label));
        stacks.add_weight(end, 1).unwrap();
        assert_eq!(stacks.lines(), ["[libc.so.6];f;f 1"]);
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
        let look = FlameGraphStyle {
            colors: "offcpu".parse().unwrap(),
            count_name: "us".into(),
            subtitle: Some("a < b\u{1}".into()),
            ..FlameGraphStyle::default()
        };
        let svg = svg(&stacks, &look);
        for text in ["Off-CPU Time Flame Graph", "a &lt; b?", "f (1 us, 100.00%)", "#e0e0ff"] {
            assert!(svg.contains(text), "{text} is not in {svg}");
        }
        let named = FlameGraphStyle { title: Some("mine".into()), ..look };
        assert!(!self::svg(&stacks, &named).contains("Off-CPU"));
        let unknown = "blood".parse::<Colors>().unwrap_err().to_string();
        assert!(unknown.starts_with("unknown colors 'blood'; choose one of offcpu, aqua, "), "{unknown}");
    }

    #[test]
    fn no_picture_without_stacks() {
        assert!(matches!(draw(&Stacks::default(), &samples(), Vec::new()), Err(DrawError::Empty)));
    }

    /// inferno adds up the weights. `Stacks` limits their sum, which would overflow otherwise.
    #[test]
    fn the_heaviest_stacks_are_drawn() {
        let svg = svg(&stacks(&[("a", u64::MAX - 1), ("b", 1)]), &samples());
        assert!(svg.contains("a (18,446,744,073,709,551,615 samples, 100.00%)"), "{svg}");
    }
}
