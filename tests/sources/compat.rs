//! The source `syscall`, for programs of 32 bits: their calls have other numbers.

use std::path::PathBuf;

use crate::harness::{
    compile::compile,
    machine::{Need, needs, needs_paths},
    recording::{Folder, record_here},
    run::{perf_prof, printed, stdout},
};

/// Needs no C library, which machines lack for programs of 32 bits. Its argument is the program that it executes, if any.
const PROGRAM: &str = r#"
static long call(long number, long first, long second, long third) {
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(first), "c"(second), "d"(third) : "memory");
    return result;
}

void begin(long *stack) {
    for (int at = 0; at < 7; at++)
        call(20, 0, 0, 0);
    long file = call(5, (long)"of-32-bits", 0101, 0600);
    call(4, file, (long)"hello", 5);
    call(6, file, 0, 0);
    call(10, (long)"of-32-bits", 0, 0);
    call(10, (long)"missing", 0, 0);
    if (stack[0] > 1)
        call(11, stack[2], (long)(stack + 2), 0);
    call(1, 0, 0, 0);
}

__asm__(".globl _start\n_start: mov %esp, %eax\n push %eax\n call begin\n");
"#;

/// The calls of the program, each with its count.
const CALLS: [(&str, usize); 5] = [("close", 1), ("getpid", 7), ("open", 1), ("unlink", 2), ("write", 1)];

fn program(folder: &Folder) -> PathBuf {
    let options = ["-m32", "-O1", "-static", "-nostdlib", "-ffreestanding", "-fno-pic", "-fno-stack-protector"];
    compile(&folder.path(""), "program", PROGRAM, &options)
}

#[test]
fn calls_of_32_bit_programs_have_their_own_names_in_tables() {
    needs([Need::Tracefs, Need::Compilers]);
    let folder = Folder::new();
    let program = program(&folder);
    for in_kernel in ["auto", "never"] {
        let mut top =
            perf_prof(&["top", "syscall/comm=program/", "--by", "name", "--json", "--in-kernel", in_kernel, "--"]);
        let text = stdout(&top.arg(&program).current_dir(folder.path("")).output().unwrap());
        for (name, count) in CALLS {
            let row = text.split('{').find(|row| row.contains(&format!("\"name\":\"{name}\"")));
            assert!(row.is_some_and(|row| row.contains(&format!("\"count\":{count},"))), "{in_kernel} {name}: {text}");
        }
    }
}

#[test]
fn an_option_that_names_calls_selects_those_of_32_bit_programs_too() {
    needs([Need::Tracefs, Need::Compilers]);
    let folder = Folder::new();
    let program = program(&folder);
    let selector = "syscall/name=getpid|unlink,comm=program/";
    for options in [&["--in-kernel", "auto"][..], &["--in-kernel", "never"]] {
        let mut trace = perf_prof(&["trace", "-e", selector, "--json", "-q"]);
        let output = trace.args(options).arg("--").arg(&program).current_dir(folder.path("")).output().unwrap();
        check(&printed(&output));
    }
    let path = folder.path("calls.data");
    record_here(&path, &["-e", selector, "--", program.to_str().unwrap()]);
    check(&printed(&perf_prof(&["trace", "-e", selector, "--json", "-q", "--input"]).arg(&path).output().unwrap()));
}

fn check(lines: &[String]) {
    let count = |name: &str| lines.iter().filter(|line| line.contains(&format!("\"name\":\"{name}\""))).count();
    assert_eq!((count("getpid"), count("unlink"), lines.len()), (7, 2, 9), "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.contains("\"ENOENT\"")).count(), 1, "{lines:#?}");
}

#[test]
fn files_of_32_bit_programs_have_their_paths() {
    needs_paths();
    needs([Need::Compilers]);
    let folder = Folder::new();
    let program = program(&folder);
    let path = folder.path("strings.data");
    let mut record = perf_prof(&["record", "-q", "-e", "syscall/str/", "-o", path.to_str().unwrap(), "--"]);
    printed(&record.arg(&program).current_dir(folder.path("")).output().unwrap());
    let top = || perf_prof(&["top", "syscall/str,comm=program/", "--by", "name,path", "--json"]);
    let live = stdout(&top().arg("--").arg(&program).current_dir(folder.path("")).output().unwrap());
    for text in [live, stdout(&top().arg("--input").arg(&path).output().unwrap())] {
        for name in ["open", "write", "close", "unlink"] {
            let of_file = format!("\"name\":\"{name}\",\"path\":\"{}\"", folder.path("of-32-bits").display());
            assert!(text.contains(&of_file), "{of_file}: {text}");
        }
    }
}

#[test]
fn a_program_that_executes_one_of_the_other_kind_ends_its_call() {
    needs([Need::Tracefs, Need::Compilers]);
    let folder = Folder::new();
    let program = program(&folder);
    // A 64-bit program executes one of 32 bits, which executes one of 64 bits.
    let both = ["sh", "-c", "\"$0\" /bin/true; :", program.to_str().unwrap()];
    const BY_DESCRIPTOR: &str = "import os; os.execve(os.open('/bin/true', os.O_RDONLY), ['true'], {})";
    for in_kernel in ["auto", "never"] {
        let ended = |name: &str, command: &[&str]| {
            let options =
                ["--json", "-q", "--in-kernel", in_kernel, "-e", &format!("syscall/ret == 0/name={name}/"), "--"];
            let mut trace = perf_prof(&["trace"]);
            printed(&trace.args(options).args(command).current_dir(folder.path("")).output().unwrap()).len()
        };
        assert_eq!(ended("execve", &both), 2, "{in_kernel}");
        assert_eq!(ended("execveat", &["python3", "-c", BY_DESCRIPTOR]), 1, "{in_kernel}");
    }
}
