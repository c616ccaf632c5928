//! A command that reads a recording: which of the tools it is that can read a part of one, and its options, which are found,
//! taken out and put in. Knows nothing of what they mean.

use std::{
    ffi::{OsStr, OsString},
    ops::Range,
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use super::Command;

/// A command whose tool can read a part of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reader {
    words: Vec<OsString>,
    tool: Tool,
    /// Where its options begin: behind the subcommand, or behind the name of the script that is run.
    options: usize,
}

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

/// A command that reads no part of a recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{command}` cannot be divided{}", why(.subcommand))]
pub struct NoReader {
    /// As a shell reads it.
    command: String,
    /// What of perf or of ours it is instead.
    subcommand: Option<String>,
}

fn why(subcommand: &Option<String>) -> &'static str {
    match subcommand.as_deref() {
        Some("report" | "stat" | "evlist") => ": the tables of parts make no table of the whole when they are joined",
        _ => "",
    }
}

impl Reader {
    /// Finds the tool in a command; `is_script` tells of a word whether it is a script with a first line of ours.
    pub fn find(words: Vec<OsString>, is_script: impl Fn(&OsStr) -> bool) -> Result<Self, NoReader> {
        let mut other = None;
        for (at, word) in words.iter().enumerate() {
            // Others may stand before it, as in `sudo perf script` or `taskset 1 ./x.py`.
            let name = word.as_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
            if name.starts_with(b"perf") {
                let Some(next) = (at + 1..words.len()).find(|&next| !words[next].as_bytes().starts_with(b"-")) else {
                    continue;
                };
                let tool = match words[next].as_bytes() {
                    b"script" => Tool::Script,
                    b"python" => Tool::Python,
                    _ => {
                        other.get_or_insert_with(|| words[next].to_string_lossy().into_owned());
                        continue;
                    }
                };
                return Ok(Self { words, tool, options: next + 1 });
            }
            if is_script(word) {
                return Ok(Self { words, tool: Tool::Python, options: at + 1 });
            }
        }
        Err(NoReader { command: Command::new(words).quoted(), subcommand: other })
    }

    /// Which tool it runs.
    pub fn tool(&self) -> Tool {
        self.tool
    }

    /// The command, to be run.
    pub fn command(&self) -> Command {
        Command::new(self.words.clone())
    }

    /// The value of an option: `-C 1`, `-C1`, `--cpu 1` or `--cpu=1`.
    pub fn value(&self, option: Named) -> Result<Option<OsString>, NoValue> {
        Ok(self.option(option)?.map(|(_, value)| value))
    }

    /// Takes an option out, and gives its value.
    pub fn take(&mut self, option: Named) -> Result<Option<OsString>, NoValue> {
        let Some((words, value)) = self.option(option)? else { return Ok(None) };
        self.words.drain(words);
        Ok(Some(value))
    }

    fn option(&self, option: Named) -> Result<Option<(Range<usize>, OsString)>, NoValue> {
        let Named { short, long } = option;
        for (at, word) in self.words.iter().enumerate().skip(self.options) {
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
            return match (attached, self.words.get(at + 1)) {
                (Some(value), _) => Ok(Some((at..at + 1, OsString::from_vec(value.to_vec())))),
                (None, Some(value)) => Ok(Some((at..at + 2, value.clone()))),
                (None, None) => Err(NoValue(word.to_string_lossy().into_owned())),
            };
        }
        Ok(None)
    }

    /// Puts an option in.
    pub fn insert(&mut self, option: String) {
        self.words.insert(self.options, option.into());
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    const CPU: Named = Named { short: Some(b'C'), long: "cpu" };

    fn check(words: &str, expect: Expect) {
        let words = words.split(' ').map(Into::into).collect();
        let mut reader = match Reader::find(words, |word| word == "./s.py") {
            Ok(reader) => reader,
            Err(error) => return expect.assert_eq(&error.to_string()),
        };
        let shown = match reader.take(CPU) {
            Err(error) => error.to_string(),
            Ok(value) => {
                reader.insert("--time=1,2".into());
                format!("{value:?} {:?} {}", reader.tool(), reader.command().quoted())
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
    fn what_stands_before_the_tool_is_not_its_own() {
        check("sudo -C 3 /usr/bin/perf script", expect!["None Script sudo -C 3 /usr/bin/perf script --time=1,2"]);
        check("sudo -u perf perf script", expect!["None Script sudo -u perf perf script --time=1,2"]);
        check("perf --no-pager script --ns", expect!["None Script perf --no-pager script --time=1,2 --ns"]);
        check("nice ./s.py script", expect!["None Python nice ./s.py --time=1,2 script"]);
    }

    /// Whatever the command was, it was given --time, and `perf.data` was looked for.
    #[test]
    fn what_cannot_be_divided_is_no_reader() {
        let joined = expect![
            "`perf-prof report -i x.data` cannot be divided: the tables of parts make no table of the whole when they are joined"
        ];
        check("perf-prof report -i x.data", joined);
        let joined = expect![
            "`perf evlist -i x.data` cannot be divided: the tables of parts make no table of the whole when they are joined"
        ];
        check("perf evlist -i x.data", joined);
        check("perf record -e x", expect!["`perf record -e x` cannot be divided"]);
        check("sh -c perf", expect!["`sh -c perf` cannot be divided"]);
        check("python x.py", expect!["`python x.py` cannot be divided"]);
        check("other.py --input x.data script", expect!["`other.py --input x.data script` cannot be divided"]);
    }
}
