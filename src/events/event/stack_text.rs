//! The text of a call chain: the names of its frames, outermost first, separated by `;`.

use std::sync::Arc;

use super::{Frame, Origin, UNKNOWN};
use crate::picture::Label;

/// Returns the label of a frame, for folded stacks and flame graphs.
pub fn frame_label(frame: &Frame) -> Label<'_> {
    match (&*frame.symbol != UNKNOWN, frame.origin == Origin::Kernel) {
        (true, true) => Label::Kernel(&frame.symbol),
        (true, false) => Label::Name(&frame.symbol),
        (false, true) => Label::InKernel(&frame.dso),
        (false, false) => Label::InFile(&frame.dso),
    }
}

/// Returns the text of a call chain. `frames` starts with the innermost frame.
pub fn folded(frames: &[Arc<Frame>]) -> String {
    let mut text = String::new();
    for frame in frames.iter().rev() {
        if !text.is_empty() {
            text.push(';');
        }
        text.push_str(&frame_label(frame).text());
    }
    text
}
