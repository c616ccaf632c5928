//! Translates a PMU's terms to the config fields of an attr, following the PMU's `format` and `events`. Opens no file.

use perf_prof_format::spec::{Term, similar_names, terms};
use perf_prof_system::pmu::Pmu;

use super::{SourceError, perf_event::value};

/// The fields of the attr that terms set, in the order in which they are returned.
const CONFIGS: [&str; 4] = ["config", "config1", "config2", "config3"];

/// Returns the attr's `config`, `config1`, `config2` and `config3` for the terms `given`. `own` are the terms that all
/// PMUs accept; they are used only in messages.
pub(super) fn configs(pmu: &Pmu, given: &[Term], own: &[&str]) -> Result<[u64; 4], SourceError> {
    let mut configs = [0; 4];
    for term in given {
        if let Some(at) = CONFIGS.iter().position(|config| *config == term.name) {
            configs[at] |= value(&pmu.name, term)?;
        } else if let Some((_, bits)) = pmu.format.iter().find(|(name, _)| *name == term.name) {
            set(&mut configs, pmu, bits, term)?;
        } else if let Some((_, event)) = pmu.events.iter().find(|(name, _)| *name == term.name && term.value.is_none())
        {
            // The kernel's definition of an event should contain only terms of the PMU's format, so other terms are
            // ignored. The name of another event in a definition would be a bug of the kernel.
            let of_format = |term: &Term| pmu.format.iter().any(|(name, _)| *name == term.name) || is_config(term);
            let inner: Vec<Term> = terms(event).into_iter().filter(of_format).collect();
            let inner = self::configs(pmu, &inner, own)?;
            configs.iter_mut().zip(inner).for_each(|(config, more)| *config |= more);
        } else {
            return Err(unknown(pmu, term, own));
        }
    }
    Ok(configs)
}

fn is_config(term: &Term) -> bool {
    CONFIGS.contains(&term.name.as_str())
}

/// Puts a term's value into the bits that `bits` describes, for example `config1:0-7,32-35`. The lowest bits of the
/// value go into the first range.
fn set(configs: &mut [u64; 4], pmu: &Pmu, bits: &str, term: &Term) -> Result<(), SourceError> {
    let given = value(&pmu.name, term)?;
    let (config, ranges) = bits.split_once(':').unwrap_or((bits, "0-63"));
    let Some(at) = CONFIGS.iter().position(|known| *known == config) else { return Err(unknown(pmu, term, &[])) };
    let mut left = given;
    for range in ranges.split(',') {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let (Ok(low), Ok(high)) = (low.trim().parse::<u32>(), high.trim().parse::<u32>()) else { continue };
        let Some(width) = high.checked_sub(low).filter(|_| high < u64::BITS).map(|wide| wide + 1) else { continue };
        let mask = u64::MAX >> (u64::BITS - width);
        configs[at] = configs[at] & !(mask << low) | (left & mask) << low;
        left = left.checked_shr(width).unwrap_or(0);
    }
    if left == 0 {
        return Ok(());
    }
    let (event, term) = (pmu.name.clone(), term.name.clone());
    Err(SourceError::Value { event, term, value: format!("{given:#x}"), why: format!(": it has only the bits {bits}") })
}

fn unknown(pmu: &Pmu, term: &Term, own: &[&str]) -> SourceError {
    let names = pmu.format.iter().chain(&pmu.events).map(|(name, _)| name.as_str());
    let known: Vec<String> = names.chain(CONFIGS).chain(own.iter().copied()).map(str::to_owned).collect();
    let near = similar_names(&term.name, &known);
    SourceError::Term { event: pmu.name.clone(), term: term.name.clone(), near, known }
}
