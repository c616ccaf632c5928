//! The options on a script's first line, which the kernel puts in front of those that were typed.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::Read,
};

use clap::FromArgMatches;

use super::{
    options::{self, Options},
    split,
};
use crate::spec::parse_events;

/// How many of the command line's events, the first ones, `module` itself names: the events that it is written for.
pub fn events(argv: &[OsString], module: &OsStr) -> usize {
    let given = line(module).and_then(|line| {
        let words = words(line.strip_prefix("#!")?)?;
        let python = words.iter().position(|word| word == "python")?;
        Some(words[python + 1..].iter().map(OsString::from).collect::<Vec<_>>())
    });
    match (given, argv.get(2..)) {
        // What was typed otherwise was typed by the user.
        (Some(given), Some(typed))
            if typed.starts_with(&given) && typed.get(given.len()).is_some_and(|m| m == module) =>
        {
            count(given)
        }
        _ => 0,
    }
}

fn count(words: Vec<OsString>) -> usize {
    let command = options::command();
    let Ok(split) = split::split(&split::flags(&command), words) else { return 0 };
    let parsed = command.try_get_matches_from([OsString::from("python")].into_iter().chain(split.ours));
    let Some(options) = parsed.ok().and_then(|matches| Options::from_arg_matches(&matches).ok()) else { return 0 };
    options.events.iter().filter_map(|list| parse_events(list).ok()).map(|events| events.len()).sum()
}

fn line(module: &OsStr) -> Option<String> {
    const LONGEST: u64 = 4096;
    let mut begin = Vec::new();
    File::open(module).ok()?.take(LONGEST).read_to_end(&mut begin).ok()?;
    let line = begin.split(|&byte| byte == b'\n').next()?;
    String::from_utf8(line.to_vec()).ok()
}

/// The words of a line as `env -S` divides it; `None` of one whose quotes are open, or that has a variable in it.
fn words(line: &str) -> Option<Vec<String>> {
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
        expected.assert_eq(&words(line).map_or("none".into(), |words| format!("{words:?}")));
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
    fn events_of_the_first_line_are_told_from_those_that_were_typed() {
        let script = env::temp_dir().join(format!("perf-prof-first-line-{}", process::id()));
        let line = "#!/usr/bin/env -S perf-prof python -q -e a:b,c:d -i 5 -ee:f --\nimport x\n";
        fs::write(&script, line).unwrap();
        let path = script.to_str().unwrap();
        let own = |args: &[&str]| {
            let argv: Vec<OsString> = ["perf-prof", "python"].iter().chain(args).map(OsString::from).collect();
            events(&argv, script.as_os_str())
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
