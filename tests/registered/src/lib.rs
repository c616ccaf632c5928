//! `#[test]` for a test program with its own `main`. It adds the function to a list, which `main` runs.
//!
//! It replaces the standard attribute. So tests are written as usual, and no test can be missing from the list.

use proc_macro::{TokenStream, TokenTree};

/// Registers a function as a test under its path. The function has no parameters and no result.
#[proc_macro_attribute]
pub fn test(_: TokenStream, mut function: TokenStream) -> TokenStream {
    let is_fn = |token: &TokenTree| matches!(token, TokenTree::Ident(word) if word.to_string() == "fn");
    let mut after_fn = function.clone().into_iter().skip_while(|token| !is_fn(token)).skip(1);
    let registered = match after_fn.next() {
        Some(TokenTree::Ident(name)) => format!(
            "::inventory::submit! {{
                crate::harness::suite::Test {{ path: ::core::concat!(::core::module_path!(), \"::{name}\"), run: {name} }}
            }}"
        ),
        _ => "::core::compile_error!(\"#[test] stands before a function\");".to_owned(),
    };
    function.extend(registered.parse::<TokenStream>());
    function
}
