//! Checks the text of print formats: conversions follow the kernel's printf, and expressions follow C.

use perf_prof_format::tracefs::{BitField, EventFormat, Kernel, KernelSymbol, PrintFmt};

const FORMAT: &str = "name: all
ID: 1
format:
	field:int i;	offset:0;	size:4;	signed:1;
	field:u32 u;	offset:4;	size:4;	signed:0;
	field:u64 l;	offset:8;	size:8;	signed:0;
	field:u8 a[4];	offset:16;	size:4;	signed:0;
	field:char s[8];	offset:20;	size:8;	signed:0;

print fmt: \"\"
";

struct Known;

impl Kernel for Known {
    fn symbol(&self, addr: u64) -> Option<KernelSymbol<'_>> {
        let module = (addr & 1 == 1).then_some("mod");
        (addr < 0x100).then_some(KernelSymbol {
            name: "sym".into(),
            offset: addr,
            size: 0x100,
            module: module.map(Into::into),
        })
    }

    fn string(&self, _addr: u64) -> Option<&[u8]> {
        None
    }

    fn constant(&self, name: &str) -> Option<i64> {
        (name == "FLAG_B").then_some(2)
    }

    fn variable(&self, name: &str) -> Option<u64> {
        (name == "vmemmap_base").then_some(0xffff_ea00_0000_0000)
    }

    fn size_of(&self, type_name: &str) -> Option<u64> {
        (type_name == "struct page").then_some(64)
    }

    fn member(&self, tag: &str, member: &str) -> Option<BitField> {
        (tag == "role" && member == "level").then_some(BitField { offset: 4, size: 4 })
    }

    fn hz(&self) -> Option<u32> {
        Some(250)
    }
}

/// Returns the text of `print_fmt` for an event with `i = -2`, `u = 0xfffffffe`, `l = 0x1234567890`, `a = 1, 2, 0xc0,
/// 0xff` and `s = "text"`.
fn shown(print_fmt: &str) -> String {
    let event = EventFormat::parse("made", FORMAT).unwrap();
    let mut raw = [(-2i32).to_ne_bytes(), 0xffff_fffeu32.to_ne_bytes()].concat();
    raw.extend(0x12_3456_7890u64.to_ne_bytes());
    raw.extend([1, 2, 0xc0, 0xff]);
    raw.extend(b"text\0\0\0\0");
    let mut out = Vec::new();
    let print_fmt = PrintFmt::compile(print_fmt, event.fields()).unwrap_or_else(|error| panic!("{print_fmt}: {error}"));
    print_fmt.show(&raw, &Known, &mut out);
    String::from_utf8(out).unwrap()
}

fn check(cases: &[(&str, &str)]) {
    for (print_fmt, text) in cases {
        assert_eq!(shown(print_fmt), *text, "{print_fmt}");
    }
}

#[test]
fn numbers_have_the_kernels_layout() {
    check(&[
        (r#""%d|%u|%x|%o|%X", REC->i, REC->u, REC->u, 8, 0xab"#, "-2|4294967294|fffffffe|10|AB"),
        (r#""%5d|%-5d|%05d|%+d|% d", REC->i, REC->i, REC->i, 7, 7"#, "   -2|-2   |-0002|+7| 7"),
        (r##""%#x|%#x|%#08x|%#o|%#o", 0, 31, 31, 0, 8"##, "0x0|0x1f|0x00001f|0|010"),
        (r#""%.3d|%5.3d|%.0d|%08.3d", 7, 7, 0, 7"#, "007|  007|0|00000007"),
        (r#""%hhu|%hd|%hhd", 0x1ff, 0x18000, 0xff"#, "255|-32768|-1"),
        (r#""%lx|%llx|%Lx|%zx", REC->l, REC->l, REC->l, REC->l"#, "1234567890|1234567890|1234567890|1234567890"),
        (r#""%x", REC->l"#, "34567890"),
        (r#""%*d|%-*d|%*d", 4, 7, 4, 7, -4, 7"#, "   7|7   |7   "),
        (r#""%c%c|%3c|%-3c|", 'a', 98, 'c', '\n'"#, "ab|  c|\n  |"),
    ]);
}

#[test]
fn text_has_width_and_precision() {
    check(&[
        (r#""%s|%8s|%-8s|%.2s|%.*s", REC->s, REC->s, REC->s, REC->s, 3, REC->s"#, "text|    text|text    |te|tex"),
        (r#""%s|%6.1s", (char *)REC->s, "literal""#, "text|     l"),
        (r#""%s", NULL"#, "(null)"),
    ]);
}

#[test]
fn pointers_have_extensions() {
    check(&[
        (r#""%p|%p|%px", 0, REC->l, (void *)REC->l"#, "0000000000000000|0000001234567890|0000001234567890"),
        (r#""%20p|%-14p|", REC->l, REC->l"#, "          1234567890|1234567890    |"),
        (
            r#""%pS|%ps|%pS|%pS|%pB", 0x10, 0x10, 0x11, 0x1000, 0x20"#,
            "sym+0x10/0x100|sym|sym+0x11/0x100 [mod]|0x1000|sym+0x20/0x100 [mod]",
        ),
        (r#""%8ps|%-8ps|", 0x10, 0x10"#, "     sym|sym     |"),
        (
            r#""%pI4|%pi4|%pI4l|%16pI4|", REC->a, REC->a, REC->a, REC->a"#,
            "1.2.192.255|001.002.192.255|255.192.2.1|     1.2.192.255|",
        ),
        (
            r#""%pM|%pm|%pMF|%pMR", REC->s, REC->s, REC->s, REC->s"#,
            "74:65:78:74:00:00|746578740000|74-65-78-74-00-00|00:00:74:78:65:74",
        ),
        (
            r#""%*ph|%*phC|%*phD|%*phN|%ph", 2, REC->a, 2, REC->a, 2, REC->a, 2, REC->a, REC->a"#,
            "01 02|01:02|01-02|0102|01",
        ),
        (r#""%*pb|%*pbl", 16, REC->a, 16, REC->a"#, "0201|0,9"),
    ]);
}

#[test]
fn arithmetic_has_c_types() {
    check(&[
        (r#""%d %d %d", (u8)300, (s8)200, (u16)-1"#, "44 -56 65535"),
        (r#""%d %d", -1 > 0u, -1 > 0"#, "1 0"),
        (r#""%d %u %d", 1 << 31 >> 31, 0x80000000 >> 31, -7 / 2"#, "-1 1 -3"),
        (r#""%d %llu %d", -7 % 3, -7 % 3UL, !!5"#, "-1 0 1"),
        (r#""%d %d %d", 1 | 2 & 3 == 3, 1 + 2 * 3 - 4 / 2, 10 - 4 - 3"#, "1 5 3"),
        (
            r#""%lx %lx %lx", REC->i, (unsigned long)REC->i, (unsigned long)REC->u"#,
            "fffffffffffffffe fffffffffffffffe fffffffe",
        ),
        (r#""%lx %lx", REC->i + REC->u, REC->i + 1UL"#, "fffffffc ffffffffffffffff"),
        (r#""%d %d", REC->i < REC->u, REC->i < 5 ? 1 : 2"#, "0 1"),
        (r#""%d %d %d", sizeof(u64), sizeof(int), sizeof(REC->s)"#, "8 4 8"),
        (r#""%x %x %d", ~0, ~(u8)0, - -3"#, "ffffffff ffffffff 3"),
        (r#""%d", (bool)(REC->l & 0x7890)"#, "1"),
        (r#""%u %u %d", REC->a[2], REC->a[REC->a[0] + 2], REC->s[0]"#, "192 255 116"),
        (r#""%x %c", *(u16 *)REC->a, __get_str(s)[1]"#, "201 e"),
        (r#""%s %d", 1 / 0 ? "a" : "b", 5 % 0"#, "? ?"),
        (r#""%d %d", (unknown_t)5, ( gfp_t)((((1UL))) << (11))"#, "5 2048"),
        (r#""%d %d", (REC->i), (REC)->i"#, "-2 -2"),
    ]);
}

#[test]
fn helpers_make_the_kernels_text() {
    check(&[
        (r#""%s", __print_flags(REC->a[2], "|", { 0x80, "A" }, { 0x10, "B" }, { 0x40, "C" })"#, "A|C"),
        (
            r#""%s|%s", __print_flags(0xc5, "|", { 0x80, "A" }, { 4, "B" }), __print_flags(0, "|", { 1, "A" })"#,
            "A|B|0x41|",
        ),
        (r#""%s", __print_flags(3, "", { 1, "A" }, { FLAG_B, "B" })"#, "AB"),
        (r#""%s", __print_flags(3, "|", { 1, "A" }, { FLAG_UNKNOWN, "B" })"#, "?"),
        (r#""%s %s", __print_symbolic(REC->i, { -2, "two" }), __print_symbolic(9, { 1, "one" })"#, "two 0x9"),
        (
            r#""%s %s", __print_symbolic(1, { 1, "" }), __print_symbolic(-1, { 0, ((void *)0) }, { -1, "x" })"#,
            "0x1 0xffffffffffffffff",
        ),
        (
            r#""%s %s", __print_array(REC->a, 2, 2), __print_array(REC->a, 2, 3)"#,
            "{0x201,0xffc0} {BAD SIZE:3 0x1,BAD SIZE:3 0x2}",
        ),
        (r#""%s %s", __print_hex(REC->a, 3), __print_hex_str(REC->a, 3)"#, "01 02 c0 0102c0"),
        (r#""%lu.%09u", __print_ns_to_secs(12345678901), __print_ns_without_secs(12345678901)"#, "12.345678901"),
        (r#""%u", jiffies_to_msecs(10)"#, "40"),
        (
            r#""%s", __print_hex_dump("p ", 2, 16, 1, REC->s, 5, 1)"#,
            "\np 00000000: 74 65 78 74 00                                   text.\n",
        ),
        (r#""%s", __print_hex_dump("", 0, 16, 4, REC->a, 4, 0)"#, "\nffc00201\n"),
    ]);
}

#[test]
fn statement_expressions_have_locals() {
    check(&[
        (r#""%d", ({ int x = (REC->i); int y = (5); ((x) < (y) ? (x) : (y)); })"#, "-2"),
        (r#""%d", ({ u8 x = 300; int x2 = x + 1; x2 * 2; })"#, "90"),
        (
            r#""%s.", ({ const char *saved = trace_seq_buffer_ptr(p); static const char *names[] = { "zero", "one" }; union role r; r.word = 0x35; trace_seq_printf(p, "level %u %s" "%c", r.level, names[1], 0); saved; })"#,
            "level 3 one.",
        ),
    ]);
}

#[test]
fn pages_are_counted_from_the_kernels_variable() {
    check(&[(r#""%p", (((struct page *)vmemmap_base) + (REC->a[1]))"#, "ffffea0000000080")]);
}
