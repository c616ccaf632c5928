//! Damaged files: cut off at any byte, or with any wrong bytes. The results do not matter, but reading must not crash.

use std::sync::Arc;

use perf_prof_symbols::symbol::{
    dwarf::Dwarf,
    elf::{Elf, Symbols, mini_debug_info},
};
use proptest::prelude::*;
use tempfile::tempdir;

use crate::harness::{
    compile::{compile, tool},
    running::PROGRAM,
};

/// The memory limit. Undamaged files of this size need less.
const LIMIT: usize = 64 << 20;

/// Reads everything that perf-prof reads of a file. Returns the number of symbols.
fn use_it(bytes: &[u8]) -> Option<usize> {
    let elf = Elf::of_bytes(Arc::from(bytes)).ok()?;
    let mini = mini_debug_info(&elf, LIMIT).and_then(Result::ok);
    let parts: Vec<&Elf> = [Some(&elf), mini.as_ref()].into_iter().flatten().collect();
    let symbols = Symbols::read(&parts, LIMIT).ok()?;
    let dwarf = Dwarf::read(&elf, None, LIMIT);
    for found in symbols.iter().take(200) {
        symbols.lookup(found.start.wrapping_add(1));
        if let Ok(dwarf) = &dwarf {
            let _ = dwarf.frames(found.start.wrapping_add(1));
        }
    }
    Some(symbols.len())
}

/// Returns a small program with all kinds of sections.
fn program() -> Vec<u8> {
    let folder = tempdir().unwrap();
    let program = compile(folder.path(), "p", PROGRAM, &["-g", "-O1", "-Wl,--build-id=sha1"]);
    let (path, mini) = (program.to_str().unwrap(), folder.path().join("mini"));
    let mini = mini.to_str().unwrap();
    tool("objcopy", &["-S", "--keep-symbol=local_one", path, mini]);
    tool("xz", &[mini]);
    tool("objcopy", &["--add-section", &format!(".gnu_debugdata={mini}.xz"), path]);
    std::fs::read(&program).unwrap()
}

#[test]
fn files_that_are_cut_off() {
    let whole = program();
    assert!(use_it(&whole).unwrap() > 5);
    let sizes = (0..400).chain((400..whole.len()).step_by(37));
    for size in sizes {
        use_it(&whole[..size]);
    }
    // A file may become shorter after it was opened.
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, &whole).unwrap();
    let elf = Elf::open(file.path()).unwrap();
    file.as_file().set_len(1000).unwrap();
    assert!(Symbols::read(&[&elf], LIMIT).is_err());
}

/// A damaged symbol table may contain a function at this address. The address after it must not overflow.
#[test]
fn the_last_address_of_all_is_in_no_function() {
    let whole = program();
    let elf = Elf::of_bytes(Arc::from(whole)).unwrap();
    let dwarf = Dwarf::read(&elf, None, LIMIT).unwrap();
    assert_eq!(dwarf.frames(u64::MAX).unwrap(), []);
    let main = Symbols::read(&[&elf], LIMIT).unwrap().iter().find(|found| found.name == b"main").unwrap().start;
    assert_eq!(dwarf.frames(main).unwrap().len(), 1);
}

#[test]
fn files_with_wrong_bytes() {
    let whole = program();
    let flips = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..30);
    // Wrong bytes matter most in headers, so more of them are put there.
    let head = prop::collection::vec((0usize..1024, any::<u8>()), 0..4);
    let tail = prop::collection::vec((0usize..2400, prop_oneof![Just(0xffu8), any::<u8>()]), 0..4);
    proptest!(ProptestConfig::with_cases(300), |(flips in flips, head in head, tail in tail)| {
        let mut bytes = whole.clone();
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        head.iter().for_each(|&(at, byte)| bytes[at] = byte);
        let size = bytes.len();
        tail.iter().for_each(|&(at, byte)| bytes[size - 1 - at] = byte);
        use_it(&bytes);
    });
}

proptest! {
    #[test]
    fn bytes_that_only_begin_like_a_file(mut bytes in any::<Vec<u8>>(), class in 0u8..4, order in 0u8..4) {
        let mut file = vec![0x7f, b'E', b'L', b'F', class, order, 1];
        file.append(&mut bytes);
        use_it(&file);
    }
}
