//! `perf_prof.FlameGraph`: stacks of events, or of names, as a picture.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use pyo3::{
    exceptions::{PyOSError, PyOverflowError, PyTypeError, PyValueError},
    prelude::*,
    types::{PyList, PyString, PyTuple, PyType},
};

use super::event::{Stack, stack_of};
use crate::{
    event::{Frame, Origin, UNKNOWN},
    picture::{DrawError, Growth, Label, Look, Place, Stacks, draw},
};

/// Stacks with their weights, to be saved as a flame graph (SVG, for a browser) or as folded text.
///
/// colors: 'hot' (the default), 'offcpu' for time spent waiting, 'java', 'js', 'python', 'rust' and so on by the kind of
/// function, or a plain 'red', 'green', 'blue', 'aqua', ... count_name says what weights count, 'us' for instance. inverted
/// draws the callers on top. len() is the number of different stacks.
#[pyclass(module = "perf_prof")]
pub struct FlameGraph {
    stacks: Stacks,
    look: Look,
    /// As they were named.
    colors: Option<String>,
}

/// What a graph was made with, in the order of the arguments.
type Made = (Option<String>, Option<String>, String, Option<String>, bool);

#[pymethods]
impl FlameGraph {
    #[new]
    #[pyo3(signature = (title=None, colors=None, count_name="samples", subtitle=None, inverted=false))]
    fn new(
        title: Option<String>,
        colors: Option<&str>,
        count_name: &str,
        subtitle: Option<String>,
        inverted: bool,
    ) -> PyResult<FlameGraph> {
        let palette = colors.map_or(Ok(Default::default()), str::parse);
        let palette =
            palette.map_err(|error: crate::picture::UnknownColors| PyValueError::new_err(error.to_string()))?;
        let growth = if inverted { Growth::Down } else { Growth::Up };
        let look = Look { title, subtitle, colors: palette, count_name: count_name.to_owned(), growth };
        Ok(FlameGraph { stacks: Stacks::default(), look, colors: colors.map(str::to_owned) })
    }

    /// Adds a stack: an event's call chain below the name of its task, or a list or tuple of names, the outermost first.
    ///
    /// Frames without a symbol are shown as [file], the kernel's frames end in _[k] in folded text.
    #[pyo3(signature = (stack, weight=1))]
    fn add(&mut self, stack: &Bound<'_, PyAny>, weight: u64) -> PyResult<()> {
        let end = if let Some(stack) = stack_of(stack) {
            self.event(&stack)
        } else if let Ok(names) = stack.cast::<PyList>() {
            self.names(names.iter())?
        } else if let Ok(names) = stack.cast::<PyTuple>() {
            self.names(names.iter())?
        } else {
            let kind = stack.get_type().name()?;
            return Err(PyTypeError::new_err(format!("a stack is an event or a list of names, not '{kind}'")));
        };
        self.stacks.weigh(end, weight).map_err(|error| PyOverflowError::new_err(error.to_string()))
    }

    /// Adds all stacks of another FlameGraph.
    #[pyo3(signature = (other))]
    fn update(this: &Bound<'_, FlameGraph>, other: &Bound<'_, FlameGraph>) -> PyResult<()> {
        // It may be the same one.
        let folded = other.borrow().folded();
        this.borrow_mut().add_folded(&folded)
    }

    /// The sum of all weights.
    #[getter]
    fn total(&self) -> u64 {
        self.stacks.total()
    }

    /// The stacks as text, a line for each: names from the outermost, separated by ';', a blank, the weight.
    fn folded(&self) -> String {
        self.stacks.lines().into_iter().map(|line| line + "\n").collect()
    }

    /// Writes a file: a picture for x.svg, folded text for x.folded.
    ///
    /// ValueError for another ending, and for a picture of no stacks.
    fn save(&self, path: PathBuf) -> PyResult<()> {
        let shown = path.display();
        let text = match path.extension().and_then(|ending| ending.to_str()) {
            // The lock is kept: a thread that adds meanwhile would find the graph in use.
            Some("svg") => {
                let mut svg = Vec::new();
                draw(&self.stacks, &self.look, &mut svg).map(|()| svg)
            }
            Some("folded") => Ok(self.folded().into_bytes()),
            _ => return Err(PyValueError::new_err(format!("{shown}: a flame graph is saved as .svg or .folded"))),
        };
        let written = text.and_then(|text| fs::write(&path, text).map_err(DrawError::Write));
        written.map_err(|error| match error {
            DrawError::Empty => PyValueError::new_err(format!("{shown}: {error}")),
            DrawError::Write(error) => failed(&error, &path),
        })
    }

    fn __len__(&self) -> usize {
        self.stacks.len()
    }

    /// A copy or pickle has the stacks as text: another process can go on with it.
    fn __reduce__(this: &Bound<'_, FlameGraph>) -> (Py<PyType>, Made, String) {
        let FlameGraph { look, colors, .. } = &*this.borrow();
        let inverted = look.growth == Growth::Down;
        let made = (look.title.clone(), colors.clone(), look.count_name.clone(), look.subtitle.clone(), inverted);
        (this.get_type().unbind(), made, this.borrow().folded())
    }

    fn __setstate__(&mut self, folded: &str) -> PyResult<()> {
        self.add_folded(folded)
    }
}

/// The OSError that Python itself would raise for this file: with errno, and of the class that goes with it.
fn failed(error: &io::Error, path: &Path) -> PyErr {
    match error.raw_os_error() {
        Some(number) => {
            let text = error.to_string();
            // Rust adds the number, and so does Python.
            let text = text.strip_suffix(&format!(" (os error {number})")).unwrap_or(&text).to_owned();
            PyOSError::new_err((number, text, path.as_os_str().to_owned()))
        }
        None => PyOSError::new_err(format!("{}: {error}", path.display())),
    }
}

impl FlameGraph {
    fn add_folded(&mut self, folded: &str) -> PyResult<()> {
        for line in folded.lines() {
            let (stack, weight) = line.rsplit_once(' ').unwrap_or((line, ""));
            let weight =
                weight.parse().map_err(|_| PyValueError::new_err(format!("'{line}' does not end in a weight")))?;
            let root = self.stacks.root();
            let end = stack.split(';').fold(root, |caller, name| self.stacks.called(caller, Label::Name(name)));
            self.stacks.weigh(end, weight).map_err(|error| PyOverflowError::new_err(error.to_string()))?;
        }
        Ok(())
    }

    fn event(&mut self, Stack { task, frames }: &Stack) -> Place {
        let end = self.stacks.called(self.stacks.root(), Label::Name(task));
        frames.iter().rev().fold(end, |caller, frame| self.stacks.called(caller, label(frame)))
    }

    fn names<'py>(&mut self, names: impl Iterator<Item = Bound<'py, PyAny>>) -> PyResult<Place> {
        let mut end = self.stacks.root();
        for (at, name) in names.enumerate() {
            let Ok(name) = name.cast::<PyString>() else {
                let kind = name.get_type().name()?;
                return Err(PyTypeError::new_err(format!("names of frames are str, but number {at} is '{kind}'")));
            };
            end = self.stacks.called(end, Label::Name(&name.to_string_lossy()));
        }
        Ok(end)
    }
}

fn label(frame: &Frame) -> Label<'_> {
    match (&*frame.symbol != UNKNOWN, frame.origin == Origin::Kernel) {
        (true, true) => Label::Kernel(&frame.symbol),
        (true, false) => Label::Name(&frame.symbol),
        (false, true) => Label::InKernel(&frame.dso),
        (false, false) => Label::In(&frame.dso),
    }
}
