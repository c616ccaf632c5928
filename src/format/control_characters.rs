//! Shows control characters as text, so that a terminal does not execute them.

use std::borrow::Cow;

/// Returns whether a character is a command to a terminal. These include the C1 control characters of ECMA-48, U+0080
/// to U+009F: terminals read U+009B as `ESC [`.
pub fn is_command(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\t')
}

/// Returns the text with each control character as `\xNN`, line breaks and tabs too.
pub fn without_controls(text: &str) -> Cow<'_, str> {
    without(text, char::is_control)
}

/// Returns the text with each command to a terminal as `\xNN`. Line breaks and tabs stay.
pub fn text_for_terminal(text: &str) -> Cow<'_, str> {
    without(text, is_command)
}

/// Like [`text_for_terminal`], for bytes. Bytes that are not UTF-8 stay as they are, except for those from 0x80 to
/// 0x9f: they are commands to a terminal without UTF-8.
pub fn for_terminal(text: &[u8]) -> Cow<'_, [u8]> {
    if text.iter().all(|&byte| matches!(byte, b'\n' | b'\t' | b' '..=b'~')) {
        return text.into();
    }
    let mut shown = Vec::with_capacity(text.len() + 16);
    for chunk in text.utf8_chunks() {
        shown.extend_from_slice(text_for_terminal(chunk.valid()).as_bytes());
        for &byte in chunk.invalid() {
            match byte {
                0x80..=0x9f => shown.extend_from_slice(escape(byte.into()).as_bytes()),
                byte => shown.push(byte),
            }
        }
    }
    shown.into()
}

fn without(text: &str, is_escaped: fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(is_escaped) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_escaped(c) { shown.push_str(&escape(c)) } else { shown.push(c) }
    }
    shown.into()
}

/// Returns `\xNN`. Two digits are enough, because all control characters are below U+00A0.
fn escape(c: char) -> String {
    format!("\\x{:02x}", u32::from(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_a_terminal_obeys_are_shown_as_text() {
        let shown = |text: &[u8]| String::from_utf8_lossy(&for_terminal(text)).into_owned();
        assert_eq!(shown(b"\x1b[31mRED\x07\r\n\ta b~\x7f"), "\\x1b[31mRED\\x07\\x0d\n\ta b~\\x7f");
        assert_eq!(shown("grüße \u{9b}2J €".as_bytes()), "grüße \\x9b2J €");
        assert_eq!(*for_terminal(b"\xff\x9b\xfex"), *b"\xff\\x9b\xfex");
    }

    #[test]
    fn text_for_one_line_has_no_line_breaks() {
        assert_eq!(without_controls("a\nb\tc\rd\u{85}ü\0"), "a\\x0ab\\x09c\\x0dd\\x85ü\\x00");
        assert!(matches!(without_controls("grüße"), Cow::Borrowed(_)));
    }
}
