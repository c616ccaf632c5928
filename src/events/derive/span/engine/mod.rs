//! A span during a run: receives the samples that begin and end spans, and delivers the spans.

mod at_end;
mod concurrent;
mod exited;
mod flushes;
mod missing;
mod overdue;
mod threads;
mod unpaired;
mod unseen;

use std::{collections::HashSet, sync::Arc};

use perf_prof_format::{
    record::SampleLayout,
    spec::{Nesting, OpenAtEnd},
};

use self::{missing::OfThreads, threads::Threads};
use super::{
    Action, Change, Filters, Keep, OpenCondition, Span, Step,
    flushes::Flushes,
    key::Key,
    matches_any,
    missing::{Lifetime, Missing, MissingSpan},
    overdue::Overdue,
    runs::Runs,
    scheduler::{At, Scheduler},
    table::{OpenSpan, OpenSpans, Place},
    verdicts::Verdicts,
};
use crate::{
    derive::{Derivation, source::LacksPath},
    event::{Context, Flow, PartView, Sample, SpanCounts, SpanFieldAt, SpanFormat, SpanSamples},
};

pub(super) struct Engine {
    span: Span,
    format: Arc<SpanFormat>,
    /// The layout of the spans' records.
    layout: SampleLayout,
    /// Which fields of the span the filter reads.
    filtered_fields: Vec<bool>,
    /// Whether the filter reads a text that is computed for each span.
    has_text_filter: bool,
    /// The indexes of the fields with paths that the filter reads, and the function that returns whether such a path is not
    /// known. `None` if the filter reads no path.
    filtered_paths: Option<(Vec<usize>, LacksPath)>,
    /// The cached results of a filter that reads only the text of a number, such as the name of a system call.
    verdicts: Option<Verdicts>,
    open: OpenSpans,
    /// The samples of `Ahead` rules by key, until a sample recalls them.
    ahead: OpenSpans,
    /// The spans that losses dropped and that may still be open. `missing_records` contains a record for each of them whose
    /// latest possible end is known. It is `None` if the sink does not want these records.
    missing: Missing,
    missing_records: Option<Vec<Box<[u8]>>>,
    /// The open spans of each thread while events are lost. `None` if a thread may have several spans at a time.
    of_threads: Option<OfThreads>,
    /// The threads of a recording. `None` if ends without a begin say nothing, and in live runs, which begin while spans are
    /// open.
    threads: Option<Threads>,
    /// Which tasks ran on each CPU; `None` if no rule needs this.
    runs: Option<Runs>,
    scheduler: Scheduler,
    flushes: Flushes,
    /// The waits for flushes that were dropped, because nobody knows which of them have ended.
    missing_waits: Missing,
    /// How many spans had not ended at the end of the run and were not delivered. `None` before the end, and if this is not
    /// told.
    not_ended: Option<u64>,
    /// The hashes of the keys of spans whose begins were not seen, but other events of theirs.
    unseen: HashSet<u64>,
    /// Finds open spans that should have ended. `None` for spans that may stay open for long.
    overdue: Option<Overdue>,
    counts: Arc<SpanCounts>,
    /// The time of the last sample.
    last: u64,
    /// When the events of the run ended; 0 while they go on. Spans that have not ended last until then.
    end: u64,
    /// A buffer for the record of a span. Each span uses it again.
    record: Vec<u8>,
    /// Knows the names of tasks, for the fields that contain them.
    context: Arc<Context>,
    output: Output,
    /// How many rings are losing events.
    lossy_rings: u32,
    /// Whether events were lost, so that begins may be missing.
    has_lost: bool,
}

/// Whether spans are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    Delivered,
    Muted,
}

/// Which span a sample ends if several spans have its key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    First,
    Last,
    At(Place),
}

impl Engine {
    pub fn new(
        span: Span,
        format: Arc<SpanFormat>,
        layout: SampleLayout,
        counts: Arc<SpanCounts>,
        context: Arc<Context>,
    ) -> Self {
        let open = OpenSpans::new(span.spec.max_open, span.spec.nesting, context.budget());
        let ahead = OpenSpans::new(span.spec.max_open, Nesting::Replaced, context.budget());
        let (filtered_fields, verdicts) = match &span.filters {
            Some(Filters::OfSpan(filter)) => {
                (format.fields_of(filter), format.text_of_number(filter).map(Verdicts::new))
            }
            _ => (Vec::new(), None),
        };
        let mut steps = span.inputs.iter().flat_map(|input| &input.steps);
        let has_runs = steps.any(|step| matches!(step.action, Action::Run(_)));
        let steps = span.inputs.iter().flat_map(|input| &input.steps);
        let discards = steps.filter(|step| step.action == Action::Discard).count();
        let misses_ends = span.definition.is_some_and(|definition| definition.misses_ends(discards));
        let lifetime = match span.definition {
            Some(definition) if definition.ends_soon.is_some() => Lifetime::Short,
            _ => Lifetime::Any,
        };
        let of_threads = span.has_one_per_thread().then(OfThreads::default);
        let tells_unbegun = span.definition.is_some_and(|of| of.unseen_begin.is_some());
        let threads = (tells_unbegun && context.recorded_since().is_some()).then(Threads::default);
        let filtered_paths =
            span.definition.and_then(|definition| definition.lacks_path).and_then(|(names, lacks_path)| {
                let is_read = |at: &usize| filtered_fields.get(*at) == Some(&true);
                let is_path = |at: &usize| names.contains(&format.fields[*at].name.as_str());
                let paths: Vec<usize> = (0..format.fields.len()).filter(is_read).filter(is_path).collect();
                (!paths.is_empty()).then_some((paths, lacks_path))
            });
        let has_text_filter = verdicts.is_none() && format.has_text(&filtered_fields);
        Self {
            span,
            format,
            layout,
            filtered_fields,
            has_text_filter,
            filtered_paths,
            verdicts,
            open,
            ahead,
            missing: Missing::new(lifetime),
            missing_records: None,
            of_threads,
            threads,
            runs: has_runs.then(Runs::default),
            scheduler: Scheduler::default(),
            flushes: Flushes::default(),
            missing_waits: Missing::new(Lifetime::Any),
            not_ended: None,
            unseen: HashSet::new(),
            overdue: misses_ends.then(Overdue::default),
            counts,
            last: 0,
            end: 0,
            record: Vec::new(),
            context,
            output: Output::Delivered,
            lossy_rings: 0,
            has_lost: false,
        }
    }

    /// Returns when the open span with this key began.
    fn began(&self, key: &Key) -> Option<u64> {
        let begin = self.open.last(key)?;
        self.format.inputs[begin.input].layout.time(begin.split().0)
    }

    /// Reads the key of a sample into `key`. If the step has several keys, it is the key of the open span that began last.
    #[inline]
    fn read_key(&self, step: &Step, layout: &SampleLayout, record: &[u8], key: &mut Key) -> Option<()> {
        step.key.read(layout, record, key)?;
        for other in step.other_keys.iter().filter_map(|plan| plan.key(layout, record)) {
            if self.began(&other) > self.began(key) {
                *key = other;
            }
        }
        Some(())
    }

    /// Returns whether the open span with this key meets the condition. Returns true if there is no such span.
    fn meets(&self, condition: OpenCondition, key: &Key) -> bool {
        let Some(open) = self.open.last(key) else { return true };
        let (record, notes) = open.split();
        let (begin, key) = ((open.input, record), key.numbers());
        let samples = SpanSamples { begin, end: None, notes, key, duration: 0, ran: None };
        condition(&self.format.view(&samples, None))
    }

    /// Counts spans that were dropped because too many were open, or because memory was short.
    fn drop_without_room(&self, spans: u64) {
        self.counts.add_dropped(spans);
        self.counts.add_without_room(spans);
    }

    /// Opens a span in place of the open span with its key. The span gets the recalled sample.
    fn begin(&mut self, key: &Key, (input, record): (usize, &[u8]), time: u64, recalled: Option<OpenSpan<Box<[u8]>>>) {
        self.counts.add_opened(1);
        self.note_begin(key, time);
        if self.span.spec.nesting == Nesting::Replaced {
            self.count_lost_before(key, time);
        }
        let opened = self.open.open(key, input, record);
        if let Some(replaced) = opened.replaced {
            self.count_replaced(key, replaced, time);
        }
        self.drop_without_room(opened.without_room);
        if let Some(ahead) = recalled {
            self.note(key, (ahead.input, 0), &ahead.record, Keep::First);
        }
    }

    fn end(
        &mut self,
        key: &Key,
        which: Which,
        input: usize,
        time: u64,
        record: &[u8],
        emit: &mut dyn FnMut(&[u8]) -> Flow,
    ) -> Flow {
        let Self { format, open, .. } = self;
        let layout = |of: usize| &format.inputs[of].layout;
        // A sample that arrives late may be older than the open span. Then it belongs to an earlier span.
        let is_later = |begin: OpenSpan<&[u8]>| layout(begin.input).time(begin.split().0).unwrap_or(0) <= time;
        let begin = match which {
            Which::Last => open.close_if(key, is_later),
            Which::First if open.first(key).is_some_and(is_later) => open.close_first(key),
            Which::At(place) if is_later(open.at(place)) => open.close_at(place),
            Which::First | Which::At(_) => None,
        };
        let Some(begin) = begin else {
            self.end_unknown(key, time, (input, record));
            return Flow::Continue(());
        };
        if self.lossy_rings != 0 {
            // Drop the span: the lost events may contain the true end of this begin, and the true begin of this end.
            self.counts.add_dropped(1);
            self.counts.add_lost(1);
            self.add_gap_of(key.numbers(), &begin, time);
            self.count_missing([MissingSpan { key: key.clone(), begin, until: time }]);
            return Flow::Continue(());
        }
        self.counts.add_ended(1);
        self.note_end(key, time);
        let (begin_record, notes) = begin.split();
        self.ended((key, notes), (begin.input, begin_record), (input, record), emit)
    }

    /// Counts an end whose begin is not known. It may be the end of a span that a loss dropped.
    fn end_unknown(&mut self, key: &Key, time: u64, end: (usize, &[u8])) {
        self.counts.add_without_begin(1);
        let dropped = self.missing.end(&self.missing_key(key), time);
        if dropped.is_none() && self.lossy_rings == 0 {
            self.count_unbegun(key, time, end);
        }
        self.count_missing(dropped);
    }

    /// Delivers a span that has ended, if it is long enough and passes the filters. The begin and the end come with the
    /// indexes of their inputs.
    fn ended(
        &mut self,
        (key, notes): (&Key, &[u8]),
        begin: (usize, &[u8]),
        end: (usize, &[u8]),
        emit: &mut dyn FnMut(&[u8]) -> Flow,
    ) -> Flow {
        let [of_begin, of_end] = [begin, end].map(|(input, _)| &self.format.inputs[input].layout);
        let time = of_end.time(end.1).unwrap_or(0);
        let duration = time.saturating_sub(of_begin.time(begin.1).unwrap_or(0));
        if self.overdue.is_some() {
            let samples = SpanSamples { begin, end: Some(end), notes, key: key.numbers(), duration, ran: None };
            let kind = self.kind(&samples);
            self.overdue.iter_mut().for_each(|overdue| overdue.ended(kind, duration));
        }
        if self.output == Output::Muted {
            return Flow::Continue(());
        }
        if duration < self.span.spec.min {
            return Flow::Continue(());
        }
        if let Some(Filters::OfPairs(filters)) = &self.span.filters
            && let Some(filter) = &filters[begin.0 * self.span.inputs.len() + end.0]
        {
            let raws = [of_end.raw(end.1), of_begin.raw(begin.1)];
            let [raw_end, raw_begin] = raws.map(|raw| raw.unwrap_or(&[]));
            if !filter.passes_span(raw_end, raw_begin, duration, of_end.cpu(end.1)) {
                return Flow::Continue(());
            }
        }
        let cpu = of_end.cpu(end.1).unwrap_or(0);
        let ran = self.runs.as_ref().map(|runs| runs.between(cpu, time - duration, time));
        let (ran, end) = (ran.as_deref(), Some(end));
        self.deliver(&SpanSamples { begin, end, notes, key: key.numbers(), duration, ran }, emit)
    }

    /// Follows a change of a task's state. Counts missing events if the change contradicts an earlier one.
    fn schedule(&mut self, change: Change, at: At, [task, state]: [i64; 2]) {
        let task = task as i32;
        let scheduler = &mut self.scheduler;
        match change {
            Change::Leaves => {
                if let Some(idle) = scheduler.leaves(at, task, state) {
                    self.counts.incomplete().add_idle(at.cpu, idle);
                }
            }
            Change::Comes => scheduler.comes(at, task),
            Change::ComesAfterWakeup => scheduler.comes_after_wakeup(at, task),
            Change::Wakes => scheduler.wakes(at, task),
        }
        // While a ring loses events, the loss explains what is missing.
        if self.lossy_rings == 0 {
            for &task in self.scheduler.contradicted().iter().filter(|&&task| self.may_lack_spans(task, at.time)) {
                self.counts.add_unseen(1);
                self.counts.incomplete().add(task, at.time);
            }
        }
    }

    /// Drops the open wait of a task that is woken a second time: the task has run since the first wakeup.
    fn discard_woken_again(&mut self, key: &Key, time: u64) {
        if !self.scheduler.is_woken_again() {
            return;
        }
        let Some(begin) = self.open.close(key) else { return };
        self.counts.add_dropped(1);
        let is_losing = self.lossy_rings != 0;
        if is_losing {
            self.counts.add_lost(1);
            self.add_gap_of(key.numbers(), &begin, time);
        }
        if is_losing || !self.scheduler.contradicted().is_empty() {
            self.count_missing([MissingSpan { key: key.clone(), begin, until: time }]);
        }
    }

    fn delivers_spans_of(&self, task: i32) -> bool {
        self.span.delivers_spans_of(&self.context, task)
    }

    fn may_lack_spans(&self, task: i32, time: u64) -> bool {
        self.span.may_lack_spans(&self.context, task, || self.context.comm(task, time))
    }

    /// Returns whether the user selected the task of a span, by its id and by its name.
    fn selects_task(&self, samples: &SpanSamples<'_>) -> bool {
        self.selects_thread(|| self.format.thread(samples), samples)
    }

    /// Like `selects_task`, for a span of the thread that `tid` returns.
    fn selects_thread(&self, tid: impl FnOnce() -> i32, samples: &SpanSamples<'_>) -> bool {
        let are_all_selected = self.context.delivers_all_spans() && self.span.comms.is_empty();
        if !self.span.selects_tasks() || are_all_selected {
            return true;
        }
        let tid = tid();
        let is_left_out = || self.context.is_left_out(tid) && !self.format.is_interrupted(samples);
        self.context.selects_spans_of(tid) && !is_left_out() && self.selects_comm(tid, samples)
    }

    /// Returns whether the user selected the name that a task has at the end of a span.
    fn selects_comm(&self, tid: i32, samples: &SpanSamples<'_>) -> bool {
        let comms = &self.span.comms;
        if comms.is_empty() {
            return true;
        }
        let (of, record) = samples.end.unwrap_or(samples.begin);
        let time = self.format.inputs.get(of).and_then(|event| event.layout.time(record));
        let comm = time.and_then(|time| self.context.comm(tid, time));
        comm.is_some_and(|comm| matches_any(comms, &comm))
    }

    /// Returns whether a span passes the filter over the span's fields.
    fn passes(&mut self, samples: &SpanSamples<'_>) -> bool {
        let Some(Filters::OfSpan(filter)) = &self.span.filters else { return true };
        let context = Some(&*self.context);
        let number = |verdicts: &Verdicts| self.format.number_of_text(verdicts.field, samples, context);
        let number = self.verdicts.as_ref().and_then(number);
        if let (Some(verdicts), Some(number)) = (&self.verdicts, number)
            && let Some(passes) = verdicts.get(number)
        {
            return passes;
        }
        self.format.write_for_filter(samples, &self.filtered_fields, context, &mut self.record);
        let (of, record) = samples.end.unwrap_or(samples.begin);
        let cpu = self.format.inputs.get(of).map(|event| Sample { event, record }.cpu());
        let passes = filter.passes(&self.record, cpu);
        if let (Some(verdicts), Some(number)) = (&mut self.verdicts, number) {
            verdicts.remember(number, passes);
        }
        passes
    }

    /// Returns whether a span that does not pass the filter may do so, but its path is not known. `record` has the fields that
    /// the filter reads.
    fn is_undecided(&self, samples: &SpanSamples<'_>) -> bool {
        let (Some((paths, lacks_path)), Some(Filters::OfSpan(filter))) = (&self.filtered_paths, &self.span.filters)
        else {
            return false;
        };
        let may_pass = |unknown: &[usize]| {
            let is_unknown = |field| matches!(field, SpanFieldAt::Field(at) if unknown.contains(&at));
            filter.may_pass(&self.record, &|offset| !self.format.field_at(offset).is_some_and(is_unknown))
        };
        if !may_pass(paths) {
            return false;
        }
        let view = self.format.view(samples, Some(&*self.context));
        let lacks = |at: &&usize| lacks_path(&view, &self.format.fields[**at].name);
        let unknown: Vec<usize> = paths.iter().filter(lacks).copied().collect();
        !unknown.is_empty() && may_pass(&unknown)
    }

    /// Delivers a span if its task is selected and it passes the filter over its fields. Most spans do not pass, so the
    /// cheaper check comes first: the filter if it reads only numbers, and otherwise the task. Fields that the filter does
    /// not read are computed only for delivered spans.
    fn deliver(&mut self, samples: &SpanSamples<'_>, emit: &mut dyn FnMut(&[u8]) -> Flow) -> Flow {
        let is_task_first = self.has_text_filter;
        if is_task_first && !self.selects_task(samples) && !self.format.lacks_task(samples) {
            return Flow::Continue(());
        }
        if !self.passes(samples) {
            self.counts.add_undecided(self.is_undecided(samples).into());
            return Flow::Continue(());
        }
        if self.context.selects_spans() && self.format.lacks_task(samples) {
            let is_wanted = samples.end.is_some() || self.span.spec.at_end == OpenAtEnd::Delivered;
            self.counts.add_without_task(is_wanted.into());
            return Flow::Continue(());
        }
        if !is_task_first && !self.selects_task(samples) {
            return Flow::Continue(());
        }
        self.format.write(&self.layout, samples, Some(&self.context), &mut self.record);
        emit(&self.record)
    }
}

impl Derivation for Engine {
    fn sample(&mut self, input: usize, record: &[u8], emit: &mut dyn FnMut(&[u8]) -> Flow) -> Flow {
        let Some(event) = self.format.inputs.get(input) else { return Flow::Continue(()) };
        let time = event.layout.time(record).unwrap_or(0);
        self.last = self.last.max(time);
        let steps = self.span.inputs[input].steps.len();
        let (mut recalled, mut key) = (None, Key::One(0));
        for at in 0..steps {
            let step = &self.span.inputs[input].steps[at];
            let layout = &self.format.inputs[input].layout;
            if let Some(when) = &step.when
                && !when.passes(layout.raw(record).unwrap_or(&[]), layout.cpu(record))
            {
                continue;
            }
            if self.read_key(step, layout, record, &mut key).is_none() {
                continue;
            }
            if let Some(belongs) = step.belongs {
                self.concurrent(at, belongs, &key, (input, record), emit)?;
                continue;
            }
            if step.after.is_some_and(|after| !self.meets(after, &key)) {
                continue;
            }
            let action = step.action;
            if self.lossy_rings != 0 {
                self.drop_other_of_thread(&key, action, time);
            }
            let layout = &self.format.inputs[input].layout;
            match action {
                Action::End => self.end(&key, Which::Last, input, time, record, emit)?,
                Action::EndFirst => self.end(&key, Which::First, input, time, record, emit)?,
                Action::BeginUnlessOpen if self.open.is_open(&key) => {}
                Action::Begin | Action::BeginUnlessOpen => self.begin(&key, (input, record), time, recalled.take()),
                Action::BeginAnother => {
                    self.counts.add_opened(1);
                    let opened = self.open.open_nested(&key, input, record, Nesting::Nested);
                    self.drop_without_room(opened.without_room);
                }
                Action::Note(keep) => self.note(&key, (input, at), record, keep),
                Action::Discard => self.counts.add_dropped(self.open.close(&key).map_or(0, |_| 1)),
                Action::DiscardWokenAgain => self.discard_woken_again(&key, time),
                Action::Ahead(Keep::First) if self.ahead.is_open(&key) => {}
                Action::Ahead(_) => _ = self.ahead.open(&key, input, record),
                Action::Recall => recalled = self.ahead.close(&key),
                Action::Forget => drop(self.ahead.close(&key)),
                Action::Schedule(change) => {
                    let at = At { cpu: layout.cpu(record).unwrap_or(0), time };
                    self.schedule(change, at, key.numbers().map(|number| number as i64));
                }
                Action::Flush(change) => self.flush(change, key.numbers()[0], (input, record), emit)?,
                Action::Run(comm) => {
                    let cpu = layout.cpu(record).unwrap_or(0);
                    let comm = PartView::new(&self.format.inputs[input], record).text(comm);
                    self.runs.get_or_insert_default().switch(cpu, time, comm, key.numbers()[0] as i64);
                }
            }
        }
        Flow::Continue(())
    }

    fn pair(&mut self, begin: &[u8], end: &[u8], emit: &mut dyn FnMut(&[u8]) -> Flow) -> Flow {
        const BEGIN: usize = 0;
        const END: usize = 1;
        let (Some(input), Some(event)) = (self.span.inputs.get(BEGIN), self.format.inputs.get(END)) else {
            return Flow::Continue(());
        };
        self.last = self.last.max(event.layout.time(end).unwrap_or(0));
        let step = input.steps.iter().find(|step| step.action.begins());
        let key = step.and_then(|step| step.key.key(&self.format.inputs[BEGIN].layout, begin));
        key.map_or(Flow::Continue(()), |key| self.ended((&key, &[]), (BEGIN, begin), (END, end), emit))
    }

    fn loss_begins(&mut self) {
        if self.lossy_rings == 0
            && let Some(of_threads) = &mut self.of_threads
        {
            of_threads.follow(&self.open);
        }
        self.lossy_rings += 1;
        self.has_lost = true;
    }

    fn lost(&mut self, _start: u64, end: u64) {
        self.lossy_rings = self.lossy_rings.saturating_sub(1);
        self.has_lost = true;
        self.drop_open(end);
        self.ahead.clear();
        self.scheduler.clear();
        self.flushes.lost();
        self.forget_threads();
        self.runs.iter_mut().for_each(Runs::clear);
    }

    fn task_exited(&mut self, tid: i32, time: u64) {
        self.drop_calls_of_exited(tid, time);
        self.note_exited(tid, time);
        self.note_exit_of_waiter(tid, time);
    }

    fn task_created(&mut self, tid: i32, time: u64) {
        self.note_created(tid, time);
    }

    fn keep_missing(&mut self) {
        self.missing_records.get_or_insert_default();
    }

    fn take_missing(&mut self, take: &mut dyn FnMut(&[u8])) {
        for record in self.missing_records.iter_mut().flat_map(std::mem::take) {
            take(&record);
        }
    }

    fn mute(&mut self) {
        self.output = Output::Muted;
    }

    fn continue_in(&mut self, counts: Arc<SpanCounts>, context: &Arc<Context>) {
        counts.set_open_before(self.open.len());
        self.counts = counts;
        self.context = context.clone();
        self.open.move_to(context.budget());
        self.ahead.move_to(context.budget());
        self.output = Output::Delivered;
        // The caller reports again which rings are losing events.
        self.lossy_rings = 0;
    }

    fn delivered_until(&mut self, time: u64) {
        self.tell_overdue(time);
    }

    fn events_ended(&mut self, time: u64) {
        self.end = self.end.max(time);
    }

    fn finish(&mut self, emit: &mut dyn FnMut(&[u8]) -> Flow) -> Flow {
        self.end_run(emit)
    }

    fn not_ended(&self) -> Option<u64> {
        self.not_ended
    }
}
