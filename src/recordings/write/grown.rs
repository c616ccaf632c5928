//! Corrects the sizes of records. If several events get the same PERF_RECORD_KSYMBOL or PERF_RECORD_BPF_EVENT, the
//! kernel states a size that is too large in the record. perf then reads a wrong id at the end of the record, and
//! stops.

use perf_prof_format::record::{Records, TrailerLayout};

/// Returns the records without the bytes after their sample ids.
pub fn cut(records: &[u8], trailer: &TrailerLayout) -> Vec<u8> {
    let mut out = Vec::with_capacity(records.len());
    for record in Records::new(records) {
        let end = trailer.end(record);
        let start = out.len();
        out.extend_from_slice(&record[..end]);
        // For a record without additional bytes, this writes the same size again.
        if let (Ok(size), Some(place)) = (u16::try_from(end), out.get_mut(start + 6..start + 8)) {
            place.copy_from_slice(&size.to_ne_bytes());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use perf_prof_format::{
        abi::{PERF_RECORD_BPF_EVENT, PERF_RECORD_KSYMBOL, PERF_SAMPLE_IDENTIFIER, PERF_SAMPLE_TIME},
        record::{Record, record_type},
    };

    use super::*;

    /// Returns a record with a sample id, and with meaningless bytes after it.
    fn record(kind: u32, body: &[u8], behind: usize) -> Vec<u8> {
        let sample_id = [7u64, 9].map(u64::to_ne_bytes).concat();
        let size = 8 + body.len() + sample_id.len() + behind;
        let header = [&kind.to_ne_bytes()[..], &[0; 2], &(size as u16).to_ne_bytes()].concat();
        [header, body.to_vec(), sample_id, vec![0xaa; behind]].concat()
    }

    #[test]
    fn records_end_behind_their_sample_ids() {
        let trailer = TrailerLayout::new(PERF_SAMPLE_TIME | PERF_SAMPLE_IDENTIFIER);
        let symbol = [&[0; 16][..], b"bpf_prog_1\0\0\0\0\0\0"].concat();
        // The name fills its 8 bytes completely, so the NUL is in 8 more bytes.
        let full = [&[0; 16][..], b"bpf_prog\0\0\0\0\0\0\0\0"].concat();
        let kinds =
            [(PERF_RECORD_KSYMBOL, &symbol), (PERF_RECORD_KSYMBOL, &full), (PERF_RECORD_BPF_EVENT, &vec![0; 16])];
        let written = |behind| kinds.iter().flat_map(|(kind, body)| record(*kind, body, behind)).collect::<Vec<u8>>();
        let right = written(0);
        for behind in [0, 16, 32, 160] {
            let grown = written(behind);
            let times: Vec<_> = Records::new(&grown).map(|record| trailer.time(record)).collect();
            assert_eq!(times, [Some(7); 3]);
            assert_eq!(cut(&grown, &trailer), right, "{behind}");
        }
        assert!(
            Records::new(&right).all(|record| trailer.end(record) == record.len() && trailer.id(record) == Some(9))
        );
    }

    #[test]
    fn other_records_and_damaged_ones_stay_as_they_are() {
        let trailer = TrailerLayout::new(PERF_SAMPLE_TIME);
        let comm = record(3, b"\0\0\0\0\0\0\0\0a name\0\0", 32);
        // The name in this record has no NUL at its end.
        let mut symbol = record(PERF_RECORD_KSYMBOL, &[b'x'; 64], 0);
        symbol.iter_mut().skip(8).for_each(|byte| *byte |= 1);
        let all = [comm, symbol, record(PERF_RECORD_BPF_EVENT, &[], 0)].concat();
        assert_eq!(cut(&all, &trailer), all);
        let kinds: Vec<u32> = Records::new(&all).map(record_type).collect();
        assert_eq!((kinds, matches!(Record::parse(&all), Record::Comm { .. })), (vec![3, 17, 18], true));
    }
}
