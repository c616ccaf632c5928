//! `perf-prof man`: writes the manual pages, one for each command, with the same text as `--help`.

use std::{
    env, fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;
use chrono::{DateTime, Utc};
use clap::{Arg, Args, Command, builder::PossibleValue};
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};
use perf_prof_session::engine::ExitStatus;

use super::failure::Failure;

const AFTER_HELP: &str = "\
Examples:
  perf-prof man /usr/local/share/man/man1
      write the pages to where `man perf-prof-record` finds them
  perf-prof man /tmp/pages && man -l /tmp/pages/perf-prof-stat.1
      read a page without installing it";

/// The arguments of `man`.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Manual {
    /// The folder for the pages; it is created if it does not exist
    folder: PathBuf,
}

impl Manual {
    /// Writes the pages.
    pub fn run(&self, mut program: Command) -> Result<ExitStatus, Failure> {
        program.build();
        fs::create_dir_all(&self.folder).with_context(|| self.folder.display().to_string())?;
        write(&self.folder, &program, &[])?;
        let all: Vec<&Command> = program.get_subcommands().filter(|command| !command.is_hide_set()).collect();
        for command in all {
            write(&self.folder, command, &["perf-prof"])?;
        }
        Ok(ExitStatus(0))
    }
}

fn write(folder: &Path, command: &Command, see_also: &[&str]) -> anyhow::Result<()> {
    let name = match command.get_name() {
        "perf-prof" => "perf-prof".to_owned(),
        name => format!("perf-prof-{name}"),
    };
    let path = folder.join(format!("{name}.1"));
    let mut text = Vec::new();
    page(command, &name, see_also, &mut text)?;
    fs::write(&path, text).with_context(|| path.display().to_string())
}

fn page(command: &Command, name: &str, see_also: &[&str], out: &mut impl Write) -> io::Result<()> {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").to_owned();
    let command = command.clone().override_usage(usage).display_name(name.to_owned()).mut_args(with_values_in_text);
    let source = concat!("perf-prof ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).title(name).date(date()).manual("perf-prof").source(source);
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)?;
    man.render_options_section(out)?;
    if command.has_subcommands() {
        man.render_subcommands_section(out)?;
    }
    let more = command.get_after_long_help().or_else(|| command.get_after_help());
    let mut roff = Roff::new();
    epilogue(&mut roff, &more.map(ToString::to_string).unwrap_or_default());
    if !see_also.is_empty() {
        roff.control("SH", ["SEE ALSO"]);
        for page in see_also {
            roff.text([bold(*page), roman("(1)")]);
        }
    }
    roff.to_writer(out)
}

/// Returns the date of the pages: the date in SOURCE_DATE_EPOCH if this variable is set, otherwise today. With
/// SOURCE_DATE_EPOCH, each build of a package writes the same files.
fn date() -> String {
    let set = env::var("SOURCE_DATE_EPOCH").ok().and_then(|seconds| DateTime::from_timestamp(seconds.parse().ok()?, 0));
    set.unwrap_or_else(Utc::now).format("%Y-%m-%d").to_string()
}

/// Adds the possible values of an option to its help text, as `--help` does. A separate list would be longer.
fn with_values_in_text(arg: Arg) -> Arg {
    let values = arg.get_possible_values();
    let names: Vec<&str> = values.iter().filter(|value| !value.is_hide_set()).map(PossibleValue::get_name).collect();
    if names.is_empty() || arg.is_hide_possible_values_set() || !arg.get_action().takes_values() {
        return arg;
    }
    let text = arg.get_help().map(ToString::to_string).unwrap_or_default();
    arg.help(format!("{text} [possible values: {}]", names.join(", "))).hide_possible_values(true)
}

/// Adds the text after the options. A line such as `Examples:`, followed by indented lines, becomes the heading of a
/// section. Indented lines keep their line breaks and columns.
fn epilogue(roff: &mut Roff, text: &str) {
    let lines: Vec<&str> = text.lines().collect();
    let is_indented = |line: &str| line.starts_with(' ');
    if lines.first().is_some_and(|first| !is_head(&lines, first, 0)) {
        roff.control("SH", ["NOTES"]);
    }
    let mut as_is = false;
    for (at, line) in lines.iter().enumerate() {
        let keep =
            is_indented(line) || (as_is && line.is_empty() && lines.get(at + 1).is_some_and(|next| is_indented(next)));
        if keep != as_is {
            roff.control(if keep { "nf" } else { "fi" }, []);
            as_is = keep;
        }
        if line.is_empty() && !keep {
            if lines.get(at + 1).is_some_and(|next| !is_indented(next) && !is_head(&lines, next, at + 1)) {
                roff.control("PP", []);
            }
        } else if is_head(&lines, line, at) {
            let head = line.trim_end_matches(':');
            // A heading that contains a command keeps its case.
            let head = if head.contains('`') { head.to_owned() } else { head.to_uppercase() };
            roff.control("SH", [head.as_str()]);
        } else {
            roff.text([roman(*line)]);
        }
    }
    if as_is {
        roff.control("fi", []);
    }
}

fn is_head(lines: &[&str], line: &str, at: usize) -> bool {
    let next = lines[at + 1..].iter().find(|line| !line.is_empty());
    !line.is_empty() && !line.starts_with(' ') && !line.ends_with('.') && next.is_some_and(|next| next.starts_with(' '))
}
