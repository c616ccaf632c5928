//! The sums of one more field (`--sum a,b`), in a table beside the command's own table.

use std::sync::Arc;

use perf_prof_events::{
    aggregate::{Definition, Groups, Measure, Memo, Plan},
    event::reader::Input,
};
use perf_prof_session::engine::kernel_tables::{SharedGroups, TableUse};
use perf_prof_system::mutex::Mutex;

/// Returns an empty table, to which the run adds the sums that the kernel keeps.
pub fn shared(definition: Definition) -> SharedGroups {
    Arc::new(Mutex::new(Groups::new(definition)))
}

/// Moves all sums from `from`, a table of [`shared`], to the table `to`.
pub fn take(from: &SharedGroups, to: &mut Groups) {
    let mut from = from.lock();
    to.merge(&from);
    from.clear();
}

/// The sums of a field by the keys of the command.
pub struct SumTable {
    /// For each delivered event, the plan for reading its keys and the field.
    plans: Vec<Option<Plan>>,
    memo: Memo,
    /// The sums of this interval that the kernel kept.
    from_kernel: SharedGroups,
    /// All sums of this interval.
    pub now: Groups,
    /// The sums of all earlier intervals.
    pub whole: Groups,
}

impl SumTable {
    /// Returns the definition of the sums of a field. `of_command` is the definition of the command's own sums.
    pub fn definition(field: &str, of_command: &Definition) -> Definition {
        Definition { value: Some(field.to_owned()), measure: Measure::Sum, ..of_command.clone() }
    }

    /// Creates an empty table.
    pub fn new(plans: Vec<Option<Plan>>, definition: Definition) -> SumTable {
        let (now, whole) = (Groups::new(definition.clone()), Groups::new(definition.clone()));
        SumTable { plans, memo: Memo::default(), from_kernel: shared(definition), now, whole }
    }

    /// Adds an event to the sums.
    pub fn add(&mut self, event: usize, input: &Input<'_>) {
        if let Some(Some(plan)) = self.plans.get(event) {
            self.now.add(plan, input, &mut self.memo);
        }
    }

    /// Returns the table to which the run adds the kernel's sums of an event. `None` if the event is not delivered.
    pub fn table_use(&self, event: usize) -> Option<TableUse> {
        let plan = self.plans.get(event)?.clone()?;
        Some(TableUse { definition: self.now.definition().clone(), plan, table: self.from_kernel.clone() })
    }

    /// Takes the sums out of the kernel, and adds them to the sums of this interval.
    pub fn take_from_kernel(&mut self) {
        take(&self.from_kernel, &mut self.now);
    }

    /// Ends the interval: adds its sums to the sums of the earlier intervals.
    pub fn end_interval(&mut self) {
        self.whole.merge(&self.now);
        self.now.clear();
    }
}
