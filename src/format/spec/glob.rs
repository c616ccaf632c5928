//! Wildcards in event names: `*`, `?`, `[a-z]`, `[!a-z]`.
//!
//! The rules are those of the kernel's `lib/glob.c`: a `[` that is never closed stands for itself.

/// Returns whether `text` contains a wildcard.
pub fn is_glob(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Returns whether the whole of `text` matches `glob`.
pub fn glob_matches(glob: &str, text: &str) -> bool {
    let (glob, text) = (glob.as_bytes(), text.as_bytes());
    let (mut g, mut t) = (0, 0);
    // The position in `glob` after the last `*`, and the position in `text` after the bytes that this `*` matches. If
    // the rest of `text` does not match, this `*` takes one more byte, and matching continues after this byte.
    let mut star: Option<(usize, usize)> = None;
    loop {
        let step = match (glob.get(g), text.get(t)) {
            (None, None) => return true,
            (Some(b'*'), _) => {
                star = Some((g + 1, t));
                g += 1;
                continue;
            }
            (Some(b'?'), Some(_)) => Some(1),
            (Some(b'['), Some(&byte)) => match class(&glob[g + 1..], byte) {
                Some((true, length)) => Some(1 + length),
                Some((false, _)) => None,
                None => (byte == b'[').then_some(1),
            },
            (Some(a), Some(b)) => (a == b).then_some(1),
            (None, Some(_)) | (Some(_), None) => None,
        };
        match (step, star) {
            (Some(length), _) => {
                g += length;
                t += 1;
            }
            (None, Some((after, taken))) if taken < text.len() => {
                (g, t) = (after, taken + 1);
                star = Some((after, taken + 1));
            }
            (None, _) => return false,
        }
    }
}

/// Returns whether `byte` is in a character class, and the length of the class including its `]`. `rest` is the text
/// after the `[` of the class. Returns `None` if the class is never closed.
fn class(rest: &[u8], byte: u8) -> Option<(bool, usize)> {
    let negated = matches!(rest.first(), Some(b'!' | b'^'));
    let mut at = usize::from(negated);
    let first = at;
    let mut found = false;
    loop {
        let low = *rest.get(at)?;
        if low == b']' && at > first {
            return Some((found != negated, at + 1));
        }
        let high = match (rest.get(at + 1), rest.get(at + 2)) {
            (Some(b'-'), Some(&high)) if high != b']' => high,
            _ => low,
        };
        at += if rest.get(at + 1) == Some(&b'-') && rest.get(at + 2).is_some_and(|&b| b != b']') { 3 } else { 1 };
        found |= (low..=high).contains(&byte);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(glob: &str, matching: &[&str], others: &[&str]) {
        for text in matching {
            assert!(glob_matches(glob, text), "`{glob}` has to match `{text}`");
        }
        for text in others {
            assert!(!glob_matches(glob, text), "`{glob}` must not match `{text}`");
        }
    }

    #[test]
    fn wildcards() {
        check("sched", &["sched"], &["", "sche", "sched_", "xsched"]);
        check("", &[""], &["a"]);
        check("*", &["", "a", "abc"], &[]);
        check(
            "sys_*_open*",
            &["sys_enter_open", "sys_enter_openat2", "sys_a_b_open"],
            &["sys_open", "sys_enter_close"],
        );
        check("?witch", &["switch"], &["witch", "sswitch"]);
        check("sched_[sw]*", &["sched_switch", "sched_wakeup"], &["sched_migrate_task", "sched_"]);
        check("[!a-c]x", &["dx", "-x"], &["ax", "cx", "x"]);
        check("[^a-c]x", &["dx"], &["bx"]);
        check("[]a]", &["]", "a"], &["b"]);
        check("[a-]", &["a", "-"], &["b"]);
        check("a[bc", &["a[bc"], &["ab"]);
        check("**a**", &["a", "bab"], &["b"]);
    }

    proptest! {
        #[test]
        fn any_glob_on_any_text(glob in ".*", text in ".*") {
            let _ = glob_matches(&glob, &text);
        }

        #[test]
        fn agrees_with_the_obvious_recursion(glob in "[ab*?]{0,8}", text in "[ab]{0,8}") {
            fn obvious(glob: &[u8], text: &[u8]) -> bool {
                match (glob.split_first(), text.split_first()) {
                    (None, rest) => rest.is_none(),
                    (Some((b'*', after)), rest) => {
                        obvious(after, text) || rest.is_some_and(|(_, text)| obvious(glob, text))
                    }
                    (Some((a, glob)), Some((b, text))) => (a == b || *a == b'?') && obvious(glob, text),
                    (Some(_), None) => false,
                }
            }
            prop_assert_eq!(glob_matches(&glob, &text), obvious(glob.as_bytes(), text.as_bytes()));
        }
    }
}
