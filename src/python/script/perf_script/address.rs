//! The meaning of the address that was recorded with a sample.

use perf_prof_format::abi::*;

/// What the recorded addresses of an event mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// The values are addresses of code or data. perf looks up their symbols.
    Resolved,
    /// The values are plain numbers.
    Plain,
}

impl Address {
    /// Returns what the addresses of an event with this attr mean. perf looks up the addresses of page faults and of
    /// branches (`sample_addr_correlates_sym()` in `tools/perf/util/event.c`).
    pub fn of(attr: &[u8]) -> Address {
        let word = |at: usize| attr.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_ne_bytes);
        // The members `type`, `config` and `sample_period` of the attr.
        match (word(0) as u32, word(8), word(16)) {
            (
                PERF_TYPE_SOFTWARE,
                PERF_COUNT_SW_PAGE_FAULTS | PERF_COUNT_SW_PAGE_FAULTS_MIN | PERF_COUNT_SW_PAGE_FAULTS_MAJ,
                _,
            )
            | (PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS, 1) => Address::Resolved,
            _ => Address::Plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_page_faults_and_branches_are_looked_up() {
        let of = |kind: u32, config: u64, period: u64| {
            let attr = [kind.to_ne_bytes(), [0; 4]].concat();
            Address::of(&[attr, config.to_ne_bytes().into(), period.to_ne_bytes().into()].concat())
        };
        assert_eq!(of(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MAJ, 7), Address::Resolved);
        assert_eq!(of(PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS, 1), Address::Resolved);
        assert_eq!(of(PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS, 2), Address::Plain);
        assert_eq!(of(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, 1), Address::Plain);
        assert_eq!(Address::of(&[]), Address::Plain);
    }
}
