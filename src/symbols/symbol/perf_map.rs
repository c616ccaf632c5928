//! Reads `/tmp/perf-PID.map`, in which a process lists the functions that it generates at run time. Each line is `START
//! SIZE NAME`, with hexadecimal numbers. Malformed lines are skipped.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::{FileExt, MetadataExt},
};

use super::code_map::CodeMap;

/// The maximum number of bytes that are read from a file. Another program writes the file, so it may contain anything.
pub const READ_LIMIT: u64 = 256 << 20;
/// The maximum number of bytes that one update reads. The next update continues after these bytes.
pub const UPDATE_LIMIT: u64 = 16 << 20;
/// The maximum length of a line, in bytes. Longer lines are skipped.
const LINE_LIMIT: usize = 16 << 10;

/// The number of bytes before the current position that each update compares with the file. If the bytes differ, the
/// file was rewritten.
const TAIL: u64 = 256;

/// A perf map, as far as it has been read.
#[derive(Debug)]
pub struct PerfMap {
    /// The functions in the file.
    pub code: CodeMap,
    /// The number of bytes from the start of the file that were read.
    at: u64,
    /// The last bytes before `at`, at most `TAIL`.
    tail: Vec<u8>,
    device_inode: (u64, u64),
    limit: usize,
    /// The number of bytes that the last update read.
    last_read: u64,
}

impl PerfMap {
    /// Creates an empty perf map. Nothing is read yet. `limit` is the maximum memory for its functions, in bytes.
    pub fn new(limit: usize) -> Self {
        Self { code: CodeMap::new(limit), at: 0, tail: Vec::new(), device_inode: (0, 0), limit, last_read: 0 }
    }

    /// Reads what was appended to the file since the last call, at most `UPDATE_LIMIT` bytes. Reads from the start if
    /// the file was rewritten or replaced by another file. Returns whether there was anything to read.
    pub fn update(&mut self, file: &File) -> io::Result<bool> {
        self.last_read = 0;
        let metadata = file.metadata()?;
        let device_inode = (metadata.dev(), metadata.ino());
        if device_inode != self.device_inode || metadata.len() < self.at || tail(file, self.at)? != self.tail {
            *self = Self { device_inode, ..Self::new(self.limit) };
        }
        let more = metadata.len().min(READ_LIMIT).saturating_sub(self.at).min(UPDATE_LIMIT);
        if more == 0 {
            return Ok(false);
        }
        let mut input = file;
        input.seek(SeekFrom::Start(self.at))?;
        let begin = self.at;
        self.at += read(&mut input.take(more), &mut self.code)?;
        self.last_read = more;
        // If the bytes that were read end within a line, the next update starts at this line. If they contain no whole
        // line, they are skipped.
        if more == UPDATE_LIMIT && self.at == begin {
            self.at += more;
        }
        self.tail = tail(file, self.at)?;
        Ok(true)
    }

    /// Returns the number of bytes that the last update read.
    pub fn last_read(&self) -> u64 {
        self.last_read
    }

    /// Returns whether functions are missing because of a limit.
    pub fn is_incomplete(&self) -> bool {
        self.code.has_dropped() || self.at >= READ_LIMIT
    }
}

/// Returns the bytes of a file before the offset `at`, at most `TAIL`.
fn tail(file: &File, at: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; at.min(TAIL) as usize];
    let from = at - bytes.len() as u64;
    match file.read_exact_at(&mut bytes, from) {
        // Another program is rewriting the file at this moment.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Vec::new()),
        read => read.map(|()| bytes),
    }
}

/// Reads lines and adds their functions to `code`. Keeps at most one block of the input in memory. Returns the number
/// of bytes of all complete lines. An incomplete last line is not processed.
pub fn read(input: &mut impl Read, code: &mut CodeMap) -> io::Result<u64> {
    let mut block = vec![0; 64 << 10];
    let (mut filled, mut done, mut skipping) = (0, 0, false);
    loop {
        let size = match input.read(&mut block[filled..]) {
            Ok(0) => return Ok(done),
            Ok(size) => size,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        filled += size;
        let mut start = 0;
        while let Some(end) = block[start..filled].iter().position(|&byte| byte == b'\n') {
            if !std::mem::take(&mut skipping) {
                line(&block[start..start + end], code);
            }
            start += end + 1;
        }
        if filled - start > LINE_LIMIT {
            (skipping, start) = (true, filled);
        }
        done += start as u64;
        block.copy_within(start..filled, 0);
        filled -= start;
    }
}

fn line(line: &[u8], code: &mut CodeMap) {
    let Some((start, rest)) = number(line) else { return };
    let Some((size, name)) = number(rest) else { return };
    let name = name.trim_ascii();
    if !name.is_empty() {
        code.insert(start, size, &String::from_utf8_lossy(name));
    }
}

/// Parses a hexadecimal number with or without `0x`. Returns the number, and the rest of the line after the next blank.
fn number(line: &[u8]) -> Option<(u64, &[u8])> {
    let line = line.trim_ascii_start();
    let end = line.iter().position(u8::is_ascii_whitespace)?;
    let digits = std::str::from_utf8(&line[..end]).ok()?;
    let digits = digits.strip_prefix("0x").or(digits.strip_prefix("0X")).unwrap_or(digits);
    Some((u64::from_str_radix(digits, 16).ok()?, &line[end + 1..]))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    fn map(text: &[u8]) -> (CodeMap, u64) {
        let mut code = CodeMap::new(1 << 20);
        let done = read(&mut &text[..], &mut code).unwrap();
        (code, done)
    }

    #[test]
    fn lines_of_all_kinds() {
        let text = b"7f00 10 py::main:/a b.py\n0x8000 0x20 LazyCompile:~x y.js:3\r\nnonsense\n\n9000 0 empty\n9100 10\nffffffffffffffff 10 end\n7f20 10 last";
        let (code, done) = map(text);
        let name = |at| code.lookup(at).map(|(start, name)| format!("{name}+{:#x}", at - start));
        assert_eq!(name(0x7f01).as_deref(), Some("py::main:/a b.py+0x1"));
        assert_eq!(name(0x801f).as_deref(), Some("LazyCompile:~x y.js:3+0x1f"));
        assert_eq!(code.len(), 2);
        // The last line may be incomplete, because the process is still writing it.
        assert_eq!((name(0x7f20), done), (None, (text.len() - "7f20 10 last".len()) as u64));
    }

    #[test]
    fn a_map_that_grows_is_read_on_and_one_that_shrinks_anew() {
        let mut file = tempfile::tempfile().unwrap();
        let mut map = PerfMap::new(1 << 20);
        assert!(!map.update(&file).unwrap());
        write!(file, "1000 10 one\n2000 10 tw").unwrap();
        assert!(map.update(&file).unwrap());
        assert_eq!(map.code.len(), 1);
        writeln!(file, "o").unwrap();
        map.update(&file).unwrap();
        assert_eq!(map.code.lookup(0x2000).unwrap().1.as_ref(), "two");
        file.set_len(12).unwrap();
        map.update(&file).unwrap();
        assert_eq!(map.code.len(), 1);
    }

    #[test]
    fn a_rewritten_longer_map_is_read_again() {
        let mut file = tempfile::tempfile().unwrap();
        let mut map = PerfMap::new(1 << 20);
        write!(file, "1000 10 one\n2000 10 two\n").unwrap();
        assert!(map.update(&file).unwrap());
        file.set_len(0).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        write!(file, "1000 10 another\n2000 10 function\n3000 10 three\n").unwrap();
        assert!(map.update(&file).unwrap());
        let name = |at| map.code.lookup(at).unwrap().1.to_string();
        assert_eq!((name(0x1000), name(0x2000), name(0x3000)), ("another".into(), "function".into(), "three".into()));
    }

    #[test]
    fn a_large_map_is_read_in_parts() {
        let mut file = tempfile::tempfile().unwrap();
        let line = format!("1000 10 {}\n", "x".repeat(8000));
        let lines = 2 * UPDATE_LIMIT as usize / line.len() + 10;
        file.write_all(line.repeat(lines).as_bytes()).unwrap();
        writeln!(file, "2000 10 last").unwrap();
        let mut map = PerfMap::new(1 << 20);
        for part in 1.. {
            assert!(map.update(&file).unwrap() && map.last_read() <= UPDATE_LIMIT && map.at <= part * UPDATE_LIMIT);
            if map.code.lookup(0x2000).is_some() {
                assert_eq!(part, 3);
                break;
            }
        }
        assert!(!map.update(&file).unwrap() && map.last_read() == 0);
    }

    #[test]
    fn endless_nonsense_uses_no_memory() {
        let mut code = CodeMap::new(1 << 16);
        // The input is 512 MiB without a line feed, then a million lines.
        let mut lines = Vec::new();
        (0..1_000_000u64).for_each(|at| writeln!(lines, "{:x} 8 function number {at}", at * 16).unwrap());
        let mut input = io::repeat(b'x').take(512 << 20).chain(&b"\n"[..]).chain(&lines[..]);
        read(&mut input, &mut code).unwrap();
        assert!(code.bytes() <= 1 << 16 && code.has_dropped() && code.len() > 100, "{} {}", code.bytes(), code.len());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(text in any::<Vec<u8>>(), lines in "([0-9a-fx]{0,17} [0-9a-fx]{0,17} .{0,9}\n){0,5}") {
            for text in [&text, lines.as_bytes()] {
                prop_assert!(map(text).1 <= text.len() as u64);
            }
        }
    }
}
