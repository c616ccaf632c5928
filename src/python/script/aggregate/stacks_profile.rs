//! Converts the table of `Stacks` to a profile of pprof.

use std::{
    io,
    time::{SystemTime, UNIX_EPOCH},
};

use perf_prof_events::{
    aggregate::{KeyPart, note_of_folded},
    event::OTHERS,
    picture::{
        KERNEL_SUFFIX, LongChains, PYTHON_SUFFIX,
        pprof::{About, FunctionLine, Label, LabelValue, LocationId, Packing, Profile, Quantity, Values, Weight},
    },
};
use perf_prof_session::engine::kernel_tables::SharedGroups;
use perf_prof_system::{budget::Budget, fork_lock};
use pyo3::prelude::*;

use super::{super::pictures::missing_callers, base::Aggregator};

/// The dso of kernel functions.
const KERNEL_FILE: &str = "[kernel.kallsyms]";

/// Returns the profile, compressed by gzip. Other threads of the script run meanwhile.
pub fn packed(py: Python<'_>, of: &Aggregator) -> PyResult<Vec<u8>> {
    let table = of.groups().clone();
    let value = table.lock().definition().value.clone();
    let shortfall = of.fed_by().shortfall(value.as_deref());
    let unit = if value.is_some_and(|value| of.fed_by().is_time(&value)) { "nanoseconds" } else { "count" };
    let lacks = shortfall.map(|shortfall| shortfall.reasons()).into_iter().chain(missing_callers()).collect();
    Ok(py.detach(|| profile(&table, unit, lacks))?)
}

fn profile(table: &SharedGroups, unit: &str, mut lacks: Vec<String>) -> io::Result<Vec<u8>> {
    let (rows, others, folded, names, value) = {
        // A thread of the script may fork. The fork lock keeps the forked child from inheriting a locked table.
        let _held = fork_lock::hold();
        let groups = table.lock();
        let definition = groups.definition();
        let rows: Vec<_> = groups.iter().map(|(key, amount)| (key, amount.weight())).collect();
        let others = groups.others().amount.weight();
        (rows, others, note_of_folded(groups.others().keys), definition.keys.clone(), definition.value.clone())
    };
    let quantity = Quantity { name: value.unwrap_or_else(|| "samples".to_owned()), unit: unit.to_owned() };
    // The profile needs no budget, because the table has a limit already and the profile is dropped after it was
    // written.
    let mut profile = Profile::new(vec![quantity], Values::Sums, &Budget::unlimited());
    let keys: Vec<_> = names.iter().map(|name| profile.text(name.trim_start_matches('_'))).collect();
    let mut chains = LongChains::default();
    for (key, weight) in &rows {
        let Some((stack, by)) = key.split_last() else { continue };
        let labels: Vec<Label> =
            keys.iter().zip(by).map(|(&key, part)| Label { key, value: label_value(part, &mut profile) }).collect();
        let stack = stack.text();
        chains.add(stack.split(';').count(), u64::try_from(*weight).unwrap_or(0));
        let chain: Vec<_> =
            stack.split(';').filter(|name| !name.is_empty()).map(|name| location(name, &mut profile)).collect();
        add(&mut profile, chain, &labels, *weight);
    }
    if let Some(folded) = folded {
        let place = location(OTHERS, &mut profile);
        add(&mut profile, [place], &[], others);
        chains.add(1, u64::try_from(others).unwrap_or(0));
        lacks.push(folded);
    }
    lacks.extend(chains.note());
    let comments = lacks.into_iter().map(|lack| format!("partial: {lack}")).collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok();
    let time = now.and_then(|now| i64::try_from(now.as_nanos()).ok());
    let about = About { time, period: Some(1), comments, ..About::default() };
    let mut bytes = Vec::new();
    profile.write(&about, Packing::Gzip, &mut bytes)?;
    Ok(bytes)
}

/// Adds an amount if it is positive, because a profile contains no negative amounts.
fn add(profile: &mut Profile, chain: impl IntoIterator<Item = Option<LocationId>>, labels: &[Label], weight: i128) {
    let periods = i64::try_from(weight).unwrap_or(if weight < 0 { 0 } else { i64::MAX });
    if periods > 0 {
        profile.add(0, chain, labels, Weight { samples: 1, periods });
    }
}

fn label_value(part: &KeyPart, profile: &mut Profile) -> LabelValue {
    match part {
        KeyPart::Number(number) if i64::try_from(*number).is_ok() => LabelValue::Number(*number as i64),
        part => LabelValue::Text(profile.text(&part.text())),
    }
}

fn location(name: &str, profile: &mut Profile) -> Option<LocationId> {
    let (name, mapping) = match name.strip_suffix(KERNEL_SUFFIX) {
        Some(name) => (name, Some(profile.mapping(KERNEL_FILE, &[]))),
        None => (name.strip_suffix(PYTHON_SUFFIX).unwrap_or(name), None),
    };
    profile.location(mapping, 0, &[FunctionLine { name, source: None }])
}
