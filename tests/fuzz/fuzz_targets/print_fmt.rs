//! Reads the input as a print format, a NUL byte and the raw data of an event that has a field of each kind.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use perf_prof_format::tracefs::{BitField, EventFormat, Kernel, KernelSymbol, PrintFmt};

const FORMAT: &str = "name: all
ID: 1
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;

	field:int i;	offset:8;	size:4;	signed:1;
	field:u64 u;	offset:16;	size:8;	signed:0;
	field:bool b;	offset:24;	size:1;	signed:0;
	field:char c[16];	offset:32;	size:16;	signed:0;
	field:u8 a[32];	offset:48;	size:32;	signed:0;
	field:const char * p;	offset:80;	size:8;	signed:0;
	field:__data_loc char[] s;	offset:88;	size:4;	signed:0;
	field:__data_loc u64[] d;	offset:92;	size:4;	signed:0;
	field:__rel_loc u16[] r;	offset:96;	size:4;	signed:0;
	field:char f[];	offset:100;	size:0;	signed:0;

print fmt: \"\"
";

static EVENT: LazyLock<EventFormat> = LazyLock::new(|| EventFormat::parse("fuzz", FORMAT).expect("FORMAT is valid"));

/// A kernel that answers all questions.
struct Known;

impl Kernel for Known {
    fn symbol(&self, addr: u64) -> Option<KernelSymbol<'_>> {
        let (name, module) = ("symbol".into(), Some("module".into()));
        Some(KernelSymbol { name, offset: addr & 15, size: addr >> 4, module })
    }

    fn string(&self, _addr: u64) -> Option<&[u8]> {
        Some(b"string")
    }

    fn constant(&self, name: &str) -> Option<i64> {
        (name.len() > 1).then_some(name.len() as i64)
    }

    fn variable(&self, _name: &str) -> Option<u64> {
        Some(u64::MAX)
    }

    fn size_of(&self, _type_name: &str) -> Option<u64> {
        Some(64)
    }

    fn member(&self, _tag: &str, member: &str) -> Option<BitField> {
        Some(BitField { offset: member.len() as u32 * 7, size: member.len() as u32 })
    }

    fn hz(&self) -> Option<u32> {
        Some(250)
    }
}

fuzz_target!(|input: &[u8]| {
    let at = input.iter().position(|&b| b == 0).unwrap_or(input.len());
    let (text, raw) = (String::from_utf8_lossy(&input[..at]), input.get(at + 1..).unwrap_or_default());
    let Ok(print_fmt) = PrintFmt::compile(&text, EVENT.fields()) else { return };
    let mut out = Vec::new();
    print_fmt.show(raw, &Known, &mut out);
    assert!(out.len() <= 64 * 1024);
});
