//! Names of the kernel's addresses.

use std::{fs, thread, time::Duration};

use perf_prof_symbols::symbol::{Kallsyms, Symbol};

use crate::harness::machine::{Need, needs, skip};

/// Oracle: the kernel's own `%pS` output for the call sites of kmalloc. With the trace option `fields`, the kernel also
/// prints the lower half of the address as an int. This is enough for a kernel in the top 2 GiB, as on x86-64.
#[test]
fn addresses_have_the_names_that_the_kernel_prints() {
    needs([Need::Tracefs]);
    let symbols = Kallsyms::read("/proc/kallsyms").unwrap_or_else(|reason| skip(Need::Kernel, reason));
    let instance = format!("/sys/kernel/tracing/instances/perf-prof-kallsyms-{}", std::process::id());
    if let Err(error) = fs::create_dir(&instance) {
        skip(Need::Tracefs, format!("{instance}: {error}"));
    }
    let write = |file: &str, text: &str| fs::write(format!("{instance}/{file}"), text);
    let traced = write("trace_options", "fields").and_then(|()| write("events/kmem/kmalloc/enable", "1"));
    let traced = traced.and_then(|()| {
        for _ in 0..200 {
            drop(fs::read_dir("/proc/self/fd"));
            drop(fs::read_to_string("/proc/self/maps"));
        }
        write("events/kmem/kmalloc/enable", "0")?;
        fs::read(format!("{instance}/trace"))
    });
    // A child of another test may keep a file of the instance open until its exec. A person who looks at the instance
    // may keep one open for longer.
    let busy = || fs::remove_dir(&instance).is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY));
    let mut tries = 0;
    while busy() && tries < 500 {
        tries += 1;
        thread::sleep(Duration::from_millis(10));
    }
    let text = traced.unwrap_or_else(|error| skip(Need::Kernel, format!("no kmem:kmalloc, or no `fields`: {error}")));
    let text = String::from_utf8_lossy(&text);
    let sites = text.lines().filter_map(|line| line.split_once("call_site=")?.1.split_once(')')?.0.split_once(" ("));
    let mut compared = 0;
    for (printed, number) in sites {
        let Ok(low) = number.parse::<i32>() else { skip(Need::Kernel, "`fields` prints other numbers") };
        let Some(symbol) = symbols.lookup(i64::from(low) as u64) else { panic!("{printed} {number}") };
        let module = symbol.module.map(|module| format!(" [{module}]")).unwrap_or_default();
        let Symbol { name, offset, size, .. } = symbol;
        assert_eq!(printed, format!("{name}+{offset:#x}/{size:#x}{module}"));
        compared += 1;
    }
    assert!(compared > 0, "kmalloc was never called:\n{text}");
}
