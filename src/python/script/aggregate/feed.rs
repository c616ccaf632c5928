//! Passes the events of a run to aggregators, without event objects.

use std::sync::Arc;

use perf_prof_events::{
    aggregate::{Memo, Plan, PlanError},
    event::{
        Context, EventType, Sample,
        reader::{Facts, Input},
    },
};
use perf_prof_session::{
    engine::kernel_tables::{SharedGroups, TableUse},
    spine::About,
};
use pyo3::{
    prelude::*,
    types::{PyDict, PyList, PyTuple},
};

use super::{
    super::event::with_input,
    base::Aggregator,
    top::{SharedLargest, Top},
};

/// Passes the events of one event type to an aggregator.
pub struct Feed {
    target: Target,
    plan: Plan,
    event: Arc<EventType>,
    context: Arc<Context>,
}

enum Target {
    Groups { groups: SharedGroups, memo: Box<Memo> },
    Largest(SharedLargest),
}

/// Returns whether an object is an aggregator: a handler that gets events without event objects.
pub fn is_aggregator(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<Aggregator>() || object.is_instance_of::<Top>()
}

impl Feed {
    /// Creates the feed of an aggregator in a run. Returns `None` if the object is no aggregator.
    pub fn new(object: &Bound<'_, PyAny>, event: &EventType, run: &Arc<About>) -> Result<Option<Feed>, PlanError> {
        let (target, plan) = if let Ok(aggregator) = object.cast::<Aggregator>() {
            aggregator.get().fed_by().note(run, event);
            let groups = aggregator.get().groups().clone();
            let plan = Plan::new(groups.lock().definition(), event)?;
            (Target::Groups { groups, memo: Box::default() }, plan)
        } else if let Ok(top) = object.cast::<Top>() {
            top.get().fed_by().note(run, event);
            let largest = top.get().largest().clone();
            let plan = Plan::new(largest.lock().definition(), event)?;
            (Target::Largest(largest), plan)
        } else {
            return Ok(None);
        };
        Ok(Some(Feed { target, plan, event: Arc::new(event.clone()), context: Arc::clone(&run.context) }))
    }

    /// Adds a sample to the aggregator.
    #[inline]
    pub fn sample(&mut self, record: &[u8]) {
        let input = Input { sample: Sample { event: &self.event, record }, facts: Facts::Run(&self.context) };
        match &mut self.target {
            Target::Groups { groups, memo } => groups.lock().add(&self.plan, &input, memo),
            Target::Largest(largest) => largest.lock().add(&self.plan, &self.event, &input),
        }
    }

    /// Returns the table to which samples are added; `None` for `Top`, which keeps a list instead of a table.
    pub fn table_use(&self) -> Option<TableUse> {
        match &self.target {
            Target::Groups { groups, .. } => {
                let (definition, table) = (groups.lock().definition().clone(), Arc::clone(groups));
                Some(TableUse { definition, plan: self.plan.clone(), table })
            }
            Target::Largest(_) => None,
        }
    }

    /// Adds an event that already has an event object.
    pub fn object(&self, object: &Bound<'_, PyAny>) -> PyResult<()> {
        with_input(object, |_, input| {
            match &self.target {
                Target::Groups { groups, .. } => groups.lock().add(&self.plan, &input, &mut Memo::default()),
                Target::Largest(largest) => largest.lock().add(&self.plan, &self.event, &input),
            }
            Ok(())
        })
    }
}

/// Returns the aggregators of a module with their names. The aggregators are globals, or items of a global tuple, list
/// or dict. An aggregator with several names is returned once, with its first name.
pub fn module_aggregators(dict: &Bound<'_, PyDict>) -> Vec<(String, Py<PyAny>)> {
    let mut found: Vec<(String, Py<PyAny>)> = Vec::new();
    let mut note = |name: String, object: &Bound<'_, PyAny>| {
        if is_aggregator(object) && !found.iter().any(|(_, known)| known.is(object)) {
            found.push((name, object.clone().unbind()));
        }
    };
    for (name, value) in dict {
        let name = name.to_string();
        note(name.clone(), &value);
        let items = if let Ok(items) = value.cast::<PyTuple>() {
            items.iter().collect::<Vec<_>>()
        } else if let Ok(items) = value.cast::<PyList>() {
            items.iter().collect()
        } else if let Ok(items) = value.cast::<PyDict>() {
            items.values().iter().collect()
        } else {
            continue;
        };
        for (at, item) in items.iter().enumerate() {
            note(format!("{name}[{at}]"), item);
        }
    }
    found
}
