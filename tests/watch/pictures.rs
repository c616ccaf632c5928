//! Pictures of the difference of two recordings that differ in what they have. The recordings are made byte by byte.

use perf_prof_format::abi::*;

use crate::harness::{
    made::{Made, MadeAttr, u32s, u64s},
    recording::Folder,
    run::perf_prof,
};

/// The colour of boxes that are not compared.
const GREY: &str = "rgb(205,205,205)";

/// The frames of a sample with a call chain.
const CHAIN: [u64; 4] = [3, PERF_CONTEXT_USER, 0x1000, 0x2000];

/// Returns a recording of four samples of each of these software events, whose samples have call chains or not.
fn recording<'a>(folder: &Folder, name: &'a str, events: &[(u64, bool)]) -> &'a str {
    let members = |has_chains: bool| {
        let further = if has_chains { PERF_SAMPLE_CALLCHAIN } else { 0 };
        PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | further
    };
    let attr = |&(config, has_chains): &(u64, bool)| MadeAttr { config, ..MadeAttr::new(members(has_chains)) };
    let mut attrs = events.iter().map(attr);
    let mut made = Made::new(attrs.next().unwrap());
    made.attrs.extend(attrs);
    for number in 0..4 {
        for (id, &(_, has_chains)) in (0..).zip(events) {
            let time = 1000 * (number + 1) + id;
            let chain = if has_chains { u64s(&CHAIN) } else { Vec::new() };
            made = made.sample(PERF_RECORD_MISC_USER, &[u64s(&[50 + id, 0x1000]), u32s(&[7, 7]), u64s(&[time]), chain]);
        }
    }
    folder.write(name, &made.pipe());
    name
}

/// Returns the picture of the difference, and what `report` says.
fn difference(folder: &Folder, before: &str, after: &str) -> (String, String) {
    let args = ["report", "-q", "-i", after, "--diff", before, "--flame", "x.svg"];
    let output = perf_prof(&args).current_dir(folder.path("")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    (std::fs::read_to_string(folder.path("x.svg")).unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn events_that_only_the_later_recording_has_are_grey() {
    let folder = Folder::new();
    let before = recording(&folder, "before.data", &[(PERF_COUNT_SW_CPU_CLOCK, true)]);
    let both = [(PERF_COUNT_SW_CPU_CLOCK, true), (PERF_COUNT_SW_PAGE_FAULTS, true)];
    let after = recording(&folder, "after.data", &both);
    let (svg, _) = difference(&folder, before, after);
    assert!(svg.contains("grey: not compared") && svg.contains(GREY), "{svg}");
    assert!(svg.contains("not in ") && svg.contains("white: the same"), "{svg}");
    let (svg, _) = difference(&folder, after, after);
    assert!(!svg.contains("grey") && !svg.contains(GREY), "{svg}");
    let other = recording(&folder, "other.data", &[(PERF_COUNT_SW_PAGE_FAULTS, true)]);
    let (svg, said) = difference(&folder, before, other);
    assert!(svg.contains("grey: nothing is compared, because no event is in both recordings"), "{svg}");
    assert!(svg.contains(GREY) && said.contains("no event in common"), "{said}");
}

/// Functions without callers are other chains, so all would be new.
#[test]
fn events_with_call_chains_in_one_recording_are_not_compared() {
    let folder = Folder::new();
    let with = recording(&folder, "with.data", &[(PERF_COUNT_SW_CPU_CLOCK, true)]);
    let without = recording(&folder, "without.data", &[(PERF_COUNT_SW_CPU_CLOCK, false)]);
    for (before, after, lacking) in [(without, with, without), (with, without, "the later recording")] {
        let (svg, said) = difference(&folder, before, after);
        let text = format!("{lacking} has no call chains of cpu-clock, so functions cannot be compared");
        assert!(said.contains(&format!("warning: {text}; `perf-prof record -g` records call chains")), "{said}");
        assert!(svg.contains("grey: nothing is compared") && svg.contains(GREY) && !svg.contains("; new)"), "{svg}");
        assert!(svg.contains("has no call chains of cpu-clock"), "{svg}");
    }
    for same in [with, without] {
        let (svg, said) = difference(&folder, same, same);
        assert!(!svg.contains("no call chains") && !svg.contains(GREY) && said.is_empty(), "{said} {svg}");
    }
    // Other events are compared.
    let faults = (PERF_COUNT_SW_PAGE_FAULTS, true);
    let before = recording(&folder, "before.data", &[(PERF_COUNT_SW_CPU_CLOCK, false), faults]);
    let after = recording(&folder, "after.data", &[(PERF_COUNT_SW_CPU_CLOCK, true), faults]);
    let (svg, _) = difference(&folder, before, after);
    assert!(svg.contains("white: the same") && svg.contains("grey: not compared"), "{svg}");
}
