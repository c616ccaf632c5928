//! `syscall`: system calls, from their entry to their return.

use std::{borrow::Cow, env::consts::ARCH};

use perf_prof_format::{
    abi::{
        path_arguments::{AT_FDCWD, NameArgument, descriptor_arguments, descriptor_names, name_arguments},
        string_arguments::{self, string_arguments},
        system_calls,
    },
    spec::{SpanOption, glob_matches, is_glob},
    tracefs::{CURRENT_FOLDER, MOUNT_NAMESPACE, MOUNT_NAMESPACE_ID, ROOT_FOLDER, string_of_argument},
    value,
};

use super::{Field, Flag, ProgramBits, Rule, STRINGS, Scope, SourceDefinition, UnseenBegin, texts};
use crate::event::{ComputeField, SpanField, SpanFieldSource, SpanOrigin, SpanTask, SpanView};

/// The numbers of the system call rt_sigreturn(), and of sigreturn() of 32-bit programs. These calls restore the registers of the
/// code that a signal interrupted. So their returns have the number -1 (`restore_sigcontext()` in arch/x86/kernel/signal_64.c)
/// and no result.
#[cfg(target_arch = "x86_64")]
const RESTORES: &[i64] = &[15, 2167, 2221];
#[cfg(not(target_arch = "x86_64"))]
const RESTORES: &[i64] = &[139];

/// The key of a return. A return with the number -1 is that of a rt_sigreturn(), and ends the thread's open rt_sigreturn(), or
/// sigreturn() or rt_sigreturn() of a 32-bit program.
#[cfg(target_arch = "x86_64")]
const RESTORED: &str = "_tid+id|_tid+15|_tid+2167|_tid+2221";
#[cfg(not(target_arch = "x86_64"))]
const RESTORED: &str = "_tid+id|_tid+139";

/// The keys of returns with the numbers of execve(), of 64-bit and of 32-bit programs. When a thread runs a new program, the kernel
/// gives its call the number that execve() has in programs of the new kind (`set_personality_64bit()` and
/// `__set_personality_ia32()` in arch/x86/kernel/process_64.c). So the call may have been that of the other kind, or execveat().
const EXECUTED: [&str; 2] = ["_tid+id|_tid+2059|_tid+322|_tid+2406", "_tid+id|_tid+59|_tid+322|_tid+2406"];
/// The numbers of these returns before compat calls are marked.
const EXECUTES: [i64; 2] = [59, 11];

/// The fields with the paths of the files that a call names: the first and the second.
const PATH: &str = "path";
const NEW_PATH: &str = "new_path";

/// The usual errors of calls that seccomp refuses: EPERM, EACCES and ENOSYS.
const REFUSED: [i64; 3] = [1, 13, 38];

/// The number of the call is part of the key. So a return whose entry was not seen does not end another call.
pub(super) const SYSCALL: SourceDefinition = SourceDefinition {
    name: "syscall",
    about: "a system call, from its entry to its return",
    example: "syscall/name=openat|read, min=10ms, failed/",
    rules: &[
        Rule::begin("raw_syscalls:sys_enter", "_tid+id"),
        Rule::end("raw_syscalls:sys_exit", "_tid+id").when("id != -1 && id != 59 && id != 2059"),
        Rule::end("raw_syscalls:sys_exit", EXECUTED[0]).when("id == 59"),
        Rule::end("raw_syscalls:sys_exit", EXECUTED[1]).when("id == 2059"),
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
        Field::int(
            "nr",
            "number of the call; 2048 is added for calls of 32-bit programs, whose numbers differ",
            |span| span.key(1),
        )
        .is(SpanOrigin::Key(1)),
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
    lacks_path: Some((&[PATH, NEW_PATH], lacks_path)),
    ..SourceDefinition::EMPTY
};

/// Returns the fields that the option `str` adds: the strings of arguments, such as `filename_str`, paths, and the mount namespace to
/// which the paths belong.
pub(super) fn string_fields() -> impl Iterator<Item = SpanField> {
    let field = |name: String, about, compute: ComputeField| SpanField {
        name,
        about,
        kind: compute.kind(),
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
    let path = field(PATH.to_owned(), about, ComputeField::UserText(PATH, path));
    let about = "the absolute path of the call's second file name, such as the new one of a rename; None as for path";
    let second = field(NEW_PATH.to_owned(), about, ComputeField::UserText(NEW_PATH, new_path));
    let about = "number of the task's mount namespace, as in /proc/PID/ns/mnt; 0 if it is not known, or if no argument is a file";
    let number = |span: &SpanView<'_>| span.begin().uint(MOUNT_NAMESPACE);
    let number = field(MOUNT_NAMESPACE.to_owned(), about, ComputeField::Uint(number));
    let about = "id of this namespace, which no later one gets; 0 if it is not known";
    let id = |span: &SpanView<'_>| span.begin().uint(MOUNT_NAMESPACE_ID);
    let id = field(MOUNT_NAMESPACE_ID.to_owned(), about, ComputeField::Uint(id));
    strings.chain(descriptors).chain([path, second, number, id])
}

/// Returns the string to which the argument with this name points.
fn string<'a>(span: &SpanView<'a>, name: &str) -> Option<Cow<'a, [u8]>> {
    let call = system_calls::name_with_arguments(span.machine(), span.key(1))?;
    let (index, _) = string_arguments(call).iter().find(|(_, of_call)| *of_call == name)?;
    Some(text(span, *index)?.into())
}

/// Returns the path of the file descriptor in the argument with this name.
fn descriptor<'a>(span: &SpanView<'a>, name: &str) -> Option<Cow<'a, [u8]>> {
    let call = system_calls::name_with_arguments(span.machine(), span.key(1))?;
    let (index, _) = descriptor_arguments(call).iter().find(|(_, of_call)| *of_call == name)?;
    Some(path_of_descriptor(span, *index)?.into())
}

/// Returns whether a call has a file name whose path is not known. `field` is `path` or `new_path`.
fn lacks_path(span: &SpanView<'_>, field: &str) -> bool {
    let (at, path): (_, Option<Cow<'_, [u8]>>) =
        if field == NEW_PATH { (1, new_path(span, field)) } else { (0, path(span, field)) };
    let has_name = |call| name_arguments(call).nth(at).is_some();
    path.is_none() && system_calls::name_with_arguments(span.machine(), span.key(1)).is_some_and(has_name)
}

/// Returns the path of the file that a call is about: of its first file name, or else of its first file descriptor.
fn path<'a>(span: &SpanView<'a>, _: &str) -> Option<Cow<'a, [u8]>> {
    let call = system_calls::name_with_arguments(span.machine(), span.key(1))?;
    match name_arguments(call).next() {
        Some(name) => path_of_name(span, name),
        None => Some(path_of_descriptor(span, descriptor_arguments(call).first()?.0)?.into()),
    }
}

/// Returns the path of the second file name of a call, as renames and links have it.
fn new_path<'a>(span: &SpanView<'a>, _: &str) -> Option<Cow<'a, [u8]>> {
    let call = system_calls::name_with_arguments(span.machine(), span.key(1))?;
    path_of_name(span, name_arguments(call).nth(1)?)
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
    if (-4095..0).contains(&ret) && !RESTORES.contains(&span.key(1)) { -ret } else { 0 }
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
        Some("execve" | "execveat" | "rt_sigreturn" | "sigreturn") => UnseenBegin::NotReported,
        Some("clone" | "clone3" | "fork" | "vfork") if ret == 0 => UnseenBegin::NotReported,
        None if !is_known() => UnseenBegin::NotReported,
        _ if REFUSED.contains(&ret.wrapping_neg()) => UnseenBegin::ReportedUnlessRefused,
        _ if ret == number => UnseenBegin::ReportedIfMade,
        _ => UnseenBegin::Reported,
    }
}

/// The largest number of calls that a filter of the kernel names. With more, it would cost more than it saves.
const MOST_NAMED: usize = 32;

/// Returns a filter for the calls that the option `name=` selects. The filter contains the call numbers of this machine, so
/// it is for live events only. It sees the numbers of the kernel, in which compat calls are not marked yet. So it also selects a
/// few other calls.
fn narrow(options: &[SpanOption], bits: ProgramBits) -> Option<String> {
    let names = &options.iter().find(|option| option.name == "name")?.values;
    let mut numbers: Vec<i64> = Vec::new();
    for name in names {
        let mut of_name = numbers_of(name);
        of_name.retain(|number| bits == ProgramBits::Any || !system_calls::is_compat(ARCH, *number));
        if of_name.is_empty() {
            return None;
        }
        numbers.extend(of_name.iter().map(|number| number % system_calls::COMPAT));
        if of_name.iter().any(|number| RESTORES.contains(number)) {
            numbers.push(-1);
        }
        let executes = |number: &i64| {
            bits == ProgramBits::Any && matches!(system_calls::name(ARCH, *number), Some("execve" | "execveat"))
        };
        if cfg!(target_arch = "x86_64") && of_name.iter().any(executes) {
            numbers.extend(EXECUTES);
        }
    }
    numbers.sort_unstable();
    numbers.dedup();
    let filters: Vec<String> = numbers.iter().map(|nr| format!("id == {nr}")).collect();
    (1..=MOST_NAMED).contains(&filters.len()).then(|| filters.join(" || "))
}

/// Returns the numbers of the calls with this name, or of those that match this pattern.
fn numbers_of(name: &str) -> Vec<i64> {
    if !is_glob(name) {
        return system_calls::numbers(ARCH, name).collect();
    }
    // A number without a name may be that of a new call.
    let matches = |number: &i64| match system_calls::name(ARCH, *number) {
        Some(call) => glob_matches(name, call),
        None => glob_matches(name, &format!("sys_{number}")),
    };
    (0..2 * system_calls::COMPAT).filter(matches).collect()
}
