//! The sums of a further field, in a table of its own beside that of the command.

use anyhow::Result;
use perf_prof_events::{
    aggregate::{Definition, Groups, Measure, Memo, Plan, PlanError},
    event::{EventType, reader::Input},
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
    /// Prepares the sums of `field`. `definition` is that of the command, and `compile` makes the plans for an event, unless
    /// it is not delivered.
    pub fn new(
        field: &str,
        definition: &Definition,
        events: &[EventType],
        compile: &dyn Fn(&Definition, usize, &EventType) -> Result<Option<Plan>, PlanError>,
    ) -> Result<SumTable> {
        let definition = Definition { value: Some(field.to_owned()), measure: Measure::Sum, ..definition.clone() };
        let plans = events.iter().enumerate().map(|(at, event)| compile(&definition, at, event));
        let plans = plans.collect::<Result<_, _>>()?;
        let (now, whole) = (Groups::new(definition.clone()), Groups::new(definition));
        Ok(SumTable { plans, memo: Memo::default(), now, whole })
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
