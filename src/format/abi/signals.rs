//! The names of signals.

use std::borrow::Cow;

/// The names of the signals from number 1 on, as in include/uapi/asm-generic/signal.h. Only MIPS, SPARC, Alpha and
/// PA-RISC have other numbers.
const NAMES: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// The numbers of the first and the last real-time signal that programs can use. The C library keeps the numbers 32 and
/// 33 for itself.
const FIRST_REAL_TIME: i64 = 34;
const LAST_REAL_TIME: i64 = 64;

/// Returns the name of a signal: `SIGTERM`, `SIGRTMIN+3`, or the number if it has no name.
pub fn signal_name(number: i64) -> Cow<'static, str> {
    let name = usize::try_from(number - 1).ok().and_then(|at| NAMES.get(at));
    match (name, number - FIRST_REAL_TIME) {
        (Some(name), _) => (*name).into(),
        (None, 0) => "SIGRTMIN".into(),
        (None, above) if above > 0 && number <= LAST_REAL_TIME => format!("SIGRTMIN+{above}").into(),
        (None, _) => number.to_string().into(),
    }
}

/// Returns the names of all signals.
pub fn signal_names() -> impl Iterator<Item = Cow<'static, str>> {
    (1..=NAMES.len() as i64).chain(FIRST_REAL_TIME..=LAST_REAL_TIME).map(signal_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_the_names_of_the_c_library() {
        let own = [
            (libc::SIGHUP, "SIGHUP"),
            (libc::SIGKILL, "SIGKILL"),
            (libc::SIGTERM, "SIGTERM"),
            (libc::SIGSTKFLT, "SIGSTKFLT"),
            (libc::SIGCHLD, "SIGCHLD"),
            (libc::SIGSYS, "SIGSYS"),
            (libc::SIGRTMIN(), "SIGRTMIN"),
            (libc::SIGRTMIN() + 3, "SIGRTMIN+3"),
            (libc::SIGRTMAX(), "SIGRTMIN+30"),
            (0, "0"),
            (33, "33"),
            (65, "65"),
            (-1, "-1"),
        ];
        for (number, name) in own {
            assert_eq!(signal_name(number.into()), name);
        }
    }
}
