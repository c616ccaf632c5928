//! `stat`: counts of each cgroup.

use super::Groups;
use crate::harness::{
    counting::{objects, stat},
    machine::{Need, needs},
    run::said,
    script::CALL,
};

/// Returns the cgroup and the count of each row.
fn rows(args: &[&str], command: &[String]) -> Vec<(String, u64)> {
    let output = stat(args).arg("--json").arg("--").args(command).output().unwrap();
    let object = objects(&said(&output)).pop().unwrap();
    let row =
        |row: &serde_json::Value| (row["cgroup"].as_str().unwrap_or("-").to_owned(), row["value"].as_u64().unwrap());
    object["events"].as_array().unwrap().iter().map(row).collect()
}

#[test]
fn each_cgroup_is_counted_for_itself_with_those_below_it() {
    needs([Need::Tracefs]);
    let groups = Groups::new();
    let (Groups { inner, outer, other }, command) = (&groups, groups.calls());
    let list = format!("{},{},{}", outer.name, inner.name, other.name);
    let exit = "syscalls:sys_exit_getpgid";
    let found = rows(&["-e", &format!("{CALL},{exit}"), "--for-each-cgroup", &list], &command);
    let expected = [(outer, 50), (inner, 20), (other, 7)];
    let expected: Vec<(String, u64)> =
        expected.iter().flat_map(|(cgroup, count)| [(); 2].map(|()| (format!("/{}", cgroup.name), *count))).collect();
    assert_eq!(found, expected);
    let of_glob = rows(&["-e", CALL, "--for-each-cgroup", &format!("{}/*", outer.name)], &command);
    assert_eq!(of_glob, [(format!("/{}", inner.name), 20)]);
    // The inner cgroup is part of the outer one. The sum of both counts each call once.
    let together = rows(&["-e", CALL, "--cgroups", &list], &command);
    assert_eq!(together, [("-".to_owned(), 57)]);
}

#[test]
fn the_cgroups_of_perf_are_one_for_all_events_or_one_for_each() {
    needs([Need::Tracefs]);
    let groups = Groups::new();
    let (Groups { inner, outer, other }, command) = (&groups, groups.calls());
    let exit = "syscalls:sys_exit_getpgid";
    let events = format!("{CALL},{exit}");
    assert_eq!(rows(&["-e", &events, "-a", "-G", &outer.name], &command), [("-".to_owned(), 50), ("-".to_owned(), 50)]);
    let list = format!("{},{}", inner.name, other.name);
    let found = rows(&["-e", &events, "-a", "--cgroup", &list], &command);
    assert_eq!(found, [(format!("/{}", inner.name), 20), (format!("/{}", other.name), 7)]);
    let wrong = stat(&["-e", CALL, "-G", &list]).args(["--", "true"]).output().unwrap();
    let message = "perf-prof: -G has 2 cgroups for 1 events: give one cgroup for all events, or one for each event";
    assert!(said(&wrong).starts_with(message), "{}", said(&wrong));
    assert_eq!(wrong.status.code(), Some(1));
}
