//! Dynamic probes, for example `uprobe:malloc@"libc.so.6"`. Does not know the machine: files are not opened, only their
//! names are stored.

use std::fmt;

use super::{
    error::Bracket,
    glob::glob_matches,
    parse::{find, unquote},
    terms::number,
    usdt,
};

/// A dynamic probe, as the user requested it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The kind of probe.
    pub kind: ProbeKind,
    /// The location of the probe in its file or in the kernel.
    pub location: ProbeLocation,
    /// The program or library: a path or a bare name. Empty for a probe in the kernel.
    pub file: String,
}

/// The kind of a dynamic probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// The probe is hit when the kernel executes an instruction, usually the first instruction of a function.
    Kprobe,
    /// The probe is hit when a kernel function returns.
    Kretprobe,
    /// The probe is hit when a program executes an instruction, usually the first instruction of a function.
    Uprobe,
    /// The probe is hit when a user function returns.
    Uretprobe,
    /// The probe is hit when a program reaches a static probe (USDT), which the author of the program put there.
    Usdt,
}

impl ProbeKind {
    const ALL: [Self; 5] = [Self::Kprobe, Self::Kretprobe, Self::Uprobe, Self::Uretprobe, Self::Usdt];

    /// Returns the kind's name, as it is written before the colon.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kprobe => "kprobe",
            Self::Kretprobe => "kretprobe",
            Self::Uprobe => "uprobe",
            Self::Uretprobe => "uretprobe",
            Self::Usdt => "usdt",
        }
    }

    /// Returns whether the probe is in a program or library, and not in the kernel.
    pub fn is_user(self) -> bool {
        matches!(self, Self::Uprobe | Self::Uretprobe | Self::Usdt)
    }

    /// Returns whether the probe is hit when the function returns.
    pub fn is_return(self) -> bool {
        matches!(self, Self::Kretprobe | Self::Uretprobe)
    }
}

/// The location of a probe in its file or in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeLocation {
    /// A number of bytes after the start of a function.
    Function {
        /// The function's name.
        name: String,
        /// The number of bytes.
        offset: u64,
    },
    /// An address in the running kernel, or in the file as `nm` and `objdump` show it.
    Address(u64),
    /// A static probe. A file may contain a static probe at several places. Both names may contain wildcards.
    Static {
        /// The provider: the name that the program or library gives to the group of its probes.
        provider: String,
        /// The name of the probe.
        name: String,
    },
}

/// An error in a probe's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeSyntaxError {
    /// A user probe without a file.
    #[error("a probe in user space needs a file; write {kind}:{location}@\"/path/or/name\"")]
    NoFile {
        /// The kind's name.
        kind: &'static str,
        /// The function or address, as the user typed it.
        location: String,
    },
    /// A kernel probe with a file.
    #[error("a probe in the kernel takes no file; for a program or library write u{}:...", &kind[1..])]
    File {
        /// The kind's name.
        kind: &'static str,
    },
    /// The function or address is missing.
    #[error("the function is missing; write {0}")]
    NoPlace(&'static str),
    /// The text is not the name of a static probe.
    #[error("`{0}` is not the name of a static probe; write usdt:PROVIDER:NAME@\"FILE\"")]
    Static(String),
    /// The text after the `+` is not a number.
    #[error("`{0}` is not an offset; write a number of bytes, for example 16 or 0x10")]
    Offset(String),
    /// A quote or a parenthesis that is never closed.
    #[error("the {0} is never closed")]
    Unclosed(Bracket),
    /// A name with both kinds of quotes, or an unquoted path that contains a quote.
    #[error("`{0}` contains a quote; enclose it in quotes of the other kind")]
    Quotes(String),
    /// A return probe with an offset. Return probes are hit when a function returns, so an offset has no meaning.
    #[error("a return probe takes no offset; leave out `+{0:#x}`")]
    ReturnFrom(u64),
}

/// Returns the syntax of a probe of this kind, for messages.
fn form(kind: ProbeKind) -> &'static str {
    match kind {
        ProbeKind::Kprobe => "kprobe:FUNCTION[+OFFSET] or kprobe:0xADDRESS",
        ProbeKind::Kretprobe => "kretprobe:FUNCTION",
        ProbeKind::Uprobe => "uprobe:FUNCTION[+OFFSET]@\"FILE\" or uprobe:0xADDRESS@\"FILE\"",
        ProbeKind::Uretprobe => "uretprobe:FUNCTION@\"FILE\"",
        ProbeKind::Usdt => "usdt:PROVIDER:NAME@\"FILE\"",
    }
}

/// Parses a probe at the start of `text`. A `/` in the path of the probe's file does not start a section. Returns the
/// probe and the offset of the text after it, or `None` if `text` does not start with a probe.
///
/// Besides `FUNCTION@FILE`, `FILE:FUNCTION` is accepted, as in other tools. Paths without quotes are accepted too,
/// because shells remove quotes. A path without quotes ends at a comma, at `//`, or at the `:` before the function.
pub(super) fn parse(text: &str) -> Option<Result<(Probe, usize), ProbeSyntaxError>> {
    let (name, rest) = text.split_once(':')?;
    let kind = ProbeKind::ALL.into_iter().find(|kind| kind.name() == name)?;
    let probe = match kind {
        ProbeKind::Usdt => usdt::parse(rest),
        kind if kind.is_user() => user(kind, rest),
        kind => kernel(kind, rest),
    };
    Some(probe.map(|(probe, after)| (probe, text.len() - after.len())))
}

/// Parses a probe in the kernel. Returns the probe and the text after it. The name of the module may be written before
/// the function: `xfs:xfs_file_read_iter`.
fn kernel(kind: ProbeKind, text: &str) -> Result<(Probe, &str), ProbeSyntaxError> {
    let (location, after) = up_to(text, &[',', '/', '@'])?;
    if after.starts_with('@') {
        return Err(ProbeSyntaxError::File { kind: kind.name() });
    }
    Ok((Probe { kind, location: self::location(kind, location)?, file: String::new() }, after))
}

fn user(kind: ProbeKind, text: &str) -> Result<(Probe, &str), ProbeSyntaxError> {
    let text = text.trim_start();
    if is_path(text) {
        let (file, after) = up_to(text, &[',', ':'])?;
        return file_first(kind, file, after);
    }
    let (mut location, mut after) = name(text, &[',', '/', '@', ':'])?;
    if after.starts_with(':') {
        return file_first(kind, unquote(location.trim()), after);
    }
    loop {
        let Some(behind) = after.strip_prefix('@') else {
            return match location.trim() {
                "" => Err(ProbeSyntaxError::NoPlace(form(kind))),
                location => Err(ProbeSyntaxError::NoFile { kind: kind.name(), location: location.to_owned() }),
            };
        };
        let (file, next) = self::file(behind)?;
        if !next.starts_with('@') {
            let file = checked_for_quotes(unquote(file.trim()))?;
            let missing = || ProbeSyntaxError::NoFile { kind: kind.name(), location: location.trim().to_owned() };
            let location = self::location(kind, location)?;
            return if file.is_empty() { Err(missing()) } else { Ok((Probe { kind, location, file }, next)) };
        }
        // The text between this `@` and the next one is the version of the function: `memcpy@GLIBC_2.14@"libc.so.6"`.
        (location, after) = (&text[..text.len() - next.len()], next);
    }
}

/// Parses `:FUNCTION` at the start of `after`: the rest of `FILE:FUNCTION`.
fn file_first<'a>(kind: ProbeKind, file: &str, after: &'a str) -> Result<(Probe, &'a str), ProbeSyntaxError> {
    let (location, after) = name(after.strip_prefix(':').unwrap_or_default(), &[',', '/'])?;
    let file = checked_for_quotes(file.trim())?;
    if file.is_empty() {
        return Err(ProbeSyntaxError::NoFile { kind: kind.name(), location: location.trim().to_owned() });
    }
    Ok((Probe { kind, location: self::location(kind, location)?, file }, after))
}

/// Returns whether `text` starts with a path that is recognised without quotes.
pub(super) fn is_path(text: &str) -> bool {
    ["/", "./", "../"].iter().any(|begin| text.starts_with(begin))
}

/// Splits `text` after the file's name. `text` starts after the `@`.
pub(super) fn file(text: &str) -> Result<(&str, &str), ProbeSyntaxError> {
    let path = text.trim_start();
    if !is_path(path) {
        return up_to(text, &[',', '/', '@']);
    }
    let end = path[1..].find("//").map(|at| at + 1).into_iter().chain(path.find(',')).min();
    let (path, after) = path.split_at(end.unwrap_or(path.len()));
    if path.contains(['"', '\'']) { Err(ProbeSyntaxError::Quotes(path.to_owned())) } else { Ok((path, after)) }
}

/// Splits `text` at the first separator outside quotes and parentheses.
pub(super) fn up_to<'a>(text: &'a str, separators: &[char]) -> Result<(&'a str, &'a str), ProbeSyntaxError> {
    from(text, 0, separators).map(|at| text.split_at(at))
}

/// Splits `text` after a name, which may contain `::`.
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

/// Returns a copy of `text`. Returns an error if `text` contains both kinds of quotes, so that it cannot be enclosed in
/// quotes.
pub(super) fn checked_for_quotes(text: &str) -> Result<String, ProbeSyntaxError> {
    if text.contains('"') && text.contains('\'') {
        return Err(ProbeSyntaxError::Quotes(text.to_owned()));
    }
    Ok(text.to_owned())
}

fn location(kind: ProbeKind, text: &str) -> Result<ProbeLocation, ProbeSyntaxError> {
    let text = text.trim();
    if let Some(address) = number(text) {
        return Ok(ProbeLocation::Address(address));
    }
    // A name in quotes is used as it is: "operator+(int)".
    let quoted = ['"', '\''].iter().find_map(|&quote| text.strip_prefix(quote)?.split_once(quote));
    let (name, offset) = match quoted {
        Some((name, rest)) => (name, rest.trim().strip_prefix('+').or((!rest.is_empty()).then_some(rest))),
        None => match text.rsplit_once('+') {
            // The `+` in the name of a C++ operator does not start an offset.
            Some((name, offset)) if !name.ends_with("operator") && !offset.contains('(') => (name, Some(offset)),
            _ => (text, None),
        },
    };
    let name = checked_for_quotes(name.trim())?;
    if name.is_empty() {
        return Err(ProbeSyntaxError::NoPlace(form(kind)));
    }
    let offset = match offset.map(str::trim) {
        Some(text) => number(text).ok_or_else(|| ProbeSyntaxError::Offset(text.to_owned()))?,
        None => 0,
    };
    match offset {
        1.. if kind.is_return() => Err(ProbeSyntaxError::ReturnFrom(offset)),
        _ => Ok(ProbeLocation::Function { name, offset }),
    }
}

impl Probe {
    /// Returns the system and the name of the probe's event in a recording. The name consists of letters, digits and `_`
    /// only, because perf does not accept other characters. Static probes have the names that perf gives them.
    pub fn recorded_name(&self) -> (String, String) {
        match &self.location {
            ProbeLocation::Static { provider, name } => (static_system(&plain(provider)), plain(name)),
            location => (self.kind.name().to_owned(), plain(&location.to_string())),
        }
    }

    /// Returns the system and the name of the probe's live event. The name is the location, as the user wrote it.
    pub fn event_name(&self) -> (String, String) {
        match &self.location {
            ProbeLocation::Static { .. } => self.recorded_name(),
            location => (self.kind.name().to_owned(), location.to_string()),
        }
    }

    /// Returns whether the probe is recorded under this name.
    pub fn matches(&self, system: &str, name: &str) -> bool {
        match &self.location {
            ProbeLocation::Static { provider, name: wanted } => {
                glob_matches(&static_system(provider), system) && glob_matches(wanted, name)
            }
            _ => self.recorded_name() == (system.to_owned(), name.to_owned()),
        }
    }
}

/// Returns the system of a provider's events, as perf names it.
fn static_system(provider: &str) -> String {
    format!("sdt_{provider}")
}

/// Returns the name with `_` in place of each character that is not an ASCII letter or digit.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

impl fmt::Display for ProbeLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProbeLocation::Function { name, offset: 0 } => f.write_str(name),
            ProbeLocation::Function { name, offset } => write!(f, "{name}+{offset:#x}"),
            ProbeLocation::Address(address) => write!(f, "{address:#x}"),
            ProbeLocation::Static { provider, name } => write!(f, "{provider}:{name}"),
        }
    }
}

/// Writes the selector that requests the probe.
impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |text: &str| if text.contains('"') { format!("'{text}'") } else { format!("\"{text}\"") };
        write!(f, "{}:", self.kind.name())?;
        match &self.location {
            ProbeLocation::Function { name, offset } if !is_plain(name) => {
                f.write_str(&quoted(name))?;
                if *offset != 0 {
                    write!(f, "+{offset:#x}")?;
                }
            }
            location => write!(f, "{location}")?,
        }
        if self.file.is_empty() { Ok(()) } else { write!(f, "@{}", quoted(&self.file)) }
    }
}

/// Returns whether a function's name can be written without quotes.
fn is_plain(name: &str) -> bool {
    name.chars().all(|c| c.is_alphanumeric() || "_.$".contains(c)) && number(name).is_none()
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(texts: &[&str], expect: Expect) {
        let shown = texts.iter().map(|text| match parse(text) {
            Some(Ok((probe, end))) => {
                format!("{text:<36} {probe}  {:?} {:?} | {}\n", probe.location, probe.file, &text[end..])
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
    fn file_before_the_function() {
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
    fn invalid_probes_are_reported() {
        let user =
            ["malloc", "malloc@", "malloc@\"\"", "@\"x\"", "+5@x", "f+@x", "f+g@x", "f+-1@x", "", "f@\"x\"zz/a/"];
        let user: Vec<String> = user.iter().map(|text| format!("uprobe:{text}")).collect();
        let others = ["uprobe:libc:", "kprobe:f@\"x\"", "kprobe:f+0xg", "kprobe:", "uretprobe:f+4@\"x\""];
        let all: Vec<&str> = user.iter().map(String::as_str).chain(others).collect();
        check(
            &all,
            expect![[r#"
            uprobe:malloc                        error: a probe in user space needs a file; write uprobe:malloc@"/path/or/name"
            uprobe:malloc@                       error: a probe in user space needs a file; write uprobe:malloc@"/path/or/name"
            uprobe:malloc@""                     error: a probe in user space needs a file; write uprobe:malloc@"/path/or/name"
            uprobe:@"x"                          error: the function is missing; write uprobe:FUNCTION[+OFFSET]@"FILE" or uprobe:0xADDRESS@"FILE"
            uprobe:+5@x                          error: the function is missing; write uprobe:FUNCTION[+OFFSET]@"FILE" or uprobe:0xADDRESS@"FILE"
            uprobe:f+@x                          error: `` is not an offset; write a number of bytes, for example 16 or 0x10
            uprobe:f+g@x                         error: `g` is not an offset; write a number of bytes, for example 16 or 0x10
            uprobe:f+-1@x                        error: `-1` is not an offset; write a number of bytes, for example 16 or 0x10
            uprobe:                              error: the function is missing; write uprobe:FUNCTION[+OFFSET]@"FILE" or uprobe:0xADDRESS@"FILE"
            uprobe:f@"x"zz/a/                    uprobe:f@'"x"zz'  Function { name: "f", offset: 0 } "\"x\"zz" | /a/
            uprobe:libc:                         error: the function is missing; write uprobe:FUNCTION[+OFFSET]@"FILE" or uprobe:0xADDRESS@"FILE"
            kprobe:f@"x"                         error: a probe in the kernel takes no file; for a program or library write uprobe:...
            kprobe:f+0xg                         error: `0xg` is not an offset; write a number of bytes, for example 16 or 0x10
            kprobe:                              error: the function is missing; write kprobe:FUNCTION[+OFFSET] or kprobe:0xADDRESS
            uretprobe:f+4@"x"                    error: a return probe takes no offset; leave out `+0x4`
        "#]],
        );
    }
}
