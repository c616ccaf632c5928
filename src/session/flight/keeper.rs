//! Keeps everything that a dump needs, and makes a dump when something asks for it.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Result;
use chrono::Local;
use perf_prof_capture::{Capture, CopiedRing, Lost, LostRecords};
use perf_prof_format::record::{Batch, Records, Source, TrailerLayout, Wait};
use perf_prof_recordings::write::Dsos;
use perf_prof_system::{clock, output, tracefs::Tracefs};

use super::{
    ages::Ages,
    dump::{Continued, Dump, Start, last_time},
    folder::DumpFolder,
    measurement::{Measurement, Round},
    pieces::{Copies, LATEST},
    plan::{FlightPlan, Into, Rhythm},
    request::{Origin, Request, Requests},
    rings,
    side_band::SideBand,
    trigger_event::{self, Trigger},
};
use crate::{
    live::{requests, select::Selected},
    plan::Verbosity,
    recorder::{self, Command, Delay, Destination, MadeEvent, OffTimes, Output, Subject},
};

/// The maximum memory for records about tasks, in bytes.
const SIDE_BAND: usize = 64 << 20;

/// How often the keeper notes the positions of the rings while side-band records arrive.
const NOTED_EVERY: Duration = Duration::from_millis(100);

/// How long a dump waits for side-band records, before it is written without them.
const PATIENCE: Duration = Duration::from_secs(2);

/// During a dump, the keeper copies the rings as soon as one ring was filled to this share since the last copy.
const COPIED_AT: f64 = 0.125;

/// The maximum time between two copies of the rings during a dump.
const COPIED_EVERY: Duration = Duration::from_millis(250);

/// How often the keeper checks how full the rings are, during a dump.
const LOOKED_EVERY: Duration = Duration::from_millis(10);

/// After a dump that could not be written, events cause no new dump for at most this time.
const RETRIED_AFTER: Duration = Duration::from_secs(1);

/// What a dump needs, and the dump that is being written.
pub struct Keeper<'a> {
    plan: &'a FlightPlan,
    selected: &'a [Selected],
    tracefs: &'a Tracefs,
    trailer: TrailerLayout,
    side_band: SideBand,
    ages: Ages,
    noted: Option<Instant>,
    kernel: Dsos,
    made: MadeEvent,
    requests: Requests,
    /// The time since which the rings keep events, in ns of the events' clock.
    began: u64,
    /// The measurement of the events' rate, which determines the sizes of the rings.
    measurement: Measurement,
    memory: usize,
    dump: Option<Dump>,
    /// When the last copy of the rings began, and this time in ns of the events' clock.
    copied: Instant,
    copied_at: u64,
    /// The end of the last complete dump, if the next one begins there.
    continued: Continued,
    /// The time after a dump in which events of `--trigger` cause no new dump.
    rest: Option<Rest>,
    /// The number of triggers that came too soon after a dump.
    too_soon: u64,
    next_in_rhythm: Option<Instant>,
    counted: u64,
    /// True if a signal or a command arrived while the keeper waited for side-band records.
    pub woken: bool,
    /// The number of records about tasks for which the memory was too small.
    forgotten: u64,
    /// The number of lost records about tasks that was reported last.
    lost: u64,
    off: OffTimes,
    /// The number of dumps that were written completely, and the number of dumps that could not be written.
    complete: u64,
    failed: u64,
}

/// A period in which events cause no new dump.
#[derive(Clone, Copy)]
struct Rest {
    since: Instant,
    time: Duration,
}

/// The parameters of [`Keeper::begin`].
pub struct Kept<'a> {
    /// The plan.
    pub plan: &'a FlightPlan,
    /// The events of the capture.
    pub selected: &'a [Selected],
    /// The formats of tracepoints.
    pub tracefs: &'a Tracefs,
    /// The queue of requests for dumps.
    pub requests: Requests,
    /// The maximum memory for all rings, in bytes.
    pub memory: usize,
    /// The process id of the command.
    pub target: Option<u32>,
}

impl<'a> Keeper<'a> {
    /// Notes the tasks that exist, and starts the events. Then calls `start`, which starts the triggers and the command.
    pub fn begin(kept: Kept<'a>, capture: &mut Capture, start: impl FnOnce() -> Result<()>) -> Result<Keeper<'a>> {
        let Kept { plan, selected, tracefs, requests, memory, target } = kept;
        let like = capture.attrs().last().cloned().unwrap_or_default();
        let made = MadeEvent {
            attr: trigger_event::attr(&like),
            system: trigger_event::SYSTEM,
            format: trigger_event::FORMAT,
        };
        capture.follow_tasks()?;
        let (mut kernel, mut side_band) = (Dsos::default(), SideBand::new(capture.trailer(), SIDE_BAND));
        let of_plan = &plan.record.capture;
        side_band.add_existing(recorder::existing(of_plan, capture.trailer(), target, &mut kernel).bytes());
        capture.enable()?;
        // This time is before the command starts, which may make many events before this thread gets a CPU again.
        let off = OffTimes::new(requests::clock(of_plan));
        let began = off.now().unwrap_or(0);
        start()?;
        let now = Instant::now();
        let measurement = match (plan.before.is_some() && of_plan.ring_size.is_none(), plan.record.delay) {
            (false, _) => Measurement::Over,
            (true, Delay::None) => Measurement::Since(now, capture.written(), Round::First),
            (true, Delay::For(_) | Delay::UntilEnabled) => Measurement::Awaited(Round::First),
        };
        let keeper = Keeper {
            plan,
            selected,
            tracefs,
            trailer: capture.trailer(),
            side_band,
            ages: Ages::default(),
            noted: None,
            kernel,
            made,
            requests,
            began,
            measurement,
            memory,
            dump: None,
            copied: now,
            copied_at: began,
            continued: Continued::default(),
            rest: None,
            too_soon: 0,
            next_in_rhythm: plan.rhythm.map(|rhythm| now + rhythm.turn()),
            counted: 0,
            woken: false,
            forgotten: 0,
            lost: 0,
            off,
            complete: 0,
            failed: 0,
        };
        if plan.before.is_some() && keeper.measurement == Measurement::Over {
            keeper.say_sizes(&capture.overwritten_sizes());
        }
        Ok(keeper)
    }

    /// Carries out a command. The measurement of the events' rate starts when they are on.
    pub fn switch(&mut self, command: Command, capture: &mut Capture) {
        // The times are in the end of each dump.
        let _ = self.off.switch(command, capture);
        match command {
            Command::Enable => self.measurement.events_are_on(Instant::now(), capture.written()),
            Command::Disable => self.measurement.events_are_off(),
            Command::Ping | Command::Snapshot | Command::Stop => {}
        }
    }

    /// Handles the exit of all traced tasks. Returns whether requests may still ask for their last events. The rings
    /// keep their sizes from now on, because a ring with a new size would be empty.
    pub fn stays(&mut self) -> bool {
        self.measurement = Measurement::Over;
        self.plan.is_on_request()
    }

    /// Takes side-band records.
    pub fn add(&mut self, batch: &Batch, capture: &Capture) {
        let mut latest = 0;
        batch.for_each_run(usize::MAX, |run| {
            for record in Records::new(run) {
                self.side_band.add(record);
                latest = self.trailer.time(record).unwrap_or(0).max(latest);
            }
            if let Some(dump) = &mut self.dump {
                dump.add_side_band(run);
            }
        });
        self.forgotten += self.side_band.take_forgotten();
        let now = Instant::now();
        if latest != 0 && self.noted.is_none_or(|noted| now >= noted + NOTED_EVERY) {
            self.noted = Some(now);
            self.ages.note(latest, capture.written());
            self.settle(latest, capture);
        }
    }

    /// Drops what no later dump needs.
    fn settle(&mut self, now: u64, capture: &Capture) {
        let of_rings = self.ages.oldest(&capture.overwritten_sizes(), &capture.written());
        let needed = |before: Duration| now.saturating_sub((before + LATEST).as_nanos() as u64);
        if let Some(time) = of_rings.max(self.plan.before.map(needed)) {
            self.side_band.settle_before(time);
        }
    }

    /// Returns the time at which the keeper has work to do.
    pub fn next_time(&self) -> Option<Instant> {
        let now = Instant::now();
        let of_dump = self.dump.as_ref().map(|dump| match dump.backlog() {
            0 => dump.ends.min(now + LOOKED_EVERY),
            _ => now,
        });
        // During a dump, the rings keep their sizes.
        let measured = self.measurement.due().filter(|_| self.dump.is_none());
        [of_dump, measured, self.next_in_rhythm].into_iter().flatten().min()
    }

    /// Does the work that is due: answers requests, copies rings during a dump, ends a dump.
    pub fn attend(&mut self, capture: &mut Capture) {
        self.answer_requests(capture);
        let now = Instant::now();
        if let Some(at) = self.next_in_rhythm.take_if(|at| now >= *at) {
            self.follow_rhythm(at, capture);
        }
        // Do not replace the rings now if a signal or a command has arrived: it may ask for a dump of the present rings.
        if self.dump.is_none()
            && !self.woken
            && let Some((rates, round)) = self.measurement.take_rates(now, &capture.written())
        {
            self.adapt_rings(&rates, round, capture);
        }
        self.go_on(capture, now);
    }

    fn answer_requests(&mut self, capture: &mut Capture) {
        // New requests wait for the next call, so that they cannot delay the copies of the rings.
        for _ in 0..self.requests.count() {
            let Some(request) = self.requests.next() else { break };
            // A request with a path ends the present dump, because it asks for a file of its own.
            if self.dump.is_some() && request.path.is_some() {
                self.end_dump(capture);
            }
            self.answer(request, capture);
        }
        if self.plan.after.is_zero() && self.dump.is_some() {
            self.end_dump(capture);
        }
    }

    fn answer(&mut self, request: Request, capture: &mut Capture) {
        let is_event = matches!(request.origin, Origin::Event(_));
        let trigger = match request.origin {
            Origin::Cut => return self.end_dump(capture),
            Origin::Event(trigger) => trigger,
            Origin::Asked(reason) => {
                let (pid, time) = (std::process::id(), self.now());
                Trigger { reason, event: String::new(), time, task: (pid, pid), cpu: 0 }
            }
        };
        if let Some(dump) = &mut self.dump {
            dump.join(&trigger, self.plan.after);
            dump.replies.extend(request.reply);
            return;
        }
        if is_event && self.rest.is_some_and(|rest| rest.since.elapsed() < rest.time) {
            self.too_soon += 1;
            return;
        }
        let until = match (is_event, self.plan.after.is_zero()) {
            // The requested dump also contains events that happen while the rings are copied.
            (false, true) => u64::MAX,
            _ => last_time(&trigger, self.plan.after),
        };
        // Copy first, because new samples overwrite old samples all the time.
        let copies = self.copy(capture);
        self.update_side_band(capture);
        match self.begin_dump(&trigger, until, request.path, copies, capture) {
            Ok(mut dump) => {
                dump.replies.extend(request.reply);
                self.dump = Some(dump);
            }
            Err(error) => {
                self.rest_after_failure();
                output::say(format_args!("no dump for {}: {error:#}; the next trigger tries again", trigger.reason));
                request.reply.map(|reply| reply.send(Err(format!("{error:#}"))));
            }
        }
    }

    /// Copies what was written into the rings since the last copy, or all that the next dump can have.
    fn copy(&mut self, capture: &Capture) -> Vec<CopiedRing> {
        (self.copied, self.copied_at) = (Instant::now(), self.now());
        capture.copy_overwritten(self.dump.as_ref().map_or(&self.continued.written, Dump::written))
    }

    /// Notes that a dump could not be written. A later trigger tries again, but frequent events do not try again each
    /// time.
    fn rest_after_failure(&mut self) {
        self.failed += 1;
        self.rest = Some(Rest { since: Instant::now(), time: self.plan.min_gap.min(RETRIED_AFTER) });
    }

    fn begin_dump(
        &self,
        trigger: &Trigger,
        until: u64,
        path: Option<PathBuf>,
        copies: Vec<CopiedRing>,
        capture: &Capture,
    ) -> Result<Dump> {
        let record = &self.plan.record;
        let path = match (path, self.plan.into, &record.output) {
            (Some(path), ..) => path,
            (None, Into::File, Output::File(path)) => path.clone(),
            (None, ..) => {
                let folder = self.folder();
                folder.create()?;
                folder.new_path(Local::now(), &trigger.reason)
            }
        };
        let destination = match &record.threads {
            Some(_) => Destination::Directory(path.clone(), record.compression),
            None => Destination::File(path.clone(), record.compression),
        };
        let subject = Subject {
            command_line: &record.command_line,
            plan: &record.capture,
            capture,
            selected: self.selected,
            tracefs: self.tracefs,
            offset: clock::realtime_offset(requests::clock(&record.capture)).ok(),
            made: Some(&self.made),
        };
        let start = Start {
            path,
            trigger: trigger.clone(),
            copies: &copies,
            began: self.began,
            before: self.plan.before,
            continued: self.continued.at,
            until,
            after: self.plan.after,
            now: self.now(),
        };
        let mut dump = Dump::create(destination, &subject, &self.made, start)?;
        dump.begin(&self.kernel, &self.side_band.records(), subject.capture);
        dump.take(copies, Copies::First);
        Ok(dump)
    }

    /// Copies the new samples of all rings, if a ring was filled to a large share since the last copy or the last copy
    /// is old. Then writes a part of the copies. Ends the dump when its time is over.
    fn go_on(&mut self, capture: &mut Capture, now: Instant) {
        let Some(dump) = &self.dump else { return };
        if now >= dump.ends || dump.has_failed() {
            return self.end_dump(capture);
        }
        let is_due = dump.fill(capture) >= COPIED_AT || now >= self.copied + COPIED_EVERY;
        if is_due && dump.has_room(self.room_for_copies(capture), capture) {
            let copies = self.copy(capture);
            self.take(copies, Copies::Later);
            self.update_side_band(capture);
        }
        if let Some(dump) = &mut self.dump {
            dump.write_some(capture);
        }
    }

    fn take(&mut self, copies: Vec<CopiedRing>, which: Copies) {
        if let Some(dump) = &mut self.dump {
            dump.take(copies, which);
        }
    }

    fn room_for_copies(&self, capture: &Capture) -> usize {
        rings::room_for_copies(&capture.overwritten_sizes(), self.memory)
    }

    /// Takes all side-band records of events before this call.
    fn update_side_band(&mut self, capture: &mut Capture) {
        let deadline = Instant::now() + PATIENCE;
        capture.flush();
        loop {
            match capture.wait(Some(deadline)) {
                Wait::Batch(batch) => self.add(&batch, capture),
                Wait::Woken => self.woken = true,
                Wait::Flushed | Wait::Ended(_) => return,
                Wait::Timeout => {
                    output::say("records about tasks are late: names may be missing in this dump");
                    return;
                }
            }
        }
    }

    /// Makes the last copy, and ends the dump.
    fn end_dump(&mut self, capture: &mut Capture) {
        let room = self.room_for_copies(capture);
        let Some(dump) = &mut self.dump else { return };
        // Without `--after`, the first copies are all that a dump needs. Only a later trigger needs another copy.
        let copies = match self.plan.after.is_zero() && dump.joined == 0 {
            true => Vec::new(),
            false => {
                while dump.backlog() != 0 && !dump.has_room(room, capture) {
                    dump.write_some(capture);
                }
                let copies = self.copy(capture);
                self.update_side_band(capture);
                copies
            }
        };
        self.take(copies, Copies::Later);
        let Some(mut dump) = self.dump.take() else { return };
        while dump.backlog() != 0 {
            dump.write_some(capture);
        }
        let (path, replies) = (dump.path.clone(), std::mem::take(&mut dump.replies));
        let end = Continued { written: dump.written().to_vec(), at: self.copied_at };
        let told = self.describe(&dump);
        let side_band = self.lost_side_band(capture);
        let outcome = match dump.finish(side_band.as_deref(), &self.off) {
            Ok(summary) => match &summary.failure {
                None => {
                    self.report(&path, &told, &summary);
                    self.complete += 1;
                    if self.plan.before.is_none() {
                        self.continued = end;
                    }
                    self.rest = Some(Rest { since: Instant::now(), time: self.plan.min_gap });
                    Ok(path)
                }
                Some(failure) => {
                    summary.report("", self.plan.record.verbosity);
                    self.rest_after_failure();
                    Err(format!("{} is incomplete: {failure}", path.display()))
                }
            },
            Err(error) => {
                self.rest_after_failure();
                output::say(format_args!("{error:#}; the next trigger tries again"));
                Err(format!("{error:#}"))
            }
        };
        for reply in replies {
            let _ = reply.send(outcome.clone());
        }
        if let (Some(count), Into::Folder) = (self.plan.max_files, self.plan.into) {
            for (path, error) in self.folder().keep_newest(count) {
                output::say(format_args!("--max-files: cannot remove '{}': {error}", path.display()));
            }
        }
    }

    /// Returns the lost records about tasks so far. Prints a message if there are new losses. Returns `None` if the
    /// kernel does not count them.
    fn lost_side_band(&mut self, capture: &Capture) -> Option<Vec<Lost>> {
        let mut lost = capture.lost()?;
        lost.retain(|lost| lost.what == LostRecords::SideBand);
        let count: u64 = lost.iter().map(|lost| lost.count).sum();
        let new = count.saturating_sub(std::mem::replace(&mut self.lost, count));
        if new != 0 {
            output::say(format_args!(
                "{new} records about tasks were lost, because their rings were full: names may be missing in dumps"
            ));
        }
        Some(lost)
    }

    fn folder(&self) -> DumpFolder {
        match &self.plan.record.output {
            Output::File(path) => DumpFolder::of_output(path),
            Output::Stdout => DumpFolder::of_output("".as_ref()),
        }
    }

    /// Ends the present dump. If there is none, makes the dump of the end, if the plan wants it.
    pub fn conclude(&mut self, capture: &mut Capture) {
        self.answer_requests(capture);
        if self.dump.is_some() {
            self.end_dump(capture);
        } else if self.plan.dumps_at_end {
            self.answer(Request::asked("end"), capture);
            self.end_dump(capture);
        }
        if self.too_soon != 0 {
            let (count, gap) = (self.too_soon, self.plan.min_gap);
            output::say(format_args!(
                "triggers without a dump, because they came less than {gap:?} after the end of a dump (--min-gap): {count}"
            ));
        }
        let is_expected = self.plan.triggers.is_some() && self.plan.record.verbosity > Verbosity::Quiet;
        if is_expected && self.complete + self.failed + self.too_soon + self.requests.missed() == 0 {
            output::say("no dump was written, because no event triggered one");
        }
        self.lost_side_band(capture);
        if self.requests.missed() != 0 {
            output::say(format_args!(
                "triggers that are in no dump, because they came faster than they could be written: {}",
                self.requests.missed()
            ));
        }
        if self.forgotten != 0 {
            output::say(format_args!(
                "the memory for records about tasks was too small for {} of them: names of tasks that exited may be missing in \
                 dumps",
                self.forgotten
            ));
        }
    }

    /// Returns whether every dump was written.
    pub fn are_complete(&self) -> bool {
        self.failed == 0
    }

    fn follow_rhythm(&mut self, at: Instant, capture: &mut Capture) {
        let Some(rhythm) = self.plan.rhythm else { return };
        self.next_in_rhythm = Some(at + rhythm.turn());
        if let Rhythm::Bytes(limit) = rhythm {
            let total: u64 = capture.written().iter().map(|written| written.0).sum();
            if total.saturating_sub(self.counted) < limit {
                return;
            }
            self.counted = total;
        }
        self.answer(Request::asked("switch"), capture);
        if self.plan.after.is_zero() {
            self.end_dump(capture);
        }
    }

    /// Makes the rings as large as the measured rates require.
    fn adapt_rings(&mut self, rates: &[f64], round: Round, capture: &mut Capture) {
        let Some(before) = self.plan.before else { return };
        let adapted = rings::adapt(rates, (round, before, self.memory), capture);
        self.failed += adapted.gone;
        if adapted.count != 0 {
            // These values described the old rings.
            (self.counted, self.ages, self.began) = (0, Ages::default(), self.now());
            self.measurement.start_again(Instant::now(), capture.written());
        }
        if adapted.count != 0 || round == Round::First {
            self.say_sizes(&capture.overwritten_sizes());
        }
        if adapted.are_final {
            rings::say_kept(rates, &capture.overwritten_sizes(), before);
            self.measurement = Measurement::Over;
        }
    }

    fn say_sizes(&self, sizes: &[usize]) {
        if self.plan.record.verbosity > Verbosity::Quiet {
            let folder = (self.plan.into == Into::Folder).then(|| self.folder());
            rings::say_sizes(sizes, folder.as_ref());
        }
    }

    /// Returns a text about the contents of a dump, for the message about the dump.
    fn describe(&self, dump: &Dump) -> String {
        let mut text = dump.start();
        if !self.plan.after.is_zero() {
            text += &format!(" to {:.1} s after", dump.lasted(self.now()).as_secs_f64());
        }
        text + &format!(" `{}`", dump.trigger.text())
            + &dump.further_triggers()
            + &dump.lack(!self.plan.is_on_request())
    }

    fn report(&self, path: &std::path::Path, told: &str, summary: &recorder::Summary) {
        if self.plan.record.verbosity > Verbosity::Quiet {
            let samples = output::counted(summary.samples, "sample", "samples");
            let size = recorder::bytes(summary.bytes);
            output::say(format_args!("'{}': {samples} in {size}, {told}", path.display()));
        }
    }

    fn now(&self) -> u64 {
        self.off.now().unwrap_or(0)
    }
}
