//! The numbers of BPF: classes and operations of instructions, helper functions, commands and flags of bpf(2), and the types
//! of maps and programs.
//!
//! Source: `include/uapi/linux/bpf.h` and `include/uapi/linux/bpf_common.h` in the Linux tree.

macro_rules! numbers {
    ($kind:ty, $what:literal: $($name:ident = $number:literal)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "`: ", $what)]
            pub const $name: $kind = $number;
        )*
    };
}

numbers! { u8, "the class of an instruction, in the lowest three bits of its opcode.":
    BPF_LD = 0x00 BPF_LDX = 0x01 BPF_ST = 0x02 BPF_STX = 0x03 BPF_JMP = 0x05 BPF_JMP32 = 0x06 BPF_ALU = 0x04
    BPF_ALU64 = 0x07
}

numbers! { u8, "the size of what an instruction loads or stores.":
    BPF_W = 0x00 BPF_H = 0x08 BPF_B = 0x10 BPF_DW = 0x18
}

numbers! { u8, "how an instruction loads or stores.":
    BPF_IMM = 0x00 BPF_MEM = 0x60 BPF_ATOMIC = 0xc0
}

numbers! { u8, "where the second operand comes from: the instruction, or a register.":
    BPF_K = 0x00 BPF_X = 0x08
}

numbers! { u8, "an operation on numbers.":
    BPF_ADD = 0x00 BPF_SUB = 0x10 BPF_MUL = 0x20 BPF_DIV = 0x30 BPF_OR = 0x40 BPF_AND = 0x50 BPF_LSH = 0x60
    BPF_RSH = 0x70 BPF_NEG = 0x80 BPF_MOD = 0x90 BPF_XOR = 0xa0 BPF_MOV = 0xb0 BPF_ARSH = 0xc0 BPF_END = 0xd0
}

numbers! { u8, "a jump.":
    BPF_JA = 0x00 BPF_JEQ = 0x10 BPF_JGT = 0x20 BPF_JGE = 0x30 BPF_JSET = 0x40 BPF_JNE = 0x50 BPF_JSGT = 0x60
    BPF_JSGE = 0x70 BPF_CALL = 0x80 BPF_EXIT = 0x90 BPF_JLT = 0xa0 BPF_JLE = 0xb0 BPF_JSLT = 0xc0 BPF_JSLE = 0xd0
}

numbers! { i32, "an atomic operation, in the immediate number of the instruction.":
    BPF_FETCH = 0x01 BPF_XCHG = 0xe1 BPF_CMPXCHG = 0xf1
}

numbers! { u8, "what the number in a 64-bit load of a constant stands for, in place of the source register.":
    BPF_PSEUDO_MAP_FD = 1 BPF_PSEUDO_MAP_VALUE = 2 BPF_PSEUDO_KFUNC_CALL = 2
}

numbers! { i32, "the number of a helper function.":
    BPF_FUNC_MAP_LOOKUP_ELEM = 1 BPF_FUNC_MAP_UPDATE_ELEM = 2 BPF_FUNC_MAP_DELETE_ELEM = 3 BPF_FUNC_KTIME_GET_NS = 5
    BPF_FUNC_GET_SMP_PROCESSOR_ID = 8 BPF_FUNC_GET_CURRENT_PID_TGID = 14 BPF_FUNC_GET_CURRENT_COMM = 16
    BPF_FUNC_PERF_EVENT_OUTPUT = 25 BPF_FUNC_GET_CURRENT_TASK = 35 BPF_FUNC_CURRENT_TASK_UNDER_CGROUP = 37
    BPF_FUNC_GET_STACK = 67 BPF_FUNC_PROBE_READ_USER = 112 BPF_FUNC_PROBE_READ_KERNEL = 113 BPF_FUNC_PROBE_READ_USER_STR = 114
    BPF_FUNC_PROBE_READ_KERNEL_STR = 115
}

numbers! { u64, "a flag of an update of a map.":
    BPF_ANY = 0 BPF_NOEXIST = 1 BPF_EXIST = 2
}

numbers! { u32, "a flag of a map.":
    BPF_F_NO_PREALLOC = 0x1 BPF_F_MMAPABLE = 0x400
}

numbers! { u64, "in place of an index, the CPU on which the program runs.":
    BPF_F_CURRENT_CPU = 0xffff_ffff
}

numbers! { u64, "the stack of the process in place of the kernel's.":
    BPF_F_USER_STACK = 0x100
}

numbers! { i64, "a command of bpf(2).":
    BPF_MAP_CREATE = 0 BPF_MAP_LOOKUP_ELEM = 1 BPF_MAP_UPDATE_ELEM = 2 BPF_MAP_DELETE_ELEM = 3 BPF_PROG_LOAD = 5
    BPF_OBJ_GET_INFO_BY_FD = 15 BPF_RAW_TRACEPOINT_OPEN = 17 BPF_MAP_LOOKUP_BATCH = 24 BPF_LINK_CREATE = 28
}

numbers! { u32, "what a link attaches a program to (`enum bpf_attach_type`).":
    BPF_PERF_EVENT = 41
}

numbers! { usize, "a size that the kernel fixes, in bytes.":
    BPF_OBJ_NAME_LEN = 16 MAX_BPF_STACK = 512 TASK_COMM_LEN = 16
}

/// The type of a map (`enum bpf_map_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapType {
    /// A hash table. Its keys are arbitrary bytes, and all keys have the same size.
    Hash = 1,
    /// An array. All its elements exist from the start.
    Array = 2,
    /// An array that holds the fd of one perf event for each CPU. Programs write records to the rings of these events.
    PerfEventArray = 4,
    /// An array that exists once for each CPU.
    PerCpuArray = 6,
    /// An array of fds of cgroups.
    CgroupArray = 8,
    /// An array of fds of maps.
    ArrayOfMaps = 12,
}

/// The type of a program (`enum bpf_prog_type`). The type decides which context the program gets.
/// Each variant names this context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramType {
    /// The registers at a kprobe or uprobe.
    Kprobe = 2,
    /// The tracepoint's record. Its first 8 bytes are a pointer that only the kernel uses.
    Tracepoint = 5,
    /// A sample of a perf event.
    PerfEvent = 7,
    /// The arguments of a tracepoint.
    RawTracepoint = 17,
}
