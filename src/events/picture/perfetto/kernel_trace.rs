//! The trace of a kernel. Scheduling, threads, processes and counters of CPUs go into the packets from which Perfetto fills
//! its SQL tables. Other events become instants of their threads. Events are written as they come, and are not kept in
//! memory.

use std::{
    collections::{HashMap, hash_map},
    io::{self, Write},
    mem,
};

use super::{
    kernel::{
        CLOCK_BOOTTIME, CLOCK_REALTIME, Clock, ClockSnapshot, FtraceEvent, FtraceEventBundle, ProcessTree, SystemInfo,
        Thread, Utsname,
    },
    kernel_event::{KernelEvent, Machine, Place, Task, ThreadMoment},
    packet::{
        DebugAnnotation, EventType, InlineCallstack, InlineFrame, InternedData, InternedName, Packets,
        ProcessDescriptor, SEQ_INCREMENTAL_STATE_CLEARED, SEQ_NEEDS_INCREMENTAL_STATE, ThreadDescriptor, TracePacket,
        TrackDescriptor, TrackEvent,
    },
};
use crate::picture::timeline::Argument;

/// How many events of a CPU are written as one bundle.
const BUNDLE: usize = 256;

/// The states in which a task leaves its CPU for the last time: `EXIT_DEAD` and `EXIT_ZOMBIE` (include/linux/sched.h).
const EXIT_STATES: i64 = 0x10 | 0x20;

/// Returns whether a task leaves its CPU for the last time in this state.
pub fn is_exit(state: i64) -> bool {
    state & EXIT_STATES != 0
}

/// A state that Perfetto shows as unknown: a bit above those of all states, in kernels since 4.14 (`task_state.cc`).
pub const UNKNOWN_STATE: i64 = 0x8000;

/// A CPU: its events that are not written yet, and its running task.
#[derive(Default)]
struct Cpu {
    events: Vec<FtraceEvent>,
    has_lost: bool,
    /// The running task, and the time in ns of its last event on this CPU.
    running: Option<(Task, u64)>,
}

/// What the trace already says about a thread.
struct Told {
    pid: i32,
    name: String,
    track: Option<u64>,
}

/// Writes the trace.
pub struct KernelTrace<'a, W> {
    packets: Packets<'a, W>,
    cpus: HashMap<u32, Cpu>,
    threads: HashMap<i32, Told>,
    /// The track and the name of each process.
    processes: HashMap<i32, (u64, String)>,
    /// The tracks that belong to no thread.
    named: HashMap<String, u64>,
    /// The numbers of the names that the trace contains.
    names: HashMap<String, u64>,
    tracks: u64,
    ends: ThreadEnds,
    switches: Switches,
    unseen: u64,
}

/// Whether the trace has switches of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switches {
    /// It has, so a task that is seen where none switched to it shows that some are missing.
    Recorded,
    /// It has those that are events of some tasks.
    OfSome,
    /// It has none, so Perfetto must show no task as running.
    None,
}

/// Which event shows that a thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadEnds {
    /// `sched:sched_process_free`.
    Freed,
    /// None. The thread counts as ended when it leaves its CPU for the last time.
    LeftCpu,
}

impl<'a, W: Write> KernelTrace<'a, W> {
    /// Writes the start of the trace.
    pub fn new(
        to: &'a mut W,
        machine: Machine,
        ends: ThreadEnds,
        switches: Switches,
    ) -> io::Result<KernelTrace<'a, W>> {
        let mut packets = Packets::new(to);
        let Machine { hostname, kernel, arch } = machine;
        let utsname = Utsname { sysname: Some("Linux".to_owned()), release: kernel, machine: arch };
        packets.write(TracePacket {
            system_info: Some(SystemInfo { utsname: Some(utsname), machine_name: hostname }),
            sequence_flags: Some(SEQ_INCREMENTAL_STATE_CLEARED),
            ..TracePacket::default()
        })?;
        Ok(KernelTrace {
            packets,
            cpus: HashMap::new(),
            threads: HashMap::new(),
            processes: HashMap::new(),
            named: HashMap::new(),
            names: HashMap::new(),
            tracks: 0,
            ends,
            switches,
            unseen: 0,
        })
    }

    /// Notes that the time `time` of the trace is the time of day `realtime`.
    pub fn date(&mut self, time: u64, realtime: u64) -> io::Result<()> {
        let clock = |(id, time)| Clock { clock_id: Some(id), timestamp: Some(time) };
        self.packets.write(TracePacket {
            clock_snapshot: Some(ClockSnapshot {
                clocks: [(CLOCK_BOOTTIME, time), (CLOCK_REALTIME, realtime)].map(clock).into(),
            }),
            timestamp: Some(time),
            ..TracePacket::default()
        })
    }

    /// Notes that events were lost on unknown CPUs.
    pub fn lost(&mut self) {
        self.cpus.values_mut().for_each(|cpu| cpu.has_lost = true);
    }

    /// Writes the process and the name of a thread if they are new. `main` is the name of the process.
    pub fn thread(&mut self, (tid, pid): (i32, i32), name: &str, main: &str, time: u64) -> io::Result<()> {
        if self.threads.get(&tid).is_some_and(|told| told.pid == pid && told.name == name) {
            return Ok(());
        }
        self.process(pid, main, time)?;
        let thread = Thread { tid: Some(tid), name: Some(name.to_owned()), tgid: Some(pid) };
        self.packets.write(TracePacket {
            process_tree: Some(ProcessTree { threads: vec![thread] }),
            timestamp: Some(time),
            ..TracePacket::default()
        })?;
        let track = self.threads.remove(&tid).filter(|told| told.pid == pid).and_then(|told| told.track);
        self.threads.insert(tid, Told { pid, name: name.to_owned(), track });
        Ok(())
    }

    fn process(&mut self, pid: i32, name: &str, time: u64) -> io::Result<()> {
        let known = self.processes.get(&pid);
        if known.is_some_and(|(_, known)| known == name) {
            return Ok(());
        }
        let uuid = known.map(|(uuid, _)| *uuid).unwrap_or_else(|| next(&mut self.tracks));
        self.processes.insert(pid, (uuid, name.to_owned()));
        let process = ProcessDescriptor { pid: Some(pid), process_name: Some(name.to_owned()) };
        let descriptor = TrackDescriptor { uuid: Some(uuid), process: Some(process), ..TrackDescriptor::default() };
        self.describe(descriptor, time)
    }

    fn describe(&mut self, track: TrackDescriptor, time: u64) -> io::Result<()> {
        self.packets.write(TracePacket {
            timestamp: Some(time),
            track_descriptor: Some(track),
            ..TracePacket::default()
        })
    }

    /// Writes an event.
    pub fn event(&mut self, place: Place, event: KernelEvent) -> io::Result<()> {
        let is_known = self.cpus.get(&place.cpu).is_some_and(|cpu| cpu.running.is_some());
        // If the first event of a CPU is a switch, Perfetto needs no switch to the task that leaves the CPU.
        if is_known || !matches!(event, KernelEvent::Switch { .. }) {
            self.seen(place);
        }
        let mut freed = None;
        match &event {
            KernelEvent::Switch { prev, state, next } => {
                self.cpus.entry(place.cpu).or_default().running = Some((next.clone(), place.time));
                if self.ends == ThreadEnds::LeftCpu && is_exit(*state) {
                    freed = Some(prev.clone());
                }
            }
            KernelEvent::Free(task) => self.forget(task.tid),
            _ => {}
        }
        self.push(place, event)?;
        if let Some(task) = freed {
            self.forget(task.tid);
            self.push(place, KernelEvent::Free(task))?;
        }
        Ok(())
    }

    /// Notes which task is running on a CPU. If the trace says that another task is running, switches are missing: they
    /// were lost, or the recording contains only switches of some tasks. In this case, writes a switch away from the other
    /// task, at the time of its last event on this CPU. Without this switch, Perfetto would show the other task as running
    /// until the end of the trace.
    pub fn seen(&mut self, Place { cpu, time, tid }: Place) {
        if self.switches == Switches::None {
            return;
        }
        let of_cpu = self.cpus.entry(cpu).or_default();
        match &mut of_cpu.running {
            Some((running, last)) if running.tid == tid => *last = time,
            _ if tid < 0 => {}
            running => {
                let name = self.threads.get(&tid).map(|told| told.name.clone());
                let task = Task { comm: name.unwrap_or_default(), tid, prio: 0 };
                let before = running.replace((task.clone(), time));
                self.unseen += u64::from(before.is_some());
                if let Some((prev, last)) = before.filter(|(prev, _)| prev.tid != 0) {
                    let place = Place { time: last, tid: prev.tid, cpu };
                    let event = KernelEvent::Switch { prev, state: UNKNOWN_STATE, next: Task::idle() };
                    of_cpu.events.push(FtraceEvent::new(place, event));
                    of_cpu.has_lost = true;
                }
                if tid != 0 {
                    let event = KernelEvent::Switch { prev: Task::idle(), state: 0, next: task };
                    of_cpu.events.push(FtraceEvent::new(Place { cpu, time, tid: 0 }, event));
                }
            }
        }
    }

    /// Notes that the trace leaves out what follows `time`: ends the times of the running tasks on their CPUs. If the recording
    /// has the switches of some tasks only, each time ends with the last event of its task, because no more is known.
    pub fn leave_cpus(&mut self, time: u64) -> io::Result<()> {
        let mut cpus: Vec<u32> = self.cpus.keys().copied().collect();
        cpus.sort_unstable();
        for cpu in cpus {
            let running = self.cpus.get_mut(&cpu).and_then(|of_cpu| of_cpu.running.take());
            if let Some((prev, last)) = running.filter(|(prev, _)| prev.tid != 0) {
                let time = if self.switches == Switches::Recorded { time } else { last };
                let place = Place { cpu, time, tid: prev.tid };
                self.push(place, KernelEvent::Switch { prev, state: UNKNOWN_STATE, next: Task::idle() })?;
            }
        }
        Ok(())
    }

    /// Returns whether the trace says which thread this is.
    pub fn knows(&self, tid: i32) -> bool {
        self.threads.contains_key(&tid)
    }

    /// Returns how often another task ran on a CPU than the one to which the last switch went, at least. Then the times on the
    /// CPU are too short.
    pub fn unseen(&self) -> u64 {
        self.unseen
    }

    /// Forgets a thread that has ended. Another thread may get its id.
    fn forget(&mut self, tid: i32) {
        self.threads.remove(&tid);
        self.processes.remove(&tid);
    }

    fn push(&mut self, place: Place, event: KernelEvent) -> io::Result<()> {
        let of_cpu = self.cpus.entry(place.cpu).or_default();
        of_cpu.events.push(FtraceEvent::new(place, event));
        if of_cpu.events.len() >= BUNDLE { write_bundle(&mut self.packets, place.cpu, of_cpu) } else { Ok(()) }
    }

    /// Writes an event as an instant of its thread, or of its CPU if the thread was not written before or has ended.
    pub fn moment(&mut self, place: Place, moment: ThreadMoment) -> io::Result<()> {
        self.seen(place);
        self.moment_of_event(place, moment)
    }

    /// Writes the event that was written last as an instant too. After a switch, another task is running than the one in `place`.
    pub fn moment_of_event(&mut self, place: Place, moment: ThreadMoment) -> io::Result<()> {
        let Place { time, tid, .. } = place;
        let Some(told) = self.threads.get_mut(&tid) else {
            let what = if tid == 0 { "idle task" } else { "tasks without a name" };
            let track = self.named_track(format!("{what}, CPU {}", place.cpu), time)?;
            return self.instant(track, time, moment);
        };
        let pid = told.pid;
        let (track, is_new) = match told.track {
            Some(track) => (track, false),
            None => (*told.track.insert(next(&mut self.tracks)), true),
        };
        if is_new {
            let thread = ThreadDescriptor { pid: Some(pid), tid: Some(tid.into()) };
            let descriptor = TrackDescriptor { uuid: Some(track), thread: Some(thread), ..TrackDescriptor::default() };
            self.describe(descriptor, time)?;
        }
        self.instant(track, time, moment)
    }

    /// Says what the trace lacks, on a track of its own at `time`, where its events begin.
    pub fn partial(&mut self, lack: &str, time: u64) -> io::Result<()> {
        let name = format!("partial: {lack}");
        let track = self.named_track(name.clone(), time)?;
        self.instant(track, time, ThreadMoment { name, arguments: Vec::new(), stack: Vec::new() })
    }

    /// Returns the track with this name, which belongs to no thread.
    fn named_track(&mut self, name: String, time: u64) -> io::Result<u64> {
        if let Some(track) = self.named.get(&name) {
            return Ok(*track);
        }
        let track = next(&mut self.tracks);
        self.named.insert(name.clone(), track);
        self.describe(TrackDescriptor { uuid: Some(track), name: Some(name), ..TrackDescriptor::default() }, time)?;
        Ok(track)
    }

    fn instant(&mut self, track: u64, time: u64, moment: ThreadMoment) -> io::Result<()> {
        let ThreadMoment { name, arguments, stack } = moment;
        let mut new = InternedData::default();
        let name_iid = Some(self.name(name, &mut new));
        let annotation = |(name, value): (String, Argument)| DebugAnnotation::new(self.name(name, &mut new), &value);
        let debug_annotations = arguments.into_iter().map(annotation).collect();
        let frames: Vec<InlineFrame> =
            stack.into_iter().map(|function| InlineFrame { function_name: Some(function) }).collect();
        let event = TrackEvent {
            r#type: Some(EventType::Instant.into()),
            track_uuid: Some(track),
            name_iid,
            debug_annotations,
            callstack: (!frames.is_empty()).then_some(InlineCallstack { frames }),
            ..TrackEvent::default()
        };
        self.packets.write(TracePacket {
            timestamp: Some(time),
            track_event: Some(event),
            interned_data: (new != InternedData::default()).then_some(new),
            sequence_flags: Some(SEQ_NEEDS_INCREMENTAL_STATE),
            ..TracePacket::default()
        })
    }

    /// Returns the number of a name. Adds the name to `new` if the trace does not contain it.
    fn name(&mut self, name: String, new: &mut InternedData) -> u64 {
        let iid = self.names.len() as u64 + 1;
        match self.names.entry(name) {
            hash_map::Entry::Occupied(known) => *known.get(),
            hash_map::Entry::Vacant(entry) => {
                let interned = InternedName { iid: Some(iid), name: Some(entry.key().clone()) };
                new.event_names.push(interned.clone());
                new.debug_annotation_names.push(interned);
                *entry.insert(iid)
            }
        }
    }

    /// Writes the events that are not written yet.
    pub fn finish(mut self) -> io::Result<()> {
        let mut cpus: Vec<_> = mem::take(&mut self.cpus).into_iter().collect();
        cpus.sort_unstable_by_key(|(cpu, _)| *cpu);
        cpus.into_iter().try_for_each(|(cpu, mut of_cpu)| write_bundle(&mut self.packets, cpu, &mut of_cpu))
    }
}

fn next(tracks: &mut u64) -> u64 {
    *tracks += 1;
    *tracks
}

fn write_bundle<W: Write>(packets: &mut Packets<'_, W>, cpu: u32, of_cpu: &mut Cpu) -> io::Result<()> {
    let (event, has_lost) = (mem::take(&mut of_cpu.events), mem::take(&mut of_cpu.has_lost));
    if event.is_empty() && !has_lost {
        return Ok(());
    }
    let bundle = FtraceEventBundle { cpu: Some(cpu), event, lost_events: has_lost.then_some(true) };
    packets.write(TracePacket { ftrace_events: Some(bundle), ..TracePacket::default() })
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::{
        super::{kernel::Event, packet::Trace},
        *,
    };

    fn written(ends: ThreadEnds, work: impl Fn(&mut KernelTrace<'_, Vec<u8>>)) -> Vec<TracePacket> {
        let mut bytes = Vec::new();
        let mut trace = KernelTrace::new(&mut bytes, Machine::default(), ends, Switches::Recorded).unwrap();
        work(&mut trace);
        trace.finish().unwrap();
        Trace::decode(&*bytes).unwrap().packet
    }

    fn task(tid: i32) -> Task {
        Task { comm: format!("task{tid}"), tid, prio: 120 }
    }

    fn at(cpu: u32, time: u64, tid: i32) -> Place {
        Place { cpu, time, tid }
    }

    fn switch(prev: i32, state: i64, next: i32) -> KernelEvent {
        KernelEvent::Switch { prev: task(prev), state, next: task(next) }
    }

    /// Returns, for each bundle, its events (each with time and text), and whether events were lost before the bundle.
    fn events(packets: &[TracePacket]) -> Vec<(Vec<(u64, String)>, bool)> {
        let shown = |event: &FtraceEvent| {
            let text = match event.event.as_ref().unwrap() {
                Event::SchedSwitch(of) => format!("{} {} {}", of.prev_pid(), of.prev_state(), of.next_pid()),
                Event::SchedProcessFree(of) => format!("free {}", of.pid()),
                Event::SchedWaking(of) => format!("waking {}", of.pid()),
                other => format!("{other:?}"),
            };
            (event.timestamp(), text)
        };
        let bundles = packets.iter().filter_map(|packet| packet.ftrace_events.as_ref());
        bundles.map(|bundle| (bundle.event.iter().map(shown).collect(), bundle.lost_events())).collect()
    }

    fn owned(events: &[(u64, &str)]) -> Vec<(u64, String)> {
        events.iter().map(|&(time, text)| (time, text.to_owned())).collect()
    }

    #[test]
    fn threads_end_when_they_are_freed_or_leave_their_cpu_for_the_last_time() {
        let run = |trace: &mut KernelTrace<'_, Vec<u8>>| {
            trace.event(at(0, 1, 7), switch(7, 0x20, 0)).unwrap();
            trace.event(at(0, 5, 0), KernelEvent::Free(task(7))).unwrap();
        };
        let freed = written(ThreadEnds::Freed, run);
        assert_eq!(events(&freed), [(owned(&[(1, "7 32 0"), (5, "free 7")]), false)]);
        let left = written(ThreadEnds::LeftCpu, |trace| {
            trace.event(at(0, 1, 7), switch(7, 1, 8)).unwrap();
            trace.event(at(0, 2, 8), switch(8, 0x10, 0)).unwrap();
        });
        assert_eq!(events(&left), [(owned(&[(1, "7 1 8"), (2, "8 16 0"), (2, "free 8")]), false)]);
    }

    #[test]
    fn a_task_without_a_switch_away_ends_where_it_was_last_seen() {
        let packets = written(ThreadEnds::Freed, |trace| {
            trace.event(at(1, 1, 7), switch(7, 1, 8)).unwrap();
            trace.event(at(1, 4, 8), KernelEvent::Waking(task(7), 1)).unwrap();
            trace.event(at(1, 9, 7), switch(7, 1, 0)).unwrap();
        });
        let expected = [(1, "7 1 8"), (4, "waking 7"), (4, "8 32768 0"), (9, "0 0 7"), (9, "7 1 0")];
        assert_eq!(events(&packets), [(owned(&expected), true)]);
    }

    #[test]
    fn the_tasks_on_the_cpus_leave_them_where_a_window_ends() {
        let packets = written(ThreadEnds::Freed, |trace| {
            trace.event(at(0, 1, 0), switch(0, 0, 7)).unwrap();
            trace.event(at(1, 3, 0), switch(0, 0, 8)).unwrap();
            trace.event(at(1, 4, 8), switch(8, 1, 0)).unwrap();
            trace.leave_cpus(6).unwrap();
        });
        let expected = [&[(1, "0 0 7"), (6, "7 32768 0")], &[(3, "0 0 8"), (4, "8 1 0")]];
        assert_eq!(events(&packets), expected.map(|of_cpu| (owned(of_cpu), false)));
    }

    #[test]
    fn switches_that_must_have_been_are_counted() {
        let mut bytes = Vec::new();
        let machine = Machine::default();
        let mut trace = KernelTrace::new(&mut bytes, machine, ThreadEnds::LeftCpu, Switches::Recorded).unwrap();
        for (time, prev, next, unseen) in [(1, 7, 8, 0), (2, 8, 0, 0), (3, 9, 7, 1), (4, 7, 0, 1), (5, 8, 7, 2)] {
            trace.event(at(0, time, prev), switch(prev, 1, next)).unwrap();
            assert_eq!(trace.unseen(), unseen, "{time}");
        }
    }

    #[test]
    fn a_switch_that_is_an_instant_too_adds_no_switch() {
        let packets = written(ThreadEnds::Freed, |trace| {
            trace.thread((7, 7), "sh", "sh", 1).unwrap();
            for (time, prev, next) in [(1, 7, 8), (5, 8, 7), (9, 7, 0)] {
                trace.event(at(0, time, prev), switch(prev, 1, next)).unwrap();
                trace.moment_of_event(at(0, time, prev), ThreadMoment::default()).unwrap();
            }
        });
        assert_eq!(events(&packets), [(owned(&[(1, "7 1 8"), (5, "8 1 7"), (9, "7 1 0")]), false)]);
    }

    #[test]
    fn without_switches_no_task_runs() {
        let mut bytes = Vec::new();
        let mut trace = KernelTrace::new(&mut bytes, Machine::default(), ThreadEnds::LeftCpu, Switches::None).unwrap();
        for (time, tid) in [(1, 7), (5, 8), (9, 7)] {
            trace.thread((tid, tid), "sh", "sh", time).unwrap();
            trace.moment(at(0, time, tid), ThreadMoment::default()).unwrap();
            trace.event(at(0, time, tid), KernelEvent::Waking(task(9), 0)).unwrap();
        }
        trace.finish().unwrap();
        let packets = Trace::decode(&*bytes).unwrap().packet;
        assert_eq!(events(&packets), [(owned(&[(1, "waking 9"), (5, "waking 9"), (9, "waking 9")]), false)]);
    }

    #[test]
    fn names_and_tracks_are_written_once_and_again_when_they_change() {
        let packets = written(ThreadEnds::Freed, |trace| {
            for name in ["sh", "sh", "sleep"] {
                trace.thread((7, 7), name, name, 3).unwrap();
                let moment = ThreadMoment { name: "exec".to_owned(), ..ThreadMoment::default() };
                trace.moment(at(0, 3, 7), moment).unwrap();
            }
        });
        let trees = packets.iter().filter_map(|packet| packet.process_tree.as_ref());
        let names: Vec<&str> = trees.map(|tree| tree.threads[0].name()).collect();
        assert_eq!(names, ["sh", "sleep"]);
        let tracks = packets.iter().filter_map(|packet| packet.track_descriptor.as_ref());
        let uuids: Vec<(u64, bool)> = tracks.map(|track| (track.uuid(), track.thread.is_some())).collect();
        assert_eq!(uuids, [(1, false), (2, true), (1, false)]);
        let interned = packets.iter().filter_map(|packet| packet.interned_data.as_ref());
        assert_eq!(interned.map(|names| names.event_names.len()).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn many_events_are_written_in_several_bundles() {
        let packets = written(ThreadEnds::Freed, |trace| {
            for time in 0..2 * BUNDLE as u64 + 1 {
                trace.event(at(0, time, 0), KernelEvent::Waking(task(7), 0)).unwrap();
            }
        });
        let lengths: Vec<usize> = events(&packets).iter().map(|(events, _)| events.len()).collect();
        assert_eq!(lengths, [BUNDLE, BUNDLE, 1]);
    }
}
