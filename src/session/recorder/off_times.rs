//! When the events of a recording were off.

use perf_prof_capture::Capture;
use perf_prof_recordings::OwnUpdate;
use perf_prof_system::clock::{self, Clock};

use super::control::Command;

/// The maximum number of times that are kept. Of more, the two oldest become one, with the time between them.
const MOST: usize = 1 << 16;

/// The times in which `--control` had turned the events off, in ns of the records' clock.
#[derive(Debug)]
pub struct OffTimes {
    clock: Clock,
    /// Each from the last moment before `disable` to the first moment after the next `enable`.
    over: Vec<(u64, u64)>,
    /// The last moment before the last `disable`; `None` while the events are on.
    since: Option<u64>,
}

impl OffTimes {
    /// Creates the times of a recording with this clock.
    pub fn new(clock: Clock) -> OffTimes {
        OffTimes { clock, over: Vec::new(), since: None }
    }

    /// Carries out a command, and notes when it turned the events off or on. Returns what a recording tells of that.
    pub fn switch(&mut self, command: Command, capture: &mut Capture) -> Option<OwnUpdate> {
        let update = match command {
            Command::Disable => {
                let before = self.now();
                command.switch(capture);
                self.since = self.since.or(before);
                self.since.map(OwnUpdate::Off)
            }
            Command::Enable => {
                command.switch(capture);
                let over = self.since.take().zip(self.now());
                self.over.extend(over);
                over.map(|(since, to)| OwnUpdate::OffFor(since, to))
            }
            Command::Ping | Command::Snapshot | Command::Stop => {
                command.switch(capture);
                None
            }
        };
        if self.over.len() > MOST {
            let (since, _) = self.over.remove(0);
            self.over[0].0 = since;
        }
        update
    }

    /// Returns the times after which the events were turned on again.
    pub fn over(&self) -> &[(u64, u64)] {
        &self.over
    }

    /// Returns since when the events are off; `None` while they are on.
    pub fn since(&self) -> Option<u64> {
        self.since
    }

    /// Returns the present time of the records' clock; `None` if it is not known.
    pub fn now(&self) -> Option<u64> {
        let offset = clock::realtime_offset(self.clock).ok()?;
        u64::try_from(clock::realtime() - offset).ok()
    }
}
