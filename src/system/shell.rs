//! Quotes words for a shell.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

/// Quotes a word for a shell. The result is always one line: a word with control characters, or with bytes that are not
/// UTF-8, is written as `$'...'` (POSIX.1-2024, 2.2.4 Dollar-Single-Quotes).
pub fn shell_quote(word: impl AsRef<OsStr>) -> String {
    let word = word.as_ref();
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-+=./:,@%^".contains(c);
    match word.to_str() {
        // zsh replaces `=cmd` by the path of the program cmd.
        Some(text) if !text.is_empty() && text.chars().all(plain) && !text.starts_with('=') => text.to_owned(),
        Some(text) if !text.contains(char::is_control) => format!("'{}'", text.replace('\'', r"'\''")),
        _ => escaped(word.as_bytes()),
    }
}

fn escaped(word: &[u8]) -> String {
    let mut text = "$'".to_owned();
    for &byte in word {
        match byte {
            b'\'' | b'\\' => text.extend(['\\', byte.into()]),
            b' '..=b'~' => text.push(byte.into()),
            // Octal escapes are used, because every shell ends an escape after three octal digits. Some shells read
            // more than two hexadecimal digits.
            byte => text += &format!("\\{byte:03o}"),
        }
    }
    text + "'"
}

/// Quotes a command and its arguments for a shell.
pub fn shell_quote_all(words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> String {
    let mut words = words.into_iter();
    let Some(program) = words.next() else { return String::new() };
    let mut line = shell_quote(&program);
    if line.contains('=') && !line.contains('\'') {
        // Without quotes, a shell would take the first word as an assignment (`NAME=value`).
        line = format!("'{line}'");
    }
    words.for_each(|word| line = format!("{line} {}", shell_quote(word)));
    line
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use expect_test::expect;

    use super::*;

    #[test]
    fn quoting() {
        let quoted = shell_quote_all(["a:b", "", "it's", "x>1 && y", "*", "a=b", "=ls"]);
        expect![[r#"a:b '' 'it'\''s' 'x>1 && y' '*' a=b '=ls'"#]].assert_eq(&quoted);
        assert_eq!(shell_quote_all(["a=b", "c"]), "'a=b' c");
        assert_eq!(shell_quote("it's\n\\\u{1b}ü"), r"$'it\'s\012\\\033\303\274'");
    }

    #[test]
    fn a_shell_reads_a_quoted_word_as_it_was() {
        for word in ["it's $(id) `id` \"x\" \\", "a\nid\r\u{1b}[31m7'", "-n", "grüße"]
            .map(OsStr::new)
            .into_iter()
            .chain([OsStr::from_bytes(b"\xff\x9b1 2")])
        {
            let line = format!("printf '%s' x{}", shell_quote(word));
            let output = Command::new("bash").args(["-c", &line]).output().unwrap();
            assert_eq!(output.stdout, [b"x", word.as_bytes()].concat(), "{line}");
        }
    }
}
