//! The command line of a job: options are found in it, taken out and put in. Knows nothing of what they mean.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

/// A command and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command(Vec<OsString>);

/// Which tool reads the recording; their options differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// `perf script`, or ours, which has the same options.
    Script,
    /// `perf-prof python`, where `-i` is the interval.
    Python,
}

/// An option by its names.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// The letter, where there is one.
    pub short: Option<u8>,
    /// Without the dashes.
    pub long: &'static str,
}

/// An option at the end of the command, without its value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the command's option {0} has no value")]
pub struct NoValue(String);

impl Command {
    /// A command; it is not empty.
    pub fn new(words: Vec<OsString>) -> Self {
        Self(words)
    }

    /// Its words.
    pub fn words(&self) -> &[OsString] {
        &self.0
    }

    /// Which tool it runs: the first word that names one. A script is run by its first line, which names ours.
    pub fn tool(&self) -> Tool {
        match self.subcommand() {
            Some(at) if self.0[at] == "script" => Tool::Script,
            _ => Tool::Python,
        }
    }

    fn subcommand(&self) -> Option<usize> {
        self.0.iter().position(|word| word == "script" || word == "python")
    }

    /// The value of an option: `-C 1`, `-C1`, `--cpu 1` or `--cpu=1`.
    pub fn value(&self, option: Named) -> Result<Option<OsString>, NoValue> {
        Ok(self.find(option)?.map(|(_, value)| value))
    }

    /// Takes an option out, and gives its value.
    pub fn take(&mut self, option: Named) -> Result<Option<OsString>, NoValue> {
        let Some((words, value)) = self.find(option)? else { return Ok(None) };
        self.0.drain(words);
        Ok(Some(value))
    }

    fn find(&self, option: Named) -> Result<Option<(std::ops::Range<usize>, OsString)>, NoValue> {
        let Named { short, long } = option;
        for (at, word) in self.0.iter().enumerate() {
            let bytes = word.as_bytes();
            let attached = match bytes {
                // What follows is not an option.
                b"--" => return Ok(None),
                [b'-', b'-', name @ ..] => match name.strip_prefix(long.as_bytes()) {
                    Some([]) => None,
                    Some([b'=', value @ ..]) => Some(value),
                    _ => continue,
                },
                [b'-', letter, value @ ..] if Some(*letter) == short => (!value.is_empty()).then_some(value),
                _ => continue,
            };
            return match (attached, self.0.get(at + 1)) {
                (Some(value), _) => Ok(Some((at..at + 1, OsString::from_vec(value.to_vec())))),
                (None, Some(value)) => Ok(Some((at..at + 2, value.clone()))),
                (None, None) => Err(NoValue(word.to_string_lossy().into_owned())),
            };
        }
        Ok(None)
    }

    /// Puts an option in: behind the subcommand, or where there is none behind the first word, which is a script.
    pub fn insert(&mut self, option: String) {
        let at = self.subcommand().map_or(1, |at| at + 1).min(self.0.len());
        self.0.insert(at, option.into());
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
    use expect_test::{Expect, expect};

    use super::*;

    const CPU: Named = Named { short: Some(b'C'), long: "cpu" };

    fn check(words: &str, expect: Expect) {
        let mut command = Command::new(words.split(' ').map(Into::into).collect());
        let shown = match command.take(CPU) {
            Err(error) => error.to_string(),
            Ok(value) => {
                command.insert("--time=1,2".into());
                format!("{value:?} {:?} {}", command.tool(), command.quoted())
            }
        };
        expect.assert_eq(&shown);
    }

    #[test]
    fn options_are_taken_out_and_put_in() {
        check("perf script --ns", expect!["None Script perf script --time=1,2 --ns"]);
        check("perf script -C 0-3 --ns", expect![[r#"Some("0-3") Script perf script --time=1,2 --ns"#]]);
        check("perf script -C1", expect![[r#"Some("1") Script perf script --time=1,2"#]]);
        check("sudo perf script --cpu=2 -F x", expect![[r#"Some("2") Script sudo perf script --time=1,2 -F x"#]]);
        check("perf-prof python --cpu 2 s.py a", expect![[r#"Some("2") Python perf-prof python --time=1,2 s.py a"#]]);
        check("./s.py --cpus 2", expect!["None Python ./s.py --time=1,2 --cpus 2"]);
        check("perf-prof python s.py -- -C 5", expect!["None Python perf-prof python --time=1,2 s.py -- -C 5"]);
        check("perf script -C", expect!["the command's option -C has no value"]);
    }

    #[test]
    fn quoting() {
        let quoted = ["a:b", "", "it's", "x>1 && y", "*"].map(|text| shell_quote(OsStr::new(text)));
        expect![[r#"a:b '' 'it'\''s' 'x>1 && y' '*'"#]].assert_eq(&quoted.join(" "));
    }
}
