//! C's integer types and their arithmetic, as far as print formats need them. Does not know about events.
//!
//! A value of any type is stored in 64 bits. The value is sign-extended if the type is signed, otherwise zero-extended.

/// An integer type of the kernel's C (LP64).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntType {
    /// The size of the type in bytes: 1, 2, 4 or 8.
    pub width: u8,
    /// True if the type has negative values.
    pub signed: bool,
}

impl IntType {
    pub(crate) const INT: IntType = IntType { width: 4, signed: true };
    pub(crate) const UINT: IntType = IntType { width: 4, signed: false };
    pub(crate) const LONG: IntType = IntType { width: 8, signed: true };
    pub(crate) const ULONG: IntType = IntType { width: 8, signed: false };
    pub(crate) const CHAR: IntType = IntType { width: 1, signed: false };

    #[inline]
    pub(crate) const fn new(width: u8, signed: bool) -> Self {
        Self { width, signed }
    }

    /// Converts a value of any type to this type.
    #[inline]
    pub fn wrap(self, value: u64) -> u64 {
        match (self.width, self.signed) {
            (1, false) => value as u8 as u64,
            (1, true) => value as i8 as i64 as u64,
            (2, false) => value as u16 as u64,
            (2, true) => value as i16 as i64 as u64,
            (4, false) => value as u32 as u64,
            (4, true) => value as i32 as i64 as u64,
            _ => value,
        }
    }

    /// Returns the type after C's integer promotion.
    pub fn promoted(self) -> IntType {
        if self.width < 4 { Self::INT } else { self }
    }

    /// Returns the common type of two operands after C's usual arithmetic conversions.
    pub fn common(self, other: IntType) -> IntType {
        let (a, b) = (self.promoted(), other.promoted());
        if a.width == b.width {
            IntType { width: a.width, signed: a.signed && b.signed }
        } else if a.width > b.width {
            a
        } else {
            b
        }
    }

    /// Reads a value of this type at `offset`. Returns `None` if `bytes` ends before the end of the value.
    #[inline]
    pub fn load(self, bytes: &[u8], offset: usize) -> Option<u64> {
        let at = bytes.get(offset..)?;
        let value = match self.width {
            1 => *at.first()? as u64,
            2 => u16::from_ne_bytes(*at.first_chunk()?) as u64,
            4 => u32::from_ne_bytes(*at.first_chunk()?) as u64,
            _ => u64::from_ne_bytes(*at.first_chunk()?),
        };
        Some(self.wrap(value))
    }

    /// Returns the integer type with this name. Qualifiers are ignored. Returns `None` if there is no such integer
    /// type.
    pub fn named(words: &str) -> Option<IntType> {
        let mut base = None;
        let (mut long, mut short, mut char, mut unsigned, mut signed, mut plain) =
            (0, false, false, false, false, false);
        for word in words.split_ascii_whitespace() {
            match word {
                "const" | "volatile" | "__force" | "__bitwise" | "static" | "register" => {}
                "unsigned" => unsigned = true,
                "signed" | "__signed__" => signed = true,
                "long" => long += 1,
                "short" => short = true,
                "int" => plain = true,
                "char" => char = true,
                "enum" => return Some(Self::UINT),
                name if base.is_none() => base = Some(Self::typedef(name)?),
                _ => return None,
            }
        }
        if base.is_some() {
            return base;
        }
        if !(plain || unsigned || signed || short || char || long > 0) {
            return None;
        }
        // The kernel is built with -funsigned-char.
        let width = if char {
            1
        } else if short {
            2
        } else if long > 0 {
            8
        } else {
            4
        };
        Some(IntType::new(width, if char { signed } else { !unsigned }))
    }

    /// Returns the type of a typedef from `include/linux/types.h` or a similar header.
    fn typedef(name: &str) -> Option<IntType> {
        let (width, signed) = match name {
            "bool" | "_Bool" | "u8" | "__u8" | "uint8_t" | "u_int8_t" | "unchar" | "u_char" => (1, false),
            "s8" | "__s8" | "int8_t" => (1, true),
            "u16" | "__u16" | "uint16_t" | "u_int16_t" | "ushort" | "u_short" | "umode_t" | "__be16" | "__le16" => {
                (2, false)
            }
            "s16" | "__s16" | "int16_t" => (2, true),
            "u32" | "__u32" | "uint32_t" | "u_int32_t" | "uint" | "u_int" | "gfp_t" | "dev_t" | "uid_t" | "gid_t"
            | "__be32" | "__le32" | "qid_t" | "projid_t" | "fmode_t" | "slab_flags_t" | "blk_opf_t" | "tid_t"
            | "ext4_lblk_t" | "xfs_agnumber_t" | "xfs_agblock_t" | "xfs_extlen_t" => (4, false),
            "s32" | "__s32" | "int32_t" | "pid_t" | "clockid_t" | "key_t" | "mqd_t" | "timer_t" | "key_serial_t"
            | "__kernel_rwf_t" | "rwf_t" | "vm_fault_t" => (4, true),
            "u64" | "__u64" | "uint64_t" | "u_int64_t" | "ulong" | "u_long" | "size_t" | "ino_t" | "sector_t"
            | "blkcnt_t" | "pgoff_t" | "dma_addr_t" | "phys_addr_t" | "resource_size_t" | "gpa_t" | "gfn_t"
            | "hpa_t" | "gva_t" | "vm_flags_t" | "aio_context_t" | "uintptr_t" | "__be64" | "__le64"
            | "ext4_fsblk_t" | "xfs_ino_t" | "xfs_fsblock_t" | "cpumask_t" | "nodemask_t" => (8, false),
            "s64" | "__s64" | "int64_t" | "ssize_t" | "loff_t" | "off_t" | "time64_t" | "ktime_t" | "intptr_t"
            | "ptrdiff_t" | "xfs_fileoff_t" | "xfs_daddr_t" | "xfs_fsize_t" | "xfs_lsn_t" => (8, true),
            _ => return None,
        };
        Some(IntType::new(width, signed))
    }
}

/// A binary operator on two integers of the same type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BinaryOp {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    ShiftLeft,
    ShiftRight,
    BitAnd,
    BitOr,
    BitXor,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

impl BinaryOp {
    pub fn is_comparison(self) -> bool {
        use BinaryOp::*;
        matches!(self, Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual)
    }

    pub fn is_shift(self) -> bool {
        matches!(self, BinaryOp::ShiftLeft | BinaryOp::ShiftRight)
    }

    /// Applies the operator to two values that were converted to `ty`. In C, an overflow and a large shift count are
    /// undefined. Here, as on the machine, an overflow wraps, and a shift count is taken modulo the width. Returns
    /// `None` only for a division by zero.
    pub fn apply(self, ty: IntType, a: u64, b: u64) -> Option<u64> {
        use BinaryOp::*;
        let count = (b & (u64::from(ty.width) * 8 - 1)) as u32;
        let order = if ty.signed { (a as i64).cmp(&(b as i64)) } else { a.cmp(&b) };
        let value = match self {
            Add => a.wrapping_add(b),
            Subtract => a.wrapping_sub(b),
            Multiply => a.wrapping_mul(b),
            Divide | Remainder if b == 0 => return None,
            Divide if ty.signed => (a as i64).wrapping_div(b as i64) as u64,
            Divide => a / b,
            Remainder if ty.signed => (a as i64).wrapping_rem(b as i64) as u64,
            Remainder => a % b,
            ShiftLeft => a << count,
            ShiftRight if ty.signed => ((a as i64) >> count) as u64,
            ShiftRight => a >> count,
            BitAnd => a & b,
            BitOr => a | b,
            BitXor => a ^ b,
            Equal => order.is_eq().into(),
            NotEqual => order.is_ne().into(),
            Less => order.is_lt().into(),
            LessEqual => order.is_le().into(),
            Greater => order.is_gt().into(),
            GreaterEqual => order.is_ge().into(),
        };
        Some(if self.is_comparison() { value } else { ty.wrap(value) })
    }
}
