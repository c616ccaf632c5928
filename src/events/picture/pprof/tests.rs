//! Tests of profiles.

use super::*;

const NONE: FunctionLine<'_> = FunctionLine { name: "", source: None };

fn cycles(budget: &Budget) -> Profile {
    Profile::new(
        vec![Quantity { name: "cycles:u".to_owned(), unit: "count".to_owned() }],
        Values::SamplesAndPeriods,
        budget,
    )
}

fn once(periods: i64) -> Weight {
    Weight { samples: 1, periods }
}

fn text(profile: &proto::Profile, index: i64) -> &str {
    &profile.string_table[index as usize]
}

#[test]
fn equal_chains_with_equal_labels_are_one_sample() {
    let mut profile = cycles(&Budget::unlimited());
    let file = profile.mapping("/bin/x", &[0xab, 1]);
    let main = profile.location(Some(file), 0x2010, &[FunctionLine { name: "main", source: Some(("x.c", 7)) }]);
    let inlined =
        [FunctionLine { name: "f", source: Some(("f.h", 3)) }, FunctionLine { name: "g", source: Some(("x.c", 9)) }];
    let leaf = profile.location(Some(file), 0x5020, &inlined);
    let (comm, cpu, name) = (profile.text("comm"), profile.text("cpu"), profile.text("sh"));
    for number in [3, 3, 4] {
        let labels = [(comm, LabelValue::Text(name)), (cpu, LabelValue::Number(number))];
        profile.add(0, [main, leaf], &labels.map(|(key, value)| Label { key, value }), once(10));
    }
    let made = profile.message(&About { duration: 5, period: None, ..About::default() });
    let values: Vec<&[i64]> = made.sample.iter().map(|sample| &*sample.value).collect();
    assert_eq!(values, [[2, 20], [1, 10]]);
    assert_eq!(made.sample[0].location_id, [2, 1]);
    let types: Vec<_> = made.sample_type.iter().map(|of| (text(&made, of.r#type), text(&made, of.unit))).collect();
    assert_eq!(types, [("samples", "count"), ("cycles_u", "count")]);
    assert_eq!((made.period, made.duration_nanos, text(&made, made.default_sample_type)), (10, 5, "cycles_u"));
    let mapping = &made.mapping[0];
    let range = (mapping.memory_start, mapping.memory_limit, mapping.file_offset);
    assert_eq!((range, text(&made, mapping.build_id)), ((0x2000, 0x6000, 0x2000), "ab01"));
    assert!(mapping.has_functions && mapping.has_line_numbers && mapping.has_inline_frames);
    let functions: Vec<_> =
        made.location[1].line.iter().map(|line| made.function[line.function_id as usize - 1].name).collect();
    assert_eq!(functions.iter().map(|&name| text(&made, name)).collect::<Vec<_>>(), ["f", "g"]);
}

#[test]
fn each_event_with_samples_has_its_own_values() {
    let events = ["a", "never", "b"].map(|name| Quantity { name: name.to_owned(), unit: "count".to_owned() });
    let mut profile = Profile::new(events.into(), Values::SamplesAndPeriods, &Budget::unlimited());
    let place = profile.location(None, 0, &[FunctionLine { name: "f", ..NONE }]);
    profile.add(2, [place], &[], once(5));
    profile.add(0, [place], &[], once(6));
    let made = profile.message(&About::default());
    let types: Vec<_> = made.sample_type.iter().map(|of| text(&made, of.r#type)).collect();
    assert_eq!(types, ["a.samples", "a", "b.samples", "b"]);
    assert_eq!(made.sample.iter().map(|of| of.value.clone()).collect::<Vec<_>>(), [[0, 0, 1, 5], [1, 6, 0, 0]]);
    assert_eq!(made.period_type, None);
}

#[test]
fn the_first_mapping_is_the_main_program() {
    let mut profile = cycles(&Budget::unlimited());
    let files =
        ["[kernel.kallsyms]", "/lib/libc.so.6", "/bin/sh", "/bin/work", "//anon", "/x/app.py", "/lib/m/ext4.ko.xz"];
    let files = files.map(|name| profile.mapping(name, &[]));
    let places = files.map(|file| profile.location(Some(file), 0x1000, &[NONE]));
    let [kernel, libc, sh, work, anon, script, module] = places;
    for (chain, count) in
        [(&[sh, libc, kernel][..], 3), (&[work, work, libc, kernel], 5), (&[anon, kernel, module], 9), (&[script], 9)]
    {
        (0..count).for_each(|_| profile.add(0, chain.iter().copied(), &[], once(1)));
    }
    let made = profile.message(&About::default());
    let names: Vec<_> = made.mapping.iter().map(|mapping| text(&made, mapping.filename)).collect();
    let expected =
        ["/bin/work", "[kernel.kallsyms]", "/lib/libc.so.6", "/bin/sh", "//anon", "/x/app.py", "/lib/m/ext4.ko.xz"];
    assert_eq!(names, expected);
    assert!((1..).zip(&made.mapping).all(|(id, mapping)| mapping.id == id));
    let of_places: Vec<_> = made.location.iter().map(|of| names[of.mapping_id as usize - 1]).collect();
    assert_eq!(of_places[..4], ["[kernel.kallsyms]", "/lib/libc.so.6", "/bin/sh", "/bin/work"]);
    assert_eq!((made.mapping[0].memory_start, made.mapping[0].file_offset), (0x1000, 0x1000));
}

#[test]
fn without_a_program_the_first_mapping_is_another_file() {
    for (names, first) in [
        (&["[kernel.kallsyms]", "[vdso]"][..], "[kernel.kallsyms]"),
        (&["[kernel.kallsyms]", "/lib/libc.so.6"], "/lib/libc.so.6"),
        (&["[kernel.kallsyms]", "/memfd:jit", "/dev/zero (deleted)"], "[kernel.kallsyms]"),
        (&["[kernel.kallsyms]", "/memfd:jit (deleted)", "/lib/libjvm.so (deleted)"], "/lib/libjvm.so (deleted)"),
        (&["/lib/libjvm.so (deleted)", "/lib/libjvm.so (deleted)", "/bin/java (deleted)"], "/bin/java (deleted)"),
    ] {
        let mut profile = cycles(&Budget::unlimited());
        for name in names {
            let file = profile.mapping(name, &[]);
            let place = profile.location(Some(file), 0, &[NONE]);
            profile.add(0, [place], &[], once(1));
        }
        let made = profile.message(&About::default());
        assert_eq!(text(&made, made.mapping[0].filename), first);
    }
}

#[test]
fn a_profile_without_memory_keeps_the_sums() {
    let budget = Budget::new(1 << 20);
    let mut profile = cycles(&budget);
    for number in 0..20_000 {
        let name = format!("f{number}");
        let place = profile.location(None, 0, &[FunctionLine { name: &name, ..NONE }]);
        profile.add(0, [place], &[], once(2));
    }
    let held = budget.held();
    let made = profile.message(&About::default());
    let total = made.sample.iter().map(|of| of.value[1]).sum::<i64>();
    assert!(profile.cut() > 0 && total == 40_000 && held <= budget.share(), "{total} {held}");
    assert!(made.comment.iter().any(|&at| text(&made, at).starts_with("partial: ")));
}

#[test]
fn labels_are_renamed() {
    let mut profile = cycles(&Budget::unlimited());
    let (comm, unnamed) = (profile.text("comm"), profile.text(":7"));
    profile.add(0, [], &[Label { key: comm, value: LabelValue::Text(unnamed) }], once(1));
    profile.rename(comm, &HashMap::from([(":7".to_owned(), "sh".to_owned())]));
    let made = profile.message(&About::default());
    assert_eq!(text(&made, made.sample[0].label[0].str), "sh");
}

#[test]
fn a_packed_profile_is_gzip() {
    let mut bytes = Vec::new();
    cycles(&Budget::unlimited()).write(&About::default(), Packing::Gzip, &mut bytes).unwrap();
    assert_eq!(bytes[..2], [0x1f, 0x8b]);
}
