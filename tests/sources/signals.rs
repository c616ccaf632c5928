//! The source `signal`.

use std::{
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use super::{MS, beside_own, numbers};
use crate::harness::task::{gettid, named};

/// The processes of all tests in this file have the same comm, so the tests run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

extern "C" fn ignore(_: libc::c_int) {}

/// Sends signals to itself and to its child. SIGUSR1 and SIGWINCH are blocked for 30 ms. Prints its process id, the child's,
/// and how long the first signal took, in ns.
pub fn workload() {
    named(c"sig-truth");
    // SAFETY: the set and the handler live as long as the process, and the child only waits.
    unsafe {
        let handler = ignore as extern "C" fn(libc::c_int);
        libc::signal(libc::SIGUSR1, handler as libc::sighandler_t);
        libc::signal(libc::SIGRTMIN() + 3, handler as libc::sighandler_t);
        libc::signal(libc::SIGUSR2, libc::SIG_IGN);
        libc::signal(libc::SIGWINCH, libc::SIG_IGN);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, libc::SIGUSR1);
        libc::sigaddset(&mut set, libc::SIGWINCH);
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        let start = Instant::now();
        // The second signal is already pending, and the third one is ignored at once. The last one is ignored when it is not
        // blocked any more.
        for signal in [libc::SIGUSR1, libc::SIGUSR1, libc::SIGUSR2, libc::SIGWINCH] {
            libc::kill(libc::getpid(), signal);
        }
        thread::sleep(Duration::from_millis(30));
        libc::sigprocmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        let took = start.elapsed().as_nanos();
        libc::syscall(libc::SYS_tgkill, libc::getpid(), gettid(), libc::SIGRTMIN() + 3);
        let child = libc::fork();
        if child == 0 {
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            // The signal stays blocked, and SIGTERM ends the process.
            libc::kill(libc::getpid(), libc::SIGUSR1);
            libc::raise(libc::SIGSTOP);
            libc::_exit(1);
        }
        libc::waitpid(child, std::ptr::null_mut(), libc::WUNTRACED);
        libc::kill(child, libc::SIGTERM);
        libc::kill(child, libc::SIGCONT);
        let mut status = 0;
        libc::waitpid(child, &mut status, 0);
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGTERM);
        println!("\nown {} {child} {took}", libc::getpid());
    }
}

#[test]
fn a_signal_has_its_sender_its_target_and_the_time_for_which_it_waited() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (lines, own) = beside_own(
        "
def signal(e):
    print(e.name, e.action, e.sender_comm, e.sender, e.target, e.by_kernel, e.waited, e._tid == e.end._tid == e.target)
",
        "signal/target_comm=sig-truth/",
        "pending-signals",
    );
    let own = numbers(&own[0]);
    let [parent, child, took] = own[..] else { panic!("{own:?}") };
    let rows: Vec<Vec<&str>> = lines.iter().map(|line| line.split(' ').collect()).collect();
    let without_time: Vec<String> = rows.iter().map(|row| [&row[..6], &row[7..]].concat().join(" ")).collect();
    let row = |name: &str, action: &str, sender: u64, target: u64| {
        format!("{name} {action} sig-truth {sender} {target} 0 True")
    };
    let expected = [
        row("SIGUSR1", "handler", parent, parent),
        row("SIGWINCH", "ignored", parent, parent),
        row("SIGRTMIN+3", "handler", parent, parent),
        row("SIGSTOP", "default", child, child),
        row("SIGTERM", "default", parent, child),
    ];
    assert_eq!(without_time, expected, "{lines:#?}");
    let waited: u64 = rows[0][6].parse().unwrap();
    assert!((30 * MS..=took + MS).contains(&waited), "{waited} of {took}");
}

#[test]
fn signals_that_are_not_delivered_are_open() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (lines, own) = beside_own(
        "
def signal(e):
    if e.open:
        print(e.name, e.target, repr(e.action), e.end)
",
        "signal/target_comm=sig-truth/open/",
        "pending-signals",
    );
    let child = numbers(&own[0])[1];
    assert!(lines.contains(&format!("SIGUSR1 {child} '' None")), "{lines:?}");
}
