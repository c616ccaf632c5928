//! Makes events from bytes, and checks that their values and texts are the kernel's.

use expect_test::{Expect, expect};
use perf_prof_format::{
    tracefs::{EventFormat, FieldKind, Kernel, KernelSymbol},
    value::Value::{self, Bool, Bytes, Int, Str, Uint},
};

/// A kernel with one function and one string.
struct Small;

impl Kernel for Small {
    fn symbol(&self, addr: u64) -> Option<KernelSymbol<'_>> {
        let offset = addr.checked_sub(0xffff_ffff_8100_1000).filter(|&offset| offset < 0x60)?;
        Some(KernelSymbol { name: "do_work".into(), offset, size: 0x60, module: None })
    }

    fn string(&self, addr: u64) -> Option<&[u8]> {
        (addr == 0xffff_ffff_8281_a291).then_some(b"End context switch")
    }

    fn constant(&self, name: &str) -> Option<i64> {
        (name == "HRTIMER_MODE_ABS").then_some(0)
    }
}

/// The value to put into a field.
enum FieldValue<'a> {
    Number(i128),
    Array(&'a [u8]),
}
use FieldValue::{Array, Number};

struct Event {
    format: EventFormat,
    raw: Vec<u8>,
}

impl Event {
    fn new(format: EventFormat, values: &[(&str, FieldValue)]) -> Event {
        let fields = format.common_fields().iter().chain(format.fields());
        let mut raw = vec![0; fields.map(|field| field.offset + field.size).max().unwrap().next_multiple_of(4)];
        for (name, put) in values {
            let field = format.field(name).unwrap();
            let at = field.offset;
            match (put, field.kind) {
                (Number(number), _) => raw[at..at + field.size].copy_from_slice(&number.to_ne_bytes()[..field.size]),
                (Array(bytes), FieldKind::Array(_)) => raw[at..at + bytes.len()].copy_from_slice(bytes),
                (Array(bytes), kind) => {
                    let base = if matches!(kind, FieldKind::RelLoc(_)) { at + 4 } else { 0 };
                    let word = (bytes.len() << 16 | (raw.len() - base)) as u32;
                    raw[at..at + 4].copy_from_slice(&word.to_ne_bytes());
                    raw.extend(*bytes);
                }
            }
        }
        Event { format, raw }
    }

    /// Makes an event from a format of Linux 6.18.
    fn recorded(name: &str, values: &[(&str, FieldValue)]) -> Event {
        let (system, name) = name.split_once(':').unwrap();
        let wanted = format!("name: {name}\n");
        let found = super::recorded().into_iter().find(|(of, text)| of == system && text.starts_with(&wanted));
        Event::new(EventFormat::parse(system, &found.unwrap().1).unwrap(), values)
    }

    /// Makes an event with these fields and this print format.
    fn made(fields: &str, print_fmt: &str, values: &[(&str, FieldValue)]) -> Event {
        let text = format!("name: made\nID: 1\nformat:\n{fields}\nprint fmt: {print_fmt}\n");
        Event::new(EventFormat::parse("made", &text).unwrap(), values)
    }

    fn value(&self, field: &str) -> Value<'_> {
        self.format.field(field).unwrap().value(&self.raw).unwrap()
    }

    fn array(&self, field: &str) -> Option<Vec<Value<'_>>> {
        Some(self.format.field(field).unwrap().array(&self.raw)?.collect())
    }

    fn text(&self) -> String {
        let mut out = Vec::new();
        self.format.render(&self.raw, &Small, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    fn field_text(&self, field: &str) -> String {
        let mut out = Vec::new();
        assert!(self.format.render_field(field, &self.raw, &Small, &mut out));
        String::from_utf8_lossy(&out).into_owned()
    }
}

fn check(event: &Event, text: Expect) {
    text.assert_eq(&event.text());
}

#[test]
fn pointers_are_positive_and_nodes_may_be_negative() {
    let event = Event::recorded(
        "kmem:kmalloc",
        &[
            ("call_site", Number(0xffff_ffff_8100_103b)),
            ("ptr", Number(0xffff_8881_04b1_c000)),
            ("bytes_req", Number(24)),
            ("bytes_alloc", Number(32)),
            ("gfp_flags", Number(0xcc0 | 0x100)),
            ("node", Number(-1)),
        ],
    );
    assert_eq!(event.value("ptr"), Uint(0xffff_8881_04b1_c000));
    assert_eq!(event.value("node"), Int(-1));
    assert_eq!(event.field_text("gfp_flags"), "GFP_KERNEL|__GFP_ZERO");
    assert_eq!(event.field_text("call_site"), "do_work+0x3b/0x60");
    assert_eq!(event.field_text("bytes_req"), "24");
    check(
        &event,
        expect![
            "call_site=do_work+0x3b/0x60 ptr=ffff888104b1c000 bytes_req=24 bytes_alloc=32 gfp_flags=GFP_KERNEL|__GFP_ZERO node=-1 accounted=false"
        ],
    );
}

/// `prev_state` is shown by two conversions without text between them. The second conversion shows the `+` of a
/// preempted task.
#[test]
fn the_text_of_a_field_has_all_of_its_adjacent_conversions() {
    for (state, text) in [(0, "R"), (0x100, "R+"), (1, "S"), (0x101, "S+"), (0x82, "D|I")] {
        let event = Event::recorded("sched:sched_switch", &[("prev_state", Number(state)), ("next_pid", Number(7))]);
        assert_eq!(event.field_text("prev_state"), text, "{state:#x}");
        assert!(event.text().contains(&format!(" prev_state={text} ==> ")), "{}", event.text());
        assert_eq!(event.field_text("next_pid"), "7");
    }
}

#[test]
fn results_of_system_calls_may_be_negative() {
    let event = Event::recorded("raw_syscalls:sys_exit", &[("id", Number(257)), ("ret", Number(-2))]);
    assert_eq!((event.value("id"), event.value("ret")), (Int(257), Int(-2)));
    check(&event, expect!["NR 257 = -2"]);

    let args: Vec<u8> = [3u64, u64::MAX, 4096, 0, 0, 9].iter().flat_map(|arg| arg.to_ne_bytes()).collect();
    let event = Event::recorded("raw_syscalls:sys_enter", &[("id", Number(0)), ("args", Array(&args))]);
    assert_eq!(event.array("args"), Some([3, u64::MAX, 4096, 0, 0, 9].map(Uint).to_vec()));
    assert_eq!(event.value("args"), Bytes(&args));
    check(&event, expect!["NR 0 (3, ffffffffffffffff, 1000, 0, 0, 9)"]);
}

/// The format describes `int dfd` as an unsigned field of 8 bytes. The kernel prints the whole register, but the
/// field's value is the int.
#[test]
fn arguments_of_system_calls_have_their_c_types() {
    let values = [
        ("__syscall_nr", Number(257)),
        ("dfd", Number(0xffff_ff9c)),
        ("filename", Number(0x562c_6fdd_27f0)),
        ("flags", Number(2)),
        ("mode", Number(0x1_0000_01b6)),
    ];
    let event = Event::recorded("syscalls:sys_enter_openat", &values);
    assert_eq!(event.value("dfd"), Int(-100));
    assert_eq!(event.value("filename"), Uint(0x562c_6fdd_27f0));
    assert_eq!(event.value("mode"), Uint(0o666));
    check(&event, expect!["sys_openat(dfd: 0xffffff9c, filename: 0x562c6fdd27f0, flags: 2, mode: 0x1000001b6)"]);

    let event = Event::recorded("syscalls:sys_exit_openat", &[("__syscall_nr", Number(257)), ("ret", Number(-2))]);
    check(&event, expect!["sys_openat -> 0xfffffffffffffffe"]);
    check(&Event::recorded("syscalls:sys_enter_getpid", &[]), expect!["sys_getpid()"]);
}

#[test]
fn names_of_tasks_end_at_their_nul() {
    let values = [
        ("prev_comm", Array(b"caf\xe9\0rest")),
        ("prev_pid", Number(7)),
        ("prev_prio", Number(120)),
        ("prev_state", Number(0x101)),
        ("next_comm", Array(b"sixteen bytes!!!")),
        ("next_pid", Number(0)),
        ("next_prio", Number(-1)),
    ];
    let event = Event::recorded("sched:sched_switch", &values);
    assert_eq!(event.value("prev_comm"), Str(b"caf\xe9"));
    assert_eq!(event.value("next_comm"), Str(b"sixteen bytes!!!"));
    assert_eq!(event.value("next_prio"), Int(-1));
    assert_eq!(event.array("prev_comm"), None);
    assert_eq!(event.field_text("prev_state"), "S+");
    assert_eq!(event.field_text("next_prio"), "-1");
    check(
        &event,
        expect![
            "prev_comm=caf\u{fffd} prev_pid=7 prev_prio=120 prev_state=S+ ==> next_comm=sixteen bytes!!! next_pid=0 next_prio=-1"
        ],
    );
}

#[test]
fn dynamic_arrays_have_a_typed_view() {
    let addrs: Vec<u8> = [0x1000u64, u64::MAX].iter().flat_map(|addr| addr.to_ne_bytes()).collect();
    let values = [
        ("device", Array(b"0000:00:04.0\0")),
        ("phys_addrs", Array(&addrs)),
        ("dir", Number(2)),
        ("err", Number(-5)),
        ("attrs", Number(1 << 9 | 1 << 2)),
    ];
    let event = Event::recorded("dma:dma_map_sg_err", &values);
    assert_eq!(event.value("device"), Str(b"0000:00:04.0"));
    assert_eq!(event.array("phys_addrs"), Some(vec![Uint(0x1000), Uint(u64::MAX)]));
    assert_eq!(event.field_text("phys_addrs"), "{0x1000,0xffffffffffffffff}");
    check(
        &event,
        expect![
            "0000:00:04.0 dir=FROM_DEVICE dma_addrs={0x1000,0xffffffffffffffff} err=-5 attrs=WRITE_COMBINE|PRIVILEGED"
        ],
    );
}

#[test]
fn relative_locations_start_after_the_field() {
    let event = Event::made(
        "	field:__rel_loc char[] text;	offset:8;	size:4;	signed:0;
	field:__rel_loc s16[] numbers;	offset:12;	size:4;	signed:0;",
        r#""%s %s %d", __get_rel_str(text), __print_array(__get_rel_dynamic_array(numbers), __get_rel_dynamic_array_len(numbers) / 2, 2), __get_rel_dynamic_array_len(text)"#,
        &[("text", Array(b"relative\0")), ("numbers", Array(&[0xff, 0xff, 7, 0]))],
    );
    assert_eq!(event.value("text"), Str(b"relative"));
    assert_eq!(event.array("numbers"), Some(vec![Int(-1), Int(7)]));
    check(&event, expect!["relative {0xffff,0x7} 9"]);
}

#[test]
fn cpu_masks_print_in_groups_of_32_bits() {
    let mask = [0x8000_0000_0000_0003u64.to_ne_bytes(), 1u64.to_ne_bytes()].concat();
    let values = [("cpumask", Array(&mask)), ("callsite", Number(0xffff_ffff_8100_1010)), ("callback", Number(0))];
    let event = Event::recorded("ipi:ipi_send_cpumask", &values);
    assert_eq!(event.value("cpumask"), Bytes(&mask));
    assert_eq!(event.array("cpumask"), Some(vec![Uint(0x8000_0000_0000_0003), Uint(1)]));
    assert_eq!(event.field_text("cpumask"), "00000000,00000001,80000000,00000003");
    check(&event, expect!["cpumask=00000000,00000001,80000000,00000003 callsite=do_work+0x10/0x60 callback=0x0"]);
}

#[test]
fn strings_of_the_kernel_are_found_by_address() {
    let text = |addr: i128| Event::recorded("rcu:rcu_utilization", &[("s", Number(addr))]).text();
    assert_eq!(text(0xffff_ffff_8281_a291), "End context switch");
    assert_eq!(text(0), "(null)");
    assert_eq!(text(8), "(efault)");
    assert_eq!(text(0xffff_ffff_8281_0000), "0xffffffff82810000");
}

#[test]
fn text_that_is_shown_as_an_address_is_bytes() {
    let event = Event::made(
        "	field:char mac[6];	offset:8;	size:6;	signed:0;
	field:__data_loc char[] ip;	offset:16;	size:4;	signed:0;
	field:char name[8];	offset:20;	size:8;	signed:0;
	field:bool up;	offset:28;	size:1;	signed:0;",
        r#""%pM %pI4 %s %d", REC->mac, __get_str(ip), REC->name, REC->up"#,
        &[
            ("mac", Array(&[2, 0, 0, 0, 0, 1])),
            ("ip", Array(&[10, 0, 0, 1])),
            ("name", Array(b"eth0")),
            ("up", Number(2)),
        ],
    );
    assert_eq!(event.value("mac"), Bytes(&[2, 0, 0, 0, 0, 1]));
    assert_eq!(event.value("ip"), Bytes(&[10, 0, 0, 1]));
    assert_eq!(event.value("name"), Str(b"eth0"));
    assert_eq!(event.value("up"), Bool(true));
    assert_eq!(event.field_text("mac"), "02:00:00:00:00:01");
    check(&event, expect!["02:00:00:00:00:01 10.0.0.1 eth0 2"]);
}

#[test]
fn unknown_values_are_shown_as_question_marks() {
    let event = Event::recorded("kmem:mm_page_free", &[("pfn", Number(0x1234)), ("order", Number(1))]);
    check(&event, expect!["page=? pfn=0x1234 order=1"]);
    let event = Event::recorded("timer:hrtimer_start", &[("mode", Number(0))]);
    assert_eq!(event.field_text("mode"), "ABS");
}

#[test]
fn fields_are_readable_if_the_print_format_is_not() {
    let event = Event::made(
        "	field:int number;	offset:8;	size:4;	signed:1;
	field:void * pointer;	offset:16;	size:8;	signed:0;
	field:u8 bytes[2];	offset:24;	size:2;	signed:0;",
        r#""%s", only_the_kernel_has_this(REC->number)"#,
        &[("number", Number(-3)), ("pointer", Number(0x10)), ("bytes", Array(&[1, 0xff]))],
    );
    assert_eq!(
        event.format.print_fmt().unwrap_err().to_string(),
        "the print format calls the kernel function `only_the_kernel_has_this`, which perf-prof does not know"
    );
    check(&event, expect!["number=-3 pointer=0x10 bytes=01ff"]);
}

/// The compiler has already parsed the format of `TP_printk`, so quotes and line breaks in the print format are plain
/// characters.
#[test]
fn quotes_and_line_breaks_in_a_format_are_part_of_it() {
    let field = "	field:int a;	offset:8;	size:4;	signed:1;";
    check(
        &Event::made(field, "\"a \"quoted\" line\nand \\\"%d\\\"\\n\" \"more\", REC->a", &[("a", Number(1))]),
        expect![[r#"
        a "quoted" line
        and "1"
        more"#]],
    );
}

#[test]
fn a_truncated_record_has_no_values_beyond_its_end() {
    let event = Event::recorded("sched:sched_switch", &[("prev_comm", Array(b"name")), ("next_pid", Number(7))]);
    for end in 0..event.raw.len() {
        let raw = &event.raw[..end];
        for field in event.format.fields() {
            let ends_before = field.offset > end || field.offset + field.size > end && field.extent_is_fixed();
            assert!(!ends_before || field.value(raw).is_none(), "{} at {end}", field.name);
        }
        event.format.render(raw, &Small, &mut Vec::new());
    }
}

trait Scalar {
    fn extent_is_fixed(&self) -> bool;
}

impl Scalar for perf_prof_format::tracefs::Field {
    /// Returns whether the field is a number. A truncated record contains a number completely or not at all.
    fn extent_is_fixed(&self) -> bool {
        matches!(self.kind, FieldKind::Bool | FieldKind::Int { .. } | FieldKind::Pointer)
    }
}
