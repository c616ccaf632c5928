//! The kernel's lockdown mode, in which the kernel refuses some operations even to root.

use std::fs;

/// Returns whether programs may not read kernel memory, because the lockdown mode is "confidentiality".
pub fn hides_kernel_memory() -> bool {
    fs::read_to_string("/sys/kernel/security/lockdown").is_ok_and(|text| is_confidential(&text))
}

/// Returns whether the text of the lockdown file selects the strongest level, as in `none integrity [confidentiality]`.
fn is_confidential(text: &str) -> bool {
    text.split_whitespace().any(|level| level == "[confidentiality]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_in_brackets_is_the_current_one() {
        assert!(is_confidential("none integrity [confidentiality]\n"));
        assert!(!is_confidential("none [integrity] confidentiality\n"));
        assert!(!is_confidential("[none] integrity confidentiality\n"));
    }
}
