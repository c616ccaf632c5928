//! Workloads that tests trace: this test program runs a function instead of the tests.

use std::{env, thread};

use super::{counting, plain_user, recorder};
use crate::{in_kernel, record, replay, scripts, sources};

/// The first argument of a workload. The second argument is the workload's name.
const WORKLOAD: &str = "--workload";

const WORKLOADS: [(&str, fn()); 26] = [
    ("alarms", in_kernel::interrupts::alarms),
    ("allocations", sources::allocations::workload),
    ("bytes", in_kernel::work::workload),
    ("burst", record::burst::workload),
    ("calls", scripts::syscalls::calls),
    ("children", scripts::processes::children),
    ("counting-generator", || in_thread("generator", recorder::counting_generator)),
    ("expirations", in_kernel::interrupts::expirations),
    ("generator", || in_thread("generator", recorder::generator)),
    ("loader", record::side_band::loader),
    ("locks", sources::locks::workload),
    ("moves", scripts::syscalls::moves),
    ("naps", scripts::scheduling::naps),
    ("packets", sources::interrupts::packets),
    ("peak", replay::hostile::measured),
    ("pending-signals", sources::signals::workload),
    ("ping-pong", scripts::scheduling::ping_pong),
    ("requests", || in_thread("requests", record::flight::requests)),
    ("signals", scripts::signals::signals),
    ("sleeper", in_kernel::scheduler::sleeper),
    ("sleeps", scripts::scheduling::sleeps),
    ("threads", scripts::processes::threads),
    ("timers", sources::timers::workload),
    ("work", sources::work::workload),
    ("works", || in_thread("works", plain_user::working)),
    ("wide", || in_thread("wide", counting::workload)),
];

/// Returns the command of the workload with this name.
pub fn words(name: &str) -> Vec<String> {
    assert!(find(name).is_some(), "no workload is named {name}");
    let own = env::current_exe().unwrap().into_os_string().into_string().unwrap();
    vec![own, WORKLOAD.to_owned(), name.to_owned()]
}

/// Returns the function of the requested workload, if this process is a workload.
pub fn asked_for() -> Option<fn()> {
    let mut args = env::args().skip(1);
    (args.next()? == WORKLOAD).then(|| find(&args.next().unwrap()).unwrap())
}

fn find(name: &str) -> Option<fn()> {
    WORKLOADS.iter().find(|(of, _)| *of == name).map(|&(_, run)| run)
}

/// Runs a function in a thread that is not the main thread.
fn in_thread(name: &str, run: fn()) {
    thread::Builder::new().name(name.to_owned()).spawn(run).unwrap().join().unwrap();
}
