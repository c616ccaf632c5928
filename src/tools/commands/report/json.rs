//! The report as JSON for programs.

use perf_prof_events::event::{Caller, CallerSums, GroupKey, Line, Shares};
use serde_json::json;

use super::{super::period::PeriodUnit, ReportPlan};

/// Returns the keys of a line as members of a JSON object.
pub(super) fn keys(plan: &ReportPlan, texts: &[String]) -> serde_json::Map<String, serde_json::Value> {
    let name = |by: &GroupKey| match by {
        GroupKey::Comm => "comm",
        GroupKey::Pid => "pid",
        GroupKey::Tid => "tid",
        GroupKey::Cpu => "cpu",
        GroupKey::Cgroup => "cgroup",
        GroupKey::Dso => "dso",
        GroupKey::Symbol => "symbol",
    };
    plan.by.iter().zip(texts).map(|(by, text)| (name(by).to_owned(), json!(text))).collect()
}

/// Returns the JSON object of an event with the lines of its table.
pub(super) fn of_event(plan: &ReportPlan, name: &str, unit: &PeriodUnit, shares: &Shares) -> serde_json::Value {
    fn callers(of: &[Caller]) -> Vec<serde_json::Value> {
        let caller = |it: &Caller| json!({ "name": it.name, "period": it.weight, "callers": callers(&it.callers) });
        of.iter().map(caller).collect()
    }
    let line = |line: &Line| {
        let mut object = keys(plan, &line.keys);
        object.insert("period".into(), json!(line.own));
        object.insert("samples".into(), json!(line.samples));
        match plan.callers {
            CallerSums::Children => object.insert("children".into(), json!(line.with_callees)),
            CallerSums::Trees => object.insert("callers".into(), json!(callers(&line.callers))),
            CallerSums::Ignored => None,
        };
        serde_json::Value::Object(object)
    };
    let lines: Vec<_> = shares.lines().iter().map(line).collect();
    let mut object = json!({
        "name": name,
        "samples": shares.samples(),
        "period": shares.total(),
        "unit": unit.name(),
        "lines": lines
    });
    if shares.others() != 0 {
        object["others"] = json!(shares.others());
    }
    object
}
