//! Draws stacks as a flame graph: an SVG in which a browser can search and zoom.

use std::io::{self, Write};

use inferno::flamegraph::{self, Direction, Options, TextTruncateDirection, color::PaletteMap};

use super::{Colors, PYTHON_SUFFIX, Stacks, caption::caption, escaped, printable, quantity::counted};

/// The appearance of a flame graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlameGraphStyle {
    /// The title. `None` stands for the default title of `colors`.
    pub title: Option<String>,
    /// The text below the title. It may have several lines. Long lines are wrapped.
    pub subtitle: Option<String>,
    /// What is missing, if anything is. It has lines of its own below the subtitle.
    pub partial: Option<String>,
    /// The command that drew the picture, if it is known. It has lines of its own at the end of the caption.
    pub command: Option<String>,
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

/// Writes the flame graph to `to` as an SVG. If its colours show kinds of frames, the subtitle says which.
pub fn draw(stacks: &Stacks, look: &FlameGraphStyle, to: impl Write) -> Result<(), DrawError> {
    draw_weighted(&stacks.names().collect::<Vec<_>>(), stacks.lines(), look, to)
}

/// Writes the flame graph of `lines`, whose frames have these names.
pub(super) fn draw_weighted(
    names: &[&str],
    lines: Vec<String>,
    look: &FlameGraphStyle,
    to: impl Write,
) -> Result<(), DrawError> {
    if lines.is_empty() {
        return Err(DrawError::Empty);
    }
    let Some(kinds) = look.colors.kinds else { return draw_lines(lines, look, None, to) };
    let mut colors = PaletteMap::default();
    // The box below all others has no name.
    for name in names.iter().copied().chain([""]) {
        colors.insert(with_known_mark(name), kinds.color(name));
    }
    let texts = [look.subtitle.clone(), kinds.legend(names.iter().copied())].into_iter().flatten().collect::<Vec<_>>();
    let subtitle = (!texts.is_empty()).then(|| texts.join("; "));
    draw_lines(lines, &FlameGraphStyle { subtitle, ..look.clone() }, Some(&mut colors), to)
}

pub(super) fn draw_lines(
    lines: Vec<String>,
    look: &FlameGraphStyle,
    colors: Option<&mut PaletteMap>,
    mut to: impl Write,
) -> Result<(), DrawError> {
    let mut options = Options::default();
    options.title = printable(look.title.as_deref().unwrap_or(look.colors.title())).into_owned();
    let caption = caption(look.subtitle.as_deref(), look.partial.as_deref(), look.command.as_deref());
    let mut caption = caption.iter().map(|line| printable(line).into_owned());
    options.subtitle = caption.next();
    options.colors = look.colors.palette;
    options.palette_map = colors;
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
    let lines: Vec<String> = lines.into_iter().rev().map(with_known_marks).collect();
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)?;
    let (one, plural) = (counted(1, &options.count_name), format!("(1 {}, ", options.count_name));
    let svg = with_named_root(&String::from_utf8_lossy(&svg).replace(&plural, &format!("({one}, ")));
    Ok(to.write_all(with_further_lines(&svg, &caption.collect::<Vec<_>>()).as_bytes())?)
}

/// Writes further lines below the subtitle, and moves down what is below them. inferno writes a subtitle of one line.
fn with_further_lines(svg: &str, lines: &[String]) -> String {
    /// The height of a line in pixels.
    const HEIGHT: usize = 16;
    /// The numbers that grow: each comes after the first text, and there after the second text.
    const GROW: [(&str, &str); 5] = [
        ("<svg ", " height=\""),
        (" viewBox=\"0 0 ", " "),
        ("<rect ", " height=\""),
        ("id=\"details\"", " y=\""),
        ("id=\"matched\"", " y=\""),
    ];
    const FRAMES: &str = "<svg id=\"frames\"";
    let by = lines.len() * HEIGHT;
    let tspans: String =
        lines.iter().map(|line| format!("<tspan x=\"50%\" dy=\"{HEIGHT}\">{}</tspan>", escaped(line))).collect();
    let with_lines = || -> Option<String> {
        let (head, frames) = svg.split_once(FRAMES)?;
        let subtitle = head.find("id=\"subtitle\"")?;
        let end = subtitle + head[subtitle..].find("</text>")?;
        let head = format!("{}{tspans}{}", &head[..end], &head[end..]);
        let head = GROW.iter().try_fold(head, |head, &(mark, before)| grown(&head, mark, before, by))?;
        Some(format!("{head}{FRAMES} y=\"{by}\"{frames}"))
    };
    if lines.is_empty() { svg.to_owned() } else { with_lines().unwrap_or_else(|| svg.to_owned()) }
}

/// Adds `by` to the number after the text `before`, which comes after the text `mark`.
fn grown(svg: &str, mark: &str, before: &str, by: usize) -> Option<String> {
    let mark = svg.find(mark)? + mark.len();
    let begin = mark + svg[mark..].find(before)? + before.len();
    let end = begin + svg[begin..].find('"')?;
    let number: f64 = svg[begin..end].parse().ok()?;
    Some(format!("{}{}{}", &svg[..begin], number + by as f64, &svg[end..]))
}

/// Writes `all` into the box below all others. inferno leaves this to the picture's script, but many programs that show pictures
/// run no scripts.
fn with_named_root(svg: &str) -> String {
    /// The end of this box's title. The titles of other boxes have decimals: `100.00%`.
    const ROOT: &str = ", 100%)</title>";
    let root = svg.split_once(ROOT).and_then(|(before, root)| Some((before, root.split_once("></text>")?)));
    root.map_or_else(|| svg.to_owned(), |(before, (of_box, rest))| format!("{before}{ROOT}{of_box}>all</text>{rest}"))
}

/// A suffix that inferno does not show. To inferno, it is the mark of functions that were compiled at run time.
const HIDDEN_SUFFIX: &str = "_[j]";

/// Gives a Python function a suffix that inferno does not show.
fn with_known_mark(name: &str) -> String {
    name.strip_suffix(PYTHON_SUFFIX).map_or_else(|| name.to_owned(), |name| format!("{name}{HIDDEN_SUFFIX}"))
}

/// Does the same for each function in a line of folded text.
fn with_known_marks(line: String) -> String {
    if !line.contains(PYTHON_SUFFIX) {
        return line;
    }
    let stack = line.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == ' ');
    let weights = &line[stack.len()..];
    stack.split(';').map(with_known_mark).collect::<Vec<_>>().join(";") + weights
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
    }

    /// Returns the stacks of a Python program that reads.
    fn of_python() -> Stacks {
        let mut stacks = Stacks::default();
        let labels = [
            Label::Name("main"),
            Label::Python("<lambda>"),
            Label::Python("f"),
            Label::Name("read"),
            Label::Kernel("vfs_read"),
        ];
        let mut end = stacks.root();
        for label in labels {
            end = stacks.child(end, label);
            stacks.add_weight(end, 1).unwrap();
        }
        stacks
    }

    /// Returns the colour of a box: red, green, blue.
    fn color(svg: &str, name: &str) -> [u32; 3] {
        let of_box = svg.split("<title>").find(|part| part.starts_with(&format!("{name} ("))).unwrap();
        let numbers = of_box.split_once("fill=\"rgb(").unwrap().1.split_once(')').unwrap().0.split(',');
        numbers.map(|number| number.parse().unwrap()).collect::<Vec<u32>>().try_into().unwrap()
    }

    #[test]
    fn the_colour_of_a_box_is_that_of_its_kind_in_the_legend() {
        let of_graph = |colors: Colors| {
            let svg = svg(&of_python(), &FlameGraphStyle { colors, subtitle: Some("mine".into()), ..samples() });
            let text = svg.split_once("id=\"subtitle\"").unwrap().1.split_once("</text>").unwrap().0;
            (text.rsplit('>').next().unwrap().to_owned(), svg)
        };
        let (warm, svg) = of_graph(Colors::default());
        assert_eq!(warm, "mine; green: Python, orange: the kernel, yellow: other functions");
        let is_green = |[r, g, b]: [u32; 3]| g > r + 40 && g > b + 40;
        assert!(is_green(color(&svg, "&lt;lambda&gt;")) && is_green(color(&svg, "f")), "{svg}");
        let ([_, kernel, _], [red, native, blue]) = (color(&svg, "vfs_read"), color(&svg, "read"));
        assert!(native > kernel + 20 && red > native && native > blue + 40, "{svg}");
        assert_eq!(color(&svg, "all"), [255, 224, 110]);
        let (cold, svg) = of_graph("offcpu".parse().unwrap());
        assert_eq!(cold, "mine; green: Python, violet: the kernel, blue: other functions");
        assert!(is_green(color(&svg, "f")) && color(&svg, "read")[2] > 200, "{svg}");
        let (red, svg) = of_graph("red".parse().unwrap());
        assert!(red == "mine" && !is_green(color(&svg, "f")), "{svg}");
    }

    #[test]
    fn marks_of_kinds_are_not_shown_in_boxes() {
        let svg = svg(&of_python(), &samples());
        let shown: String = svg.split("</text>").filter_map(|part| part.rsplit('>').next()).collect();
        let shown = boxes(&svg).join(" ") + &shown;
        assert!(shown.contains("&lt;lambda&gt;") && shown.contains("vfs_read"), "{shown}");
        assert!(!shown.contains("_["), "{shown}");
    }

    /// WCAG 2 asks for a contrast of at least 7 between a text and what is behind it.
    #[test]
    fn names_are_legible_on_all_colours() {
        let linear = |part: u8| match f64::from(part) / 255.0 {
            part if part <= 0.04045 => part / 12.92,
            part => ((part + 0.055) / 1.055).powf(2.4),
        };
        for colors in [Colors::default(), "offcpu".parse().unwrap()] {
            for name in (0..100).flat_map(|n| ["", "_[k]", PYTHON_SUFFIX].map(|suffix| format!("f{n}{suffix}"))) {
                let color = colors.kinds.unwrap().color(&name);
                let light = 0.2126 * linear(color.r) + 0.7152 * linear(color.g) + 0.0722 * linear(color.b);
                assert!((light + 0.05) / 0.05 > 7.0, "{name} {color:?}");
            }
        }
    }

    /// Returns the number after a text.
    fn number(svg: &str, before: &str) -> f64 {
        svg.split_once(before).unwrap().1.split('"').next().unwrap().parse().unwrap()
    }

    #[test]
    fn a_long_caption_has_several_lines_and_room_for_them() {
        let stacks = stacks(&[("comm/f", 1)]);
        for growth in [StackDirection::Up, StackDirection::Down] {
            let short = FlameGraphStyle { subtitle: Some("5 ms <on> web1".into()), growth, ..samples() };
            let long = FlameGraphStyle { partial: Some("5 & 6 events were lost; ".repeat(9)), ..short.clone() };
            let [short, long] = [short, long].map(|look| svg(&stacks, &look));
            assert_eq!(long.matches("<tspan x=\"50%\" dy=\"16\">").count(), 2, "{long}");
            for text in
                ["id=\"subtitle\" x=\"50.0000%\" y=\"48.00\">5 ms &lt;on&gt; web1<", ">partial: 5 &amp; 6 events"]
            {
                assert!(long.contains(text), "{long}");
            }
            for before in
                [" height=\"", "viewBox=\"0 0 1200 ", "width=\"100%\" height=\"", " fill=\"rgb(0,0,0)\" x=\"10\" y=\""]
            {
                assert_eq!(number(&long, before), number(&short, before) + 32.0, "{before} {long}");
            }
            assert!(long.contains("<svg id=\"frames\" y=\"32\" ") && short.contains("<svg id=\"frames\" x="), "{long}");
        }
    }

    #[test]
    fn a_graph_of_one_kind_has_no_legend() {
        assert!(!svg(&stacks(&[("comm/f", 1)]), &samples()).contains("other functions"));
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
        assert!(boxes(&svg).contains(&"a_5 (1 sample, 20.00%)"), "{svg}");
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
