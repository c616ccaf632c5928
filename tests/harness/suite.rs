//! Runs each test in its own thread, which has the name of the test. The options are those of the standard harness.

use std::{
    cell::RefCell,
    env, fs,
    os::unix::fs::PermissionsExt,
    panic,
    path::Path,
    process::{Command, ExitCode},
    sync::mpsc,
    thread,
    time::Duration,
};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tempfile::TempDir;

use super::{
    machine::{MissingRequirement, required},
    run::stdout,
    task::gettid,
    watchdog, workload,
};

/// A function with `#[test]`.
pub struct Test {
    /// The crate, its modules, and the function.
    pub path: &'static str,
    pub run: fn(),
}

inventory::collect!(Test);

thread_local! {
    /// The last panic of this thread, and where it was.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs the tests that the arguments select, or the workload that a test wants to trace.
pub fn main() -> ExitCode {
    if let Some(run) = workload::asked_for() {
        run();
        return ExitCode::SUCCESS;
    }
    // This reports wrong names before any test runs.
    required();
    heed_signals_in_children();
    let _library = refuse_hardware();
    watchdog::start();
    let mut tests: Vec<&Test> = inventory::iter::<Test>().collect();
    tests.sort_by_key(|test| test.path);
    let printed = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        PANIC.set(Some(panic.to_string()));
        printed(panic);
    }));
    let trials = tests.into_iter().map(|test| {
        let name = test.path.split_once("::").unwrap().1;
        Trial::ignorable_test(name, || run(name, test.run))
    });
    let ran = libtest_mimic::run(&Arguments::from_args(), trials.collect());
    // Closing events in a child takes a moment.
    watchdog::kill(Duration::from_secs(10));
    ran.exit_code()
}

/// Runs a test in its own thread. So what the test does to its thread, like pinning it to a CPU, ends with the test.
fn run(name: &str, test: fn()) -> Result<Completion, Failed> {
    let (running, end) = mpsc::channel();
    let body = move || {
        running.send(gettid().cast_signed()).unwrap();
        let ended = panic::catch_unwind(test).map_err(|payload| payload.downcast::<MissingRequirement>());
        match ended {
            Ok(()) => Ok(Completion::Completed),
            Err(Ok(skipped)) => Ok(Completion::ignored_with(skipped.0)),
            Err(Err(_)) => Err(PANIC.take().unwrap_or_else(|| "see above".to_owned()).into()),
        }
    };
    let thread = thread::Builder::new().name(name.to_owned()).spawn(body).unwrap();
    watchdog::await_end(name, &end)?;
    thread.join().unwrap()
}

/// A process ignores signals if it is started by nohup, or in the background by a shell. So do its children: exec keeps
/// ignored signals ignored, but it resets handlers. So this sets handlers that do nothing, and the programs that tests
/// start do not depend on how the tests were started.
fn heed_signals_in_children() {
    extern "C" fn nothing(_: libc::c_int) {}
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
        // SAFETY: an action of all zeroes is valid, actions live across the calls, and the handler does nothing.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            assert_eq!(libc::sigaction(signal, std::ptr::null(), &mut action), 0);
            if action.sa_sigaction == libc::SIG_IGN {
                action.sa_sigaction = nothing as *const () as usize;
                action.sa_flags = libc::SA_RESTART;
                assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
            }
        }
    }
}

/// With PERF_PROF_TESTS_REFUSE=pmu, the programs that tests start cannot open hardware events, even if the machine has
/// them. A library in these programs refuses them. It is removed when the result is dropped.
fn refuse_hardware() -> Option<TempDir> {
    let refused = env::var("PERF_PROF_TESTS_REFUSE").ok()?;
    if env::var_os("LD_PRELOAD").is_some() {
        // A test that was started by a test has it already.
        return None;
    }
    assert_eq!(refused, "pmu", "PERF_PROF_TESTS_REFUSE");
    let folder = tempfile::tempdir().unwrap();
    // Plain users load it too.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/harness/refused.c");
    let library = folder.path().join("refused.so");
    stdout(&Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).args([&library, &source]).output().unwrap());
    // SAFETY: no other thread runs yet.
    unsafe { env::set_var("LD_PRELOAD", &library) };
    Some(folder)
}
