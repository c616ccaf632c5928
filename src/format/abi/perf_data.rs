//! The numbers of the perf.data format. The perf tool defines these numbers; the kernel does not know them.
//!
//! Source: `tools/perf/Documentation/perf.data-file-format.txt`, `tools/lib/perf/include/perf/event.h` (enum
//! perf_user_event_type) and `tools/perf/util/header.h` in the Linux tree.

/// The magic number `PERFILE2` at the start of a file or of a pipe's header, in the byte order of the machine that
/// wrote the file or the header.
pub const PERF_MAGIC2: u64 = u64::from_le_bytes(*b"PERFILE2");

/// The version of perf's directory format. The feature section HEADER_DIR_FORMAT contains this number.
pub const PERF_DIR_VERSION: u64 = 1;

/// The lowest type number of a record that perf's user space writes. The kernel writes the records with lower type
/// numbers.
pub const FIRST_USER_RECORD_TYPE: u32 = 64;

/// The process id in perf's records of kernel mappings (`HOST_KERNEL_ID` in `tools/perf/util/machine.h`).
pub const HOST_KERNEL_ID: u32 = u32::MAX;

macro_rules! numbers {
    ($kind:ty, $what:literal: $($name:ident = $number:literal)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "`: ", $what)]
            pub const $name: $kind = $number;
        )*
    };
}

numbers! { u32, "the type of a record that perf's user space writes.":
    PERF_RECORD_HEADER_ATTR = 64 PERF_RECORD_HEADER_EVENT_TYPE = 65 PERF_RECORD_HEADER_TRACING_DATA = 66
    PERF_RECORD_HEADER_BUILD_ID = 67 PERF_RECORD_FINISHED_ROUND = 68 PERF_RECORD_ID_INDEX = 69
    PERF_RECORD_AUXTRACE_INFO = 70 PERF_RECORD_AUXTRACE = 71 PERF_RECORD_AUXTRACE_ERROR = 72
    PERF_RECORD_THREAD_MAP = 73 PERF_RECORD_CPU_MAP = 74 PERF_RECORD_STAT_CONFIG = 75 PERF_RECORD_STAT = 76
    PERF_RECORD_STAT_ROUND = 77 PERF_RECORD_EVENT_UPDATE = 78 PERF_RECORD_TIME_CONV = 79
    PERF_RECORD_HEADER_FEATURE = 80 PERF_RECORD_COMPRESSED = 81 PERF_RECORD_FINISHED_INIT = 82
    PERF_RECORD_COMPRESSED2 = 83
}

numbers! { u32, "the number of a feature section, which is its bit in the header.":
    HEADER_TRACING_DATA = 1 HEADER_BUILD_ID = 2 HEADER_HOSTNAME = 3 HEADER_OSRELEASE = 4 HEADER_VERSION = 5
    HEADER_ARCH = 6 HEADER_NRCPUS = 7 HEADER_CPUDESC = 8 HEADER_CPUID = 9 HEADER_TOTAL_MEM = 10 HEADER_CMDLINE = 11
    HEADER_EVENT_DESC = 12 HEADER_CPU_TOPOLOGY = 13 HEADER_NUMA_TOPOLOGY = 14 HEADER_BRANCH_STACK = 15
    HEADER_PMU_MAPPINGS = 16 HEADER_GROUP_DESC = 17 HEADER_AUXTRACE = 18 HEADER_STAT = 19 HEADER_CACHE = 20
    HEADER_SAMPLE_TIME = 21 HEADER_MEM_TOPOLOGY = 22 HEADER_CLOCKID = 23 HEADER_DIR_FORMAT = 24
    HEADER_BPF_PROG_INFO = 25 HEADER_BPF_BTF = 26 HEADER_COMPRESSED = 27 HEADER_CPU_PMU_CAPS = 28
    HEADER_CLOCK_DATA = 29 HEADER_HYBRID_TOPOLOGY = 30 HEADER_PMU_CAPS = 31
}

/// `PERF_EVENT_UPDATE__NAME` of `enum perf_event_update_type`: an update that sets the name of an event.
pub const EVENT_UPDATE_NAME: u64 = 2;

/// `PERF_EVENT_UPDATE__CPUS` of `enum perf_event_update_type`: an update that sets the CPUs of an event.
pub const EVENT_UPDATE_CPUS: u64 = 3;

/// An update that only perf-prof writes and reads: the filter of an event.
pub const EVENT_UPDATE_FILTER: u64 = 0x666f_7270_0000_0001;

/// An update that only perf-prof writes and reads: a time in which the events were off.
pub const EVENT_UPDATE_OFF: u64 = 0x666f_7270_0000_0002;

/// The type of an update that only perf-prof writes and reads: the checksum of the compressed record after it.
pub const EVENT_UPDATE_CHECKSUM: u64 = 0x666f_7270_0000_0003;

/// The type of an update that only perf-prof writes and reads: the end of a pipe, or that it will have one.
pub const EVENT_UPDATE_END: u64 = 0x666f_7270_0000_0004;

/// `FEAT_META_INFO` of simpleperf (`simpleperf/record_file.h` of Android): the number of a feature section that perf does
/// not know.
pub const HEADER_SIMPLEPERF_META_INFO: u32 = 129;

/// The number of a feature section that only perf-prof writes and reads. The section contains the names and lines of
/// the interpreter frames in samples.
pub const HEADER_INTERPRETER_FRAMES: u32 = 200;
