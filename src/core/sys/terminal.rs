//! Shows control characters as text, so that a terminal does not obey them. Does not know where the text comes from.

use std::borrow::Cow;

/// Returns whether a character is a command to a terminal. The characters from U+0080 to U+009F are: terminals read
/// U+009B as `ESC [` (C1 control characters in ECMA-48).
fn is_command(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\t')
}

/// Returns the text with each control character as `\xNN`, line breaks and tabs too.
pub fn without_controls(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return text.into();
    }
    text.chars()
        .fold(
            String::new(),
            |shown, c| if c.is_control() { shown + &escape(c) } else { shown + c.encode_utf8(&mut [0; 4]) },
        )
        .into()
}

/// Returns the text with each character that a terminal obeys as `\xNN`. Line breaks and tabs stay. Text that is not
/// UTF-8 stays as it is, except for the bytes from 0x80 to 0x9f: a terminal without UTF-8 obeys them.
pub fn for_terminal(text: &[u8]) -> Cow<'_, [u8]> {
    if text.iter().all(|&byte| matches!(byte, b'\n' | b'\t' | b' '..=b'~')) {
        return text.into();
    }
    let mut shown = Vec::with_capacity(text.len() + 16);
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_command(c) {
                shown.extend_from_slice(escape(c).as_bytes());
            } else {
                shown.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        for &byte in chunk.invalid() {
            match byte {
                0x80..=0x9f => shown.extend_from_slice(escape(byte.into()).as_bytes()),
                byte => shown.push(byte),
            }
        }
    }
    shown.into()
}

/// Returns `\xNN`. Control characters are below U+00A0, so they have two digits.
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
        assert_eq!(for_terminal(b"\xff\x9b\xfex"), b"\xff\\x9b\xfex".as_slice());
    }

    #[test]
    fn text_for_one_line_has_no_line_breaks() {
        assert_eq!(without_controls("a\nb\tc\rd\u{85}ü\0"), "a\\x0ab\\x09c\\x0dd\\x85ü\\x00");
        assert!(matches!(without_controls("grüße"), Cow::Borrowed(_)));
    }
}
