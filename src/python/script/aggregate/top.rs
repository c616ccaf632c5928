//! The Python class `perf_prof.Top`: the events with the largest values.

use std::{collections::HashMap, sync::Arc};

use perf_prof_events::{
    aggregate::{Align, Definition, Entry, Kept, KeyPart, Largest, MAX_KEYS, Measure, Plan, Report},
    event::{DURATION_FIELD, EventType},
};
use perf_prof_system::mutex::Mutex;
use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    types::{PyAnyMethods, PyDict, PyInt, PyIterator, PyList, PyString, PyTuple},
};

use super::{
    super::event::{Class, detached_event, with_input},
    fed_by::FedBy,
    keys::{key_from, key_object, names_of},
};

/// The largest events, which a `Top` shares with the run that fills it. A thread that holds the lock neither runs Python
/// code nor waits for the GIL.
pub type SharedLargest = Arc<Mutex<Largest>>;

/// Keeps the n events with the largest values of a field, whole: with the name of the task and the call chain.
///
/// where is a filter such as 'prev_state==0'. keep is a name or a tuple of names, as in the keys of Count: then
/// only these values of each event are kept. Iteration yields the events or the kept values, the largest first. A
/// script uses the object like a handler: if it is named after an event, it gets all of its events.
#[pyclass(module = "perf_prof", frozen)]
pub struct Top {
    largest: SharedLargest,
    plans: Mutex<HashMap<usize, PlanOfEvent>>,
    fed_by: FedBy,
}

/// The plan for an event type, and the event type itself.
type PlanOfEvent = (Arc<Plan>, Arc<EventType>);

impl Top {
    /// Returns the list.
    pub fn largest(&self) -> &SharedLargest {
        &self.largest
    }

    /// Returns the run whose events the list contains.
    pub fn fed_by(&self) -> &FedBy {
        &self.fed_by
    }

    fn plan(&self, class: &Class) -> PyResult<PlanOfEvent> {
        let mut plans = self.plans.lock();
        // A class is never freed, so its address identifies it.
        let key = std::ptr::from_ref(class) as usize;
        if let Some((plan, event)) = plans.get(&key) {
            return Ok((Arc::clone(plan), Arc::clone(event)));
        }
        let plan = Plan::new(self.largest.lock().definition(), &class.event);
        let plan = Arc::new(plan.map_err(|error| PyValueError::new_err(error.to_string()))?);
        let event = Arc::new(class.event.clone());
        plans.insert(key, (Arc::clone(&plan), Arc::clone(&event)));
        Ok((plan, event))
    }

    /// Adds an event object.
    pub fn add_event(&self, event: &Bound<'_, PyAny>) -> PyResult<()> {
        with_input(event, |class, input| {
            let (plan, event) = self.plan(class)?;
            self.fed_by.note_object(&class.event);
            self.largest.lock().add(&plan, &event, &input);
            Ok(())
        })
    }

    fn entries(&self) -> Vec<Entry> {
        self.largest.lock().entries().into_iter().cloned().collect()
    }

    /// Returns the kept events or values, sorted by value, the largest first.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let items = self.entries().iter().map(|entry| item(py, &entry.kept)).collect::<PyResult<Vec<_>>>()?;
        PyList::new(py, items)
    }

    fn keep(&self) -> Vec<String> {
        self.largest.lock().definition().keys.clone()
    }

    /// Returns the lines to print below the events. They say how many events had no room in memory, and what is missing
    /// in the run.
    fn notes(&self) -> Vec<String> {
        let (without_room, value) = {
            let largest = self.largest.lock();
            (largest.without_room(), largest.definition().value.clone())
        };
        let of_room = format!("({without_room} more events took more than their share of --buffer)");
        let missing = self
            .fed_by
            .shortfall(value.as_deref())
            .map(|shortfall| format!("(there may have been larger ones: {})", shortfall.reasons()));
        (without_room != 0).then_some(of_room).into_iter().chain(missing).collect()
    }
}

/// Returns an entry as a Python object: the event, its only kept value, or a tuple of its kept values.
fn item<'py>(py: Python<'py>, kept: &Kept) -> PyResult<Bound<'py, PyAny>> {
    match kept {
        Kept::Event { event, record, facts } => Ok(detached_event(py, event, record, facts)?.into_bound(py)),
        Kept::Values(values) => key_object(py, values),
    }
}

fn table(keep: &[String], value: &str, entries: &[Entry], notes: Vec<String>) -> Report {
    let values = |entry: &Entry| match &entry.kept {
        Kept::Values(values) => values.clone(),
        Kept::Event { .. } => Vec::new(),
    };
    let is_number = |at: usize| entries.iter().all(|entry| matches!(values(entry).get(at), Some(KeyPart::Number(_))));
    let side = |at| if is_number(at) { Align::Right } else { Align::Left };
    let names = keep.iter().enumerate().map(|(at, name)| (name.clone(), side(at)));
    let columns = names.chain([(value.to_owned(), Align::Right)]).collect();
    let row = |entry: &Entry| {
        let cells = values(entry).into_iter().map(|part| part.text().into_owned());
        cells.chain([entry.value.to_string()]).collect()
    };
    Report { columns, rows: entries.iter().map(row).collect(), notes }
}

/// Returns whether a field of a whole event is a time in ns.
fn is_time(entry: &Entry, field: &str) -> bool {
    matches!(&entry.kept, Kept::Event { event, .. } if event.is_time(field))
}

/// Shows columns of times in ms. `are_times` says which columns have times in ns.
fn in_milliseconds(table: &mut Report, are_times: impl Iterator<Item = bool>) {
    for (at, _) in are_times.enumerate().filter(|(_, is_time)| *is_time) {
        table.columns[at].0.push_str(" ms");
        for cell in table.rows.iter_mut().filter_map(|row| row.get_mut(at)) {
            if let Ok(ns) = cell.parse::<i128>() {
                *cell = format!("{:.3}", ns as f64 / 1e6);
            }
        }
    }
}

/// The maximum length of the fields of an event in a notebook, in characters.
const SHORT: usize = 160;

/// Returns the event's own fields that are numbers or texts, without `value`, which has its own column. The begin and the end of
/// a span are whole events, and would fill the page.
fn short_fields(event: &Bound<'_, PyAny>, value: &str) -> PyResult<String> {
    let fields = event.call_method0("to_dict")?.cast_into::<PyDict>()?;
    let own = fields.iter().filter_map(|(name, field)| {
        let name = name.to_string();
        let is_shown = !name.starts_with('_') && !name.starts_with("common_") && name != value;
        let is_short = field.is_instance_of::<PyString>() || field.is_instance_of::<PyInt>();
        (is_shown && is_short).then(|| format!("{name}={field}"))
    });
    let text = own.collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(SHORT) {
        Some((end, _)) => Ok(format!("{}…", &text[..end])),
        None => Ok(text),
    }
}

#[pymethods]
impl Top {
    #[new]
    #[pyo3(signature = (n, value, *, r#where=None, keep=None))]
    fn new(n: usize, value: String, r#where: Option<String>, keep: Option<&Bound<'_, PyAny>>) -> PyResult<Top> {
        let keys = names_of("keep", keep)?;
        let of = Definition { keys, value: Some(value), filter: r#where, limit: n, measure: Measure::Sum };
        if n == 0 {
            return Err(PyValueError::new_err("Top(0, ...) would keep no event"));
        }
        if of.keys.len() > MAX_KEYS {
            return Err(PyValueError::new_err(format!(
                "keep has {} names, but at most {MAX_KEYS} are possible",
                of.keys.len()
            )));
        }
        let largest = Arc::new(Mutex::new(Largest::new(of)));
        Ok(Top { largest, plans: Mutex::default(), fed_by: FedBy::default() })
    }

    /// Keeps an event if it is among the largest. Raises ValueError if the event does not have one of the names.
    fn add(&self, event: &Bound<'_, PyAny>) -> PyResult<()> {
        self.add_event(event)
    }

    /// Does the same as add(). A Top can be called, so it can be a handler.
    fn __call__(&self, event: &Bound<'_, PyAny>) -> PyResult<()> {
        self.add_event(event)
    }

    /// Adds the events of another Top with the same value and the same keep.
    fn update(&self, other: &Bound<'_, Top>) -> PyResult<()> {
        // `self` and `other` may be the same object, so only one lock is held at a time.
        let more = other.get().largest.lock().clone();
        let mut own = self.largest.lock();
        let of = |largest: &Largest| (largest.definition().value.clone(), largest.definition().keys.clone());
        if of(&own) != of(&more) {
            return Err(PyValueError::new_err("only a Top with the same value and the same keep can be added"));
        }
        own.merge(&more);
        self.fed_by.note_table(&other.get().fed_by);
        Ok(())
    }

    /// Removes all events.
    fn clear(&self) {
        self.largest.lock().clear();
    }

    /// Returns the (event, value) pairs of the n events with the largest values, the largest first. Without n, returns all
    /// pairs. With keep, a pair has the kept values instead of the event.
    #[pyo3(signature = (n=None))]
    fn most_common<'py>(&self, py: Python<'py>, n: Option<usize>) -> PyResult<Bound<'py, PyList>> {
        let pair = |entry: &Entry| -> PyResult<(Bound<'py, PyAny>, i128)> { Ok((item(py, &entry.kept)?, entry.value)) };
        let entries = self.entries();
        let pairs = entries.iter().take(n.unwrap_or(usize::MAX)).map(pair);
        PyList::new(py, pairs.collect::<PyResult<Vec<_>>>()?)
    }

    /// Prints the events, the one with the largest value first, as event.print() does. With keep, prints a table. top is
    /// the number of events, without it all.
    #[pyo3(signature = (top=None))]
    fn print(&self, py: Python<'_>, top: Option<usize>) -> PyResult<()> {
        let (keep, mut entries) = (self.keep(), self.entries());
        entries.truncate(top.unwrap_or(usize::MAX));
        let print = py.import("builtins")?.getattr("print")?;
        if keep.is_empty() {
            entries.iter().try_for_each(|entry| item(py, &entry.kept)?.call_method0("print").map(|_| ()))?;
            return self.notes().into_iter().try_for_each(|note| print.call1((note,)).map(|_| ()));
        }
        let value = self.largest.lock().definition().value.clone().unwrap_or_default();
        print.call1((table(&keep, &value, &entries, self.notes()).text(),))?;
        Ok(())
    }

    /// Jupyter shows this in a notebook: the events with their values, or a table of what is kept of them.
    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let (keep, entries) = (self.keep(), self.entries());
        let value = self.largest.lock().definition().value.clone().unwrap_or_default();
        let is_time = value == DURATION_FIELD || entries.iter().any(|entry| is_time(entry, &value));
        if !keep.is_empty() {
            let mut table = table(&keep, &value, &entries, self.notes());
            let kept_times = keep.iter().map(|name| name == DURATION_FIELD || is_time && *name == value);
            in_milliseconds(&mut table, kept_times.chain([is_time]));
            if keep.contains(&value) {
                // The value has a column already.
                table.columns.pop();
                table.rows.iter_mut().for_each(|row| drop(row.pop()));
            }
            return Ok(table.html());
        }
        let row = |entry: &Entry| -> PyResult<Vec<String>> {
            let event = item(py, &entry.kept)?;
            let text = |name: &str| PyResult::Ok(event.getattr(name)?.str()?.to_string_lossy().into_owned());
            let fields = short_fields(&event, &value)?;
            Ok(vec![text("_event")?, text("_comm")?, text("_tid")?, fields, entry.value.to_string()])
        };
        let left = ["event", "comm", "tid", "fields"].map(|name| (name.to_owned(), Align::Left));
        let columns = left.into_iter().chain([(value.clone(), Align::Right)]).collect();
        let rows = entries.iter().map(row).collect::<PyResult<_>>()?;
        let mut table = Report { columns, rows, notes: self.notes() };
        in_milliseconds(&mut table, [false; 4].into_iter().chain([is_time]));
        Ok(table.html())
    }

    /// How many events had no room in memory (--buffer), although fewer than n are kept. They have the smallest values.
    #[getter]
    fn without_room(&self) -> u64 {
        self.largest.lock().without_room()
    }

    fn __len__(&self) -> usize {
        self.largest.lock().entries().len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.items(py)?.try_iter()
    }

    fn __repr__(&self) -> String {
        let largest = self.largest.lock();
        let value = largest.definition().value.as_deref().unwrap_or_default();
        format!("<perf_prof.Top of {value}: {} of {} events>", largest.entries().len(), largest.seen())
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let of = self.largest.lock().definition().clone();
        let keywords = PyDict::new(py);
        keywords.set_item("where", of.filter)?;
        if !of.keys.is_empty() {
            keywords.set_item("keep", PyTuple::new(py, of.keys)?)?;
        }
        Ok(((of.limit, of.value).into_pyobject(py)?, keywords))
    }

    /// Returns the events, or what is kept of each of them with its value and its time, for copy and pickle.
    fn __getstate__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyList>, u64, u64)> {
        let (seen, without_room) = {
            let largest = self.largest.lock();
            (largest.seen(), largest.without_room())
        };
        if self.keep().is_empty() {
            return Ok((self.items(py)?, seen, without_room));
        }
        let entries = self.entries();
        let kept = entries.iter().map(|entry| Ok((entry.value, entry.time, item(py, &entry.kept)?)));
        Ok((PyList::new(py, kept.collect::<PyResult<Vec<_>>>()?)?, seen, without_room))
    }

    fn __setstate__(&self, state: (Vec<Bound<'_, PyAny>>, u64, u64)) -> PyResult<()> {
        let (items, seen, without_room) = state;
        let keep = self.keep();
        for item in &items {
            if keep.is_empty() {
                self.add_event(item)?;
                continue;
            }
            let (value, time, kept): (i128, u64, Bound<'_, PyAny>) = item.extract()?;
            let wrong = || {
                PyValueError::new_err("the pickle of this Top is damaged: it contains a value that no event can have")
            };
            let kept = Kept::Values(key_from(&kept, &keep)?.ok_or_else(wrong)?);
            self.largest.lock().push(Entry { value, time, kept });
        }
        let mut largest = self.largest.lock();
        let counted = largest.seen();
        largest.add_seen(seen.saturating_sub(counted));
        largest.add_without_room(without_room);
        Ok(())
    }
}
