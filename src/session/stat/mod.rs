//! Counts events of a command, of tasks or of CPUs.

mod metric;
mod plan;
mod result;
mod run;

pub use metric::{Metric, PER_SECOND};
pub use plan::{Rows, StatPlan, Totals};
pub use result::{Counted, Event, Mean, Row, RowTally, Run, Span, Subject, Table, Tally, Unit};
pub use run::{run, run_with};
