//! Finds names similar to a mistyped name, for "did you mean".

/// The lowest similarity of a suggestion. A less similar name would confuse more than help.
const GOOD: f64 = 0.8;

/// The maximum difference between the similarity of a suggestion and the similarity of the best match. Names that are
/// less similar are not suggested.
const SPREAD: f64 = 0.08;

/// The maximum length of a text that is compared, in bytes. No name of an event, option or field is longer. Comparing a
/// longer text with all names would take seconds.
const LONGEST: usize = 256;

/// Returns up to three names from `among` that the user may have meant by `what`, the best match first.
pub fn similar_names<N: AsRef<str>>(what: &str, among: impl IntoIterator<Item = N>) -> Vec<String> {
    if what.len() > LONGEST {
        return Vec::new();
    }
    let wanted = what.to_lowercase();
    let mut found: Vec<(f64, N)> = among
        .into_iter()
        .map(|name| (similarity(&wanted, &name.as_ref().to_lowercase()), name))
        .filter(|(score, _)| *score >= GOOD)
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.as_ref().cmp(b.1.as_ref())));
    found.dedup_by(|a, b| a.1.as_ref() == b.1.as_ref());
    let best = found.first().map_or(0.0, |(score, _)| *score);
    let close = found.into_iter().take_while(|(score, _)| *score >= best - SPREAD);
    close.take(3).map(|(_, name)| name.as_ref().to_owned()).collect()
}

/// Returns the end of a message: `; did you mean comm or comms?`. Empty if there are no names.
pub fn did_you_mean(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; did you mean {}?", names.join(" or ")) }
}

/// Like [`did_you_mean`], with each name between backticks.
pub fn did_you_mean_quoted(names: &[String]) -> String {
    did_you_mean(&names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>())
}

/// Returns a part of a message: ` (did you mean comm or comms?)`. Empty if there are no names.
pub fn did_you_mean_aside(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!(" (did you mean {}?)", names.join(" or ")) }
}

/// Returns the similarity of two names from 0 to 1: 1 minus the edit distance relative to the length. If the names
/// differ only in the `system:`, the similarity is at least 0.99. Two swapped letters are a good match even in a short
/// name.
fn similarity(wanted: &str, name: &str) -> f64 {
    if wanted.len() == name.len()
        && strsim::damerau_levenshtein(wanted, name) == 1
        && strsim::levenshtein(wanted, name) == 2
    {
        return 0.9;
    }
    // A name with one letter too few or too many is a good match even if the name is short: `com` for `comm`.
    let shorter = wanted.len().min(name.len());
    if shorter >= 3 && wanted.len().abs_diff(name.len()) == 1 && strsim::levenshtein(wanted, name) == 1 {
        return strsim::normalized_damerau_levenshtein(wanted, name).max(GOOD);
    }
    let short = |text: &str| text.rsplit_once(':').map(|(_, last)| last.to_owned());
    let whole = strsim::normalized_damerau_levenshtein(wanted, name);
    match (short(wanted), short(name)) {
        (None, Some(last)) => whole.max(0.99 * strsim::normalized_damerau_levenshtein(wanted, &last)),
        (Some(wanted), Some(last)) if wanted == last => whole.max(0.99),
        _ => whole,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    const NAMES: [&str; 8] = [
        "sched:sched_wakeup",
        "sched:sched_wakeup_new",
        "sched:sched_waking",
        "sched:sched_switch",
        "syscalls:sys_enter_openat",
        "syscalls:sys_enter_openat2",
        "kmem:kmalloc",
        "xdp:xdp_devmap_xmit",
    ];

    #[track_caller]
    fn check(what: &str, expected: Expect) {
        expected.assert_eq(&similar_names(what, NAMES).join(" "));
    }

    /// Without `LONGEST`, this comparison would take seconds, because its time grows with both lengths.
    #[test]
    fn a_text_that_is_longer_than_any_name_is_compared_with_none() {
        let (start, long) = (std::time::Instant::now(), "sched:".repeat(100_000));
        assert!(similar_names(&long, (0..3000).map(|number| format!("sched:event_{number}"))).is_empty());
        assert!(start.elapsed().as_secs() < 10);
    }

    #[test]
    fn did_you_mean() {
        check("sched:sched_wakup", expect!["sched:sched_wakeup"]);
        check("sched:sched_swithc", expect!["sched:sched_switch"]);
        check("sched_wakeup", expect!["sched:sched_wakeup"]);
        check("SCHED:SCHED_SWITCH", expect!["sched:sched_switch"]);
        check("scheduler:sched_switch", expect!["sched:sched_switch"]);
        check("syscall:sys_enter_openat", expect!["syscalls:sys_enter_openat syscalls:sys_enter_openat2"]);
        check("kmem:malloc", expect!["kmem:kmalloc"]);
        check("nothing:like_it", expect![""]);
        assert_eq!(similar_names("com", ["comm", "cpu", "waker_comm"]), ["comm"]);
        assert!(similar_names("pif", ["pid"]).is_empty());
        check("", expect![""]);
    }
}
