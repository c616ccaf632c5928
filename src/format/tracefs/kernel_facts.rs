//! Reads facts about the kernel from the formats of its events.

use super::EventFormat;

/// Returns CONFIG_HZ from the format of `writeback:writeback_single_inode`. The print format of this event divides a
/// time in ticks by CONFIG_HZ.
pub fn hz(writeback_single_inode: &EventFormat) -> Option<u32> {
    let (_, divisor) = writeback_single_inode.print_fmt_text().split_once("(jiffies - REC->dirtied_when) / ")?;
    divisor[..divisor.find(|c: char| !c.is_ascii_digit())?].parse().ok().filter(|&hz| hz > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hz_is_the_divisor_in_the_print_format() {
        let format = |print_fmt: &str| {
            let text = format!("name: x\nID: 1\nformat:\n\nprint fmt: {print_fmt}\n");
            EventFormat::parse("writeback", &text).unwrap()
        };
        assert_eq!(hz(&format("\"%lu\", (jiffies - REC->dirtied_when) / 250, 1")), Some(250));
        assert_eq!(hz(&format("\"%lu\", (jiffies - REC->dirtied_when) / 0, 1")), None);
        assert_eq!(hz(&format("\"\"")), None);
    }
}
