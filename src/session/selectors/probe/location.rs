//! Translates a location in a program or library to the file offset at which the kernel sets a probe.

use std::{fs::File, path::Path};

use perf_prof_format::spec::{ProbeKind, ProbeLocation};
use perf_prof_symbols::symbol::elf::{Elf, ElfError, FunctionError, Segment, function_of, functions_of};

/// Why no probe can be set at a location.
#[derive(Debug, thiserror::Error)]
pub enum LocationError {
    /// The file has no such function.
    #[error(transparent)]
    Function(#[from] FunctionError),
    /// The file cannot be used.
    #[error("{path}: {error}")]
    File {
        /// The path of the file.
        path: String,
        /// What is wrong with the file.
        error: ElfError,
    },
    /// The location is after the end of the function.
    #[error("{path}: `{name}` has {size:#x} bytes, so +{offset:#x} is not in it")]
    Beyond {
        /// The path of the file.
        path: String,
        /// The name of the function.
        name: String,
        /// The size of the function in bytes.
        size: u64,
        /// The requested offset in the function, in bytes.
        offset: u64,
    },
    /// There is no code at the address.
    #[error("{path}: there is no code at {address:#x}; {}", whereabouts(*.address_of, code))]
    NoCode {
        /// The path of the file.
        path: String,
        /// The requested address.
        address: u64,
        /// If the requested number is also a valid file offset: the address of the code at this offset.
        address_of: Option<u64>,
        /// The address ranges that have code: start and end.
        code: Vec<(u64, u64)>,
    },
    /// A return probe was requested in the middle of a function.
    #[error("{path}: {address:#x} is {name}+{offset:#x}; a return probe has to be at its start, {:#x}", address - offset)]
    Within {
        /// The path of the file.
        path: String,
        /// The requested address.
        address: u64,
        /// The name of the function.
        name: String,
        /// The offset of the address in the function, in bytes.
        offset: u64,
    },
}

fn whereabouts(address_of: Option<u64>, code: &[(u64, u64)]) -> String {
    let ranges: Vec<String> = code.iter().map(|(from, to)| format!("{from:#x}-{to:#x}")).collect();
    match address_of {
        Some(address) => format!("if this is a file offset, give its address {address:#x} instead"),
        None if ranges.is_empty() => "the file has no code".to_owned(),
        None => format!("the file has code at the addresses {} (see `objdump -d` or `nm`)", ranges.join(", ")),
    }
}

/// Returns the address of a location, as `nm` shows it, and its file offset. `path` is the path of `file`.
///
/// The kernel accepts a probe at any offset, so this function refuses two kinds of probes. A probe outside of the code is
/// never hit. A return probe in the middle of a function breaks the program, because the kernel takes another value for the
/// return address.
pub(super) fn address_and_offset(
    file: &File,
    path: &Path,
    kind: ProbeKind,
    location: &ProbeLocation,
) -> Result<(u64, u64), LocationError> {
    let wrong = |error| LocationError::File { path: path.display().to_string(), error };
    let elf = file.try_clone().map_err(ElfError::from).and_then(Elf::of_file).map_err(wrong)?;
    match location {
        ProbeLocation::Function { name, offset } => {
            let function = function_of(&elf, path, name)?;
            if *offset != 0 && *offset >= function.size && function.size != 0 {
                let (name, size, offset) = (name.clone(), function.size, *offset);
                return Err(LocationError::Beyond { path: path.display().to_string(), name, size, offset });
            }
            let address = function.address.saturating_add(*offset);
            Ok((address, in_code(&elf, path, address)?))
        }
        ProbeLocation::Address(address) => {
            let offset = in_code(&elf, path, *address)?;
            if kind.is_return() {
                begins_function(&elf, path, *address)?;
            }
            Ok((*address, offset))
        }
        // Static probes do not get here: their locations are in the notes of the file (see `static_probe.rs`).
        ProbeLocation::Static { .. } => Err(wrong(ElfError::Malformed("a static probe has no symbol"))),
    }
}

pub(super) fn in_code(elf: &Elf, path: &Path, address: u64) -> Result<u64, LocationError> {
    let code = || elf.segments.iter().filter(|segment| segment.executable);
    let into = |from: u64, segment: &Segment| address.checked_sub(from).filter(|&into| into < segment.size);
    if let Some(offset) = code().find_map(|segment| Some(segment.offset + into(segment.address, segment)?)) {
        return Ok(offset);
    }
    let address_of = code().find_map(|segment| segment.address.checked_add(into(segment.offset, segment)?));
    let code = code().map(|segment| (segment.address, segment.address.saturating_add(segment.size))).collect();
    Err(LocationError::NoCode { path: path.display().to_string(), address, address_of, code })
}

/// Fails if the address is inside a function but not at its start. Accepts an address for which the file has no symbol.
fn begins_function(elf: &Elf, path: &Path, address: u64) -> Result<(), LocationError> {
    let functions = functions_of(elf, path).unwrap_or_default();
    if functions.iter().any(|function| function.offset.address == address) {
        return Ok(());
    }
    let within = functions.iter().find_map(|function| {
        let offset = address.checked_sub(function.offset.address).filter(|&into| into < function.offset.size)?;
        Some((function.name.clone(), offset))
    });
    match within {
        Some((name, offset)) => Err(LocationError::Within { path: path.display().to_string(), address, name, offset }),
        None => Ok(()),
    }
}
