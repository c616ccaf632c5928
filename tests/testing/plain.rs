//! The unit tests of the shipped scripts, as root and as a user without privileges.

use std::fs;

use crate::harness::{
    plain_user::{Tracefs, folder, needs_plain_user, perf_prof, with_workload, workload},
    script::Run,
};

/// A program that runs the tests in the folder of its argument.
const RUNNER: &str = "
import os, sys, unittest
tests = unittest.defaultTestLoader.discover(os.path.join(sys.argv[1], 'tests', 'python'), 'test_scripts_*.py')
result = unittest.TextTestRunner(stream=sys.stdout).run(tests)
print('ran', result.testsRun)
sys.exit(not result.wasSuccessful() or result.testsRun < 30)
";

#[test]
fn all_scripts_pass_their_unit_tests() {
    crate::harness::machine::needs([crate::harness::machine::Need::Tracefs]);
    let outcome = Run::script(RUNNER).args([env!("CARGO_MANIFEST_DIR")]).options(["-q", "-e", "dummy"]).run();
    assert_eq!(outcome.status, 0, "{}\n{}", outcome.stdout, outcome.stderr);
}

#[test]
fn a_plain_user_passes_them_too() {
    needs_plain_user();
    for tracefs in [Tracefs::Closed, Tracefs::NotMounted] {
        let dir = folder();
        // The user may not be able to read the project's folder, so the files are copied.
        for part in ["scripts", "tests/python"] {
            fs::create_dir_all(dir.path().join(part)).unwrap();
            for file in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/").to_owned() + part).unwrap() {
                let file = file.unwrap();
                if file.file_type().unwrap().is_file() {
                    fs::copy(file.path(), dir.path().join(part).join(file.file_name())).unwrap();
                }
            }
        }
        let catalogue = "
import perf_prof
from perf_prof.testing import make_event
print(make_event('sched:sched_switch', next_pid=3).next_pid)
try: print('NO ERROR', perf_prof.events('sched:*'))
except perf_prof.Error as error: print(isinstance(error, OSError), error)
";
        fs::write(dir.path().join("s.py"), [catalogue, RUNNER].concat()).unwrap();
        let workload = workload();
        let place = dir.path().to_str().unwrap();
        let words = ["python", "-q", "-e", "dummy", "s.py", place, "--exec"];
        let outcome = perf_prof(&dir, tracefs, &with_workload(&words, &workload));
        assert_eq!(outcome.status, Some(0), "{}\n{}", outcome.stdout, outcome.stderr);
        assert!(outcome.stdout.starts_with("3\nTrue "), "{}", outcome.stdout);
    }
}
