//! The entries of the index for commands, their options, and the examples in their help texts. All of them come from
//! clap's definitions.

use clap::{Arg, Command};

use super::entry::{Entry, Kind};

/// Returns the entries of all commands that are not hidden.
pub fn entries(program: &Command) -> Vec<Entry> {
    let mut program = program.clone();
    program.build();
    let mut found = Vec::new();
    let shown = |command: &&Command| !command.is_hide_set();
    for command in std::iter::once(&program).chain(program.get_subcommands().filter(shown)) {
        let name = match command.get_name() {
            "perf-prof" => "perf-prof".to_owned(),
            name => format!("perf-prof {name}"),
        };
        let place = format!("{name} --help");
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let mut entry = Entry::new(Kind::Command, &name, about, &place);
        let long = [command.get_long_about(), command.get_after_long_help()];
        let texts = long.iter().flatten().map(ToString::to_string);
        let is_help = command.get_name() == "help";
        if !is_help {
            entry.more = texts.flat_map(|text| paragraphs(&text)).collect();
        }
        found.push(entry);
        for option in command.get_arguments().filter(|option| is_listed(option)) {
            let entry = Entry::new(Kind::Option, form(option), text(option), &place);
            match found.iter_mut().find(|other| other.name == entry.name && other.text == entry.text) {
                // If several commands have the same option, a single entry names all of these commands.
                Some(other) => other.place = joined(&other.place, command.get_name()),
                None => found.push(entry),
            }
        }
        // The examples of `help` itself are skipped, because they contain words that users search for.
        let epilogue = command.get_after_long_help().filter(|_| !is_help).map(ToString::to_string).unwrap_or_default();
        found.extend(examples(&epilogue).into_iter().map(|(line, text)| Entry::new(Kind::Example, line, text, &place)));
    }
    found
}

/// Returns whether an option or an argument belongs to the index. `--help` and `--no-...` do not.
fn is_listed(option: &Arg) -> bool {
    let is_negation = option.get_long().is_some_and(|name| name.starts_with("no-"));
    let help = ["help", "version"].contains(&option.get_id().as_str());
    !help && (!option.is_hide_set() || is_negation)
}

/// Returns an option as help texts show it: `-p, --pid <LIST>`.
fn form(option: &Arg) -> String {
    let short = option.get_short().map(|letter| format!("-{letter}"));
    let long = option.get_long().map(|name| format!("--{name}"));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    let values = option.get_value_names().unwrap_or_default().iter().map(|value| format!("<{value}>"));
    let values: Vec<String> = if option.get_action().takes_values() { values.collect() } else { Vec::new() };
    [names.join(", "), values.join(" ")].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Returns the help text of an option in one line, with its possible values and its other names.
fn text(option: &Arg) -> String {
    let mut text = option.get_help().map(ToString::to_string).unwrap_or_default();
    let values: Vec<String> = option.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    if !values.is_empty() && option.get_action().takes_values() {
        text += &format!(" [{}]", values.join(", "));
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Adds a command to the place of an entry: `perf-prof top, hist --help`.
pub fn joined(place: &str, command: &str) -> String {
    format!("{}, {command} --help", place.trim_end_matches(" --help"))
}

/// Returns the paragraphs of a help text, each as one line.
fn paragraphs(text: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    let mut indent = 0;
    for line in text.lines() {
        let own = line.len() - line.trim_start().len();
        if line.trim().is_empty() || own != indent {
            paragraphs.push(String::new());
        }
        indent = own;
        if let Some(last) = paragraphs.last_mut() {
            last.push_str(line.trim());
            last.push(' ');
        }
    }
    paragraphs.iter().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

/// Returns the command lines in a help text, each with its explanation. The explanation follows its command line, or is
/// on a less indented line before it.
fn examples(text: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let is_command = |line: &str| line.starts_with("perf-prof ") || line.starts_with("perf record ");
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| is_command(line.trim()) && indent(line) > 0) {
        let behind = lines.get(at + 1).filter(|next| indent(next) > indent(line) && !is_command(next.trim()));
        let before = lines[..at].iter().rev().find(|before| indent(before) < indent(line) && !before.is_empty());
        // If a less indented line before the command line ends with a colon, this line is the explanation. The text
        // after the command line is then the output of the command.
        let head = before.filter(|before| before.ends_with(':') && indent(before) > 0);
        let (line, explanation) = match (line.trim().split_once("   "), head.or(behind).or(before)) {
            (Some((line, explanation)), _) => (line, explanation),
            (None, Some(explanation)) => (line.trim(), *explanation),
            (None, None) => (line.trim(), ""),
        };
        found.push((line.to_owned(), explanation.trim().trim_end_matches(':').to_owned()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_have_the_explanation_that_stands_beside_them() {
        let text =
            "Examples:\n  perf-prof evlist\n      list the events\n\nExamples\n  A table:\n      perf-prof top x\n";
        let expected = [("perf-prof evlist", "list the events"), ("perf-prof top x", "A table")];
        assert_eq!(examples(text), expected.map(|(line, text)| (line.to_owned(), text.to_owned())));
    }

    #[test]
    fn options_of_several_commands_are_one_entry() {
        let option = || Arg::new("cpu").short('C').long("cpu").value_name("LIST").help("Only these CPUs");
        let program = Command::new("perf-prof")
            .subcommand(Command::new("top").arg(option()))
            .subcommand(Command::new("hist").arg(option()));
        let found = entries(&program);
        let options: Vec<_> = found.iter().filter(|entry| entry.kind == Kind::Option).collect();
        assert_eq!(options.len(), 1, "{found:?}");
        assert_eq!((&*options[0].name, &*options[0].place), ("-C, --cpu <LIST>", "perf-prof top, hist --help"));
    }
}
