//! Finds the line of an instruction in `co_linetable` (Objects/locations.md in CPython).

use crate::runtime::Function;

/// Returns the line of an instruction of a function. `None` if the address is not in the function, or if the
/// instruction belongs to no line.
pub fn line(function: &Function, instruction: u64) -> Option<u32> {
    if instruction.wrapping_add(2) == function.instructions {
        // In 3.11 and 3.12, a frame contains the address of the instruction before the next one. This frame has
        // executed no instruction.
        return Some(function.first_line);
    }
    let target = instruction.checked_sub(function.instructions)?;
    let mut table = function.lines.iter().copied();
    let mut line = i64::from(function.first_line);
    let mut end = 0;
    while let Some(first) = table.next() {
        let has_line = match first >> 3 & 15 {
            15 => false,
            14 => {
                line = line.checked_add(signed(&mut table)?)?;
                // Skip the last line and the two columns.
                (0..3).try_for_each(|_| unsigned(&mut table).map(|_| ()))?;
                true
            }
            13 => {
                line = line.checked_add(signed(&mut table)?)?;
                true
            }
            form @ 10..=12 => {
                line = line.checked_add(i64::from(form) - 10)?;
                table.nth(1)?;
                true
            }
            _ => {
                table.next()?;
                true
            }
        };
        end += 2 * (u64::from(first & 7) + 1);
        if target < end {
            return u32::try_from(line).ok().filter(|_| has_line);
        }
    }
    None
}

/// Reads an unsigned number. Each byte contains six bits of the number, the lowest bits first.
fn unsigned(table: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut number = 0;
    for shift in (0..60).step_by(6) {
        let byte = table.next()?;
        number |= u64::from(byte & 63) << shift;
        if byte & 64 == 0 {
            return Some(number);
        }
    }
    None
}

/// Reads a signed number. The lowest bit is the sign.
fn signed(table: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let number = unsigned(table)?;
    let size = (number >> 1) as i64;
    Some(if number & 1 == 0 { size } else { -size })
}
