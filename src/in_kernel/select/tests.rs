//! Tests of the selection, and of the programs that update the map of tasks.

use perf_prof_format::tracefs::{Btf, Enumerators, EventFormat};

use super::*;
use crate::instruction::interpreter::Machine;

/// Returns whether an event of process 70 and thread 71 on CPU 5 is selected, and whether it belongs to perf-prof.
fn selects(selection: &Selection, machine: impl FnOnce(&mut Machine)) -> (bool, bool) {
    selects_record(selection, &[0; 8], machine)
}

/// Returns what `selects` returns, for an event whose record starts with the bytes `start`.
fn selects_record(selection: &Selection, start: &[u8], machine: impl FnOnce(&mut Machine)) -> (bool, bool) {
    let mut code = Code::new();
    let (own, other) = (code.label(), code.label());
    crate::expression::start(&mut code);
    selection.jump_unless(&mut code, other);
    selection.own.jump(&mut code, own);
    code.exit(1);
    code.here(own);
    code.exit(2);
    code.here(other);
    code.exit(0);
    let mut on = Machine::new((8, 8));
    (on.ids, on.cpu) = ((70, 71), 5);
    machine(&mut on);
    let record = [start, &71u32.to_ne_bytes(), &72u32.to_ne_bytes()].concat();
    let result = on.run(&code, &record);
    (result != 0, result == 2)
}

#[test]
fn events_are_selected_by_cpu_task_and_cgroup() {
    let everything = Selection::EVERYTHING;
    assert_eq!(selects(&everything, |_| {}), (true, false));
    for (cpus, expected) in [([1, 2, 5], true), ([4, 5, 6], true), ([0, 1, 6], false), ([6, 7, 200], false)] {
        let selection = Selection { cpus: Some(cpus.into()), ..everything.clone() };
        assert_eq!(selects(&selection, |_| {}), (expected, false), "{cpus:?}");
    }
    for (ids, expected) in [(TaskIds::Processes, 70), (TaskIds::Threads, 71)] {
        let selection = Selection { tasks: Some(ids), ..everything.clone() };
        let with = |ids: &[u32]| selects(&selection, |machine| machine.tasks = ids.iter().copied().collect()).0;
        assert!(with(&[expected]));
        assert!(!with(&[141 - expected, 1]));
    }
    let selection = Selection { cgroups: 3, ..everything };
    assert!(selects(&selection, |machine| machine.cgroups = [2].into()).0);
    assert!(!selects(&selection, |machine| machine.cgroups = [3].into()).0);
}

#[test]
fn own_events_are_those_of_the_task_they_belong_to() {
    let is_own = |process: Option<u32>, threads: &[u32], owner| {
        let own = Own { process, threads: threads.to_vec(), owner, registers: None };
        selects(&Selection { own, ..Selection::EVERYTHING }, |_| {})
    };
    assert_eq!(is_own(Some(70), &[], Owner::Task), (true, true));
    assert_eq!(is_own(Some(71), &[], Owner::Task), (true, false));
    assert_eq!(is_own(None, &[5, 71], Owner::Task), (true, true));
    assert_eq!(is_own(Some(70), &[71], Owner::NoTask), (true, false));
    assert_eq!(is_own(Some(70), &[72], Owner::Field(8)), (true, false));
    assert_eq!(is_own(None, &[72], Owner::Field(12)), (true, true));
}

/// The registers of a CPU's events are at 0xb20 in a page, and those of a context take 0xa8 bytes.
#[test]
fn an_event_in_an_interrupt_belongs_to_no_task() {
    let registers = registers(0x26b20, 4 * 0xa8);
    let own = |process| Own { process: Some(process), registers, ..Own::NOTHING };
    let is_own = |own: Own, pointer: u64| {
        let selection = Selection { own, ..Selection::EVERYTHING };
        selects_record(&selection, &pointer.to_ne_bytes(), |_| {})
    };
    let of_cpu = 0xffff_8881_2340_0000;
    assert_eq!(is_own(own(70), of_cpu + 0x26b20), (true, true));
    assert_eq!(is_own(own(71), of_cpu + 0x26b20), (true, false));
    for interrupt in 1..4 {
        let pointer = of_cpu + 0x26b20 + 0xa8 * interrupt;
        assert_eq!(is_own(own(70), pointer), (true, false), "{interrupt}");
        assert_eq!(is_own(Own { registers: None, ..own(70) }, pointer), (true, true), "{interrupt}");
    }
    // A pointer to something else says nothing about interrupts.
    assert_eq!(is_own(own(70), of_cpu + 0x26b20 + 8), (true, true));
}

#[test]
fn registers_must_fit_into_a_page() {
    assert_eq!([0, 3, 4096, 4100].map(|size| registers(0x26b20, size).is_some()), [false, false, true, false]);
}

/// Returns the registers that BTF describes at this place.
pub(crate) fn registers(offset: u32, size: u32) -> Option<EventRegisters> {
    let strings = b"\0__perf_regs\0.data..percpu\0";
    let types: [u32; 10] = [1, 14 << 24, 0, 1, 13, 15 << 24 | 1, 0, 1, offset, size];
    let mut bytes = 0xeb9f_u16.to_ne_bytes().to_vec();
    bytes.extend([1, 0]);
    for word in [24, 0, 40, 40, strings.len() as u32].into_iter().chain(types) {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(strings);
    EventRegisters::of(&Btf::parse(&bytes, Enumerators::Skipped, EventRegisters::needs).unwrap())
}

#[test]
fn ids_of_another_pid_namespace_select_nothing() {
    let inside = Selection { ids: PidNamespace::Other, ..Selection::EVERYTHING };
    assert_eq!(inside.check(), Ok(()));
    assert_eq!(Selection { tasks: Some(TaskIds::Threads), ..inside.clone() }.check(), Err(Unsuited::PidNamespace));
    let own = Own { process: Some(1), ..Own::NOTHING };
    assert_eq!(Selection { own, ..inside }.check(), Err(Unsuited::PidNamespace));
}

#[test]
fn the_map_of_tasks_follows_forks_and_ends() {
    let fork = format("int parent_pid;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:pid_t child_pid;\toffset:12;");
    let free = format("pid_t pid;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:int prio;\toffset:12;");
    let record = [&[0; 8][..], &71u32.to_ne_bytes(), &99u32.to_ne_bytes()].concat();
    let mut machine = Machine::new((8, 8));
    machine.ids = (70, 71);
    let fork = |ids| tasks::fork_code(&fork, ids).unwrap();
    assert_eq!(machine.run(&fork(TaskIds::Threads), &record), 1);
    assert!(machine.tasks.is_empty());
    machine.tasks = [71].into();
    machine.run(&fork(TaskIds::Processes), &record);
    assert_eq!(machine.tasks, [71].into());
    machine.run(&fork(TaskIds::Threads), &record);
    assert_eq!(machine.tasks, [71, 99].into());
    assert_eq!(machine.run(&tasks::removal_code(&free, MapUse::Tasks).unwrap(), &record), 1);
    assert_eq!(machine.tasks, [99].into());
    machine.run(&tasks::start_code(70), &record);
    assert_eq!(machine.tasks, [99].into());
    machine.run(&tasks::start_code(71), &record);
    assert_eq!(machine.tasks, [71, 99].into());
    assert_eq!(machine.counters(), [0]);
    machine.tasks_are_full = true;
    assert_eq!(machine.run(&fork(TaskIds::Threads), &record), 1);
    assert_eq!(machine.counters(), [1]);
    assert_eq!(fork_program(&free, TaskIds::Threads), Err(Unsuited::Member("child_pid".into())));
    assert!(!removal_program(&free, MapUse::Tasks).unwrap().maps.is_empty() && !start_program(3).maps.is_empty());
}

fn format(fields: &str) -> EventFormat {
    let common = "field:int common_pid;\toffset:4;\tsize:4;\tsigned:1;";
    let text =
        format!("name: e\nID: 7\nformat:\n\t{common}\n\n\tfield:{fields}\tsize:4;\tsigned:1;\n\nprint fmt: \"\"\n");
    EventFormat::parse("s", &text).unwrap()
}
