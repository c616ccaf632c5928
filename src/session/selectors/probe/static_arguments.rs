//! The arguments of a static probe, in the form that the kernel parses. A probe may have several places. Places become
//! one event of the kernel if their arguments have the same types. The registers or addresses of the arguments may
//! still differ from place to place.

use std::collections::BTreeMap;

use perf_prof_format::spec::{FetchBase, ProbeArgument};
use perf_prof_symbols::symbol::elf::{Operand, StaticArgument};

use super::ArgumentError;

/// A place of a static probe, and the arguments that the kernel can read there.
#[derive(Clone, Debug)]
pub struct Place {
    /// The address of the instruction at this place, as `objdump` shows it.
    pub address: u64,
    /// The file offset of the instruction, in bytes.
    pub offset: u64,
    /// The file offset of the probe's semaphore, in bytes; `None` if the probe has no semaphore.
    pub semaphore: Option<u64>,
    arguments: Vec<PlacedArgument>,
}

/// An argument at one place.
#[derive(Clone, Debug)]
struct PlacedArgument {
    /// The text of the argument in the ELF note.
    text: String,
    field: StaticType,
    value: PlacedValue,
}

/// The type of an argument: a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StaticType {
    size: u8,
    signed: bool,
}

/// How to get the value of an argument at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PlacedValue {
    /// The value is always this number.
    Constant(i128),
    /// The kernel reads the value with this fetch.
    Read(String),
    /// The kernel cannot read the value, for this reason.
    Unreadable(&'static str),
}

/// A field of a static probe's event: one of its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticField {
    /// `arg1`, `arg2`, ...
    pub name: String,
    /// The kernel's type, such as `s32`, or the reason why the kernel cannot read the argument.
    pub type_name: Result<String, &'static str>,
}

/// The places that form one event of the kernel, because their arguments have the same types.
#[derive(Clone, Debug)]
pub(super) struct Layout<'a> {
    pub places: Vec<&'a Place>,
    slots: Vec<Slot>,
}

/// An argument, combined from all places of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    field: StaticType,
    value: SlotValue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotValue {
    /// The argument is a constant at all places: the smallest and the largest constant.
    Constants(i128, i128),
    Read,
    Unreadable(&'static str),
}

impl StaticType {
    fn name(self) -> String {
        format!("{}{}", if self.signed { 's' } else { 'u' }, u32::from(self.size) * 8)
    }

    /// Returns whether all numbers from `least` to `most` fit into this type.
    fn holds(self, least: i128, most: i128) -> bool {
        let bits = u32::from(self.size) * 8 - u32::from(self.signed);
        most < 1 << bits && least >= if self.signed { -1 << bits } else { 0 }
    }

    /// Returns the value that the low bytes of `constant` have in this type.
    fn number(self, constant: i64) -> i128 {
        let unused = 64 - u32::from(self.size) * 8;
        match self.signed {
            true => (constant << unused >> unused).into(),
            false => ((constant as u64) << unused >> unused).into(),
        }
    }
}

impl Place {
    /// Prepares a place. `variables` are the addresses of the file's variables.
    pub fn new(
        address: u64,
        offset: u64,
        semaphore: Option<u64>,
        arguments: &[StaticArgument],
        variables: &BTreeMap<String, u64>,
    ) -> Place {
        let placed = |argument: &StaticArgument| {
            let field = StaticType { size: argument.size, signed: argument.signed };
            let value = match &argument.operand {
                Some(Operand::Constant(number)) => PlacedValue::Constant(field.number(*number)),
                Some(Operand::Register(name)) => PlacedValue::Read(format!("%{name}")),
                Some(Operand::Memory(memory)) => match (&memory.base, &memory.index, &memory.symbol) {
                    (Some(base), None, None) => PlacedValue::Read(format!("{:+}(%{base})", memory.offset)),
                    // The kernel adds the offset of a variable to the start of the file in memory, where the probe was
                    // hit (`translate_user_vaddr()` in kernel/trace/trace_uprobe.c).
                    (None, None, Some(name)) => match variables.get(name) {
                        Some(of) => {
                            let at = of.wrapping_add_signed(memory.offset).wrapping_sub(address).wrapping_add(offset);
                            PlacedValue::Read(format!("@+{}", at as i64))
                        }
                        None => PlacedValue::Unreadable("the file does not say where its variable is"),
                    },
                    _ => PlacedValue::Unreadable("the kernel's probes cannot add two registers for an address"),
                },
                None if argument.text.split('@').next().is_some_and(|size| size.ends_with('f')) => {
                    PlacedValue::Unreadable("the kernel's probes cannot read floating-point numbers")
                }
                None => PlacedValue::Unreadable("the kernel's probes have no name for its place"),
            };
            PlacedArgument { text: argument.text.clone(), field, value }
        };
        Place { address, offset, semaphore, arguments: arguments.iter().map(placed).collect() }
    }

    /// Returns the arguments as they are written in the file's note.
    pub fn text(&self) -> String {
        self.arguments.iter().map(|argument| argument.text.as_str()).collect::<Vec<_>>().join(" ")
    }
}

impl PlacedArgument {
    fn slot(&self) -> Slot {
        let value = match self.value {
            PlacedValue::Constant(number) => SlotValue::Constants(number, number),
            PlacedValue::Read(_) => SlotValue::Read,
            PlacedValue::Unreadable(why) => SlotValue::Unreadable(why),
        };
        Slot { field: self.field, value }
    }
}

impl Slot {
    /// Combines an argument at two places. Returns `None` if no type fits both values, because the kernel cannot extend
    /// the sign of a value that it reads.
    fn merge(self, other: Slot) -> Option<Slot> {
        let with = |field: StaticType, value| Some(Slot { field, value });
        match (self.value, other.value) {
            (SlotValue::Unreadable(_), _) => Some(self),
            (_, SlotValue::Unreadable(_)) => Some(other),
            (SlotValue::Read, SlotValue::Read) => (self.field == other.field).then_some(self),
            (SlotValue::Read, SlotValue::Constants(least, most)) => self.field.holds(least, most).then_some(self),
            (SlotValue::Constants(least, most), SlotValue::Read) => other.field.holds(least, most).then_some(other),
            (SlotValue::Constants(a, b), SlotValue::Constants(c, d)) => {
                let (least, most) = (a.min(c), b.max(d));
                let size = self.field.size.max(other.field.size);
                let signed = self.field.signed || other.field.signed;
                let wide = |signed| StaticType { size: 8, signed };
                let fields = [StaticType { size, signed }, wide(true), wide(false)];
                let field = fields.into_iter().find(|field| field.holds(least, most))?;
                with(field, SlotValue::Constants(least, most))
            }
        }
    }
}

/// Divides the places of a probe into events of the kernel. Usually one event is enough: types mostly differ because an
/// argument is a constant at one place, and a constant takes the type of the other places.
pub(super) fn layouts(places: &[Place]) -> Vec<Layout<'_>> {
    let mut layouts: Vec<Layout<'_>> = Vec::new();
    for place in places {
        let own: Vec<Slot> = place.arguments.iter().map(PlacedArgument::slot).collect();
        let merged = |layout: &Layout<'_>| -> Option<Vec<Slot>> {
            let slots = layout.slots.iter().zip(&own).map(|(slot, own)| slot.merge(*own));
            if layout.slots.len() == own.len() { slots.collect() } else { None }
        };
        match layouts.iter_mut().find_map(|layout| merged(layout).map(|slots| (layout, slots))) {
            Some((layout, slots)) => {
                layout.slots = slots;
                layout.places.push(place);
            }
            None => layouts.push(Layout { places: vec![place], slots: own }),
        }
    }
    layouts
}

impl Layout<'_> {
    /// Returns the arguments, in their order.
    pub fn fields(&self) -> Vec<StaticField> {
        let field = |(at, slot): (usize, &Slot)| StaticField {
            name: format!("arg{}", at + 1),
            type_name: match slot.value {
                SlotValue::Unreadable(why) => Err(why),
                _ => Ok(slot.field.name()),
            },
        };
        self.slots.iter().enumerate().map(field).collect()
    }

    /// Returns the arguments of the probe at one of its places, and the arguments that the user requested, in the
    /// syntax of the kernel.
    pub fn resolve(&self, place: &Place, asked: &[ProbeArgument]) -> Result<Vec<String>, ArgumentError> {
        let mut resolved: Vec<(String, String)> = Vec::new();
        for (field, argument) in self.fields().into_iter().zip(&place.arguments) {
            if let (Ok(type_name), Ok(fetch)) = (field.type_name, argument.fetch()) {
                resolved.push((field.name, format!("{fetch}:{type_name}")));
            }
        }
        let own = resolved.len();
        for (at, argument) in asked.iter().enumerate() {
            let (name, fetch) = self.asked(place, argument)?;
            let name = name.unwrap_or_else(|| format!("value{}", at + 1));
            match resolved.iter().position(|(known, _)| *known == name) {
                Some(at) if at < own => resolved[at].1 = fetch,
                Some(_) => return Err(ArgumentError::SameName(name)),
                None => resolved.push((name, fetch)),
            }
        }
        Ok(resolved.into_iter().map(|(name, fetch)| format!("{name}={fetch}")).collect())
    }

    /// Returns the name and the fetch of an argument that the user requested.
    fn asked(&self, place: &Place, argument: &ProbeArgument) -> Result<(Option<String>, String), ArgumentError> {
        let given = argument.type_name.as_deref();
        let with_type = |fetch: &str, type_name: Option<&str>| match type_name {
            Some(type_name) => format!("{fetch}:{type_name}"),
            None => fetch.to_owned(),
        };
        let number = match argument.base() {
            FetchBase::Argument(number) => number,
            FetchBase::ReturnValue => return Err(ArgumentError::NotAtReturn(argument.fetch.clone())),
            FetchBase::Parameter(name) => return Err(ArgumentError::NoStatic { name, count: self.slots.len() }),
            FetchBase::Kernel(text) => {
                return Ok((argument.name.clone(), with_type(&argument.fetch_with_base(&text), given)));
            }
        };
        let name = argument.name.clone().or_else(|| Some(format!("arg{number}")));
        let of_place = number.checked_sub(1).and_then(|at| Some((place.arguments.get(at)?, self.slots.get(at)?)));
        let Some((of_place, slot)) = of_place else {
            return Err(ArgumentError::NoStatic { name: format!("arg{number}"), count: self.slots.len() });
        };
        if let SlotValue::Unreadable(why) = slot.value {
            return Err(ArgumentError::Unreadable { number, why });
        }
        let fetch = of_place.fetch().map_err(|why| ArgumentError::Unreadable { number, why })?;
        let is_text = given.is_some_and(|given| given.starts_with("string") || given.starts_with("ustring"));
        let is_pointer = is_text || argument.fetch.contains('(');
        if is_pointer && of_place.field.size != 8 && !matches!(of_place.value, PlacedValue::Constant(_)) {
            return Err(ArgumentError::NoAddress { number, size: of_place.field.size });
        }
        // An argument whose type is text contains the address of the text. So the kernel has to read once more.
        let fetch = match (argument.fetch.contains('('), is_text) {
            (false, true) => format!("+0({fetch})"),
            (false, false) => fetch,
            (true, _) => argument.fetch_with_base(&fetch),
        };
        let own = slot.field.name();
        Ok((name, with_type(&fetch, given.or_else(|| (!is_pointer).then_some(own.as_str())))))
    }
}

impl PlacedArgument {
    /// Returns the fetch with which the kernel reads the value, or the reason why it cannot.
    fn fetch(&self) -> Result<String, &'static str> {
        match &self.value {
            PlacedValue::Constant(number) => Ok(format!("\\{number}")),
            PlacedValue::Read(fetch) => Ok(fetch.clone()),
            PlacedValue::Unreadable(why) => Err(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use perf_prof_format::spec::parse_events;
    use perf_prof_symbols::symbol::elf::Memory;
    use proptest::prelude::*;

    use super::*;

    fn argument(size: u8, signed: bool, operand: Operand) -> StaticArgument {
        StaticArgument { text: format!("{operand:?}"), size, signed, operand: Some(operand) }
    }

    fn register(size: u8, signed: bool) -> StaticArgument {
        argument(size, signed, Operand::Register("di".to_owned()))
    }

    fn constant(size: u8, signed: bool, number: i64) -> StaticArgument {
        argument(size, signed, Operand::Constant(number))
    }

    fn memory(memory: Memory) -> StaticArgument {
        argument(8, false, Operand::Memory(memory))
    }

    /// Makes a place whose probe is at address 0x1000 and at offset 0x400 of the file. The variable `known` is 0x3000
    /// bytes after the probe.
    fn place(arguments: &[StaticArgument]) -> Place {
        Place::new(0x1000, 0x400, None, arguments, &BTreeMap::from([("known".to_owned(), 0x4000)]))
    }

    /// Returns, for each event of the kernel, the arguments at its places.
    fn resolved(places: &[Vec<StaticArgument>], attributes: &str) -> Vec<Vec<String>> {
        let spec = parse_events(&format!("usdt:a:b//{attributes}")).unwrap().remove(0);
        let places: Vec<Place> = places.iter().map(|arguments| place(arguments)).collect();
        let of = |layout: &Layout<'_>, place: &Place| match layout.resolve(place, &spec.attrs.arguments) {
            Ok(arguments) => arguments.join(" "),
            Err(error) => format!("error: {error}"),
        };
        let all = layouts(&places);
        all.iter().map(|layout| layout.places.iter().map(|place| of(layout, place)).collect()).collect()
    }

    #[test]
    fn each_kind_of_operand_becomes_a_fetch() {
        let base = || Some("sp".to_owned());
        let symbol = |name: &str| Some(name.to_owned());
        let arguments = vec![
            register(4, true),
            constant(1, true, 255),
            memory(Memory { base: base(), offset: -8, ..Memory::default() }),
            memory(Memory { symbol: symbol("known"), offset: 4, ..Memory::default() }),
            memory(Memory { symbol: symbol("unknown"), ..Memory::default() }),
            memory(Memory { base: base(), index: Some(("ax".to_owned(), 8)), ..Memory::default() }),
        ];
        let all = resolved(&[arguments], "");
        assert_eq!(all, [["arg1=%di:s32 arg2=\\-1:s8 arg3=-8(%sp):u64 arg4=@+13316:u64"]]);
    }

    /// The most frequent case: a program passes a literal at one place and a variable at another place.
    #[test]
    fn a_constant_takes_the_type_of_the_other_places() {
        let places = [vec![constant(4, true, 0)], vec![register(1, false)], vec![constant(8, false, 255)]];
        assert_eq!(resolved(&places, ""), [["arg1=\\0:u8", "arg1=%di:u8", "arg1=\\255:u8"]]);
        let places = [vec![constant(4, true, -1)], vec![constant(8, false, 1 << 40)]];
        assert_eq!(resolved(&places, ""), [["arg1=\\-1:s64", "arg1=\\1099511627776:s64"]]);
        let places = [vec![register(4, false)], vec![constant(4, true, -1)], vec![register(4, true)]];
        assert_eq!(resolved(&places, ""), [vec!["arg1=%di:u32"], vec!["arg1=\\-1:s32", "arg1=%di:s32"]]);
        let places = [vec![constant(8, false, -1)], vec![constant(4, true, -1)]];
        assert_eq!(resolved(&places, ""), [["arg1=\\18446744073709551615:u64"], ["arg1=\\-1:s32"]]);
    }

    #[test]
    fn what_the_user_asks_for_is_read_where_the_argument_is() {
        let on_stack = || memory(Memory { base: Some("sp".to_owned()), offset: 16, ..Memory::default() });
        let places = [vec![register(8, false), register(4, true)], vec![on_stack(), register(4, true)]];
        assert_eq!(
            resolved(&places, "q=arg1:string/n=arg2/tag=+4(arg1):u16/who=%ax:u8/"),
            [[
                "arg1=%di:u64 arg2=%di:s32 q=+0(%di):string n=%di:s32 tag=+4(%di):u16 who=%ax:u8",
                "arg1=+16(%sp):u64 arg2=%di:s32 q=+0(+16(%sp)):string n=%di:s32 tag=+4(+16(%sp)):u16 who=%ax:u8",
            ]]
        );
        assert_eq!(resolved(&places[..1], "arg1:string/"), [["arg1=+0(%di):string arg2=%di:s32"]]);
        for (attributes, expected) in [
            ("n=arg3/", "the static probe has no argument `arg3`; it has arg1 to arg2"),
            ("text/", "the static probe has no argument `text`; it has arg1 to arg2"),
            ("q=arg2:string/", "arg2 is a number of 4 bytes and not an address"),
            ("q=+8(arg2):u32/", "arg2 is a number of 4 bytes and not an address"),
            ("r=$retval/", "`$retval`: the result of a function is known only when it returns"),
            ("q=arg1/q=arg2/", "two arguments have the name `q`"),
        ] {
            let shown = &resolved(&places[..1], attributes)[0][0];
            assert!(shown.starts_with(&format!("error: {expected}")), "{attributes}: {shown}");
        }
        let hidden = [vec![memory(Memory { symbol: Some("unknown".to_owned()), ..Memory::default() })]];
        assert_eq!(
            resolved(&hidden, "n=arg1/"),
            [["error: arg1 cannot be read: the file does not say where its variable is"]]
        );
    }

    /// Returns a strategy for arguments of all kinds.
    fn arguments() -> impl Strategy<Value = StaticArgument> {
        let sizes = prop::sample::select(vec![1u8, 2, 4, 8]);
        (sizes, any::<bool>(), prop::option::of(prop_oneof![any::<i64>(), -300i64..300])).prop_map(
            |(size, signed, number)| match number {
                Some(number) => constant(size, signed, number),
                None => register(size, signed),
            },
        )
    }

    proptest! {
        /// The kernel accepts another place of an event only if its arguments have the same names and types. A value that
        /// does not fit into its type would be wrong.
        #[test]
        fn places_of_an_event_have_the_same_types_and_no_value_is_cut_off(
            places in prop::collection::vec(prop::collection::vec(arguments(), 0..4), 1..8),
        ) {
            let placed: Vec<Place> = places.iter().map(|arguments| place(arguments)).collect();
            let layouts = layouts(&placed);
            prop_assert_eq!(layouts.iter().map(|layout| layout.places.len()).sum::<usize>(), places.len());
            for layout in &layouts {
                for place in &layout.places {
                    let texts = layout.resolve(place, &[]).unwrap();
                    prop_assert_eq!(texts.len(), layout.slots.len());
                    for ((text, slot), own) in texts.iter().zip(&layout.slots).zip(&place.arguments) {
                        let (_, type_name) = text.rsplit_once(':').unwrap();
                        prop_assert_eq!(type_name, slot.field.name());
                        match own.value {
                            PlacedValue::Constant(number) => prop_assert!(slot.field.holds(number, number)),
                            _ => prop_assert_eq!(own.field, slot.field),
                        }
                    }
                }
            }
        }
    }
}
