//! Names and numbers of system calls, for each architecture that a recording may come from, and names of errors.
//!
//! The kernel of x86-64 also runs 32-bit programs, whose calls have the numbers of i386. In samples, nothing but the registers
//! tells them from the calls of 64-bit programs. So these calls are marked as soon as they are recognized: [`COMPAT`] is added to
//! their numbers. The kernel calls them compat.

/// What is added to the numbers of compat calls of x86-64. All calls of 64-bit programs have smaller numbers.
pub const COMPAT: i64 = 2048;
/// The first number that no compat call has.
const COMPAT_END: i64 = 2 * COMPAT;

macro_rules! architectures {
    ($($module:ident: $($machine:literal)|+;)+) => {
        /// Returns the name of a system call. `machine` is the name of an architecture, as in `uname -m` or in the Rust
        /// compiler. The number is that of the kernel, without a mark.
        pub fn name_in_table(machine: &str, number: i64) -> Option<&'static str> {
            let number = usize::try_from(number).ok()?;
            match machine {
                $($($machine)|+ => syscalls::$module::Sysno::new(number).map(|call| call.name()),)+
                _ => None,
            }
        }

        /// Returns whether the system calls of an architecture are known.
        fn has_table(machine: &str) -> bool {
            matches!(machine, $($($machine)|+)|+)
        }

        /// Returns the number of a system call.
        pub fn number(machine: &str, name: &str) -> Option<i64> {
            match machine {
                $($($machine)|+ => name.parse::<syscalls::$module::Sysno>().ok().map(|call| i64::from(call.id())),)+
                _ => None,
            }
        }

        /// Returns the names of the system calls of all architectures, each once.
        pub fn names() -> Vec<&'static str> {
            let mut names: Vec<&str> = (0..LARGEST).flat_map(|number| [
                $(syscalls::$module::Sysno::new(number).map(|call| call.name()),)+
            ]).flatten().collect();
            names.sort_unstable();
            names.dedup();
            names
        }
    };
}

/// Returns whether the number is that of a marked compat call.
pub fn is_compat(machine: &str, number: i64) -> bool {
    matches!(machine, "x86_64" | "amd64") && (COMPAT..COMPAT_END).contains(&number)
}

/// Returns the name of a system call, as [`name_in_table`] does. The number may be that of a marked compat call.
pub fn name(machine: &str, number: i64) -> Option<&'static str> {
    if is_compat(machine, number) {
        return name_in_table("i686", number - COMPAT);
    }
    name_in_table(machine, number)
}

/// Returns the name of a system call if its arguments are those of the calls with this name on other machines.
pub fn name_with_arguments(machine: &str, number: i64) -> Option<&'static str> {
    // On i386, the arguments of the first are in memory, and the fourth argument of the second takes two registers.
    const OTHERS: [&str; 2] = ["mmap", "fanotify_mark"];
    name(machine, number).filter(|name| !is_compat(machine, number) || !OTHERS.contains(name))
}

/// Returns the numbers of a system call: that of 64-bit programs, and that of marked compat calls.
pub fn numbers(machine: &str, name: &str) -> impl Iterator<Item = i64> + use<> {
    let compat = number("i686", name).map(|number| number + COMPAT).filter(|&number| is_compat(machine, number));
    number(machine, name).into_iter().chain(compat)
}

/// A number above the numbers of all system calls. MIPS has the largest numbers: a range of a thousand for each ABI.
const LARGEST: usize = 8000;

architectures! {
    aarch64: "aarch64" | "aarch64_be";
    arm: "arm" | "armv5tel" | "armv6l" | "armv7l" | "armv7b" | "armv8l" | "armv8b";
    loongarch64: "loongarch64";
    mips: "mips";
    mips64: "mips64";
    powerpc: "ppc" | "ppcle" | "powerpc";
    powerpc64: "ppc64" | "ppc64le" | "powerpc64";
    riscv32: "riscv32";
    riscv64: "riscv64";
    s390x: "s390x";
    sparc: "sparc";
    sparc64: "sparc64";
    x86: "x86" | "i386" | "i486" | "i586" | "i686";
    x86_64: "x86_64" | "amd64";
}

/// Architectures whose system calls have other numbers, which are not known here.
const WITHOUT_TABLE: [&str; 18] = [
    "alpha",
    "arc",
    "csky",
    "hexagon",
    "ia64",
    "loongarch32",
    "m68k",
    "microblaze",
    "nios2",
    "openrisc",
    "parisc",
    "parisc64",
    "s390",
    "sh",
    "sh4",
    "sh4a",
    "tilegx",
    "xtensa",
];

/// Returns whether there is an architecture with this name. In a damaged recording, it may be any text.
pub fn is_machine(name: &str) -> bool {
    has_table(name) || WITHOUT_TABLE.contains(&name) || name.starts_with("armv")
}

/// Returns the name of an error number, for example `ENOENT`; `None` if it has no name.
pub fn error_name(number: i64) -> Option<&'static str> {
    i32::try_from(number).ok().and_then(|number| syscalls::Errno::new(number).name())
}

/// Returns the names of all error numbers.
pub fn error_names() -> Vec<&'static str> {
    (1..LARGEST as i64).filter_map(error_name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_wrong_bit_is_no_machine() {
        assert!([std::env::consts::ARCH, "i686", "armv7l", "parisc64"].into_iter().all(is_machine));
        assert!(!["x86_74", "", "aarch66", "i687"].into_iter().any(is_machine));
    }

    #[test]
    fn all_names_are_listed_once() {
        let names = names();
        assert!(["openat", "arch_prctl", "sysmips"].iter().all(|name| names.contains(name)), "{names:?}");
        assert!(names.windows(2).all(|pair| pair[0] < pair[1]) && !names.contains(&"opnat"));
        assert!(["ENOENT", "ERESTARTSYS"].iter().all(|name| error_names().contains(name)), "{:?}", error_names());
    }

    #[test]
    fn each_architecture_has_its_own_numbers() {
        let reads = ["x86_64", "i686", "aarch64", "riscv64", "armv7l", "ppc64le", "s390x"].map(|of| number(of, "read"));
        assert_eq!(reads, [0, 3, 63, 63, 3, 3, 3].map(Some));
        for machine in ["mips", "mips64", "loongarch64", "sparc64", "ppc", "riscv32", "sparc"] {
            let openat = number(machine, "openat").unwrap();
            assert_eq!(name(machine, openat), Some("openat"), "{machine}");
        }
        assert_eq!((name("x86_64", -1), name("x86_64", 99_999), name("vax", 1)), (None, None, None));
        let compat = ["open", "waitpid", "openat", "preadv"].map(|name| numbers("x86_64", name).collect::<Vec<_>>());
        assert_eq!(compat, [vec![2, 2053], vec![2055], vec![257, 2343], vec![295, 2381]]);
        assert_eq!([2053, 2343].map(|number| name("x86_64", number)), [Some("open"), Some("openat")]);
        assert_eq!([2138, 2387].map(|number| name("x86_64", number)), [Some("mmap"), Some("fanotify_mark")]);
        assert_eq!([2138, 2387].map(|number| name_with_arguments("x86_64", number)), [None; 2]);
        assert_eq!([9, 2343].map(|number| name_with_arguments("x86_64", number)), [Some("mmap"), Some("openat")]);
        assert_eq!(name_in_table("x86_64", 2053), None);
        assert_eq!([2047, 4095, 4101].map(|number| name("x86_64", number)), [None; 3]);
        assert_eq!(numbers("aarch64", "openat").collect::<Vec<_>>(), [56]);
        assert_eq!((number("x86_64", "no such call"), number("vax", "read")), (None, None));
    }
}
