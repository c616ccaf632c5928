//! Gives up the right to read all files, before a user's code runs in this process.

use perf_prof_system::{capability, tracefs::Tracefs};

use super::select::Selected;

/// The files in tracefs that a run reads after its start, in addition to the formats of its events. They are needed by
/// `RunningKernel` and `recorder::machine`.
const FILES: [&str; 5] =
    ["available_events", "printk_formats", "saved_cmdlines", "events/header_page", "events/header_event"];

/// Gives up CAP_DAC_READ_SEARCH, after reading the files in tracefs that the run still needs. The file of the
/// executable may give users this capability, so that they can read tracefs. With it, a script could read every file of
/// the machine.
pub fn give_up(tracefs: &mut Tracefs, selected: &[Selected]) {
    keep_files(tracefs, selected);
    if capability::is_right_to_read_held_back() {
        capability::give_up_right_to_read();
    }
}

/// Reads the files in tracefs that a run still needs, if the process is going to give up the right to read them.
pub fn keep_files(tracefs: &mut Tracefs, selected: &[Selected]) {
    if capability::is_right_to_read_held_back() {
        let formats = selected.iter().filter_map(|event| event.format.tracepoint());
        let formats = formats.map(|format| Tracefs::format_path(&format.system, &format.name));
        let hz = Tracefs::format_path("writeback", "writeback_single_inode");
        tracefs.keep(FILES.map(str::to_owned).into_iter().chain([hz]).chain(formats));
    }
}
