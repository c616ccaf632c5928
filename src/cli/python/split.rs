//! Splits the arguments of `perf-prof python` into perf-prof's options, the script's name and the script's arguments.
//!
//! Uses only the names of the options and whether each option takes a value, as `options` defines them.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use perf_prof_format::spec::{CallGraph, similar_names};

/// The option whose value is the command to trace. All arguments after it belong to the command.
pub const EXEC: &str = "exec";

/// An option that belongs to the script if the option comes after the script's name, because many scripts have an
/// option `-f FILE`.
const BEFORE_MODULE: &[u8] = b"-f";

/// An option that belongs to the script if the option comes after the script's name and no recording is replayed.
const WITH_INPUT: &[u8] = b"--force";

/// The names of an option, and whether it takes a value.
#[derive(Clone, Debug)]
pub struct Flag {
    short: Option<u8>,
    long: Option<String>,
    value: ValueKind,
}

/// Whether an option takes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueKind {
    Nothing,
    Value,
    /// The value is optional. The next argument is the value if it parses as a [`CallGraph`]. Only `--call-graph` is
    /// such an option.
    Optional,
}

/// The arguments, divided between perf-prof, the script, and the command to trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// The options of perf-prof and their values.
    pub options: Vec<OsString>,
    /// The script, as typed.
    pub module: Option<OsString>,
    /// The script's arguments: `sys.argv[1..]`.
    pub script_args: Vec<OsString>,
    /// The command after `--exec` and its arguments.
    pub workload: Option<Vec<OsString>>,
}

/// Why the arguments cannot be split.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// An option before the script's name that perf-prof does not have.
    #[error("unknown option `{option}`{}", did_you_mean(near))]
    Unknown {
        /// The option as typed.
        option: String,
        /// Options of perf-prof with similar names.
        near: Vec<String>,
    },
    /// An option without its value.
    #[error("the option `{0}` needs a value")]
    MissingValue(String),
    /// `--exec` without a command.
    #[error("`--exec` needs a command, as in `--exec CMD ARGS...`")]
    MissingCommand,
}

/// Returns the names of the options of a command, and whether each option takes a value.
pub fn flags(command: &clap::Command) -> Vec<Flag> {
    let flag = |arg: &clap::Arg| Flag {
        short: arg.get_short().and_then(|short| u8::try_from(short).ok()),
        long: arg.get_long().map(str::to_owned),
        value: match arg.get_num_args() {
            Some(range) if arg.get_action().takes_values() && range.min_values() == 0 => ValueKind::Optional,
            _ if arg.get_action().takes_values() => ValueKind::Value,
            _ => ValueKind::Nothing,
        },
    };
    command.get_arguments().map(flag).collect()
}

/// Splits the arguments. `args` starts after the name of the subcommand.
pub fn split(flags: &[Flag], args: impl IntoIterator<Item = OsString>) -> Result<Split, SplitError> {
    let mut args = args.into_iter().peekable();
    let (mut split, mut force_at) = (Split::default(), None);
    while let Some(arg) = args.next() {
        match arg.as_bytes() {
            b"--" => {
                match split.module {
                    Some(_) => split.script_args.push(arg),
                    None => split.module = args.next(),
                }
                split.script_args.extend(args);
                break;
            }
            b"--exec" => {
                let command: Vec<OsString> = args.collect();
                if command.is_empty() {
                    return Err(SplitError::MissingCommand);
                }
                split.workload = Some(command);
                break;
            }
            bytes if bytes.starts_with(b"--exec=") => return Err(SplitError::MissingCommand),
            BEFORE_MODULE if split.module.is_some() => split.script_args.push(arg),
            WITH_INPUT if split.module.is_some() => force_at = Some(split.script_args.len()),
            [b'-', _, ..] => match option_form(flags, &arg) {
                Some(OptionForm::Complete) => split.options.push(arg),
                Some(OptionForm::ValueMayFollow) => {
                    let fits = |next: &OsString| next.to_str().is_some_and(|next| next.parse::<CallGraph>().is_ok());
                    let arg = args.next_if(fits).map_or(arg.clone(), |value| join_option_value(arg, value));
                    split.options.push(arg);
                }
                Some(OptionForm::ValueFollows) => {
                    let value =
                        args.next().ok_or_else(|| SplitError::MissingValue(arg.to_string_lossy().into_owned()))?;
                    // The option and its value become one argument, because clap would take a separate value such as
                    // `-5` for an option.
                    split.options.push(join_option_value(arg, value));
                }
                None if split.module.is_some() => split.script_args.push(arg),
                None => return Err(unknown(flags, &arg)),
            },
            _ => match split.module {
                Some(_) => split.script_args.push(arg),
                None => split.module = Some(arg),
            },
        }
    }
    if let Some(at) = force_at {
        let has_input = split.options.iter().any(|option| option.as_bytes().starts_with(b"--input="));
        match has_input {
            true => split.options.push(OsString::from_vec(WITH_INPUT.to_vec())),
            false => split.script_args.insert(at, OsString::from_vec(WITH_INPUT.to_vec())),
        }
    }
    Ok(split)
}

/// The form of an argument that is an option of perf-prof.
enum OptionForm {
    /// The argument is complete: a flag, or an option with its value.
    Complete,
    /// The value is the next argument.
    ValueFollows,
    /// The value is optional; the next argument may be the value.
    ValueMayFollow,
}

fn option_form(flags: &[Flag], arg: &OsStr) -> Option<OptionForm> {
    let bytes = arg.as_bytes();
    if let Some(long) = bytes.strip_prefix(b"--") {
        let (name, value) = match long.iter().position(|&byte| byte == b'=') {
            Some(at) => (&long[..at], Some(&long[at + 1..])),
            None => (long, None),
        };
        let flag = flags.iter().find(|flag| flag.long.as_ref().is_some_and(|long| long.as_bytes() == name))?;
        return match (flag.value, value) {
            (ValueKind::Value, None) => Some(OptionForm::ValueFollows),
            (ValueKind::Optional, None) => Some(OptionForm::ValueMayFollow),
            (ValueKind::Value | ValueKind::Optional, Some(_)) | (ValueKind::Nothing, None) => {
                Some(OptionForm::Complete)
            }
            // The option takes no value but was given one, as in `--order=asc`. So it belongs to the script.
            (ValueKind::Nothing, Some(_)) => None,
        };
    }
    // A cluster of short options: flags, then at most one option with a value. The value is the rest of this argument
    // or, if nothing follows the letter, the next argument.
    let cluster = &bytes[1..];
    for (at, &short) in cluster.iter().enumerate() {
        let flag = flags.iter().find(|flag| flag.short == Some(short))?;
        if flag.value == ValueKind::Value {
            return Some(if at + 1 == cluster.len() { OptionForm::ValueFollows } else { OptionForm::Complete });
        }
    }
    Some(OptionForm::Complete)
}

fn join_option_value(option: OsString, value: OsString) -> OsString {
    let mut bytes = option.into_vec();
    bytes.push(b'=');
    bytes.extend(value.into_vec());
    OsString::from_vec(bytes)
}

fn unknown(flags: &[Flag], arg: &OsStr) -> SplitError {
    let option = arg.to_string_lossy().into_owned();
    let name = option.split('=').next().unwrap_or_default();
    let longs: Vec<String> = flags.iter().filter_map(|flag| Some(format!("--{}", flag.long.as_ref()?))).collect();
    let near = similar_names(name, longs);
    SplitError::Unknown { option, near }
}

fn did_you_mean(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!(", did you mean {}?", near.join(" or ")) }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;
    use crate::python::options::command;

    #[track_caller]
    fn check(line: &str, expected: Expect) {
        let actual = match split(&flags(&command()), line.split_whitespace().map(OsString::from)) {
            Ok(split) => {
                let mut text =
                    format!("{:?} {:?} {:?}", split.options, split.module.unwrap_or_default(), split.script_args);
                if let Some(workload) = split.workload {
                    text += &format!(" exec {workload:?}");
                }
                text
            }
            Err(error) => format!("error: {error}"),
        };
        expected.assert_eq(&actual);
    }

    #[test]
    fn options_of_ours_are_ours_on_both_sides_of_the_script() {
        check("av.py a --foo -x -C 0 b", expect![[r#"["-C=0"] "av.py" ["a", "--foo", "-x", "b"]"#]]);
        check("-e a:b x.py", expect![[r#"["-e=a:b"] "x.py" []"#]]);
        check("-C0 -C 0 --cpus=0 --cpus 0 x.py", expect![[r#"["-C0", "-C=0", "--cpus=0", "--cpus=0"] "x.py" []"#]]);
        check("-gv -vv -gC0 -gvC 0 x.py", expect![[r#"["-gv", "-vv", "-gC0", "-gvC=0"] "x.py" []"#]]);
        check(
            "--no-kernel-callchain --user-callchain x.py --no-user-callchain",
            expect![[r#"["--no-kernel-callchain", "--user-callchain", "--no-user-callchain"] "x.py" []"#]],
        );
        check("-i -5 x.py", expect![[r#"["-i=-5"] "x.py" []"#]]);
        check(
            "-e a:b -i 1000 ./x.py -i 500 --threshold 50",
            expect![[r#"["-e=a:b", "-i=1000", "-i=500"] "./x.py" ["--threshold", "50"]"#]],
        );
    }

    #[test]
    fn arguments_after_two_dashes_belong_to_the_script() {
        check("-- av.py -C 0", expect![[r#"[] "av.py" ["-C", "0"]"#]]);
        check("av.py -- -i 3", expect![[r#"[] "av.py" ["--", "-i", "3"]"#]]);
        check(
            "-e a:b -- ./x.py -i 500 -- --exec y",
            expect![[r#"["-e=a:b"] "./x.py" ["-i", "500", "--", "--exec", "y"]"#]],
        );
        check("x.py a -C 0 -- -C 0 -- b", expect![[r#"["-C=0"] "x.py" ["a", "--", "-C", "0", "--", "b"]"#]]);
        check("-- -x", expect![[r#"[] "-x" []"#]]);
        check("-e a:b --", expect![[r#"["-e=a:b"] "" []"#]]);
    }

    #[test]
    fn unknown_options_after_the_script_belong_to_it() {
        check("x.py -x -vx -1 - -C", expect!["error: the option `-C` needs a value"]);
        check(
            "x.py -x -vx -1 - --order=asc --cpu 3",
            expect![[r#"[] "x.py" ["-x", "-vx", "-1", "-", "--order=asc", "--cpu", "3"]"#]],
        );
        check("x.py -h", expect![[r#"["-h"] "x.py" []"#]]);
    }

    /// `-f` and `--force` allow recordings of other users, but scripts may also have options with these names.
    #[test]
    fn force_belongs_to_the_script_unless_it_replays() {
        check("-f --input p x.py -f y", expect![[r#"["-f", "--input=p"] "x.py" ["-f", "y"]"#]]);
        check("x.py a --force b", expect![[r#"[] "x.py" ["a", "--force", "b"]"#]]);
        check("x.py a --force b --input p", expect![[r#"["--input=p", "--force"] "x.py" ["a", "b"]"#]]);
    }

    #[test]
    fn workloads() {
        check(
            "-e a:b x.py -a --exec sleep 1 -- -C 0 --exec",
            expect![[r#"["-e=a:b"] "x.py" ["-a"] exec ["sleep", "1", "--", "-C", "0", "--exec"]"#]],
        );
        check("-e a:b --exec true", expect![[r#"["-e=a:b"] "" [] exec ["true"]"#]]);
        check("x.py --exec=true", expect!["error: `--exec` needs a command, as in `--exec CMD ARGS...`"]);
        check("x.py --exec", expect!["error: `--exec` needs a command, as in `--exec CMD ARGS...`"]);
    }

    #[test]
    fn before_the_script_an_unknown_option_is_an_error() {
        check("--foo x.py", expect!["error: unknown option `--foo`"]);
        check("--cpu=0 x.py", expect!["error: unknown option `--cpu=0`, did you mean --cpus?"]);
        check("--intervall 3 x.py", expect!["error: unknown option `--intervall`, did you mean --interval?"]);
        check("-vx x.py", expect!["error: unknown option `-vx`"]);
        check("--order=asc x.py", expect!["error: unknown option `--order=asc`, did you mean --order?"]);
        check("-e", expect!["error: the option `-e` needs a value"]);
    }

    #[test]
    fn arguments_that_are_not_utf8_are_kept() {
        let bytes = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        let args = [bytes(b"-\xff"), bytes(b"--\xff=1"), bytes(b"-o\xff"), bytes(b"--output"), bytes(b"\xfe")];
        let split = split(&flags(&command()), [bytes(b"\xff.py")].into_iter().chain(args.clone())).unwrap();
        assert_eq!(split.module, Some(bytes(b"\xff.py")));
        assert_eq!(split.script_args, args[..2]);
        assert_eq!(split.options, [bytes(b"-o\xff"), bytes(b"--output=\xfe")]);
    }

    #[test]
    fn a_value_may_be_empty_or_begin_with_an_equals_sign() {
        for value in ["", "=x", "-v", "--"] {
            let split = split(&flags(&command()), ["-o", value, "x.py"].map(OsString::from)).unwrap();
            let argv = [OsString::from("python")].into_iter().chain(split.options);
            let matches = command().try_get_matches_from(argv);
            match matches {
                Ok(matches) => {
                    assert_eq!(matches.get_one::<std::path::PathBuf>("output").unwrap().as_os_str(), value);
                }
                // clap refuses an empty path, and must not take another argument as the path instead.
                Err(error) => assert_eq!((value, error.kind()), ("", clap::error::ErrorKind::InvalidValue)),
            }
        }
    }

    proptest! {
        #[test]
        fn nothing_gets_lost(args in proptest::collection::vec("-{0,2}[a-zA-Z=]{0,3}|--|--exec|--cpus|-i|x.py", 0..12)) {
            let flags = flags(&command());
            let Ok(split) = split(&flags, args.iter().map(OsString::from)) else { return Ok(()) };
            let bytes = |args: &[OsString]| args.iter().map(|arg| arg.len()).sum::<usize>();
            let out = bytes(&split.options) + bytes(&split.script_args) + split.module.as_ref().map_or(0, |module| module.len())
                + split.workload.as_deref().map_or(0, bytes);
            let taken: usize = args.iter().map(String::len).sum();
            // Only `--` and `--exec` (8 bytes together) may be missing. A `=` may be added for each option with a
            // value.
            prop_assert!(out + 8 >= taken && out <= taken + args.len(), "{split:?}");
        }
    }
}
