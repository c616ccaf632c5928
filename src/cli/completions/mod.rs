//! `perf-prof completions`: prints the completion script for a shell. The script calls the hidden command `perf-prof
//! complete` to get the words that fit, because events and scripts differ between machines.

mod values;

use std::{
    env,
    ffi::{OsStr, OsString},
    io::{self, Write},
};

use clap::{Args, Command, ValueEnum};
use clap_complete::engine::{self, CompletionCandidate};
use perf_prof_session::engine::ExitStatus;

use super::failure::Failure;

const AFTER_HELP: &str = "\
Examples:
  source <(perf-prof completions bash)
      complete in this bash, for example `perf-prof record -e sched:sched_sw` and Tab
  perf-prof completions bash > ~/.local/share/bash-completion/completions/perf-prof
      complete in every bash that has the package bash-completion
  perf-prof completions zsh > ~/.zfunc/_perf-prof
      complete in every zsh, if ~/.zshrc has `fpath+=~/.zfunc` before `compinit`
  perf-prof completions fish > ~/.config/fish/completions/perf-prof.fish
      complete in every fish";

/// Returns the text of a file that the Python package installs into the `share` folder of its environment.
macro_rules! installed {
    ($path:literal) => {
        include_str!(concat!("../../../python/wheel/data/share/", $path))
    };
}

/// The arguments of `completions`.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Completions {
    /// The shell that reads the completions
    shell: Shell,
}

#[derive(Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Completions {
    /// Prints the completions.
    pub fn run(&self) -> Result<ExitStatus, Failure> {
        let text = match self.shell {
            Shell::Bash => installed!("bash-completion/completions/perf-prof"),
            Shell::Zsh => installed!("zsh/site-functions/_perf-prof"),
            Shell::Fish => installed!("fish/vendor_completions.d/perf-prof.fish"),
        };
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        Ok(ExitStatus(0))
    }
}

/// The arguments of the hidden command `complete`.
#[derive(Args)]
pub struct Complete {
    /// The words of the command line up to the cursor. The last one is completed, and may be empty
    #[arg(last = true)]
    words: Vec<OsString>,
}

impl Complete {
    /// Prints the words that fit, one per line. If a word has an explanation, the line also contains a tab and the
    /// explanation.
    pub fn run(self, program: Command) -> Result<ExitStatus, Failure> {
        let mut out = io::stdout().lock();
        for candidate in candidates(program, self.words) {
            out.write_all(candidate.get_value().as_encoded_bytes())?;
            let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
            if let Some(line) = help.lines().next() {
                write!(out, "\t{line}")?;
            }
            writeln!(out)?;
        }
        out.flush()?;
        Ok(ExitStatus(0))
    }
}

fn candidates(program: Command, words: Vec<OsString>) -> Vec<CompletionCandidate> {
    let Some(last) = words.len().checked_sub(1) else { return Vec::new() };
    // All words after --exec belong to the command that is traced.
    let exec = words[..last].iter().position(|word| word == OsStr::new("--exec"));
    let (mut command, words) = match exec {
        Some(at) => (values::command_line(&words[at..last]), words[at..].to_vec()),
        None => (values::with_completers(program, &words[..last]), words),
    };
    let last = words.len() - 1;
    // If clap reports an error, nothing is completed.
    let folder = env::current_dir().ok();
    let mut found = engine::complete(&mut command, words, last, folder.as_deref()).unwrap_or_default();
    // A shell reads one candidate per line. So a candidate that contains a line break or a tab is dropped.
    found.retain(|candidate| !candidate.get_value().as_encoded_bytes().iter().any(|byte| b"\n\t".contains(byte)));
    found
}
