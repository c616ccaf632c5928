//! The format of a probe's samples, in the form that the kernel uses.

use perf_prof_format::{
    spec::{Probe, ProbeArgument, ProbeKind},
    tracefs::{EventFormat, FormatError},
};

/// Returns the format of the event of a probe without arguments, as the kernel would write it. `name` is the probe's
/// location.
pub fn format(kind: ProbeKind, name: &str) -> Result<EventFormat, FormatError> {
    EventFormat::parse(kind.name(), &with_name(&format_text(kind), name, 0))
}

/// Returns the format of a probe's event. `text` is the format of a definition of the probe in tracefs.
pub(super) fn defined_format(probe: &Probe, text: &str) -> Result<EventFormat, FormatError> {
    let (system, name) = probe.event_name();
    EventFormat::parse(&system, &with_name(text, &name, 0))
}

/// The number of arguments that [`made_format`] gives to a static probe. `sys/sdt.h` has macros for up to 12 arguments.
const STATIC_ARGUMENTS: usize = 12;

/// Makes a format for a probe that is not defined in the kernel, without reading its file. Numbers have 64 bits. A
/// static probe also has `arg1` to `arg12`.
pub fn made_format(probe: &Probe, arguments: &[ProbeArgument]) -> Result<EventFormat, FormatError> {
    let text = format_text(probe.kind);
    let (fields, print_fmt) = text.split_once("\n\nprint fmt: ").unwrap_or((&text, ""));
    let (mut fields, mut print_fmt) = (fields.to_owned(), print_fmt.trim_end().to_owned());
    let mut made: Vec<(String, Option<&str>)> =
        arguments.iter().filter_map(|argument| Some((argument.name.clone()?, argument.type_name.as_deref()))).collect();
    if probe.kind == ProbeKind::Usdt {
        let own = (1..=STATIC_ARGUMENTS).map(|number| (format!("arg{number}"), Some("s64")));
        let own: Vec<_> = own.filter(|(name, _)| made.iter().all(|(known, _)| known != name)).collect();
        made.extend(own);
    }
    let first = 8 + addresses(probe.kind).len() * size_of::<libc::c_ulong>();
    for (at, (name, type_name)) in made.iter().enumerate() {
        let is = |prefix: &str| type_name.is_some_and(|name| name.starts_with(prefix));
        let (c_type, size, signed, form, value) = match () {
            () if is("string") || is("ustring") => {
                ("__data_loc char[]", 4, 1, "\\\"%s\\\"", format!("__get_str({name})"))
            }
            // The result of a function.
            () if is("s") || name == "ret" => ("s64", 8, 1, "%lld", format!("REC->{name}")),
            () => ("u64", 8, 0, "%llu", format!("REC->{name}")),
        };
        fields += &format!("\n\tfield:{c_type} {name};\toffset:{};\tsize:{size};\tsigned:{signed};", first + 8 * at);
        print_fmt = print_fmt.replacen("\", ", &format!(" {name}={form}\", "), 1) + &format!(", {value}");
    }
    defined_format(probe, &format!("{fields}\n\nprint fmt: {print_fmt}\n"))
}

/// Returns the text of a format with another name and number.
pub fn with_name(text: &str, name: &str, id: u32) -> String {
    let line = |line: &str| match line {
        _ if line.starts_with("name:") => format!("name: {name}"),
        _ if line.starts_with("ID:") => format!("ID: {id}"),
        line => line.to_owned(),
    };
    text.lines().map(|text| line(text) + "\n").collect()
}

/// Returns the text of the format as the kernel would write it. A probe that is opened through its PMU has no format
/// file. But its samples contain the same data as those of a probe in tracefs: the addresses come after the common
/// fields (`struct uprobe_trace_entry_head` and `struct kprobe_trace_entry_head` in kernel/trace).
fn format_text(kind: ProbeKind) -> String {
    let (fields, print_fmt) = match kind.is_return() {
        false => (addresses(kind), "\"(%lx)\", REC->__probe_ip"),
        true => (addresses(kind), "\"(%lx <- %lx)\", REC->__probe_func, REC->__probe_ret_ip"),
    };
    let mut text = String::from(
        "name: probe
ID: 0
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

",
    );
    let size = size_of::<libc::c_ulong>();
    for (at, field) in fields.iter().enumerate() {
        text += &format!("\tfield:unsigned long {field};\toffset:{};\tsize:{size};\tsigned:0;\n", 8 + at * size);
    }
    text += &format!("\nprint fmt: {print_fmt}\n");
    text
}

/// Returns the addresses that the samples of a probe have.
fn addresses(kind: ProbeKind) -> &'static [&'static str] {
    if kind.is_return() { &["__probe_func", "__probe_ret_ip"] } else { &["__probe_ip"] }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use perf_prof_format::{tracefs::NoKernel, value::Value};

    use super::*;

    /// Returns a sample's raw data as Linux 6.18 writes it. The kernel stores a 4-byte size before the raw data, and
    /// pads both together to a multiple of 8 bytes.
    fn raw(addresses: &[u64]) -> Vec<u8> {
        let mut raw = vec![0, 0, 0, 1, 0xbc, 0x0b, 0, 0];
        addresses.iter().for_each(|address| raw.extend(address.to_ne_bytes()));
        raw.extend([0; 4]);
        raw
    }

    fn shown(format: &EventFormat, raw: &[u8]) -> String {
        let fields = format.common_fields().iter().chain(format.fields());
        let mut text: Vec<String> = fields
            .map(|field| match field.value(raw) {
                Some(Value::Uint(number)) => format!("{}={number:#x}", field.name),
                value => format!("{}={value:?}", field.name),
            })
            .collect();
        let mut line = Vec::new();
        format.render(raw, &NoKernel, &mut line);
        text.push(String::from_utf8(line).unwrap());
        text.join(" ")
    }

    #[test]
    fn the_entry_of_a_function() {
        let format = format(ProbeKind::Uprobe, "f+0x4").unwrap();
        assert_eq!((&*format.system, &*format.name), ("uprobe", "f+0x4"));
        expect!["common_type=0x0 common_flags=0x0 common_preempt_count=0x1 common_pid=Some(Int(3004)) __probe_ip=0x563695e73190 (0x563695e73190)"].assert_eq(&shown(&format, &raw(&[0x5636_95e7_3190])));
    }

    #[test]
    fn the_return_of_a_function() {
        let format = format(ProbeKind::Kretprobe, "vfs_read").unwrap();
        expect!["common_type=0x0 common_flags=0x0 common_preempt_count=0x1 common_pid=Some(Int(3004)) __probe_func=0x5610e75ab190 __probe_ret_ip=0x5610e75ab07a (0x5610e75ab07a <- 0x5610e75ab190)"].assert_eq(&shown(&format, &raw(&[0x5610_e75a_b190, 0x5610_e75a_b07a])));
    }
}
