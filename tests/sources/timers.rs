//! The source `hrtimer`.

use std::time::{Duration, Instant};

use super::{MS, beside_own, numbers};
use crate::harness::{
    awake::Awake,
    task::{gettid, named},
};

const SLEEPS: usize = 20;
const SLEEP: Duration = Duration::from_millis(3);

/// Sleeps. Prints its thread id, and how long each sleep took, in ns.
pub fn workload() {
    named(c"timer-truth");
    let slept = [(); SLEEPS].map(|()| {
        let start = Instant::now();
        std::thread::sleep(SLEEP);
        start.elapsed().as_nanos().to_string()
    });
    println!("\nown {} {}", gettid(), slept.join(" "));
}

#[test]
fn a_sleep_is_a_timer_that_its_task_started() {
    // A timer fires in an interrupt.
    let _awake = Awake::new();
    let (lines, own) = beside_own(
        "
def hrtimer(e):
    start = e.between[0]
    print(e.starter_pid, e.waited, e.late, e.duration)
    assert e._tid == start._tid == e.starter_pid and start.hrtimer == e.begin.hrtimer == e.end.hrtimer == e.timer, e
    assert e.duration == e.end._time - e.begin._time and e.waited == e.begin._time - start._time, e
    # The kernel may let a sleep end a little before its time, beside another timer.
    assert e.late == max(0, e.begin.now - start.expires) and e.begin._cpu == e.end._cpu, e
",
        "hrtimer/function=hrtimer_wakeup, starter_comm=timer-truth/",
        "timers",
    );
    let own = numbers(&own[0]);
    let timers: Vec<Vec<u64>> = lines.iter().map(|line| numbers(line)).collect();
    // Some machines have tasks and CPUs whose events are hidden.
    assert!((SLEEPS / 2..=SLEEPS).contains(&timers.len()), "{lines:?}");
    let slept = *own[1..].iter().max().unwrap();
    for timer in &timers {
        let [starter, waited, late, duration] = timer[..] else { panic!("{lines:?}") };
        assert_eq!(starter, own[0]);
        // A timer's expiry is computed before the timer is started.
        assert!(waited <= slept + MS && late <= waited, "{timer:?} of {slept}");
        assert!(waited - late <= SLEEP.as_nanos() as u64 + MS && duration <= slept + MS, "{timer:?} of {slept}");
    }
}
