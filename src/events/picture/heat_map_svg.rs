//! Draws a heat map: an SVG with a box for each count. A box shows its numbers under the mouse.

use std::{collections::BTreeMap, fmt::Write as _, io::Write};

use svg::{
    Document, Node,
    node::element::{Group, Line, Path, Rectangle, Text, Title},
};

use super::{
    DrawError,
    caption::caption,
    heat_map::{Cell, HeatMap, highest, lowest, row_of},
    printable,
    quantity::{amount, counted, elapsed, grouped, step_of_time},
};

/// The texts of a heat map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeatMapStyle {
    /// The title. `None` stands for the default title.
    pub title: Option<String>,
    /// The first text below the title. Long lines are wrapped.
    pub subtitle: Option<String>,
    /// For how long values were measured, as the end of a sentence: ` in 6.331 s`. Empty if it is not known.
    pub within: String,
    /// Where and when the values were measured.
    pub place: Option<String>,
    /// When the first value was measured, if it is known.
    pub first: Option<String>,
    /// What is missing, if anything is. It has lines of its own below the subtitle.
    pub partial: Option<String>,
    /// The command that drew the picture, if it is known. It has lines of its own at the end of the caption.
    pub command: Option<String>,
    /// The label of the axis of values. `None` stands for `value`.
    pub value: Option<String>,
    /// The unit of the values. For `ns`, `us`, `ms` and `s`, each value is shown in the unit that fits it best.
    pub unit: String,
}

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 104.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = 60.0;
const TITLE_SIZE: f64 = 17.0;
const TEXT_SIZE: f64 = 12.0;
/// The mean width of a character, for a font size of 1.
const CHARACTER: f64 = 0.62;
/// The height of a line below the title, in pixels.
const LINE_HEIGHT: f64 = 16.0;
/// The height of all rows together, in pixels. It is smaller if a row would be higher than [`HIGHEST_ROW`].
const ROWS: f64 = 420.0;
const HIGHEST_ROW: f64 = 14.0;
/// The colours of the smallest count, of a medium count, and of the largest count: red, green, blue.
const COLORS: [[f64; 3]; 3] = [[255.0, 224.0, 130.0], [230.0, 74.0, 25.0], [90.0, 0.0, 40.0]];
/// The maximum number of boxes with titles of their own.
const TITLES: usize = 2000;
/// The number of different colours, if there are more boxes than `TITLES`.
const SHADES: f64 = 24.0;
/// The maximum size of all boxes in bytes. Of larger maps, columns become wider.
const BYTES: usize = 450_000;
/// The approximate number of labels with times below the columns.
const TIMES: u64 = 8;

/// Writes the heat map to `to` as an SVG.
pub fn draw_heat_map(map: &HeatMap, style: &HeatMapStyle, to: impl Write) -> Result<(), DrawError> {
    let mut cells: Vec<Cell> = map.cells().collect();
    let Some((start, _)) = map.times() else { return Err(DrawError::Empty) };
    let mut shown = Shown { map, style, start, column_width: map.column_width() };
    let mut shades = SHADES;
    let (frame, most, boxes) = loop {
        let Some(frame) = Frame::of(&cells) else { return Err(DrawError::Empty) };
        let most = cells.iter().map(|cell| cell.count).max().unwrap_or(1);
        if cells.len() <= TITLES {
            let boxes = single_boxes(&frame, &cells, &shown, most);
            break (frame, most, boxes);
        }
        let boxes = paths(&frame, &cells, &shown, (most, shades));
        if boxes.to_string().len() <= BYTES {
            break (frame, most, boxes);
        }
        cells = with_wider_columns(cells);
        (shown.column_width, shades) = (shown.column_width * 2, shades / 2.0);
    };
    let (Some(first), Some(last)) = (cells.first(), cells.last()) else { return Err(DrawError::Empty) };
    let lines = shown.caption(most);
    // `TOP` has room for one line.
    let below = LINE_HEIGHT * lines.len().saturating_sub(1) as f64;
    let (width, height) = (shown.column_width as f64, frame.bottom() + BOTTOM);
    let into = start.saturating_sub(first.column.saturating_mul(shown.column_width));
    let times = Times { start: into as f64 / width, columns: last.column + 1 - first.column, width };
    let place = format!("translate(0 {below})");
    let picture = axes(&frame, style, &times).set("transform", place).add(boxes).add(key(height - 22.0, most));
    let title = shown.title();
    let mut document = Document::new()
        .set("viewBox", format!("0 0 {WIDTH} {}", rounded(height + below)))
        .set("width", WIDTH)
        .set("height", rounded(height + below))
        .set("font-family", "Verdana, sans-serif")
        .set("font-size", TEXT_SIZE)
        .add(Rectangle::new().set("width", "100%").set("height", "100%").set("fill", "#ffffff"))
        .add(fitted(text(WIDTH / 2.0, 24.0, "middle", &title), &title, TITLE_SIZE, WIDTH - 2.0 * RIGHT));
    for (at, line) in lines.iter().enumerate() {
        let y = 44.0 + LINE_HEIGHT * at as f64;
        document = document.add(text(WIDTH / 2.0, y, "middle", line).set("fill", "#606060"));
    }
    Ok(svg::write(to, &document.add(picture))?)
}

/// The columns of a heat map.
struct Times {
    /// The first time, in columns after the first one.
    start: f64,
    /// The number of columns.
    columns: u64,
    /// The number of ns for which a column stands.
    width: f64,
}

/// Returns the axes with their labels and titles.
fn axes(frame: &Frame, style: &HeatMapStyle, times: &Times) -> Group {
    let bottom = frame.bottom();
    let mut axes = Group::new();
    for (y, label) in frame.values(&style.unit) {
        axes = axes.add(line((LEFT, y), (WIDTH - RIGHT, y))).add(text(LEFT - 6.0, y + 4.0, "end", &label));
    }
    let step = step_of_time((times.columns as f64 * times.width / TIMES as f64) as u64);
    for number in 0.. {
        let x = frame.x(times.start + number as f64 * step as f64 / times.width);
        if x > WIDTH - RIGHT {
            break;
        }
        let label = text(x, bottom + 20.0, "middle", &elapsed(number * step));
        axes = axes.add(line((x, bottom), (x, bottom + 5.0))).add(label);
    }
    let first = style.first.as_ref().map_or_else(String::new, |first| format!(" ({first})"));
    let of_times = format!("time since the first value{first}");
    let of_times = text(WIDTH / 2.0, bottom + BOTTOM - 12.0, "middle", &of_times);
    let middle = (TOP + bottom) / 2.0;
    let value = style.value.as_deref().unwrap_or("value");
    let of_values = text(16.0, middle, "middle", value).set("transform", format!("rotate(-90 16 {})", rounded(middle)));
    // Nothing else is beside the caption and the times.
    let of_values = fitted(of_values, value, TEXT_SIZE, bottom - TOP + 1.5 * BOTTOM);
    axes.add(of_times.set("fill", "#606060")).add(of_values.set("fill", "#606060"))
}

/// Returns a box for each count. Its title shows the numbers under the mouse.
fn single_boxes(frame: &Frame, cells: &[Cell], shown: &Shown<'_>, most: u64) -> Group {
    let mut boxes = Group::new().set("shape-rendering", "crispEdges");
    let first = cells.first().map_or(0, |cell| cell.column);
    for cell in cells {
        let (x, y) = (frame.x((cell.column - first) as f64), frame.y(cell.row));
        boxes.append(
            Rectangle::new()
                .set("x", rounded(x))
                .set("y", rounded(y))
                .set("width", rounded(frame.column.max(1.0)))
                .set("height", rounded(frame.row))
                .set("fill", color(cell.count, most))
                .add(Title::new(shown.cell(cell))),
        );
    }
    boxes
}

/// Makes columns twice as wide.
fn with_wider_columns(cells: Vec<Cell>) -> Vec<Cell> {
    let mut wider: BTreeMap<(u64, u8), u64> = BTreeMap::new();
    for Cell { column, row, count } in cells {
        let sum = wider.entry((column / 2, row)).or_default();
        *sum = sum.saturating_add(count);
    }
    wider.into_iter().map(|((column, row), count)| Cell { column, row, count }).collect()
}

/// The boxes of a row that have the same colour.
struct Shade {
    /// The commands of the path. Its unit is a column.
    path: String,
    /// The column at which the path ends.
    end: u64,
    /// The smallest and the largest count.
    counts: (u64, u64),
}

/// Returns the boxes as paths: with many boxes, a title for each would make the file large. The boxes of a row with the same
/// colour share one path and one title, which says how many values each box has. A path is a dashed line as thick as the row.
fn paths(frame: &Frame, cells: &[Cell], shown: &Shown<'_>, (most, shades): (u64, f64)) -> Group {
    let mut of_rows: BTreeMap<(u8, u32), Shade> = BTreeMap::new();
    let first = cells.first().map_or(0, |cell| cell.column);
    for &Cell { column, row, count } in cells {
        let shade = ((count as f64).ln() / (most.max(2) as f64).ln() * shades).round() as u32;
        let column = column - first;
        let new = || Shade {
            path: format!("M0 {}", rounded(frame.y(row) + frame.row / 2.0)),
            end: 0,
            counts: (count, count),
        };
        let shade = of_rows.entry((row, shade)).or_insert_with(new);
        shade.counts = (shade.counts.0.min(count), shade.counts.1.max(count));
        // Writing to a String cannot fail.
        let _ = match column - shade.end {
            0 => write!(shade.path, "h1"),
            gap => write!(shade.path, "m{gap} 0h1"),
        };
        shade.end = column + 1;
    }
    let place = format!("translate({LEFT} 0) scale({} 1)", frame.column);
    let mut boxes = Group::new()
        .set("shape-rendering", "crispEdges")
        .set("transform", place)
        .set("fill", "none")
        .set("stroke-width", rounded(frame.row));
    for ((row, _), Shade { path, counts: (low, high), .. }) in of_rows {
        let of = shown.values_of(row);
        let counts = counted(high, "values");
        let counts = if low == high { counts } else { format!("{} to {counts}", grouped(low)) };
        let title = format!("{counts} of {of} in {}", elapsed(shown.column_width));
        let middle = (low as f64 * high as f64).sqrt().round() as u64;
        boxes.append(Path::new().set("d", path).set("stroke", color(middle.max(1), most)).add(Title::new(title)));
    }
    boxes
}

/// Returns the legend of the colours, with the smallest and the largest count.
fn key(y: f64, most: u64) -> Group {
    // If no box has more than one value, there is only one colour.
    let steps: u32 = if most == 1 { 1 } else { 24 };
    let (width, height, right) = (6.0, 10.0, WIDTH - RIGHT - 40.0);
    let left = right - width * f64::from(steps);
    let mut key = Group::new().set("shape-rendering", "crispEdges");
    for step in 0..steps {
        let count = (most.max(2) as f64).powf(f64::from(step) / f64::from(steps.max(2) - 1)).round() as u64;
        key.append(
            Rectangle::new()
                .set("x", rounded(left + width * f64::from(step)))
                .set("y", rounded(y))
                .set("width", width)
                .set("height", height)
                .set("fill", color(count, most)),
        );
    }
    let label = |x: f64, anchor: &str, content: &str| text(x, y + 9.0, anchor, content).set("fill", "#606060");
    let key = key.add(label(left - 6.0, "end", "values in a box: 1"));
    if most == 1 { key } else { key.add(label(right + 6.0, "start", &grouped(most))) }
}

/// The positions of the boxes.
struct Frame {
    /// The width of a column and the height of a row, in pixels.
    column: f64,
    row: f64,
    /// The lowest and the highest row.
    rows: (u8, u8),
}

impl Frame {
    /// Returns the positions of these boxes, which are in the order of their columns. `None` if there are none.
    fn of(cells: &[Cell]) -> Option<Frame> {
        let rows = cells.iter().map(|cell| cell.row);
        Some(Frame::new((cells.first()?.column, cells.last()?.column), (rows.clone().min()?, rows.max()?)))
    }

    fn new((first, last): (u64, u64), rows: (u8, u8)) -> Frame {
        let column = (WIDTH - LEFT - RIGHT) / (last - first + 1) as f64;
        let row = (ROWS / f64::from(rows.1 - rows.0 + 1)).min(HIGHEST_ROW);
        Frame { column, row, rows }
    }

    /// Returns the position of a place on the axis of times, in pixels. The place is in columns after the first one.
    fn x(&self, column: f64) -> f64 {
        LEFT + column * self.column
    }

    /// Returns the position of a row's upper edge, in pixels.
    fn y(&self, row: u8) -> f64 {
        TOP + f64::from(self.rows.1 - row) * self.row
    }

    fn bottom(&self) -> f64 {
        self.y(self.rows.0) + self.row
    }

    /// Returns the labels of the axis of values, with their vertical positions in pixels, the lowest first: powers of ten, twice and
    /// five times as much, and the edges of the rows, as far as there is room.
    fn values(&self, unit: &str) -> Vec<(f64, String)> {
        /// The smallest distance of two labels, in pixels.
        const DISTANCE: f64 = 14.0;
        const FEW: u8 = 3;
        let powers = || std::iter::successors(Some(1u64), |power| power.checked_mul(10));
        let times = |factor: u64| powers().filter_map(move |power| power.checked_mul(factor));
        let (low, high) = (lowest(self.rows.0), highest(self.rows.1));
        let numbers = [1, 2, 5].into_iter().flat_map(times).filter(|value| (low..=high).contains(value));
        let inside = |value: u64| {
            let row = row_of(value);
            let part = (value - lowest(row)) as f64 / (highest(row) - lowest(row) + 1) as f64;
            (self.y(row) + self.row * (1.0 - part), value)
        };
        let edges = [(self.bottom(), low), (self.y(self.rows.1), high.saturating_add(1))];
        let mut shown: Vec<(f64, u64)> = Vec::new();
        // Of a few rows, the edges say more than a round number between them.
        let (first, last) = if self.rows.1 - self.rows.0 < FEW { (&edges[..], &[][..]) } else { (&[][..], &edges[..]) };
        for (y, value) in first.iter().copied().chain(numbers.map(inside)).chain(last.iter().copied()) {
            if shown.iter().all(|(other, _)| (other - y).abs() >= DISTANCE) {
                shown.push((y, value));
            }
        }
        shown.sort_by_key(|(_, value)| *value);
        shown.into_iter().map(|(y, value)| (y, amount(value, unit))).collect()
    }
}

/// Formats the numbers of a heat map.
struct Shown<'a> {
    map: &'a HeatMap,
    style: &'a HeatMapStyle,
    start: u64,
    /// The number of ns for which a column stands.
    column_width: u64,
}

impl Shown<'_> {
    fn title(&self) -> String {
        self.style.title.clone().unwrap_or_else(|| "Heat Map".to_owned())
    }

    fn caption(&self, most: u64) -> Vec<String> {
        let HeatMapStyle { subtitle, within, place, partial, command, .. } = self.style;
        let own = subtitle.as_ref().map_or_else(String::new, |text| format!("{text}; "));
        let hidden = match self.map.below_zero() {
            0 => String::new(),
            count => format!("; not shown: {} below zero", counted(count, "values")),
        };
        let place = place.as_ref().map_or_else(String::new, |place| format!("; {place}"));
        let (count, width) = (self.map.count(), elapsed(self.column_width));
        let line = format!(
            "{own}{}{within}, at most {} in a box; a column is {width}{hidden}{place}",
            counted(count, "values"),
            grouped(most)
        );
        let partial = partial.as_ref().map(|text| format!("{text}; an empty place may have had values"));
        caption(Some(&line), partial.as_deref(), command.as_deref())
    }

    /// Returns the values that a row has.
    fn values_of(&self, row: u8) -> String {
        let (low, high) = (amount(lowest(row), &self.style.unit), amount(highest(row), &self.style.unit));
        if low == high { low } else { format!("{low} to {high}") }
    }

    fn cell(&self, cell: &Cell) -> String {
        let width = self.column_width;
        let time = cell.column.saturating_mul(width).saturating_sub(self.start);
        let of = self.values_of(cell.row);
        format!("{} of {of}, {} after the first value", counted(cell.count, "values"), elapsed(time))
    }
}

fn text(x: f64, y: f64, anchor: &str, content: &str) -> Text {
    Text::new(printable(content).into_owned()).set("x", rounded(x)).set("y", rounded(y)).set("text-anchor", anchor)
}

/// Makes a text as small as needed for `room` pixels.
fn fitted(text: Text, content: &str, size: f64, room: f64) -> Text {
    let wanted = content.chars().count() as f64 * size * CHARACTER;
    text.set("font-size", rounded((size * room / wanted.max(1.0)).min(size)))
}

fn line(from: (f64, f64), to: (f64, f64)) -> Line {
    let line = Line::new().set("x1", rounded(from.0)).set("y1", rounded(from.1));
    line.set("x2", rounded(to.0)).set("y2", rounded(to.1)).set("stroke", "#d0d0d0")
}

/// Rounds a position to a hundredth of a pixel, so that files stay small.
fn rounded(place: f64) -> f64 {
    (place * 100.0).round() / 100.0
}

/// Returns the colour of a count, on a logarithmic scale: single slow requests stay visible beside millions of others.
fn color(count: u64, most: u64) -> String {
    let share = ((count as f64).ln() / (most.max(2) as f64).ln()).clamp(0.0, 1.0) * 2.0;
    let (from, to) = if share < 1.0 { (COLORS[0], COLORS[1]) } else { (COLORS[1], COLORS[2]) };
    let share = share.fract() + if share == 2.0 { 1.0 } else { 0.0 };
    let [red, green, blue] = [0, 1, 2].map(|at| (from[at] + (to[at] - from[at]) * share).round() as u8);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use expect_test::expect;

    use super::*;

    fn drawn(map: &HeatMap, style: &HeatMapStyle) -> String {
        let mut svg = Vec::new();
        draw_heat_map(map, style, &mut svg).unwrap();
        String::from_utf8(svg).unwrap()
    }

    /// Returns the texts of all elements with this tag.
    fn texts<'a>(svg: &'a str, tag: &str) -> Vec<&'a str> {
        let (open, close) = (format!("<{tag}"), format!("</{tag}>"));
        let after = svg.split(&open).skip(1).filter_map(|rest| rest.split_once('>'));
        after.filter_map(|(_, rest)| rest.split_once(&close)).map(|(text, _)| text.trim()).collect()
    }

    #[test]
    fn each_count_is_a_box_with_its_numbers() {
        let mut map = HeatMap::default();
        for (time, value, n) in [(5_000_000_000, 1_000, 3), (5_500_000_000, 90_000, 1), (6_900_000_000, 1_000, 100)] {
            map.add(time, value, n);
        }
        map.add_below_zero(2);
        let style = HeatMapStyle {
            title: Some("a < b\u{1}".into()),
            subtitle: Some("of x".into()),
            partial: Some("5 events were lost".into()),
            unit: "ns".into(),
            ..HeatMapStyle::default()
        };
        let svg = drawn(&map, &style);
        expect![[r#"
            3 values of 896 ns to 1.023 us, 0 after the first value
            1 value of 81.92 us to 98.303 us, 498.733 ms after the first value
            100 values of 896 ns to 1.023 us, 1.9 s after the first value
            a &lt; b?
            of x; 106 values, at most 100 in a box; a column is 4.194 ms; not shown: 2 values below zero
            partial: 5 events were lost; an empty place may have had values
            1 us
            2 us
            5 us
            10 us
            20 us
            50 us
            98.304 us
            0
            500 ms
            1 s
            1.5 s
            time since the first value
            value
            values in a box: 1
            100"#]]
        .assert_eq(&[texts(&svg, "title"), texts(&svg, "text")].concat().join("\n"));
        let fills: Vec<&str> = svg.match_indices("fill=\"#").map(|(at, _)| &svg[at + 6..at + 13]).collect();
        for expected in ["#ffe082", "#5a0028"] {
            assert!(fills.contains(&expected), "{fills:?}");
        }
    }

    #[test]
    fn long_titles_are_as_wide_as_the_picture_and_short_ones_have_their_usual_size() {
        let mut map = HeatMap::default();
        map.add(1, 1_000, 1);
        let sizes = |length: usize| {
            let style = HeatMapStyle {
                title: Some("x".repeat(length)),
                value: Some("y".repeat(length)),
                ..HeatMapStyle::default()
            };
            let svg = drawn(&map, &style);
            let size_of = |content: &str| -> f64 {
                let before = &svg[..svg.find(&content.repeat(length)).unwrap()];
                before.rsplit_once("font-size=\"").unwrap().1.split_once('"').unwrap().0.parse().unwrap()
            };
            (size_of("x"), size_of("y"))
        };
        assert_eq!(sizes(6), (TITLE_SIZE, TEXT_SIZE));
        let (title, value) = sizes(300);
        assert!(title * 300.0 * CHARACTER < WIDTH && value < title && value > 0.0, "{title} {value}");
    }

    #[test]
    fn a_key_of_equal_counts_has_one_colour_and_axes_have_their_titles() {
        let mut map = HeatMap::default();
        map.add(1, 1_000, 1);
        map.add(2_000_000, 5_000, 1);
        let style = HeatMapStyle { subtitle: Some("host web1".into()), ..HeatMapStyle::default() };
        let svg = drawn(&map, &style);
        let shown = texts(&svg, "text");
        assert_eq!(shown[shown.len() - 3..], ["time since the first value", "value", "values in a box: 1"]);
        assert!(!svg.contains("#5a0028"), "{svg}");
        let svg = drawn(&map, &HeatMapStyle { value: Some("time off the CPU".into()), ..style });
        assert!(texts(&svg, "text").contains(&"time off the CPU"), "{svg}");
    }

    #[test]
    fn a_map_of_one_row_says_its_values() {
        let mut map = HeatMap::default();
        map.add(1, 55_000_000, 1);
        let svg = drawn(&map, &HeatMapStyle { unit: "ns".into(), ..HeatMapStyle::default() });
        assert_eq!(texts(&svg, "text")[2..4], ["50.332 ms", "58.72 ms"]);
    }

    #[test]
    fn a_long_caption_has_several_lines_and_room_for_them() {
        let mut map = HeatMap::default();
        map.add(1, 1_000, 1);
        let height =
            |svg: &str| svg.split_once(" height=\"").unwrap().1.split('"').next().unwrap().parse::<f64>().unwrap();
        let short =
            HeatMapStyle { within: " in 2.500 s".into(), place: Some("web1".into()), ..HeatMapStyle::default() };
        let long = HeatMapStyle { partial: Some("5 events were lost; ".repeat(9)), ..short.clone() };
        let [short, long] = [short, long].map(|style| drawn(&map, &style));
        assert_eq!(texts(&short, "text")[1], "1 value in 2.500 s, at most 1 in a box; a column is 1 ns; web1");
        assert_eq!(
            (height(&long), texts(&long, "text").len()),
            (height(&short) + 32.0, texts(&short, "text").len() + 2)
        );
        assert!(long.contains("translate(0 32)") && texts(&long, "text")[2].starts_with("partial: "), "{long}");
    }

    /// Returns a map with this many values, which are anywhere below 100 s and below 2^`powers`.
    fn dense(values: u64, powers: u64) -> HeatMap {
        let mut map = HeatMap::default();
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 16
        };
        for _ in 0..values {
            let (time, value) = (next() % 100_000_000_000, next() << 16 >> (next() % powers + 64 - powers));
            map.add(time, value, next() % 7 + 1);
        }
        map
    }

    #[test]
    fn a_picture_of_many_boxes_stays_small_and_its_boxes_have_titles() {
        for (values, powers) in [(5_000, 20), (400_000, 36), (600_000, 64)] {
            let map = dense(values, powers);
            let svg = drawn(&map, &HeatMapStyle { unit: "ns".into(), ..HeatMapStyle::default() });
            assert!(svg.len() < 500_000, "{values} values: {} bytes", svg.len());
            let titles = texts(&svg, "title");
            assert!(titles.len() > 100 && titles.iter().all(|title| title.contains(" of ")), "{titles:?}");
        }
    }

    /// In the picture, a column of a path is as wide as one of the map, so no value gets another time.
    #[test]
    fn the_paths_of_a_dense_map_have_all_its_boxes() {
        let map = dense(5_000, 20);
        let svg = drawn(&map, &HeatMapStyle { unit: "ns".into(), ..HeatMapStyle::default() });
        let mut boxes = 0;
        let mut last = 0;
        for path in svg.split(" d=\"M0 ").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            let mut column = 0u64;
            for command in
                path.split_once(['h', 'm']).map(|_| &path[path.find(['h', 'm']).unwrap()..]).unwrap().split('h')
            {
                let gap =
                    command.rsplit_once('m').map_or(0, |(_, gap)| gap.split(' ').next().unwrap().parse().unwrap());
                boxes += u64::from(command.starts_with('1'));
                column += u64::from(command.starts_with('1')) + gap;
            }
            last = last.max(column);
        }
        let columns: Vec<u64> = map.cells().map(|cell| cell.column).collect();
        assert_eq!((boxes, last), (columns.len() as u64, columns.last().unwrap() + 1 - columns[0]));
    }

    #[test]
    fn extreme_maps_are_drawn() {
        let mut map = HeatMap::default();
        map.add(7, 0, 1);
        assert!(drawn(&map, &HeatMapStyle::default()).contains("1 value, at most 1 in a box; a column is 1 ns"));
        map.add(u64::MAX, u64::MAX, u64::MAX);
        let svg = drawn(&map, &HeatMapStyle { unit: "bytes".into(), ..HeatMapStyle::default() });
        assert!(svg.contains(">\n1 kB\n<") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert!(matches!(
            draw_heat_map(&HeatMap::default(), &HeatMapStyle::default(), Vec::new()),
            Err(DrawError::Empty)
        ));
    }

    /// Numbers as large as ns since 1970 are not exact in an f64.
    #[test]
    fn times_since_1970_have_places_and_labels_of_their_own() {
        let mut map = HeatMap::default();
        map.add(1_796_000_000_123_456_789, 5, 1);
        assert!(texts(&drawn(&map, &HeatMapStyle::default()), "text").len() < 12);
        let mut map = HeatMap::default();
        for number in 0..20 {
            map.add(1_796_000_000_123_456_789 + 100 * number, 5, 1);
        }
        let svg = drawn(&map, &HeatMapStyle::default());
        // The last rectangle before a title is a box.
        let before = svg.split("<title>").take(20).filter_map(|text| Some(text.rsplit_once("<rect ")?.1));
        let places: BTreeSet<&str> = before.filter_map(|rect| rect.split(" x=\"").nth(1)?.split('"').next()).collect();
        assert_eq!(places.len(), 20, "{places:?}");
    }
}
