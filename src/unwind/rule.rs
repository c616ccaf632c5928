//! From an address to the rule that leads to its caller's frame. Knows no process and no stack.

use gimli::{
    BaseAddresses, CfaRule, DebugFrame, EhFrame, Encoding, EndianSlice, LittleEndian, RegisterRule, UnwindContext,
    UnwindSection, UnwindTableRow,
};

use super::{
    Arch, Image, Missing,
    arch::{KEPT, Link},
    elf::{Elf, Section},
    index::Index,
};

/// What gimli works in: memory that is used again for each entry.
pub(super) type Context = UnwindContext<usize>;
/// The rules at one address, as they stand in the section.
pub(super) type TableRow = UnwindTableRow<usize>;
type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// An entry that is longer than this describes no function.
const MAX_ENTRY: usize = 1 << 20;

/// How to get to the caller's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// There is none: this function was called by nobody.
    Root,
    /// By offsets alone, as nearly everywhere.
    Offsets(Offsets),
    /// By what has to be evaluated in the section each time.
    Evaluate,
    /// By what the kernel saved when it delivered a signal, in its own layout.
    KernelFrame,
}

/// The frame's address is a register and an offset, and the caller's registers are at offsets from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offsets {
    pub(super) register: u8,
    pub(super) frame: FrameKind,
    pub(super) offset: i32,
    /// For each of the kept registers where it is, in words from the frame's address; `SAME` where it was not moved.
    pub(super) saved: [i16; KEPT],
}

/// How a frame came upon the one below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// It was called.
    Call,
    /// The kernel made it to deliver a signal: what is below was interrupted, it did not call.
    Signal,
}

/// A kept register that is where it was.
pub(super) const SAME: i16 = i16::MIN;

/// What an entry says of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    pub(super) section: &'a [u8],
    pub(super) encoding: Encoding,
    /// The column of the table that stands for the return address.
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
    /// Reads a file, whose unwind information may take `limit` bytes.
    pub(super) fn read(image: &Image, arch: &Arch, limit: usize) -> Result<Rules, Missing> {
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

    /// How many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        let sections = [&self.eh_frame, &self.debug_frame].into_iter().flatten();
        sections.map(|(section, index)| section.bytes.len() + index.bytes()).sum::<usize>() + size_of::<Self>()
    }

    /// The address in the file's own numbering of a place in the file. A separate debug file numbers as the file it belongs
    /// to, but its program headers do not tell where that file has its code.
    pub(super) fn address(&self, offset: u64) -> Option<u64> {
        self.elf.address(offset)
    }

    /// The rule at an address.
    pub(super) fn rule(&self, arch: &Arch, address: u64, context: &mut Context) -> Result<Rule, Missing> {
        if self.eh_frame.is_none() && self.debug_frame.is_none() {
            return Err(self.elf.unread.unwrap_or(Missing::NoSection));
        }
        self.with_row(address, context, |row, entry| rule(arch, row, &entry)).ok_or(Missing::NoEntry)
    }

    /// Gives the rules at an address as they stand in the section.
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

/// The rule that a row is, in its short form where it has one.
fn rule(arch: &Arch, row: &TableRow, entry: &Entry<'_>) -> Rule {
    // The kernel's own frame on AArch64 has no rules: its description says only that it is one.
    if entry.frame == FrameKind::Signal && matches!(arch.link, Link::Register(_)) {
        return Rule::KernelFrame;
    }
    let link = gimli::Register(entry.link);
    match row.register(link) {
        Some(RegisterRule::Undefined) => return Rule::Root,
        // Where a call pushes the return address it cannot have stayed anywhere.
        None if arch.link == Link::Stack => return Rule::Root,
        _ => {}
    }
    short(arch, row, entry).map_or(Rule::Evaluate, Rule::Offsets)
}

fn short(arch: &Arch, row: &TableRow, entry: &Entry<'_>) -> Option<Offsets> {
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
            // What is not followed: vector registers, and registers that no caller relies on.
            (RegisterRule::Offset(_), None) if register.0 != arch.sp => {}
            // Whether the return address is signed: the signature is taken off in any case.
            (RegisterRule::Constant(_), None) => {}
            _ => return None,
        }
    }
    Some(offsets)
}
