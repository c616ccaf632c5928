//! The Python classes `perf_prof.Count`, `Sum`, `Hist` and `Stacks`.

use std::{fs, path::PathBuf};

use perf_prof_events::{
    aggregate::{Amount, Buckets, Definition, LinearRanges, Measure},
    event::OTHERS,
    picture::Label,
};
use pyo3::{
    PyClass,
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyBytes, PyDict, PyTuple},
};

use super::{
    super::{flame_graph::FlameGraph, pictures::os_error},
    base::Aggregator,
    keys::names,
    stacks_profile,
};

/// The name in `by` that stands for the callchain.
const STACK: &str = "_stack";

/// The arguments and the keyword arguments of the constructor, for a copy.
type NewArguments<'py> = (Bound<'py, PyTuple>, Bound<'py, PyDict>);

/// Counts events by keys: the names of fields, or of members such as _comm, _pid, _cpu and _stack.
///
/// where is a filter such as 'prev_state==0'. If there are more than limit keys, the smallest are folded into others. An
/// item is 0 if there is no such key.
#[pyclass(module = "perf_prof", extends = Aggregator, frozen)]
pub struct Count;

#[pymethods]
impl Count {
    #[new]
    #[pyo3(signature = (*keys, r#where=None, limit=1_000_000))]
    fn new(keys: Vec<String>, r#where: Option<String>, limit: usize) -> PyResult<PyClassInitializer<Count>> {
        let of = Definition { keys, value: None, filter: r#where, limit, measure: Measure::Sum };
        Ok(PyClassInitializer::from(Aggregator::new(of, "count")?).add_subclass(Count))
    }

    fn __getnewargs_ex__<'py>(this: PyRef<'py, Count>) -> PyResult<NewArguments<'py>> {
        let py = this.py();
        let (of, _) = definition(&this);
        Ok((PyTuple::new(py, of.keys.clone())?, options(py, &of)?))
    }
}

/// Adds up the value of a field for each key. by is the name of a field or member, or a tuple of names.
///
/// where and limit are as for Count. An item is 0 if there is no such key.
#[pyclass(module = "perf_prof", extends = Aggregator, frozen)]
pub struct Sum;

#[pymethods]
impl Sum {
    #[new]
    #[pyo3(signature = (value, by=None, *, r#where=None, limit=1_000_000))]
    fn new(
        value: String,
        by: Option<&Bound<'_, PyAny>>,
        r#where: Option<String>,
        limit: usize,
    ) -> PyResult<PyClassInitializer<Sum>> {
        let unit = format!("sum of {value}");
        let of = Definition { keys: names(by)?, value: Some(value), filter: r#where, limit, measure: Measure::Sum };
        Ok(PyClassInitializer::from(Aggregator::new(of, &unit)?).add_subclass(Sum))
    }

    fn __getnewargs_ex__<'py>(this: PyRef<'py, Sum>) -> PyResult<NewArguments<'py>> {
        let py = this.py();
        let (of, _) = definition(&this);
        Ok((value_and_by(py, &of)?, options(py, &of)?))
    }
}

/// Counts how the value of a field is distributed, for each key. by is the name of a field or member, or a tuple of names.
///
/// Values are counted by powers of two, or with linear=(low, high, step) in ranges of the same width. With unit
/// 'us', 'ms' or 's', the values must be in ns. They are shown in this unit, and low, high and step are in this
/// unit too. The numbers of a Distribution stay in ns. Any other unit is only a name. where and limit are as for
/// Count. An item is a Distribution, which is empty if there is no such key.
#[pyclass(module = "perf_prof", extends = Aggregator, frozen)]
pub struct Hist;

#[pymethods]
impl Hist {
    #[new]
    #[pyo3(signature = (value, by=None, *, linear=None, unit=None, r#where=None, limit=1_000_000))]
    fn new(
        value: String,
        by: Option<&Bound<'_, PyAny>>,
        linear: Option<(i64, i64, i64)>,
        unit: Option<String>,
        r#where: Option<String>,
        limit: usize,
    ) -> PyResult<PyClassInitializer<Hist>> {
        let divisor = match unit.as_deref() {
            Some("us") => 1_000,
            Some("ms") => 1_000_000,
            Some("s") => 1_000_000_000,
            _ => 1,
        };
        let buckets = match linear {
            Some((low, high, step)) => Buckets::linear(LinearRanges { low, high, step }, divisor)
                .map_err(|error| PyValueError::new_err(error.to_string()))?,
            None => Buckets::log2(divisor),
        };
        let measure = Measure::Distribution(buckets);
        let unit = unit.unwrap_or_else(|| value.clone());
        let of = Definition { keys: names(by)?, value: Some(value), filter: r#where, limit, measure };
        Ok(PyClassInitializer::from(Aggregator::new(of, &unit)?).add_subclass(Hist))
    }

    fn __getnewargs_ex__<'py>(this: PyRef<'py, Hist>) -> PyResult<NewArguments<'py>> {
        let py = this.py();
        let (of, unit) = definition(&this);
        let keywords = options(py, &of)?;
        if let Measure::Distribution(buckets) = of.measure
            && let Some(LinearRanges { low, high, step }) = buckets.as_linear()
        {
            keywords.set_item("linear", (low, high, step))?;
        }
        keywords.set_item("unit", unit)?;
        Ok((value_and_by(py, &of)?, keywords))
    }
}

/// Counts call chains for each key, or adds up the value of a field for each call chain. by is as for Sum. The events need
/// call chains: -g, or the attribute stack.
///
/// The last part of a key is the call chain: the names of its functions, separated by ';' and outermost first. where and
/// limit are as for Count.
#[pyclass(module = "perf_prof", extends = Aggregator, frozen)]
pub struct Stacks;

#[pymethods]
impl Stacks {
    #[new]
    #[pyo3(
        signature = (by=ByNames::default(), value=None, *, r#where=None, limit=1_000_000),
        text_signature = "(by='_comm', value=None, *, where=None, limit=1000000)"
    )]
    fn new(
        #[pyo3(from_py_with = by_names)] by: ByNames,
        value: Option<String>,
        r#where: Option<String>,
        limit: usize,
    ) -> PyResult<PyClassInitializer<Stacks>> {
        let unit = value.as_ref().map_or("count".to_owned(), |value| format!("sum of {value}"));
        let keys = by.0.into_iter().chain([STACK.to_owned()]).collect();
        let of = Definition { keys, value, filter: r#where, limit, measure: Measure::Sum };
        Ok(PyClassInitializer::from(Aggregator::new(of, &unit)?).add_subclass(Stacks))
    }

    /// Returns one line per key: its parts and the functions, separated by ';' and outermost first, then a space and the
    /// amount. If keys were folded, the last line has the amount of [others], unless it is negative.
    fn folded(this: PyRef<'_, Stacks>) -> String {
        let groups = this.as_super().groups().lock();
        let mut lines: Vec<String> = groups.iter().filter_map(|(key, amount)| folded_line(&key, &amount)).collect();
        lines.sort_unstable();
        let others = u64::try_from(groups.others().amount.weight()).ok().filter(|&weight| weight != 0);
        lines.extend(others.map(|weight| format!("{OTHERS} {weight}\n")));
        lines.concat()
    }

    /// Returns the stacks as a FlameGraph. The arguments are those of FlameGraph().
    #[pyo3(signature = (title=None, colors=None, count_name=None, subtitle=None, inverted=false))]
    fn flame_graph(
        this: PyRef<'_, Stacks>,
        title: Option<String>,
        colors: Option<&str>,
        count_name: Option<&str>,
        subtitle: Option<String>,
        inverted: bool,
    ) -> PyResult<FlameGraph> {
        let (value, times_folded) = {
            let groups = this.as_super().groups().lock();
            (groups.definition().value.clone(), groups.others().keys)
        };
        let unit = match value.as_deref() {
            None => "samples",
            Some(value) if this.as_super().fed_by().is_time(value) => "ns",
            Some(_) => this.as_super().unit(),
        };
        let mut graph = FlameGraph::new(title, colors, count_name.unwrap_or(unit), subtitle, inverted)?;
        graph.set_origin(this.as_super().fed_by().stats(), times_folded);
        graph.add_folded(&Stacks::folded(this))?;
        Ok(graph)
    }

    /// Returns the stacks as a profile of pprof, packed by gzip. The other parts of a key are labels.
    fn pprof(this: PyRef<'_, Stacks>, py: Python<'_>) -> PyResult<Py<PyBytes>> {
        Ok(PyBytes::new(py, &stacks_profile::packed(py, this.as_super())?).unbind())
    }

    /// Writes a flame graph if path ends in .svg, folded text if it ends in .folded, a profile of pprof if it ends in .pb.gz.
    /// See FlameGraph.save().
    fn save(this: PyRef<'_, Stacks>, path: PathBuf) -> PyResult<()> {
        if path.to_string_lossy().ends_with(".pb.gz") {
            let profile = stacks_profile::packed(this.py(), this.as_super())?;
            return fs::write(&path, profile).map_err(|error| os_error(&error, &path));
        }
        Stacks::flame_graph(this, None, None, None, None, false)?.save(path, None)
    }

    /// Jupyter shows this in a notebook: a flame graph.
    fn _repr_html_(this: PyRef<'_, Stacks>, py: Python<'_>) -> PyResult<String> {
        Stacks::flame_graph(this, None, None, None, None, false)?._repr_html_(py)
    }

    fn __getnewargs_ex__<'py>(this: PyRef<'py, Stacks>) -> PyResult<NewArguments<'py>> {
        let py = this.py();
        let (of, _) = definition(&this);
        let by = of.keys.split_last().map_or(&[][..], |(_, by)| by);
        let arguments = (PyTuple::new(py, by)?, of.value.clone()).into_pyobject(py)?;
        Ok((arguments, options(py, &of)?))
    }
}

/// The value of the argument `by` of `Stacks`. This type provides the default of the argument.
struct ByNames(Vec<String>);

impl Default for ByNames {
    fn default() -> ByNames {
        ByNames(vec!["_comm".to_owned()])
    }
}

fn by_names(by: &Bound<'_, PyAny>) -> PyResult<ByNames> {
    let names = names(Some(by))?;
    if names.iter().any(|name| name == STACK) {
        return Err(PyTypeError::new_err("Stacks adds _stack to the keys itself; leave _stack out of by"));
    }
    Ok(ByNames(names))
}

/// Returns the line of folded text for a key; `None` if the amount of the key is not positive.
fn folded_line(key: &[perf_prof_events::aggregate::KeyPart], amount: &Amount) -> Option<String> {
    let weight = u64::try_from(amount.weight()).ok().filter(|&weight| weight != 0)?;
    let (stack, by) = key.split_last()?;
    let by = by.iter().map(|part| Label::Name(&part.text()).text());
    let stack = stack.text();
    let frames = [stack.into_owned()].into_iter().filter(|stack| !stack.is_empty());
    Some(format!("{} {weight}\n", by.chain(frames).collect::<Vec<_>>().join(";")))
}

/// Returns the definition of an aggregator, and the heading of its amounts.
fn definition<T: PyClass<BaseType = Aggregator>>(this: &PyRef<'_, T>) -> (Definition, String) {
    let base: &Aggregator = this.as_super();
    let definition = base.groups().lock().definition().clone();
    (definition, base.unit().to_owned())
}

fn options<'py>(py: Python<'py>, of: &Definition) -> PyResult<Bound<'py, PyDict>> {
    let keywords = PyDict::new(py);
    keywords.set_item("where", &of.filter)?;
    keywords.set_item("limit", of.limit)?;
    Ok(keywords)
}

fn value_and_by<'py>(py: Python<'py>, of: &Definition) -> PyResult<Bound<'py, PyTuple>> {
    (of.value.clone(), PyTuple::new(py, &of.keys)?).into_pyobject(py)
}
