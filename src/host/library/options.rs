//! Keyword arguments to plans. The keywords are options of perf-prof with `_` for `-`, and so are their values. So the
//! option's own parser checks a value, and its message says what is wrong. The package's file `_options.py` lists the
//! keywords and the forms of their values.

use std::{ffi::OsString, path::PathBuf, sync::OnceLock};

use perf_prof_core::{capture::OwnThreads, plan::Face, recorder::RecordPlan, spec::parse_events, stat::StatPlan};
use pyo3::{
    exceptions::{PyRuntimeError, PyTypeError, PyValueError},
    prelude::*,
    types::{PyBool, PyDict, PyFloat, PyInt, PyString, PyTuple},
};

use super::errors::named;
use crate::run::plan::ScriptPlan;

/// Makes a plan from options of a command and from a program with its arguments. The error is one line for the user.
pub type Planner<Plan> = fn(Vec<OsString>, Option<Vec<OsString>>) -> Result<Plan, String>;

/// The command line's own ways from options to plans. This room knows of no command line, so they are given to it.
#[derive(Clone, Copy, Debug)]
pub struct Planners {
    /// For options of `perf-prof python`.
    pub script: Planner<ScriptPlan>,
    /// For options of `perf-prof record`.
    pub record: Planner<RecordPlan>,
    /// For options of `perf-prof stat`.
    pub stat: Planner<StatPlan>,
}

static PLANNERS: OnceLock<Planners> = OnceLock::new();

impl Planners {
    /// Uses these from now on. Only the first call has an effect.
    pub(super) fn set(self) {
        PLANNERS.get_or_init(|| self);
    }

    pub(super) fn get() -> PyResult<Planners> {
        PLANNERS.get().copied().ok_or_else(|| PyRuntimeError::new_err("perf_prof._native was not initialized"))
    }
}

/// How the value of a keyword is written as the value of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// True or False.
    Switch,
    /// True or False, and the option has an opposite, `--no-...`.
    OnOff,
    /// A text or a number.
    Text,
    /// One or several texts or numbers.
    List,
    /// A number of seconds, or a text with a unit.
    Time,
    /// A text, or a pair of times in seconds.
    TimeRange,
    /// True for the default, or a text.
    CallGraph,
    /// True, or a text or number.
    SwitchOrText,
    /// A program and its arguments.
    Command,
    /// It is no option: the function itself uses it.
    Own,
}

impl Form {
    /// Returns the form with this name in `_options.py`.
    fn named(name: &str) -> Option<Form> {
        Some(match name {
            "Switch" => Form::Switch,
            "OnOff" => Form::OnOff,
            "Integer" | "Quantity" | "Split" => Form::Text,
            "Numbers" | "Names" => Form::List,
            "Time" => Form::Time,
            "TimeRange" => Form::TimeRange,
            "CallGraph" => Form::CallGraph,
            "Threads" | "Level" => Form::SwitchOrText,
            "Words" => Form::Command,
            "Function" => Form::Own,
            _ => return None,
        })
    }
}

/// What a function does, which decides the options that its keywords stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Trace,
    Replay,
    Record,
    Count,
}

impl Action {
    /// Returns the option that a keyword stands for.
    fn option(self, keyword: &str) -> String {
        let is_script = matches!(self, Action::Trace | Action::Replay);
        let option = match keyword {
            "pid" if is_script => "pids",
            "tid" if is_script => "tids",
            "cpus" if !is_script => "cpu",
            "cgroup" => "cgroups",
            "limit" => "exit-N",
            "monotonic" if self == Action::Record => "clockid=mono",
            "compress" => "compression-level",
            _ => return keyword.replace('_', "-"),
        };
        option.into()
    }
}

/// The arguments of a function as the words of a command line.
pub struct Words {
    /// The options, with their values.
    pub options: Vec<OsString>,
    /// The command to run, and its arguments.
    pub command: Option<Vec<OsString>>,
}

/// Makes words from selectors and keyword arguments. `function` is the function's name, for messages, and `forms` are the
/// possible keywords with the names of their forms.
pub fn words(
    action: Action,
    function: &str,
    selectors: &Bound<'_, PyTuple>,
    keywords: &Bound<'_, PyDict>,
    forms: &Bound<'_, PyDict>,
) -> PyResult<Words> {
    let mut words = Words { options: vec!["--quiet".into()], command: None };
    for selector in selectors {
        let Ok(text) = selector.cast::<PyString>() else {
            let text = format!("{function}(): a selector is a str, such as 'sched:sched_switch'");
            return Err(PyTypeError::new_err(text));
        };
        let text = text.to_str()?;
        // The command calls a wrong selector a wrong option.
        if matches!(action, Action::Trace | Action::Replay)
            && let Err(error) = parse_events(text)
        {
            return Err(named(selectors.py(), "SelectorError", &error.to_string()));
        }
        words.options.push(format!("--event={text}").into());
    }
    if selectors.is_empty() && matches!(action, Action::Trace | Action::Record) {
        let text = format!("{function}(): name at least one event, such as {function}('sched:sched_switch')");
        return Err(named(selectors.py(), "SelectorError", &text));
    }
    for (keyword, value) in keywords {
        let keyword: String = keyword.extract()?;
        if value.is_none() {
            continue;
        }
        let form = forms.get_item(&keyword)?.map(|form| form.extract::<String>()).transpose()?;
        let Some(form) = form.and_then(|form| Form::named(&form)) else {
            let text = format!("{function}(): {keyword} is not possible here");
            return Err(named(selectors.py(), "OptionError", &text));
        };
        add(&mut words, &action.option(&keyword), form, &value).map_err(|expected| {
            let kind = value.get_type().name().map(|name| name.to_string()).unwrap_or_default();
            PyTypeError::new_err(format!("{function}(): {keyword} is {expected}, not {kind}"))
        })?;
    }
    Ok(words)
}

/// Adds the value of a keyword. Returns the expected values if it is not one of them.
fn add(words: &mut Words, option: &str, form: Form, value: &Bound<'_, PyAny>) -> Result<(), &'static str> {
    let switch = value.cast::<PyBool>().ok().map(|value| value.is_true());
    let text = match (form, switch) {
        (Form::Own, _) | (Form::Switch | Form::CallGraph | Form::SwitchOrText, Some(false)) => return Ok(()),
        (Form::Switch | Form::OnOff, None) => return Err("True or False"),
        // Both mean the call chains of all events; an option without a value would take the next word.
        (Form::CallGraph, Some(true)) => {
            words.options.push("-g".into());
            return Ok(());
        }
        (Form::Switch | Form::OnOff | Form::SwitchOrText, Some(true)) => {
            words.options.push(format!("--{option}").into());
            return Ok(());
        }
        (Form::OnOff, Some(false)) => {
            words.options.push(format!("--no-{option}").into());
            return Ok(());
        }
        (Form::Command, _) => {
            words.command = Some(words_of_command(value).ok_or("a list of words, such as ['make', '-j4']")?);
            return Ok(());
        }
        (Form::CallGraph, None) => one(value).ok_or("True, 'fp' or 'dwarf'")?,
        (Form::SwitchOrText, None) => one(value).ok_or("True, a number or a str")?,
        (Form::Text, _) => one(value).ok_or("a number or a str")?,
        (Form::List, _) => list(value).ok_or("a number, a str or a list of them")?,
        (Form::Time, _) => time(value).ok_or("a number of seconds, or a str such as '50ms'")?,
        (Form::TimeRange, _) => match value.extract::<(f64, f64)>() {
            Ok((start, end)) => format!("{start:.9},{end:.9}"),
            Err(_) => one(value).ok_or("a str such as '10%/2', or a pair of times in seconds")?,
        },
    };
    words.options.push(format!("--{option}={text}").into());
    Ok(())
}

/// Makes the plan of a run of `function`. `input` is the recording to replay; without it, the events are live.
pub fn plan(
    function: &str,
    input: Option<&Bound<'_, PyAny>>,
    selectors: &Bound<'_, PyTuple>,
    keywords: &Bound<'_, PyDict>,
    forms: &Bound<'_, PyDict>,
) -> PyResult<ScriptPlan> {
    let action = if input.is_some() { Action::Replay } else { Action::Trace };
    let mut words = words(action, function, selectors, keywords, forms)?;
    if let Some(path) = input {
        let path: PathBuf = path.extract()?;
        words.options.extend([OsString::from("--input"), path.into()]);
    }
    let plan = (Planners::get()?.script)(words.options, words.command);
    let mut plan = plan.map_err(|text| named(selectors.py(), "OptionError", &text))?;
    plan.run.face = Face::Program;
    plan.run.capture.own_threads = OwnThreads::StartedLeftOut;
    Ok(plan)
}

/// Returns a text or a number as a text. `True` and `False` are no numbers here.
fn one(value: &Bound<'_, PyAny>) -> Option<String> {
    if value.is_instance_of::<PyBool>() {
        return None;
    }
    let is_one =
        value.is_instance_of::<PyString>() || value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>();
    is_one.then(|| value.str().ok()?.extract().ok()).flatten()
}

/// Returns the elements of an iterable, separated by commas, or a single value.
fn list(value: &Bound<'_, PyAny>) -> Option<String> {
    if let Some(text) = one(value) {
        return Some(text);
    }
    let all: Option<Vec<String>> = value.try_iter().ok()?.map(|element| one(&element.ok()?)).collect();
    all.filter(|all| !all.is_empty()).map(|all| all.join(","))
}

fn time(value: &Bound<'_, PyAny>) -> Option<String> {
    if value.is_instance_of::<PyString>() {
        return one(value);
    }
    one(value)?;
    value.extract::<f64>().ok().map(|seconds| format!("{seconds:.9}s"))
}

fn words_of_command(value: &Bound<'_, PyAny>) -> Option<Vec<OsString>> {
    if value.is_instance_of::<PyString>() {
        return None;
    }
    let words: Vec<OsString> = value.try_iter().ok()?.map(|word| word.ok()?.extract().ok()).collect::<Option<_>>()?;
    (!words.is_empty()).then_some(words)
}

/// Returns the time after which a function with this `timeout` gives up.
pub fn timeout(value: Option<f64>) -> PyResult<Option<std::time::Instant>> {
    let Some(seconds) = value else { return Ok(None) };
    let wait = std::time::Duration::try_from_secs_f64(seconds.max(0.0))
        .map_err(|_| PyValueError::new_err(format!("timeout={seconds}: not a time in seconds")))?;
    Ok(std::time::Instant::now().checked_add(wait))
}
