//! One step from a frame to its caller's: what a rule does to the registers. Knows no file.

use gimli::{
    CfaRule, EndianSlice, Evaluation, EvaluationResult, LittleEndian, Location, RegisterRule, UnwindExpression, Value,
};

use super::{
    Arch, Registers,
    arch::Link,
    rule::{Entry, FrameKind, Offsets, SAME, TableRow},
};

/// Operations in one expression: those of compilers have up to ten.
const MAX_OPERATIONS: u32 = 1000;

/// Why there is no caller's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Halt {
    /// There is no caller.
    Root,
    /// It is behind the end of the copied stack.
    StackEnds,
    /// What was found cannot be a frame.
    Bad,
}

/// Whether the instruction pointer is where execution was, or where it goes on after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The innermost frame, and one that a signal interrupted.
    Exact,
    /// A return address.
    Return,
}

impl Place {
    /// What the frame below one of this kind has.
    pub(super) fn after(frame: FrameKind) -> Place {
        match frame {
            FrameKind::Call => Place::Return,
            FrameKind::Signal => Place::Exact,
        }
    }

    /// An address in the instruction that was executed last. Behind a call that never returns there may be another function.
    pub(super) fn code(self, address: u64) -> u64 {
        match self {
            Place::Exact => address,
            Place::Return => address.wrapping_sub(1),
        }
    }
}

/// The copy of a stack, from the stack pointer upwards.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stack<'a> {
    pub(super) start: u64,
    pub(super) bytes: &'a [u8],
}

impl Stack<'_> {
    fn read(&self, address: u64, size: usize) -> Result<u64, Halt> {
        let Some(at) = address.checked_sub(self.start) else { return Err(Halt::Bad) };
        let at = usize::try_from(at).map_err(|_| Halt::StackEnds)?;
        let bytes = at.checked_add(size).and_then(|end| self.bytes.get(at..end)).ok_or(Halt::StackEnds)?;
        let mut word = [0; 8];
        word.get_mut(..size).ok_or(Halt::Bad)?.copy_from_slice(bytes);
        Ok(u64::from_le_bytes(word))
    }

    fn word(&self, address: u64) -> Result<u64, Halt> {
        self.read(address, 8)
    }

    fn has(&self, address: u64) -> bool {
        self.word(address).is_ok()
    }
}

/// A frame that a step is made from.
pub(super) struct Frame<'a> {
    pub(super) arch: &'a Arch,
    pub(super) registers: &'a Registers,
    pub(super) stack: Stack<'a>,
    pub(super) place: Place,
}

impl Frame<'_> {
    /// The caller's registers by offsets.
    pub(super) fn by_offsets(&self, rule: &Offsets) -> Result<Registers, Halt> {
        let base = self.registers.get(rule.register.into()).ok_or(Halt::Bad)?;
        let frame = base.checked_add_signed(rule.offset.into()).ok_or(Halt::Bad)?;
        let mut caller = *self.registers;
        caller.set(self.arch.sp, Some(frame));
        let mut link = None;
        for (&register, &words) in self.arch.kept.iter().zip(&rule.saved) {
            let restored = match words {
                SAME => self.registers.get(register),
                words => {
                    let restored = self.saved(register, frame.wrapping_add_signed(i64::from(words) * 8));
                    if register == self.arch.link_column() {
                        link = Some(restored);
                    }
                    restored.ok()
                }
            };
            caller.set(register, restored);
        }
        let link = link.unwrap_or_else(|| self.link_register());
        self.arrive(caller, link, rule.frame)
    }

    /// The caller's registers by the rules as they stand in the section.
    pub(super) fn by_evaluation(&self, row: &TableRow, entry: &Entry<'_>) -> Result<Registers, Halt> {
        let frame = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                let base = self.registers.get(register.0).ok_or(Halt::Bad)?;
                base.checked_add_signed(*offset).ok_or(Halt::Bad)?
            }
            CfaRule::Expression(expression) => self.evaluate(expression, entry, None)?,
        };
        let mut caller = *self.registers;
        caller.set(self.arch.sp, Some(frame));
        let mut link = self.link_register();
        for (register, rule) in row.registers() {
            let at = |offset: &i64| frame.wrapping_add_signed(*offset);
            let restored = match rule {
                RegisterRule::SameValue => continue,
                RegisterRule::Offset(offset) => self.saved(register.0, at(offset)),
                RegisterRule::ValOffset(offset) => Ok(at(offset)),
                RegisterRule::Register(other) => self.registers.get(other.0).ok_or(Halt::Bad),
                RegisterRule::Expression(expression) => {
                    let address = self.evaluate(expression, entry, Some(frame));
                    address.and_then(|address| self.saved(register.0, address))
                }
                RegisterRule::ValExpression(expression) => self.evaluate(expression, entry, Some(frame)),
                RegisterRule::Constant(value) => Ok(*value),
                _ => Err(Halt::Bad),
            };
            caller.set(register.0, restored.ok());
            if register.0 == entry.link {
                link = restored;
            }
        }
        self.arrive(caller, link, entry.frame)
    }

    /// The caller's registers by the frame pointer, for code that nothing is known of. The register may hold anything.
    pub(super) fn by_frame_pointer(&self) -> Result<Registers, Halt> {
        let registers = self.registers.get(self.arch.sp).zip(self.registers.get(self.arch.fp));
        let (sp, pointer) = registers.ok_or(Halt::Bad)?;
        // By the ABI a program's first frame has none, but so has any code that keeps no frame pointers under such a frame.
        if pointer == 0 && self.place == Place::Return {
            return Err(Halt::Root);
        }
        if pointer < sp || pointer % 8 != 0 {
            return Err(Halt::Bad);
        }
        // No frame pointer, rather than one behind the copy's end.
        let word = |at: u64| pointer.checked_add(at).and_then(|at| self.stack.word(at).ok()).ok_or(Halt::Bad);
        let link = word(8)?;
        let mut caller = *self.registers;
        // Whether that code changed the other registers is not known.
        self.arch.kept.iter().for_each(|&kept| caller.set(kept, None));
        caller.set(self.arch.fp, Some(word(0)?));
        caller.set(self.arch.sp, pointer.checked_add(16));
        self.arrive(caller, Ok(link), FrameKind::Call)
    }

    /// The caller's registers right behind a call, before the called function did anything.
    pub(super) fn by_return(&self) -> Result<Registers, Halt> {
        let sp = self.registers.get(self.arch.sp).ok_or(Halt::Bad)?;
        let mut caller = *self.registers;
        let link = match self.arch.link {
            Link::Register(_) => self.link_register(),
            Link::Stack => {
                caller.set(self.arch.sp, Some(sp.checked_add(8).ok_or(Halt::Bad)?));
                self.stack.word(sp)
            }
        };
        self.arrive(caller, link, FrameKind::Call)
    }

    /// The registers that the kernel saved on AArch64 when it delivered a signal: behind `siginfo` (128 bytes) there is
    /// `ucontext`, with `sigcontext` at 176 in it, and there `regs`, `sp` and `pc` behind the fault address
    /// (arch/arm64/kernel/signal.c, struct rt_sigframe).
    pub(super) fn by_kernel_frame(&self) -> Result<Registers, Halt> {
        let sp = self.registers.get(self.arch.sp).ok_or(Halt::Bad)?;
        let saved = |register: u16| {
            let at = sp.checked_add(128 + 176 + 8 + 8 * u64::from(register)).ok_or(Halt::Bad)?;
            self.stack.word(at)
        };
        let mut caller = *self.registers;
        (0..=self.arch.sp).for_each(|register| caller.set(register, saved(register).ok()));
        self.arrive(caller, saved(self.arch.pc), FrameKind::Signal)
    }

    /// A register that was saved on the stack. What is below the stack pointer where execution was has been popped already,
    /// but for a return address: that is popped when the frame is no more.
    fn saved(&self, register: u16, address: u64) -> Result<u64, Halt> {
        let below = self.registers.get(self.arch.sp).is_some_and(|sp| address < sp);
        let popped = below && self.place == Place::Exact && register != self.arch.pc;
        match popped && !self.stack.has(address) {
            true => self.registers.get(register).ok_or(Halt::Bad),
            false => self.stack.word(address),
        }
    }

    /// The return address where no rule speaks of it: it is still in its register.
    fn link_register(&self) -> Result<u64, Halt> {
        match self.arch.link {
            Link::Stack => Err(Halt::Bad),
            Link::Register(link) => self.registers.get(link).ok_or(Halt::Bad),
        }
    }

    /// Makes the registers those of the caller at its return address, and sees whether that is a step forward.
    fn arrive(&self, mut caller: Registers, link: Result<u64, Halt>, kind: FrameKind) -> Result<Registers, Halt> {
        let link = link? & self.arch.code_mask;
        if link == 0 {
            return Err(Halt::Root);
        }
        caller.set(self.arch.pc, Some(link));
        if let (Link::Register(register), FrameKind::Call) = (self.arch.link, kind) {
            // It was overwritten by the call that is being left.
            caller.set(register, None);
        }
        let (before, after) = (self.registers.get(self.arch.sp), caller.get(self.arch.sp));
        // A handler may have a stack of its own, anywhere. A leaf on AArch64 need not have used the stack.
        let forward = after > before
            || kind == FrameKind::Signal && after != before
            || after == before && matches!(self.arch.link, Link::Register(_)) && self.place == Place::Exact;
        if forward && after.is_some() { Ok(caller) } else { Err(Halt::Bad) }
    }

    fn evaluate(
        &self,
        expression: &UnwindExpression<usize>,
        entry: &Entry<'_>,
        frame: Option<u64>,
    ) -> Result<u64, Halt> {
        let end = expression.offset.checked_add(expression.length).ok_or(Halt::Bad)?;
        let bytes = entry.section.get(expression.offset..end).ok_or(Halt::Bad)?;
        let mut evaluation = Evaluation::new(EndianSlice::new(bytes, LittleEndian), entry.encoding);
        evaluation.set_max_iterations(MAX_OPERATIONS);
        if let Some(frame) = frame {
            evaluation.set_initial_value(frame);
        }
        let mut result = evaluation.evaluate();
        loop {
            result = match result.map_err(|_| Halt::Bad)? {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, base_type } if base_type.0 == 0 => {
                    let value = self.registers.get(register.0).ok_or(Halt::Bad)?;
                    evaluation.resume_with_register(Value::Generic(value))
                }
                EvaluationResult::RequiresMemory { address, size, space: None, base_type } if base_type.0 == 0 => {
                    evaluation.resume_with_memory(Value::Generic(self.stack.read(address, size.into())?))
                }
                _ => return Err(Halt::Bad),
            };
        }
        match evaluation.as_result() {
            [piece] => match piece.location {
                Location::Address { address } => Ok(address),
                Location::Value { value: Value::Generic(value) } => Ok(value),
                _ => Err(Halt::Bad),
            },
            _ => Err(Halt::Bad),
        }
    }
}
