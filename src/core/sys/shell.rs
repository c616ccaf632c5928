//! Quotes words for a shell. Reads nothing from the machine.

use std::ffi::OsStr;

/// Quotes a word for a shell.
pub fn shell_quote(word: impl AsRef<OsStr>) -> String {
    let text = word.as_ref().to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-+=./:,@%^".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Quotes a command and its arguments for a shell.
pub fn shell_quote_all(words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> String {
    words.into_iter().map(shell_quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn quoting() {
        let quoted = shell_quote_all(["a:b", "", "it's", "x>1 && y", "*"]);
        expect![[r#"a:b '' 'it'\''s' 'x>1 && y' '*'"#]].assert_eq(&quoted);
    }
}
