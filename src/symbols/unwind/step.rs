//! Steps from a frame to its caller's frame by applying a rule to the registers.

use gimli::{
    CfaRule, EndianSlice, Evaluation, EvaluationResult, LittleEndian, Location, RegisterRule, UnwindExpression, Value,
};

use super::{
    Arch, Registers,
    arch::Link,
    rule::{Entry, FrameKind, Offsets, SAME, TableRow},
};

/// The maximum number of operations in an expression. Compilers write up to ten.
const MAX_OPERATIONS: u32 = 1000;

/// The reason why the step to the caller's frame was not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoCaller {
    /// There is no caller: this is the outermost frame.
    Root,
    /// The frame is beyond the end of the copied stack.
    StackEnds,
    /// The result of the step cannot be a frame.
    Bad,
}

/// What a frame's instruction pointer refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PcKind {
    /// The instruction that was executed: in the innermost frame, and in a frame that a signal interrupted.
    Exact,
    /// A return address: the instruction after a call.
    Return,
}

impl PcKind {
    /// Returns what the instruction pointer in the caller's frame refers to. `frame` is the kind of the called frame.
    pub(super) fn of_caller(frame: FrameKind) -> PcKind {
        match frame {
            FrameKind::Call => PcKind::Return,
            FrameKind::Signal => PcKind::Exact,
        }
    }

    /// Returns an address in the last executed instruction. For a return address, this instruction is the call before
    /// the return address. The return address itself may be in the next function: if the called function never returns,
    /// the call is the last instruction of its own function.
    pub(super) fn instruction_address(self, address: u64) -> u64 {
        match self {
            PcKind::Exact => address,
            PcKind::Return => address.wrapping_sub(1),
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
    fn read(&self, address: u64, size: usize) -> Result<u64, NoCaller> {
        let Some(at) = address.checked_sub(self.start) else { return Err(NoCaller::Bad) };
        let at = usize::try_from(at).map_err(|_| NoCaller::StackEnds)?;
        let bytes = at.checked_add(size).and_then(|end| self.bytes.get(at..end)).ok_or(NoCaller::StackEnds)?;
        let mut word = [0; 8];
        word.get_mut(..size).ok_or(NoCaller::Bad)?.copy_from_slice(bytes);
        Ok(u64::from_le_bytes(word))
    }

    fn word(&self, address: u64) -> Result<u64, NoCaller> {
        self.read(address, 8)
    }

    fn has(&self, address: u64) -> bool {
        self.word(address).is_ok()
    }
}

/// The frame from which a step is made.
pub(super) struct Frame<'a> {
    pub(super) arch: &'a Arch,
    pub(super) registers: &'a Registers,
    pub(super) stack: Stack<'a>,
    pub(super) pc_kind: PcKind,
}

impl Frame<'_> {
    /// Returns the caller's registers, for a rule that consists of offsets.
    pub(super) fn by_offsets(&self, rule: &Offsets) -> Result<Registers, NoCaller> {
        let base = self.registers.get(rule.register.into()).ok_or(NoCaller::Bad)?;
        let frame = base.checked_add_signed(rule.offset.into()).ok_or(NoCaller::Bad)?;
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
        self.finish_step(caller, link, rule.frame)
    }

    /// Returns the caller's registers by evaluating the rules in the unwind section.
    pub(super) fn by_evaluation(&self, row: &TableRow, entry: &Entry<'_>) -> Result<Registers, NoCaller> {
        let frame = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                let base = self.registers.get(register.0).ok_or(NoCaller::Bad)?;
                base.checked_add_signed(*offset).ok_or(NoCaller::Bad)?
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
                RegisterRule::Register(other) => self.registers.get(other.0).ok_or(NoCaller::Bad),
                RegisterRule::Expression(expression) => {
                    let address = self.evaluate(expression, entry, Some(frame));
                    address.and_then(|address| self.saved(register.0, address))
                }
                RegisterRule::ValExpression(expression) => self.evaluate(expression, entry, Some(frame)),
                RegisterRule::Constant(value) => Ok(*value),
                _ => Err(NoCaller::Bad),
            };
            caller.set(register.0, restored.ok());
            if register.0 == entry.link {
                link = restored;
            }
        }
        self.finish_step(caller, link, entry.frame)
    }

    /// Returns the caller's registers by following the frame pointer, for code without unwind information. In such
    /// code, the register may contain any other value.
    pub(super) fn by_frame_pointer(&self) -> Result<Registers, NoCaller> {
        let registers = self.registers.get(self.arch.sp).zip(self.registers.get(self.arch.fp));
        let (sp, pointer) = registers.ok_or(NoCaller::Bad)?;
        // According to the ABI, the frame pointer is 0 in the first frame of a program. But it is also 0 in a function
        // that the first frame called and that does not set the frame pointer. So 0 means the first frame only if the
        // instruction pointer is a return address.
        if pointer == 0 && self.pc_kind == PcKind::Return {
            return Err(NoCaller::Root);
        }
        if pointer < sp || pointer % 8 != 0 {
            return Err(NoCaller::Bad);
        }
        // A value that points outside of the copied stack is probably no frame pointer.
        let word = |at: u64| pointer.checked_add(at).and_then(|at| self.stack.word(at).ok()).ok_or(NoCaller::Bad);
        let link = word(8)?;
        let mut caller = *self.registers;
        // The code of this frame may have changed the other registers.
        self.arch.kept.iter().for_each(|&kept| caller.set(kept, None));
        caller.set(self.arch.fp, Some(word(0)?));
        caller.set(self.arch.sp, pointer.checked_add(16));
        self.finish_step(caller, Ok(link), FrameKind::Call)
    }

    /// Returns the caller's registers right after a call, before the called function has executed an instruction.
    pub(super) fn by_return(&self) -> Result<Registers, NoCaller> {
        let sp = self.registers.get(self.arch.sp).ok_or(NoCaller::Bad)?;
        let mut caller = *self.registers;
        let link = match self.arch.link {
            Link::Register(_) => self.link_register(),
            Link::Stack => {
                caller.set(self.arch.sp, Some(sp.checked_add(8).ok_or(NoCaller::Bad)?));
                self.stack.word(sp)
            }
        };
        self.finish_step(caller, link, FrameKind::Call)
    }

    /// Returns the registers that the kernel saved on AArch64 when it delivered a signal. The stack pointer points to
    /// `siginfo` (128 bytes). `ucontext` follows, which contains `sigcontext` at offset 176. `sigcontext` contains the
    /// fault address (8 bytes), then `regs`, `sp` and `pc` (arch/arm64/kernel/signal.c, struct rt_sigframe).
    pub(super) fn by_kernel_frame(&self) -> Result<Registers, NoCaller> {
        let sp = self.registers.get(self.arch.sp).ok_or(NoCaller::Bad)?;
        let saved = |register: u16| {
            let at = sp.checked_add(128 + 176 + 8 + 8 * u64::from(register)).ok_or(NoCaller::Bad)?;
            self.stack.word(at)
        };
        let mut caller = *self.registers;
        (0..=self.arch.sp).for_each(|register| caller.set(register, saved(register).ok()));
        self.finish_step(caller, saved(self.arch.pc), FrameKind::Signal)
    }

    /// Returns the value of a register that was saved on the stack at `address`. If the frame is [`PcKind::Exact`] and
    /// `address` is below its stack pointer, the value has been popped, so the register contains the saved value again.
    /// The return address is an exception, because only the return pops it.
    fn saved(&self, register: u16, address: u64) -> Result<u64, NoCaller> {
        let below = self.registers.get(self.arch.sp).is_some_and(|sp| address < sp);
        let popped = below && self.pc_kind == PcKind::Exact && register != self.arch.pc;
        match popped && !self.stack.has(address) {
            true => self.registers.get(register).ok_or(NoCaller::Bad),
            false => self.stack.word(address),
        }
    }

    /// Returns the value of the link register. The link register contains the return address if no rule says where the
    /// return address was saved. Fails if the architecture has no link register, or if the register's value is not
    /// known.
    fn link_register(&self) -> Result<u64, NoCaller> {
        match self.arch.link {
            Link::Stack => Err(NoCaller::Bad),
            Link::Register(link) => self.registers.get(link).ok_or(NoCaller::Bad),
        }
    }

    /// Sets the return address `link` in the caller's registers, and checks that the step leads outward, towards the
    /// first frame.
    fn finish_step(
        &self,
        mut caller: Registers,
        link: Result<u64, NoCaller>,
        kind: FrameKind,
    ) -> Result<Registers, NoCaller> {
        let link = link? & self.arch.code_mask;
        if link == 0 {
            return Err(NoCaller::Root);
        }
        caller.set(self.arch.pc, Some(link));
        if let (Link::Register(register), FrameKind::Call) = (self.arch.link, kind) {
            // The call instruction overwrote this register, so the caller's value is unknown.
            caller.set(register, None);
        }
        let (before, after) = (self.registers.get(self.arch.sp), caller.get(self.arch.sp));
        // The stack pointer must grow, with two exceptions. A signal handler may have its own stack at any address. On
        // AArch64, a leaf function may not use the stack, so the stack pointer may stay the same.
        let forward = after > before
            || kind == FrameKind::Signal && after != before
            || after == before && matches!(self.arch.link, Link::Register(_)) && self.pc_kind == PcKind::Exact;
        if forward && after.is_some() { Ok(caller) } else { Err(NoCaller::Bad) }
    }

    fn evaluate(
        &self,
        expression: &UnwindExpression<usize>,
        entry: &Entry<'_>,
        frame: Option<u64>,
    ) -> Result<u64, NoCaller> {
        let end = expression.offset.checked_add(expression.length).ok_or(NoCaller::Bad)?;
        let bytes = entry.section.get(expression.offset..end).ok_or(NoCaller::Bad)?;
        let mut evaluation = Evaluation::new(EndianSlice::new(bytes, LittleEndian), entry.encoding);
        evaluation.set_max_iterations(MAX_OPERATIONS);
        if let Some(frame) = frame {
            evaluation.set_initial_value(frame);
        }
        let mut result = evaluation.evaluate();
        loop {
            result = match result.map_err(|_| NoCaller::Bad)? {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, base_type } if base_type.0 == 0 => {
                    let value = self.registers.get(register.0).ok_or(NoCaller::Bad)?;
                    evaluation.resume_with_register(Value::Generic(value))
                }
                EvaluationResult::RequiresMemory { address, size, space: None, base_type } if base_type.0 == 0 => {
                    evaluation.resume_with_memory(Value::Generic(self.stack.read(address, size.into())?))
                }
                _ => return Err(NoCaller::Bad),
            };
        }
        match evaluation.as_result() {
            [piece] => match piece.location {
                Location::Address { address } => Ok(address),
                Location::Value { value: Value::Generic(value) } => Ok(value),
                _ => Err(NoCaller::Bad),
            },
            _ => Err(NoCaller::Bad),
        }
    }
}
