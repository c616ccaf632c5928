//! Where and when the events of a run happened. Pictures say it.

use chrono::{DateTime, Local};

/// Where and when the events of a run happened, as far as this is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// The name of the machine.
    pub host: Option<String>,
    /// The time at which the run started, or of the first event, in ns since the Unix epoch.
    pub began: Option<i64>,
    /// The time at which the run ended, in ns since the Unix epoch.
    pub ended: Option<i64>,
    /// The duration in ns, without times that are left out.
    pub duration: Option<u64>,
    /// The command line of the run, and in a second line that of the recorder of a replay. They say which events, tasks and times
    /// were selected.
    pub command: Option<String>,
}

/// Clocks are compared, and intervals begin, with some inaccuracy. In ns.
const MARGIN: i64 = 1_000_000_000;

impl Provenance {
    /// Returns the provenance of a live run that begins.
    pub fn begins(host: String, began: i64, command: Option<String>) -> Provenance {
        Provenance { host: Some(host), began: Some(began), ended: None, duration: None, command }
    }

    /// Returns the provenance of a run that ended at a time of day.
    pub fn until(self, end: i64) -> Provenance {
        let duration = self.began.and_then(|began| u64::try_from(end - began).ok());
        Provenance { duration, ended: Some(end), ..self }
    }

    /// Returns the local date and time of the start, to the second, and its difference from UTC.
    pub fn date(&self) -> Option<String> {
        let began = DateTime::from_timestamp_nanos(self.began?).with_timezone(&Local);
        Some(began.format("%F %T %:z").to_string())
    }

    /// Returns the local date and time of a moment of the run, to the millisecond, and its difference from UTC. `realtime` is in ns
    /// since 1970. `None` if the moment is not in the run.
    pub fn moment(&self, realtime: i64) -> Option<String> {
        let began = self.began?.saturating_sub(MARGIN);
        let ended = self.ended.map_or(i64::MAX, |ended| ended.saturating_add(MARGIN));
        let time = DateTime::from_timestamp_nanos(realtime).with_timezone(&Local);
        (began..=ended).contains(&realtime).then(|| time.format("%F %T%.3f %:z").to_string())
    }

    /// Returns whether so many ns are longer than the whole run, so that what lasted so long is not only of this run.
    pub fn is_shorter_than(&self, ns: u64) -> bool {
        let whole = self.began.zip(self.ended).map(|(began, ended)| ended.saturating_sub(began).max(0) as u64);
        whole.is_some_and(|whole| ns > whole.saturating_add(MARGIN as u64))
    }

    /// Returns the duration as the end of a sentence: ` in 6.331 s`. Empty if it is not known.
    pub fn within(&self) -> String {
        self.duration.map_or_else(String::new, |ns| format!(" in {:.3} s", ns as f64 / 1e9))
    }

    /// Returns the line below the title of a picture: `1.042 s in 6.331 s; web1, 2026-11-27 18:51:57 +01:00`. `sum` is what the picture
    /// shows, and `details` are more about it.
    pub fn caption(&self, sum: &str, details: &str) -> String {
        let line = format!("{sum}{}{details}", self.within());
        [line].into_iter().chain(self.place()).collect::<Vec<_>>().join("; ")
    }

    /// Returns the machine and the date: `web1, 2026-11-27 18:51:57 +01:00`. `None` if neither is known.
    pub fn place(&self) -> Option<String> {
        let known: Vec<String> = self.host.clone().into_iter().chain(self.date()).collect();
        (!known.is_empty()).then(|| known.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_left_out() {
        let mut run = Provenance::default();
        assert_eq!((run.within(), run.place()), (String::new(), None));
        run.duration = Some(6_331_400_000);
        run.host = Some("web1".into());
        assert_eq!((run.within(), run.place()), (" in 6.331 s".into(), Some("web1".into())));
        run.began = Some(1_000_000_000_000_000_000);
        let place = run.place().unwrap();
        assert!(place.starts_with("web1, 2001-09-0") && place.contains(":40 "), "{place}");
        assert_eq!(run.caption("5 calls", ", all"), format!("5 calls in 6.331 s, all; {place}"));
        assert!(
            !run.is_shorter_than(u64::MAX) && run.moment(1_700_000_000_000_000_000).is_some(),
            "the end is not known"
        );
        let run = run.until(1_000_000_100_000_000_000);
        assert!(run.is_shorter_than(102_000_000_000) && !run.is_shorter_than(100_500_000_000));
        assert!(run.moment(1_000_000_099_000_000_000).is_some() && run.moment(1_000_000_102_000_000_000).is_none());
        assert_eq!(Provenance::default().caption("5 calls", ", all"), "5 calls, all");
    }
}
