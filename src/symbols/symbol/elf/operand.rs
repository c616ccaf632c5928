//! The operand of a static probe's argument in assembler syntax: `%rdi`, `-8(%rbp)`, `$5`, `[sp, 16]`.

use object::elf;

/// The location of an argument's value. Registers are named as in the kernel's probe syntax.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A constant.
    Constant(i64),
    /// The low bytes of a register.
    Register(String),
    /// The memory at an address.
    Memory(Memory),
}

/// An address: `base`, plus `index` times its factor, plus the address of `symbol`, plus `offset`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The register whose value is added.
    pub base: Option<String>,
    /// The register whose value is multiplied by the factor and then added.
    pub index: Option<(String, u8)>,
    /// The name of a variable of the file. The variable's address is added.
    pub symbol: Option<String>,
    /// A number of bytes that is added.
    pub offset: i64,
}

impl Operand {
    /// Returns the name of the variable in the operand's address, if there is one.
    pub fn variable(&self) -> Option<&str> {
        match self {
            Operand::Memory(memory) => memory.symbol.as_deref(),
            Operand::Constant(_) | Operand::Register(_) => None,
        }
    }

    /// Parses an operand of x86-64, x86 or AArch64. Returns `None` for other processors, and for operands that no
    /// variant can express, such as a floating-point register.
    pub(super) fn parse(text: &str, machine: elf::Machine) -> Option<Operand> {
        match machine {
            elf::EM_X86_64 | elf::EM_386 => x86(text.trim()),
            elf::EM_AARCH64 => aarch64(text.trim()),
            _ => None,
        }
    }
}

fn x86(text: &str) -> Option<Operand> {
    if let Some(number) = text.strip_prefix('$') {
        return constant(number).map(Operand::Constant);
    }
    if text.starts_with('%') && !text.contains([':', '(']) {
        return x86_register(text).map(Operand::Register);
    }
    let (displacement, registers) = text.strip_suffix(')').map_or(Some((text, "")), |text| text.split_once('('))?;
    let (symbol, offset) = self::displacement(displacement)?;
    let mut parts = registers.split(',').map(str::trim);
    let mut register = || match parts.next() {
        None | Some("") => Some(None),
        Some(name) => x86_register(name).map(Some),
    };
    let (base, index) = (register()?, register()?);
    let scale = parts.next().map_or(Some(1), |scale| scale.parse().ok())?;
    let index = index.map(|register| (register, scale));
    match (base.as_deref(), &index, &symbol) {
        // In `x(%rip)`, the assembler has already made `x` relative to the instruction. So the operand refers to the
        // memory at the address of the variable `x`.
        (Some("ip"), None, Some(_)) => Some(Operand::Memory(Memory { base: None, index, symbol, offset })),
        (Some("ip"), ..) | (None, None, None) => None,
        _ => Some(Operand::Memory(Memory { base, index, symbol, offset })),
    }
}

/// Parses a displacement: a sum of numbers and at most one variable, for example `24+CheckpointStats`.
fn displacement(text: &str) -> Option<(Option<String>, i64)> {
    let (mut symbol, mut offset) = (None, 0i64);
    let mut rest = text;
    while !rest.is_empty() {
        let sign = rest.char_indices().skip(1).find(|(_, c)| ['+', '-'].contains(c));
        let (term, after) = rest.split_at(sign.map_or(rest.len(), |(at, _)| at));
        let name = term.strip_prefix('+').unwrap_or(term);
        match number(name) {
            Some(number) => offset = offset.checked_add(number)?,
            None if symbol.is_none() && is_symbol(name) => symbol = Some(name.to_owned()),
            None => return None,
        }
        rest = after;
    }
    Some((symbol, offset))
}

fn is_symbol(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || "_.".contains(c))
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_.$".contains(c))
}

/// Parses a signed or unsigned 64-bit number.
fn constant(text: &str) -> Option<i64> {
    text.parse().ok().or_else(|| text.parse::<u64>().ok().map(|number| number as i64)).or_else(|| number(text))
}

fn number(text: &str) -> Option<i64> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let number = match digits.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok()?,
        None => digits.parse().ok()?,
    };
    Some(if negative { -number } else { number })
}

/// Returns the kernel's name of a register (`regoffset_table` in arch/x86/kernel/ptrace.c). The kernel has no name for
/// the second byte of a register, such as `%ah`.
fn x86_register(text: &str) -> Option<String> {
    let name = text.strip_prefix('%')?;
    if let Some(number) = name.strip_prefix('r').map(|name| name.trim_end_matches(['d', 'w', 'b']))
        && number.parse().is_ok_and(|number: u8| (8..16).contains(&number))
    {
        return Some(format!("r{number}"));
    }
    let whole = match name.trim_start_matches(['r', 'e']) {
        name @ ("ax" | "bx" | "cx" | "dx" | "si" | "di" | "bp" | "sp" | "ip") => name,
        "al" => "ax",
        "bl" => "bx",
        "cl" => "cx",
        "dl" => "dx",
        "sil" => "si",
        "dil" => "di",
        "bpl" => "bp",
        "spl" => "sp",
        _ => return None,
    };
    Some(whole.to_owned())
}

fn aarch64(text: &str) -> Option<Operand> {
    let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) else {
        let zero = ["xzr", "wzr"].contains(&text).then_some(0);
        let constant = || constant(text.trim_start_matches('#'));
        return aarch64_register(text).map(Operand::Register).or_else(|| zero.or_else(constant).map(Operand::Constant));
    };
    let mut parts = inner.split(',').map(str::trim);
    let base = Some(aarch64_register(parts.next()?)?);
    let mut memory = Memory { base, ..Memory::default() };
    if let Some(second) = parts.next() {
        match number(second.trim_start_matches('#')) {
            Some(offset) => memory.offset = offset,
            // The index may be shifted or extended: `[x0, w1, sxtw 3]`.
            None => {
                let shift = parts.next().and_then(|how| how.split([' ', '#']).next_back()?.parse::<u32>().ok());
                memory.index = Some((aarch64_register(second)?, 1u8.checked_shl(shift.unwrap_or(0))?));
            }
        }
    }
    Some(Operand::Memory(memory))
}

/// Returns the kernel's name of a register (`regoffset_table` in arch/arm64/kernel/ptrace.c).
fn aarch64_register(text: &str) -> Option<String> {
    match text {
        "sp" | "wsp" => Some("sp".to_owned()),
        _ => {
            let number: u8 = text.strip_prefix(['x', 'w'])?.parse().ok()?;
            (number <= 30).then(|| format!("x{number}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str, machine: elf::Machine) -> String {
        match Operand::parse(text, machine) {
            None => "-".to_owned(),
            Some(Operand::Constant(number)) => format!("{number}"),
            Some(Operand::Register(name)) => name,
            Some(Operand::Memory(Memory { base, index, symbol, offset })) => {
                let index = index.map(|(name, scale)| format!("+{name}*{scale}")).unwrap_or_default();
                format!("[{}{index}+{}{offset:+}]", base.unwrap_or_default(), symbol.unwrap_or_default())
            }
        }
    }

    #[test]
    fn operands_of_x86() {
        for (text, expected) in [
            ("%rdi", "di"),
            ("%edi", "di"),
            ("%di", "di"),
            ("%dil", "di"),
            ("%al", "ax"),
            ("%eax", "ax"),
            ("%r8", "r8"),
            ("%r15d", "r15"),
            ("%r10w", "r10"),
            ("%r9b", "r9"),
            ("%rbp", "bp"),
            ("%rsp", "sp"),
            ("%ah", "-"),
            ("%xmm0", "-"),
            ("%st", "-"),
            ("%r16", "-"),
            ("%", "-"),
            ("%rflags", "-"),
            ("$5", "5"),
            ("$-1", "-1"),
            ("$0x10", "16"),
            ("$18446744073709551615", "-1"),
            ("$x", "-"),
            ("$", "-"),
            ("(%rax)", "[ax++0]"),
            ("8(%rsp)", "[sp++8]"),
            ("-57(%rbp)", "[bp+-57]"),
            ("0x10(%rbx)", "[bx++16]"),
            ("4(%rax,%rcx,8)", "[ax+cx*8++4]"),
            ("(,%r12,4)", "[+r12*4++0]"),
            ("x(,%r12d,4)", "[+r12*4+x+0]"),
            ("(%rax,%rcx)", "[ax+cx*1++0]"),
            ("NBuffers(%rip)", "[+NBuffers+0]"),
            ("24+CheckpointStats(%rip)", "[+CheckpointStats+24]"),
            ("a.b-4(%rip)", "[+a.b-4]"),
            ("counter", "[+counter+0]"),
            ("8(%rip)", "-"),
            ("a+b(%rip)", "-"),
            ("%fs:8(%rax)", "-"),
            ("%fs:8", "-"),
            ("5", "-"),
            ("(", "-"),
            ("8(%rax", "-"),
            ("8(%rax,%rcx,x)", "-"),
            ("+", "-"),
            ("é(%rax)", "-"),
            ("", "-"),
        ] {
            assert_eq!(shown(text, elf::EM_X86_64), expected, "{text}");
        }
    }

    #[test]
    fn operands_of_aarch64() {
        for (text, expected) in [
            ("x0", "x0"),
            ("w30", "x30"),
            ("sp", "sp"),
            ("xzr", "0"),
            ("5", "5"),
            ("-1", "-1"),
            ("#7", "7"),
            ("[x19]", "[x19++0]"),
            ("[sp, 16]", "[sp++16]"),
            ("[x29, -8]", "[x29+-8]"),
            ("[x1, #4]", "[x1++4]"),
            ("[x0, x1]", "[x0+x1*1++0]"),
            ("[x0, x1, lsl 3]", "[x0+x1*8++0]"),
            ("[x0, w1, sxtw #2]", "[x0+x1*4++0]"),
            ("x31", "-"),
            ("d0", "-"),
            ("[", "-"),
            ("[]", "-"),
            ("[x0, x1, lsl 9]", "-"),
        ] {
            assert_eq!(shown(text, elf::EM_AARCH64), expected, "{text}");
        }
        assert_eq!(shown("%rax", elf::EM_S390), "-");
    }

    proptest! {
        #[test]
        fn any_text_is_an_operand_or_none(text in "[-+$%@#()\\[\\], 0-9a-zA-Z_.é]{0,24}") {
            for machine in [elf::EM_X86_64, elf::EM_AARCH64] {
                let _ = Operand::parse(&text, machine);
            }
        }

        #[test]
        fn memory_is_read_as_it_is_written(
            base in prop::sample::select(vec!["ax", "r8", "sp", "bp"]), offset: i32,
            index in prop::option::of((prop::sample::select(vec!["cx", "r15"]), prop::sample::select(vec![1u8, 2, 4, 8]))),
            symbol in prop::option::of("[a-z_][a-z0-9_.]{0,6}"),
        ) {
            let register = |name: &str| if name.starts_with('r') { format!("%{name}") } else { format!("%r{name}") };
            let of_index = index.map(|(name, scale)| format!(",{},{scale}", register(name))).unwrap_or_default();
            let text = format!("{offset}{}({}{of_index})", symbol.as_ref().map(|name| format!("+{name}")).unwrap_or_default(), register(base));
            let index = index.map(|(name, scale)| (name.to_owned(), scale));
            let expected = Memory { base: Some(base.to_owned()), index, symbol, offset: offset.into() };
            prop_assert_eq!(Operand::parse(&text, elf::EM_X86_64), Some(Operand::Memory(expected)));
        }
    }
}
