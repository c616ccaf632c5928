//! The result of a part, and its encoding for other processes, which may run on other machines.
//!
//! All numbers are little-endian. The order is: [`MAGIC`], [`VERSION`], eight numbers, the four lists of the counts,
//! the frames without names, the descriptions of damage, and the script's partial result. A list or a text begins with
//! its length.

use std::{io, str};

use perf_prof_symbols::symbol::UnnamedFrames;
use thiserror::Error;

use super::PartCounts;
use crate::engine::{
    exit_status::Callbacks,
    sample_counts::{ReadExtent, SampleCounts},
};

const MAGIC: [u8; 8] = *b"perfpart";

/// The version of the encoding. It is increased if older versions cannot decode the result.
const VERSION: u64 = 3;

/// The result of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartResult {
    /// The counts.
    pub counts: PartCounts,
    /// The number of lost events.
    pub lost: u64,
    /// How many samples were delivered or left out.
    pub sample_counts: SampleCounts,
    /// The time up to which the reader read the recording, in ns since the Unix epoch; 0 if nobody needs it.
    pub reached: u64,
    /// Says whether a callback raised an exception.
    pub callbacks: Callbacks,
    /// The frames without names.
    pub unnamed_frames: UnnamedFrames,
    /// Descriptions of the damage that was found in the recording.
    pub damage: Vec<String>,
    /// The pickled return value of the script's `__partial__()`.
    pub partial: Vec<u8>,
}

/// Why the result of a part cannot be decoded.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PartResultError {
    /// The bytes do not begin with the magic.
    #[error("it is not the result of a part")]
    Magic,
    /// A newer perf-prof has written the result.
    #[error("it was written by a newer perf-prof (version {0} of the format; this one reads version {VERSION})")]
    NewerVersion(u64),
    /// The end of the result is missing.
    #[error("unexpected end of file")]
    CutOff,
    /// A part of the result has an impossible value. The text names this part.
    #[error("the {0} is damaged")]
    Damaged(&'static str),
}

impl PartResult {
    /// Writes the encoded result.
    pub fn write(&self, to: &mut impl io::Write) -> io::Result<()> {
        let PartResult { counts, lost, sample_counts, reached, callbacks, unnamed_frames, damage, partial } = self;
        let SampleCounts { delivered, unknown_ids, guests, reach } = *sample_counts;
        let (raised, short) = (*callbacks == Callbacks::Raised, reach == ReadExtent::Short);
        let mut bytes = MAGIC.to_vec();
        let mut put = |words: &[u64]| words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        put(&[VERSION, *lost, *reached, raised.into(), delivered, unknown_ids, guests, short.into(), counts.last]);
        for list in [&counts.stats, &counts.lost, &counts.lost_per_ring, &counts.incomplete] {
            put(&[list.len() as u64]);
            put(list);
        }
        for text in [unnamed_frames.text(), damage.iter().map(|warning| format!("{warning}\0")).collect()] {
            bytes.extend((text.len() as u64).to_le_bytes());
            bytes.extend(text.as_bytes());
        }
        bytes.extend((partial.len() as u64).to_le_bytes());
        to.write_all(&bytes)?;
        to.write_all(partial)
    }

    /// Decodes a result.
    pub fn decode(mut bytes: Vec<u8>) -> Result<PartResult, PartResultError> {
        let mut rest = Rest(&bytes);
        if !MAGIC.starts_with(&bytes[..bytes.len().min(MAGIC.len())]) {
            return Err(PartResultError::Magic);
        }
        rest.bytes(MAGIC.len() as u64)?;
        match rest.word()? {
            VERSION => {}
            version if version > VERSION => return Err(PartResultError::NewerVersion(version)),
            _ => return Err(PartResultError::Damaged("version")),
        }
        let (lost, reached, raised) = (rest.word()?, rest.word()?, rest.flag("flag of exceptions")?);
        let (delivered, unknown_ids, guests) = (rest.word()?, rest.word()?, rest.word()?);
        let reach = if rest.flag("flag of the end")? { ReadExtent::Short } else { ReadExtent::End };
        let last = rest.word()?;
        let [stats, lost_per_event, lost_per_ring, incomplete] =
            [rest.words()?, rest.words()?, rest.words()?, rest.words()?];
        let counts = PartCounts { stats, lost: lost_per_event, lost_per_ring, incomplete, last };
        let mut unnamed_frames = UnnamedFrames::default();
        unnamed_frames.add_text(rest.text("list of files")?);
        let damage = rest.text("list of warnings")?.split_terminator('\0').map(str::to_owned).collect();
        let length = rest.word()?;
        let partial = rest.bytes(length)?.len();
        if !rest.0.is_empty() {
            return Err(PartResultError::Damaged("end"));
        }
        bytes.drain(..bytes.len() - partial);
        Ok(PartResult {
            counts,
            lost,
            sample_counts: SampleCounts { delivered, unknown_ids, guests, reach },
            reached,
            callbacks: if raised { Callbacks::Raised } else { Callbacks::Returned },
            unnamed_frames,
            damage,
            partial: bytes,
        })
    }
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn bytes(&mut self, length: u64) -> Result<&'a [u8], PartResultError> {
        let length = usize::try_from(length).map_err(|_| PartResultError::CutOff)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(PartResultError::CutOff)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn word(&mut self) -> Result<u64, PartResultError> {
        let (word, rest) = self.0.split_first_chunk().ok_or(PartResultError::CutOff)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*word))
    }

    fn flag(&mut self, what: &'static str) -> Result<bool, PartResultError> {
        match self.word()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(PartResultError::Damaged(what)),
        }
    }

    fn text(&mut self, what: &'static str) -> Result<&'_ str, PartResultError> {
        let length = self.word()?;
        str::from_utf8(self.bytes(length)?).map_err(|_| PartResultError::Damaged(what))
    }

    fn words(&mut self) -> Result<Vec<u64>, PartResultError> {
        let length = self.word()?.checked_mul(8).ok_or(PartResultError::CutOff)?;
        let (words, _) = self.bytes(length)?.as_chunks();
        Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use proptest::prelude::*;

    use perf_prof_symbols::symbol::Reason;

    use super::*;
    use crate::{dividing::Results, plan::SplitBy};

    fn encoded(result: &PartResult) -> Vec<u8> {
        let mut bytes = Vec::new();
        result.write(&mut bytes).unwrap();
        bytes
    }

    fn unnamed(paths: &[String]) -> UnnamedFrames {
        let mut frames = UnnamedFrames::default();
        for (number, path) in paths.iter().enumerate() {
            let (path, build_id) = (path.clone(), "12".into());
            frames.add(&if number % 2 == 0 {
                Reason::NoBuildId { path }
            } else {
                Reason::BuildNotFound { path, build_id }
            });
        }
        frames
    }

    fn example() -> PartResult {
        PartResult {
            counts: PartCounts {
                stats: vec![7, 0, 0x0102_0304_0506_0708],
                lost: vec![9],
                lost_per_ring: vec![4, 5],
                incomplete: vec![3],
                last: 1_000_000_007,
            },
            lost: 9,
            sample_counts: SampleCounts { delivered: 7, unknown_ids: 1, guests: 2, reach: ReadExtent::Short },
            reached: 1_700_000_000_000_000_000,
            callbacks: Callbacks::Raised,
            unnamed_frames: unnamed(&["/usr/bin/a b".to_owned()]),
            damage: vec!["x: cut".to_owned()],
            partial: b"\x80\x05K\x01.".to_vec(),
        }
    }

    #[test]
    fn the_bytes_stay_those_of_the_version() {
        let rows: Vec<String> = encoded(&example())
            .chunks(16)
            .map(|row| {
                let hex: String = row.iter().map(|byte| format!("{byte:02x}")).collect();
                let text = row.iter().map(|&byte| if byte.is_ascii_graphic() { char::from(byte) } else { '.' });
                format!("{hex:32} {}", text.collect::<String>())
            })
            .collect();
        expect![[r#"
            70657266706172740300000000000000 perfpart........
            090000000000000000002a36fe9c9717 ..........*6....
            01000000000000000700000000000000 ................
            01000000000000000200000000000000 ................
            010000000000000007ca9a3b00000000 ...........;....
            03000000000000000700000000000000 ................
            00000000000000000807060504030201 ................
            01000000000000000900000000000000 ................
            02000000000000000400000000000000 ................
            05000000000000000100000000000000 ................
            03000000000000001100000000000000 ................
            3f2031202f7573722f62696e2f612062 ?.1./usr/bin/a.b
            000700000000000000783a2063757400 .........x:.cut.
            050000000000000080054b012e       ..........K.."#]]
        .assert_eq(&rows.join("\n"));
    }

    #[test]
    fn other_bytes_are_refused_with_the_reason() {
        let bytes = encoded(&example());
        let changed = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            PartResult::decode(bytes).unwrap_err()
        };
        assert_eq!(changed(0, b'P'), PartResultError::Magic);
        assert_eq!(changed(8, 4), PartResultError::NewerVersion(4));
        assert_eq!(changed(8, 0), PartResultError::Damaged("version"));
        assert_eq!(changed(32, 2), PartResultError::Damaged("flag of exceptions"));
        // The length of a list is larger than the number of bytes.
        assert_eq!(changed(87, 0xff), PartResultError::CutOff);
        assert_eq!(PartResult::decode([&bytes[..], b"x"].concat()), Err(PartResultError::Damaged("end")));
        assert_eq!(PartResult::decode(b"PERFILE2".to_vec()), Err(PartResultError::Magic));
    }

    fn results() -> impl Strategy<Value = PartResult> {
        let counts = (prop::array::uniform4(prop::collection::vec(any::<u64>(), 0..9)), any::<u64>());
        let samples = (any::<u64>(), any::<u64>(), any::<u64>(), any::<bool>());
        let rest = (prop::collection::vec("/[^\0]*", 0..4), prop::collection::vec(any::<u8>(), 0..50));
        let all = (counts, samples, any::<(u64, u64, bool)>(), rest);
        all.prop_map(
            |(
                (lists, last),
                (delivered, unknown_ids, guests, is_short),
                (lost, reached, has_raised),
                (paths, partial),
            )| {
                let [stats, stored, lost_per_ring, incomplete] = lists;
                let reach = if is_short { ReadExtent::Short } else { ReadExtent::End };
                PartResult {
                    counts: PartCounts { stats, lost: stored, lost_per_ring, incomplete, last },
                    lost,
                    sample_counts: SampleCounts { delivered, unknown_ids, guests, reach },
                    reached,
                    callbacks: if has_raised { Callbacks::Raised } else { Callbacks::Returned },
                    unnamed_frames: unnamed(&paths),
                    damage: paths,
                    partial,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn a_decoded_result_is_the_one_that_was_written(result in results()) {
            prop_assert_eq!(PartResult::decode(encoded(&result)), Ok(result));
        }

        #[test]
        fn every_cut_is_an_error(result in results()) {
            let bytes = encoded(&result);
            for length in 0..bytes.len() {
                prop_assert_eq!(PartResult::decode(bytes[..length].to_vec()), Err(PartResultError::CutOff));
            }
        }

        #[test]
        fn no_bytes_panic(start in results(), at in any::<prop::sample::Index>(), random in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut bytes = encoded(&start);
            bytes.truncate(at.index(bytes.len()));
            bytes.extend(&random);
            let mut all = Results::new(SplitBy::Time);
            for bytes in [random, bytes] {
                PartResult::decode(bytes).into_iter().for_each(|result| all.add(result));
            }
        }
    }
}
