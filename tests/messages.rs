//! Checks that perf-prof prints each message that `docs/troubleshooting.md` quotes.
//!
//! The first column of the tables quotes messages in backticks. A cell with words outside of backticks describes what
//! the user sees, so it is not checked. `...` in a message represents a value.

use std::{fs, path::Path};

/// Quoted texts of the linker, the dynamic linker or the kernel.
const OF_OTHERS: [&str; 5] = [
    "linker 'cc' not found",
    "error while loading shared libraries: libpython3",
    "so",
    "Not a directory",
    "PyO3 does not support the free-threaded build of CPython versions below 3.14",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the string literals of a source file, each split at its placeholders, such as `{name}`.
fn literals(text: &str) -> Vec<Vec<String>> {
    let mut literals = Vec::new();
    // Comments are left out, because they may contain an odd number of `"`. No literal has a line that starts with
    // `//`.
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n").replace("'\"'", "");
    let mut rest = code.as_str();
    while let Some(start) = rest.find('"') {
        let mut parts = vec![String::new()];
        let mut chars = rest[start + 1..].char_indices().peekable();
        let mut end = rest.len() - start - 1;
        while let Some((at, c)) = chars.next() {
            let next = chars.peek().map(|&(_, next)| next);
            let part = parts.last_mut().unwrap();
            match c {
                '"' => {
                    end = at + 1;
                    break;
                }
                // The literal continues after the indentation of the next line.
                '\\' if next == Some('\n') => while chars.next_if(|(_, c)| c.is_whitespace()).is_some() {},
                '\\' => part.extend(chars.next().map(|(_, c)| c)),
                '{' | '}' if next == Some(c) => part.extend(chars.next().map(|(_, c)| c)),
                '{' => {
                    while chars.next_if(|&(_, c)| c != '}' && c != '"').is_some() {}
                    chars.next_if(|&(_, c)| c == '}');
                    parts.push(String::new());
                }
                _ => part.push(c),
            }
        }
        literals.push(parts);
        rest = &rest[start + 1 + end..];
    }
    literals
}

fn all_literals(folder: &Path) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(all_literals(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.extend(literals(&fs::read_to_string(path).unwrap()));
        }
    }
    all
}

/// Returns whether a literal can print the text. Each placeholder of the literal may match a word of the text.
fn prints(parts: &[String], text: &str) -> bool {
    let length = |common: &dyn Fn(usize) -> bool| {
        (0..=text.len())
            .rev()
            .filter(|&length| text.is_char_boundary(length))
            .find(|&length| common(length))
            .unwrap_or(0)
    };
    let around_a_word = |pair: &[String]| {
        let before = length(&|length| pair[0].ends_with(&text[..length]));
        let after = length(&|length| {
            text.len()
                .checked_sub(length)
                .is_some_and(|at| text.is_char_boundary(at) && pair[1].starts_with(&text[at..]))
        });
        let word = text.len().saturating_sub(before + after);
        (1..=12).contains(&word) && before + after >= word
    };
    parts.iter().any(|part| part.contains(text)) || parts.windows(2).any(around_a_word)
}

/// Returns the texts in backticks, and the rest of the cell.
fn quoted(cell: &str) -> (Vec<&str>, String) {
    let (mut quoted, mut outside, mut rest) = (Vec::new(), String::new(), cell);
    while let Some(start) = rest.find('`') {
        outside.push_str(&rest[..start]);
        let marks = rest[start..].len() - rest[start..].trim_start_matches('`').len();
        let (text, after) = rest[start + marks..].split_once(&"`".repeat(marks)).expect(cell);
        quoted.push(text.trim());
        rest = after;
    }
    outside.push_str(rest);
    (quoted, outside)
}

#[test]
fn messages_in_troubleshooting_are_in_the_sources() {
    let literals = all_literals(&root().join("src"));
    let text = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let (mut broken, mut checked) = (Vec::new(), 0);
    for (number, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with("| ")) {
        let cell = line[2..].split(" | ").next().unwrap();
        let (messages, outside) = quoted(cell);
        if !outside.trim_matches([',', ' ']).is_empty() {
            continue;
        }
        for message in messages {
            checked += 1;
            for piece in message.split("...") {
                let piece = piece.trim_matches(|c: char| !c.is_alphanumeric() && !"<>-".contains(c));
                if piece.is_empty() || OF_OTHERS.contains(&piece) {
                    continue;
                }
                if !literals.iter().any(|parts| prints(parts, piece)) {
                    broken.push(format!("docs/troubleshooting.md:{}: no source prints `{piece}`", number + 1));
                }
            }
        }
    }
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
    assert!(checked > 80, "only {checked} messages were found");
}

#[test]
fn words_of_a_message_are_found_around_a_value() {
    let source = r#"say(format!("{path}: `{name}` is \"no\" \
                     name of {{this}} {kind}"));"#;
    let literals = literals(source);
    assert_eq!(literals, [["", ": `", "` is \"no\" name of {this} ", ""]]);
    assert!(prints(&literals[0], "name of {this}") && prints(&literals[0], "name of {this} thing"));
    assert!(prints(&literals[0], "`cycles` is \"no\" name"));
    assert!(!prints(&literals[0], "cycles is no name") && !prints(&literals[0], "of {that} thing"));
}
