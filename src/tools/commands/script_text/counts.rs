//! Lines for the counts in a recording of `perf stat record`, with the columns of perf.

use std::io::Write;

use perf_prof_session::recording::stat_counts::{RoundCount, StatCounts, StatError};

/// The names of the columns.
const TITLE: &str = "CPU   THREAD             VAL             ENA             RUN            TIME EVENT";

/// Formats a line for each count at the end of its round.
pub(super) struct CountLines {
    counts: StatCounts,
    /// The names of all events of the recording.
    names: Vec<String>,
    title: Title,
    /// The first count that could not be shown.
    pub failure: Option<StatError>,
}

/// Whether the line with the names of the columns was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Title {
    Missing,
    Written,
}

impl CountLines {
    pub fn new(counts: StatCounts, names: Vec<String>) -> CountLines {
        CountLines { counts, names, title: Title::Missing, failure: None }
    }

    /// Adds a record. If the record ends a round, appends the lines of the round to `text`.
    pub fn add(&mut self, record: &[u8], text: &mut Vec<u8>) {
        let round = match self.counts.add(record) {
            Ok(Some(round)) => round,
            Ok(None) => return,
            Err(error) => {
                self.failure.get_or_insert(error);
                return;
            }
        };
        if std::mem::replace(&mut self.title, Title::Written) == Title::Missing {
            text.extend_from_slice(TITLE.as_bytes());
            text.push(b'\n');
        }
        for RoundCount { event, cpu, thread, count } in self.counts.separate() {
            let name = self.names.get(event).map_or("", String::as_str);
            let (val, ena, run, time) = (count.val, count.ena, count.run, round.time);
            // Writing to memory does not fail.
            let _ = writeln!(text, "{cpu:3} {thread:8} {val:15} {ena:15} {run:15} {time:15} {name}");
        }
    }
}
