//! What the kernel gives away of itself in its formats and its text. Text in, facts out.

use super::EventFormat;

/// CONFIG_HZ, from the format of `writeback:writeback_single_inode`: its print format divides a time in ticks by it.
pub fn hz(writeback_single_inode: &EventFormat) -> Option<u32> {
    let (_, divisor) = writeback_single_inode.print_fmt_text().split_once("(jiffies - REC->dirtied_when) / ")?;
    divisor[..divisor.find(|c: char| !c.is_ascii_digit())?].parse().ok().filter(|&hz| hz > 0)
}

/// The kernel's `vmemmap_base`, from a line that it printed of an event of `kmem` which shows a page both by address and
/// by number (`page=ffffea00041e49c0 pfn=0x107927`). `struct_page` is the size of `struct page`.
pub fn vmemmap_base(line: &str, struct_page: u64) -> Option<u64> {
    let hex = |key: &str| {
        let digits = line.split_once(key)?.1.split_ascii_whitespace().next()?;
        u64::from_str_radix(digits.trim_start_matches("0x"), 16).ok()
    };
    let (page, number) = (hex("page=")?, hex("pfn=")?);
    // Of no page there is an address but no number.
    if page == 0 { None } else { page.checked_sub(number.checked_mul(struct_page)?) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_tell_where_they_begin() {
        let line = "mm_page_free: page=ffffea00041e49c0 pfn=0x107927 order=0";
        assert_eq!(vmemmap_base(line, 64), Some(0xffff_ea00_0000_0000));
        assert_eq!(vmemmap_base("mm_page_alloc: page=0000000000000000 pfn=0x0 order=0", 64), None);
        assert_eq!(vmemmap_base("page=x pfn=y", 64), None);
    }

    #[test]
    fn ages_are_divided_by_hz() {
        let format = |print_fmt: &str| {
            let text = format!("name: x\nID: 1\nformat:\n\nprint fmt: {print_fmt}\n");
            EventFormat::parse("writeback", &text).unwrap()
        };
        assert_eq!(hz(&format("\"%lu\", (jiffies - REC->dirtied_when) / 250, 1")), Some(250));
        assert_eq!(hz(&format("\"%lu\", (jiffies - REC->dirtied_when) / 0, 1")), None);
        assert_eq!(hz(&format("\"\"")), None);
    }
}
