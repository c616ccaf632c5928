//! Shows control characters as text, so that a terminal does not execute them, and so that a name with a line break
//! cannot break a line of the output.

use std::borrow::Cow;

/// Returns whether a character is a command: a terminal or a viewer acts on it instead of showing it. Commands are:
///
/// * the control characters, without line break and tab. The C1 control characters of ECMA-48 (U+0080 to U+009F) are
///   among them, because terminals read U+009B as `ESC [`.
/// * the characters that set the direction of text (UAX #9), because a terminal would show the text after them in a
///   wrong order.
/// * U+2028 and U+2029, because they break lines.
pub fn is_command(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\t')
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns all characters that [`is_command`] is true for.
pub fn commands() -> impl Iterator<Item = char> {
    ('\0'..='\u{2069}').filter(|&c| is_command(c))
}

/// Returns the text with its line breaks as `\x0a`, because a name must not look like a line of the output. Other
/// commands stay as they are, because the output may go to a file.
pub fn in_one_line(text: &str) -> Cow<'_, str> {
    without(text, |c| c == '\n')
}

/// Like [`in_one_line`], for the bytes of `text` from `start` on. Changes these bytes in place.
pub fn put_in_one_line(text: &mut Vec<u8>, start: usize) {
    if text[start..].contains(&b'\n') {
        let end = text.split_off(start);
        let mut lines = end.split(|&byte| byte == b'\n');
        text.extend_from_slice(lines.next().unwrap_or_default());
        for line in lines {
            text.extend_from_slice(br"\x0a");
            text.extend_from_slice(line);
        }
    }
}

/// Returns the JSON with all commands to a terminal escaped. Characters below U+0020 are already escaped in JSON.
pub fn in_json(json: &str) -> Cow<'_, str> {
    if !json.contains(is_beyond_json) {
        return json.into();
    }
    let mut shown = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_beyond_json(c) { shown.push_str(&format!("\\u{:04x}", u32::from(c))) } else { shown.push(c) }
    }
    shown.into()
}

/// Returns whether a character is a command that JSON allows without an escape. In JSON, such a character is always
/// inside a string, because all text outside of strings is ASCII.
fn is_beyond_json(c: char) -> bool {
    c >= '\u{7f}' && is_command(c)
}

/// Returns the text with each control character as `\xNN`, including line breaks and tabs.
pub fn without_controls(text: &str) -> Cow<'_, str> {
    without(text, |c| c.is_control() || is_command(c))
}

/// Returns the text with each command to a terminal as `\xNN`. Line breaks and tabs stay.
pub fn text_for_terminal(text: &str) -> Cow<'_, str> {
    without(text, is_command)
}

/// Like [`text_for_terminal`], for bytes. Bytes from 0x80 to 0x9f that are not part of UTF-8 are escaped too, because a
/// terminal without UTF-8 acts on them. Other bytes that are not UTF-8 stay as they are.
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

/// Returns the escape of a character: `\xNN`, or `\uNNNN` from U+0100 on, as in Python.
fn escape(c: char) -> String {
    match u32::from(c) {
        code @ ..=0xff => format!("\\x{code:02x}"),
        code => format!("\\u{code:04x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_a_terminal_obeys_are_shown_as_text() {
        let shown = |text: &[u8]| String::from_utf8_lossy(&for_terminal(text)).into_owned();
        assert_eq!(shown(b"\x1b[31mRED\x07\r\n\ta b~\x7f"), "\\x1b[31mRED\\x07\\x0d\n\ta b~\\x7f");
        assert_eq!(shown("grüße \u{9b}2J €".as_bytes()), "grüße \\x9b2J €");
        assert_eq!(shown("a\u{202e}b\u{2067}c\u{2028}d".as_bytes()), r"a\u202eb\u2067c\u2028d");
        assert_eq!(*for_terminal(b"\xff\x9b\xfex"), *b"\xff\\x9b\xfex");
    }

    #[test]
    fn text_for_one_line_has_no_line_breaks() {
        assert_eq!(without_controls("a\nb\tc\rd\u{85}ü\0"), "a\\x0ab\\x09c\\x0dd\\x85ü\\x00");
        assert!(matches!(without_controls("grüße"), Cow::Borrowed(_)));
        assert_eq!(in_one_line("a\nb\u{1b}"), "a\\x0ab\u{1b}");
        let mut line = b"x\ny\nz\n".to_vec();
        put_in_one_line(&mut line, 2);
        assert_eq!(line, b"x\ny\\x0az\\x0a");
    }

    #[test]
    fn json_has_no_character_that_a_terminal_obeys() {
        let json = "[\"a\u{9b}31m\u{202e}\u{7f}€\\n\"]";
        assert_eq!(in_json(json), r#"["a\u009b31m\u202e\u007f€\n"]"#);
        assert!(matches!(in_json("[\n  \"grüße\"\n]"), Cow::Borrowed(_)));
        assert!(commands().any(|c| c == '\u{2069}') && commands().all(is_command));
    }
}
