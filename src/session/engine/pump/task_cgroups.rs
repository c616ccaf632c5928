//! Follows which cgroup each task is in. Spans and selections need this for tasks other than the running task.

use std::sync::Arc;

use perf_prof_events::event::{Context, EventType, Sample};
use perf_prof_format::{record::SampleLayout, tracefs::EventFormat, value::Value};

/// Follows which cgroup each task is in. The cgroup in the samples of a task and the event about moves tell it.
pub struct TaskCgroups {
    /// The types of the events.
    pub types: Vec<EventType>,
    /// The event about moves, if it is traced or was recorded.
    pub moves: Option<MoveEvent>,
}

/// The event `cgroup:cgroup_attach_task`: a task moves to another cgroup. The program does not receive this event.
pub struct MoveEvent {
    /// The index of the event among the kernel's events; in a recording, the index of its attr.
    pub index: usize,
    /// The format of the event.
    pub format: Arc<EventFormat>,
    /// The layout of the event's samples.
    pub layout: SampleLayout,
    /// The number of the cgroup hierarchy that perf events use. `None` for a recording, which does not contain this
    /// number. Ids of cgroups are valid only in one hierarchy. So in a recording, a move counts only if the cgroup that
    /// is known under the move's id has the same path as the move.
    pub hierarchy: Option<i64>,
}

/// The system and the name of the event about moves.
pub const MOVES: (&str, &str) = ("cgroup", "cgroup_attach_task");

impl TaskCgroups {
    /// Notes the cgroup of the task in a sample of this event.
    #[inline]
    pub fn note(&self, event: usize, record: &[u8], context: &Context) {
        let Some(event) = self.types.get(event) else { return };
        let sample = Sample { event, record };
        // The sample of an exiting thread may contain no ids. The cgroup of this thread is known from earlier samples.
        if let (Some(cgroup), (pid @ 0.., tid)) = (sample.cgroup(), sample.pid_tid()) {
            context.note_cgroup(cgroup, pid, tid);
        }
    }

    /// Returns whether the event with this index is the event about moves.
    #[inline]
    pub fn are_moves(&self, index: usize) -> bool {
        self.moves.as_ref().is_some_and(|moves| moves.index == index)
    }

    /// Notes the cgroup to which the sample says that a task has moved.
    #[cold]
    pub fn note_move(&self, record: &[u8], context: &Context) {
        let Some(MoveEvent { format, layout, hierarchy, .. }) = &self.moves else { return };
        let raw = layout.raw(record).unwrap_or(&[]);
        let value = |name| format.field(name).and_then(|field| field.value(raw));
        let number = |name| match value(name)? {
            Value::Int(number) => Some(number),
            Value::Uint(number) => i64::try_from(number).ok(),
            _ => None,
        };
        let (Some(root), Some(id), Some(tid)) = (number("dst_root"), number("dst_id"), number("pid")) else { return };
        let Some(Value::Str(path)) = value("dst_path") else { return };
        let is_own = |own: i64| own == root;
        if hierarchy.map_or_else(|| context.with_cgroups(|cgroups| cgroups.has(id as u64, path)), is_own) {
            context.with_memberships(|tasks| tasks.moved(tid as i32, id as u64));
        }
    }
}

#[cfg(test)]
mod tests {
    use perf_prof_events::event::{Cgroups, Format};
    use perf_prof_format::{
        abi::{PERF_SAMPLE_CGROUP, PERF_SAMPLE_RAW, PERF_SAMPLE_TID},
        record::SampleValues,
        tracefs::NoKernel,
    };

    use super::*;

    const FORMAT: &str = "name: cgroup_attach_task\nID: 538\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:int dst_root;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:int dst_level;\toffset:12;\tsize:4;\tsigned:1;\n\
        \tfield:u64 dst_id;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:int pid;\toffset:24;\tsize:4;\tsigned:1;\n\
        \tfield:__data_loc char[] dst_path;\toffset:28;\tsize:4;\tsigned:0;\n\
        \tfield:__data_loc char[] comm;\toffset:32;\tsize:4;\tsigned:0;\n\n\
        print fmt: \"dst_path=%s\", __get_str(dst_path)\n";

    /// A sample of a move: the task 7 moves to the cgroup 5, which has the path `path` in the hierarchy `root`.
    fn move_to(root: i32, path: &str) -> Vec<u8> {
        let mut raw = vec![0; 36];
        raw[8..12].copy_from_slice(&root.to_ne_bytes());
        raw[16..24].copy_from_slice(&5u64.to_ne_bytes());
        raw[24..28].copy_from_slice(&7i32.to_ne_bytes());
        raw[28..32].copy_from_slice(&(36 | (path.len() as u32 + 1) << 16).to_ne_bytes());
        raw.extend(path.as_bytes());
        raw.push(0);
        raw
    }

    #[test]
    fn a_move_counts_in_the_hierarchy_of_perf_events_only() {
        let format = Arc::new(EventFormat::parse("cgroup", FORMAT).unwrap());
        let layout = SampleLayout::new(PERF_SAMPLE_TID | PERF_SAMPLE_RAW, 0);
        let sampled = SampleLayout::new(PERF_SAMPLE_TID | PERF_SAMPLE_CGROUP, 0);
        let event = EventType { alias: None, format: Format::other("x"), layout: sampled, max_stack: None };
        let cgroup_after = |hierarchy, root, path| {
            let moves = MoveEvent { index: 1, format: format.clone(), layout, hierarchy };
            let follower = TaskCgroups { types: vec![event.clone()], moves: Some(moves) };
            let context = Context::new(Box::new(NoKernel), 0);
            context.with_cgroups(|cgroups| {
                cgroups.named(5, b"/a");
                cgroups.follow_tasks();
            });
            let values = SampleValues { pid: 7, tid: 7, cgroup: 3, ..SampleValues::default() };
            follower.note(0, &sampled.encode(&values).unwrap(), &context);
            let raw = move_to(root, path);
            follower.note_move(&layout.encode(&SampleValues { raw, ..SampleValues::default() }).unwrap(), &context);
            context.with_cgroups(|cgroups| cgroups.tasks.as_ref()?.of_task(7))
        };
        assert_eq!(cgroup_after(Some(0), 0, "/a"), Some(5));
        assert_eq!(cgroup_after(Some(0), 4, "/a"), Some(3));
        assert_eq!(cgroup_after(None, 4, "/a"), Some(5));
        assert_eq!(cgroup_after(None, 4, "/other"), Some(3));
    }

    /// `perf_event_pid()` is -1 for a thread that is exiting.
    #[test]
    fn a_thread_without_ids_is_not_remembered() {
        let layout = SampleLayout::new(PERF_SAMPLE_TID | PERF_SAMPLE_CGROUP, 0);
        let event = EventType { alias: None, format: Format::other("x"), layout, max_stack: None };
        let follower = TaskCgroups { types: vec![event], moves: None };
        let context = Context::new(Box::new(NoKernel), 0);
        context.with_cgroups(Cgroups::follow_tasks);
        let values = SampleValues { pid: -1, tid: -1, cgroup: 3, ..SampleValues::default() };
        follower.note(0, &layout.encode(&values).unwrap(), &context);
        assert_eq!(context.with_cgroups(|cgroups| cgroups.tasks.as_ref()?.of_task(-1)), None);
    }
}
