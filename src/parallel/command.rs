//! A command and its arguments, as they are run and shown. Knows nothing of what they mean.

use std::ffi::{OsStr, OsString};

/// A command and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command(Vec<OsString>);

impl Command {
    /// A command; it is not empty.
    pub fn new(words: Vec<OsString>) -> Self {
        Self(words)
    }

    /// Its words.
    pub fn words(&self) -> &[OsString] {
        &self.0
    }

    /// As a shell reads it.
    pub fn quoted(&self) -> String {
        self.0.iter().map(|word| shell_quote(word)).collect::<Vec<_>>().join(" ")
    }
}

/// A word as a shell reads it.
pub fn shell_quote(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-+=./:,@%^".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn quoting() {
        let quoted = ["a:b", "", "it's", "x>1 && y", "*"].map(|text| shell_quote(OsStr::new(text)));
        expect![[r#"a:b '' 'it'\''s' 'x>1 && y' '*'"#]].assert_eq(&quoted.join(" "));
    }
}
