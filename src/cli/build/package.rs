//! Reads the files of the package `perf_prof` and the shipped scripts for the index of `perf-prof help WORD`.

use std::{fs, path::Path};

use super::index::{Row, Section, sentences};

/// The documents that describe the package. A name is searched in these documents in this order.
const DOCUMENTS: [&str; 4] = ["docs/reference.md", "docs/library.md", "docs/aggregators.md", "docs/testing.md"];

/// Where the user can read more about names that none of [`DOCUMENTS`] mentions.
const MODULE: &str = "docs/reference.md#the-module-perf_prof";

/// The files that define the public names of the package, each with the prefix that users write before its names.
const FILES: [(&str, &str); 7] = [
    ("_native.pyi", ""),
    ("_runs.py", ""),
    ("_fleet.py", ""),
    ("_parts.py", ""),
    ("_errors.py", ""),
    ("testing.py", "testing."),
    ("script.py", "script."),
];

/// Returns the functions, classes, methods and members of the package. `documents` contains the sections where the user
/// can read more.
pub fn of_package(root: &Path, documents: &[Section]) -> Vec<Section> {
    let folder = root.join("python/perf_prof");
    let read = |file: &str| {
        println!("cargo::rerun-if-changed=python/perf_prof/{file}");
        fs::read_to_string(folder.join(file)).unwrap_or_default()
    };
    let init = read("__init__.py");
    let is_public = |name: &str| init.contains(&format!(" {name} as {name},"));
    let mut found = Vec::new();
    for (file, prefix) in FILES {
        // testing.py exports the native function `_make_event` as `make_event`.
        let text = read(file).replace("def _make_event(", "def make_event(");
        let first = found.len();
        add_file(&text, prefix, documents, &mut found);
        let of_file = found.split_off(first);
        let name = |section: &Section| section.name.split(['(', '.']).next().unwrap_or_default().to_owned();
        let is_known = |section: &Section| section.kind == "member" || !prefix.is_empty() || is_public(&name(section));
        let is_made = |section: &Section| section.name.starts_with("make_event(");
        found.extend(of_file.into_iter().filter_map(|mut section| match is_made(&section) {
            true => {
                section.name.insert_str(0, "testing.");
                Some(section)
            }
            false => is_known(&section).then_some(section),
        }));
        assert!(found.len() > first, "{file} has no public names");
    }
    found
}

fn add_file(text: &str, prefix: &str, documents: &[Section], found: &mut Vec<Section>) {
    let lines: Vec<&str> = text.lines().collect();
    let mut class = String::new();
    let mut place = MODULE.to_owned();
    for (at, line) in lines.iter().enumerate() {
        let declared = line.trim_start();
        let is_member = line.starts_with("    ");
        let Some(rest) = declared.strip_prefix("class ").or_else(|| declared.strip_prefix("def ")) else { continue };
        let name = rest.split(['(', ':', ' ']).next().unwrap_or_default();
        if declared.starts_with("class ") {
            name.clone_into(&mut class);
        }
        if !is_member {
            place = place_of(name, documents);
        }
        let owner = if is_member { class.as_str() } else { "" };
        // Members of events such as `_pid` are public.
        let is_private = if owner == "PerfEvent" { name.starts_with("__") } else { name.starts_with('_') };
        if is_private || owner.starts_with('_') {
            continue;
        }
        // A signature ends with a colon at the end of a line, or with `: ...` if there is no docstring.
        let last = lines[at..].iter().position(|line| line.ends_with(':') || line.ends_with("...")).unwrap_or(0) + at;
        let signature = lines[at..=last].iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        let is_property = at > 0 && lines[at - 1].trim() == "@property";
        let (kind, name) = match (owner, is_property) {
            ("PerfEvent", true) => ("member", format!("event.{name}")),
            ("PerfEvent", false) => ("member", format!("event.{name}({})", parameters(&signature))),
            ("", _) if declared.starts_with("class ") => ("module", format!("{prefix}{name}")),
            ("", _) => ("module", format!("{prefix}{name}({})", parameters(&signature))),
            (_, true) => ("module", format!("{prefix}{class}.{name}")),
            (_, false) => ("module", format!("{prefix}{class}.{name}({})", parameters(&signature))),
        };
        let mut section = Section::new(kind, place.clone(), name);
        section.lines = docstring(&lines[last + 1..]);
        found.push(section);
        if !is_member && declared.starts_with("class ") {
            add_parameters(&lines[at + 1..], found.last_mut());
        }
    }
}

/// Adds the parameters of a class to the name of its section, as in `Hist(value, by, *, linear)`.
fn add_parameters(lines: &[&str], class: Option<&mut Section>) {
    let body = lines.iter().take_while(|line| line.is_empty() || line.starts_with(' '));
    let body: Vec<&str> = body.map(|line| line.trim()).collect();
    let is_new = |line: &&str| line.starts_with("def __new__(") || line.starts_with("def __init__(");
    let (Some(class), Some(at)) = (class, body.iter().position(is_new)) else { return };
    let last = body[at..].iter().position(|line| line.ends_with("...") || line.ends_with(':')).unwrap_or(0) + at;
    class.name += &format!("({})", parameters(&body[at..=last].join(" ")));
}

/// Returns the names of the parameters in a signature, without their types.
fn parameters(signature: &str) -> String {
    let inside = signature.split_once('(').map_or("", |(_, rest)| rest);
    let inside = inside.rsplit_once(" -> ").map_or(inside, |(inside, _)| inside);
    let mut depth = 0;
    let mut names = vec![String::new()];
    for c in inside.trim_end_matches([')', ':']).chars() {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            ',' if depth == 0 => names.push(String::new()),
            c => {
                if let Some(name) = names.last_mut().filter(|_| depth == 0) {
                    name.push(c);
                }
            }
        }
    }
    let names = names.iter().map(|name| name.split([':', '=']).next().unwrap_or_default().trim());
    names.filter(|name| !["", "self", "cls", "/"].contains(name)).collect::<Vec<_>>().join(", ")
}

/// Returns the sentences of the docstring that starts in the first of these lines.
fn docstring(lines: &[&str]) -> Vec<String> {
    let Some(first) = lines.first().and_then(|line| line.trim().strip_prefix("\"\"\"")) else { return Vec::new() };
    let text = std::iter::once(first).chain(lines[1..].iter().map(|line| line.trim())).collect::<Vec<_>>().join("\n");
    let text = text.split("\"\"\"").next().unwrap_or_default();
    text.split("\n\n").flat_map(|paragraph| sentences(&paragraph.replace('\n', " "))).collect()
}

/// Returns the place that describes a name: the section whose heading is the name. If there is no such section, the
/// first section with a table row about the name; if there is no such row, the first section that mentions the name.
fn place_of(name: &str, documents: &[Section]) -> String {
    // A function counts only with parentheses, because its name alone may be an ordinary word or a command.
    let is_class = name.starts_with(char::is_uppercase);
    let quoted = [format!("`{name}("), format!("perf_prof.{name}`"), format!("`{name}`")];
    let quoted = if is_class { &quoted[..] } else { &quoted[..2] };
    let mentions = |text: &str| quoted.iter().any(|quoted| text.contains(quoted));
    let is_headed = |section: &Section| section.name == name;
    let has_row =
        |section: &Section| section.rows.iter().any(|row| row.name.split(['(', ',', ' ']).next() == Some(name));
    let mentions_it = |section: &Section| {
        section.rows.iter().any(|row| mentions(&row.text)) || section.lines.iter().any(|line| mentions(line))
    };
    let tests: [&dyn Fn(&Section) -> bool; 3] = [&is_headed, &has_row, &mentions_it];
    let first = |test: &dyn Fn(&Section) -> bool| {
        let in_document =
            |path: &&str| documents.iter().find(|section| section.place.starts_with(*path) && test(section));
        DOCUMENTS.iter().find_map(in_document)
    };
    let found = tests.into_iter().find_map(first);
    found.map_or_else(|| MODULE.to_owned(), |section| section.place.clone())
}

/// Returns the sections of the shipped scripts: titles, options and descriptions.
pub fn of_scripts(root: &Path) -> Vec<Section> {
    println!("cargo::rerun-if-changed=scripts");
    let entries = fs::read_dir(root.join("scripts")).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| name.ends_with(".py"));
    names.sort();
    names
        .iter()
        .map(|name| script(name, &fs::read_to_string(root.join("scripts").join(name)).unwrap_or_default()))
        .collect()
}

fn script(name: &str, text: &str) -> Section {
    let mut section = Section::new("script", format!("scripts/{name} --usage"), format!("scripts/{name}"));
    let lines: Vec<&str> = text.lines().collect();
    let mut described = docstring(lines.get(1..).unwrap_or_default());
    // Lines that contain two spaces in a row are table rows.
    described.retain(|line| !line.starts_with("usage:") && !line.contains("  "));
    section.lines = described;
    section.rows = common_options(text);
    for (_, call) in text.match_indices(".add_argument(").map(|(at, call)| text[at..].split_at(call.len())) {
        let literals: Vec<&str> =
            call.split("\n").take(4).flat_map(|line| line.split('"').skip(1).step_by(2)).collect();
        let (Some(option), Some((_, help))) = (literals.first(), call.split_once("help=\"")) else { continue };
        let metavar = call.split_once(')').map_or("", |_| after(call, "metavar=\""));
        let form = if metavar.is_empty() { (*option).to_owned() } else { format!("{option} {metavar}") };
        let help = help.split('"').next().unwrap_or_default();
        if *option != "--usage" {
            section.rows.push(Row { head: "option".to_owned(), name: form, text: help.to_owned() });
        }
    }
    section
}

/// Returns the options that a script inherits from `perf_prof.script.Options`.
fn common_options(text: &str) -> Vec<Row> {
    let asked = text.split_once("Options(__doc__").and_then(|(_, rest)| rest.split(')').next()).unwrap_or_default();
    let common = [
        ("top=", "--top N", "number of rows in a table"),
        ("comm=", "--comm NAME", "only tasks of this name"),
        ("flame=", "--flame FILE", "write a flame graph: FILE.svg, or FILE.folded as text"),
    ];
    let of_script = common.into_iter().filter(|(keyword, ..)| asked.contains(keyword));
    let row = |(_, name, text): (_, &str, &str)| Row {
        head: "option".to_owned(),
        name: name.to_owned(),
        text: text.to_owned(),
    };
    of_script.map(row).collect()
}

/// Returns the rest of the string literal that starts with `mark`. Returns an empty text if `mark` does not come before
/// the next call of add_argument().
fn after<'a>(call: &'a str, mark: &str) -> &'a str {
    let end = call.find("add_argument(").unwrap_or(call.len());
    call[..end].split_once(mark).and_then(|(_, rest)| rest.split('"').next()).unwrap_or_default()
}
