//! Captures also need the kernel's clock and the files of tracefs.

use perf_prof_system::{
    clock::{Calibration, Clock, realtime},
    tracefs::{Tracefs, explain_filter},
};

use crate::harness::machine::{Need, needs, skip};

#[test]
fn the_clock_of_perf_leads_to_the_time_of_day() {
    let mut calibration = Calibration::new(Clock::Perf).unwrap_or_else(|error| skip(Need::Kernel, error));
    let before = realtime();
    let offset = calibration.realtime_offset().unwrap();
    let time = calibration.stamp().unwrap() + offset;
    let after = realtime();
    // The clock is read right before and after. A pause of the machine only widens the allowed range.
    assert!(before - 1_000_000 <= time && time <= after + 1_000_000, "{before} <= {time} <= {after}");
}

/// The kernel returns this file only to the first read, so a first read of 32 bytes would truncate it.
#[test]
fn a_file_with_text_only_for_the_first_read_is_read_whole() {
    needs([Need::Tracefs]);
    let text = Tracefs::find().unwrap().read("events/header_page").unwrap();
    assert!(text.contains("commit") && text.ends_with('\n'), "{text}");
}

#[test]
fn a_refused_filter_is_explained() {
    needs([Need::Tracefs]);
    let tracefs = Tracefs::find().unwrap();
    let reason = explain_filter("sched", "sched_switch", "no_such_field == 1").unwrap();
    assert_eq!(reason, "Field not found (the kernel found the error at the end of `no_such_field`)");
    assert_eq!(explain_filter("sched", "sched_switch", "prev_pid == 1"), None);
    assert!(!tracefs.root().join(format!("instances/perf-prof-{}", std::process::id())).exists());
}
