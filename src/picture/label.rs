//! What a frame is called in folded stacks and in a picture. Knows nothing of how frames came about.

use std::borrow::Cow;

/// What is known of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label<'a> {
    /// A function of a program, or any other name.
    Name(&'a str),
    /// A function of the kernel.
    Kernel(&'a str),
    /// A place without a symbol in this file of a program, or in none that is known.
    In(&'a str),
    /// A place without a symbol in the kernel or in this module of it.
    InKernel(&'a str),
}

impl Label<'_> {
    /// How many kinds there are.
    pub const KINDS: usize = 4;

    /// The kind's number and the text beside it: what tells one label from another.
    pub fn parts(&self) -> (usize, &str) {
        match self {
            Label::Name(text) => (0, text),
            Label::Kernel(text) => (1, text),
            Label::In(text) => (2, text),
            Label::InKernel(text) => (3, text),
        }
    }

    /// The frame's name. Kernel frames end in `_[k]`, which palettes know and pictures do not show.
    pub fn text(&self) -> String {
        match self {
            Label::Name(name) => frame(name).into_owned(),
            Label::Kernel(name) => format!("{}_[k]", frame(name)),
            Label::In(file) => unnamed(file),
            Label::InKernel(file) => unnamed(file) + "_[k]",
        }
    }
}

/// `[libc.so.6]` for a frame that has no name but this file.
fn unnamed(file: &str) -> String {
    let file = frame(file);
    let file = file.trim_start_matches('[').trim_end_matches(']');
    match file.rsplit('/').find(|part| !part.is_empty()) {
        Some(name) => format!("[{name}]"),
        None => UNKNOWN.to_owned(),
    }
}

const UNKNOWN: &str = "[unknown]";

/// A name as folded stacks can have it: frames are separated by semicolons, the weight by the last blank.
fn frame(name: &str) -> Cow<'_, str> {
    let mut name = printable(name.trim());
    if name.is_empty() {
        return UNKNOWN.into();
    }
    if name.contains(';') {
        name = name.replace(';', ":").into();
    }
    // What begins so would be read as a comment.
    if let Some(rest) = name.strip_prefix("# ") {
        name = format!("#_{rest}").into();
    }
    // A number at the end would be read as the first of two weights.
    if let Some((begin, end)) = name.rsplit_once(' ')
        && end.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
    {
        name = format!("{begin}_{end}").into();
    }
    name
}

/// A text with a `?` for each character that neither a line nor XML can hold. A task may name itself with any bytes.
pub fn printable(text: &str) -> Cow<'_, str> {
    // Beside control characters, XML 1.0 (section 2.2) leaves out two that are none at all.
    let bad = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    if text.contains(bad) { text.replace(bad, "?").into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn names_that_folded_stacks_can_hold() {
        let labels = [
            Label::Name("main"),
            Label::Name("f<[u8; 8]>"),
            Label::Name("  worker 1 "),
            Label::Name("build 1.5"),
            Label::Name("# 5"),
            Label::Name("# a 5"),
            Label::Name("bell\u{7}\nline"),
            Label::Name(""),
            Label::Kernel("vfs_read"),
            Label::In("/usr/lib/libc.so.6"),
            Label::In("[vdso]"),
            Label::In("[unknown]"),
            Label::In("/"),
            Label::InKernel("[kernel.kallsyms]"),
            Label::InKernel("[ext4]"),
        ];
        let shown: Vec<String> = labels.iter().map(Label::text).collect();
        expect![[r##"
            main
            f<[u8: 8]>
            worker_1
            build_1.5
            #_5
            #_a_5
            bell??line
            [unknown]
            vfs_read_[k]
            [libc.so.6]
            [vdso]
            [unknown]
            [unknown]
            [kernel.kallsyms]_[k]
            [ext4]_[k]"##]]
        .assert_eq(&shown.join("\n"));
    }
}
