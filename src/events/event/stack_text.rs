//! The text of a call chain: the names of its frames, outermost first, separated by `;`.

use std::sync::Arc;

use super::{Frame, Origin, UNKNOWN};
use crate::picture::Label;

/// What the text of a call chain says about its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StackDetail {
    /// The functions.
    Functions,
    /// The functions, and the file and line of those whose line is known: `load_rows (app.py:42)`.
    Lines,
}

/// Returns the label of a frame, for folded stacks and flame graphs.
pub fn frame_label(frame: &Frame) -> Label<'_> {
    match (&*frame.symbol, frame.origin) {
        (UNKNOWN, Origin::Kernel) => Label::InKernel(&frame.dso),
        (symbol, Origin::Kernel) => Label::Kernel(symbol),
        (symbol, Origin::Python { .. }) => Label::Python(symbol),
        (UNKNOWN, Origin::User { .. } | Origin::Inlined { .. }) => Label::InFile(&frame.dso),
        (symbol, Origin::User { .. } | Origin::Inlined { .. }) => Label::Name(symbol),
    }
}

/// Returns the text of a call chain. `frames` starts with the innermost frame.
pub fn folded(frames: &[Arc<Frame>], detail: StackDetail) -> String {
    let mut text = String::new();
    for frame in frames.iter().rev() {
        if !text.is_empty() {
            text.push(';');
        }
        text.push_str(&match (detail, &frame.srcline) {
            (StackDetail::Lines, Some((path, line))) => {
                let file = path.rsplit('/').next().unwrap_or_default();
                let name = format!("{} ({file}:{line})", frame.symbol);
                // Only frames of Python functions and of programs have lines.
                let of_python = matches!(frame.origin, Origin::Python { .. });
                if of_python { Label::Python(&name) } else { Label::Name(&name) }.text()
            }
            _ => frame_label(frame).text(),
        });
    }
    text
}
