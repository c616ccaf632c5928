//! Ways to record call chains, as the user types them: `fp`, `dwarf,16384`, `lbr`.

use std::{fmt, str::FromStr};

/// How the frames of a call chain are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallGraph {
    /// The kernel follows frame pointers.
    #[default]
    FramePointer,
    /// The kernel copies the registers and this many bytes of the stack. The stack is unwound with the unwind
    /// information of the mapped files.
    Dwarf(StackSize),
    /// The processor records its last branches. Only user frames can be found in this way.
    LastBranches,
}

/// How many bytes of a user stack are copied with each sample: a multiple of 8 below 64 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackSize(u16);

impl StackSize {
    /// The maximum size. The kernel accepts multiples of 8 that fit into the 16 bits for a record's size
    /// (perf_copy_attr()).
    pub const MAX: StackSize = StackSize(!7);

    /// Returns the size in bytes, for `sample_stack_user`.
    pub fn bytes(self) -> u32 {
        self.0.into()
    }
}

impl Default for StackSize {
    fn default() -> StackSize {
        StackSize(8192)
    }
}

/// An error in the text of a [`CallGraph`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallGraphError {
    /// The text is not a way to record call chains.
    #[error("`{0}` is not a way to record call chains; write fp or dwarf[,SIZE]")]
    Unknown(String),
    /// A stack size was given for a way other than `dwarf`. Only `dwarf` copies the stack.
    #[error("`{0}` takes no size; only dwarf takes a size, for example `dwarf,16384`")]
    Unwanted(&'static str),
    /// The text is not a size.
    #[error("`{0}` is not a stack size; write a number of bytes, for example `dwarf,16384` or `dwarf,16K`")]
    Size(String),
    /// The kernel does not accept a size.
    #[error("the stack size {0} is out of range; it must be a multiple of 8 between 8 and {max}", max = StackSize::MAX.0)]
    Range(u64),
}

impl FromStr for CallGraph {
    type Err = CallGraphError;

    fn from_str(text: &str) -> Result<CallGraph, CallGraphError> {
        let (name, size) = match text.split_once(',') {
            Some((name, size)) => (name.trim(), Some(size.trim())),
            None => (text.trim(), None),
        };
        match (name, size) {
            ("fp", None) => Ok(CallGraph::FramePointer),
            ("lbr", None) => Ok(CallGraph::LastBranches),
            ("dwarf", None) => Ok(CallGraph::Dwarf(StackSize::default())),
            ("dwarf", Some(size)) => stack_size(size).map(CallGraph::Dwarf),
            ("fp", Some(_)) => Err(CallGraphError::Unwanted("fp")),
            ("lbr", Some(_)) => Err(CallGraphError::Unwanted("lbr")),
            _ => Err(CallGraphError::Unknown(text.to_owned())),
        }
    }
}

fn stack_size(text: &str) -> Result<StackSize, CallGraphError> {
    let (digits, scale) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1024),
        None => (text, 1),
    };
    let wrong = || CallGraphError::Size(text.to_owned());
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let bytes = digits.parse::<u64>().map_err(|_| wrong())?.saturating_mul(scale);
    let size = u16::try_from(bytes).ok().filter(|&bytes| bytes > 0 && bytes % 8 == 0);
    size.map(StackSize).ok_or(CallGraphError::Range(bytes))
}

impl fmt::Display for CallGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallGraph::FramePointer => f.write_str("fp"),
            CallGraph::Dwarf(size) => write!(f, "dwarf,{}", size.0),
            CallGraph::LastBranches => f.write_str("lbr"),
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Expect) {
        let shown = text.parse::<CallGraph>().map(|graph| graph.to_string());
        expected.assert_eq(&shown.unwrap_or_else(|error| format!("error: {error}")));
    }

    #[test]
    fn ways_to_take_call_chains() {
        check("fp", expect!["fp"]);
        check("lbr", expect!["lbr"]);
        check("dwarf", expect!["dwarf,8192"]);
        check(" dwarf , 16384 ", expect!["dwarf,16384"]);
        check("dwarf,32k", expect!["dwarf,32768"]);
        check("dwarf,65528", expect!["dwarf,65528"]);
        assert_eq!("dwarf,65528".parse(), Ok(CallGraph::Dwarf(StackSize::MAX)));
        assert_eq!("fp".parse(), Ok(CallGraph::default()));
    }

    #[test]
    fn invalid_call_graphs_are_reported() {
        check("", expect!["error: `` is not a way to record call chains; write fp or dwarf[,SIZE]"]);
        check("FP", expect!["error: `FP` is not a way to record call chains; write fp or dwarf[,SIZE]"]);
        check("fp,8192", expect!["error: `fp` takes no size; only dwarf takes a size, for example `dwarf,16384`"]);
        check("lbr,1", expect!["error: `lbr` takes no size; only dwarf takes a size, for example `dwarf,16384`"]);
        check(
            "dwarf,",
            expect!["error: `` is not a stack size; write a number of bytes, for example `dwarf,16384` or `dwarf,16K`"],
        );
        check(
            "dwarf,+8",
            expect![
                "error: `+8` is not a stack size; write a number of bytes, for example `dwarf,16384` or `dwarf,16K`"
            ],
        );
        check(
            "dwarf,8,8",
            expect![
                "error: `8,8` is not a stack size; write a number of bytes, for example `dwarf,16384` or `dwarf,16K`"
            ],
        );
        let range =
            expect!["error: the stack size 8193 is out of range; it must be a multiple of 8 between 8 and 65528"];
        check("dwarf,8193", range);
        for size in ["0", "65536", "64K", "99999999999999K"] {
            let error = format!("dwarf,{size}").parse::<CallGraph>();
            assert!(matches!(error, Err(CallGraphError::Range(_))), "{error:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_parses_or_is_an_error(text in "(fp|lbr|dwarf)?,?[0-9]{0,25}[kK]?|.*") {
            if let Ok(graph) = text.parse::<CallGraph>() {
                prop_assert_eq!(graph.to_string().parse(), Ok(graph));
            }
        }
    }
}
