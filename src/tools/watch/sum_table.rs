//! The sums of another field. They are in a table of their own, besides the table of the command.

use perf_prof_events::{
    aggregate::{Definition, Groups, Measure, Memo, Plan},
    event::reader::Input,
};

/// The sums of a field by the keys of the command.
pub struct SumTable {
    /// For each event that is delivered: the plan for reading its keys and the field.
    plans: Vec<Option<Plan>>,
    memo: Memo,
    /// The sums of the interval.
    pub now: Groups,
    /// The sums of all intervals before.
    pub whole: Groups,
}

impl SumTable {
    /// Returns the definition of the sums of a field. `of_command` is the definition of the command.
    pub fn definition(field: &str, of_command: &Definition) -> Definition {
        Definition { value: Some(field.to_owned()), measure: Measure::Sum, ..of_command.clone() }
    }

    /// Creates an empty table.
    pub fn new(plans: Vec<Option<Plan>>, definition: Definition) -> SumTable {
        let (now, whole) = (Groups::new(definition.clone()), Groups::new(definition));
        SumTable { plans, memo: Memo::default(), now, whole }
    }

    /// Adds an event.
    pub fn add(&mut self, event: usize, input: &Input<'_>) {
        if let Some(Some(plan)) = self.plans.get(event) {
            self.now.add(plan, input, &mut self.memo);
        }
    }

    /// Adds the sums of the interval to those of the intervals before.
    pub fn end_interval(&mut self) {
        self.whole.merge(&self.now);
        self.now.clear();
    }
}
