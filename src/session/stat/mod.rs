//! Counts events, of a command or of what runs. Knows nothing of argv, and not how counts are shown.

mod metric;
mod plan;
mod result;
mod run;

pub use metric::Metric;
pub use plan::{Plan, Rows, Totals};
pub use result::{Counted, Event, Mean, Row, Span, Table, Tally, Unit};
pub use run::run;
