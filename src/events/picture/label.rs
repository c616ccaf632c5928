//! The names of frames in folded stacks and flame graphs.

use std::borrow::Cow;

use perf_prof_format::control_characters::is_command;

/// The suffix of the names of kernel frames. Palettes recognise it, and flame graphs hide it.
pub const KERNEL_SUFFIX: &str = "_[k]";

/// The suffix of the names of Python functions. Flame graphs hide it.
pub const PYTHON_SUFFIX: &str = "_[python]";

/// The begin of a reason in place of a Python function's name, as in `[python: the process has ended]`. It needs no suffix.
pub const PYTHON_REASON: &str = "[python: ";

/// What a name in folded stacks says about its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LabelKind {
    /// It is in the kernel.
    Kernel,
    /// It is a Python function, or a reason in place of one.
    Python,
    /// Anything else, such as a function of a program, or a task.
    Native,
}

impl LabelKind {
    pub fn of(name: &str) -> LabelKind {
        match name {
            _ if name.ends_with(KERNEL_SUFFIX) => LabelKind::Kernel,
            _ if name.ends_with(PYTHON_SUFFIX) || name.starts_with(PYTHON_REASON) => LabelKind::Python,
            _ => LabelKind::Native,
        }
    }
}

/// The label of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label<'a> {
    /// A function of a program, or any other name.
    Name(&'a str),
    /// A function of the kernel.
    Kernel(&'a str),
    /// A Python function, or a reason in place of one.
    Python(&'a str),
    /// An address in user space without a symbol: the mapped file, or `[unknown]`.
    InFile(&'a str),
    /// An address in the kernel without a symbol: a name of the kernel or of a module.
    InKernel(&'a str),
}

impl Label<'_> {
    /// The number of kinds of labels.
    pub const KINDS: usize = 5;

    /// Returns the number of the label's kind, and its text. Labels are equal if their numbers and their texts are equal.
    pub fn parts(&self) -> (usize, &str) {
        match self {
            Label::Name(text) => (0, text),
            Label::Kernel(text) => (1, text),
            Label::InFile(text) => (2, text),
            Label::InKernel(text) => (3, text),
            Label::Python(text) => (4, text),
        }
    }

    /// Returns the name of the frame. Names of kernel frames end with [`KERNEL_SUFFIX`], and those of Python functions with
    /// [`PYTHON_SUFFIX`].
    pub fn text(&self) -> String {
        match self {
            Label::Name(name) => frame(name).into_owned(),
            Label::Kernel(name) => frame(name).into_owned() + KERNEL_SUFFIX,
            Label::Python(reason) if reason.starts_with(PYTHON_REASON) => frame(reason).into_owned(),
            Label::Python(name) => frame(name).into_owned() + PYTHON_SUFFIX,
            Label::InFile(file) => unnamed(file),
            Label::InKernel(file) => unnamed(file) + KERNEL_SUFFIX,
        }
    }
}

/// Returns the name of a frame without a symbol: the name of its file in brackets, for example `[libc.so.6]`.
fn unnamed(file: &str) -> String {
    let file = frame(file);
    let file = file.trim_start_matches('[').trim_end_matches(']');
    match file.rsplit('/').find(|part| !part.is_empty()) {
        Some(name) => format!("[{name}]"),
        None => UNKNOWN.to_owned(),
    }
}

const UNKNOWN: &str = "[unknown]";

/// Returns a name in a form that is valid in folded stacks. There, `;` separates frames, and the last space separates the
/// frames from the weight.
fn frame(name: &str) -> Cow<'_, str> {
    let mut name = printable(name.trim());
    if name.is_empty() {
        return UNKNOWN.into();
    }
    if name.contains(';') {
        name = name.replace(';', ":").into();
    }
    // Flame graph tools take a line that starts with `# ` for a comment.
    if let Some(rest) = name.strip_prefix("# ") {
        name = format!("#_{rest}").into();
    }
    // Flame graph tools would take a number at the end of the name for a weight.
    if let Some((begin, end)) = name.rsplit_once(' ')
        && end.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
    {
        name = format!("{begin}_{end}").into();
    }
    name
}

/// Replaces each character that may not be in a line or in XML by `?`. A name may contain any bytes, because tasks choose
/// their names.
pub fn printable(text: &str) -> Cow<'_, str> {
    // XML 1.0 (section 2.2) allows no control characters, and not these two code points.
    let bad = |c: char| c.is_control() || is_command(c) || matches!(c, '\u{fffe}' | '\u{ffff}');
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
            Label::Python("Pool.<lambda>"),
            Label::Python("[python: the process has ended]"),
            Label::InFile("/usr/lib/libc.so.6"),
            Label::InFile("[vdso]"),
            Label::InFile("[unknown]"),
            Label::InFile("/"),
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
            Pool.<lambda>_[python]
            [python: the process has ended]
            [libc.so.6]
            [vdso]
            [unknown]
            [unknown]
            [kernel.kallsyms]_[k]
            [ext4]_[k]"##]]
        .assert_eq(&shown.join("\n"));
    }
}
