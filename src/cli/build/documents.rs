//! Reads the documents for the index of `perf-prof help WORD`. Returns the sections of the documents, each with its
//! table rows and its sentences.

use std::{fs, path::Path};

use super::index::{Row, Section, sentences};

/// Documents for developers of perf-prof. Only their headings are in the index.
const OF_DEVELOPERS: [&str; 9] = [
    "architecture",
    "benchmarks",
    "changes",
    "contributing",
    "decisions",
    "differences",
    "live-profile",
    "replay-profile",
    "scaling",
];

/// Returns the sections of README.md and of all documents in `docs/`.
pub fn sections(root: &Path) -> Vec<Section> {
    let mut paths = vec!["README.md".to_owned()];
    let names = fs::read_dir(root.join("docs")).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| name.ends_with(".md"));
    paths.extend(names.map(|name| format!("docs/{name}")));
    paths.sort();
    let mut all = Vec::new();
    for path in paths {
        println!("cargo::rerun-if-changed={path}");
        let text = fs::read_to_string(root.join(&path)).unwrap_or_default();
        let mut sections = of_document(&path, &text);
        if OF_DEVELOPERS.iter().any(|name| path == format!("docs/{name}.md")) {
            sections.iter_mut().for_each(Section::keep_heading);
        }
        all.extend(sections);
    }
    all
}

/// The kind of a line in a document.
#[derive(Clone, Copy, PartialEq)]
enum Line<'a> {
    Heading(&'a str),
    /// A row of a table.
    Row,
    /// The line between the header and the rows of a table.
    Rule,
    Code,
    /// The first or the last line of a block of code.
    Fence,
    /// The start of a part that is generated from help texts or stubs. The index skips this part, because the help
    /// texts and stubs themselves are in the index.
    Generated,
    /// The end of a generated part.
    EndOfGenerated,
    /// The first line of a list item.
    Item(&'a str),
    Text(&'a str),
    Empty,
}

fn parse(line: &str) -> Line<'_> {
    let heading = ["# ", "## ", "### "].iter().find_map(|mark| line.strip_prefix(mark));
    match (heading, line.strip_prefix("* ")) {
        (Some(heading), _) => Line::Heading(heading.trim()),
        (_, Some(item)) => Line::Item(item),
        _ if line.starts_with("|--") => Line::Rule,
        _ if line.starts_with('|') => Line::Row,
        _ if line.starts_with("```") => Line::Fence,
        _ if line.starts_with("<!-- generated") => Line::Generated,
        _ if line.starts_with("<!-- end") => Line::EndOfGenerated,
        _ if line.starts_with("    ") => Line::Code,
        _ if line.trim().is_empty() => Line::Empty,
        _ => Line::Text(line.trim()),
    }
}

fn of_document(path: &str, text: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let (mut is_fenced, mut is_generated) = (false, false);
    let (mut paragraph, mut head) = (String::new(), String::new());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let kind = parse(line);
        is_generated = (is_generated || kind == Line::Generated) && kind != Line::EndOfGenerated;
        is_fenced ^= kind == Line::Fence;
        if is_generated {
            continue;
        }
        if !matches!(kind, Line::Text(_)) {
            end_paragraph(&mut paragraph, sections.last_mut());
        }
        match kind {
            _ if is_fenced => add_command(sections.last_mut(), line),
            Line::Code => add_command(sections.last_mut(), line),
            Line::Heading(heading) => {
                let heading = plain(heading);
                let place = format!("{path}#{}", anchor(&heading));
                sections.push(Section::new("document", place, heading.replace('`', "")));
            }
            Line::Row if lines.peek().is_some_and(|next| parse(next) == Line::Rule) => head = cells(line).remove(0),
            Line::Row => add_row(sections.last_mut(), &head, cells(line)),
            Line::Text(text) | Line::Item(text) => {
                paragraph += text.trim();
                paragraph.push(' ');
            }
            _ => {}
        }
    }
    end_paragraph(&mut paragraph, sections.last_mut());
    sections
}

/// Adds the sentences of a paragraph that has ended.
fn end_paragraph(paragraph: &mut String, section: Option<&mut Section>) {
    let text = plain(&std::mem::take(paragraph));
    if let Some(section) = section {
        section.lines.extend(sentences(&text));
    }
}

/// Adds a line of code if it is a command or a selector. All other code would cause meaningless hits.
fn add_command(section: Option<&mut Section>, line: &str) {
    let line = line.trim();
    if let Some(section) = section
        && ["perf-prof ", "scripts/", "-e ", "cargo "].iter().any(|start| line.starts_with(start))
    {
        section.lines.push(line.to_owned());
    }
}

/// Returns the cells of a table row. There is at least one cell.
fn cells(line: &str) -> Vec<String> {
    let line = line.trim().trim_start_matches('|').trim_end_matches('|').replace("\\|", "\u{1}");
    line.split('|').map(|cell| plain(cell.trim()).replace('\u{1}', "|")).collect()
}

/// Adds a table row. The first cell is the name of the row, and the other cells are its text.
fn add_row(section: Option<&mut Section>, head: &str, mut cells: Vec<String>) {
    let name = cells.remove(0).replace('`', "");
    cells.retain(|cell| !cell.is_empty());
    if let Some(section) = section {
        section.rows.push(Row { head: head.to_owned(), name, text: cells.join("; ") });
    }
}

/// Returns a text without the markup of Markdown, except for backticks.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        plain += before;
        match link.split_once("](").and_then(|(shown, target)| Some((shown, target.split_once(')')?.1))) {
            Some((shown, after)) if !shown.contains('[') => {
                plain += shown.trim_start_matches('!');
                rest = after;
            }
            _ => {
                plain.push('[');
                rest = link;
            }
        }
    }
    (plain + rest).replace("**", "").trim().to_owned()
}

/// Returns the anchor that GitHub gives a heading.
pub fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|&c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}
