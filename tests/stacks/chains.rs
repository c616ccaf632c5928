//! Checks that `perf-prof` resolves the call chains of programs with known chains, in every sample.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::programs::Programs;
use crate::harness::{
    machine::{Need, skip},
    stacks::{DWARF, FP, Frame, RARE, ResolveTime, Stacks, all_are, names},
};

/// The number of rare system calls that each program makes.
const CALLS: usize = 25;

const CHAIN: [&str; 4] = ["leaf", "middle", "outer", "main"];
/// The number of rare system calls of programs whose `middle` calls `leaf` twice.
const TWICE: usize = 2 * CALLS;

const KEEPS: &[&str] = &["-O2", "-fno-omit-frame-pointer", "-DFRAMES"];
const OMITS: &[&str] = &["-O2", "-fomit-frame-pointer"];

/// Runs a program and returns the call chains of its rare system calls.
fn stacks(programs: &Programs, options: &[&str], command: &[&str], calls: usize) -> Vec<Vec<Frame>> {
    let (dir, command) = (programs.dir(), command.to_vec());
    Stacks { event: RARE, options: options.to_vec(), resolve: ResolveTime::InHandler, command, dir, calls }.trace()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn frame_pointers() {
    let programs = Programs::new();
    let program = programs.build("chain.c", "chain", KEEPS);
    all_are(&stacks(&programs, FP, &[text(&program)], TWICE), &CHAIN);
    let program = programs.build("chain.c", "fixed", &[KEEPS, &["-no-pie"]].concat());
    all_are(&stacks(&programs, FP, &[text(&program)], TWICE), &CHAIN);
}

#[test]
fn without_frame_pointers() {
    let programs = Programs::new();
    let program = programs.build("chain.c", "chain", OMITS);
    let chains = stacks(&programs, DWARF, &[text(&program)], TWICE);
    all_are(&chains, &CHAIN);
    // Each chain ends at the first function of the program.
    for frames in &chains {
        assert_eq!(frames.last().unwrap().symbol, "_start", "{frames:#?}");
    }
    let program = programs.build("aligned.c", "aligned", OMITS);
    let chains = stacks(&programs, DWARF, &[text(&program)], CALLS);
    all_are(&chains, &["syscall", "leaf", "aligned", "caller", "main"]);
}

#[test]
fn a_small_copy_of_the_stack_gives_its_frames() {
    let programs = Programs::new();
    let program = programs.build("chain.c", "chain", OMITS);
    let options = ["--call-graph", "dwarf,256", "--user-callchain", "--no-kernel-callchain"];
    for frames in stacks(&programs, &options, &[text(&program)], TWICE) {
        let names: Vec<_> = frames.iter().map(|frame| frame.symbol.as_str()).collect();
        assert!(names.len() >= 3 && CHAIN.starts_with(&names[..names.len().min(4)]), "{names:?}");
    }
}

#[test]
fn max_stack_limits_frames_that_are_unwound() {
    let programs = Programs::new();
    let program = programs.build("chain.c", "chain", OMITS);
    let with_kernel = [&DWARF[..3], &["--kernel-callchain"]].concat();
    for (frames, options) in [(1, DWARF), (3, DWARF), (3, &with_kernel)] {
        let event = format!("syscalls:sys_enter_getppid//stack/max-stack={frames}/");
        let (dir, command) = (programs.dir(), vec![text(&program)]);
        let stacks = Stacks {
            event: &event,
            options: options.to_vec(),
            resolve: ResolveTime::InHandler,
            command,
            dir,
            calls: TWICE,
        };
        for chain in stacks.trace() {
            assert_eq!(chain.len(), frames, "{chain:#?}");
        }
    }
}

#[test]
fn call_chains_continue_below_a_signal() {
    let programs = Programs::new();
    let program = programs.build("signals.c", "signals", OMITS);
    for frames in stacks(&programs, DWARF, &[text(&program)], CALLS) {
        // The third frame is the code to which handlers return. The C library does not export its name.
        let mut names = names(&frames, "main");
        assert_eq!(names.len(), 5, "{frames:#?}");
        names.remove(2);
        assert_eq!(names, ["leaf", "handler", "interrupted", "main"]);
    }
}

#[test]
fn stripped_with_a_debug_file_beside_it() {
    let programs = Programs::new();
    for folder in ["", ".debug/"] {
        let program = programs.build("chain.c", "chain", OMITS);
        fs::create_dir_all(programs.path(".debug")).unwrap();
        let debug = format!("{folder}chain.debug");
        programs.tool("objcopy", &["--only-keep-debug", "chain", &debug]);
        programs.tool("strip", &["chain"]);
        programs.tool("objcopy", &[&format!("--add-gnu-debuglink={debug}"), "chain"]);
        all_are(&stacks(&programs, DWARF, &[text(&program)], TWICE), &CHAIN);
        fs::remove_file(programs.path(&debug)).unwrap();
    }
}

#[test]
fn unwind_information_in_a_debug_file_alone() {
    let programs = Programs::new();
    let flags = [OMITS, &["-g", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"]].concat();
    let program = programs.build("chain.c", "chain", &flags);
    programs.tool("objcopy", &["--only-keep-debug", "chain", "chain.debug"]);
    programs.tool("strip", &["chain"]);
    programs.tool("objcopy", &["--add-gnu-debuglink=chain.debug", "chain"]);
    let sections = programs.tool("readelf", &["-SW", "chain", "chain.debug"]);
    assert_eq!(sections.matches(" .debug_frame ").count(), 1, "{sections}");
    all_are(&stacks(&programs, DWARF, &[text(&program)], TWICE), &CHAIN);
}

/// A file in a system folder, which is removed after the test.
struct Placed(PathBuf);

impl Drop for Placed {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
        let _ = self.0.parent().map(fs::remove_dir);
    }
}

#[test]
fn stripped_with_a_debug_file_by_its_build_id() {
    let programs = Programs::new();
    // A build id that no other file has.
    let id = format!("{:08x}{:08x}", std::process::id(), fs::metadata(programs.dir()).unwrap().len() ^ 0x5eed);
    let program = programs.build("chain.c", "chain", &[OMITS, &[&format!("-Wl,--build-id=0x{id}")]].concat());
    let place = PathBuf::from(format!("/usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]));
    if let Err(error) = fs::create_dir_all(place.parent().unwrap()) {
        skip(Need::Storage, format!("{}: {error}", place.display()));
    }
    let place = Placed(place);
    programs.tool("objcopy", &["--only-keep-debug", "chain", text(&place.0)]);
    programs.tool("strip", &["chain"]);
    all_are(&stacks(&programs, DWARF, &[text(&program)], TWICE), &CHAIN);
}

#[test]
fn stripped_with_a_small_symbol_table_inside() {
    let programs = Programs::new();
    let program = programs.build("chain.c", "chain", OMITS);
    programs.tool("objcopy", &["--only-keep-debug", "chain", "symbols"]);
    programs.tool("objcopy", &["--strip-debug", "--remove-section=.comment", "symbols"]);
    programs.tool("xz", &["symbols"]);
    programs.tool("strip", &["chain"]);
    programs.tool("objcopy", &["--add-section", ".gnu_debugdata=symbols.xz", "chain"]);
    all_are(&stacks(&programs, DWARF, &[text(&program)], TWICE), &CHAIN);
}

#[test]
fn stripped_of_everything() {
    let programs = Programs::new();
    let program = programs.build("chain.c", "chain", OMITS);
    let symbols = programs.tool("nm", &["-S", "chain"]);
    programs.tool("strip", &["chain"]);
    let place = |name: &str| {
        let line = symbols.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
        let mut words = line.split(' ').map(|word| u64::from_str_radix(word, 16));
        let (start, size) = (words.next().unwrap().unwrap(), words.next().unwrap().unwrap());
        start..start + size
    };
    for frames in stacks(&programs, DWARF, &[text(&program)], TWICE) {
        for (frame, function) in frames.iter().zip(["leaf", "middle", "outer"]) {
            assert_eq!(frame.symbol, "Unknown");
            assert_eq!(frame.dso, text(&program));
            assert!(place(function).contains(&frame.offset), "{function}: {frame:x?}");
        }
    }
}

#[test]
fn static_programs() {
    let programs = Programs::new();
    for (name, flag) in [("pie", "-static-pie"), ("fixed", "-static")] {
        let program = programs.build("chain.c", name, &[OMITS, &[flag]].concat());
        all_are(&stacks(&programs, DWARF, &[text(&program)], TWICE), &CHAIN);
    }
}

#[test]
fn inlined_functions() {
    let programs = Programs::new();
    let program = programs.build("inlined.c", "inlined", &[OMITS, &["-g"]].concat());
    let command = [text(&program)];
    all_are(&stacks(&programs, DWARF, &command, CALLS), &["carrier", "main"]);
    let options = [DWARF, &["--inline", "--srcline"]].concat();
    let chains = stacks(&programs, &options, &command, CALLS);
    all_are(&chains, &["innermost", "second", "third", "carrier", "main"]);
    let source = include_str!("programs/inlined.c");
    let line = |text: &str| 1 + source.lines().position(|line| line.trim() == text).unwrap();
    let expected = ["RARE();", "long r = innermost(n * 3);", "long r = second(n + 7);", "long r = third(n);"].map(line);
    for frames in &chains {
        let inlined: Vec<_> = frames[..5].iter().map(|frame| frame.inlined).collect();
        assert_eq!(inlined, [true, true, true, false, false]);
        for (frame, line) in frames.iter().zip(expected) {
            let shown = frame.line.as_deref().unwrap_or_default();
            assert!(shown.ends_with(&format!("inlined.c:{line}")), "{line}: {frame:?}");
        }
    }
}

#[test]
fn names_of_cpp_templates() {
    let programs = Programs::new();
    let program = programs.build("templates.cc", "templates", OMITS);
    let vector = "std::vector<std::unique_ptr<shapes::Shape, std::default_delete<shapes::Shape> >, \
                  std::allocator<std::unique_ptr<shapes::Shape, std::default_delete<shapes::Shape> > > > const&";
    let expected = [
        "long (anonymous namespace)::leaf<long>(long)".to_owned(),
        "shapes::Circle<int>::area(long) const".to_owned(),
        format!("long shapes::total<int, long>({vector}, int, long)"),
        format!("shapes::operator+({vector}, shapes::Shape const&)"),
        "main".to_owned(),
    ];
    for frames in stacks(&programs, DWARF, &[text(&program)], CALLS) {
        assert_eq!(names(&frames, "main"), expected);
    }
    let mangled = programs.tool("nm", &["templates"]);
    let options = [DWARF, &["--no-demangle"]].concat();
    for frames in stacks(&programs, &options, &[text(&program)], CALLS) {
        let names = names(&frames, "main");
        assert_eq!(names.len(), expected.len());
        for name in &names[..4] {
            assert!(name.starts_with("_ZN") && mangled.contains(&format!(" {name}\n")), "{name}");
        }
    }
}

#[test]
fn names_of_rust() {
    let programs = Programs::new();
    let expected = [
        "chain::rare",
        "chain::inner::<u32>",
        "<chain::Task as chain::Work>::run",
        "chain::outer::{closure#0}",
        "chain::outer",
        "chain::main",
    ];
    let program = programs.build("chain.rs", "rust", &["-O", "-Csymbol-mangling-version=v0"]);
    all_are(&stacks(&programs, DWARF, &[text(&program)], CALLS), &expected);
    let program = programs.build("chain.rs", "pointers", &["-O", "-Csymbol-mangling-version=v0", FORCED]);
    all_are(&stacks(&programs, FP, &[text(&program)], CALLS), &expected);
}

const FORCED: &str = "-Cforce-frame-pointers=yes";

#[test]
fn a_library_that_is_loaded_again_and_again() {
    let programs = Programs::new();
    let expected = ["plugin_leaf", "plugin_entry", "calls_plugin", "main"];
    for (flags, options) in [(OMITS, DWARF), (KEEPS, FP)] {
        let plugin = programs.build("plugin.c", "plugin.so", &[flags, &["-shared", "-fPIC"]].concat());
        let program = programs.build("dlopens.c", "dlopens", &[flags, &["-ldl"]].concat());
        all_are(&stacks(&programs, options, &[text(&program), text(&plugin)], CALLS), &expected);
    }
}

#[test]
fn code_made_at_run_time() {
    let programs = Programs::new();
    let expected = ["leaf", "jit_inner", "jit_outer", "main"];
    for (flags, options) in [(OMITS, DWARF), (KEEPS, FP)] {
        let program = programs.build("jit.c", "jit", flags);
        for naming in ["map", "dump"] {
            all_are(&stacks(&programs, options, &[text(&program), naming, "linger"], CALLS), &expected);
        }
    }
}

#[test]
fn code_that_was_moved_to_huge_pages() {
    let programs = Programs::new();
    for (flags, options) in [(OMITS, DWARF), (KEEPS, FP)] {
        let program = programs.build("remapped.c", "remapped", flags);
        all_are(&stacks(&programs, options, &[text(&program), "linger"], CALLS), &CHAIN);
    }
}

#[test]
fn a_program_that_has_ended() {
    let programs = Programs::new();
    for (flags, options) in [(OMITS, DWARF), (KEEPS, FP)] {
        let program = programs.build("chain.c", "chain", flags);
        let (options, command, dir) = (options.to_vec(), vec![text(&program)], programs.dir());
        let stacks = Stacks { event: RARE, options, resolve: ResolveTime::AtExit, command, dir, calls: TWICE };
        all_are(&stacks.trace(), &CHAIN);
    }
}

#[test]
fn a_program_whose_file_is_removed_or_replaced() {
    let programs = Programs::new();
    for (flags, options) in [(OMITS, DWARF), (KEEPS, FP)] {
        let program = programs.build("replaced.c", "replaced", flags);
        all_are(&stacks(&programs, options, &[text(&program), "linger"], CALLS), &CHAIN);
        // The other program contains other functions at these addresses.
        let program = programs.build("replaced.c", "replaced", flags);
        let other = programs.build("aligned.c", "other", flags);
        all_are(&stacks(&programs, options, &[text(&program), text(&other), "linger"], CALLS), &CHAIN);
    }
}

#[test]
fn a_program_in_a_mount_namespace_of_its_own() {
    let (programs, hidden) = (Programs::new(), Programs::new());
    // Outside of the namespace, another program is at the same path.
    hidden.build("aligned.c", "chain", OMITS);
    for (flags, options) in [(OMITS, DWARF), (KEEPS, FP)] {
        let program = programs.build("replaced.c", "replaced", flags);
        let script = "mount -t tmpfs none \"$2\" && cp \"$1\" \"$2/chain\" && cp \"$1\" \"$2/gone\" && exec \"$2/chain\" \"$2/gone\" linger";
        let command = ["unshare", "-m", "sh", "-c", script, "sh", text(&program), text(hidden.dir())];
        // The shell makes the same system call, so the filter selects the program's comm.
        let (event, options) = ("syscalls:sys_enter_getppid/comm==\"chain\"/stack/", options.to_vec());
        let stacks = Stacks {
            event,
            options,
            resolve: ResolveTime::InHandler,
            command: command.to_vec(),
            dir: programs.dir(),
            calls: CALLS,
        };
        all_are(&stacks.trace(), &CHAIN);
    }
}

#[test]
fn system_calls_of_the_vdso() {
    let programs = Programs::new();
    let program = programs.build("vdso.c", "vdso", OMITS);
    let event = "syscalls:sys_enter_clock_gettime/which_clock==2/stack/";
    let (options, command, dir) = (DWARF.to_vec(), vec![text(&program)], programs.dir());
    let stacks = Stacks { event, options, resolve: ResolveTime::InHandler, command, dir, calls: CALLS };
    for frames in stacks.trace() {
        let names = names(&frames, "main");
        assert!(names.ends_with(&["asks", "main"]), "{frames:#?}");
        assert_eq!(frames[0].dso, "[vdso]", "{frames:#?}");
        assert!(names[0].contains("clock_gettime"), "{frames:#?}");
    }
}
