//! Demangles the names of C++ and Rust functions.

use cpp_demangle::{BorrowedSymbol, DemangleOptions, ParseOptions};

/// The maximum nesting depth in a name. Names with deeper nesting are not demangled, because the parser is recursive
/// and a name may be any text.
const DEPTH: u32 = 96;
/// The maximum size of a name in bytes, both mangled and demangled. Longer names are shown mangled. Without this limit,
/// a few bytes of substitutions could expand to gigabytes.
const LONGEST: usize = 64 << 10;

/// Returns the name as it is written in the source; `None` if the name is not mangled or cannot be parsed.
pub fn demangle(name: &str) -> Option<String> {
    demangle_with(name, DemangleOptions::new())
}

/// Returns the name as [`demangle`] does, but without the parameters and the return type of a C++ function.
pub fn demangle_name(name: &str) -> Option<String> {
    demangle_with(name, DemangleOptions::new().no_params().no_return_type())
}

fn demangle_with(name: &str, options: DemangleOptions) -> Option<String> {
    if name.len() > LONGEST {
        return None;
    }
    // A suffix may follow the hash of a Rust name (`17h...`). Compilers append it, for example `.cold` or `.llvm.123`,
    // when they split or copy functions.
    if name.starts_with("_R") || (name.starts_with("_ZN") && name.contains("17h")) {
        // The alternate format omits the hash.
        if let Ok(demangled) = rustc_demangle::try_demangle(name) {
            return bounded(format_args!("{demangled:#}"));
        }
    }
    let start = ["_Z", "__Z", "___Z", "____Z"].into_iter().find(|prefix| name.starts_with(prefix))?;
    let (symbol, tail) = BorrowedSymbol::with_tail_and_options(
        &name.as_bytes()[start.len() - 2..],
        &ParseOptions::default().recursion_limit(DEPTH),
    )
    .ok()?;
    let mut text = Bounded(String::new());
    symbol.structured_demangle(&mut text, &options.recursion_limit(DEPTH)).ok()?;
    let mut text = text.0;
    if !tail.is_empty() {
        text.push_str(" [clone ");
        text.push_str(std::str::from_utf8(tail).ok()?);
        text.push(']');
    }
    Some(text)
}

fn bounded(text: std::fmt::Arguments<'_>) -> Option<String> {
    let mut bounded = Bounded(String::new());
    std::fmt::Write::write_fmt(&mut bounded, text).ok()?;
    Some(bounded.0)
}

/// A text of at most `LONGEST` bytes. Writing a longer text fails.
struct Bounded(String);

impl std::fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if self.0.len() + text.len() > LONGEST {
            return Err(std::fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_both_languages_and_of_none() {
        let shown = |name| demangle(name).unwrap_or_else(|| "-".to_owned());
        assert_eq!(shown("_ZN3foo3barEi"), "foo::bar(int)");
        assert_eq!(shown("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"), "core::fmt::Write::write_fmt");
        assert_eq!(shown("_RNvC6_123foo3bar"), "123foo::bar");
        assert_eq!(shown("_ZN3foo3barEi.cold"), "foo::bar(int) [clone .cold]");
        assert_eq!(shown("main"), "-");
        assert_eq!(shown("_Zweird"), "-");
    }

    #[test]
    fn names_without_parameters() {
        let shown = |name| demangle_name(name).unwrap_or_else(|| "-".to_owned());
        assert_eq!(shown("_ZN3foo3barEi"), "foo::bar");
        assert_eq!(shown("_ZNK4llvm8Function14hasFnAttributeENS_9StringRefE"), "llvm::Function::hasFnAttribute");
        assert_eq!(shown("_Z3maxIiET_S0_S0_"), "max<int>");
        assert_eq!(shown("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"), "core::fmt::Write::write_fmt");
        assert_eq!(shown("main"), "-");
    }

    #[test]
    fn a_name_that_spells_out_gigabytes_is_left_as_it_is() {
        let mut name = String::from("_Z1fI1aE");
        for at in 0..40 {
            name.push_str(&format!("1gIS{}_S{}_E", ["", "0", "1", "2"][at % 4], ["", "0", "1", "2"][at % 4]));
        }
        let _ = demangle(&name);
        let _ = demangle(&format!("_Z{}", "P".repeat(60_000)));
        let _ = demangle(&format!("_ZN{}17h0123456789abcdefE", "1a".repeat(20_000)));
    }
}
