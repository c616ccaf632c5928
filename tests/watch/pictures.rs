//! Pictures of the difference of two recordings that differ in what they have. The recordings are made byte by byte.

use perf_prof_format::abi::*;

use crate::harness::{
    made::{Made, MadeAttr, u32s, u64s},
    recording::Folder,
    run::perf_prof,
};

/// Returns a recording of four samples of each of these software events.
fn recording(folder: &Folder, name: &str, events: &[u64]) -> String {
    let members = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME;
    let mut attrs = events.iter().map(|&config| MadeAttr { config, ..MadeAttr::new(members) });
    let mut made = Made::new(attrs.next().unwrap());
    made.attrs.extend(attrs);
    for number in 0..4 {
        for id in 0..events.len() as u64 {
            let time = 1000 * (number + 1) + id;
            made = made.sample(PERF_RECORD_MISC_USER, &[u64s(&[50 + id, 0x1000]), u32s(&[7, 7]), u64s(&[time])]);
        }
    }
    folder.write(name, &made.pipe()).to_str().unwrap().to_owned()
}

/// Returns the picture of the difference, and what `report` says.
fn difference(folder: &Folder, before: &str, after: &str) -> (String, String) {
    let picture = folder.path("x.svg");
    let output = perf_prof(&["report", "-q", "-i", after, "--diff", before, "--flame"]).arg(&picture).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    (std::fs::read_to_string(&picture).unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn events_that_only_the_later_recording_has_are_grey() {
    const GREY: &str = "rgb(205,205,205)";
    let folder = Folder::new();
    let before = recording(&folder, "before.data", &[PERF_COUNT_SW_CPU_CLOCK]);
    let after = recording(&folder, "after.data", &[PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_PAGE_FAULTS]);
    let (svg, _) = difference(&folder, &before, &after);
    assert!(svg.contains("grey: not compared") && svg.contains(GREY), "{svg}");
    assert!(svg.contains("not in ") && svg.contains("white: the same"), "{svg}");
    let (svg, _) = difference(&folder, &after, &after);
    assert!(!svg.contains("grey") && !svg.contains(GREY), "{svg}");
    let other = recording(&folder, "other.data", &[PERF_COUNT_SW_PAGE_FAULTS]);
    let (svg, said) = difference(&folder, &before, &other);
    assert!(svg.contains("grey: nothing is compared, because no event is in both recordings"), "{svg}");
    assert!(svg.contains(GREY) && said.contains("no event in common"), "{said}");
}
