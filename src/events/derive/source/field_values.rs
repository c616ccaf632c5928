//! The texts that a field of a source can contain.

use std::borrow::Cow;

use perf_prof_format::spec::{glob_matches, is_glob};

/// The texts that a field can contain. An empty text is always possible too.
#[derive(Clone, Copy, Debug)]
pub struct FieldValues {
    /// The function that returns the texts.
    pub list: fn() -> Vec<Cow<'static, str>>,
    /// The prefix of texts for numbers without a name, for example `sys_` for `sys_999`; empty if there are none.
    pub unnamed: &'static str,
}

impl FieldValues {
    /// Returns whether a field can contain this text, or a text that matches this pattern.
    pub(super) fn may_be(self, text: &str) -> bool {
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        match is_glob(text) {
            true => {
                (self.list)().iter().any(|value| glob_matches(text, value))
                    || !self.unnamed.is_empty() && text.starts_with(self.unnamed)
            }
            false => {
                text.is_empty()
                    || text.strip_prefix(self.unnamed).is_some_and(is_number)
                    || (self.list)().iter().any(|value| value == text)
            }
        }
    }
}
