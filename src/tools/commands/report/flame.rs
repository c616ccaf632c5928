//! The report as a flame graph, of one recording or of the difference of two.

use std::{ffi::OsStr, fs, io::Write as _, path::PathBuf};

use anyhow::{Context as _, Result};
use perf_prof_events::{
    event::Shares,
    picture::{
        DrawError, EventWeights, FlameGraphStyle, Roots, StackDifference, Stacks, draw, draw_difference, draw_events,
        note_of_cut_chains, weight_text,
    },
};
use perf_prof_system::output;

use super::{
    super::period::PeriodUnit,
    Added, Before,
    difference::{ChainsApart, shares_no_event},
};

/// A flame graph of the samples of a recording.
#[derive(Clone, Debug)]
pub struct FlamePlan {
    /// The path of the file. If it ends in `.folded`, the file contains folded stacks as text. Otherwise it is an SVG
    /// picture.
    pub path: PathBuf,
}

/// Returns the unit in which a flame graph shows weights, and the number by which weights are divided.
fn shown(unit: &PeriodUnit) -> (String, u64) {
    match unit {
        PeriodUnit::Nanoseconds => ("us".to_owned(), 1000),
        PeriodUnit::Occurrences(name) => (name.clone(), 1),
    }
}

/// Returns the weights of the events that have any.
fn weights(added: &Added) -> Vec<EventWeights> {
    let events = added.names.iter().zip(&added.units).zip(&added.sums.shares);
    let weights = events.filter(|(_, shares)| shares.total() != 0).map(|((name, unit), shares)| {
        let (count_name, divisor) = shown(unit);
        EventWeights { name: name.clone(), total: shares.total(), count_name, divisor }
    });
    weights.collect()
}

/// Returns the unit of a sum of all events. `None` if a sum would mean nothing: their units differ, or they measure the same time or
/// the same cycles twice. Only different tracepoints are always different occurrences.
fn common_unit(added: &Added) -> Option<&PeriodUnit> {
    let have_any = added.units.iter().zip(&added.sums.shares).filter(|(_, shares)| shares.total() != 0);
    let units: Vec<&PeriodUnit> = have_any.map(|(unit, _)| unit).collect();
    match units[..] {
        [] => added.units.first(),
        [unit] => Some(unit),
        [first, ..] => Some(first).filter(|_| units.iter().all(|unit| unit.is_of_tracepoints())),
    }
}

impl FlamePlan {
    /// Writes the file.
    pub(super) fn write(&self, after: &Added, before: Option<(&Before, &Added)>) -> Result<()> {
        let Some(stacks) = &after.sums.stacks else { return Ok(()) };
        self.try_write(after, stacks, before)
            .with_context(|| format!("cannot write the flame graph {}", self.path.display()))
    }

    fn try_write(&self, after: &Added, stacks: &Stacks, before: Option<(&Before, &Added)>) -> Result<()> {
        let is_text = self.path.extension().and_then(OsStr::to_str) == Some("folded");
        let common = common_unit(after);
        let (count_name, divisor) = common.map_or_else(|| ("periods".to_owned(), 1), shown);
        let style = |subtitle, partial: Vec<String>| FlameGraphStyle {
            title: Some(title(after)),
            count_name: count_name.clone(),
            divisor,
            subtitle: Some(subtitle),
            command: after.sums.provenance.command.clone(),
            partial: (!partial.is_empty()).then(|| partial.join(", ")),
            ..FlameGraphStyle::default()
        };
        let mut to = Vec::new();
        match before {
            None if is_text && stacks.is_empty() => return Err(DrawError::Empty.into()),
            None if is_text => stacks.lines().iter().try_for_each(|line| writeln!(to, "{line}"))?,
            None if common.is_none() => {
                draw_events(stacks, &weights(after), &style(caption(after), lacks(after, stacks)), &mut to)?;
            }
            None => draw(stacks, &style(caption(after), lacks(after, stacks)), &mut to)?,
            Some((before, added)) => {
                let Some(stacks_before) = &added.sums.stacks else { return Ok(()) };
                let samples = |added| fewest_samples(added, after.sums.roots);
                let chains = ChainsApart::of(added, after);
                // Also with `-q`, because folded text does not show the problem.
                chains.lines(&before.name).iter().for_each(|line| {
                    output::say(format_args!("warning: {line}; `perf-prof record -g` records call chains"));
                });
                let difference = StackDifference::new(stacks_before, stacks, after.sums.roots)
                    .of_samples(samples(added), samples(after))
                    .without(&[&chains.lacking_before[..], &chains.lacking_after].concat());
                if is_text && difference.is_without_later() {
                    return Err(DrawError::Empty.into());
                }
                if is_text {
                    difference.lines().iter().try_for_each(|line| writeln!(to, "{line}"))?;
                } else {
                    let of = |side: &str, lacks: Vec<String>| -> Vec<String> {
                        lacks.into_iter().map(|lack| format!("{side}: {lack}")).collect()
                    };
                    let lacks = [of("before", lacks(added, stacks_before)), of("after", lacks(after, stacks))].concat();
                    let subtitle = of_difference(&before.name, added, after, &difference, &chains);
                    draw_difference(&difference, &weights(after), &style(subtitle, lacks), &mut to)?;
                }
            }
        }
        // Only now, so that an earlier picture is kept if there is nothing to draw.
        Ok(fs::write(&self.path, to)?)
    }
}

/// The maximum length of the events' names in a title, in characters. A longer title would run into the button for the search.
const TITLE: usize = 60;

/// Returns what the stacks of a recording lack: samples, or callers.
fn lacks(added: &Added, stacks: &Stacks) -> Vec<String> {
    let callers = [note_of_cut_chains(added.sums.cut_stacks), added.sums.context.endings().summary(), stacks.cut_off()];
    added.missing.reasons().into_iter().chain(callers.into_iter().flatten()).collect()
}

/// Returns the title: the names of the events, the host and the date.
fn title(Added { names, sums, .. }: &Added) -> String {
    let events = Some(names.join(", ")).filter(|text| names.len() < 2 || text.chars().count() <= TITLE);
    let events = events.unwrap_or_else(|| format!("{} events", names.len()));
    let host = sums.provenance.host.iter().map(|host| format!(" on {host}"));
    let began = sums.provenance.date().into_iter().map(|began| format!(", {began}"));
    [events].into_iter().chain(host).chain(began).collect()
}

/// Returns the number of samples that are compared: those of the event with the fewest, if each event is compared by itself.
fn fewest_samples(added: &Added, roots: Roots) -> u64 {
    let samples = added.sums.shares.iter().map(Shares::samples).filter(|&count| count != 0);
    match roots {
        Roots::Events => samples.min().unwrap_or(0),
        Roots::Tasks => samples.sum(),
    }
}

/// Returns the total, the duration of the recording, and how many samples there are, unless the total says it.
fn caption(added: &Added) -> String {
    let count: u64 = added.sums.shares.iter().map(Shares::samples).sum();
    let total: u64 = added.sums.shares.iter().map(Shares::total).sum();
    let samples = if count == total { String::new() } else { format!(", {}", weight_text(count, "samples")) };
    subtitle(added) + &samples
}

/// Returns the total, and the duration of the recording.
fn subtitle(added: &Added) -> String {
    let total = added.sums.shares.iter().map(Shares::total).sum();
    common_unit(added).map_or_else(|| apart(added), |unit| unit.sum(total)) + &added.sums.provenance.within()
}

/// Returns the subtitle of events that are apart. A sum of different things means nothing, and each event shows its own in its box.
fn apart(added: &Added) -> String {
    match weights(added).len() {
        1 => "1 kind of event".to_owned(),
        events => format!("{events} kinds of events (each has the same width)"),
    }
}

/// Returns the subtitle of a difference: what both sides are, and what the colours mean.
fn of_difference(
    name: &str,
    before: &Added,
    after: &Added,
    difference: &StackDifference,
    chains: &ChainsApart,
) -> String {
    let are_apart = after.sums.roots == Roots::Events;
    let side = |added: &Added| {
        let samples = weight_text(added.sums.shares.iter().map(Shares::samples).sum(), "samples");
        let sum = if are_apart { apart(added) + &added.sums.provenance.within() } else { subtitle(added) };
        format!("{sum}, {samples}")
    };
    let place = before.sums.provenance.place().map_or_else(String::new, |place| format!(" on {place}"));
    let up_to = if are_apart { "up to " } else { "" };
    let part = |share: f64, what: String| (share > 0.0).then(|| format!("; {what} ({up_to}{share:.2} points)"));
    let new =
        part(difference.new_share(), format!("violet: it is not in {name}, with what it calls")).unwrap_or_default();
    let gone = part(difference.gone_share(), format!("chains that are only in {name} have no box")).unwrap_or_default();
    let chance = difference.by_chance().map(|points| format!("; up to {points:.1} points may be chance"));
    let not_compared = if difference.leaves_out_any() { "; grey: not compared" } else { "" };
    let mut colours = format!(
        "red: this chain of calls has a larger share than in {name}, blue: a smaller one, white: the same, each without what it \
         calls (the strongest colour: {:.2} points{}){new}{not_compared}{gone}",
        difference.strongest_change(),
        chance.unwrap_or_default(),
    );
    if shares_no_event(&after.names, &before.names) {
        colours = "grey: nothing is compared, because no event is in both recordings".to_owned();
    } else if !difference.compares_any() {
        colours = "grey: nothing is compared".to_owned();
    }
    let [only_before, only_after] = [(before, after), (after, before)].map(|(of, other)| {
        let names: Vec<String> = weights(of).into_iter().map(|event| event.name).collect();
        let others: Vec<String> = weights(other).into_iter().map(|event| event.name).collect();
        let missing = names.into_iter().filter(|name| shares_no_event(std::slice::from_ref(name), &others));
        missing.collect::<Vec<_>>().join(", ")
    });
    let apart = [(only_before, format!("only in {name}, and not compared")), (only_after, format!("not in {name}"))];
    let apart: String = apart
        .iter()
        .filter(|(events, _)| !events.is_empty())
        .fold(String::new(), |text, (events, what)| format!("{text}\n{what}: {events}"));
    let chains: String = chains.lines(name).into_iter().map(|line| format!("\n{line}")).collect();
    format!("after: {}\nbefore: {} ({name}{place})\n{colours}{apart}{chains}", side(after), side(before))
}
