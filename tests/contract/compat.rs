//! PERF_PROF_COMPAT=1: the streams and texts of the C implementation. Its ways to write events are accepted without the
//! variable too.

use expect_test::expect;

use crate::harness::{
    machine::{Need, needs},
    script::{CALL, RENAME, Run, prints},
};

#[test]
fn statistics_are_on_stdout() {
    needs([Need::Tracefs]);
    let script = "
import os, signal
asked = False
def __sample__(event):
    global asked
    if not asked: os.kill(os.getpid(), signal.SIGUSR2)
    asked = True
def __print_stat__(indent): print('own statistics')";
    let run = || Run::script(script).call_event().workload("calls 3 sleep-ms 300 calls 3");
    let start = format!("  {CALL} ");
    let has_counts = |text: &str| text.lines().any(|line| line.starts_with(&start) && line.contains(" delivered, "));
    let compat = run().env("PERF_PROF_COMPAT", "1").run();
    assert!(has_counts(&compat.stdout) && compat.stdout.contains("own statistics"), "{compat:?}");
    assert!(!compat.stderr.contains(" delivered "), "{compat:?}");
    let plain = run().run();
    assert!(has_counts(&plain.stderr) && !has_counts(&plain.stdout), "{plain:?}");
}

#[test]
fn losses_have_the_form_of_the_c_implementation() {
    needs([Need::Tracefs]);
    // The rings hold less than a page of the calls, and the script is slower than the rings. But it is fast enough that
    // the kernel still has room for a record about losses.
    let script = "
import time
def __init__(): time.sleep(0)
def __sample__(event): time.sleep(0.0001)";
    let run = Run::script(script).call_event().options(["-m", "1", "--buffer", "16K", "-N", "2000"]);
    let outcome = run.env("PERF_PROF_COMPAT", "1").workload("calls 1000000").run();
    let is_loss = |line: &&str| {
        let words: Vec<&str> = line.split(' ').collect();
        words.len() >= 6
            && words[0].len() == 10
            && words[1].len() == 15
            && words[2..4] == ["python:", "lost"]
            && words[4].parse::<u64>().is_ok()
            && words[5] == "events"
    };
    assert!(outcome.stdout.lines().any(|line| is_loss(&line)), "{outcome:?}");
    assert!(!outcome.stderr.contains("lost"), "{outcome:?}");
}

#[test]
fn a_module_that_is_not_found_is_a_module_not_found_error() {
    needs([Need::Tracefs]);
    for module in ["no_such_module", "no_such_file.py"] {
        let run = Run::script("").call_event().module(module);
        let outcome = run.env("PERF_PROF_COMPAT", "1").run();
        let error = format!("ModuleNotFoundError: No module named '{module}'\n");
        assert!(outcome.stderr.contains(&error) && outcome.status == 1, "{outcome:?}");
    }
}

#[test]
fn call_chains_without_any_side_are_empty() {
    let text = "def __sample__(event): print(event._callchain)";
    prints(
        Run::script(text).event(RENAME).options(["-g", "--no-kernel-callchain"]).workload("renames 1"),
        expect![[r#"
            []
        "#]],
    );
}

const MEMBERS: &str = "
shown = set()
def __sample__(event):
    if event._event not in shown: print(event._event, sorted(set(event.keys()) & {'read', 'regs_user', 'regs_intr', 'callchain', 'addr'}))
    shown.add(event._event)";

#[test]
fn option_strings_of_page_faults_have_the_members_of_the_c_implementation() {
    let text = "
def page_faults(event):
    kinds = [event.regs_user['abi'] > 0, len(event.regs_user) > 10, isinstance(event.regs_intr['sp'], int)]
    print(*kinds, len(event.callchain) > 0, event.addr > 0)";
    prints(
        Run::script(text).event("page-faults/-N 2 -g --user-callchain/").options(["--order"]).workload("faults 64"),
        expect![[r#"
            True True True True True
            True True True True True
        "#]],
    );
}

#[test]
fn the_sources_of_the_c_implementation_have_its_members_in_its_mode() {
    needs([Need::Tracefs]);
    let run =
        || Run::script(MEMBERS).event("page-faults,profile/-F 500/").options(["--order"]).workload("burn 100 faults 9");
    let shown = |run: Run| {
        let outcome = run.run();
        let lines = outcome.stdout.lines().filter(|line| !line.starts_with("Loaded module: "));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let compat = shown(run().env("PERF_PROF_COMPAT", "1"));
    assert_eq!(compat, ["page-faults ['addr', 'regs_intr', 'regs_user']", "profile ['read']"]);
    assert_eq!(shown(run()), ["page-faults ['addr']", "profile []"]);
}

/// The address belongs to the variable that the workload writes.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_breakpoint_with_an_option_string() {
    needs([Need::Tracefs]);
    let outcome = Run::script("").event("breakpoint/'0x1000/4:w -N 3 -g'/").module("help").run();
    assert!(outcome.stdout.contains("def breakpoint(event)"), "{outcome:?}");
    for member in ["addr : int", "callchain : list", "regs_user : dict", "regs_intr : dict"] {
        assert!(outcome.stdout.contains(member), "{member}: {}", outcome.stdout);
    }
    let wrong = Run::script("").event("breakpoint/-g/").module("help").run();
    assert!(wrong.stderr.contains("breakpoint: the option ADDR[/LEN][:rwx] needs an address"), "{wrong:?}");
}

#[test]
fn a_live_group_reads_the_counts_of_all_members() {
    let text = "
def page_faults(event):
    read = event.read
    print(sorted(read), read['nr'], len(read['cntr']), all(isinstance(count['value'], int) for count in read['cntr']))
    counts.append([count['value'] for count in read['cntr']])
def context_switches(event): print('only the leader is sampled')
def __exit__():
    print(all(a[0] < b[0] and a[1] <= b[1] for a, b in zip(counts, counts[1:])))
counts = []";
    prints(
        Run::script(text)
            .event("{page-faults,context-switches}:S")
            .options(["-N", "2", "--order"])
            .workload("faults 64"),
        expect![[r#"
            ['cntr', 'nr'] 2 2 True
            ['cntr', 'nr'] 2 2 True
            True
        "#]],
    );
}

#[test]
fn print_names_the_registers_of_a_sample() {
    needs([Need::Tracefs]);
    let text = "def page_faults(event): event.print()";
    let run = Run::script(text).event("page-faults//sample=regs_user/").options(["-N", "1"]);
    let outcome = run.workload("faults 9").run();
    let name = if cfg!(target_arch = "x86_64") { "ip" } else { "pc" };
    let shown = outcome.stdout.split("regs_user=[").nth(1).unwrap_or_else(|| panic!("{outcome:?}"));
    assert!(shown.split(']').next().unwrap().split(' ').any(|word| word.starts_with(&format!("{name}=0x"))), "{shown}");
}

#[test]
fn the_template_has_a_part_for_profiler_events() {
    needs([Need::Tracefs]);
    let outcome = Run::script("").event("profile").module("help").run();
    assert!(outcome.stdout.contains("\n# Profiler events ("), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("\n# Tracepoint events ("), "{}", outcome.stdout);
}
