//! Spans that begin and end with static probes.

use super::Programs;
use crate::harness::{counting::objects, run::stdout, script::Run};

/// A program that answers questions, some of them after a long time.
const QUESTIONS: &str = r#"
#include <stdio.h>
#include <sys/sdt.h>
#include <unistd.h>
/* The id has another type, so its place has an event of its own. */
__attribute__((noinline)) int answer_long(const char *question, long id) {
    DTRACE_PROBE2(app, query__start, question, id);
    if (id % 2) usleep(20000);
    DTRACE_PROBE2(app, query__done, id * 10, id);
    return id;
}
__attribute__((noinline)) int answer(const char *question, int id) {
    DTRACE_PROBE2(app, query__start, question, id);
    if (id % 2) usleep(20000);
    DTRACE_PROBE2(app, query__done, id * 10, id);
    return id;
}
int main(void) {
    for (int i = 0; i < 6; i++) (i > 3 ? answer_long(i % 2 ? "select slow" : "select fast", i) : answer(i % 2 ? "select slow" : "select fast", i));
    return 0;
}
"#;

const SPAN: &str = "span:query=usdt:app:query-start@./p..usdt:app:query-done@./p";

#[test]
fn one_line_gives_the_time_of_each_query() {
    let programs = Programs::compiled(QUESTIONS, &[]);
    let selector = format!("{SPAN}//key=arg2/q=arg1:string/end.rows=arg1/");
    let text = stdout(&programs.run(&["top", "--json", &selector, "--by", "q", "--", "./p"]));
    let rows = &objects(&text)[0]["rows"];
    assert_eq!((&rows[0]["q"], &rows[0]["count"]), (&"select slow".into(), &3.into()));
    assert_eq!((&rows[1]["q"], &rows[1]["count"]), (&"select fast".into(), &3.into()));
    assert!(rows[0]["total"].as_u64() > Some(60_000_000) && rows[1]["max"].as_u64() < Some(20_000_000), "{rows}");
    let quoted = SPAN.replace("@./p", "@\"./p\"");
    let filtered = format!("{quoted}/begin.q == \"select fast\" && rows > 10/key=arg2/q=arg1:string/end.rows=arg1/");
    let text = stdout(&programs.run(&["top", "--json", &filtered, "--by", "end.rows,q", "--", "./p"]));
    let rows: Vec<_> =
        objects(&text)[0]["rows"].as_array().unwrap().iter().map(|row| row["end.rows"].as_u64()).collect();
    assert_eq!((rows.len(), rows.contains(&Some(20)), rows.contains(&Some(40))), (2, true, true));
}

#[test]
fn a_script_gets_the_span_with_both_events_live_and_from_a_recording() {
    let programs = Programs::compiled(QUESTIONS, &[]);
    let script = "
def span__query(e):
    print(e.arg2, e.q, e.begin.q, e.begin._event, e.end._event, e.end.arg1, e.duration >= 20_000_000)
";
    let expected: String = (0..6)
        .map(|id| {
            let (word, slow) = if id % 2 == 1 { ("select slow", "True") } else { ("select fast", "False") };
            format!("{id} {word} {word} sdt_app:query__start sdt_app:query__done {} {slow}\n", id * 10)
        })
        .collect();
    let selector = format!("{SPAN}//key=arg2/q=arg1:string/").replace("./p", &programs.file("p").display().to_string());
    let live = Run::script(script).event(&selector).options(["--record", "r.data"]).exec([programs.file("p")]);
    let outcome = live.run();
    assert_eq!((outcome.stdout.as_str(), outcome.status), (expected.as_str(), 0), "{}", outcome.stderr);
    let input = live.path("r.data").display().to_string();
    let replayed = Run::script(script).event(&selector).options(["--input", &input]).run();
    assert_eq!((replayed.stdout.as_str(), replayed.status), (expected.as_str(), 0), "{}", replayed.stderr);
}
