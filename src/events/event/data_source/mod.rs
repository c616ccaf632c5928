//! The text of a sample's data source, as `perf script` prints it and passes it to scripts.

/// The names of the bits of `mem_lvl`. A hit or a miss is printed after the levels.
const LEVELS: [&str; 14] = [
    "N/A",
    "HIT",
    "MISS",
    "L1",
    "LFB/MAB",
    "L2",
    "L3",
    "Local RAM",
    "Remote RAM (1 hop)",
    "Remote RAM (2 hops)",
    "Remote Cache (1 hop)",
    "Remote Cache (2 hops)",
    "I/O",
    "Uncached",
];

/// The names of `mem_lvl_num`; empty if the number tells no level.
const NUMBERED_LEVELS: [&str; 16] = [
    "",
    "L1",
    "L2",
    "L3",
    "L4",
    "L2 MHB",
    "Memory-side Cache",
    "Unknown level 7",
    "Uncached",
    "CXL",
    "I/O",
    "Any cache",
    "LFB/MAB",
    "RAM",
    "PMEM",
    "",
];

/// The names of the bits of `mem_snoop`.
const SNOOPS: [&str; 5] = ["N/A", "None", "Hit", "Miss", "HitM"];

/// The names of the bits of `mem_dtlb`. A hit or a miss is printed after the other bits.
const TLBS: [&str; 7] = ["N/A", "HIT", "MISS", "L1", "L2", "Walker", "Fault"];

/// The bit of an unknown level, in `mem_lvl`.
const NOT_AVAILABLE: u64 = 1;

/// The bits for a hit and for a miss, in `mem_lvl` and in `mem_dtlb`.
const HIT: u64 = 1 << 1;
const MISS: u64 = 1 << 2;

/// The data source that perf prints for samples without one: every part is N/A.
pub const NO_DATA_SOURCE: u64 = 0x1e_0508_0021;

/// Returns the text of a data source: operation, level, snoop, TLB, lock, and why an access was blocked. The bits are those
/// of `union perf_mem_data_src` in `include/uapi/linux/perf_event.h`.
pub fn data_source_text(source: u64) -> String {
    let bits = |at: u32, count: u32| source >> at & ((1 << count) - 1);
    let mut text = String::from("|OP ");
    let op = bits(0, 5);
    let ops = [(1, "N/A"), (2, "LOAD"), (4, "STORE"), (8, "PFETCH"), (16, "EXEC")];
    text.push_str(ops.iter().find(|(bit, _)| op & bit != 0).map_or("No", |(_, name)| name));
    text.push_str("|LVL ");
    level(&mut text, bits(5, 14), bits(33, 4), bits(37, 1), bits(43, 3));
    text.push_str("|SNP ");
    let mut snoops = named(bits(19, 5), &SNOOPS);
    snoops.extend(named(bits(38, 2), &["Fwd", "Peer"]));
    text.push_str(&joined(&snoops));
    text.push_str("|TLB ");
    let tlb = bits(26, 7);
    text.push_str(&joined(&named(tlb & !(HIT | MISS), &TLBS)));
    hit_or_miss(&mut text, tlb);
    let lock = bits(24, 2);
    text.push_str(if lock & 1 != 0 {
        "|LCK N/A"
    } else if lock & 2 != 0 {
        "|LCK Yes"
    } else {
        "|LCK No"
    });
    let blocked = bits(40, 3);
    text.push_str("|BLK ");
    if blocked == 0 || blocked & 1 != 0 {
        text.push_str(" N/A");
    } else {
        named(blocked, &["", " Data", " Addr"]).iter().for_each(|name| text.push_str(name));
    }
    text
}

/// Appends the level of the memory hierarchy. Old kernels report the level as bits (`levels`). Recent kernels also report
/// the level as a number (`number`), and perf then shows only this number.
fn level(text: &mut String, levels: u64, number: u64, remote: u64, hops: u64) {
    let by_number = NUMBERED_LEVELS.get(number as usize).copied().unwrap_or_default();
    let name = match by_number {
        "" => named(levels & !(HIT | MISS | NOT_AVAILABLE), &LEVELS).join(" or "),
        name => name.to_owned(),
    };
    if name.is_empty() {
        return text.push_str("N/A");
    }
    if !by_number.is_empty() {
        text.push_str(if remote != 0 { "Remote " } else { "" });
        text.push_str(match hops {
            1 => "core, same node ",
            2 => "node, same socket ",
            3 => "socket, same board ",
            4 => "board ",
            _ => "",
        });
    }
    text.push_str(&name);
    text.push_str(match (levels & HIT, levels & MISS) {
        (0, 0) => " ",
        (0, _) => " miss",
        _ => " hit",
    });
}

fn hit_or_miss(text: &mut String, bits: u64) {
    if bits & HIT != 0 {
        text.push_str(" hit");
    }
    if bits & MISS != 0 {
        text.push_str(" miss");
    }
}

fn named(bits: u64, names: &[&'static str]) -> Vec<&'static str> {
    names.iter().enumerate().filter(|(at, _)| bits >> at & 1 != 0).map(|(_, &name)| name).collect()
}

fn joined(names: &[&str]) -> String {
    if names.is_empty() { "N/A".to_owned() } else { names.join(" or ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Data sources, each with the text that perf 7.2 prints: one for every bit of every member, and random ones. Left out
    /// are data sources for which perf prints `(null)` (unknown numbers of hops), and those whose text perf truncates.
    const OF_PERF: &str = include_str!("of_perf.txt");

    #[test]
    fn texts_are_those_of_perf() {
        for line in OF_PERF.lines() {
            let (source, text) = line.split_once(' ').unwrap();
            assert_eq!(data_source_text(u64::from_str_radix(source, 16).unwrap()).trim_end(), text, "{source}");
        }
    }

    #[test]
    fn the_text_of_a_sample_without_a_data_source_is_that_of_perf() {
        assert_eq!(data_source_text(NO_DATA_SOURCE), "|OP N/A|LVL N/A|SNP N/A|TLB N/A|LCK N/A|BLK  N/A");
    }
}
