//! The options on a script's first line (`#!`). The kernel puts them before the options that the user typed.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::Read,
};

use clap::FromArgMatches;
use perf_prof_format::spec::EventSpec;
use perf_prof_session::selectors;

use super::{
    options::{self, Options},
    split,
};

/// Returns the help of the script `module`: its docstring. Returns `None` if the script has no docstring. Also returns
/// `None` if the script was not started through its first line: in this case the user wants the help of `perf-prof
/// python`.
pub fn help(argv: &[OsString], module: &OsStr) -> Option<String> {
    given_by_first_line(argv, module)?;
    let mut text = String::new();
    File::open(module).ok()?.take(MOST).read_to_string(&mut text).ok()?;
    docstring(&text).map(str::to_owned)
}

/// The number of bytes, from the start of the script, that are searched for the end of the docstring.
const MOST: u64 = 1 << 20;

/// Returns the text of the docstring at the start of a script.
fn docstring(script: &str) -> Option<&str> {
    let mut rest = script;
    while rest.starts_with('#') || rest.starts_with(char::is_whitespace) {
        let line_end = rest.find('\n').map_or(rest.len(), |end| end + 1);
        rest = if rest.starts_with('#') { &rest[line_end..] } else { rest.trim_start() };
    }
    let rest = rest.strip_prefix(['r', 'R', 'u', 'U']).unwrap_or(rest);
    let quotes = ["\"\"\"", "'''"].into_iter().find(|quotes| rest.starts_with(quotes))?;
    rest.strip_prefix(quotes)?.split_once(quotes).map(|(text, _)| text.trim())
}

/// Returns how many events of the command line come from the first line of the script `module`. The kernel puts these
/// events before the events that the user typed. Returns 0 if the script was not started through its first line.
pub fn count_own_events(argv: &[OsString], module: &OsStr) -> usize {
    given_by_first_line(argv, module).map_or(0, |given| events_of(given).len())
}

/// Returns the events that the first line of the script `module` selects.
pub fn events(module: &OsStr) -> Vec<EventSpec> {
    given(module).map(events_of).unwrap_or_default()
}

/// Returns the words after `perf-prof python` on the first line of the script `module`.
pub fn given(module: &OsStr) -> Option<Vec<OsString>> {
    let line = read_first_line(module)?;
    let words = split_words(line.strip_prefix("#!")?)?;
    let python = words.iter().position(|word| word == "python")?;
    Some(words[python + 1..].iter().map(OsString::from).collect())
}

/// Returns the options on the first line of the script `module`; `None` if the script was not started through this
/// line.
fn given_by_first_line(argv: &[OsString], module: &OsStr) -> Option<Vec<OsString>> {
    let given = given(module)?;
    // If the command line begins with the words of the first line, followed by the script, the kernel made the command
    // line from the first line. Otherwise the user typed the command line.
    let typed = argv.get(2..)?;
    (typed.starts_with(&given) && typed.get(given.len()).is_some_and(|typed| typed == module)).then_some(given)
}

/// Returns whether the first line of the script `module` runs `perf-prof python`.
pub fn is_of_perf_prof(module: &OsStr) -> bool {
    let words = read_first_line(module).and_then(|line| split_words(line.strip_prefix("#!")?));
    words.is_some_and(|words| words.windows(2).any(|pair| pair[0].ends_with("perf-prof") && pair[1] == "python"))
}

fn events_of(words: Vec<OsString>) -> Vec<EventSpec> {
    let command = options::command();
    let Ok(split) = split::split(&split::flags(&command), words) else { return Vec::new() };
    let parsed = command.try_get_matches_from([OsString::from("python")].into_iter().chain(split.options));
    let options = parsed.ok().and_then(|matches| Options::from_arg_matches(&matches).ok());
    let lists = options.iter().flat_map(|options| &options.events);
    lists.filter_map(|list| selectors::parse(list).ok()).flatten().collect()
}

fn read_first_line(module: &OsStr) -> Option<String> {
    const LONGEST: u64 = 4096;
    let mut begin = Vec::new();
    File::open(module).ok()?.take(LONGEST).read_to_end(&mut begin).ok()?;
    let line = begin.split(|&byte| byte == b'\n').next()?;
    String::from_utf8(line.to_vec()).ok()
}

/// Splits a line into words as `env -S` does. Returns `None` if a quote is not closed, or if the line contains a
/// variable.
fn split_words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            (_, Some(open)) if letter == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            ('\\', None | Some('"')) => word.get_or_insert_default().push(letters.next()?),
            ('$', None | Some('"')) => return None,
            (' ' | '\t' | '\r', None) => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process};

    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Expect) {
        expected.assert_eq(&split_words(line).map_or("none".into(), |words| format!("{words:?}")));
    }

    #[test]
    fn words_as_env_divides_them() {
        check("/usr/bin/env -S a  b\tc", expect![[r#"["/usr/bin/env", "-S", "a", "b", "c"]"#]]);
        check(r#"-e 'a:b/x == "y"/' "c\"d" e\ f """#, expect![[r#"["-e", "a:b/x == \"y\"/", "c\"d", "e f", ""]"#]]);
        check("a 'b", expect!["none"]);
        check("a $B", expect!["none"]);
        check("", expect!["[]"]);
    }

    #[test]
    fn the_docstring_is_found_after_comments() {
        let script = "#!/usr/bin/env -S perf-prof python\n# a comment\n\n\"\"\"Title.\n\nusage: x\n\"\"\"\nimport x\n";
        assert_eq!(docstring(script), Some("Title.\n\nusage: x"));
        assert_eq!(docstring("r'''one\"\"\"'''"), Some("one\"\"\""));
        for none in ["", "#", "import x\n\"\"\"no\"\"\"", "\"\"\"open", "\"one\"", "\n \n"] {
            assert_eq!(docstring(none), None, "{none}");
        }
    }

    #[test]
    fn events_of_the_first_line_are_counted() {
        let script = env::temp_dir().join(format!("perf-prof-first-line-{}", process::id()));
        let line = "#!/usr/bin/env -S perf-prof python -q -e a:b,c:d -i 5 -ee:f --\nimport x\n";
        fs::write(&script, line).unwrap();
        let path = script.to_str().unwrap();
        let own = |args: &[&str]| {
            let argv: Vec<OsString> = ["perf-prof", "python"].iter().chain(args).map(OsString::from).collect();
            count_own_events(&argv, script.as_os_str())
        };
        let first = ["-q", "-e", "a:b,c:d", "-i", "5", "-ee:f", "--"];
        assert_eq!(own(&[&first[..], &[path, "-e", "g:h"]].concat()), 3);
        assert_eq!(own(&["-e", "a:b,c:d", path]), 0);
        assert_eq!(own(&[&first[..], &["-e", "g:h", path]].concat()), 0);
        assert_eq!(own(&[path]), 0);
        fs::remove_file(&script).unwrap();
        assert_eq!(own(&first), 0);
    }
}
