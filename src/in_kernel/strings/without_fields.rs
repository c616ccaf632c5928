//! The program that writes the samples of an event without fields, such as a timer, with the frames of an interpreter. It runs when
//! the kernel would write a sample, also in interrupts that cannot be masked.

use perf_prof_format::tracefs::FRAMES_WITHOUT_FIELDS;

use super::{KernelTypes, LENGTH, RECORD, StringProgram, write_record};
use crate::{
    expression::start,
    frames::{LARGEST_FRAMES, ValueUse, read_frames, write_frames},
    instruction::{Code, Condition, MapUse, Register, Size},
    lower::{PidNamespace, Unsuited},
    select::{Selection, look_up_only},
};

/// Returns the program that writes the samples of an event without fields.
pub fn frames_program(selection: &Selection, types: KernelTypes<'_>) -> Result<StringProgram, Unsuited> {
    selection.check()?;
    if selection.ids == PidNamespace::Other {
        // Processes and threads are found by the ids that the first namespace gives them.
        return Err(Unsuited::PidNamespace);
    }
    let mut code = Code::new();
    let done = code.label();
    start(&mut code);
    selection.jump_unless(&mut code, done);
    read_frames(&mut code, types.iterator, ValueUse::Only);
    look_up_only(&mut code, MapUse::Record);
    code.jump_if(Condition::Equal, Register::R0, 0, done);
    code.copy(RECORD, Register::R0);
    code.store_number(Size::Double, RECORD.at(0), 0);
    code.copy(LENGTH, FRAMES_WITHOUT_FIELDS as i32);
    write_frames(&mut code, RECORD, LENGTH, 0);
    write_record(&mut code);
    code.here(done);
    // The event has no ring, so the kernel need not make its sample.
    code.exit(0);
    Ok(StringProgram { program: code.program(), record_bytes: FRAMES_WITHOUT_FIELDS + LARGEST_FRAMES, values: 1 })
}
