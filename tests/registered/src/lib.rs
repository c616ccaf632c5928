//! `#[test]` for a test program that has a `main` of its own: it puts the function into a list that `main` goes through.
//!
//! It takes the place of the standard attribute, so tests are written as anywhere, and none can be forgotten.

use proc_macro::{TokenStream, TokenTree};

/// Registers a function without parameters and result as a test, by its path.
#[proc_macro_attribute]
pub fn test(_: TokenStream, mut function: TokenStream) -> TokenStream {
    let is_fn = |token: &TokenTree| matches!(token, TokenTree::Ident(word) if word.to_string() == "fn");
    let mut behind = function.clone().into_iter().skip_while(|token| !is_fn(token)).skip(1);
    let registered = match behind.next() {
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
