//! The text format of Prometheus (`text/plain; version=0.0.4`).

use std::fmt::Write;

use super::{Amount, Family};

/// Appends a metric and its series.
pub fn write_text(family: &Family, to: &mut String) {
    let (metric, kind) = (&family.metric, family.metric.kind.name());
    let name = &metric.name;
    let help = metric.help.replace('\\', "\\\\").replace('\n', "\\n");
    // Writing to a `String` cannot fail.
    let _ = write!(to, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    let mut labels = String::new();
    for (values, amount) in &family.series {
        labels.clear();
        for (label, value) in metric.labels.iter().zip(values) {
            labels.push_str(if labels.is_empty() { "" } else { "," });
            labels.push_str(label);
            labels.push_str("=\"");
            push_escaped(value, &mut labels);
            labels.push('"');
        }
        let _ = match (amount, family.classic(amount)) {
            (Amount::Sum(sum), _) if labels.is_empty() => writeln!(to, "{name} {}", family.value(*sum)),
            (Amount::Sum(sum), _) => writeln!(to, "{name}{{{labels}}} {}", family.value(*sum)),
            (_, Some(histogram)) => {
                let comma = if labels.is_empty() { "" } else { "," };
                for bucket in &histogram.buckets {
                    let _ = writeln!(to, "{name}_bucket{{{labels}{comma}le=\"{}\"}} {}", bucket.end, bucket.count);
                }
                let _ = writeln!(to, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {}", histogram.count);
                let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
                let (sum, count) = (histogram.sum, histogram.count);
                write!(to, "{name}_sum{braces} {sum}\n{name}_count{braces} {count}\n")
            }
            // Not reached: an amount is either a sum or a distribution.
            (Amount::Distribution(_), None) => Ok(()),
        };
    }
}

/// Appends the value of a label, escaped.
fn push_escaped(value: &str, to: &mut String) {
    for c in value.chars() {
        match c {
            '\\' => to.push_str("\\\\"),
            '"' => to.push_str("\\\""),
            '\n' => to.push_str("\\n"),
            c => to.push(c),
        }
    }
}
