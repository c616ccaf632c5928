//! The lines that the recorder prints at the end: how many samples the recording has, its size, and its losses.

use perf_prof_recordings::write::WriteError;
use perf_prof_system::output;

use crate::{engine::losses, plan::Verbosity};

/// The outcome of a recording.
#[derive(Debug)]
pub struct Summary {
    pub(super) name: String,
    /// The number of samples in the recording.
    pub samples: u64,
    /// The number of samples that the kernel dropped.
    pub(super) lost: u64,
    /// How many of the lost samples the kernel never tried to write.
    pub(super) unwritten: u64,
    /// The number of samples that were not written because a write had failed.
    pub dropped: u64,
    /// The number of samples with the id of another program's event that were left out, because their own event is
    /// unknown (see `say_left_out`).
    pub(super) left_out: u64,
    /// The size of the recording.
    pub bytes: u64,
    /// Why the recording is cut off; `None` if it is complete. A pipe whose reader closes it early counts as complete.
    pub failure: Option<WriteError>,
}

impl Summary {
    /// Reports the number of samples that were left out. With a script, the end of the run reports them instead.
    pub fn report_left_out(&self) {
        if self.left_out != 0 {
            output::say(format_args!(
                "{} not in {}: another program counts the same software event, and the kernel gave these \
                 samples the id of that program's event; select only one software event, so that they can be recorded",
                output::counted(self.left_out, "sample is", "samples are"),
                self.name
            ));
        }
    }

    /// Reports the size, the samples and the losses of the recording. `more` is inserted after 'a larger -m' in the
    /// advice against losses, for example ', --threads'. It may be empty.
    pub fn report(&self, more: &str, verbosity: Verbosity) {
        let Summary { name, samples, lost, unwritten, dropped, .. } = self;
        if *dropped != 0 && self.failure.is_some() {
            let samples = output::counted(*dropped, "sample", "samples");
            output::say(format_args!("{name} is incomplete: {samples} could not be written"));
        }
        if verbosity > Verbosity::Quiet {
            let share = match lost {
                0 if *dropped != 0 => format!("{dropped} not written, 0 lost before"),
                0 => "0 lost".to_owned(),
                lost => {
                    let percent = 100.0 * *lost as f64 / (samples + lost) as f64;
                    let help = match lost == unwritten {
                        true => String::new(),
                        false => format!(": a larger -m{more} or fewer events help"),
                    };
                    format!("{lost} lost ({percent:.1} %){help}")
                }
            };
            let samples = output::counted(*samples, "sample", "samples");
            output::say(format_args!("{name}: {samples} in {}, {share}", bytes(self.bytes)));
            losses::unwritten(*unwritten, *lost).iter().for_each(output::say);
        }
    }
}

/// Formats a size in bytes, with a suitable unit.
pub fn bytes(size: u64) -> String {
    match size {
        0..10_240 => format!("{size} bytes"),
        10_240..10_485_760 => format!("{} KiB", size >> 10),
        _ => format!("{} MiB", size >> 20),
    }
}
