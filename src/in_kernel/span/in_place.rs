//! The open spans of tasks. A task gets an entry in the hash at the first event that needs one, and keeps the entry until
//! the task exits. So most events only change an entry. This takes a fifth of the time that removing and adding an entry
//! takes. The scheduler's locks make sure that no two events of a task happen at the same time.

use perf_prof_format::abi::bpf::{BPF_FUNC_GET_SMP_PROCESSOR_ID, BPF_FUNC_MAP_DELETE_ELEM, BPF_NOEXIST};

use super::{Open, SpanCounters, Writer, count_in, jump_if_fresh, look_up, put, stack};
use crate::{
    expression::{Number, Outcome},
    instruction::{Code, Condition, MapUse, Operation, Place, Register, Size},
    lower::{KEPT, LoweredStep, NOW, OPEN_KEY, StepAction},
};

/// The register with the address of the task's entry; 0 if there is none. If no span is open, the time in the entry is 0.
const ENTRY: Register = Register::R7;
/// The register that says whether this is a second wakeup, and the task has run since the first.
const AGAIN: Register = Register::R8;
/// The size of a task's state, in bytes: what the task does, and when and where it was woken.
pub(super) const STATE_BYTES: usize = 24;
const TIME: usize = 8;
const CPU: usize = 16;
/// What a task does: it runs, or it was woken. 0 stands for anything else.
const RUNS: i32 = 1;
const WOKEN: i32 = 2;
/// The bits of `prev_state` for a task that exits.
const DEAD: i32 = 0x30;
/// A second wakeup on the same CPU within this time, in ns, counts as the same wakeup, as in the engine of spans.
const SAME_WAKEUP: i32 = 10_000;

impl Writer<'_> {
    /// Writes code for the steps of an event.
    pub(super) fn in_place(&self, code: &mut Code, steps: &[LoweredStep]) {
        let mut tasks: Vec<(&[Number], Vec<&LoweredStep>)> = Vec::new();
        for step in steps {
            match tasks.iter_mut().find(|(key, _)| *key == step.keys[0]) {
                Some((_, of_task)) => of_task.push(step),
                None => tasks.push((&step.keys[0], vec![step])),
            }
        }
        tasks.iter().for_each(|(key, steps)| self.of_task(code, key, steps));
    }

    /// Writes code for those steps of an event that change the entry of one task.
    fn of_task(&self, code: &mut Code, key: &[Number], steps: &[&LoweredStep]) {
        self.write_key(code, key, stack(OPEN_KEY));
        find(code);
        let wakes = steps.iter().any(|step| step.action == StepAction::Wakes);
        for (at, step) in steps.iter().enumerate() {
            let next = code.label();
            if let Some(when) = &step.when {
                when.jump(code, Outcome::Fails, next);
            }
            match step.action {
                StepAction::Leaves(_) => self.set_state(code, 0),
                StepAction::Comes => self.comes(code),
                StepAction::Wakes => self.wakes(code),
                StepAction::Begin => self.begin_in_place(code, Open::Dropped, wakes),
                StepAction::BeginUnlessOpen => self.begin_in_place(code, Open::Stays, wakes),
                StepAction::Discard => drop_open(code),
                StepAction::DiscardWokenAgain => {
                    code.jump_if(Condition::Equal, AGAIN, 0, next);
                    drop_open(code);
                }
                StepAction::End => self.end_in_place(code),
            }
            code.here(next);
            if step.action == StepAction::End && at + 1 < steps.len() {
                find(code);
            }
        }
        for step in steps {
            if let StepAction::Leaves(state) = step.action {
                remove_if_dead(code, state);
            }
        }
    }

    /// Writes code that ends the open span of the task.
    fn end_in_place(&self, code: &mut Code) {
        let (no_begin, next) = (code.label(), code.label());
        code.jump_if(Condition::Equal, ENTRY, 0, no_begin);
        code.load(Size::Double, Register::R1, ENTRY.at(0));
        code.jump_if(Condition::Equal, Register::R1, 0, no_begin);
        self.take(code, ENTRY);
        code.store_number(Size::Double, ENTRY.at(0), 0);
        self.add_taken(code, next);
        code.here(no_begin);
        count_in(code, SpanCounters::WITHOUT_BEGIN);
        code.here(next);
    }

    /// Writes code that opens a span of the task.
    fn begin_in_place(&self, code: &mut Code, open: Open, wakes: bool) {
        let (insert, fill, next) = (code.label(), code.label(), code.label());
        code.jump_if(Condition::Equal, ENTRY, 0, insert);
        code.load(Size::Double, Register::R1, ENTRY.at(0));
        code.jump_if(Condition::Equal, Register::R1, 0, fill);
        if open == Open::Stays {
            jump_if_fresh(code, ENTRY, next);
        }
        drop_open(code);
        code.here(fill);
        count_in(code, SpanCounters::OPENED);
        self.write_begin(code, ENTRY.at(0));
        code.jump(next);
        code.here(insert);
        count_in(code, SpanCounters::OPENED);
        self.write_begin(code, stack(KEPT));
        if let Some(state) = self.states {
            let at = stack(KEPT).after(state);
            code.store_number(Size::Double, at, if wakes { WOKEN } else { 0 });
            write_now(code, at);
        }
        put(code, BPF_NOEXIST);
        code.jump_if(Condition::Equal, Register::R0, 0, next);
        count_in(code, SpanCounters::DROPPED);
        count_in(code, SpanCounters::WITHOUT_ROOM);
        code.here(next);
    }

    /// Writes code that stores what the task does. Does nothing if the spans do not depend on it.
    fn set_state(&self, code: &mut Code, state: i32) {
        let Some(at) = self.states else { return };
        let unknown = code.label();
        code.jump_if(Condition::Equal, ENTRY, 0, unknown);
        code.store_number(Size::Double, ENTRY.at(at as i16), state);
        code.here(unknown);
    }

    /// Writes code for a task that starts to run on a CPU. The task gets an entry, because a later wakeup means something
    /// else while the task runs.
    fn comes(&self, code: &mut Code) {
        let Some(at) = self.states else { return };
        let (insert, next) = (code.label(), code.label());
        code.jump_if(Condition::Equal, ENTRY, 0, insert);
        code.store_number(Size::Double, ENTRY.at(at as i16), RUNS);
        code.jump(next);
        code.here(insert);
        for word in (0..self.sizes.1).step_by(8) {
            code.store_number(Size::Double, stack(KEPT).after(word), if word == at { RUNS } else { 0 });
        }
        put(code, BPF_NOEXIST);
        code.here(next);
    }

    /// Writes code for a task that is woken. It sets [`AGAIN`].
    fn wakes(&self, code: &mut Code) {
        code.copy(AGAIN, 0);
        let Some(at) = self.states else { return };
        let state = ENTRY.at(at as i16);
        let (next, is_new, is_again) = (code.label(), code.label(), code.label());
        code.jump_if(Condition::Equal, ENTRY, 0, next);
        code.load(Size::Double, Register::R1, state);
        code.jump_if(Condition::Equal, Register::R1, RUNS, next);
        code.jump_if(Condition::NotEqual, Register::R1, WOKEN, is_new);
        code.call(BPF_FUNC_GET_SMP_PROCESSOR_ID);
        code.load(Size::Double, Register::R1, state.after(CPU));
        code.jump_if(Condition::NotEqual, Register::R0, Register::R1, is_again);
        code.load(Size::Double, Register::R0, stack(NOW));
        code.load(Size::Double, Register::R1, state.after(TIME));
        code.operate(Operation::Subtract, Register::R0, Register::R1);
        code.jump_if(Condition::LessOrEqual, Register::R0, SAME_WAKEUP, next);
        code.here(is_again);
        code.copy(AGAIN, 1);
        code.here(is_new);
        code.store_number(Size::Double, state, WOKEN);
        write_now(code, state);
        code.here(next);
    }
}

/// Writes code that finds the entry of the task whose key is on the stack.
fn find(code: &mut Code) {
    look_up(code, OPEN_KEY);
    code.copy(ENTRY, Register::R0);
}

/// Writes code that stores the CPU and the time in the state of a task.
fn write_now(code: &mut Code, state: Place) {
    code.call(BPF_FUNC_GET_SMP_PROCESSOR_ID);
    code.store(Size::Double, state.after(CPU), Register::R0);
    code.load(Size::Double, Register::R0, stack(NOW));
    code.store(Size::Double, state.after(TIME), Register::R0);
}

/// Writes code that drops the open span of the task, if there is one.
fn drop_open(code: &mut Code) {
    let (none, fresh) = (code.label(), code.label());
    code.jump_if(Condition::Equal, ENTRY, 0, none);
    code.load(Size::Double, Register::R1, ENTRY.at(0));
    code.jump_if(Condition::Equal, Register::R1, 0, none);
    code.store_number(Size::Double, ENTRY.at(0), 0);
    count_in(code, SpanCounters::DROPPED);
    jump_if_fresh(code, ENTRY, fresh);
    count_in(code, SpanCounters::LOST);
    code.here(fresh);
    code.here(none);
}

/// Writes code that removes the entry of a task that exits.
fn remove_if_dead(code: &mut Code, state: Number) {
    let alive = code.label();
    state.load(code, Register::R1);
    code.operate(Operation::And, Register::R1, DEAD);
    code.jump_if(Condition::Equal, Register::R1, 0, alive);
    find(code);
    code.jump_if(Condition::Equal, ENTRY, 0, alive);
    code.load(Size::Double, Register::R1, ENTRY.at(0));
    code.jump_if(Condition::NotEqual, Register::R1, 0, alive);
    code.map(Register::R1, MapUse::Open);
    code.address(Register::R2, stack(OPEN_KEY));
    code.call(BPF_FUNC_MAP_DELETE_ELEM);
    code.here(alive);
}
