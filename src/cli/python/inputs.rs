//! The recordings of `--input`: decides how they are replayed. Also parses the hidden option `--part`, with which
//! another process makes this process replay a part.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use perf_prof_python::run::plan::{Engine, OnePart, Recordings};
use perf_prof_session::plan::PlanError;

use super::{options::Options, plan::ScriptPlanError};

/// Returns how the recordings are replayed; `None` if there is at most one recording and no executor. `words` contains
/// the options as typed.
pub fn recordings(
    paths: Vec<PathBuf>,
    options: &Options,
    words: Vec<OsString>,
) -> Result<Option<Recordings>, ScriptPlanError> {
    if paths.len() < 2 && options.executor.is_none() {
        return Ok(None);
    }
    let divides = options.jobs.is_some_and(|jobs| jobs > 1) || options.executor.is_some();
    let is_pipe = |path: &PathBuf| path.as_os_str() == "-";
    if paths.iter().any(is_pipe) {
        return Err(ScriptPlanError::PipeAmongRecordings);
    }
    if divides && options.split.as_deref() == Some("cpu") {
        return Err(ScriptPlanError::SplitByCpuOfSeveral);
    }
    if divides && options.exit_n.is_some() {
        return Err(PlanError::JobsWithLimit.into());
    }
    let engine = match (&options.executor, options.jobs) {
        (Some(executor), _) if !is_function(executor) => return Err(ScriptPlanError::Executor(executor.clone())),
        (Some(executor), _) => Engine::Executor(executor.clone()),
        (None, Some(jobs)) if jobs > 1 => Engine::Processes(jobs.into()),
        (None, _) => Engine::OneAfterAnother,
    };
    Ok(Some(Recordings { paths, engine, options: words }))
}

fn is_function(executor: &str) -> bool {
    executor.split_once(':').is_some_and(|(module, function)| !module.is_empty() && !function.is_empty())
}

/// Parses the part that this process replays for another process: `NUMBER/COUNT/PROCESSES/OWN_EVENTS/PARENT/RESULT`.
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
