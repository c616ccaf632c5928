//! The hint that call chains end early, as in programs without frame pointers.

use perf_prof_events::{
    aggregate::{Groups, KeyPart},
    event::reader,
    picture::KERNEL_SUFFIX,
};

/// A call chain with at most this many user frames counts as one that ends early. A complete chain contains more: the C
/// library's frames that call main(), main() itself, and the functions that main() calls.
const SHORT: usize = 2;

/// Returns the hint if most call chains with user frames in these sums end early.
pub(super) fn hint(groups: &Groups) -> Option<&'static str> {
    let at = groups.definition().keys.iter().position(|key| is_stack(key))?;
    let (mut short, mut all) = (0, 0);
    for (key, amount) in groups.iter() {
        let Some(KeyPart::Text(chain)) = key.get(at) else { continue };
        match user_frames(&String::from_utf8_lossy(chain)) {
            0 => {}
            1..=SHORT => (short, all) = (short + amount.weight(), all + amount.weight()),
            _ => all += amount.weight(),
        }
    }
    (short * 2 > all)
        .then_some("call chains end early; programs and libraries without frame pointers need --call-graph dwarf")
}

/// Returns whether a key is a call chain: of the event itself (`_stack`), or of an event of a span (`begin.stack`).
pub(super) fn is_stack(key: &str) -> bool {
    key.rsplit('.').next().is_some_and(reader::is_stack)
}

fn user_frames(chain: &str) -> usize {
    chain.split(';').filter(|frame| !frame.is_empty() && !frame.ends_with(KERNEL_SUFFIX)).count()
}

#[cfg(test)]
mod tests {
    use perf_prof_events::aggregate::{Amount, Definition, Measure};

    use super::*;

    fn groups(chains: &[(&str, i128)]) -> Groups {
        let keys = vec!["comm".to_owned(), "_stack".to_owned()];
        let mut groups = Groups::new(Definition { keys, value: None, filter: None, limit: 100, measure: Measure::Sum });
        for (chain, weight) in chains {
            let key = [KeyPart::Text(b"make".as_slice().into()), KeyPart::Text(chain.as_bytes().into())];
            groups.add_amount(&key, &Amount::Sum(*weight));
        }
        groups
    }

    #[test]
    fn most_chains_with_user_frames_are_short() {
        assert!(hint(&groups(&[("read;do_syscall_64_[k];ksys_read_[k]", 6), ("_start;main;f;read", 5)])).is_some());
        assert!(hint(&groups(&[("read;do_syscall_64_[k];ksys_read_[k]", 5), ("_start;main;f;read", 5)])).is_none());
        // Kernel threads have no user frames.
        assert!(hint(&groups(&[("kthread_[k];worker_thread_[k]", 9), ("", 1)])).is_none());
    }
}
