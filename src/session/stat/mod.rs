//! Counts events, of a command or of what runs. Knows nothing of argv, and not how counts are shown.

mod metric;
mod plan;
mod result;
mod run;

pub use metric::{Metric, PER_SECOND};
pub use plan::{Plan, Rows, Totals};
pub use result::{Counted, Event, Mean, Row, Run, Span, Table, Tally, Unit};
pub use run::run;
