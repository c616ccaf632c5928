//! Removes unreachable instructions, which the verifier refuses, and jumps to the next instruction, which do nothing.

use super::{Code, Instruction};

impl Code {
    /// Returns the code without unreachable instructions. One pass is enough: it sees a forward jump before its label. The
    /// label of a backward jump is reached from the instruction before the label.
    pub(super) fn reachable(&self) -> Vec<Instruction> {
        let mut is_target = vec![false; self.labels];
        let mut is_reached = true;
        let mut reached = Vec::with_capacity(self.instructions.len());
        for instruction in &self.instructions {
            if let Instruction::Here(label) = instruction {
                is_reached |= is_target[label.0];
            }
            if !is_reached {
                continue;
            }
            match instruction {
                Instruction::Jump(label) | Instruction::JumpIf(.., label) => is_target[label.0] = true,
                _ => {}
            }
            is_reached = !matches!(instruction, Instruction::Jump(_) | Instruction::Exit);
            reached.push(*instruction);
        }
        let is_needed = |at: usize| !jumps_to_next(&reached[at..]);
        (0..reached.len()).filter(|&at| is_needed(at)).map(|at| reached[at]).collect()
    }
}

/// Returns whether the first instruction is a jump to a label that directly follows it.
fn jumps_to_next(instructions: &[Instruction]) -> bool {
    let [Instruction::Jump(to), rest @ ..] = instructions else { return false };
    let labels = rest.iter().take_while(|next| matches!(next, Instruction::Here(_)));
    labels.into_iter().any(|label| *label == Instruction::Here(*to))
}
