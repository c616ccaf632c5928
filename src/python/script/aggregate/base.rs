//! The Python class `perf_prof.Aggregator`, the base of `Count`, `Sum`, `Hist` and `Stacks`.

use std::{
    collections::HashMap,
    sync::{Arc, Once},
};

use perf_prof_events::{
    aggregate::{Amount, Definition, Groups, Measure, Memo, Others, Plan, note_html},
    column::of_groups,
    event::reader::Input,
};
use perf_prof_session::engine::kernel_tables::SharedGroups;
use perf_prof_system::{mutex::Mutex, output};
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyAnyMethods, PyCapsule, PyDict, PyIterator, PyList, PyTuple},
};

use super::{
    super::{
        columns::rows_capsule,
        event::{Class, with_input},
        printing::write_to,
    },
    fed_by::FedBy,
    keys::{amount_from, amount_object, amount_parts, key_from, key_object},
};

/// The message about clear() of a table that is served as metrics.
const CLEARED: &str = "warning: clear() of a table that is served: its counters went back, which Prometheus takes for a new \
                       start, and what came since the last scrape is missing there; clear a second table instead";

/// The base of Count, Sum, Hist and Stacks: a table of amounts by key, which is filled without Python.
///
/// A script uses it like a handler: an object that is named after an event gets all of its events. A key is the
/// value of a field if there is one name, else a tuple with the values of all names. len() is the number of keys,
/// and iteration yields the keys. A notebook shows the table.
#[pyclass(module = "perf_prof", subclass, frozen)]
pub struct Aggregator {
    /// A thread that holds the lock neither runs Python code nor waits for the GIL.
    groups: SharedGroups,
    /// The heading of the amounts: `count` or `sum of NAME`. For distributions: the unit or the name of the values.
    unit: String,
    /// The plan for each event class of which `add` got an event. The key is the address of the class, because a class
    /// is never freed.
    plans: Mutex<HashMap<usize, Arc<Plan>>>,
    fed_by: FedBy,
}

impl Aggregator {
    /// Creates an empty table.
    pub fn new(definition: Definition, unit: &str) -> PyResult<Aggregator> {
        definition.check().map_err(|error| PyValueError::new_err(error.to_string()))?;
        let groups = Arc::new(Mutex::new(Groups::new(definition)));
        Ok(Aggregator { groups, unit: unit.to_owned(), plans: Mutex::default(), fed_by: FedBy::default() })
    }

    /// Returns the table.
    pub fn groups(&self) -> &SharedGroups {
        &self.groups
    }

    /// Returns the run whose events the table contains.
    pub fn fed_by(&self) -> &FedBy {
        &self.fed_by
    }

    /// Returns the heading of the amounts.
    pub fn unit(&self) -> &str {
        &self.unit
    }

    fn plan(&self, class: &Class) -> PyResult<Arc<Plan>> {
        let mut plans = self.plans.lock();
        let key = std::ptr::from_ref(class) as usize;
        if let Some(plan) = plans.get(&key) {
            return Ok(Arc::clone(plan));
        }
        let plan = Plan::new(self.groups.lock().definition(), &class.event);
        let plan = Arc::new(plan.map_err(|error| PyValueError::new_err(error.to_string()))?);
        plans.insert(key, Arc::clone(&plan));
        Ok(plan)
    }

    /// Adds an event object.
    pub fn add_event(&self, event: &Bound<'_, PyAny>) -> PyResult<()> {
        with_input(event, |class, input: Input<'_>| {
            let plan = self.plan(class)?;
            self.fed_by.note_object(&class.event);
            // The memo of values belongs to one run, but this event may come from another run. So an empty memo is
            // passed.
            self.groups.lock().add(&plan, &input, &mut Memo::default());
            Ok(())
        })
    }

    fn object<'py>(&self, py: Python<'py>, amount: Amount) -> PyResult<Bound<'py, PyAny>> {
        let buckets = self.groups.lock().buckets();
        amount_object(py, amount, buckets, &self.unit)
    }

    fn items_of<'py>(
        &self,
        py: Python<'py>,
        rows: Vec<(perf_prof_events::aggregate::Key, Amount)>,
    ) -> PyResult<Bound<'py, PyList>> {
        let item = |(key, amount): (perf_prof_events::aggregate::Key, Amount)| {
            PyTuple::new(py, [key_object(py, &key)?, self.object(py, amount)?])
        };
        PyList::new(py, rows.into_iter().map(item).collect::<PyResult<Vec<_>>>()?)
    }

    /// Returns the heading of the amounts in tables for people: adds `, ns` for times, unless the user chose a unit.
    fn heading(&self, groups: &Groups) -> String {
        let value = groups
            .definition()
            .value
            .as_deref()
            .filter(|value| self.unit == *value || self.unit == format!("sum of {value}"));
        let ns = value.filter(|value| groups.buckets().divisor() == 1 && self.fed_by.is_time(value)).map(|_| ", ns");
        format!("{}{}", self.unit, ns.unwrap_or_default())
    }

    fn text(&self, top: Option<usize>) -> String {
        let groups = self.groups.lock();
        let heading = self.heading(&groups);
        let text = match groups.total() {
            Amount::Distribution(of) if groups.definition().keys.is_empty() => {
                let note = groups.note_of_skipped().map_or_else(String::new, |note| format!("\n{note}"));
                of.text(&heading, groups.buckets()) + &note
            }
            _ => groups.report(top, &heading).text(),
        };
        match self.fed_by.shortfall(groups.definition().value.as_deref()) {
            Some(shortfall) => format!("{text}\n{}", shortfall.note()),
            None => text,
        }
    }
}

#[pymethods]
impl Aggregator {
    /// Adds an event. Raises ValueError if the event does not have one of the names.
    fn add(&self, event: &Bound<'_, PyAny>) -> PyResult<()> {
        self.add_event(event)
    }

    /// Adds an event, so that the object can be called as a handler.
    fn __call__(&self, event: &Bound<'_, PyAny>) -> PyResult<()> {
        self.add_event(event)
    }

    /// Adds all amounts of another object of the same class with the same names.
    fn update(this: &Bound<'_, Aggregator>, other: &Bound<'_, Aggregator>) -> PyResult<()> {
        // `this` and `other` may be the same object, and two threads may add to each other's table. So only one lock is
        // held at a time.
        let more = other.get().groups.lock().clone();
        let mut own = this.get().groups.lock();
        let (ours, theirs) = (own.definition(), more.definition());
        let is_same = this.get_type().is(other.get_type())
            && (&ours.keys, &ours.value, ours.measure) == (&theirs.keys, &theirs.value, theirs.measure);
        if !is_same {
            return Err(PyValueError::new_err(format!(
                "only tables with the same class and the same names can be added: this one has {}, the other one {}",
                described(ours),
                described(theirs)
            )));
        }
        own.merge(&more);
        this.get().fed_by.note_table(&other.get().fed_by);
        Ok(())
    }

    /// Removes all keys.
    fn clear(&self) {
        static SAID: Once = Once::new();
        let mut groups = self.groups.lock();
        groups.clear();
        let is_served = groups.keeps_first_keys();
        drop(groups);
        if is_served {
            SAID.call_once(|| output::say(CLEARED));
        }
    }

    /// Returns the (key, amount) pairs of the n keys with the largest amounts, the largest first. Without n, returns all pairs.
    #[pyo3(signature = (n=None))]
    fn most_common<'py>(&self, py: Python<'py>, n: Option<usize>) -> PyResult<Bound<'py, PyList>> {
        let rows = self.groups.lock().largest(n);
        self.items_of(py, rows)
    }

    /// Returns all keys, in the order in which they came first.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let keys: Vec<_> = self.groups.lock().iter().map(|(key, _)| key).collect();
        PyList::new(py, keys.iter().map(|key| key_object(py, key)).collect::<PyResult<Vec<_>>>()?)
    }

    /// Returns the amounts of all keys, in the order of keys().
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let amounts: Vec<Amount> = self.groups.lock().iter().map(|(_, amount)| amount).collect();
        PyList::new(py, amounts.into_iter().map(|amount| self.object(py, amount)).collect::<PyResult<Vec<_>>>()?)
    }

    /// Returns the (key, amount) pairs of all keys, in the order of keys().
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let rows = self.groups.lock().iter().collect();
        self.items_of(py, rows)
    }

    /// Returns a dict with all keys. The values are numbers, or for a Hist the dicts of Distribution.to_dict().
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        let rows: Vec<_> = self.groups.lock().iter().collect();
        for (key, amount) in rows {
            let is_sum = matches!(amount, Amount::Sum(_));
            let amount = self.object(py, amount)?;
            let amount = if is_sum { amount } else { amount.call_method0("to_dict")? };
            dict.set_item(key_object(py, &key)?, amount)?;
        }
        Ok(dict)
    }

    /// Writes the table to a file, or to sys.stdout: the top keys with the largest amounts, or all keys.
    #[pyo3(signature = (top=None, file=None))]
    fn print(&self, py: Python<'_>, top: Option<usize>, file: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        write_to(py, file, self.text(top))
    }

    /// The table as columns, for libraries that read Arrow: those of the names, then count or sum; for a Hist, count,
    /// sum, min, max, p50, p90 and p99.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // A producer that offers a single schema may ignore the requested schema.
        let _ = requested_schema;
        let rows = of_groups(&self.groups.lock());
        rows_capsule(py, rows.map_err(|error| PyValueError::new_err(error.to_string()))?)
    }

    /// The sum of all amounts, including folded ones. For a Hist: a Distribution of all values.
    #[getter]
    fn total<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let total = self.groups.lock().total();
        self.object(py, total)
    }

    /// The sum of the amounts of all folded keys. Keys are folded if there are more than limit, or if they take too
    /// much memory.
    #[getter]
    fn others<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let others = self.groups.lock().others().amount.clone();
        self.object(py, others)
    }

    /// How often a key was folded, because there were more than limit keys or they took too much memory (--buffer). If
    /// it is not 0, the true amounts of some keys may be larger than shown.
    #[getter]
    fn times_folded(&self) -> u64 {
        self.groups.lock().others().keys
    }

    fn __len__(&self) -> usize {
        self.groups.lock().len()
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let found = {
            let names = self.groups.lock().definition().keys.clone();
            let key = key_from(key, &names)?;
            let groups = self.groups.lock();
            let nothing = || Groups::new(groups.definition().clone()).total();
            key.and_then(|key| groups.get(&key)).unwrap_or_else(nothing)
        };
        self.object(key.py(), found)
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let names = self.groups.lock().definition().keys.clone();
        let Ok(key) = key_from(key, &names) else { return Ok(false) };
        Ok(key.is_some_and(|key| self.groups.lock().get(&key).is_some()))
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.keys(py)?.try_iter()
    }

    fn __str__(&self) -> String {
        self.text(None)
    }

    fn __repr__(this: &Bound<'_, Aggregator>) -> PyResult<String> {
        let name = this.get_type().qualname()?;
        let groups = this.get().groups.lock();
        Ok(format!("<perf_prof.{name} of {}: {} keys>", described(groups.definition()), groups.len()))
    }

    /// Jupyter shows this in a notebook.
    fn _repr_html_(&self) -> String {
        let groups = self.groups.lock();
        let heading = self.heading(&groups);
        let note = self.fed_by.shortfall(groups.definition().value.as_deref()).map(|shortfall| shortfall.note());
        match groups.total() {
            Amount::Distribution(of) if groups.definition().keys.is_empty() => {
                let notes = groups.note_of_skipped().into_iter().chain(note).map(|note| note_html(&note));
                of.html(&heading, groups.buckets()) + &notes.collect::<String>()
            }
            _ => {
                let mut report = groups.report(None, &heading);
                report.notes.extend(note);
                report.html()
            }
        }
    }

    /// Returns all keys with their amounts, for copy and pickle.
    fn __getstate__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let (rows, others, skipped) = {
            let groups = self.groups.lock();
            (groups.iter().collect::<Vec<_>>(), groups.others().clone(), groups.skipped())
        };
        let row = |(key, amount): &(perf_prof_events::aggregate::Key, Amount)| {
            PyTuple::new(py, [key_object(py, key)?, amount_parts(py, amount)?])
        };
        let rows = PyList::new(py, rows.iter().map(row).collect::<PyResult<Vec<_>>>()?)?;
        (rows, others.keys, amount_parts(py, &others.amount)?, skipped).into_pyobject(py)
    }

    fn __setstate__(&self, state: &Bound<'_, PyTuple>) -> PyResult<()> {
        let (rows, keys, amount, skipped): (Bound<'_, PyList>, u64, Bound<'_, PyAny>, u64) = state.extract()?;
        let names = self.groups.lock().definition().keys.clone();
        let others = Others { keys, amount: amount_from(&amount)? };
        let mut restored = Vec::with_capacity(rows.len());
        for row in rows {
            let (key, amount): (Bound<'_, PyAny>, Bound<'_, PyAny>) = row.extract()?;
            let wrong = || PyTypeError::new_err("the pickle of this table is damaged: a value cannot be a key");
            restored.push((key_from(&key, &names)?.ok_or_else(wrong)?, amount_from(&amount)?));
        }
        let mut groups = self.groups.lock();
        restored.iter().for_each(|(key, amount)| groups.add_amount(key, amount));
        groups.add_others(&others);
        groups.add_skipped(skipped);
        Ok(())
    }
}

/// Returns the keys and the value of a definition as text for messages.
fn described(definition: &Definition) -> String {
    let keys = definition.keys.join(", ");
    let value = match (&definition.value, definition.measure) {
        (Some(value), Measure::Sum) => format!("the sum of {value}"),
        (Some(value), Measure::Distribution(_)) => format!("the distribution of {value}"),
        (None, _) => "events".to_owned(),
    };
    if keys.is_empty() { value } else { format!("{value} by {keys}") }
}
