//! Runs programs that print the addresses of their functions.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use perf_prof_symbols::symbol::{AddressKind, Options, Resolved, Symbolizer};

/// A program with functions that call each other. It prints their addresses, and waits for the end of its input.
pub const PROGRAM: &str = r#"
#include <stdio.h>
__attribute__((noinline)) int innermost(int x) { __asm__ volatile("nop;nop;nop;nop"); return x + 1; }
static __attribute__((noinline)) int local_one(int x) { __asm__ volatile("nop;nop;nop;nop"); return innermost(x) + 1; }
int main(void) {
    printf("innermost %p\nlocal_one %p\nmain %p\n.\n", (void *)innermost, (void *)local_one, (void *)main);
    fflush(stdout);
    return getchar() == EOF ? local_one(-2) : 9;
}
"#;

/// A running program, and the addresses that it printed.
pub struct Running {
    child: Child,
    /// The addresses of its functions by name.
    pub functions: HashMap<String, u64>,
}

impl Running {
    /// Starts a program and waits until it has printed the addresses of its functions.
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut functions = HashMap::new();
        for line in BufReader::new(child.stdout.as_mut().unwrap()).lines().map(Result::unwrap) {
            match line.split_once(" 0x") {
                Some((name, address)) => functions.insert(name.to_owned(), u64::from_str_radix(address, 16).unwrap()),
                None => break,
            };
        }
        assert!(!functions.is_empty(), "{command:?}");
        Self { child, functions }
    }

    /// Returns the id of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Closes the input of the program, and waits until it exits.
    pub fn end(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns a resolved address as text: the symbol or the reason why there is none, and the name of the file.
pub fn shown(resolved: &Resolved) -> String {
    let is_path = resolved.dso.starts_with('/') && !resolved.dso.starts_with("//");
    let dso = if is_path { resolved.dso.rsplit('/').next().unwrap() } else { &resolved.dso };
    match &resolved.symbol {
        Ok(name) => format!("{}+{:#x} ({dso})", name.name, name.offset),
        Err(reason) => format!("{reason} ({dso})"),
    }
}

/// Resolves an address of a process with its current mappings.
pub fn resolve(symbolizer: &mut Symbolizer, pid: u32, address: u64) -> Arc<Resolved> {
    symbolizer.user(pid, address, u64::MAX - 1, AddressKind::Instruction)
}

/// Resolves the address four bytes after the start of each function in `names`.
pub fn names(symbolizer: &mut Symbolizer, running: &Running, names: &[&str]) -> Vec<String> {
    names.iter().map(|name| shown(&resolve(symbolizer, running.pid(), running.functions[*name] + 4))).collect()
}

/// Returns a symbolizer with default options.
pub fn symbolizer() -> Symbolizer {
    Symbolizer::new(Options::default())
}
