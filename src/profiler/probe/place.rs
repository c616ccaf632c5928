//! A place in a program or library to the offset in its file that the kernel puts a probe at. Knows nothing of processes.

use std::path::Path;

use crate::{
    spec::{Place, ProbeKind},
    symbol::elf::{Elf, ElfError, FunctionError, Segment, function, functions},
};

/// Why no probe can be there.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The file has no such function.
    #[error(transparent)]
    Function(#[from] FunctionError),
    /// The file cannot be used.
    #[error("{path}: {error}")]
    File {
        /// Which.
        path: String,
        /// Why.
        error: ElfError,
    },
    /// The place is behind the function's end.
    #[error("{path}: `{name}` has {size:#x} bytes, so +{offset:#x} is not in it")]
    Beyond {
        /// The file.
        path: String,
        /// The function.
        name: String,
        /// Its size.
        size: u64,
        /// What was asked for.
        offset: u64,
    },
    /// There is no code.
    #[error("{path}: there is no code at {address:#x}; {}", whereabouts(*.address_of, code))]
    NoCode {
        /// The file.
        path: String,
        /// What was asked for.
        address: u64,
        /// The address of the code that is at this offset in the file.
        address_of: Option<u64>,
        /// From and up to which addresses there is code.
        code: Vec<(u64, u64)>,
    },
    /// The return of something that is in the midst of a function.
    #[error("{path}: {address:#x} is {name}+{offset:#x}; a return probe is put on a function's begin, {:#x}", address - offset)]
    Within {
        /// The file.
        path: String,
        /// What was asked for.
        address: u64,
        /// The function.
        name: String,
        /// How far in it.
        offset: u64,
    },
}

fn whereabouts(address_of: Option<u64>, code: &[(u64, u64)]) -> String {
    let ranges: Vec<String> = code.iter().map(|(from, to)| format!("{from:#x}-{to:#x}")).collect();
    match address_of {
        Some(address) => format!("as an offset in the file it is that of {address:#x}, and addresses are asked for"),
        None if ranges.is_empty() => "the file has no code".to_owned(),
        None => format!("addresses of code are {}, as `objdump -d` and `nm` show them", ranges.join(", ")),
    }
}

/// The offset of a place in its file.
///
/// The kernel takes a probe at any offset: one outside of the code is just never hit, and one of a return in the midst of a
/// function takes something else for the return address and ruins the program. So both are refused here.
pub(super) fn offset(file: &Path, kind: ProbeKind, place: &Place) -> Result<u64, PlaceError> {
    let path = || file.display().to_string();
    match place {
        Place::Function { name, offset } => {
            let function = function(file, name)?;
            if *offset != 0 && *offset >= function.size && function.size != 0 {
                let (name, size, offset) = (name.clone(), function.size, *offset);
                return Err(PlaceError::Beyond { path: path(), name, size, offset });
            }
            in_code(file, function.address.saturating_add(*offset))
        }
        Place::Address(address) => {
            let offset = in_code(file, *address)?;
            if kind.is_return() {
                begins_function(file, *address)?;
            }
            Ok(offset)
        }
    }
}

fn in_code(file: &Path, address: u64) -> Result<u64, PlaceError> {
    let path = || file.display().to_string();
    let elf = Elf::open(file).map_err(|error| PlaceError::File { path: path(), error })?;
    let code = || elf.segments.iter().filter(|segment| segment.executable);
    let into = |from: u64, segment: &Segment| address.checked_sub(from).filter(|&into| into < segment.size);
    if let Some(offset) = code().find_map(|segment| Some(segment.offset + into(segment.address, segment)?)) {
        return Ok(offset);
    }
    let address_of = code().find_map(|segment| segment.address.checked_add(into(segment.offset, segment)?));
    let code = code().map(|segment| (segment.address, segment.address.saturating_add(segment.size))).collect();
    Err(PlaceError::NoCode { path: path(), address, address_of, code })
}

/// Whether a function begins there, as far as the file has symbols.
fn begins_function(file: &Path, address: u64) -> Result<(), PlaceError> {
    let functions = functions(file).unwrap_or_default();
    if functions.iter().any(|function| function.offset.address == address) {
        return Ok(());
    }
    let within = functions.iter().find_map(|function| {
        let offset = address.checked_sub(function.offset.address).filter(|&into| into < function.offset.size)?;
        Some((function.name.clone(), offset))
    });
    match within {
        Some((name, offset)) => Err(PlaceError::Within { path: file.display().to_string(), address, name, offset }),
        None => Ok(()),
    }
}
