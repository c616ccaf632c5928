//! Arguments of probes, `NAME=FETCH[:TYPE]`: the values that a probe reads when it is hit. Does not know functions, so
//! names of parameters are not resolved here.

use std::fmt;

use super::{error::ValueError, parse::unquote};

/// The attributes of a probe that are never arguments.
const ATTRIBUTES: [&str; 5] = ["", "stack", "max-stack", "alias", "cpus"];

/// The attributes that set how often an event other than a tracepoint is sampled, and what its samples contain. For a
/// probe, `period=10` is such an attribute and not an argument. But `period=%di` is an argument, because `%di` can only
/// be a fetch.
const SAMPLING: [&str; 5] = ["period", "c", "freq", "F", "sample"];

/// The maximum length of an argument's name that the kernel accepts. `MAX_ARG_NAME_LEN` in kernel/trace/trace_probe.h
/// includes the NUL.
const LONGEST_NAME: usize = 31;

/// An argument of a probe. A fetch is the text that says where the kernel finds the value.
/// `Documentation/trace/uprobetracer.rst` and `kprobetrace.rst` of the kernel describe fetches and types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeArgument {
    /// The name of the field. `None` if the user gave only a fetch.
    pub name: Option<String>,
    /// The fetch, without its type: `%di`, `+0(%si)`, `$arg1`, `size`.
    pub fetch: String,
    /// The type, with the size of an array: `u32`, `ustring`, `u8[16]`.
    pub type_name: Option<String>,
}

/// The innermost part of a fetch, whose value is read first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchBase {
    /// The argument with this number; the first one has the number 1.
    Argument(usize),
    /// The value that the function returns.
    ReturnValue,
    /// A name without `%`, `$`, `@` or the like: a parameter of the function.
    Parameter(String),
    /// Text that the kernel interprets: a register, a variable, an address.
    Kernel(String),
}

impl ProbeArgument {
    /// Parses an attribute of a probe. Returns `None` if the attribute is not an argument.
    pub(super) fn parse(text: &str) -> Option<Result<ProbeArgument, ValueError>> {
        let text = unquote(text.trim());
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (Some(name.trim()), unquote(value.trim())),
            None => (None, text),
        };
        let is_fetch = value.starts_with(['%', '$', '@', '+', '-', '\\']);
        match name {
            Some(name) if ATTRIBUTES.contains(&name) || SAMPLING.contains(&name) && !is_fetch => return None,
            Some(name) if !is_name(name) => return None,
            None if ATTRIBUTES.contains(&value) || SAMPLING.contains(&value) => return None,
            _ => {}
        }
        let wrong = || Some(Err(ValueError::Fetch(value.to_owned())));
        let (fetch, type_name) = match value.split_once(':') {
            Some((_, "")) => return wrong(),
            Some((fetch, type_name)) => (fetch, Some(type_name.to_owned())),
            None => (value, None),
        };
        // The kernel divides definitions at spaces, and a `#` starts a comment.
        let is_refused = |c: char| c.is_whitespace() || c.is_control() || c == '#';
        let is_number = fetch.starts_with(|c: char| c.is_ascii_digit());
        let is_open = fetch.matches('(').count() != fetch.matches(')').count();
        if fetch.is_empty() || is_number || is_open || value.contains(is_refused) {
            return wrong();
        }
        let name = name.map(str::to_owned);
        Some(Ok(ProbeArgument { name, fetch: fetch.to_owned(), type_name }))
    }

    /// Returns the innermost part of the fetch. A variable of the kernel may be written without its `$` (`retval`),
    /// because a shell would expand `$retval`.
    pub fn base(&self) -> FetchBase {
        let text = &self.fetch[self.base_range()];
        let name = text.strip_prefix('$').unwrap_or(text);
        let numbered = |prefix: &str| name.strip_prefix(prefix)?.parse::<usize>().ok();
        match (name, numbered("arg")) {
            (_, Some(number @ 1..)) => FetchBase::Argument(number),
            ("retval", _) => FetchBase::ReturnValue,
            ("comm" | "stack", _) => FetchBase::Kernel(format!("${name}")),
            _ if numbered("stack").is_some() => FetchBase::Kernel(format!("${name}")),
            _ if name.len() == text.len() && is_name(name) => FetchBase::Parameter(name.to_owned()),
            _ => FetchBase::Kernel(text.to_owned()),
        }
    }

    /// Returns the fetch with another innermost part.
    pub fn fetch_with_base(&self, base: &str) -> String {
        let mut fetch = self.fetch.clone();
        fetch.replace_range(self.base_range(), base);
        fetch
    }

    /// Returns the byte range of the innermost part, which is inside all parentheses: the range of `%si` in
    /// `+0(+8(%si))`.
    fn base_range(&self) -> std::ops::Range<usize> {
        let from = self.fetch.rfind('(').map_or(0, |at| at + 1);
        let to = self.fetch[from..].find(')').map_or(self.fetch.len(), |at| from + at);
        from..to
    }
}

fn is_name(text: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    text.starts_with(is_letter)
        && text.len() <= LONGEST_NAME
        && text.chars().all(|c| is_letter(c) || c.is_ascii_digit())
}

/// Writes the argument as an attribute.
impl fmt::Display for ProbeArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name}=")?;
        }
        f.write_str(&self.fetch)?;
        self.type_name.as_ref().map_or(Ok(()), |type_name| write!(f, ":{type_name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match ProbeArgument::parse(text) {
            None => "no argument".to_owned(),
            Some(Err(error)) => format!("error: {error}"),
            Some(Ok(argument)) => {
                assert_eq!(ProbeArgument::parse(&argument.to_string()), Some(Ok(argument.clone())));
                format!("{:?} {} {:?} {:?}", argument.name, argument.fetch, argument.type_name, argument.base())
            }
        }
    }

    #[test]
    fn fetches_with_names_and_types() {
        for (text, expected) in [
            ("size=%di", r#"Some("size") %di None Kernel("%di")"#),
            ("path=+0(%si):ustring", r#"Some("path") +0(%si) Some("ustring") Kernel("%si")"#),
            ("ptr=retval", r#"Some("ptr") retval None ReturnValue"#),
            ("$retval", r#"None $retval None ReturnValue"#),
            ("n=+4(+8($arg2)):u8[16]", r#"Some("n") +4(+8($arg2)) Some("u8[16]") Argument(2)"#),
            ("'flags=%di:b4@8/32'", r#"Some("flags") %di Some("b4@8/32") Kernel("%di")"#),
            ("c=%dl:s8", r#"Some("c") %dl Some("s8") Kernel("%dl")"#),
            ("who=comm", r#"Some("who") comm None Kernel("$comm")"#),
            ("top=$stack0:x64", r#"Some("top") $stack0 Some("x64") Kernel("$stack0")"#),
            ("size", r#"None size None Parameter("size")"#),
            ("length=size:u32", r#"Some("length") size Some("u32") Parameter("size")"#),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
        let nested = ProbeArgument::parse("n=+4(+8(size)):u32").unwrap().unwrap();
        assert_eq!(nested.fetch_with_base("%di"), "+4(+8(%di))");
    }

    #[test]
    fn attributes_are_no_arguments() {
        for text in ["", "stack", "max-stack=5", "alias=a", "cpus=0", "period=100", "freq=9", "sample=addr", "a-b=%di"]
        {
            assert_eq!(shown(text), "no argument", "{text}");
        }
    }

    #[test]
    fn text_that_would_change_the_definition_is_refused() {
        for text in ["n=", "n=5", "n=%di:", "n=%di x=%si", "n=%di#", "n=+0(%di", "n=%di\n-:other"] {
            assert!(shown(text).starts_with("error: "), "{text}: {}", shown(text));
        }
    }
}
