//! A run does not disturb other programs, and leaves nothing in the kernel.

use std::{fs, process::Stdio};

use super::needs_bpf;
use crate::harness::{
    counting::{CALL, objects, words},
    machine::{Need, needs},
    recording::Folder,
    run::{PATIENCE, perf_prof, stdout, with_patience},
    wait::Killed,
};

/// Starts `perf-prof top` on all tasks, and waits until its BPF programs are attached.
fn top_of(event: &str) -> Killed {
    let mut command = perf_prof(&["top", event, "--in-kernel", "always", "-v"]);
    let child = with_patience(&mut command, PATIENCE).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = Killed(child.spawn().unwrap());
    let mut said = std::io::BufReader::new(child.0.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("counted in the kernel") {
        line.clear();
        assert_ne!(std::io::BufRead::read_line(&mut said, &mut line).unwrap(), 0);
    }
    child
}

/// A BPF program that returned 0 would suppress the records of all other tracers. The kernel also omits events while
/// somebody reads a BPF map on the CPU, so a recording with fewer records is repeated.
#[test]
fn a_recording_of_the_same_tracepoint_has_all_records() {
    needs_bpf();
    needs([Need::Perf]);
    let _top = top_of(CALL);
    let folder = Folder::new();
    let path = folder.path("calls.data");
    let recorded = || {
        let mut record = std::process::Command::new("perf");
        // Build ids are not needed to count records, and perf 6.1 may abort while it reads them.
        record.args(["record", "-q", "-B", "-e", CALL, "-o"]).arg(&path).arg("--").args(words(20_000, 0, 0));
        stdout(&record.output().unwrap());
        let output = perf_prof(&["top", "--json", "--input"]).arg(&path).output().unwrap();
        objects(&stdout(&output))[0]["events"].as_u64().unwrap()
    };
    let most = (0..10).map(|_| recorded()).find(|&events| events == 20_000);
    assert_eq!(most, Some(20_000));
}

/// Returns whether the kernel has a BPF program with this id.
pub fn is_program(id: u32) -> bool {
    const BPF_PROG_GET_FD_BY_ID: i64 = 13;
    let attr = [id, 0, 0, 0u32];
    // SAFETY: the command reads these 16 bytes, and a descriptor that it returns is closed once.
    unsafe {
        let descriptor = libc::syscall(libc::SYS_bpf, BPF_PROG_GET_FD_BY_ID, attr.as_ptr(), 16);
        descriptor >= 0 && libc::close(descriptor as i32) == 0
    }
}

/// Returns the number of BPF programs with this name in the kernel.
fn programs(name: &str) -> usize {
    /// The offset of the name in `struct bpf_prog_info`.
    const NAME: usize = 64;
    const BPF_PROG_GET_NEXT_ID: i64 = 11;
    const BPF_PROG_GET_FD_BY_ID: i64 = 13;
    const BPF_OBJ_GET_INFO_BY_FD: i64 = 15;
    let (mut found, mut attr) = (0, [0u32; 4]);
    // SAFETY: each command reads and writes these 16 bytes, and the kernel writes no more than 80 bytes of facts.
    unsafe {
        let bpf = |command: i64, attr: &mut [u32; 4]| libc::syscall(libc::SYS_bpf, command, attr.as_mut_ptr(), 16);
        while bpf(BPF_PROG_GET_NEXT_ID, &mut attr) == 0 {
            let id = attr[1];
            let descriptor = bpf(BPF_PROG_GET_FD_BY_ID, &mut [id, 0, 0, 0]);
            if descriptor >= 0 {
                let mut facts = [0u64; 10];
                let address = facts.as_mut_ptr() as u64;
                let mut of_program = [descriptor as u32, 80, address as u32, (address >> 32) as u32];
                bpf(BPF_OBJ_GET_INFO_BY_FD, &mut of_program);
                let bytes: Vec<u8> = facts.iter().flat_map(|word| word.to_ne_bytes()).collect();
                found += usize::from(bytes[NAME..].starts_with(name.as_bytes()));
                libc::close(descriptor as i32);
            }
            attr = [id, 0, 0, 0];
        }
    }
    found
}

#[test]
fn nothing_stays_in_the_kernel_after_a_run_that_was_killed() {
    needs_bpf();
    // No other test traces this call.
    const NAME: &str = "sys_enter_setho";
    let top = top_of("syscalls:sys_enter_sethostname");
    assert_eq!(programs(NAME), 1);
    let maps = || {
        let links = fs::read_dir(format!("/proc/{}/fd", top.0.id())).unwrap();
        links
            // A descriptor may be closed while they are listed.
            .filter_map(|link| fs::read_link(link.unwrap().path()).ok())
            .filter(|link| link.ends_with("anon_inode:bpf-map"))
            .count()
    };
    assert!(maps() > 0);
    drop(top);
    // The kernel frees BPF programs with a delay.
    let gone = || (programs(NAME) == 0).then_some(());
    let waits = (0..200).find_map(|_| {
        gone().or_else(|| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            None
        })
    });
    assert!(waits.is_some(), "{}", programs(NAME));
}
