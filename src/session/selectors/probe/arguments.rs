//! The arguments of a probe, as the kernel parses them: parameters become registers, and values get names and types.
//! The names and types come from the DWARF of the probed file.

use std::{fs::File, path::Path};

use object::elf::{EM_AARCH64, EM_X86_64};
use perf_prof_format::spec::{FetchBase, ProbeArgument, ProbeKind};
use perf_prof_symbols::symbol::{
    dwarf::Dwarf,
    elf::{DebugSearch, Elf, debug_file, shared_debug_file},
    signature::{Signature, ValueKind},
};

/// The maximum size, in bytes, of the debug information that is read from a file.
const MOST_DWARF: usize = 1 << 30;

/// Why an argument cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// An argument names a parameter, but there is no DWARF.
    #[error(
        "the parameter `{0}` is not known, because no debug information was found for the function; write $argN or %REGISTER instead"
    )]
    NoDwarf(String),
    /// The function has no such parameter.
    #[error("the function has no parameter `{name}`; {}", listed(known))]
    Unknown {
        /// The name.
        name: String,
        /// The names of the parameters.
        known: Vec<String>,
    },
    /// The parameter is not in a general register.
    #[error(
        "the parameter `{0}` is not in a general register, because it or a parameter before it is a structure or a floating-point number; write where it is, for example %REGISTER or +OFFSET(%sp)"
    )]
    Place(String),
    /// The argument is on the stack, because there are not enough registers.
    #[error("$arg{0} is not in a register; write where it is on the stack, for example +8(%sp)")]
    OnStack(usize),
    /// Arguments are known only where a function starts.
    #[error(
        "`{0}`: the arguments of a function are in their registers only where the function starts; write %REGISTER, or probe the start of the function"
    )]
    NotAtStart(String),
    /// The value that a function returns is known only when it returns.
    #[error("`{0}`: the result of a function is known only when it returns; use uretprobe: or kretprobe:")]
    NotAtReturn(String),
    /// The registers of arguments are not known for this processor.
    #[error(
        "`{0}`: perf-prof does not know which registers hold the arguments on the processor of this file; write %REGISTER instead"
    )]
    Processor(String),
    /// A static probe's arguments have only numbers, no names.
    #[error("the static probe has no argument `{name}`; {}", match count {
        0 => "it has none".to_owned(),
        1 => "it has arg1".to_owned(),
        count => format!("it has arg1 to arg{count}"),
    })]
    NoStatic {
        /// The name.
        name: String,
        /// The number of the probe's arguments.
        count: usize,
    },
    /// An argument of a static probe that the kernel cannot read.
    #[error("arg{number} cannot be read: {why}")]
    Unreadable {
        /// The number of the argument.
        number: usize,
        /// The reason.
        why: &'static str,
    },
    /// An argument of a static probe is too small for an address.
    #[error("arg{number} is a number of {size} bytes and not an address, so nothing can be read where it points to")]
    NoAddress {
        /// The number of the argument.
        number: usize,
        /// The size of the argument in bytes.
        size: u8,
    },
    /// Two arguments with the same name.
    #[error("two arguments have the name `{0}`; give one of them another name with NAME=")]
    SameName(String),
}

fn listed(names: &[String]) -> String {
    match names {
        [] => "it has no parameters with names".to_owned(),
        names => format!("its parameters are {}", names.join(", ")),
    }
}

/// Whether the probed location is the start of a function. The arguments are in their registers only at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArgumentPlace {
    /// The probe is at the start of the function.
    Start,
    /// The probe is at another location in the function.
    Inside,
}

/// The facts about the probed function of a program or library.
#[derive(Debug, Default)]
pub(super) struct ProbedFunction {
    /// The general registers of arguments, in their order; `None` if they are not known for this processor.
    registers: Option<&'static [&'static str]>,
    signature: Option<Signature>,
}

impl ProbedFunction {
    /// Reads the facts about the function at `address` from `file`. `path` is the path of the file.
    pub fn read(file: &File, path: &Path, address: u64) -> ProbedFunction {
        let elf = file.try_clone().ok().and_then(|file| Elf::of_file(file).ok());
        let Some(elf) = elf else { return ProbedFunction::default() };
        // The registers of integer arguments in the ABIs of System V for x86-64 and of Arm for AArch64.
        let registers: Option<&[&str]> = match elf.machine {
            EM_X86_64 if elf.is_64 => Some(&["di", "si", "dx", "cx", "r8", "r9"]),
            EM_AARCH64 => Some(&["x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7"]),
            _ => None,
        };
        ProbedFunction { registers, signature: signature(elf, path, address) }
    }

    /// Returns the parameters that are in registers, in the order of the registers, with their names and kinds.
    fn in_registers(&self) -> Vec<(Option<&str>, ValueKind)> {
        let Some(signature) = &self.signature else { return Vec::new() };
        // If a function returns a structure, the caller may pass the structure's address as a hidden first argument. So
        // the registers of the other arguments are not known.
        if signature.result == Some(ValueKind::Other) {
            return Vec::new();
        }
        let before = signature.parameters.iter().take_while(|parameter| parameter.kind != ValueKind::Other);
        let general = before.filter(|parameter| parameter.kind != ValueKind::Float);
        general.map(|parameter| (parameter.name.as_deref(), parameter.kind)).collect()
    }
}

fn signature(elf: Elf, path: &Path, address: u64) -> Option<Signature> {
    let search = DebugSearch::default();
    let (path, elf) = if Dwarf::is_in(&elf) { (path.to_owned(), elf) } else { debug_file(&elf, path, &search)? };
    let shared = shared_debug_file(&elf, &path, &search);
    Dwarf::read(&elf, shared.as_ref(), MOST_DWARF).ok()?.signature(address)
}

/// Returns the arguments as the kernel parses them. `function` is `None` for a probe in the kernel, because the kernel
/// itself knows `$argN` and the names of its parameters.
pub(super) fn resolve(
    kind: ProbeKind,
    place: ArgumentPlace,
    arguments: &[ProbeArgument],
    function: Option<&ProbedFunction>,
) -> Result<Vec<String>, ArgumentError> {
    let mut names: Vec<String> = Vec::new();
    let mut resolved = Vec::new();
    for (at, argument) in arguments.iter().enumerate() {
        let found = base(kind, place, argument, function)?;
        let name = argument.name.clone().or(found.name).unwrap_or_else(|| format!("arg{}", at + 1));
        if names.contains(&name) {
            return Err(ArgumentError::SameName(name));
        }
        // The field has the type of the parameter only if it contains the parameter's value. It may also contain the
        // value that the parameter points to.
        let is_whole = !argument.fetch.contains('(');
        let of_value = found.kind.filter(|_| is_whole).and_then(type_name);
        let type_name = argument.type_name.clone().or(of_value).map_or(String::new(), |name| format!(":{name}"));
        resolved.push(format!("{name}={}{type_name}", argument.fetch_with_base(&found.text)));
        names.push(name);
    }
    Ok(resolved)
}

/// The innermost part of a fetch, in the syntax of the kernel.
struct Base {
    text: String,
    /// The name of the field, if the user gave none.
    name: Option<String>,
    /// The kind of the field's value, if it is known.
    kind: Option<ValueKind>,
}

fn base(
    kind: ProbeKind,
    place: ArgumentPlace,
    argument: &ProbeArgument,
    function: Option<&ProbedFunction>,
) -> Result<Base, ArgumentError> {
    let typed = || argument.fetch.clone();
    let of_name = |name: &str| Some(name.to_owned()).filter(|_| !argument.fetch.contains('('));
    let not_at_start = kind.is_return() || place == ArgumentPlace::Inside;
    match (argument.base(), function) {
        (FetchBase::ReturnValue, _) if !kind.is_return() => Err(ArgumentError::NotAtReturn(typed())),
        (FetchBase::ReturnValue, function) => {
            let kind = function.and_then(|function| function.signature.as_ref()?.result);
            Ok(Base { text: "$retval".to_owned(), name: of_name("retval"), kind })
        }
        (FetchBase::Kernel(text), _) => {
            let name = text.trim_start_matches(['$', '%']).to_owned();
            let is_name = name.len() < text.len() && name.chars().all(|c| c.is_ascii_alphanumeric());
            let name = of_name(&name).filter(|_| is_name);
            Ok(Base { text, name, kind: None })
        }
        (FetchBase::Argument(number), None) => {
            Ok(Base { text: format!("$arg{number}"), name: of_name(&format!("arg{number}")), kind: None })
        }
        (FetchBase::Parameter(name), None) => Ok(Base { name: of_name(&name), text: name, kind: None }),
        (FetchBase::Argument(_) | FetchBase::Parameter(_), Some(_)) if not_at_start => {
            Err(ArgumentError::NotAtStart(typed()))
        }
        (FetchBase::Argument(number), Some(function)) => {
            let registers = function.registers.ok_or_else(|| ArgumentError::Processor(typed()))?;
            let register = registers.get(number - 1).ok_or(ArgumentError::OnStack(number))?;
            let (name, kind) =
                function.in_registers().get(number - 1).map_or((None, None), |&(name, kind)| (name, Some(kind)));
            let name = name.map_or_else(|| format!("arg{number}"), str::to_owned);
            Ok(Base { text: format!("%{register}"), name: of_name(&name), kind })
        }
        (FetchBase::Parameter(name), Some(function)) => {
            let Some(signature) = &function.signature else { return Err(ArgumentError::NoDwarf(name)) };
            let registers = function.registers.ok_or_else(|| ArgumentError::Processor(typed()))?;
            let is_it = |of: &Option<&str>| of.is_some_and(|of| of == name);
            let known = signature.parameters.iter().map(|parameter| parameter.name.as_deref());
            if !known.clone().any(|of| is_it(&of)) {
                return Err(ArgumentError::Unknown { name, known: known.flatten().map(str::to_owned).collect() });
            }
            let placed = function.in_registers().into_iter().zip(registers).find(|((of, _), _)| is_it(of));
            let Some(((_, kind), register)) = placed else { return Err(ArgumentError::Place(name)) };
            Ok(Base { text: format!("%{register}"), name: of_name(&name), kind: Some(kind) })
        }
    }
}

/// Returns the name of the kernel's type for a value.
fn type_name(kind: ValueKind) -> Option<String> {
    match kind {
        ValueKind::Integer { size, signed } => {
            Some(format!("{}{}", if signed { 's' } else { 'u' }, u32::from(size) * 8))
        }
        ValueKind::Pointer => Some("x64".to_owned()),
        ValueKind::Float | ValueKind::Other => None,
    }
}

#[cfg(test)]
mod tests {
    use perf_prof_format::spec::{EventSpec, parse_events};
    use perf_prof_symbols::symbol::signature::Parameter;

    use super::*;

    fn arguments(attributes: &str) -> Vec<ProbeArgument> {
        let mut events = parse_events(&format!("uprobe:f@\"x\"//{attributes}")).unwrap();
        let EventSpec { attrs, .. } = events.pop().unwrap();
        attrs.arguments
    }

    fn function(parameters: &[(&str, ValueKind)], result: Option<ValueKind>) -> ProbedFunction {
        let parameters = parameters.iter().map(|&(name, kind)| Parameter { name: Some(name.to_owned()), kind });
        let signature = Some(Signature { parameters: parameters.collect(), result });
        ProbedFunction { registers: Some(&["di", "si", "dx"]), signature }
    }

    const INT: ValueKind = ValueKind::Integer { size: 4, signed: true };

    #[track_caller]
    fn check(kind: ProbeKind, function: Option<&ProbedFunction>, attributes: &str, expected: &str) {
        let resolved = resolve(kind, ArgumentPlace::Start, &arguments(attributes), function);
        let shown = resolved.map_or_else(|error| format!("error: {error}"), |arguments| arguments.join(" "));
        assert!(
            shown == expected || expected.ends_with("...") && shown.starts_with(expected.trim_end_matches("...")),
            "{shown}"
        );
    }

    #[test]
    fn names_and_types_come_from_the_signature() {
        let known = function(&[("n", INT), ("x", ValueKind::Float), ("path", ValueKind::Pointer)], Some(INT));
        let known = Some(&known);
        check(ProbeKind::Uprobe, known, "$arg1/$arg2/", "n=%di:s32 path=%si:x64");
        check(ProbeKind::Uprobe, known, "n/text=+0(path):ustring/", "n=%di:s32 text=+0(%si):ustring");
        check(ProbeKind::Uprobe, known, "low=n:u8/raw=%di/%dx/", "low=%di:u8 raw=%di dx=%dx");
        check(ProbeKind::Uprobe, known, "x/", "error: the parameter `x` is not in a general register...");
        check(
            ProbeKind::Uprobe,
            known,
            "m/",
            "error: the function has no parameter `m`; its parameters are n, x, path",
        );
        check(ProbeKind::Uprobe, known, "n/n=%si/", "error: two arguments have the name `n`...");
        check(ProbeKind::Uprobe, known, "$arg9/", "error: $arg9 is not in a register...");
        check(ProbeKind::Uretprobe, known, "ptr=retval/", "ptr=$retval:s32");
        check(ProbeKind::Uretprobe, known, "n/", "error: `n`: the arguments of a function...");
        check(ProbeKind::Uprobe, known, "$retval/", "error: `$retval`: the result of a function is known only when...");
    }

    #[test]
    fn without_debug_information_arguments_have_numbers() {
        let unknown = ProbedFunction { registers: Some(&["di", "si"]), signature: None };
        check(ProbeKind::Uprobe, Some(&unknown), "size=$arg1/$arg2/", "size=%di arg2=%si");
        check(ProbeKind::Uprobe, Some(&unknown), "size/", "error: the parameter `size` is not known...");
        check(
            ProbeKind::Uprobe,
            Some(&ProbedFunction::default()),
            "$arg1/",
            "error: `$arg1`: perf-prof does not know...",
        );
    }

    /// If a function returns a structure, a hidden first argument may shift all other arguments.
    #[test]
    fn registers_after_a_structure_are_not_guessed() {
        let returns = function(&[("n", INT)], Some(ValueKind::Other));
        check(ProbeKind::Uprobe, Some(&returns), "n/", "error: the parameter `n` is not in a general register...");
        let takes = function(&[("s", ValueKind::Other), ("n", INT)], None);
        check(ProbeKind::Uprobe, Some(&takes), "n/", "error: the parameter `n` is not in a general register...");
    }

    #[test]
    fn the_kernel_knows_its_own_arguments() {
        check(
            ProbeKind::Kprobe,
            None,
            "$arg1/path=+0(%si):ustring/who=comm/",
            "arg1=$arg1 path=+0(%si):ustring who=$comm",
        );
        check(ProbeKind::Kretprobe, None, "retval/", "retval=$retval");
    }
}
