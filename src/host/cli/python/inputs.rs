//! The recordings of `--input`: expands patterns of file names, decides how the recordings are replayed, and reads which
//! part of one this process replays for another process.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use super::{options::Options, plan::PlanError};
use crate::run::plan::{Engine, OnePart, Recordings};

/// Returns all recordings, in the order of the options; those of a pattern are sorted by name.
pub fn expand(inputs: &[PathBuf]) -> Result<Vec<PathBuf>, PlanError> {
    let mut paths = Vec::new();
    for input in inputs {
        let text = input.to_string_lossy();
        // A file may have a name that looks like a pattern.
        if !text.contains(['*', '?', '[']) || input.exists() {
            paths.push(input.clone());
            continue;
        }
        let unusable = |why: String| PlanError::InputPattern(text.to_string(), why);
        let found = glob::glob(&text).map_err(|error| unusable(format!("is not a pattern: {error}")))?;
        let before = paths.len();
        for path in found {
            paths.push(path.map_err(|error| unusable(format!("cannot be expanded: {error}")))?);
        }
        if paths.len() == before {
            return Err(unusable("matches no file".into()));
        }
    }
    Ok(paths)
}

/// Returns how the recordings are replayed, if there are several, or if an executor replays them. `words` are the options
/// as typed.
pub fn recordings(
    paths: Vec<PathBuf>,
    options: &Options,
    words: Vec<OsString>,
) -> Result<Option<Recordings>, PlanError> {
    if paths.len() < 2 && options.executor.is_none() {
        return Ok(None);
    }
    let divides = options.jobs.is_some_and(|jobs| jobs > 1) || options.executor.is_some();
    let is_pipe = |path: &PathBuf| path.as_os_str() == "-";
    if paths.iter().any(is_pipe) {
        return Err(PlanError::PipeAmongRecordings);
    }
    if divides && options.split.as_deref() == Some("cpu") {
        return Err(PlanError::SplitByCpuOfSeveral);
    }
    if divides && options.exit_n.is_some() {
        return Err(PlanError::ConflictWithJobs("-N"));
    }
    let engine = match (&options.executor, options.jobs) {
        (Some(executor), _) if !is_function(executor) => return Err(PlanError::Executor(executor.clone())),
        (Some(executor), _) => Engine::Executor(executor.clone()),
        (None, Some(jobs)) if jobs > 1 => Engine::Processes(jobs.into()),
        (None, _) => Engine::OneAfterAnother,
    };
    Ok(Some(Recordings { paths, engine, options: words }))
}

fn is_function(executor: &str) -> bool {
    executor.split_once(':').is_some_and(|(module, function)| !module.is_empty() && !function.is_empty())
}

/// Parses which part this process replays for another process: `NUMBER/COUNT/PROCESSES/OWN_EVENTS/PARENT/RESULT`.
pub fn one_part(text: &str) -> Result<OnePart, String> {
    let mut words = text.splitn(6, '/');
    let mut number = || words.next()?.parse::<usize>().ok();
    let numbers = (number(), number(), number(), number(), number());
    let ((Some(number), Some(count), Some(processes), Some(own_events), Some(parent)), Some(result)) =
        (numbers, words.next())
    else {
        return Err("this option is for processes that perf-prof starts".into());
    };
    let result = Path::new(result).to_path_buf();
    let (count, processes, parent) = (count.max(1), processes.max(1), parent as u32);
    Ok(OnePart { number, count, processes, own_events, parent, result })
}
