//! The grammar of static probes (USDT): `usdt:PROVIDER:NAME@FILE`. Does not know which probes a file has.

use super::{
    glob::is_glob,
    parse::unquote,
    probe::{Probe, ProbeKind, ProbeLocation, ProbeSyntaxError, checked_for_quotes, file, is_path, up_to},
};

/// The text that stands for `-` in the probe names of a file. For the probe that is documented as `query-start`, the
/// file contains `query__start`.
const DASH: &str = "__";

/// Parses a static probe after `usdt:`. Returns the probe and the text after it.
///
/// `usdt:PROVIDER:` without a name stands for all probes of the provider. Without a file, the files that a process has
/// mapped are searched. `FILE:PROVIDER:NAME` is accepted for paths, as in other tools.
pub(super) fn parse(text: &str) -> Result<(Probe, &str), ProbeSyntaxError> {
    let text = text.trim_start();
    if is_path(text) {
        let (file, after) = up_to(text, &[',', ':'])?;
        let (location, after) = up_to(after.strip_prefix(':').unwrap_or_default(), &[',', '/'])?;
        return Ok((probe(location, file)?, after));
    }
    let (location, after) = up_to(text, &[',', '/', '@'])?;
    match after.strip_prefix('@') {
        Some(behind) => {
            let (file, after) = file(behind)?;
            Ok((probe(location, file)?, after))
        }
        None => Ok((probe(location, "")?, after)),
    }
}

fn probe(location: &str, file: &str) -> Result<Probe, ProbeSyntaxError> {
    let is_name =
        |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.$*?[]!^".contains(c));
    let (provider, name) = location.trim().split_once(':').unwrap_or((location.trim(), "*"));
    if !is_name(provider) || !is_name(name) {
        return Err(ProbeSyntaxError::Static(location.trim().to_owned()));
    }
    let location = ProbeLocation::Static { provider: provider.to_owned(), name: in_file(name) };
    let file = checked_for_quotes(unquote(file.trim()))?;
    Ok(Probe { kind: ProbeKind::Usdt, location, file })
}

/// Converts the name of a probe in the documentation to its name in the file.
fn in_file(name: &str) -> String {
    if is_glob(name) { name.to_owned() } else { name.replace('-', DASH) }
}

#[cfg(test)]
mod tests {
    use crate::spec::{EventKind, parse_events};

    /// Returns the selectors of a list in their usual form, or the error.
    fn shown(list: &str) -> String {
        match parse_events(list) {
            Ok(events) => events.iter().map(|event| event.to_string()).collect::<Vec<_>>().join(" , "),
            Err(error) => format!("error: {error}"),
        }
    }

    #[test]
    fn a_static_probe_has_a_provider_a_name_and_a_file() {
        for (list, expected) in [
            ("usdt:libc:setjmp@libc.so.6", "usdt:libc:setjmp@\"libc.so.6\""),
            ("usdt:libc:setjmp@/lib/libc.so.6//stack/", "usdt:libc:setjmp@\"/lib/libc.so.6\"//stack/"),
            ("usdt:a:b@\"/x y\"/arg1 > 0/q=arg2:string/", "usdt:a:b@\"/x y\"/arg1 > 0/q=arg2:string/"),
            ("usdt:./bin/x:a:b/arg1==5/", "usdt:a:b@\"./bin/x\"/arg1==5/"),
            ("usdt:a:b,usdt:c:d//stack/", "usdt:a:b , usdt:c:d//stack/"),
            ("usdt:*@postgres", "usdt:*:*@\"postgres\""),
            ("usdt:postgresql:query-start@postgres", "usdt:postgresql:query__start@\"postgres\""),
            ("usdt:postgresql:[a-c]*@postgres", "usdt:postgresql:[a-c]*@\"postgres\""),
        ] {
            assert_eq!(shown(list), expected, "{list}");
            assert_eq!(shown(&shown(list).replace(" , ", ",")), expected, "{list}");
        }
        for list in ["usdt:", "usdt::", "usdt:a:", "usdt::b@x", "usdt:a:b:c@x", "usdt:a b:c@x", "usdt:/a/b"] {
            assert!(shown(list).contains("write usdt:PROVIDER:NAME@\"FILE\""), "{list}: {}", shown(list));
        }
    }

    /// The selector of a live probe also selects the probe in perf's recordings.
    #[test]
    fn it_is_recorded_under_the_name_that_perf_has_for_it() {
        let mut events = parse_events("usdt:postgresql:query-*@postgres").unwrap();
        let event = events.remove(0);
        assert!(event.matches("sdt_postgresql", "query-start") && !event.matches("sdt_postgres", "query-start"));
        let EventKind::Probe(probe) = parse_events("usdt:my.app:a__b@x").unwrap().remove(0).kind else { panic!() };
        assert_eq!(probe.recorded_name(), ("sdt_my_app".to_owned(), "a__b".to_owned()));
    }
}
