//! The last one of lines of JSON, a line for each event, if events or spans are missing: an object like the last one of `perf-prof top
//! --json`.

use perf_prof_events::event::Shortfall;
use perf_prof_format::control_characters::in_json;
use serde_json::json;

/// Returns the line. `reasons` says what is missing.
pub fn partial_line(shortfall: &Shortfall, reasons: &str) -> String {
    let Shortfall { lost, damaged, gaps, .. } = *shortfall;
    let mut total = json!({ "kind": "total", "partial": true, "lost": lost, "damaged": damaged, "reasons": reasons });
    if gaps != 0 {
        total["missing"] = gaps.into();
        total["missing_time"] = shortfall.missing_time().into();
    }
    format!("{}\n", in_json(&total.to_string()))
}
