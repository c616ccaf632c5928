//! A command that reads a recording. This module finds the tool that the command runs, and finds, removes and adds
//! options of the command.

use std::{
    ffi::{OsStr, OsString},
    ops::Range,
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use super::Command;

/// The start of the line in which `perf-prof python` reports the script that it loaded.
pub const LOADED: &str = "Loaded module: ";

/// A command that runs a tool that can read a part of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadingCommand {
    words: Vec<OsString>,
    tool: Tool,
    /// The index of the word before which options are inserted: after the subcommand, or after the script's name if the
    /// command runs a script directly.
    options: usize,
}

/// The tool that reads the recording. Each tool has different options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// `perf script` or `perf-prof script`, which have the same options.
    Script,
    /// `perf-prof python`. Its option `-i` sets the interval, not the recording.
    Python,
}

/// The names of an option.
#[derive(Clone, Copy, Debug)]
pub struct OptionName {
    /// The letter, if there is one.
    pub short: Option<u8>,
    /// The long name without the dashes.
    pub long: &'static str,
}

/// The error if the last word of a command is an option without its value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("option {0} of the command has no value")]
pub struct MissingValue(String);

/// The error if a command cannot read a part of a recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{command}` cannot be divided{}", reason(.subcommand))]
pub struct NotDivisible {
    /// The command, quoted for a shell.
    command: String,
    /// The subcommand of perf or perf-prof that it runs, if any.
    subcommand: Option<String>,
}

fn reason(subcommand: &Option<String>) -> &'static str {
    match subcommand.as_deref() {
        Some("report" | "stat" | "evlist") => ": the tables of the parts cannot be joined into one",
        _ => "",
    }
}

impl ReadingCommand {
    /// Finds the tool that a command runs. `is_script` returns whether a word is the path of a script whose first line
    /// runs perf-prof.
    pub fn find(words: Vec<OsString>, is_script: impl Fn(&OsStr) -> bool) -> Result<Self, NotDivisible> {
        let mut other = None;
        for (at, word) in words.iter().enumerate() {
            // Other words may precede the tool: `sudo perf script`, `taskset 1 ./x.py`.
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
        Err(NotDivisible { command: Command::new(words).quoted(), subcommand: other })
    }

    /// Returns the tool that the command runs.
    pub fn tool(&self) -> Tool {
        self.tool
    }

    /// Returns the whole command.
    pub fn command(&self) -> Command {
        Command::new(self.words.clone())
    }

    /// Returns the value of an option, which may be written as `-C 1`, `-C1`, `--cpu 1` or `--cpu=1`.
    pub fn value(&self, option: OptionName) -> Result<Option<OsString>, MissingValue> {
        Ok(self.option(option)?.map(|(_, value)| value))
    }

    /// Removes an option from the command and returns its value.
    pub fn remove_option(&mut self, option: OptionName) -> Result<Option<OsString>, MissingValue> {
        let Some((words, value)) = self.option(option)? else { return Ok(None) };
        self.words.drain(words);
        Ok(Some(value))
    }

    fn option(&self, option: OptionName) -> Result<Option<(Range<usize>, OsString)>, MissingValue> {
        let OptionName { short, long } = option;
        for (at, word) in self.words.iter().enumerate().skip(self.options) {
            let bytes = word.as_bytes();
            let attached = match bytes {
                // Words after `--` are no options.
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
                (None, None) => Err(MissingValue(word.to_string_lossy().into_owned())),
            };
        }
        Ok(None)
    }

    /// Adds an option to the command.
    pub fn add_option(&mut self, option: String) {
        self.words.insert(self.options, option.into());
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    const CPU: OptionName = OptionName { short: Some(b'C'), long: "cpu" };

    fn check(words: &str, expect: Expect) {
        let words = words.split(' ').map(Into::into).collect();
        let mut reader = match ReadingCommand::find(words, |word| word == "./s.py") {
            Ok(reader) => reader,
            Err(error) => return expect.assert_eq(&error.to_string()),
        };
        let shown = match reader.remove_option(CPU) {
            Err(error) => error.to_string(),
            Ok(value) => {
                reader.add_option("--time=1,2".into());
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
        check("perf script -C", expect!["option -C of the command has no value"]);
    }

    #[test]
    fn words_before_the_tool_are_not_its_options() {
        check("sudo -C 3 /usr/bin/perf script", expect!["None Script sudo -C 3 /usr/bin/perf script --time=1,2"]);
        check("sudo -u perf perf script", expect!["None Script sudo -u perf perf script --time=1,2"]);
        check("perf --no-pager script --ns", expect!["None Script perf --no-pager script --time=1,2 --ns"]);
        check("nice ./s.py script", expect!["None Python nice ./s.py --time=1,2 script"]);
    }

    /// Commands of other tools are refused. Neither `--time` nor `perf.data` may be assumed for them.
    #[test]
    fn commands_that_cannot_be_divided_are_refused() {
        let joined = expect![
            "`perf-prof report -i x.data` cannot be divided: the tables of the parts cannot be joined into one"
        ];
        check("perf-prof report -i x.data", joined);
        let joined =
            expect!["`perf evlist -i x.data` cannot be divided: the tables of the parts cannot be joined into one"];
        check("perf evlist -i x.data", joined);
        check("perf record -e x", expect!["`perf record -e x` cannot be divided"]);
        check("sh -c perf", expect!["`sh -c perf` cannot be divided"]);
        check("python x.py", expect!["`python x.py` cannot be divided"]);
        check("other.py --input x.data script", expect!["`other.py --input x.data script` cannot be divided"]);
    }
}
