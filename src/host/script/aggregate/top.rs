//! The Python class `perf_prof.Top`: the events with the largest values.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use perf_prof_core::{
    aggregate::{Definition, Entry, Largest, Measure, Plan},
    event::EventType,
};
use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    types::{PyAnyMethods, PyDict, PyIterator, PyList, PyTuple},
};

use super::super::event::{Class, detached_event, with_input};

/// A list that is shared with the run that feeds it.
#[derive(Clone)]
pub struct SharedLargest(Arc<Mutex<Largest>>);

impl SharedLargest {
    /// Returns the list.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, Largest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the n events with the largest values of a field, whole: with the name of the task and the call chain.
///
/// where is a filter such as 'prev_state==0'. Iteration gives the events, the one with the largest value first. In the
/// place of a handler it gets all events of its name.
#[pyclass(module = "perf_prof", frozen)]
pub struct Top {
    largest: SharedLargest,
    plans: Mutex<HashMap<usize, PlanOfEvent>>,
}

/// The plan for an event type, and the event type.
type PlanOfEvent = (Arc<Plan>, Arc<EventType>);

impl Top {
    /// Returns the list.
    pub fn largest(&self) -> &SharedLargest {
        &self.largest
    }

    fn plan(&self, class: &Class) -> PyResult<PlanOfEvent> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        // Classes are never freed.
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
            self.largest.lock().add(&plan, &event, &input);
            Ok(())
        })
    }

    fn entries(&self) -> Vec<Entry> {
        self.largest.lock().entries().into_iter().cloned().collect()
    }

    fn events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let events = self.entries().iter().map(|entry| detached_event(py, entry)).collect::<PyResult<Vec<_>>>()?;
        PyList::new(py, events)
    }
}

#[pymethods]
impl Top {
    #[new]
    #[pyo3(signature = (n, value, *, r#where=None))]
    fn new(n: usize, value: String, r#where: Option<String>) -> PyResult<Top> {
        let keys = Vec::new();
        let of = Definition { keys, value: Some(value), filter: r#where, limit: n, measure: Measure::Sum };
        if n == 0 {
            return Err(PyValueError::new_err("Top(0, ...) would keep no event"));
        }
        let largest = SharedLargest(Arc::new(Mutex::new(Largest::new(of))));
        Ok(Top { largest, plans: Mutex::default() })
    }

    /// Looks at an event. Raises ValueError if the event does not have one of the names.
    fn add(&self, event: &Bound<'_, PyAny>) -> PyResult<()> {
        self.add_event(event)
    }

    /// Looks at an event, so that the object can be called as a handler.
    fn __call__(&self, event: &Bound<'_, PyAny>) -> PyResult<()> {
        self.add_event(event)
    }

    /// Adds the events of another Top with the same value.
    fn update(&self, other: &Bound<'_, Top>) -> PyResult<()> {
        // Both may be the same object: only one lock is held at a time.
        let more = other.get().largest.lock().clone();
        let mut own = self.largest.lock();
        if own.definition().value != more.definition().value {
            return Err(PyValueError::new_err("only a Top with the same value can be added"));
        }
        own.merge(&more);
        Ok(())
    }

    /// Removes all events.
    fn clear(&self) {
        self.largest.lock().clear();
    }

    /// Returns the (event, value) pairs of the n events with the largest values, the largest first; of all without n.
    #[pyo3(signature = (n=None))]
    fn most_common<'py>(&self, py: Python<'py>, n: Option<usize>) -> PyResult<Bound<'py, PyList>> {
        let pair = |entry: &Entry| -> PyResult<(Py<PyAny>, i128)> { Ok((detached_event(py, entry)?, entry.value)) };
        let entries = self.entries();
        let pairs = entries.iter().take(n.unwrap_or(usize::MAX)).map(pair);
        PyList::new(py, pairs.collect::<PyResult<Vec<_>>>()?)
    }

    /// Prints the events, the one with the largest value first, as event.print() does.
    fn print(&self, py: Python<'_>) -> PyResult<()> {
        for event in self.events(py)? {
            event.call_method0("print")?;
        }
        Ok(())
    }

    fn __len__(&self) -> usize {
        self.largest.lock().entries().len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.events(py)?.try_iter()
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
        Ok(((of.limit, of.value).into_pyobject(py)?, keywords))
    }

    /// Returns the events, for copy and pickle.
    fn __getstate__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyList>, u64)> {
        Ok((self.events(py)?, self.largest.lock().seen()))
    }

    fn __setstate__(&self, state: (Vec<Bound<'_, PyAny>>, u64)) -> PyResult<()> {
        let (events, seen) = state;
        events.iter().try_for_each(|event| self.add_event(event))?;
        let mut largest = self.largest.lock();
        let counted = largest.seen();
        largest.add_seen(seen.saturating_sub(counted));
        Ok(())
    }
}
