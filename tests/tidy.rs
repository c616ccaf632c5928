//! Checks the rules for the files of the project, which `docs/architecture.md` explains.

use std::{
    collections::{HashMap, HashSet},
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// The crates below `src`, lowest first. Each is in the folder of its name, and uses only the crates before it.
const CRATES: [&str; 11] = [
    "format",
    "system",
    "symbols",
    "capture",
    "recordings",
    "events",
    "in_kernel",
    "session",
    "tools",
    "python",
    "cli",
];

/// The crates whose modules have no order.
const ONE_ROOM: [&str; 4] = ["system", "capture", "recordings", "cli"];

/// The folders that may contain `unsafe`. The first calls the kernel, and the second calls CPython.
const UNSAFE: [&str; 2] = ["src/system", "src/python/script"];

/// The folders and files that may name pyo3.
const PYTHON: [&str; 5] =
    ["src/python/script", "src/python/library", "src/python/testing", "src/cli/native.rs", "src/extension"];

/// The folders and files that read no files and start no programs, so that all of their tests give the same result on
/// every machine.
const WITHOUT_MACHINE: [&str; 6] = [
    "src/format/abi",
    "src/format/value.rs",
    "src/format/control_characters.rs",
    "src/format/spec",
    "src/format/record",
    "src/format/tracefs",
];

/// The maximum number of lines in a file, so that readers soon see what the file is about.
const LINES: usize = 600;

/// The maximum number of lines in a function.
const FUNCTION_LINES: usize = 70;

/// Functions that are longer, each with its file and length. No function may be added here or become longer.
const LONG_FUNCTIONS: [(&str, &str, usize); 4] = [
    ("src/format/record/members/tests.rs", "sample", 85),
    ("src/format/spec/parse/tests.rs", "errors", 87),
    ("src/cli/python/plan.rs", "plans", 92),
    ("src/cli/python/plan.rs", "targets", 73),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns all files in a folder of the project and in its subfolders. Paths start at the root of the project.
fn files(below: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(below)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        let name = name.to_str().unwrap();
        // Cargo, git, Python and fuzzing create these folders, which are no part of the project.
        if ["target", ".git", "__pycache__", "artifacts", "corpus"].contains(&name) {
            continue;
        }
        let path = Path::new(below).join(name);
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(path.to_str().unwrap())),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

fn rust_files(below: &str) -> Vec<(PathBuf, String)> {
    let rust = files(below).into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    rust.map(|path| (path.clone(), read(&path))).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Returns the text of a source file without comments and string literals.
fn code(text: &str) -> String {
    let mut code = String::new();
    for line in text.lines() {
        let line = line.split("//").next().unwrap();
        // Every second piece between quotes is a string literal. Literals that continue on the next line are not
        // recognized.
        code.extend(line.split('"').step_by(2));
        code.push('\n');
    }
    code
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// Returns the crate of a file: the folder below `src`.
fn crate_of(path: &Path) -> &str {
    path.iter().nth(1).unwrap().to_str().unwrap()
}

/// Returns the module of a file in `src` below its crate. For crate roots and build scripts, returns `lib`, `main` or
/// `build`, which is no module.
fn room(path: &Path) -> &str {
    path.iter().nth(2).unwrap().to_str().unwrap().trim_end_matches(".rs")
}

/// Returns whether a path is one of these files, or in one of these folders.
fn is_at(path: &Path, places: &[&str]) -> bool {
    places.iter().any(|place| path.starts_with(place))
}

/// Returns the modules of a crate, in the order of its `lib.rs`.
fn rooms_of(name: &str) -> Vec<String> {
    let text = read(&Path::new("src").join(name).join("lib.rs"));
    let rooms = text.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    rooms.map(str::to_owned).collect()
}

/// Returns all modules with their crates, lowest first.
fn rooms() -> Vec<(String, String)> {
    let mut rooms = Vec::new();
    for name in CRATES {
        match ONE_ROOM.contains(&name) {
            true => rooms.push((name.to_owned(), String::new())),
            false => rooms.extend(rooms_of(name).into_iter().map(|room| (name.to_owned(), room))),
        }
    }
    assert!(rooms.len() > 20, "{rooms:?}");
    rooms
}

/// Returns the names that the code of a crate imports from each crate, one by one or in a list. Not all names are
/// modules.
fn used(own: &str, code: &str) -> Vec<(String, String)> {
    let mut used = Vec::new();
    let prefixes = CRATES.map(|name| (name, format!("perf_prof_{name}::"))).into_iter();
    for (name, prefix) in prefixes.chain([(own, "crate::".to_owned())]) {
        for (at, _) in code.match_indices(&prefix) {
            used.extend(first_words(&code[at + prefix.len()..]).into_iter().map(|word| (name.to_owned(), word)));
        }
    }
    used
}

/// Returns the first word of a path. For a list in braces, returns the first word of each path in the list.
fn first_words(rest: &str) -> Vec<String> {
    let Some(list) = rest.strip_prefix('{') else { return words(rest).next().map(str::to_owned).into_iter().collect() };
    // Only the first word of an entry can be a module. Braces within an entry contain other names.
    let mut found = Vec::new();
    let (mut depth, mut entry) = (1, true);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => entry = true,
            c if entry && c.is_alphabetic() => {
                found.extend(words(&list[at..]).next().map(str::to_owned));
                entry = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    found
}

#[track_caller]
fn none(broken: Vec<String>) {
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
}

#[test]
fn imports_are_seen_in_all_their_forms() {
    let code = "use crate::{\n    abi::{A, b::C},\n    sys::D,\n};\nuse crate::spec::E; fn f() { crate::value::g() }";
    let rooms: Vec<String> = used("own", code).into_iter().map(|(name, room)| format!("{name}::{room}")).collect();
    assert_eq!(rooms, ["own::abi", "own::sys", "own::spec", "own::value"]);
    let of_crates = CRATES.map(|name| used("own", &format!("use perf_prof_{name}::{{room::A, b}};")));
    assert!(of_crates.iter().zip(CRATES).all(|(used, name)| used[0] == (name.to_owned(), "room".to_owned())));
    assert_eq!(words(&self::code("a(); // unsafe\nb(\"unsafe\")")).filter(|word| *word == "unsafe").count(), 0);
}

#[test]
fn rooms_use_only_rooms_above_them() {
    let rooms = rooms();
    let place = |name: &str, room: &str| {
        let room = if ONE_ROOM.contains(&name) { "" } else { room };
        rooms.iter().position(|(other, its)| other == name && its == room)
    };
    let (mut broken, mut checked) = (Vec::new(), 0);
    for (path, text) in rust_files("src") {
        let Some(own) = place(crate_of(&path), room(&path)) else { continue };
        for (name, room) in used(crate_of(&path), &code(&text)) {
            // Names of other items are skipped.
            let Some(other) = place(&name, &room) else { continue };
            checked += 1;
            if other > own {
                broken.push(format!("{}: it uses {name}::{room}, which is below it", path.display()));
            }
        }
    }
    none(broken);
    assert!(checked > 1000, "only {checked} imports were found");
}

#[test]
fn every_folder_of_src_is_a_room_with_a_meaningful_name() {
    let rooms = rooms();
    let mut broken = Vec::new();
    for (path, _) in rust_files("src") {
        let (name, room) = (crate_of(&path), room(&path));
        let stem = path.file_stem().unwrap().to_str().unwrap();
        if ["utils", "util", "common", "helpers", "misc"].iter().any(|bad| stem == *bad || room == *bad) {
            broken.push(format!("{}: this name says nothing about the content", path.display()));
        }
        if !CRATES.contains(&name) && name != "extension" {
            broken.push(format!("{}: its crate is not in CRATES", path.display()));
        }
        let is_room = rooms.iter().any(|(other, its)| other == name && its == room);
        if !["lib", "main", "build"].contains(&room) && !is_room && !ONE_ROOM.contains(&name) {
            broken.push(format!("{}: its room is not in its crate's lib.rs", path.display()));
        }
    }
    none(broken);
}

#[test]
fn every_rust_file_starts_with_a_comment_about_its_content() {
    let all = rust_files("src").into_iter().chain(rust_files("tests"));
    none(all.filter(|(_, text)| !text.starts_with("//! ")).map(|(path, _)| path.display().to_string()).collect());
}

#[test]
fn a_module_with_files_of_its_own_is_a_mod_rs() {
    // A build script may have modules in a folder beside it, because it is a program of its own.
    let beside_folder = |path: &PathBuf| !path.ends_with("build.rs") && root().join(path.with_extension("")).is_dir();
    let broken = rust_files("src").into_iter().map(|(path, _)| path).filter(beside_folder);
    none(
        broken.map(|path| format!("{}: is beside the folder of its name; make it a mod.rs", path.display())).collect(),
    );
}

#[test]
fn no_file_is_too_long() {
    let all = rust_files("src").into_iter().chain(rust_files("tests"));
    let long = all.map(|(path, text)| (path, text.lines().count()));
    none(
        long.filter(|&(_, lines)| lines > LINES).map(|(path, lines)| format!("{}: {lines}", path.display())).collect(),
    );
}

/// Returns each function of a file with its length in lines, from the line with `fn` to the closing brace.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut functions = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let start = line.trim_start();
        let indent = &line[..line.len() - start.len()];
        let Some((before, name)) = start.split_once("fn ") else { continue };
        let qualifiers = ["pub", "const", "async", "unsafe", "extern", "crate", "super", "in"];
        if !words(before).all(|word| word.is_empty() || word == "C" || qualifiers.contains(&word)) {
            continue;
        }
        // rustfmt indents the closing brace of a function like the line with `fn`. If a function has no body, this is
        // the line with `);`.
        let ends = |line: &&str| {
            line.strip_prefix(indent).is_some_and(|rest| rest == "}" || rest.starts_with(')') && rest.ends_with(';'))
        };
        let below = match line.ends_with([';', '}']) {
            true => 0,
            false => 1 + lines[at + 1..].iter().position(ends).unwrap(),
        };
        functions.push((words(name).next().unwrap(), below + 1));
    }
    functions
}

#[test]
fn lengths_of_functions_are_counted() {
    let text = "impl A {\n    pub(crate) fn one(\n        a: u8,\n    ) -> u8\n    where\n        B: C,\n    {\n        a\n    }\n\n    \
                fn none(\n        &self,\n    ) -> u8;\n}\nfn short() {}\nfn f() {\n    g(|fn_| 0)\n}";
    assert_eq!(functions(text), [("one", 8), ("none", 3), ("short", 1), ("f", 3)]);
}

#[test]
fn functions_are_short() {
    let mut found = Vec::new();
    for (path, text) in rust_files("src") {
        let long = functions(&text).into_iter().filter(|&(_, lines)| lines > FUNCTION_LINES);
        found.extend(long.map(|(name, lines)| (path.display().to_string(), name.to_owned(), lines)));
    }
    let known = |path: &str, name: &str| LONG_FUNCTIONS.iter().find(|known| (known.0, known.1) == (path, name));
    let mut broken = Vec::new();
    for (path, name, lines) in &found {
        match known(path, name) {
            Some(known) if known.2 == *lines => {}
            Some(known) => broken.push(format!("{path}: {name} has {lines} lines, LONG_FUNCTIONS says {}", known.2)),
            None => broken.push(format!("{path}: {name} has {lines} lines, more than {FUNCTION_LINES}")),
        }
    }
    let is_found = |known: &&(&str, &str, usize)| {
        found.iter().any(|(path, name, _)| (path.as_str(), name.as_str()) == (known.0, known.1))
    };
    let gone = LONG_FUNCTIONS.iter().filter(|known| !is_found(known));
    broken.extend(gone.map(|known| format!("{}: {} is short now; remove it from LONG_FUNCTIONS", known.0, known.1)));
    none(broken);
}

/// Returns the names of the public items in the code of a file, and whether each is a type or a trait.
fn public_items(code: &str) -> Vec<(&str, bool)> {
    let mut items = Vec::new();
    for line in code.lines() {
        let Some(item) = line.trim_start().strip_prefix("pub ") else { continue };
        let mut words = words(item).filter(|word| !["const", "async", "unsafe", "extern", "C", ""].contains(word));
        let first = words.next().unwrap_or_default();
        let is_type = ["struct", "enum", "trait", "type"].contains(&first);
        match (item.strip_prefix("const "), words.next()) {
            (_, Some(name)) if is_type || first == "fn" => items.push((name, is_type)),
            (Some(_), _) => items.push((first, false)),
            _ => {}
        }
    }
    items
}

#[test]
fn other_files_use_public_items() {
    let all: Vec<(PathBuf, String)> = ["src", "tests"].into_iter().flat_map(rust_files).collect();
    let all: Vec<(PathBuf, String)> = all.into_iter().map(|(path, text)| (path, code(&text))).collect();
    // The number of files that contain each word.
    let mut files: HashMap<&str, usize> = HashMap::new();
    for (_, code) in &all {
        words(code).collect::<HashSet<&str>>().into_iter().for_each(|word| *files.entry(word).or_default() += 1);
    }
    let (mut broken, mut checked) = (Vec::new(), 0);
    for (path, code) in all.iter().filter(|(path, _)| path.starts_with("src")) {
        for (name, is_type) in public_items(code) {
            checked += 1;
            // A public type may be used without its name: as the type of a public field, or of a result. A trait may be
            // used without its name if it bounds a public type.
            let in_public = |line: &str| {
                let is_definition =
                    words(line.trim_start()).nth(2) == Some(name) && line.trim_start().starts_with("pub ");
                let is_public = ["pub ", "pub(", "impl<"].iter().any(|start| line.trim_start().starts_with(start));
                (is_public || line.contains("->")) && !is_definition && words(line).any(|word| word == name)
            };
            if files[name] == 1 && !(is_type && code.lines().any(in_public)) {
                broken.push(format!("{}: no other file names {name}; make it private", path.display()));
            }
        }
    }
    none(broken);
    assert!(checked > 1000, "only {checked} public items were found");
}

#[test]
fn only_the_rooms_for_scripts_and_programs_use_python() {
    let outside =
        rust_files("src").into_iter().filter(|(path, _)| !is_at(path, &PYTHON) && !path.ends_with("build.rs"));
    let outside = outside.filter(|(_, text)| words(&code(text)).any(|word| word.starts_with("pyo3")));
    none(outside.map(|(path, _)| path.display().to_string()).collect());
}

#[test]
fn only_the_rooms_for_the_kernel_and_for_cpython_contain_unsafe() {
    let outside = rust_files("src").into_iter().filter(|(path, _)| !is_at(path, &UNSAFE));
    let outside = outside.filter(|(_, text)| words(&code(text)).any(|word| word == "unsafe"));
    none(outside.map(|(path, _)| path.display().to_string()).collect());
}

#[test]
fn rooms_for_formats_ask_no_machine() {
    let inside = rust_files("src").into_iter().filter(|(path, _)| is_at(path, &WITHOUT_MACHINE));
    let asks = |text: &str| words(&code(text)).any(|word| ["fs", "Command", "SystemTime"].contains(&word));
    none(inside.filter(|(_, text)| asks(text)).map(|(path, _)| path.display().to_string()).collect());
}

#[test]
fn places_that_rules_name_exist() {
    let places = UNSAFE.iter().chain(&PYTHON).chain(&WITHOUT_MACHINE);
    none(places.filter(|place| !root().join(place).exists()).map(|place| (*place).to_owned()).collect());
}

/// Returns the files of the project to which a Markdown file links.
fn links(text: &str) -> Vec<&str> {
    let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    links.filter(|link| !link.is_empty() && !link.contains("://")).collect()
}

#[test]
fn links_lead_to_files_and_every_document_is_linked() {
    let documents = files("docs").into_iter().chain(["README.md".into()]);
    let mut broken = Vec::new();
    for path in documents {
        let text = read(&path);
        for link in links(&text) {
            if !root().join(path.parent().unwrap()).join(link).exists() {
                broken.push(format!("{}: {link} does not exist", path.display()));
            }
        }
    }
    let readme = read(Path::new("README.md"));
    let linked = links(&readme);
    let unlinked = files("docs").into_iter().filter(|path| !linked.contains(&path.to_str().unwrap()));
    broken.extend(unlinked.map(|path| format!("README.md does not link {}", path.display())));
    none(broken);
}

/// Returns the lines of a Markdown file, each with its texts in backticks. Fenced blocks are left out.
fn code_words(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let spans = line.split('`').skip(1).step_by(2);
            lines.push((line, spans.flat_map(str::split_whitespace).collect()));
        }
    }
    lines
}

/// Returns the paths that a word in a document may mean. The result is empty if the word does not look like a path of
/// the project.
fn possible_paths(word: &str, folders: &[PathBuf], in_table_of_map: bool) -> Vec<PathBuf> {
    const FOLDERS: [&str; 6] = ["src/", "docs/", "tests/", "scripts/", "python/", ".ci/"];
    if word.starts_with('/') || word.contains(['*', '<', ':', '@']) || word.contains("...") {
        return Vec::new();
    }
    if FOLDERS.iter().any(|folder| word.starts_with(folder)) {
        return vec![word.into()];
    }
    // A document may write the path of a source file without `src/`, or without the folder of an earlier path in the
    // line.
    match word.ends_with(".rs") || (in_table_of_map && word.ends_with('/')) {
        true => folders.iter().map(|folder| folder.join(word)).collect(),
        false => Vec::new(),
    }
}

#[test]
fn paths_that_documents_name_exist() {
    let (mut broken, mut checked) = (Vec::new(), 0);
    for document in files("docs").into_iter().chain(["README.md".into()]) {
        if document.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let map = document == Path::new("docs/architecture.md");
        for (line, words) in code_words(&read(&document)) {
            let mut folders = vec![PathBuf::from("src")];
            for word in words {
                let word = word.trim_end_matches([',', '.', ';']);
                let possible = possible_paths(word, &folders, map && line.starts_with('|'));
                if possible.is_empty() {
                    continue;
                }
                checked += 1;
                match possible.into_iter().find(|path| root().join(path).exists()) {
                    Some(path) if word.ends_with('/') => folders.push(path),
                    Some(path) => folders.push(path.parent().unwrap().to_owned()),
                    None => broken.push(format!("{}: {word} does not exist", document.display())),
                }
            }
        }
    }
    none(broken);
    assert!(checked > 100, "only {checked} paths were found in the documents");
}

#[test]
fn no_file_contains_a_path_in_a_home_folder() {
    let mut broken = Vec::new();
    for path in files("") {
        // A file that is no text is a fixture.
        let Ok(text) = fs::read_to_string(root().join(&path)) else { continue };
        for place in ["root", "home"] {
            let place = format!("/{place}/");
            let lines = text.lines().enumerate().filter(|(_, line)| line.contains(&place));
            broken.extend(lines.map(|(at, line)| format!("{}:{}: {}", path.display(), at + 1, line.trim())));
        }
    }
    none(broken);
}

#[test]
fn scripts_are_executable_and_documented() {
    let mut broken = Vec::new();
    for path in files("scripts") {
        let text = read(&path);
        let name = path.file_name().unwrap().to_str().unwrap();
        if fs::metadata(root().join(&path)).unwrap().permissions().mode() & 0o111 != 0o111 {
            broken.push(format!("{}: not executable", path.display()));
        }
        if !text.starts_with("#!/usr/bin/env -S perf-prof python ") {
            broken.push(format!("{}: its first line does not run perf-prof", path.display()));
        }
        if !text.contains(&format!("usage: {name} [OPTION of perf-prof python]...")) {
            broken.push(format!("{}: does not say how it is used", path.display()));
        }
        if !read(Path::new("README.md")).contains(&format!("scripts/{name}")) {
            broken.push(format!("{}: not in README.md", path.display()));
        }
    }
    none(broken);
}

/// The maximum number of lines in a script. Half of them may be its docstring.
const SCRIPT: usize = 100;

#[test]
fn scripts_are_short() {
    let mut broken = Vec::new();
    for path in files("scripts") {
        let lines = read(&path).lines().count();
        if lines > SCRIPT {
            broken.push(format!("{}: {lines} lines, at most {SCRIPT} are allowed", path.display()));
        }
    }
    none(broken);
}
