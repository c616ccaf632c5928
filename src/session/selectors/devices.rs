//! Names of block devices in the options of the source `block-io`. Its events contain only the numbers of devices.

use std::fs;

use anyhow::{Result, bail};
use perf_prof_format::spec::{SpanEvents, SpanSpec, is_glob};

const SOURCE: &str = "block-io";
const DEVICE: &str = "dev";

/// Returns the span with the numbers of this machine's devices in place of their names.
pub fn with_numbers(span: &SpanSpec) -> Result<SpanSpec> {
    let mut span = span.clone();
    for name in names(&mut span) {
        match fs::read_to_string(format!("/sys/class/block/{name}/dev")) {
            Ok(number) => number.trim().clone_into(name),
            Err(_) => bail!("{SOURCE}: there is no block device {name}; `lsblk` shows names and numbers"),
        }
    }
    Ok(span)
}

/// Fails if the span contains names of devices. A recording contains only their numbers.
pub fn refuse_names(span: &SpanSpec) -> Result<()> {
    if let Some(name) = names(&mut span.clone()).next() {
        bail!("{SOURCE}: a recording has no names of devices; write {DEVICE}=MAJOR:MINOR in place of {DEVICE}={name}");
    }
    Ok(())
}

fn names(span: &mut SpanSpec) -> impl Iterator<Item = &mut String> {
    let is_source = matches!(&span.events, SpanEvents::Source { source, .. } if source == SOURCE);
    let of_device = span.options.iter_mut().filter(move |option| is_source && option.name == DEVICE);
    // A value with a colon, such as `254:0`, is a number.
    of_device.flat_map(|option| &mut option.values).filter(|value| !value.contains(':') && !is_glob(value))
}

#[cfg(test)]
mod tests {
    use perf_prof_format::spec::{EventKind, parse_events};

    use super::*;

    fn span(selector: &str) -> SpanSpec {
        match parse_events(selector).unwrap().remove(0).kind {
            EventKind::Span(span) => *span,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn names_of_devices_become_numbers() {
        let Some(name) = fs::read_dir("/sys/class/block").unwrap().flatten().next() else { return };
        let name = name.file_name().into_string().unwrap();
        let number = fs::read_to_string(format!("/sys/class/block/{name}/dev")).unwrap();
        let values = |selector: &str| with_numbers(&span(selector)).unwrap().options.remove(0).values;
        assert_eq!(values(&format!("block-io/dev={name}|254:9|8:*/")), [number.trim(), "254:9", "8:*"]);
        assert!(
            with_numbers(&span("block-io/dev=nosuch/")).unwrap_err().to_string().contains("no block device nosuch")
        );
        assert!(refuse_names(&span("block-io/dev=sda/")).is_err() && refuse_names(&span("block-io/dev=8:0/")).is_ok());
        assert_eq!(values("syscall/name=read/"), ["read"]);
    }
}
