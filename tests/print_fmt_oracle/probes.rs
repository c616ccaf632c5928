//! Probes on a function of the test program, which are removed when the test ends.

use std::{fs, io, io::Write};

const EVENTS: &str = "/sys/kernel/tracing/uprobe_events";

pub struct Probes {
    group: String,
}

impl Probes {
    /// Defines probes on the entry and the return of a function with the signature of `probed`. Without uprobes in the
    /// kernel, defines none.
    pub fn new(function: *const ()) -> Probes {
        let probes = Probes { group: format!("perf_prof_oracle_{}", std::process::id()) };
        if let Some(place) = place(function as u64) {
            let group = &probes.group;
            let arguments = "number=%di:u64 hex=%di:x64 small=%si:s32 short=%dx:x16 text=+0(%cx):string \
                             bytes=+0(%cx):u8[4] bits=%di:b4@60/64 letter=+0(%cx):char";
            let added = append(&format!("p:{group}/enter {place} {arguments}"))
                .and_then(|()| append(&format!("r:{group}/leave {place} result=$retval:u64")));
            if let Err(error) = added {
                println!("without probes: {error}");
            }
        }
        probes
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        // The instance of another test has enabled all events, including these. An enabled event cannot be removed.
        let uses = format!("/sys/kernel/tracing/instances/perf_prof_*/events/{}/enable", self.group);
        glob::glob(&uses).unwrap().flatten().for_each(|enable| drop(fs::write(enable, "0")));
        for event in ["enter", "leave"] {
            let _ = append(&format!("-:{}/{event}", self.group));
        }
    }
}

fn append(line: &str) -> io::Result<()> {
    let error = |error: io::Error| io::Error::new(error.kind(), format!("{line}: {error}"));
    fs::OpenOptions::new().append(true).open(EVENTS).and_then(|mut file| file.write_all(line.as_bytes())).map_err(error)
}

/// Returns the file and the offset from which an address of this process is mapped, as `FILE:OFFSET`.
fn place(addr: u64) -> Option<String> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        let offset = u64::from_str_radix(words.nth(1)?, 16).ok()?;
        let path = words.nth(2)?;
        (start..end).contains(&addr).then(|| format!("{path}:{:#x}", addr - start + offset))
    })
}
