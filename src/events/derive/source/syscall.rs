//! `syscall`: system calls, from their entry to their return.

use std::borrow::Cow;

use perf_prof_format::{
    abi::{
        path_arguments::{AT_FDCWD, NameArgument, descriptor_arguments, descriptor_names, name_arguments},
        string_arguments::{self, string_arguments},
        system_calls,
    },
    spec::{SpanOption, is_glob},
    tracefs::{CURRENT_FOLDER, ROOT_FOLDER, string_of_argument},
    value,
};

use super::{Field, Flag, Rule, STRINGS, Scope, SourceDefinition, UnseenBegin, texts};
use crate::event::{ComputeField, SpanField, SpanFieldKind, SpanFieldSource, SpanOrigin, SpanTask, SpanView};

/// The number of the system call rt_sigreturn(). This call restores the registers of the code that a signal interrupted. So
/// its return has the number -1 (`restore_sigcontext()` in arch/x86/kernel/signal_64.c) and no result.
#[cfg(target_arch = "x86_64")]
const RT_SIGRETURN: i64 = 15;
#[cfg(not(target_arch = "x86_64"))]
const RT_SIGRETURN: i64 = 139;

/// The key of a return. A return with the number -1 is that of a rt_sigreturn(), and ends the thread's open rt_sigreturn().
#[cfg(target_arch = "x86_64")]
const RESTORED: &str = "_tid+id|_tid+15";
#[cfg(not(target_arch = "x86_64"))]
const RESTORED: &str = "_tid+id|_tid+139";

/// The usual errors of calls that seccomp refuses: EPERM, EACCES and ENOSYS.
const REFUSED: [i64; 3] = [1, 13, 38];

/// The number of the call is part of the key. So a return whose entry was not seen does not end another call.
pub(super) const SYSCALL: SourceDefinition = SourceDefinition {
    name: "syscall",
    about: "a system call, from its entry to its return",
    example: "syscall/name=openat|read, min=10ms, failed/",
    rules: &[
        Rule::begin("raw_syscalls:sys_enter", "_tid+id"),
        Rule::end("raw_syscalls:sys_exit", "_tid+id").when("id != -1"),
        Rule::end("raw_syscalls:sys_exit", RESTORED).when("id == -1"),
    ],
    task: SpanTask::OfEnd,
    scope: Scope::Task,
    flags: &[
        Flag { name: "failed", filter: "errno != \"\"", about: "calls that returned an error" },
        Flag {
            name: STRINGS,
            filter: "",
            about: "with the strings of the arguments, such as filename_str, and path; needs BPF",
        },
    ],
    fields: &[
        Field::text("comm", "name of the task", |span| span.comm(&span.last())).is(SpanOrigin::Comm),
        Field::text_of_number(
            "name",
            "name of the call",
            |span| span.key(1),
            |span, nr| match system_calls::name(span.machine(), nr) {
                Some(name) => name.as_bytes().into(),
                None => format!("sys_{nr}").into_bytes().into(),
            },
        )
        .one_of(|| texts(system_calls::names()), "sys_")
        .is(SpanOrigin::Key(1)),
        Field::int("nr", "number of the call", |span| span.key(1)).is(SpanOrigin::Key(1)),
        Field::words("args", "its six arguments, as numbers", |span| span.begin().bytes("args")),
        Field::int("ret", "the value that it returned", |span| span.last().int("ret")).is(SpanOrigin::End("ret")),
        Field::text_of_number("errno", "name of the error; empty if there was none", errno, |_, errno| match errno {
            0 => b"".into(),
            _ => system_calls::error_name(errno)
                .map_or_else(|| format!("errno_{errno}").into_bytes().into(), |name| name.as_bytes().into()),
        })
        .one_of(|| texts(system_calls::error_names()), "errno_")
        .is(SpanOrigin::Error("ret")),
    ],
    unseen_begin: Some(unseen_begin),
    without_return: &["exit", "exit_group"],
    narrow: Some(narrow),
    lacks_path: Some(|span| has_name(span) && path(span, "").is_none()),
    ..SourceDefinition::EMPTY
};

/// Returns the fields that the option `str` adds: the strings of arguments, such as `filename_str`, and paths.
pub(super) fn string_fields() -> impl Iterator<Item = SpanField> {
    let field = |name: String, about, compute| SpanField {
        name,
        about,
        kind: SpanFieldKind::UserText,
        source: SpanFieldSource::Computed(compute),
        origin: None,
    };
    let strings = string_arguments::names().into_iter().map(move |name| {
        let about = "the string of the argument; None if it could not be read, or if the call has no such argument";
        field(format!("{name}_str"), about, ComputeField::UserText(name, string))
    });
    let descriptors = descriptor_names().into_iter().map(move |name| {
        let about = "the path of the descriptor's file; None if it is not known, or if the call has no such argument";
        field(format!("{name}_str"), about, ComputeField::UserText(name, descriptor))
    });
    let about = "the absolute path of the file that the call is about; None if it is not known, or if there is none";
    strings.chain(descriptors).chain([field("path".to_owned(), about, ComputeField::UserText("path", path))])
}

/// Returns the string to which the argument with this name points.
fn string<'a>(span: &SpanView<'a>, name: &str) -> Option<Cow<'a, [u8]>> {
    let call = system_calls::name(span.machine(), span.key(1))?;
    let (index, _) = string_arguments(call).iter().find(|(_, of_call)| *of_call == name)?;
    Some(text(span, *index)?.into())
}

/// Returns the path of the file descriptor in the argument with this name.
fn descriptor<'a>(span: &SpanView<'a>, name: &str) -> Option<Cow<'a, [u8]>> {
    let call = system_calls::name(span.machine(), span.key(1))?;
    let (index, _) = descriptor_arguments(call).iter().find(|(_, of_call)| *of_call == name)?;
    Some(path_of_descriptor(span, *index)?.into())
}

/// Returns whether a call takes the name of a file.
fn has_name(span: &SpanView<'_>) -> bool {
    system_calls::name(span.machine(), span.key(1)).is_some_and(|call| name_arguments(call).next().is_some())
}

/// Returns the path of the file that a call is about: of its first file name, or else of its first file descriptor.
fn path<'a>(span: &SpanView<'a>, _: &str) -> Option<Cow<'a, [u8]>> {
    let call = system_calls::name(span.machine(), span.key(1))?;
    match name_arguments(call).next() {
        Some(name) => path_of_name(span, name),
        None => Some(path_of_descriptor(span, descriptor_arguments(call).first()?.0)?.into()),
    }
}

/// Returns the absolute path of a file name. Nothing is looked up: `..` and symbolic links stay.
fn path_of_name<'a>(span: &SpanView<'a>, NameArgument { argument, folder }: NameArgument) -> Option<Cow<'a, [u8]>> {
    let of_folder = || match folder {
        Some(folder) => path_of_descriptor(span, folder),
        None => span.begin().user_text(CURRENT_FOLDER),
    };
    // Without a name, some calls such as utimensat() take the file descriptor itself.
    let name = if argument_word(span, argument) == Some(0) { b"" } else { text(span, argument)? };
    let folder = if name.starts_with(b"/") { span.begin().user_text(ROOT_FOLDER)? } else { of_folder()? };
    Some(match (folder, name) {
        (folder, b"") => folder.into(),
        (b"/", [b'/', ..]) => name.into(),
        (folder, [b'/', ..]) => [folder, name].concat().into(),
        (b"/", name) => [b"/", name].concat().into(),
        (folder, name) => [folder, b"/", name].concat().into(),
    })
}

/// Returns the path of the file descriptor in an argument.
fn path_of_descriptor<'a>(span: &SpanView<'a>, argument: usize) -> Option<&'a [u8]> {
    match argument_word(span, argument)? as i32 {
        AT_FDCWD => span.begin().user_text(CURRENT_FOLDER),
        _ => span.begin().user_text(string_of_argument(argument)),
    }
}

fn argument_word(span: &SpanView<'_>, argument: usize) -> Option<u64> {
    value::words(span.begin().bytes("args")).nth(argument)
}

/// Returns the string to which an argument points.
fn text<'a>(span: &SpanView<'a>, argument: usize) -> Option<&'a [u8]> {
    let field = string_of_argument(argument);
    // If the page of the string was not in memory when the call began, the string was read when the call ended.
    span.begin().user_text(field).or_else(|| span.end()?.user_text(field))
}

/// Returns the error number of a call; 0 if the call did not fail. Always 0 for rt_sigreturn(): its result is a register of
/// the interrupted code.
fn errno(span: &SpanView<'_>) -> i64 {
    let ret = span.last().int("ret");
    if (-4095..0).contains(&ret) && span.key(1) != RT_SIGRETURN { -ret } else { 0 }
}

/// Returns what a return says about the entry of its call. A new task returns from the call that made it, and a new program
/// from execve(). The kernel traces no entry of calls that seccomp refuses, mostly with these errors, or answers with a signal,
/// where the result is the number of the call (`syscall_trace_enter()` in kernel/entry/common.c). Filters answer with a signal
/// whatever the arguments are, so that a thread cannot make such a call at all. A number without a name is that of a new call, or
/// damaged. On a machine whose numbers are not known it says nothing.
fn unseen_begin(span: &SpanView<'_>) -> UnseenBegin {
    let (number, ret) = (span.key(1), span.last().int("ret"));
    let is_known = || number != -1 && system_calls::number(span.machine(), "execve").is_some();
    match system_calls::name(span.machine(), number) {
        Some("execve" | "execveat" | "rt_sigreturn") => UnseenBegin::NotReported,
        Some("clone" | "clone3" | "fork" | "vfork") if ret == 0 => UnseenBegin::NotReported,
        None if !is_known() => UnseenBegin::NotReported,
        _ if REFUSED.contains(&ret.wrapping_neg()) => UnseenBegin::ReportedUnlessRefused,
        _ if ret == number => UnseenBegin::ReportedIfMade,
        _ => UnseenBegin::Reported,
    }
}

/// Returns a filter for the calls that the option `name=` selects. The filter contains the call numbers of this machine, so
/// it is for live events only.
fn narrow(options: &[SpanOption]) -> Option<String> {
    let names = &options.iter().find(|option| option.name == "name")?.values;
    let number = |name: &String| system_calls::number(std::env::consts::ARCH, name).filter(|_| !is_glob(name));
    let mut numbers: Vec<i64> = names.iter().map(number).collect::<Option<_>>()?;
    if numbers.contains(&RT_SIGRETURN) {
        numbers.push(-1);
    }
    let filters: Vec<String> = numbers.iter().map(|nr| format!("id == {nr}")).collect();
    (!filters.is_empty()).then(|| filters.join(" || "))
}
