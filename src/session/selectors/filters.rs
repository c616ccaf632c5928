//! Texts of filters of several selectors that share the samples of one event.

use std::collections::HashSet;

/// The maximum length of a filter, in bytes. The kernel accepts one page (`perf_event_set_filter()` in
/// kernel/events/core.c).
const LONGEST_FILTER: usize = 4000;

/// Returns a filter that passes each sample that at least one of the filters passes. `None` passes everything.
pub fn union_of_filters<'a>(filters: impl Iterator<Item = Option<&'a str>>) -> Option<String> {
    let mut all: Vec<&str> = filters.collect::<Option<_>>()?;
    let mut seen = HashSet::new();
    all.retain(|filter| seen.insert(*filter));
    if let [only] = all.as_slice() {
        return Some((*only).to_owned());
    }
    let union = all.iter().map(|filter| format!("({filter})")).collect::<Vec<_>>().join(" || ");
    (union.len() <= LONGEST_FILTER).then_some(union)
}

/// Returns whether events that were recorded with the filter `recorded` are all that pass the filter `own`. Compares
/// texts, so it returns false for some filters that do.
pub fn covers(recorded: &str, own: &str) -> bool {
    let bare = |term: &str| term.trim_matches(['(', ')']).to_owned();
    let has = |term: &str| recorded.split(" || ").any(|other| bare(other) == bare(term));
    recorded == own || !recorded.contains("&&") && own.split(" || ").all(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_union_passes_what_each_filter_passes() {
        let union = |filters: &[Option<&str>]| union_of_filters(filters.iter().copied());
        assert_eq!(union(&[Some("a == 1"), Some("b == 2 && c")]).unwrap(), "(a == 1) || (b == 2 && c)");
        assert_eq!(union(&[Some("a == 1"), Some("b"), Some("a == 1")]).unwrap(), "(a == 1) || (b)");
        assert_eq!(union(&[Some("a == 1"), Some("a == 1")]).unwrap(), "a == 1");
        assert_eq!(union(&[Some("a == 1"), None]), None);
        let long = format!("a == 1{}", " || a == 1".repeat(300));
        assert_eq!(union(&[Some(&long), Some("b"), Some(&format!("{long} || c"))]), None, "the kernel refuses it");
    }

    #[test]
    fn a_filter_covers_itself_and_parts_of_a_union() {
        assert!(covers("id == 0", "id == 0") && covers("(id == 0) || (id == 3)", "id == 3"));
        assert!(covers("id == 0 || id == 3", "id == 3 || id == 0"));
        assert!(!covers("id == 0", "id == 0 || id == 3") && !covers("id == 0 && ret", "id == 0"));
    }
}
