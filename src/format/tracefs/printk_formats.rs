//! Parser for `printk_formats` of tracefs: the kernel strings that events refer to by address.

use std::collections::HashMap;

/// Parses lines like `0xffffffff8281a285 : "rcu_preempt"` and skips all other lines. Returns the strings by address,
/// without the escapes that `t_show` in `kernel/trace/trace_printk.c` adds (`\n`, `\t`, `\\`, `\"`).
pub fn parse(text: &[u8]) -> HashMap<u64, Box<[u8]>> {
    text.split(|&b| b == b'\n').filter_map(entry).collect()
}

fn entry(line: &[u8]) -> Option<(u64, Box<[u8]>)> {
    let colon = line.windows(3).position(|part| part == b" : ")?;
    let addr = std::str::from_utf8(&line[..colon]).ok()?.trim().strip_prefix("0x")?;
    let addr = u64::from_str_radix(addr, 16).ok()?;
    let quoted = line[colon + 3..].trim_ascii();
    let inner = quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let mut string = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(&byte) = bytes.next() {
        string.push(match byte {
            b'\\' => match bytes.next() {
                Some(b'n') => b'\n',
                Some(b't') => b'\t',
                Some(&other) => other,
                None => b'\\',
            },
            plain => plain,
        });
    }
    Some((addr, string.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_entries() {
        let map =
            parse(b"0xffffffff8281a285 : \"rcu_preempt\"\n0x10 : \"a \\\"b\\\"\\n\"\nrubbish\n0xzz : \"x\"\n0x1 : \"");
        assert_eq!(map.len(), 2);
        assert_eq!(&*map[&0xffff_ffff_8281_a285], b"rcu_preempt");
        assert_eq!(&*map[&0x10], b"a \"b\"\n");
    }
}
