//! `perf-prof help`: prints the help of a command, or everything that matches a word: options, events, functions,
//! scripts, documents. The index contains clap's definitions, tables in the code, and the documents as they were at
//! build time.

mod commands;
mod entry;
mod events;
mod matching;
mod program;
mod search;
mod show;
mod synonyms;
mod texts;
mod words;

use std::io::{self, BufWriter, Write};

use anyhow::anyhow;
use clap::{Args, Command};
use perf_prof_session::engine::ExitStatus;
use perf_prof_system::{output, shell::shell_quote_all};

use self::{
    entry::{Entry, Kind},
    matching::Hit,
    program::Known,
    search::{Found, search},
    show::Amount,
};
use super::failure::{Failure, from_clap};

const AFTER_HELP: &str = "\
Examples:
  perf-prof help top
      print the help of a command
  perf-prof help percent
      find what has to do with percentages: percentiles, shares, the option --watermark
  perf-prof help \"call graph\"
      find what has to do with call chains
  perf-prof help nginx
      show how a program of this name is traced
  perf-prof help --search hist
      search for the word, although a command has this name
  perf-prof help --all lost
      show all hits, not only the best ones
  perf-prof help --all --json
      list everything, for programs

Words are compared with names and texts. Other words for the same thing are known: bucket finds
histograms, container finds cgroups. The place to read on is in parentheses: a command that prints
the description, or a section of a document.

Exit status
  0      something was found
  1      nothing was found
  2      wrong usage";

/// The arguments of `help`.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Help {
    /// The name of a command, or words to search for
    #[arg(value_name = "WORD", allow_hyphen_values = true)]
    words: Vec<String>,
    /// Show all hits; without a word, list everything
    #[arg(short, long)]
    all: bool,
    /// Search also if the word is the name of a command
    #[arg(short, long)]
    search: bool,
    /// Print a JSON array, for programs
    #[arg(long)]
    json: bool,
}

impl Help {
    /// Prints the help of a command, or the hits.
    pub fn run(self, program: Command) -> Result<ExitStatus, Failure> {
        let asks_for_help = !self.all && !self.search && !self.json;
        match self.words.as_slice() {
            [] if asks_for_help => return help_of(program, None),
            [name] if asks_for_help && program.find_subcommand(name).is_some() => return help_of(program, Some(name)),
            _ => {}
        }
        let mut index = index(&program);
        let words = shell_quote_all(&self.words);
        let entries = if self.words.is_empty() {
            index.extend(synonyms::rows().map(|(typed, others)| {
                let first = typed.split(", ").next().unwrap_or_default();
                Entry::new(Kind::Word, typed, others, format!("perf-prof help {first}"))
            }));
            index.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
            index
        } else {
            let found = self.found(&index);
            if found.hits.is_empty() {
                return Err(nothing(&words, &found.near).into());
            }
            for search::Mistyped { typed, meant } in &found.mistyped {
                output::say(format_args!("nothing matches `{typed}`; this is about `{meant}`"));
            }
            show::chosen(found, self.amount())
        };
        let mut out = BufWriter::new(io::stdout().lock());
        match self.json {
            true => show::json(&mut out, &entries)?,
            false => show::text(&mut out, &entries, self.amount(), &words)?,
        }
        out.flush()?;
        Ok(ExitStatus(0))
    }

    fn amount(&self) -> Amount {
        if self.all || self.words.is_empty() { Amount::All } else { Amount::Best }
    }

    /// Searches for the words. If the only word is the name of a program, the ways to trace this program come first.
    fn found(&self, index: &[Entry]) -> Found {
        let found = search(index, &self.words);
        let [word] = self.words.as_slice() else { return found };
        let is_known = match Known::of(word) {
            Known::Well => true,
            // A word such as `time` may also be the name of a program. If an entry has this name, the user means the
            // entry.
            Known::InPath => !found.mistyped.is_empty() || !found.is_name(),
            Known::No => false,
        };
        if !is_known {
            return found;
        }
        let found = if found.mistyped.is_empty() { found } else { Found::default() };
        let ways = program::entries(word).into_iter().map(|entry| Hit { entry, score: f32::MAX, is_good: true });
        Found { hits: ways.chain(found.hits).collect(), ..Found::default() }
    }
}

/// Returns the index, which contains all entries.
fn index(program: &Command) -> Vec<Entry> {
    let mut index = commands::entries(program);
    index.extend(events::entries());
    index.extend(texts::entries());
    index
}

/// Prints the text of `--help` of perf-prof or of a command.
fn help_of(program: Command, command: Option<&str>) -> Result<ExitStatus, Failure> {
    let argv = ["perf-prof"].into_iter().chain(command).chain(["--help"]);
    match program.try_get_matches_from(argv) {
        Err(error) => from_clap(&error, "`perf-prof --help` shows the commands"),
        // Not reached, because clap handles --help itself.
        Ok(_) => Ok(ExitStatus(0)),
    }
}

fn nothing(words: &str, near: &[String]) -> anyhow::Error {
    let all = "`perf-prof help --all` lists everything";
    match near {
        [] => anyhow!("nothing matches `{words}`; {all}"),
        near => anyhow!("nothing matches `{words}`; similar words are {}; {all}", near.join(", ")),
    }
}

/// Returns the completions for the argument of `help`, each with a description. They are commands, synonyms, and names
/// that need no quotes in a shell.
pub fn candidates(program: &Command, start: &str) -> Vec<(String, String)> {
    let commands = program.get_subcommands().filter(|command| !command.is_hide_set());
    let about = |command: &Command| command.get_about().map(ToString::to_string).unwrap_or_default();
    let mut found: Vec<(String, String)> =
        commands.map(|command| (command.get_name().to_owned(), about(command))).collect();
    if !start.is_empty() {
        found.extend(synonyms::all().map(|(typed, others)| (typed.to_owned(), others.to_owned())));
        found.extend(index(program).into_iter().map(|entry| (entry.own_name().trim().to_owned(), entry.text)));
    }
    let is_plain = |name: &str| name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_'));
    found.retain(|(name, _)| name.starts_with(start) && is_plain(name) && !name.starts_with('-'));
    found.sort();
    found.dedup_by(|a, b| a.0 == b.0);
    found
}
