//! The Python class `perf_prof.FlameGraph`: collects stacks and draws them as a flame graph. A stack is an event or a
//! list of names.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use perf_prof_events::{
    aggregate::note_of_folded,
    event::{Stats, frame_label, frames_without_inlined},
    picture::{DrawError, FlameGraphStyle, Label, StackDirection, StackNode, Stacks, draw, weight_text},
};
use perf_prof_system::output_path::{self, ExistingFile, OutputPathError};
use pyo3::{
    exceptions::{PyOSError, PyOverflowError, PyTypeError, PyValueError},
    prelude::*,
    types::{PyBytes, PyList, PyString, PyTuple, PyType},
};

use super::{
    event::{Stack, stack_of},
    module::run,
    pictures::{missing_callers, missing_in_run, not_saved, provenance, sampling_rate, svg_text},
};

/// Stacks with weights. save() writes them as a flame graph (SVG, for a browser) or as folded text.
///
/// Without colors, and with 'offcpu' for time spent waiting, the color of a function shows whether it is one of
/// Python, of the kernel, or neither. Other colors are 'hot', 'red', 'green', 'blue', 'aqua', ..., and with 'java',
/// 'js', 'rust', ... the color is that of a kind of function in that language. count_name is the unit of the
/// weights, for example 'us'. Without subtitle, the picture has the sum of the weights, the host, the date and the
/// duration below its title. inverted draws the callers on top. len() is the number of different stacks. A
/// notebook shows the picture, where a click zooms.
#[pyclass(module = "perf_prof")]
pub struct FlameGraph {
    stacks: Stacks,
    look: FlameGraphStyle,
    /// The argument `colors` of the constructor, unchanged.
    colors: Option<String>,
    /// The counts of the last run in which stacks were added.
    fed: Option<Arc<Stats>>,
    /// How often stacks were folded in the tables from which the stacks come.
    times_folded: u64,
}

/// The format of a saved flame graph. The ending of the file name determines it.
enum Form {
    Picture,
    Folded,
}

impl Form {
    fn from_extension(path: &Path) -> PyResult<Form> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("svg") => Ok(Form::Picture),
            Some("folded") => Ok(Form::Folded),
            _ => {
                let shown = path.display();
                Err(PyValueError::new_err(format!("{shown}: the name of a flame graph must end in .svg or .folded")))
            }
        }
    }
}

/// The arguments of `FlameGraph()` in this order: title, colors, count_name, subtitle, inverted.
type ConstructorArguments = (Option<String>, Option<String>, String, Option<String>, bool);

/// A flame graph in a pickle: folded text, how often stacks were folded, and the weight of long chains that became short stacks.
type State = (String, u64, u64);

#[pymethods]
impl FlameGraph {
    #[new]
    #[pyo3(signature = (title=None, colors=None, count_name="samples", subtitle=None, inverted=false))]
    pub fn new(
        title: Option<String>,
        colors: Option<&str>,
        count_name: &str,
        subtitle: Option<String>,
        inverted: bool,
    ) -> PyResult<FlameGraph> {
        let palette = colors.map_or(Ok(Default::default()), str::parse);
        let palette = palette
            .map_err(|error: perf_prof_events::picture::UnknownColors| PyValueError::new_err(error.to_string()))?;
        let growth = if inverted { StackDirection::Down } else { StackDirection::Up };
        let look = FlameGraphStyle {
            title,
            subtitle,
            colors: palette,
            count_name: count_name.to_owned(),
            growth,
            ..Default::default()
        };
        Ok(FlameGraph {
            stacks: Stacks::default(),
            look,
            colors: colors.map(str::to_owned),
            fed: None,
            times_folded: 0,
        })
    }

    /// Adds a stack with its weight. The stack is an event, or a list or tuple of function names, outermost
    /// function first.
    ///
    /// If an event is given, its stack is the name of its task, followed by its call chain. A frame without a
    /// symbol is shown as [file]. In folded text, the names of kernel frames end in _[k], those of Python
    /// functions in _[python].
    #[pyo3(signature = (stack, weight=1))]
    fn add(&mut self, stack: &Bound<'_, PyAny>, weight: u64) -> PyResult<()> {
        if let Some(run) = run() {
            self.fed = Some(Arc::clone(&run.stats));
        }
        let mut length = 0;
        let end = if let Some(stack) = stack_of(stack) {
            length = frames_without_inlined(&stack.frames);
            self.event(&stack)
        } else if let Ok(names) = stack.cast::<PyList>() {
            self.names(names.iter())?
        } else if let Ok(names) = stack.cast::<PyTuple>() {
            self.names(names.iter())?
        } else {
            let kind = stack.get_type().name()?;
            return Err(PyTypeError::new_err(format!("a stack must be an event or a list of names, not '{kind}'")));
        };
        self.stacks.add_weight(end, weight).map_err(|error| PyOverflowError::new_err(error.to_string()))?;
        self.stacks.note_length(end, length, weight);
        Ok(())
    }

    /// Adds all stacks of another FlameGraph.
    #[pyo3(signature = (other))]
    fn update(this: &Bound<'_, FlameGraph>, other: &Bound<'_, FlameGraph>) -> PyResult<()> {
        // `this` and `other` may be the same object, so they are not borrowed at the same time.
        let (folded, fed, times, merged) = {
            let other = other.borrow();
            (other.folded(), other.fed.clone(), other.times_folded, other.stacks.merged())
        };
        let mut this = this.borrow_mut();
        this.fed = fed.or_else(|| this.fed.take());
        this.times_folded = this.times_folded.saturating_add(times);
        this.stacks.add_merged(merged);
        this.add_folded(&folded)
    }

    /// The sum of all weights.
    #[getter]
    fn total(&self) -> u64 {
        self.stacks.total()
    }

    /// Returns one line per stack: the names, separated by ';' and outermost first, then a space and the weight.
    fn folded(&self) -> String {
        self.stacks.lines().into_iter().map(|line| line + "\n").collect()
    }

    /// Checks that save(path) can write the file. Call it before the run: after a failed save(), stacks are lost.
    ///
    /// Raises ValueError if path does not end in .svg or .folded, and OSError if no file can be created or
    /// overwritten there. The text of the error starts with path.
    #[staticmethod]
    fn check(path: PathBuf) -> PyResult<()> {
        Form::from_extension(&path)?;
        let shown = path.display();
        output_path::check(&path, ExistingFile::Overwritten).map_err(|error| {
            PyOSError::new_err(match error {
                OutputPathError::Folder(_) => format!("{shown}: this is a folder; give the path of a file"),
                _ => {
                    let folder = output_path::folder(&path).display();
                    format!("{shown}: cannot create or overwrite a file in {folder}; use another folder")
                }
            })
        })
    }

    /// Writes a file: a picture if path ends in .svg, folded text if it ends in .folded.
    ///
    /// partial says what is missing in the stacks, beside the lost events, which the picture names itself. Raises
    /// ValueError if path has another ending, or if there are no stacks for a picture.
    #[pyo3(signature = (path, partial=None))]
    pub fn save(&self, path: PathBuf, partial: Option<&str>) -> PyResult<()> {
        let text = match Form::from_extension(&path)? {
            // The GIL is not released: the graph is borrowed, and another thread that adds to it would get an error.
            Form::Picture => self.picture(partial),
            Form::Folded => Ok(self.folded().into_bytes()),
        };
        let written = text.and_then(|text| fs::write(&path, text).map_err(DrawError::Write));
        written.map_err(|error| not_saved(error, &path, "no stacks were added"))
    }

    /// For programs that show pictures but run no scripts in them. Without stacks there is no picture.
    fn _repr_svg_(&self) -> PyResult<Option<String>> {
        svg_text(self.picture(None))
    }

    /// Jupyter shows this in a notebook. The picture has a frame of its own, because a notebook runs no scripts of
    /// pictures, and without its script nothing can be zoomed. The frame cannot read the notebook.
    pub fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let svg = match self.picture(None) {
            Ok(svg) => svg,
            Err(DrawError::Empty) => return Ok("<p>no stacks</p>".to_owned()),
            Err(DrawError::Write(error)) => return Err(error.into()),
        };
        let height = pixel_height(&svg);
        let encoded = py.import("base64")?.call_method1("b64encode", (PyBytes::new(py, &svg),))?;
        let encoded: String = encoded.call_method1("decode", ("ascii",))?.extract()?;
        Ok(format!(
            "<iframe sandbox=\"allow-scripts\" style=\"border:0;width:100%;height:{height}px\" \
             src=\"data:image/svg+xml;base64,{encoded}\"></iframe>"
        ))
    }

    fn __repr__(&self) -> String {
        let (stacks, total) = (self.stacks.len(), self.stacks.total());
        format!("<perf_prof.FlameGraph: {stacks} stacks, {total} {}>", self.look.count_name)
    }

    fn __len__(&self) -> usize {
        self.stacks.len()
    }

    /// Supports copy and pickle. The stacks are stored as text, so that another process can load them.
    fn __reduce__(this: &Bound<'_, FlameGraph>) -> (Py<PyType>, ConstructorArguments, State) {
        let FlameGraph { look, colors, times_folded, .. } = &*this.borrow();
        let inverted = look.growth == StackDirection::Down;
        let made = (look.title.clone(), colors.clone(), look.count_name.clone(), look.subtitle.clone(), inverted);
        (this.get_type().unbind(), made, (this.borrow().folded(), *times_folded, this.borrow().stacks.merged()))
    }

    fn __setstate__(&mut self, state: State) -> PyResult<()> {
        let (folded, times_folded, merged) = state;
        self.times_folded = times_folded;
        self.stacks.add_merged(merged);
        self.add_folded(&folded)
    }
}

/// Reads the height of a picture in pixels from its first tag.
fn pixel_height(svg: &[u8]) -> u32 {
    const USUAL: u32 = 600;
    let text = String::from_utf8_lossy(svg);
    let tag = text.split_once("<svg ").and_then(|(_, rest)| rest.split_once('>')).map_or("", |(tag, _)| tag);
    let height = tag.split_once(" height=\"").and_then(|(_, rest)| rest.split('"').next()?.parse().ok());
    height.unwrap_or(USUAL)
}

impl FlameGraph {
    fn picture(&self, partial: Option<&str>) -> Result<Vec<u8>, DrawError> {
        let mut svg = Vec::new();
        let of_events = missing_in_run(self.fed.as_deref(), &self.look.count_name);
        let folded = note_of_folded(self.times_folded);
        let missing = [of_events, partial.map(str::to_owned), folded, missing_callers(), self.stacks.cut_off()];
        let missing: Vec<String> = missing.into_iter().flatten().filter(|text| !text.is_empty()).collect();
        let partial = (!missing.is_empty()).then(|| missing.join("; "));
        let subtitle = self.look.subtitle.clone().or_else(|| Some(self.usual_subtitle()));
        let command = provenance(self.fed.as_deref()).command;
        let look = FlameGraphStyle { subtitle, partial, command, ..self.look.clone() };
        draw(&self.stacks, &look, &mut svg).map(|()| svg)
    }

    /// Returns the sum of the weights, the rate of samples, and where and when the events happened.
    fn usual_subtitle(&self) -> String {
        let sum = weight_text(self.stacks.total(), &self.look.count_name);
        let rate = if self.look.count_name == "samples" { sampling_rate() } else { String::new() };
        provenance(self.fed.as_deref()).caption(&sum, &rate)
    }

    /// Sets the counts of the run that the stacks come from, and how often stacks were folded in their table.
    pub fn set_origin(&mut self, run: Option<Arc<Stats>>, times_folded: u64) {
        (self.fed, self.times_folded) = (run, times_folded);
    }

    /// Adds the lines of folded text.
    pub fn add_folded(&mut self, folded: &str) -> PyResult<()> {
        for line in folded.lines() {
            let (stack, weight) = line.rsplit_once(' ').unwrap_or((line, ""));
            let weight =
                weight.parse().map_err(|_| PyValueError::new_err(format!("'{line}' does not end in a weight")))?;
            let root = self.stacks.root();
            let end = stack.split(';').fold(root, |caller, name| self.stacks.child(caller, Label::Name(name)));
            self.stacks.add_weight(end, weight).map_err(|error| PyOverflowError::new_err(error.to_string()))?;
        }
        Ok(())
    }

    fn event(&mut self, Stack { task, frames }: &Stack) -> StackNode {
        let end = self.stacks.child(self.stacks.root(), Label::Name(task));
        frames.iter().rev().fold(end, |caller, frame| self.stacks.child(caller, frame_label(frame)))
    }

    fn names<'py>(&mut self, names: impl Iterator<Item = Bound<'py, PyAny>>) -> PyResult<StackNode> {
        let mut end = self.stacks.root();
        for (at, name) in names.enumerate() {
            let Ok(name) = name.cast::<PyString>() else {
                let kind = name.get_type().name()?;
                return Err(PyTypeError::new_err(format!("names of frames must be str, but name {at} is '{kind}'")));
            };
            end = self.stacks.child(end, Label::Name(&name.to_string_lossy()));
        }
        Ok(end)
    }
}
