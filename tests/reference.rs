//! Checks that `docs/reference.md` agrees with `--help` and with the package `python/perf_prof`.
//!
//! The document contains generated parts between `<!-- generated: NAME -->` and `<!-- end -->`. A test generates each
//! part again and compares it with the document. `UPDATE_EXPECT=1 cargo test --test integration generated_parts` writes
//! the parts into the document.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Write,
    fs,
    path::PathBuf,
    process::Command,
};

const COMMANDS: [&str; 20] = [
    "python",
    "serve",
    "record",
    "stat",
    "script",
    "report",
    "evlist",
    "export",
    "trace",
    "top",
    "hist",
    "list",
    "stubs",
    "scripts",
    "run",
    "doctor",
    "parallel",
    "completions",
    "man",
    "help",
];

const START: &str = "<!-- generated: ";
const END: &str = "<!-- end -->";

fn document() -> PathBuf {
    concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference.md").into()
}

fn run(arguments: &[&str]) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perf-prof"));
    let output = command.args(arguments).env("COLUMNS", "100").output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// Returns the words of a text. Words in braces count as one word.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let open = words.last().is_some_and(|last| last.matches('{').count() > last.matches('}').count());
        match words.last_mut() {
            Some(last) if open => {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

/// Returns a word without the punctuation around it. Brackets stay if they do not enclose the whole word.
fn body(word: &str) -> &str {
    let mut body = word;
    let count = |body: &str, brackets: &str| body.matches(|c| brackets.contains(c)).count();
    loop {
        let (opened, closed) = (count(body, "([{"), count(body, ")]}"));
        let inner = match () {
            () if body.ends_with([',', '.', ';', ':']) => &body[..body.len() - 1],
            () if body.ends_with([')', ']']) && closed > opened => &body[..body.len() - 1],
            () if body.starts_with(['(', '[']) && opened > closed => &body[1..],
            () if body.starts_with('[') && body.ends_with(']') => &body[1..body.len() - 1],
            () if body.starts_with('(') && body.ends_with(')') => &body[1..body.len() - 1],
            () => return body,
        };
        body = inner;
    }
}

/// Returns a text for Markdown. Options, calls, and words that Markdown would take for emphasis or HTML get backticks.
fn plain(text: &str) -> String {
    let mut in_code = false;
    let word = |word: String| {
        let body = body(&word);
        let option =
            body.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c == '-' || c.is_alphabetic()));
        let marked = option || body.ends_with("()") || body.contains(|c: char| "_*<>{}|".contains(c));
        let was_in_code = in_code;
        in_code ^= word.matches('`').count() % 2 == 1;
        match was_in_code || word.contains('`') || !marked {
            true => word,
            false => word.replacen(body, &format!("`{body}`"), 1),
        }
    };
    words(text).into_iter().map(word).collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn table(text: &mut String, head: &[&str], rows: &[Vec<String>]) {
    let _ = writeln!(text, "\n| {} |\n|{}", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
}

/// The output of `--help`, divided into parts.
#[derive(Default)]
struct Help {
    about: String,
    usage: String,
    /// The groups of options. Each group has a name, and for each option its syntax and its text.
    groups: Vec<(String, Vec<(String, String)>)>,
    /// The text after the options.
    epilogue: String,
}

/// Returns the name in a heading such as `Options:`.
fn heading(line: &str) -> Option<&str> {
    line.strip_suffix(':').filter(|name| !name.starts_with(' ') && !name.contains("  "))
}

impl Help {
    fn parse(text: &str) -> Help {
        let mut help = Help::default();
        let (about, rest) = text.split_once("\n\nUsage: ").unwrap();
        help.about = about.to_owned();
        let (usage, rest) = rest.split_once("\n\n").unwrap();
        help.usage = usage.lines().map(str::trim).collect::<Vec<_>>().join("\n");
        let mut lines = rest.lines().peekable();
        while let Some(line) = lines.next() {
            match heading(line) {
                Some(name) if lines.peek().is_some_and(|next| entry(next).is_some()) => {
                    help.groups.push((name.to_owned(), Vec::new()));
                }
                _ if line.is_empty() => {}
                _ if !line.starts_with(' ') => {
                    help.epilogue = std::iter::once(line).chain(lines).collect::<Vec<_>>().join("\n");
                    break;
                }
                _ => {
                    let entries = &mut help.groups.last_mut().unwrap().1;
                    match entry(line) {
                        Some((form, text)) => entries.push((form.to_owned(), text.to_owned())),
                        None => {
                            let text = &mut entries.last_mut().unwrap().1;
                            text.push(' ');
                            text.push_str(line.trim());
                        }
                    }
                }
            }
        }
        help
    }
}

/// Returns the syntax of an option, argument or command, and its text if that is on the same line.
fn entry(line: &str) -> Option<(&str, &str)> {
    let text = line.trim_start();
    let indent = line.len() - text.len();
    let begins =
        text.starts_with('-') || (indent == 2 && text.starts_with(|c: char| c.is_alphanumeric() || "[<".contains(c)));
    (begins && (indent == 2 || indent == 6)).then(|| match text.split_once("  ") {
        Some((form, text)) => (form, text.trim()),
        None => (text, ""),
    })
}

/// Returns the part of the document about a command.
fn options(arguments: &[&str]) -> String {
    let help = Help::parse(&run(&[arguments, &["--help"]].concat()).0);
    assert!(!help.groups.is_empty(), "{arguments:?} has no options");
    // The first paragraph is left out, because the table of commands contains it.
    let about = help.about.split_once("\n\n").map_or("", |(_, more)| more);
    let mut text = String::new();
    if !about.is_empty() {
        let _ = writeln!(text, "{}\n", about.split("\n\n").map(plain).collect::<Vec<_>>().join("\n\n"));
    }
    let _ = writeln!(text, "```text\n{}\n```", help.usage);
    for (group, entries) in &help.groups {
        let entries = entries.iter().filter(|(form, _)| form != "-h, --help");
        let rows: Vec<_> =
            entries.map(|(form, text)| vec![format!("`{}`", form.replace('|', "\\|")), plain(text)]).collect();
        if !rows.is_empty() {
            table(&mut text, &[group.as_str(), ""], &rows);
        }
    }
    // The epilogue of `python` is left out, because the rest of the document says more about this command.
    if !help.epilogue.is_empty() && arguments != ["python"] {
        let _ = writeln!(text, "\n```text\n{}\n```", help.epilogue.trim_end());
    }
    text
}

/// A function, method or property of the stub.
struct Member {
    name: String,
    signature: String,
    result: String,
    property: bool,
    text: String,
}

/// Returns the docstring that starts in the first of these lines, as a single line.
fn docstring(lines: &[&str]) -> Option<String> {
    let rest = lines.first()?.trim().strip_prefix("\"\"\"")?;
    let text = std::iter::once(rest).chain(lines[1..].iter().copied()).map(str::trim).collect::<Vec<_>>().join("\n");
    let text = text.split("\"\"\"").next().unwrap().trim();
    let paragraphs = text.split("\n\n").map(|paragraph| paragraph.replace('\n', " "));
    Some(paragraphs.collect::<Vec<_>>().join(" "))
}

/// Returns the docstring and the members of a class, or of the module if `class` is `None`.
fn members(files: &str, class: Option<&str>) -> (String, Vec<Member>) {
    let lines: Vec<&str> = files.lines().collect();
    let begin = class
        .map_or(0, |class| 1 + lines.iter().position(|line| line.starts_with(&format!("class {class}"))).expect(class));
    let inside = |line: &&&str| line.is_empty() || line.starts_with(' ');
    let end = class.map_or(lines.len(), |_| begin + lines[begin..].iter().take_while(inside).count());
    let lines = &lines[begin..end];
    let prefix = if class.is_some() { "    def " } else { "def " };
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(rest) = line.strip_prefix(prefix) else { continue };
        // A signature may take several lines. The last line ends with a colon, or with `: ...` without a docstring.
        let ends = |line: &&str| line.ends_with(':') || line.ends_with(": ...");
        let last = at + lines[at..].iter().position(ends).unwrap();
        let more = lines[at + 1..=last].iter().map(|line| line.trim());
        let signature = std::iter::once(rest).chain(more).collect::<Vec<_>>().join(" ");
        let signature = signature.trim_end_matches(" ...").trim_end_matches(':');
        let (call, result) = signature.rsplit_once(" -> ").unwrap();
        let (name, parameters) = call.split_once('(').unwrap();
        let parameters = parameters.trim_end_matches(')').trim().trim_end_matches(',');
        let parameters: Vec<&str> =
            parameters.split(", ").filter(|name| !["self", "cls", "/"].contains(name)).collect();
        // `**options` replaces the keywords, because the table of keywords contains a row for each.
        let is_table = |of: &&str| of.starts_with("**options: Unpack[");
        let parameters = parameters.into_iter().map(|of| if is_table(&of) { "**options" } else { of });
        let parameters: Vec<_> = parameters.collect();
        found.push(Member {
            name: name.to_owned(),
            signature: format!("{name}({})", parameters.join(", ")),
            result: result.to_owned(),
            property: at > 0 && lines[at - 1].trim() == "@property",
            text: docstring(&lines[last + 1..]).unwrap_or_default(),
        });
    }
    (docstring(lines).unwrap_or_default(), found)
}

fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

/// Returns the text of a file of the package.
fn read(file: &str) -> String {
    fs::read_to_string(format!("{}/python/perf_prof/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn package(name: &str) -> String {
    let files: String = ["_parts.py", "_native.pyi", "_runs.py", "_fleet.py"].into_iter().map(read).collect();
    let class = (name != "perf_prof").then_some(name);
    let (about, mut members) = members(&files, class);
    if class.is_none() {
        let public = read("__init__.py");
        members.retain(|function| public.contains(&format!("{0} as {0}", function.name)));
    }
    assert!(!members.is_empty(), "{name}");
    let mut text = String::new();
    // The docstring of the event class repeats the tables below, which contain a row for each member.
    if class.is_some() && name != "PerfEvent" {
        let new = members.iter().find(|member| ["__new__", "__init__"].contains(&&*member.name)).unwrap();
        let new = new.signature.replace(&new.name, name);
        let _ = writeln!(text, "```python\n{new}\n```\n\n{}", plain(&about));
    }
    let properties: Vec<_> = members.iter().filter(|member| member.property).collect();
    if !properties.is_empty() {
        let row = |member: &&Member| vec![code(&member.name), code(&member.result), plain(&member.text)];
        table(&mut text, &["member", "type", "meaning"], &properties.iter().map(row).collect::<Vec<_>>());
    }
    let methods = members.iter().filter(|member| !member.property && !member.name.starts_with('_'));
    let row = |member: &Member| vec![code(&member.signature), code(&member.result), plain(&member.text)];
    let call = if class.is_some() { "method" } else { "function" };
    table(&mut text, &[call, "gives", "meaning"], &methods.map(row).collect::<Vec<_>>());
    text
}

/// Returns whether a table of keywords is another table, or inherits from it.
fn has(bases: &BTreeMap<&str, Vec<&str>>, table: &str, other: &str) -> bool {
    table == other || bases.get(table).is_some_and(|bases_of| bases_of.iter().any(|base| has(bases, base, other)))
}

/// Returns the table of the keywords in `_options.py`. Each row also contains the functions that take the keyword.
fn keywords() -> String {
    let file = read("_options.py");
    let forms = file.lines().filter_map(|line| line.trim().split_once(": TypeAlias = "));
    let forms: BTreeMap<&str, &str> = forms.map(|(form, of)| (form, of.split("  # ").next().unwrap())).collect();
    let (mut bases, mut rows, mut table_of_row) = (BTreeMap::new(), Vec::new(), "");
    for (line, next) in file.lines().zip(file.lines().skip(1)) {
        if let Some((name, of)) = line.strip_prefix("class ").and_then(|rest| rest.split_once('(')) {
            table_of_row = name;
            bases.insert(name, of.trim_end_matches("):").split(", ").collect());
        } else if let Some((keyword, form)) = line.trim().split_once(": ")
            && let Some(values) = forms.get(form)
        {
            rows.push((keyword, values, table_of_row, docstring(&[next]).unwrap()));
        }
    }
    let functions = ["trace", "replay", "run", "record", "flight", "stat"];
    let row = |(keyword, values, table, meaning): &(&str, &&str, &str, String)| {
        let of = functions.iter().filter(|function| {
            let options = format!("{}{}Options", function[..1].to_uppercase(), &function[1..]);
            has(&bases, &options, table)
        });
        let of: Vec<_> = of.map(|function| code(function)).collect();
        vec![code(keyword), code(values.trim_end_matches(" | None")), of.join(", "), plain(meaning)]
    };
    let mut text = String::new();
    table(&mut text, &["keyword", "type", "functions", "meaning"], &rows.iter().map(row).collect::<Vec<_>>());
    text
}

/// Returns what `perf-prof help` finds with these arguments: kind, name and place of each entry, best first.
fn found(arguments: &[&str]) -> Vec<[String; 3]> {
    let (output, _) = run(&[&["help", "--json"], arguments].concat());
    let entries: Vec<serde_json::Value> =
        serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}: {output}"));
    let text = |entry: &serde_json::Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    entries.iter().map(|entry| ["kind", "name", "place"].map(|key| text(entry, key))).collect()
}

/// Returns links to the sections of the document about an entry. `place` is the entry's place in the index of `help`.
fn links_of(place: &str) -> Vec<String> {
    if let Some(anchor) = place.strip_prefix("docs/reference.md#") {
        return vec![format!("[{}](#{anchor})", anchor.trim_start_matches("perf-prof-").replace('-', " "))];
    }
    let Some(commands) = place.strip_suffix(" --help").and_then(|place| place.strip_prefix("perf-prof")) else {
        return Vec::new();
    };
    let commands = commands.split([' ', ',']).filter(|command| !command.is_empty());
    commands.map(|command| format!("[{command}](#perf-prof-{command})")).collect()
}

/// Returns a table of the words that `perf-prof help` understands, with the sections of the best results.
fn index_of_words() -> String {
    const LINKS: usize = 3;
    let mut words: Vec<String> =
        found(&["--all"]).into_iter().filter(|[kind, ..]| kind == "word").map(|[_, name, _]| name).collect();
    words.sort();
    assert!(words.len() > 30, "{words:?}");
    let mut rows = Vec::new();
    for typed in &words {
        let first = typed.split(", ").next().unwrap();
        let mut links: Vec<String> = Vec::new();
        for link in found(&[first]).iter().flat_map(|[.., place]| links_of(place)) {
            if !links.contains(&link) && links.len() < LINKS {
                links.push(link);
            }
        }
        if !links.is_empty() {
            rows.push(vec![typed.clone(), links.join(", ")]);
        }
    }
    let mut text = String::new();
    table(&mut text, &["word", "sections"], &rows);
    text
}

/// Returns the names with sections in the document, by first letter: options, attributes, callbacks, members, functions
/// and classes.
fn index_of_names() -> String {
    const KINDS: [&str; 8] =
        ["option", "attribute", "callback", "member", "module", "aggregator", "environment", "command"];
    let mut names: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for [kind, name, place] in found(&["--all"]) {
        let links = links_of(&place);
        let is_method = name.contains('.') && !name.starts_with("event.");
        if links.is_empty() || is_method || !KINDS.contains(&&*kind) {
            continue;
        }
        // `-p, --pid <LIST>` is one name, and `alias=NAME, cpus=LIST` are two.
        let name = name.split([' ', '<', '(', '=', ',']).filter(|part| !part.is_empty());
        let name = match &*kind {
            "option" => name.take(2).filter(|part| part.starts_with('-')).last(),
            "command" => None,
            _ => name.take(1).last(),
        };
        if let Some(name) = name {
            let letter = name.trim_start_matches("event.").trim_start_matches(['-', '_']).to_lowercase();
            names.entry((letter, name.to_owned())).or_default().extend(links);
        }
    }
    let mut text = String::new();
    let mut last = None;
    for ((letters, name), links) in &names {
        let first = letters.chars().next();
        let _ = match first == last {
            true => write!(text, "; "),
            false => write!(text, "\n\n"),
        };
        last = first;
        let _ = write!(text, "`{name}` {}", links.iter().cloned().collect::<Vec<_>>().join(" "));
    }
    text
}

/// Returns the text of a generated part.
fn generated(name: &str) -> String {
    let text = match name.split_once(" of ") {
        Some(("options", command)) => options(&command.split(' ').skip(1).collect::<Vec<_>>()),
        Some(("index", "words")) => index_of_words(),
        Some(("index", "names")) => index_of_names(),
        _ if name == "keywords" => keywords(),
        _ => package(name),
    };
    format!("\n{}\n", text.trim())
}

#[test]
fn generated_parts_are_what_the_program_and_the_package_say() {
    let old = fs::read_to_string(document()).unwrap();
    let mut new = String::new();
    let mut names = BTreeSet::new();
    let mut rest = old.as_str();
    while let Some((before, after)) = rest.split_once(START) {
        let (name, after) = after.split_once(" -->\n").unwrap();
        let (part, after) = after.split_once(END).unwrap_or_else(|| panic!("{name} has no end"));
        let generated = generated(name);
        if env::var_os("UPDATE_EXPECT").is_none() {
            let differ = part.lines().zip(generated.lines()).find(|(old, new)| old != new);
            assert!(
                part.trim() == generated.trim(),
                "docs/reference.md, {name}: {differ:?}\n`UPDATE_EXPECT=1 cargo test --test integration \
                 generated_parts` updates the document"
            );
        }
        let _ = write!(new, "{before}{START}{name} -->\n{generated}\n{END}");
        names.insert(name);
        rest = after;
    }
    new.push_str(rest);
    for command in COMMANDS {
        assert!(names.contains(&*format!("options of perf-prof {command}")), "{command} is missing");
    }
    for name in [
        "index of words",
        "index of names",
        "options of perf-prof",
        "perf_prof",
        "keywords",
        "PerfEvent",
        "FlameGraph",
        "Heatmap",
        "Timeline",
        "Log2Hist",
        "Parts",
        "States",
    ] {
        assert!(names.contains(name), "{name} is missing");
    }
    if new != old {
        fs::write(document(), new).unwrap();
    }
}

/// `COMMANDS` lists all commands of the program. The test above checks that each command has a part.
#[test]
fn every_command_has_a_part() {
    let help = Help::parse(&run(&["--help"]).0);
    let (_, commands) = help.groups.iter().find(|(name, _)| name == "Commands").unwrap();
    let names = commands.iter().map(|(name, _)| name.as_str());
    assert_eq!(names.collect::<BTreeSet<_>>(), COMMANDS.into());
}

/// Returns the first cells of all table rows below a heading.
fn first_cells<'a>(text: &'a str, heading: &str) -> Vec<&'a str> {
    let (_, section) = text.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("{heading} is missing"));
    let rows = section.lines().take_while(|line| !line.starts_with('#')).filter(|line| line.starts_with("| `"));
    rows.map(|row| row.split(" | ").next().unwrap()).collect()
}

/// The message that refuses an unknown attribute lists the known attributes.
#[test]
fn attributes_are_those_that_the_program_knows() {
    let (_, refused) = run(&["python", "-e", "sched:sched_wakeup//no-such/", "help"]);
    let (_, known) =
        refused.lines().next().unwrap().split_once("the known attributes are ").unwrap_or_else(|| panic!("{refused}"));
    let text = fs::read_to_string(document()).unwrap();
    let cells = first_cells(&text, "### Attributes").concat();
    let names = |text: &str| {
        let words = text.split([' ', ',', '`', '|']).filter(|word| *word == "stack" || word.contains('='));
        words.map(|word| word.split('=').next().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    assert!(names(known).len() > 5, "{known}");
    assert_eq!(names(&cells), names(known));
}

/// The document lists the callbacks in the template of a script, the two callbacks for `--jobs`, and `__without__`.
#[test]
fn callbacks_are_those_of_the_template() {
    // SAFETY: geteuid takes no argument and cannot fail.
    if unsafe { libc::geteuid() } != 0 || !PathBuf::from("/sys/kernel/tracing/events").exists() {
        return println!("skipped: the template describes events, and that takes root and tracefs");
    }
    let (template, _) = run(&["python", "-e", "sched:sched_wakeup", "help"]);
    let functions =
        template.lines().filter_map(|line| line.strip_prefix("def ")?.split_once('(').map(|(name, _)| name));
    let mut callbacks: BTreeSet<_> = functions.filter(|name| name.starts_with("__")).collect();
    callbacks.extend(["__partial__", "__merge__", "__without__"]);
    let text = fs::read_to_string(document()).unwrap();
    let cells = first_cells(&text, "## Callbacks").concat();
    let words = cells.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| word.starts_with("__"));
    assert_eq!(words.collect::<BTreeSet<_>>(), callbacks);
}
