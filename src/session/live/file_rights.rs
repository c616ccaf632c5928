//! Gives up the right to read all files before code of a user runs in this process. Does not know whose code it is.

use perf_prof_system::{capability, tracefs::Tracefs};

use super::select::Selected;

/// What a run reads in tracefs after it has started, besides the formats of its events: see `RunningKernel` and
/// `recorder::machine`.
const FILES: [&str; 5] =
    ["available_events", "printk_formats", "saved_cmdlines", "events/header_page", "events/header_event"];

/// Gives up CAP_DAC_READ_SEARCH, which users may have from the file of the executable to read tracefs. Without this, a
/// script could read every file of the machine. First reads what the run still needs of tracefs.
pub fn give_up(tracefs: &mut Tracefs, selected: &[Selected]) {
    if capability::is_right_to_read_held_back() {
        let formats = selected.iter().filter_map(|event| event.format.tracepoint());
        let formats = formats.map(|format| Tracefs::format_path(&format.system, &format.name));
        let hz = Tracefs::format_path("writeback", "writeback_single_inode");
        tracefs.keep(FILES.map(str::to_owned).into_iter().chain([hz]).chain(formats));
        capability::give_up_right_to_read();
    }
}
