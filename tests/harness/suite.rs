//! Runs each test in a thread with the name of the test. The program accepts the options of the standard harness.

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
    /// The last panic of this thread, and where it happened.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs the tests that the arguments select, or the workload that a test traces.
pub fn main() -> ExitCode {
    if let Some(run) = workload::asked_for() {
        run();
        return ExitCode::SUCCESS;
    }
    // This reports wrong names of needs before any test runs.
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
    // A child may still be closing events, which takes a moment.
    watchdog::kill(Duration::from_secs(10));
    ran.exit_code()
}

/// Runs a test in its own thread. So changes of the thread, such as pinning it to a CPU, end with the test.
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

/// Makes the programs that tests start independent of how the tests were started. A process that nohup or a shell's
/// background job starts ignores some signals. Its children inherit this, because exec keeps signals ignored. But exec
/// resets handlers to the default. So this function sets handlers that do nothing for ignored signals.
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

/// With PERF_PROF_TESTS_REFUSE=pmu, the programs that tests start cannot open hardware events, even on a machine with a
/// PMU. A preloaded library refuses them. It is removed when the result is dropped.
fn refuse_hardware() -> Option<TempDir> {
    let refused = env::var("PERF_PROF_TESTS_REFUSE").ok()?;
    if env::var_os("LD_PRELOAD").is_some() {
        // A test started these tests, and has already set the library.
        return None;
    }
    assert_eq!(refused, "pmu", "PERF_PROF_TESTS_REFUSE");
    let folder = tempfile::tempdir().unwrap();
    // Users without privileges load the library too.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/harness/refused.c");
    let library = folder.path().join("refused.so");
    stdout(&Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).args([&library, &source]).output().unwrap());
    // SAFETY: no other thread runs yet.
    unsafe { env::set_var("LD_PRELOAD", &library) };
    Some(folder)
}
