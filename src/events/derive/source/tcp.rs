//! `tcp`: TCP connections, from the first packet to the closed socket.

use std::{
    borrow::Cow,
    net::{Ipv4Addr, Ipv6Addr},
};

use super::{BegunBefore, Dependent, Field, Rule, Scope, SourceDefinition, texts};
use crate::{
    derive::span::Keep,
    event::{PartView, SpanTask, SpanView},
};

/// The names of the TCP states by number, starting with 1 (include/net/tcp_states.h).
const STATES: [&str; 13] = [
    "ESTABLISHED",
    "SYN_SENT",
    "SYN_RECV",
    "FIN_WAIT1",
    "FIN_WAIT2",
    "TIME_WAIT",
    "CLOSE",
    "CLOSE_WAIT",
    "LAST_ACK",
    "LISTEN",
    "CLOSING",
    "NEW_SYN_RECV",
    "BOUND_INACTIVE",
];

/// The address of the socket identifies a connection. A client's connection begins in the state SYN_SENT (2). A server's
/// connection begins when a new socket goes from LISTEN (10) to SYN_RECV (3). Both end in CLOSE (7). In TIME_WAIT, a smaller
/// socket without events replaces the socket. So each socket comes to CLOSE before its address is used again.
pub(super) const TCP: SourceDefinition = SourceDefinition {
    name: "tcp",
    about: "a TCP connection, from the first packet (of an accepted one: the end of its handshake) to the closed socket",
    example: "tcp/dport=443, role=client/",
    rules: &[
        Rule::end("sock:inet_sock_set_state", "skaddr").when("protocol == 6 && newstate == 7 && oldstate != 10"),
        Rule::begin("sock:inet_sock_set_state", "skaddr")
            .when("protocol == 6 && (newstate == 2 || newstate == 3 && oldstate == 10)"),
        Rule::note("sock:inet_sock_set_state", "skaddr", Keep::Some)
            .when("protocol == 6 && newstate != 7 && newstate != 2 && oldstate != 10"),
        // An attempt that failed has an error: the packet is still in a queue of this host (`__tcp_retransmit_skb()` in
        // net/ipv4/tcp_output.c). Older kernels have no event for it.
        Rule::note("tcp:tcp_retransmit_skb", "skaddr", Keep::First).when("err == 0").with_field("err").optional(),
        Rule::note("tcp:tcp_retransmit_skb", "skaddr", Keep::First).without_field("err").optional(),
        Rule::note("tcp:tcp_receive_reset", "skaddr", Keep::First).optional(),
        Rule::note("tcp:tcp_send_reset", "skaddr", Keep::First).optional(),
    ],
    task: SpanTask::Computed(task),
    scope: Scope::Machine,
    fields: &[
        Field::text("role", "client if this end asked for the connection, server if it accepted it", |span| {
            if is_client(span) { b"client".into() } else { b"server".into() }
        })
        .one_of(|| texts(["client", "server"]), ""),
        Field::text("saddr", "address of this end; of IPv4 also if the socket is of IPv6 (no `::ffff:`)", |span| {
            address(&latest(span), "saddr", "saddr_v6")
        }),
        Field::uint("sport", "port of this end; 0 if no event says it yet", |span| latest(span).uint("sport")),
        Field::text("daddr", "address of the other end", |span| address(&latest(span), "daddr", "daddr_v6")),
        Field::uint("dport", "port of the other end", |span| latest(span).uint("dport")),
        Field::int(
            "pid",
            "process that asked for the connection, or that closed or reset the accepted one; -1 if the events do not say it",
            |span| owner(span).map_or(-1, |part| part.pid().into()),
        ),
        Field::text("comm", "name of this task; empty if it is not known", |span| {
            owner(span).map_or(b"".into(), |part| span.comm(&part))
        }),
        Field::time_if_known(
            "connect",
            "ns until the connection that this end asked for was established; None if it never was, if this end accepted it, or if the event was not delivered",
            |span| connected(span).map(|part| part.time().saturating_sub(span.begin().time())),
        ),
        Field::text(
            "states",
            "its states, each with the ns in it: SYN_SENT=52000 ESTABLISHED=1830000; after `unknown`, a change was not delivered",
            states,
        ),
        Field::uint(
            "retransmits",
            "how often packets were sent again; one time can be several segments, SYN-ACKs do not count, nor do attempts that failed",
            |span| span.count("tcp_retransmit_skb"),
        ),
        Field::text("reset", "received or sent, if a reset ended it", |span| {
            match (span.note("tcp_receive_reset"), span.note("tcp_send_reset").or_else(|| cut_off(span))) {
                (Some(_), _) => b"received".into(),
                (None, Some(_)) => b"sent".into(),
                (None, None) => b"".into(),
            }
        })
        .one_of(|| texts(["received", "sent"]), ""),
    ],
    dependent: &[
        Dependent { fields: "the numbers of `retransmits`", events: &["tcp:tcp_retransmit_skb"] },
        Dependent { fields: "some values of `reset`", events: &["tcp:tcp_receive_reset"] },
    ],
    outlasting: Some(["connection", "connections"]),
    reports_ends: true,
    begun_before: Some(BegunBefore {
        // A socket that never had a connection comes from CLOSE (7).
        is_end: |span| span.last().int("oldstate") != 7,
        known: &["saddr", "sport", "daddr", "dport"],
        counted: "tcp_retransmit_skb",
    }),
    ..SourceDefinition::EMPTY
};

/// Returns the changes of the connection's state, in order.
fn changes<'a>(span: &SpanView<'a>) -> impl Iterator<Item = PartView<'a>> + use<'a> {
    let inner = span.notes().map(|(part, _)| part).filter(|part| part.is("inet_sock_set_state"));
    std::iter::once(span.begin()).chain(inner).chain(span.end())
}

fn is_client(span: &SpanView<'_>) -> bool {
    span.begin().int("newstate") == 2
}

/// Returns the change of state in which a client's connection was established. A server's socket is made when the last packet
/// of the handshake comes (`tcp_check_req()` in net/ipv4/tcp_minisocks.c), and is established at once: how long the
/// handshake took, no event of the socket shows. `None` also if the event was not delivered.
fn connected<'a>(span: &SpanView<'a>) -> Option<PartView<'a>> {
    changes(span).find(|part| part.int("newstate") == 1).filter(|_| is_client(span))
}

/// Returns the last change of state in which the socket has a port, or else a packet that was sent again, or else the first
/// change. A client's socket usually gets its port after its first change.
fn latest<'a>(span: &SpanView<'a>) -> PartView<'a> {
    let with_port = changes(span).filter(|part| part.int("sport") != 0).last();
    with_port.or_else(|| span.note("tcp_retransmit_skb")).unwrap_or_else(|| span.begin())
}

/// Returns a change of state that happened in a task that uses the socket. For a client, this is the change in connect().
/// For a server, it is the change in close() or shutdown() (`tcp_close_state()` in net/ipv4/tcp.c), or in the call that
/// reset the connection. All other changes may happen in an interrupt of any task.
fn owner<'a>(span: &SpanView<'a>) -> Option<PartView<'a>> {
    match is_client(span) {
        true => Some(span.begin()),
        false => changes(span).find(|part| matches!(part.int("newstate"), 4 | 9)).or_else(|| cut_off(span)),
    }
}

/// Returns the change of state at the end of a connection, if a call reset the connection. The old state is then
/// ESTABLISHED (1), or CLOSE_WAIT (8) if the other side had closed before. Such calls are close() with unread data or with
/// a SO_LINGER time of 0, connect() with AF_UNSPEC, and `ss --kill` (`__tcp_close()`, `tcp_disconnect()` and `tcp_abort()`
/// in net/ipv4/tcp.c). The kernel sends the reset right after this change.
fn cut_off<'a>(span: &SpanView<'a>) -> Option<PartView<'a>> {
    let is_received = span.note("tcp_receive_reset").is_some();
    span.end().filter(|end| matches!(end.int("oldstate"), 1 | 8) && !end.is_in_interrupt() && !is_received)
}

fn task(span: &SpanView<'_>) -> Option<(i32, i32)> {
    owner(span).map(|part| (part.pid(), part.tid()))
}

fn states<'a>(span: &SpanView<'a>) -> Cow<'a, [u8]> {
    let end = span.begin().time() + span.duration();
    let changes: Vec<PartView<'_>> = changes(span).collect();
    let mut states = Vec::new();
    for (at, change) in changes.iter().enumerate() {
        let state = change.int("newstate");
        let Some(next) = changes.get(at + 1) else {
            // After the change at its end, the connection is in no state.
            if span.end().is_none() {
                states.push(format!("{}={}", state_name(state), end.saturating_sub(change.time())));
            }
            break;
        };
        let (before, time) = (next.int("oldstate"), next.time().saturating_sub(change.time()));
        match state == before {
            true => states.push(format!("{}={time}", state_name(state))),
            // A change was not delivered. When it happened, and from where, is not known.
            false => states.extend([format!("unknown={time}"), format!("{}=0", state_name(before))]),
        }
    }
    states.join(" ").into_bytes().into()
}

fn state_name(state: i64) -> &'static str {
    let at = state.checked_sub(1).and_then(|at| usize::try_from(at).ok());
    at.and_then(|at| STATES.get(at)).copied().unwrap_or("unknown")
}

fn address<'a>(part: &PartView<'a>, v4: &str, v6: &str) -> Cow<'a, [u8]> {
    // AF_INET6 is 10 on Linux.
    let text = match part.int("family") {
        // A socket for both families has an address such as ::ffff:10.0.0.7 if the other end uses IPv4.
        10 => part.bytes(v6).try_into().map(|bytes: [u8; 16]| Ipv6Addr::from(bytes).to_canonical().to_string()),
        _ => part.bytes(v4).try_into().map(|bytes: [u8; 4]| Ipv4Addr::from(bytes).to_string()),
    };
    text.unwrap_or_default().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use perf_prof_format::tracefs::NoKernel;

    use super::{
        super::made::{MadeEvent, MadeRun, MadeSample},
        TCP,
    };
    use crate::event::{Context, SpansOf, Targets};

    const STATE: &str = "sock:inet_sock_set_state";
    const FIELDS: &[&str] = &[
        "u64 skaddr",
        "int oldstate",
        "int newstate",
        "int protocol",
        "int family",
        "int sport",
        "int dport",
        "char saddr[8]",
        "char daddr[8]",
        "char saddr_v6[8]",
        "char daddr_v6[8]",
    ];

    /// Runs the changes of state of one socket, each given as (old state, new state), one ms apart. Returns the connection.
    fn connection(changes: &[(i64, i64)]) -> String {
        connections("tcp", changes).1.concat()
    }

    const EVENTS: [MadeEvent; 1] = [MadeEvent { name: STATE, fields: FIELDS, print: "\"\"" }];

    /// Like `connection`, for several connections, one after the other. Also returns the run.
    fn connections(selector: &str, changes: &[(i64, i64)]) -> (MadeRun, Vec<String>) {
        let mut run = MadeRun::start(&TCP, selector, &EVENTS);
        let spans = spans(&mut run, changes);
        (run, spans)
    }

    /// Passes changes of state to a run. Returns the connections.
    fn spans(run: &mut MadeRun, changes: &[(i64, i64)]) -> Vec<String> {
        let fields = |&(old, new): &(i64, i64)| [("skaddr", 7), ("protocol", 6), ("oldstate", old), ("newstate", new)];
        let fields: Vec<_> = changes.iter().map(fields).collect();
        let sample = |(at, fields)| MadeSample { event: STATE, tid: 9, cpu: 0, time: 1_000_000 * at as u64, fields };
        let samples: Vec<_> = fields.iter().map(|fields| &fields[..]).enumerate().map(sample).collect();
        run.spans(&samples)
    }

    #[test]
    fn a_change_of_state_that_was_not_delivered_is_noticed_by_the_next_one() {
        let [closed, established, sent, fin_wait_1, fin_wait_2, close_wait, last_ack] = [7, 1, 2, 4, 5, 8, 9];
        for (changes, connect, states) in [
            (
                &[(closed, sent), (sent, established), (established, fin_wait_1), (fin_wait_1, closed)][..],
                "connect=1000000",
                "SYN_SENT=1000000 ESTABLISHED=1000000 FIN_WAIT1=1000000",
            ),
            (
                &[(closed, sent), (established, close_wait), (close_wait, last_ack), (last_ack, closed)],
                "connect=-",
                "unknown=1000000 ESTABLISHED=0 CLOSE_WAIT=1000000 LAST_ACK=1000000",
            ),
            (
                &[(closed, sent), (sent, established), (established, fin_wait_1), (fin_wait_2, closed)],
                "connect=1000000",
                "SYN_SENT=1000000 ESTABLISHED=1000000 unknown=1000000 FIN_WAIT2=0",
            ),
        ] {
            let text = connection(changes);
            assert!(text.contains(connect) && text.contains(&format!("states={states} ")), "{text}");
        }
    }

    #[test]
    fn a_connection_whose_socket_is_used_again_lacks_its_end() {
        let [closed, established, sent, listens, received, last_ack] = [7, 1, 2, 10, 3, 9];
        let whole = [(closed, sent), (sent, established), (established, closed)];
        for begin in [(closed, sent), (listens, received)] {
            let lacking = [begin, (begin.1, established), (established, last_ack)];
            let (mut run, spans) = connections("tcp", &[&lacking[..], &whole].concat());
            assert_eq!(spans.len(), 1, "{spans:?}");
            assert!(spans[0].contains("states=SYN_SENT=1000000 ESTABLISHED=1000000 "), "{spans:?}");
            assert_eq!((run.counts(), run.unended(), run.missing()), ([2, 1, 1, 0], 1, 3_000_000));
            run.finish();
            assert_eq!(run.unended(), 1);
        }
        let (run, spans) = connections("tcp", &[whole, whole].concat());
        assert_eq!((spans.len(), run.counts(), run.unended()), (2, [2, 2, 0, 0], 0));
    }

    #[test]
    fn connections_that_had_not_ended_are_counted_if_the_option_open_would_add_them() {
        let [closed, established, sent] = [7, 1, 2];
        let open = [(closed, sent), (sent, established)];
        let whole = [&open[..], &[(established, closed)]].concat();
        for (selector, changes, number) in [
            ("tcp", &open[..], Some(1)),
            ("tcp", &whole, Some(0)),
            ("tcp/connect > 500000/", &open, Some(1)),
            ("tcp/connect > 2000000/", &open, Some(0)),
            ("tcp/min=10s/", &open, Some(0)),
            ("tcp/open/", &open, None),
        ] {
            let (mut run, spans) = connections(selector, changes);
            assert_eq!((run.not_ended(), spans.len()), (None, usize::from(changes.len() == whole.len())));
            run.finish();
            assert_eq!((run.not_ended(), run.unended()), (number, 0), "{selector} {changes:?}");
        }
    }

    #[test]
    fn a_connection_that_began_before_the_run_is_counted_if_the_filter_may_select_it() {
        let [closed, established, sent, listens, last_ack] = [7, 1, 2, 10, 9];
        for (selector, end, number) in [
            ("tcp", (established, closed), 1),
            ("tcp", (last_ack, closed), 1),
            ("tcp", (sent, closed), 1),
            // Sockets without a connection.
            ("tcp", (listens, closed), 0),
            ("tcp", (closed, closed), 0),
            // The end shows the ports, but not when the connection began, or which end asked for it.
            ("tcp/sport=0/", (established, closed), 1),
            ("tcp/sport=5/", (established, closed), 0),
            ("tcp/role=client/", (established, closed), 1),
            ("tcp/connect > 5/", (established, closed), 1),
        ] {
            let (run, spans) = connections(selector, &[end]);
            assert_eq!((run.before(), spans.len()), ((number, 0), 0), "{selector} {end:?}");
        }
        // After a loss, the begin may have been lost.
        let mut run = MadeRun::start(&TCP, "tcp", &EVENTS);
        run.lost();
        spans(&mut run, &[(established, closed)]);
        assert_eq!(run.before(), (0, 0));
    }

    #[test]
    fn connections_of_unknown_tasks_are_counted_if_tasks_are_selected() {
        let [closed, sent, listens, received] = [7, 2, 10, 3];
        // No event shows the task of this server's connection, or of one that is open.
        let server = [(listens, received), (received, closed)];
        let client = [(closed, sent), (sent, closed)];
        for (selector, changes, number) in [
            ("tcp", &server[..], 1),
            ("tcp/role=server/", &server, 1),
            ("tcp/role=client/", &server, 0),
            ("tcp", &client, 0),
            ("tcp", &server[..1], 0),
            ("tcp/open/", &server[..1], 1),
        ] {
            let context = Context::new(Box::new(NoKernel), 0);
            let context = context.with_targets(Some(Targets::recorded(&[], &[8])), SpansOf::SelectedTasks);
            let mut run = MadeRun::start_in(context, &TCP, selector, &EVENTS);
            let spans = spans(&mut run, changes);
            run.finish();
            assert_eq!(
                (run.without_task(), spans.len(), run.delivered.len()),
                (number, 0, 0),
                "{selector} {changes:?}"
            );
            let (mut run, _) = connections(selector, changes);
            run.finish();
            assert_eq!(run.without_task(), 0);
        }
    }
}
