//! Where a dynamic probe is put: `uprobe:malloc@"libc.so.6"`. Knows nothing of the machine: a file is a name here.

use std::fmt;

use super::{
    error::Bracket,
    parse::{find, unquote},
    terms::number,
};

/// A dynamic probe, as asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Which kind.
    pub kind: ProbeKind,
    /// The place.
    pub place: Place,
    /// The program or library, a path or a bare name; empty for what is in the kernel.
    pub file: String,
}

/// What a dynamic probe is hit by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// A kernel function's entry.
    Kprobe,
    /// A kernel function's return.
    Kretprobe,
    /// A user function's entry.
    Uprobe,
    /// A user function's return.
    Uretprobe,
}

impl ProbeKind {
    const ALL: [Self; 4] = [Self::Kprobe, Self::Kretprobe, Self::Uprobe, Self::Uretprobe];

    /// The name, as it stands before the colon.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kprobe => "kprobe",
            Self::Kretprobe => "kretprobe",
            Self::Uprobe => "uprobe",
            Self::Uretprobe => "uretprobe",
        }
    }

    /// Whether it is in a program or library, and not in the kernel.
    pub fn is_user(self) -> bool {
        matches!(self, Self::Uprobe | Self::Uretprobe)
    }

    /// Whether it is hit when the function returns.
    pub fn is_return(self) -> bool {
        matches!(self, Self::Kretprobe | Self::Uretprobe)
    }
}

/// The place of a probe in its file or in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// So many bytes behind the begin of a function.
    Function {
        /// Its name.
        name: String,
        /// The distance.
        offset: u64,
    },
    /// An address: of the running kernel, or of the file as `nm` and `objdump` show it.
    Address(u64),
}

/// What is wrong with a probe's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeSyntaxError {
    /// A user probe without a file.
    #[error("a probe in user space needs its file: {kind}:{place}@\"/path/or/name\"")]
    NoFile {
        /// The kind's name.
        kind: &'static str,
        /// The place.
        place: String,
    },
    /// A kernel probe with a file.
    #[error("a probe in the kernel has no file; for a program or library write u{}:...", &kind[1..])]
    File {
        /// The kind's name.
        kind: &'static str,
    },
    /// Nothing that names a place.
    #[error("the function is missing; a probe is written {0}")]
    NoPlace(&'static str),
    /// What follows the `+` is no number.
    #[error("`{0}` is not an offset: give bytes as 16 or 0x10")]
    Offset(String),
    /// A quote or a parenthesis without its counterpart.
    #[error("the {0} is never closed")]
    Unclosed(Bracket),
    /// A name that holds both kinds of quotes, or a path without quotes that holds one.
    #[error("`{0}` has to be in quotes that it does not hold itself")]
    Quotes(String),
    /// The return is the function's, not that of a place within it.
    #[error("a return probe is put on a whole function, without `+{0:#x}`")]
    ReturnFrom(u64),
}

/// How a probe of this kind is written.
fn form(kind: ProbeKind) -> &'static str {
    match kind {
        ProbeKind::Kprobe => "kprobe:FUNCTION[+OFFSET] or kprobe:0xADDRESS",
        ProbeKind::Kretprobe => "kretprobe:FUNCTION",
        ProbeKind::Uprobe => "uprobe:FUNCTION[+OFFSET]@\"FILE\" or uprobe:0xADDRESS@\"FILE\"",
        ProbeKind::Uretprobe => "uretprobe:FUNCTION@\"FILE\"",
    }
}

/// Takes a probe at the beginning of `text`, in which a path's `/` is no section; gives the place behind it.
///
/// Beside `FUNCTION@FILE` there is `FILE:FUNCTION`, as others write it. Shells take quotes away, so a path may stand without:
/// it ends at a comma or at `//`, or in front of the function at `:`.
pub(super) fn take(text: &str) -> Option<Result<(Probe, usize), ProbeSyntaxError>> {
    let (name, rest) = text.split_once(':')?;
    let kind = ProbeKind::ALL.into_iter().find(|kind| kind.name() == name)?;
    let probe = if kind.is_user() { user(kind, rest) } else { kernel(kind, rest) };
    Some(probe.map(|(probe, after)| (probe, text.len() - after.len())))
}

/// A probe in the kernel and what follows it. A function may have its module in front, `xfs:xfs_file_read_iter`.
fn kernel(kind: ProbeKind, text: &str) -> Result<(Probe, &str), ProbeSyntaxError> {
    let (place, after) = up_to(text, &[',', '/', '@'])?;
    if after.starts_with('@') {
        return Err(ProbeSyntaxError::File { kind: kind.name() });
    }
    Ok((Probe { kind, place: self::place(kind, place)?, file: String::new() }, after))
}

fn user(kind: ProbeKind, text: &str) -> Result<(Probe, &str), ProbeSyntaxError> {
    let text = text.trim_start();
    if is_path(text) {
        let (file, after) = up_to(text, &[',', ':'])?;
        return file_first(kind, file, after);
    }
    let (mut place, mut after) = name(text, &[',', '/', '@', ':'])?;
    if after.starts_with(':') {
        return file_first(kind, unquote(place.trim()), after);
    }
    loop {
        let Some(behind) = after.strip_prefix('@') else {
            return match place.trim() {
                "" => Err(ProbeSyntaxError::NoPlace(form(kind))),
                place => Err(ProbeSyntaxError::NoFile { kind: kind.name(), place: place.to_owned() }),
            };
        };
        let (file, next) = self::file(behind)?;
        if !next.starts_with('@') {
            let file = nameable(unquote(file.trim()))?;
            let missing = || ProbeSyntaxError::NoFile { kind: kind.name(), place: place.trim().to_owned() };
            let place = self::place(kind, place)?;
            return if file.is_empty() { Err(missing()) } else { Ok((Probe { kind, place, file }, next)) };
        }
        // The function's version: `memcpy@GLIBC_2.14@"libc.so.6"`.
        (place, after) = (&text[..text.len() - next.len()], next);
    }
}

/// `FILE:FUNCTION`, of which `after` begins with the colon.
fn file_first<'a>(kind: ProbeKind, file: &str, after: &'a str) -> Result<(Probe, &'a str), ProbeSyntaxError> {
    let (place, after) = name(after.strip_prefix(':').unwrap_or_default(), &[',', '/'])?;
    let file = nameable(file.trim())?;
    if file.is_empty() {
        return Err(ProbeSyntaxError::NoFile { kind: kind.name(), place: place.trim().to_owned() });
    }
    Ok((Probe { kind, place: self::place(kind, place)?, file }, after))
}

/// Whether a path begins here that is recognised without quotes.
fn is_path(text: &str) -> bool {
    ["/", "./", "../"].iter().any(|begin| text.starts_with(begin))
}

/// A file's name behind the `@`.
fn file(text: &str) -> Result<(&str, &str), ProbeSyntaxError> {
    let path = text.trim_start();
    if !is_path(path) {
        return up_to(text, &[',', '/', '@']);
    }
    let end = path[1..].find("//").map(|at| at + 1).into_iter().chain(path.find(',')).min();
    let (path, after) = path.split_at(end.unwrap_or(path.len()));
    if path.contains(['"', '\'']) { Err(ProbeSyntaxError::Quotes(path.to_owned())) } else { Ok((path, after)) }
}

/// Text up to a separator outside of quotes and parentheses.
fn up_to<'a>(text: &'a str, separators: &[char]) -> Result<(&'a str, &'a str), ProbeSyntaxError> {
    from(text, 0, separators).map(|at| text.split_at(at))
}

/// The same, of a name that may hold `::`.
fn name<'a>(text: &'a str, separators: &[char]) -> Result<(&'a str, &'a str), ProbeSyntaxError> {
    let mut at = from(text, 0, separators)?;
    while text[at..].starts_with("::") {
        at = from(text, at + 2, separators)?;
    }
    Ok(text.split_at(at))
}

fn from(text: &str, at: usize, separators: &[char]) -> Result<usize, ProbeSyntaxError> {
    match find(text, at, separators) {
        Ok(end) => Ok(end.unwrap_or(text.len())),
        Err(bracket) => Err(ProbeSyntaxError::Unclosed(bracket)),
    }
}

/// Text that can stand in quotes.
fn nameable(text: &str) -> Result<String, ProbeSyntaxError> {
    if text.contains('"') && text.contains('\'') {
        return Err(ProbeSyntaxError::Quotes(text.to_owned()));
    }
    Ok(text.to_owned())
}

fn place(kind: ProbeKind, text: &str) -> Result<Place, ProbeSyntaxError> {
    let text = text.trim();
    if let Some(address) = number(text) {
        return Ok(Place::Address(address));
    }
    // A name in quotes is taken as it is: "operator+(int)".
    let quoted = ['"', '\''].iter().find_map(|&quote| text.strip_prefix(quote)?.split_once(quote));
    let (name, offset) = match quoted {
        Some((name, rest)) => (name, rest.trim().strip_prefix('+').or((!rest.is_empty()).then_some(rest))),
        None => match text.rsplit_once('+') {
            // Of an operator, as C++ names it, `+` is no offset.
            Some((name, offset)) if !name.ends_with("operator") && !offset.contains('(') => (name, Some(offset)),
            _ => (text, None),
        },
    };
    let name = nameable(name.trim())?;
    if name.is_empty() {
        return Err(ProbeSyntaxError::NoPlace(form(kind)));
    }
    let offset = match offset.map(str::trim) {
        Some(text) => number(text).ok_or_else(|| ProbeSyntaxError::Offset(text.to_owned()))?,
        None => 0,
    };
    match offset {
        1.. if kind.is_return() => Err(ProbeSyntaxError::ReturnFrom(offset)),
        _ => Ok(Place::Function { name, offset }),
    }
}

impl Probe {
    /// Its event's name in a recording, where only letters, digits and `_` make one: perf reads no other.
    pub fn recorded_name(&self) -> String {
        self.place.to_string().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Function { name, offset: 0 } => f.write_str(name),
            Place::Function { name, offset } => write!(f, "{name}+{offset:#x}"),
            Place::Address(address) => write!(f, "{address:#x}"),
        }
    }
}

/// The selector that asks for it.
impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |text: &str| if text.contains('"') { format!("'{text}'") } else { format!("\"{text}\"") };
        write!(f, "{}:", self.kind.name())?;
        match &self.place {
            Place::Function { name, offset } if !is_plain(name) => {
                f.write_str(&quoted(name))?;
                if *offset != 0 {
                    write!(f, "+{offset:#x}")?;
                }
            }
            place => write!(f, "{place}")?,
        }
        if self.kind.is_user() { write!(f, "@{}", quoted(&self.file)) } else { Ok(()) }
    }
}

/// Whether a function's name is read as itself without quotes.
fn is_plain(name: &str) -> bool {
    name.chars().all(|c| c.is_alphanumeric() || "_.$".contains(c)) && number(name).is_none()
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(texts: &[&str], expect: Expect) {
        let shown = texts.iter().map(|text| match take(text) {
            Some(Ok((probe, end))) => {
                format!("{text:<36} {probe}  {:?} {:?} | {}\n", probe.place, probe.file, &text[end..])
            }
            Some(Err(error)) => format!("{text:<36} error: {error}\n"),
            None => format!("{text:<36} no probe\n"),
        });
        expect.assert_eq(&shown.collect::<String>());
    }

    #[test]
    fn places_in_files() {
        check(
            &[
                "uprobe:malloc@\"/usr/lib/libc.so.6\"",
                "uprobe:malloc@libc.so.6",
                "uprobe:malloc@libc/pid>1/stack/",
                "uprobe: malloc + 0x10 @ 'a@b' ,x:y",
                "uprobe:f+16@x,x:y",
                "uprobe:0x1180@x",
                "uretprobe:4480@\"x\"/a/",
                "uprobe:memcpy@GLIBC_2.14@\"libc.so.6\"",
                "uprobe:memcpy@@GLIBC_2.14@libc",
                "uprobe:\"operator+(int, int)\"@x",
                "uprobe:\"operator+(int)\"+8@x",
                "uprobe:operator+(int, A::B)@x",
                "uprobe:ns::f@x",
            ],
            expect![[r#"
                uprobe:malloc@"/usr/lib/libc.so.6"   uprobe:malloc@"/usr/lib/libc.so.6"  Function { name: "malloc", offset: 0 } "/usr/lib/libc.so.6" | 
                uprobe:malloc@libc.so.6              uprobe:malloc@"libc.so.6"  Function { name: "malloc", offset: 0 } "libc.so.6" | 
                uprobe:malloc@libc/pid>1/stack/      uprobe:malloc@"libc"  Function { name: "malloc", offset: 0 } "libc" | /pid>1/stack/
                uprobe: malloc + 0x10 @ 'a@b' ,x:y   uprobe:malloc+0x10@"a@b"  Function { name: "malloc", offset: 16 } "a@b" | ,x:y
                uprobe:f+16@x,x:y                    uprobe:f+0x10@"x"  Function { name: "f", offset: 16 } "x" | ,x:y
                uprobe:0x1180@x                      uprobe:0x1180@"x"  Address(4480) "x" | 
                uretprobe:4480@"x"/a/                uretprobe:0x1180@"x"  Address(4480) "x" | /a/
                uprobe:memcpy@GLIBC_2.14@"libc.so.6" uprobe:"memcpy@GLIBC_2.14"@"libc.so.6"  Function { name: "memcpy@GLIBC_2.14", offset: 0 } "libc.so.6" | 
                uprobe:memcpy@@GLIBC_2.14@libc       uprobe:"memcpy@@GLIBC_2.14"@"libc"  Function { name: "memcpy@@GLIBC_2.14", offset: 0 } "libc" | 
                uprobe:"operator+(int, int)"@x       uprobe:"operator+(int, int)"@"x"  Function { name: "operator+(int, int)", offset: 0 } "x" | 
                uprobe:"operator+(int)"+8@x          uprobe:"operator+(int)"+0x8@"x"  Function { name: "operator+(int)", offset: 8 } "x" | 
                uprobe:operator+(int, A::B)@x        uprobe:"operator+(int, A::B)"@"x"  Function { name: "operator+(int, A::B)", offset: 0 } "x" | 
                uprobe:ns::f@x                       uprobe:"ns::f"@"x"  Function { name: "ns::f", offset: 0 } "x" | 
            "#]],
        );
    }

    #[test]
    fn paths_without_quotes() {
        check(
            &[
                "uprobe:malloc@/usr/lib/libc.so.6",
                "uprobe:malloc@./a.out,x:y",
                "uprobe:malloc@/usr/bin/a//stack/,x:y",
                "uprobe:malloc@../a/b",
            ],
            expect![[r#"
                uprobe:malloc@/usr/lib/libc.so.6     uprobe:malloc@"/usr/lib/libc.so.6"  Function { name: "malloc", offset: 0 } "/usr/lib/libc.so.6" | 
                uprobe:malloc@./a.out,x:y            uprobe:malloc@"./a.out"  Function { name: "malloc", offset: 0 } "./a.out" | ,x:y
                uprobe:malloc@/usr/bin/a//stack/,x:y uprobe:malloc@"/usr/bin/a"  Function { name: "malloc", offset: 0 } "/usr/bin/a" | //stack/,x:y
                uprobe:malloc@../a/b                 uprobe:malloc@"../a/b"  Function { name: "malloc", offset: 0 } "../a/b" | 
            "#]],
        );
    }

    #[test]
    fn files_in_front() {
        check(
            &[
                "uprobe:libc:malloc",
                "uprobe:/usr/bin/a:main+4/pid>1/",
                "uprobe:./a:0x1180,x:y",
                "uretprobe:'/a b/c':ns::f//stack/",
                "uprobe:a.out:ns::f(int, int)",
            ],
            expect![[r#"
                uprobe:libc:malloc                   uprobe:malloc@"libc"  Function { name: "malloc", offset: 0 } "libc" | 
                uprobe:/usr/bin/a:main+4/pid>1/      uprobe:main+0x4@"/usr/bin/a"  Function { name: "main", offset: 4 } "/usr/bin/a" | /pid>1/
                uprobe:./a:0x1180,x:y                uprobe:0x1180@"./a"  Address(4480) "./a" | ,x:y
                uretprobe:'/a b/c':ns::f//stack/     uretprobe:"ns::f"@"/a b/c"  Function { name: "ns::f", offset: 0 } "/a b/c" | //stack/
                uprobe:a.out:ns::f(int, int)         uprobe:"ns::f(int, int)"@"a.out"  Function { name: "ns::f(int, int)", offset: 0 } "a.out" | 
            "#]],
        );
    }

    #[test]
    fn places_in_the_kernel() {
        check(
            &[
                "kprobe:vfs_read",
                "kprobe:vfs_read+0x10//stack/",
                "kprobe:0xffffffff81000000,x:y",
                "kretprobe:xfs:xfs_read",
                "sched:sched_switch",
            ],
            expect![[r#"
                kprobe:vfs_read                      kprobe:vfs_read  Function { name: "vfs_read", offset: 0 } "" | 
                kprobe:vfs_read+0x10//stack/         kprobe:vfs_read+0x10  Function { name: "vfs_read", offset: 16 } "" | //stack/
                kprobe:0xffffffff81000000,x:y        kprobe:0xffffffff81000000  Address(18446744071578845184) "" | ,x:y
                kretprobe:xfs:xfs_read               kretprobe:"xfs:xfs_read"  Function { name: "xfs:xfs_read", offset: 0 } "" | 
                sched:sched_switch                   no probe
            "#]],
        );
    }

    #[test]
    fn what_is_no_place() {
        let user =
            ["malloc", "malloc@", "malloc@\"\"", "@\"x\"", "+5@x", "f+@x", "f+g@x", "f+-1@x", "", "f@\"x\"zz/a/"];
        let user: Vec<String> = user.iter().map(|text| format!("uprobe:{text}")).collect();
        let others = ["uprobe:libc:", "kprobe:f@\"x\"", "kprobe:f+0xg", "kprobe:", "uretprobe:f+4@\"x\""];
        let all: Vec<&str> = user.iter().map(String::as_str).chain(others).collect();
        check(
            &all,
            expect![[r#"
            uprobe:malloc                        error: a probe in user space needs its file: uprobe:malloc@"/path/or/name"
            uprobe:malloc@                       error: a probe in user space needs its file: uprobe:malloc@"/path/or/name"
            uprobe:malloc@""                     error: a probe in user space needs its file: uprobe:malloc@"/path/or/name"
            uprobe:@"x"                          error: the function is missing; a probe is written uprobe:FUNCTION[+OFFSET]@"FILE" or uprobe:0xADDRESS@"FILE"
            uprobe:+5@x                          error: the function is missing; a probe is written uprobe:FUNCTION[+OFFSET]@"FILE" or uprobe:0xADDRESS@"FILE"
            uprobe:f+@x                          error: `` is not an offset: give bytes as 16 or 0x10
            uprobe:f+g@x                         error: `g` is not an offset: give bytes as 16 or 0x10
            uprobe:f+-1@x                        error: `-1` is not an offset: give bytes as 16 or 0x10
            uprobe:                              error: the function is missing; a probe is written uprobe:FUNCTION[+OFFSET]@"FILE" or uprobe:0xADDRESS@"FILE"
            uprobe:f@"x"zz/a/                    uprobe:f@'"x"zz'  Function { name: "f", offset: 0 } "\"x\"zz" | /a/
            uprobe:libc:                         error: the function is missing; a probe is written uprobe:FUNCTION[+OFFSET]@"FILE" or uprobe:0xADDRESS@"FILE"
            kprobe:f@"x"                         error: a probe in the kernel has no file; for a program or library write uprobe:...
            kprobe:f+0xg                         error: `0xg` is not an offset: give bytes as 16 or 0x10
            kprobe:                              error: the function is missing; a probe is written kprobe:FUNCTION[+OFFSET] or kprobe:0xADDRESS
            uretprobe:f+4@"x"                    error: a return probe is put on a whole function, without `+0x4`
        "#]],
        );
    }
}
