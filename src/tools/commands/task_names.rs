//! The names of the tasks of samples. A comm may be reported later than a sample of its task.

use std::collections::{BTreeSet, HashMap};

use perf_prof_events::event::{Context, Sample};

/// Names tasks, and notes those whose comms were not known at one of their samples.
#[derive(Debug, Default)]
pub struct TaskNames {
    unnamed: BTreeSet<i32>,
}

impl TaskNames {
    /// Returns the comm of a sample's task. If it is not known, returns the text that perf writes then.
    pub fn of(&mut self, sample: &Sample<'_>, context: &Context) -> String {
        let (_, tid) = sample.pid_tid();
        comm(tid, sample.time(), context).unwrap_or_else(|| {
            self.unnamed.insert(tid);
            unnamed(tid)
        })
    }

    /// Returns new names for tasks without a comm, by their texts: the first comm that was reported later, as in perf
    /// (`____thread__set_comm()` in `tools/perf/util/thread.c`).
    pub fn later(&self, context: &Context) -> HashMap<String, String> {
        self.unnamed.iter().filter_map(|&tid| Some((unnamed(tid), comm(tid, 0, context)?))).collect()
    }
}

fn comm(tid: i32, time: u64, context: &Context) -> Option<String> {
    context.with_tasks(|tasks| tasks.name(tid, time).map(|comm| String::from_utf8_lossy(comm).into_owned()))
}

fn unnamed(tid: i32) -> String {
    format!(":{tid}")
}
