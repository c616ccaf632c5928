//! Finds the unwind rule for an address: how to get from a frame to the frame of its caller. This module knows neither
//! processes nor stacks.

use gimli::{
    BaseAddresses, CfaRule, DebugFrame, EhFrame, Encoding, EndianSlice, LittleEndian, RegisterRule, UnwindContext,
    UnwindSection, UnwindTableRow,
};

use super::{
    Arch, Missing,
    arch::{KEPT, Link},
    elf::{Elf, Section},
    index::Index,
};
use crate::symbol::CodeImage;

/// Working memory for gimli, which is reused for each entry.
pub(super) type Context = UnwindContext<usize>;
/// The rules of an unwind section for one address.
pub(super) type TableRow = UnwindTableRow<usize>;
type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// The maximum size of an entry in bytes. A longer entry does not describe a function and is ignored.
const MAX_ENTRY: usize = 1 << 20;

/// How to get to the caller's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// There is no caller: this is the outermost function.
    Root,
    /// By offsets from a register. This is enough for nearly all code.
    Offsets(Offsets),
    /// By evaluating the rules in the unwind section for each step, because offsets cannot express them.
    Evaluate,
    /// By reading the registers that the kernel saved when it delivered a signal, in the kernel's own layout.
    KernelFrame,
}

/// Computes the caller's registers. The frame's address is a register plus an offset. Each saved register is at an
/// offset from the frame's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offsets {
    pub(super) register: u8,
    pub(super) frame: FrameKind,
    pub(super) offset: i32,
    /// For each register in `Arch::kept`, the position where the register was saved, in words of 8 bytes from the
    /// frame's address. `SAME` if the register was not saved.
    pub(super) saved: [i16; KEPT],
}

/// How a frame was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// By a call instruction.
    Call,
    /// By the kernel, to deliver a signal. The caller's frame belongs to the interrupted code, which made no call.
    Signal,
}

/// The value in [`Offsets::saved`] for a register that was not saved and still has the caller's value.
pub(super) const SAME: i16 = i16::MIN;

/// The properties of an entry that are needed to evaluate its rules.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    pub(super) section: &'a [u8],
    pub(super) encoding: Encoding,
    /// The register number that stands for the return address in the unwind rules.
    pub(super) link: u16,
    pub(super) frame: FrameKind,
}

/// The unwind information of one file.
#[derive(Debug)]
pub(super) struct Rules {
    elf: Elf,
    bases: BaseAddresses,
    eh_frame: Option<(Section, Index)>,
    debug_frame: Option<(Section, Index)>,
}

impl Rules {
    /// Reads the unwind information of a file. Fails if the unwind information takes more than `limit` bytes.
    pub(super) fn read(image: CodeImage, arch: &Arch, limit: usize) -> Result<Rules, Missing> {
        let mut elf = Elf::read(image, arch, limit as u64)?;
        let start = |section: &Option<Section>| section.as_ref().map_or(0, |section| section.address);
        let bases = BaseAddresses::default()
            .set_eh_frame(start(&elf.eh_frame))
            .set_eh_frame_hdr(start(&elf.eh_frame_hdr))
            .set_text(elf.text)
            .set_got(elf.got);
        let hdr = elf.eh_frame_hdr.take().and_then(Index::linker);
        let eh_frame = elf.eh_frame.take().map(|section| {
            let index = hdr.unwrap_or_else(|| Index::own(&eh_frame(&section), &bases));
            (section, index)
        });
        let debug_frame = elf.debug_frame.take().map(|section| {
            let index = Index::own(&debug_frame(&section), &bases);
            (section, index)
        });
        let rules = Rules { elf, bases, eh_frame, debug_frame };
        if rules.bytes() > limit { Err(Missing::TooLarge) } else { Ok(rules) }
    }

    /// Returns the size of the unwind information in bytes.
    pub(super) fn bytes(&self) -> usize {
        let sections = [&self.eh_frame, &self.debug_frame].into_iter().flatten();
        sections.map(|(section, index)| section.bytes.len() + index.bytes()).sum::<usize>() + size_of::<Self>()
    }

    /// Converts an offset in the file to an address, as the file's headers count addresses. Must not be called for a
    /// separate debug file, because its program headers do not show where the code is in the main file. Addresses of
    /// the main file are valid in both files.
    pub(super) fn address(&self, offset: u64) -> Option<u64> {
        self.elf.address(offset)
    }

    /// Returns the rule for `address`.
    pub(super) fn rule(&self, arch: &Arch, address: u64, context: &mut Context) -> Result<Rule, Missing> {
        if self.eh_frame.is_none() && self.debug_frame.is_none() {
            return Err(self.elf.unread.unwrap_or(Missing::NoSection));
        }
        self.with_row(address, context, |row, entry| rule(arch, row, &entry)).ok_or(Missing::NoEntry)
    }

    /// Calls `then` with the row of the unwind section for `address`.
    pub(super) fn with_row<T>(
        &self,
        address: u64,
        context: &mut Context,
        then: impl FnOnce(&TableRow, Entry<'_>) -> T,
    ) -> Option<T> {
        let mut then = Some(then);
        if let Some((section, index)) = &self.eh_frame {
            let frames = eh_frame(section);
            let found = index.entry(section.address, address);
            let row = found.and_then(|at| row(&frames, &self.bases, at.into(), address, context));
            if let Some((row, entry)) = row {
                return then.take().map(|then| then(row, Entry { section: &section.bytes, ..entry }));
            }
        }
        let (section, index) = self.debug_frame.as_ref()?;
        let at = index.entry(0, address)?;
        let (row, entry) = row(&debug_frame(section), &self.bases, at.into(), address, context)?;
        then.take().map(|then| then(row, Entry { section: &section.bytes, ..entry }))
    }
}

fn eh_frame(section: &Section) -> EhFrame<Bytes<'_>> {
    let mut frames = EhFrame::new(&section.bytes, LittleEndian);
    frames.set_address_size(8);
    frames.set_vendor(gimli::Vendor::AArch64);
    frames
}

fn debug_frame(section: &Section) -> DebugFrame<Bytes<'_>> {
    let mut frames = DebugFrame::new(&section.bytes, LittleEndian);
    frames.set_address_size(8);
    frames.set_vendor(gimli::Vendor::AArch64);
    frames
}

fn row<'c, 'b, S: UnwindSection<Bytes<'b>>>(
    section: &S,
    bases: &BaseAddresses,
    at: S::Offset,
    address: u64,
    context: &'c mut Context,
) -> Option<(&'c TableRow, Entry<'static>)> {
    let entry = section.fde_from_offset(bases, at, S::cie_from_offset).ok()?;
    if !entry.contains(address) || entry.entry_len() > MAX_ENTRY || entry.cie().entry_len() > MAX_ENTRY {
        return None;
    }
    let about = Entry {
        section: &[],
        encoding: entry.cie().encoding(),
        link: entry.cie().return_address_register().0,
        frame: if entry.is_signal_trampoline() { FrameKind::Signal } else { FrameKind::Call },
    };
    Some((entry.unwind_info_for_address(section, bases, context, address).ok()?, about))
}

/// Converts a row to a rule. The rule is [`Rule::Offsets`] if offsets can express it.
fn rule(arch: &Arch, row: &TableRow, entry: &Entry<'_>) -> Rule {
    // On AArch64, the entry for the kernel's signal frame contains no rules. It only marks the frame as a signal frame.
    if entry.frame == FrameKind::Signal && matches!(arch.link, Link::Register(_)) {
        return Rule::KernelFrame;
    }
    let link = gimli::Register(entry.link);
    match row.register(link) {
        Some(RegisterRule::Undefined) => return Rule::Root,
        // Calls push the return address on the stack. So a row without a rule for the return address means that there
        // is no caller.
        None if arch.link == Link::Stack => return Rule::Root,
        _ => {}
    }
    offsets_rule(arch, row, entry).map_or(Rule::Evaluate, Rule::Offsets)
}

fn offsets_rule(arch: &Arch, row: &TableRow, entry: &Entry<'_>) -> Option<Offsets> {
    let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else { return None };
    let register = u8::try_from(register.0).ok()?;
    let mut offsets =
        Offsets { register, frame: entry.frame, offset: i32::try_from(*offset).ok()?, saved: [SAME; KEPT] };
    if entry.link != arch.link_column() {
        return None;
    }
    for (register, rule) in row.registers() {
        let kept = arch.kept.iter().position(|&kept| kept == register.0);
        match (rule, kept) {
            (RegisterRule::SameValue, _) => {}
            (RegisterRule::Offset(offset), Some(place)) if offset % 8 == 0 => {
                let words = i16::try_from(offset / 8).ok()?;
                offsets.saved[place] = if words == SAME { return None } else { words };
            }
            // These registers are not tracked: vector registers, and registers that no caller relies on.
            (RegisterRule::Offset(_), None) if register.0 != arch.sp => {}
            // This rule shows whether the return address is signed. The signature is always removed.
            (RegisterRule::Constant(_), None) => {}
            _ => return None,
        }
    }
    Some(offsets)
}
